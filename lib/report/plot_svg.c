/* plot_svg.c - a chart as an <svg> element
 *
 * The element covers the plotting area only; numbers and labels are in its margins (overflow is
 * visible). Across, every position is a percentage, so the figure takes whatever width there is
 * while text, lines and markers keep their size. Down, positions are pixels. Items of fixed size
 * at a position across (markers, labels) are nested <svg> elements.
 *
 * The page's style and script rely on: <g class="series sN"> for each series, with its points in
 * data-points (place across in percent, place down, x, y, error), its curve and band in an <svg>
 * whose 100 units are stretched to the width, and <g class="label sN"> for each label. Without
 * either the figure is still complete. */
#include <math.h>

#include "report/parts.h"

enum {
    HEIGHT = 320,
    TOP = 46,
    BOTTOM = 46,
    LABEL_GAP = 15,
    LABEL_CHARACTERS = 22,
    LETTER = 7,
    BOLD_LETTER = 8
};

struct figure {
    const struct chart *chart;
    const char *id;
    struct axis x, y;
    double height;
    int left, right; /* margins */
    struct label labels[SERIES_MAX];
    int label_count;
};

/* Title and description, for readers who do not see the figure. */
static void append_description(struct text *out, const struct figure *f)
{
    const struct chart *c = f->chart;

    text_append(out, "<title id=\"%s-title\">%s</title>\n", f->id, escape(c->title).text);
    text_append(out, "<desc id=\"%s-desc\">%s against %s.", f->id, escape(c->y_label).text,
                escape(c->x_label).text);
    for (int k = 0; k < c->count; k++) {
        const struct series *s = &c->series[k];
        int first = -1, last = -1;

        for (int i = 0; i < s->count; i++)
            if (has_point(s, i, &f->x, &f->y)) {
                first = first < 0 ? i : first;
                last = i;
            }
        text_append(out, " %s: ", escape(s->name).text);
        if (first < 0)
            text_append(out, "no values");
        else
            text_append(out, "%s at %s", chart_value(c, s->y[first]).text,
                        show_tick(round(s->x[first]), 0).text);
        if (last > first)
            text_append(out, ", %s at %s", chart_value(c, s->y[last]).text,
                        show_tick(round(s->x[last]), 0).text);
        text_append(out, ".");
    }
    text_append(out, "</desc>\n");
}

/* ---- axes */

/* Every second number across, counted from the last, has class "odd": a narrow page hides it. */
static void append_axes(struct text *out, const struct figure *f)
{
    text_append(out, "<g class=\"axis\">\n");
    for (int i = 0; i < f->y.ticks; i++) {
        double at = f->height * (1 - axis_place(&f->y, f->y.tick[i]));
        text_append(out,
                    "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>"
                    "<text x=\"-8\" y=\"%.1f\" dy=\".35em\" text-anchor=\"end\">%s</text>\n",
                    at, at, at, tick_shown(&f->y, i).text);
    }
    text_append(out, "<text class=\"axis-title\" x=\"%d\" y=\"-30\">%s%s</text>\n</g>\n", -f->left,
                escape(f->chart->y_label).text, f->y.log ? ", log scale" : "");

    text_append(out,
                "<g class=\"axis\">\n"
                "<line class=\"base\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                f->height, f->height);
    for (int i = 0; i < f->x.ticks; i++) {
        double at = 100 * axis_place(&f->x, f->x.tick[i]);
        bool odd = f->x.ticks > 4 && (f->x.ticks - i) % 2 == 0;

        text_append(out,
                    "<line class=\"base\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.1f\" y2=\"%.1f\"/>"
                    "<text%s x=\"%.2f%%\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                    at, at, f->height, f->height + 4, odd ? " class=\"odd\"" : "", at,
                    f->height + 19,
                    f->chart->distances && f->x.tick[i] < 1 ? "0" : tick_shown(&f->x, i).text);
    }
    text_append(
        out,
        "<text class=\"axis-title\" x=\"50%%\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n"
        "</g>\n",
        f->height + 40, escape(f->chart->x_label).text);
}

/* The label of the mark is on the side that has room, above the markers of curves that leave the
 * figure at its top. */
static void append_mark(struct text *out, const struct figure *f)
{
    const struct chart *c = f->chart;
    double at = 100 * axis_place(&f->x, c->mark_x);

    text_append(out, "<g class=\"mark\"><line x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"-22\" y2=\"%.1f\"/>",
                at, at, f->height);
    if (c->mark_label != NULL)
        text_append(out, "<text x=\"%.2f%%\" dx=\"%d\" y=\"-14\" text-anchor=\"%s\">%s</text>", at,
                    at > 60 ? -6 : 6, at > 60 ? "end" : "start", escape(c->mark_label).text);
    text_append(out, "</g>\n");
}

/* ---- curves */

/* A bound of a band as a height within the figure. */
static double bound_height(const struct figure *f, double value)
{
    return f->height * (1 - fmin(fmax(axis_place(&f->y, value), 0), 1));
}

/* A point beyond the range has none: its band alone would be a stray patch at the edge. */
static bool has_bounds(const struct figure *f, const struct series *s, int i)
{
    double place = axis_place(&f->y, s->y[i]);

    return place >= 0 && place <= 1 && s->low != NULL && s->high != NULL &&
           has_point(s, i, &f->x, &f->y) && (s->low[i] > 0 || (!f->y.log && isfinite(s->low[i]))) &&
           isfinite(s->high[i]);
}

/* Bands and curve. A path has no percentages, so it is in an <svg> whose 100 units are stretched to
 * the width. The bounds of a single point are a line. */
static void append_curves(struct text *out, const struct figure *f, const struct series *s)
{
    struct segment line, before = { .x1 = NAN };

    text_append(out,
                "<svg width=\"100%%\" height=\"%.0f\" viewBox=\"0 0 100 %.0f\" "
                "preserveAspectRatio=\"none\" overflow=\"visible\">",
                f->height, f->height);
    for (int first = 0, end; first < s->count; first = end + 1) {
        for (end = first; end < s->count && has_bounds(f, s, end);)
            end++;
        if (end - first < 2)
            continue;
        text_append(out, "<path class=\"band\" d=\"");
        for (int i = first; i < end; i++)
            text_append(out, "%s%.2f,%.1f", i == first ? "M" : "L",
                        100 * axis_place(&f->x, s->x[i]), bound_height(f, s->high[i]));
        for (int i = end - 1; i >= first; i--)
            text_append(out, "L%.2f,%.1f", 100 * axis_place(&f->x, s->x[i]),
                        bound_height(f, s->low[i]));
        text_append(out, "Z\"/>\n");
    }
    text_append(out,
                "<path class=\"curve\" vector-effect=\"non-scaling-stroke\" "
                "stroke-dasharray=\"%s\" d=\"",
                s->reference ? dash_of(LOOKS) : dash_of(s->look));
    for (int i = 1; i < s->count; i++) {
        if (!series_segment(&line, s, i, &f->x, &f->y))
            continue;
        if (line.x0 != before.x1 || line.y0 != before.y1)
            text_append(out, "M%.2f,%.1f", 100 * line.x0, f->height * (1 - line.y0));
        text_append(out, "L%.2f,%.1f", 100 * line.x1, f->height * (1 - line.y1));
        before = line;
    }
    text_append(out, "\"/>\n</svg>\n");
    for (int i = 0; i < s->count; i++)
        if (has_bounds(f, s, i) && !(i > 0 && has_bounds(f, s, i - 1)) &&
            !(i + 1 < s->count && has_bounds(f, s, i + 1)))
            text_append(out,
                        "<line class=\"error\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.1f\" "
                        "y2=\"%.1f\"/>\n",
                        100 * axis_place(&f->x, s->x[i]), 100 * axis_place(&f->x, s->x[i]),
                        bound_height(f, s->high[i]), bound_height(f, s->low[i]));
}

/* "±0.4", "(3.0 to 4.0)", or "" */
static struct shown point_error(const struct figure *f, const struct series *s, int i)
{
    struct shown error = { "" };
    double half = has_bounds(f, s, i) ? (s->high[i] - s->low[i]) / 2 : NAN;

    if (isnan(half))
        return error;
    if (f->chart->range)
        snprintf(error.text, sizeof error.text, "(%.12s to %.12s)",
                 chart_value(f->chart, s->low[i]).text, chart_value(f->chart, s->high[i]).text);
    else if (f->chart->show != NULL)
        snprintf(error.text, sizeof error.text, "±%.24s", f->chart->show(half).text);
    else
        error = show_ppl_error(s->y[i], log(s->high[i] / s->low[i]) / 2);
    return error;
}

static double point_height(const struct figure *f, double y)
{
    return f->height * (1 - fmin(fmax(axis_place(&f->y, y), 0), 1));
}

/* The values that the script shows. */
static void append_values(struct text *out, const struct figure *f, const struct series *s)
{
    bool first = true;

    for (int i = 0; i < s->count; i++) {
        struct shown x;

        if (!has_point(s, i, &f->x, &f->y))
            continue;
        x = f->chart->distances ? show_distances(s->x[i] < 1 ? 0 : 1 + (int)log2(s->x[i]))
                                : show_tick(round(s->x[i]), 0);
        text_append(out, "%s%.2f,%.1f,%s,%s,%s", first ? "" : ";", 100 * axis_place(&f->x, s->x[i]),
                    point_height(f, s->y[i]), x.text, chart_value(f->chart, s->y[i]).text,
                    escape(point_error(f, s, i).text).text);
        first = false;
    }
}

/* Markers of the points within the range, and an arrow where the curve leaves it: its label may be
 * far from there. */
static void append_points(struct text *out, const struct figure *f, const struct series *s)
{
    static const char point[] =
        "<svg class=\"point\" x=\"%.2f%%\" y=\"%.1f\"><path d=\"%s\"/></svg>\n";
    int last = s->count - 1;
    struct segment line;

    while (last >= 0 && !has_point(s, last, &f->x, &f->y))
        last--;
    for (int i = 0; i < s->count; i++) {
        double place = axis_place(&f->y, s->y[i]);

        if (!has_point(s, i, &f->x, &f->y) || !(place >= 0 && place <= 1) ||
            (f->chart->plain && !(f->chart->ends && i == last)))
            continue;
        text_append(out, point, 100 * axis_place(&f->x, s->x[i]), point_height(f, s->y[i]),
                    look_of(s->look)->marker);
    }
    for (int i = 1; i < s->count; i++)
        if (series_leaves(&line, s, i, &f->x, &f->y))
            text_append(out, point, 100 * line.x1, f->height * (1 - line.y1),
                        line.y1 > 0.5 ? "M0,-8L5,0H-5Z" : "M0,8L5,0H-5Z");
}

/* class and colour of what belongs to a series. */
static void append_look(struct text *out, const struct figure *f, const char *class, int series)
{
    const struct series *s = &f->chart->series[series];

    text_append(out, "<g class=\"%s %s%d\" style=\"color:", class, f->chart->parts ? "p" : "s",
                series);
    if (s->reference)
        text_append(out, "var(--quiet)\"");
    else if (s->fade > 0)
        text_append(out, "color-mix(in srgb,var(--series-%d),var(--page) %.0f%%)\"",
                    s->look % LOOKS, 100 * s->fade);
    else
        text_append(out, "var(--series-%d)\"", s->look % LOOKS);
}

static void append_series(struct text *out, const struct figure *f, int series)
{
    const struct series *s = &f->chart->series[series];

    append_look(out, f, "series", series);
    text_append(out, " data-name=\"%s\" data-points=\"", escape(s->name).text);
    append_values(out, f, s);
    text_append(out, "\">\n");
    append_curves(out, f, s);
    append_points(out, f, s);
    text_append(out, "</g>\n");
}

/* ---- labels */

/* Whether the curve ends so far from its label that a line to it would look like a part of it. */
static bool is_apart(const struct label *label)
{
    return label->early || label->x < 0.85;
}

/* A leader joins a label to the end of its curve, in two parts: within the area, where positions
 * are percentages, and in the margin, where they are pixels. If the curve ends far from its label,
 * its marker precedes the label instead. */
static void append_labels(struct text *out, const struct figure *f)
{
    for (int i = 0; i < f->label_count; i++) {
        const struct label *l = &f->labels[i];
        double at = f->height * (1 - l->y);

        if (is_apart(l) || l->x > 0.99)
            continue;
        append_look(out, f, "label", l->series);
        text_append(out,
                    "><line class=\"leader\" x1=\"%.2f%%\" x2=\"100%%\" y1=\"%.1f\" "
                    "y2=\"%.1f\"/></g>\n",
                    100 * l->x, at, at);
    }
    text_append(out, "<svg class=\"labels\" x=\"100%%\" overflow=\"visible\">\n");
    for (int i = 0; i < f->label_count; i++) {
        const struct label *l = &f->labels[i];
        int look = f->chart->series[l->series].look;

        append_look(out, f, "label", l->series);
        text_append(out, ">");
        if (is_apart(l))
            text_append(out, "<path class=\"key\" transform=\"translate(11,%.1f)\" d=\"%s\"/>",
                        l->at, look_of(look)->marker);
        else
            text_append(out, "<path class=\"leader\" d=\"M%d,%.1fL16,%.1f\"/>", l->x > 0.99 ? 6 : 0,
                        f->height * (1 - l->y), l->at);
        text_append(out, "<text x=\"20\" y=\"%.1f\" dy=\".35em\">%s</text></g>\n", l->at,
                    escape(label_text(f->chart, l, LABEL_CHARACTERS).text).text);
    }
    text_append(out, "</svg>\n");
}

void plot_svg(struct text *out, const struct chart *chart)
{
    struct figure f = { .chart = chart, .id = chart->id != NULL ? chart->id : "plot" };
    int letters = 0;

    if (!chart_axes(chart, &f.x, &f.y)) {
        text_append(out, "<p class=\"note\">No values to plot.</p>\n");
        return;
    }
    /* Margins follow the number of letters in them, the height the number of labels. */
    f.label_count = chart_labels(f.labels, chart, &f.x, &f.y);
    for (int i = 0; i < f.label_count; i++) {
        int width = display_width(label_text(chart, &f.labels[i], LABEL_CHARACTERS).text);
        letters = width > letters ? width : letters;
    }
    f.height = fmax(chart->height > 0 ? chart->height : HEIGHT, (f.label_count - 1) * LABEL_GAP);
    f.left = ticks_width(&f.y) * LETTER + 14;
    f.right = letters * BOLD_LETTER + 22;
    labels_spread(f.labels, f.label_count, LABEL_GAP, f.height);

    text_append(out,
                "<svg class=\"plot %s\" role=\"img\" aria-labelledby=\"%s-title %s-desc\" "
                "width=\"100%%\" height=\"%.0f\" style=\"margin:%dpx %dpx %dpx %dpx;"
                "width:calc(100%% - %dpx);overflow:visible\">\n",
                f.y.log ? "log" : "linear", f.id, f.id, f.height, TOP, f.right, BOTTOM, f.left,
                f.left + f.right);
    append_description(out, &f);
    append_axes(out, &f);
    if (chart->zero && !f.y.log)
        text_append(out, "<line class=\"base\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                    point_height(&f, 0), point_height(&f, 0));
    if (chart_has_mark(chart))
        append_mark(out, &f);
    for (int s = chart->count - 1; s >= 0; s--)
        append_series(out, &f, s); /* the first is drawn last, on top */
    append_labels(out, &f);
    text_append(out, "</svg>\n");
}
