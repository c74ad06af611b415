/* test_source.c - files to documents: the same whatever the size of blocks, from any place on, and
 * every defect named */
#include "folder.h"

#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "text/source.h"

enum { STARTS_MAX = 4096, PATHS_MAX = 8 };

/* ---- reading everything */

/* The input as read: all documents, each followed by '|', and where in them each block began. */
struct all {
    struct text text;
    struct start {
        struct place place;
        size_t position;
    } starts[STARTS_MAX];
    int start_count;
};

static alibi_status take_block(struct all *all, const struct block *b)
{
    size_t from = 0;

    assert_true(b->bytes > 0); /* an end comes with the last byte before it */
    assert_int_equal(utf8_valid_prefix(b->text, b->bytes), b->bytes);
    if (all->start_count < STARTS_MAX)
        all->starts[all->start_count++] = (struct start){ b->start, all->text.length };
    for (int64_t i = 0; i < b->end_count; i++) {
        text_append_bytes(&all->text, b->text + from, b->ends[i] - from);
        text_append_bytes(&all->text, "|", 1);
        assert_true(i == 0 || b->ends[i] > b->ends[i - 1]);
        from = b->ends[i];
    }
    text_append_bytes(&all->text, b->text + from, b->bytes - from);
    return text_status(&all->text);
}

struct request {
    const char *paths[PATHS_MAX];
    int count;
    struct alibi_reading reading;
};

static size_t json_line_max; /* 0: as it is */

static alibi_status read_from(struct all *all, const struct request *r, const struct place *place,
                              size_t bytes)
{
    alibi_status status;
    struct source *s = NULL;
    struct block b = { 0 };

    TRY(source_open(&s, r->paths, r->count, &r->reading, test_call()));
    if (json_line_max > 0)
        source_set_line_max(s, json_line_max);
    if (place != NULL)
        TRY(source_seek(s, *place));
    for (;;) {
        TRY(source_read(s, &b, bytes));
        assert_true(b.bytes <= (bytes > 4 ? bytes : 4));
        if (b.bytes == 0)
            break;
        TRY(take_block(all, &b));
    }
    assert_int_equal(b.end_count, 0);
    if (source_bytes_total(s) > 0)
        assert_int_equal(source_bytes_done(s), source_bytes_total(s));
out:
    block_fini(&b);
    source_close(s);
    return status;
}

static alibi_status read_with(const struct request *r, size_t bytes)
{
    static struct all all;
    alibi_status status = read_from(&all, r, NULL, bytes);

    text_free(&all.text);
    all.start_count = 0;
    return status;
}

static struct place place_at(const struct all *all, size_t position)
{
    for (int i = 0; i < all->start_count; i++)
        if (all->starts[i].position == position)
            return all->starts[i].place;
    fail_msg("no block of one character begins at %zu", position);
    return (struct place){ 0 };
}

static void assert_same_place(struct place a, struct place b)
{
    assert_int_equal(a.file, b.file);
    assert_int_equal(a.document, b.document);
    assert_int_equal(a.offset, b.offset);
}

/* Blocks of any size give these documents, with the same places; and from each place on the same
 * rest comes. */
static void assert_documents(const struct request *r, const char *expected)
{
    static struct all one, other;
    const size_t sizes[] = { 1, 2, 3, 4, 5, 7, 16, 61, 1000, 100000 };

    assert_ok(read_from(&one, r, NULL, 1));
    assert_string_equal(one.text.data, expected);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_ok(read_from(&other, r, NULL, sizes[i]));
        assert_string_equal(other.text.data, expected);
        for (int k = 0; k < other.start_count; k++)
            assert_same_place(other.starts[k].place, place_at(&one, other.starts[k].position));
        text_free(&other.text);
        other.start_count = 0;
    }
    for (int k = 0; k < one.start_count; k++) {
        assert_ok(read_from(&other, r, &one.starts[k].place, 5));
        assert_string_equal(other.text.data, expected + one.starts[k].position);
        assert_same_place(other.starts[0].place, one.starts[k].place);
        text_free(&other.text);
        other.start_count = 0;
    }
    text_free(&one.text);
    one.start_count = 0;
}

static void write_text(const char *name, const char *text)
{
    write_file(within(folder, name), text, strlen(text));
}

static void write_gzip(const char *name, const char *text)
{
    gzFile f = gzopen(within(folder, name), "wb");

    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
}

static void write_zstd(const char *name, const char *text)
{
    char packed[4096];
    size_t length = ZSTD_compress(packed, sizeof packed, text, strlen(text), 3);

    assert_false(ZSTD_isError(length));
    write_file(within(folder, name), packed, length);
}

static struct request one_file(const char *name, const char *document)
{
    return (struct request){ { within(folder, name) },
                             1,
                             { ALIBI_FORMAT_AUTO, (char *)(uintptr_t) "text",
                               (char *)(uintptr_t)document } };
}

static void assert_refused(struct request r, const char *part)
{
    size_t before = alibi_memory_now();

    assert_fails(read_with(&r, 1), ALIBI_BAD_INPUT, part);
    assert_fails(read_with(&r, 1000), ALIBI_BAD_INPUT, part);
    assert_int_equal(alibi_memory_now(), before);
}

/* ---- documents */

static void a_file_is_a_document_as_it_is(void **state)
{
    struct request r = one_file("a", "file");

    (void)state;
    write_text("a", "one\r\n\r\n two \xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82\n\n");
    assert_documents(&r, "one\r\n\r\n two \xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82\n\n|");
    write_text("a", " ");
    assert_documents(&r, " |");
}

/* The bytes that are reported end at their total. */
static void texts_in_memory_are_read_like_files(void **state)
{
    static const char *const texts[] = { "one", "", "two\n", "three" };
    static const size_t sizes[] = { 3, 0, 4, 5 };
    static struct all all;
    struct source *s = NULL;
    struct block b = { 0 };

    (void)state;
    for (size_t bytes = 1; bytes < 20; bytes += 5) {
        assert_ok(source_open_texts(&s, texts, sizes, 4));
        assert_int_equal(source_bytes_total(s), 12);
        assert_int_equal(source_bytes_done(s), 0);
        do {
            assert_ok(source_read(s, &b, bytes));
            if (b.bytes > 0)
                assert_ok(take_block(&all, &b));
        } while (b.bytes > 0);
        assert_int_equal(source_bytes_done(s), 12);
        assert_string_equal(all.text.data, "one|two\n|three|");
        source_close(s);
        text_free(&all.text);
        all = (struct all){ 0 };
    }
    block_fini(&b);
}

static void a_line_is_a_document_unless_it_is_blank(void **state)
{
    struct request r = one_file("a", "line");

    (void)state;
    write_text("a", "one\n two\r\n\n \t\r\n\r\nthr\xC3\xA9 e\nlast");
    assert_documents(&r, "one\n| two\r\n|thr\xC3\xA9 e\n|last|");
    write_text("a", "\n\none\n   ");
    assert_documents(&r, "one\n|");
}

static void blank_lines_part_documents_and_belong_to_none(void **state)
{
    struct request r = one_file("a", "blank-line");

    (void)state;
    write_text("a", "\n \none\n  two\n\nthree\r\n\r\n\t\n\n  four\xE2\x82\xAC\nfive");
    assert_documents(&r, "one\n  two\n|three\r\n|  four\xE2\x82\xAC\nfive|");
    write_text("a", "one\n\n");
    assert_documents(&r, "one\n|");
    write_text("a", "one\n\n   ");
    assert_documents(&r, "one\n|");
    write_text("a", "one");
    assert_documents(&r, "one|");
    write_text("a", "x\n\ny\n\nz\n");
    assert_documents(&r, "x\n|y\n|z\n|");
}

static void separators_part_documents_and_belong_to_none(void **state)
{
    struct request r = one_file("a", "<|endoftext|>");

    (void)state;
    write_text("a", "one\n<|endoftext|>\ntwo\r\n<|endoftext|>\r\nthr<|endoftext|>ee\n");
    assert_documents(&r, "one\n|two\r\n|thr|ee\n|");
    write_text("a", "<|endoftext|><|endoftext|>\none<|endoftext|>\n\n<|endoftext|>");
    assert_documents(&r, "one|\n|");
    write_text("a", "one<|endoftext|\n<|<|endoftext|>\r");
    assert_documents(&r, "one<|endoftext|\n<||\r|");
    write_text("a", "no separator\n");
    assert_documents(&r, "no separator\n|");
    r = one_file("a", "\\n***\\n");
    write_text("a", "***\none\n***\n\ntwo *** three\n***\n");
    assert_documents(&r, "***\none|\ntwo *** three|");
    r = one_file("a", "\xE2\x82\xAC");
    write_text("a", "one\xE2\x82\xACtwo\xE2\x82\xAD\xE2\x82\xACthree\xE2\x82\xAB");
    assert_documents(&r, "one|two\xE2\x82\xAD|three\xE2\x82\xAB|");
    r = one_file("a", "\\t\\\\\\r\\n");
    write_text("a", "one\t\\\r\ntwo");
    assert_documents(&r, "one|two|");
}

/* Some separators are across the borders of the buffer, at every offset. */
static void separators_are_found_wherever_buffers_end(void **state)
{
    static const char separator[] = "<=-=>";
    struct request r = one_file("a", separator);
    struct text file = { 0 }, expected = { 0 };
    static struct all all;

    (void)state;
    for (int i = 0; file.length < 6 * INPUT_BYTES; i++) {
        text_append(&file, "%d\xE2\x82\xAC%s%s", i, separator, i % 3 == 0 ? "\n" : "");
        text_append(&expected, "%d\xE2\x82\xAC|", i);
    }
    write_file(within(folder, "a"), file.data, file.length);
    assert_ok(read_from(&all, &r, NULL, 1 << 20));
    assert_int_equal(all.text.length, expected.length);
    assert_memory_equal(all.text.data, expected.data, expected.length);
    text_free(&all.text);
    text_free(&file);
    text_free(&expected);
}

static alibi_status read_one(const char *name, const char *document)
{
    struct request r = one_file(name, document);

    return read_with(&r, 9);
}

static void ways_to_cut_documents_that_make_no_sense_are_refused(void **state)
{
    char endless[400];

    (void)state;
    write_text("a", "text");
    memset(endless, '*', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_fails(read_one("a", "lines"), ALIBI_USAGE,
                 "'lines' is not one of file, line, blank-line: did you mean 'line'?");
    assert_fails(read_one("a", ""), ALIBI_USAGE, "'' is not one of");
    assert_fails(read_one("a", "\\n\\x"), ALIBI_USAGE, "'\\x' is not known in a separator");
    assert_fails(read_one("a", "*\\"), ALIBI_USAGE, "'\\' is not known in a separator");
    assert_fails(read_one("a", "*\xFF"), ALIBI_USAGE, "the separator is not UTF-8");
    assert_fails(read_one("a", endless), ALIBI_USAGE, "at most 256 bytes");
}

static void a_byte_order_mark_is_skipped_at_the_start_of_every_file(void **state)
{
    struct request r = { { within(folder, "a"), within(folder, "b.jsonl"), within(folder, "c") },
                         3,
                         { 0 } };

    (void)state;
    write_text("a", "\xEF\xBB\xBFone \xEF\xBB\xBF\n");
    write_text("b.jsonl", "\xEF\xBB\xBF{\"text\":\"two\"}\n");
    write_gzip("c", "\xEF\xBB\xBFthree");
    assert_documents(&r, "one \xEF\xBB\xBF\n|two|three|");
    write_text("a", "\xEF\xBB\xBF");
    assert_refused(one_file("a", "file"), "there is no text in '");
    write_text("a", "\xEF\xBB\xBF\xFF");
    assert_refused(one_file("a", "file"), "is not UTF-8: byte 0xff at offset 3 (line 1)");
}

/* ---- notes */

static void keep_note(void *user, enum alibi_log_level level, const char *line)
{
    (void)level;
    text_append(user, "%s\n", line);
}

/* Reads the files and returns the notes, which the caller frees. */
static struct text notes_of(const struct request *r)
{
    struct text notes = { 0 };
    struct alibi_call call = { .user = &notes, .log = keep_note };
    struct source *s = NULL;
    struct block b = { 0 };

    text_append(&notes, "%s", "");
    assert_ok(source_open(&s, r->paths, r->count, &r->reading, &call));
    do {
        assert_ok(source_read(s, &b, 7));
        source_tell(s);
    } while (b.bytes > 0);
    block_fini(&b);
    source_close(s);
    return notes;
}

static void assert_notes(struct request r, int count, const char *part)
{
    struct text notes = notes_of(&r);
    int lines = 0;

    for (size_t i = 0; i < notes.length; i++)
        lines += notes.data[i] == '\n';
    assert_int_equal(lines, count);
    assert_non_null(strstr(notes.data, part));
    text_free(&notes);
}

static void surprises_in_a_text_are_told_once(void **state)
{
    struct request both = { { within(folder, "a"), within(folder, "b") }, 2, { 0 } };

    (void)state;
    write_text("a", "one\r\ntwo\r\n");
    write_text("b", "three\r\n");
    assert_notes(both, 1, "/a' has Windows line ends (CR LF), which are kept");
    write_text("a", "one\n");
    assert_notes(both, 1, "/b' has Windows line ends");
    write_text("b", "three<|endoftext|>four");
    assert_notes(both, 1, "/b' contains <|endoftext|>; if it separates documents, give --document");
    assert_notes(one_file("b", "<|endoftext|>"), 0, "");
    assert_notes(one_file("b", "***"), 1, "/b' does not contain the separator");
    assert_notes(one_file("a", "file"), 0, "");
    write_text("a.jsonl", "{\"text\":\"a<|endoftext|>\"}\r\n");
    assert_notes(one_file("a.jsonl", "***"), 0, "");
}

static void lines_of_json_are_documents_by_their_field(void **state)
{
    struct request r =
        one_file("a.jsonl", "line"); /* what a document is in text does not matter here */

    (void)state;
    write_text(
        "a.jsonl",
        "{\"text\":\"one\\ntwo\"}\n\n{\"id\":1,\"text\":\"\"}\r\n \t\n{\"text\":\"\\u00e9\\u20ac\\ud83d\\ude42\"}");
    assert_documents(&r, "one\ntwo|\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82|");
    r.reading.field = (char *)(uintptr_t) "content";
    write_text("a.jsonl", "{\"content\":\"x\",\"text\":7}\n");
    assert_documents(&r, "x|");
}

static void names_tell_json_from_text_unless_it_is_said(void **state)
{
    const char *const names[] = { "a.jsonl",     "a.ndjson", "a.jsonl.gz", "a.ndjson.zst",
                                  "a.jsonl.zst", "a.txt",    "a.json",     "jsonl" };
    const char *line = "{\"text\":\"x\"}\n";

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct request r = one_file(names[i], "file");
        if (strstr(names[i], ".gz") != NULL)
            write_gzip(names[i], line);
        else if (strstr(names[i], ".zst") != NULL)
            write_zstd(names[i], line);
        else
            write_text(names[i], line);
        assert_documents(&r, i < 5 ? "x|" : "{\"text\":\"x\"}\n|");
        r.reading.format = ALIBI_FORMAT_JSONL;
        assert_documents(&r, "x|");
        r.reading.format = ALIBI_FORMAT_TEXT;
        assert_documents(&r, "{\"text\":\"x\"}\n|");
    }
}

static void without_a_reading_files_are_documents_and_the_field_is_text(void **state)
{
    const char *paths[] = { within(folder, "a"), within(folder, "b.jsonl") };
    struct source *s = NULL;
    struct block b = { 0 };

    (void)state;
    write_text("a", "a\n\na\n");
    write_text("b.jsonl", "{\"text\":\"b\"}");
    assert_ok(source_open(&s, paths, 2, NULL, test_call()));
    assert_int_equal(source_file_count(s), 2);
    assert_string_equal(source_file(s, 1), paths[1]);
    assert_ok(source_read(s, &b, 100));
    assert_int_equal(b.bytes, 6);
    assert_memory_equal(b.text, "a\n\na\nb", 6);
    assert_int_equal(b.end_count, 2);
    assert_ok(source_read(s, &b, 100));
    assert_ok(source_read(s, &b, 100)); /* the end stays the end */
    assert_int_equal(b.bytes, 0);
    block_fini(&b);
    source_close(s);
    source_close(NULL);
}

/* ---- many files */

static void files_and_folders_follow_one_another(void **state)
{
    struct request r = { { within(folder, "z"), within(folder, "in") },
                         2,
                         { ALIBI_FORMAT_AUTO, NULL, "blank-line" } };

    (void)state;
    assert_int_equal(mkdir(within(folder, "in"), 0700), 0);
    assert_int_equal(mkdir(within(folder, "in/deep"), 0700), 0);
    write_text("z", "first\n\nsecond");
    write_text("in/b.txt", "four\n");
    write_text("in/a.jsonl", "{\"text\":\"third\"}\n{\"text\":\"third and a half\"}");
    write_text("in/empty", "");
    write_text("in/.hidden", "no");
    write_gzip("in/deep/c.gz", "five\n\nsix");
    write_zstd("in/deep/d.zst", "seven");
    assert_documents(&r, "first\n|second|third|third and a half|four\n|five\n|six|seven|");
}

static void documents_never_reach_into_the_next_file(void **state)
{
    struct request r = { { within(folder, "a"), within(folder, "b") }, 2, { 0 } };
    char *const documents[] = { NULL, "file", "line", "blank-line", "***" };

    (void)state;
    write_text("a", "no line end");
    write_text("b", "another\n");
    for (int i = 0; i < 5; i++) {
        r.reading.document = documents[i];
        assert_documents(&r, "no line end|another\n|");
    }
}

static void standard_input_is_a_file_too(void **state)
{
    struct request r = { { "-" }, 1, { ALIBI_FORMAT_AUTO, NULL, "line" } };
    int before = dup(STDIN_FILENO);
    static struct all all;

    (void)state;
    write_text("in", "one\ntwo\n");
    assert_non_null(freopen(within(folder, "in"), "r", stdin));
    assert_ok(read_from(&all, &r, NULL, 100));
    assert_string_equal(all.text.data, "one\n|two\n|");
    text_free(&all.text);
    assert_fails(read_with(&r, 100), ALIBI_BAD_INPUT, "'standard input' is empty");
    assert_true(dup2(before, STDIN_FILENO) >= 0);
    close(before);
}

static void sizes_are_known_for_regular_files_only(void **state)
{
    const char *paths[] = { within(folder, "a"), within(folder, "b.gz"), "/dev/null" };
    struct stat info;
    struct source *s = NULL;

    (void)state;
    write_text("a", "12345");
    write_gzip("b.gz", "packed text");
    assert_int_equal(stat(paths[1], &info), 0);
    assert_ok(source_open(&s, paths, 2, NULL, test_call()));
    assert_int_equal(source_bytes_total(s), 5 + info.st_size);
    assert_int_equal(source_bytes_done(s), 0);
    source_close(s);
    assert_ok(source_open(&s, paths, 3, NULL, test_call()));
    assert_int_equal(source_bytes_total(s), 0);
    source_close(s);
}

/* ---- beyond one buffer */

/* Lines of growing length, with a character of each width at every place of a buffer's border in
 * some file. */
static void text_larger_than_the_buffer_comes_whole(void **state)
{
    struct text file = { 0 }, expected = { 0 };
    struct request r = one_file("large", "blank-line");
    static const char *const characters[] = { "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82" };
    static struct all all;

    (void)state;
    for (int shift = 0; shift < 4; shift++) {
        file.length = expected.length = 0;
        for (int i = 0; i < shift; i++) {
            text_append(&file, "x");
            text_append(&expected, "x");
        }
        for (int i = 0; file.length < 700000; i++) {
            const char *c = characters[i % 4];
            bool blank = i % 1000 == 999;
            text_append(&file, "%s%s", c, blank ? "\n \t \n" : "");
            text_append(&expected, "%s%s", c, blank ? "\n|" : "");
        }
        text_append(&expected, "|");
        write_file(within(folder, "large"), file.data, file.length);
        for (size_t bytes = 1000; bytes < 2000000; bytes *= 37) {
            assert_ok(read_from(&all, &r, NULL, bytes));
            assert_int_equal(all.text.length, expected.length);
            assert_memory_equal(all.text.data, expected.data, expected.length);
            text_free(&all.text);
            all.start_count = 0;
        }
    }
    text_free(&file);
    text_free(&expected);
}

static void lines_of_json_larger_than_the_buffer_come_whole(void **state)
{
    struct text file = { 0 };
    struct request r = one_file("large.jsonl", "file");
    static struct all all;

    (void)state;
    for (int line = 0; line < 3; line++) {
        text_append(&file, "{\"text\":\"");
        for (int i = 0; i < 400000; i++)
            text_append_bytes(&file, "abcdefghij" + i % 10, 1);
        text_append(&file, "\"}\n");
    }
    write_file(within(folder, "large.jsonl"), file.data, file.length);
    assert_ok(read_from(&all, &r, NULL, 65536));
    assert_int_equal(all.text.length, 3 * 400001);
    for (size_t i = 0; i < all.text.length; i++)
        assert_int_equal(all.text.data[i],
                         i % 400001 == 400000 ? '|' : "abcdefghij"[i % 400001 % 10]);
    text_free(&all.text);
    text_free(&file);
    all.start_count = 0;
}

/* White space is kept back until it is known whether its line is blank, but no more than 65536
 * bytes of it. */
static void endless_white_space_is_text(void **state)
{
    enum { BOUND = 1 << 16 };
    struct request r = one_file("white", "blank-line");
    static char file[300000];
    static struct all all;

    (void)state;
    memset(file, ' ', sizeof file);
    memcpy(file, "a\n", 2);
    file[2 + BOUND - 1] = '\n'; /* just blank */
    file[sizeof file - 1] = 'b';
    write_file(within(folder, "white"), file, sizeof file);
    assert_ok(read_from(&all, &r, NULL, 1000));
    assert_memory_equal(all.text.data, "a\n|  ", 5);
    assert_int_equal(all.text.length, sizeof file - BOUND + 2);
    text_free(&all.text);
    all.start_count = 0;
    memset(file, ' ', sizeof file);
    memcpy(file, "a\n", 2);
    file[2 + BOUND] = '\n'; /* one more: text */
    write_file(within(folder, "white"), file, sizeof file);
    assert_ok(read_from(&all, &r, NULL, 1000));
    assert_memory_equal(all.text.data, "a\n    ", 5);
    text_free(&all.text);
    all.start_count = 0;
}

static void memory_does_not_grow_with_the_file(void **state)
{
    enum { MEGABYTES = 8 };
    static char line[1 << 20];
    struct request r = one_file("large", "line");
    FILE *f = fopen(within(folder, "large"), "wb");
    struct source *s = NULL;
    struct block b = { 0 };
    size_t before = alibi_memory_now(), total = 0;

    (void)state;
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < MEGABYTES; i++)
        assert_int_equal(fwrite(line, 1, sizeof line, f), sizeof line);
    fclose(f);
    alibi_memory_reset_peak();
    assert_ok(source_open(&s, r.paths, 1, &r.reading, test_call()));
    do {
        assert_ok(source_read(s, &b, 4096));
        total += b.bytes;
    } while (b.bytes > 0);
    assert_int_equal(total, (size_t)MEGABYTES << 20);
    assert_true(alibi_memory_peak() - before < 1 << 20);
    block_fini(&b);
    source_close(s);
}

/* ---- defects */

static void bytes_that_are_no_text_are_refused_with_offset_and_line(void **state)
{
    struct request r = one_file("a", "file");
    char expected[4300];

    (void)state;
    snprintf(expected, sizeof expected, "'%s' is not UTF-8: byte 0xff at offset 8 (line 3)",
             within(folder, "a"));
    write_text("a", "one\ntwo\n\xFF");
    assert_refused(r, expected);
    assert_refused(one_file("a", "line"), expected);
    assert_refused(one_file("a", "blank-line"), expected);
    assert_refused(one_file("a", "***"), expected);
    write_text("a", "one\n\xE2\x82");
    assert_refused(r, "is not UTF-8: byte 0xe2 at offset 4 (line 2)");
    write_text("a", "\xED\xA0\x80 surrogate");
    assert_refused(r, "is not UTF-8: byte 0xed at offset 0 (line 1)");
    write_text("a", "\xC3(");
    assert_refused(r, "is not UTF-8: byte 0xc3 at offset 0 (line 1)");
    write_file(within(folder, "a"), "one\0two", 7);
    assert_refused(r, "is not text: byte 0 at offset 3");
    write_file(within(folder, "a.jsonl"), "{\"text\":\"a\"}\n{\"text\":\"\xFF\"}", 26);
    assert_refused(one_file("a.jsonl", "file"), "is not UTF-8: byte 0xff at offset 22 (line 2)");
}

static void defects_behind_the_first_buffer_have_their_place_too(void **state)
{
    enum { AT = 600001, LINES = 6 };
    static char file[AT + 100];
    struct request r = one_file("a", "file");
    char expected[100];

    (void)state;
    memset(file, 'x', sizeof file);
    for (int i = 0; i < LINES; i++)
        file[i * 100000] = '\n';
    file[AT] = '\xFE';
    write_file(within(folder, "a"), file, sizeof file);
    snprintf(expected, sizeof expected, "byte 0xfe at offset %d (line %d)", AT, LINES + 1);
    assert_fails(read_with(&r, 1000), ALIBI_BAD_INPUT, expected);
    file[AT] = '\0';
    write_file(within(folder, "a"), file, sizeof file);
    snprintf(expected, sizeof expected, "is not text: byte 0 at offset %d", AT);
    assert_fails(read_with(&r, 1 << 20), ALIBI_BAD_INPUT, expected);
}

static void lines_of_json_are_refused_by_file_and_line(void **state)
{
    struct request r = one_file("a.jsonl", "file");

    (void)state;
    write_text("a.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"b\"\n");
    assert_refused(r, "a.jsonl:3': '}' expected at byte 11");
    write_text("a.jsonl", "{\"text\":\"a\"}\n{\"tex\":\"b\"}");
    assert_refused(r, "a.jsonl:2': 'text' is missing");
    write_text("a.jsonl", "{\"text\":\"a\\u0000\"}");
    assert_refused(r, "a.jsonl:1': 'text' is not text: U+0000");
}

static void lines_of_json_that_would_fill_the_memory_are_refused(void **state)
{
    struct request r = one_file("a.jsonl", "file");
    struct text file = { 0 };

    (void)state;
    json_line_max = 2 * INPUT_BYTES;
    text_append(&file, "{\"text\":\"first\"}\n{\"text\":\"");
    while (file.length < 3 * INPUT_BYTES)
        text_append(&file, "endless ");
    write_file(within(folder, "a.jsonl"), file.data, file.length);
    assert_fails(read_with(&r, 1000), ALIBI_BAD_INPUT,
                 "a.jsonl': line 2 is longer than 524288 bytes");
    json_line_max = 0;
    assert_fails(read_with(&r, 1000), ALIBI_BAD_INPUT,
                 "a.jsonl:2': '\"' or a printable character expected");
    text_free(&file);
}

static void packed_files_that_are_broken_are_refused(void **state)
{
    (void)state;
    write_zstd("a", "some text");
    assert_int_equal(truncate(within(folder, "a"), 12), 0);
    assert_refused(one_file("a", "file"), "the file ends within the packed text, at byte 12");
}

static void text_in_memory_is_refused_like_a_file(void **state)
{
    (void)state;
    assert_ok(alibi_text_check("text", 4, "t"));
    assert_ok(alibi_text_check(NULL, 0, "t"));
    assert_fails(alibi_text_check("ab\0c", 4, "t"), ALIBI_BAD_INPUT,
                 "'t' is not text: byte 0 at offset 2");
    assert_fails(alibi_text_check("ab\xff", 3, "t"), ALIBI_BAD_INPUT,
                 "'t' is not UTF-8: byte 0xff at offset 2");
}

static void input_without_any_document_is_refused(void **state)
{
    struct request in = one_file("in", "file");
    struct source *s = NULL;
    char expected[4300];

    (void)state;
    write_text("empty", "");
    snprintf(expected, sizeof expected, "'%s' is empty", within(folder, "empty"));
    assert_refused(one_file("empty", "file"), expected);
    assert_refused(one_file("empty", "line"), expected);
    write_gzip("packed-empty", "");
    assert_refused(one_file("packed-empty", "file"), "packed-empty' is empty");
    write_text("blank", "\n \n");
    assert_refused(one_file("blank", "line"), "there is no text in '");
    write_text("a.jsonl", "{\"text\":\"\"}\n");
    assert_refused(one_file("a.jsonl", "line"), "there is no text in '");
    assert_int_equal(mkdir(within(folder, "in"), 0700), 0);
    assert_refused(in, "there is no file in '");
    write_text("in/empty", "");
    write_text("in/empty too", "");
    assert_refused(in, "empty' and the other files");
    assert_refused(one_file("none", "file"), "none': No such file or directory");
    assert_fails(source_open(&s, NULL, 0, NULL, test_call()), ALIBI_USAGE, "at least one file");
    assert_null(s);
}

static void places_that_are_not_there_are_refused(void **state)
{
    const struct place wrong[] = { { -1, 0, 0 }, { 3, 0, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
                                   { 0, 3, 0 },  { 0, 0, 4 }, { 0, 0, 5 }, { 0, 1, 9 },
                                   { 0, -1, 0 }, { 0, 0, -1 } };
    struct request r = { { within(folder, "a"), within(folder, "b") },
                         2,
                         { ALIBI_FORMAT_AUTO, NULL, "line" } };
    static struct all all;

    (void)state;
    write_text("a", "one\ntwo\n");
    write_text("b", "three\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(read_from(&all, &r, &wrong[i], 10), ALIBI_BAD_INPUT, "the input has changed");
    assert_int_equal(all.text.length, 0);
    assert_ok(read_from(&all, &r, &(struct place){ 0, 2, 0 }, 10)); /* after the last of a file */
    assert_string_equal(all.text.data, "three\n|");
    text_free(&all.text);
    assert_ok(read_from(&all, &r, &(struct place){ 2, 0, 0 }, 10)); /* the end */
    assert_int_equal(all.text.length, 0);
}

/* ---- faults */

static alibi_status read_in_small_blocks(void *request)
{
    return read_with(request, 7);
}

static void failing_calls_and_allocations_are_reported(void **state)
{
    struct request r = { { within(folder, "in"), within(folder, "a") },
                         2,
                         { ALIBI_FORMAT_AUTO, NULL, "line" } };

    (void)state;
    assert_int_equal(mkdir(within(folder, "in"), 0700), 0);
    write_text("a", "one\ntwo\n");
    write_gzip("in/b.gz", "three\n");
    write_zstd("in/c.zst", "four\n");
    write_text("in/d.jsonl", "{\"text\":\"five\"}\n");
    assert_true(fail_each_call("file", read_in_small_blocks, &r, ALIBI_IO, "") > 12);
    assert_true(fail_each_call("memory", read_in_small_blocks, &r, ALIBI_MEMORY, "") > 12);
}

/* ---- options */

static void options_have_the_defaults_that_a_source_has(void **state)
{
    struct alibi_reading reading;
    struct alibi_option_group group = { .title = "reading", .values = &reading };

    (void)state;
    group.options = alibi_reading_options(&group.count);
    assert_ok(alibi_options_init(&group, 1));
    assert_int_equal(reading.format, ALIBI_FORMAT_AUTO);
    assert_string_equal(reading.field, "text");
    assert_string_equal(reading.document, "file");
    assert_ok(alibi_options_set(&group, 1, "format", "jsonl"));
    assert_ok(alibi_options_set(&group, 1, "document", "blank-line"));
    assert_int_equal(reading.format, ALIBI_FORMAT_JSONL);
    assert_string_equal(reading.document, "blank-line");
    alibi_options_free(&group, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_a_document_as_it_is),
        TEST(texts_in_memory_are_read_like_files),
        TEST(a_line_is_a_document_unless_it_is_blank),
        TEST(blank_lines_part_documents_and_belong_to_none),
        TEST(separators_part_documents_and_belong_to_none),
        TEST(separators_are_found_wherever_buffers_end),
        TEST(ways_to_cut_documents_that_make_no_sense_are_refused),
        TEST(a_byte_order_mark_is_skipped_at_the_start_of_every_file),
        TEST(surprises_in_a_text_are_told_once),
        TEST(lines_of_json_are_documents_by_their_field),
        TEST(names_tell_json_from_text_unless_it_is_said),
        TEST(without_a_reading_files_are_documents_and_the_field_is_text),
        TEST(files_and_folders_follow_one_another),
        TEST(documents_never_reach_into_the_next_file),
        TEST(standard_input_is_a_file_too),
        TEST(sizes_are_known_for_regular_files_only),
        TEST(text_larger_than_the_buffer_comes_whole),
        TEST(lines_of_json_larger_than_the_buffer_come_whole),
        TEST(endless_white_space_is_text),
        TEST(memory_does_not_grow_with_the_file),
        TEST(bytes_that_are_no_text_are_refused_with_offset_and_line),
        TEST(defects_behind_the_first_buffer_have_their_place_too),
        TEST(lines_of_json_are_refused_by_file_and_line),
        TEST(lines_of_json_that_would_fill_the_memory_are_refused),
        TEST(packed_files_that_are_broken_are_refused),
        TEST(text_in_memory_is_refused_like_a_file),
        TEST(input_without_any_document_is_refused),
        TEST(places_that_are_not_there_are_refused),
        TEST(failing_calls_and_allocations_are_reported),
        TEST(options_have_the_defaults_that_a_source_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
