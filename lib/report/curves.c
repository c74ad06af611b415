/* curves.c - the data of each figure */
#include <math.h>

#include "report/parts.h"

static alibi_status curves_new(struct curves **out, const struct view *v)
{
    struct curves *c = NULL;

    TRY_RETURN(NEW_ZERO_ARRAY(&c, 1, "the curves of a figure"));
    for (int i = 0; i < SERIES_MAX; i++) /* parts of one method may be more than methods */
        c->series[i] =
            (struct series){ .x = c->x[i], .y = c->y[i], .low = c->low[i], .high = c->high[i] };
    for (int m = 0; m < v->methods; m++) {
        c->series[m].name = v->name[m];
        c->series[m].look = v->look[m];
    }
    c->chart = (struct chart){ .title = c->title,
                               .series = c->series,
                               .count = v->methods,
                               .log_x = true,
                               .mark_x = v->train_length > 0 ? (double)v->train_length : NAN,
                               .mark_label = c->mark_label };
    c->of = -1;
    snprintf(c->mark_label, sizeof c->mark_label, "trained at %lld", (long long)v->train_length);
    *out = c;
    return ALIBI_OK;
}

/* `error` is the standard error of log y; NaN: not known. The bounds are one error away. */
static void add_point(struct curves *c, int method, double x, double y, double error)
{
    int i = c->series[method].count++;

    c->x[method][i] = x;
    c->y[method][i] = y;
    c->low[method][i] = y * exp(-error);
    c->high[method][i] = y * exp(error);
}

/* With the range of the seeds, unless there is only one: then low is high. */
static void add_range(struct curves *c, int method, double x, double y, double low, double high)
{
    int i = c->series[method].count;

    add_point(c, method, x, y, NAN);
    if (low < high) {
        c->low[method][i] = low;
        c->high[method][i] = high;
    }
}

/* The middle of a bin of positions on a logarithmic axis, in tokens of context. */
static double middle_of(int64_t first, int64_t last)
{
    return sqrt((double)(first + 1) * (double)(last + 1));
}

/* The length up to which a context is near. */
static void mark_near(struct curves *c, int64_t near)
{
    c->chart.mark_x = near > 0 ? (double)near : NAN;
    snprintf(c->mark_label, sizeof c->mark_label, "L = %lld", (long long)near);
}

/* Adds a curve that is not a model's, such as the lowest possible loss; returns its index. */
static int add_reference(struct curves *c, const char *name)
{
    c->series[c->chart.count].name = name;
    c->series[c->chart.count].reference = true;
    return c->chart.count++;
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
 * explodes from flattening all others: from thirty times the best on, a model is broken, and its
 * label says how far it goes. */
static void scale_y(struct curves *c, struct range r)
{
    if (!(r.most > 0))
        return;
    c->chart.log_y = r.most > 3 * r.least;
    c->chart.y_limit = 30 * r.least;
    c->chart.y_least = r.least;
    c->chart.y_most = r.most;
}

/* The bound of a point, or the point itself if it has no bounds. */
static double bound_of(const struct curves *c, int series, int point, bool high)
{
    double bound = high ? c->high[series][point] : c->low[series][point];

    return isfinite(bound) ? bound : c->y[series][point];
}

/* The last point of a series up to x, or its first. */
static int last_up_to(const struct curves *c, int series, double x)
{
    int last = 0;

    while (last + 1 < c->series[series].count && c->x[series][last + 1] <= x)
        last++;
    return last;
}

/* A model that breaks may lose a hundred times what others gain, and one whose position is changed
 * for the test may break at L already. So the scale is that of the lowest losses, and of those up
 * to L of models that are there within NEAR_BEST nats of the best, and a quarter again above them;
 * curves beyond are clipped. home: the L of each series. ppl: the values are perplexities, those
 * up to twice the lowest are all shown, and the range is at least 10% on either side of its middle,
 * so that noise is not drawn as a slope. */
static void scale_losses(struct curves *c, const double *home, bool ppl)
{
    static const double NEAR_BEST = 0.2;
    double best = INFINITY, least = INFINITY, most = -INFINITY, near = -INFINITY, room;

    for (int pass = 0; pass < 2; pass++) /* best and least are known after the first */
        for (int m = 0; m < c->chart.count; m++) {
            int last = last_up_to(c, m, home[m]);

            for (int i = 0; i < c->series[m].count; i++) {
                double low = bound_of(c, m, i, false), high = bound_of(c, m, i, true);
                double at_home = bound_of(c, m, last, false);

                low = ppl ? log(low) : low;
                high = ppl ? log(high) : high;
                at_home = ppl ? log(at_home) : at_home;
                if (i == last)
                    best = fmin(best, low);
                least = fmin(least, low);
                most = fmax(most, high);
                if (pass == 1 &&
                    ((i <= last && at_home <= best + NEAR_BEST) || (ppl && high <= least + log(2))))
                    near = fmax(near, high);
            }
        }
    if (!isfinite(near) || !isfinite(least))
        return;
    room = fmax(near - least, ppl ? 2 * log(1.1) : 0.05);
    most = fmax(fmin(most, near + room / 4), least + room);
    least -= 0.05 * room;
    c->chart.y_from = ppl ? exp(least) : least;
    c->chart.y_to = ppl ? exp(most) : most;
}

/* The scale for an experiment, whose models are tested in more ways and break more often than those
 * of a comparison. */
static void scale_tested(struct curves *c, const struct view *v, bool ppl)
{
    double home[SERIES_MAX];

    for (int m = 0; m < v->methods; m++)
        home[m] = (double)v->trained_at[m];
    scale_losses(c, home, ppl);
    c->chart.log_y = c->chart.y_to > 3 * c->chart.y_from;
}

static void extend_ppl(struct range *r, const struct view *v, int method, int64_t length)
{
    struct alibi_eval_result e = view_mean(v, method, length);

    if (e.tokens == 0)
        return;
    extend(r, e.ppl);
    extend(r, e.ppl * exp(-e.standard_error));
    extend(r, e.ppl * exp(e.standard_error));
}

/* At least 10% on either side of the middle, so that noise is not drawn as a slope. */
static void scale_ppl(struct curves *c, const struct view *v)
{
    struct view other =
        view_of(v, v->protocol == ALIBI_SLIDING ? ALIBI_NONOVERLAPPING : ALIBI_SLIDING);
    struct range r = { INFINITY, 0 };

    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++) {
            extend_ppl(&r, v, m, v->length[i]);
            if (v->one_scale)
                extend_ppl(&r, &other, m, v->length[i]);
        }
    if (r.most > 0) {
        double middle = sqrt(r.least) * sqrt(r.most);
        r.least = fmin(r.least, middle / 1.1);
        r.most = fmax(r.most, middle * 1.1);
    }
    scale_y(c, r);
}

alibi_status curves_by_length(struct curves **out, const struct view *v)
{
    struct curves *c = NULL;

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++) {
            struct alibi_eval_result e = view_mean(v, m, v->length[i]);

            add_point(c, m, (double)v->length[i], e.tokens > 0 ? e.ppl : NAN, e.standard_error);
        }
    if (v->trained_at)
        scale_tested(c, v, true);
    else
        scale_ppl(c, v);
    snprintf(c->title, sizeof c->title, "Perplexity against test length%s",
             v->protocol == ALIBI_SLIDING ? ", sliding window" : "");
    c->chart.x_label = "test length in tokens, log scale";
    c->chart.y_label = "perplexity";
    *out = c;
    return ALIBI_OK;
}

/* ---- by position */

/* The losses of one method in windows of one length as a curve: the mean of the seeds, and their
 * range if there are several. */
static void add_positions(struct curves *c, int series, const struct view *v, int method,
                          int64_t length)
{
    struct alibi_eval_result e = view_mean(v, method, length);

    for (int b = 0; b < e.bins && b < ALIBI_POSITION_BINS; b++) {
        const struct alibi_position_loss *bin = &e.by_position[b];
        double low = INFINITY, high = -INFINITY;

        for (int k = 0; k < v->result->method[method].seeds; k++) {
            const struct alibi_eval_result *seed = view_seed(v, method, k, length);

            if (seed == NULL || b >= seed->bins)
                continue;
            low = fmin(low, seed->by_position[b].nll);
            high = fmax(high, seed->by_position[b].nll);
        }
        add_range(c, series, middle_of(bin->first, bin->last), bin->tokens > 0 ? bin->nll : NAN,
                  low, high);
    }
}

static void scale_positions(struct curves *c, int series, struct range *r)
{
    for (int i = 0; i < c->series[series].count; i++)
        extend(r, c->y[series][i]);
}

static void label_positions(struct curves *c)
{
    c->chart.range = true;
    c->chart.x_label = "tokens of context, log scale";
    c->chart.y_label = "loss, nats per token";
}

alibi_status curves_by_position(struct curves **out, const struct view *v, int64_t length)
{
    struct curves *c = NULL;
    struct range r = { INFINITY, 0 };

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++) {
        add_positions(c, m, v, m, length);
        scale_positions(c, m, &r);
    }
    if (v->trained_at)
        scale_tested(c, v, false);
    else
        scale_y(c, r);
    snprintf(c->title, sizeof c->title, "Loss by position at length %lld", (long long)length);
    label_positions(c);
    if (length < v->train_length)
        c->chart.mark_x = NAN;
    *out = c;
    return ALIBI_OK;
}

/* The training length, or the shortest, to the longest. */
static int position_lengths(int64_t lengths[POSITION_LENGTHS], const struct view *v)
{
    int first = 0, count;

    while (first < v->lengths - 1 && v->length[first] < view_home(v))
        first++;
    count = v->lengths - first < POSITION_LENGTHS ? v->lengths - first : POSITION_LENGTHS;
    for (int i = 0; i < count; i++)
        lengths[i] =
            v->length[count > 1 ? first + i * (v->lengths - 1 - first) / (count - 1) : first];
    return count;
}

/* The curve of the shortest length is the palest and is drawn last, so that the next one is visible
 * where it ends. A model that is worse with much context than any model is with none has broken,
 * and its curve is clipped there. */
alibi_status curves_of_positions(struct curves **out, const struct view *v, int method)
{
    struct curves *c = NULL;
    struct range r = { INFINITY, 0 };
    double worst = 0;
    int64_t lengths[POSITION_LENGTHS];
    int count = position_lengths(lengths, v);

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++) /* for one scale of all these figures */
        for (int i = 0; i < count; i++) {
            c->series[i].count = 0;
            add_positions(c, i, v, m, lengths[i]);
            scale_positions(c, i, &r);
            if (c->series[i].count > 0)
                worst = fmax(worst, c->y[i][0]);
        }
    c->of = method; /* the curves are parts of it, in its colour */
    c->chart.parts = true;
    c->chart.count = count;
    for (int i = 0; i < count; i++) {
        c->series[i].name = c->name[i];
        c->series[i].look = v->look[method] % LOOKS;
        snprintf(c->name[i], sizeof c->name[i], "%lld", (long long)lengths[i]);
        c->series[i].fade = count > 1 ? 0.65 * (count - 1 - i) / (count - 1) : 0;
        c->series[i].count = 0;
        add_positions(c, i, v, method, lengths[i]);
        if (i < count - 1)
            c->series[i].low = NULL;
    }
    scale_y(c, r);
    c->chart.log_y = false;
    c->chart.y_limit = 1.1 * worst;
    c->one_scale = c->chart.plain = c->chart.ends = true;
    if (v->trained_at != NULL)
        c->chart.mark_x = (double)v->trained_at[method];
    c->chart.mark_label = NULL;
    snprintf(c->title, sizeof c->title, "%s: loss by position", v->name[method]);
    label_positions(c);
    *out = c;
    return ALIBI_OK;
}

/* ---- by step */

void report_bins_add(struct report_bins *bins, int64_t step, int64_t steps, double loss)
{
    int64_t bin;

    if (step < 1 || step > steps)
        return;
    bin = (int64_t)((double)(step - 1) / (double)steps * REPORT_BINS);
    bins->count[bin]++;
    bins->step[bin] += (double)step;
    bins->loss[bin] += loss;
}

/* A bin of one curve: the mean of its seeds, and their range if there are several. */
static void add_bin(struct curves *c, struct range *r, int method, const struct report_training *t,
                    bool validation, int bin)
{
    double steps = 0, sum = 0, low = INFINITY, high = -INFINITY;
    int seeds = 0;

    for (int k = 0; k < t->logs; k++) {
        const struct report_bins *b = validation ? &t->log[k].valid : &t->log[k].train;
        double loss = b->loss[bin] / (double)b->count[bin];

        if (t->log[k].method != method || b->count[bin] == 0 || !isfinite(loss))
            continue;
        seeds++;
        steps += b->step[bin] / (double)b->count[bin];
        sum += loss;
        low = fmin(low, loss);
        high = fmax(high, loss);
    }
    if (seeds == 0)
        return;
    add_range(c, method, steps / seeds, sum / seeds, low, high);
    extend(r, low);
    extend(r, high);
}

alibi_status curves_by_step(struct curves **out, const struct view *v,
                            const struct report_training *t, bool validation)
{
    struct curves *c = NULL;
    struct range r = { INFINITY, 0 };

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < v->methods; m++)
        for (int bin = 0; bin < REPORT_BINS; bin++)
            add_bin(c, &r, m, t, validation, bin);
    scale_y(c, r);
    snprintf(c->title, sizeof c->title, "%s", validation ? "Validation loss" : "Training loss");
    c->chart.log_x = false;
    c->chart.mark_x = NAN;
    c->chart.plain = !validation;
    c->chart.range = true;
    c->chart.x_label = "step";
    c->chart.y_label = "loss, nats per token";
    *out = c;
    return ALIBI_OK;
}

/* ---- fixed targets */

static void finish_targets(struct curves *c, const struct report_targets *t)
{
    for (int m = 0; m < t->models; m++)
        c->series[t->model[m].method].reference = t->model[m].ceiling;
    c->one_scale = true;
    c->chart.show = show_nats;
    c->chart.x_label = "tokens of context, log scale";
    mark_near(c, t->near);
}

alibi_status curves_of_targets(struct curves **out, const struct view *v,
                               const struct report_targets *t, enum alibi_target_kind kind)
{
    static const char *const titles[] = { "Loss against context", "Targets that repeat far text",
                                          "Other targets" };
    struct curves *c = NULL;
    double home[SERIES_MAX] = { 0 };

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < t->models; m++) {
        const struct report_targets_model *x = &t->model[m];

        home[x->method] = (double)x->kind[kind].at[x->home].context;
        for (int i = 0; i < t->contexts; i++) {
            const struct alibi_target_context *at = &x->kind[kind].at[i];

            if (x->kind[kind].tokens > 0)
                add_range(c, x->method, (double)at->context, at->nll.value, x->low[kind][i],
                          x->high[kind][i]);
        }
    }
    scale_losses(c, home, false);
    finish_targets(c, t);
    c->chart.range = true;
    c->chart.show = NULL;
    c->chart.y_label = "loss, nats per token";
    snprintf(c->title, sizeof c->title, "%s", titles[kind]);
    *out = c;
    return ALIBI_OK;
}

/* Both controls share a scale, that of the models that do not break if there are any, because the
 * losses of a model that breaks are large and say nothing. Curves are clipped at three times the
 * largest use below 0. */
static void scale_uses(struct chart *chart, const struct report_targets *t)
{
    double from = 0, to = 0.01;
    bool all = true;

    for (int m = 0; m < t->models; m++)
        all = all && t->model[m].reach == ALIBI_BREAKS;
    for (int m = 0; m < t->models; m++)
        for (int i = 0; i < t->contexts && (all || t->model[m].reach != ALIBI_BREAKS); i++) {
            const struct alibi_target_context *at = &t->model[m].kind[ALIBI_ALL_TARGETS].at[i];
            const struct alibi_estimate of[] = { at->beyond, at->content };

            for (int k = 0; k < 2; k++) {
                if (!isfinite(of[k].value))
                    continue;
                from = fmin(from, of[k].value - (isfinite(of[k].error) ? of[k].error : 0));
                to = fmax(to, of[k].value + (isfinite(of[k].error) ? of[k].error : 0));
            }
        }
    chart->y_to = to;
    chart->y_from = fmin(fmax(from, -3 * to), -to / 4);
}

alibi_status curves_of_uses(struct curves **out, const struct view *v,
                            const struct report_targets *t, bool content)
{
    struct curves *c = NULL;

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < t->models; m++) {
        const struct alibi_target_context *at = t->model[m].kind[ALIBI_ALL_TARGETS].at;
        int home = t->model[m].home, series = t->model[m].method;

        for (int i = home; i < t->contexts; i++) {
            struct alibi_estimate e = content ? at[i].content : at[i].beyond;
            int point = c->series[series].count;

            if (i == home)
                e = (struct alibi_estimate){ 0, 0 };
            add_point(c, series, (double)at[i].context, e.value, NAN);
            c->low[series][point] = e.value - e.error;
            c->high[series][point] = e.value + e.error;
        }
    }
    scale_uses(&c->chart, t);
    finish_targets(c, t);
    c->chart.zero = true;
    c->chart.y_label = "loss without it, nats per token";
    snprintf(c->title, sizeof c->title, "%s",
             content ? "Use of what far text says" : "Use of keys beyond L");
    *out = c;
    return ALIBI_OK;
}

/* ---- the chain */

bool knows_chain(const struct report_task *t, const struct report_task_model *m)
{
    return m->bins > 0 && m->at[t->lengths->count - 1].unlearned == 0;
}

const struct report_task_model *chain_longest(const struct report_task *t)
{
    const struct report_task_model *longest = NULL;

    for (int m = 0; m < t->models; m++)
        if (knows_chain(t, &t->model[m]) &&
            (longest == NULL || t->model[m].length > longest->length))
            longest = &t->model[m];
    return longest;
}

alibi_status curves_of_chain(struct curves **out, const struct view *v, const struct report_task *t,
                             bool above)
{
    const struct report_task_model *longest = chain_longest(t);
    struct curves *c = NULL;
    struct range r = { INFINITY, 0 };

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < t->models; m++) {
        const struct report_task_model *x = &t->model[m];

        for (int b = 0; knows_chain(t, x) && b < x->bins; b++) {
            const struct report_position *p = &x->position[b];

            add_range(c, x->method, middle_of(p->first, p->last),
                      above ? p->nll - p->bayes : p->nll, above ? p->low : NAN, p->high);
            extend(&r, p->nll);
        }
    }
    if (longest != NULL && !above && c->chart.count < SERIES_MAX) {
        int bayes = add_reference(c, "Bayes");

        for (int b = 0; b < longest->bins; b++) {
            const struct report_position *p = &longest->position[b];

            add_point(c, bayes, middle_of(p->first, p->last), p->bayes, NAN);
            extend(&r, p->bayes);
        }
    }
    if (!above)
        scale_y(c, r);
    c->chart.log_y = !above;
    c->chart.zero = above;
    c->chart.y_limit = 0;
    c->chart.show = show_nats;
    mark_near(c, t->near);
    label_positions(c);
    c->one_scale = true;
    snprintf(c->title, sizeof c->title, "%s",
             above ? "Loss above Bayes' by position" : "Loss by position");
    *out = c;
    return ALIBI_OK;
}

/* ---- attention */

/* The token itself, at distance 0, is drawn at 1/2. */
static void add_shares(struct curves *c, int series, const struct alibi_head_attention *h, int bins)
{
    for (int b = 0; b < bins; b++)
        add_point(c, series, b == 0 ? 0.5 : sqrt(exp2(b - 1) * (exp2(b) - 1)), h->share[b], NAN);
}

alibi_status curves_of_attention(struct curves **out, const struct view *v,
                                 const struct report_attention *a)
{
    struct curves *c = NULL;

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < a->models; m++) {
        const struct report_attention_model *x = &a->model[m];
        struct alibi_head_attention mean = attention_mean(x);

        if (x->seeds == 0)
            continue;
        add_shares(c, x->method, &mean, x->seed[0]->bins);
        if (c->chart.count > v->methods || c->chart.count == SERIES_MAX)
            continue;
        add_shares(c, add_reference(c, "uniform"), &x->seed[0]->uniform, x->seed[0]->bins);
        c->chart.mark_x = (double)x->seed[0]->near;
        snprintf(c->mark_label, sizeof c->mark_label, "far from %lld on",
                 (long long)x->seed[0]->near);
    }
    c->chart.zero = c->one_scale = true;
    c->chart.show = show_share;
    c->chart.distances = true;
    c->chart.x_label = "distance in tokens, log scale";
    c->chart.y_label = "share of the weight";
    snprintf(c->title, sizeof c->title, "Attention by distance at length %lld",
             (long long)a->length);
    *out = c;
    return ALIBI_OK;
}

/* ---- costs */

static double cost_of(const struct report_cost *c, enum cost_kind kind)
{
    switch (kind) {
    case COST_TRAIN_SPEED:
        return 1 / c->train_seconds;
    case COST_EVAL_SPEED:
        return 1 / c->eval_seconds;
    case COST_TRAIN_MEMORY:
        return c->train_memory / 0x1p20;
    default:
        return c->eval_memory / 0x1p20;
    }
}

alibi_status curves_of_costs(struct curves **out, const struct view *v,
                             const struct report_experiment *x, enum cost_kind kind)
{
    static const char *const titles[] = { "Speed of training", "Speed of evaluation",
                                          "Memory of training", "Memory of evaluation" };
    struct curves *c = NULL;

    TRY_RETURN(curves_new(&c, v));
    for (int i = 0; i < x->costs; i++) {
        int m = x->cost[i].method;

        if (c->series[m].count < ALIBI_POSITION_BINS) /* several evaluations may have more */
            add_point(c, m, (double)x->cost[i].length, cost_of(&x->cost[i], kind),
                      kind == COST_TRAIN_SPEED  ? x->cost[i].train_error
                      : kind == COST_EVAL_SPEED ? x->cost[i].eval_error
                                                : NAN);
    }
    c->chart.zero = c->one_scale = true;
    c->chart.show = kind <= COST_EVAL_SPEED ? show_count : NULL;
    c->chart.mark_x = NAN;
    c->chart.x_label = "length in tokens, log scale";
    c->chart.y_label = kind <= COST_EVAL_SPEED ? "tokens per second" : "peak, MiB";
    snprintf(c->title, sizeof c->title, "%s", titles[kind]);
    *out = c;
    return ALIBI_OK;
}

alibi_status curves_of_stream(struct curves **out, const struct view *v,
                              const struct report_stream *s, enum stream_kind kind)
{
    static const char *const titles[] = { "Time to decode a token", "Time to read a token",
                                          "KV cache per token of context" };
    struct curves *c = NULL;
    struct range r = { INFINITY, 0 };

    TRY_RETURN(curves_new(&c, v));
    for (int m = 0; m < s->models; m++)
        for (int i = 0; i < s->lengths->count; i++) {
            const struct report_stream_cost *at = &s->model[m].at[i];
            double length = (double)s->lengths->at[i];
            double value = kind == STREAM_DECODE ? 1e6 * at->decode_seconds
                           : kind == STREAM_READ ? 1e6 * at->read_seconds
                                                 : at->cache_bytes / 0x1p10 / length;

            extend(&r, value);
            add_point(c, s->model[m].method, length, at->seeds > 0 ? value : NAN,
                      kind == STREAM_DECODE ? at->decode_error
                      : kind == STREAM_READ ? at->read_error
                                            : NAN);
        }
    c->chart.zero = true;
    c->chart.log_y = r.most > 10 * r.least;
    c->chart.mark_x = NAN;
    c->chart.x_label = "tokens of context, log scale";
    c->chart.y_label = kind == STREAM_CACHE ? "KiB" : "microseconds";
    snprintf(c->title, sizeof c->title, "%s", titles[kind]);
    *out = c;
    return ALIBI_OK;
}
