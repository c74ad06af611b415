/* test_position.c - the numbers of every position method, against independent formulations */
#include "position/position.h"

#include "check.h"

static struct alibi_config config(int64_t width, int64_t heads)
{
    struct alibi_config c = default_config();

    c.width = width;
    c.heads = heads;
    c.max_length = 64;
    return c;
}

/* ---- alibi */

/* The authors' way to the slopes, in its own words: n a power of two gives a geometric sequence
 * that starts with its ratio 2^(-8/n); any other n takes the sequence of the power of two below it,
 * then every second number of the one above. */
static void authors_slopes(double *out, int n, double bias_max)
{
    int power = 1 << (31 - __builtin_clz((unsigned)n));

    if (power == n) {
        double ratio = pow(2.0, -bias_max / n);
        for (int i = 0; i < n; i++)
            out[i] = ratio * pow(ratio, i);
    } else {
        double longer[128];
        authors_slopes(out, power, bias_max);
        authors_slopes(longer, 2 * power, bias_max);
        for (int i = power; i < n; i++)
            out[i] = longer[2 * (i - power)];
    }
}

static void assert_slopes(int heads, double bias_max, const double *expected)
{
    struct alibi_config c = config(64, heads);

    c.bias_max = bias_max;
    for (int h = 0; h < heads; h++)
        assert_close(position_alibi.slope(&c, h), expected[h], 6e-8 * expected[h]);
}

static void alibi_slopes_equal_the_authors_for_every_head_count(void **state)
{
    (void)state;
    for (int heads = 1; heads <= 64; heads++) {
        double expected[64];
        authors_slopes(expected, heads, 8.0);
        assert_slopes(heads, 8.0, expected);
    }
}

static void alibi_slopes_of_twelve_heads_are_the_published_ones(void **state)
{
    const double expected[] = { 0x1p-1,        0x1p-2,         0x1p-3,          0x1p-4,
                                0x1p-5,        0x1p-6,         0x1p-7,          0x1p-8,
                                M_SQRT2 * 0.5, M_SQRT2 * 0.25, M_SQRT2 * 0.125, M_SQRT2 * 0.0625 };

    (void)state;
    assert_slopes(12, 8.0, expected);
}

static void alibi_slopes_end_at_two_to_the_minus_bias_max(void **state)
{
    const double one[] = { 0x1p-8 }, four[] = { 0x1p-4, 0x1p-8, 0x1p-12, 0x1p-16 };
    const double six[] = { 0x1p-4, 0x1p-8, 0x1p-12, 0x1p-16, 0x1p-2, 0x1p-6 };

    (void)state;
    assert_slopes(1, 8.0, one);
    assert_slopes(4, 16.0, four);
    assert_slopes(6, 16.0, six);
}

/* ---- t5 */

/* Buckets without logarithms: distance d has passed step k beyond the exact ones if (d/E)^(n-E) >=
 * (M/E)^k. */
static int bucket_by_powers(const struct alibi_config *c, int distance)
{
    int exact = (int)c->t5_buckets / 2, steps = (int)c->t5_buckets - exact, bucket = exact;
    long double reached, needed = 1.0L;

    if (distance < exact)
        return distance;
    reached = powl((long double)distance / exact, steps);
    for (int k = 1; k < steps; k++) {
        needed *= (long double)c->t5_max_distance / exact;
        if (reached >= needed * (1.0L - 1e-15L))
            bucket = exact + k;
    }
    return bucket;
}

static void t5_buckets_equal_a_formulation_in_powers(void **state)
{
    static const int options[][2] = { { 32, 128 }, { 32, 256 }, { 8, 64 },
                                      { 2, 2 },    { 64, 128 }, { 16, 1000 } };

    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct alibi_config c = config(64, 4);
        c.t5_buckets = options[i][0];
        c.t5_max_distance = options[i][1];
        assert_ok(position_t5.check(&c));
        for (int d = 0; d <= 1000; d++)
            assert_int_equal(position_t5.bucket(&c, d), bucket_by_powers(&c, d));
    }
}

/* Read off the definition for 32 buckets up to distance 128: 16 * 8^(k/16) rounded up is where
 * bucket 16 + k begins. */
static void t5_buckets_begin_where_they_should(void **state)
{
    static const int begins[] = { 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113 };
    struct alibi_config c = config(64, 4);

    (void)state;
    for (int k = 0; k < 16; k++) {
        assert_int_equal(position_t5.bucket(&c, begins[k]), 16 + k);
        assert_int_equal(position_t5.bucket(&c, begins[k] - 1), 15 + k);
    }
}

static void t5_table_ends_in_its_last_bucket(void **state)
{
    struct alibi_config c = config(64, 4);
    int64_t end = position_t5.distances(&c) - 1;

    (void)state;
    for (int64_t d = end; d < end + 1000; d++)
        assert_int_equal(position_t5.bucket(&c, d), 31);
    assert_int_equal(position_t5.bucket(&c, INT64_C(1) << 40), 31);
}

static void t5_options_that_make_no_buckets_are_named(void **state)
{
    struct alibi_config c = config(64, 4);

    (void)state;
    c.t5_buckets = 7;
    assert_fails(position_t5.check(&c), ALIBI_USAGE, "t5-buckets 7");
    c.t5_buckets = 0;
    assert_fails(position_t5.check(&c), ALIBI_USAGE, "t5-buckets 0");
    c.t5_buckets = 32;
    c.t5_max_distance = 16;
    assert_fails(position_t5.check(&c), ALIBI_USAGE, "t5-max-distance 16");
}

static void t5_learns_a_number_per_bucket_and_head(void **state)
{
    struct alibi_config c = config(64, 4);
    int64_t shape[2];

    (void)state;
    position_t5.parameter_shape(&c, shape);
    assert_int_equal(shape[0], 32);
    assert_int_equal(shape[1], 4);
}

/* ---- rows */

static void assert_row(const struct position_method *method, const struct alibi_config *c,
                       int64_t position, const double *expected, int columns)
{
    float row[16];

    method->row(c, position, row);
    for (int i = 0; i < columns; i++)
        assert_close(row[i], expected[i], 6e-8);
}

static void sinusoidal_rows_are_sines_then_cosines(void **state)
{
    const double
        w = 1.0 / 100.0,
        s = 1.0 / 10000.0; /* 10000^(-1/2), 10000^-1: the middle and the slowest of three waves */
    const double first[] = { 0, 0, 0, 1, 1, 1 };
    const double second[] = { sin(1.0), sin(w), sin(s), cos(1.0), cos(w), cos(s) };
    const double far[] = { sin(65536.0), sin(65536.0 * w), sin(65536.0 * s),
                           cos(65536.0), cos(65536.0 * w), cos(65536.0 * s) };
    struct alibi_config c = config(6, 1);

    (void)state;
    assert_row(&position_sinusoidal, &c, 0, first, 6);
    assert_row(&position_sinusoidal, &c, 1, second, 6);
    assert_row(&position_sinusoidal, &c, 65536, far, 6);
}

static void sinusoidal_rows_exist_for_odd_and_tiny_widths(void **state)
{
    const double odd[] = { sin(3.0), sin(3.0 / 10000.0), cos(3.0), cos(3.0 / 10000.0), 0 };
    const double two[] = { sin(3.0), cos(3.0) }, one[] = { 0 };
    struct alibi_config c = config(5, 1);

    (void)state;
    assert_row(&position_sinusoidal, &c, 3, odd, 5);
    c.width = 2;
    assert_row(&position_sinusoidal, &c, 3, two, 2);
    c.width = 1;
    assert_row(&position_sinusoidal, &c, 3, one, 1);
}

static void rotary_rows_are_cosines_then_sines_of_one_head(void **state)
{
    const double expected[] = { cos(70000.0), cos(700.0), sin(70000.0), sin(700.0) };
    struct alibi_config c = config(8, 2);

    (void)state;
    assert_ok(position_rotary.check(&c));
    assert_row(&position_rotary, &c, 70000, expected, 4);
}

static void rotary_needs_an_even_head_width(void **state)
{
    struct alibi_config c = config(9, 3);

    (void)state;
    assert_fails(position_rotary.check(&c), ALIBI_USAGE, "width 9 / heads 3");
}

static void learned_positions_end_at_their_table(void **state)
{
    struct alibi_config c = config(12, 3);
    int64_t shape[2];

    (void)state;
    position_learned.parameter_shape(&c, shape);
    assert_int_equal(shape[0], 64);
    assert_int_equal(shape[1], 12);
    assert_int_equal(position_learned.longest(&c), 64);
}

/* ---- the table */

static void every_method_is_found_by_its_name(void **state)
{
    const struct position_method *method, *found;
    const char *summary;
    int count = 0;

    (void)state;
    for (; (method = position_at(count)) != NULL; count++) {
        assert_string_equal(alibi_position_name(count, &summary), method->name);
        assert_true(strlen(summary) > 0);
        assert_ok(position_find(&found, method->name));
        assert_ptr_equal(found, method);
    }
    assert_null(position_at(-1));
    assert_null(alibi_position_name(count, NULL));
}

static void the_methods_of_the_paper_keep_their_names(void **state)
{
    static const char *const names[] = { "none", "learned", "sinusoidal", "rotary", "t5", "alibi" };
    const struct position_method *method;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ok(position_find(&method, names[i]));
}

static void other_names_of_a_method_are_understood_and_written_as_its_own(void **state)
{
    const struct position_method *method = NULL;
    struct alibi_config config = { 0 };
    struct alibi_option_group group = { .values = &config };

    (void)state;
    assert_ok(position_find(&method, "RoPE"));
    assert_ptr_equal(method, &position_rotary);
    assert_ok(position_find(&method, "nope"));
    assert_ptr_equal(method, &position_none);
    assert_ok(position_find(&method, "ALiBi"));
    assert_ptr_equal(method, &position_alibi);
    group.options = alibi_config_options(&group.count);
    assert_ok(alibi_options_init(&group, 1));
    assert_ok(alibi_options_set(&group, 1, "position", "rope"));
    assert_ok(alibi_config_resolve(&config));
    assert_string_equal(config.position, "rotary");
}

static void unknown_methods_name_the_nearest_and_all(void **state)
{
    const struct position_method *method = &position_none;

    (void)state;
    assert_fails(position_find(&method, "alibbi"), ALIBI_USAGE,
                 "unknown position method 'alibbi': did you mean 'alibi'? known: ");
    assert_fails(position_find(&method, "rotery"), ALIBI_USAGE, "did you mean 'rotary'?");
    assert_fails(position_find(&method, "something else entirely"), ALIBI_USAGE,
                 "entirely': known: ");
    for (int i = 0; position_at(i); i++)
        assert_non_null(strstr(strstr(alibi_error(), "known: "), position_at(i)->name));
    assert_ptr_equal(method, &position_none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alibi_slopes_equal_the_authors_for_every_head_count),
        cmocka_unit_test(alibi_slopes_of_twelve_heads_are_the_published_ones),
        cmocka_unit_test(alibi_slopes_end_at_two_to_the_minus_bias_max),
        cmocka_unit_test(t5_buckets_equal_a_formulation_in_powers),
        cmocka_unit_test(t5_buckets_begin_where_they_should),
        cmocka_unit_test(t5_table_ends_in_its_last_bucket),
        cmocka_unit_test(t5_options_that_make_no_buckets_are_named),
        cmocka_unit_test(t5_learns_a_number_per_bucket_and_head),
        cmocka_unit_test(sinusoidal_rows_are_sines_then_cosines),
        cmocka_unit_test(sinusoidal_rows_exist_for_odd_and_tiny_widths),
        cmocka_unit_test(rotary_rows_are_cosines_then_sines_of_one_head),
        cmocka_unit_test(rotary_needs_an_even_head_width),
        cmocka_unit_test(learned_positions_end_at_their_table),
        cmocka_unit_test(every_method_is_found_by_its_name),
        cmocka_unit_test(the_methods_of_the_paper_keep_their_names),
        cmocka_unit_test(other_names_of_a_method_are_understood_and_written_as_its_own),
        cmocka_unit_test(unknown_methods_name_the_nearest_and_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
