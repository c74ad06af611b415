/* product.h - small matrix products, the inside of attention
 *
 *   c[m, n] = start[m, n] + sum over k of a[m, k] * b[k, n]
 *
 * Every row of b, start and c is contiguous, and `columns` is a multiple of SIMD_WIDTH. a is read
 * number by number at any strides, so its transpose costs nothing. The sum is complete before start
 * is added: a large start (a bias, a long accumulation) takes digits from the sum once, not at
 * every step. start may be c, and its rows may overlap each other: a row stride of 0 repeats one
 * row, -1 slides along a strip. Strides count floats. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include "ops/cpu/simd/simd.h"

struct product {
    int64_t rows, columns, depth;
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t b_row;
    const float *start;
    int64_t start_row;
    float *c;
    int64_t c_row;
};

#define multiply SIMD(multiply)
void multiply(const struct product *p);

#endif
