/* heat.c - the share of attention by distance and head as a heat map
 *
 * Like the figures of plot_svg.c, the element covers the map only and takes whatever width there
 * is. Cells of one shade are one path, so that a map of a thousand cells takes some kilobytes. The
 * script reads the values from data-rows (thousandths of the weight, a row for each head),
 * data-columns (the distances), data-heads, data-row and data-gap (pixels). */
#include <math.h>

#include "report/parts.h"

enum { MAP_HEIGHT = 360, ROW_LEAST = 4, ROW_MOST = 14, LAYER_GAP = 3, LEFT = 34 };

/* A shade begins at a share of the weight. */
static const struct {
    double from, opacity;
    const char *name;
} shades[] = {
    { 0.01, 0.08, "1%" }, { 0.02, 0.17, "2%" }, { 0.05, 0.29, "5%" }, { 0.1, 0.43, "10%" },
    { 0.2, 0.58, "20%" }, { 0.4, 0.76, "40%" }, { 0.7, 0.95, "70%" },
};
enum { SHADES = COUNT(shades) };

/* -1: below all of them. */
static int shade_of(double share)
{
    int shade = SHADES - 1;

    while (shade >= 0 && !(share >= shades[shade].from))
        shade--;
    return shade;
}

static int row_top(const struct alibi_attention_result *a, int64_t row, int height)
{
    return (int)(row * height + row / a->heads * LAYER_GAP);
}

/* Neighbouring cells of a row that have the shade are one rectangle. */
static void append_shade(struct text *out, const struct alibi_attention_result *a, int shade,
                         int height)
{
    text_append(out, "<path fill-opacity=\"%.2f\" d=\"", shades[shade].opacity);
    for (int64_t row = 0; row < a->layers * a->heads; row++)
        for (int b = 0, end; b < a->bins; b = end) {
            for (end = b; end < a->bins && shade_of(a->head[row].share[end]) == shade;)
                end++;
            if (end > b)
                text_append(out, "M%d,%dh%dv%dh%dz", b, row_top(a, row, height), end - b, height,
                            b - end);
            else
                end++;
        }
    text_append(out, "\"/>\n");
}

static void append_axes(struct text *out, const struct alibi_attention_result *a, int height,
                        int total)
{
    int64_t every =
        (a->layers * a->heads * height + a->layers * LAYER_GAP) / a->layers < 12 ? 2 : 1;

    text_append(out, "<text class=\"axis-title\" x=\"%d\" y=\"-10\">layer</text>\n", -LEFT);
    for (int64_t n = 0; n < a->layers; n += every)
        text_append(out, "<text x=\"-8\" y=\"%d\" dy=\".35em\" text-anchor=\"end\">%lld</text>\n",
                    (row_top(a, n * a->heads, height) + row_top(a, (n + 1) * a->heads - 1, height) +
                     height) /
                        2,
                    (long long)n + 1);
    for (int b = 0; b < a->bins; b++)
        text_append(out, "<text%s x=\"%.2f%%\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                    (a->bins - b) % 2 == 0 ? " class=\"odd\"" : "", 100 * (b + 0.5) / a->bins,
                    total + 15, show_tick(b == 0 ? 0 : exp2(b - 1), 0).text);
    text_append(out,
                "<text class=\"axis-title\" x=\"50%%\" y=\"%d\" text-anchor=\"middle\">"
                "distance in tokens</text>\n",
                total + 34);
}

static void append_data(struct text *out, const struct alibi_attention_result *a, int height)
{
    text_append(out, " data-heads=\"%lld\" data-row=\"%d\" data-gap=\"%d\" data-columns=\"",
                (long long)a->heads, height, LAYER_GAP);
    for (int b = 0; b < a->bins; b++)
        text_append(out, "%s%s", b > 0 ? "," : "", show_distances(b).text);
    text_append(out, "\" data-rows=\"");
    for (int64_t row = 0; row < a->layers * a->heads; row++)
        for (int b = 0; b < a->bins; b++)
            text_append(out, "%s%.0f",
                        b > 0     ? ","
                        : row > 0 ? ";"
                                  : "",
                        1000 * a->head[row].share[b]);
    text_append(out, "\"");
}

void heat_svg(struct text *out, const struct alibi_attention_result *a, int look, const char *id,
              const char *title)
{
    int64_t rows = a->layers * a->heads;
    int height = (int)fmin(fmax((double)MAP_HEIGHT / (double)rows, ROW_LEAST), ROW_MOST);
    int total = row_top(a, rows - 1, height) + height;
    double near = 100 * (1 + log2((double)a->near)) / a->bins;

    text_append(out,
                "<svg class=\"plot heat\" role=\"img\" aria-labelledby=\"%s-title %s-desc\" "
                "width=\"100%%\" height=\"%d\" style=\"margin:30px 8px 46px %dpx;"
                "width:calc(100%% - %dpx);overflow:visible;color:var(--series-%d)\"",
                id, id, total, LEFT, LEFT + 8, look % LOOKS);
    append_data(out, a, height);
    text_append(out,
                ">\n<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%lld layers of %lld "
                "heads, %d ranges of distances.</desc>\n",
                id, escape(title).text, id, (long long)a->layers, (long long)a->heads, a->bins);
    text_append(out,
                "<svg width=\"100%%\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                "preserveAspectRatio=\"none\" class=\"cells\">\n",
                total, a->bins, total);
    for (int shade = 0; shade < SHADES; shade++)
        append_shade(out, a, shade, height);
    text_append(out, "</svg>\n");
    append_axes(out, a, height, total);
    if (near < 100)
        text_append(out,
                    "<g class=\"mark\"><line x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"-6\" y2=\"%d\"/>"
                    "<text x=\"%.2f%%\" y=\"-10\" text-anchor=\"middle\">%lld</text></g>\n",
                    near, near, total, near, (long long)a->near);
    text_append(out, "</svg>\n");
}

void heat_legend(struct text *out)
{
    text_append(out, "<p class=\"scale\">Share of the weight, from");
    for (int i = 0; i < SHADES; i++)
        text_append(out, " <span><i style=\"opacity:%.2f\"></i>%s</span>", shades[i].opacity,
                    shades[i].name);
    text_append(out, "</p>\n");
}
