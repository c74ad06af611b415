/* score.c - from losses of single tokens to the numbers of a result
 *
 *   nll  R = sum_k y_k / sum_k x_k            y_k the sum of the losses of window k, x_k its scored
 * tokens standard error of R = sqrt( K/(K-1) * sum_k (y_k - R x_k)^2 ) / sum_k x_k
 *
 * the ratio estimator with the K windows as independent units; with a single window its tokens are
 * the units (x_k = 1). */
#include <math.h>

#include "eval/eval.h"

static void spread_add(struct spread *s, double y, double x)
{
    double d;

    if (s->units++ == 0)
        s->centre = y / x;
    d = y - s->centre * x;
    s->dd += d * d;
    s->dx += d * x;
    s->xx += x * x;
}

/* y - R x = d - r x with r = R - centre. Of a single unit nothing is known. */
static double spread_error(const struct spread *s, double R, double tokens)
{
    double K = (double)s->units;
    double r = R - s->centre;
    double squares = s->dd - 2 * r * s->dx + r * r * s->xx;

    if (s->units < 2)
        return INFINITY;
    return sqrt(fmax(squares, 0) * K / (K - 1)) / tokens;
}

/* Bins [0], [1], [2, 3], [4 .. 7] and so on: bin b > 0 is positions 2^(b-1) .. 2^b - 1. */
static int bin_of(int64_t position)
{
    return position == 0 ? 0 : 64 - __builtin_clzll((unsigned long long)position);
}

static int64_t bin_first(int bin)
{
    return bin == 0 ? 0 : INT64_C(1) << (bin - 1);
}

static int64_t bin_last(int bin)
{
    return bin == 0 ? 0 : bin_first(bin) + (bin_first(bin) - 1);
}

bool score_window(struct score *s, const float *nll, int64_t first, int64_t count, int64_t position)
{
    double sum = 0;

    for (int64_t i = first; i < count; i++)
        if (!isfinite(nll[i]))
            return false;
    for (int64_t i = first; i < count; i++) {
        int bin = bin_of(position + i);

        sum += nll[i];
        spread_add(&s->by_token, nll[i], 1);
        s->bin_nll[bin] += nll[i];
        s->bin_tokens[bin]++;
    }
    spread_add(&s->by_window, sum, (double)(count - first));
    s->nll += sum;
    s->tokens += count - first;
    return true;
}

static void fill_bins(const struct score *s, int64_t length, struct alibi_eval_result *result)
{
    result->bins = bin_of(length - 1) + 1;
    for (int b = 0; b < result->bins; b++) {
        int64_t last = bin_last(b);

        result->by_position[b] = (struct alibi_position_loss){
            .first = bin_first(b),
            .last = last < length ? last : length - 1,
            .tokens = s->bin_tokens[b],
            .nll = s->bin_nll[b] / (double)s->bin_tokens[b],
        };
    }
}

void score_result(const struct score *s, int64_t length, int64_t words, int64_t bytes,
                  struct alibi_eval_result *result)
{
    double tokens = (double)s->tokens;
    const struct spread *units = s->by_window.units > 1 ? &s->by_window : &s->by_token;

    result->nll = s->nll / tokens;
    result->standard_error = spread_error(units, result->nll, tokens);
    result->ppl = exp(result->nll);
    result->word_ppl = words > 0 ? exp(s->nll / (double)words) : INFINITY;
    result->bits_per_byte = bytes > 0 ? s->nll / M_LN2 / (double)bytes : INFINITY;
    result->tokens = s->tokens;
    result->words = words;
    result->bytes = bytes;
    fill_bins(s, length, result);
}
