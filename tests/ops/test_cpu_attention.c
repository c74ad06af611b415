/* test_cpu_attention.c - attention of the CPU backend at its numeric limits, and out of memory; its
 * shapes and biases are cases of test_cases.c */
#include "ops/solve.h"

/* A case of attention with Lq = Lk = L and one head. option as in cases.c: 0 no bias, 1 slopes */
static struct op_case attention_case(int64_t L, int64_t D, int option)
{
    struct op_case c;

    for (int o = 0; o < operation_count; o++)
        if (strcmp(operations[o].name, "attention") == 0)
            assert_true(case_make(&c, &operations[o], (int64_t[CASE_SIZES]){ 1, L, L, 1, 1, D },
                                  option, CASE_GAP, DTYPE_F32));
    return c;
}

static double *numbers_of(const struct op_case *c, const struct numbers *n, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->operands[i].name, name) == 0)
            return n->of[i];
    fail_msg("no operand '%s'", name);
    return NULL;
}

static void check_forward(const struct op_case *c, struct numbers *before)
{
    struct numbers expected = solve_exactly(c, FORWARD, before);

    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        struct device dev = { .ops = &ops };
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        struct numbers got = run(c, FORWARD, &dev, before);
        assert_true(report(c, FORWARD, cpu_set_name(s),
                           largest_error(c, FORWARD, before, &got, &expected).error, 2e-6, NULL));
        numbers_free(&got);
    }
    numbers_free(&expected);
    numbers_free(before);
}

/* Whole numbers, so that scores in the thousands have no rounding of their own: only the softmax is
 * tested. */
static void scores_too_large_for_exp_give_the_same_softmax(void **state)
{
    enum { L = 150, D = 4 };
    struct op_case c = attention_case(L, D, 0);
    struct numbers before = prepare(&c, FORWARD);
    int64_t count = tensor_count(c.operands[0].shape);

    (void)state;
    for (int64_t i = 0; i < count; i++)
        if (i % (count / L) < D) { /* within the view */
            numbers_of(&c, &before, "q")[i] = round(40.0 * numbers_of(&c, &before, "q")[i]);
            numbers_of(&c, &before, "k")[i] = round(40.0 * numbers_of(&c, &before, "k")[i]);
        }
    check_forward(&c, &before);
}

static void far_keys_underflow_to_nothing_under_a_steep_slope(void **state)
{
    struct op_case c = attention_case(1500, 4, 1);
    struct numbers before = prepare(&c, FORWARD);

    (void)state;
    numbers_of(&c, &before, "bias")[0] = 0.5;
    check_forward(&c, &before);
}

static void every_row_that_sees_a_nan_key_shows_it(void **state)
{
    struct op_case c = attention_case(70, 8, 1);
    struct numbers before = prepare(&c, FORWARD);
    int64_t row = c.operands[0].shape.shape[1];

    (void)state;
    numbers_of(&c, &before, "k")[30 * row] = (double)NAN;
    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        struct device dev = { .ops = &ops };
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        struct numbers got = run(&c, FORWARD, &dev, &before);
        for (int64_t i = 30; i < 70; i++)
            assert_true(isnan(numbers_of(&c, &got, "args.lse")[i]));
        numbers_free(&got);
    }
    numbers_free(&before);
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct op_case c = attention_case(70, 8, 1);
    struct device dev = { .ops = ops_cpu() };
    struct tensor t[CASE_OPERANDS];

    (void)state;
    for (int i = 0; i < c.count; i++) {
        t[i] = c.operands[i].shape;
        assert_ok(new_array(&t[i].data, tensor_count(t[i]), 4, true, "test"));
    }
    for (int direction = FORWARD; direction <= BACKWARD; direction++)
        for (int n = 1; n <= direction + 1; n++) {
            size_t before = alibi_memory_now();
            assert_ok(alibi_inject_fault("memory", n));
            assert_fails(case_run(&c, direction, &dev, t), ALIBI_MEMORY, "attention");
            assert_ok(alibi_inject_fault("memory", 0));
            assert_int_equal(alibi_memory_now(), before);
        }
    for (int i = 0; i < c.count; i++)
        mem_free(t[i].data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_too_large_for_exp_give_the_same_softmax),
        cmocka_unit_test(far_keys_underflow_to_nothing_under_a_steep_slope),
        cmocka_unit_test(every_row_that_sees_a_nan_key_shows_it),
        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
