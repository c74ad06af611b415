/* test_faults.c - a run that is killed, or refused memory or disk, at any point leaves its last checkpoint whole, leaks nothing,
 * and resumes to the bytes of a run that nothing happened to */
#include "training.h"

#include <errno.h>
#include <omp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fault/syscalls.h"

enum { STEPS = 3 }; /* each saved */

#ifdef __SANITIZE_ADDRESS__
enum { STRIDE = 5 }; /* every fifth point: the others are left to the build that is not slowed down */
#else
enum { STRIDE = 1 };
#endif

struct site {
    char *folder, whole[256], run[256];
    alibi_corpus *corpus;
    struct alibi_config config;
    struct alibi_training training;
    struct listener listener;
    struct alibi_train_result result;
};

static alibi_status train(struct site *p, const char *run, bool resume)
{
    return alibi_train(&p->config, &p->training, p->corpus, run, resume, &p->result);
}

/* `whole` is the run that nothing happens to. */
static int set_up(void **state)
{
    struct site *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->folder = fast_folder();
    snprintf(p->whole, sizeof p->whole, "%s/whole", p->folder);
    snprintf(p->run, sizeof p->run, "%s/run", p->folder);
    p->corpus = tiny_corpus("river");
    p->config = tiny_config();
    p->training = tiny_training(STEPS, 1);
    listen_to(&p->listener, 0);
    assert_ok(train(p, p->whole, false));
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct site *p = *state;

    alibi_set_hooks(NULL);
    watch = NULL;
    pretended_space = -1;
    longest_transfer = 0;
    remove_temporary_folder(p->folder);
    alibi_corpus_free(p->corpus);
    free(p);
    return alibi_memory_now() != 0;
}

static void clear_run(struct site *p)
{
    nftw(p->run, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- what must hold after anything */

/* The newest checkpoint that verifies is not older than `saved`, and there is one if something was saved. */
static void assert_nothing_lost(struct site *p, int64_t saved)
{
    char *path = NULL;
    int64_t found = 0;

    if (access(p->run, F_OK) == 0)
        assert_ok(checkpoint_find(&path, p->run));
    if (path != NULL)
        found = strtoll(strrchr(path, '-') + 1, NULL, 10);
    mem_free(path);
    if (found < saved)
        fail_msg("step %lld was said to be saved, step %lld is found", (long long)saved, (long long)found);
}

static void assert_resumes_to_the_same(struct site *p)
{
    assert_ok(train(p, p->run, true));
    assert_same_run(p->whole, p->run, STEPS);
}

/* ---- what it happens to */

/* Something to do, from a folder that was made ready for it. */
struct job {
    void (*prepare)(struct site *p);
    alibi_status (*act)(struct site *p);
    bool trains;
};

static alibi_status train_or_resume(struct site *p)
{
    return train(p, p->run, true);
}

static void stop_at_step_1(struct site *p)
{
    clear_run(p);
    listen_to(&p->listener, 1);
    assert_int_equal(train(p, p->run, false), ALIBI_INTERRUPTED);
    listen_to(&p->listener, 0);
}

static alibi_status open_model(struct site *p)
{
    alibi_model *m = NULL;
    alibi_status status = alibi_model_open(&m, step_path(p->whole, STEPS));

    alibi_model_free(m);
    return status;
}

static alibi_status inspect(struct site *p)
{
    char *text = NULL;
    alibi_status status = alibi_inspect(&text, step_path(p->whole, STEPS), true);

    alibi_text_free(text);
    return status;
}

static const struct job train_anew = { clear_run, train_or_resume, true };
static const struct job train_on = { stop_at_step_1, train_or_resume, true };
static const struct job open_one = { clear_run, open_model, false };
static const struct job inspect_one = { clear_run, inspect, false };

/* ---- kill -9 before, inside and after every call that changes a file */

enum moment { BEFORE, INSIDE, AFTER, MOMENTS };

static struct {
    long call; /* the one to die at, from 1 */
    enum moment moment;
    long calls;
} death;

static void die(void)
{
    kill(getpid(), SIGKILL);
}

static void watch_for_death(const struct change *c, bool done)
{
    if (!done)
        death.calls++;
    if (death.calls != death.call)
        return;
    if (death.moment == INSIDE && !done && c->kind == CHANGE_WRITE) {
        syscall(SYS_write, c->fd, c->bytes, c->length / 2);
        die();
    }
    if (death.moment == (done ? AFTER : BEFORE))
        die();
}

/* Shared with the child: the last step that it said was saved, and the calls it made if it lived. */
struct news {
    int64_t saved;
    long calls;
};

static void note_saved(void *user, enum alibi_log_level level, const char *line)
{
    struct news *news = user;
    long long step;

    (void)level;
    if (sscanf(line, "saved step %lld in", &step) == 1)
        news->saved = step;
}

/* True if the child died. */
static bool train_in_child(struct site *p, struct news *news)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        alibi_set_hooks(&(struct alibi_hooks){ news, NULL, note_saved });
        death.calls = 0;
        watch = watch_for_death;
        status = train(p, p->run, true) != ALIBI_OK;
        news->calls = death.calls;
        _exit(status);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

static struct news *new_news(void)
{
    void *shared = mmap(NULL, sizeof(struct news), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(shared != MAP_FAILED);
    return shared;
}

static void kill_at_each_call(struct site *p, const struct job *job)
{
    struct news *news = new_news();
    long calls, deaths = 0;

    job->prepare(p);
    death.call = 0;
    assert_false(train_in_child(p, news));
    calls = news->calls;
    for (int moment = BEFORE; moment < MOMENTS; moment++)
        for (long call = 1; call <= calls; call += STRIDE) {
            job->prepare(p);
            news->saved = job == &train_on ? 1 : 0;
            death.call = call;
            death.moment = (enum moment)moment;
            deaths += train_in_child(p, news);
            assert_nothing_lost(p, news->saved);
            assert_resumes_to_the_same(p);
        }
    print_message("%ld calls change a file; %ld deaths, nothing lost\n", calls, deaths);
    assert_true(deaths >= 2 * calls / STRIDE);
    munmap(news, sizeof *news);
}

static void a_run_killed_at_any_call_loses_nothing_that_was_saved(void **state)
{
    kill_at_each_call(*state, &train_anew);
    kill_at_each_call(*state, &train_on);
}

/* Dies at call 1, 1 + stride, ... of one resume after another, until one lives. */
static void a_run_killed_again_and_again_gets_there(void **state)
{
    struct site *p = *state;
    struct news *news = new_news();
    int deaths = 0;

    for (long call = 1; call < 1000; call += 7) {
        death.call = call;
        death.moment = call % 2 ? BEFORE : AFTER;
        if (!train_in_child(p, news))
            break;
        deaths++;
        assert_nothing_lost(p, news->saved);
    }
    assert_true(deaths > 5);
    assert_resumes_to_the_same(p);
    munmap(news, sizeof *news);
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

/* How many calls of that kind the job makes: what is left of MANY when it returns is used up one by one. */
static int64_t count_calls(const char *how, const struct job *job, struct site *p)
{
    int64_t left = 1;

    job->prepare(p);
    assert_ok(alibi_inject_fault(how, MANY));
    assert_ok(job->act(p));
    while (probe(how) == ALIBI_OK)
        left++;
    return MANY - left;
}

/* Every call of that kind fails once. `expected` is the only failure allowed; `may_succeed`: some failures are made good. */
static void fail_each(struct site *p, const char *how, const struct job *job, alibi_status expected, bool may_succeed)
{
    int64_t calls = count_calls(how, job, p), failures = 0;
    size_t before = alibi_memory_now();

    for (int64_t n = 1; n <= calls; n += STRIDE) {
        alibi_status status;
        job->prepare(p);
        assert_ok(alibi_inject_fault(how, n));
        status = job->act(p);
        assert_ok(alibi_inject_fault(how, 0));
        if (status != expected && !(may_succeed && status == ALIBI_OK))
            fail_msg("%s call %lld of %lld: status %d: %s", how, (long long)n, (long long)calls, (int)status, alibi_error());
        assert_int_equal(alibi_memory_now(), before);
        failures += status != ALIBI_OK;
        if (job->trains) {
            assert_nothing_lost(p, job == &train_on ? 1 : 0);
            assert_resumes_to_the_same(p);
        }
    }
    print_message("%lld %s calls, %lld failed cleanly\n", (long long)calls, how, (long long)failures);
    assert_true(failures > 0);
}

static void every_failing_allocation_is_a_clean_error(void **state)
{
    fail_each(*state, "memory", &train_anew, ALIBI_MEMORY, false);
    fail_each(*state, "memory", &train_on, ALIBI_MEMORY, false);
    fail_each(*state, "memory", &open_one, ALIBI_MEMORY, false);
    fail_each(*state, "memory", &inspect_one, ALIBI_MEMORY, false);
}

/* A save that fails is written once more, and what fails while it is only closed costs nothing: so some runs go on. */
static void every_failing_file_operation_is_a_clean_error_or_made_good(void **state)
{
    fail_each(*state, "file", &train_anew, ALIBI_IO, true);
    fail_each(*state, "file", &train_on, ALIBI_IO, true);
    fail_each(*state, "file", &open_one, ALIBI_IO, true);
    fail_each(*state, "file", &inspect_one, ALIBI_IO, true);
}

/* ---- a save that fails, and fails again when it is written once more */

static struct {
    int64_t again; /* the file operation of the second attempt that fails, from 1 */
    bool written_again;
} stubborn;

static void fail_again(void *user, enum alibi_log_level level, const char *line)
{
    (void)user;
    (void)level;
    if (strstr(line, "is written once more") != NULL) {
        stubborn.written_again = true;
        alibi_inject_fault("file", stubborn.again);
    }
}

/* Fails the first sync of a part of step 2. */
static void fail_first_sync(const struct change *c, bool done)
{
    if (!done && !stubborn.written_again && c->kind == CHANGE_WRITE && strstr(c->path, "step-00000002/model.safetensors") != NULL)
        alibi_inject_fault("file", 1);
}

static void a_save_that_fails_twice_leaves_the_one_before(void **state)
{
    struct site *p = *state;
    int failures = 0;

    for (int64_t again = 1; again < 200; again += STRIDE) {
        alibi_status status;
        clear_run(p);
        stubborn.again = again;
        stubborn.written_again = false;
        watch = fail_first_sync;
        alibi_set_hooks(&(struct alibi_hooks){ NULL, NULL, fail_again });
        status = train(p, p->run, false);
        watch = NULL;
        alibi_inject_fault("file", 0);
        listen_to(&p->listener, 0);
        assert_true(stubborn.written_again);
        if (status == ALIBI_OK)
            break; /* the second failure came after the save */
        assert_int_equal(status, ALIBI_IO);
        failures++;
        assert_nothing_lost(p, 1);
        assert_resumes_to_the_same(p);
    }
    assert_true(failures > 5);
}

/* ---- disks that are full, slow or wrong */

static void a_full_disk_is_seen_before_anything_is_written(void **state)
{
    struct site *p = *state;

    listen_to(&p->listener, 1);
    assert_fails(train(p, p->run, false), ALIBI_INTERRUPTED, "step 1");
    listen_to(&p->listener, 0);
    pretended_space = 4096;
    assert_fails(train(p, p->run, true), ALIBI_IO, "/run' has 4096 free");
    assert_int_not_equal(access(step_path(p->run, 2), F_OK), 0);
    pretended_space = -1;
    assert_nothing_lost(p, 1);
    assert_resumes_to_the_same(p);
}

static void short_reads_and_writes_are_continued(void **state)
{
    struct site *p = *state;

    longest_transfer = 13;
    assert_ok(train(p, p->run, false));
    assert_ok(open_model(p));
    longest_transfer = 0;
    assert_same_run(p->whole, p->run, STEPS);
}

static int wrong_bytes_left;

/* Alters a part behind the library's back, after it was synced and before it is read back. */
static void alter_part(const struct change *c, bool done)
{
    char path[PATH_BYTES];
    int fd;

    if (!done || c->kind != CHANGE_RENAME || strstr(c->path, "step-00000002/manifest.json.tmp") == NULL || wrong_bytes_left == 0)
        return;
    wrong_bytes_left--;
    snprintf(path, sizeof path, "%.*s/model.safetensors", (int)(strrchr(c->path, '/') - c->path), c->path);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY, 0);
    assert_int_equal(syscall(SYS_pwrite64, fd, "\377", 1, 1000), 1);
    close(fd);
}

static void what_does_not_read_back_is_written_once_more(void **state)
{
    struct site *p = *state;

    watch = alter_part;
    wrong_bytes_left = 1;
    assert_ok(train(p, p->run, false));
    assert_int_equal(wrong_bytes_left, 0);
    assert_same_run(p->whole, p->run, STEPS);

    clear_run(p);
    wrong_bytes_left = 2;
    assert_fails(train(p, p->run, false), ALIBI_IO, "does not read back");
    watch = NULL;
    assert_nothing_lost(p, 1);
    assert_resumes_to_the_same(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_killed_at_any_call_loses_nothing_that_was_saved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_killed_again_and_again_gets_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_failing_allocation_is_a_clean_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_failing_file_operation_is_a_clean_error_or_made_good, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_save_that_fails_twice_leaves_the_one_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_seen_before_anything_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_reads_and_writes_are_continued, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_read_back_is_written_once_more, set_up, tear_down),
    };

    omp_set_num_threads(1); /* a child of fork has no other threads to wait for */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
