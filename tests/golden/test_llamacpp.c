/* test_llamacpp.c - models in GGUF files: those that llama.cpp's package wrote are those of
 * tests/golden/data, and what is exported comes back
 *
 * make_gguf.py in this folder wrote gguf/, and describes the files. */
#include "exchange/exchange.h"
#include "formats/gguf.h"

#include "folder.h"

#define GOLDEN TEST_FOLDER "/golden"

enum { FILE_MAX = 1 << 22 };

static const struct {
    const char *file, *data;
} models[] = {
    { "gpt2", "gpt2" }, { "bloom", "bloom-8" }, { "mpt", "mpt-8" }, { "llama", "rotary-halves" }
};

enum { MODELS = sizeof models / sizeof *models };

/* ---- files */

/* In one of sixteen buffers that take turns. */
__attribute__((format(printf, 1, 2))) static const char *path_of(const char *format, ...)
{
    static char paths[16][4096];
    static int turn;
    char *path = paths[turn++ % 16];
    va_list args;

    va_start(args, format);
    vsnprintf(path, sizeof paths[0], format, args);
    va_end(args);
    return path;
}

/* The tensors of a file of weights, and its bytes. */
struct weights {
    struct safetensors *list;
    char *bytes;
};

static struct weights read_weights(const char *path)
{
    struct weights w = { 0 };
    size_t length = 0;

    assert_ok(file_read_all(&w.bytes, &length, path, FILE_MAX));
    assert_ok(safetensors_parse(&w.list, w.bytes, length, (int64_t)length, path));
    return w;
}

static void free_weights(struct weights *w)
{
    safetensors_free(w->list);
    mem_free(w->bytes);
}

static const struct safetensor *find(const struct weights *w, const char *name)
{
    for (int i = 0; i < w->list->count; i++)
        if (strcmp(w->list->tensors[i].name, name) == 0)
            return &w->list->tensors[i];
    fail_msg("there is no tensor '%s'", name);
    return NULL;
}

static void import(const char *source, const char *dir)
{
    struct alibi_exchanged result;

    assert_ok(alibi_import(source, dir, &result, test_call()));
}

static alibi_status export(const char *model, int weights, const char *path)
{
    const struct alibi_export how = { .format = ALIBI_GGUF, .weights = weights };
    struct alibi_exchanged result;

    return alibi_export(model, &how, path, &result, test_call());
}

/* ---- models */

/* PyTorch computed the logits of these weights with this configuration (test_golden.c). */
static void imported_weights_are_those_of_the_golden_models(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct weights ours,
            golden = read_weights(path_of(GOLDEN "/data/%s.safetensors", models[m].data));
        const char *dir = path_of("%s/%s", folder, models[m].file);
        import(path_of(GOLDEN "/gguf/%s.gguf", models[m].file), dir);
        ours = read_weights(path_of("%s/model.safetensors", dir));
        assert_true(ours.list->count > 10);
        for (int i = 0; i < ours.list->count; i++) {
            const struct safetensor *t = &ours.list->tensors[i], *g = find(&golden, t->name);
            assert_int_equal(t->end - t->begin, g->end - g->begin);
            if (memcmp(ours.bytes + t->begin, golden.bytes + g->begin,
                       (size_t)(t->end - t->begin)) != 0)
                fail_msg("%s: tensor '%s' has other weights", models[m].file, t->name);
        }
        free_weights(&ours);
        free_weights(&golden);
    }
}

static void imported_configurations_are_those_of_the_golden_models(void **state)
{
    int count;
    const struct alibi_option *o = alibi_config_options(&count);

    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct alibi_config ours, golden = default_config();
        struct alibi_option_group group = { .options = o, .count = count, .values = &golden };
        const char *dir = path_of("%s/%s", folder, models[m].file);
        assert_ok(alibi_options_read(&group, 1, path_of(GOLDEN "/data/%s.json", models[m].data)));
        import(path_of(GOLDEN "/gguf/%s.gguf", models[m].file), dir);
        assert_ok(alibi_model_read_config(&ours, dir, test_call()));
        golden.max_length = golden.max_length > 0 ? golden.max_length : ours.max_length;
        if (strcmp(models[m].file, "mpt") == 0) { /* erf there; llama.cpp has tanh only */
            assert_int_equal(ours.activation, ALIBI_GELU_TANH);
            golden.activation = ALIBI_GELU_TANH;
        }
        for (int i = 0; i < count; i++)
            if (!option_equal(&o[i], &ours, &golden))
                fail_msg("%s: another %s", models[m].file, o[i].name);
        assert_int_equal(ours.train_length, strcmp(models[m].file, "gpt2") == 0 ? 32 : 48);
    }
}

/* A file that was imported, exported and imported again has the same bytes of weights. */
static void what_is_exported_comes_back(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct weights ours, back;
        const char *dir = path_of("%s/%s", folder, models[m].file);
        const char *file = path_of("%s.gguf", dir), *again = path_of("%s-again", dir);
        import(path_of(GOLDEN "/gguf/%s.gguf", models[m].file), dir);
        assert_ok(export(dir, ALIBI_PRECISION_AUTO, file));
        import(file, again);
        ours = read_weights(path_of("%s/model.safetensors", dir));
        back = read_weights(path_of("%s/model.safetensors", again));
        assert_int_equal(ours.list->count, back.list->count);
        assert_int_equal(ours.list->tensors[ours.list->count - 1].end,
                         back.list->tensors[back.list->count - 1].end);
        assert_memory_equal(ours.bytes, back.bytes,
                            (size_t)ours.list->tensors[ours.list->count - 1].end);
        free_weights(&ours);
        free_weights(&back);
    }
}

/* Matrices have the type that was asked for, or F16 where their rows are not whole blocks; the rest
 * stays F32. */
static void each_type_is_written_and_read(void **state)
{
    static const char *const types[] = {
        [ALIBI_FP32] = "F32", [ALIBI_BF16] = "BF16", [ALIBI_FP16] = "F16", [ALIBI_Q8_0] = "Q8_0"
    };
    const char *dir = path_of("%s/mpt", folder);

    (void)state;
    import(GOLDEN "/gguf/mpt.gguf", dir);
    for (int type = ALIBI_FP32; type <= ALIBI_Q8_0; type++) {
        struct gguf *g = NULL;
        struct weights ours, back;
        const struct safetensor *a, *b;
        const char *file = path_of("%s-%s.gguf", dir, types[type]);
        const char *again = path_of("%s-%s", dir, types[type]);
        assert_ok(export(dir, type, file));
        assert_ok(gguf_open(&g, file));
        for (int i = 0; i < g->tensor_count; i++) {
            const struct gguf_tensor *t = &g->tensors[i];
            const char *narrow = type == ALIBI_Q8_0 && t->shape[1] % 32 != 0 ? "F16" : types[type];
            assert_string_equal(t->type->name, t->rank == 1 ? "F32" : narrow);
        }
        gguf_free(g);
        import(file, again);
        ours = read_weights(path_of("%s/model.safetensors", dir));
        back = read_weights(path_of("%s/model.safetensors", again));
        a = find(&ours, "blocks.1.ff.down.weight");
        b = find(&back, "blocks.1.ff.down.weight");
        assert_string_equal(b->type, type == ALIBI_Q8_0 ? "F32" : types[type]);
        if (type == ALIBI_Q8_0) /* rows of 64 numbers: whole blocks */
            for (int i = 0; i < 16 * 64; i++) {
                float x, y;
                memcpy(&x, ours.bytes + a->begin + 4 * i, 4);
                memcpy(&y, back.bytes + b->begin + 4 * i, 4);
                assert_close(x, y, 4e-3);
            }
        free_weights(&ours);
        free_weights(&back);
    }
}

/* ---- refusals */

/* A copy of a golden file in which the first `from` is `to`. */
#define ALTERED(name, from, to) altered(name, from, sizeof(from) - 1, to, sizeof(to) - 1)
static const char *altered(const char *name, const char *from, size_t from_bytes, const char *to,
                           size_t to_bytes)
{
    char *bytes = NULL, *at;
    size_t length = 0;
    const char *path = path_of("%s/altered.gguf", folder);

    assert_int_equal(from_bytes, to_bytes);
    assert_ok(file_read_all(&bytes, &length, path_of(GOLDEN "/gguf/%s.gguf", name), FILE_MAX));
    at = memmem(bytes, length, from, from_bytes);
    assert_non_null(at);
    memcpy(at, to, to_bytes);
    write_file(path, bytes, length);
    mem_free(bytes);
    return path;
}

static void refused(const char *path, const char *part)
{
    struct alibi_exchanged result;

    assert_fails(alibi_import(path, within(folder, "out"), &result, test_call()), ALIBI_BAD_INPUT,
                 part);
    assert_false(folder_exists(within(folder, "out")));
}

static void what_is_not_known_is_refused_by_name(void **state)
{
    (void)state;
    refused(ALTERED("mpt", "\3\0\0\0\0\0\0\0mpt", "\3\0\0\0\0\0\0\0rwk"),
            "the architecture 'rwk' is not known; these are: gpt2, bloom, mpt, gptneox, ");
    refused(ALTERED("mpt", "mpt.block_count", "mpt.block_caunt"), "has no \"mpt.block_count\"");
    refused(ALTERED("mpt", "mpt.context_length", "mpt.attention.clam"), "mpt.context_length");
    refused(ALTERED("bloom", "token_embd_norm.weight", "token_embd_narm.weight"),
            "there is no tensor 'token_embd_norm.weight'");
    refused(ALTERED("gpt2", "blk.1.ffn_up.bias", "blk.7.ffn_up.bias"), "'blk.1.ffn_up.bias'");
    refused(ALTERED("llama", "llama.rope.dimension_count\4\0\0\0\4",
                    "llama.rope.dimension_count\4\0\0\0\2"),
            "\"llama.rope.dimension_count\" is not width / heads, 16 / 4");
    refused(within(TEST_FOLDER, "golden/make_gguf.py"), "it is not a GGUF file");
}

static void an_export_never_replaces_a_file(void **state)
{
    char dir[64];

    (void)state;
    snprintf(dir, sizeof dir, "%s/llama", path_of("%.50s", folder));
    import(GOLDEN "/gguf/llama.gguf", dir);
    write_file(within(folder, "there.gguf"), "mine", 4);
    assert_fails(export(dir, ALIBI_FP16, within(folder, "there.gguf")), ALIBI_BAD_INPUT,
                 "the file exists");
    assert_fails(export(dir, ALIBI_FP16, folder), ALIBI_BAD_INPUT, "it is a folder");
}

/* ---- tokenizers */

/* The same ids of a text; NULL: one of many scripts. */
static void assert_same_ids(const alibi_tokenizer *a, const alibi_tokenizer *b, const char *text)
{
    int32_t *ids = NULL, *others = NULL;
    int64_t count = 0, other_count = 0;
    char *scripts = NULL;
    size_t bytes = text ? strlen(text) : 0;

    if (!text)
        assert_ok(file_read_all(&scripts, &bytes, GOLDEN "/tokenizers/strings.txt", FILE_MAX));
    assert_ok(alibi_tokenizer_encode(a, text ? text : scripts, bytes, &ids, &count));
    assert_ok(alibi_tokenizer_encode(b, text ? text : scripts, bytes, &others, &other_count));
    assert_int_equal(count, other_count);
    assert_memory_equal(ids, others, (size_t)count * sizeof *ids);
    alibi_ids_free(ids);
    alibi_ids_free(others);
    mem_free(scripts);
}

static void tokenizers_of_files_give_the_ids_of_their_tokenizer_json(void **state)
{
    static const char *const names[] = { "gpt2", "bloom", "llama3", "nfc" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        alibi_tokenizer *ours = NULL, *theirs = NULL;
        struct gguf *g = NULL;
        assert_ok(gguf_open(&g, path_of(GOLDEN "/gguf/tokenizer-%s.gguf", names[i])));
        assert_ok(llamacpp_read_tokenizer(&theirs, g, "m.gguf"));
        assert_ok(
            alibi_tokenizer_open(&ours, path_of(GOLDEN "/tokenizers/%s.json", names[i]), NULL));
        assert_int_equal(alibi_tokenizer_vocab(ours), alibi_tokenizer_vocab(theirs));
        assert_true(alibi_tokenizer_end(theirs) >= 0);
        assert_same_ids(ours, theirs, NULL);
        alibi_tokenizer_free(ours);
        alibi_tokenizer_free(theirs);
        gguf_free(g);
    }
}

/* Tokens with scores: the ids that llama.cpp gives, for blanks, runs, and characters that have no
 * token. */
static void tokens_with_scores_give_the_ids_of_llamacpp(void **state)
{
    alibi_tokenizer *t = NULL;
    struct gguf *g = NULL;
    char *text = NULL, *list = NULL, *at, *decoded = NULL;
    int32_t *ids = NULL;
    int64_t count = 0;
    size_t bytes = 0, list_bytes = 0, back = 0;

    (void)state;
    assert_ok(gguf_open(&g, GOLDEN "/gguf/sentencepiece.gguf"));
    assert_ok(llamacpp_read_tokenizer(&t, g, "m.gguf"));
    assert_int_equal(alibi_tokenizer_begin(t), 1);
    assert_int_equal(alibi_tokenizer_end(t), 2);
    assert_ok(file_read_all(&text, &bytes, GOLDEN "/gguf/sentencepiece.txt", FILE_MAX));
    assert_ok(file_read_all(&list, &list_bytes, GOLDEN "/gguf/sentencepiece.ids", FILE_MAX));
    assert_ok(alibi_tokenizer_encode(t, text, bytes, &ids, &count));
    at = list;
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(ids[i], strtol(at, &at, 10));
    assert_string_equal(at, "\n");
    assert_true(count > 1000);
    assert_ok(alibi_tokenizer_decode(t, ids, count, &decoded, &back));
    assert_non_null(strstr(decoded, "every kind"));
    alibi_text_free(decoded);
    alibi_ids_free(ids);
    mem_free(text);
    mem_free(list);
    alibi_tokenizer_free(t);
    gguf_free(g);
}

/* Where merges would not give those ids, the file says too little. */
static void tokens_with_scores_that_no_merges_have_are_refused(void **state)
{
    static const struct {
        const char *token, *part; /* two of four; the others are "a" and "aa" */
        double score;
        const char *message;
    } cases[] = {
        { "ab", "b", -1, "tokens 4 and 3 have the same score" },
        { "ab", "b", NAN, "token 3 has no finite score" },
        { "ab", "c", -2, "'b', a character of the token 'ab', is not a token" },
        { "a\xFF", "b", -2, "token 3 is not UTF-8" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *part = cases[i].part;
        struct scored_token tokens[] = {
            { { "a", 1 }, 0, 0 },
            { { part, 1 }, 0, 1 },
            { { "aa", 2 }, -1, 4 },
            { { cases[i].token, 2 }, cases[i].score, 3 },
        };
        struct text json = { 0 };
        assert_fails(llamacpp_merges(&json, tokens, 4, "m.gguf"), ALIBI_BAD_INPUT,
                     cases[i].message);
        text_free(&json);
    }
}

/* A file of 0.7 MB whose merges, written out, would have 0.6 GB. */
static void tokens_with_more_merges_than_a_tokenizer_may_have_are_refused(void **state)
{
    enum { COUNT = 1200 };
    static char letters[COUNT];
    static struct scored_token tokens[COUNT];
    struct text json = { 0 };

    (void)state;
    memset(letters, 'a', sizeof letters);
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (struct scored_token){ { letters, (size_t)i + 1 }, -i, i };
    assert_fails(llamacpp_merges(&json, tokens, COUNT, "m.gguf"), ALIBI_BAD_INPUT,
                 "'m.gguf': the merges of its tokens would take more than 268435456 bytes");
    assert_int_equal(json.length, 0);
    text_free(&json);
}

/* If a token can be made in two ways, the one with the longer left part is first. */
static void merges_are_the_cuts_of_tokens_by_score(void **state)
{
    struct scored_token tokens[] = {
        { { "a", 1 }, -9, 0 },   { { "b", 1 }, -9, 1 },  { { "ab", 2 }, -3, 2 },
        { { "aba", 3 }, -1, 3 }, { { "ba", 2 }, -2, 4 },
    };
    struct text json = { 0 };

    (void)state;
    assert_ok(llamacpp_merges(&json, tokens, 5, "m.gguf"));
    assert_string_equal(json.data, "[\"ab\", \"a\"],\n[\"a\", \"ba\"],\n[\"b\", \"a\"],\n"
                                   "[\"a\", \"b\"]");
    text_free(&json);
}

/* Without the tokenizer.json that the file has as well, the tokens and merges must suffice. */
static alibi_tokenizer *read_back(const alibi_tokenizer *t, int64_t vocab, const char *whole)
{
    struct gguf_writer w = { 0 };
    struct text header = { 0 };
    struct gguf *g = NULL;
    alibi_tokenizer *back = NULL;
    char *at;

    assert_ok(llamacpp_put_tokenizer(&w, t, vocab, test_call()));
    assert_ok(gguf_header(&header, &w, NULL, 0));
    at = memmem(header.data, header.length, whole, strlen(whole));
    assert_non_null(at);
    at[0] = 'x';
    assert_ok(gguf_parse(&g, header.data, header.length, (int64_t)header.length, "m.gguf"));
    assert_ok(llamacpp_read_tokenizer(&back, g, "m.gguf"));
    gguf_free(g);
    text_free(&header);
    gguf_writer_fini(&w);
    return back;
}

static void tokenizers_come_back_from_their_tokens_and_merges(void **state)
{
    static const char *const names[] = { "gpt2", "bloom", "llama3", "nfc", "bytes" };

    (void)state;
    for (int i = 0; i < 5; i++) {
        bool bytes = strcmp(names[i], "bytes") == 0;
        alibi_tokenizer *t = NULL, *back;
        assert_ok(alibi_tokenizer_open(
            &t, bytes ? NULL : path_of(GOLDEN "/tokenizers/%s.json", names[i]), NULL));
        back = read_back(t, 1000, bytes ? "alibi.tokenizer" : "tokenizer.huggingface.json");
        assert_int_equal(alibi_tokenizer_vocab(t), alibi_tokenizer_vocab(back));
        assert_int_equal(alibi_tokenizer_end(t), alibi_tokenizer_end(back));
        assert_same_ids(t, back, bytes ? "Größe 12\n" : NULL);
        alibi_tokenizer_free(t);
        alibi_tokenizer_free(back);
    }
}

/* A BPE of characters has scores in place of merges: the first merge has the highest. */
static void tokenizers_of_characters_have_scores_and_bytes(void **state)
{
    enum { VOCAB = 910, BYTE_0A = 13 };
    alibi_tokenizer *t = NULL, *back = NULL;
    struct gguf_writer w = { 0 };
    struct text header = { 0 };
    struct gguf *g = NULL;
    struct slice text = { 0 };
    const char *at;
    int64_t type = 0, merged = -1;
    double score = 0;

    (void)state;
    assert_ok(alibi_tokenizer_open(&t, GOLDEN "/tokenizers/llama2.json", NULL));
    assert_ok(llamacpp_put_tokenizer(&w, t, VOCAB, test_call()));
    assert_ok(gguf_header(&header, &w, NULL, 0));
    assert_ok(gguf_parse(&g, header.data, header.length, (int64_t)header.length, "m.gguf"));
    assert_true(gguf_text(gguf_find(g, "tokenizer.ggml.model"), &text));
    assert_memory_equal(text.at, "llama", text.bytes);
    assert_int_equal(gguf_find(g, "tokenizer.ggml.tokens")->count, VOCAB);
    at = gguf_find(g, "tokenizer.ggml.tokens")->at;
    for (int64_t id = 0; id < VOCAB; id++) {
        text = gguf_next_text(&at);
        if (id == BYTE_0A)
            assert_memory_equal(text.at, "<0x0A>", text.bytes);
        if (text.bytes == 4 && memcmp(text.at, "▁t", 4) == 0) /* its first merge */
            merged = id;
    }
    assert_true(gguf_integer(gguf_find(g, "tokenizer.ggml.token_type"), BYTE_0A, &type));
    assert_int_equal(type, 6);
    assert_true(gguf_integer(gguf_find(g, "tokenizer.ggml.token_type"), VOCAB - 1, &type));
    assert_int_equal(type, 5);
    assert_true(gguf_real(gguf_find(g, "tokenizer.ggml.scores"), merged, &score));
    assert_true(score == 0);
    assert_true(gguf_real(gguf_find(g, "tokenizer.ggml.scores"), BYTE_0A, &score));
    assert_true(score < -100);
    assert_ok(llamacpp_read_tokenizer(&back, g, "m.gguf"));
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(back));
    alibi_tokenizer_free(t);
    alibi_tokenizer_free(back);
    gguf_free(g);
    text_free(&header);
    gguf_writer_fini(&w);
}

/* ---- faults */

static alibi_status round_trip(void *model)
{
    struct alibi_exchanged result;
    const char *file = path_of("%s/fault.gguf", folder), *dir = path_of("%s/fault", folder);
    alibi_status status = export(model, ALIBI_Q8_0, file);

    if (status == ALIBI_OK)
        status = alibi_import(file, dir, &result, test_call());
    else
        assert_false(file_exists(file));
    unlink(file);
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

static void memory_faults_leave_nothing(void **state)
{
    char dir[64];

    (void)state;
    snprintf(dir, sizeof dir, "%s/llama", path_of("%.50s", folder));
    import(GOLDEN "/gguf/llama.gguf", dir);
    assert_true(fail_each_call("memory", round_trip, dir, ALIBI_MEMORY, "") > 50);
}

static alibi_status read_scores(void *unused)
{
    struct gguf *g = NULL;
    alibi_tokenizer *t = NULL;
    alibi_status status = gguf_open(&g, GOLDEN "/gguf/sentencepiece.gguf");

    (void)unused;
    if (status == ALIBI_OK)
        status = llamacpp_read_tokenizer(&t, g, "m.gguf");
    alibi_tokenizer_free(t);
    gguf_free(g);
    return status;
}

static void memory_faults_while_scores_are_read_leave_nothing(void **state)
{
    (void)state;
    assert_true(fail_each_call("memory", read_scores, NULL, ALIBI_MEMORY, "") > 10);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(imported_weights_are_those_of_the_golden_models),
        IN_FOLDER(imported_configurations_are_those_of_the_golden_models),
        IN_FOLDER(what_is_exported_comes_back),
        IN_FOLDER(each_type_is_written_and_read),
        IN_FOLDER(what_is_not_known_is_refused_by_name),
        IN_FOLDER(an_export_never_replaces_a_file),
        cmocka_unit_test(tokenizers_of_files_give_the_ids_of_their_tokenizer_json),
        cmocka_unit_test(tokens_with_scores_give_the_ids_of_llamacpp),
        cmocka_unit_test(tokens_with_scores_that_no_merges_have_are_refused),
        cmocka_unit_test(tokens_with_more_merges_than_a_tokenizer_may_have_are_refused),
        cmocka_unit_test(merges_are_the_cuts_of_tokens_by_score),
        cmocka_unit_test(tokenizers_come_back_from_their_tokens_and_merges),
        cmocka_unit_test(tokenizers_of_characters_have_scores_and_bytes),
        IN_FOLDER(memory_faults_leave_nothing),
        cmocka_unit_test(memory_faults_while_scores_are_read_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
