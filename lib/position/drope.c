/* drope.c - rotary for most of the training, then no positions
 *
 *   step s <= until * steps    rotary
 *   step s >  until * steps    none
 *
 * Gelberg et al. 2025 (DroPE, arXiv 2512.12167): positions make training fast, but fail past the
 * training length. The final model has none, and needs only the last part of its steps to learn to
 * do without them. */
#include "position/position.h"

const struct position_preset position_drope = {
    .name = "drope",
    .summary = "rotary for 87.5% of the steps, then no positions",
    .pattern = "rotary:until=0.875",
};
