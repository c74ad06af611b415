/* sinks.c
 *
 *   s(i, j) = scale * q'_i . k_j + bias(h, i', j),   lse' = log(exp(lse) + sum_j exp(s(i, j)))
 *   y' = exp(lse - lse') y + sum_j m p v_j,   p(i, j) = exp(s(i, j) - lse'), m the mask of dropout
 *   ds = p (m dy . v_j - dy . y'),   dk_j += scale ds q',   dv_j += m p dy,   dq' += scale ds k_j
 *
 * Plain loops over few keys, which the compiler vectorises. Dot products have 16 sums side by side,
 * added in a fixed order. A task of backward is a key/value head of a sequence, so every sum has
 * one order. */
#include <math.h>
#include <omp.h>

#include "ops/cpu/simd/simd.h"
#include "ops/dropout.h"
#include "ops/ref/ref.h"

static float dot(const float *a, const float *b, int64_t D)
{
    enum { SUMS = 16 };
    float sums[SUMS] = { 0 }, sum = 0.0f;
    int64_t d = 0;

    for (; d + SUMS <= D; d += SUMS)
        for (int64_t i = 0; i < SUMS; i++)
            sums[i] += a[d + i] * b[d + i];
    for (; d < D; d++)
        sum += a[d] * b[d];
    for (int64_t i = 0; i < SUMS; i++)
        sum += sums[i];
    return sum;
}

static void add_scaled(float *restrict to, const float *restrict x, float factor, int64_t D)
{
    for (int64_t d = 0; d < D; d++)
        to[d] += factor * x[d];
}

/* One query of one head. */
struct query {
    int64_t b, h, i, slot, kv;
    int64_t from, to, seen; /* its position, i', and how many sinks it sees */
    float weight[SINKS_MAX];
};

static struct query query_at(const struct sinks_args *a, int64_t b, int64_t h, int64_t i)
{
    struct query n = { .b = b, .h = h, .i = i, .kv = h / (a->q.shape[2] / a->k.shape[2]) };

    n.slot = ragged_present(a->ragged) ? ((const int32_t *)a->ragged.slot.data)[b] : b;
    n.from = position_of(a->ragged, a->start, b, i);
    n.to = n.from < a->window + a->sinks ? n.from : a->window + a->sinks - 1;
    n.seen = sinks_seen(n.from, a->window, a->k.shape[1]);
    return n;
}

/* x [D] from the query's position to i', the farthest one; sign -1: the transpose of that. */
static void rotate(float *x, const struct sinks_args *a, const struct query *n, float sign)
{
    int64_t D = a->q.shape[3], half = D / 2;
    bool halves = a->rotation.layout == ALIBI_ROTARY_HALVES;
    int64_t row = ragged_present(a->ragged) ? n->b : n->i;
    const float *from = (const float *)a->rotation.table.data + row * D, *to = a->farthest.data;

    for (int64_t p = 0; p < half; p++) {
        float *first = x + (halves ? p : 2 * p), *second = first + (halves ? half : 1), re;
        float c = from[p], s = from[half + p], C = to[p], S = to[half + p];
        float size = 1.0f / (c * c + s * s), cosine = (C * c + S * s) * size;
        float sine = sign * (S * c - C * s) * size;

        re = *first * cosine - *second * sine;
        *second = *first * sine + *second * cosine;
        *first = re;
    }
}

/* q [D] <- q'; weights <- scores. */
static void find_scores(const struct sinks_args *a, struct query *n, float *q)
{
    int64_t D = a->q.shape[3];
    const float *given = head_of(a->q, n->b, n->i, n->h);

    for (int64_t d = 0; d < D; d++)
        q[d] = given[d];
    if (present(a->rotation.table) && n->from != n->to)
        rotate(q, a, n, 1.0f);
    for (int64_t j = 0; j < n->seen; j++)
        n->weight[j] = (float)(a->scale * ref_gain_at(a->bias, n->to - j)) *
                           dot(q, head_of(a->k, n->slot, j, n->kv), D) +
                       (float)ref_bias_at(a->bias, n->slot, n->h, n->to, j);
}

static float mask_at(const struct sinks_args *a, const struct query *n, int64_t j)
{
    int64_t head = n->b * a->q.shape[2] + n->h;

    return a->dropout.p > 0.0
               ? (float)dropout_factor(a->dropout, attention_element(head, n->i, j, a->q.shape[1]))
               : 1.0f;
}

static float *lse_of(const struct sinks_args *a, const struct query *n)
{
    return (float *)a->lse.data + (n->b * a->q.shape[2] + n->h) * a->q.shape[1] + n->i;
}

static void forward_row(const struct sinks_args *a, struct query *n, float *q)
{
    int64_t D = a->q.shape[3];
    float *y = head_of(a->y, n->b, n->i, n->h), before = *lse_of(a, n), most = before, sum, lse;

    find_scores(a, n, q);
    for (int64_t j = 0; j < n->seen; j++)
        most = fmaxf(most, n->weight[j]);
    sum = expf(before - most);
    for (int64_t j = 0; j < n->seen; j++)
        sum += expf(n->weight[j] - most);
    lse = most + logf(sum);
    for (int64_t d = 0; d < D; d++)
        y[d] *= expf(before - most) / sum;
    for (int64_t j = 0; j < n->seen; j++)
        add_scaled(y, head_of(a->v, n->slot, j, n->kv),
                   mask_at(a, n, j) * expf(n->weight[j] - most) / sum, D);
    *lse_of(a, n) = lse;
}

alibi_status SIMD(sinks_forward)(struct device *dev, const struct sinks_args *a)
{
    int64_t H = a->q.shape[2], D = a->q.shape[3], Lq = a->q.shape[1], rows = a->q.shape[0] * Lq;
    float *memory = NULL;

    if (a->q.type != DTYPE_F32)
        return ref_sinks_forward(dev, a);
    TRY_RETURN(NEW_ARRAY(&memory, omp_get_max_threads() * D, "a query of attention"));
#pragma omp parallel for if (rows * H * D >= CPU_PARALLEL_MIN)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < H; h++) {
            struct query n = query_at(a, row / Lq, h, row % Lq);

            if (n.seen > 0)
                forward_row(a, &n, memory + omp_get_thread_num() * D);
        }
    mem_free(memory);
    return ALIBI_OK;
}

/* ---- backward */

/* dbias [SINKS_MAX]: sums of ds at the distances window, window + 1, ... */
static void backward_row(const struct sinks_args *a, struct query *n, float *q, double *dbias)
{
    int64_t D = a->q.shape[3];
    float *dq = q + D, lse = *lse_of(a, n);
    const float *dy = head_of(a->dy, n->b, n->i, n->h);
    float delta = dot(dy, head_of(a->y, n->b, n->i, n->h), D);

    find_scores(a, n, q);
    for (int64_t d = 0; d < D; d++)
        dq[d] = 0.0f;
    for (int64_t j = 0; j < n->seen; j++) {
        float p = expf(n->weight[j] - lse), m = mask_at(a, n, j);
        float ds = p * (m * dot(dy, head_of(a->v, n->slot, j, n->kv), D) - delta);
        float scaled = (float)(a->scale * ref_gain_at(a->bias, n->to - j)) * ds;

        add_scaled(dq, head_of(a->k, n->slot, j, n->kv), scaled, D);
        add_scaled(head_of(a->dk, n->slot, j, n->kv), q, scaled, D);
        add_scaled(head_of(a->dv, n->slot, j, n->kv), dy, m * p, D);
        dbias[n->to - j - a->window] += (double)ds;
    }
    if (present(a->rotation.table) && n->from != n->to)
        rotate(dq, a, n, -1.0f);
    add_scaled(head_of(a->dq, n->b, n->i, n->h), dq, 1.0f, D);
}

/* sums [B, H, SINKS_MAX] */
static void store_bias(const struct sinks_args *a, const double *sums)
{
    int64_t B = a->q.shape[0], H = a->q.shape[2], T = tensor_count(a->dbias) / H;
    float *out = a->dbias.data;

    for (int64_t h = 0; h < H; h++)
        for (int64_t n = 0; n < a->sinks; n++) {
            int64_t distance = a->window + n;
            double sum = 0.0;

            for (int64_t b = 0; b < B; b++)
                sum += sums[(b * H + h) * SINKS_MAX + n];
            if (a->bias.kind == BIAS_LINEAR)
                out[h] -= (float)(sum * (double)distance);
            else
                out[h * T + (distance < T ? distance : T - 1)] += (float)sum;
        }
}

alibi_status SIMD(sinks_backward)(struct device *dev, const struct sinks_args *a)
{
    int64_t B = a->q.shape[0], Lq = a->q.shape[1], H = a->q.shape[2], D = a->q.shape[3];
    int64_t tasks = B * a->k.shape[2], group = tasks > 0 ? H / a->k.shape[2] : 0;
    alibi_status status;
    float *memory = NULL;
    double *dbias = NULL;

    if (a->q.type != DTYPE_F32)
        return ref_sinks_backward(dev, a);
    TRY(NEW_ARRAY(&memory, omp_get_max_threads() * 2 * D, "a query of attention"));
    TRY(NEW_ZERO_ARRAY(&dbias, B * H * SINKS_MAX, "the gradient of attention's bias"));
#pragma omp parallel for schedule(dynamic) if (B * Lq * H * D >= CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t b = task * group / H, first = task * group % H; /* query head */

        for (int64_t h = first; h < first + group; h++)
            for (int64_t i = 0; i < Lq; i++) {
                struct query n = query_at(a, b, h, i);

                if (n.seen > 0)
                    backward_row(a, &n, memory + omp_get_thread_num() * 2 * D,
                                 dbias + (b * H + h) * SINKS_MAX);
            }
    }
    if (present(a->dbias) && a->bias.kind != BIAS_NONE && tasks > 0)
        store_bias(a, dbias);
out:
    mem_free(memory);
    mem_free(dbias);
    return status;
}
