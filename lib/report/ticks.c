/* ticks.c - few marks at round values */
#include <math.h>

#include "report/parts.h"

/* Rounding in logarithms and quotients must not push a tick off the end of its axis. */
static const double slack = 1e-9;

enum { TICKS_WANTED = 7 };

static void add_tick(struct axis *axis, double value)
{
    if (axis->ticks < TICKS_MAX)
        axis->tick[axis->ticks++] = value;
}

/* The smallest of 1, 2, 5 times a power of ten that is at least `least`. */
static double round_step(double least)
{
    double power = pow(10, floor(log10(least)));

    for (int i = 0; i < 3; i++) {
        static const double factors[] = { 1, 2, 5 };
        if (factors[i] * power >= least * (1 - slack))
            return factors[i] * power;
    }
    return 10 * power;
}

/* Steps of at least a fifth of the range: two to six ticks. */
void ticks_even(struct axis *axis)
{
    double step = round_step((axis->to - axis->from) / 5);
    double first = ceil(axis->from / step - slack), last = floor(axis->to / step + slack);

    axis->ticks = 0;
    for (double i = first; i <= last && axis->ticks < TICKS_MAX; i++)
        add_tick(axis, i * step);
}

/* Every n-th power of two, counted from the largest, which is the one people look for. */
void ticks_powers_of_two(struct axis *axis)
{
    int first = (int)ceil(log2(axis->from) - slack), last = (int)floor(log2(axis->to) + slack);
    int stride = (last - first) / (TICKS_WANTED + 1) + 1;

    axis->ticks = 0;
    for (int e = last - (last - first) / stride * stride; e <= last; e += stride)
        add_tick(axis, exp2(e));
    if (axis->ticks < 2)
        ticks_even(axis);
}

static bool within(const struct axis *axis, double value)
{
    return value >= axis->from * (1 - slack) && value <= axis->to * (1 + slack);
}

/* The given factors of every stride-th power of ten. */
static int count_decades(struct axis *axis, const double *factors, int count, int stride, bool add)
{
    int first = (int)floor(log10(axis->from)), last = (int)ceil(log10(axis->to)), found = 0;

    for (int e = (int)ceil((double)first / stride) * stride; e <= last; e += stride)
        for (int i = 0; i < count; i++)
            if (within(axis, factors[i] * pow(10, e))) {
                found++;
                if (add)
                    add_tick(axis, factors[i] * pow(10, e));
            }
    return found;
}

/* The densest of 1-2-5, 1-3 and 1 per decade that gives few enough; a range with too few round
 * values is divided evenly. */
void ticks_decades(struct axis *axis)
{
    static const double one_two_five[] = { 1, 2, 5 }, one_three[] = { 1, 3 }, one[] = { 1 };
    int stride = 1;

    axis->ticks = 0;
    if (count_decades(axis, one_two_five, 3, 1, false) < 3) {
        ticks_even(axis);
    } else if (count_decades(axis, one_two_five, 3, 1, false) <= TICKS_WANTED) {
        count_decades(axis, one_two_five, 3, 1, true);
    } else if (count_decades(axis, one_three, 2, 1, false) <= TICKS_WANTED) {
        count_decades(axis, one_three, 2, 1, true);
    } else {
        while (count_decades(axis, one, 1, stride, false) > TICKS_WANTED)
            stride++;
        count_decades(axis, one, 1, stride, true);
    }
}

struct shown tick_shown(const struct axis *axis, int i)
{
    double step = INFINITY;

    for (int k = 1; k < axis->ticks; k++)
        step = fmin(step, axis->tick[k] - axis->tick[k - 1]);
    return show_tick(axis->tick[i], isfinite(step) ? step : 0);
}

int ticks_width(const struct axis *axis)
{
    int widest = 1;

    for (int i = 0; i < axis->ticks; i++) {
        int width = display_width(tick_shown(axis, i).text);
        widest = width > widest ? width : widest;
    }
    return widest;
}
