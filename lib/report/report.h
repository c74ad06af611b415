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

/* Losses by step of a training, in bins of neighbouring steps: sums, and how many. */
enum { REPORT_BINS = ALIBI_POSITION_BINS };

struct report_bins {
    int64_t count[REPORT_BINS];
    double step[REPORT_BINS], loss[REPORT_BINS];
};

/* The log of one training. */
struct report_log {
    int method;   /* of the results */
    int64_t step; /* the last one; 0: none yet */
    struct report_bins train, valid;
};

/* Steps beyond the last one of the training are ignored. */
void report_bins_add(struct report_bins *bins, int64_t step, int64_t steps, double loss);

/* The logs of the trainings that were begun, and how far the work is. */
struct report_training {
    int logs;
    struct report_log *log;
    int models, done; /* trained and evaluated */
    int64_t refresh;  /* seconds after which the page of unfinished work loads itself again; 0:
                         never */
};

/* One page that loads nothing. The second one is of a training run alone: the first method of the
 * result, which has no evaluations. */
alibi_status report_html(struct text *out, const struct alibi_compare_result *r,
                         const struct report_training *t);
alibi_status report_run_html(struct text *out, const struct alibi_compare_result *r,
                             const struct report_training *t);

#endif
