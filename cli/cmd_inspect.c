/* cmd_inspect.c - describes a checkpoint, a run or a file */
#include "cli.h"

struct job {
    bool json;
};

static const struct alibi_option options[] = {
    { "json", ALIBI_OPTION_FLAG, offsetof(struct job, json), 0, 0, NULL, NULL, NULL,
      "print it as JSON" },
};

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    char *text = NULL;
    alibi_status status = alibi_inspect(&text, line->operands[0], job->json, cli_call());

    if (status != ALIBI_OK)
        return status;
    fputs(text, stdout);
    alibi_text_free(text);
    return ALIBI_OK;
}

alibi_status cmd_inspect(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = { { "Output", options, CLI_COUNT(options), &job } };
    struct cli_line line = {
        .command = "inspect",
        .usage = "PATH [OPTION...]",
        .about = "Describes PATH: a run's folder, a checkpoint, a safetensors file, a text file, a "
                 "tokenizer, token shards (every byte is verified), or the folder of a comparison.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = 1,
    };

    return cli_run(&line, argc, argv, run, &job);
}
