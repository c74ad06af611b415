/* run.c - the loop
 *
 *   step s = 1, 2, ...:  batches (s - 1) * accumulate + i  ->  gradients  ->  guard  ->  clip  ->
 *   optimizer  ->  log
 *
 * Everything a step depends on is the weights, the optimizer's state and the number s: data order
 * and dropout are keyed by it. So a checkpoint holds these three, and a resumed run takes the same
 * steps as one that was never stopped. */
#include <math.h>
#include <string.h>

#include "train/train.h"

struct run {
    struct alibi_config asked, config; /* as given, resolved */
    struct alibi_training training;
    const alibi_corpus *corpus;
    const char *dir;
    bool alone; /* not one of the runs of a comparison */

    struct device *device;
    enum dtype type;
    struct model *model;
    struct optimizer optimizer;
    struct loader *loader;

    struct lock *lock;
    struct journal journal;
    struct train_state state;
    int64_t saved;       /* step of the newest checkpoint, 0: none */
    double step_seconds; /* smoothed */
};

/* ---- making: nothing is written until all of this succeeded */

static alibi_status resolve(struct run *r, const struct alibi_config *config)
{
    TRY_RETURN(training_check(&r->training));
    r->asked = r->config = *config;
    r->config.vocab = alibi_tokenizer_vocab(corpus_tokenizer(r->corpus));
    r->config.train_length = r->training.train_length;
    return alibi_config_resolve(&r->config);
}

/* What does not fit is refused before anything is allocated, and with a word on what would. */
static alibi_status check_memory(struct run *r)
{
    struct alibi_plan plan;
    struct alibi_config config = r->asked;

    config.vocab = r->config.vocab;
    TRY_RETURN(plan_training(&plan, &config, &r->training, r->device, r->type));
    TRY_RETURN(plan_check(&plan, r->training.recompute));
    if (plan.available > 0)
        plan_note(&plan);
    return ALIBI_OK;
}

static alibi_status make(struct run *r, const struct alibi_config *config)
{
    const struct alibi_training *t = &r->training;
    struct batches batches;

    TRY_RETURN(resolve(r, config));
    TRY_RETURN(batches_init(&batches, corpus_span(r->corpus, ALIBI_TRAIN), t->train_length,
                            t->batch, (uint64_t)t->seed));
    TRY_RETURN(check_memory(r));
    TRY_RETURN(loader_new(&r->loader, &batches));
    TRY_RETURN(model_new(&r->model, &r->config, r->device, r->type, true));
    r->model->skip = t->skip;
    r->model->recompute = t->recompute;
    TRY_RETURN(model_check_length(r->model, t->train_length));
    return optimizer_init(&r->optimizer, r->model, t->optimizer);
}

static void end(struct run *r)
{
    journal_close(&r->journal);
    optimizer_fini(&r->optimizer);
    model_free(r->model);
    loader_free(r->loader);
    lock_release(r->lock);
}

/* ---- the folder: whose it is, and whether this run may go on in it */

static alibi_status refuse_checkpoint(const char *dir)
{
    bool is_checkpoint;

    TRY_RETURN(folder_has(&is_checkpoint, dir, "manifest.json"));
    return is_checkpoint
               ? fail(ALIBI_BAD_INPUT, "'%s' is a checkpoint, not the folder of a run", dir)
               : ALIBI_OK;
}

static alibi_status refuse_comparison(const char *dir)
{
    bool is_comparison;

    TRY_RETURN(
        folder_has(&is_comparison, dir, "text.json")); /* the first file a comparison writes */
    return is_comparison
               ? fail(ALIBI_BAD_INPUT, "'%s' holds a comparison: choose another folder", dir)
               : ALIBI_OK;
}

static alibi_status refuse_run(const char *dir)
{
    alibi_status status;
    struct step_folder *folders = NULL;
    int count = 0;

    TRY(step_folders(&folders, &count, dir));
    for (int i = 0; i < count; i++)
        if (folders[i].complete) {
            status = fail(
                ALIBI_BAD_INPUT,
                "'%s' already holds a run (step %lld): use --resume to continue it, or another folder",
                dir, (long long)folders[i].step);
            break;
        }
out:
    step_folders_free(folders, count);
    return status;
}

/* *path is the checkpoint to go on from, NULL to start. */
static alibi_status enter_folder(struct run *r, bool resume, char **path)
{
    TRY_RETURN(folder_create(r->dir));
    TRY_RETURN(refuse_checkpoint(r->dir)); /* before the lock, which leaves a file */
    TRY_RETURN(refuse_comparison(r->dir));
    TRY_RETURN(lock_take(&r->lock, r->dir));
    if (!resume)
        TRY_RETURN(refuse_run(r->dir));
    TRY_RETURN(checkpoint_clean(r->dir));
    TRY_RETURN(file_remove_within(r->dir, "recipe.json.tmp"));
    TRY_RETURN(file_remove_within(r->dir, "timing.json.tmp"));
    return resume ? checkpoint_find(path, r->dir, hooks_call()) : ALIBI_OK;
}

/* ---- resuming */

/* Both values as a recipe spells them; the message names the first option in which they differ. */
static alibi_status agree_in(const struct run *r, const struct alibi_option *o, const void *there,
                             const void *here)
{
    alibi_status status;
    struct text old = { 0 }, new = { 0 };
    char *recipe = NULL;

    TRY(option_format(&old, o, there));
    TRY(option_format(&new, o, here));
    if (strcmp(old.data, new.data) == 0)
        goto out;
    TRY(path_join(&recipe, r->dir, "recipe.json"));
    status = fail(
        ALIBI_BAD_INPUT,
        "cannot resume '%s': %s is %s there and %s here; --recipe %s has the options of that run",
        r->dir, o->name, old.data, new.data, recipe);
out:
    mem_free(recipe);
    text_free(&old);
    text_free(&new);
    return status;
}

static alibi_status agree_in_all(const struct run *r, const struct alibi_option *options, int count,
                                 const void *there, const void *here)
{
    for (int i = 0; i < count; i++)
        TRY_RETURN(agree_in(r, &options[i], there, here));
    return ALIBI_OK;
}

static alibi_status agree_in_tokenizer(const struct run *r, const alibi_tokenizer *there)
{
    const alibi_tokenizer *here = corpus_tokenizer(r->corpus);

    if (tokenizer_checksum(there) == tokenizer_checksum(here))
        return ALIBI_OK;
    return fail(
        ALIBI_BAD_INPUT,
        "cannot resume '%s': its tokenizer (%s, %lld ids) is not that of the text '%s' (%s, %lld ids)",
        r->dir, alibi_tokenizer_type(there), (long long)alibi_tokenizer_vocab(there),
        corpus_name(r->corpus), alibi_tokenizer_type(here), (long long)alibi_tokenizer_vocab(here));
}

/* The same tokens, and as many of them in the files: else the splits are cut elsewhere. */
static alibi_status agree_in_text(const struct run *r, const struct train_state *there)
{
    bool same_files = there->files_checksum == corpus_files_checksum(r->corpus);

    if (there->corpus_checksum == corpus_checksum(r->corpus) &&
        (same_files || there->files_checksum == 0))
        return ALIBI_OK;
    if (same_files)
        return fail(
            ALIBI_BAD_INPUT,
            "cannot resume '%s': the text '%s' is the same, the validation text differs: give --valid as "
            "before, or not at all if it was not given",
            r->dir, corpus_name(r->corpus));
    return fail(ALIBI_BAD_INPUT,
                "cannot resume '%s': the text '%s' differs from the one this run was trained on",
                r->dir, corpus_name(r->corpus));
}

/* What shapes the result must be what it was. */
static alibi_status agree(const struct run *r, const char *path, struct train_state *state)
{
    alibi_status status;
    struct alibi_config config;
    struct alibi_training training;
    alibi_tokenizer *tokenizer = NULL;
    const struct alibi_option *options;
    int count;

    TRY(checkpoint_read_config(path, &config, &tokenizer));
    TRY(checkpoint_read_state(path, state, &training));
    options = alibi_config_options(&count);
    TRY(agree_in_all(r, options, count, &config, &r->config));
    options = training_shaping_options(&count);
    TRY(agree_in_all(r, options, count, &training, &r->training));
    TRY(agree_in_tokenizer(r, tokenizer));
    TRY(agree_in_text(r, state));
out:
    alibi_tokenizer_free(tokenizer);
    return status;
}

static alibi_status restore(struct run *r, const char *path)
{
    struct train_state state;

    TRY_RETURN(agree(r, path, &state));
    if (state.step < r->training.steps) { /* else the run is complete and nothing more is needed */
        TRY_RETURN(checkpoint_read_weights(path, r->model));
        TRY_RETURN(
            checkpoint_read_moments(path, r->model, r->optimizer.first, r->optimizer.second));
        log_note("resuming from '%s'", path);
    }
    r->state = state;
    r->state.files_checksum = corpus_files_checksum(r->corpus);
    r->saved = state.step;
    return ALIBI_OK;
}

static alibi_status start(struct run *r)
{
    r->state.corpus_checksum = corpus_checksum(r->corpus);
    r->state.files_checksum = corpus_files_checksum(r->corpus);
    return model_init(r->model, (uint64_t)r->training.seed);
}

/* Files are named on the command line, so only the built-in text is part of the recipe. What was
 * left to be derived stays so: with another width, say, the recipe must derive it anew. */
static alibi_status save_recipe(struct run *r)
{
    alibi_status status;
    char *path = NULL;
    struct alibi_builtin text = corpus_builtin(r->corpus);
    struct alibi_option_group groups[] = { { .title = "model", .values = &r->asked },
                                           { .title = "training", .values = &r->training },
                                           { .title = "text", .values = &text } };

    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    groups[2].options = alibi_builtin_options(&groups[2].count);
    TRY(path_join(&path, r->dir, "recipe.json"));
    TRY(alibi_options_write(groups, text.bytes > 0 ? 3 : 2, path));
out:
    mem_free(path);
    return status;
}

/* Leaves the run at its first step, at the one its checkpoint stands at, or complete. */
static alibi_status open_run(struct run *r, bool resume)
{
    alibi_status status;
    char *path = NULL;

    TRY(enter_folder(r, resume, &path));
    if (resume && !path && r->alone)
        log_note("no checkpoint in '%s': starting", r->dir);
    TRY(path ? restore(r, path) : start(r));
    TRY(save_recipe(r));
    TRY(journal_open(&r->journal, r->dir, r->state.step));
out:
    mem_free(path);
    return status;
}

/* ---- one step */

/* The gradient of the mean loss over all passes of the step, and that loss. */
static alibi_status gradients(struct run *r, int64_t step, double *loss)
{
    const struct alibi_training *t = &r->training;
    double scale = 1.0 / (double)(t->batch * t->train_length * t->accumulate), total = 0;

    TRY_RETURN(model_clear_gradients(r->model));
    for (int64_t i = 0; i < t->accumulate; i++) {
        int64_t number = (step - 1) * t->accumulate + i;
        struct dropout drop = { t->dropout, (uint64_t)t->seed,
                                RANDOM_STREAM(RANDOM_DROPOUT, number) };
        const int32_t *tokens, *targets;
        double sum;
        TRY_RETURN(loader_get(r->loader, number, &tokens, &targets));
        TRY_RETURN(model_gradients(r->model, tokens, targets, t->batch, t->train_length, scale,
                                   drop, &sum));
        total += sum;
    }
    *loss = fault_nan_due() ? NAN : total * scale;
    return ALIBI_OK;
}

static alibi_status take_step(struct run *r)
{
    const struct alibi_training *t = &r->training;
    int64_t step = r->state.step + 1;
    double loss, norm;

    TRY_RETURN(gradients(r, step, &loss));
    TRY_RETURN(optimizer_update(&r->optimizer, t, step, loss, &norm));
    TRY_RETURN(journal_record(&r->journal, step, loss, norm, schedule_lr(t, step)));
    r->state.step = step;
    r->state.loss = loss;
    return ALIBI_OK;
}

static alibi_status take_timed_step(struct run *r)
{
    double before = clock_seconds(), seconds;

    TRY_RETURN(take_step(r));
    seconds = clock_seconds() - before;
    r->journal.seconds += seconds;
    r->step_seconds = r->step_seconds > 0 ? 0.9 * r->step_seconds + 0.1 * seconds : seconds;
    return ALIBI_OK;
}

static double tokens_per_step(const struct run *r)
{
    return (double)(r->training.batch * r->training.train_length * r->training.accumulate);
}

static void report(const struct run *r)
{
    char task[ALIBI_NAME_MAX + 8];
    int64_t left = r->training.steps - r->state.step;

    snprintf(task, sizeof task, "train %s", r->config.position);
    report_progress(&(struct alibi_progress){
        .task = task,
        .unit = "steps",
        .done = r->state.step,
        .total = r->training.steps,
        .seconds = r->journal.seconds,
        .seconds_left = (double)left * r->step_seconds,
        .tokens_per_s = r->step_seconds > 0 ? tokens_per_step(r) / r->step_seconds : 0,
        .loss = r->state.loss,
    });
}

/* ---- the loop */

static alibi_status save(struct run *r)
{
    TRY_RETURN(journal_sync(&r->journal, device_peak(r->device)));
    TRY_RETURN(checkpoint_save(r->dir,
                               &(struct checkpoint){ r->model, corpus_tokenizer(r->corpus),
                                                     r->optimizer.first, r->optimizer.second,
                                                     &r->training, r->state },
                               hooks_call()));
    r->saved = r->state.step;
    return ALIBI_OK;
}

static alibi_status fail_stopped(const struct run *r)
{
    return fail(ALIBI_INTERRUPTED,
                "stopped at step %lld, saved; the same command with --resume continues",
                (long long)r->state.step);
}

static alibi_status loop(struct run *r)
{
    while (r->state.step < r->training.steps) {
        bool stop, last;
        TRY_RETURN(take_timed_step(r));
        report(r);
        stop = alibi_global_stop_requested();
        last = r->state.step == r->training.steps;
        if (stop || last || r->state.step % r->training.save_every == 0)
            TRY_RETURN(save(r));
        if (stop && !last)
            return fail_stopped(r);
    }
    return ALIBI_OK;
}

static alibi_status say_what_is_left(const struct run *r, alibi_status status)
{
    if (status != ALIBI_NUMERIC)
        return status;
    if (r->saved == 0)
        return fail(status, "%s; nothing of this step was kept, there is no checkpoint yet",
                    alibi_error());
    return fail(status, "%s; nothing of this step was kept, the last checkpoint is step %lld",
                alibi_error(), (long long)r->saved);
}

static struct alibi_train_result result_of(struct run *r)
{
    size_t peak = device_peak(r->device), earlier = (size_t)r->journal.peak_bytes;

    return (struct alibi_train_result){
        .step = r->state.step,
        .parameters = r->model->elements,
        .loss = r->state.loss,
        .seconds = r->journal.seconds,
        .tokens_per_s = r->journal.seconds > 0
                            ? tokens_per_step(r) * (double)r->state.step / r->journal.seconds
                            : 0,
        .peak_bytes = peak > earlier ? peak : earlier,
    };
}

static alibi_status run_to_end(struct run *r, const struct alibi_config *config, bool resume,
                               struct alibi_train_result *result)
{
    alibi_status status;

    r->device->ops->reset_peak(r->device);
    TRY(make(r, config));
    TRY(open_run(r, resume));
    TRY(loop(r));
    *result = result_of(r);
out:
    status = say_what_is_left(r, status);
    end(r);
    return status;
}

alibi_status train_run(alibi_device *device, const struct alibi_config *config,
                       const struct alibi_training *training, const alibi_corpus *corpus,
                       const char *dir, bool resume, struct alibi_train_result *result)
{
    struct run r = { .device = &device->device,
                     .type = device->type,
                     .training = *training,
                     .corpus = corpus,
                     .dir = dir };

    return run_to_end(&r, config, resume, result);
}

alibi_status alibi_train(alibi_device *device, const struct alibi_config *config,
                         const struct alibi_training *training, const alibi_corpus *corpus,
                         const char *dir, bool resume, struct alibi_train_result *result)
{
    struct run r = { .device = &device->device,
                     .type = device->type,
                     .training = *training,
                     .corpus = corpus,
                     .dir = dir,
                     .alone = true };
    alibi_status status = run_to_end(&r, config, resume, result);

    stop_clear(); /* whoever asked for a stop has it */
    return status;
}
