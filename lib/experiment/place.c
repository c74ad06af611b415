/* place.c - the line of a member in a JSON text
 *
 * jansson keeps no lines, so a message that names one searches the text again. The text is known to
 * be JSON; keys are compared as they are spelled, without escapes. */
#include <stdlib.h>
#include <string.h>

#include "experiment/experiment.h"

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
