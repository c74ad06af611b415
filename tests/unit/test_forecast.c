/* test_forecast.c - how long the work will take: counted in full, said once, when it is known */
#include "check.h"
#include "train/train.h"

struct heard {
    char line[512];
    int lines;
    enum alibi_log_level level;
};

static void hear(void *user, enum alibi_log_level level, const char *line)
{
    struct heard *h = user;

    snprintf(h->line, sizeof h->line, "%s", line);
    h->level = level;
    h->lines++;
}

/* 1000 steps of 512 tokens; validation scores 1024 tokens after every 300 steps and the last. */
static struct alibi_training training(int64_t eval_every)
{
    return (struct alibi_training){ .train_length = 64,
                                    .batch = 4,
                                    .accumulate = 2,
                                    .steps = 1000,
                                    .eval_every = eval_every,
                                    .eval_tokens = 1024 };
}

/* Steps from first to last, each of so many seconds, except that the first takes a minute. */
static void take(struct forecast *f, const struct alibi_training *t, int first, int last,
                 double seconds, struct heard *heard)
{
    struct alibi_call call = { .user = heard, .log = hear };
    alibi_corpus *corpus = NULL;

    assert_ok(alibi_corpus_builtin(&corpus, 1, 100000, NULL, NULL));
    for (int step = first; step <= last; step++)
        forecast_step(f, corpus, t, step, step == first ? 60 : seconds, &call);
    alibi_corpus_free(corpus);
}

static void a_run_counts_its_steps_and_validations_without_the_slow_first_step(void **state)
{
    struct alibi_training t = training(300);
    struct forecast f = { .models = 1 };
    struct heard heard = { .lines = 0 };

    (void)state;
    take(&f, &t, 1, 4, 1, &heard);
    assert_int_equal(heard.lines, 1);
    assert_int_equal(heard.level, ALIBI_NOTE);
    assert_non_null(strstr(heard.line, "996 steps take about 17 minutes"));
    assert_non_null(strstr(heard.line, "1 s each"));
    /* 4 validations of 1024 tokens: 8 steps' worth, at a third of the price */
    assert_non_null(strstr(heard.line, "validation 3 s"));
    take(&f, &t, 5, 20, 1, &heard);
    assert_int_equal(heard.lines, 1);
}

static void nothing_is_said_before_it_is_known_or_if_it_is_short(void **state)
{
    struct alibi_training t = training(0);
    struct forecast quick = { .models = 1 }, waiting = { .models = 1 }, slow = { .models = 1 };
    struct heard heard = { .lines = 0 };

    (void)state;
    take(&quick, &t, 1, 1000, 0.01, &heard);
    assert_true(quick.said);
    take(&waiting, &t, 1, 3, 1, &heard);
    assert_false(waiting.said);
    assert_int_equal(heard.lines, 0);
    take(&slow, &t, 1, 2, 6, &heard);
    assert_int_equal(heard.lines, 1);
}

static void more_than_an_hour_is_a_warning_with_the_steps_of_an_hour(void **state)
{
    struct alibi_training t = training(0);
    struct forecast f = { .models = 1 };
    struct heard heard = { .lines = 0 };

    (void)state;
    take(&f, &t, 1, 2, 36, &heard);
    assert_int_equal(heard.level, ALIBI_WARNING);
    assert_non_null(strstr(heard.line, "998 steps take about 10.0 hours"));
    assert_non_null(strstr(heard.line, "--steps 102 takes an hour"));
}

static void several_models_count_those_to_come_and_their_tests(void **state)
{
    struct alibi_training t = training(500);
    struct forecast f = {
        .models = 3, .train_tokens = 2 * 1000 * 512, .valid_tokens = 2 * 2048, .test_tokens = 300e3
    };
    struct heard heard = { .lines = 0 };

    (void)state;
    take(&f, &t, 901, 904, 1, &heard);
    /* 96 + 2000 steps; 5 validations of 2 steps' tokens; 586 steps' tokens */
    assert_non_null(strstr(heard.line, "3 models take about 35 minutes to train, 3 s to validate "
                                       "and 5 minutes to test"));
}

/* The first model has short steps, and not enough of them to know. */
static void a_model_is_not_judged_by_the_steps_of_another(void **state)
{
    struct alibi_training t = training(0);
    struct forecast f = { .models = 2 };
    struct heard heard = { .lines = 0 };

    (void)state;
    take(&f, &t, 1, 16, 0.1, &heard);
    assert_false(f.said);
    forecast_begin(&f);
    take(&f, &t, 1, 2, 6, &heard);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.line, "2 models take about 1.7 hours"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_counts_its_steps_and_validations_without_the_slow_first_step),
        cmocka_unit_test(nothing_is_said_before_it_is_known_or_if_it_is_short),
        cmocka_unit_test(more_than_an_hour_is_a_warning_with_the_steps_of_an_hour),
        cmocka_unit_test(several_models_count_those_to_come_and_their_tests),
        cmocka_unit_test(a_model_is_not_judged_by_the_steps_of_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
