/* main.c - the table of commands */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static alibi_status cmd_help(int argc, char **argv);

const struct cli_command cli_commands[] = {
    { "compare", cmd_compare,
      "train a model per position method, test each at growing lengths, write the report", true },
    { "reproduce", cmd_reproduce, "run an experiment of several models, and check its claims",
      true },
    { "train", cmd_train, "train one model, or resume its training", true },
    { "eval", cmd_eval, "measure a model's perplexity at any length", true },
    { "probe", cmd_probe, "measure what a model does with far context", true },
    { "fit", cmd_fit, "fit a temperature for long inputs to a model", false },
    { "report", cmd_report,
      "write the page of a comparison or of runs again, or while they "
      "progress",
      false },
    { "generate", cmd_generate, "continue a text with a model", false },
    { "score", cmd_score, "show how likely a model finds each token of a text", false },
    { "import", cmd_import, "read a model of another program, such as a Hugging Face folder",
      false },
    { "export", cmd_export, "write a model without its training, for this program or another",
      false },
    { "tokenize", cmd_tokenize, "learn a vocabulary from text, and convert text into token shards",
      false },
    { "inspect", cmd_inspect, "describe a checkpoint, a run or a file", false },
    { "text", cmd_text, "write the built-in text to a file", false },
    { "plan", cmd_plan, "show how much device memory training would take", false },
    { "bench", cmd_bench, "measure speed and memory on this machine", false },
    { "help", cmd_help, "explain a command and its options", false },
    { NULL, NULL, NULL, false },
};

enum { COMMANDS = CLI_COUNT(cli_commands) - 1 };

/* ---- errors */

static char own_error[1024];

alibi_status cli_fail(alibi_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(own_error, sizeof own_error, format, arguments);
    va_end(arguments);
    for (char *c = own_error; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* names come from outside, and the message must stay one line */
    }
    return status;
}

alibi_status cli_fail_later(alibi_status status, int done, int lengths)
{
    char why[sizeof own_error];

    if (done == 0)
        return status;
    snprintf(why, sizeof why, "%s", status == ALIBI_INTERRUPTED ? "stopped" : cli_error());
    return cli_fail(status, "%s; the results of %d of %d lengths are printed", why, done, lengths);
}

const char *cli_error(void)
{
    return own_error[0] ? own_error : alibi_error();
}

static void print_error(const char *command)
{
    if (cli_others_know())
        return;
    cli_terminal_clear();
    fprintf(stderr, "alibi: %s%s%s\n", command ? command : "", command ? ": " : "", cli_error());
}

/* ---- help */

const char cli_about_text[] =
    "Trains language models on short inputs, tests them on long ones, and shows which position "
    "method extrapolates.";

static void print_overview(FILE *out)
{
    fprintf(out, "usage: alibi COMMAND [ARGUMENT...] [OPTION...]\n\n");
    cli_print_wrapped(out, cli_about_text, 0, 0);
    fputc('\n', out);
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        fprintf(out, "  %-10s", c->name);
        cli_print_wrapped(out, c->summary, 12, 12);
    }
    fputc('\n', out);
    cli_print_wrapped(
        out,
        "'alibi help COMMAND' or 'alibi COMMAND --help' lists the options; 'alibi --version' "
        "prints the version; 'alibi help --as bash', 'zsh' or 'fish' prints completions for a "
        "shell, 'alibi help [COMMAND] --as man' a manual page.",
        0, 0);
}

static const struct cli_command *find_command(const char *name)
{
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        if (strcmp(c->name, name) == 0)
            return c;
    }
    return NULL;
}

static alibi_status no_such_command(const char *name)
{
    const char *names[COMMANDS];
    const char *nearest;

    for (int i = 0; i < COMMANDS; i++)
        names[i] = cli_commands[i].name;
    nearest = alibi_nearest(name, names, COMMANDS);
    if (nearest)
        return cli_fail(ALIBI_USAGE, "no command '%s'; did you mean '%s'?", name, nearest);
    return cli_fail(ALIBI_USAGE, "no command '%s'; 'alibi help' lists them", name);
}

/* Each command knows its tables and shows them itself, as help in that form. */
static alibi_status show_as(const struct cli_form *form, const struct cli_command *command)
{
    char option[64];
    char *arguments[] = { option, NULL };

    snprintf(option, sizeof option, "--help%s%s", form ? "=" : "", form ? form->name : "");
    return command->run(1, arguments);
}

static alibi_status help_as(const char *name, const char *page)
{
    const struct cli_command *command = page ? find_command(page) : NULL;
    const struct cli_form *form;

    TRY_RETURN(cli_form_find(&form, name));
    if (page && !command)
        return no_such_command(page);
    if (page && form->whole)
        return cli_fail(ALIBI_USAGE, "completions for %s are one file for all commands; omit '%s'",
                        name, page);
    if (command && command->run != cmd_help)
        return show_as(form, command);
    form->begin();
    for (command = cli_commands; form->whole && command->name; command++)
        if (command->run != cmd_help)
            TRY_RETURN(show_as(form, command));
    if (form->end)
        form->end();
    return ALIBI_OK;
}

/* `alibi help [COMMAND] [--as FORM]`, in any order. */
static alibi_status read_help_arguments(int argc, char **argv, const char **name, const char **form)
{
    static const char usage[] = "usage: alibi help [COMMAND] [--as FORM]";

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--as") == 0)
            *form = i + 1 < argc ? argv[++i] : "";
        else if (strncmp(argv[i], "--as=", 5) == 0)
            *form = argv[i] + 5;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            continue;
        else if (argv[i][0] == '-')
            return cli_fail(ALIBI_USAGE, "unknown option '%s'; %s", argv[i], usage);
        else if (*name)
            return cli_fail(ALIBI_USAGE, "'%s' is one argument too many; %s", argv[i], usage);
        else
            *name = argv[i];
    }
    return ALIBI_OK;
}

static alibi_status cmd_help(int argc, char **argv)
{
    const char *name = NULL, *form = NULL;
    const struct cli_command *command;
    alibi_status status = read_help_arguments(argc, argv, &name, &form);

    if (status != ALIBI_OK || form)
        return cli_agree(status == ALIBI_OK ? help_as(form, name) : status);
    if (!name || strcmp(name, "help") == 0) {
        print_overview(stdout);
        return ALIBI_OK;
    }
    command = find_command(name);
    return command ? show_as(NULL, command) : cli_agree(no_such_command(name));
}

/* ---- the run */

/* ALIBI_FAULT="memory:12" makes the 12th allocation fail, so that tests run the program that is
 * shipped. */
static alibi_status inject_fault(void)
{
    const char *fault = getenv("ALIBI_FAULT");
    char how[16];
    long long n;
    int end = 0;

    if (!fault || !*fault)
        return ALIBI_OK;
    if (sscanf(fault, "%15[a-z]:%lld%n", how, &n, &end) != 2 || fault[end] != '\0' || n < 0)
        return cli_fail(ALIBI_USAGE, "ALIBI_FAULT is '%s'; it must be memory:N, file:N or nan:N",
                        fault);
    return alibi_inject_fault(how, n);
}

/* Of the pipe that standard output is. A write that failed earlier has left no errno to ask. */
static bool reader_is_gone(void)
{
    struct pollfd output = { .fd = STDOUT_FILENO };

    return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP));
}

/* A reader that closed the pipe early is not a failure, and the work may have been stopped for it
 * (cli_flush). Results that did not reach the disk are a failure. */
static alibi_status finish_output(alibi_status status)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) ||
        (status != ALIBI_OK && status != ALIBI_INTERRUPTED))
        return status;
    if (reader_is_gone())
        return ALIBI_OK;
    return cli_fail(ALIBI_IO, "cannot write the results to standard output%s%s", errno ? ": " : "",
                    errno ? strerror(errno) : "");
}

static alibi_status run(const char *name, int argc, char **argv, const char **command_name)
{
    const struct cli_command *command = find_command(name);

    TRY_RETURN(inject_fault());
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        command = find_command("help");
    /* A single process needs no connection for a command that does not divide its work. */
    if ((command && command->divides) || alibi_comm_launched() > 1)
        TRY_RETURN(cli_ranks_join());
    if (strcmp(name, "--version") == 0) {
        printf("alibi %s", alibi_version());
        if (alibi_commit()[0])
            printf(" (commit %s)", alibi_commit());
        putchar('\n');
        return finish_output(ALIBI_OK);
    }
    if (!command)
        return cli_agree(no_such_command(name));
    *command_name = command->name;
    if (!command->divides && command->run != cmd_help && cli_ranks() > 1)
        return cli_agree(cli_fail(ALIBI_USAGE,
                                  "%d processes were started, and this command does not divide its "
                                  "work; start one process",
                                  cli_ranks()));
    return finish_output(command->run(argc, argv));
}

int main(int argc, char **argv)
{
    const char *command = NULL;
    alibi_status status;

    /* Writes to a closed pipe fail and are checked. The signal would end a training run just
     * because its progress is no longer read. */
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_overview(stderr);
        return ALIBI_USAGE;
    }
    status = run(argv[1], argc - 2, argv + 2, &command);
    cli_terminal_clear();
    if (status != ALIBI_OK)
        print_error(command);
    cli_ranks_leave(
        status); /* after the error: a launcher ends the others with the first of them */
    return (int)status;
}
