/* test_cuda_skipping.c - keys that the GPU's attention skips, for random and adversarial inputs of
 * up to 65,536 tokens, against exact attention in double precision
 *
 * The largest weight that a query skipped is found from the record of tiles, the error of y and of
 * the log-sum-exp against all keys. Gradients are those of the tiles that were used, from the y and
 * the log-sum-exp that the GPU had. Of long cases some queries and keys are checked, each against
 * all its pairs, and the log-sum-exp of every query against a call that skips nothing. */
#include "ops/gpu.h"
#include "ops/skip_inputs.h"

/* Cases of more tokens are long. */
enum { SHORT = 1100, SAMPLES = 48 };

/* ---- on the GPU */

struct results {
    float *y, *lse, *dq, *dk, *dv;
};

static void results_free(struct results *r)
{
    mem_free(r->y);
    mem_free(r->lse);
    mem_free(r->dq);
    mem_free(r->dk);
    mem_free(r->dv);
}

static struct tensor gpu_tensor(struct tensor shape, enum dtype type)
{
    shape.type = type;
    assert_ok(gpu.ops->buffer_new(&gpu, &shape.data,
                                  (size_t)tensor_count(shape) * dtype_bytes(type), "test"));
    return shape;
}

/* Tensors of one dimension may be uploaded. */
static struct tensor as_vector(struct tensor t)
{
    return tensor_1(t.data, t.type, tensor_count(t));
}

static struct tensor uploaded(struct tensor host, enum dtype type)
{
    struct tensor t = gpu_tensor(host, type);

    assert_ok(gpu.ops->upload(&gpu, as_vector(t), host.data));
    return t;
}

static float *downloaded(struct tensor t)
{
    float *host = NULL;

    assert_ok(NEW_ARRAY(&host, tensor_count(t), "results of the GPU"));
    assert_ok(gpu.ops->download(&gpu, host, as_vector(t)));
    return host;
}

/* Forward with that budget, and backward from its results. With a budget d's record is written. */
static struct results solve(const struct data *d, double eps, bool backward)
{
    const struct skip_case *c = &d->c;
    struct attention_args a = d->f32;
    struct tensor kept = d->f32.skip.kept, lse = tensor_3(NULL, DTYPE_F32, 1, c->H, c->L);
    struct results r = { NULL };

    a.q = uploaded(d->f32.q, d->type);
    a.k = uploaded(d->f32.k, d->type);
    a.v = uploaded(d->f32.v, d->type);
    a.dy = uploaded(d->dy32, d->type);
    a.bias.values = uploaded(d->f32.bias.values, DTYPE_F32);
    a.y = gpu_tensor(a.q, d->type);
    a.lse = gpu_tensor(lse, DTYPE_F32);
    a.dq = gpu_tensor(a.q, d->type);
    a.dk = gpu_tensor(a.k, d->type);
    a.dv = gpu_tensor(a.v, d->type);
    a.skip = (struct skipping){ .eps = eps };
    if (eps > 0)
        a.skip.kept = gpu_tensor(kept, DTYPE_I32);
    assert_ok(gpu.ops->attention_forward(&gpu, &a));
    r.y = downloaded(a.y);
    r.lse = downloaded(a.lse);
    if (eps > 0)
        assert_ok(gpu.ops->download(&gpu, kept.data, as_vector(a.skip.kept)));
    if (backward) {
        assert_ok(gpu.ops->attention_backward(&gpu, &a));
        r.dq = downloaded(a.dq);
        r.dk = downloaded(a.dk);
        r.dv = downloaded(a.dv);
    }
    struct tensor all[] = { a.q,   a.k,  a.v,  a.dy, a.bias.values, a.y,
                            a.lse, a.dq, a.dk, a.dv, a.skip.kept };
    for (int i = 0; i < COUNT_OF(all); i++)
        if (all[i].data)
            gpu.ops->buffer_free(&gpu, all[i].data);
    return r;
}

static bool same_results(const struct data *d, const struct results *a, const struct results *b)
{
    size_t queries = (size_t)tensor_count(d->f32.q) * sizeof(float),
           keys = (size_t)tensor_count(d->f32.k) * sizeof(float);

    return memcmp(a->y, b->y, queries) == 0 && memcmp(a->dq, b->dq, queries) == 0 &&
           memcmp(a->dk, b->dk, keys) == 0 && memcmp(a->dv, b->dv, keys) == 0 &&
           memcmp(a->lse, b->lse, (size_t)(d->c.H * d->c.L) * sizeof(float)) == 0;
}

/* ---- pairs of a query and a key, in double */

static const float *row_of(const float *numbers, int64_t H, int64_t D, int64_t l, int64_t h)
{
    return numbers + (l * H + h) * D;
}

static double dot(const float *x, const float *y, int64_t D)
{
    double sum = 0.0;

    for (int64_t d = 0; d < D; d++)
        sum += (double)x[d] * (double)y[d];
    return sum;
}

static double score(const struct data *d, int64_t h, int64_t i, int64_t j)
{
    const struct skip_case *c = &d->c;
    const struct attention_args *a = &d->f32;
    double product = dot(row_of(a->q.data, c->H, c->D, i, h),
                         row_of(a->k.data, c->Hkv, c->D, j, h / (c->H / c->Hkv)), c->D);

    return ref_gain_at(a->bias, i - j) * a->scale * product + ref_bias_at(a->bias, 0, h, i, j);
}

/* The weight of a pair by the GPU's log-sum-exp; where there is none that counts, 0. */
static double weight_of(const struct data *d, const struct results *r, int64_t h, int64_t i,
                        int64_t j)
{
    double p = exp(score(d, h, i, j) - (double)r->lse[h * d->c.L + i]);

    return p < 1e-20 ? 0.0 : p;
}

/* dS of a pair with the factor on q . k, and the size of the numbers that it is rounded from: the
 * two products that it is the difference of may cancel, each up to the rounding of its sum. */
struct slope {
    double ds, size;
};

static struct slope slope_of(const struct data *d, const struct results *r, int64_t h, int64_t i,
                             int64_t j, double p)
{
    const struct skip_case *c = &d->c;
    const float *dy = row_of(d->dy32.data, c->H, c->D, i, h), *y = row_of(r->y, c->H, c->D, i, h),
                *v = row_of(d->f32.v.data, c->Hkv, c->D, j, h / (c->H / c->Hkv));
    double difference = dot(dy, v, c->D) - dot(dy, y, c->D),
           sums = sqrt(dot(dy, dy, c->D) * (dot(v, v, c->D) + dot(y, y, c->D))),
           factor = d->f32.scale * ref_gain_at(d->f32.bias, i - j) * p,
           rest = d->type == DTYPE_BF16 ? 0x1p-12 : 0x1p-6; /* they are fp32 in both */

    return (struct slope){ factor * difference, factor * (fabs(difference) + rest * sums) };
}

/* The error of a row of D numbers, relative to the largest of their sizes. */
static double row_error(const float *got, const double *exact, const double *sizes, int64_t D)
{
    double error = 0.0, size = 1e-6;

    for (int64_t n = 0; n < D; n++) {
        double x = fabs((double)got[n] - exact[n]);
        error = isnan(x) ? INFINITY : fmax(error, x);
        size = fmax(size, sizes[n]);
    }
    return error / size;
}

static void add_scaled(double *sums, double *sizes, double factor, double size, const float *row,
                       int64_t D)
{
    for (int64_t n = 0; n < D; n++) {
        sums[n] += factor * (double)row[n];
        sizes[n] += fabs(size * (double)row[n]);
    }
}

/* ---- queries and keys that are checked */

enum { WIDEST = 128 };

struct errors {
    double skipped;         /* the largest share of a query's weight */
    double y, below, above; /* of lse: exact - got, and got - exact */
    double gradient;        /* of dq, dk and dv, relative */
};

static void worsen(struct errors *all, struct errors one)
{
    all->skipped = fmax(all->skipped, one.skipped);
    all->y = fmax(all->y, one.y);
    all->below = fmax(all->below, one.below);
    all->above = fmax(all->above, one.above);
    all->gradient = fmax(all->gradient, one.gradient);
}

/* `scores` has room for all keys. */
static struct errors check_query(const struct data *d, const struct results *r, int64_t h,
                                 int64_t i, double *scores)
{
    const struct skip_case *c = &d->c;
    int64_t D = c->D, kv = h / (c->H / c->Hkv), first = attention_first_key(i, c->window);
    double y[WIDEST] = { 0 }, dq[WIDEST] = { 0 }, sizes[WIDEST] = { 0 }, most = -INFINITY,
           sum = 0.0, skipped = 0.0;
    struct errors e = { 0 };

    for (int64_t j = first; j <= i; j++) {
        scores[j] = score(d, h, i, j);
        most = fmax(most, scores[j]);
    }
    for (int64_t j = first; j <= i; j++) {
        double weight = exp(scores[j] - most);
        sum += weight;
        if (!is_kept(d, h, i / ATTENTION_TILE, j / ATTENTION_TILE))
            skipped += weight;
        for (int64_t n = 0; n < D && weight > 1e-20; n++)
            y[n] += weight * (double)row_of(d->f32.v.data, c->Hkv, D, j, kv)[n];
    }
    for (int64_t n = 0; n < D; n++) {
        double x = fabs((double)row_of(r->y, c->H, D, i, h)[n] - y[n] / sum);
        e.y = isnan(x) ? INFINITY : fmax(e.y, x);
    }
    double lse = most + log(sum), got = (double)r->lse[h * c->L + i];
    e.skipped = skipped / sum;
    e.below = isnan(got) ? INFINITY : lse - got;
    e.above = got - lse;
    for (int64_t j = first; j <= i; j++) {
        double p = exp(scores[j] - got);
        if (p < 1e-20 || !is_kept(d, h, i / ATTENTION_TILE, j / ATTENTION_TILE))
            continue;
        struct slope s = slope_of(d, r, h, i, j, p);
        add_scaled(dq, sizes, s.ds, s.size, row_of(d->f32.k.data, c->Hkv, D, j, kv), D);
    }
    e.gradient = row_error(row_of(r->dq, c->H, D, i, h), dq, sizes, D);
    return e;
}

static struct errors check_key(const struct data *d, const struct results *r, int64_t kv, int64_t j)
{
    const struct skip_case *c = &d->c;
    int64_t D = c->D, group = c->H / c->Hkv,
            end = c->window > 0 && c->window < c->L - j ? j + c->window : c->L;
    double dk[WIDEST] = { 0 }, dv[WIDEST] = { 0 }, dk_sizes[WIDEST] = { 0 },
           dv_sizes[WIDEST] = { 0 };

    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = j; i < end; i++) {
            if (!is_kept(d, h, i / ATTENTION_TILE, j / ATTENTION_TILE))
                continue;
            double p = weight_of(d, r, h, i, j);
            if (p == 0.0)
                continue;
            struct slope s = slope_of(d, r, h, i, j, p);
            add_scaled(dk, dk_sizes, s.ds, s.size, row_of(d->f32.q.data, c->H, D, i, h), D);
            add_scaled(dv, dv_sizes, p, p, row_of(d->dy32.data, c->H, D, i, h), D);
        }
    return (struct errors){ .gradient =
                                fmax(row_error(row_of(r->dk, c->Hkv, D, j, kv), dk, dk_sizes, D),
                                     row_error(row_of(r->dv, c->Hkv, D, j, kv), dv, dv_sizes, D)) };
}

/* Position n of those that are checked: all of a short case; of a long one the ends, the huge keys
 * and their neighbours, and random ones. */
static int64_t samples_of(const struct skip_case *c)
{
    return c->L <= SHORT ? c->L : SAMPLES;
}

static int64_t sample_at(const struct skip_case *c, int64_t n)
{
    const int64_t L = c->L,
                  chosen[] = { 0,          L - 1,  L / 3,  L / 3 + 1, L / 3 - 1, 127,       128,
                               127 + 1021, L - 64, L - 65, L / 2,     L - 129,   L / 3 + 64 };

    return L <= SHORT             ? n
           : n < COUNT_OF(chosen) ? chosen[n]
                                  : (int64_t)random_below(SEED, 6, (uint64_t)n, (uint64_t)L);
}

static struct errors check_samples(const struct data *d, const struct results *r)
{
    const struct skip_case *c = &d->c;
    int64_t samples = samples_of(c), rows = samples * (c->H + c->Hkv);
    struct errors all = { 0 };

#pragma omp parallel
    {
        double *scores = NULL;
        struct errors mine = { 0 };
        if (NEW_ARRAY(&scores, c->L, "scores") != ALIBI_OK)
            mine.skipped = INFINITY;
#pragma omp for schedule(dynamic)
        for (int64_t n = 0; n < rows; n++) {
            int64_t at = sample_at(c, n % samples), head = n / samples;
            if (scores)
                worsen(&mine, head < c->H ? check_query(d, r, head, at, scores)
                                          : check_key(d, r, head - c->H, at));
        }
#pragma omp critical
        worsen(&all, mine);
        mem_free(scores);
    }
    return all;
}

/* ---- verdicts */

/* Each row has the tile of its own queries, none after it, and none before the window. */
static bool is_a_record(const struct data *d)
{
    int64_t tiles = attention_tiles(d->c.L), words = attention_kept_words(d->c.L);
    bool good = true;

    for (int64_t h = 0; h < d->c.H; h++)
        for (int64_t i = 0; i < tiles; i++) {
            int64_t first = attention_first_key(i * ATTENTION_TILE, d->c.window) / ATTENTION_TILE;
            good = good && is_kept(d, h, i, i);
            for (int64_t t = 0; t < 32 * words; t++)
                good = good && ((t >= first && t <= i) || !is_kept(d, h, i, t));
        }
    return good;
}

static double largest(const float *numbers, int64_t count)
{
    double most = 0.0;

    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)numbers[i]));
    return most;
}

/* The log-sum-exp of all queries against that of a call that skips nothing: the largest share of a
 * weight that is missing, and the largest error the other way. */
static struct errors against_every_pair(const struct data *d, const struct results *r)
{
    struct results exact = solve(d, 0.0, false);
    struct errors e = { .below = -INFINITY, .above = -INFINITY };

    for (int64_t i = 0; i < d->c.H * d->c.L; i++) {
        double missing = (double)exact.lse[i] - (double)r->lse[i];
        e.below = isnan(missing) ? INFINITY : fmax(e.below, missing);
        e.above = fmax(e.above, -missing);
    }
    results_free(&exact);
    return e;
}

/* Scores of size S are summed with an error of some 2^-22 S, and the bias of a key that counts is
 * as large as its score and the log-sum-exp are. */
static double rounding_of(const struct data *d, const struct results *r)
{
    double scores = d->f32.scale * largest_row(d->f32.q) * largest_row(d->f32.k) *
                    ref_gain_at(d->f32.bias, d->c.L);

    return 5e-5 + 1e-6 * (scores + largest(r->lse, d->c.H * d->c.L));
}

/* Returns the share of tiles that was used. */
static double check_case(struct skip_case c, enum dtype type)
{
    struct data d = make_inputs(c, type);
    struct results r = solve(&d, c.eps, true);
    struct errors e = check_samples(&d, &r);
    struct skip_count count = attention_count(&d.f32);
    double rounding = rounding_of(&d, &r), v = largest(d.f32.v.data, tensor_count(d.f32.v)),
           precision = type == DTYPE_BF16 ? 0x1p-7 : 2e-5,
           y = 2.0 * c.eps * largest_row(d.f32.v) + (precision + 2.0 * rounding) * v,
           gradient = 2.0 * (precision + rounding), used = (double)count.used / (double)count.all;
    bool good = e.skipped <= c.eps && e.y <= y && e.below <= c.eps + rounding &&
                e.above <= rounding && e.gradient <= gradient && is_a_record(&d);

    if (c.L > SHORT) {
        struct errors all = against_every_pair(&d, &r);
        good = good && all.below <= c.eps + 2.0 * rounding && all.above <= 2.0 * rounding;
        e.below = fmax(e.below, all.below);
        e.above = fmax(e.above, all.above);
    }
    printf(
        "skipping cuda %s L=%d W=%d H=%d/%d D=%d %s slope %g keys %s eps %.0e: used %.4f skipped "
        "%.1e  y %.1e limit %.1e  lse %.1e %.1e limit %.1e  gradients %.1e limit %.1e%s\n",
        type_name(type), (int)c.L, (int)c.window, (int)c.H, (int)c.Hkv, (int)c.D,
        skip_bias_name(c.bias), c.slope, keys_names[c.keys], c.eps, used, e.skipped, e.y, y,
        e.below, e.above, rounding, e.gradient, gradient, good ? "  ok" : "  FAILED");
    if (!few_cases()) {
        struct results again = solve(&d, c.eps, true);
        if (!same_results(&d, &r, &again)) {
            printf("DIFFERS THE SECOND TIME\n");
            good = false;
        }
        results_free(&again);
    }
    all_good = all_good && good;
    results_free(&r);
    data_free(&d);
    return used;
}

/* Inputs of 65,536 tokens; others have slopes and distances in proportion. */
static const struct {
    struct skip_case c;
    bool skips;
} long_cases[] = {
    { { 65536, 1, 1, 64, BIAS_LINEAR, 0x1p-7, KEYS_SINKS, TINY, 0 }, true },
    { { 65536, 1, 1, 128, BIAS_LINEAR, 0x1p-6, KEYS_SINKS, 1e-2, 0 }, true },
    { { 65536, 1, 1, 128, BIAS_LINEAR, 0x1p-5, KEYS_SCATTERED, TINY, 0 }, true },
    { { 65536, 2, 1, 64, BIAS_LINEAR, 0x1p-7, KEYS_ALIGNED, TINY, 0 }, true },
    { { 65536, 1, 1, 128, BIAS_LINEAR, 0x1p-7, KEYS_ALIGNED, 1e-2, 0 }, true },
    { { 65536, 3, 1, 64, BIAS_LINEAR, 0x1p-7, KEYS_RANDOM, 0x1p-16, 0 }, true },
    { { 65536, 2, 2, 64, BIAS_LINEAR, 0, KEYS_RANDOM, TINY, 0 }, true },
    { { 65536, 1, 1, 64, BIAS_LINEAR, 0x1p-7, KEYS_CONSTANT, TINY, 0 }, true },
    { { 65536, 1, 1, 64, BIAS_LINEAR, 0x1p-9, KEYS_SMALL, 1e-2, 0 }, true },
    { { 65536, 1, 1, 64, BIAS_LINEAR, 1e-8, KEYS_RANDOM, TINY, 0 }, false },
    { { 65536, 1, 1, 64, BIAS_LINEAR, -0x1p-7, KEYS_RANDOM, TINY, 0 }, false },
    { { 65536, 1, 1, 64, BIAS_LINEAR, 0x1p-7, KEYS_SINKS, TINY, 30000 }, true },
    { { 65536, 1, 1, 64, BIAS_TABLE, 44800, KEYS_RANDOM, TINY, 0 }, true },
    { { 65536, 1, 1, 64, BIAS_LINEAR, 0x1p-7, KEYS_ALIGNED, TINY, 30000 }, true },
    { { 65536, 2, 1, 64, BIAS_GATE, 0x1p-7, KEYS_SINKS, TINY, 0 }, true },
    { { 65536, 1, 1, 64, BIAS_GAIN, 1, KEYS_SMALL, 1e-4, 0 }, false },
};

static struct skip_case shortened(struct skip_case c, int64_t L)
{
    double times = (double)c.L / (double)L;

    c.window = (int64_t)((double)c.window / times);
    if (c.bias == BIAS_LINEAR)
        c.slope *= times;
    else if (c.bias == BIAS_TABLE)
        c.slope = floor(c.slope / times);
    c.L = L;
    return c;
}

struct kernels {
    const char *lists_from;
    bool mma_sync;
};

/* mma.sync has no gates and gains: plain kernels compute those, in minutes if they are long. */
static bool serves(const struct kernels *k, const struct skip_case *c)
{
    return !k->mma_sync || (c->bias != BIAS_GATE && c->bias != BIAS_GAIN);
}

/* A device reads these of the environment when it is opened. */
static void check_kernels(struct kernels k)
{
    static const int64_t lengths[] = { 4097, 16384, 65536 };
    bool forced = getenv("ALIBI_MMA_SYNC") != NULL;

    setenv("ALIBI_LISTS_FROM", k.lists_from, 1);
    if (k.mma_sync)
        setenv("ALIBI_MMA_SYNC", "1", 1);
    find_gpu(NULL);
    if (k.mma_sync && !forced)
        unsetenv("ALIBI_MMA_SYNC");
    begin();
    for (int type = few_cases() ? 1 : first_type(); type < 2; type++)
        for (int n = 0; n < COUNT_OF(hostile_cases); n++)
            if (!few_cases() || (hostile_cases[n].L <= SHORT && n % 3 == 0))
                check_case(hostile_cases[n], gpu_types[type]);
    for (int n = 0; n < COUNT_OF(long_cases); n++)
        for (int l = 0; l < (few_cases() ? 1 : COUNT_OF(lengths)); l++) {
            struct skip_case c = shortened(long_cases[n].c, few_cases() ? 1153 : lengths[l]);
            if (serves(&k, &c) && check_case(c, DTYPE_BF16) >= 1.0 && long_cases[n].skips) {
                printf("NOTHING IS SKIPPED\n");
                all_good = false;
            }
        }
    lose_gpu(NULL);
    end();
}

static void errors_stay_within_what_is_proven_with_lists(void **state)
{
    (void)state;
    check_kernels((struct kernels){ "1", false });
}

static void errors_stay_within_what_is_proven_without_lists(void **state)
{
    (void)state;
    check_kernels((struct kernels){ "0", false });
}

static void errors_stay_within_what_is_proven_by_mma_sync(void **state)
{
    (void)state;
    check_kernels((struct kernels){ "0", true });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stay_within_what_is_proven_with_lists),
        cmocka_unit_test(errors_stay_within_what_is_proven_without_lists),
        cmocka_unit_test(errors_stay_within_what_is_proven_by_mma_sync),
    };

    choose_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
