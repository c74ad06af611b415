// cross_entropy.cu - loss and gradient of the output layer
//
//   nll[r] = log sum_v exp(logits[r, v]) - logits[r, target[r]]
//   dlogits = scale * (softmax - onehot)
//
// A block per row. If the row fits, it is copied to shared memory once (cp.async). Then come three
// passes: maximum, sum of exponentials, gradient. A thread reads and writes the same columns in all
// of them, so dlogits may be logits, and only the two reductions need barriers.
#include <cuda_pipeline_primitives.h>
#include <math.h>

#include "ops/cuda/launch.cuh"

namespace
{

enum { THREADS = 512 };

template <class T> struct logit_rows {
    float *nll;
    T *dlogits; // may be absent
    const T *logits;
    const int32_t *targets;
    int V;
    float scale;
};

// exp(x - max). In bf16 one fused multiply-add and ex2.approx: the error, about 2^-22 and 2^-23
// |max|, is far below the rounding of the logits.
template <class T> __device__ __forceinline__ float exponential(float x, float max)
{
    const float log2_e = 1.4426950408889634f;

    if (sizeof(T) == 4)
        return expf(x - max);
    return power_of_two(fmaf(x, log2_e, -max * log2_e));
}

template <class T, int N> __device__ __forceinline__ void copy_row(T *to, const T *from, int V)
{
    for (int v = (int)threadIdx.x * N; v < V; v += THREADS * N) {
        if constexpr (N == 1)
            to[v] = from[v];
        else
            __pipeline_memcpy_async(to + v, from + v, 16);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
}

template <class T, int N> __device__ __forceinline__ float largest(const T *row, int V)
{
    float max = -INFINITY;

#pragma unroll 4
    for (int v = (int)threadIdx.x * N; v < V; v += THREADS * N) {
        float x[N];
        load<N>(x, row + v);
#pragma unroll
        for (int k = 0; k < N; k++)
            max = fmaxf(max, x[k]);
    }
    return block_max(max);
}

// Relative to the maximum: no exponential overflows, and one of them is 1.
template <class T, int N>
__device__ __forceinline__ float sum_of_exp(const T *row, int V, float max)
{
    float sum = 0.0f;

#pragma unroll 2
    for (int v = (int)threadIdx.x * N; v < V; v += THREADS * N) {
        float x[N];
        load<N>(x, row + v);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += exponential<T>(x[k], max);
    }
    return block_sum(sum);
}

template <class T, int N>
__device__ __forceinline__ void gradient(T *to, const T *row, int V, float max, float sum,
                                         int target, float scale)
{
    const float share = scale / sum;

#pragma unroll 2
    for (int v = (int)threadIdx.x * N; v < V; v += THREADS * N) {
        float x[N];
        load<N>(x, row + v);
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] = share * exponential<T>(x[k], max);
        if (target >= v && target < v + N)
#pragma unroll
            for (int k = 0; k < N; k++)
                x[k] -= v + k == target ? scale : 0.0f;
        store<N>(to + v, x);
    }
}

template <class T, int N> __device__ __forceinline__ void zeros(T *to, int V)
{
    const float none[N] = {};

    for (int v = (int)threadIdx.x * N; v < V; v += THREADS * N)
        store<N>(to + v, none);
}

// KEEP: the row is in shared memory. Two blocks per multiprocessor: one loads while the other
// computes.
template <class T, int N, bool KEEP>
__global__ void __launch_bounds__(THREADS, 2) cross_entropy_kernel(struct logit_rows<T> a)
{
    extern __shared__ __align__(16) unsigned char kept[];
    const int64_t r = blockIdx.x, first = r * a.V;
    const int target = a.targets[r];
    const T *row = a.logits + first;

    if (target < 0) {
        if (threadIdx.x == 0)
            a.nll[r] = 0.0f;
        if (a.dlogits)
            zeros<T, N>(a.dlogits + first, a.V);
        return;
    }
    const float of_target = to_float(row[target]); // before the gradient may overwrite the row

    // Copy, maximum, sum, loss, gradient.
    if constexpr (KEEP) {
        copy_row<T, N>(reinterpret_cast<T *>(kept), row, a.V);
        row = reinterpret_cast<const T *>(kept);
    }
    const float max = largest<T, N>(row, a.V);
    const float sum = sum_of_exp<T, N>(row, a.V, max);

    if (threadIdx.x == 0)
        a.nll[r] = logf(sum) + (max - of_target);
    if (a.dlogits)
        gradient<T, N>(a.dlogits + first, row, a.V, max, sum, target, a.scale);
}

// All on-chip memory as shared memory, for two blocks.
template <class T, int N>
alibi_status run_kept(struct context *c, struct logit_rows<T> a, dim3 grid, size_t bytes)
{
    const auto kernel = cross_entropy_kernel<T, N, true>;

    TRY_RETURN(cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
        "cross-entropy"));
    return launch(c, "cross-entropy", kernel, grid, dim3(THREADS), bytes, a);
}

template <class T, int N> alibi_status fit(struct context *c, struct logit_rows<T> a, int64_t count)
{
    const size_t others = 1024; // for the reductions, and reserved by the system
    const size_t bytes = (size_t)a.V * sizeof(T);
    const dim3 grid((unsigned)count);

    if (bytes + others <= c->shared_per_block)
        return run_kept<T, N>(c, a, grid, bytes);
    return launch(c, "cross-entropy", cross_entropy_kernel<T, N, false>, grid, dim3(THREADS), 0, a);
}

template <class T> alibi_status run(struct context *c, const struct cross_entropy_args *args)
{
    constexpr int N = pack<T>::N;
    const int64_t count = args->logits.shape[0];
    const logit_rows<T> a = { .nll = (float *)args->nll.data,
                              .dlogits = (T *)args->dlogits.data,
                              .logits = (const T *)args->logits.data,
                              .targets = (const int32_t *)args->targets.data,
                              .V = (int)args->logits.shape[1],
                              .scale = (float)args->scale };

    if (count == 0)
        return ALIBI_OK;
    if (a.V % N == 0 && aligned(a.dlogits, a.logits))
        return fit<T, N>(c, a, count);
    return fit<T, 1>(c, a, count);
}

} // namespace

alibi_status cuda_cross_entropy(struct device *dev, const struct cross_entropy_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "cross-entropy");
    DISPATCH(a->logits.type, T, return run<T>(c, a));
}
