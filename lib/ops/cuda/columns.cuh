// columns.cuh - passes over the rows of a matrix that also sum its columns
//
//            stripe 0     stripe 1     ...       a stripe is 32 lanes x N columns
//   slice 0  block 0,0    block 1,0              its 8 warps take the rows of the slice in turns
//   slice 1  block 0,1    block 1,1              a lane keeps its columns: 512 bytes per warp read
//
// A block writes the column sums of its slice; a second kernel adds the slices in order. The `op`
// chooses the numbers to sum:
//
//   Op::SETS                          sums per column
//   Op::ROWS                          rows that a thread loads before it uses the first
//   Op::BLOCKS                        resident blocks per multiprocessor
//   Op::part<N>                       the part of a row that it loads: N neighbouring columns
//   op.read<N>(row, column)           loads a part
//   op.use<N>(sums, part, row, column)   adds it to sums[SETS][N], and writes the pass's own output
#ifndef COLUMNS_CUH
#define COLUMNS_CUH

#include "ops/cuda/launch.cuh"

// sums[n] += partials[0][0][n] + partials[1][0][n] + ..., in a fixed order, and so for `more` and
// `last`, with the next sets of partials. partials [count, sets, columns]: a set for each that is
// present.
alibi_status cuda_add_partials(struct context *c, float *sums, float *more, const float *partials,
                               int64_t count, int64_t columns, float *last = NULL);

// As many blocks as a large GPU, of MULTIPROCESSORS, holds at once. Results depend on the number of
// slices, so it is the same on every GPU.
enum { LANES = 32, WARPS = 8, SLICE_ROWS_MIN = 64, MULTIPROCESSORS = 132 };

// The most of any op: cuda_column_bytes() plans with them.
enum { MOST_SETS = 2, MOST_BLOCKS = 4, MOST_COLUMNS = pack<bf16>::N };

// The rows first, first + WARPS, ... below end.
template <int N, class Op>
__device__ __forceinline__ void pass_rows(float (&sums)[Op::SETS][N], const Op &op, int column,
                                          int first, int end)
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
__global__ void __launch_bounds__(LANES *WARPS, Op::BLOCKS)
    column_pass_kernel(Op op, float *partials, int rows, int columns, int slice_rows)
{
    __shared__ float of_warp[WARPS][Op::SETS][LANES * N];
    const int stripe = (int)blockIdx.x * LANES * N, column = stripe + (int)threadIdx.x * N;
    const int first = (int)blockIdx.y * slice_rows, end = min(first + slice_rows, rows);
    float sums[Op::SETS][N] = {};

    // The pass itself: every warp over its rows of the slice.
    if (column < columns)
        pass_rows<N>(sums, op, column, first + (int)threadIdx.y, end);
    if (!partials)
        return;

#pragma unroll
    // The sums of the warps, added in the order of the warps.
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

inline int64_t slice_rows_of(int64_t rows, int64_t stripes, int64_t blocks)
{
    const int64_t slices = stripes < blocks ? blocks / stripes : 1, each = ceil_div(rows, slices);

    return each < SLICE_ROWS_MIN ? (int64_t)SLICE_ROWS_MIN : each;
}

// Runs the op over [rows, columns]; sums [SETS, columns] += its column sums. sums may be absent.
template <int N, class Op>
alibi_status column_pass(struct context *c, const char *what, Op op, float *sums, int64_t rows,
                         int64_t columns)
{
    static_assert((int)Op::SETS <= (int)MOST_SETS && (int)Op::BLOCKS <= (int)MOST_BLOCKS &&
                      N <= MOST_COLUMNS,
                  "cuda_column_bytes() plans for less");
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
