/* none.c - no position at all
 *
 * The causal mask is the only thing that tells positions apart: the control of every comparison. */
#include "position/position.h"

const struct position_method position_none = {
    .name = "none",
    .summary = "no position information except the causal mask: the control",
    .acts_on = POSITION_NOWHERE,
};
