/* normal.h - text before it is cut: in normalization form C (normal.c), by Unicode 9 as in Hugging
 * Face's library, or with blanks for U+2581, and with a blank before it */
#ifndef NORMAL_H
#define NORMAL_H

#include "text/pattern.h"

struct normal_code {
    uint32_t code;
    uint8_t order;
    int64_t at;
};

/* Where a cluster starts: no character before it and none after it change each other. */
struct normal_start {
    size_t from, to; /* in the text, and in its normalized form */
};

/* A normalized text; start from {0}. */
struct normal {
    struct text text;
    struct normal_start *starts; /* ascending; the last is the end of both */
    int64_t start_count, start_capacity;

    struct normal_code *codes; /* scratch */
    int64_t code_count, code_capacity;
};
void normal_fini(struct normal *n);

enum normal_form { NORMAL_AS_IS, NORMAL_C, NORMAL_BLANKS };

/* prefix: a blank is put before the text. It belongs to the first cluster. */
alibi_status normal_make(struct normal *n, enum normal_form form, bool prefix, const char *text,
                         size_t bytes);

/* Whether the text has the form, for sure. */
bool normal_already(enum normal_form form, const char *text, size_t bytes);
/* The start of the last cluster in form C, which text that follows may change. */
size_t normal_whole(const char *text, size_t bytes);

#endif
