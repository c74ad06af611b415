/* embedding.c
 *
 *   y[b, l] = scale * weight[tokens[b, l]] + table[start + l]
 *
 * Backward, a token's row gets the sum over all places where it stands. A task owns some columns
 * and adds them up place by place, so no two tasks write to the same number and the order of the
 * sum is that of the text. */
#include "ops/cpu/simd/simd.h"

enum { COLUMNS = 64 };

static void scale_row(float *restrict y, const float *restrict weight, float scale, int64_t C)
{
    for (int64_t c = 0; c < C; c++)
        y[c] = scale * weight[c];
}

static void add_scaled(float *restrict sum, const float *restrict x, float scale, int64_t C)
{
    for (int64_t c = 0; c < C; c++)
        sum[c] += scale * x[c];
}

alibi_status SIMD(embedding_forward)(struct device *dev, struct tensor y, struct tensor tokens,
                                     struct tensor weight, struct tensor table, int64_t start,
                                     double scale)
{
    int64_t rows = y.shape[0] * y.shape[1], L = y.shape[1], C = y.shape[2];
    const int32_t *token = tokens.data;
    const float *from = weight.data, *positions = table.data;
    float *out = y.data;

    if (y.type != DTYPE_F32)
        return ref_embedding_forward(dev, y, tokens, weight, table, start, scale);
#pragma omp parallel for if (rows * C >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        scale_row(out + r * C, from + token[r] * C, (float)scale, C);
        if (positions)
            add_scaled(out + r * C, positions + (start + r % L) * C, 1.0f, C);
    }
    return ALIBI_OK;
}

alibi_status SIMD(embedding_backward)(struct device *dev, struct tensor dweight,
                                      struct tensor dtable, struct tensor dy, struct tensor tokens,
                                      int64_t start, double scale)
{
    int64_t rows = dy.shape[0] * dy.shape[1], L = dy.shape[1], C = dy.shape[2];
    const int32_t *token = tokens.data;
    const float *in = dy.data;
    float *weight = dweight.data, *positions = dtable.data;

    if (dy.type != DTYPE_F32)
        return ref_embedding_backward(dev, dweight, dtable, dy, tokens, start, scale);
#pragma omp parallel for if (rows * C >= CPU_PARALLEL_MIN)
    for (int64_t c = 0; c < C; c += COLUMNS) {
        int64_t width = C - c < COLUMNS ? C - c : COLUMNS;
        for (int64_t r = 0; r < rows; r++) {
            add_scaled(weight + token[r] * C + c, in + r * C + c, (float)scale, width);
            if (positions)
                add_scaled(positions + (start + r % L) * C + c, in + r * C + c, 1.0f, width);
        }
    }
    return ALIBI_OK;
}
