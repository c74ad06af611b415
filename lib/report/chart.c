/* chart.c - shared by both kinds of plot: axes, ticks, clipping, labels, looks */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/parts.h"

/* ---- axes */

/* Values beyond these are taken as missing, so that differences and ratios cannot overflow. */
static const double largest = 1e150, smallest_log = 1e-150;

static bool usable(double value, bool log)
{
    return isfinite(value) && fabs(value) <= largest && (!log || value >= smallest_log);
}

bool has_point(const struct series *s, int i, const struct axis *x, const struct axis *y)
{
    return usable(s->x[i], x->log) && usable(s->y[i], y->log);
}

struct shown chart_value(const struct chart *chart, double y)
{
    return chart->show != NULL ? chart->show(y) : show_ppl(y);
}

bool chart_has_mark(const struct chart *c)
{
    return isfinite(c->mark_x) && (!c->log_x || c->mark_x > 0);
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

/* ---- ticks */

/* Rounding in logarithms and quotients must not push a tick off the end of its axis. */
static const double slack = 1e-9;

enum { TICKS_WANTED = 7 };

static void add_tick(struct axis *axis, double value)
{
    if (axis->ticks < TICKS_MAX)
        axis->tick[axis->ticks++] = value;
}

/* Steps of 1, 2 or 5 times a power of ten, at least a fifth of the range, or one smaller if that
 * gives two ticks only: three to seven. */
static void ticks_even(struct axis *axis)
{
    static const double factors[] = { 1, 2, 5, 10 };
    double least = (axis->to - axis->from) / 5, power = pow(10, floor(log10(least)));
    int f = 0;

    while (f < 3 && factors[f] * power < least * (1 - slack))
        f++;
    do {
        double step = factors[f] * power, last = floor(axis->to / step + slack);

        axis->ticks = 0;
        for (double i = ceil(axis->from / step - slack); i <= last && axis->ticks < TICKS_MAX; i++)
            add_tick(axis, i * step);
    } while (axis->ticks < 3 && f-- > 0);
}

/* Every n-th power of two, counted from the largest, which readers look for first. If there are
 * only two, also the values halfway between powers: 384, 512, 768, 1024. */
void ticks_powers_of_two(struct axis *axis)
{
    int first = (int)ceil(log2(axis->from) - slack), last = (int)floor(log2(axis->to) + slack);
    int stride = (last - first) / (TICKS_WANTED + 1) + 1;

    axis->ticks = 0;
    for (int e = last - (last - first) / stride * stride; e <= last; e += stride)
        add_tick(axis, exp2(e));
    if (axis->ticks == 2) {
        axis->ticks = 0;
        for (int e = first - 1; e <= last; e++)
            for (int half = 2; half <= 3; half++) {
                double value = half * exp2(e - 1);

                if (value >= axis->from * (1 - slack) && value <= axis->to * (1 + slack))
                    add_tick(axis, value);
            }
    }
    if (axis->ticks < 2)
        ticks_even(axis);
}

/* Counts the given factors of every stride-th power of ten within the axis; adds them if told. */
static int count_decades(struct axis *axis, const double *factors, int count, int stride, bool add)
{
    int first = (int)floor(log10(axis->from)), last = (int)ceil(log10(axis->to)), found = 0;

    for (int e = (int)ceil((double)first / stride) * stride; e <= last; e += stride)
        for (int i = 0; i < count; i++) {
            double value = factors[i] * pow(10, e);
            if (value < axis->from * (1 - slack) || value > axis->to * (1 + slack))
                continue;
            found++;
            if (add)
                add_tick(axis, value);
        }
    return found;
}

/* The densest of 1-2-5, 1-3 and 1 per decade that gives few enough ticks. A range with too few
 * round values is divided evenly. */
void ticks_decades(struct axis *axis)
{
    static const double one_two_five[] = { 1, 2, 5 }, one_three[] = { 1, 3 }, one[] = { 1 };
    int dense = count_decades(axis, one_two_five, 3, 1, false), stride = 1;

    axis->ticks = 0;
    if (dense < 3) {
        ticks_even(axis);
    } else if (dense <= TICKS_WANTED) {
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

bool chart_axes(const struct chart *c, struct axis *x, struct axis *y)
{
    *x = (struct axis){ .from = INFINITY, .to = -INFINITY, .log = c->log_x };
    *y = (struct axis){ .from = INFINITY, .to = -INFINITY, .log = c->log_y };

    /* The range of all points, of the mark, and of y_least and y_most. */
    for (int s = 0; s < c->count; s++)
        for (int i = 0; i < c->series[s].count; i++)
            if (has_point(&c->series[s], i, x, y)) {
                include(x, c->series[s].x[i]);
                include(y, c->series[s].y[i]);
                if (c->zero && c->series[s].low != NULL && usable(c->series[s].low[i], c->log_y))
                    include(y, c->series[s].low[i]);
                if (c->zero && c->series[s].high != NULL && usable(c->series[s].high[i], c->log_y))
                    include(y, c->series[s].high[i]);
            }
    if (x->from > x->to)
        return false;
    if (c->zero && !c->log_y)
        include(y, 0);
    if (usable(c->mark_x, c->log_x))
        include(x, c->mark_x);
    if (c->y_least > 0 && usable(c->y_least, c->log_y))
        include(y, c->y_least);
    if (c->y_most > 0 && usable(c->y_most, c->log_y))
        include(y, c->y_most);

    /* The limit applies only if some values are above it and some below. */
    if (c->y_limit > 0 && c->y_limit > y->from && c->y_limit < y->to)
        y->to = c->y_limit;
    if (c->y_from < c->y_to) {
        y->from = c->y_from;
        y->to = c->y_to;
    }
    widen(x);
    widen(y);
    if (c->zero && y->from == 0)
        y->to *= 1.04; /* amounts begin at the axis */
    else
        pad(y);
    (x->log ? ticks_powers_of_two : ticks_even)(x);
    (y->log ? ticks_decades : ticks_even)(y);
    return true;
}

/* ---- clipping (Liang and Barsky) */

/* One side: keeps the part of t0..t1 where start + t * change >= 0. */
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
    double x0 = s->x0, y0 = s->y0, dx = s->x1 - x0, dy = s->y1 - y0, t0 = 0, t1 = 1;

    if (!clip_side(x0, dx, &t0, &t1) || !clip_side(1 - x0, -dx, &t0, &t1) ||
        !clip_side(y0, dy, &t0, &t1) || !clip_side(1 - y0, -dy, &t0, &t1))
        return false;
    *s = (struct segment){ x0 + t0 * dx, y0 + t0 * dy, x0 + t1 * dx, y0 + t1 * dy };
    return true;
}

bool series_segment(struct segment *out, const struct series *s, int i, const struct axis *x,
                    const struct axis *y)
{
    if (!has_point(s, i - 1, x, y) || !has_point(s, i, x, y))
        return false;
    *out = (struct segment){ axis_place(x, s->x[i - 1]), axis_place(y, s->y[i - 1]),
                             axis_place(x, s->x[i]), axis_place(y, s->y[i]) };
    return clip_segment(out);
}

bool series_leaves(struct segment *out, const struct series *s, int i, const struct axis *x,
                   const struct axis *y)
{
    double place = has_point(s, i, x, y) ? axis_place(y, s->y[i]) : 0.5;

    return (place < 0 || place > 1) && series_segment(out, s, i, x, y);
}

/* ---- labels */

/* Curves that end in the same place keep their order. */
static int from_the_top(const void *a, const void *b)
{
    const struct label *p = a, *q = b;

    if (p->y != q->y)
        return p->y > q->y ? -1 : 1;
    return p->series - q->series;
}

int chart_labels(struct label labels[SERIES_MAX], const struct chart *chart, const struct axis *x,
                 const struct axis *y)
{
    int count = 0;
    double end = 0;

    for (int k = 0; k < chart->count; k++) {
        const struct series *s = &chart->series[k];
        int last = s->count - 1;
        double place;

        while (last >= 0 && !has_point(s, last, x, y))
            last--;
        if (last < 0)
            continue;
        place = axis_place(y, s->y[last]);
        labels[count] = (struct label){ .series = k,
                                        .x = axis_place(x, s->x[last]),
                                        .y = fmin(fmax(place, 0), 1),
                                        .above = place > 1,
                                        .below = place < 0,
                                        .last_x = s->x[last],
                                        .last_y = s->y[last] };
        end = fmax(end, labels[count++].x);
    }
    for (int i = 0; i < count; i++)
        labels[i].early = labels[i].x < end - 1e-6;
    qsort(labels, (size_t)count, sizeof *labels, from_the_top);
    return count;
}

/* A pass from the top pushes labels down; a pass from the bottom pushes back those beyond the end.
 * If there is no room for all gaps, the gaps shrink. */
void labels_spread(struct label *labels, int count, double gap, double size)
{
    double room = count > 1 ? fmin(gap, size / (count - 1)) : gap;

    for (int i = 0; i < count; i++) {
        double wanted = (1 - labels[i].y) * size;
        labels[i].at = i > 0 ? fmax(wanted, labels[i - 1].at + room) : wanted;
    }
    for (int i = count - 1; i >= 0; i--) {
        double most = i < count - 1 ? labels[i + 1].at - room : size;
        labels[i].at = fmin(labels[i].at, most);
    }
}

struct label_text label_text(const struct chart *chart, const struct label *label, int width)
{
    const char *name = chart->series[label->series].name;
    int bytes = cut_bytes(name, width);
    bool early = label->early && !chart->ends;
    struct label_text t;

    snprintf(t.text, sizeof t.text, "%.*s%s%s%s%s%s", bytes, name, name[bytes] != '\0' ? "…" : "",
             label->above   ? " ↑ "
             : label->below ? " ↓ "
                            : "",
             label->above || label->below ? chart_value(chart, label->last_y).text : "",
             early ? ", to " : "", early ? show_tick(label->last_x, 0).text : "");
    return t;
}

/* ---- looks, for terminal and page
 *
 * The colours were chosen for distance in CIE Lab under normal sight and under simulated
 * deuteranopia and protanopia (the first five at least 20 apart, all at least 13). They differ in
 * lightness, so that they also hold in grey print. Colour is never the only sign: every series has
 * a marker, a letter and a label. They belong to the position methods of looks_assign(). */

static const struct look looks[LOOKS] = {
    { "#1d5fd6", "#7fb0ff", 33, "M-4,0A4,4 0 1 1 4,0A4,4 0 1 1 -4,0Z" }, /* blue, disc */
    { "#b65500", "#e0812f", 166, "M-3.6,-3.6H3.6V3.6H-3.6Z" },           /* orange, square */
    { "#00805e", "#3fdc97", 35, "M0,-4.8L4.6,3.4H-4.6Z" },               /* green, triangle */
    { "#b8289f", "#ff6fb5", 170, "M0,-5.2L5.2,0L0,5.2L-5.2,0Z" },        /* magenta, diamond */
    { "#23272e", "#e6e8eb", 244,
      "M-1.6,-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z" },         /* ink, plus */
    { "#6a4300", "#f5cf4b", 136, "M0,4.8L4.6,-3.4H-4.6Z" },             /* brown, triangle down */
    { "#3a1b9c", "#a37bff", 99, "M0,-5L4.8,-1.5L3,4.1H-3L-4.8,-1.5Z" }, /* violet, pentagon */
    { "#0d4f73", "#5fb8cf", 37,
      "M-5,-3L-3,-5L0,-2L3,-5L5,-3L2,0L5,3L3,5L0,2L-3,5L-5,3L-2,0Z" }, /* teal, cross */
};

const struct look *look_of(int look)
{
    return &looks[look % LOOKS];
}

const char *dash_of(int look)
{
    static const char *const dashes[] = { "none",         "7 4",  "2 4", "10 3 2 3",
                                          "14 4 2 3 2 4", "18 5", "4 2" };

    return dashes[look / LOOKS % COUNT(dashes)];
}

/* The first words of two names are the same: "fox-512", "fox:free=0.5". */
static bool is_akin(const char *a, const char *b)
{
    size_t length = strcspn(a, "-:");

    return strcspn(b, "-:") == length && strncmp(a, b, length) == 0;
}

/* Whether a name begins with that of a position method or preset. */
static bool is_of_method(const char *name)
{
    const char *method;
    bool found = false;

    for (int i = 0; !found && (method = alibi_position_name(i, NULL)) != NULL; i++)
        found = is_akin(name, method);
    for (int i = 0; !found && (method = alibi_preset_name(i, NULL, NULL)) != NULL; i++)
        found = is_akin(name, method);
    return found;
}

void looks_assign(int *of, const char (*names)[ALIBI_NAME_MAX], const int *original, int count)
{
    static const char *const owners[LOOKS] = { "alibi", "sinusoidal", "rotary", "t5",
                                               "none",  "learned",    "hybrid", "reach" };
    static const int spare[LOOKS] = { 7, 5, 6, 3, 4, 2, 1, 0 };
    const char *name[ALIBI_LIST_MAX];
    int used[LOOKS] = { 0 }, others = 0;
    bool owned[LOOKS] = { false };

    for (int i = 0; i < count; i++) {
        name[i] = names[original != NULL && original[i] >= 0 ? original[i] : i];
        of[i] = -1;
        for (int look = 0; look < LOOKS; look++)
            if (is_akin(name[i], owners[look]))
                owned[of[i] = look] = true;
    }
    /* Looks whose owners are not there first; then all again. */
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i && of[i] < 0; k++)
            if (is_akin(name[i], name[k]) && is_of_method(name[i]))
                of[i] = of[k];
        if (of[i] >= 0)
            continue;
        while (others < LOOKS && owned[spare[others]])
            others++;
        of[i] = spare[others++ % LOOKS];
    }
    for (int i = 0; i < count; i++)
        of[i] += LOOKS * used[of[i]]++;
}

/* The first free letter of the name, then of the alphabet; '*' when all are taken. */
static char free_letter(const char *taken, int count, const char *name)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const char *const sources[] = { name, alphabet };

    for (int i = 0; i < 2; i++)
        for (const char *p = sources[i]; *p != '\0'; p++)
            if (isascii(*p) && isalnum((unsigned char)*p) &&
                memchr(taken, *p, (size_t)count) == NULL)
                return *p;
    return '*';
}

void marker_letters(char *letters, const struct series *series, int count)
{
    for (int i = 0; i < count; i++)
        letters[i] = free_letter(letters, i, series[i].name);
}
