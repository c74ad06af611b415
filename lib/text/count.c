/* count.c - the distinct pieces of a text of any size, with their counts
 *
 *   block ── parts, each counted by one thread into a tally of its own
 *         ── shards of the total, each filled by one thread
 *
 * while a worker reads the next block. A part's tally is small enough for the processor's cache,
 * and most pieces occur there more than once: only the distinct ones reach the total.
 *
 * A tally is a hash table in shards: the upper half of a piece's hash selects the shard, the lower
 * half the slot. A text made to collide slows counting down; the limits on distinct pieces bound
 * that. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "text/source.h"
#include "text/vocabulary.h"

/* ---- tallies */

enum { PIECES_FIRST = 256 };

static void tally_shard_fini(struct tally_shard *s)
{
    mem_free(s->pieces);
    hash_fini(&s->table);
    arena_fini(&s->copies);
}

void tally_fini(struct tally *t)
{
    for (int i = 0; i < TALLY_SHARDS; i++)
        tally_shard_fini(&t->shards[i]);
}

/* Drops all pieces and keeps the memory. */
static void tally_clear(struct tally *t)
{
    for (int i = 0; i < TALLY_SHARDS; i++) {
        struct tally_shard *s = &t->shards[i];
        if (s->count > 0)
            hash_clear(&s->table);
        s->count = 0;
        s->bytes = 0;
        arena_fini(&s->copies);
    }
}

/* The slot of the piece, or the free one for it. */
static uint32_t *find_slot(const struct tally_shard *s, const struct piece *p)
{
    uint32_t *slot = hash_slot(&s->table, p->hash);

    for (; *slot != 0; slot = hash_next(&s->table, slot)) {
        const struct piece *other = &s->pieces[*slot - 1];
        if (other->hash == p->hash && other->bytes == p->bytes &&
            memcmp(other->at, p->at, p->bytes) == 0)
            break;
    }
    return slot;
}

static alibi_status tally_piece(struct tally_shard *s, const struct piece *p, bool copy)
{
    uint32_t *slot;
    struct piece kept = *p;

    if (s->count == s->capacity) {
        int64_t capacity = s->capacity > 0 ? 2 * s->capacity : PIECES_FIRST;
        TRY_RETURN(mem_grow((void **)&s->pieces, (size_t)s->count * sizeof *s->pieces,
                            (size_t)capacity * sizeof *s->pieces, "the pieces of a text"));
        TRY_RETURN(hash_init(&s->table, capacity, "the pieces of a text"));
        s->capacity = capacity;
        for (int64_t i = 0; i < s->count; i++)
            *find_slot(s, &s->pieces[i]) = (uint32_t)i + 1;
    }
    slot = find_slot(s, p);
    if (*slot != 0) {
        s->pieces[*slot - 1].count += p->count;
        return ALIBI_OK;
    }
    if (copy) {
        char *copied = NULL;
        TRY_RETURN(arena_new(&s->copies, (void **)&copied, p->bytes, "the pieces of a text"));
        memcpy(copied, p->at, p->bytes);
        kept.at = copied;
    }
    s->pieces[s->count++] = kept;
    s->bytes += p->bytes;
    *slot = (uint32_t)s->count;
    return ALIBI_OK;
}

alibi_status tally_add(struct tally *t, const char *at, size_t bytes)
{
    uint64_t hash = hash_bytes(at, bytes);
    struct piece p = { at, 1, (uint32_t)bytes, (uint32_t)hash };

    return tally_piece(&t->shards[(hash >> 32) % TALLY_SHARDS], &p, false);
}

alibi_status tally_merge(struct tally *t, const struct tally *from, int shard)
{
    const struct tally_shard *s = &from->shards[shard];

    for (int64_t i = 0; i < s->count; i++)
        TRY_RETURN(tally_piece(&t->shards[shard], &s->pieces[i], true));
    return ALIBI_OK;
}

int64_t tally_count(const struct tally *t)
{
    int64_t count = 0;

    for (int i = 0; i < TALLY_SHARDS; i++)
        count += t->shards[i].count;
    return count;
}

size_t tally_bytes(const struct tally *t)
{
    size_t bytes = 0;

    for (int i = 0; i < TALLY_SHARDS; i++)
        bytes += t->shards[i].bytes;
    return bytes;
}

/* Drops every piece that occurs at most `floor` times. Only for a tally that tally_merge() filled.
 */
static alibi_status tally_drop(struct tally *t, int64_t floor)
{
    for (int k = 0; k < TALLY_SHARDS; k++) {
        struct tally_shard *s = &t->shards[k], fresh = { 0 };
        for (int64_t i = 0; i < s->count; i++) {
            alibi_status status =
                s->pieces[i].count > floor ? tally_piece(&fresh, &s->pieces[i], true) : ALIBI_OK;
            if (status != ALIBI_OK) {
                tally_shard_fini(&fresh);
                return status;
            }
        }
        tally_shard_fini(s);
        *s = fresh;
    }
    return ALIBI_OK;
}

alibi_status tally_list(const struct tally *t, struct piece **out, int64_t *count)
{
    struct piece *list = NULL;
    int64_t n = 0;

    TRY_RETURN(NEW_ARRAY(&list, tally_count(t), "the pieces of a text"));
    for (int i = 0; i < TALLY_SHARDS; i++) {
        const struct tally_shard *s = &t->shards[i];
        if (s->count > 0)
            memcpy(list + n, s->pieces, (size_t)s->count * sizeof *list);
        n += s->count;
    }
    *out = list;
    *count = n;
    return ALIBI_OK;
}

/* ---- counting */

/* BPE training takes up to 37 bytes for a byte of a distinct piece (measured with random letters
 * and min_count 1): under 2 GB. */
const struct tally_limits tally_limits_usual = { .pieces = 5 << 20,
                                                 .bytes = 40 << 20,
                                                 .block_bytes = 16 << 20 };

struct counting {
    struct tally *total;
    struct source *source;
    const struct tally_limits *limits;
    struct worker *worker;
    struct block block;
    struct stretches *stretches;
    struct cutter **cutters; /* [threads]; NULL: words */
    struct tally *parts;     /* [part_count] */
    int64_t part_count;
    bool noted; /* that pieces were dropped */
    const struct alibi_call *call;
};

static alibi_status begin_part(void *user, int thread, int64_t part)
{
    struct counting *c = user;

    (void)thread;
    tally_clear(&c->parts[part]);
    return ALIBI_OK;
}

static alibi_status add_piece(void *user, const char *piece, size_t bytes)
{
    return tally_add(user, piece, bytes);
}

static alibi_status cut_pieces(void *user, int thread, int64_t part, const struct stretch *s,
                               size_t *reached)
{
    struct counting *c = user;

    return cutter_run(c->cutters[thread], s, add_piece, &c->parts[part], reached);
}

/* A word that reaches the end of the known text may continue. */
static alibi_status cut_words(void *user, int thread, int64_t part, const struct stretch *s,
                              size_t *reached)
{
    struct counting *c = user;
    size_t at = s->from;

    (void)thread;
    while (at < s->stop) {
        size_t end = at;
        if (is_white_space(s->text[at])) {
            at++;
            continue;
        }
        while (end < s->end && !is_white_space(s->text[end]))
            end++;
        if (end - at > PIECE_MAX)
            return fail(ALIBI_BAD_INPUT, "a word has more than %d bytes", PIECE_MAX);
        if (end == s->end && !s->last)
            break;
        TRY_RETURN(tally_add(&c->parts[part], s->text + at, end - at));
        at = end;
    }
    *reached = at;
    return ALIBI_OK;
}

static alibi_status merge_parts(struct counting *c)
{
    struct failure *failures = NULL;
    alibi_status status = ALIBI_OK;

    TRY_RETURN(NEW_ZERO_ARRAY(&failures, TALLY_SHARDS, "failures"));
#pragma omp parallel for schedule(dynamic, 1) num_threads(c->stretches->threads)
    for (int shard = 0; shard < TALLY_SHARDS; shard++) {
        alibi_status failed = ALIBI_OK;
        for (int64_t part = 0; part < c->stretches->count && failed == ALIBI_OK; part++)
            failed = tally_merge(c->total, &c->parts[part], shard);
        if (failed != ALIBI_OK)
            failure_keep(&failures[shard], failed);
    }
    for (int shard = 0; shard < TALLY_SHARDS && status == ALIBI_OK; shard++)
        status = failure_raise(&failures[shard]);
    mem_free(failures);
    return status;
}

static bool beyond(const struct counting *c, int share)
{
    return tally_count(c->total) > c->limits->pieces / share ||
           tally_bytes(c->total) > c->limits->bytes / (size_t)share;
}

static alibi_status read_block(void *user)
{
    struct counting *c = user;

    return source_read(c->source, &c->block, c->limits->block_bytes);
}

/* Each block is counted while the worker reads the next one. */
static alibi_status count_blocks(struct counting *c)
{
    struct stretches *s = c->stretches;
    struct stretch_work work = { c, begin_part, c->cutters != NULL ? cut_pieces : cut_words, NULL };
    double began = clock_seconds();

    worker_start(c->worker, read_block, c);
    for (;;) {
        struct alibi_progress p = { .task = "tokenizer", .unit = "bytes", .loss = NAN };
        int64_t before = c->part_count;
        alibi_status status;

        TRY_RETURN(worker_wait(c->worker));
        source_tell(c->source);
        if (c->block.bytes == 0 && c->block.end_count == 0)
            return ALIBI_OK;
        if (call_stopped(c->call))
            return fail(ALIBI_INTERRUPTED, "stopped while the text was read; nothing is saved");
        TRY_RETURN(stretches_take(s, &c->block));
        p.done = source_bytes_done(c->source); /* before the worker starts again */
        p.total = source_bytes_total(c->source);
        worker_start(c->worker, read_block, c);

        TRY_RETURN(RESERVE_ARRAY(&c->parts, &c->part_count, s->count, "the pieces of a text"));
        memset(c->parts + before, 0, (size_t)(c->part_count - before) * sizeof *c->parts);
        status = stretches_run(s, &work);
        if (status != ALIBI_OK)
            return stretches_fail(s, c->source, status);
        TRY_RETURN(merge_parts(c));
        if (beyond(c, 1) && !c->noted) {
            call_note(
                c->call,
                "the text has more than %lld distinct pieces or %zu bytes of them; the rarest "
                "are dropped",
                (long long)c->limits->pieces, c->limits->bytes);
            c->noted = true;
        }
        /* Which ones depends on their counts alone, not on the number of threads. */
        if (beyond(c, 1))
            for (int64_t floor = 1; beyond(c, 2); floor *= 2)
                TRY_RETURN(tally_drop(c->total, floor));

        p.seconds = clock_seconds() - began;
        p.seconds_left = seconds_left(p.seconds, p.done, p.total);
        call_progress(c->call, &p);
    }
}

alibi_status count_pieces(struct tally *t, struct source *source, const struct pattern *pattern,
                          const struct tally_limits *limits, const struct alibi_call *call)
{
    alibi_status status;
    struct counting c = { .total = t, .source = source, .limits = limits, .call = call };

    TRY(stretches_new(&c.stretches));
    if (pattern != NULL)
        TRY(NEW_ZERO_ARRAY(&c.cutters, c.stretches->threads, "cutters"));
    for (int i = 0; pattern != NULL && i < c.stretches->threads; i++)
        TRY(cutter_new(&c.cutters[i], pattern));
    TRY(worker_new(&c.worker));
    TRY(count_blocks(&c));
out:
    source_abandon(source);
    worker_free(c.worker); /* first: it waits for a read that is still under way */
    for (int i = 0; c.cutters != NULL && i < c.stretches->threads; i++)
        cutter_free(c.cutters[i]);
    for (int64_t i = 0; i < c.part_count; i++)
        tally_fini(&c.parts[i]);
    mem_free(c.cutters);
    mem_free(c.parts);
    stretches_free(c.stretches);
    block_fini(&c.block);
    return status;
}
