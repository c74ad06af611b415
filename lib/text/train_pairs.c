/* train_pairs.c - pairs by their ids, and the best of them (train_bpe.h) */
#include "text/train_bpe.h"

enum { SLOTS_FIRST = 1 << 12, PLACES_CHUNK = 1 << 20 };

void pairs_fini(struct pairs *p)
{
    mem_free(p->at);
    mem_free(p->slots);
    mem_free(p->heap);
    arena_fini(&p->places);
}

/* ---- by ids */

static uint32_t *find_slot(const struct pairs *p, uint64_t key)
{
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    uint32_t i = (uint32_t)(hash >> 32) & p->mask;

    while (p->slots[i] != 0 && p->at[p->slots[i] - 1].key != key)
        i = (i + 1) & p->mask;
    return &p->slots[i];
}

static alibi_status grow_table(struct pairs *p)
{
    uint32_t slot_count = p->slots == NULL ? SLOTS_FIRST : (p->mask + 1) * 2;
    uint32_t *slots = NULL;

    if (slot_count == 0)
        return fail(ALIBI_MEMORY, "not enough memory for a table of pairs: %lld are too many",
                    (long long)p->count);
    TRY_RETURN(mem_grow((void **)&p->at, (size_t)p->count * sizeof *p->at,
                        slot_count / 2 * sizeof *p->at, "pairs"));
    TRY_RETURN(NEW_ZERO_ARRAY(&slots, slot_count, "pairs"));
    mem_free(p->slots);
    p->slots = slots;
    p->mask = slot_count - 1;
    p->capacity = slot_count / 2;
    for (int64_t i = 0; i < p->count; i++)
        *find_slot(p, p->at[i].key) = (uint32_t)i + 1;
    return ALIBI_OK;
}

/* ---- the heap: the best candidate is at 0, the two behind the one at i are at 2 i + 1 and 2 i + 2
 * */

static bool better(const struct candidate *a, const struct candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void sink(struct pairs *p, struct candidate c)
{
    int64_t i = 0, below = 1;

    while (below < p->heap_count) {
        if (below + 1 < p->heap_count && better(&p->heap[below + 1], &p->heap[below]))
            below++;
        if (!better(&p->heap[below], &c))
            break;
        p->heap[i] = p->heap[below];
        i = below;
        below = 2 * i + 1;
    }
    p->heap[i] = c;
}

static void rise(struct pairs *p, struct candidate c)
{
    int64_t i = p->heap_count++;

    while (i > 0 && better(&c, &p->heap[(i - 1) / 2])) {
        p->heap[i] = p->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    p->heap[i] = c;
}

/* ---- both */

alibi_status pairs_add(struct pairs *p, uint64_t key, int64_t count, int64_t place_count,
                       uint32_t **places)
{
    struct pair pair = { .key = key, .count = count, .place_count = place_count };

    if (p->count == p->capacity)
        TRY_RETURN(grow_table(p));
    TRY_RETURN(RESERVE_ARRAY(&p->heap, &p->heap_capacity, p->heap_count + 1, "pairs"));
    p->places.chunk_bytes = PLACES_CHUNK;
    TRY_RETURN(arena_new(&p->places, (void **)&pair.places,
                         (size_t)place_count * sizeof *pair.places, "the places of a pair"));
    rise(p, (struct candidate){ count, key, (uint32_t)p->count });
    p->at[p->count++] = pair;
    *find_slot(p, key) = (uint32_t)p->count;
    *places = pair.places;
    return ALIBI_OK;
}

void pairs_subtract(struct pairs *p, uint64_t key, int64_t count)
{
    uint32_t slot = *find_slot(p, key);

    if (slot != 0)
        p->at[slot - 1].count -= count;
}

struct pair *pairs_take_best(struct pairs *p, int64_t min_count)
{
    while (p->heap_count > 0) {
        struct candidate c = p->heap[0];
        struct pair *pair = &p->at[c.pair];
        if (c.count == pair->count || pair->count < min_count) {
            p->heap_count--;
            if (p->heap_count > 0)
                sink(p, p->heap[p->heap_count]);
            if (c.count == pair->count && c.count >= min_count)
                return pair;
        } else {
            c.count = pair->count;
            sink(p, c);
        }
    }
    return NULL;
}
