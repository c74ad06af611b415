/* logn.c
 *
 *   y = factor[h] ln(max(n, 2)) x,      dx = factor[h] ln(max(n, 2)) dy
 *   dfactor[h] += sum ln(max(n, 2)) dy . x
 *
 * or y = (1 + temperature ln(max(1, n / length))) x.
 *
 * Plain loops, which the compiler vectorises. The dot product has 16 sums side by side, added in a
 * fixed order; a head is summed by one thread over all rows, in double. A thread takes several
 * heads at once: they share the logarithm of a row, and are next to each other in memory. */
#include <math.h>
#include <omp.h>

#include "ops/cpu/simd/simd.h"

enum { HEADS = 16 }; /* that a thread takes at once, at most */

/* max(n, 2) */
static double keys(const struct logn_args *a, int64_t row)
{
    int64_t L = a->x.shape[1], position = position_of(a->ragged, a->start, row / L, row % L);

    return (double)logn_keys(position, a->window);
}

/* The factor that all heads of a row share. */
static float row_factor(const struct logn_args *a, int64_t row)
{
    if (a->factor.data)
        return (float)log(keys(a, row));
    return (float)(1.0 + a->temperature * log(fmax(1.0, keys(a, row) / (double)a->length)));
}

alibi_status SIMD(logn_forward)(struct device *dev, const struct logn_args *a)
{
    int64_t L = a->x.shape[1], rows = a->x.shape[0] * L, H = a->x.shape[2], D = a->x.shape[3];
    const float *factor = a->factor.data;

    if (a->x.type != DTYPE_F32)
        return ref_logn_forward(dev, a);
#pragma omp parallel for if (rows * H * D >= CPU_PARALLEL_MIN)
    for (int64_t row = 0; row < rows; row++) {
        float all = row_factor(a, row);

        for (int64_t h = 0; h < H; h++) {
            const float *x = head_of(a->x, row / L, row % L, h);
            float *y = head_of(a->y, row / L, row % L, h), times = factor ? factor[h] * all : all;

            for (int64_t d = 0; d < D; d++)
                y[d] = times * x[d];
        }
    }
    return ALIBI_OK;
}

/* dx = times * dy; the sum of dy * x. */
static float head_backward(float *dx, const float *dy, const float *x, float times, int64_t D)
{
    enum { SUMS = 16 };
    float sums[SUMS] = { 0 }, sum = 0.0f;
    int64_t d = 0;

    for (; d + SUMS <= D; d += SUMS)
        for (int64_t i = 0; i < SUMS; i++) {
            float g = dy[d + i];
            sums[i] += g * x[d + i];
            dx[d + i] = times * g;
        }
    for (; d < D; d++) {
        float g = dy[d];
        sum += g * x[d];
        dx[d] = times * g;
    }
    for (int64_t i = 0; i < SUMS; i++)
        sum += sums[i];
    return sum;
}

/* Heads from..to - 1. */
static void heads_backward(const struct logn_args *a, int64_t from, int64_t to)
{
    int64_t L = a->x.shape[1], rows = a->x.shape[0] * L;
    const float *factor = a->factor.data;
    double sums[HEADS] = { 0 };

    for (int64_t row = 0; row < rows; row++) {
        float ln = row_factor(a, row);

        for (int64_t h = from; h < to; h++)
            sums[h - from] +=
                (double)ln * (double)head_backward(head_of(a->dx, row / L, row % L, h),
                                                   head_of(a->dy, row / L, row % L, h),
                                                   head_of(a->x, row / L, row % L, h),
                                                   factor[h] * ln, a->x.shape[3]);
    }
    for (int64_t h = from; h < to; h++)
        ((float *)a->dfactor.data)[h] += (float)sums[h - from];
}

alibi_status SIMD(logn_backward)(struct device *dev, const struct logn_args *a)
{
    int64_t H = a->x.shape[2], threads = omp_get_max_threads();
    int64_t share = 1 + (H - 1) / threads, each = share < HEADS ? share : HEADS;

    if (a->x.type != DTYPE_F32)
        return ref_logn_backward(dev, a);
#pragma omp parallel for if (tensor_count(a->x) >= CPU_PARALLEL_MIN)
    for (int64_t h = 0; h < H; h += each)
        heads_backward(a, h, h + each < H ? h + each : H);
    return ALIBI_OK;
}
