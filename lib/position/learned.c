/* learned.c - a trained vector per position
 *
 *   x_p = embedding(token_p) + weight[p]          p < max_length
 *
 * The table ends at max_length, and there is nothing beyond it to read: longer inputs are
 * refused. */
#include "position/position.h"

static int64_t longest(const struct alibi_config *c)
{
    return c->max_length;
}

static void parameter_shape(const struct alibi_config *c, int64_t shape[2])
{
    shape[0] = c->max_length;
    shape[1] = c->width;
}

const struct position_method position_learned = {
    .name = "learned",
    .summary = "adds a trained vector per position; ends at its table",
    .acts_on = POSITION_EMBEDDING,
    .longest = longest,
    .parameter_shape = parameter_shape,
};
