/* pattern.h - between pattern.c, which compiles, and cutter.c, which matches */
#ifndef PATTERN_H
#define PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/text.h"

/* Expression k cuts the pieces of expression k - 1. */
struct pattern {
    pcre2_general_context *memory;
    pcre2_code *codes[BPE_SPLITS_MAX];
    char *sources[BPE_SPLITS_MAX]; /* for messages */
    bool simple[BPE_SPLITS_MAX];   /* an attempt to match takes linear time */
    int count;
};

/* Whether PCRE2 was refused memory in this thread since this was last set to false. The message is
 * recorded then. */
extern _Thread_local bool pattern_memory_failed;
alibi_status pattern_out_of_memory(void);

#endif
