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

/* A method by name, with the options of the configuration. */
static struct position method_of(const struct alibi_config *c, const char *name)
{
    struct alibi_config copy = *c;
    struct pattern pattern;

    snprintf(copy.position, sizeof copy.position, "%s", name);
    assert_ok(pattern_read(&pattern, &copy));
    assert_int_equal(pattern.kinds, 1);
    return pattern.kind[0];
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
    struct position p;

    c.bias_max = bias_max;
    p = method_of(&c, "alibi");
    for (int h = 0; h < heads; h++)
        assert_close(position_alibi.slope(&c, &p, h), expected[h], 6e-8 * expected[h]);
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

static void free_heads_are_the_last_and_the_others_have_the_slopes_of_fewer_heads(void **state)
{
    struct alibi_config c = config(64, 8);
    struct position p = method_of(&c, "alibi:free=0.25:logn");
    double expected[8];

    (void)state;
    authors_slopes(expected, 6, 8.0);
    for (int h = 0; h < 8; h++)
        assert_close(position_alibi.slope(&c, &p, h), h < 6 ? expected[h] : 0.0, 1e-7);
    assert_int_equal(position_logn_heads(&c, &p), 2);
    p = method_of(&c, "alibi:logn");
    assert_int_equal(position_logn_heads(&c, &p), 8);
    p = method_of(&c, "alibi:free=1");
    assert_true(position_alibi.slope(&c, &p, 0) == 0);
    p = method_of(&c, "alibi:free=0.01");
    assert_fails(position_alibi.check(&c, &p), ALIBI_USAGE, "0.01 of 8 heads is less than one");
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
        struct position p;
        c.t5_buckets = options[i][0];
        c.t5_max_distance = options[i][1];
        p = method_of(&c, "t5");
        assert_ok(position_t5.check(&c, &p));
        for (int d = 0; d <= 1000; d++)
            assert_int_equal(position_t5.bucket(&p, d), bucket_by_powers(&c, d));
    }
}

/* Read off the definition for 32 buckets up to distance 128: 16 * 8^(k/16) rounded up is where
 * bucket 16 + k begins. */
static void t5_buckets_begin_where_they_should(void **state)
{
    static const int begins[] = { 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113 };
    struct alibi_config c = config(64, 4);
    struct position p = method_of(&c, "t5");

    (void)state;
    for (int k = 0; k < 16; k++) {
        assert_int_equal(position_t5.bucket(&p, begins[k]), 16 + k);
        assert_int_equal(position_t5.bucket(&p, begins[k] - 1), 15 + k);
    }
}

static void t5_table_ends_in_its_last_bucket(void **state)
{
    struct alibi_config c = config(64, 4);
    struct position p = method_of(&c, "t5");
    int64_t end = position_t5.distances(&p) - 1;

    (void)state;
    for (int64_t d = end; d < end + 1000; d++)
        assert_int_equal(position_t5.bucket(&p, d), 31);
    assert_int_equal(position_t5.bucket(&p, INT64_C(1) << 40), 31);
}

static void t5_options_that_make_no_buckets_are_named(void **state)
{
    struct alibi_config c = config(64, 4);
    struct position p;

    (void)state;
    c.t5_buckets = 7;
    p = method_of(&c, "t5");
    assert_fails(position_t5.check(&c, &p), ALIBI_USAGE, "'buckets' of 't5' is 7");
    c.t5_buckets = 0;
    p = method_of(&c, "t5");
    assert_fails(position_t5.check(&c, &p), ALIBI_USAGE, "'buckets' of 't5' is 0");
    p = method_of(&c, "t5:buckets=32:max-distance=16");
    assert_fails(position_t5.check(&c, &p), ALIBI_USAGE, "'max-distance' of 't5' is 16");
}

static void t5_learns_a_number_per_bucket_and_head(void **state)
{
    struct alibi_config c = config(64, 4);
    struct position p = method_of(&c, "t5");
    int64_t shape[2];

    (void)state;
    position_t5.parameter_shape(&c, &p, shape);
    assert_int_equal(shape[0], 32);
    assert_int_equal(shape[1], 4);
}

/* ---- gates */

/* -log f of a fresh gate is the slope 1 / T, T from 2 tokens to twice the training length. */
static void fox_starts_with_slopes_for_short_and_long_reach(void **state)
{
    struct alibi_config c = config(64, 4);
    struct position p = method_of(&c, "fox"), half = method_of(&c, "fox:free=0.5");
    const double times[] = { 2, 16, 128, 1024 };

    (void)state;
    c.train_length = 512;
    assert_int_equal(position_gates(&c, &p), 4);
    assert_int_equal(position_gates(&c, &half), 2);
    for (int h = 0; h < 4; h++) {
        double b = p.method->initial(&c, &p, 0, h, 0.5), f = 1 / (1 + exp(-b));
        assert_close(-1 / log(f), times[h], 1e-9 * times[h]);
    }
    assert_close(half.method->initial(&c, &half, 0, 1, 0.5), p.method->initial(&c, &p, 0, 3, 0.5),
                 1e-12);
}

/* ---- curves */

enum { DISTANCES = 5000 };

/* The bias of a head of a fresh model, whose random numbers are all `uniform`. */
static void fresh_curve(float table[DISTANCES], const struct alibi_config *c, const char *name,
                        int64_t h, double uniform)
{
    struct position p = method_of(c, name);
    struct device device = { .ops = &ops_ref };
    float weight[2];

    for (int row = 0; row < 2; row++)
        weight[row] = (float)p.method->initial(c, &p, row, h, uniform);
    assert_ok(ops_ref.curve_forward(
        &device, &(struct curve_args){ .kind = p.method->curve(&p),
                                       .table = tensor_2(table, DTYPE_F32, 1, DISTANCES),
                                       .weight = tensor_2(weight, DTYPE_F32, 2, 1) }));
}

/* With every random number 1/2, p is 1 and a is 1/2 in both forms. */
static void kerple_starts_as_the_authors_code(void **state)
{
    struct alibi_config c = config(64, 4);
    float table[DISTANCES], linear[DISTANCES];

    (void)state;
    fresh_curve(table, &c, "kerple", 2, 0.5);
    fresh_curve(linear, &c, "kerple:power", 2, 0.5);
    for (int d = 0; d < DISTANCES; d++) {
        assert_close(table[d], -log(1 + d / 2.0), 1e-5);
        assert_close(linear[d], -d / 2.0, 1e-6 * d);
    }
}

/* Whatever is drawn or learned: 0 at distance 0, falling, and the exponent of the power below 2. */
static void kerple_falls_with_the_distance_for_any_numbers(void **state)
{
    static const double drawn[] = { 0, 1e-6, 0.3, 0.9999999, 1 };
    static const char *const names[] = { "kerple", "kerple:power" };
    struct alibi_config c = config(64, 4);
    float table[DISTANCES];

    (void)state;
    for (int n = 0; n < 2; n++) {
        struct position p = method_of(&c, names[n]);

        for (int i = 0; i < 5; i++) {
            fresh_curve(table, &c, names[n], 0, drawn[i]);
            assert_true(table[0] == 0);
            for (int d = 1; d < DISTANCES; d++)
                assert_true(table[d] < table[d - 1] && table[d] > -4.0f * (float)d * (float)d);
        }
        for (double w = -20; w <= 20; w += 5) {
            assert_true(position_kerple.shown(&p, 0, w) > 0);
            assert_true(position_kerple.shown(&p, 1, w) > 0);
            assert_true(n == 0 || position_kerple.shown(&p, 1, w) < 2);
        }
    }
}

static void bam_starts_as_alibi_up_to_a_constant(void **state)
{
    struct alibi_config c = config(64, 6);
    struct position alibi = method_of(&c, "alibi");
    float table[DISTANCES];

    (void)state;
    for (int64_t h = 0; h < 6; h++) {
        double slope = position_alibi.slope(&c, &alibi, h);

        fresh_curve(table, &c, "bam", h, 0.5);
        for (int d = 0; d < DISTANCES; d++)
            assert_close(table[d] - table[0], -slope * d, 1e-6 * slope * (d + 1));
    }
}

/* ---- rows */

static void assert_row(const struct position_method *method, const struct alibi_config *c,
                       int64_t position, const double *expected, int columns)
{
    struct position p = method_of(c, method->name);
    float row[16];

    method->row(c, &p, position, row);
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
    struct position p = method_of(&c, "rotary");

    (void)state;
    assert_ok(position_rotary.check(&c, &p));
    assert_row(&position_rotary, &c, 70000, expected, 4);
}

/* With two pairs, only the faster is rotated. */
static void a_share_of_rotary_is_its_fastest_pairs(void **state)
{
    const double expected[] = { cos(70000.0), 1, sin(70000.0), 0 };
    struct alibi_config c = config(8, 2);
    struct position p = method_of(&c, "rotary:share=0.5");
    float row[4];

    (void)state;
    assert_ok(position_rotary.check(&c, &p));
    position_rotary.row(&c, &p, 70000, row);
    for (int i = 0; i < 4; i++)
        assert_close(row[i], expected[i], 6e-8);
    p = method_of(&c, "rotary:share=0.2");
    assert_fails(position_rotary.check(&c, &p), ALIBI_USAGE, "0.2 of the 2 pairs");
}

/* Half of a head of 8 pairs has the angles of a head of 4. */
static void a_spread_share_has_the_angles_of_a_smaller_head(void **state)
{
    struct alibi_config c = config(32, 2), half = config(16, 2);
    struct position p = method_of(&c, "rotary:share=0.5:spread"), q = method_of(&half, "rotary");
    float row[16], expected[8];

    (void)state;
    assert_ok(position_rotary.check(&c, &p));
    position_rotary.row(&c, &p, 70000, row);
    position_rotary.row(&half, &q, 70000, expected);
    for (int n = 0; n < 8; n++) {
        assert_true(row[n] == (n < 4 ? expected[n] : 1.0f));
        assert_true(row[8 + n] == (n < 4 ? expected[4 + n] : 0.0f));
    }
}

static void scaled_slopes_are_divided_by_the_root_of_the_head_width(void **state)
{
    struct alibi_config c = config(80, 5);
    struct position plain = method_of(&c, "alibi"), p = method_of(&c, "alibi:scaled");

    (void)state;
    for (int64_t h = 0; h < 5; h++)
        assert_close(position_alibi.slope(&c, &p, h), position_alibi.slope(&c, &plain, h) / 4.0f,
                     1e-9);
}

/* Each way of stretching keeps and changes what it should; D is 16, so pair 7 is the slowest. */
static void stretched_angles_keep_what_they_promise(void **state)
{
    enum { AT = 40, HALF = 8 };
    struct alibi_config c = config(32, 2);
    struct position p = method_of(&c, "rotary");
    float plain[16], slower[16], row[16];

    (void)state;
    c.train_length = 1000;
    position_rotary.row(&c, &p, AT, plain);
    position_rotary.row(&c, &p, AT / 4, slower);
    p = method_of(&c, "rotary:stretch=pi:factor=4");
    position_rotary.row(&c, &p, AT, row);
    for (int i = 0; i < 16; i++)
        assert_close(row[i], slower[i], 1e-6);
    p = method_of(&c, "rotary:stretch=ntk:factor=4");
    position_rotary.row(&c, &p, AT, row);
    assert_close(row[HALF], plain[HALF], 1e-6);
    assert_close(row[HALF + 7], slower[HALF + 7], 1e-6);
    assert_true(fabsf(row[HALF + 3] - plain[HALF + 3]) > 0.01f);
    p = method_of(&c, "rotary:stretch=yarn:factor=4"); /* 159 turns, 50, 16, 5, 1.6, 0.5 .. */
    position_rotary.row(&c, &p, AT, row);
    for (int i = 0; i < 16; i++) {
        double size = 1 + 0.1 * log(4.0);

        if (i % HALF < 2)
            assert_close(row[i], size * (double)plain[i], 1e-6);
        if (i % HALF > 4)
            assert_close(row[i], size * (double)slower[i], 1e-6);
    }
    /* Pairs that make more than 4 turns in 1000 positions stay, those with fewer than 1 are slower,
     * whatever the training length. */
    c.train_length = 9999;
    p = method_of(&c, "rotary:stretch=llama3:factor=4:original=1000");
    position_rotary.row(&c, &p, AT, row);
    for (int i = 0; i < 16; i++) {
        if (i % HALF < 4)
            assert_close(row[i], plain[i], 1e-6);
        if (i % HALF > 4)
            assert_close(row[i], slower[i], 1e-6);
    }
    assert_true(row[HALF + 4] < plain[HALF + 4] && row[HALF + 4] > slower[HALF + 4]);
    p = method_of(&c, "rotary:factor=4");
    assert_fails(position_rotary.check(&c, &p), ALIBI_USAGE, "no effect without a stretch");
    c.train_length = 0;
    p = method_of(&c, "rotary:stretch=yarn:factor=4");
    assert_fails(position_rotary.check(&c, &p), ALIBI_USAGE, "needs the training length");
}

static void stretched_slopes_keep_what_they_promise(void **state)
{
    struct alibi_config c = config(64, 6);
    struct position plain = method_of(&c, "alibi"),
                    p = method_of(&c, "alibi:stretch=linear:factor=4");

    (void)state;
    for (int h = 0; h < 6; h++) {
        double m = position_alibi.slope(&c, &plain, h);
        assert_close(position_alibi.slope(&c, &p, h), m / 4, 1e-7 * m);
    }
    p = method_of(&c, "alibi:stretch=ntk:factor=4");
    for (int h = 0; h < 6; h++) { /* slopes 2^-2, -4, -6, -8, -1, -3: e_h is (e - 1) / 7 */
        double m = position_alibi.slope(&c, &plain, h), e = (-log2(m) - 1) / 7;
        assert_close(position_alibi.slope(&c, &p, h), m * pow(4, -e), 1e-6 * m);
    }
    p = method_of(&c, "alibi:factor=4");
    assert_fails(position_alibi.check(&c, &p), ALIBI_USAGE, "no effect without stretch");
}

static void rotary_needs_an_even_head_width(void **state)
{
    struct alibi_config c = config(9, 3);
    struct position p = method_of(&c, "rotary");

    (void)state;
    assert_fails(position_rotary.check(&c, &p), ALIBI_USAGE, "width 9 / heads 3");
}

static void learned_positions_end_at_their_table(void **state)
{
    struct alibi_config c = config(12, 3);
    struct position p = method_of(&c, "learned");
    int64_t shape[2];

    (void)state;
    position_learned.parameter_shape(&c, &p, shape);
    assert_int_equal(shape[0], 64);
    assert_int_equal(shape[1], 12);
    assert_int_equal(position_learned.longest(&p), 64);
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

/* ---- patterns */

static alibi_status read_pattern(struct pattern *out, const char *text)
{
    struct alibi_config c = config(64, 4);

    snprintf(c.position, sizeof c.position, "%s", text);
    return pattern_read(out, &c);
}

static void assert_name(const char *text, const char *expected)
{
    struct alibi_config c = config(64, 4);
    struct pattern p, again;
    char name[ALIBI_NAME_MAX];

    assert_ok(read_pattern(&p, text));
    assert_ok(pattern_name(name, &p, &c));
    assert_string_equal(name, expected);
    assert_ok(read_pattern(&again, name));
    assert_ok(pattern_name(name, &again, &c));
    assert_string_equal(name, expected);
    assert_int_equal(again.kinds, p.kinds);
    assert_int_equal(again.length, p.length);
}

static void a_pattern_has_one_name(void **state)
{
    (void)state;
    assert_name("ALiBi", "alibi");
    assert_name("4*alibi", "alibi");
    assert_name("alibi:bias-max=8", "alibi");
    assert_name("alibi:bias_max=16", "alibi:bias-max=16");
    assert_name("alibi:bias-max=2^-1:train-slopes=true", "alibi:bias-max=0.5:train-slopes");
    assert_name("rope, rope:window=0 ,2*nope", "2*rotary,2*none");
    assert_name("2*rotary,t5,none,rotary,rotary,t5,none", "2*rotary,t5,none");
    assert_name("3*rotary:window=64+none", "3*rotary:window=64,none");
    assert_name("rotary:base=500:window=1k:layout=pairs",
                "rotary:window=1024:base=500:layout=pairs");
    assert_name("t5:max-distance=256:buckets=16", "t5:buckets=16:max-distance=256");
    assert_name("learned:max-length=64", "learned");
    assert_name("none:logn=true,alibi:logn:window=9", "none:logn,alibi:window=9:logn");
    assert_name("Hybrid", "hybrid");
    assert_name("hybrid:window=64:logn=true", "hybrid");
    assert_name("hybrid:base=500:window=32", "hybrid:window=32:base=500");
    assert_name("hybrid:logn=false", "hybrid:logn=false");
    assert_name("reach:free=0.5:window=64", "reach");
    assert_name("reach:free=0.25:base=500:bias-max=12", "reach:base=500:bias-max=12:free=0.25");
    assert_name("alibi-free:free=0.5", "alibi-free");
    assert_name("alibi-free:free=0.25:bias-max=4", "alibi-free:bias-max=4:free=0.25");
    assert_name("hybrid:temperature=0.25", "hybrid:temperature=0.25");
    assert_name("alibi-free:temperature=0.25:window=9", "alibi-free:window=9:temperature=0.25");
    assert_name("rotary:temperature=0,none", "rotary,none");
    assert_name("drope", "drope");
    assert_name("drope:until=0.875:base=500", "drope:base=500");
    assert_name("drope:until=0.5", "drope:until=0.5");
    assert_name("3*rotary:window=64,none:logn", "3*rotary:window=64,none:logn");
}

/* With a training length of 32 the windows of 64 see more keys than in training, so local layers
 * get the temperature too, which an option of the preset would give to the global layers alone. */
static void a_tempered_pattern_has_a_name_that_reads_back(void **state)
{
    static const struct {
        const char *position;
        int64_t train_length;
        const char *name;
    } cases[] = {
        { "reach", 64, "reach:temperature=0.25" },
        { "reach", 32, "3*rotary:window=64:temperature=0.25,alibi:logn:temperature=0.25:free=0.5" },
        { "reach:bias-max=12", 32,
          "3*rotary:window=64:temperature=0.25,"
          "alibi:logn:temperature=0.25:bias-max=12:free=0.5" },
        { "reach:window=512:base=500000:sinks=4:bias-max=12.5", 256,
          "3*rotary:window=512:sinks=4:temperature=0.25:base=500000,"
          "alibi:logn:temperature=0.25:bias-max=12.5:free=0.5" },
        { "rotary:window=64", 32, "rotary:window=64:temperature=0.25" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct alibi_config c = config(64, 4);
        struct pattern p, again;
        char name[ALIBI_NAME_MAX];

        c.train_length = cases[i].train_length;
        snprintf(c.position, sizeof c.position, "%s", cases[i].position);
        assert_ok(pattern_read(&p, &c));
        assert_ok(pattern_name_tempered(name, &p, &c, 0.25));
        assert_string_equal(name, cases[i].name);
        assert_ok(read_pattern(&again, name));
        for (int64_t layer = 0; layer < p.length; layer++) {
            const struct position *was = &p.kind[pattern_kind(&p, layer)];
            const struct position *is = &again.kind[pattern_kind(&again, layer)];
            bool sees_more = was->window == 0 || was->window > c.train_length;

            assert_float_equal(is->temperature, sees_more ? 0.25 : 0, 0);
        }
    }
}

static void assert_after(const char *text, int64_t done, const char *expected)
{
    struct alibi_config c = default_config();
    struct pattern p;
    char name[ALIBI_NAME_MAX];

    assert_ok(read_pattern(&p, text));
    assert_ok(pattern_name_after(name, &p, &c, done, 1000));
    assert_string_equal(name, expected);
}

static void positions_end_after_their_share_of_the_steps(void **state)
{
    (void)state;
    assert_after("drope", 0, "drope");
    assert_after("drope", 874, "drope");
    assert_after("drope", 875, "none");
    assert_after("drope", 1000, "none");
    assert_after("rotary", 1000, "rotary");
    assert_after("rotary:until=0", 0, "none");
    assert_after("3*rotary:until=0.5:window=64:logn,rotary:until=0.75", 499,
                 "3*rotary:window=64:logn:until=0.5,rotary:until=0.75");
    assert_after("3*rotary:until=0.5:window=64:logn,rotary:until=0.75", 500,
                 "3*none:window=64:logn,rotary:until=0.75");
    assert_after("3*rotary:until=0.5:window=64:logn,rotary:until=0.75", 750,
                 "3*none:window=64:logn,none");
    assert_after("rotary:until=0.5,none", 500, "none");
}

static void layers_take_the_elements_of_a_pattern_in_turn(void **state)
{
    static const int kinds[] = { 0, 0, 0, 1, 2, 1, 0, 0, 0, 1, 2, 1, 0 };
    struct pattern p;

    (void)state;
    assert_ok(read_pattern(&p, "3*rotary:window=64,none,alibi,none"));
    assert_int_equal(p.kinds, 3);
    assert_int_equal(p.length, 6);
    for (int64_t n = 0; n < 13; n++)
        assert_int_equal(pattern_kind(&p, n), kinds[n]);
    assert_ptr_equal(p.kind[0].method, &position_rotary);
    assert_int_equal(p.kind[0].window, 64);
    assert_int_equal(p.kind[1].window, 0);
}

/* An option goes to the elements that write it, or that have it as their own. */
static void a_preset_is_a_pattern_with_its_options_passed_on(void **state)
{
    struct alibi_config c = config(64, 4);
    struct pattern p, same;

    (void)state;
    assert_ok(read_pattern(&p, "hybrid:window=32:base=500"));
    assert_ok(read_pattern(&same, "3*rotary:window=32:base=500,none:logn"));
    assert_int_equal(p.length, 4);
    assert_int_equal(p.kinds, 2);
    for (int k = 0; k < 2; k++) {
        assert_ptr_equal(p.kind[k].method, same.kind[k].method);
        assert_int_equal(p.kind[k].window, same.kind[k].window);
        assert_int_equal(p.kind[k].logn, same.kind[k].logn);
        assert_memory_equal(p.kind[k].own, same.kind[k].own, sizeof p.kind[k].own);
    }
    for (int i = 0; preset_at(i); i++) {
        const char *pattern, *summary;

        assert_string_equal(alibi_preset_name(i, &summary, &pattern), preset_at(i)->name);
        assert_true(strlen(summary) > 0);
        snprintf(c.position, sizeof c.position, "%s", pattern);
        c.layers = 64;
        assert_ok(alibi_config_resolve(&c));
        assert_string_equal(c.position, pattern);
    }
    assert_null(alibi_preset_name(-1, NULL, NULL));
}

/* Options of the model are those of a method that does not say otherwise. */
static void options_of_the_model_are_defaults_of_its_methods(void **state)
{
    struct alibi_config c = config(64, 4);
    struct pattern p;

    (void)state;
    c.bias_max = 16;
    c.layers = 2;
    snprintf(c.position, sizeof c.position, "alibi,alibi:bias-max=8");
    assert_ok(alibi_config_resolve(&c));
    assert_string_equal(c.position, "alibi,alibi:bias-max=8");
    assert_ok(pattern_read(&p, &c));
    assert_close(position_alibi.slope(&c, &p.kind[0], 3), 0x1p-16, 1e-12);
    assert_close(position_alibi.slope(&c, &p.kind[1], 3), 0x1p-8, 1e-12);
    snprintf(c.position, sizeof c.position, "alibi:bias-max=16");
    assert_ok(alibi_config_resolve(&c));
    assert_string_equal(c.position, "alibi");
}

static void bad_patterns_name_the_element_and_the_choices(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "alibbi", "unknown position method 'alibbi': did you mean 'alibi'? known: none, " },
        { "3*rotary,alibbi", "position 'alibbi': unknown position method 'alibbi'" },
        { "", "unknown position method ''" },
        { "alibi,", "unknown position method ''" },
        { "0*alibi", "position '0*alibi': '0' is not a number of layers from 1 to 4096" },
        { "x*alibi", "'x' is not a number of layers" },
        { "99999*alibi", "'99999' is not a number of layers" },
        { "2*3*alibi", "unknown position method '3*alibi'" },
        { "none,rotary:windw=64",
          "position 'rotary:windw=64': 'rotary' has no option 'windw': did you mean 'window'? it has "
          "window, sinks" },
        { "rotary:zzz=64", "'rotary' has no option 'zzz': it has window, sinks" },
        { "rotary:bias-max=4", "it has window, " },
        { "alibi:bias-max", "option 'bias-max' of 'alibi' needs a value: bias-max=X" },
        { "alibi:bias-max=99", "position 'alibi:bias-max=99': bias-max: 99 is out of range 0..64" },
        { "rotary:layout=up", "layout: 'up' is not one of halves|pairs" },
        { "rotary:window=-1", "window: -1 is out of range" },
        { "alibi:", "'alibi' has no option ''" },
        { "hybrid:bias-max=4",
          "position 'hybrid:bias-max=4': 'hybrid' has no option 'bias-max': it "
          "is 3*rotary:window=64,none:logn" },
        { "hybrid:bass=500",
          "'hybrid' has no option 'bass': did you mean 'base'? it is 3*rotary:window=64" },
        { "hybrid:window=x", "window: 'x' is not a whole number" },
        { "hybrid:", "'hybrid' has no option ''" },
        { "none,hybrid", "'hybrid' is a name for the pattern 3*rotary" },
        { "2*hybrid", "position '2*hybrid': 'hybrid' is a name for the pattern 3*rotary" },
        { "hybrd", "did you mean 'hybrid'?" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pattern p;

        assert_fails(read_pattern(&p, bad[i].text), ALIBI_USAGE, bad[i].message);
    }
}

static void a_pattern_must_fit_the_model(void **state)
{
    struct alibi_config c = config(64, 4);

    (void)state;
    c.layers = 3;
    snprintf(c.position, sizeof c.position, "3*rotary,none");
    assert_fails(alibi_config_resolve(&c), ALIBI_USAGE,
                 "a pattern of 4 layers, but the model has 3");
    snprintf(c.position, sizeof c.position, "none,sinusoidal");
    assert_fails(alibi_config_resolve(&c), ALIBI_USAGE, "'sinusoidal' acts once");
    snprintf(c.position, sizeof c.position, "learned:max-length=8,learned:max-length=9");
    assert_fails(alibi_config_resolve(&c), ALIBI_USAGE, "'learned' acts once");
    snprintf(c.position, sizeof c.position, "2*sinusoidal:window=8,sinusoidal");
    assert_ok(alibi_config_resolve(&c));
    c.width = 36;
    c.heads = 4;
    snprintf(c.position, sizeof c.position, "alibi,rotary");
    assert_fails(alibi_config_resolve(&c), ALIBI_USAGE, "width 36 / heads 4");
}

static void a_failed_allocation_is_reported_and_changes_nothing(void **state)
{
    static const char *const texts[] = { "hybrid:window=8:base=500", "alibi:bias-max=4,t5:logn",
                                         "hybrd", "rotary:windw=3" };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int64_t n = 1;; n++) {
            struct alibi_config c = config(64, 4), before;
            alibi_status status;

            c.layers = 4;
            snprintf(c.position, sizeof c.position, "%s", texts[i]);
            before = c;
            assert_ok(alibi_inject_fault("memory", n));
            status = alibi_config_resolve(&c);
            assert_ok(alibi_inject_fault("memory", 0));
            if (status != ALIBI_MEMORY) {
                assert_int_equal(status, i < 2 ? ALIBI_OK : ALIBI_USAGE);
                assert_true(n > 1);
                break;
            }
            assert_memory_equal(&c, &before, sizeof c);
        }
}

static void names_of_patterns_are_names_of_files(void **state)
{
    char name[ALIBI_NAME_MAX];

    (void)state;
    pattern_file_name(name, "3*rotary:window=64,none");
    assert_string_equal(name, "3-rotary-window-64-none");
    pattern_file_name(name, "alibi");
    assert_string_equal(name, "alibi");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alibi_slopes_equal_the_authors_for_every_head_count),
        cmocka_unit_test(alibi_slopes_of_twelve_heads_are_the_published_ones),
        cmocka_unit_test(alibi_slopes_end_at_two_to_the_minus_bias_max),
        cmocka_unit_test(free_heads_are_the_last_and_the_others_have_the_slopes_of_fewer_heads),
        cmocka_unit_test(t5_buckets_equal_a_formulation_in_powers),
        cmocka_unit_test(t5_buckets_begin_where_they_should),
        cmocka_unit_test(t5_table_ends_in_its_last_bucket),
        cmocka_unit_test(t5_options_that_make_no_buckets_are_named),
        cmocka_unit_test(t5_learns_a_number_per_bucket_and_head),
        cmocka_unit_test(fox_starts_with_slopes_for_short_and_long_reach),
        cmocka_unit_test(kerple_starts_as_the_authors_code),
        cmocka_unit_test(kerple_falls_with_the_distance_for_any_numbers),
        cmocka_unit_test(bam_starts_as_alibi_up_to_a_constant),
        cmocka_unit_test(sinusoidal_rows_are_sines_then_cosines),
        cmocka_unit_test(sinusoidal_rows_exist_for_odd_and_tiny_widths),
        cmocka_unit_test(rotary_rows_are_cosines_then_sines_of_one_head),
        cmocka_unit_test(a_share_of_rotary_is_its_fastest_pairs),
        cmocka_unit_test(a_spread_share_has_the_angles_of_a_smaller_head),
        cmocka_unit_test(scaled_slopes_are_divided_by_the_root_of_the_head_width),
        cmocka_unit_test(stretched_angles_keep_what_they_promise),
        cmocka_unit_test(stretched_slopes_keep_what_they_promise),
        cmocka_unit_test(rotary_needs_an_even_head_width),
        cmocka_unit_test(learned_positions_end_at_their_table),
        cmocka_unit_test(every_method_is_found_by_its_name),
        cmocka_unit_test(the_methods_of_the_paper_keep_their_names),
        cmocka_unit_test(other_names_of_a_method_are_understood_and_written_as_its_own),
        cmocka_unit_test(unknown_methods_name_the_nearest_and_all),
        cmocka_unit_test(a_pattern_has_one_name),
        cmocka_unit_test(a_tempered_pattern_has_a_name_that_reads_back),
        cmocka_unit_test(positions_end_after_their_share_of_the_steps),
        cmocka_unit_test(layers_take_the_elements_of_a_pattern_in_turn),
        cmocka_unit_test(a_preset_is_a_pattern_with_its_options_passed_on),
        cmocka_unit_test(options_of_the_model_are_defaults_of_its_methods),
        cmocka_unit_test(bad_patterns_name_the_element_and_the_choices),
        cmocka_unit_test(a_pattern_must_fit_the_model),
        cmocka_unit_test(a_failed_allocation_is_reported_and_changes_nothing),
        cmocka_unit_test(names_of_patterns_are_names_of_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
