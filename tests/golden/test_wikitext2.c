/* test_wikitext2.c - WikiText-2 as words has the token counts that are published
 *
 * The text is not part of the project: ALIBI_DATA names a folder that has wikitext-2/train.txt,
 * valid.txt and test.txt in it. Without it the test is skipped. */
#include "base/base.h"

#include "check.h"

static const struct {
    const char *file;
    int64_t tokens;
} splits[] = { { "wikitext-2/train.txt", 2088628 },
               { "wikitext-2/valid.txt", 217646 },
               { "wikitext-2/test.txt", 245569 } };

enum { SPLITS = sizeof splits / sizeof *splits, WORDS = 33278 };

static bool count_ids(void *user, const int32_t *ids, int64_t count, bool ends)
{
    (void)ids;
    (void)ends;
    *(int64_t *)user += count;
    return true;
}

/* The folder with the three files, or NULL. */
static const char *find_text(void)
{
    const char *folder = getenv("ALIBI_DATA");

    for (int i = 0; i < SPLITS && folder != NULL; i++)
        if (!file_exists(within(folder, splits[i].file)))
            folder = NULL;
    return folder;
}

static void wikitext2_has_the_published_token_counts(void **state)
{
    const struct alibi_vocabulary all_words = { .type = ALIBI_WORDS, .min_count = 1 };
    const struct alibi_reading reading = { .format = ALIBI_FORMAT_TEXT, .document = NULL };
    const char *folder = find_text(), *path;
    alibi_tokenizer *t = NULL;

    (void)state;
    if (folder == NULL)
        skip_because("no WikiText-2");
    path = within(folder, splits[0].file);
    assert_ok(alibi_tokenizer_train(&t, &all_words, &path, 1, &reading, test_call()));
    assert_int_equal(alibi_tokenizer_vocab(t), WORDS);
    for (int i = 0; i < SPLITS; i++) {
        int64_t tokens = 0;
        path = within(folder, splits[i].file);
        assert_ok(alibi_tokenize_each(t, &path, 1, &reading, count_ids, &tokens, test_call()));
        printf("%-20s %8lld tokens, published %8lld  %s\n", splits[i].file, (long long)tokens,
               (long long)splits[i].tokens, tokens == splits[i].tokens ? "ok" : "FAILED");
        assert_int_equal(tokens, splits[i].tokens);
    }
    alibi_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        wikitext2_has_the_published_token_counts) };

    return cmocka_run_group_tests_name("WikiText-2 as words", tests, NULL, NULL);
}
