/* cache.c - keys and values of the positions so far
 *
 * One buffer [N][keys, values][B, capacity, Hkv, D]. The capacity doubles when it is reached, so that appending a token costs
 * constant time on average; a failure to grow leaves the cache as it was. */
#include "model/walk.h"

struct cache {
    struct model *model;
    int64_t B, length, capacity;
    void *buffer; /* on the device */
};

alibi_status cache_new(struct cache **out, struct model *m, int64_t B)
{
    TRY_RETURN(NEW_ZERO_ARRAY(out, 1, "a cache"));
    (*out)->model = m;
    (*out)->B = B;
    return ALIBI_OK;
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    c->model->device->ops->buffer_free(c->model->device, c->buffer);
    mem_free(c);
}

int64_t cache_length(const struct cache *c)
{
    return c->length;
}

int64_t cache_rows(const struct cache *c)
{
    return c->B;
}

void cache_advance(struct cache *c, int64_t count)
{
    c->length += count;
}

/* Positions from..from+length-1 of part `index` (keys of layer n: 2n, values: 2n + 1). */
static struct tensor view(const struct cache *c, int64_t index, int64_t from, int64_t length)
{
    const struct alibi_config *config = &c->model->config;
    int64_t D = config->width / config->heads;
    struct tensor t = tensor_4(c->buffer, c->model->type, c->B, c->capacity, config->kv_heads, D);

    t.data = tensor_at(t, index * tensor_count(t) + from * t.stride[1]);
    t.shape[1] = length;
    return t;
}

struct tensor cache_keys(const struct cache *c, int64_t layer, int64_t from, int64_t length)
{
    return view(c, 2 * layer, from, length);
}

struct tensor cache_values(const struct cache *c, int64_t layer, int64_t from, int64_t length)
{
    return view(c, 2 * layer + 1, from, length);
}

static alibi_status cache_bytes(const struct cache *c, size_t *bytes)
{
    const struct alibi_config *config = &c->model->config;
    const int64_t factors[6] = { 2 * config->layers,
                                 c->B,
                                 c->capacity,
                                 config->kv_heads,
                                 config->width / config->heads,
                                 (int64_t)dtype_bytes(c->model->type) };

    if (!size_product(bytes, factors, 6))
        return fail(ALIBI_MEMORY, "a cache of %lld positions does not fit", (long long)c->capacity);
    return ALIBI_OK;
}

static alibi_status copy_parts(struct device *dev, const struct cache *to, const struct cache *from)
{
    for (int64_t i = 0; from->length > 0 && i < 2 * from->model->config.layers; i++)
        TRY_RETURN(dev->ops->copy(dev, view(to, i, 0, from->length), view(from, i, 0, from->length)));
    return ALIBI_OK;
}

alibi_status cache_reserve(struct cache *c, int64_t length)
{
    struct device *dev = c->model->device;
    struct cache larger = *c;
    alibi_status status;
    size_t bytes = 0;

    if (length <= c->capacity)
        return ALIBI_OK;
    larger.buffer = NULL;
    larger.capacity = c->capacity ? c->capacity : 64;
    while (larger.capacity < length)
        larger.capacity *= 2;
    TRY(cache_bytes(&larger, &bytes));
    TRY(dev->ops->buffer_new(dev, &larger.buffer, bytes, "the key/value cache"));
    TRY(copy_parts(dev, &larger, c));
    dev->ops->buffer_free(dev, c->buffer);
    *c = larger;
    larger.buffer = NULL;
out:
    dev->ops->buffer_free(dev, larger.buffer);
    return status;
}
