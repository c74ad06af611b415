/* forward.c - the walk through the model, from tokens to the norm of the residual stream after the
 * last block
 *
 *   x = scale * embedding[token] + position row          (norm, dropout; or adaptive.c)
 *   x = x + drop(out(attention(rotate(qkv(norm1(x))))))          its weights may be dropped too;
 *                                                                gates read norm1(x) as well
 *   x = x + drop(down(drop(act(up(norm2(x))))))                  parallel: norm2 of the x above
 *
 * A branch is added to the stream by the same operation that computes the norm that follows. So a
 * block starts with its norm already computed, and ends with that of the next block. In decoding,
 * where operations are so small that their number counts, both are part of the operation of the
 * linear layer that follows. Only operations touch numbers. */
#include "model/walk.h"

/* Another seed per place, so that the caller's streams need not leave room for ours. */
struct dropout dropout_at(struct dropout drop, int64_t place)
{
    drop.seed += (uint64_t)place * 0x9e3779b97f4a7c15u;
    return drop;
}

struct dropout dropout_within(const struct workspace *w, const struct pass *pass, double p,
                              int64_t place)
{
    struct dropout drop = dropout_at(pass->drop, place);

    drop.p = w->activations.training ? p : 0.0;
    return drop;
}

static alibi_status linear(struct workspace *w, const struct pass *p, struct tensor y,
                           struct tensor x, int weight, int bias, const struct norm_args *norm)
{
    const struct model *m = w->model;

    return m->device->ops->linear_forward(m->device,
                                          &(struct linear_args){ .y = y,
                                                                 .x = x,
                                                                 .weight = value_of(m, weight),
                                                                 .bias = value_of(m, bias),
                                                                 .decoding = p->decoding,
                                                                 .room = w->activations.room,
                                                                 .norm = norm });
}

/* ---- norms */

struct norm embedding_norm(const struct workspace *w)
{
    const struct activations *a = &w->activations;

    return (struct norm){ w->model->embedding_norm, w->model->embedding_norm_bias, a->embedded_mean,
                          a->embedded_rstd };
}

struct norm attention_norm(const struct workspace *w, int64_t n)
{
    const struct block_parameters *b = &w->model->blocks[n];
    const struct layer *l = &w->activations.layers[n];

    return (struct norm){ b->norm1, b->norm1_bias, l->mean1, l->rstd1 };
}

struct norm feed_forward_norm(const struct workspace *w, int64_t n)
{
    const struct block_parameters *b = &w->model->blocks[n];
    const struct layer *l = &w->activations.layers[n];

    return (struct norm){ b->norm2, b->norm2_bias, l->mean2, l->rstd2 };
}

struct norm final_norm(const struct workspace *w)
{
    const struct activations *a = &w->activations;

    return (struct norm){ w->model->norm, w->model->norm_bias, a->mean, a->rstd };
}

struct norm_args norm_of(const struct workspace *w, struct norm norm, struct tensor y,
                         struct tensor x)
{
    const struct model *m = w->model;

    return (struct norm_args){ .kind = m->config.norm,
                               .y = y,
                               .mean = norm.mean,
                               .rstd = norm.rstd,
                               .x = x,
                               .weight = value_of(m, norm.weight),
                               .bias = value_of(m, norm.bias),
                               .eps = m->config.norm_eps };
}

static alibi_status run_norm(struct workspace *w, struct norm_args args)
{
    return w->model->device->ops->norm_forward(w->model->device, &args);
}

/* A norm that a linear layer follows: runs it, or in decoding leaves it to that layer. */
static alibi_status norm_before_linear(struct workspace *w, const struct pass *p,
                                       struct norm_args args, struct norm_args *due)
{
    *due = p->decoding ? args : (struct norm_args){ .x = tensor_none() };
    return p->decoding ? ALIBI_OK : run_norm(w, args);
}

static const struct norm_args *if_due(const struct norm_args *due)
{
    return due->x.data ? due : NULL;
}

/* The end of a branch: sum = x + drop(branch). */
static alibi_status add_branch(struct workspace *w, const struct pass *p, int64_t place,
                               struct tensor sum, struct tensor x)
{
    struct device *dev = w->model->device;

    return dev->ops->residual_forward(dev, sum, x, w->activations.branch,
                                      dropout_at(p->drop, place));
}

/* The same with the norm that follows, of sum. */
static struct norm_args norm_of_sum(const struct workspace *w, const struct pass *p, int64_t place,
                                    struct tensor sum, struct tensor x, struct norm norm)
{
    struct norm_args args = norm_of(w, norm, w->activations.normed, x);

    args.sum = sum;
    args.branch = w->activations.branch;
    args.dropout = dropout_at(p->drop, place);
    return args;
}

/* ---- the parts of a pass */

alibi_status embed_rows(struct workspace *w, const struct pass *p, struct tensor tokens,
                        struct tensor weight)
{
    const struct model *m = w->model;
    const struct position_method *method = m->pattern.kind[0].method;
    bool rows = method->acts_on == POSITION_EMBEDDING, of_pass = rows && method->row;
    bool step = of_pass && ragged_present(p->ragged); /* its rows are like those of a sequence */
    int64_t B = step ? 1 : p->B, L = step ? p->B : p->L;

    return m->device->ops->embedding_forward(
        m->device, &(struct embedding_args){
                       .y = tensor_3(w->activations.embedded.data, m->type, B, L, m->config.width),
                       .tokens = tensor_2(tokens.data, DTYPE_I32, B, L),
                       .weight = weight,
                       .table = rows ? w->tables[0].rows : tensor_none(),
                       .start = of_pass ? 0 : p->start,
                       .ragged = of_pass ? ragged_none() : p->ragged,
                       .scale = m->config.embedding_scale });
}

static alibi_status embed(struct workspace *w, const struct pass *p)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct activations *a = &w->activations;
    struct tensor x = a->layers[0].x;

    if (m->clusters == 0)
        TRY_RETURN(embed_rows(w, p, a->tokens, value_of(m, m->embedding)));
    if (m->embedding_norm >= 0)
        TRY_RETURN(run_norm(w, norm_of(w, embedding_norm(w), x, a->embedded)));
    if (p->drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, x, x, dropout_at(p->drop, 0)));
    return ALIBI_OK;
}

alibi_status enter_block(struct workspace *w, const struct pass *p, int64_t n,
                         struct norm_args *due)
{
    struct activations *a = &w->activations;

    return norm_before_linear(w, p, norm_of(w, attention_norm(w, n), a->normed, a->layers[n].x),
                              due);
}

alibi_status attend(struct workspace *w, const struct pass *p, int64_t n, struct norm_args *due)
{
    const struct block_parameters *b = &w->model->blocks[n];
    struct activations *a = &w->activations;
    struct layer *l = &a->layers[n];

    TRY_RETURN(linear(w, p, l->qkv, a->normed, b->qkv, b->qkv_bias, if_due(due)));
    if (b->gate >= 0) /* their bias is added where it is not rounded */
        TRY_RETURN(linear(w, p, gates_of(w, p, n).z, a->normed, b->gate, -1, NULL));
    TRY_RETURN(attention_run(w, p, n));
    TRY_RETURN(linear(w, p, a->branch, l->attended, b->out, b->out_bias, NULL));
    if (!w->model->config.parallel)
        return norm_before_linear(
            w, p, norm_of_sum(w, p, attention_place(n), l->middle, l->x, feed_forward_norm(w, n)),
            due);
    /* The norm first: in inference middle may take the place of x. */
    *due = (struct norm_args){ .x = tensor_none() };
    TRY_RETURN(run_norm(w, norm_of(w, feed_forward_norm(w, n), a->normed, l->x)));
    return add_branch(w, p, attention_place(n), l->middle, l->x);
}

alibi_status widen(struct workspace *w, const struct pass *p, int64_t n, struct norm_args *due)
{
    const struct model *m = w->model;
    const struct block_parameters *b = &m->blocks[n];
    struct layer *l = &w->activations.layers[n];
    struct dropout drop = dropout_within(w, p, w->settings.activation_dropout, activated_place(n));

    return m->device->ops->linear_activation_forward(
        m->device, &(struct linear_activation_args){ .kind = m->config.activation,
                                                     .dropout = drop,
                                                     .activated = l->activated,
                                                     .up = l->up,
                                                     .x = w->activations.normed,
                                                     .weight = value_of(m, b->up),
                                                     .bias = value_of(m, b->up_bias),
                                                     .decoding = p->decoding,
                                                     .room = w->activations.room,
                                                     .norm = if_due(due) });
}

static alibi_status feed_forward(struct workspace *w, const struct pass *p, int64_t n,
                                 struct norm_args *due)
{
    const struct block_parameters *b = &w->model->blocks[n];
    struct activations *a = &w->activations;
    struct layer *l = &a->layers[n];
    bool last = n + 1 == w->model->config.layers;
    int64_t place = feed_forward_place(n);

    TRY_RETURN(widen(w, p, n, due));
    TRY_RETURN(linear(w, p, a->branch, l->activated, b->down, b->down_bias, NULL));
    if (!last)
        return norm_before_linear(
            w, p, norm_of_sum(w, p, place, a->layers[n + 1].x, l->middle, attention_norm(w, n + 1)),
            due);
    if (w->model->norm < 0)
        return add_branch(w, p, place, a->x, l->middle);
    return run_norm(w, norm_of_sum(w, p, place, a->x, l->middle, final_norm(w)));
}

alibi_status check_stop(const struct workspace *w, int64_t n)
{
    if (!alibi_stop_requested(w->settings.stop) && !alibi_stop_requested(w->settings.cancel))
        return ALIBI_OK;
    return fail(ALIBI_INTERRUPTED, "stopped in layer %lld of a pass", (long long)n);
}

static alibi_status walk(struct workspace *w, const struct pass *p)
{
    const struct pass_settings *s = &w->settings;
    struct norm_args due;

    TRY_RETURN(embed(w, p));
    TRY_RETURN(enter_block(w, p, 0, &due));
    for (int64_t n = 0; n < w->model->config.layers; n++) {
        TRY_RETURN(check_stop(w, n));
        TRY_RETURN(attend(w, p, n, &due));
        TRY_RETURN(feed_forward(w, p, n, &due));
        if (s->layer_done)
            s->layer_done(s->user, n + 1);
    }
    return ALIBI_OK;
}

/* ---- steps of decoding, recorded */

/* Whether a step is the same work as the one before: not if the host takes part in it. */
static bool repeats(const struct workspace *w, const struct pass *p)
{
    const struct model *m = w->model;

    if (!m->device->ops->replay || !p->slots || m->clusters > 0 || w->settings.record ||
        w->settings.layer_done)
        return false;
    for (int64_t n = 0; n < m->config.layers; n++) {
        bool ring_of_gates = m->blocks[n].gate >= 0 && cache_window(p->cache, n) > 0;

        if (ring_of_gates || cache_score_limit(p->cache, n) > 0)
            return false;
        for (int64_t b = 0; b < p->B; b++)
            if (p->lengths[b] <= model_position(m, n)->sinks)
                return false;
    }
    return true;
}

static alibi_status walk_again(struct workspace *w, const struct pass *p)
{
    struct device *dev = w->model->device;
    enum replay how;
    alibi_status status;

    TRY_RETURN(dev->ops->replay(dev, (struct work_key){ w, p->cache, p->B }, &how));
    if (how == REPLAY_DONE)
        return ALIBI_OK;
    status = walk(w, p);
    if (how == REPLAY_RECORD) {
        TRY_RETURN(dev->ops->replay_end(dev, status, &how));
        if (how == REPLAY_NONE)
            status = walk(w, p);
    }
    return status;
}

alibi_status forward(struct workspace *w, const struct pass *p, const int32_t *tokens)
{
    const struct model *m = w->model;

    TRY_RETURN(tables_prepare(w, p));
    if (m->clusters > 0)
        TRY_RETURN(adaptive_embed(w, p, tokens));
    else if (!p->slots) /* a ragged pass has uploaded them */
        TRY_RETURN(m->device->ops->upload(m->device, w->activations.tokens, tokens));
    return repeats(w, p) ? walk_again(w, p) : walk(w, p);
}
