/* token_names.h - from a token's name, as a file spells it, to its id
 *
 * Sorted by a hash of the name, then by the name, with an index on the leading bits of the hash.
 * Files choose the names, so equal hashes must be expected in any number: then they cost a binary
 * search, not a walk. */
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
    int32_t *starts; /* [1 << bits, and one more] where the names begin whose hash leads with these
                        bits */
    int bits;
};

/* Sorts `count` names, which have name and id. ALIBI_BAD_INPUT if one comes twice. */
alibi_status token_names_sort(struct token_names *n, const char *path);
/* The id of the name that is `left` and then `right`; -1: there is none. */
int32_t token_names_find(const struct token_names *n, struct slice left, struct slice right);
void token_names_fini(struct token_names *n);

#endif
