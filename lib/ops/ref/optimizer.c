/* optimizer.c - AdamW, Nesterov momentum, and the sums that guard and clip
 *
 * AdamW, g = gradient_scale * gradient, t = step:
 *
 *   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   w = w - lr * weight_decay * w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
 *
 * Nesterov, r = lr / previous_lr:
 *
 *   w = w - lr * weight_decay * w + momentum^2 r u - (1 + momentum) lr g;  u = momentum r u - lr g
 *
 * with weight_decay on the first `decaying` elements only. */
#include <math.h>

#include "ops/ref/ref.h"

static void set_weight(struct tensor w, struct tensor copy, int64_t i, double x)
{
    set(w, i, x);
    if (present(copy))
        set(copy, i, get(w, i));
}

alibi_status ref_adamw(struct device *dev, const struct adamw_args *a)
{
    int64_t count = tensor_count(a->w);
    double correct1 = 1.0 - pow(a->beta1, (double)a->step),
           correct2 = 1.0 - pow(a->beta2, (double)a->step);

    (void)dev;
    for (int64_t i = 0; i < count; i++) {
        double g = a->gradient_scale * get(a->gradient, i), x = get(a->w, i);
        double first = a->beta1 * get(a->m, i) + (1.0 - a->beta1) * g;
        double second = a->beta2 * get(a->v, i) + (1.0 - a->beta2) * g * g;
        double step = (first / correct1) / (sqrt(second / correct2) + a->eps);
        double decay = i < a->decaying ? a->lr * a->weight_decay * x : 0.0;
        set_weight(a->w, a->copy, i, x - decay - a->lr * step);
        set(a->m, i, first);
        set(a->v, i, second);
    }
    return ALIBI_OK;
}

alibi_status ref_nesterov(struct device *dev, const struct nesterov_args *a)
{
    int64_t count = tensor_count(a->w);
    double r = a->lr / a->previous_lr;

    (void)dev;
    for (int64_t i = 0; i < count; i++) {
        double g = a->gradient_scale * get(a->gradient, i), x = get(a->w, i), u = get(a->u, i);
        double step = a->momentum * a->momentum * r * u - (1.0 + a->momentum) * a->lr * g;
        double decay = i < a->decaying ? a->lr * a->weight_decay * x : 0.0;
        set_weight(a->w, a->copy, i, x - decay + step);
        set(a->u, i, a->momentum * r * u - a->lr * g);
    }
    return ALIBI_OK;
}

alibi_status ref_sum_squares(struct device *dev, double *sum, struct tensor x)
{
    int64_t count = tensor_count(x);
    double total = 0.0;

    (void)dev;
    for (int64_t i = 0; i < count; i++)
        total += get(x, i) * get(x, i);
    *sum = total;
    return ALIBI_OK;
}

alibi_status ref_sum(struct device *dev, double *sum, struct tensor x)
{
    int64_t count = tensor_count(x);
    double total = 0.0;

    (void)dev;
    for (int64_t i = 0; i < count; i++)
        total += get(x, i);
    *sum = total;
    return ALIBI_OK;
}
