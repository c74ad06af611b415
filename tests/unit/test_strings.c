/* test_strings.c - text buffers and UTF-8 */
#include "check.h"

#include <locale.h>

#include "base/json.h"

/* ---- text buffers */

static void text_grows_and_is_always_terminated(void **state)
{
    struct text t = { 0 };
    size_t before = alibi_memory_now();

    (void)state;
    text_append(&t, "%s", "");
    assert_string_equal(t.data, "");
    for (int i = 0; i < 1000; i++)
        text_append(&t, "%03d,", i);
    assert_int_equal(t.length, 4000);
    assert_int_equal(strlen(t.data), 4000);
    assert_memory_equal(t.data + 3996, "999,", 5);
    text_append_bytes(&t, "a\0b", 3);
    assert_int_equal(t.length, 4003);
    assert_memory_equal(t.data + 4000, "a\0b", 4);
    text_free(&t);
    assert_null(t.data);
    assert_int_equal(alibi_memory_now(), before);
}

static void text_that_cannot_grow_keeps_what_it_has(void **state)
{
    struct text t = { 0 };

    (void)state;
    text_append(&t, "abc");
    assert_ok(alibi_inject_fault("memory", 1));
    text_append(&t, "%1000d", 1);
    assert_fails(text_status(&t), ALIBI_MEMORY, "a text");
    assert_string_equal(t.data, "abc");
    text_append_bytes(&t, (char[1000]){ 0 }, 1000);
    assert_string_equal(t.data, "abc");
    assert_fails(text_status(&t), ALIBI_MEMORY, "a text");
    text_free(&t);
}

static void keep_line(void *user, enum alibi_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 16, "%s", line);
}

static void numbers_have_a_point_in_every_locale(void **state)
{
    char noted[16] = "", printed[16];
    const char *const commas[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ru_RU.UTF-8" };
    struct text t = { 0 };
    int i = 0;

    (void)state;
    while (i < 4 && setlocale(LC_NUMERIC, commas[i]) == NULL)
        i++;
    if (i == 4)
        skip_because("no locale with a decimal comma");
    text_append(&t, "%.1f ", 0.5);
    json_append_real(&t, 0.25);
    assert_int_equal(text_print(printed, sizeof printed, "%.17g", 0.125), 5);
    fail(ALIBI_USAGE, "%g is out of range", 0.5);
    fail_context(ALIBI_USAGE, "%.2f", 1.5);
    call_note(&(struct alibi_call){ .log = keep_line, .user = noted }, "%g", 2.5);
    setlocale(LC_NUMERIC, "C");
    assert_ok(text_status(&t));
    assert_string_equal(t.data, "0.5 0.25");
    assert_string_equal(alibi_error(), "1.50: 0.5 is out of range");
    assert_string_equal(noted, "2.5");
    assert_string_equal(printed, "0.125");
    text_free(&t);
}

static void copies_are_the_callers_to_free(void **state)
{
    char *copy = NULL;
    size_t before = alibi_memory_now();

    (void)state;
    assert_ok(text_copy(&copy, "abc"));
    assert_string_equal(copy, "abc");
    alibi_text_free(copy);
    alibi_text_free(NULL);
    assert_int_equal(alibi_memory_now(), before);
}

static void a_text_remembers_its_first_failure(void **state)
{
    struct text text = { 0 };

    (void)state;
    text_append(&text, "begin");
    assert_ok(alibi_inject_fault("memory", 1));
    for (int i = 0; i < 100; i++)
        text_append(&text, "0123456789");
    assert_ok(alibi_inject_fault("memory", 0));
    text_append(&text, "end");
    assert_fails(text_status(&text), ALIBI_MEMORY, "memory");
    assert_true(text.length < 1000);
    assert_null(strstr(text.data, "end"));
    text_free(&text);
}

/* ---- UTF-8 */

static void valid_utf8_is_taken_whole(void **state)
{
    const char text[] =
        "a\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";

    (void)state;
    assert_int_equal(utf8_valid_prefix(text, sizeof text), sizeof text);
    assert_int_equal(utf8_valid_prefix("", 0), 0);
}

/* Long stretches of ASCII are passed over many bytes at a time. */
static void broken_utf8_is_found_at_every_place(void **state)
{
    enum { LENGTH = 40 };
    char text[LENGTH];

    (void)state;
    for (size_t at = 0; at < LENGTH; at++)
        for (size_t start = 0; start <= at; start++) {
            memset(text, 'a', LENGTH);
            assert_int_equal(utf8_valid_prefix(text + start, at - start), at - start);
            text[at] = '\xFF';
            assert_int_equal(utf8_valid_prefix(text + start, LENGTH - start), at - start);
            text[at] = '\xC3'; /* followed by 'a', or by nothing */
            assert_int_equal(utf8_valid_prefix(text + start, LENGTH - start), at - start);
        }
}

static void broken_utf8_ends_the_prefix(void **state)
{
    const char *const broken[] = {
        "\x80",             /* continuation without a lead */
        "\xc0\x80",         /* overlong */
        "\xc1\xbf",         /* overlong */
        "\xc2",             /* cut */
        "\xc2\x41",         /* lead without continuation */
        "\xe0\x9f\xbf",     /* overlong */
        "\xed\xa0\x80",     /* surrogate */
        "\xe2\x82",         /* cut */
        "\xe2\x82\x41",     /* third byte no continuation */
        "\xf0\x8f\xbf\xbf", /* overlong */
        "\xf0\x9f\x99",     /* cut */
        "\xf4\x90\x80\x80", /* beyond U+10FFFF */
        "\xf5\x80\x80\x80",
        "\xff",
    };

    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char text[16];
        int length = snprintf(text, sizeof text, "ab%s", broken[i]);
        assert_int_equal(utf8_valid_prefix(text, (size_t)length), 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows_and_is_always_terminated),
        cmocka_unit_test(text_that_cannot_grow_keeps_what_it_has),
        cmocka_unit_test(numbers_have_a_point_in_every_locale),
        cmocka_unit_test(copies_are_the_callers_to_free),
        cmocka_unit_test(a_text_remembers_its_first_failure),
        cmocka_unit_test(valid_utf8_is_taken_whole),
        cmocka_unit_test(broken_utf8_is_found_at_every_place),
        cmocka_unit_test(broken_utf8_ends_the_prefix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
