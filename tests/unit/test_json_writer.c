/* test_json_writer.c - the JSON writer, text buffers that remember their failure, sealed files */
#include "check.h"

#include "base/json.h"

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
    assert_int_not_equal(text_status(&text), ALIBI_OK);
    text_free(&text);
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

/* ---- sealed files */

static char *folder;

static int set_up(void **state)
{
    (void)state;
    folder = temporary_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_temporary_folder(folder);
    return 0;
}

static void write_example(const char *path)
{
    struct text text = { 0 };
    struct json_writer w = json_writer(&text);

    json_write_object(&w, NULL);
    json_write_int(&w, "format", 1);
    json_write_array(&w, "parts");
    json_write_object_line(&w, NULL);
    json_write_string(&w, "name", "weights");
    json_write_end(&w);
    json_write_end(&w);
    json_write_seal(&w);
    assert_ok(sealed_write(path, &text));
    text_free(&text);
}

static void every_flipped_bit_and_every_truncation_is_found(void **state)
{
    char path[512], *bytes = NULL;
    size_t length;
    json_t *json = NULL;

    (void)state;
    snprintf(path, sizeof path, "%s/sealed.json", folder);
    write_example(path);
    assert_ok(sealed_read(&json, path, 1 << 16));
    assert_int_equal(json_integer_value(json_object_get(json, "format")), 1);
    json_decref(json);
    assert_ok(file_read_all(&bytes, &length, path, 1 << 16));
    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        assert_ok(file_replace(path, bytes, length));
        assert_fails(sealed_read(&json, path, 1 << 16), ALIBI_BAD_INPUT, path);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t shorter = 0; shorter < length; shorter++) {
        assert_ok(file_replace(path, bytes, shorter));
        assert_fails(sealed_read(&json, path, 1 << 16), ALIBI_BAD_INPUT, path);
    }
    mem_free(bytes);
}

static void seals_of_version_0_1_are_read(void **state)
{
    /* As its comparisons wrote them: "checksum", not "crc32". */
    static const char content[] = "{\n  \"name\": \"alibi\",\n";
    char path[512], whole[128];
    json_t *json = NULL;

    (void)state;
    snprintf(path, sizeof path, "%s/result.json", folder);
    snprintf(whole, sizeof whole, "%s  \"checksum\": %u\n}\n", content,
             checksum(0, content, sizeof content - 1));
    assert_ok(file_replace(path, whole, strlen(whole)));
    assert_ok(sealed_read(&json, path, 1 << 16));
    assert_string_equal(json_string_value(json_object_get(json, "name")), "alibi");
    json_decref(json);
}

static void a_failed_text_is_not_written(void **state)
{
    char path[512];
    struct text text = { .status = ALIBI_MEMORY };

    (void)state;
    snprintf(path, sizeof path, "%s/none.json", folder);
    assert_fails(sealed_write(path, &text), ALIBI_MEMORY, "memory");
    assert_false(file_exists(path));
}

/* ---- calls */

static int notes;

static void count_line(void *user, enum alibi_log_level level, const char *line)
{
    (void)level;
    assert_ptr_equal(user, &notes);
    assert_string_equal(line, "step 3");
    notes++;
}

static void a_call_is_seen_by_itself_only(void **state)
{
    struct alibi_stop one = { 0 }, other = { 0 };
    struct alibi_call call = { .user = &notes, .log = count_line, .stop = &one };
    struct alibi_call another = { .stop = &other };

    (void)state;
    call_note(&call, "step %d", 3);
    call_warn(&another, "step %d", 4);
    call_note(NULL, "step %d", 5);
    assert_int_equal(notes, 1);
    alibi_stop_request(&one);
    assert_true(call_stopped(&call));
    assert_false(call_stopped(&another));
    assert_false(call_stopped(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_levels_are_laid_out),
        cmocka_unit_test(too_many_levels_fail),
        cmocka_unit_test(a_text_remembers_its_first_failure),
        cmocka_unit_test(every_flipped_bit_and_every_truncation_is_found),
        cmocka_unit_test(seals_of_version_0_1_are_read),
        cmocka_unit_test(a_failed_text_is_not_written),
        cmocka_unit_test(a_call_is_seen_by_itself_only),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
