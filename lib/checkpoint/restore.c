/* restore.c - finding and reading checkpoints
 *
 * A checkpoint is verified, byte for byte, by checkpoint_find or checkpoint_verify before it is
 * read. The readers still trust nothing: a checksum says that a file is what was written, not that
 * it makes sense. */
#include <string.h>

#include "base/names.h"
#include "checkpoint/parts.h"

/* ---- finding */

alibi_status checkpoint_verify_together(const char *path, alibi_comm *comm)
{
    struct manifest manifest = { 0 };
    alibi_status status = ALIBI_OK;

    if (comm_is_root(comm))
        status = manifest_read(&manifest, path);
    TRY_RETURN(comm_agree(comm, status));
    TRY_RETURN(comm_broadcast(comm, &manifest, sizeof manifest));
    return manifest_verify(&manifest, path, comm);
}

alibi_status checkpoint_verify(const char *path)
{
    return checkpoint_verify_together(path, NULL);
}

alibi_status checkpoint_find(char **path, const char *run, const struct alibi_call *call)
{
    alibi_status status;
    struct step_folder *folders = NULL;
    int count = 0, passed_over = 0;
    bool is_checkpoint;

    TRY(folder_has(&is_checkpoint, run, NAME_MANIFEST));
    if (is_checkpoint) {
        TRY(checkpoint_verify(run));
        TRY(text_copy(path, run));
        goto out;
    }
    TRY(step_folders(&folders, &count, run));
    for (int i = 0; i < count; i++) {
        if (!folders[i].complete)
            continue;
        status = checkpoint_verify(folders[i].path);
        if (status == ALIBI_OK)
            status = text_copy(path, folders[i].path);
        if (status == ALIBI_OK || status == ALIBI_MEMORY)
            goto out;
        call_warn(call, "skipping the checkpoint of step %lld: %s", (long long)folders[i].step,
                  alibi_error());
        passed_over++;
    }
    if (passed_over > 0)
        fail(status,
             "none of the %d checkpoints in '%s' verifies; the last: %s; restore one from a "
             "copy, or train into another folder",
             passed_over, run, alibi_error());
    else
        *path = NULL;
out:
    step_folders_free(folders, count);
    return status;
}

/* ---- reading */

/* A part that is text, and its path. */
struct part_text {
    char *path, *bytes;
    size_t length;
};

/* The tokenizer is the longest one. */
static alibi_status read_part(struct part_text *t, const char *checkpoint, enum part_id part)
{
    TRY_RETURN(path_join(&t->path, checkpoint, part_names[part]));
    return file_read_all(&t->bytes, &t->length, t->path, TOKENIZER_BYTES_MAX);
}

static void part_text_fini(struct part_text *t)
{
    mem_free(t->path);
    mem_free(t->bytes);
}

alibi_status config_fit_vocab(struct alibi_config *config, const alibi_tokenizer *t)
{
    int64_t ids = alibi_tokenizer_vocab(t);

    if (config->vocab == 0)
        config->vocab = ids;
    if (config->vocab < ids)
        return fail(ALIBI_USAGE, "--vocab %lld is too small: the tokenizer has %lld ids",
                    (long long)config->vocab, (long long)ids);
    return ALIBI_OK;
}

/* A weight takes at least two bytes of the file, so that no configuration can ask for memory that
 * its file does not back. */
static alibi_status check_size(const struct alibi_config *config, const char *path)
{
    struct manifest manifest;
    int64_t parameters = config_parameters(config);

    TRY_RETURN(manifest_read(&manifest, path));
    if (parameters > manifest.parts[PART_MODEL].bytes / (int64_t)sizeof(uint16_t))
        return fail(ALIBI_BAD_INPUT,
                    "'%s': the configuration has %lld parameters, %s has only %lld bytes", path,
                    (long long)parameters, part_names[PART_MODEL],
                    (long long)manifest.parts[PART_MODEL].bytes);
    return ALIBI_OK;
}

alibi_status checkpoint_read_config(const char *path, struct alibi_config *config,
                                    alibi_tokenizer **tokenizer)
{
    alibi_status status;
    struct alibi_config read;
    alibi_tokenizer *t = NULL;
    struct part_text config_json = { 0 }, tokenizer_json = { 0 };

    TRY(read_part(&config_json, path, PART_CONFIG));
    TRY(config_read_json(&read, config_json.bytes, config_json.length, config_json.path));
    TRY(check_size(&read, path));
    TRY(read_part(&tokenizer_json, path, PART_TOKENIZER));
    TRY(tokenizer_read(&t, tokenizer_json.bytes, tokenizer_json.length, tokenizer_json.path));
    if (read.vocab == 0)
        read.vocab = alibi_tokenizer_vocab(t);
    if (read.vocab < alibi_tokenizer_vocab(t))
        TRY(fail(ALIBI_BAD_INPUT, "'%s': vocab %lld is too small: the tokenizer has %lld ids", path,
                 (long long)read.vocab, (long long)alibi_tokenizer_vocab(t)));
    *config = read;
    *tokenizer = t;
    t = NULL;
out:
    part_text_fini(&config_json);
    part_text_fini(&tokenizer_json);
    alibi_tokenizer_free(t);
    return status;
}

alibi_status checkpoint_read_weights(const char *path, struct model *m)
{
    alibi_status status;
    struct tensor_file f = { 0 };
    char *name = NULL;

    TRY(tensor_file_of_model(&f, m, "F32"));
    TRY(path_join(&name, path, part_names[PART_MODEL]));
    TRY(tensor_file_read(&f, name));
    TRY(model_refresh(m));
out:
    mem_free(name);
    tensor_file_fini(&f);
    return status;
}

/* The file without a model: a list of one tensor, in this process. */
static alibi_status read_one(const char *path, struct safetensor entry, float *values,
                             int64_t count)
{
    alibi_status status;
    struct device host = { .ops = &ops_ref };
    struct text missing = { 0 }, unused = { 0 };
    struct tensor view = tensor_1(values, DTYPE_F32, count);
    struct tensor_file f = { .device = &host, .entries = &entry, .views = &view, .count = 1 };
    char *name = NULL;

    TRY(path_join(&name, path, part_names[PART_MODEL]));
    TRY(tensor_file_read_some(&f, name, NULL, &missing, &unused));
    if (missing.length > 0)
        status = fail(ALIBI_BAD_INPUT, "'%s' has no tensor '%s'", name, missing.data);
out:
    text_free(&missing);
    text_free(&unused);
    mem_free(name);
    return status;
}

alibi_status checkpoint_read_numbers(const char *path, const struct alibi_config *config, int kind,
                                     int64_t rows, float *numbers)
{
    char weight[POSITION_WEIGHT_MAX];

    pattern_weight_name(weight, kind);
    return read_one(
        path, (struct safetensor){ .name = weight, .rank = 2, .shape = { rows, config->heads } },
        numbers, rows * config->heads);
}

alibi_status checkpoint_read_slopes(const char *path, const struct alibi_config *config, int kind,
                                    float *slopes)
{
    struct pattern pattern;
    const struct position *p = &pattern.kind[kind];
    int64_t H = config->heads, shape[2] = { 0 };

    TRY_RETURN(pattern_read(&pattern, config));
    if (p->method->parameter_shape)
        p->method->parameter_shape(config, p, shape);
    for (int64_t h = 0; h < H; h++)
        slopes[h] = 1.0f;
    if (shape[0] > 0)
        TRY_RETURN(checkpoint_read_numbers(path, config, kind, 1, slopes));
    for (int64_t h = 0; h < H; h++)
        slopes[h] *= p->method->slope(config, p, h);
    return ALIBI_OK;
}

alibi_status checkpoint_read_logn(const char *path, int64_t layer, int64_t heads, float *factors)
{
    char name[PARAMETER_NAME_MAX];

    model_logn_name(name, layer);
    return read_one(path, (struct safetensor){ .name = name, .rank = 1, .shape = { heads } },
                    factors, heads);
}

alibi_status checkpoint_read_gates(const char *path, int64_t layer, int64_t heads, float *biases)
{
    char name[PARAMETER_NAME_MAX];

    model_gate_bias_name(name, layer);
    return read_one(path, (struct safetensor){ .name = name, .rank = 1, .shape = { heads } },
                    biases, heads);
}

alibi_status checkpoint_read_moments(const char *path, const struct model *m, void *first,
                                     void *second)
{
    alibi_status status;
    struct tensor_file f = { 0 };
    struct text missing = { 0 }, unused = { 0 }; /* the file may have the other one */
    char *name = NULL;

    TRY(tensor_file_of_moments(&f, m, first, second));
    TRY(path_join(&name, path, part_names[PART_OPTIMIZER]));
    TRY(tensor_file_read_some(&f, name, NULL, &missing, &unused));
    if (missing.length > 0)
        status = fail(ALIBI_BAD_INPUT, "'%s' has no tensor '%s'", name, missing.data);
out:
    text_free(&missing);
    text_free(&unused);
    mem_free(name);
    tensor_file_fini(&f);
    return status;
}
