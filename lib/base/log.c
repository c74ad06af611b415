/* log.c - what the library has to say goes to the caller's hooks; what the caller wants stopped
 * comes back through a flag */
#include <signal.h>
#include <time.h>

#include "base/base.h"

enum { LINE_MAX_BYTES = 1024 };

static struct alibi_hooks hooks;

/* sig_atomic_t: set from a signal handler, read between the steps of a long call. */
static volatile sig_atomic_t stop;

void alibi_set_hooks(const struct alibi_hooks *new_hooks)
{
    hooks = new_hooks != NULL ? *new_hooks : (struct alibi_hooks){ 0 };
}

static struct alibi_stop hooks_stop;

void alibi_request_stop(void)
{
    stop = 1;
    alibi_stop_request(&hooks_stop);
}

bool alibi_global_stop_requested(void)
{
    return stop != 0;
}

void stop_clear(void)
{
    stop = 0;
    hooks_stop.requested = 0;
}

static void log_line(enum alibi_log_level level, const char *format, va_list args)
{
    char line[LINE_MAX_BYTES] = "";

    if (hooks.log == NULL)
        return;
    vsnprintf(line, sizeof line, format, args);
    line_clean(line);
    hooks.log(hooks.user, level, line);
}

/* ---- calls */

void alibi_stop_request(struct alibi_stop *s)
{
    __atomic_store_n(&s->requested, 1, __ATOMIC_RELEASE); /* lock-free: fit for signal handlers */
}

bool alibi_stop_requested(const struct alibi_stop *s)
{
    return s != NULL && __atomic_load_n(&s->requested, __ATOMIC_ACQUIRE) != 0;
}

static void call_line(const struct alibi_call *call, enum alibi_log_level level, const char *format,
                      va_list args)
{
    char line[LINE_MAX_BYTES] = "";

    if (call == NULL || call->log == NULL)
        return;
    vsnprintf(line, sizeof line, format, args);
    line_clean(line);
    call->log(call->user, level, line);
}

void call_note(const struct alibi_call *call, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    call_line(call, ALIBI_NOTE, format, args);
    va_end(args);
}

void call_warn(const struct alibi_call *call, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    call_line(call, ALIBI_WARNING, format, args);
    va_end(args);
}

void call_progress(const struct alibi_call *call, const struct alibi_progress *p)
{
    if (call != NULL && call->progress != NULL)
        call->progress(call->user, p);
}

bool call_stopped(const struct alibi_call *call)
{
    return call != NULL && alibi_stop_requested(call->stop);
}

/* ---- hooks */

void log_note(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(ALIBI_NOTE, format, args);
    va_end(args);
}

void log_warning(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(ALIBI_WARNING, format, args);
    va_end(args);
}

void report_progress(const struct alibi_progress *p)
{
    if (hooks.progress != NULL)
        hooks.progress(hooks.user, p);
}

const struct alibi_call *hooks_call(void)
{
    static struct alibi_call call;

    call = (struct alibi_call){ hooks.user, hooks.progress, hooks.log, &hooks_stop, 0 };
    return &call;
}

double clock_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
