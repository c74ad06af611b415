/* test_encode.c - ids of documents in any parts, what many threads may hold at once, and where a
 * failure is said to be */
#include <omp.h>

#include "tokenizing.h"

/* ---- helpers */

static alibi_tokenizer *trained_on(const struct corpus *c, char *pattern)
{
    struct alibi_vocabulary how = {
        .type = ALIBI_BPE, .vocab = 300, .min_count = 2, .pattern = pattern
    };
    alibi_tokenizer *t = NULL;

    assert_ok(alibi_tokenizer_train(&t, &how, c->paths, 1, NULL, test_call()));
    return t;
}

static alibi_status encode_all(const alibi_tokenizer *t, const char *path)
{
    alibi_status status;
    struct source *source = NULL;
    struct encoding *e = NULL;
    struct encoded some;

    TRY(source_open(&source, &path, 1, NULL, test_call()));
    TRY(encoding_open(&e, source, t, limits.block_bytes));
    do
        TRY(encoding_next(e, &some));
    while (some.count > 0);
out:
    encoding_close(e);
    source_close(source);
    return status;
}

static alibi_status encode_on(int threads, const alibi_tokenizer *t, const char *path)
{
    int before = omp_get_max_threads();
    alibi_status status;

    omp_set_num_threads(threads);
    status = encode_all(t, path);
    omp_set_num_threads(before);
    return status;
}

/* "x x x .." with runs of "ab" in it, for an expression that looks far ahead in them and finds
 * nothing. */
static char wasteful[] = "(?:ab)+c|[a-z]| +";

static void write_runs(const char *path, size_t bytes, const size_t *runs, int count, size_t length)
{
    char *text = malloc(bytes);

    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = "x "[i % 2];
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < length; k++)
            text[runs[i] + k] = "ab"[k % 2];
    write_file(path, text, bytes);
    free(text);
}

/* ---- ids of documents, in any parts */

static char *golden_path(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/golden/tokenizers/%s.json", TEST_FOLDER, name);
    return path;
}

/* Words, blanks, names of tokens and other characters, put together at random. */
static size_t random_document(char *out, size_t bytes, uint64_t seed)
{
    static const char *const parts[] = {
        "the",
        " of",
        "one",
        " ",
        "  ",
        "\n",
        "<s>",
        "</s>",
        "<x>",
        "<br>",
        "é",
        "e\xCC\x81",
        "漢字",
        "\xE2\x96\x81",
        "'s",
        "12345",
        ". ",
        " <x> ",
        "<|endoftext|>",
        "tokenization",
        "!",
        "\t",
        "\xE2\x96\x82",
        " and",
        "x",
    };
    size_t at = 0;

    for (uint64_t i = 0; at + 16 < bytes; i++) {
        const char *part = parts[random_below(seed, 1, i, sizeof parts / sizeof *parts)];
        memcpy(out + at, part, strlen(part));
        at += strlen(part);
    }
    out[at++] = '.'; /* not blank */
    return at;
}

/* All ids of the files, from a place on if `from` is given. The first block that starts within a
 * document is `middle`, with the number of ids before it as its count. */
static void encode_from(struct ids *all, const alibi_tokenizer *t, const char *const *paths,
                        int count, const struct encoded *from, size_t block_bytes,
                        struct encoded *middle)
{
    struct source *source = NULL;
    struct encoding *e = NULL;
    struct encoded some;

    assert_ok(source_open(&source, paths, count, NULL, test_call()));
    if (from != NULL)
        assert_ok(source_seek(source, from->start));
    assert_ok(encoding_open(&e, source, t, block_bytes));
    do {
        assert_ok(encoding_next(e, &some));
        if (middle != NULL && some.start.offset > 0) {
            *middle = some;
            middle->count = all->count; /* the ids before it */
            middle = NULL;
        }
        assert_ok(ids_append(all, some.ids, some.count));
    } while (some.count > 0);
    encoding_close(e);
    source_close(source);
}

static void assert_ids(const struct ids *a, const int32_t *at, int64_t count)
{
    assert_int_equal(a->count, count);
    assert_memory_equal(a->at, at, (size_t)count * sizeof *at);
}

/* Begin, the ids of the document as a whole, end: on any number of threads, in blocks of any size,
 * and from the middle of a document on. */
static void documents_have_the_ids_of_whole_texts(void **state)
{
    static const char *const names[] = { "gpt2",   "llama2", "llama2-normalized", "metaspace-first",
                                         "prefix", "nfc",    "metaspace-always",  "strips",
                                         "falcon", "words" };
    enum { DOCUMENTS = 3, LONG = 600 << 10 };
    struct corpus *c = *state;
    const char *paths[DOCUMENTS] = { keep(c, "first"), keep(c, "second"), keep(c, "third") };
    char *text = malloc(LONG);
    int threads = omp_get_max_threads();

    assert_non_null(text);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        alibi_tokenizer *t = NULL;
        struct ids expected = { 0 }, got = { 0 };
        struct encoded middle = { 0 };
        int32_t begin, end;

        assert_ok(alibi_tokenizer_open(&t, golden_path(names[k]), NULL));
        begin = alibi_tokenizer_begin(t);
        end = alibi_tokenizer_end(t);
        assert_int_equal(begin >= 0, strcmp(names[k], "llama2") == 0 || k == 6);
        for (int i = 0; i < DOCUMENTS; i++) {
            size_t bytes = random_document(text, i == 1 ? LONG : 100, 10 * k + (size_t)i);
            write_file(paths[i], text, bytes);
            if (begin >= 0)
                assert_ok(ids_append(&expected, &begin, 1));
            assert_ok(tokenizer_encode(t, text, bytes, &expected));
            assert_ok(ids_append(&expected, &end, 1));
        }
        for (int n = 1; n <= 3; n++) {
            omp_set_num_threads(n);
            got.count = 0;
            encode_from(&got, t, paths, DOCUMENTS, NULL, n == 2 ? 60000 : 1 << 20,
                        n == 2 ? &middle : NULL);
            assert_ids(&got, expected.at, expected.count);
        }
        assert_true(middle.count > 0);
        got.count = 0;
        encode_from(&got, t, paths, DOCUMENTS, &middle, 60000, NULL);
        assert_ids(&got, expected.at + middle.count, expected.count - middle.count);
        mem_free(expected.at);
        mem_free(got.at);
        alibi_tokenizer_free(t);
    }
    omp_set_num_threads(threads);
    free(text);
}

/* ---- tests */

static void whether_a_text_is_refused_does_not_depend_on_the_threads(void **state)
{
    struct corpus *c = *state;
    const char *path = keep(c, "runs");
    alibi_tokenizer *t = trained_on(c, wasteful);

    write_runs(path, 1 << 20, (const size_t[]){ 1000, 400000, 800000 }, 3, 700);
    for (int threads = 1; threads <= 3; threads++)
        assert_ok(encode_on(threads, t, path));
    write_runs(path, 1 << 20, (const size_t[]){ 400000, 402000 }, 2, 700);
    for (int threads = 1; threads <= 3; threads++)
        assert_int_equal(encode_on(threads, t, path), ALIBI_BAD_INPUT);
    alibi_tokenizer_free(t);
}

/* The byte named is where the part begins that holds the run. */
static void assert_place(const char *name, int64_t run)
{
    char expected[64];
    const char *at;
    int64_t byte;

    snprintf(expected, sizeof expected, "/%s', document 1, from byte ", name);
    at = strstr(alibi_error(), expected);
    assert_non_null(at);
    byte = strtoll(at + strlen(expected), NULL, 10);
    assert_in_range(byte, run - (256 << 10) - (16 << 10), run);
}

static void failures_name_file_document_and_place(void **state)
{
    struct corpus *c = *state;
    const char *path = keep(c, "bad");
    alibi_tokenizer *t = trained_on(c, wasteful), *none = NULL;
    struct alibi_vocabulary how = { .type = ALIBI_BPE, .pattern = wasteful };

    write_runs(path, 2 << 20, (const size_t[]){ 1500000 }, 1, 3000);
    assert_int_equal(encode_on(2, t, path), ALIBI_BAD_INPUT);
    assert_place("bad", 1500000);
    assert_int_equal(alibi_tokenizer_train(&none, &how, &path, 1, NULL, test_call()),
                     ALIBI_BAD_INPUT);
    assert_place("bad", 1500000);
    alibi_tokenizer_free(t);
}

/* Each of eight parts has a word that takes 28 bytes for each of its own while it is merged. */
static void long_pieces_are_merged_one_at_a_time(void **state)
{
    enum { WORD = 800 << 10, WORDS = 8, LARGE_ROOM = 28 * WORD };
    struct corpus *c = *state;
    const char *path = keep(c, "long");
    char gpt2[] = "gpt2", *text = malloc(WORD * WORDS);
    alibi_tokenizer *t = trained_on(c, gpt2);
    size_t few, many, before;

    assert_non_null(text);
    for (size_t i = 0; i < WORD * WORDS; i++)
        text[i] = i % WORD == 0 ? ' ' : (char)('a' + random_below(1, 1, i, 26));
    write_file(path, text, WORD * WORDS);
    free(text);
    before = alibi_memory_now();
    alibi_memory_reset_peak();
    assert_ok(encode_on(1, t, path));
    few = alibi_memory_peak() - before;
    alibi_memory_reset_peak();
    assert_ok(encode_on(8, t, path));
    many = alibi_memory_peak() - before;
    printf("peak %zu bytes on one thread, %zu on eight\n", few, many);
    assert_true(many - few <
                2 * LARGE_ROOM + 8 * (5 << 20)); /* what an encoder has, and a little more */
    assert_int_equal(alibi_memory_now(), before);
    alibi_tokenizer_free(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(documents_have_the_ids_of_whole_texts),
        TEST(whether_a_text_is_refused_does_not_depend_on_the_threads),
        TEST(failures_name_file_document_and_place),
        TEST(long_pieces_are_merged_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
