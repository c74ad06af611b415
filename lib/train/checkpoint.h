/* checkpoint.h - what the files that save and read checkpoints share
 *
 *   run/step-00000010/            a checkpoint, once manifest.json is in it
 *   run/step-00000010.old/        one that a newer save of the same step is about to replace */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "formats/formats.h"
#include "train/train.h"

/* ---- manifest (manifest.c) */

enum part_id { PART_MODEL, PART_OPTIMIZER, PART_CONFIG, PART_TOKENIZER, PART_STATE, PARTS };

extern const char *const part_names[PARTS];

struct part {
    int64_t bytes;
    uint32_t crc32;
};

struct manifest {
    int64_t step;
    struct part parts[PARTS];
};

alibi_status manifest_format(const struct manifest *m, struct text *json);

/* ALIBI_BAD_INPUT unless the file is, byte for byte, what manifest_format makes of what it says. */
alibi_status manifest_read(struct manifest *m, const char *folder);

/* Reads every byte of every part and compares. */
alibi_status manifest_verify(const struct manifest *m, const char *folder);

/* ---- parts (parts.c): files that are checksummed as they are written, synced before they count */

struct part_writer {
    struct file *file;
    struct part part;
};

alibi_status part_open(struct part_writer *w, const char *folder, const char *name);
alibi_status part_put(struct part_writer *w, const void *bytes, size_t length);
alibi_status part_finish(struct part_writer *w, struct part *part); /* sync, close */
void part_abandon(struct part_writer *w); /* after a failure; nothing if finished */

/* The tensors of one file: their entries in its header, and where each lies in the device's memory.
 * */
struct tensor_file {
    struct device *device;
    struct safetensor *entries;
    struct tensor *views; /* contiguous, rank 1 */
    struct text header;
    int64_t bytes; /* of the whole file */
    int count;
};

/* One entry per parameter for each buffer that is not NULL, named prefix + parameter. */
alibi_status tensor_file_init(struct tensor_file *f, const struct model *m,
                              const char *const *prefixes, void *const *buffers, int buffer_count);
void tensor_file_fini(struct tensor_file *f);
alibi_status tensor_file_of_model(struct tensor_file *f, const struct model *m);
alibi_status tensor_file_of_optimizer(struct tensor_file *f, const struct optimizer *o);
alibi_status tensor_file_write(const struct tensor_file *f, const char *folder, const char *name,
                               struct part *part);
/* ALIBI_BAD_INPUT names the first tensor whose name, type or shape is not the expected one. */
alibi_status tensor_file_read(const struct tensor_file *f, const char *path);

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
/* Unlike file_exists it tells a file that is not there from one that cannot be seen. */
alibi_status folder_has(bool *has, const char *folder, const char *name);

alibi_status step_folder_path(char **out, const char *run, int64_t step, bool old);

/* The manifest goes first, and for good, so that no crash leaves a half folder that looks whole. */
alibi_status step_folder_remove(const char *path);

#endif
