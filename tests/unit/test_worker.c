/* test_worker.c - a thread that does one job after another for its owner */
#include "check.h"

#include <omp.h>
#include <pthread.h>
#include <time.h>

#include "base/base.h"

struct job {
    int64_t number, done;
    pthread_t thread;
};

static alibi_status fail_if_odd(void *user)
{
    struct job *e = user;

    e->done++;
    e->thread = pthread_self();
    return e->number % 2 == 0 ? ALIBI_OK
                              : fail(ALIBI_BAD_INPUT, "job %lld is odd", (long long)e->number);
}

static void a_worker_runs_its_jobs_in_one_thread_and_reports_status_and_message(void **state)
{
    struct worker *w = NULL;
    struct job job = { 0 };
    char expected[64];

    (void)state;
    assert_ok(worker_new(&w));
    assert_ok(worker_wait(w));
    for (job.number = 0; job.number < 1000; job.number++) {
        worker_start(w, fail_if_odd, &job);
        snprintf(expected, sizeof expected, "job %lld is odd", (long long)job.number);
        if (job.number % 2 == 0)
            assert_ok(worker_wait(w));
        else
            assert_fails(worker_wait(w), ALIBI_BAD_INPUT, expected);
        assert_int_equal(job.done, job.number + 1);
        assert_false(pthread_equal(job.thread, pthread_self()));
        assert_ok(worker_wait(w)); /* a failure is reported once */
    }
    worker_free(w);
}

static void freeing_a_worker_waits_for_its_job(void **state)
{
    struct worker *w = NULL;
    struct job job = { .number = 1 };
    size_t before = alibi_memory_now();

    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_ok(worker_new(&w));
        worker_start(w, fail_if_odd, &job);
        worker_free(w);
        assert_int_equal(job.done, i + 1);
    }
    worker_free(NULL);
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(worker_new(&w), ALIBI_MEMORY, "a thread");
    assert_int_equal(alibi_memory_now(), before);
}

/* Seconds on the clock, or of processor time of all threads. */
static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Threads that wait for one that sleeps 2 ms would spin for all of it, as libgomp's do. */
static void idle_threads_of_openmp_take_no_processor_time(void **state)
{
    const struct timespec nap = { .tv_nsec = 2000000 };
    double used, passed;

    (void)state;
    if (omp_get_num_procs() == 1)
        skip_because("one processor");
    omp_set_num_threads(omp_get_num_procs());
    for (int i = 0; i < 2; i++)
        threads_sleep_when_idle();
    passed = seconds(CLOCK_MONOTONIC);
    used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 100; i++) {
#pragma omp parallel
        if (omp_get_thread_num() == 0)
            nanosleep(&nap, NULL);
    }
    used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    passed = seconds(CLOCK_MONOTONIC) - passed;
    printf("%d threads: %.3f s of processor time in %.3f s\n", omp_get_max_threads(), used, passed);
    assert_true(used < 0.25 * passed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_runs_its_jobs_in_one_thread_and_reports_status_and_message),
        cmocka_unit_test(freeing_a_worker_waits_for_its_job),
        cmocka_unit_test(idle_threads_of_openmp_take_no_processor_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
