/* conclusion.c - the results in sentences
 *
 * One rule for every method and every pair of values a and b, which are mean losses in nats:
 *
 *   d = a - b, paired part by part of the text (alibi_eval_difference) and seed by seed
 *   error^2 = (error of the text)^2 + sd^2 / S       sd: of d over the S seeds, if S > 1
 *   |d| <= 2 error, or |d| < 0.005:  no measurable change; otherwise perplexity is exp(d) times b's
 *
 * `home` is the longest test length up to the training length, or the shortest of all. `far` is the
 * longest length past it at which some method has a finite value. A method that has learned nothing
 * is named as such, and nothing else is said about it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/parts.h"

/* A value against another: d of the rule above and its error. NaN: one of them is missing. */
struct change {
    double d, error;
    bool differs;
};

static struct change change_of(double d, double error)
{
    return (struct change){ d, error, fabs(d) >= 0.005 && fabs(d) > 2 * error };
}

/* One seed. An infinite perplexity is above every other; without parts the errors of the two are
 * taken as independent, which can only hide a difference. */
static void compare_seed(const struct alibi_eval_result *a, const struct alibi_eval_result *b,
                         double *d, double *error)
{
    if (alibi_eval_difference(a, b, d, error))
        return;
    *d = isinf(a->ppl) && !isinf(b->ppl) ? INFINITY : a->nll - b->nll;
    *error = hypot(isfinite(a->standard_error) ? a->standard_error : 0,
                   isfinite(b->standard_error) ? b->standard_error : 0);
}

/* Method m at a length against another method at another length. */
static struct change compare(const struct view *v, int m, int64_t length, int other,
                             int64_t other_length)
{
    const struct alibi_compare_method *method = v->result->method;
    double mean = 0, squares = 0, errors = 0;
    int seeds = 0;

    for (int k = 0; k < method[m].seeds && k < method[other].seeds; k++) {
        const struct alibi_eval_result *a = view_seed(v, m, k, length);
        const struct alibi_eval_result *b = view_seed(v, other, k, other_length);
        double d, error, step;

        if (a == NULL || b == NULL)
            continue;
        compare_seed(a, b, &d, &error);
        if (isinf(d)) /* a perplexity that overflowed */
            return change_of(d, 0);
        step = d - mean;
        mean += step / ++seeds;
        squares += step * (d - mean);
        errors += error;
    }
    if (seeds == 0)
        return change_of(NAN, NAN);
    return change_of(mean,
                     hypot(errors / seeds, seeds > 1 ? sqrt(squares / (seeds - 1) / seeds) : 0));
}

/* ---- lengths and values */

/* Not missing and not NaN; an infinite value counts. */
static bool has_ppl(const struct view *v, int method, int64_t length)
{
    return view_ppl(v, method, length) > 0;
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

/* ---- numbers in words */

/* "6.0 ± 0.4%": as many decimals as the error has digits. */
static void append_percent(struct text *out, double percent, double error)
{
    int decimals = error < 0.095 ? 2 : error < 9.5 ? 1 : 0;

    text_append(out, "%s ± %s%%", show_real(percent, decimals).text,
                show_real(error, decimals).text);
}

/* "6.0 ± 0.4% lower", "8.7 ± 0.2 times as high", "no measurable change" */
static void append_change(struct text *out, struct change c)
{
    double ratio = exp(c.d), error = ratio * c.error;

    if (!c.differs) {
        text_append(out, "no measurable change");
    } else if (isinf(ratio)) {
        text_append(out, "no longer finite");
    } else if (ratio >= 10) {
        text_append(out, "%s ± %s times as high", show_count(ratio).text, show_count(error).text);
    } else if (ratio >= 2) {
        text_append(out, "%s ± %s times as high", show_real(ratio, error < 0.095 ? 2 : 1).text,
                    show_real(error, error < 0.095 ? 2 : 1).text);
    } else {
        append_percent(out, 100 * fabs(ratio - 1), 100 * error);
        text_append(out, ratio < 1 ? " lower" : " higher");
    }
}

/* ---- headline: the change of every method from home to far */

struct ranked {
    int method;
    struct change change;
};

/* From the largest decrease to the largest increase; methods that are equal keep their order. */
static int by_change(const void *a, const void *b)
{
    const struct ranked *p = a, *q = b;

    if (p->change.d != q->change.d)
        return p->change.d < q->change.d ? -1 : 1;
    return p->method - q->method;
}

static int rank_changes(struct ranked ranked[ALIBI_LIST_MAX], const struct view *v, int64_t home,
                        int64_t far)
{
    int count = 0;

    for (int m = 0; m < v->methods; m++) {
        struct change c = compare(v, m, far, m, home);

        if (!v->ignorant[m] && !isnan(c.d))
            ranked[count++] = (struct ranked){ m, c };
    }
    qsort(ranked, (size_t)count, sizeof *ranked, by_change);
    return count;
}

/* "alibi 6.0 ± 0.4% lower, rotary and t5 no measurable change." */
static void append_changes(struct text *out, const struct view *v, const struct ranked *ranked,
                           int count)
{
    bool open = false; /* the last name still lacks its words: the next method has the same */

    for (int i = 0; i < count; i++) {
        bool same = i + 1 < count && !ranked[i].change.differs && !ranked[i + 1].change.differs;

        text_append(out, "%s%s",
                    i == 0          ? ""
                    : open && !same ? " and "
                                    : ", ",
                    v->name[ranked[i].method]);
        open = same;
        if (same)
            continue;
        text_append(out, " ");
        append_change(out, ranked[i].change);
    }
    text_append(out, ".");
}

/* Whether no two methods differ measurably at any length. */
static bool alike_everywhere(const struct view *v)
{
    for (int i = 0; i < v->lengths; i++)
        for (int a = 0; a < v->methods; a++)
            for (int b = a + 1; b < v->methods; b++)
                if (!v->ignorant[a] && !v->ignorant[b] &&
                    compare(v, a, v->length[i], b, v->length[i]).differs)
                    return false;
    return true;
}

/* The lowest perplexity at a length against the next; nothing if only one method has a value. */
static void append_best(struct text *out, const struct view *v, int64_t length, const char *where)
{
    int best = view_best(v, length, -1), second = view_best(v, length, best);
    struct shown first, next;
    struct change c;

    if (second < 0)
        return;
    first = show_ppl(view_ppl(v, best, length));
    next = show_ppl(view_ppl(v, second, length));
    c = compare(v, best, length, second, length);
    if (c.differs) {
        text_append(out, "%s %s has the lowest perplexity, %s, ", where, v->name[best], first.text);
        append_percent(out, 100 * (1 - exp(c.d)), 100 * exp(c.d) * c.error);
        text_append(out, " below the next, %s with %s.", v->name[second], next.text);
    } else {
        text_append(out, "%s the two lowest, %s with %s and %s with %s, are within error.", where,
                    v->name[best], first.text, v->name[second], next.text);
    }
}

void append_headline(struct text *out, const struct view *v)
{
    int64_t home = view_home(v), far = far_length(v, -1, home);
    struct ranked ranked[ALIBI_LIST_MAX];
    int best = view_best(v, home, -1), ignorant = 0, count;
    char where[64];

    for (int m = 0; m < v->methods; m++)
        ignorant += v->ignorant[m];
    if (ignorant > 0 && ignorant == v->methods) {
        text_append(out, "%s yet: train longer, or with another --lr.",
                    v->methods > 1 ? "No model has learned anything"
                                   : "The model has learned nothing");
    } else if (far == 0 && best < 0) {
        text_append(out, "No method has a perplexity.");
    } else if (far == 0 && view_best(v, home, best) < 0) {
        text_append(out, "%s has perplexity %s at %lld.", v->name[best],
                    show_ppl(view_ppl(v, best, home)).text, (long long)home);
    } else if (far == 0) {
        snprintf(where, sizeof where, "At %lld", (long long)home);
        append_best(out, v, home, where);
    } else {
        count = rank_changes(ranked, v, home, far);
        if (count > 0) {
            text_append(out,
                        "Trained at %lld. Perplexity at %lld, compared with the same model's "
                        "at %lld: ",
                        (long long)v->train_length, (long long)far, (long long)home);
            append_changes(out, v, ranked, count);
        } else {
            text_append(out, "No method has a perplexity both at %lld and at %lld.",
                        (long long)home, (long long)far);
        }
    }
}

/* ---- detail */

static const char *space_after(const struct text *out, size_t before)
{
    return out->length > before ? " " : "";
}

/* A method that was not tested yet is not missed. */
static void append_missing(struct text *out, const struct view *v, int64_t home, int64_t far,
                           size_t before)
{
    for (int m = 0; m < v->methods; m++) {
        const struct alibi_compare_method *method = &v->result->method[m];
        int64_t there = far_length(v, m, home);

        if (there == far || has_ppl(v, m, far) || method->seeds == 0 ||
            method->seed[0].lengths < v->lengths)
            continue;
        if (there == 0)
            there = has_ppl(v, m, home) ? home : 0;
        text_append(out, there > 0 ? "%s%s has no value past %lld." : "%s%s has no value.",
                    space_after(out, before), v->name[m], (long long)there);
    }
}

/* "Learned nothing: c, with a loss of 2.960 nats at 128; token frequencies alone have 3.100." */
static void append_ignorant(struct text *out, const struct view *v, int64_t home, size_t before)
{
    bool any = false;

    for (int m = 0; m < v->methods; m++) {
        if (!v->ignorant[m])
            continue;
        text_append(out, any ? ", %s%s with %s" : "%sLearned nothing: %s, with a loss of %s nats",
                    any ? "" : space_after(out, before), v->name[m],
                    show_real(view_mean(v, m, home).nll, 3).text);
        if (!any)
            text_append(out, " at %lld", (long long)home);
        any = true;
    }
    if (any)
        text_append(out, "; token frequencies alone have %s.",
                    show_real(v->result->unigram_nll, 3).text);
}

/* The same changes when tokens without context at the start of a window do not count. */
static void append_sliding(struct text *out, const struct view *v, int64_t home, int64_t far,
                           size_t before)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);
    struct ranked ranked[ALIBI_LIST_MAX];
    int count = rank_changes(ranked, &sliding, home, far);

    if (count == 0)
        return;
    text_append(out,
                "%sWith a sliding window, where every token has at least half the window as "
                "context, at %lld compared with %lld: ",
                space_after(out, before), (long long)far, (long long)home);
    append_changes(out, &sliding, ranked, count);
}

void append_detail(struct text *out, const struct view *v)
{
    struct view stream = view_of(v, ALIBI_STREAM);
    int64_t home = view_home(v), far = far_length(v, -1, home);
    int best = view_best(v, far, -1);
    size_t before = out->length;
    bool learned = false;
    char where[64];

    if (far > 0) {
        snprintf(where, sizeof where, "At %lld", (long long)far);
        if (best >= 0 && view_best(v, far, best) >= 0 && alike_everywhere(v))
            text_append(out, "No two methods differ measurably at any length: train longer, or "
                             "with more --seeds, to tell them apart.");
        else
            append_best(out, v, far, where);
        append_missing(out, v, home, far, before);
        append_sliding(out, v, home, far, before);
    }
    append_ignorant(out, v, home, before);
    if (stream.lengths > 0) {
        snprintf(where, sizeof where, "%sAs one stream of %lld tokens", space_after(out, before),
                 (long long)stream.length[0]);
        append_best(out, &stream, stream.length[0], where);
    }
    for (int m = 0; m < v->methods; m++)
        learned |= !v->ignorant[m];
    if (out->length == before || !learned)
        return;
    if (v->seeds > 1)
        text_append(out, " ± is one standard error, of the text and of %d seeds.", v->seeds);
    else
        text_append(out, " ± is one standard error of the text; another seed may differ by more.");
}

/* ---- origin */

void append_origin(struct text *out, const struct view *v)
{
    const struct alibi_corpus_info *t = &v->result->text;
    const char *machine = "";
    char name[ALIBI_TEXT_NAME_MAX], more[48] = "";
    bool one = true;

    for (int m = 0; m < v->methods; m++)
        for (int k = 0; k < v->result->method[m].seeds; k++) {
            const struct alibi_compare_seed *s = &v->result->method[m].seed[k];
            const char *here = s->machine[0] != '\0' ? s->machine : s->device;

            one &= machine[0] == '\0' || here[0] == '\0' || strcmp(machine, here) == 0;
            machine = here[0] != '\0' ? here : machine;
        }
    snprintf(name, sizeof name, "%s", t->name);
    line_clean(name);
    if (t->paths > 1)
        snprintf(more, sizeof more, " and %lld more", (long long)t->paths - 1);
    if (name[0] != '\0')
        text_append(out, "Text: %s%s", name, more);
    if (name[0] != '\0' && t->bytes > 0)
        text_append(out, ", %s bytes, checksum %08llx", show_count((double)t->bytes).text,
                    (unsigned long long)t->checksum);
    text_append(out, name[0] != '\0' ? "." : "");
    if (machine[0] != '\0') {
        char where[ALIBI_DEVICE_NAME_MAX];

        snprintf(where, sizeof where, "%s", machine);
        line_clean(where);
        text_append(out, " Trained on %s", one ? where : "several machines (see results.json)");
        text_append(out, view_date(v)[0] != '\0' ? ", %s." : ".", view_date(v));
    }
    text_append(out, " alibi %s.", alibi_version());
}
