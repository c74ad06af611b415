/* test_json.c - JSON: parsing with places and limits, checked members, the writer */
#include "check.h"

#include "base/json.h"

/* ---- reading */

static void json_errors_name_path_line_and_column(void **state)
{
    json_t *json = NULL;
    size_t before = alibi_memory_now();
    const char broken[] = "{\n  \"a\": 1,\n  \"b\": }\n";
    const char twice[] = "{\"a\": 1,\n\"a\": 2}";
    const char not_utf8[] = "\"\xff\"";

    (void)state;
    assert_fails(json_parse(&json, broken, strlen(broken), "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 3, column 8: ");
    assert_fails(json_parse(&json, twice, strlen(twice), "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 2");
    assert_fails(json_parse(&json, not_utf8, strlen(not_utf8), "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 1");
    assert_fails(json_parse(&json, "{} x", 4, "r.json"), ALIBI_BAD_INPUT, "'r.json' line 1");
    assert_fails(json_parse(&json, "[9223372036854775808]", 21, "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 1");
    assert_fails(json_parse(&json, "", 0, "r.json"), ALIBI_BAD_INPUT, "'r.json': it is empty");
    assert_null(json);
    assert_int_equal(alibi_memory_now(), before);
}

static void json_that_is_too_deep_is_an_error(void **state)
{
    enum { DEPTH = 100000 };
    json_t *json = NULL;
    char *text = malloc(DEPTH);

    (void)state;
    assert_non_null(text);
    memset(text, '[', DEPTH);
    assert_fails(json_parse(&json, text, DEPTH, "deep"), ALIBI_BAD_INPUT, "depth");
    free(text);
}

static void json_that_does_not_fit_is_an_error(void **state)
{
    const char text[] = "{\"list\": [1, 2.5, true, null, {}, []]}";
    size_t before = alibi_memory_now();
    json_t *json = NULL;

    (void)state;
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(json_parse(&json, text, strlen(text), "x"), ALIBI_MEMORY,
                 "not enough memory for JSON");
    assert_null(json);
    assert_ok(json_parse(&json, text, strlen(text), "x"));
    json_decref(json);
    assert_int_equal(alibi_memory_now(), before);
}

/* An allocator for jansson that counts. */
static size_t blocks_held, bytes_held;

static void *count_malloc(size_t bytes)
{
    size_t *block = malloc(sizeof *block + bytes);

    if (block == NULL)
        return NULL;
    *block++ = bytes;
    blocks_held++;
    bytes_held += bytes + 16; /* malloc's own header */
    return block;
}

static void count_free(void *memory)
{
    size_t *block = memory;

    if (block == NULL)
        return;
    blocks_held--;
    bytes_held -= *--block + 16;
    free(block);
}

/* Memory that the tree of a list of 1025 times `text` takes, per byte of input. */
static double tree_bytes(const char *text)
{
    struct text all = { 0 };
    json_t *json = NULL;
    double ratio;

    text_append(&all, "[");
    for (int i = 0; i < 1025; i++)
        text_append(&all, "%s%s", i > 0 ? "," : "", text);
    text_append(&all, "]");
    assert_ok(json_parse(&json, all.data, all.length, "x"));
    ratio = (double)bytes_held / (double)all.length;
    json_decref(json);
    text_free(&all);
    return ratio;
}

static void the_memory_asked_for_is_more_than_any_json_takes(void **state)
{
    static const char *const texts[] = { "{}",        "[]",   "1",
                                         "\"\"",      "1.5",  "{\"\":{}}",
                                         "{\"\":[]}", "[{}]", "\"a longer text\"" };
    json_malloc_t host_malloc;
    json_free_t host_free;

    (void)state;
    json_get_alloc_funcs(&host_malloc, &host_free);
    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double ratio = tree_bytes(texts[i]);
        print_message("%-16s %5.1f bytes per byte\n", texts[i], ratio);
        assert_true(ratio < 128 / 1.25); /* a growing list holds some more */
        assert_int_equal(blocks_held, 0);
    }
    json_set_alloc_funcs(host_malloc, host_free);
}

/* Runs first: the library must not have parsed anything yet. */
static void json_of_the_host_stays_the_hosts(void **state)
{
    json_t *before, *json = NULL;
    json_malloc_t host_malloc;
    json_free_t host_free;

    (void)state;
    json_set_alloc_funcs(count_malloc, count_free);
    before = json_pack("{s: [i, s]}", "a", 1, "text");
    assert_non_null(before);
    assert_true(blocks_held > 0);
    assert_ok(json_parse(&json, "[1, {}]", 7, "x"));
    json_get_alloc_funcs(&host_malloc, &host_free);
    assert_true(host_malloc == count_malloc && host_free == count_free);
    json_decref(before);
    json_decref(json);
    assert_int_equal(blocks_held, 0);
    json_set_alloc_funcs(malloc, free);
}

static void json_members_are_checked_for_presence_type_and_range(void **state)
{
    const char text[] = "{\"n\": 5, \"x\": 0.5, \"s\": \"abc\"}";
    json_t *json = NULL;
    int64_t n = 0;
    double x = 0;
    const char *s = NULL;

    (void)state;
    assert_ok(json_parse(&json, text, strlen(text), "f"));
    assert_ok(json_get_int(json, "n", 5, 5, &n, "f"));
    assert_ok(json_get_real(json, "x", &x, "f"));
    assert_ok(json_get_text(json, "s", &s, "f"));
    assert_int_equal(n, 5);
    assert_true(x == 0.5);
    assert_string_equal(s, "abc");
    assert_ok(json_get_real(json, "n", &x, "f"));
    assert_true(x == 5.0);
    assert_fails(json_get_int(json, "n", 6, 9, &n, "f"), ALIBI_BAD_INPUT,
                 "'f': 'n' is 5, it must be within 6..9");
    assert_fails(json_get_int(json, "m", 0, 9, &n, "f"), ALIBI_BAD_INPUT,
                 "'f': the key 'm' is missing");
    assert_fails(json_get_int(json, "x", 0, 9, &n, "f"), ALIBI_BAD_INPUT,
                 "'f': 'x' is not a whole number");
    assert_fails(json_get_real(json, "s", &x, "f"), ALIBI_BAD_INPUT, "'f': 's' is not a number");
    assert_fails(json_get_text(json, "n", &s, "f"), ALIBI_BAD_INPUT, "'f': 'n' is not a text");
    assert_fails(json_get_text(json_object_get(json, "n"), "a", &s, "f"), ALIBI_BAD_INPUT,
                 "'f': an object");
    assert_int_equal(n, 5);
    json_decref(json);
}

/* ---- writing */

static void json_strings_are_escaped_and_read_back(void **state)
{
    const char original[] = "a\"b\\c/\n\r\t\x01\x1f größer 🙂";
    struct text t = { 0 };
    json_t *json = NULL;

    (void)state;
    json_append_string(&t, original, strlen(original));
    assert_string_equal(t.data, "\"a\\\"b\\\\c/\\n\\r\\t\\u0001\\u001f größer 🙂\"");
    text_append_bytes(&t, "]", 1);
    t.data[t.length - 1] = ' ';
    assert_int_equal(json_parse(&json, t.data, t.length, "x"),
                     ALIBI_BAD_INPUT); /* a document is an object or a list */
    text_free(&t);
    text_append(&t, "[");
    json_append_string(&t, original, strlen(original));
    text_append(&t, "]");
    assert_ok(json_parse(&json, t.data, t.length, "x"));
    assert_string_equal(json_string_value(json_array_get(json, 0)), original);
    json_decref(json);
    text_free(&t);
}

static void json_strings_replace_what_is_not_utf8(void **state)
{
    struct text t = { 0 };

    (void)state;
    json_append_string(&t, "a\xff\xc3(\xe2\x82", 6);
    assert_string_equal(t.data, "\"a\\ufffd\\ufffd(\\ufffd\\ufffd\"");
    text_free(&t);
}

static void reals_read_back_the_same_and_are_short(void **state)
{
    const double values[] = { 0.1,
                              1e-3,
                              1.0 / 3.0,
                              5e-324,
                              1.7976931348623157e308,
                              -2.5,
                              0,
                              123456789.123456789,
                              0x1.fffffffffffffp52 };
    struct text t = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        t.length = 0;
        json_append_real(&t, values[i]);
        assert_true(strtod(t.data, NULL) == values[i]);
    }
    t.length = 0;
    json_append_real(&t, 0.1);
    text_append(&t, " ");
    json_append_real(&t, NAN);
    text_append(&t, " ");
    json_append_real(&t, -INFINITY);
    assert_string_equal(t.data, "0.1 null null");
    text_free(&t);
}

static void lines_and_levels_are_laid_out(void **state)
{
    struct text text = { 0 };
    struct json_writer w = json_writer(&text);

    (void)state;
    json_write_object(&w, NULL);
    json_write_int(&w, "step", INT64_MIN);
    json_write_array(&w, "parts");
    json_write_object_line(&w, NULL);
    json_write_string(&w, "name", "a\"\n\xff");
    json_write_array_line(&w, "shape");
    json_write_int(&w, NULL, 2);
    json_write_real(&w, NULL, 0.1);
    json_write_end(&w);
    json_write_object(&w, "empty");
    json_write_end(&w);
    json_write_end(&w);
    json_write_end(&w);
    json_write_array(&w, "none");
    json_write_end(&w);
    json_write_bool(&w, "flag", true);
    json_write_null(&w, "nothing");
    json_write_real(&w, "infinite", INFINITY);
    json_write_raw(&w, "raw", "[1]");
    json_write_end(&w);
    assert_ok(text_status(&text));
    assert_string_equal(text.data, "{\n"
                                   "  \"step\": -9223372036854775808,\n"
                                   "  \"parts\": [\n"
                                   "    { \"name\": \"a\\\"\\n\\ufffd\", \"shape\": [2, 0.1], "
                                   "\"empty\": {} }\n"
                                   "  ],\n"
                                   "  \"none\": [],\n"
                                   "  \"flag\": true,\n"
                                   "  \"nothing\": null,\n"
                                   "  \"infinite\": null,\n"
                                   "  \"raw\": [1]\n"
                                   "}\n");
    text_free(&text);
}

static void too_many_levels_fail(void **state)
{
    struct text text = { 0 };
    struct json_writer w = json_writer(&text);

    (void)state;
    for (int i = 0; i <= JSON_DEPTH_MAX; i++)
        json_write_array(&w, NULL);
    for (int i = 0; i <= JSON_DEPTH_MAX; i++) /* one more than were begun: no harm */
        json_write_end(&w);
    assert_int_equal(text_status(&text), ALIBI_BAD_INPUT);
    text_free(&text);
}

/* ---- numbers of a struct */

struct numbers {
    int64_t whole;
    size_t bytes;
    double real, infinite;
};

static const struct json_field number_fields[] = {
    JSON_FIELD(INT, struct numbers, whole),
    JSON_FIELD(SIZE, struct numbers, bytes),
    JSON_FIELD(REAL, struct numbers, real),
    JSON_FIELD(UNBOUNDED, struct numbers, infinite),
};

static void numbers_of_a_struct_read_back_and_bad_ones_are_named(void **state)
{
    const struct numbers n = { INT64_C(1) << 62, 77, 1.0 / 3, INFINITY };
    struct numbers back = { 0 };
    struct text text = { 0 };
    struct json_writer w = json_writer(&text);
    json_t *json = NULL;

    (void)state;
    json_write_object(&w, NULL);
    json_write_fields(&w, number_fields, 4, &n);
    json_write_end(&w);
    assert_ok(json_parse(&json, text.data, text.length, "r.json"));
    assert_ok(json_read_fields(json, number_fields, 4, &back, "r.json"));
    assert_memory_equal(&back, &n, sizeof n);
    json_object_set_new(json, "real", json_null()); /* of that kind null was not measured */
    assert_fails(json_read_fields(json, number_fields, 4, &back, "r.json"), ALIBI_BAD_INPUT,
                 "'r.json': 'real'");
    json_object_set_new(json, "real", json_real(1));
    json_object_set_new(json, "bytes", json_integer(-1));
    assert_fails(json_read_fields(json, number_fields, 4, &back, "r.json"), ALIBI_BAD_INPUT,
                 "'r.json': 'bytes' is -1");
    json_object_del(json, "whole");
    assert_fails(json_read_fields(json, number_fields, 4, &back, "r.json"), ALIBI_BAD_INPUT,
                 "'r.json': the key 'whole' is missing");
    json_decref(json);
    text_free(&text);
}

static void a_file_within_a_folder_is_written_and_read(void **state)
{
    char *dir = temporary_folder();
    struct text text = { 0 };
    json_t *json = NULL;

    (void)state;
    assert_ok(json_read_within(&json, dir, "r.json"));
    assert_null(json);
    text_append(&text, "[1, 2]");
    assert_ok(file_replace_within(dir, "r.json", &text));
    assert_ok(json_read_within(&json, dir, "r.json"));
    assert_int_equal(json_array_size(json), 2);
    json_decref(json);
    assert_ok(alibi_inject_fault("memory", 1));
    text_append(&text, "%1000d", 3);
    assert_fails(file_replace_shared_within(dir, "r.json", &text), ALIBI_MEMORY, "a text");
    assert_ok(json_read_within(&json, dir, "r.json")); /* what was there remains */
    json_decref(json);
    text_free(&text);
    remove_temporary_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_of_the_host_stays_the_hosts),
        cmocka_unit_test(json_errors_name_path_line_and_column),
        cmocka_unit_test(json_that_is_too_deep_is_an_error),
        cmocka_unit_test(json_that_does_not_fit_is_an_error),
        cmocka_unit_test(the_memory_asked_for_is_more_than_any_json_takes),
        cmocka_unit_test(json_members_are_checked_for_presence_type_and_range),
        cmocka_unit_test(json_strings_are_escaped_and_read_back),
        cmocka_unit_test(json_strings_replace_what_is_not_utf8),
        cmocka_unit_test(reals_read_back_the_same_and_are_short),
        cmocka_unit_test(lines_and_levels_are_laid_out),
        cmocka_unit_test(too_many_levels_fail),
        cmocka_unit_test(numbers_of_a_struct_read_back_and_bad_ones_are_named),
        cmocka_unit_test(a_file_within_a_folder_is_written_and_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
