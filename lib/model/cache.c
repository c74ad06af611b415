/* cache.c - keys and values of the positions so far, and the norms by which attention knows what it
 * need not read
 *
 *   keys and values  [N][keys, values][B, capacity, Hkv, D]
 *   norms            [N][B, Hkv, tiles of capacity]
 *
 * The capacity doubles when it is reached, so that appending a token costs constant time on
 * average; a failure to grow leaves the cache as it was. With a window, positions more than that
 * far back are dropped when room is needed: the buffers hold positions first..length-1, and `first`
 * is a multiple of a tile.
 *
 * Dropping moves the others to the front of the same buffers, over positions that are dropped. If
 * it fails half-way these have keys and norms that do not belong together, but what was to be moved
 * is still where it was: the cache is marked, and whoever reserves room next moves it all again
 * before anything is read. */
#include "model/walk.h"

struct cache {
    struct model *model;
    int64_t B, first, length, capacity;
    int64_t window; /* 0: all positions stay */
    bool torn;      /* a move to the front did not end */
    void *buffer, *norms;
};

alibi_status cache_new(struct cache **out, struct model *m, int64_t B)
{
    TRY_RETURN(NEW_ZERO_ARRAY(out, 1, "a cache"));
    (*out)->model = m;
    (*out)->B = B;
    return ALIBI_OK;
}

void cache_set_window(struct cache *c, int64_t window)
{
    c->window = window;
}

static void free_buffers(struct cache *c)
{
    struct device *dev = c->model->device;

    dev->ops->buffer_free(dev, c->buffer);
    dev->ops->buffer_free(dev, c->norms);
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    free_buffers(c);
    mem_free(c);
}

int64_t cache_length(const struct cache *c)
{
    return c->length;
}

int64_t cache_first(const struct cache *c)
{
    return c->first;
}

int64_t cache_rows(const struct cache *c)
{
    return c->B;
}

void cache_advance(struct cache *c, int64_t count)
{
    c->length += count;
}

/* ---- views */

/* Positions from..from+length-1 of part `index` (keys of layer n: 2n, values: 2n + 1). */
static struct tensor view(const struct cache *c, int64_t index, int64_t from, int64_t length)
{
    const struct alibi_config *config = &c->model->config;
    int64_t D = config->width / config->heads;
    struct tensor t = tensor_4(c->buffer, c->model->type, c->B, c->capacity, config->kv_heads, D);

    t.data = tensor_at(t, index * tensor_count(t) + (from - c->first) * t.stride[1]);
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

struct tensor cache_norms(const struct cache *c, int64_t layer)
{
    struct tensor t = tensor_3(c->norms, dtype_sums(c->model->type), c->B,
                               c->model->config.kv_heads, attention_tiles(c->capacity));

    t.data = tensor_at(t, layer * tensor_count(t));
    return t;
}

alibi_status cache_add_norms(struct cache *c, int64_t layer, int64_t count)
{
    struct device *dev = c->model->device;
    struct tensor keys = cache_keys(c, layer, c->first, c->length + count - c->first);

    return dev->ops->attention_norms(dev, cache_norms(c, layer), keys, c->length - c->first,
                                     ragged_none());
}

/* ---- room */

static alibi_status new_buffer(const struct cache *c, void **out, enum dtype type,
                               int64_t per_layer, int64_t per_row)
{
    const struct alibi_config *config = &c->model->config;
    const int64_t factors[6] = { config->layers, c->B,    config->kv_heads,
                                 per_layer,      per_row, (int64_t)dtype_bytes(type) };
    size_t bytes = 0;

    if (!size_product(&bytes, factors, 6))
        return fail(ALIBI_MEMORY, "a cache of %lld positions does not fit", (long long)c->capacity);
    return c->model->device->ops->buffer_new(c->model->device, out, bytes, "the key/value cache");
}

/* What `from` holds of the positions that `to` begins with, and their norms. The two may share a
 * buffer in which they do not overlap. */
static alibi_status copy_parts(struct cache *to, const struct cache *from)
{
    struct device *dev = from->model->device;
    int64_t N = from->model->config.layers, count = from->length - to->first;

    for (int64_t i = 0; count > 0 && i < 2 * N; i++)
        TRY_RETURN(
            dev->ops->copy(dev, view(to, i, to->first, count), view(from, i, to->first, count)));
    for (int64_t n = 0; count > 0 && n < N; n++)
        TRY_RETURN(dev->ops->attention_norms(
            dev, cache_norms(to, n), cache_keys(to, n, to->first, count), 0, ragged_none()));
    return ALIBI_OK;
}

static alibi_status move_to_larger(struct cache *c, int64_t first, int64_t length)
{
    const struct alibi_config *config = &c->model->config;
    enum dtype type = c->model->type;
    struct cache larger = *c;
    alibi_status status;

    larger.buffer = larger.norms = NULL;
    larger.torn = false;
    larger.first = first;
    larger.capacity = c->capacity ? c->capacity : ATTENTION_TILE;
    while (larger.capacity < (c->window > 0 ? 2 : 1) *
                                 (length - first)) /* a window needs as much again to drop from */
        larger.capacity *= 2;
    TRY(new_buffer(&larger, &larger.buffer, type, 2 * larger.capacity,
                   config->width / config->heads));
    TRY(new_buffer(&larger, &larger.norms, dtype_sums(type), attention_tiles(larger.capacity), 1));
    TRY(copy_parts(&larger, c));
    free_buffers(c);
    *c = larger;
    larger.buffer = larger.norms = NULL;
out:
    free_buffers(&larger);
    return status;
}

/* The first position that is still needed. */
static int64_t first_needed(const struct cache *c)
{
    int64_t first = (c->length - c->window) / ATTENTION_TILE * ATTENTION_TILE;

    return c->window > 0 && first > c->first ? first : c->first;
}

alibi_status cache_reserve(struct cache *c, int64_t length)
{
    int64_t first = first_needed(c), dropped = first - c->first;
    struct cache moved = *c;

    if (length - c->first <= c->capacity && !c->torn)
        return ALIBI_OK;
    if (length - first > c->capacity || dropped < c->length - first)
        return move_to_larger(c, first, length);
    moved.first = first;
    moved.torn = false;
    c->torn = true;
    TRY_RETURN(copy_parts(&moved, c));
    *c = moved;
    return ALIBI_OK;
}
