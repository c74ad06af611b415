/* activations.c - one buffer for everything a pass computes
 *
 * The buffer is laid out twice by the same function: first without memory, to learn its size, then
 * for real. In training every layer keeps its own part for the backward pass, or as much of it as
 * is not computed again. Otherwise all layers share one. Attention, feed-forward and the output
 * layer, which never live at the same time, share the wide part of what passes. */
#include "model/walk.h"

enum { ALIGNMENT = 256, LOGIT_ROWS_LEAST = 64, LOGIT_ROWS_ALIGNED = 128 };

struct arena {
    char *base; /* NULL: only measure */
    size_t used, peak;
    size_t kept; /* of these, what the backward pass reads */
    bool overflow;
};

static void *take_bytes(struct arena *a, size_t bytes)
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

static struct tensor take(struct arena *a, enum dtype type, int64_t rows, int64_t columns)
{
    const int64_t factors[3] = { rows, columns, (int64_t)dtype_bytes(type) };
    size_t bytes = 0;

    if (!size_product(&bytes, factors, 3))
        a->overflow = true;
    return tensor_2(take_bytes(a, bytes), type, rows, columns);
}

static struct tensor take_1(struct arena *a, enum dtype type, int64_t count)
{
    return tensor_1(take(a, type, 1, count).data, type, count);
}

/* ---- layout */

struct sizes {
    enum dtype type, sums; /* of activations; of statistics and losses */
    int64_t B, L, rows, C, F, V;
    int64_t qkv, up; /* widths of the fused projections */
    int64_t logit_rows;
};

/* Pieces of about the same size, so that the last is not a small rest; in multiples of what suits
 * the products. */
int64_t model_head_rows(const struct model *m, int64_t rows)
{
    int64_t logits = m->device->ops->traits.logits, most = logits / m->config.vocab, pieces, piece;

    if (most < LOGIT_ROWS_LEAST)
        most = LOGIT_ROWS_LEAST;
    if (rows <= most)
        return rows;
    pieces = (rows + most - 1) / most;
    piece = (rows + pieces - 1) / pieces;
    if (piece < LOGIT_ROWS_ALIGNED)
        return piece;
    return (piece + LOGIT_ROWS_ALIGNED - 1) / LOGIT_ROWS_ALIGNED * LOGIT_ROWS_ALIGNED;
}

static struct sizes sizes_of(const struct model *m, int64_t B, int64_t L)
{
    const struct alibi_config *c = &m->config;
    struct sizes s = {
        .B = B, .L = L, .rows = B * L, .C = c->width, .F = c->ff_width, .V = c->vocab
    };

    s.type = m->type;
    s.sums = dtype_sums(m->type);
    s.qkv = m->parameters[m->blocks[0].qkv].shape[0];
    s.up = m->parameters[m->blocks[0].up].shape[0];
    s.logit_rows = model_head_rows(m, s.rows);
    return s;
}

static void layout_attention(struct arena *a, struct layer *l, const struct model *m,
                             struct sizes s)
{
    int64_t H = m->config.heads;

    l->qkv = take(a, s.type, s.rows, s.qkv);
    l->attended = take(a, s.type, s.rows, s.C);
    l->lse = tensor_3(take(a, s.sums, s.B * H, s.L).data, s.sums, s.B, H, s.L);
    l->kept = tensor_none();
}

/* Where attention leaves nothing out there is nothing to record. */
static bool records(const struct model *m)
{
    return m->skip > 0;
}

static void layout_kept(struct arena *a, struct layer *l, const struct model *m, struct sizes s)
{
    int64_t H = m->config.heads, tiles = attention_tiles(s.L), words = attention_kept_words(s.L);

    if (!records(m))
        return;
    l->kept =
        tensor_4(take(a, DTYPE_I32, s.B * H * tiles, words).data, DTYPE_I32, s.B, H, tiles, words);
}

static void layout_statistics(struct arena *a, struct layer *l, struct sizes s)
{
    l->mean1 = take_1(a, s.sums, s.rows);
    l->rstd1 = take_1(a, s.sums, s.rows);
    l->mean2 = take_1(a, s.sums, s.rows);
    l->rstd2 = take_1(a, s.sums, s.rows);
}

/* ---- training */

/* What a block computes from its input: all of this takes products to have again, and `activated`
 * does not. */
static void layout_costly(struct arena *a, struct layer *l, const struct model *m, struct sizes s)
{
    l->middle = take(a, s.type, s.rows, s.C);
    layout_statistics(a, l, s);
    layout_attention(a, l, m, s);
    layout_kept(a, l, m, s);
    l->up = take(a, s.type, s.rows, s.up);
}

/* What no layer keeps for itself. */
static struct layer layout_shared(struct arena *a, const struct model *m, struct sizes s)
{
    struct layer l = { 0 };

    if (m->recompute == ALIBI_RECOMPUTE_BLOCK)
        layout_costly(a, &l, m, s);
    if (m->recompute != ALIBI_RECOMPUTE_NONE)
        l.activated = take(a, s.type, s.rows, s.F);
    return l;
}

static void layout_layers(struct arena *a, struct activations *x, const struct model *m,
                          struct sizes s, struct layer shared)
{
    for (int64_t n = 0; n < m->config.layers; n++) {
        struct layer *l = &x->layers[n];
        *l = shared;
        l->x = take(a, s.type, s.rows, s.C);
        if (m->recompute != ALIBI_RECOMPUTE_BLOCK)
            layout_costly(a, l, m, s);
        if (m->recompute == ALIBI_RECOMPUTE_NONE)
            l->activated = take(a, s.type, s.rows, s.F);
    }
}

static void layout_training(struct arena *a, struct activations *x, const struct model *m,
                            struct sizes s)
{
    struct layer shared = layout_shared(a, m, s);
    size_t begin = a->used, wide;

    layout_layers(a, x, m, s, shared);
    x->x = take(a, s.type, s.rows, s.C);
    x->embedded = m->embedding_norm >= 0 ? take(a, s.type, s.rows, s.C) : x->layers[0].x;
    a->kept = a->used - begin;
    x->normed = take(a, s.type, s.rows, s.C);
    x->dx = take(a, s.type, s.rows, s.C);
    x->dnorm = x->branch = take(a, s.type, s.rows, s.C);
    wide = a->used;
    x->dqkv = take(a, s.type, s.rows, s.qkv);
    x->dattended = take(a, s.type, s.rows, s.C);
    a->used = wide;
    x->dactivated = take(a, s.type, s.rows, s.F);
    a->used = wide;
    x->logits = take(a, s.type, s.logit_rows, s.V);
}

/* ---- inference */

/* Nothing is kept: the residual stream is updated in place. */
static void layout_inference(struct arena *a, struct activations *x, const struct model *m,
                             struct sizes s)
{
    struct layer l = { 0 };
    size_t wide;

    l.x = l.middle = take(a, s.type, s.rows, s.C);
    x->normed = take(a, s.type, s.rows, s.C);
    x->branch = take(a, s.type, s.rows, s.C);
    layout_statistics(a, &l, s);
    wide = a->used;
    layout_attention(a, &l, m, s);
    a->used = wide;
    l.up = take(a, s.type, s.rows, s.up);
    l.activated = take(a, s.type, s.rows, s.F);
    a->used = wide;
    x->logits = take(a, s.type, s.logit_rows, s.V);
    for (int64_t n = 0; n < m->config.layers; n++)
        x->layers[n] = l;
    x->x = x->embedded = l.x;
    x->dx = x->dnorm = x->dqkv = x->dattended = x->dactivated = tensor_none();
}

static void layout(struct arena *a, struct activations *x, const struct model *m, struct sizes s)
{
    x->tokens = take(a, DTYPE_I32, s.B, s.L);
    x->targets = take_1(a, DTYPE_I32, s.rows);
    x->nll = take_1(a, s.sums, s.rows);
    x->embedded_mean = take_1(a, s.sums, s.rows);
    x->embedded_rstd = take_1(a, s.sums, s.rows);
    x->mean = take_1(a, s.sums, s.rows);
    x->rstd = take_1(a, s.sums, s.rows);
    x->last = take(a, s.type, s.B, s.C);
    if (x->training)
        layout_training(a, x, m, s);
    else
        layout_inference(a, x, m, s);
}

/* ---- making */

static alibi_status resize(struct activations *x, struct model *m, size_t bytes)
{
    void *buffer;

    if (x->buffer && bytes <= x->bytes)
        return ALIBI_OK;
    m->device->ops->buffer_free(m->device, x->buffer);
    x->buffer = NULL;
    x->bytes = 0;
    TRY_RETURN(m->device->ops->buffer_new(m->device, &buffer, bytes, "the activations"));
    x->buffer = buffer;
    x->bytes = bytes;
    return ALIBI_OK;
}

static alibi_status new_activations(struct model *m)
{
    alibi_status status;
    struct activations *x = NULL;

    TRY(NEW_ZERO_ARRAY(&x, 1, "activations"));
    TRY(NEW_ZERO_ARRAY(&x->layers, m->config.layers, "the table of layers"));
    m->activations = x;
    x = NULL;
out:
    mem_free(x);
    return status;
}

static bool rows_overflow(int64_t B, int64_t L)
{
    int64_t rows;

    return B < 1 || L < 1 || __builtin_mul_overflow(B, L, &rows) || rows > INT64_MAX / (1 << 24);
}

/* The layout in `a`: without memory it only measures. */
static alibi_status lay_out(struct arena *a, struct model *m, int64_t B, int64_t L, bool training)
{
    if (!m->activations)
        TRY_RETURN(new_activations(m));
    m->activations->B = m->activations->L = 0;
    m->activations->training = training;
    m->activations->recompute = m->recompute;
    m->activations->records = records(m);
    if (rows_overflow(B, L))
        a->overflow = true;
    else
        layout(a, m->activations, m, sizes_of(m, B, L));
    return ALIBI_OK;
}

alibi_status activations_measure(struct model *m, int64_t B, int64_t L, bool training, size_t *kept,
                                 size_t *passing)
{
    struct arena measure = { 0 };

    TRY_RETURN(lay_out(&measure, m, B, L, training));
    *kept = measure.overflow ? SIZE_MAX : measure.kept;
    *passing = measure.overflow ? SIZE_MAX : measure.peak - measure.kept;
    return ALIBI_OK;
}

static bool serve(const struct activations *x, const struct model *m, int64_t B, int64_t L,
                  bool training)
{
    return x && x->buffer && x->B == B && x->L == L && x->training == training &&
           x->recompute == m->recompute && x->records == records(m);
}

alibi_status activations_reserve(struct model *m, int64_t B, int64_t L, bool training)
{
    struct arena measure = { 0 }, real = { 0 };

    if (serve(m->activations, m, B, L, training))
        return ALIBI_OK;
    TRY_RETURN(lay_out(&measure, m, B, L, training));
    if (measure.overflow)
        return fail(ALIBI_MEMORY, "a batch of %lld x %lld tokens does not fit", (long long)B,
                    (long long)L);
    TRY_RETURN(resize(m->activations, m, measure.peak));
    real.base = m->activations->buffer;
    TRY_RETURN(lay_out(&real, m, B, L, training));
    m->activations->B = B;
    m->activations->L = L;
    return ALIBI_OK;
}

void activations_free(struct activations *a, struct model *m)
{
    if (!a)
        return;
    m->device->ops->buffer_free(m->device, a->buffer);
    mem_free(a->layers);
    mem_free(a);
}
