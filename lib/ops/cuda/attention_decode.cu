// attention_decode.cu - attention of few queries over many keys: decoding
//
// One query has too little work for a GPU, so the keys are split (flash decoding): each part of the
// keys is computed on its own and leaves its output and its log-sum-exp. Then the parts of a row
// are merged:
//
//   y = sum_p exp(lse_p - lse) y_p,     lse = log sum_p exp(lse_p)
//
// A row is one query of one head. Its keys are cut into chunks of CHUNK_KEYS, and a part is one
// chunk, or as many as it takes to have no more than MOST_PARTS parts, because merging more would
// take longer than reading the keys. A part has at most MOST_CHUNKS chunks, so rows of more than 2M
// keys have more parts. Grid (rows, blocks per row). A block
//
//   - takes parts blockIdx.y, + gridDim.y, ...
//   - decides which key tiles of them matter, a thread per tile;
//   - its warps take the halves of these tiles in turns. 8 lanes share a key and a row of V, and a
//     lane loads its columns of 8 keys and of 8 rows of V at once. A warp keeps a running maximum,
//     the sum and the output of its keys, so no warp waits for another before the end of the part;
//   - counts itself. The last one of a row merges its parts, in an order that does not depend on
//     which block that is. A kernel of its own for that would take longer to start than to run.
//
// Ragged batches: row b has its own length and reads its keys from slot[b] of the cache. Its parts
// depend on its own length only, and parts that do not exist take no part in the merge, so a row
// has the same bits in any batch.
//
// A key tile is skipped if the bound of attention.cuh, against the query's own key, is within the
// tile's share of the budget. All tiles have the same share, so no tile has to know about the
// others.
//
// In a step of decoding the query's own key and value join the cache in the same kernel: the first
// block of each head of keys writes them. Other blocks may read the cache before that, so all take
// the own key and value from the pass, and add them to the last part when its warps have finished.
#include "ops/cuda/cache_append.cuh"

namespace
{

enum { THREADS = 256, WARPS = THREADS / 32 };
enum { RESIDENT = 2, BLOCKS_PER_SM = 2 * RESIDENT }; // per multiprocessor
enum { CHUNK_KEYS = 256, CHUNK_TILES = CHUNK_KEYS / ATTENTION_TILE };
enum { MOST_PARTS = 128, MOST_CHUNKS = THREADS / CHUNK_TILES }; // of a row, of a part
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
    struct appended<T> append; // k.at NULL: the cache has all keys
};

// One query of one head, and its keys.
struct decode_row {
    int row, i, h, b, kv, slot, position, first; // key that it sees
    int end;                                     // of the keys that it sees in the cache
    int first_chunk, parts, part_tiles;

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
        end = p.append.k.at ? position : position + 1;
        first_chunk = first / CHUNK_KEYS;
        const int chunks = position / CHUNK_KEYS + 1 - first_chunk,
                  together = min((chunks + MOST_PARTS - 1) / MOST_PARTS, (int)MOST_CHUNKS);
        parts = (chunks + together - 1) / together;
        part_tiles = together * CHUNK_TILES;
    }

    __device__ __forceinline__ int first_tile(int part) const
    {
        return first_chunk * CHUNK_TILES + part * part_tiles;
    }
};

// The query's own key, as `score` and value, and operands of the skipping test; share < 0 disables
// it. value NULL: the cache has the own key, as it has the others.
template <class T> struct own_key {
    float share, score, norm, reach; // norm: of its tile
    const T *value;
};

template <class T, bool PACKS>
__device__ __forceinline__ own_key<T> prepare_own_key(const decode_params<T> &p,
                                                      const decode_row &w)
{
    const bool comes = p.append.k.at != NULL;
    const T *query = p.q.row(w.b, w.i, w.h),
            *key = comes ? p.append.new_k.row(w.b, 0, w.kv) : p.k.row(w.slot, w.position, w.kv);
    int seen = p.ragged.length ? w.position / ATTENTION_TILE - w.first / ATTENTION_TILE + 1
                               : (int)ceil_div(p.s.Lk, ATTENTION_TILE);
    own_key<T> own = { -1.0f, 0.0f, 0.0f, 0.0f,
                       comes ? p.append.new_v.row(w.b, 0, w.kv) : (const T *)NULL };

    if (!p.norms.at && !comes)
        return own;
    own.score = fmaf(p.s.scale, lanes_dot<PACKS>(query, key, p.s.D), p.s.bias(w.b, w.h, 0));
    if (!p.norms.at)
        return own;
    own.share = (float)(p.eps / (double)seen);
    own.reach =
        norm_margin(p.s.D) * fabsf(p.s.scale) * sqrtf(lanes_dot<PACKS>(query, query, p.s.D));
    // The tile's norm may or may not have the key already, which makes no difference here.
    own.norm = comes ? grown_norm(p.append.norm(w.slot, w.kv, w.position), w.position,
                                  norm_margin(p.s.D) * sqrtf(lanes_dot<PACKS>(key, key, p.s.D)))
                     : p.norms.largest(w.slot, w.kv, w.position, w.position);
    return own;
}

// The block's next THREADS / part_tiles parts, from number `base` on, are decided together. Bit n
// part_tiles + t of kept[] says that tile t of part base + n gridDim.y matters. All threads must
// call it.
template <class T>
__device__ __forceinline__ void decide_tiles(unsigned *kept, const decode_params<T> &p,
                                             const decode_row &w, const own_key<T> &own, int base)
{
    const int n = (int)threadIdx.x / w.part_tiles, part = base + n * (int)gridDim.y,
              first = (w.first_tile(part) + (int)threadIdx.x % w.part_tiles) * ATTENTION_TILE,
              last = min(first + ATTENTION_TILE, p.s.Lk) - 1;
    bool matters = part < w.parts && first <= w.position && last >= w.first;

    if (matters && own.share >= 0.0f && last < w.position)
        matters = !(weight_bound(p.s, w.b, w.slot, w.h, w.position, first, last,
                                 p.norms.largest(w.slot, w.kv, first, last), own.reach, own.score,
                                 own.norm) <= own.share);
    const unsigned of_warp = __ballot_sync(0xffffffffu, matters);
    __syncthreads(); // those before have been read
    if (threadIdx.x % 32 == 0)
        kept[threadIdx.x / 32] = of_warp;
    __syncthreads();
}

// The first bit that is set from `from` on, or `end`.
__device__ __forceinline__ int next_kept(const unsigned *kept, int from, int end)
{
    while (from < end) {
        const unsigned rest = kept[from / 32] >> from % 32;

        if (rest != 0)
            return min(from + __ffs((int)rest) - 1, end);
        from = (from / 32 + 1) * 32;
    }
    return end;
}

// ---- a warp's turn: half a tile of keys
//
// Four groups of 8 lanes have HELD keys each: group + GROUPS i, i < HELD.
enum { GROUPS = 32 / ROW_LANES, HELD = ROW_LANES, TURN_KEYS = GROUPS * HELD };
static_assert((int)TURN_KEYS * 2 == (int)ATTENTION_TILE, "two turns make a tile");

__device__ __forceinline__ int lane_of_warp()
{
    return (int)threadIdx.x % 32;
}

__device__ __forceinline__ int lane_of_row()
{
    return (int)threadIdx.x % ROW_LANES;
}

// The i-th key of the lane's group.
__device__ __forceinline__ int key_of_group(int first, int i)
{
    return first + lane_of_warp() / ROW_LANES + GROUPS * i;
}

// Bit i says that the query sees it in the cache.
__device__ __forceinline__ unsigned keys_seen(const decode_row &w, int first)
{
    unsigned seen = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (key_of_group(first, i) < w.end && key_of_group(first, i) >= w.first)
            seen |= 1u << i;
    return seen;
}

// N columns from `d` on of these keys or of their values. All loads are under way at once.
template <class T, int N> struct held_rows {
    bits<T, N> at[HELD];

    __device__ __forceinline__ void read(heads<const T> from, const decode_row &w, unsigned seen,
                                         int first, int d, int D)
    {
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            at[i] = {};
            if (d < D && (seen >> i & 1))
                at[i] = load_bits<N>(from.row(w.slot, key_of_group(first, i), w.kv) + d);
        }
    }
};

// Sums over the lanes of a row; lane n receives that of x[n].
__device__ __forceinline__ float scatter_sums(float (&x)[ROW_LANES])
{
    const int lane = lane_of_row();

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

// The score of the lane's own key, the one of its group with the number of the lane; -inf if the
// query does not see it.
template <class T, int N>
__device__ __forceinline__ float find_score(const decode_params<T> &p, const decode_row &w,
                                            const float *query, unsigned seen, int first)
{
    float dots[HELD] = {};
    const int lane = lane_of_row(), key = key_of_group(first, lane);

    for (int base = 0; base < p.s.D; base += ROW_LANES * N) {
        const int d = base + lane * N;
        held_rows<T, N> k;
        k.read(p.k, w, seen, first, d, p.s.D);
#pragma unroll
        for (int i = 0; i < HELD; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                dots[i] = fmaf(d < p.s.D ? query[d + j] : 0.0f, k.at[i].at(j), dots[i]);
    }
    const float dot = scatter_sums(dots);
    return seen >> lane & 1 ? fmaf(p.s.gain(w.position - key) * p.s.scale, dot,
                                   p.s.bias(w.b, w.slot, w.h, w.position, key))
                            : -INFINITY;
}

// What a warp has of a part so far. A lane has the weights of its own keys, and STEPS times N
// columns of the output over the keys of its group.
template <int N, int STEPS> struct running {
    float most = -INFINITY, sum = 0.0f, o[STEPS][N] = {};

    static constexpr int COLUMNS = STEPS * ROW_LANES * N; // of all lanes

    // Columns from..from + COLUMNS - 1 of V, for the keys from `first` on.
    template <class T>
    __device__ __forceinline__ void add(const decode_params<T> &p, const decode_row &w,
                                        const float *query, int first, int from)
    {
        const unsigned seen = keys_seen(w, first);
        const int column = from + lane_of_row() * N;
        held_rows<T, N> v[STEPS];

        v[0].read(p.v, w, seen, first, column, p.s.D); // they come while the weights are found
        const float x = find_score<T, N>(p, w, query, seen, first), now = fmaxf(most, warp_max(x)),
                    shrink = most == now ? 1.0f : expf(most - now),
                    weight = seen >> lane_of_row() & 1 ? expf(x - now) : 0.0f;
#pragma unroll
        for (int n = 1; n < STEPS; n++) // in the registers of the keys
            v[n].read(p.v, w, seen, first, column + n * ROW_LANES * N, p.s.D);
        most = now;
        sum = fmaf(sum, shrink, weight);
#pragma unroll
        for (int n = 0; n < STEPS; n++)
#pragma unroll
            for (int j = 0; j < N; j++)
                o[n][j] *= shrink;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const float of_key =
                __shfl_sync(0xffffffffu, weight, lane_of_warp() - lane_of_row() + i);
#pragma unroll
            for (int n = 0; n < STEPS; n++)
#pragma unroll
                for (int j = 0; j < N; j++)
                    o[n][j] = fmaf(of_key, v[n].at[i].at(j), o[n][j]);
        }
    }

    // Sums over the warp, to shared memory.
    __device__ __forceinline__ void write(float *to, float *to_most, float *to_sum)
    {
#pragma unroll
        for (int n = 0; n < STEPS; n++)
#pragma unroll
            for (int j = 0; j < N; j++) {
#pragma unroll
                for (int step = ROW_LANES; step < 32; step *= 2)
                    o[n][j] += __shfl_xor_sync(0xffffffffu, o[n][j], step);
                if (lane_of_warp() < ROW_LANES)
                    to[(n * ROW_LANES + lane_of_row()) * N + j] = o[n][j];
            }
        sum = warp_sum(sum);
        *to_most = most;
        *to_sum = sum;
    }
};

// A part of which some tile matters: bits begin..end-1 of kept[] are its tiles. Wider heads take
// several rounds, each with the scores again.
template <class T, int N, int STEPS>
__device__ __forceinline__ void attend_part(const decode_params<T> &p, const decode_row &w,
                                            const own_key<T> &key, const float *query,
                                            const unsigned *kept, int begin, int end, int part)
{
    constexpr int COLUMNS = running<N, STEPS>::COLUMNS;
    __shared__ float of_warp[WARPS][COLUMNS], most_of[WARPS], sum_of[WARPS];
    const int warp = (int)threadIdx.x / 32, column = (int)threadIdx.x;
    const int64_t place = (int64_t)w.row * p.parts + part;
    const bool has_own = key.value && part == w.parts - 1;
    int from = 0;

    do { // once without columns, for the sum
        running<N, STEPS> own;
        int number = 0;
        const float value = has_own && column < COLUMNS && from + column < p.s.D
                                ? to_float(key.value[from + column])
                                : 0.0f;

        for (int t = next_kept(kept, begin, end); t < end; t = next_kept(kept, t + 1, end))
            if (number++ % (WARPS / 2) == warp / 2)
                own.add(p, w, query,
                        (w.first_tile(part) + t - begin) * ATTENTION_TILE + warp % 2 * TURN_KEYS,
                        from);
        own.write(of_warp[warp], &most_of[warp], &sum_of[warp]);
        __syncthreads();

        if (column < COLUMNS) {
            float most = has_own ? key.score : -INFINITY, sum = 0.0f, o = 0.0f;
#pragma unroll
            for (int n = 0; n < WARPS; n++)
                most = fmaxf(most, most_of[n]);
            if (has_own) {
                sum = expf(key.score - most);
                o = sum * value;
            }
#pragma unroll
            for (int n = 0; n < WARPS; n++) {
                const float share = sum_of[n] == 0.0f ? 0.0f : expf(most_of[n] - most);
                sum = fmaf(share, sum_of[n], sum);
                o = fmaf(share, of_warp[n][column], o);
            }
            if (from + column < p.s.D)
                p.outputs[place * p.s.D + from + column] = o / sum;
            if (column == 0)
                p.sums[place] = most + logf(sum);
        }
        __syncthreads(); // before the next one overwrites them
    } while ((from += COLUMNS) < p.s.D);
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
    int parts = w.parts, width = max(1, min(p.s.D, (int)THREADS)), count = THREADS / width,
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

// N columns at a time, STEPS times.
template <class T, int N, int STEPS>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    decode_kernel(const __grid_constant__ decode_params<T> p)
{
    float *query = dynamic_shared<float>(); // [D]
    __shared__ unsigned kept[WARPS];
    __shared__ own_key<T> own; // in registers it would make others spill
    const decode_row w(p);
    const int together = THREADS / w.part_tiles;

    let_next_kernel_start();
    wait_for_kernel_before();
    if (p.append.k.at && blockIdx.y == 0 && w.h % (p.s.H / p.s.Hkv) == 0) {
        const int warp = (int)threadIdx.x / 32; // one for each place
        if (warp == 0)
            append_head<T, (N > 1)>(p.append, w.b, w.kv, w.slot, w.position);
        if (warp == 1 && p.append.other)
            append_head<T, (N > 1)>(p.append, w.b, w.kv, w.slot,
                                    max(1, min(p.append.other[w.b], p.s.Lk)) - 1);
    }
    for (int d = threadIdx.x; d < p.s.D; d += THREADS)
        query[d] = to_float(p.q.row(w.b, w.i, w.h)[d]);
    const own_key<T> prepared = prepare_own_key<T, (N > 1)>(p, w);
    if (threadIdx.x == 0)
        own = prepared;
    __syncthreads(); // the query too
    for (int base = blockIdx.y; base < w.parts; base += gridDim.y * together) {
        decide_tiles(kept, p, w, own, base);
        for (int n = 0; n < together && base + n * (int)gridDim.y < w.parts; n++) {
            const int part = base + n * (int)gridDim.y, begin = n * w.part_tiles,
                      end = begin + w.part_tiles;

            if (next_kept(kept, begin, end) < end)
                attend_part<T, N, STEPS>(p, w, own, query, kept, begin, end, part);
            else if (threadIdx.x == 0)
                p.sums[(int64_t)w.row * p.parts + part] = -INFINITY;
        }
    }
    if (is_last_block(p.done + w.row, gridDim.y))
        merge_parts(p, w);
}

// Sixteen bytes at a time, if rows are aligned to that, or a number.
template <class T> void (*kernel_for(const struct attention_args *a))(decode_params<T>)
{
    constexpr int N = pack<T>::N;
    const int64_t D = a->q.shape[3];

    if ((a->append && !appends_packs(a->append)) || !rows_are_aligned(a->q) ||
        !rows_are_aligned(a->k) || !rows_are_aligned(a->v))
        return decode_kernel<T, 1, 4>;
    return D <= ROW_LANES * N ? decode_kernel<T, N, 1> : decode_kernel<T, N, 2>;
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
    if (a->append)
        p.append = appended_of<T>(a->append);
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
    return chain(c, "attention decode", kernel_for<T>(a), dim3((unsigned)rows, (unsigned)blocks),
                 THREADS, sizeof(float) * (size_t)p.s.D, p);
}

} // namespace

// Of the longest row that the call can have, and of all that are shorter.
int decode_parts(const struct attention_shape &s)
{
    const int64_t all = ceil_div(s.Lk, CHUNK_KEYS), seen = ceil_div(s.window, CHUNK_KEYS) + 1,
                  chunks = seen < all ? seen : all,
                  most = chunks < MOST_PARTS ? chunks : (int64_t)MOST_PARTS,
                  longest = ceil_div(chunks, MOST_CHUNKS);

    return (int)(most > longest ? most : longest);
}

alibi_status forward_decode(struct context *c, const struct attention_args *a)
{
    DISPATCH(a->y.type, T, return decode<T>(c, a));
}
