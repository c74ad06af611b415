/* cuda_bf16.h - bf16 numbers on the emulated GPU */
#ifndef CUDA_BF16_H
#define CUDA_BF16_H

#include "ops/bf16.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x)
{
    return bf16_to_float(x.bits);
}

inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return { bf16_from_float(x) };
}

#endif
