/* encode.c - from a source to ids: all threads encode a block while the next one is read
 *
 *   source ── worker ──> block ── stretches ──> parts, encoded in parallel
 *                                          ──> their ids, joined in order ──> encoded
 *
 * How text falls into blocks and parts depends on the text alone, so the ids, the counts and the
 * places are the same on any number of threads. Text at the end of a block that more text may
 * change is kept for the next one (source.h). */
#include <string.h>

#include "text/source.h"

/* The result of one part. */
struct part_ids {
    struct ids ids;
    int64_t *ends; /* of documents, within ids */
    int64_t end_count, end_capacity;
    int64_t words;
};

struct encoding {
    struct source *source;
    size_t block_bytes; /* of text read at a time */
    struct worker *reader;
    struct block block; /* the reader's, from worker_start() to worker_wait() */
    struct stretches *stretches;
    struct encoder **encoders; /* [threads] */
    struct part_ids *parts;    /* [part_capacity], kept from block to block for their memory */
    int64_t part_capacity;
    struct ids ids; /* all parts joined */
    int64_t *ends;
    int64_t end_count, end_capacity;
};

/* ---- open and close */

static alibi_status read_block(void *user)
{
    struct encoding *e = user;

    return source_read(e->source, &e->block, e->block_bytes);
}

alibi_status encoding_open(struct encoding **out, struct source *source, const alibi_tokenizer *t,
                           size_t block_bytes)
{
    alibi_status status;
    struct encoding *e = NULL;

    TRY(NEW_ZERO_ARRAY(&e, 1, "an encoding"));
    e->source = source;
    e->block_bytes = block_bytes;
    TRY(stretches_new(&e->stretches));
    TRY(stretches_continue(e->stretches, source_before(source)));
    TRY(NEW_ZERO_ARRAY(&e->encoders, e->stretches->threads, "a list of encoders"));
    for (int i = 0; i < e->stretches->threads; i++)
        TRY(encoder_new(&e->encoders[i], t));
    TRY(worker_new(&e->reader));
    worker_start(e->reader, read_block, e);
    *out = e;
    e = NULL;
out:
    encoding_close(e);
    return status;
}

void encoding_close(struct encoding *e)
{
    if (e == NULL)
        return;
    source_abandon(e->source); /* a failure does not wait for the writer of a pipe */
    worker_free(e->reader);    /* before the block it writes to */
    block_fini(&e->block);
    for (int i = 0; e->encoders != NULL && i < e->stretches->threads; i++)
        encoder_free(e->encoders[i]);
    mem_free(e->encoders);
    for (int64_t i = 0; i < e->part_capacity; i++) {
        mem_free(e->parts[i].ids.at);
        mem_free(e->parts[i].ends);
    }
    mem_free(e->parts);
    stretches_free(e->stretches);
    mem_free(e->ids.at);
    mem_free(e->ends);
    mem_free(e);
}

/* ---- one part, on one thread */

static alibi_status begin_part(void *user, int thread, int64_t part)
{
    struct part_ids *p = &((struct encoding *)user)->parts[part];

    (void)thread;
    p->ids.count = 0;
    p->end_count = 0;
    p->words = 0;
    return ALIBI_OK;
}

/* Encodes, with the begin id before a document, and counts the words that begin here: at a byte
 * that is not blank, after one that is. The byte before `from` is known, except at the start of a
 * document. */
static alibi_status run_part(void *user, int thread, int64_t part, const struct stretch *s,
                             size_t *reached)
{
    struct encoding *e = user;
    struct part_ids *p = &e->parts[part];
    bool within = s->from > 0 && !is_white_space(s->text[s->from - 1]);
    int64_t before = p->ids.count;

    if (s->from == 0)
        TRY_RETURN(encoder_begin(e->encoders[thread], &p->ids));
    TRY_RETURN(encoder_run(e->encoders[thread], s, &p->ids, reached));
    if (*reached == s->from) /* more text is needed: the document begins with the next block */
        p->ids.count = before;
    for (size_t i = s->from; i < *reached; i++) {
        bool blank = is_white_space(s->text[i]);
        p->words += !blank && !within;
        within = !blank;
    }
    return ALIBI_OK;
}

static alibi_status end_document(void *user, int thread, int64_t part, struct slice tail)
{
    struct encoding *e = user;
    struct part_ids *p = &e->parts[part];

    TRY_RETURN(encoder_end(e->encoders[thread], tail, &p->ids));
    TRY_RETURN(RESERVE_ARRAY(&p->ends, &p->end_capacity, p->end_count + 1, "ends of documents"));
    p->ends[p->end_count++] = p->ids.count;
    return ALIBI_OK;
}

/* ---- all parts of a block */

/* The memory of a long piece is not kept. */
static void drop_large(struct ids *ids, int64_t most)
{
    if (ids->capacity <= most)
        return;
    mem_free(ids->at);
    *ids = (struct ids){ 0 };
}

/* Joins the results of all parts, in the order of the text. */
static alibi_status join_parts(struct encoding *e, int64_t *words)
{
    const struct stretches *s = e->stretches;
    int64_t total = 0;

    for (int64_t i = 0; i < s->count; i++)
        total += e->parts[i].ids.count;
    TRY_RETURN(ids_reserve(&e->ids, total));
    for (int64_t i = 0; i < s->count; i++) {
        struct part_ids *p = &e->parts[i];
        TRY_RETURN(RESERVE_ARRAY(&e->ends, &e->end_capacity, e->end_count + p->end_count,
                                 "ends of documents"));
        for (int64_t k = 0; k < p->end_count; k++)
            e->ends[e->end_count++] = e->ids.count + p->ends[k];
        TRY_RETURN(ids_append(&e->ids, p->ids.at, p->ids.count));
        *words += p->words;
        drop_large(&p->ids, 4 * PART_BYTES);
    }
    return ALIBI_OK;
}

/* A block may give no id, if it is blank or is kept as a whole: then the next one is taken. The
 * reader fills the next block while this one is encoded. After a failure only encoding_close() may
 * be called. */
alibi_status encoding_next(struct encoding *e, struct encoded *out)
{
    struct encoded text = { 0 };
    struct stretches *s = e->stretches;
    struct stretch_work work = { e, begin_part, run_part, end_document };

    e->ids.count = 0;
    drop_large(&e->ids, (int64_t)e->block_bytes);
    e->end_count = 0;
    while (e->ids.count == 0) {
        int64_t before = e->part_capacity;
        alibi_status status;

        TRY_RETURN(worker_wait(e->reader));
        source_tell(e->source);
        text.source_bytes = source_bytes_done(e->source);
        if (e->block.bytes == 0 && e->block.end_count == 0)
            break;
        TRY_RETURN(stretches_take(s, &e->block));
        worker_start(e->reader, read_block, e);
        if (text.bytes == 0 && e->end_count == 0)
            text.start = s->start;

        TRY_RETURN(RESERVE_ARRAY(&e->parts, &e->part_capacity, s->count, "ids of parts"));
        memset(e->parts + before, 0, (size_t)(e->part_capacity - before) * sizeof *e->parts);
        status = stretches_run(s, &work);
        if (status == ALIBI_OK && s->bytes - s->reached > PIECE_MAX) {
            /* Without this bound a document without cuts would fill the memory. */
            s->failed = s->count - 1;
            status = fail(ALIBI_BAD_INPUT,
                          "more than %d bytes without a place at which the tokenizer may cut",
                          PIECE_MAX);
        }
        if (status != ALIBI_OK)
            return stretches_fail(s, e->source, status);
        TRY_RETURN(join_parts(e, &text.words));
        text.bytes += (int64_t)(s->reached - s->from);
    }
    text.ids = e->ids.at;
    text.count = e->ids.count;
    text.ends = e->ends;
    text.end_count = e->end_count;
    *out = text;
    return ALIBI_OK;
}
