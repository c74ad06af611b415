/* rotary.c - rotated queries and keys
 *
 *   pair n of every head of q and k is rotated by  position * base^(-2n / D),   n = 0 .. D/2 - 1
 *
 * Su et al. (2021). q_i . k_j then depends on positions through i - j alone. Values are not
 * rotated. The option layout says which elements form pair n: (n, n + D/2) for halves, (2n,
 * 2n + 1) for pairs. */
#include <math.h>

#include "position/position.h"

struct options {
    double base;
    int layout; /* enum alibi_rotary_layout */
};

#define AT(field) offsetof(struct options, field)

static const struct alibi_option options[] = {
    { "base", ALIBI_OPTION_REAL, AT(base), 1, 1e12, NULL, "10000", "X", "base of the angles" },
    { "layout", ALIBI_OPTION_CHOICE, AT(layout), 0, 0, "halves|pairs", "halves", "NAME",
      "which elements are rotated together" },
};

static void defaults(const struct alibi_config *c, void *own)
{
    *(struct options *)own = (struct options){ .base = c->rotary_base, .layout = c->rotary_layout };
}

static const struct options *own(const struct position *p)
{
    return (const struct options *)p->own;
}

static alibi_status check(const struct alibi_config *c, const struct position *p)
{
    int64_t D = c->width / c->heads;

    (void)p;
    if (D % 2 != 0)
        return fail(
            ALIBI_USAGE,
            "position method 'rotary' rotates pairs and needs an even head width: width %lld / "
            "heads %lld is %lld",
            (long long)c->width, (long long)c->heads, (long long)D);
    return ALIBI_OK;
}

/* Angles in double: a float angle at position 100000 would be off by up to 4e-3. */
static void row(const struct alibi_config *c, const struct position *p, int64_t position, float *to)
{
    int64_t D = c->width / c->heads, half = D / 2;

    for (int64_t n = 0; n < half; n++) {
        double angle = (double)position * pow(own(p)->base, -2.0 * (double)n / (double)D);
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
