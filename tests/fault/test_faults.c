/* test_faults.c - a run that is killed, or refused memory or disk, at any point leaves its last
 * checkpoint whole, leaks nothing, and resumes to the bytes of a run that nothing happened to */
#include "fault/trials.h"

#include <omp.h>

#include "fault/together.h"

enum { STEPS = 3 }; /* each saved */

/* `whole` is the run that nothing happens to. */
static int set_up(void **state)
{
    struct site *p = new_site(STEPS, 1);

    assert_ok(train_at(p, p->whole, false));
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    end_trials();
    return drop_site(state);
}

static void clear_run(void *subject)
{
    struct site *p = subject;

    nftw(p->run, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- what must hold after anything */

/* The newest checkpoint that verifies is not older than `saved`, and there is one if something was
 * saved. */
static void assert_nothing_lost(struct site *p, int64_t saved)
{
    char *path = NULL;
    int64_t found = 0;

    if (access(p->run, F_OK) == 0)
        assert_ok(checkpoint_find(&path, p->run, NULL));
    if (path != NULL)
        found = strtoll(strrchr(path, '-') + 1, NULL, 10);
    mem_free(path);
    if (found < saved)
        fail_msg("step %lld was said to be saved, step %lld is found", (long long)saved,
                 (long long)found);
}

static void assert_resumes_to_the_same(struct site *p)
{
    assert_ok(train_at(p, p->run, true));
    assert_same_run(p->whole, p->run, STEPS);
}

static void verify_run(void *subject, int64_t saved)
{
    assert_nothing_lost(subject, saved);
    assert_resumes_to_the_same(subject);
}

/* ---- what it happens to */

static alibi_status train_or_resume(void *subject)
{
    struct site *p = subject;

    return train_at(p, p->run, true);
}

static void note_saved(void *user, enum alibi_log_level level, const char *line)
{
    long long step;

    (void)user;
    (void)level;
    if (sscanf(line, "saved step %lld in", &step) == 1)
        news->saved = step;
}

/* For a child: what it says is saved is news. */
static alibi_status train_and_tell(void *subject)
{
    struct site *p = subject;

    p->call = &(struct alibi_call){ .log = note_saved };
    return train_or_resume(subject);
}

static void stop_at_step_1(void *subject)
{
    struct site *p = subject;

    clear_run(p);
    listen_to(&p->listener, 1);
    assert_int_equal(train_at(p, p->run, false), ALIBI_INTERRUPTED);
    listen_to(&p->listener, 0);
}

static alibi_status open_model(void *subject)
{
    struct site *p = subject;
    alibi_model *m = NULL;
    alibi_status status = alibi_model_open(&m, test_device(), step_path(p->whole, STEPS), NULL);

    alibi_model_free(m);
    return status;
}

static alibi_status inspect(void *subject)
{
    struct site *p = subject;
    char *text = NULL;
    alibi_status status = alibi_inspect(&text, step_path(p->whole, STEPS), true, test_call());

    alibi_text_free(text);
    return status;
}

/* ---- kill -9 before, inside and after every call that changes a file */

static void a_run_killed_at_any_call_loses_nothing_that_was_saved(void **state)
{
    kill_at_each_call(&(struct trial){ clear_run, train_and_tell, verify_run, 0 }, *state);
    kill_at_each_call(&(struct trial){ stop_at_step_1, train_and_tell, verify_run, 1 }, *state);
}

/* Dies at call 1, 1 + stride, ... of one resume after another, until one lives. */
static void a_run_killed_again_and_again_gets_there(void **state)
{
    const struct trial t = { .act = train_and_tell };
    int deaths = 0;

    new_news();
    for (death.call = 1; death.call < 1000; death.call += 7) {
        death.moment = death.call % 2 ? BEFORE : AFTER;
        if (!act_in_child(&t, *state))
            break;
        deaths++;
        assert_nothing_lost(*state, news->saved);
    }
    assert_true(deaths > 5);
    assert_resumes_to_the_same(*state);
    free_news();
}

/* ---- the n-th allocation or file operation fails */

static void fail_each_job(void *subject, const char *how, alibi_status expected, bool may_succeed)
{
    fail_each(&(struct trial){ clear_run, train_or_resume, verify_run, 0 }, subject, how, expected,
              may_succeed);
    fail_each(&(struct trial){ stop_at_step_1, train_or_resume, verify_run, 1 }, subject, how,
              expected, may_succeed);
    fail_each(&(struct trial){ clear_run, open_model, NULL, 0 }, subject, how, expected,
              may_succeed);
    fail_each(&(struct trial){ clear_run, inspect, NULL, 0 }, subject, how, expected, may_succeed);
}

static void every_failing_allocation_is_a_clean_error(void **state)
{
    fail_each_job(*state, "memory", ALIBI_MEMORY, false);
}

/* A save that fails is written once more, and what fails while it is only closed costs nothing: so
 * some runs continue. */
static void every_failing_file_operation_is_a_clean_error_or_made_good(void **state)
{
    fail_each_job(*state, "file", ALIBI_IO, true);
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
    if (strstr(line, "step-00000002' again: ") != NULL) {
        stubborn.written_again = true;
        alibi_inject_fault("file", stubborn.again);
    }
}

/* Fails the first sync of a part of step 2. */
static void fail_first_sync(const struct change *c, bool done)
{
    if (!done && !stubborn.written_again && c->kind == CHANGE_WRITE &&
        strstr(c->path, "step-00000002/model.safetensors") != NULL)
        alibi_inject_fault("file", 1);
}

static void a_save_that_fails_twice_leaves_the_one_before(void **state)
{
    struct site *p = *state;
    int failures = 0;

    for (int64_t again = 1; again < 200; again += stride()) {
        alibi_status status;
        clear_run(p);
        stubborn.again = again;
        stubborn.written_again = false;
        watch = fail_first_sync;
        p->call = &(struct alibi_call){ .log = fail_again };
        status = train_at(p, p->run, false);
        p->call = &p->listener.call;
        watch = NULL;
        alibi_inject_fault("file", 0);
        listen_to(&p->listener, 0);
        assert_true(stubborn.written_again);
        if (status == ALIBI_OK)
            break; /* the second failure came after the save */
        assert_int_equal(status, ALIBI_IO);
        failures++;
        verify_run(p, 1);
    }
    assert_true(failures > 5);
}

/* ---- several ranks, which save together */

static int set_up_ranks(void **state)
{
    struct site *p = new_site_of_ranks(STEPS, 1);

    assert_ok(train_at(p, p->whole, false)); /* one process */
    *state = p;
    return 0;
}

static void die_alone(const struct change *c, bool done)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&one_at_a_time);
    watch_for_death(c, done);
    pthread_mutex_unlock(&one_at_a_time);
}

static alibi_status train_ranks_and_tell(void *subject)
{
    struct site *p = subject;

    watch = die_alone;
    p->call = &(struct alibi_call){ .log = note_saved };
    return train_together(p, p->run, true);
}

static alibi_status train_ranks(void *subject)
{
    struct site *p = subject;

    return train_together(p, p->run, true);
}

static void ranks_save_the_bytes_of_one_process(void **state)
{
    struct site *p = *state;

    assert_ok(train_together(p, p->run, false));
    assert_same_run(p->whole, p->run, STEPS);
    clear_run(p);
    longest_transfer = 13;
    assert_ok(train_together(p, p->run, false));
    longest_transfer = 0;
    assert_same_run(p->whole, p->run, STEPS);
}

static void ranks_killed_at_any_call_lose_nothing_that_was_saved(void **state)
{
    kill_at_each_call(&(struct trial){ clear_run, train_ranks_and_tell, verify_run, 0 }, *state);
}

static void every_failing_allocation_of_a_rank_is_that_of_all(void **state)
{
    fail_each(&(struct trial){ stop_at_step_1, train_ranks, verify_run, 1 }, *state, "memory",
              ALIBI_MEMORY, false);
}

static void every_failing_file_operation_of_a_rank_is_that_of_all(void **state)
{
    fail_each(&(struct trial){ clear_run, train_ranks, verify_run, 0 }, *state, "file", ALIBI_IO,
              true);
}

/* ---- disks that are full, slow or wrong */

static void fill_disk(void *user, const struct alibi_progress *progress)
{
    (void)user;
    (void)progress;
    pretended_space = 4096;
}

static void a_full_disk_is_seen_before_anything_is_written(void **state)
{
    struct site *p = *state;

    listen_to(&p->listener, 1);
    assert_fails(train_at(p, p->run, false), ALIBI_INTERRUPTED, "step 1");
    listen_to(&p->listener, 0);
    p->call = &(struct alibi_call){ .progress = fill_disk };
    assert_fails(train_at(p, p->run, true), ALIBI_IO, "/run' has 0.0 MiB free");
    p->call = &p->listener.call;
    assert_int_not_equal(access(step_path(p->run, 2), F_OK), 0);
    pretended_space = -1;
    verify_run(p, 1);
}

static void a_disk_without_room_for_checkpoints_is_said_before_the_first_step(void **state)
{
    struct site *p = *state;

    listen_to(&p->listener, 0);
    pretended_space = 4096;
    assert_fails(train_at(p, p->run, false), ALIBI_IO, "a checkpoint takes 0.1 MiB, and the disk");
    assert_int_equal(p->listener.steps, 0);
    pretended_space = 200000; /* enough for each save, not for all that are kept */
    assert_ok(train_at(p, p->run, true));
    assert_non_null(strstr(p->listener.log, "warning: '"));
    assert_non_null(strstr(p->listener.log, "MiB for 3 more checkpoints"));
    pretended_space = -1;
}

static void short_reads_and_writes_are_continued(void **state)
{
    struct site *p = *state;

    longest_transfer = 13;
    assert_ok(train_at(p, p->run, false));
    assert_ok(open_model(p));
    longest_transfer = 0;
    assert_same_run(p->whole, p->run, STEPS);
}

static int wrong_bytes_left;

/* Alters a part without the library's knowledge, after it was synced and before it is read back. */
static void alter_part(const struct change *c, bool done)
{
    char path[PATH_BYTES];
    int fd;

    if (!done || c->kind != CHANGE_RENAME ||
        strstr(c->path, "step-00000002/manifest.json.tmp") == NULL || wrong_bytes_left == 0)
        return;
    wrong_bytes_left--;
    snprintf(path, sizeof path, "%.*s/model.safetensors", (int)(strrchr(c->path, '/') - c->path),
             c->path);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY, 0);
    assert_int_equal(syscall(SYS_pwrite64, fd, "\377", 1, 1000), 1);
    close(fd);
}

static void assert_written_once_more(struct site *p,
                                     alibi_status train(struct site *p, const char *run, bool))
{
    watch = alter_part;
    wrong_bytes_left = 1;
    assert_ok(train(p, p->run, false));
    assert_int_equal(wrong_bytes_left, 0);
    assert_same_run(p->whole, p->run, STEPS);

    clear_run(p);
    wrong_bytes_left = 2;
    assert_fails(train(p, p->run, false), ALIBI_IO, "does not read back");
    watch = NULL;
    verify_run(p, 1);
}

static void what_does_not_read_back_is_written_once_more(void **state)
{
    assert_written_once_more(*state, train_at);
}

static void what_does_not_read_back_is_written_once_more_by_all_ranks(void **state)
{
    assert_written_once_more(*state, train_together);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_killed_at_any_call_loses_nothing_that_was_saved,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_killed_again_and_again_gets_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_failing_allocation_is_a_clean_error, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(every_failing_file_operation_is_a_clean_error_or_made_good,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_save_that_fails_twice_leaves_the_one_before, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_seen_before_anything_is_written, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_disk_without_room_for_checkpoints_is_said_before_the_first_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_reads_and_writes_are_continued, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_read_back_is_written_once_more, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(ranks_save_the_bytes_of_one_process, set_up_ranks,
                                        tear_down),
        cmocka_unit_test_setup_teardown(ranks_killed_at_any_call_lose_nothing_that_was_saved,
                                        set_up_ranks, tear_down),
        cmocka_unit_test_setup_teardown(every_failing_allocation_of_a_rank_is_that_of_all,
                                        set_up_ranks, tear_down),
        cmocka_unit_test_setup_teardown(every_failing_file_operation_of_a_rank_is_that_of_all,
                                        set_up_ranks, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_read_back_is_written_once_more_by_all_ranks,
                                        set_up_ranks, tear_down),
    };

    omp_set_num_threads(1); /* a child of fork has no other threads to wait for */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
