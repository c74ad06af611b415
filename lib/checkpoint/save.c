/* save.c - saving
 *
 * The order is what makes a save survive a kill, a crash of the system or a power cut at any of its
 * points:
 *
 *   room on the disk -> parts, each synced -> manifest aside, synced -> folder synced -> manifest
 *   renamed into place -> folder synced -> run's folder synced -> everything read back and compared
 *   -> "saved" -> the oldest dropped
 *
 * The rename is the moment at which the folder becomes a checkpoint. Up to it the previous
 * checkpoint is untouched, after it both exist; docs/reliability.md says why each sync is there. */
#include <string.h>

#include "checkpoint/parts.h"

/* ---- what is to be written, staged in memory but for the tensors */

struct contents {
    struct tensor_file tensors[2]; /* PART_MODEL, PART_OPTIMIZER */
    struct text texts[PARTS];      /* the other parts */
    int64_t bytes;
};

static void contents_fini(struct contents *c)
{
    for (int i = 0; i < PARTS; i++)
        text_free(&c->texts[i]);
    for (int i = 0; i < 2; i++)
        tensor_file_fini(&c->tensors[i]);
}

static alibi_status contents_init(struct contents *out, const struct checkpoint *c)
{
    *out = (struct contents){ 0 };
    TRY_RETURN(tensor_file_of_model(&out->tensors[PART_MODEL], c->model));
    TRY_RETURN(
        tensor_file_of_moments(&out->tensors[PART_OPTIMIZER], c->model, c->first, c->second));
    TRY_RETURN(config_write_json(&c->model->config, &out->texts[PART_CONFIG]));
    TRY_RETURN(tokenizer_format(c->tokenizer, &out->texts[PART_TOKENIZER]));
    TRY_RETURN(state_write_json(&c->state, &c->training, &out->texts[PART_STATE]));
    out->bytes = out->tensors[PART_MODEL].bytes + out->tensors[PART_OPTIMIZER].bytes;
    for (int i = 0; i < PARTS; i++)
        out->bytes += (int64_t)out->texts[i].length;
    return ALIBI_OK;
}

/* ---- one attempt at a folder */

/* Beyond the parts: the manifest, and what a file system needs for itself. */
enum { SPACE_MARGIN = 1 << 16 };

static alibi_status check_space(const char *run, int64_t bytes)
{
    int64_t free_bytes;

    TRY_RETURN(folder_free_space(&free_bytes, run));
    if (free_bytes < bytes + SPACE_MARGIN)
        return fail(ALIBI_IO, "a checkpoint needs %lld bytes, '%s' has %lld free",
                    (long long)bytes + SPACE_MARGIN, run, (long long)free_bytes);
    return ALIBI_OK;
}

static alibi_status write_text(const char *folder, const char *name, const struct text *text,
                               struct part *part)
{
    alibi_status status;
    struct part_writer w = { 0 };

    TRY(part_open(&w, folder, name));
    TRY(part_put(&w, text->data, text->length));
    TRY(part_finish(&w, part));
out:
    part_abandon(&w);
    return status;
}

static alibi_status write_parts(const char *folder, const struct contents *c, struct manifest *m)
{
    for (int i = 0; i < PARTS; i++)
        if (i == PART_MODEL || i == PART_OPTIMIZER)
            TRY_RETURN(tensor_file_write(&c->tensors[i], folder, part_names[i], &m->parts[i]));
        else
            TRY_RETURN(write_text(folder, part_names[i], &c->texts[i], &m->parts[i]));
    return ALIBI_OK;
}

/* Without the sync of the folder before the rename, a power cut could keep the manifest and lose
 * the names of the parts. */
static alibi_status write_manifest(const char *folder, const struct manifest *m)
{
    alibi_status status;
    struct text json = { 0 };
    struct part unused;
    char *aside = NULL, *final = NULL;

    TRY(manifest_format(m, &json));
    TRY(path_join(&aside, folder, "manifest.json.tmp"));
    TRY(path_join(&final, folder, "manifest.json"));
    TRY(write_text(folder, "manifest.json.tmp", &json, &unused));
    TRY(folder_sync(folder));
    TRY(file_rename(aside, final));
    TRY(folder_sync(folder));
out:
    text_free(&json);
    mem_free(aside);
    mem_free(final);
    return status;
}

static alibi_status read_back(const char *folder)
{
    alibi_status status = checkpoint_verify(folder);

    if (status == ALIBI_OK || status == ALIBI_MEMORY)
        return status;
    return fail_context(ALIBI_IO, "what was written does not read back");
}

static alibi_status write_folder(const char *run, const char *folder, const struct contents *c,
                                 int64_t step)
{
    struct manifest manifest = { .step = step };

    TRY_RETURN(check_space(run, c->bytes));
    TRY_RETURN(folder_create(folder));
    TRY_RETURN(write_parts(folder, c, &manifest));
    TRY_RETURN(write_manifest(folder, &manifest));
    TRY_RETURN(folder_sync(run));
    return read_back(folder);
}

/* Takes away what a failed attempt left; the message stays that of the failure. What cannot be
 * removed now has no manifest, or one that does not verify, and is cleaned at the next start. */
static alibi_status discard(const char *folder, alibi_status failure)
{
    char message[1024];

    snprintf(message, sizeof message, "%s", alibi_error());
    if (step_folder_remove(folder) != ALIBI_OK)
        log_warning("left behind: %s", alibi_error());
    return fail(failure, "%s", message);
}

/* After a failed sync the kernel may have dropped the pages and would report success the next time.
 * So nothing of a failed attempt is built upon: all is written again, once, from memory into new
 * files. */
static alibi_status write_twice_at_most(const char *run, const char *folder,
                                        const struct contents *c, int64_t step)
{
    for (bool again = true;; again = false) {
        alibi_status status = write_folder(run, folder, c, step);
        if (status == ALIBI_OK)
            return ALIBI_OK;
        status = discard(folder, status);
        if (status != ALIBI_IO || !again || folder_exists(folder))
            return status;
        log_note("step %lld is written once more: %s", (long long)step, alibi_error());
    }
}

/* ---- what was there before */

/* A checkpoint of this step that verifies must not be lost while its successor is written: it is
 * set aside under a name that checkpoint_find knows, and so is one that cannot be read now. One
 * that is damaged is in the way. */
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

/* *keep: whether the folder stays beside the checkpoint of `step`. The newest older one that
 * verifies does, and *kept says that it was met; so does one that cannot be read now, which may be
 * whole. */
static alibi_status judge(const struct step_folder *f, int64_t step, bool *keep, bool *kept)
{
    alibi_status status;

    *keep = f->step == step && !f->old;
    if (f->step >= step || !f->complete || *kept)
        return ALIBI_OK;
    status = checkpoint_verify(f->path);
    if (status == ALIBI_MEMORY)
        return status;
    *keep = status != ALIBI_BAD_INPUT;
    *kept = status == ALIBI_OK;
    return ALIBI_OK;
}

/* Keeps the checkpoint of `step`, which was just verified, and one before it to fall back on.
 * Others are older, damaged, set aside, or of later steps that did not verify when the run was
 * resumed. */
static alibi_status drop_others(const char *run, int64_t step)
{
    alibi_status status;
    struct step_folder *folders = NULL;
    int count = 0;
    bool kept = false, keep;

    TRY(step_folders(&folders, &count, run));
    for (int i = 0; i < count; i++) {
        TRY(judge(&folders[i], step, &keep, &kept));
        if (!keep)
            TRY(step_folder_remove(folders[i].path));
    }
out:
    step_folders_free(folders, count);
    return status;
}

static alibi_status check_finite(const struct checkpoint *c)
{
    TRY_RETURN(model_check_finite(c->model, c->model->values, "the weight", NULL));
    TRY_RETURN(model_check_finite(c->model, c->first, "the optimizer's first moment of", NULL));
    return model_check_finite(c->model, c->second, "the optimizer's second moment of", NULL);
}

alibi_status checkpoint_save(const char *run, const struct checkpoint *c)
{
    alibi_status status;
    struct contents contents = { 0 };
    char *folder = NULL;
    int64_t step = c->state.step;

    status = check_finite(c);
    if (status == ALIBI_NUMERIC)
        fail_context(status, "step %lld", (long long)step);
    TRY(status);
    TRY(contents_init(&contents, c));
    TRY(step_folder_path(&folder, run, step, false));
    TRY(make_way(run, folder, step));
    TRY(write_twice_at_most(run, folder, &contents, step));
    log_note("saved step %lld in '%s'", (long long)step, folder);
    TRY(drop_others(run, step));
out:
    contents_fini(&contents);
    mem_free(folder);
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
