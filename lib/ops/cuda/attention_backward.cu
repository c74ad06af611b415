// attention_backward.cu - backward on Hopper's matrix unit
//
//   P^T = exp(scale K Q^T + bias - lse),   dP^T = V dY^T,   dS = P (dP - delta),   delta_i = y_i .
//   dy_i dV = P^T dY,   dK = scale dS^T Q,   dQ = scale dS K
//
// A thread block has 128 keys, half of them in each of two warpgroups, whose gradients stay in
// registers; a third warpgroup copies tiles of 64 queries. Scores are transposed, keys by queries,
// so that P^T and dS^T are in the registers where the next products want them; only dS goes through
// shared memory, for dQ. Sums start from bias - lse and from -delta, so neither costs anything
// afterwards.
//
// dQ of a tile of queries is added up in fp32 by the blocks of its keys, in the order in which the
// threads' registers have it: round_queries() puts it right at the end. They take turns, nearest
// keys first, so the sum has one order. A block begins with the queries nearest to its keys as
// well: the one whose turn comes before is ahead by its lead, and hardly anyone waits. Who does is
// the warp that hands the tile to the copy engine, and the others go on. Blocks of late keys are
// started first: whoever is waited for is running or done.
//
// Where q and k were turned (rotary), dQ and dK are turned back before they are rounded.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/columns.cuh"
#include "ops/cuda/rotary.cuh"
#include "ops/cuda/tensor_map.cuh"
#include "ops/cuda/wgmma.cuh"

enum {
    WARPGROUP = 128,
    CONSUMERS = 2,
    THREADS = WARPGROUP * (CONSUMERS + 1),
    STAGES = 2,
    PANEL = 64,
    QUERIES = 64, // per tile
};

// How the gradient of the bias is found, if at all.
enum gradient { NO_GRADIENT, OF_SLOPES, OF_TABLE };

struct backward_call {
    CUtensorMap q, k, v, dy;
    heads<bf16> dk, dv;
    float *dq;          // [B, H, tiles, QUERIES x padded D] in the order of leave_queries()
    const float *lse;   // [B, H, L]
    const float *delta; // [B, H, L]
    int *turns;         // [B, H, tiles]: how many have added theirs
    float *dbias;       // [B, blocks, H, 1 or T] partial sums
    struct attention_shape s;
    struct angles turned; // q and k were; dq and dk are turned back
    struct kept_tiles kept;
    int tiles, blocks; // of queries, of keys
    bool unordered;    // nobody waits: dQ begins as 0, and its bits depend on who came first
};

template <int D> static size_t backward_shared()
{
    return 1024 +
           2 * (size_t)(2 * BLOCK_KEYS * D + 2 * STAGES * QUERIES * D + 2 * BLOCK_KEYS * QUERIES) +
           sizeof(float) * (size_t)(QUERIES * D + STAGES * 2 * QUERIES + 2 * TABLE_LARGEST) +
           sizeof(struct bias_table) + 512;
}

#if HAS_WGMMA

template <int D> struct backward_memory {
    bf16 k[D / PANEL][BLOCK_KEYS][PANEL], v[D / PANEL][BLOCK_KEYS][PANEL];
    bf16 q[STAGES][D / PANEL][QUERIES][PANEL], dy[STAGES][D / PANEL][QUERIES][PANEL];
    bf16 ds[2][BLOCK_KEYS][QUERIES]; // one while the other is still read
    float4 dq[CONSUMERS][D / 16][WARPGROUP];
    float lse[STAGES][QUERIES], delta[STAGES][QUERIES];
    struct bias_table table;      // of the head at hand
    float bins[2][TABLE_LARGEST]; // the gradient of it, of even and odd queries
    float sums[CONSUMERS * 4];
    barrier kv_full, full[STAGES], empty[STAGES], rows_empty[STAGES], dq_full, dq_empty;
};

// The keys of a thread block, and a walk over all tiles of queries that use them: head after head
// of the group, ascending.
struct walk {
    int b, kv, block, first_key, h, tile, last_head;

    __device__ __forceinline__ walk(const backward_call &c)
    {
        int head = blockIdx.x / c.blocks;

        block = c.blocks - 1 - blockIdx.x % c.blocks;
        b = head / c.s.Hkv;
        kv = head % c.s.Hkv;
        first_key = block * BLOCK_KEYS;
        h = kv * (c.s.H / c.s.Hkv);
        last_head = h + c.s.H / c.s.Hkv - 1;
        tile = first_tile() - 1;
    }

    __device__ __forceinline__ int first_tile() const
    {
        return first_key / QUERIES;
    }

    __device__ __forceinline__ int64_t head(const backward_call &c) const
    {
        return (int64_t)b * c.s.H + h;
    }

    // To the next tile of this head that uses the keys; false behind the last.
    __device__ __forceinline__ bool next(const backward_call &c)
    {
        for (tile++; tile < c.tiles; tile++)
            if (!c.kept.bits || keys_are_kept(c.kept.row(head(c), tile), block))
                return true;
        return false;
    }

    __device__ __forceinline__ bool next_head()
    {
        tile = first_tile() - 1;
        return ++h <= last_head;
    }

    // How many blocks of keys add to dQ of this tile before this one: those that are used between
    // here and the diagonal.
    __device__ __forceinline__ int order(const backward_call &c) const
    {
        int nearest = tile * QUERIES / BLOCK_KEYS, count = 0;
        const uint32_t *row;

        if (!c.kept.bits)
            return nearest - block;
        row = c.kept.row(head(c), tile);
        for (int n = block + 1; n <= nearest; n++)
            count += keys_are_kept(row, n);
        return count;
    }
};

// ---- copying: the first warp has the engine copy tiles, the second brings a number per query, the
// third takes dQ away

template <int D>
static __device__ __forceinline__ void copy_keys(const backward_call &c, backward_memory<D> *m,
                                                 const struct walk &w)
{
    barrier_expect(&m->kv_full, 2 * D * BLOCK_KEYS * sizeof(bf16));
#pragma unroll
    for (int p = 0; p < D / PANEL; p++) {
        copy_box(m->k[p], &c.k, &m->kv_full, p * PANEL, w.kv, w.first_key, w.b);
        copy_box(m->v[p], &c.v, &m->kv_full, p * PANEL, w.kv, w.first_key, w.b);
    }
}

template <int D>
static __device__ __forceinline__ void copy_queries(const backward_call &c, backward_memory<D> *m,
                                                    const struct walk &w, int stage)
{
    barrier_expect(&m->full[stage], 2 * D * QUERIES * sizeof(bf16));
#pragma unroll
    for (int p = 0; p < D / PANEL; p++) {
        copy_box(m->q[stage][p], &c.q, &m->full[stage], p * PANEL, w.h, w.tile * QUERIES, w.b);
        copy_box(m->dy[stage][p], &c.dy, &m->full[stage], p * PANEL, w.h, w.tile * QUERIES, w.b);
    }
}

// Behind the last query lse is infinite, which makes every weight 0.
template <int D>
static __device__ __forceinline__ void copy_rows(const backward_call &c, backward_memory<D> *m,
                                                 const struct walk &w, int stage)
{
    const float *lse = c.lse + w.head(c) * c.s.Lq, *delta = c.delta + w.head(c) * c.s.Lq;

    for (int q = threadIdx.x % 32; q < QUERIES; q += 32) {
        int i = w.tile * QUERIES + q;
        m->lse[stage][q] = i < c.s.Lq ? lse[i] / c.s.scale : INFINITY;
        m->delta[stage][q] = i < c.s.Lq ? delta[i] : 0.0f;
    }
    barrier_arrive(&m->full[stage]);
}

static __device__ __forceinline__ void wait_turn(const int *turn, int order)
{
    int now;

    do
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    while (now != order);
    asm volatile("fence.proxy.async;" ::: "memory");
}

static __device__ __forceinline__ void end_turn(int *turn)
{
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(turn) : "memory");
}

// The first in order writes, the others add when it is their turn.
template <int D>
static __device__ __forceinline__ void add_queries(const backward_call &c, backward_memory<D> *m,
                                                   const struct walk &w, int count)
{
    int64_t tile = w.head(c) * c.tiles + w.tile;
    int order = c.unordered ? 1 : w.order(c);

    barrier_wait(&m->dq_full, count % 2);
    if (order == 0) {
        copy_out(c.dq + tile * (QUERIES * D), (const float *)m->dq, QUERIES * D * sizeof(float));
    } else {
        if (!c.unordered)
            wait_turn(c.turns + tile, order);
        add_out(c.dq + tile * (QUERIES * D), (const float *)m->dq, QUERIES * D * sizeof(float));
    }
    copy_out_commit();
    copy_out_read();
    barrier_arrive(&m->dq_empty);
    copy_out_done();
    if (!c.unordered)
        end_turn(c.turns + tile);
}

template <int D>
static __device__ __forceinline__ void copy_all(const backward_call &c, backward_memory<D> *m)
{
    enum { TILES, ROWS, QUERY_GRADIENTS };
    int warp = threadIdx.x / 32, count = 0;
    struct walk w(c);
    struct ring_place<STAGES> t = {
        0, 1
    };

    if (warp > QUERY_GRADIENTS || (warp != ROWS && threadIdx.x % 32 > 0))
        return;
    if (warp == TILES)
        copy_keys<D>(c, m, w);
    do {
        while (w.next(c)) {
            if (warp == QUERY_GRADIENTS) {
                add_queries<D>(c, m, w, count++);
                continue;
            }
            barrier_wait(warp == TILES ? &m->empty[t.stage] : &m->rows_empty[t.stage], t.parity);
            if (warp == TILES)
                copy_queries<D>(c, m, w, t.stage);
            else
                copy_rows<D>(c, m, w, t.stage);
            t.step();
        }
    } while (w.next_head());
}

// ---- computing

// What one thread holds of 64 keys: two rows, `row` and 8 below, counted within the block; columns
// are queries.
template <int D> struct keys {
    float dk[D / 2], dv[D / 2];
    float s[QUERIES / 2], dp[QUERIES / 2];            // S, P; dP, dS
    float dq[D / 4];                                  // half of the columns of a tile of queries
    uint32_t p[QUERIES / 16][4], ds[QUERIES / 16][4]; // P^T, dS^T, as operands
    int row, column;
    float slope; // of -dS times the distance
    float far;   // of dS at distances that share the table's last entry
};

// Whether all pairs of a tile and the keys have the table's last entry; lead is the first query's
// distance from the first key.
static __device__ __forceinline__ bool is_far(const backward_call &c, int lead)
{
    return lead - (BLOCK_KEYS - 1) >= c.s.T - 1;
}

// Sums start from (bias - lse) / scale.
template <int D>
static __device__ __forceinline__ void start_scores(keys<D> &r, const backward_memory<D> *m,
                                                    int lead, float step, int stage)
{
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        int q = 8 * (i / 4) + r.column;
        float2 lse = *(const float2 *)&m->lse[stage][q];
        r.s[i] = fmaf(-step, (float)(lead + q - r.row), -lse.x);
        r.s[i + 1] = fmaf(-step, (float)(lead + q + 1 - r.row), -lse.y);
        r.s[i + 2] = fmaf(step, 8.0f, r.s[i]);
        r.s[i + 3] = fmaf(step, 8.0f, r.s[i + 1]);
    }
}

template <int D>
static __device__ __forceinline__ void start_scores_from_table(keys<D> &r,
                                                               const backward_memory<D> *m,
                                                               int lead, int stage)
{
    const float *bias = m->table.at(lead + r.column - r.row);

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        int q = 8 * (i / 4);
        float2 lse = *(const float2 *)&m->lse[stage][q + r.column];
        r.s[i] = bias[q] - lse.x;
        r.s[i + 1] = bias[q + 1] - lse.y;
        r.s[i + 2] = bias[q - 8] - lse.x;
        r.s[i + 3] = bias[q - 7] - lse.y;
    }
}

// All have the table's last entry.
template <int D>
static __device__ __forceinline__ void start_scores_from_last(keys<D> &r,
                                                              const backward_memory<D> *m, int T,
                                                              int stage)
{
    float last = *m->table.at(T - 1);

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        float2 lse = *(const float2 *)&m->lse[stage][8 * (i / 4) + r.column];
        r.s[i] = r.s[i + 2] = last - lse.x;
        r.s[i + 1] = r.s[i + 3] = last - lse.y;
    }
}

template <int D>
static __device__ __forceinline__ void start_products(keys<D> &r, const backward_memory<D> *m,
                                                      int stage)
{
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i += 4) {
        float2 delta = *(const float2 *)&m->delta[stage][8 * (i / 4) + r.column];
        r.dp[i] = r.dp[i + 2] = -delta.x;
        r.dp[i + 1] = r.dp[i + 3] = -delta.y;
    }
}

// d += rows of a (64 of BLOCK_KEYS) times rows of b (QUERIES), both along D.
template <int D>
static __device__ __forceinline__ void multiply_rows(float (&d)[QUERIES / 2], uint32_t a,
                                                     uint32_t b)
{
    wgmma_begin();
#pragma unroll
    for (int n = 0; n < D / 16; n++)
        wgmma_shared<QUERIES, 0, 0>(d, operand_along_k(a + n / 4 * (BLOCK_KEYS * 128) + n % 4 * 32),
                                    operand_along_k(b + n / 4 * (QUERIES * 128) + n % 4 * 32), 1);
    wgmma_commit();
}

// d += a (keys by queries, in registers) times b (QUERIES by D).
template <int D>
static __device__ __forceinline__ void multiply_gradient(float (&d)[D / 2],
                                                         const uint32_t (&a)[QUERIES / 16][4],
                                                         uint32_t b)
{
    wgmma_begin();
#pragma unroll
    for (int n = 0; n < QUERIES / 16; n++)
        wgmma_registers<D, 1>(d, a[n], operand_across_k(b + n * (16 * 128), QUERIES * 128), 1);
    wgmma_commit();
}

// Half of dQ's columns: (queries by keys) times (keys by D / 2).
template <int D>
static __device__ __forceinline__ void multiply_queries(float (&d)[D / 4], uint32_t ds, uint32_t k)
{
    wgmma_begin();
#pragma unroll
    for (int n = 0; n < BLOCK_KEYS / 16; n++)
        wgmma_shared<D / 2, 1, 1>(d, operand_across_k(ds + n * (16 * 128), 0),
                                  operand_across_k(k + n * (16 * 128), 0), n > 0);
    wgmma_commit();
}

static __device__ __forceinline__ void pack_tile(uint32_t (&to)[QUERIES / 16][4],
                                                 const float (&from)[QUERIES / 2])
{
#pragma unroll
    for (int n = 0; n < QUERIES / 16; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[n][i] = pack_two(from[8 * n + 2 * i], from[8 * n + 2 * i + 1]);
}

// s becomes P. Queries before a key do not see it.
template <int D>
static __device__ __forceinline__ void weights(keys<D> &r, float scale_log2, int lead)
{
    bool masked = lead < BLOCK_KEYS;

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        r.s[i] = power_of_two(r.s[i] * scale_log2);
        if (masked && lead + 8 * (i / 4) + r.column + (i & 1) < r.row + (i & 2 ? 8 : 0))
            r.s[i] = 0.0f;
    }
}

// dS^T for all to see, in the layout of wgmma.cuh: 8 queries are a piece of 16 bytes.
static __device__ __forceinline__ void store_tile(bf16 (*to)[QUERIES],
                                                  const uint32_t (&from)[QUERIES / 16][4], int row,
                                                  int column)
{
    char *upper = (char *)to[row], *lower = (char *)to[row + 8];
    int swizzle = row % 8;

#pragma unroll
    for (int n = 0; n < QUERIES / 16; n++) {
        int left = ((2 * n) ^ swizzle) * 16 + column * 2,
            right = ((2 * n + 1) ^ swizzle) * 16 + column * 2;
        *(uint32_t *)(upper + left) = from[n][0];
        *(uint32_t *)(lower + left) = from[n][1];
        *(uint32_t *)(upper + right) = from[n][2];
        *(uint32_t *)(lower + right) = from[n][3];
    }
}

// ---- the gradient of the bias

template <int D> static __device__ __forceinline__ void add_slopes(keys<D> &r, int lead)
{
    float sum = 0.0f, moment = 0.0f;

#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) { // -distance = row - lead - query
        sum += r.dp[i];
        moment = fmaf(r.dp[i], (float)((i & 2 ? 8 : 0) - 8 * (i / 4) - (i & 1)), moment);
    }
    r.slope += fmaf(sum, (float)(r.row - lead - r.column), moment);
}

// Distances from the table's last entry on share it.
template <int D>
static __device__ __forceinline__ void add_bin(keys<D> &r, const backward_call &c, float *bins,
                                               int distance, float sum)
{
    if (distance >= c.s.T - 1)
        r.far += sum;
    else if (distance >= 0)
        bins[distance] += sum;
}

// Diagonals of dS have one distance each. A thread goes down one of them in steps of two and takes
// the number right of it along, which is the next diagonal's: even queries are summed apart from
// odd ones. A quarter of a warp is at another of the four words of a piece than the others, so that
// all lanes read from banks of their own. Steps that lead out of the tile come in again on the
// other side, where reading does no harm, and are not added: that needs no branch.
template <int D>
static __device__ __forceinline__ void add_table(keys<D> &r, const backward_call &c,
                                                 backward_memory<D> *m, const bf16 (*ds)[QUERIES],
                                                 int lead)
{
    const uint32_t row = sizeof ds[0], all = BLOCK_KEYS * row;
    int diagonal = (int)threadIdx.x - WARPGROUP - (BLOCK_KEYS - 1), quarter = threadIdx.x % 32 / 8;
    float even = 0.0f, odd = 0.0f;

    if (diagonal >= QUERIES)
        return;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int word = (n + quarter) % 4, key = 2 * word - diagonal; // of the first 8 queries
        uint32_t first = (uint32_t)key * row + (key & 7) * 16 + word * 4;
#pragma unroll
        for (int piece = 0; piece < QUERIES / 8; piece++) {
            uint32_t at = first + piece * 8 * row;
            uint32_t two = *(const uint32_t *)((const char *)ds + ((at & (all - 1)) ^ piece * 16));
            if (at < all) {
                even += __uint_as_float(two << 16);
                odd += __uint_as_float(two & 0xffff0000u);
            }
        }
    }
    add_bin<D>(r, c, m->bins[0], lead + diagonal, even);
    add_bin<D>(r, c, m->bins[1], lead + diagonal + 1, odd);
}

// Four sums side by side: one alone would wait for each of its steps.
template <int D> static __device__ __forceinline__ void add_far(keys<D> &r)
{
    float sums[4] = { r.dp[0], r.dp[1], r.dp[2], r.dp[3] };

#pragma unroll
    for (int i = 4; i < QUERIES / 2; i++)
        sums[i % 4] += r.dp[i];
    r.far += (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The table of the head that begins.
template <int D>
static __device__ __forceinline__ void load_table(const backward_call &c, backward_memory<D> *m,
                                                  int h)
{
    fill_table(&m->table, c.s, h, (int)threadIdx.x - WARPGROUP, WARPGROUP * CONSUMERS);
    for (int i = threadIdx.x - WARPGROUP; i < c.s.T; i += WARPGROUP * CONSUMERS)
        m->bins[0][i] = m->bins[1][i] = 0.0f;
    meet<WARPGROUP * CONSUMERS>(1);
}

// The sum over both warpgroups, in a fixed order, for every thread.
template <int D>
static __device__ __forceinline__ float sum_consumers(backward_memory<D> *m, float x)
{
    float all = 0.0f;

    x = warp_sum(x);
    if (threadIdx.x % 32 == 0)
        m->sums[threadIdx.x / 32 - 4] = x;
    meet<WARPGROUP * CONSUMERS>(1);
    for (int i = 0; i < CONSUMERS * 4; i++)
        all += m->sums[i];
    meet<WARPGROUP * CONSUMERS>(1);
    return all;
}

template <int D, int GRADIENT>
static __device__ __forceinline__ void leave_bias(keys<D> &r, const backward_call &c,
                                                  backward_memory<D> *m, const struct walk &w)
{
    int64_t place = ((int64_t)w.b * c.blocks + w.block) * c.s.H + w.h;

    if (GRADIENT == OF_SLOPES) {
        float sum = sum_consumers<D>(m, r.slope);
        if (threadIdx.x == WARPGROUP)
            c.dbias[place] = sum;
        r.slope = 0.0f;
    }
    if (GRADIENT == OF_TABLE) {
        float far = sum_consumers<D>(m, r.far);
        for (int i = threadIdx.x - WARPGROUP; i < c.s.T; i += WARPGROUP * CONSUMERS)
            c.dbias[place * c.s.T + i] =
                m->bins[0][i] + m->bins[1][i] + (i == c.s.T - 1 ? far : 0.0f);
        r.far = 0.0f;
    }
}

// ---- dQ

// Thread after thread of each warpgroup, four registers at a time: the same order in all blocks, so
// it can be added as it is.
template <int D>
static __device__ __forceinline__ void leave_queries(const float (&d)[D / 4], backward_memory<D> *m,
                                                     int count, int group)
{
    barrier_wait(&m->dq_empty, count % 2 ^ 1);
#pragma unroll
    for (int j = 0; j < D / 16; j++)
        m->dq[group][j][threadIdx.x % WARPGROUP] =
            make_float4(d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
    publish_shared();
    barrier_arrive(&m->dq_full);
}

// ---- one tile of queries

// S and dP are under way.
template <int D, bool TABLE>
static __device__ __forceinline__ void begin_tile(keys<D> &r, const backward_call &c,
                                                  backward_memory<D> *m, const struct walk &w,
                                                  float step, struct ring_place<STAGES> t,
                                                  int group)
{
    uint32_t half = group * (64 * 128);
    int lead = w.tile * QUERIES - w.first_key;

    barrier_wait(&m->full[t.stage], t.parity);
    if (!TABLE)
        start_scores<D>(r, m, lead, step, t.stage);
    else if (is_far(c, lead))
        start_scores_from_last<D>(r, m, c.s.T, t.stage);
    else
        start_scores_from_table<D>(r, m, lead, t.stage);
    start_products<D>(r, m, t.stage);
    barrier_arrive(&m->rows_empty[t.stage]);
    hold(r.s);
    hold(r.dp);
    multiply_rows<D>(r.s, shared_address(m->k) + half, shared_address(m->q[t.stage]));
    multiply_rows<D>(r.dp, shared_address(m->v) + half, shared_address(m->dy[t.stage]));
}

// dQ is under way, once both warpgroups have left their dS.
template <int D>
static __device__ __forceinline__ void begin_queries(keys<D> &r, backward_memory<D> *m, int count,
                                                     int group)
{
    meet<WARPGROUP * CONSUMERS>(1);
    multiply_queries<D>(r.dq, shared_address(m->ds[count % 2]),
                        shared_address(m->k) + group * (D == 64 ? 64 : BLOCK_KEYS * 128));
}

template <int D, int GRADIENT>
static __device__ __forceinline__ void add_bias(keys<D> &r, const backward_call &c, int lead)
{
    if (GRADIENT == OF_SLOPES)
        add_slopes<D>(r, lead);
    if (GRADIENT == OF_TABLE && is_far(c, lead))
        add_far<D>(r);
}

// One tile; `count` of them came before.
template <int D, bool TABLE, int GRADIENT>
static __device__ __forceinline__ void visit_tile(keys<D> &r, const backward_call &c,
                                                  backward_memory<D> *m, const struct walk &w,
                                                  float step, struct ring_place<STAGES> t,
                                                  int count, int group)
{
    int lead = w.tile * QUERIES - w.first_key;

    begin_tile<D, TABLE>(r, c, m, w, step, t, group);
    wgmma_wait<1>();
    hold(r.s);
    weights<D>(r, c.s.scale * log2_e, lead);
    pack_tile(r.p, r.s);
    wgmma_wait<0>();
    hold(r.dp);
    multiply_gradient<D>(r.dv, r.p, shared_address(m->dy[t.stage]));
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++)
        r.dp[i] *= r.s[i];
    add_bias<D, GRADIENT>(r, c, lead);
    pack_tile(r.ds, r.dp);
    store_tile(m->ds[count % 2], r.ds, r.row, r.column);
    publish_shared();
    multiply_gradient<D>(r.dk, r.ds, shared_address(m->q[t.stage]));
    begin_queries<D>(r, m, count, group);
    if (GRADIENT == OF_TABLE && !is_far(c, lead))
        add_table<D>(r, c, m, m->ds[count % 2], lead);
    wgmma_wait<1>();
    hold(r.dk);
    hold(r.dv);
    hold(r.p);
    hold(r.ds);
    if (threadIdx.x % WARPGROUP == 0)
        barrier_arrive(&m->empty[t.stage]);
    wgmma_wait<0>();
    hold(r.dq);
    leave_queries<D>(r.dq, m, count, group);
}

// All tiles of one head.
template <int D, bool TABLE, int GRADIENT>
static __device__ __forceinline__ void visit_head(keys<D> &r, const backward_call &c,
                                                  backward_memory<D> *m, struct walk &w,
                                                  struct ring_place<STAGES> &t, int &count,
                                                  int group)
{
    float step = c.s.kind == BIAS_LINEAR ? c.s.values[w.h] / c.s.scale : 0.0f;

    if (TABLE)
        load_table<D>(c, m, w.h);
    barrier_wait(&m->kv_full, 0);
    while (w.next(c)) {
        visit_tile<D, TABLE, GRADIENT>(r, c, m, w, step, t, count++, group);
        t.step();
    }
}

// Turned back. A pair's numbers are in one thread: half of the columns apart, or side by side.
template <int D>
static __device__ __forceinline__ void turn_keys(float (&d)[D / 2], const keys<D> &r,
                                                 const backward_call &c, const struct walk &w)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int key = min(w.first_key + r.row + 8 * half, c.s.Lk - 1);
        const float *cosines = c.turned.table + (int64_t)key * D, *sines = cosines + D / 2;
        if (c.turned.halves) {
#pragma unroll
            for (int j = 0; j < D / 16; j++) {
                float2 cosine = *(const float2 *)(cosines + 8 * j + r.column),
                       sine = *(const float2 *)(sines + 8 * j + r.column);
                int a = 4 * j + 2 * half, b = a + D / 4;
                rotate(d[a], d[b], cosine.x, -sine.x);
                rotate(d[a + 1], d[b + 1], cosine.y, -sine.y);
            }
        } else {
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                int n = 4 * j + r.column / 2, a = 4 * j + 2 * half;
                rotate(d[a], d[a + 1], cosines[n], -sines[n]);
            }
        }
    }
}

template <int D>
static __device__ __forceinline__ void write_rows(const float (&d)[D / 2], const keys<D> &r,
                                                  const backward_call &c, const struct walk &w,
                                                  heads<bf16> to, float scale)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int key = w.first_key + r.row + 8 * half;
        if (key >= c.s.Lk)
            continue;
        bf16 *at = to.row(w.b, key, w.kv) + r.column;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            if (8 * j + r.column < c.s.D)
                *(uint32_t *)(at + 8 * j) =
                    pack_two(scale * d[4 * j + 2 * half], scale * d[4 * j + 2 * half + 1]);
    }
}

template <int D, bool TABLE, int GRADIENT>
static __device__ __forceinline__ void compute_all(const backward_call &c, backward_memory<D> *m,
                                                   int group)
{
    int lane = threadIdx.x % 32, count = 0;
    struct walk w(c);
    struct ring_place<STAGES> t = {
        0, 0
    };
    keys<D> r;

    r.row = group * 64 + threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    r.column = lane % 4 * 2;
    r.slope = r.far = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        r.dk[i] = r.dv[i] = 0.0f;
    do {
        visit_head<D, TABLE, GRADIENT>(r, c, m, w, t, count, group);
        leave_bias<D, GRADIENT>(r, c, m, w);
    } while (w.next_head());
    write_rows<D>(r.dv, r, c, w, c.dv, 1.0f); // first: then there are registers for angles
    if (c.turned.table)
        turn_keys<D>(r.dk, r, c, w);
    write_rows<D>(r.dk, r, c, w, c.dk, c.s.scale);
}

template <int D> static __device__ __forceinline__ void init_barriers(backward_memory<D> *m)
{
    barrier_init(&m->kv_full, 1);
    for (int i = 0; i < STAGES; i++) {
        barrier_init(&m->full[i], 1 + 32);
        barrier_init(&m->empty[i], CONSUMERS);
        barrier_init(&m->rows_empty[i], WARPGROUP * CONSUMERS);
    }
    barrier_init(&m->dq_full, WARPGROUP * CONSUMERS);
    barrier_init(&m->dq_empty, 1);
    publish_shared();
}
#endif // HAS_WGMMA

template <int D, bool TABLE, int GRADIENT>
static __global__ void __launch_bounds__(THREADS, 1)
    backward_kernel(const __grid_constant__ backward_call c)
{
#if HAS_WGMMA
    extern __shared__ char memory[];
    backward_memory<D> *m = (backward_memory<D> *)first_panel(memory);

    if (threadIdx.x == 0)
        init_barriers<D>(m);
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        give_registers<40>();
        copy_all<D>(c, m);
    } else {
        take_registers<232>();
        compute_all<D, TABLE, GRADIENT>(c, m, (int)threadIdx.x / WARPGROUP - 1);
    }
#endif
}

// ---- around it

// Eight numbers of a row, from column d on.
template <int D>
static __device__ __forceinline__ void turn_piece(float (&x)[8], const float *row, int d,
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

// dq = scale * the sums, turned back. A thread block per tile: read in their order, put right in
// shared memory, written by rows.
template <int D>
static __global__ void __launch_bounds__(256)
    round_queries(heads<bf16> dq, const float *sums, struct attention_shape s, struct angles turned,
                  int tiles)
{
    __shared__ __align__(16) float rows[QUERIES][D + 8];
    int64_t block = blockIdx.x;
    int tile = (int)(block % tiles), head = (int)(block / tiles);

    for (int n = threadIdx.x; n < QUERIES * D / 4; n += 256) {
        float4 x = *(const float4 *)(sums + block * (QUERIES * D) + 4 * n);
        int thread = n % WARPGROUP, j = n / WARPGROUP % (D / 16), group = n / WARPGROUP / (D / 16);
        int row = thread / 32 * 16 + thread % 32 / 4, d = group * (D / 2) + 8 * j + thread % 4 * 2;
        *(float2 *)&rows[row][d] = make_float2(s.scale * x.x, s.scale * x.y);
        *(float2 *)&rows[row + 8][d] = make_float2(s.scale * x.z, s.scale * x.w);
    }
    __syncthreads();
    for (int n = threadIdx.x; n < QUERIES * D / 8; n += 256) {
        int row = n / (D / 8), d = n % (D / 8) * 8, i = tile * QUERIES + row;
        float x[8];
        if (i >= s.Lq || d >= s.D)
            continue;
        load<8>(x, &rows[row][d]);
        if (turned.table)
            turn_piece<D>(x, rows[row], d, turned.table + (int64_t)i * D, turned.halves);
        store<8>(dq.row(head / s.H, i, head % s.H) + d, x);
    }
}

template <int D, bool TABLE, int GRADIENT>
static alibi_status start(struct cuda *c, const backward_call &call)
{
    return launch(c, "attention backward", backward_kernel<D, TABLE, GRADIENT>,
                  call.s.B * call.s.Hkv * call.blocks, THREADS, backward_shared<D>(), call);
}

template <int D>
static alibi_status start_for(struct cuda *c, const backward_call &call, bool wanted)
{
    if (call.s.kind == BIAS_TABLE)
        return start<D, true, OF_TABLE>(c, call);
    return wanted ? start<D, false, OF_SLOPES>(c, call) : start<D, false, NO_GRADIENT>(c, call);
}

static alibi_status reserve(struct cuda *c, backward_call *call, int D, int entries)
{
    const int64_t heads = (int64_t)call->s.B * call->s.H;
    const int64_t dq[] = { heads, call->tiles, QUERIES, D, (int64_t)sizeof(float) };
    const int64_t turns[] = { heads, call->tiles, (int64_t)sizeof(int) };
    const int64_t dbias[] = { heads, call->blocks, entries, (int64_t)sizeof(float) };
    const size_t tiles = (size_t)(heads * call->tiles);

    TRY_RETURN(cuda_scratch_for(c, SCRATCH_QUERIES, dq, 5, (void **)&call->dq));
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_TURNS, turns, 3, (void **)&call->turns));
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_BIAS, dbias, 4, (void **)&call->dbias));
    if (call->unordered)
        TRY_RETURN(cuda_check(
            cudaMemsetAsync(call->dq, 0, sizeof(float) * tiles * (size_t)(QUERIES * D), c->stream),
            "attention backward"));
    return cuda_check(cudaMemsetAsync(call->turns, 0, sizeof(int) * tiles, c->stream),
                      "attention backward");
}

template <int D>
static alibi_status finish(struct cuda *c, const backward_call &call, struct tensor dq,
                           struct tensor dbias)
{
    int entries = call.s.kind == BIAS_TABLE ? call.s.T : 1;

    TRY_RETURN(launch(c, "attention backward", round_queries<D>, call.s.B * call.s.H * call.tiles,
                      256, 0, heads_of<bf16>(dq), (const float *)call.dq, call.s, call.turned,
                      call.tiles));
    if (!dbias.data)
        return ALIBI_OK;
    return cuda_add_partials(c, (float *)dbias.data, NULL, call.dbias,
                             (int64_t)call.s.B * call.blocks, (int64_t)call.s.H * entries);
}

bool backward_matrix_turns(const struct attention_args *a)
{
    return (a->q.shape[3] == 64 || a->q.shape[3] == 128) &&
           aligned(angles_of(a->rotation, a->q.shape[3]).table);
}

alibi_status backward_matrix(struct cuda *c, struct tensor dq, struct tensor dk, struct tensor dv,
                             struct tensor dbias, struct tensor dy, struct tensor lse,
                             const float *delta, const struct attention_args *a,
                             struct kept_tiles kept)
{
    backward_call call;
    int D = a->q.shape[3] <= 64 ? 64 : 128,
        entries = a->bias.kind == BIAS_TABLE ? (int)a->bias.values.shape[1] : 1;

    call.s = attention_shape_of(a);
    call.dk = heads_of<bf16>(dk);
    call.dv = heads_of<bf16>(dv);
    call.lse = (const float *)lse.data;
    call.delta = delta;
    call.kept = kept;
    call.turned = backward_matrix_turns(a) ? angles_of(a->rotation, call.s.D) : angles();
    call.unordered = false;
    call.tiles = (int)ceil_div(call.s.Lq, QUERIES);
    call.blocks = (int)ceil_div(call.s.Lk, BLOCK_KEYS);
    TRY_RETURN(reserve(c, &call, D, entries));
    TRY_RETURN(tensor_map(&call.q, a->q, QUERIES));
    TRY_RETURN(tensor_map(&call.dy, dy, QUERIES));
    TRY_RETURN(tensor_map(&call.k, a->k, BLOCK_KEYS));
    TRY_RETURN(tensor_map(&call.v, a->v, BLOCK_KEYS));
    TRY_RETURN(D == 64 ? start_for<64>(c, call, dbias.data != NULL)
                       : start_for<128>(c, call, dbias.data != NULL));
    return D == 64 ? finish<64>(c, call, dq, dbias) : finish<128>(c, call, dq, dbias);
}
