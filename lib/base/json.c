/* json.c - JSON, read by jansson and written by one writer */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* The most that jansson holds per byte of text is for lists of empty objects, "{},": about 83
 * bytes. */
enum { JSON_BYTES_MAX = 16 << 20, TREE_BYTES_PER_BYTE = 128 };

/* ---- reading */

alibi_status json_parse(json_t **out, const char *bytes, size_t length, const char *path)
{
    json_error_t error;
    json_t *json;
    void *most = NULL;
    size_t most_bytes;

    if (length == 0)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it is empty", path);
    if (!size_multiply(&most_bytes, length, TREE_BYTES_PER_BYTE))
        return fail(ALIBI_MEMORY, "not enough memory for JSON of %zu bytes", length);
    /* jansson has one allocator per process, which may be the host's own, so it is not replaced.
     * But jansson (2.14, its issue 362) does not check whether the buffer of its lexer could grow.
     * So the most memory that a text can need is allocated first, where a failure can still be
     * reported, and freed again for jansson. */
    TRY_RETURN(mem_new(&most, most_bytes, "JSON"));
    mem_free(most);
    json = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL && json_error_code(&error) == json_error_out_of_memory)
        return fail(ALIBI_MEMORY, "not enough memory for JSON of %zu bytes", length);
    if (json == NULL)
        return fail(ALIBI_BAD_INPUT, "'%s' line %d, column %d: %s", path, error.line, error.column,
                    error.text);
    *out = json;
    return ALIBI_OK;
}

alibi_status json_read(json_t **out, const char *path)
{
    alibi_status status;
    char *bytes = NULL;
    size_t length = 0;

    TRY(file_read_all(&bytes, &length, path, JSON_BYTES_MAX));
    TRY(json_parse(out, bytes, length, path));
out:
    mem_free(bytes);
    return status;
}

alibi_status json_read_within(json_t **out, const char *folder, const char *name)
{
    alibi_status status;
    char *path = NULL;
    bool has;

    TRY(folder_has(&has, folder, name));
    *out = NULL;
    if (!has)
        goto out;
    TRY(path_join(&path, folder, name));
    TRY(json_read(out, path));
out:
    mem_free(path);
    return status;
}

static alibi_status member(const json_t **out, const json_t *object, const char *key,
                           const char *path)
{
    if (!json_is_object(object))
        return fail(ALIBI_BAD_INPUT, "'%s': an object with the key '%s' is expected", path, key);
    *out = json_object_get(object, key);
    if (*out == NULL)
        return fail(ALIBI_BAD_INPUT, "'%s': the key '%s' is missing", path, key);
    return ALIBI_OK;
}

alibi_status json_get_int(const json_t *object, const char *key, int64_t min, int64_t max,
                          int64_t *out, const char *path)
{
    const json_t *value = NULL;
    int64_t number;

    TRY_RETURN(member(&value, object, key, path));
    if (!json_is_integer(value))
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not a whole number", path, key);
    number = json_integer_value(value);
    if (number < min || number > max)
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is %lld, it must be within %lld..%lld", path, key,
                    (long long)number, (long long)min, (long long)max);
    *out = number;
    return ALIBI_OK;
}

alibi_status json_get_real(const json_t *object, const char *key, double *out, const char *path)
{
    const json_t *value = NULL;

    TRY_RETURN(member(&value, object, key, path));
    if (!json_is_number(value))
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not a number", path, key);
    *out = json_number_value(value);
    return ALIBI_OK;
}

alibi_status json_get_text(const json_t *object, const char *key, const char **out,
                           const char *path)
{
    const json_t *value = NULL;

    TRY_RETURN(member(&value, object, key, path));
    if (!json_is_string(value))
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not a text", path, key);
    *out = json_string_value(value);
    return ALIBI_OK;
}

/* ---- writing values */

void json_append_string(struct text *t, const char *text, size_t length)
{
    static const char letters[] = {
        ['"'] = '"', ['\\'] = '\\', ['\n'] = 'n', ['\t'] = 't', ['\r'] = 'r'
    };

    text_append_bytes(t, "\"", 1);
    for (size_t at = 0; at < length;) {
        size_t end = at, plain;
        unsigned char c;

        while (end < length && (unsigned char)text[end] >= 0x20 && text[end] != '"' &&
               text[end] != '\\')
            end++;
        plain = utf8_valid_prefix(text + at, end - at);
        text_append_bytes(t, text + at, plain);
        at += plain;
        if (at == length)
            break;
        c = (unsigned char)text[at++]; /* which cannot be in a string as it is */
        if (c < sizeof letters && letters[c] != '\0')
            text_append(t, "\\%c", letters[c]);
        else if (c < 0x20)
            text_append(t, "\\u%04x", (unsigned)c);
        else
            text_append(t, "\\ufffd"); /* not UTF-8 */
    }
    text_append_bytes(t, "\"", 1);
}

/* With 17 digits every double reads back; most need fewer, and the shortest is the one people
 * wrote. */
void json_append_real(struct text *t, double value)
{
    size_t start = t->length;

    if (!isfinite(value))
        text_append(t, "null");
    for (int digits = 15; isfinite(value) && digits <= 17; digits++) {
        t->length = start;
        text_append(t, "%.*g", digits, value);
        if (t->status != ALIBI_OK || text_real(t->data + start) == value)
            break;
    }
}

/* ---- the writer */

struct json_writer json_writer(struct text *out)
{
    return (struct json_writer){ .out = out, .start = out->length };
}

/* Writes the text before a value: the comma after the last member, a new line or a blank, and the
 * key. */
static void begin_value(struct json_writer *w, const char *key)
{
    struct json_level *level = w->depth > 0 ? &w->levels[w->depth - 1] : NULL;

    if (level != NULL && level->line)
        text_append(w->out, level->any ? ", " : level->close == '}' ? " " : "");
    else if (level != NULL)
        text_append(w->out, "%s\n%*s", level->any ? "," : "", 2 * w->depth, "");
    if (level != NULL)
        level->any = true;
    if (key != NULL) {
        json_append_string(w->out, key, strlen(key));
        text_append(w->out, ": ");
    }
}

/* A level within one that is on one line is on that line too. */
static void begin_level(struct json_writer *w, const char *key, char open, char close, bool line)
{
    begin_value(w, key);
    text_append(w->out, "%c", open);
    if (w->depth == JSON_DEPTH_MAX) {
        if (w->out->status == ALIBI_OK)
            w->out->status = fail(ALIBI_BAD_INPUT, "JSON of more than %d levels", JSON_DEPTH_MAX);
        return;
    }
    line = line || (w->depth > 0 && w->levels[w->depth - 1].line);
    w->levels[w->depth++] = (struct json_level){ .close = close, .line = line };
}

void json_write_object(struct json_writer *w, const char *key)
{
    begin_level(w, key, '{', '}', false);
}

void json_write_array(struct json_writer *w, const char *key)
{
    begin_level(w, key, '[', ']', false);
}

void json_write_object_line(struct json_writer *w, const char *key)
{
    begin_level(w, key, '{', '}', true);
}

void json_write_array_line(struct json_writer *w, const char *key)
{
    begin_level(w, key, '[', ']', true);
}

void json_write_end(struct json_writer *w)
{
    struct json_level level;

    if (w->depth == 0)
        return; /* too many levels: not all of them were begun */
    level = w->levels[--w->depth];
    if (level.any && level.line && level.close == '}')
        text_append(w->out, " ");
    else if (level.any && !level.line)
        text_append(w->out, "\n%*s", 2 * w->depth, "");
    text_append(w->out, w->depth > 0 ? "%c" : "%c\n", level.close);
}

void json_write_int(struct json_writer *w, const char *key, int64_t value)
{
    begin_value(w, key);
    text_append(w->out, "%lld", (long long)value);
}

void json_write_real(struct json_writer *w, const char *key, double value)
{
    begin_value(w, key);
    json_append_real(w->out, value);
}

void json_write_bool(struct json_writer *w, const char *key, bool value)
{
    json_write_raw(w, key, value ? "true" : "false");
}

void json_write_null(struct json_writer *w, const char *key)
{
    json_write_raw(w, key, "null");
}

void json_write_string(struct json_writer *w, const char *key, const char *value)
{
    begin_value(w, key);
    json_append_string(w->out, value, strlen(value));
}

void json_write_raw(struct json_writer *w, const char *key, const char *json)
{
    begin_value(w, key);
    text_append_bytes(w->out, json, strlen(json));
}

/* ---- numbers of a struct */

void json_write_fields(struct json_writer *w, const struct json_field *fields, int count,
                       const void *values)
{
    for (int i = 0; i < count; i++) {
        const void *at = (const char *)values + fields[i].offset;

        if (fields[i].type == FIELD_REAL || fields[i].type == FIELD_UNBOUNDED)
            json_write_real(w, fields[i].name, *(const double *)at);
        else if (fields[i].type == FIELD_SIZE)
            json_write_int(w, fields[i].name, (int64_t) * (const size_t *)at);
        else
            json_write_int(w, fields[i].name, *(const int64_t *)at);
    }
}

alibi_status json_read_fields(const json_t *object, const struct json_field *fields, int count,
                              void *values, const char *path)
{
    for (int i = 0; i < count; i++) {
        const struct json_field *f = &fields[i];
        void *at = (char *)values + f->offset;
        int64_t number;

        if (f->type == FIELD_UNBOUNDED && json_is_null(json_object_get(object, f->name))) {
            *(double *)at = INFINITY;
        } else if (f->type == FIELD_REAL || f->type == FIELD_UNBOUNDED) {
            TRY_RETURN(json_get_real(object, f->name, at, path));
        } else {
            TRY_RETURN(json_get_int(object, f->name, 0, INT64_MAX, &number, path));
            if (f->type == FIELD_SIZE)
                *(size_t *)at = (size_t)number;
            else
                *(int64_t *)at = number;
        }
    }
    return ALIBI_OK;
}
