/* test_call.c - the context of a call: its log, its progress, its stop flag; and the clock */
#include "check.h"

#include "base/base.h"

struct heard {
    int lines, reports;
    enum alibi_log_level level;
    char line[2048];
    int64_t done;
};

static void hear_line(void *user, enum alibi_log_level level, const char *line)
{
    struct heard *h = user;

    h->lines++;
    h->level = level;
    snprintf(h->line, sizeof h->line, "%s", line);
}

static void hear_progress(void *user, const struct alibi_progress *p)
{
    struct heard *h = user;

    h->reports++;
    h->done = p->done;
}

static void a_call_is_heard_by_its_own_callbacks_only(void **state)
{
    struct heard heard = { 0 };
    struct alibi_call loud = { .user = &heard, .progress = hear_progress, .log = hear_line };
    struct alibi_call silent = { 0 };
    struct alibi_progress progress = { .task = "train", .done = 7 };

    (void)state;
    call_warn(&loud, "step %d: '%s'", 3, "a\nb");
    assert_string_equal(heard.line, "step 3: 'a?b'");
    assert_int_equal(heard.level, ALIBI_WARNING);
    call_note(&loud, "note");
    assert_int_equal(heard.level, ALIBI_NOTE);
    call_progress(&loud, &progress);
    assert_int_equal(heard.done, 7);
    call_note(&silent, "to nobody");
    call_warn(NULL, "to nobody");
    call_progress(&silent, &progress);
    call_progress(NULL, &progress);
    assert_int_equal(heard.lines, 2);
    assert_int_equal(heard.reports, 1);
}

static void a_stop_stays_requested_and_stops_only_its_own_calls(void **state)
{
    struct alibi_stop one = { 0 }, other = { 0 };
    struct alibi_call call = { .stop = &one }, another = { .stop = &other }, endless = { 0 };

    (void)state;
    assert_false(call_stopped(&call));
    alibi_stop_request(&one);
    assert_true(call_stopped(&call));
    assert_true(call_stopped(&call));
    assert_true(alibi_stop_requested(&one));
    assert_false(call_stopped(&another));
    assert_false(call_stopped(&endless));
    assert_false(call_stopped(NULL));
    assert_false(alibi_stop_requested(NULL));
}

static void clock_does_not_go_back(void **state)
{
    double before = clock_seconds();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        double now = clock_seconds();
        assert_true(now >= before);
        before = now;
    }
}

static void the_date_is_that_of_source_date_epoch_if_it_is_a_time(void **state)
{
    static const char *const bad[] = { "", "x", "12x", "-1", "999999999999999" };
    char date[ALIBI_DATE_MAX];

    (void)state;
    setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
    alibi_date(date);
    assert_string_equal(date, "2023-11-14T22:13:20Z");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("SOURCE_DATE_EPOCH", bad[i], 1);
        alibi_date(date);
        assert_int_equal(strlen(date), 20);
        assert_true(strcmp(date, "2026") > 0); /* the clock's */
    }
    unsetenv("SOURCE_DATE_EPOCH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_heard_by_its_own_callbacks_only),
        cmocka_unit_test(a_stop_stays_requested_and_stops_only_its_own_calls),
        cmocka_unit_test(clock_does_not_go_back),
        cmocka_unit_test(the_date_is_that_of_source_date_epoch_if_it_is_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
