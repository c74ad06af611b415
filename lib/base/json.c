/* json.c - JSON through jansson */
#include "base/json.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_BYTES_MAX = 16 << 20 };

/* ---- memory: jansson's goes through ours, to be counted and failed like all the rest
 *
 * jansson (2.14, its issue 362) does not look whether the buffer of its lexer could grow: it goes on with a token that lacks
 * bytes, and then runs past its end. So a failed allocation never returns into its parser. json_parse is left by longjmp
 * instead, and frees the blocks that the parser held, which are linked in a ring for that. */

struct block {
    struct block *next, *previous;
};

/* The parse that this thread is in. `ring` is the ring's own member, without memory. */
static _Thread_local struct parse {
    struct block ring;
    jmp_buf leave;
} * parsing;

static void link_behind(struct block *b, struct block *other)
{
    b->next = other->next;
    b->previous = other;
    other->next->previous = b;
    other->next = b;
}

static void unlink_block(struct block *b)
{
    b->next->previous = b->previous;
    b->previous->next = b->next;
}

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    struct block *b;
    size_t total;

    if (!size_add(&total, bytes, sizeof *b) || mem_new(&memory, total, "JSON") != ALIBI_OK) {
        if (parsing != NULL)
            longjmp(parsing->leave, 1);
        return NULL;
    }
    b = memory;
    b->next = b->previous = b;
    if (parsing != NULL)
        link_behind(b, &parsing->ring);
    return b + 1;
}

static void release(void *memory)
{
    struct block *b = memory;

    if (b == NULL)
        return;
    unlink_block(--b);
    mem_free(b);
}

static void free_ring(struct block *ring)
{
    while (ring->next != ring)
        release(ring->next + 1);
}

static void set_allocator(void)
{
    json_set_alloc_funcs(allocate, release);
}

static void prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, set_allocator);
}

/* ---- reading */

/* *json is NULL if the text is not JSON. */
static alibi_status load(json_t **json, const char *bytes, size_t length, json_error_t *error)
{
    struct parse here;

    prepare();
    here.ring.next = here.ring.previous = &here.ring;
    if (setjmp(here.leave) != 0) {
        parsing = NULL;
        free_ring(&here.ring);
        return ALIBI_MEMORY;
    }
    parsing = &here;
    *json = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, error);
    parsing = NULL;
    unlink_block(&here.ring); /* the blocks of the document stay linked among themselves */
    return ALIBI_OK;
}

alibi_status json_parse(json_t **out, const char *bytes, size_t length, const char *path)
{
    json_error_t error;
    json_t *json = NULL;

    if (length == 0)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it is empty", path);
    TRY_RETURN(load(&json, bytes, length, &error));
    if (json == NULL)
        return fail(ALIBI_BAD_INPUT, "'%s' line %d, column %d: %s", path, error.line, error.column, error.text);
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

static alibi_status member(const json_t **out, const json_t *object, const char *key, const char *path)
{
    if (!json_is_object(object))
        return fail(ALIBI_BAD_INPUT, "'%s': an object with the key '%s' is expected", path, key);
    *out = json_object_get(object, key);
    if (*out == NULL)
        return fail(ALIBI_BAD_INPUT, "'%s': the key '%s' is missing", path, key);
    return ALIBI_OK;
}

alibi_status json_get_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out, const char *path)
{
    const json_t *value = NULL;
    int64_t number;

    TRY_RETURN(member(&value, object, key, path));
    if (!json_is_integer(value))
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not a whole number", path, key);
    number = json_integer_value(value);
    if (number < min || number > max)
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is %lld, it must be within %lld..%lld", path, key, (long long)number,
                    (long long)min, (long long)max);
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

alibi_status json_get_text(const json_t *object, const char *key, const char **out, const char *path)
{
    const json_t *value = NULL;

    TRY_RETURN(member(&value, object, key, path));
    if (!json_is_string(value))
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not a text", path, key);
    *out = json_string_value(value);
    return ALIBI_OK;
}

/* ---- writing */

/* Bytes at the front that may stand in a JSON string as they are. */
static size_t plain_prefix(const char *text, size_t length)
{
    size_t n = 0;

    while (n < length && (unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\')
        n++;
    return utf8_valid_prefix(text, n);
}

static alibi_status append_escaped(struct text *t, char c)
{
    switch (c) {
    case '"':
    case '\\':
        return text_append(t, "\\%c", c);
    case '\n':
        return text_append(t, "\\n");
    case '\t':
        return text_append(t, "\\t");
    case '\r':
        return text_append(t, "\\r");
    default:
        return (unsigned char)c < 0x20 ? text_append(t, "\\u%04x", (unsigned)c) : text_append(t, "\\ufffd");
    }
}

alibi_status json_append_string(struct text *t, const char *text, size_t length)
{
    TRY_RETURN(text_append_bytes(t, "\"", 1));
    for (size_t at = 0; at < length;) {
        size_t plain = plain_prefix(text + at, length - at);
        TRY_RETURN(text_append_bytes(t, text + at, plain));
        at += plain;
        if (at < length)
            TRY_RETURN(append_escaped(t, text[at++]));
    }
    return text_append_bytes(t, "\"", 1);
}

/* With 17 digits every double reads back; most need fewer, and the shortest is the one people wrote. */
alibi_status json_append_real(struct text *t, double value)
{
    size_t start = t->length;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    alibi_status status = ALIBI_OK;

    if (!isfinite(value))
        status = text_append(t, "null");
    for (int digits = 15; isfinite(value) && digits <= 17 && status == ALIBI_OK; digits++) {
        t->length = start;
        status = text_append(t, "%.*g", digits, value);
        if (status == ALIBI_OK && strtod_l(t->data + start, NULL, plain) == value)
            break;
    }
    freelocale(plain);
    return status;
}
