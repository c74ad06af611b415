/* An experiment: places in its file, its models, its verdicts, and that failures lose nothing */
#include <math.h>
#include <string.h>

#include "device.h"
#include "experiment/read.h"
#include "folder.h"

static const char text_of_experiment[] =
    "{ \"experiment\": 1, \"numbers\": { \"L\": 8 }, \"seeds\": [1, 2, 3],\n"
    "  \"texts\": { \"text\": {} },\n"
    "  \"settings\": { \"layers\": 1, \"width\": 8, \"heads\": 2, \"step_tokens\": 32,\n"
    "    \"train_tokens\": 64, \"eval_every\": 0 },\n"
    "  \"models\": { \"methods\": { \"settings\":\n"
    "    { \"position\": [\"alibi\", \"none\"], \"train_length\": [\"L\", \"2L\"] } },\n"
    "    \"one\": { \"seeds\": [2], \"settings\": { \"train_length\": \"L/2\" } } },\n"
    "  \"evaluations\": { \"windows\": { \"lengths\": [\"4L\", \"L\"], \"tokens\": 64 },\n"
    "    \"targets\": { \"kind\": \"targets\", \"lengths\": [\"L\", \"4L\"], \"blocks\": 9,\n"
    "      \"models\": [\"alibi-8\"] },\n"
    "    \"attention\": { \"kind\": \"attention\", \"lengths\": [\"L\", \"4L\"],\n"
    "      \"windows\": 2, \"models\": [\"none-8\"] },\n"
    "    \"tasks\": { \"kind\": \"tasks\", \"lengths\": [\"L\", \"4L\"], \"cases\": 3,\n"
    "      \"tasks\": [\"latest\", \"markov\"], \"models\": [\"alibi-8\", \"none-8\"] } },\n"
    "  \"claims\": [ { \"claim\": \"{4L} is better than {L}\", \"holds_if\": [\n"
    "    { \"is\": { \"model\": \"alibi-8\", \"length\": \"4L\" },\n"
    "      \"below\": { \"model\": \"alibi-8\", \"length\": \"L\" }, \"by\": 1 } ] },\n"
    "    { \"claim\": \"Text farther than {L} is not used\", \"evaluation\": \"targets\",\n"
    "      \"holds_if\": [ { \"is\": { \"model\": \"alibi-8\", \"length\": \"4L\",\n"
    "      \"condition\": \"swapped\" }, \"below\": { \"model\": \"alibi-8\",\n"
    "      \"length\": \"4L\" }, \"within\": 0.5 } ] },\n"
    "    { \"claim\": \"{4L} is reached\", \"evaluation\": \"tasks\", \"holds_if\": [\n"
    "    { \"is\": { \"model\": \"alibi-8\", \"length\": \"4L\", \"task\": \"latest\" },\n"
    "      \"above\": 0.95 } ] },\n"
    "    { \"claim\": \"as well\", \"evaluation\": \"tasks\", \"holds_if\": [\n"
    "    { \"is\": { \"model\": \"alibi-8\", \"length\": \"4L\", \"task\": \"latest\" },\n"
    "      \"above\": { \"model\": \"none-8\", \"length\": \"4L\", \"task\": \"latest\" },\n"
    "      \"within\": 5 } ] } ] }\n";

static char *path_in(const char *name)
{
    char *path = NULL;

    assert_ok(path_join(&path, folder, name));
    return path;
}

/* The experiment above, as a file of the test's folder; alibi_experiment_free. */
static alibi_experiment *open_experiment(void)
{
    alibi_experiment *e = NULL;
    char *path = path_in("tiny.json");

    write_file(path, text_of_experiment, strlen(text_of_experiment));
    assert_ok(alibi_experiment_open(&e, path, NULL));
    mem_free(path);
    return e;
}

/* ---- the file */

static void a_member_has_its_line(void **state)
{
    static const char json[] = "{\n \"a\": [ 1, \"}\",\n { \"b\":\n 2 } ],\n \"c\": { \"b\": 3 } }";
    const char *path[] = { "a", "2", "b" }, *other[] = { "c", "x" };
    int found;

    (void)state;
    assert_int_equal(place_line(json, strlen(json), path, 3, &found), 3);
    assert_int_equal(found, 3);
    assert_int_equal(place_line(json, strlen(json), other, 2, &found), 5);
    assert_int_equal(found, 1);
    for (size_t length = 0; length < sizeof json; length++) {
        char *exact = exact_copy(json, length);

        place_line(exact, length, path, 3, &found); /* reads nothing past the end */
        free(exact);
    }
}

static void a_file_deeper_than_any_section_is_refused(void **state)
{
    static const char start[] = "{ \"experiment\": 1, \"settings\": ";
    char text[sizeof start + 64] = "";
    char *path = path_in("deep.json");
    alibi_experiment *e = NULL;

    (void)state;
    for (int depth = 8; depth < 16; depth++) {
        snprintf(text, sizeof text, "%s%.*s%.*s}", start, depth, "[[[[[[[[[[[[[[[[", depth,
                 "]]]]]]]]]]]]]]]]");
        write_file(path, text, strlen(text));
        assert_fails(alibi_experiment_open(&e, path, NULL), ALIBI_BAD_INPUT,
                     depth < 11 ? "texts" : "too deep");
    }
    mem_free(path);
}

static void lists_of_values_make_models(void **state)
{
    static const char *const names[] = { "alibi-8", "alibi-16", "none-8", "none-16", "one" };
    alibi_experiment *e = open_experiment();

    (void)state;
    assert_int_equal(e->models, 5);
    for (int m = 0; m < e->models; m++)
        assert_string_equal(e->model[m].name, names[m]);
    assert_int_equal(e->model[1].training.batch, 2); /* 32 tokens in windows of 16 */
    assert_int_equal(e->model[1].training.steps, 2);
    assert_int_equal(e->model[4].training.train_length, 4);
    assert_int_equal(e->model[0].seeds.count, 3);
    assert_int_equal(e->model[4].seeds.at[0], 2);
    assert_int_equal(e->evaluation[0].lengths.at[0], 8); /* ascending */
    assert_string_equal(e->claim[0].claim, "32 is better than 8");
    alibi_experiment_free(e);
}

/* ---- verdicts */

/* The losses of a model's seeds at a length, with 8 parts that have little noise. */
static void measure(alibi_experiment *e, int model, int length, const double *nll)
{
    for (int k = 0; k < e->model[model].seeds.count; k++) {
        struct measured *m = &e->model[model].seed[k].measured[0][length];

        *m = (struct measured){ .done = 1 };
        m->result = (struct alibi_eval_result){ .length = e->evaluation[0].lengths.at[length],
                                                .tokens = 800,
                                                .blocks = 8,
                                                .block = 100,
                                                .available = 800,
                                                .nll = nll[k],
                                                .ppl = exp(nll[k]),
                                                .standard_error = 0.001,
                                                .parts = 8 };
        for (int i = 0; i < 8; i++)
            m->result.part[i] =
                (struct alibi_eval_part){ 100, 100 * (nll[k] + 0.001 * (i % 2 == k % 2)) };
    }
}

static enum alibi_verdict verdict_on(const alibi_experiment *e, int claim, bool *few)
{
    struct alibi_claim c;

    alibi_experiment_get_claim(e, claim, &c);
    *few = c.few_seeds;
    return c.verdict;
}

static enum alibi_verdict verdict(const alibi_experiment *e, bool *few)
{
    return verdict_on(e, 0, few);
}

static void verdicts_follow_the_interval_and_the_margin(void **state)
{
    static const double home[] = { 3, 3.001, 2.999 };
    static const double lower[] = { 2.9, 2.902, 2.898 }, higher[] = { 3.1, 3.102, 3.098 };
    static const double mixed[] = { 2.8, 3.2, 2.97 }, slightly[] = { 2.995, 2.996, 2.994 };
    alibi_experiment *e = open_experiment();
    bool few;

    (void)state;
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_NOT_MEASURED);
    measure(e, 0, 0, home);
    measure(e, 0, 1, lower);
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_HOLDS);
    assert_false(few);
    measure(e, 0, 1, higher);
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_FAILS);
    measure(e, 0, 1, mixed);
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_NOT_SHOWN);
    measure(e, 0, 1, slightly); /* lower, but not by 1% */
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_FAILS);
    e->claim[0].comparison[0].margin = log1p(0.01); /* within 1% */
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_HOLDS);
    e->model[0].seeds.count = 1;
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_HOLDS);
    assert_true(few);
    e->model[0].seeds.count = 3;
    e->text[0].unigrams = 1; /* token frequencies are as good */
    e->text[0].unigram[0].tokens = 64;
    e->text[0].unigram[0].block = 32;
    e->text[0].unigram[0].nll = 3.01;
    assert_int_equal(verdict(e, &few), ALIBI_CLAIM_NOT_SHOWN);
    alibi_experiment_free(e);
}

/* The losses of fixed targets of every seed of a model: 10 parts of 4 repeats and 6 others. From L
 * to 4L they gain `gain`, and every seed `more` than the one before, of which repeats lose `lost`
 * when the far text is swapped, and all is lost when attention is cut. */
static void measure_targets_of(alibi_experiment *e, int model, double gain, double more,
                               double lost)
{
    for (int k = 0; k < e->model[model].seeds.count; k++, gain += more) {
        struct measured *m = &e->model[model].seed[k].measured[1][0];
        struct target_losses *t = &m->targets;
        double near[ALIBI_EVAL_PARTS][2], own[ALIBI_EVAL_PARTS][2], swapped[ALIBI_EVAL_PARTS][2];

        m->done = 1;
        t->request = targets_asked(e, model, 1);
        t->parts = 10;
        for (int i = 0; i < t->parts; i++) {
            t->tokens[i][0] = 4;
            t->tokens[i][1] = 6;
            near[i][0] = 4 * (3 + 0.1 * i + 0.001 * k);
            near[i][1] = 6 * (3 + 0.1 * i + 0.001 * (k + i % 2));
            own[i][0] = near[i][0] - 4 * gain + 0.0001 * (i % 2);
            own[i][1] = near[i][1] - 6 * gain;
            swapped[i][0] = own[i][0] + 4 * lost + 0.0001 * (i % 3);
            swapped[i][1] = own[i][1];
        }
        target_losses_set(t, 0, TARGETS_OWN, (const double(*)[2])near);
        target_losses_set(t, 1, TARGETS_OWN, (const double(*)[2])own);
        target_losses_set(t, 1, TARGETS_SWAPPED, (const double(*)[2])swapped);
        target_losses_set(t, 1, TARGETS_WINDOW, (const double(*)[2])near);
    }
}

static void measure_targets(alibi_experiment *e, double gain, double more, double lost)
{
    measure_targets_of(e, 0, gain, more, lost);
}

static void claims_compare_the_losses_of_fixed_targets(void **state)
{
    alibi_experiment *e = open_experiment();
    struct reference *is = &e->claim[1].comparison[0].left;
    struct value all, repeats, others;
    bool few;

    (void)state;
    assert_int_equal(is->condition, TARGETS_SWAPPED);
    assert_int_equal(verdict_on(e, 1, &few), ALIBI_CLAIM_NOT_MEASURED);
    measure_targets(e, 0, 0, 0.02); /* 0.4 of the targets lose 2% */
    assert_int_equal(verdict_on(e, 1, &few), ALIBI_CLAIM_FAILS);
    all = reference_value(e, is);
    is->targets = ALIBI_REPEATS;
    repeats = reference_value(e, is);
    is->targets = ALIBI_OTHERS;
    others = reference_value(e, is);
    assert_close(log(all.value), 0.4 * log(repeats.value) + 0.6 * log(others.value), 1e-9);
    assert_close(log(repeats.value) - log(others.value), 0.02, 1e-3);
    is->targets = ALIBI_ALL_TARGETS;
    measure_targets(e, 0, 0, 0.001);
    assert_int_equal(verdict_on(e, 1, &few), ALIBI_CLAIM_HOLDS);
    alibi_experiment_free(e);
}

static void the_verdict_on_far_text_is_of_all_seeds(void **state)
{
    static const struct {
        double gain, more, lost;
        const char *reach;
    } cases[] = { { 0.03, 0, 0.03, "\"uses\"" },
                  { 0.03, 0, 0.01, "\"holds\"" },
                  { -0.02, 0, 0, "\"breaks\"" },
                  { -0.5, 0.49, 0, "null" } }; /* far worse in one seed, and not in the other */
    alibi_experiment *e = open_experiment();

    (void)state;
    for (int i = 0; i < 4; i++) {
        char expected[64], *json = NULL;

        /* 0.4 of the targets lose it */
        measure_targets(e, cases[i].gain, cases[i].more, cases[i].lost);
        assert_ok(alibi_experiment_json(&json, e));
        snprintf(expected, sizeof expected, "\"reach\": %s", cases[i].reach);
        assert_non_null(strstr(json, expected));
        alibi_text_free(json);
    }
    alibi_experiment_free(e);
}

/* The second model was trained at 4L. */
static void only_models_that_gain_have_a_share_of_the_ceiling(void **state)
{
    static const struct {
        double gain, most;
        const char *share;
    } cases[] = { { 0.03, 0.06, "0.49" },
                  { 0.03, 0.001, "null" },  /* nothing to gain */
                  { -0.002, 0.06, "null" }, /* holds */
                  { -9.2, 0.06, "null" } }; /* breaks: -15299% */
    static const char json[] =
        "{ \"experiment\": 1, \"texts\": { \"text\": {} },\n"
        "  \"settings\": { \"layers\": 1, \"width\": 8, \"heads\": 2, \"steps\": 2 },\n"
        "  \"models\": { \"all\": { \"settings\": { \"train_length\": [8, 32] } } },\n"
        "  \"evaluations\": { \"windows\": { \"lengths\": [8], \"tokens\": 64 },\n"
        "    \"targets\": { \"kind\": \"targets\", \"lengths\": [8, 32], \"length\": 8 } },\n"
        "  \"claims\": [] }\n";
    alibi_experiment *e = NULL;
    char *path = path_in("ceiling.json");

    (void)state;
    write_file(path, json, strlen(json));
    assert_ok(alibi_experiment_open(&e, path, NULL));
    for (int i = 0; i < 4; i++) {
        char expected[64], *report = NULL;

        measure_targets_of(e, 0, cases[i].gain, 0, 0);
        measure_targets_of(e, 1, cases[i].most, 0, 0);
        assert_ok(alibi_experiment_json(&report, e));
        snprintf(expected, sizeof expected, "\"share_of_ceiling\": %s", cases[i].share);
        assert_non_null(strstr(report, expected));
        alibi_text_free(report);
    }
    alibi_experiment_free(e);
    mem_free(path);
}

enum { TASKS = 3 }; /* the evaluation */

/* The scores of a model's seeds at 4L, of the task `latest`. NaN: the seed has not learned it. */
static void measure_task(alibi_experiment *e, int model, int64_t cases, const double *score)
{
    for (int k = 0; k < e->model[model].seeds.count; k++) {
        struct measured *m = &e->model[model].seed[k].measured[TASKS][0];
        struct alibi_task_cell *cell = &m->task->at[1];

        m->done = 1;
        *cell = (struct alibi_task_cell){ .length = 32, .why = ALIBI_CELL_NOT_LEARNED };
        if (isnan(score[k]))
            continue;
        *cell = (struct alibi_task_cell){ .length = 32, .cases = cases };
        cell->score =
            (struct alibi_estimate){ score[k], sqrt(score[k] * (1 - score[k]) / (double)cases) };
        wilson_interval(score[k], (double)cases, &cell->low, &cell->high);
    }
}

static void claims_compare_the_scores_of_tasks(void **state)
{
    static const double all[] = { 1, 1, 1 }, most[] = { 0.99, 0.98, 1 }, bad[] = { 0.5, 0.6, 0.4 };
    static const double close[] = { 0.96, 0.95, 0.97 }, one[] = { 1, 0, 1 }, two[] = { 1, NAN, 1 };
    static const struct {
        const double *score;
        int64_t cases;
        enum alibi_verdict verdict;
        bool few;
    } against[] = {
        { all, 100, ALIBI_CLAIM_HOLDS, false },       { most, 100, ALIBI_CLAIM_HOLDS, false },
        { all, 20, ALIBI_CLAIM_NOT_SHOWN, false }, /* 60 of 60: the interval begins at 0.94 */
        { close, 100, ALIBI_CLAIM_NOT_SHOWN, false }, { bad, 100, ALIBI_CLAIM_FAILS, false },
        { one, 100, ALIBI_CLAIM_NOT_SHOWN, false },  /* the seeds differ too much */
        { two, 1000, ALIBI_CLAIM_NOT_SHOWN, false }, /* one seed cannot tell */
    };
    alibi_experiment *e = open_experiment();
    struct outcome o;
    bool few;

    (void)state;
    assert_int_equal(verdict_on(e, 2, &few), ALIBI_CLAIM_NOT_MEASURED);
    for (size_t i = 0; i < sizeof against / sizeof *against; i++) {
        measure_task(e, 0, against[i].cases, against[i].score);
        assert_int_equal(verdict_on(e, 2, &few), against[i].verdict);
        assert_int_equal(few, against[i].few);
    }
    o = comparison_outcome(e, e->claim[2].comparison); /* `two` */
    assert_true(o.unlearned && isnan(o.d));
    e->model[0].seeds.count = 1; /* 100 of 100 are enough for one seed, and only for it */
    measure_task(e, 0, 100, all);
    assert_int_equal(verdict_on(e, 2, &few), ALIBI_CLAIM_HOLDS);
    assert_true(few);
    measure_task(e, 0, 70, all); /* Wilson's interval begins at 0.948 */
    assert_int_equal(verdict_on(e, 2, &few), ALIBI_CLAIM_NOT_SHOWN);
    e->model[0].seeds.count = 3;
    alibi_experiment_free(e);
}

static void claims_compare_the_scores_of_two_models(void **state)
{
    static const double high[] = { 0.97, 0.98, 0.96 }, low[] = { 0.5, 0.6, 0.4 };
    static const double none[] = { NAN, NAN, NAN };
    alibi_experiment *e = open_experiment();
    struct outcome o;
    bool few;

    (void)state;
    measure_task(e, 0, 400, high);
    assert_int_equal(verdict_on(e, 3, &few), ALIBI_CLAIM_NOT_MEASURED); /* the other is missing */
    measure_task(e, 2, 400, high);
    assert_int_equal(verdict_on(e, 3, &few), ALIBI_CLAIM_HOLDS); /* the same, within 0.05 */
    e->claim[3].comparison[0].margin = 0;
    assert_int_equal(verdict_on(e, 3, &few), ALIBI_CLAIM_NOT_SHOWN);
    measure_task(e, 2, 400, low);
    assert_int_equal(verdict_on(e, 3, &few), ALIBI_CLAIM_HOLDS);
    assert_false(few);
    o = comparison_outcome(e, e->claim[3].comparison);
    assert_close(o.d, 0.47, 1e-12);
    assert_int_equal(o.seeds, 3);
    e->claim[3].comparison[0].above = false;
    assert_int_equal(verdict_on(e, 3, &few), ALIBI_CLAIM_FAILS);
    measure_task(e, 2, 400, none);
    assert_int_equal(verdict_on(e, 3, &few), ALIBI_CLAIM_NOT_SHOWN);
    alibi_experiment_free(e);
}

/* Writes the results of the first model and reads them back in place of what there was. */
static struct alibi_task_cell *through_result_json(alibi_experiment *e)
{
    struct alibi_task_result *r = e->model[0].seed[0].measured[TASKS][0].task;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);
    json_t *file = NULL;

    r->at[0].length = 8;
    json_write_object(&w, NULL);
    tasks_write(&w, e, 0, 0);
    json_write_end(&w);
    assert_ok(text_status(&json));
    assert_ok(json_parse(&file, json.data, json.length, "result.json"));
    r->at[1] = (struct alibi_task_cell){ 0 };
    assert_ok(tasks_read(e, 0, 0, file, "result.json"));
    json_decref(file);
    text_free(&json);
    return &r->at[1];
}

/* One case has no error, and must not come back as one that is known exactly. */
static void the_score_of_a_single_case_has_no_error(void **state)
{
    static const double right[] = { 1, 1, 1 };
    alibi_experiment *e = open_experiment();

    (void)state;
    measure_task(e, 0, 1, right);
    e->model[0].seed[0].measured[TASKS][0].task->at[1].score.error = NAN;
    struct alibi_task_cell *cell = through_result_json(e);
    assert_int_equal(cell->cases, 1);
    assert_true(cell->score.value == 1 && isnan(cell->score.error));
    assert_non_null(tasks_cell(e, 0, 0, TASKS, 0, 1));
    alibi_experiment_free(e);
}

/* A chain in which nothing can be learned, as in windows of two tokens. */
static void a_case_without_a_score_reads_back_and_has_no_value(void **state)
{
    static const double right[] = { 1, 1, 1 };
    alibi_experiment *e = open_experiment();

    (void)state;
    measure_task(e, 0, 3, right);
    e->model[0].seed[0].measured[TASKS][0].task->at[1].score = (struct alibi_estimate){ NAN, NAN };
    assert_int_equal(through_result_json(e)->cases, 3);
    assert_null(tasks_cell(e, 0, 0, TASKS, 0, 1));
    alibi_experiment_free(e);
}

/* Chains need no text, whatever other models are tested on. */
static void a_text_is_read_if_a_model_needs_it(void **state)
{
    static const char json[] =
        "{ \"experiment\": 1, \"texts\": { \"none\": {}, \"words\": {},\n"
        "    \"real\": { \"tokenizer_of\": \"words\" } },\n"
        "  \"settings\": { \"layers\": 1, \"width\": 8, \"heads\": 2, \"steps\": 2,\n"
        "    \"train_length\": 64 },\n"
        "  \"models\": { \"chain\": { \"settings\": { \"mix\": \"task:markov=1\" } },\n"
        "    \"plain\": { \"text\": \"real\" } },\n"
        "  \"evaluations\": {\n"
        "    \"windows\": { \"lengths\": [64], \"tokens\": 64, \"models\": [\"plain\"] },\n"
        "    \"tasks\": { \"kind\": \"tasks\", \"lengths\": [64], \"cases\": 3,\n"
        "      \"tasks\": [\"markov\"], \"models\": [\"chain\"] } },\n"
        "  \"claims\": [] }\n";
    alibi_experiment *e = NULL;
    struct alibi_experiment_info info;
    char *path = path_in("texts.json");

    (void)state;
    write_file(path, json, strlen(json));
    assert_ok(alibi_experiment_open(&e, path, NULL));
    assert_false(text_is_read(e, 0));
    assert_true(text_is_read(e, 1));
    assert_true(text_is_read(e, 2));
    alibi_experiment_get_info(e, &info);
    assert_int_equal(info.texts_read, 2);
    alibi_experiment_free(e);
    mem_free(path);
}

/* ---- failures */

static alibi_status run_all(void *dir)
{
    alibi_status status;
    alibi_experiment *e = NULL;
    struct alibi_experiment_run how = { .builtin = { 1, 20000 } };
    char *path = NULL, *text = NULL;

    TRY(path_join(&path, folder, "tiny.json"));
    TRY(alibi_experiment_open(&e, path, NULL));
    TRY(alibi_experiment_run(e, test_device(), &how, dir, NULL));
    TRY(alibi_experiment_text(&text, e, 80, false));
out:
    alibi_text_free(text);
    alibi_experiment_free(e);
    mem_free(path);
    return status;
}

static char *results(const char *dir)
{
    char *path = NULL, *bytes = NULL;
    size_t length;

    assert_ok(path_join(&path, dir, "results.csv"));
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    mem_free(path);
    return bytes;
}

static void a_failure_leaks_nothing_and_loses_nothing(void **state)
{
    char *dir = path_in("out"), *before, *after;

    (void)state;
    alibi_experiment_free(open_experiment());
    assert_ok(run_all(dir));
    before = results(dir);
    assert_non_null(strstr(before, ",swapped,repeats,")); /* fixed targets have values */
    assert_non_null(strstr(before, ",markov,3,"));        /* and so have tasks */
    assert_true(fail_each_call("memory", run_all, dir, ALIBI_MEMORY, "") > 10);
    assert_true(fail_each_call("file", run_all, dir, ALIBI_IO, "") > 10);
    assert_ok(run_all(dir));
    after = results(dir);
    assert_string_equal(before, after);
    mem_free(after);
    mem_free(before);
    mem_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_has_its_line),
        cmocka_unit_test_setup_teardown(a_file_deeper_than_any_section_is_refused, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(lists_of_values_make_models, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(verdicts_follow_the_interval_and_the_margin, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(claims_compare_the_losses_of_fixed_targets, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(the_verdict_on_far_text_is_of_all_seeds, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(only_models_that_gain_have_a_share_of_the_ceiling,
                                        make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(claims_compare_the_scores_of_tasks, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(claims_compare_the_scores_of_two_models, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(the_score_of_a_single_case_has_no_error, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(a_case_without_a_score_reads_back_and_has_no_value,
                                        make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_text_is_read_if_a_model_needs_it, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(a_failure_leaks_nothing_and_loses_nothing, make_folder,
                                        drop_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
