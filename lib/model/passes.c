/* passes.c - whole passes: loss, gradients, logits
 *
 * The output layer works on some rows at a time, so that the logits of a long input or a large
 * vocabulary never exist at once; in training their gradient is sent back before the next rows are
 * begun. */
#include "model/walk.h"

static bool token_in_range(int64_t token, int64_t least, int64_t vocab)
{
    return token >= least && token < vocab;
}

static alibi_status check_tokens(const struct model *m, const int32_t *tokens,
                                 const int32_t *targets, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!token_in_range(tokens[i], 0, m->config.vocab))
            return fail(ALIBI_BAD_INPUT, "token %d at %lld is outside the vocabulary of %lld",
                        tokens[i], (long long)i, (long long)m->config.vocab);
        if (targets && !token_in_range(targets[i], -1, m->config.vocab))
            return fail(ALIBI_BAD_INPUT, "target %d at %lld is outside the vocabulary of %lld",
                        targets[i], (long long)i, (long long)m->config.vocab);
    }
    return ALIBI_OK;
}

int64_t model_longest(const struct model *m)
{
    return m->method->longest ? m->method->longest(&m->config) : INT64_MAX;
}

alibi_status model_check_length(const struct model *m, int64_t length)
{
    int64_t longest = model_longest(m);

    if (length < 1)
        return fail(ALIBI_USAGE, "length %lld: at least 1 token is needed", (long long)length);
    if (length > longest)
        return fail(
            ALIBI_BAD_INPUT,
            "length %lld: position method '%s' ends at %lld, it has no vectors past its table",
            (long long)length, m->method->name, (long long)longest);
    return ALIBI_OK;
}

/* Everything before the walk: the input is checked, the buffers are there. */
static alibi_status begin(struct model *m, const int32_t *tokens, const int32_t *targets,
                          const struct pass *p, bool training)
{
    TRY_RETURN(model_check_length(m, p->L));
    TRY_RETURN(activations_reserve(m, p->B, p->L, training));
    return check_tokens(m, tokens, targets, p->B * p->L);
}

/* What the output layer reads: the residual stream after the last block, behind its norm. */
static struct tensor head_input(const struct model *m)
{
    return m->norm >= 0 ? m->activations->normed : m->activations->x;
}

static struct tensor part(struct tensor vector, int64_t from, int64_t count)
{
    return tensor_1(tensor_at(vector, from), vector.type, count);
}

/* One piece of the output layer: logits, loss and, in training, the gradient down to dnorm. */
static alibi_status head_piece(struct model *m, int64_t from, int64_t count, double scale)
{
    struct activations *x = m->activations;
    const struct ops *ops = m->device->ops;
    struct tensor logits = tensor_rows(x->logits, 0, count),
                  input = tensor_rows(head_input(m), from, count);
    struct tensor dlogits = x->training ? logits : tensor_none();

    TRY_RETURN(ops->linear_forward(
        m->device,
        &(struct linear_args){ .y = logits, .x = input, .weight = value_of(m, m->head) }));
    TRY_RETURN(ops->cross_entropy(
        m->device, &(struct cross_entropy_args){ .nll = part(x->nll, from, count),
                                                 .dlogits = dlogits,
                                                 .logits = logits,
                                                 .targets = part(x->targets, from, count),
                                                 .scale = scale }));
    if (!x->training)
        return ALIBI_OK;
    return ops->linear_backward(m->device,
                                &(struct linear_args){ .dx = tensor_rows(x->dnorm, from, count),
                                                       .dweight = gradient_of(m, m->head),
                                                       .dy = logits,
                                                       .x = input,
                                                       .weight = value_of(m, m->head) });
}

static alibi_status head_loss(struct model *m, const int32_t *targets, double scale)
{
    struct activations *x = m->activations;
    int64_t rows = x->B * x->L, step = x->logits.shape[0];

    TRY_RETURN(m->device->ops->upload(m->device, x->targets, targets));
    for (int64_t from = 0; from < rows; from += step)
        TRY_RETURN(head_piece(m, from, rows - from < step ? rows - from : step, scale));
    return ALIBI_OK;
}

/* dnorm, the gradient of the output layer's input, becomes dx, that of the residual stream. */
static alibi_status leave_head(struct model *m, const struct pass *p)
{
    struct activations *x = m->activations;
    struct tensor from = tensor_heads(x->dnorm, p->B, p->L, 0, 1, m->config.width);
    struct tensor to = tensor_heads(x->dx, p->B, p->L, 0, 1, m->config.width);

    if (m->norm < 0)
        return m->device->ops->copy(m->device, to, from);
    TRY_RETURN(m->device->ops->fill(m->device, x->dx, 0.0));
    return norm_backward(m, final_norm(m), x->dx, tensor_none(), x->dnorm, x->x);
}

alibi_status model_loss(struct model *m, const int32_t *tokens, const int32_t *targets, int64_t B,
                        int64_t L, float *nll)
{
    struct pass p = { .B = B, .L = L };

    TRY_RETURN(begin(m, tokens, targets, &p, false));
    TRY_RETURN(forward(m, &p, tokens));
    TRY_RETURN(head_loss(m, targets, 0.0));
    return m->device->ops->download(m->device, nll, m->activations->nll);
}

alibi_status model_gradients(struct model *m, const int32_t *tokens, const int32_t *targets,
                             int64_t B, int64_t L, double scale, struct dropout drop,
                             double *loss_sum)
{
    struct pass p = { .B = B, .L = L, .drop = drop };

    TRY_RETURN(begin(m, tokens, targets, &p, true));
    TRY_RETURN(forward(m, &p, tokens));
    TRY_RETURN(head_loss(m, targets, scale));
    TRY_RETURN(leave_head(m, &p));
    TRY_RETURN(backward(m, &p));
    return m->device->ops->sum(m->device, loss_sum, m->activations->nll);
}

alibi_status model_logits(struct model *m, const int32_t *tokens, int64_t B, int64_t L,
                          float *logits)
{
    struct pass p = { .B = B, .L = L };
    struct activations *x;
    int64_t step;

    TRY_RETURN(begin(m, tokens, NULL, &p, false));
    TRY_RETURN(forward(m, &p, tokens));
    x = m->activations;
    step = x->logits.shape[0];
    for (int64_t from = 0; from < B * L; from += step) {
        int64_t count = B * L - from < step ? B * L - from : step;
        struct tensor piece = tensor_rows(x->logits, 0, count);
        TRY_RETURN(m->device->ops->linear_forward(
            m->device, &(struct linear_args){ .y = piece,
                                              .x = tensor_rows(head_input(m), from, count),
                                              .weight = value_of(m, m->head) }));
        TRY_RETURN(m->device->ops->download(m->device, logits + from * m->config.vocab, piece));
    }
    return ALIBI_OK;
}

/* ---- decoding: one more pass behind the cache */

/* The last position of each row, gathered, through the output layer. */
static alibi_status last_logits(struct model *m, const struct pass *p, float *logits)
{
    struct activations *x = m->activations;
    const struct ops *ops = m->device->ops;
    int64_t C = m->config.width;
    struct tensor from = tensor_heads(head_input(m), p->B, p->L, 0, 1, C);
    struct tensor out = tensor_rows(x->logits, 0, 1);

    from.data = tensor_at(from, (p->L - 1) * C);
    from.shape[1] = 1;
    TRY_RETURN(ops->copy(m->device, tensor_heads(x->last, p->B, 1, 0, 1, C), from));
    for (int64_t b = 0; b < p->B; b++) {
        TRY_RETURN(ops->linear_forward(m->device,
                                       &(struct linear_args){ .y = out,
                                                              .x = tensor_rows(x->last, b, 1),
                                                              .weight = value_of(m, m->head) }));
        TRY_RETURN(ops->download(m->device, logits + b * m->config.vocab, out));
    }
    return ALIBI_OK;
}

static alibi_status forward_behind(struct model *m, const struct pass *p, const int32_t *tokens,
                                   const int32_t *targets)
{
    TRY_RETURN(begin(m, tokens, targets, p, false));
    TRY_RETURN(model_check_length(m, p->start + p->L));
    TRY_RETURN(cache_reserve(p->cache, p->start + p->L));
    return forward(m, p, tokens);
}

alibi_status model_extend(struct model *m, struct cache *c, const int32_t *tokens, int64_t L,
                          float *logits)
{
    struct pass p = { .B = cache_rows(c), .L = L, .start = cache_length(c), .cache = c };

    TRY_RETURN(forward_behind(m, &p, tokens, NULL));
    if (logits)
        TRY_RETURN(last_logits(m, &p, logits));
    cache_advance(c, L);
    return ALIBI_OK;
}

alibi_status model_extend_loss(struct model *m, struct cache *c, const int32_t *tokens,
                               const int32_t *targets, int64_t L, float *nll)
{
    struct pass p = { .B = cache_rows(c), .L = L, .start = cache_length(c), .cache = c };

    TRY_RETURN(forward_behind(m, &p, tokens, targets));
    TRY_RETURN(head_loss(m, targets, 0.0));
    TRY_RETURN(m->device->ops->download(m->device, nll, m->activations->nll));
    cache_advance(c, L);
    return ALIBI_OK;
}
