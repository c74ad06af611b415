/* read.c - an experiment's file into structs
 *
 *   1. parse; merge the tier into the rest: objects by key, everything else replaced, null removes
 *   2. fill in numbers: with "numbers": { "L": 512 } the text "2L" is 1024, "L/4" is 128, and
 *      "{2L}" within any other text becomes "1024"
 *   3. read texts, models, evaluations and claims, in this order: each may name the ones before
 *
 * A failure names the file, the line and the key. Strings are borrowed from the JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "checkpoint/checkpoint.h"
#include "experiment/experiment.h"

enum { DEPTH = 12, NUMBER_MAX = 1 << 24 };

struct reader {
    alibi_experiment *e;
    const char *path[DEPTH]; /* of keys, to the member that is being read */
    char index[DEPTH][24];
    int depth;
};

/* ---- places */

static void enter(struct reader *r, const char *key)
{
    if (r->depth < DEPTH)
        r->path[r->depth++] = key;
}

static void enter_index(struct reader *r, size_t index)
{
    snprintf(r->index[r->depth], sizeof r->index[0], "%zu", index);
    enter(r, r->index[r->depth]);
}

static void leave(struct reader *r)
{
    r->depth--;
}

/* Puts file, line and key before the message of a failure. A key that a tier replaces is found
 * there. */
static alibi_status at_place(const struct reader *r, alibi_status status)
{
    const alibi_experiment *e = r->e;
    const char *in_tier[DEPTH + 2] = { "tiers", e->tier };
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
    return fail_context(status, "'%s' line %d: '%s'", e->path, line, key);
}

/* ---- members */

static alibi_status fail_type(struct reader *r, const char *key, const char *type)
{
    enter(r, key);
    return at_place(r, fail(ALIBI_BAD_INPUT, "%s is expected", type));
}

/* Every key is one of `names`. */
static alibi_status check_keys(struct reader *r, json_t *object, const char *const *names,
                               int count)
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
        enter(r, key);
        return at_place(r, nearest
                               ? fail(ALIBI_BAD_INPUT, "unknown key; did you mean '%s'?", nearest)
                               : fail(ALIBI_BAD_INPUT, "unknown key"));
    }
    return ALIBI_OK;
}

#define KEYS(r, object, ...)                                                                       \
    check_keys(r, object, (const char *const[]){ __VA_ARGS__ },                                    \
               (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

/* A missing member leaves *out as it is. */
static alibi_status get_text(struct reader *r, const json_t *object, const char *key,
                             const char **out)
{
    const json_t *value = json_object_get(object, key);

    if (value != NULL && !json_is_string(value))
        return fail_type(r, key, "a text");
    if (value != NULL)
        *out = json_string_value(value);
    return ALIBI_OK;
}

static alibi_status get_int(struct reader *r, const json_t *object, const char *key, int64_t min,
                            int64_t max, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value);

    if (value == NULL)
        return ALIBI_OK;
    enter(r, key);
    if (!json_is_number(value) || number != floor(number))
        return at_place(r, fail(ALIBI_BAD_INPUT, "a whole number is expected"));
    if (number < (double)min || number > (double)max)
        return at_place(r, fail(ALIBI_BAD_INPUT, "%.15g is not within %lld..%lld", number,
                                (long long)min, (long long)max));
    leave(r);
    *out = json_is_integer(value) ? (int64_t)json_integer_value(value) : (int64_t)number;
    return ALIBI_OK;
}

static alibi_status get_real(struct reader *r, const json_t *object, const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);

    if (value != NULL && !json_is_number(value))
        return fail_type(r, key, "a number");
    if (value != NULL)
        *out = json_number_value(value);
    return ALIBI_OK;
}

/* Whole numbers, each once. */
static alibi_status get_list(struct reader *r, const json_t *object, const char *key, int64_t min,
                             int64_t max, struct alibi_int_list *out)
{
    const json_t *array = json_object_get(object, key);
    struct alibi_int_list list = { 0 };

    if (array == NULL)
        return ALIBI_OK;
    if (!json_is_array(array) || json_array_size(array) < 1 ||
        json_array_size(array) > ALIBI_LIST_MAX)
        return fail_type(r, key, "a list of 1 to 32 whole numbers");
    enter(r, key);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);

        enter_index(r, i);
        if (json_is_string(value))
            return at_place(r, fail(ALIBI_BAD_INPUT,
                                    "'%s' is no number: its letters are none of the \"numbers\" of "
                                    "the file, or it is not whole",
                                    json_string_value(value)));
        if (!json_is_integer(value) || json_integer_value(value) < min ||
            json_integer_value(value) > max)
            return at_place(r, fail(ALIBI_BAD_INPUT, "a whole number within %lld..%lld is expected",
                                    (long long)min, (long long)max));
        for (int k = 0; k < list.count; k++)
            if (list.at[k] == json_integer_value(value))
                return at_place(
                    r, fail(ALIBI_BAD_INPUT, "%lld is listed twice", (long long)list.at[k]));
        list.at[list.count++] = json_integer_value(value);
        leave(r);
    }
    leave(r);
    *out = list;
    return ALIBI_OK;
}

/* A name of texts, models, evaluations: it becomes the name of a file. */
static alibi_status take_name(struct reader *r, char out[ALIBI_NAME_MAX], const char *name)
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

static alibi_status check_count(struct reader *r, int count, const char *what)
{
    if (count < ALIBI_LIST_MAX)
        return ALIBI_OK;
    return at_place(r,
                    fail(ALIBI_BAD_INPUT, "an experiment has at most %d %s", ALIBI_LIST_MAX, what));
}

/* The index of a name, or a failure that lists the nearest; `names` are `size` bytes apart. */
static alibi_status find_name(struct reader *r, const char *name, const void *names, size_t size,
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

/* ---- numbers */

/* [factor] NAME [/ divisor] [+ summand] at *p, which is moved past it. False: no such thing is
 * there, or it is not a whole number. */
static bool read_number(const char **p, const json_t *numbers, int64_t *out)
{
    const char *at = *p, *name;
    char *end, key[ALIBI_NAME_MAX];
    int64_t factor = 1, divisor = 1, summand = 0, value;
    const json_t *number;
    size_t length;

    if (*at >= '0' && *at <= '9') {
        factor = strtol(at, &end, 10);
        at = end;
    }
    name = at;
    while ((*at >= 'A' && *at <= 'Z') || *at == '_')
        at++;
    length = (size_t)(at - name);
    if (length == 0 || length >= sizeof key)
        return false;
    memcpy(key, name, length);
    key[length] = '\0';
    number = json_object_get(numbers, key);
    if (*at == '/' && at[1] >= '1' && at[1] <= '9') {
        divisor = strtol(at + 1, &end, 10);
        at = end;
    }
    if (*at == '+' && at[1] >= '0' && at[1] <= '9') {
        summand = strtol(at + 1, &end, 10);
        at = end;
    }
    if (!json_is_integer(number) || json_integer_value(number) < 1 ||
        json_integer_value(number) > NUMBER_MAX || factor < 1 || factor > NUMBER_MAX ||
        summand > NUMBER_MAX)
        return false;
    value = factor * (int64_t)json_integer_value(number);
    if (value % divisor != 0)
        return false;
    *p = at;
    *out = value / divisor + summand;
    return true;
}

/* A text with its numbers filled in; NULL: `value` is to stay as it is. */
static alibi_status fill_text(struct reader *r, const json_t *numbers, const json_t *value,
                              json_t **out)
{
    const char *text = json_string_value(value), *p = text;
    struct text filled = { 0 };
    alibi_status status = ALIBI_OK;
    int64_t number;

    *out = NULL;
    if (read_number(&p, numbers, &number) && *p == '\0') {
        *out = json_integer(number);
        return *out ? ALIBI_OK : fail(ALIBI_MEMORY, "not enough memory for an experiment");
    }
    if (strchr(text, '{') == NULL)
        return ALIBI_OK;
    for (p = text; *p != '\0';) {
        size_t plain = strcspn(p, "{");

        text_append_bytes(&filled, p, plain);
        p += plain;
        if (*p == '\0')
            break;
        p++;
        if (!read_number(&p, numbers, &number) || *p != '}') {
            status = at_place(r, fail(ALIBI_BAD_INPUT,
                                      "'{...}' must hold a number such as {L}, {2L} or {L/4}, with "
                                      "L among the \"numbers\", and be whole"));
            goto out;
        }
        p++;
        text_append(&filled, "%lld", (long long)number);
    }
    TRY(text_status(&filled));
    *out = json_stringn(filled.data, filled.length);
    if (*out == NULL)
        status = fail(ALIBI_MEMORY, "not enough memory for an experiment");
out:
    text_free(&filled);
    return status;
}

/* Fills in the texts within an object or array. */
static alibi_status fill_numbers(struct reader *r, const json_t *numbers, json_t *json)
{
    size_t size = json_is_array(json) ? json_array_size(json) : 0;
    json_t *filled;

    if (r->depth + 1 >= DEPTH)
        return at_place(r, fail(ALIBI_BAD_INPUT, "objects within objects are too deep"));
    for (void *iter = json_object_iter(json); iter; iter = json_object_iter_next(json, iter)) {
        json_t *value = json_object_iter_value(iter);

        enter(r, json_object_iter_key(iter));
        if (json_is_string(value)) {
            TRY_RETURN(fill_text(r, numbers, value, &filled));
            if (filled != NULL)
                json_object_iter_set_new(json, iter, filled);
        } else {
            TRY_RETURN(fill_numbers(r, numbers, value));
        }
        leave(r);
    }
    for (size_t i = 0; i < size; i++) {
        json_t *value = json_array_get(json, i);

        enter_index(r, i);
        if (json_is_string(value)) {
            TRY_RETURN(fill_text(r, numbers, value, &filled));
            if (filled != NULL)
                json_array_set_new(json, i, filled);
        } else {
            TRY_RETURN(fill_numbers(r, numbers, value));
        }
        leave(r);
    }
    return ALIBI_OK;
}

/* ---- tiers */

static void drop_nulls(json_t *json)
{
    const char *key;
    json_t *value;
    void *next;

    json_object_foreach_safe(json, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(json, key);
        else
            drop_nulls(value);
    }
}

/* Merges the tier that was asked for, and removes all of them. */
static alibi_status apply_tier(struct reader *r, const char *tier)
{
    alibi_experiment *e = r->e;
    json_t *tiers = json_object_get(e->json, "tiers"), *chosen;
    const char *key;
    json_t *value;
    int index;

    if (tiers != NULL && !json_is_object(tiers))
        return fail_type(r, "tiers", "an object");
    enter(r, "tiers");
    json_object_foreach(tiers, key, value)
    {
        TRY_RETURN(check_count(r, e->tiers.count, "tiers"));
        enter(r, key);
        TRY_RETURN(take_name(r, e->tiers.at[e->tiers.count++], key));
        TRY_RETURN(KEYS(r, value, "about", "numbers", "settings", "seeds", "texts", "models",
                        "evaluations", "claims"));
        leave(r);
    }
    leave(r);
    if (tier != NULL && tier[0] != '\0') {
        for (index = 0; index < e->tiers.count && strcmp(e->tiers.at[index], tier) != 0; index++)
            ;
        if (index == e->tiers.count)
            return fail(ALIBI_USAGE, "'%s' has no tier '%s'", e->path, tier);
        memcpy(e->tier, e->tiers.at[index], sizeof e->tier);
        chosen = json_object_get(tiers, tier);
        if (json_object_get(chosen, "about"))
            json_object_set(e->json, "tier_about", json_object_get(chosen, "about"));
        json_object_del(chosen, "about");
        if (json_object_update_recursive(e->json, chosen) != 0)
            return fail(ALIBI_MEMORY, "not enough memory for an experiment");
    }
    json_object_del(e->json, "tiers");
    drop_nulls(e->json);
    return ALIBI_OK;
}

/* ---- texts */

static alibi_status read_text(struct reader *r, const char *key, json_t *json)
{
    alibi_experiment *e = r->e;
    struct experiment_text *t = &e->text[e->texts];
    struct alibi_option_group words = { .values = &t->words };
    const char *kind = NULL, *lender = NULL;
    int known = e->texts;

    TRY_RETURN(check_count(r, e->texts, "texts"));
    TRY_RETURN(take_name(r, t->name, key));
    t->lender = -1;
    e->texts++;
    words.options = alibi_vocabulary_options(&words.count);
    TRY_RETURN(alibi_options_init(&words, 1));
    TRY_RETURN(
        KEYS(r, json, "about", "tokenizer", "tokenizer_of", "vocab", "min_count", "pattern"));
    t->about = "";
    TRY_RETURN(get_text(r, json, "about", &t->about));
    TRY_RETURN(get_text(r, json, "tokenizer", &kind));
    TRY_RETURN(get_text(r, json, "tokenizer_of", &lender));
    if (lender != NULL) {
        if (kind != NULL)
            return fail_type(r, "tokenizer", "no such key beside \"tokenizer_of\"");
        enter(r, "tokenizer_of");
        TRY_RETURN(find_name(r, lender, e->text[0].name, sizeof e->text[0], known, "earlier text",
                             &t->lender));
        leave(r);
    }
    t->tokenizer = kind != NULL ? name_index(kind, text_kind_names, TEXT_KINDS) : TEXT_BYTES;
    if (t->tokenizer < 0)
        return fail_type(r, "tokenizer", "\"bytes\", \"bpe\" or \"words\"");
    t->words.type = t->tokenizer == TEXT_WORDS ? ALIBI_WORDS : ALIBI_BPE;
    for (int i = 0; i < words.count; i++) {
        char name[OPTION_KEY_MAX];
        const json_t *value;

        option_key(name, words.options[i].name);
        value = json_object_get(json, name);
        if (value == NULL || strcmp(name, "type") == 0)
            continue;
        enter(r, name);
        if (t->tokenizer == TEXT_BYTES)
            return at_place(r, fail(ALIBI_BAD_INPUT, lender ? "it is that of the other text"
                                                            : "bytes have no vocabulary to learn"));
        alibi_status status = options_set_json(&words, 1, name, value);
        if (status != ALIBI_OK)
            return at_place(r, status);
        leave(r);
    }
    return ALIBI_OK;
}

/* ---- models */

static struct alibi_option_group config_group(struct experiment_model *m)
{
    struct alibi_option_group group = { .values = &m->config };

    group.options = alibi_config_options(&group.count);
    return group;
}

static struct alibi_option_group training_group(struct experiment_model *m)
{
    struct alibi_option_group group = { .values = &m->training };

    group.options = alibi_training_options(&group.count);
    return group;
}

/* A recipe is a file beside the experiment, or one of the folder `recipes` beside its folder. */
static alibi_status read_recipe(struct reader *r, struct experiment_model *m, const json_t *name)
{
    alibi_status status;
    struct alibi_option_group groups[2] = { config_group(m), training_group(m) };
    char *folder = NULL, *path = NULL;
    struct text relative = { 0 };
    bool is_path;

    if (!json_is_string(name)) {
        status = at_place(r, fail(ALIBI_BAD_INPUT, "the name of a recipe is expected"));
        goto out;
    }
    is_path = strchr(json_string_value(name), '/') || strstr(json_string_value(name), ".json");
    text_append(&relative, is_path ? "%s" : "../recipes/%s.json", json_string_value(name));
    TRY(text_status(&relative));
    TRY(path_folder(&folder, r->e->path));
    TRY(path_join(&path, folder, relative.data));
    status = alibi_options_read(groups, 2, path);
    if (status == ALIBI_OK && (m->training.init != NULL || m->training.keep_best))
        status = fail(ALIBI_BAD_INPUT, "'%s' has '%s', which does not apply here", path,
                      m->training.keep_best ? "keep_best" : "init");
    if (status != ALIBI_OK)
        status = at_place(r, status);
out:
    text_free(&relative);
    mem_free(path);
    mem_free(folder);
    return status;
}

/* One setting. */
static alibi_status set(struct reader *r, struct experiment_model *m, const char *key,
                        const json_t *value)
{
    static const char *const own[] = { "seed", "init", "keep_best" };
    struct alibi_option_group groups[2] = { config_group(m), training_group(m) };
    alibi_status status;
    int64_t *tokens = strcmp(key, "step_tokens") == 0    ? &m->step_tokens
                      : strcmp(key, "train_tokens") == 0 ? &m->train_tokens
                                                         : NULL;

    enter(r, key);
    for (int i = 0; i < 3; i++)
        if (strcmp(key, own[i]) == 0)
            return at_place(r, fail(ALIBI_BAD_INPUT, i == 0 ? "give \"seeds\" beside \"settings\""
                                                            : "it does not apply here"));
    if (strcmp(key, "recipe") == 0) {
        TRY_RETURN(read_recipe(r, m, value));
    } else if (tokens != NULL) {
        if (!json_is_number(value) || json_number_value(value) < 1 ||
            json_number_value(value) > 1e15)
            return at_place(r, fail(ALIBI_BAD_INPUT, "a number of tokens is expected"));
        *tokens = (int64_t)json_number_value(value);
    } else {
        status = options_set_json(groups, 2, key, value);
        if (status != ALIBI_OK)
            return at_place(r, status);
    }
    leave(r);
    return ALIBI_OK;
}

/* All settings of an object; of a setting with several values, number which[i] for the i-th such
 * one. The recipe comes first, since the others override it. */
static alibi_status set_all(struct reader *r, struct experiment_model *m, json_t *settings,
                            const int *which)
{
    struct alibi_option_group groups[2] = { config_group(m), training_group(m) };
    const char *key;
    json_t *value;

    if (settings == NULL)
        return ALIBI_OK;
    if (!json_is_object(settings))
        return fail_type(r, "settings", "an object");
    enter(r, "settings");
    value = json_object_get(settings, "recipe");
    if (value != NULL)
        TRY_RETURN(set(r, m, "recipe", value));
    json_object_foreach(settings, key, value)
    {
        const struct alibi_option *o = alibi_options_find(groups, 2, key, NULL);
        bool list = o && (o->type == ALIBI_OPTION_INTS || o->type == ALIBI_OPTION_NAMES);

        if (strcmp(key, "recipe") == 0)
            continue;
        if (which != NULL && json_is_array(value) &&
            (!list || json_is_array(json_array_get(value, 0))))
            value = json_array_get(value, (size_t)*which++);
        TRY_RETURN(set(r, m, key, value));
    }
    leave(r);
    return ALIBI_OK;
}

/* The settings of a group that have several values. */
struct product {
    int count;
    const char *key[4];
    const json_t *values[4];
};

static alibi_status read_product(struct reader *r, json_t *settings, struct product *p)
{
    struct experiment_model scratch;
    struct alibi_option_group groups[2] = { config_group(&scratch), training_group(&scratch) };
    const char *key;
    json_t *value;

    *p = (struct product){ 0 };
    enter(r, "settings");
    json_object_foreach(settings, key, value)
    {
        const struct alibi_option *o = alibi_options_find(groups, 2, key, NULL);
        bool list = o && (o->type == ALIBI_OPTION_INTS || o->type == ALIBI_OPTION_NAMES);

        if (!json_is_array(value) || (list && !json_is_array(json_array_get(value, 0))))
            continue;
        enter(r, key);
        if (json_array_size(value) < 1 || json_array_size(value) > ALIBI_LIST_MAX)
            return at_place(r, fail(ALIBI_BAD_INPUT, "a list of 1 to 32 values is expected"));
        if (p->count == 4)
            return at_place(r, fail(ALIBI_BAD_INPUT, "more than 4 settings are lists of values"));
        leave(r);
        p->key[p->count] = key;
        p->values[p->count++] = value;
    }
    leave(r);
    return ALIBI_OK;
}

/* The name of a model: the values that its group varies, joined with dashes; else the group's. */
static alibi_status name_model(struct reader *r, struct experiment_model *m,
                               const struct product *p, const int *which)
{
    char name[4 * ALIBI_NAME_MAX] = "", value[ALIBI_NAME_MAX];

    for (int i = 0; i < p->count; i++) {
        const json_t *v = json_array_get(p->values[i], (size_t)which[i]);

        value[0] = '\0';
        for (size_t k = 0; k < json_array_size(v); k++)
            snprintf(value + strlen(value), sizeof value - strlen(value), "%s%lld",
                     k > 0 ? "_" : "", (long long)json_integer_value(json_array_get(v, k)));
        if (json_is_string(v))
            snprintf(value, sizeof value, "%s", json_string_value(v));
        else if (json_is_integer(v))
            snprintf(value, sizeof value, "%lld", (long long)json_integer_value(v));
        else if (json_is_boolean(v))
            snprintf(value, sizeof value, "%s%s", json_is_true(v) ? "" : "no-", p->key[i]);
        else if (json_is_number(v))
            snprintf(value, sizeof value, "%g", json_number_value(v));
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", i > 0 ? "-" : "", value);
    }
    TRY_RETURN(take_name(r, m->name, p->count > 0 ? name : m->group));
    for (int i = 0; i < r->e->models; i++)
        if (strcmp(r->e->model[i].name, m->name) == 0)
            return at_place(r, fail(ALIBI_BAD_INPUT, "there is a model '%s' already, in '%s'",
                                    m->name, r->e->model[i].group));
    return ALIBI_OK;
}

/* Batch and steps that give the tokens asked for; and all checks that need no text. */
static alibi_status settle_model(struct reader *r, struct experiment_model *m)
{
    struct alibi_training *t = &m->training;
    struct alibi_config resolved;
    alibi_status status;
    int64_t step = t->train_length * t->accumulate;

    if (m->step_tokens > 0 && m->step_tokens % step != 0)
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "step_tokens %lld is not a multiple of train_length x accumulate, "
                                "%lld",
                                (long long)m->step_tokens, (long long)step));
    if (m->step_tokens / step > 1 << 16)
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "step_tokens %lld is a batch of %lld, and 65536 is the largest; "
                                "raise accumulate",
                                (long long)m->step_tokens, (long long)(m->step_tokens / step)));
    if (m->step_tokens > 0)
        t->batch = m->step_tokens / step;
    if (m->train_tokens > 0)
        t->steps = (m->train_tokens + step * t->batch - 1) / (step * t->batch);
    m->config.train_length = t->train_length;
    resolved = m->config;
    status = alibi_config_resolve(&resolved);
    if (status == ALIBI_OK)
        status = training_resolve(t, &resolved);
    return status == ALIBI_OK ? status : at_place(r, status);
}

static alibi_status read_model(struct reader *r, const char *key, json_t *json,
                               const struct product *p, const int *which)
{
    alibi_experiment *e = r->e;
    struct experiment_model *m = &e->model[e->models];
    struct alibi_option_group groups[2];
    const char *text = e->text[0].name;
    struct reader root = { .e = e };

    TRY_RETURN(check_count(r, e->models, "models"));
    *m = (struct experiment_model){ .selected = true, .seeds = { 1, { 1 } } };
    groups[0] = config_group(m);
    groups[1] = training_group(m);
    TRY_RETURN(alibi_options_init(groups, 2));
    TRY_RETURN(take_name(r, m->group, key));
    TRY_RETURN(name_model(r, m, p, which));
    TRY_RETURN(get_text(r, json, "text", &text));
    enter(r, "text");
    TRY_RETURN(find_name(r, text, e->text[0].name, sizeof e->text[0], e->texts, "text", &m->text));
    leave(r);
    TRY_RETURN(get_list(&root, e->json, "seeds", 0, INT64_MAX, &m->seeds));
    TRY_RETURN(get_list(r, json, "seeds", 0, INT64_MAX, &m->seeds));
    TRY_RETURN(set_all(&root, m, json_object_get(e->json, "settings"), NULL));
    TRY_RETURN(set_all(r, m, json_object_get(json, "settings"), which));
    TRY_RETURN(settle_model(r, m));
    e->models++;
    return ALIBI_OK;
}

/* All models of a group; the first list varies slowest. */
static alibi_status read_group(struct reader *r, const char *key, json_t *json)
{
    struct product p;
    int which[4] = { 0 }, i;

    TRY_RETURN(KEYS(r, json, "about", "text", "seeds", "settings"));
    TRY_RETURN(read_product(r, json_object_get(json, "settings"), &p));
    do {
        TRY_RETURN(read_model(r, key, json, &p, which));
        for (i = p.count - 1; i >= 0; i--) {
            if (++which[i] < (int)json_array_size(p.values[i]))
                break;
            which[i] = 0;
        }
    } while (i >= 0);
    return ALIBI_OK;
}

/* ---- evaluations */

/* The models of an evaluation: names of models, or of groups of them. */
static alibi_status read_models_of(struct reader *r, const json_t *json, bool has[ALIBI_LIST_MAX])
{
    const alibi_experiment *e = r->e;
    const json_t *list = json_object_get(json, "models");
    int index = 0;

    for (int m = 0; m < e->models; m++)
        has[m] = list == NULL;
    if (list == NULL)
        return ALIBI_OK;
    if (!json_is_array(list))
        return fail_type(r, "models", "a list of names of models or groups");
    enter(r, "models");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        bool group = false;

        enter_index(r, i);
        for (int m = 0; name != NULL && m < e->models; m++)
            if (strcmp(e->model[m].group, name) == 0)
                has[m] = group = true;
        if (!group)
            TRY_RETURN(find_name(r, name ? name : "", e->model[0].name, sizeof e->model[0],
                                 e->models, "model", &index));
        if (!group)
            has[index] = true;
        leave(r);
    }
    leave(r);
    return ALIBI_OK;
}

static alibi_status check_perplexity(struct reader *r, struct experiment_evaluation *v,
                                     const json_t *json)
{
    int64_t longest = v->lengths.count > 0 ? v->lengths.at[v->lengths.count - 1] : 0;

    if (v->protocol == ALIBI_STREAM) {
        if (json_object_get(json, "lengths"))
            return fail_type(r, "lengths", "no list, since a stream has no windows; \"tokens\"");
        if (v->block > 0)
            return fail_type(r, "block", "no such key, since a stream is one block; \"tokens\"");
        if (v->tokens < 2)
            return fail_type(r, "tokens", "the number of tokens of the stream");
        v->lengths = (struct alibi_int_list){ 1, { v->tokens } };
        return ALIBI_OK;
    }
    if (v->lengths.count == 0)
        return fail_type(r, "lengths", "a list of lengths to test at");
    if (v->tokens != 0 && v->tokens < longest) {
        enter(r, "tokens");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "%lld is less than the longest length, %lld; raise it, or use 0",
                                (long long)v->tokens, (long long)longest));
    }
    if (v->block == 0)
        v->block = longest;
    if (v->block < longest || (v->tokens > 0 && v->block > v->tokens)) {
        enter(r, "block");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "%lld is not within the longest length, %lld, and the tokens",
                                (long long)v->block, (long long)longest));
    }
    if (v->stride > v->lengths.at[0] || (v->stride > 0 && v->protocol != ALIBI_SLIDING)) {
        enter(r, "stride");
        return at_place(r, fail(ALIBI_BAD_INPUT, v->protocol == ALIBI_SLIDING
                                                     ? "it is longer than the shortest length"
                                                     : "only a sliding window has a stride"));
    }
    return ALIBI_OK;
}

/* Its models are measured in turn, so they may differ in their position method only. */
static alibi_status check_speed(struct reader *r, const struct experiment_evaluation *v,
                                const json_t *json)
{
    static const char *const others[] = { "protocol", "text", "tokens", "stride", "block" };
    const alibi_experiment *e = r->e;
    const struct experiment_model *first = NULL;

    for (int i = 0; i < 5; i++)
        if (json_object_get(json, others[i]))
            return fail_type(r, others[i], "no such key beside \"kind\": \"speed\"; \"lengths\"");
    if (v->lengths.count == 0)
        return fail_type(r, "lengths", "a list of lengths to measure at");
    for (int m = 0; m < e->models; m++) {
        const struct experiment_model *x = &e->model[m];

        if (!v->has[m])
            continue;
        first = first != NULL ? first : x;
        if (x->config.layers == first->config.layers && x->config.width == first->config.width &&
            x->config.heads == first->config.heads && x->config.vocab == first->config.vocab &&
            x->config.ff_width == first->config.ff_width && x->text == first->text)
            continue;
        enter(r, "models");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "'%s' and '%s' differ in more than their position method",
                                first->name, x->name));
    }
    return ALIBI_OK;
}

static alibi_status read_evaluation(struct reader *r, const char *key, json_t *json)
{
    static const char *const kinds[] = { "perplexity", "speed" };
    alibi_experiment *e = r->e;
    struct experiment_evaluation *v = &e->evaluation[e->evaluations];
    const char *kind = kinds[0], *protocol = alibi_protocol_view(0)->name, *text = NULL;

    TRY_RETURN(check_count(r, e->evaluations, "evaluations"));
    *v = (struct experiment_evaluation){ .about = "", .text = -1, .selected = true };
    TRY_RETURN(take_name(r, v->name, key));
    TRY_RETURN(KEYS(r, json, "about", "kind", "protocol", "text", "models", "lengths", "tokens",
                    "stride", "block"));
    TRY_RETURN(get_text(r, json, "about", &v->about));
    TRY_RETURN(get_text(r, json, "kind", &kind));
    TRY_RETURN(get_text(r, json, "protocol", &protocol));
    TRY_RETURN(get_text(r, json, "text", &text));
    v->kind = name_index(kind, kinds, 2);
    for (v->protocol = 0; v->protocol <= ALIBI_STREAM; v->protocol++)
        if (strcmp(protocol, alibi_protocol_view(v->protocol)->name) == 0)
            break;
    if (v->kind < 0)
        return fail_type(r, "kind", "\"perplexity\" or \"speed\"");
    if (v->protocol > ALIBI_STREAM)
        return fail_type(r, "protocol", "\"nonoverlapping\", \"sliding\" or \"stream\"");
    enter(r, "text");
    if (text != NULL)
        TRY_RETURN(
            find_name(r, text, e->text[0].name, sizeof e->text[0], e->texts, "text", &v->text));
    leave(r);
    TRY_RETURN(get_list(r, json, "lengths", 1, 1 << 24, &v->lengths));
    list_sort(&v->lengths);
    TRY_RETURN(get_int(r, json, "tokens", 0, (int64_t)1e15, &v->tokens));
    TRY_RETURN(get_int(r, json, "stride", 1, 1 << 24, &v->stride));
    TRY_RETURN(get_int(r, json, "block", 1, (int64_t)1e15, &v->block));
    TRY_RETURN(read_models_of(r, json, v->has));
    TRY_RETURN(v->kind == KIND_SPEED ? check_speed(r, v, json) : check_perplexity(r, v, json));
    e->evaluations++;
    return ALIBI_OK;
}

/* The experiment.json of a folder names all blocks. In older ones all evaluations have the longest
 * length of all as their block, if they score as many tokens. */
static void settle_old_blocks(alibi_experiment *e)
{
    int64_t longest = 0;

    for (int v = 0; v < e->evaluations; v++) {
        const json_t *json =
            json_object_get(json_object_get(e->json, "evaluations"), e->evaluation[v].name);

        if (json_object_get(json, "block"))
            return;
        longest = e->evaluation[v].block > longest ? e->evaluation[v].block : longest;
    }
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].block > 0 &&
            (e->evaluation[v].tokens == 0 || longest <= e->evaluation[v].tokens))
            e->evaluation[v].block = longest;
}

/* ---- claims */

const char *const quantity_names[QUANTITIES] = { "ppl", "train_seconds", "train_memory",
                                                 "eval_seconds", "eval_memory" };

static alibi_status read_reference(struct reader *r, json_t *json, const char *evaluation,
                                   struct reference *out)
{
    const alibi_experiment *e = r->e;
    const struct experiment_evaluation *v;
    const char *model = "", *quantity = quantity_names[0];
    int64_t length = 0;

    *out = (struct reference){ .model = -1, .number = NAN, .paper = NAN };
    if (json_is_number(json)) {
        out->number = json_number_value(json);
        if (out->number <= 0)
            return at_place(r, fail(ALIBI_BAD_INPUT, "a number above 0 is expected"));
        return ALIBI_OK;
    }
    TRY_RETURN(KEYS(r, json, "model", "evaluation", "length", "quantity", "paper"));
    TRY_RETURN(get_text(r, json, "model", &model));
    TRY_RETURN(get_text(r, json, "evaluation", &evaluation));
    TRY_RETURN(get_text(r, json, "quantity", &quantity));
    TRY_RETURN(get_int(r, json, "length", 1, (int64_t)1e15, &length));
    TRY_RETURN(get_real(r, json, "paper", &out->paper));
    enter(r, "model");
    TRY_RETURN(
        find_name(r, model, e->model[0].name, sizeof e->model[0], e->models, "model", &out->model));
    leave(r);
    enter(r, "evaluation");
    TRY_RETURN(find_name(r, evaluation, e->evaluation[0].name, sizeof e->evaluation[0],
                         e->evaluations, "evaluation", &out->evaluation));
    v = &e->evaluation[out->evaluation];
    if (!v->has[out->model])
        return at_place(r,
                        fail(ALIBI_BAD_INPUT, "'%s' does not have the model '%s'", v->name, model));
    leave(r);
    out->quantity = name_index(quantity, quantity_names, QUANTITIES);
    if (out->quantity < 0 || (v->kind == KIND_SPEED) != (out->quantity != QUANTITY_PPL))
        return fail_type(r, "quantity",
                         v->kind == KIND_SPEED ? "\"train_seconds\", \"train_memory\", "
                                                 "\"eval_seconds\" or \"eval_memory\""
                                               : "\"ppl\"");
    if (v->protocol == ALIBI_STREAM && length == 0)
        length = v->tokens;
    for (out->length = 0; out->length < v->lengths.count; out->length++)
        if (v->lengths.at[out->length] == length)
            return ALIBI_OK;
    enter(r, "length");
    return at_place(r, fail(ALIBI_BAD_INPUT, "%lld is not one of the lengths of '%s'",
                            (long long)length, v->name));
}

/* "by": 5 asks for a difference of at least 5%; "within": 1 allows for 1% in the other direction.
 */
static alibi_status read_comparison(struct reader *r, json_t *json, const char *evaluation,
                                    struct comparison *c)
{
    double by = 0, within = 0;
    const char *side;

    TRY_RETURN(KEYS(r, json, "is", "below", "above", "by", "within"));
    c->above = json_object_get(json, "above") != NULL;
    side = c->above ? "above" : "below";
    if (c->above == (json_object_get(json, "below") != NULL))
        return at_place(r, fail(ALIBI_BAD_INPUT, "either \"below\" or \"above\" is expected"));
    if (!json_is_object(json_object_get(json, "is")))
        return fail_type(r, "is", "a model's number: an object");
    enter(r, "is");
    TRY_RETURN(read_reference(r, json_object_get(json, "is"), evaluation, &c->left));
    leave(r);
    enter(r, side);
    TRY_RETURN(read_reference(r, json_object_get(json, side), evaluation, &c->right));
    if (c->right.model >= 0 && c->right.quantity != c->left.quantity)
        return at_place(r, fail(ALIBI_BAD_INPUT, "both numbers must have the same quantity"));
    leave(r);
    TRY_RETURN(get_real(r, json, "by", &by));
    TRY_RETURN(get_real(r, json, "within", &within));
    if (by < 0 || within < 0 || by >= 1e6 || within >= 1e6 || (by > 0 && within > 0))
        return fail_type(r,
                         by > 0 && within > 0 ? "within"
                         : by < 0             ? "by"
                                              : "within",
                         "a percentage of 0 or more, and only one of \"by\" and \"within\"");
    c->margin = within > 0 ? log1p(within / 100) : -log1p(by / 100);
    return ALIBI_OK;
}

static alibi_status read_claim(struct reader *r, json_t *json, struct claim *c)
{
    const char *evaluation = r->e->evaluations > 0 ? r->e->evaluation[0].name : "";
    const json_t *list = json_object_get(json, "holds_if");

    TRY_RETURN(KEYS(r, json, "claim", "where", "paper", "evaluation", "holds_if"));
    c->where = c->paper = "";
    TRY_RETURN(get_text(r, json, "claim", &c->claim));
    TRY_RETURN(get_text(r, json, "where", &c->where));
    TRY_RETURN(get_text(r, json, "paper", &c->paper));
    TRY_RETURN(get_text(r, json, "evaluation", &evaluation));
    if (c->claim == NULL)
        return fail_type(r, "claim", "a sentence");
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > 1024)
        return fail_type(r, "holds_if", "a list of 1 to 1024 comparisons");
    TRY_RETURN(NEW_ZERO_ARRAY(&c->comparison, (int64_t)json_array_size(list), "a claim"));
    enter(r, "holds_if");
    for (c->count = 0; c->count < (int)json_array_size(list); c->count++) {
        enter_index(r, (size_t)c->count);
        TRY_RETURN(read_comparison(r, json_array_get(list, (size_t)c->count), evaluation,
                                   &c->comparison[c->count]));
        leave(r);
    }
    leave(r);
    return ALIBI_OK;
}

/* ---- the whole */

/* Reads every member of a section. */
static alibi_status read_section(struct reader *r, const char *name,
                                 alibi_status (*read)(struct reader *r, const char *key,
                                                      json_t *json))
{
    json_t *section = json_object_get(r->e->json, name), *value;
    const char *key;

    if (!json_is_object(section) || json_object_size(section) == 0)
        return fail_type(r, name, "an object with at least one member");
    enter(r, name);
    json_object_foreach(section, key, value)
    {
        enter(r, key);
        TRY_RETURN(read(r, key, value));
        leave(r);
    }
    leave(r);
    return ALIBI_OK;
}

static alibi_status read_claims(struct reader *r)
{
    alibi_experiment *e = r->e;
    json_t *list = json_object_get(e->json, "claims");

    if (list == NULL)
        return ALIBI_OK;
    if (!json_is_array(list) || json_array_size(list) > 1024)
        return fail_type(r, "claims", "a list of at most 1024 claims");
    TRY_RETURN(NEW_ZERO_ARRAY(&e->claim, (int64_t)json_array_size(list), "claims"));
    enter(r, "claims");
    for (size_t i = 0; i < json_array_size(list); i++) {
        enter_index(r, i);
        TRY_RETURN(read_claim(r, json_array_get(list, i), &e->claim[e->claims++]));
        leave(r);
    }
    leave(r);
    return ALIBI_OK;
}

/* Room for all results, allocated at once, so that the peak memory of a training does not depend on
 * progress. */
static alibi_status new_results(alibi_experiment *e)
{
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_SPEED)
            TRY_RETURN(NEW_ZERO_ARRAY(&e->evaluation[v].speed,
                                      (int64_t)e->evaluation[v].lengths.count * e->models,
                                      "the results of an evaluation"));
    for (int m = 0; m < e->models; m++) {
        struct experiment_model *model = &e->model[m];

        TRY_RETURN(NEW_ZERO_ARRAY(&model->seed, model->seeds.count, "the results of a model"));
        for (int k = 0; k < model->seeds.count; k++)
            for (int v = 0; v < e->evaluations; v++)
                if (e->evaluation[v].kind == KIND_PERPLEXITY && e->evaluation[v].has[m])
                    TRY_RETURN(NEW_ZERO_ARRAY(&model->seed[k].measured[v],
                                              e->evaluation[v].lengths.count,
                                              "the results of a model"));
    }
    return ALIBI_OK;
}

static alibi_status read_all(struct reader *r, const char *tier)
{
    alibi_experiment *e = r->e;
    const char *written = "", *name = "";
    int64_t version = 0;

    TRY_RETURN(KEYS(r, e->json, "experiment", "title", "about", "numbers", "seeds", "settings",
                    "texts", "models", "evaluations", "claims", "tiers", "tier_about", "tier",
                    "name"));
    TRY_RETURN(get_int(r, e->json, "experiment", 1, EXPERIMENT_VERSION, &version));
    if (version == 0)
        return fail_type(r, "experiment", "the version of the file, 1,");
    /* In the file of a folder: the tier that is applied already, and whose file it was. */
    TRY_RETURN(get_text(r, e->json, "tier", &written));
    TRY_RETURN(get_text(r, e->json, "name", &name));
    snprintf(e->tier, sizeof e->tier, "%s", written);
    if (name[0] != '\0')
        snprintf(e->name, sizeof e->name, "%s", name);
    TRY_RETURN(apply_tier(r, tier));
    TRY_RETURN(fill_numbers(r, json_object_get(e->json, "numbers"), e->json));
    e->title = e->name;
    e->about = e->tier_about = "";
    TRY_RETURN(get_text(r, e->json, "title", &e->title));
    TRY_RETURN(get_text(r, e->json, "about", &e->about));
    TRY_RETURN(get_text(r, e->json, "tier_about", &e->tier_about));
    TRY_RETURN(read_section(r, "texts", read_text));
    TRY_RETURN(read_section(r, "models", read_group));
    TRY_RETURN(read_section(r, "evaluations", read_evaluation));
    if (name[0] != '\0')
        settle_old_blocks(e);
    TRY_RETURN(read_claims(r));
    return new_results(e);
}

/* "wikipedia-small" for "experiments/wikipedia-small.json" */
static void name_experiment(alibi_experiment *e)
{
    const char *slash = strrchr(e->path, '/'), *base = slash ? slash + 1 : e->path;
    const char *dot = strrchr(base, '.');

    snprintf(e->name, sizeof e->name, "%.*s", (int)(dot ? (size_t)(dot - base) : strlen(base)),
             base);
}

alibi_status alibi_experiment_open(alibi_experiment **out, const char *path, const char *tier)
{
    alibi_status status;
    alibi_experiment *e = NULL;
    struct reader r = { 0 };

    TRY(NEW_ZERO_ARRAY(&e, 1, "an experiment"));
    r.e = e;
    TRY(text_copy(&e->path, path));
    name_experiment(e);
    TRY(file_read_all(&e->bytes, &e->length, path, EXPERIMENT_BYTES_MAX));
    TRY(json_parse(&e->json, e->bytes, e->length, path));
    TRY(read_all(&r, tier));
    *out = e;
    e = NULL;
out:
    alibi_experiment_free(e);
    return status;
}

void alibi_experiment_free(alibi_experiment *e)
{
    if (e == NULL)
        return;
    for (int i = 0; i < e->texts; i++) {
        names_free(e->text[i].paths, e->text[i].count);
        mem_free(e->text[i].valid);
        mem_free(e->text[i].words.pattern);
        alibi_corpus_free(e->text[i].corpus);
    }
    for (int m = 0; m < ALIBI_LIST_MAX; m++)
        for (int k = 0; e->model[m].seed != NULL && k < e->model[m].seeds.count; k++)
            for (int v = 0; v < e->evaluations; v++)
                mem_free(e->model[m].seed[k].measured[v]);
    for (int m = 0; m < ALIBI_LIST_MAX; m++) {
        struct alibi_option_group groups[2] = { config_group(&e->model[m]),
                                                training_group(&e->model[m]) };

        alibi_options_free(groups, 2);
        mem_free(e->model[m].seed);
    }
    for (int v = 0; v < e->evaluations; v++)
        mem_free(e->evaluation[v].speed);
    for (int i = 0; i < e->claims; i++)
        mem_free(e->claim[i].comparison);
    mem_free(e->claim);
    json_decref(e->json);
    mem_free(e->bytes);
    mem_free(e->path);
    mem_free(e);
}
