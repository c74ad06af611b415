/* test_corpus.c - corpora of text: splits, measures, what is refused, what is written */
#include "check.h"
#include "text/text.h"

/* ---- helpers */

static alibi_corpus *corpus_of(const char *const *texts, int count)
{
    alibi_corpus *c = NULL;

    assert_ok(corpus_from_texts(&c, texts, count));
    return c;
}

/* `lines` lines "line <number>\n" in memory that the caller frees. */
static char *numbered_lines(int lines)
{
    char *text = malloc((size_t)lines * 16 + 1);
    size_t at = 0;

    assert_non_null(text);
    for (int i = 0; i < lines; i++)
        at += (size_t)sprintf(text + at, "line %d\n", i);
    return text;
}

static alibi_corpus *corpus_of_lines(int lines)
{
    char *text = numbered_lines(lines);
    alibi_corpus *c = corpus_of((const char *const[]){ text }, 1);

    free(text);
    return c;
}

static struct alibi_corpus_info info_of(const alibi_corpus *c, enum alibi_split split)
{
    struct alibi_corpus_info info;

    alibi_corpus_get_info(c, split, &info);
    return info;
}

static alibi_status open_texts(alibi_corpus **c, const char *const *paths, int count)
{
    return alibi_corpus_open(c, paths, count, NULL, NULL, &(struct alibi_reading){ 0 },
                             test_call());
}

/* The tokens of a split as text in memory that the caller frees; an end token becomes '|'. */
static char *split_text(const alibi_corpus *c, enum alibi_split split)
{
    struct span s = corpus_span(c, split);
    int32_t *ids = malloc((size_t)(s.count + 1) * sizeof *ids);
    char *text = malloc((size_t)s.count + 1);

    assert_non_null(ids);
    assert_non_null(text);
    span_read(s, 0, s.count, ids);
    for (int64_t i = 0; i < s.count; i++)
        text[i] = ids[i] == 256 ? '|' : (char)ids[i];
    text[s.count] = '\0';
    free(ids);
    return text;
}

static void assert_split(const alibi_corpus *c, enum alibi_split split, const char *expected)
{
    char *text = split_text(c, split);

    assert_string_equal(text, expected);
    free(text);
}

/* ---- corpus */

static void every_document_is_followed_by_one_end_token(void **state)
{
    alibi_corpus *c = corpus_of((const char *const[]){ "one", "two\n", "three" }, 3);
    struct alibi_corpus_info info = info_of(c, ALIBI_ALL);

    (void)state;
    assert_split(c, ALIBI_ALL, "one|two\n|three|");
    assert_int_equal(info.documents, 3);
    assert_int_equal(info.tokens, 15);
    assert_int_equal(info.bytes, 12);
    assert_int_equal(info.words, 3);
    assert_int_equal(info.vocab, 257);
    alibi_corpus_free(c);
}

static void texts_in_memory_are_documents_and_empty_ones_are_skipped(void **state)
{
    static const char *const texts[] = { "", "one", "t\303\251", "", "two|", "" };
    static const char *const broken[] = { "fine", "\303" };
    static const size_t bytes[] = { 0, 3, 3, 0, 3, 0 }, lengths[] = { 4, 1 };
    alibi_corpus *c = NULL;

    (void)state;
    assert_ok(alibi_corpus_texts(&c, texts, bytes, 6, NULL, test_call()));
    assert_split(c, ALIBI_ALL, "one|t\303\251|two|");
    assert_int_equal(info_of(c, ALIBI_ALL).documents, 3);
    alibi_corpus_free(c);
    assert_fails(alibi_corpus_texts(&c, texts, bytes, 0, NULL, test_call()), ALIBI_USAGE,
                 "a corpus needs at least one text");
    assert_fails(alibi_corpus_texts(&c, broken, lengths, 2, NULL, test_call()), ALIBI_BAD_INPUT,
                 "'text 2' is not UTF-8: byte 0xc3 at offset 0");
    assert_fails(alibi_corpus_texts(&c, texts, bytes, 1, NULL, test_call()), ALIBI_BAD_INPUT,
                 "there is no text in 'texts'");
}

/* A tokenizer of ids makes none of blanks. */
static void a_text_without_tokens_is_empty_in_memory_too(void **state)
{
    static const char json[] = "{\"type\": \"ids\", \"vocab\": 300}";
    static const char *const texts[] = { "7 8 9", " \n" };
    static const size_t bytes[] = { 5, 2 };
    alibi_tokenizer *t = NULL;
    alibi_corpus *c = NULL;

    (void)state;
    assert_ok(tokenizer_read(&t, json, strlen(json), "t.json"));
    assert_ok(alibi_corpus_texts(&c, texts, bytes, 2, t, test_call()));
    assert_int_equal(info_of(c, ALIBI_ALL).tokens, 3);
    alibi_corpus_free(c);
    assert_fails(alibi_corpus_texts(&c, texts + 1, bytes + 1, 1, t, test_call()), ALIBI_BAD_INPUT,
                 "'texts' is empty");
    alibi_tokenizer_free(t);
}

static void a_corpus_names_its_text(void **state)
{
    const char *own[] = { NULL, NULL };
    char *dir = temporary_folder();
    alibi_corpus *c = NULL;
    struct alibi_corpus_info info;

    (void)state;
    own[0] = within(dir, "a.txt");
    own[1] = within(dir, "b.txt");
    write_file(own[0], "one two three four five six seven eight", 39);
    write_file(own[1], "one", 3);
    assert_ok(open_texts(&c, own, 2));
    info = info_of(c, ALIBI_VALID);
    assert_string_equal(info.name, own[0]);
    assert_int_equal(info.paths, 2);
    assert_int_equal(info.checksum, corpus_checksum(c));
    alibi_corpus_free(c);
    remove_temporary_folder(dir);
}

static void words_are_runs_without_white_space(void **state)
{
    alibi_corpus *c = corpus_of(
        (const char *const[]){
            "  one two\tthree\n\n four\vfive\fsix\r\nd\xc3\xa9j\xc3\xa0-vu, \xc2\xa0 8" },
        1);

    (void)state;
    assert_int_equal(info_of(c, ALIBI_ALL).words,
                     9); /* only ASCII white space separates: U+00A0 is a word of its own */
    alibi_corpus_free(c);
}

static void splits_are_consecutive_and_complete(void **state)
{
    static const int sizes[] = { 1, 2, 3, 5, 10, 100, 1000 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        alibi_corpus *c = corpus_of_lines(sizes[i]);
        struct span all = corpus_span(c, ALIBI_ALL);
        int64_t next = 0, words = 0, bytes = 0;
        for (int s = ALIBI_TRAIN; s <= ALIBI_TEST; s++) {
            struct span part = corpus_span(c, (enum alibi_split)s);
            assert_int_equal(part.first, next);
            next += part.count;
            words += info_of(c, (enum alibi_split)s).words;
            bytes += info_of(c, (enum alibi_split)s).bytes;
        }
        assert_int_equal(all.first, 0);
        assert_int_equal(all.count, next);
        assert_int_equal(info_of(c, ALIBI_ALL).words, words);
        assert_int_equal(info_of(c, ALIBI_ALL).bytes, bytes);
        alibi_corpus_free(c);
    }
}

static void splits_of_files_are_a_twentieth_each_and_start_at_lines(void **state)
{
    alibi_corpus *c = corpus_of_lines(1000);
    int64_t count = corpus_span(c, ALIBI_ALL).count;

    (void)state;
    for (int s = ALIBI_VALID; s <= ALIBI_TEST; s++) {
        struct span part = corpus_span(c, (enum alibi_split)s);
        int32_t start[5];
        assert_in_range(part.count, count / 20 - 20, count / 20 + 20);
        span_read(part, 0, 5, start);
        for (int i = 0; i < 5; i++)
            assert_int_equal(start[i], "line "[i]);
    }
    alibi_corpus_free(c);
}

static void splits_of_one_long_line_are_cut_between_characters(void **state)
{
    (void)state;
    for (int shift = 0; shift < 3; shift++) {
        char text[1600] = "xxx";
        alibi_corpus *c;
        for (int i = 0; i < 500; i++)
            memcpy(text + shift + 3 * i, "\xe2\x82\xac", 4);
        c = corpus_of((const char *const[]){ text }, 1);
        for (int s = ALIBI_VALID; s <= ALIBI_TEST; s++) {
            int32_t first;
            span_read(corpus_span(c, (enum alibi_split)s), 0, 1, &first);
            assert_int_equal(first, 0xe2);
        }
        alibi_corpus_free(c);
    }
}

static void measures_of_the_parts_add_up_to_the_whole(void **state)
{
    alibi_corpus *c = corpus_of(
        (const char *const[]){ "one two  three", " four\n", "five", "\n\nsix seven\n" }, 4);
    struct span all = corpus_span(c, ALIBI_ALL);

    (void)state;
    assert_int_equal(info_of(c, ALIBI_ALL).words, 7);
    for (int64_t width = 1; width <= all.count; width++) {
        int64_t words = 0, bytes = 0;
        for (int64_t from = 0; from < all.count; from += width) {
            int64_t part_words, part_bytes;
            span_measure(all, from, from + width < all.count ? width : all.count - from,
                         &part_words, &part_bytes);
            words += part_words;
            bytes += part_bytes;
        }
        assert_int_equal(words, 7);
        assert_int_equal(bytes, info_of(c, ALIBI_ALL).bytes);
    }
    alibi_corpus_free(c);
}

/* More tokens than one piece of memory holds, and more than one thread counts at a time. */
static void a_long_text_in_many_pieces_is_the_same_text(void **state)
{
    enum { LINES = 1 << 20, LINE = 10 };
    char *folder = temporary_folder(), *text = malloc(LINES * LINE + 1);
    const char *path = within(folder, "long.txt");
    struct alibi_corpus_info info;
    alibi_corpus *c = NULL;
    int32_t line[LINE + 1];

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        sprintf(text + LINE * i, "%d o\n", 1000000 + i);
    write_file(path, text, LINES * LINE);
    assert_ok(open_texts(&c, &path, 1));
    info = info_of(c, ALIBI_ALL);
    assert_int_equal(info.tokens, LINES * LINE + 1);
    assert_int_equal(info.bytes, LINES * LINE);
    assert_int_equal(info.words, 2 * LINES);
    for (int i = 0; i < LINES; i += 997) {
        span_read(corpus_span(c, ALIBI_ALL), LINE * i, LINE, line);
        for (int k = 0; k < LINE; k++)
            assert_int_equal(line[k], text[LINE * i + k]);
    }
    alibi_corpus_free(c);
    free(text);
    remove_temporary_folder(folder);
}

static void a_word_counts_where_its_first_byte_is(void **state)
{
    alibi_corpus *c = corpus_of((const char *const[]){ "one two", "three" }, 2);
    struct span all = corpus_span(c, ALIBI_ALL);
    int64_t words, bytes;

    (void)state;
    span_measure(all, 0, 1, &words, &bytes);
    assert_int_equal(words, 1);
    assert_int_equal(bytes, 1);
    span_measure(all, 1, 3, &words, &bytes); /* "ne " */
    assert_int_equal(words, 0);
    span_measure(all, 7, 2, &words, &bytes); /* the end of a document, then "t" */
    assert_int_equal(words, 1);
    assert_int_equal(bytes, 1);
    span_measure(all, 3, 0, &words, &bytes);
    assert_int_equal(words + bytes, 0);
    alibi_corpus_free(c);
}

/* "first+count" of each document, and '.' if it ended. */
static alibi_status note_document(void *user, int64_t first, int64_t count, bool ended)
{
    char *seen = user;

    snprintf(seen + strlen(seen), 64, "%lld+%lld%s ", (long long)first, (long long)count,
             ended ? "." : "");
    return ALIBI_OK;
}

static void a_span_knows_its_documents(void **state)
{
    alibi_corpus *c = corpus_of((const char *const[]){ "one", "three", "2" }, 3), *words = NULL;
    char *folder = temporary_folder(), path[300], seen[256] = "";
    const struct slice vocabulary[] = { { "<unk>", 5 }, { "<eos>", 5 }, { "one", 3 } };
    struct span all = corpus_span(c, ALIBI_ALL);
    alibi_tokenizer *t = NULL;

    (void)state;
    assert_ok(span_documents(all, note_document, seen));
    assert_string_equal(seen, "0+4. 4+6. 10+2. ");
    seen[0] = 0;
    assert_ok(span_documents((struct span){ c, 2, 5 }, note_document, seen));
    assert_string_equal(seen, "0+2. 2+3 ");
    /* The end token of words ends a line, so their documents are not known. */
    snprintf(path, sizeof path, "%s/words.txt", folder);
    assert_ok(file_replace(path, "one one\none\n", 12));
    assert_ok(tokenizer_new_words(&t, vocabulary, 3));
    assert_ok(alibi_corpus_open(&words, (const char *const[]){ path }, 1, NULL, t, NULL, NULL));
    seen[0] = 0;
    assert_ok(span_documents(corpus_span(words, ALIBI_ALL), note_document, seen));
    assert_string_equal(seen, "0+5 ");
    alibi_tokenizer_free(t);
    alibi_corpus_free(words);
    alibi_corpus_free(c);
    remove_temporary_folder(folder);
}

static void files_become_documents_in_their_order(void **state)
{
    char *folder = temporary_folder();
    const char *paths[] = { within(folder, "b.txt"), within(folder, "a.txt") };
    alibi_corpus *c = NULL;

    (void)state;
    write_file(paths[0], "second name\n", 12);
    write_file(paths[1], "first name", 10);
    assert_ok(open_texts(&c, paths, 2));
    assert_string_equal(corpus_name(c), paths[0]);
    assert_split(c, ALIBI_ALL, "second name\n|first name|");
    alibi_corpus_free(c);
    remove_temporary_folder(folder);
}

/* Blocks of a file end anywhere within a character; the text must not notice. */
static void characters_across_blocks_are_read_whole(void **state)
{
    enum { BYTES = 3 * 65536 };
    char *folder = temporary_folder(), *text = malloc(BYTES + 5);
    const char *path = within(folder, "long.txt");

    (void)state;
    assert_non_null(text);
    for (size_t shift = 0; shift < 4; shift++) {
        alibi_corpus *c = NULL;
        memset(text, 'x', BYTES + 5);
        for (size_t i = shift; i + 4 <= BYTES; i += 4)
            memcpy(text + i, "\xf0\x9f\x98\x80", 4);
        write_file(path, text, BYTES + shift);
        assert_ok(open_texts(&c, &path, 1));
        assert_int_equal(info_of(c, ALIBI_ALL).bytes, BYTES + shift);
        alibi_corpus_free(c);
    }
    free(text);
    remove_temporary_folder(folder);
}

static void assert_refused(const char *path, const char *bytes, size_t length, const char *part)
{
    alibi_corpus *c = NULL;
    char message[512];

    write_file(path, bytes, length);
    snprintf(message, sizeof message, "'%s' %s", path, part);
    assert_fails(open_texts(&c, &path, 1), ALIBI_BAD_INPUT, message);
    assert_null(c);
}

static void files_that_are_no_text_are_refused_with_the_place(void **state)
{
    char *folder = temporary_folder();
    const char *path = within(folder, "x.txt");

    (void)state;
    assert_refused(path, "", 0, "is empty");
    assert_refused(path, "seventeen bytes..\0 and more", 27, "is not text: byte 0 at offset 17");
    assert_refused(path, "first line\nsecond \377 line\n", 25,
                   "is not UTF-8: byte 0xff at offset 18 (line 2)");
    assert_refused(path, "cut short \xc3", 11, "is not UTF-8: byte 0xc3 at offset 10 (line 1)");
    assert_refused(path, "\n\nsurrogate \xed\xa0\x80 here", 20,
                   "is not UTF-8: byte 0xed at offset 12 (line 3)");
    assert_refused(path, "overlong \xc0\xaf", 11, "is not UTF-8: byte 0xc0 at offset 9 (line 1)");
    assert_refused(path, "\xff\0", 2, "is not UTF-8: byte 0xff at offset 0 (line 1)");
    remove_temporary_folder(folder);
}

static void bad_bytes_far_into_a_file_are_named_by_offset_and_line(void **state)
{
    enum { LINES = 30000 };
    char *folder = temporary_folder(), *text = malloc(8 * LINES + 2);
    const char *path = within(folder, "far.txt");

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        memcpy(text + 8 * i, "7 bytes\n", 8);
    text[8 * 25000 + 3] = (char)0xfe;
    assert_refused(path, text, 8 * LINES, "is not UTF-8: byte 0xfe at offset 200003 (line 25001)");
    text[8 * 25000 + 3] = '\0';
    assert_refused(path, text, 8 * LINES, "is not text: byte 0 at offset 200003");
    memcpy(text + 65535, "\xe2\x82\x20",
           3); /* a character that a block's end cuts, and that is then wrong */
    assert_refused(path, text, 8 * LINES, "is not UTF-8: byte 0xe2 at offset 65535 (line 8192)");
    free(text);
    remove_temporary_folder(folder);
}

static void files_that_cannot_be_read_are_named(void **state)
{
    char *folder = temporary_folder();
    const char *missing = within(folder, "missing.txt"), *good = within(folder, "good.txt");
    alibi_corpus *c = NULL;

    (void)state;
    write_file(good, "good", 4);
    assert_fails(open_texts(&c, &missing, 1), ALIBI_BAD_INPUT, missing);
    assert_fails(open_texts(&c, (const char *const[]){ good, missing }, 2), ALIBI_BAD_INPUT,
                 missing);
    assert_fails(open_texts(&c, NULL, 0), ALIBI_USAGE, "at least one file");
    assert_null(c);
    remove_temporary_folder(folder);
}

static void unreadable_file_is_named(void **state)
{
    char *folder;
    const char *path;
    alibi_corpus *c = NULL;

    (void)state;
    if (geteuid() == 0)
        skip_because("root may read every file");
    folder = temporary_folder();
    path = within(folder, "locked.txt");
    write_file(path, "secret", 6);
    chmod(path, 0);
    assert_fails(open_texts(&c, &path, 1), ALIBI_BAD_INPUT, path);
    remove_temporary_folder(folder);
}

static void assert_written(const alibi_corpus *c, enum alibi_split split, const char *path,
                           const char *expected)
{
    char *bytes = NULL;
    size_t length;

    assert_ok(alibi_corpus_write(c, split, path));
    assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
    assert_int_equal(length, strlen(expected));
    assert_string_equal(bytes, expected);
    mem_free(bytes);
}

static void text_is_written_as_it_was_read(void **state)
{
    char *folder = temporary_folder(), *lines = numbered_lines(20000);
    alibi_corpus *one = corpus_of((const char *const[]){ lines }, 1);
    alibi_corpus *several =
        corpus_of((const char *const[]){ "no end", "end\n", "d\xc3\xa9j\xc3\xa0" }, 3);

    (void)state;
    assert_written(one, ALIBI_ALL, within(folder, "all.txt"), lines);
    assert_written(several, ALIBI_ALL, within(folder, "all.txt"),
                   "no end\nend\nd\xc3\xa9j\xc3\xa0");
    assert_fails(alibi_corpus_write(one, ALIBI_ALL, folder), ALIBI_BAD_INPUT, folder);
    alibi_corpus_free(one);
    alibi_corpus_free(several);
    free(lines);
    remove_temporary_folder(folder);
}

static void a_text_that_cannot_be_written_leaves_the_old_file(void **state)
{
    char *folder = temporary_folder(), *lines = numbered_lines(20000);
    const char *path = within(folder, "all.txt");
    alibi_corpus *c = corpus_of((const char *const[]){ lines }, 1);
    int refused = 0;

    (void)state;
    for (int n = 1;; n++) {
        char *bytes = NULL;
        size_t length;
        write_file(path, "the old text", 12);
        assert_ok(alibi_inject_fault("file", n));
        if (alibi_corpus_write(c, ALIBI_ALL, path) == ALIBI_OK)
            break;
        assert_ok(alibi_inject_fault("file", 0));
        assert_ok(file_read_all(&bytes, &length, path, 1 << 20));
        assert_string_equal(bytes, length == 12
                                       ? "the old text"
                                       : lines); /* the new one if only its last sync failed */
        refused += length == 12;
        mem_free(bytes);
    }
    assert_ok(alibi_inject_fault("file", 0));
    assert_true(refused > 5);
    alibi_corpus_free(c);
    free(lines);
    remove_temporary_folder(folder);
}

static void written_splits_join_to_the_text(void **state)
{
    static const char *const names[] = { "train.txt", "valid.txt", "test.txt" };
    char *folder = temporary_folder(), *lines = numbered_lines(5000);
    alibi_corpus *c = corpus_of((const char *const[]){ lines }, 1);
    struct text joined = { 0 };

    (void)state;
    for (int s = ALIBI_TRAIN; s <= ALIBI_TEST; s++) {
        char *bytes = NULL;
        size_t length;
        assert_ok(alibi_corpus_write(c, (enum alibi_split)s, within(folder, names[s])));
        assert_ok(file_read_all(&bytes, &length, within(folder, names[s]), 1 << 20));
        text_append_bytes(&joined, bytes, length);
        mem_free(bytes);
    }
    assert_string_equal(joined.data, lines);
    text_free(&joined);
    free(lines);
    alibi_corpus_free(c);
    remove_temporary_folder(folder);
}

static void checksum_tells_texts_apart(void **state)
{
    alibi_corpus *a = corpus_of((const char *const[]){ "one", "two" }, 2);
    alibi_corpus *same = corpus_of((const char *const[]){ "one", "two" }, 2);
    alibi_corpus *joined = corpus_of((const char *const[]){ "onetwo" }, 1);

    (void)state;
    assert_int_equal(corpus_checksum(a), corpus_checksum(same));
    assert_int_not_equal(corpus_checksum(a), corpus_checksum(joined));
    alibi_corpus_free(a);
    alibi_corpus_free(same);
    alibi_corpus_free(joined);
}

/* ---- faults */

/* A use of the whole room, to be failed anywhere. */
static alibi_status use_everything(void *subject)
{
    const char *folder = subject;
    static const char json[] = "{\"type\": \"bytes\", \"vocab\": 257, \"end\": 256}";
    const char *paths[] = { within(folder, "in.txt"), within(folder, "in.txt") };
    alibi_status status;
    alibi_corpus *c = NULL, *in_memory = NULL;
    alibi_tokenizer *t = NULL;
    struct text out = { 0 };

    TRY(open_texts(&c, paths, 2));
    TRY(alibi_corpus_write(c, ALIBI_ALL, within(folder, "out.txt")));
    TRY(tokenizer_read(&t, json, strlen(json), "t.json"));
    TRY(tokenizer_format(t, &out));
    TRY(corpus_from_texts(&in_memory, (const char *const[]){ "one", "two" }, 2));
out:
    alibi_corpus_free(c);
    alibi_corpus_free(in_memory);
    alibi_tokenizer_free(t);
    text_free(&out);
    return status;
}

static void assert_every_fault_is_clean(const char *kind, alibi_status expected)
{
    char *folder = temporary_folder(), *lines = numbered_lines(9000);

    write_file(within(folder, "in.txt"), lines, strlen(lines));
    assert_true(fail_each_call(kind, use_everything, folder, expected, "") >= 10);
    free(lines);
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
        cmocka_unit_test(every_document_is_followed_by_one_end_token),
        cmocka_unit_test(texts_in_memory_are_documents_and_empty_ones_are_skipped),
        cmocka_unit_test(a_text_without_tokens_is_empty_in_memory_too),
        cmocka_unit_test(a_corpus_names_its_text),
        cmocka_unit_test(words_are_runs_without_white_space),
        cmocka_unit_test(splits_are_consecutive_and_complete),
        cmocka_unit_test(splits_of_files_are_a_twentieth_each_and_start_at_lines),
        cmocka_unit_test(splits_of_one_long_line_are_cut_between_characters),
        cmocka_unit_test(measures_of_the_parts_add_up_to_the_whole),
        cmocka_unit_test(a_long_text_in_many_pieces_is_the_same_text),
        cmocka_unit_test(a_word_counts_where_its_first_byte_is),
        cmocka_unit_test(a_span_knows_its_documents),
        cmocka_unit_test(files_become_documents_in_their_order),
        cmocka_unit_test(characters_across_blocks_are_read_whole),
        cmocka_unit_test(files_that_are_no_text_are_refused_with_the_place),
        cmocka_unit_test(bad_bytes_far_into_a_file_are_named_by_offset_and_line),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
        cmocka_unit_test(unreadable_file_is_named),
        cmocka_unit_test(text_is_written_as_it_was_read),
        cmocka_unit_test(a_text_that_cannot_be_written_leaves_the_old_file),
        cmocka_unit_test(written_splits_join_to_the_text),
        cmocka_unit_test(checksum_tells_texts_apart),
        cmocka_unit_test(memory_faults_leak_nothing),
        cmocka_unit_test(file_faults_leak_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
