/* data.c - results for programs: results.json and results.csv
 *
 * Numbers are written so that they read back the same. A value that is missing or not finite is
 * null in JSON and empty in CSV. The CSV follows RFC 4180, with one line per method and length. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/parts.h"

/* ---- JSON */

static void write_setting(struct json_writer *w, const struct alibi_compare_result *r)
{
    const struct alibi_corpus_info *t = &r->text;
    const struct alibi_option *option;
    const void *values;
    char key[OPTION_KEY_MAX];

    json_write_object(w, "train");
    json_write_int(w, "vocab", r->config.vocab);
    for (int group = 0; group < 2; group++)
        for (int i = 0; (option = setting_at(r, group, i, &values)) != NULL; i++) {
            option_key(key, option->name);
            option_write(w, key, option, values);
        }
    json_write_end(w);

    json_write_object_line(w, "text");
    json_write_int(w, "documents", t->documents);
    json_write_int(w, "tokens", t->tokens);
    json_write_int(w, "words", t->words);
    json_write_int(w, "bytes", t->bytes);
    json_write_int(w, "vocab", t->vocab);
    json_write_string(w, "tokenizer", r->tokenizer);
    json_write_bool(w, "own_valid", r->own_valid);
    if (r->builtin.bytes > 0) { /* which built-in text it was; files have no such numbers */
        json_write_int(w, "text_seed", r->builtin.seed);
        json_write_int(w, "text_bytes", r->builtin.bytes);
    } else {
        json_write_null(w, "text_seed");
        json_write_null(w, "text_bytes");
    }
    json_write_end(w);

    json_write_object_line(w, "eval");
    json_write_int(w, "eval_tokens", r->compare.eval_tokens);
    json_write_int(w, "sliding_tokens", r->compare.sliding_tokens);
    json_write_int(w, "stream_tokens", r->compare.stream_tokens);
    json_write_end(w);
}

static void write_losses(struct json_writer *w, const struct alibi_eval_result *e)
{
    json_write_real(w, "nll", e->nll);
    json_write_real(w, "standard_error", e->standard_error);
    json_write_real(w, "ppl", e->ppl);
    json_write_real(w, "word_ppl", e->word_ppl);
    json_write_real(w, "bits_per_byte", e->bits_per_byte);
    json_write_int(w, "tokens", e->tokens);
}

/* A length at which the method has no value has an entry with counts of 0 and null numbers. */
static void write_evaluation(struct json_writer *w, const struct alibi_eval_result *e)
{
    bool any = e->tokens > 0;

    json_write_int(w, "length", e->length);
    write_losses(w, e);
    json_write_int(w, "words", e->words);
    json_write_int(w, "bytes", e->bytes);
    json_write_real(w, "seconds", any ? e->seconds : NAN);
    json_write_real(w, "tokens_per_s", any ? e->tokens_per_s : NAN);
    json_write_real(w, "tiles_used", any ? e->tiles_used : NAN);
    json_write_real(w, "attention_seconds", any ? e->attention_seconds : NAN);
    if (any)
        json_write_int(w, "peak_bytes", (int64_t)e->peak_bytes);
    else
        json_write_null(w, "peak_bytes");
    json_write_array_line(w, "by_position");
    for (int b = 0; b < e->bins; b++) {
        const struct alibi_position_loss *bin = &e->by_position[b];

        json_write_object_line(w, NULL);
        json_write_int(w, "first", bin->first);
        json_write_int(w, "last", bin->last);
        json_write_int(w, "tokens", bin->tokens);
        json_write_real(w, "nll", bin->tokens > 0 ? bin->nll : NAN);
        json_write_end(w);
    }
    json_write_end(w);
}

static void write_method(struct json_writer *w, const struct view *sliding, int method)
{
    const struct alibi_compare_method *m = &sliding->result->method[method];

    json_write_object(w, NULL);
    json_write_string(w, "name", sliding->name[method]);
    json_write_real(w, "train_tokens_per_s", m->train_tokens_per_s);
    json_write_real(w, "train_seconds", m->train_seconds);
    json_write_real(w, "train_loss", m->train_loss);
    json_write_int(w, "peak_bytes", (int64_t)m->peak_bytes);
    json_write_int(w, "parameters", m->parameters);
    if (sliding->device[method][0] != '\0') {
        json_write_string(w, "device", sliding->device[method]);
        json_write_string(w, "precision", alibi_precision_name(m->precision));
    } else {
        json_write_null(w, "device");
        json_write_null(w, "precision");
    }

    json_write_array(w, "by_length");
    for (int i = 0; i < m->lengths; i++) {
        const struct alibi_eval_result *s = view_at(sliding, method, m->by_length[i].length);

        json_write_object_line(w, NULL);
        write_evaluation(w, &m->by_length[i]);
        if (s != NULL) {
            json_write_object_line(w, "sliding");
            json_write_int(w, "stride", s->stride);
            write_losses(w, s);
            json_write_real(w, "tokens_per_s", s->tokens_per_s);
            json_write_end(w);
        } else {
            json_write_null(w, "sliding");
        }
        json_write_end(w);
    }
    json_write_end(w);

    if (m->stream.tokens > 0) {
        json_write_object_line(w, "stream");
        write_evaluation(w, &m->stream);
        json_write_end(w);
    } else {
        json_write_null(w, "stream");
    }
    json_write_end(w);
}

alibi_status report_json(struct text *out, const struct alibi_compare_result *r)
{
    struct json_writer w = json_writer(out);
    struct view v, sliding;

    view_init(&v, r);
    sliding = view_of(&v, ALIBI_SLIDING);
    json_write_object(&w, NULL);
    json_write_string(&w, "version", alibi_version());
    write_setting(&w, r);
    json_write_array(&w, "methods");
    for (int m = 0; m < r->methods; m++)
        write_method(&w, &sliding, m);
    json_write_end(&w);
    json_write_end(&w);
    return text_status(out);
}

/* ---- CSV */

/* A field with a comma, a quote or a line end is quoted, with its quotes doubled. */
static void append_field(struct text *out, const char *field)
{
    bool quoted = strpbrk(field, ",\"\r\n") != NULL;

    text_append(out, quoted ? "\"" : "");
    for (const char *p = field; *p != '\0'; p++)
        text_append(out, *p == '"' ? "\"\"" : "%c", *p);
    text_append(out, quoted ? "\"" : "");
}

/* Each after a comma; empty where the value is not finite. */
static void append_reals(struct text *out, const double *values, int count)
{
    for (int i = 0; i < count; i++) {
        text_append(out, ",");
        if (isfinite(values[i]))
            json_append_real(out, values[i]);
    }
}

static void append_losses(struct text *out, const struct alibi_eval_result *e)
{
    const double losses[] = { e->nll, e->standard_error, e->ppl, e->word_ppl, e->bits_per_byte };

    append_reals(out, losses, 5);
}

static void append_speeds(struct text *out, const struct alibi_eval_result *e)
{
    const double speeds[] = { e->seconds, e->tokens_per_s, e->tiles_used, e->attention_seconds };

    append_reals(out, speeds, 4);
}

static void append_evaluation(struct text *out, const struct alibi_eval_result *e)
{
    if (e->tokens == 0) {
        text_append(out, ",,,,,,0,0,0,,,,,");
        return;
    }
    append_losses(out, e);
    text_append(out, ",%lld,%lld,%lld", (long long)e->tokens, (long long)e->words,
                (long long)e->bytes);
    append_speeds(out, e);
    text_append(out, ",%zu", e->peak_bytes);
}

/* The numbers of the method as a whole are repeated in each of its lines. */
static void append_line(struct text *out, const struct view *sliding, int method,
                        const struct alibi_eval_result *e)
{
    const struct alibi_compare_method *m = &sliding->result->method[method];
    const struct alibi_eval_result *s = view_at(sliding, method, e->length);
    const double training[] = { m->train_tokens_per_s, m->train_seconds, m->train_loss };
    bool known = sliding->device[method][0] != '\0';

    append_field(out, sliding->name[method]);
    text_append(out, ",%lld,%lld", (long long)sliding->train_length, (long long)e->length);
    append_evaluation(out, e);
    append_reals(out, training, 3);
    text_append(out, ",%zu,%lld,", m->peak_bytes, (long long)m->parameters);
    append_field(out, sliding->device[method]);
    text_append(out, ",%s", known ? alibi_precision_name(m->precision) : "");
    if (s != NULL) {
        text_append(out, ",%lld", (long long)s->stride);
        append_losses(out, s);
        text_append(out, ",%lld", (long long)s->tokens);
        append_reals(out, &s->tokens_per_s, 1);
    } else {
        text_append(out, ",,,,,,,,");
    }
    if (m->stream.tokens > 0) {
        append_losses(out, &m->stream);
        text_append(out, ",%lld", (long long)m->stream.tokens);
        append_speeds(out, &m->stream);
    } else {
        text_append(out, ",,,,,,,,,,");
    }
    text_append(out, "\r\n");
}

alibi_status report_csv(struct text *out, const struct alibi_compare_result *r)
{
    struct view v, sliding;

    view_init(&v, r);
    sliding = view_of(&v, ALIBI_SLIDING);
    text_append(out, "method,train_length,length,"
                     "nll,standard_error,ppl,word_ppl,bits_per_byte,tokens,words,bytes,"
                     "seconds,tokens_per_s,tiles_used,attention_seconds,eval_peak_bytes,"
                     "train_tokens_per_s,train_seconds,train_loss,peak_bytes,parameters,"
                     "device,precision,"
                     "sliding_stride,sliding_nll,sliding_standard_error,sliding_ppl,"
                     "sliding_word_ppl,sliding_bits_per_byte,sliding_tokens,sliding_tokens_per_s,"
                     "stream_nll,stream_standard_error,stream_ppl,stream_word_ppl,"
                     "stream_bits_per_byte,stream_tokens,stream_seconds,stream_tokens_per_s,"
                     "stream_tiles_used,stream_attention_seconds\r\n");
    for (int m = 0; m < r->methods; m++)
        for (int i = 0; i < r->method[m].lengths; i++)
            append_line(out, &sliding, m, &r->method[m].by_length[i]);
    return text_status(out);
}
