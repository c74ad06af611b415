/* test_skipping.c - keys that are skipped, against exact attention in double precision
 *
 * Each case prints the share of tiles that was used, the share that an oracle with the same budget
 * would use, the largest weight that was skipped, and the error against what is proven for it. */
#include "ops/cpu/cpu.h"

#include "ops/skip_inputs.h"

static struct tensor widened(struct data *d, struct tensor t)
{
    struct tensor wide = t;

    wide.type = DTYPE_F64;
    wide = keep(d, wide);
    for (int64_t i = 0; i < tensor_count(t); i++)
        set(wide, i, get(t, i));
    return wide;
}

/* With the same numbers in double. */
static struct data make(struct skip_case c)
{
    struct data d = make_inputs(c, DTYPE_F32);

    d.f64 = d.f32;
    d.f64.skip = (struct skipping){ 0 };
    d.f64.q = widened(&d, d.f32.q);
    d.f64.k = widened(&d, d.f32.k);
    d.f64.v = widened(&d, d.f32.v);
    d.f64.bias.values = widened(&d, d.f32.bias.values);
    d.dy64 = widened(&d, d.dy32);
    return d;
}

/* ---- what was used, and what had to be */

struct shares {
    double kept, oracle;   /* of all tiles that mask and window leave */
    bool counted;          /* attention_count() agrees, and no other tile was used */
    double skipped_weight; /* the largest weight of what a row skipped, of all its weight */
};

/* weights[t] <- the weight of key tile t for one query; returns the query's largest score. */
static void tile_weights(const struct data *d, int64_t h, int64_t i, double lse, double *weights)
{
    const struct attention_args *a = &d->f64;
    int64_t D = d->c.D, kv = h / (d->c.H / d->c.Hkv);
    const double *q = (const double *)a->q.data + (i * d->c.H + h) * D;
    const double *bias = a->bias.values.data;

    for (int64_t t = 0; t <= i / ATTENTION_TILE; t++)
        weights[t] = 0.0;
    for (int64_t j = attention_first_key(i, d->c.window); j <= i; j++) {
        const double *k = (const double *)a->k.data + (j * d->c.Hkv + kv) * D;
        int64_t T = a->bias.values.shape[1], distance = i - j;
        double s = 0.0;
        for (int64_t n = 0; n < D; n++)
            s += q[n] * k[n];
        s *= a->scale * ref_gain_at(a->bias, distance);
        s += a->bias.kind == BIAS_LINEAR  ? -bias[h] * (double)distance
             : a->bias.kind >= BIAS_GATE  ? ref_bias_at(a->bias, 0, h, i, j)
             : a->bias.kind == BIAS_TABLE ? bias[h * T + (distance < T ? distance : T - 1)]
                                          : 0.0;
        weights[j / ATTENTION_TILE] += exp(s - lse);
    }
}

static struct shares measure(const struct data *d, struct tensor lse)
{
    int64_t L = d->c.L, tiles = attention_tiles(L), all = 0, kept = 0, needed = 0;
    double *row = NULL, *most = NULL;
    struct shares s = { .counted = true };
    struct skip_count count = attention_count(&d->f32);

    assert_ok(NEW_ARRAY(&row, tiles, "weights"));
    assert_ok(NEW_ARRAY(&most, tiles, "weights"));
    for (int64_t h = 0; h < d->c.H; h++)
        for (int64_t n = 0; n < tiles; n++) {
            memset(most, 0, sizeof *most * (size_t)tiles);
            for (int64_t i = n * ATTENTION_TILE; i < L && i < (n + 1) * ATTENTION_TILE; i++) {
                double skipped_weight = 0.0;
                tile_weights(d, h, i, get(lse, h * L + i), row);
                for (int64_t t = 0; t <= n; t++) {
                    most[t] = fmax(most[t], row[t]);
                    skipped_weight += is_kept(d, h, n, t) ? 0.0 : row[t];
                }
                s.skipped_weight = fmax(s.skipped_weight, skipped_weight);
            }
            for (int64_t t = 0; t < tiles; t++) {
                bool seen = t <= n && (t + 1) * ATTENTION_TILE >
                                          attention_first_key(n * ATTENTION_TILE, d->c.window);
                all += seen;
                kept += is_kept(d, h, n, t);
                needed += seen && most[t] > d->c.eps;
                s.counted = s.counted && (seen || !is_kept(d, h, n, t));
            }
        }
    s.counted = s.counted && count.all == all && count.used == kept;
    s.kept = (double)kept / (double)all;
    s.oracle = (double)needed / (double)all;
    mem_free(row);
    mem_free(most);
    return s;
}

/* ---- the checks */

enum { SHORT = 1100 };

static double largest(struct tensor t)
{
    double most = 0.0;

    for (int64_t i = 0; i < tensor_count(t); i++)
        most = fmax(most, fabs(get(t, i)));
    return most;
}

static double difference(struct tensor a, struct tensor b)
{
    double most = 0.0;

    for (int64_t i = 0; i < tensor_count(a); i++) {
        double x = fabs(get(a, i) - get(b, i));
        most = isnan(x) ? INFINITY : fmax(most, x);
    }
    return most;
}

static bool is_within(const char *what, double error, double limit)
{
    printf("  %s %.1e limit %.1e%s", what, error, limit, error <= limit ? "" : " TOO LARGE");
    return error <= limit;
}

/* Scores of size S carry a rounding of S 2^-24 before they are exponentiated. */
static double rounding(const struct data *d)
{
    double scores = d->f32.scale * largest_row(d->f32.q) * largest_row(d->f32.k);

    return 3e-6 + 3e-7 * scores;
}

static bool check_case(struct skip_case c, const struct ops *ops)
{
    struct data d = make(c);
    struct device cpu = { .ops = ops }, ref = { .ops = &ops_ref };
    struct tensor y = heads_tensor(&d, DTYPE_F32, c.L, c.H, c.D),
                  exact = heads_tensor(&d, DTYPE_F64, c.L, c.H, c.D);
    struct tensor lse = keep(&d, tensor_3(NULL, DTYPE_F32, 1, c.H, c.L));
    struct tensor exact_lse = keep(&d, tensor_3(NULL, DTYPE_F64, 1, c.H, c.L));
    struct tensor g32[3], g64[3];
    double v = largest_row(d.f32.v), q = largest_row(d.f32.q), k = largest_row(d.f32.k),
           dy = largest_row(d.dy32);
    double rows = (double)(c.L * (c.H / c.Hkv)), step = d.f32.scale * 4.0 * v * dy * c.eps;
    const double limits[] = { step * k, step * q * rows, 2.0 * dy * c.eps * rows };
    static const char *const names[] = { "dq", "dk", "dv" };
    bool good;

    d.f32.y = y;
    d.f32.lse = lse;
    d.f64.y = exact;
    d.f64.lse = exact_lse;
    assert_ok(cpu.ops->attention_forward(&cpu, &d.f32));
    assert_ok(ref.ops->attention_forward(&ref, &d.f64));
    struct shares s = measure(&d, exact_lse);
    printf("skipping L=%d W=%d H=%d/%d D=%d %s slope %g keys %s eps %.0e: used %.3f oracle %.3f "
           "skipped %.1e",
           (int)c.L, (int)c.window, (int)c.H, (int)c.Hkv, (int)c.D, skip_bias_name(c.bias), c.slope,
           keys_names[c.keys], c.eps, s.kept, s.oracle, s.skipped_weight);
    good = s.skipped_weight <= c.eps && s.kept >= s.oracle && s.counted;
    if (c.L <= SHORT)
        good &= fabs(attention_skipped(&d.f32) - s.skipped_weight) <= 1e-6 * s.skipped_weight;
    good &= is_within("y", difference(y, exact), 2.0 * c.eps * v + rounding(&d) * v);
    good &= is_within("lse", difference(lse, exact_lse),
                      c.eps + rounding(&d) * fmax(1.0, largest(exact_lse)));
    for (int n = 0; n < 3; n++) {
        g32[n] = heads_tensor(&d, DTYPE_F32, c.L, n == 0 ? c.H : c.Hkv, c.D);
        g64[n] = heads_tensor(&d, DTYPE_F64, c.L, n == 0 ? c.H : c.Hkv, c.D);
    }
    d.f32.dy = d.dy32;
    d.f32.dq = g32[0];
    d.f32.dk = g32[1];
    d.f32.dv = g32[2];
    d.f64.dy = d.dy64;
    d.f64.dq = g64[0];
    d.f64.dk = g64[1];
    d.f64.dv = g64[2];
    assert_ok(cpu.ops->attention_backward(&cpu, &d.f32));
    assert_ok(ref.ops->attention_backward(&ref, &d.f64));
    for (int n = 0; n < 3; n++)
        good &= is_within(names[n], difference(g32[n], g64[n]),
                          limits[n] + 4.0 * rounding(&d) * fmax(1.0, largest(g64[n])));
    printf("%s\n", good ? "  ok" : "  FAILED");
    data_free(&d);
    return good;
}

/* The first set of vector instructions takes all cases, and each of the others a third of them;
 * with ALIBI_EVERY_CASE in the environment all. */
static bool is_taken(int set, size_t number)
{
    return set == 0 || number % 3 == (size_t)set % 3 || getenv("ALIBI_EVERY_CASE") != NULL;
}

static void check_all(const struct skip_case *cases, size_t count)
{
    bool good = true;

    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        printf("%s\n", cpu_set_name(s));
        for (size_t i = 0; i < count; i++) {
            bool enough = s > 0 && cases[i].L > SHORT; /* these take a second each: once */
            if (is_taken(s, i) && !enough)
                good &= check_case(cases[i], &ops);
        }
    }
    assert_true(good);
}

static void error_stays_within_what_is_proven_around_tiles(void **state)
{
    static const int64_t lengths[] = { 1,   2,   63,  64,  65,  127, 128,
                                       129, 191, 192, 193, 257, 320, 1025 };
    struct skip_case cases[2 * sizeof lengths / sizeof *lengths];
    size_t count = 0;

    (void)state;
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        cases[count++] =
            (struct skip_case){ lengths[n], 2, 2, 16, BIAS_LINEAR, 0.5, KEYS_RANDOM, TINY, 0 };
        cases[count++] =
            (struct skip_case){ lengths[n], 2, 1, 8, BIAS_LINEAR, 0, KEYS_RANDOM, 1e-2, 0 };
    }
    check_all(cases, count);
}

static void error_stays_within_what_is_proven_for_hostile_data(void **state)
{
    (void)state;
    check_all(hostile_cases, sizeof hostile_cases / sizeof *hostile_cases);
}

/* A budget that leaves nothing out must not change a bit. */
static void without_a_budget_every_tile_is_used_and_bits_are_the_same(void **state)
{
    struct data d =
        make((struct skip_case){ 300, 3, 3, 32, BIAS_LINEAR, 0, KEYS_RANDOM, 1e-40, 0 });
    struct device cpu = { .ops = ops_cpu() };
    struct tensor y[2], lse[2];

    (void)state;
    for (int n = 0; n < 2; n++) {
        d.f32.y = y[n] = heads_tensor(&d, DTYPE_F32, 300, 3, 32);
        d.f32.lse = lse[n] = keep(&d, tensor_3(NULL, DTYPE_F32, 1, 3, 300));
        assert_ok(cpu.ops->attention_forward(&cpu, &d.f32));
        d.f32.skip = (struct skipping){ 0 };
    }
    assert_memory_equal(y[0].data, y[1].data, (size_t)tensor_count(y[0]) * sizeof(float));
    assert_memory_equal(lse[0].data, lse[1].data, (size_t)tensor_count(lse[0]) * sizeof(float));
    data_free(&d);
}

/* The last `queries` queries alone, as decoding and chunks have them, with norms that the caller
 * has. */
static bool check_tail(struct skip_case c, int64_t queries, const struct ops *ops)
{
    struct data d = make(c);
    struct device cpu = { .ops = ops }, ref = { .ops = &ops_ref };
    struct attention_args tail = d.f32, tail64 = d.f64;
    struct tensor y = heads_tensor(&d, DTYPE_F32, queries, c.H, c.D),
                  exact = heads_tensor(&d, DTYPE_F64, queries, c.H, c.D);
    struct tensor lse = keep(&d, tensor_3(NULL, DTYPE_F32, 1, c.H, queries));
    struct tensor exact_lse = keep(&d, tensor_3(NULL, DTYPE_F64, 1, c.H, queries));
    bool good;

    tail.q.data = tensor_at(tail.q, (c.L - queries) * tail.q.stride[1]);
    tail64.q.data = tensor_at(tail64.q, (c.L - queries) * tail64.q.stride[1]);
    tail.q.shape[1] = tail64.q.shape[1] = queries;
    tail.skip.kept = tensor_none();
    tail.skip.norms = keep(&d, tensor_3(NULL, DTYPE_F32, 1, c.Hkv, attention_tiles(c.L) + 3));
    assert_ok(cpu.ops->attention_norms(&cpu, tail.skip.norms, tail.k, 0));
    tail.y = y;
    tail.lse = lse;
    tail64.y = exact;
    tail64.lse = exact_lse;
    assert_ok(cpu.ops->attention_forward(&cpu, &tail));
    assert_ok(ref.ops->attention_forward(&ref, &tail64));
    printf("skipping L=%d/%d W=%d slope %g keys %s eps %.0e:", (int)queries, (int)c.L,
           (int)c.window, c.slope, keys_names[c.keys], c.eps);
    good =
        is_within("y", difference(y, exact), (2.0 * c.eps + rounding(&d)) * largest_row(d.f32.v));
    good &= is_within("lse", difference(lse, exact_lse),
                      c.eps + rounding(&d) * fmax(1.0, largest(exact_lse)));
    putchar('\n');
    data_free(&d);
    return good;
}

static void decoding_and_chunks_stay_within_what_is_proven(void **state)
{
    static const int64_t queries[] = { 1, 2, 5, 70, 130 };
    static const int64_t lengths[] = { 192, 333, 449, 1025 };
    bool good = true;

    (void)state;
    for (int s = 0; cpu_set_name(s); s++)
        for (int q = 0; q < 5; q++)
            for (int l = 0; l < 4; l++) {
                struct ops ops;
                if (!is_taken(s, (size_t)(q + l)))
                    continue;
                assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
                good &= check_tail((struct skip_case){ lengths[l], 4, 2, 16, BIAS_LINEAR, 0,
                                                       KEYS_RANDOM, 1e-2, 0 },
                                   queries[q], &ops);
                good &= check_tail((struct skip_case){ lengths[l], 1, 1, 24, BIAS_LINEAR, 0.25,
                                                       KEYS_SINKS, TINY, 0 },
                                   queries[q], &ops);
                good &= check_tail((struct skip_case){ lengths[l], 4, 2, 16, BIAS_LINEAR, 0,
                                                       KEYS_RANDOM, 1e-2, 150 },
                                   queries[q], &ops);
                good &= check_tail((struct skip_case){ lengths[l], 4, 2, 16, BIAS_GATE, 0.1,
                                                       KEYS_RANDOM, 1e-2, 0 },
                                   queries[q], &ops);
                good &= check_tail((struct skip_case){ lengths[l], 2, 1, 16, BIAS_TABLE, 320,
                                                       KEYS_RANDOM, TINY, 0 },
                                   queries[q], &ops);
                good &= check_tail((struct skip_case){ lengths[l], 4, 2, 16, BIAS_GAIN, 1e-5,
                                                       KEYS_SMALL, 1e-3, 0 },
                                   queries[q], &ops);
            }
    assert_true(good);
}

/* Wherever in its tile the key stands, and however far away. */
static void a_key_that_is_not_a_number_is_never_skipped(void **state)
{
    static const int64_t keys[] = { 0, 5, 63, 100 };

    (void)state;
    for (int s = 0; cpu_set_name(s); s++)
        for (int n = 0; n < 4; n++) {
            struct data d =
                make((struct skip_case){ 400, 1, 1, 16, BIAS_LINEAR, 0.5, KEYS_RANDOM, TINY, 0 });
            struct tensor y = heads_tensor(&d, DTYPE_F32, 400, 1, 16),
                          lse = keep(&d, tensor_3(NULL, DTYPE_F32, 1, 1, 400));
            struct ops ops;
            struct device cpu = { .ops = &ops };
            assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
            set(d.f32.k, keys[n] * 16 + 3, (double)NAN);
            d.f32.y = y;
            d.f32.lse = lse;
            assert_ok(ops.attention_forward(&cpu, &d.f32));
            for (int64_t i = keys[n]; i < 400; i++)
                assert_true(isnan(get(lse, i)));
            data_free(&d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_stays_within_what_is_proven_around_tiles),
        cmocka_unit_test(error_stays_within_what_is_proven_for_hostile_data),
        cmocka_unit_test(decoding_and_chunks_stay_within_what_is_proven),
        cmocka_unit_test(a_key_that_is_not_a_number_is_never_skipped),
        cmocka_unit_test(without_a_budget_every_tile_is_used_and_bits_are_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
