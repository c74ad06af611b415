/* test_shards.c - corpora of token shards, ours and those of others */
#include <sys/stat.h>

#include "check.h"
#include "text/text.h"

/* ---- helpers */

static void write_shard(const char *path, const int32_t *ids, int64_t count, int width)
{
    struct shard_header h = { .width = width, .count = count };
    char *bytes = calloc(1, SHARD_HEADER_BYTES + (size_t)(count * width));

    assert_non_null(bytes);
    shard_header_format(&h, bytes);
    for (int64_t i = 0; i < count; i++)
        memcpy(bytes + SHARD_HEADER_BYTES + i * width, &ids[i], (size_t)width); /* little-endian */
    write_file(path, bytes, SHARD_HEADER_BYTES + (size_t)(count * width));
    free(bytes);
}

/* One id for each byte of the text; '|' is the end of a document. */
static int64_t ids_of(const char *text, int32_t *ids)
{
    int64_t count = 0;

    for (; text[count] != '\0'; count++)
        ids[count] = text[count] == '|' ? 256 : (unsigned char)text[count];
    return count;
}

static void write_text_shard(const char *path, const char *text)
{
    int32_t ids[4096];
    int64_t count = ids_of(text, ids);

    write_shard(path, ids, count, 2);
}

static alibi_tokenizer *bytes_tokenizer(void)
{
    alibi_tokenizer *t = NULL;

    assert_ok(tokenizer_new_bytes(&t));
    return t;
}

/* A vocabulary of "<unk>", "<eos>", "w2", "w3" and so on. */
static alibi_tokenizer *words_tokenizer(int count)
{
    struct slice *words = calloc((size_t)count, sizeof *words);
    char *texts = calloc((size_t)count, 16);
    alibi_tokenizer *t = NULL;

    assert_true(words != NULL && texts != NULL);
    for (int i = 0; i < count; i++) {
        char *text = texts + 16 * i;
        snprintf(text, 16, "w%d", i);
        words[i] = (struct slice){ text, strlen(text) };
    }
    words[0] = (struct slice){ "<unk>", 5 };
    words[1] = (struct slice){ "<eos>", 5 };
    assert_ok(tokenizer_new_words(&t, words, count));
    free(words);
    free(texts);
    return t;
}

static alibi_status open_one(alibi_corpus **c, const char *path, const alibi_tokenizer *t)
{
    return alibi_corpus_open(c, &path, 1, NULL, t, &(struct alibi_reading){ 0 }, test_call());
}

static void assert_split(const alibi_corpus *c, enum alibi_split split, const char *expected)
{
    struct span s = corpus_span(c, split);
    int32_t ids[4096], want[4096];

    assert_int_equal(s.count, ids_of(expected, want));
    span_read(s, 0, s.count, ids);
    assert_memory_equal(ids, want, (size_t)s.count * sizeof *ids);
}

static void assert_same_info(struct alibi_corpus_info a, struct alibi_corpus_info b)
{
    assert_int_equal(a.documents, b.documents);
    assert_int_equal(a.tokens, b.tokens);
    assert_int_equal(a.words, b.words);
    assert_int_equal(a.bytes, b.bytes);
    assert_int_equal(a.vocab, b.vocab);
}

/* A folder of ours, of shards of eight tokens. */
static const char *const sample = "one two\nthree|four five six|seven|";

static const char *tokenized(const char *folder)
{
    const char *out = within(folder, "tokens"),
               *in[3] = { "one two\nthree", "four five six", "seven" };
    const char *paths[3] = { within(folder, "a.txt"), within(folder, "b.txt"),
                             within(folder, "c.txt") };
    struct alibi_tokenize_result result;
    alibi_tokenizer *t = bytes_tokenizer();

    for (int i = 0; i < 3; i++)
        write_file(paths[i], in[i], strlen(in[i]));
    assert_ok(
        alibi_tokenize(t, paths, 3, &(struct alibi_reading){ 0 }, 8, out, &result, test_call()));
    assert_int_equal(result.shards, 5);
    alibi_tokenizer_free(t);
    return out;
}

/* ---- shards of others */

/* 50,000 shards may be open: a list that grows one by one would be copied for minutes. */
static void a_long_list_of_shards_grows_in_few_steps(void **state)
{
    struct shards list = { 0 };

    (void)state;
    assert_ok(alibi_inject_fault("memory", 100));
    for (int i = 0; i < 10000; i++)
        assert_ok(shards_push(&list, &(struct shard){ .count = 2 }));
    assert_ok(alibi_inject_fault("memory", 0));
    assert_int_equal(list.at[9999].first, 2 * 9999);
    assert_int_equal(shards_tokens(&list), 20000);
    shards_fini(&list);
}

static void files_of_others_are_read_in_the_order_of_their_names(void **state)
{
    char *folder = temporary_folder();
    const char *path = within(folder, "web_2.bin");
    alibi_tokenizer *t = bytes_tokenizer();
    alibi_corpus *c = NULL;

    (void)state;
    write_text_shard(within(folder, "web_1.bin"), "first|sec");
    write_text_shard(path, "ond|");
    write_file(within(folder, "README"), "no shard", 8);
    assert_ok(open_one(&c, folder, t));
    assert_split(c, ALIBI_ALL, "first|second|");
    assert_string_equal(corpus_name(c), folder);
    alibi_corpus_free(c);
    assert_ok(open_one(&c, path, t));
    assert_split(c, ALIBI_ALL, "ond|");
    alibi_corpus_free(c);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

static void shards_without_a_tokenizer_are_refused(void **state)
{
    char *folder = temporary_folder();
    alibi_corpus *c = NULL;

    (void)state;
    write_text_shard(within(folder, "a.bin"), "text|");
    assert_fails(open_one(&c, folder, NULL), ALIBI_BAD_INPUT, "has no tokenizer; give the one");
    assert_null(c);
    remove_temporary_folder(folder);
}

static void an_id_beyond_the_vocabulary_is_named_with_its_place(void **state)
{
    static const int32_t ids[] = { 'a', 256, 'b', 257, 'c', 65535 }, wide[] = { 1, 2, -1, 3 };
    char *folder = temporary_folder();
    alibi_tokenizer *t = bytes_tokenizer();
    alibi_corpus *c = NULL;

    (void)state;
    write_text_shard(within(folder, "a.bin"), "good|");
    write_shard(within(folder, "b.bin"), ids, 6, 2);
    assert_fails(open_one(&c, folder, t), ALIBI_BAD_INPUT, "b.bin': token 3 is 257");
    write_shard(within(folder, "b.bin"), wide, 4, 4);
    assert_fails(open_one(&c, folder, t), ALIBI_BAD_INPUT, "b.bin': token 2 is 4294967295");
    assert_null(c);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

/* The wrong id is far from the start, in a part that another thread may check. */
static void an_id_beyond_the_vocabulary_is_found_wherever_it_is(void **state)
{
    enum { COUNT = 3 << 20 };
    char *folder = temporary_folder(), message[64];
    const char *path = within(folder, "a.bin");
    int32_t *ids = calloc(COUNT, sizeof *ids);
    alibi_tokenizer *t = bytes_tokenizer();
    alibi_corpus *c = NULL;

    (void)state;
    assert_non_null(ids);
    for (int64_t at = COUNT - 1; at > 0; at /= 7) {
        ids[at] = 300 + (int32_t)(at % 7);
        write_shard(path, ids, COUNT, 2);
        snprintf(message, sizeof message, "token %lld is %d,", (long long)at, ids[at]);
        assert_fails(open_one(&c, path, t), ALIBI_BAD_INPUT, message);
    }
    free(ids);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

static void truncated_and_foreign_files_are_named(void **state)
{
    char *folder = temporary_folder();
    const char *path = within(folder, "a.bin");
    alibi_tokenizer *t = bytes_tokenizer();
    alibi_corpus *c = NULL;

    (void)state;
    for (int64_t bytes = 0; bytes < SHARD_HEADER_BYTES + 10; bytes += bytes < 1020 ? 100 : 1) {
        write_text_shard(path, "text|");
        assert_int_equal(truncate(path, bytes), 0);
        assert_fails(open_one(&c, path, t), ALIBI_BAD_INPUT, "a.bin'");
    }
    write_file(path, "this is text, whatever its name says", 36);
    assert_fails(open_one(&c, path, t), ALIBI_BAD_INPUT, "a.bin'");
    assert_fails(open_one(&c, within(folder, "absent.bin"), t), ALIBI_BAD_INPUT, "absent.bin");
    assert_null(c);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

/* ---- shards of ours */

static void a_tokenized_folder_is_its_text(void **state)
{
    char *folder = temporary_folder();
    const char *path = tokenized(folder);
    const char *texts[3] = { "one two\nthree", "four five six", "seven" };
    struct alibi_corpus_info info, from_text;
    alibi_corpus *c = NULL, *text = NULL;

    (void)state;
    assert_ok(open_one(&c, path, NULL));
    assert_ok(corpus_from_texts(&text, texts, 3));
    assert_split(c, ALIBI_ALL, sample);
    for (int s = ALIBI_TRAIN; s <= ALIBI_ALL; s++) {
        alibi_corpus_get_info(c, (enum alibi_split)s, &info);
        alibi_corpus_get_info(text, (enum alibi_split)s, &from_text);
        assert_same_info(info, from_text);
    }
    assert_int_equal(corpus_checksum(c), corpus_checksum(text));
    alibi_corpus_free(c);
    alibi_corpus_free(text);
    remove_temporary_folder(folder);
}

static void flip(const char *path, long at, int bit)
{
    FILE *f = fopen(path, "r+b");
    int byte;

    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    byte = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(byte ^ 1 << bit, f);
    assert_int_equal(fclose(f), 0);
}

static void every_flipped_bit_is_found(void **state)
{
    static const char *const names[] = { "tokens-00000.bin", "tokens-00004.bin", "index.json",
                                         "tokenizer.json" };
    char *folder = temporary_folder();
    const char *path = tokenized(folder);
    alibi_corpus *c = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[4096];
        struct stat info;
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        assert_int_equal(stat(file, &info), 0);
        for (long at = 0; at < info.st_size; at++) {
            flip(file, at, (int)(at % 8));
            if (open_one(&c, path, NULL) != ALIBI_BAD_INPUT)
                fail_msg("byte %ld of %s: not found: %s", at, names[i], alibi_error());
            flip(file, at, (int)(at % 8));
        }
    }
    assert_ok(open_one(&c, path, NULL));
    alibi_corpus_free(c);
    remove_temporary_folder(folder);
}

static void what_differs_from_the_index_is_named(void **state)
{
    char *folder = temporary_folder();
    const char *path = strdup(tokenized(folder));
    const char *shard = within(path, "tokens-00001.bin");
    int32_t ids[8] = { 'o', 'n', 'e', ' ', 't', 'w', 'o', 'x' };
    alibi_corpus *c = NULL;

    (void)state;
    write_shard(shard, ids, 8, 2);
    assert_fails(open_one(&c, path, NULL), ALIBI_BAD_INPUT,
                 "tokens-00001.bin' is damaged: its checksum is");
    write_shard(shard, ids, 7, 2);
    assert_fails(open_one(&c, path, NULL), ALIBI_BAD_INPUT, "tokens-00001.bin' has 7 tokens");
    write_shard(shard, ids, 8, 4);
    assert_fails(open_one(&c, path, NULL), ALIBI_BAD_INPUT,
                 "tokens-00001.bin' has tokens of 32 bits");
    assert_int_equal(unlink(shard), 0);
    assert_fails(open_one(&c, path, NULL), ALIBI_BAD_INPUT, "tokens-00001.bin");
    assert_null(c);
    free((char *)path);
    remove_temporary_folder(folder);
}

static void another_tokenizer_is_refused(void **state)
{
    char *folder = temporary_folder();
    const char *path = strdup(tokenized(folder));
    alibi_tokenizer *same = bytes_tokenizer(), *other = words_tokenizer(10);
    alibi_corpus *c = NULL;

    (void)state;
    assert_ok(open_one(&c, path, same));
    alibi_corpus_free(c);
    c = NULL;
    assert_fails(
        open_one(&c, path, other), ALIBI_BAD_INPUT,
        "was tokenized with another tokenizer (bytes, 257 ids) than the one in use (words, 10 ids)");
    assert_ok(alibi_tokenizer_write(other, within(path, "tokenizer.json")));
    assert_fails(open_one(&c, path, NULL), ALIBI_BAD_INPUT,
                 "tokenizer.json' is not the tokenizer of these shards");
    assert_null(c);
    alibi_tokenizer_free(same);
    alibi_tokenizer_free(other);
    free((char *)path);
    remove_temporary_folder(folder);
}

static void an_unfinished_folder_is_refused(void **state)
{
    static const char *const names[] = { "progress.json", "request.json" };
    alibi_corpus *c = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        char *folder = temporary_folder();
        write_text_shard(within(folder, "tokens-00000.bin"), "text|");
        write_file(within(folder, names[i]), "{}", 2);
        assert_fails(open_one(&c, folder, NULL), ALIBI_BAD_INPUT, "unfinished");
        remove_temporary_folder(folder);
    }
}

/* ---- reading across files */

static void tokens_are_read_across_shards(void **state)
{
    static const char text[] =
        "The tokens of a text lie in files of any size|and a reader|does not notice\n|";
    char *folder = temporary_folder();
    alibi_tokenizer *t = bytes_tokenizer();
    alibi_corpus *whole = NULL, *parts = NULL;
    int32_t ids[128], a[128], b[128];
    int64_t count = ids_of(text, ids), at = 0;
    struct span x, y;

    (void)state;
    assert_int_equal(mkdir(within(folder, "parts"), 0777), 0);
    for (int64_t i = 0; at < count; i++) {
        char name[32];
        int64_t some = i * 5 % 8 < count - at ? i * 5 % 8 : count - at; /* none sometimes */
        snprintf(name, sizeof name, "parts/%02lld.bin", (long long)i);
        write_shard(within(folder, name), ids + at, some, i % 3 == 0 ? 4 : 2);
        at += some;
    }
    write_text_shard(within(folder, "whole.bin"), text);
    assert_ok(open_one(&whole, within(folder, "whole.bin"), t));
    assert_ok(open_one(&parts, within(folder, "parts"), t));
    x = corpus_span(whole, ALIBI_ALL);
    y = corpus_span(parts, ALIBI_ALL);
    assert_int_equal(y.count, count);
    for (int64_t from = 0; from < count; from++)
        for (int64_t n = 0; from + n <= count; n++) {
            int64_t words[2], bytes[2];
            span_read(x, from, n, a);
            span_read(y, from, n, b);
            assert_memory_equal(a, b, (size_t)n * sizeof *a);
            assert_memory_equal(a, ids + from, (size_t)n * sizeof *a);
            span_measure(x, from, n, &words[0], &bytes[0]);
            span_measure(y, from, n, &words[1], &bytes[1]);
            assert_true(words[0] == words[1] && bytes[0] == bytes[1]);
        }
    for (int s = ALIBI_TRAIN; s <= ALIBI_TEST; s++)
        assert_int_equal(corpus_span(whole, (enum alibi_split)s).count,
                         corpus_span(parts, (enum alibi_split)s).count);
    alibi_corpus_free(whole);
    alibi_corpus_free(parts);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

static void the_checksum_does_not_depend_on_where_shards_end(void **state)
{
    enum { COUNT = 5000000 };
    char *folder = temporary_folder();
    int32_t *ids = malloc(COUNT * sizeof *ids);
    const char *whole = within(folder, "whole.bin"),
               *paths[2] = { within(folder, "a.bin"), within(folder, "b.bin") };
    alibi_tokenizer *t = bytes_tokenizer();
    alibi_corpus *c = NULL, *d = NULL;
    uint16_t *narrow = malloc(COUNT * sizeof *narrow);

    (void)state;
    assert_true(ids != NULL && narrow != NULL);
    for (int i = 0; i < COUNT; i++)
        narrow[i] = (uint16_t)(ids[i] = (int32_t)((unsigned)i * 2654435761u >> 8) & 0xff);
    write_shard(whole, ids, COUNT, 2);
    write_shard(paths[0], ids, 4321, 2);
    write_shard(paths[1], ids + 4321, COUNT - 4321, 2);
    assert_ok(open_one(&c, whole, t));
    assert_ok(alibi_corpus_open(&d, paths, 2, NULL, t, &(struct alibi_reading){ 0 }, test_call()));
    assert_int_equal(corpus_checksum(c), checksum(0, narrow, COUNT * sizeof *narrow));
    assert_int_equal(corpus_checksum(d), corpus_checksum(c));
    alibi_corpus_free(c);
    alibi_corpus_free(d);
    alibi_tokenizer_free(t);
    free(ids);
    free(narrow);
    remove_temporary_folder(folder);
}

/* ---- one shard of ours */

static void a_shard_of_ours_brings_the_tokenizer_of_its_folder(void **state)
{
    char *folder = temporary_folder();
    const char *out = strdup(tokenized(folder)), *path = strdup(within(out, "tokens-00001.bin"));
    alibi_tokenizer *bytes = bytes_tokenizer(), *other = words_tokenizer(300);
    alibi_corpus *c = NULL;
    struct alibi_corpus_info info;

    (void)state;
    assert_ok(open_one(&c, path, NULL));
    assert_split(c, ALIBI_ALL, "three|fo");
    alibi_corpus_get_info(c, ALIBI_ALL, &info);
    assert_int_equal(info.tokens, 8);
    alibi_corpus_free(c);
    assert_ok(open_one(&c, path, bytes));
    alibi_corpus_free(c);
    c = NULL;
    assert_fails(open_one(&c, path, other), ALIBI_BAD_INPUT,
                 "with another tokenizer (bytes, 257 ids) than the one in use");
    assert_ok(file_rename(path, within(out, "tokens-00009.bin")));
    assert_fails(open_one(&c, within(out, "tokens-00009.bin"), bytes), ALIBI_BAD_INPUT,
                 "tokens-00009.bin' is not a shard");
    write_text_shard(path, "other|te");
    assert_fails(open_one(&c, path, bytes), ALIBI_BAD_INPUT, "tokens-00001.bin' is damaged");
    assert_null(c);
    alibi_tokenizer_free(bytes);
    alibi_tokenizer_free(other);
    free((char *)(uintptr_t)out);
    free((char *)(uintptr_t)path);
    remove_temporary_folder(folder);
}

/* ---- ids of more than 16 bits */

static void large_vocabularies_have_wide_ids(void **state)
{
    static const char text[] = "w2 w70000 w65535 w65536\nw99999 new\n";
    static const int32_t want[] = { 2, 70000, 65535, 65536, 1, 99999, 0, 1 };
    char *folder = temporary_folder();
    const char *in = within(folder, "in.txt"), *out = within(folder, "out"), *path[2] = { in, out };
    alibi_tokenizer *t = words_tokenizer(100000);
    struct alibi_tokenize_result result;

    (void)state;
    write_file(in, text, strlen(text));
    assert_ok(
        alibi_tokenize(t, &in, 1, &(struct alibi_reading){ 0 }, 3, out, &result, test_call()));
    for (int i = 0; i < 2; i++) {
        alibi_corpus *c = NULL;
        int32_t ids[8];
        assert_ok(open_one(&c, path[i], t));
        assert_int_equal(corpus_span(c, ALIBI_ALL).count, 8);
        span_read(corpus_span(c, ALIBI_ALL), 0, 8, ids);
        assert_memory_equal(ids, want, sizeof ids);
        alibi_corpus_free(c);
    }
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

/* ---- a validation text of its own, and mixtures */

static void the_validation_text_may_be_a_file_of_its_own(void **state)
{
    char *folder = temporary_folder();
    const char *shards = strdup(tokenized(folder)), *text = within(folder, "valid.txt");
    const struct alibi_reading reading = { 0 };
    alibi_corpus *c = NULL;
    struct alibi_corpus_info info;

    (void)state;
    write_file(text, "held out\n", 9);
    assert_ok(alibi_corpus_open(&c, &shards, 1, text, NULL, &reading, test_call()));
    assert_split(c, ALIBI_TRAIN, sample);
    assert_split(c, ALIBI_VALID, "held out\n|");
    assert_split(c, ALIBI_TEST, "");
    alibi_corpus_get_info(c, ALIBI_VALID, &info);
    assert_int_equal(info.words, 2);
    alibi_corpus_get_info(c, ALIBI_ALL, &info);
    assert_int_equal(info.documents, 4);
    alibi_corpus_free(c);
    c = NULL;
    assert_ok(alibi_corpus_open(&c, &text, 1, shards, NULL, &reading, test_call()));
    assert_split(c, ALIBI_TRAIN, "held out\n|");
    assert_split(c, ALIBI_VALID, sample);
    alibi_corpus_free(c);
    c = NULL;
    assert_fails(
        alibi_corpus_open(&c, &shards, 1, within(folder, "absent"), NULL, &reading, test_call()),
        ALIBI_BAD_INPUT, "absent");
    write_file(text, "", 0);
    assert_fails(alibi_corpus_open(&c, &shards, 1, text, NULL, &reading, test_call()),
                 ALIBI_BAD_INPUT, "valid.txt' is empty");
    assert_null(c);
    free((char *)shards);
    remove_temporary_folder(folder);
}

static void text_and_shards_are_not_mixed(void **state)
{
    char *folder = temporary_folder(), message[1024];
    const char *shards = strdup(tokenized(folder)), *text = within(folder, "a.txt");
    const char *one[] = { text, shards }, *two[] = { shards, text };
    alibi_corpus *c = NULL;

    (void)state;
    snprintf(message, sizeof message, "'%s' holds tokens and '%s' text", shards, text);
    assert_fails(
        alibi_corpus_open(&c, one, 2, NULL, NULL, &(struct alibi_reading){ 0 }, test_call()),
        ALIBI_BAD_INPUT, message);
    assert_fails(
        alibi_corpus_open(&c, two, 2, NULL, NULL, &(struct alibi_reading){ 0 }, test_call()),
        ALIBI_BAD_INPUT, message);
    assert_null(c);
    free((char *)shards);
    remove_temporary_folder(folder);
}

static void a_stop_is_answered_between_shards(void **state)
{
    char *folder = temporary_folder();
    const char *path = tokenized(folder);
    alibi_corpus *c = NULL;

    (void)state;
    alibi_stop_request(&test_stop);
    assert_fails(open_one(&c, path, NULL), ALIBI_INTERRUPTED, "stopped");
    assert_null(c);
    test_watch(NULL, NULL, NULL);
    assert_ok(open_one(&c, path, NULL));
    alibi_corpus_free(c);
    remove_temporary_folder(folder);
}

/* ---- inspect */

static void assert_inspected(const char *path, const char *const *parts, int count)
{
    for (int json = 0; json < 2; json++) {
        char *text = NULL;
        assert_ok(alibi_inspect(&text, path, json, test_call()));
        for (int i = 0; i < count; i++)
            if (strstr(text, parts[i]) == NULL)
                fail_msg("'%s' is not in\n%s", parts[i], text);
        alibi_text_free(text);
    }
}

static void inspect_verifies_and_counts(void **state)
{
    static const char *const ours[] = { "tokens",    "every byte, every id",
                                        "documents", "tokens-00004.bin",
                                        "bytes",     "257" };
    static const char *const others[] = { "tokens", "headers and sizes", "a.bin", "116" };
    static const char *const tokenizer[] = { "tokenizer", "bytes", "257", "checksum" };
    char *folder = temporary_folder(), *text = NULL;
    const char *path = strdup(tokenized(folder));

    (void)state;
    assert_inspected(path, ours, 6);
    assert_inspected(within(path, "tokenizer.json"), tokenizer, 4);
    write_shard(within(folder, "a.bin"), (int32_t[]){ 't', 'e' }, 2, 4);
    assert_inspected(within(folder, "a.bin"), others, 4);
    flip(within(path, "tokens-00002.bin"), 1030, 3);
    assert_fails(alibi_inspect(&text, path, true, test_call()), ALIBI_BAD_INPUT,
                 "tokens-00002.bin' is damaged");
    assert_null(text);
    free((char *)path);
    remove_temporary_folder(folder);
}

/* ---- faults */

/* Shards in a folder and one outside it, with a text to validate on. */
static alibi_status open_everything(void *subject)
{
    const char *folder = subject, *paths[] = { within(folder, "tokens"), within(folder, "x.bin") };
    alibi_corpus *c = NULL;
    alibi_status status = alibi_corpus_open(&c, paths, 2, within(folder, "a.txt"), NULL,
                                            &(struct alibi_reading){ 0 }, test_call());

    alibi_corpus_free(c);
    return status;
}

static void assert_every_fault_is_clean(const char *kind, alibi_status expected)
{
    char *folder = temporary_folder();

    tokenized(folder);
    write_text_shard(within(folder, "x.bin"), "more|");
    assert_true(fail_each_call(kind, open_everything, folder, expected, "") >= 10);
    remove_temporary_folder(folder);
}

static void memory_faults_leak_nothing(void **state)
{
    (void)state;
    assert_every_fault_is_clean("memory", ALIBI_MEMORY);
}

static void file_faults_leak_nothing(void **state)
{
    (void)state;
    assert_every_fault_is_clean("file", ALIBI_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_list_of_shards_grows_in_few_steps),
        cmocka_unit_test(files_of_others_are_read_in_the_order_of_their_names),
        cmocka_unit_test(shards_without_a_tokenizer_are_refused),
        cmocka_unit_test(an_id_beyond_the_vocabulary_is_named_with_its_place),
        cmocka_unit_test(an_id_beyond_the_vocabulary_is_found_wherever_it_is),
        cmocka_unit_test(truncated_and_foreign_files_are_named),
        cmocka_unit_test(a_tokenized_folder_is_its_text),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(what_differs_from_the_index_is_named),
        cmocka_unit_test(another_tokenizer_is_refused),
        cmocka_unit_test(an_unfinished_folder_is_refused),
        cmocka_unit_test(tokens_are_read_across_shards),
        cmocka_unit_test(the_checksum_does_not_depend_on_where_shards_end),
        cmocka_unit_test(a_shard_of_ours_brings_the_tokenizer_of_its_folder),
        cmocka_unit_test(large_vocabularies_have_wide_ids),
        cmocka_unit_test(the_validation_text_may_be_a_file_of_its_own),
        cmocka_unit_test(text_and_shards_are_not_mixed),
        cmocka_unit_test(a_stop_is_answered_between_shards),
        cmocka_unit_test(inspect_verifies_and_counts),
        cmocka_unit_test(memory_faults_leak_nothing),
        cmocka_unit_test(file_faults_leak_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
