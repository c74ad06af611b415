// optimizer.cu - AdamW, Nesterov momentum, and the sums that guard and clip
//
// AdamW, g = gradient_scale * gradient, t = step:
//
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   w = w - lr * weight_decay * w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// Nesterov, r = lr / previous_lr:
//
//   w = w - lr * weight_decay * w + momentum^2 r u - (1 + momentum) lr g
//   u = momentum r u - lr g
//
// Factors that all weights share are computed in double on the host. Every number is read and
// written once; the bf16 copy of the weights is written in the same pass.
#include <math.h>

#include "ops/cuda/launch.cuh"

namespace
{

enum { WEIGHTS = 4 }; // fp32 numbers of 16 bytes

// Weights; the first `decaying` of them decay.
template <class Copy> struct weights {
    float *w;
    Copy *copy; // may be absent
    int64_t decaying;
    float decay;

    // w = w - decay * w + change
    template <int N> __device__ __forceinline__ void move(int64_t i, const float (&change)[N]) const
    {
        float x[N];

        load<N>(x, w + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] += change[k] - (i + k < decaying ? decay : 0.0f) * x[k];
        store<N>(w + i, x);
        if (copy)
            store<N>(copy + i, x);
    }
};

template <class Copy> struct adamw_step {
    struct weights<Copy> weights;
    float *m, *v;
    const float *gradient;
    float gradient_scale, beta1, rest1, beta2, rest2; // rest = 1 - beta
    float correct1, correct2, lr, eps;                // factors: 1 / (1 - beta^t)

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float g[N], first[N], second[N], change[N];

        load<N>(g, gradient + i);
        load<N>(first, m + i);
        load<N>(second, v + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            g[k] *= gradient_scale;
            first[k] = beta1 * first[k] + rest1 * g[k];
            second[k] = beta2 * second[k] + rest2 * g[k] * g[k];
            // The fast division is within 2 units in the last place.
            change[k] = -lr * __fdividef(first[k] * correct1, sqrtf(second[k] * correct2) + eps);
        }
        weights.template move<N>(i, change);
        store<N>(m + i, first);
        store<N>(v + i, second);
    }
};

template <class Copy> struct nesterov_step {
    struct weights<Copy> weights;
    float *u;
    const float *gradient;
    float of_velocity, of_gradient;     // factors in the weight
    float keep_velocity, take_gradient; // factors in the velocity

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float g[N], velocity[N], change[N];

        load<N>(g, gradient + i);
        load<N>(velocity, u + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            change[k] = of_velocity * velocity[k] - of_gradient * g[k];
            velocity[k] = keep_velocity * velocity[k] - take_gradient * g[k];
        }
        weights.template move<N>(i, change);
        store<N>(u + i, velocity);
    }
};

template <class Copy> alibi_status run_adamw(struct context *c, const struct adamw_args &a)
{
    const adamw_step<Copy> op = { .weights = { .w = (float *)a.w.data,
                                               .copy = (Copy *)a.copy.data,
                                               .decaying = a.decaying,
                                               .decay = (float)(a.lr * a.weight_decay) },
                                  .m = (float *)a.m.data,
                                  .v = (float *)a.v.data,
                                  .gradient = (const float *)a.gradient.data,
                                  .gradient_scale = (float)a.gradient_scale,
                                  .beta1 = (float)a.beta1,
                                  .rest1 = (float)(1.0 - a.beta1),
                                  .beta2 = (float)a.beta2,
                                  .rest2 = (float)(1.0 - a.beta2),
                                  .correct1 = (float)(1.0 / (1.0 - pow(a.beta1, (double)a.step))),
                                  .correct2 = (float)(1.0 / (1.0 - pow(a.beta2, (double)a.step))),
                                  .lr = (float)a.lr,
                                  .eps = (float)a.eps };

    return each<WEIGHTS>(c, "AdamW", op, tensor_count(a.w),
                         aligned(a.w.data, a.copy.data, a.m.data, a.v.data, a.gradient.data));
}

template <class Copy> alibi_status run_nesterov(struct context *c, const struct nesterov_args &n)
{
    const double r = n.lr / n.previous_lr, lr = n.lr * n.gradient_scale;
    const nesterov_step<Copy> op = { .weights = { .w = (float *)n.w.data,
                                                  .copy = (Copy *)n.copy.data,
                                                  .decaying = n.decaying,
                                                  .decay = (float)(n.lr * n.weight_decay) },
                                     .u = (float *)n.u.data,
                                     .gradient = (const float *)n.gradient.data,
                                     .of_velocity = (float)(n.momentum * n.momentum * r),
                                     .of_gradient = (float)((1.0 + n.momentum) * lr),
                                     .keep_velocity = (float)(n.momentum * r),
                                     .take_gradient = (float)lr };

    return each<WEIGHTS>(c, "Nesterov", op, tensor_count(n.w),
                         aligned(n.w.data, n.copy.data, n.u.data, n.gradient.data));
}

// ---- sums, in double: PARTS blocks write a part each, and one block adds them

enum { PARTS = 1024, SUM_THREADS = 256 };

template <bool SQUARES> __device__ __forceinline__ double term(float x)
{
    return SQUARES ? (double)x * (double)x : (double)x;
}

template <class T, int N, bool SQUARES>
__global__ void __launch_bounds__(SUM_THREADS)
    parts_kernel(double *parts, const T *x, int64_t count)
{
    const int64_t thread = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x, rest = count % N;
    double sum = 0.0;

#pragma unroll 4
    for (int64_t i = thread * N; i + N <= count; i += (int64_t)PARTS * SUM_THREADS * N) {
        float at[N];
        load<N>(at, x + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += term<SQUARES>(at[k]);
    }
    if (thread < rest)
        sum += term<SQUARES>(to_float(x[count - rest + thread]));
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(PARTS) total_kernel(double *parts)
{
    const double total = block_sum(parts[threadIdx.x]);

    if (threadIdx.x == 0)
        parts[0] = total;
}

template <class T, bool SQUARES>
alibi_status run_sum(struct context *c, double *sum, struct tensor x)
{
    constexpr int N = pack<T>::N;
    const int64_t count = tensor_count(x);
    const auto kernel = aligned(x.data) ? parts_kernel<T, N, SQUARES> : parts_kernel<T, 1, SQUARES>;
    double *parts;

    TRY_RETURN(cuda_scratch(c, SCRATCH_SUMS, PARTS * sizeof *parts, (void **)&parts));
    TRY_RETURN(launch(c, "sum", kernel, dim3(PARTS), dim3(SUM_THREADS), 0, parts, (const T *)x.data,
                      count));
    TRY_RETURN(launch(c, "sum", total_kernel, dim3(1), dim3(PARTS), 0, parts));
    TRY_RETURN(cuda_check(
        cudaMemcpyAsync(c->staging.at[0], parts, sizeof *sum, cudaMemcpyDeviceToHost, c->stream),
        "sum"));
    TRY_RETURN(cuda_check(cudaStreamSynchronize(c->stream), "sum"));
    *sum = *(const double *)(const void *)c->staging.at[0];
    return ALIBI_OK;
}

} // namespace

alibi_status cuda_adamw(struct device *dev, const struct adamw_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "optimizer");
    DISPATCH(a->copy.type, Copy, return run_adamw<Copy>(c, *a));
}

alibi_status cuda_nesterov(struct device *dev, const struct nesterov_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "optimizer");
    DISPATCH(a->copy.type, Copy, return run_nesterov<Copy>(c, *a));
}

alibi_status cuda_sum_squares(struct device *dev, double *sum, struct tensor x)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "gradient norm");
    DISPATCH(x.type, T, return (run_sum<T, true>(c, sum, x)));
}

alibi_status cuda_sum(struct device *dev, double *sum, struct tensor x)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "sum");
    DISPATCH(x.type, T, return (run_sum<T, false>(c, sum, x)));
}
