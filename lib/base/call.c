/* call.c - the context of a call: notes and progress go to its callbacks, and its stop flag is read
 * between the steps of long work */
#include <stdlib.h>
#include <time.h>

#include "base/base.h"

enum { LINE_MAX_BYTES = 1024 };

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
    text_format(line, sizeof line, format, args);
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

double clock_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double seconds_left(double seconds, int64_t done, int64_t total)
{
    return done > 0 && total > done ? seconds * (double)(total - done) / (double)done : 0;
}

double clock_date(void)
{
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    long long seconds = fixed != NULL ? strtoll(fixed, &end, 10) : -1;
    struct timespec now;

    /* Up to the year 9999, so that it fits. */
    if (end != NULL && end != fixed && *end == '\0' && seconds >= 0 && seconds <= 253402300799)
        return (double)seconds;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void alibi_date(char date[ALIBI_DATE_MAX])
{
    time_t now = (time_t)clock_date();
    struct tm utc;

    gmtime_r(&now, &utc);
    strftime(date, ALIBI_DATE_MAX, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
