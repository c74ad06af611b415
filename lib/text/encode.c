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

size_t encoding_block_bytes = 8 << 20;

/* The result of one part. */
struct part_ids {
    struct ids ids;
    int64_t *ends; /* of documents, within ids */
    int64_t end_count, end_capacity;
    int64_t words;
};

struct encoding {
    struct source *source;
    struct worker *reader;
    struct block block; /* the reader's, from worker_start() to worker_wait() */
    struct stretches *stretches;
    struct encoder **encoders; /* [threads] */
    struct part_ids *parts;    /* [part_capacity], kept from block to block for their memory */
    int64_t part_capacity;
    bool within_word; /* at the start of the next text */
    struct ids ids;   /* all parts joined */
    int64_t *ends;
    int64_t end_count, end_capacity;
};

/* ---- open and close */

static alibi_status read_block(void *user)
{
    struct encoding *e = user;

    return source_read(e->source, &e->block, encoding_block_bytes);
}

static alibi_status new_encoders(struct encoding *e, const alibi_tokenizer *t)
{
    TRY_RETURN(NEW_ZERO_ARRAY(&e->encoders, e->stretches->threads, "a list of encoders"));
    for (int i = 0; i < e->stretches->threads; i++)
        TRY_RETURN(encoder_new(&e->encoders[i], t));
    return ALIBI_OK;
}

alibi_status encoding_open(struct encoding **out, struct source *source, const alibi_tokenizer *t)
{
    alibi_status status;
    struct encoding *e = NULL;

    TRY(NEW_ZERO_ARRAY(&e, 1, "an encoding"));
    e->source = source;
    TRY(stretches_new(&e->stretches));
    TRY(new_encoders(e, t));
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
    worker_free(e->reader); /* before the block it writes to */
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

void encoding_set_within_word(struct encoding *e)
{
    e->within_word = true;
}

/* ---- one part, on one thread */

/* Words that begin in text[from..stop): at a byte that is not blank, after one that is. */
static int64_t count_words(const char *text, size_t from, size_t stop, bool within)
{
    int64_t words = 0;

    for (size_t i = from; i < stop; i++) {
        bool blank = is_white_space(text[i]);
        words += !blank && !within;
        within = !blank;
    }
    return words;
}

static alibi_status begin_part(void *user, int thread, int64_t part)
{
    struct part_ids *p = &((struct encoding *)user)->parts[part];

    (void)thread;
    p->ids.count = 0;
    p->end_count = 0;
    p->words = 0;
    return ALIBI_OK;
}

/* The byte before `from` is known, except at the start of a document, and where the source was
 * sought into one. */
static bool begins_within_word(const struct encoding *e, const struct stretch *s)
{
    const struct stretches *all = e->stretches;

    if (s->from > 0)
        return !is_white_space(s->text[s->from - 1]);
    return all->from == 0 && s->text == all->text && e->within_word;
}

static alibi_status run_part(void *user, int thread, int64_t part, const struct stretch *s,
                             size_t *reached)
{
    struct encoding *e = user;
    struct part_ids *p = &e->parts[part];

    TRY_RETURN(encoder_run(e->encoders[thread], s, &p->ids, reached));
    p->words += count_words(s->text, s->from, *reached, begins_within_word(e, s));
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

static alibi_status reserve_parts(struct encoding *e, int64_t count)
{
    int64_t before = e->part_capacity;

    TRY_RETURN(RESERVE_ARRAY(&e->parts, &e->part_capacity, count, "ids of parts"));
    memset(e->parts + before, 0, (size_t)(e->part_capacity - before) * sizeof *e->parts);
    return ALIBI_OK;
}

/* The memory of a long piece is not kept. */
static void drop_large(struct ids *ids, int64_t most)
{
    if (ids->capacity <= most)
        return;
    mem_free(ids->at);
    *ids = (struct ids){ 0 };
}

static alibi_status join_part(struct encoding *e, struct part_ids *p)
{
    TRY_RETURN(RESERVE_ARRAY(&e->ends, &e->end_capacity, e->end_count + p->end_count,
                             "ends of documents"));
    for (int64_t i = 0; i < p->end_count; i++)
        e->ends[e->end_count++] = e->ids.count + p->ends[i];
    TRY_RETURN(ids_append(&e->ids, p->ids.at, p->ids.count));
    drop_large(&p->ids, 4 * PART_BYTES);
    return ALIBI_OK;
}

static alibi_status join_parts(struct encoding *e, int64_t *words)
{
    const struct stretches *s = e->stretches;
    int64_t total = 0;

    for (int64_t i = 0; i < s->count; i++)
        total += e->parts[i].ids.count;
    TRY_RETURN(ids_reserve(&e->ids, total));
    for (int64_t i = 0; i < s->count; i++) {
        TRY_RETURN(join_part(e, &e->parts[i]));
        *words += e->parts[i].words;
    }
    return ALIBI_OK;
}

/* Whether the next text begins within a word. */
static bool ends_within_word(const struct stretches *s, bool before)
{
    if (s->reached == s->from && s->end_count == 0)
        return before;
    if (s->end_count > 0 && s->ends[s->end_count - 1] == s->reached)
        return false;
    return !is_white_space(s->text[s->reached - 1]);
}

/* The rest of the text is encoded with the next block. The bound keeps a document without cuts from
 * filling the memory. */
static alibi_status check_left_over(struct encoding *e)
{
    struct stretches *s = e->stretches;
    alibi_status status;

    if (s->bytes - s->reached <= PIECE_MAX)
        return ALIBI_OK;
    s->failed = s->count - 1;
    status = fail(ALIBI_BAD_INPUT,
                  "more than %d bytes without a place at which the tokenizer may cut", PIECE_MAX);
    return stretches_fail(s, e->source, status);
}

/* Encodes the text of stretches_take(), and adds it to `out`. */
static alibi_status encode_text(struct encoding *e, struct encoded *out)
{
    struct stretches *s = e->stretches;
    struct stretch_work work = { e, begin_part, run_part, end_document };
    alibi_status status;

    TRY_RETURN(reserve_parts(e, s->count));
    status = stretches_run(s, &work);
    if (status != ALIBI_OK)
        return stretches_fail(s, e->source, status);
    TRY_RETURN(check_left_over(e));
    TRY_RETURN(join_parts(e, &out->words));
    out->bytes += (int64_t)(s->reached - s->from);
    e->within_word = ends_within_word(s, e->within_word);
    return ALIBI_OK;
}

/* Takes the block that was read, starts reading the next, and encodes; *ended if there was none. */
static alibi_status take_block(struct encoding *e, struct encoded *out, bool *ended)
{
    TRY_RETURN(worker_wait(e->reader));
    source_tell(e->source);
    out->source_bytes = source_bytes_done(e->source);
    *ended = e->block.bytes == 0 && e->block.end_count == 0;
    if (*ended)
        return ALIBI_OK;
    TRY_RETURN(stretches_take(e->stretches, &e->block));
    worker_start(e->reader, read_block, e);
    if (out->bytes == 0 && e->end_count == 0)
        out->start = e->stretches->start;
    return encode_text(e, out);
}

/* A block may give no id, if it is blank or is kept as a whole. After a failure only
 * encoding_close() may be called. */
alibi_status encoding_next(struct encoding *e, struct encoded *out)
{
    struct encoded text = { .within_word = e->within_word };
    bool ended = false;

    e->ids.count = 0;
    drop_large(&e->ids, (int64_t)encoding_block_bytes);
    e->end_count = 0;
    while (e->ids.count == 0 && !ended)
        TRY_RETURN(take_block(e, &text, &ended));
    text.ids = e->ids.at;
    text.count = e->ids.count;
    text.ends = e->ends;
    text.end_count = e->end_count;
    *out = text;
    return ALIBI_OK;
}
