/* sample.c - the next token, and how likely tokens are
 *
 *   p_v = exp(logit_v / temperature) / sum
 *
 * over the top_k likeliest tokens, and among these the fewest that reach top_p.
 *
 * The random number is keyed by (seed, token number): the same seed continues the same prompt the
 * same way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

alibi_status sampling_check(const struct alibi_sampling *s)
{
    if (!(s->temperature >= 0) || !isfinite(s->temperature))
        return fail(ALIBI_USAGE, "temperature %g: it must be 0 or more", s->temperature);
    if (s->top_k < 0)
        return fail(ALIBI_USAGE, "top-k %lld: it must be 0 or more", (long long)s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return fail(ALIBI_USAGE, "top-p %g: it must be above 0 and at most 1", s->top_p);
    return ALIBI_OK;
}

double log_sum_exp(const float *logits, int64_t V)
{
    double largest = -INFINITY, sum = 0;

    for (int64_t v = 0; v < V; v++)
        largest = fmax(largest, (double)logits[v]);
    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v] - largest);
    return largest + log(sum);
}

void sample_likeliest(struct alibi_choice *out, int count, const float *logits, int64_t ids,
                      double normaliser)
{
    int found = 0;

    /* Insertion into a sorted list; an equal one goes after those before it, which have lower ids.
     */
    for (int64_t v = 0; v < ids; v++) {
        double logprob = (double)logits[v] - normaliser;
        int place = found;

        while (place > 0 && logprob > out[place - 1].logprob)
            place--;
        if (place >= count)
            continue;
        if (found < count)
            found++;
        memmove(out + place + 1, out + place, (size_t)(found - 1 - place) * sizeof *out);
        out[place] = (struct alibi_choice){ (int32_t)v, logprob };
    }
}

static int32_t likeliest(const float *logits, int64_t V)
{
    int64_t best = 0;

    for (int64_t v = 1; v < V; v++)
        if (logits[v] > logits[best])
            best = v;
    return (int32_t)best;
}

/* Likeliest first; equal ones by id, so that the order is one and the same everywhere. */
static int by_logit(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static double weight(const struct candidate *c, float largest, double temperature)
{
    return exp(((double)c->logit - (double)largest) / temperature);
}

static double total_weight(const struct candidate *c, int64_t count, float largest,
                           double temperature)
{
    double total = 0;

    for (int64_t i = 0; i < count; i++)
        total += weight(&c[i], largest, temperature);
    return total;
}

/* How many of the sorted candidates reach the share top_p of their weight. */
static int64_t nucleus(const struct candidate *c, int64_t count, float largest,
                       const struct alibi_sampling *s)
{
    double goal = s->top_p * total_weight(c, count, largest, s->temperature), sum = 0;

    for (int64_t i = 0; i < count; i++) {
        sum += weight(&c[i], largest, s->temperature);
        if (sum >= goal)
            return i + 1;
    }
    return count;
}

static int32_t draw(const struct candidate *c, int64_t count, float largest, double temperature,
                    double uniform)
{
    double goal = uniform * total_weight(c, count, largest, temperature), sum = 0;

    for (int64_t i = 0; i < count - 1; i++) {
        sum += weight(&c[i], largest, temperature);
        if (sum > goal)
            return c[i].id;
    }
    return c[count - 1].id;
}

static alibi_status check_logits(const float *logits, int64_t V, uint64_t index)
{
    for (int64_t v = 0; v < V; v++)
        if (!isfinite(logits[v]))
            return fail(ALIBI_NUMERIC, "token %llu: the score of id %lld is not finite",
                        (unsigned long long)index, (long long)v);
    return ALIBI_OK;
}

alibi_status sample_token(int32_t *id, const float *logits, int64_t V,
                          const struct alibi_sampling *s, uint64_t index, struct candidate *scratch)
{
    bool cut = (s->top_k > 0 && s->top_k < V) || s->top_p < 1;
    int32_t best = likeliest(logits, V);
    int64_t count = s->top_k > 0 && s->top_k < V ? s->top_k : V;

    TRY_RETURN(check_logits(logits, V, index));
    if (s->temperature == 0) {
        *id = best;
        return ALIBI_OK;
    }
    for (int64_t v = 0; v < V; v++)
        scratch[v] = (struct candidate){ .id = (int32_t)v, .logit = logits[v] };
    if (cut)
        qsort(scratch, (size_t)V, sizeof *scratch, by_logit);
    if (s->top_p < 1)
        count = nucleus(scratch, count, logits[best], s);
    *id = draw(scratch, count, logits[best], s->temperature,
               random_uniform(s->seed, RANDOM_STREAM(RANDOM_SAMPLE, 0), index));
    return ALIBI_OK;
}
