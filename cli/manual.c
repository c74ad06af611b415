/* manual.c - the tables of options as manual pages: alibi(1), and alibi-train(1) for each command
 *
 * The pages are in the macros of man(7), which man, groff and mandoc read. They carry no date, so
 * that the same program gives the same bytes. */
#include <ctype.h>
#include <string.h>

#include "cli.h"

/* ---- text for roff */

/* A backslash, a dash and the beginning of a request are themselves; text in backquotes is bold. */
static void put_text(const char *text)
{
    bool bold = false;

    if (*text == '.' || *text == '\'')
        printf("\\&");
    for (; *text; text++) {
        if (*text == '`') {
            bold = !bold;
            printf(bold ? "\\fB" : "\\fR");
        } else if (*text == '\\' || *text == '-') {
            printf(*text == '-' ? "\\-" : "\\e");
        } else {
            putchar(*text);
        }
    }
}

static void put_line(const char *text)
{
    put_text(text);
    putchar('\n');
}

/* Words in capitals stand for something else: FILE, MODEL. */
static void put_usage(const char *usage)
{
    while (*usage) {
        size_t capitals = strspn(usage, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

        if (capitals > 0) {
            printf("\\fI%.*s\\fR", (int)capitals, usage);
            usage += capitals;
        } else {
            char letter[2] = { *usage++, '\0' };
            put_text(letter);
        }
    }
    putchar('\n');
}

static void put_heading(const char *name, const char *summary)
{
    printf(".\\\" made by 'alibi help --as man'\n.TH ");
    for (const char *c = name; *c; c++) {
        char letter[2] = { (char)toupper((unsigned char)*c), '\0' };
        put_text(letter);
    }
    printf(" 1 \"\" \"alibi %s\" \"User Commands\"\n.SH NAME\n", alibi_version());
    put_text(name);
    printf(" \\- ");
    put_line(summary);
    printf(".SH SYNOPSIS\n");
}

static void put_item(const char *name, const char *text)
{
    printf(".TP\n.B ");
    put_line(name);
    put_line(text);
}

/* ---- the page of a command */

static void put_option(const struct alibi_option *o)
{
    const char *value = o->value ? o->value : "VALUE";
    char text[CLI_OPTION_TEXT];

    printf(".TP\n\\fB\\-\\-%s", cli_option_is_on(o) ? "\\fR[\\fBno\\-\\fR]\\fB" : "");
    put_text(o->name);
    printf("\\fR");
    if (o->type != ALIBI_OPTION_FLAG)
        printf(" \\fI%s\\fR", value);
    if (strcmp(o->name, "out") == 0)
        printf(", \\fB\\-o\\fR \\fI%s\\fR", value);
    putchar('\n');
    cli_option_text(o, text);
    put_line(text);
}

static void put_group(const struct alibi_option_group *group)
{
    if (!group->title)
        return;
    printf(".SS ");
    put_line(group->title);
    for (int i = 0; i < group->count; i++)
        put_option(&group->options[i]);
}

static void put_command(const struct cli_line *line, const struct alibi_option_group *common)
{
    const struct cli_command *command = cli_commands;
    const char *name, *summary;
    char page[64];

    while (strcmp(command->name, line->command) != 0)
        command++;
    snprintf(page, sizeof page, "alibi-%s", line->command);
    put_heading(page, command->summary);
    printf(".B alibi %s\n", line->command);
    put_usage(line->usage);
    printf(".SH DESCRIPTION\n");
    put_line(line->about);
    printf(".SH OPTIONS\n");
    for (int g = 0; g < line->count; g++)
        put_group(&line->groups[g]);
    put_group(common);
    printf(".PP\n");
    put_line(cli_numbers_text);
    if (line->lists_positions)
        printf(".SH POSITION METHODS\n");
    for (int i = 0; line->lists_positions && (name = alibi_position_name(i, &summary)); i++)
        put_item(name, summary);
    for (int i = 0; line->lists_positions && (name = alibi_preset_name(i, &summary, NULL)); i++)
        put_item(name, summary);
    printf(".SH SEE ALSO\n.BR alibi (1),\nwhich has the exit codes and the environment\n");
}

/* ---- the page of the program */

static const struct {
    const char *name, *text;
} exit_codes[] = {
    { "0", "done" },
    { "2", "usage: no such command or option, or a value out of range" },
    { "3", "input: a file, a text, a recipe or a checkpoint cannot be used as it is" },
    { "4", "not enough memory" },
    { "5", "reading, writing, locking or syncing failed" },
    { "6", "a loss, gradient or weight is not finite; nothing of that step is kept" },
    { "7", "the device failed or does not exist" },
    { "75", "stopped by SIGINT or SIGTERM; the message says what was saved" },
}, environment[] = {
    { "OMP_NUM_THREADS", "threads; default: all processors" },
    { "CUDA_VISIBLE_DEVICES", "which GPUs the program sees; --gpu counts among them" },
    { "COLUMNS", "width of help and tables if standard output is not a terminal" },
    { "NO_COLOR", "no colour in the terminal" },
    { "SOURCE_DATE_EPOCH", "the date that results record, instead of the clock's" },
};

static const char *const examples[] = {
    "alibi compare book.txt --out runs/book",
    "alibi train book.txt --steps 1000 --out runs/mine",
    "alibi eval runs/mine book.txt --split valid --lengths 128,512,2048",
    "alibi generate runs/mine --prompt \"It was\" --tokens 200",
};

static void put_program(void)
{
    put_heading("alibi", "train language models on short inputs, and test them on long ones");
    printf(".B alibi\n");
    put_usage("COMMAND [ARGUMENT...] [OPTION...]");
    printf(".SH DESCRIPTION\n");
    put_line(cli_about_text);
    put_line("Each command has a page of its own, and `alibi help COMMAND` prints its options.");
    printf(".SH COMMANDS\n");
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        printf(".TP\n");
        if (strcmp(c->name, "help") == 0)
            printf(".B alibi help\n");
        else
            printf(".BR alibi\\-%s (1)\n", c->name);
        put_line(c->summary);
    }
    printf(".SH EXIT STATUS\n");
    for (int i = 0; i < CLI_COUNT(exit_codes); i++)
        put_item(exit_codes[i].name, exit_codes[i].text);
    printf(".SH ENVIRONMENT\n");
    for (int i = 0; i < CLI_COUNT(environment); i++)
        put_item(environment[i].name, environment[i].text);
    printf(".SH EXAMPLES\n.nf\n");
    for (int i = 0; i < CLI_COUNT(examples); i++)
        put_line(examples[i]);
    printf(".fi\n");
}

const struct cli_form cli_man = { "man", false, put_program, put_command, NULL };

alibi_status cli_form_find(const struct cli_form **form, const char *name)
{
    const struct cli_form *const forms[] = { &cli_man, &cli_bash, &cli_zsh, &cli_fish };

    for (int i = 0; i < CLI_COUNT(forms); i++)
        if (strcmp(forms[i]->name, name) == 0) {
            *form = forms[i];
            return ALIBI_OK;
        }
    return cli_fail(ALIBI_USAGE, "no form '%s' of help; there are man, bash, zsh and fish", name);
}
