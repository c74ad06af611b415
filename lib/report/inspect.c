/* inspect.c - what a checkpoint, a run, a safetensors file or a report is made of; inspect_text.c
 * has the rest */
#include <string.h>

#include "report/inspect.h"
#include "base/names.h"
#include "checkpoint/parts.h"

/* ---- tensors */

static alibi_status add_tensors(struct page *p, const char *path)
{
    alibi_status status;
    struct safetensors *file = NULL;

    TRY(safetensors_open(&file, path));
    TRY(page_open(p, "tensors"));
    for (int i = 0; i < file->count; i++) {
        const struct safetensor *t = &file->tensors[i];
        TRY(page_tensor(p, t->name, t->type, t->shape, t->rank));
    }
    TRY(page_close(p));
out:
    safetensors_free(file);
    return status;
}

/* ---- a checkpoint */

static alibi_status add_slopes(struct page *p, const struct alibi_config *c)
{
    alibi_status status;
    const struct position_method *method;
    double *slopes = NULL;

    TRY(position_find(&method, c->position));
    if (!method->slope)
        goto out;
    TRY(NEW_ARRAY(&slopes, c->heads, "the slopes"));
    for (int64_t h = 0; h < c->heads; h++)
        slopes[h] = (double)method->slope(c, h);
    TRY(page_reals(p, "slopes", slopes, c->heads));
out:
    mem_free(slopes);
    return status;
}

static alibi_status add_verified(struct page *p, const char *path, bool *training)
{
    struct manifest manifest;
    int64_t bytes = 0;

    TRY_RETURN(manifest_read(&manifest, path));
    for (int i = 0; i < PARTS; i++)
        bytes += manifest.parts[i].bytes;
    *training = manifest.parts[PART_STATE].present;
    TRY_RETURN(page_text(p, "verified", "every byte"));
    return page_int(p, "bytes", bytes);
}

/* `trained`: it has the state of a training run, which weights alone do not have. */
static alibi_status add_checkpoint(struct page *p, const char *path,
                                   const struct alibi_config *config, bool trained)
{
    struct train_state state;
    struct alibi_training training;
    const struct alibi_option *options;
    int count;

    if (trained) {
        TRY_RETURN(checkpoint_read_state(path, &state, &training));
        TRY_RETURN(page_int(p, "step", state.step));
        TRY_RETURN(page_real(p, "loss", state.loss));
    }
    TRY_RETURN(page_int(p, "parameters", config_parameters(config)));
    TRY_RETURN(page_int(p, "vocab", config->vocab));
    TRY_RETURN(add_slopes(p, config));
    options = alibi_config_options(&count);
    TRY_RETURN(page_options(p, "model", options, count, config));
    options = training_shaping_options(&count);
    return trained ? page_options(p, "training", options, count, &training) : ALIBI_OK;
}

/* `path` was verified by whoever found it. */
static alibi_status inspect_checkpoint(struct page *p, const char *path)
{
    alibi_status status;
    struct alibi_config config;
    alibi_tokenizer *tokenizer = NULL;
    char *weights = NULL;
    bool trained;

    TRY(checkpoint_read_config(path, &config, &tokenizer));
    TRY(path_join(&weights, path, part_names[PART_MODEL]));
    TRY(page_text(p, "kind", "checkpoint"));
    TRY(page_text(p, "path", path));
    TRY(add_verified(p, path, &trained));
    TRY(page_text(p, "tokenizer", alibi_tokenizer_type(tokenizer)));
    TRY(add_checkpoint(p, path, &config, trained));
    TRY(add_tensors(p, weights));
out:
    alibi_tokenizer_free(tokenizer);
    mem_free(weights);
    return status;
}

/* ---- a report */

static alibi_status add_method(struct page *p, const json_t *method, const char *path)
{
    const json_t *entry, *lengths = json_object_get(method, "by_length");
    const char *name;
    size_t i;

    TRY_RETURN(json_get_text(method, "name", &name, path));
    TRY_RETURN(page_open(p, name));
    json_array_foreach((json_t *)lengths, i, entry)
    {
        char label[32];
        double ppl;
        int64_t length;
        if (!json_is_number(json_object_get(entry, "ppl")))
            continue; /* the method has no value at this length */
        TRY_RETURN(json_get_int(entry, "length", 1, INT64_MAX, &length, path));
        TRY_RETURN(json_get_real(entry, "ppl", &ppl, path));
        snprintf(label, sizeof label, "%lld", (long long)length);
        TRY_RETURN(page_real(p, label, ppl));
    }
    return page_close(p);
}

static alibi_status inspect_report(struct page *p, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    json_t *results = NULL, *method;
    size_t i;

    TRY(path_join(&path, folder, "results.json"));
    TRY(json_read(&results, path));
    TRY(page_text(p, "kind", "report"));
    TRY(page_text(p, "path", folder));
    TRY(page_open(p, p->json ? "ppl_by_length" : "perplexity by length"));
    json_array_foreach(json_object_get(results, "methods"), i, method)
    {
        TRY(add_method(p, method, path));
    }
    TRY(page_close(p));
out:
    json_decref(results);
    mem_free(path);
    return status;
}

/* ---- a comparison that has no report yet */

/* The step of the newest checkpoint; 0: there is none. */
static alibi_status newest_step(int64_t *step, const char *run)
{
    alibi_status status;
    struct step_folder *folders = NULL;
    int count = 0;

    *step = 0;
    if (!folder_exists(run))
        return ALIBI_OK;
    TRY(step_folders(&folders, &count, run));
    for (int i = 0; i < count && *step == 0; i++)
        *step = folders[i].complete ? folders[i].step : 0;
out:
    step_folders_free(folders, count);
    return status;
}

static alibi_status count_evaluations(int64_t *count, const char *run)
{
    static const char *const protocols[] = { "by_length", "sliding", "stream" };
    alibi_status status;
    char *path = NULL;
    json_t *result = NULL;

    *count = 0;
    TRY(path_join(&path, run, "result.json"));
    if (!file_exists(path))
        goto out;
    TRY(json_read(&result, path));
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        *count += (int64_t)json_array_size(json_object_get(result, protocols[i]));
out:
    json_decref(result);
    mem_free(path);
    return status;
}

static alibi_status add_progress(struct page *p, const char *folder, const char *method)
{
    alibi_status status;
    char *run = NULL;
    int64_t step, evaluations;

    TRY(path_join(&run, folder, method));
    TRY(newest_step(&step, run));
    TRY(count_evaluations(&evaluations, run));
    TRY(page_open(p, method));
    TRY(page_int(p, "step", step));
    TRY(page_int(p, "evaluations", evaluations));
    TRY(page_close(p));
out:
    mem_free(run);
    return status;
}

static alibi_status inspect_unfinished(struct page *p, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    json_t *recipe = NULL, *method;
    int64_t steps, sliding, stream, lengths;
    size_t i;

    TRY(path_join(&path, folder, "recipe.json"));
    TRY(json_read(&recipe, path));
    TRY(json_get_int(recipe, "steps", 1, INT64_MAX, &steps, path));
    TRY(json_get_int(recipe, "sliding_tokens", 0, INT64_MAX, &sliding, path));
    lengths = (int64_t)json_array_size(json_object_get(recipe, "lengths"));
    stream = json_integer_value(json_object_get(recipe, "stream_tokens")); /* came later */
    TRY(page_text(p, "kind", "unfinished comparison"));
    TRY(page_text(p, "path", folder));
    TRY(page_int(p, "steps", steps));
    TRY(page_int(p, "evaluations", lengths * (sliding > 0 ? 2 : 1) + (stream > 0 ? 1 : 0)));
    TRY(page_open(p, p->json ? "done" : "of these are done"));
    json_array_foreach(json_object_get(recipe, "methods"), i, method)
    {
        if (json_is_string(method))
            TRY(add_progress(p, folder, json_string_value(method)));
    }
    TRY(page_close(p));
out:
    json_decref(recipe);
    mem_free(path);
    return status;
}

/* ---- a folder */

static alibi_status inspect_other_folder(struct page *p, const char *path)
{
    bool shards, tokenizer, vocab;

    TRY_RETURN(shards_recognise(&shards, path));
    if (shards)
        return inspect_shards(p, path);
    TRY_RETURN(folder_has(&tokenizer, path, "tokenizer.json"));
    TRY_RETURN(folder_has(&vocab, path, "vocab.json"));
    if (tokenizer || vocab)
        return inspect_tokenizer(p, path);
    return fail(ALIBI_BAD_INPUT,
                "'%s' holds neither a checkpoint nor a report, tokens or a tokenizer", path);
}

static alibi_status inspect_folder(struct page *p, const char *path)
{
    alibi_status status;
    bool report, comparison, recipe;
    char *checkpoint = NULL;

    TRY(folder_has(&report, path, "results.json"));
    if (report) {
        TRY(inspect_report(p, path));
        goto out;
    }
    TRY(folder_has(&comparison, path, "text.json"));
    TRY(folder_has(&recipe, path, "recipe.json"));
    if (comparison && recipe) {
        TRY(inspect_unfinished(p, path));
        goto out;
    }
    TRY(checkpoint_find(&checkpoint, path, hooks_call()));
    if (checkpoint)
        TRY(inspect_checkpoint(p, checkpoint));
    else
        TRY(inspect_other_folder(p, path));
out:
    mem_free(checkpoint);
    return status;
}

/* ---- a file */

static alibi_status inspect_safetensors(struct page *p, const char *path)
{
    TRY_RETURN(page_text(p, "kind", "safetensors"));
    TRY_RETURN(page_text(p, "path", path));
    return add_tensors(p, path);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static alibi_status inspect_any(struct page *p, const char *path)
{
    enum path_kind kind;
    bool shards;

    TRY_RETURN(path_look(&kind, path));
    if (kind == PATH_FOLDER)
        return inspect_folder(p, path);
    if (ends_with(path, ".safetensors"))
        return inspect_safetensors(p, path);
    if (ends_with(path, NAME_SHARD_INDEX))
        return inspect_shards(p, path);
    if (ends_with(path, ".json"))
        return inspect_tokenizer(p, path);
    TRY_RETURN(shards_recognise(&shards, path));
    return shards ? inspect_shards(p, path) : inspect_text(p, path);
}

alibi_status alibi_inspect(char **out, const char *path, bool json)
{
    alibi_status status;
    struct page p;

    TRY(page_begin(&p, json));
    TRY(inspect_any(&p, path));
    TRY(page_end(&p));
    *out = p.out.data;
    p.out = (struct text){ 0 };
out:
    text_free(&p.out);
    return status;
}
