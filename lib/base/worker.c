/* worker.c - a background thread that does one job at a time
 *
 * Invariant: `job` is set from worker_start() until the thread has finished it, and changes only
 * under the mutex. While it is set, `kept` belongs to the thread. */
#include <pthread.h>
#include <signal.h>
#include <string.h>

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
static int start_thread(struct worker *w)
{
    sigset_t all, before;
    int reason;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    reason = pthread_create(&w->thread, NULL, serve, w);
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
    reason = start_thread(w);
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
