/* os.h - the operating system, as lib/base sees it: system calls that touch files, failures on
 * demand, and errors that name a path
 *
 * Nothing else in the library makes these calls. Each counts as one I/O call that
 * alibi_inject_fault("file", n) can fail, is repeated when a signal interrupts it, and returns -1
 * (NULL) with errno as the system does. */
#ifndef OS_H
#define OS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"

/* ---- failures on demand: the binary that is tested is the one that is shipped */

enum fault { FAULT_MEMORY, FAULT_FILE, FAULT_NAN, FAULT_COUNT };

/* Counts one call of that kind; true if it is the one that alibi_inject_fault() chose to fail. */
bool fault_due(enum fault kind);

/* The check in front of every system call: false, with errno set to `reason`, if this is the call
 * that must fail. */
bool os_allowed(int reason);

/* ---- system calls */

/* `call`, again while a signal interrupts it, or -1 with errno `reason` if it must fail. */
#define OS_CALL(reason, call) (os_allowed(reason) ? TEMP_FAILURE_RETRY(call) : -1)

/* Close-on-exec; new files are 0666 less the umask. */
#define os_open(path, flags) ((int)OS_CALL(EIO, open((path), (flags) | O_CLOEXEC, 0666)))
#define os_read(fd, buffer, bytes) OS_CALL(EIO, read((fd), (buffer), (bytes)))
#define os_pread(fd, buffer, bytes, at) OS_CALL(EIO, pread((fd), (buffer), (bytes), (at)))
#define os_write(fd, buffer, bytes) OS_CALL(ENOSPC, write((fd), (buffer), (bytes)))
#define os_pwrite(fd, buffer, bytes, at) OS_CALL(ENOSPC, pwrite((fd), (buffer), (bytes), (at)))
#define os_poll(polled, milliseconds) OS_CALL(EIO, poll((polled), 1, (milliseconds)))
#define os_fsync(fd) OS_CALL(ENOSPC, fsync(fd))
#define os_fstat(fd, info) OS_CALL(EIO, fstat((fd), (info)))
#define os_stat(path, info) OS_CALL(EIO, stat((path), (info)))
#define os_lstat(path, info) OS_CALL(EIO, lstat((path), (info)))
#define os_statvfs(path, info) OS_CALL(EIO, statvfs((path), (info)))
#define os_truncate(path, bytes) OS_CALL(EIO, truncate((path), (bytes)))
#define os_ftruncate(fd, bytes) OS_CALL(EIO, ftruncate((fd), (bytes)))
#define os_rename(from, to) OS_CALL(EIO, rename((from), (to)))
#define os_unlink(path) OS_CALL(EIO, unlink(path))
#define os_mkdir(path) OS_CALL(ENOSPC, mkdir((path), 0777))
#define os_rmdir(path) OS_CALL(EIO, rmdir(path))
#define os_flock(fd, operation) OS_CALL(EIO, flock((fd), (operation)))
#define os_opendir(path) (os_allowed(EIO) ? opendir(path) : NULL)
/* NULL with errno 0 at the end. */
#define os_readdir(folder) (os_allowed(EIO) ? (errno = 0, readdir(folder)) : NULL)
#define os_realpath(path) (os_allowed(EIO) ? realpath((path), NULL) : NULL) /* free() */

/* These release their argument even if they fail. */
int os_close(int fd);
int os_closedir(DIR *folder);
int os_munmap(void *start, size_t bytes);
void *os_mmap(int fd, size_t bytes); /* the file's first bytes, read only; NULL if it fails */

/* Bytes of memory that this process can ever get: of the machine with its swap, or of its
 * container. Not an I/O call. */
size_t os_memory_bytes(void);
/* Asks for huge pages; a system without them uses small ones. Not an I/O call. */
void os_prefer_huge_pages(void *start, size_t bytes);

/* ---- paths and their errors (file.c, folder.c) */

/* "cannot VERB 'PATH': REASON" from errno. ALIBI_BAD_INPUT: the path is missing, forbidden or of
 * the wrong kind; else ALIBI_IO. */
alibi_status path_fail(const char *verb, const char *path);

alibi_status path_with_suffix(char **out, const char *path, const char *suffix); /* mem_free */

#endif
