/* train.h - optimizer, schedule, guard, checkpoint, the loop */
#ifndef TRAIN_H
#define TRAIN_H

#include "model/model.h"
#include "text/text.h"

/* ---- schedule (schedule.c) */

/* Learning rate of step `step` (from 1). Linear warm-up, then the schedule's shape down to min_lr. */
double schedule_lr(const struct alibi_training *t, int64_t step);

/* ---- optimizer (optimizer.c) */

struct optimizer {
    struct model *model;
    int kind;             /* enum alibi_optimizer */
    void *first, *second; /* flat like the parameters: AdamW m, v; Nesterov u, NULL */
};
alibi_status optimizer_init(struct optimizer *o, struct model *m, int kind);
void optimizer_fini(struct optimizer *o);
/* Applies the gradients at `step`; gradient_scale is the clipping factor. */
alibi_status optimizer_step(struct optimizer *o, const struct alibi_training *t, int64_t step, double gradient_scale);

/* ---- guard (guard.c) */

/* The gradient's norm over all parameters; ALIBI_NUMERIC names the first tensor whose gradient is not finite, or the loss. */
alibi_status guard_check(struct model *m, double loss, int64_t step, double *norm);

/* ---- checkpoint (checkpoint.c)
 *
 * A run's folder holds step-%08lld/ with model.safetensors, config.json, tokenizer.json, optimizer.safetensors, state.json and
 * manifest.json. A checkpoint exists once its manifest does; the manifest has size and checksum of every part, and of itself.
 * Saving follows docs/reliability.md. No part holds a time or a host: the same state gives the same bytes. */

struct train_state {
    int64_t step;
    uint32_t corpus_checksum;
};

alibi_status checkpoint_save(const char *run, const struct model *m, const struct optimizer *o, const struct tokenizer *t,
                             const struct alibi_training *training, const struct train_state *state);

/* The newest checkpoint in `run` that verifies (or `run` itself if it is one); *path is NULL if there is none at all
 * (mem_free). Passing one over is logged with the reason; ALIBI_BAD_INPUT if some exist and none verifies. */
alibi_status checkpoint_find(char **path, const char *run);
alibi_status checkpoint_verify(const char *path);

/* Configuration and tokenizer, so that a model can be made; then its weights; then the optimizer and the state. */
alibi_status checkpoint_read_config(const char *path, struct alibi_config *config, struct tokenizer **tokenizer);
alibi_status checkpoint_read_weights(const char *path, struct model *m);
alibi_status checkpoint_read_optimizer(const char *path, struct optimizer *o, struct train_state *state);

/* ---- a model as the public interface knows it (open.c) */

struct alibi_model {
    struct device device;
    struct model *model;
    struct tokenizer *tokenizer;
    char *path;
};

#endif
