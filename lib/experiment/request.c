/* request.c - the caller's queries about an experiment, and settings before it runs */
#include <stdio.h>
#include <string.h>

#include "experiment/experiment.h"

bool model_is_asked(const alibi_experiment *e, int model)
{
    bool asked = e->model[model].selected;

    for (int v = 0; v < e->evaluations; v++)
        asked |= e->evaluation[v].kind == KIND_SPEED && e->evaluation[v].selected &&
                 e->evaluation[v].has[model];
    return asked;
}

void alibi_experiment_get_info(const alibi_experiment *e, struct alibi_experiment_info *info)
{
    *info = (struct alibi_experiment_info){ .name = e->name,
                                            .title = e->title,
                                            .about = e->about,
                                            .tier = e->tier,
                                            .tier_about = e->tier_about,
                                            .tiers = e->tiers,
                                            .texts = e->texts,
                                            .evaluations = e->evaluations,
                                            .claims = e->claims };
    for (int t = 0; t < e->texts; t++)
        info->texts_read += text_is_read(e, t);
    for (int m = 0; m < e->models; m++) {
        int trainings = e->model[m].selected && e->model[m].of < 0 ? e->model[m].seeds.count : 0;

        info->models += model_is_asked(e, m);
        info->trainings += trainings;
        info->train_tokens += trainings * trained_tokens(&e->model[m].training);
    }
}

const char *alibi_experiment_text_name(const alibi_experiment *e, int text, const char **about)
{
    if (text < 0 || text >= e->texts)
        return NULL;
    if (about)
        *about = e->text[text].about;
    return e->text[text].name;
}

/* Fails with what is wrong, and then the names that there are. The message is for the command line:
 * no place in a file. */
static alibi_status fail_with_names(const char *what, const char *const *names, int count)
{
    struct text list = { 0 };
    alibi_status status;

    for (int i = 0; i < count; i++)
        text_append(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    status = text_status(&list);
    if (status == ALIBI_OK)
        status = fail(ALIBI_USAGE, "%s %s", what, list.data);
    text_free(&list);
    return status;
}

static alibi_status find_text(const alibi_experiment *e, const char *name, int *out)
{
    const char *names[ALIBI_LIST_MAX];
    char what[2 * ALIBI_NAME_MAX];

    for (*out = 0; *out < e->texts && (name != NULL || e->texts == 1); (*out)++)
        if (name == NULL || strcmp(e->text[*out].name, name) == 0)
            return ALIBI_OK;
    for (int i = 0; i < e->texts; i++)
        names[i] = e->text[i].name;
    if (name == NULL)
        return fail_with_names("the experiment has several texts; give each as NAME=PATH:", names,
                               e->texts);
    snprintf(what, sizeof what, "the experiment has no text '%.*s'; its texts are", ALIBI_NAME_MAX,
             name);
    return fail_with_names(what, names, e->texts);
}

/* A plan does not open its texts, and should not be one of a path that is wrong. */
static alibi_status check_path(const char *path)
{
    enum path_kind kind;

    if (strcmp(path, "-") == 0)
        return ALIBI_OK;
    TRY_RETURN(path_look(&kind, path));
    return kind != PATH_NONE
               ? ALIBI_OK
               : fail(ALIBI_BAD_INPUT, "cannot open '%s': %s", path, path_absent(path));
}

alibi_status alibi_experiment_set_text(alibi_experiment *e, const char *name,
                                       const char *const *paths, int count, const char *valid)
{
    alibi_status status;
    char **copies = NULL, *valid_copy = NULL;
    int i = 0, copied = 0;

    TRY(find_text(e, name, &i));
    if (count == 0 && valid != NULL && e->text[i].count == 0)
        TRY(fail(ALIBI_USAGE,
                 "text '%s' has a validation part, but nothing to train on; give %s=PATH too",
                 e->text[i].name, e->text[i].name));
    for (int k = 0; k < count; k++)
        TRY(check_path(paths[k]));
    if (valid != NULL)
        TRY(check_path(valid));
    if (valid != NULL)
        TRY(text_copy(&valid_copy, valid));
    if (count > 0)
        TRY(NEW_ZERO_ARRAY(&copies, count, "the paths of a text"));
    for (; copied < count; copied++)
        TRY(text_copy(&copies[copied], paths[copied]));
    alibi_corpus_free(e->text[i].corpus);
    e->text[i].corpus = NULL;
    if (count > 0) {
        names_free(e->text[i].paths, e->text[i].count);
        e->text[i].paths = copies;
        e->text[i].count = count;
        copies = NULL;
    }
    if (valid != NULL) {
        mem_free(e->text[i].valid);
        e->text[i].valid = valid_copy;
        valid_copy = NULL;
    }
out:
    if (copies)
        names_free(copies, copied);
    mem_free(valid_copy);
    return status;
}

alibi_status alibi_experiment_select(alibi_experiment *e, const char *const *names, int count)
{
    bool selected[ALIBI_LIST_MAX] = { false }, measured[ALIBI_LIST_MAX] = { false };

    for (int i = 0; i < count; i++) {
        const char *known[2 * ALIBI_LIST_MAX], *groups[ALIBI_LIST_MAX], *nearest;
        char what[2 * ALIBI_NAME_MAX];
        bool found = false;
        int different = 0;

        for (int m = 0; m < e->models; m++) {
            known[2 * m] = e->model[m].name;
            known[2 * m + 1] = e->model[m].group;
            if (m == 0 || strcmp(e->model[m].group, e->model[m - 1].group) != 0)
                groups[different++] = e->model[m].group;
            if (strcmp(e->model[m].name, names[i]) == 0 || strcmp(e->model[m].group, names[i]) == 0)
                found = selected[m] = true;
        }
        for (int v = 0; v < e->evaluations; v++)
            if (e->evaluation[v].kind == KIND_SPEED && strcmp(e->evaluation[v].name, names[i]) == 0)
                found = measured[v] = true;
        if (found)
            continue;
        nearest = alibi_nearest(names[i], known, 2 * e->models);
        if (nearest)
            return fail(ALIBI_USAGE,
                        "the experiment has no model or group '%s'; did you mean '%s'?", names[i],
                        nearest);
        snprintf(what, sizeof what, "the experiment has no model or group '%.*s'; its groups are",
                 ALIBI_NAME_MAX, names[i]);
        return fail_with_names(what, groups, different);
    }
    for (int m = 0; m < e->models; m++)
        e->model[m].selected = selected[m];
    for (int v = 0; v < e->evaluations; v++)
        e->evaluation[v].selected = measured[v];
    return ALIBI_OK;
}
