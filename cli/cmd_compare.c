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
    struct alibi_compute compute;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("out", out, "runs/compare", "DIR",
             "folder for the models, the results and the report"),
    OPT_FLAG("json", json, "print the results as JSON"),
};

/* Minutes on two cores, and enough to separate the methods. `make demo` trains with these defaults.
 */
static const char *const training_defaults[][2] = {
    { "train-length", "64" }, { "batch", "8" },      { "steps", "1200" },
    { "warmup", "40" },       { "eval-every", "0" },
};

enum { COMPARISON, RESULTS, TEXT, READING, BUILTIN, MODEL, TRAINING, POSITION, DEVICE, GROUPS };

/* Checks everything that does not depend on the text, before it is read. */
static alibi_status check(const struct job *job, const struct cli_line *line)
{
    if (line->given[POSITION])
        return cli_fail(
            ALIBI_USAGE,
            "option '--position' does not apply to a comparison; give --methods, one model each");
    if (!cli_is_first_rank()) /* rank 0 checks whether the folder is in use */
        return ALIBI_OK;
    TRY_RETURN(alibi_compare_check(&job->compare, &job->model, &job->training, job->out));
    return alibi_text_check_folder(line->operands, line->operand_count, job->text.valid, job->out);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    struct alibi_compare_result *result = NULL;
    alibi_corpus *corpus = NULL;
    alibi_device *device = NULL;
    char *report = NULL;
    alibi_status status;

    cli_catch_signals();
    TRY(cli_agree(check(job, line)));
    TRY(cli_agree(cli_open_device(&device, line, &job->compute)));
    TRY(cli_agree(cli_open_corpus(&corpus, line->operands, line->operand_count, &job->text, NULL)));
    cli_note_builtin(line, BUILTIN);
    TRY(alibi_compare_run(device, &job->compare, &job->model, &job->training, corpus, job->out,
                          &result, cli_call()));
    if (result && job->json)
        TRY(alibi_compare_json(&report, result));
    else if (result) /* only rank 0 has one */
        TRY(alibi_compare_text(&report, result, cli_columns(), cli_colour()));
    cli_print_report(report, job->json ? NULL : job->out);
    if (result && !job->json) /* perplexity by length does not show it */
        printf("far text: alibi probe targets %s/METHOD%s says whether a model uses it\n", job->out,
               line->operand_count > 0 ? " TEXT --split valid" : "");
out:
    alibi_compare_free(result);
    alibi_corpus_free(corpus);
    alibi_device_free(device);
    return status;
}

alibi_status cmd_compare(int argc, char **argv)
{
    struct job job = { 0 };
    struct cli_table model, training;
    struct alibi_option_group groups[GROUPS] = {
        [COMPARISON] = { .title = "Comparison", .values = &job.compare },
        [RESULTS] = { "Results", options, CLI_COUNT(options), &job },
        [TEXT] = cli_text_group(&job.text),
        [READING] = cli_reading_group(&job.text.reading),
        [BUILTIN] = cli_builtin_group(&job.text.builtin),
        [MODEL] = cli_model_group(&job.model),
        [TRAINING] = cli_training_group(&job.training),
        [POSITION] = { .values = &job.model }, /* accepted in the recipe of a model, not used */
        [DEVICE] = cli_device_group(&job.compute),
    };
    struct cli_line line = {
        .command = "compare",
        .usage = "[FILE...] [OPTION...]",
        .about =
            "Trains one model per position method on the same data with the same seed, tests each "
            "at every length, prints tables and a plot, and writes results.json, results.csv, "
            "report.html, and recipe.json to repeat it. SIGINT or SIGTERM saves and exits with 75; "
            "the same command resumes. `mpirun -n N alibi compare` trains N models at a time.",
        .hints =
            (const struct cli_hint[]){
                { "resume", "the same command resumes" },
                { "data", "give the text as it is: alibi compare TEXT" },
                { NULL, NULL },
            },
        .groups = groups,
        .count = GROUPS,
        .max_operands = INT_MAX,
        .lists_positions = true,
    };

    groups[COMPARISON].options = alibi_compare_options(&groups[COMPARISON].count);
    groups[POSITION].options = alibi_options_find(&groups[MODEL], 1, "position", NULL);
    groups[POSITION].count = 1;
    TRY_RETURN(cli_table_copy(&model, &groups[MODEL]));
    TRY_RETURN(cli_table_copy(&training, &groups[TRAINING]));
    cli_table_drop(&model, "position"); /* --methods takes its place */
    cli_table_drop(&training, "init");  /* every model starts from its seed */
    cli_table_drop(&training, "keep-best");
    cli_table_drop(&training, "eval-tokens"); /* the comparison has its own */
    for (int i = 0; i < CLI_COUNT(training_defaults); i++)
        cli_table_default(&training, training_defaults[i][0], training_defaults[i][1]);
    return cli_run(&line, argc, argv, run, &job);
}
