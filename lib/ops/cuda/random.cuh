// random.cuh - Philox4x32-10 as lib/base/random.c has it
//
//   (c0, c1, c2, c3)  ->  (hi(M1 c2) ^ c1 ^ k0,  lo(M1 c2),  hi(M0 c0) ^ c3 ^ k1,  lo(M0 c0))     ten times
//
// The key is the seed and advances by a Weyl sequence between rounds; the counter is (index, stream).
#ifndef RANDOM_CUH
#define RANDOM_CUH

#include <stdint.h>

static __device__ __forceinline__ uint4 philox_round(uint4 c, uint32_t k0, uint32_t k1)
{
    const uint32_t M0 = 0xD2511F53u, M1 = 0xCD9E8D57u;

    return make_uint4(__umulhi(M1, c.z) ^ c.y ^ k0, M1 * c.z, __umulhi(M0, c.x) ^ c.w ^ k1, M0 * c.x);
}

static __device__ __forceinline__ uint4 philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint4 c = make_uint4((uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

#pragma unroll
    for (int round = 0; round < 10; round++) {
        c = philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

#endif
