/* linear.c
 *
 *   y = x weight^T + bias */
#include "ops/ref/ref.h"

alibi_status ref_linear_forward(struct device *dev, struct tensor y, struct tensor x,
                                struct tensor weight, struct tensor bias)
{
    int64_t rows = x.shape[0], out = weight.shape[0], in = weight.shape[1];

    (void)dev;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = present(bias) ? get(bias, o) : 0.0;
            for (int64_t i = 0; i < in; i++)
                sum += get(x, r * in + i) * get(weight, o * in + i);
            set(y, r * out + o, sum);
        }
    return ALIBI_OK;
}

/* dx = dy weight */
static void input_gradient(struct tensor dx, struct tensor dy, struct tensor weight)
{
    int64_t rows = dy.shape[0], out = weight.shape[0], in = weight.shape[1];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0.0;
            for (int64_t o = 0; o < out; o++)
                sum += get(dy, r * out + o) * get(weight, o * in + i);
            set(dx, r * in + i, sum);
        }
}

/* dweight += dy^T x */
static void weight_gradient(struct tensor dweight, struct tensor dy, struct tensor x)
{
    int64_t rows = dy.shape[0], out = dweight.shape[0], in = dweight.shape[1];

    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0.0;
            for (int64_t r = 0; r < rows; r++)
                sum += get(dy, r * out + o) * get(x, r * in + i);
            add(dweight, o * in + i, sum);
        }
}

/* sums += the column sums of dy: the gradient of a bias */
static void add_column_sums(struct tensor sums, struct tensor dy)
{
    int64_t rows = dy.shape[0], out = dy.shape[1];

    for (int64_t o = 0; o < out; o++) {
        double sum = 0.0;
        for (int64_t r = 0; r < rows; r++)
            sum += get(dy, r * out + o);
        add(sums, o, sum);
    }
}

alibi_status ref_linear_backward(struct device *dev, struct tensor dx, struct tensor dweight,
                                 struct tensor dbias, struct tensor dy, struct tensor x,
                                 struct tensor weight)
{
    (void)dev;
    if (present(dx))
        input_gradient(dx, dy, weight);
    if (present(dweight))
        weight_gradient(dweight, dy, x);
    if (present(dbias))
        add_column_sums(dbias, dy);
    return ALIBI_OK;
}

/* ---- with an activation: both parts through the device's own table, so that a backend's faster
 * ones are used here too */

alibi_status ref_linear_activation_forward(struct device *dev, int kind, struct tensor activated,
                                           struct tensor up, struct tensor x, struct tensor weight,
                                           struct tensor bias)
{
    TRY_RETURN(dev->ops->linear_forward(dev, up, x, weight, bias));
    return dev->ops->activation_forward(dev, kind, activated, up);
}

/* scratch = dy weight, the gradient of activated */
alibi_status ref_linear_activation_backward(struct device *dev, int kind, struct tensor dup,
                                            struct tensor dup_sums, struct tensor scratch,
                                            struct tensor dweight, struct tensor dbias,
                                            struct tensor dy, struct tensor activated,
                                            struct tensor weight, struct tensor up)
{
    TRY_RETURN(dev->ops->linear_backward(dev, scratch, dweight, dbias, dy, activated, weight));
    TRY_RETURN(dev->ops->activation_backward(dev, kind, dup, scratch, up));
    if (present(dup_sums))
        add_column_sums(dup_sums, dup);
    return ALIBI_OK;
}
