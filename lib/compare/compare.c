/* compare.c - one model per position method, the same in everything else, tested at growing lengths
 *
 *   for each method:  train (or resume) -> open the last checkpoint -> evaluate at each length,
 *   again with a sliding window,
 *                     then as one stream -> result.json after each
 *   then:             results.json, results.csv, report.html
 *
 * Every step that is done is on disk before the next begins, so stopping at any moment loses one
 * step at most. */
#include <string.h>

#include "compare/compare.h"
#include "eval/eval.h"
#include "report/report.h"
#include "train/train.h"

/* One method's part of a comparison. */
struct job {
    alibi_device *device;
    const struct request *request;
    const alibi_corpus *corpus;
    struct alibi_config config;
    char *run, *path; /* the method's folder, its result.json */
    struct alibi_compare_method *result;
};

static void job_fini(struct job *j)
{
    mem_free(j->run);
    mem_free(j->path);
}

static void raise_peak(struct alibi_compare_method *m, size_t bytes)
{
    if (bytes > m->peak_bytes)
        m->peak_bytes = bytes;
}

/* Speed and memory mean nothing without where they were measured. A name that is fit for a line
 * reads back as it was written. */
static void record_device(struct alibi_compare_method *m, const alibi_device *used)
{
    struct alibi_device_info device;

    alibi_device_get_info(used, &device);
    memcpy(m->device, device.name, sizeof m->device);
    line_clean(m->device);
    m->precision = device.precision;
}

/* A run that is complete returns at once; one whose last checkpoint was damaged since takes its
 * last steps again. What an earlier call measured stays. */
static alibi_status train(struct job *j, bool measured)
{
    struct alibi_train_result r;

    TRY_RETURN(
        train_run(j->device, &j->config, &j->request->training, j->corpus, j->run, true, &r));
    if (measured)
        return ALIBI_OK;
    j->result->train_tokens_per_s = r.tokens_per_s;
    j->result->train_seconds = r.seconds;
    j->result->train_loss = r.loss;
    j->result->parameters = r.parameters;
    raise_peak(j->result, r.peak_bytes);
    record_device(j->result, j->device);
    return result_write(j->result, j->path);
}

/* Opening passes over a checkpoint that cannot be read and takes an older one. Here that would show
 * a half-trained model as a whole one. */
static alibi_status open_trained(struct job *j, alibi_model **out)
{
    alibi_status status;
    alibi_model *model = NULL;
    struct train_state state;
    struct alibi_training training;

    TRY(alibi_model_open(&model, j->device, j->run, NULL));
    TRY(checkpoint_read_state(model->path, &state, &training));
    if (state.step != j->request->training.steps) {
        status = fail(
            ALIBI_IO,
            "cannot evaluate '%s': its checkpoint of step %lld could not be read, only that of step %lld",
            j->run, (long long)j->request->training.steps, (long long)state.step);
        goto out;
    }
    *out = model;
    model = NULL;
out:
    alibi_model_free(model);
    return status;
}

/* The longest input the method is defined for. */
static int64_t longest(const struct model *m)
{
    return m->method->longest ? m->method->longest(&m->config) : INT64_MAX;
}

/* The sliding window advances by half its length: from the second one on every scored token has at
 * least that much context. It scores no token that the other protocol does not. */
static struct alibi_eval eval_at(const struct request *r, enum alibi_protocol protocol,
                                 int64_t length)
{
    const struct alibi_compare *c = &r->compare;
    struct alibi_eval eval = {
        .length = length, .protocol = protocol, .tokens = c->eval_tokens, .skip = r->training.skip
    };

    if (protocol == ALIBI_NONOVERLAPPING)
        return eval;
    eval.stride = length > 1 ? length / 2 : 1;
    if (eval.tokens == 0 || eval.tokens > c->sliding_tokens)
        eval.tokens = c->sliding_tokens;
    return eval;
}

static alibi_status evaluate_at(struct job *j, struct model *m, const struct alibi_eval *eval,
                                struct alibi_eval_result *result)
{
    char task[3 * ALIBI_NAME_MAX];
    bool sliding = eval->protocol == ALIBI_SLIDING;

    if (eval->length > longest(m) && !sliding)
        log_note("%s: no value at length %lld, its positions end at %lld", j->result->name,
                 (long long)eval->length, (long long)longest(m));
    if (eval->length > longest(m) || (sliding && eval->length > eval->tokens)) {
        *result = result_none(eval->length);
        return ALIBI_OK;
    }
    snprintf(task, sizeof task, "eval %s %lld%s", j->result->name, (long long)eval->length,
             sliding ? " sliding" : "");
    return evaluate_span(m, corpus_span(j->corpus, ALIBI_VALID), eval, task, result);
}

/* Goes on from the first *done lengths. */
static alibi_status evaluate_lengths(struct job *j, struct model *m, enum alibi_protocol protocol,
                                     struct alibi_eval_result *results, int *done)
{
    const struct alibi_compare *c = &j->request->compare;

    while (*done < c->lengths.count) {
        struct alibi_eval eval = eval_at(j->request, protocol, c->lengths.at[*done]);

        TRY_RETURN(evaluate_at(j, m, &eval, &results[*done]));
        if (protocol ==
            ALIBI_NONOVERLAPPING) /* what a length takes is told by its main evaluation */
            raise_peak(j->result, results[*done].peak_bytes);
        (*done)++;
        TRY_RETURN(result_write(j->result, j->path));
    }
    return ALIBI_OK;
}

/* A method that cannot stream has an entry without a value, so that it is done. */
static alibi_status evaluate_stream(struct job *j, struct model *m)
{
    const struct request *r = j->request;
    struct alibi_eval eval = { .protocol = ALIBI_STREAM,
                               .tokens = r->compare.stream_tokens,
                               .skip = r->training.skip };
    char task[2 * ALIBI_NAME_MAX];

    if (stream_check(m) != ALIBI_OK) {
        log_note("%s: no value as a stream, its positions mark places in the text",
                 j->result->name);
        j->result->stream = result_none(eval.tokens);
    } else {
        snprintf(task, sizeof task, "eval %s stream", j->result->name);
        TRY_RETURN(
            evaluate_span(m, corpus_span(j->corpus, ALIBI_VALID), &eval, task, &j->result->stream));
    }
    return result_write(j->result, j->path);
}

static bool needs_stream(const struct alibi_compare_method *m, const struct alibi_compare *c)
{
    return c->stream_tokens > 0 && m->stream.length == 0;
}

static alibi_status evaluate_rest(struct job *j)
{
    struct alibi_compare_method *r = j->result;
    alibi_status status;
    alibi_model *model = NULL;

    TRY(open_trained(j, &model));
    TRY(evaluate_lengths(j, model->model, ALIBI_NONOVERLAPPING, r->by_length, &r->lengths));
    if (j->request->compare.sliding_tokens > 0)
        TRY(evaluate_lengths(j, model->model, ALIBI_SLIDING, r->sliding, &r->sliding_lengths));
    if (needs_stream(r, &j->request->compare))
        TRY(evaluate_stream(j, model->model));
out:
    alibi_model_free(model);
    return status;
}

static bool is_complete(const struct alibi_compare_method *m, const struct alibi_compare *c)
{
    return m->lengths == c->lengths.count &&
           m->sliding_lengths == (c->sliding_tokens > 0 ? c->lengths.count : 0) &&
           !needs_stream(m, c);
}

static alibi_status run_method(alibi_device *device, const struct request *r, int i,
                               const alibi_corpus *corpus, const char *dir,
                               struct alibi_compare_method *result)
{
    alibi_status status;
    struct job j = { .device = device, .request = r, .corpus = corpus, .result = result };
    const char *name = r->compare.methods.at[i];
    bool measured;

    snprintf(result->name, sizeof result->name, "%s", name);
    TRY(request_config(r, i, &j.config));
    TRY(path_join(&j.run, dir, name));
    TRY(path_join(&j.path, j.run, "result.json"));
    measured = file_exists(j.path);
    if (measured)
        TRY(result_read(result, name, &r->compare.lengths, j.path));
    if (is_complete(result, &r->compare))
        goto out;
    TRY(train(&j, measured));
    TRY(evaluate_rest(&j));
out:
    job_fini(&j);
    return status;
}

/* One method's results at a time: those of all take megabytes, which would count as memory of the
 * training. */
static alibi_status run_methods(alibi_device *device, const struct request *r,
                                const alibi_corpus *corpus, const char *dir)
{
    alibi_status status;
    struct alibi_compare_method *method = NULL;

    TRY(NEW_ARRAY(&method, 1, "a method's results"));
    for (int i = 0; i < r->compare.methods.count; i++) {
        if (alibi_global_stop_requested()) {
            status = ALIBI_INTERRUPTED;
            goto out;
        }
        memset(method, 0, sizeof *method);
        TRY(run_method(device, r, i, corpus, dir, method));
    }
out:
    mem_free(method);
    return status;
}

/* Every method is done: what is on disk is read, and nothing is run. */
static alibi_status collect(alibi_device *device, const struct request *r,
                            const alibi_corpus *corpus, const char *dir,
                            struct alibi_compare_result *result)
{
    for (int i = 0; i < r->compare.methods.count; i++) {
        TRY_RETURN(run_method(device, r, i, corpus, dir, &result->method[i]));
        result->methods++;
    }
    return ALIBI_OK;
}

/* ---- reports */

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

static alibi_status write_reports(const struct alibi_compare_result *result, const char *dir)
{
    TRY_RETURN(write_report(result, dir, "results.json", report_json));
    TRY_RETURN(write_report(result, dir, "results.csv", report_csv));
    return write_report(result, dir, "report.html", report_html);
}

/* ---- the public interface */

static alibi_status new_result(struct alibi_compare_result **out, const struct request *r,
                               const alibi_corpus *corpus)
{
    struct alibi_compare_result *result = NULL;

    TRY_RETURN(NEW_ZERO_ARRAY(&result, 1, "the comparison's results"));
    result->config = r->config;
    result->training = r->training;
    result->compare = r->compare;
    result->builtin = r->builtin;
    alibi_corpus_get_info(corpus, ALIBI_ALL, &result->text);
    snprintf(result->tokenizer, sizeof result->tokenizer, "%s",
             alibi_tokenizer_type(corpus_tokenizer(corpus)));
    result->own_valid = corpus_has_own_valid(corpus);
    *out = result;
    return ALIBI_OK;
}

alibi_status alibi_compare_run(alibi_device *device, const struct alibi_compare *compare,
                               const struct alibi_config *config,
                               const struct alibi_training *training, const alibi_corpus *corpus,
                               const char *dir, struct alibi_compare_result **out)
{
    alibi_status status;
    struct request request;
    struct lock *lock = NULL;
    struct alibi_compare_result *result = NULL;

    TRY(request_init(&request, compare, config, training, corpus));
    TRY(folder_create(dir));
    TRY(lock_take(&lock, dir));
    TRY(request_enter(&request, dir));
    TRY(run_methods(device, &request, corpus, dir));
    TRY(new_result(&result, &request, corpus));
    TRY(collect(device, &request, corpus, dir, result));
    TRY(write_reports(result, dir));
    *out = result;
    result = NULL;
out:
    stop_clear(); /* whoever asked for a stop has it */
    if (status == ALIBI_INTERRUPTED)
        fail(status,
             "stopped; what is done is saved in '%s', and the same command goes on from there",
             dir);
    alibi_compare_free(result);
    lock_release(lock);
    return status;
}

void alibi_compare_free(struct alibi_compare_result *result)
{
    mem_free(result);
}

alibi_status alibi_compare_text(char **out, const struct alibi_compare_result *result, int columns,
                                bool colour)
{
    alibi_status status;
    struct text text = { 0 };

    TRY(report_text(&text, result, columns, colour));
    *out = text.data;
    text.data = NULL;
out:
    text_free(&text);
    return status;
}

alibi_status alibi_compare_json(char **out, const struct alibi_compare_result *result)
{
    alibi_status status;
    struct text text = { 0 };

    TRY(report_json(&text, result));
    *out = text.data;
    text.data = NULL;
out:
    text_free(&text);
    return status;
}
