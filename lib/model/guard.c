/* guard.c - finds numbers that are not finite, and names their tensor
 *
 * A sum of squares in double is finite exactly if every fp32 element is. So one number tells, and
 * the tensors are searched one by one only if it is not finite. */
#include <math.h>

#include "model/model.h"

alibi_status model_check_finite(const struct model *m, struct tensor part, int64_t first,
                                const char *what, double *sum)
{
    alibi_status status;
    const struct ops *ops = m->device->ops;
    const char *name = NULL;
    double all, some;

    device_lock(m->device);
    TRY(ops->sum_squares(m->device, &all, part));
    for (int i = 0; !isfinite(all) && !name && i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        int64_t from = p->offset - first, to = from + p->count;
        from = from > 0 ? from : 0;
        to = to < tensor_count(part) ? to : tensor_count(part);
        if (to <= from)
            continue;
        TRY(ops->sum_squares(m->device, &some, vector_part(part, from, to - from)));
        name = isfinite(some) ? NULL : p->name;
    }
    if (name)
        status = fail(ALIBI_NUMERIC, "%s '%s' is not finite", what, name);
    else if (!isfinite(all))
        status = fail(ALIBI_NUMERIC, "%s all tensors: the sum of squares overflows", what);
    else if (sum)
        *sum = all;
out:
    device_unlock(m->device);
    return status;
}
