/* html_probes.c - fixed targets and attention by distance on the page of an experiment */
#include <math.h>

#include "report/parts.h"

/* ---- fixed targets */

static void append_estimate(struct text *out, struct alibi_estimate e)
{
    text_append(out, "<td>%s", show_nats(e.value).text);
    if (isfinite(e.value) && isfinite(e.error) && e.error > 0)
        text_append(out, "<small>±%s</small>", escape(show_error(e.error, 4).text).text);
    text_append(out, "</td>");
}

static void append_targets_table(struct text *out, const struct view *v,
                                 const struct report_targets *t)
{
    text_append(out,
                "<div class=\"scroll\" role=\"region\" aria-label=\"Fixed targets\" "
                "tabindex=\"0\">\n<table class=\"data\">\n"
                "<caption><div><b>Fixed targets, growing context.</b> <span>Nats per token; "
                "± is one standard error, of the text and of the seeds.</span></div></caption>\n"
                "<thead><tr><th scope=\"col\">model</th><th scope=\"col\">context</th>"
                "<th scope=\"col\">loss</th><th scope=\"col\">gain</th>"
                "<th scope=\"col\">gain<small>far text swapped</small></th>"
                "<th scope=\"col\">gain<small>in a window</small></th></tr></thead>\n<tbody>\n");
    for (int m = 0; m < t->models; m++)
        for (int i = 0; i < t->contexts; i++) {
            const struct alibi_target_context *at = &t->model[m].kind[ALIBI_ALL_TARGETS].at[i];

            html_begin_row(out, v, t->model[m].method, i == 0);
            text_append(out, "<td%s>%lld</td>", at->context == t->near ? " class=\"trained\"" : "",
                        (long long)at->context);
            append_estimate(out, at->nll);
            append_estimate(out, at->gain);
            append_estimate(out, at->swapped);
            append_estimate(out, at->window);
            text_append(out, "</tr>\n");
        }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

static bool has_kind(const struct report_targets *t, enum alibi_target_kind kind)
{
    for (int m = 0; m < t->models; m++)
        if (t->model[m].kind[kind].tokens > 0)
            return true;
    return false;
}

alibi_status html_targets(struct text *out, const struct view *v, const struct report_targets *t,
                          int index)
{
    struct curves *curves = NULL;
    char id[48], within[128] = "";

    if (!has_kind(t, ALIBI_ALL_TARGETS))
        return ALIBI_OK;
    if (t->block > 1)
        snprintf(within, sizeof within,
                 ", which is the context of its first target: the last has %lld tokens more than "
                 "the axis says",
                 (long long)t->block - 1);
    html_heading(out, t->name, "the same tokens with growing context", t->about);
    text_append(
        out,
        "<p class=\"note\">%s tokens, in %lld blocks of %lld from %lld document%s, are "
        "scored with exactly c tokens before each block%s. A model that merely does not break "
        "has a flat curve beyond L and uses nothing there, so it is at 0 in both lower figures, "
        "which have the scale of the models that do not break. Bands in the upper figures are the "
        "range of the seeds, and in the lower ones one standard error of the text and of the "
        "seeds.%s%s</p>\n",
        show_count((double)t->blocks * (double)t->block).text, (long long)t->blocks,
        (long long)t->block, (long long)t->documents, t->documents == 1 ? "" : "s", within,
        isnan(t->ceiling_gain) ? "" : " Dashed grey: trained at the longest context.",
        t->few ? " Errors treat the blocks of few documents as independent, so they are too small."
               : "");
    text_append(out, "<div class=\"pair\">\n");
    for (int kind = ALIBI_ALL_TARGETS; kind <= ALIBI_REPEATS; kind++) {
        if (!has_kind(t, kind))
            continue;
        TRY_RETURN(curves_of_targets(&curves, v, t, kind));
        snprintf(id, sizeof id, "fig-targets-%d-%d", index, kind);
        html_figure(out, v, curves, id, 300,
                    kind == ALIBI_REPEATS ? "Their n-gram is in the text beyond L, and not nearer."
                                          : "All targets. Lower is better.");
    }
    for (int content = 0; content < 2; content++) {
        TRY_RETURN(curves_of_uses(&curves, v, t, content));
        snprintf(id, sizeof id, "fig-uses-%d-%d", index, content);
        html_figure(out, v, curves, id, 220,
                    content ? "The loss from swapping text beyond L for that of another document."
                            : "The loss from cutting attention to the last L keys.");
    }
    text_append(out, "</div>\n");
    append_targets_table(out, v, t);
    return ALIBI_OK;
}

/* ---- attention */

static void append_attention_table(struct text *out, const struct view *v,
                                   const struct report_attention *a)
{
    text_append(out, "<div class=\"scroll\" role=\"region\" aria-label=\"Attention\" "
                     "tabindex=\"0\">\n<table class=\"data narrow\">\n"
                     "<caption><div><b>Attention, mean over heads.</b> <span>Entropy is ln n if "
                     "n keys have the same weight.</span></div></caption>\n"
                     "<thead><tr><th scope=\"col\">model</th>"
                     "<th scope=\"col\">distance<small>mean</small></th>"
                     "<th scope=\"col\">far<small>share of the weight</small></th>"
                     "<th scope=\"col\">entropy<small>nats</small></th></tr></thead>\n<tbody>\n");
    for (int m = 0; m < a->models; m++) {
        struct alibi_head_attention mean = attention_mean(&a->model[m]);

        if (a->model[m].seeds == 0)
            continue;
        html_begin_row(out, v, a->model[m].method, false);
        text_append(out, "<td>%s</td><td>%s</td><td>%s</td></tr>\n",
                    show_real(mean.distance, 1).text, show_share(mean.beyond).text,
                    show_real(mean.entropy, 2).text);
    }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

static double distance_at(const void *of, int64_t k)
{
    return ((const struct alibi_head_attention *)of)[k].distance;
}

static double entropy_at(const void *of, int64_t k)
{
    return ((const struct alibi_head_attention *)of)[k].entropy;
}

/* Mean distance and entropy of each head, in a row for each layer of each model. Only the first
 * seed is shown, because heads of different seeds do not correspond. The mark is the head that
 * gives all keys the same weight, whose entropy is about ln n. */
static alibi_status append_heads(struct text *out, const struct view *v,
                                 const struct report_attention *a, int index)
{
    const struct alibi_head_attention *equal = &a->model[0].seed[0]->uniform;
    struct dots_row *rows = NULL;
    struct dots d = { .caption = "One dot per head, one row per layer." };
    int64_t all = 0;
    char id[48];

    for (int m = 0; m < a->models; m++)
        all += a->model[m].seed[0]->layers;
    TRY_RETURN(NEW_ZERO_ARRAY(&rows, all, "the dots of a figure"));
    d.row = rows;
    for (int m = 0; m < a->models; m++)
        for (int64_t n = 0; n < a->model[m].seed[0]->layers; n++) {
            const struct alibi_attention_result *r = a->model[m].seed[0];
            struct dots_row *row = &rows[d.rows++];

            *row = (struct dots_row){ .method = a->model[m].method,
                                      .count = r->heads,
                                      .of = r->head + n * r->heads };
            dots_label(row, v, -1, n, n == 0);
        }
    text_append(out, "<div class=\"pair\">\n");
    for (int entropy = 0; entropy < 2; entropy++) {
        for (int i = 0; i < d.rows; i++)
            rows[i].value = entropy ? entropy_at : distance_at;
        d.title = entropy ? "Entropy of each head" : "Mean distance of each head";
        d.label = entropy ? "nats" : "tokens";
        d.mark = entropy ? equal->entropy : equal->distance;
        d.mark_label = entropy ? "ln n" : "uniform";
        snprintf(id, sizeof id, "fig-heads-%d-%d", index, entropy);
        d.id = id;
        dots_svg(out, v, &d);
    }
    text_append(out, "</div>\n");
    mem_free(rows);
    return ALIBI_OK;
}

alibi_status html_attention(struct text *out, const struct view *v,
                            const struct report_attention *a, bool first, int index)
{
    struct curves *curves = NULL;
    char id[48], title[ALIBI_NAME_MAX + 64];
    int most = 0;

    for (int m = 0; m < a->models; m++)
        most = a->model[m].seeds > most ? a->model[m].seeds : most;
    if (most == 0)
        return ALIBI_OK;
    if (first)
        html_heading(out, a->name, "attention by distance", a->about);
    text_append(out, "<h3>In windows of %lld tokens</h3>\n", (long long)a->length);
    TRY_RETURN(curves_of_attention(&curves, v, a));
    snprintf(id, sizeof id, "fig-attention-%d", index);
    html_figure(out, v, curves, id, 260,
                "Mean over layers, heads and seeds; distances in ranges that double. Uniform: all "
                "keys have the same weight.");
    text_append(out,
                "<p class=\"note\">Each row is a head, each column a range of distances.%s</p>\n",
                most > 1 ? " Maps and dots are of the first seed: heads of different seeds do not "
                           "correspond."
                         : "");
    heat_legend(out);
    text_append(out, "<div class=\"small\">\n");
    for (int m = 0; m < a->models; m++) {
        int method = a->model[m].method;

        if (a->model[m].seeds == 0)
            continue;
        snprintf(title, sizeof title, "%s: attention by distance", v->name[method]);
        snprintf(id, sizeof id, "fig-attention-%d-%d", index, m);
        text_append(out, "<figure class=\"of%d\">\n<figcaption>", method);
        html_swatch(out, v, method);
        text_append(out, "<b>%s.</b></figcaption>\n<div class=\"tools\"></div>\n",
                    escape(title).text);
        heat_svg(out, a->model[m].seed[0], v->look[method], id, title);
        text_append(out, "</figure>\n");
    }
    text_append(out, "</div>\n");
    TRY_RETURN(append_heads(out, v, a, index));
    append_attention_table(out, v, a);
    return ALIBI_OK;
}
