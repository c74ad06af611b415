/* html_tasks.c - scores of tasks on the page of an experiment
 *
 * Tables whose cells are shaded by the score: all models by length, and each model by length and
 * depth. The number is in the cell, so a map of scores reads without a pointer, on paper too. */
#include <math.h>

#include "report/parts.h"

/* One scale for all tables: from 0, not shaded, to 1. */
static void append_cell(struct text *out, double score, const char *shown)
{
    if (isfinite(score))
        text_append(out, "<td class=\"score\" style=\"--score:%.0f%%\">%s</td>",
                    100 * fmin(fmax(score, 0), 1), escape(shown).text);
    else
        text_append(out, "<td>%s</td>", escape(shown).text);
}

static void append_head(struct text *out, const struct report_task *t, const char *first)
{
    text_append(out, "<thead><tr><th scope=\"col\">%s</th>", first);
    for (int i = 0; i < t->lengths->count; i++)
        text_append(out, "<th scope=\"col\"%s>%lld%s</th>",
                    t->lengths->at[i] == t->near ? " class=\"trained\"" : "",
                    (long long)t->lengths->at[i],
                    t->lengths->at[i] == t->near ? "<small>trained at</small>" : "");
    text_append(out, "</tr></thead>\n<tbody>\n");
}

static void append_scores(struct text *out, const struct view *v, const struct report_task *t)
{
    text_append(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"Scores of %s\" tabindex=\"0\">\n"
        "<table class=\"data%s\">\n<caption><div><b>Score of %s by length.</b> <span>%s%s; ± "
        "is one standard error, of the cases and of the seeds. Lengths past the training length "
        "count only if the score at that length is 0.95 or more.</span></div></caption>\n",
        escape(t->task).text, t->lengths->count < 4 ? " narrow" : "", escape(t->task).text,
        t->chain ? "The share of what there is to learn: 1 is Bayes' loss"
                 : "The share of right answers; chance is ",
        t->chain ? "" : show_real(t->chance, 3).text);
    append_head(out, t, "model");
    for (int m = 0; m < t->models; m++) {
        html_begin_row(out, v, t->model[m].method, false);
        for (int i = 0; i < t->lengths->count; i++) {
            const struct report_score *s = &t->model[m].at[i];

            append_cell(out, s->unlearned > 0 ? NAN : s->score, show_score(s).text);
        }
        text_append(out, "</tr>\n");
    }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

/* One model: a row for each depth, the start of the window first. */
static void append_map(struct text *out, const struct view *v, const struct report_task *t,
                       const struct report_task_model *m)
{
    text_append(out, "<figure class=\"of%d\">\n<figcaption>", m->method);
    html_swatch(out, v, m->method);
    text_append(out,
                "<b>%s: %s by depth.</b></figcaption>\n<table class=\"map\">\n<thead><tr>"
                "<th scope=\"col\">depth</th>",
                escape(v->name[m->method]).text, escape(t->task).text);
    for (int i = 0; i < t->lengths->count; i++)
        text_append(out, "<th scope=\"col\"%s>%s</th>",
                    t->lengths->at[i] == t->near ? " class=\"trained\"" : "",
                    show_tick((double)t->lengths->at[i], 0).text);
    text_append(out, "</tr></thead>\n<tbody>\n");
    for (int64_t d = 0; d < t->depths; d++) {
        text_append(out, "<tr><th scope=\"row\">%.0f–%.0f%%</th>",
                    100 * (double)d / (double)t->depths, 100 * (double)(d + 1) / (double)t->depths);
        for (int i = 0; i < t->lengths->count; i++)
            if (m->at[i].unlearned > 0)
                text_append(out, "<td class=\"unlearned\"></td>");
            else
                append_cell(out, m->at[i].depth[d], show_real(m->at[i].depth[d], 2).text);
        text_append(out, "</tr>\n");
    }
    text_append(out, "</tbody>\n</table>\n</figure>\n");
}

/* Explains the shades and the cells without one. */
static void append_legend(struct text *out)
{
    text_append(out, "<p class=\"scale\">Score");
    for (int i = 0; i <= 4; i++)
        text_append(out, " <span><i class=\"score\" style=\"--score:%d%%\"></i>%s</span>", 25 * i,
                    show_real(0.25 * i, 2).text);
    text_append(out, " <span><i class=\"unlearned\"></i>not learned at L</span></p>\n");
}

/* The chain: losses beside the lowest that is possible. */
static void append_losses(struct text *out, const struct view *v, const struct report_task *t)
{
    text_append(out, "<div class=\"scroll\" role=\"region\" aria-label=\"Losses of the chain\" "
                     "tabindex=\"0\">\n<table class=\"data\">\n<caption><div><b>Loss above "
                     "Bayes'.</b> <span>Nats per token; Bayes' loss is the lowest that is "
                     "possible.</span></div></caption>\n");
    append_head(out, t, "model");
    for (int m = 0; m < t->models; m++) {
        html_begin_row(out, v, t->model[m].method, false);
        for (int i = 0; i < t->lengths->count; i++) {
            const struct report_score *s = &t->model[m].at[i];

            if (s->seeds > 0)
                text_append(out, "<td>%s<small>Bayes: %s</small></td>",
                            show_nats(s->nll - s->bayes).text, show_real(s->bayes, 4).text);
            else
                text_append(out, "<td>" NO_VALUE "</td>");
        }
        text_append(out, "</tr>\n");
    }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

static alibi_status append_chain(struct text *out, const struct view *v,
                                 const struct report_task *t, int index)
{
    struct curves *curves = NULL;
    char id[48];

    text_append(out, "<div class=\"pair\">\n");
    for (int above = 0; above < 2; above++) {
        TRY_RETURN(curves_of_chain(&curves, v, t, above));
        snprintf(id, sizeof id, "fig-chain-%d-%d", index, above);
        html_figure(out, v, curves, id, 260,
                    above ? "A model that uses its whole context stays near 0; one that sees only "
                            "the last part of it rises. Bands are the range of the seeds."
                          : "In the longest window; dashed: Bayes' loss, the lowest that is "
                            "possible. Models that have not learned the chain at L are not drawn.");
    }
    text_append(out, "</div>\n");
    append_losses(out, v, t);
    return ALIBI_OK;
}

alibi_status html_task(struct text *out, const struct view *v, const struct report_task *t,
                       bool first, int index)
{
    if (t->models == 0)
        return ALIBI_OK;
    if (first)
        html_heading(out, t->name, "tasks that only far context can solve", t->about);
    text_append(out, "<h3>%s</h3>\n<p class=\"note\">", escape(t->task).text);
    append_escaped(out, t->summary);
    text_append(out, "; %lld windows of each length for each seed.</p>\n", (long long)t->cases);
    append_scores(out, v, t);
    if (t->chain)
        TRY_RETURN(append_chain(out, v, t, index));
    if (!t->has_depth)
        return ALIBI_OK;
    text_append(out,
                "<p class=\"note\">By length and depth: where in the window the answer is, from "
                "its start, which is farthest, to its end. A column has %lld windows for each "
                "seed.</p>\n",
                (long long)t->cases);
    append_legend(out);
    text_append(out, "<div class=\"small\">\n");
    for (int m = 0; m < t->models; m++)
        append_map(out, v, t, &t->model[m]);
    text_append(out, "</div>\n");
    return ALIBI_OK;
}
