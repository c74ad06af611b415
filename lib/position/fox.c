/* fox.c - forgetting attention: gates that depend on the text take weight from what is before them
 *
 *   score(i, j) += sum of log f_l over l = j + 1..i = c_i - c_j
 *   f_l = sigmoid(w_h . x_l + b_h),     c_i = sum of log f_l over l <= i
 *
 * Lin, Nikishin, He, Courville (ICLR 2025), section 3. x is the input of the layer's attention;
 * w_h and b_h are learned for each head and layer. Without w_h a gate is a constant, and the bias
 * is that of alibi with the slope -log f.
 *
 * The gates start there: w_h = 0, and -log f = 1 / T_h with T_h from 2 tokens to twice the training
 * length, spread evenly on a logarithmic scale over the heads, as the authors initialise constant
 * gates. They initialise other gates with f = 1/2 everywhere, from which a short training run never
 * learns to reach far.
 *
 * With `free` a share of the heads, the last ones, has no gates, and sees all distances alike; logn
 * acts on them alone. */
#include <math.h>

#include "position/position.h"

struct options {
    double free; /* share of the heads without gates */
};

static const struct alibi_option options[] = {
    { "free", ALIBI_OPTION_REAL, offsetof(struct options, free), 0, 1, NULL, "0", "X",
      "share of the heads that have no gates" },
};

static int64_t free_heads(const struct alibi_config *c, const struct position *p)
{
    return (int64_t)llround(((const struct options *)p->own)->free * (double)c->heads);
}

static alibi_status check(const struct alibi_config *c, const struct position *p)
{
    double free = ((const struct options *)p->own)->free;

    if (free > 0 && free_heads(c, p) == 0)
        return fail(ALIBI_USAGE, "option 'free' of 'fox': %g of %lld heads is less than one", free,
                    (long long)c->heads);
    if (free_heads(c, p) == c->heads)
        return fail(ALIBI_USAGE, "option 'free' of 'fox': %g leaves no head with gates; use 'none'",
                    free);
    return ALIBI_OK;
}

/* b with -log f = ln(1 + e^-b) = 1 / T. */
static double initial(const struct alibi_config *c, const struct position *p, int64_t row,
                      int64_t h, double uniform)
{
    int64_t gates = c->heads - free_heads(c, p);
    double place = gates > 1 ? (double)h / (double)(gates - 1) : 0.5;
    double T = 2.0 * pow((double)(c->train_length > 1 ? c->train_length : 2), place);

    (void)row, (void)uniform;
    return -log(expm1(1.0 / T));
}

/* T of the gate where x does not move it. */
static double shown(const struct position *p, int64_t row, double weight)
{
    (void)p, (void)row;
    return 1.0 / log1p(exp(-weight));
}

static const char *number(const struct position *p, int64_t row)
{
    (void)p, (void)row;
    return "gate_tokens";
}

const struct position_method position_fox = {
    .name = "fox",
    .summary = "gates that depend on the text take weight from all tokens before them",
    .acts_on = POSITION_SCORES,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .check = check,
    .bias = BIAS_GATE,
    .free_heads = free_heads,
    .initial = initial,
    .number = number,
    .shown = shown,
};
