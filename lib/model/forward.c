/* forward.c - the walk through the model, from tokens to the norm of the residual stream after the
 * last block
 *
 *   x = scale * embedding[token] + position row          (norm, dropout)
 *   x = x + drop(out(attention(rotate(qkv(norm1(x))))))
 *   x = x + drop(down(act(up(norm2(x)))))
 *
 * A branch adds to the stream in the same operation that takes the norm that follows, so a block
 * begins with its norm at hand and ends with that of the next. Only operations touch numbers. A
 * pass with a cache puts its keys and values there and attends to all the cache holds. */
#include <math.h>

#include "model/walk.h"

/* Another seed per place, so that the caller's streams need not leave room for ours. */
struct dropout dropout_at(struct dropout drop, int64_t place)
{
    drop.seed += (uint64_t)place * 0x9e3779b97f4a7c15u;
    return drop;
}

static alibi_status linear(struct model *m, struct tensor y, struct tensor x, int weight, int bias)
{
    return m->device->ops->linear_forward(
        m->device, &(struct linear_args){
                       .y = y, .x = x, .weight = value_of(m, weight), .bias = value_of(m, bias) });
}

/* ---- norms */

struct norm embedding_norm(const struct model *m)
{
    const struct activations *x = m->activations;

    return (struct norm){ m->embedding_norm, m->embedding_norm_bias, x->embedded_mean,
                          x->embedded_rstd };
}

struct norm attention_norm(const struct model *m, int64_t n)
{
    const struct layer *l = &m->activations->layers[n];

    return (struct norm){ m->blocks[n].norm1, m->blocks[n].norm1_bias, l->mean1, l->rstd1 };
}

struct norm feed_forward_norm(const struct model *m, int64_t n)
{
    const struct layer *l = &m->activations->layers[n];

    return (struct norm){ m->blocks[n].norm2, m->blocks[n].norm2_bias, l->mean2, l->rstd2 };
}

struct norm final_norm(const struct model *m)
{
    return (struct norm){ m->norm, m->norm_bias, m->activations->mean, m->activations->rstd };
}

/* sum = x + drop(branch), y = norm(sum); without a branch y = norm(x). */
static alibi_status norm_sum(struct model *m, struct norm norm, struct tensor y, struct tensor sum,
                             struct tensor x, struct tensor branch, struct dropout drop)
{
    return m->device->ops->norm_forward(m->device,
                                        &(struct norm_args){ .kind = m->config.norm,
                                                             .y = y,
                                                             .sum = sum,
                                                             .mean = norm.mean,
                                                             .rstd = norm.rstd,
                                                             .x = x,
                                                             .branch = branch,
                                                             .weight = value_of(m, norm.weight),
                                                             .bias = value_of(m, norm.bias),
                                                             .dropout = drop,
                                                             .eps = m->config.norm_eps });
}

static alibi_status norm_alone(struct model *m, struct norm norm, struct tensor y, struct tensor x)
{
    return norm_sum(m, norm, y, tensor_none(), x, tensor_none(), (struct dropout){ .p = 0 });
}

/* The end of a branch: sum = x + drop(branch), then the norm that follows, if one does. */
static alibi_status join(struct model *m, const struct pass *p, int64_t place, struct tensor sum,
                         struct tensor x, struct norm following)
{
    struct activations *a = m->activations;
    struct dropout drop = dropout_at(p->drop, place);

    if (following.weight < 0)
        return m->device->ops->residual_forward(m->device, sum, x, a->branch, drop);
    return norm_sum(m, following, a->normed, sum, x, a->branch, drop);
}

/* ---- the parts of a pass */

static alibi_status embed(struct model *m, const struct pass *p, const int32_t *tokens)
{
    struct activations *a = m->activations;
    const struct ops *ops = m->device->ops;
    struct tensor rows = m->method->acts_on == POSITION_EMBEDDING ? m->tables->rows : tensor_none();
    struct tensor x = a->layers[0].x;

    TRY_RETURN(ops->upload(m->device, a->tokens, tokens));
    TRY_RETURN(ops->embedding_forward(
        m->device, &(struct embedding_args){
                       .y = tensor_3(a->embedded.data, m->type, p->B, p->L, m->config.width),
                       .tokens = a->tokens,
                       .weight = value_of(m, m->embedding),
                       .table = rows,
                       .start = p->start,
                       .scale = m->config.embedding_scale }));
    if (m->embedding_norm >= 0)
        TRY_RETURN(norm_alone(m, embedding_norm(m), x, a->embedded));
    if (p->drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, x, x, dropout_at(p->drop, 0)));
    return ALIBI_OK;
}

static struct rotation rotation_of(const struct model *m, const struct pass *p)
{
    if (m->method->acts_on != POSITION_ROTATION)
        return (struct rotation){ 0 };
    return (struct rotation){ .table = m->tables->rows,
                              .start = p->start,
                              .layout = m->config.rotary_layout };
}

struct attention_args attention_of(const struct model *m, const struct pass *p, int64_t n)
{
    const struct alibi_config *c = &m->config;
    struct tensor qkv = m->activations->layers[n].qkv;
    int64_t D = c->width / c->heads, keys = c->heads * D, values = keys + c->kv_heads * D;

    return (
        struct attention_args){ .q = tensor_heads(qkv, p->B, p->L, 0, c->heads, D),
                                .k = tensor_heads(qkv, p->B, p->L, keys, c->kv_heads, D),
                                .v = tensor_heads(qkv, p->B, p->L, values, c->kv_heads, D),
                                .bias = tables_bias(m),
                                .scale = 1.0 / sqrt((double)D),
                                .skip = { .eps = m->skip, .kept = m->activations->layers[n].kept },
                                .rotation = rotation_of(m, p) };
}

/* Keys lie behind the queries as further heads, as long as they do not come from a cache. */
static alibi_status rotate(struct model *m, const struct attention_args *a)
{
    struct tensor both = a->q;

    both.shape[2] += a->k.shape[2];
    return a->rotation.table.data ? m->device->ops->rotary(m->device, both, a->rotation, 1)
                                  : ALIBI_OK;
}

static alibi_status remember(struct model *m, const struct pass *p, int64_t n,
                             struct attention_args *a)
{
    const struct ops *ops = m->device->ops;
    int64_t first;

    TRY_RETURN(ops->copy(m->device, cache_keys(p->cache, n, p->start, p->L), a->k));
    TRY_RETURN(ops->copy(m->device, cache_values(p->cache, n, p->start, p->L), a->v));
    TRY_RETURN(cache_add_norms(p->cache, n, p->L));
    first = cache_first(p->cache);
    a->k = cache_keys(p->cache, n, first, p->start + p->L - first);
    a->v = cache_values(p->cache, n, first, p->start + p->L - first);
    a->skip.norms = cache_norms(p->cache, n);
    return ALIBI_OK;
}

alibi_status enter_block(struct model *m, int64_t n)
{
    return norm_alone(m, attention_norm(m, n), m->activations->normed, m->activations->layers[n].x);
}

alibi_status attend(struct model *m, const struct pass *p, int64_t n)
{
    const struct block_parameters *b = &m->blocks[n];
    struct activations *x = m->activations;
    struct layer *l = &x->layers[n];
    struct attention_args a = attention_of(m, p, n);

    a.y = tensor_heads(l->attended, p->B, p->L, 0, m->config.heads, a.q.shape[3]);
    a.lse = l->lse;
    TRY_RETURN(linear(m, l->qkv, x->normed, b->qkv, b->qkv_bias));
    TRY_RETURN(rotate(m, &a));
    if (p->cache)
        TRY_RETURN(remember(m, p, n, &a));
    TRY_RETURN(watched_attention(m, n, a));
    TRY_RETURN(linear(m, x->branch, l->attended, b->out, b->out_bias));
    return join(m, p, attention_place(n), l->middle, l->x, feed_forward_norm(m, n));
}

alibi_status widen(struct model *m, int64_t n)
{
    const struct block_parameters *b = &m->blocks[n];
    struct layer *l = &m->activations->layers[n];

    return m->device->ops->linear_activation_forward(
        m->device, &(struct linear_activation_args){ .kind = m->config.activation,
                                                     .activated = l->activated,
                                                     .up = l->up,
                                                     .x = m->activations->normed,
                                                     .weight = value_of(m, b->up),
                                                     .bias = value_of(m, b->up_bias) });
}

static alibi_status feed_forward(struct model *m, const struct pass *p, int64_t n)
{
    const struct block_parameters *b = &m->blocks[n];
    struct activations *x = m->activations;
    struct layer *l = &x->layers[n];
    bool last = n + 1 == m->config.layers;
    struct tensor sum = last ? x->x : x->layers[n + 1].x;

    TRY_RETURN(widen(m, n));
    TRY_RETURN(linear(m, x->branch, l->activated, b->down, b->down_bias));
    return join(m, p, feed_forward_place(n), sum, l->middle,
                last ? final_norm(m) : attention_norm(m, n + 1));
}

alibi_status forward(struct model *m, const struct pass *p, const int32_t *tokens)
{
    TRY_RETURN(tables_reserve(m, p->start + p->L));
    TRY_RETURN(tables_refresh(m));
    TRY_RETURN(embed(m, p, tokens));
    TRY_RETURN(enter_block(m, 0));
    for (int64_t n = 0; n < m->config.layers; n++) {
        TRY_RETURN(attend(m, p, n));
        TRY_RETURN(feed_forward(m, p, n));
    }
    return ALIBI_OK;
}
