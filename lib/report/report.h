/* report.h - the results of a comparison as people and programs read them
 *
 * Each function appends a whole report to `out`. The same results give the same bytes. */
#ifndef REPORT_H
#define REPORT_H

#include "base/base.h"

/* Tables, a plot and a conclusion for a terminal of that many columns (40 to 140 are used). */
alibi_status report_text(struct text *out, const struct alibi_compare_result *r, int columns,
                         bool colour);
alibi_status report_json(struct text *out, const struct alibi_compare_result *r);
alibi_status report_csv(struct text *out, const struct alibi_compare_result *r);
alibi_status report_html(struct text *out, const struct alibi_compare_result *r);

#endif
