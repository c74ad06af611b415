/* decode.c - tokens per second of decoding, one sequence or several at once
 *
 * The model is fresh, and the sequences have different lengths around `length`. A step appends one
 * token to each: a pass over the model and the logits of every sequence. The result is the median
 * step. */
#include "bench/bench.h"

enum {
    WARM_UP = 4, /* a device may record a step before it repeats it */
    SEQUENCES_MAX = 1 << 16,
    TOKENS_MAX = 1 << 24 /* of a text, and of the repeats that continue it */
};

alibi_status alibi_bench_decode(alibi_device *device, const struct alibi_config *config,
                                int64_t sequences, int64_t length, int64_t repeats, double skip,
                                struct alibi_bench_decode *result, const struct alibi_call *call)
{
    alibi_status status;
    struct device *dev = &device->device;
    struct model *m = NULL;
    struct workspace *w = NULL;
    struct cache *cache = NULL;
    int32_t *tokens = NULL, *slots = NULL;
    float *logits = NULL;
    double *seconds = NULL;

    if (sequences < 1 || sequences > SEQUENCES_MAX || length < 1 || length > TOKENS_MAX ||
        repeats < 1 || repeats > TOKENS_MAX)
        return fail(ALIBI_USAGE,
                    "sequences %lld, length %lld, repeats %lld: there must be 1 to %d sequences, "
                    "and a length and repeats of 1 to %d",
                    (long long)sequences, (long long)length, (long long)repeats, SEQUENCES_MAX,
                    TOKENS_MAX);
    device_reset_peak(dev);
    TRY(bench_model(&m, device, config, length + WARM_UP + repeats, false));
    TRY(workspace_new(&w, m, &(struct pass_settings){ .skip = skip }));
    TRY(cache_new(&cache, m, sequences, (struct cache_window){ 0 }));
    TRY(bench_tokens(&tokens, m, length + sequences));
    TRY(NEW_ARRAY(&slots, sequences, "sequences"));
    TRY(NEW_ARRAY(&logits, sequences * m->config.vocab, "logits"));
    TRY(NEW_ARRAY(&seconds, repeats, "step times"));
    for (int64_t s = 0; s < sequences; s++) {
        slots[s] = (int32_t)s;
        TRY(model_extend(w, cache, s, tokens, length - s * 7 % (length / 4 + 1)));
    }
    for (int64_t i = -WARM_UP; i < repeats; i++) {
        double begin;

        if (call_stopped(call))
            TRY(fail(ALIBI_INTERRUPTED, "bench: stopped after %lld of %lld steps",
                     (long long)(i < 0 ? 0 : i), (long long)repeats));
        TRY(dev->ops->finish(dev));
        begin = clock_seconds();
        TRY(model_step(w, cache, slots, tokens + length, sequences));
        TRY(model_read_logits(w, 0, sequences, logits)); /* waits for the device */
        if (i >= 0)
            seconds[i] = clock_seconds() - begin;
    }
    *result = (struct alibi_bench_decode){ .parameters = m->elements,
                                           .step_seconds = bench_median(seconds, repeats),
                                           .peak_bytes = device_peak(dev) };
    result->tokens_per_s = (double)sequences / result->step_seconds;
out:
    cache_free(cache);
    workspace_free(w);
    model_free(m);
    mem_free(tokens);
    mem_free(slots);
    mem_free(logits);
    mem_free(seconds);
    return status;
}
