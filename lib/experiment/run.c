/* run.c - trains and evaluates the missing models
 *
 *   for each seed, for each model:
 *       train (or resume) -> evaluate -> result.json after each step -> results.json, report.html
 *
 * Seeds are the outer loop: an experiment that is stopped early has some of them whole.
 *
 * With N ranks, rank r does the trainings r, r + N, ... of the missing ones, each with all models
 * that use its weights. Only rank 0 writes files that do not belong to one model. */
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "compare/trial.h"
#include "eval/eval.h"
#include "experiment/experiment.h"

/* One training that is not complete. */
struct pending {
    int model, seed;
    bool mine; /* of this rank */
    double train_tokens, valid_tokens, test_tokens;
};

struct work {
    int count;
    struct pending *at;
    uint32_t seen; /* checksum of which they are */
    struct forecast forecast;
    bool fresh; /* rank 0 has created the folder, and no training has begun */
};

/* ---- the missing work */

double trained_tokens(const struct alibi_training *t)
{
    return (double)t->batch * (double)t->train_length * (double)t->accumulate * (double)t->steps;
}

alibi_status untrained_tokens(double *out, const alibi_experiment *e, int model, int seed,
                              const char *dir)
{
    alibi_status status;
    const struct alibi_training *t = &e->model[model].training;
    struct step_folder *folders = NULL;
    char *run = NULL;
    int count = 0, newest = 0;

    *out = 0;
    if (e->model[model].of >= 0 && !model_is_complete(e, e->model[model].of, seed))
        return ALIBI_OK; /* its training counts for that model */
    *out = trained_tokens(t);
    TRY(folder_of_training(&run, e, model, seed, dir));
    if (!folder_exists(run))
        goto out;
    TRY(step_folders(&folders, &count, run));
    while (newest < count && !folders[newest].complete)
        newest++;
    if (newest < count)
        *out *= fmax(0, (double)(t->steps - folders[newest].step) / (double)t->steps);
out:
    step_folders_free(folders, count);
    mem_free(run);
    return status;
}

double tested_tokens(const alibi_experiment *e, int model, int seed)
{
    double sum = 0;

    for (int v = 0; v < e->evaluations; v++) {
        const struct measured *m = e->model[model].seed[seed].measured[v];

        for (int i = 0; m != NULL && i < evaluation_tests(&e->evaluation[v]); i++) {
            if (e->evaluation[v].kind != KIND_PERPLEXITY) {
                sum += m[i].done ? 0 : probes_tokens(e, model, v, i);
                continue;
            }
            struct alibi_eval eval = evaluation_at(e, v, i);
            double all = text_valid_tokens(evaluated_text(e, model, v));
            double tokens = eval.tokens > 0 ? fmin((double)eval.tokens, all) : all;

            if (!m[i].done && isfinite(tokens))
                sum += tokens * (eval.stride > 0 ? (double)eval.length / (double)eval.stride : 1);
        }
    }
    return sum;
}

/* The model that is trained for it. */
static int trained_model(const alibi_experiment *e, const struct pending *p)
{
    return e->model[p->model].of < 0 ? p->model : e->model[p->model].of;
}

/* Models of one training are of one rank. */
static void divide(struct work *w, const alibi_experiment *e, const alibi_comm *comm)
{
    int trainings = 0;

    for (int i = 0; i < w->count; i++) {
        struct pending *p = &w->at[i];
        int same = 0;

        while (same < i && (w->at[same].seed != p->seed ||
                            trained_model(e, &w->at[same]) != trained_model(e, p)))
            same++;
        p->mine = same < i ? w->at[same].mine : trainings++ % comm_size(comm) == comm_rank(comm);
    }
}

/* The trainings that are selected and not complete, seeds outermost. */
static alibi_status list_work(struct work *w, const alibi_experiment *e)
{
    int all = 0, seeds = 0;

    for (int m = 0; m < e->models; m++) {
        all += e->model[m].seeds.count;
        seeds = e->model[m].seeds.count > seeds ? e->model[m].seeds.count : seeds;
    }
    TRY_RETURN(NEW_ZERO_ARRAY(&w->at, all, "the trainings of an experiment"));
    for (int k = 0; k < seeds; k++)
        for (int m = 0; m < e->models; m++)
            if (e->model[m].selected && k < e->model[m].seeds.count &&
                !model_is_complete(e, m, k)) {
                w->seen = checksum(w->seen, (int[]){ m, k }, 2 * sizeof(int));
                w->at[w->count++] = (struct pending){ .model = m, .seed = k };
            }
    return ALIBI_OK;
}

/* Opens the texts that the work needs, and mixes tasks into them. */
static alibi_status open_texts(alibi_experiment *e, const struct work *w,
                               const struct alibi_experiment_run *how, const char *dir,
                               const struct alibi_call *call)
{
    bool needed[ALIBI_LIST_MAX] = { false };

    for (int i = 0; i < w->count; i++) {
        needed[e->model[w->at[i].model].text] = true;
        for (int v = 0; v < e->evaluations; v++)
            if (e->evaluation[v].has[w->at[i].model] && e->evaluation[v].text >= 0)
                needed[e->evaluation[v].text] = true;
    }
    for (int t = 0; t < e->texts; t++)
        if (needed[t])
            TRY_RETURN(text_open(e, t, how, dir, call));
    for (int i = 0; i < w->count; i++) {
        struct experiment_model *m = &e->model[w->at[i].model];
        alibi_status status = ALIBI_OK;

        alibi_corpus_free(m->mixture);
        m->mixture = NULL;
        if (m->mix.count > 0)
            status = corpus_mix_tasks(&m->mixture, e->text[m->text].corpus, &m->mix, m->share);
        if (status != ALIBI_OK)
            return fail_context(status, "model '%s'", m->name);
    }
    return ALIBI_OK;
}

/* The corpus that a model is trained on. */
static const alibi_corpus *corpus_of(const alibi_experiment *e, const struct experiment_model *m)
{
    return m->mixture != NULL ? m->mixture : e->text[m->text].corpus;
}

/* For each model: its text has a batch, its vocabulary fits, and the texts that it is evaluated on
 * have its tokenizer. */
static alibi_status check_models(const alibi_experiment *e, const struct work *w,
                                 const struct alibi_call *call)
{
    for (int i = 0; i < w->count; i++) {
        const struct experiment_model *m = &e->model[w->at[i].model];
        const alibi_corpus *corpus = e->text[m->text].corpus;
        struct alibi_config config = m->config;
        struct batches batches;
        alibi_status status =
            batches_of_corpus(&batches, corpus_of(e, m), m->training.train_length,
                              m->training.batch, (uint64_t)m->seeds.at[w->at[i].seed]);

        if (status == ALIBI_OK)
            status = config_fit_vocab(&config, corpus_tokenizer(corpus));
        for (int v = 0; v < e->evaluations && status == ALIBI_OK; v++)
            if (m->seed[w->at[i].seed].measured[v] != NULL)
                status = evaluate_check_tokenizer(corpus_tokenizer(corpus),
                                                  evaluated_text(e, w->at[i].model, v)->corpus);
        if (status == ALIBI_OK && w->at[i].seed == 0)
            status = tasks_check(e, w->at[i].model, call);
        if (status != ALIBI_OK)
            return fail_context(status, "model '%s'", m->name);
    }
    return ALIBI_OK;
}

static alibi_status check_space(alibi_device *device, const alibi_experiment *e,
                                const struct work *w, const struct alibi_experiment_run *how,
                                const char *dir)
{
    char needed[BYTES_TEXT], available[BYTES_TEXT];
    struct disk disk = { 0 };
    double bytes;
    int64_t free_bytes;

    for (int i = 0; i < e->models; i++) {
        const struct experiment_model *m = &e->model[i];
        struct alibi_config config = m->config;
        struct alibi_plan plan;
        int trainings = 0;

        for (int k = 0; k < w->count; k++)
            trainings += w->at[k].model == i && m->of < 0;
        if (trainings == 0)
            continue;
        TRY_RETURN(config_fit_vocab(&config, corpus_tokenizer(e->text[m->text].corpus)));
        TRY_RETURN(
            plan_training(&plan, &config, &m->training, &device->device, device->type, false));
        disk_add(&disk, checkpoint_bytes(plan.parameters, m->training.optimizer), e, i, trainings);
    }
    bytes = disk_needed(&disk, how->discard_checkpoints);
    TRY_RETURN(folder_free_space(&free_bytes, dir));
    if (bytes > (double)free_bytes)
        return fail(ALIBI_IO,
                    "'%s' needs %s for the checkpoints of %d trainings, and the disk has %s free; "
                    "make room, use another --out%s",
                    dir, short_bytes(needed, (size_t)bytes), w->count,
                    short_bytes(available, (size_t)free_bytes),
                    how->discard_checkpoints ? "" : ", or --discard-checkpoints");
    return ALIBI_OK;
}

/* ---- one model */

struct job {
    alibi_experiment *e;
    int model, seed;
    const char *dir;
};

struct curve_reader {
    struct report_bins train, valid;
    int64_t steps;
};

static void record(void *user, const struct journal_line *l)
{
    struct curve_reader *r = user;

    if (isfinite(l->loss))
        report_bins_add(&r->train, l->step, r->steps, l->loss);
    if (isfinite(l->valid_loss))
        report_bins_add(&r->valid, l->step, r->steps, l->valid_loss);
}

static void curve_of(struct curve *c, const struct report_bins *bins)
{
    c->count = 0;
    for (int i = 0; i < REPORT_BINS; i++)
        if (bins->count[i] > 0) {
            c->step[c->count] = (int64_t)(bins->step[i] / (double)bins->count[i]);
            c->loss[c->count++] = bins->loss[i] / (double)bins->count[i];
        }
}

static alibi_status save(const struct trial *t)
{
    const struct job *j = t->user;
    struct trained *trained = &j->e->model[j->model].seed[j->seed];
    struct curve_reader reader = { .steps = t->training.steps };

    if (trained->train.count == 0) {
        TRY_RETURN(journal_read(t->run, record, &reader));
        curve_of(&trained->train, &reader.train);
        curve_of(&trained->valid, &reader.valid);
        TRY_RETURN(learned_collect(&trained->learned, t->run, t->call));
    }
    return folder_save_model(j->e, j->model, j->seed, j->dir);
}

static alibi_status list_tests(struct trial_test **out, int *count, alibi_experiment *e, int model,
                               int seed, char labels[][ALIBI_NAME_MAX + 1])
{
    struct trial_test *tests = NULL;
    int all = 0, found = 0;

    for (int v = 0; v < e->evaluations; v++)
        all += evaluation_tests(&e->evaluation[v]);
    TRY_RETURN(NEW_ARRAY(&tests, all, "the tests of a model"));
    for (int v = 0; v < e->evaluations; v++) {
        struct measured *m = e->model[model].seed[seed].measured[v];

        snprintf(labels[v], sizeof labels[v], " %s", e->evaluation[v].name);
        for (int i = 0; m != NULL && i < evaluation_tests(&e->evaluation[v]); i++) {
            struct trial_test *test = &tests[found];

            if (m[i].done)
                continue;
            *test = (struct trial_test){ .corpus = evaluated_text(e, model, v)->corpus,
                                         .name = labels[v],
                                         .result = &m[i].result,
                                         .done = &m[i].done };
            found++;
            if (e->evaluation[v].kind == KIND_TARGETS) {
                test->targets = targets_asked(e, model, v);
                test->losses = &m[i].targets;
            } else if (e->evaluation[v].kind == KIND_TASKS) {
                test->tasks = tasks_asked(e, model, seed, v, i);
                test->answers = m[i].task;
            } else if (e->evaluation[v].kind == KIND_STREAM) {
                test->context = e->evaluation[v].lengths.at[i];
                test->cost = &m[i].stream;
            } else if (e->evaluation[v].kind == KIND_ATTENTION) {
                test->attention = attention_asked(e, model, v, i);
                test->reach = &m[i].attention;
            } else {
                test->eval = evaluation_at(e, v, i);
            }
        }
    }
    *out = tests;
    *count = found;
    return ALIBI_OK;
}

static alibi_status discard(const char *run)
{
    alibi_status status;
    struct step_folder *folders = NULL;
    int count = 0;

    TRY(step_folders(&folders, &count, run));
    for (int i = 0; i < count; i++)
        TRY(folder_remove(folders[i].path));
out:
    step_folders_free(folders, count);
    return status;
}

/* Whether a later entry of the work uses the weights of the same training. */
static bool weights_are_needed(const alibi_experiment *e, const struct work *w, int index)
{
    const struct pending *p = &w->at[index];

    for (int i = index + 1; i < w->count; i++)
        if (w->at[i].seed == p->seed && e->model[w->at[i].model].of == trained_model(e, p))
            return true;
    return false;
}

static alibi_status run_model(alibi_experiment *e, alibi_device *device, struct work *w, int index,
                              const struct alibi_experiment_run *how, const char *dir,
                              const struct alibi_call *call)
{
    alibi_status status;
    const struct pending *p = &w->at[index];
    const struct experiment_model *m = &e->model[p->model];
    struct job j = { e, p->model, p->seed, dir };
    struct trial t = { .device = device,
                       .corpus = corpus_of(e, m),
                       .call = call,
                       .forecast = &w->forecast,
                       .name = m->name,
                       .config = m->config,
                       .training = m->training,
                       .cost = &m->seed[p->seed].cost,
                       .measured = m->seed[p->seed].cost.version[0] != '\0',
                       .position = m->as_position[0] ? m->as_position : NULL,
                       .fit = m->fit,
                       .fit_corpus = e->text[m->text].corpus,
                       .fitted = m->seed[p->seed].fitted,
                       .save = save,
                       .user = &j };
    struct trial_test *tests = NULL;
    char labels[ALIBI_LIST_MAX][ALIBI_NAME_MAX + 1], *run = NULL, *own = NULL;
    int count = 0;

    if (w->count > 1)
        snprintf(t.label, sizeof t.label, ", %d of %d", index + 1, w->count);
    t.training.seed = m->seeds.at[p->seed];
    TRY(folder_of_training(&run, e, p->model, p->seed, dir));
    TRY(folder_of_model(&own, e, p->model, p->seed, dir));
    if (m->of >= 0)
        TRY(folder_create(own));
    t.run = run;
    TRY(list_tests(&tests, &count, e, p->model, p->seed, labels));
    TRY(trial_run(&t, tests, count));
    if (how->discard_checkpoints && !weights_are_needed(e, w, index))
        TRY(discard(run));
out:
    mem_free(tests);
    mem_free(own);
    mem_free(run);
    return status;
}

/* ---- all of it */

/* A loss that is not finite would not be finite the next time either, so the test has no value. The
 * test that failed is the first missing one; if the training failed, no test has a value. */
static alibi_status give_up(alibi_experiment *e, const struct pending *p, const char *dir,
                            const struct alibi_call *call)
{
    struct trained *t = &e->model[p->model].seed[p->seed];
    bool trained = t->cost.version[0] != '\0', found = false;

    call_warn(call, "%s: %s; it has no value", e->model[p->model].name, alibi_error());
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; t->measured[v] != NULL && i < evaluation_tests(&e->evaluation[v]); i++) {
            if (t->measured[v][i].done || (trained && found))
                continue;
            t->measured[v][i].result = result_none(e->evaluation[v].lengths.at[i]);
            t->measured[v][i].done = 1;
            found = true;
        }
    snprintf(t->cost.version, sizeof t->cost.version, "%s", alibi_version());
    return found ? folder_save_model(e, p->model, p->seed, dir) : ALIBI_NUMERIC;
}

/* Tells the forecast this rank's remaining work when training `index` begins. */
static void forecast_from(struct work *w, int index)
{
    struct forecast *f = &w->forecast;

    f->models = 1;
    f->train_tokens = f->valid_tokens = 0;
    f->test_tokens = w->at[index].test_tokens;
    for (int i = index + 1; i < w->count; i++) {
        if (!w->at[i].mine)
            continue;
        f->models++;
        f->train_tokens += w->at[i].train_tokens;
        f->valid_tokens += w->at[i].valid_tokens;
        f->test_tokens += w->at[i].test_tokens;
    }
}

/* Everything before the first training. */
static alibi_status prepare(alibi_experiment *e, alibi_device *device, struct work *w,
                            const struct alibi_experiment_run *how, const char *dir,
                            const struct alibi_call *call)
{
    TRY_RETURN(open_texts(e, w, how, dir, call));
    TRY_RETURN(check_models(e, w, call));
    TRY_RETURN(probes_note_short(e, call));
    TRY_RETURN(check_space(device, e, w, how, dir));
    for (int i = 0; i < w->count; i++) {
        struct pending *p = &w->at[i];
        const struct experiment_model *m = &e->model[p->model];

        TRY_RETURN(untrained_tokens(&p->train_tokens, e, p->model, p->seed, dir));
        p->valid_tokens = forecast_validation_tokens(corpus_of(e, m), &m->training, 0) *
                          p->train_tokens / trained_tokens(&m->training);
        p->test_tokens = tested_tokens(e, p->model, p->seed);
    }
    call_note(call, "to train and test: %d model%s", w->count, w->count == 1 ? "" : "s");
    return ALIBI_OK;
}

/* Rank 0 writes the results of all ranks so far. */
static alibi_status write_results(alibi_experiment *e, const char *dir, const alibi_comm *comm)
{
    if (!comm_is_root(comm))
        return ALIBI_OK;
    if (comm_size(comm) > 1)
        TRY_RETURN(alibi_experiment_load(e, dir));
    return results_write(e, dir, 0, NULL);
}

/* The models of this rank. */
static alibi_status run_own(alibi_experiment *e, alibi_device *device, struct work *w,
                            const struct alibi_experiment_run *how, const char *dir,
                            const struct alone *alone)
{
    alibi_status status;

    for (int i = 0; i < w->count; i++) {
        if (!w->at[i].mine)
            continue;
        if (call_stopped(alone->outer) || call_stopped(&alone->call))
            return ALIBI_INTERRUPTED;
        forecast_from(w, i);
        do {
            status = run_model(e, device, w, i, how, dir, &alone->call);
            if (status == ALIBI_NUMERIC)
                TRY_RETURN(give_up(e, &w->at[i], dir, &alone->call));
        } while (status == ALIBI_NUMERIC && !model_is_complete(e, w->at[i].model, w->at[i].seed));
        if (status != ALIBI_OK && status != ALIBI_NUMERIC)
            return status;
        TRY_RETURN(write_results(e, dir, alone->comm));
    }
    return ALIBI_OK;
}

static alibi_status run_models(alibi_experiment *e, alibi_device *device, struct work *w,
                               const struct alibi_experiment_run *how, const char *dir,
                               const struct alibi_call *call)
{
    alibi_comm *comm = call_comm(call);
    alibi_status status = ALIBI_OK;
    struct alone alone;

    if (w->count == 0) {
        w->fresh = false;
        return ALIBI_OK;
    }
    divide(w, e, comm);
    if (!e->follows)
        status = prepare(e, device, w, how, dir, call);
    w->fresh = w->fresh && status != ALIBI_OK;
    TRY_RETURN(comm_agree(comm, status));
    if (e->follows) { /* rank 0 has made the texts */
        status = alibi_experiment_load(e, dir);
        if (status == ALIBI_OK)
            status = prepare(e, device, w, how, dir, call);
    }
    TRY_RETURN(comm_agree(comm, status));
    alone_begin(&alone, call);
    TRY_RETURN(alone_end(&alone, run_own(e, device, w, how, dir, &alone)));
    status = write_results(e, dir, comm);
    for (int i = 0; i < w->count && status == ALIBI_OK && !e->follows; i++)
        if (!model_is_complete(e, w->at[i].model, w->at[i].seed))
            status = fail(ALIBI_IO,
                          "'%s' does not show the result of model '%s' to rank 0 yet; repeat the "
                          "command",
                          dir, e->model[w->at[i].model].name);
    return comm_agree(comm, status);
}

/* Rank 0 takes the folder, and the others find it taken by the same experiment. */
static alibi_status enter(alibi_experiment *e, const char *dir, struct lock **lock,
                          const struct alibi_experiment_run *how, const struct alibi_call *call)
{
    for (int t = 0; t < e->texts && !e->follows; t++) {
        const struct experiment_text *text = &e->text[t];

        TRY_RETURN(alibi_text_check_folder((const char *const *)text->paths, text->count,
                                           text->valid, dir));
    }
    TRY_RETURN(folder_create(dir));
    TRY_RETURN(folder_refuse_other(dir, FOLDER_EXPERIMENT)); /* before the lock, which leaves a
                                                                file */
    if (!e->follows)
        TRY_RETURN(lock_take(lock, dir));
    TRY_RETURN(folder_check(e, dir));
    TRY_RETURN(alibi_experiment_load(e, dir));
    for (int t = 0; t < e->texts; t++)
        TRY_RETURN(text_check(e, t, how, dir, call));
    return e->follows ? ALIBI_OK : folder_enter(e, dir);
}

/* Everything that shapes the work must be the same on all ranks. */
static alibi_status check_ranks(const alibi_experiment *e, alibi_comm *comm)
{
    bool selected[2 * ALIBI_LIST_MAX] = { false };

    for (int m = 0; m < e->models; m++)
        selected[m] = e->model[m].selected;
    for (int v = 0; v < e->evaluations; v++)
        selected[ALIBI_LIST_MAX + v] = e->evaluation[v].selected;
    TRY_RETURN(comm_same(comm, e->bytes, e->length, "experiment"));
    TRY_RETURN(comm_same(comm, e->tier, strlen(e->tier), "--tier"));
    return comm_same(comm, selected, sizeof selected, "--only");
}

alibi_status alibi_experiment_run(alibi_experiment *e, alibi_device *device,
                                  const struct alibi_experiment_run *how, const char *dir,
                                  const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;
    alibi_comm *comm = call_comm(call);
    struct lock *lock = NULL;
    struct work work = { .forecast.experiment = true };
    struct alone alone;
    struct failure why;
    enum path_kind before = PATH_NONE;

    e->follows = !comm_is_root(comm);
    TRY(check_ranks(e, comm));
    if (!e->follows)
        status = path_look(&before, dir);
    work.fresh = !e->follows && before == PATH_NONE;
    if (!e->follows && status == ALIBI_OK)
        status = enter(e, dir, &lock, how, call);
    TRY(comm_agree(comm, status));
    TRY(ranks_find(comm, dir, NAME_EXPERIMENT));
    if (e->follows)
        status = enter(e, dir, &lock, how, call);
    if (status == ALIBI_OK)
        status = list_work(&work, e);
    TRY(comm_agree(comm, status));
    TRY(comm_same(comm, &work.seen, sizeof work.seen, "list of missing models"));
    TRY(run_models(e, device, &work, how, dir, call));
    alone_begin(&alone, call);
    if (!e->follows)
        status = speed_run(e, device, dir, &alone.call);
    if (!e->follows && status == ALIBI_OK)
        status = results_write(e, dir, 0, NULL);
    TRY(alone_end(&alone, status));
out:
    if (status == ALIBI_INTERRUPTED)
        fail(status, "stopped; completed work is saved in '%s', and the same command resumes it",
             dir);
    if (work.fresh && lock != NULL && (status == ALIBI_BAD_INPUT || status == ALIBI_USAGE)) {
        /* A text that cannot be used leaves no folder. Its failure is the one reported. */
        failure_keep(&why, status);
        folder_discard(e, dir);
        status = failure_raise(&why);
    }
    mem_free(work.at);
    lock_release(lock);
    return status;
}
