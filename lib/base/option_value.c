/* option_value.c - values are checked on their way in, whichever way they come, and written so that
 * they read back the same */
#include "base/option_value.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks that text and JSON share */

/* From 2^53 on a bound is no longer a number that someone chose. */
static bool is_open(double max)
{
    return max >= 0x1p53;
}

static alibi_status check_integer(const struct alibi_option *o, int64_t value)
{
    if ((double)value >= o->min && (double)value <= o->max)
        return ALIBI_OK;
    if (is_open(o->max))
        return fail(ALIBI_USAGE, "%lld is out of range, it must be at least %.0f", (long long)value,
                    o->min);
    return fail(ALIBI_USAGE, "%lld is out of range, it must be within %.0f..%.0f", (long long)value,
                o->min, o->max);
}

static alibi_status check_real(const struct alibi_option *o, double value)
{
    if (value >= o->min && value <= o->max)
        return ALIBI_OK;
    if (is_open(o->max))
        return fail(ALIBI_USAGE, "%g is out of range, it must be at least %g", value, o->min);
    return fail(ALIBI_USAGE, "%g is out of range, it must be within %g..%g", value, o->min, o->max);
}

/* Text goes into recipes, which are UTF-8. */
static alibi_status check_utf8(const char *text)
{
    if (utf8_valid_prefix(text, strlen(text)) != strlen(text))
        return fail(ALIBI_USAGE, "'%s' is not valid UTF-8", text);
    return ALIBI_OK;
}

static alibi_status check_count(int count)
{
    if (count >= ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "the list has more than %d entries", ALIBI_LIST_MAX);
    return ALIBI_OK;
}

static alibi_status set_name(char name[ALIBI_NAME_MAX], const char *text, size_t length)
{
    if (length >= ALIBI_NAME_MAX)
        return fail(ALIBI_USAGE, "'%.*s...' is longer than a name can be, %d bytes", ALIBI_NAME_MAX,
                    text, ALIBI_NAME_MAX - 1);
    memset(name, 0, ALIBI_NAME_MAX);
    memcpy(name, text, length);
    return check_utf8(name);
}

static alibi_status add_integer(struct alibi_int_list *list, const struct alibi_option *o,
                                int64_t value)
{
    TRY_RETURN(check_count(list->count));
    TRY_RETURN(check_integer(o, value));
    list->at[list->count++] = value;
    return ALIBI_OK;
}

static alibi_status add_name(struct alibi_name_list *list, const char *text, size_t length)
{
    TRY_RETURN(check_count(list->count));
    if (length == 0)
        return fail(ALIBI_USAGE, "the list has an empty entry");
    TRY_RETURN(set_name(list->at[list->count], text, length));
    list->count++;
    return ALIBI_OK;
}

/* ---- choices: "layernorm|rmsnorm" */

/* The choice at the front of *rest, which moves behind it; NULL past the last. */
static const char *next_choice(const char **rest, size_t *length)
{
    const char *choice = *rest;

    if (choice == NULL)
        return NULL;
    *length = strcspn(choice, "|");
    *rest = choice[*length] == '|' ? choice + *length + 1 : NULL;
    return choice;
}

/* Choices are short, and few letters make another of them: who typed 'gpu' did not mean 'cpu'. */
static bool is_slip(const char *text, const char *nearest)
{
    return nearest != NULL && tolower((unsigned char)text[0]) == tolower((unsigned char)nearest[0]);
}

static alibi_status fail_choice(const struct alibi_option *o, const char *text)
{
    char names[ALIBI_LIST_MAX][ALIBI_NAME_MAX] = { "" };
    const char *pointers[ALIBI_LIST_MAX];
    const char *rest = o->choices, *choice, *nearest;
    size_t length;
    int count = 0;

    while (count < ALIBI_LIST_MAX && (choice = next_choice(&rest, &length)) != NULL) {
        snprintf(names[count], sizeof names[count], "%.*s", (int)length, choice);
        pointers[count] = names[count];
        count++;
    }
    nearest = alibi_nearest(text, pointers, count);
    if (is_slip(text, nearest))
        return fail(ALIBI_USAGE, "'%s' is not one of %s: did you mean '%s'?", text, o->choices,
                    nearest);
    return fail(ALIBI_USAGE, "'%s' is not one of %s", text, o->choices);
}

static alibi_status find_choice(int *out, const struct alibi_option *o, const char *text)
{
    const char *rest = o->choices, *choice;
    size_t length;

    for (int i = 0; (choice = next_choice(&rest, &length)) != NULL; i++)
        if (strlen(text) == length && memcmp(text, choice, length) == 0) {
            *out = i;
            return ALIBI_OK;
        }
    return fail_choice(o, text);
}

/* ---- from text */

static size_t digits(const char *text)
{
    size_t n = 0;

    while (isdigit((unsigned char)text[n]))
        n++;
    return n;
}

/* The whole text, of that length, is an optional sign and digits. */
static bool is_integer(const char *text, size_t length)
{
    size_t sign = text[0] == '-' || text[0] == '+';
    size_t n = digits(text + sign);

    return n > 0 && sign + n == length;
}

/* The whole text is a decimal number: strtod alone would take hexadecimal, "nan", "inf" and leading
 * blanks too. */
static bool is_real(const char *text)
{
    const char *p = text + (text[0] == '-' || text[0] == '+');
    size_t before = digits(p), after = 0;

    p += before;
    if (*p == '.') {
        after = digits(p + 1);
        p += 1 + after;
    }
    if (before + after == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '-' || p[1] == '+');
        if (digits(p) == 0)
            return false;
        p += digits(p);
    }
    return *p == '\0';
}

/* `length` bytes of text, which need not end there. */
static alibi_status parse_integer(int64_t *out, const char *text, size_t length)
{
    if (!is_integer(text, length))
        return fail(ALIBI_USAGE, "'%.*s' is not a whole number", (int)length, text);
    errno = 0;
    *out = strtoll(text, NULL, 10);
    if (errno == ERANGE)
        return fail(ALIBI_USAGE, "%.*s is out of range, it does not fit 64 bits", (int)length,
                    text);
    return ALIBI_OK;
}

static alibi_status parse_real(double *out, const char *text)
{
    locale_t plain;

    if (!is_real(text))
        return fail(ALIBI_USAGE, "'%s' is not a number", text);
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *out = strtod_l(text, NULL, plain);
    freelocale(plain);
    if (!isfinite(*out))
        return fail(ALIBI_USAGE, "%s is out of range, it is too large for a number", text);
    return ALIBI_OK;
}

static alibi_status parse_flag(bool *out, const char *text)
{
    *out = strcmp(text, "true") == 0;
    if (!*out && strcmp(text, "false") != 0)
        return fail(ALIBI_USAGE, "'%s' is neither true nor false", text);
    return ALIBI_OK;
}

static alibi_status parse_entry(union option_value *out, const struct alibi_option *o,
                                const char *entry, size_t length)
{
    int64_t value = 0;

    if (o->type == ALIBI_OPTION_NAMES)
        return add_name(&out->names, entry, length);
    TRY_RETURN(parse_integer(&value, entry, length));
    return add_integer(&out->integers, o, value);
}

/* Entries between commas, without the spaces around them; the empty text is the empty list. */
static alibi_status parse_list(union option_value *out, const struct alibi_option *o,
                               const char *text)
{
    const char *entry = *text != '\0' ? text : NULL;

    memset(out, 0, sizeof *out);
    while (entry != NULL) {
        const char *end = entry + strcspn(entry, ","), *last = end;

        entry += strspn(entry, " ");
        while (last > entry && last[-1] == ' ')
            last--;
        TRY_RETURN(parse_entry(out, o, entry, (size_t)(last - entry)));
        entry = *end == ',' ? end + 1 : NULL;
    }
    return ALIBI_OK;
}

alibi_status option_value_from_text(union option_value *out, const struct alibi_option *o,
                                    const char *text)
{
    switch (o->type) {
    case ALIBI_OPTION_INT:
        TRY_RETURN(parse_integer(&out->integer, text, strlen(text)));
        return check_integer(o, out->integer);
    case ALIBI_OPTION_REAL:
        TRY_RETURN(parse_real(&out->real, text));
        return check_real(o, out->real);
    case ALIBI_OPTION_FLAG:
        return parse_flag(&out->flag, text);
    case ALIBI_OPTION_TEXT:
        TRY_RETURN(check_utf8(text));
        return text_copy(&out->text, text);
    case ALIBI_OPTION_NAME:
        return set_name(out->name, text, strlen(text));
    case ALIBI_OPTION_CHOICE:
        return find_choice(&out->choice, o, text);
    case ALIBI_OPTION_INTS:
    case ALIBI_OPTION_NAMES:
        return parse_list(out, o, text);
    }
    return fail(ALIBI_USAGE, "the option has no type");
}

/* ---- from JSON */

static alibi_status expect(bool fits, const char *expected, const json_t *json)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",    [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null"
    };

    return fits ? ALIBI_OK
                : fail(ALIBI_USAGE, "%s is expected, not %s", expected, kinds[json_typeof(json)]);
}

static alibi_status integers_from_json(struct alibi_int_list *out, const struct alibi_option *o,
                                       const json_t *json)
{
    memset(out, 0, sizeof *out);
    TRY_RETURN(expect(json_is_array(json), "a list of whole numbers", json));
    for (size_t i = 0; i < json_array_size(json); i++) {
        const json_t *entry = json_array_get(json, i);
        TRY_RETURN(expect(json_is_integer(entry), "a list of whole numbers", entry));
        TRY_RETURN(add_integer(out, o, json_integer_value(entry)));
    }
    return ALIBI_OK;
}

static alibi_status names_from_json(struct alibi_name_list *out, const json_t *json)
{
    memset(out, 0, sizeof *out);
    TRY_RETURN(expect(json_is_array(json), "a list of names", json));
    for (size_t i = 0; i < json_array_size(json); i++) {
        const json_t *entry = json_array_get(json, i);
        TRY_RETURN(expect(json_is_string(entry), "a list of names", entry));
        TRY_RETURN(add_name(out, json_string_value(entry), json_string_length(entry)));
    }
    return ALIBI_OK;
}

static alibi_status text_from_json(char **out, const json_t *json)
{
    *out = NULL;
    if (json_is_null(json))
        return ALIBI_OK;
    TRY_RETURN(expect(json_is_string(json), "a text", json));
    return text_copy(out, json_string_value(json));
}

alibi_status option_value_from_json(union option_value *out, const struct alibi_option *o,
                                    const json_t *json)
{
    switch (o->type) {
    case ALIBI_OPTION_INT:
        TRY_RETURN(expect(json_is_integer(json), "a whole number", json));
        out->integer = json_integer_value(json);
        return check_integer(o, out->integer);
    case ALIBI_OPTION_REAL:
        TRY_RETURN(expect(json_is_number(json), "a number", json));
        out->real = json_number_value(json);
        return check_real(o, out->real);
    case ALIBI_OPTION_FLAG:
        TRY_RETURN(expect(json_is_boolean(json), "true or false", json));
        out->flag = json_is_true(json);
        return ALIBI_OK;
    case ALIBI_OPTION_TEXT:
        return text_from_json(&out->text, json);
    case ALIBI_OPTION_NAME:
        TRY_RETURN(expect(json_is_string(json), "a name", json));
        return set_name(out->name, json_string_value(json), json_string_length(json));
    case ALIBI_OPTION_CHOICE:
        TRY_RETURN(expect(json_is_string(json), o->choices, json));
        return find_choice(&out->choice, o, json_string_value(json));
    case ALIBI_OPTION_INTS:
        return integers_from_json(&out->integers, o, json);
    case ALIBI_OPTION_NAMES:
        return names_from_json(&out->names, json);
    }
    return fail(ALIBI_USAGE, "the option has no type");
}

/* ---- where the value lies */

/* Bytes of a value of each type, in the union and in the struct alike. */
static const size_t value_bytes[] = {
    [ALIBI_OPTION_INT] = sizeof(int64_t),
    [ALIBI_OPTION_REAL] = sizeof(double),
    [ALIBI_OPTION_FLAG] = sizeof(bool),
    [ALIBI_OPTION_TEXT] = sizeof(char *),
    [ALIBI_OPTION_NAME] = ALIBI_NAME_MAX,
    [ALIBI_OPTION_CHOICE] = sizeof(int),
    [ALIBI_OPTION_INTS] = sizeof(struct alibi_int_list),
    [ALIBI_OPTION_NAMES] = sizeof(struct alibi_name_list),
};

static void load(union option_value *v, const struct alibi_option *o, const void *values)
{
    memcpy(v, (const char *)values + o->offset, value_bytes[o->type]);
}

void option_value_store(union option_value *v, const struct alibi_option *o, void *values)
{
    union option_value before;

    load(&before, o, values);
    option_value_free(&before, o);
    memcpy((char *)values + o->offset, v, value_bytes[o->type]);
}

void option_value_clear(const struct alibi_option *o, void *values)
{
    memset((char *)values + o->offset, 0, value_bytes[o->type]);
}

void option_value_free(union option_value *v, const struct alibi_option *o)
{
    if (o->type == ALIBI_OPTION_TEXT)
        mem_free(v->text);
}

/* ---- a value that came another way */

static alibi_status check_choice(const struct alibi_option *o, int value)
{
    const char *rest = o->choices;
    size_t length;
    int count = 0;

    while (next_choice(&rest, &length) != NULL)
        count++;
    if (value < 0 || value >= count)
        return fail(ALIBI_USAGE, "%d is out of range, it must be within 0..%d (%s)", value,
                    count - 1, o->choices);
    return ALIBI_OK;
}

static alibi_status check_name(const char name[ALIBI_NAME_MAX])
{
    if (memchr(name, '\0', ALIBI_NAME_MAX) == NULL)
        return fail(ALIBI_USAGE, "'%.*s' is a name that does not end", ALIBI_NAME_MAX, name);
    return check_utf8(name);
}

static alibi_status check_list(const struct alibi_option *o, const union option_value *v)
{
    int count = o->type == ALIBI_OPTION_INTS ? v->integers.count : v->names.count;

    if (count < 0 || count > ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "%d entries are out of range, there must be 0..%d", count,
                    ALIBI_LIST_MAX);
    for (int i = 0; i < count; i++)
        TRY_RETURN(o->type == ALIBI_OPTION_INTS ? check_integer(o, v->integers.at[i])
                                                : check_name(v->names.at[i]));
    return ALIBI_OK;
}

alibi_status option_value_check(const struct alibi_option *o, const void *values)
{
    union option_value v;

    load(&v, o, values);
    switch (o->type) {
    case ALIBI_OPTION_INT:
        return check_integer(o, v.integer);
    case ALIBI_OPTION_REAL:
        return check_real(o, v.real);
    case ALIBI_OPTION_FLAG:
        return ALIBI_OK;
    case ALIBI_OPTION_TEXT:
        return v.text != NULL ? check_utf8(v.text) : ALIBI_OK;
    case ALIBI_OPTION_NAME:
        return check_name(v.name);
    case ALIBI_OPTION_CHOICE:
        return check_choice(o, v.choice);
    case ALIBI_OPTION_INTS:
    case ALIBI_OPTION_NAMES:
        return check_list(o, &v);
    }
    return fail(ALIBI_USAGE, "the option has no type");
}

/* ---- to JSON */

static alibi_status format_text(struct text *json, const char *text)
{
    return text != NULL ? json_append_string(json, text, strlen(text)) : text_append(json, "null");
}

static alibi_status format_choice(struct text *json, const struct alibi_option *o, int index)
{
    const char *rest = o->choices, *choice;
    size_t length;

    for (int i = 0; (choice = next_choice(&rest, &length)) != NULL; i++)
        if (i == index)
            return json_append_string(json, choice, length);
    return fail(ALIBI_USAGE, "option '--%s': there is no choice number %d", o->name, index);
}

static alibi_status format_integers(struct text *json, const struct alibi_int_list *list)
{
    TRY_RETURN(text_append(json, "["));
    for (int i = 0; i < list->count; i++)
        TRY_RETURN(text_append(json, "%s%lld", i > 0 ? ", " : "", (long long)list->at[i]));
    return text_append(json, "]");
}

static alibi_status format_names(struct text *json, const struct alibi_name_list *list)
{
    TRY_RETURN(text_append(json, "["));
    for (int i = 0; i < list->count; i++) {
        TRY_RETURN(text_append(json, "%s", i > 0 ? ", " : ""));
        TRY_RETURN(format_text(json, list->at[i]));
    }
    return text_append(json, "]");
}

alibi_status option_format(struct text *json, const struct alibi_option *o, const void *values)
{
    union option_value v;

    load(&v, o, values);
    switch (o->type) {
    case ALIBI_OPTION_INT:
        return text_append(json, "%lld", (long long)v.integer);
    case ALIBI_OPTION_REAL:
        return json_append_real(json, v.real);
    case ALIBI_OPTION_FLAG:
        return text_append(json, "%s", v.flag ? "true" : "false");
    case ALIBI_OPTION_TEXT:
        return format_text(json, v.text);
    case ALIBI_OPTION_NAME:
        return format_text(json, v.name);
    case ALIBI_OPTION_CHOICE:
        return format_choice(json, o, v.choice);
    case ALIBI_OPTION_INTS:
        return format_integers(json, &v.integers);
    case ALIBI_OPTION_NAMES:
        return format_names(json, &v.names);
    }
    return fail(ALIBI_USAGE, "option '--%s' has no type", o->name);
}

/* The JSON of a text, a name or a choice is the same in quotes. */
alibi_status option_format_plain(struct text *out, const struct alibi_option *o, const void *values)
{
    alibi_status status;
    struct text json = { 0 };
    size_t quotes;

    TRY(option_format(&json, o, values));
    quotes = json.data[0] == '"' ? 1 : 0;
    TRY(text_append_bytes(out, json.data + quotes, json.length - 2 * quotes));
out:
    text_free(&json);
    return status;
}
