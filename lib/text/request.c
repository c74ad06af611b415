/* request.c - request.json: what a tokenizing was asked for
 *
 * Whoever goes on with a folder writes down what it asks for: the same bytes are the same request.
 * The two of them are parsed only to say what differs. */
#include <string.h>

#include "text/tokenize.h"

enum { REQUEST_BYTES_MAX = 1 << 30 };

/* ---- writing */

static alibi_status append_reading(struct text *json, const struct alibi_reading *reading)
{
    static const char *const formats[] = { "auto", "text", "jsonl" }, *const documents[] = {
        "file", "line", "blank-line"
    };
    const char *field = reading->field != NULL ? reading->field : "text";

    TRY_RETURN(text_append(json, "  \"format\": \"%s\",\n  \"field\": ", formats[reading->format]));
    TRY_RETURN(json_append_string(json, field, strlen(field)));
    return text_append(json, ",\n  \"document\": \"%s\",\n", documents[reading->document]);
}

/* Of a pipe neither is known. */
static alibi_status append_file(struct text *json, const char *path, bool *certain)
{
    int64_t bytes = 0, modified = 0;

    if (strcmp(path, "-") != 0)
        TRY_RETURN(file_measure(&bytes, &modified, path));
    *certain = *certain && modified != 0;
    TRY_RETURN(text_append(json, "    { \"path\": "));
    TRY_RETURN(json_append_string(json, path, strlen(path)));
    return text_append(json, ", \"bytes\": %lld, \"modified\": %lld }", (long long)bytes,
                       (long long)modified);
}

alibi_status request_format(const struct request *r, struct text *json, bool *certain)
{
    *certain = true;
    TRY_RETURN(text_append(
        json, "{\n  \"version\": %d,\n  \"tokenizer\": \"%s\",\n  \"vocab\": %lld,\n", SHARD_FORMAT,
        alibi_tokenizer_type(r->tokenizer), (long long)alibi_tokenizer_vocab(r->tokenizer)));
    TRY_RETURN(text_append(json, "  \"checksum\": %lu,\n  \"shard_tokens\": %lld,\n",
                           (unsigned long)tokenizer_checksum(r->tokenizer),
                           (long long)r->shard_tokens));
    TRY_RETURN(
        append_reading(json, r->reading != NULL ? r->reading : &(struct alibi_reading){ 0 }));
    TRY_RETURN(text_append(json, "  \"files\": ["));
    for (int i = 0; i < source_file_count(r->source); i++) {
        TRY_RETURN(text_append(json, "%s\n", i > 0 ? "," : ""));
        TRY_RETURN(append_file(json, source_file(r->source, i), certain));
    }
    TRY_RETURN(text_append(json, "\n  ]\n}\n"));
    if (json->length > REQUEST_BYTES_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "too many files: " SHARD_REQUEST " would have %zu bytes, %d at most are read",
                    json->length, REQUEST_BYTES_MAX);
    return ALIBI_OK;
}

/* ---- what differs: `there` is the folder's request, `now` that of this call. Those that return
 * true have said it. */

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

static bool tokenizers_differ(const json_t *there, const json_t *now)
{
    if (equal(there, now, "checksum"))
        return false;
    fail(ALIBI_BAD_INPUT, "with another tokenizer (%s, %lld ids) than now (%s, %lld ids)",
         word(there, "tokenizer"), number(there, "vocab"), word(now, "tokenizer"),
         number(now, "vocab"));
    return true;
}

static bool readings_differ(const json_t *there, const json_t *now)
{
    static const char *const keys[] = { "format", "field", "document" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!equal(there, now, keys[i])) {
            fail(ALIBI_BAD_INPUT, "'%s' was '%s', now it is '%s'", keys[i], word(there, keys[i]),
                 word(now, keys[i]));
            return true;
        }
    return false;
}

static bool is_listed(const json_t *files, const char *path)
{
    for (size_t i = 0; i < json_array_size(files); i++)
        if (strcmp(word(json_array_get(files, i), "path"), path) == 0)
            return true;
    return false;
}

/* File number i is not the same one in both lists, or is in one of them only. */
static void fail_at_file(const json_t *there, const json_t *now, size_t i)
{
    const char *gone = word(json_array_get(there, i), "path"),
               *added = word(json_array_get(now, i), "path");
    size_t had = json_array_size(there), has = json_array_size(now);

    if (i < had && (i >= has || !is_listed(now, gone)))
        fail(ALIBI_BAD_INPUT, "'%s' is missing", gone);
    else if (i >= had || !is_listed(there, added))
        fail(ALIBI_BAD_INPUT, "'%s' is new", added);
    else
        fail(ALIBI_BAD_INPUT, "'%s' stands where '%s' was", added, gone);
    if (had != has)
        fail_context(ALIBI_BAD_INPUT, "%zu file%s there, %zu now", had, had == 1 ? "" : "s", has);
}

static bool file_differs(const json_t *there, const json_t *now)
{
    if (!equal(there, now, "bytes"))
        fail(ALIBI_BAD_INPUT, "'%s' had %lld bytes, now it has %lld", word(now, "path"),
             number(there, "bytes"), number(now, "bytes"));
    else if (!equal(there, now, "modified"))
        fail(ALIBI_BAD_INPUT, "'%s' has as many bytes as then, but was written since",
             word(now, "path"));
    else
        return false;
    return true;
}

static bool files_differ(const json_t *there, const json_t *now)
{
    size_t had = json_array_size(there), has = json_array_size(now);

    for (size_t i = 0; i < had || i < has; i++) {
        const json_t *then = json_array_get(there, i), *file = json_array_get(now, i);
        if (i >= had || i >= has || !equal(then, file, "path")) {
            fail_at_file(there, now, i);
            return true;
        }
        if (file_differs(then, file))
            return true;
    }
    return false;
}

static alibi_status say_difference(const char *found, size_t bytes, const struct text *json,
                                   const char *path)
{
    alibi_status status;
    json_t *there = NULL, *now = NULL;

    TRY(json_parse(&there, found, bytes, path));
    TRY(json_parse(&now, json->data, json->length, SHARD_REQUEST));
    if (tokenizers_differ(there, now) || readings_differ(there, now) ||
        files_differ(json_object_get(there, "files"), json_object_get(now, "files")))
        goto out;
    if (equal(there, now, "shard_tokens"))
        fail(ALIBI_BAD_INPUT, "'%s' is not as this version writes it", path);
    else
        fail(ALIBI_BAD_INPUT, "with %lld tokens in a shard, now %lld",
             number(there, "shard_tokens"), number(now, "shard_tokens"));
out:
    json_decref(there);
    json_decref(now);
    return status;
}

alibi_status request_compare(bool *same, const struct text *json, const char *folder)
{
    alibi_status status;
    char *path = NULL, *found = NULL;
    size_t bytes;

    TRY(path_join(&path, folder, SHARD_REQUEST));
    TRY(file_read_all(&found, &bytes, path, REQUEST_BYTES_MAX));
    *same = bytes == json->length && memcmp(found, json->data, bytes) == 0;
    if (!*same)
        TRY(say_difference(found, bytes, json, path));
out:
    mem_free(path);
    mem_free(found);
    return status;
}
