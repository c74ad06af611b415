/* linear.c
 *
 *   y = x weight^T + bias
 *   dx = dy weight,   dweight += dy^T x (first: =),   dbias += column sums of dy */
#include "ops/ref/ref.h"

/* Row by row: the bits of a row never depend on the number of rows. */
alibi_status ref_linear_forward(struct device *dev, const struct linear_args *a)
{
    int64_t rows = a->x.shape[0], out = a->weight.shape[0], in = a->weight.shape[1];

    TRY_RETURN(norm_before(dev, a->norm));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = present(a->bias) ? get(a->bias, o) : 0.0;
            for (int64_t i = 0; i < in; i++)
                sum += get(a->x, r * in + i) * get(a->weight, o * in + i);
            set(a->y, r * out + o, sum);
        }
    return ALIBI_OK;
}

void ref_add_column_sums(struct tensor sums, struct tensor x)
{
    int64_t rows = x.shape[0], columns = x.shape[1];

    for (int64_t n = 0; n < columns; n++) {
        double sum = 0.0;
        for (int64_t r = 0; r < rows; r++)
            sum += get(x, r * columns + n);
        add(sums, n, sum);
    }
}

alibi_status ref_linear_backward(struct device *dev, const struct linear_args *a)
{
    int64_t rows = a->dy.shape[0], out = a->weight.shape[0], in = a->weight.shape[1];

    (void)dev;
    for (int64_t r = 0; present(a->dx) && r < rows; r++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0.0;
            for (int64_t o = 0; o < out; o++)
                sum += get(a->dy, r * out + o) * get(a->weight, o * in + i);
            set(a->dx, r * in + i, sum);
        }
    for (int64_t o = 0; present(a->dweight) && o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < rows; r++)
                sum += get(a->dy, r * out + o) * get(a->x, r * in + i);
            set(a->dweight, o * in + i, sum + (a->first ? 0.0 : get(a->dweight, o * in + i)));
        }
    if (present(a->dbias))
        ref_add_column_sums(a->dbias, a->dy);
    return ALIBI_OK;
}

/* ---- around an activation: both parts through the device's own table, so that a backend's faster
 * ones are used here too */

alibi_status ref_linear_activation_forward(struct device *dev,
                                           const struct linear_activation_args *a)
{
    struct linear_args product = { .y = a->up,
                                   .x = a->x,
                                   .weight = a->weight,
                                   .bias = a->bias,
                                   .decoding = a->decoding,
                                   .norm = a->norm };

    TRY_RETURN(dev->ops->linear_forward(dev, &product));
    TRY_RETURN(dev->ops->activation_forward(dev, a->kind, a->activated, a->up));
    return a->dropout.p > 0.0 ? dev->ops->dropout(dev, a->activated, a->activated, a->dropout)
                              : ALIBI_OK;
}

/* scratch = dy weight, the gradient of activated */
alibi_status ref_linear_activation_backward(struct device *dev,
                                            const struct linear_activation_args *a)
{
    struct linear_args product = { .dx = a->scratch,
                                   .dweight = a->dweight,
                                   .first = a->first,
                                   .dbias = a->dbias,
                                   .dy = a->dy,
                                   .x = a->activated,
                                   .weight = a->weight };

    TRY_RETURN(dev->ops->linear_backward(dev, &product));
    if (a->dropout.p > 0.0)
        TRY_RETURN(dev->ops->dropout(dev, a->scratch, a->scratch, a->dropout));
    TRY_RETURN(dev->ops->activation_backward(dev, a->kind, a->dup, a->scratch, a->up));
    if (present(a->dup_sums))
        ref_add_column_sums(a->dup_sums, a->dup);
    return ALIBI_OK;
}
