/* Which tokens are scored, what is read for them, and how sure their mean is. */
#include "eval/eval.h"
#include "check.h"

enum { TOKENS_MAX = 512 };

/* ---- blocks */

static void blocks_are_spread_from_the_start_to_the_end(void **state)
{
    (void)state;
    for (int64_t all = 1; all < 60; all++)
        for (int64_t tokens = 1; tokens < all; tokens++)
            for (int64_t size = 1; size <= tokens; size++) {
                struct blocks b = blocks_of(all, tokens, size, false);
                int64_t last = blocks_start(&b, b.count - 1), gap;

                assert_true(b.size == size && b.count == tokens / size && b.all == all);
                if (b.count == 1) {
                    assert_int_equal(last, (all - size) / 2);
                    continue;
                }
                gap = (all - size) / (b.count - 1);
                assert_true(blocks_start(&b, 0) == 0 && last == all - size && gap >= size);
                for (int64_t k = 1; k < b.count; k++) {
                    int64_t step = blocks_start(&b, k) - blocks_start(&b, k - 1);
                    assert_true(step == gap || step == gap + 1);
                }
            }
}

static void without_a_cap_below_the_text_all_of_it_is_one_block(void **state)
{
    static const int64_t tokens[] = { 0, 100, 101, INT64_MAX };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct blocks b = blocks_of(100, tokens[i], 7, i % 2 == 1);
        assert_true(b.count == 1 && b.size == 100 && blocks_start(&b, 0) == 0);
    }
}

static void starts_in_a_text_of_any_size_do_not_overflow(void **state)
{
    struct blocks b = blocks_of(INT64_C(1) << 60, INT64_C(1) << 40, 1 << 10, false);

    (void)state;
    assert_int_equal(b.count, 1 << 30);
    assert_int_equal(blocks_start(&b, b.count - 1), (INT64_C(1) << 60) - (1 << 10));
    assert_true(blocks_start(&b, b.count / 2) >> 57 == 4);
}

/* Neighbours share a part, and parts hold as many blocks, or tokens, as each other, except one. */
static void parts_are_neighbours_of_about_equal_size(void **state)
{
    static const struct {
        int64_t all, tokens, size;
        int parts;
    } cases[] = {
        { 5, 0, 0, 5 },          { 64, 0, 0, 64 },         { 1000, 0, 0, 64 },
        { 1000, 100, 60, 60 },   { 1000, 300, 100, 63 },   { 1000, 700, 100, 63 },
        { 10000, 800, 100, 8 },  { 10000, 6400, 100, 64 }, { 10000, 6600, 100, 64 },
        { 10000, 9900, 10, 64 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct blocks b = blocks_of(cases[i].all, cases[i].tokens, cases[i].size, false);
        int64_t tokens[ALIBI_EVAL_PARTS] = { 0 }, unit = b.count < 8 ? 1 : b.size, least, most;
        int last = 0;

        assert_int_equal(blocks_parts(&b), cases[i].parts);
        for (int64_t index = 0; index < b.count * b.size; index++) {
            int part = blocks_part(&b, index);

            assert_true(part == last || part == last + 1);
            tokens[last = part]++;
        }
        assert_int_equal(last, blocks_parts(&b) - 1);
        least = most = tokens[0];
        for (int k = 1; k <= last; k++) {
            least = tokens[k] < least ? tokens[k] : least;
            most = tokens[k] > most ? tokens[k] : most;
        }
        assert_true(least > 0 && most - least <= unit);
    }
}

/* ---- windows */

/* Every target of the blocks is scored once and no other, in its place; and with the context that
 * the stride promises, unless the text begins less than that before it. */
static void check_cover(struct blocks b, int64_t length, int64_t stride)
{
    struct windows w = windows_of(b, length, stride);
    int scored[TOKENS_MAX + 1] = { 0 };
    int64_t inputs = length, changes = 0;

    for (int64_t k = 0; k < w.count; k++) {
        struct window at = windows_at(&w, k);

        assert_true(at.start >= 0 && at.first >= 0 && at.first < at.inputs);
        assert_true(at.start + at.inputs <= b.all);
        changes += at.inputs != inputs;
        inputs = at.inputs;
        assert_true(at.first >= length - stride || at.start == 0);
        for (int64_t i = at.first; i < at.inputs; i++) {
            int64_t index = at.index + i - at.first, block = index / b.size;

            scored[at.start + 1 + i]++;
            assert_int_equal(blocks_start(&b, block) + index % b.size, at.start + i);
        }
    }
    assert_true(changes <= 2); /* so batches of equal windows are few */
    for (int64_t t = 0; t <= b.all; t++) {
        int expected = 0;

        for (int64_t k = 0; k < b.count; k++)
            expected += t > blocks_start(&b, k) && t <= blocks_start(&b, k) + b.size;
        assert_int_equal(scored[t], expected);
    }
}

static void every_target_is_scored_exactly_once(void **state)
{
    (void)state;
    for (int64_t length = 1; length <= 12; length++)
        for (int64_t stride = 1; stride <= length; stride++)
            for (int64_t targets = length; targets <= 50; targets++) {
                check_cover(blocks_of(targets, 0, 0, false), length, stride);
                check_cover(blocks_of(targets + 5, targets, targets, false), length, stride);
                check_cover(blocks_of(targets + 5, targets, targets, true), length, stride);
                check_cover(blocks_of(3 * targets + 1, 3 * targets, targets, false), length,
                            stride);
                check_cover(blocks_of(200, 100, targets, false), length, stride);
            }
    check_cover(blocks_of(509, 0, 0, false), 127, 31);
    check_cover(blocks_of(511, 0, 0, false), 128, 128);
}

/* ---- the standard error */

/* Two parts with sums 4 over 2 tokens and 9 over 3: R = 13/5, deviations 4 - 2R = -1.2 and 9 - 3R
 * = 1.2. */
static void the_standard_error_is_that_of_a_ratio_over_parts(void **state)
{
    const struct alibi_eval_part part[] = { { 2, 4 }, { 3, 9 } };

    (void)state;
    assert_close(parts_error(part, 2), sqrt(2 * (1.2 * 1.2 + 1.2 * 1.2)) / 5, 1e-12);
    assert_true(isinf(parts_error(part, 1)));
}

static void the_standard_error_of_a_short_text_is_that_of_its_tokens(void **state)
{
    struct score s = { .blocks = blocks_of(3, 0, 0, false) };
    struct alibi_eval_result r = { 0 };

    (void)state;
    assert_true(score_window(&s, (float[]){ 1, 2, 6 }, &(struct window){ .inputs = 3 }, 0));
    score_result(&s, 3, 1, 3, &r);
    assert_close(r.nll, 3, 1e-12);
    assert_close(r.standard_error, sqrt(14.0 / 2 / 3), 1e-12);
}

/* A text of documents, some harder than others: the loss of a token is 3, plus an offset of its
 * document, plus noise. Random numbers are those of a draw. */
struct synthetic {
    int64_t document; /* tokens */
    double offset, noise;
};

static double loss_at(const struct synthetic *t, uint64_t draw, int64_t token)
{
    return 3 + t->offset * random_normal(draw, 1, (uint64_t)(token / t->document)) +
           t->noise * (random_uniform(draw, 2, (uint64_t)token) - 0.5);
}

/* How often the mean of the process, which is 3, is within 1.96 errors of the measured one; and the
 * same with windows as units. */
static void coverage(const struct synthetic *t, struct blocks b, int64_t length, double *parts,
                     double *by_window)
{
    enum { DRAWS = 600 };
    struct windows w = windows_of(b, length, length);
    float nll[TOKENS_MAX];

    *parts = *by_window = 0;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        struct score s = { .blocks = b };
        struct alibi_eval_result r = { 0 };
        double squares = 0;

        for (int64_t k = 0; k < w.count; k++) {
            struct window at = windows_at(&w, k);
            double sum = 0;

            for (int64_t i = 0; i < at.inputs; i++)
                sum += nll[i] = (float)loss_at(t, draw, at.start + 1 + i);
            assert_true(score_window(&s, nll, &at, 0));
            squares += pow(sum / (double)at.inputs - 3, 2);
        }
        score_result(&s, length, 1, 1, &r);
        *parts += fabs(r.nll - 3) <= 1.96 * r.standard_error;
        *by_window += fabs(r.nll - 3) <= 1.96 * sqrt(squares) / (double)w.count;
    }
    *parts /= DRAWS;
    *by_window /= DRAWS;
}

static void the_error_covers_the_truth_where_neighbours_are_alike(void **state)
{
    static const struct {
        const char *name;
        struct synthetic text;
        int64_t all, tokens, size;
        double most_by_window;
    } cases[] = {
        { "64 blocks of 128, documents of 500", { 500, 0.5, 6 }, 64000, 8192, 128, 0.8 },
        { "512 blocks of 16, documents of 50", { 50, 0.5, 2 }, 16000, 8192, 16, 1 },
        { "16 blocks of 256, documents of 900", { 900, 0.5, 6 }, 64000, 4096, 256, 0.7 },
        { "all of 16000, documents of 50", { 50, 0.5, 2 }, 16000, 0, 0, 0.9 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct blocks b = blocks_of(cases[i].all, cases[i].tokens, cases[i].size, false);
        double parts, by_window;

        coverage(&cases[i].text, b, 16, &parts, &by_window);
        printf("%s: covered %.1f%%, windows of 16 as units %.1f%%\n", cases[i].name, 100 * parts,
               100 * by_window);
        assert_true(parts > 0.91 && parts < 0.98);
        assert_true(by_window < cases[i].most_by_window);
    }
}

/* ---- differences */

static struct alibi_eval_result result_of(const double *nll, int parts)
{
    struct alibi_eval_result r = { .parts = parts, .available = 10 * parts };
    double sum = 0;

    for (int k = 0; k < parts; k++) {
        r.part[k] = (struct alibi_eval_part){ 10, 10 * nll[k] };
        sum += nll[k];
    }
    r.nll = sum / parts;
    r.standard_error = parts_error(r.part, parts);
    return r;
}

/* One is worse by about 0.1 everywhere, which the spread of the text would hide. */
static void a_difference_is_surer_than_its_values(void **state)
{
    struct alibi_eval_result a = result_of((double[]){ 1, 2, 3, 4 }, 4),
                             b = result_of((double[]){ 1.1, 2.12, 3.08, 4.1 }, 4);
    double difference, error;

    (void)state;
    assert_true(alibi_eval_difference(&b, &a, &difference, &error));
    assert_close(difference, 0.1, 1e-12);
    assert_close(error, sqrt(2 * 0.02 * 0.02 / 3 / 4), 1e-12);
    assert_true(a.standard_error > 0.6);
    assert_true(alibi_eval_difference(&a, &b, &difference, &error) && difference < 0);
    assert_true(alibi_eval_difference(&a, &a, &difference, &error) && error == 0);
}

static void other_tokens_have_no_difference(void **state)
{
    struct alibi_eval_result a = result_of((double[]){ 1, 2, 3, 4 }, 4), b = a;
    double difference, error;

    (void)state;
    b.part[2].tokens++;
    assert_false(alibi_eval_difference(&a, &b, &difference, &error));
    assert_true(isnan(difference) && isnan(error));
    b = a;
    b.parts = 3;
    assert_false(alibi_eval_difference(&a, &b, &difference, &error));
    b = a;
    b.start = 5;
    assert_false(alibi_eval_difference(&a, &b, &difference, &error));
    b = a;
    b.blocks = 4; /* as many tokens in each part, from elsewhere */
    assert_false(alibi_eval_difference(&a, &b, &difference, &error));
    b = a;
    a.parts = b.parts = 0; /* read from a file of an older version */
    assert_false(alibi_eval_difference(&a, &b, &difference, &error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_spread_from_the_start_to_the_end),
        cmocka_unit_test(without_a_cap_below_the_text_all_of_it_is_one_block),
        cmocka_unit_test(starts_in_a_text_of_any_size_do_not_overflow),
        cmocka_unit_test(parts_are_neighbours_of_about_equal_size),
        cmocka_unit_test(every_target_is_scored_exactly_once),
        cmocka_unit_test(the_standard_error_is_that_of_a_ratio_over_parts),
        cmocka_unit_test(the_standard_error_of_a_short_text_is_that_of_its_tokens),
        cmocka_unit_test(the_error_covers_the_truth_where_neighbours_are_alike),
        cmocka_unit_test(a_difference_is_surer_than_its_values),
        cmocka_unit_test(other_tokens_have_no_difference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
