/* read_members.c - members of an experiment's file, checked, and where they are
 *
 * A failure names the file, the line and the key. jansson keeps no lines, so the text is searched
 * again. It is known to be JSON; keys are compared as they are spelled, without escapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiment/read.h"

/* ---- the line of a member */

/* Both stop at `end`, whatever the text is. */
static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (is_white_space(*p) || *p == ',' || *p == ':'))
        p++;
    return p;
}

static const char *skip_value(const char *p, const char *end)
{
    int depth = 0;

    while (p < end) {
        if (*p == '"')
            while (++p < end && *p != '"')
                p += *p == '\\' && p + 1 < end;
        else if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        if (depth < 0 || p == end) /* the end within a string */
            return p;
        p++;
        if (depth == 0 && (p == end || strchr(",}] \t\r\n", *p) || p[-1] == '"'))
            return p;
    }
    return end;
}

/* The place of a member of the object or array at p, and its value; NULL: there is none. */
static const char *find_member(const char *p, const char *end, const char *key, const char **value)
{
    bool object = p < end && *p == '{';
    long index = strtol(key, NULL, 10);
    size_t length = strlen(key);

    if (p == end || (*p != '{' && *p != '['))
        return NULL;
    for (p = skip_space(p + 1, end); p < end && *p != '}' && *p != ']'; index--) {
        const char *place = p;
        bool same = !object && index == 0;

        if (object) {
            p = skip_value(p, end);
            same = (size_t)(p - place) == length + 2 && memcmp(place + 1, key, length) == 0;
            p = skip_space(p, end);
        }
        *value = p;
        if (same)
            return place;
        p = skip_space(skip_value(p, end), end);
    }
    return NULL;
}

int place_line(const char *text, size_t length, const char *const *path, int depth, int *found)
{
    const char *end = text + length, *at = text, *value = skip_space(text, end);
    int line = 1;

    for (*found = 0; *found < depth; (*found)++) {
        const char *place = find_member(value, end, path[*found], &value);

        if (place == NULL)
            break;
        at = place;
    }
    for (const char *p = text; p < at; p++)
        line += *p == '\n';
    return line;
}

/* ---- the path to the member that is read */

void reader_enter(struct reader *r, const char *key)
{
    r->path[r->depth++] = key;
}

void reader_enter_index(struct reader *r, size_t index)
{
    snprintf(r->index[r->depth], sizeof r->index[0], "%zu", index);
    reader_enter(r, r->index[r->depth]);
}

void reader_leave(struct reader *r)
{
    r->depth--;
}

alibi_status at_place(const struct reader *r, alibi_status status)
{
    const alibi_experiment *e = r->e;
    const char *in_tier[READER_DEPTH + 2] = { "tiers", e->tier };
    int found, found_in_tier = 0, line = place_line(e->bytes, e->length, r->path, r->depth, &found);
    char key[256] = "";

    memcpy(in_tier + 2, r->path, sizeof r->path);
    if (e->tier[0] != '\0') {
        int other = place_line(e->bytes, e->length, in_tier, r->depth + 2, &found_in_tier);

        if (found_in_tier - 2 >= found)
            line = other;
    }
    for (int i = 0; i < r->depth; i++)
        snprintf(key + strlen(key), sizeof key - strlen(key), "%s%s", i > 0 ? "." : "", r->path[i]);
    if (status == ALIBI_USAGE)
        status = ALIBI_BAD_INPUT;
    return r->depth == 0 ? fail_context(status, "'%s' line %d", e->path, line)
                         : fail_context(status, "'%s' line %d: '%s'", e->path, line, key);
}

/* ---- members */

alibi_status fail_type(struct reader *r, const char *key, const char *type)
{
    reader_enter(r, key);
    return at_place(r, fail(ALIBI_BAD_INPUT, "%s is expected", type));
}

alibi_status reader_keys(struct reader *r, json_t *object, const char *const *names, int count)
{
    const char *key, *nearest;
    json_t *value;

    if (!json_is_object(object))
        return at_place(r, fail(ALIBI_BAD_INPUT, "an object is expected"));
    json_object_foreach(object, key, value)
    {
        bool known = false;

        for (int i = 0; i < count; i++)
            known |= strcmp(names[i], key) == 0;
        if (known)
            continue;
        nearest = alibi_nearest(key, names, count);
        reader_enter(r, key);
        return at_place(r, nearest
                               ? fail(ALIBI_BAD_INPUT, "unknown key; did you mean '%s'?", nearest)
                               : fail(ALIBI_BAD_INPUT, "unknown key"));
    }
    return ALIBI_OK;
}

alibi_status reader_text(struct reader *r, const json_t *object, const char *key, const char **out)
{
    const json_t *value = json_object_get(object, key);

    if (value != NULL && !json_is_string(value))
        return fail_type(r, key, "a text");
    if (value != NULL)
        *out = json_string_value(value);
    return ALIBI_OK;
}

alibi_status reader_int(struct reader *r, const json_t *object, const char *key, int64_t min,
                        int64_t max, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value);

    if (value == NULL)
        return ALIBI_OK;
    reader_enter(r, key);
    if (!json_is_number(value) || number != floor(number))
        return at_place(r, fail(ALIBI_BAD_INPUT, "a whole number is expected"));
    if (number < (double)min || number > (double)max)
        return at_place(r, fail(ALIBI_BAD_INPUT, "%.15g is not within %lld..%lld", number,
                                (long long)min, (long long)max));
    reader_leave(r);
    *out = json_is_integer(value) ? (int64_t)json_integer_value(value) : (int64_t)number;
    return ALIBI_OK;
}

alibi_status reader_real(struct reader *r, const json_t *object, const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);

    if (value != NULL && !json_is_number(value))
        return fail_type(r, key, "a number");
    if (value != NULL)
        *out = json_number_value(value);
    return ALIBI_OK;
}

alibi_status reader_list(struct reader *r, const json_t *object, const char *key, int64_t min,
                         int64_t max, struct alibi_int_list *out)
{
    const json_t *array = json_object_get(object, key);
    struct alibi_int_list list = { 0 };

    if (array == NULL)
        return ALIBI_OK;
    if (!json_is_array(array) || json_array_size(array) < 1 ||
        json_array_size(array) > ALIBI_LIST_MAX)
        return fail_type(r, key, "a list of 1 to 32 whole numbers");
    reader_enter(r, key);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);

        reader_enter_index(r, i);
        if (json_is_string(value))
            return at_place(r, fail(ALIBI_BAD_INPUT,
                                    "'%s' is no number: its letters are none of the \"numbers\" of "
                                    "the file, or it is not whole",
                                    json_string_value(value)));
        if (!json_is_integer(value))
            return at_place(r, fail(ALIBI_BAD_INPUT, "a whole number within %lld..%lld is expected",
                                    (long long)min, (long long)max));
        if (json_integer_value(value) < min || json_integer_value(value) > max)
            return at_place(r, fail(ALIBI_BAD_INPUT, "%lld is not within %lld..%lld",
                                    (long long)json_integer_value(value), (long long)min,
                                    (long long)max));
        for (int k = 0; k < list.count; k++)
            if (list.at[k] == json_integer_value(value))
                return at_place(
                    r, fail(ALIBI_BAD_INPUT, "%lld is listed twice", (long long)list.at[k]));
        list.at[list.count++] = json_integer_value(value);
        reader_leave(r);
    }
    reader_leave(r);
    *out = list;
    return ALIBI_OK;
}

alibi_status reader_name(struct reader *r, char out[ALIBI_NAME_MAX], const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t length = strlen(name);

    if (length == 0 || length >= ALIBI_NAME_MAX || strspn(name, allowed) != length ||
        name[0] == '.' || name[0] == '-')
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "'%s' cannot be a name: give 1 to %d letters, digits, '_', '-' or "
                                "'.', beginning with a letter or digit",
                                name, ALIBI_NAME_MAX - 1));
    memset(out, 0, ALIBI_NAME_MAX);
    memcpy(out, name, length);
    return ALIBI_OK;
}

alibi_status reader_count(struct reader *r, int count, const char *what)
{
    if (count < ALIBI_LIST_MAX)
        return ALIBI_OK;
    return at_place(r,
                    fail(ALIBI_BAD_INPUT, "an experiment has at most %d %s", ALIBI_LIST_MAX, what));
}

alibi_status reader_find(struct reader *r, const char *name, const void *names, size_t size,
                         int count, const char *what, int *out)
{
    const char *list[ALIBI_LIST_MAX], *nearest;

    for (int i = 0; i < count; i++) {
        list[i] = (const char *)names + (size_t)i * size;
        if (strcmp(list[i], name) == 0) {
            *out = i;
            return ALIBI_OK;
        }
    }
    nearest = alibi_nearest(name, list, count);
    if (nearest != NULL)
        return at_place(r, fail(ALIBI_BAD_INPUT, "there is no %s '%s'; did you mean '%s'?", what,
                                name, nearest));
    return at_place(r, fail(ALIBI_BAD_INPUT, "there is no %s '%s'", what, name));
}
