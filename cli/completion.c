/* completion.c - the tables of options as completions for bash, zsh and fish
 *
 * Each is one file for all commands. It knows their options, the choices of an option, position
 * methods, installed recipes and experiments by name, and where files or folders belong. */
#include <string.h>

#include "cli.h"

/* ---- what may follow an option or a command */

enum kind {
    NOTHING,
    WORDS,
    LIST,           /* of words, with commas */
    FILES,          /* folders too */
    WORDS_OR_FILES, /* an installed file by name, or any other */
    FOLDERS
};

struct values {
    enum kind kind;
    char words[CLI_NAMES_BYTES]; /* with a blank between two */
};

static void add_word(struct values *v, const char *word, size_t length)
{
    size_t used = strlen(v->words);

    snprintf(v->words + used, sizeof v->words - used, "%s%.*s", used ? " " : "", (int)length, word);
}

/* "adamw|nesterov", "byte-10m, gpt2-124m" */
static void add_words(struct values *v, const char *list)
{
    const char *separators = "|, ";

    for (list += strspn(list, separators); *list; list += strspn(list, separators)) {
        size_t length = strcspn(list, separators);
        add_word(v, list, length);
        list += length;
    }
}

static void add_installed(struct values *v, const char *kind)
{
    char names[CLI_NAMES_BYTES];

    v->kind = WORDS_OR_FILES;
    cli_installed_names(kind, names);
    add_words(v, names);
}

static struct values values_of(const struct alibi_option *o)
{
    struct values v = { NOTHING, "" };
    const char *value = o->value ? o->value : "", *name;

    if (o->type == ALIBI_OPTION_CHOICE) {
        v.kind = WORDS;
        add_words(&v, o->choices);
    } else if (strcmp(o->name, "position") == 0 || strcmp(o->name, "methods") == 0) {
        v.kind = o->type == ALIBI_OPTION_NAMES ? LIST : WORDS;
        for (int i = 0; (name = alibi_position_name(i, NULL)) != NULL; i++)
            add_word(&v, name, strlen(name));
        for (int i = 0; (name = alibi_preset_name(i, NULL, NULL)) != NULL; i++)
            add_word(&v, name, strlen(name));
    } else if (strcmp(o->name, "recipe") == 0) {
        add_installed(&v, "recipes");
    } else if (strcmp(value, "DIR") == 0) {
        v.kind = FOLDERS;
    } else if (strcmp(value, "FILE") == 0 || strcmp(value, "PATH") == 0 ||
               strcmp(value, "MODEL") == 0) {
        v.kind = FILES;
    }
    return v;
}

/* Usage begins with the first argument: "targets|attention MODEL", or "[NAME" of an experiment. */
static struct values first_argument(const struct cli_line *line)
{
    struct values v = { line->max_operands > 0 ? FILES : NOTHING, "" };
    size_t word = strcspn(line->usage, " ");
    char first[128];

    snprintf(first, sizeof first, "%.*s", (int)word, line->usage);
    if (strchr(first, '|')) {
        v.kind = WORDS;
        add_words(&v, first);
    } else if (strcmp(first, "[NAME") == 0) {
        add_installed(&v, "experiments");
    }
    return v;
}

/* Whether files follow the first argument. */
static bool more_files(const struct cli_line *line)
{
    return line->max_operands > 1;
}

static struct values command_names(void)
{
    struct values v = { WORDS, "" };

    for (const struct cli_command *c = cli_commands; c->name; c++)
        add_word(&v, c->name, strlen(c->name));
    return v;
}

/* A flag that is on is offered as the one that switches it off. */
static const char *no(const struct alibi_option *o)
{
    return cli_option_is_on(o) ? "no-" : "";
}

static void each_option(const struct cli_line *line, const struct alibi_option_group *common,
                        void (*put)(const struct cli_line *line, const struct alibi_option *o))
{
    for (int g = 0; g <= line->count; g++) {
        const struct alibi_option_group *group = g < line->count ? &line->groups[g] : common;
        for (int i = 0; group->title && i < group->count; i++)
            put(line, &group->options[i]);
    }
}

/* Text within single quotes. A letter of `special` gets a backslash; a quote becomes `quote`. */
static void put_quoted(const char *text, const char *special, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'')
            printf("%s", quote);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
    }
}

/* ---- bash */

static const char *const bash_kinds[] = { "", "words", "list", "files", "named", "folders" };

static void bash_begin(void)
{
    printf("# bash completion of alibi, made by 'alibi help --as bash'\n\n"
           "_alibi() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    local options='--help' kind=operand words= operands= first= head=\n\n"
           "    COMPREPLY=()\n"
           "    if [ \"$before\" = = ]; then # --name=value is three words\n"
           "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
           "    elif [ \"$word\" = = ]; then\n"
           "        word=\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n");
}

static void bash_name(const struct cli_line *line, const struct alibi_option *o)
{
    (void)line;
    printf(" --%s%s", no(o), o->name);
}

static void bash_value(const struct cli_line *line, const struct alibi_option *o)
{
    struct values v = values_of(o);

    (void)line;
    if (o->type != ALIBI_OPTION_FLAG)
        printf("        --%s%s) kind=%s words='%s' ;;\n", o->name,
               strcmp(o->name, "out") == 0 ? " | -o" : "", bash_kinds[v.kind], v.words);
}

static void bash_command(const struct cli_line *line, const struct alibi_option_group *common)
{
    struct values first = first_argument(line);

    printf("    %s)\n        options='", line->command);
    each_option(line, common, bash_name);
    printf("'\n        first=%s words='%s' operands=%s\n        case $before in\n",
           bash_kinds[first.kind], first.words, more_files(line) ? "files" : "");
    each_option(line, common, bash_value);
    printf("        esac\n        ;;\n");
}

static void bash_end(void)
{
    struct values commands = command_names();

    printf("    help) first=words words='%s' ;;\n"
           "    esac\n"
           "    if ((COMP_CWORD == 1)); then\n"
           "        kind=words words='%s --help --version'\n"
           "    elif [ \"$kind\" = operand ] && [[ $word == -* ]]; then\n"
           "        kind=words words=$options\n"
           "    elif [ \"$kind\" = operand ]; then\n"
           "        ((COMP_CWORD == 2)) && kind=$first || kind=$operands\n"
           "    fi\n"
           "    if [ \"$kind\" = list ] && [[ $word == *,* ]]; then\n"
           "        head=${word%%,*}, word=${word##*,}\n"
           "    fi\n"
           "    case $kind in\n"
           "    words | list) mapfile -t COMPREPLY < <(compgen -P \"$head\" -W \"$words\" -- "
           "\"$word\") ;;\n"
           "    files) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
           "    named) mapfile -t COMPREPLY < <(compgen -W \"$words\" -f -- \"$word\") ;;\n"
           "    folders) mapfile -t COMPREPLY < <(compgen -d -- \"$word\") ;;\n"
           "    esac\n"
           "    case $kind in files | named | folders) compopt -o filenames 2> /dev/null ;; esac\n"
           "    return 0\n"
           "}\n\n"
           "complete -F _alibi alibi\n",
           commands.words, commands.words);
}

const struct cli_form cli_bash = { "bash", true, bash_begin, bash_command, bash_end };

/* ---- zsh */

static void zsh_begin(void)
{
    printf("#compdef alibi\n"
           "# zsh completion of alibi, made by 'alibi help --as zsh'\n\n"
           "_alibi() {\n"
           "    local -a commands\n"
           "    local command=$words[2]\n\n"
           "    commands=(\n");
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        printf("        '%s:", c->name);
        put_quoted(c->summary, "\\:", "'\\''");
        printf("'\n");
    }
    printf("    )\n"
           "    if ((CURRENT == 2)); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    ((CURRENT--))\n"
           "    case $command in\n");
}

static void zsh_action(const struct values *v)
{
    switch (v->kind) {
    case NOTHING:
        printf(" ");
        break;
    case WORDS:
        printf("(%s)", v->words);
        break;
    case LIST:
        printf("{_sequence compadd - %s}", v->words);
        break;
    case FILES:
        printf("_files");
        break;
    case WORDS_OR_FILES:
        printf("{compadd - %s; _files}", v->words);
        break;
    case FOLDERS:
        printf("_files -/");
        break;
    }
}

static void zsh_option(const struct cli_line *line, const struct alibi_option *o)
{
    struct values v = values_of(o);
    bool flag = o->type == ALIBI_OPTION_FLAG;
    bool out = strcmp(o->name, "out") == 0;

    (void)line;
    for (int form = 0; form <= out; form++) {
        printf(" \\\n            '%s%s%s%s[", form ? "" : "--", form ? "" : no(o),
               form ? "-o" : o->name, flag || form ? "" : "=");
        printf("%s", cli_option_is_on(o) ? "not: " : "");
        put_quoted(o->help, "\\[]", "'\\''");
        printf("]");
        if (!flag) {
            printf(":%s:", o->value ? o->value : "value");
            zsh_action(&v);
        }
        printf("'");
    }
}

static void zsh_command(const struct cli_line *line, const struct alibi_option_group *common)
{
    struct values first = first_argument(line);

    printf("    %s)\n        _arguments -S", line->command);
    each_option(line, common, zsh_option);
    if (first.kind != NOTHING) {
        printf(" \\\n            '1:argument:");
        zsh_action(&first);
        printf("'");
    }
    if (more_files(line))
        printf(" \\\n            '*:file:_files'");
    printf("\n        ;;\n");
}

static void zsh_end(void)
{
    printf("    help) ((CURRENT == 2)) && _describe command commands ;;\n"
           "    esac\n"
           "}\n\n"
           "if [ \"$funcstack[1]\" = _alibi ]; then\n" /* loaded from a folder of $fpath */
           "    _alibi \"$@\"\n"
           "else\n"
           "    compdef _alibi alibi\n"
           "fi\n");
}

const struct cli_form cli_zsh = { "zsh", true, zsh_begin, zsh_command, zsh_end };

/* ---- fish */

static void fish_line(const char *command)
{
    printf("complete -c alibi -n '__alibi_runs %s'", command);
}

static void fish_begin(void)
{
    printf("# fish completion of alibi, made by 'alibi help --as fish'\n\n"
           "function __alibi_runs\n"
           "    set -l words (commandline -opc)\n"
           "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
           "end\n\n"
           "function __alibi_has\n"
           "    test (count (commandline -opc)) -eq $argv[1]\n"
           "end\n\n"
           "complete -c alibi -f\n");
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        printf("complete -c alibi -n '__alibi_has 1' -a %s -d '", c->name);
        put_quoted(c->summary, "\\", "\\'");
        printf("'\n");
    }
}

static void fish_action(const struct values *v)
{
    switch (v->kind) {
    case NOTHING:
        printf(" -x");
        break;
    case WORDS:
        printf(" -x -a '%s'", v->words);
        break;
    case LIST:
        printf(" -x -a '(__fish_append , %s)'", v->words);
        break;
    case FILES:
        printf(" -r -F");
        break;
    case WORDS_OR_FILES:
        printf(" -r -F -a '%s'", v->words);
        break;
    case FOLDERS:
        printf(" -x -a '(__fish_complete_directories)'");
        break;
    }
}

static void fish_option(const struct cli_line *line, const struct alibi_option *o)
{
    struct values v = values_of(o);

    fish_line(line->command);
    printf(" -l %s%s%s", no(o), o->name, strcmp(o->name, "out") == 0 ? " -s o" : "");
    if (o->type != ALIBI_OPTION_FLAG)
        fish_action(&v);
    printf(" -d '%s", cli_option_is_on(o) ? "not: " : "");
    put_quoted(o->help, "\\", "\\'");
    printf("'\n");
}

static void fish_command(const struct cli_line *line, const struct alibi_option_group *common)
{
    struct values first = first_argument(line);

    if (first.words[0])
        printf("complete -c alibi -n '__alibi_runs %s; and __alibi_has 2' -a '%s'\n", line->command,
               first.words);
    if (first.kind == FILES || more_files(line)) {
        fish_line(line->command);
        printf(" -F\n");
    }
    each_option(line, common, fish_option);
}

static void fish_end(void)
{
    struct values commands = command_names();

    printf("complete -c alibi -n '__alibi_runs help; and __alibi_has 2' -a '%s'\n", commands.words);
}

const struct cli_form cli_fish = { "fish", true, fish_begin, fish_command, fish_end };
