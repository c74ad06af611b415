/* ranks.c - work that each rank does alone: whole models of a comparison or an experiment
 *
 * Ranks synchronise before and after it. A rank that fails or is stopped tells the others, which
 * ask with every report of progress and then stop as if requested. Only rank 0 logs while it works;
 * the warnings of the others follow at the end. */
#include <string.h>

#include "compare/trial.h"

enum { WARNINGS_BYTES = 1 << 16 }; /* of a rank; more is cut off */

static void watch_progress(void *user, const struct alibi_progress *p)
{
    struct alone *a = user;

    if (comm_ask(a->comm, &a->told) != ALIBI_OK)
        a->told = true; /* the connection is lost: alone_end() reports it */
    if (a->told || call_stopped(a->outer))
        alibi_stop_request(&a->stop);
    call_progress(a->outer, p);
}

static void keep_line(void *user, enum alibi_log_level level, const char *line)
{
    struct alone *a = user;

    if (comm_is_root(a->comm) && a->outer->log != NULL)
        a->outer->log(a->outer->user, level, line);
    else if (level == ALIBI_WARNING && a->warnings.length + strlen(line) < WARNINGS_BYTES)
        text_append(&a->warnings, "%s\n", line);
}

void alone_begin(struct alone *a, const struct alibi_call *call)
{
    *a = (struct alone){ .outer = call, .comm = call_comm(call) };
    a->call = call != NULL ? *call : (struct alibi_call){ 0 };
    if (comm_size(a->comm) == 1)
        return;
    a->call.comm = NULL;
    a->call.user = a;
    a->call.progress = watch_progress;
    a->call.log = keep_line;
    a->call.stop = &a->stop;
}

/* Rank 0 logs the warnings of the others. */
static alibi_status say_warnings(const struct alone *a)
{
    alibi_status status;
    int size = comm_size(a->comm), rank = comm_rank(a->comm);
    size_t most = 0, own = text_status(&a->warnings) == ALIBI_OK ? a->warnings.length : 0;
    int64_t *length = NULL;
    char *lines = NULL; /* [size][most + 1] */

    status = NEW_ZERO_ARRAY(&length, size, "warnings of ranks");
    TRY(comm_agree(a->comm, status));
    length[rank] = (int64_t)own;
    TRY(comm_collect(a->comm, length, sizeof *length));
    for (int r = 0; r < size; r++)
        most = (size_t)length[r] > most ? (size_t)length[r] : most;
    if (most == 0)
        goto out;
    status = NEW_ZERO_ARRAY(&lines, size * (int64_t)(most + 1), "warnings of ranks");
    TRY(comm_agree(a->comm, status));
    if (own > 0)
        memcpy(lines + (size_t)rank * (most + 1), a->warnings.data, own);
    TRY(comm_collect(a->comm, lines, most + 1));
    for (int r = 1; r < size && rank == 0; r++)
        for (char *line = lines + (size_t)r * (most + 1), *end; (end = strchr(line, '\n')) != NULL;
             line = end + 1) {
            *end = '\0';
            call_warn(a->outer, "%s", line);
        }
out:
    mem_free(lines);
    mem_free(length);
    return status;
}

alibi_status alone_end(struct alone *a, alibi_status status)
{
    struct failure failure;

    if (comm_size(a->comm) == 1)
        return status;
    if (status == ALIBI_INTERRUPTED && a->told && !call_stopped(a->outer))
        status = ALIBI_OK; /* the failure is that of the rank that told */
    failure_keep(&failure, status);
    if (status != ALIBI_OK)
        status = comm_tell(a->comm);
    if (status == ALIBI_OK)
        status = say_warnings(a);
    text_free(&a->warnings);
    TRY_RETURN(status); /* the connection failed */
    return comm_agree(a->comm, failure_raise(&failure));
}

alibi_status ranks_find(alibi_comm *comm, const char *dir, const char *name)
{
    alibi_status status;
    char *path = NULL;

    status = path_join(&path, dir, name);
    if (status == ALIBI_OK && !file_exists(path))
        status = fail(ALIBI_IO,
                      "'%s' does not exist here: every rank must see the folder of rank 0", path);
    mem_free(path);
    return comm_agree(comm, status);
}
