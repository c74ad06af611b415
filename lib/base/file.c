/* file.c - files: whole reads and writes, errors that name the path, replacing a file atomically,
 * and a file as memory
 *
 * Nothing is buffered here: callers write large blocks, or lines that must be in the file when the
 * call returns. */
#include <string.h>

#include "base/names.h"
#include "base/os.h"

enum { WAIT_MILLISECONDS = 100 };

struct file {
    int fd;
    char *path;
    int64_t size;
    bool borrowed;                     /* standard input is not ours to close */
    bool waits;                        /* a pipe or a device: a read may take any time */
    bool unread;                       /* a write failed because the reader closed the pipe */
    const struct alibi_call *call;     /* of an input: its stop request ends such a read, */
    const struct alibi_stop *unwanted; /* and so does this one */
};

/* Whether the path is to blame, and not the machine. A path without read permission is bad input;
 * one without write permission is a failed output. */
static bool path_is_wrong(int reason, const char *verb)
{
    switch (reason) {
    case EACCES:
    case EPERM:
        return strncmp(verb, "open", 4) == 0 || strncmp(verb, "list", 4) == 0;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return true;
    default:
        return false;
    }
}

const char *path_absent(const char *path)
{
    return strstr(path, "://") != NULL ? "it is an address; download the file first"
                                       : strerror(ENOENT);
}

alibi_status path_fail(const char *verb, const char *path)
{
    int reason = errno;
    const char *why = reason != ENOENT              ? strerror(reason)
                      : strcmp(verb, "create") == 0 ? "its folder does not exist"
                                                    : path_absent(path);

    return fail(path_is_wrong(reason, verb) ? ALIBI_BAD_INPUT : ALIBI_IO, "cannot %s '%s': %s",
                verb, path, why);
}

/* ---- open and close */

/* For exits that report another error, or none. */
static void close_quietly(struct file *f)
{
    if (f == NULL)
        return;
    if (f->fd >= 0 && !f->borrowed)
        os_close(f->fd);
    mem_free(f->path);
    mem_free(f);
}

static alibi_status check_regular(const struct stat *info, const char *path)
{
    if (S_ISDIR(info->st_mode))
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it is a folder", path);
    if (!S_ISREG(info->st_mode))
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it is not a regular file", path);
    return ALIBI_OK;
}

/* Messages name the file that the caller asked for: `path` may be the one that is written aside. */
static alibi_status open_file(struct file **out, const char *path, const char *name, int flags,
                              const char *verb)
{
    alibi_status status;
    struct file *f = NULL;
    struct stat info;

    TRY(NEW_ZERO_ARRAY(&f, 1, "an open file"));
    f->fd = -1;
    TRY(text_copy(&f->path, name));
    f->fd = os_open(path, flags);
    if (f->fd < 0 || os_fstat(f->fd, &info) != 0)
        TRY(path_fail(verb, name));
    if ((flags & O_ACCMODE) == O_RDONLY)
        TRY(check_regular(&info, name));
    f->size = info.st_size;
    *out = f;
    f = NULL;
out:
    close_quietly(f);
    return status;
}

/* O_NONBLOCK: a pipe without a writer is refused instead of waited for. It changes nothing for a
 * regular file. */
alibi_status file_open_read(struct file **out, const char *path)
{
    return open_file(out, path, path, O_RDONLY | O_NONBLOCK, "open");
}

alibi_status file_open_input(struct file **out, const char *path, const struct alibi_call *call,
                             const struct alibi_stop *unwanted)
{
    alibi_status status;
    struct file *f = NULL;
    struct stat info;

    TRY(NEW_ZERO_ARRAY(&f, 1, "an open file"));
    f->fd = -1;
    f->call = call;
    f->unwanted = unwanted;
    f->borrowed = strcmp(path, "-") == 0;
    TRY(text_copy(&f->path, f->borrowed ? "standard input" : path));
    /* O_NONBLOCK: opening a pipe does not wait for its writer; reading does, and can be stopped. */
    f->fd = f->borrowed ? STDIN_FILENO : os_open(path, O_RDONLY | O_NONBLOCK);
    if (f->fd < 0 || os_fstat(f->fd, &info) != 0)
        TRY(path_fail("open", f->path));
    if (S_ISDIR(info.st_mode))
        TRY(fail(ALIBI_BAD_INPUT, "cannot read '%s': it is a folder", f->path));
    f->waits = !S_ISREG(info.st_mode);
    f->size = S_ISREG(info.st_mode) && !f->borrowed ? info.st_size : 0;
    *out = f;
    f = NULL;
out:
    close_quietly(f);
    return status;
}

alibi_status file_measure(int64_t *bytes, int64_t *modified, const char *path)
{
    struct stat info;
    bool regular;

    if (os_stat(path, &info) != 0)
        return path_fail("open", path);
    regular = S_ISREG(info.st_mode);
    *bytes = regular ? info.st_size : 0;
    *modified = regular ? (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec : 0;
    return ALIBI_OK;
}

alibi_status file_create(struct file **out, const char *path)
{
    return open_file(out, path, path, O_WRONLY | O_CREAT | O_TRUNC, "create");
}

alibi_status file_open_write(struct file **out, const char *path)
{
    return open_file(out, path, path, O_WRONLY, "open");
}

alibi_status file_open_append(struct file **out, const char *path)
{
    return open_file(out, path, path, O_WRONLY | O_CREAT | O_APPEND, "open");
}

alibi_status file_close(struct file *f)
{
    alibi_status status = ALIBI_OK;

    if (f == NULL)
        return ALIBI_OK;
    if (!f->borrowed && os_close(f->fd) != 0)
        status = path_fail("close", f->path);
    f->fd = -1;
    close_quietly(f);
    return status;
}

int64_t file_size(const struct file *f)
{
    return f->size;
}

/* ---- read, write, sync */

/* The writer of a pipe may pause forever; a stop request still ends the wait. */
static alibi_status wait_for_input(const struct file *f)
{
    struct pollfd input = { .fd = f->fd, .events = POLLIN };
    ssize_t ready = 0;

    while (ready == 0) {
        if (call_stopped(f->call) || alibi_stop_requested(f->unwanted))
            return fail(ALIBI_INTERRUPTED, "stopped while reading '%s'", f->path);
        ready = os_poll(&input, WAIT_MILLISECONDS);
    }
    return ready > 0 ? ALIBI_OK : path_fail("read", f->path);
}

alibi_status file_read(struct file *f, void *buffer, size_t bytes, size_t *got)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n;
        if (f->waits)
            TRY_RETURN(wait_for_input(f));
        n = os_read(f->fd, (char *)buffer + done, bytes - done);
        if (n < 0 && errno == EAGAIN && f->waits)
            continue; /* another reader was faster */
        if (n < 0)
            return path_fail("read", f->path);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *got = done;
    return ALIBI_OK;
}

alibi_status file_read_at(struct file *f, void *buffer, size_t bytes, int64_t at)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = os_pread(f->fd, (char *)buffer + done, bytes - done, (off_t)at + (off_t)done);
        if (n < 0)
            return path_fail("read", f->path);
        if (n == 0)
            return fail(ALIBI_IO, "cannot read '%s': it ended at %lld while it was read", f->path,
                        (long long)at + (long long)done);
        done += (size_t)n;
    }
    return ALIBI_OK;
}

alibi_status file_write(struct file *f, const void *buffer, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = os_write(f->fd, (const char *)buffer + done, bytes - done);
        if (n < 0) {
            f->unread = errno == EPIPE;
            return path_fail("write", f->path);
        }
        done += (size_t)n;
        f->size += n;
    }
    return ALIBI_OK;
}

alibi_status file_write_at(struct file *f, const void *buffer, size_t bytes, int64_t at)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n =
            os_pwrite(f->fd, (const char *)buffer + done, bytes - done, (off_t)at + (off_t)done);
        if (n < 0)
            return path_fail("write", f->path);
        done += (size_t)n;
    }
    f->size = f->size > at + (int64_t)bytes ? f->size : at + (int64_t)bytes;
    return ALIBI_OK;
}

alibi_status file_set_size(struct file *f, int64_t bytes)
{
    if (os_ftruncate(f->fd, (off_t)bytes) != 0)
        return path_fail("write", f->path);
    f->size = bytes;
    return ALIBI_OK;
}

/* A failed fsync is final: the kernel may have dropped the pages, and would report success the next
 * time. */
alibi_status file_sync(struct file *f)
{
    return os_fsync(f->fd) == 0 ? ALIBI_OK : path_fail("sync", f->path);
}

/* ---- whole files */

alibi_status file_read_all(char **out, size_t *bytes, const char *path, size_t limit)
{
    alibi_status status;
    struct file *f = NULL;
    char *buffer = NULL;
    size_t size, got = 0;

    TRY(file_open_read(&f, path));
    size = (size_t)f->size;
    if (size > limit)
        TRY(fail(ALIBI_BAD_INPUT, "cannot read '%s': it has %zu bytes, at most %zu are allowed",
                 path, size, limit));
    TRY(NEW_ARRAY(&buffer, (int64_t)size + 1, path));
    TRY(file_read(f, buffer, size, &got));
    if (got < size)
        TRY(fail(ALIBI_IO, "cannot read '%s': it shrank to %zu bytes while it was read", path,
                 got));
    buffer[size] = '\0';
    *out = buffer;
    *bytes = size;
    buffer = NULL;
out:
    close_quietly(f);
    mem_free(buffer);
    return status;
}

/* ---- replacing */

/* To `path`, for the file that the user knows as `name`. */
static alibi_status write_whole(const char *path, const char *name,
                                alibi_status (*write)(struct file *f, const void *user),
                                const void *user, bool sync)
{
    alibi_status status;
    struct file *f = NULL, *done;

    TRY(open_file(&f, path, name, O_WRONLY | O_CREAT | O_TRUNC, "create"));
    TRY(write(f, user));
    if (sync)
        TRY(file_sync(f));
    done = f;
    f = NULL;
    TRY(file_close(done));
out:
    close_quietly(f);
    return status;
}

/* At every instant `path` is the old file or the new one, whole; when this returns, the new one
 * survives a power cut. */
static alibi_status write_aside(const char *path, const char *suffix,
                                alibi_status (*write)(struct file *f, const void *user),
                                const void *user)
{
    alibi_status status;
    char *aside = NULL, *folder = NULL;
    bool left_aside = false;

    TRY(path_with_suffix(&aside, path, suffix));
    TRY(path_folder(&folder, path));
    left_aside = true;
    TRY(write_whole(aside, path, write, user, true));
    TRY(file_rename(aside, path));
    left_aside = false;
    TRY(folder_sync(folder));
out:
    if (left_aside)
        os_unlink(aside);
    mem_free(aside);
    mem_free(folder);
    return status;
}

alibi_status file_replace_with(const char *path,
                               alibi_status (*write)(struct file *f, const void *user),
                               const void *user)
{
    struct stat info = { .st_mode = S_IFREG };

    if (strcmp(path, "-") == 0) {
        struct file f = { .fd = 1, .path = "standard output", .borrowed = true };
        alibi_status status = write(&f, user);
        return f.unread ? ALIBI_OK : status; /* the reader has as much as it wanted */
    }
    if (os_lstat(path, &info) != 0 && errno != ENOENT)
        return path_fail("create", path);
    /* A rename would put a file where the device, the pipe or the link is. */
    return S_ISREG(info.st_mode) ? write_aside(path, NAME_ASIDE, write, user)
                                 : write_whole(path, path, write, user, false);
}

struct content {
    const void *bytes;
    size_t length;
};

static alibi_status write_content(struct file *f, const void *user)
{
    const struct content *c = user;

    return file_write(f, c->bytes, c->length);
}

alibi_status file_replace(const char *path, const void *bytes, size_t length)
{
    return write_aside(path, NAME_ASIDE, write_content, &(struct content){ bytes, length });
}

alibi_status file_replace_shared(const char *path, const void *bytes, size_t length)
{
    char suffix[40];

    snprintf(suffix, sizeof suffix, ".%ld" NAME_ASIDE, (long)getpid());
    return write_aside(path, suffix, write_content, &(struct content){ bytes, length });
}

static alibi_status replace_within(const char *folder, const char *name, const struct text *text,
                                   alibi_status (*replace)(const char *path, const void *bytes,
                                                           size_t length))
{
    alibi_status status;
    char *path = NULL;

    TRY(text_status(text));
    TRY(path_join(&path, folder, name));
    TRY(replace(path, text->data, text->length));
out:
    mem_free(path);
    return status;
}

alibi_status file_replace_within(const char *folder, const char *name, const struct text *text)
{
    return replace_within(folder, name, text, file_replace);
}

alibi_status file_replace_shared_within(const char *folder, const char *name,
                                        const struct text *text)
{
    return replace_within(folder, name, text, file_replace_shared);
}

/* ---- names */

alibi_status file_truncate(const char *path, int64_t bytes)
{
    return os_truncate(path, bytes) == 0 ? ALIBI_OK : path_fail("truncate", path);
}

alibi_status file_rename(const char *from, const char *to)
{
    if (os_rename(from, to) != 0) {
        int reason = errno;
        return fail(path_is_wrong(reason, "rename") ? ALIBI_BAD_INPUT : ALIBI_IO,
                    "cannot rename '%s' to '%s': %s", from, to, strerror(reason));
    }
    return ALIBI_OK;
}

alibi_status file_remove(const char *path)
{
    return os_unlink(path) == 0 || errno == ENOENT ? ALIBI_OK : path_fail("remove", path);
}

/* A file whose absence is not certain counts as existing: opening it then gives the reason, and
 * nothing is overwritten by mistake. */
bool file_exists(const char *path)
{
    struct stat info;

    if (os_stat(path, &info) == 0)
        return !S_ISDIR(info.st_mode);
    return errno != ENOENT && errno != ENOTDIR;
}

/* ---- a whole file as memory, which the system reads page by page as it is touched
 *
 * The pages are shared by all processes that map the file and are not heap memory, so a corpus may
 * be larger than the machine's memory. */

struct mapping {
    void *start; /* NULL: the file is empty, which the system does not map */
    size_t bytes;
};

alibi_status mapping_open(struct mapping **out, const char *path)
{
    alibi_status status;
    struct mapping *m = NULL;
    struct file *f = NULL, *done;

    TRY(NEW_ZERO_ARRAY(&m, 1, "a mapped file"));
    TRY(file_open_read(&f, path));
    m->bytes = (size_t)f->size;
    if (m->bytes > 0 && (m->start = os_mmap(f->fd, m->bytes)) == NULL)
        TRY(path_fail("map", path));
    done = f; /* the mapping outlives the descriptor */
    f = NULL;
    TRY(file_close(done));
    *out = m;
    m = NULL;
out:
    close_quietly(f);
    mapping_close(m);
    return status;
}

const char *mapping_view(const struct mapping *m, size_t *bytes)
{
    *bytes = m->bytes;
    return m->start != NULL ? m->start : "";
}

void mapping_close(struct mapping *m)
{
    if (m == NULL)
        return;
    if (m->start != NULL)
        (void)os_munmap(m->start, m->bytes);
    mem_free(m);
}
