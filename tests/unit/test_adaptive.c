/* test_adaptive.c - embedding and output layer in clusters of the vocabulary
 *
 * tests/golden holds them against PyTorch; here are the shapes that a batch of text may have, and
 * what must not change a result. */
#include <math.h>
#include <string.h>

#include "training.h"
#include "model/walk.h"
#include "passes.h"

enum { VOCAB = 23, ROWS = 150 };

/* Clusters of 6, 1, 9 and 7 ids. */
static struct alibi_config clusters(bool tied)
{
    struct alibi_config c = default_config();

    c.vocab = VOCAB;
    c.layers = 1;
    c.width = 12;
    c.heads = 3;
    c.ff_width = 7;
    c.tied = tied;
    c.train_length = ROWS;
    c.adaptive_cutoffs = (struct alibi_int_list){ .count = 3, .at = { 6, 7, 16 } };
    c.adaptive_factor = 2;
    return c;
}

static struct model *new_model(struct alibi_config c, struct device *dev, enum dtype type)
{
    struct model *m = NULL;

    assert_ok(alibi_config_resolve(&c));
    assert_ok(model_new(&m, &c, dev, type, true));
    randomise(m, 5, 0.3);
    return m;
}

/* Ids from..to-1. */
static void draw_ids(int32_t *ids, int64_t count, int32_t from, int32_t to, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++)
        ids[i] = from + (int32_t)random_below(3, stream, (uint64_t)i, (uint64_t)(to - from));
}

/* ---- what a batch may contain */

/* The losses are those of the log-probabilities, which belong to a distribution; and the gradients
 * are there and finite. */
static void check_batch(struct model *m, const int32_t *tokens, const int32_t *targets, int64_t B,
                        int64_t L, const char *what)
{
    int64_t rows = B * L, V = m->config.vocab;
    float *logp = NULL, *nll = NULL;
    double sum = 0, total = 0, worst = 0, squares;

    assert_ok(NEW_ARRAY(&logp, rows * V, "log-probabilities"));
    assert_ok(NEW_ARRAY(&nll, rows, "losses"));
    assert_ok(once_logits(m, tokens, B, L, logp));
    assert_ok(once_loss(m, tokens, targets, B, L, nll));
    for (int64_t r = 0; r < rows; r++) {
        double p = 0;
        for (int64_t v = 0; v < V; v++)
            p += exp((double)logp[r * V + v]);
        worst = fmax(worst, fabs(p - 1));
        if (targets[r] < 0)
            assert_true(nll[r] == 0.0f);
        else
            worst = fmax(worst, fabs((double)nll[r] + (double)logp[r * V + targets[r]]));
        sum += (double)nll[r];
    }
    print_message("adaptive %-3s %-32s error %.1e  limit 1.0e-05  %s\n", m->device->ops->name, what,
                  worst, worst < 1e-5 ? "ok" : "FAILED");
    assert_true(worst < 1e-5);
    assert_ok(model_clear_gradients(m));
    assert_ok(once_gradients(m, (struct pass_settings){ 0 }, tokens, targets, B, L, 1.0,
                             (struct dropout){ 0 }, &total));
    assert_true(fabs(total - sum) <= 1e-5 * (1 + sum));
    assert_ok(model_check_finite(m, model_flat(m, m->gradients), 0, "the gradient of", &squares));
    assert_true((squares > 0) == (sum > 0));
    mem_free(logp);
    mem_free(nll);
}

static void losses_are_those_of_the_log_probabilities_whatever_a_batch_contains(void **state)
{
    static const struct {
        int32_t tokens[2], targets[2]; /* from, to */
        int64_t B, L;
        const char *what;
    } batches[] = {
        { { 0, VOCAB }, { 0, VOCAB }, 3, 50, "every cluster" },
        { { 0, 6 }, { 0, 6 }, 2, 9, "only the head" },
        { { 6, 7 }, { 6, 7 }, 2, 9, "only the tail of one id" },
        { { 7, 16 }, { 16, VOCAB }, 2, 9, "one tail after another" },
        { { 16, VOCAB }, { 0, 6 }, 1, 9, "the last tail, then the head" },
        { { 20, 21 }, { 20, 21 }, 1, 1, "one token" },
        { { 0, 1 }, { 0, 1 }, 1, 1, "one token of the head" },
        { { 0, VOCAB }, { -1, 0 }, 2, 5, "nothing scored" },
        { { 0, VOCAB }, { -1, VOCAB }, 2, 60, "some not scored" },
    };
    struct device devices[2] = { { .ops = &ops_ref }, { .ops = ops_cpu() } };
    int32_t tokens[ROWS], targets[ROWS];

    (void)state;
    for (int d = 0; d < 2; d++)
        for (int tied = 0; tied < 2; tied++) {
            struct model *m = new_model(clusters(tied), &devices[d], DTYPE_F32);
            for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
                int64_t rows = batches[i].B * batches[i].L;
                draw_ids(tokens, rows, batches[i].tokens[0], batches[i].tokens[1], 1);
                draw_ids(targets, rows, batches[i].targets[0], batches[i].targets[1], 2);
                check_batch(m, tokens, targets, batches[i].B, batches[i].L, batches[i].what);
            }
            model_free(m);
        }
}

/* ---- what must not change a result */

/* Loss and gradients [span] of a batch over all clusters. */
static double run(struct model *m, double dropout, float *gradients)
{
    const struct pass_settings settings = { .tail_dropout = dropout };
    int32_t tokens[ROWS], targets[ROWS];
    double loss;

    draw_ids(tokens, ROWS, 0, VOCAB, 1);
    draw_ids(targets, ROWS, -1, VOCAB, 2);
    assert_ok(model_clear_gradients(m));
    assert_ok(once_gradients(m, settings, tokens, targets, 1, ROWS, 0.5,
                             (struct dropout){ .seed = 9, .stream = 4 }, &loss));
    if (gradients)
        memcpy(gradients, m->gradients, (size_t)m->span * sizeof *gradients);
    return loss;
}

/* With padded lists, and with few rows of logits at a time. The reference computes row by row, so
 * losses have the same bits, masks of dropout included; gradients are rounded once per piece. */
static void padding_and_pieces_change_no_loss(void **state)
{
    struct ops ops = ops_ref;
    struct device device = { .ops = &ops };

    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct model *m = new_model(clusters(tied), &device, DTYPE_F32);
        float *plain = NULL, *other = NULL;
        double loss, other_loss, dropout = 0.3;

        assert_ok(NEW_ARRAY(&plain, m->span, "gradients"));
        assert_ok(NEW_ARRAY(&other, m->span, "gradients"));
        ops.traits = ops_ref.traits;
        loss = run(m, dropout, plain);
        assert_true(loss != run(m, 0, other)); /* it drops something */
        for (int padded = 0; padded < 2; padded++)
            for (int pieces = 0; pieces < 2; pieces++) {
                ops.traits.row_multiple = padded ? 16 : 1;
                ops.traits.logits = pieces ? 1 : ops_ref.traits.logits;
                other_loss = run(m, dropout, other);
                assert_true(other_loss == loss);
                for (int64_t i = 0; i < m->span; i++)
                    if (fabs((double)plain[i] - (double)other[i]) > 1e-6 * fabs((double)plain[i]))
                        fail_msg("gradient %lld is %.9g, not %.9g", (long long)i, (double)other[i],
                                 (double)plain[i]);
            }
        mem_free(plain);
        mem_free(other);
        model_free(m);
    }
}

static void dropout_of_tails_has_the_gradient_of_its_mask(void **state)
{
    struct device reference = { .ops = &ops_ref };
    struct model *m = new_model(clusters(true), &reference, DTYPE_F64);
    double *gradient = NULL, worst = 0, largest = 0;

    (void)state;
    assert_ok(NEW_ARRAY(&gradient, m->span, "gradients"));
    run(m, 0.3, NULL);
    memcpy(gradient, m->gradients, (size_t)m->span * sizeof *gradient);
    for (int k = 0; k < m->clusters; k++) {
        const int indices[2] = { m->cluster[k].embedding, m->cluster[k].projection };
        for (int n = 0; n < 2; n++) {
            const struct parameter *p = &m->parameters[indices[n]];
            for (int64_t i = p->offset; i < p->offset + p->count; i += 7) {
                double *value = (double *)m->values + i, was = *value, h = 1e-6, up, down;
                *value = was + h;
                up = run(m, 0.3, NULL);
                *value = was - h;
                down = run(m, 0.3, NULL);
                *value = was;
                worst = fmax(worst, fabs(0.5 * (up - down) / (2 * h) - gradient[i]));
                largest = fmax(largest, fabs(gradient[i]));
            }
        }
    }
    assert_true(largest > 0 && worst < 1e-7 * largest);
    mem_free(gradient);
    model_free(m);
}

/* ---- sizes and initial weights */

static void the_papers_wikitext_model_has_247_million_parameters(void **state)
{
    struct alibi_config c = default_config();
    int64_t C = 1024, F = 4096, block = 4 * C * C + 2 * C * F + (3 + 1 + 1) * C + F + 4 * C;

    (void)state;
    c.vocab = 267744;
    c.layers = 16;
    c.width = C;
    c.ff_width = F;
    c.final_norm = false;
    c.train_length = 512;
    c.adaptive_cutoffs = (struct alibi_int_list){ .count = 2, .at = { 20000, 60000 } };
    assert_ok(alibi_config_resolve(&c));
    assert_int_equal(config_parameters(&c), 20002 * C + 40000 * C / 4 + 207744 * C / 16 +
                                                C * (C + C / 4 + C / 16) + 16 * block);
    assert_int_equal((config_parameters(&c) + 500000) / 1000000, 247);
}

static void clusters_start_as_wide_as_their_vectors_ask(void **state)
{
    struct device fast = { .ops = ops_cpu() };
    struct alibi_config c = clusters(false);
    struct model *m;

    (void)state;
    c.vocab = 4000;
    c.width = 64;
    c.heads = 4;
    c.adaptive_cutoffs = (struct alibi_int_list){ .count = 1, .at = { 1000 } };
    c.adaptive_factor = 4;
    m = new_model(c, &fast, DTYPE_F32);
    assert_ok(model_init(m, 3, ALIBI_INIT_GPT2));
    for (int i = 0; i < m->count; i++) {
        const struct parameter *p = &m->parameters[i];
        const float *values = p->value.data;
        double squares = 0, largest = 0, deviation, rows = (double)p->shape[0];

        if (p->init != INIT_CLUSTER && p->init != INIT_XAVIER)
            continue;
        for (int64_t k = 0; k < p->count; k++) {
            squares += (double)values[k] * (double)values[k];
            largest = fmax(largest, fabs((double)values[k]));
        }
        deviation = p->init == INIT_CLUSTER ? pow((double)p->shape[1], -0.5)
                                            : sqrt(2.0 / (rows + (double)p->shape[1]));
        assert_true(fabs(sqrt(squares / (double)p->count) / deviation - 1) < 0.05);
        if (p->init == INIT_XAVIER) /* uniform */
            assert_true(largest < sqrt(3) * deviation && largest > 1.7 * deviation);
    }
    model_free(m);
}

static void cutoffs_that_make_no_clusters_are_named(void **state)
{
    struct device fast = { .ops = ops_cpu() };
    static const struct {
        struct alibi_int_list cutoffs;
        int64_t vocab, factor;
        const char *what;
    } wrong[] = {
        { { 2, { 7, 7 } }, VOCAB, 2, "7 after 7" },
        { { 2, { 9, 3 } }, VOCAB, 2, "3 after 9" },
        { { 1, { 0 } }, VOCAB, 2, "out of range" },
        { { 2, { 6, VOCAB } }, VOCAB, 2, "the vocabulary of 23" },
        { { 4, { 1, 2, 3, 4 } }, VOCAB, 2, "no numbers" },
        { { 1, { 3 } }, VOCAB, 13, "no numbers" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct alibi_config c = clusters(true);
        c.adaptive_cutoffs = wrong[i].cutoffs;
        c.adaptive_factor = wrong[i].factor;
        assert_int_equal(alibi_config_resolve(&c), ALIBI_USAGE);
        assert_non_null(strstr(alibi_error(), wrong[i].what));
        assert_non_null(strstr(alibi_error(), "adaptive-cutoffs"));
    }

    /* The vocabulary may become known after the other options. */
    struct alibi_config late = clusters(true);
    struct model *m = NULL;
    late.vocab = 0;
    assert_ok(alibi_config_resolve(&late));
    late.vocab = 10;
    assert_int_equal(model_new(&m, &late, &fast, DTYPE_F32, false), ALIBI_USAGE);
    assert_non_null(strstr(alibi_error(), "the vocabulary of 10"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_log_probabilities_whatever_a_batch_contains),
        cmocka_unit_test(padding_and_pieces_change_no_loss),
        cmocka_unit_test(dropout_of_tails_has_the_gradient_of_its_mask),
        cmocka_unit_test(the_papers_wikitext_model_has_247_million_parameters),
        cmocka_unit_test(clusters_start_as_wide_as_their_vectors_ask),
        cmocka_unit_test(cutoffs_that_make_no_clusters_are_named),
    };

    return cmocka_run_group_tests_name("clusters of the vocabulary", tests, NULL, NULL);
}
