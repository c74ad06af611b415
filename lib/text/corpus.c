/* corpus.c - text as tokens, in three splits
 *
 * All documents stand one behind the other in one array of tokens, each followed by one end token. A split is a range of it:
 *
 *   0 ... train ... cuts[1] ... validation ... cuts[2] ... test ... cuts[3] = count
 *
 * Words are maximal runs of bytes that are not white space; a word belongs to the token with its first byte, so that the words
 * of neighbouring ranges add up. The end of a document separates words like white space does. */
#include <string.h>

#include "text/text.h"

enum { SPLITS = 3, BLOCK = 1 << 16, LONGEST_CHARACTER = 4 };

struct alibi_corpus {
    struct tokenizer *tokenizer;
    char *name;
    uint16_t *tokens;
    int64_t count, capacity;
    int64_t cuts[SPLITS + 1];
    struct span spans[SPLITS + 1]; /* by enum alibi_split */
    uint32_t checksum;
    struct alibi_builtin builtin; /* which it is; bytes == 0: none */
};

/* ---- what a range of tokens stands for */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *token_bytes(const alibi_corpus *c, int64_t i, size_t *bytes)
{
    return tokenizer_bytes(c->tokenizer, c->tokens[i], bytes);
}

static bool is_end(const alibi_corpus *c, int64_t i)
{
    return c->tokens[i] == tokenizer_end(c->tokenizer);
}

static bool word_may_start_at(const alibi_corpus *c, int64_t i)
{
    size_t bytes;
    const char *text;

    if (i == 0)
        return true;
    text = token_bytes(c, i - 1, &bytes);
    return bytes == 0 || is_space(text[bytes - 1]);
}

static void measure(const alibi_corpus *c, int64_t first, int64_t count, int64_t *words, int64_t *bytes)
{
    bool between_words = word_may_start_at(c, first);

    *words = *bytes = 0;
    for (int64_t i = first; i < first + count; i++) {
        size_t length;
        const char *text = token_bytes(c, i, &length);
        for (size_t k = 0; k < length; k++) {
            bool space = is_space(text[k]);
            *words += between_words && !space;
            between_words = space;
        }
        between_words = between_words || length == 0;
        *bytes += (int64_t)length;
    }
}

/* Documents of which the range has any part. */
static int64_t count_documents(const alibi_corpus *c, int64_t first, int64_t count)
{
    int64_t ends = 0;

    for (int64_t i = first; i < first + count; i++)
        ends += is_end(c, i);
    return ends + (count > 0 && !is_end(c, first + count - 1));
}

static struct span measured_span(const alibi_corpus *c, int64_t first, int64_t end)
{
    struct span s = { .corpus = c, .first = first, .count = end - first };

    s.documents = count_documents(c, first, s.count);
    measure(c, first, s.count, &s.words, &s.bytes);
    return s;
}

/* ---- where the splits are cut */

static bool starts_line(const alibi_corpus *c, int64_t i)
{
    size_t bytes;
    const char *text = token_bytes(c, i - 1, &bytes);

    return bytes == 0 || text[bytes - 1] == '\n';
}

static bool starts_character(const alibi_corpus *c, int64_t i)
{
    size_t bytes;
    const char *text = token_bytes(c, i, &bytes);

    return bytes == 0 || ((unsigned char)text[0] & 0xC0) != 0x80;
}

/* The first line start at or behind `from` within `reach`, else the first character that starts there. */
static int64_t cut_at(const alibi_corpus *c, int64_t from, int64_t reach)
{
    int64_t i = from;

    for (int64_t line = from; line > 0 && line <= from + reach && line < c->count; line++)
        if (starts_line(c, line))
            return line;
    while (i < c->count && !starts_character(c, i))
        i++;
    return i;
}

static void cut_by_length(alibi_corpus *c)
{
    int64_t part = c->count / 20, reach = c->count / 40;

    c->cuts[1] = cut_at(c, c->count - 2 * part, reach);
    c->cuts[2] = cut_at(c, c->count - part, reach);
}

/* The first token of the last `documents` documents. */
static int64_t last_documents(const alibi_corpus *c, int64_t documents)
{
    int64_t ends = 0;

    for (int64_t i = c->count - 1; i >= 0; i--) {
        ends += is_end(c, i);
        if (ends > documents)
            return i + 1;
    }
    return 0;
}

static void cut_by_document(alibi_corpus *c)
{
    int64_t documents = count_documents(c, 0, c->count);
    int64_t part = documents < 20 ? 1 : documents / 20;

    c->cuts[1] = last_documents(c, 2 * part);
    c->cuts[2] = last_documents(c, part);
}

/* The corpus has all its text: cuts it with `cut` and measures it. */
static void finish(alibi_corpus *c, void (*cut)(alibi_corpus *c))
{
    c->cuts[0] = 0;
    c->cuts[SPLITS] = c->count;
    cut(c);
    for (int s = 0; s < SPLITS; s++)
        c->spans[s] = measured_span(c, c->cuts[s], c->cuts[s + 1]);
    c->spans[ALIBI_ALL] = measured_span(c, 0, c->count);
    c->checksum = checksum(0, c->tokens, (size_t)c->count * sizeof *c->tokens);
}

/* ---- adding text */

/* Room for `more` tokens and the end of their document. */
static alibi_status reserve(alibi_corpus *c, int64_t more)
{
    size_t need, capacity = 2 * (size_t)c->capacity, bytes;

    if (more < 0 || !size_add(&need, (size_t)c->count, (size_t)more) || !size_add(&need, need, 1) || need > INT64_MAX / 2)
        return fail(ALIBI_MEMORY, "'%s': not enough memory for %lld tokens", c->name, (long long)more);
    if (need <= (size_t)c->capacity)
        return ALIBI_OK;
    if (capacity < need)
        capacity = need;
    if (!size_multiply(&bytes, capacity, sizeof *c->tokens))
        return fail(ALIBI_MEMORY, "'%s': not enough memory for %lld tokens", c->name, (long long)more);
    TRY_RETURN(mem_grow((void **)&c->tokens, (size_t)c->count * sizeof *c->tokens, bytes, "the tokens of a text"));
    c->capacity = (int64_t)capacity;
    return ALIBI_OK;
}

static alibi_status add_text(alibi_corpus *c, const char *text, size_t bytes)
{
    alibi_status status;
    int32_t *ids = NULL;
    int64_t count = 0;

    TRY(tokenizer_encode(c->tokenizer, text, bytes, &ids, &count));
    TRY(reserve(c, count));
    for (int64_t i = 0; i < count; i++)
        c->tokens[c->count + i] = (uint16_t)ids[i];
    c->count += count;
out:
    mem_free(ids);
    return status;
}

static alibi_status end_document(alibi_corpus *c)
{
    TRY_RETURN(reserve(c, 0));
    c->tokens[c->count++] = (uint16_t)tokenizer_end(c->tokenizer);
    return ALIBI_OK;
}

/* A document that comes block by block; offset and line are where the next block starts, for messages. */
struct intake {
    alibi_corpus *corpus;
    const char *name;
    int64_t offset, line;
};

static int64_t count_lines(const char *bytes, size_t length)
{
    int64_t lines = 0;

    for (size_t i = 0; i < length; i++)
        lines += bytes[i] == '\n';
    return lines;
}

static alibi_status refuse_zero(const struct intake *in, size_t at)
{
    return fail(ALIBI_BAD_INPUT, "'%s' is not text: byte 0 at offset %lld", in->name, (long long)in->offset + (long long)at);
}

static alibi_status refuse_byte(const struct intake *in, const char *bytes, size_t at)
{
    return fail(ALIBI_BAD_INPUT, "'%s' is not UTF-8: byte 0x%02x at offset %lld (line %lld)", in->name, (unsigned char)bytes[at],
                (long long)in->offset + (long long)at, (long long)(in->line + count_lines(bytes, at)));
}

/* Adds what is whole characters of the block. *taken < length leaves the start of one that the next block goes on with. */
static alibi_status take_block(struct intake *in, const char *bytes, size_t length, bool last, size_t *taken)
{
    size_t valid = utf8_valid_prefix(bytes, length);
    const char *zero = memchr(bytes, 0, valid);

    if (zero != NULL)
        return refuse_zero(in, (size_t)(zero - bytes));
    if (valid < length && (last || length - valid >= LONGEST_CHARACTER))
        return refuse_byte(in, bytes, valid);
    TRY_RETURN(add_text(in->corpus, bytes, valid));
    in->offset += (int64_t)valid;
    in->line += count_lines(bytes, valid);
    *taken = valid;
    return ALIBI_OK;
}

static alibi_status take_file(struct intake *in, struct file *file, char *block)
{
    size_t held = 0, got = 0, taken = 0;
    bool last = false;

    while (!last) {
        TRY_RETURN(file_read(file, block + held, BLOCK - held, &got));
        last = got < BLOCK - held;
        TRY_RETURN(take_block(in, block, held + got, last, &taken));
        held = held + got - taken;
        memmove(block, block + taken, held);
    }
    return ALIBI_OK;
}

static alibi_status end_intake(const struct intake *in)
{
    if (in->offset == 0)
        return fail(ALIBI_BAD_INPUT, "'%s' is empty", in->name);
    return end_document(in->corpus);
}

static alibi_status add_file(alibi_corpus *c, const char *path)
{
    alibi_status status;
    struct intake in = { .corpus = c, .name = path, .line = 1 };
    struct file *file = NULL;
    char *block = NULL;

    TRY(file_open_read(&file, path));
    TRY(NEW_ARRAY(&block, BLOCK, "a block of a file"));
    TRY(reserve(c, file_size(file)));
    TRY(take_file(&in, file, block));
    TRY(end_intake(&in));
out:
    mem_free(block);
    (void)file_close(file); /* it was only read: nothing can be lost */
    return status;
}

static alibi_status add_document(void *user, const char *text, size_t length)
{
    struct intake in = { .corpus = user, .line = 1 };
    size_t taken;

    in.name = in.corpus->name;
    TRY_RETURN(take_block(&in, text, length, true, &taken));
    return end_intake(&in);
}

/* ---- making a corpus */

/* Ids are stored in 16 bits. */
static alibi_status check_ids(const struct tokenizer *t)
{
    if (tokenizer_vocab(t) > UINT16_MAX + 1)
        return fail(ALIBI_BAD_INPUT, "a text can have %d ids at most, the tokenizer has %lld", UINT16_MAX + 1,
                    (long long)tokenizer_vocab(t));
    return ALIBI_OK;
}

static alibi_status new_corpus(alibi_corpus **out, const char *name)
{
    alibi_status status;
    alibi_corpus *c = NULL;

    TRY(NEW_ZERO_ARRAY(&c, 1, "a corpus"));
    TRY(tokenizer_new_bytes(&c->tokenizer));
    TRY(check_ids(c->tokenizer));
    TRY(text_copy(&c->name, name));
    *out = c;
    c = NULL;
out:
    alibi_corpus_free(c);
    return status;
}

alibi_status alibi_corpus_open(alibi_corpus **out, const char *const *paths, int count)
{
    alibi_status status;
    alibi_corpus *c = NULL;

    if (count < 1)
        return fail(ALIBI_USAGE, "a corpus needs at least one file");
    TRY(new_corpus(&c, paths[0]));
    for (int i = 0; i < count; i++)
        TRY(add_file(c, paths[i]));
    finish(c, cut_by_length);
    *out = c;
    c = NULL;
out:
    alibi_corpus_free(c);
    return status;
}

alibi_status corpus_from_texts(alibi_corpus **out, const char *const *texts, int count)
{
    alibi_status status;
    alibi_corpus *c = NULL;

    TRY(new_corpus(&c, "text"));
    for (int i = 0; i < count; i++)
        TRY(add_document(c, texts[i], strlen(texts[i])));
    finish(c, cut_by_length);
    *out = c;
    c = NULL;
out:
    alibi_corpus_free(c);
    return status;
}

/* Keeps to the options' ranges, so that a recipe can name every text that was used. */
static alibi_status check_builtin(uint64_t seed, int64_t bytes)
{
    int count;
    const struct alibi_option *options = alibi_builtin_options(&count);

    if ((double)seed > options[0].max)
        return fail(ALIBI_USAGE, "the built-in text has seeds up to %.0f, not %llu", options[0].max, (unsigned long long)seed);
    if ((double)bytes > options[1].max)
        return fail(ALIBI_USAGE, "the built-in text has at most %.0f bytes, not %lld", options[1].max, (long long)bytes);
    return ALIBI_OK;
}

alibi_status alibi_corpus_builtin(alibi_corpus **out, uint64_t seed, int64_t bytes)
{
    alibi_status status;
    alibi_corpus *c = NULL;

    TRY(check_builtin(seed, bytes));
    TRY(new_corpus(&c, "built-in text"));
    TRY(builtin_write(seed, bytes, add_document, c));
    finish(c, cut_by_document);
    c->builtin = (struct alibi_builtin){ (int64_t)seed, bytes };
    *out = c;
    c = NULL;
out:
    alibi_corpus_free(c);
    return status;
}

void alibi_corpus_free(alibi_corpus *c)
{
    if (c == NULL)
        return;
    tokenizer_free(c->tokenizer);
    mem_free(c->name);
    mem_free(c->tokens);
    mem_free(c);
}

/* ---- using one */

struct span corpus_span(const alibi_corpus *c, enum alibi_split split)
{
    return c->spans[split];
}

const struct tokenizer *corpus_tokenizer(const alibi_corpus *c)
{
    return c->tokenizer;
}

const char *corpus_name(const alibi_corpus *c)
{
    return c->name;
}

struct alibi_builtin corpus_builtin(const alibi_corpus *c)
{
    return c->builtin;
}

uint32_t corpus_checksum(const alibi_corpus *c)
{
    return c->checksum;
}

void span_read(struct span s, int64_t from, int64_t count, int32_t *ids)
{
    const uint16_t *tokens = s.corpus->tokens + s.first + from;

    for (int64_t i = 0; i < count; i++)
        ids[i] = tokens[i];
}

void span_measure(struct span s, int64_t from, int64_t count, int64_t *words, int64_t *bytes)
{
    measure(s.corpus, s.first + from, count, words, bytes);
}

void alibi_corpus_get_info(const alibi_corpus *c, enum alibi_split split, struct alibi_corpus_info *info)
{
    struct span s = corpus_span(c, split);

    *info = (struct alibi_corpus_info){
        .documents = s.documents,
        .tokens = s.count,
        .words = s.words,
        .bytes = s.bytes,
        .vocab = tokenizer_vocab(c->tokenizer),
    };
}

/* The text of tokens first..end-1. Between two documents stands a line end, if the first has none of its own: without it the
 * last word of one and the first of the next would become one word. */
static alibi_status append_text(const alibi_corpus *c, int64_t first, int64_t end, int64_t split_end, struct text *out)
{
    for (int64_t i = first; i < end; i++) {
        size_t bytes;
        const char *text = token_bytes(c, i, &bytes);
        bool joins = is_end(c, i) && i > 0 && i + 1 < split_end && !starts_line(c, i);

        TRY_RETURN(text_append_bytes(out, joins ? "\n" : text, joins ? 1 : bytes));
    }
    return ALIBI_OK;
}

static alibi_status write_span(struct file *file, const void *user)
{
    alibi_status status = ALIBI_OK;
    const struct span *s = user;
    struct text block = { 0 };
    int64_t split_end = s->first + s->count;

    for (int64_t i = s->first; i < split_end; i += BLOCK) {
        int64_t end = split_end - i > BLOCK ? i + BLOCK : split_end;
        block.length = 0;
        TRY(append_text(s->corpus, i, end, split_end, &block));
        TRY(file_write(file, block.data, block.length));
    }
out:
    text_free(&block);
    return status;
}

alibi_status alibi_corpus_write(const alibi_corpus *c, enum alibi_split split, const char *path)
{
    struct span s = corpus_span(c, split);

    return file_replace_with(path, write_span, &s);
}
