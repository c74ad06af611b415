/* attend.c - attention alone, over tensors of the caller */
#include <math.h>

#include "ops/ops.h"

static alibi_status check(const struct alibi_attend *a)
{
    if (a->batch < 1 || a->queries < 1 || a->heads < 1 || a->head_width < 1)
        return fail(ALIBI_USAGE,
                    "attention: batch, length, heads and head width must be 1 or more");
    if (a->keys < a->queries)
        return fail(ALIBI_USAGE,
                    "attention: there are %lld keys for %lld queries, which are at the "
                    "last positions of the keys",
                    (long long)a->keys, (long long)a->queries);
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return fail(ALIBI_USAGE, "attention: %lld key/value heads do not divide %lld heads",
                    (long long)a->kv_heads, (long long)a->heads);
    if (!isfinite(a->scale) || a->window < 0)
        return fail(ALIBI_USAGE, "attention: scale must be finite, and window 0 or more");
    if (!(a->skip >= 0 && a->skip < 1))
        return fail(ALIBI_USAGE, "attention: the skipping budget must be from 0 to below 1");
    return ALIBI_OK;
}

/* Numbers that are too many to have an address are not there. */
static alibi_status check_sizes(const struct alibi_attend *a)
{
    const int64_t q[] = { a->batch, a->queries, a->heads, a->head_width, sizeof(double) },
                  k[] = { a->batch, a->keys, a->kv_heads, a->head_width, sizeof(double) };
    size_t bytes;

    if (!size_product(&bytes, q, 5) || bytes > PTRDIFF_MAX || !size_product(&bytes, k, 5) ||
        bytes > PTRDIFF_MAX)
        return fail(ALIBI_MEMORY, "attention over %lld tokens does not fit in memory",
                    (long long)a->keys);
    return ALIBI_OK;
}

static struct tensor view(struct alibi_rows rows, enum dtype type, int64_t batch, int64_t positions,
                          int64_t heads, int64_t width)
{
    struct tensor t = tensor_4(rows.data, type, batch, positions, heads, width);

    if (rows.batch != 0 || rows.position != 0 || rows.head != 0) {
        t.stride[0] = rows.batch;
        t.stride[1] = rows.position;
        t.stride[2] = rows.head;
    }
    return t;
}

static struct attention_args arguments(const alibi_device *device, const struct alibi_attend *a)
{
#define QUERIES(rows) view(rows, device->type, a->batch, a->queries, a->heads, a->head_width)
#define KEYS(rows) view(rows, device->type, a->batch, a->keys, a->kv_heads, a->head_width)
    const enum dtype sums = dtype_sums(device->type);
    struct attention_args args = {
        .q = QUERIES(a->q),
        .k = KEYS(a->k),
        .v = KEYS(a->v),
        .bias = { .kind = BIAS_NONE, .values = tensor_none() },
        .scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_width),
        .window = a->window,
        .skip = { .norms = tensor_none(), .kept = tensor_none() },
        .ragged = ragged_none(),
        .y = QUERIES(a->y),
        .lse = tensor_3(a->lse, sums, a->batch, a->heads, a->queries),
        .dy = QUERIES(a->dy),
        .dq = QUERIES(a->dq),
        .dk = KEYS(a->dk),
        .dv = KEYS(a->dv),
        .dbias = tensor_none(),
    };
#undef QUERIES
#undef KEYS

    if (a->slopes)
        args.bias = (struct bias){ .kind = BIAS_LINEAR,
                                   .values = tensor_1((void *)a->slopes, sums, a->heads) };
    if (a->slopes && a->dslopes)
        args.dbias = tensor_1(a->dslopes, sums, a->heads);
    return args;
}

alibi_status alibi_attend(alibi_device *device, const struct alibi_attend *a)
{
    alibi_status status;
    struct device *dev = &device->device;
    struct attention_args args;

    TRY_RETURN(check(a));
    TRY_RETURN(check_sizes(a));
    args = arguments(device, a);
    args.skip.eps = a->skip;
    device_lock(dev);
    TRY(dev->ops->wait_for_caller(dev, a->stream));
    TRY(dev->ops->attention_forward(dev, &args));
    TRY(dev->ops->caller_waits(dev, a->stream));
out:
    device_unlock(dev);
    return status;
}

alibi_status alibi_attend_backward(alibi_device *device, const struct alibi_attend *a)
{
    alibi_status status;
    struct device *dev = &device->device;
    struct attention_args args;

    TRY_RETURN(check(a));
    TRY_RETURN(check_sizes(a));
    if (a->queries != a->keys)
        return fail(ALIBI_USAGE,
                    "attention: %lld queries and %lld keys: gradients need as many of "
                    "both",
                    (long long)a->queries, (long long)a->keys);
    args = arguments(device, a);
    device_lock(dev);
    TRY(dev->ops->wait_for_caller(dev, a->stream));
    if (args.dbias.data)
        TRY(dev->ops->fill(dev, args.dbias, 0));
    TRY(dev->ops->attention_backward(dev, &args));
    TRY(dev->ops->caller_waits(dev, a->stream));
out:
    device_unlock(dev);
    return status;
}
