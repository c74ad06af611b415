/* rmsnorm.c
 *
 *   y = n * weight + bias,     n = x * rstd,     rstd = 1 / sqrt(mean(x^2) + eps)
 *
 * of x, or of sum = x + drop(branch). Backward, with g = dy * weight and the mean taken over the
 * row:
 *
 *   dx += rstd * (g - n * mean(g * n));     dweight += sum over rows of dy * n;     dbias += sum
 * over rows of dy */
#include <math.h>

#include "ops/ref/ref.h"

static double mean_square(struct tensor x, int64_t first, int64_t C)
{
    double sum = 0.0;

    for (int64_t c = 0; c < C; c++)
        sum += get(x, first + c) * get(x, first + c);
    return sum / (double)C;
}

/* From rstd as it is stored: the backward pass has no other, and must give the same bits. */
static void normalize_row(struct tensor y, struct tensor x, struct tensor weight,
                          struct tensor bias, int64_t r, double rstd)
{
    int64_t C = x.shape[1];

    for (int64_t c = 0; c < C; c++) {
        double n = get(x, r * C + c) * rstd;
        set(y, r * C + c, n * get(weight, c) + (present(bias) ? get(bias, c) : 0.0));
    }
}

alibi_status ref_rmsnorm_forward(struct device *dev, struct tensor y, struct tensor rstd,
                                 struct tensor sum, struct tensor x, struct tensor branch,
                                 struct dropout drop, struct tensor weight, struct tensor bias,
                                 double eps)
{
    struct tensor from = present(branch) ? sum : x;
    int64_t rows = x.shape[0], C = x.shape[1];

    if (present(branch))
        TRY_RETURN(ref_residual_forward(dev, sum, x, branch, drop));
    for (int64_t r = 0; r < rows; r++) {
        set(rstd, r, 1.0 / sqrt(mean_square(from, r * C, C) + eps));
        normalize_row(y, from, weight, bias, r, get(rstd, r));
    }
    return ALIBI_OK;
}

static void input_gradient(struct tensor dx, struct tensor dy, struct tensor x,
                           struct tensor weight, int64_t r, double rstd)
{
    int64_t C = x.shape[1];
    double gn_sum = 0.0;

    for (int64_t c = 0; c < C; c++)
        gn_sum += get(dy, r * C + c) * get(weight, c) * get(x, r * C + c) * rstd;
    for (int64_t c = 0; c < C; c++) {
        double g = get(dy, r * C + c) * get(weight, c);
        double n = get(x, r * C + c) * rstd;
        add(dx, r * C + c, rstd * (g - n * gn_sum / (double)C));
    }
}

static void parameter_gradients(struct tensor dweight, struct tensor dbias, struct tensor dy,
                                struct tensor x, struct tensor rstd)
{
    int64_t rows = x.shape[0], C = x.shape[1];

    for (int64_t c = 0; c < C; c++) {
        double weight_sum = 0.0, bias_sum = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            weight_sum += get(dy, r * C + c) * get(x, r * C + c) * get(rstd, r);
            bias_sum += get(dy, r * C + c);
        }
        add(dweight, c, weight_sum);
        if (present(dbias))
            add(dbias, c, bias_sum);
    }
}

alibi_status ref_rmsnorm_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                  struct tensor dbias, struct tensor y, struct tensor dy,
                                  struct tensor x, struct tensor weight, struct tensor bias,
                                  struct tensor rstd)
{
    (void)dev;
    for (int64_t r = 0; r < x.shape[0]; r++) {
        input_gradient(dx, dy, x, weight, r, get(rstd, r));
        if (present(y))
            normalize_row(y, x, weight, bias, r, get(rstd, r));
    }
    parameter_gradients(dweight, dbias, dy, x, rstd);
    return ALIBI_OK;
}
