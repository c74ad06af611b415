/* test_tokenize_refusals.c - what tokenizing refuses: folders, arguments, texts, and files of its
 * own that are not as they were */
#include "tokenizing.h"

/* As bytes, in shards of 500 tokens. */
static alibi_status tokenize_files(struct corpus *c, const char *const *paths, int count,
                                   const char *folder)
{
    struct alibi_tokenize_result r;

    return tokenize_within(&limits, c->tokenizers[0], paths, count, NULL, 500, folder, &r,
                           test_call());
}

static alibi_status tokenize_all(struct corpus *c, const char *folder)
{
    return tokenize_files(c, c->paths, FILES, folder);
}

static alibi_status tokenize_one(struct corpus *c, const char *path, const char *folder)
{
    return tokenize_files(c, &path, 1, folder);
}

/* ---- refusals */

static void folders_with_files_of_others_are_left_alone(void **state)
{
    static const char *const foreign[] = { "notes.txt",      "tokens-0.bin", "tokens-00000.bin.old",
                                           "tokenizer.json", "index.json",   "tokens-00000.bin" };
    struct corpus *c = *state;
    const char *folder = keep(c, "shards");

    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        assert_ok(folder_create(folder));
        write_file(within(folder, foreign[i]), "x", 1);
        assert_fails(tokenize_all(c, folder), ALIBI_BAD_INPUT, foreign[i]);
        remove_folder(folder);
    }
}

static void folder_in_use_is_refused(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards");
    struct lock *lock = NULL;

    assert_ok(folder_create(folder));
    assert_ok(lock_take(&lock, folder));
    assert_fails(tokenize_all(c, folder), ALIBI_IO, "in use");
    lock_release(lock);
}

/* Both are parsed if they are small; here the first would need gigabytes. */
static void a_large_request_that_differs_is_refused_by_its_line(void **state)
{
    enum { BYTES = 20 << 20 };
    struct corpus *c = *state;
    const char *folder = keep(c, "shards");
    char *large = malloc(BYTES);
    struct text now = { 0 };
    bool same = true;

    assert_non_null(large);
    memset(large, ' ', BYTES);
    large[1000] = large[2000] = '\n';
    text_append_bytes(&now, large, BYTES / 2);
    assert_ok(text_status(&now));
    now.data[2001] = '{';
    assert_ok(folder_create(folder));
    write_file(within(folder, "request.json"), large, BYTES);
    assert_ok(request_compare(&same, &now, folder));
    assert_false(same);
    assert_non_null(strstr(alibi_error(), "differs from this request at line 3 of request.json"));
    text_free(&now);
    free(large);
}

static void arguments_and_texts_that_make_no_sense_are_refused(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "odd");
    struct alibi_reading strange = { .format = 7 };
    struct alibi_tokenize_result r;

    assert_fails(
        tokenize_within(&limits, c->tokenizers[0], c->paths, 1, NULL, 0, folder, &r, test_call()),
        ALIBI_USAGE, "0 tokens");
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, 1, NULL, 1ll << 31, folder,
                                 &r, test_call()),
                 ALIBI_USAGE, "2147483648");
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, 1, &strange, 500, folder, &r,
                                 test_call()),
                 ALIBI_USAGE, "format 7");
    write_file(path, "\n\n", 2);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], &path, 1,
                                 &(struct alibi_reading){ .document = "line" }, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "there is no text in");
    assert_false(folder_exists(folder));
    write_file(path,
               "ab\xff"
               "c",
               4);
    assert_fails(tokenize_one(c, path, folder), ALIBI_BAD_INPUT, "not UTF-8");
    assert_false(folder_exists(folder));
    assert_ok(folder_create(folder));
    assert_fails(tokenize_one(c, path, folder), ALIBI_BAD_INPUT, "not UTF-8");
    assert_true(folder_exists(folder)); /* it was there before */
    assert_fails(
        tokenize_each_within(&limits, c->tokenizers[0], &path, 1, NULL, receive, NULL, test_call()),
        ALIBI_BAD_INPUT, "not UTF-8");
    path = keep(c, "nowhere");
    assert_fails(tokenize_one(c, path, folder), ALIBI_BAD_INPUT, "nowhere");
}

static void a_text_without_a_cut_is_refused_before_it_fills_the_memory(void **state)
{
    enum { BYTES = PIECE_MAX + (9 << 20) };
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "long");
    struct alibi_tokenize_result r;
    char *text = malloc(BYTES);

    assert_non_null(text);
    memset(text, 'a', BYTES);
    write_file(path, text, BYTES);
    free(text);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(tokenize_within(&limits, c->tokenizers[i], &path, 1, NULL, 500, folder, &r,
                                         test_call()),
                         ALIBI_BAD_INPUT);
        assert_non_null(strstr(alibi_error(), "/long'"));
        assert_false(folder_exists(folder));
    }
}

static void shards_are_not_read_as_text(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *file = keep(c, "shards/tokens-00000.bin"),
               *text = keep(c, "text.bin");
    const char *again = keep(c, "again");

    assert_ok(tokenize_all(c, folder));
    assert_fails(tokenize_one(c, folder, again), ALIBI_BAD_INPUT,
                 "shards' holds token shards already");
    assert_fails(tokenize_one(c, file, again), ALIBI_BAD_INPUT,
                 "tokens-00000.bin' holds token shards already");
    assert_false(folder_exists(again));
    write_file(text, "a text of that name", 19);
    assert_ok(tokenize_one(c, text, again));
}

static void shards_do_not_go_into_the_folder_of_the_text(void **state)
{
    struct corpus *c = *state;
    const char *text = c->folder, *below = keep(c, "below/shards"), *link = keep(c, "link"),
               *beside = keep(c, "beside");

    assert_fails(tokenize_one(c, text, below), ALIBI_BAD_INPUT, "below/shards': it is within '");
    assert_fails(tokenize_one(c, text, text), ALIBI_BAD_INPUT, "is within '");
    assert_int_equal(symlink(text, link), 0);
    assert_fails(tokenize_one(c, text, within(link, "shards")), ALIBI_BAD_INPUT, "is within '");
    assert_int_equal(unlink(link), 0);
    assert_false(folder_exists(within(c->folder, "below")));
    assert_ok(folder_create(beside));
    assert_int_equal(rename(c->paths[0], within(beside, "text")), 0);
    assert_ok(tokenize_one(c, beside, within(c->folder, "beside-shards")));
}

static void no_more_shards_are_written_than_can_be_read(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *other = keep(c, "other");
    struct alibi_tokenize_result r;

    limits.shards = 3;
    assert_fails(tokenize_one(c, c->paths[0], folder), ALIBI_BAD_INPUT,
                 "has 3 shards of 500 tokens");
    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, 1, NULL,
                              ((int64_t)c->bytes[0] + 1 + 2) / 3, other, &r, test_call()));
    assert_int_equal(r.shards, 3);
}

static void ways_to_read_that_do_not_exist_are_refused_by_all(void **state)
{
    struct corpus *c = *state;
    struct alibi_vocabulary words = { .type = ALIBI_WORDS, .min_count = 1 };
    struct alibi_reading strange = { .document = "page" };
    alibi_tokenizer *t = NULL;
    alibi_corpus *corpus = NULL;

    assert_fails(tokenize_each_within(&limits, c->tokenizers[0], c->paths, 1, &strange, receive,
                                      NULL, test_call()),
                 ALIBI_USAGE, "'page' is not one of file, line");
    assert_fails(alibi_tokenizer_train(&t, &words, c->paths, 1, &strange, test_call()), ALIBI_USAGE,
                 "'page' is not one of file, line");
    assert_fails(alibi_corpus_open(&corpus, c->paths, 1, NULL, NULL, &strange, test_call()),
                 ALIBI_USAGE, "'page' is not one of file, line");
}

/* ---- index.json and progress.json that are not as they should be */

struct defect {
    const char *part, *by, *message;
};

/* Puts `by` in the place of `part` in the file, and its checksum right. */
static void alter(const char *path, const char *original, const char *part, const char *by)
{
    struct text t = { 0 };
    const char *at = strstr(original, part), *seal = strstr(original, "\n  \"crc32\": ");

    if (at == NULL || seal == NULL)
        fail_msg("'%s' is not in %s", part, original);
    text_append(&t, "%.*s%s%.*s", (int)(at - original), original, by,
                (int)(seal + 1 - at - (ptrdiff_t)strlen(part)), at + strlen(part));
    text_append(&t, "  \"crc32\": %lu\n}\n", (unsigned long)checksum(0, t.data, t.length));
    write_file(path, t.data, t.length);
    text_free(&t);
}

static void malformed_index_is_named_by_its_defect(void **state)
{
    static const struct defect defects[] = {
        { "\"format\": 1", "\"format\": 2", "has format 2" },
        { "\"format\": 1,", "", "'format' is missing" },
        { "\"width\": 2", "\"width\": 3", "'width' is 3, it must be 2 or 4" },
        { "\"width\": 2", "\"width\": 8", "'width' is 8" },
        { "\"tokenizer\": ", "\"tokenizer\": -", "'tokenizer' is -" },
        { "\"documents\": 3", "\"documents\": -3", "'documents' is -3" },
        { "\"documents\": 3", "\"documents\": 3.0", "'documents' is not a whole number" },
        { "\"tokens\": 500", "\"tokens\": 501", "the shards have" },
        { "\"tokens\": 500", "\"tokens\": 0", "'tokens' is 0" },
        { "\"tokens\": 500", "\"tokens\": 2147483648", "'tokens' is 2147483648" },
        { "tokens-00001.bin", "../../secret.bin", "shard 1 is '../../secret.bin'" },
        { "tokens-00001.bin", "tokens-00002.bin", "must be 'tokens-00001.bin'" },
        { "\"shards\": [", "\"shard\": [", "'shards' is not a list" },
        { "\"words\"", "\"wordz\"", "'words' is missing" },
        { "{\n", "[\n", "line " },
    };
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "shards/" NAME_SHARD_INDEX);
    char *bytes = NULL;
    struct shard_index index = { 0 };
    size_t length;

    assert_ok(tokenize_all(c, folder));
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        alter(path, bytes, defects[i].part, defects[i].by);
        assert_fails(shard_index_read(&index, folder), ALIBI_BAD_INPUT, defects[i].message);
        assert_non_null(strstr(alibi_error(), "/shards/index.json'"));
        assert_null(index.entries);
    }
    alter(path, bytes, "\"format\": 1", "\"format\": 1");
    assert_ok(shard_index_read(&index, folder));
    shard_index_fini(&index);
    mem_free(bytes);
}

static void every_flipped_bit_of_the_index_is_found(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "shards/" NAME_SHARD_INDEX);
    char *bytes = NULL;
    struct alibi_tokenize_result r;
    struct shard_index index = { 0 };
    size_t length;

    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, 2, NULL, 2000, folder, &r,
                              test_call()));
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(path, bytes, length);
        assert_int_equal(shard_index_read(&index, folder), ALIBI_BAD_INPUT);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < length; cut++) {
        write_file(path, bytes, cut);
        assert_int_equal(shard_index_read(&index, folder), ALIBI_BAD_INPUT);
    }
    mem_free(bytes);
}

static void malformed_progress_is_named_by_its_defect(void **state)
{
    static const struct defect defects[] = {
        { "\"format\": 1", "\"format\": 9", "format 9" },
        { "\"request\": ", "\"request\": 9999", "'request' is 9999" },
        { "\"file\": 0", "\"file\": -1", "'file' is -1" },
        { "\"file\": 0", "\"file\": 3", "the input has changed" },
        { "\"file\": 0", "\"file\": 9223372036854775807", "'file' is 9223372036854775807" },
        { "\"bytes\": ", "\"bytes\": 922337203685477", "'bytes' is 922337203685477" },
        { "\"document\": 0", "\"document\": 5", "the input has changed" },
        { "\"offset\": ", "\"offset\": 9", "the input has changed" },
        { "\"skip\": ", "\"skip\": -1", "'skip' is -1" },
        { "\"skip\": ", "\"skip\": 1", "'tokens' and 'skip' are" },
        { "\"skip\": ", "\"skip\": 999999999", "'tokens' and 'skip' are" },
        { "\"words\"", "\"wordz\"", "'words' is missing" },
        { "\"tokens\": 500", "\"tokens\": \"x\"", "'tokens' is not a whole number" },
        { "tokens-00000.bin", "tokens-00001.bin", "must be 'tokens-00000.bin'" },
        { "{\n", "\n", "line " },
    };
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "shards/" NAME_SHARD_PROGRESS);
    char *bytes = NULL;
    size_t length;

    assert_int_equal(begin(c, folder), ALIBI_INTERRUPTED);
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        alter(path, bytes, defects[i].part, defects[i].by);
        assert_fails(tokenize_all(c, folder), ALIBI_BAD_INPUT, defects[i].message);
    }
    write_file(path, bytes, length);
    write_file(within(folder, "tokens-00001.bin"), "short", 5);
    assert_fails(
        tokenize_all(c, folder), ALIBI_BAD_INPUT,
        "tokens-00001.bin': the header of a token shard needs 1024 bytes, the file ends at 5");
    mem_free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(folders_with_files_of_others_are_left_alone),
        TEST(folder_in_use_is_refused),
        TEST(a_large_request_that_differs_is_refused_by_its_line),
        TEST(arguments_and_texts_that_make_no_sense_are_refused),
        TEST(a_text_without_a_cut_is_refused_before_it_fills_the_memory),
        TEST(shards_are_not_read_as_text),
        TEST(shards_do_not_go_into_the_folder_of_the_text),
        TEST(no_more_shards_are_written_than_can_be_read),
        TEST(ways_to_read_that_do_not_exist_are_refused_by_all),
        TEST(malformed_index_is_named_by_its_defect),
        TEST(every_flipped_bit_of_the_index_is_found),
        TEST(malformed_progress_is_named_by_its_defect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
