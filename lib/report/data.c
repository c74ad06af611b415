/* data.c - results for programs: results.json and results.csv
 *
 * Numbers are written so that they read back the same. A value that is missing or not finite is
 * null in JSON and empty in CSV. The CSV follows RFC 4180, with one line per method, seed, length
 * and protocol. Names that may come from elsewhere are safe to print. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/parts.h"

/* A name that may come from elsewhere, safe to print as one line. */
struct line {
    char text[ALIBI_TEXT_NAME_MAX];
};

static struct line clean(const char *name)
{
    struct line line;

    snprintf(line.text, sizeof line.text, "%s", name);
    line_clean(line.text);
    return line;
}

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
    json_write_string(w, "path", clean(t->name).text);
    json_write_int(w, "paths", t->paths);
    json_write_int(w, "checksum", t->checksum);
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
    json_write_real(w, "unigram_nll", r->unigram_nll > 0 ? r->unigram_nll : NAN);
    json_write_end(w);
}

static void write_losses(struct json_writer *w, const struct alibi_eval_result *e)
{
    const struct alibi_protocol_info *protocol = alibi_protocol_view(e->protocol);

    json_write_string(w, "protocol", protocol->name);
    json_write_int(w, "stride", e->stride);
    json_write_string(w, "first_token", protocol->first_tokens);
    json_write_string(w, "normaliser", protocol->normaliser);
    json_write_real(w, "nll", e->nll);
    json_write_real(w, "standard_error", e->standard_error);
    json_write_real(w, "ppl", e->ppl);
    json_write_real(w, "word_ppl", e->word_ppl);
    json_write_real(w, "bits_per_byte", e->bits_per_byte);
    json_write_int(w, "tokens", e->tokens);
    json_write_int(w, "block", e->block);
    json_write_int(w, "blocks", e->blocks);
    json_write_int(w, "start", e->start);
    json_write_int(w, "available", e->available);
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

/* The evaluation of one seed, or (seed -1) the mean of all; none has no tokens and is all null. */
static struct alibi_eval_result evaluation_of(const struct view *v, int method, int seed,
                                              int64_t length)
{
    const struct alibi_eval_result *e = seed >= 0 ? view_seed(v, method, seed, length) : NULL;

    if (e != NULL)
        return *e;
    if (seed < 0 && !isnan(view_ppl(v, method, length)))
        return view_mean(v, method, length);
    return (struct alibi_eval_result){ .length = length,
                                       .protocol = v->protocol,
                                       .nll = NAN,
                                       .standard_error = NAN,
                                       .ppl = NAN,
                                       .word_ppl = NAN,
                                       .bits_per_byte = NAN };
}

/* by_length, with the sliding window within, stream and passage: of one seed, or the mean of all
 * with the spread over them. */
static void write_evaluations(struct json_writer *w, const struct view *v, int method, int seed)
{
    struct view sliding = view_of(v, ALIBI_SLIDING);
    const struct view others[] = { view_of(v, ALIBI_STREAM), view_passage(v) };
    struct alibi_eval_result s = { 0 };

    json_write_array(w, "by_length");
    for (int i = 0; i < v->lengths; i++) {
        struct alibi_eval_result e = evaluation_of(v, method, seed, v->length[i]);

        s = evaluation_of(&sliding, method, seed, v->length[i]);
        json_write_object_line(w, NULL);
        write_evaluation(w, &e);
        if (seed < 0)
            json_write_real(w, "spread", view_spread(v, method, v->length[i]));
        if (s.tokens > 0) {
            json_write_object_line(w, "sliding");
            write_losses(w, &s);
            if (seed < 0)
                json_write_real(w, "spread", view_spread(&sliding, method, v->length[i]));
            json_write_real(w, "tokens_per_s", s.tokens_per_s);
            json_write_end(w);
        } else {
            json_write_null(w, "sliding");
        }
        json_write_end(w);
    }
    json_write_end(w);

    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "stream" : "passage";

        s.tokens = 0;
        if (others[i].lengths > 0)
            s = evaluation_of(&others[i], method, seed, others[i].length[0]);
        if (s.tokens == 0) {
            json_write_null(w, key);
            continue;
        }
        json_write_object_line(w, key);
        write_evaluation(w, &s);
        if (seed < 0)
            json_write_real(w, "spread", view_spread(&others[i], method, others[i].length[0]));
        json_write_end(w);
    }
}

static void write_name(struct json_writer *w, const char *key, const char *name)
{
    struct line line = clean(name);

    if (line.text[0] != '\0')
        json_write_string(w, key, line.text);
    else
        json_write_null(w, key);
}

static void write_origin(struct json_writer *w, const struct alibi_compare_seed *s)
{
    write_name(w, "device", s->device);
    write_name(w, "precision", s->device[0] != '\0' ? alibi_precision_name(s->precision) : "");
    write_name(w, "machine", s->machine);
    write_name(w, "date", s->date);
    write_name(w, "version", s->version);
}

/* The method as a whole: means over its seeds. Then each seed. */
static void write_method(struct json_writer *w, const struct view *v, int method)
{
    const struct alibi_compare_method *m = &v->result->method[method];
    struct cost cost = view_cost(v, method);

    json_write_object(w, NULL);
    json_write_string(w, "name", v->name[method]);
    json_write_bool(w, "learned_nothing", v->ignorant[method]);
    json_write_real(w, "train_tokens_per_s", cost.tokens_per_s);
    json_write_real(w, "train_seconds", cost.seconds);
    json_write_real(w, "train_loss", cost.loss);
    json_write_int(w, "peak_bytes", cost.peak_bytes > 0 ? (int64_t)cost.peak_bytes : 0);
    json_write_int(w, "parameters", cost.parameters > 0 ? (int64_t)cost.parameters : 0);
    if (m->seeds > 0)
        write_origin(w, &m->seed[0]);
    write_evaluations(w, v, method, -1);
    json_write_array(w, "seeds");
    for (int k = 0; k < m->seeds; k++) {
        const struct alibi_compare_seed *s = &m->seed[k];

        json_write_object(w, NULL);
        json_write_int(w, "seed", s->seed);
        json_write_real(w, "train_tokens_per_s", s->train_tokens_per_s);
        json_write_real(w, "train_seconds", s->train_seconds);
        json_write_real(w, "train_loss", s->train_loss);
        json_write_int(w, "peak_bytes", (int64_t)s->peak_bytes);
        write_origin(w, s);
        write_evaluations(w, v, method, k);
        json_write_end(w);
    }
    json_write_end(w);
    json_write_end(w);
}

alibi_status report_json(struct text *out, const struct alibi_compare_result *r)
{
    struct json_writer w = json_writer(out);
    struct view v;

    view_init(&v, r);
    json_write_object(&w, NULL);
    json_write_string(&w, "version", alibi_version());
    write_name(&w, "date", view_date(&v));
    write_setting(&w, r);
    json_write_array(&w, "methods");
    for (int m = 0; m < r->methods; m++)
        write_method(&w, &v, m);
    json_write_end(&w);
    json_write_end(&w);
    return text_status(out);
}

/* ---- CSV */

void append_field(struct text *out, const char *name, bool first)
{
    struct line line = clean(name);
    bool quoted = strpbrk(line.text, ",\"\r\n") != NULL;

    text_append(out, "%s%s", first ? "" : ",", quoted ? "\"" : "");
    for (const char *p = line.text; *p != '\0'; p++)
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

/* The numbers of the training are repeated in each of its lines. */
static void append_line(struct text *out, const struct view *v, int method, int seed,
                        int64_t length)
{
    const struct alibi_compare_seed *s = &v->result->method[method].seed[seed];
    const struct alibi_corpus_info *t = &v->result->text;
    const struct alibi_eval_result e = evaluation_of(v, method, seed, length);

    if (e.tokens == 0 && (v->protocol != ALIBI_NONOVERLAPPING || v->passage))
        return;
    append_field(out, v->name[method], true);
    text_append(out, ",%lld,%lld,%lld,%s,", (long long)s->seed, (long long)v->train_length,
                (long long)e.length,
                v->passage ? "passage" : alibi_protocol_view(v->protocol)->name);
    if (e.tokens > 0)
        text_append(out, "%lld", (long long)e.stride);
    append_reals(out, (double[]){ e.nll, e.standard_error, e.ppl, e.word_ppl, e.bits_per_byte }, 5);
    text_append(out, ",%lld,%lld,%lld", (long long)e.tokens, (long long)e.words,
                (long long)e.bytes);
    if (e.tokens > 0) {
        append_reals(out,
                     (double[]){ e.seconds, e.tokens_per_s, e.tiles_used, e.attention_seconds }, 4);
        text_append(out, ",%zu", e.peak_bytes);
    } else {
        text_append(out, ",,,,,");
    }
    append_reals(out, (double[]){ s->train_tokens_per_s, s->train_seconds, s->train_loss }, 3);
    text_append(out, ",%zu,%lld", s->peak_bytes, (long long)s->parameters);
    append_field(out, s->device, false);
    append_field(out, s->device[0] != '\0' ? alibi_precision_name(s->precision) : "", false);
    append_field(out, s->machine, false);
    append_field(out, s->date, false);
    append_field(out, s->version, false);
    append_field(out, t->name, false);
    text_append(out, ",%lld,%lld", (long long)t->bytes, (long long)t->checksum);
    append_field(out, alibi_protocol_view(v->protocol)->first_tokens, false);
    append_field(out, alibi_protocol_view(v->protocol)->normaliser, false);
    text_append(out, "\r\n");
}

alibi_status report_csv(struct text *out, const struct alibi_compare_result *r)
{
    struct view v, sliding, stream, passage;

    view_init(&v, r);
    sliding = view_of(&v, ALIBI_SLIDING);
    stream = view_of(&v, ALIBI_STREAM);
    passage = view_passage(&v);
    text_append(out, "method,seed,train_length,length,protocol,stride,"
                     "nll,standard_error,ppl,word_ppl,bits_per_byte,tokens,words,bytes,"
                     "seconds,tokens_per_s,tiles_used,attention_seconds,eval_peak_bytes,"
                     "train_tokens_per_s,train_seconds,train_loss,peak_bytes,parameters,"
                     "device,precision,machine,date,version,text,text_bytes,text_checksum,"
                     "first_token,normaliser\r\n");
    for (int m = 0; m < r->methods; m++)
        for (int k = 0; k < r->method[m].seeds; k++) {
            for (int i = 0; i < v.lengths; i++)
                append_line(out, &v, m, k, v.length[i]);
            for (int i = 0; i < v.lengths; i++)
                append_line(out, &sliding, m, k, v.length[i]);
            for (int i = 0; i < stream.lengths; i++)
                append_line(out, &stream, m, k, stream.length[i]);
            for (int i = 0; i < passage.lengths; i++)
                append_line(out, &passage, m, k, passage.length[i]);
        }
    return text_status(out);
}
