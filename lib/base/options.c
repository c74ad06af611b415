/* options.c - one table serves flags, recipes, help and checks
 *
 *   text or JSON -> union value (checked) -> the struct -> text or JSON
 *
 * A value is checked on its way in, whichever way it comes, and is written so that it reads back
 * the same. A recipe is read and checked as a whole before the first of its values is stored. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { RECIPE_BYTES_MAX = 1 << 20, RECIPE_VERSION = 1 };

/* One value of an option, before it is stored. */
union value {
    int64_t integer;
    double real;
    bool flag;
    char *text; /* owned */
    char name[ALIBI_NAME_MAX];
    int choice;
    struct alibi_int_list integers;
    struct alibi_name_list names;
};

/* Bytes of a value of each type, in the union and in the caller's struct alike. */
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

/* ---- checks that text and JSON share */

/* A bound of 2^53 or more means that the range is open. */
static const double OPEN = 0x1p53;

static alibi_status check_integer(const struct alibi_option *o, int64_t value)
{
    if ((double)value >= o->min && (double)value <= o->max)
        return ALIBI_OK;
    if (o->max >= OPEN)
        return fail(ALIBI_USAGE, "%lld is out of range, the minimum is %.0f", (long long)value,
                    o->min);
    return fail(ALIBI_USAGE, "%lld is out of range %.0f..%.0f", (long long)value, o->min, o->max);
}

static alibi_status check_real(const struct alibi_option *o, double value)
{
    if (value >= o->min && value <= o->max)
        return ALIBI_OK;
    if (o->max >= OPEN)
        return fail(ALIBI_USAGE, "%g is out of range, the minimum is %g", value, o->min);
    return fail(ALIBI_USAGE, "%g is out of range %g..%g", value, o->min, o->max);
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
        return fail(ALIBI_USAGE, "'%.*s...' is too long for a name: at most %d bytes are allowed",
                    ALIBI_NAME_MAX, text, ALIBI_NAME_MAX - 1);
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

/* The choices as a list. More than its room is a mistake in a table, which the tests would find. */
static void list_choices(struct alibi_name_list *list, const struct alibi_option *o)
{
    const char *rest = o->choices;

    memset(list, 0, sizeof *list);
    while (rest != NULL && list->count < ALIBI_LIST_MAX) {
        size_t length = strcspn(rest, "|");
        snprintf(list->at[list->count++], ALIBI_NAME_MAX, "%.*s", (int)length, rest);
        rest = rest[length] == '|' ? rest + length + 1 : NULL;
    }
}

/* " or " between the names that `text` and a dash begin: gelu-tanh, gelu-erf for gelu. */
static void list_kinds(char *list, size_t size, const char *text, const char *const *names,
                       int count)
{
    size_t length = strlen(text);

    list[0] = '\0';
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) > length && names[i][length] == '-' &&
            same_letters(names[i], text, length))
            snprintf(list + strlen(list), size - strlen(list), "%s'%s'", list[0] ? " or " : "",
                     names[i]);
}

static alibi_status find_choice(int *out, const struct alibi_option *o, const char *text)
{
    struct alibi_name_list list;
    const char *names[ALIBI_LIST_MAX], *nearest;
    char kinds[128];
    int found;

    list_choices(&list, o);
    for (int i = 0; i < list.count; i++)
        names[i] = list.at[i];
    found = name_index(text, names, list.count);
    if (found >= 0) {
        *out = found;
        return ALIBI_OK;
    }
    list_kinds(kinds, sizeof kinds, text, names, list.count);
    if (kinds[0] != '\0')
        return fail(ALIBI_USAGE, "'%s' is not one of %s: did you mean %s?", text, o->choices,
                    kinds);
    nearest = alibi_nearest(text, names, list.count);
    /* Choices are short, so one letter can make another: 'bf32' does not mean 'fp32'. */
    if (nearest != NULL && same_letters(text, nearest, 1))
        return fail(ALIBI_USAGE, "'%s' is not one of %s: did you mean '%s'?", text, o->choices,
                    nearest);
    return fail(ALIBI_USAGE, "'%s' is not one of %s", text, o->choices);
}

/* ---- from text */

static size_t digits(const char *text)
{
    size_t n = 0;

    while (isdigit((unsigned char)text[n]))
        n++;
    return n;
}

/* Bytes of the decimal number that the text begins with: strtod alone would take hexadecimal,
 * "nan", "inf" and leading blanks too. */
static size_t real_length(const char *text)
{
    const char *p = text + (text[0] == '-' || text[0] == '+');
    size_t before = digits(p), after = 0;

    p += before;
    if (*p == '.') {
        after = digits(p + 1);
        p += 1 + after;
    }
    if (before + after == 0)
        return 0;
    if (*p == 'e' || *p == 'E') {
        const char *exponent = p + 1 + (p[1] == '-' || p[1] == '+');
        if (digits(exponent) > 0)
            p = exponent + digits(exponent);
    }
    return (size_t)(p - text);
}

/* 4096, 4k, 2^12 or 1e6; k, M and G are powers of 1024. The text continues after `length` if it is
 * an entry of a list. */
static alibi_status parse_integer(int64_t *out, const char *text, size_t length)
{
    static const char units[] = "kmg";
    const char *end = text + length, *rest = text + (text[0] == '-' || text[0] == '+'), *unit;
    int64_t value, factor = 1, times = 0;
    bool fits, number = digits(rest) > 0;

    errno = 0;
    value = strtoll(text, NULL, 10);
    fits = errno == 0;
    rest += digits(rest);
    unit = rest < end ? strchr(units, tolower((unsigned char)*rest)) : NULL;
    if (unit != NULL) {
        factor = 1024;
        times = unit - units + 1;
        rest++;
    } else if (rest < end && (*rest == '^' || tolower((unsigned char)*rest) == 'e') &&
               digits(rest + 1) > 0) {
        factor = *rest == '^' ? value : 10;
        value = *rest == '^' ? 1 : value;
        times = strtoll(rest + 1, NULL, 10);
        rest += 1 + digits(rest + 1);
    }
    if (!number || rest != end)
        return fail(ALIBI_USAGE, "'%.*s' is not a whole number", (int)length, text);
    fits = fits && times < 64;
    for (int64_t i = 0; i < times && fits; i++)
        fits = !__builtin_mul_overflow(value, factor, &value);
    if (!fits)
        return fail(ALIBI_USAGE, "%.*s is out of range, it does not fit into 64 bits", (int)length,
                    text);
    *out = value;
    return ALIBI_OK;
}

/* 0.5, 1e-3 or 2^-24; a share, which is at most 1, may also be 50%. */
static alibi_status parse_real(double *out, const struct alibi_option *o, const char *text)
{
    size_t length = real_length(text), exponent = 0;
    const char *rest = text + length;

    if (length > 0 && *rest == '^') {
        exponent = real_length(rest + 1);
        rest += 1 + exponent;
    }
    if (length == 0 || (rest > text + length && exponent == 0) ||
        (*rest != '\0' && strcmp(rest, "%") != 0))
        return fail(ALIBI_USAGE, "'%s' is not a number", text);
    if (*rest == '%' && o->max > 1)
        return fail(ALIBI_USAGE, "'%s' is a percentage, but this is not a share", text);
    *out = text_real(text);
    if (exponent > 0)
        *out = pow(*out, text_real(text + length + 1));
    if (*rest == '%')
        *out /= 100;
    if (!isfinite(*out))
        return fail(ALIBI_USAGE, "%s is out of range: it is too large", text);
    return ALIBI_OK;
}

/* Entries between commas, without the spaces around them; the empty text is the empty list. */
static alibi_status parse_list(union value *out, const struct alibi_option *o, const char *text)
{
    const char *entry = *text != '\0' ? text : NULL;

    memset(out, 0, sizeof *out);
    while (entry != NULL) {
        const char *end = entry + strcspn(entry, ","), *last = end;

        entry += strspn(entry, " ");
        while (last > entry && last[-1] == ' ')
            last--;
        if (o->type == ALIBI_OPTION_NAMES) {
            TRY_RETURN(add_name(&out->names, entry, (size_t)(last - entry)));
        } else {
            int64_t value = 0;
            if (last == entry)
                return fail(ALIBI_USAGE, "the list has an empty entry");
            TRY_RETURN(parse_integer(&value, entry, (size_t)(last - entry)));
            TRY_RETURN(add_integer(&out->integers, o, value));
        }
        entry = *end == ',' ? end + 1 : NULL;
    }
    return ALIBI_OK;
}

static alibi_status value_from_text(union value *out, const struct alibi_option *o,
                                    const char *text)
{
    switch (o->type) {
    case ALIBI_OPTION_INT:
        TRY_RETURN(parse_integer(&out->integer, text, strlen(text)));
        return check_integer(o, out->integer);
    case ALIBI_OPTION_REAL:
        TRY_RETURN(parse_real(&out->real, o, text));
        return check_real(o, out->real);
    case ALIBI_OPTION_FLAG:
        out->flag = strcmp(text, "true") == 0;
        if (!out->flag && strcmp(text, "false") != 0)
            return fail(ALIBI_USAGE, "'%s' is neither true nor false", text);
        return ALIBI_OK;
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
                : fail(ALIBI_USAGE, "%s is expected, found %s", expected, kinds[json_typeof(json)]);
}

static alibi_status list_from_json(union value *out, const struct alibi_option *o,
                                   const json_t *json)
{
    bool names = o->type == ALIBI_OPTION_NAMES;
    const char *expected = names ? "a list of names" : "a list of whole numbers";

    memset(out, 0, sizeof *out);
    TRY_RETURN(expect(json_is_array(json), expected, json));
    for (size_t i = 0; i < json_array_size(json); i++) {
        const json_t *entry = json_array_get(json, i);
        TRY_RETURN(expect(names ? json_is_string(entry) : json_is_integer(entry), expected, entry));
        TRY_RETURN(names
                       ? add_name(&out->names, json_string_value(entry), json_string_length(entry))
                       : add_integer(&out->integers, o, json_integer_value(entry)));
    }
    return ALIBI_OK;
}

static alibi_status value_from_json(union value *out, const struct alibi_option *o,
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
        out->text = NULL;
        if (json_is_null(json))
            return ALIBI_OK;
        TRY_RETURN(expect(json_is_string(json), "a text", json));
        return text_copy(&out->text, json_string_value(json));
    case ALIBI_OPTION_NAME:
        TRY_RETURN(expect(json_is_string(json), "a name", json));
        return set_name(out->name, json_string_value(json), json_string_length(json));
    case ALIBI_OPTION_CHOICE:
        TRY_RETURN(expect(json_is_string(json), o->choices, json));
        return find_choice(&out->choice, o, json_string_value(json));
    case ALIBI_OPTION_INTS:
    case ALIBI_OPTION_NAMES:
        return list_from_json(out, o, json);
    }
    return fail(ALIBI_USAGE, "the option has no type");
}

/* ---- values in the caller's struct */

static void load(union value *v, const struct alibi_option *o, const void *values)
{
    memcpy(v, (const char *)values + o->offset, value_bytes[o->type]);
}

/* Moves the value to its place, and frees a text that was there. Cannot fail. */
static void store(const union value *v, const struct alibi_option *o, void *values)
{
    union value before;

    load(&before, o, values);
    if (o->type == ALIBI_OPTION_TEXT)
        mem_free(before.text);
    memcpy((char *)values + o->offset, v, value_bytes[o->type]);
}

bool option_equal(const struct alibi_option *o, const void *values, const void *others)
{
    return memcmp((const char *)values + o->offset, (const char *)others + o->offset,
                  value_bytes[o->type]) == 0;
}

static alibi_status check_name(const char name[ALIBI_NAME_MAX])
{
    if (memchr(name, '\0', ALIBI_NAME_MAX) == NULL)
        return fail(ALIBI_USAGE, "the name '%.*s' is not terminated", ALIBI_NAME_MAX, name);
    return check_utf8(name);
}

/* Checks a value that the caller may have put into the struct without alibi_options_set. */
static alibi_status check_value(const struct alibi_option *o, const void *values)
{
    union value v;
    struct alibi_name_list choices;
    int count;

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
        list_choices(&choices, o);
        if (v.choice < 0 || v.choice >= choices.count)
            return fail(ALIBI_USAGE, "%d is out of range 0..%d (%s)", v.choice, choices.count - 1,
                        o->choices);
        return ALIBI_OK;
    case ALIBI_OPTION_INTS:
    case ALIBI_OPTION_NAMES:
        count = o->type == ALIBI_OPTION_INTS ? v.integers.count : v.names.count;
        if (count < 0 || count > ALIBI_LIST_MAX)
            return fail(ALIBI_USAGE, "%d entries are out of range 0..%d", count, ALIBI_LIST_MAX);
        for (int i = 0; i < count; i++)
            TRY_RETURN(o->type == ALIBI_OPTION_INTS ? check_integer(o, v.integers.at[i])
                                                    : check_name(v.names.at[i]));
        return ALIBI_OK;
    }
    return fail(ALIBI_USAGE, "the option has no type");
}

/* ---- one value as JSON */

void option_write(struct json_writer *w, const char *key, const struct alibi_option *o,
                  const void *values)
{
    union value v;
    struct alibi_name_list choices;

    load(&v, o, values);
    switch (o->type) {
    case ALIBI_OPTION_INT:
        json_write_int(w, key, v.integer);
        break;
    case ALIBI_OPTION_REAL:
        json_write_real(w, key, v.real);
        break;
    case ALIBI_OPTION_FLAG:
        json_write_bool(w, key, v.flag);
        break;
    case ALIBI_OPTION_TEXT:
        if (v.text != NULL)
            json_write_string(w, key, v.text);
        else
            json_write_null(w, key);
        break;
    case ALIBI_OPTION_NAME:
        json_write_string(w, key, v.name);
        break;
    case ALIBI_OPTION_CHOICE:
        list_choices(&choices, o);
        if (v.choice >= 0 && v.choice < choices.count)
            json_write_string(w, key, choices.at[v.choice]);
        else if (w->out->status == ALIBI_OK)
            w->out->status =
                fail(ALIBI_USAGE, "option '--%s': there is no choice number %d", o->name, v.choice);
        break;
    case ALIBI_OPTION_INTS:
        json_write_array_line(w, key);
        for (int i = 0; i < v.integers.count; i++)
            json_write_int(w, NULL, v.integers.at[i]);
        json_write_end(w);
        break;
    case ALIBI_OPTION_NAMES:
        json_write_array_line(w, key);
        for (int i = 0; i < v.names.count; i++)
            json_write_string(w, NULL, v.names.at[i]);
        json_write_end(w);
        break;
    }
}

alibi_status option_format(struct text *json, const struct alibi_option *o, const void *values)
{
    struct json_writer w = json_writer(json);

    option_write(&w, NULL, o, values);
    return text_status(json);
}

/* As JSON, without the quotes of a text, a name or a choice; a list of numbers as it is typed. */
alibi_status option_format_plain(struct text *out, const struct alibi_option *o, const void *values)
{
    size_t start = out->length;
    union value v;

    if (o->type == ALIBI_OPTION_INTS) {
        load(&v, o, values);
        for (int i = 0; i < v.integers.count; i++)
            text_append(out, "%s%lld", i > 0 ? "," : "", (long long)v.integers.at[i]);
        text_append(out, "%s", v.integers.count > 0 ? "" : "\"\"");
        return text_status(out);
    }
    TRY_RETURN(option_format(out, o, values));
    if (out->data[start] == '"') {
        out->length -= 2;
        memmove(out->data + start, out->data + start + 1, out->length - start);
        out->data[out->length] = '\0';
    }
    return ALIBI_OK;
}

/* ---- finding an option */

const struct alibi_option *alibi_options_find(const struct alibi_option_group *groups, int count,
                                              const char *name,
                                              const struct alibi_option_group **group)
{
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            if (same_name(groups[g].options[i].name, name)) {
                if (group != NULL)
                    *group = &groups[g];
                return &groups[g].options[i];
            }
    return NULL;
}

/* ---- names, and names that do not exist */

static int count_options(const struct alibi_option_group *groups, int count)
{
    int total = 0;

    for (int g = 0; g < count; g++)
        total += groups[g].count;
    return total;
}

void option_key(char key[OPTION_KEY_MAX], const char *name)
{
    snprintf(key, OPTION_KEY_MAX, "%s", name);
    for (char *p = key; *p != '\0'; p++)
        if (*p == '-')
            *p = '_';
}

/* "unknown option '--x': did you mean '--y'?", or the same of a key of a recipe */
static alibi_status fail_unknown(const struct alibi_option_group *groups, int count,
                                 const char *kind, const char *dashes, const char *name)
{
    const char **names = NULL, *nearest;
    char key[OPTION_KEY_MAX] = "";
    int total = 0;

    TRY_RETURN(NEW_ARRAY(&names, count_options(groups, count), "the names of the options"));
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            names[total++] = groups[g].options[i].name;
    nearest = alibi_nearest(name, names, total);
    mem_free(names);
    if (nearest == NULL)
        return fail(ALIBI_USAGE, "unknown %s '%s%s'", kind, dashes, name);
    option_key(key, nearest);
    return fail(ALIBI_USAGE, "unknown %s '%s%s': did you mean '%s%s'?", kind, dashes, name, dashes,
                *dashes != '\0' ? nearest : key);
}

/* jansson does not keep the lines of keys, but it keeps their order: the line of key number n, from
 * 0, of the outermost object. The text is known to be JSON. */
static int line_of_key(const char *text, size_t length, int n)
{
    int line = 1, depth = 0, keys = 0;

    for (size_t i = 0; i < length; i++) {
        if (text[i] == '{' || text[i] == '[')
            depth++;
        if (text[i] == '}' || text[i] == ']')
            depth--;
        if (text[i] == '\n')
            line++;
        if (text[i] == '"')
            while (++i < length && text[i] != '"')
                i += text[i] == '\\';
        if (text[i] == ':' && depth == 1 && keys++ == n)
            return line;
    }
    return line;
}

/* ---- set */

alibi_status option_set(const struct alibi_option *o, void *values, const char *text)
{
    union value value;

    TRY_RETURN(value_from_text(&value, o, text));
    store(&value, o, values);
    return ALIBI_OK;
}

alibi_status alibi_options_set(const struct alibi_option_group *groups, int count, const char *name,
                               const char *text)
{
    const struct alibi_option_group *group = NULL;
    const struct alibi_option *o = alibi_options_find(groups, count, name, &group);
    alibi_status status;

    if (o == NULL)
        return fail_unknown(groups, count, "option", "--", name);
    status = option_set(o, group->values, text);
    return status == ALIBI_OK ? status : fail_context(status, "option '--%s'", o->name);
}

alibi_status options_check(const struct alibi_option_group *groups, int count)
{
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++) {
            const struct alibi_option *o = &groups[g].options[i];
            alibi_status status = check_value(o, groups[g].values);
            if (status != ALIBI_OK)
                return fail_context(status, "option '--%s'", o->name);
        }
    return ALIBI_OK;
}

alibi_status alibi_options_init(const struct alibi_option_group *groups, int count)
{
    alibi_status status = ALIBI_OK;

    /* The struct may hold anything. Clearing it first means that nothing in it is freed. */
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            memset((char *)groups[g].values + groups[g].options[i].offset, 0,
                   value_bytes[groups[g].options[i].type]);
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++) {
            const struct alibi_option *o = &groups[g].options[i];
            if (o->initial != NULL)
                TRY(alibi_options_set(&groups[g], 1, o->name, o->initial));
        }
out:
    if (status != ALIBI_OK)
        alibi_options_free(groups, count);
    return status;
}

void alibi_options_free(const struct alibi_option_group *groups, int count)
{
    union value nothing = { .text = NULL };

    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            if (groups[g].options[i].type == ALIBI_OPTION_TEXT)
                store(&nothing, &groups[g].options[i], groups[g].values);
}

/* ---- read */

/* A key of the recipe whose value was checked. */
struct setting {
    const struct alibi_option *option;
    void *values;
    union value value;
};

/* The option of a key. Only one spelling is allowed, or a recipe could hold an option twice. */
static alibi_status find_key(const struct alibi_option **option, void **values,
                             const struct alibi_option_group *groups, int count, const char *key)
{
    const struct alibi_option_group *group = NULL;
    const struct alibi_option *found = alibi_options_find(groups, count, key, &group);
    char spelled[OPTION_KEY_MAX] = "";

    if (found != NULL)
        option_key(spelled, found->name);
    if (found == NULL || strcmp(key, spelled) != 0)
        return fail_unknown(groups, count, "key", "", key);
    *option = found;
    *values = group->values;
    return ALIBI_OK;
}

/* The key `recipe` is the version. A recipe without it has version 1. */
static alibi_status check_version(const json_t *version)
{
    if (!json_is_integer(version) || json_integer_value(version) < 1)
        return fail(ALIBI_USAGE, "'recipe' is the version of the recipe, %d", RECIPE_VERSION);
    if (json_integer_value(version) > RECIPE_VERSION)
        return fail(ALIBI_USAGE,
                    "the recipe has version %lld, and this alibi reads up to %d; use a newer alibi",
                    (long long)json_integer_value(version), RECIPE_VERSION);
    return ALIBI_OK;
}

/* *done counts the settings, *keys the keys before the one that fails. */
static alibi_status read_settings(struct setting *settings, int *done, int *keys,
                                  const struct alibi_option_group *groups, int count,
                                  json_t *recipe)
{
    const char *key;
    json_t *json;

    json_object_foreach(recipe, key, json)
    {
        struct setting s;
        alibi_status status;

        if (strcmp(key, "recipe") == 0) {
            TRY_RETURN(check_version(json));
            (*keys)++;
            continue;
        }
        TRY_RETURN(find_key(&s.option, &s.values, groups, count, key));
        status = value_from_json(&s.value, s.option, json);
        if (status != ALIBI_OK)
            return fail_context(status, "'%s'", key);
        settings[(*done)++] = s; /* an option has one key, and keys are distinct: there is room */
        (*keys)++;
    }
    return ALIBI_OK;
}

alibi_status options_set_json(const struct alibi_option_group *groups, int count, const char *key,
                              const json_t *json)
{
    const struct alibi_option *o;
    void *values;
    union value value;

    TRY_RETURN(find_key(&o, &values, groups, count, key));
    TRY_RETURN(value_from_json(&value, o, json));
    store(&value, o, values);
    return ALIBI_OK;
}

alibi_status options_parse(const struct alibi_option_group *groups, int count, const char *bytes,
                           size_t length, const char *path)
{
    alibi_status status;
    json_t *recipe = NULL;
    struct setting *settings = NULL;
    int done = 0, keys = 0;

    TRY(json_parse(&recipe, bytes, length, path));
    if (!json_is_object(recipe))
        TRY(fail(
            ALIBI_BAD_INPUT,
            "'%s' is not a recipe: a JSON object with the names of options as keys is expected",
            path));
    TRY(NEW_ARRAY(&settings, count_options(groups, count), "the settings of a recipe"));
    status = read_settings(settings, &done, &keys, groups, count, recipe);
    if (status != ALIBI_OK) {
        alibi_status kind = status == ALIBI_USAGE ? ALIBI_BAD_INPUT : status;
        status = fail_context(kind, "'%s' line %d", path, line_of_key(bytes, length, keys));
        goto out;
    }
    for (; done > 0; done--)
        store(&settings[done - 1].value, settings[done - 1].option, settings[done - 1].values);
out:
    for (int i = 0; i < done; i++)
        if (settings[i].option->type == ALIBI_OPTION_TEXT)
            mem_free(settings[i].value.text);
    mem_free(settings);
    json_decref(recipe);
    return status;
}

alibi_status alibi_options_read(const struct alibi_option_group *groups, int count,
                                const char *path)
{
    alibi_status status;
    char *bytes = NULL;
    size_t length = 0;

    TRY(file_read_all(&bytes, &length, path, RECIPE_BYTES_MAX));
    TRY(options_parse(groups, count, bytes, length, path));
out:
    mem_free(bytes);
    return status;
}

/* ---- write */

static alibi_status format(const struct alibi_option_group *groups, int count, bool recipe,
                           struct text *json)
{
    struct json_writer w = json_writer(json);
    char key[OPTION_KEY_MAX];

    json_write_object(&w, NULL);
    if (recipe)
        json_write_int(&w, "recipe", RECIPE_VERSION);
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++) {
            option_key(key, groups[g].options[i].name);
            option_write(&w, key, &groups[g].options[i], groups[g].values);
        }
    json_write_end(&w);
    return text_status(json);
}

alibi_status options_format(const struct alibi_option_group *groups, int count, struct text *json)
{
    return format(groups, count, false, json);
}

alibi_status alibi_options_write(const struct alibi_option_group *groups, int count,
                                 const char *path)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(format(groups, count, true, &json));
    TRY(file_replace(path, json.data, json.length));
out:
    text_free(&json);
    return status;
}
