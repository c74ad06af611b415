/* tokenizer.h - kinds of tokenizers, and the merges of BPE
 *
 * A new kind is one file with a row of functions, and an entry in the table of tokenizer.c. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <stdatomic.h>

#include "formats/scan.h"
#include "text/text.h"

struct tokenizer_kind {
    const char *type;

    /* Reads our own file, {"type": ...}; NULL: the kind has a file of another form. */
    alibi_status (*read)(alibi_tokenizer **out, struct scan *s);
    /* Makes the token `name` the end of documents; NULL: the kind has one of its own. Only before
     * the tokenizer is shared. */
    alibi_status (*set_end)(alibi_tokenizer *t, const char *name);

    alibi_status (*format)(const alibi_tokenizer *t, struct text *json);
    void (*free)(alibi_tokenizer *t);
    /* As tokenizer_bytes(), and as alibi_tokenizer_decode() writes it. The id is in the range. */
    const char *(*bytes)(const alibi_tokenizer *t, int32_t id, size_t *bytes);
    const char *(*text)(const alibi_tokenizer *t, int32_t id, size_t *bytes);

    /* The state of an encoder, for texts of about that many bytes; NULL: none. */
    alibi_status (*state_new)(void **out, const alibi_tokenizer *t, size_t bytes);
    void (*state_free)(void *state);
    alibi_status (*run)(const alibi_tokenizer *t, void *state, const struct stretch *s,
                        struct ids *ids, size_t *reached);
    /* NULL: the end id, if there is one, follows every document. */
    alibi_status (*end)(const alibi_tokenizer *t, struct slice tail, struct ids *ids);
};

extern const struct tokenizer_kind tokenizer_kind_bytes, tokenizer_kind_bpe, tokenizer_kind_words,
    tokenizer_kind_ids;

/* The first member of the struct of every kind. */
struct alibi_tokenizer {
    const struct tokenizer_kind *kind;
    atomic_int owners;
    int64_t vocab;
    int32_t begin, end; /* around documents; -1: none */
    bool drops_blank;   /* of the blanks at the start of a decoded text, one was not in the text */
    uint32_t checksum;
};

/* Sets owners and checksum: the last step of making a tokenizer. */
alibi_status tokenizer_finish(alibi_tokenizer *t);

/* ---- merges of BPE (merge.c) */

/* The merge of two neighbours, with its rank. Open addressing, at most half full. Values are in the
 * slots, unlike in base/hash.h, because encoding spends its time on these lookups. */
struct merge_slot {
    uint64_t pair; /* left in the high half, right in the low one; MERGE_FREE: free */
    int32_t rank, result;
};

#define MERGE_FREE UINT64_MAX

struct merge_table {
    struct merge_slot *slots;
    int shift; /* 64 - log2 of their number */
};

/* If a pair has several merges, the last one is used. */
alibi_status merge_table_init(struct merge_table *t, const struct bpe_merge *merges, int64_t count);
void merge_table_fini(struct merge_table *t);

/* Scratch for merging long pieces; start from {0}. */
struct merge_room {
    int32_t *symbols, *next, *previous;
    uint64_t *heap;
    size_t capacity;
};
void merge_room_fini(struct merge_room *r);

/* The symbols that a piece starts with: its bytes, or the characters that have an id, and the bytes
 * of the others. */
struct character_id {
    uint32_t code;
    int32_t id;
};

struct alphabet {
    int32_t bytes[256];
    bool characters;
    struct character_id *sorted; /* by code */
    int64_t count;
};

/* The alphabet of the file; start from {0}. */
alibi_status alphabet_init(struct alphabet *a, const struct bpe_file *f);
void alphabet_fini(struct alphabet *a);

/* Appends the symbols that remain of the piece when no more merges apply. The pair with the least
 * rank is merged first, and the leftmost of these. A piece is UTF-8, unless bytes are merged. */
alibi_status merge_piece(const struct merge_table *t, const struct alphabet *a,
                         struct merge_room *r, const char *piece, size_t bytes, struct ids *ids);

#endif
