/* page.h - facts with names, as a page for people or as one JSON object: the same calls write
 * either
 *
 *   step      500          {"step": 500,
 *
 *   model                   "model": {
 *     layers  4               "layers": 4}} */
#ifndef PAGE_H
#define PAGE_H

#include "base/json.h"

struct page {
    struct text out;
    bool json;
    int depth;
    bool first; /* in its JSON object or array nothing stands yet */
};

alibi_status page_begin(struct page *p, bool json);
alibi_status page_end(struct page *p);

alibi_status page_text(struct page *p, const char *name, const char *value);
alibi_status page_int(struct page *p, const char *name, int64_t value);
alibi_status page_real(struct page *p, const char *name, double value);
alibi_status page_options(struct page *p, const char *name, const struct alibi_option *options,
                          int count, const void *values);

/* A member that holds members, up to page_close. */
alibi_status page_open(struct page *p, const char *name);
alibi_status page_close(struct page *p);

/* Numbers in one line. */
alibi_status page_reals(struct page *p, const char *name, const double *values, int64_t count);

alibi_status page_tensor(struct page *p, const char *name, const char *type, const int64_t *shape,
                         int rank);

#endif
