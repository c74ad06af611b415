/* cmd_text.c - the built-in text as a file, to look at or to use elsewhere */
#include <string.h>

#include "cli.h"

struct job {
    char *out;
    int split; /* enum alibi_split */
    struct cli_text text;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    { "out", ALIBI_OPTION_TEXT, AT(out), 0, 0, NULL, NULL, "FILE",
      "file to write, which must not exist; -: standard output" },
    { "split", ALIBI_OPTION_CHOICE, AT(split), 0, 0, "train|valid|test|all", "all", "NAME",
      "part of the text" },
};

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    struct alibi_corpus_info info;
    alibi_corpus *corpus = NULL;
    alibi_status status;

    (void)line;
    if (!job->out)
        return cli_fail(ALIBI_USAGE, "no output; give --out FILE");
    status = strcmp(job->out, "-") == 0 ? ALIBI_OK : cli_check_new_file(job->out, "text.txt");
    if (status == ALIBI_OK)
        status = cli_open_corpus(&corpus, NULL, 0, &job->text, NULL);
    if (status == ALIBI_OK)
        status = alibi_corpus_write(corpus, (enum alibi_split)job->split, job->out);
    if (status == ALIBI_OK) {
        alibi_corpus_get_info(corpus, (enum alibi_split)job->split, &info);
        if (strcmp(job->out, "-") != 0)
            printf("%lld document%s, %lld words, %lld bytes in '%s'\n", (long long)info.documents,
                   info.documents == 1 ? "" : "s", (long long)info.words, (long long)info.bytes,
                   job->out);
    }
    alibi_corpus_free(corpus);
    return status;
}

alibi_status cmd_text(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = {
        { "Output", options, CLI_COUNT(options), &job },
        cli_builtin_group(&job.text.builtin),
    };
    struct cli_line line = {
        .command = "text",
        .usage = "--out FILE [OPTION...]",
        .about =
            "Writes the built-in text to a file. The text is generated from the seed: the same "
            "seed gives the same text.",
        .groups = groups,
        .count = CLI_COUNT(groups),
    };

    return cli_run(&line, argc, argv, run, &job);
}
