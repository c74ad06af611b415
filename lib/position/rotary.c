/* rotary.c - rotated queries and keys
 *
 *   pair n of every head of q and k is rotated by  position * base^(-2n / D),   n = 0 .. D/2 - 1
 *
 * Su et al. (2021). q_i . k_j then depends on positions through i - j alone. Values are not
 * rotated. The option layout says which elements form pair n: (n, n + D/2) for halves, (2n,
 * 2n + 1) for pairs.
 *
 * A model that was trained at length L can be tested with angles stretched by a factor s, frequency
 * w_n = base^(-2n / D), of which pair n makes r = L w_n / 2pi turns within the training length:
 *
 *   pi     w_n / s                                             Chen et al. (2023, arXiv 2306.15595)
 *   ntk    base s^(D / (D - 2)) for base: pair 0 keeps w_0, the last gets w_n / s
 *   yarn   w_n (g + (1 - g) / s), g = (r - 1) / 31 within 0..1, and q and k times 1 + 0.1 ln s
 *                                                              Peng et al. (2023, arXiv 2309.00071)
 *   llama3 the same with g = (r - 1) / 3, and q and k as they are     Llama 3.1 (2024)
 *
 * With `tau` scores have a factor and a bias by distance (scale_invariant.c).
 *
 * With `until` layers rotate for that share of the steps of a training, and have no position after
 * it (drope.c).
 *
 * With `share` only that share of the pairs is rotated, the fastest ones; the others carry no
 * position (p-RoPE: Barbero et al., 2024, arXiv 2410.06205). With `spread` the R rotated pairs have
 * the frequencies of a head of R pairs, base^(-n / R), as in GPT-NeoX. */
#include <math.h>

#include "position/position.h"

struct options {
    double base;
    int layout;   /* enum alibi_rotary_layout */
    double share; /* of the pairs that are rotated */
    bool spread;  /* these have the frequencies of a whole head */
    int stretch;  /* enum stretch */
    double factor;
    double until;     /* share of the training steps */
    int64_t original; /* length at which turns are counted; 0: the training length */
    double tau;       /* 0: scores have no factor */
};

_Static_assert(sizeof(struct options) <= POSITION_OWN_BYTES, "the options of a method fit");

enum stretch { STRETCH_NONE, STRETCH_PI, STRETCH_NTK, STRETCH_YARN, STRETCH_LLAMA3 };

#define AT(field) offsetof(struct options, field)

static const struct alibi_option options[] = {
    { "base", ALIBI_OPTION_REAL, AT(base), 1, 1e12, NULL, "10000", "X", "base of the angles" },
    { "layout", ALIBI_OPTION_CHOICE, AT(layout), 0, 0, "halves|pairs", "halves", "NAME",
      "which elements are rotated together" },
    { "share", ALIBI_OPTION_REAL, AT(share), 0, 1, NULL, "1", "X",
      "share of each head that is rotated, its fastest pairs" },
    { "spread", ALIBI_OPTION_FLAG, AT(spread), 0, 0, NULL, "false", NULL,
      "with share: the rotated pairs have the angles of a whole head, as in GPT-NeoX" },
    { "stretch", ALIBI_OPTION_CHOICE, AT(stretch), 0, 0, "none|pi|ntk|yarn|llama3", "none", "NAME",
      "how angles are stretched, for tests past the training length" },
    { "factor", ALIBI_OPTION_REAL, AT(factor), 1, 1e6, NULL, "1", "X",
      "by how much angles are stretched" },
    { "until", ALIBI_OPTION_REAL, AT(until), 0, 1, NULL, "1", "X",
      "share of the training steps after which its layers have no position" },
    { "original", ALIBI_OPTION_INT, AT(original), 0, 1 << 24, NULL, "0", "N",
      "yarn, llama3: length before the model was trained further; 0: the training length" },
    { "tau", ALIBI_OPTION_REAL, AT(tau), 0, 1e9, NULL, "0", "X",
      "scores by distance are scale-invariant beyond X; 0: off" },
};

static void defaults(const struct alibi_config *c, void *own)
{
    struct options *o = own;

    o->base = c->rotary_base;
    o->layout = c->rotary_layout;
}

static const struct options *own(const struct position *p)
{
    return (const struct options *)p->own;
}

static int64_t rotated_pairs(const struct alibi_config *c, const struct position *p)
{
    return (int64_t)llround(own(p)->share * (double)(c->width / c->heads / 2));
}

static int64_t length_before(const struct alibi_config *c, const struct options *o)
{
    return o->original > 0 ? o->original : c->train_length;
}

static alibi_status check(const struct alibi_config *c, const struct position *p)
{
    int64_t D = c->width / c->heads;

    if (D % 2 != 0)
        return fail(
            ALIBI_USAGE,
            "position method 'rotary' rotates pairs and needs an even head width: width %lld / "
            "heads %lld is %lld",
            (long long)c->width, (long long)c->heads, (long long)D);
    if (rotated_pairs(c, p) < 1)
        return fail(ALIBI_USAGE,
                    "option 'share' of 'rotary': %g of the %lld pairs of a head is less than one",
                    own(p)->share, (long long)D / 2);
    if (own(p)->stretch == STRETCH_NONE && own(p)->factor > 1)
        return fail(ALIBI_USAGE,
                    "option 'factor' of 'rotary' has no effect without a stretch: pi, ntk, yarn or "
                    "llama3");
    if (own(p)->stretch != STRETCH_NONE && own(p)->factor == 1)
        return fail(ALIBI_USAGE,
                    "option 'stretch' of 'rotary' has no effect without a factor: add factor=16 "
                    "for 16 times the length");
    if (own(p)->stretch == STRETCH_NTK && (own(p)->spread ? 2 * rotated_pairs(c, p) : D) < 4)
        return fail(ALIBI_USAGE, "stretch=ntk of 'rotary' needs heads of 4 numbers or more");
    if (own(p)->stretch >= STRETCH_YARN && length_before(c, own(p)) < 1)
        return fail(ALIBI_USAGE, "stretch=%s of 'rotary' needs the training length of the model",
                    own(p)->stretch == STRETCH_YARN ? "yarn" : "llama3");
    return ALIBI_OK;
}

static double frequency(const struct alibi_config *c, const struct position *p, int64_t n)
{
    const struct options *o = own(p);
    double D = o->spread ? 2.0 * (double)rotated_pairs(c, p) : (double)(c->width / c->heads);
    double s = o->factor;
    double w = pow(o->base, -2.0 * (double)n / D), turns, kept;

    switch (o->stretch) {
    case STRETCH_PI:
        return w / s;
    case STRETCH_NTK:
        return pow(o->base * pow(s, D / (D - 2)), -2.0 * (double)n / D);
    case STRETCH_YARN:
    case STRETCH_LLAMA3:
        turns = (double)length_before(c, o) * w / (2 * M_PI);
        kept = fmin(fmax((turns - 1) / (o->stretch == STRETCH_YARN ? 31 : 3), 0), 1);
        return w * (kept + (1 - kept) / s);
    default:
        return w;
    }
}

/* Angles in double: a float angle at position 100000 would be off by up to 4e-3. */
static void row(const struct alibi_config *c, const struct position *p, int64_t position, float *to)
{
    int64_t half = c->width / c->heads / 2, rotated = rotated_pairs(c, p);
    double size = own(p)->stretch == STRETCH_YARN ? 1 + 0.1 * log(own(p)->factor) : 1.0;

    for (int64_t n = 0; n < half; n++) {
        double angle = n < rotated ? (double)position * frequency(c, p, n) : 0.0;
        to[n] = (float)(size * cos(angle));
        to[half + n] = (float)(size * sin(angle));
    }
}

static int layout(const struct position *p)
{
    return own(p)->layout;
}

static double until(const struct position *p)
{
    return own(p)->until;
}

static double tau(const struct position *p)
{
    return own(p)->tau;
}

const struct position_method position_rotary = {
    .name = "rotary",
    .summary = "rotates queries and keys by angles that grow with the position",
    .acts_on = POSITION_ROTATION,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .defaults = defaults,
    .check = check,
    .row = row,
    .layout = layout,
    .until = until,
    .tau = tau,
};
