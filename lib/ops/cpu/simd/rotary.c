/* rotary.c
 *
 *   (a, b) <- (a cos t - b sin t, a sin t + b cos t)
 *
 * Plain loops: the compiler vectorises both layouts. The backward rotation has sin(-t) = -sin t. */
#include "ops/cpu/simd/simd.h"

/* a = x[n], b = x[n + half] */
static void rotate_halves(float *x, const float *restrict cosine, const float *restrict sine,
                          float sign, int64_t half)
{
    float *restrict first = x, *restrict second = x + half;

    for (int64_t n = 0; n < half; n++) {
        float a = first[n], b = second[n], s = sign * sine[n];
        first[n] = a * cosine[n] - b * s;
        second[n] = a * s + b * cosine[n];
    }
}

/* a = x[2n], b = x[2n + 1] */
static void rotate_pairs(float *restrict x, const float *restrict cosine,
                         const float *restrict sine, float sign, int64_t half)
{
    for (int64_t n = 0; n < half; n++) {
        float a = x[2 * n], b = x[2 * n + 1], s = sign * sine[n];
        x[2 * n] = a * cosine[n] - b * s;
        x[2 * n + 1] = a * s + b * cosine[n];
    }
}

alibi_status SIMD(rotary)(struct device *dev, struct tensor x, struct rotation r, int direction)
{
    int64_t L = x.shape[1], rows = x.shape[0] * L, H = x.shape[2], D = x.shape[3], half = D / 2;
    const float *angles = r.table.data;
    float *data = x.data, sign = direction < 0 ? -1.0f : 1.0f;

    if (x.type != DTYPE_F32)
        return ref_rotary(dev, x, r, direction);
#pragma omp parallel for if (rows * H * D >= CPU_PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        float *row = data + i / L * x.stride[0] + i % L * x.stride[1];
        const float *cosine = angles + i % L * D;
        const float *sine = cosine + half;
        for (int64_t h = 0; h < H; h++)
            if (r.layout == ALIBI_ROTARY_HALVES)
                rotate_halves(row + h * D, cosine, sine, sign, half);
            else
                rotate_pairs(row + h * D, cosine, sine, sign, half);
    }
    return ALIBI_OK;
}
