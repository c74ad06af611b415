/* forward.c - the walk through the model, from tokens to the norm of the residual stream after the
 * last block
 *
 *   x = scale * embedding[token] + position row          (norm, dropout; or adaptive.c)
 *   x = x + drop(out(attention(rotate(qkv(norm1(x))))))          its weights may be dropped too;
 *                                                                gates read norm1(x) as well
 *   x = x + drop(down(drop(act(up(norm2(x))))))                  parallel: norm2 of the x above
 *
 * A branch is added to the stream by the same operation that computes the norm that follows. So a
 * block starts with its norm already computed, and ends with that of the next block. Only
 * operations touch numbers. */
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
                           struct tensor x, int weight, int bias)
{
    const struct model *m = w->model;

    return m->device->ops->linear_forward(m->device,
                                          &(struct linear_args){ .y = y,
                                                                 .x = x,
                                                                 .weight = value_of(m, weight),
                                                                 .bias = value_of(m, bias),
                                                                 .decoding = p->decoding,
                                                                 .room = w->activations.room });
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

/* sum = x + drop(branch), y = norm(sum); without a branch y = norm(x). */
static alibi_status norm_sum(struct workspace *w, struct norm norm, struct tensor y,
                             struct tensor sum, struct tensor x, struct tensor branch,
                             struct dropout drop)
{
    const struct model *m = w->model;

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

static alibi_status norm_alone(struct workspace *w, struct norm norm, struct tensor y,
                               struct tensor x)
{
    return norm_sum(w, norm, y, tensor_none(), x, tensor_none(), (struct dropout){ .p = 0 });
}

/* The end of a branch: sum = x + drop(branch), then the norm that follows, if there is one. */
static alibi_status join(struct workspace *w, const struct pass *p, int64_t place,
                         struct tensor sum, struct tensor x, struct norm following)
{
    struct device *dev = w->model->device;
    struct activations *a = &w->activations;
    struct dropout drop = dropout_at(p->drop, place);

    if (following.weight < 0)
        return dev->ops->residual_forward(dev, sum, x, a->branch, drop);
    return norm_sum(w, following, a->normed, sum, x, a->branch, drop);
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
        TRY_RETURN(norm_alone(w, embedding_norm(w), x, a->embedded));
    if (p->drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, x, x, dropout_at(p->drop, 0)));
    return ALIBI_OK;
}

alibi_status enter_block(struct workspace *w, int64_t n)
{
    return norm_alone(w, attention_norm(w, n), w->activations.normed, w->activations.layers[n].x);
}

alibi_status attend(struct workspace *w, const struct pass *p, int64_t n)
{
    const struct block_parameters *b = &w->model->blocks[n];
    struct activations *a = &w->activations;
    struct layer *l = &a->layers[n];

    TRY_RETURN(linear(w, p, l->qkv, a->normed, b->qkv, b->qkv_bias));
    if (b->gate >= 0) /* their bias is added where it is not rounded */
        TRY_RETURN(linear(w, p, gates_of(w, p, n).z, a->normed, b->gate, -1));
    TRY_RETURN(attention_run(w, p, n));
    TRY_RETURN(linear(w, p, a->branch, l->attended, b->out, b->out_bias));
    if (!w->model->config.parallel)
        return join(w, p, attention_place(n), l->middle, l->x, feed_forward_norm(w, n));
    /* The norm first: in inference middle takes the place of x. */
    TRY_RETURN(norm_alone(w, feed_forward_norm(w, n), a->normed, l->x));
    return join(w, p, attention_place(n), l->middle, l->x, (struct norm){ .weight = -1 });
}

alibi_status widen(struct workspace *w, const struct pass *p, int64_t n)
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
                                                     .room = w->activations.room });
}

static alibi_status feed_forward(struct workspace *w, const struct pass *p, int64_t n)
{
    const struct block_parameters *b = &w->model->blocks[n];
    struct activations *a = &w->activations;
    struct layer *l = &a->layers[n];
    bool last = n + 1 == w->model->config.layers;
    struct tensor sum = last ? a->x : a->layers[n + 1].x;

    TRY_RETURN(widen(w, p, n));
    TRY_RETURN(linear(w, p, a->branch, l->activated, b->down, b->down_bias));
    return join(w, p, feed_forward_place(n), sum, l->middle,
                last ? final_norm(w) : attention_norm(w, n + 1));
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

    TRY_RETURN(embed(w, p));
    TRY_RETURN(enter_block(w, 0));
    for (int64_t n = 0; n < w->model->config.layers; n++) {
        TRY_RETURN(check_stop(w, n));
        TRY_RETURN(attend(w, p, n));
        TRY_RETURN(feed_forward(w, p, n));
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
