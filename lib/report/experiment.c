/* experiment.c - the results of an experiment: verdicts first, then tables */
#include <math.h>

#include "report/parts.h"

/* ---- sentences */

const char *verdict_name(enum alibi_verdict verdict)
{
    static const char *const names[] = { "not shown", "holds", "does not hold", "not measured" };

    return names[verdict];
}

struct shown show_number(const struct report_number *n)
{
    struct shown s;

    if (n->quantity == 'B')
        return show_bytes(n->value);
    if (n->quantity == 'p')
        return show_real(n->value, 3);
    if (n->quantity != 's')
        return show_ppl(n->value);
    snprintf(s.text, sizeof s.text, "%.12s s per 1M tokens", show_real(1e6 * n->value, 2).text);
    return s;
}

struct shown show_number_error(const struct report_number *n)
{
    struct shown s = { "" };

    if (n->quantity == 's' || n->quantity == 'B' || n->name[0] == '\0')
        return s;
    if (n->quantity != 'p')
        return show_ppl_error(n->value, n->error);
    if (isfinite(n->error) && n->error > 0)
        snprintf(s.text, sizeof s.text, "±%.12s", show_error(n->error, 3).text);
    return s;
}

struct shown show_paper(const struct report_number *n)
{
    return n->quantity == 'p' && !isnan(n->paper) ? show_real(n->paper, 3) : show_ppl(n->paper);
}

void append_measured(struct text *out, const struct report_comparison *c)
{
    if (c->left.quantity != 'p') {
        append_ratio(out, c->d, c->error);
        return;
    }
    text_append(out, "%s", show_real(fabs(c->d), 3).text);
    if (c->error > 0)
        text_append(out, " ± %s", show_error(c->error, 3).text);
    text_append(out, c->d < 0 ? " lower" : " higher");
}

const char *verdict_scope(const struct report_comparison *c, int count)
{
    const char *scope = "";

    for (int i = 0; i < count; i++) {
        if (c[i].few_seeds && c[i].seeds > 1)
            return "in these seeds";
        if (c[i].few_seeds)
            scope = "in this one seed";
    }
    return scope;
}

/* "27.3 ± 0.1 (paper: 19.7)" */
static void append_number(struct text *out, const struct report_number *n)
{
    if (n->name[0] != '\0')
        text_append(out, "%s has ", n->name);
    text_append(out, "%s%s", show_number(n).text, show_number_error(n).text);
    if (!isnan(n->paper))
        text_append(out, " (paper: %s)", show_paper(n).text);
}

void append_unfinished(struct text *out, const struct report_experiment *x)
{
    text_append(out,
                "Unfinished: %d of %d trainings are done, and %d of %d models have all their "
                "results (each seed of a model counts).",
                x->trained, x->trainings, x->training.done, x->training.models);
}

void append_asked(struct text *out, const struct report_comparison *c)
{
    double percent = 100 * expm1(fabs(c->margin));
    bool score = c->left.quantity == 'p';

    text_append(out, "%s", c->above ? "higher" : "lower");
    if (c->margin != 0 && score)
        text_append(out, c->margin < 0 ? " by %s" : ", or within %s",
                    show_real(fabs(c->margin), 3).text);
    else if (c->margin != 0)
        text_append(out, c->margin < 0 ? " by %s%%" : ", or within %s%%",
                    show_real(percent, percent < 9.95 ? 1 : 0).text);
}

void append_comparison(struct text *out, const struct report_comparison *c)
{
    append_number(out, &c->left);
    text_append(out, ", and ");
    if (c->right.name[0] == '\0')
        text_append(out, "the bound is ");
    append_number(out, &c->right);
    if (isnan(c->d))
        text_append(out, "; one has no value");
    else {
        text_append(out, ": ");
        append_measured(out, c);
    }
    text_append(out, ". Asked for: ");
    append_asked(out, c);
    text_append(out, ": %s%s%s%s.", verdict_name(c->verdict),
                c->ignorant    ? ", since a model has learned nothing"
                : c->unlearned ? ", since the task was not learned at the training length"
                               : "",
                c->few_seeds ? " " : "", verdict_scope(c, 1));
}

/* ---- costs */

/* The cells of a row: training and evaluation, each tokens per second, its error, and memory. */
void cost_cells(struct shown cells[4], const struct report_cost *c)
{
    const double seconds[] = { c->train_seconds, c->eval_seconds };
    const double errors[] = { c->train_error, c->eval_error };
    const double memory[] = { c->train_memory, c->eval_memory };

    for (int i = 0; i < 2; i++) {
        /* No error: results of an older version, which measured all others relative to this one. */
        snprintf(cells[2 * i].text, sizeof cells[0].text,
                 errors[i] > 0 ? "%.12s ±%.12s%%" : "%.12s", show_count(1 / seconds[i]).text,
                 show_error(100 * errors[i], 1).text);
        cells[2 * i + 1] = show_bytes(memory[i]);
    }
}

static alibi_status append_costs(struct text *out, const struct report_experiment *x, bool colour)
{
    static const char *const heads[] = { "model",   " length",     " train tok/s",
                                         " memory", " eval tok/s", " memory" };
    struct table t;

    if (x->costs == 0)
        return ALIBI_OK;
    TRY_RETURN(table_init(&t, 1 + x->costs, 6));
    for (int i = 0; i < 6; i++)
        table_set(&t, 0, i, "%s", heads[i]);
    for (int i = 0; i < x->costs; i++) {
        struct shown cells[4];

        cost_cells(cells, &x->cost[i]);
        table_set(&t, 1 + i, 0, "%s", x->model[x->cost[i].method]);
        table_set(&t, 1 + i, 1, " %lld", (long long)x->cost[i].length);
        for (int k = 0; k < 4; k++)
            table_set(&t, 1 + i, 2 + k, " %s", cells[k].text);
    }
    text_append(out, "speed, on %s\n\n", x->cost[0].machine);
    table_append(out, &t, 1, 6, colour);
    table_fini(&t);
    text_append(out, "\n");
    return ALIBI_OK;
}

/* ---- fixed targets and attention */

/* "0.0123 ±0.0004"; the gain of L over itself has no error. */
static struct shown show_estimate(struct alibi_estimate e)
{
    struct shown s = show_nats(e.value);

    if (isfinite(e.value) && isfinite(e.error) && e.error > 0)
        snprintf(s.text, sizeof s.text, "%.12s ±%.12s", show_nats(e.value).text,
                 show_error(e.error, 4).text);
    return s;
}

/* Explains the columns as `alibi probe targets` does. */
static void append_targets_legend(struct text *out, const struct report_targets *t, int columns)
{
    char near[48] = "L is the training length";

    if (t->near > 0)
        snprintf(near, sizeof near, "L = %lld", (long long)t->near);
    text_append(out, "%s; in nats per token:\n", near);
    append_wrapped(out,
                   "gain: nll with L tokens of context - nll with these; swapped: the gain that "
                   "remains if text beyond L is from another document; window: the gain that "
                   "remains if attention is cut to the last L keys; gain of repeats: that of "
                   "targets whose n-gram is in the text beyond L, and not nearer; ±: one standard "
                   "error, of the text and of the seeds.",
                   columns, 0);
    text_append(out, "\n");
}

/* The context is part of the first column, which every part of the table has. */
static alibi_status append_targets(struct text *out, const struct report_experiment *x,
                                   const struct report_targets *t, int columns, bool colour)
{
    static const char *const heads[] = { " nll", " gain", " swapped", " window",
                                         " gain of repeats" };
    struct table table;
    int row = 1, widest = 5;

    if (t->models == 0)
        return ALIBI_OK;
    for (int m = 0; m < t->models; m++)
        widest = (int)fmax(widest, display_width(x->model[t->model[m].method]));
    TRY_RETURN(table_init(&table, 1 + t->models * t->contexts, 6));
    table_set(&table, 0, 0, "%-*s  context", widest, "model");
    for (int i = 0; i < 5; i++)
        table_set(&table, 0, 1 + i, "%s", heads[i]);
    for (int m = 0; m < t->models; m++)
        for (int c = 0; c < t->contexts; c++, row++) {
            const struct report_targets_model *model = &t->model[m];
            const struct alibi_target_context *at = &model->kind[ALIBI_ALL_TARGETS].at[c];
            const struct alibi_estimate cells[] = { at->nll, at->gain, at->swapped, at->window,
                                                    model->kind[ALIBI_REPEATS].at[c].gain };

            table_set(&table, row, 0, "%-*s %8lld", widest, c == 0 ? x->model[model->method] : "",
                      (long long)at->context);
            for (int i = 0; i < 5; i++)
                table_set(&table, row, 1 + i, " %s", show_estimate(cells[i]).text);
        }
    text_append(out,
                "%s: fixed targets with growing context, %lld blocks of %lld in %lld document%s\n"
                "\n",
                t->name, (long long)t->blocks, (long long)t->block, (long long)t->documents,
                t->documents == 1 ? "" : "s");
    table_append_parts(out, &table, columns, table.columns, colour);
    table_fini(&table);
    text_append(out, "\n");
    append_targets_legend(out, t, columns);
    if (t->few)
        text_append(out, "Errors treat the blocks of few documents as independent, so they are too "
                         "small.\n\n");
    return ALIBI_OK;
}

struct alibi_head_attention attention_mean(const struct report_attention_model *m)
{
    struct alibi_head_attention mean = { .beyond = 0 };
    double heads = 0;

    for (int k = 0; k < m->seeds; k++)
        heads += (double)(m->seed[k]->layers * m->seed[k]->heads);
    for (int k = 0; k < m->seeds; k++)
        for (int64_t i = 0; i < m->seed[k]->layers * m->seed[k]->heads; i++) {
            const struct alibi_head_attention *h = &m->seed[k]->head[i];

            mean.beyond += h->beyond / heads;
            mean.distance += h->distance / heads;
            mean.entropy += h->entropy / heads;
            for (int b = 0; b < m->seed[k]->bins; b++)
                mean.share[b] += h->share[b] / heads;
        }
    return mean;
}

/* A line per length and model, and what a head would have that gives all keys the same weight. */
static alibi_status append_attention(struct text *out, const struct report_experiment *x,
                                     bool colour)
{
    static const char *const heads[] = {
        "model", " length", " mean distance", " if equal", " farther than near", " if equal"
    };
    struct table t;
    int rows = 0;

    for (int i = 0; i < x->attentions; i++)
        rows += x->attention[i].models;
    if (rows == 0)
        return ALIBI_OK;
    TRY_RETURN(table_init(&t, 1 + rows, 6));
    for (int i = 0; i < 6; i++)
        table_set(&t, 0, i, "%s", heads[i]);
    for (int i = 0, row = 1; i < x->attentions; i++)
        for (int m = 0; m < x->attention[i].models; m++, row++) {
            const struct report_attention_model *model = &x->attention[i].model[m];
            const struct alibi_head_attention *equal = &model->seed[0]->uniform;
            struct alibi_head_attention mean = attention_mean(model);

            table_set(&t, row, 0, "%s", x->model[model->method]);
            table_set(&t, row, 1, " %lld", (long long)x->attention[i].length);
            table_set(&t, row, 2, " %s", show_real(mean.distance, 1).text);
            table_set(&t, row, 3, " %s", show_real(equal->distance, 1).text);
            table_set(&t, row, 4, " %s", show_share(mean.beyond).text);
            table_set(&t, row, 5, " %s", show_share(equal->beyond).text);
        }
    text_append(out, "attention by distance, mean of all heads\n\n");
    table_append(out, &t, 1, 6, colour);
    table_fini(&t);
    text_append(out, "\n");
    return ALIBI_OK;
}

/* ---- tasks */

struct shown show_score(const struct report_score *s)
{
    struct shown out = { NO_VALUE };

    if (s->unlearned > 0 && s->seeds == 0)
        snprintf(out.text, sizeof out.text, "not learned");
    else if (s->unlearned > 0)
        snprintf(out.text, sizeof out.text, "learned in %d of %d", s->seeds,
                 s->seeds + s->unlearned);
    else if (s->seeds > 0 && s->error > 0)
        snprintf(out.text, sizeof out.text, "%.12s ±%.12s", show_real(s->score, 3).text,
                 show_error(s->error, 3).text);
    else if (s->seeds > 0)
        out = show_real(s->score, 3);
    return out;
}

/* A line per model, a column per length. */
static alibi_status append_task(struct text *out, const struct report_experiment *x,
                                const struct report_task *t, bool colour)
{
    struct table table;

    if (t->models == 0)
        return ALIBI_OK;
    TRY_RETURN(table_init(&table, 1 + t->models, 1 + t->lengths->count));
    table_set(&table, 0, 0, "model");
    for (int i = 0; i < t->lengths->count; i++)
        table_set(&table, 0, 1 + i, " %lld", (long long)t->lengths->at[i]);
    for (int m = 0; m < t->models; m++) {
        table_set(&table, 1 + m, 0, "%s", x->model[t->model[m].method]);
        for (int i = 0; i < t->lengths->count; i++)
            table_set(&table, 1 + m, 1 + i, " %s", show_score(&t->model[m].at[i]).text);
    }
    text_append(out, "%s: score of %s by length, %lld cases each", t->name, t->task,
                (long long)t->cases);
    if (!t->chain)
        text_append(out, ", chance %.2g", t->chance);
    text_append(out, "\n\n");
    table_append(out, &table, 1, 1 + t->lengths->count, colour);
    table_fini(&table);
    text_append(out, "\n");
    return ALIBI_OK;
}

/* Losses by position in the longest window: a line per range of positions, a column per model. */
static alibi_status append_chain(struct text *out, const struct report_experiment *x,
                                 const struct report_task *t, int columns, bool colour)
{
    const struct report_task_model *longest = chain_longest(t);
    struct table table;

    if (longest == NULL)
        return ALIBI_OK;
    TRY_RETURN(table_init(&table, 1 + longest->bins, 2 + t->models));
    table_set(&table, 0, 0, "position");
    table_set(&table, 0, 1, " Bayes");
    for (int b = 0; b < longest->bins; b++) {
        const struct report_position *p = &longest->position[b];

        table_set(&table, 1 + b, 0, "%lld to %lld", (long long)p->first, (long long)p->last);
        table_set(&table, 1 + b, 1, " %s", show_real(p->bayes, 4).text);
    }
    for (int m = 0; m < t->models; m++) {
        const struct report_task_model *model = &t->model[m];

        table_set(&table, 0, 2 + m, " %s", x->model[model->method]);
        for (int b = 0; b < longest->bins; b++)
            table_set(&table, 1 + b, 2 + m, " %s",
                      knows_chain(t, model) && b < model->bins
                          ? show_real(model->position[b].nll, 4).text
                          : NO_VALUE);
    }
    text_append(out,
                "%s: loss of %s by position in windows of %lld tokens, and the lowest that is "
                "possible\n\n",
                t->name, t->task, (long long)longest->length);
    table_append_parts(out, &table, columns, 2, colour);
    table_fini(&table);
    text_append(out, "\n");
    return ALIBI_OK;
}

/* ---- the terminal */

static void append_claims(struct text *out, const struct report_experiment *x, int columns,
                          bool colour)
{
    static const char *const colours[] = { "\x1b[33m", "\x1b[32m", "\x1b[31m", "\x1b[33m" };
    size_t start = out->length;

    for (int i = 0; i < x->claims; i++) {
        const struct report_claim *c = &x->claim[i];
        struct text line = { 0 };

        text_append(out, "%d. ", i + 1);
        text_append(&line, "%s%s%s%s%s: ", colour ? colours[c->claim.verdict] : "",
                    verdict_name(c->claim.verdict), c->claim.few_seeds ? " " : "",
                    c->claim.few_seeds ? verdict_scope(c->comparison, c->count) : "",
                    colour ? "\x1b[0m" : "");
        text_append(&line, "%s%s%s%s", c->claim.claim, c->claim.where[0] ? " (" : "",
                    c->claim.where, c->claim.where[0] ? ")" : "");
        if (c->claim.paper[0])
            text_append(&line, " Paper: %s", c->claim.paper);
        text_append(&line, " ");
        if (line.status == ALIBI_OK)
            append_wrapped(out, line.data, columns, i < 9 ? 3 : 4);
        for (int k = 0; k < c->count; k++) {
            line.length = 0;
            append_comparison(&line, &c->comparison[k]);
            text_append(out, "   - ");
            if (line.status == ALIBI_OK)
                append_wrapped(out, line.data, columns, 5);
        }
        text_append(out, "\n");
        text_free(&line);
    }
    if (factor_since(out, start))
        text_append(out, "%s\n\n", FACTOR_KEY);
}

alibi_status report_experiment_text(struct text *out, const struct report_experiment *x,
                                    int columns, bool colour)
{
    columns = columns < 40 ? 40 : columns > 140 ? 140 : columns;
    text_append(out, "%s%s%s%s\n", x->title, x->tier[0] ? " (tier " : "", x->tier,
                x->tier[0] ? ")" : "");
    if (x->training.done < x->training.models) {
        append_unfinished(out, x);
        text_append(out, "\n");
    }
    text_append(out, "\n");
    for (int i = 0; i < x->targets; i++)
        TRY_RETURN(verdict_text(out, x, &x->target[i], columns, colour));
    append_claims(out, x, columns, colour);
    if (x->derived.length > 0)
        text_append(out, "%s\n", x->derived.data);
    for (int i = 0; i < x->sections; i++) {
        const struct report_section *s = &x->section[i];
        char caption[ALIBI_NAME_MAX + sizeof s->heading + 2];
        struct view v;

        view_init_part(&v, s->result, x);
        if (v.lengths == 0)
            continue;
        snprintf(caption, sizeof caption, "%s: %s", s->name, s->heading);
        TRY_RETURN(append_caption(out, &v, columns, caption));
        TRY_RETURN(append_perplexities(out, &v, columns, colour));
        append_key(out, &v, columns, colour, "");
        TRY_RETURN(append_rule_lines(out, &v, columns));
        text_append(out, "\n");
    }
    for (int i = 0; i < x->targets; i++)
        TRY_RETURN(append_targets(out, x, &x->target[i], columns, colour));
    for (int i = 0; i < x->tasks; i++) {
        TRY_RETURN(append_task(out, x, &x->task[i], colour));
        if (x->task[i].chain)
            TRY_RETURN(append_chain(out, x, &x->task[i], columns, colour));
    }
    TRY_RETURN(append_attention(out, x, colour));
    for (int i = 0; i < x->streams; i++)
        TRY_RETURN(stream_text(out, x, &x->stream[i], colour));
    TRY_RETURN(append_costs(out, x, colour));
    return text_status(out);
}
