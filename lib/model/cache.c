/* cache.c - the KV cache: keys and values of several sequences, each in a slot
 *
 *   keys and values  [N][keys, values][slots, capacity, Hkv, D]
 *   norms            [N][slots, Hkv, tiles of capacity]     by which attention skips tiles
 *
 * The capacity is common to all slots. It doubles when a sequence reaches it, so that appending a
 * token costs constant time on average; a failure to grow leaves the cache as it was. With a
 * window, older positions are dropped when room is needed: a slot then holds positions
 * first..length-1, and `first` is a multiple of a tile.
 *
 * Dropping moves the other positions to the front of the same slot, over positions that are
 * dropped. If it fails half-way, the front has keys and norms that do not belong together, but the
 * positions to be moved are still where they were: the slot is marked torn, and the next
 * reservation moves all of it again before anything is read. */
#include "model/walk.h"

struct slot {
    int64_t first, length;
    bool torn; /* a move to the front did not finish */
};

struct cache {
    const struct model *model;
    int64_t slots, capacity;
    struct cache_window window;
    struct slot *slot;    /* [slots] */
    double *largest_keys; /* [N, slots] with a window: of all keys so far, dropped ones included */
    void *buffer, *norms;
};

alibi_status cache_new(struct cache **out, const struct model *m, int64_t slots,
                       struct cache_window window)
{
    alibi_status status;
    struct cache *c = NULL;

    TRY(NEW_ZERO_ARRAY(&c, 1, "a KV cache"));
    c->model = m;
    c->slots = slots;
    c->window = window;
    TRY(NEW_ZERO_ARRAY(&c->slot, slots, "the slots of a KV cache"));
    if (window.positions > 0)
        TRY(NEW_ZERO_ARRAY(&c->largest_keys, m->config.layers * slots, "the norms of keys"));
    *out = c;
    c = NULL;
out:
    cache_free(c);
    return status;
}

static void free_buffers(struct cache *c)
{
    struct device *dev = c->model->device;

    device_lock(dev);
    dev->ops->buffer_free(dev, c->buffer);
    dev->ops->buffer_free(dev, c->norms);
    device_unlock(dev);
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    free_buffers(c);
    mem_free(c->slot);
    mem_free(c->largest_keys);
    mem_free(c);
}

void cache_clear(struct cache *c, int64_t slot)
{
    c->slot[slot] = (struct slot){ 0 };
    for (int64_t n = 0; c->largest_keys && n < c->model->config.layers; n++)
        *cache_largest_key(c, n, slot) = 0.0;
}

int64_t cache_length(const struct cache *c, int64_t slot)
{
    return c->slot[slot].length;
}

int64_t cache_first(const struct cache *c, int64_t slot)
{
    return c->slot[slot].first;
}

void cache_advance(struct cache *c, int64_t slot, int64_t count)
{
    c->slot[slot].length += count;
}

double cache_score_limit(const struct cache *c)
{
    return c->window.positions > 0 ? c->window.score : 0.0;
}

double *cache_largest_key(struct cache *c, int64_t layer, int64_t slot)
{
    return &c->largest_keys[layer * c->slots + slot];
}

/* ---- views */

struct kv cache_all(const struct cache *c, int64_t layer)
{
    const struct alibi_config *config = &c->model->config;
    int64_t Hkv = config->kv_heads, D = config->width / config->heads;
    struct tensor k = tensor_4(c->buffer, c->model->type, c->slots, c->capacity, Hkv, D), v = k;
    struct tensor norms =
        tensor_3(c->norms, dtype_sums(c->model->type), c->slots, Hkv, attention_tiles(c->capacity));

    k.data = tensor_at(k, 2 * layer * tensor_count(k));
    v.data = tensor_at(k, tensor_count(k));
    norms.data = tensor_at(norms, layer * tensor_count(norms));
    return (struct kv){ k, v, norms };
}

/* `length` positions of one slot, from place `at` of its buffer. */
static struct kv slot_part(const struct cache *c, int64_t layer, int64_t slot, int64_t at,
                           int64_t length)
{
    struct kv kv = cache_all(c, layer);
    int64_t offset = slot * kv.k.stride[0] + at * kv.k.stride[1];

    kv.k.data = tensor_at(kv.k, offset);
    kv.v.data = tensor_at(kv.v, offset);
    kv.norms.data = tensor_at(kv.norms, slot * kv.norms.stride[0]);
    kv.k.shape[0] = kv.v.shape[0] = kv.norms.shape[0] = 1;
    kv.k.shape[1] = kv.v.shape[1] = length;
    return kv;
}

struct kv cache_slot(const struct cache *c, int64_t layer, int64_t slot, int64_t from,
                     int64_t length)
{
    return slot_part(c, layer, slot, from - c->slot[slot].first, length);
}

/* ---- room */

static alibi_status new_buffer(const struct cache *c, void **out, enum dtype type, int64_t per_head,
                               int64_t per_position)
{
    const struct alibi_config *config = &c->model->config;
    const int64_t factors[6] = { config->layers, c->slots,     config->kv_heads,
                                 per_head,       per_position, (int64_t)dtype_bytes(type) };
    size_t bytes = 0;

    if (!size_product(&bytes, factors, 6))
        return fail(ALIBI_MEMORY, "a KV cache of %lld positions does not fit in memory",
                    (long long)c->capacity);
    return c->model->device->ops->buffer_new(c->model->device, out, bytes, "the KV cache");
}

/* Copies a slot's positions from `first` on to the front of the slot in `to`, with their norms.
 * `to` may be `from` itself if the positions do not overlap. */
static alibi_status copy_slot(const struct cache *to, const struct cache *from, int64_t slot,
                              int64_t first)
{
    struct device *dev = from->model->device;
    int64_t count = from->slot[slot].length - first;

    for (int64_t n = 0; count > 0 && n < from->model->config.layers; n++) {
        struct kv there = slot_part(to, n, slot, 0, count);
        struct kv here = cache_slot(from, n, slot, first, count);

        TRY_RETURN(dev->ops->copy(dev, there.k, here.k));
        TRY_RETURN(dev->ops->copy(dev, there.v, here.v));
        TRY_RETURN(dev->ops->attention_norms(dev, there.norms, there.k, 0, ragged_none()));
    }
    return ALIBI_OK;
}

/* The first position of a slot that is still needed. */
static int64_t first_needed(const struct cache *c, const struct slot *s)
{
    int64_t first = (s->length - c->window.positions) / ATTENTION_TILE * ATTENTION_TILE;

    return c->window.positions > 0 && first > s->first ? first : s->first;
}

/* Moves every slot to larger buffers, with room for `needed` positions in one. */
static alibi_status grow(struct cache *c, int64_t needed)
{
    alibi_status status;
    enum dtype type = c->model->type;
    struct cache larger = *c;

    larger.buffer = larger.norms = NULL;
    larger.capacity = c->capacity ? c->capacity : ATTENTION_TILE;
    while (larger.capacity < (c->window.positions > 0 ? 2 : 1) * needed)
        larger.capacity *= 2; /* a window needs twice its size, to drop from */
    TRY(new_buffer(&larger, &larger.buffer, type, 2 * larger.capacity,
                   c->model->config.width / c->model->config.heads));
    TRY(new_buffer(&larger, &larger.norms, dtype_sums(type), attention_tiles(larger.capacity), 1));
    for (int64_t s = 0; s < c->slots; s++)
        TRY(copy_slot(&larger, c, s, first_needed(c, &c->slot[s])));
    for (int64_t s = 0; s < c->slots; s++) {
        c->slot[s].first = first_needed(c, &c->slot[s]);
        c->slot[s].torn = false;
    }
    free_buffers(c);
    *c = larger;
    larger.buffer = larger.norms = NULL;
out:
    free_buffers(&larger);
    return status;
}

alibi_status cache_reserve(struct cache *c, int64_t slot, int64_t length)
{
    struct slot *s = &c->slot[slot];
    int64_t first = first_needed(c, s), dropped = first - s->first;

    if (length - s->first <= c->capacity && !s->torn)
        return ALIBI_OK;
    if (length - first > c->capacity || dropped < s->length - first)
        return grow(c, length - first);
    s->torn = true;
    TRY_RETURN(copy_slot(c, c, slot, first));
    s->first = first;
    s->torn = false;
    return ALIBI_OK;
}
