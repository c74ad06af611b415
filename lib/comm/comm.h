/* comm.h - collective operations of the processes, the ranks, that work on one model
 *
 * All ranks call the same functions in the same order. Alone, without a launcher such as mpirun,
 * there is one rank, and the functions do nothing: then `c` may be NULL.
 *
 * Sums have a fixed order: the numbers of rank 0, 1, 2, ... A tensor is fp32 on the wire, and
 * passes through host memory in pieces of bounded size. The caller holds the device's lock. */
#ifndef COMM_H
#define COMM_H

#include "ops/ops.h"

int comm_rank(const alibi_comm *c);
int comm_size(const alibi_comm *c);
static inline bool comm_is_root(const alibi_comm *c)
{
    return comm_rank(c) == 0;
}
static inline alibi_comm *call_comm(const struct alibi_call *call)
{
    return call != NULL ? call->comm : NULL;
}

/* ---- agreement */

/* ALIBI_OK if all ranks have it. Otherwise all ranks get the failure of the first rank that has
 * one, and its message, which names the rank unless all have the same. */
alibi_status comm_agree(alibi_comm *c, alibi_status status);
/* *any becomes true if it is true at some rank. */
alibi_status comm_any(alibi_comm *c, bool *any);
/* ALIBI_USAGE if the bytes of some rank are not those of rank 0; `what` says what they are. */
alibi_status comm_same(alibi_comm *c, const void *bytes, size_t length, const char *what);

/* ---- small data of the host */

alibi_status comm_broadcast(alibi_comm *c, void *at, size_t bytes); /* from rank 0 */
/* Each number becomes the sum of those of all ranks. The order is not fixed: exact if at most one
 * rank has a number other than 0 there. */
alibi_status comm_sum(alibi_comm *c, double *values, int count);

/* ---- flat buffers: each rank has a shard, some blocks in a row
 *
 * The blocks are a function of the length of the buffer alone. So a number per block, such as its
 * sum of squares, is the same whatever the number of ranks. */

enum { COMM_BLOCKS = 512, COMM_ALIGN = 64 };

struct range {
    int64_t first, count; /* elements */
};

struct range comm_block(int64_t span, int block); /* count 0: there are fewer blocks */
struct range comm_shard(const alibi_comm *c, int64_t span);

/* The shard `sum` of this rank becomes the sum of that part of `flat` over all ranks, plus, if
 * `add`, what it was. `sum` may be that part of `flat`. */
alibi_status comm_reduce_scatter(alibi_comm *c, struct device *dev, struct tensor sum,
                                 struct tensor flat, bool add);
/* The parts of `flat` outside the own shard become what they are at their ranks. */
alibi_status comm_all_gather(alibi_comm *c, struct device *dev, struct tensor flat);
/* `flat`, or with `shard` the shard of each rank, becomes what `flat` is at rank 0. */
alibi_status comm_broadcast_tensor(alibi_comm *c, struct device *dev, struct tensor flat);
alibi_status comm_scatter(alibi_comm *c, struct device *dev, struct tensor shard,
                          struct tensor flat);

/* Reading shards at rank 0: there `values` [count] become the numbers from `from` on of a buffer of
 * `span` numbers, of which each rank has its shard. */
alibi_status comm_gather(alibi_comm *c, struct device *dev, struct tensor shard, int64_t span,
                         int64_t from, int64_t count, float *values);

#endif
