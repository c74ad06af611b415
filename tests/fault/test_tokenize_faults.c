/* test_tokenize_faults.c - a tokenizing that is killed, cut from power, or refused memory or disk at any point leaves its
 * finished shards whole, leaks nothing, and goes on to the bytes of one that nothing happened to */
#include "training.h"

#include <omp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fault/disk.h"
#include "text/tokenize.h"

enum { FILES = 2, SHARD_TOKENS = 150 };

#ifdef __SANITIZE_ADDRESS__
enum { STRIDE = 5 }; /* every fifth point: the others are left to the build that is not slowed down */
#else
enum { STRIDE = 1 };
#endif

struct scene {
    char *folder, whole[256], shards[256], text[FILES][256];
    const char *paths[FILES];
    alibi_tokenizer *tokenizer;
    struct alibi_tokenize_result result;
};

static alibi_status tokenize(struct scene *s, const char *folder)
{
    return alibi_tokenize(s->tokenizer, s->paths, FILES, NULL, SHARD_TOKENS, folder, &s->result);
}

static void write_texts(struct scene *s)
{
    for (int i = 0; i < FILES; i++) {
        char text[1200];
        size_t used = 0;
        for (int word = 0; used < sizeof text - 32; word++)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "river's %d%s", word * word % 89, word % 7 ? " bank " : "\n");
        snprintf(s->text[i], sizeof s->text[i], "%s/text-%d", s->folder, i);
        write_file(s->text[i], text, used - (size_t)i);
        s->paths[i] = s->text[i];
    }
}

/* `whole` is the folder that nothing happens to. */
static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    char pattern[] = "gpt2";
    struct alibi_vocabulary how = { .type = ALIBI_BPE, .vocab = 270, .min_count = 2, .pattern = pattern };

    assert_non_null(s);
    s->folder = fast_folder();
    snprintf(s->whole, sizeof s->whole, "%s/whole", s->folder);
    snprintf(s->shards, sizeof s->shards, "%s/shards", s->folder);
    write_texts(s);
    assert_ok(alibi_tokenizer_train(&s->tokenizer, &how, s->paths, FILES, NULL));
    encoding_block_bytes = 300;
    snprintf(recorded_folder, sizeof recorded_folder, "%s", s->whole);
    watch = record;
    assert_ok(tokenize(s, s->whole));
    watch = NULL;
    assert_true(s->result.shards > 4);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;

    alibi_set_hooks(NULL);
    watch = NULL;
    pretended_space = -1;
    longest_transfer = 0;
    forget_changes();
    remove_temporary_folder(s->folder);
    alibi_tokenizer_free(s->tokenizer);
    free(s);
    return alibi_memory_now() != 0;
}

static void clear_shards(struct scene *s)
{
    nftw(s->shards, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- what must hold after anything */

/* Finished shards that are known to a folder; those that are known are there, with the bytes they should have. */
static int64_t count_finished(struct scene *s)
{
    struct progress p = { 0 };
    struct shard_index x = { 0 };
    int64_t finished = 0;

    if (access(path_at("%s/" SHARD_INDEX, s->shards), F_OK) == 0) {
        assert_ok(shard_index_read(&x, s->shards));
        finished = x.entry_count;
    } else if (access(path_at("%s/" SHARD_PROGRESS, s->shards), F_OK) == 0) {
        assert_ok(progress_read(&p, s->shards));
        finished = p.shards.count;
    }
    for (int64_t i = 0; i < finished; i++)
        assert_same_file(s->whole, s->shards, x.entries != NULL ? x.entries[i].name : p.shards.at[i].name);
    shard_index_fini(&x);
    progress_fini(&p);
    return finished;
}

static void assert_same_shards(struct scene *s)
{
    char **names = NULL, **others = NULL;
    int count = 0, other_count = 0;

    assert_ok(folder_list(&names, &count, s->whole));
    assert_ok(folder_list(&others, &other_count, s->shards));
    assert_int_equal(count, other_count);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], "lock") != 0)
            assert_same_file(s->whole, s->shards, names[i]);
    names_free(names, count);
    names_free(others, other_count);
}

static void assert_goes_on_to_the_same(struct scene *s)
{
    assert_ok(tokenize(s, s->shards));
    assert_same_shards(s);
}

/* ---- kill -9 before, inside and after every call that changes a file */

enum moment { BEFORE, INSIDE, AFTER, MOMENTS };

/* Shared with the child: the calls it made, and the finished shards it had put down when it died. */
static struct news {
    long calls;
    int64_t saved;
} * news;

static struct {
    long call; /* the one to die at, from 1 */
    enum moment moment;
} death;

static void die(void)
{
    kill(getpid(), SIGKILL);
}

static bool ends_with(const char *path, const char *name)
{
    size_t length = strlen(path), bytes = strlen(name);

    return length >= bytes && strcmp(path + length - bytes, name) == 0;
}

static void watch_for_death(const struct change *c, bool done)
{
    if (!done)
        news->calls++;
    if (done && c->kind == CHANGE_RENAME && ends_with(c->to, SHARD_PROGRESS))
        news->saved++; /* the first is of no shard */
    if (news->calls != death.call)
        return;
    if (death.moment == INSIDE && !done && c->kind == CHANGE_WRITE) {
        if (c->over)
            syscall(SYS_pwrite64, c->fd, c->bytes, c->length / 2, 0);
        else
            syscall(SYS_write, c->fd, c->bytes, c->length / 2);
        die();
    }
    if (death.moment == (done ? AFTER : BEFORE))
        die();
}

/* True if the child died. */
static bool tokenize_in_child(struct scene *s)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        news->calls = 0;
        watch = watch_for_death;
        _exit(tokenize(s, s->shards) != ALIBI_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

static void new_news(void)
{
    news = mmap(NULL, sizeof *news, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(news != MAP_FAILED);
}

static void killed_at_any_call_it_keeps_its_shards_and_goes_on(void **state)
{
    struct scene *s = *state;
    long calls, deaths = 0;

    new_news();
    death.call = 0;
    assert_false(tokenize_in_child(s));
    calls = news->calls;
    for (int moment = BEFORE; moment < MOMENTS; moment++)
        for (death.call = 1; death.call <= calls; death.call += STRIDE) {
            clear_shards(s);
            death.moment = (enum moment)moment;
            news->saved = 0;
            deaths += tokenize_in_child(s);
            assert_true(count_finished(s) >= news->saved - 1);
            assert_goes_on_to_the_same(s);
        }
    print_message("%ld calls change a file; %ld deaths, nothing lost\n", calls, deaths);
    assert_true(deaths >= 2 * calls / STRIDE);
    munmap(news, sizeof *news);
}

static void killed_again_and_again_it_gets_there(void **state)
{
    struct scene *s = *state;
    int64_t finished = 0;
    int deaths = 0;

    new_news();
    death.moment = BEFORE;
    for (death.call = 3; death.call < 1000; death.call += 4) {
        if (!tokenize_in_child(s))
            break;
        deaths++;
        assert_true(count_finished(s) >= finished);
        finished = count_finished(s);
    }
    assert_true(deaths > 5);
    assert_goes_on_to_the_same(s);
    munmap(news, sizeof *news);
}

/* ---- a power cut */

/* How many states, of all points, do not go on to the same shards. */
static long count_lost(struct scene *s, bool folders_too, long *states)
{
    long lost = 0;

    *states = 0;
    clear_disk();
    for (int point = 0; point < event_count; point++) {
        replay(&events[point], folders_too);
        for (int draw = 0; point % STRIDE == 0 && draw < STATES_PER_POINT; draw++) {
            cut_power(s->shards, point, draw);
            ++*states;
            if (tokenize(s, s->shards) != ALIBI_OK)
                lost++;
            else if (folders_too)
                assert_same_shards(s);
        }
    }
    return lost;
}

static void no_power_cut_keeps_it_from_going_on(void **state)
{
    long states, lost = count_lost(*state, true, &states);

    print_message("%d changes, %ld states after a power cut, %ld lost\n", event_count, states, lost);
    assert_int_equal(lost, 0);
}

static void what_is_finished_survives_a_power_cut(void **state)
{
    struct scene *s = *state;

    clear_disk();
    for (int point = 0; point < event_count; point++)
        replay(&events[point], true);
    for (int draw = 0; draw < STATES_PER_POINT; draw++) {
        cut_power(s->shards, event_count, draw);
        assert_int_equal(count_finished(s), s->result.shards);
    }
}

static void without_the_syncs_of_folders_the_model_loses_shards(void **state)
{
    long states, lost = count_lost(*state, false, &states);

    print_message("control: %ld states lost\n", lost);
    assert_true(lost > 0);
}

/* ---- the n-th allocation or file operation fails */

enum { MANY = 1 << 20 };

static alibi_status probe(const char *how)
{
    void *p = NULL;
    int64_t bytes;
    alibi_status status = strcmp(how, "memory") == 0 ? mem_new(&p, 1, "a probe") : folder_free_space(&bytes, "/");

    mem_free(p);
    return status;
}

/* What is left of MANY when the job returns is used up one by one. */
static int64_t count_calls(struct scene *s, const char *how)
{
    int64_t left = 1;

    assert_ok(alibi_inject_fault(how, MANY));
    assert_ok(tokenize(s, s->shards));
    while (probe(how) == ALIBI_OK)
        left++;
    return MANY - left;
}

/* Stops when a few shards are finished, so that going on is tried too. */
static void stop_in_the_middle(void *user, const struct alibi_progress *p)
{
    (void)user;
    if (p->done > p->total / 2)
        alibi_request_stop();
}

static void prepare(struct scene *s, bool begun)
{
    clear_shards(s);
    if (!begun)
        return;
    alibi_set_hooks(&(struct alibi_hooks){ NULL, stop_in_the_middle, NULL });
    assert_int_equal(tokenize(s, s->shards), ALIBI_INTERRUPTED);
    alibi_set_hooks(NULL);
}

static void fail_each(struct scene *s, const char *how, bool begun, alibi_status expected, bool may_succeed)
{
    int64_t calls, failures = 0;
    size_t before = alibi_memory_now();

    prepare(s, begun);
    calls = count_calls(s, how);
    for (int64_t n = 1; n <= calls; n += STRIDE) {
        alibi_status status;
        prepare(s, begun);
        assert_ok(alibi_inject_fault(how, n));
        status = tokenize(s, s->shards);
        assert_ok(alibi_inject_fault(how, 0));
        if (status != expected && !(may_succeed && status == ALIBI_OK))
            fail_msg("%s call %lld of %lld: status %d: %s", how, (long long)n, (long long)calls, (int)status, alibi_error());
        assert_int_equal(alibi_memory_now(), before);
        failures += status != ALIBI_OK;
        count_finished(s);
        assert_goes_on_to_the_same(s);
    }
    print_message("%lld %s calls, %lld failed cleanly\n", (long long)calls, how, (long long)failures);
    assert_true(failures > 0);
}

static void every_failing_allocation_is_a_clean_error(void **state)
{
    fail_each(*state, "memory", false, ALIBI_MEMORY, false);
    fail_each(*state, "memory", true, ALIBI_MEMORY, false);
}

/* What fails while a file that was read is only closed costs nothing. */
static void every_failing_file_operation_is_a_clean_error(void **state)
{
    fail_each(*state, "file", false, ALIBI_IO, true);
    fail_each(*state, "file", true, ALIBI_IO, true);
}

/* ---- disks that are full or slow */

static void a_full_disk_is_seen_before_a_shard_is_begun(void **state)
{
    struct scene *s = *state;

    prepare(s, true);
    pretended_space = 1024 + 20;
    assert_fails(tokenize(s, s->shards), ALIBI_IO, "/shards' has 1044 free");
    pretended_space = -1;
    assert_goes_on_to_the_same(s);
}

static void short_reads_and_writes_are_continued(void **state)
{
    struct scene *s = *state;

    longest_transfer = 13;
    assert_ok(tokenize(s, s->shards));
    longest_transfer = 0;
    assert_same_shards(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(killed_at_any_call_it_keeps_its_shards_and_goes_on),
        TEST(killed_again_and_again_it_gets_there),
        TEST(no_power_cut_keeps_it_from_going_on),
        TEST(what_is_finished_survives_a_power_cut),
        TEST(without_the_syncs_of_folders_the_model_loses_shards),
        TEST(every_failing_allocation_is_a_clean_error),
        TEST(every_failing_file_operation_is_a_clean_error),
        TEST(a_full_disk_is_seen_before_a_shard_is_begun),
        TEST(short_reads_and_writes_are_continued),
    };

    omp_set_num_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
