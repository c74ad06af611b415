/* nccl.c - rows of words between GPUs by NCCL, which is loaded at run time
 *
 * NCCL copies from one GPU's memory to another's, in a stream next to the device's own. The ranks
 * exchange NCCL's id through the wire. Only its functions for sending and receiving are used,
 * because the order of its sums depends on the topology; ours does not.
 *
 *   device   backward of layer 9 | backward of layer 8        | backward of layer 7     ...
 *   NCCL's                       | pack, exchange, add layer 9| pack, exchange, add layer 8
 *
 * The kernels that pack rows and add them run in NCCL's stream too, so the order of that stream is
 * sufficient. The host queues the work and continues: it stays ahead of the GPU.
 *
 * A kernel of NCCL waits for other ranks forever, and so would a host that waits for it. Therefore
 * NCCL runs in non-blocking mode; long operations are polled for completion, as in mpi.c, and
 * aborted if a rank is lost. The host must never call a function that waits for an exchange that
 * may not end:
 *
 *   - The device's own stream waits for none. A caller that reads a loss there waits for the
 *     backward pass alone. It follows NCCL's stream only after the host has seen that all work
 * there is done.
 *   - CUDA makes a host wait that queues more than about 1,024 pieces of work in a stream. So at
 *     most QUEUED of ours, and IN_FLIGHT of NCCL's, follow the last point that the stream is known
 *     to have passed.
 *   - cudaFree() waits for all streams. That leaves a gap in the first step, where scratch memory
 *     of the backward pass may still grow. */
#include <limits.h>
#include <sched.h>
#include <string.h>

#include "comm/ranks.h"

#define NCCL_LIBRARY "libnccl.so.2"

/* The former are exchanges: begun, and not known to be complete. They share their rows, so more
 * take no memory. So many pass a layer of 128M parameters in fp32: with fewer the host would wait
 * for the exchange of a layer that the GPU has just computed, and give it no work meanwhile. */
enum { IN_FLIGHT = 16, QUEUED = 512 };

/* As nccl.h has them. */
enum { NCCL_ID_BYTES = 128, NCCL_FLOAT32 = 7 };
enum { NCCL_SUCCESS, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7 };
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

/* The struct of version 2.14, the first with a non-blocking mode; later versions accept it. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int undefined; /* where later versions have more */
};

struct nccl {
    alibi_comm *comm;
    struct device *device;
    struct caller stream;   /* to meet the device's */
    struct caller inside;   /* the same, for work of ours in it: a workspace, of 0 bytes, says so */
    int64_t marked, passed; /* marks of the stream: set, and known to be passed */
    int64_t calls, known;   /* pieces of work in it: queued, and known to be complete */
    int64_t before[DEVICE_MARKS];       /* calls when the mark was set */
    void *connection;                   /* ncclComm_t */
    char (*places)[DEVICE_ADDRESS_MAX]; /* [size]: of the GPUs */
    double limit;                       /* seconds that anything may take */
    struct failure ended;               /* why there is no connection any more */

    int (*get_id)(struct nccl_id *id);
    int (*init)(void **connection, int ranks, struct nccl_id id, int rank,
                struct nccl_config *config);
    int (*async_error)(void *connection, int *state);
    int (*finalize)(void *connection);
    int (*destroy)(void *connection);
    int (*abort)(void *connection);
    int (*begin)(void);
    int (*end)(void);
    int (*send)(const void *from, size_t count, int type, int to, void *connection, void *stream);
    int (*receive)(void *to, size_t count, int type, int from, void *connection, void *stream);
    const char *(*error)(int result);
    const char *(*details)(void *connection);
};

static alibi_status check(const struct nccl *n, int result, const char *call)
{
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
        return ALIBI_OK;
    return fail(result == NCCL_REMOTE_ERROR ? ALIBI_IO : ALIBI_DEVICE,
                "NCCL failed in %s: %s (%s); NCCL_DEBUG=WARN tells more", call, n->error(result),
                n->details(n->connection));
}

static alibi_status load(struct nccl *n)
{
    const struct {
        void *function;
        const char *name;
    } symbols[] = {
        { &n->get_id, "ncclGetUniqueId" },
        { &n->init, "ncclCommInitRankConfig" },
        { &n->async_error, "ncclCommGetAsyncError" },
        { &n->finalize, "ncclCommFinalize" },
        { &n->destroy, "ncclCommDestroy" },
        { &n->abort, "ncclCommAbort" },
        { &n->begin, "ncclGroupStart" },
        { &n->end, "ncclGroupEnd" },
        { &n->send, "ncclSend" },
        { &n->receive, "ncclRecv" },
        { &n->error, "ncclGetErrorString" },
        { &n->details, "ncclGetLastError" },
    };
    void *library;

    TRY_RETURN(module_open(&library, NCCL_LIBRARY, "install NCCL"));
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        TRY_RETURN(module_symbol(symbols[i].function, library, NCCL_LIBRARY, symbols[i].name));
    return ALIBI_OK;
}

/* ---- waiting */

/* Kernels that wait for other ranks end. */
static void give_up(struct nccl *n)
{
    if (n->connection != NULL)
        n->abort(n->connection);
    n->connection = NULL;
    n->passed = n->marked;
}

/* The awaited work: NCCL's work in the host, or also the work in its stream before the first mark
 * that it is not known to have passed. */
enum awaited { AWAIT_HOST, AWAIT_JOINED, AWAIT_MARK };

static alibi_status look(struct nccl *n, enum awaited what, const char *call, bool *done)
{
    const struct wire_host *host = n->comm != NULL ? &n->comm->host : NULL;
    int state = NCCL_SUCCESS;
    bool told = false;

    TRY_RETURN(check(n, n->async_error(n->connection, &state), call));
    TRY_RETURN(check(n, state, call));
    *done = state == NCCL_SUCCESS;
    if (*done && what == AWAIT_MARK)
        TRY_RETURN(n->device->ops->caller_done(n->device, (int)(n->passed % DEVICE_MARKS), done));
    if (*done)
        return ALIBI_OK;
    if (what == AWAIT_JOINED)
        TRY_RETURN(comm_ask(n->comm, &told));
    if (told) { /* another rank cannot join, and says why when all agree */
        give_up(n);
        *done = true;
        return ALIBI_OK;
    }
    return host && host->waiting ? (alibi_status)host->waiting(host->user) : ALIBI_OK;
}

/* All ranks that wait would say that nothing comes. The first one says it, and ends: then the
 * launcher ends the others. */
static alibi_status await(struct nccl *n, enum awaited what, const char *call)
{
    double last = clock_seconds() + n->limit + 2 * comm_rank(n->comm);
    alibi_status status;
    bool done;

    while ((status = look(n, what, call, &done)) == ALIBI_OK && !done) {
        if (clock_seconds() > last) {
            status = fail(ALIBI_IO,
                          "%s has not ended within %g s, although all ranks give signs of life; "
                          "NCCL_DEBUG=INFO may tell why, ALIBI_NCCL_TIMEOUT is the limit, and "
                          "'train' has --comm mpi, which goes another way",
                          call, n->limit);
            break;
        }
        sched_yield();
    }
    if (status == ALIBI_OK)
        return ALIBI_OK;
    give_up(n);
    if (what != AWAIT_JOINED && comm_size(n->comm) > 1)
        status = wired(n->comm, status);
    failure_keep(&n->ended, status);
    return status;
}

/* ---- connecting */

/* NCCL would wait for each other's kernels on one GPU without end, and refuses it. */
static alibi_status check_places(const struct nccl *n)
{
    const alibi_comm *c = n->comm;

    for (int r = 0; r < comm_size(c); r++)
        for (int s = 0; s < r; s++)
            if (strcmp(n->places[r], n->places[s]) == 0 && strcmp(c->hosts[r], c->hosts[s]) == 0)
                return fail(ALIBI_USAGE,
                            "ranks %d and %d share the GPU %s of '%s', and NCCL needs one for "
                            "each; give each rank a GPU of its own",
                            s, r, n->places[r], c->hosts[r]);
    return ALIBI_OK;
}

/* Checks what this rank can know alone: its library and its GPU. */
static alibi_status prepare(struct nccl *n, void *rows)
{
    struct device *dev = n->device;

    if (dev->ops->link == NULL)
        return fail(ALIBI_USAGE,
                    "NCCL connects GPUs, and this run is on the CPU; use --device cuda");
    TRY_RETURN(load(n));
    n->limit = 600;
    TRY_RETURN(read_limit("ALIBI_NCCL_TIMEOUT", &n->limit));
    TRY_RETURN(NEW_ZERO_ARRAY(&n->places, comm_size(n->comm), "the places of GPUs"));
    TRY_RETURN(dev->ops->link(dev, &n->stream.stream));
    n->inside = (struct caller){ .stream = n->stream.stream, .workspace = rows };
    return dev->ops->address(dev, n->places[comm_rank(n->comm)]);
}

/* A failure here is no reason to end while all ranks live: they may be connected by MPI. */
static alibi_status join(struct nccl *n)
{
    alibi_comm *c = n->comm;
    int rank = comm_rank(c), size = comm_size(c);
    struct nccl_id id = { { 0 } };
    struct nccl_config config = { sizeof config, 0xcafebeef, 21400, 0, INT_MIN };
    static const char call[] = "ncclCommInitRankConfig";
    alibi_status status;
    bool told = false;

    if (size > 1)
        TRY_RETURN(wired(c, c->wire.all_gather(n->places, DEVICE_ADDRESS_MAX)));
    TRY_RETURN(check_places(n)); /* all have the same table, and the same answer */
    status = comm_ask(c, &told); /* of an earlier failure: those of this one come later */
    if (status == ALIBI_OK && rank == 0)
        status = check(n, n->get_id(&id), "ncclGetUniqueId");
    TRY_RETURN(comm_agree(c, status));
    TRY_RETURN(comm_broadcast(c, &id, sizeof id));
    status = check(n, n->init(&n->connection, size, id, rank, &config), call);
    if (status == ALIBI_OK)
        status = await(n, AWAIT_JOINED, call);
    if (status != ALIBI_OK && size > 1 && c->lost < 0) {
        status = fail(ALIBI_DEVICE, "%s", alibi_error());
        (void)comm_tell(c); /* others that wait for this rank */
    }
    status = comm_agree(c, status);
    if (status == ALIBI_OK) { /* a rank may have been told of another failure than one to join */
        if (n->connection == NULL)
            status = fail(ALIBI_DEVICE, "%s was aborted, although all ranks can join", call);
        status = comm_agree(c, status);
    }
    if (status != ALIBI_OK)
        give_up(n);
    return status;
}

alibi_status nccl_new(struct nccl **out, alibi_comm *c, struct device *dev, void *rows)
{
    struct nccl *n = NULL;
    alibi_status status = NEW_ZERO_ARRAY(&n, 1, "a connection by NCCL");

    if (status == ALIBI_OK) {
        n->comm = c;
        n->device = dev;
        status = prepare(n, rows);
    }
    TRY(comm_agree(c, status));
    TRY(join(n));
    *out = n;
    n = NULL;
out:
    nccl_free(n);
    return status;
}

void nccl_free(struct nccl *n)
{
    enum { FAREWELL = 30 }; /* seconds that other ranks may be late */
    struct failure failure;

    if (n == NULL)
        return;
    failure_keep(&failure, ALIBI_IO); /* the message that is there: none of ours is of interest */
    n->limit = n->limit < FAREWELL ? n->limit : FAREWELL;
    if (n->passed < n->marked) /* something has failed: do the others take part? */
        give_up(n);
    if (n->connection != NULL) {
        (void)n->device->ops->finish(n->device);
        (void)n->finalize(n->connection);
        if (await(n, AWAIT_HOST, "ncclCommFinalize") == ALIBI_OK)
            n->destroy(n->connection);
    }
    failure_raise(&failure);
    mem_free(n->places);
    mem_free(n);
}

/* ---- exchanges */

static alibi_status mark(struct nccl *n)
{
    int next = (int)(n->marked % DEVICE_MARKS);

    TRY_RETURN(n->device->ops->caller_mark(n->device, &n->stream, next));
    n->before[next] = n->calls;
    n->marked++;
    return ALIBI_OK;
}

/* Waits until the stream has passed all marks before `end`. */
static alibi_status pass(struct nccl *n, int64_t end)
{
    if (n->connection == NULL)
        return failure_raise(&n->ended);
    while (n->passed < end) {
        TRY_RETURN(await(n, AWAIT_MARK, "an exchange by NCCL"));
        n->known = n->before[n->passed++ % DEVICE_MARKS];
    }
    return ALIBI_OK;
}

/* An exchange has two marks, before and after it. */
alibi_status nccl_begins(struct nccl *n)
{
    _Static_assert(2 * IN_FLIGHT < DEVICE_MARKS, "nccl_wait() needs one more");

    TRY_RETURN(pass(n, n->marked - 2 * (IN_FLIGHT - 1)));
    TRY_RETURN(n->device->ops->caller_ends(n->device, &n->stream));
    return n->device->ops->caller_begins(n->device, &n->inside);
}

alibi_status nccl_ends(struct nccl *n)
{
    return n->device->ops->caller_ends(n->device, &n->inside);
}

alibi_status nccl_call(struct nccl *n)
{
    while (n->calls - n->known >= QUEUED && n->passed < n->marked)
        TRY_RETURN(pass(n, n->passed + 1));
    n->calls++;
    return ALIBI_OK;
}

alibi_status nccl_exchange(struct nccl *n, const struct rows *r)
{
    alibi_status status = ALIBI_OK;
    const float *send = r->send;
    float *receive = r->receive;
    int ended;

    TRY_RETURN(mark(n));
    TRY_RETURN(check(n, n->begin(), "ncclGroupStart"));
    for (int i = 0; i < comm_size(n->comm); i++) {
        if (r->send_counts[i] > 0)
            TRY(check(n,
                      n->send(send + (int64_t)i * r->send_stride, (size_t)r->send_counts[i],
                              NCCL_FLOAT32, i, n->connection, n->stream.stream),
                      "ncclSend"));
        if (r->receive_counts[i] > 0)
            TRY(check(n,
                      n->receive(receive + (int64_t)i * r->receive_stride,
                                 (size_t)r->receive_counts[i], NCCL_FLOAT32, i, n->connection,
                                 n->stream.stream),
                      "ncclRecv"));
    }
out:
    ended = n->end(); /* a group that was begun ends, whatever is in it */
    TRY_RETURN(status);
    TRY_RETURN(check(n, ended, "ncclGroupEnd"));
    TRY_RETURN(await(n, AWAIT_HOST, "ncclGroupEnd")); /* until it is in the stream */
    return mark(n);
}

alibi_status nccl_packed(struct nccl *n)
{
    return pass(n, n->marked - 1);
}

alibi_status nccl_wait(struct nccl *n)
{
    if (n->passed == n->marked && n->known == n->calls && n->connection != NULL)
        return ALIBI_OK;
    TRY_RETURN(mark(n));
    TRY_RETURN(pass(n, n->marked));
    return n->device->ops->caller_begins(n->device, &n->stream);
}
