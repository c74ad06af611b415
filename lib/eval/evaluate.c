/* evaluate.c - perplexity on a text, at any length
 *
 * Several windows of one length are evaluated at a time, so that short ones keep the device as busy
 * as long ones. Memory is that of such a batch, or of one window if that is longer. Ranks divide
 * the windows among them, or each window if it is too long for one rank. A stream is a sequence of
 * adjacent windows with a KV cache: each window is read after the keys and values of all windows
 * before it. docs/evaluation.md explains the numbers. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

/* ---- one evaluation */

struct evaluation {
    const struct model *model;
    struct workspace *workspace;
    struct cache *cache; /* of a stream, else NULL */
    const struct alibi_call *call;
    const char *task;
    struct span span;
    struct windows windows;
    int64_t rows;              /* windows per batch */
    int32_t *tokens, *targets; /* [rows, L] */
    struct sequence *sequence; /* if ranks divide each window, else NULL */
    struct elsewhere elsewhere;
    float *parts;  /* [ranks, tokens of a part]: losses */
    float *losses; /* [L] of such a window */
    struct score score;
    int64_t passing; /* tokens that the current batch scores */
    double started, reported;
};

static void report_layer(void *user, int64_t layers);

/* Whether ranks divide each window, instead of dividing the windows among them. */
static bool shares_windows(const struct alibi_eval *eval, const struct alibi_call *call)
{
    return eval->split_windows && comm_size(call_comm(call)) > 1;
}

static alibi_status fetch_keys(void *user, struct attention_args *a, int64_t sinks,
                               struct tensor first[2])
{
    return sequence_fetch(((struct evaluation *)user)->sequence, a, sinks, first);
}

/* The number of tokens in the largest part of a window. */
static int64_t part_tokens(const struct evaluation *e)
{
    int ranks = comm_size(call_comm(e->call));
    int64_t tiles = attention_tiles(e->windows.length);

    return (tiles + ranks - 1) / ranks * ATTENTION_TILE;
}

static alibi_status evaluation_init(struct evaluation *e, const struct alibi_eval *eval)
{
    bool shares = shares_windows(eval, e->call);
    int64_t L = eval->protocol == ALIBI_STREAM ? STREAM_TOKENS : eval->length;
    int64_t stride = eval->protocol == ALIBI_SLIDING ? eval->stride : L;
    const struct pass_settings settings = { .skip = call_skip(e->call),
                                            .window = eval->window,
                                            .record = true,
                                            .verify = eval->verify,
                                            .elsewhere = shares ? &e->elsewhere : NULL,
                                            .layer_done = report_layer,
                                            .user = e };
    struct cache_window window = { 0 };
    size_t cells;

    if (protocol_is_foreign(eval->protocol))
        TRY_RETURN(protocol_windows(&e->windows, e->span, eval));
    else
        e->windows = windows_of(eval_blocks(e->span, eval), L, stride);
    L = e->windows.length;
    e->score.blocks = e->windows.blocks;
    e->elsewhere = (struct elsewhere){ fetch_keys, e };
    TRY_RETURN(workspace_new(&e->workspace, e->model, &settings));
    if (eval->protocol == ALIBI_STREAM) {
        TRY_RETURN(stream_window(&window, e->model, settings.skip, eval->window_score));
        if (eval->window > 0 && (window.positions == 0 || eval->window < window.positions))
            window =
                (struct cache_window){ .positions = eval->window }; /* no score reaches further */
        TRY_RETURN(cache_new(&e->cache, e->model, 1, window));
    }
    e->rows = e->cache || shares ? 1 : rounds_rows(e->model->device, L, e->windows.count);
    if (!size_product(&cells, (int64_t[]){ e->rows, L }, 2) || cells > INT64_MAX)
        return fail(ALIBI_MEMORY, "windows of %lld tokens do not fit in memory", (long long)L);
    TRY_RETURN(NEW_ARRAY(&e->tokens, (int64_t)cells, "evaluation inputs"));
    TRY_RETURN(NEW_ARRAY(&e->targets, (int64_t)cells, "evaluation targets"));
    if (shares) {
        int64_t all = comm_size(call_comm(e->call)) * part_tokens(e);

        TRY_RETURN(NEW_ARRAY(&e->parts, all, "the losses of parts"));
        TRY_RETURN(NEW_ARRAY(&e->losses, (int64_t)cells, "the losses of a window"));
    }
    e->started = e->reported = clock_seconds();
    return ALIBI_OK;
}

static void evaluation_fini(struct evaluation *e)
{
    cache_free(e->cache);
    workspace_free(e->workspace);
    sequence_free(e->sequence);
    mem_free(e->parts);
    mem_free(e->losses);
    mem_free(e->tokens);
    mem_free(e->targets);
    mem_free(e->windows.list);
}

void report_tokens(const struct alibi_call *call, const char *task, int64_t done, int64_t all,
                   double loss, double started, double *reported)
{
    static const double often = 0.2;
    double now = clock_seconds(), seconds = now - started;

    if (now - *reported < often && done < all)
        return;
    *reported = now;
    call_progress(call, &(struct alibi_progress){
                            .task = task,
                            .unit = "tokens",
                            .done = done,
                            .total = all,
                            .seconds = seconds,
                            .seconds_left = seconds_left(seconds, done, all),
                            .tokens_per_s = seconds > 0 ? (double)done / seconds : 0,
                            .loss = loss,
                        });
}

/* Tokens are scored at the end of a pass, which takes minutes for a very long window; before that,
 * `passed` of them count as done. */
static void report(struct evaluation *e, int64_t passed)
{
    report_tokens(e->call, e->task, e->score.tokens + passed, e->windows.scored,
                  e->score.nll / (double)e->score.tokens, e->started, &e->reported);
}

/* The output layer counts as one more layer. */
static void report_layer(void *user, int64_t layers)
{
    struct evaluation *e = user;

    report(e,
           (int64_t)((double)e->passing * (double)layers / (double)(e->model->config.layers + 1)));
}

/* The windows of a batch have the same number of inputs: they are full windows of several blocks,
 * or their shorter last ones. */
static int64_t rows_from(void *user, int64_t k)
{
    const struct evaluation *e = user;
    const struct windows *w = &e->windows;
    int64_t most = w->count - k < e->rows ? w->count - k : e->rows, rows = 1;

    while (rows < most && windows_at(w, k + rows).inputs == windows_at(w, k).inputs)
        rows++;
    return rows;
}

/* Inputs and targets of windows k..k+rows-1, which have `inputs` inputs each. */
static void read_batch(struct evaluation *e, int64_t k, int64_t rows, int64_t inputs)
{
    e->passing = 0;
    for (int64_t row = 0; row < rows; row++) {
        struct window w = windows_at(&e->windows, k + row);
        int32_t *tokens = e->tokens + row * inputs, *targets = e->targets + row * inputs;

        span_read(e->span, w.start + 1, inputs, targets);
        if (w.begins)
            tokens[0] = tokenizer_start(corpus_tokenizer(e->span.corpus));
        else
            span_read(e->span, w.start, 1, tokens);
        memcpy(tokens + 1, targets, (size_t)(inputs - 1) * sizeof *tokens);
        for (int64_t i = 0; i < w.first; i++)
            targets[i] = -1;
        e->passing += inputs - w.first;
    }
}

/* The losses [rows, inputs] of windows k..k+rows-1. */
static alibi_status run_batch(void *user, int64_t k, int64_t rows, void *losses)
{
    struct evaluation *e = user;
    int64_t inputs = windows_at(&e->windows, k).inputs;

    read_batch(e, k, rows, inputs);
    if (e->cache)
        return model_extend_loss(e->workspace, e->cache, 0, e->tokens, e->targets, inputs, losses);
    return model_loss(e->workspace, e->tokens, e->targets, rows, inputs, losses);
}

static alibi_status score_batch(void *user, int64_t k, int64_t rows, const void *losses)
{
    struct evaluation *e = user;
    int64_t inputs = windows_at(&e->windows, k).inputs;

    for (int64_t row = 0; row < rows; row++) {
        struct window w = windows_at(&e->windows, k + row);

        if (!score_window(&e->score, (const float *)losses + row * inputs, &w,
                          e->cache ? w.start : 0))
            return fail(
                ALIBI_NUMERIC,
                "'%s', the window of tokens %lld to %lld at length %lld: the loss is not finite",
                corpus_name(e->span.corpus), (long long)w.start, (long long)(w.start + inputs),
                (long long)e->windows.length);
    }
    report(e, 0);
    return ALIBI_OK;
}

static alibi_status say_stopped(void *user)
{
    const struct evaluation *e = user;

    return fail(ALIBI_INTERRUPTED, "%s: stopped after %lld of %lld tokens", e->task,
                (long long)e->score.tokens, (long long)e->windows.scored);
}

/* Evaluates one window after the other; each rank computes a part of it. */
static alibi_status run_shared(struct evaluation *e)
{
    alibi_comm *comm = call_comm(e->call);
    int64_t most = part_tokens(e);
    int size = comm_size(comm), rank = comm_rank(comm);

    TRY_RETURN(sequence_new(&e->sequence, comm, e->model->device, e->call));
    e->started = e->reported = clock_seconds(); /* connecting GPUs may take longer than a window */
    for (int64_t k = 0; k < e->windows.count; k++) {
        int64_t inputs = windows_at(&e->windows, k).inputs;
        struct range mine = sequence_part(inputs, rank, size);
        alibi_status status;

        read_batch(e, k, 1, inputs);
        sequence_begin(e->sequence, inputs);
        if (call_stopped(e->call))
            status = say_stopped(e);
        else
            status = model_loss_part(e->workspace, e->tokens + mine.first, e->targets + mine.first,
                                     mine.first, mine.count, e->parts + rank * most);
        TRY_RETURN(sequence_end(e->sequence, status));
        TRY_RETURN(comm_collect(comm, e->parts, (size_t)most * sizeof *e->parts));
        for (int r = 0; r < size; r++) {
            struct range part = sequence_part(inputs, r, size);

            memcpy(e->losses + part.first, e->parts + r * most,
                   (size_t)part.count * sizeof *e->losses);
        }
        TRY_RETURN(comm_agree(comm, score_batch(e, k, 1, e->losses)));
    }
    return ALIBI_OK;
}

/* Totals over all ranks. */
struct totals {
    struct attention_statistics attention;
    struct sequence_traffic traffic;
    size_t peak; /* of the rank that needed the most */
};

static alibi_status add_up(const struct evaluation *e, struct totals *out)
{
    alibi_status status;
    alibi_comm *comm = call_comm(e->call);
    int size = comm_size(comm);
    struct totals *all = NULL;

    status = NEW_ZERO_ARRAY(&all, size, "statistics of ranks");
    TRY(comm_agree(comm, status));
    all[comm_rank(comm)] = (struct totals){ .attention = workspace_statistics(e->workspace),
                                            .traffic = e->sequence ? sequence_traffic(e->sequence)
                                                                   : (struct sequence_traffic){ 0 },
                                            .peak = device_peak(e->model->device) };
    TRY(comm_collect(comm, all, sizeof *all));
    *out = all[0];
    for (int r = 1; r < size; r++) {
        out->attention.tiles.used += all[r].attention.tiles.used;
        out->attention.tiles.all += all[r].attention.tiles.all;
        out->attention.seconds += all[r].attention.seconds;
        out->attention.skipped = fmax(out->attention.skipped, all[r].attention.skipped);
        out->traffic.sent += all[r].traffic.sent;
        out->traffic.all += all[r].traffic.all;
        out->peak = all[r].peak > out->peak ? all[r].peak : out->peak;
    }
out:
    mem_free(all);
    return status;
}

/* ---- checks */

alibi_status evaluate_check_vocab(const struct model *m, const alibi_tokenizer *t, const char *what)
{
    if (alibi_tokenizer_vocab(t) <= m->config.vocab)
        return ALIBI_OK;
    return fail(ALIBI_BAD_INPUT, "%s has a vocabulary of %lld tokens, the model one of %lld", what,
                (long long)alibi_tokenizer_vocab(t), (long long)m->config.vocab);
}

alibi_status evaluate_check_tokenizer(const alibi_tokenizer *model, const alibi_corpus *corpus)
{
    const alibi_tokenizer *text = corpus_tokenizer(corpus);

    if (tokenizer_checksum(text) == tokenizer_checksum(model))
        return ALIBI_OK;
    return fail(
        ALIBI_BAD_INPUT, "'%s' has another tokenizer (%s, %lld ids) than the model (%s, %lld ids)",
        corpus_name(corpus), alibi_tokenizer_type(text), (long long)alibi_tokenizer_vocab(text),
        alibi_tokenizer_type(model), (long long)alibi_tokenizer_vocab(model));
}

static alibi_status check_options(const struct alibi_eval *e, double skip)
{
    if (!(skip >= 0 && skip < 1))
        return fail(ALIBI_USAGE, "skip %g: it must be from 0 to below 1", skip);
    if (!(e->window_score >= 0) ||
        (e->window_score > 0 && (e->protocol != ALIBI_STREAM || skip == 0)))
        return fail(ALIBI_USAGE,
                    "window score %g: it must not be negative, and needs protocol stream and "
                    "skipping",
                    e->window_score);
    if (e->window < 0)
        return fail(ALIBI_USAGE, "window %lld: it must be 0 (none) or more", (long long)e->window);
    if (e->tokens < 0)
        return fail(ALIBI_USAGE, "scoring %lld tokens: it must be 0 (all) or more",
                    (long long)e->tokens);
    if (e->protocol == ALIBI_STREAM)
        return ALIBI_OK;
    if (!alibi_protocol_view(e->protocol))
        return fail(ALIBI_USAGE, "protocol %d: there is no such protocol", e->protocol);
    if (e->length < protocol_least_length(e->protocol))
        return fail(ALIBI_USAGE, "length %lld: it must be %lld or more", (long long)e->length,
                    (long long)protocol_least_length(e->protocol));
    if (alibi_protocol_view(e->protocol)->strided && (e->stride < 1 || e->stride > e->length))
        return fail(ALIBI_USAGE, "stride %lld: it must be from 1 to the length, %lld",
                    (long long)e->stride, (long long)e->length);
    /* The result would carry a length that it was not measured at. */
    if (e->tokens != 0 && e->tokens < e->length)
        return fail(ALIBI_USAGE,
                    "scoring %lld tokens does not fill one window of length %lld; score more, or "
                    "use a shorter length",
                    (long long)e->tokens, (long long)e->length);
    if (e->block != 0 && e->block < e->length && !protocol_is_foreign(e->protocol))
        return fail(ALIBI_USAGE, "a block of %lld tokens does not fill one window of length %lld",
                    (long long)e->block, (long long)e->length);
    return ALIBI_OK;
}

static alibi_status check_text(struct span span, const struct alibi_eval *e)
{
    const char *name = corpus_name(span.corpus);

    if (span.count < 2)
        return fail(ALIBI_BAD_INPUT, "'%s' has %lld tokens; scoring one takes at least 2", name,
                    (long long)span.count);
    if (protocol_is_foreign(e->protocol))
        return protocol_check_text(span, e);
    if (e->protocol != ALIBI_STREAM && span.count - 1 < e->length)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has %lld tokens; evaluating at length %lld takes %llu; "
                    "use a shorter length, or more text",
                    name, (long long)span.count, (long long)e->length,
                    (unsigned long long)e->length + 1);
    return ALIBI_OK;
}

/* What can be checked without the text. */
static alibi_status check_request(const struct model *m, const struct alibi_eval *e,
                                  const struct alibi_call *call)
{
    int ranks = comm_size(call_comm(call));

    TRY_RETURN(check_options(e, call_skip(call)));
    if (e->protocol == ALIBI_STREAM && ranks > 1)
        return fail(ALIBI_USAGE,
                    "protocol stream: each part of the text needs all earlier parts, so %d ranks "
                    "cannot divide it; start one process",
                    ranks);
    if (shares_windows(e, call) && e->verify)
        return fail(ALIBI_USAGE,
                    "verifying the skipped weight needs all keys on one rank, and windows are "
                    "divided; verify with whole windows, or with one process");
    return e->protocol == ALIBI_STREAM ? stream_check(m) : model_check_length(m, e->length);
}

static alibi_status check_all(const struct model *m, struct span span, const struct alibi_eval *e,
                              const struct alibi_call *call)
{
    TRY_RETURN(check_request(m, e, call));
    TRY_RETURN(evaluate_check_vocab(m, corpus_tokenizer(span.corpus), "the text"));
    return check_text(span, e);
}

/* ---- the whole */

struct blocks eval_blocks(struct span span, const struct alibi_eval *e)
{
    return blocks_of(span.count - 1, e->tokens, e->block ? e->block : e->length,
                     e->contiguous || e->protocol == ALIBI_STREAM ||
                         protocol_is_foreign(e->protocol));
}

static void fill_result(const struct evaluation *e, const struct alibi_eval *eval,
                        const struct totals *t, struct alibi_eval_result *result)
{
    struct attention_statistics s = t->attention;
    const struct windows *w = &e->windows;
    int64_t words = 0, bytes = 0, length = e->cache ? w->blocks.size : w->length;

    for (int64_t k = 0; k < (w->list ? w->count : w->blocks.count); k++) {
        int64_t from = w->list ? w->list[k].index : blocks_start(&w->blocks, k) + 1;
        int64_t count = w->list ? w->list[k].inputs - w->list[k].first : w->blocks.size;
        int64_t some_words, some_bytes;

        span_measure(e->span, from, count, &some_words, &some_bytes);
        words += some_words;
        bytes += some_bytes;
    }
    words += w->extra_words;
    *result = (struct alibi_eval_result){ .length = length,
                                          .stride = e->cache ? 0 : w->stride,
                                          .window = eval->window,
                                          .protocol = eval->protocol,
                                          .block = w->blocks.size,
                                          .blocks = w->blocks.count,
                                          .start = w->blocks.first,
                                          .available = w->blocks.all };
    score_result(&e->score, length, words, bytes, result);
    result->tiles_used = s.tiles.all > 0 ? (double)s.tiles.used / (double)s.tiles.all : 1.0;
    result->skipped_weight = s.skipped;
    result->attention_seconds = s.seconds;
    result->seconds = clock_seconds() - e->started;
    result->tokens_per_s = result->seconds > 0 ? (double)result->tokens / result->seconds : 0;
    result->peak_bytes = t->peak;
    result->sent_bytes = t->traffic.sent;
    result->earlier_bytes = t->traffic.all;
}

alibi_status evaluate_span(const struct model *m, struct span span, const struct alibi_eval *eval,
                           const char *task, struct alibi_eval_result *result,
                           const struct alibi_call *call)
{
    alibi_status status;
    struct evaluation e = { .model = m, .call = call, .task = task, .span = span };
    struct totals totals;

    device_reset_peak(m->device);
    status = check_all(m, span, eval, call);
    if (status == ALIBI_OK)
        status = evaluation_init(&e, eval);
    TRY(comm_agree(call_comm(call), status));
    if (shares_windows(eval, call))
        TRY(run_shared(&e));
    else
        TRY(rounds_run(
            &(struct rounds){ .call = call,
                              .count = e.windows.count,
                              .bytes = (size_t)(e.rows * e.windows.length) * sizeof(float),
                              .user = &e,
                              .rows = rows_from,
                              .compute = run_batch,
                              .add = score_batch,
                              .stopped = say_stopped }));
    TRY(add_up(&e, &totals));
    fill_result(&e, eval, &totals, result);
out:
    evaluation_fini(&e);
    return status;
}

alibi_status alibi_eval_check(const alibi_model *model, const struct alibi_eval *eval,
                              const struct alibi_call *call)
{
    return check_request(model->model, eval, call);
}

alibi_status alibi_eval_check_text(const alibi_corpus *corpus, enum alibi_split split,
                                   const struct alibi_eval *eval)
{
    return check_text(corpus_span(corpus, split), eval);
}

alibi_status alibi_evaluate(const alibi_model *model, const alibi_corpus *corpus,
                            enum alibi_split split, const struct alibi_eval *eval,
                            struct alibi_eval_result *result, const struct alibi_call *call)
{
    struct span span = corpus_span(corpus, split);
    int64_t trained = model->model->config.train_length;
    const int64_t request[] = { split,        eval->length,       eval->protocol,   eval->stride,
                                eval->tokens, eval->block,        eval->contiguous, eval->verify,
                                eval->window, eval->split_windows };
    char task[ALIBI_NAME_MAX] = "eval stream";
    alibi_status status;

    status = check_all(model->model, span, eval, call);
    if (status == ALIBI_OK)
        status = evaluate_check_tokenizer(model->tokenizer, corpus);
    TRY_RETURN(comm_agree(call_comm(call), status));
    TRY_RETURN(rounds_check(model, corpus, request, sizeof request, call));
    if (eval->protocol != ALIBI_STREAM) {
        snprintf(task, sizeof task, "eval %lld", (long long)eval->length);
        if (trained > 0 && eval->length > trained)
            call_note(call, "evaluating at %lld; the model was trained at %lld",
                      (long long)eval->length, (long long)trained);
    }
    return evaluate_span(model->model, span, eval, task, result, call);
}
