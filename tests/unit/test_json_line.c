/* test_json_line.c - the text out of a line of JSON, and every way a line can be wrong */
#include "check.h"

#include "formats/formats.h"

enum { LINE_NUMBER = 12 };

/* The line has memory of its exact size, so that the sanitizer detects a read beyond it. */
static alibi_status take_bytes(struct text *out, const char *line, size_t length)
{
    char *exact = exact_copy(line, length);
    alibi_status status =
        json_line_field(out, (struct slice){ exact, length }, "text", "d.jsonl", LINE_NUMBER);

    free(exact);
    return status;
}

static void assert_text(const char *line, const char *expected)
{
    struct text out = { 0 };

    assert_ok(take_bytes(&out, line, strlen(line)));
    assert_string_equal(out.data, expected);
    assert_int_equal(out.length, strlen(expected));
    text_free(&out);
}

static void assert_refused(const char *line, const char *part)
{
    struct text out = { 0 };

    text_append(&out, "before");
    assert_fails(take_bytes(&out, line, strlen(line)), ALIBI_BAD_INPUT,
                 "cannot read 'd.jsonl:12': ");
    if (strstr(alibi_error(), part) == NULL)
        fail_msg("%s: '%s' has no '%s'", line, alibi_error(), part);
    assert_int_equal(out.length, 6);
    text_free(&out);
}

/* ---- valid lines */

static void text_is_found_wherever_it_stands(void **state)
{
    (void)state;
    assert_text("{\"text\":\"a\"}", "a");
    assert_text(" \t{ \"text\" : \"a\" } \r", "a");
    assert_text("{\"id\":7,\"text\":\"a b\",\"meta\":{\"text\":\"not this\"}}", "a b");
    assert_text("{\"meta\":{\"text\":[\"not\",\"this\"]},\"text\":\"this\"}", "this");
    assert_text(
        "{\"a\":true,\"b\":false,\"c\":null,\"d\":-0.5e+10,\"e\":[],\"f\":{},\"g\":[1,[2,{\"h\":\"i\"}]],\"text\":\"\"}",
        "");
    assert_text("{\"te\\u0078t\":\"escaped key\"}", "escaped key");
    assert_text("{\"Text\":\"no\",\"text \":\"no\",\"text\":\"yes\",\"tex\":\"no\"}", "yes");
    assert_text("{\"a\":\"twice\",\"a\":\"is another's affair\",\"text\":\"x\"}", "x");
}

static void escapes_become_what_they_stand_for(void **state)
{
    (void)state;
    assert_text("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t");
    assert_text("{\"text\":\"\\u0041\\u00e9\\u20AC\\ud83d\\ude42\"}",
                "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82");
    assert_text("{\"text\":\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82\"}",
                "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82");
}

static void text_is_appended_to_what_is_there(void **state)
{
    struct text out = { 0 };

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_ok(
            take_bytes(&out, "{\"a\":\"zzzzzzzzzzzz\",\"text\":\"ab\",\"b\":\"yyyyyyy\"}", 46));
    assert_int_equal(out.length, 200);
    for (int i = 0; i < 200; i++)
        assert_int_equal(out.data[i], i % 2 == 0 ? 'a' : 'b');
    text_free(&out);
}

static void other_strings_may_hold_what_a_text_may_not(void **state)
{
    (void)state;
    assert_text("{\"a\\u0000\":\"\\u0000\",\"text\":\"x\"}", "x");
    assert_text("{\"text\\u0000\":\"no\",\"text\":\"x\"}", "x");
}

/* ---- defects */

static void members_that_cannot_be_the_text_are_named(void **state)
{
    (void)state;
    assert_refused("{}", "'text' is missing from the object that ends at byte 2");
    assert_refused("{\"a\":{\"text\":\"deeper\"}}", "'text' is missing");
    assert_refused("{\"text\":\"a\",\"text\":\"b\"}", "there is a second 'text' at byte 19");
    assert_refused("{\"text\":\"a\",\"text\":7}", "there is a second 'text'");
    assert_refused("{\"text\":7}", "'text' is not a string at byte 8");
    assert_refused("{\"text\":null}", "'text' is not a string at byte 8");
    assert_refused("{\"text\":[\"a\"]}", "'text' is not a string at byte 8");
    assert_refused("{\"text\":{\"text\":\"a\"}}", "'text' is not a string at byte 8");
    assert_refused("{\"text\":\"a\\u0000b\"}",
                   "'text' is not text: U+0000 is in the string at byte 8");
}

static void what_is_no_object_is_refused(void **state)
{
    (void)state;
    assert_refused("", "'{' expected at byte 0");
    assert_refused("  ", "'{' expected at byte 2");
    assert_refused("[\"text\"]", "'{' expected at byte 0");
    assert_refused("\"text\"", "'{' expected at byte 0");
    assert_refused("text", "'{' expected at byte 0");
    assert_refused("\xEF\xBB\xBF{\"text\":\"a\"}", "'{' expected at byte 0");
    assert_refused("{\"text\":\"a\"} x", "the end of the line expected at byte 13");
    assert_refused("{\"text\":\"a\"}{\"text\":\"b\"}", "the end of the line expected at byte 12");
}

static void halves_of_a_surrogate_pair_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"text\":\"\\ud83d\"}", "a pair of surrogates expected at byte 15");
    assert_refused("{\"text\":\"\\ude42\"}", "a pair of surrogates expected at byte 15");
    assert_refused("{\"text\":\"\\ud83dx\\ude42\"}", "a pair of surrogates");
    assert_refused("{\"text\":\"\\ud83d\\u0041\"}", "a pair of surrogates");
    assert_refused("{\"other\":\"\\ud83d\",\"text\":\"a\"}", "a pair of surrogates");
}

static void malformed_lines_are_refused_wherever_the_defect_is(void **state)
{
    static const char *const lines[][2] = {
        { "{", "'\"' expected at byte 1" },
        { "{\"text\"", "':' expected at byte 7" },
        { "{\"text\":", "'text' is not a string at byte 8" },
        { "{\"text\":\"", "'\"' or a printable character expected at byte 9" },
        { "{\"text\":\"a", "'\"' or a printable character expected at byte 10" },
        { "{\"text\":\"a\"", "'}' expected at byte 11" },
        { "{\"text\":\"a\",", "'\"' expected at byte 12" },
        { "{\"text\":\"a\",}", "'\"' expected at byte 12" },
        { "{,\"text\":\"a\"}", "'\"' expected at byte 1" },
        { "{text:\"a\"}", "'\"' expected at byte 1" },
        { "{'text':'a'}", "'\"' expected at byte 1" },
        { "{\"text\" \"a\"}", "':' expected at byte 8" },
        { "{\"text\":\"a\" \"b\":1}", "'}' expected at byte 12" },
        { "{\"text\":\"a\tb\"}", "a printable character expected at byte 10" },
        { "{\"text\":\"a\\x\"}", "an escape of JSON expected" },
        { "{\"text\":\"\\u12g4\"}", "four hexadecimal digits expected" },
        { "{\"text\":\"a\",\"b\":}", "a value expected at byte 16" },
        { "{\"text\":\"a\",\"b\":tru}", "a value expected" },
        { "{\"text\":\"a\",\"b\":truex}", "'}' expected" },
        { "{\"text\":\"a\",\"b\":NaN}", "a value expected" },
        { "{\"text\":\"a\",\"b\":01}", "'}' expected" },
        { "{\"text\":\"a\",\"b\":1.}", "a digit expected" },
        { "{\"text\":\"a\",\"b\":-}", "a digit expected" },
        { "{\"text\":\"a\",\"b\":1e}", "a digit expected" },
        { "{\"text\":\"a\",\"b\":+1}", "a value expected" },
        { "{\"text\":\"a\",\"b\":[1,]}", "a value expected" },
        { "{\"text\":\"a\",\"b\":[1}", "']' expected" },
        { "{\"text\":\"a\",\"b\":{\"c\":1]}", "'}' expected" },
        { "{\"text\":\"a\",\"b\":{\"c\"}}", "':' expected" },
        { "{\"text\":\"a\",\"b\":\"\\q\"}", "an escape of JSON expected" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_refused(lines[i][0], lines[i][1]);
}

static void bytes_that_are_not_utf_8_are_refused_with_their_place(void **state)
{
    (void)state;
    assert_refused("{\"text\":\"a\xFF\"}", "0xff is not UTF-8 at byte 10");
    assert_refused("{\"other\":\"\xC3\",\"text\":\"a\"}", "0xc3 is not UTF-8 at byte 10");
    assert_refused("{\"text\":\"\xED\xA0\x80\"}", "0xed is not UTF-8 at byte 9");
}

static void zero_bytes_are_refused(void **state)
{
    struct text out = { 0 };

    (void)state;
    assert_fails(take_bytes(&out, "{\"text\":\"a\0b\"}", 14), ALIBI_BAD_INPUT,
                 "a printable character expected at byte 10");
    assert_fails(take_bytes(&out, "{\"text\":\"a\"}\0", 13), ALIBI_BAD_INPUT,
                 "the end of the line expected at byte 12");
    text_free(&out);
}

/* A million brackets need neither a million frames of a stack nor a million bytes. */
static void depth_is_bounded(void **state)
{
    enum { DEEP = 1000000 };
    struct text line = { 0 }, out = { 0 };
    const char *const opens[] = { "[", "{\"a\":" };

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        line.length = 0;
        text_append(&line, "{\"text\":\"a\",\"b\":");
        for (int i = 0; i < DEEP; i++)
            text_append_bytes(&line, opens[kind], strlen(opens[kind]));
        assert_fails(take_bytes(&out, line.data, line.length), ALIBI_BAD_INPUT,
                     "more than 128 levels");
    }
    text_free(&line);
    text_free(&out);
}

static void every_prefix_and_every_changed_byte_is_read_or_refused(void **state)
{
    static const char line[] =
        "{\"a\":[1,-2.5e3,{\"b\":null}],\"text\":\"x\\u00e9\\ud83d\\ude42\xC3\xA9y\",\"z\":\"\\n\"}";
    enum { LENGTH = sizeof line - 1 };
    struct text out = { 0 };

    (void)state;
    for (size_t length = 0; length < LENGTH; length++)
        assert_int_equal(take_bytes(&out, line, length), ALIBI_BAD_INPUT);
    for (size_t at = 0; at < LENGTH; at++)
        for (int byte = 0; byte < 256; byte++) {
            char changed[LENGTH];
            memcpy(changed, line, LENGTH);
            changed[at] = (char)byte;
            out.length = 0;
            if (take_bytes(&out, changed, LENGTH) == ALIBI_OK)
                assert_int_equal(utf8_valid_prefix(out.data, out.length), out.length);
        }
    text_free(&out);
}

static void failing_allocation_is_reported(void **state)
{
    struct text out = { 0 };

    (void)state;
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(take_bytes(&out, "{\"text\":\"a\"}", 12), ALIBI_MEMORY, "a line of JSON");
    assert_ok(alibi_inject_fault("memory", 0));
    assert_null(out.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_found_wherever_it_stands),
        cmocka_unit_test(escapes_become_what_they_stand_for),
        cmocka_unit_test(text_is_appended_to_what_is_there),
        cmocka_unit_test(other_strings_may_hold_what_a_text_may_not),
        cmocka_unit_test(members_that_cannot_be_the_text_are_named),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(halves_of_a_surrogate_pair_are_refused),
        cmocka_unit_test(malformed_lines_are_refused_wherever_the_defect_is),
        cmocka_unit_test(bytes_that_are_not_utf_8_are_refused_with_their_place),
        cmocka_unit_test(zero_bytes_are_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(every_prefix_and_every_changed_byte_is_read_or_refused),
        cmocka_unit_test(failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
