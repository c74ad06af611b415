/* tokenize.c - text of any size to token shards in a folder, or to a callback as they are produced
 *
 *   source -> encoding (ids, block by block) -> shards -> index.json
 *                                               each followed by progress.json
 *
 * Invariant: from the first shard on, progress.json names finished shards that are on the disk and
 * a place in the text from which the remaining tokens follow. The next call removes everything else
 * that a stopped call leaves. */
#include <math.h>
#include <string.h>

#include "text/shards.h"

const struct tokenize_limits tokenize_limits_usual = { .block_bytes = ENCODING_BLOCK_BYTES,
                                                       .shards = 50000 };

/* ---- progress of a call */

struct meter {
    double started;
    int64_t total;       /* bytes of the source; 0: not known */
    int64_t first, done; /* bytes done before this call, and now */
    int64_t first_token, tokens;
};

static struct meter meter_start(const struct source *source, int64_t tokens)
{
    int64_t first = source_bytes_done(source);

    return (struct meter){ .started = clock_seconds(),
                           .total = source_bytes_total(source),
                           .first = first,
                           .done = first,
                           .first_token = tokens,
                           .tokens = tokens };
}

/* The bytes of this call took or gave `value`. The estimate for the remaining bytes; 0: unknown. */
static double extrapolate(const struct meter *m, double value)
{
    return seconds_left(value, m->done - m->first, m->total - m->first);
}

static void meter_report(struct meter *m, const struct encoded *e, const struct alibi_call *call)
{
    double seconds = clock_seconds() - m->started;

    m->done = e->source_bytes;
    m->tokens += e->count;
    call_progress(
        call, &(struct alibi_progress){
                  .task = "tokenize",
                  .unit = "bytes",
                  .done = m->done,
                  .total = m->total,
                  .seconds = seconds,
                  .seconds_left = extrapolate(m, seconds),
                  .tokens_per_s = seconds > 0 ? (double)(m->tokens - m->first_token) / seconds : 0,
                  .loss = NAN,
              });
}

/* ---- into a folder */

struct tokenizing {
    const struct tokenize_limits *limits;
    const struct alibi_call *call;
    const alibi_tokenizer *tokenizer;
    const char *folder;
    int64_t shard_tokens;
    int width;
    struct source *source;
    struct encoding *encoding;
    struct text request;
    struct progress progress; /* the start of the block being written; its shards are finished */
    int64_t in_shards;        /* tokens in the finished ones */
    struct shards there;      /* shards that an earlier call finished */
    int there_at;             /* where its next tokens are compared */
    int64_t before;           /* tokens in them */
    struct shard_writer *writer;
    struct meter meter;
};

static alibi_status fail_stopped(const struct tokenizing *t)
{
    long long shards = t->progress.shards.count;

    if (shards == 0)
        return fail(ALIBI_INTERRUPTED,
                    "stopped before '%s' had a complete shard; the same command starts from the "
                    "beginning",
                    t->folder);
    return fail(ALIBI_INTERRUPTED,
                "stopped; '%s' has %lld complete shard%s, and the same command resumes after %s",
                t->folder, shards, shards > 1 ? "s" : "", shards > 1 ? "them" : "it");
}

/* Reports a full disk now instead of in the middle of a shard. The size is an estimate, because of
 * compression and other writers. */
static alibi_status open_writer(struct tokenizing *t, int64_t at_hand)
{
    double left =
        (double)at_hand + extrapolate(&t->meter, (double)(t->meter.tokens - t->meter.first_token));
    int64_t tokens = (int64_t)fmin((double)t->shard_tokens, left);
    int64_t needed = SHARD_HEADER_BYTES + tokens * t->width, free_bytes;

    if (t->progress.shards.count >= t->limits->shards)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has %lld shards of %lld tokens, the most that can be read; use a larger "
                    "--shard-tokens and a new folder",
                    t->folder, (long long)t->limits->shards, (long long)t->shard_tokens);
    TRY_RETURN(folder_free_space(&free_bytes, t->folder));
    if (needed > free_bytes)
        return fail(ALIBI_IO,
                    "not enough space: the next shard takes about %lld bytes, '%s' has %lld free",
                    (long long)needed, t->folder, (long long)free_bytes);
    return shard_writer_open(&t->writer, t->folder, t->progress.shards.count, t->width,
                             t->shard_tokens);
}

static alibi_status finish_shard(struct tokenizing *t)
{
    struct shard_entry entry;

    TRY_RETURN(shard_writer_finish(t->writer, &entry));
    shard_writer_free(t->writer);
    t->writer = NULL;
    t->in_shards += entry.tokens;
    return shard_list_add(&t->progress.shards, &entry);
}

static alibi_status write_ids(struct tokenizing *t, const int32_t *ids, int64_t count)
{
    while (count > 0) {
        int64_t some;
        if (t->writer == NULL)
            TRY_RETURN(open_writer(t, count));
        some = shard_writer_room(t->writer) < count ? shard_writer_room(t->writer) : count;
        TRY_RETURN(shard_writer_add(t->writer, ids, some));
        ids += some;
        count -= some;
        if (shard_writer_room(t->writer) == 0) {
            TRY_RETURN(finish_shard(t));
            t->progress.skip = t->in_shards - t->progress.tokens;
            TRY_RETURN(shard_folder_save(t->folder, &t->progress));
            if (call_stopped(t->call))
                return fail_stopped(t);
        }
    }
    return ALIBI_OK;
}

/* A resumed call makes tokens again that are already in shards. If they differ, the text is another
 * one. */
static alibi_status compare_ids(struct tokenizing *t, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t token = t->progress.tokens + i;
        const struct shard *s = &t->there.at[t->there_at];
        while (token >= s->first + s->count)
            s = &t->there.at[++t->there_at];
        if (shard_id(s, token - s->first) != (uint32_t)ids[i])
            return fail(ALIBI_BAD_INPUT,
                        "the input has changed: its token %lld is %ld, but '%s' has %lu there",
                        (long long)token, (long)ids[i], s->path,
                        (unsigned long)shard_id(s, token - s->first));
    }
    return ALIBI_OK;
}

static void count_block(struct progress *p, const struct encoded *e)
{
    p->documents += e->end_count;
    p->tokens += e->count;
    p->words += e->words;
    p->bytes += e->bytes;
}

static alibi_status write_blocks(struct tokenizing *t)
{
    struct progress *p = &t->progress;
    struct encoded e;

    for (;;) {
        alibi_status status = encoding_next(t->encoding, &e);
        int64_t known = t->before - p->tokens; /* of this block's tokens, those in `there` */
        if (status != ALIBI_OK)
            return status == ALIBI_INTERRUPTED ? fail_stopped(t) : status;
        meter_report(&t->meter, &e, t->call);
        if (e.count == 0)
            break;
        known = known < 0 ? 0 : known < e.count ? known : e.count;
        p->place = e.start;
        TRY_RETURN(compare_ids(t, e.ids, known));
        TRY_RETURN(write_ids(t, e.ids + known, e.count - known));
        count_block(p, &e);
        if (call_stopped(t->call))
            return fail_stopped(t);
    }
    count_block(p, &e);
    if (p->tokens < t->before)
        return fail(ALIBI_BAD_INPUT,
                    "the input has changed: it ends after %lld tokens, but '%s' has %lld",
                    (long long)p->tokens, t->folder, (long long)t->before);
    return t->writer != NULL ? finish_shard(t) : ALIBI_OK;
}

/* Opens the finished shards, which must be as they were written, and finds the place in the text
 * after them. */
static alibi_status resume(struct tokenizing *t, bool certain)
{
    struct progress *p = &t->progress;
    struct shard_index listed = { .width = t->width,
                                  .entries = p->shards.at,
                                  .entry_count = p->shards.count };

    TRY_RETURN(shards_open_listed(&t->there, &listed, NAME_SHARD_PROGRESS, t->folder, t->call));
    for (int64_t i = 0; i < p->shards.count; i++)
        t->before += p->shards.at[i].tokens;
    t->in_shards = t->before;
    if (p->place.file >= source_file_count(t->source))
        return fail(ALIBI_BAD_INPUT, "the input has changed: '%s' continues in file %lld of %d",
                    t->folder, (long long)p->place.file + 1, source_file_count(t->source));
    call_note(t->call, "resuming '%s' after %lld shards with %lld tokens, at '%s', document %lld",
              t->folder, (long long)p->shards.count, (long long)t->before,
              source_name(t->source, p->place.file), (long long)p->place.document + 1);
    if (certain) {
        TRY_RETURN(source_seek(t->source, p->place));
        if (p->counts_marks && p->place.document == 0 && p->place.offset > 0 &&
            source_skipped_mark(t->source))
            return fail(ALIBI_BAD_INPUT,
                        "cannot resume '%s': an earlier version began it and counted the "
                        "byte-order mark of '%s'; use another --out",
                        t->folder, source_name(t->source, p->place.file));
        p->counts_marks = false;
        return ALIBI_OK;
    }
    /* A pipe may have another text, so all of it is tokenized again and compared. */
    p->place = (struct place){ 0 };
    p->skip = p->documents = p->tokens = p->words = p->bytes = 0;
    return ALIBI_OK;
}

static alibi_status write_all(struct tokenizing *t, bool certain)
{
    const struct progress *p = &t->progress;
    struct shard_index index = { .tokenizer = tokenizer_checksum(t->tokenizer), .width = t->width };

    TRY_RETURN(shard_folder_put_tokenizer(t->folder, t->tokenizer));
    if (p->shards.count > 0)
        TRY_RETURN(resume(t, certain));
    t->meter = meter_start(t->source, p->tokens);
    TRY_RETURN(encoding_open(&t->encoding, t->source, t->tokenizer, t->limits->block_bytes));
    TRY_RETURN(write_blocks(t));
    if (p->shards.count == 0)
        return fail(ALIBI_BAD_INPUT, "nothing to tokenize: there is no text in '%s'%s",
                    source_name(t->source, 0),
                    source_file_count(t->source) > 1 ? " and the files after it" : "");
    index.documents = p->documents;
    index.tokens = p->tokens;
    index.words = p->words;
    index.bytes = p->bytes;
    index.entries = p->shards.at; /* borrowed */
    index.entry_count = p->shards.count;
    return shard_folder_finish(t->folder, &index);
}

static alibi_status tokenize_in_folder(struct tokenizing *t, bool certain,
                                       struct alibi_tokenize_result *result)
{
    alibi_status status;
    struct lock *lock = NULL; /* one writer per folder */
    struct shard_index index = { 0 };
    const struct progress *p = &t->progress;
    enum path_kind before;
    bool finished;

    TRY(path_look(&before, t->folder));
    TRY(folder_create(t->folder));
    TRY(lock_take(&lock, t->folder));
    TRY(shard_folder_open(t->folder, &t->request, certain, &t->progress, &index, &finished,
                          t->call));
    if (finished) {
        *result = (struct alibi_tokenize_result){
            index.documents, index.tokens, index.words, index.bytes, index.entry_count, 0, 0
        };
    } else {
        TRY(write_all(t, certain));
        *result = (struct alibi_tokenize_result){ p->documents,    p->tokens, p->words, p->bytes,
                                                  p->shards.count, 0,         0 };
    }
out:
    shard_writer_free(t->writer); /* removes an unfinished shard while the folder is locked */
    t->writer = NULL;
    if (status == ALIBI_BAD_INPUT && lock != NULL && before == PATH_NONE && p->shards.count == 0) {
        /* A text that cannot be tokenized leaves no folder. Its failure is the one reported. */
        struct failure why;
        failure_keep(&why, status);
        shard_folder_remove(t->folder);
        status = failure_raise(&why);
    }
    lock_release(lock);
    shard_index_fini(&index);
    return status;
}

alibi_status tokenize_within(const struct tokenize_limits *limits, const alibi_tokenizer *t,
                             const char *const *paths, int count,
                             const struct alibi_reading *reading, int64_t shard_tokens,
                             const char *dir, struct alibi_tokenize_result *result,
                             const struct alibi_call *call)
{
    alibi_status status;
    struct tokenizing all = {
        .limits = limits, .call = call, .tokenizer = t, .folder = dir, .shard_tokens = shard_tokens
    };
    struct alibi_tokenize_result counted;
    double started = clock_seconds();
    bool certain;

    alibi_memory_reset_peak();
    all.width = alibi_tokenizer_vocab(t) > UINT16_MAX + 1 ? 4 : 2;
    if (shard_tokens < 1 || shard_tokens > SHARD_TOKENS_MAX)
        return fail(ALIBI_USAGE, "shards cannot have %lld tokens: the range is 1..%d",
                    (long long)shard_tokens, SHARD_TOKENS_MAX);
    TRY(source_open(&all.source, paths, count, reading, call));
    TRY(alibi_text_check_folder(paths, count, NULL, dir));
    TRY(request_format(&(struct request){ t, all.source, reading, shard_tokens }, &all.request,
                       &certain));
    TRY(tokenize_in_folder(&all, certain, &counted));
    counted.seconds = clock_seconds() - started;
    counted.peak_bytes = alibi_memory_peak();
    *result = counted;
out:
    encoding_close(all.encoding);
    source_close(all.source);
    text_free(&all.request);
    progress_fini(&all.progress);
    shards_fini(&all.there);
    return status;
}

alibi_status alibi_tokenize(const alibi_tokenizer *t, const char *const *paths, int count,
                            const struct alibi_reading *reading, int64_t shard_tokens,
                            const char *dir, struct alibi_tokenize_result *result,
                            const struct alibi_call *call)
{
    return tokenize_within(&tokenize_limits_usual, t, paths, count, reading, shard_tokens, dir,
                           result, call);
}

/* ---- to a callback */

alibi_status tokenize_each_within(const struct tokenize_limits *limits, const alibi_tokenizer *t,
                                  const char *const *paths, int count,
                                  const struct alibi_reading *reading,
                                  bool (*ids)(void *user, const int32_t *ids, int64_t count,
                                              bool ends),
                                  void *user, const struct alibi_call *call)
{
    alibi_status status;
    struct source *source = NULL;
    struct encoding *encoding = NULL;
    struct encoded e = { .count = 1 };
    struct meter meter;
    bool more = true;

    TRY(source_open(&source, paths, count, reading, call));
    meter = meter_start(source, 0);
    TRY(encoding_open(&encoding, source, t, limits->block_bytes));
    while (more && e.count > 0) {
        int64_t from = 0;
        TRY(encoding_next(encoding, &e));
        meter_report(&meter, &e, call);
        for (int64_t i = 0; i < e.end_count && more; i++) {
            more = ids(user, e.ids + from, e.ends[i] - from, true);
            from = e.ends[i];
        }
        if (more && from < e.count) /* of a document that continues in the next block */
            more = ids(user, e.ids + from, e.count - from, false);
        if (more && e.count > 0 && call_stopped(call))
            TRY(fail(ALIBI_INTERRUPTED, "stopped after %lld tokens", (long long)meter.tokens));
    }
out:
    encoding_close(encoding);
    source_close(source);
    return status;
}

alibi_status alibi_tokenize_each(const alibi_tokenizer *t, const char *const *paths, int count,
                                 const struct alibi_reading *reading,
                                 bool (*ids)(void *user, const int32_t *ids, int64_t count,
                                             bool ends),
                                 void *user, const struct alibi_call *call)
{
    return tokenize_each_within(&tokenize_limits_usual, t, paths, count, reading, ids, user, call);
}
