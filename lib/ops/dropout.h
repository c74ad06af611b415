/* dropout.h - which elements a dropout keeps
 *
 * Shared by all backends, so that they drop the same ones. */
#ifndef DROPOUT_H
#define DROPOUT_H

#include "ops/ops.h"

/* Factor on element i: 0, or 1 / (1 - p). Four neighbours share one random block. */
static inline double dropout_factor(struct dropout d, int64_t i)
{
    struct random4 r = random_block(d.seed, d.stream, (uint64_t)i >> 2);
    double uniform = (double)r.at[i & 3] * 0x1p-32;

    return uniform < d.p ? 0.0 : 1.0 / (1.0 - d.p);
}

/* Element number of the weight of query i and key j, of L each, in head `head` of all heads of the
 * batch. Blocks are numbered as if in a matrix [B, H, L/2, L/2], whose rows and columns are the
 * positions without their bit 3; within a block that of i counts 2 and that of j counts 1. */
static inline int64_t attention_half(int64_t position)
{
    return position / 16 * 8 + position % 8;
}

static inline int64_t attention_element(int64_t head, int64_t i, int64_t j, int64_t L)
{
    int64_t half = (L + 15) / 16 * 8;
    int64_t block = (head * half + attention_half(i)) * half + attention_half(j);

    return 4 * block + 2 * (i / 8 % 2) + j / 8 % 2;
}

#endif
