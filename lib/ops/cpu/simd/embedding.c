/* embedding.c
 *
 *   y[b, l] = scale * weight[tokens[b, l]] + table[position]
 *
 * Backward, a token's row gets the sum over all its occurrences. A task owns some columns and adds
 * up the rows in order, so no two tasks write to the same number and the order of the sum is that
 * of the text. */
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

alibi_status SIMD(embedding_forward)(struct device *dev, const struct embedding_args *a)
{
    int64_t rows = a->y.shape[0] * a->y.shape[1], L = a->y.shape[1], C = a->y.shape[2];
    const int32_t *token = a->tokens.data;
    const float *weight = a->weight.data, *table = a->table.data;
    float *y = a->y.data;

    if (a->y.type != DTYPE_F32)
        return ref_embedding_forward(dev, a);
#pragma omp parallel for if (rows * C >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        scale_row(y + r * C, weight + token[r] * C, (float)a->scale, C);
        if (table)
            add_scaled(y + r * C, table + position_of(a->ragged, a->start, r / L, r % L) * C, 1.0f,
                       C);
    }
    return ALIBI_OK;
}

alibi_status SIMD(embedding_backward)(struct device *dev, const struct embedding_args *a)
{
    int64_t rows = a->dy.shape[0] * a->dy.shape[1], L = a->dy.shape[1], C = a->dy.shape[2];
    const int32_t *token = a->tokens.data;
    const float *dy = a->dy.data;
    float *dweight = a->dweight.data, *dtable = a->dtable.data;

    if (a->dy.type != DTYPE_F32)
        return ref_embedding_backward(dev, a);
#pragma omp parallel for if (rows * C >= CPU_PARALLEL_MIN)
    for (int64_t c = 0; c < C; c += COLUMNS) {
        int64_t width = C - c < COLUMNS ? C - c : COLUMNS;
        for (int64_t r = 0; r < rows; r++) {
            if (dweight)
                add_scaled(dweight + token[r] * C + c, dy + r * C + c, (float)a->scale, width);
            if (dtable)
                add_scaled(dtable + (a->start + r % L) * C + c, dy + r * C + c, 1.0f, width);
        }
    }
    return ALIBI_OK;
}
