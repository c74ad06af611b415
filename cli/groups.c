/* groups.c - options that several commands have: the model, its training, the text */
#include <string.h>

#include "cli.h"

/* ---- tables */

alibi_status cli_table_copy(struct cli_table *t, struct alibi_option_group *group)
{
    if (group->count > CLI_COUNT(t->at))
        return cli_fail(ALIBI_USAGE, "'%s' has %d options, and cli_table room for %d", group->title, group->count,
                        CLI_COUNT(t->at));
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

/* ---- the library's */

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

struct alibi_option_group cli_text_group(struct alibi_builtin *values)
{
    struct alibi_option_group group = { .title = "Built-in text, used where no file is given", .values = values };

    group.options = alibi_builtin_options(&group.count);
    return group;
}

alibi_status cli_open_corpus(alibi_corpus **out, const char *const *files, int count, const struct alibi_builtin *text)
{
    if (count > 0)
        return alibi_corpus_open(out, files, count);
    return alibi_corpus_builtin(out, (uint64_t)text->seed, text->bytes);
}
