/* runs.c - the page of several training runs: their losses side by side, and what they differ in */
#include <math.h>
#include <string.h>

#include "report/parts.h"

static const struct report_log *log_of(const struct report_training *t, int run)
{
    for (int k = 0; k < t->logs; k++)
        if (t->log[k].method == run)
            return &t->log[k];
    return NULL;
}

/* The mean over the last bin, since the loss of one step is noise. */
static double last_loss(const struct report_log *l)
{
    for (int bin = REPORT_BINS - 1; l != NULL && bin >= 0; bin--)
        if (l->train.count[bin] > 0)
            return l->train.loss[bin] / (double)l->train.count[bin];
    return NAN;
}

/* ---- the runs */

static void append_run(struct text *out, const struct view *v, int m, const struct report_run *run,
                       const struct report_log *l)
{
    const struct alibi_training *t = &run->training;
    int64_t step = l != NULL ? l->step : 0;
    double tokens = (double)t->train_length * (double)t->batch * (double)t->accumulate;
    bool valid = l != NULL && l->validations > 0;

    html_begin_row(out, v, m, false);
    text_append(out, "<td>%lld</td><td>%lld</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td>",
                (long long)step, (long long)t->steps, show_count(tokens * (double)step).text,
                show_real(last_loss(l), 4).text, show_real(valid ? l->last_valid : NAN, 4).text,
                show_real(valid ? l->best_valid : NAN, 4).text);
    if (valid)
        text_append(out, "<td>%lld</td><td>", (long long)l->best_step);
    else
        text_append(out, "<td>" NO_VALUE "</td><td>");
    append_escaped(out, run->text.name[0] != '\0' ? run->text.name : NO_VALUE);
    text_append(out, "</td></tr>\n");
}

static void append_runs(struct text *out, const struct view *v, const struct report_run *runs,
                        const struct report_training *t)
{
    text_append(out,
                "<div class=\"scroll\" role=\"region\" aria-label=\"The runs\" tabindex=\"0\">\n"
                "<table class=\"data\">\n<caption><div><b>The runs.</b> <span>Losses in nats per "
                "token; those of runs with different texts or tokenizers do not compare. The "
                "training loss is the mean of the last steps.</span></div></caption>\n"
                "<thead><tr><th scope=\"col\">run</th><th scope=\"col\">step</th>"
                "<th scope=\"col\">steps<small>asked for</small></th>"
                "<th scope=\"col\">tokens<small>so far</small></th>"
                "<th scope=\"col\">loss<small>training</small></th>"
                "<th scope=\"col\">loss<small>validation, last</small></th>"
                "<th scope=\"col\">loss<small>validation, lowest</small></th>"
                "<th scope=\"col\">at step<small>lowest</small></th>"
                "<th scope=\"col\">text</th></tr></thead>\n<tbody>\n");
    for (int m = 0; m < v->methods; m++)
        append_run(out, v, m, &runs[m], log_of(t, m));
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

/* ---- what they differ in */

/* A row if the values of the runs differ; *any: there is one. */
static alibi_status append_difference(struct text *out, const struct view *v,
                                      const struct alibi_option *o, const struct report_run *runs,
                                      size_t group, bool *any)
{
    alibi_status status = ALIBI_OK;
    struct text first = { 0 }, value = { 0 }, cells = { 0 };
    bool differ = false;

    TRY(option_format_plain(&first, o, (const char *)&runs[0] + group));
    for (int m = 0; m < v->methods; m++) {
        value.length = 0;
        TRY(option_format_plain(&value, o, (const char *)&runs[m] + group));
        differ |= strcmp(value.data, first.data) != 0;
        text_append(&cells, "<td>");
        append_escaped(&cells, value.data);
        text_append(&cells, "</td>");
    }
    TRY(text_status(&cells));
    if (differ)
        text_append(out, "<tr><th scope=\"row\">%s</th>%s</tr>\n", o->name, cells.data);
    *any |= differ;
out:
    text_free(&first);
    text_free(&value);
    text_free(&cells);
    return status;
}

static alibi_status append_differences(struct text *out, const struct view *v,
                                       const struct report_run *runs)
{
    alibi_status status = ALIBI_OK;
    struct text rows = { 0 };
    bool any = false;

    for (int group = 0; group < 2; group++) {
        int count;
        const struct alibi_option *options =
            group == 0 ? alibi_config_options(&count) : alibi_training_options(&count);
        size_t at = group == 0 ? offsetof(struct report_run, config)
                               : offsetof(struct report_run, training);

        for (int i = 0; i < count; i++)
            TRY(append_difference(&rows, v, &options[i], runs, at, &any));
    }
    TRY(text_status(&rows));
    text_append(out, "<h2>What they differ in</h2>\n");
    if (!any) {
        text_append(out, "<p>All options of the model and the training are the same.</p>\n");
        goto out;
    }
    text_append(out, "<div class=\"scroll\" role=\"region\" aria-label=\"Options that differ\" "
                     "tabindex=\"0\">\n<table class=\"data\">\n<caption><div><b>Options that "
                     "differ.</b> <span>0 means that it is derived from others.</span></div>"
                     "</caption>\n<thead><tr><th scope=\"col\">option</th>");
    for (int m = 0; m < v->methods; m++)
        text_append(out, "<th scope=\"col\">%s</th>", escape(v->name[m]).text);
    text_append(out, "</tr></thead>\n<tbody>\n");
    text_append_bytes(out, rows.data, rows.length);
    text_append(out, "</tbody>\n</table>\n</div>\n");
out:
    text_free(&rows);
    return status;
}

/* ---- the page */

alibi_status report_runs_html(struct text *out, const struct alibi_compare_result *r,
                              const struct report_run *runs, const struct report_training *t)
{
    struct view v;
    int best = -1;

    view_init(&v, r);
    for (int k = 0; k < t->logs; k++)
        if (t->log[k].validations > 0 &&
            (best < 0 || t->log[k].best_valid < t->log[best].best_valid))
            best = k;
    html_head(out, &v, "alibi train", t->refresh);
    text_append(out, "<header>\n<p class=\"kicker\">alibi train</p>\n<h1>%d run%s</h1>\n",
                v.methods, v.methods == 1 ? "" : "s");
    if (best >= 0)
        text_append(out, "<p>The lowest validation loss so far is %s, of %s after step %lld.</p>\n",
                    show_real(t->log[best].best_valid, 4).text,
                    escape(v.name[t->log[best].method]).text, (long long)t->log[best].best_step);
    html_state(out, &v, t);
    text_append(out, "</header>\n");
    html_boxes(out, &v);
    text_append(out, "<main>\n");
    TRY_RETURN(html_training(out, &v, t));
    append_runs(out, &v, runs, t);
    TRY_RETURN(append_differences(out, &v, runs));
    return html_foot(out, &v, "Every step is in the log.jsonl of its run.");
}
