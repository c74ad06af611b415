/* scan.h - JSON token by token, for files too large to be built as a tree
 *
 * The caller knows the grammar and asks for what must come next. No recursion, and no memory but
 * for the strings that are kept. Failures are ALIBI_BAD_INPUT and name the path and the byte. */
#ifndef SCAN_H
#define SCAN_H

#include "formats/formats.h"

struct scan {
    const char *text; /* of the file, from its first byte; valid UTF-8 from `at` to `end` */
    size_t at, end;
    const char *path;
    bool lines; /* messages give the line beside the byte */

    char *strings; /* end - at bytes hold all strings there are: decoded they are shorter than with
                      their quotes */
    size_t used;   /* set back to what it was, it drops the strings read since */
};

char scan_peek(struct scan *s);         /* skips blanks; what comes next, 0 at the end */
bool scan_take(struct scan *s, char c); /* skips blanks; true if c came next, and steps over it */
bool scan_take_null(struct scan *s);    /* the same for the word null */
alibi_status scan_expect(struct scan *s, char c);      /* the same, where nothing else may come */
alibi_status scan_bool(struct scan *s, bool *out);     /* true or false */
alibi_status scan_count(struct scan *s, int64_t *out); /* a whole number that is not negative */
alibi_status scan_string(struct scan *s, const char **string); /* in s->strings; without U+0000 */
alibi_status scan_slice(struct scan *s,
                        struct slice *string); /* the same, and U+0000 may be part of it */
alibi_status scan_end(struct scan *s);         /* nothing but blanks is left */

/* Any value, and how many elements or members it has (NULL: who cares); at most SCAN_DEPTH_MAX
 * deep. */
enum { SCAN_DEPTH_MAX = 128 };
alibi_status scan_skip(struct scan *s, int64_t *items);

/* A member of an object, and where its value begins; 0: it is not there. */
struct scan_member {
    const char *key;
    bool needed;
    size_t at;
};

/* Steps over an object and notes its members: so they can be read in any order, whatever the order
 * in the file is. `what` has members of these keys and no others, none of them twice. */
alibi_status scan_object(struct scan *s, const char *what, struct scan_member *members, int count);

/* Notes the one member and passes over the others. */
alibi_status scan_find(struct scan *s, const char *what, struct scan_member *member);

/* "cannot read 'path': ... at byte 57, line 3". */
alibi_status scan_fail(const struct scan *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
