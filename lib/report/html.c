/* html.c - the report as one page: conclusion, figures, tables, setting
 *
 * The page is one file that loads nothing, and its security policy enforces that. Names are
 * escaped. It is complete without script, which only adds the values of points. */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* ---- head and lead */

static void append_head(struct text *out, const struct view *v)
{
    text_append(out,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
                "<meta name=\"color-scheme\" content=\"light dark\">\n"
                "<title>alibi compare: trained at %lld tokens, tested at growing lengths</title>\n"
                "<style>\n%s",
                (long long)v->train_length, page_style);

    /* Colours of the series, and one rule per method that hides it if its box is not ticked. */
    text_append(out, ":root{");
    for (int i = 0; i < LOOKS; i++)
        text_append(out, "--series-%d:%s;", i, look_of(i)->light);
    text_append(out, "}\n@media screen and (prefers-color-scheme:dark){:root{");
    for (int i = 0; i < LOOKS; i++)
        text_append(out, "--series-%d:%s;", i, look_of(i)->dark);
    text_append(out, "}}\n");
    for (int m = 0; m < v->methods; m++)
        text_append(out, "body:has(#show-%d:not(:checked)) :is(.plot,.bars) .s%d{display:none}\n",
                    m, m);
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
    struct shown from, to;

    for (int m = 0; m < v->methods; m++) {
        least = fmin(least, view_cost(v, m).parameters);
        most = fmax(most, view_cost(v, m).parameters);
    }
    from = show_count(least);
    to = show_count(most);
    text_append(out, "<p class=\"facts\">%d %s, ", v->methods,
                v->methods == 1 ? "model" : "models that differ in their position method only");
    if (strcmp(from.text, to.text) != 0)
        text_append(out, "%s to ", from.text);
    text_append(out,
                "%s parameters, trained on %s tokens in windows of %lld with seed %lld, %stested "
                "on text it has not seen.</p>\n",
                to.text, show_count(tokens).text, (long long)t->train_length, (long long)t->seed,
                v->methods == 1 ? "" : "each ");
}

static alibi_status append_lead(struct text *out, const struct view *v)
{
    text_append(out, "<header>\n<p class=\"kicker\">alibi compare: train short, test long</p>\n"
                     "<h1>");
    TRY_RETURN(append_sentences(out, v, append_headline));
    text_append(out, "</h1>\n<p>");
    TRY_RETURN(append_sentences(out, v, append_detail));
    text_append(out, "</p>\n");
    append_facts(out, v);
    text_append(out, "</header>\n<fieldset class=\"methods\">\n<legend>In the figures</legend>\n");
    for (int m = 0; m < v->methods; m++) {
        text_append(out,
                    "<label style=\"color:var(--series-%d)\">"
                    "<input type=\"checkbox\" id=\"show-%d\" checked>",
                    m % LOOKS, m);
        html_name(out, v, m);
        text_append(out, "</label>\n");
    }
    text_append(out, "</fieldset>\n");
    return ALIBI_OK;
}

/* ---- figures */

/* Releases the curves. */
static void append_figure(struct text *out, struct curves *curves, const char *id, int height,
                          const char *caption)
{
    curves->chart.id = id;
    curves->chart.height = height;
    text_append(out, "<figure>\n<figcaption><b>%s.</b> <span>%s</span></figcaption>\n",
                curves->title, caption);
    plot_svg(out, &curves->chart);
    text_append(out, "</figure>\n");
    mem_free(curves);
}

static alibi_status figure_by_length(struct text *out, const struct view *v, enum curve_kind kind,
                                     const char *id, int height, const char *caption)
{
    struct curves *curves = NULL;

    TRY_RETURN(curves_by_length(&curves, v, kind));
    append_figure(out, curves, id, height, caption);
    return ALIBI_OK;
}

static alibi_status figure_by_position(struct text *out, const struct view *v, int64_t length,
                                       const char *id, const char *caption)
{
    struct curves *curves = NULL;

    TRY_RETURN(curves_by_position(&curves, v, length));
    append_figure(out, curves, id, 260, caption);
    return ALIBI_OK;
}

/* The caption says so if it scores another part of the text than the figure above. */
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
    return figure_by_length(out, &sliding, CURVE_PPL, "fig-sliding", 380, caption);
}

static void append_stream(struct text *out, const struct view *v)
{
    struct view stream = view_of(v, ALIBI_STREAM);

    if (stream.lengths == 0)
        return;
    text_append(out,
                "<h2>Without windows</h2>\n"
                "<p class=\"note\">The text is read once, each token with all that came before "
                "it as context. Attention skips keys that provably have no weight: under a "
                "bias that grows with the distance it skips most of them, without one hardly "
                "any, and the cost grows with the square of the text. Methods that number the "
                "places in a text cannot continue indefinitely and have no value.</p>\n");
    html_stream_table(out, &stream);
}

static alibi_status append_positions(struct text *out, const struct view *v)
{
    int64_t longest = v->lengths > 0 ? v->length[v->lengths - 1] : 0;

    if (longest == 0)
        return ALIBI_OK;
    text_append(out,
                "<h2>Where in the window the loss arises</h2>\n"
                "<p class=\"note\">Targets early in a window see little context, so their loss "
                "is high with every method. Methods differ in whether the loss keeps falling "
                "past the training length.</p>\n"
                "<div class=\"pair\">\n");
    if (longest != v->train_length && view_has_length(v, v->train_length))
        TRY_RETURN(figure_by_position(out, v, v->train_length, "fig-home", "The training length."));
    TRY_RETURN(figure_by_position(out, v, longest, "fig-far",
                                  longest != v->train_length ? "The longest test." : ""));
    text_append(out, "</div>\n");
    return ALIBI_OK;
}

/* ---- the page */

alibi_status report_html(struct text *out, const struct alibi_compare_result *r)
{
    struct view v;

    view_init(&v, r);
    v.one_scale = true;
    append_head(out, &v);
    TRY_RETURN(append_lead(out, &v));
    text_append(out, "<main>\n");
    TRY_RETURN(figure_by_length(out, &v, CURVE_PPL, "fig-ppl", 380, "Lower is better."));
    html_perplexity_table(out, &v);
    TRY_RETURN(append_sliding(out, &v));
    append_stream(out, &v);
    TRY_RETURN(append_positions(out, &v));

    text_append(out, "<h2>What it costs</h2>\n<div class=\"pair\">\n");
    html_training_bars(out, &v);
    TRY_RETURN(figure_by_length(out, &v, CURVE_SPEED, "fig-speed", 220, "More is better."));
    TRY_RETURN(figure_by_length(out, &v, CURVE_MEMORY, "fig-memory", 220, "Less is better."));
    text_append(out, "</div>\n<h2>All numbers</h2>\n");
    html_full_table(out, &v);
    text_append(out, "<h2>Setting</h2>\n");
    html_setting(out, &v);
    text_append(out,
                "</main>\n<footer>Written by alibi %s. The same numbers are in results.json and "
                "results.csv beside this page, which loads nothing from elsewhere.</footer>\n"
                "<script>\n%s</script>\n</body>\n</html>\n",
                alibi_version(), page_script);
    return text_status(out);
}
