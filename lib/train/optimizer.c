/* optimizer.c - gradients into updates, all parameters in one call
 *
 * The equations are in ops.h. Matrices decay, norms and biases do not: the flat buffers begin with
 * those that do. */
#include <math.h>

#include "train/train.h"

static alibi_status new_moments(struct model *m, void **out, size_t bytes)
{
    const struct ops *ops = m->device->ops;
    void *buffer = NULL;
    alibi_status status;

    TRY(ops->buffer_new(m->device, &buffer, bytes, "the optimizer's state"));
    TRY(ops->fill(m->device, model_flat(m, buffer), 0.0));
    *out = buffer;
    buffer = NULL;
out:
    ops->buffer_free(m->device, buffer);
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

alibi_status optimizer_init(struct optimizer *o, struct model *m, int kind)
{
    alibi_status status;
    struct optimizer made = { .model = m, .kind = kind };
    size_t bytes = model_flat_bytes(m, dtype_sums(m->type));

    if (bytes == SIZE_MAX)
        return fail(ALIBI_MEMORY, "the optimizer's state for %lld parameters does not fit",
                    (long long)m->elements);
    device_lock(m->device);
    TRY(new_moments(m, &made.first, bytes));
    if (optimizer_moments(kind) > 1)
        TRY(new_moments(m, &made.second, bytes));
    *o = made;
    made = (struct optimizer){ 0 };
out:
    optimizer_fini(&made);
    device_unlock(m->device);
    return status;
}

void optimizer_fini(struct optimizer *o)
{
    struct device *dev = o->model ? o->model->device : NULL;

    if (!dev)
        return;
    device_lock(dev);
    dev->ops->buffer_free(dev, o->first);
    dev->ops->buffer_free(dev, o->second);
    device_unlock(dev);
    *o = (struct optimizer){ 0 };
}

alibi_status optimizer_step(struct optimizer *o, const struct alibi_training *t, int64_t step,
                            double gradient_scale)
{
    struct model *m = o->model;
    struct tensor w = model_flat(m, m->values), gradient = model_flat(m, m->gradients);
    double lr = schedule_lr(t, step), previous_lr = step > 1 ? schedule_lr(t, step - 1) : lr;

    if (o->kind == ALIBI_ADAMW) {
        struct adamw_args a = { .w = w,
                                .copy = model_flat_copies(m),
                                .m = model_flat(m, o->first),
                                .v = model_flat(m, o->second),
                                .gradient = gradient,
                                .lr = lr,
                                .beta1 = t->beta1,
                                .beta2 = t->beta2,
                                .eps = t->adam_eps,
                                .weight_decay = t->weight_decay,
                                .gradient_scale = gradient_scale,
                                .step = step,
                                .decaying = m->decaying };
        TRY_RETURN(m->device->ops->adamw(m->device, &a));
        return model_limit_slopes(m);
    }
    struct nesterov_args a = { .w = w,
                               .copy = model_flat_copies(m),
                               .u = model_flat(m, o->first),
                               .gradient = gradient,
                               .lr = lr,
                               .previous_lr = previous_lr,
                               .momentum = t->momentum,
                               .weight_decay = t->weight_decay,
                               .gradient_scale = gradient_scale,
                               .decaying = m->decaying };
    TRY_RETURN(m->device->ops->nesterov(m->device, &a));
    return model_limit_slopes(m);
}

alibi_status guard_check(const struct model *m, double loss, int64_t step, double *norm)
{
    alibi_status status;
    double sum = 0;

    if (!isfinite(loss))
        return fail(ALIBI_NUMERIC, "step %lld: the loss is not finite", (long long)step);
    status = model_check_finite(m, m->gradients, "the gradient of", &sum);
    if (status != ALIBI_OK)
        return fail_context(status, "step %lld", (long long)step);
    *norm = sqrt(sum);
    return ALIBI_OK;
}

alibi_status optimizer_update(struct optimizer *o, const struct alibi_training *t, int64_t step,
                              double loss, double *norm)
{
    alibi_status status;

    device_lock(o->model->device);
    TRY(guard_check(o->model, loss, step, norm));
    TRY(optimizer_step(o, t, step, t->clip > 0 && *norm > t->clip ? t->clip / *norm : 1));
out:
    device_unlock(o->model->device);
    return status;
}
