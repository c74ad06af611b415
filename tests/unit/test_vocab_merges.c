/* test_vocab_merges.c - vocab.json and merges.txt: read as one tokenizer, and every way of being
 * wrong */
#include "bpe_files.h"

static const char short_vocab[] = "{@,\"ab\":256,\"abc\":257,\"<|endoftext|>\":258}";

static alibi_status parse_pair(struct bpe_file **out, const char *vocab, const char *merges)
{
    struct text v = expand(vocab, "", "");
    char *exact = exact_copy(merges, strlen(merges));
    alibi_status status =
        bpe_file_parse_pair(out, (struct slice){ v.data, v.length }, "vocab.json",
                            (struct slice){ exact, strlen(merges) }, "merges.txt");

    free(exact);
    text_free(&v);
    return status;
}

static void a_pair_of_files_is_read_as_gpt2_is(void **state)
{
    static const char *const same[] = { "#version: 0.2\na b\nab c\n", "a b\nab c",
                                        "#version: 0.2\r\na b\r\nab c\r\n", "a b\nab c\n\n\n",
                                        "ab c\na b\nab c\n" };

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct bpe_file *f = NULL;
        assert_ok(parse_pair(&f, short_vocab, same[i]));
        assert_int_equal(f->vocab, 259);
        assert_int_equal(f->merge_count, 2);
        assert_merge(f, 0, 'a', 'b', 256);
        assert_merge(f, 1, 256, 'c', 257);
        assert_int_equal(f->added_count, 1);
        assert_int_equal(f->added[0].id, 258);
        assert_true(f->added[0].special && f->added[0].in_vocab);
        assert_slice(f->tokens[258], "<|endoftext|>", 13);
        assert_string_equal(f->splits[0].pattern, bpe_gpt2_pattern);
        assert_reads_back(f);
        bpe_file_free(f);
    }
}

static void a_pair_without_end_of_text_has_no_added_token(void **state)
{
    struct bpe_file *f = NULL;

    (void)state;
    assert_ok(parse_pair(&f, "{@}", ""));
    assert_int_equal(f->vocab, 256);
    assert_int_equal(f->merge_count, 0);
    assert_int_equal(f->added_count, 0);
    assert_reads_back(f);
    bpe_file_free(f);
}

static void defects_of_a_pair_are_named_with_their_file(void **state)
{
    static const struct {
        const char *vocab, *merges, *part;
    } defects[] = {
        { "", "", "cannot read 'vocab.json': '{' expected at byte 0, line 1" },
        { "[]", "", "cannot read 'vocab.json': '{' expected" },
        { "{@} 1", "", "cannot read 'vocab.json': the end of the file expected" },
        { "{}", "", "cannot read 'vocab.json': no token is the byte 0" },
        { "{@,\"ab\":257}", "", "cannot read 'vocab.json': the token 'ab' has the id 257" },
        { "{@,\"a\":256}", "", "cannot read 'vocab.json': the token 'a' is repeated" },
        { short_vocab, "#version: 0.2\na b\n\nab c\n",
          "cannot read 'merges.txt': a merge after an empty line at byte 19, line 4" },
        { short_vocab, "#version: 0.2\na b\nab d\n",
          "cannot read 'merges.txt': the merge makes 'abd', which is not in the vocabulary, at byte 18, line 3" },
        { short_vocab, "a b c\n",
          "cannot read 'merges.txt': two tokens with one blank between them expected at byte 0, line 1" },
        { short_vocab, "ab\n", "two tokens with a blank between them expected" },
        { short_vocab, "a \xFF\n", "cannot read 'merges.txt': byte 2 is not UTF-8" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        struct bpe_file *f = NULL;
        size_t before = alibi_memory_now();
        assert_fails(parse_pair(&f, defects[i].vocab, defects[i].merges), ALIBI_BAD_INPUT,
                     defects[i].part);
        assert_null(f);
        assert_int_equal(alibi_memory_now(), before);
    }
}

static void every_truncation_of_the_vocabulary_is_refused(void **state)
{
    struct text v = expand(short_vocab, "", "");

    (void)state;
    for (size_t length = 0; length < v.length; length++) {
        struct bpe_file *f = NULL;
        assert_fails(bpe_file_parse_pair(&f, (struct slice){ v.data, length }, "vocab.json",
                                         (struct slice){ "a b\n", 4 }, "m"),
                     ALIBI_BAD_INPUT, "cannot read 'vocab.json': ");
    }
    text_free(&v);
}

static alibi_status parse_vocabulary(void *subject)
{
    const struct text *v = subject;
    struct bpe_file *f = NULL;
    alibi_status status =
        bpe_file_parse_pair(&f, (struct slice){ v->data, v->length }, "vocab.json",
                            (struct slice){ "a b\nab c\n", 9 }, "merges.txt");

    bpe_file_free(f);
    return status;
}

static void every_failing_allocation_of_a_pair_leaks_nothing(void **state)
{
    struct text v = expand(short_vocab, "", "");

    (void)state;
    assert_true(fail_each_call("memory", parse_vocabulary, &v, ALIBI_MEMORY, "not enough memory") >=
                8);
    text_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_of_files_is_read_as_gpt2_is),
        cmocka_unit_test(a_pair_without_end_of_text_has_no_added_token),
        cmocka_unit_test(defects_of_a_pair_are_named_with_their_file),
        cmocka_unit_test(every_truncation_of_the_vocabulary_is_refused),
        cmocka_unit_test(every_failing_allocation_of_a_pair_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
