/* alibi.c - attention with linear biases
 *
 *   score(i, j) += -m_h * (i - j)          for j <= i
 *
 * Press, Smith, Lewis (ICLR 2022), section 3. The slopes m_h are fixed; nothing is learned unless
 * train-slopes asks for a factor per head, which multiplies its slope. The bias is formed from the
 * integer distance, so it is 0 on the diagonal and does not grow less exact with the position.
 *
 * With `free` a share of the heads, the last ones, has slope 0, and the others have the slopes of a
 * model with only those heads. The free heads see all distances alike. Longer inputs dilute their
 * weights; logn corrects that, and acts on them alone.
 *
 * A model can be tested with slopes stretched by a factor s:
 *
 *   linear   m_h / s, all distances shrink                     Al-Khateeb et al. (arXiv 2310.13017)
 *   ntk      m_h s^-e_h, e_h = ln(m_max / m_h) / ln(m_max / m_min): the steepest head stays, the
 *            flattest is divided by s, as the frequencies of rotary are by stretch=ntk */
#include <math.h>

#include "position/position.h"

struct options {
    double bias_max;   /* the slopes end at 2^-bias_max */
    bool train_slopes; /* they start there, and are trained */
    double free;       /* share of the heads without a slope */
    bool scaled;       /* slopes are divided by sqrt(D), as the scores are */
    int stretch;       /* enum stretch */
    double factor;
};

enum stretch { STRETCH_NONE, STRETCH_LINEAR, STRETCH_NTK };

#define AT(field) offsetof(struct options, field)

static const struct alibi_option options[] = {
    { "bias-max", ALIBI_OPTION_REAL, AT(bias_max), 0, 64, NULL, "8", "X",
      "the slopes end at 2^-X" },
    { "train-slopes", ALIBI_OPTION_FLAG, AT(train_slopes), 0, 0, NULL, "false", NULL,
      "train the slopes, the same in all its layers" },
    { "free", ALIBI_OPTION_REAL, AT(free), 0, 1, NULL, "0", "X",
      "share of the heads that have no slope" },
    { "scaled", ALIBI_OPTION_FLAG, AT(scaled), 0, 0, NULL, "false", NULL,
      "divide slopes by the root of the head width, as Falcon-RW does" },
    { "stretch", ALIBI_OPTION_CHOICE, AT(stretch), 0, 0, "none|linear|ntk", "none", "NAME",
      "how slopes are stretched, for tests past the training length" },
    { "factor", ALIBI_OPTION_REAL, AT(factor), 1, 1e6, NULL, "1", "X",
      "by how much slopes are stretched" },
};

static void defaults(const struct alibi_config *c, void *own)
{
    struct options *o = own;

    o->bias_max = c->bias_max;
    o->train_slopes = c->train_slopes;
}

static const struct options *own(const struct position *p)
{
    return (const struct options *)p->own;
}

static int64_t free_heads(const struct alibi_config *c, const struct position *p)
{
    return (int64_t)llround(own(p)->free * (double)c->heads);
}

static alibi_status check(const struct alibi_config *c, const struct position *p)
{
    if (own(p)->free > 0 && free_heads(c, p) == 0)
        return fail(ALIBI_USAGE, "option 'free' of 'alibi': %g of %lld heads is less than one",
                    own(p)->free, (long long)c->heads);
    if (own(p)->stretch == STRETCH_NONE && own(p)->factor > 1)
        return fail(ALIBI_USAGE,
                    "option 'factor' of 'alibi' has no effect without stretch=linear or ntk");
    if (own(p)->stretch != STRETCH_NONE && own(p)->factor == 1)
        return fail(ALIBI_USAGE,
                    "option 'stretch' of 'alibi' has no effect without a factor: add factor=16 for "
                    "16 times the length");
    return ALIBI_OK;
}

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
float alibi_slope(int64_t heads, double bias_max, int64_t h)
{
    int64_t power = floor_power_of_two(heads);
    double step = bias_max / (double)power;

    if (h < power)
        return (float)exp2(-step * (double)(h + 1));
    return (float)exp2(-step * ((double)(h - power) + 0.5));
}

static float stretched_slope(const struct alibi_config *c, const struct position *p, int64_t h)
{
    const struct options *o = own(p);
    int64_t biased = c->heads - free_heads(c, p);
    float m = h < biased ? alibi_slope(biased, o->bias_max, h) : 0.0f, steepest = m, flattest = m;

    if (o->stretch == STRETCH_NONE || m == 0)
        return m;
    for (int64_t i = 0; i < biased; i++) {
        steepest = fmaxf(steepest, alibi_slope(biased, o->bias_max, i));
        flattest = fminf(flattest, alibi_slope(biased, o->bias_max, i));
    }
    if (o->stretch == STRETCH_LINEAR || steepest == flattest)
        return (float)((double)m / o->factor);
    return (float)((double)m * pow(o->factor, -log((double)(steepest / m)) /
                                                  log((double)(steepest / flattest))));
}

static float slope(const struct alibi_config *c, const struct position *p, int64_t h)
{
    float m = stretched_slope(c, p, h);

    return own(p)->scaled ? (float)((double)m / sqrt((double)(c->width / c->heads))) : m;
}

static void parameter_shape(const struct alibi_config *c, const struct position *p,
                            int64_t shape[2])
{
    shape[0] = own(p)->train_slopes ? 1 : 0;
    shape[1] = c->heads;
}

const struct position_method position_alibi = {
    .name = "alibi",
    .summary = "subtracts a fixed slope per head times the distance from the scores",
    .acts_on = POSITION_SCORES,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .defaults = defaults,
    .check = check,
    .parameter_shape = parameter_shape,
    .bias = BIAS_LINEAR,
    .slope = slope,
    .free_heads = free_heads,
};

const struct position_preset position_alibi_free = {
    .name = "alibi-free",
    .summary = "half of the heads alibi, half without positions and scaled by logn",
    .pattern = "alibi:logn:free=0.5",
};
