// heads.cuh - views [B, L, H, D], as kernels take them
#ifndef HEADS_CUH
#define HEADS_CUH

#include "ops/cuda/launch.cuh"

// The D numbers of a head are contiguous; strides in elements.
template <class T> struct heads {
    T *at;
    int64_t b, l, h;

    __device__ __forceinline__ T *row(int64_t batch, int64_t position, int64_t head) const
    {
        return at + batch * b + position * l + head * h;
    }
};

// A single row of a batch is that of every sequence: they are packed in it.
template <class T> heads<T> heads_of(struct tensor t)
{
    return { (T *)t.data, t.shape[0] == 1 ? 0 : t.stride[0], t.stride[1], t.stride[2] };
}

// Whether heads of both views can be accessed n numbers at a time; n is a power of two.
template <class T> bool fits(heads<T> a, heads<T> b, int D, int n)
{
    const int64_t all = a.b | a.l | a.h | b.b | b.l | b.h | D;

    return all % n == 0 && ((uintptr_t)a.at | (uintptr_t)b.at) % (n * sizeof(T)) == 0;
}

#endif
