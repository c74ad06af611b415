// norm.cuh - the equations of a row of layer norm or RMS norm, with the residual added first
//
// Two kernels compute norms forward, norm.cu's and that of the linear layer that follows
// (linear_decode.cu), and backward computes y again. All give the same bits: each step is rounded
// as it is written here, whatever the compiler could fuse.
#ifndef NORM_CUH
#define NORM_CUH

#include "ops/cuda/random.cuh"

enum { NORM_HELD = 4 }; // 16-byte accesses of a row that a thread of norm.cu keeps in registers

template <class T> struct norm_forward {
    T *y;
    float *mean, *rstd; // mean is absent in RMS norm
    T *sum;             // absent where branch is
    const T *x, *branch;
    struct mask mask;
    const float *weight, *bias; // bias may be absent
    int64_t rows;
    int C;
    float per_row, eps; // 1 / C
};

template <class T> norm_forward<T> norm_forward_of(const struct norm_args *args)
{
    const int64_t C = args->x.shape[1];

    return { .y = (T *)args->y.data,
             .mean = args->kind == ALIBI_RMSNORM ? NULL : (float *)args->mean.data,
             .rstd = (float *)args->rstd.data,
             .sum = (T *)args->sum.data,
             .x = (const T *)args->x.data,
             .branch = (const T *)args->branch.data,
             .mask = mask_of(args->dropout),
             .weight = (const float *)args->weight.data,
             .bias = (const float *)args->bias.data,
             .rows = args->x.shape[0],
             .C = (int)C,
             .per_row = 1.0f / (float)C,
             .eps = (float)args->eps };
}

// Whether a thread can take the columns of a row 16 bytes at a time.
template <class T> bool takes_packs(const struct norm_forward<T> &a)
{
    return a.C % pack<T>::N == 0 && aligned(a.y, a.sum, a.x, a.branch, a.weight, a.bias);
}

// x + branch as it is stored, i.e. rounded; branch is what its dropout has left.
template <class T, int N>
__device__ __forceinline__ bits<T, N> residual_sum(bits<T, N> x, float (&branch)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        branch[k] += x.at(k);
    return round_to_bits<T>(branch);
}

template <class T, int N> __device__ __forceinline__ void add_numbers(float &sum, bits<T, N> x)
{
#pragma unroll
    for (int k = 0; k < N; k++)
        sum += x.at(k);
}

// Of the differences from the mean: a second pass over the row avoids the cancellation of
// E[x^2] - E[x]^2.
template <class T, int N>
__device__ __forceinline__ void add_squares(float &sum, bits<T, N> x, float mean)
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float difference = x.at(k) - mean;
        sum = fmaf(difference, difference, sum);
    }
}

__device__ __forceinline__ float mean_of_sum(float sum, float per_row)
{
    return __fmul_rn(sum, per_row);
}

__device__ __forceinline__ float rstd_of_squares(float squares, float per_row, float eps)
{
    return rsqrtf(fmaf(squares, per_row, eps));
}

__device__ __forceinline__ float normalised(float x, float mean, float rstd)
{
    return (x - mean) * rstd;
}

__device__ __forceinline__ float output(float n, float weight, float bias)
{
    return fmaf(n, weight, bias);
}

#endif
