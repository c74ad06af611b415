/* eval.h - how well a model predicts a text, and the text that it generates
 *
 *   evaluate: windows (which tokens are read and scored) -> the model -> score (sums, spread, bins)
 *   probe:    targets (blocks deep inside documents) -> growing contexts -> estimates
 *   session:  feed, step, score -> sample (the next token)
 *   generate: prompts -> a session -> pieces (whole characters) */
#ifndef EVAL_H
#define EVAL_H

#include "comm/comm.h"
#include "model/model.h"
#include "text/tasks.h"

/* ---- windows (windows.c)
 *
 * The targets are tokens 1..n of a span. Blocks are the targets that are scored; they depend only
 * on the text and the request. Windows are the tokens that the model reads to score them. */

/* `count` blocks of `size` targets each. Block k has the targets after its start:
 * t[start + 1] .. t[start + size]. */
struct blocks {
    int64_t all, size, count;
    int64_t first; /* start of block 0; not 0 only if there is one block, from the middle */
};

/* `tokens` and `size` as in struct alibi_eval; both may be 0. */
struct blocks blocks_of(int64_t all, int64_t tokens, int64_t size, bool contiguous);
/* Blocks for windows that are read and not scored: at most `most`, one window each, spread over the
 * tokens; a single one is from the middle. */
struct blocks blocks_spread(int64_t tokens, int64_t length, int64_t most);
int64_t blocks_start(const struct blocks *b, int64_t k);

/* The number of parts, which are the units of the standard error, and the part of a target. `index`
 * counts targets over all blocks. */
int blocks_parts(const struct blocks *b);
int blocks_part(const struct blocks *b, int64_t index);

/* With length L and stride S, the windows of a block that starts at s begin c = min(s, L - S)
 * tokens before it. Window j of that block has l = min(L, s + size - start) inputs:
 *
 *   start    s - c + jS
 *   inputs   t[start] .. t[start + l - 1]
 *   targets  t[start + 1] .. t[start + l]
 *   scored   those from index c on for j = 0, those from index L - S on for j > 0
 *
 * so every target of the block is scored exactly once, with at least L - S + 1 tokens of context
 * unless it is near the start of the span. S = L is the nonoverlapping protocol. Windows have
 * consecutive numbers: first the full ones of all blocks, then the shorter last ones. */
struct windows {
    struct blocks blocks;
    int64_t length, stride, count;
    int64_t full[2], tail[2]; /* of block 0, and of every other block: its windows of L inputs, and
                                 the inputs of its shorter last one; 0: it has none */
    int64_t scored;           /* targets of all windows */
    struct window *list; /* the windows of a foreign protocol, mem_free; NULL: the rule above */
    int64_t capacity;
    int64_t extra_words; /* words that the protocol counts although the text does not have them */
};

struct window {
    int64_t start; /* of the inputs within the span */
    int64_t inputs;
    int64_t first; /* index of the first target that is scored */
    int64_t index; /* of that target, counted over the blocks; in a list its place in the span */
    bool begins;   /* the begin token, or else the end token, replaces t[start]; start may be -1 */
    int64_t uncounted; /* the window's mean loss counts for this many targets fewer than it has */
};

struct windows windows_of(struct blocks blocks, int64_t length, int64_t stride);
struct window windows_at(const struct windows *w, int64_t k);

/* ---- protocols (protocols.c) */

/* The protocols of other programs are called foreign. They read the split, or its first tokens, by
 * rules of their own. */
bool protocol_is_foreign(int protocol);
int64_t protocol_least_length(int protocol);
alibi_status protocol_check_text(struct span span, const struct alibi_eval *eval); /* foreign */

/* The windows of a foreign protocol. The caller releases w->list with mem_free(), after a failure
 * too. */
alibi_status protocol_windows(struct windows *w, struct span span, const struct alibi_eval *eval);

/* ---- score (score.c) */

struct score {
    struct blocks blocks;
    int64_t tokens;
    double nll;                  /* sum */
    double counted, counted_nll; /* tokens and nll without the `uncounted` targets of windows */
    struct alibi_eval_part part[ALIBI_EVAL_PARTS];
    int64_t bin_tokens[ALIBI_POSITION_BINS];
    double bin_nll[ALIBI_POSITION_BINS];
};

/* Losses by position are in bins that double, as attention by distance is (reach_bin()): 0, 1,
 * 2..3, 4..7, ... The first position of a bin, and its last one below `length`. */
int64_t bin_first(int bin);
int64_t bin_last(int bin, int64_t length);

/* Adds the targets first..inputs-1 of a window, whose position in the bins is counted from
 * `position`; false if one is not finite, and then nothing is added. */
bool score_window(struct score *s, const float *nll, const struct window *w, int64_t position);

/* nll, standard error, perplexity, bins and parts. words and bytes are those of the scored tokens;
 * length bounds the last bin. */
void score_result(const struct score *s, int64_t length, int64_t words, int64_t bytes,
                  struct alibi_eval_result *result);

/* The standard error of sum y / sum x over parts of x tokens with a loss of y; infinite if there is
 * only one. */
double parts_error(const struct alibi_eval_part *part, int parts);

/* ---- rounds (rounds.c): batches divided among the ranks of a call */

struct rounds {
    const struct alibi_call *call;
    int64_t count; /* windows */
    size_t bytes;  /* of the numbers of a batch */
    void *user;
    /* The number of windows in the batch that begins with window k. */
    int64_t (*rows)(void *user, int64_t k);
    /* Computes the numbers of a batch; called on one rank. */
    alibi_status (*compute)(void *user, int64_t k, int64_t rows, void *numbers);
    /* Uses the numbers of a batch; called on every rank, in the order of the batches. If it fails
     * on one rank, all ranks fail. */
    alibi_status (*add)(void *user, int64_t k, int64_t rows, const void *numbers);
    alibi_status (*stopped)(void *user); /* makes the error of a stop request */
};

/* The number of windows of `inputs` inputs that a device reads at a time: enough to keep it busy,
 * at least 1 and at most `left`. */
int64_t rounds_rows(const struct device *dev, int64_t inputs, int64_t left);

/* Runs all batches. All ranks return the same status. */
alibi_status rounds_run(const struct rounds *r);

/* ALIBI_USAGE if ranks have different models, texts, skipping budgets or requests. */
alibi_status rounds_check(const alibi_model *model, const alibi_corpus *corpus, const void *request,
                          size_t bytes, const struct alibi_call *call);

/* ---- evaluate (evaluate.c) */

/* The targets of a span that are scored. */
struct blocks eval_blocks(struct span span, const struct alibi_eval *eval);

/* Evaluates on a span, at lengths below and above the training length. `task` names the work in
 * progress reports. */
alibi_status evaluate_span(const struct model *m, struct span span, const struct alibi_eval *eval,
                           const char *task, struct alibi_eval_result *result,
                           const struct alibi_call *call);

/* The number of tokens that a stream reads at a time. */
enum { STREAM_TOKENS = 8 * ATTENTION_TILE };

/* Reports progress in tokens, at most five times a second, and when all are done. loss NaN: none.
 * The caller sets both times from clock_seconds(). */
void report_tokens(const struct alibi_call *call, const char *task, int64_t done, int64_t all,
                   double loss, double started, double *reported);

/* ALIBI_BAD_INPUT if the tokenizer has more ids than the model; `what` says whose tokenizer it is.
 * The model may have more: padding. */
alibi_status evaluate_check_vocab(const struct model *m, const alibi_tokenizer *t,
                                  const char *what);

/* ALIBI_BAD_INPUT if the text has another tokenizer than the model: vocabularies of the same size
 * need not have the same ids. */
alibi_status evaluate_check_tokenizer(const alibi_tokenizer *model, const alibi_corpus *corpus);

/* unigram.c is the baseline: a model that knows how frequent tokens are and nothing else. */

/* ---- targets (targets.c), for probe.c */

/* A block of targets: tokens start..start+T-1 of the span. */
struct target_block {
    int64_t start;
    int64_t document; /* 0.., counted over the documents that have blocks */
    int64_t other;    /* the start of the block whose far context replaces its own; -1: none */
};

struct targets {
    struct target_block *at; /* mem_free */
    int64_t count, documents;
    int64_t short_documents; /* documents without room for a block */
    bool swappable;          /* every block has another */
};

/* At most `blocks` blocks of `block` targets, each at least `context` tokens into its document.
 * ALIBI_BAD_INPUT if no document is that long. */
alibi_status targets_new(struct targets *t, struct span span, int64_t context, int64_t block,
                         int64_t blocks);

/* The longest document, its end token included. */
alibi_status targets_longest(int64_t *tokens, struct span span);

/* Which targets repeat far text: the n-gram that ends with the target occurred within the context,
 * and its last copy ended more than `near` tokens before the block. ids [context + block], the
 * block at their end; repeats [block]. */
void targets_mark(const int32_t *ids, int64_t context, int64_t near, int64_t block, int64_t gram,
                  bool *repeats);

/* ---- losses of fixed targets (targets.c, probe.c) */

/* own: the model and the text as they are. swapped: text more than L tokens before the block is
 * replaced by other text. window: attention is cut to the last L keys. The last two exist only for
 * contexts beyond L. */
enum target_condition { TARGETS_OWN, TARGETS_SWAPPED, TARGETS_WINDOW, TARGET_CONDITIONS };

extern const char *const target_condition_names[]; /* "own", "swapped", "window" */
extern const char *const target_kind_names[];      /* "all", "repeats", "others" */

/* The spread of fewer documents than this says little, so blocks are the units instead. */
enum { TARGETS_FEW_DOCUMENTS = 8 };

/* The mean loss of each kind of targets after each context under each condition, as evaluations
 * that alibi_eval_difference() can pair: the length is the context, and the parts are documents,
 * or blocks if there are fewer than 8 documents. Neighbouring parts are joined if there are more
 * than ALIBI_EVAL_PARTS. An evaluation without tokens was not measured, or has no such target. */
struct target_losses {
    struct alibi_targets request;        /* resolved */
    int64_t blocks, documents;           /* scored */
    int64_t start, available;            /* as in struct alibi_eval_result */
    int parts;                           /* 0: nothing was measured */
    int64_t tokens[ALIBI_EVAL_PARTS][2]; /* repeats, others */
    struct alibi_eval_result (*at)[TARGET_CONDITIONS][ALIBI_TARGET_KINDS]; /* [contexts] */
};

/* Sets the evaluations of a context (an index) and a condition from the summed losses of repeats
 * and others, part by part. nll NULL: not measured. */
void target_losses_set(struct target_losses *t, int context, int condition, const double (*nll)[2]);

/* Fills in L, the block, and the contexts with L among them. */
alibi_status targets_resolve(struct alibi_targets *targets, int64_t train_length);

/* Drops the contexts of a resolved request that a document of `document` tokens has no room for;
 * false if the remaining ones are of no use. */
bool targets_trim(struct alibi_targets *targets, int64_t document);

/* The largest number of tokens that a resolved request reads. */
double targets_inputs(const struct alibi_targets *targets);

/* The request must be resolved, and losses->at must have room for its contexts. Contexts beyond the
 * last position of the method are not measured. */
alibi_status probe_losses(const alibi_model *model, const alibi_corpus *corpus,
                          enum alibi_split split, const struct alibi_targets *targets,
                          struct target_losses *losses, const struct alibi_call *call);

/* The verdict on the longest context: enum alibi_reach. The 95% interval is +- t errors. */
int targets_reach(const struct alibi_target_context *far, double t);
/* The context up to which every step from `near` gains, among `count` contexts. */
int64_t targets_fall(const struct alibi_target_context *at, int count, int64_t near, double t);

/* ---- answers (answers.c): a model's answers to a task */

struct answers_job {
    const struct model *model;
    struct task_windows windows;
    int64_t cases;  /* windows 0..cases-1 */
    int64_t depths; /* equal parts of a window by which scores are summed */
    int64_t ids;    /* the answer is the likeliest of the ids below this; 0: losses only */
    double skip;
    const struct alibi_call *call;
    void (*progress)(void *user, int64_t tokens); /* tokens read since its last call; may be NULL */
    void *user;
};

/* Sums over cases. For the chain, the score of a case is its mean loss above Bayes' loss. */
struct answers {
    int64_t cases;
    double sum, squares; /* of the scores */
    int64_t tokens;      /* of the answers */
    double nll, bayes;   /* of these; bayes: of the chain */
    int64_t depth_answers[ALIBI_DEPTHS_MAX];
    double depth_score[ALIBI_DEPTHS_MAX];
    int64_t bin_tokens[ALIBI_POSITION_BINS]; /* the chain, by position */
    double bin_nll[ALIBI_POSITION_BINS], bin_bayes[ALIBI_POSITION_BINS];
};

alibi_status answers_take(struct answers *out, const struct answers_job *job);

/* Drops the lengths at which the first task of a request, whose L is known, does not fit the text;
 * ALIBI_BAD_INPUT if it does not fit at L. */
alibi_status tasks_trim(struct alibi_tasks *tasks, const alibi_tokenizer *t, struct span text);

/* ---- stream (stream.c) */

/* ALIBI_BAD_INPUT if the position method numbers the tokens of a text, so that a context cannot
 * continue without end. */
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

/* Chooses an id below `ids` for token number `index` of a generation. scratch [ids]. ALIBI_NUMERIC
 * if a logit is not finite. */
alibi_status sample_token(int32_t *id, const float *logits, int64_t ids,
                          const struct alibi_sampling *s, uint64_t index,
                          struct candidate *scratch);

double log_sum_exp(const float *logits, int64_t V);

/* The `count` likeliest of the ids below `ids`, likeliest first, equal ones by id. A logprob is
 * logit - normaliser. */
void sample_likeliest(struct alibi_choice *out, int count, const float *logits, int64_t ids,
                      double normaliser);

/* ---- generate (generate.c) */

/* Text is emitted in whole characters: bytes that may still become a character are held back.
 * Initialise with {0}; release with text_free(&p->held). */
struct pieces {
    bool (*emit)(void *user, const char *text, size_t bytes);
    void *user;
    struct text held;
    bool stopped; /* emit returned false */
};

alibi_status pieces_add(struct pieces *p, const char *bytes, size_t count);
void pieces_end(struct pieces *p); /* bytes still held can no longer become a character */

/* The ids of a text at the beginning of a document, after the begin token if the tokenizer has one.
 * Without a begin token, an empty text is the end token of the previous document. `what` is the
 * name of the text in messages. */
alibi_status encode_prompt(struct ids *ids, const alibi_tokenizer *t, const char *text,
                           size_t bytes, const char *what);

#endif
