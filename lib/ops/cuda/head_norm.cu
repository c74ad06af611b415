// head_norm.cu - each head by its root mean square
//
//   y = n * weight,     n = x * rstd,     rstd = 1 / sqrt(mean(x^2) + eps)
//   dx = rstd * (g - n * mean(g * n)),    g = dy * weight,     dweight += sum of dy * n
//
// A warp takes a head of a row: lane i its numbers i, i + 32, ... in groups of N. Backward: a block
// has a slice of the heads, which its warps take in turns, and each warp sums its dweight in shared
// memory; a second kernel adds the slices in order. Heads wider than CHUNK numbers take a launch
// for each CHUNK of dweight, and the last one, which has read all of dy, writes dx.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/heads.cuh"

namespace
{

enum { CHUNK = 256, FORWARD_WARPS = 4 };

template <class T> struct head_norm_params {
    heads<T> y, x, dy, dx;
    const float *weight;
    int64_t items, L; // heads of all rows
    int H, D;
    float eps;

    __device__ __forceinline__ T *head(const heads<T> &v, int64_t item) const
    {
        const int64_t row = item / H;

        return v.row(row / L, row % L, item % H);
    }
};

// Calls f(d) for the groups of N numbers d..d+N-1 that belong to this lane.
template <int N, class F> __device__ __forceinline__ void each_group(int D, F f)
{
    for (int d = (int)threadIdx.x % LANES * N; d < D; d += LANES * N)
        f(d);
}

template <class T, int N> __device__ __forceinline__ float rstd_of(const T *x, int D, float eps)
{
    float squares = 0.0f;

    each_group<N>(D, [&](int d) {
        float v[N];

        load<N>(v, x + d);
#pragma unroll
        for (int n = 0; n < N; n++)
            squares += v[n] * v[n];
    });
    return rsqrtf(warp_sum(squares) / (float)D + eps);
}

template <class T, int N>
__global__ void __launch_bounds__(LANES *FORWARD_WARPS) forward_kernel(struct head_norm_params<T> p)
{
    const int64_t item = (int64_t)blockIdx.x * FORWARD_WARPS + threadIdx.x / LANES;

    if (item >= p.items)
        return;
    const T *x = p.head(p.x, item);
    T *y = p.head(p.y, item);
    const float rstd = rstd_of<T, N>(x, p.D, p.eps);

    each_group<N>(p.D, [&](int d) {
        float v[N], weight[N];

        load<N>(v, x + d);
        load<N>(weight, p.weight + d);
#pragma unroll
        for (int n = 0; n < N; n++)
            v[n] = v[n] * rstd * weight[n];
        store<N>(y + d, v);
    });
}

// partials [slices, columns]: of dweight's columns from..from+columns-1.
template <class T, int N>
__global__ void __launch_bounds__(LANES *WARPS)
    backward_kernel(struct head_norm_params<T> p, float *partials, int64_t slice_items, int from,
                    int columns, bool write)
{
    __shared__ float of_warp[WARPS][CHUNK];
    const int warp = (int)threadIdx.x / LANES;
    const int64_t first = (int64_t)blockIdx.x * slice_items;
    const int64_t end = min(first + slice_items, p.items);

    for (int i = (int)threadIdx.x; i < WARPS * CHUNK; i += LANES * WARPS)
        of_warp[i / CHUNK][i % CHUNK] = 0.0f;
    __syncthreads();

    for (int64_t item = first + warp; item < end; item += WARPS) {
        const T *x = p.head(p.x, item), *dy = p.head(p.dy, item);
        const float rstd = rstd_of<T, N>(x, p.D, p.eps);
        float sum = 0.0f;

        each_group<N>(p.D, [&](int d) {
            float v[N], g[N], weight[N];

            load<N>(v, x + d);
            load<N>(g, dy + d);
            load<N>(weight, p.weight + d);
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float gn = g[n] * v[n] * rstd;

                sum += gn * weight[n];
                if (d + n >= from && d + n < from + columns)
                    of_warp[warp][d + n - from] += gn;
            }
        });
        if (!write)
            continue;
        const float mean = warp_sum(sum) / (float)p.D;
        T *dx = p.head(p.dx, item);
        each_group<N>(p.D, [&](int d) {
            float v[N], g[N], weight[N];

            load<N>(v, x + d);
            load<N>(g, dy + d);
            load<N>(weight, p.weight + d);
#pragma unroll
            for (int n = 0; n < N; n++)
                g[n] = rstd * (g[n] * weight[n] - v[n] * rstd * mean);
            store<N>(dx + d, g);
        });
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < columns; i += LANES * WARPS) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += of_warp[w][i];
        partials[(int64_t)blockIdx.x * columns + i] = total;
    }
}

template <class T> struct head_norm_params<T> params_of(const struct head_norm_args *a) {
    return { .y = heads_of<T>(a->y),
             .x = heads_of<T>(a->x),
             .dy = heads_of<T>(a->dy),
             .dx = heads_of<T>(a->dx),
             .weight = (const float *)a->weight.data,
             .items = a->x.shape[0] * a->x.shape[1] * a->x.shape[2],
             .L = a->x.shape[1],
             .H = (int)a->x.shape[2],
             .D = (int)a->x.shape[3],
             .eps = (float)a->eps };
}

// Whether heads of x and of the other view, and the weights, can be accessed two numbers at a time.
template <class T>
bool paired(const struct head_norm_params<T> &p, heads<T> other)
{
    return fits(p.x, other, p.D, 2) && (uintptr_t)p.weight % (2 * sizeof(float)) == 0;
}

template <class T> alibi_status forward(struct context *c, const struct head_norm_args *a)
{
    const struct head_norm_params<T> p = params_of<T>(a);
    const auto kernel = paired(p, p.y) ? forward_kernel<T, 2> : forward_kernel<T, 1>;

    if (p.items == 0)
        return ALIBI_OK;
    return launch(c, "head norm", kernel, dim3((unsigned)ceil_div(p.items, FORWARD_WARPS)),
                  dim3(LANES * FORWARD_WARPS), 0, p);
}

template <class T> alibi_status backward(struct context *c, const struct head_norm_args *a)
{
    const struct head_norm_params<T> p = params_of<T>(a);
    const auto kernel =
        paired(p, p.dy) && paired(p, p.dx) ? backward_kernel<T, 2> : backward_kernel<T, 1>;
    float *partials = NULL;

    if (p.items == 0)
        return ALIBI_OK;
    const int64_t slice_items = slice_rows_of(p.items, 1, MULTIPROCESSORS * MOST_BLOCKS),
                  slices = ceil_div(p.items, slice_items);
    const int64_t factors[] = { slices, CHUNK, (int64_t)sizeof(float) };
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_SUMS, factors, 3, (void **)&partials));
    for (int from = 0; from < p.D; from += CHUNK) {
        const int columns = min(p.D - from, (int)CHUNK);

        TRY_RETURN(launch(c, "head norm backward", kernel, dim3((unsigned)slices),
                          dim3(LANES * WARPS), 0, p, partials, slice_items, from, columns,
                          from + columns == p.D));
        TRY_RETURN(
            cuda_add_partials(c, (float *)a->dweight.data + from, NULL, partials, slices, columns));
    }
    return ALIBI_OK;
}

} // namespace

alibi_status cuda_head_norm_forward(struct device *dev, const struct head_norm_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "head norm");
    DISPATCH(a->x.type, T, return forward<T>(c, a));
}

alibi_status cuda_head_norm_backward(struct device *dev, const struct head_norm_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "head norm");
    DISPATCH(a->x.type, T, return backward<T>(c, a));
}
