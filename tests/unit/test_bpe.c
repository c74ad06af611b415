/* test_bpe.c - byte-level BPE: merging, added tokens, the end of a document */
#include "bpe.h"

/* ---- merging */

static void merges_go_by_rank_then_from_the_left(void **state)
{
    static const struct {
        struct recipe recipe;
        const char *text, *tokens;
    } cases[] = {
        { { { { "a", "a" } }, { "<s>" }, NULL, false }, "aaaa", "aa|aa|" },
        { { { { "a", "a" } }, { "<s>" }, NULL, false }, "aaaaa", "aa|aa|a|" },
        { { { { "a", "a" }, { "aa", "a" } }, { "<s>" }, NULL, false }, "aaaaa", "aa|aaa|" },
        { { { { "a", "a" }, { "aa", "aa" } }, { "<s>" }, NULL, false }, "aaaaaaa", "aaaa|aa|a|" },
        { { { { "b", "c" }, { "a", "b" } }, { "<s>" }, NULL, false }, "abcab", "a|bc|ab|" },
        { { { { "a", "b" }, { "b", "c" } }, { "<s>" }, NULL, false }, "abcab", "ab|c|ab|" },
        { { { { "c", "d" }, { "a", "b" }, { "ab", "cd" } }, { "<s>" }, NULL, false },
          "abcd",
          "abcd|" },
        { { { { "a", "b" }, { "ab", "c" }, { "b", "c" } }, { "<s>" }, NULL, false },
          "abcbc",
          "abc|bc|" },
        { { { { NULL } }, { "<s>" }, NULL, false }, "ab", "a|b|" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        alibi_tokenizer *t = bpe_of(&cases[i].recipe);
        assert_tokens(t, cases[i].text, cases[i].tokens);
        alibi_tokenizer_free(t);
    }
}

/* Merging by its definition, for comparison: look at all pairs, do the first of least rank, start
 * over. */
static int merge_plainly(const struct bpe_file *f, int32_t *ids, int count)
{
    for (;;) {
        int64_t best = f->merge_count;
        int place = -1;
        for (int i = 0; i + 1 < count; i++)
            for (int64_t m = 0; m < best; m++)
                if (f->merges[m].left == ids[i] && f->merges[m].right == ids[i + 1]) {
                    best = m;
                    place = i;
                }
        if (place < 0)
            return count;
        ids[place] = f->merges[best].result;
        memmove(ids + place + 1, ids + place + 2, (size_t)(count - place - 2) * sizeof *ids);
        count--;
    }
}

static void long_and_short_pieces_merge_by_the_definition(void **state)
{
    static const struct recipe r = { { { "a", "b" },
                                       { "b", "a" },
                                       { "a", "a" },
                                       { "ab", "a" },
                                       { "aa", "b" },
                                       { "aba", "ab" },
                                       { "ba", "ab" },
                                       { "aa", "aa" },
                                       { "aab", "aa" },
                                       { "b", "b" } },
                                     { "<s>" },
                                     NULL,
                                     false };
    alibi_tokenizer *t = bpe_of(&r);
    struct bpe_file *f = file_of(&r);

    (void)state;
    for (int n = 0; n < 400; n++) {
        int bytes = 1 + n % 150, expected;
        char text[150];
        int32_t plain[150], *ids = NULL;
        int64_t count;
        for (int i = 0; i < bytes; i++) {
            text[i] = (char)('a' + (random_below(5, (uint64_t)n, (uint64_t)i, 5) > 2));
            plain[i] = text[i];
        }
        expected = merge_plainly(f, plain, bytes);
        assert_ok(alibi_tokenizer_encode(t, text, (size_t)bytes, &ids, &count));
        assert_int_equal(count, expected);
        assert_memory_equal(ids, plain, (size_t)count * sizeof *ids);
        alibi_ids_free(ids);
    }
    bpe_file_free(f);
    alibi_tokenizer_free(t);
}

/* Two million equal letters in one piece: with time that grows with the square
 * this would not end. */
static void one_endless_word_takes_no_endless_time(void **state)
{
    static const struct recipe r = {
        { { "a", "a" }, { "aa", "aa" }, { "aaaa", "aaaa" } }, { "<s>" }, GPT2, false
    };
    enum { BYTES = 2 << 20 };
    alibi_tokenizer *t = bpe_of(&r);
    char *text = malloc(BYTES);
    int32_t *ids = NULL;
    int64_t count;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', BYTES);
    assert_ok(alibi_tokenizer_encode(t, text, BYTES, &ids, &count));
    assert_int_equal(count, BYTES / 8);
    alibi_ids_free(ids);
    free(text);
    alibi_tokenizer_free(t);
}

static void a_piece_that_is_a_token_needs_no_merges_if_the_file_says_so(void **state)
{
    struct recipe r = {
        { { "a", "b" }, { "b", "c" }, { "a", "bc" } }, { "<s>", "xyz" }, GPT2, true
    };
    alibi_tokenizer *t = bpe_of(&r);

    (void)state;
    assert_tokens(t, "abc", "abc|"); /* the merges alone make ab and c of it */
    assert_tokens(t, "abcb", "ab|c|b|");
    alibi_tokenizer_free(t);
    r.ignore_merges = false;
    t = bpe_of(&r);
    assert_tokens(t, "abc", "ab|c|");
    alibi_tokenizer_free(t);
}

static void pieces_are_cut_before_they_are_merged(void **state)
{
    alibi_tokenizer *t = bpe_of(&english);

    (void)state;
    assert_tokens(t, "the inner the\n\n\n  a", "the| |in|n|er| the|\n\n|\n| | a|");
    assert_tokens(t, "", "");
    alibi_tokenizer_free(t);
}

/* ---- added tokens */

static void added_tokens_are_found_first_leftmost_and_longest(void **state)
{
    alibi_tokenizer *t = bpe_of(&english);

    (void)state;
    assert_tokens(t, "<|endoftext|>", "<|endoftext|>|");
    assert_tokens(t, "the<a>the<a><b>the<a><", "the|<a>|the|<a><b>|the|<a>|<|");
    assert_tokens(t, "   x  xx", " |  x|  x|x|");
    assert_tokens(t, "<|endoftext|", "<|||e|n|d|o|f|t|e|x|t|||");
    assert_tokens(t, "the  <a>",
                  "the|  |<a>|"); /* blanks before a token are at the end of their text */
    alibi_tokenizer_free(t);
}

/* A longer one would be compared again at every place of a text that is full of its beginning. */
static void added_tokens_have_a_greatest_length(void **state)
{
    enum { MOST = 256 };
    static const struct recipe one = { .added = { "<x>" } };
    char text[MOST + 2];

    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    for (size_t bytes = MOST; bytes <= MOST + 1; bytes++) {
        struct bpe_file *f = file_of(&one);
        alibi_tokenizer *t = NULL;
        f->added[0].text = f->tokens[f->added[0].id] = (struct slice){ text, bytes };
        if (bytes == MOST)
            assert_ok(tokenizer_new_bpe(&t, f, "t.json"));
        else
            assert_fails(tokenizer_new_bpe(&t, f, "t.json"), ALIBI_BAD_INPUT,
                         "'t.json': the added token 'aaaa");
        alibi_tokenizer_free(t);
    }
}

static void the_end_of_a_document_follows_from_the_names(void **state)
{
    static const struct {
        struct recipe recipe;
        int32_t end;
    } cases[] = {
        { { .added = { "<x>" } }, 256 },
        { { .added = { "<x>", "<eos>", "</s>" } }, 258 },
        { { .added = { "[EOS]", "<|endoftext|>" } }, 257 },
        { { .added = { "<x>", "<\xEF\xBD\x9C"
                              "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>" } },
          257 },
    };
    static const struct recipe none = { .merges = { { "a", "b" } } };
    alibi_tokenizer *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = 7;
        t = bpe_of(&cases[i].recipe);
        assert_int_equal(alibi_tokenizer_end(t), cases[i].end);
        tokenizer_bytes(t, cases[i].end, &bytes);
        assert_int_equal(bytes, 0);
        alibi_tokenizer_free(t);
    }
    t = bpe_of(&none);
    assert_int_equal(alibi_tokenizer_end(t), -1);
    alibi_tokenizer_free(t);
}

/* Opens the recipe's file with that end, writes it, and opens it again without. */
static alibi_status reopen(alibi_tokenizer **out, alibi_tokenizer **again, const struct recipe *r,
                           const char *end)
{
    char *dir = temporary_folder();
    const char *first = strdup(within(dir, "first.json")), *second = within(dir, "second.json");
    alibi_tokenizer *t = bpe_of(r);
    alibi_status status;

    *out = *again = NULL;
    assert_ok(alibi_tokenizer_write(t, first));
    status = alibi_tokenizer_open(out, first, end);
    if (status == ALIBI_OK) {
        assert_ok(alibi_tokenizer_write(*out, second));
        assert_ok(alibi_tokenizer_open(again, second, NULL));
    }
    alibi_tokenizer_free(t);
    free((char *)first);
    remove_temporary_folder(dir);
    return status;
}

static void a_chosen_end_is_remembered_in_the_file(void **state)
{
    static const struct recipe two = { .merges = { { "a", "b" } }, .added = { "<x>", "<y>" } };
    static const struct recipe usual = { .added = { "<|endoftext|>", "<y>" } };
    const struct recipe *recipes[] = { &two, &usual };
    alibi_tokenizer *t = NULL, *again = NULL, *plain = NULL;
    size_t bytes = 7;

    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t vocab;
        assert_ok(reopen(&t, &again, recipes[i], "<y>"));
        vocab = alibi_tokenizer_vocab(t);
        assert_int_equal(alibi_tokenizer_end(t), vocab - 1);
        assert_int_equal(alibi_tokenizer_end(again), vocab - 1);
        assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(again));
        tokenizer_bytes(again, (int32_t)vocab - 1, &bytes);
        assert_int_equal(bytes, 0);
        alibi_tokenizer_free(t);
        alibi_tokenizer_free(again);
    }
    /* The end that it has anyway changes nothing. */
    plain = bpe_of(&usual);
    assert_ok(reopen(&t, &again, &usual, "<|endoftext|>"));
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(plain));
    alibi_tokenizer_free(t);
    alibi_tokenizer_free(again);
    alibi_tokenizer_free(plain);
    assert_fails(reopen(&t, &again, &two, "<z>"), ALIBI_BAD_INPUT, "no token '<z>'");
    assert_fails(reopen(&t, &again, &two, "ab"), ALIBI_BAD_INPUT, "'ab' cannot end documents");
    assert_fails(reopen(&t, &again, &two, "a"), ALIBI_BAD_INPUT, "'a' cannot end documents");
    assert_fails(alibi_tokenizer_open(&t, "bytes", "a"), ALIBI_USAGE, "bytes has its own");
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(long_and_short_pieces_merge_by_the_definition),
        cmocka_unit_test(one_endless_word_takes_no_endless_time),
        cmocka_unit_test(a_piece_that_is_a_token_needs_no_merges_if_the_file_says_so),
        cmocka_unit_test(pieces_are_cut_before_they_are_merged),
        cmocka_unit_test(added_tokens_are_found_first_leftmost_and_longest),
        cmocka_unit_test(added_tokens_have_a_greatest_length),
        cmocka_unit_test(the_end_of_a_document_follows_from_the_names),
        cmocka_unit_test(a_chosen_end_is_remembered_in_the_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
