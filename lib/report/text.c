/* text.c - the report for a terminal: tables, plot, conclusion */
#include <math.h>
#include <string.h>

#include "report/parts.h"

enum { LEAST_COLUMNS = 40, MOST_COLUMNS = 140, PLOT_ROWS = 20, COSTS = 2 };

/* Breaks lines at blanks. */
void append_wrapped(struct text *out, const char *text, int columns, int indent)
{
    int used = 0;

    while (*text != '\0') {
        size_t bytes = strcspn(text, " ");
        char word[256];
        int width;

        snprintf(word, sizeof word, "%.*s", (int)bytes, text);
        width = display_width(word);
        if (used > 0 && indent + used + 1 + width > columns) {
            text_append(out, "\n%*s", indent, "");
            used = 0;
        }
        text_append(out, "%s%s", used > 0 ? " " : "", word);
        used += width + (used > 0);
        text += bytes + (text[bytes] == ' ');
    }
    text_append(out, "\n");
}

/* ---- tables */

static void set_name(struct table *t, const struct view *v, int m, int width, bool colour)
{
    int bytes = cut_bytes(v->name[m], width);
    char begin[32] = "";

    if (colour)
        snprintf(begin, sizeof begin, "\x1b[38;5;%dm", look_of(v->look[m])->terminal);
    table_set(t, 1 + m, 0, "%s%.*s%s%s%s", begin, bytes, v->name[m],
              v->name[m][bytes] != '\0' ? "…" : "", v->ignorant[m] ? " †" : "",
              colour ? "\x1b[0m" : "");
}

/* The best value of a column is followed by a star, and bold if there is colour; its
 * error follows each value. */
static void set_ppl(struct table *t, int column, const struct view *v, int m, int64_t length,
                    bool colour)
{
    bool best = view_best(v, length, -1) == m;
    double ppl = view_ppl(v, m, length);
    struct shown error = show_ppl_error(ppl, view_error(v, m, length));

    table_set(t, 1 + m, column,
              best && colour ? "\x1b[1m%s%s*\x1b[0m"
              : best         ? "%s%s*"
                             : "%s%s ",
              show_ppl(ppl).text, error.text);
}

/* Name, lengths, costs. The sliding window has no costs of its own. */
alibi_status append_perplexities(struct text *out, const struct view *v, int columns, bool colour)
{
    int costs = v->protocol == ALIBI_NONOVERLAPPING ? COSTS : 0, first_cost = 1 + v->lengths;
    struct table t;

    TRY_RETURN(table_init(&t, 1 + v->methods, first_cost + costs));
    table_set(&t, 0, 0, "method");
    for (int i = 0; i < v->lengths; i++)
        table_set(&t, 0, 1 + i, v->length[i] == v->train_length ? "[%lld]" : "%lld ",
                  (long long)v->length[i]);
    for (int i = 0; i < costs; i++)
        table_set(&t, 0, first_cost + i, " %s", (const char *[]){ "memory", "params" }[i]);
    for (int m = 0; m < v->methods; m++) {
        struct cost cost = view_cost(v, m);

        set_name(&t, v, m, columns / 4, colour);
        for (int i = 0; i < v->lengths; i++)
            set_ppl(&t, 1 + i, v, m, v->length[i], colour);
        if (costs == 0)
            continue;
        table_set(&t, 1 + m, first_cost, " %s", show_bytes(cost.peak_bytes).text);
        table_set(&t, 1 + m, first_cost + 1, " %s", show_count(cost.parameters).text);
    }
    table_append_parts(out, &t, columns, first_cost, colour);
    table_fini(&t);
    return ALIBI_OK;
}

/* One length, the same tokens in windows, and the share of attention that was computed. */
static alibi_status append_stream_table(struct text *out, const struct view *stream, int columns,
                                        bool colour)
{
    static const char *const heads[] = { "method", "stream ", "windows ", "tiles" };
    struct view passage = view_passage(stream);
    struct table t;

    TRY_RETURN(table_init(&t, 1 + stream->methods, 4));
    for (int i = 0; i < 4; i++)
        table_set(&t, 0, i, "%s", heads[i]);
    for (int m = 0; m < stream->methods; m++) {
        struct alibi_eval_result e = view_mean(stream, m, stream->length[0]);

        set_name(&t, stream, m, columns / 4, colour);
        set_ppl(&t, 1, stream, m, stream->length[0], colour);
        set_ppl(&t, 2, &passage, m, stream->train_length, colour);
        table_set(&t, 1 + m, 3, " %s", show_share(e.tokens > 0 ? e.tiles_used : NAN).text);
    }
    table_append_parts(out, &t, columns, t.columns, colour);
    table_fini(&t);
    return ALIBI_OK;
}

/* Explains ±, after the other notes of each table. */
static struct words {
    char text[128];
} error_words(const struct view *v)
{
    struct words w;

    snprintf(w.text, sizeof w.text, "± one standard error%s%s",
             v->seeds > 1 ? ", of the text and of the seeds" : " of the text",
             view_has_factor(v) ? ", ×÷ the same as a factor" : "");
    return w;
}

void append_key(struct text *out, const struct view *v, int columns, bool colour, const char *end)
{
    bool missing = false, ignorant = false;
    char key[384], seeds[64] = "";

    for (int m = 0; m < v->methods; m++)
        ignorant |= v->ignorant[m];
    for (int i = 0; i < v->lengths; i++)
        for (int m = 0; m < v->methods; m++)
            missing |= isnan(view_ppl(v, m, v->length[i]));
    if (v->seeds > 1)
        snprintf(seeds, sizeof seeds, "; mean of %d seeds", v->seeds);
    snprintf(key, sizeof key, "%s%s* best%s%s%s; %s%s%s", colour ? "\x1b[2m" : "",
             view_has_length(v, v->train_length) ? "[ ] trained at; " : "",
             missing ? "; " NO_VALUE " no value" : "",
             ignorant ? "; † has learned nothing, less than 5% better than token frequencies" : "",
             seeds, error_words(v).text, end, colour ? "\x1b[0m" : "");
    append_wrapped(out, key, columns, 0);
}

/* ---- plot and conclusion */

static alibi_status append_plot(struct text *out, const struct view *v, int columns, bool colour)
{
    alibi_status status;
    struct curves *curves = NULL;
    int rows = v->methods + 6 > PLOT_ROWS ? v->methods + 6 : PLOT_ROWS;

    TRY(curves_by_length(&curves, v));
    TRY(plot_terminal(out, &curves->chart, columns, rows, colour));
out:
    mem_free(curves);
    return status;
}

static alibi_status append_conclusion(struct text *out, const struct view *v, int columns)
{
    alibi_status status;
    struct text sentences = { 0 };

    append_headline(&sentences, v);
    text_append(&sentences, " ");
    append_detail(&sentences, v);
    TRY(text_status(&sentences));
    append_wrapped(out, sentences.data, columns, 0);
    sentences.length = 0;
    append_origin(&sentences, v);
    TRY(text_status(&sentences));
    text_append(out, "\n");
    append_wrapped(out, sentences.data, columns, 0);
out:
    text_free(&sentences);
    return status;
}

/* ---- what a table is of */

alibi_status append_caption(struct text *out, const struct view *v, int columns,
                            const char *caption)
{
    alibi_status status;
    struct text line = { 0 };

    text_append(&line, "%s", caption);
    if (view_any(v) != NULL)
        text_append(&line, ", on ");
    append_scored(&line, v);
    TRY(text_status(&line));
    append_wrapped(out, line.data, columns, 0);
    text_append(out, "\n");
out:
    text_free(&line);
    return status;
}

alibi_status append_rule_lines(struct text *out, const struct view *v, int columns)
{
    alibi_status status;
    struct text rules = { 0 };

    append_rules(&rules, v);
    TRY(text_status(&rules));
    if (rules.length > 0)
        append_wrapped(out, rules.data, columns, 0);
out:
    text_free(&rules);
    return status;
}

alibi_status report_text(struct text *out, const struct alibi_compare_result *r, int columns,
                         bool colour)
{
    struct view v, sliding, stream;
    char caption[512], part[160] = "";

    columns = columns < LEAST_COLUMNS  ? LEAST_COLUMNS
              : columns > MOST_COLUMNS ? MOST_COLUMNS
                                       : columns;
    view_init(&v, r);
    sliding = view_of(&v, ALIBI_SLIDING);
    stream = view_of(&v, ALIBI_STREAM);

    TRY_RETURN(append_caption(out, &v, columns, "Perplexity by test length"));
    TRY_RETURN(append_perplexities(out, &v, columns, colour));
    append_key(out, &v, columns, colour, "; differences are more precise, see the conclusion");
    TRY_RETURN(append_rule_lines(out, &v, columns));
    if (view_tokens(&sliding) > 0) {
        if (view_tokens(&sliding) != view_tokens(&v))
            snprintf(part, sizeof part,
                     "; on %s tokens, not %s as above, so compare within this table only",
                     show_count((double)view_tokens(&sliding)).text,
                     show_count((double)view_tokens(&v)).text);
        snprintf(caption, sizeof caption,
                 "The same%s with a sliding window: every token has at least half the window as "
                 "context, except at the start of the text%s; %s",
                 part[0] == '\0' ? " tokens" : "", part, error_words(&sliding).text);
        text_append(out, "\n");
        append_wrapped(out, caption, columns, 0);
        text_append(out, "\n");
        TRY_RETURN(append_perplexities(out, &sliding, columns, colour));
        TRY_RETURN(append_rule_lines(out, &sliding, columns));
    }
    if (stream.lengths > 0) {
        snprintf(
            caption, sizeof caption,
            "As one stream of %lld tokens, each with all earlier tokens as context, next to the "
            "same tokens in windows of %lld. They are one contiguous passage at the start of the "
            "validation text, so compare within this table only. tiles: the share of attention "
            "that was computed; %s",
            (long long)stream.length[0], (long long)v.train_length, error_words(&stream).text);
        text_append(out, "\n");
        append_wrapped(out, caption, columns, 0);
        text_append(out, "\n");
        TRY_RETURN(append_stream_table(out, &stream, columns, colour));
        TRY_RETURN(append_rule_lines(out, &stream, columns));
    }
    text_append(out, "\n");
    TRY_RETURN(append_plot(out, &v, columns, colour));
    text_append(out, "\n");
    TRY_RETURN(append_conclusion(out, &v, columns));
    text_append(out, "\n");
    return text_status(out);
}
