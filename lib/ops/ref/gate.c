/* gate.c
 *
 *   c[l] = c[l - 1] + log f(x_l),     x = z + bias,     log f(x) = -ln(1 + e^-x)
 *   dz_l = (1 - f(x_l)) sum_{j >= l} dc_j,     1 - f(x) = 1 / (1 + e^x)
 *   dbias += sum_l dz_l
 *
 * c is stored as two numbers, whose second is what the first does not hold. */
#include <math.h>

#include "ops/ref/ref.h"

static double argument(const struct gate_args *a, int64_t row, int64_t h)
{
    return get(a->z, row * a->z.shape[1] + h) + get(a->bias, h);
}

/* e^-|x| cannot overflow. */
static double log_gate(double x)
{
    return fmin(x, 0.0) - log1p(exp(-fabs(x)));
}

/* Rows first..first+count-1 of z, in head h, to positions from.. of sequence b of c. */
static void sum_gates(const struct gate_args *a, int64_t first, int64_t count, int64_t b, int64_t h,
                      int64_t from)
{
    struct tensor c = a->c;
    int64_t at = b * c.stride[1] + h * c.stride[2] + from, rest = at + c.stride[0];
    double sum = from > 0 ? get(c, at - 1) + get(c, rest - 1) : 0.0;

    for (int64_t l = 0; l < count; l++) {
        sum += log_gate(argument(a, first + l, h));
        set(c, at + l, sum);
        set(c, rest + l, sum - get(c, at + l));
    }
}

alibi_status ref_gate_forward(struct device *dev, const struct gate_args *a)
{
    int64_t rows = a->z.shape[0], G = a->z.shape[1], B = a->c.shape[1];
    int64_t L = B > 0 ? rows / B : 0;

    (void)dev;
    for (int64_t h = 0; h < G; h++) {
        for (int64_t b = 0; ragged_present(a->ragged) && b < rows; b++)
            sum_gates(a, b, 1, get_index(a->ragged.slot, b), h, get_index(a->ragged.length, b) - 1);
        for (int64_t b = 0; !ragged_present(a->ragged) && b < B; b++)
            sum_gates(a, b * L, L, b, h, a->c.shape[3] - L);
    }
    return ALIBI_OK;
}

alibi_status ref_gate_backward(struct device *dev, const struct gate_args *a)
{
    int64_t B = a->dc.shape[0], G = a->dc.shape[1], L = a->dc.shape[2];

    (void)dev;
    for (int64_t h = 0; h < G; h++) {
        double all = 0.0;

        for (int64_t b = 0; b < B; b++) {
            double sum = 0.0;

            for (int64_t l = L - 1; l >= 0; l--) {
                double dz;

                sum += get(a->dc, (b * G + h) * L + l);
                dz = sum / (1.0 + exp(argument(a, b * L + l, h)));
                set(a->dz, (b * L + l) * G + h, dz);
                all += dz;
            }
        }
        add(a->dbias, h, all);
    }
    return ALIBI_OK;
}
