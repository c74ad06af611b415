/* cmd_export.c - a model's weights without its training */
#include "cli.h"

struct job {
    char *out;
    int weights; /* 0: fp32, 1: bf16, 2: fp16 */
    bool json;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    { "out", ALIBI_OPTION_TEXT, AT(out), 0, 0, NULL, NULL, "DIR",
      "folder to write; it must be empty or not exist" },
    { "weights", ALIBI_OPTION_CHOICE, AT(weights), 0, 0, "fp32|bf16|fp16", "fp32", "NAME",
      "type of the weights in the file" },
    { "json", ALIBI_OPTION_FLAG, AT(json), 0, 0, NULL, NULL, NULL, "print the result as JSON" },
};

static void print_result(const struct job *job, const char *from, int precision, int64_t parameters)
{
    char count[CLI_SHORT];

    if (!job->json) {
        printf("%s parameters as %s in '%s'\n", cli_short_count(count, (double)parameters),
               alibi_precision_name(precision), job->out);
        return;
    }
    cli_json_open(NULL, '{');
    cli_json_text("model", from);
    cli_json_text("out", job->out);
    cli_json_text("weights", alibi_precision_name(precision));
    cli_json_int("parameters", parameters);
    cli_json_close('}');
}

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    const char *from = line->operands[0];
    const struct alibi_compute cpu = { .device = ALIBI_DEVICE_CPU };
    int precision = ALIBI_FP32 + job->weights;
    alibi_device *device = NULL;
    alibi_model *model = NULL;
    alibi_status status;

    if (!job->out)
        return cli_fail(ALIBI_USAGE, "no output; give --out DIR");
    status = alibi_device_open(&device, &cpu, cli_call());
    if (status == ALIBI_OK)
        status = alibi_model_open(&model, device, from, cli_call());
    if (status == ALIBI_OK)
        status = alibi_model_save(model, job->out, precision, cli_call());
    if (status == ALIBI_OK)
        print_result(job, from, precision, alibi_model_parameters(model));
    alibi_model_free(model);
    alibi_device_free(device);
    return status;
}

alibi_status cmd_export(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = { { "Output", options, CLI_COUNT(options), &job } };
    struct cli_line line = {
        .command = "export",
        .usage = "MODEL --out DIR [OPTION...]",
        .about =
            "Writes the weights of a model, with its configuration and tokenizer, into a folder of "
            "their own: without the optimizer that a run stores with them, and in fewer bits with "
            "--weights. eval, generate, inspect and train --init accept the folder as a model.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = 1,
    };

    return cli_run(&line, argc, argv, run, &job);
}
