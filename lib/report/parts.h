/* parts.h - shared by the files of this room
 *
 *   results -> view (names, lengths, values) -> curves -> chart -> axes -> terminal cells or SVG
 *                                            -> conclusions, tables, JSON, CSV
 *
 * Appending needs no check per call: a struct text remembers its first failure. Functions that
 * allocate memory of their own return a status. */
#ifndef PARTS_H
#define PARTS_H

#include "report/report.h"

/* ---- numbers, names and tables (show.c) */

/* A number short enough for a table cell. A missing value is a dash, never "nan". */
struct shown {
    char text[32];
};

#define NO_VALUE "–"

struct shown show_ppl(double value);                /* 3.213, 41.2, 406, 1.2e+05, ∞ */
struct shown show_real(double value, int decimals); /* fewer decimals from 1000 up */
/* An error: 0.4, 12.3K. An error that rounds to 0 is shown as a bound: <0.05. */
struct shown show_error(double value, int decimals);
/* The same after a perplexity, from the error of its logarithm: ±0.012; "" if it is not known. In
 * every table, figure and sentence ± is one standard error, of the text and of the seeds. A large
 * one is shown as a factor, ×÷4.3: the value less its error would be near 0, or below. */
struct shown show_ppl_error(double ppl, double error);
bool error_is_factor(double error);
bool factor_since(const struct text *out, size_t start); /* text after `start` has such a factor */
#define FACTOR_KEY "± is one standard error, ×÷ the same as a factor."
struct shown show_nats(double value);  /* differences of losses: 0.0123, -0.0004 */
struct shown show_count(double value); /* 950, 12.3K, 1.80M */
struct shown show_bytes(double value); /* 83.2 MiB */
struct shown show_share(double value); /* of 1: 24%, 0.3% */
struct shown show_distances(int bin);  /* of struct alibi_head_attention: 0, 1, 2–3, 4–7 */
/* 0, 0.5, 2048, 20K; with enough digits to differ from value + step, unless step is 0. */
struct shown show_tick(double value, double step);

/* Characters that UTF-8 text takes on a terminal; colour sequences take none. */
int display_width(const char *text);

/* Bytes to keep so that the text, with "…" after it if something is cut, takes `width` at most. */
int cut_bytes(const char *text, int width);
void append_cut(struct text *out, const char *text, int width);
void append_spaces(struct text *out, int count); /* none if count is negative */

/* Text for HTML, in elements and in quoted attributes. Names, titles and labels fit in `escaped`:
 * they have at most 127 bytes. */
struct escaped {
    char text[128 * 6];
};
struct escaped escape(const char *text);
void append_escaped(struct text *out, const char *text);

/* A table for a terminal. Row 0 holds the heads; the first column is left-aligned, the others are
 * right-aligned. Cells may contain colour sequences. */
enum { CELL_BYTES = 96 };

struct table {
    int rows, columns;
    char (*cells)[CELL_BYTES];
};

alibi_status table_init(struct table *t, int rows, int columns); /* all cells are empty */
void table_fini(struct table *t);
void table_set(struct table *t, int row, int column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
const char *table_cell(const struct table *t, int row, int column);
int table_width(const struct table *t, int column);

/* Column 0, and first..end-1. */
void table_append(struct text *out, const struct table *t, int first, int end, bool colour);
/* All columns, in several parts if they do not fit beside each other. Those from `group` on stay
 * together if they can. */
void table_append_parts(struct text *out, const struct table *t, int columns, int group,
                        bool colour);

/* ---- charts (chart.c) */

enum { SERIES_MAX = ALIBI_LIST_MAX, TICKS_MAX = 10, LOOKS = 8 };

/* One curve: count points, x ascending; y is NaN where there is no value. low and high bound each
 * value by its error; NULL, or NaN: not known. */
struct series {
    const char *name;
    int count;
    const double *x, *y, *low, *high;
    int look;
    double fade;    /* share of the page's colour in that of the curve: 0 to 1 */
    bool reference; /* no model's curve, but a measure for them: dashed, in a quiet colour */
};

struct chart {
    const char *title, *x_label, *y_label;
    bool log_x, log_y;      /* a logarithmic x axis counts tokens: its ticks are powers of two */
    bool plain;             /* without markers: the points are many */
    bool range;             /* low and high are a range, and no errors */
    bool ends;              /* curves are meant to end at different places: each has a marker there,
                               and its label does not say where */
    bool zero;              /* the y axis covers 0 and all bounds; values may be negative */
    double y_limit;         /* y ends here and curves beyond are clipped; 0: no limit */
    double y_from, y_to;    /* y has this range, and curves beyond are clipped; both 0: that of the
                               points */
    double y_least, y_most; /* y covers these too, so that two charts share a scale; 0: not given */
    double mark_x;          /* a vertical line, such as the training length; NaN: none */
    const char *mark_label;
    const struct series *series;
    int count;                          /* SERIES_MAX at most */
    struct shown (*show)(double value); /* of y; NULL: as a perplexity */
    bool distances; /* x is a distance in tokens, in bins that double; 0 is drawn at 1/2 */
    const char *id; /* of the <svg> within its page; NULL: "plot" */
    int height;     /* of the <svg>, pixels; 0: 320 */
    bool parts; /* the series are parts of one method: the boxes of methods do not switch them */
};

struct shown chart_value(const struct chart *chart, double y);

struct axis {
    double from, to;
    bool log;
    int ticks;
    double tick[TICKS_MAX];
};

/* Ranges and ticks of both axes; false if the chart has no point to show. */
bool chart_axes(const struct chart *chart, struct axis *x, struct axis *y);
bool chart_has_mark(const struct chart *chart);

/* Position of a value: 0 at the start of the axis, 1 at its end; may be outside 0..1. */
double axis_place(const struct axis *axis, double value);

/* Whether point i is a number that both axes can place, within their range or not. */
bool has_point(const struct series *s, int i, const struct axis *x, const struct axis *y);

/* A line between two points, in places on both axes. */
struct segment {
    double x0, y0, x1, y1;
};

/* The part of a segment, or of the line from point i-1 to point i, that is within both ranges;
 * false if there is none. Points on either side of a missing one are not joined. */
bool clip_segment(struct segment *s);
bool series_segment(struct segment *out, const struct series *s, int i, const struct axis *x,
                    const struct axis *y);
/* Whether that line leaves the range before point i; the end of the segment is the place. */
bool series_leaves(struct segment *out, const struct series *s, int i, const struct axis *x,
                   const struct axis *y);

/* 2 to TICKS_MAX ticks at round values: powers of two, 1-2-5 in decades, or steps of 1, 2, 5. */
void ticks_powers_of_two(struct axis *axis);
void ticks_decades(struct axis *axis);
struct shown tick_shown(const struct axis *axis, int i); /* differs from its neighbours */
int ticks_width(const struct axis *axis);                /* characters of the widest tick */

/* The label at the end of a curve. */
struct label {
    int series;
    double x, y;           /* where the curve ends, in places on both axes, y clipped to 0..1 */
    bool above, below;     /* it ends above the range; below */
    bool early;            /* it ends before the others do */
    double last_x, last_y; /* the values there */
    double at;             /* position of the label in the caller's units, downward */
};

/* One label per series that has a point, ordered from the top; returns how many. */
int chart_labels(struct label labels[SERIES_MAX], const struct chart *chart, const struct axis *x,
                 const struct axis *y);

/* Moves labels apart to at least `gap` within 0..size, as little as possible. */
void labels_spread(struct label *labels, int count, double gap, double size);

/* The name, cut to `width` characters, and how its curve ends: "learned, to 128", "t5 ↑ 3e+07". */
struct label_text {
    char text[96];
};
struct label_text label_text(const struct chart *chart, const struct label *label, int width);

/* Eight looks; from the ninth on they repeat with another dash. */
struct look {
    const char *light, *dark; /* CSS colours, as text at least 4.5 : 1 against their page */
    int terminal;             /* the nearest of 256 colours that reads on black and on white */
    const char *marker;       /* SVG path around 0,0 */
};
const struct look *look_of(int look);
const char *dash_of(int look); /* stroke-dasharray */

/* Eight position methods have the same look in every report; the others, and names that begin with
 * no method's, take the looks that no method of the report owns. Models of one method, "alibi-512"
 * and "alibi:bias-max=16", have one colour and different dashes, and so have models with the
 * weights of one: original[i] is the one whose weights model i has, -1 its own; NULL: all have. */
void looks_assign(int *looks, const char (*names)[ALIBI_NAME_MAX], const int *original, int count);

/* One letter per series, from its name if one is free; distinct as long as there are letters. */
void marker_letters(char *letters, const struct series *series, int count);

/* At most that many columns and rows (at least 40 and 8): curves in braille dots, a letter at every
 * point. */
alibi_status plot_terminal(struct text *out, const struct chart *chart, int columns, int rows,
                           bool colour);

/* An <svg> element as wide as the page allows, with text of constant size. The page defines the
 * colours of the curves: custom properties --series-0, --series-1, ... */
void plot_svg(struct text *out, const struct chart *chart);

/* ---- results (view.c) */

/* Results as reports show them: names fit for one line, and the test lengths of all methods. */
struct view {
    const struct alibi_compare_result *result;
    enum alibi_protocol protocol; /* of the evaluations in this view */
    bool passage;                 /* the tokens of the stream in windows of the training length */
    bool sparse;                  /* tables have no rows for methods without results */
    bool one_scale;            /* the charts with and without a sliding window share their y axis */
    const int64_t *trained_at; /* the training length of each method; NULL: train_length of all */
    /* Methods without a box, of which nothing is known yet; and without costs of training, since
     * they have the weights of another. NULL: none. */
    const bool *absent, *untrained;
    int64_t train_length;
    int methods, lengths;
    int64_t length[ALIBI_LIST_MAX]; /* ascending, each once */
    char name[ALIBI_LIST_MAX][ALIBI_NAME_MAX];
    int look[ALIBI_LIST_MAX];
    char device[ALIBI_LIST_MAX][ALIBI_DEVICE_NAME_MAX]; /* of the first seed; "": not known */
    int seeds;                                          /* of the method with the most */
    bool ignorant[ALIBI_LIST_MAX];                      /* has learned nothing: see view_init */
};

/* Nonoverlapping. Whether a method has learned something is decided at view_home(), see
 * change_is_learning(). */
void view_init(struct view *v, const struct alibi_compare_result *r);
/* The same of a part of an experiment. */
void view_init_part(struct view *v, const struct alibi_compare_result *r,
                    const struct report_experiment *x);

/* The longest test length up to the training length, or the shortest of all; 0: there is none. */
int64_t view_home(const struct view *v);

/* The results of another protocol. A stream has one length: the number of its tokens. Its tokens in
 * windows have the training length. */
struct view view_of(const struct view *v, enum alibi_protocol protocol);
struct view view_passage(const struct view *v);

bool view_has_length(const struct view *v, int64_t length);
int64_t view_tokens(const struct view *v); /* the most that any evaluation scored; 0: none */
/* The first evaluation at the first length that has one; NULL: there is none. */
const struct alibi_eval_result *view_any(const struct view *v);

/* The evaluation of seed number `seed` of a method at a length; NULL if there is none. */
const struct alibi_eval_result *view_seed(const struct view *v, int method, int seed,
                                          int64_t length);

/* The mean over the seeds of a method; tokens == 0 if there is none. Losses, shares and speeds are
 * means, perplexities geometric means (the exponential of the mean loss), memory is the most. With
 * S seeds that spread by sd, standard_error^2 = (mean error of the text)^2 + sd^2 / S. */
struct alibi_eval_result view_mean(const struct view *v, int method, int64_t length);
double view_ppl(const struct view *v, int method, int64_t length); /* NaN if there is none */

double view_error(const struct view *v, int method, int64_t length); /* that standard_error */
/* An error that is shown as one; of a stream also in its table's column of windows. */
bool view_has_factor(const struct view *v);

/* The standard deviation of the loss over the seeds; NaN with fewer than two. */
double view_spread(const struct view *v, int method, int64_t length);

/* The cost of training: means over the seeds, and the most memory. NaN where it is not known. */
struct cost {
    double tokens_per_s, seconds, loss, peak_bytes, parameters;
};
struct cost view_cost(const struct view *v, int method);

/* When the last model was trained; "": not known. */
const char *view_date(const struct view *v);

/* The method with the lowest finite perplexity at a length, -1 if none; `other`, and those that
 * have learned nothing, are not counted. */
int view_best(const struct view *v, int64_t length, int other);

/* The options of model and training that all methods share, in the order of their tables. Group 0
 * is the model, 1 the training. NULL past the end; *values is the struct with the value. */
const struct alibi_option *setting_at(const struct alibi_compare_result *r, int group, int index,
                                      const void **values);

/* ---- the data of figures (curves.c) */

enum { POSITION_LENGTHS = 4 };

/* A chart and the data that it points to. */
struct curves {
    struct chart chart;
    int of;         /* the method that all of it is of; -1: the curves are those of the methods */
    bool one_scale; /* its y axis is not a choice between linear and logarithmic */
    char title[96], mark_label[48];
    char name[POSITION_LENGTHS][24]; /* of the parts of a method */
    struct series series[SERIES_MAX];
    double x[SERIES_MAX][ALIBI_POSITION_BINS], y[SERIES_MAX][ALIBI_POSITION_BINS];
    double low[SERIES_MAX][ALIBI_POSITION_BINS], high[SERIES_MAX][ALIBI_POSITION_BINS];
};

/* One curve per method: its perplexity by length; its loss by position in windows of one length;
 * its loss by step of the training, or by the step of a validation, mean over the seeds. Bands are
 * one standard error, or, by position and by step, the range of the seeds. mem_free. */
alibi_status curves_by_length(struct curves **out, const struct view *v);
alibi_status curves_by_position(struct curves **out, const struct view *v, int64_t length);
alibi_status curves_by_step(struct curves **out, const struct view *v,
                            const struct report_training *t, bool validation);
/* One method: its loss by position in windows of several lengths. All methods have one scale. */
alibi_status curves_of_positions(struct curves **out, const struct view *v, int method);

/* Fixed targets: the loss of every model by context, with the range of the seeds; and what is lost
 * of the gain when far text is swapped (content), or when attention is cut to L, with one standard
 * error. Ceilings are references. */
alibi_status curves_of_targets(struct curves **out, const struct view *v,
                               const struct report_targets *t, enum alibi_target_kind kind);
alibi_status curves_of_uses(struct curves **out, const struct view *v,
                            const struct report_targets *t, bool content);

/* Whether the chain of a model is shown: one that has not learned it at L has a loss far above. Of
 * these the first with the longest window; NULL: there is none. */
bool knows_chain(const struct report_task *t, const struct report_task_model *m);
const struct report_task_model *chain_longest(const struct report_task *t);

/* The chain: the loss of every model that knows it by position, with Bayes' as a reference; or how
 * much it is above Bayes', with the range of the seeds. */
alibi_status curves_of_chain(struct curves **out, const struct view *v, const struct report_task *t,
                             bool above);

/* The share of attention by distance, mean over layers, heads and seeds, and the uniform one. */
alibi_status curves_of_attention(struct curves **out, const struct view *v,
                                 const struct report_attention *a);

/* The cost of models by length. */
enum cost_kind {
    COST_TRAIN_SPEED,
    COST_EVAL_SPEED,
    COST_TRAIN_MEMORY,
    COST_EVAL_MEMORY,
    COST_KINDS
};
alibi_status curves_of_costs(struct curves **out, const struct view *v,
                             const struct report_experiment *x, enum cost_kind kind);

/* The cost of a token after a context. */
enum stream_kind { STREAM_DECODE, STREAM_READ, STREAM_CACHE, STREAM_KINDS };
alibi_status curves_of_stream(struct curves **out, const struct view *v,
                              const struct report_stream *s, enum stream_kind kind);

/* ---- heat maps (heat.c) */

/* The share of attention by distance (across) and head (down, in groups by layer) as an <svg>. */
void heat_svg(struct text *out, const struct alibi_attention_result *a, int look, const char *id,
              const char *title);
void heat_legend(struct text *out); /* what the shades mean */

/* ---- dots (dots.c) */

/* count numbers value(of, 0..count-1), in the colour of a model. */
struct dots_row {
    int method;
    char label[128];
    int64_t count;
    double (*value)(const void *of, int64_t k);
    const void *of;
};

struct dots {
    const char *title, *caption, *label, *id; /* label: of the axis */
    double mark;                              /* a vertical line; NaN: none */
    const char *mark_label;
    int rows;
    const struct dots_row *row;
};
void dots_svg(struct text *out, const struct view *v, const struct dots *d); /* a <figure> */
/* The layer from 1 on, unless it is -1: all; named: after the model, as the first of its rows, and
 * the seed, unless it is -1. */
void dots_label(struct dots_row *row, const struct view *v, int64_t seed, int64_t layer,
                bool named);

/* The numbers that the methods of an experiment have learned for each head. */
alibi_status html_numbers(struct text *out, const struct view *v,
                          const struct report_experiment *x);

/* ---- conclusions (conclusion.c) */

/* One sentence: the change of every method's perplexity past the training length. */
void append_headline(struct text *out, const struct view *v);

/* The lowest perplexity at the longest length; methods without a value there, or that have learned
 * nothing; the change with a sliding window; the lowest as one stream; what the errors cover. May
 * append nothing. */
void append_detail(struct text *out, const struct view *v);

/* "6.0 ± 0.4% lower", "8.7 ± 0.2 times as high": exp(d) as a change, and the error of d, which is
 * not shown if it is NaN. */
void append_ratio(struct text *out, double d, double d_error);

/* One sentence: the text, the machines, the date and the version. */
void append_origin(struct text *out, const struct view *v);

/* The facts that all results of a view have in common: "65.5K tokens: 64 blocks of 1024 tokens over
 * the whole split"; "Protocol sliding, stride half the length. First tokens: ... Normaliser: ..."
 * Nothing if there is no result. */
void append_scored(struct text *out, const struct view *v);
void append_rules(struct text *out, const struct view *v);

/* ---- the terminal (text.c) and experiments (experiment.c) */

/* Breaks lines at blanks. The first one begins after `indent` columns, the others with `indent`
 * blanks. */
void append_wrapped(struct text *out, const char *text, int columns, int indent);
/* "caption, on 65.5K tokens: ..." before a table, and the rules of its protocol after it. */
alibi_status append_caption(struct text *out, const struct view *v, int columns,
                            const char *caption);
alibi_status append_rule_lines(struct text *out, const struct view *v, int columns);
/* The table of perplexities by length, and the key to its signs, which ends with `end`. */
alibi_status append_perplexities(struct text *out, const struct view *v, int columns, bool colour);
void append_key(struct text *out, const struct view *v, int columns, bool colour, const char *end);

struct shown show_number(const struct report_number *n);
struct shown show_number_error(const struct report_number *n); /* "±0.1"; "": none */
struct shown show_paper(const struct report_number *n);        /* what the paper has for it */
/* "6.0 ± 0.4% lower", or of scores "0.31 ± 0.02 higher" */
void append_measured(struct text *out, const struct report_comparison *c);
struct shown show_score(const struct report_score *s); /* "0.96 ±0.01", "not learned" */
void cost_cells(struct shown cells[4], const struct report_cost *c);
/* How far verdicts of few seeds go, in words: "in these seeds", "in this one seed"; "": none is of
 * few. */
const char *verdict_scope(const struct report_comparison *c, int count);
void append_unfinished(struct text *out, const struct report_experiment *x); /* how far it is */
void append_asked(struct text *out, const struct report_comparison *c);      /* "lower by 5%" */
void append_comparison(struct text *out, const struct report_comparison *c); /* one sentence */

/* ---- verdicts on the use of far text (verdict.c), for the terminal and for the page */

alibi_status verdict_text(struct text *out, const struct report_experiment *x,
                          const struct report_targets *t, int columns, bool colour);
alibi_status verdict_html(struct text *out, const struct view *v, const struct report_experiment *x,
                          const struct report_targets *t);

/* ---- the cost of a stream (streams.c), for the terminal and for the page */

alibi_status stream_text(struct text *out, const struct report_experiment *x,
                         const struct report_stream *s, bool colour);
alibi_status html_stream(struct text *out, const struct view *v, const struct report_stream *s,
                         int index);

/* ---- the page (html.c) and its parts (html_tables.c, html_probes.c, html_tasks.c, page.css,
 * page.js) */

extern const char page_style[], page_script[];

/* From <!DOCTYPE> to <body>; from </main> to the end, where `beside` names other files. */
void html_head(struct text *out, const struct view *v, const char *title, int64_t refresh);
alibi_status html_foot(struct text *out, const struct view *v, const char *beside);
void html_boxes(struct text *out, const struct view *v);
/* How far unfinished work is. */
void html_state(struct text *out, const struct view *v, const struct report_training *t);
void html_rules(struct text *out, const struct view *v); /* a paragraph */
void html_figure(struct text *out, const struct view *v, struct curves *curves, const char *id,
                 int height, const char *caption); /* releases the curves */
alibi_status html_figure_by_length(struct text *out, const struct view *v, const char *id,
                                   const char *caption);
/* Losses by position in the window, under a heading of that level. */
alibi_status html_positions(struct text *out, const struct view *v, const char *id, int level);
alibi_status html_training(struct text *out, const struct view *v, const struct report_training *t);

/* An evaluation of an experiment: its heading, fixed targets, attention at its first length or
 * another. */
void html_heading(struct text *out, const char *name, const char *subject, const char *about);
alibi_status html_targets(struct text *out, const struct view *v, const struct report_targets *t,
                          int index);
alibi_status html_attention(struct text *out, const struct view *v,
                            const struct report_attention *a, bool first, int index);

/* One task; first: the heading of its evaluation comes before it (html_tasks.c). */
alibi_status html_task(struct text *out, const struct view *v, const struct report_task *t,
                       bool first, int index);

void html_swatch(struct text *out, const struct view *v, int method); /* its marker */
void html_name(struct text *out, const struct view *v, int method);   /* after its marker */
/* A row of a table up to the name of its method; group: it is the first of several. */
void html_begin_row(struct text *out, const struct view *v, int method, bool group);
void html_perplexity_table(struct text *out, const struct view *v);
void html_stream_table(struct text *out, const struct view *v);
void html_full_table(struct text *out, const struct view *v);
void html_cost_table(struct text *out, const struct view *v);
void html_setting(struct text *out, const struct view *v);
void html_command(struct text *out, const struct view *v); /* that repeats the comparison */

#endif
