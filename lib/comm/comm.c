/* comm.c - the ranks: how they are found, and how they agree */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/ranks.h"

#define MPI_LIBRARY "libalibi_mpi.so"

int comm_rank(const alibi_comm *c)
{
    return c != NULL ? c->wire.rank : 0;
}

int comm_size(const alibi_comm *c)
{
    return c != NULL ? c->wire.size : 1;
}

alibi_status wired(const alibi_comm *c, int status)
{
    if (status == ALIBI_OK || c->lost >= 0)
        return (alibi_status)status;
    return fail_context((alibi_status)status, "rank %d on '%s'", c->wire.rank, c->wire.host);
}

/* ---- opening */

/* The first of these variables that is set, as a number; -1: none is. */
static int64_t number_of(const char *const names[])
{
    for (; *names != NULL; names++)
        if (getenv(*names) != NULL)
            return atoll(getenv(*names));
    return -1;
}

/* Whether the launcher has told this process how to find the others. */
static bool introduced(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");
}

int64_t alibi_comm_launched(void)
{
    static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                         "SLURM_NTASKS", NULL };
    static const char *const tasks[] = { "SLURM_STEP_NUM_TASKS", NULL };
    int64_t count = number_of(introduced() ? sizes : tasks);

    if (introduced())
        return count > 0 ? count : 1;
    return count > 1 ? count : 0; /* one task of Slurm may be the user's shell */
}

static int check_life(void *user)
{
    alibi_comm *c = user;

    c->lost = c->watch != NULL ? watch_silent(c->watch) : -1;
    if (c->lost < 0)
        return ALIBI_OK;
    fail(ALIBI_IO,
         "rank %d on '%s' has given no sign of life for %g s: its machine or its network "
         "has failed, or it is stopped; start again, a training with --resume",
         c->lost, c->hosts[c->lost], watch_limit(c->watch));
    return ALIBI_IO;
}

alibi_status read_limit(const char *variable, double *seconds)
{
    const char *text = getenv(variable);
    char *end = NULL;

    *seconds = text != NULL ? strtod(text, &end) : *seconds;
    if (*seconds >= 1 && *seconds <= 3600 && (text == NULL || *end == '\0'))
        return ALIBI_OK;
    return fail(ALIBI_USAGE, "%s is '%s': it must be 1 to 3600 seconds", variable, text);
}

/* A firewall may be in the way: then there is no limit, and alibi_comm_info says so. */
static alibi_status start_watch(alibi_comm *c)
{
    enum { SECONDS = 3 }; /* for the first signs; a moment if nothing is in their way */
    struct watch_place place = { 0 };
    bool missed = false;
    double limit = 12; /* without a sign of life; that of rank 0 holds */
    alibi_status status = read_limit("ALIBI_RANK_TIMEOUT", &limit);

    if (status == ALIBI_OK && c->wire.rank == 0)
        status = watch_open(&c->watch, 0, c->wire.size, limit, &place);
    TRY_RETURN(comm_agree(c, status));
    TRY_RETURN(comm_broadcast(c, &place, sizeof place));
    if (c->wire.rank > 0)
        status = watch_open(&c->watch, c->wire.rank, c->wire.size, limit, &place);
    TRY_RETURN(comm_agree(c, status));
    watch_start(c->watch);
    missed = !watch_wait(c->watch, SECONDS);
    TRY_RETURN(comm_any(c, &missed));
    c->watched = !missed;
    return ALIBI_OK;
}

static alibi_status connect_ranks(alibi_comm *c, int64_t launched)
{
    wire_open_function *open = NULL;
    void *library;
    int rank = c->wire.rank;

    if (!introduced() && launched > 1) {
        c->agreed = true;
        return fail(ALIBI_USAGE,
                    "srun started %lld processes without connecting them: use srun --mpi=pmix; or "
                    "unset SLURM_STEP_NUM_TASKS if each works alone",
                    (long long)launched);
    }
    TRY_RETURN(module_load(&library, MPI_LIBRARY, true, "mpi.h (libopenmpi-dev)"));
    TRY_RETURN(module_symbol(&open, library, MPI_LIBRARY, WIRE_OPEN_SYMBOL));
    TRY_RETURN((alibi_status)open(&c->wire, &c->host));
    if (c->wire.size == 1 && launched > 1) { /* each would work alone, all in one folder */
        c->wire.rank = rank;
        c->agreed = true;
        return fail(ALIBI_USAGE,
                    "%lld processes were started, but MPI connects 1: the launcher is of another "
                    "MPI than libalibi_mpi.so; use the mpirun of that one, or srun --mpi=pmix",
                    (long long)launched);
    }
    if (c->wire.size == 1)
        return ALIBI_OK;
    if (c->wire.size > COMM_BLOCKS) {
        c->agreed = true;
        return fail(ALIBI_USAGE, "%d ranks: at most %d can work together", c->wire.size,
                    COMM_BLOCKS);
    }
    TRY_RETURN(NEW_ZERO_ARRAY(&c->hosts, c->wire.size, "the names of ranks"));
    TRY_RETURN(NEW_ZERO_ARRAY(&c->statuses, c->wire.size, "the states of ranks"));
    TRY_RETURN(NEW_ZERO_ARRAY(&c->messages, c->wire.size, "the messages of ranks"));
    memcpy(c->hosts[c->wire.rank], c->wire.host, WIRE_HOST_MAX);
    TRY_RETURN(wired(c, c->wire.all_gather(c->hosts, WIRE_HOST_MAX)));
    TRY_RETURN(start_watch(c));
    return comm_same(c, ALIBI_VERSION, sizeof ALIBI_VERSION, "version of alibi");
}

alibi_status alibi_comm_open(alibi_comm **out)
{
    static const char *const among_all[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                             "SLURM_PROCID", NULL };
    static const char *const at_machine[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                              "SLURM_LOCALID", NULL };
    alibi_status status = ALIBI_OK;
    alibi_comm *c = NULL;
    int64_t ranks = alibi_comm_launched(), rank = number_of(among_all);

    TRY(NEW_ZERO_ARRAY(&c, 1, "a connection of ranks"));
    c->host = (struct wire_host){ WIRE_INTERFACE, module_fail, check_life, c };
    c->wire.size = 1;
    c->lost = -1;
    if (ranks > 1 && rank > 0)
        c->wire.rank = (int)rank; /* until MPI says so */
    if (ranks > 0) {
        /* OpenMPI 4.1 does not always notice that a rank dies before all are connected, and then
         * waits for it without end. SIGALRM ends the process instead. */
        alarm(25 + (unsigned)(ranks < COMM_BLOCKS ? ranks : COMM_BLOCKS) / 4);
        status = connect_ranks(c, ranks);
        alarm(0);
    }
    /* One rank needs no connection: a program that was built without MPI works under a launcher. */
    if (status == ALIBI_DEVICE && ranks == 1)
        status = ALIBI_OK;
    if (status == ALIBI_DEVICE) { /* the first process of each machine speaks of its libraries */
        c->agreed = number_of(at_machine) > 0;
        fail_context(status, "%lld processes were started to work together", (long long)ranks);
    }
    if (status != ALIBI_OK && !c->agreed && c->lost < 0)
        goto out;
    *out = c; /* after a failure that all have, too: it knows who speaks of it */
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
    watch_free(c->watch);
    mem_free(c->hosts);
    mem_free(c->statuses);
    mem_free(c->messages);
    mem_free(c);
}

void alibi_comm_get_info(const alibi_comm *c, struct alibi_comm_info *info)
{
    int first = 0;

    *info = (struct alibi_comm_info){ .rank = comm_rank(c),
                                      .size = comm_size(c),
                                      .watched = comm_size(c) == 1 || c->watched };
    if (c == NULL)
        return;
    info->local_rank = c->wire.local_rank;
    /* Where rank 0 is lost, the first rank of each machine speaks; on its own, the next one. */
    if (c->lost == 0 && strcmp(c->hosts[c->wire.rank], c->hosts[0]) == 0)
        first = 1;
    info->agreed = c->agreed || c->lost > 0 || (c->lost == 0 && c->wire.local_rank > first);
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
    int first = 0, size = comm_size(c), same = 0;
    char(*messages)[WIRE_MESSAGE_MAX] = size > 1 ? c->messages : NULL;

    if (size == 1)
        return status;
    c->agreed = false;
    TRY_RETURN(tell_all(c, (int32_t)status));
    while (first < size && c->statuses[first] == ALIBI_OK)
        first++;
    if (first == size)
        return ALIBI_OK;
    snprintf(messages[c->wire.rank], WIRE_MESSAGE_MAX, "%s", status != ALIBI_OK ? message : "");
    TRY_RETURN(wired(c, c->wire.all_gather(messages, WIRE_MESSAGE_MAX)));
    c->agreed = true;
    while (c->statuses[0] != ALIBI_OK && same < size && strcmp(messages[same], messages[0]) == 0)
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

bool comm_agreed(const alibi_comm *c)
{
    return comm_size(c) == 1 || c->agreed;
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

/* The wire counts in int. */
static alibi_status check_bytes(size_t bytes)
{
    return bytes <= INT_MAX
               ? ALIBI_OK
               : fail(ALIBI_MEMORY, "%zu bytes of a rank: at most %d are exchanged at once", bytes,
                      INT_MAX);
}

alibi_status comm_broadcast(alibi_comm *c, void *at, size_t bytes)
{
    if (comm_size(c) == 1)
        return ALIBI_OK;
    TRY_RETURN(check_bytes(bytes));
    return wired(c, c->wire.broadcast(at, (int)bytes));
}

alibi_status comm_collect(alibi_comm *c, void *all, size_t bytes)
{
    if (comm_size(c) == 1 || bytes == 0)
        return ALIBI_OK;
    TRY_RETURN(check_bytes(bytes));
    return wired(c, c->wire.all_gather(all, (int)bytes));
}

alibi_status comm_sum(alibi_comm *c, double *values, int count)
{
    return comm_size(c) > 1 ? wired(c, c->wire.sum(values, count)) : ALIBI_OK;
}

/* ---- work of one's own */

alibi_status comm_tell(alibi_comm *c)
{
    return comm_size(c) > 1 ? wired(c, c->wire.tell()) : ALIBI_OK;
}

alibi_status comm_ask(alibi_comm *c, bool *told)
{
    return comm_size(c) > 1 ? wired(c, c->wire.ask(told)) : ALIBI_OK;
}
