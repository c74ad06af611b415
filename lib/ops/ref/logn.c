/* logn.c
 *
 *   y = factor[h] ln(max(n, 2)) x,      dx = factor[h] ln(max(n, 2)) dy
 *   dfactor[h] += sum ln(max(n, 2)) dy . x       n: the keys that a query sees
 *
 * or y = (1 + temperature ln(max(1, n / length))) x. */
#include <math.h>

#include "ops/ref/ref.h"

/* max(n, 2) of the row b, l. */
static double keys(const struct logn_args *a, int64_t b, int64_t l)
{
    int64_t position =
        ragged_present(a->ragged) ? get_index(a->ragged.length, b) - 1 : a->start + l;

    return (double)logn_keys(position, a->window);
}

static double times(const struct logn_args *a, int64_t b, int64_t l, int64_t h)
{
    if (present(a->factor))
        return get(a->factor, h) * log(keys(a, b, l));
    return 1.0 + a->temperature * log(fmax(1.0, keys(a, b, l) / (double)a->length));
}

alibi_status ref_logn_forward(struct device *dev, const struct logn_args *a)
{
    int64_t B = a->x.shape[0], L = a->x.shape[1], H = a->x.shape[2], D = a->x.shape[3];

    (void)dev;
    for (int64_t b = 0; b < B; b++)
        for (int64_t l = 0; l < L; l++)
            for (int64_t h = 0; h < H; h++) {
                int64_t x = head_at(a->x, b, l, h), y = head_at(a->y, b, l, h);

                for (int64_t d = 0; d < D; d++)
                    set(a->y, y + d, times(a, b, l, h) * get(a->x, x + d));
            }
    return ALIBI_OK;
}

alibi_status ref_logn_backward(struct device *dev, const struct logn_args *a)
{
    int64_t B = a->x.shape[0], L = a->x.shape[1], H = a->x.shape[2], D = a->x.shape[3];

    (void)dev;
    for (int64_t h = 0; h < H; h++) {
        double sum = 0.0;

        for (int64_t b = 0; b < B; b++)
            for (int64_t l = 0; l < L; l++) {
                int64_t x = head_at(a->x, b, l, h);
                int64_t dy = head_at(a->dy, b, l, h), dx = head_at(a->dx, b, l, h);
                double ln = log(keys(a, b, l));

                for (int64_t d = 0; d < D; d++) {
                    double g = get(a->dy, dy + d);
                    sum += ln * g * get(a->x, x + d);
                    set(a->dx, dx + d, get(a->factor, h) * ln * g);
                }
            }
        add(a->dfactor, h, sum);
    }
    return ALIBI_OK;
}
