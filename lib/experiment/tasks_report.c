/* tasks_report.c - the kind `tasks` over all seeds of a model, for lib/report and results.json */
#include <math.h>
#include <string.h>

#include "experiment/experiment.h"

/* Losses and scores by depth are means over the seeds, weighted by what they have measured. */
static struct report_score score_at(const alibi_experiment *e, int model, int v, int task,
                                    int length)
{
    struct score_mean mean = tasks_score(e, model, v, task, length);
    struct report_score s = { .score = mean.value,
                              .error = mean.error,
                              .low = mean.low,
                              .high = mean.high,
                              .seeds = mean.seeds,
                              .unlearned = mean.unlearned,
                              .nll = mean.seeds > 0 ? 0 : NAN,
                              .bayes = mean.seeds > 0 ? 0 : NAN };
    int64_t answers[ALIBI_DEPTHS_MAX] = { 0 };

    for (int k = 0; k < e->model[model].seeds.count; k++) {
        const struct alibi_task_cell *c = tasks_cell(e, model, k, v, task, length);

        for (int d = 0; c != NULL && d < e->evaluation[v].tasks.depths; d++) {
            answers[d] += c->depth_answers[d];
            s.depth[d] +=
                c->depth_answers[d] > 0 ? c->depth_score[d] * (double)c->depth_answers[d] : 0;
        }
        s.nll += c != NULL ? c->nll / mean.seeds : 0;
        s.bayes += c != NULL ? c->bayes / mean.seeds : 0;
    }
    for (int d = 0; d < ALIBI_DEPTHS_MAX; d++)
        s.depth[d] = answers[d] > 0 ? s.depth[d] / (double)answers[d] : (double)NAN;
    return s;
}

/* The loss of the chain by position at one length; bins stays 0 if no seed has a value. */
static void view_positions(struct report_task_model *m, const alibi_experiment *e, int v, int task,
                           int length)
{
    int seeds = 0;

    for (int k = 0; k < e->model[m->method].seeds.count; k++) {
        const struct alibi_task_cell *c = tasks_cell(e, m->method, k, v, task, length);

        if (c == NULL)
            continue;
        seeds++;
        m->length = c->length;
        m->bins = c->bins;
        for (int b = 0; b < c->bins; b++) {
            struct report_position *p = &m->position[b];
            double nll = c->by_position[b].nll, above = nll - c->bayes_by_position[b];

            p->first = c->by_position[b].first;
            p->last = c->by_position[b].last;
            p->low = seeds > 1 ? fmin(p->low, above) : above;
            p->high = seeds > 1 ? fmax(p->high, above) : above;
            p->nll += (nll - p->nll) / seeds;
            p->bayes += (c->bayes_by_position[b] - p->bayes) / seeds;
        }
    }
}

static void view_model(struct report_task *out, const alibi_experiment *e, int model, int v,
                       int task)
{
    struct report_task_model *m = &out->model[out->models];

    *m = (struct report_task_model){ .method = model };
    for (int k = 0; k < e->model[model].seeds.count; k++) {
        const struct measured *x = &e->model[model].seed[k].measured[v][task];

        if (!x->done)
            continue;
        m->seeds++;
        if (x->task->name[0] != '\0') { /* otherwise it has no value */
            out->chain = x->task->chain;
            out->has_depth = x->task->has_depth;
            out->chance = x->task->chance;
        }
    }
    for (int i = 0; i < out->lengths->count; i++)
        m->at[i] = score_at(e, model, v, task, i);
    for (int i = out->lengths->count - 1; out->chain && m->bins == 0 && i >= 0; i--)
        view_positions(m, e, v, task, i);
    out->models += m->seeds > 0;
}

static alibi_status view_task(struct report_task *out, const alibi_experiment *e, int v, int task)
{
    const struct experiment_evaluation *x = &e->evaluation[v];
    const char *name;

    *out = (struct report_task){ .name = x->name,
                                 .about = x->about,
                                 .task = x->tasks.tasks.at[task],
                                 .near = -1,
                                 .cases = x->tasks.cases,
                                 .depths = x->tasks.depths,
                                 .lengths = &x->lengths };
    for (int i = 0; (name = alibi_task_name(i, &out->summary)) && strcmp(name, out->task) != 0;)
        i++;
    TRY_RETURN(NEW_ZERO_ARRAY(&out->model, e->models, "the report of an experiment"));
    for (int m = 0; m < e->models; m++) {
        int64_t near;

        if (!x->has[m])
            continue;
        near = tasks_asked(e, m, 0, v, task).length;
        out->near = out->near < 0 || out->near == near ? near : 0;
        view_model(out, e, m, v, task);
    }
    return ALIBI_OK;
}

alibi_status tasks_view(struct report_experiment *x, const alibi_experiment *e)
{
    int tasks = 0;

    for (int v = 0; v < e->evaluations; v++)
        tasks += e->evaluation[v].kind == KIND_TASKS ? evaluation_tests(&e->evaluation[v]) : 0;
    TRY_RETURN(NEW_ZERO_ARRAY(&x->task, tasks, "the report of an experiment"));
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; i < evaluation_tests(&e->evaluation[v]); i++)
            if (e->evaluation[v].kind == KIND_TASKS)
                TRY_RETURN(view_task(&x->task[x->tasks++], e, v, i));
    return ALIBI_OK;
}

void tasks_view_fini(struct report_experiment *x)
{
    for (int i = 0; i < x->tasks; i++)
        mem_free(x->task[i].model);
    mem_free(x->task);
}

/* ---- results.json */

static void write_score(struct json_writer *w, const struct report_task *t,
                        const struct report_score *s, int64_t length)
{
    json_write_object_line(w, NULL);
    json_write_int(w, "length", length);
    json_write_int(w, "seeds", s->seeds);
    json_write_int(w, "not_learned", s->unlearned);
    json_write_real(w, "score", s->score);
    json_write_real(w, "score_error", s->error);
    json_write_real(w, "score_low", s->low);
    json_write_real(w, "score_high", s->high);
    json_write_real(w, "nll", s->nll);
    if (t->chain)
        json_write_real(w, "bayes", s->bayes);
    if (t->has_depth) {
        json_write_array_line(w, "depths");
        for (int64_t d = 0; d < t->depths; d++)
            json_write_real(w, NULL, s->depth[d]);
        json_write_end(w);
    }
    json_write_end(w);
}

static void write_positions(struct json_writer *w, const struct report_task_model *m)
{
    json_write_array(w, "by_position");
    for (int b = 0; b < m->bins; b++) {
        json_write_array_line(w, NULL);
        json_write_int(w, NULL, m->position[b].first);
        json_write_int(w, NULL, m->position[b].last);
        json_write_real(w, NULL, m->position[b].nll);
        json_write_real(w, NULL, m->position[b].bayes);
        json_write_end(w);
    }
    json_write_end(w);
}

alibi_status tasks_report(struct json_writer *w, const alibi_experiment *e)
{
    alibi_status status;
    struct report_experiment x = { 0 };

    TRY(tasks_view(&x, e));
    json_write_array(w, "tasks");
    for (int i = 0; i < x.tasks; i++)
        for (int m = 0; m < x.task[i].models; m++) {
            const struct report_task *t = &x.task[i];

            json_write_object(w, NULL);
            json_write_string(w, "evaluation", t->name);
            json_write_string(w, "model", e->model[t->model[m].method].name);
            json_write_string(w, "task", t->task);
            json_write_int(w, "seeds", t->model[m].seeds);
            json_write_int(w, "cases", t->cases);
            json_write_real(w, t->chain ? "chance_nll" : "chance", t->chance);
            json_write_array(w, "lengths");
            for (int k = 0; k < t->lengths->count; k++)
                write_score(w, t, &t->model[m].at[k], t->lengths->at[k]);
            json_write_end(w);
            if (t->chain) /* at the longest length that has a value, mean of the seeds */
                write_positions(w, &t->model[m]);
            json_write_end(w);
        }
    json_write_end(w);
out:
    tasks_view_fini(&x);
    return status;
}
