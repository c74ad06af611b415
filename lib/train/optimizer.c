/* optimizer.c - gradients into updates, all parameters in one call
 *
 * The equations are in ops.h. Matrices decay, norms and biases do not: the flat buffers begin with
 * those that do. With several ranks, each updates its shard: it has only the moments of that part,
 * sums the gradients of all ranks there, and gets the other weights from the other ranks. Where
 * passes read copies of the masters, it has also only the masters of its shard, and gets copies. */
#include <math.h>

#include "train/train.h"

/* A buffer for numbers of the shard, all 0. */
static alibi_status new_part(struct optimizer *o, void **out, int64_t count, const char *what)
{
    struct device *dev = o->model->device;
    enum dtype type = dtype_sums(o->model->type);
    void *buffer = NULL;
    size_t bytes;
    alibi_status status;

    count = count > 0 ? count : 1;
    if (!size_multiply(&bytes, (size_t)count, dtype_bytes(type)))
        return fail(ALIBI_MEMORY, "%s for %lld parameters does not fit", what,
                    (long long)o->model->elements);
    TRY(dev->ops->buffer_new(dev, &buffer, bytes, what));
    TRY(dev->ops->fill(dev, tensor_1(buffer, type, count), 0.0));
    *out = buffer;
    buffer = NULL;
out:
    dev->ops->buffer_free(dev, buffer);
    return status;
}

int optimizer_moments(int kind)
{
    return kind == ALIBI_ADAMW ? 2 : 1;
}

double checkpoint_bytes(int64_t parameters, int optimizer)
{
    return 4.0 * (double)parameters * (1 + optimizer_moments(optimizer));
}

alibi_status optimizer_init(struct optimizer *o, struct model *m, int kind, alibi_comm *comm)
{
    alibi_status status;
    struct optimizer made = {
        .model = m, .comm = comm, .kind = kind, .shard = comm_shard(comm, m->span, m->span)
    };

    device_lock(m->device);
    TRY(new_part(&made, &made.first, made.shard, "the optimizer's state"));
    if (optimizer_moments(kind) > 1)
        TRY(new_part(&made, &made.second, made.shard, "the optimizer's state"));
    if (m->absent > 0)
        TRY(new_part(&made, &made.masters, comm_shard(comm, m->span, m->absent), "the weights"));
    *o = made;
    made = (struct optimizer){ 0 };
out:
    optimizer_fini(&made);
    device_unlock(m->device);
    return status;
}

alibi_status optimizer_connect(struct optimizer *o, const struct alibi_training *t,
                               const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;
    bool exchanged = gradients_exchanged(t, comm_size(o->comm));

    o->ordered = t->deterministic_sum;
    o->unsent = o->model->config.layers;
    device_lock(o->model->device);
    if (exchanged)
        TRY(channel_new(&o->channel, o->comm, o->model->device,
                        t->wire == ALIBI_WIRE_BF16 ? DTYPE_BF16 : DTYPE_F32, t->comm, call));
    if (exchanged || (o->ordered && t->accumulate > 1))
        TRY(new_part(o, &o->sums, o->shard, "the sum of gradients"));
out:
    device_unlock(o->model->device);
    return status;
}

void optimizer_fini(struct optimizer *o)
{
    struct device *dev = o->model ? o->model->device : NULL;

    if (!dev)
        return;
    device_lock(dev);
    channel_free(o->channel); /* first: it may still add to the sums */
    dev->ops->buffer_free(dev, o->first);
    dev->ops->buffer_free(dev, o->second);
    dev->ops->buffer_free(dev, o->masters);
    dev->ops->buffer_free(dev, o->sums);
    device_unlock(dev);
    *o = (struct optimizer){ 0 };
}

/* ---- gradients of several passes and ranks */

/* A buffer of the shard as a tensor. */
static struct tensor part(const struct optimizer *o, void *buffer)
{
    return tensor_1(buffer, dtype_sums(o->model->type), o->shard);
}

/* Where the gradients of the shard are that a step applies. Without sums the shard is everything.
 */
static struct tensor gradient_of_shard(const struct optimizer *o)
{
    return o->sums ? part(o, o->sums) : model_flat(o->model, o->model->gradients);
}

alibi_status optimizer_begin(struct optimizer *o, bool first, bool collected)
{
    struct device *dev = o->model->device;
    alibi_status status = ALIBI_OK;

    o->sends = collected && o->channel;
    o->fresh |= first;
    device_lock(dev);
    if (o->sums && first && !o->channel)
        status = dev->ops->fill(dev, gradient_of_shard(o), 0.0);
    device_unlock(dev);
    return status;
}

/* The numbers from..end-1 of the flat buffers, of all ranks, into the sums of their shards. */
static alibi_status reduce(struct optimizer *o, int64_t from, int64_t end)
{
    struct range where = { from, end - from };

    return channel_reduce(o->channel, gradient_of_shard(o), o->fresh, o->model->span,
                          model_gradient_part(o->model, from, end - from), where);
}

/* Sends a layer, together with those above it that were not sent yet. */
static alibi_status send_layer(struct optimizer *o, int64_t layer)
{
    enum { ENOUGH = 1 << 20 }; /* numbers: an exchange of fewer costs more than it hides */
    struct model *m = o->model;
    int64_t from = model_layer_offset(m, layer), end = model_layer_offset(m, o->unsent);

    if (m->slot == 0 && end - from < ENOUGH)
        return ALIBI_OK;
    TRY_RETURN(reduce(o, from, end));
    o->unsent = layer;
    if (m->slot == 0)
        return ALIBI_OK;
    /* Between matrices are gaps, in other places in other layers: they must be 0. */
    TRY_RETURN(channel_release(o->channel));
    return m->device->ops->fill(m->device, model_gradient_part(m, from, m->slot), 0);
}

/* Sends what was not sent yet: at the end of a pass, or when a pass has failed, because the others
 * wait for it, whatever its numbers are. First the layers, in the order of the backward pass. */
static alibi_status send_rest(struct optimizer *o)
{
    struct model *m = o->model;
    int64_t layers = m->config.layers;

    for (int64_t layer = o->unsent; layer-- > 0;)
        TRY_RETURN(send_layer(o, layer));
    if (o->unsent < layers) {
        TRY_RETURN(reduce(o, 0, model_layer_offset(m, o->unsent)));
        TRY_RETURN(reduce(o, model_layer_offset(m, layers), m->span));
    } else {
        TRY_RETURN(reduce(o, 0, m->span));
    }
    o->unsent = layers;
    o->sent = true;
    return ALIBI_OK;
}

/* The rest is queued before the host reads the loss, which waits for the backward pass: otherwise
 * the GPU would have nothing to do while these exchanges are queued. */
alibi_status optimizer_send_layer(void *optimizer, int64_t layer)
{
    struct optimizer *o = optimizer;

    if (!o->sends)
        return ALIBI_OK;
    return layer < 0 ? send_rest(o) : send_layer(o, layer);
}

alibi_status optimizer_collect(struct optimizer *o, alibi_status status)
{
    struct model *m = o->model;
    struct tensor sum = gradient_of_shard(o);
    struct failure failure;

    device_lock(m->device);
    if (o->channel) {
        failure_keep(&failure, status);
        if (!o->sent)
            TRY(send_rest(o));
        o->sent = o->fresh = false;
        TRY(channel_settle(o->channel));
        TRY(comm_agree(o->comm, failure_raise(&failure)));
    } else if (status == ALIBI_OK && o->sums) {
        TRY(m->device->ops->residual_forward(m->device, sum, sum, model_flat(m, m->gradients),
                                             (struct dropout){ 0 }));
    }
out:
    device_unlock(m->device);
    return status;
}

/* The sums of squares of the rank's gradients, and which is not finite: one sum, or one for each
 * block, whose values do not depend on the number of ranks. */
static alibi_status square_sums(const struct optimizer *o, double sums[COMM_BLOCKS])
{
    static const char what[] = "the gradient of";
    struct model *m = o->model;
    struct tensor gradient = gradient_of_shard(o);
    double *all = &sums[comm_rank(o->comm)];
    struct range b;

    if (!o->ordered && !o->channel)
        return model_check_finite(m, gradient, 0, what, all);
    if (!o->ordered) { /* one call; only if there is something to find, one for each stretch */
        TRY_RETURN(m->device->ops->sum_squares(m->device, all, gradient));
        if (isfinite(*all))
            return ALIBI_OK;
    }
    for (int i = 0; i < COMM_BLOCKS; i++) {
        int64_t from = comm_shard(o->comm, m->span, (b = comm_block(m->span, i)).first);
        if (b.count > 0 && comm_shard(o->comm, m->span, b.first + b.count) > from)
            TRY_RETURN(model_check_finite(m, vector_part(gradient, from, b.count), b.first, what,
                                          &sums[i]));
    }
    return o->ordered ? ALIBI_OK
                      : fail(ALIBI_NUMERIC, "%s all tensors: the sum of squares overflows", what);
}

alibi_status guard_check(const struct optimizer *o, double loss, int64_t step, double *norm)
{
    double sums[COMM_BLOCKS] = { 0 }, sum = 0;
    alibi_status status;

    if (!isfinite(loss))
        status = fail(ALIBI_NUMERIC, "step %lld: the loss is not finite", (long long)step);
    else if ((status = square_sums(o, sums)) != ALIBI_OK)
        fail_context(status, "step %lld", (long long)step);
    TRY_RETURN(comm_agree(o->comm, status));
    TRY_RETURN(comm_sum(o->comm, sums, COMM_BLOCKS));
    for (int i = 0; i < COMM_BLOCKS; i++)
        sum += sums[i];
    *norm = sqrt(sum);
    return ALIBI_OK;
}

/* ---- the update */

/* The part of a buffer, or an absent one. */
static struct tensor part_of(struct tensor vector, int64_t from, int64_t count)
{
    return vector.data ? vector_part(vector, from, count) : vector;
}

/* The masters of the shard that the model does not have. */
static struct tensor own_masters(const struct optimizer *o)
{
    const struct model *m = o->model;

    return tensor_1(o->masters, dtype_sums(m->type), comm_shard(o->comm, m->span, m->absent));
}

/* From number `at` of the shard on, numbers that follow each other in the flat buffers, and whose
 * masters do. */
static struct range stretch_at(const struct optimizer *o, int64_t at)
{
    struct range s = comm_stretch(o->comm, o->model->span, at);
    int64_t absent = o->model->absent;

    if (s.first < absent && s.first + s.count > absent)
        s.count = absent - s.first;
    return s;
}

/* The numbers `s` of the flat buffers, which are those from `at` on of the shard. */
static alibi_status apply(struct optimizer *o, const struct alibi_training *t, int64_t step,
                          double gradient_scale, struct range s, int64_t at)
{
    struct model *m = o->model;
    struct tensor w = s.first < m->absent
                          ? vector_part(own_masters(o), at, s.count)
                          : vector_part(model_masters(m), s.first - m->absent, s.count);
    struct tensor copy = part_of(model_flat_copies(m), s.first, s.count);
    struct tensor gradient = part_of(gradient_of_shard(o), at, s.count);
    struct tensor first = part_of(part(o, o->first), at, s.count);
    double lr = schedule_lr(t, step), previous_lr = step > 1 ? schedule_lr(t, step - 1) : lr;
    int64_t decaying = m->decaying > s.first ? m->decaying - s.first : 0;

    if (o->kind == ALIBI_ADAMW) {
        struct adamw_args a = { .w = w,
                                .copy = copy,
                                .m = first,
                                .v = part_of(part(o, o->second), at, s.count),
                                .gradient = gradient,
                                .lr = lr,
                                .beta1 = t->beta1,
                                .beta2 = t->beta2,
                                .eps = t->adam_eps,
                                .weight_decay = t->weight_decay,
                                .gradient_scale = gradient_scale,
                                .step = step,
                                .decaying = decaying };
        return m->device->ops->adamw(m->device, &a);
    }
    struct nesterov_args a = { .w = w,
                               .copy = copy,
                               .u = first,
                               .gradient = gradient,
                               .lr = lr,
                               .previous_lr = previous_lr,
                               .momentum = t->momentum,
                               .weight_decay = t->weight_decay,
                               .gradient_scale = gradient_scale,
                               .decaying = decaying };
    return m->device->ops->nesterov(m->device, &a);
}

/* All ranks get the copies of those masters that are in shards. */
static alibi_status gather_copies(struct optimizer *o)
{
    const struct model *m = o->model;

    if (m->absent == 0)
        return ALIBI_OK;
    return channel_all_gather(o->channel, m->span, vector_part(model_flat_copies(m), 0, m->absent),
                              0);
}

alibi_status optimizer_step(struct optimizer *o, const struct alibi_training *t, int64_t step,
                            double gradient_scale)
{
    struct model *m = o->model;
    struct range s;

    for (int64_t at = 0; at < o->shard; at += s.count) {
        s = stretch_at(o, at);
        TRY_RETURN(apply(o, t, step, gradient_scale, s, at));
    }
    if (comm_size(o->comm) > 1) {
        TRY_RETURN(gather_copies(o));
        TRY_RETURN(channel_all_gather(o->channel, m->span, model_masters(m), m->absent));
        TRY_RETURN(model_refresh(m));
    }
    return model_limit_slopes(m);
}

alibi_status optimizer_update(struct optimizer *o, const struct alibi_training *t, int64_t step,
                              double loss, double *norm)
{
    alibi_status status;

    device_lock(o->model->device);
    TRY(guard_check(o, loss, step, norm));
    TRY(optimizer_step(o, t, step, t->clip > 0 && *norm > t->clip ? t->clip / *norm : 1));
out:
    device_unlock(o->model->device);
    return status;
}

/* ---- shards of several ranks */

static struct tensor shard_of(const struct optimizer *o, enum sharded which)
{
    return which == SHARD_MASTERS ? own_masters(o)
                                  : part(o, which == SHARD_FIRST ? o->first : o->second);
}

/* A request of rank 0 to the others; count 0: nothing more. */
struct request {
    enum sharded shard;
    int64_t from, count;
};

static alibi_status answer(struct optimizer *o, struct request q, float *values)
{
    alibi_status status;

    device_lock(o->model->device);
    status =
        channel_gather(o->channel, shard_of(o, q.shard), o->model->span, q.from, q.count, values);
    device_unlock(o->model->device);
    return status;
}

alibi_status optimizer_fetch(void *optimizer, enum sharded shard, int64_t from, int64_t count,
                             float *values)
{
    struct optimizer *o = optimizer;
    struct request q = { shard, from, count };

    TRY_RETURN(comm_broadcast(o->comm, &q, sizeof q));
    return answer(o, q, values);
}

alibi_status optimizer_serve(struct optimizer *o)
{
    struct request q;

    for (;;) {
        TRY_RETURN(comm_broadcast(o->comm, &q, sizeof q));
        if (q.count == 0)
            return ALIBI_OK;
        TRY_RETURN(answer(o, q, NULL));
    }
}

alibi_status optimizer_served(struct optimizer *o)
{
    struct request q = { 0 };

    return comm_broadcast(o->comm, &q, sizeof q);
}

/* The copies of the shard's masters. */
static alibi_status copy_masters(struct optimizer *o)
{
    struct model *m = o->model;
    struct tensor masters = own_masters(o), copies = model_flat_copies(m);
    int64_t count = tensor_count(masters);
    struct range s;

    for (int64_t at = 0; at < count; at += s.count) {
        s = stretch_at(o, at);
        TRY_RETURN(m->device->ops->copy(
            m->device, tensor_4(tensor_at(copies, s.first), copies.type, 1, 1, 1, s.count),
            tensor_4(tensor_at(masters, at), masters.type, 1, 1, 1, s.count)));
    }
    return ALIBI_OK;
}

alibi_status optimizer_set_weights(struct optimizer *o, const float *values)
{
    struct model *m = o->model;
    alibi_status status;

    device_lock(m->device);
    if (m->absent > 0) {
        TRY(channel_scatter(o->channel, own_masters(o), m->span, values));
        TRY(copy_masters(o));
        TRY(gather_copies(o));
    }
    TRY(channel_broadcast(o->channel, model_masters(m), values ? values + m->absent : NULL));
    TRY(model_refresh(m));
out:
    device_unlock(m->device);
    return status;
}

alibi_status optimizer_set_moment(struct optimizer *o, enum sharded moment, const float *values)
{
    alibi_status status;

    device_lock(o->model->device);
    status = channel_scatter(o->channel, shard_of(o, moment), o->model->span, values);
    device_unlock(o->model->device);
    return status;
}
