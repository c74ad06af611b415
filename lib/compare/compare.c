/* compare.c - one model per position method and seed, equal in everything else, tested at growing
 * lengths
 *
 *   for each seed, for each method:
 *       train (or resume) -> open the last checkpoint -> evaluate at each length, again with a
 *       sliding window, then as one stream and its tokens in windows -> result.json after each
 *   then:
 *       results.json, results.csv, report.html
 *
 * Every completed step is on disk before the next begins, so stopping at any moment loses at most
 * one step. Seeds are the outer loop: a comparison that is stopped early has some of them whole. */
#include <string.h>

#include "base/names.h"
#include "compare/compare.h"
#include "eval/eval.h"
#include "report/report.h"
#include "train/train.h"

/* What is left to do: the models without a result. */
struct work {
    struct forecast forecast;
    int64_t checkpoints;                            /* that will be added for them, and stay */
    double train_tokens, valid_tokens, test_tokens; /* of each */
};

/* So many models are left. */
static void count_models(struct work *w, int64_t models)
{
    double later = models > 1 ? (double)models - 1 : 0;

    w->forecast.models = models;
    w->forecast.train_tokens = w->train_tokens * later;
    w->forecast.valid_tokens = w->valid_tokens * later;
    w->forecast.test_tokens = w->test_tokens * (double)models;
}

/* The work of a comparison on one model. */
struct job {
    alibi_device *device;
    const struct request *request;
    const alibi_corpus *corpus;
    struct work *work; /* of the whole comparison */
    const struct alibi_call *call;
    const char *method;
    struct alibi_config config;
    struct alibi_training training; /* with the model's seed */
    char *run, *path;               /* the model's folder, its result.json */
    struct alibi_compare_seed *result;
};

static alibi_status save(const struct job *j)
{
    return result_write(j->result, j->method, j->path);
}

static void raise_peak(struct alibi_compare_seed *m, size_t bytes)
{
    if (bytes > m->peak_bytes)
        m->peak_bytes = bytes;
}

/* A complete run returns at once. If its last checkpoint was damaged since, it repeats the last
 * steps. Measurements of an earlier call are kept. */
static alibi_status train(struct job *j, bool measured)
{
    struct alibi_compare_seed *m = j->result;
    struct alibi_device_info device;
    struct alibi_train_result r;

    TRY_RETURN(train_run(j->device, &j->config, &j->training, j->corpus, j->run,
                         folder_exists(j->run), &j->work->forecast, &r, j->call));
    if (measured)
        return ALIBI_OK;
    count_models(j->work, j->work->forecast.models - 1);
    m->train_tokens_per_s = r.tokens_per_s;
    m->train_seconds = r.seconds;
    m->train_loss = r.loss;
    m->parameters = r.parameters;
    raise_peak(m, r.peak_bytes);
    /* Speed and memory mean nothing without the device. Names are cleaned here so that they read
     * back as they were written. */
    alibi_device_get_info(j->device, &device);
    memcpy(m->device, device.name, sizeof m->device);
    memcpy(m->machine, device.machine, sizeof m->machine);
    line_clean(m->device);
    line_clean(m->machine);
    m->precision = device.precision;
    alibi_date(m->date);
    snprintf(m->version, sizeof m->version, "%s", alibi_version());
    return save(j);
}

/* alibi_model_open() takes an older checkpoint if the newest one cannot be read. Here that would
 * present a half-trained model as a trained one. */
static alibi_status open_trained(struct job *j, alibi_model **out)
{
    alibi_status status;
    alibi_model *model = NULL;
    struct train_state state;
    struct alibi_training training;

    TRY(alibi_model_open(&model, j->device, j->run, j->call));
    TRY(checkpoint_read_state(model->path, &state, &training));
    if (state.step != j->request->training.steps) {
        status = fail(ALIBI_IO,
                      "cannot evaluate '%s': its checkpoint of step %lld is unreadable and the "
                      "newest readable one is of step %lld; repeat the command to train the rest",
                      j->run, (long long)j->request->training.steps, (long long)state.step);
        goto out;
    }
    *out = model;
    model = NULL;
out:
    alibi_model_free(model);
    return status;
}

/* The caller's context, with the skipping budget of training. */
static struct alibi_call evaluation_call(const struct job *j)
{
    struct alibi_call call = j->call ? *j->call : (struct alibi_call){ 0 };

    call.skip = j->request->training.skip;
    return call;
}

/* Evaluates the lengths that are not done. The sliding window advances by half its length: from the
 * second window on, every scored token has at least that much context. It never scores more tokens
 * than the other protocol, and the same ones if sliding_tokens allows for as many. */
static alibi_status evaluate_lengths(struct job *j, struct model *m, enum alibi_protocol protocol)
{
    const struct alibi_compare *c = &j->request->compare;
    struct alibi_compare_seed *r = j->result;
    bool sliding = protocol == ALIBI_SLIDING;
    int64_t longest = m->method->longest ? m->method->longest(&m->config) : INT64_MAX;
    int *done = sliding ? &r->sliding_lengths : &r->lengths;
    const struct alibi_call call = evaluation_call(j);

    while (*done < c->lengths.count) {
        struct alibi_eval_result *result = sliding ? &r->sliding[*done] : &r->by_length[*done];
        int64_t length = c->lengths.at[*done];
        struct alibi_eval eval = { .length = length,
                                   .protocol = protocol,
                                   .tokens = c->eval_tokens,
                                   .block = c->lengths.at[c->lengths.count - 1] };
        char task[3 * ALIBI_NAME_MAX];

        if (sliding) {
            eval.stride = length > 1 ? length / 2 : 1;
            if (eval.tokens == 0 || eval.tokens > c->sliding_tokens)
                eval.tokens = c->sliding_tokens;
        }
        if (length > longest && !sliding)
            call_note(j->call, "%s: no value at length %lld, its positions end at %lld", j->method,
                      (long long)length, (long long)longest);
        snprintf(task, sizeof task, "eval %s %lld%s", j->method, (long long)length,
                 sliding ? " sliding" : "");
        if (length > longest || (sliding && length > eval.tokens))
            *result = result_none(length);
        else
            TRY_RETURN(
                evaluate_span(m, corpus_span(j->corpus, ALIBI_VALID), &eval, task, result, &call));
        if (!sliding) /* the memory of a length is that of its main evaluation */
            raise_peak(r, result->peak_bytes);
        (*done)++;
        TRY_RETURN(save(j));
    }
    return ALIBI_OK;
}

/* A method that cannot stream gets an entry without a value, so that it counts as done. */
static alibi_status evaluate_stream(struct job *j, struct model *m)
{
    struct alibi_compare_seed *r = j->result;
    struct alibi_eval eval = { .protocol = ALIBI_STREAM,
                               .tokens = j->request->compare.stream_tokens };
    const struct alibi_call call = evaluation_call(j);
    char task[2 * ALIBI_NAME_MAX];

    if (stream_check(m) != ALIBI_OK) {
        call_note(j->call, "%s: no value as a stream, its positions number the places in the text",
                  j->method);
        r->stream = result_none(eval.tokens);
    } else {
        snprintf(task, sizeof task, "eval %s stream", j->method);
        TRY_RETURN(
            evaluate_span(m, corpus_span(j->corpus, ALIBI_VALID), &eval, task, &r->stream, &call));
    }
    return save(j);
}

/* The tokens of the stream in windows of the training length: what the stream is compared with. */
static alibi_status evaluate_passage(struct job *j, struct model *m)
{
    int64_t targets = corpus_span(j->corpus, ALIBI_VALID).count - 1;
    int64_t tokens = j->request->compare.stream_tokens;
    struct alibi_eval eval = { .length = j->training.train_length, .contiguous = true };
    const struct alibi_call call = evaluation_call(j);
    char task[2 * ALIBI_NAME_MAX];

    eval.tokens = tokens < targets ? tokens : targets;
    snprintf(task, sizeof task, "eval %s passage", j->method);
    if (eval.tokens < eval.length)
        j->result->passage = result_none(eval.length);
    else
        TRY_RETURN(evaluate_span(m, corpus_span(j->corpus, ALIBI_VALID), &eval, task,
                                 &j->result->passage, &call));
    return save(j);
}

static bool needs_passage(const struct alibi_compare_seed *m, const struct alibi_compare *c)
{
    return c->stream_tokens > 0 && m->passage.length == 0;
}

static bool needs_stream(const struct alibi_compare_seed *m, const struct alibi_compare *c)
{
    return c->stream_tokens > 0 && m->stream.length == 0;
}

bool result_is_complete(const struct alibi_compare_seed *m, const struct alibi_compare *c)
{
    return m->lengths == c->lengths.count &&
           m->sliding_lengths == (c->sliding_tokens > 0 ? c->lengths.count : 0) &&
           !needs_stream(m, c) && !needs_passage(m, c);
}

/* ---- one model after the other */

/* Adds ", seed 2 of 3" to the tasks that a model's work reports. */
struct labelled {
    const struct alibi_call *call;
    char label[48]; /* "" if there is one seed */
};

static void report_labelled(void *user, const struct alibi_progress *p)
{
    const struct labelled *l = user;
    struct alibi_progress labelled = *p;
    char task[4 * ALIBI_NAME_MAX];

    snprintf(task, sizeof task, "%s%s", p->task, l->label);
    labelled.task = task;
    call_progress(l->call, &labelled);
}

static void log_unchanged(void *user, enum alibi_log_level level, const char *line)
{
    const struct labelled *l = user;

    l->call->log(l->call->user, level, line);
}

/* The first seed has the method's name, as if it were the only one. */
alibi_status request_folder(char **out, const struct request *r, int i, int k, const char *dir)
{
    const char *method = r->compare.methods.at[i];
    char name[ALIBI_NAME_MAX + 32];

    snprintf(name, sizeof name, "%s-seed-%lld", method, (long long)r->compare.seeds.at[k]);
    return path_join(out, dir, k == 0 ? method : name);
}

/* Does the remaining work for method i and seed k, and adds the results to `result`, which is
 * initialised. */
static alibi_status run_model(alibi_device *device, const struct request *r, int i, int k,
                              const alibi_corpus *corpus, const char *dir,
                              struct alibi_compare_seed *result, struct work *work,
                              const struct alibi_call *call)
{
    alibi_status status;
    struct labelled labelled = { .call = call };
    struct alibi_call own = call ? *call : (struct alibi_call){ 0 };
    struct job j = { .device = device,
                     .request = r,
                     .corpus = corpus,
                     .work = work,
                     .call = &own,
                     .method = r->compare.methods.at[i],
                     .training = r->training,
                     .result = result };
    alibi_model *model = NULL;
    bool measured;

    if (r->compare.seeds.count > 1)
        snprintf(labelled.label, sizeof labelled.label, ", seed %d of %d", k + 1,
                 r->compare.seeds.count);
    own.user = &labelled;
    own.progress = call ? report_labelled : NULL;
    own.log = own.log ? log_unchanged : NULL;
    j.training.seed = r->compare.seeds.at[k];
    TRY(request_config(r, i, &j.config));
    TRY(request_folder(&j.run, r, i, k, dir));
    TRY(path_join(&j.path, j.run, NAME_RESULT));
    measured = file_exists(j.path);
    if (measured)
        TRY(result_read(result, j.method, &r->compare.lengths, j.path));
    if (result_is_complete(result, &r->compare))
        goto out;
    TRY(train(&j, measured));
    TRY(open_trained(&j, &model));
    TRY(evaluate_lengths(&j, model->model, ALIBI_NONOVERLAPPING));
    if (r->compare.sliding_tokens > 0)
        TRY(evaluate_lengths(&j, model->model, ALIBI_SLIDING));
    if (needs_stream(result, &r->compare))
        TRY(evaluate_stream(&j, model->model));
    if (needs_passage(result, &r->compare))
        TRY(evaluate_passage(&j, model->model));
out:
    alibi_model_free(model);
    mem_free(j.run);
    mem_free(j.path);
    return status;
}

/* Says what will be done, and fails if the disk has no room for the checkpoints: those that stay,
 * and one more while it is written. */
static alibi_status announce(alibi_device *device, const struct request *r, const char *dir,
                             const struct work *w, const struct alibi_call *call)
{
    const struct alibi_compare *c = &r->compare;
    int64_t models = w->forecast.models;
    const struct alibi_training *t = &r->training;
    static const double MIB = 1 << 20;
    struct alibi_config config;
    struct alibi_plan plan;
    int64_t free_bytes;
    double bytes;

    if (models == 0)
        return ALIBI_OK;
    TRY_RETURN(request_config(r, 0, &config));
    config.vocab = r->config.vocab;
    TRY_RETURN(plan_training(&plan, &config, t, &device->device, device->type, false));
    TRY_RETURN(folder_free_space(&free_bytes, dir));
    bytes = 4.0 * (double)plan.parameters * (1 + optimizer_moments(t->optimizer)) *
            ((double)w->checkpoints + 1);
    if (bytes > (double)free_bytes)
        return fail(ALIBI_IO,
                    "'%s' needs %.1f MiB for the checkpoints of %lld models, and the disk has %.1f "
                    "MiB free; make room, or use another --out",
                    dir, bytes / MIB, (long long)models, (double)free_bytes / MIB);
    call_note(call,
              "to train: %lld of %d x %d models (methods x seeds), %lld steps each; to test: at %d "
              "lengths",
              (long long)models, c->methods.count, c->seeds.count, (long long)t->steps,
              c->lengths.count);
    return ALIBI_OK;
}

/* Counts a model if it has no result yet, and the checkpoints that it will add: the newest two stay
 * of every model. */
static alibi_status count_model(struct work *w, const struct request *r, int i, int k,
                                const char *dir)
{
    alibi_status status;
    const struct alibi_training *t = &r->training;
    char *run = NULL, *path = NULL;
    struct step_folder *folders = NULL;
    int count = 0, added = t->steps > t->save_every ? 2 : 1;

    TRY(request_folder(&run, r, i, k, dir));
    TRY(path_join(&path, run, NAME_RESULT));
    if (file_exists(path))
        goto out;
    if (folder_exists(run))
        TRY(step_folders(&folders, &count, run));
    for (int n = 0; n < count && added > 0; n++)
        added -= folders[n].complete;
    count_models(w, w->forecast.models + 1);
    w->checkpoints += added;
out:
    step_folders_free(folders, count);
    mem_free(run);
    mem_free(path);
    return status;
}

/* The models that have no result yet, and what each will cost to train and to test. */
static alibi_status count_work(struct work *w, const struct request *r, const alibi_corpus *corpus,
                               const char *dir)
{
    const struct alibi_compare *c = &r->compare;
    const struct alibi_training *t = &r->training;
    double all = (double)corpus_span(corpus, ALIBI_VALID).count, scored = (double)c->eval_tokens;
    double sliding = (double)c->sliding_tokens, stream = (double)c->stream_tokens;

    scored = scored > 0 && scored < all ? scored : all;
    sliding = sliding < scored ? sliding : scored; /* whose windows read each token twice */
    stream = stream < all ? stream : all;          /* as one stream, and in windows */
    w->train_tokens =
        (double)t->batch * (double)t->train_length * (double)t->accumulate * (double)t->steps;
    w->valid_tokens = forecast_validation_tokens(corpus, t, 0);
    w->test_tokens = c->lengths.count * (scored + 2 * sliding) + 2 * stream;
    for (int n = 0; n < c->seeds.count * c->methods.count; n++)
        TRY_RETURN(count_model(w, r, n % c->methods.count, n / c->methods.count, dir));
    return ALIBI_OK;
}

/* Only one model's results are in memory at a time: those of the others would count as memory of
 * its training. */
static alibi_status run_models(alibi_device *device, const struct request *r,
                               const alibi_corpus *corpus, const char *dir,
                               const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;
    int methods = r->compare.methods.count;
    struct work work = { 0 };

    TRY_RETURN(count_work(&work, r, corpus, dir));
    TRY_RETURN(announce(device, r, dir, &work, call));
    for (int n = 0; n < r->compare.seeds.count * methods && status == ALIBI_OK; n++) {
        struct alibi_compare_seed result;
        int k = n / methods;

        if (call_stopped(call))
            return ALIBI_INTERRUPTED;
        status = result_init(&result, r->compare.seeds.at[k], r->compare.lengths.count);
        if (status == ALIBI_OK)
            status = run_model(device, r, n % methods, k, corpus, dir, &result, &work, call);
        result_fini(&result);
    }
    return status;
}

/* ---- results */

/* Every model is done; reads the results from the disk. */
static alibi_status collect(struct alibi_compare_result **out, alibi_device *device,
                            const struct request *r, const alibi_corpus *corpus, const char *dir,
                            const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_compare_result *result = NULL;
    struct work work = { .forecast.said = true }; /* there is none left */
    const struct alibi_int_list *lengths = &r->compare.lengths;
    const struct alibi_eval eval = { .length = lengths->at[0],
                                     .tokens = r->compare.eval_tokens,
                                     .block = lengths->at[lengths->count - 1] };

    TRY(NEW_ZERO_ARRAY(&result, 1, "the comparison's results"));
    TRY(NEW_ZERO_ARRAY(&result->method, r->compare.methods.count, "the comparison's results"));
    request_describe(r, result);
    TRY(alibi_corpus_unigram(corpus, ALIBI_VALID, &eval, &result->unigram_nll));
    for (int i = 0; i < r->compare.methods.count; i++) {
        struct alibi_compare_method *m = &result->method[result->methods++];

        snprintf(m->name, sizeof m->name, "%s", r->compare.methods.at[i]);
        TRY(NEW_ZERO_ARRAY(&m->seed, r->compare.seeds.count, "the comparison's results"));
        for (int k = 0; k < r->compare.seeds.count; k++) {
            struct alibi_compare_seed *seed = &m->seed[m->seeds++];

            TRY(result_init(seed, r->compare.seeds.at[k], r->compare.lengths.count));
            TRY(run_model(device, r, i, k, corpus, dir, seed, &work, call));
        }
    }
    *out = result;
    result = NULL;
out:
    alibi_compare_free(result);
    return status;
}

static alibi_status write_report(const struct alibi_compare_result *result, const char *dir,
                                 const char *name,
                                 alibi_status (*format)(struct text *out,
                                                        const struct alibi_compare_result *r))
{
    alibi_status status;
    struct text text = { 0 };
    char *path = NULL;

    TRY(format(&text, result));
    TRY(path_join(&path, dir, name));
    TRY(file_replace(path, text.data, text.length));
out:
    mem_free(path);
    text_free(&text);
    return status;
}

/* ---- the public interface */

alibi_status alibi_compare_run(alibi_device *device, const struct alibi_compare *compare,
                               const struct alibi_config *config,
                               const struct alibi_training *training, const alibi_corpus *corpus,
                               const char *dir, struct alibi_compare_result **out,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct request request;
    struct lock *lock = NULL;
    struct alibi_compare_result *result = NULL;

    TRY(request_init(&request, compare, config, training, corpus));
    TRY(folder_create(dir));
    TRY(lock_take(&lock, dir));
    TRY(request_enter(&request, dir));
    TRY(run_models(device, &request, corpus, dir, call));
    TRY(collect(&result, device, &request, corpus, dir, call));
    TRY(write_report(result, dir, NAME_RESULTS, report_json));
    TRY(write_report(result, dir, "results.csv", report_csv));
    TRY(page_write(&request, result, dir, 0, NULL));
    *out = result;
    result = NULL;
out:
    if (status == ALIBI_INTERRUPTED)
        fail(status, "stopped; completed work is saved in '%s', and the same command resumes it",
             dir);
    alibi_compare_free(result);
    lock_release(lock);
    return status;
}

void alibi_compare_free(struct alibi_compare_result *result)
{
    if (!result)
        return;
    for (int i = 0; i < result->methods; i++) {
        for (int k = 0; k < result->method[i].seeds; k++)
            result_fini(&result->method[i].seed[k]);
        mem_free(result->method[i].seed);
    }
    mem_free(result->method);
    mem_free(result);
}

alibi_status alibi_compare_text(char **out, const struct alibi_compare_result *result, int columns,
                                bool colour)
{
    struct text text = { 0 };
    alibi_status status = report_text(&text, result, columns, colour);

    if (status == ALIBI_OK)
        *out = text.data;
    else
        text_free(&text);
    return status;
}

alibi_status alibi_compare_json(char **out, const struct alibi_compare_result *result)
{
    struct text text = { 0 };
    alibi_status status = report_json(&text, result);

    if (status == ALIBI_OK)
        *out = text.data;
    else
        text_free(&text);
    return status;
}
