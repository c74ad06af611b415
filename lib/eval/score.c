/* score.c - from losses of single tokens to the numbers of a result
 *
 *   nll  R = sum_k y_k / sum_k x_k      y_k the sum of the losses of part k, x_k its scored tokens
 *                                       (except that protocol stride counts some windows less)
 *
 *   standard error of R = sqrt( K/(K-1) * sum_k (y_k - R x_k)^2 ) / sum_k x_k
 *
 * the ratio estimator with the K parts as independent units. Tokens near each other are not
 * independent, and so the units are as long and as far apart as the scored text allows. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

double parts_error(const struct alibi_eval_part *part, int parts)
{
    double tokens = 0, nll = 0, squares = 0, K = parts;

    for (int k = 0; k < parts; k++) {
        tokens += (double)part[k].tokens;
        nll += part[k].nll;
    }
    for (int k = 0; k < parts; k++) {
        double d = part[k].nll - nll / tokens * (double)part[k].tokens;
        squares += d * d;
    }
    return parts < 2 ? INFINITY : sqrt(squares * K / (K - 1)) / tokens;
}

bool alibi_eval_difference(const struct alibi_eval_result *a, const struct alibi_eval_result *b,
                           double *difference, double *error)
{
    struct alibi_eval_part part[ALIBI_EVAL_PARTS];
    bool same = a->parts > 0 && a->parts <= ALIBI_EVAL_PARTS && a->parts == b->parts &&
                a->start == b->start && a->available == b->available && a->block == b->block &&
                a->blocks == b->blocks;

    *difference = *error = (double)NAN;
    for (int k = 0; same && k < a->parts; k++) {
        same = a->part[k].tokens == b->part[k].tokens;
        part[k] = (struct alibi_eval_part){ a->part[k].tokens, a->part[k].nll - b->part[k].nll };
    }
    if (!same)
        return false;
    *difference = a->nll - b->nll;
    *error = parts_error(part, a->parts);
    return true;
}

int64_t bin_first(int bin)
{
    return bin == 0 ? 0 : INT64_C(1) << (bin - 1);
}

int64_t bin_last(int bin, int64_t length)
{
    int64_t last = bin == 0 ? 0 : bin_first(bin) + (bin_first(bin) - 1);

    return last < length ? last : length - 1;
}

bool score_window(struct score *s, const float *nll, const struct window *w, int64_t position)
{
    double sum = 0;
    int64_t tokens;

    for (int64_t i = w->first; i < w->inputs; i++)
        if (!isfinite(nll[i]))
            return false;
    for (int64_t i = w->first; i < w->inputs; i++) {
        int bin = reach_bin(position + i), part = blocks_part(&s->blocks, w->index + i - w->first);

        sum += nll[i];
        s->part[part].nll += nll[i];
        s->part[part].tokens++;
        s->bin_nll[bin] += nll[i];
        s->bin_tokens[bin]++;
    }
    tokens = w->inputs - w->first;
    s->nll += sum;
    s->tokens += tokens;
    s->counted += (double)(tokens - w->uncounted);
    s->counted_nll += sum * ((double)(tokens - w->uncounted) / (double)tokens);
    return true;
}

static void fill_bins(const struct score *s, int64_t length, struct alibi_eval_result *result)
{
    result->bins = 0;
    for (int b = 0; b <= reach_bin(length - 1); b++) {
        if (s->bin_tokens[b] == 0) /* a sliding window that never scores its first targets */
            continue;
        result->by_position[result->bins++] = (struct alibi_position_loss){
            .first = bin_first(b),
            .last = bin_last(b, length),
            .tokens = s->bin_tokens[b],
            .nll = s->bin_nll[b] / (double)s->bin_tokens[b],
        };
    }
}

void score_result(const struct score *s, int64_t length, int64_t words, int64_t bytes,
                  struct alibi_eval_result *result)
{
    result->nll = s->counted_nll / s->counted;
    result->parts = blocks_parts(&s->blocks);
    memcpy(result->part, s->part, sizeof result->part);
    result->standard_error = parts_error(s->part, result->parts);
    result->ppl = exp(result->nll);
    result->word_ppl = words > 0 ? exp(s->nll / (double)words) : INFINITY;
    result->bits_per_byte = bytes > 0 ? s->nll / M_LN2 / (double)bytes : INFINITY;
    result->tokens = s->tokens;
    result->words = words;
    result->bytes = bytes;
    fill_bins(s, length, result);
}

void alibi_eval_describe(const struct alibi_eval_result *r, char *text, size_t bytes)
{
    if (protocol_is_foreign(r->protocol))
        snprintf(text, bytes, "%lld of the %s%lld tokens of the split", (long long)r->tokens,
                 r->block < r->available ? "first " : "", (long long)r->block);
    else if (r->blocks > 1)
        snprintf(text, bytes, "%lld blocks of %lld tokens over the whole split",
                 (long long)r->blocks, (long long)r->block);
    else if (r->block == r->available)
        snprintf(text, bytes, "all %lld tokens of the split", (long long)r->tokens);
    else
        snprintf(text, bytes, "%lld tokens from the %s of the split, which has %lld",
                 (long long)r->tokens, r->start > 0 ? "middle" : "start", (long long)r->available);
}
