/* status.c - the message of the last failure, one per thread
 *
 * Parts of a message come from hostile files and names, so every message is made fit for a
 * terminal: one line of valid UTF-8. */
#include <string.h>

#include "base/base.h"

#ifndef ALIBI_VERSION
#define ALIBI_VERSION "unversioned"
#endif
#ifndef ALIBI_COMMIT
#define ALIBI_COMMIT ""
#endif

enum { MESSAGE_MAX = 1024 };

static _Thread_local char message[MESSAGE_MAX];
_Static_assert(sizeof(((struct failure *)0)->message) == MESSAGE_MAX,
               "a message can be kept whole");

const char *alibi_error(void)
{
    return message;
}

const char *alibi_version(void)
{
    return ALIBI_VERSION;
}

const char *alibi_commit(void)
{
    return ALIBI_COMMIT;
}

/* `line` is not `message` itself: an argument of the new message may be the old one. */
static void record(char *line)
{
    line_clean(line);
    memcpy(message, line, strlen(line) + 1);
}

/* Ends a line that was cut with "...", so that it does not read as if it were whole. */
static void mark_cut(char *line, int wanted)
{
    if (wanted >= MESSAGE_MAX)
        memcpy(line + MESSAGE_MAX - 4, "...", 4);
}

alibi_status fail(alibi_status status, const char *format, ...)
{
    char line[MESSAGE_MAX] = "";
    va_list args;

    va_start(args, format);
    mark_cut(line, text_format(line, sizeof line, format, args));
    va_end(args);
    record(line);
    return status;
}

alibi_status fail_context(alibi_status status, const char *format, ...)
{
    char line[MESSAGE_MAX] = "";
    size_t used;
    va_list args;

    va_start(args, format);
    mark_cut(line, text_format(line, sizeof line, format, args));
    va_end(args);
    used = strlen(line);
    mark_cut(line, (int)used + snprintf(line + used, sizeof line - used, ": %s", message));
    record(line);
    return status;
}

void failure_keep(struct failure *f, alibi_status status)
{
    *f = (struct failure){ .status = status };
    if (status != ALIBI_OK)
        memcpy(f->message, message, sizeof f->message);
}

alibi_status failure_raise(const struct failure *f)
{
    return f->status == ALIBI_OK ? ALIBI_OK : fail(f->status, "%s", f->message);
}
