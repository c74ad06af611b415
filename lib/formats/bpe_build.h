/* bpe_build.h - a struct bpe_file while it is built, from either kind of file
 *
 * Until bpe_build_end() a token is known by its name, as the file spells it. Then names become
 * bytes. */
#ifndef BPE_BUILD_H
#define BPE_BUILD_H

#include <string.h>

#include "formats/scan.h"

/* ---- from a token's name, as a file spells it, to its id
 *
 * Sorted by a hash of the name, then by the name, with an index on the leading bits of the hash.
 * A file may be written so that many names have equal hashes. Those cost a binary search, not a
 * linear one. */

struct token_name {
    uint64_t hash;
    struct slice name;
    int32_t id;
};

struct token_names {
    struct token_name *at;
    int64_t count;
    int32_t *starts; /* [(1 << bits) + 1] the first name for each value of the leading bits */
    int bits;
};

/* The id of the name that is `left` and then `right`; -1: there is none. */
int32_t token_names_find(const struct token_names *n, struct slice left, struct slice right);

/* ---- the build */

struct bpe_build {
    struct scan scan;         /* of the file with the vocabulary; its strings become the storage */
    struct bpe_file *file;    /* tokens are names until the end */
    struct token_names names; /* of the vocabulary */

    /* what the steps have so far (tokenizer_steps.c) */
    bool byte_level, metaspace, replaces; /* two pre-tokenizers, the normalizer Replace */
    bool text_in_template;
    const char *template_begin, *template_end; /* tokens before and after a text; NULL: none */
    size_t template_at;                        /* its list of tokens; 0: no template */
};

/* Whether the text is small enough, and UTF-8. */
alibi_status bpe_check_text(struct slice text, const char *path);

/* Checks the text and allocates memory for its names. */
alibi_status bpe_build_init(struct bpe_build *b, struct slice text, const char *path);
void bpe_build_fini(struct bpe_build *b);

/* {name: id, ...} at the place of the scan. Ids are 0..count-1, each once. */
alibi_status bpe_build_vocab(struct bpe_build *b);
/* Adds a merge to file->merges, which has room for it. `place` is for messages. A repeated merge
 * has the rank of its last occurrence. */
alibi_status bpe_build_merge(struct bpe_build *b, const struct scan *place, struct slice left,
                             struct slice right);
/* The same for "left right". */
alibi_status bpe_build_merge_line(struct bpe_build *b, const struct scan *place, struct slice line);
/* Called after the added tokens. The caller owns the file. */
alibi_status bpe_build_end(struct bpe_build *b, struct bpe_file **out);

static inline bool slice_begins(struct slice s, const char *with)
{
    return s.bytes >= strlen(with) && memcmp(s.at, with, strlen(with)) == 0;
}

/* Writes "<0xXX>" with the byte, and a 0 after it; returns 6. */
size_t byte_name_put(char out[8], unsigned char byte);

/* Whether every character of the name is the letter of a byte, and whether all are ASCII: then each
 * letter is its byte. */
bool name_is_letters(struct slice name);
bool name_is_ascii(struct slice name);

/* Reads the steps at these places, 0: absent, before the model: they say which kind it is
 * (tokenizer_steps.c). */
alibi_status bpe_build_steps(struct bpe_build *b, size_t normalizer, size_t pre_tokenizer,
                             size_t post_processor, size_t decoder);
/* The added tokens of a tokenizer.json, at the place of the scan, after the vocabulary
 * (tokenizer_added.c). */
alibi_status bpe_build_added(struct bpe_build *b);
/* Finds the tokens of the template among them. */
alibi_status bpe_build_template(struct bpe_build *b);

/* A flag that may be missing, or null: then it keeps its value. */
alibi_status bpe_read_flag(struct bpe_build *b, const struct scan_member *m, bool *flag);
alibi_status bpe_expect_text(struct bpe_build *b, const struct scan_member *m, const char *text);

#endif
