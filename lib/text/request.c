/* request.c - request.json: what a tokenizing was asked for
 *
 * It is compared, never parsed: whoever goes on with a folder writes down what it asks for and looks for the first line that
 * differs. So it has one item per line. */
#include <string.h>

#include "text/tokenize.h"

enum { REQUEST_BYTES_MAX = 1 << 30 };

/* ---- writing */

static alibi_status append_reading(struct text *json, const struct alibi_reading *reading)
{
    static const char *const formats[] = { "auto", "text", "jsonl" }, *const documents[] = { "file", "line", "blank-line" };
    const char *field = reading->field != NULL ? reading->field : "text";
    bool known = reading->format >= 0 && reading->format <= ALIBI_FORMAT_JSONL && reading->document >= 0 &&
                 reading->document <= ALIBI_DOCUMENT_BLANK_LINE;

    if (!known)
        return fail(ALIBI_USAGE, "format %d, document %d: there is no such way to read", reading->format, reading->document);
    TRY_RETURN(text_append(json, "  \"format\": \"%s\",\n  \"field\": ", formats[reading->format]));
    TRY_RETURN(json_append_string(json, field, strlen(field)));
    return text_append(json, ",\n  \"document\": \"%s\",\n", documents[reading->document]);
}

/* Of a pipe neither is known. */
static alibi_status append_file(struct text *json, const char *path, bool *certain)
{
    int64_t bytes = 0, modified = 0;

    if (strcmp(path, "-") != 0) {
        TRY_RETURN(file_measure(&bytes, path));
        TRY_RETURN(file_modified(&modified, path));
    }
    *certain = *certain && modified != 0;
    TRY_RETURN(text_append(json, "    { \"path\": "));
    TRY_RETURN(json_append_string(json, path, strlen(path)));
    return text_append(json, ", \"bytes\": %lld, \"modified\": %lld }", (long long)bytes, (long long)modified);
}

alibi_status request_format(const struct request *r, struct text *json, bool *certain)
{
    *certain = true;
    TRY_RETURN(text_append(json, "{\n  \"version\": %d,\n  \"tokenizer\": %lu,\n  \"shard_tokens\": %lld,\n", SHARD_FORMAT,
                           (unsigned long)tokenizer_checksum(r->tokenizer), (long long)r->shard_tokens));
    TRY_RETURN(append_reading(json, r->reading != NULL ? r->reading : &(struct alibi_reading){ 0 }));
    TRY_RETURN(text_append(json, "  \"files\": ["));
    for (int i = 0; i < source_file_count(r->source); i++) {
        TRY_RETURN(text_append(json, "%s\n", i > 0 ? "," : ""));
        TRY_RETURN(append_file(json, source_file(r->source, i), certain));
    }
    return text_append(json, "\n  ]\n}\n");
}

/* ---- comparing */

/* The line that `at` lies on, without blanks in front and a comma behind. */
static struct slice line_around(const char *text, size_t length, size_t at)
{
    size_t from = at, stop = at;

    while (from > 0 && text[from - 1] != '\n')
        from--;
    while (from < length && text[from] == ' ')
        from++;
    while (stop < length && text[stop] != '\n')
        stop++;
    if (stop > from && text[stop - 1] == ',')
        stop--;
    return (struct slice){ text + from, stop > from ? stop - from : 0 };
}

static int shown(struct slice s)
{
    return s.bytes < 400 ? (int)s.bytes : 400;
}

static void fail_at(size_t at, const struct text *asked, const char *found, size_t found_bytes)
{
    struct slice here = line_around(asked->data, asked->length, at), there = line_around(found, found_bytes, at);

    fail(ALIBI_BAD_INPUT, "it was asked for %.*s, now for %.*s", shown(there), there.at, shown(here), here.at);
}

alibi_status request_compare(bool *same, const struct text *json, const char *folder)
{
    alibi_status status;
    char *path = NULL, *found = NULL;
    size_t bytes, at = 0;

    TRY(path_join(&path, folder, SHARD_REQUEST));
    TRY(file_read_all(&found, &bytes, path, REQUEST_BYTES_MAX));
    while (at < bytes && at < json->length && found[at] == json->data[at])
        at++;
    *same = at == bytes && at == json->length;
    if (!*same)
        fail_at(at, json, found, bytes);
out:
    mem_free(path);
    mem_free(found);
    return status;
}
