/* channel.c - flat buffers of the ranks: who owns which block, and how blocks are exchanged
 *
 * Sums are made where they are needed: each rank receives its shard of all ranks and adds in their
 * order. That takes as many bytes on the wire as a ring, and the order does not depend on the
 * topology.
 *
 * An exchange has a row of words for each rank, on the device: numbers are packed into the rows of
 * `send`, converted to the type of the wire, and unpacked or added from the rows of `receive`.
 *
 * With MPI there is one exchange at a time, and if the device has its own memory, the rows pass
 * through the host. With NCCL all of this is queued in a separate stream (nccl.c): the exchanges
 * use the same rows one after the other, and the host waits for none of them before
 * channel_settle(). */
#include <string.h>

#include "comm/ranks.h"

/* Words of all rows together. A GPU has the memory for more, and work of its own that fewer
 * exchanges disturb less: so a layer of 8M parameters is one. */
enum { STAGING = 1 << 22, STAGING_OF_GPU = 1 << 23 };

struct channel {
    alibi_comm *comm;
    struct device *device;
    enum dtype wire; /* of gradients */
    int rank, size;
    int stride;                        /* words of a row */
    void *send, *receive;              /* [size][stride], on the device */
    float *host_send, *host_receive;   /* the same; NULL: the host's memory is the device's */
    int *send_counts, *receive_counts; /* [size]: words of a row that are used */
    struct nccl *nccl;                 /* NULL: by MPI */
    struct tensor pending; /* what the last exchange is added to; absent: that was done */
    bool fresh;            /* the sum of it begins there */
};

/* ---- blocks and shards */

/* Elements of a block: equal, and such that vectors of any width begin and end with it. */
static int64_t block_length(int64_t span)
{
    int64_t each = (span + COMM_BLOCKS - 1) / COMM_BLOCKS;

    each = (each + COMM_ALIGN - 1) / COMM_ALIGN * COMM_ALIGN;
    return each > 0 ? each : COMM_ALIGN;
}

struct range comm_block(int64_t span, int block)
{
    int64_t length = block_length(span), from = block * length, to = from + length;

    from = from < span ? from : span;
    to = to < span ? to : span;
    return (struct range){ from, to - from };
}

/* How many numbers of a rank's shard are before `at` in the buffer. */
static int64_t before(int64_t span, int rank, int size, int64_t at)
{
    int64_t length = block_length(span), block = at / length;
    int64_t whole = block > rank ? (block - rank - 1) / size + 1 : 0;

    return whole * length + (block % size == rank ? at % length : 0);
}

/* Where number `from` of a rank's shard is in the buffer, and how many of it follow there. */
static struct range stretch(int64_t span, int rank, int size, int64_t from)
{
    int64_t length = block_length(span), block = from / length * size + rank;
    int64_t first = block * length + from % length, end = (block + 1) * length;

    end = size == 1 || end > span ? span : end;
    return (struct range){ first, end - first };
}

int comm_owner(const alibi_comm *c, int64_t span, int64_t at, int64_t *count)
{
    int64_t length = block_length(span), end = (at / length + 1) * length;

    *count = (comm_size(c) == 1 || end > span ? span : end) - at;
    return (int)(at / length % comm_size(c));
}

int64_t comm_shard(const alibi_comm *c, int64_t span, int64_t at)
{
    return before(span, comm_rank(c), comm_size(c), at);
}

struct range comm_stretch(const alibi_comm *c, int64_t span, int64_t from)
{
    return stretch(span, comm_rank(c), comm_size(c), from);
}

/* ---- opening */

static int row_words(bool gpu, int ranks)
{
    return (gpu ? STAGING_OF_GPU : STAGING) / ranks;
}

size_t channel_bytes(const struct device *dev, int ranks)
{
    return 2 * (size_t)ranks * (size_t)row_words(dev->ops->traits.own_memory, ranks) *
           sizeof(float);
}

static alibi_status new_rows(struct channel *ch)
{
    static const char what[] = "numbers on their way between ranks";
    struct device *dev = ch->device;
    int64_t words = (int64_t)ch->size * ch->stride;
    size_t bytes = (size_t)words * sizeof(float);

    TRY_RETURN(NEW_ZERO_ARRAY(&ch->send_counts, ch->size, "the counts of ranks"));
    TRY_RETURN(NEW_ZERO_ARRAY(&ch->receive_counts, ch->size, "the counts of ranks"));
    TRY_RETURN(dev->ops->buffer_new(dev, &ch->send, bytes, what));
    TRY_RETURN(dev->ops->buffer_new(dev, &ch->receive, bytes, what));
    /* A row of an odd number of bf16 ends with one that nobody has written. */
    TRY_RETURN(dev->ops->fill(dev, tensor_1(ch->send, DTYPE_F32, words), 0.0));
    if (!dev->ops->traits.own_memory)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&ch->host_send, words, what));
    return NEW_ARRAY(&ch->host_receive, words, what);
}

/* GPUs are connected by NCCL if that is possible, or demanded. */
static alibi_status connect_gpus(struct channel *ch, int by, const struct alibi_call *call)
{
    alibi_status status;

    if (by == ALIBI_COMM_MPI || (by == ALIBI_COMM_AUTO && !ch->device->ops->link))
        return ALIBI_OK;
    status = nccl_new(&ch->nccl, ch->comm, ch->device, ch->send);
    if (status != ALIBI_DEVICE && status != ALIBI_USAGE)
        return status;
    if (by == ALIBI_COMM_NCCL)
        return fail(status, "%s; or use --comm mpi", alibi_error());
    ch->comm->agreed = false; /* that was no failure of the work */
    call_note(call, "data passes through the host's memory: %s", alibi_error());
    return ALIBI_OK;
}

alibi_status channel_new(struct channel **out, alibi_comm *c, struct device *dev, enum dtype wire,
                         int by, const struct alibi_call *call)
{
    struct channel *ch = NULL;
    bool host = !dev->ops->traits.own_memory; /* with a CPU among the ranks all have its rows */
    alibi_status status;

    TRY(comm_any(c, &host));
    status = NEW_ZERO_ARRAY(&ch, 1, "a channel between ranks");
    if (status == ALIBI_OK) {
        *ch = (struct channel){ .comm = c,
                                .device = dev,
                                .wire = wire,
                                .rank = comm_rank(c),
                                .size = comm_size(c),
                                .stride = row_words(!host, comm_size(c)) };
        status = new_rows(ch);
    }
    TRY(comm_agree(c, status));
    TRY(connect_gpus(ch, by, call));
    *out = ch;
    ch = NULL;
out:
    channel_free(ch);
    return status;
}

void channel_free(struct channel *ch)
{
    if (ch == NULL)
        return;
    nccl_free(ch->nccl); /* first: it waits until nobody uses the rows */
    ch->device->ops->buffer_free(ch->device, ch->send);
    ch->device->ops->buffer_free(ch->device, ch->receive);
    mem_free(ch->host_send);
    mem_free(ch->host_receive);
    mem_free(ch->send_counts);
    mem_free(ch->receive_counts);
    mem_free(ch);
}

/* ---- one exchange */

/* A row of `send` or `receive`, as numbers of a type. */
static struct tensor row(const struct channel *ch, void *rows, int rank, enum dtype type,
                         int64_t count)
{
    struct tensor all = tensor_1(rows, DTYPE_F32, (int64_t)ch->size * ch->stride);

    return tensor_1(tensor_at(all, (int64_t)rank * ch->stride), type, count);
}

int64_t channel_room(const struct channel *ch, enum dtype type)
{
    return (int64_t)ch->stride * (int64_t)sizeof(float) / (int64_t)dtype_bytes(type);
}

static int words(enum dtype type, int64_t count)
{
    return (int)(((size_t)count * dtype_bytes(type) + sizeof(float) - 1) / sizeof(float));
}

/* Begins an exchange of the counted words of each row; `to_all`: row 0 of `send` goes to all. */
static alibi_status begin(struct channel *ch, bool to_all)
{
    const struct ops *ops = ch->device->ops;
    bool staged = ch->host_send && !ch->nccl;
    const struct rows rows = { .send = staged ? ch->host_send : ch->send,
                               .receive = staged ? ch->host_receive : ch->receive,
                               .send_counts = ch->send_counts,
                               .receive_counts = ch->receive_counts,
                               .send_stride = to_all ? 0 : ch->stride,
                               .receive_stride = ch->stride };

    if (ch->nccl)
        return nccl_exchange(ch->nccl, &rows);
    for (int r = 0, done = 0; staged && r < ch->size && !(to_all && done); r++)
        if (ch->send_counts[r] > 0 && ++done)
            TRY_RETURN(
                ops->download(ch->device, ch->host_send + (int64_t)r * rows.send_stride,
                              row(ch, ch->send, to_all ? 0 : r, DTYPE_F32, ch->send_counts[r])));
    return wired(ch->comm, ch->comm->wire.exchange(&rows));
}

/* By NCCL, what is queued later follows the exchange. */
static alibi_status end(struct channel *ch)
{
    const struct ops *ops = ch->device->ops;

    if (ch->nccl)
        return ALIBI_OK;
    TRY_RETURN(wired(ch->comm, ch->comm->wire.wait()));
    for (int r = 0; ch->host_send && r < ch->size; r++)
        if (ch->receive_counts[r] > 0)
            TRY_RETURN(ops->upload(ch->device,
                                   row(ch, ch->receive, r, DTYPE_F32, ch->receive_counts[r]),
                                   ch->host_receive + (int64_t)r * ch->stride));
    return ALIBI_OK;
}

/* Around whatever belongs to an exchange: by NCCL, between these two it is queued in its stream. */
static alibi_status enter(struct channel *ch)
{
    return ch->nccl ? nccl_begins(ch->nccl) : ALIBI_OK;
}

static alibi_status leave(struct channel *ch, alibi_status status)
{
    alibi_status left = ch->nccl ? nccl_ends(ch->nccl) : ALIBI_OK;

    return status != ALIBI_OK ? status : left;
}

/* ---- rows that others fill (ranks.h) */

struct tensor channel_outgoing(struct channel *ch, int rank, enum dtype type, int64_t count)
{
    ch->send_counts[rank] = words(type, count);
    return row(ch, ch->send, rank, type, count);
}

struct tensor channel_incoming(struct channel *ch, int rank, enum dtype type, int64_t count)
{
    ch->receive_counts[rank] = words(type, count);
    return row(ch, ch->receive, rank, type, count);
}

alibi_status channel_exchange(struct channel *ch)
{
    alibi_status status;

    TRY_RETURN(enter(ch));
    status = begin(ch, false);
    if (status == ALIBI_OK)
        status = end(ch);
    TRY_RETURN(leave(ch, status));
    return channel_settle(ch);
}

/* ---- parts of flat buffers, in pieces of which a row has room for one */

static alibi_status copy(struct channel *ch, struct tensor to, struct tensor from)
{
    int64_t count = tensor_count(to);

    TRY_RETURN(ch->nccl ? nccl_call(ch->nccl) : ALIBI_OK);
    return ch->device->ops->copy(ch->device, tensor_4(to.data, to.type, 1, 1, 1, count),
                                 tensor_4(from.data, from.type, 1, 1, 1, count));
}

/* Part of a flat buffer of `span` numbers. */
struct flat_part {
    struct tensor numbers;
    struct range where;
    int64_t span;
};

/* The numbers of a rank's shard, counted in it, that piece `piece` of a part has. */
static struct range piece_of(const struct channel *ch, const struct flat_part *part, int64_t piece,
                             int rank, enum dtype type)
{
    int64_t end = part->where.first + part->where.count, most = channel_room(ch, type);
    int64_t first = before(part->span, rank, ch->size, part->where.first) + piece * most;
    int64_t left = before(part->span, rank, ch->size, end) - first;

    return (struct range){ first, left < 0 ? 0 : left < most ? left : most };
}

/* Whether some rank has numbers in that piece. */
static bool has_piece(const struct channel *ch, const struct flat_part *part, int64_t piece,
                      enum dtype type)
{
    for (int r = 0; r < ch->size; r++)
        if (piece_of(ch, part, piece, r, type).count > 0)
            return true;
    return false;
}

/* Numbers `some` of a rank's shard from their places in the part to a row, or back. */
static alibi_status copy_row(struct channel *ch, struct tensor row, const struct flat_part *part,
                             int rank, struct range some, bool back)
{
    struct range s;

    for (int64_t done = 0; done < some.count; done += s.count) {
        struct tensor packed, there;

        s = stretch(part->span, rank, ch->size, some.first + done);
        s.count = s.count < some.count - done ? s.count : some.count - done;
        packed = vector_part(row, done, s.count);
        there = vector_part(part->numbers, s.first - part->where.first, s.count);
        TRY_RETURN(copy(ch, back ? there : packed, back ? packed : there));
    }
    return ALIBI_OK;
}

/* With several ranks, none sends to itself: its own row stays where it was packed. */
static bool stays(const struct channel *ch, int rank)
{
    return rank == ch->rank && ch->size > 1;
}

/* The row of a rank when it has come. */
static struct tensor arrived(const struct channel *ch, int rank, enum dtype type, int64_t count)
{
    return row(ch, stays(ch, rank) ? ch->send : ch->receive, rank, type, count);
}

/* Begins to send the piece of each rank's shard to that rank. */
static alibi_status send_pieces(struct channel *ch, const struct flat_part *part, int64_t piece)
{
    enum dtype type = ch->wire;
    int mine = words(type, piece_of(ch, part, piece, ch->rank, type).count);

    for (int r = 0; r < ch->size; r++) {
        struct range some = piece_of(ch, part, piece, r, type);

        ch->send_counts[r] = stays(ch, r) ? 0 : words(type, some.count);
        ch->receive_counts[r] = stays(ch, r) ? 0 : mine;
        TRY_RETURN(copy_row(ch, row(ch, ch->send, r, type, some.count), part, r, some, false));
    }
    return begin(ch, false);
}

/* ---- sums */

/* The sums that wait become themselves, or if they are fresh 0, plus the received rows, in the
 * order of ranks. They are not set to the first row: 0 + -0 is 0. */
static alibi_status add_pending(struct channel *ch)
{
    struct device *dev = ch->device;
    struct tensor sum = ch->pending;
    int64_t count = tensor_count(sum), most = channel_room(ch, DTYPE_F32);

    if (!sum.data)
        return ALIBI_OK;
    ch->pending = tensor_none();
    TRY_RETURN(end(ch));
    if (ch->fresh && count > 0) {
        TRY_RETURN(ch->nccl ? nccl_call(ch->nccl) : ALIBI_OK);
        TRY_RETURN(dev->ops->fill(dev, sum, 0.0));
    }
    for (int r = 0; r < ch->size; r++) {
        struct tensor from = arrived(ch, r, ch->wire, count);

        for (int64_t i = 0; i < count; i += most) {
            int64_t some = count - i < most ? count - i : most;
            struct tensor to = vector_part(sum, i, some), term = vector_part(from, i, some);

            if (ch->wire != DTYPE_F32) { /* the other row of this rank is free */
                void *rows = stays(ch, ch->rank) ? ch->receive : ch->send;
                struct tensor wide = row(ch, rows, ch->rank, DTYPE_F32, some);
                TRY_RETURN(copy(ch, wide, term));
                term = wide;
            }
            TRY_RETURN(ch->nccl ? nccl_call(ch->nccl) : ALIBI_OK);
            TRY_RETURN(dev->ops->residual_forward(dev, to, to, term, (struct dropout){ 0 }));
        }
    }
    return ALIBI_OK;
}

alibi_status channel_settle(struct channel *ch)
{
    return ch->nccl ? nccl_wait(ch->nccl) : add_pending(ch);
}

/* By MPI numbers are packed when channel_reduce() returns. */
alibi_status channel_release(struct channel *ch)
{
    return ch->nccl ? nccl_packed(ch->nccl) : ALIBI_OK;
}

/* By NCCL the sums follow the exchange in its stream; by MPI they wait until somebody needs them,
 * so that the exchange passes meanwhile. */
alibi_status channel_reduce(struct channel *ch, struct tensor sums, bool fresh, int64_t span,
                            struct tensor numbers, struct range where)
{
    const struct flat_part part = { numbers, where, span };

    for (int64_t piece = 0; has_piece(ch, &part, piece, ch->wire); piece++) {
        struct range mine = piece_of(ch, &part, piece, ch->rank, ch->wire);
        alibi_status status;

        TRY_RETURN(add_pending(ch));
        TRY_RETURN(enter(ch));
        status = send_pieces(ch, &part, piece);
        if (status == ALIBI_OK) {
            ch->pending = vector_part(sums, mine.first, mine.count);
            ch->fresh = fresh;
        }
        if (status == ALIBI_OK && ch->nccl)
            status = add_pending(ch);
        TRY_RETURN(leave(ch, status));
    }
    return ALIBI_OK;
}

/* ---- copies */

static alibi_status gather_piece(struct channel *ch, const struct flat_part *part, int64_t piece)
{
    enum dtype type = part->numbers.type;
    struct range mine = piece_of(ch, part, piece, ch->rank, type);

    TRY_RETURN(copy_row(ch, row(ch, ch->send, 0, type, mine.count), part, ch->rank, mine, false));
    for (int r = 0; r < ch->size; r++) {
        int64_t theirs = piece_of(ch, part, piece, r, type).count;
        ch->send_counts[r] = r != ch->rank ? words(type, mine.count) : 0;
        ch->receive_counts[r] = r != ch->rank ? words(type, theirs) : 0;
    }
    TRY_RETURN(begin(ch, true));
    TRY_RETURN(end(ch));
    for (int r = 0; r < ch->size; r++) {
        struct range some = piece_of(ch, part, piece, r, type);
        if (r != ch->rank)
            TRY_RETURN(
                copy_row(ch, row(ch, ch->receive, r, type, some.count), part, r, some, true));
    }
    return ALIBI_OK;
}

alibi_status channel_all_gather(struct channel *ch, int64_t span, struct tensor numbers,
                                int64_t first)
{
    const struct flat_part part = { numbers, { first, tensor_count(numbers) }, span };

    TRY_RETURN(channel_settle(ch));
    for (int64_t piece = 0; ch->size > 1 && has_piece(ch, &part, piece, numbers.type); piece++) {
        TRY_RETURN(enter(ch));
        TRY_RETURN(leave(ch, gather_piece(ch, &part, piece)));
    }
    return channel_settle(ch);
}

/* Gives all ranks the numbers `some` of rank 0's values: *at is where they are in this process. */
static alibi_status share_values(struct channel *ch, const float *values, struct range some,
                                 float **at)
{
    *at = ch->host_receive ? ch->host_receive : ch->receive;
    if (ch->rank == 0)
        memcpy(*at, values + some.first, (size_t)some.count * sizeof **at);
    return comm_broadcast(ch->comm, *at, (size_t)some.count * sizeof **at);
}

alibi_status channel_broadcast(struct channel *ch, struct tensor flat, const float *values)
{
    struct range some = { 0 };
    int64_t count = tensor_count(flat);
    float *at;

    TRY_RETURN(channel_settle(ch));
    for (; some.first < count; some.first += some.count) {
        some.count = count - some.first < ch->stride ? count - some.first : ch->stride;
        TRY_RETURN(share_values(ch, values, some, &at));
        TRY_RETURN(
            ch->device->ops->upload(ch->device, vector_part(flat, some.first, some.count), at));
    }
    return ALIBI_OK;
}

alibi_status channel_scatter(struct channel *ch, struct tensor shard, int64_t span,
                             const float *values)
{
    int64_t mine = tensor_count(shard), done = 0;
    struct range some = { 0 }, s;
    float *at;

    TRY_RETURN(channel_settle(ch));
    for (; some.first < span; some.first += some.count) {
        some.count = span - some.first < ch->stride ? span - some.first : ch->stride;
        TRY_RETURN(share_values(ch, values, some, &at));
        for (; done < mine; done += s.count) {
            int64_t left = mine - done, end = some.first + some.count;

            s = stretch(span, ch->rank, ch->size, done);
            if (s.first >= end)
                break;
            s.count = s.count < left ? s.count : left;
            s.count = s.count < end - s.first ? s.count : end - s.first;
            TRY_RETURN(ch->device->ops->upload(ch->device, vector_part(shard, done, s.count),
                                               at + s.first - some.first));
        }
    }
    return ALIBI_OK;
}

alibi_status channel_gather(struct channel *ch, struct tensor shard, int64_t span, int64_t from,
                            int64_t count, float *values)
{
    TRY_RETURN(channel_settle(ch));
    for (int64_t after = from + count; from < after; from += ch->stride) {
        int64_t some = after - from < ch->stride ? after - from : ch->stride;
        const struct flat_part part = { tensor_none(), { from, some }, span };
        struct range mine = piece_of(ch, &part, 0, ch->rank, DTYPE_F32);

        for (int r = 0; r < ch->size; r++) {
            ch->send_counts[r] = r == 0 ? (int)mine.count : 0;
            ch->receive_counts[r] =
                ch->rank == 0 ? (int)piece_of(ch, &part, 0, r, DTYPE_F32).count : 0;
        }
        TRY_RETURN(copy(ch, row(ch, ch->send, 0, DTYPE_F32, mine.count),
                        vector_part(shard, mine.first, mine.count)));
        TRY_RETURN(channel_exchange(ch));
        for (int r = 0; ch->rank == 0 && r < ch->size; r++) {
            struct range theirs = piece_of(ch, &part, 0, r, DTYPE_F32), s;
            struct tensor received = row(ch, ch->receive, r, DTYPE_F32, theirs.count);

            for (int64_t done = 0; done < theirs.count; done += s.count) {
                s = stretch(span, r, ch->size, theirs.first + done);
                s.count = s.count < theirs.count - done ? s.count : theirs.count - done;
                TRY_RETURN(ch->device->ops->download(ch->device, values + s.first - from,
                                                     vector_part(received, done, s.count)));
            }
        }
        values = ch->rank == 0 ? values + some : NULL;
    }
    return ALIBI_OK;
}
