/* Attention alone: equal to the equation in double precision, its gradients to finite differences,
 * and nothing leaks where an allocation fails. */
#include "check.h"

#include "base/base.h"
#include "device.h"
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

/* ---- on a GPU, if there is one: as on the CPU */

static struct tensor on_gpu(alibi_device *device, const float *from, int64_t count)
{
    struct tensor t = tensor_1(NULL, DTYPE_F32, count);

    assert_ok(device->device.ops->buffer_new(&device->device, &t.data, (size_t)count * sizeof *from,
                                             "a test"));
    assert_ok(device->device.ops->upload(&device->device, t, from));
    return t;
}

static void assert_near(alibi_device *device, struct tensor got, const float *wanted)
{
    float *numbers = test_malloc((size_t)got.shape[0] * sizeof *numbers);

    assert_ok(device->device.ops->download(&device->device, numbers, got));
    for (int64_t i = 0; i < got.shape[0]; i++)
        assert_float_equal(numbers[i], wanted[i], 1e-4);
    test_free(numbers);
}

static void a_gpu_computes_on_its_own_memory(void **state)
{
    enum { N_Q = B * L * H * D, N_K = B * L * KV * D, N_LSE = B * H * L };
    static float dy[N_Q], dq[N_Q], dk[N_K], dv[N_K], dslopes[H];
    struct alibi_attend a = request(L, L);
    alibi_device *device = open_gpu();

    (void)state;
    if (!device)
        skip_because("no GPU");
    for (int i = 0; i < N_Q; i++)
        dy[i] = (float)random_normal(5, 9, (uint64_t)i);
    a.dy.data = dy;
    a.dq.data = dq;
    a.dk.data = dk;
    a.dv.data = dv;
    a.dslopes = dslopes;
    assert_ok(alibi_attend(test_device(), &a));
    assert_ok(alibi_attend_backward(test_device(), &a));

    struct alibi_attend there = a;
    const struct {
        void **place;
        float *here;
        int64_t count;
    } all[] = {
        { &there.q.data, q, N_Q },
        { &there.k.data, k, N_K },
        { &there.v.data, v, N_K },
        { &there.dy.data, dy, N_Q },
        { &there.y.data, y, N_Q },
        { (void **)&there.lse, lse, N_LSE },
        { &there.dq.data, dq, N_Q },
        { &there.dk.data, dk, N_K },
        { &there.dv.data, dv, N_K },
        { (void **)&there.slopes, slopes, H },
        { (void **)&there.dslopes, dslopes, H },
    };
    struct tensor t[COUNT_OF(all)];
    for (int i = 0; i < COUNT_OF(all); i++) {
        t[i] = on_gpu(device, all[i].here, all[i].count);
        *all[i].place = t[i].data;
        if (i >= 4 && all[i].here != slopes) /* the results must be written */
            assert_ok(device->device.ops->fill(&device->device, t[i], 7));
    }
    assert_ok(alibi_attend(device, &there));
    assert_ok(alibi_attend_backward(device, &there));
    for (int i = 4; i < COUNT_OF(all); i++)
        assert_near(device, t[i], all[i].here);
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
        cmocka_unit_test(a_gpu_computes_on_its_own_memory),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(an_allocation_that_fails_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
