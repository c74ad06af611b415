/* progress.c - progress.json: how far a tokenizing is, so that another call can go on from there
 *
 *   { "format": 1, "request": crc32 of request.json, "file", "document", "offset", "within_word",
 *   "skip",
 *     "documents", "tokens", "words", "bytes", "shards": [ ... ], "crc32": of everything before
 *     this member } */
#include "text/tokenize.h"

alibi_status progress_format(const struct progress *p, struct text *json)
{
    size_t start = json->length;

    TRY_RETURN(text_append(json, "{\n  \"format\": %d,\n  \"request\": %lu,\n", SHARD_FORMAT,
                           (unsigned long)p->request));
    TRY_RETURN(text_append(json, "  \"file\": %lld,\n  \"document\": %lld,\n  \"offset\": %lld,\n",
                           (long long)p->place.file, (long long)p->place.document,
                           (long long)p->place.offset));
    TRY_RETURN(text_append(json, "  \"within_word\": %d,\n  \"skip\": %lld,\n", p->within_word,
                           (long long)p->skip));
    TRY_RETURN(text_append(
        json,
        "  \"documents\": %lld,\n  \"tokens\": %lld,\n  \"words\": %lld,\n  \"bytes\": %lld,\n",
        (long long)p->documents, (long long)p->tokens, (long long)p->words, (long long)p->bytes));
    TRY_RETURN(shard_list_format(p->shards.at, p->shards.count, json));
    return shard_json_seal(json, start);
}

static alibi_status read_place(struct progress *p, const json_t *json, const char *path)
{
    int64_t within_word;

    TRY_RETURN(json_get_int(json, "file", 0, SHARD_COUNT_MAX, &p->place.file, path));
    TRY_RETURN(json_get_int(json, "document", 0, SHARD_COUNT_MAX, &p->place.document, path));
    TRY_RETURN(json_get_int(json, "offset", 0, SHARD_COUNT_MAX, &p->place.offset, path));
    TRY_RETURN(json_get_int(json, "within_word", 0, 1, &within_word, path));
    p->within_word = within_word != 0;
    return json_get_int(json, "skip", 0, INT64_MAX, &p->skip, path);
}

static alibi_status read_counts(struct progress *p, const json_t *json, const char *path)
{
    TRY_RETURN(json_get_int(json, "documents", 0, SHARD_COUNT_MAX, &p->documents, path));
    TRY_RETURN(json_get_int(json, "tokens", 0, INT64_MAX, &p->tokens, path));
    TRY_RETURN(json_get_int(json, "words", 0, SHARD_COUNT_MAX, &p->words, path));
    return json_get_int(json, "bytes", 0, SHARD_COUNT_MAX, &p->bytes, path);
}

static alibi_status read_progress(void *out, const json_t *json, const char *path)
{
    struct progress *p = out;
    int64_t request, in_shards;

    TRY_RETURN(shard_read_format(json, path));
    TRY_RETURN(json_get_int(json, "request", 0, UINT32_MAX, &request, path));
    p->request = (uint32_t)request;
    TRY_RETURN(read_place(p, json, path));
    TRY_RETURN(read_counts(p, json, path));
    TRY_RETURN(shard_list_read(&p->shards, &in_shards, json, path));
    if (p->skip > in_shards || p->tokens != in_shards - p->skip)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': the shards have %lld tokens, 'tokens' and 'skip' are %lld and %lld",
                    path, (long long)in_shards, (long long)p->tokens, (long long)p->skip);
    return ALIBI_OK;
}

static alibi_status format_progress(const void *p, struct text *json)
{
    return progress_format(p, json);
}

alibi_status progress_read(struct progress *p, const char *folder)
{
    static const struct shard_sealed kind = { SHARD_PROGRESS, read_progress, format_progress };
    struct progress read = { 0 };
    alibi_status status = shard_sealed_read(&kind, &read, folder);

    if (status == ALIBI_OK)
        *p = read;
    else
        progress_fini(&read);
    return status;
}

void progress_fini(struct progress *p)
{
    mem_free(p->shards.at);
    *p = (struct progress){ 0 };
}
