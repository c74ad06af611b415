/* attention.c - forward
 *
 * A task is a query tile of one head. It walks the key tiles, nearest first, and keeps for each query i the largest score m_i so
 * far, the sum l_i of exp(s - m_i) and the output o_i = sum of exp(s - m_i) v_j. When the maximum grows, what was summed before
 * shrinks by exp(old - new):
 *
 *   m' = max(m, max_j s_j),   l' = l e^(m - m') + sum_j e^(s_j - m'),   o' = o e^(m - m') + sum_j e^(s_j - m') v_j
 *
 * At the end y = o / l and lse = m + log l. Few queries (decoding) go row by row instead, in attention_decode.c. */
#include <omp.h>
#include <string.h>

#include "ops/cpu/simd/attention.h"

/* The buffers of one thread. */
struct work {
    float *queries; /* [D, TILE], scaled */
    float *s;       /* [TILE, TILE], keys by queries */
    float *values;  /* [TILE, width] */
    float *o;       /* [TILE, width] */
    float *m, *l;   /* [TILE] */
    float *shrink;  /* [TILE] */
    float *strip;   /* [2 TILE] */
};

static int64_t work_floats(const struct heads *c)
{
    return TILE * (c->D + TILE + 2 * c->width + 5);
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
    return w;
}

/* s <- exp(s - m') for the lanes from i on, with m, l and shrink brought up to date. */
static void softmax_lanes(struct work *w, const struct tile *t, int64_t i)
{
    int64_t keys = keys_seen(t, i);
    vec before = vec_load(w->m + i), max = before, sum = { 0 };

    for (int64_t j = 0; j < keys; j++)
        max = vec_max(vec_load(w->s + j * TILE + i), max);
    for (int64_t j = 0; j < keys; j++) {
        vec e = vec_exp_term(vec_load(w->s + j * TILE + i) - max);
        vec_store(w->s + j * TILE + i, e);
        sum += e;
    }
    vec shrink = vec_exp_term(before - max);
    vec_store(w->shrink + i, shrink);
    vec_store(w->l + i, vec_load(w->l + i) * shrink + sum);
    vec_store(w->m + i, max);
}

static void shrink_outputs(struct work *w, const struct heads *c, const struct tile *t)
{
    for (int64_t i = 0; i < t->nq; i++) {
        if (w->shrink[i] == 1.0f)
            continue;
        for (int64_t d = 0; d < c->width; d += SIMD_WIDTH)
            vec_store(w->o + i * c->width + d, w->shrink[i] * vec_load(w->o + i * c->width + d));
    }
}

static void visit(struct work *w, const struct heads *c, const struct tile *t)
{
    const float *strip = fill_strip(w->strip, c, t);

    tile_scores(w->s, c, t, rows_of(c->a.k, t->b, t->j, t->kv), w->queries, strip, -1);
    for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH)
        softmax_lanes(w, t, i);
    if (!t->diagonal) /* the first tile: nothing was summed before */
        shrink_outputs(w, c, t);
    pack_rows(w->values, c, rows_of(c->a.v, t->b, t->j, t->kv), t->nk, 1.0f);
    tile_sum_keys(w->o, c, t, w->s, w->values);
}

static void begin(struct work *w, const struct heads *c, const struct tile *t, int64_t from)
{
    pack_lanes(w->queries, c, rows_of(c->a.q, t->b, from, t->h), t->nq, (float)c->a.scale);
    memset(w->o, 0, sizeof(float) * (size_t)(TILE * c->width));
    for (int64_t i = 0; i < TILE; i++) {
        w->m[i] = -INFINITY;
        w->l[i] = 0.0f;
    }
}

static void finish(struct work *w, const struct heads *c, const struct tile *t, int64_t from, struct tensor y, struct tensor lse)
{
    float *lse_row = (float *)lse.data + (t->b * c->H + t->h) * c->Lq + from;

    for (int64_t i = 0; i < t->nq; i++) {
        struct rows out = rows_of(y, t->b, from + i, t->h);
        unpack_rows(out, c, w->o + i * c->width, 1, 1.0f / w->l[i]);
        lse_row[i] = w->m[i] + logf(w->l[i]);
    }
}

/* Queries from..from + TILE - 1 of head h. */
static void attend(struct work w, const struct heads *c, int64_t b, int64_t h, int64_t from, struct tensor y, struct tensor lse)
{
    struct tile t = tile_on_diagonal(c, b, h, from);

    begin(&w, c, &t, from);
    do
        visit(&w, c, &t);
    while (tile_step_back(&t));
    finish(&w, c, &t, from, y, lse);
}

/* Late tiles, which have the most keys, are handed out first: the short ones fill the end. */
static alibi_status forward_tiles(const struct heads *c, struct tensor y, struct tensor lse)
{
    int64_t tiles = (c->Lq + TILE - 1) / TILE, tasks = c->B * c->H * tiles;
    float *memory = NULL;

    TRY_RETURN(NEW_ARRAY(&memory, omp_get_max_threads() * work_floats(c), "the tiles of attention"));
#pragma omp parallel for schedule(dynamic) if (tasks > 1 && c->B * c->H * c->Lq * c->Lk * c->D > CPU_PARALLEL_MIN)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t tile = tiles - 1 - task / (c->B * c->H), head = task % (c->B * c->H);
        struct work w = work_at(c, memory + omp_get_thread_num() * work_floats(c));
        attend(w, c, head / c->H, head % c->H, tile * TILE, y, lse);
    }
    mem_free(memory);
    return ALIBI_OK;
}

alibi_status SIMD(attention_forward)(struct device *dev, struct tensor y, struct tensor lse, struct attention a)
{
    struct heads c = heads_of(a);

    if (y.type != DTYPE_F32)
        return ref_attention_forward(dev, y, lse, a);
    if (c.B == 0 || c.H == 0 || c.Lq == 0)
        return ALIBI_OK;
    return c.Lq <= DECODE_ROWS ? decode_rows(&c, y, lse) : forward_tiles(&c, y, lse);
}
