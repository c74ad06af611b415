// attention_bounds.cu - norms of key tiles, and which tiles cannot matter
//
// The bound (attention.cuh) compares with the query's own key only, which is known before anything
// else. So the tiles are decided before attention begins, and no attention kernel depends on the
// progress of another. The skipped tiles of a query must fit into its budget together; nearest
// tiles come first. If the bound of all farther keys fits too, the loop ends: its time is
// proportional to the tiles kept.
#include "ops/cuda/attention.cuh"

namespace
{

// ---- norms

enum { NORM_THREADS = 128 };

// Norms of key tiles [B, Hkv, tiles] with strides; a block per tile, 8 lanes per key.
template <class T> struct norms_params {
    float *norms;
    int64_t norms_b, norms_h;
    heads<const T> k;
    int Hkv, L, D;
    int first, tiles; // per head, from `first` on
};

template <class T, bool PACKS>
__global__ void __launch_bounds__(NORM_THREADS) norms_kernel(struct norms_params<T> p)
{
    __shared__ float squares[ATTENTION_TILE];
    int tile = p.first + blockIdx.x % p.tiles, kv = blockIdx.x / p.tiles % p.Hkv,
        b = blockIdx.x / p.tiles / p.Hkv;
    int count = min(ATTENTION_TILE, p.L - tile * ATTENTION_TILE);
    float largest = 0.0f;

    for (int n = threadIdx.x / ROW_LANES; n < count; n += NORM_THREADS / ROW_LANES) {
        const T *key = p.k.row(b, tile * ATTENTION_TILE + n, kv);
        float square = lanes_dot<PACKS>(key, key, p.D);
        if (threadIdx.x % ROW_LANES == 0)
            squares[n] = square;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int n = 0; n < count; n++)
        largest = larger(squares[n], largest);
    p.norms[b * p.norms_b + kv * p.norms_h + tile] = norm_margin(p.D) * sqrtf(largest);
}

template <class T>
alibi_status find_norms(struct context *c, struct tensor norms, struct tensor k, int64_t from)
{
    struct norms_params<T> p = {
        .norms = (float *)norms.data, .norms_b = norms.stride[0], .norms_h = norms.stride[1],
        .k = heads_of<const T>(k), .Hkv = (int)k.shape[2], .L = (int)k.shape[1],
        .D = (int)k.shape[3], .first = (int)(from / ATTENTION_TILE),
    };
    int64_t heads = k.shape[0] * k.shape[2];

    p.tiles = (int)attention_tiles(p.L) - p.first;
    if (p.tiles <= 0 || heads == 0)
        return ALIBI_OK;
    return launch(c, "attention norms",
                  rows_are_aligned(k) ? norms_kernel<T, true> : norms_kernel<T, false>,
                  (unsigned)(p.tiles * heads), NORM_THREADS, 0, p);
}

// ---- the largest norm of all tiles up to each one

enum { AHEAD_THREADS = 128 };

// ahead [B, Hkv, tiles], a thread block per head, neighbouring tiles to each thread.
__global__ void __launch_bounds__(AHEAD_THREADS)
    ahead_kernel(float *ahead, const struct key_norms norms, int Hkv, int tiles)
{
    __shared__ float of_thread[AHEAD_THREADS];
    const float *from =
        norms.at + (int)blockIdx.x / Hkv * norms.b + (int)blockIdx.x % Hkv * norms.h;
    const int each = (tiles + AHEAD_THREADS - 1) / AHEAD_THREADS, first = (int)threadIdx.x * each,
              end = min(first + each, tiles);
    float most = 0.0f;

    for (int t = first; t < end; t++)
        most = larger(from[t], most);
    of_thread[threadIdx.x] = most;
    __syncthreads();
    most = 0.0f;
    for (int before = 0; before < (int)threadIdx.x; before++)
        most = larger(of_thread[before], most);
    for (int t = first; t < end; t++)
        ahead[(int64_t)blockIdx.x * tiles + t] = most = larger(from[t], most);
}

// ---- which tiles

enum { MOST_QUERIES = 256 }; // per thread block: one each

struct decision {
    struct attention_shape s;
    struct kept_tiles kept;
    struct key_lists lists;
    struct key_norms norms, ahead;
    float eps;
    int queries, keys; // decided together
    int blocks;        // of queries, per head
};

// Marks the tiles of keys first..last for every query tile of the block that sees them. The first
// query of a tile sees farthest back, the last one farthest ahead.
__device__ void mark(const decision &d, int64_t head, int first_query, int first, int last)
{
    if (!d.kept.bits)
        return;
    int first_row = max(first_query, 0) / ATTENTION_TILE;
    int rows = min((first_query + d.queries) / ATTENTION_TILE, d.kept.rows) - first_row;

    for (int n = threadIdx.x; n < rows * (d.keys / ATTENTION_TILE); n += blockDim.x) {
        int row = first_row + n % rows, tile = first / ATTENTION_TILE + n / rows;
        int sees = d.s.past() + min((row + 1) * ATTENTION_TILE, d.s.Lq) - 1,
            oldest = d.s.first_key(d.s.past() + row * ATTENTION_TILE);
        if (tile <= last / ATTENTION_TILE && tile * ATTENTION_TILE <= sees &&
            tile >= oldest / ATTENTION_TILE)
            atomicOr(d.kept.row(head, row) + tile / 32, 1u << tile % 32);
    }
}

// |scale q_i| and the own score of every query of the block, 8 lanes each.
template <class T, bool PACKS>
__device__ __forceinline__ void measure_queries(float *reach, float *own, const decision &d,
                                                heads<const T> q, heads<const T> k, int first_query,
                                                int b, int h)
{
    const attention_shape &s = d.s;

    for (int n = threadIdx.x / ROW_LANES; n < min(d.queries, s.Lq - first_query);
         n += blockDim.x / ROW_LANES) {
        if (first_query + n < 0)
            continue;
        const T *query = q.row(b, first_query + n, h),
                *key = k.row(b, s.past() + first_query + n, s.key_head(h));
        float square = lanes_dot<PACKS>(query, query, s.D),
              score = lanes_dot<PACKS>(query, key, s.D);
        if (threadIdx.x % ROW_LANES == 0) {
            reach[n] = norm_margin(s.D) * fabsf(s.scale) * sqrtf(square);
            own[n] = fmaf(s.scale, score, s.bias(b, h, 0));
        }
    }
}

// True if the bias alone cannot reach the budget even at the largest distance. Only keys much
// shorter than the query's own could be skipped then, and searching for them does not pay.
__device__ __forceinline__ bool is_hopeless(const decision &d, int b, int h, int distance)
{
    const attention_shape &s = d.s;

    return s.kind == BIAS_NONE ||
           (s.kind == BIAS_LINEAR && fabsf(s.slope(b, h)) * (float)distance < -logf(d.eps));
}

// A thread block per block of queries, a thread per query. Key blocks nearest first: one is
// skipped if for every query its bound still fits into the rest of the budget.
template <class T, bool PACKS>
__global__ void __launch_bounds__(MOST_QUERIES)
    decide_kernel(const __grid_constant__ decision d, heads<const T> q, heads<const T> k)
{
    __shared__ float reach[MOST_QUERIES], own[MOST_QUERIES];
    const attention_shape &s = d.s;
    int head = blockIdx.x / d.blocks, h = head % s.H, b = head / s.H, kv = s.key_head(h),
        thread = threadIdx.x;
    int first_query = first_of_block(s.Lq, d.queries, (int)blockIdx.x % d.blocks);
    int position = s.past() + first_query + thread, nearest = s.past() + max(first_query, 0);
    int last_seen = min(s.past() + first_query + d.queries, s.Lk) - 1,
        oldest = s.first_key(nearest);
    bool has_query = first_query + thread >= 0 && first_query + thread < s.Lq;
    float skipped = 0.0f; // of this query's weight, at most
    int count = 0;        // of key blocks that are kept
    uint32_t *list = d.lists.bits ? d.lists.row(head, (int)blockIdx.x % d.blocks) : NULL;

    // Clear the list; measure the queries.
    for (int word = thread; list && word < d.lists.words; word += (int)blockDim.x)
        list[word] = 0;
    const bool hopeless = is_hopeless(d, b, h, last_seen - oldest);
    if (!hopeless)
        measure_queries<T, PACKS>(reach, own, d, q, k, first_query, b, h);
    __syncthreads();
    const float own_norm = has_query ? d.norms.largest(b, kv, position, position) : 0.0f;
    const auto fits = [&](int from, int to, float norm, float *weight) {
        *weight = has_query ? weight_bound(s, b, b, h, position, from, to, norm, reach[thread],
                                           own[thread], own_norm)
                            : 0.0f;
        return __syncthreads_and(skipped + *weight <= d.eps);
    };
    // Key blocks, nearest first.
    for (int first = last_seen / d.keys * d.keys; first + d.keys > oldest; first -= d.keys) {
        int last = min(first + d.keys - 1, s.Lk - 1);
        float weight;
        // The block with the diagonal is never skipped.
        if (last >= nearest || hopeless ||
            !fits(first, last, d.norms.largest(b, kv, first, last), &weight)) {
            mark(d, head, first_query, first, last);
            if (list && thread == 0)
                atomicOr(list + first / d.keys / 32, 1u << first / d.keys % 32);
            count++;
            continue;
        }
        skipped += weight;
        // If everything farther fits, stop. The largest entry of a table is not known in advance.
        if (s.kind != BIAS_TABLE && first > oldest &&
            fits(oldest, first - 1, d.ahead.largest(b, kv, first - 1, first - 1), &weight))
            break;
    }
    if (list && thread == 0)
        d.lists.counts[blockIdx.x] = count;
}

template <class T>
alibi_status decide(struct context *c, const struct attention_args *a, const decision &d)
{
    // No overflow: the bits are in memory.
    size_t words = (size_t)d.s.B * (size_t)d.s.H * (size_t)d.kept.rows * (size_t)d.kept.words;

    if (d.kept.bits)
        TRY_RETURN(cuda_check(cudaMemsetAsync(d.kept.bits, 0, sizeof(uint32_t) * words, c->stream),
                              "attention bounds"));
    return launch(c, "attention bounds",
                  rows_are_aligned(a->q) && rows_are_aligned(a->k) ? decide_kernel<T, true>
                                                                   : decide_kernel<T, false>,
                  (unsigned)(d.blocks * d.s.B * d.s.H), d.queries, 0, d, heads_of<const T>(a->q),
                  heads_of<const T>(a->k));
}

// ---- every tile, where the choice would cost more than it saves

struct keep_all {
    struct attention_shape s;
    struct kept_tiles kept;

    // A word of a row: the tiles from the first that the row's first query sees to that of its last
    // query.
    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        const int word = (int)(i % kept.words), row = (int)(i / kept.words % kept.rows);
        const int first = s.first_key(s.past() + row * ATTENTION_TILE) / ATTENTION_TILE - 32 * word,
                  last = (s.past() + min((row + 1) * ATTENTION_TILE, s.Lq) - 1) / ATTENTION_TILE -
                         32 * word;
        const uint32_t from = first > 31 ? 0u : ~0u << max(first, 0),
                       to = last < 0 ? 0u : ~0u >> (31 - min(last, 31));

        kept.bits[i] = from & to;
    }
};

} // namespace

alibi_status keep_tiles(struct context *c, const struct attention_args *a, struct kept_tiles kept)
{
    const struct attention_shape s = attention_shape_of(a);

    return each<1>(c, "attention bounds", keep_all{ s, kept },
                   (int64_t)s.B * s.H * kept.rows * kept.words, false);
}

alibi_status cuda_attention_norms(struct device *dev, struct tensor norms, struct tensor k,
                                  int64_t from)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "attention bounds");
    DISPATCH(k.type, T, return find_norms<T>(c, norms, k, from));
}

alibi_status decide_tiles(struct context *c, const struct attention_args *a, struct kept_tiles kept,
                          struct key_lists lists, double eps, int block_queries, int block_keys)
{
    const struct attention_shape s = attention_shape_of(a);
    const int64_t tiles = attention_tiles(s.Lk),
                  factors[] = { 2, s.B, s.Hkv, tiles, (int64_t)sizeof(float) };
    struct tensor ahead = tensor_3(NULL, DTYPE_F32, s.B, s.Hkv, tiles), norms = a->skip.norms;

    TRY_RETURN(cuda_scratch_for(c, SCRATCH_NORMS, factors, 5, &ahead.data));
    if (!norms.data) {
        norms = ahead;
        norms.data = (float *)ahead.data + s.B * s.Hkv * tiles;
        DISPATCH(a->k.type, T, TRY_RETURN(find_norms<T>(c, norms, a->k, 0)));
    }
    TRY_RETURN(launch(c, "attention bounds", ahead_kernel, (unsigned)(s.B * s.Hkv), AHEAD_THREADS,
                      0, (float *)ahead.data, key_norms_of(norms), s.Hkv, (int)tiles));
    const decision d = { .s = s,
                         .kept = kept,
                         .lists = lists,
                         .norms = key_norms_of(norms),
                         .ahead = key_norms_of(ahead),
                         .eps = (float)eps,
                         .queries = block_queries,
                         .keys = block_keys,
                         .blocks = (int)ceil_div(s.Lq, block_queries) };
    DISPATCH(a->q.type, T, return decide<T>(c, a, d));
}
