/* alibi.c - attention with linear biases
 *
 *   score(i, j) += -m_h * (i - j)          for j <= i
 *
 * Press, Smith, Lewis (ICLR 2022), section 3. The slopes m_h are fixed; nothing is learned unless
 * train_slopes asks for a factor per head, which multiplies its slope. The bias is formed from the
 * integer distance, so it is 0 on the diagonal and does not grow less exact with the position. */
#include <math.h>

#include "position/position.h"

static int64_t floor_power_of_two(int64_t n)
{
    int64_t power = 1;

    while (power <= n / 2)
        power *= 2;
    return power;
}

/* Slope of head h of H. H a power of two: 2^(-bias_max * (h+1) / H). Otherwise the heads beyond the
 * power of two below H take every second slope of the sequence for twice as many heads, as the
 * authors' code does: the order is then not monotone. */
static float slope(const struct alibi_config *c, int64_t h)
{
    int64_t power = floor_power_of_two(c->heads);
    double step = c->bias_max / (double)power;

    if (h < power)
        return (float)exp2(-step * (double)(h + 1));
    return (float)exp2(-step * ((double)(h - power) + 0.5));
}

static void parameter_shape(const struct alibi_config *c, int64_t shape[2])
{
    shape[0] = c->train_slopes ? 1 : 0;
    shape[1] = c->heads;
}

const struct position_method position_alibi = {
    .name = "alibi",
    .summary = "subtracts a fixed slope per head times the distance from the scores",
    .acts_on = POSITION_SCORES,
    .parameter_shape = parameter_shape,
    .bias = BIAS_LINEAR,
    .slope = slope,
};
