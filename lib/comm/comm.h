/* comm.h - collective operations of the processes, the ranks, that work on one model
 *
 * All ranks call the same functions in the same order. Alone, without a launcher such as mpirun,
 * there is one rank, and the functions do nothing: then `c` may be NULL. */
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
/* After a failure of a function that several ranks called: whether all have it. Otherwise nothing
 * is known about the others. */
bool comm_agreed(const alibi_comm *c);
/* *any becomes true if it is true at some rank. */
alibi_status comm_any(alibi_comm *c, bool *any);
/* ALIBI_USAGE if the bytes of some rank are not those of rank 0; `what` says what they are. */
alibi_status comm_same(alibi_comm *c, const void *bytes, size_t length, const char *what);

/* ---- small data of the host */

alibi_status comm_broadcast(alibi_comm *c, void *at, size_t bytes); /* from rank 0 */
/* all [size][bytes]: each rank has its row, and gets those of the others. */
alibi_status comm_collect(alibi_comm *c, void *all, size_t bytes);
/* Each number becomes the sum of those of all ranks. The order is not fixed: exact if at most one
 * rank has a number other than 0 there. */
alibi_status comm_sum(alibi_comm *c, double *values, int count);

/* ---- work of one's own, between two calls of the functions above
 *
 * A rank that ends it early says so, and the others, which ask now and then, learn it: otherwise
 * they would work on for hours before they meet it again. Neither function waits. */

alibi_status comm_tell(alibi_comm *c);
alibi_status comm_ask(alibi_comm *c, bool *told); /* *told becomes true if some rank has told */

/* ---- flat buffers: each rank has a shard, every N-th block
 *
 * The blocks are a function of the length of the buffer alone. So a number per block, such as its
 * sum of squares, is the same whatever the number of ranks. Rank r of N has the blocks r, r + N,
 * ...: whatever part of the buffer is exchanged, such as the gradients of a layer, all ranks have
 * about as much of it to receive. The numbers of a shard are in the order of the buffer. */

enum { COMM_BLOCKS = 512, COMM_ALIGN = 64 };

struct range {
    int64_t first, count; /* elements */
};

struct range comm_block(int64_t span, int block); /* count 0: there are fewer blocks */
/* The rank that has number `at`, and how many it has there in a row; alone all. */
int comm_owner(const alibi_comm *c, int64_t span, int64_t at, int64_t *count);
/* How many numbers of the own shard are before `at` in a buffer of `span`: all, if that is `at`. */
int64_t comm_shard(const alibi_comm *c, int64_t span, int64_t at);
/* Where number `from` of the own shard is in the buffer, and how many of it are there in a row. */
struct range comm_stretch(const alibi_comm *c, int64_t span, int64_t from);

/* ---- channels: the device of this rank, connected with those of the others (channel.c)
 *
 * A tensor passes in pieces of bounded size. Sums have a fixed order: the numbers of rank 0, 1, 2,
 * ... The caller holds the device's lock. */

struct channel;

/* wire: the type that gradients have between ranks, F32 or BF16; their sums are F32. by: enum
 * alibi_comm_by; a note says why GPUs are not connected by NCCL. The device outlives the channel.
 * All ranks call it, and all fail if one does. */
alibi_status channel_new(struct channel **out, alibi_comm *c, struct device *dev, enum dtype wire,
                         int by, const struct alibi_call *call);
void channel_free(struct channel *ch);
/* The device memory of a channel. */
size_t channel_bytes(const struct device *dev, int ranks);

/* The shard `sums` of a buffer of `span` numbers becomes itself plus what all ranks have in `part`,
 * which is `where` in the buffer; fresh: that alone, there. When it returns, numbers may still be
 * on their way: `part` may change after the next channel_release(), and the sums are complete after
 * the next call of any other function. */
alibi_status channel_reduce(struct channel *ch, struct tensor sums, bool fresh, int64_t span,
                            struct tensor part, struct range where);
alibi_status channel_release(struct channel *ch);
alibi_status channel_settle(struct channel *ch);
/* `numbers`, of any type, are those from `first` on of a buffer of `span` numbers. Those that are
 * not of the own shard become what they are at their ranks. */
alibi_status channel_all_gather(struct channel *ch, int64_t span, struct tensor numbers,
                                int64_t first);
/* The numbers of `flat`, or of the shard of a buffer of `span` numbers, become those that rank 0
 * has in `values`, in the host's memory; the other ranks do not look at theirs. `shard` may be the
 * beginning of a shard. */
alibi_status channel_broadcast(struct channel *ch, struct tensor flat, const float *values);
alibi_status channel_scatter(struct channel *ch, struct tensor shard, int64_t span,
                             const float *values);

/* Reading shards at rank 0: there `values` [count] become the numbers from `from` on of a buffer of
 * `span` numbers, of which each rank has its shard. */
alibi_status channel_gather(struct channel *ch, struct tensor shard, int64_t span, int64_t from,
                            int64_t count, float *values);

/* ---- sequences: each rank has a part (sequence.c)
 *
 * Part r is whole tiles of attention, as many as the others have or one less; the last tokens may
 * be less than a tile, and parts may be empty. */

struct sequence;

struct range sequence_part(int64_t length, int rank, int size);
/* All ranks call it, and all fail if one does. The device outlives the sequence. */
alibi_status sequence_new(struct sequence **out, alibi_comm *c, struct device *dev,
                          const struct alibi_call *call);
void sequence_free(struct sequence *s);

/* A pass over one sequence: begin, a fetch before the attention of each layer, end. The caller
 * holds the device's lock. */
void sequence_begin(struct sequence *s, int64_t length);
/* The queries, keys and values of a are those of the own part, as attention takes them; an empty
 * part has none. Its keys and values become those of the earlier parts, as far as they matter,
 * followed by those of the own part. Attention on them is within the bounds of a->skip.eps, except
 * that the log-sum-exp may err to both sides. Sums of gates [2, 1, G, Lq] begin with the part, and
 * get those of the keys before them; an empty part has their shape. In parts after the first,
 * first[2] become the first `sinks` keys and values. All are valid until the next call. y and lse
 * of a are overwritten. */
alibi_status sequence_fetch(struct sequence *s, struct attention_args *a, int64_t sinks,
                            struct tensor first[2]);
/* How the pass ended here; all ranks get the first failure. */
alibi_status sequence_end(struct sequence *s, alibi_status status);

/* Bytes of keys and values that this rank has sent, and would have sent if all ranks needed all
 * keys before theirs. */
struct sequence_traffic {
    int64_t sent, all;
};
struct sequence_traffic sequence_traffic(const struct sequence *s);

#endif
