/* cmd_report.c - writes the page of a comparison, an experiment or a run, once or while it runs */
#include <limits.h>
#include <time.h>

#include "cli.h"

struct job {
    char *out;
    bool watch;
    int64_t every;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("out", out, NULL, "FILE",
             "where to write the page of several runs; default: report.html in the current folder"),
    OPT_FLAG("watch", watch, "write the page again until the run is finished or Ctrl-C"),
    OPT_INT("every", every, 1, 86400, "5", "N",
            "with --watch: seconds between two pages; an open page reloads itself as often"),
};

static alibi_status write_page(const struct cli_line *line, const struct job *job, int64_t refresh,
                               bool *finished)
{
    if (line->operand_count == 1 && !job->out)
        return alibi_report_write(line->operands[0], refresh, finished);
    return alibi_report_runs(line->operands, line->operand_count,
                             job->out ? job->out : "report.html", refresh, finished);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    const struct alibi_stop *stop = cli_call()->stop;
    bool single = line->operand_count == 1 && !job->out, finished = false;

    cli_catch_signals();
    TRY_RETURN(write_page(line, job, job->watch ? job->every : 0, &finished));
    printf("report: %s%s%s\n",
           single     ? line->operands[0]
           : job->out ? job->out
                      : "report.html",
           single ? "/report.html" : "", finished ? "" : " (unfinished)");
    if (!job->watch || finished)
        return ALIBI_OK;
    fflush(stdout);
    if (line->operand_count == 1)
        cli_note("watching '%s': open the page in a browser; Ctrl-C ends", line->operands[0]);
    else
        cli_note("watching %d runs: open the page in a browser; Ctrl-C ends", line->operand_count);
    while (!finished && !alibi_stop_requested(stop)) {
        nanosleep(&(struct timespec){ .tv_sec = (time_t)job->every }, NULL); /* a signal ends it */
        if (!alibi_stop_requested(stop))
            TRY_RETURN(write_page(line, job, job->every, &finished));
    }
    /* The final page must not reload itself for ever. */
    return finished ? ALIBI_OK : write_page(line, job, 0, &finished);
}

alibi_status cmd_report(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = { { "Page", options, CLI_COUNT(options), &job } };
    struct cli_line line = {
        .command = "report",
        .usage = "DIR... [OPTION...]",
        .about =
            "Writes DIR/report.html from what DIR holds: a comparison, an experiment or a training "
            "run, finished or not. For several training runs it writes one page with their losses "
            "side by side and the options in which they differ. The page is one file that needs no "
            "network. With --watch the file is rewritten while the runs progress.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = INT_MAX,
    };

    return cli_run(&line, argc, argv, run, &job);
}
