/* verdict.c - the first table of an experiment with fixed targets: what each model does with text
 * beyond its training length, in one line
 *
 * The verdict depends on fixed targets alone (alibi_reach_name() has its rules). Beside it are the
 * gains on which it is based, and the score of each task at its longest length. */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* Columns before the gains, and those after them that are not tasks. */
enum { MODEL, VERDICT, LOSS, GAINS };

struct layout {
    int from; /* the first context beyond L, an index; a column for each from here on */
    int falls, share, time; /* columns; 0: there is no ceiling, no stream */
    int tasks, columns;     /* the first column of tasks, and all of them */
};

/* The index of L, for ceilings too, unless models differ in it. */
static int home_of(const struct report_targets *t, const struct report_targets_model *m)
{
    for (int c = 0; c < t->contexts; c++)
        if (m->kind[ALIBI_ALL_TARGETS].at[c].context == t->near)
            return c;
    return m->home;
}

static struct layout layout_of(const struct report_experiment *x, const struct report_targets *t)
{
    struct layout l = { .from = t->contexts };

    for (int m = 0; m < t->models; m++)
        l.from = home_of(t, &t->model[m]) < l.from ? home_of(t, &t->model[m]) : l.from;
    l.from++;
    l.falls = GAINS + (l.from < t->contexts ? t->contexts - l.from : 0);
    l.share = isnan(t->ceiling_gain) ? 0 : l.falls + 1;
    l.time = x->streams > 0 && x->stream[0].lengths->count > 1 ? l.falls + 1 + (l.share > 0) : 0;
    l.tasks = l.falls + 1 + (l.share > 0) + (l.time > 0);
    l.columns = l.tasks + x->tasks;
    return l;
}

/* "uses, to 1024": the step after that context shows no gain of its own. */
static struct shown show_verdict(const struct report_targets_model *m)
{
    const struct alibi_target_context *at = m->kind[ALIBI_ALL_TARGETS].at;
    struct shown s;

    if (m->ceiling || m->reach < 0)
        snprintf(s.text, sizeof s.text, "%s", m->ceiling ? "ceiling" : NO_VALUE);
    else if (m->reach != ALIBI_USES || m->falls_to >= at[m->far].context)
        snprintf(s.text, sizeof s.text, "%s", alibi_reach_name(m->reach, NULL));
    else if (m->falls_to > at[m->home].context)
        snprintf(s.text, sizeof s.text, "uses, to %lld", (long long)m->falls_to);
    else
        snprintf(s.text, sizeof s.text, "uses, by no single step");
    return s;
}

/* The score at the longest length; a task that was not learned at L says nothing there. */
static void set_task(struct table *table, int row, int column, const struct report_task *t,
                     int method)
{
    int longest = t->lengths->count - 1, home = 0;

    table_set(table, row, column, NO_VALUE);
    while (home < longest && t->lengths->at[home] < t->near)
        home++;
    for (int m = 0; m < t->models; m++) {
        const struct report_score *far = &t->model[m].at[longest];

        if (t->model[m].method != method)
            continue;
        if (far->unlearned > 0 && far->seeds == 0)
            table_set(table, row, column, "not learned (%s)",
                      show_real(t->model[m].at[home].score, 2).text);
        else
            table_set(table, row, column, "%s", show_score(far).text);
    }
}

/* The time to decode a token after the longest context, as a multiple of that after the shortest.
 */
static void set_time(struct table *table, int row, int column, const struct report_stream *s,
                     int method)
{
    int longest = s->lengths->count - 1;

    table_set(table, row, column, NO_VALUE);
    for (int m = 0; m < s->models; m++)
        if (s->model[m].method == method && s->model[m].at[0].seeds > 0 &&
            s->model[m].at[longest].seeds > 0)
            table_set(table, row, column, "%.3g times",
                      s->model[m].at[longest].decode_seconds / s->model[m].at[0].decode_seconds);
}

static void set_model(struct table *table, int row, const struct layout *l,
                      const struct report_experiment *x, const struct report_targets *t,
                      const struct report_targets_model *m)
{
    const struct alibi_target_context *at = m->kind[ALIBI_ALL_TARGETS].at;
    int home = home_of(t, m);

    table_set(table, row, MODEL, "%s", x->model[m->method]);
    table_set(table, row, VERDICT, "%s", show_verdict(m).text);
    table_set(table, row, LOSS, "%s", show_real(at[home].nll.value, 3).text);
    for (int c = l->from; c < t->contexts; c++)
        if (c > home)
            table_set(table, row, GAINS + c - l->from, "%s",
                      show_nats(at[home].nll.value - at[c].nll.value).text);
    if (!m->ceiling)
        table_set(table, row, l->falls, m->falls_to > at[m->home].context ? "%lld" : NO_VALUE,
                  (long long)m->falls_to);
    if (l->share > 0)
        table_set(table, row, l->share, "%s",
                  m->ceiling        ? ""
                  : isnan(m->share) ? NO_VALUE
                                    : show_share(m->share).text);
    if (l->time > 0)
        set_time(table, row, l->time, &x->stream[0], m->method);
    for (int i = 0; i < x->tasks; i++)
        set_task(table, row, l->tasks + i, &x->task[i], m->method);
}

/* The caller has to table_fini() it. */
static alibi_status make_table(struct table *table, struct layout *l,
                               const struct report_experiment *x, const struct report_targets *t)
{
    *l = layout_of(x, t);
    TRY_RETURN(table_init(table, 1 + t->models, l->columns));
    table_set(table, 0, MODEL, "model");
    table_set(table, 0, VERDICT, "verdict");
    table_set(table, 0, LOSS, t->near > 0 ? "loss at %lld" : "loss at L", (long long)t->near);
    for (int c = l->from; c < t->contexts; c++)
        table_set(table, 0, GAINS + c - l->from, "gain at %lld",
                  (long long)t->model[0].kind[ALIBI_ALL_TARGETS].at[c].context);
    table_set(table, 0, l->falls, "falls to");
    if (l->share > 0)
        table_set(table, 0, l->share, "of ceiling");
    if (l->time > 0)
        table_set(table, 0, l->time, "decoding at %lld / %lld",
                  (long long)x->stream[0].lengths->at[x->stream[0].lengths->count - 1],
                  (long long)x->stream[0].lengths->at[0]);
    for (int i = 0; i < x->tasks; i++)
        table_set(table, 0, l->tasks + i, "%s at %lld", x->task[i].task,
                  (long long)x->task[i].lengths->at[x->task[i].lengths->count - 1]);
    for (int m = 0; m < t->models; m++)
        set_model(table, 1 + m, l, x, t, &t->model[m]);
    return ALIBI_OK;
}

static const int rule_order[] = { ALIBI_BREAKS, ALIBI_USES, ALIBI_HOLDS };

/* Explains the columns, after the rules, and says if the text cannot judge a method. */
static void append_notes(struct text *out, const struct report_experiment *x,
                         const struct report_targets *t)
{
    text_append(out,
                "A model has no verdict if it has learned nothing, or if it is worse by 0.01 "
                "nats and not every seed shows that. Gains are over L, in nats per token. The "
                "loss falls at every step from L up to \"falls to\", shown at 95%%; \"uses, to "
                "N\" means that this ends before the longest context.");
    if (x->tasks > 0)
        text_append(out, " A task past L counts only if its score at L, in brackets, is 0.95 or "
                         "more.");
    if (isnan(t->ceiling_gain))
        return;
    text_append(out, " A ceiling is trained at the longest context.");
    if (t->ceiling_gain < CEILING_GAIN_LEAST)
        text_append(out,
                    " It gains %s nats there: this text has too little to gain to judge any "
                    "method.",
                    show_nats(t->ceiling_gain).text);
}

alibi_status verdict_text(struct text *out, const struct report_experiment *x,
                          const struct report_targets *t, int columns, bool colour)
{
    alibi_status status;
    struct table table = { 0 };
    struct text notes = { 0 };
    struct layout l;

    if (t->models == 0)
        return ALIBI_OK;
    TRY(make_table(&table, &l, x, t));
    text_append(out, "%s: what models do with text beyond L\n\n", t->name);
    table_append_parts(out, &table, columns, l.falls, colour);
    text_append(out, "\n");
    for (int i = 0; i < 3; i++) {
        const char *rule, *name = alibi_reach_name(rule_order[i], &rule);

        text_append(out, "  %-6s  ", name);
        append_wrapped(out, rule, columns, 10);
    }
    append_notes(&notes, x, t);
    TRY(text_status(&notes));
    append_wrapped(out, notes.data, columns, 0);
    text_append(out, "\n");
out:
    text_free(&notes);
    table_fini(&table);
    return status;
}

/* "gain at 128", "not learned (0.41)" or "0.97 ±0.01": what follows is in smaller letters. */
static void append_cell(struct text *out, const char *cell)
{
    static const char *const marks[] = { " at ", " (", " ±" };
    size_t length = strlen(cell);
    struct shown head;

    for (int i = 0; i < 3; i++) {
        const char *mark = strstr(cell, marks[i]);

        if (mark != NULL && (size_t)(mark - cell) < length)
            length = (size_t)(mark - cell);
    }
    snprintf(head.text, sizeof head.text, "%.*s", (int)length, cell);
    text_append(out, "%s", escape(head.text).text);
    if (cell[length] != '\0')
        text_append(out, "<small>%s</small>", escape(cell + length + 1).text);
}

alibi_status verdict_html(struct text *out, const struct view *v, const struct report_experiment *x,
                          const struct report_targets *t)
{
    alibi_status status;
    struct table table = { 0 };
    struct text notes = { 0 };
    struct layout l;

    if (t->models == 0)
        return ALIBI_OK;
    TRY(make_table(&table, &l, x, t));
    append_notes(&notes, x, t);
    TRY(text_status(&notes));
    text_append(out, "<h2>Who uses far text</h2>\n<div class=\"scroll\" role=\"region\" "
                     "aria-label=\"Verdicts\" tabindex=\"0\">\n<table class=\"data\">\n"
                     "<caption><div><b>Verdicts.</b> <span>By the rules below, of ");
    append_escaped(out, t->name);
    text_append(out, ": the same tokens with growing context.</span></div></caption>\n"
                     "<thead><tr>");
    for (int c = 0; c < table.columns; c++) {
        text_append(out, "<th scope=\"col\">");
        append_cell(out, table_cell(&table, 0, c));
        text_append(out, "</th>");
    }
    text_append(out, "</tr></thead>\n<tbody>\n");
    for (int m = 0; m < t->models; m++) {
        html_begin_row(out, v, t->model[m].method, false);
        if (t->model[m].reach < 0)
            text_append(out, "<td>%s</td>", show_verdict(&t->model[m]).text);
        else
            text_append(out, "<td><b class=\"verdict reach%d\">%s</b></td>", t->model[m].reach,
                        show_verdict(&t->model[m]).text);
        for (int c = LOSS; c < table.columns; c++) {
            text_append(out, "<td>");
            append_cell(out, table_cell(&table, 1 + m, c));
            text_append(out, "</td>");
        }
        text_append(out, "</tr>\n");
    }
    text_append(out, "</tbody>\n</table>\n</div>\n<dl class=\"sides rules\">\n");
    for (int i = 0; i < 3; i++) {
        const char *rule, *name = alibi_reach_name(rule_order[i], &rule);

        text_append(out, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, rule);
    }
    text_append(out, "</dl>\n<p class=\"note\">");
    append_escaped(out, notes.data);
    text_append(out, "</p>\n");
out:
    text_free(&notes);
    table_fini(&table);
    return status;
}
