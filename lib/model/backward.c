/* backward.c - the walk back, from the gradient of the last residual stream to every parameter
 *
 * dx is the gradient of the residual stream. Each branch reads it, sends it back through its own
 * operations, and the backward pass of its norm adds the branch's share to dx. Of two parallel
 * branches both read it as it was after the block. Gradients of parameters accumulate; the first
 * one of a matrix since they were cleared is written over what its memory held. The outputs of
 * norms are not kept: a norm's backward pass computes them again. Other activations that the
 * forward pass did not keep are recomputed first, from the same numbers: the result has the same
 * bits, except where a device activates the unrounded sums of a product of which only the rounded
 * ones are kept. */
#include "model/walk.h"

alibi_status norm_backward(struct workspace *w, struct norm norm, struct tensor dx, struct tensor y,
                           struct tensor dy, struct tensor x, struct tensor sums)
{
    const struct model *m = w->model;
    struct norm_args args = norm_of(w, norm, y, x);

    args.dy = dy;
    args.dx = dx;
    args.dweight = gradient_of(m, norm.weight);
    args.dbias = gradient_of(m, norm.bias);
    args.dx_sums = sums;
    return m->device->ops->norm_backward(m->device, &args);
}

/* The gradient that enters a branch: that of the stream that it was added to, after the branch's
 * dropout. */
static alibi_status enter_branch(struct workspace *w, const struct pass *p, int64_t place,
                                 struct tensor stream, struct tensor *dy)
{
    struct device *dev = w->model->device;
    struct activations *a = &w->activations;

    *dy = p->drop.p > 0 ? a->branch : stream;
    return p->drop.p > 0 ? dev->ops->dropout(dev, a->branch, stream, dropout_at(p->drop, place))
                         : ALIBI_OK;
}

/* A linear layer at the beginning of a branch. */
struct entrance {
    int weight; /* -1: there is none */
    struct tensor dy, dbias;
};

/* Back through the first layers of a branch and the norm of x before them: dy to dnorm, dnorm to
 * dx, with its sums for the branch that comes next. The gradient of the layers' weights comes last,
 * because the norm's backward pass computes their input, normed, again; until then its memory holds
 * the second layer's part of dnorm. */
static alibi_status leave_branch(struct workspace *w, struct norm norm, struct tensor x,
                                 struct tensor sums, struct entrance first, struct entrance second)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct activations *a = &w->activations;
    const struct entrance all[] = { first, second };
    int count = second.weight >= 0 ? 2 : 1;

    for (int i = 0; i < count; i++)
        TRY_RETURN(ops->linear_backward(
            m->device, &(struct linear_args){ .dx = i == 0 ? a->dnorm : a->normed,
                                              .dy = all[i].dy,
                                              .weight = value_of(m, all[i].weight) }));
    if (count == 2)
        TRY_RETURN(ops->residual_forward(m->device, a->dnorm, a->dnorm, a->normed,
                                         (struct dropout){ .p = 0 }));
    TRY_RETURN(norm_backward(w, norm, a->dx, a->normed, a->dnorm, x, sums));
    for (int i = 0; i < count; i++)
        TRY_RETURN(ops->linear_backward(
            m->device, &(struct linear_args){ .dweight = gradient_of(m, all[i].weight),
                                              .first = take_first_gradient(m, all[i].weight),
                                              .dbias = all[i].dbias,
                                              .dy = all[i].dy,
                                              .x = a->normed,
                                              .weight = value_of(m, all[i].weight) }));
    return ALIBI_OK;
}

static alibi_status feed_forward_back(struct workspace *w, const struct pass *p, int64_t n)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    const struct block_parameters *b = &m->blocks[n];
    struct activations *a = &w->activations;
    struct layer *l = &a->layers[n];
    /* dup takes the place of dactivated where it has its shape. */
    struct tensor dy, dup = m->config.activation == ALIBI_SWIGLU ? l->up : a->dactivated;
    struct dropout drop = dropout_within(w, p, w->settings.activation_dropout, activated_place(n));
    bool after_norm = n < m->config.layers - 1 || m->norm >= 0;
    bool summed = after_norm && entering_sums(m, p, b->down_bias).data;

    if (w->settings.recompute == ALIBI_RECOMPUTE_CHEAP)
        TRY_RETURN(ops->activation_forward(m->device, m->config.activation, l->activated, l->up));
    if (w->settings.recompute == ALIBI_RECOMPUTE_CHEAP && drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, l->activated, l->activated, drop));
    /* A parallel branch of attention enters with the same gradient, which changes below. */
    if (m->config.parallel)
        TRY_RETURN(ops->copy(m->device, tensor_heads(a->dblock, p->B, p->L, 0, 1, m->config.width),
                             tensor_heads(a->dx, p->B, p->L, 0, 1, m->config.width)));
    TRY_RETURN(enter_branch(w, p, feed_forward_place(n), a->dx, &dy));
    TRY_RETURN(ops->linear_activation_backward(
        m->device, &(struct linear_activation_args){ .kind = m->config.activation,
                                                     .dropout = drop,
                                                     .dup = dup,
                                                     .dup_sums = gradient_of(m, b->up_bias),
                                                     .scratch = a->dactivated,
                                                     .dweight = gradient_of(m, b->down),
                                                     .first = take_first_gradient(m, b->down),
                                                     .dbias = summed ? tensor_none()
                                                                     : gradient_of(m, b->down_bias),
                                                     .dy = dy,
                                                     .activated = l->activated,
                                                     .weight = value_of(m, b->down),
                                                     .up = l->up }));
    return leave_branch(w, feed_forward_norm(w, n), m->config.parallel ? l->x : l->middle,
                        entering_sums(m, p, b->out_bias),
                        (struct entrance){ b->up, dup, tensor_none() },
                        (struct entrance){ .weight = -1 });
}

/* From args.dy to the gradients of q, k and v as the projection gave them. Going forward, queries
 * and keys are normed, then rotated, then queries are multiplied by their factors. */
static alibi_status attention_back(struct workspace *w, const struct pass *p, int64_t n,
                                   const struct attention_args *args)
{
    struct device *dev = w->model->device;
    bool normed = w->model->config.qk_norm, scaled = w->model->blocks[n].logn >= 0;
    bool sinks = model_position(w->model, n)->sinks > 0;
    struct attention_args seen = *args;    /* with queries and keys as attention has seen them */
    struct rotation left = args->rotation; /* what attention's backward pass does not undo */
    struct logn_args scale;

    if (normed)
        TRY_RETURN(norm_heads(w, p, n, &seen));
    if (scaled) {
        scale = attention_scale(w, p, n, &seen);
        TRY_RETURN(scale_queries(w, p, n, &seen));
    }
    if (scaled || sinks)
        seen.rotation.table = tensor_none();
    else
        left.table = tensor_none();
    TRY_RETURN(dev->ops->attention_backward(dev, &seen));
    if (sinks) {
        struct sinks_args a;

        seen.rotation = args->rotation;
        a = attention_sinks(w, p, n, &seen);
        TRY_RETURN(dev->ops->sinks_backward(dev, &a));
    }
    if (scaled)
        TRY_RETURN(dev->ops->logn_backward(dev, &scale));
    if (normed)
        return norm_heads_backward(w, n, args, left);
    return rotate_heads(dev, p, args->dq, args->dk, left, -1);
}

static alibi_status attend_back(struct workspace *w, const struct pass *p, int64_t n)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    const struct block_parameters *b = &m->blocks[n];
    struct activations *a = &w->activations;
    struct layer *l = &a->layers[n];
    struct attention_args args = attention_of(w, p, n);
    bool gated = b->gate >= 0;
    struct gate_args gates = gated ? gates_of(w, p, n) : (struct gate_args){ 0 };
    int64_t H = args.q.shape[2], G = args.k.shape[2], D = args.q.shape[3];
    struct tensor dy, dbias = w->tables[pattern_kind(&m->pattern, n)].dbias;
    bool summed = entering_sums(m, p, b->out_bias).data;

    /* The output projection. */
    TRY_RETURN(enter_branch(w, p, attention_place(n), m->config.parallel ? a->dblock : a->dx, &dy));
    TRY_RETURN(ops->linear_backward(
        m->device,
        &(struct linear_args){ .dx = a->dattended,
                               .dweight = gradient_of(m, b->out),
                               .first = take_first_gradient(m, b->out),
                               .dbias = summed ? tensor_none() : gradient_of(m, b->out_bias),
                               .dy = dy,
                               .x = l->attended,
                               .weight = value_of(m, b->out) }));
    /* Attention: dq, dk and dv are in dqkv as q, k and v are in qkv. */
    args.dy = tensor_heads(a->dattended, p->B, p->L, 0, H, D);
    args.dq = tensor_heads(a->dqkv, p->B, p->L, 0, H, D);
    args.dk = tensor_heads(a->dqkv, p->B, p->L, H * D, G, D);
    args.dv = tensor_heads(a->dqkv, p->B, p->L, (H + G) * D, G, D);
    args.dbias = gated ? gates.dc : dbias.data ? dbias : tensor_none();
    TRY_RETURN(attention_back(w, p, n, &args));
    if (gated)
        TRY_RETURN(ops->gate_backward(m->device, &gates));
    /* The fused projection to queries, keys and values, and that to gates. */
    return leave_branch(w, attention_norm(w, n), l->x,
                        n > 0 ? entering_sums(m, p, m->blocks[n - 1].down_bias) : tensor_none(),
                        (struct entrance){ b->qkv, a->dqkv, gradient_of(m, b->qkv_bias) },
                        (struct entrance){ b->gate, gates.dz, tensor_none() });
}

static alibi_status embed_back(struct workspace *w, const struct pass *p)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct activations *a = &w->activations;
    bool rows = m->pattern.kind[0].method->acts_on == POSITION_EMBEDDING;
    struct tensor dy = a->dx;

    if (p->drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, a->dx, a->dx, dropout_at(p->drop, 0)));
    if (m->embedding_norm >= 0) {
        dy = a->dnorm;
        TRY_RETURN(ops->fill(m->device, dy, 0.0));
        TRY_RETURN(norm_backward(w, embedding_norm(w), dy, tensor_none(), a->dx, a->embedded,
                                 tensor_none()));
    }
    if (m->clusters > 0)
        TRY_RETURN(adaptive_embed_back(w, dy));
    else
        TRY_RETURN(begin_gradient(m, m->embedding));
    if (rows && m->positions[0] >= 0)
        TRY_RETURN(begin_gradient(m, m->positions[0]));
    return ops->embedding_backward(
        m->device, &(struct embedding_args){
                       .dweight = m->clusters > 0 ? tensor_none() : gradient_of(m, m->embedding),
                       .dtable = rows ? gradient_of(m, m->positions[0]) : tensor_none(),
                       .dy = tensor_3(dy.data, m->type, p->B, p->L, m->config.width),
                       .tokens = a->tokens,
                       .start = p->start,
                       .scale = m->config.embedding_scale });
}

alibi_status backward(struct workspace *w, const struct pass *p)
{
    int64_t last = w->model->config.layers - 1;
    struct norm_args due; /* none, in training */

    TRY_RETURN(tables_clear_gradient(w->tables, w->model));
    for (int64_t n = last; n >= 0; n--) {
        /* Recomputed blocks share their buffers, which still hold the last block. */
        if (w->settings.recompute == ALIBI_RECOMPUTE_BLOCK && n < last) {
            TRY_RETURN(enter_block(w, p, n, &due));
            TRY_RETURN(attend(w, p, n, &due));
            TRY_RETURN(widen(w, p, n, &due));
        }
        TRY_RETURN(feed_forward_back(w, p, n));
        TRY_RETURN(attend_back(w, p, n));
        if (w->settings.gradient_done)
            TRY_RETURN(w->settings.gradient_done(w->settings.user, n));
    }
    TRY_RETURN(tables_backward(w->tables, w->model));
    TRY_RETURN(embed_back(w, p));
    for (int i = 0; i < w->model->count; i++) /* clusters of the vocabulary without a token */
        TRY_RETURN(begin_gradient(w->model, i));
    return w->settings.gradient_done ? w->settings.gradient_done(w->settings.user, -1) : ALIBI_OK;
}
