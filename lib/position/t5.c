/* t5.c - a trained bias per head and distance bucket
 *
 *   score(i, j) += weight[bucket(i - j)][h]          for j <= i, the same weight in every layer
 *
 *   bucket(d) = d                                                        d < E
 *             = min(E + floor((n - E) * log(d/E) / log(M/E)), n - 1)     otherwise
 *
 * Raffel et al. (2020), the causal case: n = t5_buckets, E = n/2, M = t5_max_distance. Half of the
 * buckets hold one distance each, the others grow with the distance, and all distances from M on
 * share the last. */
#include <math.h>

#include "position/position.h"

static alibi_status check(const struct alibi_config *c)
{
    if (c->t5_buckets < 2 || c->t5_buckets % 2 != 0)
        return fail(ALIBI_USAGE, "t5-buckets %lld must be even and at least 2",
                    (long long)c->t5_buckets);
    if (c->t5_max_distance <= c->t5_buckets / 2)
        return fail(ALIBI_USAGE, "t5-max-distance %lld must be above %lld, half of t5-buckets",
                    (long long)c->t5_max_distance, (long long)c->t5_buckets / 2);
    return ALIBI_OK;
}

static void parameter_shape(const struct alibi_config *c, int64_t shape[2])
{
    shape[0] = c->t5_buckets;
    shape[1] = c->heads;
}

static int64_t distances(const struct alibi_config *c)
{
    return c->t5_max_distance + 1;
}

/* Where a bucket begins at a whole distance (32 buckets up to 256: at 32, 64, 128) the quotient of
 * logarithms may come out a hair below the whole number it is. The nudge is far above the rounding
 * of a double and far below the step from one distance to the next. */
static int32_t bucket(const struct alibi_config *c, int64_t distance)
{
    int64_t exact = c->t5_buckets / 2, last = c->t5_buckets - 1;
    double share, beyond;

    if (distance < exact)
        return (int32_t)distance;
    share = log((double)distance / (double)exact) / log((double)c->t5_max_distance / (double)exact);
    beyond = floor((double)(c->t5_buckets - exact) * share + 1e-9);
    return (int32_t)fmin((double)exact + beyond, (double)last);
}

const struct position_method position_t5 = {
    .name = "t5",
    .summary = "adds a trained bias per head and distance bucket to the scores",
    .acts_on = POSITION_SCORES,
    .check = check,
    .parameter_shape = parameter_shape,
    .bias = BIAS_TABLE,
    .distances = distances,
    .bucket = bucket,
};
