/* html.c - the report as one page: conclusion, figures, tables, setting
 *
 * The page is one file that loads nothing, and its security policy enforces that: the only images
 * are those that the script makes from its own figures. Names are escaped. The page is complete
 * without script, which adds the values of points and the saving of figures. */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* ---- head and lead */

void html_head(struct text *out, const struct view *v, const char *title, int64_t refresh)
{
    text_append(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                     "<meta name=\"color-scheme\" content=\"light dark\">\n");
    text_append(out, REPORT_SIGN "\n");
    if (refresh > 0)
        text_append(out, "<meta http-equiv=\"refresh\" content=\"%lld\">\n", (long long)refresh);
    text_append(out, "<title>%s</title>\n<style>\n%s", title, page_style);

    /* Colours of the series, and one rule per method that hides it if its box is not ticked. */
    text_append(out, ":root{");
    for (int i = 0; i < LOOKS; i++)
        text_append(out, "--series-%d:%s;", i, look_of(i)->light);
    text_append(out, "}\n@media screen and (prefers-color-scheme:dark){:root{");
    for (int i = 0; i < LOOKS; i++)
        text_append(out, "--series-%d:%s;", i, look_of(i)->dark);
    text_append(out, "}}\n");
    for (int m = 0; m < v->methods; m++)
        text_append(out, "body:has(#show-%d:not(:checked)) :is(.plot .s%d,.of%d){display:none}\n",
                    m, m, m);
    text_append(out, "</style>\n</head>\n<body>\n");
}

static alibi_status append_sentences(struct text *out, const struct view *v,
                                     void (*sentences)(struct text *out, const struct view *v))
{
    alibi_status status;
    struct text text = { 0 };

    sentences(&text, v);
    TRY(text_status(&text));
    if (text.length > 0)
        append_escaped(out, text.data);
out:
    text_free(&text);
    return status;
}

static void append_facts(struct text *out, const struct view *v)
{
    const struct alibi_training *t = &v->result->training;
    double tokens =
        (double)t->train_length * (double)t->batch * (double)t->accumulate * (double)t->steps;
    double least = INFINITY, most = 0;
    int seeds = v->result->compare.seeds.count;
    struct shown from, to;

    for (int m = 0; m < v->methods; m++) {
        least = fmin(least, view_cost(v, m).parameters);
        most = fmax(most, view_cost(v, m).parameters);
    }
    from = show_count(least);
    to = show_count(most);
    text_append(out, "<p class=\"facts\">%d %s, ", v->methods,
                v->methods == 1 ? "model" : "models that differ in their position method only");
    if (most > 0 && strcmp(from.text, to.text) != 0)
        text_append(out, "%s to ", from.text);
    if (most > 0) /* a model is trained */
        text_append(out, "%s parameters, ", to.text);
    text_append(out, "trained on %s tokens in windows of %lld with ", show_count(tokens).text,
                (long long)t->train_length);
    text_append(out, seeds > 1 ? "each of %lld seeds" : "seed %lld",
                seeds > 1 ? (long long)seeds : (long long)t->seed);
    text_append(out, ", %stested on text it has not seen.</p>\n", v->methods == 1 ? "" : "each ");
}

void html_state(struct text *out, const struct view *v, const struct report_training *t)
{
    if (t->done == t->models)
        return;
    text_append(out, "<p class=\"state\" role=\"status\">Unfinished");
    if (t->models > 1)
        text_append(out, ": %d of %d models are done", t->done, t->models);
    for (int k = 0; k < t->logs; k++)
        if (t->log[k].step < t->log[k].steps)
            text_append(out, "%s %s is at step %lld of %lld", t->models > 1 ? ";" : ":",
                        escape(v->name[t->log[k].method]).text, (long long)t->log[k].step,
                        (long long)t->log[k].steps);
    text_append(out, ".%s</p>\n",
                t->refresh > 0 ? " This page reloads itself as the run continues." : "");
}

/* A box per method, which shows it in the figures. */
void html_boxes(struct text *out, const struct view *v)
{
    text_append(out, "<fieldset class=\"methods\">\n<legend>In the figures</legend>\n");
    for (int m = 0; m < v->methods; m++) {
        if (v->absent && v->absent[m])
            continue;
        text_append(out,
                    "<label style=\"color:var(--series-%d)\">"
                    "<input type=\"checkbox\" id=\"show-%d\" checked>",
                    v->look[m] % LOOKS, m);
        html_name(out, v, m);
        text_append(out, "</label>\n");
    }
    text_append(out, "</fieldset>\n");
}

static alibi_status append_lead(struct text *out, const struct view *v,
                                const struct report_training *t)
{
    text_append(out, "<header>\n<p class=\"kicker\">alibi compare: train short, test long</p>\n"
                     "<h1>");
    TRY_RETURN(append_sentences(out, v, append_headline));
    text_append(out, "</h1>\n<p>");
    TRY_RETURN(append_sentences(out, v, append_detail));
    text_append(out, "</p>\n");
    html_state(out, v, t);
    append_facts(out, v);
    text_append(out, "</header>\n");
    html_boxes(out, v);
    return ALIBI_OK;
}

/* ---- figures */

/* Draws the figure on both scales of the y axis; the style shows the one that the box selects. */
void html_figure(struct text *out, const struct view *v, struct curves *curves, const char *id,
                 int height, const char *caption)
{
    struct chart *c = &curves->chart;
    char other[48];

    c->id = id;
    c->height = height;
    text_append(out, curves->of < 0 ? "<figure>\n" : "<figure class=\"of%d\">\n", curves->of);
    text_append(out, "<figcaption>");
    if (curves->of >= 0)
        html_swatch(out, v, curves->of);
    text_append(out, "<b>%s.</b> <span>%s</span></figcaption>\n<div class=\"tools\">",
                escape(curves->title).text, caption);
    if (!curves->one_scale)
        text_append(out, "<label><input type=\"checkbox\" class=\"log-axis\"%s>log axis</label>",
                    c->log_y ? " checked" : "");
    text_append(out, "</div>\n");
    plot_svg(out, c);
    if (!curves->one_scale) {
        snprintf(other, sizeof other, "%s-%s", id, c->log_y ? "linear" : "log");
        c->id = other;
        c->log_y = !c->log_y;
        plot_svg(out, c);
    }
    text_append(out, "</figure>\n");
    mem_free(curves);
}

alibi_status html_figure_by_length(struct text *out, const struct view *v, const char *id,
                                   const char *caption)
{
    struct curves *curves = NULL;

    TRY_RETURN(curves_by_length(&curves, v));
    html_figure(out, v, curves, id, 380, caption);
    return ALIBI_OK;
}

static alibi_status figure_by_position(struct text *out, const struct view *v, int64_t length,
                                       const char *id, const char *caption)
{
    struct curves *curves = NULL;

    TRY_RETURN(curves_by_position(&curves, v, length));
    html_figure(out, v, curves, id, 260, caption);
    return ALIBI_OK;
}

void html_rules(struct text *out, const struct view *v)
{
    text_append(out, "<p class=\"note\">Scored: ");
    append_scored(out, v);
    text_append(out, ". ");
    append_rules(out, v);
    text_append(out, "</p>\n");
}

/* If the sliding window scores another part of the text than the figure above, the caption says so.
 */
static alibi_status append_sliding(struct text *out, const struct view *v)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);
    int64_t tokens = view_tokens(&sliding), all = view_tokens(v);
    char caption[384], part[192] = "";

    if (tokens == 0)
        return ALIBI_OK;
    if (tokens != all)
        snprintf(part, sizeof part,
                 " Scored on %s tokens of the text, not %s as above: compare shapes, not heights.",
                 show_count((double)tokens).text, show_count((double)all).text);
    snprintf(caption, sizeof caption,
             "Past the first window every token has at least half the window as context.%s", part);
    text_append(out,
                "<h2>How much of it is context</h2>\n"
                "<p class=\"note\">Above, windows do not overlap, and the first tokens of each "
                "have almost no context (the early token curse). Longer windows have fewer "
                "such tokens, so they gain even where a model makes no use of more "
                "context.</p>\n");
    TRY_RETURN(html_figure_by_length(out, &sliding, "fig-sliding", caption));
    html_rules(out, &sliding);
    return ALIBI_OK;
}

static void append_stream(struct text *out, const struct view *v)
{
    struct view stream = view_of(v, ALIBI_STREAM);

    if (stream.lengths == 0)
        return;
    text_append(out,
                "<h2>Without windows</h2>\n"
                "<p class=\"note\">The text is read once, each token with all earlier tokens "
                "as context. Attention skips keys that provably have no weight. With a bias that "
                "grows with the distance it skips most keys; without one it skips hardly any, and "
                "the cost grows with the square of the text. Methods that number the positions of "
                "a text cannot continue indefinitely and have no value.</p>\n");
    html_stream_table(out, &stream);
    html_rules(out, &stream);
}

/* The early token curse: all methods at two lengths, then each method at several. */
alibi_status html_positions(struct text *out, const struct view *v, const char *id, int level)
{
    int64_t longest = v->lengths > 0 ? v->length[v->lengths - 1] : 0;
    char name[64];

    if (longest == 0)
        return ALIBI_OK;
    text_append(out,
                "<h%d>Where in the window the loss arises</h%d>\n"
                "<p class=\"note\">Targets early in a window see little context, so their loss "
                "is high with every method: the early token curse. Longer windows have fewer of "
                "them. Methods differ in whether the loss keeps falling past the training "
                "length.%s</p>\n<div class=\"pair\">\n",
                level, level, v->seeds > 1 ? " Bands are the range of the seeds." : "");
    if (longest != v->train_length && view_has_length(v, v->train_length)) {
        snprintf(name, sizeof name, "%s-home", id);
        TRY_RETURN(figure_by_position(out, v, v->train_length, name, "The training length."));
    }
    snprintf(name, sizeof name, "%s-far", id);
    TRY_RETURN(figure_by_position(out, v, longest, name,
                                  longest != v->train_length ? "The longest test." : ""));
    text_append(out, "</div>\n");
    if (v->lengths < 2)
        return ALIBI_OK;
    text_append(out, "<h3>The same, one by one</h3>\n"
                     "<p class=\"note\">One curve for each length of the window, the palest for "
                     "the shortest; the band belongs to the longest. Where curves coincide, the "
                     "loss depends only on the context, not on the window. The dotted line is the "
                     "training length.</p>\n<div class=\"small\">\n");
    for (int m = 0; m < v->methods; m++) {
        struct curves *curves = NULL;

        if (v->result->method[m].seeds == 0)
            continue;
        TRY_RETURN(curves_of_positions(&curves, v, m));
        snprintf(name, sizeof name, "%s-position-%d", id, m);
        html_figure(out, v, curves, name, 170, "");
    }
    text_append(out, "</div>\n");
    return ALIBI_OK;
}

static bool has_validation(const struct report_training *t)
{
    for (int k = 0; k < t->logs; k++)
        for (int bin = 0; bin < REPORT_BINS; bin++)
            if (t->log[k].valid.count[bin] > 0)
                return true;
    return false;
}

/* The loss by step, and that of validations if there were any. */
alibi_status html_training(struct text *out, const struct view *v, const struct report_training *t)
{
    const char *caption = v->seeds > 1 ? "Mean of the seeds, and their range." : "";
    struct curves *curves = NULL;

    if (t->logs == 0)
        return ALIBI_OK;
    text_append(out, "<h2>How the model%s learned</h2>\n<div class=\"pair\">\n",
                v->methods > 1 ? "s" : "");
    TRY_RETURN(curves_by_step(&curves, v, t, false));
    html_figure(out, v, curves, "fig-train", 260, caption);
    if (has_validation(t)) {
        TRY_RETURN(curves_by_step(&curves, v, t, true));
        html_figure(out, v, curves, "fig-valid", 260, caption);
    }
    text_append(out, "</div>\n");
    return ALIBI_OK;
}

/* ---- the page */

alibi_status html_foot(struct text *out, const struct view *v, const char *beside)
{
    text_append(out, "</main>\n<footer><p>");
    TRY_RETURN(append_sentences(out, v, append_origin));
    text_append(out,
                "</p>\n<p>%s This page loads nothing from elsewhere.</p></footer>\n"
                "<script>\n%s</script>\n</body>\n</html>\n",
                beside, page_script);
    return text_status(out);
}

static const struct report_training no_training;

alibi_status report_html(struct text *out, const struct alibi_compare_result *r,
                         const struct report_training *t)
{
    struct view v;
    char title[96], caption[192];

    view_init(&v, r);
    v.one_scale = true;
    t = t != NULL ? t : &no_training;
    snprintf(title, sizeof title,
             "alibi compare: trained at %lld tokens, tested at growing lengths",
             (long long)v.train_length);
    snprintf(caption, sizeof caption, "Lower is better. Bands are ± one standard error%s.",
             v.seeds > 1 ? " of the text and of the seeds" : " of the text");
    html_head(out, &v, title, t->refresh);
    TRY_RETURN(append_lead(out, &v, t));
    text_append(out, "<main>\n");
    TRY_RETURN(html_figure_by_length(out, &v, "fig-ppl", caption));
    html_perplexity_table(out, &v);
    html_rules(out, &v);
    TRY_RETURN(append_sliding(out, &v));
    append_stream(out, &v);
    TRY_RETURN(html_positions(out, &v, "fig", 2));
    TRY_RETURN(html_training(out, &v, t));
    text_append(out, "<h2>What it costs</h2>\n");
    html_cost_table(out, &v);
    text_append(out, "<h2>All numbers</h2>\n");
    html_full_table(out, &v);
    text_append(out, "<h2>Setting</h2>\n");
    html_setting(out, &v);
    html_command(out, &v);
    return html_foot(out, &v, "The same numbers are in results.json and results.csv.");
}

alibi_status report_run_html(struct text *out, const struct alibi_compare_result *r,
                             const struct report_training *t)
{
    struct view v;
    double tokens = (double)r->training.train_length * (double)r->training.batch *
                    (double)r->training.accumulate;
    int64_t step = t->logs > 0 ? t->log[0].step : 0;

    view_init(&v, r);
    html_head(out, &v, "alibi train", t->refresh);
    text_append(out, "<header>\n<p class=\"kicker\">alibi train</p>\n<h1>%s after %lld %s</h1>\n",
                escape(v.name[0]).text, (long long)step, step == 1 ? "step" : "steps");
    html_state(out, &v, t);
    text_append(
        out, "<p class=\"facts\">%s of %s tokens, in windows of %lld.</p>\n</header>\n<main>\n",
        show_count(tokens * (double)step).text, show_count(tokens * (double)r->training.steps).text,
        (long long)r->training.train_length);
    TRY_RETURN(html_training(out, &v, t));
    text_append(out, "<h2>Setting</h2>\n");
    html_setting(out, &v);
    return html_foot(out, &v, "Every step is in log.jsonl.");
}
