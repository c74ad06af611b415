/* head_norm.c - each head by its root mean square
 *
 *   y = n * weight,     n = x * rstd,     rstd = 1 / sqrt(mean(x^2) + eps)
 *   dx = rstd * (g - n * mean(g * n)),    g = dy * weight,     dweight += sum of dy * n
 *
 * with means over the D numbers of a head. */
#include <math.h>

#include "ops/ref/ref.h"

static double rstd_of(const struct head_norm_args *a, int64_t x)
{
    int64_t D = a->x.shape[3];
    double squares = 0.0;

    for (int64_t d = 0; d < D; d++)
        squares += get(a->x, x + d) * get(a->x, x + d);
    return 1.0 / sqrt(squares / (double)D + a->eps);
}

alibi_status ref_head_norm_forward(struct device *dev, const struct head_norm_args *a)
{
    int64_t B = a->x.shape[0], L = a->x.shape[1], H = a->x.shape[2], D = a->x.shape[3];

    (void)dev;
    for (int64_t b = 0; b < B; b++)
        for (int64_t l = 0; l < L; l++)
            for (int64_t h = 0; h < H; h++) {
                int64_t x = head_at(a->x, b, l, h), y = head_at(a->y, b, l, h);
                double rstd = rstd_of(a, x);

                for (int64_t d = 0; d < D; d++)
                    set(a->y, y + d, get(a->x, x + d) * rstd * get(a->weight, d));
            }
    return ALIBI_OK;
}

/* dx of one head; dx may be dy, so a number of dy is read before that of dx is written. */
static void input_gradient(const struct head_norm_args *a, int64_t b, int64_t l, int64_t h)
{
    int64_t D = a->x.shape[3], x = head_at(a->x, b, l, h);
    int64_t dy = head_at(a->dy, b, l, h), dx = head_at(a->dx, b, l, h);
    double rstd = rstd_of(a, x), mean = 0.0;

    for (int64_t d = 0; d < D; d++)
        mean += get(a->dy, dy + d) * get(a->weight, d) * get(a->x, x + d) * rstd / (double)D;
    for (int64_t d = 0; d < D; d++) {
        double g = get(a->dy, dy + d) * get(a->weight, d), n = get(a->x, x + d) * rstd;
        set(a->dx, dx + d, rstd * (g - n * mean));
    }
}

alibi_status ref_head_norm_backward(struct device *dev, const struct head_norm_args *a)
{
    int64_t B = a->x.shape[0], L = a->x.shape[1], H = a->x.shape[2], D = a->x.shape[3];

    (void)dev;
    for (int64_t d = 0; d < D; d++) {
        double sum = 0.0;

        for (int64_t b = 0; b < B; b++)
            for (int64_t l = 0; l < L; l++)
                for (int64_t h = 0; h < H; h++) {
                    int64_t x = head_at(a->x, b, l, h);
                    sum +=
                        get(a->dy, head_at(a->dy, b, l, h) + d) * get(a->x, x + d) * rstd_of(a, x);
                }
        add(a->dweight, d, sum);
    }
    for (int64_t b = 0; b < B; b++)
        for (int64_t l = 0; l < L; l++)
            for (int64_t h = 0; h < H; h++)
                input_gradient(a, b, l, h);
    return ALIBI_OK;
}
