/* test_tokenizer.c - bytes, byte-level BPE and words: text to ids and back */
#include <pthread.h>

#include "check.h"
#include "text/tokenizer.h"

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "                                                \
    "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* ---- a BPE made by hand */

/* Ids 0..255 are the bytes, then one for each merge, then the added tokens. */
struct recipe {
    const char *merges[16][2]; /* the texts of left and right; NULL ends them */
    const char *added[8];      /* the first is special */
    const char *pattern;       /* NULL: none */
    bool ignore_merges;
};

static int count_merges(const struct recipe *r)
{
    int n = 0;

    while (r->merges[n][0] != NULL)
        n++;
    return n;
}

static int count_added(const struct recipe *r)
{
    int n = 0;

    while (r->added[n] != NULL)
        n++;
    return n;
}

/* The last token of that text among the first `count`. */
static int32_t find_token(const struct bpe_file *f, int64_t count, const char *text, size_t bytes)
{
    for (int64_t i = count; i-- > 0;)
        if (f->tokens[i].bytes == bytes && memcmp(f->tokens[i].at, text, bytes) == 0)
            return (int32_t)i;
    fail_msg("'%s' is no token", text);
    return -1;
}

static void put_token(struct bpe_file *f, int64_t id, const char *left, size_t left_bytes,
                      const char *right)
{
    char *at = f->storage + id * 64;

    memcpy(at, left, left_bytes);
    memcpy(at + left_bytes, right, strlen(right) + 1);
    f->tokens[id] = (struct slice){ at, left_bytes + strlen(right) };
}

static void put_merge(struct bpe_file *f, int64_t i, const char *left, const char *right)
{
    f->merges[i].left = find_token(f, 256 + i, left, strlen(left));
    f->merges[i].right = find_token(f, 256 + i, right, strlen(right));
    f->merges[i].result = (int32_t)(256 + i);
    put_token(f, 256 + i, left, strlen(left), right);
}

static struct bpe_file *file_of(const struct recipe *r)
{
    int merges = count_merges(r), added = count_added(r);
    struct bpe_file *f = NULL;

    assert_ok(NEW_ZERO_ARRAY(&f, 1, "a test"));
    f->vocab = 256 + merges + added;
    assert_ok(NEW_ZERO_ARRAY(&f->storage, f->vocab * 64, "a test"));
    assert_ok(NEW_ZERO_ARRAY(&f->tokens, f->vocab, "a test"));
    assert_ok(NEW_ZERO_ARRAY(&f->merges, merges, "a test"));
    assert_ok(NEW_ZERO_ARRAY(&f->added, added, "a test"));
    for (int i = 0; i < 256; i++) {
        put_token(f, i, (char[]){ (char)i }, 1, "");
        f->byte_ids[i] = i;
    }
    for (; f->merge_count < merges; f->merge_count++)
        put_merge(f, f->merge_count, r->merges[f->merge_count][0], r->merges[f->merge_count][1]);
    for (; f->added_count < added; f->added_count++) {
        int64_t id = 256 + merges + f->added_count;
        put_token(f, id, "", 0, r->added[f->added_count]);
        f->added[f->added_count] =
            (struct bpe_added){ f->tokens[id], (int32_t)id, .special = f->added_count == 0 };
    }
    if (r->pattern != NULL)
        assert_ok(text_copy(&f->splits[f->split_count++].pattern, r->pattern));
    f->ignore_merges = r->ignore_merges;
    return f;
}

static alibi_tokenizer *bpe_of(const struct recipe *r)
{
    alibi_tokenizer *t = NULL;

    assert_ok(tokenizer_new_bpe(&t, file_of(r), "t.json"));
    return t;
}

/* The text's tokens, each followed by a '|'. */
static void show(char *out, size_t size, const alibi_tokenizer *t, const int32_t *ids,
                 int64_t count)
{
    size_t used = 0;

    out[0] = '\0';
    for (int64_t i = 0; i < count; i++) {
        char *text = NULL;
        size_t bytes;
        assert_ok(alibi_tokenizer_decode(t, &ids[i], 1, &text, &bytes));
        used += (size_t)snprintf(out + used, size - used, "%s|", text);
        assert_true(used < size);
        alibi_text_free(text);
    }
}

static void assert_tokens(const alibi_tokenizer *t, const char *text, const char *expected)
{
    int32_t *ids = NULL;
    int64_t count = 0;
    char shown[4096];

    assert_ok(alibi_tokenizer_encode(t, text, strlen(text), &ids, &count));
    show(shown, sizeof shown, t, ids, count);
    if (strcmp(shown, expected) != 0)
        fail_msg("'%s' becomes '%s', not '%s'", text, shown, expected);
    alibi_ids_free(ids);
}

static void assert_round_trip(const alibi_tokenizer *t, const char *text, size_t bytes)
{
    int32_t *ids = NULL;
    int64_t count = 0;
    char *back = NULL;
    size_t back_bytes;

    assert_ok(alibi_tokenizer_encode(t, text, bytes, &ids, &count));
    assert_ok(alibi_tokenizer_decode(t, ids, count, &back, &back_bytes));
    assert_int_equal(back_bytes, bytes);
    if (bytes > 0)
        assert_memory_equal(back, text, bytes);
    alibi_ids_free(ids);
    alibi_text_free(back);
}

static const struct recipe english = {
    .merges = { { "h", "e" },
                { "t", "he" },
                { " ", "the" },
                { "i", "n" },
                { "e", "r" },
                { " ", "a" },
                { "\n", "\n" },
                { " ", " " },
                { "  ", "  " },
                { "\xC3", "\xA9" } },
    .added = { "<|endoftext|>", "<a>", "<a><b>", "  x" },
    .pattern = GPT2,
};

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

/* What merging is by its definition, for comparison: look at all pairs, do the
 * first of least rank, start over. */
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

/* ---- any bytes */

static void random_bytes_come_back(void **state)
{
    alibi_tokenizer *t = bpe_of(&english);

    (void)state;
    for (uint64_t n = 0; n < 10000; n++) {
        char text[64];
        size_t bytes = (size_t)random_below(1, n, 1000, sizeof text + 1);
        for (size_t i = 0; i < bytes; i++) {
            static const char common[] = "the in \n\xC3\xA9<a>  x";
            uint64_t draw = random_below(1, n, i, 512);
            text[i] = draw < 256 || n % 2 == 0 ? (char)draw : common[draw % (sizeof common - 1)];
        }
        assert_round_trip(t, text, bytes);
    }
    alibi_tokenizer_free(t);
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    alibi_tokenizer *t = NULL;
    char *text = NULL;
    size_t bytes;

    (void)state;
    assert_ok(alibi_tokenizer_open(&t, NULL, NULL));
    assert_fails(alibi_tokenizer_decode(t, (int32_t[]){ 65, 257 }, 2, &text, &bytes),
                 ALIBI_BAD_INPUT, "token 1 is 257");
    assert_fails(alibi_tokenizer_decode(t, (int32_t[]){ -1 }, 1, &text, &bytes), ALIBI_BAD_INPUT,
                 "token 0 is -1");
    assert_null(text);
    alibi_tokenizer_free(t);
}

/* ---- parts */

/* Encodes in stretches of `step` bytes of which `look` more are known, twice as
 * many when that decides nothing. */
static struct ids encode_in_steps(const alibi_tokenizer *t, const char *text, size_t bytes,
                                  size_t step, size_t look)
{
    struct ids ids = { 0 };
    struct encoder *e = NULL;
    size_t at = 0, more = look;

    assert_ok(encoder_new(&e, t));
    while (at < bytes) {
        size_t stop = at + step < bytes ? at + step : bytes,
               end = stop + more < bytes ? stop + more : bytes, reached;
        char *known = malloc(end + 1); /* no more than is known may be read */
        struct stretch s = { known, at, stop, end, end == bytes };
        assert_non_null(known);
        memcpy(known, text, end);
        assert_ok(encoder_run(e, &s, &ids, &reached));
        free(known);
        assert_in_range(reached, at, end);
        assert_true(reached >= stop || end < bytes);
        more = reached > at ? look : 2 * more + 1;
        at = reached;
    }
    assert_ok(encoder_end(e, (struct slice){ text, bytes }, &ids));
    encoder_free(e);
    return ids;
}

static void assert_same_in_all_steps(const alibi_tokenizer *t, const char *text, size_t bytes)
{
    struct ids whole = encode_in_steps(t, text, bytes, bytes, 0);

    for (size_t step = 1; step < bytes; step++) {
        for (size_t look = 0; look < 30; look = 3 * look + 1) {
            struct ids parts = encode_in_steps(t, text, bytes, step, look);
            assert_int_equal(parts.count, whole.count);
            assert_memory_equal(parts.at, whole.at, (size_t)whole.count * sizeof *whole.at);
            mem_free(parts.at);
        }
    }
    mem_free(whole.at);
}

static alibi_tokenizer *words_of(const char *const *words, int count)
{
    struct slice slices[16];
    alibi_tokenizer *t = NULL;

    for (int i = 0; i < count; i++)
        slices[i] = (struct slice){ words[i], strlen(words[i]) };
    assert_ok(tokenizer_new_words(&t, slices, count));
    return t;
}

static const char *const some_words[] = { "<unk>", "<eos>", "the", "of", "\xC3\xA9t\xC3\xA9" };

static void any_stretches_give_the_ids_of_the_whole(void **state)
{
    static const char *const texts[] = {
        "the inner   the\n\n\n  \xC3\xA9 the <a><a><b><a> x   "
        "x<|endoftext|><|endof  <a",
        "      \n\n\n\n   \n <a><b>  x  ",
        "\xC3\xA9\xC3the\xE2\x80<a>\xFF\xFE\xF0\x9F\x98\x80\xF0\x9F\x98  \xC3",
        "the of  the\n\nof \t of\n\xC3\xA9t\xC3\xA9 other",
    };
    alibi_tokenizer *all[3] = { bpe_of(&english), words_of(some_words, 5), NULL };

    (void)state;
    assert_ok(tokenizer_new_bytes(&all[2]));
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            assert_same_in_all_steps(all[i], texts[k], strlen(texts[k]));
        alibi_tokenizer_free(all[i]);
    }
}

static void one_encoder_gives_the_same_again(void **state)
{
    static const char text[] =
        "the the thethethethethethethethethethethetheth in in<a> in  innerest  x";
    alibi_tokenizer *t = bpe_of(&english);
    struct encoder *e = NULL;
    struct ids first = { 0 };

    (void)state;
    assert_ok(encoder_new(&e, t));
    for (int i = 0; i < 3; i++) {
        struct stretch s = {
            .text = text, .stop = strlen(text), .end = strlen(text), .last = true
        };
        int64_t before = first.count, each = before / (i > 0 ? i : 1);
        size_t reached;
        assert_ok(encoder_run(e, &s, &first, &reached));
        assert_int_equal(reached, strlen(text));
        if (i > 0)
            assert_int_equal(first.count - before, each);
        if (i > 0)
            assert_memory_equal(first.at + before, first.at, (size_t)each * sizeof *first.at);
    }
    mem_free(first.at);
    encoder_free(e);
    alibi_tokenizer_free(t);
}

/* ---- bytes */

static void every_byte_is_its_own_token(void **state)
{
    alibi_tokenizer *t = NULL;
    struct ids ids = { 0 };
    char text[256];

    (void)state;
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    assert_ok(tokenizer_new_bytes(&t));
    assert_ok(tokenizer_encode(t, text, 256, &ids));
    assert_int_equal(ids.count, 256);
    for (int i = 0; i < 256; i++) {
        size_t bytes = 0;
        assert_int_equal(ids.at[i], i);
        assert_int_equal(tokenizer_bytes(t, ids.at[i], &bytes)[0], text[i]);
        assert_int_equal(bytes, 1);
    }
    mem_free(ids.at);
    alibi_tokenizer_free(t);
}

static void encoding_appends(void **state)
{
    alibi_tokenizer *t = NULL;
    struct ids ids = { 0 };

    (void)state;
    assert_ok(tokenizer_new_bytes(&t));
    assert_ok(tokenizer_encode(t, "ab", 2, &ids));
    assert_ok(tokenizer_encode(t, "", 0, &ids));
    assert_ok(tokenizer_encode(t, "c", 1, &ids));
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.at[0], 'a');
    assert_int_equal(ids.at[2], 'c');
    mem_free(ids.at);
    alibi_tokenizer_free(t);
}

static void ids_that_are_no_byte_have_no_bytes(void **state)
{
    static const int32_t ids[] = { 256, 257, -1, INT32_MAX, INT32_MIN };
    alibi_tokenizer *t = NULL;

    (void)state;
    assert_ok(tokenizer_new_bytes(&t));
    for (int i = 0; i < 5; i++) {
        size_t bytes = 7;
        assert_non_null(tokenizer_bytes(t, ids[i], &bytes));
        assert_int_equal(bytes, 0);
    }
    alibi_tokenizer_free(t);
}

/* ---- words */

static void words_stand_between_white_space_and_lines_end(void **state)
{
    static const int32_t expected[] = { 2, 3, 1, 1, 0, 4, 2, 1 };
    alibi_tokenizer *t = words_of(some_words, 5);
    struct ids ids = encode_in_steps(t, " the\tof \n\nother \xC3\xA9t\xC3\xA9\r the", 26, 26, 0);

    (void)state;
    assert_int_equal(ids.count, 8); /* the last line has an end too */
    assert_memory_equal(ids.at, expected, sizeof expected);
    mem_free(ids.at);
    ids = encode_in_steps(t, "the\n", 4, 4, 0);
    assert_int_equal(ids.count, 2);
    assert_tokens(t, "of the\nx of\n", "of |the |\n|<unk> |of |\n|");
    mem_free(ids.at);
    alibi_tokenizer_free(t);
}

static void vocabularies_that_cannot_be_are_refused(void **state)
{
    static const struct {
        struct slice words[4];
        int count;
        const char *part;
    } cases[] = {
        { { { "<unk>", 5 } }, 1, "at least 2" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "", 0 } }, 3, "word 2 is empty" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a b", 3 } }, 3, "word 2 has white space" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a\xFF", 2 } }, 3, "word 2 is not text" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a\0b", 3 } }, 3, "word 2 is not text" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a", 1 }, { "a", 1 } },
          4,
          "word 3, 'a', is word 2 as well" },
    };
    alibi_tokenizer *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(tokenizer_new_words(&t, cases[i].words, cases[i].count), ALIBI_BAD_INPUT,
                     cases[i].part);
        assert_null(t);
    }
}

/* ---- files */

/* Writes, reads back, writes again: the same, and of the same checksum. */
static void assert_file_reads_back(const alibi_tokenizer *t)
{
    alibi_tokenizer *back = NULL;
    struct text first = { 0 }, second = { 0 };

    assert_ok(tokenizer_format(t, &first));
    assert_ok(tokenizer_read(&back, first.data, first.length, "tokenizer.json"));
    assert_ok(tokenizer_format(back, &second));
    assert_string_equal(first.data, second.data);
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(back));
    assert_int_equal(alibi_tokenizer_vocab(t), alibi_tokenizer_vocab(back));
    assert_int_equal(alibi_tokenizer_end(t), alibi_tokenizer_end(back));
    assert_string_equal(alibi_tokenizer_type(t), alibi_tokenizer_type(back));
    text_free(&first);
    text_free(&second);
    alibi_tokenizer_free(back);
}

static void files_read_back_and_are_always_the_same(void **state)
{
    alibi_tokenizer *bytes = NULL, *words = words_of(some_words, 5), *bpe = bpe_of(&english);
    struct text json = { 0 };

    (void)state;
    assert_ok(tokenizer_new_bytes(&bytes));
    assert_file_reads_back(bytes);
    assert_file_reads_back(words);
    assert_file_reads_back(bpe);
    assert_ok(tokenizer_format(bytes, &json));
    assert_string_equal(json.data, "{\"type\": \"bytes\", \"vocab\": 257, \"end\": 256}\n");
    assert_true(tokenizer_checksum(words) != tokenizer_checksum(bpe));
    text_free(&json);
    alibi_tokenizer_free(bytes);
    alibi_tokenizer_free(words);
    alibi_tokenizer_free(bpe);
}

static void files_that_are_malformed_are_named(void **state)
{
    static const struct {
        const char *json, *part;
    } cases[] = {
        { "", "'t.json'" },
        { "[]", "'t.json'" },
        { "{\"vocab\": 257, \"end\": 256}", "'t.json'" },
        { "{\"type\": \"bytes\", \"vocab\": 257", "'t.json'" },
        { "{\"type\": 3, \"vocab\": 257, \"end\": 256}", "type" },
        { " {\n\"type\": \"unigram\"}", "'unigram'" },
        { "{\"type\": \"bpe\"}", "'bpe'" },
        { "{\"type\": \"bytes\", \"end\": 256}", "vocab" },
        { "{\"type\": \"bytes\", \"vocab\": 300, \"end\": 256}", "vocab" },
        { "{\"type\": \"bytes\", \"vocab\": 257, \"end\": -1}", "end" },
        { "{\"type\": \"bytes\", \"vocab\": 257, \"end\": 256, \"merges\": []}", "'merges'" },
        { "{\"type\": \"bytes\", \"type\": \"bytes\", \"vocab\": 257, \"end\": "
          "256}",
          "'t.json'" },
        { "{\"type\": \"words\"}", "lacks 'words'" },
        { "{\"type\": \"words\", \"words\": {}}", "'words' is not a list" },
        { "{\"type\": \"words\", \"words\": [], \"words\": []}", "has 'words' twice" },
        { "{\"type\": \"words\", \"words\": [\"<unk>\", \"<eos>\", \"a\", \"a\"]}",
          "word 3, 'a', is word 2" },
        { "{\"type\": \"words\", \"words\": [\"<unk>\", 3]}", "'t.json': word 1 is not a text" },
        { "{\"type\": \"words\", \"words\": [\"<unk>\", \"<eos>\", \"a b\"]}",
          "'t.json': word 2 has white space" },
    };
    alibi_tokenizer *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(tokenizer_read(&t, cases[i].json, strlen(cases[i].json), "t.json"),
                     ALIBI_BAD_INPUT, cases[i].part);
        assert_null(t);
    }
}

static void a_file_of_words_takes_a_small_multiple_of_its_size(void **state)
{
    enum { WORDS = 100000 };
    struct text json = { 0 };
    alibi_tokenizer *t = NULL;
    size_t before;

    (void)state;
    text_append(&json, "{\"type\": \"words\", \"words\": [\"<unk>\", \"<eos>\"");
    for (int i = 0; i < WORDS; i++)
        text_append(&json, ",\"%d\"", i);
    text_append(&json, "]}");
    before = alibi_memory_now();
    alibi_memory_reset_peak();
    assert_ok(tokenizer_read(&t, json.data, json.length, "t.json"));
    printf("words %.1f bytes per byte\n",
           (double)(alibi_memory_peak() - before) / (double)json.length);
    assert_true(alibi_memory_peak() - before < 12 * json.length);
    alibi_tokenizer_free(t);
    text_free(&json);
}

static void a_tokenizer_is_opened_from_a_file_or_a_folder(void **state)
{
    alibi_tokenizer *t = bpe_of(&english), *file = NULL, *folder = NULL, *built_in = NULL,
                    *none = NULL;
    char *dir = temporary_folder();

    (void)state;
    assert_fails(alibi_tokenizer_open(&none, dir, NULL), ALIBI_BAD_INPUT, "has no tokenizer");
    assert_fails(alibi_tokenizer_open(&none, within(dir, "no.json"), NULL), ALIBI_BAD_INPUT,
                 "no.json");
    assert_ok(alibi_tokenizer_write(t, within(dir, "tokenizer.json")));
    assert_ok(alibi_tokenizer_open(&file, within(dir, "tokenizer.json"), NULL));
    assert_ok(alibi_tokenizer_open(&folder, dir, NULL));
    assert_ok(alibi_tokenizer_open(&built_in, "bytes", NULL));
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(file));
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(folder));
    assert_string_equal(alibi_tokenizer_type(built_in), "bytes");
    assert_tokens(folder, "the<a>", "the|<a>|");
    alibi_tokenizer_free(t);
    alibi_tokenizer_free(file);
    alibi_tokenizer_free(folder);
    alibi_tokenizer_free(built_in);
    remove_temporary_folder(dir);
}

/* ---- threads, owners, faults */

struct job {
    const alibi_tokenizer *tokenizer;
    int64_t count;
};

static void *encode_much(void *user)
{
    static const char text[] = "the inner the<a>\n\n  thethethethethethethethethethethethethe "
                               "er\xC3\xA9 12";
    struct job *job = user;

    for (int i = 0; i < 200; i++) {
        struct ids ids = { 0 };
        if (tokenizer_encode(job->tokenizer, text, strlen(text), &ids) == ALIBI_OK)
            job->count += ids.count;
        mem_free(ids.at);
    }
    return NULL;
}

static void threads_share_one_tokenizer(void **state)
{
    alibi_tokenizer *t = bpe_of(&english);
    struct job jobs[4], alone = { t, 0 };
    pthread_t threads[4];

    (void)state;
    encode_much(&alone);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){ t, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, encode_much, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(jobs[i].count, alone.count);
    }
    alibi_tokenizer_free(t);
}

static void the_last_owner_frees(void **state)
{
    size_t before = alibi_memory_now();
    alibi_tokenizer *t = NULL, *other;

    (void)state;
    assert_ok(tokenizer_new_bytes(&t));
    other = tokenizer_share(t);
    alibi_tokenizer_free(t);
    assert_int_equal(alibi_tokenizer_vocab(other), 257);
    alibi_tokenizer_free(other);
    alibi_tokenizer_free(NULL);
    assert_int_equal(alibi_memory_now(), before);
}

/* Reads the file and uses what it says. */
static alibi_status read_and_use(const struct text *json)
{
    static const char text[] = "the inner the<a>\n\n  thethethethethethethethethethethethethe "
                               "er\xC3\xA9 12";
    alibi_tokenizer *t = NULL;
    int32_t *ids = NULL;
    int64_t count;
    char *back = NULL;
    size_t bytes;
    alibi_status status;

    TRY(tokenizer_read(&t, json->data, json->length, "t.json"));
    TRY(alibi_tokenizer_encode(t, text, strlen(text), &ids, &count));
    TRY(alibi_tokenizer_decode(t, ids, count, &back, &bytes));
out:
    alibi_text_free(back);
    alibi_ids_free(ids);
    alibi_tokenizer_free(t);
    return status;
}

static void assert_faults_are_clean(const alibi_tokenizer *t)
{
    struct text json = { 0 };
    alibi_status status = ALIBI_MEMORY;
    size_t before;
    int n = 0;

    assert_ok(tokenizer_format(t, &json));
    before = alibi_memory_now();
    while (status != ALIBI_OK) {
        assert_ok(alibi_inject_fault("memory", ++n));
        status = read_and_use(&json);
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_int_equal(alibi_memory_now(), before);
    }
    assert_ok(alibi_inject_fault("memory", 0));
    assert_in_range(n, 5, 1000);
    text_free(&json);
}

static void every_failing_allocation_is_told_and_leaves_nothing(void **state)
{
    alibi_tokenizer *all[3] = { bpe_of(&english), words_of(some_words, 5), NULL };

    (void)state;
    assert_ok(tokenizer_new_bytes(&all[2]));
    for (int i = 0; i < 3; i++) {
        assert_faults_are_clean(all[i]);
        alibi_tokenizer_free(all[i]);
    }
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
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(any_stretches_give_the_ids_of_the_whole),
        cmocka_unit_test(one_encoder_gives_the_same_again),
        cmocka_unit_test(every_byte_is_its_own_token),
        cmocka_unit_test(encoding_appends),
        cmocka_unit_test(ids_that_are_no_byte_have_no_bytes),
        cmocka_unit_test(words_stand_between_white_space_and_lines_end),
        cmocka_unit_test(vocabularies_that_cannot_be_are_refused),
        cmocka_unit_test(files_read_back_and_are_always_the_same),
        cmocka_unit_test(files_that_are_malformed_are_named),
        cmocka_unit_test(a_file_of_words_takes_a_small_multiple_of_its_size),
        cmocka_unit_test(a_tokenizer_is_opened_from_a_file_or_a_folder),
        cmocka_unit_test(threads_share_one_tokenizer),
        cmocka_unit_test(the_last_owner_frees),
        cmocka_unit_test(every_failing_allocation_is_told_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
