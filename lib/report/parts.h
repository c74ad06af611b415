/* parts.h - what the files of this room share
 *
 *   results -> view (names, lengths, values) -> curves -> chart -> axes -> terminal cells or SVG
 *                                            -> conclusions, tables, JSON, CSV */
#ifndef PARTS_H
#define PARTS_H

#include "report/report.h"

/* ---- numbers as people read them (numbers.c) */

/* Short enough for a cell. What is missing or not a number is shown as a dash, so that no output
 * says "nan". */
struct shown {
    char text[32];
};

#define NO_VALUE "–"

struct shown show_ppl(double value);                /* 3.213, 41.2, 406, 1.2e+05, ∞ */
struct shown show_real(double value, int decimals); /* that many decimals, fewer for large values */
struct shown show_count(double value);              /* 950, 12.3K, 1.80M */
struct shown show_bytes(double value);              /* 83.2 MiB */
struct shown show_share(double value);              /* 24%, 0.3% of 1 */
struct shown show_tick(
    double value, double step); /* 0, 0.5, 2048, 20K; told from value + step unless step is 0 */

/* ---- text that people read (display.c) */

/* Characters that the UTF-8 text takes on a terminal; colour sequences take none. */
int display_width(const char *text);

/* Appends text cut to `width` characters, the last of them "…" if something was cut. */
alibi_status append_cut(struct text *out, const char *text, int width);
alibi_status append_spaces(struct text *out, int count);

/* Appends text for HTML, in elements and in quoted attributes. */
alibi_status append_escaped(struct text *out, const char *text);

/* ---- how series look (palette.c) */

/* Eight looks for terminal and page; from the ninth series on the colours and markers come again,
 * with another dash. */
enum { LOOKS = 8 };

struct look {
    const char *light,
        *dark;          /* CSS colours; as text at least 4.5 : 1 against the page of that scheme */
    int terminal;       /* the nearest of the 256 colours that reads on black and on white */
    const char *marker; /* SVG path around 0,0 */
};

const struct look *look_of(int series);
const char *dash_of(int series); /* stroke-dasharray */

/* One letter per series, distinct as long as there are letters, from its name where that is free.
 * */
void marker_letters(char *letters, const struct series *series, int count);

/* ---- axes (axis.c, ticks.c) */

enum { TICKS_MAX = 10 };

struct axis {
    double from, to;
    bool log;
    int ticks;
    double tick[TICKS_MAX];
};

/* Ranges and ticks of both axes; false if no point of the chart can be shown. */
bool chart_axes(const struct chart *chart, struct axis *x, struct axis *y);

/* Whether point i of the series is a number that these axes have a place for, within the range or
 * beyond. */
bool has_point(const struct series *s, int i, const struct axis *x, const struct axis *y);

/* 0 at the start of the axis, 1 at its end, beyond that outside. */
double axis_place(const struct axis *axis, double value);

/* At round values: powers of two, 1-2-5 within decades, or even steps of 1, 2 or 5; 2 to TICKS_MAX
 * of them. */
void ticks_powers_of_two(struct axis *axis);
void ticks_decades(struct axis *axis);
void ticks_even(struct axis *axis);
struct shown tick_shown(const struct axis *axis,
                        int i); /* its number, with the digits that tell it from its neighbours */
int ticks_width(const struct axis *axis); /* characters of the widest number */

/* A line between two points, as places on both axes. */
struct segment {
    double x0, y0, x1, y1;
};

/* The part of the segment within 0..1 in both directions; false if there is none. */
bool clip_segment(struct segment *s);

/* ---- labels at the ends of curves (labels.c) */

struct label {
    int series;
    double x, y;   /* where the curve ends, as places on both axes, y clipped to 0..1 */
    bool above;    /* it ends above the range */
    bool early;    /* it ends before the others do */
    double last_x; /* the value of x there */
    double at;     /* where the label goes, in the caller's units, downward */
};

/* One label per series that has a point, ordered from the top; returns how many. */
int labels_of(struct label *labels, const struct chart *chart, const struct axis *x,
              const struct axis *y);

/* Moves the labels apart to at least `gap` between neighbours within 0..size, as little as it
 * takes. */
void labels_spread(struct label *labels, int count, double gap, double size);

/* The name, cut to `width` characters, and what the curve does where it ends: "learned, to 128",
 * "sinusoidal ↑". */
alibi_status append_label(struct text *out, const struct chart *chart, const struct label *label,
                          int width);
alibi_status labels_width(int *widest, const struct chart *chart, const struct label *labels,
                          int count, int width);

/* ---- results (view.c) */

/* Names of methods and devices fit to be shown, and the test lengths of all methods, ascending. */
struct view {
    const struct alibi_compare_result *result;
    enum alibi_protocol protocol; /* whose evaluations are seen */
    bool one_scale; /* perplexity is drawn with and without a sliding window, to be compared */
    int64_t train_length;
    int methods, lengths;
    int64_t length[ALIBI_LIST_MAX];
    char name[ALIBI_LIST_MAX][ALIBI_NAME_MAX];
    char device[ALIBI_LIST_MAX][ALIBI_DEVICE_NAME_MAX]; /* where each was trained; "": not known */
};

void view_init(struct view *v, const struct alibi_compare_result *r); /* nonoverlapping */

/* The same with another protocol's evaluations. A stream has one length, that of the text it read.
 * */
struct view view_of(const struct view *v, enum alibi_protocol protocol);

/* The most tokens that any evaluation scored; 0: there is none. */
int64_t view_tokens(const struct view *v);

/* The evaluation of a method at a length; NULL where there is none. */
const struct alibi_eval_result *view_at(const struct view *v, int method, int64_t length);

/* The method with the lowest finite perplexity at a length; -1 if none has one. */
int view_best(const struct view *v, int64_t length);

/* A chart and what it points to. */
struct curves {
    struct chart chart;
    char title[96], mark_label[48];
    struct series series[ALIBI_LIST_MAX];
    double x[ALIBI_LIST_MAX][ALIBI_POSITION_BINS], y[ALIBI_LIST_MAX][ALIBI_POSITION_BINS];
};

enum curve_kind { CURVE_PPL, CURVE_SPEED, CURVE_MEMORY };

/* One curve per method, against length; or loss against position within windows of one length.
 * mem_free. */
alibi_status curves_by_length(struct curves **out, const struct view *v, enum curve_kind kind);
alibi_status curves_by_position(struct curves **out, const struct view *v, int64_t length);

/* ---- what the numbers say (conclusion.c) */

/* One sentence on the methods that do not get worse past the training length, and the one that
 * loses most. */
alibi_status append_headline(struct text *out, const struct view *v);

/* A sentence on who is best at the longest length, or that nobody is anywhere, one on methods that
 * cannot go there, what a sliding window says, and who is best as one stream; may append nothing.
 * */
alibi_status append_detail(struct text *out, const struct view *v);

/* ---- the setting (setting.c) */

/* The options of model and training that hold for every method, in the order of their tables: group
 * 0 is the model's. Returns NULL past the end; *values is the struct that holds its value. */
const struct alibi_option *setting_at(const struct alibi_compare_result *r, int group, int index,
                                      const void **values);

/* ---- the page (html.c puts it together) */

extern const char page_style[], page_script[]; /* page_style.c, page_script.c */

alibi_status html_name(struct text *out, const struct view *v, int method); /* html_tables.c */
alibi_status html_perplexity_table(struct text *out, const struct view *v);
alibi_status html_stream_table(struct text *out, const struct view *v);
alibi_status html_full_table(struct text *out, const struct view *v);
alibi_status html_training_bars(struct text *out, const struct view *v);
alibi_status html_setting(struct text *out, const struct view *v); /* html_setting.c */

#endif
