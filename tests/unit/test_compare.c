/* The comparison on a tiny setting: what it writes, that it resumes to the same numbers, and what
 * it refuses. */
#include <omp.h>

#include "base/fault.h"
#include "base/json.h"
#include "compare/compare.h"
#include "check.h"
#include "device.h"

enum { TEXT_BYTES = 6000 };

/* Words drawn from a short list: enough for a model to learn something from. */
static alibi_corpus *new_corpus(void)
{
    static const char *const words[] = { "the ",    "boat ",  "key ", "of ",     "a ",
                                         "house\n", "opens ", "and ", "sinks.\n" };
    char text[TEXT_BYTES + 16];
    size_t length = 0;
    const char *texts[1] = { text };
    alibi_corpus *c = NULL;

    for (uint64_t i = 0; length < TEXT_BYTES; i++) {
        const char *word = words[random_below(1, 1, i, sizeof words / sizeof *words)];

        memcpy(text + length, word, strlen(word) + 1);
        length += strlen(word);
    }
    assert_ok(corpus_from_texts(&c, texts, 1));
    return c;
}

/* A text of as many words in `folder`, as words. */
static alibi_corpus *words_corpus(const char *folder)
{
    static const struct slice words[] = { { "<unk>", 5 }, { "<eos>", 5 }, { "a", 1 } };
    const char *path = within(folder, "words.txt");
    char text[TEXT_BYTES + 1];
    alibi_tokenizer *t = NULL;
    alibi_corpus *c = NULL;

    for (int i = 0; i < TEXT_BYTES; i++)
        text[i] = "a b c d "[i % 8];
    write_file(path, text, TEXT_BYTES);
    assert_ok(tokenizer_new_words(&t, words, 3));
    assert_ok(alibi_corpus_open(&c, &path, 1, NULL, t, &(struct alibi_reading){ 0 }, test_call()));
    alibi_tokenizer_free(t);
    return c;
}

/* A comparison that takes moments. */
struct setting {
    struct alibi_compare compare;
    struct alibi_config config;
    struct alibi_training training;
    alibi_corpus *corpus;
};

static void set_defaults(struct setting *s)
{
    struct alibi_option_group groups[2] = { { .title = "model", .values = &s->config },
                                            { .title = "training", .values = &s->training } };

    memset(s, 0, sizeof *s);
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    assert_ok(alibi_options_init(groups, 2));
}

static struct setting tiny(void)
{
    struct setting s;

    set_defaults(&s);
    s.compare = (struct alibi_compare){ .methods = { 2, { "alibi", "learned" } },
                                        .lengths = { 3, { 32, 8, 64 } } };
    s.compare.sliding_tokens = 200;
    s.compare.stream_tokens = 150;
    s.config.layers = 1;
    s.config.width = 8;
    s.config.heads = 2;
    s.training.train_length = 32;
    s.training.batch = 2;
    s.training.steps = 6;
    s.training.warmup = 2;
    s.training.save_every = 4;
    s.corpus = new_corpus();
    return s;
}

static alibi_status run(const struct setting *s, const char *dir, struct alibi_compare_result **out)
{
    return alibi_compare_run(test_device(), &s->compare, &s->config, &s->training, s->corpus, dir,
                             out);
}

static alibi_status try_run(const struct setting *s, const char *dir)
{
    struct alibi_compare_result *result = NULL;
    alibi_status status = run(s, dir, &result);

    alibi_compare_free(result);
    return status;
}

static void assert_same_evals(const struct alibi_eval_result *x, const struct alibi_eval_result *y,
                              int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(x[i].tokens, y[i].tokens);
        if (x[i].tokens > 0)
            assert_true(x[i].nll == y[i].nll && x[i].standard_error == y[i].standard_error);
    }
}

static void assert_same_losses(const struct alibi_compare_result *a,
                               const struct alibi_compare_result *b)
{
    assert_int_equal(a->methods, b->methods);
    for (int m = 0; m < a->methods; m++) {
        const struct alibi_compare_method *x = &a->method[m], *y = &b->method[m];

        assert_string_equal(x->name, y->name);
        assert_true(x->train_loss == y->train_loss);
        assert_int_equal(x->lengths, y->lengths);
        assert_int_equal(x->sliding_lengths, y->sliding_lengths);
        assert_same_evals(x->by_length, y->by_length, x->lengths);
        assert_same_evals(x->sliding, y->sliding, x->sliding_lengths);
        assert_same_evals(&x->stream, &y->stream, 1);
    }
}

/* ---- what it gives */

static void check_evals(const struct alibi_eval_result *evals, int with_value)
{
    static const int64_t lengths[] = { 8, 32, 64 };

    for (int i = 0; i < 3; i++) {
        assert_int_equal(evals[i].length, lengths[i]);
        if (i < with_value)
            assert_true(evals[i].tokens > 0 && evals[i].nll > 0 && evals[i].nll < 6);
        else
            assert_true(evals[i].tokens == 0 && isnan(evals[i].nll));
    }
}

static void check_method(const struct alibi_compare_method *m, const char *name, int with_value)
{
    assert_string_equal(m->name, name);
    assert_true(m->parameters > 0 && m->peak_bytes > 0 && m->train_tokens_per_s > 0 &&
                m->train_seconds > 0);
    assert_string_equal(m->device, "cpu");
    assert_int_equal(m->precision, ALIBI_FP32);
    assert_int_equal(m->lengths, 3);
    assert_int_equal(m->sliding_lengths, 3);
    check_evals(m->by_length, with_value);
    check_evals(m->sliding, with_value);
    for (int i = 0; i < with_value; i++) {
        assert_int_equal(m->sliding[i].stride, m->sliding[i].length / 2);
        assert_int_equal(m->sliding[i].tokens, 200);
    }
}

static void assert_parses(const char *dir, const char *name)
{
    json_t *json = NULL;

    assert_ok(json_read(&json, within(dir, name)));
    json_decref(json);
}

static void every_method_has_every_length_and_learned_ends_at_its_table(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;
    char *text = NULL;

    (void)state;
    assert_ok(run(&s, dir, &r));
    assert_int_equal(r->methods, 2);
    check_method(&r->method[0], "alibi", 3);
    check_method(&r->method[1], "learned", 2);
    assert_int_equal(r->method[0].stream.tokens, 150);
    assert_int_equal(r->method[1].stream.tokens, 0);
    assert_parses(dir, "recipe.json");
    assert_parses(dir, "text.json");
    assert_parses(dir, "results.json");
    assert_parses(dir, "alibi/result.json");
    assert_true(file_exists(within(dir, "results.csv")));
    assert_true(file_exists(within(dir, "report.html")));
    assert_ok(alibi_compare_text(&text, r, 80, false));
    assert_non_null(strstr(text, "learned"));
    alibi_text_free(text);
    assert_ok(alibi_compare_json(&text, r));
    assert_non_null(strstr(text, "\"by_length\""));
    alibi_text_free(text);
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void a_finished_comparison_is_read_back_and_not_run_again(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *first = NULL, *again = NULL;

    (void)state;
    assert_ok(run(&s, dir, &first));
    assert_ok(run(&s, dir, &again));
    assert_same_losses(first, again);
    for (int m = 0; m < 2; m++) {
        assert_true(first->method[m].train_seconds == again->method[m].train_seconds);
        assert_string_equal(first->method[m].device, again->method[m].device);
        for (int i = 0; i < 3; i++)
            assert_true(first->method[m].by_length[i].seconds ==
                        again->method[m].by_length[i].seconds);
    }
    alibi_compare_free(first);
    alibi_compare_free(again);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* ---- the sliding window */

static void the_sliding_values_are_those_of_eval_with_half_the_length_as_stride(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;
    alibi_model *model = NULL;

    (void)state;
    assert_ok(run(&s, dir, &r));
    assert_ok(alibi_model_open(&model, test_device(), within(dir, "alibi"), NULL));
    for (int i = 0; i < 3; i++) {
        int64_t length = r->method[0].by_length[i].length;
        struct alibi_eval eval = { .length = length,
                                   .protocol = ALIBI_SLIDING,
                                   .stride = length / 2,
                                   .tokens = 200,
                                   .skip = s.training.skip };
        struct alibi_eval_result e;

        assert_ok(alibi_evaluate(model, s.corpus, ALIBI_VALID, &eval, &e));
        assert_same_evals(&r->method[0].sliding[i], &e, 1);
    }
    alibi_model_free(model);
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* Lengths past sliding_tokens have none; without any, no length has. The other values, and the
 * memory they took, are the same whichever it is. */
static void without_a_sliding_window_the_other_values_are_the_same(void **state)
{
    static const int64_t tokens[] = { 200, 40, 0 };
    static struct alibi_compare_method m[3];
    struct setting s = tiny();

    (void)state;
    s.compare.methods.count = 1;
    for (int k = 0; k < 3; k++) {
        char *dir = temporary_folder();
        struct alibi_compare_result *r = NULL;

        s.compare.sliding_tokens = tokens[k];
        assert_ok(run(&s, dir, &r));
        m[k] = r->method[0];
        assert_same_evals(m[0].by_length, m[k].by_length, 3);
        assert_int_equal(m[0].peak_bytes, m[k].peak_bytes);
        alibi_compare_free(r);
        remove_temporary_folder(dir);
    }
    check_evals(m[1].sliding, 2);
    assert_int_equal(m[1].sliding[0].tokens, 40);
    assert_int_equal(m[2].sliding_lengths, 0);
    alibi_corpus_free(s.corpus);
}

static void the_sliding_window_scores_no_more_than_the_other_evaluation(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;

    (void)state;
    s.compare.eval_tokens = 100;
    assert_ok(run(&s, dir, &r));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->method[0].by_length[i].tokens, 100);
        assert_int_equal(r->method[0].sliding[i].tokens, 100);
    }
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* ---- the stream */

static struct alibi_compare_method alibi_with_stream(struct setting *s, int64_t tokens)
{
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;
    struct alibi_compare_method m;

    s->compare.methods.count = 1;
    s->compare.stream_tokens = tokens;
    assert_ok(run(s, dir, &r));
    m = r->method[0];
    alibi_compare_free(r);
    remove_temporary_folder(dir);
    return m;
}

static void the_stream_is_that_of_eval_and_leaves_out_what_training_does(void **state)
{
    static const double skips[] = { 0, 0.5 };
    struct setting s = tiny();

    (void)state;
    s.compare.stream_tokens = 290;
    for (int k = 0; k < 2; k++) {
        char *dir = temporary_folder();
        struct alibi_eval eval = { .protocol = ALIBI_STREAM, .tokens = 290, .skip = skips[k] };
        struct alibi_compare_result *r = NULL;
        struct alibi_eval_result e;
        alibi_model *model = NULL;

        s.training.skip = skips[k];
        assert_ok(run(&s, dir, &r));
        assert_ok(alibi_model_open(&model, test_device(), within(dir, "alibi"), NULL));
        assert_ok(alibi_evaluate(model, s.corpus, ALIBI_VALID, &eval, &e));
        assert_same_evals(&r->method[0].stream, &e, 1);
        assert_int_equal(e.tokens, 290);
        assert_true(r->method[0].stream.tiles_used == e.tiles_used);
        assert_true(skips[k] == 0 ? e.tiles_used == 1 : e.tiles_used < 1);
        alibi_model_free(model);
        alibi_compare_free(r);
        remove_temporary_folder(dir);
    }
    alibi_corpus_free(s.corpus);
}

/* It ends with the validation split, if that comes first; the other values and the memory are the
 * same with and without. */
static void the_stream_changes_no_other_value(void **state)
{
    static struct alibi_compare_method with, without;
    struct setting s = tiny();

    (void)state;
    with = alibi_with_stream(&s, INT64_C(1) << 40);
    without = alibi_with_stream(&s, 0);
    assert_int_equal(with.stream.tokens, corpus_span(s.corpus, ALIBI_VALID).count - 1);
    assert_int_equal(without.stream.tokens, 0);
    assert_same_evals(with.by_length, without.by_length, 3);
    assert_same_evals(with.sliding, without.sliding, 3);
    assert_int_equal(with.peak_bytes, without.peak_bytes);
    alibi_corpus_free(s.corpus);
}

/* ---- repeating */

/* What a comparison leaves behind asks for the same again, the built-in text included. */
static void its_recipe_gives_the_same_numbers(void **state)
{
    struct setting s = tiny(), again;
    struct alibi_builtin text = { 0 };
    struct alibi_option_group groups[4] = { { .values = &again.compare },
                                            { .values = &again.config },
                                            { .values = &again.training },
                                            { .values = &text } };
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *first = NULL, *second = NULL;

    (void)state;
    alibi_corpus_free(s.corpus);
    assert_ok(alibi_corpus_builtin(&s.corpus, 3, 20000, NULL, test_call()));
    s.config.embedding_scale = 0; /* becomes a number that needs all its digits */
    s.compare.eval_tokens = 300;
    assert_ok(run(&s, dir, &first));
    assert_int_equal(first->builtin.seed, 3);
    assert_int_equal(first->compare.eval_tokens, 300);

    groups[0].options = alibi_compare_options(&groups[0].count);
    groups[1].options = alibi_config_options(&groups[1].count);
    groups[2].options = alibi_training_options(&groups[2].count);
    groups[3].options = alibi_builtin_options(&groups[3].count);
    assert_ok(alibi_options_init(groups, 4));
    assert_ok(alibi_options_read(groups, 4, within(dir, "recipe.json")));
    assert_true(text.seed == 3 && text.bytes == 20000);
    assert_ok(
        alibi_corpus_builtin(&again.corpus, (uint64_t)text.seed, text.bytes, NULL, test_call()));
    assert_ok(run(&again, other, &second));
    assert_same_losses(first, second);
    alibi_compare_free(first);
    alibi_compare_free(second);
    alibi_corpus_free(s.corpus);
    alibi_corpus_free(again.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

/* ---- stopping */

struct stopper {
    int reports, stop_at; /* stops at that report, counted from 1 */
};

static void stop_at_report(void *user, const struct alibi_progress *p)
{
    struct stopper *s = user;

    (void)p;
    if (++s->reports == s->stop_at)
        alibi_request_stop();
}

static alibi_status run_with_stop(const struct setting *s, const char *dir, int stop_at,
                                  struct alibi_compare_result **out)
{
    struct stopper stopper = { .stop_at = stop_at };
    struct alibi_hooks hooks = { .user = &stopper, .progress = stop_at_report };
    alibi_status status;

    alibi_set_hooks(&hooks);
    status = run(s, dir, out);
    alibi_set_hooks(NULL);
    return status;
}

/* Stopped once at each report in turn, wherever that is in training or evaluation, and run again.
 * */
static void stopped_anywhere_and_resumed_equals_never_stopped(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *whole = NULL;
    alibi_status status = ALIBI_INTERRUPTED;
    int stops = 0;

    (void)state;
    assert_ok(run(&s, dir, &whole));
    for (int stop_at = 1; status == ALIBI_INTERRUPTED; stop_at++) {
        char *other = temporary_folder();
        struct alibi_compare_result *r = NULL;

        status = run_with_stop(&s, other, stop_at, &r);
        if (status == ALIBI_INTERRUPTED) {
            stops++;
            assert_ok(run(&s, other, &r));
        }
        assert_same_losses(whole, r);
        alibi_compare_free(r);
        remove_temporary_folder(other);
        assert_true(stop_at < 1000);
    }
    print_message("stopped at %d places\n", stops);
    assert_int_equal(status, ALIBI_OK);
    assert_true(stops >= 5);
    alibi_compare_free(whole);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void stopped_at_every_report_it_still_arrives(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *whole = NULL, *r = NULL;
    alibi_status status = ALIBI_INTERRUPTED;

    (void)state;
    assert_ok(run(&s, dir, &whole));
    for (int runs = 0; status == ALIBI_INTERRUPTED; runs++) {
        assert_true(runs < 100);
        status = run_with_stop(&s, other, 1, &r);
    }
    assert_int_equal(status, ALIBI_OK);
    assert_same_losses(whole, r);
    alibi_compare_free(r);
    alibi_compare_free(whole);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

/* ---- failing */

/* Six steps of training report, then the first length: stopped there, the last checkpoint is needed
 * again, and the one before it is of step 4. */
static void a_checkpoint_damaged_between_two_calls_is_trained_again(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *whole = NULL, *r = NULL;
    const char *weights = within(other, "alibi/step-00000006/model.safetensors");

    (void)state;
    assert_ok(run(&s, dir, &whole));
    assert_int_equal(run_with_stop(&s, other, 7, &r), ALIBI_INTERRUPTED);
    assert_true(file_exists(within(other, "alibi/result.json")) && file_exists(weights));
    assert_ok(file_truncate(weights, 1000));
    assert_ok(run(&s, other, &r));
    assert_same_losses(whole, r);
    alibi_compare_free(r);
    alibi_compare_free(whole);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

/* Whether the fault number n has not come yet: then that many more calls bring it. */
static bool still_due(enum fault kind, int64_t n)
{
    for (; n > 0; n--)
        if (fault_due(kind))
            return true;
    return false;
}

/* Every `step`-th allocation or file operation of a comparison fails in turn. A save is tried
 * again, and then all is well; else the comparison ends with an error, and run again it must come
 * to the same numbers. A failed look whether a file is there counts as yes, and then the file is
 * missing: bad input. */
static void check_faults(enum fault kind, const char *how, alibi_status expected, int64_t step)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *whole = NULL;
    int64_t n = 1;
    bool past_the_last = false;
    size_t before;

    assert_ok(run(&s, dir, &whole));
    before = alibi_memory_now();
    for (; !past_the_last; n += step) {
        char *other = temporary_folder();
        struct alibi_compare_result *r = NULL;
        alibi_status status;

        assert_ok(alibi_inject_fault(how, n));
        status = run(&s, other, &r);
        past_the_last = still_due(kind, n);
        if (status != ALIBI_OK && status != expected &&
            !(kind == FAULT_FILE && status == ALIBI_BAD_INPUT))
            fail_msg("%s fault %lld: status %d: %s", how, (long long)n, (int)status, alibi_error());
        if (status != ALIBI_OK)
            assert_ok(run(&s, other, &r));
        assert_same_losses(whole, r);
        alibi_compare_free(r);
        assert_int_equal(alibi_memory_now(), before);
        remove_temporary_folder(other);
    }
    print_message("%lld %s faults of %lld\n", (long long)(n / step), how, (long long)n);
    assert_true(n > 5 * step);
    alibi_compare_free(whole);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void after_a_failing_file_operation_it_goes_on_to_the_same_numbers(void **state)
{
    (void)state;
    check_faults(FAULT_FILE, "file", ALIBI_IO, 101);
}

static void after_a_failing_allocation_it_goes_on_to_the_same_numbers(void **state)
{
    (void)state;
    check_faults(FAULT_MEMORY, "memory", ALIBI_MEMORY, 307);
}

/* ---- what is refused */

static void a_folder_with_another_comparison_is_refused_and_the_difference_named(void **state)
{
    struct setting s = tiny(), other = s;
    char *dir = temporary_folder();
    const char *text =
        "Another text, of which there must be enough for a training window and one of validation.\n";
    const char *texts[32];
    alibi_corpus *corpus = NULL;

    (void)state;
    for (int i = 0; i < 32; i++)
        texts[i] = text;
    assert_ok(try_run(&s, dir));
    other.training.steps = 7;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT,
                 "(steps 6 there, 7 asked): choose another folder");
    other = s;
    other.compare.lengths.count = 2;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "lengths");
    other = s;
    other.compare.methods.count = 1;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "methods");
    other = s;
    assert_ok(corpus_from_texts(&corpus, texts, 32));
    other.corpus = corpus;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "another text");
    alibi_corpus_free(corpus);
    other.corpus = corpus = words_corpus(dir);
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "with another tokenizer");
    other = s;
    other.compare.sliding_tokens = 0;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(sliding_tokens 200 there, 0 asked)");
    other = s;
    other.compare.stream_tokens = 0;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(stream_tokens 150 there, 0 asked)");
    other = s;
    other.training.save_every = 2;
    assert_ok(try_run(&other, dir));
    alibi_corpus_free(corpus);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static alibi_status train_into(const struct setting *s, const char *dir)
{
    struct alibi_train_result result;

    return alibi_train(test_device(), &s->config, &s->training, s->corpus, dir, true, &result);
}

static void a_training_and_a_comparison_do_not_share_a_folder(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *r = NULL;

    (void)state;
    assert_int_equal(run_with_stop(&s, dir, 1, &r), ALIBI_INTERRUPTED);
    assert_fails(train_into(&s, dir), ALIBI_BAD_INPUT, "holds a comparison: choose another folder");
    assert_ok(try_run(&s, dir));
    assert_fails(train_into(&s, dir), ALIBI_BAD_INPUT, "holds a comparison: choose another folder");
    assert_ok(train_into(&s, within(dir, "alibi")));
    assert_ok(train_into(&s, other));
    assert_fails(try_run(&s, other), ALIBI_BAD_INPUT,
                 "holds a training run: choose another folder");
    assert_false(file_exists(within(other, "text.json")));
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

static int64_t recipe_value(const char *dir, const char *name, const char *key)
{
    json_t *json = NULL;
    int64_t value;

    assert_ok(json_read(&json, within(dir, name)));
    assert_true(json_is_number(json_object_get(json, key)));
    value = (int64_t)json_number_value(json_object_get(json, key));
    json_decref(json);
    return value;
}

/* In the recipe they stay to be derived; spelled out they ask for the same comparison. */
static void derived_options_are_not_frozen_in_the_recipe(void **state)
{
    static const char *const derived[] = { "kv_heads", "ff_width", "embedding_scale",
                                           "max_length" };
    struct setting s = tiny(), other = s;
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;

    (void)state;
    assert_ok(run(&s, dir, &r));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(recipe_value(dir, "recipe.json", derived[i]), 0);
        assert_int_equal(recipe_value(dir, "alibi/recipe.json", derived[i]), 0);
    }
    assert_int_equal(r->config.ff_width, 32);
    other.config = r->config;
    assert_ok(try_run(&other, dir));
    other.config.ff_width = 16;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(ff_width 32 there, 16 asked)");
    other = s;
    other.training.train_length = 16;
    assert_fails(try_run(&other, dir), ALIBI_BAD_INPUT, "(train_length 32 there, 16 asked)");
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void requests_that_cannot_work_are_refused_before_anything_is_made(void **state)
{
    struct setting s = tiny(), bad = s;
    char *root = temporary_folder();
    const char *dir = within(root, "run");
    int64_t valid = corpus_span(s.corpus, ALIBI_VALID).count;

    (void)state;
    snprintf(bad.compare.methods.at[1], ALIBI_NAME_MAX, "alibbi");
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "alibi");
    snprintf(bad.compare.methods.at[1], ALIBI_NAME_MAX, "alibi");
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "'alibi' is listed twice");
    bad = s;
    bad.compare.methods.count = 0;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "methods");
    bad = s;
    bad.compare.lengths.count = 0;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "lengths");
    bad = s;
    bad.compare.lengths.at[1] = 0;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "lengths: 0");
    bad = s;
    bad.compare.lengths.at[1] = valid;
    assert_fails(try_run(&bad, dir), ALIBI_BAD_INPUT, "validation split");
    bad = s;
    bad.compare.eval_tokens = 63;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "eval-tokens 63");
    bad = s;
    bad.compare.sliding_tokens = -1;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "sliding-tokens -1");
    bad = s;
    bad.compare.stream_tokens = -1;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "stream-tokens -1");
    bad = s;
    bad.training.train_length = 1 << 20;
    assert_fails(try_run(&bad, dir), ALIBI_BAD_INPUT, "1048576");
    bad = s;
    bad.config.heads = 3;
    assert_fails(try_run(&bad, dir), ALIBI_USAGE, "heads 3");
    assert_false(folder_exists(dir));
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(root);
}

static void two_comparisons_into_one_folder_are_refused(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct lock *lock = NULL;

    (void)state;
    assert_ok(lock_take(&lock, dir));
    assert_fails(try_run(&s, dir), ALIBI_IO, dir);
    lock_release(lock);
    assert_ok(try_run(&s, dir));
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* ---- result.json */

static struct alibi_compare_method sample_result(void)
{
    struct alibi_compare_method m = { .name = "rotary",
                                      .train_tokens_per_s = 1234.5,
                                      .train_seconds = 1.0 / 3,
                                      .train_loss = 2.25,
                                      .peak_bytes = 4096,
                                      .parameters = 99,
                                      .device = "a \"quick\", \\hot\\ one: \u00e9",
                                      .precision = ALIBI_BF16,
                                      .lengths = 3 };

    m.by_length[0] = (struct alibi_eval_result){
        .length = 8, .stride = 8, .nll = 0.1, .standard_error = 1e-300, .ppl = 1.1
    };
    m.by_length[0].tokens = m.by_length[0].words = m.by_length[0].bytes = 5;
    m.by_length[0].bins = 2;
    m.by_length[0].by_position[1] = (struct alibi_position_loss){ 1, 1, 3, 0.7 };
    m.by_length[1] = m.by_length[0];
    m.by_length[1].length = m.by_length[1].stride = 16;
    m.by_length[1].ppl = m.by_length[1].word_ppl = INFINITY;
    m.by_length[2] = result_none(32);
    m.sliding_lengths = 2;
    for (int i = 0; i < 2; i++) {
        m.sliding[i] = m.by_length[1 - i];
        m.sliding[i].length = m.by_length[i].length;
        m.sliding[i].stride = m.by_length[i].length / 2;
        m.sliding[i].protocol = ALIBI_SLIDING;
    }
    m.stream = m.by_length[0];
    m.stream.length = m.stream.tokens = 77;
    m.stream.stride = 0;
    m.stream.protocol = ALIBI_STREAM;
    m.stream.tiles_used = 0.3;
    m.stream.attention_seconds = 0.7;
    return m;
}

static const struct alibi_int_list sample_lengths = { 4, { 8, 16, 32, 64 } };

static void a_result_reads_back_as_it_was_written(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_method m = sample_result();
    static struct alibi_compare_method back;

    (void)state;
    assert_ok(result_write(&m, path));
    memset(&back, 0, sizeof back);
    assert_ok(result_read(&back, "rotary", &sample_lengths, path));
    assert_true(back.train_seconds == m.train_seconds && back.peak_bytes == 4096 &&
                back.parameters == 99);
    assert_string_equal(back.device, m.device);
    assert_int_equal(back.precision, ALIBI_BF16);
    assert_int_equal(back.lengths, 3);
    assert_true(back.by_length[0].standard_error == 1e-300 && back.by_length[0].ppl == 1.1);
    assert_memory_equal(back.by_length[0].by_position, m.by_length[0].by_position,
                        sizeof m.by_length[0].by_position);
    assert_true(isinf(back.by_length[1].ppl) && isinf(back.by_length[1].word_ppl));
    assert_true(back.by_length[2].tokens == 0 && isnan(back.by_length[2].ppl));
    assert_int_equal(back.sliding_lengths, 2);
    assert_true(back.sliding[1].stride == 8 && back.sliding[1].protocol == ALIBI_SLIDING &&
                back.sliding[1].ppl == 1.1);
    assert_memory_equal(&back.stream, &m.stream, sizeof m.stream);
    m.stream = result_none(77);
    assert_ok(result_write(&m, path));
    assert_ok(result_read(&back, "rotary", &sample_lengths, path));
    assert_true(back.stream.length == 77 && back.stream.tokens == 0 && isnan(back.stream.ppl));
    remove_temporary_folder(dir);
}

static void a_result_of_another_method_or_other_lengths_is_refused(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_method m = sample_result();
    static struct alibi_compare_method back;

    (void)state;
    assert_ok(result_write(&m, path));
    assert_fails(result_read(&back, "alibi", &sample_lengths, path), ALIBI_BAD_INPUT, path);
    assert_fails(result_read(&back, "rotary", &(struct alibi_int_list){ 3, { 8, 16, 33 } }, path),
                 ALIBI_BAD_INPUT, "32");
    assert_fails(result_read(&back, "rotary", &(struct alibi_int_list){ 2, { 8, 16 } }, path),
                 ALIBI_BAD_INPUT, "by_length");
    remove_temporary_folder(dir);
}

static void device_and_precision_read_back_known_or_not(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_method m = sample_result();
    static struct alibi_compare_method back;

    (void)state;
    for (int precision = ALIBI_FP32; precision <= ALIBI_BF16; precision++) {
        memset(m.device, 'x', sizeof m.device - 1);
        m.precision = precision;
        assert_ok(result_write(&m, path));
        assert_ok(result_read(&back, "rotary", &sample_lengths, path));
        assert_string_equal(back.device, m.device);
        assert_int_equal(back.precision, precision);
    }
    m.device[0] = '\0';
    assert_ok(result_write(&m, path));
    memset(&back, 0, sizeof back);
    assert_ok(result_read(&back, "rotary", &sample_lengths, path));
    assert_string_equal(back.device, "");
    assert_int_equal(back.lengths, 3);
    remove_temporary_folder(dir);
}

/* The result at `path` with its lines of device and precision replaced, its checksum right again.
 * */
static void replace_device(const char *path, const char *lines)
{
    struct text json = { 0 };
    char *bytes = NULL;
    const char *from, *to, *end;
    size_t length;

    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    from = strstr(bytes, "  \"device\"");
    to = strstr(bytes, "  \"by_length\"");
    end = strstr(bytes, "  \"checksum\"");
    assert_true(from != NULL && from < to && to < end);
    assert_ok(
        text_append(&json, "%.*s%s%.*s", (int)(from - bytes), bytes, lines, (int)(end - to), to));
    assert_ok(text_append(&json, "  \"checksum\": %u\n}\n", checksum(0, json.data, json.length)));
    write_file(path, json.data, json.length);
    text_free(&json);
    mem_free(bytes);
}

static void a_device_that_cannot_be_is_refused_and_the_file_named(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    struct alibi_compare_method m = sample_result();
    static struct alibi_compare_method back;
    char name[sizeof m.device + 1] = "", lines[512];

    (void)state;
    memset(name, 'x', sizeof m.device); /* one byte too many */
    snprintf(lines, sizeof lines, "  \"device\": \"%s\",\n  \"precision\": \"fp32\",\n", name);
    assert_ok(result_write(&m, path));
    replace_device(path, lines);
    assert_fails(result_read(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT,
                 "'device' is longer than 127 bytes");
    assert_non_null(strstr(alibi_error(), path));
    assert_string_equal(back.device, "");
    replace_device(path, "  \"device\": \"cpu\",\n  \"precision\": \"fp8\",\n");
    assert_fails(result_read(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT,
                 "'precision' is neither fp32 nor bf16");
    replace_device(path, "  \"device\": 3,\n  \"precision\": \"fp32\",\n");
    assert_fails(result_read(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT,
                 "'device' is not a text");
    replace_device(path, "  \"device\": \"cpu\",\n  \"precision\": \"fp32\",\n");
    assert_ok(result_read(&back, "rotary", &sample_lengths, path));
    remove_temporary_folder(dir);
}

/* Trained where nobody knows, and evaluated again once: from then on it is as any other. */
static void a_comparison_of_before_devices_keeps_its_training_and_is_evaluated_again(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *first = NULL, *again = NULL, *third = NULL;

    (void)state;
    assert_ok(run(&s, dir, &first));
    replace_device(within(dir, "alibi/result.json"), "");
    assert_int_equal(run_with_stop(&s, dir, 1, &again),
                     ALIBI_INTERRUPTED); /* there is something to do */
    assert_ok(run(&s, dir, &again));
    assert_same_losses(first, again);
    assert_true(first->method[0].train_seconds == again->method[0].train_seconds);
    assert_string_equal(again->method[0].device, "");
    assert_string_equal(again->method[1].device, "cpu");
    assert_ok(run_with_stop(&s, dir, 1, &third)); /* nothing is left to do */
    assert_string_equal(third->method[0].device, "");
    alibi_compare_free(first);
    alibi_compare_free(again);
    alibi_compare_free(third);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* As it was written before there were streams. */
static void write_older(const char *path, const char *altered)
{
    struct text json = { 0 };

    assert_ok(text_append(
        &json,
        "{\n  \"name\": \"rotary\",\n  \"train_tokens_per_s\": 1234.5,\n  \"train_seconds\": 0.5,\n"
        "  \"train_loss\": 2.25,\n  \"peak_bytes\": 4096,\n  \"parameters\": 99,\n"
        "  \"by_length\": [\n    {\"length\": 8, \"stride\": 8}],\n  \"sliding\": [],\n"));
    assert_ok(text_append(&json, "  \"checksum\": %u\n}\n", checksum(0, json.data, json.length)));
    if (altered)
        strstr(json.data, altered)[0]++;
    write_file(path, json.data, json.length);
    text_free(&json);
}

static void a_result_of_before_streams_keeps_its_training_and_is_evaluated_again(void **state)
{
    char *dir = temporary_folder();
    const char *path = within(dir, "result.json");
    static struct alibi_compare_method back;

    (void)state;
    memset(&back, 0, sizeof back);
    write_older(path, NULL);
    assert_ok(result_read(&back, "rotary", &sample_lengths, path));
    assert_true(back.train_seconds == 0.5 && back.peak_bytes == 4096 && back.parameters == 99);
    assert_true(back.lengths == 0 && back.sliding_lengths == 0 && back.stream.length == 0);
    assert_string_equal(back.device, "");
    write_older(path, "96");
    assert_int_equal(result_read(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT);
    remove_temporary_folder(dir);
}

/* No altered byte passes: some lines in the middle of the file are digits only. */
static void one_flipped_bit_anywhere_in_a_result_is_found(void **state)
{
    char *dir = temporary_folder(), *bytes = NULL;
    const char *path = within(dir, "result.json");
    struct alibi_compare_method m = sample_result();
    static struct alibi_compare_method back;
    size_t length;

    (void)state;
    assert_ok(result_write(&m, path));
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    for (size_t i = 0; i < length; i++) {
        char was = bytes[i];

        bytes[i] = (char)(was ^ (1 << (i % 8)));
        write_file(path, bytes, length);
        assert_int_equal(result_read(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT);
        bytes[i] = was;
        write_file(path, bytes, i);
        assert_int_equal(result_read(&back, "rotary", &sample_lengths, path), ALIBI_BAD_INPUT);
    }
    mem_free(bytes);
    remove_temporary_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_has_every_length_and_learned_ends_at_its_table),
        cmocka_unit_test(a_finished_comparison_is_read_back_and_not_run_again),
        cmocka_unit_test(the_sliding_values_are_those_of_eval_with_half_the_length_as_stride),
        cmocka_unit_test(without_a_sliding_window_the_other_values_are_the_same),
        cmocka_unit_test(the_sliding_window_scores_no_more_than_the_other_evaluation),
        cmocka_unit_test(the_stream_is_that_of_eval_and_leaves_out_what_training_does),
        cmocka_unit_test(the_stream_changes_no_other_value),
        cmocka_unit_test(its_recipe_gives_the_same_numbers),
        cmocka_unit_test(stopped_anywhere_and_resumed_equals_never_stopped),
        cmocka_unit_test(stopped_at_every_report_it_still_arrives),
        cmocka_unit_test(a_checkpoint_damaged_between_two_calls_is_trained_again),
        cmocka_unit_test(after_a_failing_file_operation_it_goes_on_to_the_same_numbers),
        cmocka_unit_test(after_a_failing_allocation_it_goes_on_to_the_same_numbers),
        cmocka_unit_test(a_folder_with_another_comparison_is_refused_and_the_difference_named),
        cmocka_unit_test(a_training_and_a_comparison_do_not_share_a_folder),
        cmocka_unit_test(derived_options_are_not_frozen_in_the_recipe),
        cmocka_unit_test(requests_that_cannot_work_are_refused_before_anything_is_made),
        cmocka_unit_test(two_comparisons_into_one_folder_are_refused),
        cmocka_unit_test(a_result_reads_back_as_it_was_written),
        cmocka_unit_test(a_result_of_another_method_or_other_lengths_is_refused),
        cmocka_unit_test(device_and_precision_read_back_known_or_not),
        cmocka_unit_test(a_device_that_cannot_be_is_refused_and_the_file_named),
        cmocka_unit_test(a_comparison_of_before_devices_keeps_its_training_and_is_evaluated_again),
        cmocka_unit_test(a_result_of_before_streams_keeps_its_training_and_is_evaluated_again),
        cmocka_unit_test(one_flipped_bit_anywhere_in_a_result_is_found),
    };

    omp_set_num_threads(1); /* for models this small threads only cost time */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
