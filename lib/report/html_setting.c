/* html_setting.c - what was run, and the command that runs it again */
#include <math.h>

#include "report/parts.h"

static alibi_status append_options(struct text *out, const struct alibi_compare_result *r, int group)
{
    const struct alibi_option *option;
    const void *values;

    for (int i = 0; (option = setting_at(r, group, i, &values)) != NULL; i++) {
        TRY_RETURN(text_append(out, "<div><dt>%s</dt><dd>", option->name));
        TRY_RETURN(append_setting_value(out, option, values));
        TRY_RETURN(text_append(out, "</dd></div>\n"));
    }
    return ALIBI_OK;
}

static alibi_status append_fact(struct text *out, const char *name, int64_t value)
{
    return text_append(out, "<div><dt>%s</dt><dd>%lld</dd></div>\n", name, (long long)value);
}

static alibi_status append_text_info(struct text *out, const struct alibi_corpus_info *t)
{
    TRY_RETURN(append_fact(out, "documents", t->documents));
    TRY_RETURN(append_fact(out, "tokens", t->tokens));
    TRY_RETURN(append_fact(out, "words", t->words));
    TRY_RETURN(append_fact(out, "bytes", t->bytes));
    return append_fact(out, "vocabulary", t->vocab);
}

/* ---- the command */

/* All lengths score the same number of tokens at most, so the largest count is a limit that gives the same again. */
static int64_t tokens_scored(const struct view *v)
{
    int64_t most = 0;

    for (int m = 0; m < v->methods; m++)
        for (int i = 0; i < v->result->method[m].lengths; i++)
            if (v->result->method[m].by_length[i].tokens > most)
                most = v->result->method[m].by_length[i].tokens;
    return most;
}

static alibi_status append_lists(struct text *out, const struct view *v)
{
    TRY_RETURN(text_append(out, "alibi compare --methods "));
    for (int m = 0; m < v->methods; m++) {
        TRY_RETURN(text_append(out, m > 0 ? "," : ""));
        TRY_RETURN(append_escaped(out, v->name[m]));
    }
    TRY_RETURN(text_append(out, " \\\n  --lengths "));
    for (int i = 0; i < v->lengths; i++)
        TRY_RETURN(text_append(out, "%s%lld", i > 0 ? "," : "", (long long)v->length[i]));
    return text_append(out, " --eval-tokens %lld", (long long)tokens_scored(v));
}

static alibi_status append_flag(struct text *out, const struct alibi_option *option, const void *values)
{
    if (option->type == ALIBI_OPTION_FLAG)
        return text_append(out, "--%s%s", *((const bool *)((const char *)values + option->offset)) ? "" : "no-", option->name);
    TRY_RETURN(text_append(out, "--%s ", option->name));
    return append_setting_value(out, option, values);
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
    TRY_RETURN(text_append(out, "</dl>\n<h3>Text</h3>\n<dl class=\"setting\">\n"));
    TRY_RETURN(append_text_info(out, &r->text));
    TRY_RETURN(text_append(out, "</dl>\n<h3>To repeat it</h3>\n<p class=\"note\">Put the text's files first, if it was not the "
                                "built-in text.</p>\n<pre><code>"));
    TRY_RETURN(append_lists(out, v));
    TRY_RETURN(append_flags(out, r, 0));
    TRY_RETURN(append_flags(out, r, 1));
    return text_append(out, "</code></pre>\n");
}
