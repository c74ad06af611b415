/* cmd_compare.c - the main job: one model per position method, each tested at growing lengths */
#include <limits.h>

#include "cli.h"

struct job {
    struct alibi_compare compare;
    char *out;
    bool json;
    struct cli_text text;
    struct alibi_config model;
    struct alibi_training training;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    { "methods", ALIBI_OPTION_NAMES, AT(compare.methods), 0, 0, NULL, "alibi,sinusoidal,rotary,t5,none", "LIST",
      "position methods, in the order of the report" },
    { "lengths", ALIBI_OPTION_INTS, AT(compare.lengths), 1, CLI_LENGTH_MAX, NULL, "64,128,256,512,1024", "LIST",
      "lengths to test at" },
    { "eval-tokens", ALIBI_OPTION_INT, AT(compare.eval_tokens), 0, CLI_UNBOUNDED, NULL, "65536", "N",
      "tokens scored per method and length at most; 0: the whole validation split" },
    { "out", ALIBI_OPTION_TEXT, AT(out), 0, 0, NULL, "runs/compare", "DIR", "folder for the models, the results and the report" },
    { "json", ALIBI_OPTION_FLAG, AT(json), 0, 0, NULL, NULL, NULL, "print the results as JSON" },
};

/* Minutes on two cores, and long enough for the methods to part: `make demo` is these defaults and nothing else. */
static const char *const training_defaults[][2] = {
    { "train-length", "64" }, { "batch", "8" }, { "steps", "1200" }, { "lr", "4e-3" }, { "warmup", "40" },
};

static alibi_status print_result(const struct alibi_compare_result *result, const struct job *job)
{
    char *text = NULL;
    alibi_status status =
        job->json ? alibi_compare_json(&text, result) : alibi_compare_text(&text, result, cli_columns(), cli_colour());

    if (status != ALIBI_OK)
        return status;
    cli_terminal_clear();
    fputs(text, stdout);
    alibi_text_free(text);
    if (!job->json)
        printf("\nreport: %s/report.html   numbers: %s/results.json, %s/results.csv\n", job->out, job->out, job->out);
    return ALIBI_OK;
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    struct alibi_compare_result *result = NULL;
    alibi_corpus *corpus = NULL;
    alibi_status status;

    cli_catch_signals();
    status = cli_open_corpus(&corpus, line->operands, line->operand_count, &job->text);
    if (status == ALIBI_OK)
        status = alibi_compare_run(&job->compare, &job->model, &job->training, corpus, job->out, &result);
    if (status == ALIBI_OK)
        status = print_result(result, job);
    if (status == ALIBI_INTERRUPTED)
        cli_fail(status, "stopped; what is done is saved in '%s' and the same command goes on from there", job->out);
    alibi_compare_free(result);
    alibi_corpus_free(corpus);
    return status;
}

alibi_status cmd_compare(int argc, char **argv)
{
    struct job job = { 0 };
    struct cli_table model, training;
    struct alibi_option_group groups[] = {
        { "Comparison", options, CLI_COUNT(options), &job },
        cli_text_group(&job.text),
        cli_model_group(&job.model),
        cli_training_group(&job.training),
    };
    struct cli_line line = {
        .command = "compare",
        .usage = "[FILE...] [OPTION...]",
        .about =
            "Trains one model per position method on the same data with the same seed, tests each at every length, prints a "
            "table and a plot, and writes results.json, results.csv and report.html. Stopped with SIGINT or SIGTERM it exits "
            "with 75, and the same command goes on from there.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .max_operands = INT_MAX,
        .lists_positions = true,
    };

    cli_table_copy(&model, &groups[2]);
    cli_table_drop(&model, "position"); /* what --methods is for */
    cli_table_copy(&training, &groups[3]);
    for (int i = 0; i < CLI_COUNT(training_defaults); i++)
        cli_table_default(&training, training_defaults[i][0], training_defaults[i][1]);
    return cli_run(&line, argc, argv, run, &job);
}
