/* csv.c - results for spreadsheets and data frames: RFC 4180, one line per method and length
 *
 * Lines end in CR LF; a field with a comma, a quote or a line end is in quotes, with quotes
 * doubled; what is missing is empty. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/parts.h"

static alibi_status append_quoted(struct text *out, const char *field)
{
    if (strpbrk(field, ",\"\r\n") == NULL)
        return text_append(out, "%s", field);
    TRY_RETURN(text_append(out, "\""));
    for (const char *p = field; *p != '\0'; p++)
        TRY_RETURN(text_append(out, *p == '"' ? "\"\"" : "%c", *p));
    return text_append(out, "\"");
}

static alibi_status append_reals(struct text *out, const double *values, int count)
{
    for (int i = 0; i < count; i++) {
        TRY_RETURN(text_append(out, ","));
        if (isfinite(values[i]))
            TRY_RETURN(json_append_real(out, values[i]));
    }
    return ALIBI_OK;
}

static alibi_status append_losses(struct text *out, const struct alibi_eval_result *e)
{
    const double losses[] = { e->nll, e->standard_error, e->ppl, e->word_ppl, e->bits_per_byte };

    return append_reals(out, losses, 5);
}

static alibi_status append_speeds(struct text *out, const struct alibi_eval_result *e)
{
    const double speeds[] = { e->seconds, e->tokens_per_s, e->tiles_used, e->attention_seconds };

    return append_reals(out, speeds, 4);
}

static alibi_status append_evaluation(struct text *out, const struct alibi_eval_result *e)
{
    if (e->tokens == 0)
        return text_append(out, ",,,,,,0,0,0,,,,,");
    TRY_RETURN(append_losses(out, e));
    TRY_RETURN(text_append(out, ",%lld,%lld,%lld", (long long)e->tokens, (long long)e->words,
                           (long long)e->bytes));
    TRY_RETURN(append_speeds(out, e));
    return text_append(out, ",%zu", e->peak_bytes);
}

static alibi_status append_training(struct text *out, const struct alibi_compare_method *m)
{
    const double values[] = { m->train_tokens_per_s, m->train_seconds, m->train_loss };

    TRY_RETURN(append_reals(out, values, 3));
    return text_append(out, ",%zu,%lld", m->peak_bytes, (long long)m->parameters);
}

static alibi_status append_device(struct text *out, const struct view *v, int method)
{
    if (v->device[method][0] == '\0')
        return text_append(out, ",,");
    TRY_RETURN(text_append(out, ","));
    TRY_RETURN(append_quoted(out, v->device[method]));
    return text_append(out, ",%s", alibi_precision_name(v->result->method[method].precision));
}

static alibi_status append_sliding(struct text *out, const struct alibi_eval_result *e)
{
    if (e == NULL)
        return text_append(out, ",,,,,,,,");
    TRY_RETURN(text_append(out, ",%lld", (long long)e->stride));
    TRY_RETURN(append_losses(out, e));
    TRY_RETURN(text_append(out, ",%lld", (long long)e->tokens));
    return append_reals(out, &e->tokens_per_s, 1);
}

/* The same in each line of a method, as what its training took is. */
static alibi_status append_stream(struct text *out, const struct alibi_eval_result *e)
{
    if (e->tokens == 0)
        return text_append(out, ",,,,,,,,,,\r\n");
    TRY_RETURN(append_losses(out, e));
    TRY_RETURN(text_append(out, ",%lld", (long long)e->tokens));
    TRY_RETURN(append_speeds(out, e));
    return text_append(out, "\r\n");
}

alibi_status report_csv(struct text *out, const struct alibi_compare_result *r)
{
    struct view v, sliding;

    view_init(&v, r);
    sliding = view_of(&v, ALIBI_SLIDING);
    TRY_RETURN(text_append(
        out,
        "method,train_length,length,nll,standard_error,ppl,word_ppl,bits_per_byte,tokens,words,bytes,"
        "seconds,tokens_per_s,tiles_used,attention_seconds,eval_peak_bytes,"
        "train_tokens_per_s,train_seconds,train_loss,peak_bytes,parameters,device,precision,"
        "sliding_stride,sliding_nll,sliding_standard_error,sliding_ppl,sliding_word_ppl,"
        "sliding_bits_per_byte,sliding_tokens,sliding_tokens_per_s,"
        "stream_nll,stream_standard_error,stream_ppl,stream_word_ppl,stream_bits_per_byte,stream_tokens,"
        "stream_seconds,stream_tokens_per_s,stream_tiles_used,stream_attention_seconds\r\n"));
    for (int m = 0; m < r->methods; m++)
        for (int i = 0; i < r->method[m].lengths; i++) {
            const struct alibi_eval_result *e = &r->method[m].by_length[i];
            TRY_RETURN(append_quoted(out, v.name[m]));
            TRY_RETURN(
                text_append(out, ",%lld,%lld", (long long)v.train_length, (long long)e->length));
            TRY_RETURN(append_evaluation(out, e));
            TRY_RETURN(append_training(out, &r->method[m]));
            TRY_RETURN(append_device(out, &v, m));
            TRY_RETURN(append_sliding(out, view_at(&sliding, m, e->length)));
            TRY_RETURN(append_stream(out, &r->method[m].stream));
        }
    return ALIBI_OK;
}
