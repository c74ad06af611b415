/* attention.c
 *
 *   s(i, j) = scale * q_i . k_j + bias(h, i - j)     j <= i
 *   p(i, j) = exp(s(i, j) - lse_i),     lse_i = log sum_j exp(s(i, j)),     y_i = sum_j p(i, j) v_j
 *
 * Backward:
 *
 *   D_i = dy_i . y_i,     ds(i, j) = p(i, j) (dy_i . v_j - D_i)
 *   dq_i = scale * sum_j ds(i, j) k_j,     dk_j = scale * sum_i ds(i, j) q_i,     dv_j = sum_i p(i,
 * j) dy_i dbias: ds(i, j) goes to the entry that s(i, j) read; for slopes, times -(i - j)
 *
 * The mask is the bound of the loops. Backward recomputes p from lse, pair by pair, so that memory
 * grows with Lk only. */
#include <math.h>

#include "ops/ref/ref.h"

/* What one call works on, with its dimensions by letter. Query i stands at position i + past. */
struct call {
    struct attention a;
    int64_t B, Lq, Lk, H, Hkv, D, past;
};

static struct call new_call(struct attention a)
{
    return (struct call){
        .a = a,
        .B = a.q.shape[0],
        .Lq = a.q.shape[1],
        .Lk = a.k.shape[1],
        .H = a.q.shape[2],
        .Hkv = a.k.shape[2],
        .D = a.q.shape[3],
        .past = a.k.shape[1] - a.q.shape[1],
    };
}

/* Batch entry, query head, and the key/value head it reads. */
struct head {
    int64_t b, h, kv;
};

static struct head head_at(const struct call *c, int64_t b, int64_t h)
{
    return (struct head){ b, h, h / (c->H / c->Hkv) };
}

/* First of the D numbers of head h at row l of a view [B, L, H, D]. */
static int64_t at(struct tensor t, int64_t b, int64_t l, int64_t h)
{
    return b * t.stride[0] + l * t.stride[1] + h * t.stride[2];
}

static double dot(struct tensor x, int64_t x_at, struct tensor y, int64_t y_at, int64_t D)
{
    double sum = 0.0;

    for (int64_t d = 0; d < D; d++)
        sum += get(x, x_at + d) * get(y, y_at + d);
    return sum;
}

double ref_bias_at(struct bias bias, int64_t h, int64_t distance)
{
    switch (bias.kind) {
    case BIAS_NONE:
        return 0.0;
    case BIAS_LINEAR:
        return -get(bias.values, h) * (double)distance;
    case BIAS_TABLE: {
        int64_t T = bias.values.shape[1];
        return get(bias.values, h * T + (distance < T ? distance : T - 1));
    }
    }
    return 0.0;
}

static double score(const struct call *c, struct head n, int64_t i, int64_t j)
{
    const struct attention *a = &c->a;
    double product = dot(a->q, at(a->q, n.b, i, n.h), a->k, at(a->k, n.b, j, n.kv), c->D);

    return a->scale * product + ref_bias_at(a->bias, n.h, i + c->past - j);
}

/* ---- forward */

/* row[0..keys-1] <- probabilities from scores; returns the log-sum-exp. */
static double softmax(double *row, int64_t keys)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t j = 0; j < keys; j++)
        max = fmax(max, row[j]);
    for (int64_t j = 0; j < keys; j++)
        sum += exp(row[j] - max);
    for (int64_t j = 0; j < keys; j++)
        row[j] = exp(row[j] - max) / sum;
    return max + log(sum);
}

static void forward_row(const struct call *c, struct tensor y, struct tensor lse, struct head n,
                        int64_t i, double *row)
{
    struct tensor v = c->a.v;
    int64_t keys = i + c->past + 1;

    for (int64_t j = 0; j < keys; j++)
        row[j] = score(c, n, i, j);
    set(lse, (n.b * c->H + n.h) * c->Lq + i, softmax(row, keys));
    for (int64_t d = 0; d < c->D; d++) {
        double sum = 0.0;
        for (int64_t j = 0; j < keys; j++)
            sum += row[j] * get(v, at(v, n.b, j, n.kv) + d);
        set(y, at(y, n.b, i, n.h) + d, sum);
    }
}

/* The reference uses every tile that the mask leaves. */
static void keep_all(const struct call *c, struct tensor kept)
{
    int64_t tiles = kept.shape[2], words = kept.shape[3], past = c->past / ATTENTION_TILE;
    uint32_t *word = kept.data;

    for (int64_t row = 0; present(kept) && row < tensor_count(kept) / words; row++)
        for (int64_t t = 0; t < 32 * words; t++) {
            uint32_t bit = t <= past + row % tiles ? 1 : 0;
            word[row * words + t / 32] =
                (t % 32 == 0 ? 0 : word[row * words + t / 32]) | bit << t % 32;
        }
}

alibi_status ref_attention_forward(struct device *dev, struct tensor y, struct tensor lse,
                                   struct attention a)
{
    struct call c = new_call(a);
    double *row = NULL;

    (void)dev;
    TRY_RETURN(NEW_ARRAY(&row, c.Lk, "a row of attention scores"));
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t i = 0; i < c.Lq; i++)
                forward_row(&c, y, lse, head_at(&c, b, h), i, row);
    mem_free(row);
    keep_all(&c, a.skip.kept);
    return ALIBI_OK;
}

static double largest_norm(struct tensor k, int64_t b, int64_t kv, int64_t first, int64_t end)
{
    double largest = 0.0;

    for (int64_t j = first; j < end; j++) {
        int64_t k_j = at(k, b, j, kv);
        largest = fmax(largest, dot(k, k_j, k, k_j, k.shape[3]));
    }
    return sqrt(largest);
}

alibi_status ref_attention_norms(struct device *dev, struct tensor norms, struct tensor k,
                                 int64_t from)
{
    int64_t L = k.shape[1], Hkv = k.shape[2], tiles = attention_tiles(L);

    (void)dev;
    for (int64_t b = 0; b < k.shape[0]; b++)
        for (int64_t kv = 0; kv < Hkv; kv++)
            for (int64_t t = from / ATTENTION_TILE; t < tiles; t++) {
                int64_t first = t * ATTENTION_TILE,
                        end = first + ATTENTION_TILE < L ? first + ATTENTION_TILE : L;
                set(norms, b * norms.stride[0] + kv * norms.stride[1] + t,
                    largest_norm(k, b, kv, first, end));
            }
    return ALIBI_OK;
}

/* ---- backward */

/* Gradients being summed in double. */
struct sums {
    double *dq;        /* [D], of one query */
    double *dk, *dv;   /* [Lk, D], of one key/value head of one batch entry */
    double *dbias;     /* like bias.values, of all */
    double *all;       /* the memory that holds them */
    int64_t distances; /* T of the table; 1 for slopes; 0: no gradient wanted */
};

static alibi_status sums_init(struct sums *s, const struct call *c, struct tensor dbias)
{
    int64_t keys = c->Lk * c->D, entries = present(dbias) ? tensor_count(dbias) : 0;

    TRY_RETURN(NEW_ZERO_ARRAY(&s->all, c->D + 2 * keys + entries, "sums of attention gradients"));
    s->dq = s->all;
    s->dk = s->dq + c->D;
    s->dv = s->dk + keys;
    s->dbias = s->dv + keys;
    s->distances = entries > 0 ? entries / c->H : 0;
    return ALIBI_OK;
}

static void add_bias_gradient(struct sums *s, enum bias_kind kind, int64_t h, int64_t distance,
                              double ds)
{
    if (s->distances == 0)
        return;
    if (kind == BIAS_LINEAR)
        s->dbias[h] -= ds * (double)distance;
    else
        s->dbias[h * s->distances + (distance < s->distances ? distance : s->distances - 1)] += ds;
}

/* Query i of head n against every key it sees. */
static void backward_row(const struct call *c, struct sums *s, struct tensor dy, struct tensor y,
                         double lse, struct head n, int64_t i)
{
    struct tensor q = c->a.q, k = c->a.k, v = c->a.v;
    int64_t q_i = at(q, n.b, i, n.h), dy_i = at(dy, n.b, i, n.h);
    double D_i = dot(dy, dy_i, y, at(y, n.b, i, n.h), c->D);

    for (int64_t j = 0; j <= i + c->past; j++) {
        int64_t k_j = at(k, n.b, j, n.kv), v_j = at(v, n.b, j, n.kv);
        double p = exp(score(c, n, i, j) - lse);
        double ds = p * (dot(dy, dy_i, v, v_j, c->D) - D_i);
        for (int64_t d = 0; d < c->D; d++) {
            s->dq[d] += c->a.scale * ds * get(k, k_j + d);
            s->dk[j * c->D + d] += c->a.scale * ds * get(q, q_i + d);
            s->dv[j * c->D + d] += p * get(dy, dy_i + d);
        }
        add_bias_gradient(s, c->a.bias.kind, n.h, i + c->past - j, ds);
    }
}

/* Moves one row of sums into a view and clears it for the next use. */
static void take(struct tensor t, int64_t to, double *sum, int64_t D)
{
    for (int64_t d = 0; d < D; d++) {
        set(t, to + d, sum[d]);
        sum[d] = 0.0;
    }
}

/* The query heads that share a key/value head, one after the other: dk and dv sum over all of them.
 * */
static void backward_group(const struct call *c, struct sums *s, struct tensor dq, struct tensor dk,
                           struct tensor dv, struct tensor dy, struct tensor y, struct tensor lse,
                           int64_t b, int64_t kv)
{
    int64_t group = c->H / c->Hkv;

    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < c->Lq; i++) {
            double lse_i = get(lse, (b * c->H + h) * c->Lq + i);
            backward_row(c, s, dy, y, lse_i, head_at(c, b, h), i);
            take(dq, at(dq, b, i, h), s->dq, c->D);
        }
    for (int64_t j = 0; j < c->Lk; j++) {
        take(dk, at(dk, b, j, kv), s->dk + j * c->D, c->D);
        take(dv, at(dv, b, j, kv), s->dv + j * c->D, c->D);
    }
}

static alibi_status turn_back(struct device *dev, struct tensor dq, struct tensor dk,
                              struct rotation r)
{
    if (!r.table.data)
        return ALIBI_OK;
    TRY_RETURN(ref_rotary(dev, dq, r, -1));
    return ref_rotary(dev, dk, r, -1);
}

alibi_status ref_attention_backward(struct device *dev, struct tensor dq, struct tensor dk,
                                    struct tensor dv, struct tensor dbias, struct tensor dy,
                                    struct tensor y, struct tensor lse, struct attention a)
{
    struct call c = new_call(a);
    struct sums s = { 0 };

    TRY_RETURN(sums_init(&s, &c, dbias));
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t kv = 0; kv < c.Hkv; kv++)
            backward_group(&c, &s, dq, dk, dv, dy, y, lse, b, kv);
    for (int64_t t = 0; t < s.distances * c.H; t++)
        add(dbias, t, s.dbias[t]);
    mem_free(s.all);
    return turn_back(dev, dq, dk, a.turned);
}
