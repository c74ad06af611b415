/* loader.c - batches, the next one read while this one is used
 *
 * There are two places for a batch. One is lent to the caller; into the other a thread reads the
 * batch after it, so that a page of a mapped file that is still on the disk keeps nobody waiting. A
 * batch is a function of its number, so this changes no result. */
#include "text/text.h"

struct loader {
    struct batches batches;
    struct worker *worker;
    struct slot {
        const struct batches *batches;
        int32_t *tokens, *targets; /* [batch, length] */
        int64_t number;            /* of what is in it; -1: nothing */
    } slots[2];
    int lent; /* the other one is the worker's */
};

static alibi_status read_batch(void *user)
{
    struct slot *p = user;

    batches_read(p->batches, p->number, p->tokens, p->targets);
    return ALIBI_OK;
}

static alibi_status slot_init(struct slot *p, const struct batches *b)
{
    size_t tokens;

    p->batches = b;
    p->number = -1;
    if (!size_multiply(&tokens, (size_t)b->batch, (size_t)b->length) || tokens > INT64_MAX)
        return fail(ALIBI_MEMORY, "a batch of %lld x %lld tokens does not fit", (long long)b->batch,
                    (long long)b->length);
    TRY_RETURN(NEW_ARRAY(&p->tokens, (int64_t)tokens, "a batch of tokens"));
    return NEW_ARRAY(&p->targets, (int64_t)tokens, "a batch of targets");
}

alibi_status loader_new(struct loader **out, const struct batches *b)
{
    alibi_status status;
    struct loader *l = NULL;

    TRY(NEW_ZERO_ARRAY(&l, 1, "a loader"));
    l->batches = *b;
    for (int i = 0; i < 2; i++)
        TRY(slot_init(&l->slots[i], &l->batches));
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

alibi_status loader_get(struct loader *l, int64_t number, const int32_t **tokens,
                        const int32_t **targets)
{
    struct slot *next = &l->slots[!l->lent], *other = &l->slots[l->lent];

    TRY_RETURN(worker_wait(l->worker));
    if (next->number != number) {
        next->number = number;
        TRY_RETURN(read_batch(next));
    }
    l->lent = !l->lent;
    other->number = number + 1;
    worker_start(l->worker, read_batch, other);
    *tokens = next->tokens;
    *targets = next->targets;
    return ALIBI_OK;
}
