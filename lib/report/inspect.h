/* inspect.h - the parts of alibi_inspect(): each writes all there is to say of what lies at `path`
 * */
#ifndef INSPECT_H
#define INSPECT_H

#include "report/page.h"

/* inspect_text.c */
alibi_status inspect_text(struct page *p, const char *path);
alibi_status inspect_tokenizer(struct page *p, const char *path);
alibi_status inspect_shards(struct page *p, const char *path);

#endif
