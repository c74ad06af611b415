/* vocabulary.h - learning a vocabulary from text
 *
 *   source -> pieces with their counts (count.c) -> merges of pairs (train_bpe.c), or words
 *   (train_words.c) -> tokenizer */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "text/tally.h"
#include "text/text.h"

/* How many distinct pieces are kept. Past either limit, at the end of a block, the rarest are
 * dropped until half of both is free: memory is bounded whatever the text, and the counts of
 * frequent pieces are exact or nearly so. */
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

/* min_count is at least 1, vocab within VOCAB_BPE_MIN..VOCAB_BPE_MAX. The tally is given up on the
 * way; the splits of the result are left to the caller. */
enum { VOCAB_BPE_MIN = 257, VOCAB_BPE_MAX = 1 << 20, VOCAB_BPE_USUAL = 32000 };
alibi_status train_bpe(struct bpe_file **out, struct tally *tally, int64_t vocab, int64_t min_count,
                       const struct alibi_call *call);

/* Sorts the pieces. vocab 0: all. */
alibi_status train_words(alibi_tokenizer **out, struct piece *pieces, int64_t count, int64_t vocab,
                         int64_t min_count);

/* alibi_tokenizer_train() with limits of one's own. */
alibi_status vocabulary_train(alibi_tokenizer **out, const struct alibi_vocabulary *how,
                              const char *const *paths, int count,
                              const struct alibi_reading *reading,
                              const struct tally_limits *limits, const struct alibi_call *call);

#endif
