// activation.cu
//
//   gelu tanh   y = x/2 (1 + tanh(u)) = x sigmoid(2u),     u = sqrt(2/pi) (x + 0.044715 x^3)
//   gelu erf    y = x/2 (1 + erf(x / sqrt(2)))
//   relu        y = max(x, 0)
//   swiglu      y = silu(g) * u,     silu(g) = g sigmoid(g)
//
// A sigmoid costs one exponential. Where numbers are bf16, the fast exponential and division err far below their rounding.
#include "ops/cuda/launch.cuh"

template <class T> static __device__ __forceinline__ float exponential(float x)
{
    return sizeof(T) == 2 ? __expf(x) : expf(x);
}

template <class T> static __device__ __forceinline__ float quotient(float a, float b)
{
    return sizeof(T) == 2 ? __fdividef(a, b) : a / b;
}

// s = sigmoid(x) and s (1 - s), neither by a difference: with e = exp(-|x|), 1 / (1 + e) is the larger of s and 1 - s.
struct sigmoid {
    float value, slope;
};

template <class T> static __device__ __forceinline__ struct sigmoid sigmoid_of(float x)
{
    const float e = exponential<T>(-fabsf(x));
    const float larger = quotient<T>(1.0f, 1.0f + e), smaller = e * larger;

    return { x >= 0.0f ? larger : smaller, larger * smaller };
}

// Each kind has the function and its slope.
template <class T> struct gelu_tanh {
    static constexpr float K = 1.5957691216057308f; // 2 sqrt(2/pi)

    static __device__ __forceinline__ float value(float x)
    {
        return x * sigmoid_of<T>(K * (x + 0.044715f * x * x * x)).value;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        const struct sigmoid s = sigmoid_of<T>(K * (x + 0.044715f * x * x * x));

        return s.value + x * s.slope * (K * (1.0f + 3.0f * 0.044715f * x * x));
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

// As the reference, a number that is not one gives 0.
template <class T> struct relu {
    static __device__ __forceinline__ float value(float x)
    {
        return x > 0.0f ? x : 0.0f;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        return x > 0.0f ? 1.0f : 0.0f;
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

template <class T, class Kind> struct activation_backward {
    T *dx;
    const T *dy, *x;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float at[N], d[N];

        load<N>(at, x + i);
        load<N>(d, dy + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            d[k] *= Kind::slope(at[k]);
        store<N>(dx + i, d);
    }
};

template <class T, class Kind> static alibi_status run_forward(struct cuda *c, struct tensor y, struct tensor x)
{
    const struct activation_forward<T, Kind> op = {
        (T *)y.data, (const T *)x.data
    };

    return each<pack<T>::N>(c, "activation", op, tensor_count(y), aligned(y.data, x.data));
}

template <class T, class Kind>
static alibi_status run_backward(struct cuda *c, struct tensor dx, struct tensor dy, struct tensor x)
{
    const struct activation_backward<T, Kind> op = {
        (T *)dx.data, (const T *)dy.data, (const T *)x.data
    };

    return each<pack<T>::N>(c, "gradient of activation", op, tensor_count(dy), aligned(dx.data, dy.data, x.data));
}

// ---- swiglu: a block for a row, which is g[F] then u[F]

enum { SWIGLU_THREADS = 256 };

template <class T, int N> static __global__ void __launch_bounds__(SWIGLU_THREADS) swiglu_kernel(T *y, const T *x, int64_t F)
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

// Both inputs are read before either gradient is written: dx may be x.
template <class T, int N>
static __global__ void __launch_bounds__(SWIGLU_THREADS) swiglu_backward_kernel(T *dx, const T *dy, const T *x, int64_t F)
{
    const int64_t row = blockIdx.x;

    for (int64_t f = (int64_t)threadIdx.x * N; f < F; f += SWIGLU_THREADS * N) {
        const int64_t at_gate = row * 2 * F + f, at_up = at_gate + F;
        float gate[N], up[N], d[N];
        load<N>(gate, x + at_gate);
        load<N>(up, x + at_up);
        load<N>(d, dy + row * F + f);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float slope = silu<T>::slope(gate[k]);
            gate[k] = d[k] * silu<T>::value(gate[k]);
            up[k] *= d[k] * slope;
        }
        store<N>(dx + at_gate, up);
        store<N>(dx + at_up, gate);
    }
}

template <class T> static alibi_status swiglu(struct cuda *c, struct tensor y, struct tensor x)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = y.shape[0], F = y.shape[1];
    const bool vector = F % N == 0 && aligned(y.data, x.data);
    const auto kernel = vector ? swiglu_kernel<T, N> : swiglu_kernel<T, 1>;

    if (rows == 0 || F == 0)
        return ALIBI_OK;
    return launch(c, "activation", kernel, dim3((unsigned)rows), dim3(SWIGLU_THREADS), 0, (T *)y.data, (const T *)x.data, F);
}

template <class T> static alibi_status swiglu_backward(struct cuda *c, struct tensor dx, struct tensor dy, struct tensor x)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = dy.shape[0], F = dy.shape[1];
    const bool vector = F % N == 0 && aligned(dx.data, dy.data, x.data);
    const auto kernel = vector ? swiglu_backward_kernel<T, N> : swiglu_backward_kernel<T, 1>;

    if (rows == 0 || F == 0)
        return ALIBI_OK;
    return launch(c, "gradient of activation", kernel, dim3((unsigned)rows), dim3(SWIGLU_THREADS), 0, (T *)dx.data,
                  (const T *)dy.data, (const T *)x.data, F);
}

// ---- by kind

template <class T> static alibi_status forward_of(struct cuda *c, int kind, struct tensor y, struct tensor x)
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

template <class T> static alibi_status backward_of(struct cuda *c, int kind, struct tensor dx, struct tensor dy, struct tensor x)
{
    switch ((enum alibi_activation)kind) {
    case ALIBI_GELU_TANH:
        return run_backward<T, gelu_tanh<T>>(c, dx, dy, x);
    case ALIBI_GELU_ERF:
        return run_backward<T, gelu_erf<T>>(c, dx, dy, x);
    case ALIBI_RELU:
        return run_backward<T, relu<T>>(c, dx, dy, x);
    case ALIBI_SWIGLU:
        break;
    }
    return swiglu_backward<T>(c, dx, dy, x);
}

alibi_status cuda_activation_forward(struct device *dev, int kind, struct tensor y, struct tensor x)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "activation");
    DISPATCH(y.type, T, return forward_of<T>(c, kind, y, x));
}

alibi_status cuda_activation_backward(struct device *dev, int kind, struct tensor dx, struct tensor dy, struct tensor x)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "activation");
    DISPATCH(dy.type, T, return backward_of<T>(c, kind, dx, dy, x));
}
