/* learned.c - a trained vector per position
 *
 *   x_p = embedding(token_p) + weight[p]          p < max_length
 *
 * Inputs longer than the table are refused. */
#include "position/position.h"

struct options {
    int64_t max_length;
};

static const struct alibi_option options[] = {
    { "max-length", ALIBI_OPTION_INT, offsetof(struct options, max_length), 1, 1 << 24, NULL, "1",
      "N", "rows of the table" },
};

static void defaults(const struct alibi_config *c, void *own)
{
    *(struct options *)own = (struct options){ .max_length = c->max_length };
}

static int64_t longest(const struct position *p)
{
    return ((const struct options *)p->own)->max_length;
}

static void parameter_shape(const struct alibi_config *c, const struct position *p,
                            int64_t shape[2])
{
    shape[0] = longest(p);
    shape[1] = c->width;
}

const struct position_method position_learned = {
    .name = "learned",
    .summary = "adds a trained vector per position; ends at its table",
    .acts_on = POSITION_EMBEDDING,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .defaults = defaults,
    .longest = longest,
    .parameter_shape = parameter_shape,
};
