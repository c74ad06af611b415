/* bpe_files.h - files of byte-level BPE, written in short, and what was read of them */
#ifndef TESTS_BPE_FILES_H
#define TESTS_BPE_FILES_H

#include "check.h"
#include "formats/formats.h"
#include "formats/scan.h"

static inline void append_utf8(struct text *t, uint32_t letter)
{
    char bytes[2] = { (char)(0xC0 | letter >> 6), (char)(0x80 | (letter & 0x3F)) };

    if (letter < 0x80)
        text_append(t, letter == '"' || letter == '\\' ? "\\%c" : "%c", (int)letter);
    else
        text_append_bytes(t, bytes, 2);
}

static inline void append_byte_tokens(struct text *t)
{
    for (int byte = 0; byte < 256; byte++) {
        text_append(t, byte > 0 ? ",\"" : "\"");
        append_utf8(t, byte_letter((unsigned char)byte));
        text_append(t, "\":%d", byte);
    }
}

/* "<0x00>":0 and so on. */
static inline void append_named_bytes(struct text *t)
{
    for (int byte = 0; byte < 256; byte++)
        text_append(t, "%s\"<0x%02X>\":%d", byte > 0 ? "," : "", byte, byte);
}

/* The short file with the first `from` in it replaced by `to`, and '@' or '~' by its meaning: the
 * tokens of all bytes, as letters or by their names. */
static inline struct text expand(const char *file, const char *from, const char *to)
{
    const char *found = strstr(file, from);
    struct text edited = { 0 }, t = { 0 };
    const char *at, *mark;

    if (found == NULL)
        fail_msg("'%s' is not in the file", from);
    text_append_bytes(&edited, file, (size_t)(found - file));
    text_append(&edited, "%s%s", to, found + strlen(from));
    for (at = edited.data; (mark = strpbrk(at, "@~")) != NULL; at = mark + 1) {
        text_append_bytes(&t, at, (size_t)(mark - at));
        (*mark == '@' ? append_byte_tokens : append_named_bytes)(&t);
    }
    text_append(&t, "%s", at);
    text_free(&edited);
    return t;
}

/* From a block of the exact size, so that the sanitizer sees a read beyond it. */
static inline alibi_status parse_exact(struct bpe_file **out, const char *bytes, size_t length)
{
    char *exact = exact_copy(bytes, length);
    alibi_status status = bpe_file_parse(out, exact, length, "t.json");

    free(exact);
    return status;
}

static inline void assert_slice(struct slice s, const char *text, size_t bytes)
{
    assert_int_equal(s.bytes, bytes);
    assert_memory_equal(s.at, text, bytes);
}

static inline void assert_merge(const struct bpe_file *f, int64_t rank, int32_t left, int32_t right,
                                int32_t result)
{
    assert_int_equal(f->merges[rank].left, left);
    assert_int_equal(f->merges[rank].right, right);
    assert_int_equal(f->merges[rank].result, result);
}

static inline void assert_same(const struct bpe_file *a, const struct bpe_file *b)
{
    assert_int_equal(a->vocab, b->vocab);
    for (int64_t i = 0; i < a->vocab; i++)
        assert_slice(a->tokens[i], b->tokens[i].at, b->tokens[i].bytes);
    assert_memory_equal(a->byte_ids, b->byte_ids, sizeof a->byte_ids);
    assert_int_equal(a->merge_count, b->merge_count);
    for (int64_t i = 0; i < a->merge_count; i++)
        assert_merge(a, i, b->merges[i].left, b->merges[i].right, b->merges[i].result);
    assert_int_equal(a->added_count, b->added_count);
    for (int i = 0; i < a->added_count; i++) {
        assert_slice(a->added[i].text, b->added[i].text.at, b->added[i].text.bytes);
        assert_int_equal(a->added[i].id, b->added[i].id);
        assert_int_equal(a->added[i].special, b->added[i].special);
        assert_int_equal(a->added[i].in_vocab, b->added[i].in_vocab);
        assert_int_equal(a->added[i].prefixed, b->added[i].prefixed);
        assert_int_equal(a->added[i].single_word, b->added[i].single_word);
        assert_int_equal(a->added[i].normalized, b->added[i].normalized);
        assert_int_equal(a->added[i].begins, b->added[i].begins);
        assert_int_equal(a->added[i].ends, b->added[i].ends);
    }
    assert_int_equal(a->characters, b->characters);
    assert_int_equal(a->cut_blanks, b->cut_blanks);
    assert_int_equal(a->prefix, b->prefix);
    assert_int_equal(a->split_count, b->split_count);
    for (int i = 0; i < a->split_count; i++) {
        assert_string_equal(a->splits[i].pattern, b->splits[i].pattern);
        assert_int_equal(a->splits[i].plain, b->splits[i].plain);
        assert_int_equal(a->splits[i].kind, b->splits[i].kind);
        assert_int_equal(a->splits[i].each, b->splits[i].each);
        assert_int_equal(a->splits[i].after_bytes, b->splits[i].after_bytes);
    }
    assert_int_equal(a->ignore_merges, b->ignore_merges);
}

/* Written and read it is the same, and written again the same text. */
static inline void assert_reads_back(const struct bpe_file *f)
{
    struct text json = { 0 }, again = { 0 };
    struct bpe_file *back = NULL;

    assert_ok(bpe_file_write(f, &json));
    assert_ok(bpe_file_parse(&back, json.data, json.length, "back"));
    assert_same(f, back);
    assert_ok(bpe_file_write(back, &again));
    assert_string_equal(again.data, json.data);
    bpe_file_free(back);
    text_free(&json);
    text_free(&again);
}

#endif
