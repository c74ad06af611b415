/* plan.c - the device memory that training needs, computed before anything is allocated
 *
 *   weights + gradients + moments + activations + buffers that all layers reuse + tables
 *   + the device's own workspace + the buffers of validation
 *
 * The sizes are those that the model, the optimizer and the passes request from the device,
 * computed by the same functions. The largest batch and the longest input that fit are found by
 * bisection. */
#include "eval/eval.h"
#include "train/train.h"

enum { MOST_BATCH = 1 << 16, MOST_LENGTH = 1 << 24 }; /* what the options allow */

/* The arguments that are the same for every shape that is tried. */
struct trial {
    const struct alibi_config *config;
    const struct alibi_training *training;
    int ranks;
    struct device *device;
    enum dtype type;
};

static alibi_status outline(struct model **out, const struct trial *t, int64_t L)
{
    struct alibi_config config = *t->config;

    config.train_length = L;
    TRY_RETURN(alibi_config_resolve(&config));
    return model_outline(out, &config, t->device, t->type);
}

/* The sizes of training on B x L tokens. */
static alibi_status measure(const struct trial *t, int64_t B, int64_t L, struct alibi_plan *plan)
{
    alibi_status status;
    struct model *m = NULL;
    struct model_bytes bytes;
    const struct pass_settings settings = { .skip = t->training->skip,
                                            .recompute = t->training->recompute };
    struct workspace_args args = {
        .B = B, .L = L, .training = true, .wide = device_tunes_widely(t->device)
    };
    struct alibi_plan made = { .batch = B, .length = L, .weight_bytes = dtype_bytes(t->type) };
    size_t shard, divided; /* of a flat buffer; of the masters that ranks keep in shards, about */

    TRY(outline(&m, t, L));
    TRY(model_check_length(m, L));
    TRY(model_measure(m, &settings, B, L, true, &bytes));
    args.H = m->config.heads;
    args.D = m->config.width / m->config.heads;
    args.distances = bytes.distances;
    for (int i = 0; i < m->count; i++)
        if (m->parameters[i].count > args.largest)
            args.largest = m->parameters[i].count;

    made.parameters = m->elements;
    shard = bytes.master / (size_t)t->ranks;
    divided = bytes.copy > 0 ? (size_t)m->copied * dtype_bytes(dtype_sums(t->type)) : 0;
    made.weights = size_sum(bytes.master - divided + divided / (size_t)t->ranks, bytes.copy);
    made.gradients = (size_t)model_gradients_count(m, gradients_by_layer(t->training, t->ranks)) *
                     dtype_bytes(dtype_sums(t->type));
    if (gradients_exchanged(t->training, t->ranks) ||
        (t->training->deterministic_sum && t->training->accumulate > 1))
        made.gradients = size_sum(made.gradients, shard);
    for (int i = 0; i < optimizer_moments(t->training->optimizer); i++)
        made.optimizer = size_sum(made.optimizer, shard);
    made.activations = bytes.kept;
    made.passing = size_sum(bytes.passing, bytes.tables);
    made.workspace = t->device->ops->workspace(t->device, &args);
    if (gradients_exchanged(t->training, t->ranks))
        made.workspace = size_sum(made.workspace, channel_bytes(t->device, t->ranks));
    if (t->training->eval_every > 0) { /* passes of its own, beside those of training */
        int64_t rows = rounds_rows(t->device, L, INT64_MAX);

        TRY(model_measure(m, &settings, rows, L, false, &bytes));
        made.validation = size_sum(bytes.kept, bytes.passing);
    }
    made.total = size_sum(size_sum(size_sum(made.weights, made.gradients), made.optimizer),
                          size_sum(size_sum(made.activations, made.passing),
                                   size_sum(made.workspace, made.validation)));
    *plan = made;
out:
    model_free(m);
    return status;
}

/* ---- what would fit */

/* *varied is B or L: sets it to the most, up to `limit`, that takes at most `available` bytes. */
static alibi_status most_fitting(const struct trial *t, int64_t *B, int64_t *L, int64_t *varied,
                                 int64_t limit, size_t available)
{
    int64_t fits = 0, too_much = limit + 1;

    while (too_much - fits > 1) {
        struct alibi_plan plan;
        *varied = fits + (too_much - fits) / 2;
        TRY_RETURN(measure(t, *B, *L, &plan));
        if (plan.total <= available)
            fits = *varied;
        else
            too_much = *varied;
    }
    *varied = fits;
    return ALIBI_OK;
}

static alibi_status find_limits(const struct trial *t, struct alibi_plan *plan)
{
    alibi_status status;
    struct model *m = NULL;
    int64_t B = plan->batch, L = plan->length, longest = MOST_LENGTH;

    /* Lengths beyond the table of the position method do not count as fitting. */
    TRY(outline(&m, t, MOST_LENGTH));
    if (model_longest(m) < longest)
        longest = model_longest(m);
    TRY(most_fitting(t, &B, &L, &B, MOST_BATCH, plan->available));
    plan->largest_batch = B;
    B = plan->batch;
    TRY(most_fitting(t, &B, &L, &L, longest, plan->available));
    plan->longest_input = L;
out:
    model_free(m);
    return status;
}

alibi_status plan_training_of_ranks(struct alibi_plan *plan, int ranks,
                                    const struct alibi_config *config,
                                    const struct alibi_training *training, struct device *device,
                                    enum dtype type, bool limits)
{
    struct alibi_training resolved = *training;
    struct trial t = { config, &resolved, ranks, device, type };
    struct alibi_plan made;
    struct device_memory memory;

    if (ranks > 1 && device->autotune == ALIBI_AUTOTUNE_WIDE)
        return fail(ALIBI_USAGE, "--autotune wide is for one process: each of several would choose "
                                 "other algorithms; omit it");
    TRY_RETURN(training_resolve(&resolved, config));
    TRY_RETURN(measure(&t, training->batch, training->train_length, &made));
    made.largest_batch = made.longest_input = -1;
    made.fits = true;
    device_memory(device, &memory);
    if (memory.total > 0) {
        made.available = memory.free;
        made.fits = made.total <= made.available;
        if (limits || !made.fits)
            TRY_RETURN(find_limits(&t, &made));
    }
    *plan = made;
    return ALIBI_OK;
}

alibi_status plan_training(struct alibi_plan *plan, const struct alibi_config *config,
                           const struct alibi_training *training, struct device *device,
                           enum dtype type, bool limits)
{
    return plan_training_of_ranks(plan, 1, config, training, device, type, limits);
}

alibi_status alibi_plan_training(alibi_device *device, const struct alibi_config *config,
                                 const struct alibi_training *training, int64_t ranks,
                                 struct alibi_plan *plan)
{
    return plan_training_of_ranks(plan, (int)ranks, config, training, &device->device, device->type,
                                  true);
}

/* ---- a GPU that is not in this machine: only sizes are asked of its table */

static void imagined_memory(struct device *dev, struct device_memory *memory)
{
    size_t bytes = *(const size_t *)dev->state;

    *memory = (struct device_memory){ .total = bytes, .free = bytes };
}

/* Approximates lib/ops/cuda/workspace.cu: per query and head a row of gradients in fp32, a table of
 * biases per 128 keys, two if it is long, and some numbers; per token its place in a sort and a
 * sixteenth of a row; the autotuner's copy of the largest gradient; what does not grow; and what
 * cuBLASLt may use besides with --autotune wide. */
static size_t imagined_workspace(struct device *dev, const struct workspace_args *a)
{
    enum { FIXED = 192 << 20, WIDE = 192 << 20 };
    enum { PER_QUERY = 64, PER_TOKEN = 64, LONG_TABLE = 1024 };
    int64_t of_table = a->distances > LONG_TABLE ? a->distances / 16 : 0;
    int64_t width = a->D <= 64 ? 64 : a->D <= 128 ? 128 : a->D, per_token = PER_TOKEN;
    size_t bytes, largest, fixed = FIXED;

    if (a->training)
        per_token += a->H * (4 * width + PER_QUERY + of_table) + a->H * a->D / 4;
    if (!size_product(&bytes, (int64_t[]){ a->B, a->L, per_token }, 3) ||
        !size_product(&largest, (int64_t[]){ a->largest, a->training ? 4 : 0 }, 2))
        return SIZE_MAX;
    if (dev->autotune == ALIBI_AUTOTUNE_WIDE)
        fixed += WIDE;
    return size_sum(size_sum(bytes, largest), fixed);
}

alibi_status alibi_plan_gpu(const struct alibi_config *config,
                            const struct alibi_training *training, int64_t ranks, size_t free_bytes,
                            enum alibi_autotune autotune, struct alibi_plan *plan)
{
    struct ops ops = ops_ref; /* never called: planning touches no tensor */
    struct device gpu = { .ops = &ops, .state = &free_bytes, .autotune = autotune };

    ops.traits.logits = 1 << 29; /* as lib/ops/cuda/device.c has them */
    ops.traits.row_multiple = 128;
    ops.traits.own_memory = true;
    ops.memory = imagined_memory;
    ops.workspace = imagined_workspace;
    return plan_training_of_ranks(plan, (int)ranks, config, training, &gpu, DTYPE_BF16, true);
}

/* ---- several ranks */

alibi_status plan_check_ranks(const struct alibi_training *t, int64_t ranks)
{
    int64_t windows = t->batch * t->accumulate, fewer = ranks;
    char passes[96];

    if (ranks < 1 || ranks > COMM_BLOCKS)
        return fail(ALIBI_USAGE, "%lld ranks: 1 to %d can train one model", (long long)ranks,
                    COMM_BLOCKS);
    if (t->accumulate % ranks == 0)
        return ALIBI_OK;
    while (t->accumulate % fewer != 0)
        fewer--;
    if (windows % ranks == 0)
        snprintf(passes, sizeof passes, "--batch %lld --accumulate %lld, which has as many windows",
                 (long long)(windows / ranks), (long long)ranks);
    else
        snprintf(passes, sizeof passes, "a multiple of %lld passes", (long long)ranks);
    /* A run keeps its passes, so it needs other ranks. */
    return fail(ALIBI_USAGE,
                "%lld ranks cannot divide a step of %lld %s (--accumulate) evenly; use %s, or, to "
                "resume a run, %lld %s",
                (long long)ranks, (long long)t->accumulate, t->accumulate == 1 ? "pass" : "passes",
                passes, (long long)fewer, fewer == 1 ? "rank" : "ranks");
}

/* Gradients are exchanged once per step, or, if sums are ordered or sharded, once per pass of each
 * rank; then the weights, as passes read them:
 *
 *   bytes = (exchanges wire + weight) (N - 1) / N parameters      wire, weight: 4, in bf16 2
 *   step  = passes pass_seconds + bytes / link
 *
 * That is an upper bound: gradients are sent while the last pass computes. */
alibi_status alibi_plan_cluster(const struct alibi_plan *plan,
                                const struct alibi_training *training, int64_t ranks,
                                double link_gbps, double pass_seconds,
                                struct alibi_cluster_plan *out)
{
    struct alibi_cluster_plan made = { 0 };
    bool each_pass = training->deterministic_sum || gradients_by_layer(training, (int)ranks);
    double tokens = (double)(training->batch * training->train_length);

    TRY_RETURN(plan_check_ranks(training, ranks));
    made.passes = training->accumulate / ranks;
    made.exchanges = each_pass ? made.passes : 1;
    made.bytes = ((double)made.exchanges * (training->wire == ALIBI_WIRE_BF16 ? 2 : 4) +
                  (double)plan->weight_bytes) *
                 (double)(ranks - 1) / (double)ranks * (double)plan->parameters;
    made.exchange_seconds = made.bytes * 8 / (link_gbps * 1e9);
    if (pass_seconds > 0) {
        made.step_seconds = (double)made.passes * pass_seconds + made.exchange_seconds;
        made.tokens_per_s = tokens * (double)training->accumulate / made.step_seconds;
        made.share = (double)made.passes * pass_seconds / made.step_seconds;
    }
    *out = made;
    return ALIBI_OK;
}

/* ---- in words */

static double gib(size_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

alibi_status plan_check(const struct alibi_plan *plan, const struct alibi_training *t,
                        int64_t ranks)
{
    static const char *const recompute[] = {
        [ALIBI_RECOMPUTE_NONE] = "--recompute cheap|block",
        [ALIBI_RECOMPUTE_CHEAP] = "--recompute block",
        [ALIBI_RECOMPUTE_BLOCK] = "",
    };
    const char *levels = recompute[t->recompute],
               *shard = ranks > 1 && t->shard != ALIBI_SHARD_GRADIENTS ? "--shard gradients" : "";
    bool both = *levels && *shard, none = !*levels && !*shard;
    long long batch = plan->largest_batch, length = plan->longest_input;
    char limits[128] = "no batch fits at this length, no length at this batch";

    if (plan->fits)
        return ALIBI_OK;
    if (batch > 0 && length > 0)
        snprintf(limits, sizeof limits, "batch %lld fits at this length, length %lld at this batch",
                 batch, length);
    else if (batch > 0)
        snprintf(limits, sizeof limits, "batch %lld fits at this length", batch);
    else if (length > 0)
        snprintf(limits, sizeof limits, "length %lld fits at this batch", length);
    return fail(ALIBI_MEMORY,
                "training %lld x %lld tokens needs %.1f GiB, %.1f GiB are free on the device: "
                "%s%s%s%s%s%s",
                (long long)plan->batch, (long long)plan->length, gib(plan->total),
                gib(plan->available), limits, none ? "" : "; ", levels, both ? " or " : "", shard,
                none ? "" : " needs less");
}

void plan_note(const struct alibi_plan *plan, const struct alibi_call *call)
{
    call_note(call,
              "training takes %.1f of %.1f GiB: weights %.1f, gradients %.1f, optimizer %.1f, "
              "activations %.1f, passing %.1f, workspace %.1f, validation %.1f",
              gib(plan->total), gib(plan->available), gib(plan->weights), gib(plan->gradients),
              gib(plan->optimizer), gib(plan->activations), gib(plan->passing),
              gib(plan->workspace), gib(plan->validation));
}
