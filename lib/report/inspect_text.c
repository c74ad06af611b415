/* inspect_text.c - what a text, a tokenizer or token shards are made of */
#include <string.h>

#include "report/inspect.h"
#include "base/names.h"
#include "text/text.h"

static alibi_status add_checksum(struct page *p, uint32_t checksum)
{
    char text[16];

    snprintf(text, sizeof text, "%08lx", (unsigned long)checksum);
    return page_text(p, "checksum", text);
}

/* ---- text */

static alibi_status add_info(struct page *p, const alibi_corpus *corpus, enum alibi_split split,
                             const char *name)
{
    struct alibi_corpus_info info;

    alibi_corpus_get_info(corpus, split, &info);
    TRY_RETURN(page_open(p, name));
    TRY_RETURN(page_int(p, "documents", info.documents));
    TRY_RETURN(page_int(p, "tokens", info.tokens));
    TRY_RETURN(page_int(p, "words", info.words));
    TRY_RETURN(page_int(p, "bytes", info.bytes));
    return page_close(p);
}

static alibi_status add_splits(struct page *p, const alibi_corpus *corpus)
{
    TRY_RETURN(add_info(p, corpus, ALIBI_ALL, "all"));
    TRY_RETURN(add_info(p, corpus, ALIBI_TRAIN, "train"));
    TRY_RETURN(add_info(p, corpus, ALIBI_VALID, "valid"));
    return add_info(p, corpus, ALIBI_TEST, "test");
}

static alibi_status open_text(alibi_corpus **corpus, const char *path)
{
    alibi_status status;
    struct alibi_reading reading;
    struct alibi_option_group group = { .title = "text", .values = &reading };

    group.options = alibi_reading_options(&group.count);
    TRY_RETURN(alibi_options_init(&group, 1));
    status = alibi_corpus_open(corpus, &path, 1, NULL, NULL, &reading, NULL);
    alibi_options_free(&group, 1);
    return status;
}

alibi_status inspect_text(struct page *p, const char *path)
{
    alibi_status status;
    alibi_corpus *corpus = NULL;

    TRY(open_text(&corpus, path));
    TRY(page_text(p, "kind", "text"));
    TRY(page_text(p, "path", path));
    TRY(add_splits(p, corpus));
out:
    alibi_corpus_free(corpus);
    return status;
}

/* ---- a tokenizer */

static alibi_status add_end(struct page *p, const alibi_tokenizer *t)
{
    alibi_status status;
    char *text = NULL;
    size_t bytes;
    int32_t end = alibi_tokenizer_end(t);

    TRY(alibi_tokenizer_decode(t, &end, 1, &text, &bytes));
    TRY(page_int(p, "end", end));
    if (bytes > 0) /* for words it is the end of a line */
        TRY(page_text(p, p->json ? "end_text" : "end text",
                      !p->json && strcmp(text, "\n") == 0 ? "\\n" : text));
out:
    alibi_text_free(text);
    return status;
}

static alibi_status add_merges(struct page *p, const alibi_tokenizer *t)
{
    alibi_status status;
    struct text json = { 0 };
    struct bpe_file *file = NULL;

    TRY(tokenizer_format(t, &json));
    TRY(bpe_file_parse(&file, json.data, json.length, "tokenizer.json"));
    TRY(page_int(p, "merges", file->merge_count));
out:
    bpe_file_free(file);
    text_free(&json);
    return status;
}

static alibi_status add_tokenizer(struct page *p, const alibi_tokenizer *t)
{
    TRY_RETURN(page_text(p, "type", alibi_tokenizer_type(t)));
    TRY_RETURN(page_int(p, "vocab", alibi_tokenizer_vocab(t)));
    if (strcmp(alibi_tokenizer_type(t), "bpe") == 0)
        TRY_RETURN(add_merges(p, t));
    TRY_RETURN(add_end(p, t));
    return add_checksum(p, tokenizer_checksum(t));
}

alibi_status inspect_tokenizer(struct page *p, const char *path)
{
    alibi_status status;
    alibi_tokenizer *t = NULL;

    TRY(alibi_tokenizer_open(&t, path));
    TRY(page_text(p, "kind", "tokenizer"));
    TRY(page_text(p, "path", path));
    TRY(add_tokenizer(p, t));
out:
    alibi_tokenizer_free(t);
    return status;
}

/* ---- shards */

struct shards {
    struct shard *at;
    int count;
    struct shard_index index;
    bool has_index;
    alibi_tokenizer *tokenizer; /* NULL: there is no index, not even beside a shard */
};

static void shards_fini(struct shards *s)
{
    shards_free(s->at, s->count);
    shard_index_fini(&s->index);
    alibi_tokenizer_free(s->tokenizer);
}

static int64_t count_tokens(const struct shards *s)
{
    return s->count > 0 ? s->at[s->count - 1].first + s->at[s->count - 1].count : 0;
}

static int64_t largest_id(const struct shards *s)
{
    int64_t largest = -1;

    for (int i = 0; i < s->count; i++) {
        int64_t here = shard_largest(&s->at[i]);
        largest = here > largest ? here : largest;
    }
    return largest;
}

static alibi_status check_ids(const struct shards *s)
{
    for (int i = 0; i < s->count; i++)
        TRY_RETURN(shard_check(&s->at[i], alibi_tokenizer_vocab(s->tokenizer)));
    return ALIBI_OK;
}

/* Opening them has compared every checksum. The counts are those of a whole folder. */
static alibi_status add_indexed(struct page *p, const struct shards *s)
{
    TRY_RETURN(check_ids(s));
    TRY_RETURN(page_text(p, "verified", "every byte, every id"));
    if (s->has_index)
        TRY_RETURN(page_int(p, "documents", s->index.documents));
    TRY_RETURN(page_int(p, "tokens", count_tokens(s)));
    if (s->has_index) {
        TRY_RETURN(page_int(p, "words", s->index.words));
        TRY_RETURN(page_int(p, "bytes", s->index.bytes));
    }
    TRY_RETURN(page_open(p, "tokenizer"));
    TRY_RETURN(add_tokenizer(p, s->tokenizer));
    return page_close(p);
}

static alibi_status add_foreign(struct page *p, const struct shards *s)
{
    TRY_RETURN(page_text(p, "verified",
                         "headers and sizes: there is no " NAME_SHARD_INDEX " with checksums"));
    TRY_RETURN(page_int(p, "tokens", count_tokens(s)));
    return page_int(p, p->json ? "largest_id" : "largest id", largest_id(s));
}

static alibi_status add_shard(struct page *p, const struct shard *s)
{
    const char *slash = strrchr(s->path, '/');

    TRY_RETURN(page_open(p, slash ? slash + 1 : s->path));
    TRY_RETURN(page_int(p, "tokens", s->count));
    TRY_RETURN(page_int(p, "bits", 8 * s->width));
    return page_close(p);
}

static alibi_status add_shards(struct page *p, const struct shards *s)
{
    TRY_RETURN(page_open(p, "shards"));
    for (int i = 0; i < s->count; i++)
        TRY_RETURN(add_shard(p, &s->at[i]));
    return page_close(p);
}

alibi_status inspect_shards(struct page *p, const char *path)
{
    alibi_status status;
    struct shards s = { 0 };

    TRY(shards_open(&s.at, &s.count, &s.index, &s.has_index, &s.tokenizer, path, NULL));
    TRY(page_text(p, "kind", "tokens"));
    TRY(page_text(p, "path", path));
    TRY(s.tokenizer != NULL ? add_indexed(p, &s) : add_foreign(p, &s));
    TRY(add_shards(p, &s));
out:
    shards_fini(&s);
    return status;
}
