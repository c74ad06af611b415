/* eval.h - how well a model predicts a text, and what it would write itself
 *
 *   evaluate: windows (which tokens are read and scored) -> the model -> score (sums, spread, bins)
 *   session:  feed, step, score -> sample (the next token)
 *   generate: prompts -> a session -> pieces (whole characters) */
#ifndef EVAL_H
#define EVAL_H

#include "model/model.h"
#include "text/text.h"

/* ---- windows (evaluate.c)
 *
 * The targets are tokens 1..n of a span. With length L and stride S, window k has l = min(L, n -
 * kS) inputs and
 *
 *   inputs   t[kS] .. t[kS + l - 1]
 *   targets  t[kS + 1] .. t[kS + l]
 *   scored   all of them for k = 0, those from index L - S on for k > 0
 *
 * so every target is scored exactly once. S = L is the nonoverlapping protocol. */

struct windows {
    int64_t length, stride, targets, count;
};

struct window {
    int64_t start;  /* of the inputs within the span */
    int64_t inputs; /* the last window may be shorter */
    int64_t first;  /* index of the first target that is scored */
};

struct windows windows_of(int64_t length, int64_t stride, int64_t targets);
struct window windows_at(const struct windows *w, int64_t k);

/* ---- score (score.c) */

/* Units (windows or tokens) with a total y over x tokens each. Sums are taken about `centre`, the
 * first unit's mean, so that equal units give a spread of zero and not of rounding. */
struct spread {
    int64_t units;
    double centre;
    double dd, dx, xx; /* sums of d^2, d x, x^2 with d = y - centre * x */
};

struct score {
    int64_t tokens;
    double nll; /* sum */
    struct spread by_window, by_token;
    int64_t bin_tokens[ALIBI_POSITION_BINS];
    double bin_nll[ALIBI_POSITION_BINS];
};

/* Adds the targets first..count-1 of a window, which are at `position` + first, ... for the bins;
 * false if one is not finite, and then nothing is added. */
bool score_window(struct score *s, const float *nll, int64_t first, int64_t count,
                  int64_t position);

/* nll, standard error, perplexity and bins. words and bytes are those of the scored tokens; length
 * bounds the last bin. */
void score_result(const struct score *s, int64_t length, int64_t words, int64_t bytes,
                  struct alibi_eval_result *result);

/* ---- evaluate (evaluate.c) */

/* Evaluates on a span, at lengths below and above the training length. `task` names the work in
 * progress reports. */
alibi_status evaluate_span(const struct model *m, struct span span, const struct alibi_eval *eval,
                           const char *task, struct alibi_eval_result *result,
                           const struct alibi_call *call);

/* ALIBI_BAD_INPUT if the tokenizer has more ids than the model; `what` says whose tokenizer it is.
 * The model may have more: padding. */
alibi_status evaluate_check_vocab(const struct model *m, const alibi_tokenizer *t,
                                  const char *what);

/* ---- stream (stream.c) */

/* ALIBI_BAD_INPUT if the position method marks tokens by their position in the text, so that a
 * context cannot continue without end. */
alibi_status stream_check(const struct model *m);

/* The window of a KV cache that a skipping budget and a largest score allow; score 0: no window. */
alibi_status stream_window(struct cache_window *out, const struct model *m, double skip,
                           double window_score);

/* ---- sample (sample.c) */

struct candidate {
    int32_t id;
    float logit;
};

alibi_status sampling_check(const struct alibi_sampling *s);

/* The id, below `ids`, of token number `index` of a generation. scratch [ids]. ALIBI_NUMERIC if a
 * logit is not finite. */
alibi_status sample_token(int32_t *id, const float *logits, int64_t ids,
                          const struct alibi_sampling *s, uint64_t index,
                          struct candidate *scratch);

double log_sum_exp(const float *logits, int64_t V);

/* The `count` likeliest of the ids below `ids`, likeliest first, equal ones by id. A logprob is
 * logit - normaliser. */
void sample_likeliest(struct alibi_choice *out, int count, const float *logits, int64_t ids,
                      double normaliser);

/* ---- generate (generate.c) */

/* Bytes on their way out: those that may still become a character are held back. Start from {0};
 * text_free(&p->held). */
struct pieces {
    bool (*emit)(void *user, const char *text, size_t bytes);
    void *user;
    struct text held;
    bool stopped; /* emit returned false */
};

alibi_status pieces_add(struct pieces *p, const char *bytes, size_t count);
void pieces_end(struct pieces *p); /* bytes still held can no longer become a character */

/* The ids of a text, `what` in messages. An empty one is the beginning of a document: the end token
 * of the one before. */
alibi_status encode_after_end(struct ids *ids, const alibi_tokenizer *t, const char *text,
                              size_t bytes, const char *what);

#endif
