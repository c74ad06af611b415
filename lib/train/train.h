/* train.h - optimizer, schedule, memory plan, the loop */
#ifndef TRAIN_H
#define TRAIN_H

#include "checkpoint/checkpoint.h"
#include "comm/comm.h"

/* ---- schedule (schedule.c) */

/* Learning rate of a step (from 1): linear warm-up, then the schedule's shape down to min_lr. */
double schedule_lr(const struct alibi_training *t, int64_t step);

/* ---- optimizer (optimizer.c) */

struct optimizer {
    struct model *model;
    alibi_comm *comm;        /* the ranks that train it; NULL: alone */
    int kind;                /* enum alibi_optimizer */
    int64_t shard;           /* numbers of the flat buffers that this rank updates; alone: all */
    void *first, *second;    /* of the shard: AdamW m, v; Nesterov u, NULL */
    void *masters;           /* of the shard, those that the model does not have; NULL: none */
    struct channel *channel; /* to the other ranks; NULL: there are none */
    bool ordered;            /* sums do not depend on the number of ranks */
    bool sends;              /* layers, as the backward pass completes them */
    int64_t unsent;          /* layers of which no gradient was sent yet: those below */
    bool sent;               /* all gradients of this round */
    bool fresh;              /* the sums begin with what is collected next */
    void *sums;              /* of the shard: gradients so far; NULL: they are in the model's */
};
int optimizer_moments(int kind);                            /* flat buffers that it needs */
double checkpoint_bytes(int64_t parameters, int optimizer); /* of one on the disk */
alibi_status optimizer_init(struct optimizer *o, struct model *m, int kind, alibi_comm *comm);
void optimizer_fini(struct optimizer *o);

/* Whether gradients pass through a channel: one rank by NCCL makes the calls of several. */
static inline bool gradients_exchanged(const struct alibi_training *t, int ranks)
{
    return ranks > 1 || t->comm == ALIBI_COMM_NCCL;
}
/* Whether `ranks` ranks have gradients of one layer at a time only. */
static inline bool gradients_by_layer(const struct alibi_training *t, int ranks)
{
    return ranks > 1 && t->shard == ALIBI_SHARD_GRADIENTS;
}
/* How the gradients of passes and ranks become those of a step: connects the ranks, and takes
 * memory for sums where it needs some. With t->deterministic_sum they have the same bits for any
 * number of ranks: those of each pass are computed alone, and added in the order of their numbers;
 * the norm is summed by blocks. */
alibi_status optimizer_connect(struct optimizer *o, const struct alibi_training *t,
                               const struct alibi_call *call);
/* Before each pass of this rank: it is the first of the step, or its gradients are collected. */
alibi_status optimizer_begin(struct optimizer *o, bool first, bool collected);
/* pass_settings.gradient_done of such a pass: sends the gradients of a layer, or at the end those
 * that were not sent yet, to the other ranks. */
alibi_status optimizer_send_layer(void *optimizer, int64_t layer);
/* After the passes of all ranks, or, if sums are ordered, after one pass of each: the model's
 * gradients, those that were not sent yet, become part of the sum that a step applies. `status` is
 * that of the passes: all ranks get the first failure. */
alibi_status optimizer_collect(struct optimizer *o, alibi_status status);

/* Applies the gradients at `step`; gradient_scale is the clipping factor. */
alibi_status optimizer_step(struct optimizer *o, const struct alibi_training *t, int64_t step,
                            double gradient_scale);
/* The norm of the gradient over all parameters. ALIBI_NUMERIC: the loss, or the gradient of a
 * tensor that is named, is not finite. */
alibi_status guard_check(const struct optimizer *o, double loss, int64_t step, double *norm);
/* Checks the loss and gradients of a step, clips and applies them. *norm is the gradient norm
 * before clipping. */
alibi_status optimizer_update(struct optimizer *o, const struct alibi_training *t, int64_t step,
                              double loss, double *norm);

/* Several ranks: rank 0 fetches numbers of a buffer as checkpoint.fetch, while the others serve,
 * until rank 0 says that they have. */
alibi_status optimizer_fetch(void *optimizer, enum sharded shard, int64_t from, int64_t count,
                             float *values);
alibi_status optimizer_serve(struct optimizer *o);
alibi_status optimizer_served(struct optimizer *o);
/* The weights or a moment of all ranks become the flat buffer that rank 0 has in `values`, in the
 * host's memory. At the other ranks it is NULL. */
alibi_status optimizer_set_weights(struct optimizer *o, const float *values);
alibi_status optimizer_set_moment(struct optimizer *o, enum sharded moment, const float *values);

/* ---- plan (plan.c) */

/* alibi_plan_training on a device and in a type. The largest batch and the
 * longest input take many trials: they are found if `limits` asks for them, or if the training does
 * not fit. */
alibi_status plan_training(struct alibi_plan *plan, const struct alibi_config *config,
                           const struct alibi_training *training, struct device *device,
                           enum dtype type, bool limits);
/* The same for each of some ranks, which divide the optimizer's state. ALIBI_USAGE: several ranks
 * with --autotune wide, since each would choose its own algorithms. */
alibi_status plan_training_of_ranks(struct alibi_plan *plan, int ranks,
                                    const struct alibi_config *config,
                                    const struct alibi_training *training, struct device *device,
                                    enum dtype type, bool limits);

/* ALIBI_USAGE: `ranks` ranks cannot divide the passes of a step evenly, so some would wait for the
 * others. */
alibi_status plan_check_ranks(const struct alibi_training *t, int64_t ranks);

/* ALIBI_MEMORY says what would fit instead. */
alibi_status plan_check(const struct alibi_plan *plan, const struct alibi_training *t,
                        int64_t ranks);
void plan_note(const struct alibi_plan *plan, const struct alibi_call *call);

/* ---- validation (validate.c) */

/* Whether the validation split has a window of the training length; that of a task always has. */
bool validation_possible(const alibi_corpus *corpus, const struct alibi_training *t);
/* The tokens that a validation reads, all parts of a mixture together. */
int64_t validation_tokens(const alibi_corpus *corpus, const struct alibi_training *t);
/* The mean loss of `m` on it, and how many tokens were scored. Each text of a mixture is scored
 * alone, and the loss is the mean weighted by shares; of one text alone `texts` is 0. */
struct validation {
    double loss;
    int64_t tokens;
    int texts;
    struct alibi_text_loss text[CORPUS_PARTS_MAX];
};
alibi_status validate(const struct model *m, const alibi_corpus *corpus,
                      const struct alibi_training *t, struct validation *v,
                      const struct alibi_call *call);

/* ---- forecast (forecast.c) */

/* Says once, after the first steps, how long the work takes on this machine, if that is worth
 * saying; a warning if it is more than an hour. Set the first four members, the rest to 0. */
struct forecast {
    int64_t models;                    /* to train, the current one included */
    double train_tokens, valid_tokens; /* of those after the current one */
    double test_tokens;                /* scored after training, of all models */
    int64_t steps; /* of the current model that were seen, and the time of all but the first */
    double seconds;
    bool said, small_text_said, end_said;
    uint64_t windows_said; /* a bit for each preset */
    bool experiment;       /* its models are those of a file */
};

/* When a training begins: models differ in what a step takes. */
void forecast_begin(struct forecast *f);
/* After each of its steps. */
void forecast_step(struct forecast *f, const alibi_corpus *corpus, const struct alibi_training *t,
                   int64_t step, double seconds, const struct alibi_call *call);

/* Tokens that the validations after `step` score. */
double forecast_validation_tokens(const alibi_corpus *corpus, const struct alibi_training *t,
                                  int64_t step);

/* ---- event files for TensorBoard (events.c) */

/* Start from {0}, which writes nothing. Once open, a failure ends the events with a warning, and
 * costs the training nothing. */
struct events {
    struct tensorboard *file;
    bool no_samples; /* one has failed */
};
struct events_numbers {
    int64_t step;
    double loss, gradient_norm, lr, tokens_per_s;
    size_t peak_bytes; /* of memory, so far */
};

/* For the steps after `step`: those of an earlier file are replaced. */
alibi_status events_open(struct events *e, const char *folder, int64_t step);
void events_close(struct events *e);
void events_step(struct events *e, const struct events_numbers *n, const struct alibi_call *call);
void events_validation(struct events *e, int64_t step, const struct validation *v,
                       const struct alibi_call *call);
/* Writes the model's continuation of the beginning of the validation split. */
void events_sample(struct events *e, int64_t step, struct model *m, const alibi_corpus *corpus,
                   const struct alibi_training *t, const struct alibi_call *call);
void events_sync(struct events *e, const struct alibi_call *call);

/* ---- whether a run may begin or resume (resume.c) */

/* ALIBI_BAD_INPUT if the folder holds a checkpoint of a run. */
alibi_status resume_refuse(const char *dir);

/* The requested run. */
struct resume {
    const char *dir;
    const alibi_corpus *corpus;
    const struct model *model;
    const struct alibi_config *config; /* resolved */
    const struct alibi_training *training;
    const struct alibi_call *call;
};
/* ALIBI_BAD_INPUT if the run of the checkpoint `path` was another one. Otherwise the state and the
 * position that it continues with. */
alibi_status resume_check(const struct resume *now, const char *path, struct train_state *state,
                          char position[ALIBI_NAME_MAX]);

/* ---- the loop (run.c) */

/* alibi_train() as a part of more work, which `forecast` knows, and without event files. */
alibi_status train_run(alibi_device *device, const struct alibi_config *config,
                       const struct alibi_training *training, const alibi_corpus *corpus,
                       const char *dir, bool resume, struct forecast *forecast,
                       struct alibi_train_result *result, const struct alibi_call *call);

/* ---- journal (journal.c): the log and the times of a run, next to its checkpoints */

/* log.jsonl has one line per step, one per validation, and no times, so that a resumed run writes
 * the same bytes as one that was never stopped. Times are in timing.json. */
struct journal {
    struct file *log;
    struct text line;
    char *timing_path;
    double seconds;     /* of all steps so far */
    int64_t peak_bytes; /* the most memory held */
};

/* Opens the journal of a run whose log has a line for each of its steps and validations so far:
 * lines beyond are cut off. */
alibi_status journal_open(struct journal *j, const char *run, const struct train_state *state,
                          const struct alibi_call *call);
void journal_close(struct journal *j);
alibi_status journal_record(struct journal *j, int64_t step, double loss, double gradient_norm,
                            double lr);
/* texts: as in struct validation. */
alibi_status journal_record_validation(struct journal *j, const struct train_validation *v,
                                       const struct alibi_text_loss *text, int texts);

/* A line of the log: of a step, or of a validation after it. NaN: the other one, or not finite. */
struct journal_line {
    int64_t step;
    double loss, valid_loss;
};

/* Hands over the lines of a run's log; one that is being written is not complete, and not read. */
alibi_status journal_read(const char *run, void (*record)(void *user, const struct journal_line *l),
                          void *user);

/* Before a checkpoint: puts the lines and the times on the disk. peak: bytes of the device's memory
 * so far. */
alibi_status journal_sync(struct journal *j, size_t peak);

#endif
