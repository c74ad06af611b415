/* fuzz.h - shared by the targets
 *
 * A target is LLVMFuzzerTestOneInput() in a file of its own, with seeds in the folder of its name.
 * With clang it is a libFuzzer program (scripts/fuzz.sh); with driver.c it is a test that tries a
 * fixed set of changed seeds. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdlib.h>
#include <string.h>

#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A condition that must hold for every input. */
static inline void require(bool holds)
{
    if (!holds)
        abort();
}

/* ---- inputs of tokenizers
 *
 * Parts are separated by form feeds. In the first of them '@' means the tokens of the 256 bytes,
 * which every vocabulary must have, and a vertical tab the same for files of characters. So inputs
 * are short, and most changes are relevant. */

/* Takes the part up to the next form feed, or all that is left. */
static inline struct slice next_part(struct slice *rest)
{
    const char *end = rest->bytes > 0 ? memchr(rest->at, '\f', rest->bytes) : NULL;
    struct slice part = { rest->at, end != NULL ? (size_t)(end - rest->at) : rest->bytes };

    rest->at += part.bytes + (end != NULL);
    rest->bytes -= part.bytes + (end != NULL);
    return part;
}

static inline void append_named_bytes(struct text *t)
{
    for (int byte = 0; byte < 256; byte++) {
        char entry[24];
        snprintf(entry, sizeof entry, "%s\"<0x%02X>\":%d", byte > 0 ? "," : "", byte, byte);
        text_append_bytes(t, entry, strlen(entry));
    }
}

static inline void append_byte_tokens(struct text *t)
{
    for (int byte = 0; byte < 256; byte++) {
        uint32_t letter = byte_letter((unsigned char)byte);
        char entry[24],
            two[3] = { (char)(0xC0 | letter >> 6), (char)(0x80 | (letter & 0x3F)), '\0' };
        char one[3] = { (char)letter, '\0', '\0' };
        if (letter == '"' || letter == '\\')
            memcpy(one, (char[3]){ '\\', (char)letter, '\0' }, 3);
        snprintf(entry, sizeof entry, "%s\"%s\":%d", byte > 0 ? "," : "", letter < 0x80 ? one : two,
                 byte);
        text_append_bytes(t, entry, strlen(entry));
    }
}

/* The part with its first mark replaced; text_free() it. The tokens are formatted once and kept. */
static inline struct text expand_part(struct slice part)
{
    static char tokens[2][4096];
    static size_t token_bytes[2];
    const char *letters = part.bytes > 0 ? memchr(part.at, '@', part.bytes) : NULL,
               *names = part.bytes > 0 ? memchr(part.at, '\v', part.bytes) : NULL;
    int kind = letters == NULL;
    const char *mark = kind == 0 ? letters : names;
    size_t front = mark != NULL ? (size_t)(mark - part.at) : part.bytes;
    struct text t = { 0 };

    if (token_bytes[kind] == 0) {
        (kind == 0 ? append_byte_tokens : append_named_bytes)(&t);
        require(text_status(&t) == ALIBI_OK && t.length <= sizeof tokens[kind]);
        memcpy(tokens[kind], t.data, t.length);
        token_bytes[kind] = t.length;
        text_free(&t);
    }
    text_append_bytes(&t, part.at, front);
    if (mark != NULL) {
        text_append_bytes(&t, tokens[kind], token_bytes[kind]);
        text_append_bytes(&t, mark + 1, part.bytes - front - 1);
    }
    require(text_status(&t) == ALIBI_OK);
    return t;
}

/* A refusal is one line that names the file. */
static inline void check_refusal(alibi_status status, const char *path)
{
    require(status == ALIBI_BAD_INPUT);
    require(strchr(alibi_error(), '\n') == NULL && strstr(alibi_error(), path) != NULL);
}

/* A file that was read is written so that it reads back, and written again as it was. */
static inline void check_written(const struct bpe_file *f)
{
    struct text json = { 0 }, again = { 0 };
    struct bpe_file *back = NULL;

    require(bpe_file_write(f, &json) == ALIBI_OK);
    require(bpe_file_parse(&back, json.data, json.length, "written") == ALIBI_OK);
    require(back->vocab == f->vocab && back->merge_count == f->merge_count &&
            back->added_count == f->added_count);
    for (int64_t id = 0; id < f->vocab; id++)
        require(f->tokens[id].bytes == back->tokens[id].bytes &&
                memcmp(f->tokens[id].at, back->tokens[id].at, f->tokens[id].bytes) == 0);
    require(bpe_file_write(back, &again) == ALIBI_OK);
    require(again.length == json.length && memcmp(again.data, json.data, json.length) == 0);
    bpe_file_free(back);
    text_free(&json);
    text_free(&again);
}

/* The ids of a text that is encoded a few bytes at a time are those of the whole. */
static inline void check_parts(const alibi_tokenizer *t, struct slice text, const int32_t *whole,
                               int64_t count)
{
    struct encoder *e = NULL;
    struct ids ids = { 0 };
    size_t more = 0, reached = 0;

    require(encoder_new(&e, t) == ALIBI_OK);
    for (size_t at = 0; at < text.bytes; at = reached) {
        size_t stop = text.bytes - at > 3 ? at + 3 : text.bytes;
        size_t end = text.bytes - stop > more ? stop + more : text.bytes;
        struct stretch s = { text.at, at, stop, end, .last = end == text.bytes };
        require(encoder_run(e, &s, &ids, &reached) == ALIBI_OK);
        require(reached >= at && reached <= end && (reached > at || end < text.bytes));
        more = reached > at ? 0 : 2 * more + 1;
    }
    require(ids.count == count &&
            (count == 0 || memcmp(ids.at, whole, (size_t)count * sizeof *whole) == 0));
    encoder_free(e);
    mem_free(ids.at);
}

/* The decoded ids of a text are the text unless it `changes`, and a text with the same ids unless
 * these may be `others`. A text may be refused, such as one that is too slow for a pattern. */
static inline void check_decoded(const alibi_tokenizer *t, struct slice text, bool changes,
                                 bool others)
{
    int32_t *ids = NULL, *again = NULL;
    int64_t count = 0, again_count = 0;
    char *decoded = NULL;
    size_t bytes = 0;
    alibi_status status = alibi_tokenizer_encode(t, text.at, text.bytes, &ids, &count);

    if (status == ALIBI_OK) {
        require(alibi_tokenizer_decode(t, ids, count, &decoded, &bytes) == ALIBI_OK);
        require(changes ||
                (bytes == text.bytes && (bytes == 0 || memcmp(decoded, text.at, bytes) == 0)));
        require(alibi_tokenizer_encode(t, decoded, bytes, &again, &again_count) == ALIBI_OK);
        require(others || (again_count == count &&
                           (count == 0 || memcmp(again, ids, (size_t)count * sizeof *ids) == 0)));
        if (text.bytes < 500)
            check_parts(t, text, ids, count);
    } else {
        require(status == ALIBI_BAD_INPUT);
    }
    alibi_text_free(decoded);
    alibi_ids_free(ids);
    alibi_ids_free(again);
}

/* Encodes the text with the file, which is freed. A text that is normalized or loses white space
 * changes. Blanks may be put before text, and without the white space after it a token may no
 * longer be a single word: then the decoded text may have other ids. A pattern that is not
 * supported must be refused. */
static inline void check_round_trip(struct bpe_file *f, struct slice text)
{
    alibi_tokenizer *t = NULL;
    bool prefixes = f->characters || f->prefix != PREFIX_NONE, changes = f->nfc || prefixes;
    bool words = false;
    alibi_status status;

    for (int i = 0; i < f->added_count; i++) {
        changes = changes || f->added[i].lstrip || f->added[i].rstrip;
        words = words || f->added[i].single_word;
    }
    status = tokenizer_new_bpe(&t, f, "fuzz.json");
    if (status != ALIBI_OK)
        check_refusal(status, "fuzz.json");
    else
        check_decoded(t, text, changes, prefixes || (changes && words));
    alibi_tokenizer_free(t);
}

/* Input that begins with the size that its file claims to have: checked with that and the true one.
 */
static inline int check_claimed(const uint8_t *data, size_t size,
                                void (*check)(const char *bytes, size_t size, int64_t file_bytes))
{
    int64_t claimed;

    if (size < sizeof claimed)
        return 0;
    memcpy(&claimed, data, sizeof claimed);
    check((const char *)data + sizeof claimed, size - sizeof claimed, claimed);
    check((const char *)data + sizeof claimed, size - sizeof claimed,
          (int64_t)(size - sizeof claimed));
    return 0;
}

/* The end of a target that has parsed a tokenizer. `path` is a part of the names of its files. */
static inline int check_tokenizer(alibi_status status, struct bpe_file *f, struct slice text,
                                  size_t size, const char *path)
{
    if (status != ALIBI_OK) {
        check_refusal(status, path);
    } else {
        if (size % 4 == 0) /* it takes longer than all the rest: a quarter of the inputs will do */
            check_written(f);
        check_round_trip(f, text);
    }
    require(alibi_memory_now() == 0);
    return 0;
}

#endif
