// sinks.cu - the first keys of a sequence, added to what attention in a window has found
//
//   s(i, j) = gain(i' - j) scale q'_i . k_j + bias(h, i', j)
//   lse' = log(exp(lse) + sum_j exp(s(i, j))),   p(i, j) = exp(s(i, j) - lse')
//   y' = exp(lse - lse') y + sum_j m p v_j,   m the mask of dropout
//   ds = gain p (m dy . v_j - dy . y'),   dk_j += scale ds q',   dv_j += m p dy,
//   dq' += scale ds k_j;   a bias with a gain has no gradient, so all of it may have the factor
//
//   forward_kernel    a query of a head per warp, lanes along D; lane j holds the weight of sink j
//   queries_kernel    the same for dq; it leaves m p and ds for the next two
//   keys_kernel       a sink of a key/value head per block: dk and dv, warps along the queries
//   bias_kernel       a head per block: the gradient of its bias
//
// All sums have a fixed order.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/rotary.cuh"

namespace
{

enum { WARPS = 8 };
static_assert(SINKS_MAX <= 32, "a lane holds the weight of one sink");

template <class T> struct sinks_params {
    heads<const T> q, k, v, dy;
    heads<T> y, dq, dk, dv;
    float *lse;
    float *weights, *ds; // [B, H, n, Lq]: m p and ds
    struct attention_shape s;
    struct angles rotation;
    const float *farthest; // the row of position window + sinks - 1
    struct ragged_rows ragged;
    struct weight_mask mask;
    int64_t start;
    int sinks, n; // n <= sinks: keys that are here

    __device__ __forceinline__ int64_t kept(int b, int h, int j, int i) const
    {
        return (((int64_t)b * s.H + h) * n + j) * s.Lq + i;
    }
};

// One query of one head.
struct query {
    int b, h, i, slot, kv, from, to, seen; // its position, i', and the sinks that it sees

    template <class T>
    __device__ __forceinline__ query(const sinks_params<T> &p, int batch, int head, int row)
    {
        b = batch;
        h = head;
        i = row;
        slot = p.ragged.slot_of(b);
        kv = p.s.key_head(h);
        from = p.ragged.length ? p.ragged.length[b] - 1 : (int)p.start + i;
        to = min(from, p.s.window + p.sinks - 1);
        seen = min(max(from - p.s.window + 1, 0), p.n);
    }
};

// The factor cosine + i sine that takes pair n from the query's position to i', the farthest one.
template <class T>
__device__ __forceinline__ float2 rotation_between(const sinks_params<T> &p, const query &w, int n)
{
    const float *from = p.rotation.table + (int64_t)(p.ragged.length ? w.b : w.i) * p.s.D,
                *to = p.farthest;
    const float c = from[n], s = from[p.s.D / 2 + n], C = to[n], S = to[p.s.D / 2 + n];
    const float size = 1.0f / (c * c + s * s);

    return make_float2((C * c + S * s) * size, (S * c - C * s) * size);
}

// Element d of x [D] after that rotation; sign -1: after its transpose.
template <class T, class X>
__device__ __forceinline__ float rotated(const sinks_params<T> &p, const query &w, const X *x,
                                         int d, float sign)
{
    const int half = p.s.D / 2;

    if (!p.rotation.table || w.from == w.to)
        return to_float(x[d]);
    const bool second = p.rotation.halves ? d >= half : d & 1;
    const int n = !p.rotation.halves ? d / 2 : second ? d - half : d;
    const int partner = p.rotation.halves ? (second ? d - half : d + half) : d ^ 1;
    const float2 t = rotation_between(p, w, n);

    return t.x * to_float(x[d]) + (second ? sign : -sign) * t.y * to_float(x[partner]);
}

// q [D] <- q'. Lane j gets the score of sink j, the lanes without one -infinity.
template <class T>
__device__ __forceinline__ float find_scores(const sinks_params<T> &p, const query &w, float *q)
{
    const int lane = threadIdx.x % 32;
    const T *given = p.q.row(w.b, w.i, w.h);
    float score = -INFINITY;

    for (int d = lane; d < p.s.D; d += 32)
        q[d] = rotated(p, w, given, d, 1.0f);
    __syncwarp();
    for (int j = 0; j < w.seen; j++) {
        const T *key = p.k.row(w.slot, j, w.kv);
        float sum = 0.0f;
        for (int d = lane; d < p.s.D; d += 32)
            sum = fmaf(q[d], to_float(key[d]), sum);
        sum = warp_sum(sum);
        if (lane == j)
            score = fmaf(p.s.gain(w.to - j) * p.s.scale, sum, p.s.bias(w.b, w.h, w.to - j));
    }
    return score;
}

template <class T>
__device__ __forceinline__ float mask_at(const sinks_params<T> &p, const query &w, int j)
{
    return j < w.seen ? p.mask.factor((int64_t)w.b * p.s.H + w.h, w.i, j) : 0.0f;
}

// The row of this warp; its numbers are in shared memory.
__device__ __forceinline__ int64_t warp_row(float **numbers, int per_warp)
{
    const int warp = threadIdx.x / 32;

    *numbers = dynamic_shared<float>() + warp * per_warp;
    return (int64_t)blockIdx.x * WARPS + warp;
}

template <class T>
__global__ void __launch_bounds__(32 * WARPS)
    forward_kernel(const __grid_constant__ sinks_params<T> p)
{
    const attention_shape &s = p.s;
    float *q;
    const int64_t row = warp_row(&q, s.D);
    const int lane = threadIdx.x % 32;

    if (row >= (int64_t)s.B * s.H * s.Lq)
        return;
    const query w(p, (int)(row / s.Lq / s.H), (int)(row / s.Lq % s.H), (int)(row % s.Lq));
    if (w.seen == 0)
        return;
    const float score = find_scores(p, w, q), before = p.lse[row];
    const float most = fmaxf(before, warp_max(score)), own = expf(before - most);
    const float weight = expf(score - most), sum = own + warp_sum(weight);
    const float share = weight / sum * mask_at(p, w, lane);
    T *y = p.y.row(w.b, w.i, w.h);
    for (int base = 0; base < s.D; base += 32) {
        const int d = base + lane;
        float o = d < s.D ? own / sum * to_float(y[d]) : 0.0f;
        for (int j = 0; j < w.seen; j++) {
            const float factor = __shfl_sync(0xffffffffu, share, j);
            if (d < s.D)
                o = fmaf(factor, to_float(p.v.row(w.slot, j, w.kv)[d]), o);
        }
        if (d < s.D)
            y[d] = from_float<T>(o);
    }
    if (lane == 0)
        p.lse[row] = most + logf(sum);
}

// ---- backward

template <class T>
__global__ void __launch_bounds__(32 * WARPS)
    queries_kernel(const __grid_constant__ sinks_params<T> p)
{
    const attention_shape &s = p.s;
    float *q, delta = 0.0f, ds = 0.0f;
    const int64_t row = warp_row(&q, s.D);
    const int lane = threadIdx.x % 32;

    if (row >= (int64_t)s.B * s.H * s.Lq)
        return;
    const query w(p, (int)(row / s.Lq / s.H), (int)(row / s.Lq % s.H), (int)(row % s.Lq));
    if (w.seen == 0)
        return;
    const T *dy = p.dy.row(w.b, w.i, w.h), *y = p.y.row(w.b, w.i, w.h);
    const float weight = expf(find_scores(p, w, q) - p.lse[row]), mask = mask_at(p, w, lane);
    for (int d = lane; d < s.D; d += 32)
        delta = fmaf(to_float(dy[d]), to_float(y[d]), delta);
    delta = warp_sum(delta);
    for (int j = 0; j < w.seen; j++) {
        const T *value = p.v.row(w.slot, j, w.kv);
        float dp = 0.0f;
        for (int d = lane; d < s.D; d += 32)
            dp = fmaf(to_float(dy[d]), to_float(value[d]), dp);
        dp = warp_sum(dp);
        if (lane == j)
            ds = weight * fmaf(mask, dp, -delta) * p.s.gain(w.to - j);
    }
    if (lane < w.seen) {
        p.weights[p.kept(w.b, w.h, lane, w.i)] = mask * weight;
        p.ds[p.kept(w.b, w.h, lane, w.i)] = ds;
    }
    // dq' takes the place of q', and is rotated back into dq.
    for (int base = 0; base < s.D; base += 32) {
        const int d = base + lane;
        float sum = 0.0f;
        for (int j = 0; j < w.seen; j++) {
            const float factor = __shfl_sync(0xffffffffu, ds, j);
            if (d < s.D)
                sum = fmaf(factor, to_float(p.k.row(w.slot, j, w.kv)[d]), sum);
        }
        if (d < s.D)
            q[d] = s.scale * sum;
    }
    __syncwarp();
    T *dq = p.dq.row(w.b, w.i, w.h);
    for (int d = lane; d < s.D; d += 32)
        dq[d] = from_float<T>(to_float(dq[d]) + rotated(p, w, q, d, -1.0f));
}

// dk and dv of sink j, over all queries of all heads that read it.
template <class T>
__global__ void __launch_bounds__(32 * WARPS) keys_kernel(const __grid_constant__ sinks_params<T> p)
{
    __shared__ float sums[2][WARPS][32];
    const attention_shape &s = p.s;
    const int j = blockIdx.x % p.n, kv = blockIdx.x / p.n % s.Hkv, b = blockIdx.x / p.n / s.Hkv;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = s.H / s.Hkv;
    const int first = max(0, s.window + j - (int)p.start); // query for which it is a sink

    for (int base = 0; base < s.D; base += 32) {
        const int d = base + lane;
        float dk = 0.0f, dv = 0.0f;
        for (int h = kv * group; h < (kv + 1) * group && d < s.D; h++)
            for (int i = first + warp; i < s.Lq; i += WARPS) {
                const query w(p, b, h, i);
                dk = fmaf(p.ds[p.kept(b, h, j, i)], rotated(p, w, p.q.row(b, i, h), d, 1.0f), dk);
                dv = fmaf(p.weights[p.kept(b, h, j, i)], to_float(p.dy.row(b, i, h)[d]), dv);
            }
        sums[0][warp][lane] = dk;
        sums[1][warp][lane] = dv;
        __syncthreads();
        if (warp < 2 && d < s.D) {
            T *to = (warp == 0 ? p.dk : p.dv).row(b, j, kv) + d;
            float sum = 0.0f;
            for (int n = 0; n < WARPS; n++)
                sum += sums[warp][n][lane];
            *to = from_float<T>(fmaf(warp == 0 ? s.scale : 1.0f, sum, to_float(*to)));
        }
        __syncthreads();
    }
}

// dbias of head h. Distance window + n occurs at sink j for query window + j + n (one per sequence)
// and, for j = sinks - 1 - n, at every query from window + sinks - 1 on.
template <class T>
__global__ void __launch_bounds__(256)
    bias_kernel(const __grid_constant__ sinks_params<T> p, float *dbias)
{
    const attention_shape &s = p.s;
    const int h = blockIdx.x, last = s.window + p.sinks - 1 - (int)p.start;

    for (int n = 0; n < p.sinks; n++) {
        const int far = p.sinks - 1 - n, distance = s.window + n;
        float sum = 0.0f;
        for (int b = 0; b < s.B; b++) {
            for (int j = threadIdx.x; j < min(far, p.n); j += blockDim.x) {
                const int i = s.window + j + n - (int)p.start;
                if (i >= 0 && i < s.Lq)
                    sum += p.ds[p.kept(b, h, j, i)];
            }
            for (int i = max(last, 0) + threadIdx.x; far < p.n && i < s.Lq; i += blockDim.x)
                sum += p.ds[p.kept(b, h, far, i)];
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0 && s.kind == BIAS_LINEAR)
            dbias[h] -= sum * (float)distance;
        else if (threadIdx.x == 0)
            dbias[(int64_t)h * s.T + min(distance, s.T - 1)] += sum;
    }
}

// ---- host

template <class T> sinks_params<T> params_of(const struct sinks_args *a)
{
    // Sizes and bias as attention has them; the keys of the window are not here.
    struct attention_args shape = {};
    sinks_params<T> p = {};

    shape.q = a->q;
    shape.k = a->k;
    shape.bias = a->bias;
    shape.scale = a->scale;
    p.q = heads_of<const T>(a->q);
    p.k = heads_of<const T>(a->k);
    p.v = heads_of<const T>(a->v);
    p.dy = heads_of<const T>(a->dy);
    p.y = heads_of<T>(a->y);
    p.dq = heads_of<T>(a->dq);
    p.dk = heads_of<T>(a->dk);
    p.dv = heads_of<T>(a->dv);
    p.lse = (float *)a->lse.data;
    p.s = attention_shape_of(&shape);
    p.s.window = (int)a->window;
    p.rotation = angles_of(a->rotation);
    p.farthest = (const float *)a->farthest.data;
    p.ragged = ragged_rows_of(a->ragged);
    p.mask = weight_mask_of(a->dropout, a->q.shape[1]);
    p.start = a->start;
    p.sinks = (int)a->sinks;
    p.n = (int)a->k.shape[1];
    return p;
}

template <class T> alibi_status forward(struct context *c, const struct sinks_args *a)
{
    const sinks_params<T> p = params_of<T>(a);
    const int64_t rows = (int64_t)p.s.B * p.s.H * p.s.Lq;

    if (rows == 0 || p.n == 0)
        return ALIBI_OK;
    return launch(c, "sinks", forward_kernel<T>, (unsigned)ceil_div(rows, WARPS), 32 * WARPS,
                  WARPS * p.s.D * sizeof(float), p);
}

// The room for dQ of attention backward is free, and has at least 2 SINKS_MAX numbers for each
// query.
template <class T> alibi_status backward(struct context *c, const struct sinks_args *a)
{
    sinks_params<T> p = params_of<T>(a);
    const int64_t rows = (int64_t)p.s.B * p.s.H * p.s.Lq;
    const int64_t factors[] = { rows, p.n, 2, (int64_t)sizeof(float) };

    if (rows == 0 || p.n == 0)
        return ALIBI_OK;
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_QUERIES, factors, 4, (void **)&p.weights));
    p.ds = p.weights + rows * p.n;
    TRY_RETURN(launch(c, "sinks backward", queries_kernel<T>, (unsigned)ceil_div(rows, WARPS),
                      32 * WARPS, WARPS * p.s.D * sizeof(float), p));
    TRY_RETURN(launch(c, "sinks backward", keys_kernel<T>, (unsigned)(p.s.B * p.s.Hkv * p.n),
                      32 * WARPS, 0, p));
    if (!a->dbias.data || p.s.kind == BIAS_NONE)
        return ALIBI_OK;
    return launch(c, "sinks backward", bias_kernel<T>, (unsigned)p.s.H, 256, 0, p,
                  (float *)a->dbias.data);
}

} // namespace

alibi_status cuda_sinks_forward(struct device *dev, const struct sinks_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "sinks");
    DISPATCH(a->q.type, T, return forward<T>(c, a));
}

alibi_status cuda_sinks_backward(struct device *dev, const struct sinks_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "sinks");
    DISPATCH(a->q.type, T, return backward<T>(c, a));
}
