/* html_tables.c - the page's tables: perplexity by method and length, the stream, every number,
 * bars of what training took */
#include <math.h>

#include "report/parts.h"

/* A name behind the marker that its curves have. */
alibi_status html_name(struct text *out, const struct view *v, int method)
{
    TRY_RETURN(text_append(
        out,
        "<svg class=\"swatch\" viewBox=\"-6 -6 12 12\" aria-hidden=\"true\" style=\"color:var(--series-%d)\">"
        "<path d=\"%s\"/></svg>",
        method % LOOKS, look_of(method)->marker));
    return append_escaped(out, v->name[method]);
}

/* ---- perplexity: methods down, lengths across */

static alibi_status append_head(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(out, "<thead><tr><th scope=\"col\">method</th>"));
    for (int i = 0; i < v->lengths; i++) {
        bool trained = v->length[i] == v->train_length;
        TRY_RETURN(text_append(out, "<th scope=\"col\"%s>%lld%s</th>",
                               trained ? " class=\"trained\"" : "", (long long)v->length[i],
                               trained ? "<small>trained at</small>" : ""));
    }
    return text_append(out, "</tr></thead>\n");
}

static alibi_status append_ppl(struct text *out, const struct view *v, int method, int64_t length)
{
    const struct alibi_eval_result *e = view_at(v, method, length);
    bool best = view_best(v, length) == method;

    TRY_RETURN(text_append(out, "<td%s>", length == v->train_length ? " class=\"trained\"" : ""));
    TRY_RETURN(text_append(out, best ? "<strong>%s</strong>" : "%s",
                           show_ppl(e != NULL ? e->ppl : NAN).text));
    return text_append(out, "</td>");
}

alibi_status html_perplexity_table(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"Perplexity by test length\" tabindex=\"0\">\n"
        "<table class=\"data\">\n<caption><div><b>Perplexity by test length in tokens.</b> "
        "<span>The lowest of each column is bold.</span></div></caption>\n"));
    TRY_RETURN(append_head(out, v));
    TRY_RETURN(text_append(out, "<tbody>\n"));
    for (int m = 0; m < v->methods; m++) {
        TRY_RETURN(text_append(out, "<tr><th scope=\"row\">"));
        TRY_RETURN(html_name(out, v, m));
        TRY_RETURN(text_append(out, "</th>"));
        for (int i = 0; i < v->lengths; i++)
            TRY_RETURN(append_ppl(out, v, m, v->length[i]));
        TRY_RETURN(text_append(out, "</tr>\n"));
    }
    return text_append(out, "</tbody>\n</table>\n</div>\n");
}

/* ---- the stream */

static alibi_status append_stream_measures(struct text *out, const struct view *stream, int method)
{
    const struct alibi_eval_result *e = view_at(stream, method, stream->length[0]);

    TRY_RETURN(append_ppl(out, stream, method, stream->length[0]));
    if (e == NULL)
        return text_append(out, "<td>%s</td><td>%s</td><td>%s</td><td>%s</td>", NO_VALUE, NO_VALUE,
                           NO_VALUE, NO_VALUE);
    return text_append(out, "<td>%s</td><td>%s</td><td>%s</td><td>%s</td>",
                       show_share(e->tiles_used).text, show_real(e->attention_seconds, 2).text,
                       show_real(e->seconds, 2).text, show_count(e->tokens_per_s).text);
}

alibi_status html_stream_table(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"As one stream\" tabindex=\"0\">\n"
        "<table class=\"data\">\n<caption><div><b>As one stream of %lld tokens.</b> <span>Tiles are the share "
        "of attention that was computed; a dash stands where a method cannot stream.</span></div></caption>\n"
        "<thead><tr><th scope=\"col\">method</th><th scope=\"col\">perplexity</th>"
        "<th scope=\"col\">tiles<small>computed</small></th>"
        "<th scope=\"col\">attention<small>seconds</small></th><th scope=\"col\">all<small>seconds</small></th>"
        "<th scope=\"col\">tokens<small>per second</small></th></tr></thead>\n<tbody>\n",
        (long long)v->length[0]));
    for (int m = 0; m < v->methods; m++) {
        TRY_RETURN(text_append(out, "<tr><th scope=\"row\">"));
        TRY_RETURN(html_name(out, v, m));
        TRY_RETURN(text_append(out, "</th>"));
        TRY_RETURN(append_stream_measures(out, v, m));
        TRY_RETURN(text_append(out, "</tr>\n"));
    }
    return text_append(out, "</tbody>\n</table>\n</div>\n");
}

/* ---- every number: one row per method and length */

enum { MEASURES = 9 };

static alibi_status append_measures(struct text *out, const struct alibi_eval_result *e,
                                    const struct alibi_eval_result *sliding)
{
    for (int i = 0; e == NULL && i < MEASURES; i++)
        TRY_RETURN(text_append(out, "<td>" NO_VALUE "</td>"));
    if (e == NULL)
        return ALIBI_OK;
    TRY_RETURN(text_append(out, "<td>%s</td><td>%s</td>", show_ppl(e->ppl).text,
                           show_ppl(sliding != NULL ? sliding->ppl : NAN).text));
    TRY_RETURN(text_append(out, "<td>%s</td><td>%s</td>", show_real(e->nll, 4).text,
                           show_real(e->standard_error, 4).text));
    TRY_RETURN(text_append(out, "<td>%s</td><td>%s</td>", show_ppl(e->word_ppl).text,
                           show_real(e->bits_per_byte, 4).text));
    return text_append(out, "<td>%s</td><td>%s</td><td>%s</td>", show_count((double)e->tokens).text,
                       show_count(e->tokens_per_s).text, show_bytes((double)e->peak_bytes).text);
}

static alibi_status append_method_rows(struct text *out, const struct view *v, int method)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);

    TRY_RETURN(text_append(out, "<tbody>\n"));
    for (int i = 0; i < v->lengths; i++) {
        bool trained = v->length[i] == v->train_length;
        TRY_RETURN(text_append(out, "<tr>"));
        if (i == 0) {
            TRY_RETURN(text_append(out, "<th scope=\"rowgroup\" rowspan=\"%d\">", v->lengths));
            TRY_RETURN(html_name(out, v, method));
            TRY_RETURN(text_append(out, "</th>"));
        }
        TRY_RETURN(text_append(out, "<td%s>%lld</td>", trained ? " class=\"trained\"" : "",
                               (long long)v->length[i]));
        TRY_RETURN(append_measures(out, view_at(v, method, v->length[i]),
                                   view_at(&sliding, method, v->length[i])));
        TRY_RETURN(text_append(out, "</tr>\n"));
    }
    return text_append(out, "</tbody>\n");
}

alibi_status html_full_table(struct text *out, const struct view *v)
{
    static const char *const heads[] = { "length",
                                         "perplexity<small>per token</small>",
                                         "perplexity<small>sliding window</small>",
                                         "loss<small>nats per token</small>",
                                         "± error",
                                         "perplexity<small>per word</small>",
                                         "bits<small>per byte</small>",
                                         "tokens<small>scored</small>",
                                         "tokens<small>per second</small>",
                                         "memory<small>peak</small>" };

    TRY_RETURN(text_append(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"Every measurement\" tabindex=\"0\">\n"
        "<table class=\"data\">\n<caption><div><b>Every measurement.</b> <span>The error is the standard error "
        "of the loss, windows taken as independent; a dash stands where a "
        "method is not defined or nothing was measured.</span></div></caption>\n"
        "<thead><tr><th scope=\"col\">method</th>"));
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        TRY_RETURN(text_append(out, "<th scope=\"col\">%s</th>", heads[i]));
    TRY_RETURN(text_append(out, "</tr></thead>\n"));
    for (int m = 0; m < v->methods && v->lengths > 0; m++)
        TRY_RETURN(append_method_rows(out, v, m));
    return text_append(out, "</table>\n</div>\n");
}

/* ---- bars */

enum bar_kind { BAR_SPEED, BAR_MEMORY };

static double bar_value(const struct alibi_compare_method *m, enum bar_kind kind)
{
    double value = kind == BAR_SPEED ? m->train_tokens_per_s : (double)m->peak_bytes;

    return isfinite(value) && value > 0 ? value : 0;
}

static double longest_bar(const struct view *v, enum bar_kind kind)
{
    double longest = 0;

    for (int m = 0; m < v->methods; m++)
        longest = fmax(longest, bar_value(&v->result->method[m], kind));
    return longest;
}

static alibi_status append_bar(struct text *out, const struct view *v, int m, enum bar_kind kind,
                               double longest)
{
    double value = bar_value(&v->result->method[m], kind);
    struct shown shown =
        kind == BAR_SPEED ? show_count(value > 0 ? value : NAN) : show_bytes(value);

    TRY_RETURN(text_append(out, "<tr class=\"s%d\"><th scope=\"row\">", m));
    TRY_RETURN(append_escaped(out, v->name[m]));
    TRY_RETURN(text_append(out, "</th><td style=\"color:var(--series-%d)\">", m % LOOKS));
    if (value > 0)
        TRY_RETURN(text_append(
            out, "<span class=\"bar\" style=\"width:calc((100%% - 5.5rem)*%.4f)\"></span>",
            value / longest));
    return text_append(out, "<b>%s</b></td></tr>\n", shown.text);
}

static alibi_status append_bars(struct text *out, const struct view *v, enum bar_kind kind,
                                const char *caption)
{
    double longest = longest_bar(v, kind);

    TRY_RETURN(text_append(
        out, "<figure>\n<table class=\"bars\">\n<caption>%s</caption>\n<tbody>\n", caption));
    for (int m = 0; m < v->methods; m++)
        TRY_RETURN(append_bar(out, v, m, kind, longest));
    return text_append(out, "</tbody>\n</table>\n</figure>\n");
}

alibi_status html_training_bars(struct text *out, const struct view *v)
{
    TRY_RETURN(
        append_bars(out, v, BAR_SPEED,
                    "<b>Training speed.</b> <span>Tokens per second; more is better.</span>"));
    return append_bars(
        out, v, BAR_MEMORY,
        "<b>Peak memory.</b> <span>The most held at once in training and evaluation.</span>");
}
