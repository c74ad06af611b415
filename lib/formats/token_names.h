/* token_names.h - from a token's name, as a file spells it, to its id
 *
 * Sorted by a hash of the name, then by the name, with an index on the leading bits of the hash.
 * A file may be written so that many names have equal hashes. Those cost a binary search, not a
 * linear one. */
#ifndef TOKEN_NAMES_H
#define TOKEN_NAMES_H

#include "formats/formats.h"

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

/* Sorts `count` names, which have name and id. ALIBI_BAD_INPUT if one is repeated. */
alibi_status token_names_sort(struct token_names *n, const char *path);
/* The id of the name that is `left` and then `right`; -1: there is none. */
int32_t token_names_find(const struct token_names *n, struct slice left, struct slice right);
void token_names_fini(struct token_names *n);

#endif
