/* view.c - results as reports need them: names fit for one line, lengths in order, values by method
 * and length */
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

static bool is_ignorant(const struct view *v, int method)
{
    const struct alibi_eval_result *seed[ALIBI_LIST_MAX];
    int seeds = 0;

    for (int k = 0; k < v->result->method[method].seeds && seeds < ALIBI_LIST_MAX; k++) {
        seed[seeds] = view_seed(v, method, k, view_home(v));
        seeds += seed[seeds] != NULL;
    }
    return v->result->unigram_nll > 0 && seeds > 0 &&
           !change_is_learning(seed, seeds, v->result->unigram_nll);
}

void view_init(struct view *v, const struct alibi_compare_result *r)
{
    *v = (struct view){ .result = r,
                        .protocol = ALIBI_NONOVERLAPPING,
                        .methods = r->methods,
                        .train_length = r->training.train_length };
    for (int m = 0; m < r->methods; m++) {
        const struct alibi_compare_method *method = &r->method[m];

        snprintf(v->name[m], sizeof v->name[m], "%s", method->name);
        line_clean(v->name[m]);
        if (method->seeds > 0)
            snprintf(v->device[m], sizeof v->device[m], "%s", method->seed[0].device);
        line_clean(v->device[m]);
        v->seeds = method->seeds > v->seeds ? method->seeds : v->seeds;
        for (int k = 0; k < method->seeds; k++)
            for (int i = 0; i < method->seed[k].lengths; i++)
                add_length(v, method->seed[k].by_length[i].length);
    }
    looks_assign(v->look, (const char(*)[ALIBI_NAME_MAX])v->name, NULL, v->methods);
    for (int m = 0; m < r->methods; m++)
        v->ignorant[m] = is_ignorant(v, m);
}

void view_init_part(struct view *v, const struct alibi_compare_result *r,
                    const struct report_experiment *x)
{
    int original[ALIBI_LIST_MAX];

    view_init(v, r);
    for (int m = 0; m < v->methods; m++)
        original[m] = x->untrained[m] ? x->original[m] : -1;
    looks_assign(v->look, (const char(*)[ALIBI_NAME_MAX])v->name, original, v->methods);
}

int64_t view_home(const struct view *v)
{
    int64_t home = v->lengths > 0 ? v->length[0] : 0;

    for (int i = 0; i < v->lengths; i++)
        if (v->length[i] <= v->train_length)
            home = v->length[i];
    return home;
}

struct view view_of(const struct view *v, enum alibi_protocol protocol)
{
    struct view other = *v;

    other.protocol = protocol;
    if (protocol != ALIBI_STREAM)
        return other;
    other.lengths = 0;
    for (int m = 0; m < v->methods; m++)
        for (int k = 0; k < v->result->method[m].seeds; k++)
            if (v->result->method[m].seed[k].stream.tokens > 0)
                add_length(&other, v->result->method[m].seed[k].stream.length);
    return other;
}

struct view view_passage(const struct view *v)
{
    struct view other = view_of(v, ALIBI_NONOVERLAPPING);

    other.passage = true;
    other.lengths = 0;
    add_length(&other, v->train_length);
    return other;
}

bool view_has_length(const struct view *v, int64_t length)
{
    for (int i = 0; i < v->lengths; i++)
        if (v->length[i] == length)
            return true;
    return false;
}

const struct alibi_eval_result *view_seed(const struct view *v, int method, int seed,
                                          int64_t length)
{
    const struct alibi_compare_seed *s = &v->result->method[method].seed[seed];
    const struct alibi_eval_result *evals = s->by_length;
    int count = s->lengths;

    if (v->protocol == ALIBI_SLIDING) {
        evals = s->sliding;
        count = s->sliding_lengths;
    } else if (v->protocol == ALIBI_STREAM || v->passage) {
        evals = v->passage ? &s->passage : &s->stream;
        count = 1;
    }
    for (int i = 0; i < count; i++)
        if (evals[i].length == length)
            return evals[i].tokens > 0 ? &evals[i] : NULL;
    return NULL;
}

const struct alibi_eval_result *view_any(const struct view *v)
{
    for (int i = 0; i < v->lengths; i++)
        for (int m = 0; m < v->methods; m++)
            for (int k = 0; k < v->result->method[m].seeds; k++)
                if (view_seed(v, m, k, v->length[i]) != NULL)
                    return view_seed(v, m, k, v->length[i]);
    return NULL;
}

/* One number of an evaluation. */
static double nll_of(const struct alibi_eval_result *e)
{
    return e->nll;
}

static double log_ppl_of(const struct alibi_eval_result *e)
{
    return log(e->ppl);
}

/* The mean of a number over the seeds that have the evaluation, NaN if none has, and its standard
 * deviation, NaN if fewer than two have. */
struct moments {
    int seeds;
    double mean, deviation;
};

static struct moments moments_of(const struct view *v, int method, int64_t length,
                                 double (*number)(const struct alibi_eval_result *e))
{
    struct moments m = { 0 };
    double squares = 0;

    for (int k = 0; k < v->result->method[method].seeds; k++) {
        const struct alibi_eval_result *e = view_seed(v, method, k, length);
        double step;

        if (e == NULL)
            continue;
        step = number(e) - m.mean;
        m.mean += step / ++m.seeds;
        squares += step * (number(e) - m.mean);
    }
    m.deviation = m.seeds > 1 ? sqrt(squares / (m.seeds - 1)) : NAN;
    m.mean = m.seeds > 0 ? m.mean : NAN;
    return m;
}

double view_ppl(const struct view *v, int method, int64_t length)
{
    struct moments log_ppl = moments_of(v, method, length, log_ppl_of);
    const struct alibi_eval_result *only =
        log_ppl.seeds == 1 ? view_seed(v, method, 0, length) : NULL;

    return only != NULL ? only->ppl : exp(log_ppl.mean); /* the digits that were measured */
}

double view_spread(const struct view *v, int method, int64_t length)
{
    return moments_of(v, method, length, nll_of).deviation;
}

/* Adds a share 1 / seeds of each number of `e` to the mean. */
static void add_share(struct alibi_eval_result *mean, const struct alibi_eval_result *e, int seeds)
{
    double share = 1.0 / seeds;

    mean->nll += share * e->nll;
    mean->standard_error += share * e->standard_error;
    mean->ppl += share * log(e->ppl);
    mean->word_ppl += share * log(e->word_ppl);
    mean->bits_per_byte += share * e->bits_per_byte;
    mean->seconds += share * e->seconds;
    mean->tokens_per_s += share * e->tokens_per_s;
    mean->tiles_used += share * e->tiles_used;
    mean->attention_seconds += share * e->attention_seconds;
    if (e->peak_bytes > mean->peak_bytes)
        mean->peak_bytes = e->peak_bytes;
    for (int b = 0; b < mean->bins && b < e->bins; b++)
        mean->by_position[b].nll += share * e->by_position[b].nll;
}

struct alibi_eval_result view_mean(const struct view *v, int method, int64_t length)
{
    const struct alibi_eval_result *seed[ALIBI_LIST_MAX];
    struct alibi_eval_result mean = { .length = length };
    struct moments nll = moments_of(v, method, length, nll_of);
    int seeds = 0;

    for (int k = 0, added = 0; k < v->result->method[method].seeds; k++) {
        const struct alibi_eval_result *e = view_seed(v, method, k, length);

        if (e == NULL)
            continue;
        if (nll.seeds == 1)
            return *e;
        if (added++ == 0) { /* counts, bins and whatever else does not depend on the seed */
            mean = *e;
            mean.nll = mean.standard_error = mean.ppl = mean.word_ppl = mean.bits_per_byte = 0;
            mean.seconds = mean.tokens_per_s = mean.tiles_used = mean.attention_seconds = 0;
            for (int b = 0; b < mean.bins; b++)
                mean.by_position[b].nll = 0;
        }
        add_share(&mean, e, nll.seeds);
        seed[seeds++] = e;
    }
    if (nll.seeds > 1) {
        mean.ppl = exp(mean.ppl);
        mean.word_ppl = exp(mean.word_ppl);
        mean.standard_error = change_between(seed, NULL, seeds, 0).error;
    }
    return mean;
}

double view_error(const struct view *v, int method, int64_t length)
{
    struct alibi_eval_result mean = view_mean(v, method, length);

    return mean.tokens > 0 ? mean.standard_error : NAN;
}

bool view_has_factor(const struct view *v)
{
    struct view passage = view_passage(v);
    bool any = false;

    for (int m = 0; m < v->methods; m++) {
        for (int i = 0; i < v->lengths; i++)
            any |= error_is_factor(view_error(v, m, v->length[i]));
        if (v->protocol == ALIBI_STREAM)
            any |= error_is_factor(view_error(&passage, m, v->train_length));
    }
    return any;
}

struct cost view_cost(const struct view *v, int method)
{
    const struct alibi_compare_method *m = &v->result->method[method];
    struct cost c = { 0 };

    for (int k = 0; k < m->seeds; k++) {
        const struct alibi_compare_seed *s = &m->seed[k];

        c.tokens_per_s += s->train_tokens_per_s / m->seeds;
        c.seconds += s->train_seconds / m->seeds;
        c.loss += s->train_loss / m->seeds;
        c.peak_bytes = fmax(c.peak_bytes, (double)s->peak_bytes);
        c.parameters = (double)s->parameters;
    }
    c.tokens_per_s = c.tokens_per_s > 0 ? c.tokens_per_s : NAN;
    c.peak_bytes = c.peak_bytes > 0 ? c.peak_bytes : NAN;
    c.parameters = c.parameters > 0 ? c.parameters : NAN;
    return c;
}

/* In this form, later dates are later in the order of strings. */
const char *view_date(const struct view *v)
{
    const char *latest = "";

    for (int m = 0; m < v->methods; m++)
        for (int k = 0; k < v->result->method[m].seeds; k++)
            if (strcmp(v->result->method[m].seed[k].date, latest) > 0)
                latest = v->result->method[m].seed[k].date;
    return latest;
}

int64_t view_tokens(const struct view *v)
{
    int64_t most = 0;

    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++)
            for (int k = 0; k < v->result->method[m].seeds; k++) {
                const struct alibi_eval_result *e = view_seed(v, m, k, v->length[i]);
                most = e != NULL && e->tokens > most ? e->tokens : most;
            }
    return most;
}

int view_best(const struct view *v, int64_t length, int other)
{
    double lowest = INFINITY;
    int best = -1;

    for (int m = 0; m < v->methods; m++)
        if (m != other && !v->ignorant[m] && view_ppl(v, m, length) < lowest) {
            lowest = view_ppl(v, m, length);
            best = m;
        }
    return best;
}

const struct alibi_option *setting_at(const struct alibi_compare_result *r, int group, int index,
                                      const void **values)
{
    /* Methods differ in their position; the text sets the vocabulary; the rest are options of a
     * single run, or of evaluation. */
    static const char *const other[] = { "position", "vocab", "init", "keep-best", "eval-tokens" };
    int count;
    const struct alibi_option *options =
        group == 0 ? alibi_config_options(&count) : alibi_training_options(&count);

    *values = group == 0 ? (const void *)&r->config : &r->training;
    for (int i = 0; i < count; i++) {
        bool skipped = false;

        for (int k = 0; k < COUNT(other); k++)
            skipped |= strcmp(options[i].name, other[k]) == 0;
        if (!skipped && index-- == 0)
            return &options[i];
    }
    return NULL;
}
