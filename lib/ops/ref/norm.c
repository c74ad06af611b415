/* norm.c - layer norm and RMS norm
 *
 *   y = n * weight + bias,     n = (x - mean) * rstd,     rstd = 1 / sqrt(mean((x - mean)^2) + eps)
 *
 * of x, or of sum = x + dropout(branch). RMS norm has 0 for the mean. Backward, with g = dy *
 * weight and the means taken over the row:
 *
 *   dx += rstd * (g - mean(g) - n * mean(g * n))
 *   dweight += sum over rows of dy * n,     dbias += sum over rows of dy
 *   dx_sums += sum over rows of dx
 *
 * where RMS norm has no mean(g). */
#include <math.h>

#include "ops/ref/ref.h"

/* Mean (0 for RMS norm) and 1 / deviation of row r. The second pass avoids the cancellation of
 * E[x^2] - E[x]^2. */
static void statistics(const struct norm_args *a, struct tensor x, int64_t r)
{
    int64_t C = x.shape[1];
    double mean = 0.0, squares = 0.0;

    if (a->kind == ALIBI_LAYERNORM) {
        for (int64_t c = 0; c < C; c++)
            mean += get(x, r * C + c);
        mean /= (double)C;
        set(a->mean, r, mean);
    }
    for (int64_t c = 0; c < C; c++) {
        double d = get(x, r * C + c) - mean;
        squares += d * d;
    }
    set(a->rstd, r, 1.0 / sqrt(squares / (double)C + a->eps));
}

static double stored_mean(const struct norm_args *a, int64_t r)
{
    return a->kind == ALIBI_LAYERNORM ? get(a->mean, r) : 0.0;
}

/* From mean and rstd as they are stored: backward has no others, and must give the same bits. */
static void normalize_row(const struct norm_args *a, struct tensor x, int64_t r)
{
    int64_t C = x.shape[1];
    double mean = stored_mean(a, r), rstd = get(a->rstd, r);

    for (int64_t c = 0; c < C; c++) {
        double n = (get(x, r * C + c) - mean) * rstd;
        set(a->y, r * C + c, n * get(a->weight, c) + (present(a->bias) ? get(a->bias, c) : 0.0));
    }
}

alibi_status ref_norm_forward(struct device *dev, const struct norm_args *a)
{
    struct tensor x = present(a->branch) ? a->sum : a->x;

    if (present(a->branch))
        TRY_RETURN(ref_residual_forward(dev, a->sum, a->x, a->branch, a->dropout));
    for (int64_t r = 0; r < x.shape[0]; r++) {
        statistics(a, x, r);
        normalize_row(a, x, r);
    }
    return ALIBI_OK;
}

static void input_gradient(const struct norm_args *a, int64_t r)
{
    int64_t C = a->x.shape[1];
    double mean = stored_mean(a, r), rstd = get(a->rstd, r), g_sum = 0.0, gn_sum = 0.0;

    for (int64_t c = 0; c < C; c++) {
        double g = get(a->dy, r * C + c) * get(a->weight, c);
        g_sum += a->kind == ALIBI_LAYERNORM ? g : 0.0;
        gn_sum += g * (get(a->x, r * C + c) - mean) * rstd;
    }
    for (int64_t c = 0; c < C; c++) {
        double g = get(a->dy, r * C + c) * get(a->weight, c);
        double n = (get(a->x, r * C + c) - mean) * rstd;
        add(a->dx, r * C + c, rstd * (g - g_sum / (double)C - n * gn_sum / (double)C));
    }
}

static void parameter_gradients(const struct norm_args *a)
{
    int64_t rows = a->x.shape[0], C = a->x.shape[1];

    for (int64_t c = 0; c < C; c++) {
        double weight_sum = 0.0, bias_sum = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            double n = (get(a->x, r * C + c) - stored_mean(a, r)) * get(a->rstd, r);
            weight_sum += get(a->dy, r * C + c) * n;
            bias_sum += get(a->dy, r * C + c);
        }
        add(a->dweight, c, weight_sum);
        if (present(a->dbias))
            add(a->dbias, c, bias_sum);
    }
}

alibi_status ref_norm_backward(struct device *dev, const struct norm_args *a)
{
    (void)dev;
    for (int64_t r = 0; r < a->x.shape[0]; r++) {
        input_gradient(a, r);
        if (present(a->y))
            normalize_row(a, a->x, r);
    }
    parameter_gradients(a);
    if (present(a->dx_sums))
        ref_add_column_sums(a->dx_sums, a->dx);
    return ALIBI_OK;
}
