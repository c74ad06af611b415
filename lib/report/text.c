/* text.c - the report for a terminal: table, plot, conclusion */
#include <math.h>
#include <string.h>

#include "report/parts.h"

enum {
    LEAST_COLUMNS = 40,
    MOST_COLUMNS = 140,
    PLOT_ROWS = 20,
    COST_COLUMNS = 3,
    COLUMNS_MAX = 1 + ALIBI_LIST_MAX + COST_COLUMNS
};

/* Breaks lines at blanks. */
static alibi_status append_wrapped(struct text *out, const char *text, int columns)
{
    int used = 0;

    while (*text != '\0') {
        size_t bytes = strcspn(text, " ");
        char word[256];
        int width;
        snprintf(word, sizeof word, "%.*s", (int)bytes, text);
        width = display_width(word);
        if (used > 0 && used + 1 + width > columns) {
            TRY_RETURN(text_append(out, "\n"));
            used = 0;
        }
        TRY_RETURN(text_append(out, "%s%s", used > 0 ? " " : "", word));
        used += width + (used > 0);
        text += bytes + (text[bytes] == ' ');
    }
    return text_append(out, "\n");
}

/* ---- cells */

/* The whole table as text: methods + 1 rows, the heads first; name, lengths, costs (not twice: a
 * sliding window has none). */
struct cells {
    int rows, columns, costs;
    struct text *at; /* rows x columns */
};

static struct text *cell(const struct cells *c, int row, int column)
{
    return &c->at[row * c->columns + column];
}

static void cells_free(struct cells *c)
{
    for (int i = 0; c->at != NULL && i < c->rows * c->columns; i++)
        text_free(&c->at[i]);
    mem_free(c->at);
}

static alibi_status fill_heads(const struct cells *c, const struct view *v)
{
    static const char *const costs[] = { "tok/s", "memory", "params" };

    TRY_RETURN(text_append(cell(c, 0, 0), "method"));
    for (int i = 0; i < v->lengths; i++)
        TRY_RETURN(text_append(cell(c, 0, 1 + i),
                               v->length[i] == v->train_length ? "[%lld]" : "%lld ",
                               (long long)v->length[i]));
    for (int i = 0; i < c->costs; i++)
        TRY_RETURN(text_append(cell(c, 0, 1 + v->lengths + i), " %s", costs[i]));
    return ALIBI_OK;
}

/* The best of its column has a star behind it, and is bold where there is colour. */
static alibi_status fill_ppl(struct text *out, double ppl, bool best, bool colour)
{
    if (!best)
        return text_append(out, "%s ", show_ppl(ppl).text);
    return text_append(out, colour ? "\x1b[1m%s*\x1b[0m" : "%s*", show_ppl(ppl).text);
}

static alibi_status fill_name(struct text *out, const char *name, int series, int width,
                              bool colour)
{
    if (colour)
        TRY_RETURN(text_append(out, "\x1b[38;5;%dm", look_of(series)->terminal));
    TRY_RETURN(append_cut(out, name, width));
    return text_append(out, "%s", colour ? "\x1b[0m" : "");
}

static double positive(double value)
{
    return value > 0 ? value : NAN;
}

static alibi_status fill_row(const struct cells *c, const struct view *v, int m, int width,
                             bool colour)
{
    const struct alibi_compare_method *method = &v->result->method[m];
    struct text *costs = cell(c, 1 + m, 1 + v->lengths);

    TRY_RETURN(fill_name(cell(c, 1 + m, 0), v->name[m], m, width, colour));
    for (int i = 0; i < v->lengths; i++) {
        const struct alibi_eval_result *e = view_at(v, m, v->length[i]);
        TRY_RETURN(fill_ppl(cell(c, 1 + m, 1 + i), e != NULL ? e->ppl : NAN,
                            view_best(v, v->length[i]) == m, colour));
    }
    if (c->costs == 0)
        return ALIBI_OK;
    TRY_RETURN(
        text_append(&costs[0], " %s", show_count(positive(method->train_tokens_per_s)).text));
    TRY_RETURN(text_append(&costs[1], " %s", show_bytes((double)method->peak_bytes).text));
    return text_append(&costs[2], " %s", show_count(positive((double)method->parameters)).text);
}

static alibi_status fill(struct cells *c, const struct view *v, int width, bool colour)
{
    c->rows = 1 + v->methods;
    c->costs = v->protocol == ALIBI_NONOVERLAPPING ? COST_COLUMNS : 0;
    c->columns = 1 + v->lengths + c->costs;
    TRY_RETURN(NEW_ZERO_ARRAY(&c->at, (int64_t)c->rows * c->columns, "a table"));
    TRY_RETURN(fill_heads(c, v));
    for (int m = 0; m < v->methods; m++)
        TRY_RETURN(fill_row(c, v, m, width, colour));
    return ALIBI_OK;
}

/* ---- the table, in as many parts as the width asks for; each part begins with the names */

static int width_of(const struct cells *c, int column)
{
    int width = 0;

    for (int r = 0; r < c->rows; r++) {
        int w = display_width(cell(c, r, column)->data);
        width = w > width ? w : width;
    }
    return width;
}

/* The column behind the last one that fits beside the names when the part starts at `first`; at
 * least one does. The costs are not torn apart if they can stand together. */
static int part_end(const struct cells *c, int first, int columns)
{
    int used = width_of(c, 0), end = first, costs = c->columns - c->costs;

    while (end < c->columns && (end == first || used + 1 + width_of(c, end) <= columns))
        used += 1 + width_of(c, end++);
    return first < costs && end > costs && end < c->columns ? costs : end;
}

static alibi_status append_part(struct text *out, const struct cells *c, int first, int end,
                                bool colour)
{
    alibi_status status;
    const char **part = NULL;
    int columns = 1 + end - first;

    TRY(NEW_ARRAY(&part, (int64_t)c->rows * columns, "a table"));
    for (int r = 0; r < c->rows; r++) {
        part[r * columns] = cell(c, r, 0)->data;
        for (int i = first; i < end; i++)
            part[r * columns + 1 + i - first] = cell(c, r, i)->data;
    }
    TRY(table_terminal(out, part, c->rows, columns, colour));
out:
    mem_free(part);
    return status;
}

static alibi_status append_table(struct text *out, const struct view *v, int columns, bool colour)
{
    alibi_status status;
    struct cells c = { 0 };

    TRY(fill(&c, v, columns / 4, colour));
    for (int first = 1; first < c.columns; first = part_end(&c, first, columns)) {
        TRY(text_append(out, first > 1 ? "\n" : ""));
        TRY(append_part(out, &c, first, part_end(&c, first, columns), colour));
    }
out:
    cells_free(&c);
    return status;
}

static alibi_status append_sliding_table(struct text *out, const struct view *v, int columns,
                                         bool colour)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);

    if (view_tokens(&sliding) == 0)
        return ALIBI_OK;
    TRY_RETURN(text_append(out, "\n"));
    TRY_RETURN(append_wrapped(
        out,
        "The same with a sliding window: past the first, every token has at least half the window as context",
        columns));
    TRY_RETURN(text_append(out, "\n"));
    return append_table(out, &sliding, columns, colour);
}

/* ---- the stream: one length, and what attention left out */

enum { STREAM_COLUMNS = 4 };

static alibi_status fill_stream_row(const struct cells *c, const struct view *stream, int m,
                                    int width, bool colour)
{
    int64_t length = stream->length[0];
    const struct alibi_eval_result *e = view_at(stream, m, length);

    TRY_RETURN(fill_name(cell(c, 1 + m, 0), stream->name[m], m, width, colour));
    TRY_RETURN(fill_ppl(cell(c, 1 + m, 1), e != NULL ? e->ppl : NAN, view_best(stream, length) == m,
                        colour));
    TRY_RETURN(
        text_append(cell(c, 1 + m, 2), " %s", show_share(e != NULL ? e->tiles_used : NAN).text));
    return text_append(cell(c, 1 + m, 3), " %s",
                       show_count(e != NULL ? e->tokens_per_s : NAN).text);
}

static alibi_status append_stream_rows(struct text *out, const struct view *stream, int columns,
                                       bool colour)
{
    static const char *const heads[STREAM_COLUMNS] = { "method", "perplexity ", "tiles", "tok/s" };
    alibi_status status;
    struct cells c = { .rows = 1 + stream->methods, .columns = STREAM_COLUMNS };

    TRY(NEW_ZERO_ARRAY(&c.at, (int64_t)c.rows * c.columns, "a table"));
    for (int i = 0; i < STREAM_COLUMNS; i++)
        TRY(text_append(cell(&c, 0, i), "%s", heads[i]));
    for (int m = 0; m < stream->methods; m++)
        TRY(fill_stream_row(&c, stream, m, columns / 4, colour));
    TRY(append_part(out, &c, 1, STREAM_COLUMNS, colour));
out:
    cells_free(&c);
    return status;
}

static alibi_status append_stream_table(struct text *out, const struct view *v, int columns,
                                        bool colour)
{
    struct view stream = view_of(v, ALIBI_STREAM);
    char caption[192];

    if (stream.lengths == 0)
        return ALIBI_OK;
    snprintf(
        caption, sizeof caption,
        "As one stream of %lld tokens, each with all before it as context; tiles: the share of attention that was computed",
        (long long)stream.length[0]);
    TRY_RETURN(text_append(out, "\n"));
    TRY_RETURN(append_wrapped(out, caption, columns));
    TRY_RETURN(text_append(out, "\n"));
    return append_stream_rows(out, &stream, columns, colour);
}

static bool has_missing(const struct view *v)
{
    for (int i = 0; i < v->lengths; i++)
        for (int m = 0; m < v->methods; m++)
            if (view_at(v, m, v->length[i]) == NULL)
                return true;
    return false;
}

static bool has_training_length(const struct view *v)
{
    for (int i = 0; i < v->lengths; i++)
        if (v->length[i] == v->train_length)
            return true;
    return false;
}

static alibi_status append_key(struct text *out, const struct view *v, int columns, bool colour)
{
    char key[128];

    snprintf(key, sizeof key, "%s%s* best%s; tok/s in training%s", colour ? "\x1b[2m" : "",
             has_training_length(v) ? "[ ] trained at; " : "",
             has_missing(v) ? "; " NO_VALUE " no value" : "", colour ? "\x1b[0m" : "");
    return append_wrapped(out, key, columns);
}

/* ---- plot and conclusion */

static alibi_status append_plot(struct text *out, const struct view *v, int columns, bool colour)
{
    alibi_status status;
    struct curves *curves = NULL;
    int rows = v->methods + 6 > PLOT_ROWS ? v->methods + 6 : PLOT_ROWS;

    TRY(curves_by_length(&curves, v, CURVE_PPL));
    TRY(plot_terminal(out, &curves->chart, columns, rows, colour));
out:
    mem_free(curves);
    return status;
}

static alibi_status append_conclusion(struct text *out, const struct view *v, int columns)
{
    alibi_status status;
    struct text sentences = { 0 };

    TRY(append_headline(&sentences, v));
    TRY(text_append(&sentences, " "));
    TRY(append_detail(&sentences, v));
    TRY(append_wrapped(out, sentences.data, columns));
out:
    text_free(&sentences);
    return status;
}

alibi_status report_text(struct text *out, const struct alibi_compare_result *r, int columns,
                         bool colour)
{
    struct view v;

    columns = columns < LEAST_COLUMNS  ? LEAST_COLUMNS
              : columns > MOST_COLUMNS ? MOST_COLUMNS
                                       : columns;
    view_init(&v, r);
    TRY_RETURN(text_append(out, "Perplexity by test length\n\n"));
    TRY_RETURN(append_table(out, &v, columns, colour));
    TRY_RETURN(append_key(out, &v, columns, colour));
    TRY_RETURN(append_sliding_table(out, &v, columns, colour));
    TRY_RETURN(append_stream_table(out, &v, columns, colour));
    TRY_RETURN(text_append(out, "\n"));
    TRY_RETURN(append_plot(out, &v, columns, colour));
    TRY_RETURN(text_append(out, "\n"));
    return append_conclusion(out, &v, columns);
}
