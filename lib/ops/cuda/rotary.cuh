// rotary.cuh - rotating one pair: for rotary.cu and for the epilogue of attention backward
#ifndef ROTARY_CUH
#define ROTARY_CUH

#include "ops/cuda/launch.cuh"

// The angles of a struct rotation.
struct angles {
    const float *table; // rows of D/2 cosines, then D/2 sines; NULL: no rotation
    bool halves;
};

inline struct angles angles_of(struct rotation r)
{
    return { (const float *)r.table.data, r.layout == ALIBI_ROTARY_HALVES };
}

__device__ __forceinline__ void rotate(float &a, float &b, float cosine, float sine)
{
    const float first = a * cosine - b * sine;

    b = a * sine + b * cosine;
    a = first;
}

#endif
