/* Temperatures: what they do to queries, and that a fit finds the one with the least loss. */
#include <string.h>

#include "eval/eval.h"
#include "model/walk.h"
#include "checkpoint/checkpoint.h"
#include "training.h"
#include "passes.h"

enum { TRAINED = 5, LONG = 40, VOCAB = 257 };

static struct device cpu;

static const char story[] =
    "The old clock in the hall struck nine, and nobody came. On the table lay a receipt, a brass "
    "key and three coins; the key was for the boat house. Nobody ever asked for the boat. When "
    "the clock struck ten, somebody knocked, and the key was gone, and so was the boat, and only "
    "the receipt lay on the table, beside two coins, under the old clock in the hall.";

static struct model *new_model(const char *position, double size)
{
    struct alibi_config c = tiny_bytes_config(position, 1, 8);
    struct model *m = NULL;

    c.train_length = TRAINED;
    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, false));
    randomise(m, 5, size);
    return m;
}

static void logits_of(const struct model *m, float *logits)
{
    int32_t tokens[LONG];

    for (int i = 0; i < LONG; i++)
        tokens[i] = (int32_t)random_below(3, 1, (uint64_t)i, VOCAB);
    assert_ok(once_logits(m, tokens, 1, LONG, logits));
}

/* The queries are the first C rows of the projection. */
static void multiply_queries(struct model *m, double factor)
{
    const struct block_parameters *b = &m->blocks[0];
    int64_t C = m->config.width;

    for (int64_t i = 0; i < C * C; i++)
        ((float *)value_of(m, b->qkv).data)[i] *= (float)factor;
    for (int64_t i = 0; b->qkv_bias >= 0 && i < C; i++)
        ((float *)value_of(m, b->qkv_bias).data)[i] *= (float)factor;
}

/* In a model of one layer the logits at a position depend on the query of that position alone: they
 * are those of a model whose queries are all larger. */
static void a_temperature_multiplies_queries_that_see_more_than_the_training_length(void **state)
{
    static const char *const names[][2] = { { "none:temperature=0.7", "none" },
                                            { "rotary:temperature=0.7", "rotary" },
                                            { "alibi:window=20:temperature=0.7",
                                              "alibi:window=20" },
                                            { "none:temperature=0.7:logn", "none:logn" } };
    static float tempered[LONG * VOCAB], plain[LONG * VOCAB];

    (void)state;
    for (int n = 0; n < 4; n++) {
        struct model *m = new_model(names[n][0], 0.3);
        int64_t window = n == 2 ? 20 : LONG;

        logits_of(m, tempered);
        for (int64_t i = 0; i < LONG; i += 3) {
            struct model *other = new_model(names[n][1], 0.3);
            double keys = (double)(i + 1 < window ? i + 1 : window);

            multiply_queries(other, keys > TRAINED ? 1 + 0.7 * log(keys / TRAINED) : 1);
            logits_of(other, plain);
            for (int64_t v = 0; v < VOCAB; v++)
                assert_close(tempered[i * VOCAB + v], plain[i * VOCAB + v], 1e-4);
            model_free(other);
        }
        model_free(m);
    }
}

static void windows_within_the_training_length_keep_their_bits(void **state)
{
    static float tempered[LONG * VOCAB], plain[LONG * VOCAB];
    struct model *m = new_model("rotary:window=5:temperature=2", 0.3);
    struct model *other = new_model("rotary:window=5", 0.3);

    (void)state;
    logits_of(m, tempered);
    logits_of(other, plain);
    assert_memory_equal(tempered, plain, sizeof plain);
    model_free(m);
    model_free(other);
}

static double loss_with(struct model *m, const alibi_corpus *c, double temperature)
{
    struct alibi_eval eval = { .length = 4 * TRAINED };
    struct alibi_eval_result r;
    char position[ALIBI_NAME_MAX];

    assert_ok(model_tempered(m, temperature, position));
    assert_ok(model_set_position(m, position));
    assert_ok(evaluate_span(m, corpus_span(c, ALIBI_ALL), &eval, "eval", &r, test_call()));
    return r.nll;
}

/* The point that it chooses is no worse than those of a fine grid, within what the grid can tell.
 */
static void the_fit_has_the_least_loss(void **state)
{
    static const double sizes[] = { 0.1, 0.3, 1.2, 2.0 };
    int chosen = 0;
    const char *text = story;
    alibi_corpus *c = NULL;
    alibi_tokenizer *bytes = NULL;

    (void)state;
    assert_ok(corpus_from_texts(&c, &text, 1));
    assert_ok(alibi_tokenizer_open(&bytes, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        alibi_model m = { .model = new_model("none", sizes[i]), .tokenizer = bytes };
        struct alibi_fit_result r;
        double least = INFINITY, best;

        assert_ok(alibi_model_fit(&m, c, ALIBI_ALL, &(struct alibi_fit){ 0 }, &r, test_call()));
        assert_int_equal(r.length, 4 * TRAINED);
        assert_true(r.point[0].temperature == 0 && r.points <= ALIBI_FIT_POINTS);
        for (int k = 1; k < r.points; k++) {
            assert_true(r.point[k].temperature > r.point[k - 1].temperature);
            assert_close(r.point[k].gain, r.point[0].nll - r.point[k].nll, 1e-9);
            assert_true(r.point[k].nll >= r.point[r.best].nll ||
                        (r.best == 0 && (r.point[k].gain < 0.005 ||
                                         r.point[k].gain <= 2 * r.point[k].gain_error)));
        }
        best = r.point[r.best].temperature;
        if (best > 0)
            assert_non_null(strstr(m.model->config.position, "none:temperature="));
        else
            assert_string_equal(m.model->config.position, "none");
        for (double t = 0; t <= 0.8; t += 0.05)
            least = fmin(least, loss_with(m.model, c, t));
        print_message("temperature %g: loss %.6f, least of a grid %.6f\n", best,
                      r.point[r.best].nll, least);
        assert_true(r.best == 0 || r.point[r.best].nll <= least + 2e-4);
        assert_int_equal(r.at_edge, best == 4);
        chosen += r.best > 0;
        model_free(m.model);
    }
    assert_true(chosen > 0 && chosen < 4);
    alibi_tokenizer_free(bytes);
    alibi_corpus_free(c);
}

static void what_has_nothing_to_fit_is_refused_and_keeps_its_position(void **state)
{
    const char *text = story;
    alibi_corpus *c = NULL;
    alibi_tokenizer *bytes = NULL;
    struct alibi_fit_result r;
    alibi_model m;

    (void)state;
    assert_ok(corpus_from_texts(&c, &text, 1));
    assert_ok(alibi_tokenizer_open(&bytes, NULL, NULL));
    m = (alibi_model){ .model = new_model("rotary:window=5", 0.3), .tokenizer = bytes };
    assert_fails(alibi_model_fit(&m, c, ALIBI_ALL, &(struct alibi_fit){ 0 }, &r, test_call()),
                 ALIBI_USAGE, "has nothing to fit");
    model_free(m.model);
    m.model = new_model("rotary:temperature=0.3", 0.3);
    assert_fails(
        alibi_model_fit(&m, c, ALIBI_ALL, &(struct alibi_fit){ .length = 5 }, &r, test_call()),
        ALIBI_USAGE, "past the training length, 5");
    assert_fails(
        alibi_model_fit(&m, c, ALIBI_ALL, &(struct alibi_fit){ .length = 9999 }, &r, test_call()),
        ALIBI_BAD_INPUT, "9999");
    assert_string_equal(m.model->config.position, "rotary:temperature=0.3");
    model_free(m.model);
    alibi_tokenizer_free(bytes);
    alibi_corpus_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_temperature_multiplies_queries_that_see_more_than_the_training_length),
        cmocka_unit_test(windows_within_the_training_length_keep_their_bits),
        cmocka_unit_test(the_fit_has_the_least_loss),
        cmocka_unit_test(what_has_nothing_to_fit_is_refused_and_keeps_its_position),
    };

    cpu = (struct device){ .ops = ops_cpu() };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
