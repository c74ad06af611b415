/* lock.c - one writer per folder
 *
 * The lock is the kernel's (flock), so it ends with its process, however that ends. The file holds
 * the process id for people to read, and stays: removing it would let two processes hold locks on
 * two files of the same name. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/base.h"
#include "base/names.h"
#include "base/os.h"
#include "base/path.h"

struct lock {
    int fd;
};

static alibi_status fail_in_use(const char *folder, int fd)
{
    char text[32] = "";
    long holder = 0;

    if (os_read(fd, text, sizeof text - 1) > 0)
        holder = strtol(text, NULL, 10);
    if (holder > 0)
        return fail(ALIBI_IO, "folder '%s' is in use by process %ld", folder, holder);
    return fail(ALIBI_IO, "folder '%s' is in use by another process", folder);
}

static alibi_status write_holder(int fd, const char *path)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());

    if (os_ftruncate(fd, 0) != 0 || os_write(fd, text, (size_t)length) != length)
        return path_fail("write", path);
    return ALIBI_OK;
}

alibi_status lock_take(struct lock **out, const char *folder)
{
    alibi_status status;
    struct lock *l = NULL;
    char *path = NULL;
    int fd = -1;

    TRY(path_join(&path, folder, NAME_LOCK));
    TRY(NEW_ARRAY(&l, 1, "a lock"));
    fd = os_open(path, O_RDWR | O_CREAT);
    if (fd < 0) {
        status = path_fail("open", path);
        goto out;
    }
    if (os_flock(fd, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK ? fail_in_use(folder, fd) : path_fail("lock", path);
        goto out;
    }
    TRY(write_holder(fd, path));
    l->fd = fd;
    *out = l;
    l = NULL;
    fd = -1;
out:
    if (fd >= 0)
        os_close(fd);
    mem_free(path);
    mem_free(l);
    return status;
}

void lock_release(struct lock *l)
{
    if (l == NULL)
        return;
    os_close(l->fd);
    mem_free(l);
}
