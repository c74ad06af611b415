/* tokenizer.h - what tokenizer.c and encoder.c know of a kind of tokenizer: a row of functions
 *
 * A new kind is one file with such a row, and its place in the table of tokenizer.c. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <stdatomic.h>

#include "base/json.h"
#include "formats/scan.h"
#include "text/text.h"

struct tokenizer_kind {
    const char *type;

    /* Ours, {"type": ...}, from its start; NULL: the kind has a file of another form. */
    alibi_status (*read)(alibi_tokenizer **out, struct scan *s);

    alibi_status (*format)(const alibi_tokenizer *t, struct text *json);
    void (*free)(alibi_tokenizer *t);
    const char *(*bytes)(const alibi_tokenizer *t, int32_t id,
                         size_t *bytes); /* as tokenizer_bytes; the id is in the range */
    const char *(*text)(const alibi_tokenizer *t, int32_t id,
                        size_t *bytes); /* as alibi_tokenizer_decode() writes it */

    /* What an encoder keeps, for texts of about that many bytes; NULL: nothing. */
    alibi_status (*state_new)(void **out, const alibi_tokenizer *t, size_t bytes);
    void (*state_free)(void *state);
    alibi_status (*run)(const alibi_tokenizer *t, void *state, const struct stretch *s,
                        struct ids *ids, size_t *reached);
    alibi_status (*end)(const alibi_tokenizer *t, struct slice tail, struct ids *ids);
};

extern const struct tokenizer_kind tokenizer_kind_bytes, tokenizer_kind_bpe, tokenizer_kind_words;

/* The first member of the struct of every kind. */
struct alibi_tokenizer {
    const struct tokenizer_kind *kind;
    atomic_int owners;
    int64_t vocab;
    int32_t end;
    uint32_t checksum;
};

/* Fills in the above but for kind, vocab and end; the last thing that the making of a tokenizer
 * does. */
alibi_status tokenizer_finish(alibi_tokenizer *t);

/* As encoder_new(), with memory that fits texts of about `bytes` bytes. */
alibi_status encoder_new_for(struct encoder **out, const alibi_tokenizer *t, size_t bytes);

/* For tables of tokens by their text. Nothing secret goes into it: who writes a vocabulary can make
 * all its tokens collide, and then a look-up takes time in proportion to the vocabulary. Texts
 * cannot do that to a vocabulary that was not made for it. */
static inline size_t tokenizer_hash(const char *at, size_t bytes)
{
    uint64_t h = bytes;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)at[i]) * 0x9E3779B97F4A7C15u;
    return (size_t)(h ^ h >> 32);
}

/* What `end` is for kinds that end every document the same way. */
alibi_status tokenizer_append_end(const alibi_tokenizer *t, struct slice tail, struct ids *ids);

#endif
