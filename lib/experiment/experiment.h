/* experiment.h - an experiment: its texts, models, evaluations and claims, and the results so far
 *
 *   read*.c     the file into the structs below, everything checked before anything runs
 *   request.c   what the caller asks for: texts and models
 *   folder.c    the folder: experiment.json, and the results of each model, read and written
 *   texts.c     text files into a tokenizer, shards and a corpus
 *   run.c       trains and evaluates what is missing
 *   speed.c     evaluations of kind `speed`
 *   probes.c    evaluations of the kinds `targets` and `attention`: requests, result.json
 *   probes_report.c   the same over all seeds
 *   tasks.c     evaluations of kind `tasks`: requests, result.json, scores and claims
 *   tasks_report.c    the same over all seeds
 *   learned.c   what position methods have learned for each head
 *   streams.c   evaluations of kind `stream`: result.json, means over the seeds, results.json
 *   claims.c    the verdict on each claim
 *   plan.c      the cost of the remaining work
 *   results.c   results.json, results.csv, report.html, the terminal
 *
 *   dir/experiment.json              the experiment as it was run: its tier applied
 *   dir/texts/<text>.json            what the text is, and the loss of its token frequencies
 *   dir/texts/<text>/                its tokenizer and shards
 *   dir/models/<model>-seed-<n>/     the training run, and result.json: its results so far
 *   dir/<evaluation>.json            results of kind `speed`, which belong to no model
 *   dir/results.json, results.csv, report.html
 *
 * The JSON files are small and sufficient: with them alone, on another machine, finished models are
 * not trained again, and the report can be written without the texts. */
#ifndef EXPERIMENT_H
#define EXPERIMENT_H

#include "base/json.h"
#include "bench/bench.h"
#include "checkpoint/checkpoint.h"
#include "eval/eval.h"
#include "report/report.h"
#include "text/text.h"

enum { EXPERIMENT_VERSION = 1, EXPERIMENT_BYTES_MAX = 1 << 20, CURVE_POINTS = REPORT_BINS };

/* ---- the file */

enum text_kind { TEXT_BYTES, TEXT_BPE, TEXT_WORDS, TEXT_KINDS };
extern const char *const text_kind_names[TEXT_KINDS];

struct experiment_text {
    char name[ALIBI_NAME_MAX];
    const char *about;
    int tokenizer;                 /* enum text_kind */
    struct alibi_vocabulary words; /* what is learned, unless it is bytes; its pattern is owned */
    int tokenizer_of;              /* the text whose tokenizer it uses; -1: its own */

    /* Given by the caller: files, or the built-in text if there are none. */
    char **paths, *valid;
    int count;

    /* From the folder, or from the opened corpus. checksum 0: not known yet. The checksums of files
     * cover their bytes and how they are read; 0: not known. */
    int64_t files_checksum, files_bytes, valid_checksum;
    bool same; /* the folder's unfinished tokenizer and shards are the requested ones */
    struct alibi_corpus_info info;
    struct alibi_builtin builtin;
    int64_t text_checksum, tokenizer_checksum;
    bool own_valid;
    char type[ALIBI_NAME_MAX];
    int unigrams; /* losses of token frequencies, for each way to choose the scored tokens */
    struct {
        int64_t tokens, block;
        double nll;
    } unigram[ALIBI_LIST_MAX];
    alibi_corpus *corpus; /* NULL: not open */
    double estimated;     /* tokens of its validation split, by text_estimate(); 0: not known */
};

/* One test of a model: a length of an evaluation, all contexts of fixed targets, or a task. */
struct measured {
    int done;                                /* 0 or 1 */
    struct alibi_eval_result result;         /* tokens == 0: the model has no value there */
    struct target_losses targets;            /* kind targets; no parts: no value */
    struct alibi_attention_result attention; /* kind attention; no windows: no value */
    struct alibi_task_result *task; /* kind tasks, a cell per length; without cases: no value */
    struct bench_stream stream;     /* kind stream */
};

/* The loss by step of a training, in bins of neighbouring steps. */
struct curve {
    int count;
    int64_t step[CURVE_POINTS];
    double loss[CURVE_POINTS];
};

/* One training of a model, and what was measured on it. */
struct trained {
    struct alibi_compare_seed cost; /* without evaluations; version "": not trained yet */
    char fitted[ALIBI_NAME_MAX];    /* the position with its fitted temperature; "": none */
    struct curve train, valid;
    struct learned learned; /* numbers per head; only the trained ones are kept */
    struct measured *measured[ALIBI_LIST_MAX]; /* by evaluation, an entry per test; NULL: the
                                                  evaluation does not have this model */
};

struct experiment_model {
    char name[ALIBI_NAME_MAX];
    char group[ALIBI_NAME_MAX]; /* the key in the file: several models may share it */
    int text;
    int of; /* it has the weights of this earlier model, and is only tested; -1: it is trained */
    char as_position[ALIBI_NAME_MAX]; /* with which it is tested; "": its own */
    struct alibi_fit fit;             /* of a temperature; length 0: none */
    struct alibi_int_list seeds;
    struct alibi_config config; /* as asked, derived values 0 */
    struct alibi_training training;
    int64_t step_tokens, train_tokens; /* 0: batch and steps are given instead */
    struct alibi_name_list mix; /* tasks, each with its share of the windows; the rest is text */
    double share[ALIBI_LIST_MAX];
    alibi_corpus *mixture; /* the text with them, while it is open; NULL: there are none */
    bool selected;
    struct trained *seed; /* [seeds.count] */
};

enum evaluation_kind {
    KIND_PERPLEXITY,
    KIND_SPEED,
    KIND_TARGETS,
    KIND_ATTENTION,
    KIND_TASKS,
    KIND_STREAM,
    KINDS
};

/* The cost of a method at a length: per token, and bytes. Errors are relative. */
struct speed {
    double train_seconds, train_error, train_memory; /* train_seconds 0: not measured */
    double eval_seconds, eval_error, eval_memory;
    char device[ALIBI_DEVICE_NAME_MAX], date[ALIBI_DATE_MAX];
};

struct experiment_evaluation {
    char name[ALIBI_NAME_MAX];
    const char *about;
    int kind;
    int protocol;                     /* perplexity: enum alibi_protocol */
    int text;                         /* -1: that of the model */
    struct alibi_int_list lengths;    /* of fixed targets: the contexts */
    int64_t tokens, stride;           /* stride 0: half the length */
    int64_t block;                    /* of scored tokens, see struct alibi_eval */
    struct alibi_targets targets;     /* kind targets, as requested, without the contexts */
    struct alibi_attention attention; /* kind attention, as requested, without the length */
    struct alibi_tasks tasks;         /* kind tasks, as requested, without lengths and seed */
    bool has[ALIBI_LIST_MAX];
    struct speed *speed; /* [lengths, models], of kind speed */
    bool selected;
};

/* Perplexities belong to evaluations of the kinds perplexity and targets, the next four quantities
 * to kind speed, scores to kind tasks, and the last three to kind stream. */
enum quantity {
    QUANTITY_PPL,
    QUANTITY_TRAIN_SECONDS,
    QUANTITY_TRAIN_MEMORY,
    QUANTITY_EVAL_SECONDS,
    QUANTITY_EVAL_MEMORY,
    QUANTITY_SCORE,
    QUANTITY_READ_SECONDS,
    QUANTITY_DECODE_SECONDS,
    QUANTITY_CACHE_BYTES,
    QUANTITIES
};
extern const char *const quantity_names[QUANTITIES];

/* A measured number, or a plain one. */
struct reference {
    int model; /* -1: a plain number */
    int evaluation;
    int length;             /* index of the evaluation's lengths */
    int condition, targets; /* of fixed targets: enum target_condition, enum alibi_target_kind */
    int task;               /* index of the evaluation's tasks */
    int quantity;
    double number; /* a plain one */
    double paper;  /* what the paper has for it; NaN: not given */
};

/* left < right * (1 + margin), or > if `above`. All comparisons are of logarithms, except those of
 * scores, where it is left < right + margin. */
struct comparison {
    struct reference left, right;
    bool above;
    double margin; /* ln, or of a score: below 0 "by" so much, above 0 "within" so much */
};

struct claim {
    const char *claim, *where, *paper;
    int count;
    struct comparison *comparison;
};

struct alibi_experiment {
    char *path, *bytes; /* the file, for messages */
    size_t length;
    char name[ALIBI_NAME_MAX], tier[ALIBI_NAME_MAX]; /* tier "": as written */
    json_t *json;                                    /* its tier applied, its numbers filled in */
    const char *title, *about, *tier_about;
    struct alibi_name_list tiers;

    bool follows; /* this is not rank 0, which alone writes the folder's own files */
    int texts, models, evaluations, claims;
    struct experiment_text text[ALIBI_LIST_MAX];
    struct experiment_model model[ALIBI_LIST_MAX];
    struct experiment_evaluation evaluation[ALIBI_LIST_MAX];
    struct claim *claim;
};

/* Replaces the names of recipes by their members, in the JSON of the file `experiment`
 * (read_models.c). */
alibi_status inline_recipes(json_t *json, const char *experiment);

/* ---- the folder (folder.c) */

/* Fails if `dir` holds something else, another experiment or another tier. */
alibi_status folder_check(const alibi_experiment *e, const char *dir);
/* Makes `dir`, which was checked and loaded, the folder of this experiment. */
alibi_status folder_enter(const alibi_experiment *e, const char *dir);
/* Removes `dir`, in which no model was trained, unless it has a tokenizer or shards of a text: they
 * may have taken long to make. */
alibi_status folder_discard(const alibi_experiment *e, const char *dir);

/* mem_free */
alibi_status folder_of_text(char **out, const alibi_experiment *e, int text, const char *dir);
alibi_status folder_of_model(char **out, const alibi_experiment *e, int model, int seed,
                             const char *dir);
/* The folder of its training: that of the model whose weights it has. */
alibi_status folder_of_training(char **out, const alibi_experiment *e, int model, int seed,
                                const char *dir);
alibi_status folder_save_model(const alibi_experiment *e, int model, int seed, const char *dir);
alibi_status folder_save_text(const alibi_experiment *e, int text, const char *dir);
void text_write(struct json_writer *w, const alibi_experiment *e, int text); /* its members */

/* The text that a model is evaluated on. */
const struct experiment_text *evaluated_text(const alibi_experiment *e, int model, int evaluation);

/* The position that a model is tested with, before a temperature is fitted to each seed. */
const char *tested_position(const struct experiment_model *m);

/* Whether everything that was asked for is measured. */
bool model_is_complete(const alibi_experiment *e, int model, int seed);

/* The tests of an evaluation on one model. */
int evaluation_tests(const struct experiment_evaluation *v);

/* How the tokens of an evaluation are chosen, at one of its lengths. */
struct alibi_eval evaluation_at(const alibi_experiment *e, int evaluation, int length);

/* ---- texts (texts.c) */

/* Whether the files that were given are those of the folder's results; nothing is tokenized. */
alibi_status text_check(const alibi_experiment *e, int text, const struct alibi_experiment_run *how,
                        const char *dir, const struct alibi_call *call);

/* Whether a model is trained or tested on the text, and not on tasks alone that need none. */
bool text_is_read(const alibi_experiment *e, int text);

/* Opens the corpus of a text and checks it against what the folder knows. */
alibi_status text_open(alibi_experiment *e, int text, const struct alibi_experiment_run *how,
                       const char *dir, const struct alibi_call *call);

/* Estimates the tokens of the validation split from the sizes of what was given, the index of
 * shards, or what the folder knows. */
void text_estimate(alibi_experiment *e, int text);
/* The tokens of the validation split, if it is open, or as estimated; infinite: not known. */
double text_valid_tokens(const struct experiment_text *t);

/* ---- work (run.c, plan.c) */

/* Bytes of checkpoints. */
struct disk {
    double kept;    /* the newest two of each training, which stay */
    double largest; /* one checkpoint of the largest model */
    double held;    /* of one training of each model whose weights other models use: they are not
                       discarded at once */
};
void disk_add(struct disk *d, double checkpoint, const alibi_experiment *e, int model,
              int trainings);
/* The most at any time: one more exists while it is written. */
double disk_needed(const struct disk *d, bool discard);

double trained_tokens(const struct alibi_training *t);
/* The tokens that remain after the newest checkpoint. */
alibi_status untrained_tokens(double *out, const alibi_experiment *e, int model, int seed,
                              const char *dir);
/* Tokens that the missing tests of a model read. Tests of a whole text are not counted while its
 * size is not known. */
double tested_tokens(const alibi_experiment *e, int model, int seed);

int64_t text_vocab(const struct experiment_text *t); /* as requested, until it is known */

/* ---- evaluations of kind speed (speed.c) */

alibi_status speed_load(alibi_experiment *e, int evaluation, const char *dir);
bool speed_is_complete(const alibi_experiment *e, int evaluation);
/* Measures the evaluations that are not complete. The device should have nothing else to do. */
alibi_status speed_run(alibi_experiment *e, alibi_device *device, const char *dir,
                       const struct alibi_call *call);
void speed_write(struct json_writer *w, const alibi_experiment *e,
                 int evaluation); /* in an array */
/* Whether a model or a speed evaluation of it is selected. */
bool model_is_asked(const alibi_experiment *e, int model);
/* The cost of a model's remaining speed evaluations, in tokens of training. A token of evaluation
 * counts half. */
double speed_tokens(const alibi_experiment *e, const alibi_device *device, int model);

/* ---- evaluations of the kinds targets and attention (probes.c) */

/* Room for the result of a test. */
alibi_status probes_new(const alibi_experiment *e, int model, int evaluation, struct measured *m);
void probes_free(struct measured *m);

/* The request of an evaluation for a model; fixed targets are resolved. */
struct alibi_targets targets_asked(const alibi_experiment *e, int model, int evaluation);
struct alibi_attention attention_asked(const alibi_experiment *e, int model, int evaluation,
                                       int length);
double probes_tokens(const alibi_experiment *e, int model, int evaluation, int test); /* at most */

/* Notes, once per evaluation, that the documents of its text are too short. */
alibi_status probes_note_short(const alibi_experiment *e, const struct alibi_call *call);

/* The results of a model as members of its result.json. Reading skips results that the experiment
 * does not request. */
void probes_write(struct json_writer *w, const alibi_experiment *e, int model, int seed);
alibi_status probes_read(const alibi_experiment *e, int model, struct trained *t,
                         const json_t *file, const char *path);

/* The losses of a seed; NULL: not measured. */
const struct alibi_eval_result *targets_losses(const alibi_experiment *e, int model, int seed,
                                               int evaluation, int context, int condition,
                                               int kind);

/* Over all seeds (probes_report.c): members of results.json, and what lib/report shows.
 * probes_view_fini() after a failure too. */
alibi_status probes_report(struct json_writer *w, const alibi_experiment *e);
alibi_status probes_view(struct report_experiment *x, const alibi_experiment *e);
void probes_view_fini(struct report_experiment *x);

/* ---- evaluations of kind tasks (tasks.c), as those of the other probes */

struct alibi_tasks tasks_asked(const alibi_experiment *e, int model, int seed, int evaluation,
                               int task);
/* Fails if a task does not fit the text of a model at L, and says what does not fit past it. */
alibi_status tasks_check(const alibi_experiment *e, int model, const struct alibi_call *call);
void tasks_write(struct json_writer *w, const alibi_experiment *e, int model, int seed);
alibi_status tasks_read(const alibi_experiment *e, int model, int seed, const json_t *file,
                        const char *path);

/* A task at a length, of a seed; NULL: it has no value. */
const struct alibi_task_cell *tasks_cell(const alibi_experiment *e, int model, int seed,
                                         int evaluation, int task, int length);

/* A score over some seeds. */
struct score_mean {
    double value, error;  /* NaN: no value. The error is that of the cases and of the seeds */
    double low, high;     /* the 95% interval of the cases alone */
    int seeds, unlearned; /* with a value; without one, because they have not learned the task */
};
struct score_mean tasks_score(const alibi_experiment *e, int model, int evaluation, int task,
                              int length);

alibi_status tasks_report(struct json_writer *w, const alibi_experiment *e);
alibi_status tasks_view(struct report_experiment *x, const alibi_experiment *e);
void tasks_view_fini(struct report_experiment *x);

/* ---- numbers per head (learned.c) */

/* From the newest checkpoint of a run. */
alibi_status learned_collect(struct learned *out, const char *run, const struct alibi_call *call);
/* A member of result.json, absent if there are none. */
void learned_write(struct json_writer *w, const struct learned *l);
alibi_status learned_load(struct learned *out, const json_t *file, const char *path);
alibi_status learned_view(struct report_experiment *x, const alibi_experiment *e);

/* ---- evaluations of kind stream (streams.c) */

void streams_write(struct json_writer *w, const alibi_experiment *e, int model, int seed);
alibi_status streams_read(const alibi_experiment *e, struct trained *t, const json_t *file,
                          const char *path);
/* The mean over the seeds that have a value, *seeds of them. Errors are of the steps and of the
 * seeds. */
struct bench_stream streams_mean(const alibi_experiment *e, int model, int evaluation, int length,
                                 int *seeds);
void streams_report(struct json_writer *w, const alibi_experiment *e);
alibi_status streams_view(struct report_experiment *x, const alibi_experiment *e);
void streams_view_fini(struct report_experiment *x);

/* ---- claims (claims.c) */

/* The value, its standard error as a share of it (of a score: itself), and how many seeds have it;
 * NaN: not measured. */
struct value {
    double value, error;
    int seeds;
};
struct value reference_value(const alibi_experiment *e, const struct reference *r);

struct outcome {
    double d, error; /* ln(left / right), or left - right of scores; NaN: not measured */
    int seeds;       /* that both models have */
    bool ignorant;   /* one of them has learned nothing */
    bool unlearned;  /* a seed of one of them has not learned the task at L */
    bool few_seeds;  /* the verdict is that of these seeds; more would have to confirm it */
    enum alibi_verdict verdict;
};
struct outcome comparison_outcome(const alibi_experiment *e, const struct comparison *c);
struct outcome score_outcome(const alibi_experiment *e, const struct comparison *c); /* tasks.c */

/* The loss of token frequencies on what an evaluation scores; 0: not known. */
double unigram_of(const alibi_experiment *e, int model, int evaluation);

/* Whether a seed of the model has learned no more than token frequencies. */
bool model_is_ignorant(const alibi_experiment *e, int model);

/* ---- reports (results.c) */

/* results.json, results.csv and report.html; refresh and finished as in alibi_report_write(). */
alibi_status results_write(const alibi_experiment *e, const char *dir, int64_t refresh,
                           bool *finished);

#endif
