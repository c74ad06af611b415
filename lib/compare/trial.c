/* trial.c - train (or resume) -> open the last checkpoint -> evaluate, saving after each step */
#include <math.h>
#include <string.h>

#include "compare/compare.h"
#include "compare/trial.h"
#include "eval/eval.h"

static void raise_peak(struct alibi_compare_seed *m, size_t bytes)
{
    if (bytes > m->peak_bytes)
        m->peak_bytes = bytes;
}

/* A complete run returns at once. If its last checkpoint was damaged since, it repeats the last
 * steps. Measurements of an earlier call are kept. */
static alibi_status train(const struct trial *t)
{
    struct alibi_compare_seed *m = t->cost;
    struct alibi_device_info device;
    struct alibi_train_result r;

    TRY_RETURN(train_run(t->device, &t->config, &t->training, t->corpus, t->run,
                         folder_exists(t->run), t->forecast, &r, t->call));
    if (t->measured)
        return ALIBI_OK;
    m->train_tokens_per_s = r.tokens_per_s;
    m->train_seconds = r.seconds;
    m->train_loss = r.loss;
    m->parameters = r.parameters;
    raise_peak(m, r.peak_bytes);
    /* Speed and memory mean nothing without the device. Names are cleaned here so that they read
     * back as they were written. */
    alibi_device_get_info(t->device, &device);
    memcpy(m->device, device.name, sizeof m->device);
    memcpy(m->machine, device.machine, sizeof m->machine);
    line_clean(m->device);
    line_clean(m->machine);
    m->precision = device.precision;
    alibi_date(m->date);
    snprintf(m->version, sizeof m->version, "%s", alibi_version());
    return t->save(t);
}

/* alibi_model_open() takes an older checkpoint if the newest one cannot be read. Here that would
 * present a half-trained model as a trained one. */
static alibi_status open_trained(const struct trial *t, alibi_model **out)
{
    alibi_status status;
    alibi_model *model = NULL;
    struct train_state state;
    struct alibi_training training;

    TRY(alibi_model_open_as(&model, t->device, t->run,
                            t->fit.length > 0 && t->fitted[0] ? t->fitted : t->position, t->call));
    TRY(checkpoint_read_state(model->path, &state, &training));
    if (state.step != t->training.steps)
        TRY(fail(ALIBI_IO,
                 "cannot evaluate '%s': its checkpoint of step %lld is unreadable and the "
                 "newest readable one is of step %lld; repeat the command to train the rest",
                 t->run, (long long)t->training.steps, (long long)state.step));
    *out = model;
    model = NULL;
out:
    alibi_model_free(model);
    return status;
}

/* Fits a temperature, on text that the tests do not score. */
static alibi_status fit(const struct trial *t, alibi_model *model)
{
    struct alibi_call call = *t->call;
    struct alibi_fit_result result;
    enum alibi_split split = ALIBI_TEST;

    if (t->fit.length == 0 || t->fitted[0])
        return ALIBI_OK;
    if (corpus_span(t->fit_corpus, split).count <= t->fit.length)
        split = ALIBI_TRAIN;
    call.skip = t->training.skip;
    TRY_RETURN(alibi_model_fit(model, t->fit_corpus, split, &t->fit, &result, &call));
    memcpy(t->fitted, model->model->config.position, ALIBI_NAME_MAX);
    return t->save(t);
}

/* Whether the model has a value there. If not, a note says why, unless an earlier test has already
 * said so: for the same length without a sliding window, or for the whole text. */
static bool has_value(const struct trial *t, const struct model *m, const struct alibi_eval *eval,
                      int64_t targets)
{
    int64_t longest = model_longest(m);
    bool noted = eval->protocol != ALIBI_SLIDING && !eval->contiguous;

    if (eval->protocol == ALIBI_STREAM) {
        if (stream_check(m) == ALIBI_OK)
            return true;
        call_note(t->call, "%s: no value as a stream, its positions number the places in the text",
                  t->name);
        return false;
    }
    if (eval->length > longest && noted)
        call_note(t->call, "%s: no value at length %lld, its positions end at %lld", t->name,
                  (long long)eval->length, (long long)longest);
    return eval->length <= longest && eval->length <= targets &&
           (eval->tokens == 0 || eval->length <= eval->tokens);
}

static alibi_status run_eval(const struct trial *t, const struct model *m,
                             const struct trial_test *test, const struct alibi_call *call)
{
    struct span valid = corpus_span(test->corpus, ALIBI_VALID);
    const struct alibi_eval *eval = &test->eval;
    bool stream = eval->protocol == ALIBI_STREAM;
    char task[4 * ALIBI_NAME_MAX], length[32] = "";

    if (!stream && !eval->contiguous)
        snprintf(length, sizeof length, " %lld", (long long)eval->length);
    snprintf(task, sizeof task, "eval %s%s%s", t->name, length, test->name);
    if (has_value(t, m, eval, valid.count - 1))
        TRY_RETURN(evaluate_span(m, valid, eval, task, test->result, call));
    else
        *test->result = result_none(stream ? eval->tokens : eval->length);
    /* The memory of a model is that of its main evaluations. */
    if (eval->protocol == ALIBI_NONOVERLAPPING && !eval->contiguous)
        raise_peak(t->cost, test->result->peak_bytes);
    return ALIBI_OK;
}

/* Contexts past the last position, or that no document has room for, have no value. */
static alibi_status run_targets(const struct trial *t, const alibi_model *model,
                                const struct trial_test *test, const struct alibi_call *call)
{
    struct alibi_targets asked = test->targets;
    int64_t end = model_longest(model->model) - asked.block + 1, document;

    TRY_RETURN(targets_longest(&document, corpus_span(test->corpus, ALIBI_VALID)));
    if (!targets_trim(&asked, document))
        return ALIBI_OK;
    if (asked.contexts.at[asked.contexts.count - 1] > end)
        call_note(t->call, "%s:%s has no value for contexts above %lld, its positions end at %lld",
                  t->name, test->name, (long long)(end > 0 ? end : 0),
                  (long long)model_longest(model->model));
    return probe_losses(model, test->corpus, ALIBI_VALID, &asked, test->losses, call);
}

static alibi_status run_attention(const struct trial *t, const alibi_model *model,
                                  const struct trial_test *test, const struct alibi_call *call)
{
    int64_t length = test->attention.length, longest = model_longest(model->model);
    struct alibi_head_attention *head = test->reach->head;
    struct alibi_attention_result *found = NULL;

    if (length > longest)
        call_note(t->call, "%s:%s has no value at length %lld, its positions end at %lld", t->name,
                  test->name, (long long)length, (long long)longest);
    if (length > longest || length > corpus_span(test->corpus, ALIBI_VALID).count)
        return ALIBI_OK;
    TRY_RETURN(
        alibi_probe_attention(&found, model, test->corpus, ALIBI_VALID, &test->attention, call));
    memcpy(head, found->head, (size_t)(found->layers * found->heads) * sizeof *head);
    *test->reach = *found;
    test->reach->head = head;
    alibi_attention_free(found);
    for (int64_t i = 0; i < test->reach->layers * test->reach->heads; i++)
        if (!isfinite(head[i].distance)) {
            test->reach->windows = 0;
            return fail(ALIBI_NUMERIC,
                        "attention at length %lld: head %lld of layer %lld is not "
                        "finite",
                        (long long)length, (long long)(i % test->reach->heads),
                        (long long)(i / test->reach->heads));
        }
    return ALIBI_OK;
}

/* Lengths past the last position, or for which the text is too short, have no value. */
static alibi_status run_tasks(const struct trial *t, const alibi_model *model,
                              const struct trial_test *test, const struct alibi_call *call)
{
    struct alibi_tasks asked = test->tasks;
    struct alibi_tasks_result *found = NULL;
    struct alibi_task_result *out = test->answers;
    int64_t longest = model_longest(model->model);

    TRY_RETURN(tasks_trim(&asked, model->tokenizer, corpus_span(test->corpus, ALIBI_VALID)));
    if (asked.lengths.at[asked.lengths.count - 1] > longest)
        call_note(t->call, "%s: %s has no value at lengths above %lld, where its positions end",
                  t->name, asked.tasks.at[0], (long long)longest);
    TRY_RETURN(alibi_probe_tasks(&found, model, test->corpus, ALIBI_VALID, &asked, call));
    *out = found->task[0];
    for (int i = 0, k = 0; i < test->tasks.lengths.count; i++) {
        int64_t length = test->tasks.lengths.at[i];
        bool there = k < asked.lengths.count && asked.lengths.at[k] == length;

        out->at[i] = there ? found->task[0].at[k++] : (struct alibi_task_cell){ .length = length };
    }
    alibi_tasks_free(found);
    return ALIBI_OK;
}

static alibi_status run_stream(const struct trial *t, const alibi_model *model,
                               const struct trial_test *test, const struct alibi_call *call)
{
    int64_t longest = model_longest(model->model);

    if (test->context <= longest)
        return bench_stream(test->cost, model->model, corpus_span(test->corpus, ALIBI_VALID),
                            test->context, call->skip, call);
    call_note(t->call, "%s:%s has no value after %lld tokens, its positions end at %lld", t->name,
              test->name, (long long)test->context, (long long)longest);
    return ALIBI_OK;
}

/* Skipping has the budget of training. A test without a value counts as done. */
static alibi_status run_test(const struct trial *t, const alibi_model *model,
                             const struct trial_test *test)
{
    struct alibi_call call = t->call ? *t->call : (struct alibi_call){ 0 };

    call.skip = t->training.skip;
    if (test->losses != NULL)
        TRY_RETURN(run_targets(t, model, test, &call));
    else if (test->reach != NULL)
        TRY_RETURN(run_attention(t, model, test, &call));
    else if (test->answers != NULL)
        TRY_RETURN(run_tasks(t, model, test, &call));
    else if (test->cost != NULL)
        TRY_RETURN(run_stream(t, model, test, &call));
    else
        TRY_RETURN(run_eval(t, model->model, test, &call));
    (*test->done)++;
    return t->save(t);
}

/* Progress has the names of the model and of the trial rather than the method's. */
static void report_labelled(void *user, const struct alibi_progress *p)
{
    const struct trial *t = user;
    struct alibi_progress labelled = *p;
    char task[6 * ALIBI_NAME_MAX];

    if (strncmp(p->task, "train ", 6) == 0)
        snprintf(task, sizeof task, "train %s%s", t->name, t->label);
    else if (strncmp(p->task, "eval ", 5) != 0) /* a probe */
        snprintf(task, sizeof task, "%s %s%s", p->task, t->name, t->label);
    else
        snprintf(task, sizeof task, "%s%s", p->task, t->label);
    labelled.task = task;
    call_progress(t->call, &labelled);
}

static void log_unchanged(void *user, enum alibi_log_level level, const char *line)
{
    const struct trial *t = user;

    t->call->log(t->call->user, level, line);
}

alibi_status trial_run(const struct trial *trial, const struct trial_test *tests, int count)
{
    alibi_status status;
    struct trial outer = *trial, own = *trial;
    struct alibi_call call = trial->call ? *trial->call : (struct alibi_call){ 0 };
    const struct trial *t = &own;
    alibi_model *model = NULL;

    call.user = &outer;
    call.progress = call.progress ? report_labelled : NULL;
    call.log = call.log ? log_unchanged : NULL;
    own.call = &call;
    TRY(train(t));
    if (count == 0)
        goto out;
    TRY(open_trained(t, &model));
    TRY(fit(t, model));
    for (int i = 0; i < count; i++)
        TRY(evaluate_check_tokenizer(model->tokenizer, tests[i].corpus));
    for (int i = 0; i < count; i++)
        TRY(run_test(t, model, &tests[i]));
out:
    alibi_model_free(model);
    return status;
}
