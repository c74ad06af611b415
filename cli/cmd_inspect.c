/* cmd_inspect.c - describes a checkpoint, a run or a file */
#include "cli.h"

struct job {
    bool json;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_FLAG("json", json, "print it as JSON"),
};

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    char *text = NULL;

    TRY_RETURN(alibi_inspect(&text, line->operands[0], job->json, cli_call()));
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
