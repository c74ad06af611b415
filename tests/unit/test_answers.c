/* Answers to tasks: every number is that of a plain loop over the model's logits; lengths past L
 * are measured only if the task is learned; a small model learns one. */
#include <omp.h>

#include "eval/eval.h"
#include "training.h"

enum { L = 32, CASES = 30, DEPTHS = 4, IDS = 10, V = 13, MANY = 1 << 18 };

static struct device cpu;

/* Ten words, all but the first two of them marks and symbols; most of the text is unknown. */
static alibi_corpus *new_corpus(void)
{
    static const char *const names[IDS] = { "<unk>", "<eos>", "the", "of", "a",
                                            "in",    "and",   "was", "to", "his" };
    struct slice words[IDS];
    alibi_tokenizer *t = NULL;
    alibi_corpus *c = NULL;

    for (int i = 0; i < IDS; i++)
        words[i] = (struct slice){ names[i], strlen(names[i]) };
    assert_ok(tokenizer_new_words(&t, words, IDS));
    assert_ok(alibi_corpus_builtin(&c, 1, 30000, t, test_call()));
    alibi_tokenizer_free(t);
    return c;
}

/* The ids past those of the tokenizer are padding, which is never an answer. */
static struct alibi_model new_model_of(const char *position, const alibi_corpus *c, uint64_t seed,
                                       int64_t vocab)
{
    struct alibi_config config = tiny_bytes_config(position, 2, L);
    struct alibi_model model = { .tokenizer = tokenizer_share(corpus_tokenizer(c)) };

    config.vocab = vocab;
    if (seed == 3) /* one of them has clusters */
        config.adaptive_cutoffs = (struct alibi_int_list){ 1, { 6 } };
    assert_ok(model_new(&model.model, &config, &cpu, DTYPE_F32, false));
    randomise(model.model, seed, 0.5);
    return model;
}

static struct alibi_model new_model(const char *position, const alibi_corpus *c, uint64_t seed)
{
    return new_model_of(position, c, seed, V);
}

static void free_model(struct alibi_model *model)
{
    model_free(model->model);
    alibi_tokenizer_free(model->tokenizer);
}

static struct alibi_tasks request(const char *task)
{
    struct alibi_tasks how = { .cases = CASES, .depths = DEPTHS, .seed = 1 };

    if (task)
        snprintf(how.tasks.at[how.tasks.count++], ALIBI_NAME_MAX, "%s", task);
    return how;
}

/* ---- the numbers */

static double loss_of(const float *logits, int64_t vocab, int32_t id)
{
    double sum = 0;

    for (int64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i]);
    return log(sum) - (double)logits[id];
}

static bool is_likeliest(const float *logits, int32_t id)
{
    int best = 0;

    for (int i = 1; i < IDS; i++)
        best = logits[i] > logits[best] ? i : best;
    return best == id;
}

struct plain {
    double nll, tokens, score[CASES], depth[DEPTHS], answers[DEPTHS], excess[CASES], bayes;
};

static void measure(struct plain *out, const struct alibi_model *model,
                    const struct task_windows *w)
{
    struct workspace *workspace = NULL;
    int64_t vocab = model->model->config.vocab;
    float *logits = NULL;

    *out = (struct plain){ 0 };
    assert_ok(NEW_ARRAY(&logits, w->length * vocab, "logits"));
    assert_ok(workspace_new(&workspace, model->model, &(struct pass_settings){ 0 }));
    for (int n = 0; n < CASES; n++) {
        int32_t inputs[4 * L], targets[4 * L];
        struct task_answer answer[TASK_ANSWERS_MAX];
        int count = task_window(w, n, inputs, targets, answer);
        double bayes[4 * L];

        assert_ok(model_logits(workspace, inputs, 1, w->length, logits));
        for (int k = 0; k < count; k++) {
            int64_t right = 0, depth = (int64_t)(answer[k].depth * DEPTHS);
            double score;

            for (int64_t i = answer[k].first; i < answer[k].first + answer[k].count; i++) {
                right += is_likeliest(logits + i * vocab, targets[i]);
                out->nll += loss_of(logits + i * vocab, vocab, targets[i]);
                out->tokens++;
            }
            score = task_traits(w->task).answers_whole ? (double)(right == answer[k].count)
                                                       : (double)right / (double)answer[k].count;
            depth = depth < DEPTHS ? depth : DEPTHS - 1;
            out->depth[depth] += score;
            out->answers[depth]++;
            out->score[n] += score / count;
        }
        if (!task_traits(w->task).chain)
            continue;
        task_bayes(w, targets, bayes);
        for (int64_t i = 0; i < w->length; i++) {
            double above = loss_of(logits + i * vocab, vocab, targets[i]) - bayes[i];

            out->excess[n] += above / (double)w->length;
            out->bayes += bayes[i] / (double)w->length / CASES;
        }
    }
    workspace_free(workspace);
    mem_free(logits);
}

static double mean_of(const double *x, double *error)
{
    double mean = 0, squares = 0;

    for (int n = 0; n < CASES; n++)
        mean += x[n] / CASES;
    for (int n = 0; n < CASES; n++)
        squares += (x[n] - mean) * (x[n] - mean);
    *error = sqrt(squares / (CASES - 1) / CASES);
    return mean;
}

static void compare_chain(const struct alibi_task_cell *cell, const struct plain *plain)
{
    double error, mean = mean_of(plain->excess, &error), gap = log(2) - plain->bayes, bayes = 0;

    assert_close(cell->bayes, plain->bayes, 1e-9);
    assert_close(cell->score.value, 1 - mean / gap, 1e-4);
    assert_close(cell->score.error, error / gap, 1e-4);
    assert_int_equal(cell->bins, 6); /* 0, 1, 2, 4, 8, 16 */
    assert_int_equal(cell->by_position[5].last, L - 1);
    for (int b = 0; b < 6; b++)
        bayes += cell->bayes_by_position[b] * (double)cell->by_position[b].tokens / (L * CASES);
    assert_close(bayes, plain->bayes, 1e-9);
}

static void compare_answers(const struct alibi_task_cell *cell, const struct plain *plain)
{
    double error, mean = mean_of(plain->score, &error);

    assert_close(cell->score.value, mean, 1e-12);
    assert_close(cell->score.error, error, 1e-12);
    assert_true(cell->low <= mean && mean <= cell->high && cell->high - cell->low < 0.4);
    for (int d = 0; d < DEPTHS; d++) {
        assert_int_equal(cell->depth_answers[d], plain->answers[d]);
        if (plain->answers[d] > 0)
            assert_close(cell->depth_score[d], plain->depth[d] / plain->answers[d], 1e-12);
    }
}

/* Returns the score. */
static double check_task(const struct alibi_model *model, const alibi_corpus *c, const char *name)
{
    struct alibi_tasks how = request(name);
    struct alibi_tasks_result *r = NULL;
    const struct alibi_task_cell *cell;
    struct task *task = NULL;
    struct task_windows w = {
        .text = corpus_span(c, ALIBI_ALL), .near = L, .length = L, .seed = 1, .use = TASK_PROBE
    };
    struct plain plain;
    double score;

    assert_ok(task_new(&task, task_find(name), model->tokenizer));
    w.task = task;
    measure(&plain, model, &w);
    assert_ok(alibi_probe_tasks(&r, model, c, ALIBI_ALL, &how, test_call()));
    assert_int_equal(r->tasks, 1);
    cell = &r->task[0].at[0];
    assert_true(cell->length == L && cell->cases == CASES && cell->why == ALIBI_CELL_MEASURED);
    assert_close(cell->nll, plain.nll / plain.tokens, 1e-5);
    (task_traits(task).chain ? compare_chain : compare_answers)(cell, &plain);
    score = cell->score.value;
    task_free(task);
    alibi_tasks_free(r);
    return score;
}

static void scores_are_those_of_a_plain_loop_over_logits(void **state)
{
    static const char *const tasks[] = { "needles", "latest", "induction", "markov" };
    alibi_corpus *c = new_corpus();
    double all = 0;

    (void)state;
    for (int i = 0; i < 16; i++) { /* four models, of which some have right answers */
        struct alibi_model model = new_model("alibi", c, (uint64_t)i / 4);
        double score = check_task(&model, c, tasks[i % 4]);

        all += i % 4 == 3 ? 0 : score;
        free_model(&model);
    }
    assert_true(all > 0.3);
    alibi_corpus_free(c);
}

/* The logits of 16 answers are read at a time, and a batch has more than that. */
static void a_vocabulary_so_large_that_answers_are_read_in_turns_changes_no_score(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model_of("alibi", c, 1, MANY);

    (void)state;
    assert_true(check_task(&model, c, "latest") > 0);
    assert_true(check_task(&model, c, "induction") > 0);
    free_model(&model);
    alibi_corpus_free(c);
}

/* The first two tokens of a chain cannot be predicted: Bayes' loss is that of equal frequencies. */
static void a_chain_of_two_tokens_has_losses_and_no_score(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c, 1);
    struct alibi_tasks how = request("markov");
    struct alibi_tasks_result *r = NULL;
    const struct alibi_task_cell *cell;

    (void)state;
    how.lengths = (struct alibi_int_list){ 1, { 2 } };
    assert_ok(alibi_probe_tasks(&r, &model, c, ALIBI_ALL, &how, test_call()));
    cell = &r->task[0].at[0];
    assert_true(cell->length == 2 && cell->cases == CASES);
    assert_true(isfinite(cell->nll) && fabs(cell->bayes - r->task[0].chance) < 1e-9);
    assert_true(isnan(cell->score.value) && isnan(cell->score.error));
    assert_true(isfinite(r->task[0].at[1].score.value));
    alibi_tasks_free(r);
    free_model(&model);
    alibi_corpus_free(c);
}

/* ---- which cells are measured */

static void cells_past_the_training_length_need_a_task_that_is_learned(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c, 1), learned = new_model("learned", c, 1);
    struct alibi_tasks how = request("needles");
    struct alibi_tasks_result *r = NULL;

    (void)state;
    assert_ok(alibi_probe_tasks(&r, &model, c, ALIBI_ALL, &how, test_call()));
    assert_int_equal(r->request.lengths.count, 5);
    assert_false(r->task[0].learned);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(r->task[0].at[i].length, L << i);
        assert_int_equal(r->task[0].at[i].why,
                         i == 0 ? ALIBI_CELL_MEASURED : ALIBI_CELL_NOT_LEARNED);
    }
    alibi_tasks_free(r);
    how.lengths = (struct alibi_int_list){ 2, { 2 * L, L - 8 } };
    assert_ok(alibi_probe_tasks(&r, &learned, c, ALIBI_ALL, &how, test_call()));
    assert_int_equal(r->request.lengths.count, 3); /* the training length is among them */
    assert_true(r->task[0].at[0].why == ALIBI_CELL_MEASURED && r->task[0].at[0].length == L - 8);
    assert_true(r->task[0].at[1].why == ALIBI_CELL_MEASURED && r->task[0].at[1].length == L);
    assert_int_equal(r->task[0].at[2].why, ALIBI_CELL_NO_POSITIONS);
    alibi_tasks_free(r);
    how.lengths.count = 0;
    snprintf(model.trained, sizeof model.trained, "none"); /* neither has learned it */
    assert_ok(alibi_probe_tasks(&r, &model, c, ALIBI_ALL, &how, test_call()));
    assert_true(r->task[0].trained.value < 0.95 && !r->task[0].learned);
    assert_int_equal(r->task[0].at[1].why, ALIBI_CELL_NOT_LEARNED);
    alibi_tasks_free(r);
    free_model(&model);
    free_model(&learned);
    alibi_corpus_free(c);
}

static void lengths_of_the_training_are_measured_in_any_case(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c, 1);
    struct alibi_tasks how = request("needles");
    struct alibi_tasks_result *r = NULL;

    (void)state;
    model.model->config.train_length = 4 * L;
    how.length = L;
    assert_ok(alibi_probe_tasks(&r, &model, c, ALIBI_ALL, &how, test_call()));
    assert_false(r->task[0].learned);
    for (int i = 0; i < 5; i++)
        assert_int_equal(r->task[0].at[i].why,
                         i <= 2 ? ALIBI_CELL_MEASURED : ALIBI_CELL_NOT_LEARNED);
    alibi_tasks_free(r);
    free_model(&model);
    alibi_corpus_free(c);
}

struct notes {
    int skipped;
    int64_t done, total;
};

static void keep_note(void *user, enum alibi_log_level level, const char *line)
{
    struct notes *n = user;

    (void)level;
    n->skipped += strncmp(line, "skipped: ", 9) == 0;
}

static void keep_progress(void *user, const struct alibi_progress *p)
{
    struct notes *n = user;

    n->done = p->done;
    n->total = p->total;
}

static void tasks_that_do_not_fit_are_skipped_unless_they_are_named(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c, 1);
    struct alibi_tasks all = request(NULL), passkey = request("passkey"), none = request("pass");
    struct alibi_tasks_result *r = NULL;
    struct notes notes = { 0 };

    (void)state;
    test_watch(&notes, keep_progress, keep_note);
    assert_ok(alibi_probe_tasks(&r, &model, c, ALIBI_ALL, &all, test_call()));
    test_watch(NULL, NULL, NULL);
    /* No digits for pass keys, too few symbols for recall, and nine keys for growing needles. */
    assert_int_equal(notes.skipped, 4);
    assert_int_equal(r->tasks, 4);
    assert_string_equal(r->task[0].name, "needles");
    assert_string_equal(r->task[3].name, "markov");
    assert_true(notes.done == notes.total && notes.total == 4 * L * CASES);
    alibi_tasks_free(r);
    assert_fails(alibi_probe_tasks(&r, &model, c, ALIBI_ALL, &passkey, test_call()),
                 ALIBI_BAD_INPUT, "needs a token for each digit");
    assert_fails(alibi_probe_tasks(&r, &model, c, ALIBI_ALL, &none, test_call()), ALIBI_USAGE,
                 "no task 'pass'; there are passkey, passkey-filler");
    free_model(&model);
    alibi_corpus_free(c);
}

static void wrong_requests_are_named(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c, 1), learned = new_model("learned", c, 1);
    struct alibi_tasks how = request("markov");

    (void)state;
    assert_ok(alibi_tasks_check(&model, &how));
    how.cases = 0;
    assert_fails(alibi_tasks_check(&model, &how), ALIBI_USAGE, "cases");
    how = request("markov");
    how.length = 2 * L;
    assert_fails(alibi_tasks_check(&learned, &how), ALIBI_BAD_INPUT, "'learned' ends at 32");
    how.length = 0;
    how.lengths = (struct alibi_int_list){ 1, { -3 } };
    assert_fails(alibi_tasks_check(&model, &how), ALIBI_USAGE, "length -3");
    how.lengths.count = ALIBI_LIST_MAX;
    for (int i = 0; i < ALIBI_LIST_MAX; i++)
        how.lengths.at[i] = L + 1 + i;
    assert_fails(alibi_tasks_check(&model, &how), ALIBI_USAGE, "no room for 32");
    free_model(&model);
    free_model(&learned);
    alibi_corpus_free(c);
}

/* ---- stops and faults */

struct site_of_probe {
    const alibi_model *model;
    const alibi_corpus *corpus;
};

static alibi_status probe(void *user)
{
    const struct site_of_probe *s = user;
    struct alibi_tasks how = request("induction");
    struct alibi_tasks_result *r = NULL;
    alibi_status status;

    how.cases = 2;
    status = alibi_probe_tasks(&r, s->model, s->corpus, ALIBI_ALL, &how, test_call());
    alibi_tasks_free(r);
    return status;
}

static void a_stop_request_and_missing_memory_leave_nothing(void **state)
{
    alibi_corpus *c = new_corpus();
    struct alibi_model model = new_model("alibi", c, 1);
    struct site_of_probe s = { &model, c };

    (void)state;
    test_watch(NULL, NULL, NULL);
    alibi_stop_request(&test_stop);
    assert_fails(probe(&s), ALIBI_INTERRUPTED, "stopped at length 32, after 0 of 2 cases");
    test_watch(NULL, NULL, NULL);
    assert_true(fail_each_call("memory", probe, &s, ALIBI_MEMORY, "") >= 10);
    free_model(&model);
    alibi_corpus_free(c);
}

/* ---- training */

/* In a mixture with text, half and half. The chain of two states is learned within seconds, at the
 * training length and, with ALiBi, at twice that. */
static void a_small_model_learns_the_chain_from_a_mixture(void **state)
{
    struct site *p = new_site(0, 0);
    const double shares[] = { 1, 3 };
    alibi_corpus *parts[2] = { NULL }, *mix = NULL;
    struct alibi_tasks how = request("markov");
    struct alibi_tasks_result *r = NULL;
    alibi_model *model;
    double as_trained;

    (void)state;
    assert_ok(alibi_corpus_builtin(&parts[0], 1, 60000, NULL, test_call()));
    assert_ok(alibi_corpus_task(&parts[1], "markov", NULL));
    assert_ok(alibi_corpus_mix(&mix, parts, shares, 2));
    alibi_corpus_free(p->corpus);
    p->corpus = mix;
    tiny_defaults(&p->config, &p->training);
    p->config.layers = 2;
    p->config.width = 32;
    p->config.heads = 4;
    p->training.train_length = 64;
    p->training.batch = 16;
    p->training.steps = 900;
    p->training.warmup = 20;
    p->training.lr = 0.005;
    p->training.eval_every = 900;
    p->training.eval_tokens = 6400;
    assert_ok(train_at(p, p->run, false));
    assert_int_equal(p->result.valid_texts, 2);
    assert_string_equal(p->result.valid_text[1].name, "task:markov");
    assert_int_equal(p->result.valid_text[1].tokens, 6400);
    model = open_model_at(p->run);
    how.cases = 100;
    how.lengths = (struct alibi_int_list){ 1, { 128 } };
    assert_ok(alibi_probe_tasks(&r, model, mix, ALIBI_ALL, &how, test_call()));
    printf("markov: score %.3f at 64, %.3f at 128; validation loss %.4f, loss at 64 %.4f\n",
           r->task[0].at[0].score.value, r->task[0].at[1].score.value, p->result.valid_text[1].loss,
           r->task[0].at[0].nll);
    assert_true(r->task[0].learned);
    assert_true(r->task[0].at[1].score.value > 0.8);
    assert_close(p->result.valid_text[1].loss, r->task[0].at[0].nll, 0.05);
    assert_true(isnan(r->task[0].trained.value)); /* it has the position of its training */
    as_trained = r->task[0].at[0].score.value;
    alibi_tasks_free(r);
    alibi_model_free(model);

    /* Without its slopes it fails at 64, but its weights have learned the task. */
    assert_ok(alibi_model_open_as(&model, p->device, p->run, "none", test_call()));
    how.lengths = (struct alibi_int_list){ 1, { 128 } };
    assert_ok(alibi_probe_tasks(&r, model, mix, ALIBI_ALL, &how, test_call()));
    assert_true(r->task[0].at[0].score.value < 0.9);
    assert_true(r->task[0].learned && r->task[0].trained.value == as_trained);
    assert_int_equal(r->task[0].at[1].why, ALIBI_CELL_MEASURED);
    assert_string_equal(alibi_model_view_config(model)->position, "none");
    alibi_tasks_free(r);
    alibi_model_free(model);
    drop_site((void **)&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_a_plain_loop_over_logits),
        cmocka_unit_test(a_vocabulary_so_large_that_answers_are_read_in_turns_changes_no_score),
        cmocka_unit_test(a_chain_of_two_tokens_has_losses_and_no_score),
        cmocka_unit_test(cells_past_the_training_length_need_a_task_that_is_learned),
        cmocka_unit_test(lengths_of_the_training_are_measured_in_any_case),
        cmocka_unit_test(tasks_that_do_not_fit_are_skipped_unless_they_are_named),
        cmocka_unit_test(wrong_requests_are_named),
        cmocka_unit_test(a_stop_request_and_missing_memory_leave_nothing),
        cmocka_unit_test(a_small_model_learns_the_chain_from_a_mixture),
    };

    omp_set_num_threads(1);
    cpu.ops = ops_cpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
