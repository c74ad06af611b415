// attention_ampere.cu - attention forward by mma.sync and cp.async: bf16, D <= 128
//
// It is chosen on every GPU except Hopper, and for tests on Hopper too (ALIBI_MMA_SYNC).
//
// A block of four warps takes BLOCK_QUERIES queries of a head, and tiles of ATTENTION_TILE keys
// from the nearest to the farthest. A warp has 32 queries, so each matrix of K and V that it loads
// serves two products; with 16 queries shared memory would be the limit. Softmax is online, in
// powers of two:
//
//   x = (scale q . k + bias) log2(e),   m = max x,   l = sum 2^(x - m),   O = sum 2^(x - m) v
//
// One tile of K and one of V are in shared memory, and each is loaded while the other is used:
//
//   K tile arrives | barrier | V tile begins   S = Q K^T
//   V tile arrives | barrier | next K begins   softmax, O += P V
//
// Tiles have rows of DP = 64 or 128 numbers, with zeros from D on. P stays in registers:
// accumulators of S are operands of P V as they are. With dropout, elements of P are zeroed after
// they have been summed, and y is divided by 1 - p.
#include "ops/cuda/attention_ampere.cuh"

namespace
{

enum {
    WARPS = 4,
    THREADS = 32 * WARPS,
    BLOCK_QUERIES = 128,
    WARP_QUERIES = BLOCK_QUERIES / WARPS,
    ROWS = WARP_QUERIES / 16,     // accumulators of a warp, one below another
    COLUMNS = ATTENTION_TILE / 8, // of S, side by side
    KEY_STEPS = ATTENTION_TILE / 16,
};

struct ampere_params {
    heads<const bf16> q, k, v;
    heads<bf16> y;
    float *lse;
    struct attention_shape s;
    struct kept_tiles kept;
    int blocks; // of queries
    struct weight_mask mask;
};

template <int DP> struct tiles {
    alignas(256) bf16 q[BLOCK_QUERIES * DP], k[ATTENTION_TILE * DP], v[ATTENTION_TILE * DP];
};

// The queries of a block; those below 0 do not exist.
struct query_block {
    int b, h, kv, first, end; // end: past the last query

    __device__ __forceinline__ query_block(const ampere_params &p)
    {
        b = (int)blockIdx.z;
        h = (int)blockIdx.y;
        kv = p.s.key_head(h);
        first = first_of_block(p.s.Lq, BLOCK_QUERIES, p.blocks - 1 - (int)blockIdx.x);
        end = min(first + BLOCK_QUERIES, p.s.Lq);
    }
};

// The next tile that the block uses from `tile` down to `first`; below first: none.
__device__ __forceinline__ int next_tile(const ampere_params &p, const query_block &w, int tile,
                                         int first)
{
    if (!p.kept.bits)
        return tile;
    const int64_t head = (int64_t)w.b * p.s.H + w.h;
    const uint32_t *upper = p.kept.row(head, max(0, w.first) / ATTENTION_TILE),
                   *lower = p.kept.row(head, (w.end - 1) / ATTENTION_TILE);
    while (tile >= first && !tile_is_kept(upper, tile) && !tile_is_kept(lower, tile))
        tile--;
    return tile;
}

// ---- a warp's work

template <int DP> struct fragments {
    float s[ROWS][COLUMNS][4], o[ROWS][DP / 8][4];
    float m[ROWS][2], l[ROWS][2]; // of the rows of this lane; l of its own columns
};

// Where the lanes of a warp begin to load matrices of each tile. Tiles begin at multiples of a row,
// so the place of another chunk differs by an exclusive or, and that of a row eight further on by a
// constant.
struct lane_offsets {
    uint32_t q, k, v;
};

template <int DP>
__device__ __forceinline__ struct lane_offsets lane_offsets_of(struct tiles<DP> *t)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;

    return { shared_address(t->q) + swizzled_offset<DP>(warp * WARP_QUERIES + lane % 16, lane / 16),
             shared_address(t->k) + swizzled_offset<DP>(lane / 16 * 8 + lane % 8, lane / 8 % 2),
             shared_address(t->v) + swizzled_offset<DP>(lane % 16, lane / 16) };
}

// S = Q K^T for the rows of this warp.
template <int DP>
__device__ __forceinline__ void multiply_keys(fragments<DP> &f, struct lane_offsets at)
{
    const uint32_t ROW = DP * sizeof(bf16);

    clear(f.s);
#pragma unroll
    for (int step = 0; step < DP / 16; step++) {
        uint32_t a[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            load_matrices<false>(a[r], (at.q ^ (STEP_BYTES * step)) + MMA_M * r * ROW);
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 2) {
            uint32_t b[4];
            load_matrices<false>(b, (at.k ^ (STEP_BYTES * step)) + 8 * c * ROW);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                mma(f.s[r][c], a[r], b[0], b[1]);
                mma(f.s[r][c + 1], a[r], b[2], b[3]);
            }
        }
    }
}

// x = (scale s + bias) log2(e), and -inf where a query does not see the key. MASKED: some may not.
template <int DP, bool TABLE, bool MASKED>
__device__ __forceinline__ void add_bias(fragments<DP> &f, const ampere_params &p,
                                         const query_block &w, float slope, int first_key)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const float scale = p.s.scale * log2_e;

#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = w.first + warp * WARP_QUERIES + 16 * r + 8 * half + lane / 4;
            const int position = p.s.past() + query, key = first_key + lane % 4 * 2;
            const float base = slope * (float)(key - position); // at column 0 of this lane
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int column = 8 * c + i, distance = position - key - column;
                    float &x = f.s[r][c][2 * half + i];
                    x = fmaf(x, scale,
                             TABLE ? log2_e * p.s.bias(w.b, w.h, max(0, distance))
                                   : fmaf(slope, (float)column, base));
                    if (MASKED && (unsigned)distance >= (unsigned)p.s.window) // below 0 too
                        x = -INFINITY;
                }
        }
}

// Replaces x by 2^(x - m); O and l follow the new maximum. A row that has seen no key yet keeps 0.
template <int DP> __device__ __forceinline__ void softmax(fragments<DP> &f)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = f.m[r][half], sum = 0.0f;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                most = fmaxf(most, fmaxf(f.s[r][c][2 * half], f.s[r][c][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            const float shift = most == -INFINITY ? 0.0f : most,
                        shrink = exp2_approx(f.m[r][half] - shift);
            f.m[r][half] = most;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &x = f.s[r][c][2 * half + i];
                    x = exp2_approx(x - shift);
                    sum += x;
                }
            f.l[r][half] = fmaf(f.l[r][half], shrink, sum);
#pragma unroll
            for (int c = 0; c < DP / 8; c++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    f.o[r][c][2 * half + i] *= shrink;
        }
}

// Zeroes what dropout drops of P.
template <int DP>
__device__ __forceinline__ void drop_weights(fragments<DP> &f, const ampere_params &p,
                                             const query_block &w, int first_key)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;

#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const uint32_t dropped = draw_mask<COLUMNS>(
            p.mask, (int64_t)w.b * p.s.H + w.h, w.first + warp * WARP_QUERIES + 16 * r + lane / 4,
            first_key + lane % 4 * 2);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                f.s[r][c][n] = dropped >> drop_bit(n / 2, c, n % 2) & 1 ? 0.0f : f.s[r][c][n];
    }
}

// O += P V.
template <int DP>
__device__ __forceinline__ void multiply_values(fragments<DP> &f, struct lane_offsets at)
{
    const uint32_t ROW = DP * sizeof(bf16);

#pragma unroll
    for (int step = 0; step < KEY_STEPS; step++) {
        uint32_t a[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[r][i] = pack_bf16x2(f.s[r][2 * step + i / 2][i % 2 * 2],
                                      f.s[r][2 * step + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int c = 0; c < DP / 8; c += 2) {
            uint32_t b[4];
            load_matrices<true>(b, (at.v ^ (CHUNK_BYTES * c)) + MMA_K * step * ROW);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                mma(f.o[r][c], a[r], b[0], b[1]);
                mma(f.o[r][c + 1], a[r], b[2], b[3]);
            }
        }
    }
}

// y = factor O / l and the log-sum-exp. Rows go through the warp's own part of the tile of Q, which
// is no longer needed, so that y is written 16 bytes at a time.
template <int DP>
__device__ __forceinline__ void write_rows(const fragments<DP> &f, const ampere_params &p,
                                           const query_block &w, bf16 *staged, float factor)
{
    const int lane = (int)threadIdx.x % 32, top = (int)threadIdx.x / 32 * WARP_QUERIES;
    const int chunks = DP / CHUNK;
    char *tile = (char *)staged;

    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = top + 16 * r + 8 * half + lane / 4, query = w.first + row;
            float sum = f.l[r][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const float inverse = factor / sum;
#pragma unroll
            for (int c = 0; c < DP / 8; c++)
                *(uint32_t *)(tile + swizzled_offset<DP>(row, c) + lane % 4 * 4) =
                    pack_bf16x2(f.o[r][c][2 * half] * inverse, f.o[r][c][2 * half + 1] * inverse);
            if (lane % 4 == 0 && query >= 0 && query < w.end)
                p.lse[p.s.row(w.b, w.h, query)] = (f.m[r][half] + log2f(sum)) / log2_e;
        }
    __syncwarp();
    for (int i = lane; i < WARP_QUERIES * chunks; i += 32) {
        const int row = top + i / chunks, chunk = i % chunks, query = w.first + row;
        if (query >= 0 && query < w.end && chunk * CHUNK < p.s.D)
            *(uint4 *)(p.y.row(w.b, query, w.h) + chunk * CHUNK) =
                *(const uint4 *)(tile + swizzled_offset<DP>(row, chunk));
    }
}

template <int DP, bool TABLE, bool DROPS>
__global__ void __launch_bounds__(THREADS, 2) ampere_kernel(const __grid_constant__ ampere_params p)
{
    struct tiles<DP> *shared = dynamic_shared<struct tiles<DP>>();
    const uint32_t q = shared_address(shared->q), k = shared_address(shared->k),
                   v = shared_address(shared->v);
    const query_block w(p);
    const int past = p.s.past(), lowest = past + max(0, w.first), highest = past + w.end - 1;
    const int first = p.s.first_key(lowest) / ATTENTION_TILE;
    const float slope = p.s.kind == BIAS_LINEAR ? log2_e * p.s.slope(w.b, w.h) : 0.0f;
    struct lane_offsets at = lane_offsets_of(shared);
    int tile = next_tile(p, w, highest / ATTENTION_TILE, first);
    fragments<DP> f = {};

#pragma unroll
    for (int r = 0; r < ROWS; r++)
        f.m[r][0] = f.m[r][1] = -INFINITY;
    load_tile<DP, BLOCK_QUERIES, THREADS>(q, p.q, w.b, w.h, w.first, w.end, p.s.D);
    load_tile<DP, ATTENTION_TILE, THREADS>(k, p.k, w.b, w.kv, tile * ATTENTION_TILE, p.s.Lk, p.s.D);
    while (tile >= first) {
        const int key = tile * ATTENTION_TILE, next = next_tile(p, w, tile - 1, first);
        const bool masked = key + ATTENTION_TILE - 1 > lowest || key < p.s.first_key(highest);

        // As if they changed: the compiler must not keep the places of all matrices in registers.
        asm volatile("" : "+r"(at.q), "+r"(at.k), "+r"(at.v));
        copy_async_wait();
        __syncthreads(); // K is there, and V has been used
        load_tile<DP, ATTENTION_TILE, THREADS>(v, p.v, w.b, w.kv, key, p.s.Lk, p.s.D);
        multiply_keys<DP>(f, at);
        copy_async_wait();
        __syncthreads(); // V is there, and K has been used
        if (next >= first)
            load_tile<DP, ATTENTION_TILE, THREADS>(k, p.k, w.b, w.kv, next * ATTENTION_TILE, p.s.Lk,
                                                   p.s.D);
        if (masked)
            add_bias<DP, TABLE, true>(f, p, w, slope, key);
        else
            add_bias<DP, TABLE, false>(f, p, w, slope, key);
        softmax<DP>(f);
        if constexpr (DROPS)
            drop_weights<DP>(f, p, w, key);
        multiply_values<DP>(f, at);
        tile = next;
    }
    write_rows<DP>(f, p, w, shared->q, DROPS ? p.mask.mask.kept : 1.0f);
}

template <int DP> alibi_status forward(struct context *c, const struct ampere_params &p)
{
    const bool table = p.s.kind == BIAS_TABLE, drops = p.mask.mask.threshold > 0;

    return launch(c, "attention forward",
                  drops
                      ? (table ? ampere_kernel<DP, true, true> : ampere_kernel<DP, false, true>)
                      : (table ? ampere_kernel<DP, true, false> : ampere_kernel<DP, false, false>),
                  dim3((unsigned)p.blocks, (unsigned)p.s.H, (unsigned)p.s.B), THREADS,
                  sizeof(struct tiles<DP>), p);
}

} // namespace

bool ampere_serves(const struct context *c, const struct attention_args *a)
{
    return c->mma_sync && a->q.type == DTYPE_BF16 && a->q.shape[3] > 0 && a->q.shape[3] <= 128 &&
           !packed_present(a->packed) && a->bias.kind != BIAS_GATE && a->bias.kind != BIAS_GAIN &&
           a->q.shape[0] <= 65535 && a->q.shape[2] <= 65535 && rows_are_aligned(a->q) &&
           rows_are_aligned(a->k) && rows_are_aligned(a->v) && rows_are_aligned(a->y);
}

int ampere_block_queries(void)
{
    return BLOCK_QUERIES;
}

alibi_status forward_ampere(struct context *c, const struct attention_args *a,
                            struct kept_tiles kept)
{
    const struct ampere_params p = { .q = heads_of<const bf16>(a->q),
                                     .k = heads_of<const bf16>(a->k),
                                     .v = heads_of<const bf16>(a->v),
                                     .y = heads_of<bf16>(a->y),
                                     .lse = (float *)a->lse.data,
                                     .s = attention_shape_of(a),
                                     .kept = kept,
                                     .blocks = (int)ceil_div(a->q.shape[1], BLOCK_QUERIES),
                                     .mask = weight_mask_of(a->dropout, a->k.shape[1]) };

    return a->q.shape[3] <= 64 ? forward<64>(c, p) : forward<128>(c, p);
}
