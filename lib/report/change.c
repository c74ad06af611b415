/* change.c - whether two measured losses differ: the one rule for every sentence and verdict
 *
 * S seeds were scored on the same K parts of a text. With d_k the difference of seed k, which is
 * paired part by part (alibi_eval_difference), and d their mean:
 *
 *   v_text  = (error of d over the K parts)^2                      K - 1 degrees of freedom
 *   v_seeds = (standard deviation of d_k over the seeds)^2 / S     S - 1; 0 if S is 1
 *   error^2 = v_text + v_seeds
 *   t       = (v_text t_{K-1} + v_seeds t_{S-1}) / (v_text + v_seeds)
 *
 * d is infinite if the perplexity of one of the two has overflowed: then there is nothing to
 * average, and what counts is whether the seeds agree.
 *
 * d +- t error is the 95% interval. t_n is Student's quantile, and t Cochran's mean of the two.
 * Satterthwaite's degrees of freedom would be the usual choice, but where seeds differ more than
 * parts do, two seeds that agree by chance get many of them: in simulations it sees a change that
 * is not there in up to 12% of cases with two seeds and 8% with three, where Cochran's t has 2 to
 * 6%. */
#include <math.h>

#include "report/report.h"

/* The difference for one seed. Without parts the two errors are treated as independent, which can
 * only hide a difference. An infinite perplexity is above every finite one. */
static bool seed_difference(const struct alibi_eval_result *a, const struct alibi_eval_result *b,
                            double *d, double *error)
{
    if (alibi_eval_difference(a, b, d, error) && isfinite(*d))
        return true;
    *d = a->nll - b->nll;
    if (!isinf(a->ppl) != !isinf(b->ppl))
        *d = isinf(a->ppl) ? INFINITY : -INFINITY;
    *error = hypot(isfinite(a->standard_error) ? a->standard_error : 0,
                   isfinite(b->standard_error) ? b->standard_error : 0);
    return false;
}

/* Adds the losses of `e`, part by part. */
static void add_losses(struct alibi_eval_result *sum, const struct alibi_eval_result *e)
{
    sum->nll += e->nll;
    for (int i = 0; i < sum->parts; i++)
        sum->part[i].nll += e->part[i].nll;
}

static struct alibi_eval_result without_loss(const struct alibi_eval_result *e)
{
    struct alibi_eval_result zero = *e;

    zero.nll = 0;
    zero.standard_error = 0;
    zero.ppl = 1;
    for (int i = 0; i < zero.parts; i++)
        zero.part[i].nll = 0;
    return zero;
}

/* Sums over the seeds so far. */
struct sums {
    int seeds;
    double mean, squares;          /* of d, and of its deviations from the mean */
    double errors;                 /* of d over the text */
    double infinite;               /* 0; the sum of d of seeds that overflowed */
    bool paired;                   /* all of them scored the same tokens, in parts */
    bool up, down;                 /* each is clearly above 0; below */
    struct alibi_eval_result a, b; /* if paired: their losses, added part by part */
};

static void add_seed(struct sums *s, const struct alibi_eval_result *a,
                     const struct alibi_eval_result *b, double offset)
{
    double d, error, unused, step;
    double t = student_t(a->parts > 1 ? a->parts - 1 : INT64_MAX);

    s->paired &= seed_difference(a, b, &d, &error);
    d -= offset;
    s->up &= d > t * error;
    s->down &= -d > t * error;
    s->seeds++;
    if (isinf(d)) {
        s->infinite += d;
        return;
    }
    step = d - s->mean;
    s->mean += step / s->seeds;
    s->squares += step * (d - s->mean);
    s->errors += error;
    if (s->seeds == 1)
        s->a = s->b = without_loss(a);
    s->paired = s->paired && alibi_eval_difference(&s->a, a, &unused, &unused);
    if (s->paired) {
        add_losses(&s->a, a);
        add_losses(&s->b, b);
    }
}

static enum change_outcome outcome_of(const struct sums *s, bool shown)
{
    if (s->seeds > 1 && shown)
        return CHANGE_SHOWN;
    return s->up || s->down ? CHANGE_IN_THESE_SEEDS : CHANGE_NOT_SHOWN;
}

struct change change_between(const struct alibi_eval_result *const *a,
                             const struct alibi_eval_result *const *b, int seeds, double offset)
{
    struct change c = { .d = NAN, .error = NAN, .interval = NAN };
    struct sums s = { .paired = true, .up = true, .down = true };
    double text, spread, t, unused;

    for (int k = 0; k < seeds; k++) {
        struct alibi_eval_result zero;

        if (a[k] == NULL || (b != NULL && b[k] == NULL))
            continue;
        zero = without_loss(a[k]);
        add_seed(&s, a[k], b != NULL ? b[k] : &zero, offset);
    }
    c.seeds = s.seeds;
    if (s.seeds == 0 || isnan(s.mean) || isnan(s.infinite))
        return c;
    if (s.infinite != 0)
        return (struct change){ s.infinite, 0, 0, s.seeds, outcome_of(&s, s.up || s.down) };
    if (s.paired) /* of the mean of the seeds: noise that each has of its own averages out */
        alibi_eval_difference(&s.a, &s.b, &unused, &s.errors);
    text = pow(s.errors / s.seeds, 2);
    spread = s.seeds > 1 ? s.squares / (s.seeds - 1) / s.seeds : 0;
    t = student_t(s.paired ? s.a.parts - 1 : INT64_MAX);
    if (spread > 0 && isfinite(text))
        t = (text * t + spread * student_t(s.seeds - 1)) / (text + spread);
    c.d = s.mean;
    c.error = sqrt(text + spread);
    c.interval = c.error > 0 ? t * c.error : 0;
    c.outcome = outcome_of(&s, fabs(c.d) > c.interval);
    return c;
}

bool change_is_learning(const struct alibi_eval_result *const *seed, int seeds, double unigram_nll)
{
    struct change c = change_between(seed, NULL, seeds, unigram_nll);

    return c.outcome >= CHANGE_IN_THESE_SEEDS && c.d <= -0.05 * unigram_nll;
}
