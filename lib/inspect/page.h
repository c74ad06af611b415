/* page.h - facts with names, as a page for people or as one JSON object: the same calls write both
 *
 *   step      500          {
 *                            "step": 500,
 *   model                    "model": {
 *     layers  4                "layers": 4 } }
 *
 * Appending needs no check per call; page_end() returns the first failure. */
#ifndef PAGE_H
#define PAGE_H

#include "base/json.h"

struct page {
    struct text out;
    bool json;
    struct json_writer writer; /* of `out`, for JSON */
    int depth;
};

void page_begin(struct page *p, bool json); /* the page must not move: it points to itself */
alibi_status page_end(struct page *p);

void page_text(struct page *p, const char *name, const char *value);
void page_int(struct page *p, const char *name, int64_t value);
void page_none(struct page *p, const char *name); /* "none"; JSON: null */
void page_real(struct page *p, const char *name, double value);
void page_reals(struct page *p, const char *name, const double *values, int64_t count);
void page_tensor(struct page *p, const char *name, const char *type, const int64_t *shape,
                 int rank);
void page_options(struct page *p, const char *name, const struct alibi_option *options, int count,
                  const void *values);

/* A member that holds the members up to page_close(). */
void page_open(struct page *p, const char *name);
void page_close(struct page *p);

#endif
