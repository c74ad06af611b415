/* report.h - results as people and programs read them: tables, terminal plots, SVG, the HTML page,
 * JSON, CSV */
#ifndef REPORT_H
#define REPORT_H

#include "base/base.h"

/* One curve: count points, x ascending; y NaN where there is none. */
struct series {
    const char *name;
    int count;
    const double *x, *y;
};

struct chart {
    const char *title, *x_label, *y_label;
    bool log_x, log_y; /* ticks on a logarithmic x axis are powers of two: it counts tokens */
    bool from_zero;    /* a linear y axis starts at 0 */
    double y_limit;    /* y ends here, and curves that go beyond are cut; 0: y goes as far as the
                          curves do */
    double y_least, y_most; /* y covers these too, so that two charts have one scale; 0: y is as
                               wide as the curves */
    double mark_x;          /* a vertical line, such as the training length; NaN: none */
    const char *mark_label;
    const struct series *series;
    int count;
    const char *id; /* of the <svg> within its page; NULL: "plot" */
    int height;     /* of the <svg>, pixels; 0: 320 */
};

/* A plot of at most that many columns and rows (40 and 8 at least), curves in braille dots, a
 * letter at every point. */
alibi_status plot_terminal(struct text *out, const struct chart *chart, int columns, int rows,
                           bool colour);

/* An <svg> element that is as wide as the page lets it be, with letters of constant size: places
 * across are percentages, places down are pixels. The curves' colours are the page's custom
 * properties --series-0, --series-1, ... */
alibi_status plot_svg(struct text *out, const struct chart *chart);

/* A table of text cells, rows x columns, first row the heads; the first column is left-aligned, the
 * others right-aligned. Cells may have colour sequences in them. */
alibi_status table_terminal(struct text *out, const char *const *cells, int rows, int columns,
                            bool colour);

alibi_status report_text(struct text *out, const struct alibi_compare_result *r, int columns,
                         bool colour);
alibi_status report_json(struct text *out, const struct alibi_compare_result *r);
alibi_status report_csv(struct text *out, const struct alibi_compare_result *r);
alibi_status report_html(struct text *out, const struct alibi_compare_result *r);

#endif
