/* attention.c
 *
 *   s(i, j) = gain(i - j) scale q_i . k_j + bias(h, i, j)      j <= i, i - j < window
 *   p(i, j) = exp(s(i, j) - lse_i),     lse_i = log sum_j exp(s(i, j))
 *   y_i = sum_j m(i, j) p(i, j) v_j,     m(i, j) = 1, or with dropout 0 or 1 / (1 - p)
 *
 * Backward:
 *
 *   D_i = dy_i . y_i,     ds(i, j) = p(i, j) (m(i, j) dy_i . v_j - D_i)
 *   dq_i = scale * sum_j gain(i - j) ds(i, j) k_j
 *   dk_j = scale * sum_i gain(i - j) ds(i, j) q_i,     dv_j = sum_i m(i, j) p(i, j) dy_i
 *   dbias: ds(i, j) is added to the entry that s(i, j) read; for slopes, times -(i - j); for gates,
 *   which s(i, j) reads at i and j, dc_j = -sum_i ds(i, j): those at i cancel, sum_j ds(i, j) = 0
 *
 * Mask and window are the bounds of the loops. Backward recomputes p from lse, pair by pair, so
 * that memory grows with Lk only. */
#include <math.h>

#include "ops/dropout.h"
#include "ops/ref/ref.h"

/* One query head of one row of the batch, and where its keys are: head kv of row `keys` of k and v.
 * Query i is at position i + past. */
struct head {
    int64_t b, h;
    int64_t keys, kv, past;
};

static struct head head_of(const struct attention_args *a, int64_t b, int64_t h)
{
    int64_t kv = h / (a->q.shape[2] / a->k.shape[2]);

    if (ragged_present(a->ragged))
        return (struct head){ b, h, present(a->ragged.slot) ? get_index(a->ragged.slot, b) : b, kv,
                              get_index(a->ragged.length, b) - 1 };
    return (struct head){ b, h, b, kv, a->k.shape[1] - a->q.shape[1] };
}

static double dot(struct tensor x, int64_t x_at, struct tensor y, int64_t y_at, int64_t D)
{
    double sum = 0.0;

    for (int64_t d = 0; d < D; d++)
        sum += get(x, x_at + d) * get(y, y_at + d);
    return sum;
}

static double gate_sum(struct tensor c, int64_t row, int64_t h, int64_t l)
{
    int64_t at = row * c.stride[1] + h * c.stride[2] + l;

    return get(c, at) + get(c, at + c.stride[0]);
}

double ref_bias_at(struct bias bias, int64_t row, int64_t h, int64_t position, int64_t j)
{
    int64_t distance = position - j;

    switch (bias.kind) {
    case BIAS_NONE:
        return 0.0;
    case BIAS_LINEAR:
        return -get(bias.values, h) * (double)distance;
    case BIAS_TABLE: {
        int64_t T = bias.values.shape[1];
        return get(bias.values, h * T + (distance < T ? distance : T - 1));
    }
    case BIAS_GATE:
        return h < bias.values.shape[2]
                   ? gate_sum(bias.values, row, h, position) - gate_sum(bias.values, row, h, j)
                   : 0.0;
    case BIAS_GAIN:
        return -2.0 * log1p((double)distance / bias.tau);
    }
    return 0.0;
}

double ref_gain_at(struct bias bias, int64_t distance)
{
    return bias.kind == BIAS_GAIN ? sqrt(1.0 + 2.0 * log1p((double)distance / bias.tau)) : 1.0;
}

static double score(const struct attention_args *a, struct head n, int64_t i, int64_t j)
{
    double product =
        dot(a->q, head_at(a->q, n.b, i, n.h), a->k, head_at(a->k, n.keys, j, n.kv), a->q.shape[3]);

    return ref_gain_at(a->bias, i + n.past - j) * a->scale * product +
           ref_bias_at(a->bias, n.keys, n.h, i + n.past, j);
}

static double mask_at(const struct attention_args *a, struct head n, int64_t i, int64_t j)
{
    int64_t head = n.b * a->q.shape[2] + n.h;

    return a->dropout.p > 0.0
               ? dropout_factor(a->dropout, attention_element(head, i, j, a->k.shape[1]))
               : 1.0;
}

/* First of the numbers of a head in lse. */
static int64_t lse_at(const struct attention_args *a, struct head n)
{
    return n.b * a->lse.stride[0] + n.h * a->lse.stride[1];
}

/* ---- sequences one at a time */

bool ref_attention_is_apart(const struct attention_args *a)
{
    return packed_present(a->packed) || (a->bias.kind == BIAS_LINEAR && a->bias.values.rank == 2);
}

/* Rows from..from + count - 1 of entry b of a view. */
static struct tensor part(struct tensor t, int64_t b, int64_t from, int64_t count)
{
    if (present(t))
        t.data = tensor_at(t, b * t.stride[0] + from * t.stride[1]);
    t.shape[0] = 1;
    t.shape[1] = count;
    return t;
}

/* Entry b of a tensor by sequences; absent stays absent. */
static struct tensor entry(struct tensor t, int64_t b)
{
    if (present(t))
        t.data = tensor_at(t, b * t.stride[0]);
    t.shape[0] = 1;
    return t;
}

/* The call of sequence b alone. */
static struct attention_args sequence(const struct attention_args *a, int64_t b)
{
    bool packed = packed_present(a->packed), ragged = ragged_present(a->ragged);
    int64_t row = packed ? 0 : b, queries = a->q.shape[1], keys = a->k.shape[1], q = 0, k = 0;
    struct attention_args one = *a;

    if (packed) {
        q = get_index(a->packed.q, b);
        k = get_index(a->packed.k, b);
        queries = get_index(a->packed.q, b + 1) - q;
        keys = get_index(a->packed.k, b + 1) - k;
    }
    one.packed = (struct packed){ 0 };
    one.append = NULL; /* done, for all sequences */
    one.q = part(a->q, row, q, queries);
    one.y = part(a->y, row, q, queries);
    one.dy = part(a->dy, row, q, queries);
    one.dq = part(a->dq, row, q, queries);
    one.lse = entry(a->lse, row);
    one.lse.data = tensor_at(one.lse, q);
    one.lse.shape[2] = queries;
    if (ragged) { /* its slot of the cache; the norms are by slot too */
        int64_t slot = present(a->ragged.slot) ? get_index(a->ragged.slot, b) : b;
        one.ragged.slot = tensor_none();
        one.ragged.length = entry(a->ragged.length, b);
        one.k = part(a->k, slot, 0, keys);
        one.v = part(a->v, slot, 0, keys);
        one.skip.norms = entry(a->skip.norms, slot);
    } else {
        one.k = part(a->k, row, k, keys);
        one.v = part(a->v, row, k, keys);
        one.dk = part(a->dk, row, k, keys);
        one.dv = part(a->dv, row, k, keys);
        one.skip.norms = entry(a->skip.norms, b);
        one.skip.kept = entry(a->skip.kept, b);
    }
    if (a->bias.kind == BIAS_LINEAR && a->bias.values.rank == 2) {
        int64_t H = a->bias.values.shape[1];
        one.bias.values = tensor_1(tensor_at(a->bias.values, b * H), a->bias.values.type, H);
        if (present(a->dbias))
            one.dbias = tensor_1(tensor_at(a->dbias, b * H), a->dbias.type, H);
    }
    return one;
}

alibi_status ref_attention_each(struct device *dev, const struct attention_args *a,
                                attention_fn *run)
{
    int64_t B = packed_present(a->packed) ? a->packed.q.shape[0] - 1 : a->q.shape[0];

    for (int64_t b = 0; b < B; b++) {
        struct attention_args one = sequence(a, b);
        TRY_RETURN(run(dev, &one));
    }
    return ALIBI_OK;
}

/* ---- forward */

/* row[first..end-1] <- probabilities from scores; returns the log-sum-exp. */
static double softmax(double *row, int64_t first, int64_t end)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t j = first; j < end; j++)
        max = fmax(max, row[j]);
    for (int64_t j = first; j < end; j++)
        sum += exp(row[j] - max);
    for (int64_t j = first; j < end; j++)
        row[j] = exp(row[j] - max) / sum;
    return max + log(sum);
}

static void forward_row(const struct attention_args *a, struct head n, int64_t i, double *row)
{
    int64_t D = a->q.shape[3], end = i + n.past + 1;
    int64_t first = attention_first_key(i + n.past, a->window);

    for (int64_t j = first; j < end; j++)
        row[j] = score(a, n, i, j);
    set(a->lse, lse_at(a, n) + i, softmax(row, first, end));
    for (int64_t j = first; j < end; j++)
        row[j] *= mask_at(a, n, i, j);
    for (int64_t d = 0; d < D; d++) {
        double sum = 0.0;
        for (int64_t j = first; j < end; j++)
            sum += row[j] * get(a->v, head_at(a->v, n.keys, j, n.kv) + d);
        set(a->y, head_at(a->y, n.b, i, n.h) + d, sum);
    }
}

/* The reference uses every tile that mask and window leave. */
static void keep_all(const struct attention_args *a)
{
    struct tensor kept = a->skip.kept;
    int64_t tiles = kept.shape[2], words = kept.shape[3];
    int64_t past = (a->k.shape[1] - a->q.shape[1]) / ATTENTION_TILE;
    uint32_t *word = kept.data;

    for (int64_t row = 0; present(kept) && row < tensor_count(kept) / words; row++)
        for (int64_t t = 0; t < 32 * words; t++) {
            int64_t diagonal = past + row % tiles;
            int64_t first = attention_first_key(diagonal * ATTENTION_TILE, a->window);
            uint32_t bit = first / ATTENTION_TILE <= t && t <= diagonal ? 1 : 0;
            word[row * words + t / 32] =
                (t % 32 == 0 ? 0 : word[row * words + t / 32]) | bit << t % 32;
        }
}

alibi_status ref_attention_forward(struct device *dev, const struct attention_args *a)
{
    double *row = NULL;

    if (a->append)
        TRY_RETURN(ref_cache_append(dev, a->append));
    if (ref_attention_is_apart(a))
        return ref_attention_each(dev, a, ref_attention_forward);
    TRY_RETURN(NEW_ARRAY(&row, a->k.shape[1], "a row of attention scores"));
    for (int64_t b = 0; b < a->q.shape[0]; b++)
        for (int64_t h = 0; h < a->q.shape[2]; h++)
            for (int64_t i = 0; i < a->q.shape[1]; i++)
                forward_row(a, head_of(a, b, h), i, row);
    mem_free(row);
    keep_all(a);
    return ALIBI_OK;
}

/* The host's backends take what they need from the heap, and give it back. */
size_t ref_attention_workspace(struct device *dev, const struct attention_args *a, bool backward)
{
    (void)dev;
    (void)a;
    (void)backward;
    return 0;
}

/* Tile t of the first `length` keys of every head of sequence b. */
static void tile_norms(struct tensor norms, struct tensor k, int64_t b, int64_t length, int64_t t)
{
    int64_t first = t * ATTENTION_TILE,
            end = first + ATTENTION_TILE < length ? first + ATTENTION_TILE : length;

    for (int64_t kv = 0; kv < k.shape[2]; kv++) {
        double largest = 0.0;
        for (int64_t j = first; j < end; j++)
            largest =
                fmax(largest, dot(k, head_at(k, b, j, kv), k, head_at(k, b, j, kv), k.shape[3]));
        set(norms, b * norms.stride[0] + kv * norms.stride[1] + t, sqrt(largest));
    }
}

alibi_status ref_attention_norms(struct device *dev, struct tensor norms, struct tensor k,
                                 int64_t from)
{
    (void)dev;
    for (int64_t b = 0; b < k.shape[0]; b++)
        for (int64_t t = from / ATTENTION_TILE; t < attention_tiles(k.shape[1]); t++)
            tile_norms(norms, k, b, k.shape[1], t);
    return ALIBI_OK;
}

/* The head of a row: to[slot, position, h] = from[b, 0, h]. */
static void append_head(struct tensor to, struct tensor from, int64_t slot, int64_t position,
                        int64_t b, int64_t h)
{
    for (int64_t d = 0; d < to.shape[3]; d++)
        set(to, head_at(to, slot, position, h) + d, get(from, head_at(from, b, 0, h) + d));
}

/* The tokens become the last of `lengths`. */
static void append_at(const struct cache_append_args *a, struct tensor lengths)
{
    for (int64_t b = 0; b < a->new_k.shape[0]; b++) {
        int64_t slot = get_index(a->ragged.slot, b), length = get_index(lengths, b);

        for (int64_t h = 0; h < a->new_k.shape[2]; h++) {
            append_head(a->k, a->new_k, slot, length - 1, b, h);
            append_head(a->v, a->new_v, slot, length - 1, b, h);
        }
        tile_norms(a->norms, a->k, slot, length, (length - 1) / ATTENTION_TILE);
    }
}

alibi_status ref_cache_append(struct device *dev, const struct cache_append_args *a)
{
    (void)dev;
    append_at(a, a->ragged.length);
    if (present(a->other))
        append_at(a, a->other);
    return ALIBI_OK;
}

/* ---- backward */

/* Gradients summed in double. */
struct sums {
    double *dq;        /* [D], of one query */
    double *dk, *dv;   /* [Lk, D], of one key/value head of one batch entry */
    double *dbias;     /* like the tensor, of all */
    double *all;       /* the memory that holds them */
    int64_t distances; /* T of the table; 1 for slopes; 0: dbias is absent, or of gates */
};

static alibi_status sums_init(struct sums *s, const struct attention_args *a)
{
    int64_t D = a->q.shape[3], keys = a->k.shape[1] * D;
    int64_t entries = present(a->dbias) ? tensor_count(a->dbias) : 0;

    TRY_RETURN(NEW_ZERO_ARRAY(&s->all, D + 2 * keys + entries, "sums of attention gradients"));
    s->dq = s->all;
    s->dk = s->dq + D;
    s->dv = s->dk + keys;
    s->dbias = s->dv + keys;
    s->distances = entries > 0 && a->bias.kind != BIAS_GATE ? entries / a->q.shape[2] : 0;
    return ALIBI_OK;
}

/* Query i of head n against every key it sees. */
static void backward_row(const struct attention_args *a, struct sums *s, struct head n, int64_t i)
{
    int64_t D = a->q.shape[3], q_i = head_at(a->q, n.b, i, n.h), dy_i = head_at(a->dy, n.b, i, n.h);
    double D_i = dot(a->dy, dy_i, a->y, head_at(a->y, n.b, i, n.h), D);
    double lse = get(a->lse, lse_at(a, n) + i);

    for (int64_t j = attention_first_key(i + n.past, a->window); j <= i + n.past; j++) {
        int64_t k_j = head_at(a->k, n.b, j, n.kv), v_j = head_at(a->v, n.b, j, n.kv);
        int64_t distance = i + n.past - j;
        double p = exp(score(a, n, i, j) - lse), m = mask_at(a, n, i, j);
        double ds = p * (m * dot(a->dy, dy_i, a->v, v_j, D) - D_i);
        double scaled = a->scale * ref_gain_at(a->bias, distance) * ds;

        for (int64_t d = 0; d < D; d++) {
            s->dq[d] += scaled * get(a->k, k_j + d);
            s->dk[j * D + d] += scaled * get(a->q, q_i + d);
            s->dv[j * D + d] += m * p * get(a->dy, dy_i + d);
        }
        if (a->bias.kind == BIAS_GATE && present(a->dbias) && n.h < a->dbias.shape[1])
            s->dbias[(n.b * a->dbias.shape[1] + n.h) * a->dbias.shape[2] + j] -= ds;
        else if (s->distances > 0 && a->bias.kind == BIAS_LINEAR)
            s->dbias[n.h] -= ds * (double)distance;
        else if (s->distances > 0)
            s->dbias[n.h * s->distances +
                     (distance < s->distances ? distance : s->distances - 1)] += ds;
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
 */
static void backward_group(const struct attention_args *a, struct sums *s, int64_t b, int64_t kv)
{
    int64_t D = a->q.shape[3], group = a->q.shape[2] / a->k.shape[2];

    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < a->q.shape[1]; i++) {
            backward_row(a, s, head_of(a, b, h), i);
            take(a->dq, head_at(a->dq, b, i, h), s->dq, D);
        }
    for (int64_t j = 0; j < a->k.shape[1]; j++) {
        take(a->dk, head_at(a->dk, b, j, kv), s->dk + j * D, D);
        take(a->dv, head_at(a->dv, b, j, kv), s->dv + j * D, D);
    }
}

alibi_status ref_attention_backward(struct device *dev, const struct attention_args *a)
{
    struct sums s = { 0 };

    if (ref_attention_is_apart(a))
        return ref_attention_each(dev, a, ref_attention_backward);
    TRY_RETURN(sums_init(&s, a));
    for (int64_t b = 0; b < a->q.shape[0]; b++)
        for (int64_t kv = 0; kv < a->k.shape[2]; kv++)
            backward_group(a, &s, b, kv);
    for (int64_t t = 0; t < s.distances * a->q.shape[2]; t++)
        add(a->dbias, t, s.dbias[t]);
    for (int64_t t = 0;
         a->bias.kind == BIAS_GATE && present(a->dbias) && t < tensor_count(a->dbias); t++)
        set(a->dbias, t, s.dbias[t]);
    mem_free(s.all);
    if (!present(a->rotation.table))
        return ALIBI_OK;
    TRY_RETURN(ref_rotary(dev, a->dq, a->rotation, -1));
    return ref_rotary(dev, a->dk, a->rotation, -1);
}
