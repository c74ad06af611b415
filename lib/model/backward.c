/* backward.c - the walk back, from the gradient of the last residual stream to every parameter
 *
 * dx is the gradient of the residual stream. Each branch reads it, sends it back through its own
 * operations, and its norm's backward adds the branch's share to dx. Gradients of parameters
 * accumulate. The outputs of norms are not kept: the norm's own backward gives them again. What
 * else the forward pass did not keep is computed again first, from the same numbers: the result is
 * the same, bit for bit, but where a device activates the unrounded sums of a product and only the
 * rounded ones are left. */
#include "model/walk.h"

alibi_status norm_backward(struct model *m, struct norm norm, struct tensor dx, struct tensor y,
                           struct tensor dy, struct tensor x)
{
    return m->device->ops->norm_backward(
        m->device, &(struct norm_args){ .kind = m->config.norm,
                                        .y = y,
                                        .mean = norm.mean,
                                        .rstd = norm.rstd,
                                        .x = x,
                                        .weight = value_of(m, norm.weight),
                                        .bias = value_of(m, norm.bias),
                                        .dy = dy,
                                        .dx = dx,
                                        .dweight = gradient_of(m, norm.weight),
                                        .dbias = gradient_of(m, norm.bias) });
}

/* The gradient that enters a branch: that of the stream, behind the branch's dropout. */
static alibi_status enter_branch(struct model *m, const struct pass *p, int64_t place,
                                 struct tensor *dy)
{
    struct activations *x = m->activations;

    *dy = x->dx;
    if (p->drop.p <= 0)
        return ALIBI_OK;
    *dy = x->branch;
    return m->device->ops->dropout(m->device, x->branch, x->dx, dropout_at(p->drop, place));
}

/* Back through the first layer of a branch and the norm of x before it: dy to dnorm, dnorm to dx.
 * The layer's weights come last, for then the norm has given its output again. */
static alibi_status leave_branch(struct model *m, struct norm norm, struct tensor x,
                                 struct tensor dy, int weight, struct tensor dbias)
{
    const struct ops *ops = m->device->ops;
    struct activations *a = m->activations;
    struct tensor w = value_of(m, weight);

    TRY_RETURN(ops->linear_backward(
        m->device, &(struct linear_args){ .dx = a->dnorm, .dy = dy, .weight = w }));
    TRY_RETURN(norm_backward(m, norm, a->dx, a->normed, a->dnorm, x));
    return ops->linear_backward(m->device, &(struct linear_args){ .dweight = gradient_of(m, weight),
                                                                  .dbias = dbias,
                                                                  .dy = dy,
                                                                  .x = a->normed,
                                                                  .weight = w });
}

/* ---- what was not kept */

/* The buffers of a block are those of the last one in the forward pass, which needs nothing. */
static alibi_status repeat_block(struct model *m, const struct pass *p, int64_t n)
{
    if (m->activations->recompute != ALIBI_RECOMPUTE_BLOCK || n == m->config.layers - 1)
        return ALIBI_OK;
    TRY_RETURN(enter_block(m, n));
    TRY_RETURN(attend(m, p, n));
    return widen(m, n);
}

static alibi_status repeat_activation(struct model *m, int64_t n)
{
    struct layer *l = &m->activations->layers[n];

    if (m->activations->recompute != ALIBI_RECOMPUTE_CHEAP)
        return ALIBI_OK;
    return m->device->ops->activation_forward(m->device, m->config.activation, l->activated, l->up);
}

/* ---- branches */

/* dup takes the place of dactivated where it has its shape. Its column sums are the gradient of the
 * bias in up. */
static alibi_status narrow_back(struct model *m, struct tensor dup, struct tensor dy, int64_t n)
{
    const struct block_parameters *b = &m->blocks[n];
    struct layer *l = &m->activations->layers[n];

    return m->device->ops->linear_activation_backward(
        m->device, &(struct linear_activation_args){ .kind = m->config.activation,
                                                     .dup = dup,
                                                     .dup_sums = gradient_of(m, b->up_bias),
                                                     .scratch = m->activations->dactivated,
                                                     .dweight = gradient_of(m, b->down),
                                                     .dbias = gradient_of(m, b->down_bias),
                                                     .dy = dy,
                                                     .activated = l->activated,
                                                     .weight = value_of(m, b->down),
                                                     .up = l->up });
}

static alibi_status feed_forward_back(struct model *m, const struct pass *p, int64_t n)
{
    struct activations *x = m->activations;
    struct layer *l = &x->layers[n];
    struct tensor dy, dup = m->config.activation == ALIBI_SWIGLU ? l->up : x->dactivated;

    TRY_RETURN(repeat_activation(m, n));
    TRY_RETURN(enter_branch(m, p, feed_forward_place(n), &dy));
    TRY_RETURN(narrow_back(m, dup, dy, n));
    return leave_branch(m, feed_forward_norm(m, n), l->middle, dup, m->blocks[n].up, tensor_none());
}

/* dq, dk and dv lie in dqkv as q, k and v do in qkv. */
static alibi_status attention_core_back(struct model *m, const struct pass *p, int64_t n)
{
    struct activations *x = m->activations;
    struct layer *l = &x->layers[n];
    struct attention_args a = attention_of(m, p, n);
    int64_t H = a.q.shape[2], G = a.k.shape[2], D = a.q.shape[3];

    a.y = tensor_heads(l->attended, p->B, p->L, 0, H, D);
    a.lse = l->lse;
    a.dy = tensor_heads(x->dattended, p->B, p->L, 0, H, D);
    a.dq = tensor_heads(x->dqkv, p->B, p->L, 0, H, D);
    a.dk = tensor_heads(x->dqkv, p->B, p->L, H * D, G, D);
    a.dv = tensor_heads(x->dqkv, p->B, p->L, (H + G) * D, G, D);
    a.dbias = tables_bias_gradient(m);
    return m->device->ops->attention_backward(m->device, &a);
}

static alibi_status attend_back(struct model *m, const struct pass *p, int64_t n)
{
    const struct block_parameters *b = &m->blocks[n];
    struct activations *x = m->activations;
    struct layer *l = &x->layers[n];
    struct tensor dy;

    TRY_RETURN(enter_branch(m, p, attention_place(n), &dy));
    TRY_RETURN(m->device->ops->linear_backward(
        m->device, &(struct linear_args){ .dx = x->dattended,
                                          .dweight = gradient_of(m, b->out),
                                          .dbias = gradient_of(m, b->out_bias),
                                          .dy = dy,
                                          .x = l->attended,
                                          .weight = value_of(m, b->out) }));
    TRY_RETURN(attention_core_back(m, p, n));
    return leave_branch(m, attention_norm(m, n), l->x, x->dqkv, b->qkv,
                        gradient_of(m, b->qkv_bias));
}

static alibi_status embed_back(struct model *m, const struct pass *p)
{
    struct activations *x = m->activations;
    const struct ops *ops = m->device->ops;
    struct tensor rows =
        m->method->acts_on == POSITION_EMBEDDING ? gradient_of(m, m->position) : tensor_none();
    struct tensor dy = x->dx;

    if (p->drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, x->dx, x->dx, dropout_at(p->drop, 0)));
    if (m->embedding_norm >= 0) {
        dy = x->dnorm;
        TRY_RETURN(ops->fill(m->device, dy, 0.0));
        TRY_RETURN(norm_backward(m, embedding_norm(m), dy, tensor_none(), x->dx, x->embedded));
    }
    return ops->embedding_backward(
        m->device,
        &(struct embedding_args){ .dweight = gradient_of(m, m->embedding),
                                  .dtable = rows,
                                  .dy = tensor_3(dy.data, m->type, p->B, p->L, m->config.width),
                                  .tokens = x->tokens,
                                  .start = p->start,
                                  .scale = m->config.embedding_scale });
}

alibi_status backward(struct model *m, const struct pass *p)
{
    TRY_RETURN(tables_clear_gradient(m));
    for (int64_t n = m->config.layers; n-- > 0;) {
        TRY_RETURN(repeat_block(m, p, n));
        TRY_RETURN(feed_forward_back(m, p, n));
        TRY_RETURN(attend_back(m, p, n));
    }
    TRY_RETURN(tables_backward(m));
    return embed_back(m, p);
}
