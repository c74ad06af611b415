/* plot_terminal.c - a chart in characters
 *
 *   y label
 *     10 ┤      ⣀⠤⠒⠉s  s sinusoidal       ticks ┤ grid of cells │ labels
 *      3 ┤a⠤⠤⠤⠤⠤a⠤⠤⠤⠤⠤a  a alibi
 *        └┬─────┬─────┬
 *         64   128   256
 *         x label   ┊ mark
 *
 * A cell holds 2 x 4 braille dots of one curve, and at a curve's points its letter, so that the
 * plot reads without colour. Curves are drawn in their order and never over one another: where they
 * run together the first one shows. */
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
    int owner;          /* series + 1; 0: free */
};

struct plot {
    const struct chart *chart;
    struct axis x, y;
    int columns;       /* of the terminal */
    int width, height; /* of the grid of cells */
    int gutter;        /* width of the tick labels on the left */
    int label_width;   /* of names on the right */
    bool colour;
    struct cell *cells;
    char *letters;        /* per series */
    struct label *labels; /* from the top */
    int label_count;
};

/* ---- layout */

static alibi_status lay_out(struct plot *p, int columns, int rows)
{
    int labels;

    p->columns = columns = columns > LEAST_COLUMNS ? columns : LEAST_COLUMNS;
    rows = rows > LEAST_ROWS ? rows : LEAST_ROWS;
    p->label_width = columns / 5;
    p->label_count = labels_of(p->labels, p->chart, &p->x, &p->y);
    TRY_RETURN(labels_width(&labels, p->chart, p->labels, p->label_count, p->label_width));
    p->gutter = ticks_width(&p->y);
    p->height = rows - FRAME_ROWS;
    p->width = columns - p->gutter - 2 - labels - 4;
    p->width = p->width > LEAST_WIDTH ? p->width : LEAST_WIDTH;
    labels_spread(p->labels, p->label_count, 1,
                  p->height - 0.01); /* a label is in the row that its place falls in */
    return NEW_ZERO_ARRAY(&p->cells, (int64_t)p->width * p->height, "a plot");
}

/* ---- drawing */

static struct cell *cell_at(struct plot *p, int column, int row)
{
    return &p->cells[row * p->width + column];
}

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

static void draw_dot(struct plot *p, int series, int x, int y)
{
    static const unsigned char bits[DOTS_DOWN][DOTS_ACROSS] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };
    struct cell *cell = cell_at(p, x / DOTS_ACROSS, y / DOTS_DOWN);

    if (cell->owner == 0)
        cell->owner = series + 1;
    if (cell->owner == series + 1)
        cell->dots |= bits[y % DOTS_DOWN][x % DOTS_ACROSS];
}

/* As many dots as the longer side has. */
static void draw_segment(struct plot *p, int series, struct segment s)
{
    int x0 = nearest(s.x0, p->width * DOTS_ACROSS), x1 = nearest(s.x1, p->width * DOTS_ACROSS);
    int y0 = nearest(1 - s.y0, p->height * DOTS_DOWN),
        y1 = nearest(1 - s.y1, p->height * DOTS_DOWN);
    int steps = (int)fmax(fmax(abs(x1 - x0), abs(y1 - y0)), 1);

    for (int i = 0; i <= steps; i++)
        draw_dot(p, series, x0 + (int)lround((double)(x1 - x0) * i / steps),
                 y0 + (int)lround((double)(y1 - y0) * i / steps));
}

static void draw_letter(struct plot *p, int series, double x, double y)
{
    struct cell *cell = cell_at(p, column_of(p, x), row_of(p, y));
    double place = axis_place(&p->y, y);

    if (place < 0 || place > 1 || cell->letter != 0)
        return;
    cell->letter = p->letters[series];
    cell->owner = series + 1;
}

/* Points on both sides of a missing one are not joined. */
static void draw_series(struct plot *p, int series)
{
    const struct series *s = &p->chart->series[series];

    for (int i = 1; i < s->count; i++) {
        struct segment line;
        if (!has_point(s, i - 1, &p->x, &p->y) || !has_point(s, i, &p->x, &p->y))
            continue;
        line = (struct segment){ axis_place(&p->x, s->x[i - 1]), axis_place(&p->y, s->y[i - 1]),
                                 axis_place(&p->x, s->x[i]), axis_place(&p->y, s->y[i]) };
        if (clip_segment(&line))
            draw_segment(p, series, line);
    }
}

static void draw_points(struct plot *p, int series)
{
    const struct series *s = &p->chart->series[series];

    for (int i = 0; i < s->count; i++)
        if (has_point(s, i, &p->x, &p->y))
            draw_letter(p, series, s->x[i], s->y[i]);
}

static int mark_column(const struct plot *p)
{
    return isfinite(p->chart->mark_x) && (!p->x.log || p->chart->mark_x > 0)
               ? column_of(p, p->chart->mark_x)
               : -1;
}

/* ---- writing */

/* Changes to the colour of a series, -1 for plain, -2 for quiet; *now is the one in force. */
static alibi_status set_colour(struct text *out, const struct plot *p, int *now, int wanted)
{
    if (!p->colour || *now == wanted)
        return ALIBI_OK;
    *now = wanted;
    if (wanted < 0)
        return text_append(out, wanted == -1 ? "\x1b[0m" : "\x1b[0;2m");
    return text_append(out, "\x1b[0;38;5;%dm", look_of(wanted)->terminal);
}

static alibi_status append_braille(struct text *out, unsigned char dots)
{
    char bytes[] = { (char)0xE2, (char)(0xA0 | dots >> 6), (char)(0x80 | (dots & 0x3F)) };

    return text_append_bytes(out, bytes, sizeof bytes);
}

static alibi_status append_cell(struct text *out, const struct plot *p, const struct cell *cell,
                                bool mark, int *colour)
{
    if (cell->owner == 0) {
        TRY_RETURN(set_colour(out, p, colour, mark ? -2 : -1));
        return text_append(out, mark ? "┊" : " ");
    }
    TRY_RETURN(set_colour(out, p, colour, cell->owner - 1));
    if (cell->letter != 0)
        return text_append_bytes(out, &cell->letter, 1);
    return append_braille(out, cell->dots);
}

static alibi_status append_gutter(struct text *out, const struct plot *p, int row)
{
    for (int i = 0; i < p->y.ticks; i++)
        if (row_of(p, p->y.tick[i]) == row) {
            struct shown tick = tick_shown(&p->y, i);
            TRY_RETURN(append_spaces(out, p->gutter - display_width(tick.text)));
            return text_append(out, "%s ┤", tick.text);
        }
    TRY_RETURN(append_spaces(out, p->gutter));
    return text_append(out, " │");
}

static const struct label *label_in(const struct plot *p, int row)
{
    for (int i = 0; i < p->label_count; i++)
        if ((int)p->labels[i].at == row)
            return &p->labels[i];
    return NULL;
}

static alibi_status append_row_label(struct text *out, const struct plot *p,
                                     const struct label *label, int *colour)
{
    TRY_RETURN(set_colour(out, p, colour, label->series));
    TRY_RETURN(text_append(out, " %c ", p->letters[label->series]));
    return append_label(out, p->chart, label, p->label_width);
}

/* The column behind the last one that is not blank. */
static int row_end(struct plot *p, int row)
{
    int end = p->width;

    while (end > 0 && cell_at(p, end - 1, row)->owner == 0 && end - 1 != mark_column(p))
        end--;
    return end;
}

static alibi_status append_row(struct text *out, struct plot *p, int row)
{
    const struct label *label = label_in(p, row);
    int colour = -1, end = label != NULL ? p->width : row_end(p, row);

    TRY_RETURN(append_gutter(out, p, row));
    for (int column = 0; column < end; column++)
        TRY_RETURN(append_cell(out, p, cell_at(p, column, row), column == mark_column(p), &colour));
    if (label != NULL)
        TRY_RETURN(append_row_label(out, p, label, &colour));
    TRY_RETURN(set_colour(out, p, &colour, -1));
    return text_append(out, "\n");
}

static bool is_tick_column(const struct plot *p, int column)
{
    for (int i = 0; i < p->x.ticks; i++)
        if (column_of(p, p->x.tick[i]) == column)
            return true;
    return false;
}

static alibi_status append_axis(struct text *out, const struct plot *p)
{
    TRY_RETURN(append_spaces(out, p->gutter + 1));
    TRY_RETURN(text_append(out, "└"));
    for (int column = 0; column < p->width; column++)
        TRY_RETURN(text_append(out, is_tick_column(p, column) ? "┬" : "─"));
    return text_append(out, "\n");
}

/* Numbers are centred under their ticks; one that would touch the one before it is left out. */
static alibi_status append_tick_numbers(struct text *out, const struct plot *p)
{
    int used = 0;

    for (int i = 0; i < p->x.ticks; i++) {
        struct shown tick = tick_shown(&p->x, i);
        int width = display_width(tick.text);
        int start = p->gutter + 2 + column_of(p, p->x.tick[i]) - width / 2;
        if (start < used + (used > 0))
            continue;
        TRY_RETURN(append_spaces(out, start - used));
        TRY_RETURN(text_append(out, "%s", tick.text));
        used = start + width;
    }
    return text_append(out, "\n");
}

/* What the mark means must be there; the label is cut if there is no room for both. */
static alibi_status append_x_label(struct text *out, const struct plot *p)
{
    bool marked = mark_column(p) >= 0 && p->chart->mark_label != NULL;
    int room = p->columns - p->gutter - 2 - (marked ? 5 + display_width(p->chart->mark_label) : 0);

    TRY_RETURN(append_spaces(out, p->gutter + 2));
    TRY_RETURN(append_cut(out, p->chart->x_label, room));
    if (marked)
        TRY_RETURN(text_append(out, "   ┊ %s", p->chart->mark_label));
    return text_append(out, "\n");
}

static alibi_status append_plot(struct text *out, struct plot *p)
{
    for (int s = 0; s < p->chart->count; s++)
        draw_points(p, s);
    for (int s = 0; s < p->chart->count; s++)
        draw_series(p, s);
    TRY_RETURN(append_spaces(out, p->gutter + 1));
    TRY_RETURN(append_cut(out, p->chart->y_label, p->columns - p->gutter - 1));
    TRY_RETURN(text_append(out, "\n"));
    for (int row = 0; row < p->height; row++)
        TRY_RETURN(append_row(out, p, row));
    TRY_RETURN(append_axis(out, p));
    TRY_RETURN(append_tick_numbers(out, p));
    return append_x_label(out, p);
}

alibi_status plot_terminal(struct text *out, const struct chart *chart, int columns, int rows,
                           bool colour)
{
    alibi_status status;
    struct plot p = { .chart = chart, .colour = colour };

    if (!chart_axes(chart, &p.x, &p.y))
        return text_append(out, "%s: no values to plot\n", chart->y_label);
    TRY(NEW_ZERO_ARRAY(&p.letters, chart->count, "a plot"));
    TRY(NEW_ARRAY(&p.labels, chart->count, "a plot"));
    marker_letters(p.letters, chart->series, chart->count);
    TRY(lay_out(&p, columns, rows));
    TRY(append_plot(out, &p));
out:
    mem_free(p.cells);
    mem_free(p.labels);
    mem_free(p.letters);
    return status;
}
