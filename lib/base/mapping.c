/* mapping.c - a whole file as memory, which the system reads page by page as it is touched
 *
 * The pages are shared by all processes that map the file and are not heap memory, so a corpus may
 * be larger than the machine's memory. */
#include <fcntl.h>

#include "base/base.h"
#include "base/os.h"
#include "base/path.h"

struct mapping {
    void *start; /* NULL: the file is empty, which the system does not map */
    size_t bytes;
};

static alibi_status map_descriptor(struct mapping *m, int fd, const char *path)
{
    struct stat info;

    if (os_fstat(fd, &info) != 0)
        return path_fail("open", path);
    TRY_RETURN(path_check_regular(&info, path));
    m->bytes = (size_t)info.st_size;
    if (m->bytes == 0)
        return ALIBI_OK;
    m->start = os_mmap(fd, m->bytes);
    return m->start != NULL ? ALIBI_OK : path_fail("map", path);
}

/* O_NONBLOCK: a pipe without a writer is refused instead of waited for. The mapping outlives the
 * descriptor. */
static alibi_status map_file(struct mapping *m, const char *path)
{
    alibi_status status;
    int fd = os_open(path, O_RDONLY | O_NONBLOCK);

    if (fd < 0)
        return path_fail("open", path);
    status = map_descriptor(m, fd, path);
    if (os_close(fd) != 0 && status == ALIBI_OK)
        status = path_fail("close", path);
    return status;
}

alibi_status mapping_open(struct mapping **out, const char *path)
{
    alibi_status status;
    struct mapping *m = NULL;

    TRY(NEW_ZERO_ARRAY(&m, 1, "a mapped file"));
    TRY(map_file(m, path));
    *out = m;
    m = NULL;
out:
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
