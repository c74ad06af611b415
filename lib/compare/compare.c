/* compare.c - one model per position method, equal in everything else, tested at growing lengths
 *
 *   for each method:  train (or resume) -> open the last checkpoint -> evaluate at each length,
 *                     again with a sliding window, then as one stream -> result.json after each
 *   then:             results.json, results.csv, report.html
 *
 * Every completed step is on disk before the next begins, so stopping at any moment loses at most
 * one step. */
#include <string.h>

#include "base/names.h"
#include "compare/compare.h"
#include "eval/eval.h"
#include "report/report.h"
#include "train/train.h"

/* One method's part of a comparison. */
struct job {
    alibi_device *device;
    const struct request *request;
    const alibi_corpus *corpus;
    const struct alibi_call *call;
    struct alibi_config config;
    char *run, *path; /* the method's folder, its result.json */
    struct alibi_compare_method *result;
};

static void raise_peak(struct alibi_compare_method *m, size_t bytes)
{
    if (bytes > m->peak_bytes)
        m->peak_bytes = bytes;
}

/* A complete run returns at once. If its last checkpoint was damaged since, it repeats the last
 * steps. Measurements of an earlier call are kept. */
static alibi_status train(struct job *j, bool measured)
{
    struct alibi_compare_method *m = j->result;
    struct alibi_device_info device;
    struct alibi_train_result r;

    TRY_RETURN(alibi_train(j->device, &j->config, &j->request->training, j->corpus, j->run,
                           folder_exists(j->run), &r, j->call));
    if (measured)
        return ALIBI_OK;
    m->train_tokens_per_s = r.tokens_per_s;
    m->train_seconds = r.seconds;
    m->train_loss = r.loss;
    m->parameters = r.parameters;
    raise_peak(m, r.peak_bytes);
    /* Speed and memory mean nothing without the device. The name is cleaned here so that it reads
     * back as it was written. */
    alibi_device_get_info(j->device, &device);
    memcpy(m->device, device.name, sizeof m->device);
    line_clean(m->device);
    m->precision = device.precision;
    return result_write(m, j->path);
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
 * second window on, every scored token has at least that much context. It scores only tokens that
 * the other protocol scores too. */
static alibi_status evaluate_lengths(struct job *j, struct model *m, enum alibi_protocol protocol)
{
    const struct alibi_compare *c = &j->request->compare;
    struct alibi_compare_method *r = j->result;
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
            call_note(j->call, "%s: no value at length %lld, its positions end at %lld", r->name,
                      (long long)length, (long long)longest);
        snprintf(task, sizeof task, "eval %s %lld%s", r->name, (long long)length,
                 sliding ? " sliding" : "");
        if (length > longest || (sliding && length > eval.tokens))
            *result = result_none(length);
        else
            TRY_RETURN(
                evaluate_span(m, corpus_span(j->corpus, ALIBI_VALID), &eval, task, result, &call));
        if (!sliding) /* the memory of a length is that of its main evaluation */
            raise_peak(r, result->peak_bytes);
        (*done)++;
        TRY_RETURN(result_write(r, j->path));
    }
    return ALIBI_OK;
}

/* A method that cannot stream gets an entry without a value, so that it counts as done. */
static alibi_status evaluate_stream(struct job *j, struct model *m)
{
    struct alibi_compare_method *r = j->result;
    struct alibi_eval eval = { .protocol = ALIBI_STREAM,
                               .tokens = j->request->compare.stream_tokens };
    const struct alibi_call call = evaluation_call(j);
    char task[2 * ALIBI_NAME_MAX];

    if (stream_check(m) != ALIBI_OK) {
        call_note(j->call, "%s: no value as a stream, its positions number the places in the text",
                  r->name);
        r->stream = result_none(eval.tokens);
    } else {
        snprintf(task, sizeof task, "eval %s stream", r->name);
        TRY_RETURN(
            evaluate_span(m, corpus_span(j->corpus, ALIBI_VALID), &eval, task, &r->stream, &call));
    }
    return result_write(r, j->path);
}

static bool needs_stream(const struct alibi_compare_method *m, const struct alibi_compare *c)
{
    return c->stream_tokens > 0 && m->stream.length == 0;
}

static bool is_complete(const struct alibi_compare_method *m, const struct alibi_compare *c)
{
    return m->lengths == c->lengths.count &&
           m->sliding_lengths == (c->sliding_tokens > 0 ? c->lengths.count : 0) &&
           !needs_stream(m, c);
}

/* Does the remaining work for method i, and adds its results to `result`, which is initialised. */
static alibi_status run_method(alibi_device *device, const struct request *r, int i,
                               const alibi_corpus *corpus, const char *dir,
                               struct alibi_compare_method *result, const struct alibi_call *call)
{
    alibi_status status;
    struct job j = { .device = device, .request = r, .corpus = corpus, .call = call };
    alibi_model *model = NULL;
    bool measured;

    j.result = result;
    TRY(request_config(r, i, &j.config));
    TRY(path_join(&j.run, dir, result->name));
    TRY(path_join(&j.path, j.run, NAME_RESULT));
    measured = file_exists(j.path);
    if (measured)
        TRY(result_read(result, &r->compare.lengths, j.path));
    if (is_complete(result, &r->compare))
        goto out;
    TRY(train(&j, measured));
    TRY(open_trained(&j, &model));
    TRY(evaluate_lengths(&j, model->model, ALIBI_NONOVERLAPPING));
    if (r->compare.sliding_tokens > 0)
        TRY(evaluate_lengths(&j, model->model, ALIBI_SLIDING));
    if (needs_stream(result, &r->compare))
        TRY(evaluate_stream(&j, model->model));
out:
    alibi_model_free(model);
    mem_free(j.run);
    mem_free(j.path);
    return status;
}

/* Only one method's results are in memory at a time: those of the others would count as memory of
 * its training. */
static alibi_status run_methods(alibi_device *device, const struct request *r,
                                const alibi_corpus *corpus, const char *dir,
                                const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;

    for (int i = 0; i < r->compare.methods.count && status == ALIBI_OK; i++) {
        struct alibi_compare_method method;

        if (call_stopped(call))
            return ALIBI_INTERRUPTED;
        status = result_init(&method, r->compare.methods.at[i], r->compare.lengths.count);
        if (status == ALIBI_OK)
            status = run_method(device, r, i, corpus, dir, &method, call);
        result_fini(&method);
    }
    return status;
}

/* ---- results */

/* Every method is done; reads the results from the disk. */
static alibi_status collect(struct alibi_compare_result **out, alibi_device *device,
                            const struct request *r, const alibi_corpus *corpus, const char *dir,
                            const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_compare_result *result = NULL;

    TRY(NEW_ZERO_ARRAY(&result, 1, "the comparison's results"));
    TRY(NEW_ZERO_ARRAY(&result->method, r->compare.methods.count, "the comparison's results"));
    result->config = r->config;
    result->training = r->training;
    result->compare = r->compare;
    result->builtin = r->builtin;
    result->own_valid = corpus_has_own_valid(corpus);
    alibi_corpus_get_info(corpus, ALIBI_ALL, &result->text);
    snprintf(result->tokenizer, sizeof result->tokenizer, "%s",
             alibi_tokenizer_type(corpus_tokenizer(corpus)));
    for (int i = 0; i < r->compare.methods.count; i++) {
        struct alibi_compare_method *m = &result->method[result->methods++];

        TRY(result_init(m, r->compare.methods.at[i], r->compare.lengths.count));
        TRY(run_method(device, r, i, corpus, dir, m, call));
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
    TRY(run_methods(device, &request, corpus, dir, call));
    TRY(collect(&result, device, &request, corpus, dir, call));
    TRY(write_report(result, dir, NAME_RESULTS, report_json));
    TRY(write_report(result, dir, "results.csv", report_csv));
    TRY(write_report(result, dir, "report.html", report_html));
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
    for (int i = 0; i < result->methods; i++)
        result_fini(&result->method[i]);
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
