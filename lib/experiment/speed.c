/* speed.c - evaluations of kind `speed`: time and memory of training and of evaluation, by method
 * and length, on fresh models of the same shape
 *
 * An entry is a model at a length. All entries alternate in the same rounds (bench_turns), because
 * the clock of a device varies more than methods differ, but not within a round. With t_ir the
 * seconds per token of entry i in round r, n entries and R rounds:
 *
 *   g_r    the geometric mean of the t_ir of a round
 *   x_ir = t_ir / g_r
 *   time of entry i = median_r(g_r) median_r(x_ir)
 *   its error, as a share =
 *       sqrt(n / (n - 1)) 1.2533 (quartiles' distance of x_ir / 1.349) / sqrt(R) / median_r(x_ir)
 *
 * The last line is the standard error of a median. Its first factor makes up for the share that an
 * entry has in g_r, so the error of a ratio of two entries is the root of the sum of squares. */
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "bench/bench.h"
#include "experiment/experiment.h"

enum { ROUNDS = 20, SPEED_BYTES_MAX = 1 << 20 };

#define NUMBER(name) JSON_FIELD(REAL, struct speed, name)

static const struct json_field fields[] = {
    NUMBER(train_seconds), NUMBER(train_error), NUMBER(train_memory),
    NUMBER(eval_seconds),  NUMBER(eval_error),  NUMBER(eval_memory),
};

/* ---- the file */

static alibi_status path_of(char **out, const struct experiment_evaluation *v, const char *dir)
{
    char name[ALIBI_NAME_MAX + 8];

    snprintf(name, sizeof name, "%s.json", v->name);
    return path_join(out, dir, name);
}

void speed_write(struct json_writer *w, const alibi_experiment *e, int evaluation)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];

    for (int i = 0; i < v->lengths.count; i++)
        for (int m = 0; m < e->models; m++) {
            const struct speed *s = &v->speed[i * e->models + m];

            if (!v->has[m] || s->train_seconds == 0)
                continue;
            json_write_object_line(w, NULL);
            json_write_string(w, "model", e->model[m].name);
            json_write_int(w, "length", v->lengths.at[i]);
            json_write_string(w, "device", s->device);
            json_write_string(w, "date", s->date);
            json_write_fields(w, fields, COUNT(fields), s);
            json_write_end(w);
        }
}

static alibi_status save(const alibi_experiment *e, int evaluation, const char *dir)
{
    alibi_status status;
    struct text json = { 0 };
    struct json_writer w = json_writer(&json);
    char *path = NULL;

    json_write_object(&w, NULL);
    json_write_array(&w, "speed");
    speed_write(&w, e, evaluation);
    json_write_end(&w);
    json_write_seal(&w);
    TRY(path_of(&path, &e->evaluation[evaluation], dir));
    TRY(sealed_write(path, &json));
out:
    mem_free(path);
    text_free(&json);
    return status;
}

/* The entry of a model and a length that the evaluation has; NULL: it has none. */
static struct speed *find_entry(alibi_experiment *e, int evaluation, const char *model,
                                int64_t length)
{
    struct experiment_evaluation *v = &e->evaluation[evaluation];

    for (int i = 0; i < v->lengths.count; i++)
        for (int m = 0; m < e->models; m++)
            if (v->has[m] && v->lengths.at[i] == length && strcmp(e->model[m].name, model) == 0)
                return &v->speed[i * e->models + m];
    return NULL;
}

alibi_status speed_load(alibi_experiment *e, int evaluation, const char *dir)
{
    alibi_status status;
    char *path = NULL;
    json_t *file = NULL;
    const json_t *list;

    TRY(path_of(&path, &e->evaluation[evaluation], dir));
    if (!file_exists(path))
        goto out;
    TRY(sealed_read(&file, path, SPEED_BYTES_MAX));
    list = json_object_get(file, "speed");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *model, *device, *date;
        int64_t length;
        struct speed *s;

        TRY(json_get_text(entry, "model", &model, path));
        TRY(json_get_int(entry, "length", 1, INT64_MAX, &length, path));
        TRY(json_get_text(entry, "device", &device, path));
        TRY(json_get_text(entry, "date", &date, path));
        s = find_entry(e, evaluation, model, length);
        if (s == NULL)
            continue;
        TRY(json_read_fields(entry, fields, COUNT(fields), s, path));
        snprintf(s->device, sizeof s->device, "%s", device);
        snprintf(s->date, sizeof s->date, "%s", date);
    }
out:
    json_decref(file);
    mem_free(path);
    return status;
}

/* ---- measuring */

/* The entries of an evaluation, [models, lengths], and what they are measured with. */
struct entries {
    struct alibi_config config[ALIBI_LIST_MAX];
    int model[ALIBI_LIST_MAX], models, lengths;
    struct bench_shape shape[ALIBI_LIST_MAX];
    const struct alibi_training *training;
    struct speed *speed; /* [models, lengths] */
};

/* Steps at any length have as many tokens as those of the first model, or one window. */
static void list_entries(struct entries *s, const alibi_experiment *e, int evaluation)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];

    for (int m = 0; m < e->models; m++) {
        if (!v->has[m])
            continue;
        if (s->models == 0)
            s->training = &e->model[m].training;
        s->config[s->models] = e->model[m].config;
        if (s->config[s->models].vocab == 0)
            s->config[s->models].vocab = text_vocab(&e->text[e->model[m].text]);
        s->model[s->models++] = m;
    }
    for (; s->lengths < v->lengths.count; s->lengths++) {
        int64_t length = v->lengths.at[s->lengths];
        int64_t batch = s->training->batch * s->training->train_length / length;

        s->shape[s->lengths] = (struct bench_shape){ batch > 0 ? batch : 1, length };
    }
}

/* From the seconds per token of all entries, [entries, ROUNDS], those of one, and their error. */
static void summarise(const double *seconds, int entries, int entry, double *value, double *error)
{
    double mean[ROUNDS], ratio[ROUNDS], factor = 1;

    for (int r = 0; r < ROUNDS; r++) {
        double sum = 0;

        for (int i = 0; i < entries; i++)
            sum += log(seconds[i * ROUNDS + r]);
        mean[r] = exp(sum / entries);
        ratio[r] = seconds[entry * ROUNDS + r] / mean[r];
    }
    if (entries == 1) /* nothing to compare with: the spread of the rounds is the error */
        memcpy(ratio, mean, sizeof ratio);
    else
        factor = sqrt(entries / (entries - 1.0));
    *value = entries > 1 ? bench_median(mean, ROUNDS) : 1;
    *value *= bench_median(ratio, ROUNDS);
    *error = factor * bench_median_error(ratio, ROUNDS);
}

static alibi_status measure_time(struct entries *s, alibi_device *device,
                                 const struct alibi_call *call)
{
    alibi_status status;
    int count = s->models * s->lengths;
    struct bench_turns turns = { .config = s->config,
                                 .models = s->models,
                                 .shape = s->shape,
                                 .shapes = s->lengths,
                                 .rounds = ROUNDS,
                                 .recompute = s->training->recompute,
                                 .skip = s->training->skip };

    TRY(NEW_ARRAY(&turns.train, (int64_t)count * ROUNDS, "the times of steps"));
    TRY(NEW_ARRAY(&turns.eval, (int64_t)count * ROUNDS, "the times of evaluations"));
    TRY(bench_turns(device, &turns, call));
    for (int i = 0; i < count * ROUNDS; i++) {
        const struct bench_shape *shape = &s->shape[i / ROUNDS % s->lengths];

        turns.train[i] /= (double)shape->batch * (double)shape->length;
        turns.eval[i] /= (double)bench_eval_batch(device, shape->length) * (double)shape->length;
    }
    for (int i = 0; i < count; i++) {
        summarise(turns.train, count, i, &s->speed[i].train_seconds, &s->speed[i].train_error);
        summarise(turns.eval, count, i, &s->speed[i].eval_seconds, &s->speed[i].eval_error);
    }
out:
    mem_free(turns.train);
    mem_free(turns.eval);
    return status;
}

/* Each entry alone. Lengths ascend, and evaluations come first, because a device keeps its scratch
 * memory, and a larger one would count for those that follow. */
static alibi_status measure_memory(struct entries *s, alibi_device *device,
                                   const struct alibi_call *call)
{
    for (int l = 0; l < s->lengths; l++)
        for (int m = 0; m < s->models; m++) {
            int64_t length = s->shape[l].length;
            double seconds;
            size_t peak;

            TRY_RETURN(bench_eval(device, &s->config[m], bench_eval_batch(device, length), length,
                                  &seconds, &peak, call));
            s->speed[m * s->lengths + l].eval_memory = (double)peak;
        }
    for (int l = 0; l < s->lengths; l++)
        for (int m = 0; m < s->models; m++) {
            struct alibi_bench_step step;

            TRY_RETURN(alibi_bench_train(device, &s->config[m], s->shape[l].batch,
                                         s->shape[l].length, 1, s->training->recompute,
                                         s->training->skip, &step, call));
            s->speed[m * s->lengths + l].train_memory = (double)step.peak_bytes;
        }
    return ALIBI_OK;
}

static alibi_status measure(alibi_experiment *e, int evaluation, alibi_device *device,
                            const struct alibi_call *call)
{
    alibi_status status;
    struct experiment_evaluation *v = &e->evaluation[evaluation];
    struct entries s = { 0 };
    struct alibi_device_info info;

    list_entries(&s, e, evaluation);
    TRY(NEW_ZERO_ARRAY(&s.speed, (int64_t)s.models * s.lengths, "times and memory"));
    TRY(measure_memory(&s, device, call));
    TRY(measure_time(&s, device, call));
    alibi_device_get_info(device, &info);
    for (int i = 0; i < s.models * s.lengths; i++) {
        snprintf(s.speed[i].device, sizeof s.speed[i].device, "%s", info.machine);
        line_clean(s.speed[i].device);
        alibi_date(s.speed[i].date);
        v->speed[i % s.lengths * e->models + s.model[i / s.lengths]] = s.speed[i];
    }
out:
    mem_free(s.speed);
    return status;
}

double speed_tokens(const alibi_experiment *e, const alibi_device *device, int model)
{
    int warm_up = device->device.ops->traits.warm_up_steps;
    double sum = 0;

    for (int v = 0; v < e->evaluations; v++) {
        struct entries s = { 0 };

        if (e->evaluation[v].kind != KIND_SPEED || !e->evaluation[v].selected ||
            !e->evaluation[v].has[model] || speed_is_complete(e, v))
            continue;
        list_entries(&s, e, v);
        for (int i = 0; i < s.lengths; i++) {
            double length = (double)s.shape[i].length;
            double step = (double)s.shape[i].batch * length;
            double pass = (double)bench_eval_batch(device, s.shape[i].length) * length;

            /* Turns, and memory: its warm-up, a step and its products twice. */
            sum += step * (ROUNDS + 2 * warm_up + 3) + pass / 2 * (ROUNDS + warm_up + 1);
        }
    }
    return sum;
}

bool speed_is_complete(const alibi_experiment *e, int evaluation)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];

    for (int i = 0; i < v->lengths.count; i++)
        for (int m = 0; m < e->models; m++)
            if (v->has[m] && v->speed[i * e->models + m].train_seconds == 0)
                return false;
    return true;
}

/* Numbers of one evaluation are compared with each other, so if one is missing all are measured. */
alibi_status speed_run(alibi_experiment *e, alibi_device *device, const char *dir,
                       const struct alibi_call *call)
{
    for (int v = 0; v < e->evaluations; v++) {
        if (e->evaluation[v].kind != KIND_SPEED || !e->evaluation[v].selected ||
            speed_is_complete(e, v))
            continue;
        if (call_stopped(call))
            return ALIBI_INTERRUPTED;
        call_note(call, "%s: measuring time and memory at %d length%s", e->evaluation[v].name,
                  e->evaluation[v].lengths.count, e->evaluation[v].lengths.count == 1 ? "" : "s");
        TRY_RETURN(measure(e, v, device, call));
        TRY_RETURN(save(e, v, dir));
    }
    return ALIBI_OK;
}
