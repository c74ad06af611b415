/* guard.c - numbers that are not finite are found, and named by their tensor
 *
 * A sum of squares in double is finite exactly if every fp32 element is. So one number tells, and
 * the tensors are searched one by one only if it is not finite. */
#include <math.h>

#include "model/model.h"

alibi_status model_check_finite(const struct model *m, void *buffer, const char *what, double *sum)
{
    alibi_status status;
    const struct ops *ops = m->device->ops;
    const char *first = NULL;
    double all, part;

    if (!buffer)
        return ALIBI_OK;
    device_lock(m->device);
    TRY(ops->sum_squares(m->device, &all, model_flat(m, buffer)));
    for (int i = 0; !isfinite(all) && !first && i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        TRY(ops->sum_squares(m->device, &part, parameter_slice(m, p, buffer)));
        first = isfinite(part) ? NULL : p->name;
    }
    if (first)
        status = fail(ALIBI_NUMERIC, "%s '%s' is not finite", what, first);
    else if (!isfinite(all))
        status = fail(ALIBI_NUMERIC, "%s all tensors: the sum of squares overflows", what);
    else if (sum)
        *sum = all;
out:
    device_unlock(m->device);
    return status;
}
