// attention_bounds.cu - norms of key tiles, and which tiles cannot matter
//
// The bound (bounds.cuh) compares with the query's own key alone, which is known before anything
// else: so the tiles are known before attention begins, and no kernel has to wait for another. What
// is left out must fit into the budget of every query of a block, all of it together, nearest tiles
// first.
#include "ops/cuda/bounds.cuh"

// ---- norms

enum { NORM_THREADS = 128 };

// A block per tile; norms [B, Hkv, tiles] with strides.
template <class T, bool PACKS>
static __global__ void __launch_bounds__(NORM_THREADS)
    norms_kernel(float *norms, int64_t norms_b, int64_t norms_h, heads<const T> k, int Hkv, int L,
                 int D, int first, int tiles)
{
    __shared__ float squares[ATTENTION_TILE];
    int tile = first + blockIdx.x % tiles, kv = blockIdx.x / tiles % Hkv,
        b = blockIdx.x / tiles / Hkv;
    int count = min(ATTENTION_TILE, L - tile * ATTENTION_TILE);
    float largest = 0.0f;

    for (int n = threadIdx.x / ROW_LANES; n < count; n += NORM_THREADS / ROW_LANES) {
        const T *key = k.row(b, tile * ATTENTION_TILE + n, kv);
        float square = lanes_dot<PACKS>(key, key, D);
        if (threadIdx.x % ROW_LANES == 0)
            squares[n] = square;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int n = 0; n < count; n++)
        largest = larger(squares[n], largest);
    norms[b * norms_b + kv * norms_h + tile] = norm_margin(D) * sqrtf(largest);
}

template <class T>
static alibi_status find_norms(struct cuda *c, struct tensor norms, struct tensor k, int64_t from)
{
    int L = (int)k.shape[1], first = (int)(from / ATTENTION_TILE),
        tiles = (int)attention_tiles(L) - first;
    int64_t heads = k.shape[0] * k.shape[2];

    if (tiles <= 0 || heads == 0)
        return ALIBI_OK;
    return launch(
        c, "attention norms", rows_are_aligned(k) ? norms_kernel<T, true> : norms_kernel<T, false>,
        (unsigned)(tiles * heads), NORM_THREADS, 0, (float *)norms.data, norms.stride[0],
        norms.stride[1], heads_of<const T>(k), (int)k.shape[2], L, (int)k.shape[3], first, tiles);
}

alibi_status cuda_attention_norms(struct device *dev, struct tensor norms, struct tensor k,
                                  int64_t from, struct ragged ragged)
{
    TRY_RETURN(cuda_refuse_ragged(ragged));
    cuda_part(cuda_of(dev), "attention bounds");
    DISPATCH(k.type, T, return find_norms<T>(cuda_of(dev), norms, k, from));
}

// ---- which tiles

enum { MOST_QUERIES = 256 }; // per block: a thread each

struct decision {
    struct attention_shape s;
    struct kept_tiles kept;
    struct key_norms norms;
    float eps;
    int queries, keys; // the grain
    int blocks;        // of queries, per head
};

// Marks the tiles of keys first..last for every tile of the block's queries that sees them.
static __device__ void mark(const decision &d, int64_t head, int first_query, int first, int last)
{
    int rows = min(d.queries / ATTENTION_TILE, d.kept.rows - first_query / ATTENTION_TILE);

    for (int n = threadIdx.x; n < rows * (d.keys / ATTENTION_TILE); n += blockDim.x) {
        int row = first_query / ATTENTION_TILE + n % rows, tile = first / ATTENTION_TILE + n / rows;
        int sees = d.s.past() + min((row + 1) * ATTENTION_TILE, d.s.Lq) - 1;
        if (tile <= last / ATTENTION_TILE && tile * ATTENTION_TILE <= sees)
            atomicOr(d.kept.row(head, row) + tile / 32, 1u << tile % 32);
    }
}

// |scale q_i| and the own score of every query of the block, eight lanes each.
template <class T, bool PACKS>
static __device__ __forceinline__ void measure_queries(float *reach, float *own, const decision &d,
                                                       heads<const T> q, heads<const T> k,
                                                       int first_query, int b, int h)
{
    const attention_shape &s = d.s;

    for (int n = threadIdx.x / ROW_LANES; n < min(d.queries, s.Lq - first_query);
         n += blockDim.x / ROW_LANES) {
        const T *query = q.row(b, first_query + n, h),
                *key = k.row(b, s.past() + first_query + n, s.key_head(h));
        float square = lanes_dot<PACKS>(query, query, s.D),
              score = lanes_dot<PACKS>(query, key, s.D);
        if (threadIdx.x % ROW_LANES == 0) {
            reach[n] = norm_margin(s.D) * fabsf(s.scale) * sqrtf(square);
            own[n] = fmaf(s.scale, score, s.bias(h, 0));
        }
    }
}

// A block of threads per block of queries, a thread per query; the blocks of keys, nearest first.
template <class T, bool PACKS>
static __global__ void __launch_bounds__(MOST_QUERIES)
    decide_kernel(const __grid_constant__ decision d, heads<const T> q, heads<const T> k)
{
    __shared__ float reach[MOST_QUERIES], own[MOST_QUERIES];
    const attention_shape &s = d.s;
    int head = blockIdx.x / d.blocks, h = head % s.H, b = head / s.H, kv = s.key_head(h),
        me = threadIdx.x;
    int first_query = blockIdx.x % d.blocks * d.queries;
    int position = s.past() + first_query + me, nearest = s.past() + first_query;
    int last_seen = min(nearest + d.queries - 1, s.Lk - 1);
    bool here = first_query + me < s.Lq;
    float out = 0.0f;

    measure_queries<T, PACKS>(reach, own, d, q, k, first_query, b, h);
    __syncthreads();
    for (int first = last_seen / d.keys * d.keys; first >= 0; first -= d.keys) {
        int last = min(first + d.keys - 1, s.Lk - 1);
        float weight = 0.0f;
        if (last < nearest && here)
            weight = weight_bound(s, h, position, first, last, d.norms.largest(b, kv, first, last),
                                  reach[me], own[me], d.norms.largest(b, kv, position, position));
        // What holds the diagonal is never left out.
        if (__syncthreads_and(last < nearest && (!here || out + weight <= d.eps)))
            out += weight;
        else
            mark(d, head, first_query, first, last);
    }
}

template <class T>
static alibi_status decide(struct cuda *c, const struct attention_args *a, const decision &d)
{
    size_t words = (size_t)d.s.B * (size_t)d.s.H * (size_t)d.kept.rows *
                   (size_t)d.kept.words; // as many as there are in memory

    TRY_RETURN(cuda_check(cudaMemsetAsync(d.kept.bits, 0, sizeof(uint32_t) * words, c->stream),
                          "attention bounds"));
    return launch(c, "attention bounds",
                  rows_are_aligned(a->q) && rows_are_aligned(a->k) ? decide_kernel<T, true>
                                                                   : decide_kernel<T, false>,
                  (unsigned)(d.blocks * d.s.B * d.s.H), d.queries, 0, d, heads_of<const T>(a->q),
                  heads_of<const T>(a->k));
}

alibi_status decide_tiles(struct cuda *c, const struct attention_args *a, struct kept_tiles kept,
                          int grain_queries, int grain_keys)
{
    decision d;
    struct tensor norms = a->skip.norms;

    d.s = attention_shape_of(a);
    if (!norms.data) {
        const int64_t factors[] = { d.s.B, d.s.Hkv, attention_tiles(d.s.Lk),
                                    (int64_t)sizeof(float) };
        norms = tensor_3(NULL, DTYPE_F32, factors[0], factors[1], factors[2]);
        TRY_RETURN(cuda_scratch_for(c, SCRATCH_NORMS, factors, 4, &norms.data));
        DISPATCH(a->k.type, T, TRY_RETURN(find_norms<T>(c, norms, a->k, 0)));
    }
    d.kept = kept;
    d.norms = key_norms_of(norms);
    d.eps = (float)a->skip.eps;
    d.queries = grain_queries;
    d.keys = grain_keys;
    d.blocks = (int)ceil_div(d.s.Lq, grain_queries);
    DISPATCH(a->q.type, T, return decide<T>(c, a, d));
}
