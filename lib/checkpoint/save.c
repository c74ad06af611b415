/* save.c - saving
 *
 * The order is what makes a save survive a kill, a crash of the system or a power cut at any point:
 *
 *   check the free space
 *   write and sync each part
 *   write and sync manifest.json.tmp, sync the folder
 *   rename it to manifest.json, sync the folder, sync the run's folder
 *   read everything back and compare
 *   log "saved", then drop the oldest checkpoint
 *
 * The rename is the moment at which the folder becomes a checkpoint. Before it the previous
 * checkpoint is untouched, and after it both exist. docs/reliability.md explains each sync.
 *
 * With N ranks, each writes and syncs its shard of the tensors and reads back an N-th of all bytes.
 * Rank 0 does the rest, and renames only after all have synced. The ranks agree after each step, so
 * all continue or none does. */
#include <string.h>

#include "base/names.h"
#include "checkpoint/parts.h"

/* ---- the contents: staged in memory, except for the tensors */

struct contents {
    int64_t step;
    bool training;                 /* with PART_OPTIMIZER and PART_STATE */
    struct tensor_file tensors[2]; /* PART_MODEL, PART_OPTIMIZER */
    struct text texts[PARTS];      /* the other parts */
    int64_t bytes;
    alibi_comm *comm; /* the ranks that write them; NULL: alone */
};

static void contents_fini(struct contents *c)
{
    for (int i = 0; i < PARTS; i++)
        text_free(&c->texts[i]);
    for (int i = 0; i < 2; i++)
        tensor_file_fini(&c->tensors[i]);
}

/* Configuration and tokenizer: the last of the contents, after which their size is known. */
static alibi_status contents_describe(struct contents *c, const struct alibi_config *config,
                                      const alibi_tokenizer *t)
{
    TRY_RETURN(config_write_json(config, &c->texts[PART_CONFIG]));
    TRY_RETURN(tokenizer_format(t, &c->texts[PART_TOKENIZER]));
    c->bytes = c->tensors[PART_MODEL].bytes + c->tensors[PART_OPTIMIZER].bytes;
    for (int i = 0; i < PARTS; i++)
        c->bytes += (int64_t)c->texts[i].length;
    return ALIBI_OK;
}

/* Checks this rank's shard of a buffer. */
static alibi_status check_shard(const struct checkpoint *c, enum sharded which, const char *what)
{
    const struct model *m = c->model;
    struct tensor shard = checkpoint_shard(c, which);
    int64_t count = shard.data ? tensor_count(shard) : 0;
    struct range s;

    for (int64_t at = 0; at < count; at += s.count) {
        s = comm_stretch(c->comm, m->span, at);
        s.count = s.count < count - at ? s.count : count - at;
        TRY_RETURN(model_check_finite(m, vector_part(shard, at, s.count), s.first, what, NULL));
    }
    return ALIBI_OK;
}

/* The weights as `type`. A value that is not finite must not become a checkpoint. */
static alibi_status contents_init(struct contents *out, const struct checkpoint *c,
                                  const char *type)
{
    const struct model *m = c->model;

    *out = (struct contents){ .step = c->state.step,
                              .training = c->training != NULL,
                              .comm = c->comm };
    TRY_RETURN(model_check_finite(m, model_masters(m), m->absent, "the weight", NULL));
    if (!c->fetch) { /* otherwise as they are written */
        TRY_RETURN(check_shard(c, SHARD_MASTERS, "the weight"));
        TRY_RETURN(check_shard(c, SHARD_FIRST, "the optimizer's first moment of"));
        TRY_RETURN(check_shard(c, SHARD_SECOND, "the optimizer's second moment of"));
    }
    TRY_RETURN(tensor_file_of_weights(&out->tensors[PART_MODEL], c, type));
    if (out->training) {
        TRY_RETURN(tensor_file_of_optimizer(&out->tensors[PART_OPTIMIZER], c));
        TRY_RETURN(state_write_json(&c->state, c->training, &out->texts[PART_STATE]));
        if (c->choices.count > 0)
            TRY_RETURN(choices_write_json(&c->choices, &out->texts[PART_PRODUCTS]));
    }
    return contents_describe(out, &m->config, c->tokenizer);
}

/* ---- one attempt at a folder */

/* Beyond the parts: the manifest, and what a file system needs for itself. */
enum { SPACE_MARGIN = 1 << 16 };

static const double MIB = 1 << 20;

static alibi_status check_space(const char *parent, int64_t bytes)
{
    int64_t free_bytes;

    TRY_RETURN(folder_free_space(&free_bytes, parent));
    if (free_bytes < bytes + SPACE_MARGIN)
        return fail(ALIBI_IO, "cannot save: a checkpoint needs %.1f MiB, '%s' has %.1f MiB free",
                    (double)(bytes + SPACE_MARGIN) / MIB, parent, (double)free_bytes / MIB);
    return ALIBI_OK;
}

/* A part is synced before it counts. */
static alibi_status write_text(const char *folder, const char *name, const struct text *text,
                               struct part *part)
{
    alibi_status status;
    char *path = NULL;
    struct file *file = NULL, *synced;

    TRY(path_join(&path, folder, name));
    TRY(file_create(&file, path));
    TRY(file_write(file, text->data, text->length));
    TRY(file_sync(file));
    synced = file;
    file = NULL;
    TRY(file_close(synced));
    *part = (struct part){ .present = true,
                           .bytes = (int64_t)text->length,
                           .crc32 = checksum(0, text->data, text->length) };
out:
    file_close(file);
    mem_free(path);
    return status;
}

/* Without the sync of the folder before the rename, a power cut could keep the manifest and lose
 * the names of the parts. */
static alibi_status write_manifest(const char *folder, const struct manifest *m)
{
    alibi_status status;
    struct text json = { 0 };
    struct part unused;
    char *aside = NULL, *final = NULL;

    manifest_format(m, &json);
    TRY(text_status(&json));
    TRY(path_join(&aside, folder, NAME_MANIFEST NAME_ASIDE));
    TRY(path_join(&final, folder, NAME_MANIFEST));
    TRY(write_text(folder, NAME_MANIFEST NAME_ASIDE, &json, &unused));
    TRY(folder_sync(folder));
    TRY(file_rename(aside, final));
    TRY(folder_sync(folder));
out:
    text_free(&json);
    mem_free(aside);
    mem_free(final);
    return status;
}

/* `folder` is in `parent`. */
static alibi_status write_folder(const char *parent, const char *folder, const struct contents *c)
{
    alibi_status status = ALIBI_OK;
    struct manifest manifest = { .step = c->step };
    bool root = comm_is_root(c->comm);

    if (root)
        status = folder_create(folder);
    TRY_RETURN(comm_agree(c->comm, status));
    for (int i = 0; i < PARTS && status == ALIBI_OK; i++) /* tensors, of all ranks, are first */
        if (i == PART_MODEL || (i == PART_OPTIMIZER && c->training))
            TRY_RETURN(
                tensor_file_write(&c->tensors[i], folder, part_names[i], &manifest.parts[i]));
        else if (c->texts[i].length > 0 && root)
            status = write_text(folder, part_names[i], &c->texts[i], &manifest.parts[i]);
    if (status == ALIBI_OK && root)
        status = write_manifest(folder, &manifest);
    if (status == ALIBI_OK && root)
        status = folder_sync(parent);
    TRY_RETURN(comm_agree(c->comm, status));
    status = checkpoint_verify_together(folder, c->comm);
    if (status == ALIBI_OK || status == ALIBI_MEMORY || !comm_agreed(c->comm))
        return status;
    return fail_context(ALIBI_IO, "a checkpoint does not read back as it was written");
}

/* Removes the leftovers of a failed attempt and keeps the failure's message. A folder that cannot
 * be removed now has no manifest, or one that does not verify, and is removed at the next start. */
static alibi_status discard(const char *folder, alibi_status status, const struct alibi_call *call)
{
    struct failure failure;

    failure_keep(&failure, status);
    if (step_folder_remove(folder) != ALIBI_OK)
        call_warn(call, "an unfinished checkpoint remains: %s", alibi_error());
    return failure_raise(&failure);
}

/* After a failed sync the kernel may have dropped the pages and would report success the next time.
 * So no file of a failed attempt is used again: everything is written once more, from memory, into
 * new files. */
static alibi_status write_twice_at_most(const char *parent, const char *folder,
                                        const struct contents *c, const struct alibi_call *call)
{
    alibi_status status = ALIBI_OK;
    bool root = comm_is_root(c->comm), left;

    if (root && (status = check_space(parent, c->bytes)) != ALIBI_OK)
        discard(folder, status, call);
    TRY_RETURN(comm_agree(c->comm, status));
    for (bool again = true;; again = false) {
        status = write_folder(parent, folder, c);
        if (status == ALIBI_OK || !comm_agreed(c->comm))
            return status; /* without the others there is nothing more to do */
        if (root)
            discard(folder, status, call);
        left = root && folder_exists(folder);
        TRY_RETURN(comm_any(c->comm, &left));
        if (status != ALIBI_IO || !again || left)
            return status;
        call_note(call, "writing '%s' again: %s", folder, alibi_error());
    }
}

/* ---- the checkpoints that were there before */

/* A checkpoint of this step that verifies must not be lost while its successor is written: it is
 * set aside under a name that checkpoint_find knows, and so is one that cannot be read now. A
 * damaged one is removed. */
static alibi_status make_way(const char *run, const char *folder, int64_t step)
{
    alibi_status status;
    char *aside = NULL;

    if (!folder_exists(folder))
        return ALIBI_OK;
    status = checkpoint_verify(folder);
    if (status == ALIBI_MEMORY)
        return status;
    if (status == ALIBI_BAD_INPUT)
        return step_folder_remove(folder);
    TRY(step_folder_path(&aside, run, step, true));
    TRY(file_rename(folder, aside));
    TRY(folder_sync(run));
out:
    mem_free(aside);
    return status;
}

/* It is damaged only if rank 0 finds so too: another rank may just not see it. */
static alibi_status verify_older(const char *path, alibi_comm *comm)
{
    alibi_status status = checkpoint_verify_together(path, comm);

    if (status != ALIBI_BAD_INPUT || comm_size(comm) == 1)
        return status;
    return comm_agree(comm, comm_is_root(comm) ? checkpoint_verify(path) : ALIBI_OK);
}

/* Keeps the checkpoint that was just saved, and the newest older one that verifies, as a fallback.
 * A checkpoint that cannot be read now may be intact, and is kept too. The others are older,
 * damaged, set aside, or of later steps that did not verify when the run was resumed. The
 * checkpoint of step c->keep is not dropped either. All ranks go through the list of rank 0. */
static alibi_status drop_others(const char *run, const struct checkpoint *c)
{
    alibi_status status = ALIBI_OK;
    struct step_folder *folders = NULL;
    int64_t step = c->state.step;
    int count = 0;
    bool fallback = false; /* it was met */
    bool root = comm_is_root(c->comm);
    char *path = NULL;

    if (root)
        status = step_folders(&folders, &count, run);
    TRY(comm_agree(c->comm, status));
    TRY(comm_broadcast(c->comm, &count, sizeof count));
    for (int i = 0; i < count; i++) {
        struct {
            int64_t step;
            bool old, complete;
        } f = { 0 };
        bool keep;
        if (root) {
            f.step = folders[i].step;
            f.old = folders[i].old;
            f.complete = folders[i].complete;
        }
        TRY(comm_broadcast(c->comm, &f, sizeof f));
        keep = (f.step == step || f.step == c->keep) && !f.old && f.complete;
        if (f.step < step && f.complete && !fallback) {
            mem_free(path);
            path = NULL;
            status = root ? text_copy(&path, folders[i].path)
                          : step_folder_path(&path, run, f.step, f.old);
            TRY(comm_agree(c->comm, status));
            status = verify_older(path, c->comm);
            if (status == ALIBI_MEMORY || (status != ALIBI_OK && !comm_agreed(c->comm)))
                goto out;
            keep = status != ALIBI_BAD_INPUT;
            fallback = status == ALIBI_OK;
        }
        status = !keep && root ? step_folder_remove(folders[i].path) : ALIBI_OK;
        TRY(comm_agree(c->comm, status));
    }
out:
    mem_free(path);
    step_folders_free(folders, count);
    return status;
}

/* ---- the room's interface */

alibi_status checkpoint_save(const char *run, const struct checkpoint *c,
                             const struct alibi_call *call)
{
    alibi_status status;
    struct contents contents = { 0 };
    char *folder = NULL;
    int64_t step = c->state.step;

    status = contents_init(&contents, c, "F32");
    if (status == ALIBI_NUMERIC)
        fail_context(status, "step %lld", (long long)step);
    if (status == ALIBI_OK)
        status = step_folder_path(&folder, run, step, false);
    if (status == ALIBI_OK && comm_is_root(c->comm))
        status = make_way(run, folder, step);
    TRY(comm_agree(c->comm, status));
    TRY(write_twice_at_most(run, folder, &contents, call));
    call_note(call, "saved step %lld in '%s'", (long long)step, folder);
    TRY(drop_others(run, c));
out:
    contents_fini(&contents);
    mem_free(folder);
    return status;
}

/* The newest one, the one before it and the one that is being written. */
enum { MOST_AT_ONCE = 3 };

alibi_status checkpoint_check_space(const char *run, const struct checkpoint *c, bool best,
                                    const struct alibi_call *call)
{
    alibi_status status;
    struct tensor_file weights = { 0 }, moments = { 0 };
    struct step_folder *folders = NULL;
    int count = 0, more = MOST_AT_ONCE + best;
    int64_t bytes, free_bytes;

    TRY(tensor_file_of_model(&weights, c->model, "F32"));
    TRY(tensor_file_of_moments(&moments, c->model, c->first, c->second));
    TRY(step_folders(&folders, &count, run));
    TRY(folder_free_space(&free_bytes, run));
    bytes = weights.bytes + moments.bytes + SPACE_MARGIN;
    for (int i = 0; i < count && more > 1; i++)
        more -= folders[i].complete;
    if (free_bytes < bytes)
        status =
            fail(ALIBI_IO,
                 "cannot train in '%s': a checkpoint takes %.1f MiB, and the disk has %.1f MiB "
                 "free; make room, or use another folder",
                 run, (double)bytes / MIB, (double)free_bytes / MIB);
    else if (free_bytes / bytes < more)
        call_warn(call,
                  "'%s' needs %.1f MiB for %d more checkpoints, and the disk has %.1f MiB free",
                  run, (double)bytes * more / MIB, more, (double)free_bytes / MIB);
out:
    step_folders_free(folders, count);
    tensor_file_fini(&moments);
    tensor_file_fini(&weights);
    return status;
}

static alibi_status check_empty(const char *folder)
{
    char **names = NULL;
    int count = 0;

    TRY_RETURN(folder_list(&names, &count, folder));
    names_free(names, count);
    if (count > 0)
        return fail(ALIBI_BAD_INPUT, "cannot save a model in '%s': the folder is not empty",
                    folder);
    return ALIBI_OK;
}

alibi_status checkpoint_check_empty(const char *dir, const struct model *m)
{
    alibi_status status;
    struct tensor_file weights = { 0 };

    TRY(tensor_file_of_model(&weights, m, "F32"));
    TRY(folder_create(dir));
    TRY(check_empty(dir));
    TRY(folder_check_writable(dir));
    TRY(check_space(dir, weights.bytes));
out:
    tensor_file_fini(&weights);
    return status;
}

static alibi_status write_into_empty(const char *dir, const struct contents *c,
                                     const struct alibi_call *call)
{
    alibi_status status;
    char *parent = NULL;

    TRY(path_folder(&parent, dir));
    TRY(folder_create(dir));
    TRY(check_empty(dir));
    TRY(write_twice_at_most(parent, dir, c, call));
out:
    mem_free(parent);
    return status;
}

alibi_status checkpoint_save_weights(const char *dir, const struct model *m,
                                     const alibi_tokenizer *t, enum alibi_precision precision,
                                     const struct alibi_call *call)
{
    static const char *const types[] = {
        [ALIBI_FP32] = "F32", [ALIBI_BF16] = "BF16", [ALIBI_FP16] = "F16"
    };
    alibi_status status;
    const struct checkpoint c = { .model = m, .tokenizer = t };
    struct contents contents = { 0 };

    TRY(contents_init(&contents, &c, types[precision]));
    TRY(write_into_empty(dir, &contents, call));
out:
    contents_fini(&contents);
    return status;
}

alibi_status checkpoint_write_weights(const char *dir, const struct model *outline,
                                      const alibi_tokenizer *t, struct tensor_source *weights,
                                      const struct alibi_call *call)
{
    alibi_status status;
    struct contents c = { 0 };

    TRY(tensor_file_of_source(&c.tensors[PART_MODEL], outline, weights));
    TRY(contents_describe(&c, &outline->config, t));
    TRY(write_into_empty(dir, &c, call));
out:
    contents_fini(&c);
    return status;
}

alibi_status checkpoint_clean(const char *run)
{
    alibi_status status;
    struct step_folder *folders = NULL;
    int count = 0;

    TRY(step_folders(&folders, &count, run));
    for (int i = 0; i < count; i++)
        if (!folders[i].complete)
            TRY(step_folder_remove(folders[i].path));
out:
    step_folders_free(folders, count);
    return status;
}
