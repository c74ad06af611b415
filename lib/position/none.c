/* none.c - no position at all
 *
 * Only the causal mask distinguishes positions: the baseline of every comparison. */
#include "position/position.h"

const struct position_method position_none = {
    .name = "none",
    .summary = "no position information except the causal mask: the baseline",
    .acts_on = POSITION_NOWHERE,
};
