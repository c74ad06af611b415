/* gate.c
 *
 *   c[l] = c[l - 1] + log f(x_l),     x = z + bias,     log f(x) = -ln(1 + e^-x)
 *   dz_l = (1 - f(x_l)) sum_{j >= l} dc_j,     1 - f(x) = 1 / (1 + e^x)
 *
 * There are H gates to a token, beside the H D products of a projection: scalar loops will do. A
 * head of a sequence is one task, and its sums are in double. */
#include <math.h>

#include "ops/cpu/simd/simd.h"

/* e^-|x| cannot overflow. */
static float log_gate(float x)
{
    return fminf(x, 0.0f) - log1pf(expf(-fabsf(x)));
}

/* Rows first..first+count-1 of z, in head h, to positions from.. of sequence b of c. */
static void sum_gates(const struct gate_args *a, int64_t first, int64_t count, int64_t b, int64_t h,
                      int64_t from)
{
    int64_t G = a->z.shape[1];
    const float *z = (const float *)a->z.data + first * G + h, bias = ((float *)a->bias.data)[h];
    float *c = (float *)a->c.data + b * a->c.stride[1] + h * a->c.stride[2] + from;
    float *rest = c + a->c.stride[0];
    double sum = from > 0 ? (double)c[-1] + (double)rest[-1] : 0.0;

    for (int64_t l = 0; l < count; l++) {
        sum += (double)log_gate(z[l * G] + bias);
        c[l] = (float)sum;
        rest[l] = (float)(sum - (double)c[l]);
    }
}

alibi_status SIMD(gate_forward)(struct device *dev, const struct gate_args *a)
{
    enum { GATE_COST = 32 }; /* beside a product and a sum */
    int64_t rows = a->z.shape[0], G = a->z.shape[1];
    const int32_t *slot = a->ragged.slot.data, *length = a->ragged.length.data;
    int64_t B = length ? rows : a->c.shape[1], L = B > 0 ? rows / B : 0;

    if (a->z.type != DTYPE_F32)
        return ref_gate_forward(dev, a);
#pragma omp parallel for if (rows * G * GATE_COST >= CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < B * G; task++) {
        int64_t b = task / G, h = task % G;

        sum_gates(a, b * L, L, length ? slot[b] : b, h, length ? length[b] - 1 : a->c.shape[3] - L);
    }
    return ALIBI_OK;
}

/* One head, over all sequences in order. */
static void head_backward(const struct gate_args *a, int64_t h)
{
    int64_t B = a->dc.shape[0], G = a->dc.shape[1], L = a->dc.shape[2];
    float bias = ((const float *)a->bias.data)[h], *dbias = a->dbias.data;
    double all = 0.0;

    for (int64_t b = 0; b < B; b++) {
        const float *dc = (const float *)a->dc.data + (b * G + h) * L;
        const float *z = (const float *)a->z.data + b * L * G + h;
        float *dz = (float *)a->dz.data + b * L * G + h;
        double sum = 0.0;

        for (int64_t l = L - 1; l >= 0; l--) {
            sum += (double)dc[l];
            dz[l * G] = (float)sum / (1.0f + expf(z[l * G] + bias));
            all += (double)dz[l * G];
        }
    }
    dbias[h] = (float)((double)dbias[h] + all);
}

alibi_status SIMD(gate_backward)(struct device *dev, const struct gate_args *a)
{
    int64_t G = a->dc.shape[1];

    if (a->z.type != DTYPE_F32)
        return ref_gate_backward(dev, a);
#pragma omp parallel for if (tensor_count(a->dc) >= CPU_PARALLEL_MIN / 32)
    for (int64_t h = 0; h < G; h++)
        head_backward(a, h);
    return ALIBI_OK;
}
