/* Attention alone: equal to the equation in double precision, its gradients to finite differences,
 * and nothing leaks where an allocation fails. */
#include "check.h"

#include "base/base.h"
#include "device.h"

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
                                  .q = q,
                                  .k = k,
                                  .v = v };
}

/* y[b, i, h, d] by the equation of alibi.h. */
static double exact(const struct alibi_attend *a, int64_t b, int64_t i, int64_t h, int64_t d)
{
    int64_t p = a->keys - a->queries + i, kv = h / (a->heads / a->kv_heads);
    double sum = 0, weighted = 0;

    for (int64_t j = a->window && p >= a->window ? p - a->window + 1 : 0; j <= p; j++) {
        const float *key = a->k + ((b * a->keys + j) * a->kv_heads + kv) * D;
        double score = 0, weight;

        for (int64_t n = 0; n < D; n++)
            score += (double)a->q[((b * a->queries + i) * a->heads + h) * D + n] * (double)key[n];
        score *= a->scale != 0 ? a->scale : 1 / sqrt(D);
        weight = exp(score - (a->slopes ? (double)a->slopes[h] * (double)(p - j) : 0));
        sum += weight;
        weighted += weight * (double)a->v[((b * a->keys + j) * a->kv_heads + kv) * D + d];
    }
    return weighted / sum;
}

static void assert_exact(const struct alibi_attend *a, double skip, double limit)
{
    const struct alibi_call call = { .skip = skip };

    assert_ok(alibi_attend(test_device(), a, y, lse, &call));
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
    assert_exact(&a, 0, 1e-5);
    assert_exact(&a, 1e-6, 1e-4);
    a.window = 9;
    assert_exact(&a, 0, 1e-5);
    a.slopes = NULL;
    a.window = 0;
    a.scale = 0.7;
    assert_exact(&a, 0, 1e-5);
    a = request(L, KEYS);
    assert_exact(&a, 0, 1e-5);
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
    assert_ok(alibi_attend(test_device(), &a, y, lse, NULL));
    assert_ok(alibi_attend_backward(test_device(), &a, y, lse, dy, dq, dk, dv, dslopes));
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

static void sizes_that_do_not_fit_are_refused(void **state)
{
    struct alibi_attend a = request(L, L);

    (void)state;
    a.kv_heads = 3;
    assert_int_equal(alibi_attend(test_device(), &a, y, NULL, NULL), ALIBI_USAGE);
    a = request(L, KEYS);
    assert_int_equal(alibi_attend_backward(test_device(), &a, y, lse, y, y, y, y, NULL),
                     ALIBI_USAGE);
    a = request(KEYS, L);
    assert_int_equal(alibi_attend(test_device(), &a, y, NULL, NULL), ALIBI_USAGE);
    a = request(0, L);
    assert_int_equal(alibi_attend(test_device(), &a, y, NULL, NULL), ALIBI_USAGE);
    a = request(L, INT64_MAX / 2);
    assert_int_equal(alibi_attend(test_device(), &a, y, NULL, NULL), ALIBI_MEMORY);
    a = request(L, L);
    assert_int_equal(
        alibi_attend(test_device(), &a, y, NULL, &(struct alibi_call){ .skip = (double)NAN }),
        ALIBI_USAGE);
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
        status = alibi_attend(test_device(), &a, y, lse, NULL);
        assert_ok(alibi_inject_fault("memory", 0));
        assert_int_equal(alibi_memory_now(), before);
        if (status == ALIBI_OK)
            break;
        assert_int_equal(status, ALIBI_MEMORY);
        failures++;
    }
    assert_true(failures >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_that_of_the_equation),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(an_allocation_that_fails_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
