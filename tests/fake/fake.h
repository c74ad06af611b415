/* fake.h - what the libraries share that stand in for a GPU and for NCCL */
#ifndef FAKE_H
#define FAKE_H

#include "ops/tensor.h"

/* Work in a stream. run: does what it can; true: it is complete. */
struct fake_work {
    bool (*run)(const struct fake_work *w);
    bool exchange; /* it may never be complete */
    struct tensor to, from, other;
};

/* A stream of the GPU that is not there. Work is done in its order, and as late as it can be: when
 * somebody asks whether it is complete, or waits for it. */
enum { FAKE_QUEUE = 1024 };
struct fake_stream {
    bool follows;         /* the device's work so far */
    int64_t queued, done; /* pieces of work, counted */
    struct fake_work work[FAKE_QUEUE];
};

/* Does what was queued before number `end`; true: all of it is complete. */
static inline bool fake_progress(struct fake_stream *s, int64_t end)
{
    while (s->done < end && s->work[s->done % FAKE_QUEUE].run(&s->work[s->done % FAKE_QUEUE]))
        s->done++;
    return s->done >= end;
}

/* false: CUDA would make the host wait, for an exchange that may never end. */
static inline bool fake_queue(struct fake_stream *s, struct fake_work work)
{
    while (s->queued == s->done + FAKE_QUEUE && !s->work[s->done % FAKE_QUEUE].exchange)
        (void)fake_progress(s, s->done + 1);
    if (s->queued == s->done + FAKE_QUEUE)
        return false;
    s->work[s->queued++ % FAKE_QUEUE] = work;
    return true;
}

#endif
