/* probes_report.c - the kinds `targets` and `attention` over all seeds of a model, for lib/report
 * and results.json */
#include <math.h>

#include "experiment/experiment.h"

/* ---- fixed targets */

/* The losses of one condition after one context (an index); condition < 0: none, which counts as 0.
 */
struct series {
    int context, condition;
};

/* a minus b over all seeds. */
static struct change change_of(const alibi_experiment *e, int model, int evaluation, int kind,
                               struct series a, struct series b)
{
    const struct alibi_eval_result *left[ALIBI_LIST_MAX], *right[ALIBI_LIST_MAX];
    int seeds = e->model[model].seeds.count;

    for (int k = 0; k < seeds; k++) {
        left[k] = targets_losses(e, model, k, evaluation, a.context, a.condition, kind);
        right[k] = b.condition < 0
                       ? NULL
                       : targets_losses(e, model, k, evaluation, b.context, b.condition, kind);
    }
    return change_between(left, b.condition < 0 ? NULL : right, seeds, 0);
}

/* With `interval` the error is half of the 95% interval instead. */
static struct alibi_estimate estimate(const alibi_experiment *e, int model, int evaluation,
                                      int kind, struct series a, struct series b, bool interval)
{
    struct change c = change_of(e, model, evaluation, kind, a, b);

    return (struct alibi_estimate){ c.d, interval ? c.interval : c.error };
}

static struct alibi_target_context context_of(const alibi_experiment *e, int model, int evaluation,
                                              int kind, int home, int c, bool interval)
{
    const struct series near = { home, TARGETS_OWN }, own = { c, TARGETS_OWN };
    const struct series swapped = { c, TARGETS_SWAPPED }, window = { c, TARGETS_WINDOW };
    const struct series before = { c - 1, TARGETS_OWN }, zero = { 0, -1 };
    struct alibi_target_context out = { .context = e->evaluation[evaluation].lengths.at[c] };

#define ESTIMATE(a, b) estimate(e, model, evaluation, kind, a, b, interval)
    out.nll = ESTIMATE(own, zero);
    out.gain = ESTIMATE(near, own);
    out.step = c > 0 ? ESTIMATE(before, own) : (struct alibi_estimate){ NAN, NAN };
    out.swapped = ESTIMATE(near, swapped);
    out.content = ESTIMATE(swapped, own);
    out.window = ESTIMATE(near, window);
    out.beyond = ESTIMATE(window, own);
#undef ESTIMATE
    return out;
}

/* The measured numbers: targets, and the range of the seeds' losses. */
static void collect(struct report_targets_model *out, const alibi_experiment *e, int model,
                    int evaluation)
{
    for (int k = 0; k < e->model[model].seeds.count; k++) {
        const struct measured *m = e->model[model].seed[k].measured[evaluation];

        if (!m->done || m->targets.parts == 0)
            continue;
        out->seeds++;
        for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++)
            out->kind[kind].tokens = 0;
        for (int i = 0; i < m->targets.parts; i++) {
            out->kind[ALIBI_REPEATS].tokens += m->targets.tokens[i][0];
            out->kind[ALIBI_OTHERS].tokens += m->targets.tokens[i][1];
        }
        out->kind[ALIBI_ALL_TARGETS].tokens =
            out->kind[ALIBI_REPEATS].tokens + out->kind[ALIBI_OTHERS].tokens;
    }
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++)
        for (int c = 0; c < e->evaluation[evaluation].lengths.count; c++) {
            double low = NAN, high = NAN;

            for (int k = 0; k < e->model[model].seeds.count; k++) {
                const struct alibi_eval_result *r =
                    targets_losses(e, model, k, evaluation, c, TARGETS_OWN, kind);

                low = r ? fmin(low, r->nll) : low;
                high = r ? fmax(high, r->nll) : high;
            }
            out->low[kind][c] = low;
            out->high[kind][c] = high;
        }
}

static void summarise(struct report_targets_model *out, const alibi_experiment *e, int model,
                      int evaluation)
{
    const struct alibi_int_list *contexts = &e->evaluation[evaluation].lengths;
    struct alibi_targets asked = targets_asked(e, model, evaluation);
    struct alibi_target_context shown[ALIBI_LIST_MAX], *far; /* with intervals for errors */
    int home = 0;

    while (contexts->at[home] != asked.length)
        home++;
    *out = (struct report_targets_model){
        .method = model,
        .reach = -1,
        .home = home,
        .share = NAN,
        .ceiling = e->model[model].training.train_length >= contexts->at[contexts->count - 1],
    };
    collect(out, e, model, evaluation);
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++)
        for (int c = 0; c < contexts->count; c++)
            out->kind[kind].at[c] = context_of(e, model, evaluation, kind, home, c, false);
    for (int c = 0; c < contexts->count; c++)
        shown[c] = context_of(e, model, evaluation, ALIBI_ALL_TARGETS, home, c, true);
    for (out->far = contexts->count - 1; out->far > home; out->far--)
        if (!isnan(out->kind[ALIBI_ALL_TARGETS].at[out->far].gain.value))
            break;
    far = &shown[out->far];
    out->falls_to = targets_fall(shown, contexts->count, asked.length, 1);
    if (out->far > home && !isnan(far->gain.value) && !out->ceiling && !model_is_ignorant(e, model))
        out->reach = targets_reach(far, 1);
    if (out->reach == ALIBI_HOLDS && far->gain.value <= -0.01) {
        /* Seeds that break by very different amounts prove little for others, but each breaks. */
        struct change worse = change_of(e, model, evaluation, ALIBI_ALL_TARGETS,
                                        (struct series){ out->far, TARGETS_OWN },
                                        (struct series){ home, TARGETS_OWN });

        out->reach = worse.outcome >= CHANGE_IN_THESE_SEEDS ? (int)ALIBI_BREAKS : -1;
    }
}

/* The gain of a ceiling from one context to another. Its own L may be another than that of the
 * model, so this is not one of its gains. */
static double ceiling_gain(const struct report_targets *t, int from, int to)
{
    double most = NAN;

    for (int m = 0; m < t->models; m++) {
        const struct alibi_target_context *at = t->model[m].kind[ALIBI_ALL_TARGETS].at;

        if (t->model[m].ceiling)
            most = fmax(most, at[from].nll.value - at[to].nll.value);
    }
    return most;
}

/* A model that loses has no share of a gain. If the ceiling gains next to nothing, no model has. */
static void add_shares(struct report_targets *t)
{
    for (int m = 0; m < t->models; m++) {
        struct report_targets_model *x = &t->model[m];
        double most = ceiling_gain(t, x->home, x->far);

        if (x->ceiling || x->far == x->home)
            continue;
        t->ceiling_gain = fmax(t->ceiling_gain, most);
        if (most >= CEILING_GAIN_LEAST && x->kind[ALIBI_ALL_TARGETS].at[x->far].gain.value >= 0)
            x->share = x->kind[ALIBI_ALL_TARGETS].at[x->far].gain.value / most;
    }
}

static alibi_status view_targets(struct report_targets *out, const alibi_experiment *e, int v)
{
    const struct experiment_evaluation *x = &e->evaluation[v];

    *out = (struct report_targets){
        .name = x->name,
        .about = x->about,
        .near = -1,
        .ceiling_gain = NAN,
        .contexts = x->lengths.count,
    };
    TRY_RETURN(NEW_ZERO_ARRAY(&out->model, e->models, "the report of an experiment"));
    for (int m = 0; m < e->models; m++) {
        struct alibi_targets asked;

        if (!x->has[m])
            continue;
        asked = targets_asked(e, m, v);
        out->block = asked.block;
        for (int k = 0; k < e->model[m].seeds.count; k++) {
            const struct target_losses *t = &e->model[m].seed[k].measured[v]->targets;

            out->documents = t->documents > out->documents ? t->documents : out->documents;
            out->blocks = t->blocks > out->blocks ? t->blocks : out->blocks;
        }
        summarise(&out->model[out->models], e, m, v);
        if (!out->model[out->models].ceiling)
            out->near = out->near < 0 || out->near == asked.length ? asked.length : 0;
        out->models += out->model[out->models].seeds > 0;
    }
    out->near = out->near < 0 ? 0 : out->near;
    add_shares(out);
    out->few = out->documents < TARGETS_FEW_DOCUMENTS;
    return ALIBI_OK;
}

/* ---- attention by distance */

static alibi_status view_attention(struct report_attention *out, const alibi_experiment *e, int v,
                                   int length)
{
    const struct experiment_evaluation *x = &e->evaluation[v];

    *out = (struct report_attention){ .name = x->name,
                                      .about = x->about,
                                      .length = x->lengths.at[length] };
    TRY_RETURN(NEW_ZERO_ARRAY(&out->model, e->models, "the report of an experiment"));
    for (int m = 0; m < e->models; m++) {
        struct report_attention_model *model = &out->model[out->models];

        model->method = m;
        for (int k = 0; x->has[m] && k < e->model[m].seeds.count; k++) {
            const struct measured *t = &e->model[m].seed[k].measured[v][length];

            if (t->done && t->attention.windows > 0)
                model->seed[model->seeds++] = &t->attention;
        }
        out->models += model->seeds > 0;
    }
    return ALIBI_OK;
}

/* ---- both */

alibi_status probes_view(struct report_experiment *x, const alibi_experiment *e)
{
    int attentions = 0;

    for (int v = 0; v < e->evaluations; v++)
        attentions += e->evaluation[v].kind == KIND_ATTENTION ? e->evaluation[v].lengths.count : 0;
    TRY_RETURN(NEW_ZERO_ARRAY(&x->target, e->evaluations, "the report of an experiment"));
    TRY_RETURN(NEW_ZERO_ARRAY(&x->attention, attentions, "the report of an experiment"));
    for (int v = 0; v < e->evaluations; v++) {
        if (e->evaluation[v].kind == KIND_TARGETS)
            TRY_RETURN(view_targets(&x->target[x->targets++], e, v));
        for (int i = 0; i < e->evaluation[v].lengths.count; i++)
            if (e->evaluation[v].kind == KIND_ATTENTION)
                TRY_RETURN(view_attention(&x->attention[x->attentions++], e, v, i));
    }
    return ALIBI_OK;
}

void probes_view_fini(struct report_experiment *x)
{
    for (int i = 0; i < x->targets; i++)
        mem_free(x->target[i].model);
    for (int i = 0; i < x->attentions; i++)
        mem_free(x->attention[i].model);
    mem_free(x->target);
    mem_free(x->attention);
}

/* ---- results.json */

static void write_estimate(struct json_writer *w, const char *key, struct alibi_estimate e)
{
    char error[ALIBI_NAME_MAX];

    snprintf(error, sizeof error, "%s_error", key);
    json_write_real(w, key, e.value);
    json_write_real(w, error, e.error);
}

static void write_targets(struct json_writer *w, const alibi_experiment *e,
                          const struct report_targets *t, const struct report_targets_model *m)
{
    json_write_object(w, NULL);
    json_write_string(w, "evaluation", t->name);
    json_write_string(w, "model", e->model[m->method].name);
    json_write_int(w, "seeds", m->seeds);
    json_write_int(w, "blocks", t->blocks);
    json_write_int(w, "block", t->block);
    json_write_int(w, "documents", t->documents);
    json_write_int(w, "far", m->kind[ALIBI_ALL_TARGETS].at[m->far].context);
    json_write_int(w, "falls_to", m->falls_to);
    json_write_bool(w, "ceiling", m->ceiling);
    json_write_real(w, "share_of_ceiling", m->share);
    if (m->reach >= 0)
        json_write_string(w, "reach", alibi_reach_name(m->reach, NULL));
    else
        json_write_null(w, "reach");
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++) {
        json_write_object(w, target_kind_names[kind]);
        json_write_int(w, "tokens", m->kind[kind].tokens);
        json_write_array(w, "contexts");
        for (int c = 0; c < t->contexts; c++) {
            const struct alibi_target_context *at = &m->kind[kind].at[c];

            json_write_object_line(w, NULL);
            json_write_int(w, "context", at->context);
            write_estimate(w, "nll", at->nll);
            write_estimate(w, "gain", at->gain);
            write_estimate(w, "step", at->step);
            write_estimate(w, "swapped", at->swapped);
            write_estimate(w, "content", at->content);
            write_estimate(w, "window", at->window);
            write_estimate(w, "beyond", at->beyond);
            json_write_end(w);
        }
        json_write_end(w);
        json_write_end(w);
    }
    json_write_end(w);
}

static void write_shares(struct json_writer *w, const char *key,
                         const struct alibi_head_attention *h, int bins)
{
    json_write_object_line(w, key);
    json_write_real(w, "distance", h->distance);
    json_write_real(w, "entropy", h->entropy);
    json_write_real(w, "beyond", h->beyond);
    json_write_array_line(w, "shares");
    for (int b = 0; b < bins; b++)
        json_write_real(w, NULL, h->share[b]);
    json_write_end(w);
    json_write_end(w);
}

alibi_status probes_report(struct json_writer *w, const alibi_experiment *e)
{
    alibi_status status;
    struct report_experiment x = { 0 };

    TRY(probes_view(&x, e));
    json_write_array(w, "targets");
    for (int i = 0; i < x.targets; i++)
        for (int m = 0; m < x.target[i].models; m++)
            write_targets(w, e, &x.target[i], &x.target[i].model[m]);
    json_write_end(w);
    json_write_array(w, "attention"); /* means over heads, layers and seeds */
    for (int i = 0; i < x.attentions; i++)
        for (int m = 0; m < x.attention[i].models; m++) {
            const struct report_attention_model *model = &x.attention[i].model[m];
            struct alibi_head_attention mean = attention_mean(model);

            json_write_object(w, NULL);
            json_write_string(w, "evaluation", x.attention[i].name);
            json_write_string(w, "model", e->model[model->method].name);
            json_write_int(w, "seeds", model->seeds);
            json_write_int(w, "length", x.attention[i].length);
            json_write_int(w, "near", model->seed[0]->near);
            write_shares(w, "mean", &mean, model->seed[0]->bins);
            write_shares(w, "uniform", &model->seed[0]->uniform, model->seed[0]->bins);
            json_write_end(w);
        }
    json_write_end(w);
out:
    probes_view_fini(&x);
    return status;
}
