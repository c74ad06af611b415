/* sinusoidal.c - fixed sines and cosines
 *
 *   x_p = embedding(token_p) + row_p
 *   row_p = sin(p w_0) .. sin(p w_{n-1}), cos(p w_0) .. cos(p w_{n-1})
 *   w_k = 10000^(-k / (n - 1)),   n = C/2
 *
 * Vaswani et al. (2017), section 3.5, in the layout of the code that Press et al. used: all sines,
 * then all cosines. The first paper interleaves them, which permutes the width. The slowest wave
 * has exactly the frequency 1/10000. Positions count from 0. If the width is odd, its last column
 * is 0. */
#include <math.h>

#include "position/position.h"

/* With a single wave the formula is 0/0: it is the fastest one, as every first wave is. */
static double frequency(int64_t k, int64_t waves)
{
    return waves > 1 ? exp(-(double)k * log(10000.0) / (double)(waves - 1)) : 1.0;
}

/* The angle grows with the position, so it is computed in double, and only its sine and cosine are
 * rounded. */
static void row(const struct alibi_config *c, const struct position *p, int64_t position, float *to)
{
    int64_t waves = c->width / 2;

    (void)p;
    for (int64_t k = 0; k < waves; k++) {
        double angle = (double)position * frequency(k, waves);
        to[k] = (float)sin(angle);
        to[waves + k] = (float)cos(angle);
    }
    if (c->width > 2 * waves)
        to[2 * waves] = 0.0f;
}

const struct position_method position_sinusoidal = {
    .name = "sinusoidal",
    .summary = "adds fixed sines and cosines of the position to the embedding",
    .acts_on = POSITION_EMBEDDING,
    .row = row,
};
