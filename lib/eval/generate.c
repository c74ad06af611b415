/* generate.c - text from a model
 *
 *   prompts -> ids -> prefill -> logits -> a token each -> text
 *                                  ^------------|
 *
 * Several prompts are continued at once, one sequence of a session each; a step of all of them is
 * one pass. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

/* ---- pieces: bytes in, whole UTF-8 characters out
 *
 * A token may end inside a character. Bytes are held back until they are a character; those that
 * can no longer become one are replaced by U+FFFD, one per longest start of a character, as the
 * Unicode standard recommends. */

static const char replacement[] = "\xEF\xBF\xBD";

enum { CHARACTER_BYTES_MAX = 4 };

/* Whether the bytes are the incomplete start of a character: then appending continuation bytes
 * completes one. Trying the smallest and the largest continuation byte is enough, because every
 * lead byte allows one of the two in second place. */
static bool starts_character(const char *bytes, size_t count)
{
    char tried[CHARACTER_BYTES_MAX];

    if (count >= CHARACTER_BYTES_MAX)
        return false;
    memcpy(tried, bytes, count);
    for (int fill = 0x80; fill <= 0xBF; fill += 0x3F) {
        memset(tried + count, fill, CHARACTER_BYTES_MAX - count);
        for (size_t whole = count + 1; whole <= CHARACTER_BYTES_MAX; whole++)
            if (utf8_valid_prefix(tried, whole) == whole)
                return true;
    }
    return false;
}

/* Bytes at the front, which are not a character, that one U+FFFD replaces. */
static size_t broken_bytes(const char *bytes, size_t count)
{
    size_t broken = 1;

    while (broken < count && starts_character(bytes, broken + 1))
        broken++;
    return broken;
}

static void hand_over(struct pieces *p, const char *text, size_t bytes)
{
    if (bytes > 0 && !p->stopped)
        p->stopped = !p->emit(p->user, text, bytes);
}

/* Hands over whole characters and replaces broken ones; keeps the start of a character, unless the
 * text has ended. */
static void flush(struct pieces *p, bool ended)
{
    char *at = p->held.data;
    size_t left = p->held.length;

    while (left > 0) {
        size_t valid = utf8_valid_prefix(at, left), broken;

        hand_over(p, at, valid);
        at += valid;
        left -= valid;
        if (left == 0 || (!ended && starts_character(at, left)))
            break;
        broken = broken_bytes(at, left);
        hand_over(p, replacement, sizeof replacement - 1);
        at += broken;
        left -= broken;
    }
    if (left > 0)
        memmove(p->held.data, at, left);
    p->held.length = left;
}

alibi_status pieces_add(struct pieces *p, const char *bytes, size_t count)
{
    text_append_bytes(&p->held, bytes, count);
    TRY_RETURN(text_status(&p->held));
    flush(p, false);
    return ALIBI_OK;
}

void pieces_end(struct pieces *p)
{
    flush(p, true);
}

/* ---- one continuation */

struct continuation {
    struct pieces pieces;
    struct ids prompt;
    struct alibi_sampling sampling;
    int index;
    const struct generation *generation;
    bool drops_blank; /* before its first text, which is the beginning of a document */
    bool ended;
};

struct generation {
    const alibi_model *model;
    const struct alibi_generation *how;
    alibi_session *session;
    struct continuation *continuations;
    int count;
    bool (*emit)(void *user, int which, const char *text, size_t bytes);
    void *user;
};

static bool emit_piece(void *user, const char *text, size_t bytes)
{
    const struct continuation *c = user;

    return c->generation->emit(c->generation->user, c->index, text, bytes);
}

/* Tokens of a word tokenizer end in a blank, so the model has read one after the prompt's last
 * word. If the prompt does not end in a blank, the generated text begins with it. With other
 * tokenizers, a prompt ends in exactly the bytes of its last token. */
static void hold_blank(struct continuation *c, const alibi_tokenizer *t, char last)
{
    size_t bytes;
    const char *token = tokenizer_bytes(t, c->prompt.at[c->prompt.count - 1], &bytes);

    if (bytes > 0 && token[bytes - 1] == ' ' && !strchr(" \t\r\v\f", last))
        text_append_bytes(&c->pieces.held, " ", 1);
}

static alibi_status check_text(const char *text, size_t bytes, const char *what)
{
    size_t valid = utf8_valid_prefix(text, bytes);

    return valid == bytes
               ? ALIBI_OK
               : fail(ALIBI_BAD_INPUT, "the %s is not UTF-8 text at byte %zu", what, valid);
}

/* If the text itself begins with the begin token, it is not added again. */
alibi_status encode_prompt(struct ids *ids, const alibi_tokenizer *t, const char *text,
                           size_t bytes, const char *what)
{
    int32_t begin = alibi_tokenizer_begin(t), end = alibi_tokenizer_end(t);

    TRY_RETURN(check_text(text, bytes, what));
    if (bytes > 0)
        TRY_RETURN(tokenizer_encode(t, text, bytes, ids));
    if (begin >= 0 && (ids->count == 0 || ids->at[0] != begin)) {
        TRY_RETURN(ids_append(ids, &begin, 1));
        memmove(ids->at + 1, ids->at, (size_t)(ids->count - 1) * sizeof *ids->at);
        ids->at[0] = begin;
    }
    if (ids->count > 0)
        return ALIBI_OK;
    if (end < 0)
        return fail(ALIBI_BAD_INPUT,
                    "the %s is empty, and the tokenizer has no end-of-document token that could "
                    "start a document: give a %s",
                    what, what);
    return ids_append(ids, &end, 1);
}

/* The last token is never read, so the model sees one position fewer than there are tokens. */
static alibi_status check_length(const struct generation *g, int64_t prompt)
{
    int64_t tokens = g->how->tokens;
    alibi_status status =
        model_check_length(g->model->model, prompt + (tokens > 0 ? tokens - 1 : 0));

    if (status == ALIBI_OK)
        return ALIBI_OK;
    return fail_context(status, "a prompt of %lld tokens and %lld more", (long long)prompt,
                        (long long)tokens);
}

static alibi_status begin(struct generation *g, const struct alibi_prompt *prompts)
{
    const alibi_tokenizer *t = g->model->tokenizer;

    for (int i = 0; i < g->count; i++) {
        struct continuation *c = &g->continuations[i];
        const struct alibi_prompt *p = &prompts[i];

        c->index = i;
        c->generation = g;
        c->sampling = g->how->sampling;
        c->sampling.seed += (uint64_t)i;
        c->pieces = (struct pieces){ .emit = emit_piece, .user = c };
        TRY_RETURN(encode_prompt(&c->prompt, t, p->text, p->bytes, "prompt"));
        c->drops_blank = p->bytes == 0 && tokenizer_drops_blank(t);
        if (p->bytes > 0)
            hold_blank(c, t, p->text[p->bytes - 1]);
        TRY_RETURN(check_length(g, c->prompt.count));
    }
    return ALIBI_OK;
}

/* Chooses token number `index` of a continuation. The end token of a document has no text; that of
 * a word tokenizer, which ends a line, does. */
static alibi_status choose(struct generation *g, struct continuation *c, int64_t index,
                           int32_t *token)
{
    const alibi_tokenizer *t = g->model->tokenizer;
    const char *text;
    size_t bytes;

    TRY_RETURN(alibi_session_sample(g->session, c->index, &c->sampling, (uint64_t)index, token));
    text = tokenizer_bytes(t, *token, &bytes);
    if (c->drops_blank && bytes > 0) {
        size_t blank = text[0] == ' ';
        c->drops_blank = false;
        TRY_RETURN(pieces_add(&c->pieces, text + blank, bytes - blank));
    } else {
        TRY_RETURN(pieces_add(&c->pieces, text, bytes));
    }
    c->ended = c->pieces.stopped || (*token == alibi_tokenizer_end(t) && bytes == 0);
    return ALIBI_OK;
}

static alibi_status decode(struct generation *g, int64_t *sequences, int32_t *tokens)
{
    for (int64_t index = 0, going = 1; index < g->how->tokens && going > 0; index++) {
        going = 0;
        for (int i = 0; i < g->count; i++) {
            struct continuation *c = &g->continuations[i];

            if (c->ended)
                continue;
            TRY_RETURN(choose(g, c, index, &tokens[going]));
            if (!c->ended)
                sequences[going++] = i;
        }
        if (going > 0 && index + 1 < g->how->tokens)
            TRY_RETURN(alibi_session_step(g->session, sequences, tokens, going));
    }
    for (int i = 0; i < g->count; i++)
        pieces_end(&g->continuations[i].pieces);
    return ALIBI_OK;
}

/* Far more than any machine can generate, and sums of lengths cannot overflow. */
static const int64_t most_tokens = INT64_C(1) << 40;

alibi_status alibi_generate(const alibi_model *model, const struct alibi_prompt *prompts, int count,
                            const struct alibi_generation *how,
                            bool (*emit)(void *user, int which, const char *text, size_t bytes),
                            void *user, const struct alibi_call *call)
{
    alibi_status status;
    struct generation g = { .model = model, .how = how, .emit = emit, .user = user };
    int64_t *sequences = NULL;
    int32_t *tokens = NULL;

    if (how->tokens < 0 || how->tokens > most_tokens)
        return fail(ALIBI_USAGE, "tokens %lld: it must be from 0 to %lld", (long long)how->tokens,
                    (long long)most_tokens);
    if (count < 1)
        return fail(ALIBI_USAGE, "%d prompts: there must be 1 or more", count);
    TRY(sampling_check(&how->sampling));
    TRY(NEW_ZERO_ARRAY(&g.continuations, count, "continuations"));
    TRY(NEW_ARRAY(&sequences, count, "continuations"));
    TRY(NEW_ARRAY(&tokens, count, "continuations"));
    g.count = count;
    TRY(begin(&g, prompts));
    TRY(alibi_session_new(&g.session, model,
                          &(struct alibi_session_options){ count, how->window_score }, call));
    for (int i = 0; i < count; i++)
        TRY(alibi_session_feed(g.session, i, g.continuations[i].prompt.at,
                               g.continuations[i].prompt.count));
    TRY(decode(&g, sequences, tokens));
out:
    alibi_session_free(g.session);
    for (int i = 0; i < g.count; i++) {
        text_free(&g.continuations[i].pieces.held);
        mem_free(g.continuations[i].prompt.at);
    }
    mem_free(g.continuations);
    mem_free(sequences);
    mem_free(tokens);
    return status;
}

/* ---- scores */

/* Scores in the pieces that a session reads at a time, so that a long text shows progress. */
static alibi_status score_all(alibi_session *session, const struct ids *before,
                              const struct ids *ids, struct alibi_scores *r, int64_t piece,
                              const struct alibi_call *call)
{
    double started = clock_seconds();
    int64_t total = before->count + ids->count;

    for (int64_t done = 0, some; done < total; done += some) {
        int64_t from = done - before->count, rest = from < 0 ? -from : ids->count - from;
        double seconds;

        some = rest < piece ? rest : piece;
        if (from < 0)
            TRY_RETURN(alibi_session_feed(session, 0, before->at + done, some));
        else
            TRY_RETURN(alibi_session_score(
                session, 0, ids->at + from, some, r->logprobs + from, r->alternatives,
                r->choices ? r->choices + from * r->alternatives : NULL));
        seconds = clock_seconds() - started;
        call_progress(call, &(struct alibi_progress){
                                .task = "score",
                                .unit = "tokens",
                                .done = done + some,
                                .total = total,
                                .seconds = seconds,
                                .seconds_left = seconds_left(seconds, done + some, total),
                                .tokens_per_s = seconds > 0 ? (double)(done + some) / seconds : 0,
                                .loss = NAN,
                            });
    }
    return ALIBI_OK;
}

alibi_status alibi_score(struct alibi_scores **out, const alibi_model *model, const char *prompt,
                         size_t prompt_bytes, const char *text, size_t bytes, int alternatives,
                         const struct alibi_call *call)
{
    alibi_status status;
    const alibi_tokenizer *t = model->tokenizer;
    struct alibi_scores *r = NULL;
    alibi_session *session = NULL;
    struct ids before = { 0 }, ids = { 0 };

    if (bytes == 0)
        return fail(ALIBI_BAD_INPUT, "there is no text to score");
    TRY(check_text(text, bytes, "text"));
    TRY((prompt_bytes > 0 ? tokenizer_encode_more : tokenizer_encode)(t, text, bytes, &ids));
    if (ids.count == 0)
        TRY(fail(ALIBI_BAD_INPUT, "the text has no tokens: there is nothing to score"));
    if (prompt_bytes > 0 || tokenizer_start(t) >= 0)
        TRY(encode_prompt(&before, t, prompt, prompt_bytes, "prompt"));
    TRY(model_check_length(model->model, before.count + ids.count));
    TRY(alibi_session_new(&session, model, NULL, call));
    TRY(NEW_ZERO_ARRAY(&r, 1, "scores"));
    r->count = ids.count;
    r->alternatives = alternatives;
    TRY(NEW_ARRAY(&r->logprobs, ids.count, "scores"));
    if (alternatives > 0)
        TRY(NEW_ARRAY(&r->choices, ids.count * alternatives, "alternatives"));
    TRY(score_all(session, &before, &ids, r, model->model->device->ops->traits.prefill_tokens,
                  call));
    for (int64_t i = before.count > 0 ? 0 : 1; i < r->count; i++) {
        r->logprob += r->logprobs[i];
        r->scored++;
    }
    r->ids = ids.at;
    ids.at = NULL;
    *out = r;
    r = NULL;
out:
    alibi_session_free(session);
    alibi_scores_free(r);
    mem_free(before.at);
    mem_free(ids.at);
    return status;
}

void alibi_scores_free(struct alibi_scores *scores)
{
    if (!scores)
        return;
    mem_free(scores->ids);
    mem_free(scores->logprobs);
    mem_free(scores->choices);
    mem_free(scores);
}
