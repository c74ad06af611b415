/* test_exchange.c - models of transformers give its logits here, and go back byte for byte
 *
 * make_exchange.py beside this file wrote exchange/NAME, and says what is in it. Weights are not
 * stored: they are functions of their names, so the files of a model are made here. */
#include <locale.h>

#include "checkpoint/checkpoint.h"
#include "exchange/exchange.h"

#include "check.h"
#include "device.h"
#include "folder.h"

#define LIMIT 1e-4
#define GOLDEN TEST_FOLDER "/golden/exchange"

enum { FILE_MAX = 1 << 22, TENSORS_MAX = 64 };

static const char *const names[] = { "bloom", "mpt",    "falcon",  "gpt2",  "neox", "neox-serial",
                                     "llama", "llama3", "mistral", "qwen2", "qwen3" };
enum { NAMES = sizeof names / sizeof *names };

/* ---- the files of a model */

static const char *golden_path(const char *name, const char *file)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s/%s", GOLDEN, name, file);
    return path;
}

/* For tests of one path more than once: `within` reuses its buffers. */
struct paths {
    char source[512], model[520], back[520], again[520], out[520];
};

static struct paths paths_of(const char *name)
{
    struct paths p;

    snprintf(p.source, sizeof p.source, "%.400s/%.60s", folder, name);
    snprintf(p.model, sizeof p.model, "%.500s.m", p.source);
    snprintf(p.back, sizeof p.back, "%.500s.b", p.source);
    snprintf(p.again, sizeof p.again, "%.500s.a", p.source);
    snprintf(p.out, sizeof p.out, "%.500s.o", p.source);
    return p;
}

static char *read_all(const char *path, size_t *bytes)
{
    char *all = NULL;
    size_t length;

    assert_ok(file_read_all(&all, &length, path, FILE_MAX));
    if (bytes)
        *bytes = length;
    return all;
}

/* As numbers() of make_exchange.py. */
static void fill(float *values, int64_t count, const struct safetensor *t)
{
    size_t bytes = strlen(t->name);
    bool norm = t->rank == 1 && bytes > 7 && strcmp(t->name + bytes - 7, ".weight") == 0;
    uint32_t key = checksum(0, t->name, bytes);

    for (int64_t i = 0; i < count; i++) {
        uint32_t h = (uint32_t)i * 2654435761u ^ key;
        h = (h ^ h >> 15) * 0x2c1b3c6du;
        h = (h ^ h >> 12) * 0x297a2d39u;
        h ^= h >> 15;
        values[i] = ((float)(h & 4095) - 2048) / 8192 + (norm ? 1.0f : 0.0f);
    }
}

static int read_list(struct safetensor *list, const char *name)
{
    char line[256], tensor[160];
    FILE *f = fopen(golden_path(name, "tensors.txt"), "r");
    int count = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        struct safetensor *t = &list[count++];
        long rows = 0, columns = 0;
        assert_true(count <= TENSORS_MAX);
        *t = (struct safetensor){ 0 };
        t->rank = sscanf(line, "%159s %7s %ld %ld", tensor, t->type, &rows, &columns) - 2;
        t->shape[0] = rows;
        t->shape[1] = columns;
        assert_ok(text_copy(&t->name, tensor));
    }
    fclose(f);
    return count;
}

/* `folder`/NAME as transformers would have written it. */
static struct paths make_source(const char *name)
{
    struct safetensor list[TENSORS_MAX];
    int count = read_list(list, name);
    struct paths made = paths_of(name);
    struct text file = { 0 };
    char *config;
    size_t bytes;

    assert_ok(safetensors_header(&file, list, count));
    for (int i = 0; i < count; i++) {
        int64_t n = (list[i].end - list[i].begin) / (int64_t)safetensor_type_bytes(list[i].type);
        float *values = malloc((size_t)n * sizeof *values), *packed = malloc((size_t)n * 4);
        fill(values, n, &list[i]);
        assert_ok(weights_pack(packed, values, n, list[i].type, list[i].name));
        text_append_bytes(&file, packed, (size_t)(list[i].end - list[i].begin));
        free(values);
        free(packed);
        mem_free(list[i].name);
    }
    assert_ok(text_status(&file));
    assert_ok(folder_create(made.source));
    write_file(within(made.source, "model.safetensors"), file.data, file.length);
    config = read_all(golden_path(name, "config.json"), &bytes);
    write_file(within(made.source, "config.json"), config, bytes);
    mem_free(config);
    text_free(&file);
    return made;
}

/* ---- comparing */

static double logits_error(const char *model, const char *name)
{
    size_t bytes;
    char *golden = read_all(golden_path(name, "logits.bin"), &bytes);
    const int32_t *head = (const int32_t *)(void *)golden;
    int64_t L = head[0], V = head[1];
    const float *expected = (const float *)(head + 2 + L);
    float *logits = malloc((size_t)(L * V) * sizeof *logits);
    alibi_model *m = NULL;
    alibi_session *session = NULL;
    double worst = 0;

    assert_ok(alibi_model_open(&m, test_device(), model, test_call()));
    assert_ok(alibi_session_new(&session, m, NULL, test_call()));
    assert_ok(alibi_session_logits(session, 0, head + 2, L, logits));
    for (int64_t i = 0; i < L * V; i++)
        worst = fmax(worst, isnan(logits[i]) ? INFINITY : fabs((double)(logits[i] - expected[i])));
    alibi_session_free(session);
    alibi_model_free(m);
    mem_free(golden);
    free(logits);
    return worst;
}

/* The same tensors, by name, whatever their order. */
static void assert_same_tensors(const char *path, const char *other)
{
    struct safetensors *a = NULL, *b = NULL;
    char *these = read_all(path, NULL), *those = read_all(other, NULL);

    assert_ok(safetensors_open(&a, path));
    assert_ok(safetensors_open(&b, other));
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const struct safetensor *s = &a->tensors[i], *t = NULL;
        for (int k = 0; k < b->count && !t; k++)
            t = strcmp(b->tensors[k].name, s->name) == 0 ? &b->tensors[k] : NULL;
        if (!t)
            fail_msg("'%s' has no tensor '%s'", other, s->name);
        assert_string_equal(s->type, t->type);
        assert_int_equal(s->rank, t->rank);
        assert_memory_equal(s->shape, t->shape, (size_t)s->rank * sizeof *s->shape);
        assert_memory_equal(these + s->begin, those + t->begin, (size_t)(s->end - s->begin));
    }
    safetensors_free(a);
    safetensors_free(b);
    mem_free(these);
    mem_free(those);
}

static void assert_same_file(const char *path, const char *other)
{
    size_t bytes, others;
    char *these = read_all(path, &bytes), *those = read_all(other, &others);

    assert_int_equal(bytes, others);
    assert_memory_equal(these, those, bytes);
    mem_free(these);
    mem_free(those);
}

/* ---- tests */

static void imported_models_give_the_logits_of_transformers_past_the_training_length(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        struct paths p = make_source(names[i]);
        struct alibi_exchanged result;
        double error;

        assert_ok(alibi_import(p.source, p.model, &result, test_call()));
        assert_false(result.tokenizer);
        error = logits_error(p.model, names[i]);
        print_message("%-12s %-10s error %.1e\n", names[i], result.family, error);
        assert_true(error < LIMIT);
    }
}

static void exported_models_have_the_tensors_that_were_imported(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        struct paths p = make_source(names[i]);
        struct alibi_export how = { .format = ALIBI_HUGGING_FACE };
        struct alibi_exchanged result;

        assert_ok(alibi_import(p.source, p.model, &result, test_call()));
        assert_ok(alibi_export(p.model, &how, p.back, &result, test_call()));
        assert_true(result.embedding_scale == 1);
        assert_same_tensors(within(p.source, "model.safetensors"),
                            within(p.back, "model.safetensors"));
        /* In several files, and back to the same checkpoint. */
        how.shard_bytes = 20000;
        assert_ok(alibi_export(p.model, &how, p.out, &result, test_call()));
        assert_true(file_exists(within(p.out, "model.safetensors.index.json")));
        assert_false(file_exists(within(p.out, "model.safetensors")));
        assert_ok(alibi_import(p.out, p.again, &result, test_call()));
        assert_same_file(within(p.model, "model.safetensors"),
                         within(p.again, "model.safetensors"));
        assert_same_file(within(p.model, "config.json"), within(p.again, "config.json"));
    }
}

/* ---- a model of our own */

static void write_model(const char *dir, struct alibi_config c, const char *tokenizer)
{
    struct model *m = NULL;
    alibi_tokenizer *t = NULL;

    assert_ok(alibi_tokenizer_open(&t, tokenizer, NULL));
    c.vocab = alibi_tokenizer_vocab(t);
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, &test_device()->device, DTYPE_F32, false));
    assert_ok(model_init(m, 3, ALIBI_INIT_GPT2));
    assert_ok(checkpoint_save_weights(dir, m, t, ALIBI_FP32, test_call()));
    model_free(m);
    alibi_tokenizer_free(t);
}

static struct alibi_config small_config(void)
{
    struct alibi_config c = default_config();

    c.layers = 2;
    c.width = 24;
    c.heads = 3;
    c.train_length = 16;
    return c;
}

static void read_logits(const char *path, const int32_t *tokens, int64_t L, float *logits)
{
    alibi_model *m = NULL;
    alibi_session *session = NULL;

    assert_ok(alibi_model_open(&m, test_device(), path, test_call()));
    assert_ok(alibi_session_new(&session, m, NULL, test_call()));
    assert_ok(alibi_session_logits(session, 0, tokens, L, logits));
    alibi_session_free(session);
    alibi_model_free(m);
}

/* Embeddings times sqrt(width), tied: the exported model has another embedding and another last
 * norm, and the same logits. */
static void an_embedding_scale_becomes_part_of_the_weights(void **state)
{
    enum { L = 40, V = 257 };
    static const struct alibi_export hf = { .format = ALIBI_HUGGING_FACE };
    struct alibi_config c = small_config();
    struct alibi_exchanged result;
    int32_t tokens[L];
    static float before[L * V], after[L * V];

    (void)state;
    for (int i = 0; i < L; i++)
        tokens[i] = i * 37 % V;
    for (int tied = 0; tied < 2; tied++) {
        const char *ours = within(folder, tied ? "tied" : "untied");
        const char *theirs = within(folder, tied ? "tied-hf" : "untied-hf");
        const char *back = within(folder, tied ? "tied-back" : "untied-back");
        c.embedding_norm = true;
        c.tied = tied;
        write_model(ours, c, NULL);
        assert_ok(alibi_export(ours, &hf, theirs, &result, test_call()));
        assert_string_equal(result.family, "bloom");
        assert_close(result.embedding_scale, sqrt(24), 1e-12);
        assert_ok(alibi_import(theirs, back, &result, test_call()));
        read_logits(ours, tokens, L, before);
        read_logits(back, tokens, L, after);
        for (int i = 0; i < L * V; i++)
            assert_close(after[i], before[i], 1e-5);
    }
}

/* The options to train with for each family. */
static void models_become_those_of_the_family_that_computes_the_same(void **state)
{
    static const struct {
        const char *family, *position;
        bool embedding_norm, biases, parallel, rms, qkv_biases, qk_norm;
        int activation;
    } cases[] = {
        { "bloom", "alibi", true, true, false, false, false, false, ALIBI_GELU_TANH },
        { "mpt", "alibi", false, false, false, false, false, false, ALIBI_GELU_ERF },
        { "falcon", "alibi:scaled", false, true, false, false, false, false, ALIBI_GELU_ERF },
        { "gpt2", "learned", false, true, false, false, false, false, ALIBI_GELU_TANH },
        { "gpt2", "learned", false, true, false, false, false, false, ALIBI_RELU },
        { "gpt_neox", "rotary:base=500", false, true, true, false, false, false, ALIBI_GELU_ERF },
        { "gpt_neox", "rotary", false, true, false, false, false, false, ALIBI_GELU_TANH },
        { "llama", "rotary", false, false, false, true, false, false, ALIBI_SWIGLU },
        { "mistral", "rotary:window=9", false, false, false, true, false, false, ALIBI_SWIGLU },
        { "qwen2", "rotary", false, false, false, true, true, false, ALIBI_SWIGLU },
        { "qwen3", "rotary", false, false, false, true, false, true, ALIBI_SWIGLU },
    };
    static const struct alibi_export hf = { .format = ALIBI_HUGGING_FACE };
    struct alibi_exchanged result;
    char name[16];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct alibi_config c = small_config();
        struct paths p;

        c.embedding_norm = cases[i].embedding_norm;
        c.biases = cases[i].biases;
        c.parallel = cases[i].parallel;
        c.norm = cases[i].rms ? ALIBI_RMSNORM : ALIBI_LAYERNORM;
        c.qkv_biases = cases[i].qkv_biases;
        c.qk_norm = cases[i].qk_norm;
        c.activation = cases[i].activation;
        snprintf(c.position, sizeof c.position, "%s", cases[i].position);
        snprintf(name, sizeof name, "%zu", i);
        p = paths_of(name);
        write_model(p.model, c, NULL);
        assert_ok(alibi_export(p.model, &hf, p.out, &result, test_call()));
        assert_string_equal(result.family, cases[i].family);
        assert_ok(alibi_import(p.out, p.again, &result, test_call()));
        assert_true(result.tokenizer);
    }
}

static void a_model_of_no_family_is_refused_with_the_closest_one(void **state)
{
    static const struct alibi_export hf = { .format = ALIBI_HUGGING_FACE };
    struct alibi_config c = small_config();
    struct alibi_exchanged result;
    const char *ours = within(folder, "ours");

    (void)state;
    write_model(ours, c, NULL);
    assert_fails(alibi_export(ours, &hf, within(folder, "out"), &result, test_call()),
                 ALIBI_BAD_INPUT,
                 "the closest, 'bloom', has embedding-norm true where the model has false");
    snprintf(c.position, sizeof c.position, "kerple");
    c.embedding_norm = true;
    write_model(within(folder, "kerple"), c, NULL);
    assert_fails(
        alibi_export(within(folder, "kerple"), &hf, within(folder, "out"), &result, test_call()),
        ALIBI_BAD_INPUT, "has position kerple; their methods are alibi, learned and rotary");
    assert_fails(alibi_export(ours, &(struct alibi_export){ .format = 7 }, within(folder, "out"),
                              &result, test_call()),
                 ALIBI_USAGE, "format 7");
    assert_fails(alibi_export(ours, &(struct alibi_export){ .weights = 17 }, within(folder, "out"),
                              &result, test_call()),
                 ALIBI_USAGE, "weights 17");
    assert_fails(alibi_export(ours, &(struct alibi_export){ .shard_bytes = -1 },
                              within(folder, "out"), &result, test_call()),
                 ALIBI_USAGE, "shard_bytes -1");
    assert_false(folder_exists(within(folder, "out")));
}

/* ---- refusals */

/* The configuration with the first `from` replaced by `to`. */
static void change_config(const char *source, const char *from, const char *to)
{
    size_t bytes;
    char *config = read_all(within(source, "config.json"), &bytes), *at = strstr(config, from);
    struct text changed = { 0 };

    if (!at)
        fail_msg("no '%s' in the configuration", from);
    text_append_bytes(&changed, config, (size_t)(at - config));
    text_append(&changed, "%s%s", to, at + strlen(from));
    write_file(within(source, "config.json"), changed.data, changed.length);
    text_free(&changed);
    mem_free(config);
}

static void what_is_not_known_is_refused_by_name(void **state)
{
    static const struct {
        const char *name, *from, *to, *message;
    } cases[] = {
        { "bloom", "\"bloom\"", "\"rwkv\"", "'rwkv' is not known; these are: bloom, mpt" },
        { "bloom", "\"model_type\"", "\"kind\"", "no \"model_type\"" },
        { "bloom", "{", "[", "config.json' line" },
        { "bloom", "\"n_layer\": 2", "\"n_layer\": 3", "'transformer.h.2.input_layernorm.weight'" },
        { "bloom", "\"n_layer\": 2", "\"n_layer\": 1", "'transformer.h.1." },
        { "bloom", "\"n_layer\": 2", "\"n_layer\": 0", "layers" },
        { "bloom", "\"n_layer\": 2", "\"n_layer\": 99999999999", "layers" },
        { "bloom", "\"n_layer\": 2", "\"n_layer\": \"two\"", "\"n_layer\" is \"two\"" },
        { "bloom", "\"n_layer\": 2", "\"l\": 2", "has no \"n_layer\"" },
        { "bloom", "\"n_head\": 6", "\"n_head\": 7", "heads 7 do not divide width 36" },
        { "bloom", "\"vocab_size\": 67", "\"vocab_size\": 66",
          "'transformer.word_embeddings.weight' has shape [67, 36]; the configuration needs [66" },
        { "bloom", "\"apply_residual_connection_post_layernorm\": false",
          "\"apply_residual_connection_post_layernorm\": true", "post_layernorm\" is true" },
        { "mpt", "\"clip_qkv\": null", "\"clip_qkv\": 6", "\"attn_config.clip_qkv\" is 6" },
        { "mpt", "\"logit_scale\": null", "\"logit_scale\": \"inv\"", "\"logit_scale\"" },
        { "mpt", "\"qk_ln\": false", "\"qk_ln\": true", "\"attn_config.qk_ln\" is true" },
        { "mpt", "\"low_precision_layernorm\"", "\"rmsnorm\"", "\"norm_type\" is \"rmsnorm\"" },
        { "mpt", "\"multihead_attention\"", "\"ring\"", "\"ring\", which is not known" },
        { "falcon", "\"multi_query\": false", "\"multi_query\": true", "\"multi_query\" is true" },
        { "falcon", "\"alibi\": true", "\"alibi\": false", "\"alibi\" is false" },
        { "gpt2", "\"gelu_new\"", "\"tanh\"", "\"activation_function\" is \"tanh\"" },
        { "gpt2", "\"scale_attn_by_inverse_layer_idx\": false",
          "\"scale_attn_by_inverse_layer_idx\": true", "inverse_layer_idx\" is true" },
        { "neox", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.1",
          "not a number of pairs" },
        { "neox", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": -1", "rotary_pct" },
        { "llama", "\"head_dim\": 8", "\"head_dim\": 16", "\"head_dim\" is 16" },
        { "llama", "\"head_dim\": 8", "\"head_dim\": 4611686018427387912",
          "\"head_dim\" is 4" }, /* times heads overflows */
        { "llama", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"", "'yarn'" },
        { "llama", "\"attention_bias\": false", "\"attention_bias\": true", "attention_bias" },
        { "llama3", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 2.0", "low_freq_factor" },
        { "mistral", "\"sliding_window\": 13", "\"sliding_window\": -1", "sliding_window" },
        { "qwen2", "\"use_sliding_window\": false", "\"use_sliding_window\": true",
          "use_sliding_window" },
    };
    struct alibi_exchanged result;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct paths p = make_source(cases[i].name);

        change_config(p.source, cases[i].from, cases[i].to);
        assert_fails(alibi_import(p.source, p.out, &result, test_call()), ALIBI_BAD_INPUT,
                     cases[i].message);
        assert_false(folder_exists(p.out));
    }
}

static void weights_that_cannot_be_used_are_refused_by_name(void **state)
{
    static const struct {
        const char *index, *message;
    } cases[] = {
        { "{\"weight_map\": {\"a\": \"../model.safetensors\"}}", "not the name of a file next to" },
        { "{\"weight_map\": {\"a\": \"..\"}}", "not the name of a file next to" },
        { "{\"weight_map\": {\"a\": \"\"}}", "not the name of a file next to" },
        { "{\"weight_map\": {\"a\": 1}}", "the file of tensor 'a' is not a text" },
        { "{\"weight_map\": {\"a\": \"gone.safetensors\"}}", "gone.safetensors" },
        { "{\"weight_map\": {}}", "no \"weight_map\" with tensors" },
        { "{", "index.json' line 1" },
    };
    struct alibi_exchanged result;
    struct paths p = make_source("bloom");
    size_t length;
    char *bytes = read_all(within(p.source, "model.safetensors"), &length), weights[640];

    (void)state;
    snprintf(weights, sizeof weights, "%s/model.safetensors", p.source);
    write_file(weights, bytes, length - 1);
    assert_fails(alibi_import(p.source, p.out, &result, test_call()), ALIBI_BAD_INPUT, "ends at");
    memset(bytes + length - 4, 0xff, 4);
    write_file(weights, bytes, length);
    assert_fails(alibi_import(p.source, p.out, &result, test_call()), ALIBI_NUMERIC, "not finite");
    assert_ok(file_remove(weights));
    assert_fails(alibi_import(p.source, p.out, &result, test_call()), ALIBI_BAD_INPUT,
                 "no weights");
    write_file(within(p.source, "pytorch_model.bin"), "x", 1);
    assert_fails(alibi_import(p.source, p.out, &result, test_call()), ALIBI_BAD_INPUT, "run code");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(within(p.source, "model.safetensors.index.json"), cases[i].index,
                   strlen(cases[i].index));
        assert_fails(alibi_import(p.source, p.out, &result, test_call()), ALIBI_BAD_INPUT,
                     cases[i].message);
    }
    assert_false(folder_exists(p.out));
    mem_free(bytes);
}

/* A file of `count` tensors without numbers, whose names are first, first + 1, ... */
static void write_tensors(const char *path, int first, int count)
{
    struct safetensor *tensors = NULL;
    struct text header = { 0 };
    char *letters = NULL;

    assert_ok(NEW_ZERO_ARRAY(&tensors, count, "tensors"));
    assert_ok(NEW_ARRAY(&letters, 24 * (int64_t)count, "names"));
    for (int i = 0; i < count; i++) {
        tensors[i] = (struct safetensor){ .name = letters + 24 * i, .type = "F32", .rank = 1 };
        snprintf(tensors[i].name, 24, "%d", first + i);
    }
    assert_ok(safetensors_header(&header, tensors, count));
    write_file(path, header.data, header.length);
    text_free(&header);
    mem_free(letters);
    mem_free(tensors);
}

/* Comparing each name with all before it would take a minute. */
static void a_tensor_in_two_files_is_found_among_many(void **state)
{
    enum { MANY = 200000 };
    static const char index[] =
        "{\"weight_map\": {\"a\": \"a.safetensors\", \"b\": \"b.safetensors\"}}";
    struct tensor_source *source = NULL;
    double began = clock_seconds();

    (void)state;
    write_file(within(folder, "model.safetensors.index.json"), index, strlen(index));
    write_tensors(within(folder, "a.safetensors"), 0, MANY);
    write_tensors(within(folder, "b.safetensors"), MANY, MANY);
    assert_ok(safetensors_source_folder(&source, folder));
    assert_int_equal(source->count, 2 * MANY);
    tensor_source_free(source);
    write_tensors(within(folder, "b.safetensors"), MANY - 1, 2);
    assert_fails(safetensors_source_folder(&source, folder), ALIBI_BAD_INPUT,
                 "b.safetensors': tensor '199999' is in another file as well");
    assert_true(clock_seconds() - began < 20);
}

/* ---- faults and stops */

/* After the call under test no fault is due any more. */
static void remove_faults(void)
{
    assert_ok(alibi_inject_fault("memory", 0));
    assert_ok(alibi_inject_fault("file", 0));
}

static alibi_status import_once(void *subject)
{
    const struct paths *p = subject;
    struct alibi_exchanged result;
    alibi_status status = alibi_import(p->source, p->out, &result, test_call());

    remove_faults();
    if (status == ALIBI_OK)
        assert_ok(checkpoint_verify(p->out));
    else
        assert_false(file_exists(within(p->out, "manifest.json")));
    if (folder_exists(p->out))
        assert_ok(folder_remove(p->out));
    return status;
}

/* The last step is to sync the folder around it: if that fails, all is there. */
static alibi_status export_once(void *subject)
{
    static const struct alibi_export hf = { .format = ALIBI_HUGGING_FACE, .shard_bytes = 40000 };
    const struct paths *p = subject;
    struct alibi_exchanged result;
    alibi_status status = alibi_export(p->model, &hf, p->out, &result, test_call());

    remove_faults();
    if (folder_exists(p->out)) {
        assert_true(file_exists(within(p->out, "model.safetensors.index.json")));
        assert_ok(folder_remove(p->out));
    } else {
        assert_true(status != ALIBI_OK);
    }
    return status;
}

static void every_failure_is_reported_and_nothing_looks_complete(void **state)
{
    struct paths p = make_source("gpt2");
    struct alibi_exchanged result;

    (void)state;
    assert_ok(alibi_import(p.source, p.model, &result, test_call()));
    assert_true(fail_each_call("memory", import_once, &p, ALIBI_MEMORY, "memory") > 50);
    assert_true(fail_each_call("memory", export_once, &p, ALIBI_MEMORY, "memory") > 50);
    assert_true(fail_each_call("file", import_once, &p, ALIBI_IO, "") > 20);
    assert_true(fail_each_call("file", export_once, &p, ALIBI_IO, "") > 20);
}

/* An export is written to OUT.tmp and renamed. What an earlier one left there is removed, but not
 * the work of somebody who has a folder of that name. */
static void a_folder_where_an_export_would_be_written_first_keeps_other_files(void **state)
{
    static const struct alibi_export hf = { .format = ALIBI_HUGGING_FACE };
    struct paths p = make_source("gpt2");
    struct alibi_exchanged result;
    char aside[600];

    (void)state;
    snprintf(aside, sizeof aside, "%s.tmp", p.out);
    assert_ok(alibi_import(p.source, p.model, &result, test_call()));
    assert_ok(folder_create(aside));
    assert_ok(file_replace(within(aside, "config.json.tmp"), "{", 1));
    assert_ok(file_replace(within(aside, "model-00001-of-00002.safetensors"), "", 0));
    assert_ok(file_replace(within(aside, "notes.txt"), "mine", 4));
    assert_fails(alibi_export(p.model, &hf, p.out, &result, test_call()), ALIBI_BAD_INPUT,
                 "where 'notes.txt' is no file of an export");
    assert_true(file_exists(within(aside, "notes.txt")));
    assert_true(file_exists(within(aside, "model-00001-of-00002.safetensors")));
    assert_ok(file_remove(within(aside, "notes.txt")));
    assert_ok(alibi_export(p.model, &hf, p.out, &result, test_call()));
    assert_false(folder_exists(aside));
    assert_false(file_exists(within(p.out, "model-00001-of-00002.safetensors")));
}

static void stop_at_half(void *user, const struct alibi_progress *p)
{
    (void)user;
    if (2 * p->done >= p->total)
        alibi_stop_request(&test_stop);
}

static void a_stopped_import_leaves_nothing(void **state)
{
    struct paths p = make_source("bloom");
    struct alibi_exchanged result;

    (void)state;
    test_watch(NULL, stop_at_half, NULL);
    assert_fails(alibi_import(p.source, p.out, &result, test_call()), ALIBI_INTERRUPTED,
                 "nothing was written");
    test_watch(NULL, NULL, NULL);
    assert_false(folder_exists(p.out));
}

/* ---- the host's locale */

static void a_scaled_rotation_is_read_in_a_locale_with_a_decimal_comma(void **state)
{
    static const char text[] =
        "{ \"model_type\": \"llama\", \"vocab_size\": 99, \"hidden_size\": 32, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 64, "
        "\"rope_scaling\": { \"type\": \"linear\", \"factor\": 2.5 } }";
    const struct family *family;
    struct alibi_config config;
    alibi_status status;

    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        skip_because("no locale with a decimal comma");
    status = huggingface_config(&family, &config, text, strlen(text), "config.json");
    setlocale(LC_NUMERIC, "C");
    assert_ok(status);
    assert_non_null(strstr(config.position, "factor=2.5"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(imported_models_give_the_logits_of_transformers_past_the_training_length),
        IN_FOLDER(exported_models_have_the_tensors_that_were_imported),
        IN_FOLDER(an_embedding_scale_becomes_part_of_the_weights),
        IN_FOLDER(models_become_those_of_the_family_that_computes_the_same),
        IN_FOLDER(a_model_of_no_family_is_refused_with_the_closest_one),
        IN_FOLDER(what_is_not_known_is_refused_by_name),
        IN_FOLDER(weights_that_cannot_be_used_are_refused_by_name),
        IN_FOLDER(a_tensor_in_two_files_is_found_among_many),
        IN_FOLDER(every_failure_is_reported_and_nothing_looks_complete),
        IN_FOLDER(a_folder_where_an_export_would_be_written_first_keeps_other_files),
        IN_FOLDER(a_stopped_import_leaves_nothing),
        cmocka_unit_test(a_scaled_rotation_is_read_in_a_locale_with_a_decimal_comma),
    };

    if (getenv("TMPDIR") == NULL && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* hundreds of models are written and synced */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
