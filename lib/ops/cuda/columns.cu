// columns.cu - what a bias needs: sums over rows, and adding to each row
//
//   sums[n] += sum_r x[r, n]                     y[r, n] = bias[n] + residual[r, n]
//
// The sums take two steps, so that their order is fixed. First each block adds a slice of the rows for a stripe of the columns:
// its warps take the rows in turns and a lane keeps the same columns throughout, so that a warp reads 512 bytes in one go.
// Then the slices' sums are added, in order, to what is there.
#include "ops/cuda/launch.cuh"

enum { LANES = 32, WARPS = 8, SLICE_ROWS_MIN = 64 };
static const int64_t slices_max = 256;

template <class T, int N> static __device__ __forceinline__ void load_columns(float to[N], const T *from)
{
    if constexpr (N == 1) {
        to[0] = to_float(*from);
    } else {
        pack<T> p = load_pack(from);
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = p.at[i];
    }
}

// This thread's columns over the rows of its warp in rows first..end-1; four rows are on their way at a time.
template <class T, int N>
static __device__ __forceinline__ void add_rows(float sum[N], const T *x, int64_t columns, int64_t first, int64_t end)
{
    int64_t r = first + threadIdx.y;

    for (; r + 3 * WARPS < end; r += 4 * WARPS) {
        float row[4][N];
#pragma unroll
        for (int i = 0; i < 4; i++)
            load_columns<T, N>(row[i], x + (r + i * WARPS) * columns);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int n = 0; n < N; n++)
                sum[n] += row[i][n];
    }
    for (; r < end; r += WARPS) {
        float row[N];
        load_columns<T, N>(row, x + r * columns);
#pragma unroll
        for (int n = 0; n < N; n++)
            sum[n] += row[n];
    }
}

// partial [slices, columns]; block (stripe, slice), threads (lane, warp); N columns per lane, a divisor of `columns`.
template <class T, int N>
static __global__ void __launch_bounds__(LANES *WARPS)
    sum_slices(float *partial, const T *x, int64_t rows, int64_t columns, int64_t slice_rows)
{
    __shared__ float of_warp[WARPS][LANES * N];
    int64_t stripe = (int64_t)blockIdx.x * LANES * N, column = stripe + (int64_t)threadIdx.x * N;
    int64_t first = (int64_t)blockIdx.y * slice_rows, end = first + slice_rows < rows ? first + slice_rows : rows;
    float sum[N] = {};

    if (column < columns)
        add_rows<T, N>(sum, x + column, columns, first, end);
#pragma unroll
    for (int n = 0; n < N; n++)
        of_warp[threadIdx.y][threadIdx.x * N + n] = sum[n];
    __syncthreads();
    for (int n = (int)(threadIdx.y * LANES + threadIdx.x); n < LANES * N && stripe + n < columns; n += LANES * WARPS) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += of_warp[w][n];
        partial[blockIdx.y * columns + stripe + n] = total;
    }
}

// A column per lane; warp w adds slices w, w + WARPS, ..., then the first warp adds what they have.
static __global__ void __launch_bounds__(LANES *WARPS) add_slices(float *sums, const float *partial, int64_t columns, int slices)
{
    __shared__ float of_warp[WARPS][LANES];
    int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x;
    float sum = 0.0f;

    if (column < columns)
#pragma unroll 4
        for (int s = (int)threadIdx.y; s < slices; s += WARPS)
            sum += partial[s * columns + column];
    of_warp[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns)
        return;
    sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += of_warp[w][threadIdx.x];
    sums[column] += sum;
}

// Slices of rows, so that there are about eight blocks per multiprocessor, none with hardly any rows.
static int64_t count_slices(struct cuda *c, int64_t rows, int64_t stripes)
{
    int64_t slices = ceil_div((int64_t)c->multiprocessors * 8, stripes), most = ceil_div(rows, SLICE_ROWS_MIN);

    slices = slices < most ? slices : most;
    return slices < slices_max ? slices : slices_max;
}

template <class T, int N> static alibi_status sum_columns(struct cuda *c, float *sums, const T *x, int64_t rows, int64_t columns)
{
    int64_t stripes = ceil_div(columns, LANES * N), slice_rows = ceil_div(rows, count_slices(c, rows, stripes));
    int64_t slices = ceil_div(rows, slice_rows);
    dim3 threads(LANES, WARPS);
    void *partial = NULL;

    TRY_RETURN(cuda_scratch(c, SCRATCH_SUMS, (size_t)slices * (size_t)columns * sizeof(float), &partial));
    TRY_RETURN(launch(c, "column sums", sum_slices<T, N>, dim3((unsigned)stripes, (unsigned)slices), threads, 0, (float *)partial,
                      x, rows, columns, slice_rows));
    return launch(c, "column sums", add_slices, dim3((unsigned)ceil_div(columns, LANES)), threads, 0, sums,
                  (const float *)partial, columns, (int)slices);
}

template <class T> static alibi_status sum_columns_of(struct cuda *c, struct tensor sums, struct tensor x)
{
    int64_t rows = x.shape[0], columns = x.shape[1];

    if ((uintptr_t)x.data % 16 == 0 && columns % pack<T>::N == 0)
        return sum_columns<T, pack<T>::N>(c, (float *)sums.data, (const T *)x.data, rows, columns);
    return sum_columns<T, 1>(c, (float *)sums.data, (const T *)x.data, rows, columns);
}

alibi_status cuda_column_sums(struct cuda *c, struct tensor sums, struct tensor x)
{
    if (tensor_count(x) == 0)
        return ALIBI_OK;
    DISPATCH(x.type, T, return sum_columns_of<T>(c, sums, x));
}

// ---- adding a bias

template <class T> static __global__ void add_bias(T *y, const T *bias, const T *residual, int64_t count, int64_t columns)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        y[i] = from_float<T>((bias != NULL ? to_float(bias[i % columns]) : 0.0f) +
                             (residual != NULL ? to_float(residual[i]) : 0.0f));
}

alibi_status cuda_add_bias(struct cuda *c, struct tensor y, struct tensor bias, struct tensor residual)
{
    int64_t count = tensor_count(y), blocks = ceil_div(count, LANES * WARPS), most = (int64_t)c->multiprocessors * 16;
    dim3 grid((unsigned)(blocks < most ? blocks : most));

    if (count == 0)
        return ALIBI_OK;
    DISPATCH(y.type, T,
             return launch(c, "bias", add_bias<T>, grid, LANES * WARPS, 0, (T *)y.data, (const T *)bias.data,
                           (const T *)residual.data, count, y.shape[1]));
}
