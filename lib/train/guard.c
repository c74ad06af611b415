/* guard.c - nothing that is not finite reaches the weights or the disk
 *
 * A sum of squares in double is finite exactly if every fp32 element is, so one number tells; only
 * where it is not are the tensors looked at one by one. */
#include <math.h>

#include "train/train.h"

static alibi_status sum_squares(const struct model *m, struct tensor x, double *sum)
{
    return m->device->ops->sum_squares(m->device, sum, x);
}

/* The sum over a flat buffer; where it is not finite the first tensor to blame is named, "the
 * weight 'norm.weight'". */
static alibi_status check_buffer(const struct model *m, void *buffer, const char *what,
                                 int64_t step, double *sum)
{
    TRY_RETURN(sum_squares(m, model_flat(m, buffer), sum));
    for (int i = 0; !isfinite(*sum) && i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        double part;
        TRY_RETURN(sum_squares(m, parameter_slice(m, p, buffer), &part));
        if (!isfinite(part))
            return fail(ALIBI_NUMERIC, "step %lld: %s '%s' is not finite", (long long)step, what,
                        p->name);
    }
    if (!isfinite(*sum))
        return fail(ALIBI_NUMERIC, "step %lld: the numbers are too large for their norm",
                    (long long)step);
    return ALIBI_OK;
}

alibi_status guard_check(struct model *m, double loss, int64_t step, double *norm)
{
    double sum;

    if (!isfinite(loss))
        return fail(ALIBI_NUMERIC, "step %lld: the loss is not finite", (long long)step);
    TRY_RETURN(check_buffer(m, m->gradients, "the gradient of", step, &sum));
    *norm = sqrt(sum);
    return ALIBI_OK;
}

static alibi_status check_values(const struct model *m, void *buffer, const char *what,
                                 int64_t step)
{
    double sum;

    return buffer ? check_buffer(m, buffer, what, step, &sum) : ALIBI_OK;
}

alibi_status guard_state(const struct model *m, const struct optimizer *o, int64_t step)
{
    TRY_RETURN(check_values(m, m->values, "the weight", step));
    TRY_RETURN(check_values(m, o->first, "the optimizer's first moment of", step));
    return check_values(m, o->second, "the optimizer's second moment of", step);
}
