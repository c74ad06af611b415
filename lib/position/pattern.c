/* pattern.c - the position of a model, written as text: a method for each layer
 *
 *   pattern = element { "," element }
 *   element = [ count "*" ] method { ":" option [ "=" value ] }
 *
 * "3*rotary:window=64,none" is three layers of rotary, one of none, and so on to the last layer. In
 * a list of patterns, where a comma separates them, "+" separates elements. Options that are not
 * written have the values of the model's options (bias_max for alibi), otherwise the defaults of
 * their table. The name of a pattern has the options that differ from these, in the order of the
 * tables. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "position/position.h"

enum { LAYERS_MAX = 4096, GROUPS = 2 };

/* Options that every method has. */
static const struct alibi_option common[] = {
    { "window", ALIBI_OPTION_INT, offsetof(struct position, window), 0, 1 << 30, NULL, "0", "N",
      "keys that a query sees at most, its own the last; 0: all before it" },
};

static void all_groups(struct alibi_option_group groups[GROUPS], struct position *p)
{
    groups[0] = (struct alibi_option_group){ "layer", common, sizeof common / sizeof *common, p };
    groups[1] = (struct alibi_option_group){ "method", p->method->options, p->method->option_count,
                                             p->own };
}

static alibi_status position_init(struct position *p, const struct position_method *method,
                                  const struct alibi_config *c)
{
    struct alibi_option_group groups[GROUPS];

    memset(p, 0, sizeof *p);
    p->method = method;
    all_groups(groups, p);
    TRY_RETURN(alibi_options_init(groups, GROUPS));
    if (method->defaults)
        method->defaults(c, p->own);
    return ALIBI_OK;
}

/* ---- reading */

/* Ends the text before the first of `marks`, and returns what follows it, or NULL. */
static char *cut(char *text, const char *marks)
{
    char *at = strpbrk(text, marks);

    if (!at)
        return NULL;
    *at = '\0';
    return at + 1;
}

static char *trim(char *text)
{
    size_t length;

    text += strspn(text, " ");
    for (length = strlen(text); length > 0 && text[length - 1] == ' '; length--)
        text[length - 1] = '\0';
    return text;
}

/* "'rotary' has no option 'windw': it has window, base, layout" */
static alibi_status fail_option(const struct alibi_option_group *groups, int count,
                                const char *owner, const char *name)
{
    struct text known = { 0 };
    alibi_status status;

    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            text_append(&known, "%s%s", known.length > 0 ? ", " : "", groups[g].options[i].name);
    TRY(text_status(&known));
    status = fail(ALIBI_USAGE, "'%s' has no option '%s': it has %s", owner, name, known.data);
out:
    text_free(&known);
    return status;
}

/* "window=64:base=500" to the values of the groups; NULL: nothing to set. */
static alibi_status set_options(const struct alibi_option_group *groups, int count,
                                const char *owner, char *options)
{
    for (char *next; options; options = next) {
        const struct alibi_option_group *group = NULL;
        const struct alibi_option *o;
        char *value;
        alibi_status status;

        next = cut(options, ":");
        value = cut(options, "=");
        o = alibi_options_find(groups, count, options, &group);
        if (!o)
            return fail_option(groups, count, owner, options);
        if (!value && o->type != ALIBI_OPTION_FLAG)
            return fail(ALIBI_USAGE, "option '%s' of '%s' needs a value: %s=%s", o->name, owner,
                        o->name, o->value);
        status = option_set(o, group->values, value ? value : "true");
        if (status != ALIBI_OK)
            return fail_context(status, "%s", o->name);
    }
    return ALIBI_OK;
}

/* The text is taken to pieces. */
static alibi_status read_element(struct position *p, int64_t *layers, char *text,
                                 const struct alibi_config *c)
{
    char *options = cut(text, ":"), *times = strchr(text, '*');
    const struct position_method *method;
    struct alibi_option_group groups[GROUPS];

    *layers = 1;
    if (times) {
        size_t digits = strspn(text, "0123456789");

        if (digits == 0 || text + digits != times || digits > 4 || atoi(text) < 1 ||
            atoi(text) > LAYERS_MAX)
            return fail(ALIBI_USAGE, "'%.*s' is not a number of layers from 1 to %d",
                        (int)(times - text), text, LAYERS_MAX);
        *layers = atoi(text);
        text = times + 1;
    }
    TRY_RETURN(position_find(&method, text));
    TRY_RETURN(position_init(p, method, c));
    all_groups(groups, p);
    return set_options(groups, GROUPS, method->name, options);
}

/* ---- names */

/* ":window=64" for each option that differs from that of `usual`. */
static void name_options(struct text *name, const struct alibi_option_group *groups,
                         const struct alibi_option_group *usual, int count)
{
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++) {
            const struct alibi_option *o = &groups[g].options[i];
            struct text value = { 0 };
            size_t length;

            if (option_equal(o, groups[g].values, usual[g].values))
                continue;
            if (option_format_plain(&value, o, groups[g].values) == ALIBI_OK) {
                length = value.length;
                if (length > 2 && strcmp(value.data + length - 2, ".0") == 0)
                    length -= 2; /* a real that is whole */
                if (strcmp(value.data, "true") == 0)
                    text_append(name, ":%s", o->name);
                else
                    text_append(name, ":%s=%.*s", o->name, (int)length, value.data);
            } else if (name->status == ALIBI_OK) {
                name->status = value.status;
            }
            text_free(&value);
        }
}

static alibi_status name_position(struct text *name, const struct position *p,
                                  const struct alibi_config *c)
{
    struct position copy = *p, usual;
    struct alibi_option_group groups[GROUPS], usuals[GROUPS];

    TRY_RETURN(position_init(&usual, p->method, c));
    all_groups(groups, &copy);
    all_groups(usuals, &usual);
    text_append(name, "%s", p->method->name);
    name_options(name, groups, usuals, GROUPS);
    return text_status(name);
}

alibi_status pattern_name(char out[ALIBI_NAME_MAX], const struct pattern *p,
                          const struct alibi_config *c)
{
    alibi_status status;
    struct text name = { 0 };

    for (int i = 0; i < p->runs; i++) {
        text_append(&name, "%s", i > 0 ? "," : "");
        if (p->run[i].layers > 1)
            text_append(&name, "%lld*", (long long)p->run[i].layers);
        TRY(name_position(&name, &p->kind[p->run[i].kind], c));
    }
    TRY(text_status(&name));
    if (name.length >= ALIBI_NAME_MAX) {
        status = fail(ALIBI_USAGE, "position '%s' has more than %d bytes; use fewer elements",
                      name.data, ALIBI_NAME_MAX - 1);
        goto out;
    }
    memset(out, 0, ALIBI_NAME_MAX);
    memcpy(out, name.data, name.length);
out:
    text_free(&name);
    return status;
}

void pattern_weight_name(char out[POSITION_WEIGHT_MAX], int kind)
{
    if (kind == 0)
        snprintf(out, POSITION_WEIGHT_MAX, "position.weight");
    else
        snprintf(out, POSITION_WEIGHT_MAX, "position.%d.weight", kind);
}

void pattern_file_name(char out[ALIBI_NAME_MAX], const char *name)
{
    int i = 0;

    for (; name[i] != '\0' && i < ALIBI_NAME_MAX - 1; i++)
        out[i] = isalnum((unsigned char)name[i]) || strchr("._-", name[i]) ? name[i] : '-';
    out[i] = '\0';
}

/* ---- patterns */

static bool same_position(struct position a, struct position b)
{
    struct alibi_option_group of_a[GROUPS], of_b[GROUPS];

    all_groups(of_a, &a);
    all_groups(of_b, &b);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; a.method == b.method && i < of_a[g].count; i++)
            if (!option_equal(&of_a[g].options[i], of_a[g].values, of_b[g].values))
                return false;
    return a.method == b.method;
}

/* Appends layers; equal neighbours become one run. */
static alibi_status add_run(struct pattern *p, const struct position *position, int64_t layers)
{
    int kind = 0;

    while (kind < p->kinds && !same_position(p->kind[kind], *position))
        kind++;
    if (kind == PATTERN_KINDS)
        return fail(ALIBI_USAGE, "more than %d different elements", PATTERN_KINDS);
    if (kind == p->kinds)
        p->kind[p->kinds++] = *position;
    if (p->runs > 0 && p->run[p->runs - 1].kind == kind) {
        p->run[p->runs - 1].layers += layers;
    } else {
        if (p->runs == PATTERN_RUNS)
            return fail(ALIBI_USAGE, "more than %d elements", PATTERN_RUNS);
        p->run[p->runs].layers = layers;
        p->run[p->runs++].kind = kind;
    }
    p->length += layers;
    return ALIBI_OK;
}

/* A pattern that repeats itself is its shortest part: "rotary,none" for "rotary,none,rotary,none".
 */
static void shorten(struct pattern *p)
{
    for (int part = 1; part < p->runs; part++) {
        bool repeats = p->runs % part == 0;

        for (int i = part; i < p->runs; i++)
            repeats = repeats && p->run[i].kind == p->run[i - part].kind &&
                      p->run[i].layers == p->run[i - part].layers;
        if (repeats) {
            p->length /= p->runs / part;
            p->runs = part;
        }
    }
    if (p->runs == 1)
        p->run[0].layers = p->length = 1;
}

alibi_status pattern_read(struct pattern *out, const struct alibi_config *c)
{
    struct pattern p = { 0 };
    char text[ALIBI_NAME_MAX], element[ALIBI_NAME_MAX], *rest = text;

    snprintf(text, sizeof text, "%s", c->position);
    while (rest) {
        struct position position;
        int64_t layers = 0;
        char *here = rest;
        alibi_status status;

        rest = cut(here, ",+");
        here = trim(here);
        snprintf(element, sizeof element, "%s", here);
        status = read_element(&position, &layers, here, c);
        if (status == ALIBI_OK)
            status = add_run(&p, &position, layers);
        if (status != ALIBI_OK)
            return strcmp(element, c->position) == 0 && !strpbrk(element, ":*")
                       ? status
                       : fail_context(status, "position '%s'", element);
    }
    shorten(&p);
    *out = p;
    return ALIBI_OK;
}

alibi_status pattern_check(const struct pattern *p, const struct alibi_config *c)
{
    if (p->length > c->layers)
        return fail(ALIBI_USAGE,
                    "position '%s' is a pattern of %lld layers, but the model has %lld: give "
                    "--layers %lld or more, or a shorter pattern",
                    c->position, (long long)p->length, (long long)c->layers, (long long)p->length);
    for (int k = 0; k < p->kinds; k++) {
        const struct position_method *first = p->kind[0].method, *method = p->kind[k].method;
        bool once = first->acts_on == POSITION_EMBEDDING || method->acts_on == POSITION_EMBEDDING;
        bool same =
            method == first && memcmp(p->kind[k].own, p->kind[0].own, sizeof p->kind[k].own) == 0;

        if (once && !same)
            return fail(ALIBI_USAGE,
                        "position '%s': '%s' acts once, on the embeddings before all layers, so it "
                        "has to be the same for every layer",
                        c->position,
                        method->acts_on == POSITION_EMBEDDING ? method->name : first->name);
        if (method->check)
            TRY_RETURN(method->check(c, &p->kind[k]));
    }
    return ALIBI_OK;
}

int pattern_kind(const struct pattern *p, int64_t layer)
{
    int i = 0;

    layer %= p->length;
    for (; layer >= p->run[i].layers; i++)
        layer -= p->run[i].layers;
    return p->run[i].kind;
}
