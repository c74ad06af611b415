/* stretches.c - documents to stretches for all threads (source.h)
 *
 * Invariant: text[from..bytes) with its ends is what no stretches_run() has worked on yet;
 * text[0..from) are the last bytes of the same document before it, at most KEPT_BYTES of them, and
 * none if a document starts at `from`. */
#include <omp.h>
#include <string.h>

#include "text/source.h"

/* A line end is in the last byte; a whole character takes up to four. */
enum { KEPT_BYTES = 4, CUT_REACH = 8 << 10 };

alibi_status stretches_new(struct stretches **out)
{
    struct stretches *s = NULL;

    TRY_RETURN(NEW_ZERO_ARRAY(&s, 1, "stretches of text"));
    threads_sleep_when_idle();
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

alibi_status stretches_continue(struct stretches *s, struct slice before)
{
    if (before.bytes == 0)
        return ALIBI_OK;
    TRY_RETURN(mem_new((void **)&s->text, before.bytes, "text"));
    memcpy(s->text, before.at, before.bytes);
    s->capacity = s->bytes = s->from = s->reached = before.bytes;
    return ALIBI_OK;
}

/* ---- parts */

/* Punctuation of ASCII, and the blocks of UTF-8 with that of Chinese and Japanese. */
static bool is_mark(const char *text, size_t at, size_t limit)
{
    unsigned char c = (unsigned char)text[at];

    if (c < 0x80)
        return !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
    if (limit - at < 3)
        return false;
    return memcmp(text + at, "\xE2\x80", 2) == 0 || memcmp(text + at, "\xE3\x80", 2) == 0 ||
           memcmp(text + at, "\xEF\xBC", 2) == 0;
}

/* The end of a part that should end near `at`, where a blank follows something else; the document
 * ends at `limit`. Text without blanks is cut before punctuation, where nearly every tokenizer
 * cuts, and without that anywhere. A wrong guess costs time, but so does an endless part. */
static size_t likely_cut(const struct stretches *s, size_t at, size_t limit)
{
    size_t reach = limit - at > CUT_REACH ? at + CUT_REACH : limit, cut = at;
    bool after_letter = false;

    while (cut < reach && !(is_white_space(s->text[cut]) && !is_white_space(s->text[cut - 1])))
        cut++;
    if (cut == reach && reach < limit) /* a mark after a letter or a digit */
        for (cut = at; cut < reach; cut++) {
            bool mark = is_mark(s->text, cut, reach);
            if (mark && after_letter && !utf8_continues(s->text[cut]))
                break;
            after_letter = utf8_continues(s->text[cut]) ? after_letter : !mark;
        }
    while (cut < limit && utf8_continues(s->text[cut]))
        cut++;
    return cut;
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

/* Moves the text that is not done to the front: it is after the last end. Then come the block, and
 * the plan of its parts. A document may end where the text is already done: then there is an end,
 * but no text. */
alibi_status stretches_take(struct stretches *s, const struct block *b)
{
    size_t done = s->end_count > 0 ? s->ends[s->end_count - 1] : 0, total, at;
    size_t keep = s->reached - done > KEPT_BYTES ? s->reached - KEPT_BYTES : done;
    int64_t document = 0;

    if (s->bytes > keep)
        memmove(s->text, s->text + keep, s->bytes - keep);
    s->bytes -= keep;
    s->from = s->reached = s->reached - keep;
    s->end_count = 0;
    if (!size_add(&total, s->bytes, b->bytes))
        return fail(ALIBI_MEMORY, "not enough memory for a text of %zu bytes", b->bytes);
    if (total > s->capacity) {
        TRY_RETURN(mem_grow((void **)&s->text, s->bytes, total, "text"));
        s->capacity = total;
    }
    TRY_RETURN(RESERVE_ARRAY(&s->ends, &s->end_capacity, b->end_count, "ends of documents"));
    if (b->bytes > 0)
        memcpy(s->text + s->bytes, b->text, b->bytes);
    for (int64_t i = 0; i < b->end_count; i++)
        s->ends[i] = s->bytes + b->ends[i];
    s->end_count = b->end_count;
    s->start = b->start;
    s->start.offset -= (int64_t)(s->bytes - s->from);
    s->bytes = total;

    s->count = 0;
    for (at = s->from; at < s->bytes || document < s->end_count;) {
        struct part p = plan_part(s, at, document);
        TRY_RETURN(RESERVE_ARRAY(&s->parts, &s->part_capacity, s->count + 1, "parts of a text"));
        s->parts[s->count++] = p;
        at = p.stop;
        document = p.last_end;
    }
    return ALIBI_OK;
}

/* ---- running */

/* Runs text[*at..stop) of a document. At most `sight` bytes after `stop` may be inspected. */
static alibi_status run_stretch(const struct stretches *s, const struct stretch_work *work,
                                int thread, int64_t part, int64_t document, size_t stop,
                                size_t sight, size_t *at)
{
    size_t start = document > 0 ? s->ends[document - 1] : 0; /* as far as its text is here */
    size_t end = document_end(s, document), local = 0;
    size_t seen = end - stop > sight ? stop + sight : end;
    struct stretch stretch = { s->text + start, *at - start, stop - start, seen - start,
                               .last = seen == end && document < s->end_count };

    TRY_RETURN(work->run(work->user, thread, part, &stretch, &local));
    *at = start + local;
    return ALIBI_OK;
}

/* Runs the documents that end in the part, then the beginning of one that does not. After a failure
 * p->document and p->reached say what was being worked on. */
static void run_part(struct stretches *s, const struct stretch_work *work, int thread, int64_t part,
                     size_t from, size_t sight)
{
    alibi_status status;
    struct part *p = &s->parts[part];

    p->began = p->reached = from;
    p->failure.status = ALIBI_OK;
    TRY(work->begin(work->user, thread, part));
    for (p->document = p->first_end; p->document < p->last_end; p->document++) {
        size_t start = p->document > 0 ? s->ends[p->document - 1] : 0, end = s->ends[p->document];
        if (p->reached < end)
            TRY(run_stretch(s, work, thread, part, p->document, end, sight, &p->reached));
        if (work->end != NULL)
            TRY(work->end(work->user, thread, part,
                          (struct slice){ s->text + start, end - start }));
    }
    if (p->reached < p->stop)
        TRY(run_stretch(s, work, thread, part, p->last_end, p->stop, sight, &p->reached));
out:
    if (status != ALIBI_OK)
        failure_keep(&p->failure, status);
}

/* All parts at once, from where they are likely to begin. Then, in order, a part that began at a
 * wrong guess, or did not see far enough, is run again. The first failure that remains is the true
 * one. A part that still stops early needs more text; it and everything after it are kept for the
 * next block. */
alibi_status stretches_run(struct stretches *s, const struct stretch_work *work)
{
    size_t at = s->from;

#pragma omp parallel for schedule(dynamic, 1) num_threads(s->threads) if (s->count > 1)
    for (int64_t i = 0; i < s->count; i++)
        run_part(s, work, omp_get_thread_num(), i, s->parts[i].from, PART_SIGHT);
    for (int64_t i = 0; i < s->count; i++) {
        struct part *p = &s->parts[i];
        bool blind = p->failure.status == ALIBI_OK && p->reached < p->stop &&
                     s->bytes - p->stop > PART_SIGHT;
        if (p->began != at || blind)
            run_part(s, work, 0, i, at, SIZE_MAX);
        if (p->failure.status != ALIBI_OK) {
            s->failed = i;
            return failure_raise(&p->failure);
        }
        at = p->reached;
        if (at < p->stop)
            s->count = i + 1;
    }
    s->reached = at;
    return ALIBI_OK;
}

alibi_status stretches_fail(const struct stretches *s, const struct source *source,
                            alibi_status status)
{
    const struct part *p = &s->parts[s->failed];
    struct place at = s->start;
    bool first_document = p->document == 0, last_file = at.file + 1 == source_file_count(source);

    if (status != ALIBI_BAD_INPUT)
        return status;
    at.offset = first_document ? at.offset + (int64_t)(p->reached - s->from)
                               : (int64_t)(p->reached - s->ends[p->document - 1]);
    return fail_context(status, "'%s', document %lld%s, from byte %lld on",
                        source_name(source, at.file), (long long)(at.document + p->document + 1),
                        first_document || last_file ? "" : " with those of later files",
                        (long long)at.offset);
}
