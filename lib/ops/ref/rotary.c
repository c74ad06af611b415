/* rotary.c
 *
 *   (a, b) <- (a cos t - b sin t, a sin t + b cos t)     t = angle of (row, pair)
 *
 * Rotating back is the same with -t: that is also the backward pass, a rotation's transpose being
 * its inverse. */
#include "ops/ref/ref.h"

/* One head of D numbers from `first` on; its angles start at `row` of the table. */
static void rotate(struct tensor x, int64_t first, int64_t D, struct rotation r, int64_t row,
                   int direction)
{
    int64_t half = D / 2;

    for (int64_t n = 0; n < half; n++) {
        int64_t at_a = first + (r.layout == ALIBI_ROTARY_HALVES ? n : 2 * n);
        int64_t at_b = r.layout == ALIBI_ROTARY_HALVES ? at_a + half : at_a + 1;
        double a = get(x, at_a), b = get(x, at_b);
        double cosine = get(r.table, row + n), sine = direction * get(r.table, row + half + n);
        set(x, at_a, a * cosine - b * sine);
        set(x, at_b, a * sine + b * cosine);
    }
}

alibi_status ref_rotary(struct device *dev, struct tensor x, struct rotation r, int direction)
{
    int64_t B = x.shape[0], L = x.shape[1], H = x.shape[2], D = x.shape[3];

    (void)dev;
    for (int64_t b = 0; b < B; b++)
        for (int64_t l = 0; l < L; l++)
            for (int64_t h = 0; h < H; h++)
                rotate(x, head_at(x, b, l, h), D, r, l * D, direction);
    return ALIBI_OK;
}
