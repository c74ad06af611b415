/* activations.c - one buffer for everything a pass computes
 *
 * The buffer is laid out twice by the same function: first without memory, to learn its size, then for real. In training every
 * layer keeps its own part for the backward pass. Otherwise all layers share one, and attention and feed-forward, which never
 * live at the same time, share the wide part of it. */
#include "model/walk.h"

enum { ALIGNMENT = 64, LOGIT_ELEMENTS = 1 << 24, LOGIT_ROWS_LEAST = 64 };

struct arena {
    char *base; /* NULL: only measure */
    size_t used, peak;
    bool overflow;
};

static void *take_bytes(struct arena *a, size_t bytes)
{
    size_t begin = a->used, end;

    if (!size_add(&end, bytes, ALIGNMENT - 1) || !size_add(&end, begin, end / ALIGNMENT * ALIGNMENT)) {
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
    int64_t B, L, rows, C, F, V;
    int64_t qkv, up; /* widths of the fused projections */
    int64_t logit_rows;
};

int64_t model_head_rows(const struct model *m, int64_t rows)
{
    int64_t piece = LOGIT_ELEMENTS / m->config.vocab;

    if (piece < LOGIT_ROWS_LEAST)
        piece = LOGIT_ROWS_LEAST;
    return piece < rows ? piece : rows;
}

static struct sizes sizes_of(const struct model *m, int64_t B, int64_t L)
{
    const struct alibi_config *c = &m->config;
    struct sizes s = { .B = B, .L = L, .rows = B * L, .C = c->width, .F = c->ff_width, .V = c->vocab };

    s.qkv = m->parameters[m->blocks[0].qkv].shape[0];
    s.up = m->parameters[m->blocks[0].up].shape[0];
    s.logit_rows = model_head_rows(m, s.rows);
    return s;
}

static void layout_attention(struct arena *a, struct layer *l, const struct model *m, struct sizes s)
{
    l->qkv = take(a, m->type, s.rows, s.qkv);
    l->attended = take(a, m->type, s.rows, s.C);
    l->lse = take(a, m->type, s.B * m->config.heads, s.L);
    l->lse = tensor_3(l->lse.data, m->type, s.B, m->config.heads, s.L);
    l->kept = tensor_none();
}

static void layout_kept(struct arena *a, struct layer *l, const struct model *m, struct sizes s)
{
    int64_t H = m->config.heads, tiles = attention_tiles(s.L), words = attention_kept_words(s.L);

    l->kept = take(a, DTYPE_I32, s.B * H * tiles, words);
    l->kept = tensor_4(l->kept.data, DTYPE_I32, s.B, H, tiles, words);
}

static void layout_feed_forward(struct arena *a, struct layer *l, const struct model *m, struct sizes s)
{
    l->up = take(a, m->type, s.rows, s.up);
    l->activated = take(a, m->type, s.rows, s.F);
}

static void layout_norms(struct arena *a, struct layer *l, const struct model *m, struct sizes s)
{
    l->norm1 = take(a, m->type, s.rows, s.C);
    l->mean1 = take_1(a, m->type, s.rows);
    l->rstd1 = take_1(a, m->type, s.rows);
}

/* Everything the backward pass reads is kept apart. */
static void layout_training(struct arena *a, struct activations *x, const struct model *m, struct sizes s)
{
    for (int64_t n = 0; n < m->config.layers; n++) {
        struct layer *l = &x->layers[n], other;
        l->x = take(a, m->type, s.rows, s.C);
        l->middle = take(a, m->type, s.rows, s.C);
        layout_norms(a, l, m, s);
        layout_norms(a, &other, m, s);
        l->norm2 = other.norm1;
        l->mean2 = other.mean1;
        l->rstd2 = other.rstd1;
        layout_attention(a, l, m, s);
        layout_kept(a, l, m, s);
        layout_feed_forward(a, l, m, s);
    }
    x->x = take(a, m->type, s.rows, s.C);
    x->dx = take(a, m->type, s.rows, s.C);
    x->dnorm = take(a, m->type, s.rows, s.C);
    x->dbranch = take(a, m->type, s.rows, s.C);
    x->dqkv = take(a, m->type, s.rows, s.qkv);
    x->dattended = take(a, m->type, s.rows, s.C);
    x->dactivated = take(a, m->type, s.rows, s.F);
}

/* Nothing is kept: the residual stream is updated in place, and the second norm overwrites the first. */
static void layout_inference(struct arena *a, struct activations *x, const struct model *m, struct sizes s)
{
    struct layer l;
    size_t wide;

    l.x = l.middle = take(a, m->type, s.rows, s.C);
    layout_norms(a, &l, m, s);
    l.norm2 = l.norm1;
    l.mean2 = l.mean1;
    l.rstd2 = l.rstd1;
    wide = a->used;
    layout_attention(a, &l, m, s);
    a->used = wide;
    layout_feed_forward(a, &l, m, s);
    a->used = a->peak;
    for (int64_t n = 0; n < m->config.layers; n++)
        x->layers[n] = l;
    x->x = l.x;
}

static void layout(struct arena *a, struct activations *x, const struct model *m, struct sizes s)
{
    x->tokens = take(a, DTYPE_I32, s.B, s.L);
    x->targets = take_1(a, DTYPE_I32, s.rows);
    x->nll = take_1(a, m->type, s.rows);
    x->branch = take(a, m->type, s.rows, s.C);
    if (x->training)
        layout_training(a, x, m, s);
    else
        layout_inference(a, x, m, s);
    x->embedded = x->training && m->embedding_norm >= 0 ? take(a, m->type, s.rows, s.C) : x->layers[0].x;
    x->embedded_mean = take_1(a, m->type, s.rows);
    x->embedded_rstd = take_1(a, m->type, s.rows);
    if (m->norm < 0)
        x->normed = x->x;
    else
        x->normed = x->training ? take(a, m->type, s.rows, s.C) : x->layers[0].norm1;
    x->mean = take_1(a, m->type, s.rows);
    x->rstd = take_1(a, m->type, s.rows);
    x->last = take(a, m->type, s.B, s.C);
    x->logits = take(a, m->type, s.logit_rows, s.V);
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

alibi_status activations_reserve(struct model *m, int64_t B, int64_t L, bool training)
{
    struct activations *x;
    struct arena measure = { 0 }, real = { 0 };
    struct sizes s;

    if (!m->activations)
        TRY_RETURN(new_activations(m));
    x = m->activations;
    if (x->buffer && x->B == B && x->L == L && x->training == training)
        return ALIBI_OK;
    if (rows_overflow(B, L))
        return fail(ALIBI_MEMORY, "a batch of %lld x %lld tokens does not fit", (long long)B, (long long)L);
    s = sizes_of(m, B, L);
    x->B = x->L = 0;
    x->training = training;
    layout(&measure, x, m, s);
    if (measure.overflow)
        return fail(ALIBI_MEMORY, "a batch of %lld x %lld tokens does not fit", (long long)B, (long long)L);
    TRY_RETURN(resize(x, m, measure.peak));
    real.base = x->buffer;
    layout(&real, x, m, s);
    x->B = B;
    x->L = L;
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
