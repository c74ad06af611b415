/* tasks.c - evaluations of kind `tasks`: requests, result.json, scores over seeds
 *
 * A test is one task at all lengths, and belongs to a trained model. Its windows are drawn from the
 * seed of the model, so that the cases of different seeds are independent.
 *
 * Claims compare scores, or a score with a number. With p and q the means over S seeds, and [l, u]
 * Wilson's 95% interval of all cases of a model together, that of p - q is Newcombe's (1998,
 * method 10), widened by the spread s of p_k - q_k over the seeds:
 *
 *   below = sqrt((p - l_p)^2 + (u_q - q)^2 + (t_{S-1} s / sqrt(S))^2)
 *
 * and `above` the same with the other ends. For a number q both ends are q, so with one seed
 * Wilson's interval remains. As in lib/report/change.c one seed shows something only for itself,
 * and "in these seeds" means that the interval of each seed alone shows it. The chain has no share
 * of right answers: its interval is 1.96 errors over its windows. */
#include <math.h>
#include <string.h>

#include "experiment/experiment.h"

/* ---- requests */

struct alibi_tasks tasks_asked(const alibi_experiment *e, int model, int seed, int evaluation,
                               int task)
{
    static const int64_t seeds = (int64_t)1e15; /* the largest of a probe */
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    struct alibi_tasks asked = v->tasks;

    asked.lengths = v->lengths;
    if (asked.length == 0)
        asked.length = e->model[model].training.train_length;
    asked.tasks.count = 1;
    memmove(asked.tasks.at[0], v->tasks.tasks.at[task], sizeof asked.tasks.at[0]);
    asked.seed = e->model[model].seeds.at[seed] % seeds;
    return asked;
}

alibi_status tasks_check(const alibi_experiment *e, int model, const struct alibi_call *call)
{
    for (int v = 0; v < e->evaluations; v++) {
        const struct experiment_evaluation *x = &e->evaluation[v];
        const alibi_corpus *corpus = evaluated_text(e, model, v)->corpus;

        for (int i = 0; x->kind == KIND_TASKS && x->has[model] && i < evaluation_tests(x); i++) {
            struct alibi_tasks asked = tasks_asked(e, model, 0, v, i);

            TRY_RETURN(
                tasks_trim(&asked, corpus_tokenizer(corpus), corpus_span(corpus, ALIBI_VALID)));
            if (asked.lengths.count < x->lengths.count)
                call_note(call, "%s: %s has no value at lengths above %lld for '%s': %s", x->name,
                          asked.tasks.at[0], (long long)asked.lengths.at[asked.lengths.count - 1],
                          e->model[model].name, alibi_error());
        }
    }
    return ALIBI_OK;
}

/* ---- result.json */

static void write_cell(struct json_writer *w, const struct alibi_task_result *r,
                       const struct alibi_task_cell *c, int64_t depths)
{
    json_write_object_line(w, NULL);
    json_write_int(w, "length", c->length);
    json_write_int(w, "why", c->why);
    json_write_int(w, "cases", c->cases);
    if (c->cases > 0) {
        json_write_real(w, "score", c->score.value);
        json_write_real(w, "error", c->score.error);
        json_write_real(w, "nll", c->nll);
    }
    if (c->cases > 0 && r->has_depth) {
        json_write_array_line(w, "depths"); /* answers and score, each */
        for (int64_t d = 0; d < depths; d++) {
            json_write_int(w, NULL, c->depth_answers[d]);
            json_write_real(w, NULL, c->depth_answers[d] > 0 ? c->depth_score[d] : 0);
        }
        json_write_end(w);
    }
    if (c->cases > 0 && r->chain) {
        json_write_real(w, "bayes", c->bayes);
        json_write_array_line(w, "positions"); /* tokens, loss and Bayes' loss, each */
        for (int b = 0; b < c->bins; b++) {
            json_write_int(w, NULL, c->by_position[b].tokens);
            json_write_real(w, NULL, c->by_position[b].nll);
            json_write_real(w, NULL, c->bayes_by_position[b]);
        }
        json_write_end(w);
    }
    json_write_end(w);
}

static void write_task(struct json_writer *w, const alibi_experiment *e, int model, int seed, int v,
                       int task, const struct alibi_task_result *r)
{
    struct alibi_tasks asked = tasks_asked(e, model, seed, v, task);

    json_write_object(w, NULL);
    json_write_string(w, "evaluation", e->evaluation[v].name);
    json_write_int(w, "text", evaluated_text(e, model, v)->text_checksum);
    json_write_string(w, "task", asked.tasks.at[0]);
    json_write_int(w, "near", asked.length);
    json_write_int(w, "asked_cases", asked.cases);
    json_write_int(w, "depths", asked.depths);
    json_write_int(w, "seed", asked.seed);
    json_write_bool(w, "learned", r->learned);
    json_write_bool(w, "has_depth", r->has_depth);
    json_write_bool(w, "chain", r->chain);
    json_write_real(w, "chance", r->chance);
    json_write_array(w, "cells");
    for (int i = 0; i < asked.lengths.count; i++)
        write_cell(w, r, &r->at[i], asked.depths);
    json_write_end(w);
    json_write_end(w);
}

void tasks_write(struct json_writer *w, const alibi_experiment *e, int model, int seed)
{
    const struct trained *t = &e->model[model].seed[seed];

    json_write_array(w, "tasks");
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; t->measured[v] && i < evaluation_tests(&e->evaluation[v]); i++)
            if (e->evaluation[v].kind == KIND_TASKS && t->measured[v][i].done)
                write_task(w, e, model, seed, v, i, t->measured[v][i].task);
    json_write_end(w);
}

static double number_at(const json_t *list, int i)
{
    return json_number_value(json_array_get(list, (size_t)i));
}

/* null is NaN: a single case has no error, and a chain in which nothing can be learned no score. */
static alibi_status read_number(const json_t *json, const char *key, double *out, const char *path)
{
    *out = NAN;
    return json_is_null(json_object_get(json, key)) ? ALIBI_OK
                                                    : json_get_real(json, key, out, path);
}

static alibi_status read_cell(const json_t *json, const struct alibi_task_result *r,
                              struct alibi_task_cell *c, int64_t depths, const char *path)
{
    const json_t *by_depth = json_object_get(json, "depths");
    const json_t *positions = json_object_get(json, "positions");
    int64_t why;

    TRY_RETURN(json_get_int(json, "length", 1, INT64_MAX, &c->length, path));
    TRY_RETURN(json_get_int(json, "why", 0, ALIBI_CELL_NO_POSITIONS, &why, path));
    TRY_RETURN(json_get_int(json, "cases", 0, INT64_MAX, &c->cases, path));
    c->why = (int)why;
    if (c->cases == 0)
        return ALIBI_OK;
    TRY_RETURN(read_number(json, "score", &c->score.value, path));
    TRY_RETURN(read_number(json, "error", &c->score.error, path));
    TRY_RETURN(json_get_real(json, "nll", &c->nll, path));
    c->bayes = c->low = c->high = NAN;
    if (!r->chain)
        wilson_interval(c->score.value, (double)c->cases, &c->low, &c->high);
    if (json_array_size(by_depth) != (size_t)(r->has_depth ? 2 * depths : 0) ||
        json_array_size(positions) > 3 * ALIBI_POSITION_BINS || json_array_size(positions) % 3)
        return fail(ALIBI_BAD_INPUT, "'%s': task '%s' at length %lld has other depths or positions",
                    path, r->name, (long long)c->length);
    for (int d = 0; r->has_depth && d < depths; d++) {
        c->depth_answers[d] = (int64_t)number_at(by_depth, 2 * d);
        c->depth_score[d] = c->depth_answers[d] > 0 ? number_at(by_depth, 2 * d + 1) : NAN;
    }
    if (!r->chain)
        return ALIBI_OK;
    TRY_RETURN(json_get_real(json, "bayes", &c->bayes, path));
    c->bins = (int)json_array_size(positions) / 3;
    for (int b = 0; b < c->bins; b++) {
        c->by_position[b] = (struct alibi_position_loss){ bin_first(b), bin_last(b, c->length),
                                                          (int64_t)number_at(positions, 3 * b),
                                                          number_at(positions, 3 * b + 1) };
        c->bayes_by_position[b] = number_at(positions, 3 * b + 2);
    }
    return ALIBI_OK;
}

/* An entry that is not requested in this form is skipped. */
static alibi_status read_task(const json_t *entry, const struct alibi_tasks *asked,
                              struct measured *m, const char *path)
{
    const json_t *cells = json_object_get(entry, "cells");
    int64_t near, cases, depths, seed;
    struct alibi_task_result read = { .learned = json_is_true(json_object_get(entry, "learned")),
                                      .has_depth =
                                          json_is_true(json_object_get(entry, "has_depth")),
                                      .chain = json_is_true(json_object_get(entry, "chain")) };

    TRY_RETURN(json_get_int(entry, "near", 1, INT64_MAX, &near, path));
    TRY_RETURN(json_get_int(entry, "asked_cases", 1, INT64_MAX, &cases, path));
    TRY_RETURN(json_get_int(entry, "depths", 1, ALIBI_DEPTHS_MAX, &depths, path));
    TRY_RETURN(json_get_int(entry, "seed", 0, INT64_MAX, &seed, path));
    if (near != asked->length || cases != asked->cases || depths != asked->depths ||
        seed != asked->seed || json_array_size(cells) != (size_t)asked->lengths.count)
        return ALIBI_OK;
    memcpy(read.name, asked->tasks.at[0], sizeof read.name);
    TRY_RETURN(json_get_real(entry, "chance", &read.chance, path));
    for (int i = 0; i < asked->lengths.count; i++) {
        TRY_RETURN(read_cell(json_array_get(cells, (size_t)i), &read, &read.at[i], depths, path));
        if (read.at[i].length != asked->lengths.at[i])
            return ALIBI_OK;
    }
    *m->task = read;
    m->done = 1;
    return ALIBI_OK;
}

alibi_status tasks_read(const alibi_experiment *e, int model, int seed, const json_t *file,
                        const char *path)
{
    const json_t *list = json_object_get(file, "tasks"), *entry;
    struct trained *t = &e->model[model].seed[seed];
    size_t n;

    json_array_foreach(list, n, entry)
    {
        const char *name, *task;
        int64_t text;

        TRY_RETURN(json_get_text(entry, "evaluation", &name, path));
        TRY_RETURN(json_get_text(entry, "task", &task, path));
        TRY_RETURN(json_get_int(entry, "text", 0, UINT32_MAX, &text, path));
        for (int v = 0; v < e->evaluations; v++)
            for (int i = 0; t->measured[v] && i < evaluation_tests(&e->evaluation[v]); i++) {
                struct alibi_tasks asked;

                if (e->evaluation[v].kind != KIND_TASKS ||
                    strcmp(e->evaluation[v].name, name) != 0 ||
                    strcmp(e->evaluation[v].tasks.tasks.at[i], task) != 0 ||
                    evaluated_text(e, model, v)->text_checksum != text)
                    continue;
                asked = tasks_asked(e, model, seed, v, i);
                TRY_RETURN(read_task(entry, &asked, &t->measured[v][i], path));
            }
    }
    return ALIBI_OK;
}

/* ---- scores over seeds */

const struct alibi_task_cell *tasks_cell(const alibi_experiment *e, int model, int seed,
                                         int evaluation, int task, int length)
{
    const struct measured *m = e->model[model].seed[seed].measured[evaluation];
    const struct alibi_task_cell *cell =
        m != NULL && m[task].done ? &m[task].task->at[length] : NULL;

    return cell != NULL && cell->cases > 0 && !isnan(cell->score.value) ? cell : NULL;
}

static bool is_unlearned(const alibi_experiment *e, int model, int seed, int evaluation, int task,
                         int length)
{
    const struct measured *m = e->model[model].seed[seed].measured[evaluation];

    return m != NULL && m[task].done && m[task].task->at[length].why == ALIBI_CELL_NOT_LEARNED;
}

/* Sums over some seeds. */
struct scores {
    int seeds;
    double sum, squares, errors, cases; /* of scores, and squared errors */
    bool chain;
};

static void add_score(struct scores *s, const struct alibi_task_cell *c)
{
    s->seeds++;
    s->sum += c->score.value;
    s->squares += c->score.value * c->score.value;
    s->errors += c->score.error * c->score.error;
    s->cases += (double)c->cases;
    s->chain = isnan(c->low);
}

/* The mean with the interval of its cases. */
static struct score_mean mean_of(const struct scores *s)
{
    struct score_mean m = { .value = s->sum / s->seeds, .seeds = s->seeds };
    double cases = sqrt(s->errors) / s->seeds, spread = 0;

    if (s->seeds > 1)
        spread = fmax(0, s->squares - s->sum * m.value) / (s->seeds - 1) / s->seeds;
    m.error = sqrt(cases * cases + spread);
    m.low = m.value - student_t(INT64_MAX) * cases;
    m.high = m.value + student_t(INT64_MAX) * cases;
    if (!s->chain)
        wilson_interval(m.value, s->cases, &m.low, &m.high);
    return m;
}

struct score_mean tasks_score(const alibi_experiment *e, int model, int evaluation, int task,
                              int length)
{
    struct scores s = { 0 };
    struct score_mean m = { NAN, NAN, NAN, NAN, 0, 0 };
    int unlearned = 0;

    for (int k = 0; k < e->model[model].seeds.count; k++) {
        const struct alibi_task_cell *c = tasks_cell(e, model, k, evaluation, task, length);

        unlearned += is_unlearned(e, model, k, evaluation, task, length);
        if (c != NULL)
            add_score(&s, c);
    }
    if (s.seeds > 0)
        m = mean_of(&s);
    m.unlearned = unlearned;
    return m;
}

/* ---- claims */

/* The distances from a - b to the ends of its interval. */
static void newcombe(const struct score_mean *a, const struct score_mean *b, double *below,
                     double *above)
{
    *below = hypot(a->value - a->low, b->high - b->value);
    *above = hypot(a->high - a->value, b->value - b->low);
}

static struct score_mean score_of(const struct alibi_task_cell *c, double number)
{
    struct scores s = { 0 };

    if (c == NULL)
        return (struct score_mean){ .value = number, .low = number, .high = number };
    add_score(&s, c);
    return mean_of(&s);
}

/* The seeds that both models have, and whether each of them alone shows a difference. */
struct pairs {
    struct scores left, right;
    double sum, squares; /* of their differences */
    bool up, down;       /* each is clearly above the threshold; below */
};

static void add_pair(struct pairs *p, const struct alibi_task_cell *left,
                     const struct alibi_task_cell *right, double number, double threshold)
{
    struct score_mean a = score_of(left, NAN), b = score_of(right, number);
    double d = a.value - b.value, below, above;

    newcombe(&a, &b, &below, &above);
    p->up &= d - threshold > below;
    p->down &= threshold - d > above;
    p->sum += d;
    p->squares += d * d;
    add_score(&p->left, left);
    if (right != NULL)
        add_score(&p->right, right);
}

/* Whether some seed has not learned the task. Comparing only the other seeds would be a selection.
 */
static bool has_unlearned(const alibi_experiment *e, const struct reference *r)
{
    return r->model >= 0 && tasks_score(e, r->model, r->evaluation, r->task, r->length).unlearned;
}

static struct pairs pairs_of(const alibi_experiment *e, const struct comparison *c,
                             double threshold)
{
    const struct reference *l = &c->left, *r = &c->right;
    const struct alibi_int_list *a = &e->model[l->model].seeds, *b;
    struct pairs p = { .up = true, .down = true };

    for (int k = 0; k < a->count; k++) {
        const struct alibi_task_cell *left =
            tasks_cell(e, l->model, k, l->evaluation, l->task, l->length);

        if (left != NULL && r->model < 0)
            add_pair(&p, left, NULL, r->number, threshold);
        b = r->model < 0 ? NULL : &e->model[r->model].seeds;
        for (int n = 0; left != NULL && b != NULL && n < b->count; n++) {
            const struct alibi_task_cell *right =
                tasks_cell(e, r->model, n, r->evaluation, r->task, r->length);

            if (a->at[k] == b->at[n] && right != NULL)
                add_pair(&p, left, right, NAN, threshold);
        }
    }
    return p;
}

struct outcome score_outcome(const alibi_experiment *e, const struct comparison *c)
{
    double threshold = c->above ? -c->margin : c->margin, spread = 0, below, above;
    struct pairs p = pairs_of(e, c, threshold);
    struct outcome o = { .d = NAN, .error = NAN, .seeds = p.left.seeds };
    struct score_mean left, right = score_of(NULL, c->right.number);
    bool shown;

    o.unlearned = has_unlearned(e, &c->left) || has_unlearned(e, &c->right);
    if (o.seeds == 0 && !o.unlearned)
        o.verdict = ALIBI_CLAIM_NOT_MEASURED;
    if (o.seeds == 0 || o.unlearned)
        return o;
    left = mean_of(&p.left);
    if (p.right.seeds > 0)
        right = mean_of(&p.right);
    o.d = left.value - right.value;
    if (o.seeds > 1)
        spread = sqrt(fmax(0, p.squares - p.sum * o.d) / (o.seeds - 1) / o.seeds);
    o.error = hypot(sqrt(p.left.errors + p.right.errors) / o.seeds, spread);
    newcombe(&left, &right, &below, &above);
    if (o.seeds > 1) {
        below = hypot(below, student_t(o.seeds - 1) * spread);
        above = hypot(above, student_t(o.seeds - 1) * spread);
    }
    shown = o.seeds > 1 && (o.d - threshold > below || threshold - o.d > above);
    if (!shown && !p.up && !p.down)
        return o;
    o.verdict = (o.d > threshold) == c->above ? ALIBI_CLAIM_HOLDS : ALIBI_CLAIM_FAILS;
    o.few_seeds = !shown;
    return o;
}
