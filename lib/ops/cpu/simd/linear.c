/* linear.c - products of few rows, as decoding has them
 *
 *   y[r, o] = sum over i of x[r, i] weight[o, i] + bias[o]
 *
 * CBLAS picks its order of sums by the number of rows, so a sequence would get other bits alone
 * than in a batch. Here every y[r, o] is the same dot product whatever else is computed: lane l
 * sums the i with i % SIMD_WIDTH = l in order, then the lanes are added in vec_sum()'s order.
 *
 * A task owns some outputs, whose weights are read from memory once, stay in the first-level cache,
 * and meet all rows, BLOCK_ROWS at a time. A block of sums is held in registers; per step it takes
 * BLOCK_OUTS + BLOCK_ROWS loads for BLOCK_OUTS * BLOCK_ROWS multiply-adds. A full block has whole
 * vectors of sums, so vec_sums() adds the lanes of SIMD_WIDTH of them at once. A single row is
 * bound by memory, 32 rows by arithmetic: each block prefetches weights of the next task, so that
 * the two overlap.
 *
 * On one core of an AMD EPYC with AVX-512, 32 rows: 52 G multiply-adds per second on weights in the
 * cache, about 0.9 of what the core can do, and 40 to 46 on weights in memory. */
#include "ops/cpu/simd/simd.h"
#include "ops/cpu/simd/vec.h"

enum { BLOCK_OUTS = 4, BLOCK_ROWS = SIMD_WIDTH == 16 ? 4 : 2 };

/* A task's weights fill about a third of the first-level cache; the rest is for x and for the
 * weights that are on their way. */
enum { TASK_FLOATS = 12 * 1024 / sizeof(float) };

/* y[r..r+rows-1, o..o+outs-1], while weights `ahead` outputs further on are fetched. `rows` and
 * `outs` are constants where this is inlined, so that the loops over them unroll. */
VEC_INLINE void block(const struct linear_args *a, int64_t r, int64_t o, int64_t ahead,
                      const int rows, const int outs)
{
    const bool whole = rows * outs % SIMD_WIDTH == 0;
    int64_t in = a->weight.shape[1], out = a->weight.shape[0], i = 0;
    const float *x = (const float *)a->x.data + r * in, *bias = a->bias.data;
    const float *weight = (const float *)a->weight.data + o * in;
    const float *next = weight + (ahead + r / BLOCK_ROWS % outs) * in;
    float *y = (float *)a->y.data + r * out + o, sums[BLOCK_ROWS * BLOCK_OUTS];
    vec sum[BLOCK_ROWS * BLOCK_OUTS] = { 0 }, w[BLOCK_OUTS];

    for (; i + SIMD_WIDTH <= in; i += SIMD_WIDTH) {
        for (int n = 0; n < outs; n++)
            w[n] = vec_load(weight + n * in + i);
        __builtin_prefetch(next + i);
        for (int m = 0; m < rows; m++)
            for (int n = 0; n < outs; n++)
                sum[m * outs + n] += vec_load(x + m * in + i) * w[n];
    }
    if (i < in) {
        for (int n = 0; n < outs; n++)
            w[n] = vec_load_end(weight + n * in + i, in - i);
        for (int m = 0; m < rows; m++) {
            vec end = vec_load_end(x + m * in + i, in - i);
            for (int n = 0; n < outs; n++)
                sum[m * outs + n] += end * w[n];
        }
    }
    for (int n = 0; whole && n < rows * outs; n += SIMD_WIDTH)
        vec_store(sums + n, vec_sums(sum + n));
    for (int m = 0; m < rows; m++)
        for (int n = 0; n < outs; n++)
            y[m * out + n] = (whole ? sums[m * outs + n] : vec_sum(sum[m * outs + n])) +
                             (bias ? bias[o + n] : 0.0f);
}

/* Outputs from..to-1 of all rows. */
static void task(const struct linear_args *a, int64_t from, int64_t to)
{
    int64_t rows = a->x.shape[0], ahead = to - from, some, o;

    for (int64_t r = 0; r < rows; r += some) {
        some = rows - r >= BLOCK_ROWS ? BLOCK_ROWS : rows - r >= 2 ? 2 : 1;
        for (o = from; o + BLOCK_OUTS <= to; o += BLOCK_OUTS)
            if (some == BLOCK_ROWS)
                block(a, r, o, ahead, BLOCK_ROWS, BLOCK_OUTS);
            else if (some == 2)
                block(a, r, o, ahead, 2, BLOCK_OUTS);
            else
                block(a, r, o, ahead, 1, BLOCK_OUTS);
        for (; o < to; o++)
            for (int64_t m = r; m < r + some; m++)
                block(a, m, o, 0, 1, 1);
    }
}

alibi_status SIMD(linear_forward)(struct device *dev, const struct linear_args *a)
{
    int64_t out = a->weight.shape[0], in = a->weight.shape[1];
    int64_t blocks = TASK_FLOATS / (BLOCK_OUTS * (in > 0 ? in : 1));
    int64_t outs = blocks > 1 ? blocks * BLOCK_OUTS : BLOCK_OUTS;

    if (!a->decoding || a->y.type != DTYPE_F32)
        return cpu_linear_forward(dev, a);
    TRY_RETURN(norm_before(dev, a->norm));
#pragma omp parallel for schedule(static) if (a->x.shape[0] * out * in >= CPU_PARALLEL_MIN)
    for (int64_t o = 0; o < out; o += outs)
        task(a, o, o + outs < out ? o + outs : out);
    return ALIBI_OK;
}
