/* tokenizer.c - text to ids and back
 *
 * A tokenizer is a kind, which is a row of functions, and the data of that kind. Callers see ids only, so a new kind is a new
 * row in `kinds` and changes nothing else. The file tokenizer.json starts with the name of the kind:
 *
 *   {"type": "bytes", "vocab": 257, "end": 256} */
#include <string.h>

#include "base/json.h"
#include "text/text.h"

enum { BYTE_IDS = 256, BYTE_END = 256, BYTE_VOCAB = 257 };

struct tokenizer_kind {
    const char *type;
    /* The members of the file beside "type"; NULL ends them. Any other is refused. */
    const char *keys[4];
    alibi_status (*make)(struct tokenizer **out);
    alibi_status (*check)(const json_t *file, const char *path);
    alibi_status (*write)(const struct tokenizer *t, struct text *json);
    void (*encode)(const struct tokenizer *t, const char *text, size_t bytes, int32_t *ids);
    const char *(*bytes)(const struct tokenizer *t, int32_t id, size_t *bytes);
};

struct tokenizer {
    const struct tokenizer_kind *kind;
    int64_t vocab;
    int32_t end;
    char all[BYTE_IDS]; /* all[i] = i: what tokenizer_bytes lends */
};

/* ---- bytes: the id of a byte is its value */

static alibi_status bytes_check(const json_t *file, const char *path)
{
    int64_t value;

    TRY_RETURN(json_get_int(file, "vocab", BYTE_VOCAB, BYTE_VOCAB, &value, path));
    return json_get_int(file, "end", BYTE_END, BYTE_END, &value, path);
}

static alibi_status bytes_write(const struct tokenizer *t, struct text *json)
{
    return text_append(json, "{\"type\": \"bytes\", \"vocab\": %lld, \"end\": %d}\n", (long long)t->vocab, (int)t->end);
}

static void bytes_encode(const struct tokenizer *t, const char *text, size_t bytes, int32_t *ids)
{
    (void)t;
    for (size_t i = 0; i < bytes; i++)
        ids[i] = (unsigned char)text[i];
}

static const char *bytes_of(const struct tokenizer *t, int32_t id, size_t *bytes)
{
    bool is_byte = id >= 0 && id < BYTE_IDS;

    *bytes = is_byte ? 1 : 0;
    return is_byte ? &t->all[id] : "";
}

static const struct tokenizer_kind kinds[] = {
    {
        .type = "bytes",
        .keys = { "vocab", "end" },
        .make = tokenizer_new_bytes,
        .check = bytes_check,
        .write = bytes_write,
        .encode = bytes_encode,
        .bytes = bytes_of,
    },
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

alibi_status tokenizer_new_bytes(struct tokenizer **out)
{
    struct tokenizer *t = NULL;

    TRY_RETURN(NEW_ZERO_ARRAY(&t, 1, "a tokenizer"));
    t->kind = &kinds[0];
    t->vocab = BYTE_VOCAB;
    t->end = BYTE_END;
    for (int i = 0; i < BYTE_IDS; i++)
        t->all[i] = (char)i;
    *out = t;
    return ALIBI_OK;
}

/* ---- every kind */

static alibi_status find_kind(const struct tokenizer_kind **out, const json_t *file, const char *path)
{
    const char *type;

    TRY_RETURN(json_get_text(file, "type", &type, path));
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].type, type) == 0) {
            *out = &kinds[i];
            return ALIBI_OK;
        }
    }
    return fail(ALIBI_BAD_INPUT, "'%s': no tokenizer of type '%.40s' is known, only 'bytes'", path, type);
}

static bool is_key(const struct tokenizer_kind *kind, const char *key)
{
    for (int i = 0; kind->keys[i] != NULL; i++)
        if (strcmp(kind->keys[i], key) == 0)
            return true;
    return strcmp(key, "type") == 0;
}

static alibi_status check_keys(const struct tokenizer_kind *kind, json_t *file, const char *path)
{
    const char *key;
    json_t *value;

    json_object_foreach(file, key, value)
    {
        if (!is_key(kind, key))
            return fail(ALIBI_BAD_INPUT, "'%s': a tokenizer of type '%s' has no '%.40s'", path, kind->type, key);
    }
    return ALIBI_OK;
}

alibi_status tokenizer_read(struct tokenizer **out, const char *bytes, size_t length, const char *path)
{
    alibi_status status;
    json_t *file = NULL;
    const struct tokenizer_kind *kind = NULL;

    TRY(json_parse(&file, bytes, length, path));
    TRY(find_kind(&kind, file, path));
    TRY(check_keys(kind, file, path));
    TRY(kind->check(file, path));
    TRY(kind->make(out));
out:
    json_decref(file);
    return status;
}

alibi_status tokenizer_write(const struct tokenizer *t, struct text *json)
{
    return t->kind->write(t, json);
}

void tokenizer_free(struct tokenizer *t)
{
    mem_free(t);
}

int64_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab;
}

int32_t tokenizer_end(const struct tokenizer *t)
{
    return t->end;
}

/* No kind makes more ids than there are bytes. */
static alibi_status grow_ids(int32_t **ids, int64_t count, size_t more)
{
    size_t total, size;

    if (!size_add(&total, (size_t)count, more) || !size_multiply(&size, total, sizeof **ids) || total > INT64_MAX)
        return fail(ALIBI_MEMORY, "not enough memory for the tokens of %zu bytes of text", more);
    return mem_grow((void **)ids, (size_t)count * sizeof **ids, size, "the tokens of a text");
}

alibi_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, int32_t **ids, int64_t *count)
{
    TRY_RETURN(grow_ids(ids, *count, bytes));
    t->kind->encode(t, text, bytes, *ids + *count);
    *count += (int64_t)bytes;
    return ALIBI_OK;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *bytes)
{
    return t->kind->bytes(t, id, bytes);
}
