/* nccl.c - libnccl.so.2 without GPUs: what is sent goes through files of a folder
 *
 * It holds its callers to NCCL's rules: calls within a group, a stream that follows the work that
 * made the numbers, equal counts at both ends, nothing new before what does not block is complete.
 * A broken rule ends the process.
 *
 * In the environment of a rank: FAKE_NCCL_FAILS: it cannot join; FAKE_NCCL_ABSENT: it never does,
 * nor fails; FAKE_NCCL_MUTE: it sends nothing; FAKE_NCCL_BREAKS: it loses the others;
 * FAKE_NCCL_COUNT: a file, to which each rank adds how many exchanges were in flight at most. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake/fake.h"

#define EXPORTED __attribute__((visibility("default")))
enum { OPERATIONS = 64, GROUPS = 16, PATH = 256 };
enum { SUCCESS = 0, SYSTEM_ERROR = 2, REMOTE_ERROR = 6, IN_PROGRESS = 7 };

struct id {
    char folder[128];
};

struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

/* As nccl.h declares them, with our own names of its types. */
EXPORTED int ncclGetUniqueId(struct id *id);
EXPORTED int ncclCommInitRankConfig(void **out, int ranks, struct id id, int rank,
                                    const struct config *config);
EXPORTED int ncclCommGetAsyncError(void *connection, int *state);
EXPORTED int ncclCommFinalize(void *connection);
EXPORTED int ncclCommDestroy(void *connection);
EXPORTED int ncclCommAbort(void *connection);
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
    struct group {
        struct operation operations[OPERATIONS];
        int count;
    } groups[GROUPS];
    int64_t begun, done, most; /* groups; at most so many at a time */
    int taken;                 /* of the first that is not done: those before were received */
    bool joined, were_sent, finalized;
    int asked; /* how often, since something was begun that does not block */
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

static bool receive_now(const struct operation *o)
{
    char path[PATH], more;
    FILE *file;

    name_message(path, o->peer, only.rank, only.received[o->peer]);
    file = fopen(path, "r");
    if (!file)
        return false;
    only.received[o->peer]++;
    demand(fread(o->at, 1, o->bytes, file) == o->bytes && fread(&more, 1, 1, file) == 0,
           "a message has another length than its receiver expects");
    fclose(file);
    unlink(path);
    return true;
}

static struct group *group(int64_t number)
{
    return &only.groups[number % GROUPS];
}

static bool run(const struct fake_work *w)
{
    const struct group *g = group(only.done);

    (void)w;
    for (int i = 0; !only.were_sent && !getenv("FAKE_NCCL_MUTE") && i < g->count; i++)
        if (g->operations[i].sends)
            send_now(&g->operations[i]);
    only.were_sent = true;
    for (; only.taken < g->count; only.taken++)
        if (!g->operations[only.taken].sends && !receive_now(&g->operations[only.taken])) {
            usleep(1000);
            return false;
        }
    only.taken = 0;
    only.were_sent = false;
    only.done++;
    return true;
}

static int add(void *at, size_t count, int type, int peer, void *connection, void *stream,
               bool sends)
{
    struct group *g = group(only.begun);

    demand(grouped, "a call outside a group");
    demand(type == 7, "another type than float");
    demand(connection == &only && peer >= 0 && peer < only.ranks, "an unknown peer");
    demand(g->count < OPERATIONS, "too many calls in a group");
    only.stream = stream;
    g->operations[g->count++] = (struct operation){ at, 4 * count, peer, sends };
    return 0;
}

int ncclGetUniqueId(struct id *id)
{
    snprintf(id->folder, sizeof id->folder, "%s/fake-nccl-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(id->folder) ? 0 : 2;
}

/* Each rank that has joined has left a file. */
static bool all_joined(void)
{
    char path[PATH];

    for (int r = 0; !only.joined && r < only.ranks; r++) {
        snprintf(path, sizeof path, "%s/joined-%d", only.id.folder, r);
        if (access(path, F_OK) != 0)
            return false;
    }
    return only.joined = true;
}

int ncclCommInitRankConfig(void **out, int ranks, struct id id, int rank,
                           const struct config *config)
{
    char path[PATH];
    FILE *file;

    demand(config->size >= sizeof *config && config->magic == 0xcafebeef && config->blocking == 0,
           "another configuration than one that does not block");
    if (getenv("FAKE_NCCL_FAILS"))
        return SYSTEM_ERROR;
    only = (struct connection){ .id = id, .rank = rank, .ranks = ranks };
    only.sent = calloc((size_t)ranks, sizeof *only.sent);
    only.received = calloc((size_t)ranks, sizeof *only.received);
    *out = &only;
    snprintf(path, sizeof path, "%s/joined-%d", id.folder, rank);
    if (!getenv("FAKE_NCCL_ABSENT"))
        demand((file = fopen(path, "w")) != NULL && fclose(file) == 0, "cannot join");
    return only.sent && only.received ? IN_PROGRESS : SYSTEM_ERROR;
}

/* The second time somebody asks, what was begun is complete. */
int ncclCommGetAsyncError(void *connection, int *state)
{
    demand(connection == &only, "an unknown connection");
    only.asked++;
    *state = only.asked < 2 || !all_joined()                        ? IN_PROGRESS
             : getenv("FAKE_NCCL_BREAKS") && only.done < only.begun ? REMOTE_ERROR
                                                                    : SUCCESS;
    return SUCCESS;
}

int ncclCommFinalize(void *connection)
{
    demand(connection == &only && only.done == only.begun, "work was left undone");
    only.finalized = true;
    only.asked = 0;
    return IN_PROGRESS;
}

static void leave(void)
{
    const char *count = getenv("FAKE_NCCL_COUNT");
    FILE *file = count ? fopen(count, "a") : NULL;
    char path[PATH];

    if (file)
        fprintf(file, "%lld\n", (long long)only.most);
    if (file)
        fclose(file);
    free(only.sent);
    free(only.received);
    only.sent = only.received = NULL;
    only.done = only.begun;
    snprintf(path, sizeof path, "%s/joined-%d", only.id.folder, only.rank);
    unlink(path);
    rmdir(only.id.folder); /* the last one succeeds */
}

int ncclCommDestroy(void *connection)
{
    demand(connection == &only && only.finalized && only.asked > 1, "it was not finalized");
    leave();
    return SUCCESS;
}

int ncclCommAbort(void *connection)
{
    demand(connection == &only, "an unknown connection");
    if (only.stream)
        only.stream->done = only.stream->queued;
    leave();
    return SUCCESS;
}

int ncclGroupStart(void)
{
    demand(!grouped, "a group within a group");
    demand(only.asked > 1, "a group before somebody knows that the last call is complete");
    demand(only.begun - only.done < GROUPS, "too many exchanges in flight");
    group(only.begun)->count = 0;
    grouped = true;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    demand(grouped, "a group ends that has not begun");
    grouped = false;
    only.asked = 0;
    if (group(only.begun)->count == 0)
        return IN_PROGRESS;
    demand(only.stream->follows, "the stream does not follow the work that made the numbers");
    demand(fake_queue(only.stream, (struct fake_work){ .run = run, .exchange = true }),
           "more work than fits after an exchange that may never end");
    only.begun++;
    if (only.begun - only.done > only.most)
        only.most = only.begun - only.done;
    return IN_PROGRESS;
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
    return result == SYSTEM_ERROR   ? "unhandled system error"
           : result == REMOTE_ERROR ? "remote process exited"
                                    : "no error";
}

const char *ncclGetLastError(void *connection)
{
    (void)connection;
    return "as the test demands";
}
