/* tokenizing.h - a small corpus, three tokenizers, what must come of them, and a way to stop in
 * between */
#ifndef TOKENIZING_H
#define TOKENIZING_H

#include "training.h"

#include "text/shards.h"

enum { FILES = 3 };

static struct tokenize_limits limits; /* the usual ones, unless a test changes them */

/* ---- text: words of one to nine letters, some of several bytes, in lines, some of them blank */

struct corpus {
    char *folder;
    char *text[FILES];
    size_t bytes[FILES];
    const char *paths[FILES];
    alibi_tokenizer *tokenizers[3]; /* bytes, words, BPE */
    char kept[4][512];
    int kept_count;
};

/* `name` in the folder, for as long as the test runs. */
static inline const char *keep(struct corpus *c, const char *name)
{
    char *path = c->kept[c->kept_count++];

    assert_true(c->kept_count <= 4);
    snprintf(path, sizeof c->kept[0], "%s/%s", c->folder, name);
    return path;
}

static inline size_t append_word(char *at, uint64_t number)
{
    static const char *const letters[] = { "a",        "e",  "n", "th",          "ing",
                                           "\xc3\xa9", "'s", "7", "\xe6\xbc\xa2" };
    size_t used = 0;

    for (uint64_t i = 0; i <= number % 5; i++) {
        const char *letter = letters[random_below(3, number, i, 9)];
        memcpy(at + used, letter, strlen(letter));
        used += strlen(letter);
    }
    return used;
}

static inline char *write_text(uint64_t seed, size_t wanted, size_t *bytes)
{
    static const char *const between[] = { " ", " ", " ", " ", "  ", ", ", "\n", "\n\n", " \t " };
    char *text = malloc(wanted + 64);
    size_t used = 0;

    assert_non_null(text);
    for (uint64_t i = 0; used < wanted; i++) {
        const char *blank = between[random_below(seed, 1, i, 9)];
        used += append_word(text + used, random_below(seed, 2, i, 997));
        memcpy(text + used, blank, strlen(blank));
        used += strlen(blank);
    }
    *bytes = used;
    return text;
}

static inline alibi_tokenizer *words_tokenizer(int count)
{
    struct slice *words = calloc((size_t)count + 2, sizeof *words);
    char *storage = calloc((size_t)count + 1, 32);
    alibi_tokenizer *t = NULL;

    assert_true(words != NULL && storage != NULL);
    words[0] = (struct slice){ "<unk>", 5 };
    words[1] = (struct slice){ "<eos>", 5 };
    for (int i = 0; i < count; i++) {
        char *word = storage + (size_t)i * 32;
        size_t length = i < 997 ? append_word(word, (uint64_t)i) : 0;
        for (int j = 0; j < i && length > 0; j++)
            if (words[2 + j].bytes == length && memcmp(words[2 + j].at, word, length) == 0)
                length = 0; /* it is there already */
        if (length == 0)
            length = (size_t)snprintf(word, 32, "word%d", i);
        words[2 + i] = (struct slice){ word, length };
    }
    assert_ok(tokenizer_new_words(&t, words, count + 2));
    free(words);
    free(storage);
    return t;
}

static inline alibi_tokenizer *bpe_tokenizer(const struct corpus *c)
{
    struct alibi_vocabulary how = { .type = ALIBI_BPE, .vocab = 320, .min_count = 2 };
    char pattern[] = "gpt2";
    alibi_tokenizer *t = NULL;

    how.pattern = pattern;
    assert_ok(alibi_tokenizer_train(&t, &how, c->paths, 1, NULL, test_call()));
    return t;
}

static inline int set_up(void **state)
{
    static const size_t sizes[FILES] = { 5000, 21, 9000 };
    struct corpus *c = calloc(1, sizeof *c);

    assert_non_null(c);
    limits = tokenize_limits_usual;
    c->folder = fast_folder();
    for (int i = 0; i < FILES; i++) {
        char name[24];
        snprintf(name, sizeof name, "text-%d", i);
        c->text[i] = write_text((uint64_t)i, sizes[i], &c->bytes[i]);
        c->paths[i] = strdup(within(c->folder, name));
        write_file(c->paths[i], c->text[i], c->bytes[i]);
    }
    assert_ok(tokenizer_new_bytes(&c->tokenizers[0]));
    c->tokenizers[1] = words_tokenizer(300);
    c->tokenizers[2] = bpe_tokenizer(c);
    *state = c;
    return 0;
}

static inline int tear_down(void **state)
{
    struct corpus *c = *state;

    for (int i = 0; i < FILES; i++) {
        free(c->text[i]);
        free((char *)c->paths[i]);
    }
    for (int i = 0; i < 3; i++)
        alibi_tokenizer_free(c->tokenizers[i]);
    remove_temporary_folder(c->folder);
    free(c);
    test_watch(NULL, NULL, NULL);
    return alibi_memory_now() != 0;
}

/* ---- what must come out, computed another way */

static inline void expect_document(const alibi_tokenizer *t, const char *text, size_t bytes,
                                   struct ids *ids)
{
    int32_t end = alibi_tokenizer_end(t);
    bool words = strcmp(alibi_tokenizer_type(t), "words") == 0;

    assert_ok(tokenizer_encode(t, text, bytes, ids));
    if (!words || text[bytes - 1] != '\n')
        assert_ok(ids_append(ids, &end, 1));
}

static inline int64_t expect_words(const char *text, size_t bytes)
{
    int64_t words = 0;

    for (size_t i = 0; i < bytes;) {
        while (i < bytes && strchr(" \t\n\v\f\r", text[i]) != NULL)
            i++;
        words += i < bytes;
        while (i < bytes && strchr(" \t\n\v\f\r", text[i]) == NULL)
            i++;
    }
    return words;
}

/* The tokens of all shards that the index names, each of which has the checksum it says. */
static inline void read_shards(const char *folder, const struct shard_index *x, struct ids *ids)
{
    for (int64_t i = 0; i < x->entry_count; i++) {
        struct shard_header header;
        char *bytes = NULL;
        size_t length;
        assert_ok(file_read_all(&bytes, &length, within(folder, x->entries[i].name), 1 << 30));
        assert_ok(shard_header_parse(&header, bytes, length, (int64_t)length, x->entries[i].name));
        assert_int_equal(checksum(0, bytes, length), x->entries[i].crc32);
        assert_int_equal(header.count, x->entries[i].tokens);
        assert_int_equal(header.width, x->width);
        for (int64_t j = 0; j < header.count; j++) {
            const unsigned char *p = (unsigned char *)bytes + SHARD_HEADER_BYTES + j * header.width;
            int32_t id = p[0] | p[1] << 8;
            if (header.width == 4)
                id |= p[2] << 16 | p[3] << 24;
            assert_ok(ids_append(ids, &id, 1));
        }
        mem_free(bytes);
    }
}

static inline void assert_same_ids(const struct ids *a, const struct ids *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->at, b->at, (size_t)a->count * sizeof *a->at);
}

/* The same files with the same bytes. */
static inline void assert_same_folder(const char *a, const char *b)
{
    char **names = NULL, **others = NULL;
    int count = 0, other_count = 0;

    assert_ok(folder_list(&names, &count, a));
    assert_ok(folder_list(&others, &other_count, b));
    assert_int_equal(count, other_count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(names[i], others[i]);
        if (!same_file(within(a, names[i]), within(b, names[i])))
            fail_msg("'%s' differs between '%s' and '%s'", names[i], a, b);
    }
    names_free(names, count);
    names_free(others, other_count);
}

static inline void remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- ids as they come */

struct receiver {
    struct ids all;
    int64_t documents, wanted, longest;
};

static inline bool receive(void *user, const int32_t *ids, int64_t count, bool ends)
{
    struct receiver *r = user;

    assert_true(count > 0);
    assert_ok(ids_append(&r->all, ids, count));
    r->documents += ends;
    r->longest = count > r->longest ? count : r->longest;
    return r->documents < r->wanted;
}

/* ---- stops */

struct stopper {
    int reports, stop_at;
    int64_t done, total;
    char line[1024];
};

static inline void stop_at_report(void *user, const struct alibi_progress *p)
{
    struct stopper *s = user;

    assert_string_equal(p->unit, "bytes");
    assert_true(p->done >= s->done && p->done <= p->total);
    s->done = p->done;
    s->total = p->total;
    if (++s->reports == s->stop_at)
        alibi_stop_request(&test_stop);
}

static inline void keep_line(void *user, enum alibi_log_level level, const char *line)
{
    struct stopper *s = user;

    (void)level;
    snprintf(s->line, sizeof s->line, "%s", line);
}

static inline alibi_status begin(struct corpus *c, const char *folder)
{
    struct stopper s = { .stop_at = 3 };
    struct alibi_tokenize_result result;
    alibi_status status;

    limits.block_bytes = 1000;
    test_watch(&s, stop_at_report, NULL);
    status = tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &result,
                             test_call());
    test_watch(NULL, NULL, NULL);
    return status;
}

#endif
