// norm.cu - layer norm and RMS norm, with the residual added first
//
//   sum = x + dropout(branch),   y = n * weight + bias,   n = (sum - mean) * rstd
//   rstd = 1 / sqrt(mean((sum - mean)^2) + eps)
//
// RMS norm is the same with a mean of 0 (CENTRED: layer norm). Without a branch x takes the place
// of sum; norm.cuh has these equations. Backward, with g = dy * weight and the means over the row:
//
//   dx += rstd * (g - mean(g) - n * mean(g * n))          RMS norm has no mean(g)
//   dweight += sum over rows of dy * n,   dbias += sum over rows of dy
//
//   forward_kernel     a warp or a block per row, which stays in registers. The next row is loaded
//                      while one is normalised
//   backward_kernel    a block walks a group of rows in strips of R rows. Two strips are in shared
//                      memory: cp.async loads one while the other is used. A thread keeps its
//                      columns, so dweight and dbias stay in registers to the end of the group
//   rows_kernel, columns_kernel     backward for rows that are too long or not aligned
//
// The number of groups depends on the shape only; their sums are added in order (columns.cu).
#include <cuda_pipeline_primitives.h>

#include "ops/cuda/columns.cuh"
#include "ops/cuda/norm.cuh"

namespace
{

// ---- forward

template <int N, int WIDTH> __device__ __forceinline__ int column(int p)
{
    return (p * WIDTH + (int)threadIdx.x) * N;
}

// A row that is being loaded: the first NORM_HELD accesses of each of WIDTH threads.
template <class T, int N, int WIDTH, bool BRANCH> struct coming_row {
    bits<T, N> x[NORM_HELD], branch[BRANCH ? NORM_HELD : 1];

    __device__ __forceinline__ void read(const struct norm_forward<T> &a, int64_t r)
    {
        if (r >= a.rows)
            return;
#pragma unroll
        for (int p = 0; p < NORM_HELD; p++) {
            const int c = column<N, WIDTH>(p);
            if (c >= a.C)
                continue;
            x[p] = load_bits<N>(a.x + r * a.C + c);
            if constexpr (BRANCH)
                branch[p] = load_bits<N>(a.branch + r * a.C + c);
        }
    }
};

// Stores x + dropout(branch) and returns it as stored, i.e. rounded; `i` is its first element.
template <class T, int N>
__device__ __forceinline__ bits<T, N> add_branch(const struct norm_forward<T> &a, bits<T, N> x,
                                                 bits<T, N> branch, int64_t i)
{
    float sum[N];

#pragma unroll
    for (int k = 0; k < N; k++)
        sum[k] = branch.at(k);
    if (a.mask.threshold > 0)
        drop<N>(sum, a.mask, i);
    const bits<T, N> rounded = residual_sum(x, sum);
    store_bits<N>(a.sum + i, rounded);
    return rounded;
}

// The row that is normalised by WIDTH threads: the loaded part, with the branch added, in
// registers; the rest of a longer row in memory.
template <class T, int N, int WIDTH> struct held_row {
    bits<T, N> at[NORM_HELD];
    const T *row;
    int C;

    template <bool BRANCH>
    __device__ __forceinline__ held_row(const struct norm_forward<T> &a, int64_t r,
                                        const struct coming_row<T, N, WIDTH, BRANCH> &coming)
        : row((BRANCH ? a.sum : a.x) + r * a.C), C(a.C)
    {
#pragma unroll
        for (int p = 0; p < NORM_HELD; p++) {
            at[p] = coming.x[p];
            if constexpr (BRANCH)
                if (column<N, WIDTH>(p) < C)
                    at[p] =
                        add_branch(a, coming.x[p], coming.branch[p], r * C + column<N, WIDTH>(p));
        }
        if constexpr (BRANCH)
#pragma unroll 1
            for (int64_t c = column<N, WIDTH>(NORM_HELD), i = r * C + c; c < C;
                 c += WIDTH * N, i += WIDTH * N)
                add_branch(a, load_bits<N>(a.x + i), load_bits<N>(a.branch + i), i);
    }

    // Calls f(c, numbers c..c+N-1) for the thread's own columns.
    template <class F> __device__ __forceinline__ void each(F f) const
    {
#pragma unroll
        for (int p = 0; p < NORM_HELD; p++)
            if (column<N, WIDTH>(p) < C)
                f(column<N, WIDTH>(p), at[p]);
#pragma unroll 1
        for (int c = column<N, WIDTH>(NORM_HELD); c < C; c += WIDTH * N)
            f(c, load_bits<N>(row + c));
    }
};

// Weight and bias come to the L2 cache while the kernel before this one runs: N columns of them are
// a sector of it.
template <class T, int N, int WIDTH>
__device__ __forceinline__ void fetch_parameters(const struct norm_forward<T> &a)
{
    if constexpr (N > 1)
#pragma unroll
        for (int p = 0; p < NORM_HELD; p++) {
            const int c = column<N, WIDTH>(p);
            if (c >= a.C)
                break;
            (void)load_once(a.weight + c);
            if (a.bias)
                (void)load_once(a.bias + c);
        }
}

template <int WIDTH> __device__ __forceinline__ float row_sum(float x)
{
    return WIDTH == 32 ? warp_sum(x) : block_sum(x);
}

template <class T, int N, int WIDTH>
__device__ __forceinline__ float mean_of(const held_row<T, N, WIDTH> &row, float per_row)
{
    float sum = 0.0f;

    row.each([&](int, bits<T, N> x) { add_numbers(sum, x); });
    return mean_of_sum(row_sum<WIDTH>(sum), per_row);
}

template <class T, int N, int WIDTH>
__device__ __forceinline__ float rstd_of(const held_row<T, N, WIDTH> &row, float mean,
                                         float per_row, float eps)
{
    float squares = 0.0f;

    row.each([&](int, bits<T, N> x) { add_squares(squares, x, mean); });
    return rstd_of_squares(row_sum<WIDTH>(squares), per_row, eps);
}

template <class T, int N, int WIDTH>
__device__ __forceinline__ void write_output(const struct norm_forward<T> &a, int64_t r,
                                             const held_row<T, N, WIDTH> &row, float mean,
                                             float rstd)
{
    row.each([&](int c, bits<T, N> x) {
        float weight[N], bias[N] = {}, y[N];
        load<N>(weight, a.weight + c);
        if (a.bias)
            load<N>(bias, a.bias + c);
#pragma unroll
        for (int k = 0; k < N; k++)
            y[k] = output(normalised(x.at(k), mean, rstd), weight[k], bias[k]);
        store<N>(a.y + r * a.C + c, y);
    });
}

// Resident threads per multiprocessor for which the registers suffice.
template <class T, bool BRANCH>
constexpr int resident = sizeof(T) == 2 ? (BRANCH ? 640 : 1024) : (BRANCH ? 512 : 640);

// Blocks are WIDTH x (rows at once). All threads of a row stay to the end: they take part in the
// reductions.
template <class T, int N, int WIDTH, bool CENTRED, bool BRANCH>
__global__ void __launch_bounds__(WIDTH == 32 ? 128 : WIDTH,
                                  resident<T, BRANCH> / (WIDTH == 32 ? 128 : WIDTH))
    forward_kernel(struct norm_forward<T> a)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.y;
    struct coming_row<T, N, WIDTH, BRANCH> coming;
    int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;

    let_next_kernel_start();
    fetch_parameters<T, N, WIDTH>(a);
    wait_for_kernel_before();
    for (coming.read(a, r); r < a.rows; r += step) {
        const held_row<T, N, WIDTH> row(a, r, coming);
        coming.read(a, r + step);
        const float mean = CENTRED ? mean_of(row, a.per_row) : 0.0f;
        const float rstd = rstd_of(row, mean, a.per_row, a.eps);
        write_output(a, r, row, mean, rstd);
        if (threadIdx.x == 0) {
            if (CENTRED)
                a.mean[r] = mean;
            a.rstd[r] = rstd;
        }
    }
}

// As many blocks as can be resident. Rows are independent, so results do not depend on the number
// of blocks.
template <class T, int N, int WIDTH, bool CENTRED, bool BRANCH>
alibi_status launch_forward(struct context *c, struct norm_forward<T> a)
{
    const dim3 block(WIDTH, WIDTH == 32 ? 4 : 1);
    const int64_t all = ceil_div(a.rows, block.y),
                  room = (int64_t)c->multiprocessors * (resident<T, BRANCH> / (WIDTH * block.y));

    return chain(c, "norm", forward_kernel<T, N, WIDTH, CENTRED, BRANCH>,
                 dim3((unsigned)(all < room ? all : room)), block, 0, a);
}

// As few threads as can hold a row.
template <class T, int N, bool CENTRED, bool BRANCH>
alibi_status fit_forward(struct context *c, struct norm_forward<T> a)
{
    if (a.C <= 32 * NORM_HELD * N)
        return launch_forward<T, N, 32, CENTRED, BRANCH>(c, a);
    if (a.C <= 64 * NORM_HELD * N)
        return launch_forward<T, N, 64, CENTRED, BRANCH>(c, a);
    return launch_forward<T, N, 256, CENTRED, BRANCH>(c, a);
}

template <class T, int N, bool CENTRED>
alibi_status fit_branch(struct context *c, struct norm_forward<T> a)
{
    if (a.branch)
        return fit_forward<T, N, CENTRED, true>(c, a);
    return fit_forward<T, N, CENTRED, false>(c, a);
}

template <class T, bool CENTRED>
alibi_status run_forward(struct context *c, const struct norm_args *args)
{
    const norm_forward<T> a = norm_forward_of<T>(args);

    if (a.rows == 0)
        return ALIBI_OK;
    if (takes_packs(a))
        return fit_branch<T, pack<T>::N, CENTRED>(c, a);
    return fit_branch<T, 1, CENTRED>(c, a);
}

// ---- backward

template <class T> struct norm_backward {
    T *dx, *y; // y may be absent
    const T *dy, *x;
    const float *weight, *bias, *mean, *rstd; // bias may be absent; mean is, in RMS norm
    float *groups; // sums of dweight, with a bias of dbias, with SUMS of dx: [groups, sets, C]
    int sets;
    int64_t rows;
    int C;
    float per_row; // 1 / C
};

// Sums over a row of g and g * n; later their means.
struct row_sums {
    float g, gn;
};

template <bool CENTRED>
__device__ __forceinline__ float input_gradient(float g, float n, float rstd, struct row_sums mean)
{
    return rstd * (g - (CENTRED ? mean.g : 0.0f) - n * mean.gn);
}

// Rows per strip of a block of up to 256 threads; larger blocks have one.
enum { STRIP = 4 };
template <int R> constexpr int warps_of = R == 1 ? 32 : 8;

// The means of R rows from the sums of a block's threads, through `of_warp`. Two calls in a row
// must use different ones.
template <int R>
__device__ __forceinline__ void means_of_block(struct row_sums (&sums)[R],
                                               struct row_sums (&of_warp)[R][warps_of<R>],
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

// R rows of a group: 16 bytes of x, dy and dx of each per thread, in one of two strips of shared
// memory. A thread reads only numbers that it loaded itself, so no block barrier is needed for
// them; statistics are loaded by the warp. Missing columns and rows are 0.
enum { STRIPS = 2, STRIP_X = 0, STRIP_DY, STRIP_DX, STRIP_ROWS };

template <class T, int R> struct strip {
    float mean[R], rstd[R];
    int buffer;

    __device__ __forceinline__ uint4 *numbers(int k, int which) const
    {
        return dynamic_shared<uint4>() + ((buffer * R + k) * STRIP_ROWS + which) * blockDim.x +
               threadIdx.x;
    }

    // Means of R rows, then their rstd.
    __device__ __forceinline__ float *statistics() const
    {
        __shared__ float of_warp[STRIPS][warps_of<R>][2 * R];

        return of_warp[buffer][threadIdx.x / 32];
    }

    __device__ __forceinline__ void load_statistics(const struct norm_backward<T> &a,
                                                    int64_t first) const
    {
        const int lane = (int)threadIdx.x % 32;
        const float *from = lane < R ? a.mean : a.rstd;
        const int64_t r = first + lane % R;

        if (lane >= 2 * R)
            return;
        if (from && r < a.rows)
            __pipeline_memcpy_async(statistics() + lane, from + r, sizeof(float));
        else
            statistics()[lane] = 0.0f;
    }

    // Starts loading the rows first..first+R-1.
    __device__ __forceinline__ void load_rows(const struct norm_backward<T> &a, int64_t first,
                                              int c) const
    {
#pragma unroll
        for (int k = 0; k < R; k++) {
            const int64_t at = (first + k) * a.C + c;
            if (first + k < a.rows && c < a.C) {
                __pipeline_memcpy_async(numbers(k, STRIP_X), a.x + at, 16);
                __pipeline_memcpy_async(numbers(k, STRIP_DY), a.dy + at, 16);
                __pipeline_memcpy_async(numbers(k, STRIP_DX), a.dx + at, 16);
            } else {
                *numbers(k, STRIP_X) = *numbers(k, STRIP_DY) = make_uint4(0, 0, 0, 0);
            }
        }
        load_statistics(a, first);
        __pipeline_commit();
    }

    // Waits for all loads except those of the newest strip.
    __device__ __forceinline__ void wait()
    {
        __pipeline_wait_prior(1);
        __syncwarp();
#pragma unroll
        for (int k = 0; k < R; k++) {
            mean[k] = statistics()[k];
            rstd[k] = statistics()[R + k];
        }
    }

    __device__ __forceinline__ bits<T, pack<T>::N> row(int k, int which) const
    {
        return { *numbers(k, which) };
    }
};

// Adds a strip to the thread's dweight and dbias, and to its part of the sums over each row.
template <class T, int N, int R>
__device__ __forceinline__ void add_strip(float (&dweight)[N], float (&dbias)[N],
                                          struct row_sums (&sums)[R], const strip<T, R> &s,
                                          const float (&weight)[N])
{
#pragma unroll
    for (int k = 0; k < R; k++) {
        const bits<T, N> x = s.row(k, STRIP_X), dy = s.row(k, STRIP_DY);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float d = dy.at(i), g = d * weight[i],
                        n = normalised(x.at(i), s.mean[k], s.rstd[k]);
            dweight[i] += d * n;
            dbias[i] += d;
            sums[k].g += g;
            sums[k].gn += g * n;
        }
    }
}

// Writes row k of the strip, which begins at element `at`: the gradient of its input and, if
// wanted, its output. With SUMS the gradient, as it is stored, is added to dx_sums.
template <bool CENTRED, bool SUMS, class T, int N, int R>
__device__ __forceinline__ void write_row(const struct norm_backward<T> &a, int64_t at,
                                          const strip<T, R> &s, int k, const float (&weight)[N],
                                          const float (&bias)[N], struct row_sums means,
                                          float (&dx_sums)[N])
{
    const bits<T, N> x = s.row(k, STRIP_X), dy = s.row(k, STRIP_DY), dx = s.row(k, STRIP_DX);
    float sum[N], y[N];

#pragma unroll
    for (int i = 0; i < N; i++) {
        const float n = normalised(x.at(i), s.mean[k], s.rstd[k]);
        sum[i] = dx.at(i) + input_gradient<CENTRED>(dy.at(i) * weight[i], n, s.rstd[k], means);
        y[i] = output(n, weight[i], bias[i]);
    }
    const bits<T, N> stored = round_to_bits<T, N>(sum);
    store_bits<N>(a.dx + at, stored);
    if (SUMS)
#pragma unroll
        for (int i = 0; i < N; i++)
            dx_sums[i] += stored.at(i);
    if (a.y)
        store<N>(a.y + at, y);
}

// A block walks the rows of its group, R at a time; a thread has N columns. One block barrier per
// strip is enough, because of_warp alternates.
template <class T, bool CENTRED, int R, bool SUMS>
__global__ void __launch_bounds__(32 * warps_of<R>) backward_kernel(struct norm_backward<T> a)
{
    constexpr int N = pack<T>::N;
    __shared__ struct row_sums of_warp[2][R][warps_of<R>];
    const int c = (int)threadIdx.x * N;
    const int64_t step = (int64_t)gridDim.x * R;
    float weight[N] = {}, bias[N] = {}, dweight[N] = {}, dbias[N] = {}, dx_sums[N] = {};
    strip<T, R> s = {};
    int64_t first = (int64_t)blockIdx.x * R;

    s.load_rows(a, first, c);
    if (c < a.C)
        load<N>(weight, a.weight + c);
    if (c < a.C && a.bias)
        load<N>(bias, a.bias + c);
    for (; first < a.rows; first += step) {
        const strip<T, R> next = { {}, {}, s.buffer ^ 1 };
        struct row_sums sums[R] = {};

        // Start loading the next strip, wait for this one.
        next.load_rows(a, first + step, c);
        s.wait();

        // Column sums stay in registers; the two means of each row need the whole block.
        add_strip<T, N, R>(dweight, dbias, sums, s, weight);
        means_of_block<R>(sums, of_warp[s.buffer], a.per_row);

        // dx, from the numbers that are still in shared memory.
#pragma unroll
        for (int k = 0; k < R; k++)
            if (first + k < a.rows && c < a.C)
                write_row<CENTRED, SUMS>(a, (first + k) * a.C + c, s, k, weight, bias, sums[k],
                                         dx_sums);
        s.buffer = next.buffer;
    }

    // The group's column sums.
    if (c >= a.C)
        return;
    float *to = a.groups + (int64_t)blockIdx.x * a.sets * a.C + c;
    store<N>(to, dweight);
    if (a.bias)
        store<N>(to + a.C, dbias);
    if (SUMS)
        store<N>(to + (int64_t)(a.sets - 1) * a.C, dx_sums);
}

// ---- backward of rows that are too long or not aligned: dx by rows, then sums by columns

enum { PLAIN_THREADS = 256 };

template <class T, bool CENTRED>
__global__ void __launch_bounds__(PLAIN_THREADS) rows_kernel(struct norm_backward<T> a)
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
        const float g = to_float(dy[c]) * a.weight[c], n = normalised(to_float(x[c]), mean, rstd);
        dx[c] = from_float<T>(to_float(dx[c]) + input_gradient<CENTRED>(g, n, rstd, sums));
        if (a.y)
            a.y[r * a.C + c] = from_float<T>(output(n, a.weight[c], a.bias ? a.bias[c] : 0.0f));
    }
}

// A thread per column and group of rows. dx is complete by now.
template <class T, bool CENTRED, bool SUMS>
__global__ void __launch_bounds__(PLAIN_THREADS) columns_kernel(struct norm_backward<T> a)
{
    const int c = (int)(blockIdx.x * PLAIN_THREADS + threadIdx.x);
    float dweight = 0.0f, dbias = 0.0f, dx_sum = 0.0f;

    if (c >= a.C)
        return;
#pragma unroll 4
    for (int64_t r = blockIdx.y; r < a.rows; r += gridDim.y) {
        const float d = to_float(a.dy[r * a.C + c]);
        dweight += d * (to_float(a.x[r * a.C + c]) - (CENTRED ? a.mean[r] : 0.0f)) * a.rstd[r];
        dbias += d;
        if (SUMS)
            dx_sum += to_float(a.dx[r * a.C + c]);
    }
    float *to = a.groups + (int64_t)blockIdx.y * a.sets * a.C + c;
    to[0] = dweight;
    if (a.bias)
        to[a.C] = dbias;
    if (SUMS)
        to[(int64_t)(a.sets - 1) * a.C] = dx_sum;
}

template <class T, bool CENTRED, bool SUMS>
alibi_status plain_backward(struct context *c, struct norm_backward<T> a, unsigned groups)
{
    const dim3 columns((unsigned)ceil_div(a.C, PLAIN_THREADS), groups);

    TRY_RETURN(launch(c, "gradient of norm", rows_kernel<T, CENTRED>, dim3((unsigned)a.rows),
                      dim3(PLAIN_THREADS), 0, a));
    return launch(c, "gradient of norm", columns_kernel<T, CENTRED, SUMS>, columns,
                  dim3(PLAIN_THREADS), 0, a);
}

// At least 8 rows per group, or writing the sums costs more than reading the rows; at most as many
// groups as a large GPU holds at once. The same number on every GPU: results depend on it.
unsigned groups_of(int64_t rows)
{
    const int64_t groups = ceil_div(rows, 8), most = 4 * MULTIPROCESSORS;

    return (unsigned)(groups < most ? groups : most);
}

// All on-chip memory as shared memory: the strips are there.
template <class T, bool CENTRED, int R, bool SUMS>
alibi_status strip_backward(struct context *c, struct norm_backward<T> a, unsigned groups,
                            dim3 block)
{
    const auto kernel = backward_kernel<T, CENTRED, R, SUMS>;
    const size_t bytes = STRIPS * R * STRIP_ROWS * sizeof(uint4) * block.x;

    TRY_RETURN(cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
        "gradient of norm"));
    return launch(c, "gradient of norm", kernel, dim3(groups), block, bytes, a);
}

// Strips of several rows, if two of them leave room for a second block.
template <class T, bool CENTRED, bool SUMS>
alibi_status row_groups(struct context *c, struct norm_backward<T> a, unsigned groups)
{
    constexpr int N = pack<T>::N;
    const bool vector = a.C % N == 0 && aligned(a.dx, a.y, a.dy, a.x, a.weight, a.bias);
    const dim3 block((unsigned)ceil_div(ceil_div(a.C, N), 32) * 32);

    if (vector && block.x <= 32 * warps_of<STRIP>)
        return strip_backward<T, CENTRED, STRIP, SUMS>(c, a, groups, block);
    if (vector && block.x <= 32 * warps_of<1>)
        return strip_backward<T, CENTRED, 1, SUMS>(c, a, groups, block);
    return plain_backward<T, CENTRED, SUMS>(c, a, groups);
}

template <class T, bool CENTRED>
alibi_status run_backward(struct context *c, const struct norm_args *args)
{
    const int64_t C = args->x.shape[1];
    norm_backward<T> a = { .dx = (T *)args->dx.data,
                           .y = (T *)args->y.data,
                           .dy = (const T *)args->dy.data,
                           .x = (const T *)args->x.data,
                           .weight = (const float *)args->weight.data,
                           .bias = (const float *)args->bias.data,
                           .mean = CENTRED ? (const float *)args->mean.data : NULL,
                           .rstd = (const float *)args->rstd.data,
                           .sets = 1 + (args->bias.data != NULL) + (args->dx_sums.data != NULL),
                           .rows = args->x.shape[0],
                           .C = (int)C,
                           .per_row = 1.0f / (float)C };
    const unsigned groups = groups_of(a.rows);

    if (a.rows == 0 || a.C == 0)
        return ALIBI_OK;
    TRY_RETURN(cuda_scratch(c, SCRATCH_SUMS, cuda_norm_bytes(a.rows, a.C), (void **)&a.groups));
    TRY_RETURN((args->dx_sums.data ? row_groups<T, CENTRED, true>(c, a, groups)
                                   : row_groups<T, CENTRED, false>(c, a, groups)));
    return cuda_add_partials(c, (float *)args->dweight.data, (float *)args->dbias.data, a.groups,
                             groups, a.C, (float *)args->dx_sums.data);
}

} // namespace

alibi_status cuda_norm_forward(struct device *dev, const struct norm_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "norm forward");
    DISPATCH(a->x.type, T,
             return (a->kind == ALIBI_RMSNORM ? run_forward<T, false>(c, a)
                                              : run_forward<T, true>(c, a)));
}

// Three sums for each column and group.
size_t cuda_norm_bytes(int64_t rows, int64_t C)
{
    const int64_t factors[] = { groups_of(rows), 3, C, (int64_t)sizeof(float) };

    return cuda_bytes(factors, 4);
}

alibi_status cuda_norm_backward(struct device *dev, const struct norm_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "norm backward");
    DISPATCH(a->x.type, T,
             return (a->kind == ALIBI_RMSNORM ? run_backward<T, false>(c, a)
                                              : run_backward<T, true>(c, a)));
}
