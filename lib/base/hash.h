/* hash.h - a hash table over an array that its owner keeps: which item has this key?
 *
 * Open addressing with linear probing. A slot holds 1 + the index of an item; 0 is free. At most
 * half of the slots are taken, so that searches end soon. The items and their comparison are the
 * caller's:
 *
 *   uint32_t *slot = hash_slot(&table, hash);
 *
 *   while (*slot != 0 && !same(&items[*slot - 1], key))
 *       slot = hash_next(&table, slot);
 *   ... item *slot - 1, or if *slot is 0, the place for it: *slot = 1 + its index
 *
 * Adversarial input can make all items collide; then a search takes time in proportion to their
 * number. */
#ifndef HASH_H
#define HASH_H

#include <string.h>

#include "base/base.h"

struct hash {
    uint32_t *slots; /* NULL: for no items yet */
    uint32_t mask;   /* slots - 1; their number is a power of two */
};

/* Makes the table empty, with slots for `items` items. The old slots are kept if it fails. */
static inline alibi_status hash_init(struct hash *h, int64_t items, const char *what)
{
    int64_t count = 16;
    uint32_t *slots = NULL;

    while (count < 2 * items && count <= UINT32_MAX)
        count *= 2;
    if (count > UINT32_MAX)
        return fail(ALIBI_MEMORY, "not enough memory for %s: a table holds at most 2^30 items",
                    what);
    TRY_RETURN(NEW_ZERO_ARRAY(&slots, count, what));
    mem_free(h->slots);
    *h = (struct hash){ slots, (uint32_t)(count - 1) };
    return ALIBI_OK;
}

static inline void hash_fini(struct hash *h)
{
    mem_free(h->slots);
    *h = (struct hash){ 0 };
}

static inline void hash_clear(struct hash *h)
{
    memset(h->slots, 0, ((size_t)h->mask + 1) * sizeof *h->slots);
}

static inline uint32_t *hash_slot(const struct hash *h, uint64_t hash)
{
    return &h->slots[hash & h->mask];
}

static inline uint32_t *hash_next(const struct hash *h, const uint32_t *slot)
{
    return &h->slots[(uint32_t)(slot - h->slots + 1) & h->mask];
}

/* ---- values: all bits of the key reach the low bits */

static inline uint64_t hash_number(uint64_t h)
{
    h *= 0x9E3779B97F4A7C15u; /* 2^64 / the golden ratio, odd */
    return h ^ (h >> 32);
}

static inline uint64_t hash_bytes(const char *at, size_t bytes)
{
    uint64_t h = bytes, word = 0;
    uint32_t first, last;

    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        h = hash_number(h ^ word);
    }
    /* Most keys are shorter than 8 bytes. Reading some of them twice is faster than a copy of a
     * length that the compiler does not know. */
    word = 0;
    if (bytes >= sizeof first) {
        memcpy(&first, at, sizeof first);
        memcpy(&last, at + bytes - sizeof last, sizeof last);
        word = first | (uint64_t)last << 32;
    } else if (bytes > 0) {
        const unsigned char *u = (const unsigned char *)at;
        word = u[0] | (uint64_t)u[bytes / 2] << 8 | (uint64_t)u[bytes - 1] << 16;
    }
    return hash_number(hash_number(h ^ word));
}

#endif
