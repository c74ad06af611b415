/* tally.c - a hash table in shards
 *
 * The upper half of a piece's hash value says which shard it is in, the lower half where it lies
 * there. A text that is written to make pieces collide makes counting slow: only the limits on
 * distinct pieces (count.c) bound how slow. */
#include "text/tally.h"

#include <string.h>

enum { SLOTS_FIRST = 512 };

static uint64_t mix(uint64_t h)
{
    h *= 0x9E3779B97F4A7C15u; /* 2^64 / the golden ratio, odd */
    return h ^ (h >> 32);
}

/* Fewer than 8 bytes as one number. Most pieces are that short, and reading them so, with parts
 * twice, is faster than a copy of unknown length. */
static uint64_t read_short(const char *at, size_t bytes)
{
    const unsigned char *u = (const unsigned char *)at;
    uint32_t first, last;

    if (bytes == 0)
        return 0;
    if (bytes < sizeof first)
        return u[0] | (uint64_t)u[bytes / 2] << 8 | (uint64_t)u[bytes - 1] << 16;
    memcpy(&first, at, sizeof first);
    memcpy(&last, at + bytes - sizeof last, sizeof last);
    return first | (uint64_t)last << 32;
}

static uint64_t hash_of(const char *at, size_t bytes)
{
    uint64_t h = bytes, word = 0;

    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        h = mix(h ^ word);
    }
    return mix(mix(h ^ read_short(at, bytes)));
}

static void shard_fini(struct tally_shard *s)
{
    mem_free(s->pieces);
    mem_free(s->slots);
    arena_fini(&s->copies);
}

void tally_fini(struct tally *t)
{
    for (int i = 0; i < TALLY_SHARDS; i++)
        shard_fini(&t->shards[i]);
}

void tally_clear(struct tally *t)
{
    for (int i = 0; i < TALLY_SHARDS; i++) {
        struct tally_shard *s = &t->shards[i];
        if (s->count > 0)
            memset(s->slots, 0, ((size_t)s->mask + 1) * sizeof *s->slots);
        s->count = 0;
        s->bytes = 0;
        arena_fini(&s->copies);
    }
}

/* ---- finding and adding */

static bool same(const struct piece *a, const struct piece *b)
{
    return a->hash == b->hash && a->bytes == b->bytes && memcmp(a->at, b->at, b->bytes) == 0;
}

/* The slot of the piece, or the free one where it belongs. */
static uint32_t *find_slot(const struct tally_shard *s, const struct piece *p)
{
    uint32_t i = p->hash & s->mask;

    while (s->slots[i] != 0 && !same(&s->pieces[s->slots[i] - 1], p))
        i = (i + 1) & s->mask;
    return &s->slots[i];
}

/* At most half of the slots are taken, so that a search ends soon. */
static alibi_status grow(struct tally_shard *s)
{
    uint32_t slot_count = s->slots == NULL ? SLOTS_FIRST : (s->mask + 1) * 2;
    uint32_t *slots = NULL;

    if (slot_count == 0)
        return fail(ALIBI_MEMORY, "not enough memory for a table of pieces: %lld are too many",
                    (long long)s->count);
    TRY_RETURN(mem_grow((void **)&s->pieces, (size_t)s->count * sizeof *s->pieces,
                        slot_count / 2 * sizeof *s->pieces, "the pieces of a text"));
    TRY_RETURN(NEW_ZERO_ARRAY(&slots, slot_count, "the pieces of a text"));
    mem_free(s->slots);
    s->slots = slots;
    s->mask = slot_count - 1;
    s->capacity = slot_count / 2;
    for (int64_t i = 0; i < s->count; i++)
        *find_slot(s, &s->pieces[i]) = (uint32_t)i + 1;
    return ALIBI_OK;
}

static alibi_status add_piece(struct tally_shard *s, const struct piece *p, bool copy)
{
    uint32_t *slot;
    struct piece kept = *p;

    if (s->count == s->capacity)
        TRY_RETURN(grow(s));
    slot = find_slot(s, p);
    if (*slot != 0) {
        s->pieces[*slot - 1].count += p->count;
        return ALIBI_OK;
    }
    if (copy) {
        char *copied = NULL;
        TRY_RETURN(arena_new(&s->copies, (void **)&copied, p->bytes, "the pieces of a text"));
        memcpy(copied, p->at, p->bytes);
        kept.at = copied;
    }
    s->pieces[s->count++] = kept;
    s->bytes += p->bytes;
    *slot = (uint32_t)s->count;
    return ALIBI_OK;
}

alibi_status tally_add(struct tally *t, const char *at, size_t bytes)
{
    uint64_t hash = hash_of(at, bytes);
    struct piece p = { at, 1, (uint32_t)bytes, (uint32_t)hash };

    return add_piece(&t->shards[(hash >> 32) % TALLY_SHARDS], &p, false);
}

alibi_status tally_merge(struct tally *t, const struct tally *from, int shard)
{
    const struct tally_shard *s = &from->shards[shard];

    for (int64_t i = 0; i < s->count; i++)
        TRY_RETURN(add_piece(&t->shards[shard], &s->pieces[i], true));
    return ALIBI_OK;
}

/* ---- the whole */

int64_t tally_count(const struct tally *t)
{
    int64_t count = 0;

    for (int i = 0; i < TALLY_SHARDS; i++)
        count += t->shards[i].count;
    return count;
}

size_t tally_bytes(const struct tally *t)
{
    size_t bytes = 0;

    for (int i = 0; i < TALLY_SHARDS; i++)
        bytes += t->shards[i].bytes;
    return bytes;
}

static alibi_status drop_from_shard(struct tally_shard *s, int64_t floor)
{
    struct tally_shard fresh = { 0 };

    for (int64_t i = 0; i < s->count; i++) {
        alibi_status status =
            s->pieces[i].count > floor ? add_piece(&fresh, &s->pieces[i], true) : ALIBI_OK;
        if (status != ALIBI_OK) {
            shard_fini(&fresh);
            return status;
        }
    }
    shard_fini(s);
    *s = fresh;
    return ALIBI_OK;
}

alibi_status tally_drop(struct tally *t, int64_t floor)
{
    for (int i = 0; i < TALLY_SHARDS; i++)
        TRY_RETURN(drop_from_shard(&t->shards[i], floor));
    return ALIBI_OK;
}

alibi_status tally_list(const struct tally *t, struct piece **out, int64_t *count)
{
    struct piece *list = NULL;
    int64_t n = 0;

    TRY_RETURN(NEW_ARRAY(&list, tally_count(t), "the pieces of a text"));
    for (int i = 0; i < TALLY_SHARDS; i++) {
        const struct tally_shard *s = &t->shards[i];
        if (s->count > 0)
            memcpy(list + n, s->pieces, (size_t)s->count * sizeof *list);
        n += s->count;
    }
    *out = list;
    *count = n;
    return ALIBI_OK;
}
