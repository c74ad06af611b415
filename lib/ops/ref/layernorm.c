/* layernorm.c
 *
 *   y = n * weight + bias,     n = (x - mean) * rstd,     rstd = 1 / sqrt(var + eps)
 *
 * of x, or of sum = x + drop(branch). Backward, with g = dy * weight and the means taken over the
 * row:
 *
 *   dx += rstd * (g - mean(g) - n * mean(g * n));     dweight += sum over rows of dy * n;     dbias
 * += sum over rows of dy */
#include <math.h>

#include "ops/ref/ref.h"

/* Mean and variance (the biased one) of C elements from `first` on; the second pass avoids the
 * cancellation of E[x^2] - E[x]^2. */
static void moments(struct tensor x, int64_t first, int64_t C, double *mean, double *variance)
{
    double sum = 0.0, squares = 0.0;

    for (int64_t c = 0; c < C; c++)
        sum += get(x, first + c);
    *mean = sum / (double)C;
    for (int64_t c = 0; c < C; c++) {
        double d = get(x, first + c) - *mean;
        squares += d * d;
    }
    *variance = squares / (double)C;
}

/* From mean and rstd as they are stored: the backward pass has no others, and must give the same
 * bits. */
static void normalize_row(struct tensor y, struct tensor x, struct tensor weight,
                          struct tensor bias, int64_t r, double mean, double rstd)
{
    int64_t C = x.shape[1];

    for (int64_t c = 0; c < C; c++) {
        double n = (get(x, r * C + c) - mean) * rstd;
        set(y, r * C + c, n * get(weight, c) + (present(bias) ? get(bias, c) : 0.0));
    }
}

alibi_status ref_layernorm_forward(struct device *dev, struct tensor y, struct tensor mean,
                                   struct tensor rstd, struct tensor sum, struct tensor x,
                                   struct tensor branch, struct dropout drop, struct tensor weight,
                                   struct tensor bias, double eps)
{
    struct tensor from = present(branch) ? sum : x;
    int64_t rows = x.shape[0], C = x.shape[1];

    if (present(branch))
        TRY_RETURN(ref_residual_forward(dev, sum, x, branch, drop));
    for (int64_t r = 0; r < rows; r++) {
        double m, variance;
        moments(from, r * C, C, &m, &variance);
        set(mean, r, m);
        set(rstd, r, 1.0 / sqrt(variance + eps));
        normalize_row(y, from, weight, bias, r, get(mean, r), get(rstd, r));
    }
    return ALIBI_OK;
}

static void input_gradient(struct tensor dx, struct tensor dy, struct tensor x,
                           struct tensor weight, int64_t r, double mean, double rstd)
{
    int64_t C = x.shape[1];
    double g_sum = 0.0, gn_sum = 0.0;

    for (int64_t c = 0; c < C; c++) {
        double g = get(dy, r * C + c) * get(weight, c);
        g_sum += g;
        gn_sum += g * (get(x, r * C + c) - mean) * rstd;
    }
    for (int64_t c = 0; c < C; c++) {
        double g = get(dy, r * C + c) * get(weight, c);
        double n = (get(x, r * C + c) - mean) * rstd;
        add(dx, r * C + c, rstd * (g - g_sum / (double)C - n * gn_sum / (double)C));
    }
}

static void parameter_gradients(struct tensor dweight, struct tensor dbias, struct tensor dy,
                                struct tensor x, struct tensor mean, struct tensor rstd)
{
    int64_t rows = x.shape[0], C = x.shape[1];

    for (int64_t c = 0; c < C; c++) {
        double weight_sum = 0.0, bias_sum = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            double n = (get(x, r * C + c) - get(mean, r)) * get(rstd, r);
            weight_sum += get(dy, r * C + c) * n;
            bias_sum += get(dy, r * C + c);
        }
        add(dweight, c, weight_sum);
        if (present(dbias))
            add(dbias, c, bias_sum);
    }
}

alibi_status ref_layernorm_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                    struct tensor dbias, struct tensor y, struct tensor dy,
                                    struct tensor x, struct tensor weight, struct tensor bias,
                                    struct tensor mean, struct tensor rstd)
{
    (void)dev;
    for (int64_t r = 0; r < x.shape[0]; r++) {
        input_gradient(dx, dy, x, weight, r, get(mean, r), get(rstd, r));
        if (present(y))
            normalize_row(y, x, weight, bias, r, get(mean, r), get(rstd, r));
    }
    parameter_gradients(dweight, dbias, dy, x, mean, rstd);
    return ALIBI_OK;
}
