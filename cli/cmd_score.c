/* cmd_score.c - how likely a model finds each token of a text */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

struct job {
    char *text, *prompt;
    int64_t top;
    double skip;
    bool json;
    struct cli_text tokenizer; /* only to refuse one */
    struct alibi_compute compute;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("text", text, NULL, "TEXT", "text to score, instead of a FILE"),
    OPT_TEXT("prompt", prompt, "", "TEXT",
             "text before it, which is read but not scored; without it the text starts a document"),
    OPT_INT("top", top, 0, 100, "0", "N",
            "show this many likeliest tokens at the position of each"),
    OPT_REAL("skip", skip, 0, 0.999, CLI_SKIP_DEFAULT, "X",
             "weight of keys that attention may skip, relative to the others; 0: none"),
    OPT_FLAG("json", json, "print the result as JSON"),
};

/* An id, its text as a JSON string and its log-probability, as a row or as members. */
static alibi_status print_token(const alibi_tokenizer *t, int32_t id, double logprob, bool json)
{
    char *text = NULL;
    size_t bytes;

    TRY_RETURN(alibi_tokenizer_decode_more(t, &id, 1, &text, &bytes));
    if (json) {
        cli_json_int("id", id);
        cli_json_text("token", text);
        cli_json_real("logprob", logprob);
    } else {
        if (isfinite(logprob))
            printf("%9.4f %7d ", logprob, id);
        else
            printf("%9s %7d ", "-", id); /* nothing predicts it */
        cli_json_quote(text);
    }
    alibi_text_free(text);
    return ALIBI_OK;
}

static alibi_status print_tokens(const struct alibi_scores *s, const alibi_tokenizer *t, bool json)
{
    for (int64_t i = 0; i < s->count && !ferror(stdout); i++) {
        const struct alibi_choice *choices = s->choices ? s->choices + i * s->alternatives : NULL;

        if (json)
            cli_json_open(NULL, '{');
        TRY_RETURN(print_token(t, s->ids[i], s->logprobs[i], json));
        if (json && choices)
            cli_json_open("likeliest", '[');
        for (int k = 0; choices && k < s->alternatives; k++) {
            if (choices[k].id < 0)
                continue;
            if (json)
                cli_json_open(NULL, '{');
            else
                printf("  ");
            TRY_RETURN(print_token(t, choices[k].id, choices[k].logprob, json));
            if (json)
                cli_json_close('}');
        }
        if (json && choices)
            cli_json_close(']');
        if (json)
            cli_json_close('}');
        else
            putchar('\n');
    }
    return ALIBI_OK;
}

static alibi_status print_scores(const struct alibi_scores *s, const alibi_model *model,
                                 const alibi_device *used, const char *path, bool json)
{
    const alibi_tokenizer *t = alibi_model_view_tokenizer(model);
    double nll = s->scored > 0 ? -s->logprob / (double)s->scored : (double)NAN;
    struct alibi_device_info device;
    char ppl[CLI_SHORT];

    if (!json) {
        printf("%9s %7s %s%s\n", "logprob", "id", "token", s->choices ? "  likeliest" : "");
        TRY_RETURN(print_tokens(s, t, false));
        if (s->scored > 0)
            printf("%lld token%s, logprob %.4f, nll %.4f, token ppl %s\n", (long long)s->scored,
                   s->scored == 1 ? "" : "s", s->logprob, nll, cli_short_ppl(ppl, exp(nll)));
        else
            printf("0 tokens scored\n");
        return ALIBI_OK;
    }
    alibi_device_get_info(used, &device);
    cli_json_open(NULL, '{');
    cli_json_text("model", path);
    cli_json_device(&device);
    cli_json_int("scored", s->scored);
    cli_json_real("logprob", s->logprob);
    cli_json_real("nll", nll);
    cli_json_real("ppl", exp(nll));
    cli_json_open("tokens", '[');
    TRY_RETURN(print_tokens(s, t, true));
    cli_json_close(']');
    cli_json_close('}');
    return ALIBI_OK;
}

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    const char *prompt = job->prompt ? job->prompt : "", *text = job->text;
    size_t bytes = text ? strlen(text) : 0;
    char *input = NULL;
    alibi_device *device = NULL;
    alibi_model *model = NULL;
    struct alibi_scores *scores = NULL;
    alibi_status status;

    TRY(cli_refuse_tokenizer(&job->tokenizer));
    TRY(cli_check_order(line, 0));
    if (text && line->operand_count > 1)
        TRY(cli_fail(ALIBI_USAGE, "give the text with --text or as a FILE, not both"));
    if (!text) {
        const char *path = line->operand_count > 1 ? line->operands[1] : "-";
        const char *name = strcmp(path, "-") ? path : "standard input";

        if (strchr(path, ' ') && access(path, F_OK) != 0)
            TRY(cli_fail(ALIBI_BAD_INPUT,
                         "there is no file '%s'; if this is the text to score, give it with --text",
                         path));
        TRY(cli_read_text(&input, &bytes, path, "the text"));
        if (bytes == 0)
            TRY(cli_fail(ALIBI_BAD_INPUT, "'%s' is empty; give a text to score", name));
        TRY(alibi_text_check(input, bytes, name));
        text = input;
    }
    cli_set_skip(job->skip);
    TRY(alibi_device_open(&device, &job->compute, cli_call()));
    TRY(alibi_model_open(&model, device, line->operands[0], cli_call()));
    TRY(alibi_score(&scores, model, prompt, strlen(prompt), text, bytes, (int)job->top,
                    cli_call()));
    TRY(print_scores(scores, model, device, line->operands[0], job->json));
out:
    alibi_scores_free(scores);
    alibi_model_free(model);
    alibi_device_free(device);
    free(input);
    return status;
}

alibi_status cmd_score(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = {
        { "Scores", options, CLI_COUNT(options), &job },
        cli_no_tokenizer_group(&job.tokenizer),
        cli_device_group(&job.compute),
    };
    struct cli_line line = {
        .command = "score",
        .usage = "MODEL [FILE] [OPTION...]",
        .about = "Shows how likely MODEL (a checkpoint, or a run's folder) finds each token of a "
                 "text after all tokens before it: natural logarithms of probabilities, and their "
                 "sum. Without FILE or --text the text is standard input.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = 2,
    };

    return cli_run(&line, argc, argv, run, &job);
}
