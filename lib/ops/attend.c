/* attend.c - attention alone, over numbers of the caller
 *
 * The operands are copied to the device and the results back, the same way for every device. That
 * is linear in the length, and attention is quadratic. */
#include <math.h>

#include "ops/ops.h"

enum { OPERANDS = 11 };

struct copies {
    struct device *device;
    enum dtype type;
    void *memory[OPERANDS];
    int count;
};

static void copies_fini(struct copies *c)
{
    for (int i = 0; i < c->count; i++)
        c->device->ops->buffer_free(c->device, c->memory[i]);
    device_unlock(c->device);
}

/* Memory for a tensor whose shape and type are set, with the caller's numbers if there are any. */
static alibi_status take(struct copies *c, struct tensor *t, const float *from)
{
    size_t bytes;

    if (!size_product(&bytes, t->shape, TENSOR_RANK_MAX) ||
        !size_multiply(&bytes, bytes, dtype_bytes(t->type)))
        return fail(ALIBI_MEMORY, "attention: a tensor of %lld x %lld x %lld x %lld is too large",
                    (long long)t->shape[0], (long long)t->shape[1], (long long)t->shape[2],
                    (long long)t->shape[3]);
    TRY_RETURN(c->device->ops->buffer_new(c->device, &t->data, bytes, "the tensors of attention"));
    c->memory[c->count++] = t->data;
    return from ? c->device->ops->upload(c->device, *t, from) : ALIBI_OK;
}

static alibi_status check(const struct alibi_attend *a, double skip)
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
    if (!(skip >= 0 && skip < 1))
        return fail(ALIBI_USAGE, "attention: the skipping budget must be from 0 to below 1");
    return ALIBI_OK;
}

/* The shapes that strides multiply must fit before a tensor is made. */
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

static struct tensor rows(const struct copies *c, const struct alibi_attend *a, bool keys)
{
    return tensor_4(NULL, c->type, a->batch, keys ? a->keys : a->queries,
                    keys ? a->kv_heads : a->heads, a->head_width);
}

/* Opens `c`, which copies_fini() ends, and fills in what both directions read. */
static alibi_status begin(struct copies *c, struct attention_args *args, alibi_device *device,
                          const struct alibi_attend *a)
{
    *c = (struct copies){ .device = &device->device, .type = device->type };
    device_lock(c->device);
    *args = (struct attention_args){
        .q = rows(c, a, false),
        .k = rows(c, a, true),
        .v = rows(c, a, true),
        .y = rows(c, a, false),
        .lse = tensor_3(NULL, dtype_sums(c->type), a->batch, a->heads, a->queries),
        .scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_width),
        .window = a->window,
        .skip = { .norms = tensor_none(), .kept = tensor_none() },
        .ragged = ragged_none(),
        .dbias = tensor_none(),
    };
    if (a->slopes) {
        args->bias.kind = BIAS_LINEAR;
        args->bias.values = tensor_1(NULL, dtype_sums(c->type), a->heads);
        TRY_RETURN(take(c, &args->bias.values, a->slopes));
    }
    TRY_RETURN(take(c, &args->q, a->q));
    TRY_RETURN(take(c, &args->k, a->k));
    return take(c, &args->v, a->v);
}

alibi_status alibi_attend(alibi_device *device, const struct alibi_attend *a, float *y, float *lse,
                          const struct alibi_call *call)
{
    alibi_status status;
    double skip = call ? call->skip : 0;
    struct copies c;
    struct attention_args args;

    TRY_RETURN(check(a, skip));
    TRY_RETURN(check_sizes(a));
    TRY(begin(&c, &args, device, a));
    args.skip.eps = skip;
    TRY(take(&c, &args.y, NULL));
    TRY(take(&c, &args.lse, NULL));
    TRY(c.device->ops->attention_forward(c.device, &args));
    TRY(c.device->ops->download(c.device, y, args.y));
    if (lse)
        TRY(c.device->ops->download(c.device, lse, args.lse));
out:
    copies_fini(&c);
    return status;
}

alibi_status alibi_attend_backward(alibi_device *device, const struct alibi_attend *a,
                                   const float *y, const float *lse, const float *dy, float *dq,
                                   float *dk, float *dv, float *dslopes)
{
    alibi_status status;
    struct copies c;
    struct attention_args args;

    TRY_RETURN(check(a, 0));
    TRY_RETURN(check_sizes(a));
    if (a->queries != a->keys)
        return fail(ALIBI_USAGE,
                    "attention: %lld queries and %lld keys: gradients need as many of "
                    "both",
                    (long long)a->queries, (long long)a->keys);
    TRY(begin(&c, &args, device, a));
    args.dy = args.dq = rows(&c, a, false);
    args.dk = args.dv = rows(&c, a, true);
    TRY(take(&c, &args.y, y));
    TRY(take(&c, &args.lse, lse));
    TRY(take(&c, &args.dy, dy));
    TRY(take(&c, &args.dq, NULL));
    TRY(take(&c, &args.dk, NULL));
    TRY(take(&c, &args.dv, NULL));
    if (a->slopes && dslopes) {
        args.dbias = args.bias.values;
        TRY(take(&c, &args.dbias, NULL));
        TRY(c.device->ops->fill(c.device, args.dbias, 0));
    }
    TRY(c.device->ops->attention_backward(c.device, &args));
    TRY(c.device->ops->download(c.device, dq, args.dq));
    TRY(c.device->ops->download(c.device, dk, args.dk));
    TRY(c.device->ops->download(c.device, dv, args.dv));
    if (args.dbias.data)
        TRY(c.device->ops->download(c.device, dslopes, args.dbias));
out:
    copies_fini(&c);
    return status;
}
