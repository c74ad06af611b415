/* bpe_cache.c - ids of pieces met before
 *
 * Most pieces of a text are words that were there already, so they are merged once and then copied.
 * A piece can be in one slot only and drives out what was there: frequent ones come back at once. A
 * slot is one line of the processor's cache. */
#include "text/bpe.h"

enum { SLOT_BITS_MIN = 6, SLOT_BITS_MAX = 16, BYTES_PER_SLOT = 16 };

_Static_assert(sizeof(struct cached) == 64, "a slot is a cache line");

#define EIGHT_ONES 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF
const unsigned char piece_ones[2 * sizeof(struct piece_key)] = { EIGHT_ONES, EIGHT_ONES,
                                                                 EIGHT_ONES };

alibi_status piece_cache_init(struct piece_cache *c, size_t text_bytes)
{
    int bits = SLOT_BITS_MIN;

    while (bits < SLOT_BITS_MAX && ((size_t)BYTES_PER_SLOT << bits) < text_bytes)
        bits++;
    c->shift = 64 - bits;
    return NEW_ZERO_ARRAY(&c->slots, (int64_t)1 << bits, "the pieces of an encoder");
}

void piece_cache_fini(struct piece_cache *c)
{
    mem_free(c->slots);
    *c = (struct piece_cache){ 0 };
}
