/* experiment.c - the results of an experiment: verdicts first, then tables */
#include <math.h>
#include <string.h>

#include "report/parts.h"

/* ---- sentences */

const char *verdict_name(enum alibi_verdict verdict)
{
    static const char *const names[] = { "not shown", "holds", "does not hold" };

    return names[verdict];
}

struct shown show_number(const struct report_number *n)
{
    struct shown s;

    if (n->quantity == 'B')
        return show_bytes(n->value);
    if (n->quantity != 's')
        return show_ppl(n->value);
    snprintf(s.text, sizeof s.text, "%.12s s per 1M tokens", show_real(1e6 * n->value, 2).text);
    return s;
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
    text_append(out, "%s", show_number(n).text);
    if (n->quantity != 's' && n->quantity != 'B')
        text_append(out, "%s", show_ppl_error(n->value, n->name[0] ? n->error : NAN).text);
    if (!isnan(n->paper))
        text_append(out, " (paper: %s)", show_ppl(n->paper).text);
}

void append_asked(struct text *out, const struct report_comparison *c)
{
    double percent = 100 * expm1(fabs(c->margin));

    text_append(out, "%s", c->above ? "higher" : "lower");
    if (c->margin != 0)
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
        append_ratio(out, c->d, c->error);
    }
    text_append(out, ". Asked for: ");
    append_asked(out, c);
    text_append(out, ": %s%s%s%s.", verdict_name(c->verdict),
                c->ignorant ? ", since a model has learned nothing" : "", c->few_seeds ? " " : "",
                verdict_scope(c, 1));
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
        table_set(&t, 1 + i, 0, "%s", x->cost[i].model);
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

/* ---- the terminal */

static void append_claims(struct text *out, const struct report_experiment *x, int columns,
                          bool colour)
{
    static const char *const colours[] = { "\x1b[33m", "\x1b[32m", "\x1b[31m" };

    for (int i = 0; i < x->claims; i++) {
        const struct report_claim *c = &x->claim[i];
        struct text line = { 0 };

        text_append(out, "%d. %s%s%s%s%s: ", i + 1, colour ? colours[c->claim.verdict] : "",
                    verdict_name(c->claim.verdict), c->claim.few_seeds ? " " : "",
                    c->claim.few_seeds ? verdict_scope(c->comparison, c->count) : "",
                    colour ? "\x1b[0m" : "");
        text_append(&line, "%s%s%s%s", c->claim.claim, c->claim.where[0] ? " (" : "",
                    c->claim.where, c->claim.where[0] ? ")" : "");
        if (c->claim.paper[0])
            text_append(&line, " Paper: %s", c->claim.paper);
        text_append(&line, " ");
        if (line.status == ALIBI_OK)
            append_wrapped(out, line.data, columns, 0);
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
}

alibi_status report_experiment_text(struct text *out, const struct report_experiment *x,
                                    int columns, bool colour)
{
    columns = columns < 40 ? 40 : columns > 140 ? 140 : columns;
    text_append(out, "%s%s%s%s\n", x->title, x->tier[0] ? " (tier " : "", x->tier,
                x->tier[0] ? ")" : "");
    if (x->training.done < x->training.models)
        text_append(out, "Unfinished: %d of %d models are trained and tested.\n", x->training.done,
                    x->training.models);
    text_append(out, "\n");
    append_claims(out, x, columns, colour);
    for (int i = 0; i < x->sections; i++) {
        const struct report_section *s = &x->section[i];
        char caption[ALIBI_NAME_MAX + sizeof s->heading + 2];
        struct view v;

        view_init(&v, s->result);
        if (v.lengths == 0)
            continue;
        snprintf(caption, sizeof caption, "%s: %s", s->name, s->heading);
        TRY_RETURN(append_caption(out, &v, columns, caption));
        TRY_RETURN(append_perplexities(out, &v, columns, colour));
        TRY_RETURN(append_rule_lines(out, &v, columns));
        text_append(out, "\n");
    }
    TRY_RETURN(append_costs(out, x, colour));
    return text_status(out);
}
