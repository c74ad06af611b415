/* workspace.c - the memory of passes: one buffer for everything a pass computes
 *
 * The buffer is laid out twice by the same function: first without memory, to learn its size, then
 * for real. In training every layer keeps its own part for the backward pass, except what is
 * recomputed. Otherwise all layers share one part. Attention, feed-forward and output layer, which
 * are never alive at the same time, share the widest part. */
#include "model/walk.h"

enum { ALIGNMENT = 256 };

struct layout {
    char *base; /* NULL: only measure */
    size_t used, peak;
    size_t kept; /* the bytes among them that the backward pass reads */
    bool overflow;
};

static void *take_bytes(struct layout *a, size_t bytes)
{
    size_t begin = a->used, end;

    if (!size_add(&end, bytes, ALIGNMENT - 1) ||
        !size_add(&end, begin, end / ALIGNMENT * ALIGNMENT)) {
        a->overflow = true;
        return NULL;
    }
    a->used = end;
    if (a->peak < end)
        a->peak = end;
    return a->base ? a->base + begin : NULL;
}

static struct tensor take(struct layout *a, enum dtype type, int64_t rows, int64_t columns)
{
    const int64_t factors[3] = { rows, columns, (int64_t)dtype_bytes(type) };
    size_t bytes = 0;

    if (!size_product(&bytes, factors, 3))
        a->overflow = true;
    return tensor_2(take_bytes(a, bytes), type, rows, columns);
}

static struct tensor take_1(struct layout *a, enum dtype type, int64_t count)
{
    return tensor_1(take(a, type, 1, count).data, type, count);
}

/* ---- layout */

struct sizes {
    enum dtype type, sums; /* of activations; of statistics and losses */
    int64_t B, L, rows, C, F, V, H;
    int64_t room;    /* rows that activations have memory for, see linear_args */
    int64_t qkv, up; /* widths of the fused projections */
    int64_t heads;   /* width of normed queries and keys, 0: none */
    int64_t gates;   /* of the layer that has most */
    int64_t logits;  /* elements of the output layer's scratch */
    bool records;    /* training with skipping: backward visits only the tiles that were used */
};

static struct sizes sizes_of(const struct workspace *w, int64_t B, int64_t L)
{
    const struct model *m = w->model;
    const struct alibi_config *c = &m->config;
    int64_t least = L == 1 ? m->device->ops->traits.decode_rows : 0;
    int64_t room = B * L > least ? B * L : least;

    return (struct sizes){ .type = m->type,
                           .sums = dtype_sums(m->type),
                           .B = B,
                           .L = L,
                           .rows = B * L,
                           .room = room,
                           .C = c->width,
                           .F = c->ff_width,
                           .V = c->vocab,
                           .H = c->heads,
                           .qkv = m->parameters[m->blocks[0].qkv].shape[0],
                           .up = m->parameters[m->blocks[0].up].shape[0],
                           .heads = c->qk_norm ? c->width / c->heads * (c->heads + c->kv_heads) : 0,
                           .gates = most_gates(m),
                           .logits = m->head_kind->scratch(m, room),
                           .records = w->settings.skip > 0 };
}

static struct tensor take_rows(struct layout *a, const struct sizes *s, int64_t columns)
{
    struct tensor t = take(a, s->type, s->room, columns);

    t.shape[0] = s->rows;
    return t;
}

static void layout_attention(struct layout *a, struct layer *l, const struct sizes *s)
{
    l->qkv = take_rows(a, s, s->qkv);
    l->attended = take_rows(a, s, s->C);
    l->lse = tensor_3(take(a, s->sums, s->B * s->H, s->L).data, s->sums, s->B, s->H, s->L);
    l->kept = tensor_none();
    if (s->gates > 0) {
        l->z = take_rows(a, s, s->gates);
        l->gates = take(a, s->sums, 2 * s->B * s->gates, s->L);
    }
}

static struct tensor take_heads(struct layout *a, const struct sizes *s)
{
    return s->heads > 0 ? take_rows(a, s, s->heads) : tensor_none();
}

static void layout_statistics(struct layout *a, struct layer *l, const struct sizes *s)
{
    l->mean1 = take_1(a, s->sums, s->rows);
    l->rstd1 = take_1(a, s->sums, s->rows);
    l->mean2 = take_1(a, s->sums, s->rows);
    l->rstd2 = take_1(a, s->sums, s->rows);
}

/* The results of a block that take matrix products to recompute: all but `activated`. */
static void layout_costly(struct layout *a, struct layer *l, const struct sizes *s)
{
    int64_t tiles = attention_tiles(s->L), words = attention_kept_words(s->L);

    l->middle = take_rows(a, s, s->C);
    layout_statistics(a, l, s);
    layout_attention(a, l, s);
    if (s->records)
        l->kept = tensor_4(take(a, DTYPE_I32, s->B * s->H * tiles, words).data, DTYPE_I32, s->B,
                           s->H, tiles, words);
    l->up = take_rows(a, s, s->up);
}

/* The buffers that adaptive.c needs from the beginning to the end of a pass. */
static void layout_splits(struct layout *a, struct workspace *w, const struct sizes *s)
{
    struct adaptive *x = &w->activations.adaptive;
    int64_t listed = split_listed(w->model, s->rows);

    x->input.lists = take_1(a, DTYPE_I32, s->rows + 2 * listed);
    x->output.lists = take_1(a, DTYPE_I32, s->rows + 2 * listed);
    x->head_targets = take_1(a, DTYPE_I32, s->rows);
    x->head_nll = take_1(a, s->sums, s->rows);
    x->tail_nll = take_1(a, s->sums, listed + 1);
}

/* Embedding and output layer, the ends of the model, in the memory from `wide` on. */
static void layout_ends(struct layout *a, struct workspace *w, const struct sizes *s, size_t wide)
{
    enum { LOGP_ROWS = 64 }; /* they go to the host, which takes longer than their products */
    const struct model *m = w->model;
    struct adaptive *x = &w->activations.adaptive;
    int64_t listed, some = s->rows < LOGP_ROWS ? s->rows : LOGP_ROWS;
    bool training = w->activations.training;

    a->used = wide;
    w->activations.logits = take_1(a, s->type, s->logits);
    if (m->clusters == 0)
        return;
    listed = split_listed(m, s->rows);
    x->gathered = take(a, s->type, listed + 1, s->C);
    x->hidden = take(a, s->type, listed, m->cluster[1].width);
    x->dhidden = training ? take(a, s->type, listed, m->cluster[1].width) : tensor_none();
    x->logp = training ? tensor_none() : take(a, s->sums, some, s->V);
    x->head_logp =
        training ? tensor_none() : take(a, s->sums, some, m->cluster[0].count + m->clusters - 1);
    a->used = wide;
    x->embedded = take(a, s->type, listed, s->C);
    x->projected = take(a, s->type, listed, s->C);
    x->dembedded = training ? take(a, s->type, listed, s->C) : tensor_none();
}

static void layout_training(struct layout *a, struct workspace *w, const struct sizes *s)
{
    struct activations *x = &w->activations;
    int recompute = w->settings.recompute;
    struct layer shared = { 0 }; /* what no layer keeps for itself */
    size_t begin, wide;

    if (recompute == ALIBI_RECOMPUTE_BLOCK)
        layout_costly(a, &shared, s);
    if (recompute != ALIBI_RECOMPUTE_NONE)
        shared.activated = take_rows(a, s, s->F);

    /* Kept for the backward pass. */
    begin = a->used;
    for (int64_t n = 0; n < w->model->config.layers; n++) {
        struct layer *l = &x->layers[n];

        *l = shared;
        l->x = take_rows(a, s, s->C);
        if (recompute != ALIBI_RECOMPUTE_BLOCK)
            layout_costly(a, l, s);
        if (recompute == ALIBI_RECOMPUTE_NONE)
            l->activated = take_rows(a, s, s->F);
    }
    x->x = take_rows(a, s, s->C);
    x->embedded = w->model->embedding_norm >= 0 ? take_rows(a, s, s->C) : x->layers[0].x;
    a->kept = a->used - begin;

    /* Reused by every layer. */
    x->normed = take_rows(a, s, s->C);
    x->dx = take_rows(a, s, s->C);
    x->dnorm = x->branch = take_rows(a, s, s->C);
    x->dblock = w->model->config.parallel ? take_rows(a, s, s->C) : tensor_none();
    wide = a->used;
    x->dqkv = take_rows(a, s, s->qkv);
    x->dattended = take_rows(a, s, s->C);
    x->heads = take_heads(a, s);
    x->dgates = take(a, s->sums, s->B * s->gates, s->L);
    a->used = wide;
    x->dactivated = take_rows(a, s, s->F);
    layout_ends(a, w, s, wide);
    x->step = x->slots = x->lengths = tensor_none();
}

/* Nothing is kept: the residual stream is updated in place, except in passes over single tokens.
 * There linear layers add the branch before them (linear_args.norm), which cannot be in place, so
 * middle has memory of its own. It follows the buffers of attention and feed-forward, and the
 * output layer overwrites it when all blocks are done. */
static void layout_inference(struct layout *a, struct workspace *w, const struct sizes *s)
{
    struct activations *x = &w->activations;
    struct layer l = { 0 };
    int64_t lengths = 2 * w->model->pattern.kinds;
    size_t wide, attention;

    x->step = take_1(a, DTYPE_I32, (3 + lengths) * s->B);
    x->slots = x->lengths = tensor_none();
    if (a->base) {
        x->slots = vector_part(x->step, s->B, s->B);
        x->lengths = vector_part(x->step, 2 * s->B, (1 + lengths) * s->B);
        x->tokens.data = s->L == 1 ? x->step.data : x->tokens.data;
    }
    l.x = take_rows(a, s, s->C);
    x->normed = take_rows(a, s, s->C);
    x->branch = take_rows(a, s, s->C);
    layout_statistics(a, &l, s);
    wide = a->used;
    layout_attention(a, &l, s);
    x->heads = take_heads(a, s);
    attention = a->used;
    a->used = wide;
    l.up = take_rows(a, s, s->up);
    l.activated = take_rows(a, s, s->F);
    a->used = a->used > attention ? a->used : attention;
    l.middle = s->L == 1 ? take_rows(a, s, s->C) : l.x;
    layout_ends(a, w, s, wide);
    for (int64_t n = 0; n < w->model->config.layers; n++)
        x->layers[n] = l;
    x->x = x->embedded = l.x;
    x->dx = x->dnorm = x->dqkv = x->dattended = x->dactivated = tensor_none();
    x->dblock = x->dgates = tensor_none();
}

/* The layout in `a`; without memory it only measures. */
static void lay_out(struct layout *a, struct workspace *w, int64_t B, int64_t L, bool training)
{
    struct activations *x = &w->activations;
    struct sizes s;
    int64_t rows;

    x->B = x->L = 0;
    x->training = training;
    if (B < 1 || L < 1 || __builtin_mul_overflow(B, L, &rows) || rows > INT64_MAX / (1 << 24)) {
        a->overflow = true;
        return;
    }
    s = sizes_of(w, B, L);
    x->room = s.room;
    x->tokens = take(a, DTYPE_I32, s.B, s.L);
    x->targets = take_1(a, DTYPE_I32, s.rows);
    x->nll = take_1(a, s.sums, s.rows);
    x->embedded_mean = take_1(a, s.sums, s.rows);
    x->embedded_rstd = take_1(a, s.sums, s.rows);
    x->mean = take_1(a, s.sums, s.rows);
    x->rstd = take_1(a, s.sums, s.rows);
    if (w->model->clusters > 0)
        layout_splits(a, w, &s);
    if (training)
        layout_training(a, w, &s);
    else
        layout_inference(a, w, &s);
}

alibi_status activations_reserve(struct workspace *w, int64_t B, int64_t L, bool training)
{
    struct device *dev = w->model->device;
    struct activations *x = &w->activations;
    struct layout measured = { 0 }, real = { 0 };

    if (x->buffer && x->B == B && x->L == L && x->training == training)
        return ALIBI_OK;
    lay_out(&measured, w, B, L, training);
    if (measured.overflow)
        return fail(ALIBI_MEMORY, "a batch of %lld x %lld tokens does not fit in memory",
                    (long long)B, (long long)L);
    if (!x->buffer || measured.peak > x->bytes) {
        dev->ops->buffer_free(dev, x->buffer);
        x->buffer = NULL;
        x->bytes = 0;
        TRY_RETURN(dev->ops->buffer_new(dev, &x->buffer, measured.peak, "the activations"));
        x->bytes = measured.peak;
    }
    real.base = x->buffer;
    lay_out(&real, w, B, L, training);
    x->B = B;
    x->L = L;
    return ALIBI_OK;
}

alibi_status lists_reserve(struct workspace *w, int64_t needed)
{
    if (needed <= w->list_capacity)
        return ALIBI_OK;
    mem_free(w->lists);
    w->lists = NULL;
    w->list_capacity = 0;
    TRY_RETURN(NEW_ARRAY(&w->lists, needed, "lists of rows"));
    w->list_capacity = needed;
    return ALIBI_OK;
}

/* ---- making and measuring */

alibi_status workspace_new(struct workspace **out, const struct model *m,
                           const struct pass_settings *settings)
{
    alibi_status status;
    struct workspace *w = NULL;

    device_lock(m->device);
    TRY(NEW_ZERO_ARRAY(&w, 1, "the workspace of passes"));
    w->model = m;
    w->settings = *settings;
    w->listed = -1;
    TRY(NEW_ZERO_ARRAY(&w->activations.layers, m->config.layers, "the table of layers"));
    TRY(tables_init(w->tables, m));
    *out = w;
    w = NULL;
out:
    workspace_free(w);
    device_unlock(m->device);
    return status;
}

void workspace_free(struct workspace *w)
{
    struct device *dev;

    if (!w)
        return;
    dev = w->model->device;
    device_lock(dev);
    dev->ops->buffer_free(dev, w->activations.buffer);
    dev->ops->buffer_free(dev, w->record);
    mem_free(w->lists);
    tables_fini(w->tables, w->model);
    device_unlock(dev);
    mem_free(w->activations.layers);
    mem_free(w);
}

struct attention_statistics workspace_statistics(const struct workspace *w)
{
    return w->statistics;
}

alibi_status model_measure(const struct model *m, const struct pass_settings *settings, int64_t B,
                           int64_t L, bool training, struct model_bytes *bytes)
{
    struct workspace w = { .model = m, .settings = *settings };
    struct layout a = { 0 };

    TRY_RETURN(NEW_ZERO_ARRAY(&w.activations.layers, m->config.layers, "the table of layers"));
    lay_out(&a, &w, B, L, training);
    mem_free(w.activations.layers);
    *bytes = (struct model_bytes){
        .master = model_flat_bytes(m, dtype_sums(m->type)),
        .copy = m->type != dtype_sums(m->type) ? model_flat_bytes(m, m->type) : 0,
        .tables = tables_bytes(m, L, training),
        .kept = a.overflow ? SIZE_MAX : a.kept,
        .passing = a.overflow ? SIZE_MAX : a.peak - a.kept,
        .distances = tables_distances(m, L),
    };
    return ALIBI_OK;
}
