/* rotary.c - rotated queries and keys
 *
 *   pair n of every head of q and k is rotated by  position * base^(-2n / D),   n = 0 .. D/2 - 1
 *
 * Su et al. (2021). q_i . k_j then depends on positions through i - j alone. Values are not
 * rotated. The option rotary_layout says which elements form pair n: (n, n + D/2) for halves, (2n,
 * 2n + 1) for pairs. */
#include <math.h>

#include "position/position.h"

static alibi_status check(const struct alibi_config *c)
{
    int64_t D = c->width / c->heads;

    if (D % 2 != 0)
        return fail(
            ALIBI_USAGE,
            "position method 'rotary' rotates pairs and needs an even head width: width %lld / "
            "heads %lld is %lld",
            (long long)c->width, (long long)c->heads, (long long)D);
    return ALIBI_OK;
}

/* Angles in double: a float angle at position 100000 would be off by up to 4e-3. */
static void row(const struct alibi_config *c, int64_t position, float *to)
{
    int64_t D = c->width / c->heads, half = D / 2;

    for (int64_t n = 0; n < half; n++) {
        double angle = (double)position * pow(c->rotary_base, -2.0 * (double)n / (double)D);
        to[n] = (float)cos(angle);
        to[half + n] = (float)sin(angle);
    }
}

const struct position_method position_rotary = {
    .name = "rotary",
    .summary = "rotates queries and keys by angles that grow with the position",
    .acts_on = POSITION_ROTATION,
    .check = check,
    .row = row,
};
