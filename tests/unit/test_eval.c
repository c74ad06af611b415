/* Evaluation: which tokens are scored, and that the numbers are what their formulas say, against
 * plain loops over the model. */
#include <omp.h>

#include "eval/eval.h"
#include "checkpoint/checkpoint.h"
#include "training.h"
#include "passes.h"

enum { V = 257, TOKENS_MAX = 512 };

static struct device cpu;

/* A text with words of all lengths, a line end, and characters of two and three bytes. */
static const char story[] =
    "The old clock in the hall struck nine, and nobody came. On the table lay a caf\xC3\xA9 receipt,\n"
    "a brass key and 3 \xE2\x82\xAC; the key was for the boat house. Nobody ever asked for the boat.";

static struct model *new_model(const char *position)
{
    struct alibi_config c = tiny_bytes_config(position, 1, 8);
    struct model *m = NULL;

    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, false));
    randomise(m, 5, 0.3);
    return m;
}

/* With all weights zero every logit is zero, and every token has the probability 1/V. */
static struct model *new_uniform_model(int64_t vocab)
{
    struct alibi_config c = tiny_bytes_config("none", 1, 8);
    struct model *m = NULL;

    c.vocab = vocab;
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, false));
    for (int i = 0; i < m->count; i++)
        assert_ok(cpu.ops->fill(&cpu, m->parameters[i].value, 0.0));
    return m;
}

static alibi_corpus *new_corpus(const char *text)
{
    alibi_corpus *c = NULL;

    assert_ok(corpus_from_texts(&c, &text, 1));
    return c;
}

static struct alibi_eval_result evaluate(struct model *m, const alibi_corpus *c,
                                         struct alibi_eval eval)
{
    struct alibi_eval_result r;

    assert_ok(evaluate_span(m, corpus_span(c, ALIBI_ALL), &eval, "eval", &r, test_call()));
    return r;
}

static alibi_status try_evaluate(struct model *m, const alibi_corpus *c, struct alibi_eval eval)
{
    struct alibi_eval_result r;

    return evaluate_span(m, corpus_span(c, ALIBI_ALL), &eval, "eval", &r, test_call());
}

/* Losses of all targets of one window, evaluated alone. */
static void window_losses(struct model *m, const alibi_corpus *c, int64_t start, int64_t inputs,
                          float *nll)
{
    int32_t tokens[TOKENS_MAX], targets[TOKENS_MAX];

    span_read(corpus_span(c, ALIBI_ALL), start, inputs, tokens);
    span_read(corpus_span(c, ALIBI_ALL), start + 1, inputs, targets);
    assert_ok(once_loss(m, tokens, targets, 1, inputs, nll));
}

/* ---- which tokens */

static void check_cover(int64_t length, int64_t stride, int64_t targets)
{
    struct windows w = windows_of(length, stride, targets);
    int scored[TOKENS_MAX] = { 0 };

    for (int64_t k = 0; k < w.count; k++) {
        struct window at = windows_at(&w, k);

        assert_true(at.inputs >= 1 && at.inputs <= length && at.first < at.inputs);
        assert_true(at.start + at.inputs <= targets);
        assert_true(k == w.count - 1 || at.inputs == length);
        for (int64_t i = at.first; i < at.inputs; i++)
            scored[at.start + 1 + i]++;
    }
    assert_int_equal(scored[0], 0);
    for (int64_t t = 1; t <= targets; t++)
        assert_int_equal(scored[t], 1);
}

static void every_target_is_scored_exactly_once(void **state)
{
    (void)state;
    for (int64_t length = 1; length <= 12; length++)
        for (int64_t stride = 1; stride <= length; stride++)
            for (int64_t targets = length; targets <= 50; targets++)
                check_cover(length, stride, targets);
    check_cover(127, 31, 509);
    check_cover(128, 128, 511);
}

static void every_token_but_the_first_is_counted_for_awkward_sizes(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t count = corpus_span(c, ALIBI_ALL).count;

    (void)state;
    for (int64_t length = 1; length < count; length += 13) {
        struct alibi_eval_result whole = evaluate(m, c, (struct alibi_eval){ .length = length });
        struct alibi_eval_result sliding =
            evaluate(m, c,
                     (struct alibi_eval){
                         .length = length, .protocol = ALIBI_SLIDING, .stride = (length + 2) / 3 });

        assert_int_equal(whole.tokens, count - 1);
        assert_int_equal(sliding.tokens, count - 1);
        assert_int_equal(whole.bytes, sliding.bytes);
    }
    alibi_corpus_free(c);
    model_free(m);
}

static void a_cap_scores_the_first_tokens(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = 10, .tokens = 25 });
    float nll[TOKENS_MAX];
    double sum = 0;

    (void)state;
    for (int64_t start = 0; start < 25; start += 10) {
        int64_t inputs = start == 20 ? 5 : 10;

        window_losses(m, c, start, inputs, nll);
        for (int64_t i = 0; i < inputs; i++)
            sum += nll[i];
    }
    assert_int_equal(r.tokens, 25);
    assert_close_relative(r.nll, sum / 25, 1e-6);
    alibi_corpus_free(c);
    model_free(m);
}

/* ---- against plain loops */

static void windows_evaluated_together_equal_those_evaluated_alone(void **state)
{
    alibi_corpus *c = new_corpus(story);
    int64_t targets = corpus_span(c, ALIBI_ALL).count - 1;

    (void)state;
    for (int i = 0; alibi_position_name(i, NULL); i++) {
        struct model *m = new_model(alibi_position_name(i, NULL));
        int64_t length = m->method->longest ? m->method->longest(&m->config)
                                            : 9; /* past the training length if it may */
        struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = length });
        float nll[TOKENS_MAX];
        double sum = 0;

        for (int64_t start = 0; start < targets; start += length) {
            int64_t inputs = targets - start < length ? targets - start : length;

            window_losses(m, c, start, inputs, nll);
            for (int64_t k = 0; k < inputs; k++)
                sum += nll[k];
        }
        assert_close_relative(r.nll, sum / (double)targets, 1e-6);
        model_free(m);
    }
    alibi_corpus_free(c);
}

static void sliding_by_one_gives_each_token_the_full_context(void **state)
{
    enum { LENGTH = 7 };
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t targets = corpus_span(c, ALIBI_ALL).count - 1;
    struct alibi_eval_result r = evaluate(
        m, c, (struct alibi_eval){ .length = LENGTH, .protocol = ALIBI_SLIDING, .stride = 1 });
    float nll[TOKENS_MAX];
    double sum = 0;

    (void)state;
    for (int64_t target = 1; target <= targets; target++) {
        int64_t inputs = target < LENGTH ? target : LENGTH;

        window_losses(m, c, target - inputs, inputs, nll);
        sum += nll[inputs - 1];
    }
    assert_close_relative(r.nll, sum / (double)targets, 1e-6);
    alibi_corpus_free(c);
    model_free(m);
}

static void sliding_by_the_length_is_nonoverlapping(void **state)
{
    struct model *m = new_model("rotary");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    for (int64_t length = 1; length <= 64; length *= 4) {
        struct alibi_eval_result a = evaluate(m, c, (struct alibi_eval){ .length = length });
        struct alibi_eval_result b = evaluate(
            m, c,
            (struct alibi_eval){ .length = length, .protocol = ALIBI_SLIDING, .stride = length });

        assert_true(a.nll == b.nll && a.standard_error == b.standard_error &&
                    a.word_ppl == b.word_ppl);
        assert_memory_equal(a.by_position, b.by_position, (size_t)a.bins * sizeof a.by_position[0]);
    }
    alibi_corpus_free(c);
    model_free(m);
}

/* ---- the numbers */

static void a_uniform_model_loses_the_logarithm_of_the_vocabulary(void **state)
{
    struct model *m = new_uniform_model(V);
    alibi_corpus *c = new_corpus(story);
    struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = 16 });

    (void)state;
    assert_close(r.nll, log(V), 1e-6);
    assert_close_relative(r.ppl, V, 1e-6);
    assert_close(r.standard_error, 0, 1e-12);
    for (int b = 0; b < r.bins; b++)
        assert_close(r.by_position[b].nll, log(V), 1e-6);
    alibi_corpus_free(c);
    model_free(m);
}

/* "one two three" and the end of the document are 14 tokens. The first is not scored, and with it
 * not the word "one". */
static void words_and_bytes_are_those_of_the_scored_text(void **state)
{
    struct model *m = new_uniform_model(V);
    alibi_corpus *c = new_corpus("one two three");
    struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = 4 });

    (void)state;
    assert_int_equal(r.tokens, 13);
    assert_int_equal(r.words, 2);
    assert_int_equal(r.bytes, 12);
    assert_close_relative(r.word_ppl, pow(V, 13.0 / 2), 1e-5);
    assert_close(r.bits_per_byte, 13.0 / 12 * log2(V), 1e-5);
    alibi_corpus_free(c);
    model_free(m);
}

/* "bytes", or one that is learned from the text. */
static alibi_tokenizer *tokenizer_for(const char *type, const char *path)
{
    struct alibi_vocabulary how = { .type = strcmp(type, "bpe") == 0 ? ALIBI_BPE : ALIBI_WORDS,
                                    .vocab = 270,
                                    .min_count = 1 };
    alibi_tokenizer *t = NULL;

    if (strcmp(type, "bytes") == 0)
        assert_ok(alibi_tokenizer_open(&t, "bytes", NULL));
    else
        assert_ok(
            alibi_tokenizer_train(&t, &how, &path, 1, &(struct alibi_reading){ 0 }, test_call()));
    assert_string_equal(alibi_tokenizer_type(t), type);
    return t;
}

/* The total loss, divided by what the text has: other tokens, the same text. Every word has a blank
 * behind it, as words do when they are put together again. */
static void words_and_bytes_do_not_depend_on_the_tokenizer(void **state)
{
    static const char text[] =
        "one two three two one \nthe two and the three \ncaf\xC3\xA9 one two three \n";
    static const char *const types[] = { "bytes", "bpe", "words" };
    enum { WORDS = 14 };
    char *folder = temporary_folder();
    const char *path = within(folder, "text.txt");

    (void)state;
    write_file(path, text, strlen(text));
    for (int i = 0; i < 3; i++) {
        alibi_tokenizer *t = tokenizer_for(types[i], path);
        struct model *m = new_uniform_model(alibi_tokenizer_vocab(t));
        alibi_corpus *c = NULL;
        struct alibi_eval_result r;
        double total;
        int32_t first;
        size_t
            bytes; /* of the first token, which is not scored, as the word that it begins is not */

        assert_ok(
            alibi_corpus_open(&c, &path, 1, NULL, t, &(struct alibi_reading){ 0 }, test_call()));
        span_read(corpus_span(c, ALIBI_ALL), 0, 1, &first);
        tokenizer_bytes(t, first, &bytes);
        r = evaluate(m, c, (struct alibi_eval){ .length = 4 });
        total = (double)r.tokens * log((double)alibi_tokenizer_vocab(t));
        print_message("%-5s %3lld tokens, %.3f bits per byte\n", types[i], (long long)r.tokens,
                      r.bits_per_byte);
        assert_int_equal(r.bytes, strlen(text) - bytes);
        assert_int_equal(r.words, WORDS - 1);
        assert_close_relative(r.bits_per_byte, total / log(2) / (double)(strlen(text) - bytes),
                              1e-5);
        assert_close_relative(r.word_ppl, exp(total / (WORDS - 1)), 1e-4);
        alibi_corpus_free(c);
        model_free(m);
        alibi_tokenizer_free(t);
    }
    remove_temporary_folder(folder);
}

static void losses_fall_into_bins_that_double(void **state)
{
    enum { LENGTH = 13 };
    static const int64_t firsts[] = { 0, 1, 2, 4, 8 }, lasts[] = { 0, 1, 3, 7, 12 };
    struct model *m = new_model("t5");
    alibi_corpus *c = new_corpus(story);
    int64_t targets = corpus_span(c, ALIBI_ALL).count - 1;
    struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = LENGTH });
    double sums[5] = { 0 };
    int64_t tokens[5] = { 0 };

    (void)state;
    for (int64_t start = 0; start < targets; start += LENGTH) {
        int64_t inputs = targets - start < LENGTH ? targets - start : LENGTH;
        float nll[TOKENS_MAX];

        window_losses(m, c, start, inputs, nll);
        for (int64_t i = 0; i < inputs; i++)
            for (int b = 0; b < 5; b++)
                if (i >= firsts[b] && i <= lasts[b]) {
                    sums[b] += nll[i];
                    tokens[b]++;
                }
    }
    assert_int_equal(r.bins, 5);
    for (int b = 0; b < 5; b++) {
        assert_int_equal(r.by_position[b].first, firsts[b]);
        assert_int_equal(r.by_position[b].last, lasts[b]);
        assert_int_equal(r.by_position[b].tokens, tokens[b]);
        assert_close_relative(r.by_position[b].nll, sums[b] / (double)tokens[b], 1e-6);
    }
    alibi_corpus_free(c);
    model_free(m);
}

/* Two windows with sums 4 over 2 tokens and 9 over 3: R = 13/5, deviations 4 - 2R = -1.2 and 9 - 3R
 * = 1.2. */
static void the_standard_error_is_that_of_a_ratio_over_windows(void **state)
{
    struct score s = { 0 };
    struct alibi_eval_result r = { 0 };

    (void)state;
    assert_true(score_window(&s, (float[]){ 1, 3 }, 0, 2, 0));
    assert_true(score_window(&s, (float[]){ 2, 3, 4 }, 0, 3, 0));
    score_result(&s, 3, 1, 5, &r);
    assert_close(r.nll, 13.0 / 5, 1e-12);
    assert_close(r.standard_error, sqrt(2 * (1.2 * 1.2 + 1.2 * 1.2)) / 5, 1e-12);
}

static void the_standard_error_of_one_window_is_that_of_its_tokens(void **state)
{
    struct score s = { 0 };
    struct alibi_eval_result r = { 0 };

    (void)state;
    assert_true(score_window(&s, (float[]){ 1, 2, 6 }, 0, 3, 0));
    score_result(&s, 3, 1, 3, &r);
    assert_close(r.nll, 3, 1e-12);
    assert_close(r.standard_error, sqrt(14.0 / 2 / 3), 1e-12);
}

static void perplexities_that_overflow_are_infinite(void **state)
{
    struct score s = { 0 };
    struct alibi_eval_result r = { 0 };

    (void)state;
    assert_true(score_window(&s, (float[]){ 2000, 2000 }, 0, 2, 0));
    score_result(&s, 2, 0, 2, &r);
    assert_true(isinf(r.ppl) && isinf(r.word_ppl));
    assert_close(r.bits_per_byte, 2000 / M_LN2, 1e-9);
    assert_false(score_window(&s, (float[]){ 1, NAN }, 0, 2, 0));
    assert_false(score_window(&s, (float[]){ INFINITY, 1 }, 0, 2, 0));
    assert_int_equal(s.tokens, 2);
}

/* ---- what is refused, noted, reported */

static void options_out_of_range_are_named(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 0 }), ALIBI_USAGE, "length 0");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = -5 }), ALIBI_USAGE, "length -5");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .protocol = ALIBI_SLIDING }),
                 ALIBI_USAGE, "stride 0");
    assert_fails(
        try_evaluate(m, c,
                     (struct alibi_eval){ .length = 8, .protocol = ALIBI_SLIDING, .stride = 9 }),
        ALIBI_USAGE, "stride 9");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .protocol = 7 }), ALIBI_USAGE,
                 "protocol 7");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .tokens = 7 }), ALIBI_USAGE,
                 "scoring 7 tokens");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .tokens = -1 }), ALIBI_USAGE,
                 "scoring -1 tokens");
    alibi_corpus_free(c);
    model_free(m);
}

static void a_text_shorter_than_the_length_is_named_with_both(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus("short");

    (void)state;
    assert_ok(try_evaluate(m, c, (struct alibi_eval){ .length = 5 }));
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 6 }), ALIBI_BAD_INPUT,
                 "'text' has 6 tokens; evaluating at length 6 takes 7");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = INT64_MAX }), ALIBI_BAD_INPUT,
                 "has 6 tokens");
    alibi_corpus_free(c);
    model_free(m);
}

static void another_vocabulary_is_refused(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    m->config.vocab = 200;
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8 }), ALIBI_BAD_INPUT,
                 "257 tokens, the model one of 200");
    m->config.vocab = V;
    alibi_corpus_free(c);
    model_free(m);
}

static void learned_positions_end_where_their_table_ends(void **state)
{
    struct model *m = new_model("learned");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    assert_ok(try_evaluate(m, c, (struct alibi_eval){ .length = 8 }));
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 9 }), ALIBI_BAD_INPUT, "8");
    alibi_corpus_free(c);
    model_free(m);
}

/* The semicolon occurs once; a NaN in its embedding spoils the windows that read it, and the first
 * of them is named. */
static void a_loss_that_is_not_finite_names_its_window(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t at = strchr(story, ';') - story;
    struct tensor row = tensor_rows(m->parameters[m->embedding].value, ';', 1);
    char window[64];

    (void)state;
    assert_ok(cpu.ops->fill(&cpu, row, (double)NAN));
    snprintf(window, sizeof window, "window %lld (tokens %lld to", (long long)(at / 8),
             (long long)(at / 8 * 8));
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8 }), ALIBI_NUMERIC, window);
    alibi_corpus_free(c);
    model_free(m);
}

struct seen {
    int reports;
    struct alibi_progress last;
    int notes;
    char note[256];
};

static void see_progress(void *user, const struct alibi_progress *p)
{
    struct seen *seen = user;

    seen->reports++;
    seen->last = *p;
}

static void see_log(void *user, enum alibi_log_level level, const char *line)
{
    struct seen *seen = user;

    assert_int_equal(level, ALIBI_NOTE);
    seen->notes++;
    snprintf(seen->note, sizeof seen->note, "%s", line);
}

static void going_past_the_training_length_is_one_note(void **state)
{
    struct seen seen = { 0 };
    alibi_corpus *c = new_corpus(story);
    struct alibi_model model = { .model = new_model("alibi"),
                                 .tokenizer = tokenizer_share(corpus_tokenizer(c)) };
    struct alibi_eval_result r;

    (void)state;
    test_watch(&seen, NULL, see_log);
    assert_ok(
        alibi_evaluate(&model, c, ALIBI_ALL, &(struct alibi_eval){ .length = 8 }, &r, test_call()));
    assert_int_equal(seen.notes, 0);
    assert_ok(alibi_evaluate(&model, c, ALIBI_ALL, &(struct alibi_eval){ .length = 20 }, &r,
                             test_call()));
    assert_int_equal(seen.notes, 1);
    assert_string_equal(seen.note, "evaluating at 20, the model was trained at 8");
    test_watch(NULL, NULL, NULL);
    alibi_corpus_free(c);
    model_free(model.model);
    alibi_tokenizer_free(model.tokenizer);
}

static void progress_ends_with_everything_done(void **state)
{
    struct seen seen = { 0 };
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    struct alibi_eval_result r;

    (void)state;
    test_watch(&seen, see_progress, NULL);
    r = evaluate(m, c, (struct alibi_eval){ .length = 20 });
    test_watch(NULL, NULL, NULL);
    assert_true(seen.reports >= 1);
    assert_int_equal(seen.last.done, r.tokens);
    assert_int_equal(seen.last.total, r.tokens);
    assert_close(seen.last.loss, r.nll, 1e-12);
    assert_true(r.peak_bytes > 0 && r.tokens_per_s > 0);
    alibi_corpus_free(c);
    model_free(m);
}

static void a_stop_request_interrupts_the_calls_that_have_it(void **state)
{
    alibi_corpus *c = new_corpus(story);
    struct alibi_model model = { .model = new_model("alibi"),
                                 .tokenizer = tokenizer_share(corpus_tokenizer(c)) };
    struct alibi_eval eval = { .length = 8 };
    struct alibi_eval_result r;
    struct alibi_stop stop = { 0 };
    const struct alibi_call call = { .stop = &stop };

    (void)state;
    alibi_stop_request(&stop);
    assert_fails(alibi_evaluate(&model, c, ALIBI_ALL, &eval, &r, &call), ALIBI_INTERRUPTED,
                 "eval 8");
    assert_ok(alibi_evaluate(&model, c, ALIBI_ALL, &eval, &r, test_call()));
    alibi_corpus_free(c);
    model_free(model.model);
    alibi_tokenizer_free(model.tokenizer);
}

static void every_failing_allocation_is_reported_and_nothing_leaks(void **state)
{
    alibi_corpus *c = new_corpus(story);
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;

    (void)state;
    for (int64_t n = 1; status != ALIBI_OK; n++) {
        struct model *m = new_model("alibi");

        assert_ok(alibi_inject_fault("memory", n));
        status = try_evaluate(m, c, (struct alibi_eval){ .length = 8 });
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_true(n < 1000);
        model_free(m);
        assert_int_equal(alibi_memory_now(), before);
    }
    alibi_corpus_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_target_is_scored_exactly_once),
        cmocka_unit_test(every_token_but_the_first_is_counted_for_awkward_sizes),
        cmocka_unit_test(a_cap_scores_the_first_tokens),
        cmocka_unit_test(windows_evaluated_together_equal_those_evaluated_alone),
        cmocka_unit_test(sliding_by_one_gives_each_token_the_full_context),
        cmocka_unit_test(sliding_by_the_length_is_nonoverlapping),
        cmocka_unit_test(a_uniform_model_loses_the_logarithm_of_the_vocabulary),
        cmocka_unit_test(words_and_bytes_are_those_of_the_scored_text),
        cmocka_unit_test(words_and_bytes_do_not_depend_on_the_tokenizer),
        cmocka_unit_test(losses_fall_into_bins_that_double),
        cmocka_unit_test(the_standard_error_is_that_of_a_ratio_over_windows),
        cmocka_unit_test(the_standard_error_of_one_window_is_that_of_its_tokens),
        cmocka_unit_test(perplexities_that_overflow_are_infinite),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(a_text_shorter_than_the_length_is_named_with_both),
        cmocka_unit_test(another_vocabulary_is_refused),
        cmocka_unit_test(learned_positions_end_where_their_table_ends),
        cmocka_unit_test(a_loss_that_is_not_finite_names_its_window),
        cmocka_unit_test(going_past_the_training_length_is_one_note),
        cmocka_unit_test(progress_ends_with_everything_done),
        cmocka_unit_test(a_stop_request_interrupts_the_calls_that_have_it),
        cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_leaks),
    };

    omp_set_num_threads(1); /* for models this small threads only cost time */
    cpu.ops = ops_cpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
