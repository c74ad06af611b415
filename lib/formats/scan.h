/* scan.h - JSON token by token, for headers too large to be built as a tree
 *
 * The caller knows the grammar and asks for what must come next. No recursion, and no memory but for the strings that are kept.
 * Failures are ALIBI_BAD_INPUT and name the path and the byte. */
#ifndef SCAN_H
#define SCAN_H

#include "base/base.h"

struct scan {
    const char *text; /* of the file, from its first byte; valid UTF-8 from `at` to `end` */
    size_t at, end;
    const char *path;

    char *strings; /* end - at bytes hold all strings there are: decoded they are shorter than with their quotes */
    size_t used;
};

bool scan_take(struct scan *s, char c);                        /* skips blanks; true if c came next, and steps over it */
alibi_status scan_expect(struct scan *s, char c);              /* the same, where nothing else may come */
alibi_status scan_count(struct scan *s, int64_t *out);         /* a whole number that is not negative */
alibi_status scan_string(struct scan *s, const char **string); /* lies in s->strings */
alibi_status scan_end(struct scan *s);                         /* nothing but blanks is left */

#endif
