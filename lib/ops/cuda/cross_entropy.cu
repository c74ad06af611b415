// cross_entropy.cu - loss and gradient of the output layer, and log-probabilities
//
//   nll[r] = log sum_v exp(logits[r, v]) - logits[r, target[r]]
//   dlogits = scale * (softmax - onehot)
//
//   y[r, v] = logits[r, v] - log sum_u exp(logits[r, u]) + shift[r]
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
    int V, n; // columns, and those of them that take part
    float scale;
};

// Columns v..v+N-1 of a row; those that take no part have no weight in any sum.
template <int N, class T>
__device__ __forceinline__ void load_logits(float (&x)[N], const T *row, int v, int n)
{
    load<N>(x, row + v);
    if (v + N > n)
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] = v + k < n ? x[k] : -INFINITY;
}

// exp(x - max). In bf16 one fused multiply-add and ex2.approx: the error, about 2^-22 and 2^-23
// |max|, is far below the rounding of the logits.
template <class T> __device__ __forceinline__ float exp_minus_max(float x, float max)
{
    if (sizeof(T) == 4)
        return expf(x - max);
    return exp2_approx(fmaf(x, log2_e, -max * log2_e));
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

template <class T, int N> __device__ __forceinline__ float largest(const T *row, int n)
{
    float max = -INFINITY;

#pragma unroll 4
    for (int v = (int)threadIdx.x * N; v < n; v += THREADS * N) {
        float x[N];
        load_logits<N>(x, row, v, n);
#pragma unroll
        for (int k = 0; k < N; k++)
            max = fmaxf(max, x[k]);
    }
    return block_max(max);
}

// Relative to the maximum: no exponential overflows, and one of them is 1.
template <class T, int N>
__device__ __forceinline__ float sum_of_exp(const T *row, int n, float max)
{
    float sum = 0.0f;

#pragma unroll 2
    for (int v = (int)threadIdx.x * N; v < n; v += THREADS * N) {
        float x[N];
        load_logits<N>(x, row, v, n);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += exp_minus_max<T>(x[k], max);
    }
    return block_sum(sum);
}

template <class T, int N>
__device__ __forceinline__ void gradient(T *to, const T *row, int V, int n, float max, float sum,
                                         int target, float scale)
{
    const float share = scale / sum;

#pragma unroll 2
    for (int v = (int)threadIdx.x * N; v < V; v += THREADS * N) {
        float x[N];
        load_logits<N>(x, row, v, n);
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] = share * exp_minus_max<T>(x[k], max);
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
    T *kept = dynamic_shared<T>();
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
        copy_row<T, N>(kept, row, a.V);
        row = kept;
    }
    const float max = largest<T, N>(row, a.n);
    const float sum = sum_of_exp<T, N>(row, a.n, max);

    if (threadIdx.x == 0)
        a.nll[r] = logf(sum) + (max - of_target);
    if (a.dlogits)
        gradient<T, N>(a.dlogits + first, row, a.V, a.n, max, sum, target, a.scale);
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
                              .n = (int)cross_entropy_classes(args),
                              .scale = (float)args->scale };

    if (count == 0)
        return ALIBI_OK;
    if (a.V % N == 0 && aligned(a.dlogits, a.logits))
        return fit<T, N>(c, a, count);
    return fit<T, 1>(c, a, count);
}

// ---- log-probabilities: the same passes; the last one writes fp32 numbers at any distance

template <class T> struct log_rows {
    float *y;
    const T *logits;
    const float *shift; // may be absent
    int64_t y_row, shift_row;
    int V, n;
};

template <class T, int N>
__global__ void __launch_bounds__(THREADS) log_softmax_kernel(struct log_rows<T> a)
{
    const int64_t r = blockIdx.x;
    const T *row = a.logits + r * a.V;
    const float max = largest<T, N>(row, a.n);
    const float sum = sum_of_exp<T, N>(row, a.n, max);
    const float add = (a.shift ? a.shift[r * a.shift_row] : 0.0f) - logf(sum);
    float *y = a.y + r * a.y_row;

    for (int v = (int)threadIdx.x; v < a.n; v += THREADS)
        y[v] = (to_float(row[v]) - max) + add;
}

template <class T> alibi_status run_log(struct context *c, const struct log_softmax_args *args)
{
    constexpr int N = pack<T>::N;
    const log_rows<T> a = { .y = (float *)args->y.data,
                            .logits = (const T *)args->logits.data,
                            .shift = (const float *)args->shift.data,
                            .y_row = args->y.stride[1],
                            .shift_row = args->shift.stride[1],
                            .V = (int)args->logits.shape[1],
                            .n = (int)args->y.shape[3] };
    const bool vector = a.V % N == 0 && aligned(a.logits);

    if (tensor_count(args->y) == 0)
        return ALIBI_OK;
    return launch(c, "log-softmax", vector ? log_softmax_kernel<T, N> : log_softmax_kernel<T, 1>,
                  dim3((unsigned)args->y.shape[1]), dim3(THREADS), 0, a);
}

} // namespace

alibi_status cuda_cross_entropy(struct device *dev, const struct cross_entropy_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "cross-entropy");
    DISPATCH(a->logits.type, T, return run<T>(c, a));
}

alibi_status cuda_log_softmax(struct device *dev, const struct log_softmax_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "log-softmax");
    DISPATCH(a->logits.type, T, return run_log<T>(c, a));
}
