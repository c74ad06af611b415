/* normal.h - text in normalization form C (normal.c), by Unicode 9 as Hugging Face's library */
#ifndef NORMAL_H
#define NORMAL_H

#include "text/pattern.h"

struct normal_code {
    uint32_t code;
    uint8_t order;
    size_t at;
};

/* Where a cluster starts: no character before it and none after it change each other. */
struct normal_start {
    size_t from, to; /* in the text, and in its normalized form */
};

/* A normalized text; start from {0}. */
struct normal {
    struct text text;
    struct normal_start *starts; /* ascending; the last is the end of both */
    size_t start_count, start_capacity;

    struct normal_code *codes; /* scratch */
    size_t code_count, code_capacity;
};
void normal_fini(struct normal *n);
alibi_status normal_make(struct normal *n, const char *text, size_t bytes);

/* Whether the text is normalized, for sure. */
bool normal_already(const char *text, size_t bytes);
/* The start of the last cluster, which text that follows may change. */
size_t normal_whole(const char *text, size_t bytes);

#endif
