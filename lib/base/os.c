/* os.c - the operating system: failures on demand, and the system calls that are more than a line
 * of os.h
 *
 * There is one countdown per kind of fault. It falls by one per call, and the call that takes it
 * from 1 to 0 fails. */
#include "base/os.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

static const char *const kinds[FAULT_COUNT] = {
    [FAULT_MEMORY] = "memory", [FAULT_FILE] = "file", [FAULT_NAN] = "nan"
};
static _Atomic int64_t countdown[FAULT_COUNT];

/* ---- failures on demand */

alibi_status alibi_inject_fault(const char *how, int64_t n)
{
    if (n < 0)
        return fail(ALIBI_USAGE, "fault '%s': %lld is not a number of calls", how, (long long)n);
    for (int kind = 0; kind < FAULT_COUNT; kind++)
        if (strcmp(how, kinds[kind]) == 0) {
            atomic_store(&countdown[kind], n);
            return ALIBI_OK;
        }
    return fail(ALIBI_USAGE, "unknown fault '%s': there are memory, file and nan", how);
}

bool fault_due(enum fault kind)
{
    int64_t left = atomic_load_explicit(&countdown[kind], memory_order_relaxed);

    while (left > 0)
        if (atomic_compare_exchange_weak(&countdown[kind], &left, left - 1))
            return left == 1;
    return false;
}

bool fault_nan_due(void)
{
    return fault_due(FAULT_NAN);
}

bool os_allowed(int reason)
{
    if (!fault_due(FAULT_FILE))
        return true;
    errno = reason;
    return false;
}

/* ---- system calls */

/* Never repeated: on Linux the descriptor is gone after EINTR too, and its number may already be
 * another thread's. */
int os_close(int fd)
{
    bool allowed = os_allowed(EIO);
    int reason = errno;
    int result = close(fd);

    if (allowed)
        return result;
    errno = reason;
    return -1;
}

int os_closedir(DIR *folder)
{
    bool allowed = os_allowed(EIO);
    int result = closedir(folder);

    return allowed ? result : -1;
}

void *os_mmap(int fd, size_t bytes)
{
    void *start = os_allowed(ENOMEM) ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

    return start != MAP_FAILED ? start : NULL;
}

int os_munmap(void *start, size_t bytes)
{
    bool allowed = os_allowed(EIO);
    int result = munmap(start, bytes);

    return allowed ? result : -1;
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

void os_prefer_huge_pages(void *start, size_t bytes)
{
    (void)madvise(start, bytes, MADV_HUGEPAGE);
}
