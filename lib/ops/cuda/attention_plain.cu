// attention_plain.cu - attention for any type and size, one row per warp
//
// Not fast: for fp32, where results are compared with the CPU, and for calls that the kernels of
// tensor cores do not serve. A warp takes 32 keys (or queries) at a time, one score per lane, and
// then adds vectors with its lanes along D:
//
//   forward_kernel    a query per warp: online softmax over the keys, nearest first
//   queries_kernel    a query per warp: dQ, and its part of the gradient of the slope
//   keys_kernel       a key per warp: dK and dV, over all queries of all heads that read it, and
//                     for each head the gradient of its gates
//   slopes_kernel, table_kernel    the gradient of the bias, in a fixed order
#include "ops/cuda/attention.cuh"

namespace
{

enum { WARPS = 4 };

template <class T> struct plain_params {
    heads<const T> q, k, v, dy;
    heads<T> y, dq, dk, dv;
    float *lse;
    const float *delta;
    float *slopes; // like lse: parts of the gradients of the slopes; or NULL
    float *dgates; // [B, G, Lk]; or NULL
    struct attention_shape s;
    struct kept_tiles kept;
    struct weight_mask mask;
};

template <class T> __device__ __forceinline__ float dot(const T *a, const T *b, int D)
{
    float sum = 0.0f;

    for (int d = 0; d < D; d++)
        sum = fmaf(to_float(a[d]), to_float(b[d]), sum);
    return sum;
}

// The bits of query i; NULL: all tiles are used.
template <class T>
__device__ __forceinline__ const uint32_t *kept_row(const plain_params<T> &c, int b, int h, int i)
{
    return c.kept.bits ? c.kept.row((int64_t)b * c.s.H + h, i / ATTENTION_TILE) : NULL;
}

// Query i and key j are counted within sequence n, which is number b.
template <class T>
__device__ __forceinline__ float score(const plain_params<T> &c, const struct sequence &n, int b,
                                       int h, int i, int j)
{
    return c.s.gain(n.past() + i - j) * c.s.scale *
               dot(c.q.row(b, n.q + i, h), c.k.row(b, n.k + j, c.s.key_head(h)), c.s.D) +
           c.s.bias(b, b, h, n.past() + i, j);
}

// P after dropout, and dS, of one pair, for the backward pass. dS has the factor on q . k, which
// dQ and dK need; the bias with a factor has no gradient of its own.
template <class T>
__device__ __forceinline__ void pair(const plain_params<T> &c, const struct sequence &n, int b,
                                     int h, int i, int j, float *p, float *ds)
{
    int64_t row = c.s.row(b, h, n.q + i);
    float factor = c.mask.factor((int64_t)b * c.s.H + h, i, j),
          weight = expf(score(c, n, b, h, i, j) - c.lse[row]);
    float dp = dot(c.dy.row(b, n.q + i, h), c.v.row(b, n.k + j, c.s.key_head(h)), c.s.D);

    *p = factor * weight;
    *ds = weight * fmaf(factor, dp, -c.delta[row]) * c.s.gain(i - j);
}

// sums[d] = shrink * sums[d] + sum over n of weight_n * rows[first + n][d], lanes along D. Lane n
// holds weight_n.
template <class T>
__device__ __forceinline__ void add_rows(float *sums, float shrink, float weight,
                                         heads<const T> rows, int b, int h, int first, int count,
                                         int D)
{
    for (int base = 0; base < D; base += 32) {
        int d = base + threadIdx.x % 32;
        float sum = d < D ? shrink * sums[d] : 0.0f;
        for (int n = 0; n < count; n++) {
            float w = __shfl_sync(0xffffffffu, weight, n);
            if (d < D)
                sum = fmaf(w, to_float(rows.row(b, first + n, h)[d]), sum);
        }
        if (d < D)
            sums[d] = sum;
    }
}

template <class T> __device__ __forceinline__ void clear(float *sums, int D)
{
    for (int d = threadIdx.x % 32; d < D; d += 32)
        sums[d] = 0.0f;
}

template <class T>
__device__ __forceinline__ void store_row(T *to, const float *sums, float factor, int D)
{
    for (int d = threadIdx.x % 32; d < D; d += 32)
        to[d] = from_float<T>(factor * sums[d]);
}

// The number of this warp's row; its sums are in shared memory.
__device__ __forceinline__ int64_t warp_row(float **sums, int per_warp)
{
    int warp = threadIdx.x / 32;

    *sums = dynamic_shared<float>() + warp * per_warp;
    return (int64_t)blockIdx.x * WARPS + warp;
}

template <class T> __global__ void forward_kernel(const __grid_constant__ plain_params<T> c)
{
    const attention_shape &s = c.s;
    float *o, m = -INFINITY, l = 0.0f;
    int64_t row = warp_row(&o, s.D);
    int i = (int)(row % s.Lq), h = (int)(row / s.Lq % s.H), b = (int)(row / s.Lq / s.H),
        lane = threadIdx.x % 32;

    if (row >= (int64_t)s.B * s.H * s.Lq)
        return;
    const struct sequence n = s.sequence_of(b);
    if (i >= n.Lq)
        return;
    const uint32_t *kept = kept_row(c, b, h, i);
    int keys = n.past() + i + 1, first = s.first_key(keys - 1);
    clear<T>(o, s.D);
    for (int j = (keys - 1) / 32 * 32; j + 32 > first; j -= 32) {
        if (!tile_is_kept(kept, j / ATTENTION_TILE))
            continue;
        int count = min(32, keys - j);
        float x = lane < count && j + lane >= first ? score(c, n, b, h, i, j + lane) : -INFINITY;
        float most = fmaxf(m, warp_max(x)), shrink = expf(m - most), weight = expf(x - most);
        l = fmaf(l, shrink, warp_sum(weight));
        m = most;
        weight *= c.mask.factor((int64_t)b * s.H + h, i, j + lane);
        add_rows(o, shrink, weight, c.v, b, s.key_head(h), n.k + j, count, s.D);
    }
    store_row(c.y.row(b, n.q + i, h), o, 1.0f / l, s.D);
    if (lane == 0)
        c.lse[s.row(b, h, n.q + i)] = m + logf(l);
}

// dQ of one query.
template <class T> __global__ void queries_kernel(const __grid_constant__ plain_params<T> c)
{
    const attention_shape &s = c.s;
    float *sums, slope = 0.0f;
    int64_t row = warp_row(&sums, s.D);
    int i = (int)(row % s.Lq), h = (int)(row / s.Lq % s.H), b = (int)(row / s.Lq / s.H),
        lane = threadIdx.x % 32;

    if (row >= (int64_t)s.B * s.H * s.Lq)
        return;
    const struct sequence n = s.sequence_of(b);
    if (i >= n.Lq)
        return;
    const uint32_t *kept = kept_row(c, b, h, i);
    int first = s.first_key(i);
    clear<T>(sums, s.D);
    for (int j = first / 32 * 32; j <= i; j += 32) {
        if (!tile_is_kept(kept, j / ATTENTION_TILE))
            continue;
        int count = min(32, i + 1 - j);
        float p, ds = 0.0f;
        if (lane < count && j + lane >= first)
            pair(c, n, b, h, i, j + lane, &p, &ds);
        slope = fmaf(ds, (float)(j + lane - i), slope);
        add_rows(sums, 1.0f, ds, c.k, b, s.key_head(h), n.k + j, count, s.D);
    }
    store_row(c.dq.row(b, n.q + i, h), sums, s.scale, s.D);
    slope = warp_sum(slope);
    if (c.slopes && lane == 0)
        c.slopes[s.row(b, h, n.q + i)] = slope;
}

// dK and dV of one key, over all queries of all heads that read it.
template <class T> __global__ void keys_kernel(const __grid_constant__ plain_params<T> c)
{
    const attention_shape &s = c.s;
    float *sums;
    int64_t row = warp_row(&sums, 2 * s.D);
    int j = (int)(row % s.Lk), kv = (int)(row / s.Lk % s.Hkv), b = (int)(row / s.Lk / s.Hkv),
        lane = threadIdx.x % 32;
    int group = s.H / s.Hkv;

    if (row >= (int64_t)s.B * s.Hkv * s.Lk)
        return;
    const struct sequence n = s.sequence_of(b);
    const int end = min(n.Lq, j + s.window); // of the queries that see the key
    if (j >= n.Lk)
        return;
    // Two calls, so that each lane clears the columns that it adds to.
    clear<T>(sums, s.D);
    clear<T>(sums + s.D, s.D);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        float column = 0.0f;
        for (int i = j; i < end; i += 32) {
            int count = min(32, end - i);
            float p = 0.0f, ds = 0.0f;
            if (lane < count && tile_is_kept(kept_row(c, b, h, i + lane), j / ATTENTION_TILE))
                pair(c, n, b, h, i + lane, j, &p, &ds);
            add_rows(sums, 1.0f, ds, c.q, b, h, n.q + i, count, s.D);
            add_rows(sums + s.D, 1.0f, p, c.dy, b, h, n.q + i, count, s.D);
            column += ds;
        }
        column = warp_sum(column);
        if (c.dgates && h < s.G && lane == 0)
            c.dgates[((int64_t)b * s.G + h) * s.Lk + j] = -column;
    }
    store_row(c.dk.row(b, n.k + j, kv), sums, s.scale, s.D);
    store_row(c.dv.row(b, n.k + j, kv), sums + s.D, 1.0f, s.D);
}

// dslopes[h] += the rows' parts: a block per head.
__global__ void slopes_kernel(float *dslopes, const float *rows, int B, int H, int L)
{
    int h = blockIdx.x;
    float sum = 0.0f;

    for (int64_t n = threadIdx.x; n < (int64_t)B * L; n += blockDim.x)
        sum += rows[(n / L * H + h) * L + n % L];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        dslopes[h] += sum;
}

// The same sequence by sequence, where they are packed or have slopes of their own: a block per
// head of slopes.
__global__ void sequence_slopes_kernel(float *dslopes, const float *rows, attention_shape s)
{
    const int h = blockIdx.x % s.H, b = blockIdx.x / s.H;
    float sum = 0.0f;

    for (int each = b; each < (s.slopes_row ? b + 1 : s.B); each++) {
        const struct sequence n = s.sequence_of(each);
        for (int i = threadIdx.x; i < n.Lq; i += blockDim.x)
            sum += rows[s.row(each, h, n.q + i)];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        dslopes[blockIdx.x] += sum;
}

// dtable[h, t] += dS of the pairs at distance t, for the last entry at t and beyond: a block per
// entry, threads along the queries.
template <class T>
__global__ void table_kernel(const __grid_constant__ plain_params<T> c, float *dtable)
{
    const attention_shape &s = c.s;
    int t = blockIdx.x, h = blockIdx.y;
    float sum = 0.0f;

    for (int b = 0; b < s.B; b++)
        for (int i = t + threadIdx.x; i < s.Lq; i += blockDim.x) {
            const uint32_t *kept = kept_row(c, b, h, i);
            for (int j = max(t < s.T - 1 ? i - t : 0, s.first_key(i)); j <= i - t; j++) {
                float p, ds = 0.0f;
                if (tile_is_kept(kept, j / ATTENTION_TILE))
                    pair(c, s.sequence_of(b), b, h, i, j, &p, &ds);
                sum += ds;
            }
        }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        dtable[h * s.T + t] += sum;
}

// ---- host

unsigned blocks_for(int64_t rows)
{
    return (unsigned)ceil_div(rows, WARPS);
}

template <class T>
plain_params<T> params_of(const struct attention_args *a, const float *delta,
                          struct kept_tiles kept)
{
    return { .q = heads_of<const T>(a->q),
             .k = heads_of<const T>(a->k),
             .v = heads_of<const T>(a->v),
             .dy = heads_of<const T>(a->dy),
             .y = heads_of<T>(a->y),
             .dq = heads_of<T>(a->dq),
             .dk = heads_of<T>(a->dk),
             .dv = heads_of<T>(a->dv),
             .lse = (float *)a->lse.data,
             .delta = delta,
             .s = attention_shape_of(a),
             .kept = kept,
             .mask = weight_mask_of(a->dropout, a->k.shape[1]) };
}

template <class T>
alibi_status forward(struct context *c, const struct attention_args *a, struct kept_tiles kept)
{
    plain_params<T> p = params_of<T>(a, NULL, kept);
    int64_t rows = (int64_t)p.s.B * p.s.H * p.s.Lq;

    return launch(c, "attention forward", forward_kernel<T>, blocks_for(rows), 32 * WARPS,
                  WARPS * p.s.D * sizeof(float), p);
}

template <class T>
alibi_status backward(struct context *c, const struct attention_args *a, const float *delta,
                      struct kept_tiles kept)
{
    plain_params<T> p = params_of<T>(a, delta, kept);
    const attention_shape &s = p.s;
    int64_t rows = (int64_t)s.B * s.H * s.Lq, keys = (int64_t)s.B * s.Hkv * s.Lk;
    const int64_t slopes[] = { a->q.shape[0], s.H, a->q.shape[1], (int64_t)sizeof(float) };
    size_t shared = WARPS * s.D * sizeof(float);
    float *dbias = (float *)a->dbias.data;

    p.dgates = s.kind == BIAS_GATE ? dbias : NULL;
    if (dbias && s.kind == BIAS_LINEAR)
        TRY_RETURN(cuda_scratch_for(c, SCRATCH_BIAS, slopes, 4, (void **)&p.slopes));
    TRY_RETURN(launch(c, "attention backward", queries_kernel<T>, blocks_for(rows), 32 * WARPS,
                      shared, p));
    TRY_RETURN(launch(c, "attention backward", keys_kernel<T>, blocks_for(keys), 32 * WARPS,
                      2 * shared, p));
    if (!learns_bias(a))
        return ALIBI_OK;
    if (s.kind == BIAS_TABLE)
        return launch(c, "attention backward", table_kernel<T>, dim3((unsigned)s.T, (unsigned)s.H),
                      256, 0, p, dbias);
    if (s.packed.q || s.slopes_row)
        return launch(c, "attention backward", sequence_slopes_kernel,
                      s.slopes_row ? s.B * s.H : s.H, 256, 0, dbias, (const float *)p.slopes, s);
    return launch(c, "attention backward", slopes_kernel, s.H, 256, 0, dbias,
                  (const float *)p.slopes, s.B, s.H, s.Lq);
}

} // namespace

alibi_status forward_plain(struct context *c, const struct attention_args *a,
                           struct kept_tiles kept)
{
    DISPATCH(a->y.type, T, return forward<T>(c, a, kept));
}

alibi_status backward_plain(struct context *c, const struct attention_args *a, const float *delta,
                            struct kept_tiles kept)
{
    DISPATCH(a->dy.type, T, return backward<T>(c, a, delta, kept));
}
