/* shard_files.c - the JSON files in a folder of token shards
 *
 *   index.json     { "format": 1, "tokenizer": crc32, "width": 2 | 4,
 *                    "documents", "tokens", "words", "bytes",
 *                    "shards": [ { "name", "tokens", "crc32" } ... ], "crc32" }
 *   progress.json  { "format": 1, "request": crc32 of request.json,
 *                    "file", "document", "offset", "marks_skipped", "skip",
 *                    "documents", "tokens", "words", "bytes", "shards": [ ... ], "crc32" }
 *   request.json   { "version": 1, "tokenizer", "vocab", "checksum", "shard_tokens",
 *                    "format", "field", "document", "files": [ { "path", "bytes", "modified" } ] }
 *
 * The first two are sealed (base/json.h). A request is compared byte by byte: the same bytes are
 * the same request, and the two are parsed only to say what differs, if they are not too large. */
#include <string.h>

#include "text/shards.h"

enum {
    FORMAT = 1,
    LIST_BYTES_MAX = 64 << 20, /* of index.json and progress.json */
    REQUEST_BYTES_MAX = 1 << 30,
    EXPLAINED_BYTES_MAX = 16 << 20, /* parsing takes a hundred times as much memory */
};

#define COUNT_MAX (INT64_MAX / 4) /* of a count in a file, so that sums do not overflow */

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

static void write_list(struct json_writer *w, const struct shard_entry *entries, int64_t count)
{
    json_write_array(w, "shards");
    for (int64_t i = 0; i < count; i++) {
        json_write_object_line(w, NULL);
        json_write_string(w, "name", entries[i].name);
        json_write_int(w, "tokens", entries[i].tokens);
        json_write_int(w, "crc32", entries[i].crc32);
        json_write_end(w);
    }
    json_write_end(w);
}

/* The sum fits into *tokens: an entry takes at least a few bytes of a file of bounded size, and has
 * at most SHARD_TOKENS_MAX tokens. */
static alibi_status read_list(struct shard_list *l, int64_t *tokens, const json_t *object,
                              const char *path)
{
    const json_t *shards = json_object_get(object, "shards");

    *tokens = 0;
    if (!json_is_array(shards))
        return fail(ALIBI_BAD_INPUT, "'%s': 'shards' is not a list", path);
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *from = json_array_get(shards, i);
        struct shard_entry entry;
        const char *name;
        int64_t crc;

        shard_name(entry.name, (int64_t)i);
        TRY_RETURN(json_get_text(from, "name", &name, path));
        if (strcmp(name, entry.name) != 0)
            return fail(ALIBI_BAD_INPUT, "'%s': shard %zu is '%s', it must be '%s'", path, i, name,
                        entry.name);
        TRY_RETURN(json_get_int(from, "tokens", 1, SHARD_TOKENS_MAX, &entry.tokens, path));
        TRY_RETURN(json_get_int(from, "crc32", 0, UINT32_MAX, &crc, path));
        entry.crc32 = (uint32_t)crc;
        TRY_RETURN(shard_list_add(l, &entry));
        *tokens += entry.tokens;
    }
    return ALIBI_OK;
}

/* A sealed file of this version's format. */
static alibi_status read_file(json_t **out, char **path, const char *folder, const char *name)
{
    int64_t format;

    TRY_RETURN(path_join(path, folder, name));
    TRY_RETURN(sealed_read(out, *path, LIST_BYTES_MAX));
    TRY_RETURN(json_get_int(*out, "format", 1, INT64_MAX, &format, *path));
    if (format != FORMAT)
        return fail(ALIBI_BAD_INPUT, "'%s' has format %lld, this version reads format %d", *path,
                    (long long)format, FORMAT);
    return ALIBI_OK;
}

/* ---- index.json */

void shard_index_format(const struct shard_index *x, struct text *json)
{
    struct json_writer w = json_writer(json);

    json_write_object(&w, NULL);
    json_write_int(&w, "format", FORMAT);
    json_write_int(&w, "tokenizer", x->tokenizer);
    json_write_int(&w, "width", x->width);
    json_write_int(&w, "documents", x->documents);
    json_write_int(&w, "tokens", x->tokens);
    json_write_int(&w, "words", x->words);
    json_write_int(&w, "bytes", x->bytes);
    write_list(&w, x->entries, x->entry_count);
    json_write_seal(&w);
}

alibi_status shard_index_read(struct shard_index *x, const char *folder)
{
    alibi_status status;
    struct shard_index read = { 0 };
    struct shard_list shards = { 0 };
    json_t *json = NULL;
    char *path = NULL;
    int64_t tokenizer, width, tokens;

    TRY(read_file(&json, &path, folder, NAME_SHARD_INDEX));
    TRY(json_get_int(json, "tokenizer", 0, UINT32_MAX, &tokenizer, path));
    TRY(json_get_int(json, "width", 2, 4, &width, path));
    TRY(json_get_int(json, "documents", 0, COUNT_MAX, &read.documents, path));
    TRY(json_get_int(json, "tokens", 1, INT64_MAX, &read.tokens, path));
    TRY(json_get_int(json, "words", 0, COUNT_MAX, &read.words, path));
    TRY(json_get_int(json, "bytes", 0, COUNT_MAX, &read.bytes, path));
    TRY(read_list(&shards, &tokens, json, path));
    if (width == 3)
        TRY(fail(ALIBI_BAD_INPUT, "'%s': 'width' is 3, it must be 2 or 4", path));
    if (tokens != read.tokens)
        TRY(fail(ALIBI_BAD_INPUT, "'%s': the shards have %lld tokens, but 'tokens' is %lld", path,
                 (long long)tokens, (long long)read.tokens));
    read.tokenizer = (uint32_t)tokenizer;
    read.width = (int)width;
    read.entries = shards.at;
    read.entry_count = shards.count;
    shards.at = NULL;
    *x = read;
out:
    mem_free(shards.at);
    json_decref(json);
    mem_free(path);
    return status;
}

void shard_index_fini(struct shard_index *x)
{
    mem_free(x->entries);
    *x = (struct shard_index){ 0 };
}

/* ---- progress.json */

void progress_format(const struct progress *p, struct text *json)
{
    struct json_writer w = json_writer(json);

    json_write_object(&w, NULL);
    json_write_int(&w, "format", FORMAT);
    json_write_int(&w, "request", p->request);
    json_write_int(&w, "file", p->place.file);
    json_write_int(&w, "document", p->place.document);
    json_write_int(&w, "offset", p->place.offset);
    json_write_int(&w, "marks_skipped", !p->counts_marks);
    json_write_int(&w, "skip", p->skip);
    json_write_int(&w, "documents", p->documents);
    json_write_int(&w, "tokens", p->tokens);
    json_write_int(&w, "words", p->words);
    json_write_int(&w, "bytes", p->bytes);
    write_list(&w, p->shards.at, p->shards.count);
    json_write_seal(&w);
}

alibi_status progress_read(struct progress *p, const char *folder)
{
    alibi_status status;
    struct progress read = { 0 };
    json_t *json = NULL;
    char *path = NULL;
    int64_t request, in_shards;

    TRY(read_file(&json, &path, folder, NAME_SHARD_PROGRESS));
    TRY(json_get_int(json, "request", 0, UINT32_MAX, &request, path));
    TRY(json_get_int(json, "file", 0, COUNT_MAX, &read.place.file, path));
    TRY(json_get_int(json, "document", 0, COUNT_MAX, &read.place.document, path));
    TRY(json_get_int(json, "offset", 0, COUNT_MAX, &read.place.offset, path));
    TRY(json_get_int(json, "skip", 0, INT64_MAX, &read.skip, path));
    TRY(json_get_int(json, "documents", 0, COUNT_MAX, &read.documents, path));
    TRY(json_get_int(json, "tokens", 0, INT64_MAX, &read.tokens, path));
    TRY(json_get_int(json, "words", 0, COUNT_MAX, &read.words, path));
    TRY(json_get_int(json, "bytes", 0, COUNT_MAX, &read.bytes, path));
    TRY(read_list(&read.shards, &in_shards, json, path));
    if (read.skip > in_shards || read.tokens != in_shards - read.skip)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s': the shards have %lld tokens, but 'tokens' and 'skip' are %lld and %lld",
                 path, (long long)in_shards, (long long)read.tokens, (long long)read.skip));
    read.request = (uint32_t)request;
    read.counts_marks = json_integer_value(json_object_get(json, "marks_skipped")) == 0;
    *p = read;
    read = (struct progress){ 0 };
out:
    progress_fini(&read);
    json_decref(json);
    mem_free(path);
    return status;
}

void progress_fini(struct progress *p)
{
    mem_free(p->shards.at);
    *p = (struct progress){ 0 };
}

/* ---- request.json */

alibi_status request_format(const struct request *r, struct text *json, bool *certain)
{
    static const char *const formats[] = { "auto", "text", "jsonl" };
    const struct alibi_reading reading =
        r->reading != NULL ? *r->reading : (struct alibi_reading){ 0 };
    struct json_writer w = json_writer(json);

    *certain = true;
    json_write_object(&w, NULL);
    json_write_int(&w, "version", FORMAT);
    json_write_string(&w, "tokenizer", alibi_tokenizer_type(r->tokenizer));
    json_write_int(&w, "vocab", alibi_tokenizer_vocab(r->tokenizer));
    json_write_int(&w, "checksum", tokenizer_checksum(r->tokenizer));
    json_write_int(&w, "shard_tokens", r->shard_tokens);
    json_write_string(&w, "format", formats[reading.format]);
    json_write_string(&w, "field", reading.field != NULL ? reading.field : "text");
    json_write_string(&w, "document", reading.document != NULL ? reading.document : "file");
    json_write_array(&w, "files");
    for (int i = 0; i < source_file_count(r->source); i++) {
        const char *path = source_file(r->source, i);
        int64_t bytes = 0, modified = 0; /* both stay 0 for a pipe */

        if (strcmp(path, "-") != 0)
            TRY_RETURN(file_measure(&bytes, &modified, path));
        *certain = *certain && modified != 0;
        json_write_object_line(&w, NULL);
        json_write_string(&w, "path", path);
        json_write_int(&w, "bytes", bytes);
        json_write_int(&w, "modified", modified);
        json_write_end(&w);
    }
    json_write_end(&w);
    json_write_end(&w);
    TRY_RETURN(text_status(json));
    if (json->length > REQUEST_BYTES_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "too many input files: " NAME_SHARD_REQUEST
                    " would have %zu bytes, at most %d can be read",
                    json->length, REQUEST_BYTES_MAX);
    return ALIBI_OK;
}

/* The first difference: `there` is the folder's request, `now` that of this call. The message is
 * recorded with fail(). */

static long long number(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "unknown";
}

static bool equal(const json_t *there, const json_t *now, const char *key)
{
    return json_equal(json_object_get(there, key), json_object_get(now, key));
}

static bool is_listed(const json_t *files, const char *path)
{
    for (size_t i = 0; i < json_array_size(files); i++)
        if (strcmp(word(json_array_get(files, i), "path"), path) == 0)
            return true;
    return false;
}

/* File i is not the same one in both lists, or is in one of them only. */
static void explain_file(const json_t *there, const json_t *now, size_t i)
{
    const char *gone = word(json_array_get(there, i), "path"),
               *added = word(json_array_get(now, i), "path");
    size_t had = json_array_size(there), has = json_array_size(now);

    if (i < had && (i >= has || !is_listed(now, gone)))
        fail(ALIBI_BAD_INPUT, "'%s' is not in this request", gone);
    else if (i >= had || !is_listed(there, added))
        fail(ALIBI_BAD_INPUT, "'%s' is new", added);
    else
        fail(ALIBI_BAD_INPUT, "'%s' is at the position of '%s'", added, gone);
    if (had != has)
        fail_context(ALIBI_BAD_INPUT, "it had %zu file%s, this request has %zu", had,
                     had == 1 ? "" : "s", has);
}

static bool files_differ(const json_t *there, const json_t *now)
{
    size_t had = json_array_size(there), has = json_array_size(now);

    for (size_t i = 0; i < had || i < has; i++) {
        const json_t *then = json_array_get(there, i), *file = json_array_get(now, i);
        if (i >= had || i >= has || !equal(then, file, "path"))
            explain_file(there, now, i);
        else if (!equal(then, file, "bytes"))
            fail(ALIBI_BAD_INPUT, "'%s' had %lld bytes, now it has %lld", word(file, "path"),
                 number(then, "bytes"), number(file, "bytes"));
        else if (!equal(then, file, "modified"))
            fail(ALIBI_BAD_INPUT, "'%s' was modified since; its size is the same",
                 word(file, "path"));
        else
            continue;
        return true;
    }
    return false;
}

static void explain_difference(const json_t *there, const json_t *now, const char *path)
{
    static const char *const keys[] = { "format", "field", "document" };

    if (!equal(there, now, "checksum")) {
        fail(ALIBI_BAD_INPUT,
             "it has another tokenizer (%s, %lld ids) than this request (%s, %lld ids)",
             word(there, "tokenizer"), number(there, "vocab"), word(now, "tokenizer"),
             number(now, "vocab"));
        return;
    }
    for (int i = 0; i < COUNT(keys); i++)
        if (!equal(there, now, keys[i])) {
            fail(ALIBI_BAD_INPUT, "'%s' was '%s', now it is '%s'", keys[i], word(there, keys[i]),
                 word(now, keys[i]));
            return;
        }
    if (files_differ(json_object_get(there, "files"), json_object_get(now, "files")))
        return;
    if (equal(there, now, "shard_tokens"))
        fail(ALIBI_BAD_INPUT, "'%s' is not formatted as this version writes it", path);
    else
        fail(ALIBI_BAD_INPUT, "it has %lld tokens in a shard, this request %lld",
             number(there, "shard_tokens"), number(now, "shard_tokens"));
}

/* The same for requests that are too large to parse: `there` and `now` are their texts. */
static void explain_line(struct slice there, struct slice now)
{
    size_t at = 0;
    long long line = 1;

    while (at < there.bytes && at < now.bytes && there.at[at] == now.at[at])
        line += there.at[at++] == '\n';
    fail(ALIBI_BAD_INPUT, "it differs from this request at line %lld of " NAME_SHARD_REQUEST, line);
}

alibi_status request_compare(bool *same, const struct text *json, const char *folder)
{
    alibi_status status;
    char *path = NULL, *found = NULL;
    json_t *there = NULL, *now = NULL;
    size_t bytes;
    bool equal_bytes;

    TRY(path_join(&path, folder, NAME_SHARD_REQUEST));
    TRY(file_read_all(&found, &bytes, path, REQUEST_BYTES_MAX));
    equal_bytes = bytes == json->length && memcmp(found, json->data, bytes) == 0;
    if (!equal_bytes && (bytes > EXPLAINED_BYTES_MAX || json->length > EXPLAINED_BYTES_MAX)) {
        explain_line((struct slice){ found, bytes }, (struct slice){ json->data, json->length });
    } else if (!equal_bytes) {
        TRY(json_parse(&there, found, bytes, path));
        TRY(json_parse(&now, json->data, json->length, NAME_SHARD_REQUEST));
        explain_difference(there, now, path);
    }
    *same = equal_bytes;
out:
    json_decref(there);
    json_decref(now);
    mem_free(path);
    mem_free(found);
    return status;
}
