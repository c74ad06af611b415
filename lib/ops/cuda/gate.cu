// gate.cu - running sums of log gates (forgetting attention)
//
//   c[l] = c[l - 1] + log f(x_l),     x = z + bias,     log f(x) = -ln(1 + e^-x)
//   dz_l = (1 - f(x_l)) sum_{j >= l} dc_j,     1 - f(x) = 1 / (1 + e^x)
//
// A block per head of a sequence. Its threads take one position each, scan them, and carry the sum
// to the next ones; backward begins with the last positions. Sums are in double, in a fixed order.
#include "ops/cuda/columns.cuh"

namespace
{

enum { MOST_THREADS = 256 };

// The sum of x over this thread and those before it; *total: over all threads of the block.
__device__ __forceinline__ double block_scan(double x, double *total)
{
    __shared__ double of_warp[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double before = 0.0;

#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, x, step);
        x += lane >= step ? other : 0.0;
    }
    if (lane == 31)
        of_warp[warp] = x;
    __syncthreads();
    *total = 0.0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) {
        before += w < warp ? of_warp[w] : 0.0;
        *total += of_warp[w];
    }
    __syncthreads(); // the next call may overwrite of_warp
    return before + x;
}

template <class T> struct gate_params {
    const T *z;
    const float *bias;
    int64_t L; // rows of a sequence
    int G;

    __device__ __forceinline__ float argument(int64_t b, int h, int64_t l) const
    {
        return to_float(z[(b * L + l) * G + h]) + bias[h];
    }
};

// e^-|x| cannot overflow.
__device__ __forceinline__ float log_gate(float x)
{
    return fminf(x, 0.0f) - log1pf(expf(-fabsf(x)));
}

struct sums {
    float *at;
    int64_t plane, row, head; // strides
};

template <class T>
__global__ void __launch_bounds__(MOST_THREADS)
    forward_kernel(struct gate_params<T> p, struct sums c, struct ragged_rows ragged, int64_t past)
{
    const int h = (int)blockIdx.x % p.G, b = (int)blockIdx.x / p.G;
    const int64_t from = ragged.length ? ragged.length[b] - 1 : past;
    float *sum = c.at + ragged.slot_of(b) * c.row + h * c.head + from, *rest = sum + c.plane;
    double carry = from > 0 ? (double)sum[-1] + (double)rest[-1] : 0.0;

    for (int64_t first = 0; first < p.L; first += blockDim.x) {
        const int64_t l = first + threadIdx.x;
        double total, x = carry + block_scan(l < p.L ? log_gate(p.argument(b, h, l)) : 0.0, &total);

        if (l < p.L) {
            sum[l] = (float)x;
            rest[l] = (float)(x - (double)(float)x);
        }
        carry += total;
    }
}

// partials [B, G]: the sum of dz of a sequence. dz may be z.
template <class T>
__global__ void __launch_bounds__(MOST_THREADS)
    backward_kernel(struct gate_params<T> p, T *dz, const float *dc, float *partials)
{
    const int h = (int)blockIdx.x % p.G, b = (int)blockIdx.x / p.G;
    const float *column = dc + (int64_t)blockIdx.x * p.L;
    double carry = 0.0, all = 0.0;

    for (int64_t first = 0; first < p.L; first += blockDim.x) {
        const int64_t l = p.L - 1 - first - threadIdx.x;
        double total, x = carry + block_scan(l >= 0 ? column[l] : 0.0, &total);

        if (l >= 0) {
            const float g = (float)x / (1.0f + expf(p.argument(b, h, l)));
            dz[(b * p.L + l) * p.G + h] = from_float<T>(g);
            all += g;
        }
        carry += total;
    }
    all = block_sum(all);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = (float)all;
}

dim3 threads_for(int64_t L)
{
    return dim3((unsigned)(L < MOST_THREADS ? ceil_div(L, 32) * 32 : (int64_t)MOST_THREADS));
}

template <class T> struct gate_params<T> params_of(const struct gate_args *a, int64_t L) {
    return { (const T *)a->z.data, (const float *)a->bias.data, L, (int)a->z.shape[1] };
}

template <class T>
alibi_status forward(struct context *c, const struct gate_args *a)
{
    const int64_t B = ragged_present(a->ragged) ? a->z.shape[0] : a->c.shape[1], G = a->z.shape[1];
    const int64_t L = B > 0 ? a->z.shape[0] / B : 0;

    if (L == 0 || G == 0)
        return ALIBI_OK;
    return launch(c, "gates", forward_kernel<T>, dim3((unsigned)(B * G)), threads_for(L), 0,
                  params_of<T>(a, L),
                  sums{ (float *)a->c.data, a->c.stride[0], a->c.stride[1], a->c.stride[2] },
                  ragged_rows_of(a->ragged), a->c.shape[3] - L);
}

template <class T> alibi_status backward(struct context *c, const struct gate_args *a)
{
    const int64_t B = a->dc.shape[0], G = a->dc.shape[1], L = a->dc.shape[2];
    const int64_t factors[] = { B, G, (int64_t)sizeof(float) };
    float *partials = NULL;

    if (tensor_count(a->dc) == 0)
        return ALIBI_OK;
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_SUMS, factors, 3, (void **)&partials));
    TRY_RETURN(launch(c, "gates backward", backward_kernel<T>, dim3((unsigned)(B * G)),
                      threads_for(L), 0, params_of<T>(a, L), (T *)a->dz.data,
                      (const float *)a->dc.data, partials));
    return cuda_add_partials(c, (float *)a->dbias.data, NULL, partials, B, G);
}

} // namespace

alibi_status cuda_gate_forward(struct device *dev, const struct gate_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "gates");
    DISPATCH(a->z.type, T, return forward<T>(c, a));
}

alibi_status cuda_gate_backward(struct device *dev, const struct gate_args *a)
{
    struct context *c = cuda_of(dev);

    cuda_part(c, "gates");
    DISPATCH(a->z.type, T, return backward<T>(c, a));
}
