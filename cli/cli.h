/* cli.h - what the commands share
 *
 *   main.c      picks the command, prints the one error line, turns the status into the exit code
 *   options.c   argv and the recipe into values; help.c the same tables as help text; groups.c
 * options that several commands have terminal.c  progress, notes, signals; json.c results for
 * programs; ids.c token ids as text
 *
 * A command is one cmd_<name>.c: a table of options, and a function that does the work with
 * include/alibi.h. */
#ifndef CLI_H
#define CLI_H

#include <stdio.h>

#include "alibi.h"

#define CLI_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* The longest window anyone may ask for: up to here a distance is exact in fp32. */
#define CLI_LENGTH_MAX 16777216

/* What attention may leave out unless told otherwise: 2^-24, the rounding of fp32. */
#define CLI_SKIP_DEFAULT "5.9604644775390625e-08"

/* A bound that is there for the machine, not for people: help says "at least" instead of a range.
 * */
#define CLI_UNBOUNDED 1e15

/* ---- errors (main.c)
 * --------------------------------------------------------------------------------------------------
 * */

/* Records the line that main prints for a failure of the program's own, and returns `status`. */
alibi_status cli_fail(alibi_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- a command line (options.c, help.c)
 * --------------------------------------------------------------------------------- */

struct cli_line {
    const char *command; /* "eval" */
    const char *usage;   /* "MODEL [OPTION...]" */
    const char *about;   /* what the command does, one paragraph */
    const struct alibi_option_group *groups;
    int count;
    int min_operands, max_operands; /* files and the like: arguments that are no options */
    bool lists_positions;           /* help ends with the position methods */

    /* Filled in by cli_run. */
    const char *const *operands;
    int operand_count;
    const char *recipe; /* file, NULL without */
    unsigned given;     /* bit g: an option of groups[g] stood on the command line */
};

/* Sets the defaults, reads the recipe, then the options, calls `run`, and releases what the options
 * held. With --help it prints the help and does nothing else. */
alibi_status cli_run(struct cli_line *line, int argc, char **argv,
                     alibi_status (*run)(const struct cli_line *line, void *job), void *job);

void cli_print_help(FILE *out, const struct cli_line *line,
                    const struct alibi_option_group *common);

/* Prints text in words, `indent` spaces before each line but the first, which begins at `column`.
 * */
void cli_print_wrapped(FILE *out, const char *text, int column, int indent);

/* ---- options that several commands have (groups.c)
 * ---------------------------------------------------------------------- */

/* A copy of a group's options, in which rows can be left out or get other defaults. */
struct cli_table {
    struct alibi_option at[64];
    struct alibi_option_group *group;
};
alibi_status cli_table_copy(
    struct cli_table *t, struct alibi_option_group *group); /* the group has the copy from now on */
void cli_table_drop(struct cli_table *t, const char *name);
void cli_table_default(struct cli_table *t, const char *name, const char *text);

struct alibi_option_group cli_model_group(struct alibi_config *values);
struct alibi_option_group cli_training_group(struct alibi_training *values);
struct alibi_option_group cli_device_group(
    struct alibi_compute *values); /* for alibi_device_open() */

/* What text a model reads, and how. */
struct cli_text {
    char *tokenizer, *valid; /* paths, NULL if not given */
    char *end;               /* a token */
    struct alibi_reading reading;
    struct alibi_builtin builtin;
};
struct alibi_option_group cli_text_group(
    struct cli_text *values); /* --tokenizer, --end and --valid */
/* For commands on a model, which has its own tokenizer: no help shows it, and
 * cli_refuse_tokenizer() says why it is not taken. */
struct alibi_option_group cli_no_tokenizer_group(struct cli_text *values);
alibi_status cli_refuse_tokenizer(const struct cli_text *values);
struct alibi_option_group cli_reading_group(struct alibi_reading *values);
struct alibi_option_group cli_builtin_group(struct alibi_builtin *values);

/* The files, or the built-in text if there are none. `t`: the tokenizer where --tokenizer is not
 * given; NULL: that of the shards, or bytes. */
alibi_status cli_open_corpus(alibi_corpus **out, const char *const *files, int count,
                             const struct cli_text *text, const alibi_tokenizer *t);

/* ---- terminal (terminal.c)
 * ------------------------------------------------------------------------------------------------
 * */

/* Shows the library's progress and notes on stderr; quiet: warnings only. */
void cli_terminal_start(bool quiet);

void cli_note(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* like a note of the library's */

/* Takes the progress line away, so that something else may be printed. */
void cli_terminal_clear(void);

/* The context of the program's calls of the library: progress and notes go to the terminal, signals
 * stop them. The skipping budget is 0 until it is set. */
const struct alibi_call *cli_call(void);
void cli_set_skip(double skip);

/* SIGINT and SIGTERM ask the library to save and stop; one more, a second or more later, ends the
 * program at once, as if not caught. */
void cli_catch_signals(void);

int cli_columns(void); /* of stdout, 80 if unknown */
bool cli_colour(void);
double cli_now(void); /* seconds, since whenever */

/* Short forms into a buffer that they return: 18.2k, 213 MiB, 1:05:09. */
enum { CLI_SHORT = 32 };
const char *cli_short_count(char *buffer, double value);
const char *cli_short_bytes(char *buffer, size_t bytes);
const char *cli_short_time(char *buffer, double seconds);

/* ---- JSON for programs (json.c)
 * ------------------------------------------------------------------------------------------- */

/* Members are written as they are told, to stdout; `key` is NULL within a list. What is not finite
 * becomes null. */
void cli_json_open(const char *key, char bracket); /* '{' or '[' */
void cli_json_close(char bracket);                 /* '}' or ']'; the outermost one ends the line */
void cli_json_int(const char *key, int64_t value);
void cli_json_real(const char *key, double value);
void cli_json_flag(const char *key, bool value);
void cli_json_text(const char *key, const char *value);
void cli_json_device(const struct alibi_device_info *device); /* its name, gpu, precision */
void cli_json_options(
    const char *key,
    const struct alibi_option_group *group); /* an object as in a recipe; no texts, no lists */

/* ---- token ids as text (ids.c)
 * ------------------------------------------------------------------------------------------- */

/* A document per line, blanks between the ids, its end id the last: as alibi_tokenize_each() wants
 * it. `user` is a bool, whether a line has begun. */
bool cli_print_ids(void *user, const int32_t *ids, int64_t count, bool ends);

/* The way back: prints the text of such lines. Between two documents stands a line end, if the
 * first has none of its own. */
alibi_status cli_print_text(const alibi_tokenizer *t, const char *const *paths, int count);

/* ---- commands
 * ---------------------------------------------------------------------------------------------------------------
 * */

/* argv[0] is the first argument behind the command's name. */
alibi_status cmd_compare(int argc, char **argv);
alibi_status cmd_train(int argc, char **argv);
alibi_status cmd_eval(int argc, char **argv);
alibi_status cmd_generate(int argc, char **argv);
alibi_status cmd_inspect(int argc, char **argv);
alibi_status cmd_tokenize(int argc, char **argv);
alibi_status cmd_text(int argc, char **argv);
alibi_status cmd_bench(int argc, char **argv);
alibi_status cmd_plan(int argc, char **argv);

/* ---- what a benchmark and a plan say of the device and the model (groups.c)
 * ------------------------------------------- */

const char *cli_recompute_name(int recompute); /* "none", "cheap", "block" */

/* "recipes/byte-10m.json" is called byte-10m; without a recipe: "options". */
void cli_name_recipe(const char *recipe, char *name, size_t size);

/* ---- `alibi bench attention` (bench_attention.c)
 * ----------------------------------------------------------------------- */

alibi_status cli_bench_attention(alibi_device *device, const struct alibi_bench_attention *how,
                                 const struct alibi_int_list *lengths, bool json);

#endif
