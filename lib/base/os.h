/* os.h - the calls of the operating system that touch files, as one table
 *
 * The only place in the library that makes them. Each counts as one I/O call that
 * alibi_inject_fault("file", n) can fail, is repeated when a signal interrupts it, and returns -1
 * (NULL) with errno as the system does. Used within lib/base only. */
#ifndef OS_H
#define OS_H

#include <dirent.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

int os_open(const char *path, int flags); /* close-on-exec; new files are 0666 less the umask */
ssize_t os_read(int fd, void *buffer, size_t bytes);
/* > 0: something can be read, or the end was reached; 0: not yet. */
int os_wait(int fd, int milliseconds);
ssize_t os_write(int fd, const void *buffer, size_t bytes);
ssize_t os_pwrite(int fd, const void *buffer, size_t bytes, off_t at);
int os_fsync(int fd);
int os_close(int fd);                     /* the descriptor is gone even if this fails */
void *os_mmap(int fd, size_t bytes);      /* the file's first bytes, read only; NULL if it fails */
int os_munmap(void *start, size_t bytes); /* the memory is gone even if this fails */
int os_fstat(int fd, struct stat *info);
int os_stat(const char *path, struct stat *info);
int os_lstat(const char *path, struct stat *info);
int os_truncate(const char *path, off_t bytes);
int os_ftruncate(int fd, off_t bytes);
int os_rename(const char *from, const char *to);
int os_unlink(const char *path);
int os_mkdir(const char *path);
int os_rmdir(const char *path);
int os_flock(int fd, int operation);
int os_statvfs(const char *path, struct statvfs *info);
DIR *os_opendir(const char *path);
struct dirent *os_readdir(DIR *folder); /* NULL with errno 0 at the end */
int os_closedir(DIR *folder);
char *os_realpath(const char *path); /* free(); NULL if it fails */

/* Bytes of memory that this process can ever get: of the machine with its swap, or of its
 * container. Not an I/O call. */
size_t os_memory_bytes(void);

#endif
