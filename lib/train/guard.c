/* guard.c - nothing that is not finite reaches the weights or the disk
 *
 * A sum of squares in double is finite exactly if every fp32 element is, so one number per tensor tells. */
#include <math.h>

#include "train/train.h"

static alibi_status sum_squares(const struct model *m, struct tensor x, double *sum)
{
    return m->device->ops->sum_squares(m->device, sum, x);
}

alibi_status guard_check(struct model *m, double loss, int64_t step, double *norm)
{
    double total = 0;

    if (!isfinite(loss))
        return fail(ALIBI_NUMERIC, "step %lld: the loss is not finite", (long long)step);
    for (int i = 0; i < m->count; i++) {
        double sum;
        TRY_RETURN(sum_squares(m, m->parameters[i].gradient, &sum));
        if (!isfinite(sum))
            return fail(ALIBI_NUMERIC, "step %lld: the gradient of '%s' is not finite", (long long)step, m->parameters[i].name);
        total += sum;
    }
    *norm = sqrt(total);
    return ALIBI_OK;
}

static alibi_status check_values(const struct model *m, void *buffer, const char *what, int64_t step)
{
    for (int i = 0; buffer && i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        double sum;
        TRY_RETURN(sum_squares(m, parameter_slice(m, p, buffer), &sum));
        if (!isfinite(sum))
            return fail(ALIBI_NUMERIC, "step %lld: %s '%s' is not finite", (long long)step, what, p->name);
    }
    return ALIBI_OK;
}

alibi_status guard_state(const struct model *m, const struct optimizer *o, int64_t step)
{
    TRY_RETURN(check_values(m, m->values, "the weight", step));
    TRY_RETURN(check_values(m, o->first, "the optimizer's first moment of", step));
    return check_values(m, o->second, "the optimizer's second moment of", step);
}
