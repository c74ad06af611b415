/* watch.c - how much attention left out, and how large its scores can be
 *
 * The record of a call is bits, one per tile; it is read when the call has ended and used again for
 * the next layer. */
#include <math.h>

#include "model/walk.h"

void watch_fini(struct watch *w, struct model *m)
{
    m->device->ops->buffer_free(m->device, w->kept);
    mem_free(w->largest_keys);
    *w = (struct watch){ 0 };
}

alibi_status watch_limit_scores(struct watch *w, const struct model *m, double limit)
{
    w->score_limit = limit;
    return NEW_ZERO_ARRAY(&w->largest_keys, m->config.layers, "the norms of keys");
}

static alibi_status reserve(struct model *m, size_t bytes)
{
    struct watch *w = m->watch;
    void *larger = NULL;

    if (bytes <= w->bytes)
        return ALIBI_OK;
    TRY_RETURN(m->device->ops->buffer_new(m->device, &larger, bytes, "the record of attention"));
    m->device->ops->buffer_free(m->device, w->kept);
    w->kept = larger;
    w->bytes = bytes;
    return ALIBI_OK;
}

/* ---- scores */

/* The largest of the norms of the first `tiles` tiles, [B, H, tiles] with any strides. */
static alibi_status largest_of(struct model *m, struct tensor norms, int64_t tiles, double *largest)
{
    alibi_status status;
    float *host = NULL;
    double most = 0.0;

    TRY(NEW_ARRAY(&host, tiles, "norms"));
    for (int64_t n = 0; n < norms.shape[0] * norms.shape[1]; n++) {
        int64_t at = n / norms.shape[1] * norms.stride[0] + n % norms.shape[1] * norms.stride[1];
        TRY(m->device->ops->download(m->device, host,
                                     tensor_1(tensor_at(norms, at), norms.type, tiles)));
        for (int64_t t = 0; t < tiles; t++)
            most = host[t] > most || isnan(host[t]) ? (double)host[t] : most;
    }
    *largest = most;
out:
    mem_free(host);
    return status;
}

/* The largest |x_l| of a view [B, L, H, D]. */
static alibi_status largest_norm(struct model *m, struct tensor x, double *largest)
{
    struct device *dev = m->device;
    alibi_status status;
    int64_t tiles = attention_tiles(x.shape[1]);
    struct tensor norms = tensor_3(NULL, dtype_sums(m->type), x.shape[0], x.shape[2], tiles);

    TRY(dev->ops->buffer_new(dev, &norms.data,
                             (size_t)tensor_count(norms) * dtype_bytes(norms.type),
                             "the norms of queries"));
    TRY(dev->ops->attention_norms(dev, norms, x, 0, ragged_none()));
    TRY(largest_of(m, norms, tiles, largest));
out:
    dev->ops->buffer_free(dev, norms.data);
    return status;
}

/* |q . k| <= |q| |k|: the queries of this call with every key that there ever was are within the
 * limit, or it fails. */
static alibi_status check_scores(struct model *m, int64_t layer, const struct attention_args *a)
{
    double q, k, limit = m->watch->score_limit, *largest;

    if (limit <= 0)
        return ALIBI_OK;
    largest = &m->watch->largest_keys[layer];
    TRY_RETURN(largest_norm(m, a->q, &q));
    TRY_RETURN(largest_of(m, a->skip.norms, attention_tiles(a->k.shape[1]),
                          &k)); /* a window has a cache, and that has norms */
    *largest = k > *largest || isnan(k) ? k : *largest;
    if (!(a->scale * q * *largest <= limit))
        return fail(
            ALIBI_NUMERIC,
            "scores of layer %lld may be as large as %.4g, the window relies on %g at most: give a larger window score",
            (long long)layer, a->scale * q * *largest, limit);
    return ALIBI_OK;
}

/* ---- the record */

/* A call that stands behind a part of a tile has no record. */
static bool is_watched(const struct model *m, const struct attention_args *a)
{
    return m->watch->record && m->skip > 0 && !m->activations->training &&
           (a->k.shape[1] - a->q.shape[1]) % ATTENTION_TILE == 0;
}

static alibi_status begin_record(struct model *m, struct attention_args *a)
{
    int64_t B = a->q.shape[0], H = a->q.shape[2];
    int64_t tiles = attention_tiles(a->q.shape[1]), words = attention_kept_words(a->k.shape[1]);
    const int64_t factors[5] = { B, H, tiles, words, (int64_t)sizeof(int32_t) };
    size_t bytes = 0;

    if (!is_watched(m, a))
        return ALIBI_OK;
    if (!size_product(&bytes, factors, 5))
        return fail(ALIBI_MEMORY, "the record of attention over %lld keys does not fit",
                    (long long)a->k.shape[1]);
    TRY_RETURN(reserve(m, bytes));
    a->skip.kept = tensor_4(m->watch->kept, DTYPE_I32, B, H, tiles, words);
    return ALIBI_OK;
}

static alibi_status read_record(struct model *m, const struct attention_args *a)
{
    struct watch *w = m->watch;
    struct skip_count n;
    double left_out = 0.0;

    if (!is_watched(m, a))
        return ALIBI_OK;
    TRY_RETURN(record_read(m->device, a, w->verify, &n, &left_out));
    w->tiles.used += n.used;
    w->tiles.all += n.all;
    w->left_out = left_out > w->left_out ? left_out : w->left_out;
    return ALIBI_OK;
}

/* What is under way ends outside of the time that is taken, and what was begun within it. */
static alibi_status timed_attention(struct model *m, const struct attention_args *a)
{
    double begin;

    TRY_RETURN(m->device->ops->finish(m->device));
    begin = clock_seconds();
    TRY_RETURN(m->device->ops->attention_forward(m->device, a));
    TRY_RETURN(m->device->ops->finish(m->device));
    m->watch->seconds += clock_seconds() - begin;
    return ALIBI_OK;
}

alibi_status watched_attention(struct model *m, int64_t layer, struct attention_args a)
{
    if (m->watch)
        TRY_RETURN(check_scores(m, layer, &a));
    if (!m->watch || !m->watch->record)
        return m->device->ops->attention_forward(m->device, &a);
    TRY_RETURN(begin_record(m, &a));
    TRY_RETURN(timed_attention(m, &a));
    return read_record(m, &a);
}
