/* bpe.h - tokenizers of byte-level BPE made by hand, for tests */
#ifndef TESTS_BPE_H
#define TESTS_BPE_H

#include "check.h"
#include "text/tokenizer.h"

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "                                                \
    "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Ids 0..255 are the bytes, then one for each merge, then the added tokens. */
struct recipe {
    const char *merges[16][2]; /* the texts of left and right; NULL ends them */
    const char *added[8];      /* the first is special */
    const char *pattern;       /* NULL: none */
    bool ignore_merges;
};

static inline int count_merges(const struct recipe *r)
{
    int n = 0;

    while (r->merges[n][0] != NULL)
        n++;
    return n;
}

static inline int count_added(const struct recipe *r)
{
    int n = 0;

    while (r->added[n] != NULL)
        n++;
    return n;
}

/* The last token of that text among the first `count`. */
static inline int32_t find_token(const struct bpe_file *f, int64_t count, const char *text,
                                 size_t bytes)
{
    for (int64_t i = count; i-- > 0;)
        if (f->tokens[i].bytes == bytes && memcmp(f->tokens[i].at, text, bytes) == 0)
            return (int32_t)i;
    fail_msg("'%s' is no token", text);
    return -1;
}

static inline void put_token(struct bpe_file *f, int64_t id, const char *left, size_t left_bytes,
                             const char *right)
{
    char *at = f->storage + id * 64;

    memcpy(at, left, left_bytes);
    memcpy(at + left_bytes, right, strlen(right) + 1);
    f->tokens[id] = (struct slice){ at, left_bytes + strlen(right) };
}

static inline void put_merge(struct bpe_file *f, int64_t i, const char *left, const char *right)
{
    f->merges[i].left = find_token(f, 256 + i, left, strlen(left));
    f->merges[i].right = find_token(f, 256 + i, right, strlen(right));
    f->merges[i].result = (int32_t)(256 + i);
    put_token(f, 256 + i, left, strlen(left), right);
}

static inline struct bpe_file *file_of(const struct recipe *r)
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

static inline alibi_tokenizer *bpe_of(const struct recipe *r)
{
    alibi_tokenizer *t = NULL;

    assert_ok(tokenizer_new_bpe(&t, file_of(r), "t.json"));
    return t;
}

/* The text's tokens, each followed by a '|'. */
static inline void show(char *out, size_t size, const alibi_tokenizer *t, const int32_t *ids,
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

static inline void assert_tokens(const alibi_tokenizer *t, const char *text, const char *expected)
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

static inline void assert_round_trip(const alibi_tokenizer *t, const char *text, size_t bytes)
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

#endif
