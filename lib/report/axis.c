/* axis.c - from values to places: 0 at the start of an axis, 1 at its end */
#include <math.h>

#include "report/parts.h"

/* Values beyond this are taken as missing: differences and ratios of the rest cannot overflow. */
static const double largest = 1e150, smallest_log = 1e-150;

static bool usable(double value, bool log)
{
    return isfinite(value) && fabs(value) <= largest && (!log || value >= smallest_log);
}

bool has_point(const struct series *s, int i, const struct axis *x, const struct axis *y)
{
    return usable(s->x[i], x->log) && usable(s->y[i], y->log);
}

double axis_place(const struct axis *axis, double value)
{
    if (axis->log)
        return (log(value) - log(axis->from)) / (log(axis->to) - log(axis->from));
    return (value - axis->from) / (axis->to - axis->from);
}

static void include(struct axis *axis, double value)
{
    if (value < axis->from)
        axis->from = value;
    if (value > axis->to)
        axis->to = value;
}

/* A range that is a single value gets room on both sides. */
static void widen(struct axis *axis)
{
    double middle = axis->from, room = middle == 0 ? 1 : fabs(middle) / 4;

    if (axis->log && axis->to / axis->from < 1 + 1e-6) {
        axis->from = middle / 1.25;
        axis->to = middle * 1.25;
    } else if (!axis->log && axis->to - axis->from <= 1e-6 * fabs(axis->to)) {
        axis->from = middle - room;
        axis->to = middle + room;
    }
}

/* Curves keep a little distance from top and bottom. */
static void pad(struct axis *y)
{
    double margin = 0.04;

    if (y->log) {
        double factor = pow(y->to / y->from, margin);
        y->from /= factor;
        y->to *= factor;
    } else {
        double room = (y->to - y->from) * margin;
        y->from -= room;
        y->to += room;
    }
}

static bool find_ranges(const struct chart *c, struct axis *x, struct axis *y)
{
    for (int s = 0; s < c->count; s++)
        for (int i = 0; i < c->series[s].count; i++)
            if (has_point(&c->series[s], i, x, y)) {
                include(x, c->series[s].x[i]);
                include(y, c->series[s].y[i]);
            }
    return x->from <= x->to;
}

static void include_given(const struct chart *c, struct axis *y)
{
    if (c->y_least > 0 && usable(c->y_least, c->log_y))
        include(y, c->y_least);
    if (c->y_most > 0 && usable(c->y_most, c->log_y))
        include(y, c->y_most);
}

/* The axis ends at the limit if values lie beyond it and any lies below. */
static void limit(struct axis *y, double most)
{
    if (most > y->from && most < y->to)
        y->to = most;
}

bool chart_axes(const struct chart *c, struct axis *x, struct axis *y)
{
    *x = (struct axis){ .from = INFINITY, .to = -INFINITY, .log = c->log_x };
    *y = (struct axis){ .from = INFINITY, .to = -INFINITY, .log = c->log_y };
    if (!find_ranges(c, x, y))
        return false;
    if (usable(c->mark_x, c->log_x))
        include(x, c->mark_x);
    include_given(c, y);
    limit(y, c->y_limit);
    widen(x);
    widen(y);
    pad(y);
    if (c->from_zero && !c->log_y && y->to > 0)
        y->from = 0;
    (x->log ? ticks_powers_of_two : ticks_even)(x);
    (y->log ? ticks_decades : ticks_even)(y);
    return true;
}

/* One side of Liang and Barsky's clipping: keeps the part of t0..t1 where start + t * change >= 0.
 * */
static bool clip_side(double start, double change, double *t0, double *t1)
{
    double t;

    if (change == 0)
        return start >= 0;
    t = -start / change;
    if (change > 0 && t > *t0)
        *t0 = t;
    if (change < 0 && t < *t1)
        *t1 = t;
    return *t0 <= *t1;
}

bool clip_segment(struct segment *s)
{
    double dx = s->x1 - s->x0, dy = s->y1 - s->y0, t0 = 0, t1 = 1;
    struct segment whole = *s;

    if (!clip_side(s->x0, dx, &t0, &t1) || !clip_side(1 - s->x0, -dx, &t0, &t1))
        return false;
    if (!clip_side(s->y0, dy, &t0, &t1) || !clip_side(1 - s->y0, -dy, &t0, &t1))
        return false;
    *s = (struct segment){ whole.x0 + t0 * dx, whole.y0 + t0 * dy, whole.x0 + t1 * dx,
                           whole.y0 + t1 * dy };
    return true;
}
