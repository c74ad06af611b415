/* head_norm.c - queries and keys by the root mean square of each head, then rotated
 *
 *   y = R(n * weight),     n = x * rstd,     rstd = 1 / sqrt(mean(x^2) + eps)
 *   dx = rstd * (g - n * mean(g * n)),     g = R^-1(dy) * weight,     dweight += R^-1(dy) * n
 *
 * with means over the D numbers of a head. R mixes the two numbers of a pair; without a rotation
 * each number is its own partner. */
#include <math.h>

#include "ops/ref/ref.h"

/* A head of one row. */
struct head {
    int64_t x, y, dy, dx; /* its first number in each view */
    int64_t angles;       /* its row of the rotation's table */
    struct tensor weight;
    double rstd;
};

static struct head head_of(const struct head_norm_args *a, int64_t b, int64_t l, int64_t h)
{
    int64_t D = a->x.shape[3];
    double squares = 0.0;
    struct head head = { .x = head_at(a->x, b, l, h),
                         .y = head_at(a->y, b, l, h),
                         .dy = head_at(a->dy, b, l, h),
                         .dx = head_at(a->dx, b, l, h),
                         .angles = l * D,
                         .weight = h < a->queries ? a->q_weight : a->k_weight };

    for (int64_t d = 0; d < D; d++)
        squares += get(a->x, head.x + d) * get(a->x, head.x + d);
    head.rstd = 1.0 / sqrt(squares / (double)D + a->eps);
    return head;
}

static int64_t partner(const struct head_norm_args *a, int64_t d)
{
    int64_t half = a->x.shape[3] / 2;

    if (!present(a->rotation.table))
        return d;
    if (a->rotation.layout == ALIBI_ROTARY_PAIRS)
        return d % 2 == 0 ? d + 1 : d - 1;
    return d < half ? d + half : d - half;
}

/* Number d of a head, rotated: `x` is that number, `other` its partner. */
static double rotated(const struct head_norm_args *a, const struct head *head, int64_t d, double x,
                      double other, int direction)
{
    const struct rotation *r = &a->rotation;
    int64_t half = a->x.shape[3] / 2, at = partner(a, d);
    int64_t pair;
    double cosine, sine;

    if (at == d) /* also a head of one number, whose half is 0 */
        return x;
    pair = r->layout == ALIBI_ROTARY_PAIRS ? d / 2 : d % half;
    cosine = get(r->table, head->angles + pair);
    sine = direction * get(r->table, head->angles + half + pair);
    return x * cosine + (at > d ? -sine : sine) * other;
}

static double normed(const struct head_norm_args *a, const struct head *head, int64_t d)
{
    return get(a->x, head->x + d) * head->rstd * get(head->weight, d);
}

/* y may be x: both numbers of a pair are read before one is written. */
static void forward(const struct head_norm_args *a, const struct head *head)
{
    for (int64_t d = 0; d < a->x.shape[3]; d++) {
        int64_t other = partner(a, d);
        double x, y;

        if (other < d) /* written with its partner */
            continue;
        x = normed(a, head, d);
        y = normed(a, head, other);
        set(a->y, head->y + d, rotated(a, head, d, x, y, 1));
        if (other > d)
            set(a->y, head->y + other, rotated(a, head, other, y, x, 1));
    }
}

/* Number d of R^-1(dy). */
static double gradient(const struct head_norm_args *a, const struct head *head, int64_t d)
{
    return rotated(a, head, d, get(a->dy, head->dy + d), get(a->dy, head->dy + partner(a, d)), -1);
}

/* dx may be dy, likewise. */
static void backward(const struct head_norm_args *a, const struct head *head)
{
    int64_t D = a->x.shape[3];
    double mean = 0.0;

    for (int64_t d = 0; d < D; d++) {
        double n = get(a->x, head->x + d) * head->rstd;

        mean += gradient(a, head, d) * get(head->weight, d) * n / (double)D;
    }
    for (int64_t d = 0; d < D; d++) {
        int64_t pair[2] = { d, partner(a, d) };
        double g[2];

        if (pair[1] < d)
            continue;
        for (int i = 0; i < 2; i++)
            g[i] = gradient(a, head, pair[i]) * get(head->weight, pair[i]);
        for (int i = 0; i < 2; i++)
            set(a->dx, head->dx + pair[i],
                head->rstd * (g[i] - get(a->x, head->x + pair[i]) * head->rstd * mean));
    }
}

alibi_status ref_head_norm_forward(struct device *dev, const struct head_norm_args *a)
{
    (void)dev;
    for (int64_t b = 0; b < a->x.shape[0]; b++)
        for (int64_t l = 0; l < a->x.shape[1]; l++)
            for (int64_t h = 0; h < a->x.shape[2]; h++) {
                struct head head = head_of(a, b, l, h);

                forward(a, &head);
            }
    return ALIBI_OK;
}

/* Adds to number d of the gradients of both weights. */
static void weight_gradients(const struct head_norm_args *a, int64_t d)
{
    double sums[2] = { 0.0, 0.0 }; /* of queries, of keys */

    for (int64_t b = 0; b < a->x.shape[0]; b++)
        for (int64_t l = 0; l < a->x.shape[1]; l++)
            for (int64_t h = 0; h < a->x.shape[2]; h++) {
                struct head head = head_of(a, b, l, h);

                sums[h >= a->queries] += gradient(a, &head, d) * get(a->x, head.x + d) * head.rstd;
            }
    add(a->dq_weight, d, sums[0]);
    add(a->dk_weight, d, sums[1]);
}

alibi_status ref_head_norm_backward(struct device *dev, const struct head_norm_args *a)
{
    (void)dev;
    for (int64_t d = 0; d < a->x.shape[3]; d++)
        weight_gradients(a, d);
    for (int64_t b = 0; b < a->x.shape[0]; b++)
        for (int64_t l = 0; l < a->x.shape[1]; l++)
            for (int64_t h = 0; h < a->x.shape[2]; h++) {
                struct head head = head_of(a, b, l, h);

                backward(a, &head);
            }
    return ALIBI_OK;
}
