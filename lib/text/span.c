/* span.c - reading, counting and writing the tokens of a corpus
 *
 * Words are maximal runs of bytes that are not white space; a word belongs to the token with its
 * first byte, so that the words of neighbouring ranges add up. The end of a document separates
 * words like white space does. */
#include <string.h>

#include "text/corpus.h"

enum { READ_IDS = 1 << 11, COUNT_IDS = 1 << 17, WRITE_IDS = 1 << 16 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- ids */

/* The last shard that starts at or before token i: those without tokens are skipped. */
static const struct shard *shard_of(const alibi_corpus *c, int64_t i)
{
    int low = 0, high = c->shards.count - 1;

    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (c->shards.at[middle].first <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return &c->shards.at[low];
}

static void read_ids(const alibi_corpus *c, int64_t first, int64_t count, int32_t *ids)
{
    while (count > 0) {
        const struct shard *s = shard_of(c, first);
        int64_t from = first - s->first, some = smaller(count, s->count - from);
        const uint16_t *narrow = (const uint16_t *)s->ids + from;

        if (s->width == 2)
            for (int64_t i = 0; i < some; i++)
                ids[i] = narrow[i];
        else
            memcpy(ids, (const int32_t *)s->ids + from, (size_t)some * sizeof *ids);
        ids += some;
        first += some;
        count -= some;
    }
}

void span_read(struct span s, int64_t from, int64_t count, int32_t *ids)
{
    read_ids(s.corpus, s.first + from, count, ids);
}

static int32_t id_at(const alibi_corpus *c, int64_t i)
{
    int32_t id;

    read_ids(c, i, 1, &id);
    return id;
}

const char *corpus_bytes(const alibi_corpus *c, int64_t i, size_t *bytes)
{
    return tokenizer_bytes(c->tokenizer, id_at(c, i), bytes);
}

bool corpus_starts_line(const alibi_corpus *c, int64_t i)
{
    size_t bytes;
    const char *text = corpus_bytes(c, i - 1, &bytes);

    return bytes == 0 || text[bytes - 1] == '\n';
}

static bool is_end(const alibi_corpus *c, int64_t i)
{
    return id_at(c, i) == alibi_tokenizer_end(c->tokenizer);
}

alibi_status span_documents(struct span s,
                            alibi_status (*document)(void *user, int64_t first, int64_t count,
                                                     bool ended),
                            void *user)
{
    const alibi_tokenizer *t = s.corpus->tokenizer;
    bool known = strcmp(alibi_tokenizer_type(t), "words") != 0;
    int32_t ids[READ_IDS], end = known ? alibi_tokenizer_end(t) : -1;
    int64_t first = 0;

    for (int64_t from = 0; from < s.count && end >= 0; from += READ_IDS) {
        int64_t some = smaller(s.count - from, READ_IDS);

        span_read(s, from, some, ids);
        for (int64_t i = 0; i < some; i++)
            if (ids[i] == end) {
                TRY_RETURN(document(user, first, from + i + 1 - first, true));
                first = from + i + 1;
            }
    }
    return first < s.count ? document(user, first, s.count - first, false) : ALIBI_OK;
}

/* ---- the text of a range of tokens */

struct counts {
    int64_t ends, words, bytes;
    bool between_words; /* at the last byte so far */
};

static struct counts count_block(const alibi_corpus *c, int64_t first, int64_t count)
{
    struct counts n = { .between_words = true };
    int32_t ids[READ_IDS];
    size_t length;
    const char *text;

    if (count > 0 && first > 0) {
        text = corpus_bytes(c, first - 1, &length);
        n.between_words = length == 0 || is_white_space(text[length - 1]);
    }
    while (count > 0) {
        int64_t some = smaller(count, READ_IDS);
        read_ids(c, first, some, ids);
        for (int64_t i = 0; i < some; i++) {
            text = tokenizer_bytes(c->tokenizer, ids[i], &length);
            for (size_t k = 0; k < length; k++) {
                bool space = is_white_space(text[k]);
                n.words += n.between_words && !space;
                n.between_words = space;
            }
            n.between_words = n.between_words || length == 0;
            n.bytes += (int64_t)length;
            n.ends += ids[i] == alibi_tokenizer_end(c->tokenizer);
        }
        first += some;
        count -= some;
    }
    return n;
}

static struct counts count_range(const alibi_corpus *c, int64_t first, int64_t count)
{
    int64_t ends = 0, words = 0, bytes = 0;

#pragma omp parallel for reduction(+ : ends, words, bytes) if (count > COUNT_IDS)
    for (int64_t from = 0; from < count; from += COUNT_IDS) {
        struct counts n = count_block(c, first + from, smaller(COUNT_IDS, count - from));
        ends += n.ends;
        words += n.words;
        bytes += n.bytes;
    }
    return (struct counts){ .ends = ends, .words = words, .bytes = bytes };
}

void span_measure(struct span s, int64_t from, int64_t count, int64_t *words, int64_t *bytes)
{
    struct counts n = count_range(s.corpus, s.first + from, count);

    *words = n.words;
    *bytes = n.bytes;
}

void alibi_corpus_get_info(const alibi_corpus *c, enum alibi_split split,
                           struct alibi_corpus_info *info)
{
    struct span s = corpus_span(c, split);
    struct alibi_corpus_info part;
    struct counts n;

    *info = (struct alibi_corpus_info){ .documents = c->documents,
                                        .tokens = s.count,
                                        .words = c->words,
                                        .bytes = c->bytes,
                                        .vocab = alibi_tokenizer_vocab(c->tokenizer),
                                        .checksum = c->checksum,
                                        .paths = c->paths };
    snprintf(info->name, sizeof info->name, "%s", c->name);
    line_clean(info->name); /* a cut within a character too */
    for (int i = 0; i < c->part_count; i++) {
        alibi_corpus_get_info(c->parts[i], split, &part);
        info->documents += part.documents;
        info->tokens += part.tokens;
        info->words += part.words;
        info->bytes += part.bytes;
    }
    if (c->part_count > 0 || (c->indexed && s.count == c->count))
        return;
    n = count_range(c, s.first, s.count);
    /* Documents that are at least partly in the span. Without end tokens only those of the whole
     * corpus are known. */
    if (alibi_tokenizer_end(c->tokenizer) < 0)
        info->documents = s.count == c->count && !c->unknown ? c->documents : 0;
    else
        info->documents = n.ends + (s.count > 0 && !is_end(c, s.first + s.count - 1));
    info->words = n.words;
    info->bytes = n.bytes;
}

/* ---- writing */

/* A line end separates two documents if the first has none of its own: otherwise the last word of
 * one and the first of the next would become one word. */
static alibi_status write_span(struct file *file, const void *user)
{
    alibi_status status = ALIBI_OK;
    const struct span *s = user;
    const alibi_corpus *c = s->corpus;
    struct text block = { 0 };
    int64_t split_end = s->first + s->count;

    for (int64_t from = s->first; from < split_end; from += WRITE_IDS) {
        int64_t end = smaller(from + WRITE_IDS, split_end);
        block.length = 0;
        for (int64_t i = from; i < end; i++) {
            size_t bytes;
            const char *text = corpus_bytes(c, i, &bytes);
            bool joins = bytes == 0 && is_end(c, i) && i > 0 && i + 1 < split_end &&
                         !corpus_starts_line(c, i);
            text_append_bytes(&block, joins ? "\n" : text, joins ? 1 : bytes);
        }
        TRY(text_status(&block));
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
