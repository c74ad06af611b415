/* attend.c - attention alone, over tensors of the caller */
#include <math.h>

#include "ops/ops.h"

/* ---- what a call must be */

static bool is_packed(const struct alibi_attend *a)
{
    return a->cu_seqlens_q != NULL;
}

static alibi_status check_sizes(const struct alibi_attend *a)
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

/* The form of the call. Positions of packed sequences are counted in 32 bits. */
static alibi_status check_form(const struct alibi_attend *a)
{
    if (is_packed(a) != (a->cu_seqlens_k != NULL) || (is_packed(a) && a->cache_seqlens))
        return fail(ALIBI_USAGE, "attention: packed sequences need cu_seqlens_q and cu_seqlens_k, "
                                 "and have no cache");
    if (is_packed(a) && (a->total_q < 1 || a->total_q > INT32_MAX || a->total_k < 1 ||
                         a->total_k > INT32_MAX || a->batch >= INT32_MAX))
        return fail(ALIBI_USAGE,
                    "attention: packed sequences have 1 to %d queries and keys in all, not %lld "
                    "and %lld",
                    INT32_MAX, (long long)a->total_q, (long long)a->total_k);
    if (a->cache_seqlens && (a->queries != 1 || a->cache_batch < 1 || a->keys > INT32_MAX))
        return fail(ALIBI_USAGE, "attention: with a cache there is 1 query for each row, and "
                                 "cache_batch is 1 or more");
    return ALIBI_OK;
}

/* Numbers that are too many to have an address are not there. */
static alibi_status check_memory(const struct alibi_attend *a)
{
    const int64_t batch = a->cache_seqlens ? a->cache_batch : a->batch, width = a->head_width;
    const int64_t counts[][5] = {
        { a->batch, a->queries, a->heads, width, sizeof(double) },
        { batch, a->keys, a->kv_heads, width, sizeof(double) },
        { is_packed(a) ? a->total_q : 1, 1, a->heads, width, sizeof(double) },
        { is_packed(a) ? a->total_k : 1, 1, a->kv_heads, width, sizeof(double) },
    };

    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        size_t bytes;
        if (!size_product(&bytes, counts[n], 5) || bytes > PTRDIFF_MAX)
            return fail(ALIBI_MEMORY, "attention over %lld tokens does not fit in memory",
                        (long long)a->keys);
    }
    return ALIBI_OK;
}

/* Wrong starts or lengths would lead outside the tensors; the kernels of a GPU clamp theirs. */
static alibi_status check_values(const struct alibi_attend *a)
{
    const int32_t *q = a->cu_seqlens_q, *k = a->cu_seqlens_k;

    for (int64_t b = 0; q && b < a->batch; b++) {
        int64_t queries = (int64_t)q[b + 1] - q[b], keys = (int64_t)k[b + 1] - k[b];
        if (q[0] != 0 || k[0] != 0 || queries < 0 || queries > keys || queries > a->queries ||
            keys > a->keys || q[b + 1] > a->total_q || k[b + 1] > a->total_k)
            return fail(ALIBI_USAGE,
                        "attention: sequence %lld has queries %d..%d and keys %d..%d; starts "
                        "ascend from 0 to at most the totals, and no sequence has more queries "
                        "than keys, or more than the longest may have",
                        (long long)b, q[b], q[b + 1] - 1, k[b], k[b + 1] - 1);
    }
    for (int64_t b = 0; a->cache_seqlens && b < a->batch; b++) {
        int64_t length = a->cache_seqlens[b], row = a->cache_batch_idx ? a->cache_batch_idx[b] : b;
        if (length < 1 || length > a->keys || row < 0 || row >= a->cache_batch)
            return fail(ALIBI_USAGE,
                        "attention: row %lld reads %lld keys of row %lld of the cache, which has "
                        "%lld rows of %lld keys",
                        (long long)b, (long long)length, (long long)row, (long long)a->cache_batch,
                        (long long)a->keys);
    }
    return ALIBI_OK;
}

static alibi_status check(const struct alibi_attend *a, bool backward)
{
    TRY_RETURN(check_sizes(a));
    TRY_RETURN(check_form(a));
    if (backward && (a->queries != a->keys || a->total_q != a->total_k || a->cache_seqlens))
        return fail(ALIBI_USAGE,
                    "attention: %lld queries and %lld keys: gradients need as many of "
                    "both, and no cache",
                    (long long)(is_packed(a) ? a->total_q : a->queries),
                    (long long)(is_packed(a) ? a->total_k : a->keys));
    return check_memory(a);
}

static alibi_status check_data(const alibi_device *device, const struct alibi_attend *a,
                               bool backward)
{
    const bool forward_has = a->q.data && a->k.data && a->v.data && a->y.data && a->lse;

    if (!forward_has || (backward && !(a->dy.data && a->dq.data && a->dk.data && a->dv.data)))
        return fail(ALIBI_USAGE, "attention: a tensor is missing: q, k, v, y and lse are needed, "
                                 "for gradients dy, dq, dk and dv too");
    return device->gpu ? ALIBI_OK : check_values(a);
}

/* ---- the call as an operation */

/* [batch, positions, heads, width], or [1, total, heads, width] of packed sequences. */
static struct tensor view(struct alibi_rows rows, enum dtype type, int64_t batch, int64_t positions,
                          int64_t heads, int64_t width)
{
    struct tensor t = tensor_4(rows.data, type, batch, positions, heads, width);

    if (rows.batch != 0 || rows.position != 0 || rows.head != 0) {
        t.stride[0] = batch == 1 ? positions * rows.position : rows.batch;
        t.stride[1] = rows.position;
        t.stride[2] = rows.head;
    }
    return t;
}

static struct tensor integers(const int32_t *data, int64_t count)
{
    return data ? tensor_1((void *)data, DTYPE_I32, count) : tensor_none();
}

/* Gradients are of as many keys as queries, and compute every pair. */
static struct attention_args arguments(const alibi_device *device, const struct alibi_attend *a,
                                       bool backward)
{
    const enum dtype sums = dtype_sums(device->type);
    const int64_t batch = is_packed(a) ? 1 : a->batch,
                  queries = is_packed(a) ? a->total_q : a->queries,
                  rows = a->cache_seqlens ? a->cache_batch : batch,
                  keys = is_packed(a) ? a->total_k : a->keys;
#define QUERIES(member) view(a->member, device->type, batch, queries, a->heads, a->head_width)
#define KEYS(member) view(a->member, device->type, rows, keys, a->kv_heads, a->head_width)
#define SLOPES(member)                                                                             \
    (a->batch_slopes ? tensor_2((void *)a->member, sums, a->batch, a->heads)                       \
                     : tensor_1((void *)a->member, sums, a->heads))
    struct attention_args args = {
        .q = QUERIES(q),
        .k = KEYS(k),
        .v = KEYS(v),
        .bias = { .kind = a->slopes ? BIAS_LINEAR : BIAS_NONE,
                  .values = a->slopes ? SLOPES(slopes) : tensor_none() },
        .scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_width),
        .window = a->window,
        .skip = { .eps = backward ? 0 : a->skip, .norms = tensor_none(), .kept = tensor_none() },
        .ragged = { .slot = integers(a->cache_batch_idx, a->batch),
                    .length = integers(a->cache_seqlens, a->batch) },
        .packed = { .q = integers(a->cu_seqlens_q, a->batch + 1),
                    .k = integers(backward ? a->cu_seqlens_q : a->cu_seqlens_k, a->batch + 1),
                    .Lq = a->queries,
                    .Lk = a->keys },
        .y = QUERIES(y),
        .lse = tensor_3(a->lse, sums, batch, a->heads, queries),
        .dy = QUERIES(dy),
        .dq = QUERIES(dq),
        .dk = KEYS(dk),
        .dv = KEYS(dv),
        .dbias = a->slopes && a->dslopes ? SLOPES(dslopes) : tensor_none(),
    };
#undef QUERIES
#undef KEYS
#undef SLOPES

    return args;
}

alibi_status alibi_attend_workspace(alibi_device *device, const struct alibi_attend *a,
                                    bool backward, size_t *bytes)
{
    struct device *dev = &device->device;
    struct attention_args args;

    TRY_RETURN(check(a, backward));
    args = arguments(device, a, backward);
    device_lock(dev);
    *bytes = dev->ops->attention_workspace(dev, &args, backward);
    device_unlock(dev);
    return ALIBI_OK;
}

static alibi_status run(struct device *dev, const struct attention_args *args, bool backward)
{
    if (!backward)
        return dev->ops->attention_forward(dev, args);
    if (args->dbias.data)
        TRY_RETURN(dev->ops->fill(dev, args->dbias, 0));
    return dev->ops->attention_backward(dev, args);
}

static alibi_status attend(alibi_device *device, const struct alibi_attend *a, bool backward)
{
    const struct caller caller = { a->stream, a->workspace, a->workspace_bytes };
    struct device *dev = &device->device;
    struct attention_args args;
    alibi_status status, ended;

    TRY_RETURN(check(a, backward));
    TRY_RETURN(check_data(device, a, backward));
    args = arguments(device, a, backward);
    device_lock(dev);
    TRY(dev->ops->caller_begins(dev, &caller));
    status = run(dev, &args, backward);
    ended = dev->ops->caller_ends(dev, &caller);
    status = status != ALIBI_OK ? status : ended;
out:
    device_unlock(dev);
    return status;
}

alibi_status alibi_attend(alibi_device *device, const struct alibi_attend *a)
{
    return attend(device, a, false);
}

alibi_status alibi_attend_backward(alibi_device *device, const struct alibi_attend *a)
{
    return attend(device, a, true);
}
