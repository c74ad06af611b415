/* json.c - reading JSON through jansson */
#include "base/json.h"

/* The most that jansson holds per byte of text is for lists of empty objects, "{},": about 83
 * bytes. */
enum { JSON_BYTES_MAX = 16 << 20, TREE_BYTES_PER_BYTE = 128 };

/* ---- reading
 *
 * jansson has one allocator per process, which may be the host's own, so it is not replaced. But
 * jansson (2.14, its issue 362) does not check whether the buffer of its lexer could grow. So the
 * most memory that a text can need is allocated first, where a failure can still be reported, and
 * freed again for jansson. */

static alibi_status check_memory(size_t length)
{
    void *most = NULL;
    size_t bytes;

    if (!size_multiply(&bytes, length, TREE_BYTES_PER_BYTE))
        return fail(ALIBI_MEMORY, "not enough memory for JSON of %zu bytes", length);
    TRY_RETURN(mem_new(&most, bytes, "JSON"));
    mem_free(most);
    return ALIBI_OK;
}

alibi_status json_parse(json_t **out, const char *bytes, size_t length, const char *path)
{
    json_error_t error;
    json_t *json;

    if (length == 0)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it is empty", path);
    TRY_RETURN(check_memory(length));
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
