/* cmd_fit.c - a temperature for inputs past the training length, chosen on text */
#include <limits.h>
#include <math.h>

#include "cli.h"

struct job {
    struct alibi_fit fit;
    double skip;
    char *out;
    bool json;
    struct cli_subject subject;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_INT("length", fit.length, 0, CLI_LENGTH_MAX, "0", "N",
            "tokens per scored window; 0: four times the training length"),
    OPT_INT("tokens", fit.tokens, 0, CLI_UNBOUNDED, "128k", "N",
            "score at most this many for each temperature, spread over the whole split; 0: all"),
    OPT_TEXT(
        "out", out, NULL, "DIR",
        "write the model with its temperature, if one helps, into this folder, and do not change "
        "MODEL"),
    OPT_REAL("skip", skip, 0, 0.999, CLI_SKIP_DEFAULT, "X",
             "weight of keys that attention may skip, relative to the others; 0: none"),
    OPT_FLAG("json", json, "print the result as JSON"),
};

enum { BUILTIN_GROUP = 3 }; /* of the groups of cmd_fit() */

static void print_json(const struct job *job, const struct alibi_fit_result *r)
{
    cli_json_open(NULL, '{');
    cli_json_subject(&job->subject);
    cli_json_text("position", alibi_model_view_config(job->subject.model)->position);
    cli_json_real("temperature", r->point[r->best].temperature);
    cli_json_flag("at_edge", r->at_edge);
    cli_json_int("length", r->length);
    cli_json_int("tokens", r->tokens);
    cli_json_open("points", '[');
    for (int i = 0; i < r->points; i++) {
        const struct alibi_fit_point *p = &r->point[i];

        cli_json_open(NULL, '{');
        cli_json_real("temperature", p->temperature);
        cli_json_real("nll", p->nll);
        cli_json_real("standard_error", p->standard_error);
        cli_json_real("gain", p->gain);
        cli_json_real("gain_error", p->gain_error);
        cli_json_close('}');
    }
    cli_json_close(']');
    if (job->out)
        cli_json_text("out", job->out);
    cli_json_close('}');
}

static void print_table(const struct job *job, const struct alibi_fit_result *r)
{
    char tokens[CLI_SHORT];

    printf("Loss by temperature at length %lld, on %s tokens\n\n", (long long)r->length,
           cli_short_count(tokens, (double)r->tokens));
    printf("temperature      loss        ±      gain        ±\n");
    for (int i = 0; i < r->points; i++) {
        const struct alibi_fit_point *p = &r->point[i];

        printf("%10.3f%c %9.4f %8.4f", p->temperature, i == r->best ? '*' : ' ', p->nll,
               p->standard_error);
        if (i > 0)
            printf(" %9.4f %8.4f", fabs(p->gain) < 0.00005 ? 0 : p->gain, p->gain_error);
        putchar('\n');
    }
    printf(
        "\n* chosen: the lowest loss, if it gains 0.005 and two standard errors over 0; gain on the "
        "same tokens; ± one standard error\n");
    if (r->best > 0)
        printf("position '%s' is in '%s'; --as-position trained ignores it\n",
               alibi_model_view_config(job->subject.model)->position,
               job->out ? job->out : job->subject.path);
    else if (job->out)
        printf("no temperature helps: the model in '%s' has none\n", job->out);
    else
        printf("no temperature helps: nothing is stored in '%s'\n", job->subject.path);
}

/* With --out the model is written even without a temperature, so that the next command finds it.
 * Otherwise an earlier temperature of MODEL is removed if none helps now; but if another position
 * was fitted, that says nothing about MODEL's own. */
static alibi_status store(const struct job *job, const struct alibi_fit_result *r)
{
    if (r->at_edge)
        cli_note("the best temperature is the largest one tried; the loss still falls there");
    if (job->out)
        return alibi_model_save(job->subject.model, job->out, ALIBI_FP32, cli_call());
    if (r->best == 0 && job->subject.position)
        return ALIBI_OK;
    return alibi_model_keep_fit(job->subject.model);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    struct cli_subject *s = &job->subject;
    struct alibi_fit_result result;
    alibi_status status;

    cli_set_skip(job->skip);
    TRY(cli_subject_open_model(s, line, 0));
    TRY(alibi_model_check_writable(s->model, job->out));
    TRY(cli_subject_open_text(s, line, BUILTIN_GROUP));
    TRY(alibi_model_fit(s->model, s->corpus, cli_subject_split(s), &job->fit, &result, cli_call()));
    TRY(store(job, &result));
    (job->json ? print_json : print_table)(job, &result);
out:
    cli_subject_close(s);
    return status;
}

alibi_status cmd_fit(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = {
        { "Fit", options, CLI_COUNT(options), &job }, cli_subject_group(&job.subject),
        cli_reading_group(&job.subject.text.reading), cli_builtin_group(&job.subject.text.builtin),
        cli_no_tokenizer_group(&job.subject.text),    cli_device_group(&job.subject.compute),
    };
    struct cli_line line = {
        .command = "fit",
        .usage = "MODEL [FILE...] [OPTION...]",
        .about =
            "Chooses a temperature for inputs longer than in training: queries that see n keys, "
            "more than the training length L, are multiplied by 1 + c ln(n / L), with the c that "
            "has the least loss on a text. Use a text that the model was not trained on and will "
            "not be tested on. The temperature is stored with MODEL, and eval, probe, generate and "
            "score use it from then on.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = INT_MAX,
    };

    return cli_run(&line, argc, argv, run, &job);
}
