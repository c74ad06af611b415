// attention_forward.cu - forward on Hopper's matrix unit
//
//   S = Q K^T + bias / scale,   m' = max(m, rowmax S),   P = exp(scale (S - m')),   l' = l e^(scale
//   (m - m')) + rowsum P, O' = O e^(scale (m - m')) + P V;   at the end y = O / l, lse = scale m +
//   log l
//
// A block of queries is two or three warpgroups of 64 rows; one more copies tiles of keys and
// values into a ring of shared memory. The products of a tile are issued before the exponentials of
// it: S of the next tile and P V of this one run while the other warpgroup, and then this one, is
// busy with numbers. The bias costs one multiply-add per score and none of it afterwards: sums
// start from it instead of from zero. Keys are taken nearest first, so the maximum hardly ever
// grows after the first tile.
//
// A thread block stays on its multiprocessor and takes one block of queries after the other; the
// copies for the next one begin while this one is finished. Which one takes which does not matter
// to any number.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/tensor_map.cuh"
#include "ops/cuda/wgmma.cuh"

enum { WARPGROUP = 128, STAGES = 2, TABLES = 2, PANEL = 64, HEADS_TOGETHER = 16 };

// Warpgroups that compute: with narrow heads there are registers for three.
template <int D> struct work {
    static const int CONSUMERS = D == 64 ? 3 : 2, QUERIES = 64 * CONSUMERS,
                     THREADS = WARPGROUP * (CONSUMERS + 1);
};

struct forward_call {
    CUtensorMap q, k, v;
    heads<bf16> y;
    float *lse; // [B, H, Lq]
    struct attention_shape s;
    struct kept_tiles kept;
    int blocks, items; // of queries per head, of all heads
};

// Bytes of shared memory, with room to begin at a multiple of 1024.
template <int D> static size_t forward_shared()
{
    return 1024 + 2 * (size_t)D * (work<D>::QUERIES + 2 * STAGES * BLOCK_KEYS) +
           TABLES * sizeof(struct bias_table) + 256;
}

#if HAS_WGMMA

template <int D> struct forward_memory {
    bf16 q[D / PANEL][work<D>::QUERIES][PANEL];
    bf16 k[STAGES][D / PANEL][BLOCK_KEYS][PANEL];
    bf16 v[STAGES][D / PANEL][BLOCK_KEYS][PANEL];
    struct bias_table table[TABLES]; // of the item at hand, and of the next
    barrier q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    barrier table_full[TABLES], table_empty[TABLES];
};

// One block of queries of one head.
template <int D> struct item {
    static const int QUERIES = work<D>::QUERIES;
    int b, h, first; // first query
    int last_block;  // of keys
    const uint32_t *kept;

    // Some heads at a time, so that their keys stay in the second-level cache; of these the longest
    // rows first.
    __device__ __forceinline__ item(const forward_call &c, int index)
    {
        int all = c.s.B * c.s.H, group = index / (HEADS_TOGETHER * c.blocks) * HEADS_TOGETHER;
        int together = min(HEADS_TOGETHER, all - group), rest = index - group * c.blocks;
        int head = group + rest % together, block = c.blocks - 1 - rest / together;

        b = head / c.s.H;
        h = head % c.s.H;
        first = block * QUERIES;
        last_block = min(c.s.past() + first + QUERIES - 1, c.s.Lk - 1) / BLOCK_KEYS;
        kept = NULL;
        if (c.kept.bits)
            kept = c.kept.row(head, min((first + QUERIES) / ATTENTION_TILE, c.kept.rows) - 1);
    }

    // The next block of keys to visit, from n on downwards; -1: none.
    __device__ __forceinline__ int next(int n) const
    {
        while (n >= 0 && !keys_are_kept(kept, n))
            n--;
        return n;
    }
};

// ---- copying

template <int D, int ROWS>
static __device__ __forceinline__ void copy_tile(bf16 (*to)[ROWS][PANEL], const CUtensorMap *map,
                                                 barrier *full, int h, int l, int b)
{
    barrier_expect(full, D * ROWS * sizeof(bf16));
#pragma unroll
    for (int p = 0; p < D / PANEL; p++)
        copy_box(to[p], map, full, p * PANEL, h, l, b);
}

template <int D>
static __device__ __forceinline__ void copy_all(const forward_call &c, forward_memory<D> *m)
{
    struct ring_place<STAGES> t = {
        0, 1
    };
    uint32_t q_parity = 1;

    for (int index = blockIdx.x; index < c.items; index += gridDim.x) {
        struct item<D> w(c, index);
        int kv = c.s.key_head(w.h);
        barrier_wait(&m->q_empty, q_parity);
        copy_tile<D>(m->q, &c.q, &m->q_full, w.h, w.first, w.b);
        q_parity ^= 1;
        for (int n = w.next(w.last_block); n >= 0; n = w.next(n - 1)) {
            barrier_wait(&m->k_empty[t.stage], t.parity);
            copy_tile<D>(m->k[t.stage], &c.k, &m->k_full[t.stage], kv, n * BLOCK_KEYS, w.b);
            barrier_wait(&m->v_empty[t.stage], t.parity);
            copy_tile<D>(m->v[t.stage], &c.v, &m->v_full[t.stage], kv, n * BLOCK_KEYS, w.b);
            t.step();
        }
    }
}

// The warps of the copying warpgroup that copy nothing bring the tables.
enum { TABLE_THREADS = WARPGROUP - 32 };

template <int D>
static __device__ __forceinline__ void fill_tables(const forward_call &c, forward_memory<D> *m)
{
    struct ring_place<TABLES> t = {
        0, 1
    };

    for (int index = blockIdx.x; index < c.items; index += gridDim.x) {
        struct item<D> w(c, index);
        barrier_wait(&m->table_empty[t.stage], t.parity);
        fill_table(&m->table[t.stage], c.s, w.h, (int)threadIdx.x - 32, TABLE_THREADS);
        barrier_arrive(&m->table_full[t.stage]);
        t.step();
    }
}

// ---- computing

// What one thread holds of 64 queries: two rows, `row` and 8 below.
template <int D> struct rows {
    float s[BLOCK_KEYS / 2], o[D / 2];
    uint32_t p[BLOCK_KEYS / 16][4];
    float m[2], l[2], shrink[2];
    int row, column; // position of the first row's query; first column within a tile
};

// Sums start from bias / scale.
template <int D>
static __device__ __forceinline__ void start_scores(rows<D> &r, float step, int first_key)
{
    int distance = r.row - first_key - r.column;
    float upper = step * -(float)distance, lower = step * -(float)(distance + 8);

#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i++)
        r.s[i] = fmaf(step, (float)(8 * (i / 4) + (i & 1)), i & 2 ? lower : upper);
}

template <int D>
static __device__ __forceinline__ void start_scores_from_table(rows<D> &r, const bias_table *table,
                                                               int first_key, int T, bool far)
{
    const float *bias = table->at(r.row - first_key - r.column);
    float last = *table->at(T - 1);

    if (far) { // all pairs have the last entry
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / 2; i++)
            r.s[i] = last;
    } else {
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / 2; i++)
            r.s[i] = bias[(i & 2 ? 8 : 0) - 8 * (i / 4) - (i & 1)];
    }
}

template <int D>
static __device__ __forceinline__ void multiply_scores(rows<D> &r, uint32_t queries, uint32_t keys)
{
    wgmma_begin();
#pragma unroll
    for (int d = 0; d < D / 16; d++)
        wgmma_shared<BLOCK_KEYS, 0, 0>(
            r.s, operand_along_k(queries + d / 4 * (work<D>::QUERIES * 128) + d % 4 * 32),
            operand_along_k(keys + d / 4 * (BLOCK_KEYS * 128) + d % 4 * 32), 1);
    wgmma_commit();
}

template <int D>
static __device__ __forceinline__ void multiply_values(rows<D> &r, uint32_t values, bool add)
{
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < BLOCK_KEYS / 16; k++)
        wgmma_registers<D, 1>(
            r.o, r.p[k], operand_across_k(values + k * (16 * 128), BLOCK_KEYS * 128), add || k > 0);
    wgmma_commit();
}

template <int D> static __device__ __forceinline__ void mask(rows<D> &r, int first_key)
{
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / 2; i++)
        if (first_key + r.column + 8 * (i / 4) + (i & 1) > r.row + (i & 2 ? 8 : 0))
            r.s[i] = -INFINITY;
}

// s becomes P; m, l and shrink are brought up to date. A row that sees no key yet has a maximum of
// -inf.
template <int D> static __device__ __forceinline__ void softmax(rows<D> &r, float scale_log2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = r.m[half], sum = 0.0f, shift;
#pragma unroll
        for (int i = 2 * half; i < BLOCK_KEYS / 2; i += 4)
            most = fmaxf(most, fmaxf(r.s[i], r.s[i + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        shift = most == -INFINITY ? 0.0f : most * scale_log2;
        r.shrink[half] = power_of_two(fmaf(r.m[half], scale_log2, -shift));
        r.m[half] = most;
#pragma unroll
        for (int i = 2 * half; i < BLOCK_KEYS / 2; i += 4) {
            r.s[i] = power_of_two(fmaf(r.s[i], scale_log2, -shift));
            r.s[i + 1] = power_of_two(fmaf(r.s[i + 1], scale_log2, -shift));
            sum += r.s[i] + r.s[i + 1];
        }
        r.l[half] = fmaf(r.l[half], r.shrink[half], sum);
    }
}

template <int D> static __device__ __forceinline__ void shrink_sums(rows<D> &r)
{
    if (!__any_sync(0xffffffffu, r.shrink[0] != 1.0f || r.shrink[1] != 1.0f))
        return;
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        r.o[i] *= r.shrink[i >> 1 & 1];
}

template <int D> static __device__ __forceinline__ void pack_weights(rows<D> &r)
{
#pragma unroll
    for (int k = 0; k < BLOCK_KEYS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            r.p[k][i] = pack_two(r.s[8 * k + 2 * i], r.s[8 * k + 2 * i + 1]);
}

template <int D>
static __device__ __forceinline__ void finish_rows(rows<D> &r, const forward_call &c,
                                                   const struct item<D> &w, int in_block)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = w.first + in_block + 8 * half;
        float sum = r.l[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (i >= c.s.Lq)
            continue;
        float inverse = 1.0f / sum;
        bf16 *to = c.y.row(w.b, i, w.h);
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            if (8 * j + r.column < c.s.D)
                *(uint32_t *)(to + 8 * j + r.column) =
                    pack_two(r.o[4 * j + 2 * half] * inverse, r.o[4 * j + 2 * half + 1] * inverse);
        if (r.column == 0)
            c.lse[((int64_t)w.b * c.s.H + w.h) * c.s.Lq + i] =
                fmaf(r.m[half], c.s.scale, logf(sum));
    }
}

// Warpgroups take turns in starting products: while one multiplies, another is at its exponentials.
// Left alone they fall into step and all want the same unit at the same time.
template <int D> static __device__ __forceinline__ void take_turn(int group)
{
    meet<WARPGROUP * work<D>::CONSUMERS>(1 + group);
}

template <int D> static __device__ __forceinline__ void give_turn(int group)
{
#pragma unroll
    for (int i = 1; i < work<D>::CONSUMERS; i++)
        pass_by<WARPGROUP * work<D>::CONSUMERS>(1 + (group + i) % work<D>::CONSUMERS);
}

// The first is first: the others behave as if they had just had a turn.
template <int D> static __device__ __forceinline__ void begin_turns(int group)
{
#pragma unroll
    for (int i = 0; i < work<D>::CONSUMERS - 1; i++)
        if (i < group)
            pass_by<WARPGROUP * work<D>::CONSUMERS>(1 + i);
}

// S of a tile is under way, and the turn is ours until it is given away.
template <int D, bool TABLE>
static __device__ __forceinline__ void begin_scores(rows<D> &r, const forward_call &c,
                                                    forward_memory<D> *m, const struct item<D> &w,
                                                    const bias_table *table, float step, int n,
                                                    struct ring_place<STAGES> t, int group)
{
    int nearest = c.s.past() + w.first - ((n + 1) * BLOCK_KEYS - 1);

    if (TABLE)
        start_scores_from_table<D>(r, table, n * BLOCK_KEYS, c.s.T, nearest >= c.s.T - 1);
    else
        start_scores<D>(r, step, n * BLOCK_KEYS);
    barrier_wait(&m->k_full[t.stage], t.parity);
    take_turn<D>(group);
    multiply_scores<D>(r, shared_address(m->q) + group * (64 * 128), shared_address(m->k[t.stage]));
}

// Masked where keys reach beyond the first query; then its place in the ring is free.
template <int D>
static __device__ __forceinline__ void end_scores(rows<D> &r, const forward_call &c,
                                                  forward_memory<D> *m, const struct item<D> &w,
                                                  int n, struct ring_place<STAGES> t)
{
    hold(r.s);
    if (threadIdx.x % WARPGROUP == 0)
        barrier_arrive(&m->k_empty[t.stage]);
    if ((n + 1) * BLOCK_KEYS - 1 > c.s.past() + w.first)
        mask<D>(r, n * BLOCK_KEYS);
    softmax<D>(r, c.s.scale * log2_e);
}

template <int D>
static __device__ __forceinline__ void end_values(rows<D> &r, forward_memory<D> *m,
                                                  struct ring_place<STAGES> t)
{
    wgmma_wait<0>();
    hold(r.o);
    hold(r.p);
    if (threadIdx.x % WARPGROUP == 0)
        barrier_arrive(&m->v_empty[t.stage]);
}

template <int D, bool TABLE>
static __device__ __forceinline__ void compute_all(const forward_call &c, forward_memory<D> *m,
                                                   int group)
{
    int lane = threadIdx.x % 32,
        in_block = group * 64 + threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    struct ring_place<STAGES> t = {
        0, 0
    };
    struct ring_place<TABLES> table = {
        0, 0
    };
    uint32_t q_parity = 0;
    rows<D> r;

    r.column = lane % 4 * 2;
    begin_turns<D>(group);
    for (int index = blockIdx.x; index < c.items; index += gridDim.x) {
        struct item<D> w(c, index);
        float step = c.s.kind == BIAS_LINEAR ? c.s.values[w.h] / c.s.scale : 0.0f;
        int n = w.next(w.last_block);
        bool any = false;

        if (TABLE)
            barrier_wait(&m->table_full[table.stage], table.parity);
        r.row = c.s.past() + w.first + in_block;
        r.m[0] = r.m[1] = -INFINITY;
        r.l[0] = r.l[1] = 0.0f;
        barrier_wait(&m->q_full, q_parity);
        q_parity ^= 1;
        begin_scores<D, TABLE>(r, c, m, w, &m->table[table.stage], step, n, t, group);
        give_turn<D>(group);
        wgmma_wait<0>();
        end_scores<D>(r, c, m, w, n, t);
        pack_weights<D>(r);
        for (n = w.next(n - 1); n >= 0; n = w.next(n - 1)) {
            struct ring_place<STAGES> before = t;
            t.step();
            begin_scores<D, TABLE>(r, c, m, w, &m->table[table.stage], step, n, t, group);
            barrier_wait(&m->v_full[before.stage], before.parity);
            multiply_values<D>(r, shared_address(m->v[before.stage]), any);
            any = true;
            give_turn<D>(group);
            wgmma_wait<1>();
            end_scores<D>(r, c, m, w, n, t);
            end_values<D>(r, m, before);
            shrink_sums<D>(r);
            pack_weights<D>(r);
        }
        if (threadIdx.x % WARPGROUP == 0)
            barrier_arrive(&m->q_empty);
        if (TABLE) {
            barrier_arrive(&m->table_empty[table.stage]);
            table.step();
        }
        barrier_wait(&m->v_full[t.stage], t.parity);
        multiply_values<D>(r, shared_address(m->v[t.stage]), any);
        end_values<D>(r, m, t);
        t.step();
        finish_rows<D>(r, c, w, in_block);
    }
}

template <int D> static __device__ __forceinline__ void init_barriers(forward_memory<D> *m)
{
    barrier_init(&m->q_full, 1);
    barrier_init(&m->q_empty, work<D>::CONSUMERS);
    for (int i = 0; i < STAGES; i++) {
        barrier_init(&m->k_full[i], 1);
        barrier_init(&m->v_full[i], 1);
        barrier_init(&m->k_empty[i], work<D>::CONSUMERS);
        barrier_init(&m->v_empty[i], work<D>::CONSUMERS);
    }
    for (int i = 0; i < TABLES; i++) {
        barrier_init(&m->table_full[i], TABLE_THREADS);
        barrier_init(&m->table_empty[i], WARPGROUP * work<D>::CONSUMERS);
    }
    publish_shared();
}
#endif // HAS_WGMMA

template <int D, bool TABLE>
static __global__ void __launch_bounds__(work<D>::THREADS, 1)
    forward_kernel(const __grid_constant__ forward_call c)
{
#if HAS_WGMMA
    extern __shared__ char memory[];
    forward_memory<D> *m = (forward_memory<D> *)first_panel(memory);

    if (threadIdx.x == 0)
        init_barriers<D>(m);
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        give_registers<(D == 64 ? 32 : 24)>();
        if (threadIdx.x == 0)
            copy_all<D>(c, m);
        else if (TABLE && threadIdx.x >= 32)
            fill_tables<D>(c, m);
    } else {
        take_registers<(D == 64 ? 160 : 240)>();
        compute_all<D, TABLE>(c, m, (int)threadIdx.x / WARPGROUP - 1);
    }
#endif
}

template <int D>
static alibi_status start(struct cuda *c, const struct attention_args *a, forward_call &call)
{
    bool table = a->bias.kind == BIAS_TABLE;
    int grid;

    static_assert(work<D>::QUERIES + BLOCK_KEYS <= TABLE_AROUND,
                  "distances on the edge of a tile lie within the table");
    call.blocks = (int)ceil_div(call.s.Lq, work<D>::QUERIES);
    call.items = call.blocks * call.s.B * call.s.H;
    grid = call.items < c->multiprocessors ? call.items : c->multiprocessors;
    TRY_RETURN(tensor_map(&call.q, a->q, work<D>::QUERIES));
    TRY_RETURN(tensor_map(&call.k, a->k, BLOCK_KEYS));
    TRY_RETURN(tensor_map(&call.v, a->v, BLOCK_KEYS));
    return launch(c, "attention forward",
                  table ? forward_kernel<D, true> : forward_kernel<D, false>, grid,
                  work<D>::THREADS, forward_shared<D>(), call);
}

int forward_block_queries(int64_t D)
{
    return D <= 64 ? work<64>::QUERIES : work<128>::QUERIES;
}

alibi_status forward_matrix(struct cuda *c, struct tensor y, struct tensor lse,
                            const struct attention_args *a, struct kept_tiles kept)
{
    forward_call call;

    call.s = attention_shape_of(a);
    call.y = heads_of<bf16>(y);
    call.lse = (float *)lse.data;
    call.kept = kept;
    return call.s.D <= 64 ? start<64>(c, a, call) : start<128>(c, a, call);
}
