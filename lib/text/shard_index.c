/* shard_index.c - index.json: the shards of a folder with their checksums, and what was counted as
 * they were made
 *
 *   { "format": 1, "tokenizer": crc32, "width": 2 | 4, "documents", "tokens", "words", "bytes",
 *     "shards": [ { "name", "tokens", "crc32" } ... ], "crc32": of everything before this member }
 *     */
#include <string.h>

#include "text/tokenize.h"

/* ---- seals */

alibi_status shard_json_seal(struct text *json, size_t start)
{
    return text_append(json, "  \"crc32\": %lu\n}\n",
                       (unsigned long)checksum(0, json->data + start, json->length - start));
}

static alibi_status parse(const struct shard_sealed *kind, void *x, const char *bytes,
                          size_t length, const char *path)
{
    alibi_status status;
    json_t *json = NULL;
    struct text again = { 0 };

    TRY(json_parse(&json, bytes, length, path));
    TRY(kind->read(x, json, path));
    TRY(kind->format(x, &again));
    if (again.length != length || memcmp(again.data, bytes, length) != 0)
        status = fail(ALIBI_BAD_INPUT, "'%s': checksum differs", path);
out:
    json_decref(json);
    text_free(&again);
    return status;
}

alibi_status shard_sealed_read(const struct shard_sealed *kind, void *x, const char *folder)
{
    alibi_status status;
    char *path = NULL, *bytes = NULL;
    size_t length;

    TRY(path_join(&path, folder, kind->name));
    TRY(file_read_all(&bytes, &length, path, SHARD_LIST_BYTES_MAX));
    TRY(parse(kind, x, bytes, length, path));
out:
    mem_free(bytes);
    mem_free(path);
    return status;
}

alibi_status shard_read_format(const json_t *object, const char *path)
{
    int64_t format;

    TRY_RETURN(json_get_int(object, "format", 1, INT64_MAX, &format, path));
    if (format != SHARD_FORMAT)
        return fail(ALIBI_BAD_INPUT, "'%s': format %lld, this version reads format %d", path,
                    (long long)format, SHARD_FORMAT);
    return ALIBI_OK;
}

/* ---- lists of shards */

void shard_name(char name[32], int64_t number)
{
    snprintf(name, 32, "tokens-%05lld.bin", (long long)number);
}

alibi_status shard_list_add(struct shard_list *l, const struct shard_entry *entry)
{
    TRY_RETURN(RESERVE_ARRAY(&l->at, &l->capacity, l->count + 1, "the list of shards"));
    l->at[l->count++] = *entry;
    return ALIBI_OK;
}

alibi_status shard_list_format(const struct shard_entry *entries, int64_t count, struct text *json)
{
    TRY_RETURN(text_append(json, "  \"shards\": ["));
    for (int64_t i = 0; i < count; i++)
        TRY_RETURN(text_append(json,
                               "%s\n    { \"name\": \"%s\", \"tokens\": %lld, \"crc32\": %lu }",
                               i > 0 ? "," : "", entries[i].name, (long long)entries[i].tokens,
                               (unsigned long)entries[i].crc32));
    return text_append(json, "\n  ],\n");
}

static alibi_status read_entry(struct shard_entry *entry, const json_t *object, int64_t number,
                               const char *path)
{
    const char *name;
    int64_t crc;

    shard_name(entry->name, number);
    TRY_RETURN(json_get_text(object, "name", &name, path));
    if (strcmp(name, entry->name) != 0)
        return fail(ALIBI_BAD_INPUT, "'%s': shard '%s' stands where '%s' should", path, name,
                    entry->name);
    TRY_RETURN(json_get_int(object, "tokens", 1, SHARD_TOKENS_MAX, &entry->tokens, path));
    TRY_RETURN(json_get_int(object, "crc32", 0, UINT32_MAX, &crc, path));
    entry->crc32 = (uint32_t)crc;
    return ALIBI_OK;
}

/* The sum fits: entries are at least a few bytes of a file of bounded size, each of at most
 * SHARD_TOKENS_MAX tokens. */
alibi_status shard_list_read(struct shard_list *l, int64_t *tokens, const json_t *object,
                             const char *path)
{
    const json_t *shards = json_object_get(object, "shards");
    int64_t sum = 0;

    if (!json_is_array(shards))
        return fail(ALIBI_BAD_INPUT, "'%s': 'shards' is not a list", path);
    for (size_t i = 0; i < json_array_size(shards); i++) {
        struct shard_entry entry;
        TRY_RETURN(read_entry(&entry, json_array_get(shards, i), (int64_t)i, path));
        TRY_RETURN(shard_list_add(l, &entry));
        sum += entry.tokens;
    }
    *tokens = sum;
    return ALIBI_OK;
}

/* ---- the index */

alibi_status shard_index_format(const struct shard_index *x, struct text *json)
{
    size_t start = json->length;

    TRY_RETURN(text_append(json, "{\n  \"format\": %d,\n  \"tokenizer\": %lu,\n  \"width\": %d,\n",
                           SHARD_FORMAT, (unsigned long)x->tokenizer, x->width));
    TRY_RETURN(text_append(
        json,
        "  \"documents\": %lld,\n  \"tokens\": %lld,\n  \"words\": %lld,\n  \"bytes\": %lld,\n",
        (long long)x->documents, (long long)x->tokens, (long long)x->words, (long long)x->bytes));
    TRY_RETURN(shard_list_format(x->entries, x->entry_count, json));
    return shard_json_seal(json, start);
}

static alibi_status read_counts(struct shard_index *x, const json_t *json, const char *path)
{
    int64_t tokenizer, width;

    TRY_RETURN(json_get_int(json, "tokenizer", 0, UINT32_MAX, &tokenizer, path));
    TRY_RETURN(json_get_int(json, "width", 2, 4, &width, path));
    if (width == 3)
        return fail(ALIBI_BAD_INPUT, "'%s': 'width' is 3, it must be 2 or 4", path);
    x->tokenizer = (uint32_t)tokenizer;
    x->width = (int)width;
    TRY_RETURN(json_get_int(json, "documents", 0, SHARD_COUNT_MAX, &x->documents, path));
    TRY_RETURN(json_get_int(json, "tokens", 1, INT64_MAX, &x->tokens, path));
    TRY_RETURN(json_get_int(json, "words", 0, SHARD_COUNT_MAX, &x->words, path));
    return json_get_int(json, "bytes", 0, SHARD_COUNT_MAX, &x->bytes, path);
}

static alibi_status read_index(void *out, const json_t *json, const char *path)
{
    struct shard_index *x = out;
    struct shard_list shards = { 0 };
    int64_t tokens = 0;
    alibi_status status;

    TRY_RETURN(shard_read_format(json, path));
    TRY_RETURN(read_counts(x, json, path));
    status = shard_list_read(&shards, &tokens, json, path);
    x->entries = shards.at;
    x->entry_count = shards.count;
    if (status == ALIBI_OK && tokens != x->tokens)
        status = fail(ALIBI_BAD_INPUT, "'%s': the shards have %lld tokens, 'tokens' is %lld", path,
                      (long long)tokens, (long long)x->tokens);
    return status;
}

static alibi_status format_index(const void *x, struct text *json)
{
    return shard_index_format(x, json);
}

alibi_status shard_index_read(struct shard_index *x, const char *folder)
{
    static const struct shard_sealed kind = { SHARD_INDEX, read_index, format_index };
    struct shard_index read = { 0 };
    alibi_status status = shard_sealed_read(&kind, &read, folder);

    if (status == ALIBI_OK)
        *x = read;
    else
        shard_index_fini(&read);
    return status;
}

void shard_index_fini(struct shard_index *x)
{
    mem_free(x->entries);
    *x = (struct shard_index){ 0 };
}
