/* experiment_html.c - the page of an experiment: verdicts, then figures and tables per evaluation
 *
 * Every section knows all models, so that one row of boxes switches them in every figure; a table
 * has no row for a model that was not tested there. */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* ---- claims */

static void append_summary(struct text *out, const struct report_experiment *x)
{
    int counts[4] = { 0 };

    for (int i = 0; i < x->claims; i++)
        counts[x->claim[i].claim.verdict]++;
    if (x->claims == 0)
        return;
    text_append(out, "<p>Of %d %s", x->claims, x->claims == 1 ? "claim" : "claims");
    for (int i = 0; i < 4; i++) {
        static const enum alibi_verdict order[] = { ALIBI_CLAIM_HOLDS, ALIBI_CLAIM_FAILS,
                                                    ALIBI_CLAIM_NOT_SHOWN,
                                                    ALIBI_CLAIM_NOT_MEASURED };

        if (i == 3 && counts[order[i]] == 0)
            continue;
        text_append(out, "%s <b class=\"verdict v%d\">%s</b> %d", i > 0 ? "," : ":", (int)order[i],
                    verdict_name(order[i]), counts[order[i]]);
    }
    text_append(out, ".</p>\n");
}

/* A name with its value, and the paper's. */
static void append_number(struct text *out, const struct report_number *n)
{
    text_append(out, "<td>%s</td><td>%s<small>%s</small></td><td>%s</td>",
                escape(n->name[0] ? n->name : "bound").text, show_number(n).text,
                escape(show_number_error(n).text).text, show_paper(n).text);
}

static void append_outcome(struct text *out, const struct report_comparison *c)
{
    if (isnan(c->d)) {
        text_append(out, "<td>" NO_VALUE);
    } else {
        text_append(out, "<td data-sort=\"%.6g\">", fmin(fmax(c->d, -1e9), 1e9));
        append_measured(out, c);
    }
    text_append(out, "</td><td><b class=\"verdict v%d\">%s</b>", (int)c->verdict,
                verdict_name(c->verdict));
    if (c->ignorant || c->unlearned || c->few_seeds)
        text_append(out, "<small>%s</small>",
                    c->ignorant    ? "learned nothing"
                    : c->unlearned ? "task not learned"
                                   : verdict_scope(c, 1));
    text_append(out, "</td></tr>\n");
}

/* "alibi-512 at 1024: 18.8±0.1" */
static void append_side(struct text *out, const struct report_number *n)
{
    text_append(out, "%s: %s%s", escape(n->name[0] ? n->name : "bound").text, show_number(n).text,
                escape(show_number_error(n).text).text);
}

/* Our numbers of one comparison beside the paper's or, if the paper has none, the source of the
 * claim. */
static void append_sides(struct text *out, const struct report_claim *c,
                         const struct report_comparison *of)
{
    text_append(out, "<dl class=\"sides\">\n<div><dt>ours</dt><dd>");
    append_side(out, &of->left);
    text_append(out, ", against ");
    append_side(out, &of->right);
    if (!isnan(of->d)) {
        text_append(out, ": <b>");
        append_measured(out, of);
        text_append(out, "</b>");
    }
    text_append(out, " <small>asked for: ");
    append_asked(out, of);
    text_append(out, "</small></dd></div>\n");
    if (c->claim.paper[0] || c->claim.where[0] || !isnan(of->left.paper)) {
        text_append(out, "<div><dt>%s</dt><dd>",
                    c->claim.paper[0] || !isnan(of->left.paper) ? "paper" : "from");
        if (!isnan(of->left.paper) && !isnan(of->right.paper)) {
            struct report_comparison paper = *of;

            paper.d = of->left.quantity == 'p' ? of->left.paper - of->right.paper
                                               : log(of->left.paper / of->right.paper);
            paper.error = NAN;
            text_append(out, "%s against %s: <b>", show_paper(&of->left).text,
                        show_paper(&of->right).text);
            append_measured(out, &paper);
            text_append(out, "</b>. ");
        }
        append_escaped(out, c->claim.paper);
        text_append(out, c->claim.where[0] ? " <small>" : "");
        append_escaped(out, c->claim.where);
        text_append(out, c->claim.where[0] ? "</small></dd></div>\n" : "</dd></div>\n");
    }
    text_append(out, "</dl>\n");
}

/* The card shows the deciding comparison, and all comparisons when it is unfolded. */
static void append_claim(struct text *out, const struct report_claim *c, int number)
{
    int decides = 0;

    while (decides < c->count - 1 && c->comparison[decides].verdict != c->claim.verdict)
        decides++;
    text_append(out,
                "<section class=\"claim v%d\">\n<p><b class=\"verdict v%d\">%s</b> "
                "<small>%s</small></p>\n<div>\n<h3>%d. ",
                (int)c->claim.verdict, (int)c->claim.verdict, verdict_name(c->claim.verdict),
                c->claim.few_seeds ? verdict_scope(c->comparison, c->count) : "", number);
    append_escaped(out, c->claim.claim);
    text_append(out, "</h3>\n");
    if (c->count > 0)
        append_sides(out, c, &c->comparison[decides]);
    text_append(out, "<details><summary>%d %s</summary>\n", c->count,
                c->count == 1 ? "comparison" : "comparisons");
    if (c->claim.few_seeds)
        text_append(out,
                    "<p class=\"note\">Shown %s: so few seeds do not prove it for others.</p>\n",
                    verdict_scope(c->comparison, c->count));
    text_append(out, "<div class=\"scroll\" role=\"region\" aria-label=\"Comparisons\" "
                     "tabindex=\"0\">\n<table class=\"data\">\n"
                     "<thead><tr><th scope=\"col\">is</th><th scope=\"col\">ours</th>"
                     "<th scope=\"col\">paper</th><th scope=\"col\">asked for</th>"
                     "<th scope=\"col\">than</th><th scope=\"col\">ours</th>"
                     "<th scope=\"col\">paper</th><th scope=\"col\">measured</th>"
                     "<th scope=\"col\">verdict</th></tr></thead>\n<tbody>\n");
    for (int i = 0; i < c->count; i++) {
        text_append(out, "<tr>");
        append_number(out, &c->comparison[i].left);
        text_append(out, "<td>");
        append_asked(out, &c->comparison[i]);
        text_append(out, "</td>");
        append_number(out, &c->comparison[i].right);
        append_outcome(out, &c->comparison[i]);
    }
    text_append(out, "</tbody>\n</table>\n</div>\n</details>\n</div>\n</section>\n");
}

/* ---- evaluations */

void html_heading(struct text *out, const char *name, const char *subject, const char *about)
{
    text_append(out, "<h2>");
    append_escaped(out, name);
    text_append(out, ": ");
    append_escaped(out, subject);
    text_append(out, "</h2>\n");
    if (about[0] == '\0')
        return;
    text_append(out, "<p class=\"note\">");
    append_escaped(out, about);
    text_append(out, "</p>\n");
}

static alibi_status append_section(struct text *out, const struct report_experiment *x, int index)
{
    const struct report_section *s = &x->section[index];
    struct view v;
    char id[48], caption[256];

    view_init_part(&v, s->result, x);
    v.sparse = true;
    v.trained_at = x->train_length;
    if (v.lengths == 0)
        return ALIBI_OK;
    snprintf(id, sizeof id, "fig-%d", index);
    snprintf(caption, sizeof caption, "Lower is better. Bands are one standard error%s.",
             v.seeds > 1 ? " of the text and of the seeds" : " of the text");
    html_heading(out, s->name, s->heading, s->about);
    if (v.lengths > 1)
        TRY_RETURN(html_figure_by_length(out, &v, id, caption));
    html_perplexity_table(out, &v);
    html_rules(out, &v);
    return v.lengths > 1 && s->windows ? html_positions(out, &v, id, 3) : ALIBI_OK;
}

/* Whether a figure of memory says something: models differ by more than 2% at some length. */
static bool memory_differs(const struct report_experiment *x, bool training)
{
    for (int i = 0; i < x->costs; i++)
        for (int k = 0; k < i; k++) {
            double a = training ? x->cost[i].train_memory : x->cost[i].eval_memory;
            double b = training ? x->cost[k].train_memory : x->cost[k].eval_memory;

            if (x->cost[i].length == x->cost[k].length && fabs(a - b) > 0.02 * fmin(a, b))
                return true;
        }
    return false;
}

static alibi_status append_cost_figures(struct text *out, const struct view *v,
                                        const struct report_experiment *x)
{
    bool several = false;

    for (int i = 1; i < x->costs; i++)
        several |= x->cost[i].length != x->cost[0].length;
    if (!several)
        return ALIBI_OK;
    text_append(out, "<div class=\"pair\">\n");
    for (int kind = 0; kind < COST_KINDS; kind++) {
        struct curves *curves = NULL;
        char id[48];

        if (kind >= COST_TRAIN_MEMORY && !memory_differs(x, kind == COST_TRAIN_MEMORY))
            continue;
        TRY_RETURN(curves_of_costs(&curves, v, x, kind));
        snprintf(id, sizeof id, "fig-cost-%d", kind);
        html_figure(out, v, curves, id, 220,
                    kind <= COST_EVAL_SPEED ? "Higher is better." : "Lower is better.");
    }
    text_append(out, "</div>\n");
    return ALIBI_OK;
}

static alibi_status append_costs(struct text *out, const struct view *v,
                                 const struct report_experiment *x)
{
    if (x->costs == 0)
        return ALIBI_OK;
    text_append(out, "<h2>Speed and memory by length</h2>\n");
    TRY_RETURN(append_cost_figures(out, v, x));
    text_append(out,
                "<div class=\"scroll\" role=\"region\" aria-label=\"Speed and memory\" "
                "tabindex=\"0\">\n<table class=\"data\">\n<caption><div><b>Tokens per second and "
                "peak memory.</b> <span>Methods took turns on %s; ± is one standard error.</span>"
                "</div></caption>\n<thead><tr><th scope=\"col\">model</th>"
                "<th scope=\"col\">length</th><th scope=\"col\">training</th>"
                "<th scope=\"col\">memory</th><th scope=\"col\">evaluation</th>"
                "<th scope=\"col\">memory</th></tr></thead>\n<tbody>\n",
                escape(x->cost[0].machine).text);
    for (int i = 0; i < x->costs; i++) {
        struct shown cells[4];

        cost_cells(cells, &x->cost[i]);
        html_begin_row(out, v, x->cost[i].method, false);
        text_append(out, "<td>%lld</td>", (long long)x->cost[i].length);
        for (int k = 0; k < 4; k++)
            text_append(out, "<td>%s</td>", cells[k].text);
        text_append(out, "</tr>\n");
    }
    text_append(out, "</tbody>\n</table>\n</div>\n");
    return ALIBI_OK;
}

/* ---- the page */

alibi_status report_experiment_html(struct text *out, const struct report_experiment *x)
{
    struct view v;
    char title[sizeof(struct escaped) + 32];
    size_t claims;

    view_init_part(&v, x->section[0].result, x);
    v.sparse = true;
    v.absent = x->absent;
    v.untrained = x->untrained;
    snprintf(title, sizeof title, "alibi reproduce %s", escape(x->name).text);
    html_head(out, &v, title, x->training.refresh);
    text_append(out, "<header>\n<p class=\"kicker\">alibi reproduce %s", escape(x->name).text);
    if (x->tier[0]) {
        text_append(out, ", tier %s", escape(x->tier).text);
        text_append(out, x->tier_about[0] ? ": " : "");
        append_escaped(out, x->tier_about);
    }
    text_append(out, "</p>\n<h1>");
    append_escaped(out, x->title);
    text_append(out, "</h1>\n");
    append_summary(out, x);
    text_append(out, "<p>");
    append_escaped(out, x->about);
    text_append(out, "</p>\n");
    if (x->training.done < x->training.models) {
        text_append(out, "<p class=\"state\" role=\"status\">");
        append_unfinished(out, x);
        text_append(out, "%s</p>\n",
                    x->training.refresh > 0 ? " This page reloads itself as the run continues."
                                            : "");
    }
    text_append(out, "</header>\n<main>\n");
    for (int i = 0; i < x->targets; i++)
        TRY_RETURN(verdict_html(out, &v, x, &x->target[i]));
    if (x->claims > 0)
        text_append(out, "<h2>Claims</h2>\n");
    claims = out->length;
    for (int i = 0; i < x->claims; i++)
        append_claim(out, &x->claim[i], i + 1);
    if (factor_since(out, claims))
        text_append(out, "<p class=\"note\">%s</p>\n", FACTOR_KEY);
    if (x->derived.length > 0) {
        text_append(out, "<h2>Models with the weights of another</h2>\n<pre>");
        append_escaped(out, x->derived.data);
        text_append(out, "</pre>\n");
    }
    html_boxes(out, &v);
    for (int i = 0; i < x->sections; i++)
        TRY_RETURN(append_section(out, x, i));
    for (int i = 0; i < x->targets; i++)
        TRY_RETURN(html_targets(out, &v, &x->target[i], i));
    for (int i = 0; i < x->tasks; i++)
        TRY_RETURN(
            html_task(out, &v, &x->task[i], i == 0 || x->task[i].name != x->task[i - 1].name, i));
    for (int i = 0; i < x->attentions; i++)
        TRY_RETURN(html_attention(
            out, &v, &x->attention[i],
            i == 0 || strcmp(x->attention[i].name, x->attention[i - 1].name) != 0, i));
    TRY_RETURN(html_numbers(out, &v, x));
    for (int i = 0; i < x->streams; i++)
        TRY_RETURN(html_stream(out, &v, &x->stream[i], i));
    TRY_RETURN(append_costs(out, &v, x));
    TRY_RETURN(html_training(out, &v, &x->training));
    text_append(out, "<h2>What it costs</h2>\n");
    html_cost_table(out, &v);
    return html_foot(out, &v, "The same numbers are in results.json and results.csv.");
}
