/* residual.c
 *
 *   y = x + drop(branch),     drop(x)_i = x_i * (0 or 1/(1 - p)) */
#include "ops/dropout.h"
#include "ops/ref/ref.h"

static double factor(struct dropout drop, int64_t i)
{
    return drop.p > 0.0 ? dropout_factor(drop, i) : 1.0;
}

alibi_status ref_residual_forward(struct device *dev, struct tensor y, struct tensor x,
                                  struct tensor branch, struct dropout drop)
{
    int64_t count = tensor_count(y);

    (void)dev;
    for (int64_t i = 0; i < count; i++)
        set(y, i, get(x, i) + factor(drop, i) * get(branch, i));
    return ALIBI_OK;
}

alibi_status ref_dropout(struct device *dev, struct tensor y, struct tensor x, struct dropout drop)
{
    int64_t count = tensor_count(y);

    (void)dev;
    for (int64_t i = 0; i < count; i++)
        set(y, i, factor(drop, i) * get(x, i));
    return ALIBI_OK;
}
