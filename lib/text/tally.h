/* tally.h - distinct pieces of text, each with how often it was met */
#ifndef TALLY_H
#define TALLY_H

#include "text/arena.h"

struct piece {
    const char *at;
    int64_t count;
    uint32_t bytes;
    uint32_t hash;
};

/* The pieces of some of all hash values: shards are filled by different threads at the same time.
 * */
struct tally_shard {
    struct piece *pieces; /* in the order in which they were first met */
    int64_t count, capacity;
    uint32_t *slots; /* open addressing: 1 + index of a piece, 0 is free */
    uint32_t mask;   /* slots - 1; they are a power of two */
    size_t bytes;    /* of all pieces */
    struct arena copies;
};

enum { TALLY_SHARDS = 32 };

struct tally {
    struct tally_shard shards[TALLY_SHARDS];
};

void tally_fini(struct tally *t);  /* start from {0} */
void tally_clear(struct tally *t); /* no pieces; the memory stays for the next ones */

/* One more piece, which is lent. */
alibi_status tally_add(struct tally *t, const char *at, size_t bytes);
/* Adds what one shard of `from` has, and copies the pieces that are new. */
alibi_status tally_merge(struct tally *t, const struct tally *from, int shard);

int64_t tally_count(const struct tally *t);
size_t tally_bytes(const struct tally *t);

/* Drops every piece that was met `floor` times or less. Only for a tally that was filled by
 * tally_merge. */
alibi_status tally_drop(struct tally *t, int64_t floor);

/* All pieces as one array, lent by the tally (mem_free the array). */
alibi_status tally_list(const struct tally *t, struct piece **out, int64_t *count);

#endif
