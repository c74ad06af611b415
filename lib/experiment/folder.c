/* folder.c - the folder of an experiment: what was run, and the results so far
 *
 * The result.json of a model has its settings and the checksum of its text. A file that matches is
 * a finished part of this experiment, wherever it was made; a file that does not is an error. So an
 * experiment may gain models, evaluations and claims, and finished work is kept. */
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "compare/trial.h"
#include "experiment/experiment.h"

enum { RESULT_BYTES_MAX = 1 << 24 };

#define FOLDER_TEXTS "texts"

/* ---- paths */

/* dir/folder/name + suffix */
static alibi_status path_of(char **out, const char *dir, const char *folder, const char *name,
                            const char *suffix)
{
    alibi_status status;
    struct text relative = { 0 };

    text_append(&relative, "%s/%s%s", folder, name, suffix);
    TRY(text_status(&relative));
    TRY(path_join(out, dir, relative.data));
out:
    text_free(&relative);
    return status;
}

alibi_status folder_of_model(char **out, const alibi_experiment *e, int model, int seed,
                             const char *dir)
{
    const struct experiment_model *m = &e->model[model];
    char suffix[32];

    snprintf(suffix, sizeof suffix, "-seed-%lld", (long long)m->seeds.at[seed]);
    return path_of(out, dir, NAME_MODELS, m->name, suffix);
}

alibi_status folder_of_training(char **out, const alibi_experiment *e, int model, int seed,
                                const char *dir)
{
    int of = e->model[model].of;

    return folder_of_model(out, e, of < 0 ? model : of, seed, dir);
}

alibi_status folder_of_text(char **out, const alibi_experiment *e, int text, const char *dir)
{
    return path_of(out, dir, FOLDER_TEXTS, e->text[text].name, "");
}

/* ---- requests */

const struct experiment_text *evaluated_text(const alibi_experiment *e, int model, int evaluation)
{
    int text = e->evaluation[evaluation].text;

    return &e->text[text < 0 ? e->model[model].text : text];
}

const char *tested_position(const struct experiment_model *m)
{
    return m->as_position[0] ? m->as_position : m->config.position;
}

int evaluation_tests(const struct experiment_evaluation *v)
{
    return v->kind == KIND_TARGETS ? 1
           : v->kind == KIND_TASKS ? v->tasks.tasks.count
                                   : v->lengths.count;
}

struct alibi_eval evaluation_at(const alibi_experiment *e, int evaluation, int length)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    struct alibi_eval eval = { .protocol = v->protocol, .tokens = v->tokens };

    if (v->protocol == ALIBI_STREAM)
        return eval;
    eval.length = v->lengths.at[length];
    eval.block = v->block;
    if (alibi_protocol_view(v->protocol)->strided)
        eval.stride = v->stride > 0 ? v->stride : eval.length > 1 ? eval.length / 2 : 1;
    return eval;
}

bool model_is_complete(const alibi_experiment *e, int model, int seed)
{
    const struct trained *t = &e->model[model].seed[seed];
    bool tested = false;

    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; t->measured[v] != NULL && i < evaluation_tests(&e->evaluation[v]); i++) {
            tested = true;
            if (!t->measured[v][i].done)
                return false;
        }
    return !tested || t->cost.version[0] != '\0'; /* speed alone needs no training */
}

/* ---- settings */

/* The settings that shape the result, with the seed. */
static void write_settings(struct json_writer *w, const alibi_experiment *e,
                           const struct experiment_model *m, int seed)
{
    struct alibi_config config = m->config;
    struct alibi_training training = m->training;
    struct alibi_option_group groups[2] = { { .values = &config }, { .values = &training } };
    char key[OPTION_KEY_MAX];

    training.seed = m->seeds.at[seed];
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = training_shaping_options(&groups[1].count);
    json_write_object(w, "settings");
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < groups[g].count; i++) {
            option_key(key, groups[g].options[i].name);
            option_write(w, key, &groups[g].options[i], groups[g].values);
        }
    json_write_object(w, "mix");
    for (int i = 0; i < m->mix.count; i++)
        json_write_real(w, m->mix.at[i], m->share[i]);
    json_write_end(w);
    if (m->of >= 0) {
        json_write_string(w, "of", e->model[m->of].name);
        json_write_string(w, "as_position", m->as_position);
        json_write_int(w, "fit_length", m->fit.length);
        json_write_int(w, "fit_tokens", m->fit.tokens);
    }
    json_write_end(w);
}

/* Compares a member of the file with the same one of `asked`, both objects. A setting that a file
 * of an older version lacks had no effect then; an object that it lacks is empty. *difference stays
 * empty if there is none. */
static alibi_status compare_member(struct text *difference, const struct text *asked,
                                   const char *member, const json_t *file, const char *path)
{
    json_t *json = NULL, *value;
    const char *key;

    TRY_RETURN(text_status(asked));
    TRY_RETURN(json_parse(&json, asked->data, asked->length, path));
    json_object_foreach(json_object_get(json, member), key, value)
    {
        const json_t *other = json_object_get(json_object_get(file, member), key);
        char here[64] = "", held[64] = "";

        if (other == NULL ? json_object_size(value) == 0 : json_equal(other, value))
            continue;
        json_dumpb(value, here, sizeof here - 1, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        json_dumpb(other, held, sizeof held - 1, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        text_append(difference, "%s %s, and the experiment has %s", key, other ? held : "{}", here);
        break;
    }
    json_decref(json);
    return text_status(difference);
}

static alibi_status check_settings(const alibi_experiment *e, const struct experiment_model *m,
                                   int seed, const json_t *file, const char *path)
{
    alibi_status status;
    struct text asked = { 0 }, difference = { 0 };
    struct json_writer w = json_writer(&asked);

    json_write_object(&w, NULL);
    write_settings(&w, e, m, seed);
    json_write_end(&w);
    TRY(compare_member(&difference, &asked, "settings", file, path));
    if (difference.length > 0)
        status = fail(ALIBI_BAD_INPUT, "'%s' is of a model with %s; use another --out", path,
                      difference.data);
out:
    text_free(&difference);
    text_free(&asked);
    return status;
}

/* ---- the result of a model */

static void write_curve(struct json_writer *w, const char *key, const struct curve *c)
{
    json_write_array_line(w, key);
    for (int i = 0; i < c->count; i++) {
        json_write_array_line(w, NULL);
        json_write_int(w, NULL, c->step[i]);
        json_write_real(w, NULL, c->loss[i]);
        json_write_end(w);
    }
    json_write_end(w);
}

static void write_measured(struct json_writer *w, const alibi_experiment *e, int model,
                           int evaluation, int length, const struct measured *m)
{
    struct alibi_eval asked = evaluation_at(e, evaluation, length);

    json_write_object_line(w, NULL);
    json_write_string(w, "evaluation", e->evaluation[evaluation].name);
    json_write_int(w, "text", evaluated_text(e, model, evaluation)->text_checksum);
    json_write_int(w, "protocol", asked.protocol);
    json_write_int(w, "asked_tokens", asked.tokens);
    json_write_int(w, "asked_block", asked.block);
    json_write_int(w, "asked_stride", asked.stride);
    result_write_eval(w, &m->result);
    json_write_end(w);
}

alibi_status folder_save_model(const alibi_experiment *e, int model, int seed, const char *dir)
{
    alibi_status status;
    const struct experiment_model *m = &e->model[model];
    const struct trained *t = &m->seed[seed];
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);
    char *run = NULL;

    json_write_object(&w, NULL);
    json_write_string(&w, "name", m->name);
    json_write_int(&w, "text", e->text[m->text].text_checksum);
    write_settings(&w, e, m, seed);
    if (t->fitted[0])
        json_write_string(&w, "fitted", t->fitted);
    result_write_cost(&w, &t->cost);
    write_curve(&w, "train_curve", &t->train);
    write_curve(&w, "valid_curve", &t->valid);
    learned_write(&w, &t->learned);
    json_write_array(&w, "results");
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; t->measured[v] != NULL && i < evaluation_tests(&e->evaluation[v]); i++)
            if (t->measured[v][i].done && e->evaluation[v].kind == KIND_PERPLEXITY)
                write_measured(&w, e, model, v, i, &t->measured[v][i]);
    json_write_end(&w);
    probes_write(&w, e, model, seed);
    tasks_write(&w, e, model, seed);
    streams_write(&w, e, model, seed);
    json_write_seal(&w);
    TRY(folder_of_model(&run, e, model, seed, dir));
    TRY(file_replace_within(run, NAME_RESULT, &json));
out:
    mem_free(run);
    text_free(&json);
    return status;
}

static alibi_status read_curve(const json_t *file, const char *key, struct curve *c,
                               const char *path)
{
    const json_t *list = json_object_get(file, key);

    if (!json_is_array(list) || json_array_size(list) > CURVE_POINTS)
        return fail(ALIBI_BAD_INPUT, "'%s': '%s' is not an array of at most %d", path, key,
                    CURVE_POINTS);
    c->count = (int)json_array_size(list);
    for (int i = 0; i < c->count; i++) {
        const json_t *point = json_array_get(list, (size_t)i);

        c->step[i] = json_integer_value(json_array_get(point, 0));
        c->loss[i] = json_number_value(json_array_get(point, 1));
    }
    return ALIBI_OK;
}

/* An entry that the experiment does not ask for, or not in this form or on this text, is skipped.
 * Older files do not name the text: it is the model's. */
static alibi_status read_measured(const alibi_experiment *e, int model, struct trained *t,
                                  const json_t *entry, const char *path)
{
    const char *name;
    int64_t protocol, tokens, block, stride, length;
    int64_t text = e->text[e->model[model].text].text_checksum;

    TRY_RETURN(json_get_text(entry, "evaluation", &name, path));
    TRY_RETURN(json_get_int(entry, "protocol", 0, 100, &protocol, path));
    TRY_RETURN(json_get_int(entry, "asked_tokens", 0, INT64_MAX, &tokens, path));
    TRY_RETURN(json_get_int(entry, "asked_block", 0, INT64_MAX, &block, path));
    TRY_RETURN(json_get_int(entry, "asked_stride", 0, INT64_MAX, &stride, path));
    TRY_RETURN(json_get_int(entry, "length", 0, INT64_MAX, &length, path));
    if (json_object_get(entry, "text"))
        TRY_RETURN(json_get_int(entry, "text", 0, UINT32_MAX, &text, path));
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; t->measured[v] != NULL && i < e->evaluation[v].lengths.count; i++) {
            struct alibi_eval asked = evaluation_at(e, v, i);
            struct measured *m = &t->measured[v][i];

            if (e->evaluation[v].kind != KIND_PERPLEXITY)
                break;
            if (strcmp(e->evaluation[v].name, name) != 0 || asked.protocol != protocol ||
                evaluated_text(e, model, v)->text_checksum != text || asked.tokens != tokens ||
                asked.block != block || asked.stride != stride ||
                (asked.protocol != ALIBI_STREAM && asked.length != length))
                continue;
            TRY_RETURN(result_read_eval(entry, asked.protocol, &m->result, path));
            m->done = 1;
        }
    return ALIBI_OK;
}

static alibi_status load_model(alibi_experiment *e, int model, int seed, const char *dir)
{
    alibi_status status;
    struct experiment_model *m = &e->model[model];
    struct trained *t = &m->seed[seed];
    const struct experiment_text *text = &e->text[m->text];
    char *run = NULL, *path = NULL, *text_file = NULL;
    json_t *file = NULL;
    const json_t *results;
    const char *fitted;
    int64_t checksum, seed_there;

    t->cost = (struct alibi_compare_seed){ .seed = m->seeds.at[seed] };
    TRY(folder_of_model(&run, e, model, seed, dir));
    TRY(path_join(&path, run, NAME_RESULT));
    if (!file_exists(path))
        goto out;
    TRY(sealed_read(&file, path, RESULT_BYTES_MAX));
    TRY(json_get_int(file, "text", 0, UINT32_MAX, &checksum, path));
    TRY(json_get_int(file, "seed", 0, INT64_MAX, &seed_there, path));
    TRY(check_settings(e, m, seed, file, path));
    if (text->text_checksum == 0) {
        TRY(path_of(&text_file, dir, FOLDER_TEXTS, text->name, ".json"));
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s', which describes the text of '%s', is missing: also copy " FOLDER_TEXTS
                 "/*.json from where the experiment was run",
                 text_file, path));
    }
    if (seed_there != t->cost.seed || checksum != text->text_checksum)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' is of a model of another %s; use another --out", path,
                 seed_there != t->cost.seed ? "seed" : "text"));
    fitted = json_string_value(json_object_get(file, "fitted"));
    snprintf(t->fitted, sizeof t->fitted, "%s", fitted ? fitted : "");
    TRY(result_read_cost(file, &t->cost, path));
    TRY(read_curve(file, "train_curve", &t->train, path));
    TRY(read_curve(file, "valid_curve", &t->valid, path));
    results = json_object_get(file, "results");
    for (size_t i = 0; i < json_array_size(results); i++)
        TRY(read_measured(e, model, t, json_array_get(results, i), path));
    TRY(probes_read(e, model, t, file, path));
    TRY(tasks_read(e, model, seed, file, path));
    TRY(streams_read(e, t, file, path));
    learned_fini(&t->learned);
    TRY(learned_load(&t->learned, file, path));
out:
    json_decref(file);
    mem_free(text_file);
    mem_free(path);
    mem_free(run);
    return status;
}

/* ---- texts */

const char *const text_kind_names[TEXT_KINDS] = { "bytes", "bpe", "words" };

#define NUMBER(name, member)                                                                       \
    {                                                                                              \
        name, FIELD_INT, offsetof(struct experiment_text, member)                                  \
    }
static const struct json_field text_numbers[] = {
    NUMBER("checksum", text_checksum),
    NUMBER("tokenizer_checksum", tokenizer_checksum),
    NUMBER("documents", info.documents),
    NUMBER("tokens", info.tokens),
    NUMBER("words", info.words),
    NUMBER("bytes", info.bytes),
    NUMBER("vocab", info.vocab),
    NUMBER("paths", info.paths),
    NUMBER("builtin_seed", builtin.seed),
    NUMBER("builtin_bytes", builtin.bytes),
    /* Older files do not have these. */
    NUMBER("files_checksum", files_checksum),
    NUMBER("files_bytes", files_bytes),
    NUMBER("valid_checksum", valid_checksum),
};
enum {
    TEXT_NUMBERS = COUNT(text_numbers),
    TEXT_NUMBERS_OLD = TEXT_NUMBERS - 3,
};

/* The requested tokenizer. */
static void write_asked(struct json_writer *w, const alibi_experiment *e, int text)
{
    const struct experiment_text *t = &e->text[text];
    int count;
    const struct alibi_option *options = alibi_vocabulary_options(&count);
    char key[OPTION_KEY_MAX];

    json_write_object(w, "asked");
    json_write_string(w, "tokenizer_of", t->tokenizer_of < 0 ? "" : e->text[t->tokenizer_of].name);
    json_write_string(w, "tokenizer", text_kind_names[t->tokenizer]);
    for (int i = 0; i < count && t->tokenizer != TEXT_BYTES; i++) {
        option_key(key, options[i].name);
        option_write(w, key, &options[i], &t->words);
    }
    json_write_end(w);
}

void text_write(struct json_writer *w, const alibi_experiment *e, int text)
{
    const struct experiment_text *t = &e->text[text];
    char name[ALIBI_TEXT_NAME_MAX];

    snprintf(name, sizeof name, "%s", t->info.name);
    line_clean(name);
    json_write_string(w, "path", name);
    json_write_string(w, "tokenizer", t->type);
    write_asked(w, e, text);
    json_write_bool(w, "own_valid", t->own_valid);
    json_write_fields(w, text_numbers, TEXT_NUMBERS, t);
    json_write_array(w, "unigram");
    for (int i = 0; i < t->unigrams; i++) {
        json_write_object_line(w, NULL);
        json_write_int(w, "tokens", t->unigram[i].tokens);
        json_write_int(w, "block", t->unigram[i].block);
        json_write_real(w, "nll", t->unigram[i].nll);
        json_write_end(w);
    }
    json_write_end(w);
}

alibi_status folder_save_text(const alibi_experiment *e, int text, const char *dir)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);
    char *path = NULL;

    json_write_object(&w, NULL);
    text_write(&w, e, text);
    json_write_seal(&w);
    TRY(path_of(&path, dir, FOLDER_TEXTS, e->text[text].name, ".json"));
    TRY(sealed_write(path, &json));
out:
    mem_free(path);
    text_free(&json);
    return status;
}

static alibi_status load_text(alibi_experiment *e, int text, const char *dir)
{
    alibi_status status;
    struct experiment_text *t = &e->text[text];
    struct text asked = { 0 }, difference = { 0 };
    struct json_writer w = json_writer(&asked);
    char *path = NULL;
    json_t *file = NULL;
    const json_t *list;
    const char *name;

    TRY(path_of(&path, dir, FOLDER_TEXTS, t->name, ".json"));
    if (!file_exists(path))
        goto out;
    TRY(sealed_read(&file, path, RESULT_BYTES_MAX));
    for (int i = 0; i < TEXT_NUMBERS; i++)
        if (i < TEXT_NUMBERS_OLD || json_object_get(file, text_numbers[i].name))
            TRY(json_read_fields(file, &text_numbers[i], 1, t, path));
    t->info.checksum = t->text_checksum;
    json_write_object(&w, NULL);
    write_asked(&w, e, text);
    json_write_end(&w);
    TRY(compare_member(&difference, &asked, "asked", file, path));
    t->same = difference.length == 0;
    if (!t->same && t->text_checksum != 0)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' is of a text with %s; use another --out", path,
                 difference.data));
    TRY(json_get_text(file, "path", &name, path));
    snprintf(t->info.name, sizeof t->info.name, "%s", name);
    TRY(json_get_text(file, "tokenizer", &name, path));
    snprintf(t->type, sizeof t->type, "%s", name);
    t->own_valid = json_is_true(json_object_get(file, "own_valid"));
    list = json_object_get(file, "unigram");
    for (t->unigrams = 0; t->unigrams < (int)json_array_size(list) && t->unigrams < ALIBI_LIST_MAX;
         t->unigrams++) {
        const json_t *entry = json_array_get(list, (size_t)t->unigrams);

        TRY(json_get_int(entry, "tokens", 0, INT64_MAX, &t->unigram[t->unigrams].tokens, path));
        TRY(json_get_int(entry, "block", 0, INT64_MAX, &t->unigram[t->unigrams].block, path));
        TRY(json_get_real(entry, "nll", &t->unigram[t->unigrams].nll, path));
    }
out:
    text_free(&difference);
    text_free(&asked);
    json_decref(file);
    mem_free(path);
    return status;
}

/* ---- the whole */

alibi_status alibi_experiment_load(alibi_experiment *e, const char *dir)
{
    for (int i = 0; i < e->texts; i++)
        TRY_RETURN(load_text(e, i, dir));
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_SPEED)
            TRY_RETURN(speed_load(e, v, dir));
    for (int m = 0; m < e->models; m++)
        for (int k = 0; k < e->model[m].seeds.count; k++)
            TRY_RETURN(load_model(e, m, k, dir));
    return ALIBI_OK;
}

/* The experiment and tier that the folder holds. */
static alibi_status read_entered(const char *dir, char name[ALIBI_NAME_MAX],
                                 char tier[ALIBI_NAME_MAX], bool *held)
{
    json_t *json = NULL;
    const char *value;

    TRY_RETURN(json_read_within(&json, dir, NAME_EXPERIMENT));
    *held = json != NULL;
    value = json_string_value(json_object_get(json, "tier"));
    snprintf(tier, ALIBI_NAME_MAX, "%s", value ? value : "");
    value = json_string_value(json_object_get(json, "name"));
    snprintf(name, ALIBI_NAME_MAX, "%s", value ? value : "");
    json_decref(json);
    return ALIBI_OK;
}

alibi_status alibi_experiment_folder_tier(const char *dir, char tier[ALIBI_NAME_MAX], bool *held)
{
    char name[ALIBI_NAME_MAX];

    return read_entered(dir, name, tier, held);
}

alibi_status folder_check(const alibi_experiment *e, const char *dir)
{
    char name[ALIBI_NAME_MAX], tier[ALIBI_NAME_MAX];
    bool held;

    TRY_RETURN(read_entered(dir, name, tier, &held));
    if (held && name[0] != '\0' && strcmp(name, e->name) != 0)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' holds the experiment '%s', and this is '%s'; use another --out", dir,
                    name, e->name);
    if (held && strcmp(tier, e->tier) != 0)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' holds the tier '%s' of its experiment, and this is '%s'; use another "
                    "--out, or that --tier",
                    dir, tier[0] ? tier : "full", e->tier[0] ? e->tier : "full");
    return ALIBI_OK;
}

/* The names of what this run selects; NULL: not enough memory. */
static json_t *selected_json(const alibi_experiment *e)
{
    json_t *names = json_array();
    bool ok = names != NULL;

    for (int m = 0; m < e->models && ok; m++)
        if (e->model[m].selected)
            ok = json_array_append_new(names, json_string(e->model[m].name)) == 0;
    for (int v = 0; v < e->evaluations && ok; v++)
        if (e->evaluation[v].kind == KIND_SPEED && e->evaluation[v].selected)
            ok = json_array_append_new(names, json_string(e->evaluation[v].name)) == 0;
    if (!ok)
        json_decref(names);
    return ok ? names : NULL;
}

static bool lists(const json_t *names, const char *name)
{
    const char *entry;

    for (size_t i = 0; i < json_array_size(names); i++)
        if ((entry = json_string_value(json_array_get(names, i))) && strcmp(entry, name) == 0)
            return true;
    return false;
}

/* The selection (--only) of the last run of a folder; older files do not have it: everything. */
static void select_entered(alibi_experiment *e)
{
    const json_t *names = json_object_get(e->json, "selected");

    for (int m = 0; m < e->models && names != NULL; m++)
        e->model[m].selected = lists(names, e->model[m].name);
    for (int v = 0; v < e->evaluations && names != NULL; v++)
        e->evaluation[v].selected = lists(names, e->evaluation[v].name);
}

/* A copy of the experiment with its name, its tier, the selection of this run, and the sizes of
 * blocks of scored tokens. NULL: not enough memory. */
static json_t *entered_json(const alibi_experiment *e)
{
    json_t *copy = json_deep_copy(e->json);
    bool ok = json_object_set_new(copy, "tier", json_string(e->tier)) == 0 &&
              json_object_set_new(copy, "name", json_string(e->name)) == 0 &&
              json_object_set_new(copy, "selected", selected_json(e)) == 0;

    for (int v = 0; v < e->evaluations && ok; v++)
        if (e->evaluation[v].block > 0)
            ok = json_object_set_new(
                     json_object_get(json_object_get(copy, "evaluations"), e->evaluation[v].name),
                     "block", json_integer(e->evaluation[v].block)) == 0;
    if (!ok)
        json_decref(copy);
    return ok ? copy : NULL;
}

alibi_status folder_enter(const alibi_experiment *e, const char *dir)
{
    alibi_status status;
    static const char *const folders[] = { NAME_MODELS, FOLDER_TEXTS };
    char *path = NULL, *dump = NULL;
    json_t *copy = entered_json(e);

    if (copy != NULL)
        TRY(inline_recipes(copy, e->path)); /* so that the folder can be moved */
    dump = copy ? json_dumps(copy, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    if (dump == NULL)
        TRY(fail(ALIBI_MEMORY, "not enough memory for an experiment"));
    TRY(file_replace_within(dir, NAME_EXPERIMENT,
                            &(struct text){ .data = dump, .length = strlen(dump) }));
    for (int i = 0; i < 2; i++) {
        mem_free(path);
        path = NULL;
        TRY(path_join(&path, dir, folders[i]));
        TRY(folder_create(path));
    }
out:
    free(dump);
    json_decref(copy);
    mem_free(path);
    return status;
}

alibi_status folder_discard(const alibi_experiment *e, const char *dir)
{
    alibi_status status;
    static const char *const folders[] = { NAME_MODELS, FOLDER_TEXTS };
    char *path = NULL, **names = NULL;
    int count = 0;

    for (int t = 0; t < e->texts; t++) {
        mem_free(path);
        path = NULL;
        TRY(folder_of_text(&path, e, t, dir));
        if (!folder_exists(path))
            continue;
        TRY(folder_list(&names, &count, path));
        if (count > 0)
            goto out;
        TRY(folder_remove(path));
    }
    for (int i = 0; i < COUNT(folders); i++) {
        mem_free(path);
        path = NULL;
        TRY(path_join(&path, dir, folders[i]));
        TRY(folder_remove(path));
    }
    TRY(folder_remove(dir));
out:
    names_free(names, count);
    mem_free(path);
    return status;
}

/* Nothing is locked, so the page can be written while the experiment runs. */
alibi_status alibi_report_write(const char *dir, int64_t refresh, bool *finished)
{
    alibi_status status;
    alibi_experiment *e = NULL;
    char *path = NULL;
    enum path_kind kind;

    TRY(path_join(&path, dir, NAME_EXPERIMENT));
    TRY(path_look(&kind, path));
    if (kind != PATH_FILE) {
        TRY(page_of_folder(dir, refresh, finished));
        goto out;
    }
    TRY(alibi_experiment_open(&e, path, NULL));
    select_entered(e);
    TRY(alibi_experiment_load(e, dir));
    TRY(results_write(e, dir, refresh, finished));
out:
    alibi_experiment_free(e);
    mem_free(path);
    return status;
}
