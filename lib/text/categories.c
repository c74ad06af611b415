/* categories.c - general categories by Unicode 16, whichever version PCRE2 knows
 *
 * Tokenizers cut by \p{L} and its like, so ids depend on the version of Unicode. Hugging Face's
 * library has version 16; Debian's PCRE2 has 14. PCRE2's own classes are fast, and right for text
 * without newer characters. For other text an expression is compiled again (pattern.c) with classes
 * that name the newer characters.
 *
 * The table is a sequence of runs of code points: a byte with the category, whether Unicode 14 has
 * another one or none, and in its high bits how many bytes of the run's length follow (0: it is 1).
 * Unicode 14 is the oldest version that the classes below extend. */
#include <stdlib.h>
#include <string.h>

#include "text/pattern.h"

static const unsigned char table[] = {
#include "text/categories.inc"
};

static const char names[][3] = { "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                 "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                 "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn" };

enum { CATEGORIES = COUNT(names), CATEGORY = 0x1F, DIFFERS = 0x20 };

struct run {
    size_t at; /* the next one in the table */
    uint32_t first, end;
    int category;
    bool differs;
};

/* Starts from {0}. */
static bool next_run(struct run *r)
{
    unsigned head;
    uint32_t length = 0;

    if (r->at >= sizeof table)
        return false;
    head = table[r->at++];
    for (unsigned i = 0; i < head >> 6; i++)
        length |= (uint32_t)table[r->at++] << (8 * i);
    r->first = r->end;
    r->end += length > 0 ? length : 1;
    r->category = head & CATEGORY;
    r->differs = (head & DIFFERS) != 0;
    return true;
}

/* The categories of a name of one or two letters, as bits; 0: there is no such name. */
static uint32_t categories_of(const char *name, size_t bytes)
{
    uint32_t set = 0;

    for (int i = 0; i < CATEGORIES && (bytes == 1 || bytes == 2); i++)
        if (memcmp(names[i], name, bytes) == 0)
            set |= 1u << i;
    return set;
}

bool category_known(const char *name, size_t bytes)
{
    return categories_of(name, bytes) != 0;
}

static void append_range(struct text *out, uint32_t first, uint32_t end)
{
    if (end > first)
        text_append(out, "\\x{%X}-\\x{%X}", (unsigned)first, (unsigned)end - 1);
}

/* A category that lost characters after Unicode 14 (Mn lost U+1171E, and Cn many), or the
 * complement of one, is listed whole. The others are PCRE2's with what they gained. Surrogates
 * occur in no text, and PCRE2 refuses them in a range. */
void category_append_exact(struct text *out, const char *name, size_t bytes, bool complement)
{
    uint32_t set = categories_of(name, bytes),
             lost = categories_of("Mn", 2) | categories_of("Cn", 2);
    bool whole = complement || (set & lost) != 0;
    uint32_t first = 0, end = 0;

    set = (complement ? ~set : set) & ~categories_of("Cs", 2);
    if (!whole)
        text_append(out, "\\p{%.*s}", (int)bytes, name);
    for (struct run r = { 0 }; next_run(&r);) {
        if ((set >> r.category & 1) == 0 || !(whole || r.differs))
            continue;
        if (r.first > end) {
            append_range(out, first, end);
            first = r.first;
        }
        end = r.end;
    }
    append_range(out, first, end);
}

static void set_bits(uint64_t *bits, uint32_t first, uint32_t end)
{
    for (uint32_t c = first; c < end; c++)
        bits[c / 64] |= (uint64_t)1 << c % 64;
}

void newer_init(struct newer *n)
{
    char version[32] = "";

    n->always = pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version) < 0 || atoi(version) < 14;
    for (struct run r = { 0 }; next_run(&r);)
        if (r.differs)
            set_bits(n->bits, r.first, r.end);
}

/* The joiners, and letters in circles and squares, which are alphabetic and no letters. */
void word_characters_init(struct word_characters *w)
{
    static const uint32_t others[][2] = { { 0x200C, 0x200E },
                                          { 0x24B6, 0x24EA },
                                          { 0x1F130, 0x1F14A },
                                          { 0x1F150, 0x1F16A },
                                          { 0x1F170, 0x1F18A } };
    uint32_t set = categories_of("L", 1) | categories_of("M", 1) | categories_of("Nd", 2) |
                   categories_of("Nl", 2) | categories_of("Pc", 2);

    for (struct run r = { 0 }; next_run(&r);)
        if (set >> r.category & 1)
            set_bits(w->bits, r.first, r.end);
    for (int i = 0; i < COUNT(others); i++)
        set_bits(w->bits, others[i][0], others[i][1]);
}

bool newer_occurs(const struct newer *n, const char *text, size_t bytes)
{
    size_t at = 0;

    while (at < bytes && !n->always) {
        uint64_t word;
        uint32_t code;

        if (bytes - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                at += sizeof word;
                continue;
            }
        }
        at += utf8_take(text + at, &code);
        if (n->bits[code / 64] >> code % 64 & 1)
            return true;
    }
    return n->always;
}
