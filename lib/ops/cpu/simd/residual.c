/* residual.c
 *
 *   y = x + drop(branch),   drop(x)_i = x_i * (0 or 1/(1 - p))
 *
 * The masks are those of ops/dropout.h: element i uses word i % 4 of the Philox block i / 4 of
 * base/random.c. The generator is written out here over many blocks at once, in a loop that the
 * compiler turns into vectors; it takes 32-bit words r below p * 2^32 for dropped, which is r *
 * 2^-32 < p without rounding. */
#include <math.h>

#include "ops/cpu/simd/simd.h"

enum { PIECE = 4096, PHILOX_ROUNDS = 10 };

/* factor[0..4 blocks - 1] for the elements from 4 * first on. */
static void draw_factors(float *restrict factor, struct dropout drop, uint64_t first,
                         int64_t blocks)
{
    const uint32_t key0 = (uint32_t)drop.seed, key1 = (uint32_t)(drop.seed >> 32);
    const uint32_t stream0 = (uint32_t)drop.stream, stream1 = (uint32_t)(drop.stream >> 32);
    const uint32_t bound = (uint32_t)ceil(drop.p * 0x1p32);
    const float keep = (float)(1.0 / (1.0 - drop.p));

    for (int64_t b = 0; b < blocks; b++) {
        uint64_t index = first + (uint64_t)b;
        uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = stream0, c3 = stream1;
#pragma GCC unroll 10
        for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
            uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ (key0 + round * 0x9E3779B9u);
            c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ (key1 + round * 0xBB67AE85u);
            c3 = (uint32_t)p0;
        }
        factor[4 * b] = c0 < bound ? 0.0f : keep;
        factor[4 * b + 1] = c1 < bound ? 0.0f : keep;
        factor[4 * b + 2] = c2 < bound ? 0.0f : keep;
        factor[4 * b + 3] = c3 < bound ? 0.0f : keep;
    }
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
