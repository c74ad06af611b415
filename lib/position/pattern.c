/* pattern.c - the position of a model, written as text: a method for each layer
 *
 *   pattern = element { "," element } | preset { ":" option "=" value }
 *   element = [ count "*" ] method { ":" option [ "=" value ] }
 *
 * "3*rotary:window=64,none" is three layers of rotary, one of none, and so on to the last layer. In
 * a list of patterns, where a comma separates them, "+" separates elements. Options that are not
 * written have the values of the model's options (bias_max for alibi), otherwise the defaults of
 * their table. The name of a pattern has the options that differ from these, in the order of the
 * tables. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "position/position.h"

enum { LAYERS_MAX = 4096, GROUPS = 2 };

/* Options that every method has. */
static const struct alibi_option common[] = {
    { "window", ALIBI_OPTION_INT, offsetof(struct position, window), 0, 1 << 30, NULL, "0", "N",
      "keys that a query sees at most, its own the last; 0: all before it" },
    { "sinks", ALIBI_OPTION_INT, offsetof(struct position, sinks), 0, SINKS_MAX, NULL, "0", "N",
      "first keys that a query sees although they left its window" },
    { "logn", ALIBI_OPTION_FLAG, offsetof(struct position, logn), 0, 0, NULL, "false", NULL,
      "queries times s ln(n), for n keys that they see; s is learned per head" },
    { "temperature", ALIBI_OPTION_REAL, offsetof(struct position, temperature), 0, 100, NULL, "0",
      "X",
      "queries times 1 + X ln(n / L), for n > L keys that they see and the training length L" },
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

enum { OPTIONS_MAX = 64 }; /* of a method, or of the elements of a preset */

static int list_options(const char *names[OPTIONS_MAX], int listed,
                        const struct alibi_option_group *groups, int count)
{
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count && listed < OPTIONS_MAX; i++)
            names[listed++] = groups[g].options[i].name;
    return listed;
}

/* " did you mean 'window'?", or "" if no name is near. */
static const char *did_you_mean(char buffer[ALIBI_NAME_MAX], const char *name,
                                const char *const *names, int count)
{
    const char *nearest = alibi_nearest(name, names, count);

    buffer[0] = '\0';
    if (nearest)
        snprintf(buffer, ALIBI_NAME_MAX, " did you mean '%s'?", nearest);
    return buffer;
}

/* "'rotary' has no option 'windw': did you mean 'window'? it has window, base, layout" */
static alibi_status fail_option(const struct alibi_option_group *groups, int count,
                                const char *owner, const char *name)
{
    const char *names[OPTIONS_MAX];
    char meant[ALIBI_NAME_MAX];
    struct text known = { 0 };
    alibi_status status;
    int listed = list_options(names, 0, groups, count);

    for (int i = 0; i < listed; i++)
        text_append(&known, "%s%s", i > 0 ? ", " : "", names[i]);
    TRY(text_status(&known));
    status = fail(ALIBI_USAGE, "'%s' has no option '%s':%s it has %s", owner, name,
                  did_you_mean(meant, name, names, listed), known.data);
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

/* Modifies `text`. */
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
    if (preset_find(text))
        return fail(ALIBI_USAGE,
                    "'%s' is a name for the pattern %s and cannot be an element of another pattern",
                    preset_find(text)->name, preset_find(text)->pattern);
    TRY_RETURN(position_find(&method, text));
    TRY_RETURN(position_init(p, method, c));
    all_groups(groups, p);
    return set_options(groups, GROUPS, method->name, options);
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
        return fail(ALIBI_USAGE, "position: more than %d different elements", PATTERN_KINDS);
    if (kind == p->kinds)
        p->kind[p->kinds++] = *position;
    if (p->runs > 0 && p->run[p->runs - 1].kind == kind) {
        p->run[p->runs - 1].layers += layers;
    } else {
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

/* An element of the text, before the runs are made. */
struct element {
    struct position position;
    int64_t layers;
    char text[ALIBI_NAME_MAX];
};

static alibi_status read_elements(struct element *elements, int *count, const char *text,
                                  const struct alibi_config *c)
{
    char rest[ALIBI_NAME_MAX], *next = rest;

    snprintf(rest, sizeof rest, "%s", text);
    for (*count = 0; next; (*count)++) {
        struct element *e = &elements[*count];
        char *here = next;
        alibi_status status;

        if (*count == PATTERN_RUNS)
            return fail(ALIBI_USAGE, "position '%s': more than %d elements", text, PATTERN_RUNS);
        next = cut(here, ",+");
        here = trim(here);
        snprintf(e->text, sizeof e->text, "%s", here);
        status = read_element(&e->position, &e->layers, here, c);
        if (status != ALIBI_OK)
            return strcmp(e->text, text) == 0 && !strpbrk(e->text, ":*")
                       ? status
                       : fail_context(status, "position '%s'", e->text);
    }
    return ALIBI_OK;
}

/* Whether the text of an element or a pattern has the option: ":window" before "=", ":" or its end.
 */
static bool writes(const char *text, const char *option)
{
    char name[ALIBI_NAME_MAX];

    while ((text = strchr(text, ':')) != NULL) {
        text++;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "=:,+ "), text);
        if (name_index(name, &option, 1) == 0)
            return true;
    }
    return false;
}

/* Whether an option of a preset is set in an element: if the element writes it, or if it is the
 * method's own. sinks is set in the elements that write a window. */
static bool takes(struct element *e, const struct alibi_option *o)
{
    struct alibi_option_group groups[GROUPS];

    all_groups(groups, &e->position);
    return writes(e->text, strcmp(o->name, "sinks") == 0 ? "window" : o->name) ||
           alibi_options_find(&groups[1], 1, o->name, NULL);
}

/* An option of every method that no element writes is set in the elements without a window. */
static alibi_status set_of_preset(struct element *elements, int count,
                                  const struct position_preset *preset, const char *option)
{
    char name[ALIBI_NAME_MAX], text[ALIBI_NAME_MAX], meant[ALIBI_NAME_MAX];
    const char *names[OPTIONS_MAX];
    struct alibi_option_group groups[GROUPS];
    bool any = false, taken = false;
    int listed = 0;

    snprintf(name, sizeof name, "%s", option);
    cut(name, "=");
    for (int i = 0; i < 2 * count && !(i >= count && taken); i++) {
        struct element *e = &elements[i % count];
        const struct alibi_option *o;

        all_groups(groups, &e->position);
        listed = list_options(names, listed, groups, GROUPS);
        o = alibi_options_find(groups, GROUPS, name, NULL);
        if (!o || !(i < count ? takes(e, o) : !writes(e->text, "window")))
            continue;
        snprintf(text, sizeof text, "%s", option);
        TRY_RETURN(set_options(groups, GROUPS, preset->name, text));
        any = true;
        taken = taken || i < count;
    }
    return any ? ALIBI_OK
               : fail(ALIBI_USAGE, "'%s' has no option '%s':%s it is %s, whose options it takes",
                      preset->name, name, did_you_mean(meant, name, names, listed),
                      preset->pattern);
}

static alibi_status read_preset(struct element *elements, int *count,
                                const struct position_preset *preset, char *options,
                                const struct alibi_config *c)
{
    TRY_RETURN(read_elements(elements, count, preset->pattern, c));
    for (char *next; options; options = next) {
        next = cut(options, ":");
        TRY_RETURN(set_of_preset(elements, *count, preset, options));
    }
    return ALIBI_OK;
}

static alibi_status read_pattern(struct pattern *out, const char *text,
                                 const struct alibi_config *c)
{
    struct pattern p = { 0 };
    struct element elements[PATTERN_RUNS];
    char name[ALIBI_NAME_MAX], *options;
    int count = 0;

    snprintf(name, sizeof name, "%s", text);
    options = cut(name, ":");
    p.preset = strpbrk(text, ",+") ? NULL : preset_find(trim(name));
    if (p.preset) {
        alibi_status status = read_preset(elements, &count, p.preset, options, c);

        if (status != ALIBI_OK)
            return fail_context(status, "position '%s'", text);
    } else {
        TRY_RETURN(read_elements(elements, &count, text, c));
    }
    for (int i = 0; i < count; i++)
        TRY_RETURN(add_run(&p, &elements[i].position, elements[i].layers));
    shorten(&p);
    *out = p;
    return ALIBI_OK;
}

alibi_status pattern_read(struct pattern *out, const struct alibi_config *c)
{
    return read_pattern(out, c->position, c);
}

/* ---- names */

/* ":window=64" */
static void name_option(struct text *name, const struct alibi_option *o, const void *values)
{
    struct text value = { 0 };
    size_t length;

    if (option_format_plain(&value, o, values) == ALIBI_OK) {
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

/* ":window=64" for each option that differs from that of `usual`. */
static void name_options(struct text *name, const struct alibi_option_group *groups,
                         const struct alibi_option_group *usual, int count)
{
    for (int g = 0; g < count; g++)
        for (int i = 0; i < groups[g].count; i++)
            if (!option_equal(&groups[g].options[i], groups[g].values, usual[g].values))
                name_option(name, &groups[g].options[i], groups[g].values);
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

/* Options in which the runs differ from those of the plain preset, each once. */
static alibi_status name_preset(struct text *name, const struct pattern *p,
                                const struct pattern *plain)
{
    text_append(name, "%s", p->preset->name);
    for (int i = 0; i < p->runs && name->status == ALIBI_OK; i++) {
        struct position here = p->kind[p->run[i].kind], there = plain->kind[plain->run[i].kind];
        struct alibi_option_group groups[GROUPS], usual[GROUPS];
        struct text options = { 0 };

        all_groups(groups, &here);
        all_groups(usual, &there);
        name_options(&options, groups, usual, GROUPS);
        if (options.length > 0 && !strstr(name->data, options.data))
            text_append(name, "%s", options.data);
        if (options.status != ALIBI_OK && name->status == ALIBI_OK)
            name->status = options.status;
        text_free(&options);
    }
    return text_status(name);
}

static alibi_status name_elements(struct text *name, const struct pattern *p,
                                  const struct alibi_config *c)
{
    for (int i = 0; i < p->runs; i++) {
        text_append(name, "%s", i > 0 ? "," : "");
        if (p->run[i].layers > 1)
            text_append(name, "%lld*", (long long)p->run[i].layers);
        TRY_RETURN(name_position(name, &p->kind[p->run[i].kind], c));
    }
    return text_status(name);
}

/* Whether `name` is read as this pattern. A preset's options go to the elements that take them, so
 * not every combination of elements can be written as options of the preset. */
static bool reads_back(const struct text *name, const struct pattern *p,
                       const struct alibi_config *c)
{
    struct pattern read;
    bool same = name->length < ALIBI_NAME_MAX && read_pattern(&read, name->data, c) == ALIBI_OK &&
                read.runs == p->runs;

    for (int i = 0; same && i < p->runs; i++)
        same = read.run[i].layers == p->run[i].layers &&
               same_position(read.kind[read.run[i].kind], p->kind[p->run[i].kind]);
    return same;
}

alibi_status pattern_name(char out[ALIBI_NAME_MAX], const struct pattern *p,
                          const struct alibi_config *c)
{
    alibi_status status;
    struct text name = { 0 };
    struct pattern plain = { 0 };
    bool by_preset = false;

    if (p->preset)
        TRY(read_pattern(&plain, p->preset->name, c));
    if (p->preset && plain.runs == p->runs) { /* otherwise elements have become equal */
        TRY(name_preset(&name, p, &plain));
        by_preset = reads_back(&name, p, c);
    }
    if (!by_preset) {
        name.length = 0;
        TRY(name_elements(&name, p, c));
    }
    if (name.length >= ALIBI_NAME_MAX)
        TRY(fail(ALIBI_USAGE, "position '%s' has more than %d bytes; use fewer elements", name.data,
                 ALIBI_NAME_MAX - 1));
    memset(out, 0, ALIBI_NAME_MAX);
    memcpy(out, name.data, name.length);
out:
    text_free(&name);
    return status;
}

static double until_of(const struct position *p)
{
    return p->method->until ? p->method->until(p) : 1;
}

static bool is_over(const struct position *p, int64_t done, int64_t steps)
{
    double until = until_of(p);

    return until < 1 && done >= llround(until * (double)steps);
}

double pattern_until(const struct pattern *p)
{
    double until = 1;

    for (int k = 0; k < p->kinds; k++)
        until = fmin(until, until_of(&p->kind[k]));
    return until;
}

alibi_status pattern_check_endless(const struct pattern *p, const char *name)
{
    if (pattern_until(p) == 1)
        return ALIBI_OK;
    return fail(ALIBI_USAGE,
                "position '%s' ends after a share of the training steps, and a test has none: use "
                "the same without 'until', such as 'rotary', or 'none', which is what remains",
                name);
}

alibi_status pattern_name_after(char out[ALIBI_NAME_MAX], const struct pattern *p,
                                const struct alibi_config *c, int64_t done, int64_t steps)
{
    struct pattern after = { 0 };
    bool any = false;

    for (int i = 0; i < p->runs; i++) {
        struct position position = p->kind[p->run[i].kind];

        if (is_over(&position, done, steps)) {
            any = true;
            position.method = &position_none;
            memset(position.own, 0, sizeof position.own);
        }
        TRY_RETURN(add_run(&after, &position, p->run[i].layers));
    }
    shorten(&after);
    return pattern_name(out, any ? &after : p, c);
}

alibi_status pattern_name_tempered(char out[ALIBI_NAME_MAX], const struct pattern *p,
                                   const struct alibi_config *c, double temperature)
{
    struct pattern tempered = *p;

    for (int k = 0; k < p->kinds; k++)
        if (p->kind[k].window == 0 || p->kind[k].window > c->train_length)
            tempered.kind[k].temperature = temperature;
    return pattern_name(out, &tempered, c);
}

/* Whether a list such as ":base=5000:spread" has the option with that value. */
static bool lists(const char *list, const char *option)
{
    size_t length = strlen(option);

    for (; (list = strstr(list, option)) != NULL; list++)
        if (strchr(":", list[length])) /* or its end */
            return true;
    return false;
}

alibi_status pattern_dropped(struct text *out, const struct pattern *was, const struct pattern *is,
                             const char *written, int64_t layers)
{
    text_append(out, "%s", "");
    for (int64_t layer = 0; layer < layers; layer++) {
        struct position before = was->kind[pattern_kind(was, layer)];
        struct position after = is->kind[pattern_kind(is, layer)];

        for (int i = 0; before.method == after.method && i < before.method->option_count; i++) {
            const struct alibi_option *o = &before.method->options[i];
            struct text option = { 0 };

            if (option_equal(o, before.own, after.own) || writes(written, o->name) ||
                (is->preset && writes(is->preset->pattern, o->name)))
                continue;
            name_option(&option, o, before.own);
            if (option.status != ALIBI_OK && out->status == ALIBI_OK)
                out->status = option.status;
            if (option.status == ALIBI_OK && out->status == ALIBI_OK &&
                !lists(out->data, option.data))
                text_append(out, "%s", option.data);
            text_free(&option);
        }
    }
    return text_status(out);
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
                        "must be the same for every layer",
                        c->position,
                        method->acts_on == POSITION_EMBEDDING ? method->name : first->name);
        if (p->kind[k].temperature > 0 && c->train_length < 1)
            return fail(ALIBI_USAGE,
                        "option 'temperature' of '%s' needs the training length of the model",
                        method->name);
        if (p->kind[k].sinks > 0 && p->kind[k].window == 0)
            return fail(ALIBI_USAGE,
                        "option 'sinks' of '%s' has no effect without a window: give it "
                        "window=N, or no sinks",
                        method->name);
        if (p->kind[k].sinks > 0 && method->bias == BIAS_GATE)
            return fail(ALIBI_USAGE,
                        "option 'sinks' of '%s': its gates close sinks as they close other keys",
                        method->name);
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
