/* head.c - the output layer: logits = x head^T, softmax cross-entropy
 *
 * It works on some rows at a time, so that the logits of a long input or a large vocabulary never
 * exist at once. In training the gradient of these rows is sent back before the next rows begin:
 * their logits are overwritten by their gradient. */
#include "model/walk.h"

/* Pieces of about the same size, so that the last one is not a small rest, in multiples that suit
 * the products. */
static int64_t rows(const struct model *m, int64_t tokens)
{
    enum { LEAST = 64, ALIGNED = 128 };
    int64_t most = m->device->ops->traits.logits / m->config.vocab, pieces, piece;

    if (most < LEAST)
        most = LEAST;
    if (tokens <= most)
        return tokens;
    pieces = (tokens + most - 1) / most;
    piece = (tokens + pieces - 1) / pieces;
    return piece < ALIGNED ? piece : (piece + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* Rows from.. of the input: the residual stream after the last block, normed if there is a norm. */
static struct tensor input(const struct workspace *w, int64_t from, int64_t count)
{
    const struct activations *a = &w->activations;

    return tensor_rows(w->model->norm >= 0 ? a->normed : a->x, from, count);
}

static struct tensor part(struct tensor vector, int64_t from, int64_t count)
{
    return tensor_1(tensor_at(vector, from), vector.type, count);
}

static alibi_status loss(struct workspace *w, double scale)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    const struct activations *a = &w->activations;
    int64_t total = a->B * a->L, step = a->logits.shape[0];

    for (int64_t from = 0; from < total; from += step) {
        int64_t count = total - from < step ? total - from : step;
        struct tensor logits = tensor_rows(a->logits, 0, count), x = input(w, from, count);

        TRY_RETURN(ops->linear_forward(
            m->device,
            &(struct linear_args){ .y = logits, .x = x, .weight = value_of(m, m->head) }));
        TRY_RETURN(ops->cross_entropy(
            m->device,
            &(struct cross_entropy_args){ .nll = part(a->nll, from, count),
                                          .dlogits = a->training ? logits : tensor_none(),
                                          .logits = logits,
                                          .targets = part(a->targets, from, count),
                                          .scale = scale }));
        if (a->training)
            TRY_RETURN(ops->linear_backward(
                m->device, &(struct linear_args){ .dx = tensor_rows(a->dnorm, from, count),
                                                  .dweight = gradient_of(m, m->head),
                                                  .dy = logits,
                                                  .x = x,
                                                  .weight = value_of(m, m->head) }));
    }
    return ALIBI_OK;
}

static alibi_status logits(struct workspace *w, int64_t from, int64_t count, bool decoding,
                           float *out)
{
    const struct model *m = w->model;
    int64_t end = from + count, step = w->activations.logits.shape[0];

    for (; from < end; from += step) {
        int64_t some = end - from < step ? end - from : step;
        struct tensor y = tensor_rows(w->activations.logits, 0, some);

        TRY_RETURN(m->device->ops->linear_forward(
            m->device, &(struct linear_args){ .y = y,
                                              .x = input(w, from, some),
                                              .weight = value_of(m, m->head),
                                              .decoding = decoding }));
        TRY_RETURN(m->device->ops->download(m->device, out, y));
        out += some * m->config.vocab;
    }
    return ALIBI_OK;
}

const struct head head_softmax = { "softmax", rows, loss, logits };
