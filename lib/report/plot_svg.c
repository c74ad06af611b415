/* plot_svg.c - a chart as an <svg> element
 *
 * The element covers the plotting area only; numbers and labels stand in its margins (overflow is
 * visible). Across, every place is a percentage, so the figure takes whatever width there is while
 * letters, lines and markers keep their size; down, places are pixels. What has a size of its own
 * at a place across (markers, labels) is a nested <svg> put there.
 *
 * Each series is <g class="series sN">, each of its points an <svg class="point"> with data-x and
 * data-y, each label <g class="label sN">: that is what the page's style and script hold on to.
 * Without either, it is still the whole figure. */
#include <math.h>

#include "report/parts.h"

enum { HEIGHT = 320, TOP = 46, BOTTOM = 46, LABEL_GAP = 15, LABEL_CHARACTERS = 18, LETTER = 7 };

struct figure {
    const struct chart *chart;
    const char *id;
    struct axis x, y;
    double height;
    int left, right; /* margins */
    struct label *labels;
    int label_count;
};

static double across(const struct figure *f, double value)
{
    return 100 * axis_place(&f->x, value);
}

static double down(const struct figure *f, double value)
{
    return f->height * (1 - axis_place(&f->y, value));
}

/* ---- layout */

/* Margins by the number of letters that must stand in them; height so that all labels find room. */
static alibi_status lay_out(struct figure *f)
{
    int letters;

    f->label_count = labels_of(f->labels, f->chart, &f->x, &f->y);
    f->height =
        fmax(f->chart->height > 0 ? f->chart->height : HEIGHT, (f->label_count - 1) * LABEL_GAP);
    TRY_RETURN(labels_width(&letters, f->chart, f->labels, f->label_count, LABEL_CHARACTERS));
    f->left = ticks_width(&f->y) * LETTER + 14;
    f->right = letters * LETTER + 26;
    labels_spread(f->labels, f->label_count, LABEL_GAP, f->height);
    return ALIBI_OK;
}

/* ---- title and description, for those who do not see the figure */

static alibi_status describe_series(struct text *out, const struct figure *f,
                                    const struct series *s)
{
    int first = -1, last = -1;

    for (int i = 0; i < s->count; i++)
        if (has_point(s, i, &f->x, &f->y)) {
            first = first < 0 ? i : first;
            last = i;
        }
    TRY_RETURN(text_append(out, " "));
    TRY_RETURN(append_escaped(out, s->name));
    if (first < 0)
        return text_append(out, ": no values.");
    TRY_RETURN(text_append(out, ": %s at %s", show_ppl(s->y[first]).text,
                           show_tick(round(s->x[first]), 0).text));
    if (last > first)
        TRY_RETURN(text_append(out, ", %s at %s", show_ppl(s->y[last]).text,
                               show_tick(round(s->x[last]), 0).text));
    return text_append(out, ".");
}

static alibi_status append_description(struct text *out, const struct figure *f)
{
    const struct chart *c = f->chart;

    TRY_RETURN(text_append(out, "<title id=\"%s-title\">", f->id));
    TRY_RETURN(append_escaped(out, c->title));
    TRY_RETURN(text_append(out, "</title>\n<desc id=\"%s-desc\">", f->id));
    TRY_RETURN(append_escaped(out, c->y_label));
    TRY_RETURN(text_append(out, " against "));
    TRY_RETURN(append_escaped(out, c->x_label));
    TRY_RETURN(text_append(out, "."));
    for (int s = 0; s < c->count; s++)
        TRY_RETURN(describe_series(out, f, &c->series[s]));
    return text_append(out, "</desc>\n");
}

/* ---- axes */

static alibi_status append_y_axis(struct text *out, const struct figure *f)
{
    TRY_RETURN(text_append(out, "<g class=\"axis\">\n"));
    for (int i = 0; i < f->y.ticks; i++) {
        double at = down(f, f->y.tick[i]);
        TRY_RETURN(text_append(
            out, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>", at, at));
        TRY_RETURN(text_append(
            out, "<text x=\"-8\" y=\"%.1f\" dy=\".35em\" text-anchor=\"end\">%s</text>\n", at,
            tick_shown(&f->y, i).text));
    }
    TRY_RETURN(text_append(out, "<text class=\"axis-title\" x=\"%d\" y=\"-30\">", -f->left));
    TRY_RETURN(append_escaped(out, f->chart->y_label));
    return text_append(out, "</text>\n</g>\n");
}

/* Every second number, counted from the last, is of class "odd": a narrow page leaves those out. */
static alibi_status append_x_tick(struct text *out, const struct figure *f, int i)
{
    double at = across(f, f->x.tick[i]);
    bool odd = f->x.ticks > 4 && (f->x.ticks - i) % 2 == 0;

    TRY_RETURN(text_append(
        out, "<line class=\"base\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.1f\" y2=\"%.1f\"/>", at, at,
        f->height, f->height + 4));
    return text_append(out, "<text%s x=\"%.2f%%\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                       odd ? " class=\"odd\"" : "", at, f->height + 19, tick_shown(&f->x, i).text);
}

static alibi_status append_x_axis(struct text *out, const struct figure *f)
{
    TRY_RETURN(text_append(
        out,
        "<g class=\"axis\">\n<line class=\"base\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
        f->height, f->height));
    for (int i = 0; i < f->x.ticks; i++)
        TRY_RETURN(append_x_tick(out, f, i));
    TRY_RETURN(
        text_append(out, "<text class=\"axis-title\" x=\"50%%\" y=\"%.1f\" text-anchor=\"middle\">",
                    f->height + 40));
    TRY_RETURN(append_escaped(out, f->chart->x_label));
    return text_append(out, "</text>\n</g>\n");
}

/* The mark's label leans to the side that has room. */
static alibi_status append_mark(struct text *out, const struct figure *f)
{
    const struct chart *c = f->chart;
    double at;

    if (!isfinite(c->mark_x) || (f->x.log && c->mark_x <= 0))
        return ALIBI_OK;
    at = across(f, c->mark_x);
    TRY_RETURN(text_append(
        out, "<g class=\"mark\"><line x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"-14\" y2=\"%.1f\"/>", at, at,
        f->height));
    if (c->mark_label != NULL) {
        TRY_RETURN(text_append(out, "<text x=\"%.2f%%\" dx=\"%d\" y=\"-6\" text-anchor=\"%s\">", at,
                               at > 60 ? -6 : 6, at > 60 ? "end" : "start"));
        TRY_RETURN(append_escaped(out, c->mark_label));
        TRY_RETURN(text_append(out, "</text>"));
    }
    return text_append(out, "</g>\n");
}

/* ---- curves */

static alibi_status append_lines(struct text *out, const struct figure *f, const struct series *s,
                                 const char *dash)
{
    for (int i = 1; i < s->count; i++) {
        struct segment line;
        if (!has_point(s, i - 1, &f->x, &f->y) || !has_point(s, i, &f->x, &f->y))
            continue;
        line = (struct segment){ axis_place(&f->x, s->x[i - 1]), axis_place(&f->y, s->y[i - 1]),
                                 axis_place(&f->x, s->x[i]), axis_place(&f->y, s->y[i]) };
        if (!clip_segment(&line))
            continue;
        TRY_RETURN(text_append(
            out,
            "<line stroke-dasharray=\"%s\" x1=\"%.2f%%\" y1=\"%.1f\" x2=\"%.2f%%\" y2=\"%.1f\"/>\n",
            dash, 100 * line.x0, f->height * (1 - line.y0), 100 * line.x1,
            f->height * (1 - line.y1)));
    }
    return ALIBI_OK;
}

/* A point beyond the range has no marker, but the script can still tell its value. */
static alibi_status append_point(struct text *out, const struct figure *f, int series, int i)
{
    const struct series *s = &f->chart->series[series];
    double place = axis_place(&f->y, s->y[i]);
    struct shown x = show_tick(round(s->x[i]), 0), y = show_ppl(s->y[i]);

    TRY_RETURN(text_append(
        out,
        "<svg class=\"point\" overflow=\"visible\" x=\"%.2f%%\" y=\"%.1f\" data-x=\"%s\" data-y=\"%s\"><title>",
        across(f, s->x[i]), f->height * (1 - fmin(fmax(place, 0), 1)), x.text, y.text));
    TRY_RETURN(append_escaped(out, s->name));
    TRY_RETURN(text_append(out, ": %s at %s</title>", y.text, x.text));
    if (place >= 0 && place <= 1)
        TRY_RETURN(text_append(out, "<path d=\"%s\"/>", look_of(series)->marker));
    return text_append(out, "</svg>\n");
}

static alibi_status append_series(struct text *out, const struct figure *f, int series)
{
    const struct series *s = &f->chart->series[series];

    TRY_RETURN(text_append(out,
                           "<g class=\"series s%d\" style=\"color:var(--series-%d)\" data-name=\"",
                           series, series % LOOKS));
    TRY_RETURN(append_escaped(out, s->name));
    TRY_RETURN(text_append(out, "\">\n"));
    TRY_RETURN(append_lines(out, f, s, dash_of(series)));
    for (int i = 0; i < s->count; i++)
        if (has_point(s, i, &f->x, &f->y))
            TRY_RETURN(append_point(out, f, series, i));
    return text_append(out, "</g>\n");
}

static alibi_status append_label_text(struct text *out, const struct figure *f,
                                      const struct label *label)
{
    alibi_status status;
    struct text text = { 0 };

    TRY(append_label(&text, f->chart, label, LABEL_CHARACTERS));
    TRY(append_escaped(out, text.data));
out:
    text_free(&text);
    return status;
}

/* The curve ends so far from the labels that a line between them would look like a part of it. */
static bool is_apart(const struct label *label)
{
    return label->early || label->x < 0.85;
}

/* A leader joins the label to the end of its curve; where that is far off, the curve's marker
 * stands in front of the label. */
static alibi_status append_one_label(struct text *out, const struct figure *f,
                                     const struct label *label)
{
    TRY_RETURN(text_append(out, "<g class=\"label s%d\" style=\"color:var(--series-%d)\">",
                           label->series, label->series % LOOKS));
    if (is_apart(label))
        TRY_RETURN(text_append(out,
                               "<path class=\"key\" transform=\"translate(11,%.1f)\" d=\"%s\"/>",
                               label->at, look_of(label->series)->marker));
    else
        TRY_RETURN(text_append(out, "<path class=\"leader\" d=\"M%d,%.1fL16,%.1f\"/>",
                               label->x > 0.99 ? 6 : 0, f->height * (1 - label->y), label->at));
    TRY_RETURN(text_append(out, "<text x=\"20\" y=\"%.1f\" dy=\".35em\">", label->at));
    TRY_RETURN(append_label_text(out, f, label));
    return text_append(out, "</text></g>\n");
}

/* From where the curve ends to the edge of the area, where the leader proper begins. */
static alibi_status append_run_up(struct text *out, const struct figure *f,
                                  const struct label *label)
{
    double at = f->height * (1 - label->y);

    if (is_apart(label) || label->x > 0.99)
        return ALIBI_OK;
    return text_append(
        out,
        "<g class=\"label s%d\" style=\"color:var(--series-%d)\"><line class=\"leader\" x1=\"%.2f%%\" x2=\"100%%\" "
        "y1=\"%.1f\" y2=\"%.1f\"/></g>\n",
        label->series, label->series % LOOKS, 100 * label->x, at, at);
}

static alibi_status append_labels(struct text *out, const struct figure *f)
{
    for (int i = 0; i < f->label_count; i++)
        TRY_RETURN(append_run_up(out, f, &f->labels[i]));
    TRY_RETURN(text_append(out, "<svg class=\"labels\" x=\"100%%\" overflow=\"visible\">\n"));
    for (int i = 0; i < f->label_count; i++)
        TRY_RETURN(append_one_label(out, f, &f->labels[i]));
    return text_append(out, "</svg>\n");
}

/* The first series is drawn last, on top. */
static alibi_status append_figure(struct text *out, const struct figure *f)
{
    TRY_RETURN(text_append(
        out,
        "<svg class=\"plot\" role=\"img\" aria-labelledby=\"%s-title %s-desc\" width=\"100%%\" height=\"%.0f\" "
        "style=\"margin:%dpx %dpx %dpx %dpx;width:calc(100%% - %dpx);overflow:visible\">\n",
        f->id, f->id, f->height, TOP, f->right, BOTTOM, f->left, f->left + f->right));
    TRY_RETURN(append_description(out, f));
    TRY_RETURN(append_y_axis(out, f));
    TRY_RETURN(append_x_axis(out, f));
    TRY_RETURN(append_mark(out, f));
    for (int s = f->chart->count - 1; s >= 0; s--)
        TRY_RETURN(append_series(out, f, s));
    TRY_RETURN(append_labels(out, f));
    return text_append(out, "</svg>\n");
}

alibi_status plot_svg(struct text *out, const struct chart *chart)
{
    alibi_status status;
    struct figure f = { .chart = chart, .id = chart->id != NULL ? chart->id : "plot" };

    if (!chart_axes(chart, &f.x, &f.y))
        return text_append(out, "<p class=\"note\">No values to plot.</p>\n");
    TRY(NEW_ARRAY(&f.labels, chart->count, "a figure"));
    TRY(lay_out(&f));
    TRY(append_figure(out, &f));
out:
    mem_free(f.labels);
    return status;
}
