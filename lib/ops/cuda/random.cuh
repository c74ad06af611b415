// random.cuh - Philox4x32-10 as in lib/base/random.c, and dropout as in ops/dropout.h
//
//   (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0))  ten times
//
// The counter is (index, stream). The key is the seed, advanced by a Weyl sequence between rounds.
#ifndef RANDOM_CUH
#define RANDOM_CUH

#include <math.h>
#include <stdint.h>

#include "ops/ops.h"

__device__ __forceinline__ uint4 philox_round(uint4 c, uint32_t k0, uint32_t k1)
{
    const uint32_t M0 = 0xD2511F53u, M1 = 0xCD9E8D57u;

    return make_uint4(__umulhi(M1, c.z) ^ c.y ^ k0, M1 * c.z, __umulhi(M0, c.x) ^ c.w ^ k1,
                      M0 * c.x);
}

enum : uint32_t { PHILOX_ROUNDS = 10, PHILOX_STEP_0 = 0x9E3779B9u, PHILOX_STEP_1 = 0xBB67AE85u };

__device__ __forceinline__ uint4 philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint4 c = make_uint4((uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                         (uint32_t)(stream >> 32));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

#pragma unroll
    for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        c = philox_round(c, k0, k1);
        k0 += PHILOX_STEP_0;
        k1 += PHILOX_STEP_1;
    }
    return c;
}

// struct dropout for kernels: an element is dropped if its 32 random bits are below `threshold`.
struct mask {
    uint64_t seed, stream, threshold;
    float kept;
};

// bits * 2^-32 < p is, for integers, bits < ceil(p * 2^32). The product is exact.
inline struct mask mask_of(struct dropout d)
{
    return mask{ d.seed, d.stream, (uint64_t)ceil(d.p * 0x1p32),
                 d.p > 0.0 ? (float)(1.0 / (1.0 - d.p)) : 1.0f };
}

// x after dropout. The product is rounded on its own, never fused with a sum that follows, so that
// a residual has the same bits alone and inside a norm.
__device__ __forceinline__ float dropped(float x, const struct mask &m, uint32_t bits)
{
    return __fmul_rn(x, bits < m.threshold ? 0.0f : m.kept);
}

// Applies dropout to elements i..i+N-1. Four neighbours share one random block, so i must be a
// multiple of 4 unless N is 1.
template <int N>
__device__ __forceinline__ void drop(float (&x)[N], const struct mask &m, int64_t i)
{
    if constexpr (N == 1) {
        const uint4 r = philox(m.seed, m.stream, (uint64_t)i >> 2);
        const int place = (int)(i & 3);
        x[0] = dropped(x[0], m, place == 0 ? r.x : place == 1 ? r.y : place == 2 ? r.z : r.w);
    } else {
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            const uint4 r = philox(m.seed, m.stream, (uint64_t)(i + k) >> 2);
            x[k] = dropped(x[k], m, r.x);
            x[k + 1] = dropped(x[k + 1], m, r.y);
            x[k + 2] = dropped(x[k + 2], m, r.z);
            x[k + 3] = dropped(x[k + 3], m, r.w);
        }
    }
}

#endif
