/* head.c - the output layer: logits = x head^T, softmax cross-entropy
 *
 * It works on some rows at a time, so that the logits of a long input or a large vocabulary never
 * exist at once. In training the gradient of these rows is sent back before the next rows begin:
 * their logits are overwritten by their gradient. */
#include "model/walk.h"

/* Pieces of about the same size, so that the last one is not a small rest, in multiples that suit
 * the products. */
int64_t model_head_rows(const struct model *m, int weight, int64_t rows)
{
    enum { LEAST = 64, ALIGNED = 128 };
    int64_t most = m->device->ops->traits.logits / m->parameters[weight].rows, pieces, piece;

    if (most < LEAST)
        most = LEAST;
    if (rows <= most)
        return rows;
    pieces = (rows + most - 1) / most;
    piece = (rows + pieces - 1) / pieces;
    return piece < ALIGNED ? piece : (piece + ALIGNED - 1) / ALIGNED * ALIGNED;
}

struct tensor head_input(const struct workspace *w, int64_t from, int64_t count)
{
    const struct activations *a = &w->activations;

    return tensor_rows(w->model->norm >= 0 ? a->normed : a->x, from, count);
}

alibi_status softmax_loss(struct workspace *w, const struct softmax_layer *s, double scale)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    bool training = w->activations.training;
    struct tensor weight = value_of(m, s->weight);
    int64_t total = s->x.shape[0], columns = weight.shape[0];
    int64_t step = model_head_rows(m, s->weight, total),
            most = w->activations.logits.shape[0] / columns;

    step = step < most ? step : most;
    for (int64_t from = 0; from < total; from += step) {
        int64_t count = total - from < step ? total - from : step;
        struct tensor x = tensor_rows(s->x, from, count);
        struct tensor logits = tensor_2(w->activations.logits.data, m->type, count, columns);

        TRY_RETURN(ops->linear_forward(
            m->device, &(struct linear_args){ .y = logits, .x = x, .weight = weight }));
        TRY_RETURN(ops->cross_entropy(
            m->device,
            &(struct cross_entropy_args){ .nll = vector_part(s->nll, from, count),
                                          .dlogits = training ? logits : tensor_none(),
                                          .logits = logits,
                                          .targets = vector_part(s->targets, from, count),
                                          .classes = s->classes,
                                          .scale = scale }));
        if (training)
            TRY_RETURN(ops->linear_backward(
                m->device, &(struct linear_args){ .dx = tensor_rows(s->dx, from, count),
                                                  .dweight = gradient_of(m, s->weight),
                                                  .first = takes_first_gradient(m, s->weight),
                                                  .dy = logits,
                                                  .x = x,
                                                  .weight = weight }));
    }
    return ALIBI_OK;
}

/* ---- one softmax over the whole vocabulary */

static int64_t scratch(const struct model *m, int64_t tokens)
{
    return model_head_rows(m, m->head, tokens) * m->config.vocab;
}

static alibi_status targets(struct workspace *w, const struct pass *p, const int32_t *ids)
{
    (void)p;
    return w->model->device->ops->upload(w->model->device, w->activations.targets, ids);
}

static alibi_status loss(struct workspace *w, const struct pass *p, double scale)
{
    const struct activations *a = &w->activations;

    return softmax_loss(w,
                        &(struct softmax_layer){ .x = head_input(w, 0, p->B * p->L),
                                                 .dx = a->dnorm,
                                                 .weight = w->model->head,
                                                 .classes = w->model->config.vocab,
                                                 .targets = a->targets,
                                                 .nll = a->nll },
                        scale);
}

static alibi_status logits(struct workspace *w, int64_t from, int64_t count, bool decoding,
                           float *out)
{
    const struct model *m = w->model;
    int64_t end = from + count, V = m->config.vocab;
    int64_t step = w->activations.logits.shape[0] / V;

    for (; from < end; from += step) {
        int64_t some = end - from < step ? end - from : step;
        struct tensor y = tensor_2(w->activations.logits.data, m->type, some, V);

        TRY_RETURN(m->device->ops->linear_forward(
            m->device, &(struct linear_args){ .y = y,
                                              .x = head_input(w, from, some),
                                              .weight = value_of(m, m->head),
                                              .decoding = decoding,
                                              .room = from == 0 ? w->activations.room : 0 }));
        TRY_RETURN(m->device->ops->download(m->device, out, y));
        out += some * V;
    }
    return ALIBI_OK;
}

const struct head head_softmax = { "softmax", scratch, targets, loss, logits };
