/* unigram.c - the loss of a model that knows only the frequency of each token
 *
 *   p_v = (c_v + 1) / (sum c + V)      c_v the count of token v in the training split
 *   nll = - sum_v s_v ln p_v / sum s   s_v its count among the scored tokens */
#include <math.h>

#include "eval/eval.h"

/* A large training split is not counted as a whole: this many tokens, in blocks spread over it, are
 * enough for the frequencies of any vocabulary, and take a fraction of a second. */
enum { COUNTED = 1 << 24, COUNTED_BLOCK = 1 << 12 };

static void count_blocks(struct span span, const struct blocks *b, int64_t *counts)
{
    int32_t ids[COUNTED_BLOCK];

    for (int64_t k = 0; k < b->count; k++) {
        int64_t from = blocks_start(b, k) + 1, end = from + b->size;

        for (int64_t some; from < end; from += some) {
            some = end - from < COUNTED_BLOCK ? end - from : COUNTED_BLOCK;
            span_read(span, from, some, ids);
            for (int64_t i = 0; i < some; i++)
                counts[ids[i]]++;
        }
    }
}

alibi_status alibi_corpus_unigram(const alibi_corpus *corpus, enum alibi_split split,
                                  const struct alibi_eval *eval, double *nll)
{
    alibi_status status;
    struct span train = corpus_span(corpus, ALIBI_TRAIN), span = corpus_span(corpus, split);
    int64_t V = alibi_tokenizer_vocab(corpus_tokenizer(corpus)), *seen = NULL, *scored = NULL;
    struct blocks counted, blocks;
    double sum = 0;

    if (train.count < 2 || span.count < 2)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has %lld tokens to count and %lld to score; frequencies take at least 2",
                    corpus_name(corpus), (long long)train.count, (long long)span.count);
    counted = blocks_of(train.count - 1, COUNTED, COUNTED_BLOCK, false);
    blocks = eval_blocks(span, eval);
    TRY(NEW_ZERO_ARRAY(&seen, V, "counts of tokens"));
    TRY(NEW_ZERO_ARRAY(&scored, V, "counts of tokens"));
    count_blocks(train, &counted, seen);
    count_blocks(span, &blocks, scored);
    for (int64_t v = 0; v < V; v++)
        sum -= (double)scored[v] *
               log((double)(seen[v] + 1) / (double)(counted.count * counted.size + V));
    *nll = sum / (double)(blocks.count * blocks.size);
out:
    mem_free(seen);
    mem_free(scored);
    return status;
}
