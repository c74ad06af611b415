/* optimizer.c - gradients into updates, tensor by tensor
 *
 * The equations are in ops.h. Matrices decay, norms and biases do not: the table of parameters says which. */
#include "train/train.h"

static alibi_status new_moments(struct model *m, void **out, size_t bytes)
{
    const struct ops *ops = m->device->ops;
    void *buffer = NULL;
    alibi_status status;

    TRY(ops->buffer_new(m->device, &buffer, bytes, "the optimizer's state"));
    TRY(ops->fill(m->device, tensor_1(buffer, m->type, m->elements), 0.0));
    *out = buffer;
    buffer = NULL;
out:
    ops->buffer_free(m->device, buffer);
    return status;
}

alibi_status optimizer_init(struct optimizer *o, struct model *m, int kind)
{
    alibi_status status;
    struct optimizer made = { .model = m, .kind = kind };
    size_t bytes;

    if (!size_multiply(&bytes, (size_t)m->elements, dtype_bytes(m->type)))
        return fail(ALIBI_MEMORY, "the optimizer's state for %lld parameters does not fit", (long long)m->elements);
    TRY(new_moments(m, &made.first, bytes));
    if (kind == ALIBI_ADAMW)
        TRY(new_moments(m, &made.second, bytes));
    *o = made;
    made = (struct optimizer){ 0 };
out:
    optimizer_fini(&made);
    return status;
}

void optimizer_fini(struct optimizer *o)
{
    if (!o->model)
        return;
    o->model->device->ops->buffer_free(o->model->device, o->first);
    o->model->device->ops->buffer_free(o->model->device, o->second);
    *o = (struct optimizer){ 0 };
}

static alibi_status step_adamw(struct optimizer *o, const struct parameter *p, struct adamw a)
{
    struct model *m = o->model;

    if (!p->decays)
        a.weight_decay = 0;
    return m->device->ops->adamw(m->device, parameter_slice(m, p, m->values), parameter_slice(m, p, o->first),
                                 parameter_slice(m, p, o->second), parameter_slice(m, p, m->gradients), a);
}

static alibi_status step_nesterov(struct optimizer *o, const struct parameter *p, struct nesterov n)
{
    struct model *m = o->model;

    if (!p->decays)
        n.weight_decay = 0;
    return m->device->ops->nesterov(m->device, parameter_slice(m, p, m->values), parameter_slice(m, p, o->first),
                                    parameter_slice(m, p, m->gradients), n);
}

alibi_status optimizer_step(struct optimizer *o, const struct alibi_training *t, int64_t step, double gradient_scale)
{
    double lr = schedule_lr(t, step);
    struct adamw a = { lr, t->beta1, t->beta2, t->adam_eps, t->weight_decay, gradient_scale, step };
    struct nesterov n = { lr, step > 1 ? schedule_lr(t, step - 1) : lr, t->momentum, t->weight_decay, gradient_scale };

    for (int i = 0; i < o->model->count; i++) {
        const struct parameter *p = &o->model->parameters[i];
        TRY_RETURN(o->kind == ALIBI_ADAMW ? step_adamw(o, p, a) : step_nesterov(o, p, n));
    }
    return ALIBI_OK;
}

static double clip_factor(double clip, double norm)
{
    return clip > 0 && norm > clip ? clip / norm : 1;
}

alibi_status optimizer_update(struct optimizer *o, const struct alibi_training *t, int64_t step, double loss, double *norm)
{
    TRY_RETURN(guard_check(o->model, loss, step, norm));
    return optimizer_step(o, t, step, clip_factor(t->clip, *norm));
}
