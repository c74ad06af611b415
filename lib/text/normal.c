/* normal.c - text in normalization form C (NFC), or with blanks for U+2581
 *
 *   characters -> canonical decomposition -> marks sorted by combining class -> composition
 *
 * Unicode Standard Annex 15. Text is normalized cluster by cluster: no character composes or sorts
 * across the start of a cluster. Bytes that are not UTF-8 are clusters of their own and stay. */
#include <stdlib.h>
#include <string.h>

#include "text/normal.h"

struct decomposition {
    uint32_t code, first, second; /* second 0: there is none */
};

struct mark {
    uint32_t first, last;
    uint8_t order; /* the combining class */
    bool unsure;   /* never in a normalized text, or not after every character */
};

#include "text/normal.inc"

enum {
    DECOMPOSITIONS = COUNT(decompositions),
    COMPOSITIONS = COUNT(by_parts),
    MARKS = COUNT(marks),
    FIRST_MARK = 0x300, /* every character before it is normal */
};

/* Hangul, whose syllables are computed from their letters: leading, vowel, trailing. */
enum { SYLLABLE = 0xAC00, LEAD = 0x1100, VOWEL = 0x1161, TRAIL = 0x11A7 };
enum { LEADS = 19, VOWELS = 21, TRAILS = 28, SYLLABLES = LEADS * VOWELS * TRAILS };

/* ---- tables */

static struct mark mark_of(uint32_t code)
{
    int low = 0, high = MARKS;

    while (low < high && code >= FIRST_MARK) {
        int middle = low + (high - low) / 2;
        if (code < marks[middle].first)
            high = middle;
        else if (code > marks[middle].last)
            low = middle + 1;
        else
            return marks[middle];
    }
    return (struct mark){ 0 };
}

static const struct decomposition *decomposition_of(uint32_t code)
{
    int low = 0, high = DECOMPOSITIONS;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (decompositions[middle].code == code)
            return &decompositions[middle];
        if (decompositions[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* 0: the two do not compose. */
static uint32_t composed(uint32_t first, uint32_t second)
{
    int low = 0, high = COMPOSITIONS;

    if (first - LEAD < LEADS && second - VOWEL < VOWELS)
        return SYLLABLE + ((first - LEAD) * VOWELS + second - VOWEL) * TRAILS;
    if (first - SYLLABLE < SYLLABLES && (first - SYLLABLE) % TRAILS == 0 &&
        second - TRAIL - 1 < TRAILS - 1)
        return first + second - TRAIL;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct decomposition *d = &decompositions[by_parts[middle]];
        if (d->first == first && d->second == second)
            return d->code;
        if (d->first < first || (d->first == first && d->second < second))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* ---- one cluster */

static alibi_status push(struct normal *n, uint32_t code)
{
    TRY_RETURN(RESERVE_ARRAY(&n->codes, &n->code_capacity, n->code_count + 1, "a normalized text"));
    n->codes[n->code_count++] = (struct normal_code){ code, mark_of(code).order, 0 };
    return ALIBI_OK;
}

/* A first part may decompose again, a second part never does. */
static alibi_status decompose(struct normal *n, uint32_t code)
{
    const struct decomposition *d = decomposition_of(code);

    if (code - SYLLABLE < SYLLABLES) {
        uint32_t trail = (code - SYLLABLE) % TRAILS;
        TRY_RETURN(push(n, LEAD + (code - SYLLABLE) / (VOWELS * TRAILS)));
        TRY_RETURN(push(n, VOWEL + (code - SYLLABLE) / TRAILS % VOWELS));
        return trail > 0 ? push(n, TRAIL + trail) : ALIBI_OK;
    }
    if (d == NULL)
        return push(n, code);
    TRY_RETURN(decompose(n, d->first));
    return d->second != 0 ? push(n, d->second) : ALIBI_OK;
}

static int compare_orders(const void *a, const void *b)
{
    const struct normal_code *s = a, *t = b;

    return s->order != t->order ? (s->order < t->order ? -1 : 1)
                                : (s->at > t->at) - (s->at < t->at);
}

/* Sorts each run of marks by class; equal classes keep their order. */
static void sort_marks(struct normal *n)
{
    for (int64_t i = 0, end; i < n->code_count; i = end + 1) {
        for (end = i; end < n->code_count && n->codes[end].order != 0; end++)
            n->codes[end].at = end;
        if (end > i + 1)
            qsort(n->codes + i, (size_t)(end - i), sizeof *n->codes, compare_orders);
    }
}

/* A character composes with the last starter unless one between them has its class, or a higher
 * one: then it is blocked. */
static void compose(struct normal *n)
{
    int64_t starter = -1, kept = 0;

    for (int64_t i = 0; i < n->code_count; i++) {
        struct normal_code c = n->codes[i];
        bool next = starter >= 0 && starter + 1 == kept;
        bool open = starter >= 0 && (next || n->codes[kept - 1].order < c.order);
        uint32_t both = open ? composed(n->codes[starter].code, c.code) : 0;
        if (both != 0) {
            n->codes[starter].code = both;
            continue;
        }
        if (c.order == 0)
            starter = kept;
        n->codes[kept++] = c;
    }
    n->code_count = kept;
}

/* ---- clusters */

/* Bytes of the character, 0 if there is none. */
static size_t character_at(const char *text, size_t bytes, uint32_t *code)
{
    unsigned char lead = bytes > 0 ? (unsigned char)text[0] : 0;
    size_t count = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;

    if (bytes < count || utf8_valid_prefix(text, count) != count)
        return 0;
    return utf8_take(text, code);
}

/* Whether the character may join those before it. */
static bool joins(uint32_t code)
{
    struct mark m = mark_of(code);

    while (m.unsure && m.order == 0) { /* its first part decides */
        const struct decomposition *d = decomposition_of(code);
        if (d == NULL)
            return true;
        code = d->first;
        m = mark_of(code);
    }
    return m.order != 0;
}

/* The end of the cluster that starts at `at`. */
static size_t cluster_end(const char *text, size_t at, size_t bytes)
{
    uint32_t code;
    size_t step = character_at(text + at, bytes - at, &code);

    if (step == 0)
        return at + 1;
    for (at += step; at < bytes; at += step) {
        step = character_at(text + at, bytes - at, &code);
        if (step == 0 || !joins(code))
            break;
    }
    return at;
}

size_t normal_whole(const char *text, size_t bytes)
{
    uint32_t code;

    for (size_t end = bytes, at; end > 0; end = at) {
        for (at = end - 1; at > 0 && end - at < 4 && utf8_continues(text[at]);)
            at--;
        if (character_at(text + at, end - at, &code) == end - at) {
            if (!joins(code))
                return at;
        } else if (bytes - end >= 4) {
            return end; /* after a byte that is not UTF-8 */
        } else {
            at = end - 1; /* perhaps the start of a character that joins */
        }
    }
    return 0;
}

static bool is_blank(const char *text, size_t bytes)
{
    return bytes >= strlen(BPE_BLANK) && memcmp(text, BPE_BLANK, strlen(BPE_BLANK)) == 0;
}

static bool has_no_blank(const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes;

    for (; at < end && (at = memchr(at, 0xE2, (size_t)(end - at))) != NULL; at++)
        if (is_blank(at, (size_t)(end - at)))
            return false;
    return true;
}

static bool is_form_c(const char *text, size_t bytes)
{
    uint8_t last = 0;

    for (size_t at = 0, step; at < bytes; at += step) {
        uint32_t code = 0;
        struct mark m;
        step = 1;
        if ((unsigned char)text[at] < 0x80) {
            last = 0;
            continue;
        }
        step = character_at(text + at, bytes - at, &code);
        step = step > 0 ? step : 1;
        m = mark_of(code);
        if (m.unsure || (m.order != 0 && m.order < last))
            return false;
        last = m.order;
    }
    return true;
}

bool normal_already(enum normal_form form, const char *text, size_t bytes)
{
    return form == NORMAL_C ? is_form_c(text, bytes)
                            : form == NORMAL_AS_IS || has_no_blank(text, bytes);
}

/* ---- texts */

void normal_fini(struct normal *n)
{
    text_free(&n->text);
    mem_free(n->codes);
    mem_free(n->starts);
    *n = (struct normal){ 0 };
}

static alibi_status note_start(struct normal *n, size_t from)
{
    TRY_RETURN(
        RESERVE_ARRAY(&n->starts, &n->start_capacity, n->start_count + 1, "a normalized text"));
    n->starts[n->start_count++] = (struct normal_start){ from, n->text.length };
    return ALIBI_OK;
}

static alibi_status put_cluster(struct normal *n, const char *text, size_t bytes)
{
    uint32_t code;
    size_t step;

    if (is_form_c(text, bytes)) {
        text_append_bytes(&n->text, text, bytes);
        return ALIBI_OK;
    }
    n->code_count = 0;
    for (size_t i = 0; i < bytes; i += step) {
        step = character_at(text + i, bytes - i, &code);
        TRY_RETURN(decompose(n, code));
    }
    sort_marks(n);
    compose(n);
    for (int64_t i = 0; i < n->code_count; i++) {
        char character[4];
        text_append_bytes(&n->text, character, utf8_put(character, n->codes[i].code));
    }
    return ALIBI_OK;
}

alibi_status normal_make(struct normal *n, enum normal_form form, bool prefix, const char *text,
                         size_t bytes)
{
    n->text.length = 0;
    n->start_count = 0;
    text_append_bytes(&n->text, "", 0);
    for (size_t at = 0, end; at < bytes; at = end) {
        uint32_t code;
        size_t step = form == NORMAL_C ? 0 : character_at(text + at, bytes - at, &code);
        bool blank = form == NORMAL_BLANKS && is_blank(text + at, bytes - at);
        end = form == NORMAL_C ? cluster_end(text, at, bytes) : at + (step > 0 ? step : 1);
        TRY_RETURN(note_start(n, at));
        if (at == 0 && prefix)
            text_append_bytes(&n->text, " ", 1);
        if (form == NORMAL_C)
            TRY_RETURN(put_cluster(n, text + at, end - at));
        else
            text_append_bytes(&n->text, blank ? " " : text + at, blank ? 1 : end - at);
    }
    TRY_RETURN(note_start(n, bytes));
    return text_status(&n->text);
}
