/* cmd_export.c - a model's weights without its training, for this program or for another */
#include <string.h>

#include "cli.h"

enum format { AUTO, OURS, FOREIGN }; /* FOREIGN and more: enum alibi_foreign + FOREIGN */

struct job {
    char *out;
    int format;  /* enum format */
    int weights; /* enum alibi_precision */
    double shard;
    char *position;
    bool json;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("out", out, NULL, "DIR",
             "folder to write, which must be empty or not exist; gguf: file to write"),
    OPT_CHOICE(
        "format", format, "auto|alibi|hf|gguf", "auto",
        "for this program, a folder for Hugging Face's transformers, or a file for llama.cpp; auto: "
        "gguf if the name ends in .gguf, otherwise alibi"),
    OPT_CHOICE(
        "weights", weights, "auto|fp32|bf16|fp16|q8_0", "auto",
        "type of the weights in the file; auto: fp32, or for other programs the present types; q8_0: "
        "gguf"),
    OPT_REAL(
        "shard-size", shard, 1e-6, 1e6, "5", "GB",
        "hf: largest size of a file of weights, in units of 1e9 bytes; larger models get several files"),
    OPT_TEXT("as-position", position, NULL, "NAME",
             "with this position in place of the model's; trained: without the result of fit"),
    OPT_FLAG("json", json, "print the result as JSON"),
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

static alibi_status export_foreign(const struct job *job, const char *from)
{
    const struct alibi_export how = { .format = job->format - FOREIGN,
                                      .weights = job->weights,
                                      .shard_bytes = (int64_t)(job->shard * 1e9),
                                      .position = job->position };
    struct alibi_exchanged result;
    char count[CLI_SHORT];

    TRY_RETURN(alibi_export(from, &how, job->out, &result, cli_call()));
    if (job->json) {
        cli_json_open(NULL, '{');
        cli_json_text("model", from);
        cli_json_text("out", job->out);
        cli_json_text("family", result.family);
        cli_json_int("parameters", result.parameters);
        cli_json_real("embedding_scale", result.embedding_scale);
        cli_json_flag("tokenizer", result.tokenizer);
        cli_json_close('}');
        return ALIBI_OK;
    }
    printf("%s parameters as a model of family '%s' in '%s'\n",
           cli_short_count(count, (double)result.parameters), result.family, job->out);
    if (result.embedding_scale != 1)
        printf("its embedding is multiplied by %g there, and later weights correct for it\n",
               result.embedding_scale);
    return ALIBI_OK;
}

/* The name decides, unless --format does. A folder with the name of a GGUF file is a mistake, and a
 * slash after the name means nothing. */
static alibi_status choose_format(struct job *job)
{
    size_t length = strlen(job->out);
    bool gguf;

    while (length > 0 && job->out[length - 1] == '/')
        length--;
    gguf = length >= 5 && strncmp(job->out + length - 5, ".gguf", 5) == 0;
    if (gguf)
        job->out[length] = '\0';
    if (gguf && job->format != AUTO && job->format != FOREIGN + ALIBI_GGUF)
        return cli_fail(ALIBI_USAGE,
                        "--format %s writes a folder, and '%s' is the name of a GGUF file; give "
                        "another --out, or --format gguf",
                        job->format == OURS ? "alibi" : "hf", job->out);
    if (job->format == AUTO)
        job->format = gguf ? FOREIGN + ALIBI_GGUF : OURS;
    if (job->format == OURS && job->weights == ALIBI_Q8_0)
        return cli_fail(ALIBI_USAGE,
                        "only GGUF files have weights as q8_0; give --format gguf, or --weights "
                        "fp32, bf16 or fp16");
    return ALIBI_OK;
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    const char *from = line->operands[0];
    const struct alibi_compute cpu = { .device = ALIBI_DEVICE_CPU };
    int precision = job->weights == ALIBI_PRECISION_AUTO ? ALIBI_FP32 : job->weights;
    alibi_device *device = NULL;
    alibi_model *model = NULL;
    alibi_status status;

    if (!job->out)
        return cli_fail(ALIBI_USAGE, "no output; give --out DIR");
    TRY_RETURN(choose_format(job));
    if (job->format >= FOREIGN)
        return export_foreign(job, from);
    TRY(alibi_device_open(&device, &cpu, cli_call()));
    TRY(alibi_model_open_as(&model, device, from, job->position, cli_call()));
    TRY(alibi_model_save(model, job->out, precision, cli_call()));
    print_result(job, from, precision, alibi_model_parameters(model));
out:
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
            "Writes the weights of a model, with its configuration and tokenizer, into a separate "
            "folder, without the optimizer that a run stores with them, and in fewer bits with "
            "--weights. eval, generate, inspect and train --init accept the folder as a model. "
            "With --format hf it writes a folder that Hugging Face's transformers loads, and with "
            "--format gguf, or --out FILE.gguf, a file that llama.cpp loads, as a model of the "
            "family that computes the same function.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = 1,
    };

    return cli_run(&line, argc, argv, run, &job);
}
