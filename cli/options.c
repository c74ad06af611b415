/* options.c - argv and the recipe into values
 *
 *   defaults, then the recipe, then the options of the command line: the later one wins
 *
 * Names, types and ranges come from the tables; the library checks values and finds the nearest
 * name. */
#include <string.h>

#include "cli.h"

/* Options of every command. They are not recipe keys. */
struct common {
    char *recipe;
    bool quiet, help;
};

#define AT(field) offsetof(struct common, field)

static const struct alibi_option common_options[] = {
    { "recipe", ALIBI_OPTION_TEXT, AT(recipe), 0, 0, NULL, NULL, "FILE",
      "JSON object with the names of the options above, train_length for --train-length; options "
      "override it" },
    { "quiet", ALIBI_OPTION_FLAG, AT(quiet), 0, 0, NULL, NULL, NULL,
      "no progress and no notes, only warnings and errors" },
    { "help", ALIBI_OPTION_FLAG, AT(help), 0, 0, NULL, NULL, NULL, "print this and exit" },
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
    int used; /* arguments it took: 1 or 2 */
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

/* The value of an option that needs one: after `=`, or the next argument if that is no option. */
static alibi_status take_value(const struct alibi_option *option, const char *next,
                               struct argument *out)
{
    if (out->text)
        return ALIBI_OK;
    if (!next || strncmp(next, "--", 2) == 0)
        return cli_fail(ALIBI_USAGE, "option '--%s' needs a value%s%s", option->name,
                        option->value ? ": " : "", option->value ? option->value : "");
    out->text = next;
    out->used = 2;
    return ALIBI_OK;
}

/* Reads `--name value`, `--name=value`, `--flag` or `--no-flag`. `name` is room for the option's
 * name. */
static alibi_status read_option(const struct groups *g, const char *argument, const char *next,
                                char *name, size_t size, struct argument *out)
{
    size_t length = strcspn(argument, "=") - 2;
    const char *equals = strchr(argument, '=');
    const struct alibi_option *option;

    if (argument[1] != '-')
        return cli_fail(
            ALIBI_USAGE,
            "no option '%s': options begin with two dashes; put a file of that name after '--'",
            argument);
    if (length >= size)
        length = size - 1; /* too long to exist: the lookup fails */
    memcpy(name, argument + 2, length);
    name[length] = '\0';
    *out = (struct argument){ .name = name, .text = equals ? equals + 1 : NULL, .used = 1 };

    if (!equals && is_negated(g, name)) {
        out->name = name + 3;
        out->text = "false";
    }
    option = out->option = alibi_options_find(g->at, g->count, out->name, &out->group);
    if (!option)
        return alibi_options_set(g->at, g->count, out->name, ""); /* fails and names the nearest */
    if (option->type == ALIBI_OPTION_FLAG) {
        if (!out->text)
            out->text = "true";
        return ALIBI_OK;
    }
    return take_value(option, next, out);
}

/* ---- all arguments */

/* Which options a walk through argv sets: those of the common group, or those of all others. The
 * last walk moves the operands to the front of argv. */
enum pass { COMMON_OPTIONS, OWN_OPTIONS, LAST_PASS };

static alibi_status walk(const struct groups *g, struct cli_line *line, int argc, char **argv,
                         enum pass pass)
{
    bool options_ended = false;
    int operands = 0;

    for (int i = 0; i < argc;) {
        char name[64];
        struct argument argument;
        alibi_status status;

        if (!options_ended && strcmp(argv[i], "--") == 0) {
            options_ended = true;
            i++;
            continue;
        }
        if (options_ended || argv[i][0] != '-' || argv[i][1] == '\0') { /* "-": standard input */
            if (pass == LAST_PASS)
                argv[operands] = argv[i];
            operands++;
            i++;
            continue;
        }
        /* -o is the only short form. */
        status = read_option(g, strcmp(argv[i], "-o") == 0 ? "--out" : argv[i],
                             i + 1 < argc ? argv[i + 1] : NULL, name, sizeof name, &argument);
        if (status == ALIBI_OK &&
            (argument.group == &g->at[g->count - 1]) == (pass == COMMON_OPTIONS))
            status = alibi_options_set(g->at, g->count, argument.name, argument.text);
        if (status != ALIBI_OK)
            return status;
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
    alibi_status status = walk(g, line, argc, argv, COMMON_OPTIONS);

    line->recipe = common->recipe;
    if (status == ALIBI_OK && line->base)
        status = walk(g, line, argc, argv, OWN_OPTIONS);
    if (status == ALIBI_OK && line->base)
        status = line->base(job);
    if (status == ALIBI_OK && common->recipe)
        status = alibi_options_read(line->groups, line->count, common->recipe);
    if (status == ALIBI_OK)
        status = walk(g, line, argc, argv, LAST_PASS);
    if (status == ALIBI_OK && line->operand_count < line->min_operands)
        status = cli_fail(ALIBI_USAGE, "too few arguments; usage: alibi %s %s", line->command,
                          line->usage);
    if (status == ALIBI_OK && line->operand_count > line->max_operands)
        status = cli_fail(ALIBI_USAGE, "'%s' is one argument too many; usage: alibi %s %s",
                          line->operands[line->max_operands], line->command, line->usage);
    return status;
}

/* --help wins over everything else. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

alibi_status cli_run(struct cli_line *line, int argc, char **argv,
                     alibi_status (*run)(const struct cli_line *line, void *job), void *job)
{
    struct common common;
    struct groups g = { .count = line->count + 1 };
    alibi_status status;

    memcpy(g.at, line->groups, (size_t)line->count * sizeof g.at[0]);
    g.at[line->count] =
        (struct alibi_option_group){ "Common", common_options, CLI_COUNT(common_options), &common };
    if (asks_for_help(argc, argv)) {
        cli_print_help(stdout, line, &g.at[line->count]);
        return ALIBI_OK;
    }
    status = alibi_options_init(g.at, g.count);
    if (status != ALIBI_OK)
        return status;
    status = parse(&g, line, &common, job, argc, argv);
    if (status == ALIBI_OK) {
        cli_terminal_start(common.quiet);
        status = run(line, job);
    }
    alibi_options_free(g.at, g.count);
    return status;
}
