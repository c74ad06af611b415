/* streams.c - the cost of a token by context: on the terminal and on the page */
#include "report/parts.h"

enum { CONTEXT, DECODE, READ, CACHE, PER_TOKEN, CELLS };

static const char *const heads[CELLS] = { "context", "decoding, µs", "reading, µs", "cache",
                                          "per token" };

static struct shown show_time(double seconds, double error)
{
    double us = 1e6 * seconds;
    int decimals = us < 9.995 ? 2 : us < 99.95 ? 1 : 0;
    struct shown s;

    snprintf(s.text, sizeof s.text, "%.12s ±%.12s", show_real(us, decimals).text,
             show_error(us * error, decimals).text);
    return s;
}

static void set_cells(struct shown cells[CELLS], const struct report_stream_cost *c,
                      int64_t context)
{
    snprintf(cells[CONTEXT].text, sizeof cells[CONTEXT].text, "%lld", (long long)context);
    cells[DECODE] = show_time(c->decode_seconds, c->decode_error);
    cells[READ] = show_time(c->read_seconds, c->read_error);
    cells[CACHE] = show_bytes(c->cache_bytes);
    cells[PER_TOKEN] = show_bytes(c->cache_bytes / (double)context);
}

alibi_status stream_text(struct text *out, const struct report_experiment *x,
                         const struct report_stream *s, bool colour)
{
    struct table t;
    int row = 1;

    if (s->models == 0)
        return ALIBI_OK;
    TRY_RETURN(table_init(&t, 1 + s->models * s->lengths->count, 1 + CELLS));
    table_set(&t, 0, 0, "model");
    for (int i = 0; i < CELLS; i++)
        table_set(&t, 0, 1 + i, " %s", heads[i]);
    for (int m = 0, before = 1; m < s->models; m++, before = row)
        for (int i = 0; i < s->lengths->count; i++) {
            struct shown cells[CELLS];

            if (s->model[m].at[i].seeds == 0)
                continue;
            set_cells(cells, &s->model[m].at[i], s->lengths->at[i]);
            table_set(&t, row, 0, "%s", row > before ? "" : x->model[s->model[m].method]);
            for (int k = 0; k < CELLS; k++)
                table_set(&t, row, 1 + k, " %s", cells[k].text);
            row++;
        }
    t.rows = row;
    text_append(out, "%s: the cost of a token by context, on %s\n\n", s->name, s->machine);
    table_append(out, &t, 1, 1 + CELLS, colour);
    table_fini(&t);
    text_append(out, "\n");
    return ALIBI_OK;
}

static void append_table(struct text *out, const struct view *v, const struct report_stream *s)
{
    text_append(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"Cost of a stream\" tabindex=\"0\">\n"
        "<table class=\"data\">\n"
        "<caption><div><b>Cost of a token by context.</b> <span>On %s, one sequence; ± is one "
        "standard error.</span></div></caption>\n"
        "<thead><tr><th scope=\"col\">model</th>",
        escape(s->machine).text);
    for (int i = 0; i < CELLS; i++)
        text_append(out, "<th scope=\"col\">%s</th>", heads[i]);
    text_append(out, "</tr></thead>\n<tbody>\n");
    for (int m = 0; m < s->models; m++)
        for (int i = 0, rows = 0; i < s->lengths->count; i++) {
            struct shown cells[CELLS];

            if (s->model[m].at[i].seeds == 0)
                continue;
            set_cells(cells, &s->model[m].at[i], s->lengths->at[i]);
            html_begin_row(out, v, s->model[m].method, rows++ == 0);
            for (int k = 0; k < CELLS; k++)
                text_append(out, "<td>%s</td>", escape(cells[k].text).text);
            text_append(out, "</tr>\n");
        }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

alibi_status html_stream(struct text *out, const struct view *v, const struct report_stream *s,
                         int index)
{
    static const char *const captions[] = { "One token at a time. Flat is best.",
                                            "In chunks, as a text is read.",
                                            "Allocated for one sequence." };

    if (s->models == 0)
        return ALIBI_OK;
    html_heading(out, s->name, "cost of a token by context", s->about);
    if (s->lengths->count > 1)
        text_append(out, "<div class=\"pair\">\n");
    for (int kind = 0; s->lengths->count > 1 && kind < STREAM_KINDS; kind++) {
        struct curves *curves = NULL;
        char id[48];

        TRY_RETURN(curves_of_stream(&curves, v, s, kind));
        snprintf(id, sizeof id, "fig-stream-%d-%d", index, kind);
        html_figure(out, v, curves, id, 220, captions[kind]);
    }
    if (s->lengths->count > 1)
        text_append(out, "</div>\n");
    append_table(out, v, s);
    return ALIBI_OK;
}
