/* stretches.c - see stretches.h
 *
 * Invariant: text[from..bytes) with its ends is what no stretches_run() has worked on yet; text[0..from) are the last bytes of
 * the same document before it, at most KEPT_BYTES of them, and none if a document starts at `from`. */
#include "text/stretches.h"

#include <omp.h>
#include <string.h>

/* The end of a line is seen in its last byte; a whole character takes four. */
enum { KEPT_BYTES = 4 };

alibi_status stretches_new(struct stretches **out)
{
    struct stretches *s = NULL;

    TRY_RETURN(NEW_ZERO_ARRAY(&s, 1, "stretches of text"));
    s->threads = omp_get_max_threads();
    *out = s;
    return ALIBI_OK;
}

void stretches_free(struct stretches *s)
{
    if (s == NULL)
        return;
    mem_free(s->text);
    mem_free(s->ends);
    mem_free(s->parts);
    mem_free(s);
}

/* ---- taking a block */

/* Moves what is left over to the front. All ends were passed: the text behind the last one is what is left over. */
static void drop_what_is_done(struct stretches *s)
{
    size_t document = s->end_count > 0 ? s->ends[s->end_count - 1] : 0;
    size_t keep = s->reached - document > KEPT_BYTES ? s->reached - KEPT_BYTES : document;

    if (s->bytes > keep)
        memmove(s->text, s->text + keep, s->bytes - keep);
    s->bytes -= keep;
    s->from = s->reached - keep;
    s->reached = s->from;
    s->end_count = 0;
}

static alibi_status grow_text(struct stretches *s, size_t bytes)
{
    if (bytes <= s->capacity)
        return ALIBI_OK;
    TRY_RETURN(mem_grow((void **)&s->text, s->bytes, bytes, "text"));
    s->capacity = bytes;
    return ALIBI_OK;
}

static alibi_status grow_ends(struct stretches *s, int64_t count)
{
    size_t *grown = NULL;

    if (count <= s->end_capacity)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&grown, count, "ends of documents"));
    mem_free(s->ends);
    s->ends = grown;
    s->end_capacity = count;
    return ALIBI_OK;
}

static alibi_status append_block(struct stretches *s, const struct block *b)
{
    size_t total;

    if (!size_add(&total, s->bytes, b->bytes))
        return fail(ALIBI_MEMORY, "not enough memory for a text of %zu bytes", b->bytes);
    TRY_RETURN(grow_text(s, total));
    TRY_RETURN(grow_ends(s, b->end_count));
    if (b->bytes > 0)
        memcpy(s->text + s->bytes, b->text, b->bytes);
    for (int64_t i = 0; i < b->end_count; i++)
        s->ends[i] = s->bytes + b->ends[i];
    s->end_count = b->end_count;
    s->start = b->start;
    s->start.offset -= (int64_t)(s->bytes - s->from);
    s->bytes = total;
    return ALIBI_OK;
}

/* ---- parts */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The first place at or behind `at` where a part may begin; `limit` is where the document ends. */
static size_t likely_cut(const struct stretches *s, size_t at, size_t limit)
{
    while (at < limit && !(is_blank(s->text[at]) && !is_blank(s->text[at - 1])))
        at++;
    return at;
}

static size_t document_end(const struct stretches *s, int64_t document)
{
    return document < s->end_count ? s->ends[document] : s->bytes;
}

/* The part that begins at `from` in document `document` of this text. */
static struct part plan_part(const struct stretches *s, size_t from, int64_t document)
{
    struct part p = { .from = from, .stop = s->bytes, .first_end = document, .last_end = document };
    size_t wanted = s->bytes - from > PART_BYTES ? from + PART_BYTES : s->bytes;

    while (p.last_end < s->end_count && s->ends[p.last_end] <= wanted)
        p.last_end++;
    if (wanted == s->bytes || (p.last_end > document && s->ends[p.last_end - 1] == wanted))
        p.stop = wanted;
    else
        p.stop = likely_cut(s, wanted, document_end(s, p.last_end));
    if (p.last_end < s->end_count && s->ends[p.last_end] == p.stop)
        p.last_end++;
    return p;
}

static alibi_status add_part(struct stretches *s, struct part p)
{
    struct part *grown = NULL;
    int64_t capacity = s->part_capacity * 2 + 16;

    if (s->count == s->part_capacity) {
        TRY_RETURN(NEW_ARRAY(&grown, capacity, "parts of a text"));
        if (s->count > 0)
            memcpy(grown, s->parts, (size_t)s->count * sizeof *grown);
        mem_free(s->parts);
        s->parts = grown;
        s->part_capacity = capacity;
    }
    s->parts[s->count++] = p;
    return ALIBI_OK;
}

/* A document may end where the text before it was already done: then there is an end, but no text. */
static alibi_status plan_parts(struct stretches *s)
{
    size_t at = s->from;
    int64_t document = 0;

    s->count = 0;
    while (at < s->bytes || document < s->end_count) {
        struct part p = plan_part(s, at, document);
        TRY_RETURN(add_part(s, p));
        at = p.stop;
        document = p.last_end;
    }
    return ALIBI_OK;
}

alibi_status stretches_take(struct stretches *s, const struct block *b)
{
    drop_what_is_done(s);
    TRY_RETURN(append_block(s, b));
    return plan_parts(s);
}

/* ---- running */

/* What of document `document` is here. */
static size_t document_start(const struct stretches *s, int64_t document)
{
    return document > 0 ? s->ends[document - 1] : 0;
}

/* text[from..stop) of that document; *reached within text. */
static alibi_status run_stretch(const struct stretches *s, const struct stretch_work *work, int thread, int64_t part,
                                int64_t document, size_t from, size_t stop, size_t *reached)
{
    size_t start = document_start(s, document);
    struct stretch stretch = { s->text + start, from - start, stop - start, document_end(s, document) - start,
                               document < s->end_count };
    size_t local = 0;

    TRY_RETURN(work->run(work->user, thread, part, &stretch, &local));
    *reached = start + local;
    return ALIBI_OK;
}

static alibi_status end_document(const struct stretches *s, const struct stretch_work *work, int thread, int64_t part,
                                 int64_t document)
{
    size_t start = document_start(s, document);

    if (work->end == NULL)
        return ALIBI_OK;
    return work->end(work->user, thread, part, (struct slice){ s->text + start, s->ends[document] - start });
}

/* The documents that end in the part, then the beginning of one that does not. */
static alibi_status run_documents(const struct stretches *s, const struct stretch_work *work, int thread, int64_t part,
                                  size_t *at)
{
    const struct part *p = &s->parts[part];

    TRY_RETURN(work->begin(work->user, thread, part));
    for (int64_t document = p->first_end; document < p->last_end; document++) {
        if (*at < s->ends[document])
            TRY_RETURN(run_stretch(s, work, thread, part, document, *at, s->ends[document], at));
        TRY_RETURN(end_document(s, work, thread, part, document));
    }
    if (*at < p->stop)
        TRY_RETURN(run_stretch(s, work, thread, part, p->last_end, *at, p->stop, at));
    return ALIBI_OK;
}

static void run_part(struct stretches *s, const struct stretch_work *work, int thread, int64_t part, size_t from)
{
    struct part *p = &s->parts[part];
    size_t at = from;
    alibi_status status = run_documents(s, work, thread, part, &at);

    p->began = from;
    p->reached = at;
    p->failure.status = ALIBI_OK;
    if (status != ALIBI_OK)
        failure_keep(&p->failure, status);
}

/* In order: what began in the wrong place is run again, and the first failure that remains is the true one. A part that stops
 * early waits for more text, and so does all behind it. */
static alibi_status settle(struct stretches *s, const struct stretch_work *work)
{
    size_t at = s->from;

    for (int64_t i = 0; i < s->count; i++) {
        struct part *p = &s->parts[i];
        if (p->began != at)
            run_part(s, work, 0, i, at);
        TRY_RETURN(failure_raise(&p->failure));
        at = p->reached;
        if (at < p->stop)
            s->count = i + 1;
    }
    s->reached = at;
    return ALIBI_OK;
}

alibi_status stretches_run(struct stretches *s, const struct stretch_work *work)
{
#pragma omp parallel for schedule(dynamic, 1) num_threads(s->threads) if (s->count > 1)
    for (int64_t i = 0; i < s->count; i++)
        run_part(s, work, omp_get_thread_num(), i, s->parts[i].from);
    return settle(s, work);
}
