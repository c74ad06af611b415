/* evaluate.c - perplexity on a text, at any length
 *
 * Windows of one length are evaluated several at a time, so that short ones keep the machine as
 * busy as long ones; memory is that of about as many tokens as keep the device busy, or of one
 * window where that is longer. A stream is windows side by side that remember: each is read behind
 * the keys and values of all before it. docs/evaluation.md explains the numbers. */
#include <math.h>

#include "eval/eval.h"
#include "checkpoint/checkpoint.h"

enum { STREAM_TOKENS = 8 * ATTENTION_TILE };

static const double report_seconds = 0.2;

/* One evaluation under way. */
struct pass {
    struct model *model;
    struct span span;
    struct windows windows;
    const char *task;
    int64_t rows;              /* windows per batch */
    int32_t *tokens, *targets; /* [rows, L] */
    float *nll;                /* [rows, L] */
    struct score score;
    struct watch watch;
    struct cache *cache; /* of a stream, else NULL */
    double started, reported;
};

/* A device other than the host has more to keep busy. */
static int64_t batch_tokens(const struct model *m)
{
    return m->device->ops->traits.batch_tokens;
}

static alibi_status pass_init(struct pass *p)
{
    int64_t L = p->windows.length, tokens = batch_tokens(p->model);
    size_t cells;

    p->rows = L < tokens && !p->cache ? tokens / L : 1;
    if (p->rows > p->windows.count)
        p->rows = p->windows.count;
    if (!size_product(&cells, (int64_t[]){ p->rows, L }, 2) || cells > INT64_MAX)
        return fail(ALIBI_MEMORY, "windows of %lld tokens do not fit in memory", (long long)L);
    TRY_RETURN(NEW_ARRAY(&p->tokens, (int64_t)cells, "evaluation inputs"));
    TRY_RETURN(NEW_ARRAY(&p->targets, (int64_t)cells, "evaluation targets"));
    TRY_RETURN(NEW_ARRAY(&p->nll, (int64_t)cells, "evaluation losses"));
    p->started = p->reported = clock_seconds();
    return ALIBI_OK;
}

static void pass_fini(struct pass *p)
{
    p->model->watch = NULL;
    watch_fini(&p->watch, p->model);
    cache_free(p->cache);
    mem_free(p->tokens);
    mem_free(p->targets);
    mem_free(p->nll);
}

static void report(struct pass *p)
{
    double now = clock_seconds(), seconds = now - p->started;
    double done = (double)p->score.tokens, total = (double)p->windows.targets;

    if (now - p->reported < report_seconds && p->score.tokens < p->windows.targets)
        return;
    p->reported = now;
    report_progress(&(struct alibi_progress){
        .task = p->task,
        .unit = "tokens",
        .done = p->score.tokens,
        .total = p->windows.targets,
        .seconds = seconds,
        .seconds_left = seconds * (total - done) / done,
        .tokens_per_s = seconds > 0 ? done / seconds : 0,
        .loss = p->score.nll / done,
    });
}

static void read_row(struct pass *p, struct window w, int64_t row)
{
    int32_t *targets = p->targets + row * w.inputs;

    span_read(p->span, w.start, w.inputs, p->tokens + row * w.inputs);
    span_read(p->span, w.start + 1, w.inputs, targets);
    for (int64_t i = 0; i < w.first; i++)
        targets[i] = -1;
}

static alibi_status score_row(struct pass *p, int64_t k, int64_t row)
{
    struct window w = windows_at(&p->windows, k);

    if (!score_window(&p->score, p->nll + row * w.inputs, w.first, w.inputs,
                      p->cache ? w.start : 0))
        return fail(
            ALIBI_NUMERIC,
            "'%s', window %lld (tokens %lld to %lld) at length %lld: the loss is not finite",
            corpus_name(p->span.corpus), (long long)k, (long long)w.start,
            (long long)(w.start + w.inputs), (long long)p->windows.length);
    return ALIBI_OK;
}

/* Evaluates windows k..k+rows-1, which have equally many inputs. */
static alibi_status run_batch(struct pass *p, int64_t k, int64_t rows)
{
    int64_t inputs = windows_at(&p->windows, k).inputs;

    for (int64_t row = 0; row < rows; row++)
        read_row(p, windows_at(&p->windows, k + row), row);
    if (p->cache)
        TRY_RETURN(model_extend_loss(p->model, p->cache, p->tokens, p->targets, inputs, p->nll));
    else
        TRY_RETURN(model_loss(p->model, p->tokens, p->targets, rows, inputs, p->nll));
    for (int64_t row = 0; row < rows; row++)
        TRY_RETURN(score_row(p, k + row, row));
    return ALIBI_OK;
}

/* How many windows from k on go into one batch: the last one, if it is shorter, goes alone. */
static int64_t batch_rows(const struct pass *p, int64_t k)
{
    const struct windows *w = &p->windows;
    bool short_last = windows_at(w, w->count - 1).inputs < w->length;
    int64_t full = w->count - (short_last ? 1 : 0);

    if (k >= full)
        return 1;
    return full - k < p->rows ? full - k : p->rows;
}

static alibi_status run_pass(struct pass *p)
{
    int64_t rows;

    for (int64_t k = 0; k < p->windows.count; k += rows) {
        if (alibi_global_stop_requested())
            return fail(ALIBI_INTERRUPTED, "%s: stopped after %lld of %lld tokens", p->task,
                        (long long)p->score.tokens, (long long)p->windows.targets);
        rows = batch_rows(p, k);
        TRY_RETURN(run_batch(p, k, rows));
        report(p);
    }
    return ALIBI_OK;
}

alibi_status evaluate_check_vocab(const struct model *m, const alibi_tokenizer *t, const char *what)
{
    if (alibi_tokenizer_vocab(t) <= m->config.vocab)
        return ALIBI_OK;
    return fail(ALIBI_BAD_INPUT, "%s has a vocabulary of %lld tokens, the model one of %lld", what,
                (long long)alibi_tokenizer_vocab(t), (long long)m->config.vocab);
}

/* As many ids are not yet the same ids. */
static alibi_status check_tokenizer(const alibi_tokenizer *model, const alibi_corpus *corpus)
{
    const alibi_tokenizer *text = corpus_tokenizer(corpus);

    if (tokenizer_checksum(text) == tokenizer_checksum(model))
        return ALIBI_OK;
    return fail(
        ALIBI_BAD_INPUT, "'%s' has another tokenizer (%s, %lld ids) than the model (%s, %lld ids)",
        corpus_name(corpus), alibi_tokenizer_type(text), (long long)alibi_tokenizer_vocab(text),
        alibi_tokenizer_type(model), (long long)alibi_tokenizer_vocab(model));
}

static alibi_status check_skipping(const struct alibi_eval *e)
{
    if (!(e->skip >= 0 && e->skip < 1))
        return fail(ALIBI_USAGE, "skip %g: it must be from 0 to below 1", e->skip);
    if (!(e->window_score >= 0) ||
        (e->window_score > 0 && (e->protocol != ALIBI_STREAM || e->skip == 0)))
        return fail(
            ALIBI_USAGE,
            "a window score of %g: it is for the protocol stream with skipping, and not negative",
            e->window_score);
    return ALIBI_OK;
}

static alibi_status check_options(const struct alibi_eval *e)
{
    TRY_RETURN(check_skipping(e));
    if (e->protocol == ALIBI_STREAM)
        return ALIBI_OK;
    if (e->length < 1)
        return fail(ALIBI_USAGE, "length %lld: it must be 1 or more", (long long)e->length);
    if (e->protocol != ALIBI_NONOVERLAPPING && e->protocol != ALIBI_SLIDING)
        return fail(ALIBI_USAGE, "protocol %d: there is no such protocol", e->protocol);
    if (e->protocol == ALIBI_SLIDING && (e->stride < 1 || e->stride > e->length))
        return fail(ALIBI_USAGE, "stride %lld: it must be from 1 to the length, %lld",
                    (long long)e->stride, (long long)e->length);
    /* Fewer would never fill a window, and the number would carry a length that it was not measured
     * at. */
    if (e->tokens != 0 && e->tokens < e->length)
        return fail(ALIBI_USAGE, "scoring %lld tokens is not enough for one window of length %lld",
                    (long long)e->tokens, (long long)e->length);
    return ALIBI_OK;
}

static alibi_status check_text(struct span span, const struct alibi_eval *e)
{
    const char *name = corpus_name(span.corpus);

    if (span.count < 2)
        return fail(ALIBI_BAD_INPUT, "'%s' has %lld tokens, at least 2 are needed to score one",
                    name, (long long)span.count);
    if (e->protocol != ALIBI_STREAM && span.count - 1 < e->length)
        return fail(ALIBI_BAD_INPUT, "'%s' has %lld tokens, evaluating at length %lld needs %llu",
                    name, (long long)span.count, (long long)e->length,
                    (unsigned long long)e->length + 1);
    return ALIBI_OK;
}

static alibi_status check_all(const struct model *m, struct span span, const struct alibi_eval *e)
{
    TRY_RETURN(check_options(e));
    TRY_RETURN(evaluate_check_vocab(m, corpus_tokenizer(span.corpus), "the text"));
    TRY_RETURN(check_text(span, e));
    return e->protocol == ALIBI_STREAM ? stream_check(m) : model_check_length(m, e->length);
}

static void fill_result(const struct pass *p, int protocol, struct alibi_eval_result *result)
{
    const struct windows *w = &p->windows;
    int64_t words, bytes, length = p->cache ? w->targets : w->length;

    span_measure(p->span, 1, w->targets, &words, &bytes);
    *result = (struct alibi_eval_result){ .length = length,
                                          .stride = p->cache ? 0 : w->stride,
                                          .protocol = protocol };
    score_result(&p->score, length, words, bytes, result);
    result->tiles_used =
        p->watch.tiles.all > 0 ? (double)p->watch.tiles.used / (double)p->watch.tiles.all : 1.0;
    result->left_out = p->watch.left_out;
    result->attention_seconds = p->watch.seconds;
    result->seconds = clock_seconds() - p->started;
    result->tokens_per_s = result->seconds > 0 ? (double)result->tokens / result->seconds : 0;
    result->peak_bytes = device_peak(p->model->device);
}

alibi_status evaluate_span(struct model *m, struct span span, const struct alibi_eval *eval,
                           const char *task, struct alibi_eval_result *result)
{
    alibi_status status;
    struct pass p = { .model = m, .span = span, .task = task };
    int64_t length = eval->protocol == ALIBI_STREAM ? STREAM_TOKENS : eval->length;
    int64_t stride = eval->protocol == ALIBI_SLIDING ? eval->stride : length;
    int64_t targets = span.count - 1;

    m->device->ops->reset_peak(m->device);
    TRY(check_all(m, span, eval));
    if (eval->tokens > 0 && eval->tokens < targets)
        targets = eval->tokens;
    p.windows = windows_of(length, stride, targets);
    m->skip = eval->skip;
    m->watch = &p.watch;
    p.watch.record = true;
    p.watch.verify = eval->verify;
    if (eval->protocol == ALIBI_STREAM)
        TRY(stream_begin(&p.cache, &p.watch, m, eval->skip, eval->window_score));
    TRY(pass_init(&p));
    TRY(run_pass(&p));
    fill_result(&p, eval->protocol, result);
out:
    pass_fini(&p);
    return status;
}

alibi_status alibi_evaluate(alibi_model *model, const alibi_corpus *corpus, enum alibi_split split,
                            const struct alibi_eval *eval, struct alibi_eval_result *result)
{
    struct span span = corpus_span(corpus, split);
    int64_t trained = model->model->config.train_length;
    char task[ALIBI_NAME_MAX];
    alibi_status status;

    TRY(check_all(model->model, span, eval));
    TRY(check_tokenizer(model->tokenizer, corpus));
    if (trained > 0 && eval->protocol != ALIBI_STREAM && eval->length > trained)
        log_note("evaluating at %lld, the model was trained at %lld", (long long)eval->length,
                 (long long)trained);
    if (eval->protocol == ALIBI_STREAM)
        snprintf(task, sizeof task, "eval stream");
    else
        snprintf(task, sizeof task, "eval %lld", (long long)eval->length);
    TRY(evaluate_span(model->model, span, eval, task, result));
out:
    stop_clear(); /* whoever asked for a stop has it */
    return status;
}
