/* Attention alone: equal to the equation in double precision, its gradients to finite differences;
 * every form of a call equal to calls of its sequences alone, on the CPU and on a GPU; and nothing
 * leaks where an allocation fails. */
#include "check.h"

#include "base/base.h"
#include "device.h"
#include "ops/bf16.h"
#include "ops/gpu.h"

enum { B = 2, L = 70, KEYS = 90, H = 4, KV = 2, D = 5 };

static float q[B * KEYS * H * D], k[B * KEYS * KV * D], v[B * KEYS * KV * D], slopes[H];
static float y[B * KEYS * H * D], lse[B * H * KEYS];

static struct alibi_attend request(int64_t queries, int64_t keys)
{
    float *const all[] = { q, k, v, slopes };
    const size_t counts[] = { B * KEYS * H * D, B * KEYS * KV * D, B * KEYS * KV * D, H };

    for (int n = 0; n < 4; n++)
        for (size_t i = 0; i < counts[n]; i++)
            all[n][i] = (float)random_normal(5, (uint64_t)n, i);
    for (int h = 0; h < H; h++)
        slopes[h] = (float)exp2(-2.0 * (h + 1));
    return (struct alibi_attend){ .batch = B,
                                  .queries = queries,
                                  .keys = keys,
                                  .heads = H,
                                  .kv_heads = KV,
                                  .head_width = D,
                                  .slopes = slopes,
                                  .q = { q },
                                  .k = { k },
                                  .v = { v },
                                  .y = { y },
                                  .lse = lse };
}

/* y[b, i, h, d] by the equation of alibi.h. */
static double exact(const struct alibi_attend *a, int64_t b, int64_t i, int64_t h, int64_t d)
{
    int64_t p = a->keys - a->queries + i, kv = h / (a->heads / a->kv_heads);
    double sum = 0, weighted = 0;

    for (int64_t j = a->window && p >= a->window ? p - a->window + 1 : 0; j <= p; j++) {
        const float *key = k + ((b * a->keys + j) * a->kv_heads + kv) * D;
        double score = 0, weight;

        for (int64_t n = 0; n < D; n++)
            score += (double)q[((b * a->queries + i) * a->heads + h) * D + n] * (double)key[n];
        score *= a->scale != 0 ? a->scale : 1 / sqrt(D);
        weight = exp(score - (a->slopes ? (double)a->slopes[h] * (double)(p - j) : 0));
        sum += weight;
        weighted += weight * (double)v[((b * a->keys + j) * a->kv_heads + kv) * D + d];
    }
    return weighted / sum;
}

static void assert_exact(const struct alibi_attend *a, double limit)
{
    assert_ok(alibi_attend(test_device(), a));
    for (int64_t n = 0; n < B * a->queries * H * D; n++) {
        int64_t row = n / D / H;
        double wanted = exact(a, row / a->queries, row % a->queries, n / D % H, n % D);

        assert_float_equal(y[n], (float)wanted, limit);
    }
}

static void attention_is_that_of_the_equation(void **state)
{
    struct alibi_attend a = request(L, L);

    (void)state;
    assert_exact(&a, 1e-5);
    a.skip = 1e-6;
    assert_exact(&a, 1e-4);
    a.skip = 0;
    a.window = 9;
    assert_exact(&a, 1e-5);
    a.slopes = NULL;
    a.window = 0;
    a.scale = 0.7;
    assert_exact(&a, 1e-5);
    a = request(L, KEYS);
    assert_exact(&a, 1e-5);
}

/* The sum of y, weighted by dy. */
static double loss(const struct alibi_attend *a, const float *dy)
{
    double sum = 0;

    for (int64_t n = 0; n < B * a->queries * H * D; n++) {
        int64_t row = n / D / H;
        sum += (double)dy[n] * exact(a, row / a->queries, row % a->queries, n / D % H, n % D);
    }
    return sum;
}

static void gradients_are_finite_differences(void **state)
{
    enum { SHORT = 6 };
    static float dy[B * SHORT * H * D], dq[B * SHORT * H * D], dk[B * SHORT * KV * D],
        dv[B * SHORT * KV * D], dslopes[H];
    struct alibi_attend a = request(SHORT, SHORT);
    float *const inputs[] = { q, k, v, slopes }, *const gradients[] = { dq, dk, dv, dslopes };
    const int counts[] = { B * SHORT * H * D, B * SHORT * KV * D, B * SHORT * KV * D, H };

    (void)state;
    for (int i = 0; i < counts[0]; i++)
        dy[i] = (float)random_normal(5, 9, (uint64_t)i);
    a.dy.data = dy;
    a.dq.data = dq;
    a.dk.data = dk;
    a.dv.data = dv;
    a.dslopes = dslopes;
    assert_ok(alibi_attend(test_device(), &a));
    assert_ok(alibi_attend_backward(test_device(), &a));
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < counts[n]; i++) {
            float at = inputs[n][i], step = 0x1p-10f;
            double difference;

            inputs[n][i] = at + step;
            difference = loss(&a, dy);
            inputs[n][i] = at - step;
            difference -= loss(&a, dy);
            inputs[n][i] = at;
            assert_float_equal(gradients[n][i], (float)(difference / (2 * (double)step)), 2e-3);
        }
}

/* q, k and v of one head after another in each row, as a fused projection writes them. */
static void rows_may_have_gaps(void **state)
{
    enum { ROW = (H + 2 * KV) * D };
    static float fused[B * L * ROW], apart[B * L * H * D];
    struct alibi_attend a = request(L, L);

    (void)state;
    for (int64_t row = 0; row < B * L; row++) {
        memcpy(fused + row * ROW, q + row * H * D, H * D * sizeof *q);
        memcpy(fused + row * ROW + H * D, k + row * KV * D, KV * D * sizeof *k);
        memcpy(fused + row * ROW + (H + KV) * D, v + row * KV * D, KV * D * sizeof *v);
    }
    assert_ok(alibi_attend(test_device(), &a));
    memcpy(apart, y, sizeof apart);
    a.q = (struct alibi_rows){ fused, L * ROW, ROW, D };
    a.k = (struct alibi_rows){ fused + H * D, L * ROW, ROW, D };
    a.v = (struct alibi_rows){ fused + (H + KV) * D, L * ROW, ROW, D };
    assert_ok(alibi_attend(test_device(), &a));
    assert_memory_equal(apart, y, sizeof apart);
}

/* ---- every form of a call, forward and backward */

/* Sequences of which one is empty, some end within a tile, and one has a single token. */
static const int32_t starts[] = { 0, 65, 65, 261, 262, 390 },
                     few_starts[] = { 0, 1, 1, 90, 91, 219 };
/* On a GPU most blocks of queries and keys of these are empty, and there are more than run at once.
 */
static const int32_t many_starts[] = { 0,    5,    45,   46,   110,  110,  143,  213,  215,
                                       232,  361,  1161, 1164, 1167, 1257, 1268, 1333, 1333,
                                       1334, 1384, 1411, 1539, 1548, 1579, 1623 };
static const int32_t filled[] = { 1, 64, 200 }, rows_of_cache[] = { 3, 0, 3 };

static const struct form {
    const char *name;
    int64_t batch, queries, keys, kv_heads, width;
    bool own_slopes, gradients;
    int64_t window;
    double skip;
    const int32_t *cu_seqlens_q, *cu_seqlens_k;
    int64_t total_q, total_k;
    const int32_t *cache_seqlens, *cache_batch_idx;
    int64_t cache_batch;
} forms[] = {
    { "a batch", 2, 200, 200, 4, 64, .gradients = true },
    { "a skipping batch", 2, 300, 300, 2, 64, .own_slopes = true, .skip = 1e-3 },
    { "queries after a past", 2, 40, 140, 2, 128, .window = 0 },
    { "few queries, a window", 2, 3, 500, 2, 64, .window = 300 },
    { "slopes of their own", 3, 130, 130, 2, 64, .own_slopes = true, .gradients = true },
    { "slopes of their own, an odd width", 2, 70, 70, 4, 5, .own_slopes = true, .gradients = true },
    { "packed", 5, 196, 196, 2, 64, .gradients = true, .cu_seqlens_q = starts,
      .cu_seqlens_k = starts, .total_q = 390, .total_k = 390 },
    { "packed, wide heads, slopes of their own", 5, 300, 300, 4, 128, .own_slopes = true,
      .gradients = true, .cu_seqlens_q = starts, .cu_seqlens_k = starts, .total_q = 395,
      .total_k = 395 },
    { "packed, a window, an odd width", 5, 196, 196, 2, 7, .gradients = true, .window = 70,
      .cu_seqlens_q = starts, .cu_seqlens_k = starts, .total_q = 390, .total_k = 390 },
    { "packed, a window", 5, 196, 196, 1, 64, .gradients = true, .window = 70,
      .cu_seqlens_q = starts, .cu_seqlens_k = starts, .total_q = 390, .total_k = 390 },
    { "packed, queries after a past", 5, 196, 196, 2, 64, .cu_seqlens_q = few_starts,
      .cu_seqlens_k = starts, .total_q = 219, .total_k = 390 },
    { "many packed", 24, 800, 800, 2, 64, .own_slopes = true, .gradients = true,
      .cu_seqlens_q = many_starts, .cu_seqlens_k = many_starts, .total_q = 1623, .total_k = 1623 },
    { "packed, skipping", 5, 196, 196, 2, 64, .skip = 1e-6, .cu_seqlens_q = starts,
      .cu_seqlens_k = starts, .total_q = 390, .total_k = 390 },
    { "a cache", 3, 1, 200, 2, 64, .cache_seqlens = filled, .cache_batch = 3 },
    { "rows of a cache, slopes of their own", 3, 1, 200, 2, 128, .own_slopes = true,
      .cache_seqlens = filled, .cache_batch_idx = rows_of_cache, .cache_batch = 4 },
};

enum { Q_, K_, V_, DY_, SLOPES_, Y_, LSE_, DQ_, DK_, DV_, DSLOPES_, ARRAYS, INPUTS = Y_ };

static bool is_sums(int array)
{
    return array == SLOPES_ || array == LSE_ || array == DSLOPES_;
}

/* A call, and the arrays that it points to. */
struct problem {
    struct alibi_attend a;
    float *at[ARRAYS];
    int64_t count[ARRAYS];
};

static void point_to(struct alibi_attend *a, void *const at[ARRAYS])
{
    a->q.data = at[Q_];
    a->k.data = at[K_];
    a->v.data = at[V_];
    a->slopes = at[SLOPES_];
    a->y.data = at[Y_];
    a->lse = at[LSE_];
    a->dy.data = at[DY_];
    a->dq.data = at[DQ_];
    a->dk.data = at[DK_];
    a->dv.data = at[DV_];
    a->dslopes = at[DSLOPES_];
}

/* Numbers that bf16 has, so that it computes from the same ones. */
static struct problem problem_of(const struct form *f)
{
    int64_t queries = f->cu_seqlens_q ? f->total_q : f->batch * f->queries;
    int64_t keys = f->cu_seqlens_k    ? f->total_k
                   : f->cache_seqlens ? f->cache_batch * f->keys
                                      : f->batch * f->keys;
    struct problem p = { .a = { .batch = f->batch,
                                .queries = f->queries,
                                .keys = f->keys,
                                .heads = H,
                                .kv_heads = f->kv_heads,
                                .head_width = f->width,
                                .window = f->window,
                                .skip = f->skip,
                                .batch_slopes = f->own_slopes,
                                .cu_seqlens_q = f->cu_seqlens_q,
                                .cu_seqlens_k = f->cu_seqlens_k,
                                .total_q = f->total_q,
                                .total_k = f->total_k,
                                .cache_seqlens = f->cache_seqlens,
                                .cache_batch_idx = f->cache_batch_idx,
                                .cache_batch = f->cache_batch } };

    p.count[Q_] = p.count[DY_] = p.count[Y_] = p.count[DQ_] = queries * H * f->width;
    p.count[K_] = p.count[V_] = p.count[DK_] = p.count[DV_] = keys * f->kv_heads * f->width;
    p.count[LSE_] = queries * H;
    p.count[SLOPES_] = p.count[DSLOPES_] = (f->own_slopes ? f->batch : 1) * H;
    for (int n = 0; n < ARRAYS; n++) {
        p.at[n] = test_malloc((size_t)p.count[n] * sizeof *p.at[n]);
        for (int64_t i = 0; i < p.count[n]; i++)
            p.at[n][i] = n >= INPUTS ? 7.0f
                         : n == SLOPES_
                             ? exp2f(-1.0f - (float)(i % H)) * (1.0f + 0.25f * (float)(i / H))
                             : bf16_to_float(bf16_from_float(
                                   (float)random_normal(5, (uint64_t)n, (uint64_t)i)));
    }
    point_to(&p.a, (void *const *)p.at);
    return p;
}

static void free_problem(struct problem *p)
{
    for (int n = 0; n < ARRAYS; n++)
        test_free(p->at[n]);
}

static void compute(alibi_device *device, const struct alibi_attend *a, bool gradients)
{
    assert_ok(alibi_attend(device, a));
    if (gradients)
        assert_ok(alibi_attend_backward(device, a));
}

/* Sequence b as a batch of one, with results at their places in `to`, except lse. */
static struct alibi_attend alone(const struct problem *p, const struct problem *to, int64_t b,
                                 float *row_lse)
{
    struct alibi_attend a = to->a;
    int64_t q_row = H * a.head_width, k_row = a.kv_heads * a.head_width, q_at = b * a.queries,
            k_at = b * a.keys;

    a.batch = 1;
    if (a.cu_seqlens_q) {
        q_at = a.cu_seqlens_q[b];
        k_at = a.cu_seqlens_k[b];
        a.queries = a.cu_seqlens_q[b + 1] - q_at;
        a.keys = a.cu_seqlens_k[b + 1] - k_at;
    }
    if (a.cache_seqlens) {
        k_at = (a.cache_batch_idx ? a.cache_batch_idx[b] : b) * a.keys;
        a.keys = a.cache_seqlens[b];
    }
    a.q.data = p->at[Q_] + q_at * q_row;
    a.k.data = p->at[K_] + k_at * k_row;
    a.v.data = p->at[V_] + k_at * k_row;
    a.dy.data = p->at[DY_] + q_at * q_row;
    a.y.data = to->at[Y_] + q_at * q_row;
    a.dq.data = to->at[DQ_] + q_at * q_row;
    a.dk.data = to->at[DK_] + k_at * k_row;
    a.dv.data = to->at[DV_] + k_at * k_row;
    a.slopes = p->at[SLOPES_] + (a.batch_slopes ? b * H : 0);
    a.dslopes = to->at[DSLOPES_] + (a.batch_slopes ? b * H : 0);
    a.lse = row_lse;
    a.batch_slopes = false;
    a.cu_seqlens_q = a.cu_seqlens_k = a.cache_seqlens = a.cache_batch_idx = NULL;
    a.total_q = a.total_k = 0;
    return a;
}

static void assert_equal_lse(const struct problem *p, int64_t b, int64_t queries,
                             const float *row_lse)
{
    const bool packed = p->a.cu_seqlens_q != NULL;

    for (int64_t h = 0; h < H; h++) {
        const float *got = p->at[LSE_] + (packed ? h * p->a.total_q + p->a.cu_seqlens_q[b]
                                                 : (b * H + h) * p->a.queries);
        assert_memory_equal(got, row_lse + h * queries, (size_t)queries * sizeof *got);
    }
}

static void a_sequence_is_that_of_a_call_of_it_alone(void **state)
{
    static float row_lse[H * 800];
    (void)state;

    for (int n = 0; n < COUNT_OF(forms); n++) {
        struct problem p = problem_of(&forms[n]), one = problem_of(&forms[n]);
        double dslopes_alone[H] = { 0 };

        printf("%s\n", forms[n].name);
        compute(test_device(), &p.a, forms[n].gradients);
        for (int64_t b = 0; b < p.a.batch; b++) {
            struct alibi_attend a = alone(&p, &one, b, row_lse);
            if (a.queries == 0)
                continue;
            compute(test_device(), &a, forms[n].gradients);
            assert_equal_lse(&p, b, a.queries, row_lse);
            for (int h = 0; h < H; h++)
                dslopes_alone[h] += (double)a.dslopes[h];
        }
        for (int array = Y_; array < ARRAYS; array++)
            if (array != LSE_ && array != DSLOPES_)
                assert_memory_equal(p.at[array], one.at[array],
                                    (size_t)p.count[array] * sizeof(float));
        for (int64_t i = 0; forms[n].gradients && forms[n].own_slopes && i < p.count[DSLOPES_]; i++)
            if (!p.a.cu_seqlens_q ||
                p.a.cu_seqlens_q[i / H] < p.a.cu_seqlens_q[i / H + 1]) /* not of nothing */
                assert_true(p.at[DSLOPES_][i] == one.at[DSLOPES_][i]);
        for (int h = 0; forms[n].gradients && !forms[n].own_slopes && h < H; h++)
            assert_float_equal(p.at[DSLOPES_][h], (float)dslopes_alone[h], 2e-3);
        free_problem(&p);
        free_problem(&one);
    }
}

/* ---- on a GPU, if there is one: as on the CPU */

static void *on_gpu(struct device *dev, const void *from, int64_t count, enum dtype type)
{
    struct tensor t = tensor_1(NULL, type, count);

    assert_ok(dev->ops->buffer_new(dev, &t.data, (size_t)count * dtype_bytes(type), "a test"));
    if (from)
        assert_ok(dev->ops->upload(dev, t, from));
    return t.data;
}

/* Errors are relative to the largest number. */
static void assert_near(const float *got, const float *wanted, int64_t count, double limit,
                        const char *name, int array)
{
    double largest = 0, error = 0;

    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)wanted[i]));
        error = fmax(error, isfinite(got[i]) ? fabs((double)got[i] - (double)wanted[i]) : INFINITY);
    }
    printf("%-40s array %2d  error %.1e of %.1e\n", name, array, error, largest);
    assert_true(error <= limit * largest);
}

/* The call with everything in the GPU's memory; results as floats in got [ARRAYS]. */
static void compute_there(alibi_device *device, const struct problem *p, const struct form *f,
                          bool gives, float *const got[ARRAYS])
{
    struct device *dev = &device->device;
    struct alibi_attend a = p->a;
    void *at[ARRAYS], *memory[2] = { 0 };
    size_t bytes[2] = { 0 };
    const enum dtype type = device->type;

    for (int n = 0; n < ARRAYS; n++)
        at[n] = on_gpu(dev, p->at[n], p->count[n], is_sums(n) ? DTYPE_F32 : type);
    point_to(&a, at);
#define MOVE(member, count) a.member = a.member ? on_gpu(dev, a.member, count, DTYPE_I32) : NULL
    MOVE(cu_seqlens_q, a.batch + 1);
    MOVE(cu_seqlens_k, a.batch + 1);
    MOVE(cache_seqlens, a.batch);
    MOVE(cache_batch_idx, a.batch);
#undef MOVE
    assert_ok(dev->ops->finish(dev)); /* the default stream does not wait for the device's */
    for (int backward = 0; backward < (f->gradients ? 2 : 1); backward++) {
        if (gives) {
            assert_ok(alibi_attend_workspace(device, &a, backward, &bytes[backward]));
            memory[backward] = on_gpu(dev, NULL, (int64_t)bytes[backward] / 4 + 1, DTYPE_F32);
            a.workspace = memory[backward];
            a.workspace_bytes = bytes[backward] - 1;
            if (bytes[backward] > 0)
                assert_int_equal(backward ? alibi_attend_backward(device, &a)
                                          : alibi_attend(device, &a),
                                 ALIBI_USAGE);
            a.workspace_bytes = bytes[backward];
        }
        assert_ok(backward ? alibi_attend_backward(device, &a) : alibi_attend(device, &a));
    }
    /* The default stream is the caller's: a call without a workspace waits for it. */
    a.workspace = NULL;
    if (gives) {
        void *other = on_gpu(dev, NULL, p->count[Y_], type),
             *other_lse = on_gpu(dev, NULL, p->count[LSE_], DTYPE_F32);
        struct alibi_attend again = a;
        again.y.data = other;
        again.lse = other_lse;
        assert_ok(alibi_attend(device, &again));
    }
    for (int n = 0; n < ARRAYS; n++)
        assert_ok(dev->ops->download(dev, got[n],
                                     tensor_1(at[n], is_sums(n) ? DTYPE_F32 : type, p->count[n])));
    assert_true(!gives || f->cache_seqlens == NULL || bytes[0] > 0);
}

static void every_form_on_a_gpu_is_that_of_the_cpu(void **state)
{
    (void)state;
    for (int bf16 = first_type(); bf16 < 2; bf16++) {
        alibi_device *device = open_gpu(bf16 ? ALIBI_BF16 : ALIBI_FP32);

        if (device == NULL)
            skip_because("no GPU");
        for (int n = 0; n < COUNT_OF(forms); n++) {
            struct problem p = problem_of(&forms[n]), got = problem_of(&forms[n]),
                           given = problem_of(&forms[n]);

            compute_there(device, &p, &forms[n], false, got.at);
            compute_there(device, &p, &forms[n], true, given.at);
            compute(test_device(), &p.a, forms[n].gradients);
            for (int array = Y_; array < (forms[n].gradients ? ARRAYS : LSE_ + 1); array++) {
                assert_memory_equal(got.at[array], given.at[array],
                                    (size_t)p.count[array] * sizeof(float));
                assert_near(got.at[array], p.at[array], p.count[array],
                            bf16                ? 2e-2
                            : forms[n].skip > 0 ? 2e-3
                                                : 2e-5,
                            forms[n].name, array);
            }
            free_problem(&p);
            free_problem(&got);
            free_problem(&given);
        }
        alibi_device_free(device);
    }
}

/* Nothing outside the tensors is read or written, and the rest is not lost: compute-sanitizer finds
 * the contrary. */
static void wrong_lengths_on_a_gpu_stay_inside_the_tensors(void **state)
{
    static const int32_t wrong[] = { -5, 900, 3, 2000000000, -2000000000, 77 },
                         wrong_lengths[] = { -1, 0, 2000000000 }, wrong_rows[] = { -7, 4, 99999 };
    alibi_device *device = open_gpu(ALIBI_BF16);

    (void)state;
    if (device == NULL)
        skip_because("no GPU");
    for (int n = 0; n < COUNT_OF(forms); n++) {
        struct form f = forms[n];
        if (!f.cu_seqlens_q && !f.cache_seqlens)
            continue;
        f.batch = f.cu_seqlens_q ? COUNT_OF(wrong) - 1 : f.batch;
        f.cu_seqlens_q = f.cu_seqlens_q ? wrong : NULL;
        f.cu_seqlens_k = f.cu_seqlens_k ? wrong : NULL;
        f.cache_seqlens = f.cache_seqlens ? wrong_lengths : NULL;
        f.cache_batch_idx = f.cache_batch_idx ? wrong_rows : NULL;
        struct problem p = problem_of(&f), got = problem_of(&f);
        compute_there(device, &p, &f, true, got.at);
        free_problem(&p);
        free_problem(&got);
    }
    alibi_device_free(device);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    struct alibi_attend a = request(L, L);

    (void)state;
    a.kv_heads = 3;
    assert_int_equal(alibi_attend(test_device(), &a), ALIBI_USAGE);
    a = request(L, KEYS);
    assert_int_equal(alibi_attend_backward(test_device(), &a), ALIBI_USAGE);
    a = request(KEYS, L);
    assert_int_equal(alibi_attend(test_device(), &a), ALIBI_USAGE);
    a = request(0, L);
    assert_int_equal(alibi_attend(test_device(), &a), ALIBI_USAGE);
    a = request(L, INT64_MAX / 2);
    assert_int_equal(alibi_attend(test_device(), &a), ALIBI_MEMORY);
    a = request(L, L);
    a.skip = (double)NAN;
    assert_int_equal(alibi_attend(test_device(), &a), ALIBI_USAGE);
    a = request(L, L);
    a.v.data = NULL;
    assert_int_equal(alibi_attend(test_device(), &a), ALIBI_USAGE);
    a = request(L, L);
    assert_int_equal(alibi_attend_backward(test_device(), &a), ALIBI_USAGE);
}

static void assert_refused(struct form f)
{
    struct problem p = problem_of(&f);

    assert_int_equal(alibi_attend(test_device(), &p.a), ALIBI_USAGE);
    free_problem(&p);
}

static void wrong_lengths_are_refused(void **state)
{
    static const int32_t late[] = { 1, 2, 3 }, falling[] = { 0, 5, 4 }, long_one[] = { 0, 9, 12 },
                         good[] = { 0, 5, 11 }, fewer[] = { 0, 4, 11 };
    static const int32_t full[] = { 4, 5 }, none[] = { 1, 0 }, too_full[] = { 1, 6 },
                         outside[] = { 2, 3 }, before[] = { -1, 0 };
    const struct form packed = { "",
                                 2,
                                 8,
                                 8,
                                 2,
                                 4,
                                 .cu_seqlens_q = good,
                                 .cu_seqlens_k = good,
                                 .total_q = 11,
                                 .total_k = 11 },
                      cached = { "", 2, 1, 5, 2, 4, .cache_seqlens = full, .cache_batch = 3 };
    const int32_t *const wrong[] = { late, falling, long_one };
    struct form f;

    (void)state;
    for (int n = 0; n < COUNT_OF(wrong); n++) {
        f = packed;
        f.cu_seqlens_q = f.cu_seqlens_k = wrong[n];
        assert_refused(f);
    }
    f = packed;
    f.cu_seqlens_k = fewer; /* keys than queries */
    assert_refused(f);
    f.cu_seqlens_k = NULL;
    assert_refused(f);
    f = packed;
    f.total_k = 10;
    assert_refused(f);
    f = cached;
    f.cache_seqlens = none;
    assert_refused(f);
    f.cache_seqlens = too_full;
    assert_refused(f);
    f = cached;
    f.cache_batch_idx = outside;
    assert_refused(f);
    f.cache_batch_idx = before;
    assert_refused(f);
    f = cached;
    f.cache_batch = 1;
    assert_refused(f);
    f = cached;
    f.queries = 2;
    assert_refused(f);
}

static void the_cpu_needs_no_workspace(void **state)
{
    struct alibi_attend a = request(L, L);
    size_t bytes = 1;

    (void)state;
    assert_ok(alibi_attend_workspace(test_device(), &a, true, &bytes));
    assert_int_equal(bytes, 0);
    a = request(L, KEYS);
    assert_int_equal(alibi_attend_workspace(test_device(), &a, true, &bytes), ALIBI_USAGE);
}

static void an_allocation_that_fails_is_reported(void **state)
{
    struct alibi_attend a = request(L, L);
    size_t before = alibi_memory_now();
    int failures = 0;

    (void)state;
    for (int64_t n = 1;; n++) {
        alibi_status status;

        assert_ok(alibi_inject_fault("memory", n));
        status = alibi_attend(test_device(), &a);
        assert_ok(alibi_inject_fault("memory", 0));
        assert_int_equal(alibi_memory_now(), before);
        if (status == ALIBI_OK)
            break;
        assert_int_equal(status, ALIBI_MEMORY);
        failures++;
    }
    assert_true(failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_that_of_the_equation),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(rows_may_have_gaps),
        cmocka_unit_test(a_sequence_is_that_of_a_call_of_it_alone),
        cmocka_unit_test(every_form_on_a_gpu_is_that_of_the_cpu),
        cmocka_unit_test(wrong_lengths_on_a_gpu_stay_inside_the_tensors),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(wrong_lengths_are_refused),
        cmocka_unit_test(the_cpu_needs_no_workspace),
        cmocka_unit_test(an_allocation_that_fails_is_reported),
    };

    choose_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
