/* Streaming: the loss of every token with all that came before it as context, in one pass and in
 * bounded memory. */
#include <math.h>

#include "eval/eval.h"
#include "check.h"
#include "device.h"
#include "passes.h"

enum { TOKENS = 2000 };

static struct device cpu;

/* Weights large enough that losses depend on the context. */
static void randomise(struct model *m)
{
    for (int i = 0; i < m->count; i++) {
        float *values = m->parameters[i].value.data;
        for (int64_t k = 0; k < m->parameters[i].count; k++)
            values[k] += (float)(0.3 * random_normal(5, (uint64_t)i, (uint64_t)k));
    }
}

static struct alibi_config new_config(const char *position, int64_t heads)
{
    struct alibi_config c;
    struct alibi_option_group group = { .title = "model", .values = &c };

    memset(&c, 0, sizeof c);
    group.options = alibi_config_options(&group.count);
    assert_ok(alibi_options_init(&group, 1));
    c.vocab = 257;
    c.layers = 2;
    c.width = 8 * heads;
    c.heads = heads;
    c.train_length = 32;
    c.bias_max = 4; /* slopes from 2^-1 on, the flattest of them 2^-4 */
    snprintf(c.position, sizeof c.position, "%s", position);
    assert_ok(alibi_config_resolve(&c));
    return c;
}

static struct model *new_model_in(const char *position, int64_t heads, enum dtype type)
{
    struct alibi_config c = new_config(position, heads);
    struct model *m = NULL;

    assert_ok(model_new(&m, &c, &cpu, type, false));
    assert_ok(model_init(m, 3, ALIBI_INIT_GPT2));
    return m;
}

static struct model *new_plain_model(const char *position, int64_t heads)
{
    return new_model_in(position, heads, DTYPE_F32);
}

static struct model *new_model(const char *position, int64_t heads)
{
    struct model *m = new_plain_model(position, heads);

    randomise(m);
    return m;
}

/* With norms of queries and keys. */
static struct model *new_normed_model(const char *position)
{
    struct alibi_config c = new_config(position, 4);
    struct model *m = NULL;

    c.qk_norm = true;
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, false));
    assert_ok(model_init(m, 3, ALIBI_INIT_GPT2));
    randomise(m);
    return m;
}

static alibi_corpus *new_text(int64_t bytes)
{
    alibi_corpus *c = NULL;

    assert_ok(alibi_corpus_builtin(&c, 7, bytes, NULL, test_call()));
    return c;
}

static alibi_status evaluate(struct model *m, const alibi_corpus *c, struct alibi_eval e,
                             double skip, struct alibi_eval_result *r)
{
    const struct alibi_call call = { .skip = skip };

    return evaluate_span(m, corpus_span(c, ALIBI_ALL), &e, "eval", r, &call);
}

/* One window as long as the text: sliding by one behind it has nothing left to score. */
static void stream_equals_a_window_as_long_as_the_text(void **state)
{
    static const char *const methods[] = { "alibi",
                                           "none",
                                           "rotary",
                                           "t5",
                                           "rotary:window=40,none",
                                           "rotary:window=40,alibi:logn:free=0.5",
                                           "t5:window=100,alibi",
                                           "rotary:window=40:sinks=4,alibi:window=70:sinks=1",
                                           "scale-invariant",
                                           "kerple",
                                           "kerple:power,bam",
                                           "fox",
                                           "fox:window=50,fox:free=0.5:logn",
                                           "rotary:window=40,none:logn",
                                           "alibi:train-slopes",
                                           "none:temperature=0.5",
                                           "rotary:window=40:sinks=4,fox:free=0.5:logn" };
    enum { METHODS = sizeof methods / sizeof *methods };
    static const double budgets[] = { 0, 0x1p-24 };
    alibi_corpus *c = new_text(20000);

    (void)state;
    for (int i = 0; i < METHODS; i++)
        for (int s = 0; s < 2; s++) {
            bool normed = i == METHODS - 1;
            struct model *m = normed ? new_normed_model(methods[i]) : new_model(methods[i], 4);
            struct alibi_eval_result whole, stream;
            struct alibi_eval window = {
                .length = TOKENS,
                .protocol = ALIBI_SLIDING,
                .stride = 1,
                .tokens = TOKENS,
                .contiguous = true,
            };

            assert_ok(evaluate(m, c, window, 0, &whole));
            assert_ok(evaluate(m, c,
                               (struct alibi_eval){ .protocol = ALIBI_STREAM, .tokens = TOKENS },
                               budgets[s], &stream));
            printf("%s skip %.0e: %.9f and %.9f, tiles used %.3f\n", methods[i], budgets[s],
                   whole.nll, stream.nll, stream.tiles_used);
            assert_true(fabs(whole.nll - stream.nll) < 1e-5 * whole.nll);
            assert_int_equal(stream.tokens, TOKENS);
            assert_int_equal(stream.length, TOKENS);
            assert_int_equal(stream.bins, whole.bins);
            for (int b = 0; b < whole.bins; b++) {
                assert_int_equal(stream.by_position[b].tokens, whole.by_position[b].tokens);
                assert_true(fabs(stream.by_position[b].nll - whole.by_position[b].nll) <
                            1e-4 * whole.nll);
            }
            model_free(m);
        }
    alibi_corpus_free(c);
}

/* A stream scores the start of the text. Windows do too if they are asked to, and not otherwise. */
static void windows_score_the_tokens_of_a_stream_if_they_are_contiguous(void **state)
{
    alibi_corpus *c = new_text(8000);
    struct model *m = new_model("alibi", 2);
    struct alibi_eval e = { .protocol = ALIBI_STREAM, .tokens = 700 };
    struct alibi_eval_result stream, windows;
    double difference, error;

    (void)state;
    assert_ok(evaluate(m, c, e, 0, &stream));
    e = (struct alibi_eval){ .length = 64, .tokens = 700, .contiguous = true };
    assert_ok(evaluate(m, c, e, 0, &windows));
    assert_true(alibi_eval_difference(&stream, &windows, &difference, &error));
    assert_true(difference == stream.nll - windows.nll && error > 0);
    assert_true(stream.tokens == 700 && stream.parts == 64 && stream.bytes == windows.bytes);
    e.contiguous = false;
    assert_ok(evaluate(m, c, e, 0, &windows));
    assert_false(alibi_eval_difference(&stream, &windows, &difference, &error));
    model_free(m);
    alibi_corpus_free(c);
}

/* Keys and values in bf16, their norms in fp32; the verifier works with any type. */
static void a_stream_in_bf16_equals_its_window_and_is_near_fp32(void **state)
{
    alibi_corpus *c = new_text(8000);
    struct model *rough = new_model_in("alibi", 4, DTYPE_BF16),
                 *exact = new_plain_model("alibi", 4);
    struct alibi_eval e = { .protocol = ALIBI_STREAM, .tokens = 700, .verify = true };
    struct alibi_eval_result stream, whole, fp32;

    (void)state;
    assert_ok(evaluate(rough, c, e, 1e-3, &stream));
    assert_ok(evaluate(exact, c, e, 1e-3, &fp32));
    e.protocol = ALIBI_NONOVERLAPPING;
    e.length = 700;
    e.contiguous = true;
    assert_ok(evaluate(rough, c, e, 1e-3, &whole));
    assert_true(fabs(stream.nll - whole.nll) < 1e-3 * whole.nll);
    assert_true(stream.nll != fp32.nll && fabs(stream.nll - fp32.nll) < 1e-2 * fp32.nll);
    assert_true(stream.skipped_weight <= 1e-3 && stream.tiles_used > 0 && stream.tiles_used <= 1);
    model_free(rough);
    model_free(exact);
    alibi_corpus_free(c);
}

/* The flattest slope and the largest score make it some 1,400 positions of 50,000. */
static void a_window_bounds_the_memory_and_does_not_change_the_loss(void **state)
{
    alibi_corpus *c = new_text(60000);
    struct model *m = new_model("alibi", 4);
    struct alibi_eval all = { .protocol = ALIBI_STREAM, .tokens = 50000 }, windowed = all;
    struct alibi_eval_result a, w;

    (void)state;
    windowed.window_score = 40;
    assert_ok(evaluate(m, c, all, 0x1p-24, &a));
    assert_ok(evaluate(m, c, windowed, 0x1p-24, &w));
    printf("%.9f in %zu bytes, %.9f in %zu bytes\n", a.nll, a.peak_bytes, w.nll, w.peak_bytes);
    assert_true(fabs(a.nll - w.nll) < 1e-6 * a.nll);
    assert_true(w.peak_bytes < a.peak_bytes / 2);
    model_free(m);
    alibi_corpus_free(c);
}

/* The window is that of the slopes that the model has now, not of those that it started with. */
static void the_window_follows_trained_slopes(void **state)
{
    struct alibi_config c = new_config("alibi", 2);
    struct cache_window fixed, steeper;
    struct model *m = NULL;
    struct tensor factors;

    (void)state;
    c.train_slopes = true;
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, false));
    assert_ok(model_init(m, 3, ALIBI_INIT_GPT2));
    factors = m->parameters[m->positions[0]].value;
    assert_ok(stream_window(&fixed, m, 0x1p-24, 20));
    assert_ok(cpu.ops->fill(&cpu, factors, 4.0));
    assert_ok(stream_window(&steeper, m, 0x1p-24, 20));
    assert_true(steeper.positions > 0 && steeper.positions < fixed.positions / 3);
    assert_ok(cpu.ops->fill(&cpu, factors, 0.0));
    assert_fails(stream_window(&steeper, m, 0x1p-24, 20), ALIBI_USAGE, "leave no window");
    model_free(m);
}

/* The cut of attention by `window`, in chunks with a cache that forgets, and in one pass. */
static void a_stream_cut_to_the_last_keys_equals_one_pass_cut_so_and_forgets_the_others(
    void **state)
{
    static const char *const methods[] = { "alibi", "none", "rotary", "t5",
                                           "rotary:window=40,none" };
    alibi_corpus *c = new_text(60000);

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct model *m = new_model(methods[i], 4);
        struct alibi_eval_result whole, pass, stream, all, cut;
        struct alibi_eval window = { .length = TOKENS, .tokens = TOKENS, .contiguous = true };
        struct alibi_eval long_stream = { .protocol = ALIBI_STREAM, .tokens = 20000 };

        assert_ok(evaluate(m, c, window, 0, &whole));
        window.window = 100;
        assert_ok(evaluate(m, c, window, 0x1p-24, &pass));
        assert_ok(evaluate(
            m, c, (struct alibi_eval){ .protocol = ALIBI_STREAM, .tokens = TOKENS, .window = 100 },
            0x1p-24, &stream));
        printf("%s: %.9f, cut %.9f and %.9f\n", methods[i], whole.nll, pass.nll, stream.nll);
        assert_int_equal(pass.window, 100);
        assert_true(fabs(pass.nll - stream.nll) < 1e-6 * pass.nll);
        assert_true(fabs(pass.nll - whole.nll) > 1e-6 * pass.nll);
        if (i == 0) {
            assert_ok(evaluate(m, c, long_stream, 0x1p-24, &all));
            long_stream.window = 300;
            assert_ok(evaluate(m, c, long_stream, 0x1p-24, &cut));
            assert_true(cut.peak_bytes < all.peak_bytes / 2);
        }
        model_free(m);
    }
    alibi_corpus_free(c);
}

/* The peak of a stream with the cache of a pattern, which has two layers. */
static size_t stream_peak(const alibi_corpus *c, const char *position, int64_t tokens)
{
    struct model *m = new_model(position, 4);
    struct alibi_eval_result r;

    assert_ok(evaluate(m, c, (struct alibi_eval){ .protocol = ALIBI_STREAM, .tokens = tokens },
                       0x1p-24, &r));
    model_free(m);
    return r.peak_bytes;
}

static void a_layer_with_a_window_keeps_a_bounded_number_of_keys(void **state)
{
    alibi_corpus *c = new_text(60000);
    size_t all = stream_peak(c, "alibi", 20000),
           half = stream_peak(c, "alibi:window=40,alibi", 20000);
    size_t few = stream_peak(c, "alibi:window=40", 4000);
    size_t many = stream_peak(c, "alibi:window=40", 20000);
    size_t rotated_few = stream_peak(c, "rotary:window=40:sinks=4", 4000);
    size_t rotated_many = stream_peak(c, "rotary:window=40:sinks=4", 20000);

    (void)state;
    printf("bytes: %zu, %zu with one window, %zu with two, %zu of a shorter text\n", all, half,
           many, few);
    printf("rotated: %zu, %zu of a shorter text\n", rotated_many, rotated_few);
    assert_true(half < all * 2 / 3 && many < half / 2);
    assert_true(many < few + few / 4);
    /* Angles neither grow with the text: what does are the tokens and their losses. */
    assert_true(rotated_many - rotated_few <= many - few + 1000);
    alibi_corpus_free(c);
}

/* A window score bounds the layers that see every key, and those need slopes. */
static void a_window_score_is_for_layers_without_a_window(void **state)
{
    struct model *m = new_model("rotary:window=40,alibi", 4);
    struct cache_window window, alone;

    (void)state;
    assert_ok(stream_window(&window, m, 0x1p-24, 20));
    model_free(m);
    m = new_model("alibi", 4);
    assert_ok(stream_window(&alone, m, 0x1p-24, 20));
    assert_int_equal(window.positions, alone.positions);
    model_free(m);
    m = new_model("alibi,rotary:window=40", 4);
    assert_ok(stream_window(&window, m, 0x1p-24, 20));
    assert_int_equal(window.positions, alone.positions);
    model_free(m);
    m = new_model("alibi:window=40,rotary", 4);
    assert_fails(stream_window(&window, m, 0x1p-24, 20), ALIBI_USAGE, "'rotary' has none");
    model_free(m);
    m = new_model("rotary:window=40", 4);
    assert_ok(stream_window(&window, m, 0x1p-24, 20));
    assert_int_equal(window.positions, 0);
    model_free(m);
}

static void a_score_beyond_what_the_window_relies_on_is_refused(void **state)
{
    alibi_corpus *c = new_text(4000);
    struct model *m = new_model("alibi", 4);
    struct alibi_eval_result r;

    (void)state;
    assert_fails(evaluate(m, c,
                          (struct alibi_eval){ .protocol = ALIBI_STREAM, .window_score = 1e-3 },
                          1e-6, &r),
                 ALIBI_NUMERIC, "at most 0.001");
    model_free(m);
    alibi_corpus_free(c);
}

/* 'A' has a large key and no query, 'B' a large query and no key: their score is larger than any
 * before it. */
static struct model *new_model_of_extremes(void)
{
    struct model *m = new_plain_model("alibi", 1);
    float *embedding = m->parameters[m->embedding].value.data,
          *qkv = m->parameters[m->blocks[0].qkv].value.data;
    int64_t C = m->config.width;

    memset(embedding, 0, sizeof *embedding * (size_t)m->parameters[m->embedding].count);
    for (int64_t t = 0; t < m->config.vocab; t++)
        embedding[t * C + (t == 'A' ? 0 : t == 'B' ? 1 : 2)] = 1.0f;
    memset(qkv, 0, sizeof *qkv * (size_t)m->parameters[m->blocks[0].qkv].count);
    qkv[0 * C + 1] = 20.0f,
                qkv[0 * C + 3] =
                    -20.0f; /* a query for 'B', after a norm that gives the others something */
    qkv[C * C + 0] = 20.0f, qkv[C * C + 3] = -20.0f; /* a key for 'A' */
    return m;
}

static void a_large_query_is_held_against_keys_that_were_forgotten(void **state)
{
    enum { CHUNK = 512, CHUNKS = 16 };
    struct model *m = new_model_of_extremes();
    struct cache_window window;
    struct workspace *w = NULL;
    struct cache *cache = NULL;
    int32_t tokens[CHUNK * CHUNKS];
    alibi_status status = ALIBI_OK;

    (void)state;
    for (int i = 0; i < CHUNK * CHUNKS; i++)
        tokens[i] = i == 0 ? 'A' : i == CHUNK * CHUNKS - 1 ? 'B' : 'C';
    assert_ok(stream_window(&window, m, 0x1p-24, 20));
    assert_ok(cache_new(&cache, m, 1, window));
    assert_ok(workspace_new(&w, m, &(struct pass_settings){ .skip = 0x1p-24 }));
    for (int n = 0; n < CHUNKS; n++) {
        assert_ok(status);
        status = model_extend(w, cache, 0, tokens + n * CHUNK, CHUNK);
    }
    assert_fails(status, ALIBI_NUMERIC, "at most 20");
    workspace_free(w);
    cache_free(cache);
    model_free(m);
}

static void methods_that_mark_places_are_refused_with_the_reason(void **state)
{
    static const char *const methods[] = { "sinusoidal", "learned" };
    alibi_corpus *c = new_text(4000);

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct model *m = new_model(methods[i], 2);
        struct alibi_eval_result r;
        assert_fails(evaluate(m, c, (struct alibi_eval){ .protocol = ALIBI_STREAM }, 0, &r),
                     ALIBI_BAD_INPUT, methods[i]);
        model_free(m);
    }
    alibi_corpus_free(c);
}

static void verify_finds_no_more_than_the_budget(void **state)
{
    alibi_corpus *c = new_text(8000);
    struct model *m = new_model("alibi", 8);
    struct alibi_eval_result r;
    struct alibi_eval e = { .protocol = ALIBI_STREAM, .tokens = 3000, .verify = true };

    (void)state;
    assert_ok(evaluate(m, c, e, 1e-3, &r));
    printf("tiles used %.3f, skipped %.3e\n", r.tiles_used, r.skipped_weight);
    assert_true(r.tiles_used < 1 && r.skipped_weight > 0 && r.skipped_weight <= 1e-3);
    model_free(m);
    alibi_corpus_free(c);
}

/* Numbers as training makes them: the loss is that of every pair, and no more is skipped than the
 * budget. */
static void a_trained_model_loses_nothing(void **state)
{
    alibi_corpus *c = new_text(60000);
    char *folder = temporary_folder();
    struct alibi_config config;
    struct alibi_training training;
    struct alibi_train_result trained;
    struct alibi_option_group groups[] = { { .title = "model", .values = &config },
                                           { .title = "training", .values = &training } };
    alibi_model *model = NULL;
    struct alibi_eval_result all, some;

    (void)state;
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    assert_ok(alibi_options_init(groups, 2));
    config.layers = 2;
    config.width = 32;
    config.heads = 4;
    training.train_length = 64;
    training.batch = 4;
    training.steps = 150;
    training.lr = 1e-2;
    assert_ok(alibi_train(test_device(), &config, &training, c, folder, false, &trained, NULL));
    assert_ok(alibi_model_open(&model, test_device(), folder, NULL));
    assert_ok(alibi_evaluate(model, c, ALIBI_ALL,
                             &(struct alibi_eval){ .length = 2048, .tokens = 4096 }, &all, NULL));
    assert_ok(alibi_evaluate(model, c, ALIBI_ALL,
                             &(struct alibi_eval){ .length = 2048, .tokens = 4096, .verify = true },
                             &some, &(struct alibi_call){ .skip = 0x1p-24 }));
    printf(
        "loss %.2f after training; %.9f with every pair, %.9f with %.1f%% of the tiles, skipped %.1e\n",
        trained.loss, all.nll, some.nll, 100 * some.tiles_used, some.skipped_weight);
    assert_true(fabs(all.nll - some.nll) < 1e-6 * all.nll);
    assert_true(some.tiles_used < 0.8 && some.skipped_weight <= 0x1p-24);
    alibi_model_free(model);
    alibi_corpus_free(c);
    remove_temporary_folder(folder);
}

static void wrong_budgets_are_refused(void **state)
{
    alibi_corpus *c = new_text(4000);
    struct model *m = new_model("alibi", 2);
    struct alibi_eval_result r;

    (void)state;
    assert_fails(evaluate(m, c, (struct alibi_eval){ .protocol = ALIBI_STREAM }, -1, &r),
                 ALIBI_USAGE, "skip -1");
    assert_fails(evaluate(m, c, (struct alibi_eval){ .protocol = ALIBI_STREAM }, (double)NAN, &r),
                 ALIBI_USAGE, "skip");
    assert_fails(evaluate(m, c, (struct alibi_eval){ .length = 8, .window_score = 5 }, 1e-6, &r),
                 ALIBI_USAGE, "window");
    assert_fails(
        evaluate(m, c, (struct alibi_eval){ .protocol = ALIBI_STREAM, .window_score = 5 }, 0, &r),
        ALIBI_USAGE, "window");
    model_free(m);
    alibi_corpus_free(c);
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    alibi_corpus *c = new_text(4000);
    struct alibi_eval_result r;
    struct alibi_eval e = { .protocol = ALIBI_STREAM, .tokens = 700, .window_score = 100 };
    alibi_status status = ALIBI_MEMORY;

    (void)state;
    for (int n = 1; status != ALIBI_OK; n++) {
        struct model *m = new_model("alibi", 2);
        assert_ok(alibi_inject_fault("memory", n));
        status = evaluate(m, c, e, 1e-6, &r);
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_true(status == ALIBI_MEMORY || n > 10);
        model_free(m);
    }
    alibi_corpus_free(c);
    assert_int_equal(alibi_memory_now(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_equals_a_window_as_long_as_the_text),
        cmocka_unit_test(a_window_bounds_the_memory_and_does_not_change_the_loss),
        cmocka_unit_test(the_window_follows_trained_slopes),
        cmocka_unit_test(
            a_stream_cut_to_the_last_keys_equals_one_pass_cut_so_and_forgets_the_others),
        cmocka_unit_test(a_layer_with_a_window_keeps_a_bounded_number_of_keys),
        cmocka_unit_test(a_window_score_is_for_layers_without_a_window),
        cmocka_unit_test(a_score_beyond_what_the_window_relies_on_is_refused),
        cmocka_unit_test(a_large_query_is_held_against_keys_that_were_forgotten),
        cmocka_unit_test(methods_that_mark_places_are_refused_with_the_reason),
        cmocka_unit_test(windows_score_the_tokens_of_a_stream_if_they_are_contiguous),
        cmocka_unit_test(a_stream_in_bf16_equals_its_window_and_is_near_fp32),
        cmocka_unit_test(verify_finds_no_more_than_the_budget),
        cmocka_unit_test(a_trained_model_loses_nothing),
        cmocka_unit_test(wrong_budgets_are_refused),
        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
    };

    cpu = test_device()->device;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
