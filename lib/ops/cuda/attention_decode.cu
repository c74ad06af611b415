// attention_decode.cu - attention of few queries over many keys: decoding
//
// One query has too little work for a GPU, so the keys are split (flash decoding): each part of
// PART_KEYS keys is computed on its own and leaves its output and its log-sum-exp. A second kernel
// merges the parts of a row:
//
//   y = sum_p exp(lse_p - lse) y_p,     lse = log sum_p exp(lse_p)
//
//   split_kernel   grid (rows, blocks per row); a block takes parts blockIdx.y, + gridDim.y, ...
//                  8 lanes per key: scores -> block max -> weights in shared memory
//                  8 lanes per row of V: output of the part
//   merge_kernel   a block per row
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
enum { BLOCKS_PER_SM = 16 }; // of split_kernel: twice as many as are resident

template <class T> struct decode_params {
    heads<const T> q, k, v;
    heads<T> y;
    float *lse;
    float *outputs; // [rows, parts, D], rows being B x H x Lq; from the first part that a row sees
    float *sums;    // [rows, parts]: log-sum-exp; -inf: nothing was computed
    struct attention_shape s;
    struct ragged_rows ragged; // which nobody has checked: they are clamped to the cache
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

// Which tiles of a part matter, as bits; the same for every thread. `first` is the part's first
// key, `count` its number of keys.
template <class T, bool PACKS>
__device__ __forceinline__ unsigned tiles_that_matter(const decode_params<T> &p,
                                                      const decode_row &w, const float *query,
                                                      int first, int count)
{
    int tiles = (int)ceil_div(count, ATTENTION_TILE);
    int unseen = max(0, w.first - first) / ATTENTION_TILE; // tiles before the window
    unsigned all = (1u << tiles) - (1u << unseen);
    float square = 0.0f, own, own_norm, reach, share;

    if (!p.norms.at)
        return all;
    int seen = p.ragged.length ? w.position / ATTENTION_TILE - w.first / ATTENTION_TILE + 1
                               : (int)ceil_div(p.s.Lk, ATTENTION_TILE);
    share = (float)(p.eps / (double)seen);
    for (int d = 0; d < p.s.D; d++)
        square = fmaf(query[d], query[d], square);
    own = fmaf(p.s.scale, lanes_dot<PACKS>(query, p.k.row(w.slot, w.position, w.kv), p.s.D),
               p.s.bias(w.b, w.h, 0));
    reach = norm_margin(p.s.D) * fabsf(p.s.scale) * sqrtf(square);
    own_norm = p.norms.largest(w.slot, w.kv, w.position, w.position);
    // A lane per tile, in every warp alike.
    int from = first + (int)threadIdx.x % PART_TILES * ATTENTION_TILE,
        last = min(from + ATTENTION_TILE, p.s.Lk) - 1;
    bool skipped = last < w.position && weight_bound(p.s, w.b, w.slot, w.h, w.position, from, last,
                                                     p.norms.largest(w.slot, w.kv, from, last),
                                                     reach, own, own_norm) <= share;
    return __ballot_sync(0xffffffffu, !skipped) & all;
}

// scores[n] = score of key first + n; -inf where there is none or its tile is skipped.
template <class T, bool PACKS>
__device__ __forceinline__ void find_scores(float *scores, const decode_params<T> &p,
                                            const decode_row &w, const float *query, unsigned tiles,
                                            int first, int count)
{
    for (int n = threadIdx.x / ROW_LANES; n < PART_KEYS; n += THREADS / ROW_LANES) {
        float x = -INFINITY;
        if (n < count && first + n >= w.first && (tiles >> n / ATTENTION_TILE & 1))
            x = fmaf(p.s.gain(w.position - first - n) * p.s.scale,
                     lanes_dot<PACKS>(query, p.k.row(w.slot, first + n, w.kv), p.s.D),
                     p.s.bias(w.b, w.slot, w.h, w.position, first + n));
        if (threadIdx.x % ROW_LANES == 0)
            scores[n] = x;
    }
}

// The part's output, sum_n weight_n v_n / sum. Eight lanes share a row of V as they share a key,
// and every group of lanes has a share of the keys; the order of sums depends on nothing but D.
template <class T, bool PACKS>
__device__ __forceinline__ void write_output(float *to, const decode_params<T> &p,
                                             const decode_row &w, const float *weights,
                                             unsigned tiles, float sum, int first, int count)
{
    const int N = PACKS ? pack<T>::N : 1, COLUMNS = ROW_LANES * N; // at a time
    __shared__ float of_warp[THREADS / 32][ROW_LANES * pack<T>::N];
    int group = threadIdx.x / ROW_LANES, lane = threadIdx.x % ROW_LANES;

    for (int base = 0; base < p.s.D; base += COLUMNS) {
        int d = base + lane * N;
        float o[N] = {};
#pragma unroll 4
        for (int n = group; n < PART_KEYS; n += THREADS / ROW_LANES) {
            if (d >= p.s.D || n >= count || !(tiles >> n / ATTENTION_TILE & 1))
                continue;
            float v[N];
            load<N>(v, p.v.row(w.slot, first + n, w.kv) + d);
#pragma unroll
            for (int i = 0; i < N; i++)
                o[i] = fmaf(weights[n], v[i], o[i]);
        }
        __syncthreads(); // of_warp of the columns before has been read
#pragma unroll
        for (int i = 0; i < N; i++) {
#pragma unroll
            for (int step = ROW_LANES; step < 32; step *= 2)
                o[i] += __shfl_xor_sync(0xffffffffu, o[i], step);
            if (threadIdx.x % 32 < ROW_LANES)
                of_warp[threadIdx.x / 32][lane * N + i] = o[i];
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

template <class T, bool PACKS>
__global__ void __launch_bounds__(THREADS) split_kernel(const __grid_constant__ decode_params<T> p)
{
    float *query = dynamic_shared<float>(); // [D]
    __shared__ float weights[PART_KEYS];
    decode_row w(p);

    for (int d = threadIdx.x; d < p.s.D; d += THREADS)
        query[d] = to_float(p.q.row(w.b, w.i, w.h)[d]);
    __syncthreads();
    for (int part = blockIdx.y; part < w.parts(); part += gridDim.y) {
        int first = (w.first_part() + part) * PART_KEYS,
            count = min(PART_KEYS, w.position + 1 - first);
        int64_t place = (int64_t)w.row * p.parts + part;
        unsigned tiles = tiles_that_matter<T, PACKS>(p, w, query, first, count);

        if (tiles == 0) {
            if (threadIdx.x == 0)
                p.sums[place] = -INFINITY;
            continue;
        }
        find_scores<T, PACKS>(weights, p, w, query, tiles, first, count);
        __syncthreads();
        float x = weights[threadIdx.x], most = block_max(x);
        x = expf(x - most);
        weights[threadIdx.x] = x;
        float sum = block_sum(x); // its barriers also make the weights visible to all threads
        write_output<T, PACKS>(p.outputs + place * p.s.D, p, w, weights, tiles, sum, first, count);
        if (threadIdx.x == 0)
            p.sums[place] = most + logf(sum);
        __syncthreads(); // before the next part overwrites the weights
    }
}

// A column has a thread for each of several shares of the parts. NaN sums take part in the merge,
// so that they show in the output.
template <class T>
__global__ void __launch_bounds__(THREADS) merge_kernel(const __grid_constant__ decode_params<T> p)
{
    __shared__ float shares[THREADS];
    decode_row w(p);
    int parts = w.parts(), width = max(1, min(p.s.D, (int)THREADS)), count = THREADS / width,
        share = threadIdx.x / width;
    const float *sums = p.sums + (int64_t)w.row * p.parts,
                *outputs = p.outputs + (int64_t)w.row * p.parts * p.s.D;
    float most = -INFINITY, sum = 0.0f;

    for (int n = threadIdx.x; n < parts; n += THREADS)
        most = fmaxf(most, sums[n]);
    most = block_max(most);
    for (int n = threadIdx.x; n < parts; n += THREADS)
        sum += expf(sums[n] - most);
    sum = block_sum(sum);
    for (int base = 0; base < p.s.D; base += width) {
        int d = base + (int)threadIdx.x % width;
        float o = 0.0f;
#pragma unroll 4
        for (int n = share; n < (share < count && d < p.s.D ? parts : 0); n += count) {
            float x = outputs[(int64_t)n * p.s.D + d];
            bool skipped = sums[n] == -INFINITY; // then it has no output
            o = skipped ? o : fmaf(expf(sums[n] - most), x, o);
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
    // Lengths of ragged rows are on the GPU, and Lk is the capacity of the cache: no more blocks
    // per row than can be resident, or most of them would start for nothing.
    blocks = ceil_div((int64_t)c->multiprocessors * BLOCKS_PER_SM, rows);
    if (blocks > p.parts)
        blocks = p.parts;
    TRY_RETURN(launch(c, "attention decode",
                      rows_are_aligned(a->k) && rows_are_aligned(a->v) ? split_kernel<T, true>
                                                                       : split_kernel<T, false>,
                      dim3((unsigned)rows, (unsigned)blocks), THREADS,
                      sizeof(float) * (size_t)p.s.D, p));
    return launch(c, "attention decode", merge_kernel<T>, (unsigned)rows, THREADS, 0, p);
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
