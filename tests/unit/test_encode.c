/* test_encode.c - what many threads may hold at once, and where a failure is said to be */
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
        TEST(whether_a_text_is_refused_does_not_depend_on_the_threads),
        TEST(failures_name_file_document_and_place),
        TEST(long_pieces_are_merged_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
