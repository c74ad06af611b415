/* cmd_generate.c - continue a text, printed as it is generated */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct job {
    char *prompt, *position;
    bool echo;
    int64_t tokens, count, top_k, seed;
    double temperature, top_p, skip, window_score;
    struct cli_text text; /* only to refuse a tokenizer */
    struct alibi_compute compute;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("prompt", prompt, "", "TEXT", "text to continue; '-' reads it from standard input"),
    OPT_FLAG_ON("echo", echo, "print the prompt first"),
    OPT_INT("tokens", tokens, 1, CLI_LENGTH_MAX, "256", "N", "tokens to add"),
    OPT_INT("count", count, 1, 4096, "1", "N",
            "continuations of the prompt, computed together, with seeds from --seed on"),
    OPT_REAL("temperature", temperature, 0, 100, "0.8", "X",
             "randomness of the choice; 0: always the likeliest token"),
    OPT_INT("top-k", top_k, 0, INT32_MAX, "0", "N", "choose among the N likeliest tokens; 0: all"),
    OPT_REAL("top-p", top_p, 1e-6, 1, "1", "X",
             "choose among the likeliest tokens whose probabilities sum to X; 1: all"),
    OPT_REAL("skip", skip, 0, 0.999, CLI_SKIP_DEFAULT, "X",
             "weight of keys that attention may skip, relative to the others; 0: none"),
    OPT_REAL(
        "window-score", window_score, 0, 1e6, "0", "X",
        "alibi: evict keys that no query can reach with scores up to X, which bounds memory; 0: "
        "evict none"),
    OPT_TEXT("as-position", position, NULL, "NAME",
             "use the model with this position in place of its own: rotary:stretch=ntk:factor=4"),
    OPT_INT("seed", seed, 0, CLI_UNBOUNDED, "1", "N", "the same seed gives the same text"),
};

/* The text of one continuation. A single one is printed as it comes; several are kept until all
 * have ended, because they grow at the same time. */
struct output {
    const char *prompt; /* printed before the first piece: by then all is checked */
    size_t prompt_bytes;
    bool streams;
    bool out_of_memory; /* the text is incomplete */
    char *text;
    size_t bytes, capacity;
};

static bool print_prompt(struct output *o)
{
    size_t bytes = o->prompt_bytes;

    o->prompt_bytes = 0;
    return fwrite(o->prompt, 1, bytes, stdout) == bytes;
}

/* False, which ends the continuation, if the reader is gone or memory has run out. */
static bool emit(void *user, int which, const char *text, size_t bytes)
{
    struct output *o = (struct output *)user + which;

    if (o->streams)
        return print_prompt(o) && fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
    if (o->bytes + bytes > o->capacity) {
        size_t capacity = 2 * (o->bytes + bytes);
        char *grown = realloc(o->text, capacity);

        o->out_of_memory = !grown;
        if (!grown)
            return false;
        o->text = grown;
        o->capacity = capacity;
    }
    memcpy(o->text + o->bytes, text, bytes);
    o->bytes += bytes;
    return true;
}

static alibi_status generate(const struct job *job, const char *path, const char *prompt,
                             size_t bytes)
{
    const struct alibi_generation how = {
        .tokens = job->tokens,
        .sampling = { job->temperature, job->top_k, job->top_p, (uint64_t)job->seed },
        .window_score = job->window_score,
    };
    int count = (int)job->count;
    struct alibi_prompt *prompts = calloc((size_t)count, sizeof *prompts);
    struct output *outputs = calloc((size_t)count, sizeof *outputs);
    alibi_device *device = NULL;
    alibi_model *model = NULL;
    alibi_status status;

    if (!prompts || !outputs)
        TRY(cli_fail(ALIBI_MEMORY, "not enough memory for %d continuations; give a smaller --count",
                     count));
    for (int i = 0; i < count; i++) {
        prompts[i] = (struct alibi_prompt){ prompt, bytes };
        outputs[i] = (struct output){ .prompt = prompt,
                                      .prompt_bytes = job->echo ? bytes : 0,
                                      .streams = count == 1 };
    }
    cli_set_skip(job->skip);
    TRY(alibi_device_open(&device, &job->compute, cli_call()));
    TRY(alibi_model_open_as(&model, device, path, job->position, cli_call()));
    TRY(alibi_generate(model, prompts, count, &how, emit, outputs, cli_call()));
    for (int i = 0; i < count; i++)
        if (outputs[i].out_of_memory)
            TRY(cli_fail(
                ALIBI_MEMORY,
                "not enough memory for the text of %d continuations; give a smaller --count",
                count));
    for (int i = 0; i < count; i++) {
        if (count > 1)
            printf("%s--- seed %lld\n", i > 0 ? "\n" : "", (long long)(job->seed + i));
        print_prompt(&outputs[i]); /* the text may have ended at once */
        fwrite(outputs[i].text ? outputs[i].text : "", 1, outputs[i].bytes, stdout);
        putchar('\n');
    }
out:
    for (int i = 0; outputs && i < count; i++)
        free(outputs[i].text);
    free(outputs);
    free(prompts);
    alibi_model_free(model);
    alibi_device_free(device);
    return status;
}

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    char *input = NULL;
    const char *prompt = job->prompt ? job->prompt : "";
    size_t bytes = strlen(prompt);
    alibi_status status;

    TRY(cli_refuse_tokenizer(&job->text));
    if (strcmp(prompt, "-") == 0) {
        TRY(cli_read_text(&input, &bytes, "-", "the prompt"));
        prompt = input;
    }
    TRY(generate(job, line->operands[0], prompt, bytes));
out:
    free(input);
    return status;
}

alibi_status cmd_generate(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = {
        { "Generation", options, CLI_COUNT(options), &job },
        cli_no_tokenizer_group(&job.text),
        cli_device_group(&job.compute),
    };
    struct cli_line line = {
        .command = "generate",
        .usage = "MODEL [OPTION...]",
        .about = "Continues a text with MODEL, a checkpoint or a run's folder. A single "
                 "continuation is printed as it is generated; several are computed together and "
                 "printed at the end.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = 1,
    };

    return cli_run(&line, argc, argv, run, &job);
}
