/* open.c - models from checkpoints: opened, saved without their training, used to start another */
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "checkpoint/parts.h"

/* ---- opened */

alibi_status alibi_model_open(alibi_model **out, alibi_device *device, const char *path,
                              const struct alibi_call *call)
{
    return alibi_model_open_as(out, device, path, NULL, call);
}

static alibi_status replace_position(struct alibi_config *config, const char *position,
                                     const char *path, struct alibi_device *device,
                                     const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_config c = *config;
    struct model *was = NULL, *is = NULL;
    struct text dropped = { 0 };
    const char *differing;

    if (strlen(position) >= sizeof c.position)
        return fail(ALIBI_USAGE, "position '%s' has more than %d bytes", position,
                    ALIBI_NAME_MAX - 1);
    memset(c.position, 0, sizeof c.position);
    memcpy(c.position, position, strlen(position));
    TRY(alibi_config_resolve(&c));
    TRY(model_outline(&was, config, &device->device, device->type));
    TRY(model_outline(&is, &c, &device->device, device->type));
    differing = model_difference(was, is);
    if (differing)
        TRY(fail(ALIBI_USAGE,
                 "'%s' was trained with position '%s' and cannot be used with '%s': they do "
                 "not learn the same, as '%s' shows",
                 path, config->position, c.position, differing));
    if (strcmp(config->position, c.position) != 0)
        TRY(pattern_check_endless(&is->pattern, position));
    call_note(call, "position '%s' in place of '%s', with which '%s' was trained", c.position,
              config->position, path);
    TRY(pattern_dropped(&dropped, &was->pattern, &is->pattern, position, c.layers));
    if (dropped.length > 0)
        call_warn(call,
                  "position '%s' lacks '%s', with which '%s' was trained: add it, or write the "
                  "values that you want instead",
                  position, dropped.data, path);
    *config = c;
out:
    text_free(&dropped);
    model_free(was);
    model_free(is);
    return status;
}

alibi_status checkpoint_choose_position(struct alibi_config *config, const char *checkpoint,
                                        const char *position, const char *path,
                                        struct alibi_device *device, const struct alibi_call *call)
{
    char fitted[ALIBI_NAME_MAX];

    if (!position) {
        TRY_RETURN(checkpoint_read_fitted(checkpoint, fitted));
        position = fitted;
    }
    if (position[0] == '\0' || strcmp(position, "trained") == 0)
        return ALIBI_OK;
    return replace_position(config, position, path, device, call);
}

alibi_status alibi_model_open_as(alibi_model **out, alibi_device *device, const char *path,
                                 const char *position, const struct alibi_call *call)
{
    alibi_status status;
    alibi_model *m = NULL;
    struct alibi_config config;
    struct manifest manifest;

    TRY(NEW_ZERO_ARRAY(&m, 1, "a model"));
    TRY(checkpoint_find_model(&m->path, path, call));
    TRY(manifest_read(&manifest, m->path));
    m->weights = manifest.parts[PART_MODEL].crc32;
    TRY(checkpoint_read_config(m->path, &config, &m->tokenizer));
    memcpy(m->trained, config.position, sizeof m->trained);
    TRY(checkpoint_choose_position(&config, m->path, position, path, device, call));
    TRY(model_new(&m->model, &config, &device->device, device->type, false));
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
    alibi_tokenizer_free(model->tokenizer);
    mem_free(model->path);
    mem_free(model);
}

alibi_status alibi_model_save(const alibi_model *model, const char *dir, int precision,
                              const struct alibi_call *call)
{
    if (precision < ALIBI_FP32 || precision > ALIBI_FP16)
        return fail(ALIBI_USAGE, "cannot save '%s': weights are saved in fp32, bf16 or fp16", dir);
    return checkpoint_save_weights(dir, model->model, model->tokenizer,
                                   (enum alibi_precision)precision, call);
}

alibi_status alibi_model_keep_fit(const alibi_model *model)
{
    alibi_status status;
    struct alibi_config trained;
    alibi_tokenizer *tokenizer = NULL;

    TRY(checkpoint_read_config(model->path, &trained, &tokenizer));
    if (strcmp(trained.position, model->model->config.position) == 0)
        TRY(file_remove_within(model->path, NAME_FITTED));
    else
        TRY(checkpoint_write_fitted(model->path, model->model->config.position));
out:
    alibi_tokenizer_free(tokenizer);
    return status;
}

alibi_status alibi_model_check_writable(const alibi_model *model, const char *dir)
{
    return dir ? checkpoint_check_empty(dir, model->model) : folder_check_writable(model->path);
}

alibi_status alibi_model_read_config(struct alibi_config *config, const char *path,
                                     const struct alibi_call *call)
{
    alibi_status status;
    char *found = NULL;
    alibi_tokenizer *tokenizer = NULL;

    TRY(checkpoint_find_model(&found, path, call));
    TRY(checkpoint_read_config(found, config, &tokenizer));
out:
    alibi_tokenizer_free(tokenizer);
    mem_free(found);
    return status;
}

alibi_status alibi_model_read_start(struct alibi_config *config, const char *path,
                                    const struct alibi_call *call)
{
    TRY_RETURN(alibi_model_read_config(config, path, call));
    if (config->kv_heads == config->heads)
        config->kv_heads = 0; /* with other heads too, the tensors have the same shapes */
    if (strncmp(config->position, "learned", strlen("learned")) != 0)
        config->max_length = 0; /* no other method has one: it is the new training length */
    return ALIBI_OK;
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

/* Checkpoints are in the folder of their run. A recipe has a text only if it is the built-in one.
 */
alibi_status alibi_model_get_builtin(const alibi_model *model, struct alibi_builtin *text)
{
    alibi_status status;
    struct alibi_builtin found = { 0 };
    char *path = NULL;
    json_t *recipe = NULL;

    TRY(path_join(&path, model->path, "../" NAME_RECIPE));
    if (file_exists(path))
        TRY(json_read(&recipe, path));
    if (json_object_get(recipe, "text_bytes")) {
        TRY(json_get_int(recipe, "text_seed", 0, INT64_MAX, &found.seed, path));
        TRY(json_get_int(recipe, "text_bytes", 1, INT64_MAX, &found.bytes, path));
    }
    *text = found;
out:
    json_decref(recipe);
    mem_free(path);
    return status;
}

alibi_status alibi_model_get_text(const alibi_model *model, char **path)
{
    alibi_status status;
    char *file = NULL, *found = NULL;
    json_t *source = NULL;
    const json_t *files;
    const char *first;

    TRY(path_join(&file, model->path, "../" NAME_SOURCE));
    if (file_exists(file))
        TRY(json_read(&source, file));
    files = json_object_get(source, "files");
    if (files == NULL)
        files = json_object_get(json_array_get(json_object_get(source, "mix"), 0), "files");
    first = json_string_value(json_array_get(files, 0));
    if (first != NULL)
        TRY(text_copy(&found, first));
    *path = found;
out:
    json_decref(source);
    mem_free(file);
    return status;
}

/* By the checksums of the state, which know a text at any path: *known if they tell. */
static alibi_status seen_by_checksum(enum alibi_seen *seen, bool *known, const char *checkpoint,
                                     const alibi_corpus *c, enum alibi_split split)
{
    struct train_state run;
    struct alibi_training training;
    bool held_out = split == ALIBI_VALID || split == ALIBI_TEST;

    TRY_RETURN(checkpoint_read_state(checkpoint, &run, &training));
    *known = true;
    if (run.corpus_checksum == corpus_checksum(c) &&
        (run.files_checksum == corpus_files_checksum(c) || run.files_checksum == 0))
        *seen = held_out ? ALIBI_UNSEEN : ALIBI_SEEN_PARTLY;
    else if (run.files_checksum == corpus_files_checksum(c) &&
             !(corpus_has_own_valid(c) && split == ALIBI_VALID))
        *seen = ALIBI_SEEN; /* one of the two has a validation text of its own */
    else
        *known = false;
    return ALIBI_OK;
}

alibi_status alibi_model_has_seen(const alibi_model *model, const alibi_corpus *corpus,
                                  enum alibi_split split, enum alibi_seen *seen)
{
    alibi_status status;
    char *state = NULL, *source = NULL;
    enum alibi_seen found = ALIBI_UNSEEN;
    bool known = false;

    TRY(path_join(&state, model->path, NAME_STATE));
    TRY(path_join(&source, model->path, "../" NAME_SOURCE));
    if (file_exists(state))
        TRY(seen_by_checksum(&found, &known, model->path, corpus, split));
    if (!known && file_exists(source))
        TRY(corpus_seen_by(&found, corpus, split, source));
    *seen = found;
out:
    mem_free(state);
    mem_free(source);
    return status;
}

/* ---- the weights of another model as a start */

static alibi_status read_init(struct model *m, const char *path, const char *except,
                              const struct alibi_call *call)
{
    alibi_status status;
    struct tensor_file f = { 0 };
    struct text missing = { 0 }, unused = { 0 };
    char *name = NULL;

    TRY(tensor_file_of_model(&f, m, "F32"));
    TRY(path_join(&name, path, part_names[PART_MODEL]));
    TRY(tensor_file_read_some(&f, name, except, &missing, &unused));
    TRY(model_refresh(m));
    call_note(call, "starting from the weights of '%s'", path);
    if (missing.length > 0)
        call_note(call, "new tensors, initialised: %s", missing.data);
    if (unused.length > 0)
        call_note(call, "tensors of '%s' that are not used: %s", path, unused.data);
out:
    mem_free(name);
    text_free(&missing);
    text_free(&unused);
    tensor_file_fini(&f);
    return status;
}

alibi_status checkpoint_init_weights(const char *from, struct model *m, const alibi_tokenizer *t,
                                     const struct alibi_call *call)
{
    alibi_status status;
    char *path = NULL;
    struct alibi_config config;
    alibi_tokenizer *there = NULL;

    TRY(checkpoint_find_model(&path, from, call));
    TRY(checkpoint_read_config(path, &config, &there));
    if (tokenizer_checksum(there) != tokenizer_checksum(t))
        TRY(fail(ALIBI_BAD_INPUT,
                 "its tokenizer (%s, %lld ids) is not that of the text (%s, %lld ids); give "
                 "files of text and --tokenizer %s",
                 alibi_tokenizer_type(there), (long long)alibi_tokenizer_vocab(there),
                 alibi_tokenizer_type(t), (long long)alibi_tokenizer_vocab(t), path));
    if (m) {
        /* Position tables share their names, and are of no use to another method. */
        bool other = strcmp(config.position, m->config.position) != 0;
        TRY(read_init(m, path, other ? "position." : NULL, call));
    }
out:
    alibi_tokenizer_free(there);
    mem_free(path);
    return status == ALIBI_OK || status == ALIBI_MEMORY
               ? status
               : fail_context(status, "cannot start from '%s'", from);
}
