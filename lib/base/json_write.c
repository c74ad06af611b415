/* json_write.c - the JSON writer */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* ---- values */

/* How many bytes at the front need no escape in a JSON string. */
static size_t plain_prefix(const char *text, size_t length)
{
    size_t n = 0;

    while (n < length && (unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\')
        n++;
    return utf8_valid_prefix(text, n);
}

static void append_escaped(struct text *t, char c)
{
    switch (c) {
    case '"':
    case '\\':
        text_append(t, "\\%c", c);
        break;
    case '\n':
        text_append(t, "\\n");
        break;
    case '\t':
        text_append(t, "\\t");
        break;
    case '\r':
        text_append(t, "\\r");
        break;
    default:
        if ((unsigned char)c < 0x20)
            text_append(t, "\\u%04x", (unsigned)c);
        else
            text_append(t, "\\ufffd");
    }
}

void json_append_string(struct text *t, const char *text, size_t length)
{
    text_append_bytes(t, "\"", 1);
    for (size_t at = 0; at < length;) {
        size_t plain = plain_prefix(text + at, length - at);
        text_append_bytes(t, text + at, plain);
        at += plain;
        if (at < length)
            append_escaped(t, text[at++]);
    }
    text_append_bytes(t, "\"", 1);
}

/* With 17 digits every double reads back; most need fewer, and the shortest is the one people
 * wrote. */
void json_append_real(struct text *t, double value)
{
    size_t start = t->length;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);

    if (!isfinite(value))
        text_append(t, "null");
    for (int digits = 15; isfinite(value) && digits <= 17; digits++) {
        t->length = start;
        text_append(t, "%.*g", digits, value);
        if (t->status != ALIBI_OK || strtod_l(t->data + start, NULL, plain) == value)
            break;
    }
    freelocale(plain);
}

/* ---- the writer */

struct json_writer json_writer(struct text *out)
{
    return (struct json_writer){ .out = out, .start = out->length };
}

/* What precedes a value: the comma after the last member, a new line or a blank, and the key. */
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
