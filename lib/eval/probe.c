/* probe.c - fixed targets, growing context
 *
 *   nll(c) = mean loss of the targets with exactly c tokens before their block
 *   gain(c) = nll(L) - nll(c)
 *
 * A *series* is the losses of all targets under one condition and context. Every estimate is the
 * mean of a series, or the difference of two. Its standard error is by bootstrap: R times as many
 * documents as there are, drawn with replacement, with the means of all series in the same draw, so
 * that differences are paired. docs/evaluation.md explains the numbers. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

enum {
    REPLICATES = 1000,
    TARGETS_LENGTH_MAX = 1 << 24,
    GRAM_TOKENS = 3, /* by default: three words or so */
    GRAM_BYTES = 12,
};

#define AT(field) offsetof(struct alibi_targets, field)

static const struct alibi_option options[] = {
    { "length", ALIBI_OPTION_INT, AT(length), 0, TARGETS_LENGTH_MAX, NULL, "0", "N",
      "context that counts as near, L; 0: the length the model was trained at" },
    { "contexts", ALIBI_OPTION_INTS, AT(contexts), 1, TARGETS_LENGTH_MAX, NULL, NULL, "LIST",
      "tokens before a block of targets; default: L/2, L, 2L, 4L, 8L and 16L" },
    { "blocks", ALIBI_OPTION_INT, AT(blocks), 1, 16384, NULL, "128", "N",
      "largest number of blocks of targets, spread over the documents" },
    { "block", ALIBI_OPTION_INT, AT(block), 0, 65536, NULL, "0", "N",
      "targets per block; 0: 128, or L/4 if that is less" },
    { "gram", ALIBI_OPTION_INT, AT(gram), 0, 64, NULL, "0", "N",
      "tokens of the n-gram by which a target repeats far text; 0: 3, for bytes 12" },
    { "sinks", ALIBI_OPTION_INT, AT(sinks), 0, SINKS_MAX, NULL, "0", "N",
      "first tokens of the context that the window control sees besides the last L" },
};

const struct alibi_option *alibi_targets_options(int *count)
{
    *count = sizeof options / sizeof *options;
    return options;
}

struct probe {
    const struct model *model;
    struct workspace *workspace;
    const struct alibi_call *call;
    struct span span;
    struct alibi_targets request; /* resolved */
    struct targets targets;
    int32_t *ids, *wanted;                            /* [windows of a batch, inputs] */
    float *nll;                                       /* the same */
    float *series[TARGET_CONDITIONS][ALIBI_LIST_MAX]; /* [blocks, T]; NULL: not measured */
    bool *repeats;                                    /* [blocks, T] */
    int64_t read, to_read;                            /* tokens */
    double started, reported;
};

/* ---- the request */

/* Sorts the contexts, with L among them. */
static alibi_status add_length(struct alibi_int_list *c, int64_t length)
{
    bool there = false;

    for (int i = 0; i < c->count; i++)
        there = there || c->at[i] == length;
    if (!there && c->count == ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "%d contexts: there is no room for the length %lld among them",
                    c->count, (long long)length);
    if (!there)
        c->at[c->count++] = length;
    list_sort(c);
    return ALIBI_OK;
}

alibi_status targets_resolve(struct alibi_targets *r, int64_t train_length)
{
    struct alibi_option_group group = { "fixed targets", options, sizeof options / sizeof *options,
                                        r };

    TRY_RETURN(options_check(&group, 1));
    r->length = r->length > 0 ? r->length : train_length;
    if (r->length < 1)
        return fail(ALIBI_USAGE, "the model does not record its training length; give a length");
    if (r->block == 0) { /* a target deep in its block has more than c tokens of context */
        r->block = r->length / 4 < 128 ? r->length / 4 : 128;
        r->block = r->block > 0 ? r->block : 1;
    }
    if (r->contexts.count == 0)
        for (int64_t factor = 1; factor <= 32; factor *= 2)
            if (r->length * factor / 2 > 0)
                r->contexts.at[r->contexts.count++] = r->length * factor / 2;
    TRY_RETURN(add_length(&r->contexts, r->length));
    r->gram = r->gram > 0 ? r->gram : GRAM_TOKENS;
    if (r->gram > r->contexts.at[r->contexts.count - 1])
        return fail(ALIBI_USAGE, "an n-gram of %lld tokens does not fit a context of %lld",
                    (long long)r->gram, (long long)r->contexts.at[r->contexts.count - 1]);
    return ALIBI_OK;
}

double targets_inputs(const struct alibi_targets *r)
{
    double sum = 0;

    for (int c = 0; c < r->contexts.count; c++)
        sum += (double)(r->contexts.at[c] + r->block - 1) *
               (r->contexts.at[c] > r->length ? TARGET_CONDITIONS : 1);
    return sum * (double)r->blocks;
}

/* Refuses a context that the position method does not support. */
static alibi_status check_contexts(const struct alibi_targets *r, const struct model *m)
{
    int64_t C = r->contexts.at[r->contexts.count - 1];

    if (C + r->block - 1 > model_longest(m))
        return fail(
            ALIBI_BAD_INPUT,
            "a context of %lld and a block of %lld tokens need %lld positions, and position "
            "method '%s' ends at %lld; use smaller --contexts, --length or --block",
            (long long)C, (long long)r->block, (long long)(C + r->block - 1), m->config.position,
            (long long)model_longest(m));
    return ALIBI_OK;
}

static int64_t longest_context(const struct probe *p)
{
    return p->request.contexts.at[p->request.contexts.count - 1];
}

static int64_t inputs_of(const struct probe *p, int c)
{
    return p->request.contexts.at[c] + p->request.block - 1;
}

/* ---- the losses */

/* The inputs of one block: c tokens and the block without its last token. If swapped, the text more
 * than L tokens before the block is replaced by the text at the same distances before the other
 * block. */
static void fill_row(const struct probe *p, enum target_condition condition, int64_t k, int64_t c,
                     int32_t *ids, int32_t *wanted)
{
    const struct target_block *b = &p->targets.at[k];
    int64_t T = p->request.block, L = p->request.length;

    span_read(p->span, b->start - c, c + T - 1, ids);
    if (condition == TARGETS_SWAPPED)
        span_read(p->span, b->other - c, c - L, ids);
    for (int64_t i = 0; i < c - 1; i++)
        wanted[i] = -1;
    span_read(p->span, b->start, T, wanted + c - 1);
}

/* One series: the losses after a context (an index) under a condition. */
struct series {
    struct probe *probe;
    enum target_condition condition;
    int context;
};

static int64_t rows_from(void *user, int64_t k)
{
    const struct series *s = user;

    return rounds_rows(s->probe->model->device, inputs_of(s->probe, s->context),
                       s->probe->targets.count - k);
}

/* The losses [rows, T] of the targets of blocks k..k+rows-1. */
static alibi_status run_batch(void *user, int64_t k, int64_t rows, void *losses)
{
    const struct series *s = user;
    struct probe *p = s->probe;
    int64_t context = p->request.contexts.at[s->context], T = p->request.block;
    int64_t inputs = inputs_of(p, s->context);

    for (int64_t row = 0; row < rows; row++)
        fill_row(p, s->condition, k + row, context, p->ids + row * inputs,
                 p->wanted + row * inputs);
    TRY_RETURN(model_loss(p->workspace, p->ids, p->wanted, rows, inputs, p->nll));
    for (int64_t row = 0; row < rows; row++)
        memcpy((float *)losses + row * T, p->nll + row * inputs + context - 1,
               (size_t)T * sizeof(float));
    return ALIBI_OK;
}

static alibi_status add_batch(void *user, int64_t k, int64_t rows, const void *losses)
{
    const struct series *s = user;
    struct probe *p = s->probe;
    int64_t T = p->request.block;
    const float *from = losses;

    for (int64_t i = 0; i < rows * T; i++)
        if (!isfinite(from[i]))
            return fail(
                ALIBI_NUMERIC, "'%s', token %lld after a context of %lld: the loss is not finite",
                corpus_name(p->span.corpus), (long long)(p->targets.at[k + i / T].start + i % T),
                (long long)p->request.contexts.at[s->context]);
    memcpy(p->series[s->condition][s->context] + k * T, from, (size_t)(rows * T) * sizeof *from);
    p->read += rows * inputs_of(p, s->context);
    report_tokens(p->call, "fixed targets", p->read, p->to_read, NAN, p->started, &p->reported);
    return ALIBI_OK;
}

static alibi_status say_stopped(void *user)
{
    const struct probe *p = ((const struct series *)user)->probe;

    return fail(ALIBI_INTERRUPTED, "fixed targets: stopped after %lld of %lld tokens",
                (long long)p->read, (long long)p->to_read);
}

/* Whether a series exists: the controls do only for contexts beyond L. */
static bool is_measured(const struct probe *p, int condition, int c)
{
    if (condition == TARGETS_SWAPPED && !p->targets.swappable)
        return false;
    if (inputs_of(p, c) > model_longest(p->model))
        return false;
    return condition == TARGETS_OWN || p->request.contexts.at[c] > p->request.length;
}

/* Each condition has its own workspace, whose settings say how attention is cut. */
static alibi_status run_condition(struct probe *p, enum target_condition condition)
{
    alibi_status status;

    status = workspace_new(
        &p->workspace, p->model,
        &(struct pass_settings){ .skip = call_skip(p->call),
                                 .window = condition == TARGETS_WINDOW ? p->request.length : 0,
                                 .sinks = p->request.sinks });
    TRY(comm_agree(call_comm(p->call), status));
    for (int c = 0; c < p->request.contexts.count; c++)
        if (is_measured(p, condition, c)) {
            struct series s = { p, condition, c };

            TRY(rounds_run(&(struct rounds){
                .call = p->call,
                .count = p->targets.count,
                .bytes = (size_t)(rows_from(&s, 0) * p->request.block) * sizeof(float),
                .user = &s,
                .rows = rows_from,
                .compute = run_batch,
                .add = add_batch,
                .stopped = say_stopped }));
        }
out:
    workspace_free(p->workspace);
    p->workspace = NULL;
    return status;
}

/* Buffers for the largest batch, and a series for every measurement. */
static alibi_status probe_init(struct probe *p)
{
    int64_t targets = p->targets.count * p->request.block;
    int64_t batch = p->model->device->ops->traits.batch_tokens;
    int64_t cells = longest_context(p) + p->request.block; /* and a token for the repeats */

    cells = cells > batch ? cells : batch;
    TRY_RETURN(NEW_ARRAY(&p->ids, cells, "inputs of a probe"));
    TRY_RETURN(NEW_ARRAY(&p->wanted, cells, "targets of a probe"));
    TRY_RETURN(NEW_ARRAY(&p->nll, cells, "losses of a probe"));
    TRY_RETURN(NEW_ARRAY(&p->repeats, targets, "repeats of a probe"));
    for (int condition = 0; condition < TARGET_CONDITIONS; condition++)
        for (int c = 0; c < p->request.contexts.count; c++) {
            if (!is_measured(p, condition, c))
                continue;
            TRY_RETURN(NEW_ARRAY(&p->series[condition][c], targets, "losses of targets"));
            p->to_read += p->targets.count * inputs_of(p, c);
        }
    p->started = p->reported = clock_seconds();
    return ALIBI_OK;
}

static void probe_fini(struct probe *p)
{
    mem_free(p->targets.at);
    mem_free(p->ids);
    mem_free(p->wanted);
    mem_free(p->nll);
    mem_free(p->repeats);
    for (int condition = 0; condition < TARGET_CONDITIONS; condition++)
        for (int c = 0; c < ALIBI_LIST_MAX; c++)
            mem_free(p->series[condition][c]);
}

/* ---- estimates */

/* The bootstrap of one kind of targets: sums by unit, and the means of every series in every draw;
 * draw 0 is the sample itself. */
struct bootstrap {
    int64_t units;
    double *tokens; /* [units] */
    double *sums;   /* [units, TARGET_CONDITIONS * ALIBI_LIST_MAX] */
    double (*means)[TARGET_CONDITIONS *
                    ALIBI_LIST_MAX]; /* [1 + REPLICATES]; NaN: a draw without tokens */
};

static bool units_are_documents(const struct probe *p)
{
    return p->targets.documents >= TARGETS_FEW_DOCUMENTS;
}

static int64_t units(const struct probe *p)
{
    return units_are_documents(p) ? p->targets.documents : p->targets.count;
}

static int64_t unit_of(const struct probe *p, int64_t k)
{
    return units_are_documents(p) ? p->targets.at[k].document : k;
}

/* Sums of the targets of a kind, then the draws of units. */
static void draw(const struct probe *p, int kind, struct bootstrap *b)
{
    enum { SERIES = TARGET_CONDITIONS * ALIBI_LIST_MAX };
    int64_t T = p->request.block;

    memset(b->tokens, 0, (size_t)b->units * sizeof *b->tokens);
    memset(b->sums, 0, (size_t)b->units * sizeof *b->means);
    for (int64_t i = 0; i < p->targets.count * T; i++) {
        int64_t unit = unit_of(p, i / T);

        if (kind != ALIBI_ALL_TARGETS && p->repeats[i] != (kind == ALIBI_REPEATS))
            continue;
        b->tokens[unit]++;
        for (int s = 0; s < SERIES; s++) {
            const float *series = p->series[s / ALIBI_LIST_MAX][s % ALIBI_LIST_MAX];

            b->sums[unit * SERIES + s] += series ? (double)series[i] : (double)NAN;
        }
    }
    for (int64_t r = 0; r <= REPLICATES; r++) {
        double tokens = 0, *means = b->means[r];

        memset(means, 0, sizeof *b->means);
        for (int64_t u = 0; u < b->units; u++) {
            uint64_t drawn = random_below(0, RANDOM_STREAM(RANDOM_BOOTSTRAP, r), (uint64_t)u,
                                          (uint64_t)b->units);
            int64_t unit = r == 0 ? u : (int64_t)drawn;

            tokens += b->tokens[unit];
            for (int s = 0; s < SERIES; s++)
                means[s] += b->sums[unit * SERIES + s];
        }
        for (int s = 0; s < SERIES; s++)
            means[s] /= tokens;
    }
}

/* The mean of series a minus that of series b; b < 0: the mean of series a. The spread of the
 * bootstrap is that of a sample with a known mean, hence the factor K / (K - 1). */
static struct alibi_estimate estimate(const struct bootstrap *boot, int a, int b)
{
    double mean = 0, squares = 0, K = (double)boot->units;
    int64_t with_targets = 0;
    int draws = 0;

    for (int64_t u = 0; u < boot->units; u++)
        with_targets += boot->tokens[u] > 0;

    for (int r = 1; r <= REPLICATES; r++) {
        double d = boot->means[r][a] - (b < 0 ? 0 : boot->means[r][b]), step = d - mean;

        if (isnan(d))
            continue;
        mean += step / ++draws;
        squares += step * (d - mean);
    }
    return (struct alibi_estimate){
        .value = boot->means[0][a] - (b < 0 ? 0 : boot->means[0][b]),
        .error =
            with_targets > 1 && draws > 1 ? sqrt(squares / (draws - 1) * K / (K - 1)) : (double)NAN,
    };
}

static const struct alibi_estimate none = { NAN, NAN };

static void fill_kind(const struct probe *p, const struct bootstrap *b,
                      struct alibi_target_results *out)
{
    const struct alibi_int_list *contexts = &p->request.contexts;
    int home = 0;

    while (contexts->at[home] != p->request.length)
        home++;
    for (int64_t u = 0; u < b->units; u++)
        out->tokens += (int64_t)b->tokens[u];
    for (int c = 0; c < contexts->count; c++) {
        bool swapped = is_measured(p, TARGETS_SWAPPED, c),
             window = is_measured(p, TARGETS_WINDOW, c);
        int far = TARGETS_SWAPPED * ALIBI_LIST_MAX + c, cut = TARGETS_WINDOW * ALIBI_LIST_MAX + c;

        out->at[c] = (struct alibi_target_context){
            .context = contexts->at[c],
            .nll = estimate(b, c, -1),
            .gain = estimate(b, home, c),
            .step = c > 0 ? estimate(b, c - 1, c) : none,
            .swapped = swapped ? estimate(b, home, far) : none,
            .content = swapped ? estimate(b, far, c) : none,
            .window = window ? estimate(b, home, cut) : none,
            .beyond = window ? estimate(b, cut, c) : none,
        };
    }
}

static bool counts(struct alibi_estimate e, double t)
{
    return e.value >= LEAST_EFFECT && e.value > t * e.error;
}

int targets_reach(const struct alibi_target_context *far, double t)
{
    if (far->gain.value <= -0.01 && -far->gain.value > t * far->gain.error)
        return ALIBI_BREAKS;
    return counts(far->gain, t) && counts(far->content, t) && counts(far->beyond, t) ? ALIBI_USES
                                                                                     : ALIBI_HOLDS;
}

int64_t targets_fall(const struct alibi_target_context *at, int count, int64_t near, double t)
{
    int64_t to = near;

    for (int c = 0; c < count; c++) {
        if (at[c].context <= near)
            continue;
        if (!(at[c].step.value > 0 && at[c].step.value > t * at[c].step.error))
            break;
        to = at[c].context;
    }
    return to;
}

static alibi_status fill_result(const struct probe *p, struct alibi_targets_result *out)
{
    alibi_status status;
    struct bootstrap b = { .units = units(p) };
    struct alibi_targets_result r = { .request = p->request,
                                      .blocks = p->targets.count,
                                      .documents = p->targets.documents,
                                      .short_documents = p->targets.short_documents,
                                      .units = b.units,
                                      .units_are_documents = units_are_documents(p),
                                      .seconds = clock_seconds() - p->started };
    const struct alibi_target_context *far;

    TRY(NEW_ARRAY(&b.tokens, b.units, "sums of targets"));
    TRY(NEW_ARRAY(&b.sums, b.units * TARGET_CONDITIONS * ALIBI_LIST_MAX, "sums of targets"));
    TRY(NEW_ARRAY(&b.means, REPLICATES + 1, "draws of the bootstrap"));
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++) {
        draw(p, kind, &b);
        fill_kind(p, &b, &r.kind[kind]);
    }
    far = &r.kind[ALIBI_ALL_TARGETS].at[p->request.contexts.count - 1];
    r.reach = far->context > p->request.length ? targets_reach(far, student_t(r.units - 1)) : -1;
    r.falls_to = targets_fall(r.kind[ALIBI_ALL_TARGETS].at, p->request.contexts.count,
                              p->request.length, student_t(r.units - 1));
    *out = r;
out:
    mem_free(b.tokens);
    mem_free(b.sums);
    mem_free(b.means);
    return status;
}

/* ---- losses by part */

static void fill_losses(const struct probe *p, struct target_losses *out)
{
    int64_t T = p->request.block, all = units(p);
    int parts = (int)(all < ALIBI_EVAL_PARTS ? all : ALIBI_EVAL_PARTS);

    out->request = p->request;
    out->blocks = p->targets.count;
    out->documents = p->targets.documents;
    out->start = p->targets.at[0].start;
    out->available = p->span.count;
    out->parts = parts;
    memset(out->tokens, 0, sizeof out->tokens);
    for (int64_t i = 0; i < p->targets.count * T; i++)
        out->tokens[unit_of(p, i / T) * parts / all][!p->repeats[i]]++;
    for (int c = 0; c < p->request.contexts.count; c++)
        for (int condition = 0; condition < TARGET_CONDITIONS; condition++) {
            const float *series = p->series[condition][c];
            double nll[ALIBI_EVAL_PARTS][2] = { { 0 } };

            for (int64_t i = 0; series != NULL && i < p->targets.count * T; i++)
                nll[unit_of(p, i / T) * parts / all][!p->repeats[i]] += (double)series[i];
            target_losses_set(out, c, condition, series != NULL ? nll : NULL);
        }
}

/* ---- the public interface */

static alibi_status resolve(struct alibi_targets *r, const alibi_model *model)
{
    if (r->gram == 0 && strcmp(alibi_tokenizer_type(model->tokenizer), "bytes") == 0)
        r->gram = GRAM_BYTES;
    TRY_RETURN(targets_resolve(r, model->model->config.train_length));
    return check_contexts(r, model->model);
}

alibi_status alibi_targets_check(const alibi_model *model, const struct alibi_targets *targets)
{
    struct alibi_targets resolved = *targets;

    return resolve(&resolved, model);
}

/* Layers with gates have no sinks in any pass. */
static void note_sinks(struct probe *p)
{
    const struct pattern *pattern = &p->model->pattern;
    int gated = 0;

    for (int k = 0; k < pattern->kinds; k++)
        gated += pattern->kind[k].method->bias == BIAS_GATE;
    if (p->request.sinks == 0 || gated == 0)
        return;
    call_note(p->call, "the window control sees no sinks in the layers of '%s' that have gates",
              p->model->config.position);
    if (gated == pattern->kinds)
        p->request.sinks = 0;
}

/* Everything before the first series. The request is resolved. */
static alibi_status prepare(struct probe *p, const alibi_model *model, const alibi_corpus *corpus)
{
    int64_t C = longest_context(p), T = p->request.block;

    TRY_RETURN(evaluate_check_vocab(p->model, corpus_tokenizer(corpus), "the text"));
    TRY_RETURN(evaluate_check_tokenizer(model->tokenizer, corpus));
    TRY_RETURN(targets_new(&p->targets, p->span, C, T, p->request.blocks));
    if (!p->targets.swappable)
        call_note(p->call,
                  "'%s' has no other document to swap the far context with: only gains are "
                  "measured",
                  corpus_name(corpus));
    note_sinks(p);
    TRY_RETURN(probe_init(p));
    for (int64_t k = 0; k < p->targets.count; k++) {
        span_read(p->span, p->targets.at[k].start - C, C + T, p->ids);
        targets_mark(p->ids, C, p->request.length, T, p->request.gram, p->repeats + k * T);
    }
    return ALIBI_OK;
}

/* Measures every series. `status` is that of resolving the request. */
static alibi_status run(struct probe *p, const alibi_model *model, const alibi_corpus *corpus,
                        alibi_status status)
{
    const struct alibi_targets *t = &p->request;
    struct {
        int64_t text, length, blocks, block, gram, sinks, contexts[ALIBI_LIST_MAX];
    } request = { p->span.count, t->length, t->blocks, t->block, t->gram, t->sinks, { 0 } };

    if (status == ALIBI_OK)
        status = prepare(p, model, corpus);
    TRY_RETURN(comm_agree(call_comm(p->call), status));
    memcpy(request.contexts, t->contexts.at, (size_t)t->contexts.count * sizeof *t->contexts.at);
    TRY_RETURN(rounds_check(model, corpus, &request, sizeof request, p->call));
    for (int condition = 0; condition < TARGET_CONDITIONS; condition++)
        TRY_RETURN(run_condition(p, condition));
    return ALIBI_OK;
}

alibi_status alibi_probe_targets(const alibi_model *model, const alibi_corpus *corpus,
                                 enum alibi_split split, const struct alibi_targets *targets,
                                 struct alibi_targets_result *result, const struct alibi_call *call)
{
    alibi_status status;
    struct probe p = {
        .model = model->model, .call = call, .span = corpus_span(corpus, split), .request = *targets
    };

    status = resolve(&p.request, model);
    TRY(run(&p, model, corpus, status));
    status = fill_result(&p, result);
    TRY(comm_agree(call_comm(call), status));
out:
    probe_fini(&p);
    return status;
}

alibi_status probe_losses(const alibi_model *model, const alibi_corpus *corpus,
                          enum alibi_split split, const struct alibi_targets *targets,
                          struct target_losses *losses, const struct alibi_call *call)
{
    alibi_status status;
    struct probe p = {
        .model = model->model, .call = call, .span = corpus_span(corpus, split), .request = *targets
    };

    TRY(run(&p, model, corpus, ALIBI_OK));
    fill_losses(&p, losses);
out:
    probe_fini(&p);
    return status;
}
