// attention_ampere_backward.cu - attention backward by mma.sync and cp.async: bf16, D <= 128
//
//   P  = exp(scale Q K^T + bias - lse)         dP = dY V^T           delta_i = y_i . dy_i
//   dS = P (dP - delta)                        dV = P^T dY           dK = scale dS^T Q
//                                              dQ = scale dS K
//
// With dropout, M = 0 or 1 / (1 - p): dS = P (M dP - delta), dV = (M P)^T dY.
//
// A thread block owns some keys of a key head and walks over the tiles of queries that see
// them, nearest first, all query heads of the group one after another. dK and dV stay in registers;
// its part of dQ is added to fp32 in global memory. Stages of a tile, with two barriers:
//
//   Q and dY arrive | barrier | the next Q and dY begin    S = Q K^T, dP = dY V^T
//                               P and dS to shared memory
//                   | barrier | dQ = dS K, added in order; dV += P^T dY, dK += dS^T Q
//
// Why one kernel with five products, and not two without sums in global memory (dK and dV; dQ)? Two
// would compute S and dP twice: seven products. Shared memory is nearly as busy as the tensor cores
// in either: a warp that multiplies m x 16 by 16 x n numbers reads m + n rows for m n / 128
// instructions. In units of the time that an A100's tensor cores take for one product, shared
// memory is busy for 4.5 of 5 units here (D = 128); in two kernels, with S in registers as an
// operand, for 6.5 of 7. They would save the traffic of dQ: 32 KiB to the L2 cache for 64 x 128
// scores.
//
// The order of the dQ sums is that of attention_backward.cu: nearest keys first, by a
// semaphore for each tile of queries; the first block stores. Blocks take their number from a
// ticket, late keys first, so a block only waits for blocks that are running or done. A block
// begins with the queries nearest to its keys, so the one before it is ahead by KEYS / QUERIES
// tiles. The semaphore is released after the barrier of the next tile, when dQ has long arrived,
// and is waited for between two products, by a thread that peeked at it before the first.
#include "ops/cuda/attention_ampere.cuh"
#include "ops/cuda/columns.cuh"

namespace
{

enum bias_mode { SLOPES, LEARNED_SLOPES, TABLE };

enum { STAGES = 2, ROUND_THREADS = 256 };

struct backward_params {
    heads<const bf16> q, k, v, dy;
    heads<bf16> dq, dk, dv;
    float4 *sums;       // of dQ: [B, H, tiles, QUERIES * DP / 4], see add_queries()
    const float *lse;   // [B, H, L]
    const float *delta; // [B, H, L]
    int *semaphores;    // [B, H, tiles]: how many blocks have added to a tile; then the ticket
    float *dbias;       // [B, blocks, H, 1 or T], of slopes that differ [blocks, B, H]; or NULL
    int64_t bias_row, bias_block; // its strides in heads
    struct attention_shape s;
    struct kept_tiles kept;
    int tiles, blocks; // of queries, of keys
    struct weight_mask mask;
};

// How the work is divided. Warps share S and dQ as WARPS_DOWN x WARPS_ACROSS, queries by keys or by
// columns of D, and dK and dV as 32 keys by half of the columns.
template <int DP_, int KEYS_, int QUERIES_> struct tiling {
    static const int DP = DP_, KEYS = KEYS_, QUERIES = QUERIES_;
    static const int WARPS = KEYS / 16, THREADS = 32 * WARPS;
    static const int WARPS_DOWN = QUERIES == 128 ? 4 : 2, WARPS_ACROSS = WARPS / WARPS_DOWN;
    static const int WARP_QUERIES = QUERIES / WARPS_DOWN, WARP_KEYS = KEYS / WARPS_ACROSS,
                     WARP_COLUMNS = DP / WARPS_ACROSS;
    static const int ROWS = WARP_QUERIES / 16, KEY_ROWS = 2; // accumulators one below another

    // A tile of queries is within one block of keys, so the order of blocks has no gaps.
    static_assert(KEYS % QUERIES == 0 && KEYS % ATTENTION_TILE == 0, "blocks of whole tiles");

    struct shared {
        alignas(256) bf16 k[KEYS * DP], v[KEYS * DP];
        bf16 q[STAGES][QUERIES * DP], dy[STAGES][QUERIES * DP];
        bf16 p[QUERIES * KEYS], ds[QUERIES * KEYS];
        float sums[WARPS];
        int ticket, order;
    };
};

// An A100 has 163 KiB of shared memory for a block, Hopper more. The GPUs of workstations have 99;
// their tensor cores are slower too, so that smaller tiles do no harm.
template <int DP> using large = tiling<DP, 128, DP == 64 ? 128 : 64>;
template <int DP> using small = tiling<DP, DP == 64 ? 128 : 64, DP == 64 ? 64 : 32>;
enum { SMEM_A100 = 163 << 10, SMEM_WORKSTATION = 99 << 10 };
static_assert(sizeof(large<64>::shared) <= SMEM_A100 && sizeof(large<128>::shared) <= SMEM_A100 &&
                  sizeof(small<64>::shared) <= SMEM_WORKSTATION &&
                  sizeof(small<128>::shared) <= SMEM_WORKSTATION,
              "tiles fit");

// ---- the way of a block

struct query_tile {
    int h, tile;
};

template <class T> struct walk {
    int b, kv, block, first_key, last_head, end; // end: past the last tile that sees the keys

    __device__ __forceinline__ walk(const backward_params &p, int ticket)
    {
        const int head = ticket / p.blocks;

        block = p.blocks - 1 - ticket % p.blocks;
        b = head / p.s.Hkv;
        kv = head % p.s.Hkv;
        first_key = block * T::KEYS;
        last_head = (kv + 1) * (p.s.H / p.s.Hkv) - 1;
        end = min(p.tiles, (first_key + T::KEYS - 1 + p.s.window - 1) / T::QUERIES + 1);
    }

    __device__ __forceinline__ int64_t head(const backward_params &p, int h) const
    {
        return (int64_t)b * p.s.H + h;
    }

    // A word of the record for a tile of queries: of each block of keys the first bit.
    __device__ __forceinline__ uint32_t used(const backward_params &p, query_tile t, int word) const
    {
        const int first = t.tile * T::QUERIES / ATTENTION_TILE,
                  last = (t.tile * T::QUERIES + T::QUERIES - 1) / ATTENTION_TILE;
        uint32_t bits = p.kept.row(head(p, t.h), first)[word];

        if (last > first && last < p.kept.rows)
            bits |= p.kept.row(head(p, t.h), last)[word];
        return T::KEYS > ATTENTION_TILE ? (bits | bits >> 1) & 0x55555555u : bits;
    }

    // The next tile that uses the keys, from this one on; after the last head: none. A lane looks
    // at each of 32 tiles.
    __device__ __forceinline__ query_tile next(const backward_params &p, query_tile t) const
    {
        const int bit = block * (T::KEYS / ATTENTION_TILE);

        for (; t.h <= last_head; t = { t.h + 1, first_key / T::QUERIES }) {
            if (!p.kept.bits && t.tile < end)
                return t;
            for (; p.kept.bits && t.tile < end; t.tile += 32) {
                const query_tile mine = { t.h, t.tile + (int)threadIdx.x % 32 };
                const uint32_t users = __ballot_sync(
                    0xffffffffu, mine.tile < end && used(p, mine, bit >> 5) >> (bit & 31) & 1);
                if (users)
                    return { t.h, t.tile + __ffs((int)users) - 1 };
            }
        }
        return t;
    }

    // How many blocks add to dQ of this tile before this one: those in use from here to the
    // diagonal. All of them are in the window if this one is.
    __device__ __forceinline__ int order(const backward_params &p, query_tile t) const
    {
        const int PER = T::KEYS / ATTENTION_TILE,
                  nearest = (t.tile * T::QUERIES + T::QUERIES - 1) / T::KEYS;
        const int first = (block + 1) * PER, last = nearest * PER;
        int count = 0;

        if (!p.kept.bits)
            return nearest - block;
        for (int word = first / 32; word <= last / 32 && first <= last; word++) {
            uint32_t bits = used(p, t, word);
            if (word == first / 32)
                bits &= ~0u << first % 32;
            if (word == last / 32)
                bits &= ~0u >> (31 - last % 32);
            count += __popc(bits);
        }
        return count;
    }

    // Its number in semaphores and sums.
    __device__ __forceinline__ int number(const backward_params &p, query_tile t) const
    {
        return (b * p.s.H + t.h) * p.tiles + t.tile;
    }
};

// ---- a tile

// Which part of the tile a thread has. It is recomputed for each tile: the compiler must not keep
// the places of all matrices in registers.
template <class T> struct part {
    int lane, warp, query, key; // the first of the warp

    __device__ __forceinline__ part()
    {
        int thread = (int)threadIdx.x;

        hide(thread);
        lane = thread % 32;
        warp = thread / 32;
        query = warp / T::WARPS_ACROSS * T::WARP_QUERIES;
        key = warp % T::WARPS_ACROSS * T::WARP_KEYS;
    }
};

template <class T> struct sums {
    float dk[T::KEY_ROWS][T::DP / 16][4], dv[T::KEY_ROWS][T::DP / 16][4];
    float bias; // of slopes: sum of dS times -distance; of a table: its last entry
};

template <class T> struct scores {
    float s[T::ROWS][T::WARP_KEYS / 8][4], dp[T::ROWS][T::WARP_KEYS / 8][4];
    float lse[T::ROWS][2], delta[T::ROWS][2]; // of the rows of this lane
};

// Starts to load lse log2(e) and delta. Past the last query lse is infinite: all weights are 0.
template <class T>
__device__ __forceinline__ void load_rows(scores<T> &f, const backward_params &p, const walk<T> &w,
                                          query_tile t, const part<T> &me)
{
    const int64_t head = w.head(p, t.h) * p.s.Lq;

#pragma unroll
    for (int r = 0; r < T::ROWS; r++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = t.tile * T::QUERIES + me.query + 16 * r + 8 * half + me.lane / 4;
            f.lse[r][half] = query < p.s.Lq ? log2_e * p.lse[head + query] : INFINITY;
            f.delta[r][half] = query < p.s.Lq ? p.delta[head + query] : 0.0f;
        }
}

// S becomes P, and dP becomes dS. A query sees `window` keys. MASKED: some pairs may not be seen.
// DROPS: P becomes that of M P without the factor 1 / (1 - p), which dV gets at the end.
template <class T, int BIAS, bool MASKED, bool DROPS>
__device__ __forceinline__ void weigh(scores<T> &f, sums<T> &all, const backward_params &p,
                                      const walk<T> &w, query_tile t, const part<T> &me,
                                      float slope, int window, const uint32_t (&dropped)[T::ROWS])
{
    const int key = w.first_key + me.key + me.lane % 4 * 2;
    const float scale = p.s.scale * log2_e;

#pragma unroll
    for (int r = 0; r < T::ROWS; r++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = t.tile * T::QUERIES + me.query + 16 * r + 8 * half + me.lane / 4;
            const float lse = f.lse[r][half], away = (float)(key - query);
            const float base = fmaf(slope, away, -lse);
            float sum = 0.0f, moment = 0.0f;
#pragma unroll
            for (int c = 0; c < T::WARP_KEYS / 8; c++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int column = 8 * c + i, distance = query - key - column;
                    float &x = f.s[r][c][2 * half + i], &ds = f.dp[r][c][2 * half + i];
                    x = exp2_approx(fmaf(
                        x, scale,
                        BIAS == TABLE ? fmaf(log2_e, p.s.bias(w.b, t.h, max(0, distance)), -lse)
                                      : fmaf(slope, (float)column, base)));
                    if (MASKED && (unsigned)distance >= (unsigned)window) // below 0 too
                        x = 0.0f;
                    if constexpr (DROPS) {
                        const bool drops = dropped[r] >> drop_bit(half, c, i) & 1;
                        ds = x * fmaf(drops ? 0.0f : p.mask.mask.kept, ds, -f.delta[r][half]);
                        x = drops ? 0.0f : x;
                    } else {
                        ds = x * (ds - f.delta[r][half]);
                    }
                    sum += ds;
                    moment = fmaf(ds, (float)column, moment);
                }
            if (BIAS == LEARNED_SLOPES)
                all.bias += fmaf(sum, away, moment);
            if (BIAS == TABLE && t.tile * T::QUERIES - w.first_key - T::KEYS + 1 >= p.s.T - 1)
                all.bias += sum;
        }
}

// A warp's numbers as bf16, to rows of shared memory.
template <int WIDTH, int ROWS, int COLUMNS>
__device__ __forceinline__ void store_tile(bf16 *tile, const float (&d)[ROWS][COLUMNS][4],
                                           float factor, int lane, int row, int column)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                *(uint32_t *)((char *)tile +
                              swizzled_offset<WIDTH>(row + 16 * r + 8 * half + lane / 4,
                                                     column / CHUNK + c) +
                              lane % 4 * 4) =
                    pack_bf16x2(factor * d[r][c][2 * half], factor * d[r][c][2 * half + 1]);
}

// Adds to dQ in the order of the accumulators, thread after thread; the first block stores.
template <class T>
__device__ __forceinline__ void add_queries(float (&d)[T::ROWS * T::WARP_COLUMNS / 8][4],
                                            float4 *to, int order)
{
    if (order > 0) {
        red_add_ordered<T::THREADS>(to + threadIdx.x, d);
        return;
    }
#pragma unroll
    for (int n = 0; n < T::ROWS * T::WARP_COLUMNS / 8; n++)
        to[n * T::THREADS + threadIdx.x] = make_float4(d[n][0], d[n][1], d[n][2], d[n][3]);
}

// The gradient of a table: a thread per diagonal of dS, which has one distance. Lanes read
// neighbours in a row. Its sums are in global memory; from one tile to the next, other threads add
// to them, after a barrier. Distances from the table's last entry on share it.
template <class T>
__device__ __forceinline__ void add_diagonals(sums<T> &all, const backward_params &p,
                                              const walk<T> &w, query_tile t, const bf16 *ds)
{
    const int lead = t.tile * T::QUERIES - w.first_key;
    float *bins = p.dbias + (w.b * p.bias_row + w.block * p.bias_block + t.h) * p.s.T;

    if (lead - T::KEYS + 1 >= p.s.T - 1) // weigh() has summed them
        return;
    for (int n = (int)threadIdx.x; n < T::QUERIES + T::KEYS - 1; n += T::THREADS) {
        const int diagonal = n - T::KEYS + 1, distance = lead + diagonal;
        float sum = 0.0f;
        for (int q = max(0, diagonal); q < min(T::QUERIES, T::KEYS + diagonal); q++) {
            const int key = q - diagonal;
            sum += to_float(*(const bf16 *)((const char *)ds +
                                            swizzled_offset<T::KEYS>(q, key / CHUNK) +
                                            key % CHUNK * sizeof(bf16)));
        }
        if (distance >= p.s.T - 1)
            all.bias += sum;
        else if (distance >= 0)
            bins[distance] += sum;
    }
}

// The block's part of the gradient of a head's slope, or of its table's last entry.
template <class T>
__device__ __forceinline__ void write_bias(sums<T> &all, const backward_params &p, const walk<T> &w,
                                           int h, float *of_warps)
{
    const float sum = warp_sum(all.bias);

    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int warp = 0; warp < T::WARPS; warp++)
            total += of_warps[warp];
        p.dbias[(w.b * p.bias_row + w.block * p.bias_block + h) * p.s.T + p.s.T - 1] = total;
    }
    all.bias = 0.0f;
}

template <class T>
__device__ __forceinline__ void clear_bins(const backward_params &p, const walk<T> &w)
{
    const int group = p.s.H / p.s.Hkv;
    float *bins = p.dbias + (w.b * p.bias_row + w.block * p.bias_block + w.kv * group) * p.s.T;

    for (int n = (int)threadIdx.x; n < group * p.s.T; n += T::THREADS)
        bins[n] = 0.0f;
}

// dK or dV: rows go through shared memory, so that they are written 16 bytes at a time.
template <class T>
__device__ __forceinline__ void write_keys(bf16 *tile, const float (&d)[T::KEY_ROWS][T::DP / 16][4],
                                           float factor, const backward_params &p, const walk<T> &w,
                                           heads<bf16> to)
{
    const int CHUNKS = T::DP / CHUNK, warp = (int)threadIdx.x / 32;

    store_tile<T::DP>(tile, d, factor, (int)threadIdx.x % 32, warp / 2 * 32, warp % 2 * T::DP / 2);
    __syncthreads();
    for (int n = (int)threadIdx.x; n < T::KEYS * CHUNKS; n += T::THREADS) {
        const int row = n / CHUNKS, chunk = n % CHUNKS, key = w.first_key + row;
        if (key < p.s.Lk && chunk * CHUNK < p.s.D)
            *(uint4 *)(to.row(w.b, key, w.kv) + chunk * CHUNK) =
                *(const uint4 *)((const char *)tile + swizzled_offset<T::DP>(row, chunk));
    }
}

template <class T>
__device__ __forceinline__ void load_queries(const backward_params &p, const walk<T> &w,
                                             query_tile t, bf16 *q, bf16 *dy)
{
    load_tile<T::DP, T::QUERIES, T::THREADS>(shared_address(q), p.q, w.b, t.h, t.tile * T::QUERIES,
                                             p.s.Lq, p.s.D);
    load_tile<T::DP, T::QUERIES, T::THREADS>(shared_address(dy), p.dy, w.b, t.h,
                                             t.tile * T::QUERIES, p.s.Lq, p.s.D);
}

// S, dP, and from them P and dS in shared memory. `between` the products: a thread that waits there
// holds up its own warp alone.
template <class T, int BIAS, bool DROPS, class Between>
__device__ __forceinline__ void find_scores(sums<T> &all, const backward_params &p,
                                            const walk<T> &w, query_tile t,
                                            typename T::shared *shared, int stage, Between between)
{
    const part<T> me;
    const int first = t.tile * T::QUERIES, tile = (first + me.query) / ATTENTION_TILE;
    const bool used = !p.kept.bits ||
                      (tile < p.kept.rows && tile_is_kept(p.kept.row(w.head(p, t.h), tile),
                                                          (w.first_key + me.key) / ATTENTION_TILE));
    const bool masked = !used || w.first_key + T::KEYS - 1 > first ||
                        w.first_key < p.s.first_key(first + T::QUERIES - 1);
    const float slope = p.s.kind == BIAS_LINEAR ? log2_e * p.s.slope(w.b, t.h) : 0.0f;
    const uint32_t rows = lane_offset<T::DP, true>(me.lane, me.query, 0),
                   keys = lane_offset<T::DP, false>(me.lane, me.key, 0);
    scores<T> f;
    uint32_t dropped[T::ROWS] = {};

    if constexpr (DROPS) {
#pragma unroll
        for (int r = 0; r < T::ROWS; r++)
            dropped[r] = draw_mask<T::WARP_KEYS / 8>(p.mask, w.head(p, t.h),
                                                     first + me.query + 16 * r + me.lane / 4,
                                                     w.first_key + me.key + me.lane % 4 * 2);
    }
    clear(f.s);
    multiply<T::DP / 16, T::DP, false, T::DP, false>(f.s, shared_address(shared->q[stage]) + rows,
                                                     shared_address(shared->k) + keys);
    between();
    load_rows<T>(f, p, w, t, me);
    clear(f.dp);
    multiply<T::DP / 16, T::DP, false, T::DP, false>(f.dp, shared_address(shared->dy[stage]) + rows,
                                                     shared_address(shared->v) + keys);
    if (masked)
        weigh<T, BIAS, true, DROPS>(f, all, p, w, t, me, slope, used ? p.s.window : 0, dropped);
    else
        weigh<T, BIAS, false, DROPS>(f, all, p, w, t, me, slope, p.s.window, dropped);
    store_tile<T::KEYS>(shared->p, f.s, 1.0f, me.lane, me.query, me.key);
    store_tile<T::KEYS>(shared->ds, f.dp, 1.0f, me.lane, me.query, me.key);
}

// The three gradients. dQ first: it has time to arrive until the semaphore is released.
template <class T>
__device__ __forceinline__ void add_gradients(sums<T> &all, float4 *dq, typename T::shared *shared,
                                              int stage)
{
    const part<T> me;
    const int key = me.warp / 2 * 32, column = me.warp % 2 * T::DP / 2,
              dq_column = me.warp % T::WARPS_ACROSS * T::WARP_COLUMNS;
    const uint32_t weights = lane_offset<T::KEYS, false>(me.lane, 0, key),
                   rows = lane_offset<T::DP, true>(me.lane, 0, column);
    float d[T::ROWS][T::WARP_COLUMNS / 8][4];

    clear(d);
    multiply<T::KEYS / 16, T::KEYS, false, T::DP, true>(
        d, shared_address(shared->ds) + lane_offset<T::KEYS, true>(me.lane, me.query, 0),
        shared_address(shared->k) + lane_offset<T::DP, true>(me.lane, 0, dq_column));
    add_queries<T>(reinterpret_cast<float(&)[T::ROWS * T::WARP_COLUMNS / 8][4]>(d), dq,
                   shared->order);
    multiply<T::QUERIES / 16, T::KEYS, true, T::DP, true>(
        all.dv, shared_address(shared->p) + weights, shared_address(shared->dy[stage]) + rows);
    multiply<T::QUERIES / 16, T::KEYS, true, T::DP, true>(
        all.dk, shared_address(shared->ds) + weights, shared_address(shared->q[stage]) + rows);
}

template <class T, int BIAS, bool DROPS>
__global__ void __launch_bounds__(T::THREADS, 1)
    backward_kernel(const __grid_constant__ backward_params p)
{
    typename T::shared *shared = dynamic_shared<typename T::shared>();

    if (threadIdx.x == 0)
        shared->ticket = atomicAdd(p.semaphores + (int64_t)p.s.B * p.s.H * p.tiles, 1);
    __syncthreads();
    const walk<T> w(p, shared->ticket);
    query_tile t = w.next(p, { w.kv * (p.s.H / p.s.Hkv), w.first_key / T::QUERIES });
    int stage = 0, before = -1; // before: the tile whose semaphore is released next
    sums<T> all;

    clear(all.dk);
    clear(all.dv);
    all.bias = 0.0f;
    if (BIAS == TABLE && p.dbias)
        clear_bins<T>(p, w);
    load_tile<T::DP, T::KEYS, T::THREADS>(shared_address(shared->k), p.k, w.b, w.kv, w.first_key,
                                          p.s.Lk, p.s.D);
    load_tile<T::DP, T::KEYS, T::THREADS>(shared_address(shared->v), p.v, w.b, w.kv, w.first_key,
                                          p.s.Lk, p.s.D);
    if (t.h <= w.last_head)
        load_queries<T>(p, w, t, shared->q[0], shared->dy[0]);
    while (t.h <= w.last_head) {
        const query_tile next = w.next(p, { t.h, t.tile + 1 });
        const int number = w.number(p, t);
        int now = 0;

        copy_async_wait();
        __syncthreads(); // Q and dY are there; the others of both stages, P and dS have been used
        // A fence waits for all that its thread has begun: the release comes before loads.
        if (threadIdx.x == 0 && before >= 0)
            semaphore_release(p.semaphores + before);
        if (threadIdx.x == T::THREADS - 1)
            now = semaphore_peek(p.semaphores + number);
        if (next.h <= w.last_head)
            load_queries<T>(p, w, next, shared->q[stage ^ 1], shared->dy[stage ^ 1]);
        find_scores<T, BIAS, DROPS>(all, p, w, t, shared, stage, [&] {
            if (threadIdx.x == T::THREADS - 1) {
                shared->order = w.order(p, t);
                semaphore_wait(p.semaphores + number, now, shared->order);
            }
        });
        __syncthreads(); // P, dS and the order are there
        add_gradients<T>(all, p.sums + (int64_t)number * (T::QUERIES * T::DP / 4), shared, stage);
        if (BIAS == TABLE && p.dbias)
            add_diagonals<T>(all, p, w, t, shared->ds);
        if (BIAS != SLOPES && p.dbias && next.h != t.h)
            write_bias<T>(all, p, w, t.h, shared->sums);
        before = number;
        stage ^= 1;
        t = next;
    }
    copy_async_wait();
    __syncthreads();
    if (threadIdx.x == 0 && before >= 0)
        semaphore_release(p.semaphores + before);
    write_keys<T>(shared->k, all.dk, p.s.scale, p, w, p.dk);
    write_keys<T>(shared->v, all.dv, DROPS ? p.mask.mask.kept : 1.0f, p, w, p.dv);
}

// dq = scale * the sums, in bf16. A thread block per tile: it reads the sums in the order of
// add_queries(), puts them in place in shared memory, and writes rows.
template <class T>
__global__ void __launch_bounds__(ROUND_THREADS)
    round_queries(const __grid_constant__ backward_params p)
{
    __shared__ __align__(16) float rows[T::QUERIES][T::DP + 8]; // 8: rows begin in other banks
    const int tile = (int)(blockIdx.x % p.tiles), head = (int)(blockIdx.x / p.tiles);
    const float4 *sums = p.sums + (int64_t)blockIdx.x * (T::QUERIES * T::DP / 4);

    for (int n = (int)threadIdx.x; n < T::QUERIES * T::DP / 4; n += ROUND_THREADS) {
        const int thread = n % T::THREADS, lane = thread % 32, warp = thread / 32,
                  part = n / T::THREADS, columns = T::WARP_COLUMNS / 8;
        const int row = warp / T::WARPS_ACROSS * T::WARP_QUERIES + part / columns * 16 + lane / 4;
        const int d = warp % T::WARPS_ACROSS * T::WARP_COLUMNS + part % columns * 8 + lane % 4 * 2;
        const float4 x = sums[n];
        *(float2 *)&rows[row][d] = make_float2(p.s.scale * x.x, p.s.scale * x.y);
        *(float2 *)&rows[row + 8][d] = make_float2(p.s.scale * x.z, p.s.scale * x.w);
    }
    __syncthreads();
    for (int n = (int)threadIdx.x; n < T::QUERIES * T::DP / 8; n += ROUND_THREADS) {
        const int row = n / (T::DP / 8), d = n % (T::DP / 8) * 8, i = tile * T::QUERIES + row;
        float x[8];
        if (i >= p.s.Lq || d >= p.s.D)
            continue;
        load<8>(x, &rows[row][d]);
        store<8>(p.dq.row(head / p.s.H, i, head % p.s.H) + d, x);
    }
}

// ---- host

template <class T> backward_params sized_params(const struct attention_args *a)
{
    backward_params p = {};

    p.s = attention_shape_of(a);
    p.tiles = (int)ceil_div(p.s.Lq, T::QUERIES);
    p.blocks = (int)ceil_div(p.s.Lk, T::KEYS);
    p.bias_row = p.s.slopes_row ? p.s.H : (int64_t)p.blocks * p.s.H;
    p.bias_block = p.s.slopes_row ? (int64_t)p.s.B * p.s.H : p.s.H;
    return p;
}

template <class T> struct backward_areas areas_of(const backward_params &p, bool learns_bias)
{
    const int64_t dq[] = { p.s.B, p.s.H, p.tiles, T::QUERIES * T::DP, (int64_t)sizeof(float) };
    const int64_t semaphores[] = { (int64_t)p.s.B * p.s.H * p.tiles + 1, (int64_t)sizeof(int) };
    const int64_t bias[] = { p.s.B, p.s.H, p.blocks, learns_bias ? p.s.T : 0,
                             (int64_t)sizeof(float) };

    return { cuda_bytes(dq, 5), cuda_bytes(semaphores, 2), cuda_bytes(bias, 5) };
}

template <class T>
alibi_status backward(struct context *c, const struct attention_args *a, const float *delta,
                      struct kept_tiles kept)
{
    backward_params p = sized_params<T>(a);
    const bool learns = learns_bias(a);
    const struct backward_areas areas = areas_of<T>(p, learns);
    float *dbias = (float *)a->dbias.data;
    const bool table = p.s.kind == BIAS_TABLE;
    // A mask takes far more instructions than the sums of LEARNED_SLOPES do, so with dropout slopes
    // without a gradient have no kernel of their own.
    const auto kernel =
        a->dropout.p > 0
            ? (table ? backward_kernel<T, TABLE, true> : backward_kernel<T, LEARNED_SLOPES, true>)
        : table  ? backward_kernel<T, TABLE, false>
        : learns ? backward_kernel<T, LEARNED_SLOPES, false>
                 : backward_kernel<T, SLOPES, false>;

    p.q = heads_of<const bf16>(a->q);
    p.k = heads_of<const bf16>(a->k);
    p.v = heads_of<const bf16>(a->v);
    p.dy = heads_of<const bf16>(a->dy);
    p.dq = heads_of<bf16>(a->dq);
    p.dk = heads_of<bf16>(a->dk);
    p.dv = heads_of<bf16>(a->dv);
    p.lse = (const float *)a->lse.data;
    p.delta = delta;
    p.kept = kept;
    p.mask = weight_mask_of(a->dropout, a->k.shape[1]);
    TRY_RETURN(cuda_scratch(c, SCRATCH_QUERIES, areas.dq, (void **)&p.sums));
    TRY_RETURN(cuda_scratch(c, SCRATCH_SEMAPHORES, areas.semaphores, (void **)&p.semaphores));
    if (learns)
        TRY_RETURN(cuda_scratch(c, SCRATCH_BIAS, areas.bias, (void **)&p.dbias));
    TRY_RETURN(cuda_check(cudaMemsetAsync(p.semaphores, 0, areas.semaphores, c->stream),
                          "attention backward"));
    TRY_RETURN(launch(c, "attention backward", kernel, p.s.B * p.s.Hkv * p.blocks, T::THREADS,
                      sizeof(typename T::shared), p));
    TRY_RETURN(launch(c, "attention backward", round_queries<T>, p.s.B * p.s.H * p.tiles,
                      ROUND_THREADS, 0, p));
    if (!learns)
        return ALIBI_OK;
    if (p.s.slopes_row)
        return cuda_add_partials(c, dbias, NULL, p.dbias, p.blocks, (int64_t)p.s.B * p.s.H);
    return cuda_add_partials(c, dbias, NULL, p.dbias, (int64_t)p.s.B * p.blocks,
                             (int64_t)p.s.H * p.s.T);
}

bool has_room(const struct context *c)
{
    return c->shared_per_block >= SMEM_A100;
}

} // namespace

bool ampere_serves_backward(const struct context *c, const struct attention_args *a)
{
    return ampere_serves(c, a) && rows_are_aligned(a->dy) && rows_are_aligned(a->dq) &&
           rows_are_aligned(a->dk) && rows_are_aligned(a->dv);
}

struct backward_areas backward_ampere_areas(const struct context *c, const struct attention_args *a)
{
    const bool narrow = a->q.shape[3] <= 64, learns = learns_bias(a);

    if (has_room(c))
        return narrow ? areas_of<large<64>>(sized_params<large<64>>(a), learns)
                      : areas_of<large<128>>(sized_params<large<128>>(a), learns);
    return narrow ? areas_of<small<64>>(sized_params<small<64>>(a), learns)
                  : areas_of<small<128>>(sized_params<small<128>>(a), learns);
}

alibi_status backward_ampere(struct context *c, const struct attention_args *a, const float *delta,
                             struct kept_tiles kept)
{
    const bool narrow = a->q.shape[3] <= 64;

    if (has_room(c))
        return narrow ? backward<large<64>>(c, a, delta, kept)
                      : backward<large<128>>(c, a, delta, kept);
    return narrow ? backward<small<64>>(c, a, delta, kept)
                  : backward<small<128>>(c, a, delta, kept);
}
