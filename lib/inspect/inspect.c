/* inspect.c - describes a file or a folder: alibi_inspect()
 *
 *   folder   a report, an unfinished comparison, a checkpoint or a run, token shards, a tokenizer
 *   file     safetensors, token shards, a tokenizer, a text */
#include <string.h>

#include "base/names.h"
#include "checkpoint/parts.h"
#include "formats/gguf.h"
#include "inspect/page.h"

static void begin_kind(struct page *p, const char *kind, const char *path)
{
    page_text(p, "kind", kind);
    page_text(p, "path", path);
}

/* ---- checkpoints and safetensors */

static alibi_status add_tensors(struct page *p, const char *path)
{
    struct safetensors *file = NULL;

    TRY_RETURN(safetensors_open(&file, path));
    page_open(p, "tensors");
    for (int i = 0; i < file->count; i++) {
        const struct safetensor *t = &file->tensors[i];
        page_tensor(p, t->name, t->type, t->shape, t->rank);
    }
    page_close(p);
    safetensors_free(file);
    return ALIBI_OK;
}

static alibi_status add_learned(struct page *p, const char *path, const struct alibi_config *c)
{
    alibi_status status;
    struct learned learned = { 0 };

    TRY(learned_read(&learned, path, c));
    for (int64_t i = 0; i < learned.count; i++) {
        const struct learned_row *row = &learned.row[i];
        char numbered[sizeof row->name + 24];

        snprintf(numbered, sizeof numbered, row->place < 0 ? "%s" : "%s_%lld", row->name,
                 (long long)row->place);
        page_reals(p, numbered, row->value, row->heads);
    }
out:
    learned_fini(&learned);
    return status;
}

/* checkpoint_find() has verified it. */
static alibi_status inspect_checkpoint(struct page *p, const char *path)
{
    alibi_status status;
    struct manifest manifest;
    struct train_state state;
    struct alibi_config config;
    struct alibi_training training;
    const struct alibi_option *options;
    alibi_tokenizer *tokenizer = NULL;
    char *weights = NULL, fitted[ALIBI_NAME_MAX];
    int64_t bytes = 0;
    bool trained; /* weights alone have no state of a training run */
    int count;

    TRY(checkpoint_read_config(path, &config, &tokenizer));
    TRY(manifest_read(&manifest, path));
    TRY(path_join(&weights, path, NAME_WEIGHTS));
    for (int i = 0; i < PARTS; i++)
        bytes += manifest.parts[i].bytes;
    trained = manifest.parts[PART_STATE].present;
    if (trained)
        TRY(checkpoint_read_state(path, &state, &training));

    begin_kind(p, "checkpoint", path);
    page_text(p, "verified", "every byte");
    page_int(p, "bytes", bytes);
    page_text(p, "tokenizer", alibi_tokenizer_type(tokenizer));
    if (trained) {
        page_int(p, "step", state.step);
        page_real(p, "loss", state.loss);
    }
    page_int(p, "parameters", config_parameters(&config));
    TRY(checkpoint_read_fitted(path, fitted));
    if (fitted[0])
        page_text(p, "fitted", fitted);
    TRY(add_learned(p, path, &config));
    options = alibi_config_options(&count);
    page_options(p, "model", options, count, &config);
    options = training_shaping_options(&count);
    if (trained)
        page_options(p, "training", options, count, &training);
    TRY(add_tensors(p, weights));
out:
    alibi_tokenizer_free(tokenizer);
    mem_free(weights);
    return status;
}

/* ---- comparisons */

/* The perplexities of one method by length, without lengths at which it has no value. */
static alibi_status add_method(struct page *p, const json_t *method, const char *path)
{
    const json_t *entry, *lengths = json_object_get(method, "by_length");
    const char *name;
    size_t i;

    TRY_RETURN(json_get_text(method, "name", &name, path));
    page_open(p, name);
    json_array_foreach((json_t *)lengths, i, entry)
    {
        char label[32];
        double ppl;
        int64_t length;

        if (!json_is_number(json_object_get(entry, "ppl")))
            continue;
        TRY_RETURN(json_get_int(entry, "length", 1, INT64_MAX, &length, path));
        TRY_RETURN(json_get_real(entry, "ppl", &ppl, path));
        snprintf(label, sizeof label, "%lld", (long long)length);
        page_real(p, label, ppl);
    }
    page_close(p);
    return ALIBI_OK;
}

/* "" if there is none. */
static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* The verdicts of an experiment, finished or not. */
static void add_experiment(struct page *p, const json_t *results, const char *folder)
{
    json_t *claim;
    size_t i;

    begin_kind(p, "experiment", folder);
    page_text(p, "title", text_of(results, "title"));
    page_text(p, "tier", text_of(results, "tier"));
    page_int(p, "trainings", json_integer_value(json_object_get(results, "trainings")));
    page_int(p, "done", json_integer_value(json_object_get(results, "done")));
    page_open(p, "claims");
    json_array_foreach(json_object_get(results, "claims"), i, claim)
    {
        char number[24], line[512];

        snprintf(number, sizeof number, "%zu", i + 1);
        snprintf(line, sizeof line, "%s: %s", text_of(claim, "verdict"), text_of(claim, "claim"));
        page_text(p, number, line);
    }
    page_close(p);
}

static alibi_status inspect_report(struct page *p, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    json_t *results = NULL, *method;
    size_t i;

    TRY(path_join(&path, folder, NAME_RESULTS));
    TRY(json_read(&results, path));
    if (json_object_get(results, "experiment")) {
        add_experiment(p, results, folder);
        goto out;
    }
    begin_kind(p, "report", folder);
    page_open(p, p->json ? "ppl_by_length" : "perplexity by length");
    json_array_foreach(json_object_get(results, "methods"), i, method)
    {
        TRY(add_method(p, method, path));
    }
    page_close(p);
out:
    json_decref(results);
    mem_free(path);
    return status;
}

/* The step of a method's newest checkpoint and the evaluations in its result.json; 0 if there are
 * none yet. */
static alibi_status add_progress(struct page *p, const char *folder, const char *method)
{
    static const char *const protocols[] = { "by_length", "sliding", "stream", "passage" };
    alibi_status status;
    char *run = NULL, *path = NULL;
    struct step_folder *folders = NULL;
    json_t *result = NULL;
    int64_t step = 0, evaluations = 0;
    int count = 0;

    TRY(path_join(&run, folder, method));
    TRY(path_join(&path, run, NAME_RESULT));
    if (folder_exists(run))
        TRY(step_folders(&folders, &count, run));
    for (int i = 0; i < count && step == 0; i++)
        step = folders[i].complete ? folders[i].step : 0;
    if (file_exists(path))
        TRY(json_read(&result, path));
    for (int i = 0; i < 4; i++)
        evaluations += (int64_t)json_array_size(json_object_get(result, protocols[i]));
    page_open(p, method);
    page_int(p, "step", step);
    page_int(p, "evaluations", evaluations);
    page_close(p);
out:
    json_decref(result);
    step_folders_free(folders, count);
    mem_free(path);
    mem_free(run);
    return status;
}

static alibi_status inspect_unfinished(struct page *p, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    json_t *recipe = NULL, *method;
    int64_t steps, sliding, stream, lengths;
    size_t i, seeds;

    TRY(path_join(&path, folder, NAME_RECIPE));
    TRY(json_read(&recipe, path));
    TRY(json_get_int(recipe, "steps", 1, INT64_MAX, &steps, path));
    TRY(json_get_int(recipe, "sliding_tokens", 0, INT64_MAX, &sliding, path));
    lengths = (int64_t)json_array_size(json_object_get(recipe, "lengths"));
    stream = json_integer_value(json_object_get(recipe, "stream_tokens")); /* 0 in older ones */
    begin_kind(p, "unfinished comparison", folder);
    page_int(p, "steps", steps);
    page_int(p, "evaluations", lengths * (sliding > 0 ? 2 : 1) + (stream > 0 ? 2 : 0));
    page_open(p, p->json ? "done" : "of these are done");
    /* The first seed has the name of the method; an older recipe, or one seed, has no list. */
    seeds = json_array_size(json_object_get(recipe, "seeds"));
    for (size_t k = 0; k < (seeds > 0 ? seeds : 1); k++)
        json_array_foreach(json_object_get(recipe, "methods"), i, method)
        {
            json_int_t seed =
                json_integer_value(json_array_get(json_object_get(recipe, "seeds"), k));
            const char *of = k > 0 ? "-seed-" : "";
            char name[2 * ALIBI_NAME_MAX], number[24] = "";

            if (k > 0)
                snprintf(number, sizeof number, "%lld", (long long)seed);
            if (json_is_string(method) &&
                snprintf(name, sizeof name, "%s%s%s", json_string_value(method), of, number) <
                    (int)sizeof name)
                TRY(add_progress(p, folder, name));
        }
    page_close(p);
out:
    json_decref(recipe);
    mem_free(path);
    return status;
}

/* ---- texts */

static alibi_status inspect_text(struct page *p, const char *path, const struct alibi_call *call)
{
    static const struct {
        const char *name;
        enum alibi_split split;
    } splits[] = { { "all", ALIBI_ALL },
                   { "train", ALIBI_TRAIN },
                   { "valid", ALIBI_VALID },
                   { "test", ALIBI_TEST } };
    alibi_status status;
    alibi_corpus *corpus = NULL;
    struct alibi_reading reading;
    struct alibi_option_group group = { .title = "text", .values = &reading };

    group.options = alibi_reading_options(&group.count);
    TRY_RETURN(alibi_options_init(&group, 1));
    TRY(alibi_corpus_open(&corpus, &path, 1, NULL, NULL, &reading, call));
    begin_kind(p, "text", path);
    for (int i = 0; i < 4; i++) {
        struct alibi_corpus_info info;

        alibi_corpus_get_info(corpus, splits[i].split, &info);
        page_open(p, splits[i].name);
        page_int(p, "documents", info.documents);
        page_int(p, "tokens", info.tokens);
        page_int(p, "words", info.words);
        page_int(p, "bytes", info.bytes);
        page_close(p);
    }
out:
    alibi_options_free(&group, 1);
    alibi_corpus_free(corpus);
    return status;
}

/* ---- tokenizers */

static alibi_status add_merges(struct page *p, const alibi_tokenizer *t)
{
    alibi_status status;
    struct text json = { 0 };
    struct bpe_file *file = NULL;

    TRY(tokenizer_format(t, &json));
    TRY(bpe_file_parse(&file, json.data, json.length, NAME_TOKENIZER));
    page_int(p, "merges", file->merge_count);
out:
    bpe_file_free(file);
    text_free(&json);
    return status;
}

static alibi_status add_tokenizer(struct page *p, const alibi_tokenizer *t)
{
    alibi_status status = ALIBI_OK;
    int32_t end = alibi_tokenizer_end(t);
    char *text = NULL, sum[16];
    size_t bytes;

    page_text(p, "type", alibi_tokenizer_type(t));
    page_int(p, "vocab", alibi_tokenizer_vocab(t));
    if (strcmp(alibi_tokenizer_type(t), "bpe") == 0)
        TRY(add_merges(p, t));
    TRY(alibi_tokenizer_decode(t, &end, end >= 0 ? 1 : 0, &text, &bytes));
    if (alibi_tokenizer_begin(t) >= 0)
        page_int(p, "begin", alibi_tokenizer_begin(t));
    if (end >= 0)
        page_int(p, "end", end);
    else
        page_none(p, "end");
    if (bytes > 0 && p->json)
        page_text(p, "end_text", text);
    else if (bytes > 0) /* for words it is the end of a line */
        page_text(p, "end text", strcmp(text, "\n") == 0 ? "\\n" : text);
    snprintf(sum, sizeof sum, "%08lx", (unsigned long)tokenizer_checksum(t));
    page_text(p, "checksum", sum);
out:
    alibi_text_free(text);
    return status;
}

static alibi_status inspect_tokenizer(struct page *p, const char *path)
{
    alibi_status status;
    alibi_tokenizer *t = NULL;

    TRY(alibi_tokenizer_open(&t, path, NULL));
    begin_kind(p, "tokenizer", path);
    TRY(add_tokenizer(p, t));
out:
    alibi_tokenizer_free(t);
    return status;
}

/* ---- token shards */

struct opened_shards {
    struct shards list;
    struct shard_index index;
    bool has_index;
    alibi_tokenizer *tokenizer; /* NULL: there is no index, not even in the folder of a shard */
};

/* shards_open() has compared every checksum. Only a whole folder has counts. */
static alibi_status add_indexed(struct page *p, const struct opened_shards *s, int64_t tokens)
{
    alibi_status status;

    for (int i = 0; i < s->list.count; i++)
        TRY(shard_check(&s->list.at[i], alibi_tokenizer_vocab(s->tokenizer)));
    page_text(p, "verified", "every byte, every id");
    if (s->has_index)
        page_int(p, "documents", s->index.documents);
    page_int(p, "tokens", tokens);
    if (s->has_index) {
        page_int(p, "words", s->index.words);
        page_int(p, "bytes", s->index.bytes);
    }
    page_open(p, "tokenizer");
    TRY(add_tokenizer(p, s->tokenizer));
    page_close(p);
out:
    return status;
}

static alibi_status inspect_shards(struct page *p, const char *path, const struct alibi_call *call)
{
    alibi_status status;
    struct opened_shards s = { 0 };
    int64_t tokens, largest = -1;

    TRY(shards_open(&s.list, &s.index, &s.has_index, &s.tokenizer, path, call));
    tokens = shards_tokens(&s.list);
    begin_kind(p, "tokens", path);
    if (s.tokenizer != NULL) {
        TRY(add_indexed(p, &s, tokens));
    } else {
        for (int i = 0; i < s.list.count; i++) {
            int64_t here = shard_largest(&s.list.at[i]);
            largest = here > largest ? here : largest;
        }
        page_text(p, "verified",
                  "headers and sizes: there is no " NAME_SHARD_INDEX " with checksums");
        page_int(p, "tokens", tokens);
        page_int(p, p->json ? "largest_id" : "largest id", largest);
    }
    page_open(p, "shards");
    for (int i = 0; i < s.list.count; i++) {
        const struct shard *shard = &s.list.at[i];
        const char *slash = strrchr(shard->path, '/');

        page_open(p, slash ? slash + 1 : shard->path);
        page_int(p, "tokens", shard->count);
        page_int(p, "bits", 8 * shard->width);
        page_close(p);
    }
    page_close(p);
out:
    shards_fini(&s.list);
    shard_index_fini(&s.index);
    alibi_tokenizer_free(s.tokenizer);
    return status;
}

/* ---- models of other programs */

static void add_pair(struct page *p, const struct gguf_pair *pair)
{
    static const int64_t longest = 200;
    const struct gguf_value *v = &pair->value;
    char key[ALIBI_NAME_MAX], text[256];
    struct slice words;
    int64_t whole;
    double number;
    bool flag;

    snprintf(key, sizeof key, "%.*s", (int)pair->key.bytes, pair->key.at);
    if (v->array) {
        snprintf(text, sizeof text, "%lld items", (long long)v->count);
        page_text(p, key, text);
    } else if (gguf_text(v, &words)) {
        snprintf(text, sizeof text, "%.*s%s",
                 (int)((int64_t)words.bytes < longest ? (int64_t)words.bytes : longest), words.at,
                 (int64_t)words.bytes > longest ? "..." : "");
        line_clean(text);
        page_text(p, key, text);
    } else if (gguf_flag(v, &flag)) {
        page_text(p, key, flag ? "true" : "false");
    } else if (gguf_integer(v, 0, &whole)) {
        page_int(p, key, whole);
    } else if (gguf_real(v, 0, &number)) {
        page_real(p, key, number);
    }
}

static alibi_status inspect_gguf(struct page *p, const char *path)
{
    struct gguf *g = NULL;

    TRY_RETURN(gguf_open(&g, path));
    begin_kind(p, "gguf", path);
    page_text(p, "use", "alibi import makes a model of it");
    page_open(p, "metadata");
    for (int i = 0; i < g->pair_count; i++)
        add_pair(p, &g->pairs[i]);
    page_close(p);
    page_open(p, "tensors");
    for (int i = 0; i < g->tensor_count; i++)
        page_tensor(p, g->tensors[i].name, g->tensors[i].type->name, g->tensors[i].shape,
                    g->tensors[i].rank);
    page_close(p);
    gguf_free(g);
    return ALIBI_OK;
}

/* The numbers and names of config.json, and the tensors of each file. */
static alibi_status inspect_huggingface(struct page *p, const char *folder)
{
    alibi_status status;
    char *path = NULL, **names = NULL;
    json_t *config = NULL, *value;
    const char *key;
    int count = 0;

    TRY(path_join(&path, folder, "config.json"));
    TRY(json_read(&config, path));
    TRY(folder_list(&names, &count, folder));
    begin_kind(p, "hugging face model", folder);
    page_text(p, "use", "alibi import makes a model of it");
    page_open(p, "config");
    json_object_foreach(config, key, value)
    {
        if (json_is_string(value))
            page_text(p, key, json_string_value(value));
        else if (json_is_integer(value))
            page_int(p, key, json_integer_value(value));
        else if (json_is_real(value))
            page_real(p, key, json_real_value(value));
        else if (json_is_boolean(value))
            page_text(p, key, json_is_true(value) ? "true" : "false");
    }
    page_close(p);
    for (int i = 0; i < count; i++) {
        if (!ends_with(names[i], ".safetensors"))
            continue;
        mem_free(path);
        path = NULL;
        TRY(path_join(&path, folder, names[i]));
        page_open(p, names[i]);
        TRY(add_tensors(p, path));
        page_close(p);
    }
out:
    names_free(names, count);
    json_decref(config);
    mem_free(path);
    return status;
}

/* ---- which kind the path is */

static alibi_status inspect_folder(struct page *p, const char *path, const struct alibi_call *call)
{
    alibi_status status;
    bool report, text, recipe, shards, tokenizer, vocab, config, weights, parts;
    char *checkpoint = NULL;

    TRY(folder_has(&report, path, NAME_RESULTS));
    TRY(folder_has(&text, path, NAME_COMPARED_TEXT));
    TRY(folder_has(&recipe, path, NAME_RECIPE));
    if (report || (text && recipe)) {
        TRY(report ? inspect_report(p, path) : inspect_unfinished(p, path));
        goto out;
    }
    TRY(checkpoint_find(&checkpoint, path, call));
    if (checkpoint) {
        TRY(inspect_checkpoint(p, checkpoint));
        goto out;
    }
    TRY(shards_recognise(&shards, path));
    TRY(folder_has(&tokenizer, path, NAME_TOKENIZER));
    TRY(folder_has(&vocab, path, "vocab.json"));
    TRY(folder_has(&config, path, "config.json"));
    TRY(folder_has(&weights, path, NAME_WEIGHTS));
    TRY(folder_has(&parts, path, NAME_WEIGHTS ".index.json"));
    if (shards)
        TRY(inspect_shards(p, path, call));
    else if (config && (weights || parts))
        TRY(inspect_huggingface(p, path));
    else if (tokenizer || vocab)
        TRY(inspect_tokenizer(p, path));
    else if (recipe) /* a run: says why it has no checkpoint */
        TRY(checkpoint_find_model(&checkpoint, path, call));
    else
        status = fail(ALIBI_BAD_INPUT,
                      "'%s' has no checkpoint, no report, no token shards and no tokenizer; give a "
                      "folder that a command wrote, or a file",
                      path);
out:
    mem_free(checkpoint);
    return status;
}

static alibi_status inspect_known_file(struct page *p, const char *path, const char *name,
                                       const struct alibi_call *call)
{
    bool shards;

    if (ends_with(path, ".safetensors")) {
        begin_kind(p, "safetensors", path);
        return add_tensors(p, path);
    }
    if (ends_with(path, ".gguf"))
        return inspect_gguf(p, path);
    if (strcmp(name, NAME_SHARD_INDEX) == 0)
        return inspect_shards(p, path, call);
    if (ends_with(path, ".json"))
        return inspect_tokenizer(p, path);
    TRY_RETURN(shards_recognise(&shards, path));
    return shards ? inspect_shards(p, path, call) : inspect_text(p, path, call);
}

/* A file that is described only as a part of its folder; its name says of what. NULL: none. */
static const char *folder_of_file(const char *name)
{
    static const struct {
        const char *file, *folder;
    } parts[] = {
        { NAME_CONFIG, "a model" },
        { NAME_WEIGHTS ".index.json", "a model" },
        { "generation_config.json", "a model" },
        { "tokenizer_config.json", "a model" },
        { NAME_MANIFEST, "a checkpoint" },
        { NAME_STATE, "a checkpoint" },
        { NAME_PRODUCTS, "a checkpoint" },
        { NAME_FITTED, "a checkpoint" },
        { NAME_RECIPE, "a run or a comparison" },
        { NAME_LOG, "a run" },
        { NAME_TIMING, "a run" },
        { NAME_SOURCE, "a run" },
        { NAME_COMPARED_TEXT, "a comparison" },
        { NAME_RESULT, "a run of a comparison" },
        { NAME_RESULTS, "a comparison or an experiment" },
        { NAME_EXPERIMENT, "an experiment" },
    };

    for (int i = 0; i < COUNT(parts); i++)
        if (strcmp(name, parts[i].file) == 0)
            return parts[i].folder;
    return NULL;
}

/* A text may have any name, so names count only after the content could not be read. */
static alibi_status inspect_file(struct page *p, const char *path, const struct alibi_call *call)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *of = folder_of_file(name);
    alibi_status status = inspect_known_file(p, path, name, call);
    char *folder = NULL;

    if (status != ALIBI_BAD_INPUT || !file_exists(path))
        return status;
    if (of) {
        TRY(path_folder(&folder, path));
        status = fail(ALIBI_BAD_INPUT,
                      "'%s' is a part of %s, and is described with its folder: give '%s'", path, of,
                      folder);
    } else if (ends_with(path, ".json") && strcmp(name, NAME_TOKENIZER) != 0) {
        status = fail(status,
                      "'%s' is neither a " NAME_TOKENIZER " (%s) nor another file that inspect "
                      "describes: safetensors, GGUF, token shards or a text",
                      path, alibi_error());
    }
out:
    mem_free(folder);
    return status;
}

/* RUN/best */
static alibi_status inspect_best(struct page *p, const char *path, const struct alibi_call *call)
{
    alibi_status status;
    char *checkpoint = NULL;

    TRY(checkpoint_find_model(&checkpoint, path, call));
    TRY(inspect_checkpoint(p, checkpoint));
out:
    mem_free(checkpoint);
    return status;
}

alibi_status alibi_inspect(char **out, const char *path, bool json, const struct alibi_call *call)
{
    alibi_status status;
    enum path_kind kind;
    struct page p;

    page_begin(&p, json);
    TRY(path_look(&kind, path));
    if (kind == PATH_FOLDER)
        TRY(inspect_folder(&p, path, call));
    else if (kind == PATH_NONE && checkpoint_is_best(path))
        TRY(inspect_best(&p, path, call));
    else
        TRY(inspect_file(&p, path, call));
    TRY(page_end(&p));
    *out = p.out.data;
    p.out.data = NULL;
out:
    text_free(&p.out);
    return status;
}
