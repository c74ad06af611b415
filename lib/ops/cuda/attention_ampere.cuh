// attention_ampere.cuh - tiles in shared memory, for the kernels of attention by mma.sync
//
// Tiles have rows of 64 or 128 numbers. The 16-byte chunk c of row r is at chunk c ^ (r % 8), so
// the eight rows of a matrix are in different banks, and so are the chunks of a row: neither
// ldmatrix nor the stores of accumulators, four bytes per lane, have bank conflicts.
#ifndef ATTENTION_AMPERE_CUH
#define ATTENTION_AMPERE_CUH

#include "ops/cuda/attention.cuh"

enum {
    CHUNK = 8,  // numbers in 16 bytes
    MMA_M = 16, // rows of A
    MMA_K = 16, // numbers summed by one instruction
};
// Bytes along a row of a tile, whose chunks are swizzled: an exclusive or leads to another one.
constexpr uint32_t CHUNK_BYTES = CHUNK * sizeof(bf16), STEP_BYTES = MMA_K * sizeof(bf16);

template <int WIDTH> __device__ __forceinline__ uint32_t swizzled_offset(int row, int chunk)
{
    return (uint32_t)(row * WIDTH * (int)sizeof(bf16) + ((chunk ^ (row % 8)) * 16));
}

// Starts the copies of ROWS rows from position `first` on by all THREADS; rows outside of 0..end-1
// and columns from D on are zeros. A thread has the same chunk of every STEP-th row, at the same
// place of the swizzle.
template <int WIDTH, int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t tile, heads<const bf16> from, int b, int h,
                                          int first, int end, int D)
{
    const int CHUNKS = WIDTH / CHUNK, STEP = THREADS / CHUNKS;
    const int chunk = (int)threadIdx.x % CHUNKS, top = (int)threadIdx.x / CHUNKS;
    const bf16 *at = from.row(b, first + top, h) + chunk * CHUNK;
    const uint32_t to = tile + swizzled_offset<WIDTH>(top, chunk);

    static_assert(STEP % 8 == 0, "rows of a thread have the same swizzle");
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
        const bool there = (unsigned)(first + top + row) < (unsigned)end && chunk * CHUNK < D;
        copy_async(to + (uint32_t)(row * WIDTH * (int)sizeof(bf16)), at, there);
        at += STEP * from.l;
    }
    copy_async_commit();
}

// Where a lane begins to load 16 x 16 numbers from `row` and `column` on, four matrices in the
// order of an A operand that is stored as it is (DOWN: the second is below the first) or in that
// of two B operands (the second is to the right of the first). Transposed it is the other way
// round. Tiles begin at multiples of a row, so the place 16 columns further on differs by an
// exclusive or, if `column` is a multiple of the width that is used, and that of 16 rows further
// on by a constant.
template <int WIDTH, bool DOWN>
__device__ __forceinline__ uint32_t lane_offset(int lane, int row, int column)
{
    const int second = lane / 8 % 2, third = lane / 16;

    return swizzled_offset<WIDTH>(row + lane % 8 + 8 * (DOWN ? second : third),
                                  column / CHUNK + (DOWN ? third : second));
}

template <int ROWS, int COLUMNS> __device__ __forceinline__ void clear(float (&d)[ROWS][COLUMNS][4])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                d[r][c][i] = 0.0f;
}

// d += A B over 16 STEPS numbers: a and b are lane_offset() of the operands in tiles of A_WIDTH and
// B_WIDTH. A is stored as it is, or A_TRANSPOSED; B^T is stored, or B (B_TRANSPOSED: it is
// transposed on the way).
template <int STEPS, int A_WIDTH, bool A_TRANSPOSED, int B_WIDTH, bool B_TRANSPOSED, int ROWS,
          int COLUMNS>
__device__ __forceinline__ void multiply(float (&d)[ROWS][COLUMNS][4], uint32_t a, uint32_t b)
{
    const uint32_t A_DOWN = MMA_K * A_WIDTH * sizeof(bf16), B_DOWN = MMA_K * B_WIDTH * sizeof(bf16);

#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        uint32_t left[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            load_matrices<A_TRANSPOSED>(left[r], A_TRANSPOSED
                                                     ? (a ^ STEP_BYTES * r) + step * A_DOWN
                                                     : (a ^ STEP_BYTES * step) + r * A_DOWN);
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 2) {
            uint32_t right[4];
            load_matrices<B_TRANSPOSED>(right, B_TRANSPOSED
                                                   ? (b ^ CHUNK_BYTES * c) + step * B_DOWN
                                                   : (b ^ STEP_BYTES * step) + c / 2 * B_DOWN);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                mma(d[r][c], left[r], right[0], right[1]);
                mma(d[r][c + 1], left[r], right[2], right[3]);
            }
        }
    }
}

// ---- dropout of weights
//
// A thread's accumulators have rows 8 apart and columns 8 apart, as the weights that share a block
// of random numbers have. A row of accumulators with up to 64 columns has 32 weights per thread: a
// bit for each, set if the weight is dropped.

// The bit of a weight: `half` of the rows, accumulator c, number i of two neighbours.
__device__ __forceinline__ constexpr int drop_bit(int half, int c, int i)
{
    return 8 * (c / 2) + 4 * half + 2 * (c % 2) + i;
}

// Draws them for accumulators side by side, two of them 16 keys, whose first weight in this thread
// is that of a query and a key. The loop is not unrolled: more blocks at once would not fit in
// registers.
template <int COLUMNS>
__device__ __forceinline__ uint32_t draw_mask(const weight_mask &m, int64_t head, int query,
                                              int key)
{
    const uint64_t first = m.block(head, query, key);
    uint32_t dropped = 0;

    static_assert(8 * COLUMNS / 2 <= 32 && COLUMNS % 2 == 0, "they fit into a word");
#pragma unroll 1
    for (int pair = 0; pair < COLUMNS / 2; pair++) {
        uint32_t eight = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 words = m.words(first + (uint64_t)(8 * pair + i));
            eight |= (uint32_t)m.drops(words.x) << drop_bit(0, 0, i) |
                     (uint32_t)m.drops(words.y) << drop_bit(0, 1, i) |
                     (uint32_t)m.drops(words.z) << drop_bit(1, 0, i) |
                     (uint32_t)m.drops(words.w) << drop_bit(1, 1, i);
        }
        dropped |= eight << drop_bit(0, 2 * pair, 0);
    }
    return dropped;
}

#endif
