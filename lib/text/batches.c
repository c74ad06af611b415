/* batches.c - windows of a split in a shuffled order that is computed, not stored
 *
 *   row r of batch n  is sample  s = n * batch + r
 *   epoch e = s / W,  its place within the epoch  i = s % W          W windows in every epoch
 *   window  w = permute_e(i),  its first token  offset_e + w * length
 *
 * A window has length + 1 tokens and shares its last one with the next window: that token is a
 * target here, an input there. With several spans, each block of MIX_BLOCK samples has as many
 * samples of each span as its share says, in an order that is shuffled block by block; then i and e
 * count the samples of that span. A task has windows of its own: its sample i is window i. The
 * offset shifts every cut between windows from epoch to epoch.
 * W is the same for every offset, so that e is a division. */
#include <math.h>

#include "text/tasks.h"

enum { MIX_BLOCK = 10000 };

/* The first token of sample number `sample` of a span, as stated at the top. W is the most windows
 * that fit after any offset in 0..length-1; in a span too short for that, the one that fits. */
static int64_t sample_start(const struct batches *b, struct span span, int64_t sample)
{
    int64_t fit = (span.count - b->length) / b->length, windows = fit > 0 ? fit : 1;
    int64_t epoch = sample / windows, spare = span.count - 1 - windows * b->length;
    int64_t most = spare < b->length - 1 ? spare : b->length - 1;
    uint64_t offset =
        random_below(b->seed, RANDOM_STREAM(RANDOM_SHUFFLE, 2 * epoch), 0, (uint64_t)most + 1);
    uint64_t window = random_permute(b->seed, RANDOM_STREAM(RANDOM_SHUFFLE, 2 * epoch + 1),
                                     (uint64_t)(sample % windows), (uint64_t)windows);

    return (int64_t)offset + (int64_t)window * b->length;
}

/* The part of a sample; *sample becomes its number among the samples of that part. */
static int sample_part(const struct batches *b, int64_t *sample)
{
    int64_t block = *sample / MIX_BLOCK, place, before = 0;
    int i = 0;

    if (b->parts == 1)
        return 0;
    place = (int64_t)random_permute(b->seed, RANDOM_STREAM(RANDOM_MIX, block),
                                    (uint64_t)(*sample % MIX_BLOCK), MIX_BLOCK);
    for (; place >= b->upto[i]; i++)
        before = b->upto[i];
    *sample = block * (b->upto[i] - before) + place - before;
    return i;
}

static alibi_status check_sizes(int64_t length, int64_t batch)
{
    if (length < 1 || batch < 1)
        return fail(ALIBI_USAGE, "a batch of %lld windows of %lld tokens: both must be at least 1",
                    (long long)batch, (long long)length);
    return ALIBI_OK;
}

alibi_status batches_init(struct batches *b, struct span span, int64_t length, int64_t batch,
                          uint64_t seed)
{
    TRY_RETURN(check_sizes(length, batch));
    if (span.count - 1 < length)
        return fail(
            ALIBI_BAD_INPUT,
            "'%s': the training text has %lld tokens, but a window needs %llu (train length %lld); "
            "give more text%s",
            corpus_name(span.corpus), (long long)span.count, (unsigned long long)length + 1,
            (long long)length, span.count > 1 ? ", or a smaller --train-length" : "");
    *b = (struct batches){
        .parts = 1, .spans = { span }, .length = length, .batch = batch, .seed = seed
    };
    return ALIBI_OK;
}

alibi_status batches_of_corpus(struct batches *b, const alibi_corpus *c, int64_t length,
                               int64_t batch, uint64_t seed)
{
    struct batches made = { .corpus = c };
    double share = 0;

    for (int i = 0; i < corpus_parts(c); i++) {
        struct span span = corpus_span(corpus_part(c, i), ALIBI_TRAIN);
        if (corpus_is_task(corpus_part(c, i))) {
            struct task_windows w = corpus_task_windows(c, i, TASK_TRAIN, length, seed);
            TRY_RETURN(check_sizes(length, batch));
            TRY_RETURN(task_check(&w));
        } else {
            TRY_RETURN(batches_init(b, span, length, batch, seed));
        }
        share += corpus_share(c, i);
        made.spans[i] = span;
        made.upto[i] = i + 1 == corpus_parts(c) ? MIX_BLOCK : llround(share * MIX_BLOCK);
        if (made.upto[i] <= (i > 0 ? made.upto[i - 1] : 0))
            return fail(ALIBI_USAGE, "'%s': its share of the windows is below 1 in %d",
                        corpus_name(corpus_part(c, i)), MIX_BLOCK);
    }
    made.parts = corpus_parts(c);
    made.length = length;
    made.batch = batch;
    made.seed = seed;
    *b = made;
    return ALIBI_OK;
}

void batches_read(const struct batches *b, int64_t number, int32_t *tokens, int32_t *targets)
{
    for (int64_t row = 0; row < b->batch; row++, tokens += b->length, targets += b->length) {
        int64_t sample = number * b->batch + row;
        int part = sample_part(b, &sample);

        if (b->corpus != NULL && corpus_is_task(corpus_part(b->corpus, part))) {
            struct task_windows w =
                corpus_task_windows(b->corpus, part, TASK_TRAIN, b->length, b->seed);
            struct task_answer answers[TASK_ANSWERS_MAX];
            int count = task_window(&w, sample, tokens, targets, answers);

            if (!task_traits(w.task).trains_all)
                task_keep_answers(&w, answers, count, targets);
        } else {
            int64_t start = sample_start(b, b->spans[part], sample);

            span_read(b->spans[part], start, b->length, tokens);
            span_read(b->spans[part], start + 1, b->length, targets);
        }
    }
}

/* ---- the loader: the next batch is read while this one is used
 *
 * There are two slots. The caller borrows one. A thread reads the next batch into the other, so
 * that the caller does not wait for pages of a mapped file. A batch is a function of its number, so
 * this changes no result. */

struct loader {
    struct batches batches;
    struct worker *worker;
    struct slot {
        const struct batches *batches;
        int32_t *tokens, *targets; /* [batch, length] */
        int64_t number;            /* of the batch in it; -1: none */
    } slots[2];
    int borrowed; /* the worker has the other one */
};

static alibi_status read_batch(void *user)
{
    struct slot *p = user;

    batches_read(p->batches, p->number, p->tokens, p->targets);
    return ALIBI_OK;
}

alibi_status loader_new(struct loader **out, const struct batches *b)
{
    alibi_status status;
    struct loader *l = NULL;
    size_t tokens;

    if (!size_multiply(&tokens, (size_t)b->batch, (size_t)b->length) || tokens > INT64_MAX)
        return fail(ALIBI_MEMORY, "a batch of %lld x %lld tokens does not fit into memory",
                    (long long)b->batch, (long long)b->length);
    TRY(NEW_ZERO_ARRAY(&l, 1, "a loader"));
    l->batches = *b;
    for (int i = 0; i < 2; i++) {
        struct slot *s = &l->slots[i];
        s->batches = &l->batches;
        s->number = -1;
        TRY(NEW_ARRAY(&s->tokens, (int64_t)tokens, "a batch of tokens"));
        TRY(NEW_ARRAY(&s->targets, (int64_t)tokens, "a batch of targets"));
    }
    TRY(worker_new(&l->worker));
    *out = l;
    l = NULL;
out:
    loader_free(l);
    return status;
}

void loader_free(struct loader *l)
{
    if (l == NULL)
        return;
    worker_free(l->worker); /* first: it may still be reading */
    for (int i = 0; i < 2; i++) {
        mem_free(l->slots[i].tokens);
        mem_free(l->slots[i].targets);
    }
    mem_free(l);
}

alibi_status loader_get(struct loader *l, int64_t number, int64_t next, const int32_t **tokens,
                        const int32_t **targets)
{
    struct slot *wanted = &l->slots[!l->borrowed], *other = &l->slots[l->borrowed];

    TRY_RETURN(worker_wait(l->worker));
    if (wanted->number != number) {
        wanted->number = number;
        TRY_RETURN(read_batch(wanted));
    }
    l->borrowed = !l->borrowed;
    other->number = next;
    worker_start(l->worker, read_batch, other);
    *tokens = wanted->tokens;
    *targets = wanted->targets;
    return ALIBI_OK;
}
