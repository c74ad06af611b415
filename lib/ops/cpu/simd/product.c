/* product.c
 *
 * A block of c of BLOCK_ROWS rows and BLOCK_VECS vectors is held in registers through the whole
 * depth: per step it takes BLOCK_VECS loads of b and BLOCK_ROWS broadcasts of a for BLOCK_ROWS *
 * BLOCK_VECS multiply-adds. The block sizes fill the 32 registers of AVX-512, or the 16 of the
 * others, and leave room for the row of b. */
#include "ops/cpu/simd/product.h"
#include "ops/cpu/simd/vec.h"

#if SIMD_WIDTH == 16
enum { BLOCK_ROWS = 6, BLOCK_VECS = 4 };
#else
enum { BLOCK_ROWS = 6, BLOCK_VECS = 2 };
#endif

/* The block of `rows` x `vecs` at row m, column n. Both are constants where this is inlined, so the
 * loops over them unroll. */
VEC_INLINE void block(const struct product *p, int64_t m, int64_t n, const int rows, const int vecs)
{
    const float *a = p->a + m * p->a_row, *b = p->b + n;
    int64_t a_row = p->a_row, a_column = p->a_column, b_row = p->b_row;
    vec sum[BLOCK_ROWS][BLOCK_VECS] = { 0 };

    for (int64_t k = p->depth; k > 0; k--, a += a_column, b += b_row)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vecs; v++)
                sum[r][v] += a[r * a_row] * vec_load(b + v * SIMD_WIDTH);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) {
            const float *start = p->start + (m + r) * p->start_row + n + v * SIMD_WIDTH;
            vec_store(p->c + (m + r) * p->c_row + n + v * SIMD_WIDTH, sum[r][v] + vec_load(start));
        }
}

/* Picks the constants: the remainders at the right and at the bottom are smaller blocks. */
VEC_INLINE void block_of_rows(const struct product *p, int64_t m, int64_t n, int64_t rows,
                              const int vecs)
{
    switch (rows) {
    case 1:
        block(p, m, n, 1, vecs);
        break;
    case 2:
        block(p, m, n, 2, vecs);
        break;
    case 3:
        block(p, m, n, 3, vecs);
        break;
    case 4:
        block(p, m, n, 4, vecs);
        break;
    case 5:
        block(p, m, n, 5, vecs);
        break;
    default:
        block(p, m, n, BLOCK_ROWS, vecs);
    }
}

static void any_block(const struct product *p, int64_t m, int64_t n, int64_t rows, int64_t vecs)
{
    if (vecs == 1)
        block_of_rows(p, m, n, rows, 1);
    else if (BLOCK_VECS > 2 && vecs == 3)
        block_of_rows(p, m, n, rows, 3);
    else if (BLOCK_VECS > 2 && vecs == 4)
        block_of_rows(p, m, n, rows, BLOCK_VECS);
    else
        block_of_rows(p, m, n, rows, 2);
}

static int64_t at_most(int64_t x, int64_t limit)
{
    return x < limit ? x : limit;
}

/* Rows outside: the few rows of a stay in the first-level cache while b passes. */
void multiply(const struct product *p)
{
    int64_t vecs = p->columns / SIMD_WIDTH;

    for (int64_t m = 0; m < p->rows; m += BLOCK_ROWS) {
        int64_t rows = at_most(p->rows - m, BLOCK_ROWS);
        for (int64_t v = 0; v < vecs; v += BLOCK_VECS)
            any_block(p, m, v * SIMD_WIDTH, rows, at_most(vecs - v, BLOCK_VECS));
    }
}
