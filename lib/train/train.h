/* train.h - optimizer, schedule, guard, checkpoint, the loop */
#ifndef TRAIN_H
#define TRAIN_H

#include "model/model.h"
#include "text/text.h"

/* ---- options (options.c) */

/* ALIBI_USAGE names the value that is outside its range: a caller need not have come through the
 * options. */
alibi_status training_check(const struct alibi_training *t);

/* The options without those that leave the result as it is (how often it is saved, what is computed
 * again): what a resumed run must agree in. */
const struct alibi_option *training_shaping_options(int *count);

/* ---- schedule (schedule.c) */

/* Learning rate of step `step` (from 1). Linear warm-up, then the schedule's shape down to min_lr.
 * */
double schedule_lr(const struct alibi_training *t, int64_t step);

/* ---- optimizer (optimizer.c) */

struct optimizer {
    struct model *model;
    int kind;             /* enum alibi_optimizer */
    void *first, *second; /* flat like the parameters: AdamW m, v; Nesterov u, NULL */
};
int optimizer_moments(int kind); /* flat buffers that it needs */
alibi_status optimizer_init(struct optimizer *o, struct model *m, int kind);
void optimizer_fini(struct optimizer *o);
/* Applies the gradients at `step`; gradient_scale is the clipping factor. */
alibi_status optimizer_step(struct optimizer *o, const struct alibi_training *t, int64_t step,
                            double gradient_scale);
/* What a step does once loss and gradients are there: guard, clip, apply. *norm is the gradient's
 * before clipping. */
alibi_status optimizer_update(struct optimizer *o, const struct alibi_training *t, int64_t step,
                              double loss, double *norm);

/* ---- plan (plan.c) */

/* alibi_plan_training on a device and in a type. */
alibi_status plan_training(struct alibi_plan *plan, const struct alibi_config *config,
                           const struct alibi_training *training, struct device *device,
                           enum dtype type);

/* ALIBI_MEMORY says what would fit instead. */
alibi_status plan_check(const struct alibi_plan *plan, int recompute);
void plan_note(const struct alibi_plan *plan); /* one line of the log */

/* ---- guard (guard.c) */

/* The gradient's norm over all parameters; ALIBI_NUMERIC names the first tensor whose gradient is
 * not finite, or the loss. */
alibi_status guard_check(struct model *m, double loss, int64_t step, double *norm);

/* ALIBI_NUMERIC names the first weight or optimizer state that is not finite: it must not be saved.
 * */
alibi_status guard_state(const struct model *m, const struct optimizer *o, int64_t step);

/* ---- checkpoint (checkpoint.c saves, restore.c reads; checkpoint.h has what they share)
 *
 * A run's folder holds step-%08lld/ with model.safetensors, config.json, tokenizer.json,
 * optimizer.safetensors, state.json and manifest.json. A checkpoint exists once its manifest does;
 * the manifest has size and checksum of every part, and of itself. Saving follows
 * docs/reliability.md. No part holds a time or a host: the same state gives the same bytes. */

struct train_state {
    int64_t step;
    uint32_t corpus_checksum;
    uint32_t files_checksum; /* without a validation text of its own; 0 in checkpoints from before
                                it was kept */
    double loss;             /* of the last step */
};

alibi_status checkpoint_save(const char *run, const struct model *m, const struct optimizer *o,
                             const alibi_tokenizer *t, const struct alibi_training *training,
                             const struct train_state *state);

/* Removes what a save that did not end left in the run's folder. The caller holds the folder's
 * lock. */
alibi_status checkpoint_clean(const char *run);

/* The newest checkpoint in `run` that verifies (or `run` itself if it is one); *path is NULL if
 * there is none at all (mem_free). Passing one over is logged with the reason; ALIBI_BAD_INPUT if
 * some exist and none verifies. */
alibi_status checkpoint_find(char **path, const char *run);
alibi_status checkpoint_verify(const char *path);

/* Configuration and tokenizer, so that a model can be made; then its weights, the optimizer and the
 * state. Of `training` what shapes the result is set. */
alibi_status checkpoint_read_config(const char *path, struct alibi_config *config,
                                    alibi_tokenizer **tokenizer);
alibi_status checkpoint_read_weights(const char *path, struct model *m);
alibi_status checkpoint_read_optimizer(const char *path, struct optimizer *o);
alibi_status checkpoint_read_state(const char *path, struct train_state *state,
                                   struct alibi_training *training);
alibi_status state_write_json(const struct train_state *state,
                              const struct alibi_training *training, struct text *json);

/* ---- journal (journal.c): what a run writes beside its checkpoints */

/* log.jsonl has one line per step and no times in it: that of a resumed run is that of one never
 * stopped. Times are in timing.json. */
struct journal {
    struct file *log;
    struct text line;
    char *timing_path;
    double seconds; /* of all steps so far, and the most memory held */
    int64_t peak_bytes;
};

/* Opens the journal of a run that stands at `step`: lines beyond it are cut off. */
alibi_status journal_open(struct journal *j, const char *run, int64_t step);
void journal_close(struct journal *j);
alibi_status journal_record(struct journal *j, int64_t step, double loss, double gradient_norm,
                            double lr);

/* Before a checkpoint: the lines up to it are on the disk, and so are the times. peak: of the
 * device's memory, so far. */
alibi_status journal_sync(struct journal *j, size_t peak);

/* ---- the loop (run.c) */

/* alibi_train, but a stop request stays: for calls that train as a part of what they do. */
alibi_status train_run(const struct alibi_config *config, const struct alibi_training *training,
                       const alibi_corpus *corpus, const char *dir, bool resume,
                       struct alibi_train_result *result);

/* ---- a model as the public interface knows it (open.c) */

struct alibi_model {
    struct device device;
    struct model *model;
    alibi_tokenizer *tokenizer;
    char *path;
};

#endif
