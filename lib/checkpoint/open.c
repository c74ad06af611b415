/* open.c - a trained model, as the public interface knows it */
#include "checkpoint/parts.h"

/* Fails with a hint where the path is a run with checkpoints; one that cannot be read is no hint.
 * */
static alibi_status hint_at_run(const char *from, const char *path)
{
    struct step_folder *folders = NULL;
    int count = 0;
    alibi_status status;

    if (!folder_exists(path))
        return ALIBI_OK;
    status = step_folders(&folders, &count, path);
    if (status != ALIBI_OK)
        return status == ALIBI_BAD_INPUT ? ALIBI_OK : status;
    step_folders_free(folders, count);
    if (count == 0)
        return ALIBI_OK;
    return fail(ALIBI_BAD_INPUT,
                "'%s' holds no checkpoint; there are models in folders within it, such as '%s'",
                from, path);
}

/* The folder of a comparison has a run per method. */
static alibi_status fail_without_checkpoint(const char *from)
{
    alibi_status status;
    char **names = NULL, *path = NULL;
    int count = 0;

    TRY(folder_list(&names, &count, from));
    for (int i = 0; i < count; i++) {
        mem_free(path);
        path = NULL;
        TRY(path_join(&path, from, names[i]));
        TRY(hint_at_run(from, path));
    }
    status = fail(ALIBI_BAD_INPUT, "'%s' holds no checkpoint", from);
out:
    mem_free(path);
    names_free(names, count);
    return status;
}

static alibi_status find(char **path, const char *from)
{
    if (file_exists(from) && !folder_exists(from))
        return fail(ALIBI_BAD_INPUT, "'%s' is not a model: it is a file, not a folder", from);
    TRY_RETURN(checkpoint_find(path, from, hooks_call()));
    return *path ? ALIBI_OK : fail_without_checkpoint(from);
}

alibi_status alibi_model_open(alibi_model **out, alibi_device *device, const char *path,
                              const struct alibi_call *call)
{
    alibi_status status;
    alibi_model *m = NULL;
    struct alibi_config config;

    (void)call;
    TRY(NEW_ZERO_ARRAY(&m, 1, "a model"));
    TRY(find(&m->path, path));
    TRY(checkpoint_read_config(m->path, &config, &m->tokenizer));
    TRY(model_new(&m->model, &config, &device->device, device->type, false));
    TRY(checkpoint_read_weights(m->path, m->model));
    *out = m;
    m = NULL;
out:
    alibi_model_free(m);
    return status;
}

alibi_status alibi_model_save(const alibi_model *model, const char *dir, int precision,
                              const struct alibi_call *call)
{
    if (precision < ALIBI_FP32 || precision > ALIBI_FP16)
        return fail(ALIBI_USAGE, "cannot save '%s': weights are saved in fp32, bf16 or fp16", dir);
    return checkpoint_save_weights(dir, model->model, model->tokenizer,
                                   (enum alibi_precision)precision, call);
}

void alibi_model_free(alibi_model *model)
{
    if (!model)
        return;
    model_free(model->model);
    alibi_tokenizer_free(model->tokenizer);
    mem_free(model->path);
    mem_free(model);
}

const struct alibi_config *alibi_model_view_config(const alibi_model *model)
{
    return &model->model->config;
}

const alibi_tokenizer *alibi_model_view_tokenizer(const alibi_model *model)
{
    return model->tokenizer;
}

int64_t alibi_model_parameters(const alibi_model *model)
{
    return model->model->elements;
}
