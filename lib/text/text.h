/* text.h - tokenizers, corpora, batches
 *
 *   files | generator -> corpus (documents -> tokens, three splits) -> span (a split's tokens) -> windows of L + 1 tokens
 *
 * At this level a token is a 32-bit id; how a corpus stores it is its own affair. */
#ifndef TEXT_H
#define TEXT_H

#include "base/base.h"

/* ---- tokenizer (tokenizer.c) */

/* Text to ids and back. The byte tokenizer has ids 0..255 for bytes and 256 for the end of a document. */
struct tokenizer;

alibi_status tokenizer_new_bytes(struct tokenizer **out);
alibi_status tokenizer_read(struct tokenizer **out, const char *bytes, size_t length, const char *path); /* tokenizer.json */
alibi_status tokenizer_write(const struct tokenizer *t, struct text *json);
void tokenizer_free(struct tokenizer *t);
int64_t tokenizer_vocab(const struct tokenizer *t);
int32_t tokenizer_end(const struct tokenizer *t); /* the end-of-document id */
/* Appends the ids of the text to ids (mem_free), *count of them. */
alibi_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, int32_t **ids, int64_t *count);
/* The bytes of one id, lent; end of document is no bytes. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *bytes);

/* ---- corpus (corpus.c; builtin.c writes the built-in one) */

/* One split: consecutive tokens, with the counts of the text they stand for. */
struct span {
    const struct alibi_corpus *corpus;
    int64_t first, count; /* tokens */
    int64_t documents, words, bytes;
};

struct span corpus_span(const alibi_corpus *c, enum alibi_split split);
const struct tokenizer *corpus_tokenizer(const alibi_corpus *c);
const char *corpus_name(const alibi_corpus *c);             /* for messages: the first file, or "built-in text" */
struct alibi_builtin corpus_builtin(const alibi_corpus *c); /* bytes == 0: it is not the built-in text */
uint32_t corpus_checksum(const alibi_corpus *c);            /* of all tokens: a resumed run must see the same text */

/* Tokens from..from+count-1 of the span. */
void span_read(struct span s, int64_t from, int64_t count, int32_t *ids);

/* Words and bytes of the text that tokens from..from+count-1 stand for (a word belongs to its first byte). */
void span_measure(struct span s, int64_t from, int64_t count, int64_t *words, int64_t *bytes);

/* A corpus of text already in memory, for tests. Each text is a document. */
alibi_status corpus_from_texts(alibi_corpus **out, const char *const *texts, int count);

/* The built-in text: about `bytes` bytes of documents written from `seed`, handed over one by one. */
alibi_status builtin_write(uint64_t seed, int64_t bytes, alibi_status (*document)(void *user, const char *text, size_t length),
                           void *user);

/* ---- batches (batches.c) */

/* Windows of length + 1 tokens; inputs are the first `length` of each, targets the last. In each epoch the span is cut into
 * windows from a fresh offset, and they come in a fresh order, both keyed by (seed, epoch): batch number n is a pure function of
 * n, so a resumed run needs its number and nothing else. */
struct batches {
    struct span span;
    int64_t length, batch;
    uint64_t seed;
};

/* ALIBI_BAD_INPUT if the span has fewer than length + 1 tokens. */
alibi_status batches_init(struct batches *b, struct span span, int64_t length, int64_t batch, uint64_t seed);
/* tokens, targets [batch, length] */
void batches_read(const struct batches *b, int64_t number, int32_t *tokens, int32_t *targets);

#endif
