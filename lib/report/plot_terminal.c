/* plot_terminal.c - a chart in characters
 *
 *   y label
 *     10 ┤      ⣀⠤⠒⠉s  s sinusoidal       ticks ┤ grid of cells │ labels
 *      3 ┤a⠤⠤⠤⠤⠤a⠤⠤⠤⠤⠤a  a alibi
 *        └┬─────┬─────┬
 *         64   128   256
 *         x label   ┊ mark
 *
 * A cell holds 2 x 4 braille dots of one curve, or the letter of the curve at its points, so that
 * the plot can be read without colour. Curves are drawn in order and never over one another: where
 * they meet, the first one is visible. */
#include <math.h>
#include <stdlib.h>

#include "report/parts.h"

enum {
    DOTS_ACROSS = 2,
    DOTS_DOWN = 4,
    LEAST_COLUMNS = 40,
    LEAST_ROWS = 8,
    FRAME_ROWS = 4,
    LEAST_WIDTH = 8
};

struct cell {
    unsigned char dots; /* bits as in U+2800.. */
    char letter;        /* 0: none */
    const char *arrow;  /* where the curve leaves the range; NULL: it does not */
    int owner;          /* series + 1; 0: free */
};

struct plot {
    const struct chart *chart;
    struct axis x, y;
    int columns;       /* of the terminal */
    int width, height; /* of the grid of cells */
    int gutter;        /* width of the tick numbers on the left */
    int label_width;   /* of names on the right */
    int mark;          /* column of the mark; -1: none */
    bool colour;
    struct cell *cells; /* [height, width] */
    char letters[SERIES_MAX];
    struct label labels[SERIES_MAX]; /* from the top */
    int label_count;
};

/* ---- drawing */

static int nearest(double place, int count)
{
    int i = (int)lround(place * (count - 1));

    return i < 0 ? 0 : i >= count ? count - 1 : i;
}

static int column_of(const struct plot *p, double x)
{
    return nearest(axis_place(&p->x, x), p->width * DOTS_ACROSS) / DOTS_ACROSS;
}

static int row_of(const struct plot *p, double y)
{
    return nearest(1 - axis_place(&p->y, y), p->height * DOTS_DOWN) / DOTS_DOWN;
}

/* The first letter in a cell stays. */
static void draw_letters(struct plot *p, int series)
{
    const struct series *s = &p->chart->series[series];

    for (int i = 0; i < s->count; i++) {
        struct cell *cell;
        double place;

        if (!has_point(s, i, &p->x, &p->y))
            continue;
        cell = &p->cells[row_of(p, s->y[i]) * p->width + column_of(p, s->x[i])];
        place = axis_place(&p->y, s->y[i]);
        if (place >= 0 && place <= 1 && cell->letter == 0) {
            cell->letter = p->letters[series];
            cell->owner = series + 1;
        }
    }
}

/* One dot per step along the longer side of the segment. */
static void draw_segment(struct plot *p, int series, const struct segment *s)
{
    static const unsigned char bits[DOTS_DOWN][DOTS_ACROSS] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };
    int across = p->width * DOTS_ACROSS, down = p->height * DOTS_DOWN;
    int x0 = nearest(s->x0, across), dx = nearest(s->x1, across) - x0;
    int y0 = nearest(1 - s->y0, down), dy = nearest(1 - s->y1, down) - y0;
    int steps = (int)fmax(fmax(abs(dx), abs(dy)), 1);

    for (int i = 0; i <= steps; i++) {
        int x = x0 + (int)lround((double)dx * i / steps);
        int y = y0 + (int)lround((double)dy * i / steps);
        struct cell *cell = &p->cells[y / DOTS_DOWN * p->width + x / DOTS_ACROSS];

        if (cell->owner == 0)
            cell->owner = series + 1;
        if (cell->owner == series + 1)
            cell->dots |= bits[y % DOTS_DOWN][x % DOTS_ACROSS];
    }
}

/* In a cell that no point of another curve has. */
static void draw_arrow(struct plot *p, int series, const struct segment *leaving)
{
    bool up = leaving->y1 > 0.5;
    int column = nearest(leaving->x1, p->width * DOTS_ACROSS) / DOTS_ACROSS;
    struct cell *cell = &p->cells[(up ? 0 : p->height - 1) * p->width + column];

    if (cell->letter == 0 && cell->owner == series + 1)
        cell->arrow = up ? "↑" : "↓";
}

/* A vertical line through each point whose error is more than a dot. */
static void draw_errors(struct plot *p, int series)
{
    const struct series *s = &p->chart->series[series];
    double dot = 1.0 / (p->height * DOTS_DOWN);

    for (int i = 0; i < s->count && s->low != NULL && s->high != NULL; i++) {
        struct segment line;

        if (!has_point(s, i, &p->x, &p->y) || !(s->low[i] > 0) || !isfinite(s->high[i]))
            continue;
        line.x0 = line.x1 = axis_place(&p->x, s->x[i]);
        line.y0 = axis_place(&p->y, s->low[i]);
        line.y1 = axis_place(&p->y, s->high[i]);
        if (line.y1 - line.y0 > dot && clip_segment(&line))
            draw_segment(p, series, &line);
    }
}

/* ---- writing */

enum { PLAIN = -1, QUIET = -2 };

/* Changes to the colour of a series, PLAIN or QUIET; *now is the one in force. */
static void set_colour(struct text *out, const struct plot *p, int *now, int wanted)
{
    if (!p->colour || *now == wanted)
        return;
    *now = wanted;
    if (wanted < 0)
        text_append(out, wanted == PLAIN ? "\x1b[0m" : "\x1b[0;2m");
    else
        text_append(out, "\x1b[0;38;5;%dm", look_of(p->chart->series[wanted].look)->terminal);
}

static void append_cell(struct text *out, const struct plot *p, int row, int column, int *colour)
{
    const struct cell *cell = &p->cells[row * p->width + column];
    bool mark = column == p->mark;

    if (cell->owner == 0) {
        set_colour(out, p, colour, mark ? QUIET : PLAIN);
        text_append(out, mark ? "┊" : " ");
    } else {
        const char braille[] = { (char)0xE2, (char)(0xA0 | cell->dots >> 6),
                                 (char)(0x80 | (cell->dots & 0x3F)) };

        set_colour(out, p, colour, cell->owner - 1);
        if (cell->arrow != NULL)
            text_append(out, "%s", cell->arrow);
        else if (cell->letter != 0)
            text_append_bytes(out, &cell->letter, 1);
        else
            text_append_bytes(out, braille, sizeof braille);
    }
}

static void append_row(struct text *out, const struct plot *p, int row)
{
    const struct label *label = NULL;
    const char *frame = " │";
    struct shown tick = { "" };
    int colour = PLAIN, end = p->width;

    /* The number at the axis, if a tick is in this row. */
    for (int i = p->y.ticks - 1; i >= 0; i--)
        if (row_of(p, p->y.tick[i]) == row) {
            tick = tick_shown(&p->y, i);
            frame = " ┤";
        }
    append_spaces(out, p->gutter - display_width(tick.text));
    text_append(out, "%s%s", tick.text, frame);

    /* The cells; without a label after them, up to the last one that is not blank. */
    for (int i = p->label_count - 1; i >= 0; i--)
        if ((int)p->labels[i].at == row)
            label = &p->labels[i];
    while (label == NULL && end > 0 && p->cells[row * p->width + end - 1].owner == 0 &&
           end - 1 != p->mark)
        end--;
    for (int column = 0; column < end; column++)
        append_cell(out, p, row, column, &colour);
    if (label != NULL) {
        set_colour(out, p, &colour, label->series);
        text_append(out, " %c %s", p->letters[label->series],
                    label_text(p->chart, label, p->label_width).text);
    }
    set_colour(out, p, &colour, PLAIN);
    text_append(out, "\n");
}

static void append_x_axis(struct text *out, const struct plot *p)
{
    const char *mark_label = p->mark >= 0 ? p->chart->mark_label : NULL;
    int used = 0, room = p->columns - p->gutter - 2;

    append_spaces(out, p->gutter + 1);
    text_append(out, "└");
    for (int column = 0; column < p->width; column++) {
        bool tick = false;

        for (int i = 0; i < p->x.ticks; i++)
            tick |= column_of(p, p->x.tick[i]) == column;
        text_append(out, tick ? "┬" : "─");
    }
    text_append(out, "\n");

    /* Numbers are centred under their ticks; one that would touch the previous one is skipped. */
    for (int i = 0; i < p->x.ticks; i++) {
        struct shown tick = tick_shown(&p->x, i);
        int width = display_width(tick.text);
        int start = p->gutter + 2 + column_of(p, p->x.tick[i]) - width / 2;

        if (start < used + (used > 0))
            continue;
        append_spaces(out, start - used);
        text_append(out, "%s", tick.text);
        used = start + width;
    }
    text_append(out, "\n");

    /* The label of the mark is always complete; the axis label is cut if both do not fit. */
    append_spaces(out, p->gutter + 2);
    append_cut(out, p->chart->x_label,
               mark_label != NULL ? room - 5 - display_width(mark_label) : room);
    text_append(out, mark_label != NULL ? "   ┊ %s\n" : "\n", mark_label);
}

alibi_status plot_terminal(struct text *out, const struct chart *chart, int columns, int rows,
                           bool colour)
{
    struct plot p = { .chart = chart, .colour = colour };
    int labels = 0;
    char label[96];

    if (!chart_axes(chart, &p.x, &p.y)) {
        text_append(out, "%s: no values to plot\n", chart->y_label);
        return ALIBI_OK;
    }
    p.columns = columns > LEAST_COLUMNS ? columns : LEAST_COLUMNS;
    p.height = (rows > LEAST_ROWS ? rows : LEAST_ROWS) - FRAME_ROWS;
    p.label_width = p.columns / 5;
    p.label_count = chart_labels(p.labels, chart, &p.x, &p.y);
    for (int i = 0; i < p.label_count; i++) {
        int width = display_width(label_text(chart, &p.labels[i], p.label_width).text);
        labels = width > labels ? width : labels;
    }
    p.gutter = ticks_width(&p.y);
    p.width = (int)fmax(p.columns - p.gutter - 2 - labels - 4, LEAST_WIDTH);
    p.mark = chart_has_mark(chart) ? column_of(&p, chart->mark_x) : -1;
    labels_spread(p.labels, p.label_count, 1, p.height - 0.01); /* a label's row is (int)at */
    marker_letters(p.letters, chart->series, chart->count);
    TRY_RETURN(NEW_ZERO_ARRAY(&p.cells, (int64_t)p.width * p.height, "a plot"));

    /* Letters come first, so that no curve covers the point of another. */
    for (int s = 0; s < chart->count; s++)
        draw_letters(&p, s);
    for (int s = 0; s < chart->count; s++)
        for (int i = 1; i < chart->series[s].count; i++) {
            struct segment line;
            if (series_segment(&line, &chart->series[s], i, &p.x, &p.y))
                draw_segment(&p, s, &line);
            if (series_leaves(&line, &chart->series[s], i, &p.x, &p.y))
                draw_arrow(&p, s, &line);
        }
    for (int s = 0; s < chart->count; s++)
        draw_errors(&p, s);

    append_spaces(out, p.gutter + 1);
    snprintf(label, sizeof label, "%s%s", chart->y_label, chart->log_y ? ", log scale" : "");
    append_cut(out, label, p.columns - p.gutter - 1);
    text_append(out, "\n");
    for (int row = 0; row < p.height; row++)
        append_row(out, &p, row);
    append_x_axis(out, &p);
    mem_free(p.cells);
    return ALIBI_OK;
}
