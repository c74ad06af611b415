/* conclusion.c - the results in sentences
 *
 * One rule for every method and every pair of values, that of change_between(). A change of less
 * than 0.005 nats is not worth a sentence, however sure. Otherwise perplexity is exp(d) times the
 * other, and ± is one standard error, as everywhere.
 *
 * `home` is the longest test length up to the training length, or the shortest of all. `far` is the
 * longest length past it at which some method has a finite value. A method that has learned nothing
 * is named as such, and nothing else is said about it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/parts.h"

/* Method m at a length against another method at another length. */
static struct change compare(const struct view *v, int m, int64_t length, int other,
                             int64_t other_length)
{
    const struct alibi_compare_method *method = v->result->method;
    const struct alibi_eval_result *a[ALIBI_LIST_MAX], *b[ALIBI_LIST_MAX];
    int seeds = 0;

    for (; seeds < method[m].seeds && seeds < method[other].seeds && seeds < ALIBI_LIST_MAX;
         seeds++) {
        a[seeds] = view_seed(v, m, seeds, length);
        b[seeds] = view_seed(v, other, seeds, other_length);
    }
    return change_between(a, b, seeds, 0);
}

static bool differs(struct change c)
{
    return c.outcome >= CHANGE_IN_THESE_SEEDS && fabs(c.d) >= LEAST_EFFECT;
}

/* If the seeds do not agree, nothing has changed, unless the perplexity of some is not finite. */
static bool unchanged(struct change c)
{
    return !differs(c) && !isinf(c.d);
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

/* "6.0 ± 0.4": as many decimals as the error has digits; "6.0" if the error is NaN. */
static void append_real(struct text *out, double value, double error)
{
    int decimals = isnan(error) ? 1 : error < 0.095 ? 2 : error < 9.5 ? 1 : 0;

    text_append(out, "%s", show_real(value, decimals).text);
    if (!isnan(error))
        text_append(out, " ± %s", show_error(error, decimals).text);
}

/* " in both seeds", where that is all that is known. */
static void append_seeds(struct text *out, struct change c)
{
    if (c.outcome != CHANGE_IN_THESE_SEEDS || c.seeds < 2)
        return;
    if (c.seeds == 2)
        text_append(out, " in both seeds");
    else
        text_append(out, " in all %d seeds", c.seeds);
}

void append_ratio(struct text *out, double d, double d_error)
{
    double ratio = exp(d), error = ratio * d_error;

    if (isinf(d) && d < 0) {
        text_append(out, "finite, which the other is not");
    } else if (isinf(ratio)) {
        text_append(out, "no longer finite");
    } else if (ratio >= 2 && error_is_factor(d_error)) {
        text_append(out, "%s ×÷ %s times as high", show_real(ratio, 1).text,
                    show_real(exp(d_error), 1).text);
    } else if (ratio >= 10) {
        text_append(out, "%s", show_count(ratio).text);
        if (!isnan(error))
            text_append(out, " ± %s", show_error(error, 0).text);
        text_append(out, " times as high");
    } else if (ratio >= 2) {
        append_real(out, ratio, error);
        text_append(out, " times as high");
    } else {
        append_real(out, 100 * fabs(ratio - 1), 100 * error);
        text_append(out, "%% %s", ratio < 1 ? "lower" : "higher");
    }
}

/* "6.0 ± 0.4% lower", "8.7 ± 0.2 times as high in both seeds", "no measurable change" */
static void append_change(struct text *out, struct change c)
{
    if (unchanged(c)) {
        text_append(out, "no measurable change");
    } else if (!differs(c)) {
        text_append(out, c.d > 0 ? "no longer finite in some seeds" : "finite in more seeds");
    } else {
        append_ratio(out, c.d, c.error);
        append_seeds(out, c);
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
        bool same = i + 1 < count && unchanged(ranked[i].change) && unchanged(ranked[i + 1].change);

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
                    differs(compare(v, a, v->length[i], b, v->length[i])))
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
    if (differs(c)) {
        text_append(out, "%s %s has the lowest perplexity, %s,", where, v->name[best], first.text);
        append_seeds(out, c);
        text_append(out, " ");
        append_real(out, 100 * (1 - exp(c.d)), 100 * exp(c.d) * c.error);
        text_append(out, "%% below the next, %s with %s.", v->name[second], next.text);
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

/* Names the methods without a value there, except those that were not tested yet. */
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

/* Whether a sentence says "in both seeds". */
static bool only_these_seeds(const struct view *v, int64_t home, int64_t far)
{
    const struct view views[] = { *v, view_of(v, ALIBI_SLIDING), view_of(v, ALIBI_STREAM) };
    bool any = false;

    for (int i = 0; i < 3; i++) {
        const struct view *w = &views[i];
        int64_t length = w->protocol == ALIBI_STREAM && w->lengths > 0 ? w->length[0] : far;
        int best = view_best(w, length, -1), second = view_best(w, length, best);
        struct ranked ranked[ALIBI_LIST_MAX];
        int count = rank_changes(ranked, w, home, far);

        for (int k = 0; k < count; k++)
            any |= differs(ranked[k].change) && ranked[k].change.outcome == CHANGE_IN_THESE_SEEDS;
        if (second >= 0) {
            struct change c = compare(w, best, length, second, length);
            any |= differs(c) && c.outcome == CHANGE_IN_THESE_SEEDS;
        }
    }
    return any;
}

void append_detail(struct text *out, const struct view *v)
{
    struct view stream = view_of(v, ALIBI_STREAM);
    int64_t home = view_home(v), far = far_length(v, -1, home);
    int best = view_best(v, far, -1);
    size_t before = out->length;
    bool learned = false;
    const char *factor = view_has_factor(v) ? ", ×÷ the same as a factor" : "";
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
        text_append(out, " ± is one standard error, of the text and of %d seeds%s.", v->seeds,
                    factor);
    else
        text_append(out, " ± is one standard error of the text%s; another seed may differ by more.",
                    factor);
    if (v->seeds > 1 && only_these_seeds(v, home, far > 0 ? far : home))
        text_append(
            out,
            " A change \"in %s\" was measured on every model, but so few seeds do not prove "
            "it for the method: add --seeds.",
            v->seeds == 2 ? "both seeds" : "all seeds");
}

/* ---- rules and origin */

void append_scored(struct text *out, const struct view *v)
{
    const struct alibi_eval_result *any = view_any(v);
    char which[128];

    if (any == NULL)
        return;
    text_append(out, "%s tokens", show_count((double)any->tokens).text);
    if (any->blocks == 0) /* an older version measured it */
        return;
    alibi_eval_describe(any, which, sizeof which);
    text_append(out, ": %s", which);
    if (any->tokens != view_tokens(v)) /* llama.cpp's chunks score a share that their length sets */
        text_append(out, " at length %lld", (long long)any->length);
}

void append_rules(struct text *out, const struct view *v)
{
    const struct alibi_eval_result *any = view_any(v);
    const struct alibi_protocol_info *protocol;
    bool half = true; /* a stride that is not given */

    if (any == NULL)
        return;
    protocol = alibi_protocol_view(any->protocol);
    for (int i = 0; i < v->lengths; i++)
        for (int m = 0; m < v->methods; m++) {
            struct alibi_eval_result mean = view_mean(v, m, v->length[i]);

            half &= mean.tokens == 0 || mean.stride == mean.length / 2;
        }
    text_append(out, "Protocol %s", protocol->name);
    if (protocol->strided && half)
        text_append(out, ", stride half the length");
    else if (protocol->strided)
        text_append(out, ", stride %lld", (long long)any->stride);
    text_append(out, ". First tokens: %s. Normaliser: %s.", protocol->first_tokens,
                protocol->normaliser);
}

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
