/* cross_entropy.c
 *
 *   nll[r] = log sum_v exp(logits[r, v]) - logits[r, target[r]]
 *   dlogits = scale * (softmax - onehot) */
#include <math.h>

#include "ops/ref/ref.h"

/* The largest of V elements from `first` on is taken out of the exponent: no exp overflows, and one
 * of them is 1. */
static double log_sum_exp(struct tensor logits, int64_t first, int64_t V)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t v = 0; v < V; v++)
        max = fmax(max, get(logits, first + v));
    for (int64_t v = 0; v < V; v++)
        sum += exp(get(logits, first + v) - max);
    return max + log(sum);
}

/* dlogits may be logits: each element is read before it is written. */
static void gradient(struct tensor dlogits, struct tensor logits, int64_t first, int64_t V,
                     int64_t target, double lse, double scale)
{
    for (int64_t v = 0; v < V; v++) {
        double p = exp(get(logits, first + v) - lse);
        set(dlogits, first + v, target < 0 ? 0.0 : scale * (p - (v == target ? 1.0 : 0.0)));
    }
}

alibi_status ref_cross_entropy(struct device *dev, const struct cross_entropy_args *a)
{
    int64_t rows = a->logits.shape[0], V = a->logits.shape[1];

    (void)dev;
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = get_index(a->targets, r);
        double lse = log_sum_exp(a->logits, r * V, V);
        set(a->nll, r, target < 0 ? 0.0 : lse - get(a->logits, r * V + target));
        if (present(a->dlogits))
            gradient(a->dlogits, a->logits, r * V, V, target, lse, a->scale);
    }
    return ALIBI_OK;
}
