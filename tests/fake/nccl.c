/* nccl.c - libnccl.so.2 without GPUs: what is sent goes through files of a folder
 *
 * It holds its callers to NCCL's rules: calls within a group, a stream that follows the work that
 * made the numbers, equal counts at both ends. A broken rule ends the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake/fake.h"

#define EXPORTED __attribute__((visibility("default")))
enum { OPERATIONS = 64, PATH = 256, PATIENCE = 60 * 1000 };

struct id {
    char folder[128];
};

/* As nccl.h declares them, with our own names of its types. */
EXPORTED int ncclGetUniqueId(struct id *id);
EXPORTED int ncclCommInitRank(void **out, int ranks, struct id id, int rank);
EXPORTED int ncclCommDestroy(void *connection);
EXPORTED int ncclGroupStart(void);
EXPORTED int ncclGroupEnd(void);
EXPORTED int ncclSend(const void *at, size_t count, int type, int peer, void *connection,
                      void *stream);
EXPORTED int ncclRecv(void *at, size_t count, int type, int peer, void *connection, void *stream);
EXPORTED const char *ncclGetErrorString(int result);
EXPORTED const char *ncclGetLastError(void *connection);

struct operation {
    void *at;
    size_t bytes;
    int peer;
    bool sends;
};

struct connection {
    struct id id;
    int rank, ranks;
    long *sent, *received; /* [ranks]: messages so far */
    struct operation operations[OPERATIONS];
    int count;
    struct fake_stream *stream;
};

static struct connection only;
static bool grouped;

static void demand(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fake NCCL: %s\n", what);
    _exit(99);
}

static void name_message(char path[PATH], int from, int to, long number)
{
    snprintf(path, PATH, "%s/%d-%d-%ld", only.id.folder, from, to, number);
}

static void send_now(const struct operation *o)
{
    char path[PATH], aside[PATH + 8];
    FILE *file;

    name_message(path, only.rank, o->peer, only.sent[o->peer]++);
    snprintf(aside, sizeof aside, "%s.part", path);
    file = fopen(aside, "w");
    demand(file && fwrite(o->at, 1, o->bytes, file) == o->bytes && fclose(file) == 0 &&
               rename(aside, path) == 0,
           "a message cannot be written");
}

static void receive_now(const struct operation *o)
{
    char path[PATH], more;
    FILE *file = NULL;

    name_message(path, o->peer, only.rank, only.received[o->peer]++);
    for (int i = 0; i < PATIENCE && !(file = fopen(path, "r")); i++)
        usleep(1000);
    demand(file, "a message has not come");
    demand(fread(o->at, 1, o->bytes, file) == o->bytes && fread(&more, 1, 1, file) == 0,
           "a message has another length than its receiver expects");
    fclose(file);
    unlink(path);
}

static void run(void *user)
{
    (void)user;
    for (int i = 0; i < only.count; i++)
        if (only.operations[i].sends)
            send_now(&only.operations[i]);
    for (int i = 0; i < only.count; i++)
        if (!only.operations[i].sends)
            receive_now(&only.operations[i]);
    only.count = 0;
}

static int add(void *at, size_t count, int type, int peer, void *connection, void *stream,
               bool sends)
{
    demand(grouped, "a call outside a group");
    demand(type == 7, "another type than float");
    demand(connection == &only && peer >= 0 && peer < only.ranks, "an unknown peer");
    demand(only.count < OPERATIONS, "too many calls in a group");
    only.stream = stream;
    only.operations[only.count++] = (struct operation){ at, 4 * count, peer, sends };
    return 0;
}

int ncclGetUniqueId(struct id *id)
{
    snprintf(id->folder, sizeof id->folder, "%s/fake-nccl-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(id->folder) ? 0 : 2;
}

int ncclCommInitRank(void **out, int ranks, struct id id, int rank)
{
    if (getenv("FAKE_NCCL_FAILS"))
        return 2;
    only = (struct connection){ .id = id, .rank = rank, .ranks = ranks };
    only.sent = calloc((size_t)ranks, sizeof *only.sent);
    only.received = calloc((size_t)ranks, sizeof *only.received);
    *out = &only;
    return only.sent && only.received ? 0 : 2;
}

int ncclCommDestroy(void *connection)
{
    demand(connection == &only && only.count == 0, "work was left undone");
    rmdir(only.id.folder); /* the last one succeeds */
    free(only.sent);
    free(only.received);
    return 0;
}

int ncclGroupStart(void)
{
    demand(!grouped && only.count == 0, "a group before the last one was waited for");
    grouped = true;
    return 0;
}

int ncclGroupEnd(void)
{
    demand(grouped, "a group ends that has not begun");
    grouped = false;
    if (only.count == 0)
        return 0;
    demand(only.stream->follows, "the stream does not follow the work that made the numbers");
    only.stream->work = run;
    return 0;
}

int ncclSend(const void *at, size_t count, int type, int peer, void *connection, void *stream)
{
    return add((void *)(size_t)at, count, type, peer, connection, stream, true);
}

int ncclRecv(void *at, size_t count, int type, int peer, void *connection, void *stream)
{
    return add(at, count, type, peer, connection, stream, false);
}

const char *ncclGetErrorString(int result)
{
    return result == 2 ? "unhandled system error" : "no error";
}

const char *ncclGetLastError(void *connection)
{
    (void)connection;
    return "as the test demands";
}
