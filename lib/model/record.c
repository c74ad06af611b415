/* record.c - what attention left out, read on the host
 *
 * A call's tensors may lie in another device's memory, in a type that the host does not compute in,
 * and queries and keys are views. Here they become fp32 tensors of this process; counting and
 * verifying are those of lib/ops/skipped.c. */
#include "model/model.h"

/* Its own, on the host: floats, or bits. */
static alibi_status new_host(struct tensor *out, struct tensor like)
{
    const int64_t factors[] = { like.shape[0], like.shape[1], like.shape[2], like.shape[3],
                                (int64_t)sizeof(float) };
    size_t bytes = 0;
    void *data;

    if (!size_product(&bytes, factors, 5))
        return fail(ALIBI_MEMORY, "the record of attention does not fit");
    TRY_RETURN(mem_new(&data, bytes, "the record of attention"));
    *out = tensor_4(data, like.type == DTYPE_I32 ? DTYPE_I32 : DTYPE_F32, like.shape[0],
                    like.shape[1], like.shape[2], like.shape[3]);
    return ALIBI_OK;
}

static alibi_status download(struct device *dev, struct tensor *out, struct tensor contiguous)
{
    TRY_RETURN(new_host(out, contiguous));
    return dev->ops->download(dev, out->data, contiguous);
}

/* A view is first made contiguous where it lies. */
static alibi_status download_view(struct device *dev, struct tensor *out, struct tensor view)
{
    alibi_status status;
    struct tensor whole =
        tensor_4(NULL, view.type, view.shape[0], view.shape[1], view.shape[2], view.shape[3]);
    size_t bytes = (size_t)tensor_count(view) *
                   dtype_bytes(view.type); /* no more than the view spans, which exists */

    TRY(dev->ops->buffer_new(dev, &whole.data, bytes, "queries or keys in one piece"));
    TRY(dev->ops->copy(dev, whole, view));
    TRY(download(dev, out, whole));
out:
    dev->ops->buffer_free(dev, whole.data);
    return status;
}

alibi_status record_read(struct device *dev, const struct attention_args *a, bool verify,
                         struct skip_count *tiles, double *left_out)
{
    alibi_status status;
    struct attention_args host = *a;

    host.skip.kept.data = host.q.data = host.k.data = host.bias.values.data = NULL;
    TRY(download(dev, &host.skip.kept, a->skip.kept));
    *tiles = attention_count(&host);
    if (!verify)
        goto out;
    TRY(download_view(dev, &host.q, a->q));
    TRY(download_view(dev, &host.k, a->k));
    if (a->bias.kind != BIAS_NONE)
        TRY(download(dev, &host.bias.values, a->bias.values));
    *left_out = attention_skipped(&host);
out:
    mem_free(host.skip.kept.data);
    mem_free(host.q.data);
    mem_free(host.k.data);
    mem_free(host.bias.values.data);
    return status;
}
