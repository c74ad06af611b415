// attention_backward.cu - backward attention on Hopper's tensor cores (bf16, D up to 128)
//
//   P  = exp(scale Q K^T + bias - lse)         dP = dY V^T           delta_i = y_i . dy_i
//   dS = P (dP - delta)                        dV = P^T dY           dK = scale dS^T Q
//                                              dQ = scale dS K
//
// With dropout, M = 0 or 1 / (1 - p): dS = P (M dP - delta), dV = (M P)^T dY.
//
// A thread block owns 128 keys of one key head and walks over the tiles of 64 queries that see
// them, nearest first, all query heads of the group one after another. It keeps dK and dV in
// registers and adds its part of dQ to global memory.
//
//   producer warpgroup (setmaxnreg 40)
//     warp 0, one thread    TMA: K and V once, then Q and dY of tile after tile into the ring
//     warp 1                lse and delta of the tile's queries, with ordinary loads
//     warp 2, one thread    takes dQ of a tile from shared memory, waits for the semaphore, and has
//                           TMA store or add it
//   consumer warpgroups 0 and 1 (setmaxnreg 232), 64 keys each; stages of one tile:
//
//     tensor cores     S^T = K Q^T   dP^T = V dY^T   dV += P^T dY   dK += dS^T Q     dQ = dS K
//     consumer                        P^T = exp(S^T)    dS^T, stored to smem            leave dQ
//                                                       ^ both consumers meet before dQ
//
// Tried: dQ before dK, so that dQ leaves while dK is computed. Together with one arrival per warp
// and dS stored as matrices, which stayed, backward was 1.5% faster at 16K and 2 to 3.5% slower at
// 4K (H200). A likely reason is that then nothing is in flight while the consumers meet. S of the
// next tile while dK and dQ of this one are in flight: 246, 398, 443 TFLOP/s at 1K, 4K, 16K instead
// of 254, 416, 469 (D = 128), 188, 293 at 1K, 4K instead of 188, 278 (D = 64). A spare warp that
// rounds finished dQ: 231 instead of 282 at 1K.
//
// Shared memory (struct backward_smem), bytes for D = 64 / 128; 131,184 / 213,104 in all:
//
//   k, v               16,384 / 32,768 each   once: kv_full; at the end dV and dK leave through v
//   q, dy [STAGES]     16,384 / 32,768 each   ring: full (TMA and the 32 lanes of warp 1), empty
//   ds [DS_STAGES]     32,768                 dS^T: named barrier CONSUMERS_BARRIER
//   dq                 16,384 / 32,768        dq_full (consumer warps), dq_empty (warp 2)
//   lse, delta         1,024                  full, rows_empty (consumer warps)
//   table, bins        15,360                 the bias of a head, and its gradient
//
// Scores are transposed, keys by queries: then P^T and dS^T are in registers in the layout that the
// A operands of dV and dK need, and only dS goes through shared memory, for dQ. Accumulators start
// from (bias - lse) / scale and from -delta instead of zero, so neither costs anything later. A
// factor by distance on Q K^T (BIAS_GAIN) comes after the product, and again on dS before dQ and
// dK.
//
// Order of the dQ sums. The key blocks of a query tile add to its dQ in fp32 in a fixed order,
// nearest keys first, so the bits repeat. The first one stores, so dQ needs no clearing. Each block
// begins with the queries nearest to its keys too, so the block that adds before it is one tile
// ahead, and waits are rare. Only warp 2 waits; loads and products continue. Blocks take their
// number from an atomic ticket, late keys first: a block only ever waits for blocks with smaller
// numbers, which are running or done. That cannot deadlock, whatever order the hardware starts
// blocks in. Adding without an order did not pay: 12.7 ms per step against 12.2 ms in order (H200,
// the WikiText-103 shape), because dQ then has to be cleared first.
//
// dQ in global memory is in the order of the accumulator registers (store_dq). round_queries()
// rearranges it, scales, rotates back, and rounds to bf16.
//
// Where q and k were rotated (rotary), dQ and dK are rotated back before they are rounded.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/columns.cuh"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/rotary.cuh"

namespace
{

enum {
    CONSUMERS = 2,
    CONSUMER_THREADS = WARPGROUP * CONSUMERS,
    CONSUMER_WARPS = CONSUMER_THREADS / WARP,
    THREADS = WARPGROUP + CONSUMER_THREADS,
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232,
    STAGES = 2,            // of the ring of Q and dY
    QUERIES = 64,          // per tile
    CONSUMERS_BARRIER = 1, // id of the named barrier among the consumers
    DS_STAGES = 2,         // of dS
    ROUND_THREADS = 256,
};

// The bias, and whether it has a gradient, as a template parameter. Fixed slopes are 0 if there is
// no bias. A table and its gradient are in shared memory; if it is longer than TABLE_LARGEST, only
// the biases of a tile are, and the gradient is summed in global memory.
enum bias_mode { SLOPES, LEARNED_SLOPES, TABLE, LONG_TABLE, GATES, GAIN };

struct backward_params {
    CUtensorMap q, k, v, dy;
    heads<bf16> dk, dv;
    float *dq;          // [query tiles, QUERIES x D of the kernel] in the order of store_dq()
    const float *lse;   // [B, H, L]
    const float *delta; // [B, H, L]
    int *semaphores;    // [query tiles]: how many key blocks have added their part of dQ
    float *dbias; // [B, blocks, H, 1 or T] partial sums, of a long table [B, blocks, 2, H, T];
                  // gates: the gradient itself, or NULL
    int bias_row, bias_block; // its strides; of slopes that differ, [blocks, B, H]
    struct attention_shape s;
    struct angles rotation; // of q and k; dq and dk are rotated back
    struct kept_tiles kept;
    struct query_lists lists; // LISTED
    int tiles, blocks;        // of queries, of keys, of a sequence
    int packed_tiles;         // of a head, of all packed sequences
    int *ticket;              // the next block number
    struct weight_mask mask;
    const float *gains; // at distance 0, see find_gains()
    float inverse;      // 1 / scale
};

template <int D> struct backward_smem {
    bf16 k[D / PANEL][BLOCK_KEYS][PANEL], v[D / PANEL][BLOCK_KEYS][PANEL];
    bf16 q[STAGES][D / PANEL][QUERIES][PANEL], dy[STAGES][D / PANEL][QUERIES][PANEL];
    bf16 ds[DS_STAGES][BLOCK_KEYS][QUERIES]; // dS^T: one is written while the other is still read
    float4 dq[CONSUMERS][D / 16][WARPGROUP]; // each consumer has half of the columns
    float lse[STAGES][QUERIES], delta[STAGES][QUERIES];
    struct bias_table table;      // of the current head
    float bins[2][TABLE_LARGEST]; // its gradient, of even and odd queries
    float sums[CONSUMER_WARPS];
    int ticket;
    mbarrier kv_full, full[STAGES], empty[STAGES], rows_empty[STAGES], dq_full, dq_empty;
};

// The first query tile of a head of a sequence, in dq and semaphores: [B, H, tiles], or packed [H,
// packed_tiles], where no tile is of two sequences.
__device__ __forceinline__ int64_t first_query_tile(const backward_params &p, int start, int b,
                                                    int h)
{
    return p.s.packed.q ? (int64_t)h * p.packed_tiles + start / QUERIES + b
                        : ((int64_t)b * p.s.H + h) * p.tiles;
}

// Panels begin at multiples of SWIZZLE_ATOM, dynamic shared memory at any of 256 bytes.
template <int D> constexpr size_t backward_smem_bytes = sizeof(backward_smem<D>) + SWIZZLE_ATOM;
static_assert(backward_smem_bytes<64> <= SMEM_MAX && backward_smem_bytes<128> <= SMEM_MAX,
              "the stages fit in shared memory");
static_assert(offsetof(backward_smem<64>, ds) % SWIZZLE_ATOM == 0 &&
                  offsetof(backward_smem<128>, ds) % SWIZZLE_ATOM == 0,
              "all panels before ds, and ds, begin at multiples of the swizzle atom");
static_assert(WARPGROUP * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <=
                  block_registers(THREADS),
              "setmaxnreg must not wait for registers that never come");

#if HAS_WGMMA

// The number of this thread among the consumers.
__device__ __forceinline__ int consumer_thread()
{
    return (int)threadIdx.x - WARPGROUP;
}

// The keys of a thread block, and its walk over all query tiles that use them: head after head of
// the group, tiles ascending. Producer and consumers iterate identically.
template <int MASK> struct walk {
    int b, kv, block, first_key, h, tile, last_head;
    int tiles;             // with a window: until the last one that sees a key of the block
    int start, own_length; // of packed sequences: the first row, and how many

    __device__ __forceinline__ walk(const backward_params &p, int ticket)
    {
        int head = ticket / p.blocks;

        if (MASK == LISTED && p.lists.order)
            head = p.lists.order[head];
        block = p.blocks - 1 - ticket % p.blocks;
        b = head / p.s.Hkv;
        kv = head % p.s.Hkv;
        first_key = block * BLOCK_KEYS;
        h = kv * (p.s.H / p.s.Hkv);
        last_head = h + p.s.H / p.s.Hkv - 1;
        tile = first_tile() - 1;
        if (MASK == PACKED) {
            const struct sequence own = p.s.sequence_of(b);
            start = own.q;
            own_length = own.Lq;
        }
        if (MASK >= WINDOW)
            tiles = min(MASK == PACKED ? (own_length + QUERIES - 1) / QUERIES : p.tiles,
                        (first_key + BLOCK_KEYS - 1 + p.s.window - 1) / QUERIES + 1);
    }

    // Queries, and keys, of the sequence.
    __device__ __forceinline__ int length(const backward_params &p) const
    {
        return MASK == PACKED ? own_length : p.s.Lq;
    }

    // Where it is in the views: the row of the batch, the row of its first query and key.
    __device__ __forceinline__ int batch() const
    {
        return MASK == PACKED ? 0 : b;
    }

    __device__ __forceinline__ int row() const
    {
        return MASK == PACKED ? start : 0;
    }

    // The head's numbers by queries, such as lse.
    __device__ __forceinline__ int64_t queries(const backward_params &p) const
    {
        return MASK == PACKED ? p.s.row(b, h, start) : head(p) * p.s.Lq;
    }

    __device__ __forceinline__ int64_t query_tile(const backward_params &p) const
    {
        return (MASK == PACKED ? first_query_tile(p, start, b, h) : head(p) * p.tiles) + tile;
    }

    __device__ __forceinline__ int first_tile() const
    {
        return first_key / QUERIES;
    }

    __device__ __forceinline__ int64_t head(const backward_params &p) const
    {
        return (int64_t)b * p.s.H + h;
    }

    // To the next tile of this head that uses the keys; false after the last.
    __device__ __forceinline__ bool next(const backward_params &p)
    {
        tile++;
        if constexpr (MASK == LISTED) {
            const uint32_t *row = p.lists.bits + (head(p) * p.blocks + block) * p.lists.words;
            uint32_t mask = ~0u << (tile & 31); // the tiles of this word from here on
            for (int word = tile >> 5; word < p.lists.words; word++, mask = ~0u)
                if (uint32_t bits = row[word] & mask) {
                    tile = 32 * word + __ffs((int)bits) - 1;
                    return true;
                }
        } else {
            for (; tile < (MASK >= WINDOW ? tiles : p.tiles); tile++)
                if (!p.kept.bits || keys_are_kept(p.kept.row(head(p), tile), block))
                    return true;
        }
        return false;
    }

    __device__ __forceinline__ bool next_head()
    {
        tile = first_tile() - 1;
        return ++h <= last_head;
    }

    // How many key blocks add to dQ of this tile before this one: the kept ones between here and
    // the diagonal. All of them are in the window if this one is.
    __device__ __forceinline__ int order(const backward_params &p) const
    {
        int nearest = tile * QUERIES / BLOCK_KEYS, count = 0;
        const uint32_t *row;

        if (!p.kept.bits)
            return nearest - block;
        row = p.kept.row(head(p), tile);
        for (int word = (block + 1) / 16; word <= nearest / 16; word++) {
            uint32_t blocks = (row[word] | row[word] >> 1) & 0x55555555u; // a bit of two for each
            if (word == (block + 1) / 16)
                blocks &= ~0u << 2 * ((block + 1) % 16);
            if (word == nearest / 16)
                blocks &= ~0u >> (30 - 2 * (nearest % 16));
            count += __popc(blocks);
        }
        return count;
    }
};

// GAIN, LONG_TABLE: factors, or biases / scale, of one tile's distances, stored in smem->table.
// Index 0 is the distance from the block's first key to the tile's first query.
enum { TILE_DISTANCES = BLOCK_KEYS + QUERIES };

template <int D> __device__ __forceinline__ float *tile_table(backward_smem<D> *smem, int stage)
{
    static_assert(STAGES * TILE_DISTANCES <= sizeof(struct bias_table) / sizeof(float), "room");
    static_assert((int)TILE_DISTANCES <= TABLE_AROUND,
                  "a tile on the diagonal stays in the padding");
    return smem->table.entries + stage * TILE_DISTANCES + BLOCK_KEYS;
}

// ---- producer

template <int D, int MASK>
__device__ __forceinline__ void load_keys(const backward_params &p, backward_smem<D> *smem,
                                          const walk<MASK> &w)
{
    mbarrier_arrive_expect_tx(&smem->kv_full, sizeof smem->k + sizeof smem->v);
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++) {
        tma_load(smem->k[panel], &p.k, &smem->kv_full, panel * PANEL, w.kv, w.row() + w.first_key,
                 w.batch());
        tma_load(smem->v[panel], &p.v, &smem->kv_full, panel * PANEL, w.kv, w.row() + w.first_key,
                 w.batch());
    }
}

template <int D, int MASK>
__device__ __forceinline__ void load_queries(const backward_params &p, backward_smem<D> *smem,
                                             const walk<MASK> &w, int stage)
{
    mbarrier_arrive_expect_tx(&smem->full[stage], sizeof smem->q[0] + sizeof smem->dy[0]);
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++) {
        tma_load(smem->q[stage][panel], &p.q, &smem->full[stage], panel * PANEL, w.h,
                 w.row() + w.tile * QUERIES, w.batch());
        tma_load(smem->dy[stage][panel], &p.dy, &smem->full[stage], panel * PANEL, w.h,
                 w.row() + w.tile * QUERIES, w.batch());
    }
}

// lse is infinite after the last query, so P is 0. GATES: c_i - c_(first key) is subtracted from
// lse here. GAIN: so is the 1 of the bias 1 - gain^2.
template <int D, int BIAS, int MASK>
__device__ __forceinline__ void load_rows(const backward_params &p, backward_smem<D> *smem,
                                          const walk<MASK> &w, int stage)
{
    const float *lse = p.lse + w.queries(p), *delta = p.delta + w.queries(p);
    const int length = w.length(p);

    for (int q = threadIdx.x % 32; q < QUERIES; q += 32) {
        int i = w.tile * QUERIES + q;
        float c = BIAS == GAIN ? 1.0f : 0.0f;
        if (BIAS == GATES && w.h < p.s.G && i < length)
            c = p.s.gates(w.b, w.h, i, w.first_key);
        smem->lse[stage][q] = i < length ? (lse[i] - c) / p.s.scale : INFINITY;
        smem->delta[stage][q] = i < length ? delta[i] : 0.0f;
    }
    if (BIAS == GAIN || BIAS == LONG_TABLE) {
        int lead = w.tile * QUERIES - w.first_key;
        float *to = tile_table<D>(smem, stage);
        for (int n = (int)threadIdx.x % 32 - BLOCK_KEYS; n < QUERIES; n += 32)
            to[n] =
                BIAS == GAIN ? p.gains[lead + n] : p.s.bias(w.b, w.h, max(0, lead + n)) * p.inverse;
    }
    mbarrier_arrive(&smem->full[stage]);
}

// Sends dQ of one tile to global memory: the first in order stores, the others add when the
// semaphore has counted those before them. The consumers may overwrite shared memory as soon as TMA
// has read it; the semaphore is released when the data has arrived.
template <int D, int MASK>
__device__ __forceinline__ void send_dq(const backward_params &p, backward_smem<D> *smem,
                                        const walk<MASK> &w, int tiles_done)
{
    int64_t tile = w.query_tile(p);
    int order = w.order(p);

    mbarrier_wait(&smem->dq_full, tiles_done % 2);
    if (order == 0) {
        tma_store(p.dq + tile * (QUERIES * D), (const float *)smem->dq, sizeof smem->dq);
    } else {
        semaphore_wait_tma(p.semaphores + tile, order);
        tma_reduce_add(p.dq + tile * (QUERIES * D), (const float *)smem->dq, sizeof smem->dq);
    }
    tma_store_commit();
    tma_store_wait_read();
    mbarrier_arrive(&smem->dq_empty);
    tma_store_wait();
    semaphore_release_tma(p.semaphores + tile);
}

template <int D, int BIAS, int MASK>
__device__ __forceinline__ void produce(const backward_params &p, backward_smem<D> *smem)
{
    enum { LOAD_WARP, ROWS_WARP, DQ_WARP };
    int warp = threadIdx.x / 32, tiles_done = 0;
    walk<MASK> w(p, smem->ticket);
    pipeline_state<STAGES> t = { 0, PRODUCER_PARITY };

    if (warp > DQ_WARP || (warp != ROWS_WARP && threadIdx.x % 32 > 0))
        return;
    if (warp == LOAD_WARP)
        load_keys<D, MASK>(p, smem, w);
    do {
        while (w.next(p)) {
            if (warp == DQ_WARP) {
                send_dq<D, MASK>(p, smem, w, tiles_done++);
                continue;
            }
            mbarrier_wait(warp == LOAD_WARP ? &smem->empty[t.stage] : &smem->rows_empty[t.stage],
                          t.parity);
            if (warp == LOAD_WARP)
                load_queries<D, MASK>(p, smem, w, t.stage);
            else
                load_rows<D, BIAS, MASK>(p, smem, w, t.stage);
            t.advance();
        }
    } while (w.next_head());
}

// ---- consumer: starting values of the accumulators

// One thread's part of its warpgroup's 64 keys: elements of two rows, `row` and row + 8,
// counted within the block. Columns are queries.
template <int D> struct fragment {
    float dk[D / 2], dv[D / 2];
    float s[QUERIES / 2], dp[QUERIES / 2]; // S^T, then P^T; dP^T, then dS^T
    float dq[D / 4];                       // this consumer's half of the columns of a query tile
    uint32_t p[QUERIES / WGMMA_K][4], ds[QUERIES / WGMMA_K][4]; // P^T and dS^T as A operands
    int row, column;
    float slope;          // sum of -dS times the distance
    float last_entry;     // sum of dS at distances that share the table's last entry
    float column_sums[2]; // gates: of -dS of both keys
};

// Whether all pairs of a tile have the table's last entry. `lead` is the distance of the tile's
// first query from the block's first key.
__device__ __forceinline__ bool is_far(const backward_params &p, int lead)
{
    return lead - (BLOCK_KEYS - 1) >= p.s.T - 1;
}

// S^T starts from (bias - lse) / scale; here the bias is -slope * distance, step = slope / scale.
template <int D>
__device__ __forceinline__ void start_from_slope(fragment<D> &f, const backward_smem<D> *smem,
                                                 int lead, float step, int stage)
{
    float distance = (float)(lead + f.column - f.row); // whole numbers: the sums below are exact

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        int q = 8 * (i / 4);
        float2 lse = *(const float2 *)&smem->lse[stage][q + f.column];
        f.s[i] = fmaf(-step, distance + (float)q, -lse.x);
        f.s[i + 1] = fmaf(-step, distance + (float)(q + 1), -lse.y);
        f.s[i + 2] = fmaf(step, 8.0f, f.s[i]);
        f.s[i + 3] = fmaf(step, 8.0f, f.s[i + 1]);
    }
}

// `bias`: at the distance of the thread's first elements.
template <int D>
__device__ __forceinline__ void start_from_table(fragment<D> &f, const backward_smem<D> *smem,
                                                 const float *bias, int stage)
{
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        int q = 8 * (i / 4);
        float2 lse = *(const float2 *)&smem->lse[stage][q + f.column];
        f.s[i] = bias[q] - lse.x;
        f.s[i + 1] = bias[q + 1] - lse.y;
        f.s[i + 2] = bias[q - 8] - lse.x;
        f.s[i + 3] = bias[q - 7] - lse.y;
    }
}

// All pairs have the table's last entry.
template <int D>
__device__ __forceinline__ void start_from_last(fragment<D> &f, const backward_smem<D> *smem, int T,
                                                int stage)
{
    float last = *smem->table.at(T - 1);

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        float2 lse = *(const float2 *)&smem->lse[stage][8 * (i / 4) + f.column];
        f.s[i] = f.s[i + 2] = last - lse.x;
        f.s[i + 1] = f.s[i + 3] = last - lse.y;
    }
}

// GATES: smem->table holds (c of the block's first key - c of each key) / scale; lse has the
// query's part.
template <int D>
__device__ __forceinline__ void start_from_gates(fragment<D> &f, const backward_smem<D> *smem,
                                                 int stage)
{
    float upper = smem->table.entries[f.row], lower = smem->table.entries[f.row + 8];

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        float2 lse = *(const float2 *)&smem->lse[stage][8 * (i / 4) + f.column];
        f.s[i] = upper - lse.x;
        f.s[i + 1] = upper - lse.y;
        f.s[i + 2] = lower - lse.x;
        f.s[i + 3] = lower - lse.y;
    }
}

// dP^T starts from -delta.
template <int D>
__device__ __forceinline__ void start_from_delta(fragment<D> &f, const backward_smem<D> *smem,
                                                 int stage)
{
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        float2 delta = *(const float2 *)&smem->delta[stage][8 * (i / 4) + f.column];
        f.dp[i] = f.dp[i + 2] = -delta.x;
        f.dp[i + 1] = f.dp[i + 3] = -delta.y;
    }
}

// ---- consumer: the five products

// S^T += K Q^T and dP^T += V dY^T: 64 rows of a (keys) by the QUERIES rows of b, both K-major.
template <int D>
__device__ __forceinline__ void issue_rows(float (&d)[QUERIES / 2], uint32_t a, uint32_t b)
{
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < D / WGMMA_K; n++) {
        int panel = n / K_STEPS_PER_PANEL, within = n % K_STEPS_PER_PANEL * K_STEP;
        wgmma_ss<QUERIES, 0, 0>(
            d, descriptor_k_major(a + panel * (uint32_t)sizeof(backward_smem<D>::k[0]) + within),
            descriptor_k_major(b + panel * (uint32_t)sizeof(backward_smem<D>::q[0][0]) + within),
            1);
    }
    wgmma_commit();
}

// dV += P^T dY and dK += dS^T Q: a (keys by queries) in registers, b (QUERIES by D) MN-major.
template <int D>
__device__ __forceinline__ void issue_gradient(float (&d)[D / 2],
                                               const uint32_t (&a)[QUERIES / WGMMA_K][4],
                                               uint32_t b)
{
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < QUERIES / WGMMA_K; n++)
        wgmma_rs<D, 1>(d, a[n],
                       descriptor_mn_major(b + n * K_ROWS, sizeof(backward_smem<D>::q[0][0])), 1);
    wgmma_commit();
}

// Half of the columns of dQ = dS K: both operands have a row per key, so both are MN-major.
template <int D>
__device__ __forceinline__ void issue_dq(float (&d)[D / 4], uint32_t ds, uint32_t k)
{
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < BLOCK_KEYS / WGMMA_K; n++)
        wgmma_ss<D / 2, 1, 1>(d, descriptor_mn_major(ds + n * K_ROWS, 0),
                              descriptor_mn_major(k + n * K_ROWS, 0), n > 0);
    wgmma_commit();
}

// ---- consumer: between the products

// Gain: S^T, which started from zero, becomes gain S^T + (1 - gain^2 - lse) / scale.
template <int D>
__device__ __forceinline__ void apply_gain(fragment<D> &f, backward_smem<D> *smem, float inverse,
                                           int stage)
{
    const float *gain = tile_table<D>(smem, stage) + (f.column - f.row);

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        float2 lse = *(const float2 *)&smem->lse[stage][8 * (i / 4) + f.column];
        float g = gain[8 * (i / 4) + (i & 1) - (i & 2 ? 8 : 0)];
        f.s[i] = fmaf(g, fmaf(-inverse, g, f.s[i]), i & 1 ? -lse.y : -lse.x);
    }
}

// P^T becomes gain P^T, from which dS^T gets the factor that dQ and dK need.
template <int D>
__device__ __forceinline__ void multiply_gain(fragment<D> &f, backward_smem<D> *smem, int stage)
{
    const float *gain = tile_table<D>(smem, stage) + (f.column - f.row);

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++)
        f.s[i] *= gain[8 * (i / 4) + (i & 1) - (i & 2 ? 8 : 0)];
}

// S^T becomes P^T. A query does not see the keys after it, nor those outside the window.
template <int D, int MASK>
__device__ __forceinline__ void apply_softmax(fragment<D> &f, float scale_log2, int lead,
                                              int window)
{
    bool masked = lead < BLOCK_KEYS, cut = MASK >= WINDOW && lead + QUERIES > window;

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        f.s[i] = exp2_approx(f.s[i] * scale_log2);
        if (masked && lead + 8 * (i / 4) + f.column + (i & 1) < f.row + (i & 2 ? 8 : 0))
            f.s[i] = 0.0f;
        if (cut && lead + 8 * (i / 4) + f.column + (i & 1) >= f.row + (i & 2 ? 8 : 0) + window)
            f.s[i] = 0.0f;
    }
}

// One bit per element of S^T: whether its weight is dropped. Two neighbouring groups of 8 queries
// share blocks of random numbers, as the two rows of keys do.
template <int D, int MASK>
__device__ __forceinline__ uint32_t draw_mask(const fragment<D> &f, const backward_params &p,
                                              const walk<MASK> &w)
{
    uint64_t first = p.mask.block(w.head(p), w.tile * QUERIES + f.column, w.first_key + f.row);
    uint32_t bits = 0;

#pragma unroll 1
    for (int i = 0; i < QUERIES / 2; i += 8) {
        uint32_t eight = 0;
#pragma unroll
        for (int e = 0; e < 2; e++) {
            uint4 words = p.mask.words(first + (uint64_t)(i + e) * (uint64_t)p.mask.half);
            eight |= (uint32_t)p.mask.drops(words.x) << e |
                     (uint32_t)p.mask.drops(words.y) << (2 + e) |
                     (uint32_t)p.mask.drops(words.z) << (4 + e) |
                     (uint32_t)p.mask.drops(words.w) << (6 + e);
        }
        bits |= eight << i;
    }
    return bits;
}

// P^T without what is dropped, as the A operand of dV, whose factor 1 / (1 - p) comes at the end.
template <int D> __device__ __forceinline__ void pack_dropped(fragment<D> &f, uint32_t dropped)
{
    float kept[QUERIES / 2];

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++)
        kept[i] = dropped >> i & 1 ? 0.0f : f.s[i];
    pack_operand<QUERIES>(f.p, kept);
}

// dP^T, which started from 0, becomes M dP^T - delta.
template <int D>
__device__ __forceinline__ void drop_gradient(fragment<D> &f, const backward_smem<D> *smem,
                                              uint32_t dropped, float factor, int stage)
{
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        float delta = smem->delta[stage][8 * (i / 4) + f.column + (i & 1)];
        f.dp[i] = fmaf(dropped >> i & 1 ? 0.0f : factor, f.dp[i], -delta);
    }
}

// Stores dS^T by stmatrix, swizzled. A warp has 16 keys. The four registers of an A operand are
// four 8 x 8 matrices: keys 0-7 and 8-15 of 8 queries, then of the next 8. Lane l passes the
// address of row l % 8 of matrix l / 8. `row`: that of the thread's own elements.
__device__ __forceinline__ void store_ds(bf16 (*to)[QUERIES],
                                         const uint32_t (&from)[QUERIES / WGMMA_K][4], int row)
{
    int lane = threadIdx.x % 32, key = row - lane / 4 + lane % 16, right = lane / 16;
    uint32_t at = shared_address(to[key]);

#pragma unroll
    for (int n = 0; n < QUERIES / WGMMA_K; n++)
        store_matrices(at + ((2 * n + right) ^ key % SWIZZLE_ROWS) * SWIZZLE_CHUNK, from[n]);
}

// dQ to shared memory, thread after thread of each consumer, four registers at a time. The order is
// the same in all blocks, so TMA can add it as it is.
template <int D>
__device__ __forceinline__ void store_dq(const float (&d)[D / 4], backward_smem<D> *smem,
                                         int tiles_done, int group)
{
    mbarrier_wait(&smem->dq_empty, tiles_done % 2 ^ 1);
#pragma unroll
    for (int j = 0; j < D / 16; j++)
        smem->dq[group][j][threadIdx.x % WARPGROUP] =
            make_float4(d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
    fence_async_proxy();
    warp_arrive(&smem->dq_full);
}

// ---- consumer: the gradient of the bias

// Slopes: the sum of dS times -distance, where -distance = row - lead - query.
template <int D> __device__ __forceinline__ void add_slopes(fragment<D> &f, int lead)
{
    float sum = 0.0f, moment = 0.0f;

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        sum += f.dp[i];
        moment = fmaf(f.dp[i], (float)((i & 2 ? 8 : 0) - 8 * (i / 4) - (i & 1)), moment);
    }
    f.slope += fmaf(sum, (float)(f.row - lead - f.column), moment);
}

// Distances from the table's last entry on share it.
template <int D>
__device__ __forceinline__ void add_bin(fragment<D> &f, const backward_params &p, float *bins,
                                        int distance, float sum)
{
    if (distance >= p.s.T - 1)
        f.last_entry += sum;
    else if (distance >= 0)
        bins[distance] += sum;
}

// A table: each diagonal of dS has one distance. A thread reads two neighbouring queries at a time,
// so it sums two diagonals: even queries into one array of bins, odd ones into another, each in a
// fixed order. The quarters of a warp read different words of a swizzle chunk, so that all lanes
// read from banks of their own. A step that leaves the tile wraps around; its value is read and
// ignored. The bins may be in global memory: from one tile to the next, other threads
// add to them, after the barrier among the consumers.
template <int D>
__device__ __forceinline__ void add_table(fragment<D> &f, const backward_params &p,
                                          const bf16 (*ds)[QUERIES], int lead, float *even_bins,
                                          float *odd_bins)
{
    const uint32_t row = sizeof ds[0], all = BLOCK_KEYS * row;
    int diagonal = consumer_thread() - (BLOCK_KEYS - 1), quarter = threadIdx.x % 32 / 8;
    float even = 0.0f, odd = 0.0f;

    if (diagonal >= QUERIES)
        return;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int word = (n + quarter) % 4, key = 2 * word - diagonal; // of the first 8 queries
        uint32_t first =
            (uint32_t)key * row + (key & (SWIZZLE_ROWS - 1)) * SWIZZLE_CHUNK + word * 4;
#pragma unroll
        for (int chunk = 0; chunk < QUERIES / 8; chunk++) {
            uint32_t at = first + chunk * 8 * row;
            uint32_t two =
                *(const uint32_t *)((const char *)ds + ((at & (all - 1)) ^ chunk * SWIZZLE_CHUNK));
            if (at < all) {
                even += __uint_as_float(two << 16);
                odd += __uint_as_float(two & 0xffff0000u);
            }
        }
    }
    add_bin<D>(f, p, even_bins, lead + diagonal, even);
    add_bin<D>(f, p, odd_bins, lead + diagonal + 1, odd);
}

// A far tile goes to the last entry as a whole. Four sums side by side: one alone would be a chain
// of dependent additions.
template <int D> __device__ __forceinline__ void add_far(fragment<D> &f)
{
    float sums[4] = { f.dp[0], f.dp[1], f.dp[2], f.dp[3] };

#pragma unroll
    for (int i = 4; i < QUERIES / 2; i++)
        sums[i % 4] += f.dp[i];
    f.last_entry += (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Gates: a key's gradient is minus its sum of dS over all queries. Two sums side by side for each
// key: one alone would be a chain of dependent additions.
template <int D> __device__ __forceinline__ void add_gates(fragment<D> &f)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float even = 0.0f, odd = 0.0f;
#pragma unroll
        for (int i = 2 * half; i < QUERIES / 2; i += 4) {
            even += f.dp[i];
            odd += f.dp[i + 1];
        }
        f.column_sums[half] -= even + odd;
    }
}

// The gates of the head that begins, in the place of a table.
template <int D, int MASK>
__device__ __forceinline__ void load_gates(const backward_params &p, backward_smem<D> *smem,
                                           const walk<MASK> &w)
{
    named_barrier_sync<CONSUMER_THREADS>(CONSUMERS_BARRIER); // the head before is done
    for (int i = threadIdx.x - WARPGROUP; i < BLOCK_KEYS; i += CONSUMER_THREADS) {
        int key = min(w.first_key + i, p.s.Lk - 1);
        smem->table.entries[i] =
            w.h < p.s.G ? p.s.gates(w.b, w.h, w.first_key, key) / p.s.scale : 0.0f;
    }
    named_barrier_sync<CONSUMER_THREADS>(CONSUMERS_BARRIER);
}

// The table of the head that begins, and cleared bins.
template <int D>
__device__ __forceinline__ void load_table(const backward_params &p, backward_smem<D> *smem, int h)
{
    fill_table(&smem->table, p.s, h, consumer_thread(), CONSUMER_THREADS);
    for (int i = consumer_thread(); i < p.s.T; i += CONSUMER_THREADS)
        smem->bins[0][i] = smem->bins[1][i] = 0.0f;
    named_barrier_sync<CONSUMER_THREADS>(CONSUMERS_BARRIER);
}

// A long table: the bins of even and odd queries in global memory.
template <int MASK>
__device__ __forceinline__ float *long_bins(const backward_params &p, const walk<MASK> &w, int odd)
{
    return p.dbias + ((((int64_t)w.b * p.blocks + w.block) * 2 + odd) * p.s.H + w.h) * p.s.T;
}

template <int D, int MASK>
__device__ __forceinline__ void clear_long_bins(const backward_params &p, const walk<MASK> &w)
{
    float *even = long_bins(p, w, 0), *odd = long_bins(p, w, 1);

    for (int i = consumer_thread(); i < p.s.T; i += CONSUMER_THREADS)
        even[i] = odd[i] = 0.0f;
}

// The sum over both consumers, in a fixed order, for every thread.
template <int D> __device__ __forceinline__ float sum_consumers(backward_smem<D> *smem, float x)
{
    float all = 0.0f;

    x = warp_sum(x);
    if (threadIdx.x % 32 == 0)
        smem->sums[threadIdx.x / 32 - WARPGROUP / 32] = x;
    named_barrier_sync<CONSUMER_THREADS>(CONSUMERS_BARRIER);
    for (int i = 0; i < CONSUMER_WARPS; i++)
        all += smem->sums[i];
    named_barrier_sync<CONSUMER_THREADS>(CONSUMERS_BARRIER);
    return all;
}

// At the end of a head: this block's partial gradient of its bias.
template <int D, int BIAS, int MASK>
__device__ __forceinline__ void write_bias(fragment<D> &f, const backward_params &p,
                                           backward_smem<D> *smem, const walk<MASK> &w)
{
    int place = w.b * p.bias_row + w.block * p.bias_block + w.h;

    if (BIAS == LEARNED_SLOPES) {
        float sum = sum_consumers<D>(smem, f.slope);
        if (consumer_thread() == 0)
            p.dbias[place] = sum;
        f.slope = 0.0f;
    }
    if (BIAS == TABLE) {
        float far = sum_consumers<D>(smem, f.last_entry);
        for (int i = consumer_thread(); i < p.s.T; i += CONSUMER_THREADS)
            p.dbias[(int64_t)place * p.s.T + i] =
                smem->bins[0][i] + smem->bins[1][i] + (i == p.s.T - 1 ? far : 0.0f);
        f.last_entry = 0.0f;
    }
    if (BIAS == LONG_TABLE) {
        float far = sum_consumers<D>(smem, f.last_entry);
        if (consumer_thread() == 0)
            long_bins(p, w, 0)[p.s.T - 1] = far;
        f.last_entry = 0.0f;
    }
    if (BIAS == GATES) { // the four lanes of a row; no other block has its keys
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int key = w.first_key + f.row + 8 * half;
            float sum = f.column_sums[half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (p.dbias && w.h < p.s.G && key < p.s.Lk && f.column == 0)
                p.dbias[((int64_t)w.b * p.s.G + w.h) * p.s.Lk + key] = sum;
            f.column_sums[half] = 0.0f;
        }
    }
}

// ---- consumer: one tile, and all of them

// S^T and dP^T at their starting values.
template <int D, int BIAS, int MASK>
__device__ __forceinline__ void start_accumulators(fragment<D> &f, const backward_params &p,
                                                   backward_smem<D> *smem, int lead, float step,
                                                   int stage)
{
    if (BIAS == GATES)
        start_from_gates<D>(f, smem, stage);
    else if (BIAS == GAIN)
        clear_fragment(f.s);
    else if (BIAS == LONG_TABLE)
        start_from_table<D>(f, smem, tile_table<D>(smem, stage) + (f.column - f.row), stage);
    else if (BIAS != TABLE)
        start_from_slope<D>(f, smem, lead, step, stage);
    else if (is_far(p, lead))
        start_from_last<D>(f, smem, p.s.T, stage);
    else
        start_from_table<D>(f, smem, smem->table.at(lead + f.column - f.row), stage);
    if constexpr (MASK == DROPOUT) {
        clear_fragment(f.dp);
    } else {
        start_from_delta<D>(f, smem, stage);
        if (BIAS != GAIN)
            warp_arrive(&smem->rows_empty[stage]);
    }
    fence_fragment(f.s);
    fence_fragment(f.dp);
}

// One query tile, after `tiles_done` others.
template <int D, int BIAS, int MASK>
__device__ __forceinline__ void consume_tile(fragment<D> &f, const backward_params &p,
                                             backward_smem<D> *smem, const walk<MASK> &w,
                                             float step, pipeline_state<STAGES> t, int tiles_done,
                                             int group)
{
    const uint32_t half = group * (WGMMA_M * PANEL_ROW); // this consumer's rows of K and V
    // This consumer's half of the columns of K: half a panel, or a panel of its own.
    const uint32_t columns = group * (D == 64 ? PANEL_ROW / 2 : (int)sizeof smem->k[0]);
    int lead = w.tile * QUERIES - w.first_key;

    // S^T and dP^T, from their starting values. Then lse and delta are free, except with GAIN and
    // dropout.
    mbarrier_wait(&smem->full[t.stage], t.parity);
    start_accumulators<D, BIAS, MASK>(f, p, smem, lead, step, t.stage);
    issue_rows<D>(f.s, shared_address(smem->k) + half, shared_address(smem->q[t.stage]));
    issue_rows<D>(f.dp, shared_address(smem->v) + half, shared_address(smem->dy[t.stage]));

    // P^T, while dP^T is in flight.
    uint32_t dropped = 0;
    if constexpr (MASK == DROPOUT)
        dropped = draw_mask<D, MASK>(f, p, w);
    wgmma_wait<1>();
    fence_fragment(f.s);
    if constexpr (BIAS == GAIN)
        apply_gain<D>(f, smem, p.inverse, t.stage);
    apply_softmax<D, MASK>(f, p.s.scale * log2_e, lead, p.s.window);
    if constexpr (MASK == DROPOUT)
        pack_dropped<D>(f, dropped);
    else
        pack_operand<QUERIES>(f.p, f.s);
    if constexpr (BIAS == GAIN) {
        multiply_gain<D>(f, smem, t.stage);
        if (MASK != DROPOUT)
            warp_arrive(&smem->rows_empty[t.stage]);
    }

    // dS^T, while dV is in flight. Then dK.
    wgmma_wait<0>();
    fence_fragment(f.dp);
    if constexpr (MASK == DROPOUT) {
        drop_gradient<D>(f, smem, dropped, p.mask.mask.kept, t.stage);
        warp_arrive(&smem->rows_empty[t.stage]);
    }
    issue_gradient<D>(f.dv, f.p, shared_address(smem->dy[t.stage]));
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++)
        f.dp[i] *= f.s[i];
    if (BIAS == LEARNED_SLOPES)
        add_slopes<D>(f, lead);
    if ((BIAS == TABLE || BIAS == LONG_TABLE) && is_far(p, lead))
        add_far<D>(f);
    if (BIAS == GATES)
        add_gates<D>(f);
    pack_operand<QUERIES>(f.ds, f.dp);
    store_ds(smem->ds[tiles_done % DS_STAGES], f.ds, f.row);
    fence_async_proxy();
    issue_gradient<D>(f.dk, f.ds, shared_address(smem->q[t.stage]));

    // dQ needs dS of both consumers.
    named_barrier_sync<CONSUMER_THREADS>(CONSUMERS_BARRIER);
    issue_dq<D>(f.dq, shared_address(smem->ds[tiles_done % DS_STAGES]),
                shared_address(smem->k) + columns);
    if (BIAS == TABLE && !is_far(p, lead))
        add_table<D>(f, p, smem->ds[tiles_done % DS_STAGES], lead, smem->bins[0], smem->bins[1]);
    if (BIAS == LONG_TABLE && !is_far(p, lead))
        add_table<D>(f, p, smem->ds[tiles_done % DS_STAGES], lead, long_bins(p, w, 0),
                     long_bins(p, w, 1));

    // dV and dK are done: the stage is free. dQ goes to shared memory while the next tile loads.
    wgmma_wait<1>();
    fence_fragment(f.dk);
    fence_fragment(f.dv);
    fence_fragment(f.p);
    fence_fragment(f.ds);
    if (threadIdx.x % WARPGROUP == 0)
        mbarrier_arrive(&smem->empty[t.stage]);
    wgmma_wait<0>();
    fence_fragment(f.dq);
    store_dq<D>(f.dq, smem, tiles_done, group);
}

// Rotates dK back. Both elements of a pair are in one thread: half of the columns apart, or next to
// each other.
template <int D, int MASK>
__device__ __forceinline__ void rotate_keys(float (&d)[D / 2], const fragment<D> &f,
                                            const backward_params &p, const walk<MASK> &w)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int key = min(w.first_key + f.row + 8 * half, p.s.Lk - 1);
        const float *cosines = p.rotation.table + (int64_t)key * D, *sines = cosines + D / 2;
        if (p.rotation.halves) {
#pragma unroll
            for (int j = 0; j < D / 16; j++) {
                float2 cosine = *(const float2 *)(cosines + 8 * j + f.column),
                       sine = *(const float2 *)(sines + 8 * j + f.column);
                int a = 4 * j + 2 * half, b = a + D / 4;
                rotate(d[a], d[b], cosine.x, -sine.x);
                rotate(d[a + 1], d[b + 1], cosine.y, -sine.y);
            }
        } else {
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                int n = 4 * j + f.column / 2, a = 4 * j + 2 * half;
                rotate(d[a], d[a + 1], cosines[n], -sines[n]);
            }
        }
    }
}

// Writes dK or dV, scaled. V is not needed any more: all have met since they last read it.
template <int D, int MASK>
__device__ __forceinline__ void write_rows(float (&d)[D / 2], const fragment<D> &f,
                                           const backward_params &p, backward_smem<D> *smem,
                                           const walk<MASK> &w, heads<bf16> to, float scale)
{
    const int in_block = f.row / WARP_ROWS * WARP_ROWS, first = w.first_key + in_block;
    const int keys = MASK == PACKED ? w.length(p) : p.s.Lk;

#pragma unroll
    for (int i = 0; i < D / 2; i++)
        d[i] *= scale;
    write_fragment<D>((bf16(*)[D])smem->v + in_block, d, p.s.D, [&](int row) {
        int key = first + row;
        return key < keys ? to.row(w.batch(), w.row() + key, w.kv) : NULL;
    });
}

template <int D, int BIAS, int MASK>
__device__ __forceinline__ void consume(const backward_params &p, backward_smem<D> *smem, int group)
{
    int lane = threadIdx.x % 32, tiles_done = 0;
    walk<MASK> w(p, smem->ticket);
    pipeline_state<STAGES> t = { 0, CONSUMER_PARITY };
    fragment<D> f;

    f.row = group * WGMMA_M + threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    f.column = lane % 4 * 2;
    f.slope = f.last_entry = f.column_sums[0] = f.column_sums[1] = 0.0f;
    clear_fragment(f.dk);
    clear_fragment(f.dv);
    do {
        float step = p.s.kind == BIAS_LINEAR ? p.s.slope(w.b, w.h) / p.s.scale : 0.0f;
        if (BIAS == TABLE)
            load_table<D>(p, smem, w.h);
        if (BIAS == LONG_TABLE)
            clear_long_bins<D, MASK>(p, w);
        if (BIAS == GATES)
            load_gates<D, MASK>(p, smem, w);
        mbarrier_wait(&smem->kv_full, 0);
        while (w.next(p)) {
            consume_tile<D, BIAS, MASK>(f, p, smem, w, step, t, tiles_done++, group);
            t.advance();
        }
        write_bias<D, BIAS, MASK>(f, p, smem, w);
    } while (w.next_head());
    // Epilogue. dV first: that frees registers for the angles.
    write_rows<D, MASK>(f.dv, f, p, smem, w, p.dv, MASK == DROPOUT ? p.mask.mask.kept : 1.0f);
    if (p.rotation.table)
        rotate_keys<D, MASK>(f.dk, f, p, w);
    write_rows<D, MASK>(f.dk, f, p, smem, w, p.dk, p.s.scale);
}

// Packed: whether the sequence is too short to have this block of keys. Such a block adds nothing
// to the gradients of the slopes.
template <int BIAS, int MASK>
__device__ __forceinline__ bool is_past_the_end(const backward_params &p, int ticket)
{
    walk<MASK> w(p, ticket);

    if (MASK != PACKED || w.first_key < w.own_length)
        return false;
    if (BIAS == LEARNED_SLOPES && threadIdx.x == 0)
        for (int h = w.h; h <= w.last_head; h++)
            p.dbias[w.b * p.bias_row + w.block * p.bias_block + h] = 0.0f;
    return true;
}

template <int D> __device__ __forceinline__ void init_barriers(backward_smem<D> *smem)
{
    mbarrier_init(&smem->kv_full, 1);
    for (int i = 0; i < STAGES; i++) {
        mbarrier_init(&smem->full[i], 1 + WARP); // TMA's thread, and the lanes of lse and delta
        mbarrier_init(&smem->empty[i], CONSUMERS);
        mbarrier_init(&smem->rows_empty[i], CONSUMER_WARPS);
    }
    mbarrier_init(&smem->dq_full, CONSUMER_WARPS);
    mbarrier_init(&smem->dq_empty, 1);
    fence_async_proxy();
}
#endif // HAS_WGMMA

template <int D, int BIAS, int MASK>
__global__ void __launch_bounds__(THREADS, 1)
    backward_kernel(const __grid_constant__ backward_params p)
{
#if HAS_WGMMA
    backward_smem<D> *smem = (backward_smem<D> *)align_to_atom(dynamic_shared<char>());

    if (threadIdx.x == 0) {
        init_barriers<D>(smem);
        smem->ticket = atomicAdd(p.ticket, 1);
    }
    __syncthreads();
    if constexpr (MASK == PACKED)
        if (is_past_the_end<BIAS, MASK>(p, smem->ticket))
            return;
    if (threadIdx.x < WARPGROUP) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        produce<D, BIAS, MASK>(p, smem);
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        consume<D, BIAS, MASK>(p, smem, (int)threadIdx.x / WARPGROUP - 1);
    }
#endif
}

// ---- after the kernel: dQ in its final form

// Rotates back eight numbers of a row, from column d on.
template <int D>
__device__ __forceinline__ void rotate_chunk(float (&x)[8], const float *row, int d,
                                             const float *cosines, bool halves)
{
    if (halves) {
        float partner[8], cosine[8], sine[8], side = d < D / 2 ? 1.0f : -1.0f;
        load<8>(partner, row + (d + D / 2) % D);
        load<8>(cosine, cosines + d % (D / 2));
        load<8>(sine, cosines + D / 2 + d % (D / 2));
#pragma unroll
        for (int k = 0; k < 8; k++)
            x[k] = x[k] * cosine[k] + side * (partner[k] * sine[k]);
    } else {
        float cosine[4], sine[4];
        load<4>(cosine, cosines + d / 2);
        load<4>(sine, cosines + D / 2 + d / 2);
#pragma unroll
        for (int k = 0; k < 4; k++)
            rotate(x[2 * k], x[2 * k + 1], cosine[k], -sine[k]);
    }
}

// dq = scale * the sums, rotated back, in bf16. A thread block per tile: it reads the sums in the
// order of store_dq(), puts them in place in shared memory, and writes rows.
template <int D>
__global__ void __launch_bounds__(ROUND_THREADS)
    round_queries(heads<bf16> dq, const __grid_constant__ backward_params p)
{
    const struct attention_shape &s = p.s;
    __shared__ __align__(16) float rows[QUERIES][D + 8]; // 8 more: rows begin in different banks
    int tile = (int)(blockIdx.x % p.tiles), head = (int)(blockIdx.x / p.tiles);
    const struct sequence own = s.sequence_of(head / s.H);
    const float *sums =
        p.dq + (first_query_tile(p, own.q, head / s.H, head % s.H) + tile) * (int64_t)(QUERIES * D);

    if (tile * QUERIES >= own.Lq)
        return;
    for (int n = threadIdx.x; n < QUERIES * D / 4; n += ROUND_THREADS) {
        float4 x = *(const float4 *)(sums + 4 * n);
        int thread = n % WARPGROUP, j = n / WARPGROUP % (D / 16), group = n / WARPGROUP / (D / 16);
        int row = thread / 32 * 16 + thread % 32 / 4, d = group * (D / 2) + 8 * j + thread % 4 * 2;
        *(float2 *)&rows[row][d] = make_float2(s.scale * x.x, s.scale * x.y);
        *(float2 *)&rows[row + 8][d] = make_float2(s.scale * x.z, s.scale * x.w);
    }
    __syncthreads();
    for (int n = threadIdx.x; n < QUERIES * D / 8; n += ROUND_THREADS) {
        int row = n / (D / 8), d = n % (D / 8) * 8, i = tile * QUERIES + row;
        float x[8];
        if (i >= own.Lq || d >= s.D)
            continue;
        load<8>(x, &rows[row][d]);
        if (p.rotation.table)
            rotate_chunk<D>(x, rows[row], d, p.rotation.table + (int64_t)i * D, p.rotation.halves);
        store<8>(dq.row(head / s.H, own.q + i, head % s.H) + d, x);
    }
}

// ---- host

// Sizes that the shape of a call determines.
backward_params sized_params(const struct attention_args *a)
{
    backward_params p = {};

    p.s = attention_shape_of(a);
    p.tiles = (int)ceil_div(p.s.Lq, QUERIES);
    p.blocks = (int)ceil_div(p.s.Lk, BLOCK_KEYS);
    p.packed_tiles = packed_present(a->packed) ? p.s.packed.total_q / QUERIES + p.s.B : 0;
    p.bias_row = p.s.slopes_row ? p.s.H : p.blocks * p.s.H;
    p.bias_block = p.s.slopes_row ? p.s.B * p.s.H : p.s.H;
    return p;
}

int64_t query_tiles(const backward_params &p)
{
    return p.packed_tiles > 0 ? (int64_t)p.s.H * p.packed_tiles : (int64_t)p.s.B * p.s.H * p.tiles;
}

// How many numbers each head and block of keys leaves as its part of the gradient of the bias.
// Kernels with a table leave them even if nobody asks for the gradient.
int64_t bias_entries(const struct attention_args *a, const struct attention_shape &s)
{
    if (a->bias.kind == BIAS_TABLE)
        return s.T > TABLE_LARGEST ? 2 * (int64_t)s.T : s.T;
    return learns_bias(a) ? 1 : 0;
}

// The semaphores have the ticket after them.
struct backward_areas areas_of(const backward_params &p, int D, int64_t entries)
{
    const int64_t dq[] = { query_tiles(p), QUERIES, D, (int64_t)sizeof(float) };
    const int64_t semaphores[] = { query_tiles(p) + 1, (int64_t)sizeof(int) };
    const int64_t bias[] = { p.s.B, p.s.H, p.blocks, entries, (int64_t)sizeof(float) };

    return { cuda_bytes(dq, 4), cuda_bytes(semaphores, 2), cuda_bytes(bias, 5) };
}

// Semaphores and ticket start from 0.
alibi_status reserve(struct context *c, backward_params *p, int D, int64_t entries)
{
    const struct backward_areas areas = areas_of(*p, D, entries);

    TRY_RETURN(cuda_scratch(c, SCRATCH_QUERIES, areas.dq, (void **)&p->dq));
    TRY_RETURN(cuda_scratch(c, SCRATCH_SEMAPHORES, areas.semaphores, (void **)&p->semaphores));
    if (areas.bias > 0)
        TRY_RETURN(cuda_scratch(c, SCRATCH_BIAS, areas.bias, (void **)&p->dbias));
    p->ticket = p->semaphores + query_tiles(*p);
    return cuda_check(cudaMemsetAsync(p->semaphores, 0, areas.semaphores, c->stream),
                      "attention backward");
}

int padded_width(int64_t D)
{
    return D <= 64 ? 64 : 128;
}

template <int D, int MASK>
alibi_status launch_backward(struct context *c, const backward_params &p,
                             const struct attention_args *a)
{
    const bool is_long = p.s.T > TABLE_LARGEST;
    auto kernel = learns_bias(a) ? backward_kernel<D, LEARNED_SLOPES, MASK>
                                 : backward_kernel<D, SLOPES, MASK>;

    if constexpr (MASK != PACKED && MASK != LISTED)
        kernel = is_long                  ? backward_kernel<D, LONG_TABLE, MASK>
                 : p.s.kind == BIAS_TABLE ? backward_kernel<D, TABLE, MASK>
                 : p.s.kind == BIAS_GATE  ? backward_kernel<D, GATES, MASK>
                 : p.s.kind == BIAS_GAIN  ? backward_kernel<D, GAIN, MASK>
                                          : kernel;
    TRY_RETURN(launch(c, "attention backward", kernel, p.s.B * p.s.Hkv * p.blocks, THREADS,
                      backward_smem_bytes<D>, p));
    TRY_RETURN(launch(c, "attention backward", round_queries<D>, p.s.B * p.s.H * p.tiles,
                      ROUND_THREADS, 0, heads_of<bf16>(a->dq), p));
    if (!learns_bias(a))
        return ALIBI_OK;
    if (p.s.slopes_row)
        return cuda_add_partials(c, (float *)a->dbias.data, NULL, p.dbias, p.blocks,
                                 (int64_t)p.s.B * p.s.H);
    return cuda_add_partials(c, (float *)a->dbias.data, NULL, p.dbias,
                             (int64_t)p.s.B * p.blocks * (is_long ? 2 : 1), (int64_t)p.s.H * p.s.T);
}

// Launches the kernel of a mask.
template <int D>
alibi_status launch_mask(struct context *c, const backward_params &p,
                         const struct attention_args *a, mask_kind mask)
{
    switch (mask) {
    case PACKED:
        return launch_backward<D, PACKED>(c, p, a);
    case DROPOUT:
        return launch_backward<D, DROPOUT>(c, p, a);
    case WINDOW:
        return launch_backward<D, WINDOW>(c, p, a);
    case LISTED:
        return launch_backward<D, LISTED>(c, p, a);
    case CAUSAL:
        break;
    }
    return launch_backward<D, CAUSAL>(c, p, a);
}

} // namespace

bool wgmma_rotates(const struct attention_args *a)
{
    return (a->q.shape[3] == 64 || a->q.shape[3] == 128) && aligned(angles_of(a->rotation).table);
}

struct backward_areas backward_wgmma_areas(const struct attention_args *a)
{
    const backward_params p = sized_params(a);

    return areas_of(p, padded_width(a->q.shape[3]), bias_entries(a, p.s));
}

alibi_status backward_wgmma(struct context *c, const struct attention_args *a, const float *delta,
                            struct kept_tiles kept, struct query_lists lists)
{
    backward_params p = sized_params(a);
    int D = padded_width(a->q.shape[3]);

    p.dk = heads_of<bf16>(a->dk);
    p.dv = heads_of<bf16>(a->dv);
    p.lse = (const float *)a->lse.data;
    p.delta = delta;
    p.kept = kept;
    p.lists = lists;
    p.mask = weight_mask_of(a->dropout, a->k.shape[1]);
    p.rotation = wgmma_rotates(a) ? angles_of(a->rotation) : angles();
    p.gains = NULL;
    p.inverse = 1.0f / p.s.scale;
    TRY_RETURN(reserve(c, &p, D, bias_entries(a, p.s)));
    if (a->bias.kind == BIAS_GATE)
        p.dbias = (float *)a->dbias.data;
    if (a->bias.kind == BIAS_GAIN)
        TRY_RETURN(find_gains(c, p.s, &p.gains));
    TRY_RETURN(make_tensor_map(&p.q, a->q, QUERIES));
    TRY_RETURN(make_tensor_map(&p.dy, a->dy, QUERIES));
    TRY_RETURN(make_tensor_map(&p.k, a->k, BLOCK_KEYS));
    TRY_RETURN(make_tensor_map(&p.v, a->v, BLOCK_KEYS));
    const mask_kind mask = lists.bits ? LISTED : mask_kind_of(a);
    return D == 64 ? launch_mask<64>(c, p, a, mask) : launch_mask<128>(c, p, a, mask);
}
