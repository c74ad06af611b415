/* sinks.c
 *
 *   s(i, j) = gain(i' - j) scale q'_i . k_j + bias(h, i', j)      j < sinks, i - j >= window
 *   lse' = log(exp(lse) + sum_j exp(s(i, j))),     p(i, j) = exp(s(i, j) - lse')
 *   y' = exp(lse - lse') y + sum_j m(i, j) p(i, j) v_j,     m(i, j) = 1, or the mask of dropout
 *
 * Backward:
 *
 *   ds(i, j) = p(i, j) (m(i, j) dy_i . v_j - dy_i . y'_i)
 *   dq' = scale * sum_j gain ds(i, j) k_j, rotated back to position i, is added to dq
 *   dk_j += scale * sum_i gain ds(i, j) q'_i,     dv_j += sum_i m(i, j) p(i, j) dy_i
 *
 * A pair of a head is a complex number z, and its rotation a factor w. From position i to i' it is
 * w(i') conj(w(i)) / |w(i)|^2, because a method may stretch what it rotates. */
#include <math.h>

#include "ops/dropout.h"
#include "ops/ref/ref.h"

/* One query of one head, and the sinks that it sees. */
struct query {
    int64_t b, h, i;
    int64_t slot, kv; /* where its keys are */
    int64_t from, to; /* its position, and i' */
    int64_t seen;     /* keys 0..seen-1 */
};

static struct query query_at(const struct sinks_args *a, int64_t b, int64_t h, int64_t i)
{
    struct query n = { .b = b, .h = h, .i = i, .kv = h / (a->q.shape[2] / a->k.shape[2]) };
    int64_t last = a->window + a->sinks - 1;

    n.from = ragged_present(a->ragged) ? get_index(a->ragged.length, b) - 1 : a->start + i;
    n.slot = ragged_present(a->ragged) ? get_index(a->ragged.slot, b) : b;
    n.to = n.from < last ? n.from : last;
    n.seen = sinks_seen(n.from, a->window, a->k.shape[1]);
    return n;
}

/* The pair of a head that has element d, its elements, and the factor cosine + i sine that takes it
 * from the query's position to i', the farthest one. */
struct turn {
    int64_t first, second;
    double cosine, sine;
};

static struct turn turn_of(const struct sinks_args *a, struct query q, int64_t d)
{
    struct tensor table = a->rotation.table;
    int64_t D = a->q.shape[3], half = D / 2;
    int64_t row = (ragged_present(a->ragged) ? q.b : q.i) * D;
    bool halves = a->rotation.layout == ALIBI_ROTARY_HALVES;
    int64_t n = halves ? d % half : d / 2;
    struct turn t = { .first = halves ? n : 2 * n, .second = halves ? n + half : 2 * n + 1 };
    double c = get(table, row + n), s = get(table, row + half + n);
    double C = get(a->farthest, n), S = get(a->farthest, half + n);

    t.cosine = (C * c + S * s) / (c * c + s * s);
    t.sine = (S * c - C * s) / (c * c + s * s);
    return t;
}

static bool is_rotated(const struct sinks_args *a, struct query n)
{
    return present(a->rotation.table) && n.from != n.to;
}

/* Element d of q'. */
static double element(const struct sinks_args *a, struct query n, int64_t d)
{
    int64_t q = head_at(a->q, n.b, n.i, n.h);
    struct turn t;

    if (!is_rotated(a, n))
        return get(a->q, q + d);
    t = turn_of(a, n, d);
    return d == t.first ? t.cosine * get(a->q, q + d) - t.sine * get(a->q, q + t.second)
                        : t.cosine * get(a->q, q + d) + t.sine * get(a->q, q + t.first);
}

static double score(const struct sinks_args *a, struct query n, int64_t j)
{
    double sum = 0.0;

    for (int64_t d = 0; d < a->q.shape[3]; d++)
        sum += element(a, n, d) * get(a->k, head_at(a->k, n.slot, j, n.kv) + d);
    return ref_gain_at(a->bias, n.to - j) * a->scale * sum +
           ref_bias_at(a->bias, n.slot, n.h, n.to, j);
}

double ref_sink_score(const struct sinks_args *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return score(a, query_at(a, b, h, i), j);
}

static double mask_at(const struct sinks_args *a, struct query n, int64_t j)
{
    int64_t head = n.b * a->q.shape[2] + n.h;

    return a->dropout.p > 0.0
               ? dropout_factor(a->dropout, attention_element(head, n.i, j, a->q.shape[1]))
               : 1.0;
}

static int64_t lse_at(const struct sinks_args *a, struct query n)
{
    return (n.b * a->q.shape[2] + n.h) * a->q.shape[1] + n.i;
}

static void forward_row(const struct sinks_args *a, struct query n)
{
    double before = get(a->lse, lse_at(a, n)), most = before, sum, lse, weight[SINKS_MAX];

    for (int64_t j = 0; j < n.seen; j++) {
        weight[j] = score(a, n, j);
        most = fmax(most, weight[j]);
    }
    sum = exp(before - most);
    for (int64_t j = 0; j < n.seen; j++)
        sum += exp(weight[j] - most);
    lse = most + log(sum);
    for (int64_t j = 0; j < n.seen; j++)
        weight[j] = mask_at(a, n, j) * exp(weight[j] - lse);
    for (int64_t d = 0; d < a->q.shape[3]; d++) {
        int64_t to = head_at(a->y, n.b, n.i, n.h) + d;
        double y = exp(before - lse) * get(a->y, to);

        for (int64_t j = 0; j < n.seen; j++)
            y += weight[j] * get(a->v, head_at(a->v, n.slot, j, n.kv) + d);
        set(a->y, to, y);
    }
    set(a->lse, lse_at(a, n), lse);
}

alibi_status ref_sinks_forward(struct device *dev, const struct sinks_args *a)
{
    (void)dev;
    for (int64_t b = 0; b < a->q.shape[0]; b++)
        for (int64_t h = 0; h < a->q.shape[2]; h++)
            for (int64_t i = 0; i < a->q.shape[1]; i++) {
                struct query n = query_at(a, b, h, i);

                if (n.seen > 0)
                    forward_row(a, n);
            }
    return ALIBI_OK;
}

/* ---- backward */

/* Gradients summed in double. */
struct sums {
    double *all;
    double *dq;        /* [D], of one query */
    double *dk, *dv;   /* [n, D], of one key/value head */
    double *dbias;     /* like bias.values, of all */
    int64_t distances; /* T of the table; 1 for slopes; 0: dbias is absent */
};

static alibi_status sums_init(struct sums *s, const struct sinks_args *a)
{
    int64_t D = a->q.shape[3], keys = a->k.shape[1] * D;
    int64_t entries = present(a->dbias) ? tensor_count(a->dbias) : 0;

    TRY_RETURN(NEW_ZERO_ARRAY(&s->all, D + 2 * keys + entries, "sums of gradients of sinks"));
    s->dq = s->all;
    s->dk = s->dq + D;
    s->dv = s->dk + keys;
    s->dbias = s->dv + keys;
    s->distances = entries > 0 ? entries / a->q.shape[2] : 0;
    return ALIBI_OK;
}

/* Adds one row of sums to a view, and clears it for the next use. */
static void take(struct tensor t, int64_t to, double *sum, int64_t D)
{
    for (int64_t d = 0; d < D; d++) {
        add(t, to + d, sum[d]);
        sum[d] = 0.0;
    }
}

static void backward_row(const struct sinks_args *a, struct sums *s, struct query n)
{
    int64_t D = a->q.shape[3], dy = head_at(a->dy, n.b, n.i, n.h), y = head_at(a->y, n.b, n.i, n.h);
    double lse = get(a->lse, lse_at(a, n)), delta = 0.0;

    for (int64_t d = 0; d < D; d++)
        delta += get(a->dy, dy + d) * get(a->y, y + d);
    for (int64_t j = 0; j < n.seen; j++) {
        int64_t k = head_at(a->k, n.slot, j, n.kv), v = head_at(a->v, n.slot, j, n.kv),
                distance = n.to - j;
        double p = exp(score(a, n, j) - lse), m = mask_at(a, n, j), dp = 0.0, ds, scaled;

        for (int64_t d = 0; d < D; d++)
            dp += get(a->dy, dy + d) * get(a->v, v + d);
        ds = p * (m * dp - delta);
        scaled = a->scale * ref_gain_at(a->bias, distance) * ds;
        for (int64_t d = 0; d < D; d++) {
            s->dq[d] += scaled * get(a->k, k + d);
            s->dk[j * D + d] += scaled * element(a, n, d);
            s->dv[j * D + d] += m * p * get(a->dy, dy + d);
        }
        if (s->distances > 0 && a->bias.kind == BIAS_LINEAR)
            s->dbias[n.h] -= ds * (double)distance;
        else if (s->distances > 0)
            s->dbias[n.h * s->distances +
                     (distance < s->distances ? distance : s->distances - 1)] += ds;
    }
    for (int64_t d = 0; d < D && is_rotated(a, n); d++) { /* the transpose of what q' is */
        struct turn t = turn_of(a, n, d);
        double first = s->dq[t.first], second = s->dq[t.second];

        if (d == t.first) {
            s->dq[t.first] = t.cosine * first + t.sine * second;
            s->dq[t.second] = t.cosine * second - t.sine * first;
        }
    }
    take(a->dq, head_at(a->dq, n.b, n.i, n.h), s->dq, D);
}

alibi_status ref_sinks_backward(struct device *dev, const struct sinks_args *a)
{
    int64_t D = a->q.shape[3], group = a->k.shape[2] > 0 ? a->q.shape[2] / a->k.shape[2] : 0;
    struct sums s = { 0 };

    (void)dev;
    TRY_RETURN(sums_init(&s, a));
    for (int64_t b = 0; b < a->q.shape[0]; b++)
        for (int64_t kv = 0; kv < a->k.shape[2]; kv++) {
            for (int64_t h = kv * group; h < (kv + 1) * group; h++)
                for (int64_t i = 0; i < a->q.shape[1]; i++) {
                    struct query n = query_at(a, b, h, i);

                    if (n.seen > 0)
                        backward_row(a, &s, n);
                }
            for (int64_t j = 0; j < a->k.shape[1]; j++) {
                take(a->dk, head_at(a->dk, b, j, kv), s.dk + j * D, D);
                take(a->dv, head_at(a->dv, b, j, kv), s.dv + j * D, D);
            }
        }
    for (int64_t n = 0; n < s.distances * a->q.shape[2]; n++)
        add(a->dbias, n, s.dbias[n]);
    mem_free(s.all);
    return ALIBI_OK;
}
