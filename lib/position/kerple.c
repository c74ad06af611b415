/* kerple.c - a logarithmic or a power penalty on distance, with two learned numbers per head
 *
 *   score(i, j) += -p_h ln(1 + a_h (i - j))          p_h, a_h > 0
 *   score(i, j) += -a_h (i - j)^p_h                  with `power`; a_h > 0, 0 < p_h < 2
 *
 * Chi, Fan, Ramadge, Rudnicky (NeurIPS 2022), section 4: kernels that are conditionally positive
 * definite, the same numbers in every layer. The authors clamp the numbers after each step. Here
 * the weights are their logarithms, and for the exponent of `power` the logit of p_h / 2, so no
 * step can leave the range. They are initialised as the authors' are: p_h uniform up to 2, a_h up
 * to 1. */
#include <math.h>

#include "position/position.h"

struct options {
    bool power;
};

static const struct alibi_option options[] = {
    { "power", ALIBI_OPTION_FLAG, offsetof(struct options, power), 0, 0, NULL, "false", NULL,
      "-a d^p in place of -p ln(1 + a d)" },
};

static bool is_power(const struct position *p)
{
    return ((const struct options *)p->own)->power;
}

static void parameter_shape(const struct alibi_config *c, const struct position *p,
                            int64_t shape[2])
{
    (void)p;
    shape[0] = 2;
    shape[1] = c->heads;
}

static enum curve_kind curve(const struct position *p)
{
    return is_power(p) ? CURVE_POWER : CURVE_LOG;
}

/* The first number is a factor in both forms: p of the logarithm, a of the power. */
static double initial(const struct alibi_config *c, const struct position *p, int64_t row,
                      int64_t h, double uniform)
{
    const double least = 0.01; /* the authors' bound */
    double share = fmax(uniform, least);

    (void)c, (void)h;
    if (is_power(p))
        return row == 0 ? log(share) : log(share / (1 - fmin(share, 1 - least)));
    return row == 0 ? log(2 * share) : log(share);
}

static double shown(const struct position *p, int64_t row, double weight)
{
    return is_power(p) && row == 1 ? 2 / (1 + exp(-weight)) : exp(weight);
}

static const char *number(const struct position *p, int64_t row)
{
    return (row == 0) == is_power(p) ? "kerple_a" : "kerple_p";
}

const struct position_method position_kerple = {
    .name = "kerple",
    .summary = "subtracts a learned logarithm or power of the distance from the scores",
    .acts_on = POSITION_SCORES,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .parameter_shape = parameter_shape,
    .bias = BIAS_TABLE,
    .curve = curve,
    .initial = initial,
    .number = number,
    .shown = shown,
};
