/* html.c - the report as one page: conclusion, figures, tables, setting
 *
 * One file that loads nothing, and says so in its policy. Everything that comes from outside is
 * escaped. It is whole without script; with it, figures tell their values. */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* ---- head */

static alibi_status append_colours(struct text *out, bool dark)
{
    for (int i = 0; i < LOOKS; i++)
        TRY_RETURN(
            text_append(out, "--series-%d:%s;", i, dark ? look_of(i)->dark : look_of(i)->light));
    return ALIBI_OK;
}

/* A method whose box is not ticked is taken out of all figures. */
static alibi_status append_switch_rules(struct text *out, int methods)
{
    for (int m = 0; m < methods; m++)
        TRY_RETURN(text_append(
            out, "body:has(#show-%d:not(:checked)) :is(.plot,.bars) .s%d{display:none}\n", m, m));
    return ALIBI_OK;
}

static alibi_status append_style(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(out, "<style>\n%s:root{", page_style));
    TRY_RETURN(append_colours(out, false));
    TRY_RETURN(text_append(out, "}\n@media screen and (prefers-color-scheme:dark){:root{"));
    TRY_RETURN(append_colours(out, true));
    TRY_RETURN(text_append(out, "}}\n"));
    TRY_RETURN(append_switch_rules(out, v->methods));
    return text_append(out, "</style>\n");
}

static alibi_status append_head(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<title>alibi compare: trained at %lld tokens, tested at growing lengths</title>\n",
        (long long)v->train_length));
    TRY_RETURN(append_style(out, v));
    return text_append(out, "</head>\n<body>\n");
}

/* ---- lead */

static alibi_status append_sentences(struct text *out, const struct view *v,
                                     alibi_status (*sentences)(struct text *out,
                                                               const struct view *v))
{
    alibi_status status;
    struct text text = { 0 };

    TRY(sentences(&text, v));
    if (text.length > 0)
        TRY(append_escaped(out, text.data));
out:
    text_free(&text);
    return status;
}

/* "826K parameters", or "826K to 842K parameters" where the methods differ visibly. */
static alibi_status append_parameters(struct text *out, const struct view *v)
{
    double least = INFINITY, most = 0;

    for (int m = 0; m < v->methods; m++) {
        least = fmin(least, (double)v->result->method[m].parameters);
        most = fmax(most, (double)v->result->method[m].parameters);
    }
    if (strcmp(show_count(least).text, show_count(most).text) != 0)
        return text_append(out, "%s to %s parameters", show_count(least).text,
                           show_count(most).text);
    return text_append(out, "%s parameters", show_count(most).text);
}

static alibi_status append_facts(struct text *out, const struct view *v)
{
    const struct alibi_training *t = &v->result->training;
    double tokens =
        (double)t->train_length * (double)t->batch * (double)t->accumulate * (double)t->steps;

    TRY_RETURN(text_append(out, "<p class=\"facts\">%d %s, ", v->methods,
                           v->methods == 1 ? "model"
                                           : "models that differ in their position method only"));
    TRY_RETURN(append_parameters(out, v));
    return text_append(
        out,
        ", trained on %s tokens in windows of %lld with seed %lld, %stested on text it has not seen.</p>\n",
        show_count(tokens).text, (long long)t->train_length, (long long)t->seed,
        v->methods == 1 ? "" : "each ");
}

static alibi_status append_lead(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(
        out, "<header>\n<p class=\"kicker\">alibi compare: train short, test long</p>\n<h1>"));
    TRY_RETURN(append_sentences(out, v, append_headline));
    TRY_RETURN(text_append(out, "</h1>\n<p>"));
    TRY_RETURN(append_sentences(out, v, append_detail));
    TRY_RETURN(text_append(out, "</p>\n"));
    TRY_RETURN(append_facts(out, v));
    return text_append(out, "</header>\n");
}

static alibi_status append_switches(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(out, "<fieldset class=\"methods\">\n<legend>In the figures</legend>\n"));
    for (int m = 0; m < v->methods; m++) {
        TRY_RETURN(text_append(
            out,
            "<label style=\"color:var(--series-%d)\"><input type=\"checkbox\" id=\"show-%d\" checked>",
            m % LOOKS, m));
        TRY_RETURN(html_name(out, v, m));
        TRY_RETURN(text_append(out, "</label>\n"));
    }
    return text_append(out, "</fieldset>\n");
}

/* ---- figures */

/* Takes the curves over. */
static alibi_status append_figure(struct text *out, struct curves *curves, const char *id,
                                  int height, const char *caption)
{
    alibi_status status;

    curves->chart.id = id;
    curves->chart.height = height;
    TRY(text_append(out, "<figure>\n<figcaption><b>%s.</b> <span>%s</span></figcaption>\n",
                    curves->title, caption));
    TRY(plot_svg(out, &curves->chart));
    TRY(text_append(out, "</figure>\n"));
out:
    mem_free(curves);
    return status;
}

static alibi_status figure_by_length(struct text *out, const struct view *v, enum curve_kind kind,
                                     const char *id, int height, const char *caption)
{
    struct curves *curves = NULL;

    TRY_RETURN(curves_by_length(&curves, v, kind));
    return append_figure(out, curves, id, height, caption);
}

static alibi_status figure_by_position(struct text *out, const struct view *v, int64_t length,
                                       const char *id, const char *caption)
{
    struct curves *curves = NULL;

    TRY_RETURN(curves_by_position(&curves, v, length));
    return append_figure(out, curves, id, 260, caption);
}

/* Says so where it scores another part of the text than the figure above. */
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
    TRY_RETURN(text_append(
        out,
        "<h2>How much of it is context</h2>\n"
        "<p class=\"note\">Above, windows stand side by side, and the tokens that begin one have almost no "
        "context (the early token curse): longer windows have fewer such tokens, so they gain even where "
        "a model makes no use of more context.</p>\n"));
    return figure_by_length(out, &sliding, CURVE_PPL, "fig-sliding", 380, caption);
}

static alibi_status append_stream(struct text *out, const struct view *v)
{
    struct view stream = view_of(v, ALIBI_STREAM);

    if (stream.lengths == 0)
        return ALIBI_OK;
    TRY_RETURN(text_append(
        out,
        "<h2>Without windows</h2>\n"
        "<p class=\"note\">The text is read once, each token with all that came before it as context, however "
        "far back. Attention leaves out keys that are proven to have no weight: under a bias that grows with "
        "the distance most of them, without one hardly any, and the cost grows with the square of the text. "
        "Positions that mark places in the text cannot go on for ever, and have no value.</p>\n"));
    return html_stream_table(out, &stream);
}

static bool was_tested_at(const struct view *v, int64_t length)
{
    for (int i = 0; i < v->lengths; i++)
        if (v->length[i] == length)
            return true;
    return false;
}

static alibi_status append_positions(struct text *out, const struct view *v)
{
    int64_t longest = v->lengths > 0 ? v->length[v->lengths - 1] : 0;

    if (longest == 0)
        return ALIBI_OK;
    TRY_RETURN(text_append(
        out,
        "<h2>Where in the window the loss arises</h2>\n"
        "<p class=\"note\">Targets early in a window see little context, so their loss is high whatever the "
        "method. What tells methods apart is whether the loss keeps falling past the training length.</p>\n"
        "<div class=\"pair\">\n"));
    if (longest != v->train_length && was_tested_at(v, v->train_length))
        TRY_RETURN(figure_by_position(out, v, v->train_length, "fig-home", "The training length."));
    TRY_RETURN(figure_by_position(out, v, longest, "fig-far",
                                  longest != v->train_length ? "The longest test." : ""));
    return text_append(out, "</div>\n");
}

static alibi_status append_costs(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(out, "<h2>What it costs</h2>\n<div class=\"pair\">\n"));
    TRY_RETURN(html_training_bars(out, v));
    TRY_RETURN(figure_by_length(out, v, CURVE_SPEED, "fig-speed", 220, "More is better."));
    TRY_RETURN(figure_by_length(out, v, CURVE_MEMORY, "fig-memory", 220, "Less is better."));
    return text_append(out, "</div>\n");
}

/* ---- the page */

alibi_status report_html(struct text *out, const struct alibi_compare_result *r)
{
    struct view v;

    view_init(&v, r);
    v.one_scale = true;
    TRY_RETURN(append_head(out, &v));
    TRY_RETURN(append_lead(out, &v));
    TRY_RETURN(append_switches(out, &v));
    TRY_RETURN(text_append(out, "<main>\n"));
    TRY_RETURN(figure_by_length(out, &v, CURVE_PPL, "fig-ppl", 380, "Lower is better."));
    TRY_RETURN(html_perplexity_table(out, &v));
    TRY_RETURN(append_sliding(out, &v));
    TRY_RETURN(append_stream(out, &v));
    TRY_RETURN(append_positions(out, &v));
    TRY_RETURN(append_costs(out, &v));
    TRY_RETURN(text_append(out, "<h2>All numbers</h2>\n"));
    TRY_RETURN(html_full_table(out, &v));
    TRY_RETURN(text_append(out, "<h2>Setting</h2>\n"));
    TRY_RETURN(html_setting(out, &v));
    TRY_RETURN(text_append(
        out,
        "</main>\n<footer>Written by alibi %s. The same numbers are in results.json and results.csv beside "
        "this page, which loads nothing from elsewhere.</footer>\n<script>\n%s</script>\n</body>\n</html>\n",
        alibi_version(), page_script));
    return ALIBI_OK;
}
