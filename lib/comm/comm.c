/* comm.c - the ranks: how they are found, how they agree, and how they share flat buffers
 *
 * Sums of flat buffers are made where they are needed: each rank receives its shard of all ranks
 * and adds in their order. That takes as many bytes on the wire as a ring, and its order does not
 * depend on the topology. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/wire.h"

#define MPI_LIBRARY "libalibi_mpi.so"

/* Numbers of a piece for all ranks together. */
enum { STAGING = 1 << 22 };

struct alibi_comm {
    struct wire wire;
    bool agreed;                       /* on a failure: all ranks end */
    char (*hosts)[WIRE_HOST_MAX];      /* [size] */
    int *send_counts, *receive_counts; /* [size] */
    int stride;                        /* numbers of a piece for one rank */
    float *send, *receive;             /* [size][stride] */
    int32_t *statuses;                 /* [size] */
};

int comm_rank(const alibi_comm *c)
{
    return c != NULL ? c->wire.rank : 0;
}

int comm_size(const alibi_comm *c)
{
    return c != NULL ? c->wire.size : 1;
}

/* What a function of the wire returned. */
static alibi_status wired(const alibi_comm *c, int status)
{
    if (status == ALIBI_OK)
        return ALIBI_OK;
    return fail_context((alibi_status)status, "rank %d on '%s'", c->wire.rank, c->wire.host);
}

/* ---- opening */

static void record_failure(int status, const char *message)
{
    fail((alibi_status)status, "%s", message);
}

/* The number of ranks that the launcher has started; 0: no launcher has started this process. */
static int64_t launched(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS" };
    bool by_launcher = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");

    for (size_t i = 0; by_launcher && i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && atoll(text) > 0)
            return atoll(text);
    }
    return by_launcher ? 1 : 0;
}

static alibi_status new_buffers(alibi_comm *c)
{
    int size = c->wire.size;

    c->stride = STAGING / size;
    TRY_RETURN(NEW_ZERO_ARRAY(&c->hosts, size, "the names of ranks"));
    TRY_RETURN(NEW_ZERO_ARRAY(&c->statuses, size, "the states of ranks"));
    TRY_RETURN(NEW_ZERO_ARRAY(&c->send_counts, size, "the counts of ranks"));
    TRY_RETURN(NEW_ZERO_ARRAY(&c->receive_counts, size, "the counts of ranks"));
    TRY_RETURN(NEW_ARRAY(&c->send, (int64_t)size * c->stride, "a piece of gradients"));
    return NEW_ARRAY(&c->receive, (int64_t)size * c->stride, "a piece of gradients");
}

static alibi_status connect(alibi_comm *c)
{
    static const struct wire_host host = { WIRE_INTERFACE, record_failure };
    wire_open_function *open = NULL;
    void *library;

    TRY_RETURN(module_load(&library, MPI_LIBRARY, true, "mpi.h (libopenmpi-dev)"));
    TRY_RETURN(module_symbol(&open, library, MPI_LIBRARY, WIRE_OPEN_SYMBOL));
    TRY_RETURN((alibi_status)open(&c->wire, &host));
    if (c->wire.size == 1)
        return ALIBI_OK;
    if (c->wire.size > COMM_BLOCKS)
        return fail(ALIBI_USAGE, "%d ranks: at most %d can train one model", c->wire.size,
                    COMM_BLOCKS);
    TRY_RETURN(new_buffers(c));
    memcpy(c->hosts[c->wire.rank], c->wire.host, WIRE_HOST_MAX);
    TRY_RETURN(wired(c, c->wire.all_gather(c->hosts, WIRE_HOST_MAX)));
    return comm_same(c, ALIBI_VERSION, sizeof ALIBI_VERSION, "version of alibi");
}

alibi_status alibi_comm_open(alibi_comm **out)
{
    alibi_status status = ALIBI_OK;
    alibi_comm *c = NULL;
    int64_t ranks = launched();

    TRY(NEW_ZERO_ARRAY(&c, 1, "a connection of ranks"));
    c->wire.size = 1;
    if (ranks > 0) {
        /* OpenMPI 4.1 does not always notice that a rank dies before all are connected, and then
         * waits for it without end. SIGALRM ends the process instead. */
        alarm((unsigned)(25 + ranks / 4));
        status = connect(c);
        alarm(0);
    }
    /* One rank needs no connection: a program that was built without MPI works under a launcher. */
    if (status == ALIBI_DEVICE && ranks == 1)
        status = ALIBI_OK;
    if (status == ALIBI_DEVICE)
        fail_context(status, "%lld processes were started to train one model", (long long)ranks);
    if (status != ALIBI_OK)
        goto out;
    *out = c;
    c = NULL;
out:
    alibi_comm_free(c, status);
    return status;
}

void alibi_comm_free(alibi_comm *c, alibi_status status)
{
    if (c == NULL)
        return;
    if (c->wire.close != NULL && (status == ALIBI_OK || c->agreed))
        c->wire.close();
    mem_free(c->hosts);
    mem_free(c->statuses);
    mem_free(c->send_counts);
    mem_free(c->receive_counts);
    mem_free(c->send);
    mem_free(c->receive);
    mem_free(c);
}

void alibi_comm_get_info(const alibi_comm *c, struct alibi_comm_info *info)
{
    *info = (struct alibi_comm_info){ .rank = comm_rank(c),
                                      .size = comm_size(c),
                                      .local_rank = c != NULL ? c->wire.local_rank : 0,
                                      .agreed = c != NULL && c->agreed };
}

/* ---- agreement */

/* The status of each rank in c->statuses, of the call that these functions share. */
static alibi_status tell_all(alibi_comm *c, int32_t mine)
{
    c->statuses[c->wire.rank] = mine;
    return wired(c, c->wire.all_gather(c->statuses, sizeof *c->statuses));
}

/* `message` is that of a failure. */
static alibi_status agree(alibi_comm *c, alibi_status status, const char *message)
{
    enum { MESSAGE = 1024 };
    int first = 0, size = comm_size(c), same = 0;
    char(*messages)[MESSAGE];

    if (size == 1)
        return status;
    TRY_RETURN(tell_all(c, (int32_t)status));
    while (first < size && c->statuses[first] == ALIBI_OK)
        first++;
    if (first == size)
        return ALIBI_OK;
    messages = (void *)c->receive; /* [size], which is less than a piece */
    snprintf(messages[c->wire.rank], MESSAGE, "%s", status != ALIBI_OK ? message : "");
    TRY_RETURN(wired(c, c->wire.all_gather(messages, MESSAGE)));
    c->agreed = true;
    while (same < size && strcmp(messages[same], messages[0]) == 0)
        same++;
    if (same == size)
        return fail((alibi_status)c->statuses[0], "%s", messages[0]);
    return fail((alibi_status)c->statuses[first], "rank %d on '%s': %s", first, c->hosts[first],
                messages[first]);
}

alibi_status comm_agree(alibi_comm *c, alibi_status status)
{
    return agree(c, status, alibi_error());
}

alibi_status comm_any(alibi_comm *c, bool *any)
{
    if (comm_size(c) == 1)
        return ALIBI_OK;
    TRY_RETURN(tell_all(c, *any));
    for (int r = 0; r < c->wire.size; r++)
        *any |= c->statuses[r] != 0;
    return ALIBI_OK;
}

alibi_status comm_same(alibi_comm *c, const void *bytes, size_t length, const char *what)
{
    if (comm_size(c) == 1)
        return ALIBI_OK;
    TRY_RETURN(tell_all(c, (int32_t)checksum(0, bytes, length)));
    for (int r = 1; r < c->wire.size; r++)
        if (c->statuses[r] != c->statuses[0]) {
            c->agreed = true;
            return fail(ALIBI_USAGE,
                        "rank %d on '%s' has another %s than rank 0 on '%s'; all ranks need the "
                        "same",
                        r, c->hosts[r], what, c->hosts[0]);
        }
    return ALIBI_OK;
}

alibi_status alibi_comm_agree(alibi_comm *c, alibi_status status, const char *message)
{
    return agree(c, status, message != NULL ? message : alibi_error());
}

/* ---- small data of the host */

alibi_status comm_broadcast(alibi_comm *c, void *at, size_t bytes)
{
    return comm_size(c) > 1 ? wired(c, c->wire.broadcast(at, (int)bytes)) : ALIBI_OK;
}

alibi_status comm_sum(alibi_comm *c, double *values, int count)
{
    return comm_size(c) > 1 ? wired(c, c->wire.sum(values, count)) : ALIBI_OK;
}

/* ---- flat buffers */

/* Elements of a block: equal, and such that vectors of any width begin and end with it. */
static int64_t block_length(int64_t span)
{
    int64_t each = (span + COMM_BLOCKS - 1) / COMM_BLOCKS;

    return (each + COMM_ALIGN - 1) / COMM_ALIGN * COMM_ALIGN;
}

static struct range blocks(int64_t span, int64_t first, int64_t end)
{
    int64_t length = block_length(span), from = first * length, to = end * length;

    from = from < span ? from : span;
    to = to < span ? to : span;
    return (struct range){ from, to - from };
}

struct range comm_block(int64_t span, int block)
{
    return blocks(span, block, block + 1);
}

static struct range shard_of(int64_t span, int rank, int size)
{
    int64_t length = block_length(span), count = length > 0 ? (span + length - 1) / length : 0;

    return blocks(span, count * rank / size, count * (rank + 1) / size);
}

struct range comm_shard(const alibi_comm *c, int64_t span)
{
    return shard_of(span, comm_rank(c), comm_size(c));
}

/* Numbers of the shard of `rank` in piece number `piece`; *first is where they begin in `flat`. */
static int piece_of(const alibi_comm *c, int64_t span, int rank, int64_t piece, int64_t *first)
{
    struct range s = shard_of(span, rank, c->wire.size);
    int64_t from = piece * c->stride, left = s.count - from;

    *first = s.first + from;
    return (int)(left <= 0 ? 0 : left < c->stride ? left : c->stride);
}

/* Whether some rank has numbers in that piece. */
static bool has_piece(const alibi_comm *c, int64_t span, int64_t piece)
{
    int64_t first;

    for (int r = 0; r < c->wire.size; r++)
        if (piece_of(c, span, r, piece, &first) > 0)
            return true;
    return false;
}

static alibi_status exchange(alibi_comm *c)
{
    return wired(
        c, c->wire.exchange(c->send, c->send_counts, c->receive, c->receive_counts, c->stride));
}

/* The piece of each rank's shard from `flat` to that rank. */
static alibi_status send_pieces(alibi_comm *c, struct device *dev, struct tensor flat,
                                int64_t piece, bool from_root)
{
    int64_t first, span = tensor_count(flat);
    int mine = piece_of(c, span, c->wire.rank, piece, &first);

    for (int r = 0; r < c->wire.size; r++) {
        int count = from_root && c->wire.rank > 0 ? 0 : piece_of(c, span, r, piece, &first);

        c->send_counts[r] = count;
        c->receive_counts[r] = from_root && r > 0 ? 0 : mine;
        if (count > 0)
            TRY_RETURN(dev->ops->download(dev, c->send + (int64_t)r * c->stride,
                                          vector_part(flat, first, count)));
    }
    return exchange(c);
}

/* sum [count] becomes itself plus the received pieces, in the order of ranks. */
static void add_pieces(const alibi_comm *c, float *sum, int count)
{
    for (int r = 0; r < c->wire.size; r++) {
        const float *from = c->receive + (int64_t)r * c->stride;

        for (int i = 0; i < count; i++)
            sum[i] += from[i];
    }
}

alibi_status comm_reduce_scatter(alibi_comm *c, struct device *dev, struct tensor sum,
                                 struct tensor flat, bool add)
{
    for (int64_t piece = 0; has_piece(c, tensor_count(flat), piece); piece++) {
        float *total = c->send; /* which is free again after the exchange */
        int64_t first;
        int count = piece_of(c, tensor_count(flat), c->wire.rank, piece, &first);
        struct tensor mine = vector_part(sum, piece * c->stride, count);

        TRY_RETURN(send_pieces(c, dev, flat, piece, false));
        if (count == 0)
            continue;
        memset(total, 0, (size_t)count * sizeof *total);
        if (add)
            TRY_RETURN(dev->ops->download(dev, total, mine));
        add_pieces(c, total, count);
        TRY_RETURN(dev->ops->upload(dev, mine, total));
    }
    return ALIBI_OK;
}

alibi_status comm_all_gather(alibi_comm *c, struct device *dev, struct tensor flat)
{
    int64_t first, span = tensor_count(flat);

    for (int64_t piece = 0; comm_size(c) > 1 && has_piece(c, span, piece); piece++) {
        int mine = piece_of(c, span, c->wire.rank, piece, &first);

        if (mine > 0)
            TRY_RETURN(dev->ops->download(dev, c->send, vector_part(flat, first, mine)));
        for (int r = 0; r < c->wire.size; r++) {
            c->send_counts[r] = mine;
            c->receive_counts[r] = piece_of(c, span, r, piece, &first);
            if (r > 0 && mine > 0)
                memcpy(c->send + (int64_t)r * c->stride, c->send, (size_t)mine * sizeof *c->send);
        }
        TRY_RETURN(exchange(c));
        for (int r = 0; r < c->wire.size; r++) {
            int count = piece_of(c, span, r, piece, &first);
            if (r != c->wire.rank && count > 0)
                TRY_RETURN(dev->ops->upload(dev, vector_part(flat, first, count),
                                            c->receive + (int64_t)r * c->stride));
        }
    }
    return ALIBI_OK;
}

alibi_status comm_broadcast_tensor(alibi_comm *c, struct device *dev, struct tensor flat)
{
    int64_t count = tensor_count(flat);

    for (int64_t from = 0; comm_size(c) > 1 && from < count; from += c->stride) {
        int64_t left = count - from, some = left < c->stride ? left : c->stride;
        struct tensor part = vector_part(flat, from, some);

        if (comm_is_root(c))
            TRY_RETURN(dev->ops->download(dev, c->send, part));
        TRY_RETURN(comm_broadcast(c, c->send, (size_t)some * sizeof *c->send));
        if (!comm_is_root(c))
            TRY_RETURN(dev->ops->upload(dev, part, c->send));
    }
    return ALIBI_OK;
}

alibi_status comm_scatter(alibi_comm *c, struct device *dev, struct tensor shard,
                          struct tensor flat)
{
    for (int64_t piece = 0; has_piece(c, tensor_count(flat), piece); piece++) {
        int64_t first;
        int count = piece_of(c, tensor_count(flat), c->wire.rank, piece, &first);

        TRY_RETURN(send_pieces(c, dev, flat, piece, true));
        if (count > 0)
            TRY_RETURN(
                dev->ops->upload(dev, vector_part(shard, piece * c->stride, count), c->receive));
    }
    return ALIBI_OK;
}

/* The part of a range that a rank has. */
static struct range overlap(struct range s, int64_t from, int64_t count)
{
    int64_t end = s.first + s.count < from + count ? s.first + s.count : from + count;

    from = s.first > from ? s.first : from;
    return (struct range){ from, end > from ? end - from : 0 };
}

alibi_status comm_gather(alibi_comm *c, struct device *dev, struct tensor shard, int64_t span,
                         int64_t from, int64_t count, float *values)
{
    struct range own = comm_shard(c, span);

    for (int64_t end = from + count; from < end; from += c->stride) {
        int64_t some = end - from < c->stride ? end - from : c->stride;
        struct range mine = overlap(own, from, some);

        for (int r = 0; r < c->wire.size; r++) {
            struct range s = overlap(shard_of(span, r, c->wire.size), from, some);
            c->send_counts[r] = r == 0 ? (int)mine.count : 0;
            c->receive_counts[r] = comm_is_root(c) ? (int)s.count : 0;
        }
        if (mine.count > 0)
            TRY_RETURN(dev->ops->download(dev, c->send,
                                          vector_part(shard, mine.first - own.first, mine.count)));
        TRY_RETURN(exchange(c));
        for (int r = 0; comm_is_root(c) && r < c->wire.size; r++) { /* shards are in order */
            memcpy(values, c->receive + (int64_t)r * c->stride,
                   (size_t)c->receive_counts[r] * sizeof *values);
            values += c->receive_counts[r];
        }
    }
    return ALIBI_OK;
}
