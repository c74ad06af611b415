/* bam.c - a power of the distance with an exponent of either sign, learned per head
 *
 *   score(i, j) += -e^alpha_h (i - j + 0.01)^beta_h
 *
 * Bianchessi, Aguirre, Barros, Kupssinskü (2025, arXiv 2505.22842): the logarithm of a generalised
 * Gaussian prior over distances. beta_h = 1 is ALiBi, up to a constant that softmax does not see;
 * beta_h = 0 is no position at all; a negative beta_h prefers far keys to near ones. The shift
 * keeps distance 0 finite; with 0.01 a negative exponent does not close the diagonal at once.
 *
 * Every head starts as ALiBi's: e^alpha_h is its slope, beta_h is 1. All layers share the numbers.
 * Both choices are ours: the authors learn them per layer. */
#include <math.h>

#include "position/position.h"

static void parameter_shape(const struct alibi_config *c, const struct position *p,
                            int64_t shape[2])
{
    (void)p;
    shape[0] = 2;
    shape[1] = c->heads;
}

static enum curve_kind curve(const struct position *p)
{
    (void)p;
    return CURVE_SHIFTED_POWER;
}

static double initial(const struct alibi_config *c, const struct position *p, int64_t row,
                      int64_t h, double uniform)
{
    (void)p, (void)uniform;
    return row == 0 ? log(alibi_slope(c->heads, c->bias_max, h)) : 1.0;
}

static const char *number(const struct position *p, int64_t row)
{
    (void)p;
    return row == 0 ? "bam_alpha" : "bam_beta";
}

const struct position_method position_bam = {
    .name = "bam",
    .summary = "subtracts a learned power of the distance, of either sign, from the scores",
    .acts_on = POSITION_SCORES,
    .parameter_shape = parameter_shape,
    .bias = BIAS_TABLE,
    .curve = curve,
    .initial = initial,
    .number = number,
};
