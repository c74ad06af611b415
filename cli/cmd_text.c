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
    OPT_TEXT("out", out, NULL, "FILE", "file to write, which must not exist; -: standard output"),
    OPT_CHOICE("split", split, "train|valid|test|all", "all", "part of the text"),
};

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    enum alibi_split split = (enum alibi_split)job->split;
    bool standard = job->out && strcmp(job->out, "-") == 0;
    struct alibi_corpus_info info;
    alibi_corpus *corpus = NULL;
    alibi_status status;

    (void)line;
    if (!job->out)
        return cli_fail(ALIBI_USAGE, "no output; give --out FILE");
    if (!standard)
        TRY(cli_check_new_file(job->out, "text.txt"));
    TRY(cli_open_corpus(&corpus, NULL, 0, &job->text, NULL));
    TRY(alibi_corpus_write(corpus, split, job->out));
    alibi_corpus_get_info(corpus, split, &info);
    if (!standard)
        printf("%lld document%s, %lld words, %lld bytes in '%s'\n", (long long)info.documents,
               info.documents == 1 ? "" : "s", (long long)info.words, (long long)info.bytes,
               job->out);
out:
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
