// activation.cu - activations and their derivatives
//
// activation.cuh has the functions; swiglu is y = silu(g) * u. Backward is a column pass
// (columns.cuh): the column sums of dx are the gradient of the bias before the activation, and come
// from the same pass.
#include "ops/cuda/activation.cuh"
#include "ops/cuda/columns.cuh"

namespace
{

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
    const bits<T, N> written = round_to_bits<T>(d);

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

    let_next_kernel_start();
    wait_for_kernel_before();
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
    return chain(c, "activation", kernel, dim3((unsigned)rows), dim3(SWIGLU_THREADS), 0,
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
