/* checkpoint.h - models on disk: saving, finding, verifying, reading and opening them
 *
 *   run/step-00000010/            a checkpoint, because it has a manifest.json
 *   run/step-00000010.old/        one that a newer save of the same step is about to replace
 *
 * A checkpoint is a folder with model.safetensors, config.json, tokenizer.json, manifest.json and,
 * if training can resume from it, optimizer.safetensors and state.json; products.json, if the run
 * has chosen the algorithms of its matrix products by speed alone. It exists once its manifest
 * does; the manifest has the size and checksum of every part, and a checksum of itself. Saving
 * follows docs/reliability.md. No part holds a time, a path or a host: the same state gives the
 * same bytes. */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "comm/comm.h"
#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"

/* ---- the state of a training run (state.c) */

/* Replaces a learning rate of 0 by the one that suits the model, and sets what other options imply.
 * ALIBI_USAGE names the first value that is out of its range. */
alibi_status training_resolve(struct alibi_training *t, const struct alibi_config *config);

/* The options that shape the result. Options such as how often to save are not among them. A
 * resumed run must agree in all of these. */
const struct alibi_option *training_shaping_options(int *count);

/* The validations of a run so far; all 0: none. */
struct train_validation {
    int64_t count;
    int64_t step, tokens; /* of the last one */
    double loss;
    int64_t best_step; /* of the lowest loss */
    double best_loss;
};

struct train_state {
    int64_t step;
    uint32_t corpus_checksum;
    uint32_t files_checksum; /* without --valid's text; 0 in checkpoints that predate it */
    double loss;             /* of the last step */
    struct train_validation validation;
};

/* ---- tensors that are not in memory */

/* Tensors somewhere, in files or made of those of another source, that are read some rows at a time
 * as fp32. A matrix has shape[0] rows, a vector as many rows of one number. begin and end of the
 * tensors belong to the source. */
struct tensor_source {
    struct safetensor *tensors;
    int count;
    const char *types; /* which it can read, for messages: "F32, BF16 and F16" */
    alibi_status (*read)(struct tensor_source *s, int tensor, int64_t row, int64_t rows,
                         float *values);
    void (*free)(struct tensor_source *s);
};

void tensor_source_free(struct tensor_source *s); /* NULL is fine */
int tensor_source_find(const struct tensor_source *s, const char *name, int guess); /* -1: none */
/* Numbers in a row of a tensor. */
int64_t tensor_source_columns(const struct safetensor *t);

/* Numbers as the bytes of a file, in the types F32, BF16 and F16 (tensors.c). ALIBI_NUMERIC names
 * the tensor that has a number beyond the range of its type, or one that is not finite. */
alibi_status weights_pack(void *bytes, const float *values, int64_t count, const char *type,
                          const char *tensor);
void weights_unpack(float *values, const void *bytes, int64_t count, const char *type);
bool weights_have_type(const char *type);

/* ---- saving (save.c) */

/* The buffers of which each rank has a shard. */
enum sharded { SHARD_FIRST, SHARD_SECOND, SHARD_MASTERS };

typedef alibi_status shard_fetch_fn(void *user, enum sharded shard, int64_t from, int64_t count,
                                    float *values);

struct checkpoint {
    const struct model *model;
    const alibi_tokenizer *tokenizer;
    /* The ranks that save it together: each writes its shard of the weights and of the moments into
     * the files, which have the bytes that one process writes. NULL: alone. */
    alibi_comm *comm;
    void *first, *second; /* the optimizer's moments, of the shard of this rank; NULL: none */
    void *masters;        /* likewise those that the model does not have */
    /* Not NULL: this process saves alone, but has only its shards. This gives the numbers
     * from..from+count-1 of a whole buffer. */
    shard_fetch_fn *fetch;
    void *user;
    const struct alibi_training *training;
    struct train_state state;
    struct choices choices; /* count 0: none */
    int64_t keep;           /* the step of another checkpoint that stays; 0: none */
};

/* Writes `run`/step-N and drops all older checkpoints but one and `keep`. ALIBI_NUMERIC names the
 * first weight or moment that is not finite: it is not saved. All ranks of c->comm call it, and
 * get the same; they all must see the folder, and rank 0 has made it. */
alibi_status checkpoint_save(const char *run, const struct checkpoint *c,
                             const struct alibi_call *call);

/* Before the first step: whether the disk has room for the checkpoints that `run` will hold at
 * once. ALIBI_IO if there is none for the next one; a warning if there is none for all. `best`: one
 * more is kept. */
alibi_status checkpoint_check_space(const char *run, const struct checkpoint *c, bool best,
                                    const struct alibi_call *call);

/* Creates `dir`, which must be empty or not exist, and finds out whether it can take the model. */
alibi_status checkpoint_check_empty(const char *dir, const struct model *m);

/* Makes `dir`, which must be empty or not exist, a checkpoint of the weights alone: without
 * optimizer and state, in fp32, bf16 or fp16. ALIBI_NUMERIC names a tensor that the type cannot
 * hold. */
alibi_status checkpoint_save_weights(const char *dir, const struct model *m,
                                     const alibi_tokenizer *t, enum alibi_precision precision,
                                     const struct alibi_call *call);

/* The same for a model that is not in memory: `outline` has its configuration, and `weights` its
 * tensors by name, each of which is written in the type that it has there. */
alibi_status checkpoint_write_weights(const char *dir, const struct model *outline,
                                      const alibi_tokenizer *t, struct tensor_source *weights,
                                      const struct alibi_call *call);

/* Removes the step folders that unfinished saves left. The caller holds the lock of the run's
 * folder. */
alibi_status checkpoint_clean(const char *run);

/* ---- finding and reading (restore.c) */

/* A model has a row of its embedding for each id of the tokenizer, and may have more: vocab 0
 * becomes as many as there are ids. ALIBI_USAGE if it is less. */
alibi_status config_fit_vocab(struct alibi_config *config, const alibi_tokenizer *t);

/* The newest checkpoint in `run` that verifies (or `run` itself if it is one); *path is NULL if
 * there is none (mem_free). Each checkpoint that is passed over is logged with the reason;
 * ALIBI_BAD_INPUT if there are some and none verifies. */
alibi_status checkpoint_find(char **path, const char *run, const struct alibi_call *call);
alibi_status checkpoint_verify(const char *path);

/* The configuration and tokenizer from which a model is made; its weights; the optimizer's moments;
 * the state with the options that shape the result. The checkpoint must have been verified. The
 * tokenizer has at most config->vocab ids. */
alibi_status checkpoint_read_config(const char *path, struct alibi_config *config,
                                    alibi_tokenizer **tokenizer);
alibi_status checkpoint_read_weights(const char *path, struct model *m);
/* The slopes [H] of a kind of layer that has some, trained or fixed, without a model. */
alibi_status checkpoint_read_slopes(const char *path, const struct alibi_config *config, int kind,
                                    float *slopes);
/* The numbers that a kind of layer learns, [rows, H] by the method's parameter_shape, without a
 * model. */
alibi_status checkpoint_read_numbers(const char *path, const struct alibi_config *config, int kind,
                                     int64_t rows, float *numbers);
/* The position that was fitted to the model of a checkpoint, "" if none was (fitted.c). */
alibi_status checkpoint_write_fitted(const char *path, const char *position);
alibi_status checkpoint_read_fitted(const char *path, char position[ALIBI_NAME_MAX]);
/* Puts the position with which a model is used into its configuration, as alibi_model_open_as()
 * does. `path` is what the user calls the checkpoint. */
alibi_status checkpoint_choose_position(struct alibi_config *config, const char *checkpoint,
                                        const char *position, const char *path,
                                        struct alibi_device *device, const struct alibi_call *call);

/* The factors [heads] on the queries of a layer with logn, and the biases [heads] of gates, without
 * a model. */
alibi_status checkpoint_read_logn(const char *path, int64_t layer, int64_t heads, float *factors);
alibi_status checkpoint_read_gates(const char *path, int64_t layer, int64_t heads, float *biases);

/* The numbers per head of a checkpoint, as the equations of the methods have them (learned.c). */
struct learned_row {
    char name[48]; /* "slopes", "logn" */
    int64_t place; /* the kind of layers, -1 for the first; of gates and logn the layer */
    bool trained;  /* otherwise fixed: slopes may be */
    int64_t heads;
    double *value;
};

struct learned {
    int64_t count, capacity;
    struct learned_row *row;
};

/* After a failure too, learned_fini(). */
alibi_status learned_read(struct learned *out, const char *path, const struct alibi_config *config);
void learned_fini(struct learned *l);

/* Reads those that are not NULL. */
alibi_status checkpoint_read_moments(const char *path, const struct model *m, void *first,
                                     void *second);
alibi_status checkpoint_read_state(const char *path, struct train_state *state,
                                   struct alibi_training *training);

/* The algorithms of matrix products of the run (choices.c); count 0 if it has none. list is the
 * caller's (mem_free). */
alibi_status checkpoint_read_choices(const char *path, struct choices *out);

/* ---- models from checkpoints (find.c, open.c, with the public interface) */

/* As checkpoint_find(), but none is a failure; RUN/best is the best checkpoint of a run. */
alibi_status checkpoint_find_model(char **path, const char *from, const struct alibi_call *call);
/* Whether a path at which there is nothing means that: it ends in /best. */
bool checkpoint_is_best(const char *from);

/* Sets the weights of a model that was initialised to those of the model in `from`, a checkpoint or
 * a run. ALIBI_BAD_INPUT names the tensor whose shape differs, or says that the tokenizer is not
 * `t`. A note lists the tensors that only one of the two has, position tables of different methods
 * among them: those of the model keep their values. If `m` is NULL, only the tokenizer is
 * checked. */
alibi_status checkpoint_init_weights(const char *from, struct model *m, const alibi_tokenizer *t,
                                     const struct alibi_call *call);

/* ---- the run's folder (folders.c) */

struct step_folder {
    char *path;
    int64_t step;
    bool old;      /* set aside by a newer save of that step */
    bool complete; /* has a manifest */
};

/* All step folders of a run, newest first; step_folders_free. */
alibi_status step_folders(struct step_folder **out, int *count, const char *run);
void step_folders_free(struct step_folder *folders, int count);

#endif
