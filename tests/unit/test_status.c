/* test_status.c - messages: one line, one per thread, kept for another thread */
#include "check.h"

#include <pthread.h>

#include "base/base.h"

static void message_names_what_failed_and_returns_the_status(void **state)
{
    (void)state;
    assert_int_equal(fail(ALIBI_IO, "cannot open '%s': line %d", "x", 3), ALIBI_IO);
    assert_string_equal(alibi_error(), "cannot open 'x': line 3");
}

static void message_may_contain_the_message_before_it(void **state)
{
    (void)state;
    fail(ALIBI_IO, "inner");
    fail(ALIBI_IO, "outer of %s and %s", alibi_error(), alibi_error());
    assert_string_equal(alibi_error(), "outer of inner and inner");
}

static void context_precedes_the_reason(void **state)
{
    (void)state;
    fail(ALIBI_USAGE, "0 is out of range");
    assert_int_equal(fail_context(ALIBI_BAD_INPUT, "'%s' line %d", "r.json", 4), ALIBI_BAD_INPUT);
    assert_string_equal(alibi_error(), "'r.json' line 4: 0 is out of range");
}

static void message_is_one_line_of_valid_text_whatever_its_arguments_hold(void **state)
{
    (void)state;
    fail(ALIBI_IO, "a '%s' b", "x\ny\r\t\033[2J\x7f\xc2\x9bz\xff\xc3");
    assert_string_equal(alibi_error(), "a 'x?y???[2J???z?\?' b");
    fail(ALIBI_IO, "%s", "größer 漢字 🙂");
    assert_string_equal(alibi_error(), "größer 漢字 🙂");
}

static void message_that_is_too_long_is_cut_and_says_so(void **state)
{
    char long_text[5000];

    (void)state;
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    fail(ALIBI_IO, "%s", long_text);
    assert_int_equal(strlen(alibi_error()), 1023);
    assert_string_equal(alibi_error() + 1020, "...");
    fail_context(ALIBI_IO, "%s", long_text);
    assert_int_equal(strlen(alibi_error()), 1023);
    fail(ALIBI_IO, "reason");
    fail_context(ALIBI_IO, "%.1019s", long_text);
    assert_string_equal(alibi_error() + 1019, ":...");
}

static void *fail_in_thread(void *unused)
{
    (void)unused;
    fail(ALIBI_IO, "of the other thread");
    return NULL;
}

static void each_thread_has_its_own_message(void **state)
{
    pthread_t thread;

    (void)state;
    fail(ALIBI_IO, "of this thread");
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(alibi_error(), "of this thread");
}

static void version_is_not_empty(void **state)
{
    (void)state;
    assert_true(strlen(alibi_version()) > 0);
}

static void a_failure_is_raised_in_another_thread_as_it_was(void **state)
{
    struct failure kept = { 0 };

    (void)state;
    assert_ok(failure_raise(&kept));
    failure_keep(&kept, fail(ALIBI_IO, "cannot read 'a'"));
    fail(ALIBI_MEMORY, "another one since");
    assert_fails(failure_raise(&kept), ALIBI_IO, "cannot read 'a'");
    assert_fails(failure_raise(&kept), ALIBI_IO, "cannot read 'a'");
    failure_keep(&kept, ALIBI_OK);
    assert_ok(failure_raise(&kept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_names_what_failed_and_returns_the_status),
        cmocka_unit_test(message_may_contain_the_message_before_it),
        cmocka_unit_test(context_precedes_the_reason),
        cmocka_unit_test(message_is_one_line_of_valid_text_whatever_its_arguments_hold),
        cmocka_unit_test(message_that_is_too_long_is_cut_and_says_so),
        cmocka_unit_test(each_thread_has_its_own_message),
        cmocka_unit_test(version_is_not_empty),
        cmocka_unit_test(a_failure_is_raised_in_another_thread_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
