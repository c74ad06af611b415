/* The comparison on a tiny setting: what it measures and writes, and that it resumes to the same
 * numbers */
#include <omp.h>

#include "unit/comparison.h"

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

static void check_method(const struct alibi_compare_method *method, const char *name,
                         int with_value)
{
    const struct alibi_compare_seed *m = &method->seed[0];

    assert_string_equal(method->name, name);
    assert_int_equal(method->seeds, 1);
    assert_int_equal(m->seed, 1);
    assert_non_null(strstr(m->machine, "1 thread"));
    assert_int_equal(strlen(m->date), 20);
    assert_string_equal(m->version, alibi_version());
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
        assert_int_equal(m->sliding[i].tokens, 192); /* three blocks of 64 */
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
    assert_int_equal(r->method[0].seed[0].stream.tokens, 150);
    assert_int_equal(r->method[1].seed[0].stream.tokens, 0);
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
        assert_true(first->method[m].seed[0].train_seconds ==
                    again->method[m].seed[0].train_seconds);
        assert_string_equal(first->method[m].seed[0].device, again->method[m].seed[0].device);
        for (int i = 0; i < 3; i++)
            assert_true(first->method[m].seed[0].by_length[i].seconds ==
                        again->method[m].seed[0].by_length[i].seconds);
    }
    alibi_compare_free(first);
    alibi_compare_free(again);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* Existing runs are reused, and adding seeds does not change them. */
static void seeds_are_trained_and_can_be_added_later(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *one = NULL, *three = NULL, *at_once = NULL;

    (void)state;
    assert_ok(run(&s, dir, &one));
    s.compare.seeds = (struct alibi_int_list){ 3, { 1, 5, 2 } };
    assert_ok(run(&s, dir, &three));
    assert_true(folder_exists(within(dir, "alibi-seed-5")));
    assert_false(folder_exists(within(dir, "alibi-seed-1")));
    s.training.seed = 77; /* a list replaces it */
    assert_ok(run(&s, other, &at_once));
    assert_same_losses(three, at_once);
    for (int m = 0; m < 2; m++) {
        const struct alibi_compare_seed *seed = three->method[m].seed;

        assert_int_equal(three->method[m].seeds, 3);
        assert_same_seed(&one->method[m].seed[0], &seed[0]);
        assert_true(one->method[m].seed[0].train_seconds == seed[0].train_seconds);
        assert_true(seed[1].seed == 5 && seed[2].seed == 2);
        assert_true(seed[1].by_length[0].nll != seed[0].by_length[0].nll);
        assert_int_equal(seed[1].by_length[0].tokens, seed[0].by_length[0].tokens);
    }
    s.compare.seeds = (struct alibi_int_list){ 2, { 1, 2 } };
    assert_fails(try_run(&s, dir), ALIBI_BAD_INPUT, "(seeds [1, 5, 2] there, [1, 2] asked)");
    s.compare.seeds = (struct alibi_int_list){ 2, { 1, 1 } };
    assert_fails(try_run(&s, dir), ALIBI_USAGE, "seeds: 1 is listed twice");
    alibi_compare_free(one);
    alibi_compare_free(three);
    alibi_compare_free(at_once);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

/* Every seed of a method is complete before the next begins. */
static void stopped_in_the_second_seed_the_first_is_whole(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *other = temporary_folder();
    struct alibi_compare_result *whole = NULL, *r = NULL;
    int stop_at = 1;

    (void)state;
    s.compare.seeds = (struct alibi_int_list){ 2, { 3, 4 } };
    assert_ok(run(&s, dir, &whole));
    while (!folder_exists(within(other, "alibi-seed-4"))) {
        assert_int_equal(run_with_stop(&s, other, stop_at, &r), ALIBI_INTERRUPTED);
        assert_true(stop_at++ < 100);
    }
    assert_true(file_exists(within(other, "learned/result.json")));
    assert_false(folder_exists(within(other, "learned-seed-4")));
    assert_ok(run(&s, other, &r));
    assert_same_losses(whole, r);
    alibi_compare_free(r);
    alibi_compare_free(whole);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
    remove_temporary_folder(other);
}

/* Every length, both protocols and both methods score the same tokens, in the same parts; so do the
 * stream and its passage. */
static void all_evaluations_score_the_same_tokens(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;
    const struct alibi_compare_seed *alibi;
    double difference, error;

    (void)state;
    s.compare.eval_tokens = s.compare.sliding_tokens = 192;
    assert_ok(run(&s, dir, &r));
    alibi = &r->method[0].seed[0];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(alibi->by_length[i].tokens, 192);
        assert_true(
            alibi_eval_difference(&alibi->by_length[0], &alibi->by_length[i], &difference, &error));
        assert_true(
            alibi_eval_difference(&alibi->by_length[0], &alibi->sliding[i], &difference, &error));
    }
    assert_true(alibi_eval_difference(&alibi->by_length[1], &r->method[1].seed[0].by_length[0],
                                      &difference, &error));
    assert_int_equal(alibi->stream.tokens, alibi->passage.tokens);
    assert_int_equal(alibi->passage.length, 32);
    assert_true(alibi_eval_difference(&alibi->stream, &alibi->passage, &difference, &error));
    assert_true(r->unigram_nll > 1 && r->unigram_nll < 6);
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

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
        int64_t length = r->method[0].seed[0].by_length[i].length;
        struct alibi_eval eval = {
            .length = length,
            .protocol = ALIBI_SLIDING,
            .stride = length / 2,
            .tokens = 200,
            .block = 64,
        };
        struct alibi_eval_result e;

        assert_ok(alibi_evaluate(model, s.corpus, ALIBI_VALID, &eval, &e,
                                 &(struct alibi_call){ .skip = s.training.skip }));
        assert_same_evals(&r->method[0].seed[0].sliding[i], &e, 1);
    }
    alibi_model_free(model);
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* The measurements of a run of alibi alone. Its result is freed by then: while a result is held, it
 * counts as memory of the next training. */
struct measured {
    size_t peak_bytes;
    int sliding_lengths;
    struct alibi_eval_result by_length[3], sliding[3], stream;
};

static struct measured measure_alibi(struct setting *s)
{
    char *dir = temporary_folder();
    struct alibi_compare_result *r = NULL;
    struct alibi_compare_seed *alibi;
    struct measured m;

    s->compare.methods.count = 1;
    assert_ok(run(s, dir, &r));
    alibi = &r->method[0].seed[0];
    m = (struct measured){ .peak_bytes = alibi->peak_bytes,
                           .sliding_lengths = alibi->sliding_lengths,
                           .stream = alibi->stream };
    memcpy(m.by_length, alibi->by_length, sizeof m.by_length);
    memcpy(m.sliding, alibi->sliding, sizeof m.sliding);
    alibi_compare_free(r);
    remove_temporary_folder(dir);
    return m;
}

/* Lengths past sliding_tokens have none; without any, no length has. The other values, and the
 * memory they took, do not depend on it. */
static void without_a_sliding_window_the_other_values_are_the_same(void **state)
{
    static const int64_t tokens[] = { 200, 40, 0 };
    static struct measured m[3];
    struct setting s = tiny();

    (void)state;
    for (int k = 0; k < 3; k++) {
        s.compare.sliding_tokens = tokens[k];
        m[k] = measure_alibi(&s);
        assert_same_evals(m[0].by_length, m[k].by_length, 3);
        assert_int_equal(m[0].peak_bytes, m[k].peak_bytes);
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
    s.compare.eval_tokens = 130;
    assert_ok(run(&s, dir, &r));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->method[0].seed[0].by_length[i].tokens, 128);
        assert_int_equal(r->method[0].seed[0].sliding[i].tokens, 128);
    }
    alibi_compare_free(r);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void the_stream_is_that_of_eval_and_skips_what_training_skips(void **state)
{
    static const double skips[] = { 0, 0.5 };
    struct setting s = tiny();

    (void)state;
    s.compare.stream_tokens = 290;
    for (int k = 0; k < 2; k++) {
        char *dir = temporary_folder();
        struct alibi_eval eval = { .protocol = ALIBI_STREAM, .tokens = 290 };
        struct alibi_compare_result *r = NULL;
        struct alibi_eval_result e;
        alibi_model *model = NULL;

        s.training.skip = skips[k];
        assert_ok(run(&s, dir, &r));
        assert_ok(alibi_model_open(&model, test_device(), within(dir, "alibi"), NULL));
        assert_ok(alibi_evaluate(model, s.corpus, ALIBI_VALID, &eval, &e,
                                 &(struct alibi_call){ .skip = skips[k] }));
        assert_same_evals(&r->method[0].seed[0].stream, &e, 1);
        assert_int_equal(e.tokens, 290);
        assert_true(r->method[0].seed[0].stream.tiles_used == e.tiles_used);
        assert_true(skips[k] == 0 ? e.tiles_used == 1 : e.tiles_used < 1);
        alibi_model_free(model);
        alibi_compare_free(r);
        remove_temporary_folder(dir);
    }
    alibi_corpus_free(s.corpus);
}

/* It ends with the validation split, if that comes first. The other values and the memory are the
 * same with and without a stream. */
static void the_stream_changes_no_other_value(void **state)
{
    static struct measured with, without;
    struct setting s = tiny();

    (void)state;
    s.compare.stream_tokens = INT64_C(1) << 40;
    with = measure_alibi(&s);
    s.compare.stream_tokens = 0;
    without = measure_alibi(&s);
    assert_int_equal(with.stream.tokens, corpus_span(s.corpus, ALIBI_VALID).count - 1);
    assert_int_equal(without.stream.tokens, 0);
    assert_same_evals(with.by_length, without.by_length, 3);
    assert_same_evals(with.sliding, without.sliding, 3);
    assert_int_equal(with.peak_bytes, without.peak_bytes);
    alibi_corpus_free(s.corpus);
}

/* Stopped once at each report in turn, wherever that is in training or evaluation, and run
 * again. */
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

static void after_a_failing_file_operation_it_resumes_to_the_same_numbers(void **state)
{
    (void)state;
    check_faults(FAULT_FILE, "file", ALIBI_IO, 101);
}

static void after_a_failing_allocation_it_resumes_to_the_same_numbers(void **state)
{
    (void)state;
    check_faults(FAULT_MEMORY, "memory", ALIBI_MEMORY, 307);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_has_every_length_and_learned_ends_at_its_table),
        cmocka_unit_test(a_finished_comparison_is_read_back_and_not_run_again),
        cmocka_unit_test(seeds_are_trained_and_can_be_added_later),
        cmocka_unit_test(stopped_in_the_second_seed_the_first_is_whole),
        cmocka_unit_test(all_evaluations_score_the_same_tokens),
        cmocka_unit_test(the_sliding_values_are_those_of_eval_with_half_the_length_as_stride),
        cmocka_unit_test(without_a_sliding_window_the_other_values_are_the_same),
        cmocka_unit_test(the_sliding_window_scores_no_more_than_the_other_evaluation),
        cmocka_unit_test(the_stream_is_that_of_eval_and_skips_what_training_skips),
        cmocka_unit_test(the_stream_changes_no_other_value),
        cmocka_unit_test(stopped_anywhere_and_resumed_equals_never_stopped),
        cmocka_unit_test(stopped_at_every_report_it_still_arrives),
        cmocka_unit_test(a_checkpoint_damaged_between_two_calls_is_trained_again),
        cmocka_unit_test(after_a_failing_file_operation_it_resumes_to_the_same_numbers),
        cmocka_unit_test(after_a_failing_allocation_it_resumes_to_the_same_numbers),
    };

    omp_set_num_threads(1); /* for models this small threads only cost time */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
