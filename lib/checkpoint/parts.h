/* parts.h - what the files of this room share: the manifest, the parts, the step folders */
#ifndef CHECKPOINT_PARTS_H
#define CHECKPOINT_PARTS_H

#include "checkpoint/checkpoint.h"

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

/* ---- parts (tensors.c): files that are checksummed as they are written, synced before they count
 */

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
alibi_status tensor_file_of_moments(struct tensor_file *f, const struct model *m, void *first,
                                    void *second);
alibi_status tensor_file_write(const struct tensor_file *f, const char *folder, const char *name,
                               struct part *part);
/* ALIBI_BAD_INPUT names the first tensor whose name, type or shape is not the expected one. */
alibi_status tensor_file_read(const struct tensor_file *f, const char *path);

/* ---- step folders (folders.c) */

alibi_status step_folder_path(char **out, const char *run, int64_t step, bool old);

/* The manifest is removed first, and synced, so that no crash leaves a partial folder that looks
 * complete. */
alibi_status step_folder_remove(const char *path);

/* ---- state.json (state.c) */

alibi_status state_write_json(const struct train_state *state,
                              const struct alibi_training *training, struct text *json);

#endif
