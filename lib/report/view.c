/* view.c - results as reports need them: names fit for one line, lengths in order, values by method
 * and length, curves */
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
                        .protocol = ALIBI_NONOVERLAPPING,
                        .methods = r->methods,
                        .train_length = r->training.train_length };
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

bool view_has_length(const struct view *v, int64_t length)
{
    for (int i = 0; i < v->lengths; i++)
        if (v->length[i] == length)
            return true;
    return false;
}

const struct alibi_eval_result *view_at(const struct view *v, int method, int64_t length)
{
    const struct alibi_compare_method *m = &v->result->method[method];
    const struct alibi_eval_result *evals = m->by_length;
    int count = m->lengths;

    if (v->protocol == ALIBI_SLIDING) {
        evals = m->sliding;
        count = m->sliding_lengths;
    } else if (v->protocol == ALIBI_STREAM) {
        evals = &m->stream;
        count = 1;
    }
    for (int i = 0; i < count; i++)
        if (evals[i].length == length)
            return evals[i].tokens > 0 ? &evals[i] : NULL;
    return NULL;
}

double view_ppl(const struct view *v, int method, int64_t length)
{
    const struct alibi_eval_result *e = view_at(v, method, length);

    return e != NULL ? e->ppl : NAN;
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

int view_best(const struct view *v, int64_t length, int other)
{
    double lowest = INFINITY;
    int best = -1;

    for (int m = 0; m < v->methods; m++)
        if (m != other && view_ppl(v, m, length) < lowest) {
            lowest = view_ppl(v, m, length);
            best = m;
        }
    return best;
}

const struct alibi_option *setting_at(const struct alibi_compare_result *r, int group, int index,
                                      const void **values)
{
    /* Methods differ in their position; the text sets the vocabulary; no comparison has an init. */
    static const char *const other[] = { "position", "vocab", "init" };
    int count;
    const struct alibi_option *options =
        group == 0 ? alibi_config_options(&count) : alibi_training_options(&count);

    *values = group == 0 ? (const void *)&r->config : &r->training;
    for (int i = 0; i < count; i++) {
        bool skipped = false;

        for (size_t k = 0; k < sizeof other / sizeof *other; k++)
            skipped |= strcmp(options[i].name, other[k]) == 0;
        if (!skipped && index-- == 0)
            return &options[i];
    }
    return NULL;
}

/* ---- curves */

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
                               .mark_x = v->train_length > 0 ? (double)v->train_length : NAN,
                               .mark_label = c->mark_label };
    snprintf(c->mark_label, sizeof c->mark_label, "trained at %lld", (long long)v->train_length);
    *out = c;
    return ALIBI_OK;
}

static void add_point(struct curves *c, int method, double x, double y)
{
    int i = c->series[method].count++;

    c->x[method][i] = x;
    c->y[method][i] = y;
}

/* The range of the positive finite values seen so far. */
struct range {
    double least, most;
};

static void extend(struct range *r, double value)
{
    if (isfinite(value) && value > 0) {
        r->least = fmin(r->least, value);
        r->most = fmax(r->most, value);
    }
}

/* Over a wide range ratios matter, so the axis is logarithmic. The limit keeps a curve that
 * explodes from flattening all others. */
static void scale_y(struct curves *c, struct range r)
{
    if (!(r.most > 0))
        return;
    c->chart.log_y = r.most > 3 * r.least;
    c->chart.y_limit = 100 * r.least;
    c->chart.y_least = r.least;
    c->chart.y_most = r.most;
}

/* At least 10% on either side of the middle, so that noise is not drawn as a slope. */
static void scale_ppl(struct curves *c, const struct view *v)
{
    struct view other =
        view_of(v, v->protocol == ALIBI_SLIDING ? ALIBI_NONOVERLAPPING : ALIBI_SLIDING);
    struct range r = { INFINITY, 0 };

    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++) {
            extend(&r, view_ppl(v, m, v->length[i]));
            if (v->one_scale)
                extend(&r, view_ppl(&other, m, v->length[i]));
        }
    if (r.most > 0) {
        double middle = sqrt(r.least) * sqrt(r.most);
        r.least = fmin(r.least, middle / 1.1);
        r.most = fmax(r.most, middle * 1.1);
    }
    scale_y(c, r);
}

static double curve_value(const struct alibi_eval_result *e, enum curve_kind kind)
{
    if (e == NULL)
        return NAN;
    if (kind == CURVE_PPL)
        return e->ppl;
    if (kind == CURVE_SPEED)
        return e->tokens_per_s > 0 ? e->tokens_per_s : NAN;
    return e->peak_bytes > 0 ? (double)e->peak_bytes / 0x1p20 : NAN;
}

alibi_status curves_by_length(struct curves **out, const struct view *v, enum curve_kind kind)
{
    static const char *const titles[] = { "Perplexity against test length",
                                          "Evaluation speed against test length",
                                          "Memory of evaluation against test length" };
    static const char *const labels[] = { "perplexity", "tokens per second", "peak memory, MiB" };
    struct curves *c = NULL;

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++)
            add_point(c, m, (double)v->length[i], curve_value(view_at(v, m, v->length[i]), kind));
    if (kind == CURVE_PPL)
        scale_ppl(c, v);
    snprintf(c->title, sizeof c->title, "%s%s", titles[kind],
             v->protocol == ALIBI_SLIDING ? ", sliding window" : "");
    c->chart.x_label = "test length in tokens, log scale";
    c->chart.y_label = kind == CURVE_PPL && c->chart.log_y ? "perplexity, log scale" : labels[kind];
    c->chart.from_zero = kind != CURVE_PPL;
    *out = c;
    return ALIBI_OK;
}

alibi_status curves_by_position(struct curves **out, const struct view *v, int64_t length)
{
    struct curves *c = NULL;
    struct range r = { INFINITY, 0 };

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++) {
        const struct alibi_eval_result *e = view_at(v, m, length);
        for (int b = 0; e != NULL && b < e->bins && b < ALIBI_POSITION_BINS; b++) {
            const struct alibi_position_loss *bin = &e->by_position[b];
            /* The middle of the bin on a logarithmic axis, in tokens of context. */
            double middle = sqrt((double)(bin->first + 1) * (double)(bin->last + 1));
            double nll = bin->tokens > 0 ? bin->nll : NAN;

            add_point(c, m, middle, nll);
            extend(&r, nll);
        }
    }
    scale_y(c, r);
    snprintf(c->title, sizeof c->title, "Loss by position at length %lld", (long long)length);
    c->chart.x_label = "tokens of context, log scale";
    c->chart.y_label = c->chart.log_y ? "loss, nats per token, log scale" : "loss, nats per token";
    if (length < v->train_length)
        c->chart.mark_x = NAN;
    *out = c;
    return ALIBI_OK;
}
