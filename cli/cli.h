/* cli.h - shared by the commands
 *
 *   main.c       picks the command, prints the one error line, makes the status the exit code
 *   options.c    argv and the recipe into values; help.c prints the same tables as help, manual.c
 *                as manual pages, completion.c as completions for shells
 *   groups.c     options that several commands have; subject.c a model and its test text
 *   ranks.c      one process of several that mpirun has started
 *   terminal.c   progress, notes, signals; json.c results for programs; ids.c token ids as text
 *
 * A command is one cmd_<name>.c: a table of options, and a function that does the work with
 * include/alibi.h. */
#ifndef CLI_H
#define CLI_H

#include <stdio.h>

#include "alibi.h"

#define CLI_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* The longest window: up to here a distance is exact in fp32. */
#define CLI_LENGTH_MAX 16777216

/* The default skipping budget of attention: 2^-24, the rounding of fp32. */
#define CLI_SKIP_DEFAULT "5.9604644775390625e-08"

/* From this bound on, help says "at least" instead of a range. */
#define CLI_UNBOUNDED 1e15

/* ---- errors (main.c) */

/* Records the line that main() prints for a failure of the program itself; returns `status`. */
alibi_status cli_fail(alibi_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `done` of `lengths` were measured before the failure. If there are any, the message says that
 * their results are printed. */
alibi_status cli_fail_later(alibi_status status, int done, int lengths);
const char *cli_error(void); /* of the last failure */

/* As in lib/base/base.h: leaves the function through its one exit on failure. The function has
 * `alibi_status status` and a label `out`. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != ALIBI_OK)                                                                    \
            goto out;                                                                              \
    } while (0)

/* The same for functions that hold nothing to clean up. */
#define TRY_RETURN(call)                                                                           \
    do {                                                                                           \
        alibi_status try_status = (call);                                                          \
        if (try_status != ALIBI_OK)                                                                \
            return try_status;                                                                     \
    } while (0)

/* ---- commands (main.c) */

/* argv[0] is the first argument after the command's name. */
struct cli_command {
    const char *name;
    alibi_status (*run)(int argc, char **argv);
    const char *summary;
    bool divides; /* its work among the processes of mpirun or srun */
};
extern const struct cli_command cli_commands[]; /* ends with a name of NULL */
extern const char cli_about_text[];             /* what the program does */

/* ---- ranks (ranks.c) */

/* Connects this process with the others of its launcher; without one it does nothing. From now on
 * rank 0 alone prints: results, notes, and the failures that all agree on. */
alibi_status cli_ranks_join(void);
void cli_ranks_leave(alibi_status status); /* status: how the command ended */
int cli_ranks(void);                       /* the number of ranks */
bool cli_is_first_rank(void);

/* All ranks call it at the same point, before work that they divide: if one has failed, all get its
 * failure. Functions of the library that divide work do this themselves. */
alibi_status cli_agree(alibi_status status);
bool cli_others_know(void); /* the others know that this rank failed, and rank 0 reports it */

/* ---- a command line (options.c, help.c) */

/* Rows of a table of options: the option's name, the member of the values that it sets, its range
 * or choices, its default (NULL: 0, none), a word for its value in help, and the help. The file
 * defines AT(member), the offset of a member in the struct of the values. */
/* clang-format off */
#define OPT_FLAG(name, member, help) \
    { name, ALIBI_OPTION_FLAG, AT(member), 0, 0, NULL, NULL, NULL, help }
#define OPT_FLAG_ON(name, member, help) \
    { name, ALIBI_OPTION_FLAG, AT(member), 0, 0, NULL, "true", NULL, help }
#define OPT_INT(name, member, min, max, initial, value, help) \
    { name, ALIBI_OPTION_INT, AT(member), min, max, NULL, initial, value, help }
#define OPT_REAL(name, member, min, max, initial, value, help) \
    { name, ALIBI_OPTION_REAL, AT(member), min, max, NULL, initial, value, help }
#define OPT_TEXT(name, member, initial, value, help) \
    { name, ALIBI_OPTION_TEXT, AT(member), 0, 0, NULL, initial, value, help }
#define OPT_CHOICE(name, member, choices, initial, help) \
    { name, ALIBI_OPTION_CHOICE, AT(member), 0, 0, choices, initial, "NAME", help }
#define OPT_INTS(name, member, min, max, initial, help) \
    { name, ALIBI_OPTION_INTS, AT(member), min, max, NULL, initial, "LIST", help }
#define OPT_NAMES(name, member, initial, help) \
    { name, ALIBI_OPTION_NAMES, AT(member), 0, 0, NULL, initial, "LIST", help }
/* clang-format on */

enum { CLI_GROUPS_MAX = 12 }; /* with the common one */

struct cli_line {
    const char *command; /* "eval" */
    const char *usage;   /* "MODEL [OPTION...]" */
    const char *about;   /* what the command does, one paragraph */
    const struct alibi_option_group *groups;
    int count;
    int min_operands, max_operands;  /* arguments that are not options, such as files */
    bool lists_positions;            /* help ends with the position methods */
    alibi_status (*base)(void *job); /* may be NULL: sets values that recipe and options override */
    /* Options of other commands that people try here, and what to do instead; the last is NULL. */
    const struct cli_hint {
        const char *option, *advice;
    } * hints;

    /* Set by cli_run(). */
    const char *const *operands;
    int operand_count;
    const char *recipe;             /* a file; NULL: none */
    uint64_t given[CLI_GROUPS_MAX]; /* bit i of [g]: the command line has option i of groups[g] */
};

/* Sets the defaults, reads the recipe, then the options, calls `run`, and releases the values. With
 * --help it prints the help and does nothing else. `base` sees the options of the command line,
 * before the recipe is read. */
alibi_status cli_run(struct cli_line *line, int argc, char **argv,
                     alibi_status (*run)(const struct cli_line *line, void *job), void *job);

/* Whether the command line has the option of that name of groups[group]. */
bool cli_is_given(const struct cli_line *line, int group, const char *name);

void cli_print_help(FILE *out, const struct cli_line *line,
                    const struct alibi_option_group *common);

/* The help of an option, its range and its default: "number of steps (at least 1; default 4)". */
enum { CLI_OPTION_TEXT = 640 };
void cli_option_text(const struct alibi_option *o, char text[CLI_OPTION_TEXT]);
bool cli_option_is_on(const struct alibi_option *o); /* a flag that can only be switched off */

/* The explanation of numbers in --help, in every form. */
extern const char cli_numbers_text[];

/* Wraps text at the terminal's width. The first line starts at `column`, the others at `indent`. */
void cli_print_wrapped(FILE *out, const char *text, int column, int indent);

/* ---- installed files of a kind, "recipes" or "experiments" (options.c) */

enum { CLI_PATH_BYTES = 4096, CLI_FILES_MAX = 256, CLI_NAMES_BYTES = 1024 };

/* Folder number i of such files: first that of the installation, then that of the source tree that
 * the program was built in; false past the last. */
bool cli_installed_folder(const char *kind, int i, char folder[CLI_PATH_BYTES]);
/* The names of the files, separated by ", "; "" if there are none. */
void cli_installed_names(const char *kind, char names[CLI_NAMES_BYTES]);
/* The file that a name means: the path as given, else the installed file of that name. `what` is
 * for the message: "recipe". */
alibi_status cli_find_installed(const char *kind, const char *what, const char *name,
                                char found[CLI_PATH_BYTES]);

/* ---- other forms of help (manual.c, completion.c) */

/* `alibi help --as NAME` writes it to stdout. With `--help=NAME` a command shows its tables in that
 * form. */
struct cli_form {
    const char *name;
    bool whole; /* one file for all commands, otherwise one for each and one of them all */
    void (*begin)(void);
    void (*command)(const struct cli_line *line, const struct alibi_option_group *common);
    void (*end)(void); /* may be NULL */
};
extern const struct cli_form cli_man, cli_bash, cli_zsh, cli_fish;
alibi_status cli_form_find(const struct cli_form **form, const char *name);

/* ---- options that several commands have (groups.c) */

/* A copy of a group's options, whose rows can be dropped or get other defaults. */
struct cli_table {
    struct alibi_option at[64];
    struct alibi_option_group *group;
};
/* The group uses the copy from now on. */
alibi_status cli_table_copy(struct cli_table *t, struct alibi_option_group *group);
void cli_table_drop(struct cli_table *t, const char *name);
void cli_table_default(struct cli_table *t, const char *name, const char *text);

struct alibi_option_group cli_model_group(struct alibi_config *values);
struct alibi_option_group cli_training_group(struct alibi_training *values);
struct alibi_option_group cli_device_group(struct alibi_compute *values);
/* The device for these values, which are a group of the line. With several ranks, each uses the GPU
 * of its local number, unless --gpu names one. */
alibi_status cli_open_device(alibi_device **out, const struct cli_line *line,
                             const struct alibi_compute *values);

/* The text that a model reads, and how it is read. */
struct cli_text {
    char *tokenizer, *valid; /* paths, NULL if not given */
    char *end;               /* a token */
    struct alibi_reading reading;
    struct alibi_builtin builtin;
};
/* --tokenizer, --end and --valid. */
struct alibi_option_group cli_text_group(struct cli_text *values);
/* For commands on a model, which has a tokenizer of its own: not shown in help, and
 * cli_refuse_tokenizer() explains why it is refused. */
struct alibi_option_group cli_no_tokenizer_group(struct cli_text *values);
alibi_status cli_refuse_tokenizer(const struct cli_text *values);
struct alibi_option_group cli_reading_group(struct alibi_reading *values);
struct alibi_option_group cli_builtin_group(struct alibi_builtin *values);
/* ALIBI_USAGE if the command line requests a smaller built-in text than there is. The recipe of an
 * older run may. */
alibi_status cli_check_builtin(const struct cli_line *line);
/* Without files the built-in text is read: a note for users who did not ask for it. */
void cli_note_builtin(const struct cli_line *line, int builtin_group);

/* The files, or the built-in text if there are none. `t` is the tokenizer if --tokenizer is not
 * given; NULL: that of the shards, or bytes. */
alibi_status cli_open_corpus(alibi_corpus **out, const char *const *files, int count,
                             const struct cli_text *text, const alibi_tokenizer *t);

/* ---- a model and the text that it is tested on (subject.c) */

struct cli_subject {
    char *data;     /* options: --data, --split, --as-position */
    int split;      /* 0: see cli_subject_split(); else enum alibi_split + 1 */
    char *position; /* NULL: the model's own */
    bool
        any_text; /* without files, use the built-in text even if the model was not trained on it */
    struct cli_text text;
    struct alibi_compute compute;

    /* Set by cli_subject_open_model(). */
    const char *path; /* of the model; set before if it is not an operand */
    const char *const *files;
    int file_count; /* 0: the built-in text */
    alibi_device *device;
    alibi_model *model;

    /* Set by cli_subject_open_text(). */
    alibi_corpus *corpus;
    struct alibi_corpus_info info;
    enum alibi_seen seen;
};

/* Refuses a file as operand number `model` if a later operand is a model, and says which. */
alibi_status cli_check_order(const struct cli_line *line, int model);

/* --data, --split and --as-position. */
struct alibi_option_group cli_subject_group(struct cli_subject *values);
/* The model is operand number `first`, and the files follow it; or they begin there. Reading the
 * text may take long, so requests are checked in between. `builtin_group`: the number of the group
 * with the options of the built-in text. After a failure too, close it. */
alibi_status cli_subject_open_model(struct cli_subject *s, const struct cli_line *line, int first);
alibi_status cli_subject_open_text(struct cli_subject *s, const struct cli_line *line,
                                   int builtin_group);
void cli_subject_close(struct cli_subject *s);
enum alibi_split cli_subject_split(const struct cli_subject *s);
const char *cli_subject_split_name(const struct cli_subject *s);
/* The members that name model, device, text and split. */
void cli_json_subject(const struct cli_subject *s);

/* Reads a whole file, or standard input if it is "-", unchanged. `what` is for messages: "the
 * prompt". free(*out). */
enum { CLI_TEXT_MAX = 1 << 24 };
alibi_status cli_read_text(char **out, size_t *bytes, const char *path, const char *what);

/* Refuses a file that exists or cannot be written, before the work; `example` is a name for one. */
alibi_status cli_check_new_file(const char *path, const char *example);

/* ---- terminal (terminal.c) */

/* Progress and notes of the library go to stderr from now on; quiet: warnings only. */
void cli_terminal_start(bool quiet);

/* Mutes a process other than rank 0, which prints neither progress nor notes. */
void cli_terminal_mute(bool mute);

/* Prints a note or a warning like one of the library. */
void cli_say(enum alibi_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define cli_note(...) cli_say(ALIBI_NOTE, __VA_ARGS__)

/* Removes the progress line; to be called before anything else is printed. */
void cli_terminal_clear(void);

/* Prints a report of the library and releases it; NULL: there is none. The last line names the
 * files in `dir`; NULL: no such line. */
void cli_print_report(char *report, const char *dir);

/* The context of every call of the library: progress and notes go to the terminal, signals stop it.
 * The skipping budget is 0 until it is set. */
const struct alibi_call *cli_call(void);
void cli_set_skip(double skip);
void cli_set_comm(alibi_comm *comm);

/* Shows the rows so far. If nobody can read them, the work stops as if it were requested. */
void cli_flush(void);

/* From now on SIGINT and SIGTERM ask the library to save and stop. A second signal, at least a
 * second later, ends the program at once, as if it were not caught. */
void cli_catch_signals(void);

int cli_columns(void); /* of stdout, 80 if unknown */
bool cli_colour(void);
double cli_now(void); /* seconds of a monotonic clock */

/* Short forms into a buffer that they return: 18.2k, 213 MiB, 1:05:09. */
enum { CLI_SHORT = 32 };
const char *cli_short_count(char *buffer, double value);
const char *cli_short_bytes(char *buffer, size_t bytes);
const char *cli_short_time(char *buffer, double seconds);
/* Four digits, also if the last are zeros, or all digits before the point as long as they fit the
 * column. Limits are half a last digit below the power of ten, so that 9.9996 becomes 10.00. */
const char *cli_short_ppl(char *buffer, double ppl);

/* ---- JSON for programs (json.c) */

/* Writes to stdout, one member per line, in the order of the calls. `key` is NULL within a list.
 * Numbers that are not finite become null. */
void cli_json_open(const char *key, char bracket); /* '{' or '[' */
void cli_json_close(char bracket);                 /* '}' or ']'; the outermost one ends the line */
void cli_json_int(const char *key, int64_t value);
void cli_json_real(const char *key, double value);
void cli_json_flag(const char *key, bool value);
void cli_json_text(const char *key, const char *value);
/* The origin of a result: version, date, device, machine, gpu, precision. */
void cli_json_device(const struct alibi_device_info *device);
void cli_json_quote(const char *value); /* a string alone */
/* An object as in a recipe; the group has neither texts nor lists. */
void cli_json_options(const char *key, const struct alibi_option_group *group);

/* ---- token ids as text (ids.c) */

/* Prints a document per line, its end id last. A callback of alibi_tokenize_each(): `user` is a
 * bool, whether a line has begun. */
bool cli_print_ids(void *user, const int32_t *ids, int64_t count, bool ends);

/* The reverse: prints the text of such lines, with a line end between two documents if the first
 * has none of its own. */
alibi_status cli_print_text(const alibi_tokenizer *t, const char *const *paths, int count);

/* ---- commands */

alibi_status cmd_compare(int argc, char **argv);
alibi_status cmd_reproduce(int argc, char **argv);
alibi_status cmd_train(int argc, char **argv);
alibi_status cmd_export(int argc, char **argv);
alibi_status cmd_import(int argc, char **argv);
alibi_status cmd_eval(int argc, char **argv);
alibi_status cmd_probe(int argc, char **argv);
alibi_status cmd_fit(int argc, char **argv);
alibi_status cmd_report(int argc, char **argv);
alibi_status cmd_generate(int argc, char **argv);
alibi_status cmd_score(int argc, char **argv);
alibi_status cmd_inspect(int argc, char **argv);
alibi_status cmd_tokenize(int argc, char **argv);
alibi_status cmd_text(int argc, char **argv);
alibi_status cmd_bench(int argc, char **argv);
alibi_status cmd_plan(int argc, char **argv);

/* ---- names that a benchmark and a plan print (groups.c) */

const char *cli_recompute_name(int recompute); /* "none", "cheap", "block" */

/* "byte-10m" for "recipes/byte-10m.json"; "options" without a recipe. */
void cli_name_recipe(const char *recipe, char *name, size_t size);

/* ---- `alibi bench attention` (bench_attention.c) */

alibi_status cli_bench_attention(alibi_device *device, const struct alibi_bench_attention *how,
                                 const struct alibi_int_list *lengths, bool json);
/* With --model: on the operands of its layers. No lengths: the training length and four times that.
 * If a later length fails, the finished ones are printed. */
alibi_status cli_bench_model_attention(const struct cli_subject *subject,
                                       const struct alibi_bench_attention *how,
                                       const struct alibi_int_list *lengths, bool json);

/* `alibi bench ops` (bench_ops.c): every operation alone. names empty: all of them. */
alibi_status cli_bench_ops(alibi_device *device, const struct alibi_name_list *names,
                           int64_t repeats, bool json);

#endif
