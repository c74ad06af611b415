/* json.c - results for programs: results.json
 *
 * Numbers are written so that they read back the same; one that is missing or not finite is null.
 * The same results give the same bytes. One line per setting, per method value, per length. */
#include <string.h>

#include "base/json.h"
#include "report/parts.h"

static alibi_status append_name(struct text *out, const char *name)
{
    return json_append_string(out, name, strlen(name));
}

static alibi_status append_real(struct text *out, const char *key, double value)
{
    TRY_RETURN(text_append(out, ", \"%s\": ", key));
    return json_append_real(out, value);
}

static alibi_status append_integer(struct text *out, const char *key, int64_t value)
{
    return text_append(out, ", \"%s\": %lld", key, (long long)value);
}

/* ---- the setting */

static alibi_status append_settings(struct text *out, const struct alibi_compare_result *r)
{
    const struct alibi_option *option;
    const void *values;
    char key[OPTION_KEY_MAX];

    TRY_RETURN(text_append(out, "  \"train\": {\n    \"vocab\": %lld", (long long)r->config.vocab));
    for (int group = 0; group < 2; group++)
        for (int i = 0; (option = setting_at(r, group, i, &values)) != NULL; i++) {
            option_key(key, option->name);
            TRY_RETURN(text_append(out, ",\n    \"%s\": ", key));
            TRY_RETURN(option_format(out, option, values));
        }
    return text_append(out, "\n  },\n");
}

/* The last two say which built-in text it was; files have none. */
static alibi_status append_text_info(struct text *out, const struct alibi_compare_result *r)
{
    const struct alibi_corpus_info *t = &r->text;
    const struct alibi_builtin *builtin = &r->builtin;

    TRY_RETURN(text_append(
        out,
        "  \"text\": {\"documents\": %lld, \"tokens\": %lld, \"words\": %lld, \"bytes\": %lld, \"vocab\": %lld",
        (long long)t->documents, (long long)t->tokens, (long long)t->words, (long long)t->bytes,
        (long long)t->vocab));
    TRY_RETURN(text_append(out, ", \"tokenizer\": "));
    TRY_RETURN(append_name(out, r->tokenizer));
    TRY_RETURN(text_append(out, ", \"own_valid\": %s", r->own_valid ? "true" : "false"));
    if (builtin->bytes == 0)
        return text_append(out, ", \"text_seed\": null, \"text_bytes\": null},\n");
    TRY_RETURN(append_integer(out, "text_seed", builtin->seed));
    TRY_RETURN(append_integer(out, "text_bytes", builtin->bytes));
    return text_append(out, "},\n");
}

static alibi_status append_eval_info(struct text *out, const struct alibi_compare *c)
{
    return text_append(
        out,
        "  \"eval\": {\"eval_tokens\": %lld, \"sliding_tokens\": %lld, \"stream_tokens\": %lld},\n",
        (long long)c->eval_tokens, (long long)c->sliding_tokens, (long long)c->stream_tokens);
}

/* ---- the methods */

static alibi_status append_positions(struct text *out, const struct alibi_eval_result *e)
{
    TRY_RETURN(text_append(out, ", \"by_position\": ["));
    for (int b = 0; b < e->bins; b++) {
        const struct alibi_position_loss *bin = &e->by_position[b];
        TRY_RETURN(text_append(
            out,
            "%s{\"first\": %lld, \"last\": %lld, \"tokens\": %lld, \"nll\": ", b > 0 ? ", " : "",
            (long long)bin->first, (long long)bin->last, (long long)bin->tokens));
        TRY_RETURN(bin->tokens > 0 ? json_append_real(out, bin->nll) : text_append(out, "null"));
        TRY_RETURN(text_append(out, "}"));
    }
    return text_append(out, "]");
}

static alibi_status append_losses(struct text *out, const struct alibi_eval_result *e)
{
    TRY_RETURN(append_real(out, "nll", e->nll));
    TRY_RETURN(append_real(out, "standard_error", e->standard_error));
    TRY_RETURN(append_real(out, "ppl", e->ppl));
    TRY_RETURN(append_real(out, "word_ppl", e->word_ppl));
    TRY_RETURN(append_real(out, "bits_per_byte", e->bits_per_byte));
    return append_integer(out, "tokens", e->tokens);
}

static alibi_status append_sliding(struct text *out, const struct alibi_eval_result *e)
{
    if (e == NULL)
        return text_append(out, ", \"sliding\": null}");
    TRY_RETURN(text_append(out, ", \"sliding\": {\"stride\": %lld", (long long)e->stride));
    TRY_RETURN(append_losses(out, e));
    TRY_RETURN(append_real(out, "tokens_per_s", e->tokens_per_s));
    return text_append(out, "}}");
}

/* A length at which the method has no value keeps its place and its counts of 0. */
static alibi_status append_missing(struct text *out)
{
    return text_append(
        out,
        ", \"nll\": null, \"standard_error\": null, \"ppl\": null, \"word_ppl\": null, \"bits_per_byte\": null, "
        "\"tokens\": 0, \"words\": 0, \"bytes\": 0, \"seconds\": null, \"tokens_per_s\": null, "
        "\"tiles_used\": null, \"attention_seconds\": null, \"peak_bytes\": null, \"by_position\": []");
}

static alibi_status append_measures(struct text *out, const struct alibi_eval_result *e)
{
    if (e->tokens == 0)
        return append_missing(out);
    TRY_RETURN(append_losses(out, e));
    TRY_RETURN(append_integer(out, "words", e->words));
    TRY_RETURN(append_integer(out, "bytes", e->bytes));
    TRY_RETURN(append_real(out, "seconds", e->seconds));
    TRY_RETURN(append_real(out, "tokens_per_s", e->tokens_per_s));
    TRY_RETURN(append_real(out, "tiles_used", e->tiles_used));
    TRY_RETURN(append_real(out, "attention_seconds", e->attention_seconds));
    TRY_RETURN(append_integer(out, "peak_bytes", (int64_t)e->peak_bytes));
    return append_positions(out, e);
}

static alibi_status append_stream(struct text *out, const struct alibi_eval_result *e)
{
    if (e->tokens == 0)
        return text_append(out, ",\n      \"stream\": null");
    TRY_RETURN(text_append(out, ",\n      \"stream\": {\"length\": %lld", (long long)e->length));
    TRY_RETURN(append_measures(out, e));
    return text_append(out, "}");
}

static alibi_status append_device(struct text *out, const struct view *v, int method)
{
    if (v->device[method][0] == '\0')
        return text_append(out, ", \"device\": null, \"precision\": null");
    TRY_RETURN(text_append(out, ", \"device\": "));
    TRY_RETURN(append_name(out, v->device[method]));
    return text_append(out, ", \"precision\": \"%s\"",
                       alibi_precision_name(v->result->method[method].precision));
}

static alibi_status append_method(struct text *out, const struct view *sliding, int method)
{
    const struct alibi_compare_method *m = &sliding->result->method[method];

    TRY_RETURN(text_append(out, "    {\n      \"name\": "));
    TRY_RETURN(append_name(out, sliding->name[method]));
    TRY_RETURN(append_real(out, "train_tokens_per_s", m->train_tokens_per_s));
    TRY_RETURN(append_real(out, "train_seconds", m->train_seconds));
    TRY_RETURN(append_real(out, "train_loss", m->train_loss));
    TRY_RETURN(append_integer(out, "peak_bytes", (int64_t)m->peak_bytes));
    TRY_RETURN(append_integer(out, "parameters", m->parameters));
    TRY_RETURN(append_device(out, sliding, method));
    TRY_RETURN(text_append(out, ",\n      \"by_length\": ["));
    for (int i = 0; i < m->lengths; i++) {
        TRY_RETURN(text_append(out, i > 0 ? ",\n" : "\n"));
        TRY_RETURN(
            text_append(out, "        {\"length\": %lld", (long long)m->by_length[i].length));
        TRY_RETURN(append_measures(out, &m->by_length[i]));
        TRY_RETURN(append_sliding(out, view_at(sliding, method, m->by_length[i].length)));
    }
    TRY_RETURN(text_append(out, "\n      ]"));
    TRY_RETURN(append_stream(out, &m->stream));
    return text_append(out, "\n    }");
}

alibi_status report_json(struct text *out, const struct alibi_compare_result *r)
{
    struct view v, sliding;

    view_init(&v, r);
    sliding = view_of(&v, ALIBI_SLIDING);
    TRY_RETURN(text_append(out, "{\n  \"version\": "));
    TRY_RETURN(append_name(out, alibi_version()));
    TRY_RETURN(text_append(out, ",\n"));
    TRY_RETURN(append_settings(out, r));
    TRY_RETURN(append_text_info(out, r));
    TRY_RETURN(append_eval_info(out, &r->compare));
    TRY_RETURN(text_append(out, "  \"methods\": ["));
    for (int m = 0; m < r->methods; m++) {
        TRY_RETURN(text_append(out, m > 0 ? ",\n" : "\n"));
        TRY_RETURN(append_method(out, &sliding, m));
    }
    return text_append(out, "\n  ]\n}\n");
}
