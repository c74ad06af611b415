/* test_ends.c - the end of documents: tokenizers with an end token of choice, and with none */
#include "check.h"
#include "text/text.h"

/* As Hugging Face's trainer writes it by default: no added tokens. "ab" is the only merge. */
static const char *endless_file(const char *folder)
{
    struct text json = { 0 };
    const char *path = within(folder, "tokenizer.json");
    const char *pattern = "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                          "false, \"trim_offsets\": true, \"use_regex\": true}";

    text_append(&json,
                "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
                "\"added_tokens\": [], \"normalizer\": null, %s, ",
                pattern);
    text_append(&json,
                "\"post_processor\": null, \"decoder\": null, \"model\": {\"type\": \"BPE\", "
                "\"vocab\": {");
    for (int byte = 0; byte < 256; byte++) {
        uint32_t letter = byte_letter((unsigned char)byte);
        if (letter == '"' || letter == '\\')
            text_append(&json, "\"\\%c\": %d, ", (char)letter, byte);
        else if (letter < 0x80)
            text_append(&json, "\"%c\": %d, ", (char)letter, byte);
        else
            text_append(&json, "\"%c%c\": %d, ", (char)(0xC0 | letter >> 6),
                        (char)(0x80 | (letter & 0x3F)), byte);
    }
    text_append(&json, "\"ab\": 256, \"stop\": 257}, \"merges\": [\"a b\"]}}");
    assert_ok(text_status(&json));
    write_file(path, json.data, json.length);
    text_free(&json);
    return path;
}

static void assert_info(const alibi_corpus *c, int64_t documents, int64_t tokens, int64_t words)
{
    struct alibi_corpus_info info;

    alibi_corpus_get_info(c, ALIBI_ALL, &info);
    assert_int_equal(info.documents, documents);
    assert_int_equal(info.tokens, tokens);
    assert_int_equal(info.words, words);
    assert_int_equal(info.bytes, 12);
}

/* Two documents, "ab ab\n" and "ab abc": as text, as shards, and the shards as a corpus. */
static void assert_read_as(const alibi_tokenizer *t, const char *folder, const int32_t *expected,
                           int64_t tokens, int64_t words)
{
    const char *paths[2] = { strdup(within(folder, "one")), strdup(within(folder, "two")) };
    const char *shards = strdup(within(folder, "shards"));
    struct alibi_tokenize_result result;
    alibi_corpus *c = NULL;

    write_file(paths[0], "ab ab\n", 6);
    write_file(paths[1], "ab abc", 6);
    assert_ok(alibi_tokenize(t, paths, 2, NULL, 4, shards, &result, test_call()));
    assert_int_equal(result.documents, 2);
    assert_int_equal(result.tokens, tokens);
    for (int from_shards = 0; from_shards < 2; from_shards++) {
        int32_t ids[32];
        assert_ok(alibi_corpus_open(&c, from_shards ? &shards : paths, from_shards ? 1 : 2, NULL,
                                    from_shards ? NULL : t, NULL, test_call()));
        assert_int_equal(alibi_tokenizer_end(corpus_tokenizer(c)), alibi_tokenizer_end(t));
        assert_info(c, 2, tokens, words);
        span_read(corpus_span(c, ALIBI_ALL), 0, tokens, ids);
        assert_memory_equal(ids, expected, (size_t)tokens * sizeof *ids);
        alibi_corpus_free(c);
        c = NULL;
    }
    for (int i = 0; i < 2; i++)
        free((char *)paths[i]);
    free((char *)shards);
}

static void without_an_end_documents_follow_each_other(void **state)
{
    static const int32_t ids[] = { 256, ' ', 256, '\n', 256, ' ', 256, 'c' };
    char *folder = temporary_folder();
    alibi_tokenizer *t = NULL;

    (void)state;
    assert_ok(alibi_tokenizer_open(&t, endless_file(folder), NULL));
    assert_int_equal(alibi_tokenizer_end(t), -1);
    assert_read_as(t, folder, ids, 8, 4);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

static void any_token_that_text_does_not_become_can_end_documents(void **state)
{
    static const int32_t ids[] = { 256, ' ', 256, '\n', 257, 256, ' ', 256, 'c', 257 };
    char *folder = temporary_folder();
    alibi_tokenizer *t = NULL;

    (void)state;
    assert_ok(alibi_tokenizer_open(&t, endless_file(folder), "stop"));
    assert_int_equal(alibi_tokenizer_end(t), 257);
    assert_read_as(t, folder, ids, 10, 4);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_an_end_documents_follow_each_other),
        cmocka_unit_test(any_token_that_text_does_not_become_can_end_documents),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
