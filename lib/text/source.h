/* source.h - limits of source.c, and the stretches of stretches.c */
#ifndef SOURCE_H
#define SOURCE_H

#include "text/text.h"

enum { INPUT_BYTES = 1 << 18 }; /* the buffer of a file */

/* The most bytes of a line of JSON; before the first read. Tests make it small. */
void source_set_line_max(struct source *s, size_t bytes);

/* ---- stretches: documents cut into stretches that all threads take at the same time
 *
 *   block ── stretches_take ── parts of about PART_BYTES
 *         ── stretches_run ── a result per part, in the order of the text
 *
 * Where a tokenizer cuts a text depends on all text before. So every part begins at a guess, before
 * a blank that follows something else, and all parts are run at once. Then, in order, each is
 * compared with the true end of the one before it; the few that began elsewhere are run again from
 * there. The results are those of one thread that reads everything.
 *
 * While others run, a part sees at most PART_SIGHT bytes after its end. A part with a longer piece
 * does not reach its end that way and is run again, alone, with all of the text in sight: however
 * many threads there are, at most one works on a long piece.
 *
 * How to use it:
 *
 *   stretches_new(&s);
 *   for each block of the source:
 *       stretches_take(s, block);       the block may be refilled from here on
 *       ... make room for the results of s->count parts, and for s->threads threads ...
 *       stretches_run(s, &work);
 *       ... use the results of parts 0..s->count-1: the count may be lower now ...
 *   stretches_free(s);
 *
 * Text that cannot be decided before more text is there is kept and put before the next block. */

enum { PART_BYTES = 256 << 10, PART_SIGHT = PART_BYTES };

/* The work on the text. The calls for one part come from one thread, in order; `thread` is
 * 0..threads-1 and says whose scratch may be used. Documents are cut at the borders of parts, and a
 * part may hold many documents. */
struct stretch_work {
    void *user;
    /* The part begins: its result is empty. Called again if the part is run again. */
    alibi_status (*begin)(void *user, int thread, int64_t part);
    /* Works on the stretch up to *reached, as encoder_run does. s->text is where the document
     * starts, or a few bytes before s->from if more of it is no longer there: s->from == 0 only at
     * the start of a document. */
    alibi_status (*run)(void *user, int thread, int64_t part, const struct stretch *s,
                        size_t *reached);
    /* A document ends; `tail` is its text, or the last part of that, never empty. NULL: nothing is
     * done. */
    alibi_status (*end)(void *user, int thread, int64_t part, struct slice tail);
};

/* Consecutive text: of a document, or of several. Offsets within stretches.text. */
struct part {
    size_t from, stop;           /* as planned */
    size_t began, reached;       /* as run */
    int64_t document;            /* that a failure is in: ends[document] is its end */
    int64_t first_end, last_end; /* ends[first_end..last_end) are in it, its stop included */
    struct failure failure;
};

struct stretches {
    int threads;
    char *text; /* a few bytes that are done, text that was kept, and the block */
    size_t bytes, capacity;
    size_t from;        /* where the work begins */
    struct place start; /* of text[from] */
    size_t *ends;       /* of documents, within text */
    int64_t end_count, end_capacity;
    struct part *parts;
    int64_t count, part_capacity;
    size_t reached; /* by stretches_run: text[from..reached) is done */
    int64_t failed; /* the part that stretches_run failed in */
};

alibi_status stretches_new(struct stretches **out);
void stretches_free(struct stretches *s); /* NULL is fine */
/* The first block continues a document, of which these are the last bytes. Before anything else. */
alibi_status stretches_continue(struct stretches *s, struct slice before);
alibi_status stretches_take(struct stretches *s, const struct block *b);
/* The failure that is first in the text, if there was any: the same on any number of threads. */
alibi_status stretches_run(struct stretches *s, const struct stretch_work *work);
/* Puts the place where stretches_run() failed before the message; returns `status`. */
alibi_status stretches_fail(const struct stretches *s, const struct source *source,
                            alibi_status status);

#endif
