/* parts.h - shared by the files of this room: the parts of a checkpoint and their manifest, the
 * tensors in them, step folders, state.json, products.json */
#ifndef CHECKPOINT_PARTS_H
#define CHECKPOINT_PARTS_H

#include "checkpoint/checkpoint.h"

/* ---- the manifest (parts.c) */

/* Weights alone have neither an optimizer nor a state. Only runs that have chosen algorithms have
 * PART_PRODUCTS. The other parts are always there. */
enum part_id {
    PART_MODEL,
    PART_OPTIMIZER,
    PART_CONFIG,
    PART_TOKENIZER,
    PART_STATE,
    PART_PRODUCTS,
    PARTS
};

extern const char *const part_names[PARTS];

struct part {
    bool present;
    int64_t bytes;
    uint32_t crc32;
};

struct manifest {
    int64_t step; /* 0: of no training run */
    struct part parts[PARTS];
};

void manifest_format(const struct manifest *m, struct text *json);
alibi_status manifest_read(struct manifest *m, const char *folder);

/* Reads every byte of every part and compares. The ranks divide the bytes, and get the same. */
alibi_status manifest_verify(const struct manifest *m, const char *folder, alibi_comm *comm);
/* The same for the manifest that rank 0 finds in the folder. */
alibi_status checkpoint_verify_together(const char *path, alibi_comm *comm);

/* ---- tensors (tensors.c) */

/* The tensors of one file: their entries in its header, and a view of each in device memory. */
struct tensor_file {
    struct device *device;
    struct safetensor *entries;
    struct tensor *views;            /* contiguous, rank 1 */
    struct tensor_source *source;    /* in place of device and views; NULL: none */
    const struct checkpoint *shards; /* which has shards of tensors; NULL: all are in views */
    enum sharded shard;              /* of which the tensors of the first buffer are */
    const struct model *model;       /* of the tensors; NULL: they are of a source */
    alibi_comm *comm;                /* the ranks that write it together; NULL: alone */
    struct text header;
    int64_t bytes; /* of the whole file */
    int count;
};

/* The model's weights, in a file as `type`: "F32", "BF16" or "F16". Those that the model does not
 * have, because they are in shards, have no view. */
alibi_status tensor_file_of_model(struct tensor_file *f, const struct model *m, const char *type);
/* The weights of a source, which has those of the outline and no others. */
alibi_status tensor_file_of_source(struct tensor_file *f, const struct model *outline,
                                   struct tensor_source *source);
/* The moments of each weight, first.NAME and second.NAME, for each buffer that is not NULL. */
alibi_status tensor_file_of_moments(struct tensor_file *f, const struct model *m, void *first,
                                    void *second);
/* The same for the weights and the moments of a checkpoint, which must outlive the lists and may
 * have shards of them. */
alibi_status tensor_file_of_weights(struct tensor_file *f, const struct checkpoint *c,
                                    const char *type);
alibi_status tensor_file_of_optimizer(struct tensor_file *f, const struct checkpoint *c);
/* The shard of this rank; absent where c has none. */
struct tensor checkpoint_shard(const struct checkpoint *c, enum sharded shard);
void tensor_file_fini(struct tensor_file *f);

/* ALIBI_NUMERIC names the first tensor with an element beyond the range of its type. All ranks of
 * f->comm call it, and get the same. */
alibi_status tensor_file_write(const struct tensor_file *f, const char *folder, const char *name,
                               struct part *part);

/* Reads the tensors by name, from any of the three types. ALIBI_BAD_INPUT names the first one whose
 * shape differs, or that only the file or only the list has. */
alibi_status tensor_file_read(const struct tensor_file *f, const char *path);
/* The same, but tensors that only one of the two has are allowed. `missing` lists those that the
 * file lacks, which keep their values, and `unused` those that only the file has, separated by
 * ", ". Tensors whose names begin with `except` (NULL: none) are not read, and belong to both
 * lists. */
alibi_status tensor_file_read_some(const struct tensor_file *f, const char *path,
                                   const char *except, struct text *missing, struct text *unused);

/* ---- step folders (folders.c) */

alibi_status step_folder_path(char **out, const char *run, int64_t step, bool old);

/* The manifest is removed first, and synced, so that no crash leaves a partial folder that looks
 * complete. */
alibi_status step_folder_remove(const char *path);

/* ---- state.json (state.c) */

alibi_status state_write_json(const struct train_state *state,
                              const struct alibi_training *training, struct text *json);

/* ---- products.json (choices.c) */

alibi_status choices_write_json(const struct choices *choices, struct text *json);

#endif
