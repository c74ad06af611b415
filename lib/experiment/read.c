/* read.c - an experiment's file into structs
 *
 *   read_tiers.c         1. merge the tier that is asked for, fill in numbers
 *   read_models.c        2. texts, then models with their settings
 *   read_evaluations.c   3. evaluations of these models
 *   read_claims.c        4. claims about what the evaluations measure
 *   read_members.c       single members, and the place that a failure names
 *
 * The order matters: each section may name members of the ones before. Strings are borrowed from
 * the JSON. */
#include <string.h>

#include "experiment/read.h"

/* Reads every member of a section. */
static alibi_status read_section(struct reader *r, const char *name,
                                 alibi_status (*read)(struct reader *r, const char *key,
                                                      json_t *json))
{
    json_t *section = json_object_get(r->e->json, name), *value;
    const char *key;

    if (!json_is_object(section) || json_object_size(section) == 0)
        return fail_type(r, name, "an object with at least one member");
    reader_enter(r, name);
    json_object_foreach(section, key, value)
    {
        reader_enter(r, key);
        TRY_RETURN(read(r, key, value));
        reader_leave(r);
    }
    reader_leave(r);
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
            for (int v = 0; v < e->evaluations; v++) {
                int tests = evaluation_tests(&e->evaluation[v]);
                struct measured **measured = &model->seed[k].measured[v];

                if (e->evaluation[v].kind == KIND_SPEED || !e->evaluation[v].has[m])
                    continue;
                TRY_RETURN(NEW_ZERO_ARRAY(measured, tests, "the results of a model"));
                for (int i = 0; i < tests; i++)
                    TRY_RETURN(probes_new(e, m, v, &(*measured)[i]));
            }
    }
    return ALIBI_OK;
}

static alibi_status read_all(struct reader *r, const char *tier)
{
    alibi_experiment *e = r->e;
    const char *written = "", *name = "";
    int64_t version = 0;

    /* First: another version may have other keys. */
    TRY_RETURN(reader_int(r, e->json, "experiment", 1, INT32_MAX, &version));
    if (version > EXPERIMENT_VERSION) {
        reader_enter(r, "experiment");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "the file has version %lld, and alibi %s reads version %d; use a "
                                "newer alibi",
                                (long long)version, alibi_version(), EXPERIMENT_VERSION));
    }
    TRY_RETURN(KEYS(r, e->json, "experiment", "title", "about", "numbers", "seeds", "settings",
                    "texts", "models", "evaluations", "claims", "tiers", "tier_about", "tier",
                    "name", "selected"));
    if (version == 0)
        return fail_type(r, "experiment", "the version of the file, 1,");
    /* In the file of a folder: the tier that is applied already, whose file it was, and what its
     * last run was asked for, which the report alone reads. */
    TRY_RETURN(reader_text(r, e->json, "tier", &written));
    TRY_RETURN(reader_text(r, e->json, "name", &name));
    snprintf(e->tier, sizeof e->tier, "%s", written);
    if (name[0] != '\0')
        snprintf(e->name, sizeof e->name, "%s", name);
    TRY_RETURN(apply_tier(r, tier));
    TRY_RETURN(fill_numbers(r, json_object_get(e->json, "numbers"), e->json));
    e->title = e->name;
    e->about = e->tier_about = "";
    TRY_RETURN(reader_text(r, e->json, "title", &e->title));
    TRY_RETURN(reader_text(r, e->json, "about", &e->about));
    TRY_RETURN(reader_text(r, e->json, "tier_about", &e->tier_about));
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
        for (int k = 0; e->model[m].seed != NULL && k < e->model[m].seeds.count; k++) {
            learned_fini(&e->model[m].seed[k].learned);
            for (int v = 0; v < e->evaluations; v++) {
                struct measured *measured = e->model[m].seed[k].measured[v];

                for (int i = 0; measured && i < evaluation_tests(&e->evaluation[v]); i++)
                    probes_free(&measured[i]);
                mem_free(measured);
            }
        }
    for (int m = 0; m < ALIBI_LIST_MAX; m++) {
        struct alibi_option_group groups[2];

        model_groups(groups, &e->model[m]);
        alibi_options_free(groups, 2);
        mem_free(e->model[m].seed);
        alibi_corpus_free(e->model[m].mixture);
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
