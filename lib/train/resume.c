/* resume.c - whether a run may begin or continue in a folder
 *
 * A resumed run must take the steps that it would have taken without a stop. So everything that
 * shapes the result must be as it was: the tokenizer, the text, the model, and the options of
 * training except the number of steps. Whatever differs is named, with both values. */
#include <string.h>

#include "train/train.h"

alibi_status resume_refuse(const char *dir)
{
    alibi_status status;
    struct step_folder *folders = NULL;
    int count = 0;

    TRY(step_folders(&folders, &count, dir));
    for (int i = 0; i < count; i++)
        if (folders[i].complete)
            TRY(fail(ALIBI_BAD_INPUT,
                     "'%s' already holds a run (step %lld): use --resume to continue it, or "
                     "another folder",
                     dir, (long long)folders[i].step));
out:
    step_folders_free(folders, count);
    return status;
}

alibi_status alibi_train_check(const struct alibi_config *config,
                               const struct alibi_training *training, const char *dir, bool resume)
{
    struct alibi_config resolved = *config;
    struct alibi_training settled = *training;
    enum path_kind kind;
    bool used;

    TRY_RETURN(training_resolve(&settled, config));
    resolved.train_length = training->train_length;
    TRY_RETURN(alibi_config_resolve(&resolved));
    TRY_RETURN(path_look(&kind, dir));
    if (kind == PATH_NONE)
        return ALIBI_OK;
    TRY_RETURN(folder_create(dir)); /* fails if it is a file */
    TRY_RETURN(folder_refuse_other(dir, FOLDER_RUN));
    TRY_RETURN(lock_check(&used, dir));
    if (used)
        return ALIBI_IO;
    return resume ? ALIBI_OK : resume_refuse(dir);
}

/* The first option that differs, with both values as a recipe spells them. */
static alibi_status check_options(const struct resume *r, const struct alibi_option *options,
                                  int count, const void *there, const void *here)
{
    alibi_status status = ALIBI_OK;
    struct text old = { 0 }, new = { 0 };

    for (int i = 0; i < count; i++) {
        if (strcmp(options[i].name, "steps") == 0)
            continue; /* a run may be extended */
        old.length = new.length = 0;
        TRY(option_format(&old, &options[i], there));
        TRY(option_format(&new, &options[i], here));
        if (strcmp(old.data, new.data) != 0)
            TRY(fail(ALIBI_BAD_INPUT,
                     "cannot resume '%s': its checkpoint has %s %s, this run asks for %s; omit "
                     "--%s, or start a new run in another folder with --init %s",
                     r->dir, options[i].name, old.data, new.data, options[i].name, r->dir));
    }
out:
    text_free(&old);
    text_free(&new);
    return status;
}

/* The same tokens, and as many of them in the files: otherwise the splits are cut elsewhere. */
static alibi_status check_text(const struct resume *r, const struct train_state *there)
{
    bool same_files = there->files_checksum == corpus_files_checksum(r->corpus);

    if (there->corpus_checksum == corpus_checksum(r->corpus) &&
        (same_files || there->files_checksum == 0))
        return ALIBI_OK;
    if (same_files)
        return fail(ALIBI_BAD_INPUT,
                    "cannot resume '%s': the text '%s' is the same, but the validation text "
                    "differs; give --valid as before, or omit it if it was not given",
                    r->dir, corpus_name(r->corpus));
    return fail(ALIBI_BAD_INPUT,
                "cannot resume '%s': the text '%s' differs from the one it was trained on; give "
                "that text, or start a new run in another folder with --init %s",
                r->dir, corpus_name(r->corpus), r->dir);
}

/* The learning rate is a function of the step and the total, so another total may make it jump. */
static alibi_status check_steps(const struct resume *r, const struct train_state *state,
                                const struct alibi_training *there)
{
    const struct alibi_training *here = r->training;
    int64_t next = state->step + 1;

    if (here->steps < state->step)
        return fail(ALIBI_BAD_INPUT,
                    "cannot resume '%s': it has done %lld steps, this run asks for %lld; give "
                    "--steps %lld or more",
                    r->dir, (long long)state->step, (long long)here->steps, (long long)state->step);
    if (here->steps == there->steps || state->step == here->steps)
        return ALIBI_OK;
    if (state->step < there->steps)
        call_note(r->call,
                  "steps %lld instead of %lld: step %lld has learning rate %.3g instead of %.3g",
                  (long long)here->steps, (long long)there->steps, (long long)next,
                  schedule_lr(here, next), schedule_lr(there, next));
    else
        call_note(
            r->call,
            "steps %lld instead of %lld: the learning rate, %.3g at step %lld, continues with "
            "%.3g",
            (long long)here->steps, (long long)there->steps, schedule_lr(there, state->step),
            (long long)state->step, schedule_lr(here, next));
    return ALIBI_OK;
}

alibi_status resume_check(const struct resume *r, const char *path, struct train_state *out,
                          char position[ALIBI_NAME_MAX])
{
    alibi_status status;
    struct alibi_config config;
    struct alibi_training training;
    struct train_state state;
    char found[ALIBI_NAME_MAX], due[ALIBI_NAME_MAX], last[ALIBI_NAME_MAX];
    alibi_tokenizer *there = NULL;
    const alibi_tokenizer *here = corpus_tokenizer(r->corpus);
    const struct alibi_option *options;
    int count;

    TRY(checkpoint_read_config(path, &config, &there));
    TRY(checkpoint_read_state(path, &state, &training));
    if (tokenizer_checksum(there) != tokenizer_checksum(here))
        TRY(fail(ALIBI_BAD_INPUT,
                 "cannot resume '%s': its tokenizer (%s, %lld ids) is not that of the text '%s' "
                 "(%s, %lld ids)",
                 r->dir, alibi_tokenizer_type(there), (long long)alibi_tokenizer_vocab(there),
                 corpus_name(r->corpus), alibi_tokenizer_type(here),
                 (long long)alibi_tokenizer_vocab(here)));

    /* The position of the checkpoint is the one that was asked for, or what has become of it. A run
     * that was extended after its positions had ended stays without them. */
    memcpy(found, config.position, sizeof found);
    TRY(model_position_after(r->model, state.step - 1, training.steps, due));
    TRY(model_position_after(r->model, training.steps, training.steps, last));
    if (strcmp(found, due) == 0 || strcmp(found, last) == 0)
        memcpy(config.position, r->config->position, sizeof config.position);

    options = alibi_config_options(&count);
    TRY(check_options(r, options, count, &config, r->config));
    options = training_shaping_options(&count);
    TRY(check_options(r, options, count, &training, r->training));
    TRY(check_text(r, &state));
    TRY(check_steps(r, &state, &training));
    *out = state;
    memcpy(position, found, sizeof found);
out:
    alibi_tokenizer_free(there);
    return status;
}
