/* passes.c - whole passes: loss, gradients, logits, and decoding with a cache
 *
 * Each checks its input before it computes, and holds the device's lock while it runs: on a GPU one
 * pass at a time, on the CPU as many as there are threads, each with its own workspace. */
#include "model/walk.h"

int64_t model_longest(const struct model *m)
{
    const struct position *first = &m->pattern.kind[0]; /* embeddings have one method */

    return first->method->longest ? first->method->longest(first) : INT64_MAX;
}

alibi_status model_check_length(const struct model *m, int64_t length)
{
    int64_t longest = model_longest(m);

    if (length < 1)
        return fail(ALIBI_USAGE, "length %lld: at least 1 token is needed", (long long)length);
    if (length > longest)
        return fail(
            ALIBI_BAD_INPUT,
            "length %lld: position method '%s' ends at %lld, where its table of vectors ends",
            (long long)length, m->pattern.kind[0].method->name, (long long)longest);
    return ALIBI_OK;
}

static alibi_status check_ids(const struct model *m, const int32_t *ids, int64_t count,
                              int32_t least, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < least || ids[i] >= m->config.vocab)
            return fail(ALIBI_BAD_INPUT, "%s %d at %lld is outside the vocabulary of %lld", what,
                        ids[i], (long long)i, (long long)m->config.vocab);
    return ALIBI_OK;
}

/* Before the walk: the input is checked, the buffers are there, and the targets, if any, are on the
 * device. */
static alibi_status begin(struct workspace *w, const struct pass *p, const int32_t *tokens,
                          const int32_t *targets, bool training)
{
    const struct model *m = w->model;

    TRY_RETURN(model_check_length(m, p->start + p->L));
    TRY_RETURN(activations_reserve(w, p->B, p->L, training));
    TRY_RETURN(check_ids(m, tokens, p->B * p->L, 0, "token"));
    w->decoding = p->decoding;
    if (!targets)
        return ALIBI_OK;
    TRY_RETURN(check_ids(m, targets, p->B * p->L, -1, "target"));
    return m->head_kind->targets(w, p, targets);
}

static alibi_status forward_loss(struct workspace *w, const struct pass *p, const int32_t *tokens,
                                 const int32_t *targets, float *nll)
{
    alibi_status status;
    const struct model *m = w->model;

    TRY_RETURN(begin(w, p, tokens, targets, false));
    TRY_RETURN(statistics_begin(w, p));
    TRY(forward(w, p, tokens));
    TRY(m->head_kind->loss(w, p, 0.0));
    TRY(head_losses(w, nll));
out:
    return statistics_end(w, status);
}

alibi_status model_loss(struct workspace *w, const int32_t *tokens, const int32_t *targets,
                        int64_t B, int64_t L, float *nll)
{
    alibi_status status;

    device_lock(w->model->device);
    status = forward_loss(w, &(struct pass){ .B = B, .L = L }, tokens, targets, nll);
    device_unlock(w->model->device);
    return status;
}

alibi_status model_loss_part(struct workspace *w, const int32_t *tokens, const int32_t *targets,
                             int64_t start, int64_t L, float *nll)
{
    alibi_status status = ALIBI_OK;
    const struct pass p = { .B = 1, .L = L, .start = start };

    device_lock(w->model->device);
    if (L > 0)
        status = forward_loss(w, &p, tokens, targets, nll);
    for (int64_t n = 0; L == 0 && n < w->model->config.layers && status == ALIBI_OK; n++)
        status = attention_idle(w, n);
    device_unlock(w->model->device);
    return status;
}

/* dnorm, the gradient of the output layer's input, becomes dx, that of the residual stream. */
static alibi_status leave_head(struct workspace *w, const struct pass *p)
{
    const struct model *m = w->model;
    struct activations *a = &w->activations;
    struct tensor from = tensor_heads(a->dnorm, p->B, p->L, 0, 1, m->config.width);
    struct tensor to = tensor_heads(a->dx, p->B, p->L, 0, 1, m->config.width);

    if (m->norm < 0)
        return m->device->ops->copy(m->device, to, from);
    TRY_RETURN(m->device->ops->fill(m->device, a->dx, 0.0));
    return norm_backward(w, final_norm(w), a->dx, tensor_none(), a->dnorm, a->x,
                         entering_sums(m, p, m->blocks[m->config.layers - 1].down_bias));
}

alibi_status model_gradients(struct workspace *w, const int32_t *tokens, const int32_t *targets,
                             int64_t B, int64_t L, double scale, struct dropout drop,
                             double *loss_sum)
{
    alibi_status status;
    const struct model *m = w->model;
    struct pass p = { .B = B, .L = L, .drop = drop };

    device_lock(m->device);
    TRY(begin(w, &p, tokens, targets, true));
    TRY(forward(w, &p, tokens));
    TRY(m->head_kind->loss(w, &p, scale));
    TRY(leave_head(w, &p));
    TRY(backward(w, &p));
    TRY(m->device->ops->sum(m->device, loss_sum, w->activations.nll));
out:
    device_unlock(m->device);
    return status;
}

alibi_status model_logits(struct workspace *w, const int32_t *tokens, int64_t B, int64_t L,
                          float *logits)
{
    alibi_status status;
    struct pass p = { .B = B, .L = L };

    device_lock(w->model->device);
    TRY(begin(w, &p, tokens, NULL, false));
    TRY(forward(w, &p, tokens));
    TRY(w->model->head_kind->logits(w, head_input(w, 0, B * L), 0, B * L, false, logits));
out:
    device_unlock(w->model->device);
    return status;
}

/* ---- decoding: passes that continue a cache */

/* A single token is computed like a row of a step. Its last bits may still differ: attention on a
 * GPU finds its key in the cache here, and in a step takes it from the pass. */
static struct pass pass_of(struct cache *c, int64_t slot, int64_t L)
{
    return (struct pass){
        .B = 1, .L = L, .start = cache_length(c, slot), .cache = c, .slot = slot, .decoding = L == 1
    };
}

alibi_status model_extend(struct workspace *w, struct cache *c, int64_t slot, const int32_t *tokens,
                          int64_t L)
{
    alibi_status status;
    struct pass p = pass_of(c, slot, L);

    device_lock(w->model->device);
    TRY(begin(w, &p, tokens, NULL, false));
    TRY(cache_reserve(c, slot, p.start + L));
    TRY(forward(w, &p, tokens));
    cache_advance(c, slot, L);
out:
    device_unlock(w->model->device);
    return status;
}

alibi_status model_extend_loss(struct workspace *w, struct cache *c, int64_t slot,
                               const int32_t *tokens, const int32_t *targets, int64_t L, float *nll)
{
    alibi_status status;
    struct pass p = pass_of(c, slot, L);

    device_lock(w->model->device);
    TRY(model_check_length(w->model, p.start + L));
    TRY(cache_reserve(c, slot, p.start + L));
    TRY(forward_loss(w, &p, tokens, targets, nll));
    cache_advance(c, slot, L);
out:
    device_unlock(w->model->device);
    return status;
}

alibi_status model_step(struct workspace *w, struct cache *c, const int32_t *slots,
                        const int32_t *tokens, int64_t count)
{
    alibi_status status;
    const struct model *m = w->model;
    const struct ops *ops = m->device->ops;
    struct pass p = { .B = count, .L = 1, .cache = c, .slots = slots, .decoding = true };
    int stores = cache_stores(c);
    int32_t *step = NULL, *lengths;

    device_lock(m->device);
    TRY(NEW_ARRAY(&step, (3 + 2 * stores) * count, "the lengths of sequences"));
    lengths = step + 2 * count;
    for (int64_t b = 0; b < count; b++) {
        int64_t length = cache_length(c, slots[b]) + 1;

        TRY(cache_reserve(c, slots[b], length));
        step[b] = tokens[b];
        step[count + b] = slots[b];
        lengths[b] = (int32_t)length;
        p.start = length - 1 > p.start ? length - 1 : p.start;
    }
    for (int64_t b = 0; b < count; b++) /* when no store grows any more */
        for (int i = 0; i < stores; i++) {
            lengths[(1 + i) * count + b] = (int32_t)cache_row(c, i, lengths[b] - 1) + 1;
            lengths[(1 + stores + i) * count + b] =
                (int32_t)cache_other_row(c, i, lengths[b] - 1) + 1;
        }
    TRY(begin(w, &p, tokens, NULL, false));
    TRY(ops->upload(m->device, vector_part(w->activations.step, 0, (3 + 2 * stores) * count),
                    step));
    p.lengths = lengths;
    p.ragged =
        (struct ragged){ w->activations.slots, vector_part(w->activations.lengths, 0, count) };
    TRY(forward(w, &p, tokens));
    for (int64_t b = 0; b < count; b++)
        cache_advance(c, slots[b], 1);
out:
    device_unlock(m->device);
    mem_free(step);
    return status;
}

alibi_status model_read_logits(struct workspace *w, int64_t from, int64_t count, float *logits)
{
    alibi_status status;

    device_lock(w->model->device);
    status = w->model->head_kind->logits(w, head_input(w, 0, from + count), from, count,
                                         w->decoding || count == 1, logits);
    device_unlock(w->model->device);
    return status;
}

/* Rows are not padded to a multiple here, as those of losses are: they are answers of tasks, of
 * which a window has as many as any other of its task and length. So the shapes are few. */
alibi_status model_read_listed(struct workspace *w, const int32_t *list, int64_t count,
                               float *logits)
{
    alibi_status status;
    struct tensor rows;

    device_lock(w->model->device);
    TRY(head_gather(w, list, count, &rows));
    TRY(w->model->head_kind->logits(w, rows, 0, count, false, logits));
out:
    device_unlock(w->model->device);
    return status;
}
