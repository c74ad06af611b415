/* test_sealed.c - checksums, and JSON files that carry their own */
#include "folder.h"

#include "base/json.h"

static void checksum_is_crc32_and_can_be_continued(void **state)
{
    uint32_t part;

    (void)state;
    assert_int_equal(checksum(0, "123456789", 9), 0xCBF43926);
    part = checksum(0, "1234", 4);
    assert_int_equal(checksum(part, "56789", 5), 0xCBF43926);
    assert_int_equal(checksum(part, NULL, 0), part);
    assert_int_equal(checksum(0, NULL, 0), 0);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(checksum_is_crc32_and_can_be_continued),
        TEST(every_flipped_bit_and_every_truncation_is_found),
        TEST(seals_of_version_0_1_are_read),
        TEST(a_failed_text_is_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
