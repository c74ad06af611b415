/* t5.c - a trained bias per head and distance bucket
 *
 *   score(i, j) += weight[bucket(i - j)][h]          for j <= i, the same weight in every layer
 *
 *   bucket(d) = d                                                        d < E
 *             = min(E + floor((n - E) * log(d/E) / log(M/E)), n - 1)     otherwise
 *
 * Raffel et al. (2020), the causal case: n = buckets, E = n/2, M = max-distance. Half of the
 * buckets hold one distance each, the others grow with the distance, and all distances from M on
 * share the last. */
#include <math.h>

#include "position/position.h"

struct options {
    int64_t buckets, max_distance;
};

#define AT(field) offsetof(struct options, field)

static const struct alibi_option options[] = {
    { "buckets", ALIBI_OPTION_INT, AT(buckets), 2, 4096, NULL, "32", "N", "distance buckets" },
    { "max-distance", ALIBI_OPTION_INT, AT(max_distance), 2, 1 << 20, NULL, "128", "N",
      "distance at which the last bucket begins, about" },
};

static void defaults(const struct alibi_config *c, void *own)
{
    *(struct options *)own =
        (struct options){ .buckets = c->t5_buckets, .max_distance = c->t5_max_distance };
}

static const struct options *own(const struct position *p)
{
    return (const struct options *)p->own;
}

static alibi_status check(const struct alibi_config *c, const struct position *p)
{
    const struct options *o = own(p);

    (void)c;
    if (o->buckets < 2 || o->buckets % 2 != 0)
        return fail(ALIBI_USAGE, "option 'buckets' of 't5' is %lld: it must be even and at least 2",
                    (long long)o->buckets);
    if (o->max_distance <= o->buckets / 2)
        return fail(ALIBI_USAGE,
                    "option 'max-distance' of 't5' is %lld: it must be above %lld, half of its "
                    "buckets",
                    (long long)o->max_distance, (long long)o->buckets / 2);
    return ALIBI_OK;
}

static void parameter_shape(const struct alibi_config *c, const struct position *p,
                            int64_t shape[2])
{
    shape[0] = own(p)->buckets;
    shape[1] = c->heads;
}

static int64_t distances(const struct position *p)
{
    return own(p)->max_distance + 1;
}

/* Where a bucket begins at a whole distance (32 buckets up to 256: at 32, 64, 128) the quotient of
 * logarithms may come out a hair below the whole number it is. The nudge is far above the rounding
 * of a double and far below the step from one distance to the next. */
static int32_t bucket(const struct position *p, int64_t distance)
{
    const struct options *o = own(p);
    int64_t exact = o->buckets / 2, last = o->buckets - 1;
    double share, beyond;

    if (distance < exact)
        return (int32_t)distance;
    share = log((double)distance / (double)exact) / log((double)o->max_distance / (double)exact);
    beyond = floor((double)(o->buckets - exact) * share + 1e-9);
    return (int32_t)fmin((double)exact + beyond, (double)last);
}

const struct position_method position_t5 = {
    .name = "t5",
    .summary = "adds a trained bias per head and distance bucket to the scores",
    .acts_on = POSITION_SCORES,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .defaults = defaults,
    .check = check,
    .parameter_shape = parameter_shape,
    .bias = BIAS_TABLE,
    .distances = distances,
    .bucket = bucket,
};
