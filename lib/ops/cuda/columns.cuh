// columns.cuh - passes over the rows of a matrix that also add up its columns
//
// A block has a slice of the rows and a stripe of the columns: its warps take the rows in turns and
// a lane keeps the same columns throughout, so that a warp reads 512 bytes in one go. It leaves the
// sums of its slice; the slices' sums are then added in order.
//
// What is added is up to an `op`:
//
//   Op::SETS                          sums per column
//   Op::ROWS                          rows that a thread reads before it uses the first
//   Op::BLOCKS                        blocks per multiprocessor for which its registers suffice
//   Op::part<N>                       what it reads of a row: N neighbouring columns
//   op.read<N>(row, column)           reads a part
//   op.use<N>(sums, part, row, column)   adds it to sums[SETS][N], and writes what else the pass is
//   for
#ifndef COLUMNS_CUH
#define COLUMNS_CUH

#include "ops/cuda/launch.cuh"

// sums[n] += partials[0][0][n] + partials[1][0][n] + ..., always in the same order, and more[n] +=
// partials[.][1][n]. partials [count, 2, columns], or [count, columns] where `more` is absent.
alibi_status cuda_add_partials(struct cuda *c, float *sums, float *more, const float *partials,
                               int64_t count, int64_t columns);

// There are so many blocks that a large GPU, of MULTIPROCESSORS, holds all at once and none is left
// for a second turn. They are as many on every GPU, as results depend on it.
enum { LANES = 32, WARPS = 8, SLICE_ROWS_MIN = 64, MULTIPROCESSORS = 132 };

// The most sets and blocks of any op, and columns of a thread: cuda_column_bytes() counts with
// them.
enum { MOST_SETS = 2, MOST_BLOCKS = 4, MOST_COLUMNS = pack<bf16>::N };

// The rows first, first + WARPS, ... below end.
template <int N, class Op>
static __device__ __forceinline__ void pass_rows(float (&sums)[Op::SETS][N], const Op &op,
                                                 int column, int first, int end)
{
    for (int r = first; r < end; r += Op::ROWS * WARPS) {
        typename Op::template part<N> parts[Op::ROWS];
#pragma unroll
        for (int i = 0; i < Op::ROWS; i++)
            if (r + i * WARPS < end)
                parts[i] = op.template read<N>(r + i * WARPS, column);
#pragma unroll
        for (int i = 0; i < Op::ROWS; i++)
            if (r + i * WARPS < end)
                op.template use<N>(sums, parts[i], r + i * WARPS, column);
    }
}

// partials [slices, SETS, columns] may be absent; block (stripe, slice), threads (lane, warp); N
// divides `columns`.
template <int N, class Op>
static __global__ void __launch_bounds__(LANES *WARPS, Op::BLOCKS)
    column_pass_kernel(Op op, float *partials, int rows, int columns, int slice_rows)
{
    __shared__ float of_warp[WARPS][Op::SETS][LANES * N];
    const int stripe = (int)blockIdx.x * LANES * N, column = stripe + (int)threadIdx.x * N;
    const int first = (int)blockIdx.y * slice_rows, end = min(first + slice_rows, rows);
    float sums[Op::SETS][N] = {};

    if (column < columns)
        pass_rows<N>(sums, op, column, first + (int)threadIdx.y, end);
    if (!partials)
        return;
#pragma unroll
    for (int set = 0; set < Op::SETS; set++)
#pragma unroll
        for (int n = 0; n < N; n++)
            of_warp[threadIdx.y][set][threadIdx.x * N + n] = sums[set][n];
    __syncthreads();
    for (int i = (int)(threadIdx.y * LANES + threadIdx.x); i < Op::SETS * LANES * N;
         i += LANES * WARPS) {
        const int set = i / (LANES * N), n = i % (LANES * N);
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += of_warp[w][set][n];
        if (stripe + n < columns)
            partials[((int64_t)blockIdx.y * Op::SETS + set) * columns + stripe + n] = total;
    }
}

static inline int64_t slice_rows_of(int64_t rows, int64_t stripes, int64_t blocks)
{
    const int64_t slices = stripes < blocks ? blocks / stripes : 1,
                  each = ceil_div(rows, slices); // there are columns

    return each < SLICE_ROWS_MIN ? (int64_t)SLICE_ROWS_MIN : each;
}

// The op over [rows, columns], and sums [SETS, columns] += its sums; absent: not wanted.
template <int N, class Op>
static alibi_status column_pass(struct cuda *c, const char *what, Op op, float *sums, int64_t rows,
                                int64_t columns)
{
    static_assert((int)Op::SETS <= (int)MOST_SETS && (int)Op::BLOCKS <= (int)MOST_BLOCKS &&
                      N <= MOST_COLUMNS,
                  "the most");
    const int64_t stripes = ceil_div(columns, LANES * N), width = Op::SETS * columns;
    float *partials = NULL;

    if (rows == 0 || columns == 0)
        return ALIBI_OK;
    const int64_t slice_rows = slice_rows_of(rows, stripes, MULTIPROCESSORS * Op::BLOCKS),
                  slices = ceil_div(rows, slice_rows);
    const int64_t factors[] = { slices, width, (int64_t)sizeof(float) };
    if (sums)
        TRY_RETURN(cuda_scratch_for(c, SCRATCH_SUMS, factors, 3, (void **)&partials));
    TRY_RETURN(launch(c, what, column_pass_kernel<N, Op>, dim3((unsigned)stripes, (unsigned)slices),
                      dim3(LANES, WARPS), 0, op, partials, (int)rows, (int)columns,
                      (int)slice_rows));
    if (!sums)
        return ALIBI_OK;
    return cuda_add_partials(c, sums, NULL, partials, slices, width);
}

#endif
