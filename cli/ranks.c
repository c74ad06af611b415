/* ranks.c - one process of several that mpirun or srun has started
 *
 * Rank 0 prints for all of them. Another rank prints only if it fails alone and the others cannot
 * know it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static alibi_comm *comm; /* NULL: no launcher has started this process */

alibi_status cli_ranks_join(void)
{
    struct alibi_comm_info info;

    if (alibi_comm_launched() > 0)
        TRY_RETURN(alibi_comm_open(&comm));
    alibi_comm_get_info(comm, &info);
    cli_set_comm(comm);
    cli_terminal_mute(info.rank > 0);
    if (!info.watched)
        cli_note(
            "the ranks do not hear each other by UDP: the failure of a machine may not be noticed");
    if (info.rank > 0 && !freopen("/dev/null", "w", stdout))
        return cli_fail(ALIBI_IO, "cannot open '/dev/null': %s", strerror(errno));
    return ALIBI_OK;
}

int cli_ranks(void)
{
    struct alibi_comm_info info;

    alibi_comm_get_info(comm, &info);
    return info.size;
}

bool cli_is_first_rank(void)
{
    struct alibi_comm_info info;

    alibi_comm_get_info(comm, &info);
    return info.rank == 0;
}

alibi_status cli_agree(alibi_status status)
{
    if (cli_ranks() == 1)
        return status;
    status = alibi_comm_agree(comm, status, cli_error());
    return status == ALIBI_OK ? status : cli_fail(status, "%s", alibi_error());
}

bool cli_others_know(void)
{
    struct alibi_comm_info info;

    alibi_comm_get_info(comm, &info);
    return info.rank > 0 && info.agreed;
}

void cli_ranks_leave(alibi_status status)
{
    /* Processes that are not connected, or have lost a rank (ALIBI_IO), cannot wait until the line
     * is printed, and a launcher ends all of them with the first one that ends. */
    if (cli_others_know() && ((status != ALIBI_OK && cli_ranks() == 1) || status == ALIBI_IO))
        sleep(1);
    alibi_comm_free(comm, status);
    comm = NULL;
}
