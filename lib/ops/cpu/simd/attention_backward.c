/* attention_backward.c - backward, for Lq = Lk
 *
 *   p = exp(s - lse_i)                    recomputed tile by tile
 *   dp = dy_i . v_j,   ds = p (m dp - D_i), D_i = dy_i . y_i, m = 1 or the mask of dropout
 *   dv_j += m p dy_i,  dk_j += ds scale q_i,    dq_i += scale ds k_j,    dbias(i - j) += ds
 *   gain(i - j) multiplies ds in dk and dq
 *   gates: dc_j -= ds, and nothing to c_i: sum_j ds is 0
 *
 * A task is a chunk: some consecutive query tiles of all the query heads that share a
 * key/value head. It has sums of its own for the keys that its queries use, and those of a head's
 * chunks are added in order when all are done. A head is cut into chunks of equal work by the tiles
 * that the forward pass used, so the number of threads does not change the result; as many heads
 * are processed at a time as keep all threads busy, which bounds the memory. */
#include <omp.h>
#include <string.h>

#include "ops/cpu/simd/attention.h"

/* Queries begin..end-1, and the keys first..end-1 that they use. */
struct chunk {
    int64_t begin, end, first;
    float *dk, *dv; /* [end - first, width], while the chunk runs */
};

struct gradients {
    struct heads c;
    int64_t tiles, chunks; /* per head */
    struct chunk *table;   /* [B, Hkv, chunks] */
    double *dbias;         /* [B, H, chunks, entries]: sums of each chunk, NULL: not wanted */
    int64_t entries;       /* of a head: 1 slope, the table, or the keys that have gates */
};

/* The buffers of one thread. */
struct work {
    float *q_lanes, *dy_lanes; /* [D, TILE] */
    float *q, *dy, *dq;        /* [TILE, width]; q is scaled */
    float *k;                  /* [TILE, width] */
    float *p, *ds, *mask;      /* [TILE, TILE], keys by queries */
    float *lse, *minus_D;      /* [TILE] */
    float *zero;               /* [TILE] */
    float *strip, *diagonals;  /* [4 TILE], [2 TILE] */
};

static int64_t work_floats(const struct heads *c)
{
    return TILE * (2 * c->D + 4 * c->width + 3 * TILE + 9);
}

static float *take(float **memory, int64_t count)
{
    float *taken = *memory;

    *memory += count;
    return taken;
}

static struct work work_at(const struct heads *c, float *memory)
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
    w.mask = take(&memory, TILE * TILE);
    w.lse = take(&memory, TILE);
    w.minus_D = take(&memory, TILE);
    w.zero = take(&memory, TILE);
    w.strip = take(&memory, 4 * TILE);
    w.diagonals = take(&memory, 2 * TILE);
    return w;
}

static void clear(float *x, int64_t count)
{
    memset(x, 0, sizeof(float) * (size_t)count);
}

/* ---- what the forward pass has used */

static const uint32_t *kept_row(const struct heads *c, int64_t b, int64_t h, int64_t i)
{
    struct tensor kept = c->a->skip.kept;

    return (const uint32_t *)kept.data +
           ((b * c->H + h) * kept.shape[2] + i / TILE) * kept.shape[3];
}

/* ---- one tile */

/* D_i of one query; its dy is packed. */
static float dot_with_packed(const struct heads *c, const float *packed, const float *row)
{
    vec sum = { 0 };

    for (int64_t d = 0; d < c->D; d += SIMD_WIDTH)
        sum += vec_load(packed + d) * vec_load_some(row + d, c->D - d);
    return vec_sum(sum);
}

/* All that belongs to the queries of a tile. Lanes beyond the last query get lse = infinity: their
 * p is 0. */
static void load_queries(struct work *w, const struct gradients *g, const struct tile *t)
{
    const struct heads *c = &g->c;
    struct rows q = rows_of(c->a->q, t->b, t->i, t->h), dy = rows_of(c->a->dy, t->b, t->i, t->h);
    struct rows y = rows_of(c->a->y, t->b, t->i, t->h);
    const float *lse = lse_of(c, t->b, t->h) + t->i;

    pack_lanes(w->q_lanes, c, q, t->nq, (float)c->a->scale);
    pack_lanes(w->dy_lanes, c, dy, t->nq, 1.0f);
    pack_rows(w->q, c, q, t->nq, (float)c->a->scale);
    pack_rows(w->dy, c, dy, t->nq, 1.0f);
    for (int64_t i = 0; i < t->lanes; i++) {
        bool exists = i < t->nq;
        w->zero[i] = 0.0f;
        w->lse[i] = exists ? lse[i] : INFINITY;
        w->minus_D[i] =
            exists ? -dot_with_packed(c, w->dy + i * c->width, y.at + i * y.stride) : 0.0f;
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

/* The same with dropout, from dp alone: p <- m p, ds <- p (m dp - D) */
static void differentiate_dropout(struct work *w, const struct tile *t)
{
    for (int64_t i = 0; i < t->lanes; i += SIMD_WIDTH) {
        int64_t keys = keys_seen(t, i);
        vec lse = vec_load(w->lse + i), minus_D = vec_load(w->minus_D + i);
        for (int64_t j = 0; j < keys; j++) {
            vec p = vec_exp_term(vec_load(w->p + j * TILE + i) - lse);
            vec m = vec_load(w->mask + j * TILE + i), dp = vec_load(w->ds + j * TILE + i);
            vec_store(w->p + j * TILE + i, m * p);
            vec_store(w->ds + j * TILE + i, p * (m * dp + minus_D));
        }
    }
}

/* p and ds of a tile. */
static void differentiate_scores(struct work *w, const struct gradients *g, const struct tile *t)
{
    const struct heads *c = &g->c;
    struct start start = fill_start(w->strip, w->p, c, t);
    bool drops = c->a->dropout.p > 0.0;

    tile_scores(w->p, c, t, rows_of(c->a->k, t->b, t->j, t->kv), w->q_lanes, start);
    tile_scores(w->ds, c, t, rows_of(c->a->v, t->b, t->j, t->kv), w->dy_lanes,
                (struct start){ .at = drops ? w->zero : w->minus_D });
    if (drops) {
        tile_mask(w->mask, c, t);
        differentiate_dropout(w, t);
    } else {
        differentiate_softmax(w, t);
    }
    for (int64_t j = 0; start.gain && j < t->nk; j++)
        for (int64_t i = first_lane(t, j); i < t->lanes; i += SIMD_WIDTH)
            vec_store(w->ds + j * TILE + i,
                      vec_load(w->ds + j * TILE + i) * vec_load(start.gain + j * start.row + i));
}

/* ---- gradient of the bias */

/* slope: the sum of -distance * ds; table: each entry's own distances, the last entry with all
 * beyond; gates: each key's own. */
static void add_to_bias(struct work *w, const struct gradients *g, const struct tile *t,
                        int64_t chunk)
{
    double *sums = g->dbias + ((t->b * g->c.H + t->h) * g->chunks + chunk) * g->entries;
    int64_t first = t->i - t->j - (t->nk - 1);

    if (g->c.a->bias.kind == BIAS_GATE) {
        for (int64_t j = 0; j < t->nk; j++) {
            vec sum = { 0 };
            for (int64_t i = first_lane(t, j); i < t->lanes; i += SIMD_WIDTH)
                sum += vec_load(w->ds + j * TILE + i);
            sums[t->j + j] -= (double)vec_sum(sum);
        }
        return;
    }
    clear(w->diagonals, 2 * TILE); /* [nk - 1 + i - j]: the sum of ds over the diagonal i - j */
    for (int64_t j = 0; j < t->nk; j++) {
        float *row = w->diagonals + t->nk - 1 - j;
        for (int64_t i = first_lane(t, j); i < t->lanes; i += SIMD_WIDTH)
            vec_store(row + i, vec_load(row + i) + vec_load(w->ds + j * TILE + i));
    }
    for (int64_t n = first < 0 ? -first : 0; n < t->nq + t->nk - 1; n++) {
        int64_t distance = first + n;
        if (g->c.a->bias.kind == BIAS_LINEAR)
            sums[0] -= (double)distance * (double)w->diagonals[n];
        else
            sums[smaller(distance, g->entries - 1)] += (double)w->diagonals[n];
    }
}

/* The sums of entry n of head h over sequences from..to-1 and all chunks, in order. */
static double sum_bias(const struct gradients *g, int64_t from, int64_t to, int64_t h, int64_t n)
{
    double sum = 0.0;

    for (int64_t b = from; b < to; b++)
        for (int64_t chunk = 0; chunk < g->chunks; chunk++)
            sum += g->dbias[((b * g->c.H + h) * g->chunks + chunk) * g->entries + n];
    return sum;
}

static void store_bias(const struct gradients *g, struct tensor dbias)
{
    float *out = dbias.data;

    for (int64_t h = 0; h < g->c.H; h++)
        for (int64_t n = 0; n < g->entries; n++)
            out[h * g->entries + n] =
                (float)((double)out[h * g->entries + n] + sum_bias(g, 0, g->c.B, h, n));
}

static void store_gates(const struct gradients *g, struct tensor dc)
{
    int64_t G = dc.shape[1];
    float *out = dc.data;

    for (int64_t row = 0; row < g->c.B * G; row++)
        for (int64_t n = 0; n < g->entries; n++)
            out[row * g->entries + n] = (float)sum_bias(g, row / G, row / G + 1, row % G, n);
}

/* ---- chunks */

enum { CHUNK_TILES = 8, CHUNKS_MAX = 4, SUMS_AT_A_TIME = 1 << 23 };

/* Key tiles that the query tile at i used. */
static int64_t tiles_used(const struct heads *c, int64_t b, int64_t h, int64_t i)
{
    int64_t count = 0;

    if (!c->a->skip.kept.data)
        return i / TILE + 1 - attention_first_key(i, c->a->window) / TILE;
    for (int64_t n = 0; n < c->a->skip.kept.shape[3]; n++)
        count += __builtin_popcount(kept_row(c, b, h, i)[n]);
    return count;
}

/* The first key of the first of them. */
static int64_t first_used(const struct heads *c, int64_t b, int64_t h, int64_t i)
{
    int64_t n = 0;

    if (!c->a->skip.kept.data)
        return attention_first_key(i, c->a->window) / TILE * TILE;
    while (kept_row(c, b, h, i)[n] == 0)
        n++;
    return (32 * n + __builtin_ctz(kept_row(c, b, h, i)[n])) * TILE;
}

/* Key tiles and first key of the query tile at i, in all heads that share a key/value head. */
static int64_t group_work(const struct heads *c, int64_t head, int64_t i)
{
    int64_t group = c->H / c->Hkv, kv = head % c->Hkv, work = 0;

    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        work += tiles_used(c, head / c->Hkv, h, i);
    return work;
}

static int64_t group_first(const struct heads *c, int64_t head, int64_t i)
{
    int64_t group = c->H / c->Hkv, kv = head % c->Hkv, first = i;

    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        first = smaller(first, first_used(c, head / c->Hkv, h, i));
    return first;
}

/* Chunk n ends after the tile with which (n + 1) / chunks of the work is done. */
static void cut_head(const struct gradients *g, int64_t head)
{
    const struct heads *c = &g->c;
    struct chunk *chunk = g->table + head * g->chunks;
    int64_t all = 0, done = 0, n = 0;

    for (int64_t i = 0; i < c->Lq; i += TILE)
        all += group_work(c, head, i);
    chunk[0] = (struct chunk){ 0 };
    for (int64_t i = 0; i < c->Lq; i += TILE) {
        done += group_work(c, head, i);
        chunk[n].first = smaller(chunk[n].first, group_first(c, head, i));
        chunk[n].end = smaller(i + TILE, c->Lq);
        while (n + 1 < g->chunks && done * g->chunks >= (n + 1) * all) {
            chunk[n + 1] =
                (struct chunk){ .begin = chunk[n].end, .end = chunk[n].end, .first = chunk[n].end };
            n++;
        }
    }
}

/* Each query tile of a chunk against all its keys: its dq, and what it adds to dk, dv and the bias
 * of the chunk. */
static void run_chunk(struct work w, const struct gradients *g, int64_t head, int64_t n)
{
    const struct heads *c = &g->c;
    const struct chunk *chunk = g->table + head * g->chunks + n;
    int64_t b = head / c->Hkv, kv = head % c->Hkv, group = c->H / c->Hkv;

    clear(chunk->dk, (chunk->end - chunk->first) * c->width);
    clear(chunk->dv, (chunk->end - chunk->first) * c->width);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = chunk->begin; i < chunk->end; i += TILE) {
            struct tile t = tile_on_diagonal(c, b, h, i);
            const uint32_t *kept = c->a->skip.kept.data ? kept_row(c, b, h, i) : NULL;

            load_queries(&w, g, &t);
            clear(w.dq, TILE * c->width);
            do {
                int64_t at = (t.j - chunk->first) * c->width;

                if (kept && !(kept[t.j / TILE / 32] >> t.j / TILE % 32 & 1))
                    continue;
                differentiate_scores(&w, g, &t);
                pack_rows(w.k, c, rows_of(c->a->k, b, t.j, kv), t.nk, 1.0f);
                tile_sum_keys(w.dq, c, &t, w.ds, w.k);
                tile_sum_queries(chunk->dv + at, c, &t, w.p, w.dy);
                tile_sum_queries(chunk->dk + at, c, &t, w.ds, w.q);
                if (g->dbias)
                    add_to_bias(&w, g, &t, n);
            } while (tile_step_back(&t));
            unpack_rows(rows_of(c->a->dq, b, i, h), c, w.dq, t.nq, (float)c->a->scale);
        }
}

static bool uses_keys(const struct chunk *chunk, int64_t j)
{
    return chunk->first <= j && j < chunk->end;
}

static void add_numbers(float *to, const float *from, int64_t count)
{
    for (int64_t x = 0; x < count; x += SIMD_WIDTH)
        vec_store(to + x, vec_load(to + x) + vec_load(from + x));
}

/* The sums of all chunks of a head for the keys of one tile, added up in the first one that has
 * them: some chunk has, since queries use their own keys. */
static void store_keys(const struct gradients *g, int64_t head, int64_t tile)
{
    const struct heads *c = &g->c;
    const struct chunk *to = g->table + head * g->chunks, *end = to + g->chunks;
    int64_t b = head / c->Hkv, kv = head % c->Hkv, j = tile * TILE, nk = smaller(TILE, c->Lk - j),
            at;

    while (!uses_keys(to, j))
        to++;
    at = (j - to->first) * c->width;
    for (const struct chunk *from = to + 1; from < end; from++)
        if (uses_keys(from, j)) {
            add_numbers(to->dk + at, from->dk + (j - from->first) * c->width, nk * c->width);
            add_numbers(to->dv + at, from->dv + (j - from->first) * c->width, nk * c->width);
        }
    unpack_rows(rows_of(c->a->dk, b, j, kv), c, to->dk + at, nk, 1.0f);
    unpack_rows(rows_of(c->a->dv, b, j, kv), c, to->dv + at, nk, 1.0f);
}

/* Heads from..from+count-1 of all sequences. The last heads, which skip least as a rule, are
 * handed out first. */
static void run_heads(const struct gradients *g, int64_t from, int64_t count, float *work)
{
    const struct heads *c = &g->c;
    bool parallel = c->B * c->H * c->Lq * c->Lk * c->D > CPU_PARALLEL_MIN;

#pragma omp parallel if (parallel)
    {
        struct work w = work_at(c, work + omp_get_thread_num() * work_floats(c));
#pragma omp for schedule(dynamic)
        for (int64_t task = count * g->chunks - 1; task >= 0; task--)
            run_chunk(w, g, from + task / g->chunks, task % g->chunks);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < count * g->tiles; task++)
            store_keys(g, from + task / g->tiles, task % g->tiles);
    }
}

/* Two chunks per thread keep all of them busy to the end; short heads, which need little memory, go
 * many at a time, so that threads are not woken for little. */
static int64_t heads_at_a_time(const struct gradients *g)
{
    int64_t by_threads = (2 * omp_get_max_threads() + g->chunks - 1) / g->chunks;
    int64_t by_memory = SUMS_AT_A_TIME / (g->chunks * g->c.Lk * 2 * g->c.width + 1);

    return smaller(by_threads > by_memory ? by_threads : by_memory, g->c.B * g->c.Hkv);
}

/* Gives the chunks of heads from..from+count-1 their sums, and returns how many numbers that takes;
 * memory NULL: only that. */
static int64_t place_sums(const struct gradients *g, int64_t from, int64_t count, float *memory)
{
    int64_t used = 0;

    for (int64_t n = from * g->chunks; n < (from + count) * g->chunks; n++) {
        int64_t size = (g->table[n].end - g->table[n].first) * g->c.width;
        g->table[n].dk = memory ? memory + used : NULL;
        g->table[n].dv = memory ? memory + used + size : NULL;
        used += 2 * size;
    }
    return used;
}

static alibi_status run(const struct gradients *g)
{
    int64_t heads = g->c.B * g->c.Hkv, together = heads_at_a_time(g), most = 0;
    alibi_status status;
    float *sums = NULL, *work = NULL;

    for (int64_t head = 0; head < heads; head++)
        cut_head(g, head);
    for (int64_t from = 0; from < heads; from += together) {
        int64_t size = place_sums(g, from, smaller(together, heads - from), NULL);
        most = size > most ? size : most;
    }
    TRY(NEW_ARRAY(&sums, most, "the sums of attention's gradient"));
    TRY(NEW_ARRAY(&work, omp_get_max_threads() * work_floats(&g->c),
                  "the tiles of attention's gradient"));
    for (int64_t from = 0; from < heads; from += together) {
        place_sums(g, from, smaller(together, heads - from), sums);
        run_heads(g, from, smaller(together, heads - from), work);
    }
out:
    mem_free(sums);
    mem_free(work);
    return status;
}

alibi_status SIMD(attention_backward)(struct device *dev, const struct attention_args *a)
{
    struct gradients g = { .c = heads_of(a) };
    alibi_status status;

    if (a->dq.type != DTYPE_F32)
        return ref_attention_backward(dev, a);
    if (ref_attention_is_apart(a))
        return ref_attention_each(dev, a, SIMD(attention_backward));
    if (g.c.B == 0 || g.c.H == 0 || g.c.Lq == 0)
        return ALIBI_OK;
    g.tiles = attention_tiles(g.c.Lq);
    g.chunks = smaller((g.tiles + CHUNK_TILES - 1) / CHUNK_TILES, CHUNKS_MAX);
    if (present(a->dbias) && a->bias.kind != BIAS_NONE) {
        g.entries = a->bias.kind == BIAS_LINEAR ? 1
                    : a->bias.kind == BIAS_GATE ? g.c.Lk
                                                : a->dbias.shape[1];
        TRY_RETURN(NEW_ZERO_ARRAY(&g.dbias, g.c.B * g.c.H * g.chunks * g.entries,
                                  "the gradient of attention's bias"));
    }
    TRY(gain_init(&g.c));
    TRY(NEW_ARRAY(&g.table, g.c.B * g.c.Hkv * g.chunks, "the chunks of attention's gradient"));
    TRY(run(&g));
    if (g.dbias && a->bias.kind == BIAS_GATE)
        store_gates(&g, a->dbias);
    else if (g.dbias)
        store_bias(&g, a->dbias);
    if (present(a->rotation.table)) {
        TRY(SIMD(rotary)(dev, a->dq, a->rotation, -1));
        TRY(SIMD(rotary)(dev, a->dk, a->rotation, -1));
    }
out:
    mem_free(g.c.gain);
    mem_free(g.table);
    mem_free(g.dbias);
    return status;
}
