/* read_models.c - texts, models and their settings, from an experiment's file
 *
 * A group is a model, or a product of models: a setting may have several values. The settings of
 * the experiment apply first, then those of the group, each after the recipe that it names. */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "experiment/read.h"

/* ---- texts */

alibi_status read_text(struct reader *r, const char *key, json_t *json)
{
    alibi_experiment *e = r->e;
    struct experiment_text *t = &e->text[e->texts];
    struct alibi_option_group words = { .values = &t->words };
    const char *kind = NULL, *tokenizer_of = NULL;
    int known = e->texts;

    TRY_RETURN(reader_count(r, e->texts, "texts"));
    TRY_RETURN(reader_name(r, t->name, key));
    t->tokenizer_of = -1;
    e->texts++;
    words.options = alibi_vocabulary_options(&words.count);
    TRY_RETURN(alibi_options_init(&words, 1));
    TRY_RETURN(
        KEYS(r, json, "about", "tokenizer", "tokenizer_of", "vocab", "min_count", "pattern"));
    t->about = "";
    TRY_RETURN(reader_text(r, json, "about", &t->about));
    TRY_RETURN(reader_text(r, json, "tokenizer", &kind));
    TRY_RETURN(reader_text(r, json, "tokenizer_of", &tokenizer_of));
    if (tokenizer_of != NULL) {
        if (kind != NULL)
            return fail_type(r, "tokenizer", "no such key beside \"tokenizer_of\"");
        reader_enter(r, "tokenizer_of");
        TRY_RETURN(reader_find(r, tokenizer_of, e->text[0].name, sizeof e->text[0], known,
                               "earlier text", &t->tokenizer_of));
        reader_leave(r);
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
        reader_enter(r, name);
        if (t->tokenizer == TEXT_BYTES)
            return at_place(r, fail(ALIBI_BAD_INPUT, tokenizer_of
                                                         ? "it is that of the other text"
                                                         : "bytes have no vocabulary to learn"));
        alibi_status status = options_set_json(&words, 1, name, value);
        if (status != ALIBI_OK)
            return at_place(r, status);
        reader_leave(r);
    }
    return ALIBI_OK;
}

/* ---- models */

void model_groups(struct alibi_option_group out[2], struct experiment_model *m)
{
    out[0] = (struct alibi_option_group){ .values = &m->config };
    out[0].options = alibi_config_options(&out[0].count);
    out[1] = (struct alibi_option_group){ .values = &m->training };
    out[1].options = alibi_training_options(&out[1].count);
}

/* Options of a recipe that an experiment sets otherwise or not at all. */
enum { NOT_SETTINGS = 3 };
static const char *const not_settings[NOT_SETTINGS] = { "seed", "init", "keep_best" };

/* A recipe is a file beside the experiment, or one of the folder `recipes` beside its folder. */
static alibi_status recipe_path(char **out, const char *experiment, const char *name)
{
    alibi_status status;
    bool is_path = strchr(name, '/') || ends_with(name, ".json");
    char *folder = NULL;
    struct text relative = { 0 };

    text_append(&relative, is_path ? "%s" : "../recipes/%s.json", name);
    TRY(text_status(&relative));
    TRY(path_folder(&folder, experiment));
    TRY(path_join(out, folder, relative.data));
out:
    text_free(&relative);
    mem_free(folder);
    return status;
}

static alibi_status read_recipe(struct reader *r, struct experiment_model *m, const json_t *name)
{
    alibi_status status;
    struct alibi_option_group groups[2];
    char *path = NULL;

    model_groups(groups, m);
    if (!json_is_string(name))
        TRY(at_place(r, fail(ALIBI_BAD_INPUT, "the name of a recipe is expected")));
    TRY(recipe_path(&path, r->e->path, json_string_value(name)));
    status = alibi_options_read(groups, 2, path);
    if (status == ALIBI_OK && (m->training.init != NULL || m->training.keep_best))
        status = fail(ALIBI_BAD_INPUT, "'%s' has '%s', which does not apply here", path,
                      m->training.keep_best ? "keep_best" : "init");
    if (status != ALIBI_OK)
        status = at_place(r, status);
out:
    mem_free(path);
    return status;
}

/* The members of the recipe that these settings name, in its place. */
static alibi_status inline_recipe(json_t *settings, const char *experiment)
{
    alibi_status status = ALIBI_OK;
    char *path = NULL;
    json_t *recipe = NULL;
    const char *name = json_string_value(json_object_get(settings, "recipe"));

    if (name == NULL)
        goto out;
    TRY(recipe_path(&path, experiment, name));
    TRY(json_read(&recipe, path));
    for (int i = 0; i < NOT_SETTINGS; i++)
        json_object_del(recipe, not_settings[i]);
    json_object_del(recipe, "recipe"); /* its version */
    json_object_del(settings, "recipe");
    if (json_object_update_missing(settings, recipe) != 0)
        status = fail(ALIBI_MEMORY, "not enough memory for a recipe");
out:
    json_decref(recipe);
    mem_free(path);
    return status;
}

alibi_status inline_recipes(json_t *json, const char *experiment)
{
    const char *key;
    json_t *group;

    TRY_RETURN(inline_recipe(json_object_get(json, "settings"), experiment));
    json_object_foreach(json_object_get(json, "models"), key, group)
    {
        TRY_RETURN(inline_recipe(json_object_get(group, "settings"), experiment));
    }
    return ALIBI_OK;
}

/* "task:passkey=0.05,task:needles=0.05", as --mix of `train` has them, without the text. */
static alibi_status read_mix(struct experiment_model *m, const json_t *value)
{
    static const struct alibi_option option = { .name = "mix",
                                                .type = ALIBI_OPTION_REAL,
                                                .max = 1 };
    const char *list = json_string_value(value);
    double share, sum = 0;
    const struct alibi_option_group group = { .options = &option, .count = 1, .values = &share };

    m->mix.count = 0;
    for (size_t length; list != NULL && *list != '\0'; list += length + (list[length] == ',')) {
        char part[2 * ALIBI_NAME_MAX] = "", *equals;
        int kind;

        length = strcspn(list, ",");
        if (length < sizeof part)
            memcpy(part, list, length);
        equals = strchr(part, '=');
        if (strncmp(part, "task:", 5) != 0 || equals == NULL || m->mix.count == ALIBI_LIST_MAX) {
            list = NULL;
            break;
        }
        *equals = '\0';
        TRY_RETURN(task_named(&kind, part + 5));
        TRY_RETURN(alibi_options_set(&group, 1, "mix", equals + 1));
        for (int i = 0; i < m->mix.count; i++)
            if (strcmp(m->mix.at[i], alibi_task_name(kind, NULL)) == 0)
                return fail(ALIBI_BAD_INPUT, "'%s' is listed twice", part);
        snprintf(m->mix.at[m->mix.count], sizeof *m->mix.at, "%s", alibi_task_name(kind, NULL));
        m->share[m->mix.count++] = share;
        sum += share;
        if (!(share > 0) || !(sum <= 1 + 1e-9))
            return fail(ALIBI_BAD_INPUT, "each share must be above 0, and their sum at most 1: "
                                         "the text has the rest");
    }
    if (list == NULL)
        return fail(ALIBI_BAD_INPUT, "tasks with their shares of the windows are expected, such as "
                                     "\"task:passkey=0.05,task:needles=0.05\"");
    return ALIBI_OK;
}

/* One setting. */
static alibi_status set(struct reader *r, struct experiment_model *m, const char *key,
                        const json_t *value)
{
    struct alibi_option_group groups[2];
    alibi_status status;
    int64_t *tokens = strcmp(key, "step_tokens") == 0    ? &m->step_tokens
                      : strcmp(key, "train_tokens") == 0 ? &m->train_tokens
                                                         : NULL;

    model_groups(groups, m);
    reader_enter(r, key);
    for (int i = 0; i < NOT_SETTINGS; i++)
        if (strcmp(key, not_settings[i]) == 0)
            return at_place(r, fail(ALIBI_BAD_INPUT, i == 0 ? "give \"seeds\" beside \"settings\""
                                                            : "it does not apply here"));
    if (strcmp(key, "recipe") == 0) {
        TRY_RETURN(read_recipe(r, m, value));
    } else if (strcmp(key, "mix") == 0) {
        status = read_mix(m, value);
        if (status != ALIBI_OK)
            return at_place(r, status == ALIBI_USAGE ? ALIBI_BAD_INPUT : status);
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
    reader_leave(r);
    return ALIBI_OK;
}

/* All settings of an object; of a setting with several values, number which[i] for the i-th such
 * one. The recipe comes first, since the others override it. */
static alibi_status set_all(struct reader *r, struct experiment_model *m, json_t *settings,
                            const int *which)
{
    struct alibi_option_group groups[2];
    const char *key;
    json_t *value;

    if (settings == NULL)
        return ALIBI_OK;
    model_groups(groups, m);
    if (!json_is_object(settings))
        return fail_type(r, "settings", "an object");
    reader_enter(r, "settings");
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
    reader_leave(r);
    return ALIBI_OK;
}

/* The settings of a group that have several values. */
struct combination {
    int count;
    const char *key[4];
    const json_t *values[4];
};

static alibi_status read_product(struct reader *r, json_t *settings, struct combination *p)
{
    struct experiment_model scratch;
    struct alibi_option_group groups[2];
    const char *key;
    json_t *value;

    *p = (struct combination){ 0 };
    model_groups(groups, &scratch);
    reader_enter(r, "settings");
    json_object_foreach(settings, key, value)
    {
        const struct alibi_option *o = alibi_options_find(groups, 2, key, NULL);
        bool list = o && (o->type == ALIBI_OPTION_INTS || o->type == ALIBI_OPTION_NAMES);

        if (!json_is_array(value) || (list && !json_is_array(json_array_get(value, 0))))
            continue;
        reader_enter(r, key);
        if (json_array_size(value) < 1 || json_array_size(value) > ALIBI_LIST_MAX)
            return at_place(r, fail(ALIBI_BAD_INPUT, "a list of 1 to 32 values is expected"));
        if (p->count == 4)
            return at_place(r, fail(ALIBI_BAD_INPUT, "more than 4 settings are lists of values"));
        reader_leave(r);
        p->key[p->count] = key;
        p->values[p->count++] = value;
    }
    reader_leave(r);
    return ALIBI_OK;
}

/* The name of a model: the values that its group varies, joined with dashes; else the group's. */
static alibi_status name_model(struct reader *r, struct experiment_model *m,
                               const struct combination *p, const int *which)
{
    char name[4 * ALIBI_NAME_MAX] = "", value[ALIBI_NAME_MAX];

    for (int i = 0; i < p->count; i++) {
        const json_t *v = json_array_get(p->values[i], (size_t)which[i]);

        value[0] = '\0';
        for (size_t k = 0; k < json_array_size(v); k++)
            snprintf(value + strlen(value), sizeof value - strlen(value), "%s%lld",
                     k > 0 ? "_" : "", (long long)json_integer_value(json_array_get(v, k)));
        if (json_is_string(v) && strcmp(p->key[i], "position") == 0)
            pattern_file_name(value, json_string_value(v)); /* "alibi:bias-max=16" */
        else if (json_is_string(v))
            snprintf(value, sizeof value, "%s", json_string_value(v));
        else if (json_is_integer(v))
            snprintf(value, sizeof value, "%lld", (long long)json_integer_value(v));
        else if (json_is_boolean(v))
            snprintf(value, sizeof value, "%s%s", json_is_true(v) ? "" : "no-", p->key[i]);
        else if (json_is_number(v))
            text_print(value, sizeof value, "%g", json_number_value(v));
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", i > 0 ? "-" : "", value);
    }
    TRY_RETURN(reader_name(r, m->name, p->count > 0 ? name : m->group));
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
    memcpy(m->config.position, resolved.position, sizeof m->config.position); /* its own name */
    if (status == ALIBI_OK)
        status = training_resolve(t, &resolved);
    return status == ALIBI_OK ? status : at_place(r, status);
}

static alibi_status read_model(struct reader *r, const char *key, json_t *json,
                               const struct combination *p, const int *which)
{
    alibi_experiment *e = r->e;
    struct experiment_model *m = &e->model[e->models];
    struct alibi_option_group groups[2];
    const char *text = e->text[0].name;
    struct reader root = { .e = e };

    TRY_RETURN(reader_count(r, e->models, "models"));
    *m = (struct experiment_model){ .selected = true, .of = -1, .seeds = { 1, { 1 } } };
    model_groups(groups, m);
    TRY_RETURN(alibi_options_init(groups, 2));
    TRY_RETURN(reader_name(r, m->group, key));
    TRY_RETURN(name_model(r, m, p, which));
    TRY_RETURN(reader_text(r, json, "text", &text));
    reader_enter(r, "text");
    TRY_RETURN(
        reader_find(r, text, e->text[0].name, sizeof e->text[0], e->texts, "text", &m->text));
    reader_leave(r);
    TRY_RETURN(reader_list(&root, e->json, "seeds", 0, INT64_MAX, &m->seeds));
    TRY_RETURN(reader_list(r, json, "seeds", 0, INT64_MAX, &m->seeds));
    TRY_RETURN(set_all(&root, m, json_object_get(e->json, "settings"), NULL));
    TRY_RETURN(set_all(r, m, json_object_get(json, "settings"), which));
    TRY_RETURN(settle_model(r, m));
    e->models++;
    return ALIBI_OK;
}

/* "fit": { "length": 2048, "tokens": 131072 }, either of which may be missing. */
static alibi_status read_fit(struct reader *r, struct experiment_model *m, json_t *json)
{
    json_t *fit = json_object_get(json, "fit");
    int64_t trained = m->training.train_length;

    if (fit == NULL)
        return ALIBI_OK;
    if (!json_is_object(fit))
        return fail_type(r, "fit", "an object with \"length\" and \"tokens\"");
    m->fit = (struct alibi_fit){ .length = 4 * trained, .tokens = 1 << 17 };
    reader_enter(r, "fit");
    TRY_RETURN(KEYS(r, fit, "length", "tokens"));
    TRY_RETURN(reader_int(r, fit, "length", 1, 1 << 24, &m->fit.length));
    TRY_RETURN(reader_int(r, fit, "tokens", 1, (int64_t)1e15, &m->fit.tokens));
    if (m->fit.length <= trained) {
        reader_enter(r, "length");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "%lld is not longer than the training length of '%s', %lld: a "
                                "temperature is for longer inputs; omit it for 4 times that",
                                (long long)m->fit.length, r->e->model[m->of].name,
                                (long long)trained));
    }
    reader_leave(r);
    return ALIBI_OK;
}

/* A model with "of" is not trained: settings, seeds and text are those of the other model. */
static alibi_status refuse_own(struct reader *r, const json_t *json, const char *name)
{
    static const char *const own[] = { "settings", "seeds", "text" };

    for (int i = 0; i < 3; i++)
        if (json_object_get(json, own[i])) {
            reader_enter(r, own[i]);
            return at_place(r, fail(ALIBI_BAD_INPUT,
                                    "a model with \"of\" is not trained: it has the %s of '%s'; "
                                    "remove this key, or \"of\" to train it",
                                    own[i], name));
        }
    return ALIBI_OK;
}

/* The model whose weights another has: an earlier one that is trained. */
static alibi_status find_trained(struct reader *r, const char *key, const char *name, int *of)
{
    const alibi_experiment *e = r->e;
    const json_t *all = json_object_get(e->json, "models");
    const char *first = NULL;
    int known = 0;

    for (int m = 0; m < e->models; m++) {
        known += strcmp(e->model[m].name, name) == 0;
        if (first == NULL && strcmp(e->model[m].group, name) == 0)
            first = e->model[m].name;
    }
    if (known == 0 && strcmp(name, key) == 0)
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "'%s' cannot have its own weights; name an "
                                "earlier model that is trained",
                                name));
    if (known == 0 && first != NULL)
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "'%s' is a group of models; name one of them, such as '%s'", name,
                                first));
    if (known == 0 && json_object_get(all, name))
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "'%s' comes later in the file; move it before '%s'", name, key));
    TRY_RETURN(
        reader_find(r, name, e->model[0].name, sizeof e->model[0], e->models, "earlier model", of));
    if (e->model[*of].of >= 0)
        return at_place(r,
                        fail(ALIBI_BAD_INPUT, "'%s' has the weights of another itself; name '%s'",
                             name, e->model[e->model[*of].of].name));
    return ALIBI_OK;
}

/* A model with the weights of another, tested with another position. Whether the weights fit that
 * position is checked here, before the other model is trained. */
static alibi_status read_derived(struct reader *r, const char *key, json_t *json)
{
    alibi_experiment *e = r->e;
    struct experiment_model *m = &e->model[e->models];
    const char *name = json_string_value(json_object_get(json, "of")), *position = NULL;
    struct alibi_config config;
    alibi_status status;
    int of = 0;

    TRY_RETURN(reader_count(r, e->models, "models"));
    if (name == NULL)
        return fail_type(r, "of", "the name of one earlier model");
    TRY_RETURN(refuse_own(r, json, name));
    TRY_RETURN(KEYS(r, json, "about", "of", "as_position", "fit"));
    TRY_RETURN(reader_text(r, json, "as_position", &position));
    reader_enter(r, "of");
    TRY_RETURN(find_trained(r, key, name, &of));
    reader_leave(r);
    *m = e->model[of]; /* which owns nothing yet: results are allocated after all models are read */
    m->of = of;
    TRY_RETURN(reader_name(r, m->group, key));
    TRY_RETURN(name_model(r, m, &(struct combination){ 0 }, NULL));
    TRY_RETURN(read_fit(r, m, json));
    if (position == NULL && m->fit.length == 0)
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "\"as_position\" or \"fit\" is missing: without one of them it "
                                "would be '%s' again",
                                name));
    config = m->config;
    reader_enter(r, position != NULL ? "as_position" : "fit");
    if (position != NULL) {
        snprintf(config.position, sizeof config.position, "%s", position);
        status = alibi_config_resolve(&config);
        if (status != ALIBI_OK)
            return at_place(r, status);
        memcpy(m->as_position, config.position, sizeof m->as_position);
    }
    status =
        model_check_position(&m->config, config.position, m->fit.length > 0 ? m->fit.length : 1);
    if (status != ALIBI_OK)
        return at_place(r, fail_context(status,
                                        "the weights of '%s' cannot be tested with this "
                                        "position",
                                        name));
    reader_leave(r);
    e->models++;
    return ALIBI_OK;
}

/* All models of a group; the first list varies slowest. */
alibi_status read_group(struct reader *r, const char *key, json_t *json)
{
    static const char *const derived[] = { "as_position", "fit" };
    struct combination p;
    int which[4] = { 0 }, i;

    if (json_object_get(json, "of"))
        return read_derived(r, key, json);
    for (i = 0; i < 2; i++)
        if (json_object_get(json, derived[i])) {
            reader_enter(r, derived[i]);
            return at_place(r, fail(ALIBI_BAD_INPUT,
                                    "only a model with the weights of another has this key; add "
                                    "\"of\" with the name of an earlier model"));
        }
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
