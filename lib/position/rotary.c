/* rotary.c - rotated queries and keys
 *
 *   pair n of every head of q and k is rotated by  position * base^(-2n / D),   n = 0 .. D/2 - 1
 *
 * Su et al. (2021). q_i . k_j then depends on positions through i - j alone. Values are not
 * rotated. The option layout says which elements form pair n: (n, n + D/2) for halves, (2n,
 * 2n + 1) for pairs.
 *
 * With `share` only that share of the pairs is rotated, the fastest ones; the others carry no
 * position (p-RoPE: Barbero et al., 2024, arXiv 2410.06205). */
#include <math.h>

#include "position/position.h"

struct options {
    double base;
    int layout;   /* enum alibi_rotary_layout */
    double share; /* of the pairs that are rotated */
};

#define AT(field) offsetof(struct options, field)

static const struct alibi_option options[] = {
    { "base", ALIBI_OPTION_REAL, AT(base), 1, 1e12, NULL, "10000", "X", "base of the angles" },
    { "layout", ALIBI_OPTION_CHOICE, AT(layout), 0, 0, "halves|pairs", "halves", "NAME",
      "which elements are rotated together" },
    { "share", ALIBI_OPTION_REAL, AT(share), 0, 1, NULL, "1", "X",
      "share of each head that is rotated, its fastest pairs" },
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
    return ALIBI_OK;
}

/* Angles in double: a float angle at position 100000 would be off by up to 4e-3. */
static void row(const struct alibi_config *c, const struct position *p, int64_t position, float *to)
{
    int64_t D = c->width / c->heads, half = D / 2, rotated = rotated_pairs(c, p);

    for (int64_t n = 0; n < half; n++) {
        double frequency = n < rotated ? pow(own(p)->base, -2.0 * (double)n / (double)D) : 0.0;
        double angle = (double)position * frequency;
        to[n] = (float)cos(angle);
        to[half + n] = (float)sin(angle);
    }
}

static int layout(const struct position *p)
{
    return own(p)->layout;
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
};
