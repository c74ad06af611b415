/* test_shard.c - headers of token shards: both widths, every way of being wrong */
#include "check.h"

#include "formats/formats.h"

/* Parses a header in memory of its exact size, so that the sanitizer detects a read beyond
 * it. */
static alibi_status parse(struct shard_header *out, const char *header, size_t length,
                          int64_t file_bytes)
{
    char *exact = exact_copy(header, length);
    alibi_status status = shard_header_parse(out, exact, length, file_bytes, "s.bin");

    free(exact);
    return status;
}

static void header_comes_back_as_it_was_written(void **state)
{
    const struct shard_header cases[] = { { 2, 0 },
                                          { 2, 1 },
                                          { 2, 258 },
                                          { 4, 0 },
                                          { 4, 70000 },
                                          { 2, SHARD_TOKENS_MAX },
                                          { 4, SHARD_TOKENS_MAX } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bytes[SHARD_HEADER_BYTES];
        struct shard_header h = { 0 };
        shard_header_format(&cases[i], bytes);
        assert_ok(
            parse(&h, bytes, sizeof bytes, SHARD_HEADER_BYTES + cases[i].count * cases[i].width));
        assert_int_equal(h.width, cases[i].width);
        assert_int_equal(h.count, cases[i].count);
    }
}

/* 20240520 is 0x0134D888, 20240801 is 0x0134D9A1: as others write and read them. */
static void header_is_llm_c_s_byte_for_byte(void **state)
{
    const unsigned char narrow[12] = { 0x88, 0xD8, 0x34, 0x01, 1, 0, 0, 0, 0x02, 0x01, 0, 0 };
    const unsigned char wide[12] = { 0xA1, 0xD9, 0x34, 0x01, 7, 0, 0, 0, 0x02, 0x01, 0, 0 };
    char bytes[SHARD_HEADER_BYTES];

    (void)state;
    shard_header_format(&(struct shard_header){ 2, 258 }, bytes);
    assert_memory_equal(bytes, narrow, sizeof narrow);
    for (int i = 12; i < SHARD_HEADER_BYTES; i++)
        assert_int_equal(bytes[i], 0);
    shard_header_format(&(struct shard_header){ 4, 258 }, bytes);
    assert_memory_equal(bytes, wide, sizeof wide);
}

static void what_others_put_behind_the_count_is_left_unread(void **state)
{
    char bytes[SHARD_HEADER_BYTES];
    struct shard_header h = { 0 };

    (void)state;
    shard_header_format(&(struct shard_header){ 2, 3 }, bytes);
    memset(bytes + 12, 0xAB, sizeof bytes - 12);
    assert_ok(parse(&h, bytes, sizeof bytes, SHARD_HEADER_BYTES + 6));
    assert_int_equal(h.count, 3);
}

static void cut_and_padded_files_are_refused_with_both_ends(void **state)
{
    char bytes[SHARD_HEADER_BYTES];
    struct shard_header h = { .width = -1 };

    (void)state;
    shard_header_format(&(struct shard_header){ 2, 100 }, bytes);
    assert_fails(parse(&h, bytes, sizeof bytes, SHARD_HEADER_BYTES + 199), ALIBI_BAD_INPUT,
                 "cannot read 's.bin': 100 tokens of 2 bytes end at 1224, the file ends at 1223");
    assert_fails(parse(&h, bytes, sizeof bytes, SHARD_HEADER_BYTES + 201), ALIBI_BAD_INPUT,
                 "the file ends at 1225");
    assert_fails(parse(&h, bytes, sizeof bytes, SHARD_HEADER_BYTES + 400), ALIBI_BAD_INPUT,
                 "the file ends at 1424");
    for (size_t length = 0; length < sizeof bytes; length++)
        assert_fails(parse(&h, bytes, length, (int64_t)length), ALIBI_BAD_INPUT,
                     "the header of a token shard needs 1024 bytes");
    assert_int_equal(h.width, -1);
}

static void other_magics_and_versions_are_refused_by_name(void **state)
{
    char bytes[SHARD_HEADER_BYTES];
    struct shard_header h = { .width = -1 };

    (void)state;
    shard_header_format(&(struct shard_header){ 2, 0 }, bytes);
    bytes[4] = 2;
    assert_fails(parse(&h, bytes, sizeof bytes, sizeof bytes), ALIBI_BAD_INPUT,
                 "a token shard of magic 20240520 has version 1, not 2 (byte 4)");
    bytes[4] = 7; /* the other one's */
    assert_fails(parse(&h, bytes, sizeof bytes, sizeof bytes), ALIBI_BAD_INPUT,
                 "has version 1, not 7");
    bytes[0] = 'x';
    assert_fails(parse(&h, bytes, sizeof bytes, sizeof bytes), ALIBI_BAD_INPUT,
                 "it is not a token shard: it starts with ");
    assert_int_equal(h.width, -1);
}

static void counts_of_more_than_31_bits_are_refused(void **state)
{
    char bytes[SHARD_HEADER_BYTES];
    struct shard_header h = { .width = -1 };

    (void)state;
    shard_header_format(&(struct shard_header){ 2, 0 }, bytes);
    memset(bytes + 8, 0xFF, 4);
    assert_fails(parse(&h, bytes, sizeof bytes, sizeof bytes), ALIBI_BAD_INPUT,
                 "4294967295 tokens are announced, at most 2147483647 are allowed (byte 8)");
    assert_fails(parse(&h, bytes, sizeof bytes, SHARD_HEADER_BYTES - 2), ALIBI_BAD_INPUT,
                 "4294967295 tokens");
    assert_int_equal(h.width, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_comes_back_as_it_was_written),
        cmocka_unit_test(header_is_llm_c_s_byte_for_byte),
        cmocka_unit_test(what_others_put_behind_the_count_is_left_unread),
        cmocka_unit_test(cut_and_padded_files_are_refused_with_both_ends),
        cmocka_unit_test(other_magics_and_versions_are_refused_by_name),
        cmocka_unit_test(counts_of_more_than_31_bits_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
