// attention_decode.cu - attention of few queries over many keys: decoding
//
// One query has too little work for a GPU, so the keys are split (flash decoding): each part of
// PART_KEYS keys is computed on its own and leaves its output and its log-sum-exp. Then the parts
// of a row are merged:
//
//   y = sum_p exp(lse_p - lse) y_p,     lse = log sum_p exp(lse_p)
//
// Grid (rows, blocks per row). A block
//
//   - takes parts blockIdx.y, + gridDim.y, ...: 8 lanes per key find scores, the block their
//     maximum and the weights, 8 lanes per row of V the output. A lane loads its columns of 8 keys
//     and 8 rows of V at once, so a part waits for memory once;
//   - counts itself. The last one of a row merges its parts, in an order that does not depend on
//     which block that is. A kernel of its own for that would take longer to start than to run.
//
// A row is one query of one head. Ragged batches: row b has its own length and reads its keys from
// slot[b] of the cache. The parts of a row depend on its own length only, and parts that do not
// exist take no part in the merge, so a row has the same bits in any batch.
//
// A key tile is skipped if the bound of attention.cuh, against the query's own key, is within the
// tile's share of the budget. All tiles have the same share, so no tile has to know about the
// others.
#include "ops/cuda/attention.cuh"

namespace
{

enum { PART_KEYS = 256, THREADS = 256, PART_TILES = PART_KEYS / ATTENTION_TILE };
enum { RESIDENT = 2, BLOCKS_PER_SM = 2 * RESIDENT }; // per multiprocessor
enum { MERGED = 16 }; // parts that a thread loads at once to merge them

template <class T> struct decode_params {
    heads<const T> q, k, v;
    heads<T> y;
    float *lse;
    float *outputs; // [rows, parts, D], rows being B x H x Lq; from the first part that a row sees
    float *sums;    // [rows, parts]: log-sum-exp; -inf: nothing was computed
    int *done;      // [rows]: blocks that have computed their parts; 0 before and after the kernel
    struct attention_shape s;
    struct ragged_rows ragged; // unchecked, so they are clamped to the cache
    int slots;                 // of the cache
    struct key_norms norms;    // at NULL: no tile is skipped
    double eps;                // the budget
    int parts;                 // of the longest row, at most
};

// One query of one head, and its keys.
struct decode_row {
    int row, i, h, b, kv, slot, position, first; // key that it sees

    template <class T> __device__ __forceinline__ decode_row(const decode_params<T> &p)
    {
        row = blockIdx.x;
        i = row % p.s.Lq;
        h = row / p.s.Lq % p.s.H;
        b = row / p.s.Lq / p.s.H;
        kv = p.s.key_head(h);
        slot = max(0, min(p.ragged.slot_of(b), p.slots - 1));
        position = p.ragged.length ? max(1, min(p.ragged.length[b], p.s.Lk)) - 1 : p.s.past() + i;
        first = p.s.first_key(position);
    }

    __device__ __forceinline__ int first_part() const
    {
        return first / PART_KEYS;
    }

    __device__ __forceinline__ int parts() const
    {
        return position / PART_KEYS + 1 - first_part();
    }
};

// Operands of the skipping test; share < 0 disables it.
struct skip_test {
    float share, own, own_norm, reach;
};

template <class T, bool PACKS>
__device__ __forceinline__ struct skip_test prepare_skipping(const decode_params<T> &p,
                                                             const decode_row &w,
                                                             const float *query)
{
    int seen = p.ragged.length ? w.position / ATTENTION_TILE - w.first / ATTENTION_TILE + 1
                               : (int)ceil_div(p.s.Lk, ATTENTION_TILE);

    if (!p.norms.at)
        return { -1.0f, 0.0f, 0.0f, 0.0f };
    return { (float)(p.eps / (double)seen),
             fmaf(p.s.scale, lanes_dot<PACKS>(query, p.k.row(w.slot, w.position, w.kv), p.s.D),
                  p.s.bias(w.b, w.h, 0)),
             p.norms.largest(w.slot, w.kv, w.position, w.position),
             norm_margin(p.s.D) * fabsf(p.s.scale) * sqrtf(lanes_dot<false>(query, query, p.s.D)) };
}

// The parts of a block are DECIDED at a time: parts blockIdx.y + gridDim.y n, a thread per tile.
enum { DECIDED = THREADS / PART_TILES, DECIDED_BY_WARP = 32 / PART_TILES };

// Which tiles of the parts from number `base` on matter: bits of kept[] for tiles_of(). All threads
// must call it.
template <class T>
__device__ __forceinline__ void decide_tiles(unsigned *kept, const decode_params<T> &p,
                                             const decode_row &w, const struct skip_test &test,
                                             int base)
{
    const int part = base + (int)threadIdx.x / PART_TILES * (int)gridDim.y,
              first = (w.first_part() + part) * PART_KEYS +
                      (int)threadIdx.x % PART_TILES * ATTENTION_TILE,
              last = min(first + ATTENTION_TILE, p.s.Lk) - 1;
    bool matters = first <= w.position && last >= w.first;

    if (matters && test.share >= 0.0f && last < w.position)
        matters = !(weight_bound(p.s, w.b, w.slot, w.h, w.position, first, last,
                                 p.norms.largest(w.slot, w.kv, first, last), test.reach, test.own,
                                 test.own_norm) <= test.share);
    const unsigned of_warp = __ballot_sync(0xffffffffu, matters);
    __syncthreads(); // those before have been read
    if (threadIdx.x % 32 == 0)
        kept[threadIdx.x / 32] = of_warp;
    __syncthreads();
}

// Tiles of the n-th part after `base`, as bits.
__device__ __forceinline__ unsigned tiles_of(const unsigned *kept, int n)
{
    return kept[n / DECIDED_BY_WARP] >> n % DECIDED_BY_WARP * PART_TILES & (1u << PART_TILES) - 1;
}

// The keys of a part that a group of 8 lanes has: group + GROUPS i, i < HELD. Bit i of `used` says
// that the query sees it and that its tile is not skipped.
enum { GROUPS = THREADS / ROW_LANES, HELD = PART_KEYS / GROUPS };
static_assert((int)HELD == (int)ROW_LANES, "each lane finishes the score of one key");

__device__ __forceinline__ unsigned keys_used(const decode_row &w, unsigned tiles, int first)
{
    unsigned used = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int n = (int)threadIdx.x / ROW_LANES + GROUPS * i;
        if (first + n <= w.position && first + n >= w.first && (tiles >> n / ATTENTION_TILE & 1))
            used |= 1u << i;
    }
    return used;
}

// N columns from `d` on of these keys or of their values. All loads are under way at once.
template <class T, int N> struct held_rows {
    bits<T, N> at[HELD];

    __device__ __forceinline__ void read(heads<const T> from, const decode_row &w, unsigned used,
                                         int first, int d, int D)
    {
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            at[i] = {};
            if (d < D && (used >> i & 1))
                at[i] = load_bits<N>(
                    from.row(w.slot, first + (int)threadIdx.x / ROW_LANES + GROUPS * i, w.kv) + d);
        }
    }
};

// Sums over the lanes of a row; lane n receives that of x[n].
__device__ __forceinline__ float scatter_sums(float (&x)[ROW_LANES])
{
    const int lane = (int)threadIdx.x % ROW_LANES;

#pragma unroll
    for (int half = ROW_LANES / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++) {
            const bool upper = lane & half;
            const float given = upper ? x[i] : x[i + half], kept = upper ? x[i + half] : x[i];
            x[i] = kept + __shfl_xor_sync(0xffffffffu, given, half);
        }
    return x[0];
}

// The thread's own key of the part.
__device__ __forceinline__ int own_key()
{
    return (int)threadIdx.x / ROW_LANES + GROUPS * ((int)threadIdx.x % ROW_LANES);
}

// The score of own_key(); -inf if it is not used.
template <class T, int N>
__device__ __forceinline__ float find_score(const decode_params<T> &p, const decode_row &w,
                                            const float *query, unsigned used, int first)
{
    float dots[HELD] = {};
    const int lane = (int)threadIdx.x % ROW_LANES, key = first + own_key();

    for (int base = 0; base < p.s.D; base += ROW_LANES * N) {
        const int d = base + lane * N;
        held_rows<T, N> k;
        k.read(p.k, w, used, first, d, p.s.D);
#pragma unroll
        for (int i = 0; i < HELD; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                dots[i] = fmaf(d < p.s.D ? query[d + j] : 0.0f, k.at[i].at(j), dots[i]);
    }
    const float dot = scatter_sums(dots);
    return used >> lane & 1 ? fmaf(p.s.gain(w.position - key) * p.s.scale, dot,
                                   p.s.bias(w.b, w.slot, w.h, w.position, key))
                            : -INFINITY;
}

// The part's output, sum_n weight_n v_n / sum. Eight lanes share a row of V as they share a key;
// `v` has the first columns of all lanes. The order of sums depends on nothing but D.
template <class T, int N>
__device__ __forceinline__ void write_output(float *to, const decode_params<T> &p,
                                             const decode_row &w, const float *weights,
                                             held_rows<T, N> &v, unsigned used, float sum,
                                             int first)
{
    const int COLUMNS = ROW_LANES * N; // at a time
    __shared__ float of_warp[THREADS / 32][COLUMNS];
    int group = threadIdx.x / ROW_LANES, lane = threadIdx.x % ROW_LANES;

    for (int base = 0; base < p.s.D; base += COLUMNS) {
        float o[N] = {};
        if (base > 0)
            v.read(p.v, w, used, first, base + lane * N, p.s.D);
#pragma unroll
        for (int i = 0; i < HELD; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                o[j] = fmaf(weights[group + GROUPS * i], v.at[i].at(j), o[j]);
        __syncthreads(); // of_warp of the columns before has been read
#pragma unroll
        for (int j = 0; j < N; j++) {
#pragma unroll
            for (int step = ROW_LANES; step < 32; step *= 2)
                o[j] += __shfl_xor_sync(0xffffffffu, o[j], step);
            if (threadIdx.x % 32 < ROW_LANES)
                of_warp[threadIdx.x / 32][lane * N + j] = o[j];
        }
        __syncthreads();
        if (threadIdx.x < COLUMNS && base + (int)threadIdx.x < p.s.D) {
            float all = 0.0f;
#pragma unroll
            for (int n = 0; n < THREADS / 32; n++)
                all += of_warp[n][threadIdx.x];
            to[base + threadIdx.x] = all / sum;
        }
    }
}

// A part whose tiles are not all skipped.
template <class T, int N>
__device__ __forceinline__ void attend_part(const decode_params<T> &p, const decode_row &w,
                                            const float *query, float *weights, unsigned tiles,
                                            int part)
{
    const int first = (w.first_part() + part) * PART_KEYS;
    const int64_t place = (int64_t)w.row * p.parts + part;
    const unsigned used = keys_used(w, tiles, first);
    held_rows<T, N> v; // they come while the weights are found

    v.read(p.v, w, used, first, (int)threadIdx.x % ROW_LANES * N, p.s.D);
    float x = find_score<T, N>(p, w, query, used, first), most = block_max(x);
    x = expf(x - most);
    weights[own_key()] = x;
    float sum = block_sum(x); // its barriers also make the weights visible to all threads
    write_output<T, N>(p.outputs + place * p.s.D, p, w, weights, v, used, sum, first);
    if (threadIdx.x == 0)
        p.sums[place] = most + logf(sum);
    __syncthreads(); // before the next part overwrites the weights
}

// The weight of a part in the merge. NaN sums take part, so that they show in the output.
__device__ __forceinline__ float part_weight(float sum, float most)
{
    return sum == -INFINITY ? 0.0f : expf(sum - most);
}

// Several threads share a column, each with some of the parts. Skipped parts have no output.
template <class T>
__device__ __forceinline__ void merge_parts(const decode_params<T> &p, const decode_row &w)
{
    __shared__ float shares[THREADS];
    int parts = w.parts(), width = max(1, min(p.s.D, (int)THREADS)), count = THREADS / width,
        share = threadIdx.x / width;
    const float *sums = p.sums + (int64_t)w.row * p.parts,
                *outputs = p.outputs + (int64_t)w.row * p.parts * p.s.D;
    float most = -INFINITY, sum = 0.0f;

    for (int n = threadIdx.x; n < parts; n += THREADS)
        most = fmaxf(most, sums[n]);
    most = block_max(most);
    for (int n = threadIdx.x; n < parts; n += THREADS)
        sum += part_weight(sums[n], most);
    sum = block_sum(sum);
    for (int base = 0; base < p.s.D; base += width) {
        int d = base + (int)threadIdx.x % width,
            end = share < count && d < p.s.D ? parts : 0; // of the thread's parts
        float o = 0.0f;
        for (int first = share; first < end; first += count * MERGED) {
            float of[MERGED], x[MERGED];
#pragma unroll
            for (int i = 0; i < MERGED; i++)
                of[i] = first + i * count < end ? sums[first + i * count] : -INFINITY;
#pragma unroll
            for (int i = 0; i < MERGED; i++)
                x[i] =
                    of[i] == -INFINITY ? 0.0f : outputs[(int64_t)(first + i * count) * p.s.D + d];
#pragma unroll
            for (int i = 0; i < MERGED; i++)
                o = fmaf(part_weight(of[i], most), x[i], o);
        }
        __syncthreads(); // the shares of the columns before have been read
        shares[threadIdx.x] = o;
        __syncthreads();
        for (int n = 1; n < count && share == 0; n++)
            o += shares[n * width + threadIdx.x];
        if (share == 0 && d < p.s.D)
            p.y.row(w.b, w.i, w.h)[d] = from_float<T>(o / sum);
    }
    if (threadIdx.x == 0)
        p.lse[w.row] = most + logf(sum);
}

// Whether all other blocks of the row have computed their parts. Then all threads see their
// results.
__device__ __forceinline__ bool is_last_block(int *done, int blocks)
{
    __shared__ bool last;

    __syncthreads(); // all threads have written theirs
    if (threadIdx.x == 0)
        last = counter_arrive(done, blocks) == blocks - 1;
    __syncthreads();
    return last;
}

template <class T, bool PACKS>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    decode_kernel(const __grid_constant__ decode_params<T> p)
{
    float *query = dynamic_shared<float>(); // [D]
    __shared__ float weights[PART_KEYS];
    __shared__ unsigned kept[THREADS / 32];
    decode_row w(p);

    let_next_kernel_start();
    wait_for_kernel_before();
    for (int d = threadIdx.x; d < p.s.D; d += THREADS)
        query[d] = to_float(p.q.row(w.b, w.i, w.h)[d]);
    __syncthreads();
    const struct skip_test test = prepare_skipping<T, PACKS>(p, w, query);
    for (int base = blockIdx.y; base < w.parts(); base += gridDim.y * DECIDED) {
        decide_tiles(kept, p, w, test, base);
        for (int n = 0; n < DECIDED && base + n * (int)gridDim.y < w.parts(); n++) {
            const int part = base + n * (int)gridDim.y;
            const unsigned tiles = tiles_of(kept, n);

            if (tiles != 0)
                attend_part<T, PACKS ? pack<T>::N : 1>(p, w, query, weights, tiles, part);
            else if (threadIdx.x == 0)
                p.sums[(int64_t)w.row * p.parts + part] = -INFINITY;
        }
    }
    if (is_last_block(p.done + w.row, gridDim.y))
        merge_parts(p, w);
}

template <class T> alibi_status decode(struct context *c, const struct attention_args *a)
{
    decode_params<T> p = {};
    int64_t rows, blocks;

    p.q = heads_of<const T>(a->q);
    p.k = heads_of<const T>(a->k);
    p.v = heads_of<const T>(a->v);
    p.y = heads_of<T>(a->y);
    p.lse = (float *)a->lse.data;
    p.s = attention_shape_of(a);
    p.ragged = ragged_rows_of(a->ragged);
    p.slots = (int)a->k.shape[0];
    p.parts = decode_parts(p.s);
    rows = (int64_t)p.s.B * p.s.H * p.s.Lq;
    if (a->skip.eps > 0 && a->skip.norms.data) {
        p.norms = key_norms_of(a->skip.norms);
        p.eps = a->skip.eps;
    }
    const int64_t factors[] = { rows, p.parts, p.s.D + 1, (int64_t)sizeof(float) };
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_PARTS, factors, 4, (void **)&p.outputs));
    p.sums = p.outputs + rows * p.parts * p.s.D;
    TRY_RETURN(cuda_counters(c, rows, &p.done));
    // Lengths of ragged rows are on the GPU, and Lk is the capacity of the cache: few more blocks
    // than can be resident, or most of them would start for nothing.
    blocks = ceil_div((int64_t)c->multiprocessors * BLOCKS_PER_SM, rows);
    if (blocks > p.parts)
        blocks = p.parts;
    return chain(c, "attention decode",
                 rows_are_aligned(a->k) && rows_are_aligned(a->v) ? decode_kernel<T, true>
                                                                  : decode_kernel<T, false>,
                 dim3((unsigned)rows, (unsigned)blocks), THREADS, sizeof(float) * (size_t)p.s.D, p);
}

} // namespace

int decode_parts(const struct attention_shape &s)
{
    const int64_t all = ceil_div(s.Lk, PART_KEYS), seen = ceil_div(s.window, PART_KEYS) + 1;

    return (int)(seen < all ? seen : all);
}

alibi_status forward_decode(struct context *c, const struct attention_args *a)
{
    DISPATCH(a->y.type, T, return decode<T>(c, a));
}
