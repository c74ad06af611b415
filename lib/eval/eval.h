/* eval.h - how well a model predicts a text, and what it would write itself
 *
 *   windows (which tokens are read and scored) -> evaluate (runs the model over them) -> score
 *   (sums, spread, bins) generate (prefill, decode) -> sample (the next token) -> pieces (whole
 *   characters) */
#ifndef EVAL_H
#define EVAL_H

#include "model/model.h"
#include "text/text.h"

/* ---- windows (windows.c)
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

/* Evaluates on a span, whatever the model was trained at. `task` names the work in progress
 * reports. */
alibi_status evaluate_span(struct model *m, struct span span, const struct alibi_eval *eval,
                           const char *task, struct alibi_eval_result *result);

/* ALIBI_BAD_INPUT if ids of that tokenizer do not fit the model; `what` is whose tokenizer it is.
 * */
alibi_status evaluate_check_vocab(const struct model *m, const alibi_tokenizer *t,
                                  const char *what);

/* ---- stream (stream.c) */

/* ALIBI_BAD_INPUT if the position method marks tokens by their place in the text, so that a context
 * cannot go on for ever. */
alibi_status stream_check(const struct model *m);

/* The cache of one sequence, with the window that a budget and a largest score allow (0: none), and
 * in the watch the score that the window relies on. */
alibi_status stream_begin(struct cache **cache, struct watch *watch, struct model *m, double skip,
                          double window_score);

/* ---- sample (sample.c) */

struct candidate {
    int32_t id;
    float logit;
};

alibi_status sampling_check(const struct alibi_sampling *s);

/* The id of token number `index` of a generation. scratch [V]. ALIBI_NUMERIC if a logit is not
 * finite. */
alibi_status sample_token(int32_t *id, const float *logits, int64_t V,
                          const struct alibi_sampling *s, uint64_t index,
                          struct candidate *scratch);

/* ---- pieces (pieces.c) */

/* Bytes on their way out: those that may still become a character are held back. Start from {0};
 * text_free(&p->held). */
struct pieces {
    bool (*emit)(void *user, const char *text, size_t bytes);
    void *user;
    struct text held;
    bool stopped; /* emit said so */
};

alibi_status pieces_add(struct pieces *p, const char *bytes, size_t count);
void pieces_end(struct pieces *p); /* what is still held can no longer become a character */

#endif
