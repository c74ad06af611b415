/* groups.c - options that several commands have: the model, its training, the text */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* ---- tables */

alibi_status cli_table_copy(struct cli_table *t, struct alibi_option_group *group)
{
    if (group->count > CLI_COUNT(t->at))
        return cli_fail(ALIBI_USAGE, "'%s' has %d options, but struct cli_table has room for %d",
                        group->title, group->count, CLI_COUNT(t->at));
    memcpy(t->at, group->options, (size_t)group->count * sizeof t->at[0]);
    group->options = t->at;
    t->group = group;
    return ALIBI_OK;
}

static struct alibi_option *find(struct cli_table *t, const char *name)
{
    for (int i = 0; i < t->group->count; i++) {
        if (strcmp(t->at[i].name, name) == 0)
            return &t->at[i];
    }
    return NULL;
}

void cli_table_drop(struct cli_table *t, const char *name)
{
    struct alibi_option *option = find(t, name);

    if (!option)
        return;
    t->group->count--;
    memmove(option, option + 1, (size_t)(t->at + t->group->count - option) * sizeof *option);
}

void cli_table_default(struct cli_table *t, const char *name, const char *text)
{
    struct alibi_option *option = find(t, name);

    if (option)
        option->initial = text;
}

/* ---- groups of the library's options */

struct alibi_option_group cli_model_group(struct alibi_config *values)
{
    struct alibi_option_group group = { .title = "Model", .values = values };

    group.options = alibi_config_options(&group.count);
    return group;
}

struct alibi_option_group cli_training_group(struct alibi_training *values)
{
    struct alibi_option_group group = { .title = "Training", .values = values };

    group.options = alibi_training_options(&group.count);
    return group;
}

struct alibi_option_group cli_device_group(struct alibi_compute *values)
{
    struct alibi_option_group group = { .title = "Device", .values = values };

    group.options = alibi_compute_options(&group.count);
    return group;
}

alibi_status cli_open_device(alibi_device **out, const struct cli_line *line,
                             const struct alibi_compute *values)
{
    struct alibi_compute compute = *values;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct alibi_comm_info info;
    bool gpu_given = false;

    for (int g = 0; g < line->count; g++)
        if (line->groups[g].values == values)
            gpu_given = cli_is_given(line, g, "gpu");
    alibi_comm_get_info(cli_call()->comm, &info);
    /* A launcher may show each process a GPU of its own, which is number 0 there. */
    if (info.size > 1 && !gpu_given)
        compute.gpu = visible != NULL && strchr(visible, ',') == NULL ? 0 : info.local_rank;
    return alibi_device_open(out, &compute, cli_call());
}

/* ---- names in results */

const char *cli_recompute_name(int recompute)
{
    static const char *const names[] = { "none", "cheap", "block" };

    return names[recompute];
}

void cli_name_recipe(const char *recipe, char *name, size_t size)
{
    const char *slash = recipe ? strrchr(recipe, '/') : NULL;
    const char *base = slash ? slash + 1 : recipe ? recipe : "model";
    const char *dot = strrchr(base, '.');

    snprintf(name, size, "%.*s", (int)(dot ? (size_t)(dot - base) : strlen(base)), base);
}

/* ---- text */

#define AT(field) offsetof(struct cli_text, field)

static const struct alibi_option text_options[] = {
    OPT_TEXT(
        "tokenizer", tokenizer, NULL, "PATH",
        "tokenizer.json, or a folder with one or with vocab.json and merges.txt; default: that of "
        "the shards, bytes for text"),
    OPT_TEXT("end", end, NULL, "TOKEN",
             "token of --tokenizer that ends a document; default: the usual one, if it has one"),
    OPT_TEXT(
        "valid", valid, NULL, "PATH",
        "file or folder to validate on; all of the other text is for training; default: a twentieth "
        "of the text"),
};

struct alibi_option_group cli_text_group(struct cli_text *values)
{
    return (struct alibi_option_group){ "Text", text_options, CLI_COUNT(text_options), values };
}

struct alibi_option_group cli_no_tokenizer_group(struct cli_text *values)
{
    return (struct alibi_option_group){ .options = text_options, .count = 2, .values = values };
}

alibi_status cli_refuse_tokenizer(const struct cli_text *values)
{
    if (!values->tokenizer && !values->end)
        return ALIBI_OK;
    return cli_fail(ALIBI_USAGE,
                    "option '%s' does not apply to a model, which has the tokenizer that it was "
                    "trained with",
                    values->tokenizer ? "--tokenizer" : "--end");
}

struct alibi_option_group cli_reading_group(struct alibi_reading *values)
{
    struct alibi_option_group group = { .title = "How text files are read", .values = values };

    group.options = alibi_reading_options(&group.count);
    return group;
}

struct alibi_option_group cli_builtin_group(struct alibi_builtin *values)
{
    struct alibi_option_group group = { .title = "Built-in text, used if no file is given",
                                        .values = values };

    group.options = alibi_builtin_options(&group.count);
    return group;
}

alibi_status cli_check_builtin(const struct cli_line *line)
{
    int count;
    const struct alibi_option *options = alibi_builtin_options(&count);

    for (int g = 0; g < line->count; g++) {
        const struct alibi_builtin *text = line->groups[g].values;

        if (line->groups[g].options == options && line->given[g] &&
            text->bytes < ALIBI_BUILTIN_LEAST)
            return cli_fail(ALIBI_USAGE,
                            "--text-bytes %lld: the built-in text has at least %d bytes; give "
                            "more%s",
                            (long long)text->bytes, ALIBI_BUILTIN_LEAST,
                            line->max_operands > 0 ? ", or a FILE" : "");
    }
    return ALIBI_OK;
}

void cli_note_builtin(const struct cli_line *line, int builtin_group)
{
    if (line->operand_count == 0 && !line->given[builtin_group])
        cli_note("no FILE is given, so the built-in text is used; for your own text: alibi %s FILE",
                 line->command);
}

alibi_status cli_open_corpus(alibi_corpus **out, const char *const *files, int count,
                             const struct cli_text *text, const alibi_tokenizer *t)
{
    alibi_tokenizer *own = NULL;
    alibi_status status;

    if (count == 0 && text->valid)
        return cli_fail(ALIBI_USAGE,
                        "--valid needs files; the built-in text has a validation part of its own");
    if (text->end && !text->tokenizer)
        return cli_fail(ALIBI_USAGE, "--end names a token of a tokenizer; give --tokenizer too");
    if (text->tokenizer) {
        TRY(alibi_tokenizer_open(&own, text->tokenizer, text->end));
        t = own;
    }
    if (count > 0)
        TRY(alibi_corpus_open(out, files, count, text->valid, t, &text->reading, cli_call()));
    else
        TRY(alibi_corpus_builtin(out, (uint64_t)text->builtin.seed, text->builtin.bytes, t,
                                 cli_call()));
out:
    alibi_tokenizer_free(own);
    return status;
}

alibi_status cli_read_text(char **out, size_t *bytes, const char *path, const char *what)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "r");
    char *text = NULL;
    size_t length = 0, capacity = 0;
    alibi_status status = ALIBI_OK;

    if (!file)
        return cli_fail(ALIBI_BAD_INPUT, "cannot open '%s': %s", path,
                        strstr(path, "://") ? "it is an address; download the file first"
                                            : strerror(errno));
    do {
        char *grown;

        capacity = capacity ? 2 * capacity : 4096;
        if (capacity > CLI_TEXT_MAX)
            TRY(cli_fail(ALIBI_BAD_INPUT, "%s in '%s' has %d bytes or more", what, path,
                         CLI_TEXT_MAX));
        grown = realloc(text, capacity);
        if (!grown)
            TRY(cli_fail(ALIBI_MEMORY, "not enough memory for %s of %zu bytes", what, capacity));
        text = grown;
        length += fread(text + length, 1, capacity - length, file);
    } while (length == capacity);
    if (ferror(file))
        TRY(cli_fail(errno == EISDIR ? ALIBI_BAD_INPUT : ALIBI_IO, "cannot read %s from '%s': %s",
                     what, path, strerror(errno)));
    *out = text;
    *bytes = length;
    text = NULL;
out:
    free(text);
    if (!standard)
        fclose(file);
    return status;
}

alibi_status cli_check_new_file(const char *path, const char *example)
{
    char copy[PATH_MAX];
    struct stat found;

    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return cli_fail(ALIBI_USAGE, "'%s' is a folder; give the file to write, such as '%s/%s'",
                        path, path, example);
    if (stat(path, &found) == 0 && S_ISREG(found.st_mode))
        return cli_fail(ALIBI_BAD_INPUT, "'%s' exists; remove it or choose another name", path);
    if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy)
        return cli_fail(ALIBI_IO, "cannot write '%.64s...': %s", path, strerror(ENAMETOOLONG));
    if (access(dirname(copy), W_OK) == 0)
        return ALIBI_OK;
    if (errno == ENOENT)
        return cli_fail(ALIBI_BAD_INPUT, "cannot create '%s': its folder does not exist", path);
    return cli_fail(ALIBI_IO, "cannot create '%s': %s", path, strerror(errno));
}
