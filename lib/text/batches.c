/* batches.c - windows of a split in a shuffled order that is computed, not remembered
 *
 *   row r of batch n  is sample  s = n * batch + r
 *   epoch e = s / W,  its place within the epoch  i = s % W          W windows in every epoch
 *   window  w = permute_e(i),  its first token  offset_e + w * length
 *
 * A window has length + 1 tokens and shares its last one with the next window: that token is a
 * target here, an input there. The offset shifts every cut between windows from epoch to epoch. W
 * is the same for every offset, so that e is a division. */
#include "text/text.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The most windows that fit behind any offset in 0..length-1; in a span too short for that, the one
 * that fits. */
static int64_t windows_per_epoch(const struct batches *b)
{
    int64_t windows = (b->span.count - b->length) / b->length;

    return windows > 0 ? windows : 1;
}

static int64_t epoch_offset(const struct batches *b, int64_t epoch)
{
    int64_t spare = b->span.count - 1 - windows_per_epoch(b) * b->length;
    uint64_t offsets = (uint64_t)smaller(b->length - 1, spare) + 1;

    return (int64_t)random_below(b->seed, RANDOM_STREAM(RANDOM_SHUFFLE, 2 * epoch), 0, offsets);
}

static int64_t sample_start(const struct batches *b, int64_t sample)
{
    int64_t windows = windows_per_epoch(b);
    int64_t epoch = sample / windows;
    uint64_t stream = RANDOM_STREAM(RANDOM_SHUFFLE, 2 * epoch + 1);
    uint64_t window =
        random_permute(b->seed, stream, (uint64_t)(sample % windows), (uint64_t)windows);

    return epoch_offset(b, epoch) + (int64_t)window * b->length;
}

alibi_status batches_init(struct batches *b, struct span span, int64_t length, int64_t batch,
                          uint64_t seed)
{
    if (length < 1 || batch < 1)
        return fail(ALIBI_USAGE, "a batch of %lld windows of %lld tokens: both must be at least 1",
                    (long long)batch, (long long)length);
    if (span.count - 1 < length)
        return fail(
            ALIBI_BAD_INPUT,
            "'%s': the training text has %lld tokens, a window needs %llu (train length %lld)",
            corpus_name(span.corpus), (long long)span.count, (unsigned long long)length + 1,
            (long long)length);
    *b = (struct batches){ .span = span, .length = length, .batch = batch, .seed = seed };
    return ALIBI_OK;
}

void batches_read(const struct batches *b, int64_t number, int32_t *tokens, int32_t *targets)
{
    for (int64_t row = 0; row < b->batch; row++) {
        int64_t start = sample_start(b, number * b->batch + row);

        span_read(b->span, start, b->length, tokens + row * b->length);
        span_read(b->span, start + 1, b->length, targets + row * b->length);
    }
}
