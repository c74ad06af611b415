/* nccl.c - rows of words between GPUs by NCCL, which is loaded at run time
 *
 * NCCL copies from one GPU's memory to another's, in a stream beside the device's own: an exchange
 * begins after the work that the device has queued so far, and the device's later work waits for it
 * when nccl_wait() says so. The ranks tell each other NCCL's id through the wire. Only its
 * functions for sending and receiving are used: its sums have an order that depends on the
 * topology, ours do not. */
#include <string.h>

#include "comm/ranks.h"

#define NCCL_LIBRARY "libnccl.so.2"

/* As nccl.h has them. */
enum { NCCL_ID_BYTES = 128, NCCL_FLOAT32 = 7 };
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

struct nccl {
    alibi_comm *comm;
    struct device *device;
    struct caller stream;
    void *connection;                   /* ncclComm_t */
    char (*places)[DEVICE_ADDRESS_MAX]; /* [size]: of the GPUs */

    int (*get_id)(struct nccl_id *id);
    int (*init)(void **connection, int ranks, struct nccl_id id, int rank);
    int (*destroy)(void *connection);
    int (*begin)(void);
    int (*end)(void);
    int (*send)(const void *from, size_t count, int type, int to, void *connection, void *stream);
    int (*receive)(void *to, size_t count, int type, int from, void *connection, void *stream);
    const char *(*error)(int result);
    const char *(*details)(void *connection);
};

static alibi_status check(const struct nccl *n, int result, const char *call)
{
    if (result == 0)
        return ALIBI_OK;
    return fail(ALIBI_DEVICE, "NCCL failed in %s: %s (%s); NCCL_DEBUG=WARN tells more", call,
                n->error(result), n->details(n->connection));
}

static alibi_status load(struct nccl *n)
{
    const struct {
        void *function;
        const char *name;
    } symbols[] = {
        { &n->get_id, "ncclGetUniqueId" },   { &n->init, "ncclCommInitRank" },
        { &n->destroy, "ncclCommDestroy" },  { &n->begin, "ncclGroupStart" },
        { &n->end, "ncclGroupEnd" },         { &n->send, "ncclSend" },
        { &n->receive, "ncclRecv" },         { &n->error, "ncclGetErrorString" },
        { &n->details, "ncclGetLastError" },
    };
    void *library;

    TRY_RETURN(module_open(&library, NCCL_LIBRARY, "install NCCL, or use --comm mpi"));
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        TRY_RETURN(module_symbol(symbols[i].function, library, NCCL_LIBRARY, symbols[i].name));
    return ALIBI_OK;
}

/* NCCL would wait for each other's kernels on one GPU without end, and refuses it. */
static alibi_status check_places(const struct nccl *n)
{
    const alibi_comm *c = n->comm;

    for (int r = 0; r < comm_size(c); r++)
        for (int s = 0; s < r; s++)
            if (strcmp(n->places[r], n->places[s]) == 0 && strcmp(c->hosts[r], c->hosts[s]) == 0)
                return fail(ALIBI_USAGE,
                            "ranks %d and %d share the GPU %s of '%s', and NCCL needs one for "
                            "each; give each rank a GPU of its own, or use --comm mpi",
                            s, r, n->places[r], c->hosts[r]);
    return ALIBI_OK;
}

/* What this rank can know alone: its library and its GPU. */
static alibi_status prepare(struct nccl *n)
{
    struct device *dev = n->device;

    if (dev->ops->link == NULL)
        return fail(ALIBI_USAGE, "NCCL connects GPUs, and this runs on the CPU; use --comm mpi");
    TRY_RETURN(load(n));
    TRY_RETURN(NEW_ZERO_ARRAY(&n->places, comm_size(n->comm), "the places of GPUs"));
    TRY_RETURN(dev->ops->link(dev, &n->stream.stream));
    return dev->ops->address(dev, n->places[comm_rank(n->comm)]);
}

static alibi_status join(struct nccl *n)
{
    alibi_comm *c = n->comm;
    int rank = comm_rank(c), size = comm_size(c);
    struct nccl_id id = { { 0 } };
    alibi_status status = ALIBI_OK;

    if (size > 1)
        TRY_RETURN(wired(c, c->wire.all_gather(n->places, DEVICE_ADDRESS_MAX)));
    TRY_RETURN(check_places(n)); /* all have the same table, and the same answer */
    if (rank == 0)
        status = check(n, n->get_id(&id), "ncclGetUniqueId");
    TRY_RETURN(comm_agree(c, status));
    TRY_RETURN(comm_broadcast(c, &id, sizeof id));
    return comm_agree(c, check(n, n->init(&n->connection, size, id, rank), "ncclCommInitRank"));
}

alibi_status nccl_new(struct nccl **out, alibi_comm *c, struct device *dev)
{
    struct nccl *n = NULL;
    alibi_status status = NEW_ZERO_ARRAY(&n, 1, "a connection by NCCL");

    if (status == ALIBI_OK) {
        n->comm = c;
        n->device = dev;
        status = prepare(n);
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
    if (n == NULL)
        return;
    if (n->connection != NULL) {
        (void)nccl_wait(n);
        (void)n->device->ops->finish(n->device);
        n->destroy(n->connection);
    }
    mem_free(n->places);
    mem_free(n);
}

alibi_status nccl_exchange(struct nccl *n, const struct rows *r)
{
    alibi_status status = ALIBI_OK;
    const float *send = r->send;
    float *receive = r->receive;
    int ended;

    TRY_RETURN(n->device->ops->caller_ends(n->device, &n->stream));
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
    return status == ALIBI_OK ? check(n, ended, "ncclGroupEnd") : status;
}

alibi_status nccl_wait(struct nccl *n)
{
    return n->device->ops->caller_begins(n->device, &n->stream);
}
