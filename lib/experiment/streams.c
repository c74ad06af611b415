/* streams.c - evaluations of kind `stream`: the cost of a token after a context, and the size of
 * the KV cache (lib/bench/stream.c)
 *
 * The trained model is measured, because its weights determine how much attention skips. Its
 * result.json has the results. */
#include <math.h>
#include <string.h>

#include "experiment/experiment.h"

#define NUMBER(name) JSON_FIELD(REAL, struct bench_stream, name)

static const struct json_field fields[] = {
    NUMBER(read_seconds), NUMBER(read_error),  NUMBER(decode_seconds),
    NUMBER(decode_error), NUMBER(cache_bytes),
};

/* ---- result.json */

void streams_write(struct json_writer *w, const alibi_experiment *e, int model, int seed)
{
    const struct trained *t = &e->model[model].seed[seed];

    json_write_array(w, "stream");
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; e->evaluation[v].kind == KIND_STREAM && t->measured[v] &&
                        i < e->evaluation[v].lengths.count;
             i++) {
            if (!t->measured[v][i].done)
                continue;
            json_write_object_line(w, NULL);
            json_write_string(w, "evaluation", e->evaluation[v].name);
            json_write_int(w, "length", e->evaluation[v].lengths.at[i]);
            json_write_fields(w, fields, COUNT(fields), &t->measured[v][i].stream);
            json_write_end(w);
        }
    json_write_end(w);
}

/* Entries that the experiment does not ask for are skipped. */
alibi_status streams_read(const alibi_experiment *e, struct trained *t, const json_t *file,
                          const char *path)
{
    const json_t *list = json_object_get(file, "stream");

    for (size_t n = 0; n < json_array_size(list); n++) {
        const json_t *entry = json_array_get(list, n);
        struct bench_stream s;
        const char *name;
        int64_t length;

        TRY_RETURN(json_get_text(entry, "evaluation", &name, path));
        TRY_RETURN(json_get_int(entry, "length", 1, INT64_MAX, &length, path));
        TRY_RETURN(json_read_fields(entry, fields, COUNT(fields), &s, path));
        for (int v = 0; v < e->evaluations; v++)
            for (int i = 0; i < e->evaluation[v].lengths.count; i++)
                if (e->evaluation[v].kind == KIND_STREAM && t->measured[v] != NULL &&
                    strcmp(e->evaluation[v].name, name) == 0 &&
                    e->evaluation[v].lengths.at[i] == length) {
                    t->measured[v][i].stream = s;
                    t->measured[v][i].done = 1;
                }
    }
    return ALIBI_OK;
}

/* ---- over the seeds */

/* value: the mean; *error: of the steps and of the seeds, as a share. */
static double mean_of(const double *values, const double *errors, int count, double *error)
{
    double mean = 0, steps = 0, spread = 0;

    for (int k = 0; k < count; k++)
        mean += values[k] / count;
    for (int k = 0; k < count; k++) {
        steps += errors[k] * errors[k] / count;
        spread += (values[k] / mean - 1) * (values[k] / mean - 1);
    }
    *error = sqrt(steps / count + (count > 1 ? spread / (count - 1) / count : 0));
    return mean;
}

struct bench_stream streams_mean(const alibi_experiment *e, int model, int evaluation, int length,
                                 int *seeds)
{
    double read[2][ALIBI_LIST_MAX], decode[2][ALIBI_LIST_MAX], bytes = 0;
    struct bench_stream out = { 0 };
    int count = 0;

    for (int k = 0; k < e->model[model].seeds.count; k++) {
        const struct measured *m = e->model[model].seed[k].measured[evaluation];
        const struct bench_stream *s = &m[length].stream;

        if (!m[length].done || s->read_seconds == 0)
            continue;
        read[0][count] = s->read_seconds;
        read[1][count] = s->read_error;
        decode[0][count] = s->decode_seconds;
        decode[1][count++] = s->decode_error;
        bytes = fmax(bytes, s->cache_bytes);
    }
    *seeds = count;
    if (count == 0)
        return out;
    out.read_seconds = mean_of(read[0], read[1], count, &out.read_error);
    out.decode_seconds = mean_of(decode[0], decode[1], count, &out.decode_error);
    out.cache_bytes = bytes;
    return out;
}

static alibi_status view_stream(struct report_stream *out, const alibi_experiment *e, int v)
{
    const struct experiment_evaluation *x = &e->evaluation[v];

    *out = (struct report_stream){
        .name = x->name, .about = x->about, .machine = "", .lengths = &x->lengths
    };
    TRY_RETURN(NEW_ZERO_ARRAY(&out->model, e->models, "the report of an experiment"));
    for (int m = 0; m < e->models; m++) {
        struct report_stream_model *r = &out->model[out->models];
        int any = 0;

        r->method = m;
        for (int i = 0; x->has[m] && i < x->lengths.count; i++) {
            struct bench_stream s = streams_mean(e, m, v, i, &r->at[i].seeds);

            any += r->at[i].seeds;
            r->at[i].read_seconds = s.read_seconds;
            r->at[i].read_error = s.read_error;
            r->at[i].decode_seconds = s.decode_seconds;
            r->at[i].decode_error = s.decode_error;
            r->at[i].cache_bytes = s.cache_bytes;
        }
        for (int k = 0; k < e->model[m].seeds.count && any > 0; k++)
            if (e->model[m].seed[k].cost.machine[0] != '\0')
                out->machine = e->model[m].seed[k].cost.machine;
        out->models += any > 0;
    }
    return ALIBI_OK;
}

alibi_status streams_view(struct report_experiment *x, const alibi_experiment *e)
{
    TRY_RETURN(NEW_ZERO_ARRAY(&x->stream, e->evaluations, "the report of an experiment"));
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_STREAM)
            TRY_RETURN(view_stream(&x->stream[x->streams++], e, v));
    return ALIBI_OK;
}

void streams_view_fini(struct report_experiment *x)
{
    for (int i = 0; i < x->streams; i++)
        mem_free(x->stream[i].model);
    mem_free(x->stream);
}

void streams_report(struct json_writer *w, const alibi_experiment *e)
{
    json_write_array(w, "stream");
    for (int v = 0; v < e->evaluations; v++)
        for (int m = 0; m < e->models; m++)
            for (int i = 0; e->evaluation[v].kind == KIND_STREAM && e->evaluation[v].has[m] &&
                            i < e->evaluation[v].lengths.count;
                 i++) {
                int seeds;
                struct bench_stream s = streams_mean(e, m, v, i, &seeds);

                if (seeds == 0)
                    continue;
                json_write_object_line(w, NULL);
                json_write_string(w, "evaluation", e->evaluation[v].name);
                json_write_string(w, "model", e->model[m].name);
                json_write_int(w, "length", e->evaluation[v].lengths.at[i]);
                json_write_int(w, "seeds", seeds);
                json_write_fields(w, fields, COUNT(fields), &s);
                json_write_end(w);
            }
    json_write_end(w);
}
