/* numbers.c - texts that consist of ids, as decimal numbers separated by white space
 *
 * This is the tokenizer of a model without a readable one: with ids from another program the model
 * can still be tested. Documents have no end. The file:
 *
 *   {"type": "ids", "vocab": 50257} */
#include <string.h>

#include "text/tokenizer.h"

/* Every id takes a slot, whatever the file has: their number bounds the memory. */
enum { IDS_MAX = 1 << 24, SLOT = 16 /* bytes, room for "16777215 " */ };

struct ids_tokenizer {
    struct alibi_tokenizer base;
    char *texts; /* [vocab][SLOT]: the number and a blank */
};

static void free_ids(alibi_tokenizer *base)
{
    struct ids_tokenizer *t = (struct ids_tokenizer *)base;

    mem_free(t->texts);
    mem_free(t);
}

alibi_status tokenizer_new_ids(alibi_tokenizer **out, int64_t vocab)
{
    alibi_status status;
    struct ids_tokenizer *t = NULL;

    if (vocab < 1 || vocab > IDS_MAX)
        return fail(ALIBI_BAD_INPUT, "a tokenizer of type 'ids' has 1 to %d ids, not %lld", IDS_MAX,
                    (long long)vocab);
    TRY(NEW_ZERO_ARRAY(&t, 1, "a tokenizer"));
    t->base.kind = &tokenizer_kind_ids;
    t->base.vocab = vocab;
    t->base.begin = t->base.end = -1;
    TRY(NEW_ARRAY(&t->texts, vocab * SLOT, "the ids of a tokenizer"));
    for (int32_t i = 0; i < vocab; i++)
        snprintf(t->texts + (int64_t)i * SLOT, SLOT, "%d ", i);
    TRY(tokenizer_finish(&t->base));
    *out = &t->base;
    t = NULL;
out:
    if (t)
        free_ids(&t->base);
    return status;
}

static alibi_status read_ids(alibi_tokenizer **out, struct scan *s)
{
    struct scan_member m[] = { { "type", true, 0 }, { "vocab", true, 0 } };
    int64_t vocab = 0;
    alibi_status status;

    TRY_RETURN(scan_object(s, "a tokenizer of type 'ids'", m, 2));
    TRY_RETURN(scan_end(s));
    s->at = m[1].at;
    TRY_RETURN(scan_count(s, &vocab));
    status = tokenizer_new_ids(out, vocab);
    return status == ALIBI_BAD_INPUT ? fail_context(status, "'%s'", s->path) : status;
}

static alibi_status format_ids(const alibi_tokenizer *t, struct text *json)
{
    text_append(json, "{\"type\": \"ids\", \"vocab\": %lld}\n", (long long)t->vocab);
    return text_status(json);
}

static const char *bytes_of(const alibi_tokenizer *base, int32_t id, size_t *bytes)
{
    const char *text = ((const struct ids_tokenizer *)base)->texts + (int64_t)id * SLOT;

    *bytes = strlen(text);
    return text;
}

static alibi_status read_number(const alibi_tokenizer *t, const char *text, size_t bytes,
                                int32_t *id)
{
    int64_t value = 0;
    bool digits = bytes < SLOT;

    for (size_t i = 0; digits && i < bytes; i++) {
        digits = text[i] >= '0' && text[i] <= '9';
        value = value * 10 + (text[i] - '0');
    }
    if (!digits || value >= t->vocab)
        return fail(ALIBI_BAD_INPUT,
                    "'%.*s' is not an id: the tokenizer of this model is not known, so its text "
                    "must be numbers from 0 to %lld, with blanks between them",
                    (int)(bytes < 40 ? bytes : 40), text, (long long)t->vocab - 1);
    *id = (int32_t)value;
    return ALIBI_OK;
}

/* A number that reaches the end of the known text may continue. */
static alibi_status run_ids(const alibi_tokenizer *t, void *state, const struct stretch *s,
                            struct ids *ids, size_t *reached)
{
    size_t at = s->from;

    (void)state;
    while (at < s->stop) {
        size_t start = at;
        int32_t id;
        while (at < s->end && !is_white_space(s->text[at]))
            at++;
        if (at == s->end && !s->last) {
            at = start;
            break;
        }
        if (at == start) {
            at++;
            continue;
        }
        TRY_RETURN(read_number(t, s->text + start, at - start, &id));
        TRY_RETURN(ids_append(ids, &id, 1));
    }
    *reached = at;
    return ALIBI_OK;
}

const struct tokenizer_kind tokenizer_kind_ids = {
    .type = "ids",
    .read = read_ids,
    .format = format_ids,
    .free = free_ids,
    .bytes = bytes_of,
    .text = bytes_of,
    .run = run_ids,
};
