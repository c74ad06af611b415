/* llamacpp_scores.c - merges for tokens that a GGUF file has with scores
 *
 * llama.cpp starts with the characters of a text. Among all neighbours that together form a token,
 * it joins those whose token has the highest score, the leftmost if several have it, until none
 * remain. That is BPE with a merge for each way to cut a token in two, by descending score of the
 * token, as long as the characters of tokens are tokens and no two of them have the same score.
 *
 * Only the ways to cut one token have a rank of their own here, and one score there. The order
 * matters if both "ab|a" and "a|ba" can be joined within "ab|a|ba". The one with the longer left
 * part is first, because it is further left. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "exchange/exchange.h"

/* A token cut in two. */
struct cut {
    double score;
    int32_t token;
    size_t left; /* bytes */
};

static int compare_texts(const void *a, const void *b)
{
    const struct slice *s = &((const struct scored_token *)a)->text,
                       *t = &((const struct scored_token *)b)->text;

    if (s->bytes != t->bytes)
        return s->bytes < t->bytes ? -1 : 1;
    return s->bytes > 0 ? memcmp(s->at, t->at, s->bytes) : 0;
}

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *s = a, *t = b;

    if (s->score != t->score)
        return s->score > t->score ? -1 : 1;
    if (s->token != t->token)
        return s->token < t->token ? -1 : 1;
    return s->left > t->left ? -1 : s->left < t->left;
}

static bool is_token(const struct scored_token *sorted, int64_t count, const char *at, size_t bytes)
{
    const struct scored_token wanted = { .text = { at, bytes } };

    return bsearch(&wanted, sorted, (size_t)count, sizeof *sorted, compare_texts) != NULL;
}

/* Where the character that starts at `at` ends. */
static size_t character_end(struct slice text, size_t at)
{
    do
        at++;
    while (at < text.bytes && utf8_continues(text.at[at]));
    return at;
}

static alibi_status check_token(const struct scored_token *t, const struct scored_token *sorted,
                                int64_t count, const char *path)
{
    struct slice text = t->text;
    int shown = (int)(text.bytes < 60 ? text.bytes : 60);

    if (!isfinite(t->score) || utf8_valid_prefix(text.at, text.bytes) < text.bytes)
        return fail(ALIBI_BAD_INPUT, "'%s': token %d %s", path, (int)t->id,
                    isfinite(t->score) ? "is not UTF-8" : "has no finite score");
    for (size_t at = 0, end; at < text.bytes; at = end) {
        end = character_end(text, at);
        if (!is_token(sorted, count, text.at + at, end - at))
            return fail(ALIBI_BAD_INPUT,
                        "'%s': '%.*s', a character of the token '%.*s', is not a token", path,
                        (int)(end - at), text.at + at, shown, text.at);
    }
    return ALIBI_OK;
}

/* All cuts of the tokens into two tokens, by rank. */
static alibi_status find_cuts(struct cut **out, int64_t *cut_count,
                              const struct scored_token *sorted, int64_t count)
{
    struct cut *cuts = NULL;
    int64_t most = 0, n = 0;

    for (int64_t i = 0; i < count; i++)
        for (size_t at = 0; at < sorted[i].text.bytes; at = character_end(sorted[i].text, at))
            most++;
    TRY_RETURN(NEW_ARRAY(&cuts, most, "the merges of a tokenizer"));
    for (int64_t i = 0; i < count; i++) {
        struct slice t = sorted[i].text;
        for (size_t at = character_end(t, 0); at < t.bytes; at = character_end(t, at))
            if (is_token(sorted, count, t.at, at) &&
                is_token(sorted, count, t.at + at, t.bytes - at))
                cuts[n++] = (struct cut){ sorted[i].score, (int32_t)i, at };
    }
    if (n > 0)
        qsort(cuts, (size_t)n, sizeof *cuts, compare_cuts);
    *out = cuts;
    *cut_count = n;
    return ALIBI_OK;
}

/* A token may have a cut after every character, and each cut spells the whole token. So merges may
 * take n^1.5 bytes for n bytes of tokens. */
static alibi_status check_bytes(const struct cut *cuts, int64_t cut_count,
                                const struct scored_token *sorted, const char *path)
{
    size_t bytes = 0;

    for (int64_t i = 0; i < cut_count; i++)
        bytes = size_sum(bytes, sorted[cuts[i].token].text.bytes);
    if (bytes > TOKENIZER_BYTES_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': the merges of its tokens would take more than %d bytes, the most that a "
                    "tokenizer may have",
                    path, TOKENIZER_BYTES_MAX);
    return ALIBI_OK;
}

alibi_status llamacpp_merges(struct text *json, struct scored_token *tokens, int64_t count,
                             const char *path)
{
    alibi_status status = ALIBI_OK;
    struct cut *cuts = NULL;
    int64_t cut_count = 0;

    if (count > 0)
        qsort(tokens, (size_t)count, sizeof *tokens, compare_texts);
    for (int64_t i = 0; i < count; i++)
        TRY(check_token(&tokens[i], tokens, count, path));
    TRY(find_cuts(&cuts, &cut_count, tokens, count));
    TRY(check_bytes(cuts, cut_count, tokens, path));
    for (int64_t i = 0; i < cut_count; i++) {
        const struct cut *c = &cuts[i];
        struct slice text = tokens[c->token].text;
        if (i > 0 && c->score == c[-1].score && c->token != c[-1].token)
            TRY(fail(
                ALIBI_BAD_INPUT,
                "'%s': the tokens %d and %d have the same score, so their merges have no order",
                path, (int)tokens[c[-1].token].id, (int)tokens[c->token].id));
        text_append(json, i > 0 ? ",\n[" : "[");
        json_append_string(json, text.at, c->left);
        text_append(json, ", ");
        json_append_string(json, text.at + c->left, text.bytes - c->left);
        text_append(json, "]");
    }
    TRY(text_status(json));
out:
    mem_free(cuts);
    return status;
}
