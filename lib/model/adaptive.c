/* adaptive.c - input and output of the model in clusters of the vocabulary
 *
 * Adaptive input representations and adaptive softmax (Baevski, Auli 2019). Ids are ordered by
 * falling frequency. Those below the first cut-off are the head, cluster 0; each later cluster is a
 * tail with narrower embeddings E_k and a projection P_k to the width of the model:
 *
 *   embedding(id) = P_k E_k[id]                                       k: the cluster of id
 *   p(id) = softmax(E_0 x)[id]                                        in the head
 *   p(id) = softmax(E_0 x)[tail k] softmax(E_k P_k^T x)[id]           in tail k
 *
 * After the rows of its ids, E_0 has a row for each tail. If the model is tied, input and output
 * share E and P, except that only the embedding uses the head's P_0.
 *
 * A tail computes only the rows that have a target in it. Ids come from the host, so the host lists
 * the rows of each cluster before the pass: every size is known without asking the device, and the
 * order is that of the text. Gathering rows is an embedding whose weights are the rows. Rows are
 * scattered by gathering too, from the place where each is listed, so no two writes meet. */
#include <string.h>

#include "model/walk.h"

int64_t split_listed(const struct model *m, int64_t rows)
{
    return rows + m->clusters * (m->device->ops->traits.row_multiple - 1);
}

static int cluster_of(const struct model *m, int32_t id)
{
    int k = m->clusters - 1;

    while (k >= 0 && id < m->cluster[k].first)
        k--;
    return k;
}

/* Where the parts of the list begin, for rows whose ids are in cluster `first` or later. */
static void count_rows(const struct model *m, struct split *s, const int32_t *ids, int64_t rows,
                       int first, int64_t multiple)
{
    for (int k = 0; k < m->clusters; k++)
        s->count[k] = 0;
    for (int64_t r = 0; r < rows; r++) {
        int k = cluster_of(m, ids[r]);
        if (k >= first)
            s->count[k]++;
    }
    s->begin[0] = 0;
    for (int k = 0; k < m->clusters; k++)
        s->begin[k + 1] = s->begin[k] + (s->count[k] + multiple - 1) / multiple * multiple;
}

/* Lists the rows whose ids are in cluster `first` or later. `padding` is the id of padding. */
static alibi_status split_rows(struct workspace *w, const struct pass *p, struct split *s,
                               const int32_t *ids, int first, int32_t padding)
{
    const struct model *m = w->model;
    struct device *dev = m->device;
    int64_t rows = p->B * p->L, listed, at[CLUSTERS_MAX];
    int32_t *place, *row, *id;

    TRY_RETURN(lists_reserve(w, rows + 2 * split_listed(m, rows)));
    count_rows(m, s, ids, rows, first, p->decoding ? 1 : dev->ops->traits.row_multiple);
    memcpy(at, s->begin, sizeof at);
    listed = s->begin[m->clusters];
    place = w->lists;
    row = place + rows;
    id = row + listed;
    for (int64_t i = 0; i < listed; i++) {
        row[i] = 0;
        id[i] = padding;
    }
    for (int64_t r = 0; r < rows; r++) {
        int k = cluster_of(m, ids[r]);
        int64_t i = k >= first ? at[k]++ : listed;
        place[r] = (int32_t)i;
        if (i < listed) {
            row[i] = (int32_t)r;
            id[i] = ids[r] - (int32_t)m->cluster[k].first;
        }
    }
    s->place = vector_part(s->lists, 0, rows);
    s->row = vector_part(s->lists, rows, listed);
    s->id = vector_part(s->lists, rows + listed, listed);
    return dev->ops->upload(dev, vector_part(s->lists, 0, rows + 2 * listed), w->lists);
}

/* The part of a list that belongs to cluster k, and of a buffer of listed rows, if the rows have
 * `width` numbers. */
static struct tensor ids_of(const struct split *s, int k)
{
    return vector_part(s->id, s->begin[k], s->begin[k + 1] - s->begin[k]);
}

static struct tensor rows_of(const struct split *s, int k, struct tensor buffer)
{
    return tensor_rows(buffer, s->begin[k], s->begin[k + 1] - s->begin[k]);
}

static struct tensor first_rows(struct tensor buffer, int64_t rows, int64_t width)
{
    return tensor_2(buffer.data, buffer.type, rows, width);
}

/* ---- the embedding */

/* The rows of E_k that cluster k's tokens need. */
static alibi_status look_up(struct workspace *w, int k, struct tensor *rows)
{
    const struct split *s = &w->activations.adaptive.input;
    const struct cluster *c = &w->model->cluster[k];

    *rows = first_rows(w->activations.adaptive.embedded, s->begin[k + 1] - s->begin[k], c->width);
    return rows_gather(w->model, *rows, value_of(w->model, c->embedding), ids_of(s, k), 1.0);
}

alibi_status adaptive_embed(struct workspace *w, const struct pass *p, const int32_t *tokens)
{
    const struct model *m = w->model;
    struct adaptive *a = &w->activations.adaptive;
    struct split *s = &a->input;

    TRY_RETURN(split_rows(w, p, s, tokens, 0, 0));
    for (int k = 0; k < m->clusters; k++) {
        struct tensor rows;

        if (s->count[k] == 0)
            continue;
        TRY_RETURN(look_up(w, k, &rows));
        TRY_RETURN(m->device->ops->linear_forward(
            m->device, &(struct linear_args){ .y = rows_of(s, k, a->projected),
                                              .x = rows,
                                              .weight = value_of(m, m->cluster[k].projection),
                                              .decoding = p->decoding }));
    }
    return embed_rows(w, p, tensor_2(s->place.data, DTYPE_I32, p->B, p->L),
                      tensor_rows(a->projected, 0, s->begin[m->clusters]));
}

alibi_status adaptive_embed_back(struct workspace *w, struct tensor dy)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct adaptive *a = &w->activations.adaptive;
    const struct split *s = &a->input;

    TRY_RETURN(rows_gather(m, tensor_rows(a->projected, 0, s->begin[m->clusters]), dy, s->row,
                           m->config.embedding_scale));
    for (int k = 0; k < m->clusters; k++) {
        const struct cluster *c = &m->cluster[k];
        int64_t end = s->begin[k] + s->count[k];
        struct tensor rows, drows;

        if (s->count[k] == 0)
            continue;
        /* Padding gathered a row that is not its own. */
        TRY_RETURN(ops->fill(m->device, tensor_rows(a->projected, end, s->begin[k + 1] - end), 0));
        TRY_RETURN(look_up(w, k, &rows));
        drows = first_rows(a->dembedded, rows.shape[0], c->width);
        TRY_RETURN(ops->linear_backward(
            m->device, &(struct linear_args){ .dx = drows,
                                              .dweight = gradient_of(m, c->projection),
                                              .first = take_first_gradient(m, c->projection),
                                              .dy = rows_of(s, k, a->projected),
                                              .x = rows,
                                              .weight = value_of(m, c->projection) }));
        TRY_RETURN(begin_gradient(m, c->embedding));
        TRY_RETURN(ops->embedding_backward(
            m->device, &(struct embedding_args){
                           .dweight = gradient_of(m, c->embedding),
                           .dy = tensor_3(drows.data, m->type, 1, rows.shape[0], c->width),
                           .tokens = tensor_2(ids_of(s, k).data, DTYPE_I32, 1, rows.shape[0]),
                           .scale = 1.0 }));
    }
    return ALIBI_OK;
}

/* ---- the output layer */

static int64_t scratch(const struct model *m, int64_t tokens)
{
    int64_t most = 0;

    for (int k = 0; k < m->clusters; k++) {
        int head = m->cluster[k].head;
        int64_t rows = model_head_rows(m, head, k > 0 ? split_listed(m, tokens) : tokens);
        int64_t elements = rows * m->parameters[head].rows;
        most = elements > most ? elements : most;
    }
    return most;
}

/* The head's target is the id, or the row of its tail. */
static alibi_status targets(struct workspace *w, const struct pass *p, const int32_t *ids)
{
    const struct model *m = w->model;
    struct adaptive *a = &w->activations.adaptive;

    w->listed = -1;
    TRY_RETURN(split_rows(w, p, &a->output, ids, 1, -1));
    for (int64_t r = 0; r < p->B * p->L; r++) {
        int k = cluster_of(m, ids[r]);
        w->lists[r] = k > 0 ? (int32_t)m->cluster[0].count + k - 1 : ids[r];
    }
    return m->device->ops->upload(m->device, a->head_targets, w->lists);
}

static struct tensor as_view(struct tensor row)
{
    return tensor_heads(row, 1, 1, 0, 1, row.shape[1]);
}

/* hidden = x P. The projection is [C, width], as the embedding needs it, so this is its product
 * with a gradient, dx = dy weight. The order of its sums may depend on the number of rows and on
 * their alignment. So in decoding each row is a product of its own, always in the same place. */
static alibi_status project(struct workspace *w, struct tensor hidden, struct tensor x,
                            int projection, bool decoding)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct tensor gathered = w->activations.adaptive.gathered;
    struct linear_args all = { .dx = hidden, .dy = x, .weight = value_of(m, projection) };
    struct linear_args one = { .dx = first_rows(tensor_rows(gathered, 1, 1), 1, hidden.shape[1]),
                               .dy = tensor_rows(gathered, 0, 1),
                               .weight = all.weight };

    if (!decoding)
        return ops->linear_backward(m->device, &all);
    for (int64_t r = 0; r < x.shape[0]; r++) {
        struct tensor to = as_view(tensor_rows(hidden, r, 1));

        TRY_RETURN(ops->copy(m->device, as_view(one.dy), as_view(tensor_rows(x, r, 1))));
        TRY_RETURN(ops->linear_backward(m->device, &one));
        TRY_RETURN(ops->copy(m->device, to, as_view(one.dx)));
    }
    return ALIBI_OK;
}

/* The losses of tail k's rows, and in training their gradients in place of the rows. */
static alibi_status tail_loss(struct workspace *w, const struct pass *p, int k, double scale)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    const struct cluster *c = &m->cluster[k];
    struct adaptive *a = &w->activations.adaptive;
    const struct split *s = &a->output;
    struct tensor x = rows_of(s, k, a->gathered);
    struct tensor hidden = first_rows(a->hidden, x.shape[0], c->width);
    struct tensor dhidden = first_rows(a->dhidden, x.shape[0], c->width);
    struct dropout drop = dropout_within(w, p, w->settings.tail_dropout, tail_place(k));
    bool training = w->activations.training;

    TRY_RETURN(project(w, hidden, x, c->head_projection, false));
    if (drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, hidden, hidden, drop));
    TRY_RETURN(softmax_loss(
        w,
        &(struct softmax_layer){ .x = hidden,
                                 .dx = dhidden,
                                 .weight = c->head,
                                 .classes = c->count,
                                 .targets = ids_of(s, k),
                                 .nll = vector_part(a->tail_nll, s->begin[k], x.shape[0]) },
        scale));
    if (!training)
        return ALIBI_OK;
    if (drop.p > 0)
        TRY_RETURN(ops->dropout(m->device, dhidden, dhidden, drop));
    /* hidden = x P: dP += x^T dhidden, dx = dhidden P^T */
    TRY_RETURN(ops->linear_backward(
        m->device, &(struct linear_args){ .dweight = gradient_of(m, c->head_projection),
                                          .first = take_first_gradient(m, c->head_projection),
                                          .dy = x,
                                          .x = dhidden,
                                          .weight = value_of(m, c->head_projection) }));
    return ops->linear_forward(
        m->device,
        &(struct linear_args){ .y = x, .x = dhidden, .weight = value_of(m, c->head_projection) });
}

/* The tails' losses and gradients join the head's: nll = head_nll + tail_nll[place], and
 * dnorm += gathered[place]. A row that is in no tail finds a 0. */
static alibi_status join_tails(struct workspace *w, int64_t rows)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct activations *x = &w->activations;
    struct adaptive *a = &x->adaptive;
    int64_t listed = a->output.begin[m->clusters];
    enum dtype S = a->tail_nll.type;

    TRY_RETURN(ops->fill(m->device, vector_part(a->tail_nll, listed, 1), 0.0));
    TRY_RETURN(ops->embedding_forward(
        m->device,
        &(struct embedding_args){ .y = tensor_3(x->nll.data, S, 1, rows, 1),
                                  .tokens = tensor_2(a->output.place.data, DTYPE_I32, 1, rows),
                                  .weight = tensor_2(a->tail_nll.data, S, listed + 1, 1),
                                  .table = tensor_2(a->head_nll.data, S, rows, 1),
                                  .scale = 1.0 }));
    if (!x->training)
        return ALIBI_OK;
    TRY_RETURN(ops->fill(m->device, tensor_rows(a->gathered, listed, 1), 0.0));
    TRY_RETURN(
        rows_gather(m, x->dx, tensor_rows(a->gathered, 0, listed + 1), a->output.place, 1.0));
    return ops->residual_forward(m->device, x->dnorm, x->dnorm, x->dx, (struct dropout){ 0 });
}

static alibi_status loss(struct workspace *w, const struct pass *p, double scale)
{
    const struct model *m = w->model;
    struct activations *x = &w->activations;
    struct adaptive *a = &x->adaptive;
    int64_t rows = p->B * p->L;

    TRY_RETURN(
        softmax_loss(w,
                     &(struct softmax_layer){ .x = head_input(w, 0, rows),
                                              .dx = x->dnorm,
                                              .weight = m->head,
                                              .classes = m->cluster[0].count + m->clusters - 1,
                                              .targets = a->head_targets,
                                              .nll = a->head_nll },
                     scale));
    TRY_RETURN(rows_gather(m, tensor_rows(a->gathered, 0, a->output.begin[m->clusters]),
                           head_input(w, 0, rows), a->output.row, 1.0));
    for (int k = 1; k < m->clusters; k++)
        if (a->output.count[k] > 0)
            TRY_RETURN(tail_loss(w, p, k, scale));
    return join_tails(w, rows);
}

/* ---- log-probabilities of the whole vocabulary */

/* Columns from..from+count-1 of a matrix, as a view. */
static struct tensor columns_of(struct tensor t, int64_t from, int64_t count)
{
    return tensor_heads(t, 1, t.shape[0], from, 1, count);
}

/* y = log softmax of the first columns of (x weight^T) + shift */
static alibi_status log_softmax(struct workspace *w, struct tensor y, struct tensor x, int weight,
                                struct tensor shift, bool decoding)
{
    const struct model *m = w->model;
    struct tensor value = value_of(m, weight);
    struct tensor logits =
        tensor_2(w->activations.logits.data, m->type, x.shape[0], value.shape[0]);

    TRY_RETURN(m->device->ops->linear_forward(
        m->device,
        &(struct linear_args){ .y = logits, .x = x, .weight = value, .decoding = decoding }));
    return m->device->ops->log_softmax(
        m->device, &(struct log_softmax_args){ .y = y, .logits = logits, .shift = shift });
}

static alibi_status log_probabilities(struct workspace *w, struct tensor x, bool decoding)
{
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct adaptive *a = &w->activations.adaptive;
    int64_t rows = x.shape[0], head = m->cluster[0].count;
    struct tensor all = tensor_rows(a->logp, 0, rows), first = tensor_rows(a->head_logp, 0, rows);

    TRY_RETURN(
        log_softmax(w, columns_of(first, 0, first.shape[1]), x, m->head, tensor_none(), decoding));
    TRY_RETURN(ops->copy(m->device, columns_of(all, 0, head), columns_of(first, 0, head)));
    for (int k = 1; k < m->clusters; k++) {
        const struct cluster *c = &m->cluster[k];
        struct tensor hidden = first_rows(a->hidden, rows, c->width);

        TRY_RETURN(project(w, hidden, x, c->head_projection, decoding));
        TRY_RETURN(log_softmax(w, columns_of(all, c->first, c->count), hidden, c->head,
                               columns_of(first, head + k - 1, 1), decoding));
    }
    return ALIBI_OK;
}

static alibi_status logits(struct workspace *w, struct tensor x, int64_t from, int64_t count,
                           bool decoding, float *out)
{
    const struct model *m = w->model;
    const struct adaptive *a = &w->activations.adaptive;
    int64_t end = from + count, step = a->logp.shape[0];

    for (int k = 0; k < m->clusters; k++) {
        int64_t most = w->activations.logits.shape[0] / m->parameters[m->cluster[k].head].rows;
        step = step < most ? step : most;
    }
    for (; from < end; from += step) {
        int64_t some = end - from < step ? end - from : step;

        TRY_RETURN(log_probabilities(w, tensor_rows(x, from, some), decoding));
        TRY_RETURN(m->device->ops->download(m->device, out, tensor_rows(a->logp, 0, some)));
        out += some * m->config.vocab;
    }
    return ALIBI_OK;
}

const struct head head_adaptive = { "adaptive softmax", scratch, targets, loss, logits };
