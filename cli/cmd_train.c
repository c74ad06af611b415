/* cmd_train.c - train one model, or resume its training */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "cli.h"

struct job {
    char *out;
    bool resume, json;
    struct cli_text text;
    struct alibi_config model;
    struct alibi_training training;
    struct alibi_compute compute;
    alibi_device *device;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    { "out", ALIBI_OPTION_TEXT, AT(out), 0, 0, NULL, "runs/train", "DIR",
      "folder of the run: checkpoints, recipe, log" },
    { "resume", ALIBI_OPTION_FLAG, AT(resume), 0, 0, NULL, NULL, NULL,
      "resume from the newest checkpoint in the folder, bit-exact as if never stopped; start if "
      "there is none" },
    { "json", ALIBI_OPTION_FLAG, AT(json), 0, 0, NULL, NULL, NULL, "print the result as JSON" },
};

/* As many tokens as a comparison scores by default: a small share of the training time. */
enum { VALID_TOKENS = 65536 };

/* The validation loss at the training length. result->tokens is 0 if the split is too short, or if
 * the evaluation was stopped. */
static alibi_status validate(const struct job *job, const alibi_corpus *corpus,
                             struct alibi_eval_result *result)
{
    int64_t length = job->training.train_length;
    const struct alibi_eval eval = { .length = length,
                                     .tokens = length > VALID_TOKENS ? length : VALID_TOKENS };
    struct alibi_corpus_info valid;
    alibi_model *model = NULL;
    alibi_status status;

    *result = (struct alibi_eval_result){ 0 };
    alibi_corpus_get_info(corpus, ALIBI_VALID, &valid);
    if (valid.tokens <= length)
        return ALIBI_OK;
    status = alibi_model_open(&model, job->device, job->out, cli_call());
    if (status == ALIBI_OK) {
        cli_set_skip(job->training.skip);
        status = alibi_evaluate(model, corpus, ALIBI_VALID, &eval, result, cli_call());
    }
    alibi_model_free(model);
    return status == ALIBI_INTERRUPTED ? ALIBI_OK : status;
}

static void print_result(const struct job *job, const struct alibi_train_result *r,
                         const struct alibi_eval_result *valid)
{
    char parameters[CLI_SHORT], speed[CLI_SHORT], time[CLI_SHORT], peak[CLI_SHORT];

    printf("step %lld, loss %.4f, ", (long long)r->step, r->loss);
    if (valid->tokens > 0)
        printf("validation loss %.4f, ", valid->nll);
    printf("%s parameters, %s tokens/s, %s of training, peak %s, in '%s'\n",
           cli_short_count(parameters, (double)r->parameters),
           cli_short_count(speed, r->tokens_per_s), cli_short_time(time, r->seconds),
           cli_short_bytes(peak, r->peak_bytes), job->out);
}

static void print_json(const struct job *job, const struct alibi_train_result *r,
                       const struct alibi_eval_result *valid)
{
    struct alibi_device_info device;

    alibi_device_get_info(job->device, &device);
    cli_json_open(NULL, '{');
    cli_json_text("run", job->out);
    cli_json_device(&device);
    cli_json_int("step", r->step);
    cli_json_real("loss", r->loss);
    cli_json_real("valid_loss", valid->tokens > 0 ? valid->nll : (double)NAN);
    cli_json_int("valid_tokens", valid->tokens);
    cli_json_int("parameters", r->parameters);
    cli_json_real("seconds", r->seconds);
    cli_json_real("tokens_per_s", r->tokens_per_s);
    cli_json_int("peak_bytes", (int64_t)r->peak_bytes);
    cli_json_close('}');
}

/* With --init the options of the model are those of MODEL unless they are given. A run that is
 * resumed has its own, and no longer needs MODEL. */
static alibi_status take_model_options(void *user)
{
    struct job *job = user;
    alibi_status status = ALIBI_BAD_INPUT;

    if (!job->training.init)
        return ALIBI_OK;
    if (job->resume)
        status = alibi_model_read_config(&job->model, job->out, NULL);
    if (status != ALIBI_OK)
        status = alibi_model_read_config(&job->model, job->training.init, NULL);
    if (strcmp(job->model.position, "learned") != 0)
        job->model.max_length = 0; /* no other method has one: it is the new training length */
    return status;
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    struct alibi_train_result result;
    struct alibi_eval_result valid;
    alibi_corpus *corpus = NULL;
    alibi_status status;

    cli_catch_signals();
    status = alibi_device_open(&job->device, &job->compute, cli_call());
    if (status == ALIBI_OK)
        status = cli_open_corpus(&corpus, line->operands, line->operand_count, &job->text, NULL);
    if (status == ALIBI_OK)
        status = alibi_train(job->device, &job->model, &job->training, corpus, job->out,
                             job->resume, &result, cli_call());
    if (status == ALIBI_OK)
        status = validate(job, corpus, &valid);
    alibi_corpus_free(corpus);
    if (status == ALIBI_OK) {
        cli_terminal_clear();
        (job->json ? print_json : print_result)(job, &result, &valid);
    }
    alibi_device_free(job->device);
    return status;
}

alibi_status cmd_train(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = {
        { "Run", options, CLI_COUNT(options), &job },
        cli_text_group(&job.text),
        cli_reading_group(&job.text.reading),
        cli_builtin_group(&job.text.builtin),
        cli_model_group(&job.model),
        cli_training_group(&job.training),
        cli_device_group(&job.compute),
    };
    struct cli_line line = {
        .command = "train",
        .usage = "[FILE...] [OPTION...]",
        .about =
            "Trains a model on UTF-8 text, on token shards or on the built-in text. FILE may be a "
            "folder, of text files or of shards. SIGINT or SIGTERM saves and exits with 75; the "
            "same command with --resume resumes. --init starts from another model, whose options "
            "apply unless others are given. Use it to fine-tune a model, or to train it at another "
            "length or with another position method.",
        .base = take_model_options,
        .groups = groups,
        .count = CLI_COUNT(groups),
        .max_operands = INT_MAX,
        .lists_positions = true,
    };

    return cli_run(&line, argc, argv, run, &job);
}
