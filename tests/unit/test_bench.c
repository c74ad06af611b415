/* Benchmarks: what they count, and that their numbers fit together. No time is compared with any
 * other. */
#include "bench/bench.h"
#include "check.h"
#include "device.h"
#include "passes.h"
#include "training.h"

static struct alibi_config tiny(void)
{
    struct alibi_config c;
    struct alibi_option_group group = { .title = "model", .values = &c };

    memset(&c, 0, sizeof c);
    group.options = alibi_config_options(&group.count);
    assert_ok(alibi_options_init(&group, 1));
    c.vocab = 50;
    c.layers = 2;
    c.width = 12;
    c.heads = 3;
    c.ff_width = 20;
    return c;
}

static void the_median_is_the_middle_or_the_mean_of_two(void **state)
{
    (void)state;
    assert_close(bench_median((double[]){ 5, 1, 3 }, 3), 3, 0);
    assert_close(bench_median((double[]){ 8, 1, 3, 5 }, 4), 4, 0);
    assert_close(bench_median((double[]){ 7 }, 1), 7, 0);
}

/* Per layer qkv 12 x 36, out 12 x 12, up and down 12 x 20; the head 12 x 50. */
static void all_linear_products_of_a_step_are_counted(void **state)
{
    enum { ROWS = 10 };
    struct device cpu = { .ops = ops_cpu() };
    struct alibi_config c = tiny();
    struct model *m = NULL;
    struct products p = { 0 };
    int32_t *tokens = NULL;
    double sum;

    (void)state;
    c.train_length = 5;
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, true));
    assert_ok(model_init(m, 1, ALIBI_INIT_GPT2));
    assert_ok(bench_tokens(&tokens, m, ROWS + 1));
    assert_ok(once_gradients(m, (struct pass_settings){ 0 }, tokens, tokens + 1, 2, 5, 1,
                             (struct dropout){ .p = 0 }, &sum));
    assert_ok(products_init(&p, m, ROWS));
    assert_close(products_flops(&p),
                 3.0 * 2 * ROWS * (2 * (12 * 36 + 12 * 12 + 2 * 12 * 20) + 12 * 50), 0);
    assert_ok(products_run(&p));
    products_fini(&p);
    mem_free(tokens);
    model_free(m);
}

/* More rows than are drawn on the host: what repeats has the same distribution, and no row is like
 * the one before it. */
static void operands_of_products_are_normal_numbers_throughout(void **state)
{
    enum { ROWS = 30000, C = 12 };
    struct device cpu = { .ops = ops_cpu() };
    struct alibi_config c = tiny();
    struct model *m = NULL;
    struct products p = { 0 };
    const float *x;
    double sum = 0, squares = 0;

    (void)state;
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, true));
    assert_ok(products_init(&p, m, ROWS));
    x = p.x;
    for (int64_t i = 0; i < ROWS * C; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    assert_close(sum / (ROWS * C), 0, 0.01);
    assert_close(squares / (ROWS * C), 1, 0.02);
    for (int64_t r = 1; r < ROWS; r++)
        assert_memory_not_equal(x + r * C, x + (r - 1) * C, C * sizeof *x);
    products_fini(&p);
    model_free(m);
}

/* Ids below 4, below 16 and below 50, as frequent as 1 / (n + 1): 40, 31 and 27 of 100 rows. */
static void products_of_clusters_have_the_rows_that_the_tokens_give_them(void **state)
{
    enum { ROWS = 100 };
    struct device cpu = { .ops = ops_cpu() };
    struct alibi_config c = tiny();
    struct model *m = NULL;
    struct products p = { 0 };
    int32_t *tokens = NULL;
    int64_t head = 0;

    (void)state;
    c.train_length = 5;
    c.adaptive_cutoffs = (struct alibi_int_list){ .count = 2, .at = { 4, 16 } };
    c.adaptive_factor = 2;
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, true));
    assert_ok(model_init(m, 1, ALIBI_INIT_GPT2));
    assert_ok(bench_tokens(&tokens, m, 100 * ROWS));
    for (int i = 0; i < 100 * ROWS; i++) {
        assert_in_range(tokens[i], 0, 49);
        head += tokens[i] < 4;
    }
    assert_in_range(head, 40 * ROWS, 42 * ROWS);
    assert_ok(products_init(&p, m, ROWS));
    assert_close(products_flops(&p),
                 3.0 * 2 *
                     (ROWS * 2 * (12 * 36 + 12 * 12 + 2 * 12 * 20) +             /* blocks */
                      ROWS * 12 * 6 + 40 * 12 * 12 + 31 * 12 * 6 + 27 * 12 * 3 + /* head, input */
                      31 * (12 * 6 + 12 * 6) + 27 * (12 * 3 + 34 * 3)),          /* tails */
                 0);
    assert_ok(products_run(&p));
    products_fini(&p);
    mem_free(tokens);
    model_free(m);
}

static void a_stop_request_ends_one_benchmark_and_not_the_next(void **state)
{
    struct alibi_config c = tiny();
    struct alibi_bench_step r;
    struct alibi_stop stop = { 0 };
    struct alibi_call stopped = { .stop = &stop };
    double seconds;
    size_t bytes;

    (void)state;
    alibi_stop_request(&stop);
    assert_fails(
        alibi_bench_train(test_device(), &c, 2, 8, 3, ALIBI_RECOMPUTE_NONE, 0, &r, &stopped),
        ALIBI_INTERRUPTED, "0 of 3");
    assert_ok(alibi_bench_train(test_device(), &c, 2, 8, 3, ALIBI_RECOMPUTE_NONE, 0, &r, NULL));
    assert_fails(alibi_bench_eval(test_device(), &c, 8, &seconds, &bytes, &stopped),
                 ALIBI_INTERRUPTED, "8");
    assert_ok(alibi_bench_eval(test_device(), &c, 8, &seconds, &bytes, NULL));
}

static void decoding_is_measured_for_any_number_of_sequences(void **state)
{
    struct alibi_config c = tiny();
    struct alibi_bench_decode r;
    struct alibi_stop stop = { 0 };

    (void)state;
    for (int64_t sequences = 1; sequences <= 33; sequences += 16) {
        assert_ok(alibi_bench_decode(test_device(), &c, sequences, 9, 4, 0, &r, NULL));
        assert_true(r.step_seconds > 0 && r.peak_bytes > 0);
        assert_close(r.tokens_per_s * r.step_seconds, sequences, 1e-9);
    }
    assert_fails(alibi_bench_decode(test_device(), &c, 0, 9, 4, 0, &r, NULL), ALIBI_USAGE,
                 "sequences 0");
    assert_fails(alibi_bench_decode(test_device(), &c, 70000, 9, 4, 0, &r, NULL), ALIBI_USAGE,
                 "1 to 65536 sequences");
    assert_fails(alibi_bench_decode(test_device(), &c, 1, INT64_MAX, 4, 0, &r, NULL), ALIBI_USAGE,
                 "1 to 16777216");
    assert_fails(alibi_bench_decode(test_device(), &c, 1, 9, INT64_MAX, 0, &r, NULL), ALIBI_USAGE,
                 "1 to 16777216");
    alibi_stop_request(&stop);
    assert_fails(alibi_bench_decode(test_device(), &c, 2, 8, 3, 0, &r,
                                    &(struct alibi_call){ .stop = &stop }),
                 ALIBI_INTERRUPTED, "0 of 3");
}

/* The cache of layers that see all keys doubles with the context, that of windows does not grow; a
 * text that is shorter than the context is read again. */
static void a_stream_has_times_and_the_bytes_of_its_cache(void **state)
{
    static const char *const texts[] = { "a text of some words, and no more" };
    struct alibi_config c = tiny();
    struct bench_stream r[2][3];
    alibi_corpus *corpus = NULL;

    (void)state;
    c.vocab = 300; /* bytes */
    assert_ok(corpus_from_texts(&corpus, texts, 1));
    for (int windowed = 0; windowed < 2; windowed++) {
        struct model *m = NULL;

        snprintf(c.position, sizeof c.position, "%s", windowed ? "rotary:window=8" : "alibi");
        assert_ok(bench_model(&m, test_device(), &c, 1024, false));
        for (int i = 0; i < 3; i++) {
            struct bench_stream *s = &r[windowed][i];

            assert_ok(bench_stream(s, m, corpus_span(corpus, ALIBI_ALL), 1024 << i, 0, NULL));
            assert_true(s->read_seconds > 0 && s->decode_seconds > 0);
            assert_true(s->read_error >= 0 && s->decode_error >= 0);
        }
        assert_ok(bench_stream(&r[windowed][0], m, corpus_span(corpus, ALIBI_ALL), 2, 0, NULL));
        assert_fails(bench_stream(&r[0][0], m, corpus_span(corpus, ALIBI_ALL), 1, 0, NULL),
                     ALIBI_USAGE, "a stream of 1 tokens");
        model_free(m);
    }
    assert_true(r[0][2].cache_bytes > 1.95 * r[0][1].cache_bytes);
    assert_true(r[1][2].cache_bytes == r[1][1].cache_bytes);
    alibi_corpus_free(corpus);
}

static void the_numbers_of_a_step_fit_together(void **state)
{
    struct alibi_config c = tiny();
    struct alibi_bench_step r;
    double linear = 3.0 * 2 * 16 * (2 * (12 * 36 + 12 * 12 + 2 * 12 * 20) + 12 * 50),
           attention = 7.0 * 2 * 2 * 8 * 8 * 12;

    (void)state;
    assert_ok(alibi_bench_train(test_device(), &c, 2, 8, 3, ALIBI_RECOMPUTE_NONE, 0, &r, NULL));
    assert_true(r.parameters > 0 && r.peak_bytes > 0 && r.product_gflops > 0);
    assert_close_relative(r.step_gflops * r.step_seconds, (linear + attention) * 1e-9, 1e-9);
    assert_close_relative(r.tokens_per_s * r.step_seconds, 16, 1e-9);
    assert_close_relative(r.share, r.step_gflops / r.product_gflops, 1e-9);
    assert_close_relative(r.model_gflops * r.step_seconds,
                          16 * (6.0 * (double)r.parameters + 6.0 * 2 * 8 * 12) * 1e-9, 1e-9);
    assert_int_equal(r.parts, 0);
}

/* The first method is its own measure, and the quartiles surround the median. */
static void methods_are_compared_with_the_first_one(void **state)
{
    const struct alibi_name_list methods = { 3, { "alibi", "rotary", "alibi" } };
    const struct alibi_name_list unknown = { 2, { "alibi", "nowhere" } };
    struct alibi_config c = tiny();
    struct alibi_bench_method r[3];
    struct alibi_stop stop = { 0 };
    const struct alibi_call call = { .stop = &stop };

    (void)state;
    c.width = 24; /* heads of 8, which rotary can rotate */
    assert_ok(alibi_bench_methods(test_device(), &c, &methods, 2, 8, 4, ALIBI_RECOMPUTE_NONE, 0, r,
                                  &call));
    for (int i = 0; i < 3; i++) {
        assert_string_equal(r[i].name, methods.at[i]);
        assert_close_relative(r[i].tokens_per_s * r[i].step_seconds, 16, 1e-9);
        assert_true(0 < r[i].ratio_low && r[i].ratio_low <= r[i].ratio &&
                    r[i].ratio <= r[i].ratio_high);
    }
    assert_true(r[0].ratio == 1 && r[0].ratio_low == 1 && r[0].ratio_high == 1);
    assert_fails(
        alibi_bench_methods(test_device(), &c, &unknown, 2, 8, 4, ALIBI_RECOMPUTE_NONE, 0, r, NULL),
        ALIBI_USAGE, "nowhere");
    alibi_stop_request(&stop);
    assert_fails(alibi_bench_methods(test_device(), &c, &methods, 2, 8, 4, ALIBI_RECOMPUTE_NONE, 0,
                                     r, &call),
                 ALIBI_INTERRUPTED, "0 of 4");
}

/* Every model at every shape, in every round; a table of positions is as long as the longest. */
static void models_take_turns_at_every_shape(void **state)
{
    enum { MODELS = 2, SHAPES = 3, ROUNDS = 4, TIMES = MODELS * SHAPES * ROUNDS };
    const struct bench_shape shapes[SHAPES] = { { 4, 4 }, { 1, 16 }, { 2, 8 } };
    struct alibi_config configs[MODELS] = { tiny(), tiny() };
    double train[TIMES] = { 0 }, eval[TIMES] = { 0 };
    struct bench_turns turns = { .config = configs,
                                 .models = MODELS,
                                 .shape = shapes,
                                 .shapes = SHAPES,
                                 .rounds = ROUNDS,
                                 .train = train,
                                 .eval = eval };
    struct alibi_stop stop = { 0 };

    (void)state;
    snprintf(configs[1].position, sizeof configs[1].position, "learned");
    assert_ok(bench_turns(test_device(), &turns, NULL));
    for (int i = 0; i < TIMES; i++)
        assert_true(train[i] > 0 && eval[i] > 0);
    turns.skip = 1;
    assert_fails(bench_turns(test_device(), &turns, NULL), ALIBI_USAGE, "skip 1");
    turns.skip = 0;
    alibi_stop_request(&stop);
    assert_fails(bench_turns(test_device(), &turns, &(struct alibi_call){ .stop = &stop }),
                 ALIBI_INTERRUPTED, "0 of 4");
}

static void computing_blocks_again_takes_less_memory(void **state)
{
    struct alibi_config c = tiny();
    struct alibi_bench_step keeps, again;

    (void)state;
    c.layers = 8;
    assert_ok(
        alibi_bench_train(test_device(), &c, 4, 64, 1, ALIBI_RECOMPUTE_NONE, 0, &keeps, NULL));
    assert_ok(alibi_bench_train(test_device(), &c, 4, 64, 1, ALIBI_RECOMPUTE_BLOCK, 0x1p-24, &again,
                                NULL));
    assert_true(again.peak_bytes < keeps.peak_bytes);
}

/* Verifying reads what the device left there. */
static void attention_alone_counts_what_it_used(void **state)
{
    struct alibi_bench_attention how = { .batch = 1,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_width = 16,
                                         .alibi = true,
                                         .score = 2,
                                         .skip = 1e-3,
                                         .backward = true,
                                         .decode = true,
                                         .verify = true,
                                         .repeats = 1 };
    struct alibi_bench_attention_result some, all;

    (void)state;
    assert_ok(alibi_bench_attention(test_device(), &how, 1000, &some, NULL));
    assert_true(some.used > 0 && some.used < 1 && some.skipped_weight > 0 &&
                some.skipped_weight <= 1e-3);
    assert_true(some.forward_peak_bytes > 0 && some.peak_bytes > some.forward_peak_bytes);
    how.skip = 0;
    assert_ok(alibi_bench_attention(test_device(), &how, 1000, &all, NULL));
    assert_true(all.used == 1 && all.skipped_weight == 0);
}

/* A text of random letters, and a model of 4 layers for its bytes that has not learned anything. */
static struct alibi_model layered_model(const char *position, alibi_corpus **corpus)
{
    enum { LETTERS = 700 };
    static char text[LETTERS + 1];
    const char *const texts[] = { text };
    struct alibi_config config = tiny_bytes_config(position, 4, 16);
    struct alibi_model model = { 0 };

    for (int i = 0; i < LETTERS; i++)
        text[i] = "abcdef "[random_below(9, 0, (uint64_t)i, 7)];
    assert_ok(corpus_from_texts(corpus, texts, 1));
    model.tokenizer = tokenizer_share(corpus_tokenizer(*corpus));
    assert_ok(model_new(&model.model, &config, &test_device()->device, test_device()->type, false));
    randomise(model.model, 5, 0.05);
    return model;
}

static void free_layered(struct alibi_model *model, alibi_corpus *corpus)
{
    model_free(model->model);
    alibi_tokenizer_free(model->tokenizer);
    alibi_corpus_free(corpus);
}

/* Operations of the forward pass, by the rates, and by the pairs that the layer's mask leaves. */
static void check_layer(const struct alibi_bench_attention_result *r, const struct alibi_config *c,
                        int64_t window)
{
    double L = 512, hidden = window > 0 ? L - (double)window : 0;
    double flops = r->used * 2 * (L * L - hidden * hidden) * (double)c->width;

    assert_close_relative(r->forward_gflops * r->forward_seconds * 1e9, flops, 1e-9);
    assert_close_relative(r->backward_gflops * r->backward_seconds * 1e9, 2.5 * flops, 1e-9);
}

/* Each layer has its own mask and bias; the last result is their sum. */
static void attention_of_a_model_is_that_of_its_layers(void **state)
{
    enum { N = 4 };
    static const int64_t windows[N] = { 0, 100, 0, 0 };
    struct alibi_bench_attention how = {
        .batch = 2, .skip = 1e-3, .backward = true, .decode = true, .verify = true, .repeats = 1
    };
    alibi_corpus *corpus = NULL;
    struct alibi_model model =
        layered_model("alibi,rotary:window=100:sinks=2,none:logn,fox", &corpus);
    struct alibi_bench_attention_result some[N + 1], all[N + 1];
    double forward = 0, work = 0, used = 0;

    (void)state;
    assert_fails(alibi_bench_model_attention(&model, corpus, ALIBI_ALL, &how, 512, some, all, NULL),
                 ALIBI_BAD_INPUT, "has 701 tokens, too few for a batch of 2 x 512");
    how.batch = 1;
    assert_ok(alibi_bench_model_attention(&model, corpus, ALIBI_ALL, &how, 512, some, all, NULL));
    for (int n = 0; n < N; n++) {
        check_layer(&some[n], &model.model->config, windows[n]);
        check_layer(&all[n], &model.model->config, windows[n]);
        assert_true(some[n].decode_seconds > 0 && some[n].length == 512);
        assert_true(some[n].skipped_weight <= 1e-3 && all[n].used == 1);
        forward += some[n].forward_seconds;
        work += all[n].forward_gflops * all[n].forward_seconds;
        used += some[n].forward_gflops * some[n].forward_seconds;
    }
    assert_true(some[0].used < 1 && some[0].skipped_weight > 0);
    assert_true(some[1].used == 1 && some[2].used == 1); /* they have no bias */
    assert_close_relative(some[N].forward_seconds, forward, 1e-12);
    assert_close_relative(some[N].used, used / work, 1e-9);
    assert_true(all[N].used == 1 && some[N].skipped_weight >= some[0].skipped_weight);
    free_layered(&model, corpus);
}

/* The tiles are those that a pass over the same window counts. */
static void a_model_skips_in_the_benchmark_what_it_skips_in_a_pass(void **state)
{
    enum { N = 4, L = 512 };
    const struct alibi_bench_attention how = { .batch = 1, .skip = 1e-3, .repeats = 1 };
    alibi_corpus *corpus = NULL;
    struct alibi_model model = layered_model("alibi", &corpus);
    struct alibi_bench_attention_result results[N + 1];
    struct attention_statistics s;
    struct workspace *w = NULL;
    struct span span = corpus_span(corpus, ALIBI_ALL);
    int32_t tokens[L], targets[L];
    float nll[L];

    (void)state;
    assert_ok(alibi_bench_model_attention(&model, corpus, ALIBI_ALL, &how, L, results, NULL, NULL));
    span_read(span, (span.count - L) / 2, L, tokens);
    memset(targets, -1, sizeof targets);
    assert_ok(
        workspace_new(&w, model.model, &(struct pass_settings){ .skip = 1e-3, .record = true }));
    assert_ok(model_loss(w, tokens, targets, 1, L, nll));
    s = workspace_statistics(w);
    assert_true(s.tiles.used < s.tiles.all);
    assert_close_relative(results[N].used, (double)s.tiles.used / (double)s.tiles.all, 1e-9);
    workspace_free(w);
    free_layered(&model, corpus);
}

/* Learned tables, trained slopes and gates have gradients of their own. */
static void attention_of_every_method_is_timed_with_its_gradient(void **state)
{
    enum { N = 4 };
    static const char *const more[] = { "alibi:train-slopes,t5", "rotary:window=20:sinks=2:logn" };
    const struct alibi_bench_attention how = {
        .batch = 2, .skip = 0x1p-24, .backward = true, .decode = true, .repeats = 1
    };
    const char *position;

    (void)state;
    for (int i = 0, k = 0;
         (position = alibi_position_name(i, NULL)) || (k < 2 && (position = more[k++])); i++) {
        struct alibi_bench_attention_result results[N + 1];
        alibi_corpus *corpus = NULL;
        struct alibi_model model = layered_model(position, &corpus);
        int64_t length = strcmp(position, "learned") == 0 ? 16 : 70;

        assert_ok(alibi_bench_model_attention(&model, corpus, ALIBI_ALL, &how, length, results,
                                              NULL, NULL));
        for (int n = 0; n <= N; n++)
            assert_true(results[n].length == length && results[n].forward_seconds > 0 &&
                        results[n].backward_seconds > 0 && results[n].decode_seconds > 0);
        free_layered(&model, corpus);
    }
}

static void failures_in_the_middle_of_a_pass_leave_nothing(void **state)
{
    const struct alibi_bench_attention how = {
        .batch = 1, .skip = 1e-3, .backward = true, .decode = true, .repeats = 1
    };
    alibi_corpus *corpus = NULL;
    struct alibi_model model = layered_model("fox", &corpus);
    struct alibi_bench_attention_result some[5] = { { 0 } }, all[5] = { { 0 } };
    struct alibi_stop stop = { 0 };
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;

    (void)state;
    for (int64_t n = 1; status != ALIBI_OK; n++) {
        assert_ok(alibi_inject_fault("memory", n));
        status = alibi_bench_model_attention(&model, corpus, ALIBI_ALL, &how, 70, some, all, NULL);
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_int_equal(alibi_memory_now(), before);
        assert_true((some[0].length == 70) == (status == ALIBI_OK));
        assert_true((all[4].length == 70) == (status == ALIBI_OK));
    }
    alibi_stop_request(&stop);
    assert_fails(alibi_bench_model_attention(&model, corpus, ALIBI_ALL, &how, 70, some, all,
                                             &(struct alibi_call){ .stop = &stop }),
                 ALIBI_INTERRUPTED, "stopped");
    assert_int_equal(alibi_memory_now(), before);
    free_layered(&model, corpus);
}

/* The part of the memory that grows with the length grows no faster than the length. */
static void memory_of_an_evaluation_is_linear_in_the_length(void **state)
{
    struct alibi_config c = tiny();
    size_t peak[3];
    double seconds;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_ok(alibi_bench_eval(test_device(), &c, 500 << i, &seconds, &peak[i], NULL));
    assert_true(peak[2] > peak[1] && peak[1] > peak[0]);
    assert_true((double)(peak[2] - peak[1]) < 2.2 * (double)(peak[1] - peak[0]));
}

static void shapes_that_cannot_be_are_refused(void **state)
{
    struct alibi_config c = tiny();
    struct alibi_bench_step r;
    double seconds;
    size_t peak;

    (void)state;
    assert_fails(alibi_bench_train(test_device(), &c, 0, 8, 1, ALIBI_RECOMPUTE_NONE, 0, &r, NULL),
                 ALIBI_USAGE, "batch 0");
    assert_fails(alibi_bench_train(test_device(), &c, 1, 8, 0, ALIBI_RECOMPUTE_NONE, 0, &r, NULL),
                 ALIBI_USAGE, "repeats 0");
    assert_fails(alibi_bench_train(test_device(), &c, INT64_MAX, INT64_MAX, 1, ALIBI_RECOMPUTE_NONE,
                                   0, &r, NULL),
                 ALIBI_MEMORY, "does not fit");
    assert_fails(alibi_bench_train(test_device(), &c, 1, 8, 1, 3, 0, &r, NULL), ALIBI_USAGE,
                 "recompute 3");
    assert_fails(alibi_bench_train(test_device(), &c, 1, 8, 1, ALIBI_RECOMPUTE_NONE, 1, &r, NULL),
                 ALIBI_USAGE, "skip 1");
    assert_fails(alibi_bench_eval(test_device(), &c, -1, &seconds, &peak, NULL), ALIBI_USAGE,
                 "length -1");
    c.heads = 5;
    assert_fails(alibi_bench_eval(test_device(), &c, 8, &seconds, &peak, NULL), ALIBI_USAGE,
                 "heads 5");
}

static void every_operation_is_named_and_one_is_timed(void **state)
{
    struct alibi_bench_op op, smallest = { .sizes = "none" };
    struct alibi_stop stop = { 0 };
    struct alibi_call call = { .stop = &stop };
    int count = alibi_bench_op_count();

    (void)state;
    assert_true(count > 20);
    for (int i = 0; i < count; i++) {
        assert_ok(alibi_bench_op(test_device(), i, 0, &op, NULL));
        if (strcmp(op.operation, "linear_decoding") == 0 && strstr(op.sizes, "rows=1 ")) {
            assert_ok(alibi_bench_op(test_device(), i, 2, &smallest, NULL));
            alibi_stop_request(&stop);
            assert_fails(alibi_bench_op(test_device(), i, 2, &op, &call), ALIBI_INTERRUPTED,
                         "stopped");
        }
    }
    assert_non_null(strstr(smallest.sizes, "in=768 out=3072"));
    assert_true(smallest.seconds > 0);
    assert_close(smallest.gflops * smallest.seconds * 1e9, 2.0 * 768 * 3072, 1);
    assert_close(smallest.gbytes * smallest.seconds * 1e9, 4.0 * (768 * 3072 + 768 + 3072), 1);
    assert_fails(alibi_bench_op(test_device(), count, 1, &op, NULL), ALIBI_USAGE, "no operation");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_middle_or_the_mean_of_two),
        cmocka_unit_test(all_linear_products_of_a_step_are_counted),
        cmocka_unit_test(operands_of_products_are_normal_numbers_throughout),
        cmocka_unit_test(products_of_clusters_have_the_rows_that_the_tokens_give_them),
        cmocka_unit_test(decoding_is_measured_for_any_number_of_sequences),
        cmocka_unit_test(a_stream_has_times_and_the_bytes_of_its_cache),
        cmocka_unit_test(the_numbers_of_a_step_fit_together),
        cmocka_unit_test(a_stop_request_ends_one_benchmark_and_not_the_next),
        cmocka_unit_test(methods_are_compared_with_the_first_one),
        cmocka_unit_test(models_take_turns_at_every_shape),
        cmocka_unit_test(computing_blocks_again_takes_less_memory),
        cmocka_unit_test(attention_alone_counts_what_it_used),
        cmocka_unit_test(attention_of_a_model_is_that_of_its_layers),
        cmocka_unit_test(a_model_skips_in_the_benchmark_what_it_skips_in_a_pass),
        cmocka_unit_test(attention_of_every_method_is_timed_with_its_gradient),
        cmocka_unit_test(failures_in_the_middle_of_a_pass_leave_nothing),
        cmocka_unit_test(memory_of_an_evaluation_is_linear_in_the_length),
        cmocka_unit_test(every_operation_is_named_and_one_is_timed),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
