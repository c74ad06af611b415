/* reach.c - where the attention of each head goes, measured on a text
 *
 * Windows are spread over the split. Only queries in the second half of a window count, so that
 * each has at least half a window before it. The weights of their keys are summed by distance,
 * layer by layer; nothing of the size of a window squared exists at any time. The sums of each
 * batch are computed separately and added in the order of the batches. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

/* Neighbouring queries see almost the same keys: this many of a window are enough. */
enum { QUERIES = 512 };

struct reading {
    const struct model *model;
    const struct alibi_call *call;
    struct span span;
    struct blocks blocks; /* a window each */
    struct workspace *workspace;
    struct reach reach;        /* of the current batch */
    struct head_reach *heads;  /* [N, H], the sums so far */
    int32_t *tokens, *targets; /* [windows of a batch, L]; nothing is scored */
    float *nll;
    double started;
};

static void report(const struct reading *r, int64_t done)
{
    double seconds = clock_seconds() - r->started;

    call_progress(r->call, &(struct alibi_progress){
                               .task = "attention",
                               .unit = "windows",
                               .done = done,
                               .total = r->blocks.count,
                               .seconds = seconds,
                               .seconds_left = seconds_left(seconds, done, r->blocks.count),
                               .loss = NAN,
                           });
}

static int64_t heads_of(const struct model *m)
{
    return m->config.layers * m->config.heads;
}

static int64_t rows_from(void *user, int64_t k)
{
    const struct reading *r = user;

    return rounds_rows(r->model->device, r->blocks.size, r->blocks.count - k);
}

static alibi_status reading_init(struct reading *r)
{
    int64_t L = r->blocks.size, rows = rows_from(r, 0);

    TRY_RETURN(NEW_ZERO_ARRAY(&r->heads, heads_of(r->model), "weights by distance"));
    TRY_RETURN(NEW_ARRAY(&r->tokens, rows * L, "inputs of a probe"));
    TRY_RETURN(NEW_ARRAY(&r->targets, rows * L, "targets of a probe"));
    TRY_RETURN(NEW_ARRAY(&r->nll, rows * L, "losses of a probe"));
    for (int64_t i = 0; i < rows * L; i++)
        r->targets[i] = -1;
    return workspace_new(&r->workspace, r->model,
                         &(struct pass_settings){ .skip = call_skip(r->call), .reach = &r->reach });
}

static alibi_status read_batch(void *user, int64_t k, int64_t rows, void *heads)
{
    struct reading *r = user;
    int64_t L = r->blocks.size;

    r->reach.heads = heads;
    memset(heads, 0, (size_t)heads_of(r->model) * sizeof *r->reach.heads);
    for (int64_t row = 0; row < rows; row++)
        span_read(r->span, blocks_start(&r->blocks, k + row), L, r->tokens + row * L);
    return model_loss(r->workspace, r->tokens, r->targets, rows, L, r->nll);
}

static alibi_status add_batch(void *user, int64_t k, int64_t rows, const void *heads)
{
    struct reading *r = user;

    for (int64_t i = 0; i < heads_of(r->model); i++) {
        const struct head_reach *from = (const struct head_reach *)heads + i;
        struct head_reach *to = &r->heads[i];

        to->queries += from->queries;
        for (int b = 0; b < REACH_BINS; b++)
            to->weight[b] += from->weight[b];
        to->beyond += from->beyond;
        to->distance += from->distance;
        to->entropy += from->entropy;
    }
    report(r, k + rows);
    return ALIBI_OK;
}

static alibi_status say_stopped(void *user)
{
    const struct reading *r = user;

    return fail(ALIBI_INTERRUPTED, "attention: stopped before all of %lld windows were read",
                (long long)r->blocks.count);
}

static struct alibi_head_attention mean_of(const struct head_reach *h, int bins)
{
    double n = (double)h->queries;
    struct alibi_head_attention out = { .beyond = h->beyond / n,
                                        .distance = h->distance / n,
                                        .entropy = h->entropy / n };

    for (int b = 0; b < bins; b++)
        out.share[b] = h->weight[b] / n;
    return out;
}

/* The same numbers for a head that gives all keys the same weight. */
static void add_uniform(struct head_reach *h, const struct reach *reach, int64_t length)
{
    for (int64_t i = reach->from; i < length; i += reach->step) {
        double n = (double)(i + 1);

        for (int b = 0; b <= reach_bin(i); b++)
            h->weight[b] += (double)(bin_last(b, i + 1) - bin_first(b) + 1) / n;
        h->beyond += i >= reach->near ? (double)(i + 1 - reach->near) / n : 0;
        h->distance += (double)i / 2;
        h->entropy += log(n);
        h->queries++;
    }
}

static alibi_status new_result(struct alibi_attention_result **out, const struct reading *r)
{
    int64_t L = r->blocks.size, N = r->model->config.layers, H = r->model->config.heads;
    const struct reach *reach = &r->reach;
    struct alibi_attention_result *a = NULL;
    struct head_reach uniform = { 0 };
    void *memory;

    TRY_RETURN(mem_new(&memory, sizeof *a, "the result of a probe"));
    a = memory;
    *a = (struct alibi_attention_result){ .length = L,
                                          .near = reach->near,
                                          .windows = r->blocks.count,
                                          .queries = r->heads[0].queries,
                                          .layers = N,
                                          .heads = H,
                                          .bins = reach_bin(L - 1) + 1,
                                          .seconds = clock_seconds() - r->started };
    if (NEW_ARRAY(&a->head, N * H, "the result of a probe") != ALIBI_OK) {
        mem_free(a);
        return ALIBI_MEMORY;
    }
    for (int64_t i = 0; i < N * H; i++)
        a->head[i] = mean_of(&r->heads[i], a->bins);
    add_uniform(&uniform, reach, L);
    a->uniform = mean_of(&uniform, a->bins);
    *out = a;
    return ALIBI_OK;
}

static alibi_status check(const struct model *m, struct span span,
                          const struct alibi_attention *how, int64_t length, int64_t near)
{
    if (length < 1 || near < 1)
        return fail(ALIBI_USAGE, "the model does not record its training length; give a length");
    if (how->windows < 1)
        return fail(ALIBI_USAGE, "%lld windows: it must be 1 or more", (long long)how->windows);
    TRY_RETURN(model_check_length(m, length));
    if (span.count < length)
        return fail(ALIBI_BAD_INPUT, "'%s' has %lld tokens, fewer than a window of %lld",
                    corpus_name(span.corpus), (long long)span.count, (long long)length);
    return ALIBI_OK;
}

alibi_status alibi_probe_attention(struct alibi_attention_result **out, const alibi_model *model,
                                   const alibi_corpus *corpus, enum alibi_split split,
                                   const struct alibi_attention *how, const struct alibi_call *call)
{
    alibi_status status;
    const struct model *m = model->model;
    int64_t length = how->length > 0 ? how->length : m->config.train_length;
    int64_t near = how->near > 0 ? how->near : m->config.train_length;
    const int64_t request[] = { split, length, near, how->windows };
    struct reading r = { .model = m,
                         .call = call,
                         .span = corpus_span(corpus, split),
                         .reach = { .from = length / 2,
                                    .step = length / 2 / QUERIES > 1 ? length / 2 / QUERIES : 1,
                                    .near = near },
                         .started = clock_seconds() };
    struct alibi_attention_result *result = NULL;

    status = check(m, r.span, how, length, near);
    if (status == ALIBI_OK)
        status = evaluate_check_vocab(m, corpus_tokenizer(corpus), "the text");
    if (status == ALIBI_OK)
        status = evaluate_check_tokenizer(model->tokenizer, corpus);
    if (status == ALIBI_OK) {
        r.blocks = blocks_spread(r.span.count, length, how->windows);
        status = reading_init(&r);
    }
    TRY(comm_agree(call_comm(call), status));
    TRY(rounds_check(model, corpus, request, sizeof request, call));
    TRY(rounds_run(&(struct rounds){ .call = call,
                                     .count = r.blocks.count,
                                     .bytes = (size_t)heads_of(m) * sizeof *r.heads,
                                     .user = &r,
                                     .rows = rows_from,
                                     .compute = read_batch,
                                     .add = add_batch,
                                     .stopped = say_stopped }));
    status = new_result(&result, &r);
    TRY(comm_agree(call_comm(call), status));
    *out = result;
    result = NULL;
out:
    alibi_attention_free(result);
    workspace_free(r.workspace);
    mem_free(r.tokens);
    mem_free(r.targets);
    mem_free(r.nll);
    mem_free(r.heads);
    return status;
}

void alibi_attention_free(struct alibi_attention_result *result)
{
    if (result)
        mem_free(result->head);
    mem_free(result);
}
