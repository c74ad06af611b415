// norm.cu - layer norm and RMS norm
//
//   y = n * weight + bias,     n = (x - mean) * rstd,     rstd = 1 / sqrt(mean((x - mean)^2) + eps)
//
// RMS norm is the same with a mean of 0. Backward, with g = dy * weight and the means taken over the row:
//
//   dx += rstd * (g - mean(g) - n * mean(g * n));     dweight += sum over rows of dy * n;     dbias += sum over rows of dy
//
// where RMS norm has no mean(g). The sums over rows are made in groups of rows, whose number depends on the shape alone; the
// groups' sums are then added in order. CENTRED is layer norm.
#include "ops/cuda/launch.cuh"

// ---- forward

enum { HELD = 4 }; // accesses of a row that a thread keeps in registers

template <class T> struct norm_forward {
    T *y;
    float *mean, *rstd; // mean is absent in RMS norm
    const T *x;
    const float *weight, *bias; // bias may be absent
    int64_t rows;
    int C;
    float per_row, eps; // 1 / C
};

// A row in the hands of WIDTH threads: the first HELD accesses of each in registers, the rest, if it is that long, in memory.
template <class T, int N, int WIDTH> struct held_row {
    float at[HELD][N];
    const T *x;
    int C;

    __device__ __forceinline__ held_row(const T *row, int length) : x(row), C(length)
    {
#pragma unroll
        for (int p = 0; p < HELD; p++)
            if (column(p) < C)
                load<N>(at[p], x + column(p));
    }

    static __device__ __forceinline__ int column(int p)
    {
        return (p * WIDTH + (int)threadIdx.x) * N;
    }

    // f(c, numbers c..c+N-1) for the thread's own numbers.
    template <class F> __device__ __forceinline__ void each(F f) const
    {
#pragma unroll
        for (int p = 0; p < HELD; p++)
            if (column(p) < C)
                f(column(p), at[p]);
        for (int c = column(HELD); c < C; c += WIDTH * N) {
            float more[N];
            load<N>(more, x + c);
            f(c, more);
        }
    }
};

template <int WIDTH> static __device__ __forceinline__ float row_sum(float x)
{
    return WIDTH == 32 ? warp_sum(x) : block_sum(x);
}

template <int N, int WIDTH, class Row> static __device__ __forceinline__ float mean_of(const Row &row, float per_row)
{
    float sum = 0.0f;

    row.each([&](int, const float(&x)[N]) {
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += x[k];
    });
    return row_sum<WIDTH>(sum) * per_row;
}

// The second step avoids the cancellation of E[x^2] - E[x]^2.
template <int N, int WIDTH, class Row>
static __device__ __forceinline__ float variance_of(const Row &row, float mean, float per_row)
{
    float sum = 0.0f;

    row.each([&](int, const float(&x)[N]) {
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += (x[k] - mean) * (x[k] - mean);
    });
    return row_sum<WIDTH>(sum) * per_row;
}

// Blocks are WIDTH x (rows at once). Every thread of a row's warp, or block, stays: it takes part in the sums.
template <class T, int N, int WIDTH, bool CENTRED>
static __global__ void __launch_bounds__(WIDTH == 32 ? 128 : WIDTH) forward_kernel(struct norm_forward<T> a)
{
    const int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;

    if (r >= a.rows)
        return;
    const held_row<T, N, WIDTH> row(a.x + r * a.C, a.C);
    const float mean = CENTRED ? mean_of<N, WIDTH>(row, a.per_row) : 0.0f;
    const float rstd = rsqrtf(variance_of<N, WIDTH>(row, mean, a.per_row) + a.eps);

    row.each([&](int c, const float(&x)[N]) {
        float weight[N], bias[N] = {}, y[N];
        load<N>(weight, a.weight + c);
        if (a.bias)
            load<N>(bias, a.bias + c);
#pragma unroll
        for (int k = 0; k < N; k++)
            y[k] = (x[k] - mean) * rstd * weight[k] + bias[k];
        store<N>(a.y + r * a.C + c, y);
    });
    if (threadIdx.x == 0) {
        if (CENTRED)
            a.mean[r] = mean;
        a.rstd[r] = rstd;
    }
}

template <class T, int N, int WIDTH, bool CENTRED> static alibi_status launch_forward(struct cuda *c, struct norm_forward<T> a)
{
    const dim3 block(WIDTH, WIDTH == 32 ? 4 : 1);

    return launch(c, "norm", forward_kernel<T, N, WIDTH, CENTRED>, dim3((unsigned)ceil_div(a.rows, block.y)), block, 0, a);
}

// As few threads as can hold a row.
template <class T, int N, bool CENTRED> static alibi_status fit_forward(struct cuda *c, struct norm_forward<T> a)
{
    if (a.C <= 32 * HELD * N)
        return launch_forward<T, N, 32, CENTRED>(c, a);
    if (a.C <= 256 * HELD * N)
        return launch_forward<T, N, 256, CENTRED>(c, a);
    return launch_forward<T, N, 1024, CENTRED>(c, a);
}

template <class T, bool CENTRED>
static alibi_status run_forward(struct cuda *c, struct tensor y, struct tensor mean, struct tensor rstd, struct tensor x,
                                struct tensor weight, struct tensor bias, double eps)
{
    constexpr int N = pack<T>::N;
    const struct norm_forward<T> a = {
        (T *)y.data, (float *)mean.data, (float *)rstd.data, (const T *)x.data, (const float *)weight.data,
            (const float *)bias.data, x.shape[0], (int)x.shape[1], 1.0f / (float)x.shape[1], (float)eps
    };

    if (a.rows == 0)
        return ALIBI_OK;
    if (a.C % N == 0 && aligned(a.y, a.x, a.weight, a.bias))
        return fit_forward<T, N, CENTRED>(c, a);
    return fit_forward<T, 1, CENTRED>(c, a);
}

alibi_status cuda_layernorm_forward(struct device *dev, struct tensor y, struct tensor mean, struct tensor rstd, struct tensor x,
                                    struct tensor weight, struct tensor bias, double eps)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "norm forward");
    DISPATCH(x.type, T, return (run_forward<T, true>(c, y, mean, rstd, x, weight, bias, eps)));
}

alibi_status cuda_rmsnorm_forward(struct device *dev, struct tensor y, struct tensor rstd, struct tensor x, struct tensor weight,
                                  struct tensor bias, double eps)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "norm forward");
    DISPATCH(x.type, T, return (run_forward<T, false>(c, y, tensor_none(), rstd, x, weight, bias, eps)));
}

// ---- backward

template <class T> struct norm_backward {
    T *dx;
    const T *dy, *x;
    const float *weight, *mean, *rstd; // mean is absent in RMS norm
    float *groups;                     // sums of dweight and dbias, [groups, 2, C]
    int64_t rows;
    int C;
    float per_row; // 1 / C
};

// Over a row: of g, and of g * n; their sums, then their means.
struct row_sums {
    float g, gn;
};

template <bool CENTRED> static __device__ __forceinline__ float input_gradient(float g, float n, float rstd, struct row_sums mean)
{
    return rstd * (g - (CENTRED ? mean.g : 0.0f) - n * mean.gn);
}

// The means of R rows from the sums of a block's threads, by way of `of_warp`, that must not be in use from the call before.
template <int R>
static __device__ __forceinline__ void means_of_block(struct row_sums (&sums)[R], struct row_sums (&of_warp)[R][32],
                                                      float per_row)
{
#pragma unroll
    for (int k = 0; k < R; k++) {
        const struct row_sums s = { warp_sum(sums[k].g), warp_sum(sums[k].gn) };
        if (threadIdx.x % 32 == 0)
            of_warp[k][threadIdx.x / 32] = s;
        sums[k] = { 0.0f, 0.0f };
    }
    __syncthreads();
    for (int warp = 0; warp < blockDim.x / 32; warp++)
#pragma unroll
        for (int k = 0; k < R; k++) {
            sums[k].g += of_warp[k][warp].g;
            sums[k].gn += of_warp[k][warp].gn;
        }
#pragma unroll
    for (int k = 0; k < R; k++)
        sums[k] = { sums[k].g * per_row, sums[k].gn * per_row };
}

// Number i of 16 bytes. Rows wait in registers as they came; compilers give each number of a chunk a register of its own.
template <class T> static __device__ __forceinline__ float number(uint4 bits, int i)
{
    const int at = i * (int)sizeof(T) / 4;
    const uint32_t word = at == 0 ? bits.x : at == 1 ? bits.y : at == 2 ? bits.z : bits.w;

    if (sizeof(T) == 4)
        return __uint_as_float(word);
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
}

template <class T> static __device__ __forceinline__ uint4 load_bits(const T *from)
{
    return *reinterpret_cast<const uint4 *>(from);
}

// R rows of a group, as a thread's columns of them lie before it. Columns and rows that are not there are 0.
template <class T, int R> struct strip {
    uint4 x[R], dy[R], dx[R];
    float mean[R], rstd[R];

    __device__ __forceinline__ strip(const struct norm_backward<T> &a, int64_t first, int c)
    {
#pragma unroll
        for (int k = 0; k < R; k++) {
            const bool there = first + k < a.rows;
            const int64_t at = (first + k) * a.C + c;
            mean[k] = there && a.mean ? a.mean[first + k] : 0.0f;
            rstd[k] = there ? a.rstd[first + k] : 0.0f;
            x[k] = dy[k] = dx[k] = make_uint4(0, 0, 0, 0);
            if (there && c < a.C) {
                x[k] = load_bits(a.x + at);
                dy[k] = load_bits(a.dy + at);
                dx[k] = load_bits(a.dx + at);
            }
        }
    }

    __device__ __forceinline__ float n(int k, int i) const
    {
        return (number<T>(x[k], i) - mean[k]) * rstd[k];
    }
};

// Adds a strip to the thread's sums over rows, and finds its part of the sums over columns.
template <class T, int N, int R>
static __device__ __forceinline__ void add_strip(float (&dweight)[N], float (&dbias)[N], struct row_sums (&sums)[R],
                                                 const strip<T, R> &s, const float (&weight)[N])
{
#pragma unroll
    for (int k = 0; k < R; k++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float d = number<T>(s.dy[k], i), g = d * weight[i], n = s.n(k, i);
            dweight[i] += d * n;
            dbias[i] += d;
            sums[k].g += g;
            sums[k].gn += g * n;
        }
}

template <bool CENTRED, class T, int N>
static __device__ __forceinline__ void write_row(T *to, const float (&weight)[N], uint4 dx, uint4 dy, uint4 x, float mean,
                                                 float rstd, struct row_sums means)
{
    float sum[N];

#pragma unroll
    for (int i = 0; i < N; i++) {
        const float g = number<T>(dy, i) * weight[i], n = (number<T>(x, i) - mean) * rstd;
        sum[i] = number<T>(dx, i) + input_gradient<CENTRED>(g, n, rstd, means);
    }
    store<N>(to, sum);
}

// A block walks the rows of its group, R at a time for many loads under way; a thread has N columns. One barrier per step: the
// places of the sums alternate.
template <class T, bool CENTRED, int R>
static __global__ void __launch_bounds__(R == 1 ? 1024 : 512) backward_kernel(struct norm_backward<T> a)
{
    constexpr int N = pack<T>::N;
    __shared__ struct row_sums of_warp[2][R][32];
    const int c = (int)threadIdx.x * N;
    float weight[N] = {}, dweight[N] = {}, dbias[N] = {};
    int turn = 0;

    if (c < a.C)
        load<N>(weight, a.weight + c);
    for (int64_t first = (int64_t)blockIdx.x * R; first < a.rows; first += (int64_t)gridDim.x * R, turn ^= 1) {
        const strip<T, R> s(a, first, c);
        struct row_sums sums[R] = {};
        add_strip<T, N, R>(dweight, dbias, sums, s, weight);
        means_of_block<R>(sums, of_warp[turn], a.per_row);
#pragma unroll
        for (int k = 0; k < R; k++)
            if (first + k < a.rows && c < a.C)
                write_row<CENTRED>(a.dx + (first + k) * a.C + c, weight, s.dx[k], s.dy[k], s.x[k], s.mean[k], s.rstd[k], sums[k]);
    }
    if (c < a.C) {
        store<N>(a.groups + (int64_t)blockIdx.x * 2 * a.C + c, dweight);
        store<N>(a.groups + ((int64_t)blockIdx.x * 2 + 1) * a.C + c, dbias);
    }
}

// ---- backward for rows that are too long for a block, or not aligned: dx by rows, then the sums by columns

enum { PLAIN_THREADS = 256 };

template <class T, bool CENTRED> static __global__ void __launch_bounds__(PLAIN_THREADS) rows_kernel(struct norm_backward<T> a)
{
    const int64_t r = blockIdx.x;
    const float mean = CENTRED ? a.mean[r] : 0.0f, rstd = a.rstd[r];
    const T *x = a.x + r * a.C, *dy = a.dy + r * a.C;
    T *dx = a.dx + r * a.C;
    struct row_sums sums = { 0.0f, 0.0f };

    for (int c = (int)threadIdx.x; c < a.C; c += PLAIN_THREADS) {
        const float g = to_float(dy[c]) * a.weight[c];
        sums.g += g;
        sums.gn += g * (to_float(x[c]) - mean) * rstd;
    }
    sums = { block_sum(sums.g) * a.per_row, block_sum(sums.gn) * a.per_row };
    for (int c = (int)threadIdx.x; c < a.C; c += PLAIN_THREADS) {
        const float g = to_float(dy[c]) * a.weight[c], n = (to_float(x[c]) - mean) * rstd;
        dx[c] = from_float<T>(to_float(dx[c]) + input_gradient<CENTRED>(g, n, rstd, sums));
    }
}

// A thread has one column of one group of rows.
template <class T, bool CENTRED> static __global__ void __launch_bounds__(PLAIN_THREADS) columns_kernel(struct norm_backward<T> a)
{
    const int c = (int)(blockIdx.x * PLAIN_THREADS + threadIdx.x);
    float dweight = 0.0f, dbias = 0.0f;

    if (c >= a.C)
        return;
#pragma unroll 4
    for (int64_t r = blockIdx.y; r < a.rows; r += gridDim.y) {
        const float d = to_float(a.dy[r * a.C + c]);
        dweight += d * (to_float(a.x[r * a.C + c]) - (CENTRED ? a.mean[r] : 0.0f)) * a.rstd[r];
        dbias += d;
    }
    a.groups[(int64_t)blockIdx.y * 2 * a.C + c] = dweight;
    a.groups[((int64_t)blockIdx.y * 2 + 1) * a.C + c] = dbias;
}

template <class T, bool CENTRED> static alibi_status plain_backward(struct cuda *c, struct norm_backward<T> a, unsigned groups)
{
    const dim3 columns((unsigned)ceil_div(a.C, PLAIN_THREADS), groups);

    TRY_RETURN(launch(c, "gradient of norm", rows_kernel<T, CENTRED>, dim3((unsigned)a.rows), dim3(PLAIN_THREADS), 0, a));
    return launch(c, "gradient of norm", columns_kernel<T, CENTRED>, columns, dim3(PLAIN_THREADS), 0, a);
}

// ---- adding up the groups: 32 columns per block, 32 threads per column

enum { ADDERS = 32 };

static __global__ void __launch_bounds__(32 * ADDERS)
    add_groups_kernel(float *dweight, float *dbias, const float *groups, int count, int C)
{
    __shared__ float sums[ADDERS][32];
    const int c = (int)(blockIdx.x * 32 + threadIdx.x);
    float *to = blockIdx.y == 0 ? dweight : dbias;
    float sum = 0.0f;

    if (c < C)
#pragma unroll 8
        for (int g = (int)threadIdx.y; g < count; g += ADDERS)
            sum += groups[((int64_t)g * 2 + blockIdx.y) * C + c];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= C)
        return;
    for (int y = 1; y < ADDERS; y++)
        sum += sums[y][threadIdx.x];
    to[c] += sum;
}

// At least 8 rows each, or writing the sums would cost more than reading the rows.
static unsigned groups_of(int64_t rows)
{
    const int64_t groups = ceil_div(rows, 8);

    return (unsigned)(groups < 528 ? groups : 528);
}

template <class T, bool CENTRED> static alibi_status row_groups(struct cuda *c, struct norm_backward<T> a, unsigned groups)
{
    constexpr int N = pack<T>::N;
    const bool vector = a.C % N == 0 && aligned(a.dx, a.dy, a.x, a.weight);
    const dim3 block((unsigned)ceil_div(ceil_div(a.C, N), 32) * 32);

    if (vector && block.x <= 512)
        return launch(c, "gradient of norm", backward_kernel<T, CENTRED, 4>, dim3(groups), block, 0, a);
    if (vector && block.x <= 1024)
        return launch(c, "gradient of norm", backward_kernel<T, CENTRED, 1>, dim3(groups), block, 0, a);
    return plain_backward<T, CENTRED>(c, a, groups);
}

template <class T, bool CENTRED>
static alibi_status run_backward(struct cuda *c, struct tensor dx, struct tensor dweight, struct tensor dbias, struct tensor dy,
                                 struct tensor x, struct tensor weight, struct tensor mean, struct tensor rstd)
{
    struct norm_backward<T> a = {
        (T *)dx.data, (const T *)dy.data, (const T *)x.data, (const float *)weight.data, (const float *)mean.data,
            (const float *)rstd.data, NULL, x.shape[0], (int)x.shape[1], 1.0f / (float)x.shape[1]
    };
    const unsigned groups = groups_of(a.rows);
    const dim3 grid((unsigned)ceil_div(a.C, 32), dbias.data ? 2 : 1);

    if (a.rows == 0 || a.C == 0)
        return ALIBI_OK;
    TRY_RETURN(cuda_scratch(c, SCRATCH_SUMS, (size_t)groups * 2 * (size_t)a.C * sizeof(float), (void **)&a.groups));
    TRY_RETURN((row_groups<T, CENTRED>(c, a, groups)));
    return launch(c, "gradient of norm", add_groups_kernel, grid, dim3(32, ADDERS), 0, (float *)dweight.data, (float *)dbias.data,
                  (const float *)a.groups, (int)groups, a.C);
}

alibi_status cuda_layernorm_backward(struct device *dev, struct tensor dx, struct tensor dweight, struct tensor dbias,
                                     struct tensor dy, struct tensor x, struct tensor weight, struct tensor mean,
                                     struct tensor rstd)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "norm backward");
    DISPATCH(x.type, T, return (run_backward<T, true>(c, dx, dweight, dbias, dy, x, weight, mean, rstd)));
}

alibi_status cuda_rmsnorm_backward(struct device *dev, struct tensor dx, struct tensor dweight, struct tensor dbias,
                                   struct tensor dy, struct tensor x, struct tensor weight, struct tensor rstd)
{
    struct cuda *c = cuda_of(dev);

    cuda_part(c, "norm backward");
    DISPATCH(x.type, T, return (run_backward<T, false>(c, dx, dweight, dbias, dy, x, weight, tensor_none(), rstd)));
}
