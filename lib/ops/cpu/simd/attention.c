/* attention.c - forward
 *
 * A task is a query tile of one head. It walks the key tiles, nearest first, and keeps for each
 * query i the largest score m_i so far, the sum l_i of exp(s - m_i) and the output o_i = sum of
 * exp(s - m_i) v_j. When the maximum grows, what was summed before shrinks by exp(old - new):
 *
 *   m' = max(m, max_j s_j)
 *   l' = l e^(m - m') + sum_j e^(s_j - m')
 *   o' = o e^(m - m') + sum_j e^(s_j - m') v_j
 *
 * At the end y = o / l and lse = m + log l. Dropout acts on the weights that are multiplied with
 * values, not on l. Few queries (decoding) are taken row by row instead, in attention_decode.c.
 *
 * With a budget (skipping.h) a tile is skipped if its norms prove that it has no weight, or else,
 * once its scores are computed, if the largest of them does. The walk ends when the norms prove it
 * of all remaining keys. */
#include <omp.h>
#include <string.h>

#include "ops/cpu/simd/skipping.h"

/* The buffers of one thread. */
struct work {
    float *queries; /* [D, TILE], scaled */
    float *s;       /* [TILE, TILE], keys by queries */
    float *values;  /* [TILE, width] */
    float *o;       /* [TILE, width] */
    float *m, *l;   /* [TILE] */
    float *shrink;  /* [TILE] */
    float *strip;   /* [4 TILE] */
    float *top;     /* [TILE] the largest score of the current tile */
    float *reach;   /* [TILE] |scale q_i| */
    float *out;     /* [TILE] bound on the weight that was skipped */
    float *bound;   /* [TILE] what the current tile would add to it */
    float *mask;    /* [TILE, TILE], with dropout */
};

static bool drops(const struct heads *c)
{
    return c->a->dropout.p > 0.0;
}

static int64_t work_floats(const struct heads *c)
{
    return TILE * (c->D + TILE + 2 * c->width + 11 + (drops(c) ? TILE : 0));
}

static struct work work_at(const struct heads *c, float *memory)
{
    struct work w;

    w.queries = memory;
    w.s = w.queries + c->D * TILE;
    w.values = w.s + TILE * TILE;
    w.o = w.values + TILE * c->width;
    w.m = w.o + TILE * c->width;
    w.l = w.m + TILE;
    w.shrink = w.l + TILE;
    w.strip = w.shrink + TILE;
    w.top = w.strip + 4 * TILE;
    w.reach = w.top + TILE;
    w.out = w.reach + TILE;
    w.bound = w.out + TILE;
    w.mask = w.bound + TILE;
    return w;
}

/* ---- skipping */

/* Numbers of these sizes went into an exponent: it may be off by so much, in fp32 and in any order
 * of sums. */
static vec rounding_of(const struct work *w, int64_t i, float norm, float bias)
{
    return bound_rounding * (vec_load(w->reach + i) * norm + bias + vec_abs(vec_load(w->m + i)));
}

/* bound[i] holds exponents: if count * e^bound / l fits into the budget of every query, it is taken
 * from it. `norm` and `bias` are the largest in size of the keys in question. */
static bool skip(struct work *w, const struct tile *t, float count, float norm, float bias,
                 float eps)
{
    vec over = { 0 };

    for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH) {
        vec exponent = vec_load(w->bound + i) - vec_load(w->m + i) + rounding_of(w, i, norm, bias);
        vec weight = bound_margin * count * vec_exp(vec_max(vec_all(bound_lowest), exponent)) /
                     vec_load(w->l + i);
        vec_store(w->bound + i, weight);
        over = vec_select(vec_load(w->out + i) + weight <= eps, over, vec_all(1.0f));
    }
    if (vec_largest(over) > 0.0f)
        return false;
    for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH)
        vec_store(w->out + i, vec_load(w->out + i) + vec_load(w->bound + i));
    return true;
}

/* Gates only close: the largest bias is that at the nearest key. */
static bool skip_by_gates(struct work *w, struct gates g, const struct tile *t,
                          struct key_range keys, float eps)
{
    float size = fabsf(gates_between(g, t->i + t->nq - 1, keys.last));

    for (int64_t i = 0; i < t->lanes; i++)
        w->bound[i] =
            w->reach[i] * keys.norm + (i < t->nq ? gates_between(g, t->i + i, keys.last) : 0.0f);
    return skip(w, t, (float)(keys.last - keys.first + 1), keys.norm, size, eps);
}

/* The largest score at the distances of the keys, which grows with the gain until that is half of
 * reach * norm, and then falls. */
static bool skip_by_gain(struct work *w, const struct heads *c, const struct tile *t,
                         struct key_range keys, float eps)
{
    float near = gain_at(c, t->i - keys.last), far = gain_at(c, t->i - keys.first + t->lanes - 1);

    for (int64_t i = 0; i < t->lanes; i++)
        w->bound[i] = bounds_gain(w->reach[i] * keys.norm, near, far);
    return skip(w, t, (float)(keys.last - keys.first + 1), far * keys.norm, far * far, eps);
}

/* Under a slope each query has its own largest bias, that at the nearest key, or at the farthest if
 * the slope is negative; with gates too; elsewhere one serves all. */
static bool skip_by_norms(struct work *w, const struct heads *c, const struct bounds *b,
                          const struct tile *t, struct key_range keys)
{
    const struct bias *bias = &c->a->bias;
    struct gates gates = gates_of(c, t->b, t->h);
    bool linear = bias->kind == BIAS_LINEAR;
    int64_t near = t->i - keys.last, far = t->i - keys.first + (linear ? 0 : t->lanes - 1);
    float nearest = bounds_bias(b, bias, t->h, near, far);
    float step = linear ? -((const float *)bias->values.data)[t->h] : 0.0f;
    float size = fabsf(nearest) + fabsf(step) * (float)t->lanes;

    if (gates.sum)
        return skip_by_gates(w, gates, t, keys, b->eps);
    if (c->gain)
        return skip_by_gain(w, c, t, keys, b->eps);
    for (int64_t i = 0; i < t->lanes; i++)
        w->bound[i] = w->reach[i] * keys.norm + nearest + step * (float)i;
    return skip(w, t, bounds_count(bias, t->h, keys.last - keys.first + 1), keys.norm, size,
                b->eps);
}

/* The bias of a score that matters is no larger than the scores of the tile or the maximum so far,
 * which are counted. */
static bool skip_by_scores(struct work *w, const struct heads *c, const struct tile *t,
                           struct key_range keys, float eps)
{
    float gain = gain_at(c, t->i - t->j + t->lanes - 1);

    memcpy(w->bound, w->top, sizeof(float) * TILE);
    return skip(w, t, (float)t->nk, 2.0f * gain * keys.norm, 0.0f, eps);
}

/* ---- one tile */

/* False if the tile was skipped. */
static bool visit(struct work *w, const struct heads *c, const struct tile *t,
                  struct key_range keys, float eps)
{
    struct start start = fill_start(w->strip, w->s, c, t);

    tile_scores(w->s, c, t, rows_of(c->a->k, t->b, t->j, t->kv), w->queries, start);
    for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH) { /* the largest score of each query */
        int64_t seen = keys_seen(t, i);
        vec top = vec_load(w->s + i);
        for (int64_t j = 1; j < seen; j++) {
            vec s = vec_load(w->s + j * TILE + i);
            top = vec_select((s > top) | (s != s), s,
                             top); /* a NaN stays: such a tile is never skipped */
        }
        vec_store(w->top + i, top);
    }
    if (eps > 0.0f && !t->diagonal && skip_by_scores(w, c, t, keys, eps))
        return false;
    for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH) { /* s <- exp(s - m'), then l' and m' */
        int64_t seen = keys_seen(t, i);
        vec before = vec_load(w->m + i), max = vec_max(vec_load(w->top + i), before), sum = { 0 };

        for (int64_t j = 0; j < seen; j++) {
            vec e = vec_exp_term(vec_load(w->s + j * TILE + i) - max);
            vec_store(w->s + j * TILE + i, e);
            sum += e;
        }
        vec shrink = vec_exp_term(before - max);
        vec_store(w->shrink + i, shrink);
        vec_store(w->l + i, vec_load(w->l + i) * shrink + sum);
        vec_store(w->m + i, max);
    }
    for (int64_t i = 0; !t->diagonal && i < t->nq; i++) { /* the first tile has nothing to shrink */
        if (w->shrink[i] == 1.0f)
            continue;
        for (int64_t d = 0; d < c->width; d += SIMD_WIDTH)
            vec_store(w->o + i * c->width + d, w->shrink[i] * vec_load(w->o + i * c->width + d));
    }
    if (drops(c)) {
        tile_mask(w->mask, c, t);
        for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH)
            for (int64_t j = 0; j < keys_seen(t, i); j++)
                vec_store(w->s + j * TILE + i,
                          vec_load(w->s + j * TILE + i) * vec_load(w->mask + j * TILE + i));
    }
    pack_rows(w->values, c, rows_of(c->a->v, t->b, t->j, t->kv), t->nk, 1.0f);
    tile_sum_keys(w->o, c, t, w->s, w->values);
    return true;
}

/* The words in which the query tile's key tiles are marked; NULL: not wanted. */
static int32_t *kept_row(const struct heads *c, int64_t b, int64_t h, int64_t from)
{
    struct tensor kept = c->a->skip.kept;

    return kept.data ? (int32_t *)kept.data +
                           ((b * c->H + h) * kept.shape[2] + from / TILE) * kept.shape[3]
                     : NULL;
}

/* Queries from..from + TILE - 1 of head h. */
static void attend(struct work w, const struct heads *c, const struct bounds *bounds, int64_t b,
                   int64_t h, int64_t from)
{
    struct tile t = tile_on_diagonal(c, b, h, from);
    struct rows queries = rows_of(c->a->q, b, from, h), out = rows_of(c->a->y, b, from, h);
    int32_t *kept = kept_row(c, b, h, from);
    float eps = bounds->norms ? bounds->eps : 0.0f, *lse = lse_of(c, b, h) + from;

    pack_lanes(w.queries, c, queries, t.nq, (float)c->a->scale);
    memset(w.o, 0, sizeof(float) * (size_t)(TILE * c->width));
    for (int64_t i = 0; i < TILE; i++) { /* lanes without a query never object to skipping */
        bool exists = i < t.nq;
        w.m[i] = exists ? -INFINITY : 0.0f;
        w.l[i] = exists ? 0.0f : INFINITY;
        w.out[i] = 0.0f;
        w.reach[i] = exists && eps > 0.0f ? bounds_reach(c, queries.at + i * queries.stride) : 0.0f;
    }
    if (kept)
        memset(kept, 0, sizeof *kept * (size_t)c->a->skip.kept.shape[3]);
    do {
        struct key_range keys = { 0 };
        if (eps > 0.0f && !t.diagonal) {
            int64_t last = t.j + t.nk - 1;
            keys = bounds_tile(bounds, b, t.kv, t.j, last);
            if (skip_by_norms(&w, c, bounds, &t, bounds_rest(bounds, c, b, t.kv, t.first, last)))
                break;
            if (skip_by_norms(&w, c, bounds, &t, keys))
                continue;
        }
        if (visit(&w, c, &t, keys, eps) && kept)
            kept[t.j / TILE / 32] |= (int32_t)(1u << t.j / TILE % 32);
    } while (tile_step_back(&t));
    for (int64_t i = 0; i < t.nq; i++) {
        struct rows row = { out.at + i * out.stride, out.stride };
        unpack_rows(row, c, w.o + i * c->width, 1, 1.0f / w.l[i]);
        lse[i] = w.m[i] + logf(w.l[i]);
    }
}

/* Late tiles, which have the most keys, are handed out first, and of them the last heads, which
 * have the flattest slopes as a rule and skip least: the short ones fill the end. */
static alibi_status forward_tiles(const struct heads *c)
{
    int64_t tiles = (c->Lq + TILE - 1) / TILE, tasks = c->B * c->H * tiles;
    struct bounds bounds = { 0 };
    float *memory = NULL;
    alibi_status status;

    TRY(bounds_init(&bounds, c));
    TRY(NEW_ARRAY(&memory, omp_get_max_threads() * work_floats(c), "the tiles of attention"));
#pragma omp parallel for schedule(dynamic) if (tasks > 1 && c->B * c->H * c->Lq * c->Lk * c->D >   \
                                                                CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t tile = tiles - 1 - task / (c->B * c->H),
                head = c->B * c->H - 1 - task % (c->B * c->H);
        struct work w = work_at(c, memory + omp_get_thread_num() * work_floats(c));
        attend(w, c, &bounds, head / c->H, head % c->H, tile * TILE);
    }
out:
    mem_free(memory);
    bounds_fini(&bounds);
    return status;
}

alibi_status SIMD(attention_forward)(struct device *dev, const struct attention_args *a)
{
    struct heads c = heads_of(a);
    alibi_status status;

    if (a->y.type != DTYPE_F32)
        return ref_attention_forward(dev, a);
    if (a->append)
        TRY_RETURN(SIMD(cache_append)(dev, a->append));
    if (ref_attention_is_apart(a))
        return ref_attention_each(dev, a, SIMD(attention_forward));
    if (c.B == 0 || c.H == 0 || c.Lq == 0)
        return ALIBI_OK;
    TRY_RETURN(gain_init(&c));
    status = c.Lq <= DECODE_ROWS && !present(a->skip.kept) && !drops(&c) ? decode_rows(&c)
                                                                         : forward_tiles(&c);
    mem_free(c.gain);
    return status;
}
