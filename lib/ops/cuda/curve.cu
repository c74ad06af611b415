// curve.cu - biases by a curve over the distance, with two numbers per head (KERPLE, BAM)
//
//   table[h, d] = curve(u, v, d),   u = weight[0, h],   v = weight[1, h]
//
// With t = curve(u, v, d) every kind has dt/du = t. The curve is computed in double, as large
// distances to a power need it. Forward: a thread per entry. Backward: a block per head, whose
// threads take the distances in turns.
#include "ops/cuda/columns.cuh"

namespace
{

struct curve_point {
    double t, dv; // the curve, and dt/dv
};

__device__ __forceinline__ curve_point curve_at(enum curve_kind kind, double u, double v, double d)
{
    const double a = exp(u);

    if (kind == CURVE_LOG) {
        const double b = exp(v);
        return { -a * log1p(b * d), -a * b * d / (1 + b * d) };
    }
    if (kind == CURVE_POWER) {
        const double p = 2 / (1 + exp(-v)), t = -a * pow(d, p);
        return { t, d > 0 ? t * log(d) * p * (1 - p / 2) : 0.0 };
    }
    const double t = -a * pow(d + CURVE_SHIFT, v);
    return { t, t * log(d + CURVE_SHIFT) };
}

struct curve_table {
    enum curve_kind kind;
    float *table;
    const float *weight;
    int64_t H, T;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        const int64_t h = i / T;

        table[i] = (float)curve_at(kind, weight[h], weight[H + h], (double)(i % T)).t;
    }
};

__global__ void __launch_bounds__(LANES *WARPS)
    backward_kernel(enum curve_kind kind, float *dweight, const float *weight, const float *dtable,
                    int64_t H, int64_t T)
{
    const int64_t h = blockIdx.x;
    const double u = weight[h], v = weight[H + h];
    double du = 0, dv = 0;

    for (int64_t d = threadIdx.x; d < T; d += LANES * WARPS) {
        const curve_point p = curve_at(kind, u, v, (double)d);
        const double dt = dtable[h * T + d];

        du += dt * p.t;
        dv += dt * p.dv;
    }
    du = block_sum(du);
    dv = block_sum(dv);
    if (threadIdx.x == 0) {
        dweight[h] += (float)du;
        dweight[H + h] += (float)dv;
    }
}

} // namespace

alibi_status cuda_curve_forward(struct device *dev, const struct curve_args *a)
{
    struct context *c = cuda_of(dev);
    const struct curve_table op = { a->kind, (float *)a->table.data, (const float *)a->weight.data,
                                    a->table.shape[0], a->table.shape[1] };

    cuda_part(c, "bias by curve");
    return each<1>(c, "bias by curve", op, tensor_count(a->table), false);
}

alibi_status cuda_curve_backward(struct device *dev, const struct curve_args *a)
{
    struct context *c = cuda_of(dev);
    const int64_t H = a->dtable.shape[0], T = a->dtable.shape[1];

    cuda_part(c, "bias by curve");
    if (H == 0 || T == 0)
        return ALIBI_OK;
    return launch(c, "bias by curve backward", backward_kernel, dim3((unsigned)H),
                  dim3(LANES * WARPS), 0, a->kind, (float *)a->dweight.data,
                  (const float *)a->weight.data, (const float *)a->dtable.data, H, T);
}
