// residual.cu
//
//   y = x + drop(branch),     drop(x)_i = x_i * (0 or 1/(1 - p))
//
// Four neighbours share one random block, so a thread makes one for every four of its elements.
#include <math.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/random.cuh"

// struct dropout as kernels use it: an element is dropped if its 32 bits are below `threshold`.
struct mask {
    uint64_t seed, stream, threshold;
    float kept;
};

// bits * 2^-32 < p, for whole numbers: bits < ceil(p * 2^32). The product is exact.
static struct mask mask_of(struct dropout d)
{
    return mask{ d.seed, d.stream, (uint64_t)ceil(d.p * 0x1p32), d.p > 0.0 ? (float)(1.0 / (1.0 - d.p)) : 1.0f };
}

static __device__ __forceinline__ float factor(const struct mask &m, uint32_t bits)
{
    return bits < m.threshold ? 0.0f : m.kept;
}

// Multiplies elements i..i+N-1 by their factors. i is a multiple of 4 unless N is 1.
template <int N> static __device__ __forceinline__ void drop(float (&x)[N], const struct mask &m, int64_t i)
{
    if constexpr (N == 1) {
        const uint4 r = philox(m.seed, m.stream, (uint64_t)i >> 2);
        const int place = (int)(i & 3);
        x[0] *= factor(m, place == 0 ? r.x : place == 1 ? r.y : place == 2 ? r.z : r.w);
    } else {
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            const uint4 r = philox(m.seed, m.stream, (uint64_t)(i + k) >> 2);
            x[k] *= factor(m, r.x);
            x[k + 1] *= factor(m, r.y);
            x[k + 2] *= factor(m, r.z);
            x[k + 3] *= factor(m, r.w);
        }
    }
}

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

template <class T> static alibi_status run(struct cuda *c, struct tensor y, const void *x, struct tensor branch, struct dropout d)
{
    const bool vector = aligned(y.data, x, branch.data);
    T *to = (T *)y.data;
    const T *from = (const T *)x, *part = (const T *)branch.data;

    if (d.p > 0.0)
        return each<pack<T>::N>(c, "dropout", residual<T, true>{ to, from, part, mask_of(d) }, tensor_count(y), vector);
    return each<pack<T>::N>(c, "residual", residual<T, false>{ to, from, part, mask_of(d) }, tensor_count(y), vector);
}

alibi_status cuda_residual_forward(struct device *dev, struct tensor y, struct tensor x, struct tensor branch,
                                   struct dropout drop)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "residual");
    DISPATCH(y.type, T, return run<T>(c, y, x.data, branch, drop));
}

alibi_status cuda_dropout(struct device *dev, struct tensor y, struct tensor x, struct dropout drop)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "residual");
    DISPATCH(y.type, T, return run<T>(c, y, NULL, x, drop));
}
