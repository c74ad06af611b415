// columns.cu - a bias: adding it to each row, and its gradient, the sum over rows
//
//   sums[n] += sum_r x[r, n]                     y[r, n] += bias[n]
#include "ops/cuda/columns.cuh"

namespace
{

// ---- adding the partial sums of blocks: 32 columns per block, ADDERS threads per column

enum { ADDERS = 32 };

struct targets {
    float *set[3];
};

__global__ void __launch_bounds__(LANES *ADDERS)
    add_partials_kernel(struct targets targets, const float *partials, int count, int64_t columns)
{
    __shared__ float of_adder[ADDERS][LANES];
    const int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x;
    float *to = blockIdx.y == 0   ? targets.set[0]
                : blockIdx.y == 1 ? targets.set[1]
                                  : targets.set[2];
    float sum = 0.0f;

    if (column < columns)
#pragma unroll 8
        for (int i = (int)threadIdx.y; i < count; i += ADDERS)
            sum += partials[((int64_t)i * gridDim.y + blockIdx.y) * columns + column];
    of_adder[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns)
        return;
#pragma unroll
    for (int y = 1; y < ADDERS; y++)
        sum += of_adder[y][threadIdx.x];
    to[column] += sum;
}

// ---- sums over rows

template <class T> struct column_sums {
    enum { SETS = 1, ROWS = 8, BLOCKS = 4 };
    const T *x;
    int columns;

    template <int N> using part = bits<T, N>;

    template <int N> __device__ __forceinline__ part<N> read(int row, int column) const
    {
        return load_bits<N>(x + (int64_t)row * columns + column);
    }

    template <int N>
    __device__ __forceinline__ void use(float (&sums)[SETS][N], const part<N> &numbers, int,
                                        int) const
    {
#pragma unroll
        for (int n = 0; n < N; n++)
            sums[0][n] += numbers.at(n);
    }
};

template <class T> alibi_status sum_columns(struct context *c, struct tensor sums, struct tensor x)
{
    constexpr int N = pack<T>::N;
    const int64_t rows = x.shape[0], columns = x.shape[1];
    const column_sums<T> op = { (const T *)x.data, (int)columns };

    if (columns % N == 0 && aligned(x.data))
        return column_pass<N>(c, "column sums", op, (float *)sums.data, rows, columns);
    return column_pass<1>(c, "column sums", op, (float *)sums.data, rows, columns);
}

// ---- adding a bias

// Columns are a multiple of N, so the numbers of a thread belong to one row.
template <class T> struct add_bias {
    T *y;
    const T *bias;
    int64_t columns;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        float sum[N], part[N];

        load<N>(sum, y + i);
        load<N>(part, bias + i % columns);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] += part[k];
        store<N>(y + i, sum);
    }
};

template <class T> alibi_status run_add_bias(struct context *c, struct tensor y, struct tensor bias)
{
    constexpr int N = pack<T>::N;
    const add_bias<T> op = { (T *)y.data, (const T *)bias.data, y.shape[1] };

    return each<N>(c, "bias", op, tensor_count(y),
                   y.shape[1] % N == 0 && aligned(y.data, bias.data));
}

} // namespace

alibi_status cuda_add_partials(struct context *c, float *sums, float *more, const float *partials,
                               int64_t count, int64_t columns, float *last)
{
    const struct targets targets = { { sums, more ? more : last, last } };
    const dim3 grid((unsigned)ceil_div(columns, LANES), 1u + (more != NULL) + (last != NULL));

    return launch(c, "partial sums", add_partials_kernel, grid, dim3(LANES, ADDERS), 0, targets,
                  partials, (int)count, columns);
}

// A sum per column of each block. If there are more stripes than blocks are wanted, there is one
// slice.
size_t cuda_column_bytes(int64_t columns)
{
    const int64_t of_blocks = MULTIPROCESSORS * MOST_BLOCKS * LANES * MOST_COLUMNS;
    const int64_t factors[] = { MOST_SETS, columns > of_blocks ? columns : of_blocks,
                                (int64_t)sizeof(float) };

    return cuda_bytes(factors, 3);
}

alibi_status cuda_column_sums(struct context *c, struct tensor sums, struct tensor x)
{
    DISPATCH(x.type, T, return sum_columns<T>(c, sums, x));
}

alibi_status cuda_add_bias(struct context *c, struct tensor y, struct tensor bias)
{
    DISPATCH(y.type, T, return run_add_bias<T>(c, y, bias));
}
