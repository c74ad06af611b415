/* Sessions: several sequences in one pass, scores, cancelling, and threads that share models. On
 * the CPU, then on the GPU if there is one. */
#include <omp.h>
#include <pthread.h>

#include "eval/eval.h"
#include "ops/gpu.h"
#include "training.h"
#include "passes.h"

enum { V = 257, SEQUENCES = 4, TOKENS = 24 };

static alibi_device *device;

static struct alibi_model new_model(const char *position, uint64_t seed)
{
    struct alibi_config c = tiny_bytes_config(position, 2, 64);
    struct alibi_model m = { 0 };

    c.max_length = 512;
    assert_ok(model_new(&m.model, &c, &device->device, DTYPE_F32, false));
    randomise(m.model, seed, 0.3);
    assert_ok(tokenizer_new_bytes(&m.tokenizer));
    return m;
}

static void free_model(struct alibi_model *m)
{
    model_free(m->model);
    alibi_tokenizer_free(m->tokenizer);
}

static void draw(int32_t *tokens, int64_t count, uint64_t stream)
{
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(3, stream, (uint64_t)i, V);
}

static alibi_session *new_session(const struct alibi_model *m, int64_t sequences)
{
    alibi_session *s = NULL;

    assert_ok(
        alibi_session_new(&s, m, &(struct alibi_session_options){ .sequences = sequences }, NULL));
    return s;
}

/* ---- several sequences */

static const int64_t lengths[SEQUENCES] = { 3, 70, 1, 33 };

/* The tokens that sequence k gets, as sequence `at` of a session; one step at a time. */
static void generate_alone(const struct alibi_model *m, int k, int32_t *out)
{
    const struct alibi_sampling sampling = { .temperature = 1, .top_p = 1, .seed = (uint64_t)k };
    alibi_session *s = new_session(m, 1);
    int32_t prompt[128];

    draw(prompt, lengths[k], (uint64_t)k);
    assert_ok(alibi_session_feed(s, 0, prompt, lengths[k]));
    for (int i = 0; i < TOKENS; i++) {
        assert_ok(alibi_session_sample(s, 0, &sampling, (uint64_t)i, &out[i]));
        assert_ok(alibi_session_step(s, &(int64_t){ 0 }, &out[i], 1));
    }
    alibi_session_free(s);
}

static void sequences_get_the_tokens_they_get_alone_for_every_method(void **state)
{
    (void)state;
    for (int i = 0; alibi_position_name(i, NULL); i++) {
        struct alibi_model m = new_model(alibi_position_name(i, NULL), 9);
        alibi_session *s = new_session(&m, SEQUENCES);
        int32_t alone[SEQUENCES][TOKENS], prompt[128], next[SEQUENCES];
        int64_t all[SEQUENCES];

        for (int k = 0; k < SEQUENCES; k++) {
            generate_alone(&m, k, alone[k]);
            draw(prompt, lengths[k], (uint64_t)k);
            assert_ok(alibi_session_feed(s, k, prompt, lengths[k]));
            all[k] = k;
        }
        for (int t = 0; t < TOKENS; t++) {
            for (int k = 0; k < SEQUENCES; k++) {
                struct alibi_sampling sampling = { 1, 0, 1, (uint64_t)k };

                assert_ok(alibi_session_sample(s, k, &sampling, (uint64_t)t, &next[k]));
                assert_int_equal(next[k], alone[k][t]);
            }
            assert_ok(alibi_session_step(s, all, next, SEQUENCES));
        }
        for (int k = 0; k < SEQUENCES; k++)
            assert_int_equal(alibi_session_length(s, k), lengths[k] + TOKENS);
        alibi_session_free(s);
        free_model(&m);
    }
}

static void logits_of_all_tokens_are_those_after_each(void **state)
{
    enum { COUNT = 70 };
    struct alibi_model m = new_model("alibi", 9);
    alibi_session *all = new_session(&m, 1), *each = new_session(&m, 1);
    static float logits[COUNT * V];
    int32_t tokens[COUNT];

    (void)state;
    draw(tokens, COUNT, 5);
    assert_ok(alibi_session_logits(all, 0, tokens, COUNT, logits));
    assert_int_equal(alibi_session_length(all, 0), COUNT);
    for (int64_t i = 0; i < COUNT; i++) {
        const float *after;

        assert_ok(alibi_session_feed(each, 0, &tokens[i], 1));
        after = alibi_session_view_logits(each, 0);
        for (int64_t v = 0; v < V; v++)
            assert_float_equal(logits[i * V + v], after[v], 1e-4);
    }
    assert_int_equal(alibi_session_logits(all, 1, tokens, COUNT, logits), ALIBI_USAGE);
    alibi_session_free(all);
    alibi_session_free(each);
    free_model(&m);
}

static void a_cleared_sequence_starts_again(void **state)
{
    struct alibi_model m = new_model("rotary", 9);
    alibi_session *s = new_session(&m, 2);
    int32_t tokens[90];
    float first[V];

    (void)state;
    draw(tokens, 90, 1);
    assert_null(alibi_session_view_logits(s, 1));
    assert_ok(alibi_session_feed(s, 0, tokens, 90));
    assert_ok(alibi_session_feed(s, 1, tokens, 50));
    memcpy(first, alibi_session_view_logits(s, 1), sizeof first);
    alibi_session_clear(s, 1);
    assert_null(alibi_session_view_logits(s, 1));
    assert_int_equal(alibi_session_length(s, 1), 0);
    assert_int_equal(alibi_session_length(s, 0), 90);
    assert_ok(alibi_session_feed(s, 1, tokens, 50));
    assert_memory_equal(first, alibi_session_view_logits(s, 1), sizeof first);
    alibi_session_free(s);
    free_model(&m);
}

/* ---- failures while logits are read */

static alibi_status no_download(struct device *dev, void *host, struct tensor src)
{
    (void)dev, (void)host, (void)src;
    return fail(ALIBI_IO, "no download");
}

static const struct ops *break_downloads(void)
{
    static struct ops broken;
    const struct ops *whole = device->device.ops;

    broken = *whole;
    broken.download = no_download;
    device->device.ops = &broken;
    return whole;
}

static void a_failed_step_changes_no_sequence(void **state)
{
    static const int64_t both[2] = { 1, 0 };
    struct alibi_model m = new_model("fox", 9);
    alibi_session *s = new_session(&m, 2), *other = new_session(&m, 2);
    int32_t tokens[90], next[2] = { 7, 8 };
    float before[V];

    (void)state;
    draw(tokens, 90, 1);
    for (int k = 0; k < 2; k++) {
        assert_ok(alibi_session_feed(s, k, tokens, 63 + k));
        assert_ok(alibi_session_feed(other, k, tokens, 63 + k));
    }
    memcpy(before, alibi_session_view_logits(s, 1), sizeof before);
    for (int i = 0; i < 2; i++) {
        const struct ops *whole = break_downloads();
        int32_t wrong[2] = { 100 + i, 200 + i };

        assert_fails(alibi_session_step(s, both, wrong, 2), ALIBI_IO, "no download");
        device->device.ops = whole;
        assert_int_equal(alibi_session_length(s, 0), 63);
        assert_int_equal(alibi_session_length(s, 1), 64);
        assert_memory_equal(before, alibi_session_view_logits(s, 1), sizeof before);
    }
    assert_ok(alibi_session_step(s, both, next, 2));
    assert_ok(alibi_session_step(other, both, next, 2));
    for (int k = 0; k < 2; k++)
        assert_memory_equal(alibi_session_view_logits(s, k), alibi_session_view_logits(other, k),
                            sizeof before);
    alibi_session_free(s);
    alibi_session_free(other);
    free_model(&m);
}

/* The tokens are in the cache then; the logits are still those before them. */
static void after_a_failed_score_there_are_no_logits_to_sample_from(void **state)
{
    struct alibi_model m = new_model("alibi", 9);
    alibi_session *s = new_session(&m, 1);
    const struct alibi_sampling sampling = { .top_p = 1 };
    const struct ops *whole;
    int32_t tokens[5], token;
    double logprobs[5];

    (void)state;
    draw(tokens, 5, 1);
    assert_ok(alibi_session_feed(s, 0, tokens, 5));
    whole = break_downloads();
    assert_fails(alibi_session_score(s, 0, tokens, 5, logprobs, 0, NULL), ALIBI_IO, "no download");
    device->device.ops = whole;
    assert_int_equal(alibi_session_length(s, 0), 10);
    assert_null(alibi_session_view_logits(s, 0));
    assert_fails(alibi_session_sample(s, 0, &sampling, 0, &token), ALIBI_USAGE, "feed it first");
    alibi_session_free(s);
    free_model(&m);
}

static void what_a_session_does_not_have_is_named(void **state)
{
    struct alibi_model m = new_model("alibi", 9);
    alibi_session *s = new_session(&m, 2), *none = NULL;
    const struct alibi_sampling sampling = { .top_p = 1 };
    int32_t token = 5, outside = V;

    (void)state;
    assert_fails(alibi_session_feed(s, 2, &token, 1), ALIBI_USAGE, "no sequence 2");
    assert_fails(alibi_session_feed(s, 0, &outside, 1), ALIBI_BAD_INPUT, "token 257");
    assert_fails(alibi_session_sample(s, 1, &sampling, 0, &token), ALIBI_USAGE, "sequence 1");
    assert_fails(alibi_session_step(s, (int64_t[]){ 1, 1 }, (int32_t[]){ 1, 2 }, 2), ALIBI_USAGE,
                 "sequence 1 is in the step twice");
    assert_fails(alibi_session_step(s, (int64_t[]){ 0 }, &outside, 1), ALIBI_BAD_INPUT, "257");
    assert_int_equal(alibi_session_length(s, 0), 0);
    assert_fails(alibi_session_new(&none, &m, &(struct alibi_session_options){ -1, 0 }, NULL),
                 ALIBI_USAGE, "-1 sequences");
    assert_fails(alibi_session_new(&none, &m, &(struct alibi_session_options){ 1, 5 }, NULL),
                 ALIBI_USAGE, "window score 5");
    alibi_session_free(s);
    free_model(&m);
}

/* A model with more rows of logits than the tokenizer has ids, all of them likelier. */
static void padding_ids_are_never_chosen(void **state)
{
    struct alibi_config c = tiny_bytes_config("none", 1, 64);
    struct alibi_model m = { 0 };
    struct device *dev = &test_device()->device;
    alibi_session *s = NULL;
    struct alibi_choice choices[3];
    int32_t token = 1;
    double logprob;

    (void)state;
    c.vocab = 320;
    assert_ok(model_new(&m.model, &c, dev, DTYPE_F32, false));
    for (int i = 0; i < m.model->count; i++)
        assert_ok(dev->ops->fill(dev, m.model->parameters[i].value, 0.0));
    assert_ok(dev->ops->fill(dev, m.model->parameters[m.model->norm_bias].value, 1.0));
    assert_ok(dev->ops->fill(dev, tensor_rows(m.model->parameters[m.model->head].value, V, 320 - V),
                             1.0));
    assert_ok(tokenizer_new_bytes(&m.tokenizer));
    s = new_session(&m, 1);
    assert_ok(alibi_session_feed(s, 0, &token, 1));
    for (uint64_t i = 0; i < 200; i++) {
        struct alibi_sampling sampling = { .temperature = (double)(i % 2), .top_p = 1, .seed = i };

        assert_ok(alibi_session_sample(s, 0, &sampling, i, &token));
        assert_true(token < V);
    }
    assert_ok(alibi_session_score(s, 0, &token, 1, &logprob, 3, choices));
    assert_int_equal(choices[0].id, 0);
    alibi_session_free(s);
    free_model(&m);
}

/* ---- scores */

static void scores_are_the_losses_of_the_evaluation(void **state)
{
    enum { L = 700 }; /* more than a chunk of prefill */
    struct alibi_model m = new_model("alibi", 9);
    alibi_session *s = new_session(&m, 1);
    int32_t tokens[L];
    float nll[L];
    double logprobs[L];
    struct alibi_choice choices[L][2];

    (void)state;
    draw(tokens, L, 2);
    assert_ok(once_loss(m.model, tokens, tokens + 1, 1, L - 1, nll));
    assert_ok(alibi_session_score(s, 0, tokens, 100, logprobs, 2, &choices[0][0]));
    assert_ok(
        alibi_session_score(s, 0, tokens + 100, L - 100, logprobs + 100, 2, &choices[100][0]));
    assert_true(isnan(logprobs[0]) && choices[0][0].id == -1);
    for (int i = 1; i < L; i++) {
        assert_close(logprobs[i], -nll[i - 1], 2e-5);
        assert_true(choices[i][0].logprob >= choices[i][1].logprob);
        assert_true(choices[i][0].logprob >= logprobs[i] || choices[i][0].id == tokens[i]);
    }
    alibi_session_free(s);
    free_model(&m);
}

static void the_score_of_a_text_follows_its_prompt(void **state)
{
    struct alibi_model m = new_model("alibi", 9);
    struct alibi_scores *whole = NULL, *part = NULL;
    double sum = 0;

    (void)state;
    assert_ok(alibi_score(&whole, &m, NULL, 0, "a key and a boat", 16, 3, NULL));
    assert_ok(alibi_score(&part, &m, "a key", 5, " and a boat", 11, 0, NULL));
    assert_int_equal(whole->count, 16);
    assert_int_equal(whole->scored, 16);
    assert_int_equal(part->count, 11);
    assert_null(part->choices);
    for (int64_t i = 5; i < 16; i++)
        sum += whole->logprobs[i];
    /* The whole text is read after an end token, the part is not. */
    assert_true(part->logprob < 0 && fabs(part->logprob - sum) > 1e-9);
    assert_int_equal(whole->ids[0], 'a');
    assert_fails(alibi_score(&part, &m, NULL, 0, "", 0, 0, NULL), ALIBI_BAD_INPUT, "no text");
    assert_fails(alibi_score(&part, &m, NULL, 0, "\xff", 1, 0, NULL), ALIBI_BAD_INPUT, "UTF-8");
    alibi_scores_free(whole);
    alibi_scores_free(part);
    free_model(&m);
}

struct reports {
    int count;
    int64_t done, total;
};

static void note_report(void *user, const struct alibi_progress *p)
{
    struct reports *r = user;

    assert_true(p->done > r->done && p->done <= p->total);
    *r = (struct reports){ r->count + 1, p->done, p->total };
}

static void scoring_a_long_text_reports_its_progress(void **state)
{
    enum { BYTES = 9000, PROMPT = 100 };
    static char text[BYTES];
    struct alibi_model m = new_model("alibi", 9);
    struct alibi_scores *scores = NULL;
    struct reports reports = { 0 };
    const struct alibi_call call = { .user = &reports, .progress = note_report };

    (void)state;
    memset(text, 'a', sizeof text);
    assert_ok(alibi_score(&scores, &m, text, PROMPT, text, BYTES, 0, &call));
    assert_true(reports.count >= 3); /* the prompt, and two pieces of the text or more */
    assert_int_equal(reports.done, PROMPT + BYTES);
    assert_int_equal(reports.total, PROMPT + BYTES);
    assert_int_equal(scores->scored, BYTES);
    alibi_scores_free(scores);
    free_model(&m);
}

/* ---- several prompts */

struct texts {
    char at[3][256];
};

static bool keep(void *user, int which, const char *text, size_t bytes)
{
    struct texts *t = user;

    strncat(t->at[which], text, bytes);
    return true;
}

static void prompts_are_continued_together_as_each_alone(void **state)
{
    static const char *const prompts[3] = { "The clock", "", "A much longer prompt than the two" };
    struct alibi_model m = new_model("t5", 9);
    struct alibi_generation how = { 40, { .temperature = 0.8, .top_p = 1, .seed = 5 }, 0 };
    struct alibi_prompt all[3];
    struct texts together = { 0 }, alone = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++)
        all[i] = (struct alibi_prompt){ prompts[i], strlen(prompts[i]) };
    assert_ok(alibi_generate(&m, all, 3, &how, keep, &together, NULL));
    for (int i = 0; i < 3; i++) {
        struct texts one = { 0 };

        how.sampling.seed = 5 + (uint64_t)i;
        assert_ok(alibi_generate(&m, &all[i], 1, &how, keep, &one, NULL));
        memcpy(alone.at[i], one.at[0], sizeof alone.at[i]);
        assert_string_equal(together.at[i], alone.at[i]);
        assert_true(strlen(alone.at[i]) > 0);
    }
    free_model(&m);
}

/* ---- cancelling and threads */

static void a_cancelled_session_stays_usable_and_others_run_on(void **state)
{
    struct alibi_model m = new_model("alibi", 9);
    alibi_session *s = new_session(&m, 1), *other = new_session(&m, 1);
    int32_t tokens[50];
    float expected[V];

    (void)state;
    draw(tokens, 50, 1);
    alibi_session_cancel(s);
    assert_ok(alibi_session_feed(other, 0, tokens, 50));
    memcpy(expected, alibi_session_view_logits(other, 0), sizeof expected);
    assert_fails(alibi_session_feed(s, 0, tokens, 50), ALIBI_INTERRUPTED,
                 "cancelled after 0 of 50");
    assert_int_equal(alibi_session_length(s, 0), 0);
    assert_ok(alibi_session_feed(s, 0, tokens, 50));
    assert_memory_equal(expected, alibi_session_view_logits(s, 0), sizeof expected);
    alibi_session_free(s);
    alibi_session_free(other);
    free_model(&m);
}

/* Two models, two sessions each, one thread per session: each generates and scores what it did
 * alone, while a session of a fifth thread feeds without end until it is cancelled. */
struct user {
    const struct alibi_model *model;
    int k;
    int32_t expected[TOKENS], tokens[TOKENS];
    double expected_logprobs[64], logprobs[64];
};

static void use_alone(const struct alibi_model *m, int k, int32_t *tokens, double *logprobs)
{
    alibi_session *s = new_session(m, 1);
    int32_t text[64];

    generate_alone(m, k, tokens);
    draw(text, 64, (uint64_t)(50 + k));
    assert_ok(alibi_session_score(s, 0, text, 64, logprobs, 0, NULL));
    alibi_session_free(s);
}

static void *use(void *argument)
{
    struct user *u = argument;

    omp_set_num_threads(1);
    for (int i = 0; i < 3; i++)
        use_alone(u->model, u->k, u->tokens, u->logprobs);
    return NULL;
}

struct endless {
    alibi_session *session;
    alibi_status status;
};

static void *feed_without_end(void *argument)
{
    struct endless *e = argument;
    int32_t tokens[64];

    omp_set_num_threads(1);
    draw(tokens, 64, 77);
    while ((e->status = alibi_session_feed(e->session, 0, tokens, 64)) == ALIBI_OK)
        if (alibi_session_length(e->session, 0) > 4096)
            alibi_session_clear(e->session, 0);
    return NULL;
}

static void threads_share_models_and_do_not_see_each_other(void **state)
{
    struct alibi_model models[2] = { new_model("alibi", 9), new_model("rotary", 10) };
    struct user users[4];
    struct endless endless = { .session = new_session(&models[0], 1) };
    pthread_t threads[5];

    (void)state;
    for (int i = 0; i < 4; i++) {
        users[i] = (struct user){ .model = &models[i % 2], .k = i };
        use_alone(users[i].model, i, users[i].expected, users[i].expected_logprobs);
    }
    assert_int_equal(pthread_create(&threads[4], NULL, feed_without_end, &endless), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    alibi_session_cancel(endless.session);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(endless.status, ALIBI_INTERRUPTED);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(users[i].tokens, users[i].expected, sizeof users[i].tokens);
        assert_memory_equal(users[i].logprobs + 1, users[i].expected_logprobs + 1,
                            63 * sizeof(double));
    }
    alibi_session_free(endless.session);
    free_model(&models[0]);
    free_model(&models[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_get_the_tokens_they_get_alone_for_every_method),
        cmocka_unit_test(logits_of_all_tokens_are_those_after_each),
        cmocka_unit_test(a_cleared_sequence_starts_again),
        cmocka_unit_test(a_failed_step_changes_no_sequence),
        cmocka_unit_test(after_a_failed_score_there_are_no_logits_to_sample_from),
        cmocka_unit_test(what_a_session_does_not_have_is_named),
        cmocka_unit_test(padding_ids_are_never_chosen),
        cmocka_unit_test(scores_are_the_losses_of_the_evaluation),
        cmocka_unit_test(the_score_of_a_text_follows_its_prompt),
        cmocka_unit_test(scoring_a_long_text_reports_its_progress),
        cmocka_unit_test(prompts_are_continued_together_as_each_alone),
        cmocka_unit_test(a_cancelled_session_stays_usable_and_others_run_on),
        cmocka_unit_test(threads_share_models_and_do_not_see_each_other),
    };

    alibi_device *gpu_present = open_gpu(ALIBI_FP32);
    int failed;

    omp_set_num_threads(1);
    device = test_device();
    failed = cmocka_run_group_tests_name("on the CPU", tests, NULL, NULL);
    if (gpu_present) {
        device = gpu_present;
        failed += cmocka_run_group_tests_name("on the GPU", tests, NULL, NULL);
    }
    alibi_device_free(gpu_present);
    return failed;
}
