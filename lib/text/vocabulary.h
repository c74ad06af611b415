/* vocabulary.h - learning a vocabulary from text
 *
 *   source -> pieces with their counts (count.c) -> merges of pairs (train_bpe.c), or words
 *   by their counts (vocabulary.c) -> tokenizer */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "base/arena.h"
#include "base/hash.h"
#include "text/text.h"

/* ---- tallies: distinct pieces of text, each with its count (count.c) */

struct piece {
    const char *at;
    int64_t count;
    uint32_t bytes;
    uint32_t hash;
};

/* The pieces of one range of hash values. Threads fill different shards at the same time. */
struct tally_shard {
    struct piece *pieces; /* in the order in which they were first met */
    int64_t count, capacity;
    struct hash table; /* of pieces */
    size_t bytes;      /* of all pieces */
    struct arena copies;
};

enum { TALLY_SHARDS = 32 };

struct tally {
    struct tally_shard shards[TALLY_SHARDS];
};

void tally_fini(struct tally *t); /* start from {0} */

/* Counts a piece, which is borrowed. */
alibi_status tally_add(struct tally *t, const char *at, size_t bytes);
/* Adds one shard of `from`; pieces that are new are copied. */
alibi_status tally_merge(struct tally *t, const struct tally *from, int shard);

int64_t tally_count(const struct tally *t);
size_t tally_bytes(const struct tally *t);

/* All pieces as one array, borrowed from the tally (mem_free the array). */
alibi_status tally_list(const struct tally *t, struct piece **out, int64_t *count);

/* ---- counting and learning */

/* How many distinct pieces are kept. If a block exceeds either limit, the rarest are dropped until
 * half of both is free. So memory is bounded for any text, and the counts of frequent pieces are
 * exact or nearly so. */
struct tally_limits {
    int64_t pieces;
    size_t bytes;       /* of all pieces together */
    size_t block_bytes; /* text read at a time */
};
extern const struct tally_limits tally_limits_usual;

/* Counts the pieces of all documents: those that the pattern cuts, or, if it is NULL, words between
 * white space. */
alibi_status count_pieces(struct tally *t, struct source *source, const struct pattern *pattern,
                          const struct tally_limits *limits, const struct alibi_call *call);

/* min_count is at least 1, vocab within VOCAB_BPE_MIN..VOCAB_BPE_MAX. The tally is emptied
 * to free its memory. The caller sets the splits of the result. */
enum { VOCAB_BPE_MIN = 257, VOCAB_BPE_MAX = 1 << 20, VOCAB_BPE_USUAL = 32000 };
alibi_status train_bpe(struct bpe_file **out, struct tally *tally, int64_t vocab, int64_t min_count,
                       const struct alibi_call *call);

/* alibi_tokenizer_train() with other limits. */
alibi_status vocabulary_train(alibi_tokenizer **out, const struct alibi_vocabulary *how,
                              const char *const *paths, int count,
                              const struct alibi_reading *reading,
                              const struct tally_limits *limits, const struct alibi_call *call);

#endif
