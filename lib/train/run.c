/* run.c - the training loop
 *
 *   step s = 1, 2, ...    gradients of batches (s - 1) * accumulate + i, i = 0 .. accumulate - 1
 *                         -> finite? -> clip -> optimizer -> log
 *                         -> validation, checkpoint, if it is time
 *
 * A step depends only on the weights, the optimizer's state and the number s: data order and
 * dropout are keyed by it. So a checkpoint holds these three, and a resumed run takes the same
 * steps as one that was never stopped. With --autotune wide they also depend on the algorithms of
 * matrix products that step 1 has chosen, which the checkpoint holds too.
 *
 * With N ranks, rank r takes the passes i = r, r + N, ... of each step. All have the same weights
 * and state after it, and divide a validation and the writing of a checkpoint. Rank 0 writes
 * everything else in the folder, such as the log. After any work that one rank does alone, all
 * agree on its outcome before they continue. */
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "text/tasks.h"
#include "train/train.h"

struct run {
    struct device *device;
    enum dtype type;
    struct alibi_config asked, config; /* as given, resolved */
    struct alibi_training training;
    const alibi_corpus *corpus;
    const char *dir;
    struct forecast *forecast;
    const struct alibi_call *call;
    alibi_comm *comm; /* the ranks that train together; NULL: alone */

    struct model *model;
    struct model *initial; /* where rank 0 sets the weights that training begins with: `model`, or
                            with several ranks one of the host, of which all get theirs; NULL at
                            the others, and later */
    struct device host;    /* of that one */
    struct workspace *workspace;
    struct optimizer optimizer;
    struct loader *loader;
    struct lock *lock;
    struct journal journal;
    const char *events_folder; /* NULL: none */
    struct events events;
    double *passes; /* [accumulate][2]: the loss of each pass of a step, and how many tokens it is
                       of */

    struct train_state state;
    struct validation validation; /* the last one of this call */
    bool wide;                    /* the next step chooses the algorithms of matrix products */
    bool started;                 /* the model has the weights that training begins with */
    bool validates;               /* it was asked for, and the split is long enough */
    bool together;                /* all ranks see the folder, and write checkpoints in it */
    int64_t saved;                /* step of the newest checkpoint, 0: none */
    double step_seconds;          /* smoothed */
    double first_loss;            /* of step 1, 0: it was not taken in this call */
};

/* ---- ranks */

/* Everything that shapes the result must be the same on all ranks. */
static alibi_status check_ranks(const struct run *r, bool resume)
{
    alibi_status status;
    struct text json = { 0 };
    struct alibi_config config = r->asked;
    struct alibi_training training = r->training;
    struct alibi_option_group groups[] = { { .title = "model", .values = &config },
                                           { .title = "training", .values = &training } };
    uint32_t text = corpus_checksum(r->corpus);
    const int32_t numbers[] = { r->type, resume };

    if (comm_size(r->comm) == 1)
        return ALIBI_OK;
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    TRY(comm_agree(r->comm, options_format(groups, 2, &json)));
    TRY(comm_same(r->comm, json.data, json.length, "recipe"));
    TRY(comm_same(r->comm, &text, sizeof text, "text"));
    TRY(comm_same(r->comm, numbers, sizeof numbers, "--precision or --resume"));
out:
    text_free(&json);
    return status;
}

/* ---- making: nothing is written until all of this succeeded */

static alibi_status new_workspace(struct run *r)
{
    const struct alibi_training *t = &r->training;

    return workspace_new(&r->workspace, r->model,
                         &(struct pass_settings){ .skip = t->skip,
                                                  .recompute = t->recompute,
                                                  .tail_dropout = t->adaptive_dropout,
                                                  .attention_dropout = t->attention_dropout,
                                                  .activation_dropout = t->activation_dropout,
                                                  .gradient_done = optimizer_send_layer,
                                                  .user = &r->optimizer });
}

/* The model's position becomes another one that has the same tensors. */
static alibi_status change_position(struct run *r, const char *position)
{
    if (strcmp(position, r->model->config.position) == 0)
        return ALIBI_OK;
    workspace_free(r->workspace); /* it has the tables of the old one */
    r->workspace = NULL;
    TRY_RETURN(model_set_position(r->model, position));
    return new_workspace(r);
}

/* Positions that end before the training does can do so: that must not be found out hours later. */
static alibi_status check_positions(struct run *r)
{
    int64_t steps = r->training.steps;
    char first[ALIBI_NAME_MAX], last[ALIBI_NAME_MAX];

    memcpy(first, r->model->config.position, sizeof first);
    TRY_RETURN(model_position_after(r->model, steps, steps, last));
    if (strcmp(first, last) == 0)
        return ALIBI_OK;
    TRY_RETURN(model_set_position(r->model, last));
    return model_set_position(r->model, first);
}

/* With several ranks the GPU of rank 0 need not have room for what is divided among all. */
static alibi_status make_models(struct run *r)
{
    if (comm_size(r->comm) == 1) {
        TRY_RETURN(model_new(&r->model, &r->config, r->device, r->type, false));
        r->initial = r->model;
        return ALIBI_OK;
    }
    TRY_RETURN(model_new_sharded(&r->model, &r->config, r->device, r->type));
    if (!comm_is_root(r->comm))
        return ALIBI_OK;
    r->host.ops = ops_cpu();
    return model_new(&r->initial, &r->config, &r->host, DTYPE_F32, false);
}

static void free_initial(struct run *r)
{
    if (r->initial != r->model)
        model_free(r->initial);
    r->initial = NULL;
}

static alibi_status make(struct run *r)
{
    struct alibi_training *t = &r->training;
    struct alibi_config planned = r->asked;
    struct alibi_plan plan;
    struct batches batches;
    alibi_status status;

    TRY_RETURN(training_resolve(t, &r->asked));
    TRY_RETURN(plan_check_ranks(t, comm_size(r->comm)));
    r->config = r->asked;
    r->config.train_length = t->train_length;
    status = config_fit_vocab(&r->config, corpus_tokenizer(r->corpus));
    /* A vocabulary that came with --init does not fit because the tokenizer is another one. */
    if (status != ALIBI_OK && t->init)
        TRY_RETURN(checkpoint_init_weights(t->init, NULL, corpus_tokenizer(r->corpus), r->call));
    if (status != ALIBI_OK) /* once more for its message: it is the reason after all */
        return config_fit_vocab(&r->config, corpus_tokenizer(r->corpus));
    TRY_RETURN(alibi_config_resolve(&r->config));
    /* The recipe has the method's own name: "rotary" where "rope" was asked for. */
    memcpy(r->asked.position, r->config.position, sizeof r->asked.position);
    TRY_RETURN(
        batches_of_corpus(&batches, r->corpus, t->train_length, t->batch, (uint64_t)t->seed));

    /* A run that does not fit is refused before anything is allocated, with what would fit. The
     * plan tries other lengths, so it takes the options as asked. */
    planned.vocab = r->config.vocab;
    TRY_RETURN(
        plan_training_of_ranks(&plan, comm_size(r->comm), &planned, t, r->device, r->type, false));
    TRY_RETURN(plan_check(&plan, t, comm_size(r->comm)));
    if (plan.total > plan.available / 4)
        plan_note(&plan, r->call);

    r->validates = t->eval_every > 0 && validation_possible(r->corpus, t);
    if (t->eval_every > 0 && !r->validates)
        call_note(r->call, "no validation: the split is shorter than one window of %lld tokens",
                  (long long)t->train_length);
    TRY_RETURN(loader_new(&r->loader, &batches));
    TRY_RETURN(make_models(r));
    TRY_RETURN(model_add_gradients(r->model, gradients_by_layer(t, comm_size(r->comm))));
    TRY_RETURN(check_positions(r));
    TRY_RETURN(new_workspace(r));
    TRY_RETURN(model_check_length(r->model, t->train_length));
    TRY_RETURN(NEW_ARRAY(&r->passes, 2 * t->accumulate, "the losses of a step"));
    return optimizer_init(&r->optimizer, r->model, t->optimizer, r->comm);
}

/* ---- resuming */

/* Whether the last step has no validation yet. In a resumed run that is so if a stop came before
 * the validation did. */
static bool validation_due(const struct run *r)
{
    const struct alibi_training *t = &r->training;
    int64_t step = r->state.step;

    return r->validates && step > 0 && r->state.validation.step != step &&
           (step % t->eval_every == 0 || step == t->steps);
}

/* A complete run needs no more than its state. */
static bool unfinished(const struct run *r)
{
    return r->state.step < r->training.steps || validation_due(r);
}

/* ---- the algorithms of matrix products, on a device that has several for each */

/* Restores the choices of the checkpoint, whatever this call requests. */
static alibi_status restore_choices(struct run *r, const char *path)
{
    struct choices there = { .count = 0 }, here;
    alibi_status status;

    TRY(checkpoint_read_choices(path, &there));
    if (there.count == 0 || !r->device->ops->tune)
        goto out;
    device_get_choices(r->device, &here);
    r->wide = comm_size(r->comm) == 1 && strcmp(there.by, here.by) != 0;
    if (comm_size(r->comm) > 1)
        call_warn(r->call,
                  "the algorithms of the matrix products of '%s' were chosen by one process; "
                  "several use others, and the bits differ from here on",
                  r->dir);
    else if (!r->wide)
        TRY(device_set_choices(r->device, &there));
    else {
        call_warn(r->call,
                  "the algorithms of the matrix products of '%s' were chosen on '%s', and this is "
                  "'%s': they are chosen again, and the bits differ from here on",
                  r->dir, there.by, here.by);
        device_tune(r->device, TUNING_WIDE);
    }
out:
    mem_free(there.list);
    return status;
}

/* After each step: all that were to be chosen are, and given ones are in use. */
static void settle_choices(struct run *r)
{
    struct choices choices;

    device_get_choices(r->device, &choices);
    if (choices.dropped > 0)
        call_warn(r->call,
                  "step %lld: the algorithms of %d matrix products of '%s' are not offered by '%s' "
                  "any more: the bits differ from here on",
                  (long long)r->state.step, choices.dropped, r->dir, choices.by);
    if (r->wide || choices.dropped > 0)
        device_tune(r->device, TUNING_FIXED);
    if (r->wide)
        call_note(r->call, "chose the fastest algorithms of %d matrix products", choices.count);
    r->wide = false;
}

/* Everything but the moments. */
static alibi_status restore(struct run *r, const char *path)
{
    const struct resume now = { r->dir, r->corpus, r->model, &r->config, &r->training, r->call };
    struct train_state state;
    char position[ALIBI_NAME_MAX];

    TRY_RETURN(resume_check(&now, path, &state, position));
    TRY_RETURN(change_position(r, position));
    r->state = state;
    if (unfinished(r)) {
        TRY_RETURN(checkpoint_read_weights(path, r->initial));
        TRY_RETURN(restore_choices(r, path));
    }
    r->state.files_checksum = corpus_files_checksum(r->corpus);
    r->saved = state.step;
    return ALIBI_OK;
}

/* With several ranks, rank 0 reads one moment after the other, where it had the weights, and all
 * take their shards. */
static alibi_status restore_moments(struct run *r, const char *path)
{
    struct optimizer *o = &r->optimizer;

    if (comm_size(r->comm) == 1)
        return checkpoint_read_moments(path, r->model, o->first, o->second);
    for (int i = 0; i < optimizer_moments(o->kind); i++) {
        float *values = r->initial ? r->initial->values : NULL;
        alibi_status status = ALIBI_OK;

        if (r->initial)
            status = checkpoint_read_moments(path, r->initial, i == 0 ? values : NULL,
                                             i == 1 ? values : NULL);
        TRY_RETURN(comm_agree(r->comm, status));
        TRY_RETURN(optimizer_set_moment(o, i == 0 ? SHARD_FIRST : SHARD_SECOND, values));
    }
    return ALIBI_OK;
}

/* All ranks continue with the weights and the state of rank 0. */
static alibi_status share(struct run *r)
{
    struct model *m = r->model;
    struct {
        struct train_state state;
        int64_t saved;
        char position[ALIBI_NAME_MAX];
    } found = { .state = r->state, .saved = r->saved };

    if (comm_size(r->comm) == 1)
        return ALIBI_OK;
    memcpy(found.position, m->config.position, sizeof found.position);
    TRY_RETURN(comm_broadcast(r->comm, &found, sizeof found));
    r->state = found.state;
    r->saved = found.saved;
    TRY_RETURN(change_position(r, found.position));
    return optimizer_set_weights(&r->optimizer, r->initial ? r->initial->values : NULL);
}

/* ---- saving */

static struct checkpoint checkpoint_of(struct run *r)
{
    struct choices choices;

    device_get_choices(r->device, &choices);
    return (struct checkpoint){
        .model = r->model,
        .tokenizer = corpus_tokenizer(r->corpus),
        .comm = r->together ? r->comm : NULL,
        .first = r->optimizer.first,
        .second = r->optimizer.second,
        .masters = r->optimizer.masters,
        .fetch = comm_size(r->comm) > 1 && !r->together ? optimizer_fetch : NULL,
        .user = (void *)&r->optimizer,
        .training = &r->training,
        .state = r->state,
        .choices = choices,
        .keep = r->training.keep_best ? r->state.validation.best_step : 0,
    };
}

/* For a folder that only rank 0 sees: it writes, and the others send it their parts of the moments.
 * The ranks do not agree on failures between them here, because they wait for data, not for an
 * answer. */
static alibi_status save_at_root(struct run *r, const struct checkpoint *c)
{
    struct failure failure;

    if (!comm_is_root(r->comm)) {
        TRY_RETURN(optimizer_serve(&r->optimizer));
        return comm_agree(r->comm, ALIBI_OK);
    }
    failure_keep(&failure, checkpoint_save(r->dir, c, r->call));
    TRY_RETURN(optimizer_served(&r->optimizer));
    return comm_agree(r->comm, failure_raise(&failure));
}

static alibi_status save(struct run *r)
{
    const struct checkpoint c = checkpoint_of(r);
    alibi_status status = ALIBI_OK;

    if (comm_is_root(r->comm)) /* first, so that the log never ends before the checkpoint */
        status = journal_sync(&r->journal, device_peak(r->device));
    if (comm_is_root(r->comm) && status == ALIBI_OK)
        events_sync(&r->events, r->call);
    TRY_RETURN(comm_agree(r->comm, status));
    TRY_RETURN(c.fetch ? save_at_root(r, &c) : checkpoint_save(r->dir, &c, r->call));
    r->saved = r->state.step;
    return ALIBI_OK;
}

/* ---- starting */

/* The weights are always drawn first: tensors that the other model lacks keep those values. */
static alibi_status start(struct run *r)
{
    r->started = true;
    r->state.corpus_checksum = corpus_checksum(r->corpus);
    r->state.files_checksum = corpus_files_checksum(r->corpus);
    TRY_RETURN(model_init(r->initial, (uint64_t)r->training.seed,
                          (enum alibi_init_scale)r->training.init_scale));
    if (!r->training.init)
        return ALIBI_OK;
    return checkpoint_init_weights(r->training.init, r->initial, corpus_tokenizer(r->corpus),
                                   r->call);
}

/* Files are named on the command line, so only the built-in text is part of the recipe. Options
 * that were left to be derived stay so: with another width, say, they must be derived again. */
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
    TRY(path_join(&path, r->dir, NAME_RECIPE));
    TRY(alibi_options_write(groups, text.bytes > 0 ? 3 : 2, path));
out:
    mem_free(path);
    return status;
}

/* Where the text is, for alibi_corpus_of_run(). */
static alibi_status save_source(const struct run *r)
{
    alibi_status status;
    char *path = NULL;
    struct text json = { 0 };

    TRY(path_join(&path, r->dir, NAME_SOURCE));
    TRY(corpus_describe(r->corpus, &json));
    if (json.length > 0)
        TRY(file_replace(path, json.data, json.length));
out:
    text_free(&json);
    mem_free(path);
    return status;
}

alibi_status alibi_corpus_of_run(alibi_corpus **out, const char *run, const struct alibi_call *call)
{
    alibi_status status;
    char *source = NULL, *checkpoint = NULL;
    struct alibi_config config;
    alibi_tokenizer *t = NULL;

    TRY(path_join(&source, run, NAME_SOURCE));
    TRY(checkpoint_find(&checkpoint, run, call));
    if (checkpoint)
        TRY(checkpoint_read_config(checkpoint, &config, &t));
    if (!file_exists(source))
        TRY(fail(ALIBI_BAD_INPUT, "'%s' does not say which text it was trained on; give the text",
                 run));
    TRY(corpus_open_described(out, source, t, call));
out:
    alibi_tokenizer_free(t);
    mem_free(checkpoint);
    mem_free(source);
    return status;
}

/* *path is the checkpoint that was found, NULL: none. */
static alibi_status enter_run(struct run *r, bool resume, char **path)
{
    TRY_RETURN(folder_create(r->dir));
    /* before the lock is taken, which leaves a file */
    TRY_RETURN(folder_refuse_other(r->dir, FOLDER_RUN));
    TRY_RETURN(lock_take(&r->lock, r->dir));
    if (!resume)
        TRY_RETURN(resume_refuse(r->dir));
    TRY_RETURN(checkpoint_clean(r->dir));
    TRY_RETURN(file_remove_within(r->dir, NAME_RECIPE NAME_ASIDE));
    TRY_RETURN(file_remove_within(r->dir, NAME_TIMING NAME_ASIDE));
    TRY_RETURN(file_remove_within(r->dir, NAME_SOURCE NAME_ASIDE));
    TRY_RETURN(file_remove_within(r->dir, NAME_SEEN));
    TRY_RETURN(file_remove_within(r->dir, NAME_SEEN NAME_ASIDE));
    if (resume)
        TRY_RETURN(checkpoint_find(path, r->dir, r->call));
    if (resume && !*path)
        call_note(r->call, "no checkpoint in '%s': starting", r->dir);
    if (*path)
        return restore(r, *path);
    return r->started ? ALIBI_OK : start(r);
}

/* Describes the run in its folder, and opens the log. */
static alibi_status prepare_folder(struct run *r)
{
    TRY_RETURN(save_recipe(r));
    TRY_RETURN(save_source(r));
    if (r->state.step < r->training.steps) {
        const struct checkpoint c = checkpoint_of(r);
        TRY_RETURN(checkpoint_check_space(r->dir, &c, r->training.keep_best, r->call));
    }
    TRY_RETURN(journal_open(&r->journal, r->dir, &r->state, r->call));
    if (!r->events_folder || !unfinished(r))
        return ALIBI_OK;
    return events_open(&r->events, r->events_folder, r->state.step);
}

/* Whether all ranks see the folder, which is on a file system of all machines then, and may write
 * what rank 0 makes there: it leaves a line that nobody else can know. */
static alibi_status find_together(struct run *r)
{
    char line[64] = "", *path = NULL, *seen = NULL;
    size_t length = 0;
    struct file *file = NULL;
    bool apart = false, root = comm_is_root(r->comm);
    alibi_status status;

    if (comm_size(r->comm) == 1)
        return ALIBI_OK;
    snprintf(line, sizeof line, "%.9f", clock_seconds());
    status = path_join(&path, r->dir, NAME_SEEN);
    if (status == ALIBI_OK && root)
        status = file_replace(path, line, strlen(line));
    TRY(comm_agree(r->comm, status));
    TRY(comm_broadcast(r->comm, line, sizeof line));
    status = file_read_all(&seen, &length, path, sizeof line);
    if (status == ALIBI_OK)
        status = file_open_write(&file, path);
    apart = status != ALIBI_OK || strcmp(seen, line) != 0;
    (void)file_close(file);
    TRY(comm_agree(r->comm, status == ALIBI_MEMORY ? status : ALIBI_OK));
    TRY(comm_any(r->comm, &apart));
    TRY(comm_agree(r->comm, root ? file_remove(path) : ALIBI_OK));
    r->together = !apart;
    if (apart)
        call_note(
            r->call,
            "not all ranks see '%s' and may write there: rank 0 fetches the shards of the others, "
            "and saves alone; on a file system of all machines they save together",
            r->dir);
out:
    mem_free(path);
    mem_free(seen);
    return status;
}

/* Leaves the run at its first step, at the step of its checkpoint, or complete. */
static alibi_status open_run(struct run *r, bool resume)
{
    alibi_status status = ALIBI_OK;
    char *path = NULL;

    if (comm_is_root(r->comm))
        status = enter_run(r, resume, &path);
    TRY(comm_agree(r->comm, status));
    TRY(find_together(r));
    TRY(share(r));
    if (r->saved > 0 && unfinished(r)) {
        TRY(restore_moments(r, path));
        call_note(r->call, "resuming from '%s'", path ? path : r->dir);
    }
    free_initial(r);
    if (comm_is_root(r->comm))
        status = prepare_folder(r);
    TRY(comm_agree(r->comm, status));
out:
    mem_free(path);
    return status;
}

/* ---- one step */

/* One pass: adds its gradients to the model's. numbers, which are 0: the sum of its losses, and of
 * how many tokens. */
static alibi_status take_pass(struct run *r, int64_t number, double scale, double numbers[2])
{
    const struct alibi_training *t = &r->training;
    struct dropout drop = { t->dropout, (uint64_t)t->seed, RANDOM_STREAM(RANDOM_DROPOUT, number) };
    const int32_t *tokens, *targets;

    TRY_RETURN(loader_get(r->loader, number, number + comm_size(r->comm), &tokens, &targets));
    TRY_RETURN(model_gradients(r->workspace, tokens, targets, t->batch, t->train_length, scale,
                               drop, &numbers[0]));
    for (int64_t i = 0; i < t->batch * t->train_length; i++)
        numbers[1] += targets[i] >= 0;
    return ALIBI_OK;
}

/* The gradient of the loss over all passes of the step, divided by all their tokens, and the mean
 * loss. The windows of some tasks have targets that are not scored: they count for the scale, so
 * that every answer weighs as much as a token of text, and not for the mean. `status` is how the
 * step began at this rank: all get its failure. */
static alibi_status gradients(struct run *r, int64_t step, alibi_status status, double *loss)
{
    const struct alibi_training *t = &r->training;
    int64_t tokens = t->batch * t->train_length * t->accumulate;
    int64_t rank = comm_rank(r->comm), ranks = comm_size(r->comm);
    double scale = 1.0 / (double)tokens, total = 0, scored = 0;

    memset(r->passes, 0, 2 * (size_t)t->accumulate * sizeof *r->passes);
    for (int64_t i = rank; i < t->accumulate && (i == rank || status == ALIBI_OK); i += ranks) {
        bool first = i == rank, collected = t->deterministic_sum || i + ranks >= t->accumulate;

        if (status == ALIBI_OK && (first || t->deterministic_sum))
            status = model_clear_gradients(r->model);
        if (status == ALIBI_OK)
            status = optimizer_begin(&r->optimizer, first, collected);
        if (status == ALIBI_OK)
            status = take_pass(r, (step - 1) * t->accumulate + i, scale, &r->passes[2 * i]);
        if (t->deterministic_sum)
            status = optimizer_collect(&r->optimizer, status);
    }
    if (!t->deterministic_sum)
        status = optimizer_collect(&r->optimizer, status);
    TRY_RETURN(status);
    TRY_RETURN(comm_sum(r->comm, r->passes, 2 * (int)t->accumulate));
    for (int64_t i = 0; i < t->accumulate; i++) {
        total += r->passes[2 * i];
        scored += r->passes[2 * i + 1];
    }
    *loss = fault_nan_due() ? NAN : scored == (double)tokens ? total * scale : total / scored;
    return ALIBI_OK;
}

static double tokens_per_step(const struct run *r)
{
    return (double)(r->training.batch * r->training.train_length * r->training.accumulate);
}

static size_t peak_so_far(const struct run *r)
{
    size_t peak = device_peak(r->device), earlier = (size_t)r->journal.peak_bytes;

    return peak > earlier ? peak : earlier;
}

/* Before the next step: positions that end with the last one. */
static alibi_status end_positions(struct run *r)
{
    char was[ALIBI_NAME_MAX], is[ALIBI_NAME_MAX];

    memcpy(was, r->model->config.position, sizeof was);
    TRY_RETURN(model_position_after(r->model, r->state.step, r->training.steps, is));
    if (strcmp(was, is) != 0)
        call_note(r->call, "after step %lld position '%s' becomes '%s'", (long long)r->state.step,
                  was, is);
    return change_position(r, is);
}

static alibi_status take_step(struct run *r)
{
    const struct alibi_training *t = &r->training;
    int64_t step = r->state.step + 1;
    double before = clock_seconds(), loss, norm, seconds;
    alibi_status status = ALIBI_OK;

    TRY_RETURN(gradients(r, step, end_positions(r), &loss));
    TRY_RETURN(optimizer_update(&r->optimizer, t, step, loss, &norm));
    if (comm_is_root(r->comm))
        status = journal_record(&r->journal, step, loss, norm, schedule_lr(t, step));
    TRY_RETURN(comm_agree(r->comm, status));
    r->state.step = step;
    r->state.loss = loss;
    r->first_loss = step == 1 ? loss : r->first_loss;
    settle_choices(r);
    seconds = clock_seconds() - before;
    r->journal.seconds += seconds;
    r->step_seconds = r->step_seconds > 0 ? 0.9 * r->step_seconds + 0.1 * seconds : seconds;
    forecast_step(r->forecast, r->corpus, t, step, seconds, r->call);
    if (r->events.file) /* asking a GPU for its memory takes time */
        events_step(&r->events,
                    &(struct events_numbers){ step, loss, norm, schedule_lr(t, step),
                                              tokens_per_step(r) / seconds, peak_so_far(r) },
                    r->call);
    return ALIBI_OK;
}

/* "validation after step 400: books 1.432, wiki 1.901; weighted mean 1.573" */
static void note_texts(const struct run *r)
{
    const struct validation *v = &r->validation;
    char line[1024] = "";

    for (int i = 0; i < v->texts; i++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "%s %s %.3f", i > 0 ? "," : "", v->text[i].name,
                 v->text[i].loss);
    }
    if (v->texts > 0)
        call_note(r->call, "validation after step %lld:%s; weighted mean %.3f",
                  (long long)r->state.step, line, v->loss);
}

/* *best: it has the lowest loss so far. A stop request leaves it due. All ranks get the same. */
static alibi_status take_validation(struct run *r, bool *best)
{
    struct train_validation v = r->state.validation;
    struct validation taken;
    alibi_status status;

    r->journal.peak_bytes = (int64_t)peak_so_far(r); /* evaluation counts its own */
    status = validate(r->model, r->corpus, &r->training, &taken, r->call);
    if (status == ALIBI_INTERRUPTED)
        return ALIBI_OK;
    if (status != ALIBI_OK)
        return fail_context(status, "validation after step %lld", (long long)r->state.step);
    v.step = r->state.step;
    v.loss = taken.loss;
    v.tokens = taken.tokens;
    v.count++;
    *best = v.best_step == 0 || v.loss < v.best_loss;
    if (*best) {
        v.best_step = v.step;
        v.best_loss = v.loss;
    }
    if (comm_is_root(r->comm))
        status = journal_record_validation(&r->journal, &v, taken.text, taken.texts);
    TRY_RETURN(comm_agree(r->comm, status));
    r->state.validation = v;
    r->validation = taken;
    events_validation(&r->events, v.step, &taken, r->call);
    note_texts(r);
    return ALIBI_OK;
}

static void report(const struct run *r)
{
    char task[ALIBI_NAME_MAX + 8];
    int64_t left = r->training.steps - r->state.step;

    snprintf(task, sizeof task, "train %s", r->config.position);
    call_progress(
        r->call, &(struct alibi_progress){
                     .task = task,
                     .unit = "steps",
                     .done = r->state.step,
                     .total = r->training.steps,
                     .seconds = r->journal.seconds,
                     .seconds_left = (double)left * r->step_seconds,
                     .tokens_per_s = r->step_seconds > 0 ? tokens_per_step(r) / r->step_seconds : 0,
                     .loss = r->state.loss,
                     .valid_loss = r->state.validation.loss,
                 });
}

/* ---- the loop */

static alibi_status loop(struct run *r)
{
    const struct alibi_training *t = &r->training;

    for (;;) {
        bool stop, last, best = false;
        if (!validation_due(r)) {
            if (r->state.step == t->steps)
                return ALIBI_OK;
            TRY_RETURN(take_step(r));
        }
        if (validation_due(r))
            TRY_RETURN(take_validation(r, &best));
        report(r);
        stop = call_stopped(r->call);
        TRY_RETURN(comm_any(r->comm, &stop));
        last = r->state.step == t->steps;
        if (stop || last || r->state.step % t->save_every == 0 || (best && t->keep_best))
            TRY_RETURN(save(r));
        if (!stop && r->saved == r->state.step)
            events_sample(&r->events, r->state.step, r->model, r->corpus, t, r->call);
        if (stop && last)
            return ALIBI_OK;
        if (stop)
            return comm_agree(
                r->comm,
                fail(
                    ALIBI_INTERRUPTED,
                    "stopped at step %lld, saved in '%s'; the same command with --resume continues",
                    (long long)r->state.step, r->dir));
    }
}

/* ---- what is odd about a training, in a warning each */

/* Far fewer tokens than parameters are learned by heart, and the rest of the language is not there
 * to be learned. A model that was trained before may be tuned on few. Several models on one text
 * get one warning. */
static void warn_of_small_text(const struct run *r)
{
    enum { PARAMETERS_PER_TOKEN = 20 };
    int64_t tokens = 0;

    for (int i = 0; i < corpus_parts(r->corpus); i++) {
        if (corpus_is_task(corpus_part(r->corpus, i)))
            return; /* its windows have no end */
        tokens += corpus_span(corpus_part(r->corpus, i), ALIBI_TRAIN).count;
    }
    if (r->state.step > 0 || r->training.init || r->forecast->small_text_said ||
        tokens > r->model->elements / PARAMETERS_PER_TOKEN)
        return;
    r->forecast->small_text_said = true;
    call_warn(r->call,
              "the text has %lld tokens to train on, far too few for a model of %lld parameters: "
              "it will learn them by heart and little else; give more text, a megabyte or more",
              (long long)tokens, (long long)r->model->elements);
}

/* A preset of local and global layers, whose local layers see much of what there is in training:
 * then it cannot learn what the global ones are for. With a quarter `reach` lost its far keys, an
 * eighth was best (docs/results). */
static void note_wide_window(const struct run *r)
{
    const struct pattern *p = &r->model->pattern;
    int64_t L = r->config.train_length, window = 0;
    bool global = false;
    uint64_t said = 1;

    for (int k = 0; k < p->kinds; k++) {
        window = p->kind[k].window > window ? p->kind[k].window : window;
        global = global || p->kind[k].window == 0;
    }
    if (!p->preset || !global || 4 * window < L || r->state.step > 0)
        return;
    for (int i = 0; preset_at(i) != p->preset; i++)
        said <<= 1;
    if (r->forecast->windows_said & said)
        return;
    r->forecast->windows_said |= said;
    call_note(r->call,
              "the local layers of '%s' see %lld keys, a quarter or more of the training length "
              "%lld: so they leave little to learn for the others, which reach farther; try "
              "%s:window=%lld",
              r->model->config.position, (long long)window, (long long)L, p->preset->name,
              (long long)(L >= 8 ? L / 8 : 1));
}

/* Layers that lose their position late need a learning rate with which the others adapt to it. */
static void note_low_rate(const struct run *r)
{
    const struct alibi_training *t = &r->training;
    double until = pattern_until(&r->model->pattern), rate;
    int64_t last = llround(until * (double)t->steps);

    if (last >= t->steps || r->state.step > 0 || r->forecast->end_said)
        return;
    rate = schedule_lr(t, last + 1) / t->lr;
    if (rate >= 0.2)
        return;
    r->forecast->end_said = true;
    call_note(r->call,
              "position '%s' ends after step %lld, when the learning rate is %.2g%% of its peak: "
              "too low for the layers to adapt; try --schedule wsd --decay-share %.2g",
              r->model->config.position, (long long)last, 100 * rate, 0.8 * (1 - until));
}

/* `asked` is --lr as given; 0: the default, which is made for random weights. */
static void note_first_rate(const struct run *r, double asked)
{
    if (r->training.init && asked == 0 && r->state.step == 0)
        call_note(r->call,
                  "the learning rate %.3g is the one for training from random weights, and may "
                  "undo what '%s' has learned; to fine-tune it, give a smaller one, such as "
                  "--lr 1e-4",
                  r->training.lr, r->training.init);
}

static void warn_of_warmup(const struct run *r)
{
    const struct alibi_training *t = &r->training;

    if (t->warmup > t->steps)
        call_warn(
            r->call,
            "warmup %lld is longer than the training, --steps %lld: the learning rate never reaches "
            "%g, it ends at %.3g; use a smaller --warmup",
            (long long)t->warmup, (long long)t->steps, t->lr, schedule_lr(t, t->steps));
}

/* The loss of a model that has learned nothing: that of the first step, or of equally likely
 * tokens. */
static double start_loss(const struct run *r)
{
    return fmax(r->first_loss, log((double)r->config.vocab));
}

/* 5% is more than the noise of a batch. */
static void warn_of_divergence(const struct run *r)
{
    if (r->state.loss > 1.05 * start_loss(r))
        call_warn(r->call,
                  "the loss ended at %.4g, above the %.4g of a model that has learned nothing: the "
                  "training has diverged; use a smaller --lr than %g",
                  r->state.loss, start_loss(r), r->training.lr);
}

static struct alibi_train_result result_of(struct run *r)
{
    const struct train_validation *v = &r->state.validation;
    double tokens = tokens_per_step(r) * (double)r->state.step;
    struct alibi_train_result result = {
        .step = r->state.step,
        .parameters = r->model->elements,
        .loss = r->state.loss,
        .seconds = r->journal.seconds,
        .tokens_per_s = r->journal.seconds > 0 ? tokens / r->journal.seconds : 0,
        .peak_bytes = peak_so_far(r),
        .valid_step = v->step,
        .valid_loss = v->loss,
        .valid_tokens = v->tokens,
        .best_step = v->best_step,
        .best_loss = v->best_loss,
        .valid_texts = r->validation.texts,
        .diverged = r->state.loss > 2 * start_loss(r),
    };

    for (int i = 0; i < result.valid_texts; i++) {
        result.valid_text[i] = r->validation.text[i];
        line_clean(result.valid_text[i].name);
    }
    return result;
}

static alibi_status train(alibi_device *device, const struct alibi_config *config,
                          const struct alibi_training *training, const alibi_corpus *corpus,
                          const char *dir, bool resume, const char *events,
                          struct forecast *forecast, struct alibi_train_result *result,
                          const struct alibi_call *call)
{
    alibi_status status;
    struct run r = { .device = &device->device,
                     .type = device->type,
                     .asked = *config,
                     .training = *training,
                     .corpus = corpus,
                     .dir = dir,
                     .events_folder = events,
                     .forecast = forecast,
                     .call = call,
                     .comm = call_comm(call) };

    forecast_begin(forecast);
    device_reset_peak(r.device);
    TRY(check_ranks(&r, resume));
    status = comm_is_root(r.comm) ? corpus_check_folder(corpus, dir) : ALIBI_OK;
    if (comm_is_root(r.comm) && events && status == ALIBI_OK)
        status = corpus_check_folder(corpus, events);
    TRY(comm_agree(r.comm, status));
    /* Timings must not decide the bits of a resumed run, so only the first step of a run chooses.
     */
    r.wide = device_tunes_widely(r.device);
    device_tune(r.device, r.wide ? TUNING_WIDE : TUNING_SAME_BITS);
    TRY(comm_agree(r.comm, make(&r)));
    TRY(comm_agree(r.comm, optimizer_connect(&r.optimizer, &r.training, call)));
    if (training->init && !resume) /* a model that does not fit must not leave a folder */
        TRY(comm_agree(r.comm, r.initial ? start(&r) : ALIBI_OK));
    TRY(open_run(&r, resume));
    note_first_rate(&r, training->lr);
    warn_of_warmup(&r);
    warn_of_small_text(&r);
    note_wide_window(&r);
    note_low_rate(&r);
    TRY(loop(&r));
    warn_of_divergence(&r);
    *result = result_of(&r);
out:
    if (status == ALIBI_NUMERIC && r.saved == 0)
        fail(status, "%s; there is no checkpoint yet; a smaller --lr may help", alibi_error());
    else if (status == ALIBI_NUMERIC)
        fail(status, "%s; the last checkpoint is step %lld; a smaller --lr may help", alibi_error(),
             (long long)r.saved);
    device_tune(r.device, TUNING_SAME_BITS);
    journal_close(&r.journal);
    events_close(&r.events);
    optimizer_fini(&r.optimizer);
    mem_free(r.passes);
    workspace_free(r.workspace);
    free_initial(&r);
    model_free(r.model);
    loader_free(r.loader);
    lock_release(r.lock);
    return status;
}

alibi_status train_run(alibi_device *device, const struct alibi_config *config,
                       const struct alibi_training *training, const alibi_corpus *corpus,
                       const char *dir, bool resume, struct forecast *forecast,
                       struct alibi_train_result *result, const struct alibi_call *call)
{
    return train(device, config, training, corpus, dir, resume, NULL, forecast, result, call);
}

alibi_status alibi_train(alibi_device *device, const struct alibi_config *config,
                         const struct alibi_training *training, const alibi_corpus *corpus,
                         const char *dir, bool resume, struct alibi_train_result *result,
                         const struct alibi_call *call)
{
    struct forecast forecast = { .models = 1 };

    return train(device, config, training, corpus, dir, resume, call ? call->events : NULL,
                 &forecast, result, call);
}
