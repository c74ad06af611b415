/* test_schedule.c - the learning rate at its corners and in between */
#include "check.h"
#include "train/train.h"

static struct alibi_training schedule(int kind)
{
    return (struct alibi_training){
        .schedule = kind, .steps = 110, .warmup = 10, .lr = 0.5, .min_lr = 0.1, .decay_share = 0.2
    };
}

static void warm_up_rises_in_equal_steps_to_lr(void **state)
{
    (void)state;
    for (int kind = ALIBI_COSINE; kind <= ALIBI_WSD; kind++) {
        struct alibi_training t = schedule(kind);
        for (int step = 1; step <= 10; step++)
            assert_close(schedule_lr(&t, step), 0.05 * step, 1e-15);
        assert_close(schedule_lr(&t, 11), 0.5, 1e-15);
    }
}

static void cosine_is_half_way_down_in_the_middle(void **state)
{
    struct alibi_training t = schedule(ALIBI_COSINE);

    (void)state;
    assert_close(schedule_lr(&t, 11 + 25), 0.1 + 0.4 * (1 + sqrt(0.5)) / 2, 1e-15);
    assert_close(schedule_lr(&t, 11 + 50), 0.3, 1e-15);
    assert_close(schedule_lr(&t, 11 + 75), 0.1 + 0.4 * (1 - sqrt(0.5)) / 2, 1e-15);
    assert_close(schedule_lr(&t, 11 + 100), 0.1, 1e-15);
}

static void linear_falls_in_equal_steps_to_min_lr(void **state)
{
    struct alibi_training t = schedule(ALIBI_LINEAR);

    (void)state;
    for (int i = 0; i <= 100; i++)
        assert_close(schedule_lr(&t, 11 + i), 0.5 - 0.004 * i, 1e-15);
}

static void constant_stays(void **state)
{
    struct alibi_training t = schedule(ALIBI_CONSTANT);

    (void)state;
    for (int step = 10; step <= 110; step++)
        assert_close(schedule_lr(&t, step), 0.5, 0);
}

static void wsd_stays_and_falls_over_the_last_share(void **state)
{
    struct alibi_training t = schedule(ALIBI_WSD);

    (void)state;
    for (int step = 10; step <= 110 - 22 + 1; step++)
        assert_close(schedule_lr(&t, step), 0.5, 0);
    assert_close(schedule_lr(&t, 110 - 22 + 1 + 11), 0.3, 1e-15);
    assert_close(schedule_lr(&t, 111), 0.1, 1e-15);
}

static void wsd_without_a_share_never_falls(void **state)
{
    struct alibi_training t = schedule(ALIBI_WSD);

    (void)state;
    t.decay_share = 0;
    assert_close(schedule_lr(&t, 110), 0.5, 0);
}

static void warm_up_goes_before_a_fall_that_would_overlap_it(void **state)
{
    struct alibi_training t = schedule(ALIBI_WSD);

    (void)state;
    t.decay_share = 1;
    assert_close(schedule_lr(&t, 10), 0.5, 0);
    assert_close(schedule_lr(&t, 11), 0.5, 0);
    assert_close(schedule_lr(&t, 61), 0.3, 1e-15);
}

static void the_first_step_without_warm_up_has_the_full_rate(void **state)
{
    (void)state;
    for (int kind = ALIBI_COSINE; kind <= ALIBI_WSD; kind++) {
        struct alibi_training t = { .schedule = kind, .steps = 1, .lr = 0.5 };
        assert_close(schedule_lr(&t, 1), 0.5, 0);
    }
}

static void no_step_is_spent_on_a_rate_of_zero(void **state)
{
    (void)state;
    for (int kind = ALIBI_COSINE; kind <= ALIBI_WSD; kind++) {
        struct alibi_training t = {
            .schedule = kind, .steps = 1000000000, .warmup = 7, .lr = 1e-3, .decay_share = 0.5
        };
        const int64_t steps[] = { 1, 7, 8, 500000000, 999999998, 999999999, 1000000000 };
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            assert_true(schedule_lr(&t, steps[i]) > 0);
    }
}

static void rates_never_rise_after_warm_up(void **state)
{
    (void)state;
    for (int kind = ALIBI_COSINE; kind <= ALIBI_WSD; kind++) {
        struct alibi_training t = schedule(kind);
        for (int step = 11; step <= 110; step++)
            assert_true(schedule_lr(&t, step) <= schedule_lr(&t, step - 1) &&
                        schedule_lr(&t, step) >= t.min_lr);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_rises_in_equal_steps_to_lr),
        cmocka_unit_test(cosine_is_half_way_down_in_the_middle),
        cmocka_unit_test(linear_falls_in_equal_steps_to_min_lr),
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(wsd_stays_and_falls_over_the_last_share),
        cmocka_unit_test(wsd_without_a_share_never_falls),
        cmocka_unit_test(warm_up_goes_before_a_fall_that_would_overlap_it),
        cmocka_unit_test(the_first_step_without_warm_up_has_the_full_rate),
        cmocka_unit_test(no_step_is_spent_on_a_rate_of_zero),
        cmocka_unit_test(rates_never_rise_after_warm_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
