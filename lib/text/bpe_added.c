/* bpe_added.c - tokens that are found in the text before anything else
 *
 * The tokens are sorted by their bytes. Those that agree with the text so far are a range of them;
 * each further byte of the text narrows it, by bisection, until it is empty. The longest token that
 * was met on the way is the one. */
#include <stdlib.h>

#include "text/bpe.h"

/* ---- setting up */

static int compare(const void *a, const void *b)
{
    const struct slice *x = &((const struct bpe_added *)a)->text,
                       *y = &((const struct bpe_added *)b)->text;
    int order = memcmp(x->at, y->at, x->bytes < y->bytes ? x->bytes : y->bytes);

    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void note_first_bytes(struct added_tokens *a)
{
    int different = 0;

    a->only = -1;
    for (int i = 0; i < a->count; i++) {
        unsigned char byte = (unsigned char)a->sorted[i].text.at[0];
        different += !a->first[byte];
        a->first[byte] = true;
        a->only = byte;
    }
    if (different != 1)
        a->only = -1;
}

alibi_status added_init(struct added_tokens *a, const struct bpe_added *tokens, int count,
                        const char *path)
{
    TRY_RETURN(NEW_ARRAY(&a->sorted, count, "the added tokens of a tokenizer"));
    for (int i = 0; i < count; i++) {
        if (tokens[i].text.bytes > ADDED_BYTES_MAX)
            return fail(ALIBI_BAD_INPUT,
                        "'%s': the added token '%.40s...' has %zu bytes, more than %d", path,
                        tokens[i].text.at, tokens[i].text.bytes, ADDED_BYTES_MAX);
        if (tokens[i].text.bytes > 0)
            a->sorted[a->count++] = tokens[i];
    }
    qsort(a->sorted, (size_t)a->count, sizeof *a->sorted, compare);
    note_first_bytes(a);
    return ALIBI_OK;
}

void added_fini(struct added_tokens *a)
{
    mem_free(a->sorted);
    *a = (struct added_tokens){ 0 };
}

/* ---- finding */

/* The first of sorted[low..high), which agree in `depth` bytes, whose next byte is at least `byte`.
 * */
static int bisect(const struct added_tokens *a, int low, int high, size_t depth, int byte)
{
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((unsigned char)a->sorted[middle].text.at[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text[0..bytes) starts with. */
static struct added_match match_here(const struct added_tokens *a, const char *text, size_t bytes,
                                     bool last)
{
    struct added_match m = { .found = ADDED_NONE };
    int low = 0, high = a->count;

    for (size_t depth = 0;; depth++) {
        while (low < high && a->sorted[low].text.bytes == depth) {
            m.found = ADDED_FOUND;
            m.token = &a->sorted[low++];
        }
        if (low == high)
            return m;
        if (depth == bytes) {
            m.found = last ? m.found : ADDED_MAYBE;
            return m;
        }
        high = bisect(a, low, high, depth, (unsigned char)text[depth] + 1);
        low = bisect(a, low, high, depth, (unsigned char)text[depth]);
    }
}

/* The next place where the first byte of a token stands, or the limit. */
static size_t next_candidate(const struct added_tokens *a, const char *text, size_t at,
                             size_t limit)
{
    if (a->only >= 0) {
        const char *found = memchr(text + at, a->only, limit - at);
        return found != NULL ? (size_t)(found - text) : limit;
    }
    while (at < limit && !a->first[(unsigned char)text[at]])
        at++;
    return at;
}

struct added_match added_find(const struct added_tokens *a, const char *text, size_t from,
                              size_t limit, size_t end, bool last)
{
    struct added_match m = { .found = ADDED_NONE };

    if (a->count == 0)
        return m;
    for (size_t at = from; at < limit; at++) {
        at = next_candidate(a, text, at, limit);
        if (at < limit)
            m = match_here(a, text + at, end - at, last);
        m.at = at;
        if (m.found != ADDED_NONE)
            break;
    }
    return m;
}
