/* worker.c - a background thread that does one job at a time; OpenMP threads that sleep when idle
 *
 * Invariant of a worker: `job` is set from worker_start() until the thread has finished it, and
 * changes only under the mutex. While it is set, `kept` belongs to the thread. */
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

struct worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    alibi_status (*job)(void *user);
    void *user;
    bool ending;
    struct failure kept; /* of the last job, until it was waited for */
};

static void *serve(void *argument)
{
    struct worker *w = argument;

    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (w->job == NULL && !w->ending)
            pthread_cond_wait(&w->changed, &w->mutex);
        if (w->job == NULL)
            break;
        pthread_mutex_unlock(&w->mutex);
        failure_keep(&w->kept, w->job(w->user));
        pthread_mutex_lock(&w->mutex);
        w->job = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* The host's handlers may rely on running in its own threads, so this thread blocks all signals. */
static int start_thread(pthread_t *thread, void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    int reason;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    reason = pthread_create(thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reason;
}

alibi_status worker_new(struct worker **out)
{
    struct worker *w = NULL;
    int reason;

    TRY_RETURN(NEW_ZERO_ARRAY(&w, 1, "a thread"));
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    reason = start_thread(&w->thread, serve, w);
    if (reason != 0) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->mutex);
        mem_free(w);
        return fail(ALIBI_MEMORY, "cannot start a thread: %s", strerror(reason));
    }
    *out = w;
    return ALIBI_OK;
}

void worker_start(struct worker *w, alibi_status (*job)(void *user), void *user)
{
    pthread_mutex_lock(&w->mutex);
    w->job = job;
    w->user = user;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

alibi_status worker_wait(struct worker *w)
{
    struct failure failure;

    pthread_mutex_lock(&w->mutex);
    while (w->job != NULL)
        pthread_cond_wait(&w->changed, &w->mutex);
    failure = w->kept;
    w->kept.status = ALIBI_OK;
    pthread_mutex_unlock(&w->mutex);
    return failure_raise(&failure);
}

void worker_free(struct worker *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->mutex);
    w->ending = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    mem_free(w);
}

/* ---- idle OpenMP threads
 *
 * An idle thread of libgomp spins for milliseconds before it sleeps. If the machine is doing
 * anything else, it takes the processor from the thread that it waits for, and training is several
 * times slower; on an idle machine spinning gains nothing. libgomp reads OMP_WAIT_POLICY when it is
 * loaded, before main(), and has no call for it. But it spins a hundred times instead of 300,000
 * if its threads outnumber the processors. So a second, unused team sleeps beside the working
 * one.
 *
 * LLVM's libomp has a call, for the teams of the calling thread. */
extern void kmp_set_blocktime(int milliseconds) __attribute__((weak));

static sem_t team_exists;

static void *sleep_with_team(void *argument)
{
    int threads = *(const int *)argument;

#pragma omp parallel num_threads(threads)
    if (omp_get_thread_num() == 0) /* the compiler would remove a region that does nothing */
        sem_post(&team_exists);
    while (true) /* the team lives as long as this thread */
        pause();
    return NULL;
}

/* The working team counts as `working` threads, the other one without its first thread. */
static void add_sleeping_team(void)
{
    int working = omp_get_max_threads(), processors = omp_get_num_procs();
    int threads = processors - working + 2;
    pthread_t thread;

    if (working == 1 || threads < 2 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (sem_init(&team_exists, 0, 0) != 0 || start_thread(&thread, sleep_with_team, &threads) != 0)
        return; /* everything works, but more slowly under load */
    pthread_detach(thread);
    while (sem_wait(&team_exists) != 0)
        continue; /* a signal */
}

void threads_sleep_when_idle(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (kmp_set_blocktime)
        kmp_set_blocktime(0);
    else
        pthread_once(&once, add_sleeping_team);
}
