/* claims.c - verdicts
 *
 * A comparison "left is below right, by or within a margin" is of logarithms of perplexities,
 * times or bytes, so that margins are percentages:
 *
 *   d = ln(left) - ln(right) - margin        shown if d < 0 beyond its error
 *
 * with the rule of change_between(), which all conclusions of this library share. */
#include <math.h>

#include "experiment/experiment.h"

/* ---- models that have learned nothing */

/* The evaluation that shows what a model has learned: the first one in windows, at the longest
 * length up to the training length, or its shortest. */
static bool find_home(const alibi_experiment *e, int model, int *evaluation, int *length)
{
    for (int v = 0; v < e->evaluations; v++) {
        const struct experiment_evaluation *x = &e->evaluation[v];

        if (x->kind != KIND_PERPLEXITY || x->protocol == ALIBI_STREAM || !x->has[model])
            continue;
        *evaluation = v;
        *length = 0;
        for (int i = 0; i < x->lengths.count; i++)
            if (x->lengths.at[i] <= e->model[model].training.train_length)
                *length = i;
        return true;
    }
    return false;
}

double unigram_of(const alibi_experiment *e, int model, int evaluation)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    const struct experiment_text *t = &e->text[v->text < 0 ? e->model[model].text : v->text];
    struct alibi_eval eval = evaluation_at(e, evaluation, 0);

    for (int i = 0; i < t->unigrams; i++)
        if (t->unigram[i].tokens == eval.tokens && t->unigram[i].block == eval.block)
            return t->unigram[i].nll;
    return 0;
}

/* Every seed must be clearly better than token frequencies, by the rule of a comparison. */
bool model_is_ignorant(const alibi_experiment *e, int model)
{
    const struct experiment_model *m = &e->model[model];
    int v, i;
    double unigram;

    if (!find_home(e, model, &v, &i))
        return false;
    unigram = unigram_of(e, model, v);
    for (int k = 0; k < m->seeds.count; k++) {
        const struct measured *x = &m->seed[k].measured[v][i];
        const struct alibi_eval_result *result = &x->result;

        if (x->done && result->tokens > 0 && unigram > 0 &&
            !change_is_learning(&result, 1, unigram))
            return true;
    }
    return false;
}

/* ---- numbers */

/* The evaluation of seed k; NULL: not measured. */
static const struct alibi_eval_result *result_of(const alibi_experiment *e,
                                                 const struct reference *r, int k)
{
    const struct measured *m = e->model[r->model].seed[k].measured[r->evaluation];

    if (e->evaluation[r->evaluation].kind == KIND_TARGETS)
        return targets_losses(e, r->model, k, r->evaluation, r->length, r->condition, r->targets);
    return m != NULL && m[r->length].done && m[r->length].result.tokens > 0 ? &m[r->length].result
                                                                            : NULL;
}

static struct value stream_value(const alibi_experiment *e, const struct reference *r)
{
    int seeds;
    struct bench_stream s = streams_mean(e, r->model, r->evaluation, r->length, &seeds);

    if (seeds == 0)
        return (struct value){ NAN, 0, 0 };
    if (r->quantity == QUANTITY_CACHE_BYTES)
        return (struct value){ s.cache_bytes, 0, seeds };
    return r->quantity == QUANTITY_READ_SECONDS
               ? (struct value){ s.read_seconds, s.read_error, seeds }
               : (struct value){ s.decode_seconds, s.decode_error, seeds };
}

static struct value speed_value(const alibi_experiment *e, const struct reference *r)
{
    const struct speed *s = &e->evaluation[r->evaluation].speed[r->length * e->models + r->model];
    struct value value = { NAN, 0, 0 };

    if (s->train_seconds == 0)
        return value;
    switch (r->quantity) {
    case QUANTITY_TRAIN_SECONDS:
        return (struct value){ s->train_seconds, s->train_error, 0 };
    case QUANTITY_EVAL_SECONDS:
        return (struct value){ s->eval_seconds, s->eval_error, 0 };
    default:
        value.value = r->quantity == QUANTITY_TRAIN_MEMORY ? s->train_memory : s->eval_memory;
        return value;
    }
}

struct value reference_value(const alibi_experiment *e, const struct reference *r)
{
    const struct alibi_eval_result *results[ALIBI_LIST_MAX] = { NULL };
    struct change c;
    int seeds = 0;

    if (r->model < 0)
        return (struct value){ r->number, 0, 0 };
    if (r->quantity == QUANTITY_SCORE) {
        struct score_mean s = tasks_score(e, r->model, r->evaluation, r->task, r->length);

        return (struct value){ s.unlearned > 0 ? NAN : s.value, s.error, s.seeds };
    }
    if (r->quantity > QUANTITY_SCORE)
        return stream_value(e, r);
    if (r->quantity != QUANTITY_PPL)
        return speed_value(e, r);
    for (int k = 0; k < e->model[r->model].seeds.count; k++) {
        results[seeds] = result_of(e, r, k);
        seeds += results[seeds] != NULL;
    }
    c = change_between(results, NULL, seeds, 0);
    return (struct value){ seeds > 0 ? exp(c.d) : NAN, c.error, seeds };
}

/* ---- comparisons */

/* Pairs the seeds that both models have. */
static struct change change_of(const alibi_experiment *e, const struct comparison *c, double offset)
{
    const struct alibi_eval_result *left[ALIBI_LIST_MAX], *right[ALIBI_LIST_MAX];
    const struct alibi_int_list *a = &e->model[c->left.model].seeds, *b;
    int seeds = 0;

    if (c->right.model < 0) {
        for (; seeds < a->count; seeds++)
            left[seeds] = result_of(e, &c->left, seeds);
        return change_between(left, NULL, seeds, offset + log(c->right.number));
    }
    b = &e->model[c->right.model].seeds;
    for (int k = 0; k < a->count; k++)
        for (int n = 0; n < b->count; n++)
            if (a->at[k] == b->at[n]) {
                left[seeds] = result_of(e, &c->left, k);
                right[seeds++] = result_of(e, &c->right, n);
            }
    return change_between(left, right, seeds, offset);
}

static struct outcome loss_outcome(const alibi_experiment *e, const struct comparison *c)
{
    double threshold = c->above ? -c->margin : c->margin;
    struct change plain = change_of(e, c, 0), past = change_of(e, c, threshold);
    struct outcome o = { .d = plain.d, .error = plain.error, .seeds = plain.seeds };

    o.ignorant = model_is_ignorant(e, c->left.model) ||
                 (c->right.model >= 0 && model_is_ignorant(e, c->right.model));
    if (o.seeds == 0 && !o.ignorant)
        o.verdict = ALIBI_CLAIM_NOT_MEASURED;
    else if (o.ignorant || past.outcome < CHANGE_IN_THESE_SEEDS)
        o.verdict = ALIBI_CLAIM_NOT_SHOWN;
    else
        o.verdict = (past.d > 0) == c->above ? ALIBI_CLAIM_HOLDS : ALIBI_CLAIM_FAILS;
    o.few_seeds = o.verdict != ALIBI_CLAIM_NOT_SHOWN && past.outcome == CHANGE_IN_THESE_SEEDS;
    return o;
}

/* Times and bytes are not paired by seeds: shown means beyond two standard errors. */
static struct outcome cost_outcome(const alibi_experiment *e, const struct comparison *c)
{
    double threshold = c->above ? -c->margin : c->margin;
    struct value left = reference_value(e, &c->left), right = reference_value(e, &c->right);
    struct outcome o = { .d = log(left.value / right.value),
                         .error = hypot(left.error, right.error) };

    if (isnan(o.d))
        o.verdict = ALIBI_CLAIM_NOT_MEASURED;
    else if (fabs(o.d - threshold) <= 2 * o.error)
        o.verdict = ALIBI_CLAIM_NOT_SHOWN;
    else
        o.verdict = (o.d > threshold) == c->above ? ALIBI_CLAIM_HOLDS : ALIBI_CLAIM_FAILS;
    return o;
}

struct outcome comparison_outcome(const alibi_experiment *e, const struct comparison *c)
{
    if (c->left.quantity == QUANTITY_SCORE)
        return score_outcome(e, c);
    if (c->left.quantity != QUANTITY_PPL)
        return cost_outcome(e, c);
    return loss_outcome(e, c);
}

/* ---- claims */

void alibi_experiment_get_claim(const alibi_experiment *e, int claim, struct alibi_claim *out)
{
    const struct claim *c = &e->claim[claim];
    bool few[2] = { false, true }; /* if it holds, and if it does not */
    int of[4] = { 0 };             /* comparisons of each verdict */

    *out = (struct alibi_claim){ .claim = c->claim, .where = c->where, .paper = c->paper };
    for (int i = 0; i < c->count; i++) {
        struct outcome o = comparison_outcome(e, &c->comparison[i]);

        of[o.verdict]++;
        few[0] |= o.few_seeds;
        if (o.verdict == ALIBI_CLAIM_FAILS)
            few[1] &= o.few_seeds;
    }
    out->verdict = of[ALIBI_CLAIM_FAILS]          ? ALIBI_CLAIM_FAILS
                   : of[ALIBI_CLAIM_NOT_SHOWN]    ? ALIBI_CLAIM_NOT_SHOWN
                   : of[ALIBI_CLAIM_NOT_MEASURED] ? ALIBI_CLAIM_NOT_MEASURED
                                                  : ALIBI_CLAIM_HOLDS;
    out->few_seeds = out->verdict == ALIBI_CLAIM_HOLDS   ? few[0]
                     : out->verdict == ALIBI_CLAIM_FAILS ? few[1]
                                                         : false;
}
