/* attention.c - attention alone: time by length, what it leaves out, and what that was worth
 *
 * Queries, keys and values are normal numbers, scaled so that |q| |k| / sqrt(D) is about `score`:
 * it was 10 in the trained models that we looked at. Counted are 2 products in the forward pass and
 * 5 in the backward pass, each 2 L^2/2 D per head, times the share of the tiles that were used. */
#include <math.h>

#include "bench/bench.h"

enum { SEED = 1, FORWARD_PRODUCTS = 2, BACKWARD_PRODUCTS = 5, TENSORS = 12 };

struct bench {
    struct device *device;
    enum dtype type, sums;
    const struct alibi_bench_attention *how;
    const struct alibi_call *context; /* of the benchmark */
    struct pattern pattern;
    struct alibi_config config;
    int64_t B, L, H, Hkv, D;
    struct attention_args call;
    void *memory[TENSORS];
    int count;
    double *seconds; /* [repeats] */
};

static void bench_fini(struct bench *b)
{
    for (int i = 0; i < b->count; i++)
        b->device->ops->buffer_free(b->device, b->memory[i]);
    mem_free(b->seconds);
}

static alibi_status take(struct bench *b, struct tensor *t)
{
    const int64_t factors[] = { t->shape[0], t->shape[1], t->shape[2], t->shape[3] };
    size_t bytes;

    if (!size_product(&bytes, factors, 4) || !size_multiply(&bytes, bytes, dtype_bytes(t->type)))
        return fail(ALIBI_MEMORY, "attention over %lld tokens does not fit in memory",
                    (long long)b->L);
    TRY_RETURN(b->device->ops->buffer_new(b->device, &t->data, bytes, "the tensors of attention"));
    b->memory[b->count++] = t->data;
    return ALIBI_OK;
}

/* Drawn on the host, in bounded pieces. */
static alibi_status upload_normal(struct bench *b, struct tensor t, double size, uint64_t stream)
{
    enum { PIECE = 1 << 20 };
    alibi_status status;
    int64_t total = tensor_count(t), room = total < PIECE ? total : PIECE;
    float *x = NULL;

    TRY(NEW_ARRAY(&x, room, "random numbers"));
    for (int64_t from = 0; from < total; from += room) {
        int64_t count = total - from < room ? total - from : room;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < count; i++)
            x[i] = (float)(size * random_normal(SEED, stream, (uint64_t)(from + i)));
        TRY(b->device->ops->upload(b->device, tensor_1(tensor_at(t, from), t.type, count), x));
    }
out:
    mem_free(x);
    return status;
}

static alibi_status take_normal(struct bench *b, struct tensor *t, double size)
{
    uint64_t stream = RANDOM_STREAM(RANDOM_BENCH, 1 + b->count);

    TRY_RETURN(take(b, t));
    return upload_normal(b, *t, size, stream);
}

static struct tensor rows_of(const struct bench *b, int64_t H)
{
    return tensor_4(NULL, b->type, b->B, b->L, H, b->D);
}

static alibi_status make_bias(struct bench *b)
{
    alibi_status status;
    struct bias *bias = &b->call.bias;
    const struct position *p = &b->pattern.kind[0];
    float *slopes = NULL;

    bias->kind = p->method->bias;
    if (bias->kind == BIAS_NONE)
        return ALIBI_OK;
    bias->values = tensor_1(NULL, b->sums, b->H);
    TRY(NEW_ARRAY(&slopes, b->H, "slopes"));
    for (int64_t h = 0; h < b->H; h++)
        slopes[h] = p->method->slope(&b->config, p, h);
    TRY(take(b, &bias->values));
    TRY(b->device->ops->upload(b->device, bias->values, slopes));
out:
    mem_free(slopes);
    return status;
}

static alibi_status bench_init(struct bench *b)
{
    double size = sqrt(b->how->score / sqrt((double)b->D));
    struct skipping *skip = &b->call.skip;

    b->call.scale = 1.0 / sqrt((double)b->D);
    b->call.q = b->call.y = b->call.dy = b->call.dq = rows_of(b, b->H);
    b->call.k = b->call.v = b->call.dk = b->call.dv = rows_of(b, b->Hkv);
    b->call.lse = tensor_3(NULL, b->sums, b->B, b->H, b->L);
    TRY_RETURN(NEW_ARRAY(&b->seconds, b->how->repeats, "times"));
    TRY_RETURN(take_normal(b, &b->call.q, size));
    TRY_RETURN(take_normal(b, &b->call.k, size));
    TRY_RETURN(take_normal(b, &b->call.v, 1.0));
    TRY_RETURN(make_bias(b));
    TRY_RETURN(take(b, &b->call.y));
    TRY_RETURN(take(b, &b->call.lse));
    skip->eps = b->how->skip;
    if (skip->eps == 0)
        return ALIBI_OK; /* nothing to record */
    skip->kept =
        tensor_4(NULL, DTYPE_I32, b->B, b->H, attention_tiles(b->L), attention_kept_words(b->L));
    return take(b, &skip->kept);
}

static alibi_status backward_init(struct bench *b)
{
    TRY_RETURN(take_normal(b, &b->call.dy, 1.0));
    TRY_RETURN(take(b, &b->call.dq));
    TRY_RETURN(take(b, &b->call.dk));
    return take(b, &b->call.dv);
}

/* ---- what is timed */

static alibi_status forward(struct bench *b)
{
    return b->device->ops->attention_forward(b->device, &b->call);
}

static alibi_status backward(struct bench *b)
{
    return b->device->ops->attention_backward(b->device, &b->call);
}

/* The last query against all keys, with the norms that a cache would have. */
static alibi_status decode(struct bench *b)
{
    struct attention_args a = b->call;

    a.q.data = tensor_at(a.q, (b->L - 1) * a.q.stride[1]);
    a.y.data = tensor_at(a.y, (b->L - 1) * a.y.stride[1]);
    a.q.shape[1] = a.y.shape[1] = 1;
    a.lse = tensor_3(a.lse.data, b->sums, b->B, b->H, 1);
    a.skip.kept = tensor_none();
    return b->device->ops->attention_forward(b->device, &a);
}

/* The median; one call more to warm up. Short calls are repeated within a measurement. */
static alibi_status time_calls(struct bench *b, alibi_status (*call)(struct bench *b),
                               int64_t times, double *seconds)
{
    TRY_RETURN(call(b));
    TRY_RETURN(b->device->ops->finish(b->device));
    for (int64_t i = 0; i < b->how->repeats; i++) {
        double begin = clock_seconds();
        if (call_stopped(b->context))
            return fail(ALIBI_INTERRUPTED, "bench: stopped");
        for (int64_t n = 0; n < times; n++)
            TRY_RETURN(call(b));
        TRY_RETURN(b->device->ops->finish(b->device));
        b->seconds[i] = (clock_seconds() - begin) / (double)times;
    }
    *seconds = bench_median(b->seconds, b->how->repeats);
    return ALIBI_OK;
}

/* Of the tiles, how many the forward pass used. */
static alibi_status read_record(struct bench *b, struct alibi_bench_attention_result *r)
{
    struct skip_count tiles;

    r->used = 1.0;
    if (!b->call.skip.kept.data)
        return ALIBI_OK;
    TRY_RETURN(record_read(b->device, &b->call, b->how->verify, &tiles, &r->skipped_weight));
    r->used = (double)tiles.used / (double)tiles.all;
    return ALIBI_OK;
}

static double flops(const struct bench *b, int products)
{
    return (double)products * (double)(b->B * b->H) * (double)b->L * (double)b->L * (double)b->D;
}

static alibi_status measure(struct bench *b, struct alibi_bench_attention_result *r)
{
    enum { DECODE_TIMES = 100 };
    int64_t times = b->device->ops->traits.timed_calls;
    struct tensor norms = tensor_3(NULL, b->sums, b->B, b->Hkv, attention_tiles(b->L));

    TRY_RETURN(time_calls(b, forward, times, &r->forward_seconds));
    r->forward_peak_bytes = device_peak(b->device);
    TRY_RETURN(read_record(b, r));
    r->forward_gflops = r->used * flops(b, FORWARD_PRODUCTS) / r->forward_seconds * 1e-9;
    if (b->how->backward) {
        TRY_RETURN(backward_init(b));
        TRY_RETURN(time_calls(b, backward, times, &r->backward_seconds));
        r->backward_gflops = r->used * flops(b, BACKWARD_PRODUCTS) / r->backward_seconds * 1e-9;
    }
    if (b->how->decode) {
        TRY_RETURN(take(b, &norms));
        TRY_RETURN(b->device->ops->attention_norms(b->device, norms, b->call.k, 0));
        b->call.skip.norms = norms;
        TRY_RETURN(time_calls(b, decode, DECODE_TIMES, &r->decode_seconds));
    }
    r->peak_bytes = device_peak(b->device);
    return ALIBI_OK;
}

static alibi_status check(const struct alibi_bench_attention *how, int64_t length)
{
    if (how->batch < 1 || length < 1 || how->heads < 1 || how->head_width < 1 || how->repeats < 1)
        return fail(ALIBI_USAGE, "batch, length, heads, head width and repeats must be 1 or more");
    if (how->kv_heads < 1 || how->heads % how->kv_heads != 0)
        return fail(ALIBI_USAGE, "%lld key/value heads do not divide %lld heads",
                    (long long)how->kv_heads, (long long)how->heads);
    if (!(how->skip >= 0 && how->skip < 1) || !(how->score >= 0))
        return fail(ALIBI_USAGE, "skip must be from 0 to below 1, and score 0 or more");
    return ALIBI_OK;
}

alibi_status alibi_bench_attention(alibi_device *device, const struct alibi_bench_attention *how,
                                   int64_t length, struct alibi_bench_attention_result *result,
                                   const struct alibi_call *call)
{
    alibi_status status;
    struct bench b = { .device = &device->device,
                       .how = how,
                       .context = call,
                       .B = how->batch,
                       .L = length,
                       .H = how->heads,
                       .Hkv = how->kv_heads,
                       .D = how->head_width };
    struct alibi_bench_attention_result r = { .length = length };

    TRY(check(how, length));
    b.config = (struct alibi_config){ .heads = b.H, .bias_max = 8 };
    snprintf(b.config.position, sizeof b.config.position, "%s", how->alibi ? "alibi" : "none");
    TRY(pattern_read(&b.pattern, &b.config));
    b.type = device->type;
    b.sums = dtype_sums(b.type);
    device_reset_peak(b.device);
    TRY(bench_init(&b));
    TRY(measure(&b, &r));
    *result = r;
out:
    bench_fini(&b);
    return status;
}
