/* Numbers, widths, tables, axes, labels, and plots for terminal and page */
#include "unit/report_check.h"

/* ---- numbers and widths */

static void numbers_have_the_digits_that_mean_something(void **state)
{
    (void)state;
    assert_string_equal(show_ppl(3.2134).text, "3.213");
    assert_string_equal(show_ppl(9.99951).text, "10.0");
    assert_string_equal(show_ppl(41.23).text, "41.2");
    assert_string_equal(show_ppl(99.96).text, "100");
    assert_string_equal(show_ppl(406.4).text, "406");
    assert_string_equal(show_ppl(9999.4).text, "9999");
    assert_string_equal(show_ppl(9999.96).text, "10.0K");
    assert_string_equal(show_ppl(99949).text, "99.9K");
    assert_string_equal(show_ppl(99999.6).text, "100K");
    assert_string_equal(show_ppl(999999.6).text, "1.00M");
    assert_string_equal(show_ppl(123456).text, "123K");
    assert_string_equal(show_ppl(INFINITY).text, "∞");
    assert_string_equal(show_ppl(NAN).text, NO_VALUE);
    assert_string_equal(show_real(-0.12345, 3).text, "-0.123");
    assert_string_equal(show_real(999.94, 1).text, "999.9");
    assert_string_equal(show_real(999.96, 1).text, "1000"); /* as 1000 is */
    assert_string_equal(show_real(-999.9996, 3).text, "-1000");
    assert_string_equal(show_real(-INFINITY, 3).text, NO_VALUE);
}

static void a_large_error_of_a_perplexity_is_a_factor(void **state)
{
    (void)state;
    assert_string_equal(show_ppl_error(34.0, 0.047).text, "±1.6");
    assert_string_equal(show_ppl_error(1021, 0.49).text, "±500");
    assert_string_equal(show_ppl_error(1021, 0.898).text, "×÷2.5"); /* and not ±917 */
    assert_string_equal(show_ppl_error(170000, 1.453).text, "×÷4.3");
    assert_string_equal(show_ppl_error(170000, 12).text, "×÷163K");
    assert_string_equal(show_ppl_error(34.0, INFINITY).text, "");
    assert_string_equal(show_ppl_error(34.0, NAN).text, "");
}

static void counts_and_sizes_have_units(void **state)
{
    (void)state;
    assert_string_equal(show_count(950).text, "950");
    assert_string_equal(show_count(9999.6).text, "10.0K");
    assert_string_equal(show_count(41234.5).text, "41.2K");
    assert_string_equal(show_count(999600).text, "1.00M");
    assert_string_equal(show_count(1.8e6).text, "1.80M");
    assert_string_equal(show_count(1e300).text, "1.0e+300");
    assert_string_equal(show_count(NAN).text, NO_VALUE);
    assert_string_equal(show_bytes(83.0 * 0x1p20).text, "83.0 MiB");
    assert_string_equal(show_bytes(1.25 * 0x1p30).text, "1.25 GiB");
    assert_string_equal(show_bytes(1023.9 * 1024).text, "1.00 MiB");
    assert_string_equal(show_bytes(0).text, NO_VALUE);
}

static void shares_are_percentages(void **state)
{
    (void)state;
    assert_string_equal(show_share(1).text, "100%");
    assert_string_equal(show_share(0.2417).text, "24%");
    assert_string_equal(show_share(0.0031).text, "0.3%");
    assert_string_equal(show_share(0.0094).text, "0.9%");
    assert_string_equal(show_share(0.0096).text, "1%");
    assert_string_equal(show_share(0).text, "0%");
    assert_string_equal(show_share(NAN).text, NO_VALUE);
}

static void ticks_are_short_numbers(void **state)
{
    (void)state;
    assert_string_equal(show_tick(-0.0, 0).text, "0");
    assert_string_equal(show_tick(0.25, 0).text, "0.25");
    assert_string_equal(show_tick(3 * 0.1, 0).text, "0.3");
    assert_string_equal(show_tick(2048, 0).text, "2048");
    assert_string_equal(show_tick(65536, 0).text, "65536");
    assert_string_equal(show_tick(20000, 0).text, "20K");
    assert_string_equal(show_tick(2.5e6, 0).text, "2.5M");
    assert_string_equal(show_tick(149.05, 0.05).text, "149.05");
    assert_string_equal(show_tick(24.0815, 0.0005).text, "24.0815");
}

static void width_counts_characters_and_not_bytes_or_colours(void **state)
{
    struct text cut = { 0 };

    (void)state;
    assert_int_equal(display_width(""), 0);
    assert_int_equal(display_width("alibi"), 5);
    assert_int_equal(display_width("é–∞⠿"), 4);
    assert_int_equal(display_width("\x1b[1m3.2\x1b[0m"), 3);
    assert_int_equal(display_width("\x1b[0;38;5;33mé\x1b[0m"), 1);
    append_cut(&cut, "ééééé", 3);
    assert_string_equal(cut.data, "éé…");
    text_free(&cut);
}

static void table_columns_line_up(void **state)
{
    static const char *const cells[3][3] = { { "method", "128", "memory " },
                                             { "é–", "\x1b[1m3.2\x1b[0m", "1 MiB " },
                                             { "sinusoidal", "12345", "∞ " } };
    struct text out = { 0 };
    struct table t;

    (void)state;
    assert_ok(table_init(&t, 3, 3));
    for (int i = 0; i < 9; i++)
        table_set(&t, i / 3, i % 3, "%s", cells[i / 3][i % 3]);
    table_append(&out, &t, 1, 3, false);
    assert_string_equal(out.data, "method       128 memory\n"
                                  "é–           \x1b[1m3.2\x1b[0m  1 MiB\n"
                                  "sinusoidal 12345      ∞\n");
    out.length = 0;
    table_append(&out, &t, 2, 3, true);
    assert_string_equal(out.data, "\x1b[2mmethod     memory\x1b[0m\n"
                                  "é–          1 MiB\n"
                                  "sinusoidal      ∞\n");
    table_fini(&t);
    text_free(&out);
}

static void escaping_leaves_no_markup(void **state)
{
    struct text out = { 0 };

    (void)state;
    append_escaped(&out, "<a href=\"x\">&'é");
    assert_string_equal(out.data, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;é");
    assert_string_equal(escape("<a href=\"x\">&'é").text, out.data);
    text_free(&out);
}

static void escaping_stops_before_half_an_entity(void **state)
{
    char quotes[300];
    struct escaped e;

    (void)state;
    memset(quotes, '"', sizeof quotes - 1);
    quotes[sizeof quotes - 1] = '\0';
    e = escape(quotes);
    assert_int_equal(strlen(e.text) % strlen("&quot;"), 0);
    assert_true(strlen(e.text) >= 127 * strlen("&quot;") && strlen(e.text) < sizeof e.text);
}

/* ---- axes */

static struct chart chart_of(const struct series *series, int count, bool log_x, bool log_y)
{
    return (struct chart){ .title = "title",
                           .x_label = "x",
                           .y_label = "y",
                           .log_x = log_x,
                           .log_y = log_y,
                           .mark_x = NAN,
                           .series = series,
                           .count = count };
}

static void lengths_are_marked_at_powers_of_two(void **state)
{
    struct axis a = { .from = 64, .to = 2048, .log = true };

    (void)state;
    ticks_powers_of_two(&a);
    assert_int_equal(a.ticks, 6);
    for (int i = 0; i < 6; i++)
        assert_true(a.tick[i] == 64 << i);
    a = (struct axis){ .from = 1, .to = 1 << 20, .log = true };
    ticks_powers_of_two(&a);
    assert_true(a.ticks >= 4 && a.ticks <= 8);
    assert_true(a.tick[a.ticks - 1] == 1 << 20);
    a = (struct axis){ .from = 500, .to = 1100, .log = true };
    ticks_powers_of_two(&a);
    assert_int_equal(a.ticks, 3);
    assert_true(a.tick[0] == 512 && a.tick[1] == 768 && a.tick[2] == 1024);
}

static void decades_are_divided_at_one_two_five(void **state)
{
    struct axis a = { .from = 2.9, .to = 58, .log = true };

    (void)state;
    ticks_decades(&a);
    assert_int_equal(a.ticks, 4);
    assert_close(a.tick[0], 5, 1e-9);
    assert_close(a.tick[1], 10, 1e-9);
    assert_close(a.tick[2], 20, 1e-9);
    assert_close(a.tick[3], 50, 1e-9);
}

/* For ranges of all sizes: three to TICKS_MAX ticks, ascending, within the axis. */
static void assert_ticks(double from, double to, bool log)
{
    double x[] = { 1, 2 }, y[] = { from, to };
    struct series s = { .name = "s", .count = 2, .x = x, .y = y };
    struct chart c = chart_of(&s, 1, false, log);
    struct axis ax, ay;

    assert_true(chart_axes(&c, &ax, &ay));
    if (ay.ticks < 3 || ay.ticks > TICKS_MAX)
        fail_msg("%d ticks within %g..%g", ay.ticks, from, to);
    for (int i = 0; i < ay.ticks; i++) {
        double place = axis_place(&ay, ay.tick[i]);
        if (!(place > -1e-6 && place < 1 + 1e-6) || (i > 0 && ay.tick[i] <= ay.tick[i - 1]))
            fail_msg("tick %g at %g within %g..%g", ay.tick[i], place, from, to);
        if (i > 0 && strcmp(tick_shown(&ay, i).text, tick_shown(&ay, i - 1).text) == 0)
            fail_msg("two ticks %s within %g..%g", tick_shown(&ay, i).text, from, to);
    }
}

static void every_range_has_ticks_within_it(void **state)
{
    (void)state;
    for (int i = 0; i < 4000; i++) {
        double low = pow(10, 12 * random_uniform(7, 1, (uint64_t)i) - 6);
        double high = low * (1 + pow(10, 9 * random_uniform(7, 2, (uint64_t)i) - 5));
        assert_ticks(low, high, false);
        assert_ticks(low, high, true);
        assert_ticks(-high, low, false);
    }
    assert_ticks(1e-149, 1e149, true);
    assert_ticks(-1e149, 1e149, false);
    assert_ticks(5, 5, false);
    assert_ticks(0, 0, false);
    assert_ticks(5, 5, true);
}

static void an_axis_covers_what_it_is_told_to(void **state)
{
    double x[] = { 1, 2 }, y[] = { 3, 4 };
    struct series s = { .name = "s", .count = 2, .x = x, .y = y };
    struct chart c = chart_of(&s, 1, false, true);
    struct axis ax, ay;

    (void)state;
    c.y_least = 2;
    c.y_most = 90;
    assert_true(chart_axes(&c, &ax, &ay));
    assert_true(ay.from <= 2 && ay.to >= 90);
    c.y_limit = 50;
    assert_true(chart_axes(&c, &ax, &ay));
    assert_true(ay.to < 90);
    c.y_most = INFINITY;
    assert_true(chart_axes(&c, &ax, &ay));
    assert_true(isfinite(ay.to));
}

static void segments_are_cut_at_the_edges(void **state)
{
    struct segment inside = { 0.1, 0.2, 0.9, 0.8 }, leaves = { 0, 0, 1, 2 },
                   outside = { 0, 1.5, 1, 2 }, point = { 0.5, 0.5, 0.5, 0.5 };

    (void)state;
    assert_true(clip_segment(&inside));
    assert_close(inside.x1, 0.9, 1e-12);
    assert_true(clip_segment(&leaves));
    assert_close(leaves.x1, 0.5, 1e-12);
    assert_close(leaves.y1, 1, 1e-12);
    assert_false(clip_segment(&outside));
    assert_true(clip_segment(&point));
}

static void labels_move_apart_and_stay_within(void **state)
{
    struct label labels[] = { { .y = 1 },   { .y = 0.52 }, { .y = 0.51 },
                              { .y = 0.5 }, { .y = 0.01 }, { .y = 0 } };

    (void)state;
    labels_spread(labels, 6, 15, 200);
    assert_close(labels[0].at, 0, 1e-9);
    for (int i = 1; i < 6; i++)
        assert_true(labels[i].at - labels[i - 1].at >= 15 - 1e-9);
    assert_close(labels[5].at, 200, 1e-9);
    labels_spread(labels, 6, 100, 200); /* no room for that gap */
    for (int i = 0; i < 6; i++)
        assert_close(labels[i].at, 40.0 * i, 1e-9);
}

static void letters_are_distinct(void **state)
{
    struct series series[] = {
        { .name = "alibi" }, { .name = "alibi" }, { .name = "a" }, { .name = "" }, { .name = "é" }
    };
    char letters[5];

    (void)state;
    marker_letters(letters, series, 5);
    assert_memory_equal(letters, "albcd", 5);
}

/* ---- plots */

static void terminal_plot_draws_marks_and_labels_the_curves(void **state)
{
    double x[] = { 64, 128, 256 }, up[] = { 3, 3, 30 }, flat[] = { 3, 3, 3 };
    struct series s[] = { { .name = "flat", .count = 3, .x = x, .y = flat },
                          { .name = "up", .count = 3, .x = x, .y = up } };
    struct chart c = chart_of(s, 2, true, true);
    struct text out = { 0 };

    (void)state;
    c.mark_x = 128;
    c.mark_label = "trained at 128";
    assert_ok(plot_terminal(&out, &c, 60, 14, false));
    assert_contains(out.data, " u up");
    assert_contains(out.data, " f flat");
    assert_contains(out.data, "┊ trained at 128");
    assert_contains(out.data, "64");
    assert_contains(out.data, "10 ┤");
    assert_contains(out.data, "f⠤"); /* the curve leaves its first point */
    assert_true(widest_line(out.data) <= 60);
    assert_lacks(out.data, "\x1b");
    text_free(&out);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    return count;
}

static void a_curve_that_leaves_the_range_is_cut_and_says_so(void **state)
{
    double x[] = { 1, 2, 3 }, y[] = { 1, 2, 1000 }, low[] = { 1, 2, 3 };
    struct series s[] = { { .name = "wild", .count = 3, .x = x, .y = y },
                          { .name = "tame", .count = 3, .x = x, .y = low } };
    struct chart c = chart_of(s, 2, false, false);
    struct text out = { 0 };

    (void)state;
    c.y_limit = 4;
    assert_ok(plot_terminal(&out, &c, 60, 14, false));
    assert_contains(out.data, "w wild ↑ 1000");
    assert_lacks(out.data, "1000 ┤");
    assert_int_equal(count_of(out.data, "↑"), 2); /* where it leaves, and in its label */
    assert_lacks(out.data, "↓");
    out.length = 0;
    plot_svg(&out, &c);
    assert_contains(out.data, ">wild ↑ 1000</text>");
    assert_int_equal(count_of(out.data, "M0,-8L"), 1);
    assert_int_equal(count_of(out.data, "M0,8L"), 0);
    assert_balanced(out.data);
    text_free(&out);
}

/* Bounds that are not known interrupt the band; a single point has a line. */
static void bands_cover_the_bounds_of_points(void **state)
{
    double x[] = { 1, 2, 3, 4 }, y[] = { 2, 2, 2, 2 }, low[] = { 1, 1.5, NAN, 1 },
           high[] = { 3, 2.5, NAN, 3 };
    struct series s = { .name = "s", .count = 4, .x = x, .y = y, .low = low, .high = high };
    struct chart c = chart_of(&s, 1, false, false);
    struct text out = { 0 };

    (void)state;
    c.y_least = 1;
    c.y_most = 3;
    plot_svg(&out, &c);
    /* 1..3 and 4% of room on each side, over 320 pixels */
    assert_contains(out.data,
                    "<path class=\"band\" d=\"M0.00,11.9L33.33,85.9L33.33,234.1L0.00,308.1Z\"/>");
    assert_contains(out.data, " d=\"M0.00,160.0L33.33,160.0L66.67,160.0L100.00,160.0\"/>");
    assert_contains(out.data, "<line class=\"error\" x1=\"100.00%\" x2=\"100.00%\" y1=\"11.9\" "
                              "y2=\"308.1\"/>");
    /* The error is that of the logarithm, and 2.5 / 1.5 is the square of a factor of 1.29. */
    assert_contains(out.data, ";33.33,160.0,2,2.000,±0.511;66.67,160.0,3,2.000,;");
    assert_balanced(out.data);
    assert_no_nan(out.data);
    text_free(&out);
}

static void a_method_has_one_look_in_every_report(void **state)
{
    static const char some[][ALIBI_NAME_MAX] = { "rotary", "mine", "alibi" },
                      others[][ALIBI_NAME_MAX] = { "alibi", "none", "rotary" };
    static const char models[][ALIBI_NAME_MAX] = { "alibi-512", "alibi:bias-max=16", "alibis" };
    int a[3], b[3];

    (void)state;
    looks_assign(a, models, NULL, 3);
    assert_true(a[0] % LOOKS == a[1] % LOOKS && a[0] != a[1] && a[0] % LOOKS != a[2] % LOOKS);
    looks_assign(a, some, NULL, 3);
    looks_assign(b, others, NULL, 3);
    assert_int_equal(a[0], b[2]);
    assert_int_equal(a[2], b[0]);
    for (int i = 0; i < 3; i++)
        assert_true(a[1] != b[i]);
}

/* Ten families with eight looks, and models that are named after nothing. */
static void models_of_a_method_share_its_colour(void **state)
{
    static const char names[][ALIBI_NAME_MAX] = {
        "alibi-512",  "rotary-512", "fox-512",   "fox-free-0.5-logn",
        "kerple-512", "reach-512",  "yarn",      "fitted",
        "run-1",      "run-2",      "reach-wide"
    };
    static const int original[] = { -1, -1, -1, -1, -1, -1, 1, 4, -1, -1, -1 };
    enum { COUNT = sizeof original / sizeof *original };
    int look[COUNT], base[COUNT];

    (void)state;
    looks_assign(look, names, original, COUNT);
    for (int i = 0; i < COUNT; i++) {
        base[i] = look[i] % LOOKS;
        for (int k = 0; k < i; k++)
            assert_true(look[i] != look[k]);
    }
    assert_true(base[3] == base[2] && base[6] == base[1] && base[7] == base[4]);
    assert_true(base[10] == base[5] && base[9] != base[8]);
    for (int i = 2; i < 10; i++) /* fox, kerple and runs have looks of their own */
        assert_true(i == 5 || base[i] != base[5]);
    assert_true(base[2] != base[4] && base[8] != base[2] && base[8] != base[4]);
}

/* Charts with little or nothing in them. */
static void odd_charts_can_be_drawn(void **state)
{
    double x[] = { 64, 128 }, y[] = { 3, NAN }, none[] = { NAN, INFINITY }, same[] = { 2, 2 },
           negative[] = { -1, 0 };
    struct series odd[] = { { .name = "point", .count = 2, .x = x, .y = y },
                            { .name = "none", .count = 2, .x = x, .y = none },
                            { .name = "nothing", .count = 0, .x = NULL, .y = NULL },
                            { .name = "same", .count = 2, .x = x, .y = same },
                            { .name = "negative", .count = 2, .x = x, .y = negative },
                            { .name = "single", .count = 1, .x = x, .y = same } };

    (void)state;
    for (int first = 0; first < 6; first++)
        for (int count = 0; first + count <= 6; count++)
            for (int log = 0; log < 4; log++) {
                struct chart c = chart_of(odd + first, count, log & 1, log & 2);
                struct text out = { 0 };
                assert_ok(plot_terminal(&out, &c, 10, 2, true));
                assert_true(widest_line(out.data) <= 40);
                plot_svg(&out, &c);
                assert_no_nan(out.data);
                assert_balanced(strchr(out.data, '<'));
                text_free(&out);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_the_digits_that_mean_something),
        cmocka_unit_test(a_large_error_of_a_perplexity_is_a_factor),
        cmocka_unit_test(counts_and_sizes_have_units),
        cmocka_unit_test(shares_are_percentages),
        cmocka_unit_test(ticks_are_short_numbers),
        cmocka_unit_test(width_counts_characters_and_not_bytes_or_colours),
        cmocka_unit_test(table_columns_line_up),
        cmocka_unit_test(escaping_leaves_no_markup),
        cmocka_unit_test(escaping_stops_before_half_an_entity),
        cmocka_unit_test(lengths_are_marked_at_powers_of_two),
        cmocka_unit_test(decades_are_divided_at_one_two_five),
        cmocka_unit_test(every_range_has_ticks_within_it),
        cmocka_unit_test(an_axis_covers_what_it_is_told_to),
        cmocka_unit_test(segments_are_cut_at_the_edges),
        cmocka_unit_test(labels_move_apart_and_stay_within),
        cmocka_unit_test(letters_are_distinct),
        cmocka_unit_test(terminal_plot_draws_marks_and_labels_the_curves),
        cmocka_unit_test(a_curve_that_leaves_the_range_is_cut_and_says_so),
        cmocka_unit_test(bands_cover_the_bounds_of_points),
        cmocka_unit_test(a_method_has_one_look_in_every_report),
        cmocka_unit_test(models_of_a_method_share_its_colour),
        cmocka_unit_test(odd_charts_can_be_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
