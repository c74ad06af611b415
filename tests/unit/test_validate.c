/* test_validate.c - validation while a model trains, its best checkpoint, and runs that are
 * extended */
#include "training.h"

static int set_up(void **state)
{
    struct site *p = new_site(12, 5);

    p->training.eval_every = 4;
    p->training.eval_tokens = 100;
    *state = p;
    return 0;
}

static const char *named(const struct site *p, const char *name)
{
    return path_at("%s/%s", p->folder, name);
}

/* The validations that a log has, and the lowest loss among them. */
static int count_validations(const char *run, double *lowest)
{
    size_t bytes;
    char *log = read_file(path_at("%s/log.jsonl", run), &bytes), *at = log;
    int count = 0;

    *lowest = INFINITY;
    while ((at = strstr(at, "\"valid_loss\": ")) != NULL) {
        at += strlen("\"valid_loss\": ");
        *lowest = fmin(*lowest, strtod(at, NULL));
        count++;
    }
    free(log);
    return count;
}

static void a_validation_is_the_evaluation_of_the_model(void **state)
{
    struct site *p = *state;
    struct alibi_eval eval = { .length = p->training.train_length, .tokens = 100 };
    struct alibi_eval_result result;
    alibi_model *m;
    double lowest;

    p->training.steps = 10;
    assert_ok(train_at(p, p->run, false));
    assert_int_equal(p->result.valid_step, 10); /* the last step, besides 4 and 8 */
    assert_int_equal(count_validations(p->run, &lowest), 3);
    m = open_model_at(p->run);
    assert_ok(alibi_evaluate(m, p->corpus, ALIBI_VALID, &eval, &result, test_call()));
    assert_close(p->result.valid_loss, result.nll, 0);
    assert_int_equal(p->result.valid_tokens, result.tokens);
    assert_close(p->result.best_loss, lowest, 0);
    alibi_model_free(m);
}

static void a_run_that_validates_resumes_to_the_same_bytes(void **state)
{
    struct site *p = *state;

    p->training.keep_best = true;
    assert_ok(train_at(p, p->whole, false));
    for (int64_t k = 1; k < 12; k++) {
        const char *run = path_at("%s/stopped-%lld", p->folder, (long long)k);
        listen_to(&p->listener, k);
        assert_fails(train_at(p, run, false), ALIBI_INTERRUPTED, "saved");
        listen_to(&p->listener, 0);
        assert_ok(train_at(p, run, true));
        assert_same_run(p->whole, run, 12);
    }
}

/* In induction only the answers are targets, and the loss of a step is their mean. */
static void a_run_on_tasks_resumes_to_the_same_bytes(void **state)
{
    struct site *p = *state;
    const double shares[] = { 1, 1, 2 };
    alibi_corpus *parts[3] = { p->corpus }, *mix = NULL;

    assert_ok(alibi_corpus_task(&parts[1], "latest", NULL));
    assert_ok(alibi_corpus_task(&parts[2], "induction", NULL));
    assert_ok(alibi_corpus_mix(&mix, parts, shares, 3));
    p->corpus = mix;
    assert_ok(train_at(p, p->whole, false));
    assert_int_equal(p->result.valid_texts, 3);
    for (int i = 1; i < 3; i++) /* 100 / 8 windows, of 1 or 2 answer tokens each */
        assert_int_equal(p->result.valid_text[i].tokens, 12 * i);
    assert_true(p->result.loss > 4 && p->result.loss < 7); /* about log(257), masked or not */
    for (int64_t k = 1; k < 12; k += 3) {
        const char *run = path_at("%s/stopped-%lld", p->folder, (long long)k);
        listen_to(&p->listener, k);
        assert_fails(train_at(p, run, false), ALIBI_INTERRUPTED, "saved");
        listen_to(&p->listener, 0);
        assert_ok(train_at(p, run, true));
        assert_same_run(p->whole, run, 12);
    }
}

/* The request is there before the first step: every step is taken, and its validation is not. */
static void a_validation_that_was_stopped_is_made_good(void **state)
{
    struct site *p = *state;
    double lowest;

    p->training.eval_every = 1;
    p->training.steps = 3;
    assert_ok(train_at(p, p->whole, false));
    for (int64_t step = 1; step < 3; step++) {
        listen_to(&p->listener, 0);
        alibi_stop_request(&p->listener.stop);
        assert_fails(train_at(p, p->run, step > 1), ALIBI_INTERRUPTED, "step 1");
        assert_int_equal(count_validations(p->run, &lowest), 0);
    }
    listen_to(&p->listener, 0);
    assert_ok(train_at(p, p->run, true));
    assert_int_equal(count_validations(p->run, &lowest), 3);
    assert_same_run(p->whole, p->run, 3);
}

/* The rate rises to one that no model can bear: the loss falls first and then goes up. */
static void the_best_checkpoint_stays_and_opens_by_its_name(void **state)
{
    struct site *p = *state;
    struct alibi_eval eval = { .length = p->training.train_length, .tokens = 100 };
    struct alibi_eval_result result;
    alibi_model *m;
    double lowest;

    p->training.steps = 40;
    p->training.eval_every = 1;
    p->training.lr = 4;
    p->training.warmup = 40;
    p->training.keep_best = true;
    assert_ok(train_at(p, p->run, false));
    assert_true(p->result.best_step < 35); /* rotation would have dropped it */
    assert_int_equal(count_validations(p->run, &lowest), 40);
    assert_close(p->result.best_loss, lowest, 0);
    m = open_model_at(path_at("%s/best", p->run));
    assert_ok(alibi_evaluate(m, p->corpus, ALIBI_VALID, &eval, &result, test_call()));
    assert_close(result.nll, lowest, 0);
    alibi_model_free(m);
}

static void a_run_without_a_best_checkpoint_says_how_to_keep_it(void **state)
{
    struct site *p = *state;
    alibi_model *m = NULL;

    p->training.steps = 2;
    p->training.eval_every = 0;
    assert_ok(train_at(p, p->run, false));
    assert_int_equal(p->result.valid_step, 0);
    assert_fails(alibi_model_open(&m, test_device(), path_at("%s/best", p->run), NULL),
                 ALIBI_BAD_INPUT, "--keep-best");
}

static void a_split_without_a_window_is_noted(void **state)
{
    struct site *p = *state;

    p->training.steps = 1;
    p->training.batch = 1;
    p->training.train_length = corpus_span(p->corpus, ALIBI_VALID).count;
    assert_ok(train_at(p, p->run, false));
    assert_int_equal(p->result.valid_step, 0);
    assert_non_null(strstr(p->listener.log, "no validation: "));
}

/* 6 steps, then 12: in one call, or stopped and resumed. The schedule is that of 12 from step 7. */
static void an_extended_run_is_a_function_of_its_commands(void **state)
{
    struct site *p = *state;

    for (int i = 0; i < 2; i++) {
        const char *run = named(p, i ? "run" : "whole");
        p->training.steps = 6;
        listen_to(&p->listener, 0);
        assert_ok(train_at(p, run, false));
        p->training.steps = 12;
        listen_to(&p->listener, i ? 9 : 0);
        if (i)
            assert_fails(train_at(p, run, true), ALIBI_INTERRUPTED, "step 9");
        else
            assert_ok(train_at(p, run, true));
        assert_non_null(strstr(p->listener.log, "steps 12 instead of 6: the learning rate, 0.0025 "
                                                "at step 6, continues with 0.00"));
        listen_to(&p->listener, 0);
        assert_ok(train_at(p, run, true));
    }
    assert_same_run(p->whole, p->run, 12);
    p->training.steps = 11;
    assert_fails(train_at(p, p->run, true), ALIBI_BAD_INPUT, "has done 12 steps");
}

#define RUN_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, drop_site)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_TEST(a_validation_is_the_evaluation_of_the_model),
        RUN_TEST(a_run_that_validates_resumes_to_the_same_bytes),
        RUN_TEST(a_run_on_tasks_resumes_to_the_same_bytes),
        RUN_TEST(a_validation_that_was_stopped_is_made_good),
        RUN_TEST(the_best_checkpoint_stays_and_opens_by_its_name),
        RUN_TEST(a_run_without_a_best_checkpoint_says_how_to_keep_it),
        RUN_TEST(a_split_without_a_window_is_noted),
        RUN_TEST(an_extended_run_is_a_function_of_its_commands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
