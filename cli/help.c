/* help.c - the tables of options as help text, as wide as the terminal */
#include <string.h>

#include "cli.h"

enum { TEXT_COLUMN = 26 }; /* where the explanations begin */

void cli_print_wrapped(FILE *out, const char *text, int column, int indent)
{
    int width = cli_columns() - 1;
    bool first = true, space = false;

    while (*text) {
        int word = (int)strcspn(text, " "), bar = (int)strcspn(text, "|") + 1;

        if (word > width - indent && bar < word)
            word = bar; /* a list of choices that is longer than a line */
        if (!first && column + space + word > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            space = false;
        }
        fprintf(out, "%s%.*s", space ? " " : "", word, text);
        column += word + space;
        first = false;
        text += word;
        space = *text == ' ';
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

bool cli_option_is_on(const struct alibi_option *o)
{
    return o->type == ALIBI_OPTION_FLAG && o->initial && strcmp(o->initial, "true") == 0;
}

/* Without the parts that are not known. */
void cli_option_text(const struct alibi_option *o, char text[CLI_OPTION_TEXT])
{
    bool number =
        o->type == ALIBI_OPTION_INT || o->type == ALIBI_OPTION_REAL || o->type == ALIBI_OPTION_INTS;
    const char *initial = o->initial && o->type != ALIBI_OPTION_FLAG ? o->initial : "";
    char range[128] = "", notes[256] = "";

    if (o->type == ALIBI_OPTION_CHOICE)
        snprintf(range, sizeof range, "%s", o->choices);
    else if (number && o->max < CLI_UNBOUNDED)
        snprintf(range, sizeof range, "%.10g..%.10g", o->min, o->max);
    else if (number && o->min > -CLI_UNBOUNDED)
        snprintf(range, sizeof range, "at least %.10g", o->min);
    if (*range || *initial)
        snprintf(notes, sizeof notes, " (%s%s%s%s)", range, *range && *initial ? "; " : "",
                 *initial ? "default " : "", initial);
    snprintf(text, CLI_OPTION_TEXT, "%s%s", o->help, notes);
}

static void print_option(FILE *out, const struct alibi_option *o)
{
    const char *value = o->value ? o->value : "VALUE";
    char text[CLI_OPTION_TEXT];
    int column;

    if (o->type == ALIBI_OPTION_FLAG)
        column = fprintf(out, "  --%s%s", cli_option_is_on(o) ? "[no-]" : "", o->name);
    else if (strcmp(o->name, "out") == 0) /* the only option with a short form */
        column = fprintf(out, "  --out %s, -o %s", value, value);
    else
        column = fprintf(out, "  --%s %s", o->name, value);
    if (column + 2 > TEXT_COLUMN) {
        fputc('\n', out);
        column = 0;
    }
    cli_option_text(o, text);
    fprintf(out, "%*s", TEXT_COLUMN - column, "");
    cli_print_wrapped(out, text, TEXT_COLUMN, TEXT_COLUMN);
}

/* ---- the whole page */

const char cli_numbers_text[] =
    "A whole number may be written 4096, 4k, 2^12 or 1e6 (k, M and G are powers of 1024), a share "
    "0.5 or 50%, a list 64,128.";

static void print_group(FILE *out, const struct alibi_option_group *group)
{
    if (!group->title)
        return; /* accepted because recipes may contain them, but without effect */
    fprintf(out, "\n%s:\n", group->title);
    for (int i = 0; i < group->count; i++)
        print_option(out, &group->options[i]);
}

static void print_positions(FILE *out)
{
    const char *name, *summary, *pattern;

    fprintf(out, "\nPosition methods:\n");
    for (int i = 0; (name = alibi_position_name(i, &summary)) != NULL; i++) {
        fprintf(out, "  %-*s", TEXT_COLUMN - 2, name);
        cli_print_wrapped(out, summary, TEXT_COLUMN, TEXT_COLUMN);
    }
    for (int i = 0; (name = alibi_preset_name(i, &summary, &pattern)) != NULL; i++) {
        char text[256];

        snprintf(text, sizeof text, "%s: %s", summary, pattern);
        fprintf(out, "  %-*s", TEXT_COLUMN - 2, name);
        cli_print_wrapped(out, text, TEXT_COLUMN, TEXT_COLUMN);
    }
}

void cli_print_help(FILE *out, const struct cli_line *line, const struct alibi_option_group *common)
{
    fprintf(out, "usage: alibi %s %s\n\n", line->command, line->usage);
    cli_print_wrapped(out, line->about, 0, 0);
    for (int g = 0; g < line->count; g++)
        print_group(out, &line->groups[g]);
    print_group(out, common);
    if (line->lists_positions)
        print_positions(out);
    fputc('\n', out);
    cli_print_wrapped(out, cli_numbers_text, 0, 0);
}
