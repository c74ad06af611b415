/* mpi.c - libalibi_mpi.so: the functions of wire.h by MPI
 *
 * This is a separate module, because the handles of each MPI are its own symbols and types. It is
 * compiled if mpi.h is installed, and loaded in processes that mpirun or srun has started. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "alibi.h"
#include "comm/wire.h"

/* MPI connects a process once: there is one connection, and nothing to tell several apart. */
static const struct wire_host *host;
static int *offsets; /* [2][size], of the rows of an exchange */
static MPI_Request exchanging;

static int check(int code, const char *call)
{
    char reason[MPI_MAX_ERROR_STRING] = "", message[MPI_MAX_ERROR_STRING + 64];
    int length = 0;

    if (code == MPI_SUCCESS)
        return ALIBI_OK;
    MPI_Error_string(code, reason, &length);
    snprintf(message, sizeof message, "%s: %s", call, reason);
    host->fail(ALIBI_IO, message);
    return ALIBI_IO;
}

/* The end of a call that began with `code`. MPI itself would wait without end for a machine that no
 * longer answers. */
static int finish(int code, MPI_Request *request, const char *call)
{
    int done = 0, status = check(code, call);

    while (status == ALIBI_OK && !done) {
        status = check(MPI_Test(request, &done, MPI_STATUS_IGNORE), call);
        if (status == ALIBI_OK && !done)
            status = host->waiting(host->user);
    }
    return status;
}

static int broadcast(void *at, int bytes)
{
    MPI_Request request;

    return finish(MPI_Ibcast(at, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request), &request,
                  "MPI_Ibcast");
}

static int all_gather(void *all, int bytes)
{
    MPI_Request request;

    return finish(
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD, &request),
        &request, "MPI_Iallgather");
}

static int sum(double *values, int count)
{
    MPI_Request request;

    return finish(
        MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request),
        &request, "MPI_Iallreduce");
}

/* It progresses whenever MPI is called, or by itself where the network can. */
static int exchange(const struct rows *rows)
{
    int size;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int r = 0; r < size; r++) {
        offsets[r] = r * rows->send_stride;
        offsets[size + r] = r * rows->receive_stride;
    }
    return check(MPI_Ialltoallv(rows->send, rows->send_counts, offsets, MPI_FLOAT, rows->receive,
                                rows->receive_counts, offsets + size, MPI_FLOAT, MPI_COMM_WORLD,
                                &exchanging),
                 "MPI_Ialltoallv");
}

static int wait_for_exchange(void)
{
    return finish(MPI_SUCCESS, &exchanging, "MPI_Ialltoallv");
}

/* A message without content reaches a rank that does not receive it yet. */
enum { TAG_TOLD = 1 };

static int tell(void)
{
    int rank, size, status = ALIBI_OK;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int r = 0; r < size && status == ALIBI_OK; r++)
        if (r != rank)
            status = check(MPI_Send(NULL, 0, MPI_BYTE, r, TAG_TOLD, MPI_COMM_WORLD), "MPI_Send");
    return status;
}

static int ask(bool *told)
{
    int there = 1, status = ALIBI_OK;

    while (there && status == ALIBI_OK) {
        status =
            check(MPI_Iprobe(MPI_ANY_SOURCE, TAG_TOLD, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE),
                  "MPI_Iprobe");
        if (status != ALIBI_OK || !there)
            break;
        *told = true;
        status = check(MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, TAG_TOLD, MPI_COMM_WORLD,
                                MPI_STATUS_IGNORE),
                       "MPI_Recv");
    }
    return status;
}

static int close_all(void)
{
    MPI_Request request;
    int status = finish(MPI_Ibarrier(MPI_COMM_WORLD, &request), &request, "MPI_Ibarrier");
    bool told;

    if (status == ALIBI_OK)
        ask(&told); /* MPI_Finalize wants every message received */
    free(offsets);
    offsets = NULL;
    return status == ALIBI_OK ? check(MPI_Finalize(), "MPI_Finalize") : status;
}

static int refuse(int status, const char *message)
{
    host->fail(status, message);
    return status;
}

__attribute__((visibility("default"))) wire_open_function alibi_mpi_open;

int alibi_mpi_open(struct wire *out, const struct wire_host *to)
{
    struct wire w = { .broadcast = broadcast,
                      .all_gather = all_gather,
                      .sum = sum,
                      .exchange = exchange,
                      .wait = wait_for_exchange,
                      .tell = tell,
                      .ask = ask,
                      .close = close_all };
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int begun = 0, provided, length;
    MPI_Comm machine;

    host = to;
    if (to->version != WIRE_INTERFACE)
        return refuse(ALIBI_DEVICE, "libalibi_mpi.so is of another version");
    MPI_Initialized(&begun);
    if (begun)
        return refuse(ALIBI_USAGE, "MPI connects a process once, and has done so already");
    if (check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread") !=
        ALIBI_OK)
        return ALIBI_IO;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w.size);
    if (check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w.rank, MPI_INFO_NULL,
                                  &machine),
              "MPI_Comm_split_type") != ALIBI_OK)
        return ALIBI_IO;
    MPI_Comm_rank(machine, &w.local_rank);
    MPI_Comm_free(&machine);
    MPI_Get_processor_name(name, &length);
    snprintf(w.host, sizeof w.host, "%.*s", (int)sizeof w.host - 1, name);
    offsets = malloc(2 * (size_t)w.size * sizeof *offsets);
    if (offsets == NULL)
        return refuse(ALIBI_MEMORY, "out of memory for the offsets of an exchange");
    *out = w;
    return ALIBI_OK;
}
