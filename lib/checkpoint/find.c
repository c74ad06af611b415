/* find.c - the checkpoint that a path means, or what is there instead */
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "checkpoint/parts.h"

/* `run` is a folder without a checkpoint, in use by another process. */
static alibi_status fail_before_first_save(const char *run, const char *recipe_path)
{
    json_t *recipe = NULL;
    char user[512], every[64] = "";
    int64_t steps = 0;

    snprintf(user, sizeof user, "%s", alibi_error());
    TRY_RETURN(json_read(&recipe, recipe_path));
    steps = json_integer_value(json_object_get(recipe, "save_every"));
    json_decref(recipe);
    if (steps > 0)
        snprintf(every, sizeof every, " and saves every %lld steps", (long long)steps);
    return fail(ALIBI_BAD_INPUT,
                "'%s' holds no checkpoint yet: a training is under way%s (%s); try again later",
                run, every, user);
}

/* Counts the runs with checkpoints within `folder`, and appends the paths of the first. A folder
 * that cannot be read is none. */
static alibi_status list_runs(struct text *list, int *runs, const char *folder)
{
    enum { NAMED = 4 };
    alibi_status status;
    char **names = NULL, *path = NULL;
    int count = 0;

    TRY(folder_list(&names, &count, folder));
    for (int i = 0; i < count; i++) {
        struct step_folder *folders = NULL;
        int steps = 0;

        mem_free(path);
        path = NULL;
        TRY(path_join(&path, folder, names[i]));
        if (!folder_exists(path))
            continue;
        status = step_folders(&folders, &steps, path);
        step_folders_free(folders, steps);
        if (status != ALIBI_OK && status != ALIBI_BAD_INPUT)
            goto out;
        if (steps > 0 && ++*runs <= NAMED)
            text_append(list, "%s'%s'", *runs > 1 ? ", " : "", path);
    }
    if (*runs > NAMED)
        text_append(list, " and %d more", *runs - NAMED);
    status = text_status(list);
out:
    mem_free(path);
    names_free(names, count);
    return status;
}

/* Says what a folder without checkpoints is instead, by a file in it, and what to do with it. */
static alibi_status fail_by_file(const char *from)
{
    static const struct {
        const char *file, *advice;
    } known[] = {
        { NAME_EXPERIMENT, "it is an experiment, of which no model has a checkpoint, as after "
                           "--discard-checkpoints; 'alibi report' shows its results" },
        { NAME_RESULT, "it has the results of a model that was trained, and whose checkpoints were "
                       "deleted, as by --discard-checkpoints" },
        { NAME_COMPARED_TEXT, "it is a comparison, of which no model has been saved yet" },
        { NAME_RECIPE, "it is a training run that ended before its first checkpoint; repeat its "
                       "command" },
        { NAME_SHARD_INDEX, "it is a text, in token shards; the model comes first" },
        { NAME_CONFIG, "it may be a model of another program, which 'alibi import' reads" },
    };
    alibi_status status;
    char **names = NULL, *path = NULL;
    int count = 0;

    for (int i = 0; i < COUNT(known); i++) {
        mem_free(path);
        path = NULL;
        TRY(path_join(&path, from, known[i].file));
        if (file_exists(path))
            TRY(fail(ALIBI_BAD_INPUT, "'%s' holds no checkpoint: %s", from, known[i].advice));
    }
    TRY(folder_list(&names, &count, from));
    status = fail(ALIBI_BAD_INPUT,
                  "'%s' holds no checkpoint%s%s%s%s; give the folder of a training run, or of one "
                  "of its checkpoints",
                  from, count > 0 ? ", but '" : ": it is empty", count > 0 ? names[0] : "",
                  count > 0 ? "'" : "", count > 1 ? " and other files" : "");
out:
    mem_free(path);
    names_free(names, count);
    return status;
}

/* `from` is a folder without a checkpoint. The message names the models in it, as in the folder of
 * a comparison or an experiment, or says what it is. */
static alibi_status fail_without_checkpoint(const char *from)
{
    alibi_status status;
    struct text list = { 0 };
    char *models = NULL, *recipe = NULL;
    int runs = 0;
    bool used = false;

    TRY(list_runs(&list, &runs, from));
    TRY(path_join(&models, from, NAME_MODELS));
    if (runs == 0 && folder_exists(models))
        TRY(list_runs(&list, &runs, models));
    if (runs > 0)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' holds no checkpoint, but models that do; give one: %s",
                 from, list.data));
    TRY(path_join(&recipe, from, NAME_RECIPE));
    if (file_exists(recipe))
        TRY(lock_check(&used, from));
    status = used ? fail_before_first_save(from, recipe) : fail_by_file(from);
out:
    mem_free(recipe);
    mem_free(models);
    text_free(&list);
    return status;
}

/* RUN/best is no folder, but a name for the checkpoint that its newest one calls the best. */
static alibi_status find_best(char **path, const char *from, const struct alibi_call *call)
{
    alibi_status status;
    char *run = NULL, *newest = NULL, *best = NULL;
    struct train_state state = { 0 };
    struct alibi_training training;

    TRY(path_folder(&run, from));
    TRY(checkpoint_find(&newest, run, call));
    if (newest)
        TRY(checkpoint_read_state(newest, &state, &training));
    if (state.validation.best_step > 0)
        TRY(step_folder_path(&best, run, state.validation.best_step, false));
    if (!best || !folder_exists(best))
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' has no best checkpoint: a run keeps it if it is trained with --keep-best",
                 run));
    TRY(checkpoint_verify(best));
    *path = best;
    best = NULL;
out:
    mem_free(best);
    mem_free(run);
    mem_free(newest);
    return status;
}

bool checkpoint_is_best(const char *from)
{
    static const char name[] = "/best";
    size_t length = strlen(from), tail = sizeof name - 1;

    while (length > 1 && from[length - 1] == '/')
        length--;
    return length > tail && strncmp(from + length - tail, name, tail) == 0;
}

static alibi_status find_plain(char **path, const char *from, const struct alibi_call *call)
{
    enum path_kind kind;

    TRY_RETURN(path_look(&kind, from));
    if (kind == PATH_NONE && checkpoint_is_best(from))
        return find_best(path, from, call);
    if (kind == PATH_NONE)
        return fail(ALIBI_BAD_INPUT, "cannot open model '%s': %s", from, path_absent(from));
    if (kind == PATH_FILE && ends_with(from, ".gguf"))
        return fail(ALIBI_BAD_INPUT,
                    "'%s' is not a model of this program: it is a GGUF file, which 'alibi import' "
                    "reads",
                    from);
    if (kind == PATH_FILE)
        return fail(ALIBI_BAD_INPUT, "'%s' is not a model: it is a file, not a folder", from);
    TRY_RETURN(checkpoint_find(path, from, call));
    return *path ? ALIBI_OK : fail_without_checkpoint(from);
}

/* A shell completes the name of a folder with a slash, which means nothing. */
alibi_status checkpoint_find_model(char **path, const char *from, const struct alibi_call *call)
{
    alibi_status status;
    char *plain = NULL;
    size_t length = strlen(from);

    TRY(text_copy(&plain, from));
    while (length > 1 && plain[length - 1] == '/')
        plain[--length] = '\0';
    TRY(find_plain(path, plain, call));
out:
    mem_free(plain);
    return status;
}
