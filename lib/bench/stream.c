/* stream.c - the cost of a token after a context, with one KV cache
 *
 * The tokens of a text, repeated if it is short, are read into the cache in chunks, as in an
 * evaluation with the protocol stream. The last chunks are timed, and then tokens one by one, as in
 * decoding. The last of these fills the context, so that a cache whose capacity doubles has no
 * unused room if the context is a power of two. */
#include <math.h>

#include "bench/bench.h"
#include "eval/eval.h"

enum { CHUNKS = 8, STEPS = 32 };

struct stream {
    const struct model *model;
    struct span text;
    const struct alibi_call *call;
    struct workspace *workspace;
    struct cache *cache;
    int32_t ids[STREAM_TOKENS];
    float *logits;
    int64_t context;
    double started, reported;
};

/* Reads tokens from `from` on, in a text that repeats without end. */
static void read_text(struct stream *s, int64_t from, int64_t count)
{
    for (int64_t done = 0, part; done < count; done += part) {
        int64_t at = (from + done) % s->text.count;

        part = s->text.count - at < count - done ? s->text.count - at : count - done;
        span_read(s->text, at, part, s->ids + done);
    }
}

/* Appends `count` tokens, and says how long that took. */
static alibi_status append(struct stream *s, int64_t count, double *seconds)
{
    struct device *dev = s->model->device;
    int64_t length = cache_length(s->cache, 0);
    const int32_t slot = 0;
    double begin;

    if (call_stopped(s->call))
        return fail(ALIBI_INTERRUPTED, "stream: stopped after %lld of %lld tokens",
                    (long long)length, (long long)s->context);
    read_text(s, length, count);
    TRY_RETURN(dev->ops->finish(dev));
    begin = clock_seconds();
    if (count > 1)
        TRY_RETURN(model_extend(s->workspace, s->cache, 0, s->ids, count));
    else
        TRY_RETURN(model_step(s->workspace, s->cache, &slot, s->ids, 1));
    TRY_RETURN(model_read_logits(s->workspace, count - 1, 1, s->logits)); /* waits for the device */
    *seconds = (clock_seconds() - begin) / (double)count;
    report_tokens(s->call, "stream", length + count, s->context, NAN, s->started, &s->reported);
    return ALIBI_OK;
}

static alibi_status measure(struct stream *s, struct bench_stream *out)
{
    double seconds[CHUNKS], step[STEPS];
    int64_t steps = s->context < 2 * STEPS ? s->context / 2 : STEPS, read = s->context - steps;
    int64_t chunk = read < STREAM_TOKENS ? read : STREAM_TOKENS, chunks = read / chunk;
    int64_t timed = chunks < CHUNKS ? chunks : CHUNKS;
    double ignored;

    if (read % chunk > 0) /* the first chunk is short, so that all timed ones have the same size */
        TRY_RETURN(append(s, read % chunk, &ignored));
    for (int64_t i = 0; i < chunks; i++)
        TRY_RETURN(append(s, chunk, &seconds[i % timed]));
    for (int64_t i = 0; i < steps; i++)
        TRY_RETURN(append(s, 1, &step[i]));
    out->read_seconds = bench_median(seconds, timed);
    out->read_error = bench_median_error(seconds, timed);
    out->decode_seconds = bench_median(step, steps);
    out->decode_error = bench_median_error(step, steps);
    return ALIBI_OK;
}

alibi_status bench_stream(struct bench_stream *out, const struct model *m, struct span text,
                          int64_t context, double skip, const struct alibi_call *call)
{
    alibi_status status;
    struct stream s = { .model = m, .text = text, .call = call, .context = context };
    struct bench_stream found = { 0 };
    struct device_memory with, without;

    if (context < 2 || text.count < 1)
        return fail(ALIBI_USAGE, "a stream of %lld tokens from a text of %lld: it needs 2 and 1",
                    (long long)context, (long long)text.count);
    s.started = s.reported = clock_seconds();
    TRY(NEW_ARRAY(&s.logits, m->config.vocab, "logits"));
    TRY(workspace_new(&s.workspace, m, &(struct pass_settings){ .skip = skip }));
    TRY(cache_new(&s.cache, m, 1, (struct cache_window){ 0 }));
    TRY(measure(&s, &found));
    device_memory(m->device, &with);
    cache_free(s.cache);
    s.cache = NULL;
    device_memory(m->device, &without);
    found.cache_bytes = (double)(with.used - without.used);
    *out = found;
out:
    cache_free(s.cache);
    workspace_free(s.workspace);
    mem_free(s.logits);
    return status;
}
