/* test_crash_states.c - what a power cut can leave of a run, at every point of it, in a model of a disk
 *
 * The changes that a run makes to its folder are recorded. A model replays them and knows at each point what is certain to be on
 * the disk and what is only under way:
 *
 *   - the content of a file is certain once the file is synced; before, any of it may be there, cut short or zeros;
 *   - a name that was made, renamed or removed is certain once its folder is synced; before, each such change may or may not have
 *     reached the disk, whatever became of the others.
 *
 * That is more than any one file system does. From each point states are drawn at random, written to a real folder, and what the
 * library finds there is compared with what it had said was saved. A control shows that the model bites: without the syncs of
 * folders, checkpoints are lost. */
#include "training.h"

#include <omp.h>

#include "fault/syscalls.h"

enum { STEPS = 4, CHANGES_MAX = 4096, FILES_MAX = 512, STATES_PER_POINT = 16, RESUME_EVERY = 29 };

#ifdef __SANITIZE_ADDRESS__
enum { STRIDE = 5 }; /* every fifth point: the others are left to the build that is not slowed down */
#else
enum { STRIDE = 1 };
#endif

/* ---- the recording */

struct event {
    enum change_kind kind;
    char path[PATH_BYTES], to[PATH_BYTES]; /* within the run's folder; "" is the folder itself */
    bool creates, empties;
    char *bytes;
    size_t length;
    int64_t saved; /* the step that was last said to be saved when this change began */
};

static struct event events[CHANGES_MAX];
static int event_count;
static int64_t said_saved;
static char recorded_run[PATH_BYTES];

static void copy_path(char out[PATH_BYTES], const char *path)
{
    size_t prefix = strlen(recorded_run);

    snprintf(out, PATH_BYTES, "%s", path[prefix] == '/' ? path + prefix + 1 : path + prefix);
}

/* The making of the run's folder is left out: in the model it is there from the start. */
static void record(const struct change *c, bool done)
{
    struct event *e = &events[event_count];

    if (!done || strncmp(c->path, recorded_run, strlen(recorded_run)) != 0)
        return;
    if (c->kind == CHANGE_MKDIR && strcmp(c->path, recorded_run) == 0)
        return;
    assert_true(++event_count < CHANGES_MAX);
    *e = (struct event){ .kind = c->kind, .length = c->length, .saved = said_saved };
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

static void note_saved(void *user, enum alibi_log_level level, const char *line)
{
    long long step;

    (void)user;
    (void)level;
    if (sscanf(line, "saved step %lld in", &step) == 1)
        said_saved = step;
}

/* ---- the disk */

struct content {
    char *bytes;
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

/* A change of a name that may not have reached the disk: `path` becomes `node`, or -1. A rename is two such changes in one. */
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

static void set_content(struct content *c, const char *bytes, size_t length)
{
    char *copy = malloc(length + 1);

    assert_non_null(copy);
    if (length > 0)
        memcpy(copy, bytes, length);
    free(c->bytes);
    *c = (struct content){ copy, length };
}

static void append_content(struct content *c, const char *bytes, size_t length)
{
    c->bytes = realloc(c->bytes, c->length + length + 1);
    assert_non_null(c->bytes);
    memcpy(c->bytes + c->length, bytes, length);
    c->length += length;
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

static void sync_path(const char *path, bool folders_too)
{
    int index = find_name(&disk.now, path)->node;
    struct node *node = index >= 0 ? &disk.nodes[index] : NULL;

    if (path[0] == '\0' || (node && node->folder)) {
        if (folders_too)
            sync_folder(path);
    } else {
        set_content(&node->certain, node->now.bytes, node->now.length);
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
        append_content(&disk.nodes[index].now, e->bytes, e->length);
        break;
    case CHANGE_TRUNCATE:
        assert_true(e->length <= disk.nodes[index].now.length);
        disk.nodes[index].now.length = e->length;
        break;
    case CHANGE_SYNC:
        sync_path(e->path, folders_too);
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
        free(disk.nodes[i].certain.bytes);
    }
    memset(&disk, 0, sizeof disk);
}

/* ---- the power cut */

/* Draws number `draw` of point `point`: the first has nothing that is not certain, the second everything, the others some. */
static uint64_t choose(int point, int draw, int what, uint64_t choices)
{
    if (draw == 0)
        return 0;
    if (draw == 1)
        return 1;
    return random_below(7, (uint64_t)(point * STATES_PER_POINT + draw), (uint64_t)what, choices);
}

/* 0: what is certain, 1: what was written, 2: a part of it, 3: its length, and zeros. */
static void write_content(const char *path, const struct node *n, uint64_t how, uint64_t part)
{
    const struct content *c = how == 0 ? &n->certain : &n->now;
    char *zeros = calloc(1, c->length + 1);

    assert_non_null(zeros);
    if (c->length == 0 || how == 3)
        write_file(path, zeros, c->length);
    else
        write_file(path, c->bytes, how == 2 ? (size_t)(part % c->length) : c->length);
    free(zeros);
}

static bool is_synced(const struct node *n)
{
    return n->now.length == n->certain.length &&
           (n->now.length == 0 || memcmp(n->now.bytes, n->certain.bytes, n->now.length) == 0);
}

/* Names whose folder is not there are not there either: folders come before what is in them, by the order of their making. */
static void write_state(const char *run, struct names *names, int point, int draw)
{
    assert_int_equal(mkdir(run, 0777), 0);
    for (int folders = 1; folders >= 0; folders--)
        for (int i = 0; i < names->count; i++) {
            const struct name *n = &names->at[i];
            const struct node *node = n->node >= 0 ? &disk.nodes[n->node] : NULL;
            const char *path = path_at("%s/%s", run, n->path), *slash = strrchr(path, '/');
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

static void cut_power(const char *run, int point, int draw)
{
    static struct names names;

    names = disk.certain;
    for (int i = 0; i < disk.pending_count; i++)
        if (choose(point, draw, i, 2) != 0)
            apply(&names, &disk.pending[i]);
    nftw(run, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    write_state(run, &names, point, draw);
}

/* ---- what is found */

/* The step of the newest checkpoint that verifies, 0 if there is none, -1 if there are only broken ones. */
static int64_t find_step(const char *run)
{
    char *path = NULL;
    int64_t step = -1;

    if (checkpoint_find(&path, run) == ALIBI_OK)
        step = path ? strtoll(strrchr(path, '-') + 1, NULL, 10) : 0;
    mem_free(path);
    return step;
}

struct place {
    char *folder, whole[256], run[256];
    alibi_corpus *corpus;
    struct alibi_config config;
    struct alibi_training training;
    struct alibi_train_result result;
};

static void resume(struct place *p)
{
    assert_ok(alibi_train(&p->config, &p->training, p->corpus, p->run, true, &p->result));
    assert_same_run(p->whole, p->run, STEPS);
}

/* How many states, of all points, have lost what was said to be saved. */
static long count_lost(struct place *p, bool folders_too, bool resuming, long *states)
{
    struct listener l;
    long lost = 0;

    *states = 0;
    clear_disk();
    for (int point = 0; point < event_count; point++) {
        int64_t saved = point + 1 < event_count ? events[point + 1].saved : said_saved;
        replay(&events[point], folders_too);
        for (int draw = 0; point % STRIDE == 0 && draw < STATES_PER_POINT; draw++) {
            cut_power(p->run, point, draw);
            listen_to(&l, 0);
            lost += find_step(p->run) < saved || strstr(l.log, "passing over") != NULL;
            if (resuming && ++*states % RESUME_EVERY == 0)
                resume(p);
        }
    }
    alibi_set_hooks(NULL);
    return lost;
}

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->folder = fast_folder();
    snprintf(p->whole, sizeof p->whole, "%s/whole", p->folder);
    snprintf(p->run, sizeof p->run, "%s/run", p->folder);
    snprintf(recorded_run, sizeof recorded_run, "%s", p->whole);
    p->corpus = tiny_corpus("river");
    p->config = tiny_config();
    p->training = tiny_training(STEPS, 1);
    alibi_set_hooks(&(struct alibi_hooks){ NULL, NULL, note_saved });
    watch = record;
    assert_ok(alibi_train(&p->config, &p->training, p->corpus, p->whole, false, &p->result));
    watch = NULL;
    alibi_set_hooks(NULL);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;

    clear_disk();
    for (int i = 0; i < event_count; i++)
        free(events[i].bytes);
    remove_temporary_folder(p->folder);
    alibi_corpus_free(p->corpus);
    free(p);
    return alibi_memory_now() != 0;
}

static void no_power_cut_loses_what_was_saved(void **state)
{
    long states, lost = count_lost(*state, true, true, &states);

    print_message("%d changes, %ld states after a power cut, %ld lost\n", event_count, states, lost);
    assert_int_equal(said_saved, STEPS);
    assert_int_equal(lost, 0);
}

static void without_the_syncs_of_folders_the_model_loses_checkpoints(void **state)
{
    long states, lost = count_lost(*state, false, false, &states);

    print_message("control: %ld states lost\n", lost);
    assert_true(lost > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_power_cut_loses_what_was_saved),
        cmocka_unit_test(without_the_syncs_of_folders_the_model_loses_checkpoints),
    };

    omp_set_num_threads(1);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
