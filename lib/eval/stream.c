/* stream.c - one pass over a text of any length
 *
 * The paper gives every token a full context by a sliding window with stride 1, which reads each
 * token L times. With a KV cache each token is read once. The bias lowers the weight of far keys,
 * so attention proves that most of them do not matter (ops.h), and a token costs about the same at
 * every position.
 *
 * The cache grows with the text unless it has a window. If no score exceeds S in magnitude, bias
 * excluded, then the keys more than W back have a total weight, relative to the query's own key
 * alone, of at most
 *
 *   sum over d > W of e^(S - m d)  /  e^-S   <=   e^(2 S - m W) / (1 - e^-m)
 *
 * which is eps for W = (2 S - ln eps - ln(1 - e^-m)) / m, with the flattest slope m of all heads.
 */
#include <math.h>

#include "eval/eval.h"

alibi_status stream_check(const struct model *m)
{
    const struct position_method *method = m->pattern.kind[0].method;

    if (method->acts_on == POSITION_EMBEDDING)
        return fail(
            ALIBI_BAD_INPUT,
            "protocol stream: position method '%s' marks tokens by their position in the text, and "
            "has no positions past its training length; use a method that depends only on "
            "distances",
            method->name);
    return ALIBI_OK;
}

/* The flattest slope of all layers that see every key. */
static alibi_status flattest_slope(const struct model *m, double *flattest)
{
    alibi_status status;
    float *slopes = NULL;

    TRY(NEW_ARRAY(&slopes, m->config.heads, "slopes"));
    *flattest = INFINITY;
    for (int k = 0; k < m->pattern.kinds; k++) {
        const struct position *p = &m->pattern.kind[k];

        if (p->window > 0)
            continue;
        if (!p->method->slope)
            TRY(fail(ALIBI_USAGE, "a window score needs slopes: position method '%s' has none",
                     p->method->name));
        TRY(model_slopes(m, k, slopes));
        for (int64_t h = 0; h < m->config.heads; h++)
            *flattest = fmin(*flattest, (double)slopes[h]);
    }
out:
    mem_free(slopes);
    return status;
}

alibi_status stream_window(struct cache_window *out, const struct model *m, double skip,
                           double window_score)
{
    double slope, window;

    *out = (struct cache_window){ 0 };
    if (window_score == 0)
        return ALIBI_OK;
    TRY_RETURN(flattest_slope(m, &slope));
    if (isinf(slope)) /* every layer has a window of its own */
        return ALIBI_OK;
    window = ceil((2 * window_score - log(skip) - log1p(-exp(-slope))) / slope);
    if (!(slope > 0) || window > (double)INT64_MAX / 4)
        return fail(ALIBI_USAGE, "a window score of %g: slopes as flat as %g leave no window",
                    window_score, slope);
    *out = (struct cache_window){ (int64_t)window, window_score };
    return ALIBI_OK;
}
