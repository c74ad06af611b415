/* The page of a folder: the same as the comparison wrote, what there is of an unfinished one, and
 * that of a training run */
#include "unit/comparison.h"

static char *read_page(const char *dir)
{
    char *bytes = NULL;
    size_t length;

    assert_ok(file_read_all(&bytes, &length, within(dir, "report.html"), 1 << 24));
    return bytes;
}

static void assert_page(const char *dir, const char *part, bool wanted)
{
    char *page = read_page(dir);

    if ((strstr(page, part) != NULL) != wanted)
        fail_msg("'%s' is %s the page", part, wanted ? "missing in" : "in");
    mem_free(page);
}

static void a_finished_comparison_gets_the_page_it_had(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *before, *after;
    bool finished = false;

    (void)state;
    s.compare.seeds = (struct alibi_int_list){ 2, { 5, 3 } };
    s.training.eval_every = 3;
    assert_ok(try_run(&s, dir));
    before = read_page(dir);
    assert_non_null(strstr(before, "fig-train-title"));
    assert_ok(file_remove(within(dir, "report.html")));
    assert_ok(alibi_report_write(dir, 5, &finished));
    assert_true(finished);
    after = read_page(dir);
    assert_string_equal(before, after);
    mem_free(before);
    mem_free(after);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void an_unfinished_comparison_gets_a_page_of_what_there_is(void **state)
{
    struct setting s = tiny();
    struct alibi_compare_result *r = NULL;
    char *dir = temporary_folder();
    bool finished = true;

    (void)state;
    assert_int_equal(run_with_stop(&s, dir, 1, &r), ALIBI_INTERRUPTED);
    assert_ok(alibi_report_write(dir, 0, &finished));
    assert_page(dir, " parameters, ", false); /* no model is trained */
    /* The second method is in training when it stops. */
    for (int stop = 1; !file_exists(within(dir, "learned/log.jsonl")); stop++)
        assert_int_equal(run_with_stop(&s, dir, stop, &r), ALIBI_INTERRUPTED);
    assert_ok(alibi_report_write(dir, 5, &finished));
    assert_false(finished);
    assert_page(dir, "Unfinished: 1 of 2 models are done; learned is at step ", true);
    assert_page(dir, "http-equiv=\"refresh\" content=\"5\"", true);
    assert_page(dir, "<dt>tokenizer</dt><dd>bytes</dd>", true);
    assert_page(dir, "has no value", false); /* learned was not tested yet */
    assert_ok(alibi_report_write(dir, 0, &finished));
    assert_page(dir, "http-equiv=\"refresh\"", false);
    assert_ok(try_run(&s, dir));
    assert_ok(alibi_report_write(dir, 5, &finished));
    assert_true(finished);
    assert_page(dir, "Unfinished", false);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* Its result.json gives no evaluations, so the page would be empty. */
static void the_page_of_an_older_version_is_not_replaced(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder(), *before, *after;
    bool finished;

    (void)state;
    assert_ok(try_run(&s, dir));
    before = read_page(dir);
    assert_ok(file_remove(within(dir, "alibi/result.json")));
    assert_fails(alibi_report_write(dir, 0, &finished), ALIBI_BAD_INPUT, "older version");
    after = read_page(dir);
    assert_string_equal(before, after);
    mem_free(before);
    mem_free(after);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static alibi_status train_run(const struct setting *s, const char *dir)
{
    struct alibi_train_result result;

    return alibi_train(test_device(), &s->config, &s->training, s->corpus, dir, false, &result,
                       test_call());
}

static void a_run_gets_a_page_and_a_line_being_written_is_not_read(void **state)
{
    static const char half[] = "{\"step\": 7, \"lo", damaged[] = "{\"step\": 7, \"lo\n";
    struct setting s = tiny();
    char *dir = temporary_folder(), *log = NULL;
    size_t length;
    struct text longer = { 0 };
    bool finished = false;

    (void)state;
    snprintf(s.config.position, sizeof s.config.position, "rotary");
    s.training.eval_every = 2;
    assert_ok(train_run(&s, dir));
    assert_ok(alibi_report_write(dir, 5, &finished));
    assert_true(finished);
    assert_page(dir, "<h1>rotary after 6 steps</h1>", true);
    assert_page(dir, "fig-valid-title", true);
    assert_page(dir, "<dt>tokens</dt>", false); /* not known */
    assert_ok(file_read_all(&log, &length, within(dir, "log.jsonl"), 1 << 20));
    text_append(&longer, "%s%s", log, half);
    write_file(within(dir, "log.jsonl"), longer.data, longer.length);
    assert_ok(alibi_report_write(dir, 5, &finished));
    longer.length = 0;
    text_append(&longer, "%s%s", log, damaged);
    write_file(within(dir, "log.jsonl"), longer.data, longer.length);
    assert_fails(alibi_report_write(dir, 5, &finished), ALIBI_BAD_INPUT, "log.jsonl");
    text_free(&longer);
    mem_free(log);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

/* Three runs, two of which have the same last folder; the second is not finished. */
struct three_runs {
    char *dir;
    const char *runs[3];
    char path[3][512], page[512];
};

static void make_runs(struct three_runs *r, struct setting *s)
{
    static const char *const names[] = { "one/alibi", "two/alibi", "slow & \"quick\"" };

    r->dir = temporary_folder();
    snprintf(r->page, sizeof r->page, "%s/runs.html", r->dir);
    s->training.eval_every = 2;
    for (int i = 0; i < 3; i++) {
        snprintf(r->path[i], sizeof r->path[i], "%s/%s", r->dir, names[i]);
        r->runs[i] = r->path[i];
        s->training.lr = i == 2 ? 0.00125 : 0.01;
        s->training.steps = i == 1 ? 4 : 6;
        assert_ok(train_run(s, r->runs[i]));
    }
}

static alibi_status write_runs(void *user)
{
    struct three_runs *r = user;
    bool finished;

    return alibi_report_runs(r->runs, 3, r->page, 5, &finished);
}

static void assert_runs_page(const struct three_runs *r, const char *text, bool has)
{
    char *page = NULL;
    size_t length;

    assert_ok(file_read_all(&page, &length, r->page, 1 << 24));
    if ((strstr(page, text) != NULL) != has)
        fail_msg("the page of runs has%s '%s'", has ? " not" : "", text);
    mem_free(page);
}

static void several_runs_get_one_page_with_what_they_differ_in(void **state)
{
    struct setting s = tiny();
    struct three_runs r;
    bool finished = false;

    (void)state;
    make_runs(&r, &s);
    assert_ok(alibi_report_runs(r.runs, 3, r.page, 5, &finished));
    assert_true(finished);
    assert_runs_page(&r, "<h1>3 runs</h1>", true);
    assert_runs_page(&r, "one/alibi", true);
    assert_runs_page(&r, "slow &amp; &quot;quick&quot;", true);
    assert_runs_page(&r, "<th scope=\"row\">lr</th><td>0.01</td><td>0.01</td><td>0.00125</td>",
                     true);
    assert_runs_page(&r, "<th scope=\"row\">steps</th><td>6</td><td>4</td><td>6</td>", true);
    assert_runs_page(&r, "<th scope=\"row\">batch</th>", false);
    assert_runs_page(&r, "The lowest validation loss so far", true);
    assert_runs_page(&r, "refresh\"", false);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(r.dir);
}

static void the_page_of_runs_says_how_far_each_is(void **state)
{
    struct setting s = tiny();
    struct three_runs r;
    char log[600], *bytes = NULL;
    size_t length;
    bool finished = true;

    (void)state;
    make_runs(&r, &s);
    snprintf(log, sizeof log, "%s/log.jsonl", r.runs[2]); /* as it was after its first step */
    assert_ok(file_read_all(&bytes, &length, log, 1 << 20));
    write_file(log, bytes, (size_t)(strchr(bytes, '\n') + 1 - bytes));
    assert_ok(alibi_report_runs(r.runs, 3, r.page, 5, &finished));
    assert_false(finished);
    assert_runs_page(&r, "2 of 3 models are done; slow &amp; &quot;quick&quot; is at step 1 of 6",
                     true);
    assert_runs_page(&r, "http-equiv=\"refresh\" content=\"5\"", true);
    mem_free(bytes);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(r.dir);
}

static void a_failure_leaves_the_page_of_runs_whole(void **state)
{
    struct setting s = tiny();
    struct three_runs r;

    (void)state;
    make_runs(&r, &s);
    assert_ok(write_runs(&r));
    assert_true(fail_each_call("memory", write_runs, &r, ALIBI_MEMORY, "") > 10);
    assert_true(fail_each_call("file", write_runs, &r, ALIBI_IO, "") > 10);
    assert_runs_page(&r, "</html>", true);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(r.dir);
}

static alibi_status write_again(void *dir)
{
    bool finished;

    return alibi_report_write(dir, 0, &finished);
}

static void a_failure_leaks_nothing_and_leaves_a_whole_page(void **state)
{
    struct setting s = tiny();
    char *dir = temporary_folder();

    (void)state;
    assert_ok(try_run(&s, dir));
    assert_true(fail_each_call("memory", write_again, dir, ALIBI_MEMORY, "") > 10);
    assert_page(dir, "</html>", true);
    assert_true(fail_each_call("file", write_again, dir, ALIBI_IO, "") > 10);
    assert_page(dir, "</html>", true);
    alibi_corpus_free(s.corpus);
    remove_temporary_folder(dir);
}

static void another_folder_is_refused(void **state)
{
    char *dir = temporary_folder();
    bool finished;

    (void)state;
    assert_fails(alibi_report_write(dir, 0, &finished), ALIBI_BAD_INPUT,
                 "holds no comparison, experiment or training run");
    remove_temporary_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_finished_comparison_gets_the_page_it_had),
        cmocka_unit_test(an_unfinished_comparison_gets_a_page_of_what_there_is),
        cmocka_unit_test(the_page_of_an_older_version_is_not_replaced),
        cmocka_unit_test(a_run_gets_a_page_and_a_line_being_written_is_not_read),
        cmocka_unit_test(several_runs_get_one_page_with_what_they_differ_in),
        cmocka_unit_test(the_page_of_runs_says_how_far_each_is),
        cmocka_unit_test(a_failure_leaves_the_page_of_runs_whole),
        cmocka_unit_test(a_failure_leaks_nothing_and_leaves_a_whole_page),
        cmocka_unit_test(another_folder_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
