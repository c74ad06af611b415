/* ranks.h - ranks that are threads of this process, connected by memory. Include in one file of a
 * program. */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <pthread.h>

#include "check.h"
#include "comm/ranks.h"

enum { RANKS_MAX = 8 };

/* The data that each rank has handed over, between two meetings at the barrier. */
static struct {
    pthread_barrier_t barrier;
    void *rows[RANKS_MAX];
    struct rows exchanged[RANKS_MAX];
    int size;
    void (*act)(alibi_comm *c, void *user);
    void *user;
} hub;
static _Thread_local int own_rank;

static inline int hub_broadcast(void *at, int bytes)
{
    hub.rows[own_rank] = at;
    pthread_barrier_wait(&hub.barrier);
    if (own_rank > 0)
        memcpy(at, hub.rows[0], (size_t)bytes);
    pthread_barrier_wait(&hub.barrier);
    return ALIBI_OK;
}

static inline int hub_all_gather(void *all, int bytes)
{
    hub.rows[own_rank] = all;
    pthread_barrier_wait(&hub.barrier);
    for (int r = 0; r < hub.size; r++)
        if (r != own_rank)
            memcpy((char *)all + (size_t)r * (size_t)bytes,
                   (char *)hub.rows[r] + (size_t)r * (size_t)bytes, (size_t)bytes);
    pthread_barrier_wait(&hub.barrier);
    return ALIBI_OK;
}

static inline int hub_sum(double *values, int count)
{
    double *sums = calloc((size_t)count + 1, sizeof *sums);

    if (sums == NULL)
        abort();
    hub.rows[own_rank] = values;
    pthread_barrier_wait(&hub.barrier);
    for (int r = 0; r < hub.size; r++)
        for (int i = 0; i < count; i++)
            sums[i] += ((const double *)hub.rows[r])[i];
    pthread_barrier_wait(&hub.barrier);
    memcpy(values, sums, (size_t)count * sizeof *sums);
    free(sums);
    return ALIBI_OK;
}

static inline int hub_begin_exchange(const struct rows *rows)
{
    hub.exchanged[own_rank] = *rows;
    return ALIBI_OK;
}

static inline int hub_wait_for_exchange(void)
{
    const struct rows *mine = &hub.exchanged[own_rank];
    int status = ALIBI_OK;

    pthread_barrier_wait(&hub.barrier);
    for (int r = 0; r < hub.size; r++) {
        const struct rows *theirs = &hub.exchanged[r];
        int words = theirs->send_counts[own_rank];

        if (words != mine->receive_counts[r])
            status = ALIBI_IO;
        else
            memcpy((float *)mine->receive + (int64_t)r * mine->receive_stride,
                   (const float *)theirs->send + (int64_t)own_rank * theirs->send_stride,
                   (size_t)words * sizeof(float));
    }
    pthread_barrier_wait(&hub.barrier);
    return status;
}

static inline void *hub_thread(void *rank)
{
    static char hosts[RANKS_MAX][WIRE_HOST_MAX] = { "here", "here", "here", "here",
                                                    "here", "here", "here", "here" };
    int32_t statuses[RANKS_MAX];
    char(*messages)[WIRE_MESSAGE_MAX] = calloc(RANKS_MAX, sizeof *messages);
    alibi_comm c = { .wire = { .rank = *(int *)rank,
                               .size = hub.size,
                               .broadcast = hub_broadcast,
                               .all_gather = hub_all_gather,
                               .sum = hub_sum,
                               .exchange = hub_begin_exchange,
                               .wait = hub_wait_for_exchange },
                     .lost = -1,
                     .hosts = hosts,
                     .statuses = statuses,
                     .messages = messages };

    if (messages == NULL)
        abort();
    own_rank = c.wire.rank;
    hub.act(&c, hub.user);
    free(messages);
    return NULL;
}

/* Each rank calls act(), in which assertions of the test would end the process. */
static inline void run_as_ranks(int size, void (*act)(alibi_comm *c, void *user), void *user)
{
    pthread_t threads[RANKS_MAX];
    int ranks[RANKS_MAX];

    hub.size = size;
    hub.act = act;
    hub.user = user;
    assert_int_equal(pthread_barrier_init(&hub.barrier, NULL, (unsigned)size), 0);
    for (int r = 0; r < size; r++) {
        ranks[r] = r;
        assert_int_equal(pthread_create(&threads[r], NULL, hub_thread, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&hub.barrier);
}

#endif
