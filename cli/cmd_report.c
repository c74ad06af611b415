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
    { "out", ALIBI_OPTION_TEXT, AT(out), 0, 0, NULL, NULL, "FILE",
      "where to write the page of several runs; default: report.html in the current folder" },
    { "watch", ALIBI_OPTION_FLAG, AT(watch), 0, 0, NULL, NULL, NULL,
      "write the page again until the run is finished or Ctrl-C" },
    { "every", ALIBI_OPTION_INT, AT(every), 1, 86400, NULL, "5", "N",
      "with --watch: seconds between two pages; an open page reloads itself as often" },
};

/* A signal ends the pause early. */
static void pause_for(int64_t seconds)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)seconds }, NULL);
}

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
    alibi_status status;

    cli_catch_signals();
    status = write_page(line, job, job->watch ? job->every : 0, &finished);
    if (status != ALIBI_OK)
        return status;
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
    while (status == ALIBI_OK && !finished && !alibi_stop_requested(stop)) {
        pause_for(job->every);
        if (!alibi_stop_requested(stop))
            status = write_page(line, job, job->every, &finished);
    }
    /* The page that stays must not load itself for ever. */
    if (status == ALIBI_OK && !finished)
        status = write_page(line, job, 0, &finished);
    return status;
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
