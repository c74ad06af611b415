/* Attention by distance: the sums are those of a plain softmax over all pairs, and the probe
 * averages them over the second half of windows spread over the text. */
#include <omp.h>

#include "eval/eval.h"
#include "training.h"

enum { B = 2, LENGTH = 37, H = 4, D = 8, TABLE = 12, TEXT = 600 };

static struct device cpu;

/* ---- the sums */

static double number(uint64_t which, int64_t i)
{
    return random_normal(3, which, (uint64_t)i);
}

/* The sums of head h over queries from.., by the definition. */
static struct head_reach plain(const struct attention_args *a, int64_t h, int64_t from,
                               int64_t step, int64_t near)
{
    const float *q = a->q.data, *k = a->k.data, *values = a->bias.values.data;
    int64_t Hkv = a->k.shape[2], kv = h / (H / Hkv);
    struct head_reach out = { 0 };

    for (int64_t n = 0; n < B * LENGTH; n++) {
        int64_t b = n / LENGTH, i = n % LENGTH;
        bool counts = i >= from && (i - from) % step == 0;
        double weight[LENGTH] = { 0 }, sum = 0;

        for (int64_t j = 0; j <= i; j++) {
            double score = 0;

            for (int64_t d = 0; d < D; d++)
                score += (double)q[((b * LENGTH + i) * H + h) * D + d] *
                         (double)k[((b * LENGTH + j) * Hkv + kv) * D + d];
            score *= a->scale;
            if (a->bias.kind == BIAS_LINEAR)
                score -= (double)values[h] * (double)(i - j);
            if (a->bias.kind == BIAS_TABLE)
                score += (double)values[h * TABLE + (i - j < TABLE ? i - j : TABLE - 1)];
            weight[j] = a->window == 0 || i - j < a->window ? exp(score) : 0;
            sum += weight[j];
        }
        for (int64_t j = 0; counts && j <= i; j++) {
            double p = weight[j] / sum;
            int bin = 0;

            while (i - j >= 1 << bin)
                bin++;
            out.weight[bin] += p;
            out.beyond += i - j >= near ? p : 0;
            out.distance += p * (double)(i - j);
            out.entropy -= p > 0 ? p * log(p) : 0;
        }
        out.queries += counts;
    }
    return out;
}

static void check_case(enum bias_kind kind, int64_t Hkv, int64_t window, int64_t from, int64_t step,
                       int64_t near)
{
    static float q[B * LENGTH * H * D], k[B * LENGTH * H * D], v[B * LENGTH * H * D];
    static float y[B * LENGTH * H * D], lse[B * H * LENGTH], values[H * TABLE];
    struct head_reach heads[H] = { 0 };
    struct attention_args a = {
        .q = tensor_4(q, DTYPE_F32, B, LENGTH, H, D),
        .k = tensor_4(k, DTYPE_F32, B, LENGTH, Hkv, D),
        .v = tensor_4(v, DTYPE_F32, B, LENGTH, Hkv, D),
        .y = tensor_4(y, DTYPE_F32, B, LENGTH, H, D),
        .lse = tensor_3(lse, DTYPE_F32, B, H, LENGTH),
        .bias = { kind, kind == BIAS_LINEAR ? tensor_1(values, DTYPE_F32, H)
                                            : tensor_2(values, DTYPE_F32, H, TABLE) },
        .scale = 1 / sqrt(D),
        .window = window,
    };

    for (int64_t i = 0; i < B * LENGTH * H * D; i++) {
        q[i] = (float)number(0, i);
        k[i] = (float)number(1, i);
    }
    for (int64_t i = 0; i < H * TABLE; i++)
        values[i] = (float)fabs(0.3 * number(2, i));
    if (kind == BIAS_NONE)
        a.bias.values = tensor_none();
    assert_ok(cpu.ops->attention_forward(&cpu, &a));
    attention_reach(&a, NULL, from, step, near, heads);
    for (int64_t h = 0; h < H; h++) {
        struct head_reach expected = plain(&a, h, from, step, near);

        assert_int_equal(heads[h].queries, expected.queries);
        for (int b = 0; b < REACH_BINS; b++)
            assert_close(heads[h].weight[b], expected.weight[b], 1e-4);
        assert_close(heads[h].beyond, expected.beyond, 1e-4);
        assert_close_relative(heads[h].distance, expected.distance, 1e-5);
        assert_close_relative(heads[h].entropy, expected.entropy, 1e-5);
    }
}

static void sums_are_those_of_a_softmax_over_all_pairs(void **state)
{
    (void)state;
    check_case(BIAS_NONE, H, 0, 0, 1, 8);
    check_case(BIAS_LINEAR, H, 0, LENGTH / 2, 1, 16);
    check_case(BIAS_LINEAR, 2, 0, 1, 3, 5);
    check_case(BIAS_TABLE, 1, 0, 20, 1, 8);
    check_case(BIAS_LINEAR, H, 9, 0, 7, 4);
}

/* Sinks have weight too: with them the weights of a query add up to 1. */
static void sinks_count_with_their_weight(void **state)
{
    enum { W = 6, SINKS = 3 };
    static float q[B * LENGTH * H * D], k[B * LENGTH * H * D], y[B * LENGTH * H * D];
    static float lse[B * H * LENGTH], angles[LENGTH * D];
    struct head_reach heads[H] = { 0 };
    struct attention_args a = { .q = tensor_4(q, DTYPE_F32, B, LENGTH, H, D),
                                .k = tensor_4(k, DTYPE_F32, B, LENGTH, H, D),
                                .v = tensor_4(k, DTYPE_F32, B, LENGTH, H, D),
                                .y = tensor_4(y, DTYPE_F32, B, LENGTH, H, D),
                                .lse = tensor_3(lse, DTYPE_F32, B, H, LENGTH),
                                .scale = 1,
                                .window = W };
    struct sinks_args sinks = { .q = a.q,
                                .k = a.k,
                                .v = a.v,
                                .scale = a.scale,
                                .window = W,
                                .sinks = SINKS,
                                .rotation = { .table = tensor_2(angles, DTYPE_F32, LENGTH, D) },
                                .farthest = tensor_1(angles + (W + SINKS - 1) * D, DTYPE_F32, D),
                                .y = a.y,
                                .lse = a.lse };

    (void)state;
    sinks.k.shape[1] = sinks.v.shape[1] = SINKS;
    for (int64_t i = 0; i < B * LENGTH * H * D; i++) {
        q[i] = (float)number(0, i);
        k[i] = (float)number(1, i);
    }
    for (int64_t i = 0; i < LENGTH * D; i++) {
        double angle = 0.1 * (double)(i / D) * (double)(1 + i % D % (D / 2));
        angles[i] = (float)(i % D < D / 2 ? cos(angle) : sin(angle));
    }
    assert_ok(cpu.ops->attention_forward(&cpu, &a));
    assert_ok(cpu.ops->sinks_forward(&cpu, &sinks));
    attention_reach(&a, &sinks, 20, 1, W, heads);
    for (int64_t h = 0; h < H; h++) {
        double sum = 0;

        for (int b = 0; b < REACH_BINS; b++)
            sum += heads[h].weight[b];
        assert_close_relative(sum, (double)heads[h].queries, 1e-5);
        assert_true(heads[h].beyond > 0.05 * sum && heads[h].beyond < sum);
    }
}

/* ---- the probe */

static alibi_corpus *new_corpus(void)
{
    static char text[TEXT + 1];
    const char *texts[] = { text };
    alibi_corpus *c = NULL;

    for (int i = 0; i < TEXT; i++)
        text[i] = "abcdef "[random_below(9, 0, (uint64_t)i, 7)];
    assert_ok(corpus_from_texts(&c, texts, 1));
    return c;
}

static struct alibi_model new_model(const char *position, double size, const alibi_corpus *c)
{
    struct alibi_config config = tiny_bytes_config(position, 2, 16);
    struct alibi_model model = { .tokenizer = tokenizer_share(corpus_tokenizer(c)) };

    assert_ok(model_new(&model.model, &config, &cpu, DTYPE_F32, false));
    randomise(model.model, 5, size);
    return model;
}

static void free_model(struct alibi_model *model)
{
    model_free(model->model);
    alibi_tokenizer_free(model->tokenizer);
}

/* Without weights every score is 0, so every head is the uniform one. */
static void a_model_without_weights_attends_uniformly(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("none", 0, c);
    struct alibi_attention_result *r = NULL;

    (void)state;
    assert_ok(alibi_probe_attention(&r, &model, c, ALIBI_ALL,
                                    &(struct alibi_attention){ .length = 50, .windows = 7 },
                                    test_call()));
    assert_true(r->layers == 2 && r->heads == 2 && r->bins == 7 && r->near == 16);
    assert_true(r->windows == 7 && r->queries == 7 * 25);
    for (int i = 0; i < 4; i++) {
        for (int b = 0; b < r->bins; b++)
            assert_close(r->head[i].share[b], r->uniform.share[b], 1e-5);
        assert_close(r->head[i].beyond, r->uniform.beyond, 1e-5);
        assert_close(r->head[i].distance, r->uniform.distance, 1e-3);
        assert_close(r->head[i].entropy, r->uniform.entropy, 1e-4);
    }
    assert_close(r->uniform.distance, 37.0 / 2, 1e-12); /* queries 25..49 */
    alibi_attention_free(r);
    free_model(&model);
    alibi_corpus_free(c);
}

/* A long window: 1024 queries, every second of them. */
static void of_a_long_window_some_queries_count(void **state)
{
    static char text[2100];
    const char *texts[] = { text };
    alibi_corpus *c = NULL;
    struct alibi_model model;
    struct alibi_attention_result *r = NULL;

    (void)state;
    memset(text, 'a', sizeof text - 1);
    assert_ok(corpus_from_texts(&c, texts, 1));
    model = new_model("none", 0, c);
    assert_ok(alibi_probe_attention(&r, &model, c, ALIBI_ALL,
                                    &(struct alibi_attention){ .length = 2048, .windows = 1 },
                                    test_call()));
    assert_int_equal(r->queries, 512);
    assert_close(r->head[0].distance, r->uniform.distance, 0.1);
    assert_close(r->head[0].entropy, r->uniform.entropy, 1e-4);
    alibi_attention_free(r);
    free_model(&model);
    alibi_corpus_free(c);
}

/* ALiBi's heads have falling slopes, so each looks farther than the one before; and shares add up.
 */
static void flatter_slopes_look_farther(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", 0.05, c);
    struct alibi_attention_result *r = NULL;

    (void)state;
    assert_ok(alibi_probe_attention(
        &r, &model, c, ALIBI_ALL,
        &(struct alibi_attention){ .length = 128, .near = 32, .windows = 3 }, test_call()));
    for (int n = 0; n < 2; n++) {
        const struct alibi_head_attention *steep = &r->head[2 * n], *flat = &r->head[2 * n + 1];
        double sum = 0, far = 0;

        assert_true(flat->distance > 2 * steep->distance && flat->entropy > steep->entropy);
        assert_true(flat->distance < r->uniform.distance);
        for (int b = 0; b < r->bins; b++) {
            sum += flat->share[b];
            far += b > 5 ? flat->share[b] : 0; /* bin 6 begins at distance 32 */
        }
        assert_close(sum, 1, 1e-5);
        assert_close(far, flat->beyond, 1e-9);
    }
    alibi_attention_free(r);
    free_model(&model);
    alibi_corpus_free(c);
}

static void wrong_requests_are_named(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("learned", 0.1, c);
    struct alibi_attention_result *r = NULL;
    struct alibi_attention how = { .length = 17, .windows = 1 };

    (void)state;
    assert_fails(alibi_probe_attention(&r, &model, c, ALIBI_ALL, &how, test_call()),
                 ALIBI_BAD_INPUT, "'learned' ends at 16");
    how = (struct alibi_attention){ .length = 16 };
    assert_fails(alibi_probe_attention(&r, &model, c, ALIBI_ALL, &how, test_call()), ALIBI_USAGE,
                 "0 windows");
    free_model(&model);
    model = new_model("alibi", 0.1, c);
    how = (struct alibi_attention){ .length = 1000, .windows = 1 };
    assert_fails(alibi_probe_attention(&r, &model, c, ALIBI_ALL, &how, test_call()),
                 ALIBI_BAD_INPUT, "has 601 tokens, fewer than a window of 1000");
    free_model(&model);
    alibi_corpus_free(c);
}

static void every_failing_allocation_is_reported_and_nothing_leaks(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", 0.1, c);
    const struct alibi_attention how = { .length = 16, .windows = 3 };
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;

    (void)state;
    for (int64_t n = 1; status != ALIBI_OK; n++) {
        struct alibi_attention_result *r = NULL;

        assert_ok(alibi_inject_fault("memory", n));
        status = alibi_probe_attention(&r, &model, c, ALIBI_ALL, &how, test_call());
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_true((status == ALIBI_OK) == (r != NULL));
        alibi_attention_free(r);
        assert_int_equal(alibi_memory_now(), before);
        assert_true(n < 1000);
    }
    free_model(&model);
    alibi_corpus_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_a_softmax_over_all_pairs),
        cmocka_unit_test(sinks_count_with_their_weight),
        cmocka_unit_test(a_model_without_weights_attends_uniformly),
        cmocka_unit_test(of_a_long_window_some_queries_count),
        cmocka_unit_test(flatter_slopes_look_farther),
        cmocka_unit_test(wrong_requests_are_named),
        cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_leaks),
    };

    omp_set_num_threads(1);
    cpu.ops = ops_cpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
