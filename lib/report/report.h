/* report.h - the results of a comparison, for people and programs
 *
 * Each function appends a whole report to `out`. The same results give the same bytes. */
#ifndef REPORT_H
#define REPORT_H

#include "base/base.h"

/* A page that begins with this line among its first ones is ours and may be overwritten. */
#define REPORT_SIGN "<meta name=\"generator\" content=\"alibi\">"

/* ---- whether two measured losses differ (change.c) */

enum change_outcome {
    CHANGE_UNKNOWN,   /* a value is missing, or not a number */
    CHANGE_NOT_SHOWN, /* within error */
    /* Every seed shows it on this text, in the same direction, but so few seeds do not prove it for
     * another one: two that differ at random agree in half of all cases. One seed cannot get
     * further than this. */
    CHANGE_IN_THESE_SEEDS,
    CHANGE_SHOWN, /* |d| > interval, of the text and the seeds; chance does that in about 5% */
};

struct change {
    double d; /* mean over the seeds of a - b - offset, nats per token; < 0: a is better. Infinite
                 if one of them overflowed in some seed; shown if every seed goes that way */
    double error;    /* its standard error, of the text and, if there are several, of the seeds */
    double interval; /* d +- interval is the 95% interval */
    int seeds;       /* that have both values */
    enum change_outcome outcome;
};

/* The losses a[k] against b[k], k < seeds: the results of seed k, NULL where there is none. They
 * are paired seed by seed, and part by part if both scored the same tokens. b NULL: against 0, so
 * that offset is the number that a is compared with; otherwise offset is a margin. The 95% interval
 * is of one comparison, and covers neither another text nor a choice among many comparisons. */
struct change change_between(const struct alibi_eval_result *const *a,
                             const struct alibi_eval_result *const *b, int seeds, double offset);

/* Whether losses are clearly below that of token frequencies: by at least 5%, and shown or in these
 * seeds. A model whose losses are not has learned nothing. */
bool change_is_learning(const struct alibi_eval_result *const *seed, int seeds, double unigram_nll);

/* ---- reports */

/* Tables, a plot and a conclusion for a terminal of that many columns (40 to 140 are used). */
alibi_status report_text(struct text *out, const struct alibi_compare_result *r, int columns,
                         bool colour);
alibi_status report_json(struct text *out, const struct alibi_compare_result *r);
alibi_status report_csv(struct text *out, const struct alibi_compare_result *r);

/* Losses by step of a training, in bins of neighbouring steps: sums, and how many. */
enum { REPORT_BINS = ALIBI_POSITION_BINS };

struct report_bins {
    int64_t count[REPORT_BINS];
    double step[REPORT_BINS], loss[REPORT_BINS];
};

/* The log of one training. */
struct report_log {
    int method;    /* of the results */
    int64_t step;  /* the last one; 0: none yet */
    int64_t steps; /* that were asked for */
    struct report_bins train, valid;
    double last_valid, best_valid; /* of `validations`; the lowest is after best_step */
    int64_t validations, best_step;
};

/* Steps beyond the last one of the training are ignored. */
void report_bins_add(struct report_bins *bins, int64_t step, int64_t steps, double loss);

/* The logs of the trainings that were begun, and how far the work is. */
struct report_training {
    int logs;
    struct report_log *log;
    int models, done; /* trained and evaluated */
    int64_t refresh;  /* seconds after which the page of unfinished work reloads itself; 0: never */
};

/* One page that loads nothing from elsewhere. The second function is for a single training run,
 * which is the first method of the result and has no evaluations. */
alibi_status report_html(struct text *out, const struct alibi_compare_result *r,
                         const struct report_training *t);
alibi_status report_run_html(struct text *out, const struct alibi_compare_result *r,
                             const struct report_training *t);

/* Several training runs side by side (runs.c): methods of the result with the names of the runs,
 * and its steps are those of the longest. */
struct report_run {
    struct alibi_config config;
    struct alibi_training training;
    struct alibi_builtin builtin;
    struct alibi_corpus_info text; /* name and paths only */
};
alibi_status report_runs_html(struct text *out, const struct alibi_compare_result *r,
                              const struct report_run *runs, const struct report_training *t);

/* ---- experiments (experiment.c) */

enum { REPORT_NUMBER_NAME = 160 };

/* A number that a claim compares. */
struct report_number {
    char name[REPORT_NUMBER_NAME]; /* "alibi-512 at 1024", "" for a plain number */
    double value;                  /* NaN: not measured */
    double error;                  /* its standard error, as a share of it; of a score: itself */
    double paper;                  /* what the paper has for it; NaN: nothing */
    char quantity; /* 's': seconds per token, 'B': bytes, 'p': a score; otherwise a perplexity */
};

struct report_comparison {
    struct report_number left, right;
    bool above;      /* left is to be above right, not below */
    double margin;   /* ln, or of a score: below 0 "by" so much, above 0 "within" so much */
    double d, error; /* ln(left / right), or left - right of scores; NaN: not measured */
    int seeds;       /* that both have */
    bool ignorant, unlearned, few_seeds;
    enum alibi_verdict verdict;
};

const char *verdict_name(enum alibi_verdict verdict); /* "holds" */

struct report_claim {
    struct alibi_claim claim;
    int count;
    struct report_comparison *comparison;
};

/* A field of a line of CSV, after a comma unless it is the first. A field with a comma, a quote or
 * a line end is quoted, and its quotes are doubled. */
void append_field(struct text *out, const char *name, bool first);

/* One evaluation: its methods are the models, its lengths are in by_length. A training length of 0
 * means that models differ in it. */
struct report_section {
    const char *name, *about;
    char heading[192]; /* "perplexity, in windows that do not overlap" */
    bool windows;      /* they do not: the loss depends on the position in the window */
    struct alibi_compare_result *result;
};

/* Fixed targets with growing context, of one model: means over its seeds, errors of the text and
 * of the seeds. */
struct report_targets_model {
    int method;       /* among the models of the experiment */
    int seeds;        /* that have values */
    int reach;        /* enum alibi_reach; -1: not known */
    int far;          /* the longest context that has a value, of which `reach` is; an index */
    int home;         /* that of L */
    bool ceiling;     /* trained at the longest context or more: what the others might reach */
    int64_t falls_to; /* from L up to here each step to the next context gains, at 95%; L: none */
    double share;     /* its gain at `far` as a share of the largest of a ceiling; NaN: not known */
    struct alibi_target_results kind[ALIBI_TARGET_KINDS]; /* NaN: no value */
    /* The lowest and the highest loss of a seed; NaN: no value. */
    double low[ALIBI_TARGET_KINDS][ALIBI_LIST_MAX], high[ALIBI_TARGET_KINDS][ALIBI_LIST_MAX];
};

/* In nats per token: if a ceiling gains less, the text cannot judge a method. */
#define CEILING_GAIN_LEAST 0.01

struct report_targets {
    const char *name, *about;
    bool few;     /* few documents: errors treat blocks as independent, so they are too small */
    int64_t near; /* L of all but ceilings; 0: models differ in it */
    int64_t documents, blocks, block;
    double ceiling_gain; /* the largest of a ceiling over L, with the longest context; NaN: none */
    int contexts;        /* of each model, the same for all */
    int models;
    struct report_targets_model *model;
};

/* Where the attention of one model goes, at one length. Heads of different seeds have nothing in
 * common, unless the method fixes what distinguishes them, as ALiBi does. */
struct report_attention_model {
    int method;
    int seeds;
    const struct alibi_attention_result *seed[ALIBI_LIST_MAX];
};

/* The mean over heads, layers and seeds. */
struct alibi_head_attention attention_mean(const struct report_attention_model *m);

struct report_attention {
    const char *name, *about;
    int64_t length;
    int models;
    struct report_attention_model *model;
};

/* A task at growing lengths, of one model over its seeds. */
struct report_score {
    double score, error;  /* NaN: no value. The error is that of the cases and of the seeds */
    double low, high;     /* the 95% interval of the cases */
    int seeds, unlearned; /* with a value; without one, because they have not learned the task */
    double nll, bayes;    /* Bayes' loss: of the chain, else NaN */
    double depth[ALIBI_DEPTHS_MAX]; /* NaN: nothing was there */
};

struct report_task_model {
    int method;
    int seeds; /* that were tested */
    struct report_score at[ALIBI_LIST_MAX];
    /* For the chain, at the longest length that has a value: the loss by position and Bayes' loss,
     * as means over the seeds; and the range of the difference, because every seed has different
     * windows. */
    int64_t length;
    int bins;
    struct report_position {
        int64_t first, last;
        double nll, bayes, low, high;
    } position[ALIBI_POSITION_BINS];
};

struct report_task {
    const char *name, *about; /* of the evaluation */
    const char *task, *summary;
    bool chain, has_depth;
    double chance;
    int64_t near; /* L; 0: models differ in it */
    int64_t cases, depths;
    const struct alibi_int_list *lengths;
    int models;
    struct report_task_model *model;
};

/* The cost of a model at a length: seconds per token, bytes; errors are relative. */
struct report_cost {
    int method; /* among the models of the experiment */
    const char *machine;
    int64_t length;
    double train_seconds, train_error, train_memory, eval_seconds, eval_error, eval_memory;
};

/* The cost of a token after a context, for one model: means over its seeds. Seconds are per token,
 * errors are relative. */
struct report_stream_model {
    int method;
    struct report_stream_cost {
        int seeds; /* 0: no value */
        double read_seconds, read_error, decode_seconds, decode_error, cache_bytes;
    } at[ALIBI_LIST_MAX];
};

struct report_stream {
    const char *name, *about, *machine;
    const struct alibi_int_list *lengths; /* the contexts */
    int models;
    struct report_stream_model *model;
};

/* The numbers that a method has learned for each head, in the layers of a kind or in one layer, for
 * one seed. */
struct report_numbers {
    const char *name; /* "slopes", "logn" */
    int method;
    int64_t seed;  /* -1: the model has one */
    int64_t place; /* -1: there is only one */
    int64_t heads;
    const double *value;
};

struct report_experiment {
    const char *name, *title, *about, *tier, *tier_about;
    int claims, sections;
    struct report_claim *claim;
    struct report_section *section;
    int targets, attentions;
    struct report_targets *target;      /* one per evaluation */
    struct report_attention *attention; /* one per evaluation and length */
    int tasks;
    struct report_task *task; /* one per evaluation and task, those of one evaluation together */
    int streams;
    struct report_stream *stream; /* one per evaluation */
    int64_t numbers_count, numbers_room;
    struct report_numbers *numbers; /* by model, then by seed */
    int costs;
    struct report_cost *cost;
    const char *model[ALIBI_LIST_MAX]; /* the names of all */
    struct text derived; /* a line for each model that has the weights of another; may be empty */
    int64_t train_length[ALIBI_LIST_MAX]; /* of all */
    bool absent[ALIBI_LIST_MAX];          /* neither trained nor measured yet */
    bool untrained[ALIBI_LIST_MAX];       /* has the weights of another model */
    int original[ALIBI_LIST_MAX];         /* of which, if so */
    int trainings, trained;
    /* Only the page has logs. Here every seed counts as a model, also of models that have the
     * weights of another. */
    struct report_training training;
};

alibi_status report_experiment_text(struct text *out, const struct report_experiment *x,
                                    int columns, bool colour);
/* Every section must have all models, in one order. */
alibi_status report_experiment_html(struct text *out, const struct report_experiment *x);

#endif
