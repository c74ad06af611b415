/* syscalls.h - every system call by which this program changes files, seen before and after it
 * happens
 *
 * A program's own definition of a function takes precedence over that of the C library, so the
 * calls of lib/base arrive here first. The library under test is the one that ships. Include in one
 * file of a program. */
#ifndef SYSCALLS_H
#define SYSCALLS_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Something goes wrong at every fifth point of a run; with ALIBI_EVERY_FAULT in the environment at
 * each of them, which is how `make test-all` runs them. */
static inline int stride(void)
{
    return getenv("ALIBI_EVERY_FAULT") != NULL ? 1 : 5;
}

enum change_kind {
    CHANGE_OPEN,
    CHANGE_WRITE,
    CHANGE_SYNC,
    CHANGE_TRUNCATE,
    CHANGE_RENAME,
    CHANGE_UNLINK,
    CHANGE_MKDIR,
    CHANGE_RMDIR
};

struct change {
    enum change_kind kind;
    const char *path;
    const char *to; /* rename */
    int fd, flags;
    const void *bytes;
    size_t length; /* write, truncate */
    off_t at;      /* write: its place in the file; -1: after the last byte */
};

/* Called twice per change, with done false and then, if it succeeded, true. */
static void (*watch)(const struct change *c, bool done);

/* The free space that statvfs reports, if not negative. */
static long long pretended_space = -1;

/* The most bytes that one read or write moves, if not 0. */
static size_t longest_transfer;

enum { DESCRIPTORS = 256, PATH_BYTES = 512 };
static char descriptor_paths[DESCRIPTORS][PATH_BYTES];

static long watched(const struct change *c, long number, long a, long b, long d)
{
    long result;

    if (watch)
        watch(c, false);
    result = syscall(number, a, b, d);
    if (watch && result >= 0)
        watch(c, true);
    return result;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    int mode, fd;

    va_start(arguments, flags);
    mode = va_arg(arguments, int);
    va_end(arguments);
    if (watch && flags & (O_WRONLY | O_RDWR))
        watch(&(struct change){ .kind = CHANGE_OPEN, .path = path, .flags = flags }, false);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && fd < DESCRIPTORS)
        snprintf(descriptor_paths[fd], PATH_BYTES, "%s", path);
    if (watch && fd >= 0 && flags & (O_WRONLY | O_RDWR))
        watch(&(struct change){ .kind = CHANGE_OPEN, .path = path, .flags = flags }, true);
    return fd;
}

static const char *path_of(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS ? descriptor_paths[fd] : "";
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    struct change c = { .kind = CHANGE_WRITE,
                        .path = path_of(fd),
                        .fd = fd,
                        .bytes = bytes,
                        .length = length,
                        .at = -1 };

    if (fd <= STDERR_FILENO)
        return syscall(SYS_write, fd, bytes, length);
    if (longest_transfer > 0 && length > longest_transfer)
        length = c.length = longest_transfer;
    return watched(&c, SYS_write, fd, (long)bytes, (long)length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    struct change c = { .kind = CHANGE_WRITE,
                        .path = path_of(fd),
                        .fd = fd,
                        .bytes = bytes,
                        .length = length,
                        .at = at };
    ssize_t result;

    if (longest_transfer > 0 && length > longest_transfer)
        length = c.length = longest_transfer;
    if (watch)
        watch(&c, false);
    result = syscall(SYS_pwrite64, fd, bytes, length, at);
    if (watch && result >= 0)
        watch(&c, true);
    return result;
}

ssize_t read(int fd, void *bytes, size_t length)
{
    if (longest_transfer > 0 && length > longest_transfer)
        length = longest_transfer;
    return syscall(SYS_read, fd, bytes, length);
}

ssize_t pread(int fd, void *bytes, size_t length, off_t at)
{
    if (longest_transfer > 0 && length > longest_transfer)
        length = longest_transfer;
    return syscall(SYS_pread64, fd, bytes, length, at);
}

int fsync(int fd)
{
    struct change c = { .kind = CHANGE_SYNC, .path = path_of(fd), .fd = fd };

    return (int)watched(&c, SYS_fsync, fd, 0, 0);
}

int truncate(const char *path, off_t length)
{
    struct change c = { .kind = CHANGE_TRUNCATE, .path = path, .length = (size_t)length };

    return (int)watched(&c, SYS_truncate, (long)path, length, 0);
}

int ftruncate(int fd, off_t length)
{
    struct change c = { .kind = CHANGE_TRUNCATE, .path = path_of(fd), .length = (size_t)length };

    return (int)watched(&c, SYS_ftruncate, fd, length, 0);
}

int rename(const char *from, const char *to)
{
    struct change c = { .kind = CHANGE_RENAME, .path = from, .to = to };

    return (int)watched(&c, SYS_rename, (long)from, (long)to, 0);
}

int unlink(const char *path)
{
    struct change c = { .kind = CHANGE_UNLINK, .path = path };

    return (int)watched(&c, SYS_unlink, (long)path, 0, 0);
}

int mkdir(const char *path, mode_t mode)
{
    struct change c = { .kind = CHANGE_MKDIR, .path = path };

    return (int)watched(&c, SYS_mkdir, (long)path, (long)mode, 0);
}

int rmdir(const char *path)
{
    struct change c = { .kind = CHANGE_RMDIR, .path = path };

    return (int)watched(&c, SYS_rmdir, (long)path, 0, 0);
}

int statvfs(const char *path, struct statvfs *info)
{
    (void)path;
    *info = (struct statvfs){ .f_bsize = 1, .f_frsize = 1 };
    info->f_bavail = pretended_space >= 0 ? (fsblkcnt_t)pretended_space : (fsblkcnt_t)1 << 40;
    return 0;
}

#endif
