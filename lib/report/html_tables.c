/* html_tables.c - the page's tables: perplexity by method and length, the stream, the cost of
 * training, every number, and the setting with the command that repeats it */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* A piece of its curve. Models of one method have one colour and marker: the dash tells them apart.
 */
void html_swatch(struct text *out, const struct view *v, int method)
{
    int look = v->look[method];

    text_append(out,
                "<svg class=\"swatch\" viewBox=\"-11 -6 22 12\" aria-hidden=\"true\" "
                "style=\"color:var(--series-%d)\"><path class=\"curve\" stroke-dasharray=\"%s\" "
                "d=\"M-11,0H11\"/><path d=\"%s\"/></svg>",
                look % LOOKS, dash_of(look), look_of(look)->marker);
}

/* A dagger marks a method that has learned nothing. */
void html_name(struct text *out, const struct view *v, int method)
{
    html_swatch(out, v, method);
    text_append(out, "%s%s", escape(v->name[method]).text, v->ignorant[method] ? "†" : "");
}

static const char *trained_class(const struct view *v, int64_t length)
{
    return length == v->train_length ? " class=\"trained\"" : "";
}

void html_begin_row(struct text *out, const struct view *v, int method, bool group)
{
    text_append(out, "<tr%s><th scope=\"row\">", group ? " class=\"group\"" : "");
    html_name(out, v, method);
    text_append(out, "</th>");
}

static void append_ppl(struct text *out, const struct view *v, int method, int64_t length)
{
    bool best = view_best(v, length, -1) == method;
    double ppl = view_ppl(v, method, length);
    struct shown error = show_ppl_error(ppl, view_error(v, method, length));

    text_append(out, best ? "<td%s><strong>%s</strong>" : "<td%s>%s", trained_class(v, length),
                show_ppl(ppl).text);
    text_append(out, error.text[0] != '\0' ? "<small>%s</small></td>" : "%s</td>",
                escape(error.text).text);
}

/* The meaning of ± in a table of perplexities, and of ×÷ if it is there. */
static void append_error_key(struct text *out, const struct view *v)
{
    text_append(out, "± is one standard error%s%s.",
                v->seeds > 1 ? ", of the text and of the seeds" : " of the text",
                view_has_factor(v) ? ", ×÷ the same as a factor" : "");
}

/* Methods down, lengths across, the standard error below each value. */
void html_perplexity_table(struct text *out, const struct view *v)
{
    bool ignorant = false;

    for (int m = 0; m < v->methods; m++)
        ignorant |= v->ignorant[m];
    text_append(out,
                "<div class=\"scroll\" role=\"region\" "
                "aria-label=\"Perplexity by test length\" tabindex=\"0\">\n"
                "<table class=\"data%s\">\n"
                "<caption><div><b>Perplexity by test length in tokens.</b> "
                "<span>The lowest of each column is bold; ",
                v->lengths < 4 ? " narrow" : "");
    append_error_key(out, v);
    text_append(out,
                "%s</span></div></caption>\n"
                "<thead><tr><th scope=\"col\">method</th>",
                ignorant
                    ? " † has learned nothing: it is less than 5% better than token frequencies."
                    : "");
    for (int i = 0; i < v->lengths; i++)
        text_append(out, "<th scope=\"col\"%s>%lld%s</th>", trained_class(v, v->length[i]),
                    (long long)v->length[i],
                    v->length[i] == v->train_length ? "<small>trained at</small>" : "");
    text_append(out, "</tr></thead>\n<tbody>\n");
    for (int m = 0; m < v->methods; m++) {
        if (v->sparse && v->result->method[m].seeds == 0)
            continue;
        html_begin_row(out, v, m, false);
        for (int i = 0; i < v->lengths; i++)
            append_ppl(out, v, m, v->length[i]);
        text_append(out, "</tr>\n");
    }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

void html_stream_table(struct text *out, const struct view *stream)
{
    struct view passage = view_passage(stream);

    text_append(out,
                "<div class=\"scroll\" role=\"region\" aria-label=\"As one stream\" "
                "tabindex=\"0\">\n<table class=\"data\">\n"
                "<caption><div><b>As one stream of %lld tokens.</b> <span>Tiles are the share of "
                "attention that was computed; a dash means that a method cannot stream. The "
                "second column has the same tokens, one contiguous passage, in windows of the "
                "training length. ",
                (long long)stream->length[0]);
    append_error_key(out, stream);
    text_append(out,
                "</span></div></caption>\n"
                "<thead><tr><th scope=\"col\">method</th>"
                "<th scope=\"col\">perplexity<small>as a stream</small></th>"
                "<th scope=\"col\">perplexity<small>in windows of %lld</small></th>"
                "<th scope=\"col\">tiles<small>computed</small></th></tr></thead>\n<tbody>\n",
                (long long)stream->train_length);
    for (int m = 0; m < stream->methods; m++) {
        struct alibi_eval_result e = view_mean(stream, m, stream->length[0]);

        html_begin_row(out, stream, m, false);
        append_ppl(out, stream, m, stream->length[0]);
        append_ppl(out, &passage, m, stream->train_length);
        text_append(out, "<td>%s</td></tr>\n", show_share(e.tokens > 0 ? e.tiles_used : NAN).text);
    }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

/* ---- every number: one row per method and length */

void html_full_table(struct text *out, const struct view *v)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);

    text_append(out, "<div class=\"scroll\" role=\"region\" aria-label=\"Every measurement\" "
                     "tabindex=\"0\">\n<table class=\"data\">\n"
                     "<caption><div><b>Every measurement.</b> <span>± is one standard error of "
                     "the loss, of the text and of the seeds; a dash means that a method is not "
                     "defined there or that nothing was measured.</span></div></caption>\n"
                     "<thead><tr><th scope=\"col\">method</th><th scope=\"col\">length</th>"
                     "<th scope=\"col\">perplexity<small>per token</small></th>"
                     "<th scope=\"col\">perplexity<small>sliding window</small></th>"
                     "<th scope=\"col\">loss<small>nats per token</small></th>"
                     "<th scope=\"col\">±</th>"
                     "<th scope=\"col\">perplexity<small>per word</small></th>"
                     "<th scope=\"col\">bits<small>per byte</small></th>"
                     "<th scope=\"col\">tokens<small>scored</small></th>"
                     "<th scope=\"col\">memory<small>peak</small></th></tr></thead>\n<tbody>\n");
    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->lengths; i++) {
            struct alibi_eval_result e = view_mean(v, m, v->length[i]);
            const struct shown cells[] = {
                show_ppl(e.ppl),
                show_ppl(view_ppl(&sliding, m, v->length[i])),
                show_real(e.nll, 4),
                show_real(e.standard_error, 4),
                show_ppl(e.word_ppl),
                show_real(e.bits_per_byte, 4),
                show_count((double)e.tokens),
                show_bytes((double)e.peak_bytes),
            };

            html_begin_row(out, v, m, i == 0);
            text_append(out, "<td%s>%lld</td>", trained_class(v, v->length[i]),
                        (long long)v->length[i]);
            for (int k = 0; k < COUNT(cells); k++)
                text_append(out, "<td>%s</td>", e.tokens > 0 ? cells[k].text : NO_VALUE);
            text_append(out, "</tr>\n");
        }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

/* ---- the cost of training */

void html_cost_table(struct text *out, const struct view *v)
{
    text_append(out,
                "<div class=\"scroll\" role=\"region\" aria-label=\"Cost of training\" "
                "tabindex=\"0\">\n"
                "<table class=\"data narrow\">\n"
                "<caption><div><b>Cost of training.</b> <span>The peak of memory includes "
                "evaluation. Speed is not shown, because other load on the machine affects it. "
                "Measure it with <code>alibi bench train --methods</code>, where the steps of the "
                "methods alternate.</span></div></caption>\n"
                "<thead><tr><th scope=\"col\">method</th><th scope=\"col\">parameters</th><th "
                "scope=\"col\">memory<small>peak</small></th></tr></thead>\n"
                "<tbody>\n");
    for (int m = 0; m < v->methods; m++) {
        struct cost c = view_cost(v, m);

        if ((v->sparse && v->result->method[m].seeds == 0) || (v->untrained && v->untrained[m]))
            continue;
        html_begin_row(out, v, m, false);
        text_append(out, "<td>%s</td><td>%s</td></tr>\n", show_count(c.parameters).text,
                    show_bytes(c.peak_bytes).text);
    }
    text_append(out, "</tbody>\n</table>\n</div>\n");
}

/* ---- the setting, and the command that repeats it */

/* Numbers have five digits here; the command below has all of them. */
static void append_options(struct text *out, const struct alibi_compare_result *r, int group)
{
    const struct alibi_option *option;
    const void *values;

    for (int i = 0; (option = setting_at(r, group, i, &values)) != NULL; i++) {
        text_append(out, "<div><dt>%s</dt><dd>", option->name);
        if (option->type == ALIBI_OPTION_REAL)
            text_append(out, "%.5g",
                        *(const double *)(const void *)((const char *)values + option->offset));
        else
            option_format_plain(out, option, values);
        text_append(out, "</dd></div>\n");
    }
}

static int precision_of(const struct view *v, int method)
{
    const struct alibi_compare_method *m = &v->result->method[method];

    return m->seeds > 0 ? m->seed[0].precision : ALIBI_FP32;
}

static void append_device(struct text *out, const struct view *v, int method)
{
    if (v->device[method][0] == '\0')
        text_append(out, "not known");
    else
        text_append(out, "%s, %s", escape(v->device[method]).text,
                    alibi_precision_name(precision_of(v, method)));
}

/* One device if all methods agree; otherwise one for each method, in a line of full width. */
static void append_devices(struct text *out, const struct view *v)
{
    bool known = false, one = true;

    for (int m = 0; m < v->methods; m++) {
        known |= v->device[m][0] != '\0';
        one &= strcmp(v->device[m], v->device[0]) == 0 && precision_of(v, m) == precision_of(v, 0);
    }
    if (!known)
        return;
    text_append(out, "<div%s><dt>device</dt><dd>", one ? "" : " class=\"whole\"");
    if (one)
        append_device(out, v, 0);
    for (int m = 0; !one && m < v->methods; m++) {
        text_append(out, "%s%s: ", m > 0 ? "; " : "", escape(v->name[m]).text);
        append_device(out, v, m);
    }
    text_append(out, "</dd></div>\n");
}

static void append_fact(struct text *out, const char *name, int64_t value)
{
    text_append(out, "<div><dt>%s</dt><dd>%lld</dd></div>\n", name, (long long)value);
}

static void append_text_info(struct text *out, const struct alibi_compare_result *r)
{
    const struct alibi_corpus_info *t = &r->text;

    if (r->builtin.bytes > 0) {
        append_fact(out, "text-seed", r->builtin.seed);
        append_fact(out, "text-bytes", r->builtin.bytes);
    }
    if (t->tokens == 0)
        return;
    text_append(out, "<div><dt>validation</dt><dd>%s</dd></div>\n",
                r->own_valid ? "a text of its own" : "a part");
    append_fact(out, "documents", t->documents);
    append_fact(out, "tokens", t->tokens);
    append_fact(out, "words", t->words);
    append_fact(out, "bytes", t->bytes);
    text_append(out, "<div><dt>tokenizer</dt><dd>%s</dd></div>\n", escape(r->tokenizer).text);
    append_fact(out, "vocabulary", t->vocab);
}

/* A recipe has neither the text, unless it is the built-in one, nor the tokenizer. */
static void append_command(struct text *out, const struct alibi_compare_result *r)
{
    text_append(out, "<pre><code>alibi compare%s%s%s", r->builtin.bytes > 0 ? "" : " FILE...",
                strcmp(r->tokenizer, "bytes") != 0 ? " --tokenizer PATH" : "",
                r->own_valid ? " --valid PATH" : "");
}

/* All options, four per line. */
static void append_flags(struct text *out, const struct alibi_compare_result *r, int group)
{
    const struct alibi_option *option;
    const void *values;

    for (int i = 0; (option = setting_at(r, group, i, &values)) != NULL; i++) {
        text_append(out, i % 4 == 0 ? " \\\n  " : " ");
        if (option->type == ALIBI_OPTION_FLAG) {
            bool on = *(const bool *)((const char *)values + option->offset);
            text_append(out, "--%s%s", on ? "" : "no-", option->name);
        } else {
            text_append(out, "--%s ", option->name);
            option_format_plain(out, option, values);
        }
    }
}

void html_setting(struct text *out, const struct view *v)
{
    const struct alibi_compare_result *r = v->result;

    text_append(out, "<h3>Model</h3>\n<dl class=\"setting\">\n");
    append_options(out, r, 0);
    text_append(out, "</dl>\n<h3>Training</h3>\n<dl class=\"setting\">\n");
    append_options(out, r, 1);
    append_devices(out, v);
    text_append(out, "</dl>\n");
    if (r->builtin.bytes == 0 && r->text.tokens == 0)
        return; /* a run of files knows their names only */
    text_append(out, "<h3>Text</h3>\n<dl class=\"setting\">\n");
    append_text_info(out, r);
    text_append(out, "</dl>\n");
}

void html_command(struct text *out, const struct view *v)
{
    const struct alibi_compare_result *r = v->result;

    text_append(out, "<h3>To repeat it</h3>\n<p class=\"note\">With the recipe.json beside "
                     "this page, or with every option spelled out:</p>\n");
    append_command(out, r);
    text_append(out, " --recipe recipe.json --out DIR</code></pre>\n");
    append_command(out, r);
    text_append(out, " --methods ");
    for (int m = 0; m < v->methods; m++)
        text_append(out, "%s%s", m > 0 ? "," : "", escape(v->name[m]).text);
    text_append(out, " \\\n  --lengths ");
    for (int i = 0; i < v->lengths; i++)
        text_append(out, "%s%lld", i > 0 ? "," : "", (long long)v->length[i]);
    if (r->compare.seeds.count > 1) {
        text_append(out, " --seeds ");
        for (int k = 0; k < r->compare.seeds.count; k++)
            text_append(out, "%s%lld", k > 0 ? "," : "", (long long)r->compare.seeds.at[k]);
    }
    text_append(out, " --eval-tokens %lld --sliding-tokens %lld --stream-tokens %lld",
                (long long)r->compare.eval_tokens, (long long)r->compare.sliding_tokens,
                (long long)r->compare.stream_tokens);
    if (r->builtin.bytes > 0)
        text_append(out, " \\\n  --text-seed %lld --text-bytes %lld", (long long)r->builtin.seed,
                    (long long)r->builtin.bytes);
    if (r->config.vocab > r->text.vocab) /* padded: the text does not determine it */
        text_append(out, " \\\n  --vocab %lld", (long long)r->config.vocab);
    append_flags(out, r, 0);
    append_flags(out, r, 1);
    text_append(out, "</code></pre>\n");
}
