// activation.cu - activations and their derivatives
//
//   gelu tanh   y = x/2 (1 + tanh(u)) = x sigmoid(2u),   u = sqrt(2/pi) (x + 0.044715 x^3)
//   gelu erf    y = x/2 (1 + erf(x / sqrt(2)))
//   relu        y = max(x, 0)
//   swiglu      y = silu(g) * u,   silu(g) = g sigmoid(g)
//
// A sigmoid costs one exponential. In bf16 the errors of the fast exponential and division are far
// below the rounding of the result. Backward is a column pass (columns.cuh): the column sums of dx
// are the gradient of the bias before the activation, and come from the same pass.
#include "ops/cuda/columns.cuh"

namespace
{

template <class T> __device__ __forceinline__ float exponential(float x)
{
    return sizeof(T) == 2 ? __expf(x) : expf(x);
}

// s = sigmoid(x) and s (1 - s).
struct sigmoid {
    float value, slope;
};

// No cancellation: with e = exp(-|x|), 1 / (1 + e) is the larger of s and 1 - s.
__device__ __forceinline__ struct sigmoid exact_sigmoid(float x)
{
    const float e = expf(-fabsf(x)), larger = 1.0f / (1.0f + e), smaller = e * larger;

    return { x >= 0.0f ? larger : smaller, larger * smaller };
}

// The error of the difference 1 - s is 2^-24, negligible next to s near 1. A large e^-x overflows
// to infinity, and s is 0.
__device__ __forceinline__ struct sigmoid fast_sigmoid(float x)
{
    const float log2_e = 1.4426950408889634f;
    const float s = fast_reciprocal(1.0f + power_of_two(-log2_e * x));

    return { s, fmaf(-s, s, s) };
}

template <class T> __device__ __forceinline__ struct sigmoid sigmoid_of(float x)
{
    return sizeof(T) == 2 ? fast_sigmoid(x) : exact_sigmoid(x);
}

// Each kind has its function and its derivative.
template <class T> struct gelu_tanh {
    static constexpr float K = 1.5957691216057308f,
                           CUBE = 0.044715f; // 2 sqrt(2/pi)

    static __device__ __forceinline__ float twice_u(float x)
    {
        return x * (K + K * CUBE * (x * x));
    }

    static __device__ __forceinline__ float value(float x)
    {
        return x * sigmoid_of<T>(twice_u(x)).value;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        const struct sigmoid s = sigmoid_of<T>(twice_u(x));

        return s.value + x * s.slope * (K + 3.0f * K * CUBE * (x * x));
    }
};

template <class T> struct gelu_erf {
    static __device__ __forceinline__ float normal(float x)
    {
        return 0.5f * (1.0f + erff(x * 0.70710678118654752f));
    }

    static __device__ __forceinline__ float value(float x)
    {
        return x * normal(x);
    }

    // The normal distribution plus x times its density.
    static __device__ __forceinline__ float slope(float x)
    {
        return normal(x) + x * exponential<T>(-0.5f * x * x) * 0.39894228040143268f;
    }
};

// NaN stays NaN.
template <class T> struct relu {
    static __device__ __forceinline__ float value(float x)
    {
        return x <= 0.0f ? 0.0f : x;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        return x <= 0.0f ? 0.0f : x > 0.0f ? 1.0f : x;
    }
};

template <class T> struct silu {
    static __device__ __forceinline__ float value(float x)
    {
        return x * sigmoid_of<T>(x).value;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        const struct sigmoid s = sigmoid_of<T>(x);

        return s.value + x * s.slope;
    }
};

// ---- one input per output

template <class T, class Kind> struct activation_forward {
    T *y;
    const T *x;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float at[N];

        load<N>(at, x + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            at[k] = Kind::value(at[k]);
        store<N>(y + i, at);
    }
};

// Rounds d, writes it, and adds the rounded numbers to the sums.
template <class T, int N>
__device__ __forceinline__ void write_and_add(T *to, float (&sums)[N], const float (&d)[N])
{
    const bits<T, N> written = bits_of<T>(d);

    store_bits<N>(to, written);
#pragma unroll
    for (int k = 0; k < N; k++)
        sums[k] += written.at(k);
}

template <class T, class Kind> struct activation_backward {
    enum { SETS = 1, ROWS = 4, BLOCKS = 4 };
    T *dx;
    const T *dy, *x;
    int F;

    template <int N> struct part {
        bits<T, N> x, dy;
    };

    template <int N> __device__ __forceinline__ part<N> read(int row, int f) const
    {
        return { load_bits<N>(x + (int64_t)row * F + f), load_bits<N>(dy + (int64_t)row * F + f) };
    }

    template <int N>
    __device__ __forceinline__ void use(float (&sums)[SETS][N], const part<N> &from, int row,
                                        int f) const
    {
        float d[N];

#pragma unroll
        for (int k = 0; k < N; k++)
            d[k] = from.dy.at(k) * Kind::slope(from.x.at(k));
        write_and_add(dx + (int64_t)row * F + f, sums[0], d);
    }
};

template <class T, class Kind>
alibi_status run_forward(struct context *c, struct tensor y, struct tensor x)
{
    const activation_forward<T, Kind> op = { (T *)y.data, (const T *)x.data };

    return each<pack<T>::N>(c, "activation", op, tensor_count(y), aligned(y.data, x.data));
}

// The op's sets of columns are next to each other in dx.
template <class T, class Op>
alibi_status run_backward(struct context *c, struct tensor dx, struct tensor dx_sums,
                          struct tensor dy, struct tensor x)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = dy.shape[0], F = dy.shape[1];
    const Op op = { (T *)dx.data, (const T *)dy.data, (const T *)x.data, (int)F };
    float *sums = (float *)dx_sums.data;

    if (F % N == 0 && aligned(dx.data, dy.data, x.data))
        return column_pass<N>(c, "gradient of activation", op, sums, rows, F);
    return column_pass<1>(c, "gradient of activation", op, sums, rows, F);
}

// ---- swiglu: a row of x is g[F] then u[F]. Forward: a block per row

enum { SWIGLU_THREADS = 256 };

template <class T, int N>
__global__ void __launch_bounds__(SWIGLU_THREADS) swiglu_kernel(T *y, const T *x, int64_t F)
{
    const int64_t row = blockIdx.x;

    for (int64_t f = (int64_t)threadIdx.x * N; f < F; f += SWIGLU_THREADS * N) {
        float gate[N], up[N];
        load<N>(gate, x + row * 2 * F + f);
        load<N>(up, x + row * 2 * F + F + f);
#pragma unroll
        for (int k = 0; k < N; k++)
            up[k] *= silu<T>::value(gate[k]);
        store<N>(y + row * F + f, up);
    }
}

// Both inputs are loaded before either gradient is stored, so dx may be x.
template <class T> struct swiglu_backward {
    enum { SETS = 2, ROWS = 2, BLOCKS = 3 };
    T *dx;
    const T *dy, *x;
    int F;

    template <int N> struct part {
        bits<T, N> gate, up, dy;
    };

    template <int N> __device__ __forceinline__ part<N> read(int row, int f) const
    {
        const T *gate = x + (int64_t)row * 2 * F + f;

        return { load_bits<N>(gate), load_bits<N>(gate + F),
                 load_bits<N>(dy + (int64_t)row * F + f) };
    }

    template <int N>
    __device__ __forceinline__ void use(float (&sums)[SETS][N], const part<N> &from, int row,
                                        int f) const
    {
        T *to = dx + (int64_t)row * 2 * F + f;
        float dgate[N], dup[N];

#pragma unroll
        for (int k = 0; k < N; k++) {
            const float gate = from.gate.at(k), d = from.dy.at(k);
            dgate[k] = from.up.at(k) * d * silu<T>::slope(gate);
            dup[k] = d * silu<T>::value(gate);
        }
        write_and_add(to, sums[0], dgate);
        write_and_add(to + F, sums[1], dup);
    }
};

template <class T> alibi_status swiglu(struct context *c, struct tensor y, struct tensor x)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = y.shape[0], F = y.shape[1];
    const bool vector = F % N == 0 && aligned(y.data, x.data);
    const auto kernel = vector ? swiglu_kernel<T, N> : swiglu_kernel<T, 1>;

    if (rows == 0 || F == 0)
        return ALIBI_OK;
    return launch(c, "activation", kernel, dim3((unsigned)rows), dim3(SWIGLU_THREADS), 0,
                  (T *)y.data, (const T *)x.data, F);
}

// ---- by kind

template <class T>
alibi_status forward_of(struct context *c, int kind, struct tensor y, struct tensor x)
{
    switch ((enum alibi_activation)kind) {
    case ALIBI_GELU_TANH:
        return run_forward<T, gelu_tanh<T>>(c, y, x);
    case ALIBI_GELU_ERF:
        return run_forward<T, gelu_erf<T>>(c, y, x);
    case ALIBI_RELU:
        return run_forward<T, relu<T>>(c, y, x);
    case ALIBI_SWIGLU:
        break;
    }
    return swiglu<T>(c, y, x);
}

template <class T>
alibi_status backward_of(struct context *c, int kind, struct tensor dx, struct tensor dx_sums,
                         struct tensor dy, struct tensor x)
{
    switch ((enum alibi_activation)kind) {
    case ALIBI_GELU_TANH:
        return run_backward<T, activation_backward<T, gelu_tanh<T>>>(c, dx, dx_sums, dy, x);
    case ALIBI_GELU_ERF:
        return run_backward<T, activation_backward<T, gelu_erf<T>>>(c, dx, dx_sums, dy, x);
    case ALIBI_RELU:
        return run_backward<T, activation_backward<T, relu<T>>>(c, dx, dx_sums, dy, x);
    case ALIBI_SWIGLU:
        break;
    }
    return run_backward<T, swiglu_backward<T>>(c, dx, dx_sums, dy, x);
}

} // namespace

alibi_status cuda_activation_forward(struct device *dev, int kind, struct tensor y, struct tensor x)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "activation");
    DISPATCH(y.type, T, return forward_of<T>(c, kind, y, x));
}

alibi_status cuda_activation_backward(struct device *dev, int kind, struct tensor dx,
                                      struct tensor dy, struct tensor x)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "activation");
    return cuda_activation_backward_sums(c, kind, dx, tensor_none(), dy, x);
}

alibi_status cuda_activation_backward_sums(struct context *c, int kind, struct tensor dx,
                                           struct tensor dx_sums, struct tensor dy, struct tensor x)
{
    DISPATCH(dy.type, T, return backward_of<T>(c, kind, dx, dx_sums, dy, x));
}
