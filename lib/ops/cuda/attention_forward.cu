// attention_forward.cu - forward attention on Hopper's tensor cores (bf16, D up to 128)
//
//   S  = Q K^T + bias / scale                      m' = max(m, rowmax S)
//   P  = exp(scale (S - m'))                       l' = l exp(scale (m - m')) + rowsum P
//   O' = O exp(scale (m - m')) + P V               at the end: y = O / l,   lse = scale m + log l
//
// With dropout, elements of P are zeroed before P V, and y is divided by 1 - p.
//
// The structure is that of FlashAttention-3: a persistent grid, one producer warpgroup that loads
// by TMA, two (D = 128) or three (D = 64) consumer warpgroups of 64 queries each that ping-pong on
// the tensor cores, and inside each consumer the two products of neighbouring key tiles overlap
// with the softmax between them.
//
//   producer warpgroup (setmaxnreg 24 or 32), one thread
//
//     TMA: Q of the item, then K(n) V(n) K(n-1) V(n-1) ... into the ring
//
//   consumer warpgroup (setmaxnreg 240 or 160), key tiles n = last, last - 1, ... 0
//
//     tensor cores     S(n)          S(n-1)  P(n) V(n)                S(n-2)  P(n-1) V(n-1)
//     this warpgroup         softmax(n)            softmax(n-1)              softmax(n-2)
//     its neighbours   softmax       softmax, then their S and P V   softmax ...
//                                    ^ the turn is passed on here
//
// Differences from FlashAttention-3: the accumulator of S starts from bias / scale instead of zero,
// so a bias costs one multiply-add per score and nothing later; a factor by distance (BIAS_GAIN)
// comes after the product, before the softmax. Key tiles are visited nearest first, so the running
// maximum hardly ever grows after the first tile, and rescaling O is skipped when no row of the
// warp needs it. Key tiles that attention_bounds.cu ruled out, or that are outside the window, are
// not loaded. LISTED: after Q K^T, S of a key block is compared with the running maximum. If no
// query of the warpgroup needs the block, its softmax and P V are skipped and its bit in the record
// is cleared, so backward skips it too. Every packed sequence has as many items as the longest one.
// Thread blocks skip empty items. No thread block waits for another, and the result of an item does
// not depend on the thread block that computes it.
//
// Shared memory (struct forward_smem), bytes for D = 64 / 128; one thread block per SM:
//
//   q [QUERIES][D]              24,576 / 32,768   one item: q_full, q_empty
//   k [STAGES][BLOCK_KEYS][D]   32,768 / 65,536   ring: k_full, k_empty
//   v [STAGES][BLOCK_KEYS][D]   32,768 / 65,536   ring: v_full, v_empty
//   y [QUERIES][D]              24,576 / 32,768   each warp has its own 16 rows, in the epilogue
//   next_item                   4                 published with q
//
// Full mbarriers count one arrival, the producer's, and the bytes of TMA; empty ones count one
// arrival per consumer warpgroup. Named barriers: see config.
//
// Tried (H200; TFLOP/s at 1K, 4K and 16K with D = 128, where this kernel had 359, 591, 583 when it
// stored y from registers; docs/gpu.md has D = 64): each consumer stops at its own diagonal: 353,
// 560, 560. Then y stored by TMA too: 382, 586, 563, but an illegal instruction with D = 64,
// probably because the first block begins at a negative row. Then Q of the next item loaded ahead:
// 375, 581, 566. Then its first product too: 386, 594, 565.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/hopper.cuh"

namespace
{

enum {
    STAGES = 2,          // of the K and V rings
    HEADS_TOGETHER = 16, // heads whose K and V stay in the L2 cache
};

// Narrow heads leave registers for a third consumer.
template <int D> struct config {
    enum {
        CONSUMERS = D == 64 ? 3 : 2,
        QUERIES = WGMMA_M * CONSUMERS,
        THREADS = WARPGROUP * (CONSUMERS + 1),
        PRODUCER_REGISTERS = D == 64 ? 32 : 24,
        CONSUMER_REGISTERS = D == 64 ? 160 : 240,
        TURN_BARRIER = 1,                        // ids of named barriers: a consumer's turn,
        MEET_BARRIER = TURN_BARRIER + CONSUMERS, // where all consumers meet,
        VOTE_BARRIER = MEET_BARRIER + 1,         // and the vote of a consumer's threads
        NAMED_BARRIERS = VOTE_BARRIER + CONSUMERS,
    };
    static_assert((int)NAMED_BARRIERS <= 16, "an SM has ids 0..15 for a block");
};

// The tables of all heads, biases / scale, padded as in struct bias_table. They may be of any
// length.
struct padded_table {
    float *entries; // [H, length], a row at distance 0 from TABLE_AROUND on
    int64_t length;
};

struct pad_table {
    struct attention_shape s;
    struct padded_table to;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        const int h = (int)(i / to.length), distance = (int)(i % to.length) - TABLE_AROUND;

        to.entries[i] = s.bias(0, h, max(0, distance)) * (1.0f / s.scale); // as fill_table()
    }
};

// c of the first key of a key's block minus that of the key, / scale: within a block this is small,
// so one number holds it.
struct gate_offsets {
    float *at;      // [B, G, length]
    int64_t length; // Lk in whole blocks
};

struct find_offsets {
    struct attention_shape s;
    struct gate_offsets to;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        const int head = (int)(i / to.length), key = (int)(i % to.length);
        const int first = key / BLOCK_KEYS * BLOCK_KEYS;

        to.at[i] = s.gates(head / s.G, head % s.G, first, min(key, s.Lk - 1)) * (1.0f / s.scale);
    }
};

// The initial value of S, as a template parameter. THEN_GAIN: zero; the factor and the bias follow
// the product.
enum bias_start { FROM_SLOPE, FROM_TABLE, FROM_GATES, THEN_GAIN };

struct forward_params {
    CUtensorMap q, k, v;
    heads<bf16> y;
    float *lse; // [B, H, Lq]
    struct attention_shape s;
    struct padded_table table;
    struct gate_offsets gates;
    struct kept_tiles kept; // LISTED: only a record, or absent
    struct key_lists lists; // LISTED
    float skip_budget;      // LISTED: the share of the test of scores
    int blocks, items;      // query blocks per head; of all heads
    int *item_counter;      // item gridDim.x + n is the n-th that is taken from here
    struct weight_mask mask;
    const float *gains; // at distance 0, see find_gains()
    float inverse;      // 1 / scale
};

template <int D> struct forward_smem {
    bf16 q[D / PANEL][config<D>::QUERIES][PANEL];
    bf16 k[STAGES][D / PANEL][BLOCK_KEYS][PANEL];
    bf16 v[STAGES][D / PANEL][BLOCK_KEYS][PANEL];
    bf16 y[config<D>::QUERIES / WARP_ROWS][WARP_ROWS][D]; // of each warp
    mbarrier q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    int next_item; // the number of the item after the one whose Q is in q
};

// Panels begin at multiples of SWIZZLE_ATOM, dynamic shared memory at any of 256 bytes.
template <int D> constexpr size_t forward_smem_bytes = sizeof(forward_smem<D>) + SWIZZLE_ATOM;
static_assert(forward_smem_bytes<64> <= SMEM_MAX && forward_smem_bytes<128> <= SMEM_MAX,
              "the stages fit in shared memory");
template <int D>
constexpr int registers = WARPGROUP *(config<D>::PRODUCER_REGISTERS +
                                      config<D>::CONSUMERS * config<D>::CONSUMER_REGISTERS);
static_assert(registers<64> <= block_registers(config<64>::THREADS) &&
                  registers<128> <= block_registers(config<128>::THREADS),
              "setmaxnreg must not wait for registers that never come");

#if HAS_WGMMA

// A work item: one block of queries of one head.
template <int D, int MASK> struct item {
    static const int QUERIES = config<D>::QUERIES;
    int b, h, first; // first query
    int last_block;  // of keys
    const uint32_t *kept;
    struct sequence own; // of packed sequences
    bool empty;          // its sequence is shorter than the longest, and has no such block
    // With a window, a block is visited if any of the item's query tiles keeps it: earlier tiles
    // see further back than the last one. Without a window the row of the last tile has every
    // block.
    int first_block, rows, words;
    float skip_margin; // LISTED: so far below the maximum scores do not matter, / scale

    // Consecutive items are of HEADS_TOGETHER heads, so that their keys stay in the L2 cache, the
    // longest rows first, so that the last items are short.
    __device__ __forceinline__ item(const forward_params &p, int index)
    {
        int all = p.s.B * p.s.H, group = index / (HEADS_TOGETHER * p.blocks) * HEADS_TOGETHER;
        int together = min(HEADS_TOGETHER, all - group), rest = index - group * p.blocks;
        int head = group + rest % together, block = p.blocks - 1 - rest / together;

        b = head / p.s.H;
        h = head % p.s.H;
        if (MASK == PACKED)
            own = p.s.sequence_of(b);
        empty = MASK == PACKED && block * QUERIES >= own.Lq;
        first = first_of_block(queries(p), QUERIES, block);
        last_block =
            min(past(p) + first + QUERIES - 1, (MASK == PACKED ? own.Lk : p.s.Lk) - 1) / BLOCK_KEYS;
        kept = NULL;
        int end = min((first + QUERIES) / ATTENTION_TILE, p.kept.rows); // of its query tiles
        if (MASK == LISTED) {
            kept = p.lists.row(head, block);
            skip_margin = p.inverse * logf(1.01f * BLOCK_KEYS / p.skip_budget *
                                           (float)p.lists.counts[head * p.blocks + block]);
        } else if (p.kept.bits)
            kept = p.kept.row(head, end - 1);
        if (MASK >= WINDOW) {
            first_block = p.s.first_key(past(p) + max(first, 0)) / BLOCK_KEYS;
            rows = end - max(first, 0) / ATTENTION_TILE;
            words = p.kept.words;
        }
    }

    __device__ __forceinline__ int past(const forward_params &p) const
    {
        return MASK == PACKED ? own.past() : p.s.past();
    }

    __device__ __forceinline__ int queries(const forward_params &p) const
    {
        return MASK == PACKED ? own.Lq : p.s.Lq;
    }

    // Where it is in the views: the row of the batch, the rows of its first query and key.
    __device__ __forceinline__ int batch() const
    {
        return MASK == PACKED ? 0 : b;
    }

    __device__ __forceinline__ int query_row() const
    {
        return MASK == PACKED ? own.q : 0;
    }

    __device__ __forceinline__ int key_row() const
    {
        return MASK == PACKED ? own.k : 0;
    }

    // The next key block from n downwards; -1: none. Producer and consumers iterate identically.
    __device__ __forceinline__ int next(int n) const
    {
        if constexpr (MASK >= WINDOW) { // it is short
            for (; n >= first_block; n--)
                for (int row = 0; row < rows; row++)
                    if (keys_are_kept(kept ? kept - row * words : NULL, n))
                        return n;
            return -1;
        } else if constexpr (MASK == LISTED) {
            uint32_t mask = ~0u >> (31 - (n & 31)); // the blocks of this word up to n
            for (int word = n >> 5; word >= 0; word--, mask = ~0u)
                if (uint32_t bits = kept[word] & mask)
                    return 32 * word + 31 - __clz(bits);
            return -1;
        } else if (kept) {
            int tile = 2 * n + 1;
            uint32_t mask = ~0u >> (31 - (tile & 31)); // the tiles of this word up to n
            for (int word = tile >> 5; word >= 0; word--, mask = ~0u)
                if (uint32_t bits = kept[word] & mask)
                    return (32 * word + 31 - __clz(bits)) / 2;
            return -1;
        }
        return n;
    }
};

// ---- producer

template <int D, int ROWS>
__device__ __forceinline__ void load_tile(bf16 (*to)[ROWS][PANEL], const CUtensorMap *map,
                                          mbarrier *full, int h, int l, int b)
{
    mbarrier_arrive_expect_tx(full, D / PANEL * sizeof to[0]);
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        tma_load(to[panel], map, full, panel * PANEL, h, l, b);
}

// The next item for this thread block: of packed sequences one that is not empty.
template <int D, int MASK> __device__ __forceinline__ int next_item(const forward_params &p)
{
    int next = gridDim.x + atomicAdd(p.item_counter, 1);

    if constexpr (MASK == PACKED)
        while (next < p.items && item<D, MASK>(p, next).empty)
            next = gridDim.x + atomicAdd(p.item_counter, 1);
    return next;
}

// One thread. K and V have barriers of their own: S of a tile can start before V has arrived.
// Thread blocks take items as they get free, since items differ in length: by a fixed order some
// would have half as much to do as others. The number of the next item is published together with Q
// of this one. An empty item (only the first of a thread block can be empty) loads Q for that
// reason alone.
template <int D, int MASK>
__device__ __forceinline__ void produce_tiles(const forward_params &p, forward_smem<D> *smem)
{
    pipeline_state<STAGES> t = { 0, PRODUCER_PARITY };
    uint32_t q_parity = PRODUCER_PARITY;

    for (int index = blockIdx.x, next; index < p.items; index = next) {
        item<D, MASK> w(p, index);
        int kv = p.s.key_head(w.h), keys = w.key_row();
        next = next_item<D, MASK>(p);
        mbarrier_wait(&smem->q_empty, q_parity);
        smem->next_item = next;
        load_tile<D>(smem->q, &p.q, &smem->q_full, w.h, w.query_row() + w.first, w.batch());
        q_parity ^= 1;
        for (int n = w.empty ? -1 : w.next(w.last_block); n >= 0; n = w.next(n - 1)) {
            mbarrier_wait(&smem->k_empty[t.stage], t.parity);
            load_tile<D>(smem->k[t.stage], &p.k, &smem->k_full[t.stage], kv, keys + n * BLOCK_KEYS,
                         w.batch());
            mbarrier_wait(&smem->v_empty[t.stage], t.parity);
            load_tile<D>(smem->v[t.stage], &p.v, &smem->v_full[t.stage], kv, keys + n * BLOCK_KEYS,
                         w.batch());
            t.advance();
        }
    }
}

// ---- consumer

// One thread's part of its warpgroup's 64 queries: elements of two rows, `row` and row + 8, in
// the fragment layout of hopper.cuh. Maxima m are those of S, before scale.
template <int D> struct fragment {
    float s[BLOCK_KEYS / 2], o[D / 2];   // S, then P in fp32; O
    uint32_t p[BLOCK_KEYS / WGMMA_K][4]; // P as the A operand of P V
    float m[2], l[2], shrink[2];         // per row: max, this thread's part of the sum, exp(m - m')
    int row, column;                     // position of the first row's query; first column
    uint32_t dropped[2];                 // with dropout: a bit for each element of P
};

// The two rows of a fragment's element i are 8 apart; columns as in hopper.cuh.
__device__ __forceinline__ constexpr int row_of(int i)
{
    return i & 2 ? 8 : 0;
}

__device__ __forceinline__ constexpr int column_of(int i)
{
    return 8 * (i / 4) + (i & 1);
}

// S starts from bias / scale = -step * distance. The position of the column is added to the bias of
// the first column in one fused step.
template <int D>
__device__ __forceinline__ void start_from_slope(fragment<D> &f, float step, int first_key)
{
    int distance = f.row - first_key - f.column;
    float upper = step * -(float)distance, lower = step * -(float)(distance + 8);

#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i++)
        f.s[i] = fmaf(step, (float)column_of(i), row_of(i) ? lower : upper);
}

// The same from a head's table of biases, which 128 x 64 pairs read at 191 neighbouring places:
// they come from the L1 cache. `far`: all pairs have the table's last entry.
template <int D>
__device__ __forceinline__ void start_from_table(fragment<D> &f, const float *__restrict__ table,
                                                 int first_key, int T, bool far)
{
    const float *__restrict__ bias = table + (f.row - first_key - f.column);

    if (far) {
        float last = __ldg(table + T - 1);
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / 2; i++)
            f.s[i] = last;
    } else {
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / 2; i++)
            f.s[i] = __ldg(bias + (row_of(i) - 8 * (i / 4) - (i & 1)));
    }
}

// The same from gates: c_i - c_0 of the row's query, by the first key 0 of the block, and c_0 - c_j
// of the column's key.
template <int D>
__device__ __forceinline__ void start_from_gates(fragment<D> &f, const forward_params &p, int b,
                                                 int h, int first_key)
{
    const float *__restrict__ offsets =
        p.gates.at + ((int64_t)b * p.s.G + h) * p.gates.length + first_key + f.column;
    float inverse = 1.0f / p.s.scale;
    int last = p.s.Lk - 1;
    float upper = p.s.gates(b, h, min(max(f.row, 0), last), first_key) * inverse,
          lower = p.s.gates(b, h, min(max(f.row + 8, 0), last), first_key) * inverse;

#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i += 4) {
        float2 two = __ldg((const float2 *)(offsets + column_of(i)));
        f.s[i] = upper + two.x;
        f.s[i + 1] = upper + two.y;
        f.s[i + 2] = lower + two.x;
        f.s[i + 3] = lower + two.y;
    }
}

// BIAS_GAIN: S becomes gain S + (1 - gain^2) / scale, in two fused steps. Two rows 8 apart share
// most of their distances, so a thread reads 34 factors for its 64 scores, from the L1 cache.
template <int D>
__device__ __forceinline__ void apply_gain(fragment<D> &f, const float *__restrict__ gains,
                                           int first_key, float inverse)
{
    const float *__restrict__ gain = gains + (f.row - first_key - f.column);

#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i++) {
        float g = __ldg(gain + (row_of(i) - column_of(i)));
        f.s[i] = fmaf(g, fmaf(-inverse, g, f.s[i]), inverse);
    }
}

// Ping-pong: consumers take turns in issuing products, in the order of their number. While one
// multiplies, the others are at their exponentials. Without turns the consumers run in lockstep and
// compete for the same unit.
template <int D> struct ping_pong {
    static const int THREADS = WARPGROUP * config<D>::CONSUMERS;
    static const int TURN = config<D>::TURN_BARRIER;

    // The first consumer begins: the others act as if they had just had a turn.
    static __device__ __forceinline__ void begin(int group)
    {
#pragma unroll
        for (int i = 0; i < config<D>::CONSUMERS - 1; i++)
            if (i < group)
                named_barrier_arrive<THREADS>(TURN + i);
    }

    static __device__ __forceinline__ void take(int group)
    {
        named_barrier_sync<THREADS>(TURN + group);
    }

    static __device__ __forceinline__ void pass(int group)
    {
#pragma unroll
        for (int i = 1; i < config<D>::CONSUMERS; i++)
            named_barrier_arrive<THREADS>(TURN + (group + i) % config<D>::CONSUMERS);
    }

    static __device__ __forceinline__ void meet()
    {
        named_barrier_sync<THREADS>(config<D>::MEET_BARRIER);
    }

    // The AND of `mine` over the 128 threads of this consumer.
    static __device__ __forceinline__ bool all(int group, bool mine)
    {
        return named_barrier_all<WARPGROUP>(config<D>::VOTE_BARRIER + group, mine);
    }
};

// Issues S = Q K^T of key block n. The turn is ours when it returns.
template <int D, int START, int MASK>
__device__ __forceinline__ void issue_scores(fragment<D> &f, const forward_params &p,
                                             forward_smem<D> *smem, const item<D, MASK> &w,
                                             const float *table, float step, int n,
                                             pipeline_state<STAGES> t, int group)
{
    int nearest = w.past(p) + w.first - ((n + 1) * BLOCK_KEYS - 1);
    const uint32_t panel_q = sizeof smem->q[0], panel_k = sizeof smem->k[0][0];

    if (START == FROM_TABLE)
        start_from_table<D>(f, table, n * BLOCK_KEYS, p.s.T, nearest >= p.s.T - 1);
    else if (START == FROM_GATES && w.h < p.s.G)
        start_from_gates<D>(f, p, w.b, w.h, n * BLOCK_KEYS);
    else if (START == THEN_GAIN)
        clear_fragment(f.s);
    else
        start_from_slope<D>(f, step, n * BLOCK_KEYS);
    mbarrier_wait(&smem->k_full[t.stage], t.parity);
    ping_pong<D>::take(group);
    uint32_t queries = shared_address(smem->q) + group * (WGMMA_M * PANEL_ROW),
             keys = shared_address(smem->k[t.stage]);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < D / WGMMA_K; d++) {
        int panel = d / K_STEPS_PER_PANEL, within = d % K_STEPS_PER_PANEL * K_STEP;
        wgmma_ss<BLOCK_KEYS, 0, 0>(f.s, descriptor_k_major(queries + panel * panel_q + within),
                                   descriptor_k_major(keys + panel * panel_k + within), 1);
    }
    wgmma_commit();
}

// Issues O += P V.
template <int D>
__device__ __forceinline__ void issue_values(fragment<D> &f, uint32_t values, bool accumulate)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BLOCK_KEYS / WGMMA_K; k++)
        wgmma_rs<D, 1>(f.o, f.p[k],
                       descriptor_mn_major(values + k * K_ROWS, sizeof(forward_smem<D>::v[0][0])),
                       accumulate || k > 0);
    wgmma_commit();
}

// Online softmax: S becomes P; m, l and shrink are updated. Four lanes share a row; each keeps its
// own part of l until the epilogue. A row that has seen no key yet has a maximum of -inf and
// weights of 0.
template <int D> __device__ __forceinline__ void softmax(fragment<D> &f, float scale_log2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = f.m[half], sum = 0.0f, shift;
#pragma unroll
        for (int i = 2 * half; i < BLOCK_KEYS / 2; i += 4)
            most = fmaxf(most, fmaxf(f.s[i], f.s[i + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        // Both products are rounded: if the maximum stays, O and l are multiplied by exactly 1.
        shift = most == -INFINITY ? 0.0f : __fmul_rn(most, scale_log2);
        f.shrink[half] = exp2_approx(__fmul_rn(f.m[half], scale_log2) - shift);
        f.m[half] = most;
#pragma unroll
        for (int i = 2 * half; i < BLOCK_KEYS / 2; i += 4) {
            f.s[i] = exp2_approx(fmaf(f.s[i], scale_log2, -shift));
            f.s[i + 1] = exp2_approx(fmaf(f.s[i + 1], scale_log2, -shift));
            sum += f.s[i] + f.s[i + 1];
        }
        f.l[half] = fmaf(f.l[half], f.shrink[half], sum);
    }
}

// Dropout: draws one bit for each element of key block n, while S is in flight; set if its weight
// is dropped. Two neighbouring groups of 8 keys share blocks of random numbers, as the two rows do.
// The loop is not unrolled: more blocks at once would not fit in registers.
template <int D, int MASK>
__device__ __forceinline__ void draw_mask(fragment<D> &f, const forward_params &p,
                                          const item<D, MASK> &w, int n)
{
    uint64_t first =
        p.mask.block((int64_t)w.b * p.s.H + w.h, f.row, n * BLOCK_KEYS) + (uint64_t)f.column;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        f.dropped[half] = 0;
#pragma unroll 1
        for (int i = 0; i < 32; i += 8) {
            uint32_t eight = 0;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint4 words = p.mask.words(first + (uint64_t)(32 * half + i + e));
                eight |= (uint32_t)p.mask.drops(words.x) << e |
                         (uint32_t)p.mask.drops(words.z) << (2 + e) |
                         (uint32_t)p.mask.drops(words.y) << (4 + e) |
                         (uint32_t)p.mask.drops(words.w) << (6 + e);
            }
            f.dropped[half] |= eight << i;
        }
    }
}

// After S of key block n has been computed: frees its stage, and masks the diagonal and what is
// outside the window.
template <int D, int START, int MASK>
__device__ __forceinline__ void receive_scores(fragment<D> &f, const forward_params &p,
                                               forward_smem<D> *smem, const item<D, MASK> &w, int n,
                                               pipeline_state<STAGES> t)
{
    fence_fragment(f.s);
    if (threadIdx.x % WARPGROUP == 0)
        mbarrier_arrive(&smem->k_empty[t.stage]);
    if constexpr (START == THEN_GAIN)
        apply_gain<D>(f, p.gains, n * BLOCK_KEYS, p.inverse);
    if ((n + 1) * BLOCK_KEYS - 1 > w.past(p) + w.first) {
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / 2; i++)
            if (n * BLOCK_KEYS + f.column + column_of(i) > f.row + row_of(i))
                f.s[i] = -INFINITY;
    }
    // The last query of the item has the latest first key.
    if (MASK >= WINDOW &&
        n * BLOCK_KEYS < p.s.first_key(w.past(p) + w.first + config<D>::QUERIES - 1)) {
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / 2; i++)
            if (f.row + row_of(i) - (n * BLOCK_KEYS + f.column + column_of(i)) >= p.s.window)
                f.s[i] = -INFINITY;
    }
}

// receive_scores(), then the softmax.
template <int D, int START, int MASK>
__device__ __forceinline__ void finish_scores(fragment<D> &f, const forward_params &p,
                                              forward_smem<D> *smem, const item<D, MASK> &w, int n,
                                              pipeline_state<STAGES> t)
{
    receive_scores<D, START, MASK>(f, p, smem, w, n, t);
    softmax<D>(f, p.s.scale * log2_e);
    if constexpr (MASK == DROPOUT) {
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / 2; i++)
            f.s[i] = f.dropped[i / 32] >> (i % 32) & 1 ? 0.0f : f.s[i];
    }
}

// Waits for P V, frees the stage of V.
template <int D>
__device__ __forceinline__ void finish_values(fragment<D> &f, forward_smem<D> *smem,
                                              pipeline_state<STAGES> t)
{
    wgmma_wait<0>();
    fence_fragment(f.o);
    fence_fragment(f.p);
    if (threadIdx.x % WARPGROUP == 0)
        mbarrier_arrive(&smem->v_empty[t.stage]);
}

// Rescales O to the new maximum. Mostly no row of the warp has one.
template <int D> __device__ __forceinline__ void rescale(fragment<D> &f)
{
    if (__any_sync(0xffffffffu, f.shrink[0] != 1.0f || f.shrink[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            f.o[i] *= f.shrink[i >> 1 & 1];
    }
}

// Epilogue: y = O / l and lse = scale m + log l.
template <int D, int MASK>
__device__ __forceinline__ void write_rows(fragment<D> &f, const forward_params &p,
                                           forward_smem<D> *smem, const item<D, MASK> &w,
                                           int in_block)
{
    const int warp = in_block / WARP_ROWS, first = w.first + warp * WARP_ROWS;
    const int queries = w.queries(p);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = w.first + in_block + 8 * half;
        float sum = f.l[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        float inverse = (MASK == DROPOUT ? p.mask.mask.kept : 1.0f) / sum;
#pragma unroll
        for (int j = 2 * half; j < D / 2; j += 4) {
            f.o[j] *= inverse;
            f.o[j + 1] *= inverse;
        }
        if (f.column == 0 && i >= 0 && i < queries)
            p.lse[MASK == PACKED ? p.s.row(w.b, w.h, w.query_row() + i)
                                 : ((int64_t)w.b * p.s.H + w.h) * p.s.Lq + i] =
                fmaf(f.m[half], p.s.scale, logf(sum));
    }
    write_fragment<D>(smem->y[warp], f.o, p.s.D, [&](int row) {
        int i = first + row;
        return i >= 0 && i < queries ? p.y.row(w.batch(), w.query_row() + i, w.h) : NULL;
    });
}

// ---- consumer: lists, and the test of scores
//
// A key block is skipped if for every query of the warpgroup
//
//   largest score of the block  <=  m - log(BLOCK_KEYS blocks / skip_budget)
//
// where m is the running maximum and `blocks` the length of the list. The keys of the block then
// have at most skip_budget / blocks of the weight of the key that gave m, and all skipped blocks
// together at most skip_budget of the weight that is summed. m only grows, so this holds at the
// end. A block with a score of NaN is never skipped.

// Whether S matters. Each thread tests its own elements; the margin is / scale, as S is. A query
// that has seen no key has a maximum of -inf, so the block of its own key always matters.
template <int D>
__device__ __forceinline__ bool scores_matter(const fragment<D> &f, float margin, int group)
{
    float most[2] = { -INFINITY, -INFINITY };

#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i++)
        most[i >> 1 & 1] = max_or_nan(most[i >> 1 & 1], f.s[i]);
    return !ping_pong<D>::all(group, most[0] <= f.m[0] - margin && most[1] <= f.m[1] - margin);
}

// Skips key block n: frees the stage of its V, and clears the block in the record of this
// warpgroup's queries; an atomic operation does not wait for memory. V must have arrived before its
// stage is free, and only the thread that frees the stage waits for that: here nothing else holds
// the producer back, so a warp that came late would miss the phase and wait for ever.
template <int D, int MASK>
__device__ __forceinline__ void skip_block(const forward_params &p, forward_smem<D> *smem,
                                           const item<D, MASK> &w, int n, pipeline_state<STAGES> t,
                                           int group)
{
    const int row = w.first / ATTENTION_TILE + group;

    if (threadIdx.x % WARPGROUP > 0)
        return;
    mbarrier_wait(&smem->v_full[t.stage], t.parity);
    mbarrier_arrive(&smem->v_empty[t.stage]);
    if (p.kept.bits && row >= 0 && row < p.kept.rows)
        atomicAnd(p.kept.row((int64_t)w.b * p.s.H + w.h, row) + n / 16, ~(3u << 2 * (n % 16)));
}

// The main loop of consume() for lists, from key block n on. P V of the previous block overlaps
// with S only if that block was not skipped. t becomes the stage of the last block. Returns false
// if the last block was skipped: the tail has nothing to do.
template <int D, int START, int MASK>
__device__ __forceinline__ bool consume_list(fragment<D> &f, const forward_params &p,
                                             forward_smem<D> *smem, const item<D, MASK> &w,
                                             float step, int n, pipeline_state<STAGES> &t,
                                             bool &accumulate, int group)
{
    for (; n >= 0; n = w.next(n - 1)) {
        pipeline_state<STAGES> before = t;
        t.advance();
        issue_scores<D, START, MASK>(f, p, smem, w, NULL, step, n, t, group);
        mbarrier_wait(&smem->v_full[before.stage], before.parity);
        issue_values<D>(f, shared_address(smem->v[before.stage]), accumulate);
        accumulate = true;
        ping_pong<D>::pass(group);
        wgmma_wait<1>();
        receive_scores<D, START, MASK>(f, p, smem, w, n, t);
        bool matters = scores_matter<D>(f, w.skip_margin, group);
        if (matters)
            softmax<D>(f, p.s.scale * log2_e);
        finish_values<D>(f, smem, before);
        while (!matters) {
            skip_block<D, MASK>(p, smem, w, n, t, group);
            n = w.next(n - 1);
            if (n < 0)
                return false;
            t.advance();
            issue_scores<D, START, MASK>(f, p, smem, w, NULL, step, n, t, group);
            ping_pong<D>::pass(group);
            wgmma_wait<0>();
            receive_scores<D, START, MASK>(f, p, smem, w, n, t);
            matters = scores_matter<D>(f, w.skip_margin, group);
            if (matters)
                softmax<D>(f, p.s.scale * log2_e);
        }
        rescale<D>(f);
        pack_operand<BLOCK_KEYS>(f.p, f.s);
    }
    return true;
}

template <int D, int START, int MASK>
__device__ __forceinline__ void consume(const forward_params &p, forward_smem<D> *smem, int group)
{
    int lane = threadIdx.x % 32,
        in_block = group * WGMMA_M + threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    pipeline_state<STAGES> t = { 0, CONSUMER_PARITY };
    uint32_t q_parity = CONSUMER_PARITY;
    fragment<D> f;

    f.column = lane % 4 * 2;
    ping_pong<D>::begin(group);
    for (int index = blockIdx.x, next; index < p.items; index = next) {
        item<D, MASK> w(p, index);
        float step = p.s.kind == BIAS_LINEAR ? p.s.slope(w.b, w.h) / p.s.scale : 0.0f;
        const float *table =
            START == FROM_TABLE ? p.table.entries + w.h * p.table.length + TABLE_AROUND : NULL;
        int n = w.next(w.last_block);
        bool accumulate = false;  // O holds something
        bool tail_pending = true; // P V of the last block is left for the tail

        f.row = w.past(p) + w.first + in_block;
        f.m[0] = f.m[1] = -INFINITY;
        f.l[0] = f.l[1] = 0.0f;
        mbarrier_wait(&smem->q_full, q_parity);
        q_parity ^= 1;
        next = smem->next_item;
        if (w.empty) {
            ping_pong<D>::meet(); // all have read what the producer overwrites
            if (threadIdx.x % WARPGROUP == 0)
                mbarrier_arrive(&smem->q_empty);
            continue;
        }

        // Prologue: S and softmax of the nearest key block. It holds the diagonal, so it is never
        // skipped.
        issue_scores<D, START, MASK>(f, p, smem, w, table, step, n, t, group);
        ping_pong<D>::pass(group);
        if constexpr (MASK == DROPOUT)
            draw_mask<D, MASK>(f, p, w, n);
        wgmma_wait<0>();
        finish_scores<D, START, MASK>(f, p, smem, w, n, t);
        pack_operand<BLOCK_KEYS>(f.p, f.s);

        // Main loop: S of this block and P V of the one before are in flight together. The softmax
        // waits for S only, and overlaps with P V.
        if constexpr (MASK == LISTED)
            tail_pending = consume_list<D, START, MASK>(f, p, smem, w, step, w.next(n - 1), t,
                                                        accumulate, group);
        else
            for (n = w.next(n - 1); n >= 0; n = w.next(n - 1)) {
                pipeline_state<STAGES> before = t;
                t.advance();
                issue_scores<D, START, MASK>(f, p, smem, w, table, step, n, t, group);
                mbarrier_wait(&smem->v_full[before.stage], before.parity);
                issue_values<D>(f, shared_address(smem->v[before.stage]), accumulate);
                accumulate = true;
                ping_pong<D>::pass(group);
                if constexpr (MASK == DROPOUT)
                    draw_mask<D, MASK>(f, p, w, n);
                wgmma_wait<1>();
                finish_scores<D, START, MASK>(f, p, smem, w, n, t);
                finish_values<D>(f, smem, before);

                rescale<D>(f);
                pack_operand<BLOCK_KEYS>(f.p, f.s);
            }

        // Q is free: the producer loads that of the next item during the tail.
        if (threadIdx.x % WARPGROUP == 0)
            mbarrier_arrive(&smem->q_empty);

        // Tail: P V of the last block, and the epilogue.
        if (MASK != LISTED || tail_pending) {
            mbarrier_wait(&smem->v_full[t.stage], t.parity);
            issue_values<D>(f, shared_address(smem->v[t.stage]), accumulate);
            finish_values<D>(f, smem, t);
        }
        t.advance();
        write_rows<D, MASK>(f, p, smem, w, in_block);
    }
}

template <int D> __device__ __forceinline__ void init_barriers(forward_smem<D> *smem)
{
    mbarrier_init(&smem->q_full, 1);
    mbarrier_init(&smem->q_empty, config<D>::CONSUMERS);
    for (int i = 0; i < STAGES; i++) {
        mbarrier_init(&smem->k_full[i], 1);
        mbarrier_init(&smem->v_full[i], 1);
        mbarrier_init(&smem->k_empty[i], config<D>::CONSUMERS);
        mbarrier_init(&smem->v_empty[i], config<D>::CONSUMERS);
    }
    fence_async_proxy();
}
#endif // HAS_WGMMA

template <int D, int START, int MASK>
__global__ void __launch_bounds__(config<D>::THREADS, 1)
    forward_kernel(const __grid_constant__ forward_params p)
{
#if HAS_WGMMA
    forward_smem<D> *smem = (forward_smem<D> *)align_to_atom(dynamic_shared<char>());

    if (threadIdx.x == 0)
        init_barriers<D>(smem);
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        setmaxnreg_dec<config<D>::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            produce_tiles<D, MASK>(p, smem);
    } else {
        setmaxnreg_inc<config<D>::CONSUMER_REGISTERS>();
        consume<D, START, MASK>(p, smem, (int)threadIdx.x / WARPGROUP - 1);
    }
#endif
}

template <int D, int MASK>
alibi_status launch_forward(struct context *c, const struct attention_args *a, forward_params &p)
{
    auto kernel = forward_kernel<D, FROM_SLOPE, MASK>;
    int grid;

    static_assert(config<D>::QUERIES + BLOCK_KEYS <= TABLE_AROUND,
                  "a tile on the diagonal must not read outside the bias table");
    if constexpr (MASK != PACKED && MASK != LISTED)
        kernel = a->bias.kind == BIAS_TABLE  ? forward_kernel<D, FROM_TABLE, MASK>
                 : a->bias.kind == BIAS_GATE ? forward_kernel<D, FROM_GATES, MASK>
                 : a->bias.kind == BIAS_GAIN ? forward_kernel<D, THEN_GAIN, MASK>
                                             : kernel;
    p.blocks = (int)ceil_div(p.s.Lq, config<D>::QUERIES);
    p.items = p.blocks * p.s.B * p.s.H;
    grid = p.items < c->multiprocessors ? p.items : c->multiprocessors;
    TRY_RETURN(make_tensor_map(&p.q, a->q, config<D>::QUERIES));
    TRY_RETURN(make_tensor_map(&p.k, a->k, BLOCK_KEYS));
    TRY_RETURN(make_tensor_map(&p.v, a->v, BLOCK_KEYS));
    TRY_RETURN(
        cuda_scratch(c, SCRATCH_SEMAPHORES, sizeof *p.item_counter, (void **)&p.item_counter));
    TRY_RETURN(cuda_check(cudaMemsetAsync(p.item_counter, 0, sizeof *p.item_counter, c->stream),
                          "attention forward"));
    return launch(c, "attention forward", kernel, grid, config<D>::THREADS, forward_smem_bytes<D>,
                  p);
}

// Launches the kernel of a mask.
template <int D>
alibi_status launch_mask(struct context *c, const struct attention_args *a, forward_params &p,
                         mask_kind mask)
{
    switch (mask) {
    case PACKED:
        return launch_forward<D, PACKED>(c, a, p);
    case DROPOUT:
        return launch_forward<D, DROPOUT>(c, a, p);
    case WINDOW:
        return launch_forward<D, WINDOW>(c, a, p);
    case LISTED:
        return launch_forward<D, LISTED>(c, a, p);
    case CAUSAL:
        break;
    }
    return launch_forward<D, CAUSAL>(c, a, p);
}

} // namespace

int wgmma_block_queries(int64_t D)
{
    return D <= 64 ? (int)config<64>::QUERIES : (int)config<128>::QUERIES;
}

alibi_status forward_wgmma(struct context *c, const struct attention_args *a,
                           struct kept_tiles kept, struct key_lists lists)
{
    forward_params p = {};

    p.s = attention_shape_of(a);
    p.y = heads_of<bf16>(a->y);
    p.lse = (float *)a->lse.data;
    p.kept = kept;
    p.lists = lists;
    p.skip_budget = (float)(LISTED_SCORES_SHARE * a->skip.eps);
    p.mask = weight_mask_of(a->dropout, a->k.shape[1]);
    p.table = { NULL, p.s.T + 2 * TABLE_AROUND };
    if (a->bias.kind == BIAS_TABLE) {
        const int64_t entries[] = { p.s.H, p.table.length, (int64_t)sizeof(float) };
        TRY_RETURN(cuda_scratch_for(c, SCRATCH_BIAS, entries, 3, (void **)&p.table.entries));
        TRY_RETURN(each<1>(c, "attention forward", pad_table{ p.s, p.table },
                           p.s.H * p.table.length, false));
    }
    p.gates = { NULL, ceil_div(p.s.Lk, BLOCK_KEYS) * BLOCK_KEYS };
    if (p.s.G > 0) {
        const int64_t offsets[] = { p.s.B, p.s.G, p.gates.length, (int64_t)sizeof(float) };
        TRY_RETURN(cuda_scratch_for(c, SCRATCH_BIAS, offsets, 4, (void **)&p.gates.at));
        TRY_RETURN(each<1>(c, "attention forward", find_offsets{ p.s, p.gates },
                           p.s.B * p.s.G * p.gates.length, false));
    }
    p.gains = NULL;
    p.inverse = 1.0f / p.s.scale;
    if (a->bias.kind == BIAS_GAIN)
        TRY_RETURN(find_gains(c, p.s, &p.gains));
    const mask_kind mask = lists.bits ? LISTED : mask_kind_of(a);
    return p.s.D <= 64 ? launch_mask<64>(c, a, p, mask) : launch_mask<128>(c, a, p, mask);
}
