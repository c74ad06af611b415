/* open.c - a trained model, as the public interface knows it */
#include "train/train.h"

static alibi_status find(char **path, const char *from)
{
    TRY_RETURN(checkpoint_find(path, from));
    return *path ? ALIBI_OK : fail(ALIBI_BAD_INPUT, "'%s' holds no checkpoint", from);
}

alibi_status alibi_model_open(alibi_model **out, const char *path)
{
    alibi_status status;
    alibi_model *m = NULL;
    struct alibi_config config;

    TRY(NEW_ZERO_ARRAY(&m, 1, "a model"));
    TRY(find(&m->path, path));
    TRY(checkpoint_read_config(m->path, &config, &m->tokenizer));
    m->device = device_default();
    TRY(model_new(&m->model, &config, &m->device, DTYPE_F32, false));
    TRY(checkpoint_read_weights(m->path, m->model));
    *out = m;
    m = NULL;
out:
    alibi_model_free(m);
    return status;
}

void alibi_model_free(alibi_model *model)
{
    if (!model)
        return;
    model_free(model->model);
    tokenizer_free(model->tokenizer);
    mem_free(model->path);
    mem_free(model);
}

const struct alibi_config *alibi_model_view_config(const alibi_model *model)
{
    return &model->model->config;
}

int64_t alibi_model_parameters(const alibi_model *model)
{
    return model->model->elements;
}
