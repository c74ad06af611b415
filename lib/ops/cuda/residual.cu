// residual.cu - residual connections and dropout
//
//   y = x + dropout(branch),     dropout(x)_i = x_i * (0 or 1/(1 - p))
#include "ops/cuda/launch.cuh"
#include "ops/cuda/random.cuh"

namespace
{

// x absent: dropout alone.
template <class T, bool DROP> struct residual {
    T *y;
    const T *x, *branch;
    struct mask mask;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float sum[N] = {}, part[N];

        load<N>(part, branch + i);
        if (x)
            load<N>(sum, x + i);
        if constexpr (DROP)
            drop<N>(part, mask, i);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] = x ? sum[k] + part[k] : part[k];
        store<N>(y + i, sum);
    }
};

template <class T>
alibi_status run(struct context *c, struct tensor y, const void *x, struct tensor branch,
                 struct dropout d)
{
    const bool vector = aligned(y.data, x, branch.data);
    T *to = (T *)y.data;
    const T *from = (const T *)x, *part = (const T *)branch.data;

    if (d.p > 0.0)
        return each<pack<T>::N>(c, "dropout", residual<T, true>{ to, from, part, mask_of(d) },
                                tensor_count(y), vector);
    return each<pack<T>::N>(c, "residual", residual<T, false>{ to, from, part, mask_of(d) },
                            tensor_count(y), vector);
}

} // namespace

alibi_status cuda_residual_forward(struct device *dev, struct tensor y, struct tensor x,
                                   struct tensor branch, struct dropout drop)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "residual");
    DISPATCH(y.type, T, return run<T>(c, y, x.data, branch, drop));
}

alibi_status cuda_dropout(struct device *dev, struct tensor y, struct tensor x, struct dropout drop)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "residual");
    DISPATCH(y.type, T, return run<T>(c, y, NULL, x, drop));
}
