/* cache.c - the KV cache: keys and values of several sequences, each in a slot
 *
 * Layers with equally wide windows and as many sinks share a store:
 *
 *   keys and values  [layers][keys, values][slots, capacity, Hkv, D]
 *   norms            [layers][slots, Hkv, tiles of capacity]     by which attention skips tiles
 *   sinks            [layers][keys, values][slots, sinks, Hkv, D]
 *   sums of gates    [layers][2, slots, G, capacity]             G of the layer that has most
 *
 * The capacity is common to all slots of a store. Without a window, row p of a slot is position p,
 * and the capacity doubles when a sequence reaches it, so that appending a token costs constant
 * time on average; a failure to grow leaves the store as it was.
 *
 * With a window, the rows become a ring as soon as that is smaller. Position p is written twice, to
 * the rows p % R and p % R + R of 2 R. So the last R positions are side by side wherever the ring
 * is cut, and no operation has to know about it: those of a sequence of `length` tokens end at row
 * (length - 1) % R + R. R is a window and the tokens of a pass: nothing that a failed pass has
 * written was still needed. Memory and time per token do not grow with the text. */
#include "model/walk.h"

struct store {
    int64_t window; /* 0: every key is seen */
    int64_t sinks;  /* first keys that are kept apart */
    int64_t layers, capacity;
    int64_t ring; /* R, a multiple of a tile; 0: row p is position p */
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
    for (int64_t n = 0; n < m->config.layers; n++) { /* the store of each layer */
        const struct position *p = model_position(m, n);
        int64_t own = narrower(window.positions, p->window);
        int i = 0;

        while (i < c->stores && (c->store[i].window != own || c->store[i].sinks != p->sinks))
            i++;
        if (i == c->stores)
            c->store[c->stores++] = (struct store){ .window = own, .sinks = p->sinks };
        c->place[n] = (struct place){ i, c->store[i].layers++ };
    }
    if (window.positions > 0)
        TRY(NEW_ZERO_ARRAY(&c->largest_keys, m->config.layers * slots, "the norms of keys"));
    *out = c;
    c = NULL;
out:
    cache_free(c);
    return status;
}

/* Those that grow; the device is locked. */
static void free_buffers(const struct cache *c, struct store *s)
{
    struct device *dev = c->model->device;

    dev->ops->buffer_free(dev, s->buffer);
    dev->ops->buffer_free(dev, s->norms);
    dev->ops->buffer_free(dev, s->gates);
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    device_lock(c->model->device);
    for (int i = 0; i < c->stores; i++) {
        free_buffers(c, &c->store[i]);
        c->model->device->ops->buffer_free(c->model->device, c->store[i].first_keys);
    }
    device_unlock(c->model->device);
    mem_free(c->length);
    mem_free(c->place);
    mem_free(c->largest_keys);
    mem_free(c);
}

void cache_clear(struct cache *c, int64_t slot)
{
    c->length[slot] = 0;
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

int64_t cache_window(const struct cache *c, int64_t layer)
{
    return c->store[c->place[layer].store].window;
}

/* The position of row 0, for the keys before position `end`. */
static int64_t base_of(const struct store *s, int64_t end)
{
    int64_t lap = s->ring > 0 ? (end - 1) / s->ring : 0;

    return lap > 1 ? (lap - 1) * s->ring : 0;
}

int64_t cache_row(const struct cache *c, int store, int64_t position)
{
    return position - base_of(&c->store[store], position + 1);
}

int64_t cache_other_row(const struct cache *c, int store, int64_t position)
{
    int64_t R = c->store[store].ring, row = cache_row(c, store, position);

    return R == 0 ? row : row < R ? row + R : row - R;
}

/* A multiple of a tile, so that norms of tiles are those of the rows. */
static int64_t first_seen(const struct store *s, int64_t start)
{
    return s->ring > 0 ? attention_first_key(start, s->window) / ATTENTION_TILE * ATTENTION_TILE
                       : 0;
}

int64_t cache_first(const struct cache *c, int64_t layer, int64_t start)
{
    return first_seen(&c->store[c->place[layer].store], start);
}

void cache_advance(struct cache *c, int64_t slot, int64_t count)
{
    c->length[slot] += count;
}

/* Rows past the length are never read, and those that a ring gave up for them not needed. */
void cache_drop_last(struct cache *c, int64_t slot)
{
    c->length[slot]--;
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

/* `count` rows of one slot; norms begin with the tile of the first. */
static struct kv slot_rows(const struct cache *c, const struct store *s, int64_t layer,
                           int64_t slot, int64_t row, int64_t count)
{
    struct kv kv = all_slots(c, s, layer);
    int64_t offset = slot * kv.k.stride[0] + row * kv.k.stride[1];

    kv.k.data = tensor_at(kv.k, offset);
    kv.v.data = tensor_at(kv.v, offset);
    kv.norms.data = tensor_at(kv.norms, slot * kv.norms.stride[0] + row / ATTENTION_TILE);
    if (kv.gates.data)
        kv.gates.data = tensor_at(kv.gates, slot * kv.gates.stride[1] + row);
    kv.k.shape[0] = kv.v.shape[0] = kv.norms.shape[0] = kv.gates.shape[1] = 1;
    kv.k.shape[1] = kv.v.shape[1] = kv.gates.shape[3] = count;
    return kv;
}

struct kv cache_slot(const struct cache *c, int64_t layer, int64_t slot, int64_t from, int64_t end)
{
    struct place at = c->place[layer];
    const struct store *s = &c->store[at.store];

    return slot_rows(c, s, at.layer, slot, from - base_of(s, end), end - from);
}

/* ---- rings */

static alibi_status copy_rows(const struct cache *c, struct kv to, struct kv from)
{
    struct device *dev = c->model->device;

    TRY_RETURN(dev->ops->copy(dev, to.k, from.k));
    TRY_RETURN(dev->ops->copy(dev, to.v, from.v));
    return from.gates.data ? dev->ops->copy(dev, gates_as_rows(to.gates), gates_as_rows(from.gates))
                           : ALIBI_OK;
}

/* The norms of the tiles of `count` rows. */
static alibi_status find_norms(const struct cache *c, const struct store *s, int64_t layer,
                               int64_t slot, int64_t row, int64_t count)
{
    int64_t within = row % ATTENTION_TILE;
    struct kv kv = slot_rows(c, s, layer, slot, row - within, within + count);

    return c->model->device->ops->attention_norms(c->model->device, kv.norms, kv.k, within);
}

/* Copies the positions start..end-1 of a ring from the rows of a pass that ends with them to their
 * other rows: those of the lap before from the lower half, those of the last lap from the upper. */
static alibi_status mirror(const struct cache *c, const struct store *s, int64_t layer,
                           int64_t slot, int64_t start, int64_t end)
{
    int64_t base = base_of(s, end), middle = base + s->ring;
    int64_t low = middle < end ? middle : end, high = middle > start ? middle : start;

    if (s->ring == 0)
        return ALIBI_OK;
    if (start < low) {
        TRY_RETURN(copy_rows(c, slot_rows(c, s, layer, slot, start - base + s->ring, low - start),
                             slot_rows(c, s, layer, slot, start - base, low - start)));
        TRY_RETURN(find_norms(c, s, layer, slot, start - base + s->ring, low - start));
    }
    if (high < end) {
        TRY_RETURN(copy_rows(c, slot_rows(c, s, layer, slot, high - middle, end - high),
                             slot_rows(c, s, layer, slot, high - base, end - high)));
        TRY_RETURN(find_norms(c, s, layer, slot, high - middle, end - high));
    }
    return ALIBI_OK;
}

alibi_status cache_mirror(const struct cache *c, int64_t layer, int64_t slot, int64_t start,
                          int64_t end)
{
    struct place at = c->place[layer];

    return mirror(c, &c->store[at.store], at.layer, slot, start, end);
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

/* The rows of a ring in which a pass over `count` tokens overwrites no key that it needs, nor the
 * tiles that those are in. */
static int64_t ring_rows(const struct store *s, int64_t count)
{
    return attention_tiles(s->window + count + ATTENTION_TILE - 2) * ATTENTION_TILE;
}

/* The layout of a store in which `count` tokens make a sequence `length` long. */
static struct store layout_for(const struct store *s, int64_t count, int64_t length)
{
    struct store larger = *s;
    int64_t ring = s->window > 0 ? ring_rows(s, count) : 0;

    larger.buffer = larger.norms = larger.gates = NULL;
    if (!larger.capacity)
        larger.capacity = ATTENTION_TILE;
    while (larger.capacity < length)
        larger.capacity *= 2;
    if (ring > 0 && (s->ring > 0 || larger.capacity > ring)) {
        larger.ring = ring;
        larger.capacity = 2 * ring;
    }
    return larger;
}

/* Moves what is still needed of every slot to larger buffers, of another layout. */
static alibi_status grow(const struct cache *c, struct store *s, int64_t count, int64_t length)
{
    alibi_status status;
    enum dtype type = c->model->type;
    int64_t Hkv = c->model->config.kv_heads, gates = most_gates(c->model);
    struct store larger = layout_for(s, count, length);

    TRY(new_buffer(c, &larger, &larger.buffer, type, Hkv, 2 * larger.capacity,
                   c->model->config.width / c->model->config.heads));
    TRY(new_buffer(c, &larger, &larger.norms, dtype_sums(type), Hkv,
                   attention_tiles(larger.capacity), 1));
    if (gates > 0)
        TRY(new_buffer(c, &larger, &larger.gates, dtype_sums(type), gates, 2 * larger.capacity, 1));
    for (int64_t slot = 0; slot < c->slots; slot++) {
        int64_t end = c->length[slot], first = larger.ring > 0 ? first_seen(&larger, end) : 0;
        int64_t to = first - base_of(&larger, end), from = first - base_of(s, end);

        for (int64_t n = 0; first < end && n < s->layers; n++) {
            TRY(copy_rows(c, slot_rows(c, &larger, n, slot, to, end - first),
                          slot_rows(c, s, n, slot, from, end - first)));
            TRY(find_norms(c, &larger, n, slot, to, end - first));
            TRY(mirror(c, &larger, n, slot, first, end));
        }
    }
    free_buffers(c, s);
    *s = larger;
    larger.buffer = larger.norms = larger.gates = NULL;
out:
    free_buffers(c, &larger);
    return status;
}

alibi_status cache_reserve(struct cache *c, int64_t slot, int64_t length)
{
    for (int i = 0; i < c->stores; i++) {
        struct store *s = &c->store[i];
        int64_t count = length - c->length[slot];
        bool fits = s->ring > 0 ? ring_rows(s, count) <= s->ring : length <= s->capacity;

        if (s->sinks > 0 && !s->first_keys)
            TRY_RETURN(new_buffer(c, s, &s->first_keys, c->model->type, c->model->config.kv_heads,
                                  2 * s->sinks, c->model->config.width / c->model->config.heads));
        if (!fits)
            TRY_RETURN(grow(c, s, count, length));
    }
    return ALIBI_OK;
}
