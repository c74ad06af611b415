/* path.h - paths and their errors, within lib/base */
#ifndef PATH_H
#define PATH_H

#include <sys/stat.h>

#include "base/base.h"

/* "cannot VERB 'PATH': REASON" from errno. ALIBI_BAD_INPUT: the path is missing, forbidden or of
 * the wrong kind; else ALIBI_IO. */
alibi_status path_fail(const char *verb, const char *path);

/* ALIBI_BAD_INPUT: it is not a regular file. */
alibi_status path_check_regular(const struct stat *info, const char *path);

alibi_status path_with_suffix(char **out, const char *path, const char *suffix); /* mem_free */

#endif
