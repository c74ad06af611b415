/* mask.h - the factors of ops/dropout.h, many blocks at once
 *
 * Element i uses word i % 4 of the Philox block i / 4 of base/random.c. The generator is written
 * out here, so that a loop over blocks becomes vectors. It takes 32-bit words r below p * 2^32 for
 * dropped, which is r * 2^-32 < p without rounding. */
#ifndef SIMD_MASK_H
#define SIMD_MASK_H

#include <math.h>

#include "ops/cpu/simd/simd.h"

struct mask {
    uint32_t seed[2], stream[2], bound;
    float keep;
};

static inline struct mask mask_of(struct dropout drop)
{
    return (struct mask){ .seed = { (uint32_t)drop.seed, (uint32_t)(drop.seed >> 32) },
                          .stream = { (uint32_t)drop.stream, (uint32_t)(drop.stream >> 32) },
                          .bound = (uint32_t)ceil(drop.p * 0x1p32),
                          .keep = (float)(1.0 / (1.0 - drop.p)) };
}

/* The factors of elements 4 * index .. 4 * index + 3. */
static inline __attribute__((always_inline)) void mask_block(float factor[4], struct mask m,
                                                             uint64_t index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = m.stream[0], c3 = m.stream[1];

#pragma GCC unroll 10
    for (uint32_t round = 0; round < 10; round++) {
        uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ (m.seed[0] + round * 0x9E3779B9u);
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ (m.seed[1] + round * 0xBB67AE85u);
        c3 = (uint32_t)p0;
    }
    factor[0] = c0 < m.bound ? 0.0f : m.keep;
    factor[1] = c1 < m.bound ? 0.0f : m.keep;
    factor[2] = c2 < m.bound ? 0.0f : m.keep;
    factor[3] = c3 < m.bound ? 0.0f : m.keep;
}

#endif
