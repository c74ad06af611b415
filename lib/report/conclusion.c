/* conclusion.c - the results in sentences
 *
 * Two perplexities differ if they are at least half a percent and more than two standard errors
 * apart; otherwise they are level. The errors of two evaluations on the same text are treated as
 * independent, which makes "level" more likely.
 *
 * `home` is the longest test length up to the training length, or the shortest of all. `far` is the
 * longest length past it at which some method has a finite value. */
#include <math.h>

#include "report/parts.h"

/* How one value compares with another: their ratio, and whether they differ at all. */
struct change {
    double ratio;
    bool differs;
};

static struct change compare(const struct alibi_eval_result *a, const struct alibi_eval_result *b)
{
    double ratio = a->ppl / b->ppl;
    double error = hypot(isfinite(a->standard_error) ? a->standard_error : 0,
                         isfinite(b->standard_error) ? b->standard_error : 0);

    return (struct change){ ratio, !(fabs(log(ratio)) <= 2 * error || fabs(ratio - 1) < 0.005) };
}

static bool is_worse(struct change c)
{
    return c.differs && c.ratio > 1;
}

/* Not missing and not NaN; an infinite value counts. */
static bool has_ppl(const struct view *v, int method, int64_t length)
{
    return view_ppl(v, method, length) > 0;
}

static int64_t home_length(const struct view *v)
{
    int64_t home = v->lengths > 0 ? v->length[0] : 0;

    for (int i = 0; i < v->lengths; i++)
        if (v->length[i] <= v->train_length)
            home = v->length[i];
    return home;
}

/* The longest length past `home` at which the method has a value, or any method has a finite one
 * (method -1); 0 if there is none. */
static int64_t far_length(const struct view *v, int method, int64_t home)
{
    for (int i = v->lengths - 1; i >= 0 && v->length[i] > home; i--)
        if (method < 0 ? view_best(v, v->length[i], -1) >= 0 : has_ppl(v, method, v->length[i]))
            return v->length[i];
    return 0;
}

static bool has_change(const struct view *v, int method, int64_t home, int64_t far)
{
    return has_ppl(v, method, home) && isfinite(view_ppl(v, method, home)) &&
           has_ppl(v, method, far);
}

static struct change change_of(const struct view *v, int method, int64_t home, int64_t far)
{
    if (!has_change(v, method, home, far))
        return (struct change){ 1, false };
    return compare(view_at(v, method, far), view_at(v, method, home));
}

/* The method that loses most from `home` to its last length; -1 if none loses. */
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

static void append_percent(struct text *out, double percent)
{
    text_append(out, percent < 0.95 ? "%.1f%%" : "%.0f%%", percent);
}

/* "is 4% better at 2048", "is 3.1 times worse at 2048" */
static void append_change(struct text *out, struct change c, int64_t at)
{
    if (isinf(c.ratio)) {
        text_append(out, "has no finite perplexity");
    } else if (!c.differs) {
        text_append(out, "is as good");
    } else if (c.ratio >= 10) {
        text_append(out, "is %s times worse", show_count(c.ratio).text);
    } else if (c.ratio >= 2) {
        text_append(out, "is %.1f times worse", c.ratio);
    } else {
        text_append(out, "is ");
        append_percent(out, 100 * fabs(c.ratio - 1));
        text_append(out, c.ratio < 1 ? " better" : " worse");
    }
    text_append(out, " at %lld", (long long)at);
}

/* ---- headline */

/* The methods that a sentence is about. */
struct group {
    int count;
    int method[ALIBI_LIST_MAX];
};

/* All methods that do not get worse; if all do, the best one at `far`. */
static struct group headline_group(const struct view *v, int64_t home, int64_t far)
{
    struct group g = { 0 };

    for (int m = 0; m < v->methods; m++)
        if (has_change(v, m, home, far) && !is_worse(change_of(v, m, home, far)))
            g.method[g.count++] = m;
    if (g.count == 0)
        g.method[g.count++] = view_best(v, far, -1);
    return g;
}

/* "alibi", "alibi and rotary", "alibi, rotary and t5" */
static void append_names(struct text *out, const struct view *v, const struct group *g)
{
    for (int i = 0; i < g->count; i++)
        text_append(out, "%s%s",
                    i == 0             ? ""
                    : i < g->count - 1 ? ", "
                                       : " and ",
                    v->name[g->method[i]]);
}

/* The change of one method, or a verdict that holds for all: "are as good at 2048 as at 256". */
static void append_group_change(struct text *out, const struct view *v, const struct group *g,
                                int64_t home, int64_t far)
{
    struct change first = change_of(v, g->method[0], home, far);
    int better = 0, worse = 0;
    const char *verdict;
    bool all;

    if (g->count == 1) {
        append_change(out, first, far);
        text_append(out, " %s at %lld", first.differs ? "than" : "as", (long long)home);
        return;
    }
    for (int i = 0; i < g->count; i++) {
        struct change c = change_of(v, g->method[i], home, far);
        better += c.differs && c.ratio < 1;
        worse += is_worse(c);
    }
    all = better == g->count || worse == g->count;
    if (worse > 0)
        verdict = all ? "worse" : "not all as good";
    else
        verdict = better == 0 ? "as good" : all ? "better" : "at least as good";
    text_append(out, "are %s at %lld %s at %lld", verdict, (long long)far, all ? "than" : "as",
                (long long)home);
}

void append_headline(struct text *out, const struct view *v)
{
    int64_t home = home_length(v), far = far_length(v, -1, home);
    int best = view_best(v, home, -1), worst = worst_method(v, home);
    struct group g;

    if (far == 0 && best < 0) {
        text_append(out, "No method has a perplexity.");
        return;
    }
    if (far == 0) {
        text_append(out, "%s has %sperplexity %s at %lld.", v->name[best],
                    v->methods > 1 ? "the lowest " : "", show_ppl(view_ppl(v, best, home)).text,
                    (long long)home);
        return;
    }
    g = headline_group(v, home, far);
    append_names(out, v, &g);
    text_append(out, ", trained at %lld, ", (long long)v->train_length);
    if (has_change(v, g.method[0], home, far))
        append_group_change(out, v, &g, home, far);
    else
        text_append(out, "has the lowest perplexity at %lld", (long long)far);

    /* The method that loses most, unless the sentence is already about it. */
    for (int i = 0; i < g.count; i++)
        if (g.method[i] == worst)
            worst = -1;
    if (worst >= 0) {
        int64_t there = far_length(v, worst, home);
        text_append(out, "; %s ", v->name[worst]);
        append_change(out, change_of(v, worst, home, there), there);
    }
    text_append(out, ".");
}

/* ---- detail */

static bool level_everywhere(const struct view *v)
{
    for (int i = 0; i < v->lengths; i++)
        for (int a = 0; a < v->methods; a++)
            for (int b = a + 1; b < v->methods; b++)
                if (has_ppl(v, a, v->length[i]) && has_ppl(v, b, v->length[i]) &&
                    compare(view_at(v, a, v->length[i]), view_at(v, b, v->length[i])).differs)
                    return false;
    return true;
}

/* "At 2048 alibi has the lowest perplexity, ..."; nothing if only one method has a value. */
static void append_best(struct text *out, const struct view *v, int64_t far, const char *where)
{
    int best = view_best(v, far, -1), second = view_best(v, far, best);
    struct shown first, next;
    struct change c;

    if (second < 0)
        return;
    first = show_ppl(view_ppl(v, best, far));
    next = show_ppl(view_ppl(v, second, far));
    c = compare(view_at(v, best, far), view_at(v, second, far));
    if (c.differs) {
        text_append(out, "%s %s has the lowest perplexity, %s, ", where, v->name[best], first.text);
        append_percent(out, 100 * (1 - c.ratio));
        text_append(out, " below the next, %s with %s.", v->name[second], next.text);
    } else {
        text_append(out, "%s the best two, %s and %s, are level: %s and %s.", where, v->name[best],
                    v->name[second], first.text, next.text);
    }
}

static const char *space_after(const struct text *out, size_t before)
{
    return out->length > before ? " " : "";
}

static void append_missing(struct text *out, const struct view *v, int64_t home, int64_t far,
                           size_t before)
{
    for (int m = 0; m < v->methods; m++) {
        int64_t there = far_length(v, m, home);

        if (there == far || has_ppl(v, m, far))
            continue;
        if (there == 0)
            there = has_ppl(v, m, home) ? home : 0;
        text_append(out, there > 0 ? "%s%s has no value past %lld." : "%s%s has no value.",
                    space_after(out, before), v->name[m], (long long)there);
    }
}

/* The change of the headline's methods when tokens without context at the start of a window no
 * longer count. */
static void append_sliding(struct text *out, const struct view *v, int64_t home, int64_t far,
                           size_t before)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);
    struct group headline = headline_group(v, home, far), g = { 0 };

    for (int i = 0; i < headline.count; i++)
        if (has_change(&sliding, headline.method[i], home, far))
            g.method[g.count++] = headline.method[i];
    if (g.count == 0)
        return;
    text_append(out,
                "%sWith a sliding window, where tokens past the first window have at least half of "
                "it as context, ",
                space_after(out, before));
    append_names(out, v, &g);
    text_append(out, " ");
    append_group_change(out, &sliding, &g, home, far);
    text_append(out, ".");
}

void append_detail(struct text *out, const struct view *v)
{
    struct view stream = view_of(v, ALIBI_STREAM);
    int64_t home = home_length(v), far = far_length(v, -1, home);
    size_t before = out->length;
    char where[64];

    if (far > 0) {
        snprintf(where, sizeof where, "At %lld", (long long)far);
        if (view_best(v, far, view_best(v, far, -1)) >= 0 && level_everywhere(v))
            text_append(out, "The methods are level at every length: this comparison does not tell "
                             "them apart; train longer.");
        else
            append_best(out, v, far, where);
        append_missing(out, v, home, far, before);
        append_sliding(out, v, home, far, before);
    }
    if (stream.lengths == 0 || view_best(&stream, stream.length[0], -1) < 0)
        return;
    snprintf(where, sizeof where, "%sAs one stream of %lld tokens", space_after(out, before),
             (long long)stream.length[0]);
    append_best(out, &stream, stream.length[0], where);
}
