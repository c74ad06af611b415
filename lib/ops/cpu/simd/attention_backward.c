/* attention_backward.c - backward, for Lq = Lk
 *
 *   p = exp(s - lse_i)                    recomputed tile by tile
 *   dp = dy_i . v_j,   ds = p (dp - D_i), D_i = dy_i . y_i
 *   dv_j += p dy_i,    dk_j += ds scale q_i,    dq_i += scale ds k_j,    dbias(i - j) += ds
 *
 * Two ways to share the work. Whole heads: a task is a key/value head with all the query heads that read it, and computes each
 * tile once. Split: where there are too few heads for the threads, tasks are query tiles, for dq, and then key tiles, for dk and
 * dv, and p and dp are computed twice (seven products for five). Every sum is taken in the same order either way, so the
 * number of threads, which decides, does not change the result. */
#include <omp.h>
#include <string.h>

#include "ops/cpu/simd/attention.h"

struct gradients {
    struct heads c;
    struct tensor dq, dk, dv, dy, y, lse;
    double *dbias; /* [B, H, entries]: sums of each head of each sequence, NULL: not wanted */
    int64_t entries;
};

/* The buffers of one thread. */
struct work {
    float *q_lanes, *dy_lanes; /* [D, TILE] */
    float *q, *dy, *dq;        /* [TILE, width]; q is scaled */
    float *k;                  /* [TILE, width] */
    float *p, *ds;             /* [TILE, TILE], keys by queries */
    float *lse, *minus_D;      /* [TILE] */
    float *strip, *diagonals;  /* [2 TILE] */
    float *dk, *dv;            /* [key_rows, width] */
};

static int64_t work_floats(const struct heads *c, int64_t key_rows)
{
    return TILE * (2 * c->D + 4 * c->width + 2 * TILE + 6) + 2 * key_rows * c->width;
}

static float *take(float **memory, int64_t count)
{
    float *taken = *memory;

    *memory += count;
    return taken;
}

static struct work work_at(const struct heads *c, float *memory, int64_t key_rows)
{
    struct work w;

    w.q_lanes = take(&memory, c->D * TILE);
    w.dy_lanes = take(&memory, c->D * TILE);
    w.q = take(&memory, TILE * c->width);
    w.dy = take(&memory, TILE * c->width);
    w.dq = take(&memory, TILE * c->width);
    w.k = take(&memory, TILE * c->width);
    w.p = take(&memory, TILE * TILE);
    w.ds = take(&memory, TILE * TILE);
    w.lse = take(&memory, TILE);
    w.minus_D = take(&memory, TILE);
    w.strip = take(&memory, 2 * TILE);
    w.diagonals = take(&memory, 2 * TILE);
    w.dk = take(&memory, key_rows * c->width);
    w.dv = take(&memory, key_rows * c->width);
    return w;
}

static void clear(float *x, int64_t count)
{
    memset(x, 0, sizeof(float) * (size_t)count);
}

/* ---- what the forward pass has used */

static bool was_kept(const struct heads *c, const struct tile *t)
{
    struct tensor kept = c->a.skip.kept;
    const int32_t *row;

    if (!kept.data)
        return true;
    row = (const int32_t *)kept.data + ((t->b * c->H + t->h) * kept.shape[2] + t->i / TILE) * kept.shape[3];
    return (uint32_t)row[t->j / TILE / 32] >> t->j / TILE % 32 & 1;
}

/* The tiles of a head and sequence that were used. */
static int64_t count_kept(const struct heads *c, int64_t b, int64_t h)
{
    struct tensor kept = c->a.skip.kept;
    int64_t tiles = attention_tiles(c->Lq), words = kept.data ? kept.shape[2] * kept.shape[3] : 0, count = 0;
    const int32_t *row = kept.data ? (const int32_t *)kept.data + (b * c->H + h) * words : NULL;

    for (int64_t n = 0; n < words; n++)
        count += __builtin_popcount((uint32_t)row[n]);
    return kept.data ? count : tiles * (tiles + 1) / 2;
}

/* ---- one tile */

/* D_i of one query; its dy lies packed. */
static float dot_with_packed(const struct heads *c, const float *packed, const float *row)
{
    vec sum = { 0 };

    for (int64_t d = 0; d < c->D; d += SIMD_WIDTH)
        sum += vec_load(packed + d) * vec_load_some(row + d, c->D - d);
    return vec_sum(sum);
}

/* All that belongs to the queries of a tile. Lanes beyond the last query get lse = infinity: their p is 0. */
static void load_queries(struct work *w, const struct gradients *g, const struct tile *t)
{
    const struct heads *c = &g->c;
    struct rows q = rows_of(c->a.q, t->b, t->i, t->h), dy = rows_of(g->dy, t->b, t->i, t->h);
    struct rows y = rows_of(g->y, t->b, t->i, t->h);
    const float *lse = (const float *)g->lse.data + (t->b * c->H + t->h) * c->Lq + t->i;

    pack_lanes(w->q_lanes, c, q, t->nq, (float)c->a.scale);
    pack_lanes(w->dy_lanes, c, dy, t->nq, 1.0f);
    pack_rows(w->q, c, q, t->nq, (float)c->a.scale);
    pack_rows(w->dy, c, dy, t->nq, 1.0f);
    for (int64_t i = 0; i < t->lanes; i++) {
        bool exists = i < t->nq;
        w->lse[i] = exists ? lse[i] : INFINITY;
        w->minus_D[i] = exists ? -dot_with_packed(c, w->dy + i * c->width, y.at + i * y.stride) : 0.0f;
    }
}

/* p <- exp(s - lse), ds <- p (dp - D) */
static void differentiate_softmax(struct work *w, const struct tile *t)
{
    for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH) {
        int64_t keys = keys_seen(t, i);
        vec lse = vec_load(w->lse + i);
        for (int64_t j = 0; j < keys; j++) {
            vec p = vec_exp_term(vec_load(w->p + j * TILE + i) - lse);
            vec_store(w->p + j * TILE + i, p);
            vec_store(w->ds + j * TILE + i, p * vec_load(w->ds + j * TILE + i));
        }
    }
}

/* p and ds of a tile. */
static void differentiate_scores(struct work *w, const struct gradients *g, const struct tile *t)
{
    const struct heads *c = &g->c;
    const float *strip = fill_strip(w->strip, c, t);

    tile_scores(w->p, c, t, rows_of(c->a.k, t->b, t->j, t->kv), w->q_lanes, strip, -1);
    tile_scores(w->ds, c, t, rows_of(c->a.v, t->b, t->j, t->kv), w->dy_lanes, w->minus_D, 0);
    differentiate_softmax(w, t);
}

/* dk, dv: the rows of the tile's keys. */
static void add_to_keys(struct work *w, const struct heads *c, const struct tile *t, float *dk, float *dv)
{
    tile_sum_queries(dv, c, t, w->p, w->dy);
    tile_sum_queries(dk, c, t, w->ds, w->q);
}

static void add_to_queries(struct work *w, const struct heads *c, const struct tile *t)
{
    pack_rows(w->k, c, rows_of(c->a.k, t->b, t->j, t->kv), t->nk, 1.0f);
    tile_sum_keys(w->dq, c, t, w->ds, w->k);
}

/* ---- gradient of the bias */

/* diagonals[nk - 1 + i - j] <- the sum of ds over the tile's diagonal i - j. */
static void sum_diagonals(struct work *w, const struct tile *t)
{
    clear(w->diagonals, 2 * TILE);
    for (int64_t j = 0; j < t->nk; j++) {
        float *row = w->diagonals + t->nk - 1 - j;
        for (int64_t i = first_lane(t, j); i < t->lanes; i += SIMD_WIDTH)
            vec_store(row + i, vec_load(row + i) + vec_load(w->ds + j * TILE + i));
    }
}

/* slope: the sum of -distance * ds; table: each entry's own distances, the last entry with all beyond. */
static void add_to_bias(struct work *w, const struct gradients *g, const struct tile *t)
{
    double *sums = g->dbias + (t->b * g->c.H + t->h) * g->entries;
    int64_t first = t->i - t->j - (t->nk - 1);

    sum_diagonals(w, t);
    for (int64_t n = first < 0 ? -first : 0; n < t->nq + t->nk - 1; n++) {
        int64_t distance = first + n;
        if (g->c.a.bias.kind == BIAS_LINEAR)
            sums[0] -= (double)distance * (double)w->diagonals[n];
        else
            sums[smaller(distance, g->entries - 1)] += (double)w->diagonals[n];
    }
}

/* dbias += the sums of every sequence, in order. */
static void store_bias(const struct gradients *g, struct tensor dbias)
{
    int64_t count = g->c.H * g->entries;
    float *out = dbias.data;

    for (int64_t n = 0; n < count; n++) {
        double sum = 0.0;
        for (int64_t b = 0; b < g->c.B; b++)
            sum += g->dbias[b * count + n];
        out[n] = (float)((double)out[n] + sum);
    }
}

/* A query tile against all its keys: its dq, and with `keys_too` what it adds to dk and dv [Lk, width] and to the bias. */
static void query_tile(struct work *w, const struct gradients *g, struct tile t, bool keys_too)
{
    const struct heads *c = &g->c;

    load_queries(w, g, &t);
    clear(w->dq, TILE * c->width);
    do {
        if (!was_kept(c, &t))
            continue;
        differentiate_scores(w, g, &t);
        add_to_queries(w, c, &t);
        if (keys_too)
            add_to_keys(w, c, &t, w->dk + t.j * c->width, w->dv + t.j * c->width);
        if (keys_too && g->dbias)
            add_to_bias(w, g, &t);
    } while (tile_step_back(&t));
    unpack_rows(rows_of(g->dq, t.b, t.i, t.h), c, w->dq, t.nq, (float)c->a.scale);
}

/* ---- whole heads */

static void whole_head(struct work w, const struct gradients *g, int64_t b, int64_t kv)
{
    const struct heads *c = &g->c;
    int64_t group = c->H / c->Hkv;

    clear(w.dk, c->Lk * c->width);
    clear(w.dv, c->Lk * c->width);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < c->Lq; i += TILE)
            query_tile(&w, g, tile_on_diagonal(c, b, h, i), true);
    unpack_rows(rows_of(g->dk, b, 0, kv), c, w.dk, c->Lk, 1.0f);
    unpack_rows(rows_of(g->dv, b, 0, kv), c, w.dv, c->Lk, 1.0f);
}

static alibi_status by_whole_heads(const struct gradients *g, bool parallel)
{
    const struct heads *c = &g->c;
    int64_t size = work_floats(c, c->Lk), tasks = c->B * c->Hkv;
    float *memory = NULL;

    TRY_RETURN(NEW_ARRAY(&memory, (parallel ? omp_get_max_threads() : 1) * size, "the tiles of attention's gradient"));
#pragma omp parallel for schedule(dynamic) if (parallel)
    for (int64_t task = 0; task < tasks; task++)
        whole_head(work_at(c, memory + omp_get_thread_num() * size, c->Lk), g, task / c->Hkv, task % c->Hkv);
    mem_free(memory);
    return ALIBI_OK;
}

/* ---- split heads */

/* The key tile at j against all the queries that see it. */
static void key_tile(struct work *w, const struct gradients *g, int64_t b, int64_t kv, int64_t j)
{
    const struct heads *c = &g->c;
    int64_t group = c->H / c->Hkv, nk = smaller(TILE, c->Lk - j);

    clear(w->dk, TILE * c->width);
    clear(w->dv, TILE * c->width);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = j; i < c->Lq; i += TILE) {
            struct tile t = tile_on_diagonal(c, b, h, i);
            t.j = j;
            t.nk = nk;
            t.diagonal = i == j;
            if (!was_kept(c, &t))
                continue;
            load_queries(w, g, &t);
            differentiate_scores(w, g, &t);
            add_to_keys(w, c, &t, w->dk, w->dv);
        }
    unpack_rows(rows_of(g->dk, b, j, kv), c, w->dk, nk, 1.0f);
    unpack_rows(rows_of(g->dv, b, j, kv), c, w->dv, nk, 1.0f);
}

/* The tiles with the most to do are handed out first: the last queries, the first keys. */
static alibi_status by_split_heads(const struct gradients *g)
{
    const struct heads *c = &g->c;
    int64_t tiles = (c->Lq + TILE - 1) / TILE, size = work_floats(c, TILE);
    float *memory = NULL;

    TRY_RETURN(NEW_ARRAY(&memory, omp_get_max_threads() * size, "the tiles of attention's gradient"));
#pragma omp parallel
    {
        struct work w = work_at(c, memory + omp_get_thread_num() * size, TILE);
#pragma omp for schedule(dynamic) nowait
        for (int64_t task = 0; task < c->B * c->H * tiles; task++) {
            int64_t i = (tiles - 1 - task / (c->B * c->H)) * TILE, head = task % (c->B * c->H);
            query_tile(&w, g, tile_on_diagonal(c, head / c->H, head % c->H, i), false);
        }
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < c->B * c->Hkv * tiles; task++) {
            int64_t j = task / (c->B * c->Hkv) * TILE, head = task % (c->B * c->Hkv);
            key_tile(&w, g, head / c->Hkv, head % c->Hkv, j);
        }
    }
    mem_free(memory);
    return ALIBI_OK;
}

/* Whole heads take as long as the longest of them, and leave threads idle in the last round; split heads cost 7/5. The gradient
 * of the bias is summed head by head. */
static bool whole_heads_are_better(const struct gradients *g)
{
    const struct heads *c = &g->c;
    int64_t threads = omp_get_max_threads(), group = c->H / c->Hkv, tasks = c->B * c->Hkv, all = 0, longest = 0;

    for (int64_t task = 0; task < tasks; task++) {
        int64_t tiles = 0;
        for (int64_t h = 0; h < group; h++)
            tiles += count_kept(c, task / c->Hkv, task % c->Hkv * group + h);
        all += tiles;
        longest = tiles > longest ? tiles : longest;
    }
    int64_t rounds = (tasks + threads - 1) / threads, even = (all + tasks - 1) / tasks * rounds;
    return g->dbias || 5 * threads * (even > longest ? even : longest) <= 7 * all;
}

static alibi_status run(const struct gradients *g)
{
    const struct heads *c = &g->c;
    bool parallel = c->B * c->H * c->Lq * c->Lk * c->D > CPU_PARALLEL_MIN;

    return parallel && !whole_heads_are_better(g) ? by_split_heads(g) : by_whole_heads(g, parallel);
}

alibi_status SIMD(attention_backward)(struct device *dev, struct tensor dq, struct tensor dk, struct tensor dv,
                                      struct tensor dbias, struct tensor dy, struct tensor y, struct tensor lse,
                                      struct attention a)
{
    struct gradients g = { .c = heads_of(a), .dq = dq, .dk = dk, .dv = dv, .dy = dy, .y = y, .lse = lse };
    alibi_status status;

    if (dq.type != DTYPE_F32)
        return ref_attention_backward(dev, dq, dk, dv, dbias, dy, y, lse, a);
    if (g.c.B == 0 || g.c.H == 0 || g.c.Lq == 0)
        return ALIBI_OK;
    if (dbias.data && a.bias.kind != BIAS_NONE) {
        g.entries = a.bias.kind == BIAS_LINEAR ? 1 : dbias.shape[1];
        TRY_RETURN(NEW_ZERO_ARRAY(&g.dbias, g.c.B * g.c.H * g.entries, "the gradient of attention's bias"));
    }
    TRY(run(&g));
    if (g.dbias)
        store_bias(&g, dbias);
out:
    mem_free(g.dbias);
    return status;
}
