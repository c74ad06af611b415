/* trials.h - the same work over and over, each time with something else that goes wrong: the
 * process dies at the n-th call that changes a file, or the n-th allocation or file operation
 * fails. Include in one file of a program. */
#ifndef TRIALS_H
#define TRIALS_H

#include "training.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fault/syscalls.h"

struct trial {
    void (*prepare)(void *subject); /* removes what the trial before has left */
    alibi_status (*act)(void *subject);
    /* Nothing saved is lost, and it resumes to the same bytes; may be NULL. */
    void (*verify)(void *subject, int64_t saved);
    int64_t saved; /* when all is prepared */
};

/* The teardown of a test: calls are no longer watched, and do what they do again. */
static inline void end_trials(void)
{
    watch = NULL;
    pretended_space = -1;
    longest_transfer = 0;
}

/* ---- kill -9 before, inside and after every call that changes a file */

enum moment { BEFORE, INSIDE, AFTER, MOMENTS };

static struct {
    long call; /* the one to die at, from 1 */
    enum moment moment;
} death;

/* Shared with the child: the calls it made that change a file, and how much it had saved, which is
 * act()'s to say. */
static struct news {
    long calls;
    int64_t saved;
} * news;

static inline void new_news(void)
{
    news = mmap(NULL, sizeof *news, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(news != MAP_FAILED);
}

static inline void free_news(void)
{
    munmap(news, sizeof *news);
}

static inline void die(void)
{
    kill(getpid(), SIGKILL);
}

/* Before and after a call, in the thread that makes it. */
static inline void watch_for_death(const struct change *c, bool done)
{
    static _Thread_local long own; /* the number of this thread's last call */

    if (!done)
        own = ++news->calls;
    if (own != death.call)
        return;
    if (death.moment == INSIDE && !done && c->kind == CHANGE_WRITE) {
        if (c->at >= 0)
            syscall(SYS_pwrite64, c->fd, c->bytes, c->length / 2, c->at);
        else
            syscall(SYS_write, c->fd, c->bytes, c->length / 2);
        die();
    }
    if (death.moment == (done ? AFTER : BEFORE))
        die();
}

/* True if the child died. If it lived, it succeeded. */
static inline bool act_in_child(const struct trial *t, void *subject)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        news->calls = 0;
        watch = watch_for_death;
        _exit(t->act(subject) != ALIBI_OK);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

static inline void kill_at_each_call(const struct trial *t, void *subject)
{
    long calls, deaths = 0;

    new_news();
    t->prepare(subject);
    death.call = 0;
    assert_false(act_in_child(t, subject));
    calls = news->calls;
    for (int moment = BEFORE; moment < MOMENTS; moment++)
        for (death.call = 1; death.call <= calls; death.call += stride()) {
            t->prepare(subject);
            death.moment = (enum moment)moment;
            news->saved = t->saved;
            deaths += act_in_child(t, subject);
            t->verify(subject, news->saved);
        }
    print_message("%ld calls change a file; %ld deaths, nothing lost\n", calls, deaths);
    assert_true(deaths >= 2 * calls / stride());
    free_news();
}

/* ---- the n-th allocation or file operation fails */

enum { MANY = 1 << 20 };

static inline alibi_status probe(const char *how)
{
    void *p = NULL;
    int64_t bytes;
    alibi_status status =
        strcmp(how, "memory") == 0 ? mem_new(&p, 1, "a probe") : folder_free_space(&bytes, "/");

    mem_free(p);
    return status;
}

/* How many calls of that kind the work makes: MANY minus those that are left when it returns, which
 * are counted by using them up. */
static inline int64_t count_calls(const struct trial *t, void *subject, const char *how)
{
    int64_t left = 1;

    t->prepare(subject);
    assert_ok(alibi_inject_fault(how, MANY));
    assert_ok(t->act(subject));
    while (probe(how) == ALIBI_OK)
        left++;
    return MANY - left;
}

/* Every call of that kind fails once. `expected` is the only failure allowed; `may_succeed`: some
 * failures are made good. */
static inline void fail_each(const struct trial *t, void *subject, const char *how,
                             alibi_status expected, bool may_succeed)
{
    int64_t calls = count_calls(t, subject, how), failures = 0;
    size_t before = alibi_memory_now();

    for (int64_t n = 1; n <= calls; n += stride()) {
        alibi_status status;
        t->prepare(subject);
        assert_ok(alibi_inject_fault(how, n));
        status = t->act(subject);
        assert_ok(alibi_inject_fault(how, 0));
        if (status != expected && !(may_succeed && status == ALIBI_OK))
            fail_msg("%s call %lld of %lld: status %d: %s", how, (long long)n, (long long)calls,
                     (int)status, alibi_error());
        assert_int_equal(alibi_memory_now(), before);
        failures += status != ALIBI_OK;
        if (t->verify)
            t->verify(subject, t->saved);
    }
    print_message("%lld %s calls, %lld failed cleanly\n", (long long)calls, how,
                  (long long)failures);
    assert_true(failures > 0);
}

#endif
