/* options.c - one table serves flags, recipes, help and checks
 *
 *   text or JSON -> option_value (checked) -> the struct
 *
 * A recipe is read whole and checked whole before the first value of it is stored. */
#include <string.h>

#include "base/json.h"
#include "base/option_value.h"

enum { RECIPE_BYTES_MAX = 1 << 20 };

static bool same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++)
        if (*a != *b && !(strchr("-_", *a) != NULL && strchr("-_", *b) != NULL))
            return false;
    return *a == *b;
}

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

/* ---- unknown names */

static int count_options(const struct alibi_option_group *groups, int count)
{
    int total = 0;

    for (int g = 0; g < count; g++)
        total += groups[g].count;
    return total;
}

/* The option whose name is nearest, NULL if none is near. */
static alibi_status nearest_option(const char **out, const struct alibi_option_group *groups,
                                   int count, const char *name)
{
    const char **names = NULL;
    int total = 0;

    TRY_RETURN(NEW_ARRAY(&names, count_options(groups, count), "the names of the options"));
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            names[total++] = groups[g].options[i].name;
    *out = alibi_nearest(name, names, total);
    mem_free(names);
    return ALIBI_OK;
}

static alibi_status fail_unknown_option(const struct alibi_option_group *groups, int count,
                                        const char *name)
{
    const char *nearest = NULL;

    TRY_RETURN(nearest_option(&nearest, groups, count, name));
    if (nearest != NULL)
        return fail(ALIBI_USAGE, "unknown option '--%s': did you mean '--%s'?", name, nearest);
    return fail(ALIBI_USAGE, "unknown option '--%s'", name);
}

/* ---- recipes spell names with underscores */

void option_key(char key[OPTION_KEY_MAX], const char *name)
{
    snprintf(key, OPTION_KEY_MAX, "%s", name);
    for (char *p = key; *p != '\0'; p++)
        if (*p == '-')
            *p = '_';
}

static alibi_status fail_unknown_key(const struct alibi_option_group *groups, int count,
                                     const char *key)
{
    const char *nearest = NULL;
    char spelled[OPTION_KEY_MAX];

    TRY_RETURN(nearest_option(&nearest, groups, count, key));
    if (nearest == NULL)
        return fail(ALIBI_USAGE, "unknown key '%s'", key);
    option_key(spelled, nearest);
    return fail(ALIBI_USAGE, "unknown key '%s': did you mean '%s'?", key, spelled);
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

alibi_status alibi_options_set(const struct alibi_option_group *groups, int count, const char *name,
                               const char *text)
{
    const struct alibi_option_group *group = NULL;
    const struct alibi_option *o = alibi_options_find(groups, count, name, &group);
    union option_value value;
    alibi_status status;

    if (o == NULL)
        return fail_unknown_option(groups, count, name);
    status = option_value_from_text(&value, o, text);
    if (status != ALIBI_OK)
        return fail_context(status, "option '--%s'", o->name);
    option_value_store(&value, o, group->values);
    return ALIBI_OK;
}

alibi_status options_check(const struct alibi_option_group *groups, int count)
{
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++) {
            const struct alibi_option *o = &groups[g].options[i];
            alibi_status status = option_value_check(o, groups[g].values);
            if (status != ALIBI_OK)
                return fail_context(status, "option '--%s'", o->name);
        }
    return ALIBI_OK;
}

static void clear_all(const struct alibi_option_group *groups, int count)
{
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            option_value_clear(&groups[g].options[i], groups[g].values);
}

alibi_status alibi_options_init(const struct alibi_option_group *groups, int count)
{
    alibi_status status = ALIBI_OK;

    clear_all(groups, count);
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
    union option_value nothing = { .text = NULL };

    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            if (groups[g].options[i].type == ALIBI_OPTION_TEXT)
                option_value_store(&nothing, &groups[g].options[i], groups[g].values);
}

/* ---- read */

/* A key of the recipe whose value was checked. */
struct setting {
    const struct alibi_option *option;
    void *values;
    union option_value value;
};

static alibi_status read_setting(struct setting *s, const struct alibi_option_group *groups,
                                 int count, const char *key, const json_t *json)
{
    const struct alibi_option_group *group = NULL;
    const struct alibi_option *o = alibi_options_find(groups, count, key, &group);
    alibi_status status;

    /* One spelling only, or a recipe could hold the same option twice. */
    if (o == NULL || strchr(key, '-') != NULL)
        return fail_unknown_key(groups, count, key);
    status = option_value_from_json(&s->value, o, json);
    if (status != ALIBI_OK)
        return fail_context(status, "'%s'", key);
    s->option = o;
    s->values = group->values;
    return ALIBI_OK;
}

static alibi_status read_settings(struct setting *settings, int *done,
                                  const struct alibi_option_group *groups, int count,
                                  json_t *recipe)
{
    const char *key;
    json_t *json;

    json_object_foreach(recipe, key, json)
    {
        TRY_RETURN(read_setting(&settings[*done], groups, count, key, json));
        (*done)++;
    }
    return ALIBI_OK;
}

alibi_status options_parse(const struct alibi_option_group *groups, int count, const char *bytes,
                           size_t length, const char *path)
{
    alibi_status status;
    json_t *recipe = NULL;
    struct setting *settings = NULL;
    int done = 0;

    TRY(json_parse(&recipe, bytes, length, path));
    if (!json_is_object(recipe)) {
        status = fail(ALIBI_BAD_INPUT,
                      "'%s': a recipe is a JSON object, with the names of options as keys", path);
        goto out;
    }
    /* Keys are distinct, so at the latest the one behind the last option is unknown. */
    TRY(NEW_ARRAY(&settings, count_options(groups, count), "the settings of a recipe"));
    status = read_settings(settings, &done, groups, count, recipe);
    if (status != ALIBI_OK) {
        alibi_status kind = status == ALIBI_USAGE ? ALIBI_BAD_INPUT : status;
        status = fail_context(kind, "'%s' line %d", path, line_of_key(bytes, length, done));
        goto out;
    }
    for (; done > 0; done--)
        option_value_store(&settings[done - 1].value, settings[done - 1].option,
                           settings[done - 1].values);
out:
    for (int i = 0; i < done; i++)
        option_value_free(&settings[i].value, settings[i].option);
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

static alibi_status format_setting(struct text *json, const struct alibi_option *o,
                                   const void *values, bool first)
{
    char key[OPTION_KEY_MAX];

    option_key(key, o->name);
    TRY_RETURN(text_append(json, "%s  \"%s\": ", first ? "\n" : ",\n", key));
    return option_format(json, o, values);
}

alibi_status options_format(const struct alibi_option_group *groups, int count, struct text *json)
{
    bool first = true;

    TRY_RETURN(text_append(json, "{"));
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++) {
            TRY_RETURN(format_setting(json, &groups[g].options[i], groups[g].values, first));
            first = false;
        }
    return text_append(json, "\n}\n");
}

alibi_status alibi_options_write(const struct alibi_option_group *groups, int count,
                                 const char *path)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(options_format(groups, count, &json));
    TRY(file_replace(path, json.data, json.length));
out:
    text_free(&json);
    return status;
}
