// heads.cuh - views [B, L, H, D], as kernels that work on one head of one row at a time take them
#ifndef HEADS_CUH
#define HEADS_CUH

#include "ops/cuda/launch.cuh"

template <class T> struct view {
    T *at;
    int64_t b, l, h; // strides

    __device__ __forceinline__ T *head(int64_t row, int64_t L, int64_t head) const
    {
        return at + row / L * b + row % L * l + head * h;
    }
};

template <class T> struct view<T> view_of(struct tensor t) {
    return { (T *)t.data, t.stride[0], t.stride[1], t.stride[2] };
}

// Whether heads of both views can be accessed n numbers at a time; n is a power of two.
template <class T>
bool fits(struct view<T> a, struct view<T> b, int D, int n)
{
    const int64_t all = a.b | a.l | a.h | b.b | b.l | b.h | D;

    return all % n == 0 && ((uintptr_t)a.at | (uintptr_t)b.at) % (n * sizeof(T)) == 0;
}

#endif
