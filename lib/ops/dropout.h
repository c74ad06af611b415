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

#endif
