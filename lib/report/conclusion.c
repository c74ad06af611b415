/* conclusion.c - what the numbers say, in sentences
 *
 * A difference is called one if it is at least half a percent and more than two standard errors;
 * otherwise the values are level. The errors of two evaluations on the same text are taken as
 * independent, which errs on the side of calling them level. */
#include <math.h>

#include "report/parts.h"

/* How one value stands to another: ratio of perplexities, and whether it is a difference at all. */
struct change {
    double ratio;
    bool differs;
};

static double error_of(const struct alibi_eval_result *e)
{
    return isfinite(e->standard_error) ? e->standard_error : 0;
}

static struct change compare(const struct alibi_eval_result *a, const struct alibi_eval_result *b)
{
    double ratio = a->ppl / b->ppl;
    double error = hypot(error_of(a), error_of(b));

    return (struct change){ ratio, !(fabs(log(ratio)) <= 2 * error || fabs(ratio - 1) < 0.005) };
}

/* Where methods are at home: the longest length up to the training length, or the shortest of all.
 * */
static int64_t home_length(const struct view *v)
{
    int64_t home = v->lengths > 0 ? v->length[0] : 0;

    for (int i = 0; i < v->lengths; i++)
        if (v->length[i] <= v->train_length)
            home = v->length[i];
    return home;
}

static bool has_ppl(const struct alibi_eval_result *e)
{
    return e != NULL && e->ppl > 0; /* not NaN; infinite is a value too */
}

/* The longest length past `home` at which the method has a value; 0 if there is none. */
static int64_t far_length(const struct view *v, int method, int64_t home)
{
    for (int i = v->lengths - 1; i >= 0 && v->length[i] > home; i--)
        if (has_ppl(view_at(v, method, v->length[i])))
            return v->length[i];
    return 0;
}

/* The longest length past `home` at which any method has a finite value; 0 if there is none. */
static int64_t farthest(const struct view *v, int64_t home)
{
    for (int i = v->lengths - 1; i >= 0 && v->length[i] > home; i--)
        if (view_best(v, v->length[i]) >= 0)
            return v->length[i];
    return 0;
}

/* Whether the method has what it takes to say how it fares from `home` to `far`. */
static bool has_change(const struct view *v, int method, int64_t home, int64_t far)
{
    const struct alibi_eval_result *near = view_at(v, method, home);

    return has_ppl(near) && isfinite(near->ppl) && has_ppl(view_at(v, method, far));
}

static struct change change_of(const struct view *v, int method, int64_t home, int64_t far)
{
    if (!has_change(v, method, home, far))
        return (struct change){ 1, false };
    return compare(view_at(v, method, far), view_at(v, method, home));
}

/* The method that loses most past its home; -1 if none loses. */
static int worst_method(const struct view *v, int64_t home)
{
    double highest = 1;
    int worst = -1;

    for (int m = 0; m < v->methods; m++) {
        struct change c = change_of(v, m, home, far_length(v, m, home));
        if (c.differs && c.ratio > highest) {
            highest = c.ratio;
            worst = m;
        }
    }
    return worst;
}

static alibi_status append_percent(struct text *out, double percent)
{
    return text_append(out, percent < 0.95 ? "%.1f%%" : "%.0f%%", percent);
}

/* "is 4% better at 2048", "is 3.1 times worse at 2048" */
static alibi_status append_change(struct text *out, struct change c, int64_t at)
{
    if (isinf(c.ratio))
        return text_append(out, "has no finite perplexity at %lld", (long long)at);
    if (!c.differs)
        return text_append(out, "is as good at %lld", (long long)at);
    if (c.ratio >= 10)
        return text_append(out, "is %s times worse at %lld", show_count(c.ratio).text,
                           (long long)at);
    if (c.ratio >= 2)
        return text_append(out, "is %.1f times worse at %lld", c.ratio, (long long)at);
    TRY_RETURN(text_append(out, "is "));
    TRY_RETURN(append_percent(out, 100 * fabs(c.ratio - 1)));
    return text_append(out, " %s at %lld", c.ratio < 1 ? "better" : "worse", (long long)at);
}

/* ---- headline */

/* The methods that a sentence is about. */
struct group {
    int count;
    int method[ALIBI_LIST_MAX];
};

static bool is_worse(struct change c)
{
    return c.differs && c.ratio > 1;
}

/* All methods that do not get worse; where every one does, the best at `far`. */
static struct group headline_group(const struct view *v, int64_t home, int64_t far)
{
    struct group g = { 0 };

    for (int m = 0; m < v->methods; m++)
        if (has_change(v, m, home, far) && !is_worse(change_of(v, m, home, far)))
            g.method[g.count++] = m;
    if (g.count == 0)
        g.method[g.count++] = view_best(v, far);
    return g;
}

static bool is_in(const struct group *g, int method)
{
    for (int i = 0; i < g->count; i++)
        if (g->method[i] == method)
            return true;
    return false;
}

/* "alibi", "alibi and rotary", "alibi, rotary and t5" */
static alibi_status append_names(struct text *out, const struct view *v, const struct group *g)
{
    for (int i = 0; i < g->count; i++)
        TRY_RETURN(text_append(out, "%s%s",
                               i == 0             ? ""
                               : i < g->count - 1 ? ", "
                                                  : " and ",
                               v->name[g->method[i]]));
    return ALIBI_OK;
}

/* How several methods fare, in words that hold for each of them: "are as good at 2048 as at 256".
 * */
static alibi_status append_changes(struct text *out, const struct view *v, const struct group *g,
                                   int64_t home, int64_t far)
{
    int better = 0, worse = 0;
    const char *verdict, *than = "as";

    for (int i = 0; i < g->count; i++) {
        struct change c = change_of(v, g->method[i], home, far);
        better += c.differs && c.ratio < 1;
        worse += is_worse(c);
    }
    if (better == g->count || worse == g->count)
        than = "than";
    if (worse > 0)
        verdict = worse == g->count ? "worse" : "not all as good";
    else
        verdict = better == 0 ? "as good" : better == g->count ? "better" : "at least as good";
    return text_append(out, "are %s at %lld %s at %lld", verdict, (long long)far, than,
                       (long long)home);
}

static alibi_status append_group_change(struct text *out, const struct view *v,
                                        const struct group *g, int64_t home, int64_t far)
{
    struct change c = change_of(v, g->method[0], home, far);

    if (g->count > 1)
        return append_changes(out, v, g, home, far);
    TRY_RETURN(append_change(out, c, far));
    return text_append(out, " %s at %lld", c.differs ? "than" : "as", (long long)home);
}

static alibi_status append_past_home(struct text *out, const struct view *v, int64_t home,
                                     int64_t far)
{
    struct group g = headline_group(v, home, far);
    int worst = worst_method(v, home);

    TRY_RETURN(append_names(out, v, &g));
    TRY_RETURN(text_append(out, ", trained at %lld, ", (long long)v->train_length));
    if (has_change(v, g.method[0], home, far))
        TRY_RETURN(append_group_change(out, v, &g, home, far));
    else
        TRY_RETURN(text_append(out, "has the lowest perplexity at %lld", (long long)far));
    if (worst >= 0 && !is_in(&g, worst)) {
        int64_t there = far_length(v, worst, home);
        TRY_RETURN(text_append(out, "; %s ", v->name[worst]));
        TRY_RETURN(append_change(out, change_of(v, worst, home, there), there));
    }
    return text_append(out, ".");
}

alibi_status append_headline(struct text *out, const struct view *v)
{
    int64_t home = home_length(v), far = farthest(v, home);
    int best = view_best(v, home);

    if (far > 0)
        return append_past_home(out, v, home, far);
    if (best < 0)
        return text_append(out, "No method has a perplexity.");
    return text_append(out, "%s has %sperplexity %s at %lld.", v->name[best],
                       v->methods > 1 ? "the lowest " : "",
                       show_ppl(view_at(v, best, home)->ppl).text, (long long)home);
}

/* ---- detail */

static int second_best(const struct view *v, int64_t length, int best)
{
    double lowest = INFINITY;
    int second = -1;

    for (int m = 0; m < v->methods; m++) {
        const struct alibi_eval_result *e = view_at(v, m, length);
        if (m != best && e != NULL && e->ppl < lowest) {
            lowest = e->ppl;
            second = m;
        }
    }
    return second;
}

static bool level_at(const struct view *v, int64_t length)
{
    for (int a = 0; a < v->methods; a++)
        for (int b = a + 1; b < v->methods; b++) {
            const struct alibi_eval_result *first = view_at(v, a, length),
                                           *second = view_at(v, b, length);
            if (has_ppl(first) && has_ppl(second) && compare(first, second).differs)
                return false;
        }
    return true;
}

static bool level_everywhere(const struct view *v)
{
    for (int i = 0; i < v->lengths; i++)
        if (!level_at(v, v->length[i]))
            return false;
    return true;
}

/* "At 2048 alibi has the lowest perplexity, ..."; nothing where there is nobody to compare it with.
 * */
static alibi_status append_best(struct text *out, const struct view *v, int64_t far,
                                const char *where)
{
    int best = view_best(v, far), second = second_best(v, far, best);
    const struct alibi_eval_result *first = view_at(v, best, far), *next;
    struct change c;

    if (second < 0)
        return ALIBI_OK;
    next = view_at(v, second, far);
    c = compare(first, next);
    if (!c.differs)
        return text_append(out, "%s the best two, %s and %s, are level: %s and %s.", where,
                           v->name[best], v->name[second], show_ppl(first->ppl).text,
                           show_ppl(next->ppl).text);
    TRY_RETURN(text_append(out, "%s %s has the lowest perplexity, %s, ", where, v->name[best],
                           show_ppl(first->ppl).text));
    TRY_RETURN(append_percent(out, 100 * (1 - c.ratio)));
    return text_append(out, " below the next, %s with %s.", v->name[second],
                       show_ppl(next->ppl).text);
}

static alibi_status append_lead(struct text *out, const struct view *v, int64_t far)
{
    char where[32];

    if (second_best(v, far, view_best(v, far)) >= 0 && level_everywhere(v))
        return text_append(
            out,
            "The methods are level at every length: this comparison does not tell them apart; train longer.");
    snprintf(where, sizeof where, "At %lld", (long long)far);
    return append_best(out, v, far, where);
}

static const char *space_after(const struct text *out, size_t before)
{
    return out->length > before ? " " : "";
}

static alibi_status append_missing(struct text *out, const struct view *v, int64_t home,
                                   int64_t far, size_t before)
{
    for (int m = 0; m < v->methods; m++) {
        int64_t there = far_length(v, m, home);
        if (there == far || has_ppl(view_at(v, m, far)))
            continue;
        if (there == 0)
            there = has_ppl(view_at(v, m, home)) ? home : 0;
        TRY_RETURN(text_append(out,
                               there > 0 ? "%s%s has no value past %lld." : "%s%s has no value.",
                               space_after(out, before), v->name[m], (long long)there));
    }
    return ALIBI_OK;
}

/* Whether the headline's methods still hold once the tokens that start a window without context no
 * longer count. */
static alibi_status append_sliding(struct text *out, const struct view *v, int64_t home,
                                   int64_t far, size_t before)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);
    struct group headline = headline_group(v, home, far), g = { 0 };

    for (int i = 0; i < headline.count; i++)
        if (has_change(&sliding, headline.method[i], home, far))
            g.method[g.count++] = headline.method[i];
    if (g.count == 0)
        return ALIBI_OK;
    TRY_RETURN(text_append(
        out,
        "%sWith a sliding window, where tokens past the first window have at least half of it as context, ",
        space_after(out, before)));
    TRY_RETURN(append_names(out, v, &g));
    TRY_RETURN(text_append(out, " "));
    TRY_RETURN(append_group_change(out, &sliding, &g, home, far));
    return text_append(out, ".");
}

static alibi_status append_stream(struct text *out, const struct view *v, size_t before)
{
    struct view stream = view_of(v, ALIBI_STREAM);
    char where[64];

    if (stream.lengths == 0 || view_best(&stream, stream.length[0]) < 0)
        return ALIBI_OK;
    snprintf(where, sizeof where, "%sAs one stream of %lld tokens", space_after(out, before),
             (long long)stream.length[0]);
    return append_best(out, &stream, stream.length[0], where);
}

alibi_status append_detail(struct text *out, const struct view *v)
{
    int64_t home = home_length(v), far = farthest(v, home);
    size_t before = out->length;

    if (far > 0) {
        TRY_RETURN(append_lead(out, v, far));
        TRY_RETURN(append_missing(out, v, home, far, before));
        TRY_RETURN(append_sliding(out, v, home, far, before));
    }
    return append_stream(out, v, before);
}
