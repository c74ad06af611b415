/* speed.c - evaluations of kind `speed`: time and memory of training and of evaluation, by method
 * and length, on fresh models of the same shape
 *
 * Training steps are measured in rounds of one step per method (alibi_bench_methods): the clock of
 * a device changes by more than methods differ, but not within a round. A time is that of the first
 * method, times the median ratio of its rounds. The standard error of a median of n ratios with
 * quartiles a and b is about 1.2533 (b - a) / 1.349 / sqrt(n). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "experiment/experiment.h"

enum { ROUNDS = 20, EVAL_ROUNDS = 7, SPEED_BYTES_MAX = 1 << 20 };

static const struct {
    const char *key;
    size_t offset;
} fields[] = {
    { "train_seconds", offsetof(struct speed, train_seconds) },
    { "train_error", offsetof(struct speed, train_error) },
    { "train_memory", offsetof(struct speed, train_memory) },
    { "eval_seconds", offsetof(struct speed, eval_seconds) },
    { "eval_error", offsetof(struct speed, eval_error) },
    { "eval_memory", offsetof(struct speed, eval_memory) },
};
enum { FIELDS = sizeof fields / sizeof *fields };

static double *field(struct speed *s, int i)
{
    return (double *)(void *)((char *)s + fields[i].offset);
}

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
            struct speed s = v->speed[i * e->models + m];

            if (!v->has[m] || s.train_seconds == 0)
                continue;
            json_write_object_line(w, NULL);
            json_write_string(w, "model", e->model[m].name);
            json_write_int(w, "length", v->lengths.at[i]);
            json_write_string(w, "device", s.device);
            json_write_string(w, "date", s.date);
            for (int k = 0; k < FIELDS; k++)
                json_write_real(w, fields[k].key, *field(&s, k));
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
        for (int k = 0; k < FIELDS; k++)
            TRY(json_get_real(entry, fields[k].key, field(s, k), path));
        snprintf(s->device, sizeof s->device, "%s", device);
        snprintf(s->date, sizeof s->date, "%s", date);
    }
out:
    json_decref(file);
    mem_free(path);
    return status;
}

/* ---- measuring */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* As a share of the median. */
static double median_error(double low, double high, double median, int n)
{
    return 1.2533 * (high - low) / 1.349 / sqrt(n) / median;
}

static alibi_status measure_training(struct speed **speed, const struct alibi_config *configs,
                                     int count, const struct alibi_training *t,
                                     alibi_device *device, int64_t batch, int64_t length,
                                     const struct alibi_call *call)
{
    struct alibi_name_list methods = { .count = count };
    struct alibi_bench_method timed[ALIBI_LIST_MAX];
    double tokens = (double)batch * (double)length;

    for (int i = 0; i < count; i++)
        memcpy(methods.at[i], configs[i].position, sizeof methods.at[i]);
    TRY_RETURN(alibi_bench_methods(device, &configs[0], &methods, batch, length, ROUNDS,
                                   t->recompute, t->skip, timed, call));
    for (int i = 0; i < count; i++) {
        struct alibi_bench_step step;

        TRY_RETURN(alibi_bench_train(device, &configs[i], batch, length, 1, t->recompute, t->skip,
                                     &step, call));
        speed[i]->train_memory = (double)step.peak_bytes;
        speed[i]->train_seconds = timed[0].step_seconds * timed[i].ratio / tokens;
        speed[i]->train_error =
            median_error(timed[i].ratio_low, timed[i].ratio_high, timed[i].ratio, ROUNDS);
    }
    return ALIBI_OK;
}

/* One window, in rounds too. */
static alibi_status measure_eval(struct speed **speed, const struct alibi_config *configs,
                                 int count, alibi_device *device, int64_t length,
                                 const struct alibi_call *call)
{
    double seconds[ALIBI_LIST_MAX][EVAL_ROUNDS];

    for (int k = 0; k < EVAL_ROUNDS; k++)
        for (int i = 0; i < count; i++) {
            size_t peak;

            TRY_RETURN(alibi_bench_eval(device, &configs[i], length, &seconds[i][k], &peak, call));
            speed[i]->eval_memory = (double)peak;
        }
    for (int i = 0; i < count; i++) {
        double *s = seconds[i];

        qsort(s, EVAL_ROUNDS, sizeof *s, ascending);
        speed[i]->eval_seconds = s[EVAL_ROUNDS / 2] / (double)length;
        speed[i]->eval_error =
            median_error(s[EVAL_ROUNDS / 4], s[EVAL_ROUNDS - 1 - EVAL_ROUNDS / 4],
                         s[EVAL_ROUNDS / 2], EVAL_ROUNDS);
    }
    return ALIBI_OK;
}

/* One length: steps have as many tokens as those of the first model. */
static alibi_status measure_length(alibi_experiment *e, int evaluation, int index,
                                   alibi_device *device, const struct alibi_call *call)
{
    struct experiment_evaluation *v = &e->evaluation[evaluation];
    int64_t length = v->lengths.at[index], batch = 1;
    const struct alibi_training *t = NULL;
    struct alibi_config configs[ALIBI_LIST_MAX];
    struct speed *speed[ALIBI_LIST_MAX];
    struct alibi_device_info info;
    int count = 0;

    for (int m = 0; m < e->models; m++) {
        if (!v->has[m])
            continue;
        t = t != NULL ? t : &e->model[m].training;
        configs[count] = e->model[m].config;
        configs[count].train_length = length;
        if (configs[count].vocab == 0)
            configs[count].vocab = text_vocab(&e->text[e->model[m].text]);
        speed[count++] = &v->speed[index * e->models + m];
    }
    batch = t->batch * t->train_length / length;
    batch = batch > 0 ? batch : 1;
    TRY_RETURN(measure_training(speed, configs, count, t, device, batch, length, call));
    TRY_RETURN(measure_eval(speed, configs, count, device, length, call));
    alibi_device_get_info(device, &info);
    for (int i = 0; i < count; i++) {
        snprintf(speed[i]->device, sizeof speed[i]->device, "%s", info.machine);
        line_clean(speed[i]->device);
        alibi_date(speed[i]->date);
    }
    return ALIBI_OK;
}

bool speed_is_complete(const alibi_experiment *e, int evaluation, int length)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];

    for (int m = 0; m < e->models; m++)
        if (v->has[m] && v->speed[length * e->models + m].train_seconds == 0)
            return false;
    return true;
}

alibi_status speed_run(alibi_experiment *e, alibi_device *device, const char *dir,
                       const struct alibi_call *call)
{
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; i < e->evaluation[v].lengths.count; i++) {
            if (e->evaluation[v].kind != KIND_SPEED || !e->evaluation[v].selected ||
                speed_is_complete(e, v, i))
                continue;
            if (call_stopped(call))
                return ALIBI_INTERRUPTED;
            call_note(call, "%s: measuring at length %lld", e->evaluation[v].name,
                      (long long)e->evaluation[v].lengths.at[i]);
            TRY_RETURN(measure_length(e, v, i, device, call));
            TRY_RETURN(save(e, v, dir));
        }
    return ALIBI_OK;
}
