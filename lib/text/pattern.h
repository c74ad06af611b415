/* pattern.h - between pattern.c, pattern_translate.c, pattern_cost.c and cutter.c */
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
    bool simple[BPE_SPLITS_MAX];
    int count;
};

/* Of the calling thread: whether PCRE2 was refused memory since this was last set to false. The
 * message is made then. */
extern _Thread_local bool pattern_memory_failed;
alibi_status pattern_out_of_memory(void);

enum { PATTERN_BYTES_MAX = 16384 };

/* Appends what PCRE2 calls the expression that `pattern` is in Oniguruma's (Ruby's) spelling: plain
 * ASCII that matches the same. What cannot be said, or is not known to mean the same, is
 * ALIBI_BAD_INPUT with its name and its byte. *simple: the time of an attempt to match grows with
 * the text it looks at, not faster. */
alibi_status pattern_translate(struct text *out, bool *simple, const char *pattern,
                               const char *path);

/* What an expression costs, told item by item (pattern_cost.c). */
struct pattern_cost {
    size_t item;    /* where what came last starts */
    int repeats;    /* long ones in this alternative so far */
    size_t failing; /* what came behind two of them and can fail */
    bool simple;
};
struct pattern_cost pattern_cost_start(void);
void pattern_cost_item(struct pattern_cost *c, size_t start);
void pattern_cost_repeat(struct pattern_cost *c, bool group, int low,
                         int high);                    /* of the last item; high < 0: no limit */
void pattern_cost_alternative(struct pattern_cost *c); /* "|", or the end */

#endif
