/* attention.c - attention alone: time by length, the skipped tiles, and the time that skipping
 * saves
 *
 * Queries, keys and values are normal numbers, scaled so that |q| |k| / sqrt(D) is about `score`:
 * it was 10 in the trained models that we examined. Or they are those of a model: a pass over a
 * text stops before the attention of each layer, which is timed in place with its operands. Counted
 * are 2 products in the forward pass and 5 in the backward pass, each 2 D per head and pair that
 * the mask leaves, L^2/2 without a window, times the share of the tiles that were used. */
#include <math.h>
#include <string.h>

#include "bench/bench.h"
#include "eval/eval.h"

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
    struct tensor norms; /* of the keys, for decoding */
    void *memory[TENSORS];
    int count;
    double *seconds; /* [repeats] */
};

static struct bench bench_of(struct device *device, enum dtype type,
                             const struct alibi_bench_attention *how, int64_t length,
                             const struct alibi_call *call)
{
    return (struct bench){ .device = device,
                           .type = type,
                           .sums = dtype_sums(type),
                           .how = how,
                           .context = call,
                           .B = how->batch,
                           .L = length,
                           .H = how->heads,
                           .Hkv = how->kv_heads,
                           .D = how->head_width };
}

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

static alibi_status inputs_init(struct bench *b)
{
    double size = sqrt(b->how->score / sqrt((double)b->D));

    b->call.scale = 1.0 / sqrt((double)b->D);
    b->call.q = rows_of(b, b->H);
    b->call.k = b->call.v = rows_of(b, b->Hkv);
    TRY_RETURN(take_normal(b, &b->call.q, size));
    TRY_RETURN(take_normal(b, &b->call.k, size));
    TRY_RETURN(take_normal(b, &b->call.v, 1.0));
    return make_bias(b);
}

static alibi_status outputs_init(struct bench *b)
{
    struct skipping *skip = &b->call.skip;

    b->call.y = rows_of(b, b->H);
    b->call.lse = tensor_3(NULL, b->sums, b->B, b->H, b->L);
    b->norms = tensor_3(NULL, b->sums, b->B, b->Hkv, attention_tiles(b->L));
    TRY_RETURN(NEW_ARRAY(&b->seconds, b->how->repeats, "times"));
    TRY_RETURN(take(b, &b->call.y));
    TRY_RETURN(take(b, &b->call.lse));
    if (b->how->decode)
        TRY_RETURN(take(b, &b->norms));
    skip->eps = b->how->skip;
    if (skip->eps == 0)
        return ALIBI_OK; /* nothing to record */
    skip->kept =
        tensor_4(NULL, DTYPE_I32, b->B, b->H, attention_tiles(b->L), attention_kept_words(b->L));
    return take(b, &skip->kept);
}

static alibi_status backward_init(struct bench *b)
{
    b->call.dy = b->call.dq = rows_of(b, b->H);
    b->call.dk = b->call.dv = rows_of(b, b->Hkv);
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
    a.skip.norms = b->norms;
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
            return fail(ALIBI_INTERRUPTED, "bench: stopped after %lld of %lld repeats",
                        (long long)i, (long long)b->how->repeats);
        for (int64_t n = 0; n < times; n++)
            TRY_RETURN(call(b));
        TRY_RETURN(b->device->ops->finish(b->device));
        b->seconds[i] = (clock_seconds() - begin) / (double)times;
    }
    *seconds = bench_median(b->seconds, b->how->repeats);
    return ALIBI_OK;
}

/* Reads the share of tiles that the forward pass used. */
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
    int64_t window = b->call.window, hidden = window > 0 && window < b->L ? b->L - window : 0;
    double pairs = ((double)b->L * (double)b->L - (double)hidden * (double)hidden) / 2;

    return (double)products * (double)(b->B * b->H) * 2 * pairs * (double)b->D;
}

static alibi_status measure(struct bench *b, struct alibi_bench_attention_result *r)
{
    enum { DECODE_TIMES = 100 };
    int64_t times = b->device->ops->traits.timed_calls;

    TRY_RETURN(time_calls(b, forward, times, &r->forward_seconds));
    r->forward_peak_bytes = device_peak(b->device);
    TRY_RETURN(read_record(b, r));
    r->forward_gflops = r->used * flops(b, FORWARD_PRODUCTS) / r->forward_seconds * 1e-9;
    if (b->how->backward && !b->call.dy.data)
        TRY_RETURN(backward_init(b));
    if (b->how->backward) {
        TRY_RETURN(time_calls(b, backward, times, &r->backward_seconds));
        r->backward_gflops = r->used * flops(b, BACKWARD_PRODUCTS) / r->backward_seconds * 1e-9;
    }
    if (b->how->decode) {
        TRY_RETURN(b->device->ops->attention_norms(b->device, b->norms, b->call.k, 0));
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
    struct bench b = bench_of(&device->device, device->type, how, length, call);
    struct alibi_bench_attention_result r = { .length = length };

    TRY(check(how, length));
    b.config = (struct alibi_config){ .heads = b.H, .bias_max = 8 };
    snprintf(b.config.position, sizeof b.config.position, "%s", how->alibi ? "alibi" : "none");
    TRY(pattern_read(&b.pattern, &b.config));
    device_reset_peak(b.device);
    TRY(inputs_init(&b));
    TRY(outputs_init(&b));
    TRY(measure(&b, &r));
    *result = r;
out:
    bench_fini(&b);
    return status;
}

/* ---- the layers of a model */

struct layers {
    struct bench bench; /* what it allocates serves all layers */
    const struct model *model;
    struct alibi_bench_attention_result *results, *every_pair; /* [layers + 1] */
    int64_t done;
};

/* Gradients are in packed rows, as training has them. */
static alibi_status packed_backward_init(struct bench *b)
{
    int64_t H = b->H, G = b->Hkv, D = b->D;
    struct tensor packed = rows_of(b, H + 2 * G);

    b->call.dy = rows_of(b, H);
    TRY_RETURN(take_normal(b, &b->call.dy, 1.0));
    TRY_RETURN(take(b, &packed));
    packed = tensor_2(packed.data, b->type, b->B * b->L, (H + 2 * G) * D);
    b->call.dq = tensor_heads(packed, b->B, b->L, 0, H, D);
    b->call.dk = tensor_heads(packed, b->B, b->L, H * D, G, D);
    b->call.dv = tensor_heads(packed, b->B, b->L, (H + G) * D, G, D);
    return ALIBI_OK;
}

/* Only a bias that is learned or comes from gates has a gradient. */
static alibi_status take_bias_gradient(struct bench *b, const struct model *m, int64_t layer)
{
    const struct bias *bias = &b->call.bias;
    struct tensor *dbias = &b->call.dbias;
    bool learned = bias->values.data && m->positions[pattern_kind(&m->pattern, layer)] >= 0;

    *dbias = tensor_none();
    if (!b->how->backward || !(learned || bias->kind == BIAS_GATE))
        return ALIBI_OK;
    *dbias = bias->kind == BIAS_GATE ? tensor_3(NULL, b->sums, b->B, bias->values.shape[2], b->L)
                                     : bias->values;
    TRY_RETURN(take(b, dbias));
    return b->device->ops->fill(b->device, *dbias, 0.0);
}

/* The pass calls it before the attention of each layer. */
static alibi_status measure_layer(void *user, struct attention_args *a, int64_t sinks,
                                  struct tensor first[2])
{
    struct layers *l = user;
    struct bench *b = &l->bench;
    struct attention_args *call = &b->call;
    const struct skipping skip = call->skip;
    struct alibi_bench_attention_result none = { .length = b->L };
    int held = b->count;

    (void)first;
    call->q = a->q;
    call->k = a->k;
    call->v = a->v;
    call->bias = a->bias;
    call->scale = a->scale;
    call->window = a->window;
    call->rotation = a->rotation;
    if (sinks > 0 || l->model->blocks[l->done].logn >= 0) /* then training rotates back later */
        call->rotation.table = tensor_none();
    TRY_RETURN(take_bias_gradient(b, l->model, l->done));
    l->results[l->done] = none;
    TRY_RETURN(measure(b, &l->results[l->done]));
    if (l->every_pair) {
        call->skip = (struct skipping){ .eps = 0 };
        l->every_pair[l->done] = none;
        TRY_RETURN(measure(b, &l->every_pair[l->done]));
        call->skip = skip;
    }
    while (b->count > held)
        b->device->ops->buffer_free(b->device, b->memory[--b->count]);
    l->done++;
    return ALIBI_OK;
}

/* Times are added; the share of tiles is that of the pairs of all layers. */
static struct alibi_bench_attention_result sum_of(const struct alibi_bench_attention_result *layer,
                                                  int64_t layers)
{
    struct alibi_bench_attention_result sum = layer[0];
    double forward = 0, backward = 0, every = 0;

    sum.forward_seconds = sum.backward_seconds = sum.decode_seconds = 0;
    for (int64_t n = 0; n < layers; n++) {
        const struct alibi_bench_attention_result *r = &layer[n];

        sum.forward_seconds += r->forward_seconds;
        sum.backward_seconds += r->backward_seconds;
        sum.decode_seconds += r->decode_seconds;
        forward += r->forward_gflops * r->forward_seconds;
        backward += r->backward_gflops * r->backward_seconds;
        every += r->forward_gflops * r->forward_seconds / r->used;
        sum.skipped_weight = fmax(sum.skipped_weight, r->skipped_weight);
        if (sum.forward_peak_bytes < r->forward_peak_bytes)
            sum.forward_peak_bytes = r->forward_peak_bytes;
        if (sum.peak_bytes < r->peak_bytes)
            sum.peak_bytes = r->peak_bytes;
    }
    sum.forward_gflops = forward / sum.forward_seconds;
    sum.backward_gflops = backward > 0 ? backward / sum.backward_seconds : 0;
    sum.used = forward / every;
    return sum;
}

alibi_status alibi_bench_model_attention(const alibi_model *model, const alibi_corpus *corpus,
                                         enum alibi_split split,
                                         const struct alibi_bench_attention *how, int64_t length,
                                         struct alibi_bench_attention_result *results,
                                         struct alibi_bench_attention_result *every_pair,
                                         const struct alibi_call *call)
{
    alibi_status status;
    const struct model *m = model->model;
    int64_t N = m->config.layers, H = m->config.heads;
    struct span span = corpus_span(corpus, split);
    struct alibi_bench_attention own = *how;
    struct alibi_bench_attention_result *measured = NULL; /* [2, N + 1] */
    struct layers l = { .model = m };
    const struct elsewhere look = { measure_layer, &l };
    struct workspace *workspace = NULL;
    struct blocks blocks;
    int32_t *tokens = NULL, *targets = NULL;
    float *nll = NULL;

    own.heads = H;
    own.kv_heads = m->config.kv_heads;
    own.head_width = m->config.width / H;
    l.bench = bench_of(m->device, m->type, &own, length, call);
    TRY(check(&own, length));
    TRY(model_check_length(m, length));
    TRY(evaluate_check_vocab(m, corpus_tokenizer(corpus), "the text"));
    TRY(evaluate_check_tokenizer(model->tokenizer, corpus));
    blocks = blocks_spread(span.count, length, how->batch);
    if (blocks.count < how->batch)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' has %lld tokens, too few for a batch of %lld x %lld; take fewer or shorter "
                 "windows, or more text",
                 corpus_name(corpus), (long long)span.count, (long long)how->batch,
                 (long long)length));
    TRY(NEW_ARRAY(&measured, 2 * (N + 1), "results of a benchmark"));
    l.results = measured;
    l.every_pair = every_pair ? measured + N + 1 : NULL;
    TRY(NEW_ARRAY(&tokens, blocks.count * length, "inputs of a benchmark"));
    TRY(NEW_ARRAY(&targets, blocks.count * length, "targets of a benchmark"));
    TRY(NEW_ARRAY(&nll, blocks.count * length, "losses of a benchmark"));
    for (int64_t b = 0; b < blocks.count; b++)
        span_read(span, blocks_start(&blocks, b), length, tokens + b * length);
    for (int64_t i = 0; i < blocks.count * length; i++)
        targets[i] = -1; /* nothing is scored */
    device_reset_peak(m->device);
    TRY(outputs_init(&l.bench));
    if (how->backward)
        TRY(packed_backward_init(&l.bench));
    TRY(workspace_new(&workspace, m,
                      &(struct pass_settings){ .skip = how->skip,
                                               .elsewhere = &look,
                                               .stop = call ? call->stop : NULL }));
    TRY(model_loss(workspace, tokens, targets, blocks.count, length, nll));
    l.results[N] = sum_of(l.results, N);
    memcpy(results, l.results, (size_t)(N + 1) * sizeof *results);
    if (every_pair) {
        l.every_pair[N] = sum_of(l.every_pair, N);
        memcpy(every_pair, l.every_pair, (size_t)(N + 1) * sizeof *every_pair);
    }
out:
    workspace_free(workspace);
    bench_fini(&l.bench);
    mem_free(measured);
    mem_free(tokens);
    mem_free(targets);
    mem_free(nll);
    return status;
}
