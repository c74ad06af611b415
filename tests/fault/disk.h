/* disk.h - what a power cut can leave of a folder, in a model of a disk
 *
 * The changes that the library makes to a folder are recorded. A model replays them and knows at
 * each point what is certain to be on the disk and what is only under way:
 *
 *   - the content of a file is certain once the file is synced, of several ranks what the one that
 *     syncs has written, as if they were on several machines; before, any of it may be there, cut
 *     short or zeros;
 *   - a name that was made, renamed or removed is certain once its folder is synced; before, each
 *     such change may or may not have reached the disk, whatever became of the others.
 *
 * That is more than any one file system does. From each point states are drawn at random and
 * written to a real folder. Include in one file of a program. */
#ifndef DISK_H
#define DISK_H

#include "ranks.h"
#include "training.h"

#include "fault/syscalls.h"

enum { CHANGES_MAX = 4096, FILES_MAX = 512, STATES_PER_POINT = 16 };

/* ---- the recording */

struct event {
    enum change_kind kind;
    char path[PATH_BYTES], to[PATH_BYTES]; /* within the recorded folder; "" is the folder itself */
    bool creates, empties;
    char *bytes;
    size_t length;
    off_t at;
    int rank;      /* that made the change */
    int64_t saved; /* what said_saved was when this change began */
};

static struct event events[CHANGES_MAX];
static int event_count;
static int64_t
    said_saved; /* the tests' to set: the last step, say, that the library said was saved */
static char recorded_folder[PATH_BYTES];

static void copy_path(char out[PATH_BYTES], const char *path)
{
    size_t prefix = strlen(recorded_folder);

    snprintf(out, PATH_BYTES, "%s", path[prefix] == '/' ? path + prefix + 1 : path + prefix);
}

/* The folder itself is not recorded: in the model it exists from the start. */
static void record_one(const struct change *c, bool done)
{
    struct event *e = &events[event_count];

    if (!done || strncmp(c->path, recorded_folder, strlen(recorded_folder)) != 0)
        return;
    if (c->kind == CHANGE_MKDIR && strcmp(c->path, recorded_folder) == 0)
        return;
    assert_true(++event_count < CHANGES_MAX);
    *e = (struct event){
        .kind = c->kind, .length = c->length, .at = c->at, .rank = own_rank, .saved = said_saved
    };
    copy_path(e->path, c->path);
    if (c->to != NULL)
        copy_path(e->to, c->to);
    e->creates = c->kind == CHANGE_OPEN && (c->flags & O_CREAT) != 0;
    e->empties = c->kind == CHANGE_OPEN && (c->flags & O_TRUNC) != 0;
    if (c->kind == CHANGE_WRITE) {
        e->bytes = malloc(c->length);
        assert_non_null(e->bytes);
        memcpy(e->bytes, c->bytes, c->length);
    }
}

static void record(const struct change *c, bool done)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&one_at_a_time);
    record_one(c, done);
    pthread_mutex_unlock(&one_at_a_time);
}

/* ---- the disk */

struct content {
    char *bytes, *ranks; /* ranks: who wrote each byte */
    size_t length;
};

struct node {
    bool folder;
    struct content now, certain;
};

/* Paths are those of the events. */
struct name {
    const char *path;
    int node; /* -1: the name is not there */
};

struct names {
    struct name at[FILES_MAX];
    int count;
};

/* A change of a name that may not have reached the disk: `path` becomes `node`, or -1. A rename is
 * two such changes in one. */
struct pending {
    const char *path, *to; /* to: rename, else NULL */
    int node;
};

static struct {
    struct node nodes[FILES_MAX];
    int node_count;
    struct names now, certain;
    struct pending pending[FILES_MAX];
    int pending_count;
} disk;

static struct name *find_name(struct names *names, const char *path)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->at[i].path, path) == 0)
            return &names->at[i];
    assert_true(names->count < FILES_MAX);
    names->at[names->count] = (struct name){ path, -1 };
    return &names->at[names->count++];
}

/* Bytes that were not there are 0. */
static void set_length(struct content *c, size_t length, int rank)
{
    c->bytes = realloc(c->bytes, length + 1);
    c->ranks = realloc(c->ranks, length + 1);
    assert_true(c->bytes && c->ranks);
    if (length > c->length) {
        memset(c->bytes + c->length, 0, length - c->length);
        memset(c->ranks + c->length, rank, length - c->length);
    }
    c->length = length;
}

/* at -1: after the last byte */
static void change_content(struct content *c, const struct event *e)
{
    size_t from = e->at < 0 ? c->length : (size_t)e->at;

    if (from + e->length > c->length)
        set_length(c, from + e->length, e->rank);
    memcpy(c->bytes + from, e->bytes, e->length);
    memset(c->ranks + from, e->rank, e->length);
}

static void sync_content(struct node *n, int rank)
{
    set_length(&n->certain, n->now.length, rank);
    for (size_t i = 0; i < n->now.length; i++)
        if (n->now.ranks[i] == rank)
            n->certain.bytes[i] = n->now.bytes[i];
}

static bool is_in(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;

    return strlen(folder) == length && strncmp(path, folder, length) == 0;
}

static void apply(struct names *names, const struct pending *p)
{
    if (p->to) {
        int node = find_name(names, p->path)->node;
        if (node < 0)
            return; /* what was to be renamed never reached the disk */
        find_name(names, p->path)->node = -1;
        find_name(names, p->to)->node = node;
    } else {
        find_name(names, p->path)->node = p->node;
    }
}

static void change_name(const char *path, const char *to, int node)
{
    struct pending *p = &disk.pending[disk.pending_count++];

    assert_true(disk.pending_count < FILES_MAX);
    *p = (struct pending){ path, to, node };
    apply(&disk.now, p);
}

static int new_node(bool folder)
{
    assert_true(disk.node_count < FILES_MAX);
    disk.nodes[disk.node_count] = (struct node){ .folder = folder };
    return disk.node_count++;
}

static void sync_folder(const char *path)
{
    int kept = 0;

    for (int i = 0; i < disk.pending_count; i++)
        if (is_in(disk.pending[i].path, path))
            apply(&disk.certain, &disk.pending[i]);
        else
            disk.pending[kept++] = disk.pending[i];
    disk.pending_count = kept;
}

static void sync_path(const char *path, bool folders_too, int rank)
{
    int index = find_name(&disk.now, path)->node;
    struct node *node = index >= 0 ? &disk.nodes[index] : NULL;

    if (path[0] == '\0' || (node && node->folder)) {
        if (folders_too)
            sync_folder(path);
    } else {
        sync_content(node, rank);
    }
}

static void open_file(const struct event *e)
{
    int index = find_name(&disk.now, e->path)->node;

    if (index < 0 && e->creates)
        change_name(e->path, NULL, new_node(false));
    else if (e->empties)
        disk.nodes[index].now.length = 0;
}

static void replay(const struct event *e, bool folders_too)
{
    int index = find_name(&disk.now, e->path)->node;

    switch (e->kind) {
    case CHANGE_OPEN:
        open_file(e);
        break;
    case CHANGE_WRITE:
        change_content(&disk.nodes[index].now, e);
        break;
    case CHANGE_TRUNCATE:
        set_length(&disk.nodes[index].now, e->length, e->rank);
        break;
    case CHANGE_SYNC:
        sync_path(e->path, folders_too, e->rank);
        break;
    case CHANGE_RENAME:
        change_name(e->path, e->to, -1);
        break;
    case CHANGE_UNLINK:
    case CHANGE_RMDIR:
        change_name(e->path, NULL, -1);
        break;
    case CHANGE_MKDIR:
        change_name(e->path, NULL, new_node(true));
        break;
    }
}

static void clear_disk(void)
{
    for (int i = 0; i < disk.node_count; i++) {
        free(disk.nodes[i].now.bytes);
        free(disk.nodes[i].now.ranks);
        free(disk.nodes[i].certain.bytes);
        free(disk.nodes[i].certain.ranks);
    }
    memset(&disk, 0, sizeof disk);
}

/* ---- the power cut */

/* Draws number `draw` of point `point`: the first has nothing that is not certain, the second
 * everything, the others some. */
static uint64_t choose(int point, int draw, int what, uint64_t choices)
{
    if (draw == 0)
        return 0;
    if (draw == 1)
        return 1;
    return random_below(7, (uint64_t)(point * STATES_PER_POINT + draw), (uint64_t)what, choices);
}

/* 0: the certain content, 1: all that was written, 2: a part of it, 3: its length, but zeros. What
 * both begin with is there in any case. */
static void write_content(const char *path, const struct node *n, uint64_t how, uint64_t part)
{
    const struct content *c = how == 0 ? &n->certain : &n->now;
    char *bytes = calloc(1, c->length + 1);
    size_t kept = 0, length = c->length;

    assert_non_null(bytes);
    while (kept < length && kept < n->certain.length && n->certain.bytes[kept] == c->bytes[kept])
        kept++;
    if (length > 0)
        memcpy(bytes, c->bytes, how == 3 ? kept : length);
    if (how == 2 && length > kept)
        length = kept + (size_t)(part % (length - kept));
    write_file(path, bytes, length);
    free(bytes);
}

static bool is_synced(const struct node *n)
{
    return n->now.length == n->certain.length &&
           (n->now.length == 0 || memcmp(n->now.bytes, n->certain.bytes, n->now.length) == 0);
}

/* A name whose folder does not exist does not exist either. Folders precede their entries, since
 * they were made first. */
static void write_state(const char *folder, struct names *names, int point, int draw)
{
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int folders = 1; folders >= 0; folders--)
        for (int i = 0; i < names->count; i++) {
            const struct name *n = &names->at[i];
            const struct node *node = n->node >= 0 ? &disk.nodes[n->node] : NULL;
            const char *path = path_at("%s/%s", folder, n->path), *slash = strrchr(path, '/');
            if (!node || node->folder != (folders == 1))
                continue;
            if (access(path_at("%.*s", (int)(slash - path), path), F_OK) != 0)
                continue;
            if (node->folder)
                assert_int_equal(mkdir(path, 0777), 0);
            else
                write_content(path, node, is_synced(node) ? 1 : choose(point, draw, 1000 + i, 4),
                              choose(point, draw, 2000 + i, 1 << 20));
        }
}

static void cut_power(const char *folder, int point, int draw)
{
    static struct names names;

    names = disk.certain;
    for (int i = 0; i < disk.pending_count; i++)
        if (choose(point, draw, i, 2) != 0)
            apply(&names, &disk.pending[i]);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    write_state(folder, &names, point, draw);
}

static void forget_changes(void)
{
    clear_disk();
    for (int i = 0; i < event_count; i++)
        free(events[i].bytes);
    event_count = 0;
}

#endif
