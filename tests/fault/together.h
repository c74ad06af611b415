/* together.h - a run of several ranks, which are threads. Include in one file of a program. */
#ifndef TOGETHER_H
#define TOGETHER_H

#include <omp.h>

#include "ranks.h"
#include "training.h"

enum { TOGETHER = 3 };

struct together {
    struct site *site;
    const char *run;
    bool resume;
    alibi_status status[TOGETHER];
    char message[TOGETHER][512];
};

static inline void train_rank(alibi_comm *c, void *user)
{
    struct together *t = user;
    const struct site *p = t->site;
    int rank = comm_rank(c);
    struct alibi_device device = { .device.ops = ops_cpu(), .name = "cpu" };
    struct alibi_call call = { .comm = c };
    struct alibi_train_result result;

    omp_set_num_threads(1);     /* as the process that it is compared with */
    if (rank == 0 && p->call) { /* it speaks for all */
        call = *p->call;
        call.comm = c;
    }
    t->status[rank] = alibi_train(&device, &p->config, &p->training, p->corpus, t->run, t->resume,
                                  &result, &call);
    snprintf(t->message[rank], sizeof t->message[rank], "%s", alibi_error());
}

/* Trains with several ranks as p->call does with one process. All ranks end in the same way. */
static inline alibi_status train_together(struct site *p, const char *run, bool resume)
{
    struct together t = { .site = p, .run = run, .resume = resume };

    run_as_ranks(TOGETHER, train_rank, &t);
    for (int r = 1; r < TOGETHER; r++) {
        assert_int_equal(t.status[r], t.status[0]);
        if (t.status[0] != ALIBI_OK)
            assert_string_equal(t.message[r], t.message[0]);
    }
    return t.status[0] == ALIBI_OK ? ALIBI_OK : fail(t.status[0], "%s", t.message[0]);
}

/* A site whose runs have the same bytes for any number of ranks. */
static inline struct site *new_site_of_ranks(int64_t steps, int64_t save_every)
{
    struct site *p = new_site(steps, save_every);

    p->training.accumulate = TOGETHER;
    p->training.deterministic_sum = true;
    return p;
}

#endif
