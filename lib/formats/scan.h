/* scan.h - JSON token by token, for files too large to be built as a tree
 *
 * The caller knows the grammar and asks for the token that must come next. There is no recursion,
 * and only strings take memory. Failures are ALIBI_BAD_INPUT and name the path and the byte. */
#ifndef SCAN_H
#define SCAN_H

#include "formats/formats.h"

struct scan {
    const char *text; /* of the file, from its first byte; valid UTF-8 from `at` to `end` */
    size_t at, end;
    const char *path;
    bool lines; /* messages also give the line */

    char *strings; /* end - at bytes are enough: a decoded string and its 0 are no longer than the
                      string with its quotes */
    size_t used;   /* restoring an earlier value drops the strings read since */
};

char scan_peek(struct scan *s);                    /* skips blanks; the next byte, 0 at the end */
bool scan_take(struct scan *s, char c);            /* skips blanks; takes c if it is next */
bool scan_take_null(struct scan *s);               /* the same for the word null */
alibi_status scan_expect(struct scan *s, char c);  /* the same; anything else fails */
alibi_status scan_bool(struct scan *s, bool *out); /* true or false */
alibi_status scan_count(struct scan *s, int64_t *out); /* a whole number that is not negative */
alibi_status scan_string(struct scan *s, const char **string); /* in s->strings; without U+0000 */
alibi_status scan_slice(struct scan *s, struct slice *string); /* the same; may have U+0000 */
alibi_status scan_end(struct scan *s);                         /* only blanks are left */

/* Skips any value, at most SCAN_DEPTH_MAX deep. *items: its elements or members; may be NULL. */
enum { SCAN_DEPTH_MAX = 128 };
alibi_status scan_skip(struct scan *s, int64_t *items);

/* A member of an object, and where its value begins; 0: it is absent. */
struct scan_member {
    const char *key;
    bool needed;
    size_t at;
};

/* Skips an object and notes where its members are, so that they can be read in any order. Other
 * keys and repeated ones are refused; messages call the object `what`. */
alibi_status scan_object(struct scan *s, const char *what, struct scan_member *members, int count);

/* Notes one member and skips the others. */
alibi_status scan_find(struct scan *s, const char *what, struct scan_member *member);

/* "cannot read 'path': ... at byte 57, line 3". */
alibi_status scan_fail(const struct scan *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
