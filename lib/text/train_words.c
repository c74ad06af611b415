/* train_words.c - the words of a text, the most frequent first */
#include <stdlib.h>
#include <string.h>

#include "text/vocabulary.h"

/* They stand at the ids 0 and 1, and a text may hold them as words, as WikiText does. */
static const char *const reserved[] = { "<unk>", "<eos>" };
enum { RESERVED = 2 };

static int compare_pieces(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    order = memcmp(a->at, b->at, shorter);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool is_reserved(const struct piece *p)
{
    for (int i = 0; i < RESERVED; i++)
        if (p->bytes == strlen(reserved[i]) && memcmp(p->at, reserved[i], p->bytes) == 0)
            return true;
    return false;
}

alibi_status train_words(alibi_tokenizer **out, struct piece *pieces, int64_t count, int64_t vocab,
                         int64_t min_count)
{
    alibi_status status;
    struct slice *words = NULL;
    int64_t n = 0, most = vocab > 0 && vocab < count + RESERVED ? vocab : count + RESERVED;

    qsort(pieces, (size_t)count, sizeof *pieces, compare_pieces);
    TRY(NEW_ARRAY(&words, count + RESERVED, "the words of a vocabulary"));
    while (n < RESERVED) {
        words[n] = (struct slice){ reserved[n], strlen(reserved[n]) };
        n++;
    }
    for (int64_t i = 0; i < count && n < most && pieces[i].count >= min_count; i++)
        if (!is_reserved(&pieces[i]))
            words[n++] = (struct slice){ pieces[i].at, pieces[i].bytes };
    TRY(tokenizer_new_words(out, words, n));
out:
    mem_free(words);
    return status;
}
