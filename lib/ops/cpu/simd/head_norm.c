/* head_norm.c - queries and keys by the root mean square of each head, then rotated
 *
 *   y = R(n * weight),     n = x * rstd,     rstd = 1 / sqrt(mean(x^2) + eps)
 *   dx = rstd * (g - n * mean(g * n)),     g = R^-1(dy) * weight,     dweight += R^-1(dy) * n
 *
 * Rows are cut into pieces by their number alone; each sums its own gradients of the weights, and
 * the pieces are added in order. Rotating is a pass of its own, over numbers that are in a cache if
 * there are few of them. */
#include <math.h>

#include "ops/cpu/simd/simd.h"
#include "ops/cpu/simd/vec.h"

enum { PIECES = 32, PIECE_MIN = 16 };

static float rstd_of(const float *x, int64_t D, float eps)
{
    vec sum = { 0 };

    for (int64_t d = 0; d < D; d += SIMD_WIDTH) {
        vec v = vec_load_some(x + d, D - d);
        sum += v * v;
    }
    return 1.0f / sqrtf(vec_sum(sum) / (float)D + eps);
}

alibi_status SIMD(head_norm_forward)(struct device *dev, const struct head_norm_args *a)
{
    int64_t L = a->x.shape[1], rows = a->x.shape[0] * L, H = a->x.shape[2], D = a->x.shape[3];

    if (a->x.type != DTYPE_F32)
        return ref_head_norm_forward(dev, a);
#pragma omp parallel for if (rows * H * D >= CPU_PARALLEL_MIN)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < H; h++) {
            const float *weight = h < a->queries ? a->q_weight.data : a->k_weight.data;
            const float *x = head_of(a->x, row / L, row % L, h);
            float *y = head_of(a->y, row / L, row % L, h), rstd = rstd_of(x, D, (float)a->eps);

            for (int64_t d = 0; d < D; d += SIMD_WIDTH)
                vec_store_some(
                    y + d, vec_load_some(x + d, D - d) * rstd * vec_load_some(weight + d, D - d),
                    D - d);
        }
    return a->rotation.table.data ? SIMD(rotary)(dev, a->y, a->rotation, 1) : ALIBI_OK;
}

/* One head; dweight [D] is added to. */
static void head_backward(float *dx, const float *dy, const float *x, const float *weight,
                          float *dweight, int64_t D, float eps)
{
    float rstd = rstd_of(x, D, eps), mean;
    vec sum = { 0 };

    for (int64_t d = 0; d < D; d += SIMD_WIDTH) {
        int64_t left = D - d;
        vec gn = vec_load_some(dy + d, left) * vec_load_some(x + d, left) * rstd;

        vec_store_some(dweight + d, vec_load_some(dweight + d, left) + gn, left);
        sum += gn * vec_load_some(weight + d, left);
    }
    mean = vec_sum(sum) / (float)D;
    for (int64_t d = 0; d < D; d += SIMD_WIDTH) {
        int64_t left = D - d;
        vec g = vec_load_some(dy + d, left) * vec_load_some(weight + d, left);

        vec_store_some(dx + d, rstd * (g - vec_load_some(x + d, left) * rstd * mean), left);
    }
}

alibi_status SIMD(head_norm_backward)(struct device *dev, const struct head_norm_args *a)
{
    int64_t L = a->x.shape[1], rows = a->x.shape[0] * L, H = a->x.shape[2], D = a->x.shape[3];
    int64_t wanted = (rows + PIECE_MIN - 1) / PIECE_MIN;
    int64_t pieces = wanted < PIECES ? wanted : PIECES;
    float *sums = NULL, *dq_weight = a->dq_weight.data, *dk_weight = a->dk_weight.data;
    struct tensor dy = a->dy;

    if (a->x.type != DTYPE_F32)
        return ref_head_norm_backward(dev, a);
    if (rows == 0)
        return ALIBI_OK;
    if (a->rotation.table.data) {
        if (a->dx.data != a->dy.data)
            TRY_RETURN(dev->ops->copy(dev, a->dx, a->dy));
        TRY_RETURN(SIMD(rotary)(dev, a->dx, a->rotation, -1));
        dy = a->dx;
    }
    TRY_RETURN(NEW_ZERO_ARRAY(&sums, pieces * 2 * D, "the gradients of a norm's weights"));
#pragma omp parallel for if (rows * H * D >= CPU_PARALLEL_MIN)
    for (int64_t p = 0; p < pieces; p++)
        for (int64_t row = p * rows / pieces; row < (p + 1) * rows / pieces; row++)
            for (int64_t h = 0; h < H; h++) {
                bool key = h >= a->queries;

                head_backward(head_of(a->dx, row / L, row % L, h), head_of(dy, row / L, row % L, h),
                              head_of(a->x, row / L, row % L, h),
                              key ? a->k_weight.data : a->q_weight.data, sums + (2 * p + key) * D,
                              D, (float)a->eps);
            }
    for (int64_t p = 0; p < pieces; p++)
        for (int64_t d = 0; d < D; d++) {
            dq_weight[d] += sums[2 * p * D + d];
            dk_weight[d] += sums[(2 * p + 1) * D + d];
        }
    mem_free(sums);
    return ALIBI_OK;
}
