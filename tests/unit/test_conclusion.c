/* The conclusions of a report: one rule for every method, paired differences and their errors */
#include "unit/report_results.h"

/* ---- constructed results: one or more methods at two lengths, in parts of known noise */

enum { PARTS = 16 };

/* The noise of part k, common to all that score the text: mean 0, standard deviation about 1. */
static double common(int k)
{
    return (k % 2 == 0 ? 1 : -1) * (k / 2 % 2 == 0 ? 0.6 : 1.3);
}

/* Independent of the one above, likewise. */
static double own(int k)
{
    return (k / 4 % 2 == 0 ? 1 : -1) * (k / 2 % 2 == 0 ? 0.6 : 1.3);
}

/* A mean loss of `nll`: parts differ by 0.5 nats with the text, and by `noise` on their own. */
static void set_loss(struct alibi_eval_result *e, double nll, double noise)
{
    e->nll = nll;
    e->ppl = exp(nll);
    e->standard_error = 0.12; /* of the text; a paired difference does not see it */
    e->tokens = 1600;
    e->parts = PARTS;
    for (int k = 0; k < PARTS; k++)
        e->part[k] =
            (struct alibi_eval_part){ 100, 100 * (nll + 0.5 * common(k) + noise * own(k)) };
}

/* Methods "a", "b", ... trained at 128 with losses at 128 and at 1024, and without a sliding window
 * or a stream. free. */
static struct alibi_compare_result *constructed(int methods, const double losses[][2], double noise)
{
    struct alibi_compare_result *r = new_results();

    r->methods = methods;
    for (int m = 0; m < methods; m++) {
        struct alibi_compare_seed *s = &r->method[m].seed[0];

        snprintf(r->method[m].name, sizeof r->method[m].name, "%c", 'a' + m);
        s->lengths = 2;
        s->by_length[0] = evaluation(128, 3);
        s->by_length[1] = evaluation(1024, 3);
        set_loss(&s->by_length[0], losses[m][0], noise);
        set_loss(&s->by_length[1], losses[m][1], -noise);
        s->sliding_lengths = 0;
        s->stream = no_evaluation(8192);
    }
    return r;
}

struct sentences {
    char headline[1024], detail[2048];
};

static struct sentences conclude(const struct alibi_compare_result *r)
{
    struct sentences s;
    struct view v;
    struct text out = { 0 };

    view_init(&v, r);
    append_headline(&out, &v);
    snprintf(s.headline, sizeof s.headline, "%s", out.data);
    out.length = 0;
    text_append(&out, "%s", "");
    append_detail(&out, &v);
    snprintf(s.detail, sizeof s.detail, "%s", out.data);
    text_free(&out);
    return s;
}

/* ---- one rule */

/* Losses of 1.3, and ten percent to either side at 1024. */
static void a_rise_is_named_as_a_fall_of_the_same_size_is(void **state)
{
    static const double losses[][2] = { { 1.3, 1.2 }, { 1.3, 1.4 }, { 1.3, 1.3 } };
    struct alibi_compare_result *r = constructed(3, losses, 0.01);

    (void)state;
    assert_contains(conclude(r).headline, "a 9.5 ± ");
    assert_contains(conclude(r).headline, "% lower, c no measurable change, b 10.5 ± ");
    assert_contains(conclude(r).headline, "% higher.");
    free(r);
}

/* The names decide nothing: exchanged, the sentences are those with the names exchanged. */
static void exchanged_names_exchange_the_conclusions(void **state)
{
    static const double losses[][2] = { { 1.30, 1.285 }, { 1.31, 1.33 } };
    static const double exchanged[][2] = { { 1.31, 1.33 }, { 1.30, 1.285 } };
    struct alibi_compare_result *r = constructed(2, losses, 0.003),
                                *x = constructed(2, exchanged, 0.003);
    struct sentences before = conclude(r), after;

    (void)state;
    snprintf(x->method[0].name, sizeof x->method[0].name, "b");
    snprintf(x->method[1].name, sizeof x->method[1].name, "a");
    after = conclude(x);
    assert_string_equal(before.headline, after.headline);
    assert_string_equal(before.detail, after.detail);
    assert_contains(before.headline, "a 1.5 ± ");
    assert_contains(before.headline, "b 2.0 ± ");
    free(r);
    free(x);
}

/* 1.9% is a change if the paired error is small, though the text varies far more; and none if it is
 * large. Below half a percent nothing counts as a change. */
static void a_change_counts_if_its_paired_error_is_small(void **state)
{
    static const double losses[][2] = { { 1.3, 1.319 } }, tiny[][2] = { { 1.3, 1.3045 } };
    struct alibi_compare_result *sure = constructed(1, losses, 0.005),
                                *unsure = constructed(1, losses, 0.05),
                                *little = constructed(1, tiny, 0.0001);

    (void)state;
    assert_contains(conclude(sure).headline, "a 1.9 ± 0.3% higher.");
    assert_contains(conclude(unsure).headline, "a no measurable change.");
    assert_contains(conclude(little).headline, "a no measurable change.");
    free(sure);
    free(unsure);
    free(little);
}

static void many_times_says_compared_with_what(void **state)
{
    static const double losses[][2] = { { 1.0, 1.0 }, { 1.0, 3.163 }, { 1.0, 8 } };
    struct alibi_compare_result *r = constructed(3, losses, 0.01);

    (void)state;
    assert_contains(
        conclude(r).headline,
        "Trained at 128. Perplexity at 1024, compared with the same model's at 128: a no");
    assert_contains(conclude(r).headline, "b 8.70 ± 0.05 times as high, c 1097 ± 6 times as high.");
    set_loss(&r->method[2].seed[0].by_length[1], 8, 3);
    r->method[2].seed[0].by_length[1].standard_error = 0.8;
    assert_contains(conclude(r).headline, "b 8.70 ± 0.05 times as high, c 1097 ×÷ ");
    assert_contains(conclude(r).detail, "of the text, ×÷ the same as a factor; another seed");
    r->method[2].seed[0].by_length[1] = evaluation(1024, INFINITY);
    assert_contains(conclude(r).headline, "c no longer finite.");
    r->method[2].seeds = 2;
    copy_seed(&r->method[2].seed[1], &r->method[2].seed[0]);
    set_loss(&r->method[2].seed[1].by_length[1], 1, 0.01);
    assert_contains(conclude(r).headline, "c no longer finite in some seeds.");
    free(r);
}

/* Without parts, as in results of older versions, the errors of both values count. */
static void without_parts_the_errors_are_taken_as_independent(void **state)
{
    static const double losses[][2] = { { 1.3, 1.319 } };
    struct alibi_compare_result *r = constructed(1, losses, 0);

    (void)state;
    r->method[0].seed[0].by_length[1].parts = 0;
    assert_contains(conclude(r).headline, "a no measurable change.");
    r->method[0].seed[0].by_length[0].standard_error = 0.003;
    r->method[0].seed[0].by_length[1].standard_error = 0.004;
    assert_contains(conclude(r).headline, "a 1.9 ± 0.5% higher.");
    free(r);
}

/* ---- the lowest perplexity */

static void the_lowest_is_named_only_if_it_is_below_the_next(void **state)
{
    static const double apart[][2] = { { 1.3, 1.3 }, { 1.2, 1.25 } };
    struct alibi_compare_result *r = constructed(2, apart, 0.005);

    (void)state;
    assert_contains(conclude(r).detail,
                    "At 1024 b has the lowest perplexity, 3.490, 4.88 ± <0.005% "
                    "below the next, a with 3.669.");
    set_loss(&r->method[1].seed[0].by_length[1], 1.25, 0.005);
    assert_contains(conclude(r).detail, "3.490, 4.9 ± 0.2% below the next");
    set_loss(&r->method[1].seed[0].by_length[1], 1.298, 0.005);
    assert_contains(conclude(r).detail,
                    "At 1024 the two lowest, b with 3.662 and a with 3.669, are within error.");
    set_loss(&r->method[1].seed[0].by_length[0], 1.299, 0.005);
    assert_contains(conclude(r).detail, "No two methods differ measurably at any length");
    free(r);
}

/* ---- seeds */

/* Two seeds that change in opposite directions: their spread is the error. */
static void the_spread_over_seeds_is_part_of_the_error(void **state)
{
    static const double losses[][2] = { { 1.3, 1.32 } };
    struct alibi_compare_result *r = constructed(1, losses, 0);
    struct alibi_compare_seed *s = r->method[0].seed;

    (void)state;
    assert_contains(conclude(r).headline, "a 2.02 ± <0.005% higher");
    r->method[0].seeds = 3;
    for (int k = 1; k < 3; k++) {
        copy_seed(&s[k], &s[0]);
        set_loss(&s[k].by_length[1], 1.32 + (k == 1 ? 0.001 : -0.001), 0);
    }
    assert_contains(conclude(r).headline, "a 2.02 ± 0.06% higher"); /* 0.001 / sqrt(3) */
    for (int k = 1; k < 3; k++)
        set_loss(&s[k].by_length[1], 1.32 + (k == 1 ? 0.05 : -0.05), 0);
    assert_contains(conclude(r).headline, "a no measurable change");
    free(r);
}

/* Two seeds that agree: 12.7 errors would be a proof, and 3 are not. Without a change in one of
 * them nothing is said to have changed. */
static void few_seeds_that_agree_are_stated_and_not_called_proven(void **state)
{
    static const double losses[][2] = { { 1.3, 1.4 }, { 1.3, 1.3 } };
    struct alibi_compare_result *r = constructed(2, losses, 0.001);
    struct alibi_compare_seed *s = r->method[0].seed;

    (void)state;
    for (int m = 0; m < 2; m++) {
        r->method[m].seeds = 2;
        copy_seed(&r->method[m].seed[1], &r->method[m].seed[0]);
    }
    set_loss(&s[1].by_length[1], 1.35, -0.001); /* 0.1 and 0.05: 0.075 +- 0.025 */
    assert_contains(conclude(r).headline, "a 7.8 ± 2.7% higher in both seeds.");
    assert_contains(conclude(r).detail, ", in both seeds 7.2 ± 2.3% below the next, a with 3.955.");
    assert_contains(conclude(r).detail, "of 2 seeds. A change \"in both seeds\" was measured on "
                                        "every model, but so few seeds do not prove it for the "
                                        "method: add --seeds.");
    set_loss(&s[1].by_length[1], 1.4005, -0.001); /* 0.1003 +- 0.0003 */
    assert_contains(conclude(r).headline, "% higher.");
    assert_lacks(conclude(r).detail, "both");
    set_loss(&s[1].by_length[1], 1.3, -0.001);
    assert_contains(conclude(r).headline, "b and a no measurable change.");
    free(r);
}

static void what_the_errors_cover_is_said(void **state)
{
    struct alibi_compare_result *one = new_results(), *three = new_seeds_results();

    (void)state;
    assert_contains(conclude(one).detail, "one standard error of the text; another seed may");
    assert_contains(conclude(three).detail, "of the text and of 3 seeds");
    free(one);
    free(three);
}

/* ---- learned nothing */

static void a_model_no_better_than_frequencies_has_learned_nothing(void **state)
{
    static const double losses[][2] = { { 2.0, 2.1 }, { 2.9, 2.5 }, { 2.96, 1 } };
    struct alibi_compare_result *r = constructed(3, losses, 0.01);
    struct text out = { 0 };

    (void)state;
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < 2; i++) {
            r->method[m].seed[0].by_length[i].parts = 0;
            r->method[m].seed[0].by_length[i].standard_error = 0.01;
        }
    r->unigram_nll = 3.1;
    assert_lacks(conclude(r).headline, " c ");
    assert_contains(conclude(r).headline, "b 33.0 ± ");
    assert_contains(
        conclude(r).detail,
        "Learned nothing: c, with a loss of 2.960 nats at 128; token frequencies alone have 3.100.");
    assert_lacks(conclude(r).detail, "c has the lowest");
    assert_ok(report_text(&out, r, 100, false));
    assert_contains(out.data, "\nc † ");
    assert_contains(out.data, "† has learned nothing");
    assert_lacks(out.data, "\na † ");
    /* The error decides too: 0.2 nats below with an error of 0.12 is not clear. */
    r->method[1].seed[0].by_length[0].standard_error = 0.12;
    assert_contains(conclude(r).detail,
                    "Learned nothing: b, with a loss of 2.900 nats at 128, c with 2.960;");
    r->unigram_nll = 2;
    assert_contains(conclude(r).headline, "No model has learned anything yet");
    r->unigram_nll = 0; /* not known */
    assert_lacks(conclude(r).detail, "earned nothing");
    text_free(&out);
    free(r);
}

/* ---- whole reports */

static void missing_values_sliding_window_and_stream_are_named(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct sentences s = conclude(r);

    (void)state;
    assert_string_equal(s.headline,
                        "Trained at 128. Perplexity at 1024, compared with the same model's at "
                        "128: alibi 4.0 ± 0.3% lower, rotary 38.5 ± 0.4% higher, sinusoidal 3.10 "
                        "± 0.01 times as high.");
    assert_contains(s.detail, "At 1024 alibi has the lowest perplexity, 3.072, 31.7 ± 0.2% below "
                              "the next, rotary with 4.500. learned has no value past 128. With a "
                              "sliding window, ");
    assert_contains(s.detail, "at 1024 compared with 128: alibi 4.0 ± 0.3% lower, rotary");
    assert_contains(s.detail, "As one stream of 8192 tokens alibi has the lowest perplexity, "
                              "3.000, 50.0 ± 0.1% below the next, rotary with 6.000.");
    assert_lacks(s.detail, "  ");
    free(r);
}

static void one_length_and_no_length_have_a_conclusion(void **state)
{
    struct alibi_compare_result *single = new_single_result(), *missing = new_missing_results(),
                                *empty = new_empty_results();

    (void)state;
    assert_string_equal(conclude(single).headline, "alibi has perplexity 3.200 at 128.");
    assert_string_equal(conclude(missing).headline, "No method has a perplexity.");
    assert_string_equal(conclude(empty).headline, "No method has a perplexity.");
    assert_string_equal(conclude(empty).detail, "");
    free(single);
    free(missing);
    free(empty);
}

static void the_origin_names_text_machine_date_and_version(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };
    struct view v;

    (void)state;
    view_init(&v, r);
    append_origin(&out, &v);
    assert_string_equal(out.data,
                        "Text: books/a \"b\".txt, 4.00M bytes, checksum 075bcd15. Trained on Some "
                        "CPU, 2 threads, 2026-11-15T21:24:13Z. alibi 0.1.0.");
    snprintf(r->method[1].seed[0].machine, ALIBI_DEVICE_NAME_MAX, "NVIDIA H200");
    r->text.paths = 3;
    out.length = 0;
    append_origin(&out, &v);
    assert_contains(out.data, "txt and 2 more, ");
    assert_contains(out.data, "several machines");
    text_free(&out);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rise_is_named_as_a_fall_of_the_same_size_is),
        cmocka_unit_test(exchanged_names_exchange_the_conclusions),
        cmocka_unit_test(a_change_counts_if_its_paired_error_is_small),
        cmocka_unit_test(many_times_says_compared_with_what),
        cmocka_unit_test(without_parts_the_errors_are_taken_as_independent),
        cmocka_unit_test(the_lowest_is_named_only_if_it_is_below_the_next),
        cmocka_unit_test(the_spread_over_seeds_is_part_of_the_error),
        cmocka_unit_test(few_seeds_that_agree_are_stated_and_not_called_proven),
        cmocka_unit_test(what_the_errors_cover_is_said),
        cmocka_unit_test(a_model_no_better_than_frequencies_has_learned_nothing),
        cmocka_unit_test(missing_values_sliding_window_and_stream_are_named),
        cmocka_unit_test(one_length_and_no_length_have_a_conclusion),
        cmocka_unit_test(the_origin_names_text_machine_date_and_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
