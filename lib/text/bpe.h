/* bpe.h - the parts of byte-level BPE: merging (bpe_merge.c), pieces met before (bpe_cache.c),
 * added tokens (bpe_added.c)
 *
 *   text -> segments between added tokens -> pieces (pattern.c) -> bytes -> merges -> ids */
#ifndef BPE_H
#define BPE_H

#include <string.h>

#include "text/text.h"

/* ---- merges (bpe_merge.c) */

/* What two neighbours become, and how soon. Open addressing, at most half full. */
struct merge_slot {
    uint64_t pair; /* left in the high half, right in the low one; MERGE_FREE: nothing here */
    int32_t rank, result;
};

#define MERGE_FREE UINT64_MAX

struct merge_table {
    struct merge_slot *slots;
    int shift; /* 64 - log2 of their number */
};

alibi_status merge_table_init(struct merge_table *t, const struct bpe_merge *merges,
                              int64_t count); /* a pair's last one holds */
void merge_table_fini(struct merge_table *t);

/* Room for merging long pieces; start from {0}. */
struct merge_room {
    int32_t *symbols, *next, *previous;
    uint64_t *heap;
    size_t capacity;
};
void merge_room_fini(struct merge_room *r);

/* Appends what is left of the piece's bytes when nothing can be merged any more. Of all pairs that
 * merge, the one of least rank goes first, and of those the leftmost. */
alibi_status merge_piece(const struct merge_table *t, const int32_t byte_ids[256],
                         struct merge_room *r, const char *piece, size_t bytes, struct ids *ids);

/* ---- pieces met before (bpe_cache.c) */

enum { CACHE_KEY_BYTES = 23, CACHE_IDS = 9 };

/* The bytes of a piece, then zeros, and the number of bytes in the last. */
struct piece_key {
    uint64_t words[3];
};

struct cached {
    struct piece_key key; /* of 0 bytes: nothing here */
    int32_t ids[CACHE_IDS], count;
};

struct piece_cache {
    struct cached *slots;
    int shift;
};

alibi_status piece_cache_init(struct piece_cache *c, size_t text_bytes);
void piece_cache_fini(struct piece_cache *c);

/* A key of bits that are set, then one of bits that are not. */
extern const unsigned char piece_ones[2 * sizeof(struct piece_key)];

/* For pieces of at most CACHE_KEY_BYTES; `readable` bytes from the first on may be read. */
static inline struct piece_key piece_key(const char *piece, size_t bytes, size_t readable)
{
    struct piece_key k = { { 0 } };

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* A copy of fixed length, what is too much masked away: no branch depends on the length, which
     * nobody can foresee. */
    if (readable >= sizeof k) {
        const unsigned char *ones = piece_ones + sizeof k - bytes;
        struct piece_key mask;
        memcpy(&mask, ones, sizeof mask);
        memcpy(&k, piece, sizeof k);
        for (int i = 0; i < 3; i++)
            k.words[i] &= mask.words[i];
        k.words[2] |= (uint64_t)bytes << 56;
        return k;
    }
#endif
    (void)readable;
    memcpy(&k, piece, bytes);
    ((char *)&k)[sizeof k - 1] = (char)bytes;
    return k;
}

/* The only place where the piece can be. */
static inline struct cached *piece_cache_slot(const struct piece_cache *c,
                                              const struct piece_key *k)
{
    uint64_t h = k->words[0] * 0x9E3779B97F4A7C15u ^ k->words[1] * 0xC2B2AE3D27D4EB4Fu ^
                 k->words[2] * 0x165667B19E3779F9u;

    h ^= h >> 29;
    return &c->slots[(h * 0xBF58476D1CE4E5B9u) >> c->shift];
}

static inline bool piece_key_equal(const struct piece_key *a, const struct piece_key *b)
{
    return ((a->words[0] ^ b->words[0]) | (a->words[1] ^ b->words[1]) |
            (a->words[2] ^ b->words[2])) == 0;
}

/* ---- added tokens (bpe_added.c) */

/* At every place of a text as many bytes may have to be compared: what the longest known tokens
 * need, and not much more. */
enum { ADDED_BYTES_MAX = 256 };

struct added_tokens {
    struct bpe_added *sorted; /* by their bytes */
    int count;
    bool first[256]; /* whether one starts with this byte */
    int only;        /* the byte that all start with; -1: they differ, or there are none */
};

struct added_match {
    enum { ADDED_NONE, ADDED_FOUND, ADDED_MAYBE } found; /* maybe: what follows the text decides */
    size_t at;
    const struct bpe_added *token;
};

alibi_status added_init(struct added_tokens *a, const struct bpe_added *tokens, int count,
                        const char *path); /* texts are lent */
void added_fini(struct added_tokens *a);

/* The first token that starts in text[from..limit), the longest there. text[0..end) is known, and
 * is the whole if `last`. */
struct added_match added_find(const struct added_tokens *a, const char *text, size_t from,
                              size_t limit, size_t end, bool last);

#endif
