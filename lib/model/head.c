/* head.c - the output layer: logits = x head^T, softmax cross-entropy
 *
 * It works on a few rows at a time, so that the logits of a long input or a large vocabulary never
 * exist all at once. In training the gradient of these rows is propagated back before the next rows
 * begin: their logits are overwritten by their gradient.
 *
 * Without training, rows that have no target need no logits: a probe asks for the loss of some
 * tokens at the end of its windows. If such rows are at least half of a pass, the others are listed
 * and gathered. */
#include "model/walk.h"

enum { TILE_ROWS = 128, TILE_COLUMNS = 256 }; /* of device_traits.wave */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Equal pieces, so that the last one is not a small rest, in multiples that suit the products. */
static int64_t piece_rows(int64_t rows, int64_t pieces)
{
    int64_t piece = ceil_div(rows, pieces);

    return piece < TILE_ROWS ? piece : ceil_div(piece, TILE_ROWS) * TILE_ROWS;
}

/* The cost of pieces of that many rows, in waves of dx = dy weight. A GPU computes `wave` tiles of
 * results at once, and the last wave of a product takes as long as a full one. The other two
 * products have so many tiles that this does not matter there. Each piece also reads and writes the
 * gradient of the weights: on an H200 the time of a wave per TRAFFIC columns. */
static double cost_of(int64_t wave, int64_t rows, int64_t piece, int64_t columns)
{
    static const double TRAFFIC = 6400;
    int64_t across = ceil_div(columns, TILE_COLUMNS), pieces = ceil_div(rows, piece);
    int64_t last = rows - (pieces - 1) * piece;
    int64_t waves = (pieces - 1) * ceil_div(ceil_div(piece, TILE_ROWS) * across, wave) +
                    ceil_div(ceil_div(last, TILE_ROWS) * across, wave);

    return (double)waves + (double)(pieces * columns) / TRAFFIC;
}

int64_t model_head_rows(const struct model *m, int weight, int64_t rows)
{
    enum { LEAST = 64 };
    const struct device_traits *t = &m->device->ops->traits;
    int64_t most = t->logits / m->parameters[weight].rows, columns = m->parameters[weight].shape[1];
    int64_t fewest, best;

    if (most < LEAST)
        most = LEAST;
    if (rows <= most)
        return rows;
    fewest = ceil_div(rows, most);
    best = piece_rows(rows, fewest);
    for (int64_t pieces = fewest + 1; t->wave > 0 && pieces <= 2 * fewest; pieces++) {
        int64_t piece = piece_rows(rows, pieces);

        if (cost_of(t->wave, rows, piece, columns) < cost_of(t->wave, rows, best, columns))
            best = piece;
    }
    return best;
}

struct tensor head_input(const struct workspace *w, int64_t from, int64_t count)
{
    const struct activations *a = &w->activations;

    return tensor_rows(w->model->norm >= 0 ? a->normed : a->x, from, count);
}

alibi_status rows_gather(const struct model *m, struct tensor y, struct tensor x,
                         struct tensor index, double scale)
{
    int64_t n = y.shape[0];

    return m->device->ops->embedding_forward(
        m->device, &(struct embedding_args){ .y = tensor_3(y.data, y.type, 1, n, y.shape[1]),
                                             .tokens = tensor_2(index.data, DTYPE_I32, 1, n),
                                             .weight = x,
                                             .scale = scale });
}

alibi_status head_gather(struct workspace *w, const int32_t *list, int64_t count,
                         struct tensor *rows)
{
    const struct model *m = w->model;
    const struct activations *a = &w->activations;
    struct tensor index = tensor_1(a->tokens.data, DTYPE_I32, count);

    TRY_RETURN(m->device->ops->upload(m->device, index, list));
    *rows = tensor_rows(a->branch, 0, count);
    return rows_gather(m, *rows, head_input(w, 0, a->B * a->L), index, 1.0);
}

alibi_status head_losses(struct workspace *w, float *nll)
{
    struct device *dev = w->model->device;
    const struct activations *a = &w->activations;
    int64_t i = w->listed - 1;

    if (w->listed < 0)
        return dev->ops->download(dev, nll, a->nll);
    TRY_RETURN(dev->ops->download(dev, nll, vector_part(a->nll, 0, w->listed)));
    for (int64_t r = a->B * a->L - 1; r >= 0; r--) /* no row is before its place in the list */
        nll[r] = i >= 0 && w->lists[i] == r ? nll[i--] : 0;
    return ALIBI_OK;
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
                                                  .first = take_first_gradient(m, s->weight),
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

/* Rows of a product for `listed` listed ones. The others are row 0, without a target. */
static int64_t padded(const struct model *m, int64_t listed)
{
    int64_t multiple = m->device->ops->traits.row_multiple;

    return ceil_div(listed, multiple) * multiple;
}

static alibi_status targets(struct workspace *w, const struct pass *p, const int32_t *ids)
{
    const struct model *m = w->model;
    const struct activations *a = &w->activations;
    int64_t rows = p->B * p->L, listed = 0, all;
    int32_t *list, *wanted;

    w->listed = -1;
    if (a->training)
        return m->device->ops->upload(m->device, a->targets, ids);
    for (int64_t r = 0; r < rows; r++)
        listed += ids[r] >= 0;
    all = padded(m, listed);
    if (2 * all > rows)
        return m->device->ops->upload(m->device, a->targets, ids);
    TRY_RETURN(lists_reserve(w, 2 * all));
    list = w->lists;
    wanted = list + all;
    for (int64_t r = 0, i = 0; i < listed; r++)
        if (ids[r] >= 0) {
            list[i] = (int32_t)r;
            wanted[i++] = ids[r];
        }
    for (int64_t i = listed; i < all; i++) {
        list[i] = 0;
        wanted[i] = -1;
    }
    w->listed = listed;
    return m->device->ops->upload(m->device, vector_part(a->targets, 0, all), wanted);
}

static alibi_status loss(struct workspace *w, const struct pass *p, double scale)
{
    const struct activations *a = &w->activations;
    int64_t rows = w->listed < 0 ? p->B * p->L : padded(w->model, w->listed);
    struct tensor x = head_input(w, 0, rows);

    if (w->listed >= 0)
        TRY_RETURN(head_gather(w, w->lists, rows, &x));
    return softmax_loss(w,
                        &(struct softmax_layer){ .x = x,
                                                 .dx = a->dnorm,
                                                 .weight = w->model->head,
                                                 .classes = w->model->config.vocab,
                                                 .targets = vector_part(a->targets, 0, rows),
                                                 .nll = vector_part(a->nll, 0, rows) },
                        scale);
}

static alibi_status logits(struct workspace *w, struct tensor x, int64_t from, int64_t count,
                           bool decoding, float *out)
{
    const struct model *m = w->model;
    int64_t end = from + count, V = m->config.vocab;
    int64_t step = w->activations.logits.shape[0] / V;

    for (; from < end; from += step) {
        int64_t some = end - from < step ? end - from : step;
        struct tensor y = tensor_2(w->activations.logits.data, m->type, some, V);

        TRY_RETURN(m->device->ops->linear_forward(
            m->device, &(struct linear_args){ .y = y,
                                              .x = tensor_rows(x, from, some),
                                              .weight = value_of(m, m->head),
                                              .decoding = decoding,
                                              .room = from == 0 ? w->activations.room : 0 }));
        TRY_RETURN(m->device->ops->download(m->device, out, y));
        out += some * V;
    }
    return ALIBI_OK;
}

const struct head head_softmax = { "softmax", scratch, targets, loss, logits };
