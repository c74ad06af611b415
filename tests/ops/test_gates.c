/* Sums of gates stay exact over a long text, on every device. */
#include <math.h>

#include "check.h"
#include "ops/ops.h"

enum { LENGTH = 1000000, CHUNK = 4096, STEPS = 200, LAST = 96, D = 16, SEED = 3 };

static struct device ref_device = { .ops = &ops_ref }, cpu_device;
static alibi_device *gpu;

static struct tensor upload(struct device *dev, struct tensor t, const void *numbers)
{
    assert_ok(
        dev->ops->buffer_new(dev, &t.data, (size_t)tensor_count(t) * dtype_bytes(t.type), "test"));
    if (numbers)
        assert_ok(dev->ops->upload(dev, t, numbers));
    return t;
}

/* Positions from..from+count-1: as a chunk, or as the step of a ragged batch of one. */
static void extend(struct device *dev, struct tensor c, struct tensor bias, const float *z,
                   int64_t from, int64_t count, bool step)
{
    int32_t slot = 0, length = (int32_t)(from + 1);
    struct gate_args a = { .c = c, .bias = bias, .ragged = ragged_none() };

    a.z = upload(dev, tensor_2(NULL, DTYPE_F32, count, 1), z + from);
    a.c.shape[3] = from + count;
    if (step)
        a.ragged = (struct ragged){ upload(dev, tensor_1(NULL, DTYPE_I32, 1), &slot),
                                    upload(dev, tensor_1(NULL, DTYPE_I32, 1), &length) };
    assert_ok(dev->ops->gate_forward(dev, &a));
    dev->ops->buffer_free(dev, a.z.data);
    dev->ops->buffer_free(dev, a.ragged.slot.data);
    dev->ops->buffer_free(dev, a.ragged.length.data);
}

/* lse of the last key's query over the last LAST keys. */
static float attend(struct device *dev, struct tensor c, int64_t length)
{
    float q[D], k[LAST * D], lse;
    struct attention_args a = { .bias = { BIAS_GATE, c }, .scale = 0.25 };

    for (int i = 0; i < D; i++)
        q[i] = (float)random_normal(SEED, 2, (uint64_t)i);
    for (int i = 0; i < LAST * D; i++)
        k[i] = (float)random_normal(SEED, 3, (uint64_t)i);
    a.bias.values.data = tensor_at(c, length - LAST);
    a.bias.values.shape[3] = LAST;
    a.q = upload(dev, tensor_4(NULL, DTYPE_F32, 1, 1, 1, D), q);
    a.k = a.v = upload(dev, tensor_4(NULL, DTYPE_F32, 1, LAST, 1, D), k);
    a.y = upload(dev, tensor_4(NULL, DTYPE_F32, 1, 1, 1, D), NULL);
    a.lse = upload(dev, tensor_3(NULL, DTYPE_F32, 1, 1, 1), NULL);
    assert_ok(dev->ops->attention_forward(dev, &a));
    assert_ok(dev->ops->download(dev, &lse, a.lse));
    for (int i = 0; i < 4; i++)
        dev->ops->buffer_free(dev, ((struct tensor[]){ a.q, a.k, a.y, a.lse })[i].data);
    return lse;
}

static void check(struct device *dev)
{
    const float b = -0.5f;
    static float z[LENGTH], got[2][LENGTH];
    static double exact[LENGTH];
    struct tensor c = upload(dev, tensor_4(NULL, DTYPE_F32, 2, 1, 1, LENGTH), NULL);
    struct tensor bias = upload(dev, tensor_1(NULL, DTYPE_F32, 1), &b);
    double sum = 0.0, worst = 0.0;
    int64_t at = 0;
    float far, near;

    for (int64_t l = 0; l < LENGTH; l++) {
        z[l] = (float)(2.0 * random_normal(SEED, 1, (uint64_t)l));
        sum -= log1p(exp(-(double)z[l] - (double)b));
        exact[l] = sum;
    }
    for (; at < LENGTH - STEPS; at += CHUNK < LENGTH - STEPS - at ? CHUNK : LENGTH - STEPS - at)
        extend(dev, c, bias, z, at, CHUNK < LENGTH - STEPS - at ? CHUNK : LENGTH - STEPS - at,
               false);
    for (; at < LENGTH; at++)
        extend(dev, c, bias, z, at, 1, true);
    assert_ok(dev->ops->download(dev, got, c));
    for (int64_t l = 0; l < LENGTH; l += 1 + l / 7) /* back from the end, at all distances */
        worst = fmax(worst, fabs((double)got[0][LENGTH - 1] - (double)got[0][LENGTH - 1 - l] +
                                 (double)got[1][LENGTH - 1] - (double)got[1][LENGTH - 1 - l] -
                                 (exact[LENGTH - 1] - exact[LENGTH - 1 - l])) /
                                fmax(1.0, exact[LENGTH - 1 - l] - exact[LENGTH - 1]));
    far = attend(dev, c, LENGTH);
    extend(dev, c, bias, z + LENGTH - LAST, 0, LAST, false); /* the last keys, as if the first */
    near = attend(dev, c, LAST);
    printf("%s: c = %.0f after %d gates, differences off by %.1e of themselves; lse off by %.1e\n",
           dev->ops->name, exact[LENGTH - 1], LENGTH, worst, fabs((double)far - (double)near));
    assert_true(exact[LENGTH - 1] < -1e6);
    assert_true(worst < 1e-6);
    assert_true(fabs((double)far - (double)near) < 1e-6);
    dev->ops->buffer_free(dev, c.data);
    dev->ops->buffer_free(dev, bias.data);
}

static void a_million_gates_are_as_exact_as_the_first(void **state)
{
    const struct alibi_compute compute = { .device = ALIBI_DEVICE_CUDA, .precision = ALIBI_FP32 };

    (void)state;
    cpu_device.ops = ops_cpu();
    check(&ref_device);
    check(&cpu_device);
    if (alibi_device_open(&gpu, &compute, NULL) == ALIBI_OK)
        check(&gpu->device);
    alibi_device_free(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_gates_are_as_exact_as_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
