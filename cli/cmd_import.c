/* cmd_import.c - a model of another program as one of ours */
#include "cli.h"

struct job {
    char *out;
    bool json;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("out", out, NULL, "DIR", "folder to write; it must be empty or not exist"),
    OPT_FLAG("json", json, "print the result as JSON"),
};

static alibi_status print_result(const struct job *job, const char *source,
                                 const struct alibi_exchanged *result)
{
    char count[CLI_SHORT];
    struct alibi_config config;

    TRY_RETURN(alibi_model_read_config(&config, job->out, cli_call()));
    if (!job->json) {
        printf("%s: %s parameters, position %s, trained at %lld tokens, in '%s'\n", result->family,
               cli_short_count(count, (double)result->parameters), config.position,
               (long long)config.train_length, job->out);
        return ALIBI_OK;
    }
    cli_json_open(NULL, '{');
    cli_json_text("source", source);
    cli_json_text("out", job->out);
    cli_json_text("family", result->family);
    cli_json_int("parameters", result->parameters);
    cli_json_text("position", config.position);
    cli_json_int("train_length", config.train_length);
    cli_json_flag("tokenizer", result->tokenizer);
    cli_json_close('}');
    return ALIBI_OK;
}

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    struct alibi_exchanged result;

    if (!job->out)
        return cli_fail(ALIBI_USAGE, "no output; give --out DIR");
    TRY_RETURN(alibi_import(line->operands[0], job->out, &result, cli_call()));
    return print_result(job, line->operands[0], &result);
}

alibi_status cmd_import(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = { { "Output", options, CLI_COUNT(options), &job } };
    struct cli_line line = {
        .command = "import",
        .usage = "SOURCE --out DIR [OPTION...]",
        .about = "Reads a model of another program: a folder with config.json, safetensors and "
                 "tokenizer.json, as Hugging Face's transformers writes it, or a GGUF file of "
                 "llama.cpp. eval, probe, generate, score, train --init and the other commands "
                 "accept the folder that it writes as a model, at any length.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = 1,
    };

    return cli_run(&line, argc, argv, run, &job);
}
