// logn.cu - queries by the logarithm of how many keys they see
//
//   y = factor[h] ln(max(n, 2)) x,      dx = factor[h] ln(max(n, 2)) dy
//   dfactor[h] += sum ln(max(n, 2)) dy . x
//
// or y = (1 + temperature ln(max(1, n / length))) x.
//
// Forward: a block has one position of one sequence, a thread takes N numbers of a head. Backward:
// a block has a head and a slice of the rows, which its warps take in turns; it writes the sum of
// its slice, and a second kernel adds the slices in order.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/heads.cuh"

namespace
{

enum { THREADS = 128 };

template <class T> struct logn_params {
    heads<T> y, x, dy, dx;
    const float *factor; // absent: y is x with a temperature
    float temperature, per_length;
    const int32_t *length; // ragged: row b is at position length[b] - 1, and L is 1
    int64_t rows, L, start, window;
    int H, D;

    __device__ __forceinline__ T *head(const heads<T> &v, int64_t row, int h) const
    {
        return v.row(row / L, row % L, h);
    }

    // The factor of a row, the same for all heads.
    __device__ __forceinline__ float row_factor(int64_t row) const
    {
        const int64_t position = length ? length[row / L] - 1 : start + row % L;
        const int64_t seen = window > 0 && position >= window ? window : position + 1;
        const float keys = (float)(seen < 2 ? 2 : seen);

        return factor ? logf(keys) : 1.0f + temperature * logf(fmaxf(1.0f, keys * per_length));
    }
};

template <class T, int N>
__global__ void __launch_bounds__(THREADS) forward_kernel(struct logn_params<T> p)
{
    const int64_t row = blockIdx.x;
    const int per_head = p.D / N;
    const float all = p.row_factor(row);

    for (int item = (int)threadIdx.x; item < p.H * per_head; item += THREADS) {
        const int h = item / per_head, d = item % per_head * N;
        const float times = p.factor ? p.factor[h] * all : all;
        float x[N];

        load<N>(x, p.head(p.x, row, h) + d);
#pragma unroll
        for (int n = 0; n < N; n++)
            x[n] *= times;
        store<N>(p.head(p.y, row, h) + d, x);
    }
}

// partials [slices, H]; block (head, slice).
template <class T, int N>
__global__ void __launch_bounds__(LANES *WARPS)
    backward_kernel(struct logn_params<T> p, float *partials, int64_t slice_rows)
{
    const int h = (int)blockIdx.x, lane = (int)threadIdx.x % LANES;
    const int64_t first = (int64_t)blockIdx.y * slice_rows;
    const int64_t end = min(first + slice_rows, p.rows);
    float sum = 0.0f;

    for (int64_t row = first + threadIdx.x / LANES; row < end; row += WARPS) {
        const float ln = p.row_factor(row), times = p.factor[h] * ln;
        const T *x = p.head(p.x, row, h), *dy = p.head(p.dy, row, h);
        T *dx = p.head(p.dx, row, h);
        float dot = 0.0f;

        for (int d = lane * N; d < p.D; d += LANES * N) {
            float a[N], g[N];

            load<N>(a, x + d);
            load<N>(g, dy + d);
#pragma unroll
            for (int n = 0; n < N; n++) {
                dot += g[n] * a[n];
                g[n] *= times;
            }
            store<N>(dx + d, g);
        }
        sum += ln * dot;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partials[(int64_t)blockIdx.y * gridDim.x + h] = sum;
}

template <class T> struct logn_params<T> params_of(const struct logn_args *a) {
    return { .y = heads_of<T>(a->y),
             .x = heads_of<T>(a->x),
             .dy = heads_of<T>(a->dy),
             .dx = heads_of<T>(a->dx),
             .factor = (const float *)a->factor.data,
             .temperature = (float)a->temperature,
             .per_length = a->length > 0 ? 1.0f / (float)a->length : 1.0f,
             .length = (const int32_t *)a->ragged.length.data,
             .rows = a->x.shape[0] * a->x.shape[1],
             .L = a->x.shape[1],
             .start = a->start,
             .window = a->window,
             .H = (int)a->x.shape[2],
             .D = (int)a->x.shape[3] };
}

template <class T>
alibi_status forward(struct context *c, const struct logn_args *a)
{
    constexpr int N = pack<T>::N;
    const struct logn_params<T> p = params_of<T>(a);
    const auto kernel = fits(p.x, p.y, p.D, N) ? forward_kernel<T, N> : forward_kernel<T, 1>;

    if (p.rows == 0 || p.H == 0)
        return ALIBI_OK;
    return launch(c, "logn", kernel, dim3((unsigned)p.rows), dim3(THREADS), 0, p);
}

template <class T> alibi_status backward(struct context *c, const struct logn_args *a)
{
    const struct logn_params<T> p = params_of<T>(a);
    const auto kernel = fits(p.x, p.dy, p.D, 2) && fits(p.x, p.dx, p.D, 2) ? backward_kernel<T, 2>
                                                                           : backward_kernel<T, 1>;
    float *partials = NULL;

    if (p.rows == 0 || p.H == 0)
        return ALIBI_OK;
    const int64_t slice_rows = slice_rows_of(p.rows, p.H, MULTIPROCESSORS * MOST_BLOCKS),
                  slices = ceil_div(p.rows, slice_rows);
    const int64_t factors[] = { slices, p.H, (int64_t)sizeof(float) };
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_SUMS, factors, 3, (void **)&partials));
    TRY_RETURN(launch(c, "logn backward", kernel, dim3((unsigned)p.H, (unsigned)slices),
                      dim3(LANES * WARPS), 0, p, partials, slice_rows));
    return cuda_add_partials(c, (float *)a->dfactor.data, NULL, partials, slices, p.H);
}

} // namespace

alibi_status cuda_logn_forward(struct device *dev, const struct logn_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "logn");
    DISPATCH(a->x.type, T, return forward<T>(c, a));
}

alibi_status cuda_logn_backward(struct device *dev, const struct logn_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "logn");
    DISPATCH(a->x.type, T, return backward<T>(c, a));
}
