/* subject.c - a model and the text that it is tested on, as `eval` and `probe` take them */
#include <sys/stat.h>

#include "cli.h"

#define AT(field) offsetof(struct cli_subject, field)

static const struct alibi_option options[] = {
    OPT_TEXT("data", data, NULL, "FILE",
             "text or shards to test on; the same as a FILE after the model"),
    OPT_CHOICE("split", split, "auto|train|valid|test|all", "auto",
               "part of the text; auto: all of files, the validation part of the built-in text"),
    OPT_TEXT("as-position", position, NULL, "NAME",
             "test the model with this position in place of its own: rotary:stretch=ntk:factor=4"),
};

static const char *const split_names[] = { "train", "valid", "test", "all" };

struct alibi_option_group cli_subject_group(struct cli_subject *values)
{
    return (struct alibi_option_group){
        .title = "The text", .options = options, .count = CLI_COUNT(options), .values = values
    };
}

enum alibi_split cli_subject_split(const struct cli_subject *s)
{
    if (s->split > 0)
        return (enum alibi_split)(s->split - 1);
    return s->file_count == 0 ? ALIBI_VALID : ALIBI_ALL;
}

const char *cli_subject_split_name(const struct cli_subject *s)
{
    return split_names[cli_subject_split(s)];
}

/* A file called valid.txt has a validation split too, which is not the whole file. */
static void note_split(enum alibi_split split)
{
    if (split == ALIBI_VALID)
        cli_note("split valid is these files from 90%% to 95%%; --split all uses them whole");
    if (split == ALIBI_TEST)
        cli_note("split test is the last 5%% of these files; --split all uses them whole");
}

/* Without files the text is the built-in one: the model's own, or the one that options ask for. */
static alibi_status choose_builtin(struct cli_subject *s, const struct cli_line *line,
                                   int builtin_group)
{
    bool asked = line->given[builtin_group] != 0;
    struct alibi_builtin trained;
    char *own = NULL;

    TRY_RETURN(alibi_model_get_builtin(s->model, &trained));
    if (trained.bytes > 0 && !asked && !line->recipe)
        s->text.builtin = trained;
    if (trained.bytes > 0 || asked || s->any_text)
        return ALIBI_OK;
    if (alibi_model_get_text(s->model, &own) == ALIBI_OK && own)
        cli_fail(ALIBI_USAGE,
                 "no text: give FILE or --data FILE; '%s' was trained on '%s', of which --split "
                 "valid was held out, unless it had a --valid",
                 s->path, own);
    else
        cli_fail(ALIBI_USAGE,
                 "no text: '%s' is not known to be trained on the built-in text; give FILE or "
                 "--data FILE, or --text-bytes N for the built-in text",
                 s->path);
    alibi_text_free(own);
    return ALIBI_USAGE;
}

/* If it is not known, nothing is said. */
static enum alibi_seen warn_if_seen(const struct cli_subject *s)
{
    struct alibi_corpus_info text;
    enum alibi_seen seen;

    if (alibi_model_has_seen(s->model, s->corpus, cli_subject_split(s), &seen) != ALIBI_OK ||
        seen == ALIBI_UNSEEN)
        return ALIBI_UNSEEN;
    alibi_corpus_get_info(s->corpus, ALIBI_ALL, &text);
    cli_say(ALIBI_WARNING,
            "the model was trained on '%s', so it does better on it than on new text; %s",
            text.name,
            seen == ALIBI_SEEN_PARTLY ? "--split valid was held out" : "evaluate on other text");
    return seen;
}

alibi_status cli_check_order(const struct cli_line *line, int model)
{
    const char *const *operands = line->operands;
    struct alibi_config config;
    struct stat info;

    if (stat(operands[model], &info) != 0 || S_ISDIR(info.st_mode))
        return ALIBI_OK;
    for (int i = model + 1; i < line->operand_count; i++)
        if (alibi_model_read_config(&config, operands[i], NULL) == ALIBI_OK)
            return cli_fail(ALIBI_BAD_INPUT,
                            "'%s' is not a model: it is a file, not a folder; the model comes "
                            "first, so give '%s' before it",
                            operands[model], operands[i]);
    return ALIBI_OK;
}

alibi_status cli_subject_open_model(struct cli_subject *s, const struct cli_line *line, int first)
{
    if (!s->path) {
        TRY_RETURN(cli_check_order(line, first));
        s->path = line->operands[first++];
    }
    s->files = s->data ? (const char *const *)&s->data : line->operands + first;
    s->file_count = s->data ? 1 : line->operand_count - first;
    if (line->operand_count > first && s->data)
        return cli_fail(ALIBI_USAGE,
                        "give the text with --data or as a FILE after the model, not both");
    TRY_RETURN(cli_refuse_tokenizer(&s->text));
    TRY_RETURN(cli_open_device(&s->device, line, &s->compute));
    return alibi_model_open_as(&s->model, s->device, s->path, s->position, cli_call());
}

alibi_status cli_subject_open_text(struct cli_subject *s, const struct cli_line *line,
                                   int builtin_group)
{
    if (s->file_count == 0)
        TRY_RETURN(choose_builtin(s, line, builtin_group));
    TRY_RETURN(cli_open_corpus(&s->corpus, s->files, s->file_count, &s->text,
                               alibi_model_view_tokenizer(s->model)));
    if (s->file_count > 0)
        note_split(cli_subject_split(s));
    s->seen = warn_if_seen(s);
    alibi_corpus_get_info(s->corpus, ALIBI_ALL, &s->info);
    return ALIBI_OK;
}

void cli_subject_close(struct cli_subject *s)
{
    alibi_corpus_free(s->corpus);
    alibi_model_free(s->model);
    alibi_device_free(s->device);
}

void cli_json_subject(const struct cli_subject *s)
{
    struct alibi_device_info device;

    alibi_device_get_info(s->device, &device);
    cli_json_text("model", s->path);
    if (s->position)
        cli_json_text("as_position", alibi_model_view_config(s->model)->position);
    cli_json_device(&device);
    cli_json_text("text", s->info.name);
    cli_json_int("text_checksum", s->info.checksum);
    cli_json_text("split", cli_subject_split_name(s));
    cli_json_flag("trained_on", s->seen != ALIBI_UNSEEN);
}
