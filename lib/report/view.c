/* view.c - results as reports need them: names fit to be shown, lengths in order, values by method
 * and length, charts */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* Keeps the lengths ascending, each once. */
static void add_length(struct view *v, int64_t length)
{
    int at = v->lengths;

    while (at > 0 && v->length[at - 1] > length)
        at--;
    if (length < 1 || v->lengths == ALIBI_LIST_MAX || (at > 0 && v->length[at - 1] == length))
        return;
    memmove(&v->length[at + 1], &v->length[at], (size_t)(v->lengths - at) * sizeof v->length[0]);
    v->length[at] = length;
    v->lengths++;
}

void view_init(struct view *v, const struct alibi_compare_result *r)
{
    *v = (struct view){ .result = r,
                        .methods = r->methods,
                        .train_length = r->training.train_length };
    v->protocol = ALIBI_NONOVERLAPPING;
    for (int m = 0; m < r->methods; m++) {
        snprintf(v->name[m], sizeof v->name[m], "%s", r->method[m].name);
        line_clean(v->name[m]);
        snprintf(v->device[m], sizeof v->device[m], "%s", r->method[m].device);
        line_clean(v->device[m]);
        for (int i = 0; i < r->method[m].lengths; i++)
            add_length(v, r->method[m].by_length[i].length);
    }
}

struct view view_of(const struct view *v, enum alibi_protocol protocol)
{
    struct view other = *v;

    other.protocol = protocol;
    if (protocol != ALIBI_STREAM)
        return other;
    other.lengths = 0;
    for (int m = 0; m < v->methods; m++)
        if (v->result->method[m].stream.tokens > 0)
            add_length(&other, v->result->method[m].stream.length);
    return other;
}

static const struct alibi_eval_result *evals_of(const struct alibi_compare_method *m,
                                                enum alibi_protocol protocol, int *count)
{
    switch (protocol) {
    case ALIBI_STREAM:
        *count = 1;
        return &m->stream;
    case ALIBI_SLIDING:
        *count = m->sliding_lengths;
        return m->sliding;
    default:
        *count = m->lengths;
        return m->by_length;
    }
}

const struct alibi_eval_result *view_at(const struct view *v, int method, int64_t length)
{
    int count;
    const struct alibi_eval_result *evals =
        evals_of(&v->result->method[method], v->protocol, &count);

    for (int i = 0; i < count; i++)
        if (evals[i].length == length)
            return evals[i].tokens > 0 ? &evals[i] : NULL;
    return NULL;
}

int64_t view_tokens(const struct view *v)
{
    int64_t most = 0;

    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++) {
            const struct alibi_eval_result *e = view_at(v, m, v->length[i]);
            most = e != NULL && e->tokens > most ? e->tokens : most;
        }
    return most;
}

int view_best(const struct view *v, int64_t length)
{
    double lowest = INFINITY;
    int best = -1;

    for (int m = 0; m < v->methods; m++) {
        const struct alibi_eval_result *e = view_at(v, m, length);
        if (e != NULL && e->ppl < lowest) {
            lowest = e->ppl;
            best = m;
        }
    }
    return best;
}

/* ---- charts */

static alibi_status curves_new(struct curves **out, const struct view *v)
{
    struct curves *c = NULL;

    TRY_RETURN(NEW_ZERO_ARRAY(&c, 1, "the curves of a figure"));
    for (int m = 0; m < v->methods; m++)
        c->series[m] = (struct series){ .name = v->name[m], .x = c->x[m], .y = c->y[m] };
    c->chart = (struct chart){ .title = c->title,
                               .series = c->series,
                               .count = v->methods,
                               .log_x = true,
                               .mark_label = c->mark_label };
    c->chart.mark_x = v->train_length > 0 ? (double)v->train_length : NAN;
    snprintf(c->mark_label, sizeof c->mark_label, "trained at %lld", (long long)v->train_length);
    *out = c;
    return ALIBI_OK;
}

static void add_point(struct curves *c, int method, double x, double y)
{
    struct series *s = &c->series[method];

    c->x[method][s->count] = x;
    c->y[method][s->count] = y;
    s->count++;
}

static void extend(double *least, double *most, double value)
{
    if (isfinite(value) && value > 0) {
        *least = fmin(*least, value);
        *most = fmax(*most, value);
    }
}

/* Over a wide range ratios matter, not differences; and a curve that explodes must not press all
 * others flat. */
static void scale_y(struct curves *c, double least, double most)
{
    if (!(most > 0))
        return;
    c->chart.log_y = most > 3 * least;
    c->chart.y_limit = 100 * least;
    c->chart.y_least = least;
    c->chart.y_most = most;
}

static double value_of(const struct alibi_eval_result *e, enum curve_kind kind)
{
    if (e == NULL)
        return NAN;
    if (kind == CURVE_PPL)
        return e->ppl;
    if (kind == CURVE_SPEED)
        return e->tokens_per_s > 0 ? e->tokens_per_s : NAN;
    return e->peak_bytes > 0 ? (double)e->peak_bytes / 0x1p20 : NAN;
}

/* At least 10% on both sides of the middle, so that noise is not drawn as a slope. */
static void spread(double *least, double *most)
{
    double middle = sqrt(*least) * sqrt(*most);

    *least = fmin(*least, middle / 1.1);
    *most = fmax(*most, middle * 1.1);
}

static void scale_ppl(struct curves *c, const struct view *v)
{
    struct view other =
        view_of(v, v->protocol == ALIBI_SLIDING ? ALIBI_NONOVERLAPPING : ALIBI_SLIDING);
    double least = INFINITY, most = 0;

    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++) {
            extend(&least, &most, value_of(view_at(v, m, v->length[i]), CURVE_PPL));
            if (v->one_scale)
                extend(&least, &most, value_of(view_at(&other, m, v->length[i]), CURVE_PPL));
        }
    if (most > 0)
        spread(&least, &most);
    scale_y(c, least, most);
}

static void name_kind(struct curves *c, enum alibi_protocol protocol, enum curve_kind kind)
{
    static const char *const titles[] = { "Perplexity against test length",
                                          "Evaluation speed against test length",
                                          "Memory of evaluation against test length" };
    static const char *const labels[] = { "perplexity", "tokens per second", "peak memory, MiB" };

    snprintf(c->title, sizeof c->title, "%s%s", titles[kind],
             protocol == ALIBI_SLIDING ? ", sliding window" : "");
    c->chart.y_label = kind == CURVE_PPL && c->chart.log_y ? "perplexity, log scale" : labels[kind];
    c->chart.x_label = "test length in tokens, log scale";
    c->chart.from_zero = kind != CURVE_PPL;
}

alibi_status curves_by_length(struct curves **out, const struct view *v, enum curve_kind kind)
{
    struct curves *c = NULL;

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++)
            add_point(c, m, (double)v->length[i], value_of(view_at(v, m, v->length[i]), kind));
    if (kind == CURVE_PPL)
        scale_ppl(c, v);
    name_kind(c, v->protocol, kind);
    *out = c;
    return ALIBI_OK;
}

/* A bin stands at the middle, on a logarithmic axis, of the tokens of context that its targets see.
 * */
static double middle(const struct alibi_position_loss *bin)
{
    return sqrt((double)(bin->first + 1) * (double)(bin->last + 1));
}

alibi_status curves_by_position(struct curves **out, const struct view *v, int64_t length)
{
    struct curves *c = NULL;
    double least = INFINITY, most = 0;

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++) {
        const struct alibi_eval_result *e = view_at(v, m, length);
        for (int b = 0; e != NULL && b < e->bins && b < ALIBI_POSITION_BINS; b++) {
            double nll = e->by_position[b].tokens > 0 ? e->by_position[b].nll : NAN;
            add_point(c, m, middle(&e->by_position[b]), nll);
            extend(&least, &most, nll);
        }
    }
    scale_y(c, least, most);
    snprintf(c->title, sizeof c->title, "Loss by position at length %lld", (long long)length);
    c->chart.x_label = "tokens of context, log scale";
    c->chart.y_label = c->chart.log_y ? "loss, nats per token, log scale" : "loss, nats per token";
    if (length < v->train_length)
        c->chart.mark_x = NAN;
    *out = c;
    return ALIBI_OK;
}
