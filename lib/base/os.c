/* os.c - the system calls of os.h */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fault.h"

/* The one check in front of every call: false, with errno set to `reason`, if this is the call that
 * must fail. */
static bool io_allowed(int reason)
{
    if (!fault_due(FAULT_FILE))
        return true;
    errno = reason;
    return false;
}

/* `call`, again while a signal interrupts it, or -1 if it must fail. */
#define CALL(reason, call) (io_allowed(reason) ? TEMP_FAILURE_RETRY(call) : -1)

int os_open(const char *path, int flags)
{
    return (int)CALL(EIO, open(path, flags | O_CLOEXEC, 0666));
}

ssize_t os_read(int fd, void *buffer, size_t bytes)
{
    return CALL(EIO, read(fd, buffer, bytes));
}

int os_wait(int fd, int milliseconds)
{
    struct pollfd one = { .fd = fd, .events = POLLIN };

    return (int)CALL(EIO, poll(&one, 1, milliseconds));
}

ssize_t os_write(int fd, const void *buffer, size_t bytes)
{
    return CALL(ENOSPC, write(fd, buffer, bytes));
}

ssize_t os_pwrite(int fd, const void *buffer, size_t bytes, off_t at)
{
    return CALL(ENOSPC, pwrite(fd, buffer, bytes, at));
}

int os_fsync(int fd)
{
    return (int)CALL(ENOSPC, fsync(fd));
}

/* Never repeated: on Linux the descriptor is gone after EINTR too, and its number may already be
 * another thread's. */
int os_close(int fd)
{
    bool allowed = io_allowed(EIO);
    int reason = errno;
    int result = close(fd);

    if (allowed)
        return result;
    errno = reason;
    return -1;
}

void *os_mmap(int fd, size_t bytes)
{
    void *start = io_allowed(ENOMEM) ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

    return start != MAP_FAILED ? start : NULL;
}

int os_munmap(void *start, size_t bytes)
{
    bool allowed = io_allowed(EIO);
    int result = munmap(start, bytes);

    return allowed ? result : -1;
}

int os_fstat(int fd, struct stat *info)
{
    return (int)CALL(EIO, fstat(fd, info));
}

int os_stat(const char *path, struct stat *info)
{
    return (int)CALL(EIO, stat(path, info));
}

int os_lstat(const char *path, struct stat *info)
{
    return (int)CALL(EIO, lstat(path, info));
}

int os_truncate(const char *path, off_t bytes)
{
    return (int)CALL(EIO, truncate(path, bytes));
}

int os_ftruncate(int fd, off_t bytes)
{
    return (int)CALL(EIO, ftruncate(fd, bytes));
}

int os_rename(const char *from, const char *to)
{
    return (int)CALL(EIO, rename(from, to));
}

int os_unlink(const char *path)
{
    return (int)CALL(EIO, unlink(path));
}

int os_mkdir(const char *path)
{
    return (int)CALL(ENOSPC, mkdir(path, 0777));
}

int os_rmdir(const char *path)
{
    return (int)CALL(EIO, rmdir(path));
}

int os_flock(int fd, int operation)
{
    return (int)CALL(EIO, flock(fd, operation));
}

int os_statvfs(const char *path, struct statvfs *info)
{
    return (int)CALL(EIO, statvfs(path, info));
}

DIR *os_opendir(const char *path)
{
    return io_allowed(EIO) ? opendir(path) : NULL;
}

struct dirent *os_readdir(DIR *folder)
{
    if (!io_allowed(EIO))
        return NULL;
    errno = 0;
    return readdir(folder);
}

int os_closedir(DIR *folder)
{
    bool allowed = io_allowed(EIO);
    int result = closedir(folder);

    return allowed ? result : -1;
}

char *os_realpath(const char *path)
{
    return io_allowed(EIO) ? realpath(path, NULL) : NULL;
}

/* The number in a small file, or `otherwise` if there is none ("max" is none). */
static size_t number_in(const char *path, size_t otherwise)
{
    char text[32] = "";
    char *end = text;
    unsigned long long number = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return otherwise;
    if (read(fd, text, sizeof text - 1) > 0)
        number = strtoull(text, &end, 10);
    close(fd);
    return end != text ? (size_t)number : otherwise;
}

size_t os_memory_bytes(void)
{
    struct sysinfo machine;
    size_t bytes = SIZE_MAX, version1, version2;

    if (sysinfo(&machine) == 0)
        bytes = (size_t)(machine.totalram + machine.totalswap) * machine.mem_unit;
    version1 = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", SIZE_MAX);
    version2 = number_in("/sys/fs/cgroup/memory.max", SIZE_MAX);
    bytes = version1 < bytes ? version1 : bytes;
    return version2 < bytes ? version2 : bytes;
}
