/* schedule.c - the learning rate of a step
 *
 *   warm-up    lr * step / warmup                      step <= warmup, steps count from 1
 *   after it   min_lr + (lr - min_lr) * shape(p)       p = (step - 1 - start) / (steps - start)
 *
 *   cosine     (1 + cos(pi p)) / 2                     start = warmup
 *   linear     1 - p                                   start = warmup
 *   constant   1
 *   wsd        1 until start, then 1 - p               start = steps - decay_share * steps
 *
 * 0 <= p < 1: the first step of a shape has the full rate, and min_lr would be reached one step
 * after the last, so no step is spent on a rate of zero. */
#include <math.h>

#include "train/train.h"

/* The step after which the rate falls. */
static int64_t fall_start(const struct alibi_training *t)
{
    int64_t start = t->warmup;

    if (t->schedule == ALIBI_WSD)
        start = t->steps - (int64_t)llround(t->decay_share * (double)t->steps);
    return start > t->warmup ? start : t->warmup;
}

/* cos^2(pi p / 2) is (1 + cos(pi p)) / 2 without the cancellation near the end. */
static double shape(int schedule, double p)
{
    double c = cos(M_PI / 2 * p);

    switch (schedule) {
    case ALIBI_COSINE:
        return c * c;
    case ALIBI_CONSTANT:
        return 1;
    default:
        return 1 - p;
    }
}

double schedule_lr(const struct alibi_training *t, int64_t step)
{
    int64_t start = fall_start(t);

    if (step <= t->warmup)
        return t->lr * (double)step / (double)t->warmup;
    if (step <= start)
        return t->lr;
    return t->min_lr + (t->lr - t->min_lr) * shape(t->schedule, (double)(step - 1 - start) /
                                                                    (double)(t->steps - start));
}
