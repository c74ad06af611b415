/* html_setting.c - what was run, and the command that runs it again */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* Five digits say enough of a number here; the command below has all of them. */
static alibi_status append_value(struct text *out, const struct alibi_option *option,
                                 const void *values)
{
    if (option->type == ALIBI_OPTION_REAL)
        return text_append(out, "%.5g",
                           *(const double *)(const void *)((const char *)values + option->offset));
    return option_format_plain(out, option, values);
}

static alibi_status append_options(struct text *out, const struct alibi_compare_result *r,
                                   int group)
{
    const struct alibi_option *option;
    const void *values;

    for (int i = 0; (option = setting_at(r, group, i, &values)) != NULL; i++) {
        TRY_RETURN(text_append(out, "<div><dt>%s</dt><dd>", option->name));
        TRY_RETURN(append_value(out, option, values));
        TRY_RETURN(text_append(out, "</dd></div>\n"));
    }
    return ALIBI_OK;
}

/* ---- the devices */

static bool has_device(const struct view *v)
{
    for (int m = 0; m < v->methods; m++)
        if (v->device[m][0] != '\0')
            return true;
    return false;
}

static bool has_one_device(const struct view *v)
{
    const struct alibi_compare_method *method = v->result->method;

    for (int m = 1; m < v->methods; m++)
        if (strcmp(v->device[m], v->device[0]) != 0 || method[m].precision != method[0].precision)
            return false;
    return true;
}

static alibi_status append_device(struct text *out, const struct view *v, int method)
{
    if (v->device[method][0] == '\0')
        return text_append(out, "not known");
    TRY_RETURN(append_escaped(out, v->device[method]));
    return text_append(out, ", %s", alibi_precision_name(v->result->method[method].precision));
}

/* One for all, if it is; else one for each, which takes the whole line. */
static alibi_status append_devices(struct text *out, const struct view *v)
{
    bool one = has_one_device(v);

    if (!has_device(v))
        return ALIBI_OK;
    TRY_RETURN(text_append(out, "<div%s><dt>device</dt><dd>", one ? "" : " class=\"whole\""));
    for (int m = 0; !one && m < v->methods; m++) {
        TRY_RETURN(text_append(out, m > 0 ? "; " : ""));
        TRY_RETURN(append_escaped(out, v->name[m]));
        TRY_RETURN(text_append(out, ": "));
        TRY_RETURN(append_device(out, v, m));
    }
    if (one)
        TRY_RETURN(append_device(out, v, 0));
    return text_append(out, "</dd></div>\n");
}

/* ---- the text */

static alibi_status append_fact(struct text *out, const char *name, int64_t value)
{
    return text_append(out, "<div><dt>%s</dt><dd>%lld</dd></div>\n", name, (long long)value);
}

static alibi_status append_text_info(struct text *out, const struct alibi_compare_result *r)
{
    const struct alibi_corpus_info *t = &r->text;

    if (r->builtin.bytes > 0) {
        TRY_RETURN(append_fact(out, "text-seed", r->builtin.seed));
        TRY_RETURN(append_fact(out, "text-bytes", r->builtin.bytes));
    }
    TRY_RETURN(text_append(out, "<div><dt>validation</dt><dd>%s</dd></div>\n",
                           r->own_valid ? "a text of its own" : "a part"));
    TRY_RETURN(append_fact(out, "documents", t->documents));
    TRY_RETURN(append_fact(out, "tokens", t->tokens));
    TRY_RETURN(append_fact(out, "words", t->words));
    TRY_RETURN(append_fact(out, "bytes", t->bytes));
    TRY_RETURN(text_append(out, "<div><dt>tokenizer</dt><dd>"));
    TRY_RETURN(append_escaped(out, r->tokenizer));
    TRY_RETURN(text_append(out, "</dd></div>\n"));
    return append_fact(out, "vocabulary", t->vocab);
}

/* ---- the command */

static alibi_status append_lists(struct text *out, const struct view *v)
{
    for (int m = 0; m < v->methods; m++) {
        TRY_RETURN(text_append(out, m > 0 ? "," : ""));
        TRY_RETURN(append_escaped(out, v->name[m]));
    }
    TRY_RETURN(text_append(out, " \\\n  --lengths "));
    for (int i = 0; i < v->lengths; i++)
        TRY_RETURN(text_append(out, "%s%lld", i > 0 ? "," : "", (long long)v->length[i]));
    return text_append(out, " --eval-tokens %lld --sliding-tokens %lld --stream-tokens %lld",
                       (long long)v->result->compare.eval_tokens,
                       (long long)v->result->compare.sliding_tokens,
                       (long long)v->result->compare.stream_tokens);
}

/* What no recipe holds: the text, unless it is the built-in one, and how it becomes tokens. */
static alibi_status append_command(struct text *out, const struct alibi_compare_result *r)
{
    TRY_RETURN(
        text_append(out, "<pre><code>alibi compare%s", r->builtin.bytes > 0 ? "" : " FILE..."));
    if (strcmp(r->tokenizer, "bytes") != 0)
        TRY_RETURN(text_append(out, " --tokenizer PATH"));
    return text_append(out, r->own_valid ? " --valid PATH" : "");
}

static alibi_status append_text_flags(struct text *out, const struct alibi_builtin *b)
{
    if (b->bytes == 0)
        return ALIBI_OK;
    return text_append(out, " \\\n  --text-seed %lld --text-bytes %lld", (long long)b->seed,
                       (long long)b->bytes);
}

static alibi_status append_flag(struct text *out, const struct alibi_option *option,
                                const void *values)
{
    if (option->type == ALIBI_OPTION_FLAG)
        return text_append(out, "--%s%s",
                           *((const bool *)((const char *)values + option->offset)) ? "" : "no-",
                           option->name);
    TRY_RETURN(text_append(out, "--%s ", option->name));
    return option_format_plain(out, option, values);
}

enum { FLAGS_PER_LINE = 4 };

static alibi_status append_flags(struct text *out, const struct alibi_compare_result *r, int group)
{
    const struct alibi_option *option;
    const void *values;

    for (int i = 0; (option = setting_at(r, group, i, &values)) != NULL; i++) {
        TRY_RETURN(text_append(out, i % FLAGS_PER_LINE == 0 ? " \\\n  " : " "));
        TRY_RETURN(append_flag(out, option, values));
    }
    return ALIBI_OK;
}

alibi_status html_setting(struct text *out, const struct view *v)
{
    const struct alibi_compare_result *r = v->result;

    TRY_RETURN(text_append(out, "<h3>Model</h3>\n<dl class=\"setting\">\n"));
    TRY_RETURN(append_options(out, r, 0));
    TRY_RETURN(text_append(out, "</dl>\n<h3>Training</h3>\n<dl class=\"setting\">\n"));
    TRY_RETURN(append_options(out, r, 1));
    TRY_RETURN(append_devices(out, v));
    TRY_RETURN(text_append(out, "</dl>\n<h3>Text</h3>\n<dl class=\"setting\">\n"));
    TRY_RETURN(append_text_info(out, r));
    TRY_RETURN(text_append(
        out,
        "</dl>\n<h3>To repeat it</h3>\n<p class=\"note\">With the recipe.json that lies beside this page, or with "
        "all of it spelled out:</p>\n"));
    TRY_RETURN(append_command(out, r));
    TRY_RETURN(text_append(out, " --recipe recipe.json --out DIR</code></pre>\n"));
    TRY_RETURN(append_command(out, r));
    TRY_RETURN(text_append(out, " --methods "));
    TRY_RETURN(append_lists(out, v));
    TRY_RETURN(append_text_flags(out, &r->builtin));
    TRY_RETURN(append_flags(out, r, 0));
    TRY_RETURN(append_flags(out, r, 1));
    return text_append(out, "</code></pre>\n");
}
