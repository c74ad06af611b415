/* pattern.h - between pattern.c, which compiles, and cutter.c, which matches */
#ifndef PATTERN_H
#define PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/text.h"

/* ---- general categories by Unicode 16 (categories.c) */

/* Code points for which Unicode 14 has another category, or none. */
struct newer {
    uint64_t bits[0x110000 / 64];
    bool always; /* PCRE2 is older than that: every text counts as newer */
};
void newer_init(struct newer *n); /* starts from {0} */
/* Whether one of them occurs in the text, which is UTF-8. */
bool newer_occurs(const struct newer *n, const char *text, size_t bytes);

/* Letters, digits, marks, connectors and a few others: \w of Unicode 16. */
struct word_characters {
    uint64_t bits[0x110000 / 64];
};
void word_characters_init(struct word_characters *w); /* starts from {0} */

bool category_known(const char *name, size_t bytes); /* "L", "Lu" and so on */
/* Appends the category, or its complement, as members of a class, right for every text. */
void category_append_exact(struct text *out, const char *name, size_t bytes, bool complement);

/* The first character of valid UTF-8; returns its bytes. */
static inline size_t utf8_take(const char *at, uint32_t *code)
{
    unsigned char lead = (unsigned char)at[0];
    size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;

    *code = bytes == 1 ? lead : lead & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; i++)
        *code = (*code << 6) | ((unsigned char)at[i] & 0x3Fu);
    return bytes;
}

/* ---- compiled expressions */

/* Expression k cuts the pieces of expression k - 1. */
struct pattern {
    pcre2_general_context *memory;
    pcre2_code *codes[BPE_SPLITS_MAX];
    pcre2_code *exact[BPE_SPLITS_MAX]; /* for text with newer characters; NULL: the same */
    struct newer newer;
    char *sources[BPE_SPLITS_MAX]; /* for messages */
    bool simple[BPE_SPLITS_MAX];   /* an attempt to match takes linear time */
    int count;
};

/* Whether PCRE2 was refused memory in this thread since this was last set to false. The message is
 * recorded then. */
extern _Thread_local bool pattern_memory_failed;
alibi_status pattern_out_of_memory(void);

#endif
