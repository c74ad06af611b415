/* session.c - one user of a model: a KV cache of several sequences, and the buffers of its passes
 *
 *   feed (chunks of one sequence)  ─┐
 *   step (a token for each of some) ├─►  cache, logits of each sequence's last position  ──► sample
 *   score (feed, and look back)    ─┘
 *
 * The model is only read, so sessions in several threads share it. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

enum { SCORE_ROWS = 64 }; /* rows of logits that are on the host at a time */

struct alibi_session {
    const alibi_model *model;
    struct workspace *workspace;
    struct cache *cache;
    int64_t sequences;
    int64_t V, ids; /* logits per position, and the ids among them that the tokenizer has */
    float *logits;  /* [sequences, V] after each sequence's last token */
    bool *known;    /* [sequences] whether that row is up to date */
    float *rows;    /* [SCORE_ROWS, V] for scores; NULL: not needed yet */
    float *step;    /* [sequences, V] of a step, until all of it has succeeded */
    struct candidate *candidates;  /* [V] */
    int32_t *slots;                /* [sequences] of a step */
    const struct alibi_stop *stop; /* the caller's, of alibi_session_new() */
    struct alibi_stop cancel;      /* alibi_session_cancel() */
};

alibi_status alibi_session_new(alibi_session **out, const alibi_model *model,
                               const struct alibi_session_options *options,
                               const struct alibi_call *call)
{
    alibi_status status;
    const struct model *m = model->model;
    int64_t sequences = options && options->sequences > 0 ? options->sequences : 1;
    double window_score = options ? options->window_score : 0.0, skip = call_skip(call);
    struct pass_settings settings = { .skip = skip };
    struct cache_window window;
    alibi_session *s = NULL;

    if (sequences > INT32_MAX || (options && options->sequences < 0))
        return fail(ALIBI_USAGE, "a session of %lld sequences: it holds 1 to %d",
                    (long long)options->sequences, INT32_MAX);
    if (!(skip >= 0 && skip < 1))
        return fail(ALIBI_USAGE, "skip %g: it must be from 0 to below 1", skip);
    if (!(window_score >= 0) || (window_score > 0 && skip == 0))
        return fail(ALIBI_USAGE, "window score %g: it needs skipping, and must not be negative",
                    window_score);
    TRY(evaluate_check_vocab(m, model->tokenizer, "the model's tokenizer"));
    TRY(stream_window(&window, m, skip, window_score));
    TRY(NEW_ZERO_ARRAY(&s, 1, "a session"));
    s->model = model;
    s->sequences = sequences;
    s->V = m->config.vocab;
    s->ids = alibi_tokenizer_vocab(model->tokenizer);
    settings.stop = s->stop = call ? call->stop : NULL;
    settings.cancel = &s->cancel;
    TRY(workspace_new(&s->workspace, m, &settings));
    TRY(cache_new(&s->cache, m, sequences, window));
    TRY(NEW_ARRAY(&s->logits, sequences * s->V, "the logits of a session"));
    TRY(NEW_ARRAY(&s->step, sequences * s->V, "the logits of a session"));
    TRY(NEW_ZERO_ARRAY(&s->known, sequences, "the sequences of a session"));
    TRY(NEW_ARRAY(&s->slots, sequences, "the sequences of a session"));
    TRY(NEW_ARRAY(&s->candidates, s->V, "candidates"));
    *out = s;
    s = NULL;
out:
    alibi_session_free(s);
    return status;
}

void alibi_session_free(alibi_session *s)
{
    if (!s)
        return;
    cache_free(s->cache);
    workspace_free(s->workspace);
    mem_free(s->logits);
    mem_free(s->known);
    mem_free(s->rows);
    mem_free(s->step);
    mem_free(s->candidates);
    mem_free(s->slots);
    mem_free(s);
}

void alibi_session_cancel(alibi_session *s)
{
    alibi_stop_request(&s->cancel);
}

static bool has(const alibi_session *s, int64_t sequence)
{
    return sequence >= 0 && sequence < s->sequences;
}

static alibi_status check_sequence(const alibi_session *s, int64_t sequence)
{
    if (has(s, sequence))
        return ALIBI_OK;
    return fail(ALIBI_USAGE, "there is no sequence %lld: the session has %lld, numbered from 0",
                (long long)sequence, (long long)s->sequences);
}

int64_t alibi_session_length(const alibi_session *s, int64_t sequence)
{
    return has(s, sequence) ? cache_length(s->cache, sequence) : 0;
}

const float *alibi_session_view_logits(const alibi_session *s, int64_t sequence)
{
    return has(s, sequence) && s->known[sequence] ? s->logits + sequence * s->V : NULL;
}

void alibi_session_clear(alibi_session *s, int64_t sequence)
{
    if (!has(s, sequence))
        return;
    cache_clear(s->cache, sequence);
    s->known[sequence] = false;
}

/* A cancellation ends with the call that it stopped. */
static alibi_status stopped(alibi_session *s, alibi_status status, int64_t done, int64_t total)
{
    bool cancelled = alibi_stop_requested(&s->cancel);

    if (status != ALIBI_INTERRUPTED)
        return status;
    if (cancelled)
        __atomic_store_n(&s->cancel.requested, 0,
                         __ATOMIC_RELEASE); /* others may set it meanwhile */
    return fail(ALIBI_INTERRUPTED, "session: %s after %lld of %lld tokens",
                cancelled ? "cancelled" : "stopped", (long long)done, (long long)total);
}

static alibi_status check_stop(const alibi_session *s)
{
    return alibi_stop_requested(s->stop) || alibi_stop_requested(&s->cancel)
               ? fail(ALIBI_INTERRUPTED, "stopped")
               : ALIBI_OK;
}

/* ---- one sequence */

/* Reads tokens in chunks, and hands each chunk on to `look`, which may be NULL, while the workspace
 * still holds its pass and s->logits those before the chunk. After a failure s->known says whether
 * the logits are those of the present length. */
static alibi_status feed(alibi_session *s, int64_t sequence, const int32_t *tokens, int64_t count,
                         alibi_status (*look)(alibi_session *s, void *user, int64_t from,
                                              int64_t count),
                         void *user)
{
    alibi_status status = ALIBI_OK;
    int64_t chunk = s->model->model->device->ops->traits.prefill_tokens, from = 0;

    TRY_RETURN(check_sequence(s, sequence));
    if (count < 0)
        return fail(ALIBI_USAGE, "%lld tokens: there must be 0 or more", (long long)count);
    for (; from < count; from += chunk) {
        int64_t some = count - from < chunk ? count - from : chunk;

        TRY(check_stop(s));
        TRY(model_extend(s->workspace, s->cache, sequence, tokens + from, some));
        status = look ? look(s, user, from, some) : ALIBI_OK;
        s->known[sequence] = false; /* the chunk is in the cache, even if `look` has failed */
        TRY(status);
        TRY(model_read_logits(s->workspace, some - 1, 1, s->logits + sequence * s->V));
        s->known[sequence] = true;
    }
out:
    return stopped(s, status, from, count);
}

alibi_status alibi_session_feed(alibi_session *s, int64_t sequence, const int32_t *tokens,
                                int64_t count)
{
    return feed(s, sequence, tokens, count, NULL, NULL);
}

/* Where a call puts its scores: of each token, and of the likeliest ones in its place. */
struct scores {
    int64_t sequence;
    const int32_t *tokens;
    double *logprobs;
    int alternatives;
    struct alibi_choice *choices;
};

static alibi_status score_one(const alibi_session *s, const struct scores *o, int64_t i,
                              const float *logits)
{
    struct alibi_choice *choices = o->choices ? o->choices + i * o->alternatives : NULL;
    double normaliser = log_sum_exp(logits, s->V);

    if (!isfinite(normaliser))
        return fail(ALIBI_NUMERIC, "token %lld: its logits are not finite", (long long)i);
    o->logprobs[i] = (double)logits[o->tokens[i]] - normaliser;
    if (choices)
        sample_likeliest(choices, o->alternatives, logits, s->ids, normaliser);
    return ALIBI_OK;
}

/* Row r of the pass predicts token from + r + 1. The first token of a chunk was predicted by the
 * logits before it. */
static alibi_status look_back(alibi_session *s, void *user, int64_t from, int64_t count)
{
    const struct scores *o = user;

    if (s->known[o->sequence])
        TRY_RETURN(score_one(s, o, from, s->logits + o->sequence * s->V));
    else
        o->logprobs[from] = (double)NAN; /* nothing came before it */
    for (int64_t r = 0; r < count - 1; r += SCORE_ROWS) {
        int64_t rows = count - 1 - r < SCORE_ROWS ? count - 1 - r : SCORE_ROWS;

        TRY_RETURN(model_read_logits(s->workspace, r, rows, s->rows));
        for (int64_t i = 0; i < rows; i++)
            TRY_RETURN(score_one(s, o, from + r + i + 1, s->rows + i * s->V));
    }
    return ALIBI_OK;
}

alibi_status alibi_session_score(alibi_session *s, int64_t sequence, const int32_t *tokens,
                                 int64_t count, double *logprobs, int alternatives,
                                 struct alibi_choice *choices)
{
    struct scores o = { sequence, tokens, logprobs, alternatives, choices };

    if (alternatives < 0 || alternatives > s->ids)
        return fail(ALIBI_USAGE, "%d alternatives: there may be 0 to %lld", alternatives,
                    (long long)s->ids);
    for (int64_t i = 0; choices && i < count * alternatives; i++)
        choices[i] = (struct alibi_choice){ -1, (double)NAN };
    if (!s->rows)
        TRY_RETURN(NEW_ARRAY(&s->rows, SCORE_ROWS * s->V, "rows of logits"));
    return feed(s, sequence, tokens, count, look_back, &o);
}

/* user: the caller's rows for all tokens of the call. */
static alibi_status copy_rows(alibi_session *s, void *user, int64_t from, int64_t count)
{
    float *logits = (float *)user + from * s->V;

    for (int64_t r = 0; r < count; r += SCORE_ROWS) {
        int64_t rows = count - r < SCORE_ROWS ? count - r : SCORE_ROWS;

        TRY_RETURN(model_read_logits(s->workspace, r, rows, logits + r * s->V));
    }
    return ALIBI_OK;
}

alibi_status alibi_session_logits(alibi_session *s, int64_t sequence, const int32_t *tokens,
                                  int64_t count, float *logits)
{
    return feed(s, sequence, tokens, count, copy_rows, logits);
}

alibi_status alibi_session_sample(alibi_session *s, int64_t sequence,
                                  const struct alibi_sampling *sampling, uint64_t index,
                                  int32_t *token)
{
    TRY_RETURN(check_sequence(s, sequence));
    TRY_RETURN(sampling_check(sampling));
    if (!s->known[sequence])
        return fail(ALIBI_USAGE, "sequence %lld has no last token: feed it first",
                    (long long)sequence);
    return sample_token(token, s->logits + sequence * s->V, s->ids, sampling, index, s->candidates);
}

/* ---- several sequences */

alibi_status alibi_session_step(alibi_session *s, const int64_t *sequences, const int32_t *tokens,
                                int64_t count)
{
    alibi_status status;

    if (count < 1 || count > s->sequences)
        return fail(ALIBI_USAGE, "a step of %lld sequences: the session has %lld", (long long)count,
                    (long long)s->sequences);
    for (int64_t i = 0; i < count; i++) {
        TRY_RETURN(check_sequence(s, sequences[i]));
        s->slots[i] = (int32_t)sequences[i];
        for (int64_t j = 0; j < i; j++)
            if (s->slots[j] == s->slots[i])
                return fail(ALIBI_USAGE, "sequence %lld is in the step twice",
                            (long long)sequences[i]);
    }
    TRY(check_stop(s));
    TRY(model_step(s->workspace, s->cache, s->slots, tokens, count));
    status = model_read_logits(s->workspace, 0, count, s->step);
    for (int64_t i = 0; i < count; i++)
        if (status == ALIBI_OK) {
            memcpy(s->logits + sequences[i] * s->V, s->step + i * s->V,
                   (size_t)s->V * sizeof *s->step);
            s->known[sequences[i]] = true;
        } else {
            cache_drop_last(s->cache, sequences[i]);
        }
out:
    return stopped(s, status, 0, count);
}
