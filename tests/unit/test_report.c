/* The report for a terminal, and what holds for reports of every kind */
#include "unit/report_results.h"

/* ---- the report for a terminal */

static void table_shows_lengths_costs_and_the_best(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_text(&out, r, 80, false));
    assert_contains(out.data,
                    "method            [128]         512         1024     memory  params\n"
                    "alibi      3.200±0.006* 3.100±0.006* 3.072±0.006*  83.0 MiB   1.80M\n"
                    "sinusoidal 3.300±0.007  4.100±0.008   10.2±<0.05   83.0 MiB   1.80M\n"
                    "rotary     3.250±0.007  3.500±0.007  4.500±0.009   83.0 MiB   1.80M\n"
                    "learned    3.400±0.007            –            –   83.0 MiB   1.80M\n");
    assert_contains(out.data, "± one standard error of the text;");
    assert_contains(
        out.data, "The same with a sliding window: every token has at least half the window as\n"
                  "context, except at the start of the text; on 16.4K tokens, not 41.0K as above,\n"
                  "so compare within this table only; ± one standard error of the text\n\n"
                  "method            [128]         512         1024\n"
                  "alibi      2.880±0.006* 2.790±0.006* 2.765±0.006*\n");
    assert_contains(out.data, "method          stream      windows  tiles\n"
                              "alibi      3.000±0.006* 3.150±0.006*   31%\n"
                              "sinusoidal           –  3.250±0.007      –\n"
                              "rotary     6.000±0.012  3.350±0.007   100%\n"
                              "learned              –            –      –\n");
    assert_contains(out.data, "8192 tokens, each with all earlier tokens as context");
    assert_contains(out.data, "learned, to 128");
    assert_contains(out.data, "┊ trained at 128");
    assert_contains(out.data, "alibi 4.0 ± 0.3% lower");
    assert_contains(out.data, "checksum 075bcd15.");
    assert_lacks(out.data, "\x1b");
    text_free(&out);
    free(r);
}

/* Means of three seeds, 0.01 nats apart: hypot(0.002, 0.01 / sqrt(3)) nats of error. */
static void several_seeds_show_their_mean_and_its_standard_error(void **state)
{
    struct alibi_compare_result *r = new_seeds_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_text(&out, r, 80, false));
    assert_contains(out.data, "alibi      3.232±0.020* 3.131±0.019* 3.103±0.019* ");
    assert_contains(out.data,
                    "mean of 3 seeds; ± one standard error, of\nthe text and of the seeds");
    text_free(&out);
    free(r);
}

/* An error of a fifth is a line of dots above and below its point. */
static void the_terminal_plot_has_error_bars(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text plain = { 0 }, bars = { 0 };

    (void)state;
    r->methods = 1;
    assert_ok(report_text(&plain, r, 80, false));
    for (int i = 0; i < LENGTHS; i++)
        r->method[0].seed[0].by_length[i].standard_error = 0.02;
    assert_ok(report_text(&bars, r, 80, false));
    assert_null(strstr(plain.data, "⡇"));
    assert_true(strstr(bars.data, "⡇") != NULL || strstr(bars.data, "⢸") != NULL);
    text_free(&plain);
    text_free(&bars);
    free(r);
}

static void what_was_not_measured_with_a_sliding_window_is_not_shown(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text text = { 0 }, page = { 0 };

    (void)state;
    for (int m = 0; m < METHODS; m++)
        r->method[m].seed[0].sliding_lengths = 0;
    assert_ok(report_text(&text, r, 80, false));
    assert_ok(report_html(&page, r, NULL));
    assert_lacks(text.data, "sliding");
    assert_lacks(page.data, "fig-sliding");
    text_free(&text);
    text_free(&page);
    free(r);
}

static void what_was_not_read_as_a_stream_is_not_shown(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text text = { 0 }, page = { 0 };

    (void)state;
    for (int m = 0; m < METHODS; m++)
        r->method[m].seed[0].stream = no_evaluation(8192);
    assert_ok(report_text(&text, r, 80, false));
    assert_ok(report_html(&page, r, NULL));
    assert_lacks(text.data, "stream");
    assert_lacks(page.data, "As one stream");
    assert_lacks(page.data, "Without windows");
    text_free(&text);
    text_free(&page);
    free(r);
}

/* Whether it is in the text between two others, the first of which has to be there. */
static bool between(const char *text, const char *from, const char *to, const char *part)
{
    const char *start = strstr(text, from), *end, *found;

    assert_non_null(start);
    end = strstr(start, to);
    found = strstr(start, part);
    return found != NULL && (end == NULL || found < end);
}

/* Below the table of its lengths, above that of a stream, also where only its windows have one. */
static void a_factor_is_explained_at_the_table_that_has_one(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct alibi_compare_seed *s = &r->method[0].seed[0];
    double *error[] = { &s->by_length[0].standard_error, &s->stream.standard_error,
                        &s->passage.standard_error };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct text text = { 0 }, page = { 0 };

        *error[i] = 0.7;
        assert_ok(report_text(&text, r, 80, false));
        assert_ok(report_html(&page, r, NULL));
        *error[i] = 0.002;
        assert_int_equal(between(text.data, "Perplexity by", "As one", "factor"), i == 0);
        assert_int_equal(between(text.data, "As one", "\nmethod", "factor"), i > 0);
        assert_int_equal(between(page.data, "<b>Perplexity by", "<thead>", "factor"), i == 0);
        assert_int_equal(between(page.data, "<b>As one", "<thead>", "factor"), i > 0);
        text_free(&text);
        text_free(&page);
    }
    free(r);
}

static void best_value_is_bold_in_colour(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_text(&out, r, 80, true));
    assert_contains(out.data, "\x1b[1m3.072±0.006*\x1b[0m");
    assert_lacks(out.data, "\x1b[1m4.500");
    text_free(&out);
    free(r);
}

static void no_line_is_wider_than_the_terminal(void **state)
{
    static const int columns[] = { 40, 60, 80, 120 };

    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++)
        for (int i = 0; i < 4; i++)
            for (int colour = 0; colour < 2; colour++) {
                struct alibi_compare_result *r = all_results[k]();
                struct text out = { 0 };
                assert_ok(report_text(&out, r, columns[i], colour != 0));
                if (widest_line(out.data) > columns[i])
                    fail_msg("a line of %d characters for %d columns in:\n%s",
                             widest_line(out.data), columns[i], out.data);
                text_free(&out);
                free(r);
            }
}

static void names_cannot_send_escape_sequences_to_the_terminal(void **state)
{
    struct alibi_compare_result *r = new_hostile_results();
    struct text out = { 0 };

    (void)state;
    assert_ok(report_text(&out, r, 80, false));
    assert_lacks(out.data, "\x1b");
    assert_contains(out.data, "?[31m??");
    assert_int_equal(utf8_valid_prefix(out.data, out.length), out.length);
    text_free(&out);
    free(r);
}

/* 0.1% of noise spans little of the axis. */
static void noise_is_not_drawn_as_a_slope(void **state)
{
    struct alibi_compare_result *r = new_results();
    struct curves *c = NULL;
    struct axis x, y;
    struct view v;

    (void)state;
    for (int m = 0; m < METHODS; m++)
        for (int i = 0; i < LENGTHS; i++)
            r->method[m].seed[0].by_length[i].ppl = 149 + 0.05 * i;
    view_init(&v, r);
    assert_ok(curves_by_length(&c, &v));
    assert_true(chart_axes(&c->chart, &x, &y));
    assert_true(y.from < 149 / 1.09 && y.to > 149 * 1.09);
    mem_free(c);
    free(r);
}

/* ---- helpers */

static alibi_status text_80(struct text *out, const struct alibi_compare_result *r)
{
    return report_text(out, r, 80, false);
}

static alibi_status text_colour(struct text *out, const struct alibi_compare_result *r)
{
    return report_text(out, r, 120, true);
}

static alibi_status page(struct text *out, const struct alibi_compare_result *r)
{
    return report_html(out, r, NULL);
}

static alibi_status (*const all_reports[])(struct text *, const struct alibi_compare_result *) = {
    text_80, text_colour, report_json, report_csv, page
};

enum { ALL_REPORTS = sizeof all_reports / sizeof *all_reports };

/* ---- all reports */

static void no_report_says_nan_or_inf(void **state)
{
    (void)state;
    for (int k = 0; k < ALL_RESULTS; k++)
        for (int i = 0; i < ALL_REPORTS; i++) {
            struct alibi_compare_result *r = all_results[k]();
            struct text out = { 0 };
            assert_ok(all_reports[i](&out, r));
            assert_no_nan(out.data);
            text_free(&out);
            free(r);
        }
}

static void same_results_give_the_same_bytes(void **state)
{
    struct alibi_compare_result *r = new_results();

    (void)state;
    for (int i = 0; i < ALL_REPORTS; i++) {
        struct text a = { 0 }, b = { 0 };
        assert_ok(all_reports[i](&a, r));
        assert_ok(all_reports[i](&b, r));
        assert_string_equal(a.data, b.data);
        text_free(&a);
        text_free(&b);
    }
    free(r);
}

static void failing_memory_is_reported_and_leaks_nothing(void **state)
{
    struct alibi_compare_result *r = new_results();
    size_t before = alibi_memory_now();

    (void)state;
    for (int i = 0; i < ALL_REPORTS; i++) {
        alibi_status status = ALIBI_MEMORY;
        int64_t n;
        for (n = 1; status != ALIBI_OK; n++) {
            struct text out = { 0 };
            assert_ok(alibi_inject_fault("memory", n));
            status = all_reports[i](&out, r);
            assert_ok(alibi_inject_fault("memory", 0));
            assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
            text_free(&out);
            assert_int_equal(alibi_memory_now(), before);
        }
        assert_true(n > 4); /* faults were met on the way */
    }
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_is_not_drawn_as_a_slope),
        cmocka_unit_test(table_shows_lengths_costs_and_the_best),
        cmocka_unit_test(several_seeds_show_their_mean_and_its_standard_error),
        cmocka_unit_test(the_terminal_plot_has_error_bars),
        cmocka_unit_test(what_was_not_measured_with_a_sliding_window_is_not_shown),
        cmocka_unit_test(what_was_not_read_as_a_stream_is_not_shown),
        cmocka_unit_test(a_factor_is_explained_at_the_table_that_has_one),
        cmocka_unit_test(best_value_is_bold_in_colour),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(names_cannot_send_escape_sequences_to_the_terminal),
        cmocka_unit_test(no_report_says_nan_or_inf),
        cmocka_unit_test(same_results_give_the_same_bytes),
        cmocka_unit_test(failing_memory_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
