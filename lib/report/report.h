/* report.h - results as people and programs read them: tables, terminal plots, SVG, the HTML page, JSON, CSV */
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
    bool log_x, log_y;
    double mark_x; /* a vertical line, such as the training length; NaN: none */
    const char *mark_label;
    const struct series *series;
    int count;
};

/* A plot of at most that many columns and rows, in Unicode block or braille characters. */
alibi_status plot_terminal(struct text *out, const struct chart *chart, int columns, int rows, bool colour);

/* An <svg> element that scales with the page and takes its colours from the page's custom properties. */
alibi_status plot_svg(struct text *out, const struct chart *chart);

/* A table of text cells, rows x columns, first row the heads; the first column is left-aligned, the others right-aligned. */
alibi_status table_terminal(struct text *out, const char *const *cells, int rows, int columns, bool colour);

alibi_status report_text(struct text *out, const struct alibi_compare_result *r, int columns, bool colour);
alibi_status report_json(struct text *out, const struct alibi_compare_result *r);
alibi_status report_csv(struct text *out, const struct alibi_compare_result *r);
alibi_status report_html(struct text *out, const struct alibi_compare_result *r);

#endif
