/* cmd_report.c - writes the page of a comparison, an experiment or a run, once or as it goes */
#include <time.h>

#include "cli.h"

struct job {
    bool watch;
    int64_t every;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    { "watch", ALIBI_OPTION_FLAG, AT(watch), 0, 0, NULL, NULL, NULL,
      "write the page again and again until the run is finished or Ctrl-C" },
    { "every", ALIBI_OPTION_INT, AT(every), 1, 86400, NULL, "5", "N",
      "with --watch: seconds between two pages; an open page loads itself as often" },
};

/* A signal ends the pause early. */
static void pause_for(int64_t seconds)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)seconds }, NULL);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    const char *dir = line->operands[0];
    const struct alibi_stop *stop = cli_call()->stop;
    bool finished = false;
    alibi_status status;

    cli_catch_signals();
    status = alibi_report_write(dir, job->watch ? job->every : 0, &finished);
    if (status != ALIBI_OK)
        return status;
    printf("report: %s/report.html%s\n", dir, finished ? "" : " (unfinished)");
    if (!job->watch || finished)
        return ALIBI_OK;
    fflush(stdout);
    cli_note("watching '%s': open the page in a browser; Ctrl-C ends", dir);
    while (status == ALIBI_OK && !finished && !alibi_stop_requested(stop)) {
        pause_for(job->every);
        if (!alibi_stop_requested(stop))
            status = alibi_report_write(dir, job->every, &finished);
    }
    /* The page that stays must not load itself for ever. */
    if (status == ALIBI_OK && !finished)
        status = alibi_report_write(dir, 0, &finished);
    return status;
}

alibi_status cmd_report(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = { { "Page", options, CLI_COUNT(options), &job } };
    struct cli_line line = {
        .command = "report",
        .usage = "DIR [OPTION...]",
        .about =
            "Writes DIR/report.html from what DIR holds: a comparison, an experiment or a "
            "training run, finished or not. The page is one file that needs no network. Nothing is "
            "served; with --watch the file is rewritten as the run goes.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = 1,
    };

    return cli_run(&line, argc, argv, run, &job);
}
