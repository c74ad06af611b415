/* tokenize.c - a corpus of any size to token shards in a folder, or to a caller as they come
 *
 * Invariant: progress.json, from the first shard on, names finished shards that are on the disk,
 * and a place in the text from which the rest of the tokens follow. What a stopped call leaves
 * beside them is cleared by the next one. */
#include <math.h>
#include <string.h>

#include "text/shard_folder.h"
#include "text/tokenize.h"

int64_t shards_max = 50000;

/* ---- how far a call is */

struct meter {
    double started;
    int64_t total;       /* bytes of the source; 0: not known */
    int64_t first, done; /* of them before this call, and now */
    int64_t first_token, tokens;
};

static struct meter meter_start(const struct source *source, int64_t tokens)
{
    int64_t first = source_bytes_done(source);

    return (
        struct meter){ clock_seconds(), source_bytes_total(source), first, first, tokens, tokens };
}

/* `value` has come of what was done in this call: how much will come of what is left? */
static double extrapolate(const struct meter *m, double value)
{
    if (m->done <= m->first || m->total <= m->done)
        return 0;
    return value * (double)(m->total - m->done) / (double)(m->done - m->first);
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
    const struct alibi_call *call;
    const alibi_tokenizer *tokenizer;
    const char *folder;
    int64_t shard_tokens;
    int width;
    struct source *source;
    struct encoding *encoding;
    struct text request;
    struct progress progress; /* where the block that is being written starts; its shards grow as
                                 they are finished */
    int64_t in_shards;        /* tokens in the finished ones */
    struct shard *there;      /* those that were there already */
    int there_count, there_at;
    int64_t before; /* tokens in them */
    struct shard_writer *writer;
    struct meter meter;
};

/* Better now than when the disk is full; compression and what others write make it a guess. */
static alibi_status check_space(const struct tokenizing *t, int64_t at_hand)
{
    double left =
        (double)at_hand + extrapolate(&t->meter, (double)(t->meter.tokens - t->meter.first_token));
    double tokens = fmin((double)t->shard_tokens, left);
    int64_t needed = SHARD_HEADER_BYTES + (int64_t)tokens * t->width, free_bytes;

    TRY_RETURN(folder_free_space(&free_bytes, t->folder));
    if (needed > free_bytes)
        return fail(ALIBI_IO,
                    "not enough space: the next shard takes about %lld bytes, '%s' has %lld free",
                    (long long)needed, t->folder, (long long)free_bytes);
    return ALIBI_OK;
}

static alibi_status check_count(const struct tokenizing *t)
{
    if (t->progress.shards.count < shards_max)
        return ALIBI_OK;
    return fail(
        ALIBI_BAD_INPUT,
        "'%s' has %lld shards of %lld tokens, and more could not be read: take larger ones, in a new folder",
        t->folder, (long long)shards_max, (long long)t->shard_tokens);
}

static alibi_status save_progress(struct tokenizing *t)
{
    t->progress.skip = t->in_shards - t->progress.tokens;
    return shard_folder_save(t->folder, &t->progress);
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

static alibi_status fail_stopped(const struct tokenizing *t)
{
    long long shards = t->progress.shards.count;

    if (shards == 0)
        return fail(ALIBI_INTERRUPTED,
                    "stopped before '%s' had a whole shard: the same request begins anew",
                    t->folder);
    return fail(ALIBI_INTERRUPTED,
                "stopped: '%s' has %lld whole shard%s, and the same request goes on behind %s",
                t->folder, shards, shards > 1 ? "s" : "", shards > 1 ? "them" : "it");
}

static alibi_status write_ids(struct tokenizing *t, const int32_t *ids, int64_t count)
{
    while (count > 0) {
        int64_t some;
        if (t->writer == NULL) {
            TRY_RETURN(check_count(t));
            TRY_RETURN(check_space(t, count));
            TRY_RETURN(shard_writer_open(&t->writer, t->folder, t->progress.shards.count, t->width,
                                         t->shard_tokens));
        }
        some = shard_writer_room(t->writer) < count ? shard_writer_room(t->writer) : count;
        TRY_RETURN(shard_writer_add(t->writer, ids, some));
        ids += some;
        count -= some;
        if (shard_writer_room(t->writer) == 0) {
            TRY_RETURN(finish_shard(t));
            TRY_RETURN(save_progress(t));
            if (call_stopped(t->call))
                return fail_stopped(t);
        }
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

/* A call that goes on meets tokens again that lie in shards already. If others come, another text
 * was given. */
static alibi_status compare_ids(struct tokenizing *t, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t token = t->progress.tokens + i;
        const struct shard *s = &t->there[t->there_at];
        while (token >= s->first + s->count)
            s = &t->there[++t->there_at];
        if (shard_id(s, token - s->first) != (uint32_t)ids[i])
            return fail(ALIBI_BAD_INPUT,
                        "the input is not what it was: its token %lld is %ld, '%s' has %lu there",
                        (long long)token, (long)ids[i], s->path,
                        (unsigned long)shard_id(s, token - s->first));
    }
    return ALIBI_OK;
}

static alibi_status write_block(struct tokenizing *t, const struct encoded *e)
{
    struct progress *p = &t->progress;
    int64_t there = t->before - p->tokens;

    there = there < 0 ? 0 : there < e->count ? there : e->count;
    p->place = e->start;
    p->within_word = e->within_word;
    TRY_RETURN(compare_ids(t, e->ids, there));
    TRY_RETURN(write_ids(t, e->ids + there, e->count - there));
    count_block(p, e);
    return ALIBI_OK;
}

static alibi_status write_blocks(struct tokenizing *t)
{
    struct encoded e;

    for (;;) {
        alibi_status status = encoding_next(t->encoding, &e);
        if (status != ALIBI_OK)
            return status == ALIBI_INTERRUPTED ? fail_stopped(t) : status;
        meter_report(&t->meter, &e, t->call);
        if (e.count == 0)
            break;
        TRY_RETURN(write_block(t, &e));
        if (call_stopped(t->call))
            return fail_stopped(t);
    }
    count_block(&t->progress, &e);
    if (t->progress.tokens < t->before)
        return fail(ALIBI_BAD_INPUT,
                    "the input is not what it was: it ends after %lld tokens, '%s' has %lld",
                    (long long)t->progress.tokens, t->folder, (long long)t->before);
    return t->writer != NULL ? finish_shard(t) : ALIBI_OK;
}

static struct shard_index make_index(const struct tokenizing *t)
{
    const struct progress *p = &t->progress;

    return (struct shard_index){ tokenizer_checksum(t->tokenizer),
                                 t->width,
                                 p->documents,
                                 p->tokens,
                                 p->words,
                                 p->bytes,
                                 p->shards.at,
                                 p->shards.count };
}

static alibi_status write_all(struct tokenizing *t)
{
    struct shard_index index;

    TRY_RETURN(write_blocks(t));
    if (t->progress.shards.count == 0)
        return fail(ALIBI_BAD_INPUT, "nothing to tokenize: there is no text in '%s'%s",
                    source_file(t->source, 0),
                    source_file_count(t->source) > 1 ? " and the files behind it" : "");
    index = make_index(t);
    return shard_folder_finish(t->folder, &index);
}

/* What is finished must be as it was written. */
static alibi_status open_finished(struct tokenizing *t)
{
    const struct shard_list *l = &t->progress.shards;
    struct shard_index listed = { .width = t->width, .entries = l->at, .entry_count = l->count };

    TRY_RETURN(shards_open_listed(&t->there, &t->there_count, &listed, SHARD_PROGRESS, t->folder,
                                  t->call));
    for (int64_t i = 0; i < l->count; i++)
        t->before += l->at[i].tokens;
    t->in_shards = t->before;
    return ALIBI_OK;
}

static void begin_at_start(struct progress *p)
{
    p->place = (struct place){ 0 };
    p->within_word = false;
    p->skip = p->documents = p->tokens = p->words = p->bytes = 0;
}

/* Of a pipe nobody knows whether it is fed the same text again: so all of it is tokenized again,
 * and compared. */
static alibi_status find_place(struct tokenizing *t, bool certain)
{
    struct progress *p = &t->progress;

    if (p->place.file >= source_file_count(t->source))
        return fail(ALIBI_BAD_INPUT,
                    "the input is not what it was: '%s' goes on in file %lld of %d", t->folder,
                    (long long)p->place.file + 1, source_file_count(t->source));
    call_note(t->call,
              "going on in '%s' behind %lld shards with %lld tokens, at '%s', document %lld",
              t->folder, (long long)p->shards.count, (long long)t->before,
              source_file(t->source, p->place.file), (long long)p->place.document + 1);
    if (certain)
        return source_seek(t->source, p->place);
    begin_at_start(p);
    return ALIBI_OK;
}

static alibi_status go_on(struct tokenizing *t, bool certain)
{
    TRY_RETURN(open_finished(t));
    if (t->before > 0)
        TRY_RETURN(find_place(t, certain));
    t->meter = meter_start(t->source, t->progress.tokens);
    TRY_RETURN(encoding_open(&t->encoding, t->source, t->tokenizer));
    if (t->progress.within_word)
        encoding_set_within_word(t->encoding);
    return write_all(t);
}

static struct alibi_tokenize_result result_of(const struct shard_index *x)
{
    return (struct alibi_tokenize_result){ .documents = x->documents,
                                           .tokens = x->tokens,
                                           .words = x->words,
                                           .bytes = x->bytes,
                                           .shards = x->entry_count };
}

static alibi_status begin_or_go_on(struct tokenizing *t, bool certain,
                                   struct alibi_tokenize_result *result)
{
    struct shard_index index = { 0 };
    bool finished;

    TRY_RETURN(shard_folder_open(t->folder, &t->request, certain, &t->progress, &index, &finished,
                                 t->call));
    if (finished) {
        *result = result_of(&index);
        shard_index_fini(&index);
        return ALIBI_OK;
    }
    TRY_RETURN(shard_folder_put_tokenizer(t->folder, t->tokenizer));
    TRY_RETURN(go_on(t, certain));
    index = make_index(t); /* lent */
    *result = result_of(&index);
    return ALIBI_OK;
}

/* A text that cannot be tokenized leaves no folder behind. If it cannot be removed, that is not
 * what must be said. */
static alibi_status remove_folder(const struct tokenizing *t)
{
    struct failure why;

    failure_keep(&why, ALIBI_BAD_INPUT);
    shard_folder_remove(t->folder);
    return failure_raise(&why);
}

/* One writer per folder. */
static alibi_status tokenize_in_folder(struct tokenizing *t, bool certain,
                                       struct alibi_tokenize_result *result)
{
    alibi_status status;
    struct lock *lock = NULL;
    enum path_kind before;

    TRY(path_look(&before, t->folder));
    TRY(folder_create(t->folder));
    TRY(lock_take(&lock, t->folder));
    TRY(begin_or_go_on(t, certain, result));
out:
    shard_writer_free(t->writer); /* removes what is unfinished, while the folder is still ours */
    t->writer = NULL;
    if (status == ALIBI_BAD_INPUT && lock != NULL && before == PATH_NONE &&
        t->progress.shards.count == 0)
        status = remove_folder(t);
    lock_release(lock);
    return status;
}

static void tokenizing_fini(struct tokenizing *t)
{
    encoding_close(t->encoding);
    source_close(t->source);
    text_free(&t->request);
    progress_fini(&t->progress);
    shards_free(t->there, t->there_count);
}

static alibi_status check_shard_tokens(int64_t shard_tokens)
{
    if (shard_tokens < 1 || shard_tokens > SHARD_TOKENS_MAX)
        return fail(ALIBI_USAGE, "shards of %lld tokens: it must be within 1..%d",
                    (long long)shard_tokens, SHARD_TOKENS_MAX);
    return ALIBI_OK;
}

/* Else what is written would be read as text the next time. */
static alibi_status check_folder(const char *dir, const char *const *paths, int count)
{
    for (int i = 0; i < count; i++) {
        enum path_kind kind = PATH_FILE;
        bool within = false;
        if (strcmp(paths[i], "-") != 0)
            TRY_RETURN(path_look(&kind, paths[i]));
        if (kind == PATH_FOLDER)
            TRY_RETURN(path_is_within(&within, dir, paths[i]));
        if (within)
            return fail(ALIBI_BAD_INPUT,
                        "the shards would go to '%s', which lies in '%s', the text", dir, paths[i]);
    }
    return ALIBI_OK;
}

alibi_status alibi_tokenize(const alibi_tokenizer *t, const char *const *paths, int count,
                            const struct alibi_reading *reading, int64_t shard_tokens,
                            const char *dir, struct alibi_tokenize_result *result,
                            const struct alibi_call *call)
{
    alibi_status status;
    struct tokenizing all = {
        .call = call, .tokenizer = t, .folder = dir, .shard_tokens = shard_tokens
    };
    struct alibi_tokenize_result counted;
    double started = clock_seconds();
    bool certain;

    alibi_memory_reset_peak();
    all.width = alibi_tokenizer_vocab(t) > UINT16_MAX + 1 ? 4 : 2;
    TRY(check_shard_tokens(shard_tokens));
    TRY(source_open(&all.source, paths, count, reading, call));
    TRY(check_folder(dir, paths, count));
    TRY(request_format(&(struct request){ t, all.source, reading, shard_tokens }, &all.request,
                       &certain));
    TRY(tokenize_in_folder(&all, certain, &counted));
    counted.seconds = clock_seconds() - started;
    counted.peak_bytes = alibi_memory_peak();
    *result = counted;
out:
    tokenizing_fini(&all);
    return status;
}

/* ---- to a caller */

/* Documents end where the block says so; behind the last end stands a part of one that goes on. */
static bool hand_block(const struct encoded *e,
                       bool (*take)(void *user, const int32_t *ids, int64_t count, bool ends),
                       void *user)
{
    int64_t from = 0;
    bool more = true;

    for (int64_t i = 0; i < e->end_count && more; i++) {
        more = take(user, e->ids + from, e->ends[i] - from, true);
        from = e->ends[i];
    }
    return more && from < e->count ? take(user, e->ids + from, e->count - from, false) : more;
}

alibi_status alibi_tokenize_each(const alibi_tokenizer *t, const char *const *paths, int count,
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
    TRY(encoding_open(&encoding, source, t));
    while (more && e.count > 0) {
        TRY(encoding_next(encoding, &e));
        meter_report(&meter, &e, call);
        more = hand_block(&e, ids, user);
        if (more && e.count > 0 && call_stopped(call))
            TRY(fail(ALIBI_INTERRUPTED, "stopped after %lld tokens", (long long)meter.tokens));
    }
out:
    encoding_close(encoding);
    source_close(source);
    return status;
}
