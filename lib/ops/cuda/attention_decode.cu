// attention_decode.cu - few queries behind many keys
//
// The keys are cut into parts, a block each, so that one query keeps the whole GPU busy; each part
// leaves its output and its log-sum-exp, and a second kernel merges them:   y = sum_p e^(lse_p -
// lse) y_p,   lse = log sum_p e^lse_p
//
// A tile of keys is left out if the bound of attention_bounds.cu, against the query's own key, is
// within its part of the budget: all tiles have the same part, so that none has to know of the
// others.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/bounds.cuh"

enum { PART_KEYS = 256, THREADS = 256, PART_TILES = PART_KEYS / ATTENTION_TILE };

template <class T> struct decode_call {
    heads<const T> q, k, v;
    heads<T> y;
    float *lse;
    float *outputs; // [rows, parts, D], rows being B x H x Lq
    float *sums;    // [rows, parts]: log-sum-exp
    struct attention_shape s;
    struct key_norms norms; // at NULL: nothing is left out
    float share;            // of the budget, for a tile
    int parts;
};

// One row of queries, and one part of its keys.
struct place {
    int row, i, h, b, kv, position, part, first, count;

    template <class T> __device__ __forceinline__ place(const decode_call<T> &c)
    {
        part = blockIdx.y;
        row = blockIdx.x;
        i = row % c.s.Lq;
        h = row / c.s.Lq % c.s.H;
        b = row / c.s.Lq / c.s.H;
        kv = c.s.key_head(h);
        position = c.s.past() + i;
        first = part * PART_KEYS;
        count = min(PART_KEYS, position + 1 - first);
    }
};

// Which of the part's tiles matter, in bits; the same for every thread.
template <class T, bool PACKS>
static __device__ __forceinline__ unsigned tiles_that_matter(const decode_call<T> &c,
                                                             const struct place &w,
                                                             const float *query)
{
    int tiles = (int)ceil_div(w.count, ATTENTION_TILE);
    unsigned all = (1u << tiles) - 1, bits = 0;
    float square = 0.0f, own, own_norm, reach;

    if (!c.norms.at)
        return all;
    for (int d = 0; d < c.s.D; d++)
        square = fmaf(query[d], query[d], square);
    own = fmaf(c.s.scale, lanes_dot<PACKS>(query, c.k.row(w.b, w.position, w.kv), c.s.D),
               c.s.bias(w.h, 0));
    reach = norm_margin(c.s.D) * fabsf(c.s.scale) * sqrtf(square);
    own_norm = c.norms.largest(w.b, w.kv, w.position, w.position);
    for (int t = 0; t < tiles; t++) {
        int first = w.first + t * ATTENTION_TILE, last = min(first + ATTENTION_TILE, c.s.Lk) - 1;
        bool out = last < w.position && weight_bound(c.s, w.h, w.position, first, last,
                                                     c.norms.largest(w.b, w.kv, first, last), reach,
                                                     own, own_norm) <= c.share;
        bits |= (unsigned)!out << t;
    }
    return bits;
}

// scores[n] of the part's keys; -inf where there is none.
template <class T, bool PACKS>
static __device__ __forceinline__ void find_scores(float *scores, const decode_call<T> &c,
                                                   const struct place &w, const float *query,
                                                   unsigned tiles)
{
    for (int n = threadIdx.x / ROW_LANES; n < PART_KEYS; n += THREADS / ROW_LANES) {
        float x = -INFINITY;
        if (n < w.count && (tiles >> n / ATTENTION_TILE & 1))
            x = fmaf(c.s.scale, lanes_dot<PACKS>(query, c.k.row(w.b, w.first + n, w.kv), c.s.D),
                     c.s.bias(w.h, w.position - w.first - n));
        if (threadIdx.x % ROW_LANES == 0)
            scores[n] = x;
    }
}

template <class T>
static __device__ __forceinline__ void write_output(const decode_call<T> &c, const struct place &w,
                                                    const float *weights, unsigned tiles, float sum)
{
    float *to = c.outputs + ((int64_t)w.row * c.parts + w.part) * c.s.D;

    for (int d = threadIdx.x; d < c.s.D; d += THREADS) {
        float o = 0.0f;
        for (int t = 0; t < PART_TILES; t++) {
            if (!(tiles >> t & 1))
                continue;
#pragma unroll 8
            for (int n = t * ATTENTION_TILE; n < min((t + 1) * ATTENTION_TILE, w.count); n++)
                o = fmaf(weights[n], to_float(c.v.row(w.b, w.first + n, w.kv)[d]), o);
        }
        to[d] = o / sum;
    }
}

template <class T, bool PACKS>
static __global__ void __launch_bounds__(THREADS)
    parts_kernel(const __grid_constant__ decode_call<T> c)
{
    extern __shared__ float query[]; // [D]
    __shared__ float weights[PART_KEYS];
    struct place w(c);
    unsigned tiles = 0;
    float most, sum;

    if (w.count > 0) {
        for (int d = threadIdx.x; d < c.s.D; d += THREADS)
            query[d] = to_float(c.q.row(w.b, w.i, w.h)[d]);
        __syncthreads();
        tiles = tiles_that_matter<T, PACKS>(c, w, query);
    }
    if (tiles == 0) {
        if (threadIdx.x == 0)
            c.sums[(int64_t)w.row * c.parts + w.part] = -INFINITY;
        return;
    }
    find_scores<T, PACKS>(weights, c, w, query, tiles);
    __syncthreads();
    float x = weights[threadIdx.x];
    most = block_max(x);
    x = expf(x - most);
    weights[threadIdx.x] = x;
    sum = block_sum(x); // its barriers make the weights known, too
    write_output(c, w, weights, tiles, sum);
    if (threadIdx.x == 0)
        c.sums[(int64_t)w.row * c.parts + w.part] = most + logf(sum);
}

// A block per row.
template <class T>
static __global__ void __launch_bounds__(THREADS)
    merge_kernel(const __grid_constant__ decode_call<T> c)
{
    int row = blockIdx.x, i = row % c.s.Lq, h = row / c.s.Lq % c.s.H, b = row / c.s.Lq / c.s.H;
    const float *sums = c.sums + (int64_t)row * c.parts,
                *outputs = c.outputs + (int64_t)row * c.parts * c.s.D;
    float most = -INFINITY, sum = 0.0f;

    for (int p = threadIdx.x; p < c.parts; p += THREADS)
        most = fmaxf(most, sums[p]);
    most = block_max(most);
    for (int p = threadIdx.x; p < c.parts; p += THREADS)
        sum += expf(sums[p] - most);
    sum = block_sum(sum);
    for (int d = threadIdx.x; d < c.s.D; d += THREADS) {
        float o = 0.0f;
        for (int p = 0; p < c.parts; p++)
            if (sums[p] > -INFINITY || isnan(sums[p])) // what was left out has no output
                o = fmaf(expf(sums[p] - most), outputs[(int64_t)p * c.s.D + d], o);
        c.y.row(b, i, h)[d] = from_float<T>(o / sum);
    }
    if (threadIdx.x == 0)
        c.lse[row] = most + logf(sum);
}

// ---- from outside

template <class T>
static alibi_status decode(struct cuda *c, struct tensor y, struct tensor lse,
                           const struct attention_args *a)
{
    decode_call<T> call = {};
    int64_t rows;

    call.q = heads_of<const T>(a->q);
    call.k = heads_of<const T>(a->k);
    call.v = heads_of<const T>(a->v);
    call.y = heads_of<T>(y);
    call.lse = (float *)lse.data;
    call.s = attention_shape_of(a);
    call.parts = (int)ceil_div(call.s.Lk, PART_KEYS);
    rows = (int64_t)call.s.B * call.s.H * call.s.Lq;
    if (a->skip.eps > 0 && a->skip.norms.data) {
        call.norms = key_norms_of(a->skip.norms);
        call.share = (float)(a->skip.eps / (double)attention_tiles(call.s.Lk));
    }
    const int64_t factors[] = { rows, call.parts, call.s.D + 1, (int64_t)sizeof(float) };
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_PARTS, factors, 4, (void **)&call.outputs));
    call.sums = call.outputs + rows * call.parts * call.s.D;
    TRY_RETURN(launch(c, "attention decode",
                      rows_are_aligned(a->k) ? parts_kernel<T, true> : parts_kernel<T, false>,
                      dim3((unsigned)rows, (unsigned)call.parts), THREADS,
                      sizeof(float) * (size_t)call.s.D, call));
    return launch(c, "attention decode", merge_kernel<T>, (unsigned)rows, THREADS, 0, call);
}

alibi_status forward_decode(struct cuda *c, struct tensor y, struct tensor lse,
                            const struct attention_args *a)
{
    DISPATCH(y.type, T, return decode<T>(c, y, lse, a));
}
