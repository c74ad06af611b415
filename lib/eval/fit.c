/* fit.c - the temperature of a model's queries, chosen on text past the training length
 *
 *   q <- (1 + c ln(max(1, n / L))) q         n: the keys that the query sees, L: training length
 *
 * c is the value with the lowest loss, first in a short list, then by golden-section search between
 * the neighbours of the best one. Every c is tried on the same tokens, so differences of losses are
 * much more precise than the losses. If the gain over c = 0 is less than 0.005 nats (LEAST_EFFECT)
 * or two standard errors, c is 0. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

enum { TIMES = 4, SECTIONS = 4 };

static const double list[] = { 0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8 };
#define LARGEST 4.0

struct search {
    struct model *model;
    struct span span;
    struct alibi_eval eval;
    const struct alibi_call *call;
    int points;
    double at[ALIBI_FIT_POINTS]; /* rising */
    struct alibi_eval_result *results;
};

/* A temperature is stored with three decimals. */
static double rounded(double c)
{
    return round(c * 1000) / 1000;
}

static alibi_status set_temperature(struct model *m, double c)
{
    char position[ALIBI_NAME_MAX];

    TRY_RETURN(model_tempered(m, c, position));
    return model_set_position(m, position);
}

/* The loss at c. The points stay in ascending order of c. */
static alibi_status measure(struct search *s, double c, double *nll)
{
    int place = 0;
    char task[64];

    while (place < s->points && s->at[place] < c)
        place++;
    if (place == s->points || s->at[place] != c) {
        struct alibi_eval_result result;

        snprintf(task, sizeof task, "fit, temperature %g", c);
        TRY_RETURN(set_temperature(s->model, c));
        TRY_RETURN(evaluate_span(s->model, s->span, &s->eval, task, &result, s->call));
        memmove(s->at + place + 1, s->at + place, (size_t)(s->points - place) * sizeof *s->at);
        memmove(s->results + place + 1, s->results + place,
                (size_t)(s->points - place) * sizeof *s->results);
        s->at[place] = c;
        s->results[place] = result;
        s->points++;
    }
    *nll = s->results[place].nll;
    return ALIBI_OK;
}

static int best_of(const struct search *s)
{
    int best = 0;

    for (int i = 1; i < s->points; i++)
        if (s->results[i].nll < s->results[best].nll)
            best = i;
    return best;
}

/* Tries the list. If its last value is the best, the value is doubled until it is not. */
static alibi_status try_list(struct search *s)
{
    double nll;

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        TRY_RETURN(measure(s, list[i], &nll));
    while (best_of(s) == s->points - 1 && s->at[s->points - 1] < LARGEST)
        TRY_RETURN(measure(s, fmin(2 * s->at[s->points - 1], LARGEST), &nll));
    return ALIBI_OK;
}

/* The lowest loss is between `low` and `high`; each step keeps 0.62 of that interval. */
static alibi_status try_sections(struct search *s)
{
    const double golden = (sqrt(5) - 1) / 2;
    int best = best_of(s);
    double low = s->at[best > 0 ? best - 1 : 0];
    double high = s->at[best + 1 < s->points ? best + 1 : best];

    for (int i = 0; i < SECTIONS && s->points + 2 <= ALIBI_FIT_POINTS; i++) {
        double a = rounded(high - golden * (high - low)), b = rounded(low + golden * (high - low));
        double of_a, of_b;

        TRY_RETURN(measure(s, a, &of_a));
        TRY_RETURN(measure(s, b, &of_b));
        if (of_a <= of_b)
            high = b;
        else
            low = a;
    }
    return ALIBI_OK;
}

static void fill_result(const struct search *s, struct alibi_fit_result *out)
{
    const struct alibi_fit_point *best;

    *out = (struct alibi_fit_result){ .length = s->eval.length,
                                      .tokens = s->results[0].tokens,
                                      .points = s->points,
                                      .best = best_of(s) };
    for (int i = 0; i < s->points; i++) {
        struct alibi_fit_point *p = &out->point[i];

        p->temperature = s->at[i];
        p->nll = s->results[i].nll;
        p->standard_error = s->results[i].standard_error;
        alibi_eval_difference(&s->results[0], &s->results[i], &p->gain, &p->gain_error);
    }
    best = &out->point[out->best];
    if (!(best->gain >= LEAST_EFFECT && best->gain > 2 * best->gain_error))
        out->best = 0;
    out->at_edge = out->best > 0 && out->best == out->points - 1;
}

static alibi_status check(const struct model *m, int64_t length)
{
    int64_t trained = m->config.train_length;
    char plain[ALIBI_NAME_MAX], tempered[ALIBI_NAME_MAX];

    if (trained < 1)
        return fail(ALIBI_USAGE, "the model does not record its training length, past which a "
                                 "temperature acts");
    if (length <= trained)
        return fail(ALIBI_USAGE,
                    "length %lld: a temperature acts past the training length, %lld; give a longer "
                    "one",
                    (long long)length, (long long)trained);
    TRY_RETURN(model_tempered(m, 0, plain));
    TRY_RETURN(model_tempered(m, 1, tempered));
    if (strcmp(plain, tempered) == 0)
        return fail(ALIBI_USAGE,
                    "position '%s' has nothing to fit: every layer has a window within the "
                    "training length",
                    plain);
    return ALIBI_OK;
}

alibi_status alibi_model_fit(alibi_model *model, const alibi_corpus *corpus, enum alibi_split split,
                             const struct alibi_fit *how, struct alibi_fit_result *result,
                             const struct alibi_call *call)
{
    alibi_status status;
    struct model *m = model->model;
    int64_t length = how->length > 0 ? how->length : TIMES * m->config.train_length;
    struct alibi_fit_result found;
    struct search s = { .model = m,
                        .span = corpus_span(corpus, split),
                        .eval = { .length = length, .tokens = how->tokens },
                        .call = call };
    char was[ALIBI_NAME_MAX];

    memcpy(was, m->config.position, sizeof was);
    if (s.eval.tokens > 0 && s.eval.tokens < length)
        s.eval.tokens = length;
    TRY(check(m, length));
    TRY(evaluate_check_tokenizer(model->tokenizer, corpus));
    TRY(NEW_ZERO_ARRAY(&s.results, ALIBI_FIT_POINTS, "losses by temperature"));
    TRY(try_list(&s));
    TRY(try_sections(&s));
    fill_result(&s, &found);
    TRY(set_temperature(m, found.point[found.best].temperature));
    *result = found;
out:
    if (status != ALIBI_OK) /* it had this position, so only a lack of memory can prevent it */
        (void)model_set_position(m, was);
    mem_free(s.results);
    return status;
}
