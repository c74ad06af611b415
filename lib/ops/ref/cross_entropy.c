/* cross_entropy.c - cross-entropy, and log-probabilities
 *
 *   nll[r] = log sum_v exp(logits[r, v]) - logits[r, target[r]]
 *   dlogits = scale * (softmax - onehot)
 *
 *   y[r, v] = logits[r, v] - log sum_u exp(logits[r, u]) + shift[r] */
#include <math.h>

#include "ops/ref/ref.h"

/* The largest of n elements from `first` on is taken out of the exponent: no exp overflows, and one
 * of them is 1. */
static double log_sum_exp(struct tensor logits, int64_t first, int64_t n)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t v = 0; v < n; v++)
        max = fmax(max, get(logits, first + v));
    for (int64_t v = 0; v < n; v++)
        sum += exp(get(logits, first + v) - max);
    return max + log(sum);
}

/* dlogits may be logits: each element is read before it is written. */
static void gradient(struct tensor dlogits, struct tensor logits, int64_t first, int64_t n,
                     int64_t target, double lse, double scale)
{
    for (int64_t v = 0; v < n; v++) {
        double p = exp(get(logits, first + v) - lse);
        set(dlogits, first + v, target < 0 ? 0.0 : scale * (p - (v == target ? 1.0 : 0.0)));
    }
    for (int64_t v = n; v < dlogits.shape[1]; v++)
        set(dlogits, first + v, 0.0);
}

alibi_status ref_cross_entropy(struct device *dev, const struct cross_entropy_args *a)
{
    int64_t rows = a->logits.shape[0], V = a->logits.shape[1], n = cross_entropy_classes(a);

    (void)dev;
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = get_index(a->targets, r);
        double lse = log_sum_exp(a->logits, r * V, n);
        set(a->nll, r, target < 0 ? 0.0 : lse - get(a->logits, r * V + target));
        if (present(a->dlogits))
            gradient(a->dlogits, a->logits, r * V, n, target, lse, a->scale);
    }
    return ALIBI_OK;
}

alibi_status ref_log_softmax(struct device *dev, const struct log_softmax_args *a)
{
    int64_t rows = a->y.shape[1], n = a->y.shape[3], V = a->logits.shape[1];

    (void)dev;
    for (int64_t r = 0; r < rows; r++) {
        double shift = present(a->shift) ? get(a->shift, r * a->shift.stride[1]) : 0.0;
        double lse = log_sum_exp(a->logits, r * V, n);
        for (int64_t v = 0; v < n; v++)
            set(a->y, r * a->y.stride[1] + v, get(a->logits, r * V + v) - lse + shift);
    }
    return ALIBI_OK;
}
