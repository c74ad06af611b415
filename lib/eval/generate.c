/* generate.c - text from a model
 *
 *   prompt -> ids -> prefill in chunks -> logits -> token -> text
 *                                           ^---------|
 *
 * The cache holds keys and values of all positions; each further token costs one position. */
#include <string.h>

#include "eval/eval.h"
#include "checkpoint/checkpoint.h"

/* One generation under way. */
struct generation {
    struct model *model;
    const alibi_tokenizer *tokenizer;
    const struct alibi_sampling *sampling;
    struct pieces pieces;
    struct cache *cache;
    struct watch watch;
    struct ids prompt;
    float *logits;             /* [V] */
    struct candidate *scratch; /* [V] */
};

static void generation_fini(struct generation *g)
{
    text_free(&g->pieces.held);
    g->model->watch = NULL;
    watch_fini(&g->watch, g->model);
    cache_free(g->cache);
    mem_free(g->prompt.at);
    mem_free(g->logits);
    mem_free(g->scratch);
}

/* A word's token has a blank behind it, so the model has read one behind the prompt's last word.
 * Where the prompt itself has none it is held for the text to begin with. Of other tokenizers a
 * prompt ends in the very bytes of its last token. */
static alibi_status hold_blank(struct generation *g, char last)
{
    size_t bytes;
    const char *token = tokenizer_bytes(g->tokenizer, g->prompt.at[g->prompt.count - 1], &bytes);

    if (bytes == 0 || token[bytes - 1] != ' ' || strchr(" \t\r\v\f", last))
        return ALIBI_OK;
    return text_append_bytes(&g->pieces.held, " ", 1);
}

/* An empty prompt means the beginning of a document: what follows the end of the one before. */
static alibi_status encode_prompt(struct generation *g, const char *prompt, size_t bytes)
{
    size_t valid = utf8_valid_prefix(prompt, bytes);
    int32_t end = alibi_tokenizer_end(g->tokenizer);

    if (valid < bytes)
        return fail(ALIBI_BAD_INPUT, "the prompt is not UTF-8 text at byte %zu", valid);
    if (bytes > 0)
        TRY_RETURN(tokenizer_encode(g->tokenizer, prompt, bytes, &g->prompt));
    return g->prompt.count > 0 ? hold_blank(g, prompt[bytes - 1]) : ids_append(&g->prompt, &end, 1);
}

/* The last token asked for is never read, so the model sees one position less than there are
 * tokens. */
static alibi_status check_length(const struct generation *g)
{
    int64_t tokens = g->sampling->tokens;
    alibi_status status =
        model_check_length(g->model, g->prompt.count + (tokens > 0 ? tokens - 1 : 0));

    if (status == ALIBI_OK)
        return ALIBI_OK;
    return fail_context(status, "a prompt of %lld tokens and %lld more", (long long)g->prompt.count,
                        (long long)tokens);
}

static alibi_status check_stop(int64_t done)
{
    if (alibi_global_stop_requested())
        return fail(ALIBI_INTERRUPTED, "generate: stopped after %lld tokens", (long long)done);
    return ALIBI_OK;
}

static alibi_status generation_init(struct generation *g)
{
    TRY_RETURN(NEW_ARRAY(&g->logits, g->model->config.vocab, "logits"));
    TRY_RETURN(NEW_ARRAY(&g->scratch, g->model->config.vocab, "candidates"));
    g->model->skip = g->sampling->skip;
    g->model->watch =
        g->sampling->window_score > 0 ? &g->watch : NULL; /* it checks what the window relies on */
    return stream_begin(&g->cache, &g->watch, g->model, g->sampling->skip,
                        g->sampling->window_score);
}

static alibi_status prefill(struct generation *g)
{
    int64_t chunk = g->model->device->ops->traits.prefill_tokens;

    for (int64_t from = 0; from < g->prompt.count; from += chunk) {
        int64_t left = g->prompt.count - from;
        int64_t count = left < chunk ? left : chunk;

        TRY_RETURN(check_stop(0));
        TRY_RETURN(model_extend(g->model, g->cache, g->prompt.at + from, count,
                                count == left ? g->logits : NULL));
    }
    return ALIBI_OK;
}

/* The end of a document has no text; the end of a line, which is all that words have, does. */
static alibi_status write_token(struct generation *g, int32_t id, bool *ended)
{
    size_t bytes;
    const char *text = tokenizer_bytes(g->tokenizer, id, &bytes);

    *ended = id == alibi_tokenizer_end(g->tokenizer) && bytes == 0;
    return pieces_add(&g->pieces, text, bytes);
}

static alibi_status decode(struct generation *g)
{
    const struct alibi_sampling *s = g->sampling;
    bool ended = false;
    int32_t id;

    for (int64_t i = 0; i < s->tokens && !ended && !g->pieces.stopped; i++) {
        TRY_RETURN(check_stop(i));
        if (i > 0)
            TRY_RETURN(model_extend(g->model, g->cache, &id, 1, g->logits));
        TRY_RETURN(
            sample_token(&id, g->logits, g->model->config.vocab, s, (uint64_t)i, g->scratch));
        TRY_RETURN(write_token(g, id, &ended));
    }
    pieces_end(&g->pieces);
    return ALIBI_OK;
}

alibi_status alibi_generate(alibi_model *model, const char *prompt, size_t prompt_bytes,
                            const struct alibi_sampling *sampling,
                            bool (*emit)(void *user, const char *text, size_t bytes), void *user)
{
    alibi_status status;
    struct generation g = {
        .model = model->model,
        .tokenizer = model->tokenizer,
        .sampling = sampling,
        .pieces = { .emit = emit, .user = user },
    };

    TRY(sampling_check(sampling));
    TRY(evaluate_check_vocab(g.model, g.tokenizer, "the model's tokenizer"));
    TRY(encode_prompt(&g, prompt, prompt_bytes));
    TRY(check_length(&g));
    TRY(generation_init(&g));
    TRY(prefill(&g));
    TRY(decode(&g));
out:
    stop_clear(); /* whoever asked for a stop has it */
    generation_fini(&g);
    return status;
}
