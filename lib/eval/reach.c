/* reach.c - where the attention of each head goes, measured on a text
 *
 * Windows are spread over the split. Queries of the second half of each window count, so that every
 * one has at least half a window before it; the weights of all their keys are added up by distance,
 * layer by layer, and nothing of the size of a window squared exists at any time. */
#include <math.h>

#include "eval/eval.h"

/* Neighbouring queries see almost the same keys: so many of a window are enough. */
enum { QUERIES = 512 };

struct reading {
    const struct model *model;
    const struct alibi_call *call;
    struct span span;
    struct blocks blocks; /* a window each */
    struct workspace *workspace;
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

static alibi_status read_windows(struct reading *r)
{
    int64_t L = r->blocks.size, tokens = r->model->device->ops->traits.batch_tokens;
    int64_t most = L < tokens ? tokens / L : 1;

    most = most < r->blocks.count ? most : r->blocks.count;
    TRY_RETURN(NEW_ARRAY(&r->tokens, most * L, "inputs of a probe"));
    TRY_RETURN(NEW_ARRAY(&r->targets, most * L, "targets of a probe"));
    TRY_RETURN(NEW_ARRAY(&r->nll, most * L, "losses of a probe"));
    for (int64_t i = 0; i < most * L; i++)
        r->targets[i] = -1;
    for (int64_t k = 0, rows; k < r->blocks.count; k += rows) {
        if (call_stopped(r->call))
            return fail(ALIBI_INTERRUPTED, "attention: stopped after %lld of %lld windows",
                        (long long)k, (long long)r->blocks.count);
        rows = r->blocks.count - k < most ? r->blocks.count - k : most;
        for (int64_t row = 0; row < rows; row++)
            span_read(r->span, blocks_start(&r->blocks, k + row), L, r->tokens + row * L);
        TRY_RETURN(model_loss(r->workspace, r->tokens, r->targets, rows, L, r->nll));
        report(r, k + rows);
    }
    return ALIBI_OK;
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

        for (int b = 0; b <= reach_bin(i); b++) {
            int64_t first = b == 0 ? 0 : INT64_C(1) << (b - 1), end = INT64_C(1) << b;

            h->weight[b] += (double)((end < i + 1 ? end : i + 1) - first) / n;
        }
        h->beyond += i >= reach->near ? (double)(i + 1 - reach->near) / n : 0;
        h->distance += (double)i / 2;
        h->entropy += log(n);
        h->queries++;
    }
}

static alibi_status new_result(struct alibi_attention_result **out, const struct reading *r,
                               const struct reach *reach)
{
    int64_t L = r->blocks.size, N = r->model->config.layers, H = r->model->config.heads;
    struct alibi_attention_result *a = NULL;
    struct head_reach uniform = { 0 };
    void *memory;

    TRY_RETURN(mem_new(&memory, sizeof *a, "the result of a probe"));
    a = memory;
    *a = (struct alibi_attention_result){ .length = L,
                                          .near = reach->near,
                                          .windows = r->blocks.count,
                                          .queries = reach->heads[0].queries,
                                          .layers = N,
                                          .heads = H,
                                          .bins = reach_bin(L - 1) + 1,
                                          .seconds = clock_seconds() - r->started };
    if (NEW_ARRAY(&a->head, N * H, "the result of a probe") != ALIBI_OK) {
        mem_free(a);
        return ALIBI_MEMORY;
    }
    for (int64_t i = 0; i < N * H; i++)
        a->head[i] = mean_of(&reach->heads[i], a->bins);
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
    struct reading r = { .model = m, .call = call, .span = corpus_span(corpus, split) };
    struct reach reach = { .from = length / 2,
                           .step = length / 2 / QUERIES > 1 ? length / 2 / QUERIES : 1,
                           .near = near };
    int64_t windows;

    TRY(check(m, r.span, how, length, near));
    TRY(evaluate_check_vocab(m, corpus_tokenizer(corpus), "the text"));
    TRY(evaluate_check_tokenizer(model->tokenizer, corpus));
    windows = r.span.count / length < how->windows ? r.span.count / length : how->windows;
    r.blocks = (struct blocks){ .all = r.span.count, .size = length, .count = windows };
    if (windows == 1)
        r.blocks.first = (r.span.count - length) / 2;
    r.started = clock_seconds();
    TRY(NEW_ZERO_ARRAY(&reach.heads, m->config.layers * m->config.heads, "weights by distance"));
    TRY(workspace_new(&r.workspace, m,
                      &(struct pass_settings){ .skip = call_skip(call), .reach = &reach }));
    TRY(read_windows(&r));
    TRY(new_result(out, &r, &reach));
out:
    workspace_free(r.workspace);
    mem_free(r.tokens);
    mem_free(r.targets);
    mem_free(r.nll);
    mem_free(reach.heads);
    return status;
}

void alibi_attention_free(struct alibi_attention_result *result)
{
    if (result)
        mem_free(result->head);
    mem_free(result);
}
