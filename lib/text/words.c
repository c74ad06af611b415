/* words.c - tokenizers with one id per word
 *
 * Words are separated by white space (space, \t..\r). Unknown words are id 0, "<unk>". Every line
 * end is id 1, "<eos>", and so is the end of a document whose last line has no line end. The file:
 *
 *   {"type": "words", "words": ["<unk>", "<eos>", ...]} */
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "text/tokenizer.h"

enum { UNKNOWN = 0, LINE_END = 1, FIXED = 2 };

struct words_tokenizer {
    struct alibi_tokenizer base;
    char *storage;       /* every word, followed by a blank */
    struct slice *words; /* [vocab] with the blank */
    struct hash table;   /* of words */
};

/* ---- the table */

/* Slot of the word, or the free one for it. */
static uint32_t *find_slot(const struct words_tokenizer *t, const char *word, size_t bytes)
{
    uint32_t *slot = hash_slot(&t->table, hash_bytes(word, bytes));

    for (; *slot != 0; slot = hash_next(&t->table, slot)) {
        const struct slice *w = &t->words[*slot - 1];
        if (w->bytes == bytes + 1 && memcmp(w->at, word, bytes) == 0)
            break;
    }
    return slot;
}

/* ---- making one */

static alibi_status check_word(const struct slice *w, int64_t id)
{
    if (w->bytes == 0)
        return fail(ALIBI_BAD_INPUT, "word %lld is empty", (long long)id);
    if (utf8_valid_prefix(w->at, w->bytes) != w->bytes || memchr(w->at, '\0', w->bytes) != NULL)
        return fail(ALIBI_BAD_INPUT, "word %lld is not text in UTF-8", (long long)id);
    for (size_t i = 0; i < w->bytes; i++)
        if (is_white_space(w->at[i]))
            return fail(ALIBI_BAD_INPUT, "word %lld has white space in it", (long long)id);
    return ALIBI_OK;
}

static alibi_status put_word(struct words_tokenizer *t, const struct slice *word, int64_t id,
                             char *storage)
{
    uint32_t *slot = find_slot(t, word->at, word->bytes);

    if (*slot != 0)
        return fail(ALIBI_BAD_INPUT, "word %lld, '%.*s', is word %lu as well", (long long)id,
                    (int)(word->bytes < 80 ? word->bytes : 80), word->at, (unsigned long)*slot - 1);
    memcpy(storage, word->at, word->bytes);
    storage[word->bytes] = ' ';
    t->words[id] = (struct slice){ storage, word->bytes + 1 };
    *slot = (uint32_t)id + 1;
    return ALIBI_OK;
}

static void free_words(alibi_tokenizer *base)
{
    struct words_tokenizer *t = (struct words_tokenizer *)base;

    if (t == NULL)
        return;
    mem_free(t->storage);
    mem_free(t->words);
    hash_fini(&t->table);
    mem_free(t);
}

alibi_status tokenizer_new_words(alibi_tokenizer **out, const struct slice *words, int64_t count)
{
    alibi_status status;
    struct words_tokenizer *t = NULL;
    size_t bytes = 0;

    if (count < FIXED || count > INT32_MAX)
        TRY(fail(ALIBI_BAD_INPUT, "%lld words: there must be at least 2 and at most %d",
                 (long long)count, INT32_MAX));
    for (int64_t i = 0; i < count; i++) {
        TRY(check_word(&words[i], i));
        if (!size_add(&bytes, bytes, words[i].bytes + 1))
            TRY(fail(ALIBI_MEMORY, "not enough memory for %lld words", (long long)count));
    }
    TRY(NEW_ZERO_ARRAY(&t, 1, "a tokenizer"));
    t->base.kind = &tokenizer_kind_words;
    t->base.vocab = count;
    t->base.begin = -1;
    t->base.end = LINE_END;
    TRY(NEW_ARRAY(&t->storage, (int64_t)bytes, "the words of a tokenizer"));
    TRY(NEW_ARRAY(&t->words, count, "the words of a tokenizer"));
    TRY(hash_init(&t->table, count, "the words of a tokenizer"));
    bytes = 0;
    for (int64_t i = 0; i < count; bytes += words[i++].bytes + 1)
        TRY(put_word(t, &words[i], i, t->storage + bytes));
    TRY(tokenizer_finish(&t->base));
    *out = &t->base;
    t = NULL;
out:
    free_words((alibi_tokenizer *)t);
    return status;
}

/* ---- the file */

/* The words are borrowed from the scan. */
static alibi_status read(alibi_tokenizer **out, struct scan *s)
{
    alibi_status status;
    struct scan_member m[] = { { "type", true, 0 }, { "words", true, 0 } };
    struct slice *words = NULL;
    int64_t count = 0, id = 0;

    TRY(scan_object(s, "a tokenizer of type 'words'", m, 2));
    TRY(scan_end(s));
    s->at = m[1].at;
    if (scan_peek(s) != '[')
        TRY(scan_fail(s, "'words' is not a list,"));
    TRY(scan_skip(s, &count));
    TRY(NEW_ARRAY(&words, count, "the words of a tokenizer"));
    s->at = m[1].at;
    TRY(scan_expect(s, '['));
    if (!scan_take(s, ']')) {
        do {
            if (scan_peek(s) != '"')
                TRY(scan_fail(s, "word %lld is not a text,", (long long)id));
            TRY(scan_slice(s, &words[id++]));
        } while (scan_take(s, ','));
        TRY(scan_expect(s, ']'));
    }
    status = tokenizer_new_words(out, words, count);
    if (status == ALIBI_BAD_INPUT)
        status = fail_context(status, "'%s'", s->path);
out:
    mem_free(words);
    return status;
}

static alibi_status format(const alibi_tokenizer *base, struct text *json)
{
    const struct words_tokenizer *t = (const struct words_tokenizer *)base;

    text_append(json, "{\"type\": \"words\", \"words\": [");
    for (int64_t i = 0; i < base->vocab; i++) {
        text_append_bytes(json, ",\n", i > 0 ? 2 : 0);
        json_append_string(json, t->words[i].at, t->words[i].bytes - 1);
    }
    text_append(json, "]}\n");
    return text_status(json);
}

/* ---- use */

static const char *bytes_of(const alibi_tokenizer *base, int32_t id, size_t *bytes)
{
    const struct words_tokenizer *t = (const struct words_tokenizer *)base;

    *bytes = id == LINE_END ? 1 : t->words[id].bytes;
    return id == LINE_END ? "\n" : t->words[id].at;
}

/* A word that reaches the end of the known text may continue. */
static alibi_status run(const alibi_tokenizer *base, void *state, const struct stretch *s,
                        struct ids *ids, size_t *reached)
{
    const struct words_tokenizer *t = (const struct words_tokenizer *)base;
    size_t at = s->from;

    (void)state;
    while (at < s->stop) {
        size_t start = at;
        int32_t id = LINE_END;
        while (at < s->end && !is_white_space(s->text[at]))
            at++;
        if (at == s->end && !s->last) {
            at = start;
            break;
        }
        if (at > start) {
            uint32_t slot = *find_slot(t, s->text + start, at - start);
            id = slot > 0 ? (int32_t)slot - 1 : UNKNOWN;
        } else if (s->text[at++] != '\n') {
            continue;
        }
        TRY_RETURN(ids_append(ids, &id, 1));
    }
    *reached = at;
    return ALIBI_OK;
}

static alibi_status end(const alibi_tokenizer *t, struct slice tail, struct ids *ids)
{
    if (tail.bytes == 0 || tail.at[tail.bytes - 1] == '\n')
        return ALIBI_OK;
    return ids_append(ids, &t->end, 1);
}

const struct tokenizer_kind tokenizer_kind_words = {
    .type = "words",
    .read = read,
    .format = format,
    .free = free_words,
    .bytes = bytes_of,
    .text = bytes_of,
    .run = run,
    .end = end,
};
