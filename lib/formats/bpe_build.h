/* bpe_build.h - a struct bpe_file in the making: what both kinds of files have in common
 *
 * While it is made a token is known by its name, as the file spells it; bpe_build_end() turns names
 * into the bytes they mean. */
#ifndef BPE_BUILD_H
#define BPE_BUILD_H

#include <string.h>

#include "formats/scan.h"
#include "formats/token_names.h"

struct bpe_build {
    struct scan scan;         /* of the file with the vocabulary; its strings become the storage */
    struct bpe_file *file;    /* tokens are names until the end */
    struct token_names names; /* of the vocabulary */
    bool byte_level;          /* the pre-tokenizer of that name was met */
};

/* Checks size and UTF-8, and makes room. */
alibi_status bpe_build_init(struct bpe_build *b, struct slice text, const char *path);
void bpe_build_fini(struct bpe_build *b);

/* {name: id, ...} at the place of the scan. Ids are 0..count-1, each once. */
alibi_status bpe_build_vocab(struct bpe_build *b);
/* Room for that many, then one by one. `place` is for messages. A merge that came before loses its
 * rank to the later one. */
alibi_status bpe_build_merges(struct bpe_build *b, int64_t count);
alibi_status bpe_build_merge(struct bpe_build *b, const struct scan *place, struct slice left,
                             struct slice right);
/* The same, of "left right". */
alibi_status bpe_build_merge_line(struct bpe_build *b, const struct scan *place, struct slice line);
/* After the added tokens. Hands the file over. */
alibi_status bpe_build_end(struct bpe_build *b, struct bpe_file **out);

static inline bool slice_begins(struct slice s, const char *with)
{
    return s.bytes >= strlen(with) && memcmp(s.at, with, strlen(with)) == 0;
}

/* The letter of a byte as UTF-8; its bytes, 1 or 2 (byte_letters.c). */
size_t byte_letter_put(char out[2], unsigned char byte);

/* Whether all letters of the name stand for bytes, and whether they are those bytes, which then are
 * ASCII. */
bool name_is_letters(struct slice name);
bool name_is_ascii(struct slice name);

/* The added tokens of a tokenizer.json, at the place of the scan, after the vocabulary
 * (tokenizer_added.c). */
alibi_status bpe_build_added(struct bpe_build *b);

#endif
