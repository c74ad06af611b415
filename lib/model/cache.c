/* cache.c - the KV cache: keys and values of several sequences, each in a slot
 *
 * Layers with equally wide windows and as many sinks share a store:
 *
 *   keys and values  [layers][keys, values][slots, capacity, Hkv, D]
 *   norms            [layers][slots, Hkv, tiles of capacity]     by which attention skips tiles
 *   sinks            [layers][keys, values][slots, sinks, Hkv, D]
 *   sums of gates    [layers][2, slots, G, capacity]             G of the layer that has most
 *
 * The capacity is common to all slots of a store. It doubles when a sequence reaches it, so that
 * appending a token costs constant time on average; a failure to grow leaves the store as it was.
 * With a window, older positions are dropped when room is needed: a slot then holds positions
 * first..length-1, and `first` is a multiple of a tile. So the memory of such a layer, and the time
 * of a token, do not grow with the text.
 *
 * Dropping moves the other positions to the front of the same slot, over positions that are
 * dropped. If it fails half-way, the front has keys and norms that do not belong together, but the
 * positions to be moved are still where they were: the slot is marked torn, and the next
 * reservation moves all of it again before anything is read. */
#include "model/walk.h"

struct held {
    int64_t first; /* oldest position */
    bool torn;     /* a move to the front did not finish */
};

struct store {
    int64_t window; /* 0: nothing is dropped */
    int64_t sinks;  /* first keys that are kept apart */
    int64_t layers, capacity;
    struct held *held; /* [slots] */
    void *buffer, *norms, *first_keys, *gates;
};

struct place {
    int store;
    int64_t layer; /* within the store */
};

struct cache {
    const struct model *model;
    int64_t slots;
    struct cache_window window; /* of all layers, beside their own */
    int64_t *length;            /* [slots] */
    struct place *place;        /* [N] */
    int stores;
    struct store store[PATTERN_KINDS];
    double *largest_keys; /* [N, slots] with a window: of all keys so far, dropped ones included */
};

/* Finds the store of each layer. */
static alibi_status make_stores(struct cache *c)
{
    for (int64_t n = 0; n < c->model->config.layers; n++) {
        const struct position *p = model_position(c->model, n);
        int64_t window = narrower(c->window.positions, p->window);
        int i = 0;

        while (i < c->stores && (c->store[i].window != window || c->store[i].sinks != p->sinks))
            i++;
        if (i == c->stores) {
            c->store[c->stores++].window = window;
            c->store[i].sinks = p->sinks;
            TRY_RETURN(NEW_ZERO_ARRAY(&c->store[i].held, c->slots, "the slots of a KV cache"));
        }
        c->place[n] = (struct place){ i, c->store[i].layers++ };
    }
    return ALIBI_OK;
}

alibi_status cache_new(struct cache **out, const struct model *m, int64_t slots,
                       struct cache_window window)
{
    alibi_status status;
    struct cache *c = NULL;

    TRY(NEW_ZERO_ARRAY(&c, 1, "a KV cache"));
    c->model = m;
    c->slots = slots;
    c->window = window;
    TRY(NEW_ZERO_ARRAY(&c->length, slots, "the slots of a KV cache"));
    TRY(NEW_ZERO_ARRAY(&c->place, m->config.layers, "the layers of a KV cache"));
    TRY(make_stores(c));
    if (window.positions > 0)
        TRY(NEW_ZERO_ARRAY(&c->largest_keys, m->config.layers * slots, "the norms of keys"));
    *out = c;
    c = NULL;
out:
    cache_free(c);
    return status;
}

/* Those that grow. */
static void free_buffers(const struct cache *c, struct store *s)
{
    struct device *dev = c->model->device;

    device_lock(dev);
    dev->ops->buffer_free(dev, s->buffer);
    dev->ops->buffer_free(dev, s->norms);
    dev->ops->buffer_free(dev, s->gates);
    device_unlock(dev);
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->stores; i++) {
        struct device *dev = c->model->device;

        free_buffers(c, &c->store[i]);
        device_lock(dev);
        dev->ops->buffer_free(dev, c->store[i].first_keys);
        device_unlock(dev);
        mem_free(c->store[i].held);
    }
    mem_free(c->length);
    mem_free(c->place);
    mem_free(c->largest_keys);
    mem_free(c);
}

void cache_clear(struct cache *c, int64_t slot)
{
    c->length[slot] = 0;
    for (int i = 0; i < c->stores; i++)
        c->store[i].held[slot] = (struct held){ 0 };
    for (int64_t n = 0; c->largest_keys && n < c->model->config.layers; n++)
        *cache_largest_key(c, n, slot) = 0.0;
}

int64_t cache_length(const struct cache *c, int64_t slot)
{
    return c->length[slot];
}

int cache_stores(const struct cache *c)
{
    return c->stores;
}

int cache_store(const struct cache *c, int64_t layer)
{
    return c->place[layer].store;
}

int64_t cache_first(const struct cache *c, int store, int64_t slot)
{
    return c->store[store].held[slot].first;
}

void cache_advance(struct cache *c, int64_t slot, int64_t count)
{
    c->length[slot] += count;
}

/* A layer's own window is what its queries see, whatever the scores. */
double cache_score_limit(const struct cache *c, int64_t layer)
{
    int64_t own = model_position(c->model, layer)->window;

    return c->window.positions > 0 && (own == 0 || own > c->window.positions) ? c->window.score
                                                                              : 0.0;
}

double *cache_largest_key(struct cache *c, int64_t layer, int64_t slot)
{
    return &c->largest_keys[layer * c->slots + slot];
}

/* ---- views */

/* Layer number `layer` of a store. */
static struct kv all_slots(const struct cache *c, const struct store *s, int64_t layer)
{
    const struct alibi_config *config = &c->model->config;
    int64_t Hkv = config->kv_heads, D = config->width / config->heads;
    struct tensor k = tensor_4(s->buffer, c->model->type, c->slots, s->capacity, Hkv, D), v = k;
    struct tensor norms =
        tensor_3(s->norms, dtype_sums(c->model->type), c->slots, Hkv, attention_tiles(s->capacity));
    struct tensor gates =
        tensor_4(s->gates, norms.type, 2, c->slots, most_gates(c->model), s->capacity);

    k.data = tensor_at(k, 2 * layer * tensor_count(k));
    v.data = tensor_at(k, tensor_count(k));
    norms.data = tensor_at(norms, layer * tensor_count(norms));
    gates.data = s->gates ? tensor_at(gates, layer * tensor_count(gates)) : NULL;
    return (struct kv){ k, v, norms, gates };
}

struct kv cache_sinks(const struct cache *c, int64_t layer)
{
    const struct alibi_config *config = &c->model->config;
    struct place at = c->place[layer];
    const struct store *s = &c->store[at.store];
    struct tensor k = tensor_4(s->first_keys, c->model->type, c->slots, s->sinks, config->kv_heads,
                               config->width / config->heads),
                  v;

    k.data = tensor_at(k, 2 * at.layer * tensor_count(k));
    v = k;
    v.data = tensor_at(k, tensor_count(k));
    return (struct kv){ .k = k, .v = v };
}

struct kv cache_all(const struct cache *c, int64_t layer)
{
    struct place at = c->place[layer];

    return all_slots(c, &c->store[at.store], at.layer);
}

/* `length` positions of one slot, from place `at` of its buffer. */
static struct kv slot_part(const struct cache *c, const struct store *s, int64_t layer,
                           int64_t slot, int64_t at, int64_t length)
{
    struct kv kv = all_slots(c, s, layer);
    int64_t offset = slot * kv.k.stride[0] + at * kv.k.stride[1];

    kv.k.data = tensor_at(kv.k, offset);
    kv.v.data = tensor_at(kv.v, offset);
    kv.norms.data = tensor_at(kv.norms, slot * kv.norms.stride[0]);
    if (kv.gates.data)
        kv.gates.data = tensor_at(kv.gates, slot * kv.gates.stride[1] + at);
    kv.k.shape[0] = kv.v.shape[0] = kv.norms.shape[0] = kv.gates.shape[1] = 1;
    kv.k.shape[1] = kv.v.shape[1] = kv.gates.shape[3] = length;
    return kv;
}

struct kv cache_slot(const struct cache *c, int64_t layer, int64_t slot, int64_t from,
                     int64_t length)
{
    struct place at = c->place[layer];
    const struct store *s = &c->store[at.store];

    return slot_part(c, s, at.layer, slot, from - s->held[slot].first, length);
}

/* ---- room */

static alibi_status new_buffer(const struct cache *c, const struct store *s, void **out,
                               enum dtype type, int64_t heads, int64_t per_head,
                               int64_t per_position)
{
    const int64_t factors[6] = { s->layers, c->slots,     heads,
                                 per_head,  per_position, (int64_t)dtype_bytes(type) };
    size_t bytes = 0;

    if (!size_product(&bytes, factors, 6))
        return fail(ALIBI_MEMORY, "a KV cache of %lld positions does not fit in memory",
                    (long long)s->capacity);
    return c->model->device->ops->buffer_new(c->model->device, out, bytes, "the KV cache");
}

/* Copies a slot's positions from `first` on to the front of the slot in `to`, with their norms.
 * `to` may be `from` itself if the positions do not overlap. */
static alibi_status copy_slot(const struct cache *c, const struct store *to,
                              const struct store *from, int64_t slot, int64_t first)
{
    struct device *dev = c->model->device;
    int64_t count = c->length[slot] - first;

    for (int64_t n = 0; count > 0 && n < from->layers; n++) {
        struct kv there = slot_part(c, to, n, slot, 0, count);
        struct kv here = slot_part(c, from, n, slot, first - from->held[slot].first, count);

        TRY_RETURN(dev->ops->copy(dev, there.k, here.k));
        TRY_RETURN(dev->ops->copy(dev, there.v, here.v));
        if (here.gates.data)
            TRY_RETURN(dev->ops->copy(dev, gates_as_rows(there.gates), gates_as_rows(here.gates)));
        TRY_RETURN(dev->ops->attention_norms(dev, there.norms, there.k, 0, ragged_none()));
    }
    return ALIBI_OK;
}

/* The first position of a slot that is still needed. */
static int64_t first_needed(const struct cache *c, const struct store *s, int64_t slot)
{
    int64_t first = (c->length[slot] - s->window) / ATTENTION_TILE * ATTENTION_TILE;

    return s->window > 0 && first > s->held[slot].first ? first : s->held[slot].first;
}

/* Moves every slot to larger buffers, with room for `needed` positions in one. */
static alibi_status grow(const struct cache *c, struct store *s, int64_t needed)
{
    alibi_status status;
    enum dtype type = c->model->type;
    int64_t Hkv = c->model->config.kv_heads, gates = most_gates(c->model);
    struct store larger = *s;

    larger.buffer = larger.norms = larger.gates = NULL;
    larger.capacity = s->capacity ? s->capacity : ATTENTION_TILE;
    while (larger.capacity < (s->window > 0 ? 2 : 1) * needed)
        larger.capacity *= 2; /* a window needs twice its size, to drop from */
    TRY(new_buffer(c, &larger, &larger.buffer, type, Hkv, 2 * larger.capacity,
                   c->model->config.width / c->model->config.heads));
    TRY(new_buffer(c, &larger, &larger.norms, dtype_sums(type), Hkv,
                   attention_tiles(larger.capacity), 1));
    if (gates > 0)
        TRY(new_buffer(c, &larger, &larger.gates, dtype_sums(type), gates, 2 * larger.capacity, 1));
    for (int64_t slot = 0; slot < c->slots; slot++)
        TRY(copy_slot(c, &larger, s, slot, first_needed(c, s, slot)));
    for (int64_t slot = 0; slot < c->slots; slot++)
        s->held[slot] = (struct held){ .first = first_needed(c, s, slot) };
    free_buffers(c, s);
    *s = larger;
    larger.buffer = larger.norms = larger.gates = NULL;
out:
    free_buffers(c, &larger);
    return status;
}

static alibi_status reserve(const struct cache *c, struct store *s, int64_t slot, int64_t length)
{
    struct held *held = &s->held[slot];
    int64_t first = first_needed(c, s, slot), dropped = first - held->first;

    if (length - held->first <= s->capacity && !held->torn)
        return ALIBI_OK;
    if (length - first > s->capacity || dropped < c->length[slot] - first)
        return grow(c, s, length - first);
    held->torn = true;
    TRY_RETURN(copy_slot(c, s, s, slot, first));
    *held = (struct held){ .first = first };
    return ALIBI_OK;
}

alibi_status cache_reserve(struct cache *c, int64_t slot, int64_t length)
{
    for (int i = 0; i < c->stores; i++) {
        struct store *s = &c->store[i];

        if (s->sinks > 0 && !s->first_keys)
            TRY_RETURN(new_buffer(c, s, &s->first_keys, c->model->type, c->model->config.kv_heads,
                                  2 * s->sinks, c->model->config.width / c->model->config.heads));
        TRY_RETURN(reserve(c, s, slot, length));
    }
    return ALIBI_OK;
}
