/* answers.c - a model's answers to tasks, at its training length and past it
 *
 * The score of a case is the share of its answers that are right. Each token of an answer is
 * predicted after the true tokens before it, so an answer of several tokens is right if greedy
 * decoding would produce it. The chain is scored by its losses. With e the mean of (loss - Bayes'
 * loss) over a window, its score is
 *
 *   1 - mean(e) / (ln k - mean Bayes' loss)        0: equal frequencies, 1: the best prediction
 *
 * The first two tokens of a chain cannot be predicted, so a window of two has no score (NaN).
 *
 * A task is learned if its score at L, with the position of the model's training, is 0.95 or more.
 * Otherwise a failure past that length says nothing about length, so those cells are not measured.
 * The position of the training counts, because a stretched position costs accuracy at L, which must
 * not hide its scores past L. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

enum { TASK_LENGTH_MAX = 1 << 24 };
enum { ANSWER_LOGITS = 1 << 22 }; /* logits on the host that are read together */

static const double learned_score = 0.95;

#define AT(field) offsetof(struct alibi_tasks, field)

static const struct alibi_option options[] = {
    { "tasks", ALIBI_OPTION_NAMES, AT(tasks), 0, 0, NULL, NULL, "LIST",
      "which tasks; default: all that fit" },
    { "cases", ALIBI_OPTION_INT, AT(cases), 1, 1 << 20, NULL, "100", "N",
      "windows per task and length" },
    { "depths", ALIBI_OPTION_INT, AT(depths), 1, ALIBI_DEPTHS_MAX, NULL, "5", "N",
      "equal parts of a window by which scores are listed" },
    { "seed", ALIBI_OPTION_INT, AT(seed), 0, 1e15, NULL, "1", "N", "of the windows" },
};

const struct alibi_option *alibi_tasks_options(int *count)
{
    *count = sizeof options / sizeof *options;
    return options;
}

/* ---- some windows of one task */

struct answering {
    const struct answers_job *job;
    struct workspace *workspace;
    int32_t *inputs, *targets;                      /* [windows of a batch, length] */
    int32_t *list;                                  /* the rows of a batch that are answers */
    bool *right;                                    /* whether the likeliest token of each is */
    int64_t at_once;                                /* rows whose logits are read together */
    float *logits;                                  /* [at_once, V]; NULL: losses only */
    double *bayes;                                  /* [length]; NULL: not the chain */
    struct task_answer (*answer)[TASK_ANSWERS_MAX]; /* [windows of a batch] */
    int *answers;
    int64_t filled; /* first window of the batch that the arrays hold; -1: none */
    struct answers taken;
};

static int64_t rows_from(void *user, int64_t k)
{
    const struct answers_job *job = ((const struct answering *)user)->job;

    return rounds_rows(job->model->device, job->windows.length, job->cases - k);
}

/* Whether the likeliest token is the wanted one. */
static bool is_right(const float *logits, int64_t ids, int32_t wanted)
{
    for (int64_t i = 0; i < ids; i++)
        if (logits[i] > logits[wanted] || (logits[i] == logits[wanted] && i < wanted))
            return false;
    return true;
}

/* The score of each answer of a batch: the share of its tokens that are right or, if answers count
 * as a whole, 1 or 0. Each read of logits waits for the device, so many rows are read together. */
static alibi_status score_answers(struct answering *x, int64_t rows, double *scores)
{
    const struct answers_job *job = x->job;
    int64_t L = job->windows.length, V = job->model->config.vocab, count = 0;
    const bool *right = x->right;

    for (int64_t i = 0; i < rows * L; i++)
        if (x->targets[i] >= 0) /* in the order of the answers */
            x->list[count++] = (int32_t)i;
    for (int64_t from = 0; from < count; from += x->at_once) {
        int64_t some = count - from < x->at_once ? count - from : x->at_once;
        const int32_t *list = x->list + from;

        TRY_RETURN(model_read_listed(x->workspace, list, some, x->logits));
#pragma omp parallel for
        for (int64_t i = 0; i < some; i++)
            x->right[from + i] = is_right(x->logits + i * V, job->ids, x->targets[list[i]]);
    }
    for (int64_t row = 0; row < rows; row++)
        for (int k = 0; k < x->answers[row]; k++) {
            int64_t tokens = x->answer[row][k].count, sum = 0;

            for (int64_t i = 0; i < tokens; i++)
                sum += *right++;
            scores[row * TASK_ANSWERS_MAX + k] = task_traits(job->windows.task).answers_whole
                                                     ? (double)(sum == tokens)
                                                     : (double)sum / (double)tokens;
        }
    return ALIBI_OK;
}

/* losses [L], of the window. */
static void add_chain(struct answers *out, const struct answering *x, int64_t row,
                      const float *losses)
{
    int64_t L = x->job->windows.length;
    double excess = 0;

    task_bayes(&x->job->windows, x->targets + row * L, x->bayes);
    for (int64_t i = 0; i < L; i++) {
        double nll = (double)losses[i];
        int bin = reach_bin(i);

        excess += nll - x->bayes[i];
        out->bayes += x->bayes[i];
        out->bin_tokens[bin]++;
        out->bin_nll[bin] += nll;
        out->bin_bayes[bin] += x->bayes[i];
    }
    excess /= (double)L;
    out->sum += excess;
    out->squares += excess * excess;
}

static void add_answers(struct answers *out, const struct answering *x, int64_t row,
                        const double *scores)
{
    int count = x->answers[row];
    int64_t depths = x->job->depths;
    double sum = 0;

    for (int k = 0; k < count; k++) {
        const struct task_answer *a = &x->answer[row][k];
        int64_t depth = (int64_t)(a->depth * (double)depths);

        depth = depth < depths ? depth : depths - 1;
        out->depth_answers[depth]++;
        out->depth_score[depth] += scores[k];
        sum += scores[k];
    }
    sum /= count;
    out->sum += sum;
    out->squares += sum * sum;
}

/* Adds the losses of a window's answers and, if requested, their scores. */
static alibi_status add_window(struct answers *out, const struct answering *x, int64_t row,
                               const double *scores, const float *nll)
{
    for (int k = 0; k < x->answers[row]; k++) {
        const struct task_answer *a = &x->answer[row][k];

        for (int64_t i = a->first; i < a->first + a->count; i++) {
            if (!isfinite(nll[i]))
                return fail(ALIBI_NUMERIC, "task '%s' at length %lld: the loss is not finite",
                            alibi_task_name(task_kind(x->job->windows.task), NULL),
                            (long long)x->job->windows.length);
            out->nll += (double)nll[i];
        }
        out->tokens += a->count;
    }
    out->cases++;
    if (x->bayes)
        add_chain(out, x, row, nll);
    if (x->logits)
        add_answers(out, x, row, scores);
    return ALIBI_OK;
}

/* ---- their batches */

/* The windows k..k+rows-1, which are a function of their numbers. */
static void fill_batch(struct answering *x, int64_t k, int64_t rows)
{
    int64_t L = x->job->windows.length;

    for (int64_t row = 0; row < rows && x->filled != k; row++) {
        int32_t *targets = x->targets + row * L;

        x->answers[row] =
            task_window(&x->job->windows, k + row, x->inputs + row * L, targets, x->answer[row]);
        task_keep_answers(&x->job->windows, x->answer[row], x->answers[row], targets);
    }
    x->filled = k;
}

/* numbers: the scores [rows, TASK_ANSWERS_MAX] of the answers of a batch, then the losses
 * [rows, length] of its windows. */
static alibi_status run_batch(void *user, int64_t k, int64_t rows, void *numbers)
{
    struct answering *x = user;
    double *scores = numbers;
    float *losses = (float *)(void *)(scores + rows * TASK_ANSWERS_MAX);

    fill_batch(x, k, rows);
    TRY_RETURN(
        model_loss(x->workspace, x->inputs, x->targets, rows, x->job->windows.length, losses));
    if (x->logits)
        TRY_RETURN(score_answers(x, rows, scores));
    return ALIBI_OK;
}

static alibi_status add_batch(void *user, int64_t k, int64_t rows, const void *numbers)
{
    struct answering *x = user;
    int64_t L = x->job->windows.length;
    const double *scores = numbers;
    const float *losses = (const float *)(const void *)(scores + rows * TASK_ANSWERS_MAX);

    fill_batch(x, k, rows);
    for (int64_t row = 0; row < rows; row++)
        TRY_RETURN(
            add_window(&x->taken, x, row, scores + row * TASK_ANSWERS_MAX, losses + row * L));
    if (x->job->progress)
        x->job->progress(x->job->user, rows * L);
    return ALIBI_OK;
}

static alibi_status say_stopped(void *user)
{
    const struct answering *x = user;

    return fail(ALIBI_INTERRUPTED, "tasks: stopped at length %lld, after %lld of %lld cases",
                (long long)x->job->windows.length, (long long)x->taken.cases,
                (long long)x->job->cases);
}

static alibi_status answering_init(struct answering *x)
{
    const struct answers_job *job = x->job;
    int64_t rows = rows_from(x, 0), L = job->windows.length, V = job->model->config.vocab;
    int64_t answered = rows * TASK_ANSWERS_MAX * TASK_ANSWER_TOKENS;
    bool chain = task_traits(job->windows.task).chain;

    TRY_RETURN(task_check(&job->windows));
    TRY_RETURN(NEW_ARRAY(&x->inputs, rows * L, "inputs of a task"));
    TRY_RETURN(NEW_ARRAY(&x->targets, rows * L, "targets of a task"));
    TRY_RETURN(NEW_ARRAY(&x->answer, rows, "answers of a task"));
    TRY_RETURN(NEW_ARRAY(&x->answers, rows, "answers of a task"));
    if (chain)
        TRY_RETURN(NEW_ARRAY(&x->bayes, L, "losses of a chain"));
    if (!chain && job->ids > 0) {
        TRY_RETURN(NEW_ARRAY(&x->list, answered, "answers of a task"));
        TRY_RETURN(NEW_ARRAY(&x->right, answered, "answers of a task"));
        x->at_once = ANSWER_LOGITS / V > 0 ? ANSWER_LOGITS / V : 1;
        x->at_once = x->at_once < answered ? x->at_once : answered;
        TRY_RETURN(NEW_ARRAY(&x->logits, x->at_once * V, "logits of answers"));
    }
    return workspace_new(&x->workspace, job->model, &(struct pass_settings){ .skip = job->skip });
}

alibi_status answers_take(struct answers *out, const struct answers_job *job)
{
    alibi_status status;
    struct answering x = { .job = job, .filled = -1 };
    size_t row = TASK_ANSWERS_MAX * sizeof(double) + (size_t)job->windows.length * sizeof(float);

    status = answering_init(&x);
    TRY(comm_agree(call_comm(job->call), status));
    TRY(rounds_run(&(struct rounds){ .call = job->call,
                                     .count = job->cases,
                                     .bytes = (size_t)rows_from(&x, 0) * row,
                                     .user = &x,
                                     .rows = rows_from,
                                     .compute = run_batch,
                                     .add = add_batch,
                                     .stopped = say_stopped }));
    *out = x.taken;
out:
    workspace_free(x.workspace);
    mem_free(x.inputs);
    mem_free(x.targets);
    mem_free(x.list);
    mem_free(x.right);
    mem_free(x.logits);
    mem_free(x.bayes);
    mem_free(x.answer);
    mem_free(x.answers);
    return status;
}

/* ---- the probe: tasks by lengths */

struct probe {
    const struct model *model;
    struct model trained; /* the same weights with the position of their training */
    bool other;           /* whether that differs from the position of `model` */
    const alibi_tokenizer *tokenizer;
    struct span text;
    struct alibi_tasks request; /* resolved */
    const struct alibi_call *call;
    char name[ALIBI_NAME_MAX + 32]; /* of what is being measured */
    int64_t read, to_read;          /* tokens */
    double started, reported;
};

static alibi_status resolve(struct alibi_tasks *r, const struct model *m)
{
    struct alibi_option_group group = { "tasks", options, sizeof options / sizeof *options, r };
    struct alibi_int_list *l = &r->lengths;
    bool given = l->count > 0, there = false;

    TRY_RETURN(options_check(&group, 1));
    r->length = r->length > 0 ? r->length : m->config.train_length;
    if (r->length < 1 || r->length > TASK_LENGTH_MAX)
        return fail(ALIBI_USAGE, "length %lld: give one from 1 to %d with --length",
                    (long long)r->length, TASK_LENGTH_MAX);
    for (int i = 0; i < r->tasks.count; i++) {
        int kind;

        TRY_RETURN(task_named(&kind, r->tasks.at[i]));
        snprintf(r->tasks.at[i], sizeof r->tasks.at[i], "%s", alibi_task_name(kind, NULL));
    }
    for (int64_t factor = 1; !given && factor <= 16; factor *= 2)
        l->at[l->count++] = r->length * factor;
    for (int i = 0; i < l->count; i++) {
        if (l->at[i] < 1 || l->at[i] > TASK_LENGTH_MAX)
            return fail(ALIBI_USAGE, "length %lld: it must be from 1 to %d", (long long)l->at[i],
                        TASK_LENGTH_MAX);
        there = there || l->at[i] == r->length;
    }
    if (!there && l->count == ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "%d lengths: there is no room for %lld among them", l->count,
                    (long long)r->length);
    if (!there)
        l->at[l->count++] = r->length;
    list_sort(l);
    return model_check_length(m, r->length);
}

static struct task_windows probe_windows(const struct probe *p, const struct task *task,
                                         int64_t length)
{
    return (struct task_windows){ .task = task,
                                  .text = p->text,
                                  .near = p->request.length,
                                  .length = length,
                                  .seed = (uint64_t)p->request.seed,
                                  .use = TASK_PROBE };
}

/* Whether a task fits, at every length that the position method supports. */
static alibi_status fits(const struct probe *p, int kind)
{
    alibi_status status;
    struct task *task = NULL;

    TRY(task_new(&task, kind, p->tokenizer));
    for (int i = 0; i < p->request.lengths.count; i++) {
        struct task_windows w = probe_windows(p, task, p->request.lengths.at[i]);

        if (w.length <= model_longest(p->model))
            TRY(task_check(&w));
    }
out:
    task_free(task);
    return status;
}

/* A task that was requested must fit. If none was, all that fit are chosen. */
static alibi_status choose_tasks(struct probe *p)
{
    struct alibi_name_list *list = &p->request.tasks;
    const char *name;
    bool given = list->count > 0;

    for (int i = 0; i < list->count; i++)
        TRY_RETURN(fits(p, task_find(list->at[i])));
    for (int kind = 0; !given && (name = alibi_task_name(kind, NULL)) != NULL; kind++) {
        alibi_status status = fits(p, kind);

        if (status == ALIBI_OK)
            snprintf(list->at[list->count++], sizeof *list->at, "%s", name);
        else if (status == ALIBI_BAD_INPUT)
            call_note(p->call, "skipped: %s", alibi_error());
        else
            return status;
    }
    return ALIBI_OK;
}

static void report(void *user, int64_t tokens)
{
    struct probe *p = user;

    p->read += tokens;
    report_tokens(p->call, p->name, p->read, p->to_read, NAN, p->started, &p->reported);
}

/* ---- from sums to cells */

static void fill_cell(struct alibi_task_cell *cell, const struct answers *a, double chance,
                      bool chain, int64_t depths)
{
    double n = (double)a->cases, mean = a->sum / n;
    double error = n > 1 ? sqrt(fmax(0, a->squares / n - mean * mean) / (n - 1)) : (double)NAN;

    cell->cases = a->cases;
    cell->nll = a->nll / (double)a->tokens;
    cell->score = (struct alibi_estimate){ mean, error };
    cell->bayes = cell->low = cell->high = (double)NAN;
    if (chain) {
        double room, rounding = 1e-9;

        cell->bayes = a->bayes / (double)a->tokens;
        room = chance - cell->bayes > rounding ? chance - cell->bayes : (double)NAN;
        cell->score.value = 1 - mean / room;
        cell->score.error = error / room;
    } else { /* a case of several answers varies less, so the interval is not too small */
        wilson_interval(mean, n, &cell->low, &cell->high);
    }
    for (int64_t d = 0; d < depths; d++) {
        cell->depth_answers[d] = a->depth_answers[d];
        cell->depth_score[d] =
            a->depth_answers[d] > 0 ? a->depth_score[d] / (double)a->depth_answers[d] : (double)NAN;
    }
    for (int b = 0; b < ALIBI_POSITION_BINS && a->bin_tokens[b] > 0; b++) {
        cell->by_position[b] =
            (struct alibi_position_loss){ bin_first(b), bin_last(b, cell->length), a->bin_tokens[b],
                                          a->bin_nll[b] / (double)a->bin_tokens[b] };
        cell->bayes_by_position[b] = a->bin_bayes[b] / (double)a->bin_tokens[b];
        cell->bins = b + 1;
    }
}

static alibi_status measure_cell(struct probe *p, const struct model *model,
                                 const struct task *task, struct alibi_task_result *r,
                                 struct alibi_task_cell *cell)
{
    struct answers_job job = { .model = model,
                               .windows = probe_windows(p, task, cell->length),
                               .cases = p->request.cases,
                               .depths = p->request.depths,
                               .ids = alibi_tokenizer_vocab(p->tokenizer),
                               .skip = call_skip(p->call),
                               .call = p->call,
                               .progress = report,
                               .user = p };
    struct answers answers;

    snprintf(p->name, sizeof p->name, "%s %lld", r->name, (long long)cell->length);
    TRY_RETURN(answers_take(&answers, &job));
    r->chance = task_chance(&job.windows);
    fill_cell(cell, &answers, r->chance, r->chain, p->request.depths);
    return ALIBI_OK;
}

static alibi_status measure_task(struct probe *p, struct alibi_task_result *r)
{
    alibi_status status;
    int64_t L = p->request.length, trained = p->model->config.train_length;
    struct alibi_task_cell as_trained = { .length = L };
    struct task *task = NULL;

    TRY(task_new(&task, task_find(r->name), p->tokenizer));
    r->chain = task_traits(task).chain;
    r->has_depth = task_traits(task).has_depth;
    r->trained = (struct alibi_estimate){ NAN, NAN };
    if (p->other) {
        TRY(measure_cell(p, &p->trained, task, r, &as_trained));
        r->trained = as_trained.score;
        r->learned = r->trained.value >= learned_score;
    }
    for (int i = 0; i < p->request.lengths.count; i++) { /* ascending: L is before those past it */
        struct alibi_task_cell *cell = &r->at[i];

        cell->length = p->request.lengths.at[i];
        if (cell->length > model_longest(p->model))
            cell->why = ALIBI_CELL_NO_POSITIONS;
        else if (cell->length > L && cell->length > trained && !r->learned)
            cell->why = ALIBI_CELL_NOT_LEARNED;
        if (cell->why != ALIBI_CELL_MEASURED) {
            p->to_read -= cell->length * p->request.cases;
            continue;
        }
        TRY(measure_cell(p, p->model, task, r, cell));
        if (cell->length == L && !p->other)
            r->learned = cell->score.value >= learned_score;
    }
out:
    task_free(task);
    return status;
}

alibi_status tasks_trim(struct alibi_tasks *tasks, const alibi_tokenizer *t, struct span text)
{
    alibi_status status;
    struct probe p = { .text = text, .request = *tasks };
    struct alibi_int_list *l = &tasks->lengths;
    struct task *task = NULL;

    TRY(task_new(&task, task_find(tasks->tasks.at[0]), t));
    l->count = 0;
    for (int i = 0; i < p.request.lengths.count; i++) {
        struct task_windows w = probe_windows(&p, task, p.request.lengths.at[i]);

        status = task_check(&w);
        if (status == ALIBI_OK)
            l->at[l->count++] = w.length;
        else if (w.length == tasks->length || status != ALIBI_BAD_INPUT)
            goto out;
    }
    status = ALIBI_OK;
out:
    task_free(task);
    return status;
}

alibi_status alibi_tasks_check(const alibi_model *model, const struct alibi_tasks *tasks)
{
    struct alibi_tasks resolved = *tasks;

    return resolve(&resolved, model->model);
}

static alibi_status prepare(struct probe *p, const alibi_model *model, const alibi_corpus *corpus)
{
    p->trained = *p->model; /* shares its buffers */
    p->other = model->trained[0] != '\0' && strcmp(model->trained, p->model->config.position) != 0;
    if (p->other)
        TRY_RETURN(model_set_position(&p->trained, model->trained));
    TRY_RETURN(resolve(&p->request, p->model));
    TRY_RETURN(evaluate_check_vocab(p->model, p->tokenizer, "the model"));
    TRY_RETURN(evaluate_check_tokenizer(model->tokenizer, corpus));
    return choose_tasks(p);
}

static alibi_status check_ranks(const struct probe *p, const alibi_model *model,
                                const alibi_corpus *corpus)
{
    const struct alibi_tasks *t = &p->request;
    int64_t request[5 + 2 * ALIBI_LIST_MAX] = { p->text.count, t->length, t->cases, t->depths,
                                                t->seed };

    memcpy(request + 5, t->lengths.at, (size_t)t->lengths.count * sizeof *request);
    for (int i = 0; i < t->tasks.count; i++)
        request[5 + ALIBI_LIST_MAX + i] = 1 + task_find(t->tasks.at[i]);
    return rounds_check(model, corpus, request, sizeof request, p->call);
}

alibi_status alibi_probe_tasks(struct alibi_tasks_result **out, const alibi_model *model,
                               const alibi_corpus *corpus, enum alibi_split split,
                               const struct alibi_tasks *tasks, const struct alibi_call *call)
{
    alibi_status status;
    struct probe p = { .model = model->model,
                       .tokenizer = model->tokenizer,
                       .text = corpus_span(corpus, split),
                       .request = *tasks,
                       .call = call };
    struct alibi_tasks_result *r = NULL;

    status = prepare(&p, model, corpus);
    if (status == ALIBI_OK)
        status = NEW_ZERO_ARRAY(&r, 1, "the result of a probe");
    if (status == ALIBI_OK)
        status = NEW_ZERO_ARRAY(&r->task, p.request.tasks.count, "the result of a probe");
    TRY(comm_agree(call_comm(call), status));
    TRY(check_ranks(&p, model, corpus));
    r->request = p.request;
    r->tasks = p.request.tasks.count;
    p.to_read = p.other ? p.request.length * p.request.cases * r->tasks : 0;
    for (int i = 0; i < p.request.lengths.count; i++)
        p.to_read += p.request.lengths.at[i] * p.request.cases * r->tasks;
    p.started = p.reported = clock_seconds();
    for (int i = 0; i < r->tasks; i++) {
        memcpy(r->task[i].name, p.request.tasks.at[i], sizeof r->task[i].name);
        TRY(measure_task(&p, &r->task[i]));
    }
    report(&p, 0); /* to_read has lost the cells that were not measured: all is done */
    r->seconds = clock_seconds() - p.started;
    *out = r;
    r = NULL;
out:
    alibi_tasks_free(r);
    return status;
}

void alibi_tasks_free(struct alibi_tasks_result *result)
{
    if (result)
        mem_free(result->task);
    mem_free(result);
}
