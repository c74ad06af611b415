/* attention.c - attention alone: time by length, what it leaves out, and what that was worth
 *
 * Queries, keys and values are normal numbers, scaled so that |q| |k| / sqrt(D) is about `score`: it was 10 in the trained models
 * that we looked at. Counted are 2 products in the forward pass and 5 in the backward pass, each 2 L^2/2 D per head, times the
 * share of the tiles that were used. */
#include <math.h>

#include "bench/bench.h"

enum { SEED = 1, FORWARD_PRODUCTS = 2, BACKWARD_PRODUCTS = 5, TENSORS = 12 };

struct bench {
    struct device device;
    const struct alibi_bench_attention *how;
    const struct position_method *method;
    struct alibi_config config;
    int64_t B, L, H, Hkv, D;
    struct attention call;
    struct tensor y, lse, dy, dq, dk, dv;
    void *memory[TENSORS];
    int count;
    double *seconds; /* [repeats] */
};

static void bench_fini(struct bench *b)
{
    for (int i = 0; i < b->count; i++)
        mem_free(b->memory[i]);
    mem_free(b->seconds);
}

static alibi_status take(struct bench *b, struct tensor *t)
{
    const int64_t factors[] = { t->shape[0], t->shape[1], t->shape[2], t->shape[3] };
    size_t bytes;

    if (!size_product(&bytes, factors, 4) || !size_multiply(&bytes, bytes, dtype_bytes(t->type)))
        return fail(ALIBI_MEMORY, "attention over %lld tokens does not fit in memory", (long long)b->L);
    TRY_RETURN(mem_new(&t->data, bytes, "the tensors of attention"));
    b->memory[b->count++] = t->data;
    return ALIBI_OK;
}

static alibi_status take_normal(struct bench *b, struct tensor *t, double size)
{
    uint64_t stream = RANDOM_STREAM(RANDOM_BENCH, 1 + b->count);
    float *x;

    TRY_RETURN(take(b, t));
    x = t->data;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < tensor_count(*t); i++)
        x[i] = (float)(size * random_normal(SEED, stream, (uint64_t)i));
    return ALIBI_OK;
}

static struct tensor rows_of(const struct bench *b, int64_t H)
{
    return tensor_4(NULL, DTYPE_F32, b->B, b->L, H, b->D);
}

static alibi_status make_bias(struct bench *b)
{
    struct bias *bias = &b->call.bias;

    bias->kind = b->method->bias;
    if (bias->kind == BIAS_NONE)
        return ALIBI_OK;
    bias->values = tensor_1(NULL, DTYPE_F32, b->H);
    TRY_RETURN(take(b, &bias->values));
    for (int64_t h = 0; h < b->H; h++)
        ((float *)bias->values.data)[h] = b->method->slope(&b->config, h);
    return ALIBI_OK;
}

static alibi_status bench_init(struct bench *b)
{
    double size = sqrt(b->how->score / sqrt((double)b->D));
    struct skipping *skip = &b->call.skip;

    b->device.ops = ops_cpu();
    b->call.scale = 1.0 / sqrt((double)b->D);
    b->call.q = b->y = b->dy = b->dq = rows_of(b, b->H);
    b->call.k = b->call.v = b->dk = b->dv = rows_of(b, b->Hkv);
    b->lse = tensor_3(NULL, DTYPE_F32, b->B, b->H, b->L);
    TRY_RETURN(NEW_ARRAY(&b->seconds, b->how->repeats, "times"));
    TRY_RETURN(take_normal(b, &b->call.q, size));
    TRY_RETURN(take_normal(b, &b->call.k, size));
    TRY_RETURN(take_normal(b, &b->call.v, 1.0));
    TRY_RETURN(make_bias(b));
    TRY_RETURN(take(b, &b->y));
    TRY_RETURN(take(b, &b->lse));
    skip->eps = b->how->skip;
    skip->kept = tensor_4(NULL, DTYPE_I32, b->B, b->H, attention_tiles(b->L), attention_kept_words(b->L));
    return take(b, &skip->kept);
}

static alibi_status backward_init(struct bench *b)
{
    TRY_RETURN(take_normal(b, &b->dy, 1.0));
    TRY_RETURN(take(b, &b->dq));
    TRY_RETURN(take(b, &b->dk));
    return take(b, &b->dv);
}

/* ---- what is timed */

static alibi_status forward(struct bench *b)
{
    return b->device.ops->attention_forward(&b->device, b->y, b->lse, b->call);
}

static alibi_status backward(struct bench *b)
{
    return b->device.ops->attention_backward(&b->device, b->dq, b->dk, b->dv, tensor_none(), b->dy, b->y, b->lse, b->call);
}

/* The last query against all keys, with norms at hand as a cache has them. */
static alibi_status decode(struct bench *b)
{
    struct attention a = b->call;
    struct tensor y = b->y, lse = tensor_3(b->lse.data, DTYPE_F32, b->B, b->H, 1);

    a.q.data = tensor_at(a.q, (b->L - 1) * a.q.stride[1]);
    y.data = tensor_at(y, (b->L - 1) * y.stride[1]);
    a.q.shape[1] = y.shape[1] = 1;
    a.skip.kept = tensor_none();
    return b->device.ops->attention_forward(&b->device, y, lse, a);
}

/* The median; one call more to warm up. Short calls are repeated within a measurement. */
static alibi_status time_calls(struct bench *b, alibi_status (*call)(struct bench *b), int64_t times, double *seconds)
{
    TRY_RETURN(call(b));
    for (int64_t i = 0; i < b->how->repeats; i++) {
        double begin = clock_seconds();
        if (alibi_stop_requested())
            return fail(ALIBI_INTERRUPTED, "bench: stopped");
        for (int64_t n = 0; n < times; n++)
            TRY_RETURN(call(b));
        b->seconds[i] = (clock_seconds() - begin) / (double)times;
    }
    *seconds = bench_median(b->seconds, b->how->repeats);
    return ALIBI_OK;
}

static double flops(const struct bench *b, int products)
{
    return (double)products * (double)(b->B * b->H) * (double)b->L * (double)b->L * (double)b->D;
}

static alibi_status measure(struct bench *b, struct alibi_bench_attention_result *r)
{
    enum { DECODE_TIMES = 100 };
    struct tensor norms = tensor_3(NULL, DTYPE_F32, b->B, b->Hkv, attention_tiles(b->L));
    struct skip_count tiles;

    TRY_RETURN(time_calls(b, forward, 1, &r->forward_seconds));
    r->forward_peak_bytes = alibi_memory_peak();
    tiles = attention_count(&b->call);
    r->used = (double)tiles.used / (double)tiles.all;
    r->forward_gflops = r->used * flops(b, FORWARD_PRODUCTS) / r->forward_seconds * 1e-9;
    if (b->how->verify)
        r->left_out = attention_left_out(&b->call);
    if (b->how->backward) {
        TRY_RETURN(backward_init(b));
        TRY_RETURN(time_calls(b, backward, 1, &r->backward_seconds));
        r->backward_gflops = r->used * flops(b, BACKWARD_PRODUCTS) / r->backward_seconds * 1e-9;
    }
    if (b->how->decode) {
        TRY_RETURN(take(b, &norms));
        TRY_RETURN(b->device.ops->attention_norms(&b->device, norms, b->call.k, 0));
        b->call.skip.norms = norms;
        TRY_RETURN(time_calls(b, decode, DECODE_TIMES, &r->decode_seconds));
    }
    r->peak_bytes = alibi_memory_peak();
    return ALIBI_OK;
}

static alibi_status check(const struct alibi_bench_attention *how, int64_t length)
{
    if (how->batch < 1 || length < 1 || how->heads < 1 || how->head_width < 1 || how->repeats < 1)
        return fail(ALIBI_USAGE, "batch, length, heads, head width and repeats must be 1 or more");
    if (how->kv_heads < 1 || how->heads % how->kv_heads != 0)
        return fail(ALIBI_USAGE, "%lld key/value heads do not divide %lld heads", (long long)how->kv_heads,
                    (long long)how->heads);
    if (!(how->skip >= 0 && how->skip < 1) || !(how->score >= 0))
        return fail(ALIBI_USAGE, "skip must be from 0 to below 1, and score 0 or more");
    return ALIBI_OK;
}

alibi_status alibi_bench_attention(const struct alibi_bench_attention *how, int64_t length,
                                   struct alibi_bench_attention_result *result)
{
    alibi_status status;
    struct bench b = { .how = how, .B = how->batch, .L = length, .H = how->heads, .Hkv = how->kv_heads, .D = how->head_width };
    struct alibi_bench_attention_result r = { .length = length };

    TRY(check(how, length));
    TRY(position_find(&b.method, how->alibi ? "alibi" : "none"));
    b.config = (struct alibi_config){ .heads = b.H, .bias_max = 8 };
    alibi_memory_reset_peak();
    TRY(bench_init(&b));
    TRY(measure(&b, &r));
    *result = r;
out:
    stop_clear();
    bench_fini(&b);
    return status;
}
