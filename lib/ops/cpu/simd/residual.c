/* residual.c
 *
 *   y = x + drop(branch),   drop(x)_i = x_i * (0 or 1/(1 - p)) */
#include "ops/cpu/simd/mask.h"

enum { PIECE = 4096 };

/* factor[0..4 blocks - 1] for the elements from 4 * first on. */
static void draw_factors(float *restrict factor, struct dropout drop, uint64_t first,
                         int64_t blocks)
{
    const struct mask mask = mask_of(drop);

    for (int64_t b = 0; b < blocks; b++)
        mask_block(factor + 4 * b, mask, first + (uint64_t)b);
}

/* y = x + factor * branch; y may be x. */
static void add_branch(float *y, const float *x, const float *branch, const float *factor,
                       int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + factor[i] * branch[i];
}

static void scale(float *y, const float *x, const float *factor, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = factor[i] * x[i];
}

/* Elements first..first + n - 1, n <= PIECE, of y = x + drop(branch), or of y = drop(branch)
 * without x. */
static void run_piece(float *y, const float *x, const float *branch, struct dropout drop,
                      int64_t first, int64_t n)
{
    float room[PIECE + 8],
        *factor = room + first % 4; /* a piece may begin and end within a block */

    if (drop.p > 0.0)
        draw_factors(room, drop, (uint64_t)first / 4, (first % 4 + n + 3) / 4);
    else
        for (int64_t i = 0; i < n; i++)
            factor[i] = 1.0f;
    if (x)
        add_branch(y + first, x + first, branch + first, factor, n);
    else
        scale(y + first, branch + first, factor, n);
}

void SIMD(residual_range)(float *y, const float *x, const float *branch, struct dropout drop,
                          int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i += PIECE)
        run_piece(y, x, branch, drop, first + i, n - i < PIECE ? n - i : PIECE);
}

static void run(float *y, const float *x, const float *branch, struct dropout drop, int64_t count)
{
#pragma omp parallel for if (count >= CPU_PARALLEL_MIN)
    for (int64_t i = 0; i < count; i += PIECE)
        run_piece(y, x, branch, drop, i, count - i < PIECE ? count - i : PIECE);
}

alibi_status SIMD(residual_forward)(struct device *dev, struct tensor y, struct tensor x,
                                    struct tensor branch, struct dropout drop)
{
    if (y.type != DTYPE_F32)
        return ref_residual_forward(dev, y, x, branch, drop);
    run(y.data, x.data, branch.data, drop, tensor_count(y));
    return ALIBI_OK;
}

alibi_status SIMD(dropout)(struct device *dev, struct tensor y, struct tensor x,
                           struct dropout drop)
{
    if (y.type != DTYPE_F32)
        return ref_dropout(dev, y, x, drop);
    run(y.data, NULL, x.data, drop, tensor_count(y));
    return ALIBI_OK;
}
