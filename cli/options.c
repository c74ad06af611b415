/* options.c - argv and the recipe into values
 *
 *   defaults, then the recipe, then the options of the command line: the last one wins
 *
 * Names, types and ranges come from the tables; the library checks values and finds the nearest
 * name. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* Options of every command. They are not recipe keys. */
struct common {
    char *recipe;
    bool quiet, help;
    char found[CLI_PATH_BYTES]; /* the file of the recipe */
};

#define AT(field) offsetof(struct common, field)

static const struct alibi_option common_options[] = {
    OPT_TEXT(
        "recipe", recipe, NULL, "FILE",
        "JSON object with the names of the options above, train_length for --train-length, or the "
        "name of an installed recipe, such as byte-10m; options override it"),
    OPT_FLAG("quiet", quiet, "no progress and no notes, only warnings and errors"),
    OPT_FLAG("help", help, "print this and exit"),
};

/* All groups of a command, then the common one. */
struct groups {
    struct alibi_option_group at[CLI_GROUPS_MAX];
    int count;
};

/* ---- one argument */

struct argument {
    const char *name; /* of the option, without dashes */
    const char *text; /* its value */
    const struct alibi_option *option;
    const struct alibi_option_group *group;
    int used; /* arguments it took */
    char name_room[64], list_room[ALIBI_LIST_MAX * (ALIBI_NAME_MAX + 1)];
};

/* `--no-x` switches x off. */
static bool is_negated(const struct groups *g, const char *name)
{
    const struct alibi_option *option;

    if (strncmp(name, "no-", 3) != 0 || alibi_options_find(g->at, g->count, name, NULL))
        return false;
    option = alibi_options_find(g->at, g->count, name + 3, NULL);
    return option && option->type == ALIBI_OPTION_FLAG;
}

/* A list may have spaces after its commas, which the shell makes arguments of their own: what
 * follows a comma is the next entry. */
static alibi_status join_list(struct argument *out, int argc, char **argv)
{
    size_t length = strlen(out->text), size = sizeof out->list_room;

    while (length > 0 && out->text[length - 1] == ',' && out->used < argc &&
           strncmp(argv[out->used], "--", 2) != 0) {
        size_t more = strlen(argv[out->used]);
        if (length + more >= size)
            return cli_fail(ALIBI_USAGE, "option '--%s': the list is longer than %zu bytes",
                            out->name, size - 1);
        memmove(out->list_room, out->text, length);
        memcpy(out->list_room + length, argv[out->used], more + 1);
        out->text = out->list_room;
        out->used++;
        length += more;
    }
    return ALIBI_OK;
}

/* Reads `--name value`, `--name=value`, `--flag` or `--no-flag` from the front of argv. A value
 * cannot begin with two dashes unless it follows `=`. */
static alibi_status read_option(const struct groups *g, const struct cli_hint *hints, int argc,
                                char **argv, struct argument *out)
{
    const char *first = strcmp(argv[0], "-o") == 0 ? "--out" : argv[0]; /* the only short form */
    const char *equals = strchr(first, '=');
    const struct alibi_option *option;

    if (first[1] != '-')
        return cli_fail(
            ALIBI_USAGE,
            "no option '%s': options begin with two dashes; put a file of that name after '--'",
            first);
    /* A name that is too long to exist is cut, and not found either. */
    snprintf(out->name_room, sizeof out->name_room, "%.*s", (int)strcspn(first + 2, "="),
             first + 2);
    out->name = out->name_room;
    out->text = equals ? equals + 1 : NULL;
    out->used = 1;
    if (!equals && is_negated(g, out->name)) {
        out->name += 3;
        out->text = "false";
    }
    option = out->option = alibi_options_find(g->at, g->count, out->name, &out->group);
    for (; !option && hints && hints->option; hints++)
        if (strcmp(hints->option, out->name) == 0)
            return cli_fail(ALIBI_USAGE, "no option '--%s': %s", out->name, hints->advice);
    if (!option)
        return alibi_options_set(g->at, g->count, out->name, ""); /* fails and names the nearest */
    if (option->type == ALIBI_OPTION_FLAG && !out->text) {
        out->text = "true";
    } else if (!out->text) {
        if (argc < 2 || strncmp(argv[1], "--", 2) == 0)
            return cli_fail(ALIBI_USAGE, "option '--%s' needs a value%s%s", option->name,
                            option->value ? ": " : "", option->value ? option->value : "");
        out->text = argv[1];
        out->used = 2;
    }
    if (option->type == ALIBI_OPTION_INTS || option->type == ALIBI_OPTION_NAMES)
        return join_list(out, argc, argv);
    return ALIBI_OK;
}

/* ---- installed files: recipes and experiments */

bool cli_installed_folder(const char *kind, int i, char folder[CLI_PATH_BYTES])
{
    static const char *const beside[] = { "../share/alibi", "../.." };
    char program[CLI_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int written;

    if (i >= CLI_COUNT(beside) || length < 0)
        return false;
    program[length] = '\0';
    *strrchr(program, '/') = '\0';
    written = snprintf(folder, CLI_PATH_BYTES, "%s/%s/%s", program, beside[i], kind);
    return written < CLI_PATH_BYTES;
}

void cli_installed_names(const char *kind, char names[CLI_NAMES_BYTES])
{
    char folder[CLI_PATH_BYTES];

    names[0] = '\0';
    for (int i = 0; !names[0] && cli_installed_folder(kind, i, folder); i++) {
        struct dirent **entries = NULL;
        int count = scandir(folder, &entries, NULL, alphasort);

        for (int k = 0; k < count; k++) {
            size_t used = strlen(names), length = strlen(entries[k]->d_name);
            if (length > 5 && strcmp(entries[k]->d_name + length - 5, ".json") == 0)
                snprintf(names + used, CLI_NAMES_BYTES - used, "%s%.*s", used ? ", " : "",
                         (int)(length - 5), entries[k]->d_name);
            free(entries[k]);
        }
        free(entries);
    }
}

alibi_status cli_find_installed(const char *kind, const char *what, const char *name,
                                char found[CLI_PATH_BYTES])
{
    char folder[CLI_PATH_BYTES], known[CLI_NAMES_BYTES], copy[CLI_NAMES_BYTES], *rest;
    const char *each[ALIBI_LIST_MAX], *nearest;
    struct stat info;
    int names = 0;

    snprintf(found, CLI_PATH_BYTES, "%s", name);
    if ((stat(name, &info) == 0 && !S_ISDIR(info.st_mode)) || strchr(name, '/'))
        return ALIBI_OK; /* if something is wrong with it, reading reports it */
    for (int i = 0; cli_installed_folder(kind, i, folder); i++)
        for (int suffix = 0; suffix < 2; suffix++)
            if (snprintf(found, CLI_PATH_BYTES, "%s/%s%s", folder, name, suffix ? ".json" : "") <
                    CLI_PATH_BYTES &&
                access(found, F_OK) == 0)
                return ALIBI_OK;
    cli_installed_names(kind, known);
    snprintf(copy, sizeof copy, "%s", known);
    for (char *next = strtok_r(copy, ", ", &rest); next && names < ALIBI_LIST_MAX;
         next = strtok_r(NULL, ", ", &rest))
        each[names++] = next;
    nearest = alibi_nearest(name, each, names);
    if (nearest)
        return cli_fail(ALIBI_BAD_INPUT, "no %s '%s'; did you mean '%s'? The installed %s are %s",
                        what, name, nearest, kind, known);
    return cli_fail(ALIBI_BAD_INPUT,
                    "no %s '%s': there is no such file, and the installed %s are %s", what, name,
                    kind, known[0] ? known : "missing");
}

/* ---- all arguments */

/* Which options a walk through argv sets: those of the common group, or those of all others. The
 * last walk moves the operands to the front of argv. */
enum pass { COMMON_OPTIONS, OWN_OPTIONS, LAST_PASS };

/* `--lengths 128 512` leaves 512 as an argument of its own. `before` is the option before it. */
static alibi_status check_operand(const struct argument *before, const char *operand)
{
    const char *entry = operand + (*operand == ',');
    size_t digits = strspn(entry, "0123456789"); /* a letter may follow: 64k */

    if (!before->option || before->option->type != ALIBI_OPTION_INTS || digits == 0 ||
        strlen(entry) > digits + 1 || access(operand, F_OK) == 0)
        return ALIBI_OK;
    return cli_fail(ALIBI_USAGE,
                    "there is no file '%s'; if it belongs to the list of --%s, write a comma and "
                    "no space: --%s %s,%s",
                    operand, before->name, before->name, before->text, entry);
}

static alibi_status walk(const struct groups *g, struct cli_line *line, int argc, char **argv,
                         enum pass pass)
{
    bool options_ended = false;
    int operands = 0;
    struct argument argument = { .option = NULL };

    for (int i = 0; i < argc;) {
        if (!options_ended && strcmp(argv[i], "--") == 0) {
            options_ended = true;
            i++;
            continue;
        }
        if (options_ended || argv[i][0] != '-' || argv[i][1] == '\0') { /* "-": standard input */
            if (!options_ended)
                TRY_RETURN(check_operand(&argument, argv[i]));
            argument.option = NULL;
            if (pass == LAST_PASS)
                argv[operands] = argv[i];
            operands++;
            i++;
            continue;
        }
        TRY_RETURN(read_option(g, line->hints, argc - i, argv + i, &argument));
        if ((argument.group == &g->at[g->count - 1]) == (pass == COMMON_OPTIONS))
            TRY_RETURN(alibi_options_set(g->at, g->count, argument.name, argument.text));
        line->given[argument.group - g->at] |= UINT64_C(1)
                                               << (argument.option - argument.group->options);
        i += argument.used;
    }
    line->operands = (const char *const *)argv;
    line->operand_count = operands;
    return ALIBI_OK;
}

static alibi_status parse(const struct groups *g, struct cli_line *line, struct common *common,
                          void *job, int argc, char **argv)
{
    TRY_RETURN(walk(g, line, argc, argv, COMMON_OPTIONS));
    if (common->recipe) {
        TRY_RETURN(cli_find_installed("recipes", "recipe", common->recipe, common->found));
        line->recipe = common->found;
    }
    if (line->base) {
        TRY_RETURN(walk(g, line, argc, argv, OWN_OPTIONS));
        TRY_RETURN(line->base(job));
    }
    if (common->recipe)
        TRY_RETURN(alibi_options_read(line->groups, line->count, line->recipe));
    TRY_RETURN(walk(g, line, argc, argv, LAST_PASS));
    TRY_RETURN(cli_check_builtin(line));
    if (line->operand_count < line->min_operands)
        return cli_fail(ALIBI_USAGE, "too few arguments; usage: alibi %s %s", line->command,
                        line->usage);
    if (line->operand_count > line->max_operands)
        return cli_fail(ALIBI_USAGE, "'%s' is one argument too many; usage: alibi %s %s",
                        line->operands[line->max_operands], line->command, line->usage);
    return ALIBI_OK;
}

bool cli_is_given(const struct cli_line *line, int group, const char *name)
{
    const struct alibi_option_group *g = &line->groups[group];

    return line->given[group] >> (alibi_options_find(g, 1, name, NULL) - g->options) & 1;
}

/* The argument that requests help, which overrides everything else: --help, or --help=FORM. NULL:
 * none. */
static const char *asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strncmp(argv[i], "--help=", 7) == 0 ||
            strcmp(argv[i], "-h") == 0)
            return argv[i];
    }
    return NULL;
}

static alibi_status print_help(const struct cli_line *line, const struct alibi_option_group *common,
                               const char *how)
{
    const char *equals = strchr(how, '=');
    const struct cli_form *form;

    if (!equals) {
        cli_print_help(stdout, line, common);
        return ALIBI_OK;
    }
    TRY_RETURN(cli_form_find(&form, equals + 1));
    form->command(line, common);
    return ALIBI_OK;
}

alibi_status cli_run(struct cli_line *line, int argc, char **argv,
                     alibi_status (*run)(const struct cli_line *line, void *job), void *job)
{
    struct common common;
    struct groups g = { .count = line->count + 1 };
    const char *help = asks_for_help(argc, argv);
    alibi_status status;

    memcpy(g.at, line->groups, (size_t)line->count * sizeof g.at[0]);
    g.at[line->count] =
        (struct alibi_option_group){ "Common", common_options, CLI_COUNT(common_options), &common };
    if (help)
        return print_help(line, &g.at[line->count], help);
    TRY_RETURN(alibi_options_init(g.at, g.count));
    TRY(cli_agree(parse(&g, line, &common, job, argc, argv)));
    cli_terminal_start(common.quiet);
    TRY(run(line, job));
out:
    alibi_options_free(g.at, g.count);
    return status;
}
