/* tokenizer_bytes.c - the id of a byte is its value, and 256 ends a document */
#include "text/tokenizer.h"

enum { BYTE_IDS = 256, BYTE_END = 256, BYTE_VOCAB = 257 };

struct bytes_tokenizer {
    struct alibi_tokenizer base;
    char all[BYTE_IDS]; /* all[i] = i: what tokenizer_bytes lends */
};

alibi_status tokenizer_new_bytes(alibi_tokenizer **out)
{
    alibi_status status;
    struct bytes_tokenizer *t = NULL;

    TRY(NEW_ZERO_ARRAY(&t, 1, "a tokenizer"));
    t->base.kind = &tokenizer_kind_bytes;
    t->base.vocab = BYTE_VOCAB;
    t->base.end = BYTE_END;
    for (int i = 0; i < BYTE_IDS; i++)
        t->all[i] = (char)i;
    TRY(tokenizer_finish(&t->base));
    *out = &t->base;
    t = NULL;
out:
    mem_free(t);
    return status;
}

static alibi_status expect_number(struct scan *s, const struct scan_member *m, int64_t expected)
{
    int64_t value;

    s->at = m->at;
    if (scan_count(s, &value) == ALIBI_OK && value == expected)
        return ALIBI_OK;
    s->at = m->at;
    return scan_fail(s, "the '%s' of a tokenizer of type 'bytes' is not %lld,", m->key,
                     (long long)expected);
}

static alibi_status read(alibi_tokenizer **out, struct scan *s)
{
    struct scan_member m[] = { { "type", true, 0 }, { "vocab", true, 0 }, { "end", true, 0 } };

    TRY_RETURN(scan_object(s, "a tokenizer of type 'bytes'", m, 3));
    TRY_RETURN(scan_end(s));
    TRY_RETURN(expect_number(s, &m[1], BYTE_VOCAB));
    TRY_RETURN(expect_number(s, &m[2], BYTE_END));
    return tokenizer_new_bytes(out);
}

static alibi_status format(const alibi_tokenizer *t, struct text *json)
{
    return text_append(json, "{\"type\": \"bytes\", \"vocab\": %lld, \"end\": %d}\n",
                       (long long)t->vocab, (int)t->end);
}

static void free_bytes(alibi_tokenizer *t)
{
    mem_free(t);
}

static const char *bytes_of(const alibi_tokenizer *t, int32_t id, size_t *bytes)
{
    const struct bytes_tokenizer *b = (const struct bytes_tokenizer *)t;

    *bytes = id < BYTE_IDS ? 1 : 0;
    return id < BYTE_IDS ? &b->all[id] : "";
}

static alibi_status run(const alibi_tokenizer *t, void *state, const struct stretch *s,
                        struct ids *ids, size_t *reached)
{
    size_t count = s->stop > s->from ? s->stop - s->from : 0;

    (void)t;
    (void)state;
    TRY_RETURN(ids_reserve(ids, (int64_t)count));
    for (size_t i = 0; i < count; i++)
        ids->at[ids->count++] = (unsigned char)s->text[s->from + i];
    *reached = s->from + count;
    return ALIBI_OK;
}

const struct tokenizer_kind tokenizer_kind_bytes = {
    .type = "bytes",
    .read = read,
    .format = format,
    .free = free_bytes,
    .bytes = bytes_of,
    .text = bytes_of,
    .run = run,
    .end = tokenizer_append_end,
};
