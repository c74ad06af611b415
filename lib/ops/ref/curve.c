/* curve.c
 *
 *   table[h, d] = curve(u, v, d),   u = weight[0, h],   v = weight[1, h]
 *
 * With t = curve(u, v, d) every kind has dt/du = t. */
#include <math.h>

#include "ops/ref/ref.h"

/* *dv: dt/dv. */
static double curve(enum curve_kind kind, double u, double v, double d, double *dv)
{
    double a = exp(u), b, p, t;

    switch (kind) {
    case CURVE_LOG:
        b = exp(v);
        *dv = -a * b * d / (1 + b * d);
        return -a * log1p(b * d);
    case CURVE_POWER:
        p = 2 / (1 + exp(-v));
        t = -a * pow(d, p);
        *dv = d > 0 ? t * log(d) * p * (1 - p / 2) : 0.0;
        return t;
    default:
        t = -a * pow(d + CURVE_SHIFT, v);
        *dv = t * log(d + CURVE_SHIFT);
        return t;
    }
}

alibi_status ref_curve_forward(struct device *dev, const struct curve_args *a)
{
    int64_t H = a->table.shape[0], T = a->table.shape[1];
    double unused;

    (void)dev;
    for (int64_t h = 0; h < H; h++)
        for (int64_t d = 0; d < T; d++)
            set(a->table, h * T + d,
                curve(a->kind, get(a->weight, h), get(a->weight, H + h), (double)d, &unused));
    return ALIBI_OK;
}

alibi_status ref_curve_backward(struct device *dev, const struct curve_args *a)
{
    int64_t H = a->dtable.shape[0], T = a->dtable.shape[1];

    (void)dev;
    for (int64_t h = 0; h < H; h++) {
        double du = 0.0, dv = 0.0;

        for (int64_t d = 0; d < T; d++) {
            double dt = get(a->dtable, h * T + d), by_v;

            du += dt * curve(a->kind, get(a->weight, h), get(a->weight, H + h), (double)d, &by_v);
            dv += dt * by_v;
        }
        add(a->dweight, h, du);
        add(a->dweight, H + h, dv);
    }
    return ALIBI_OK;
}
