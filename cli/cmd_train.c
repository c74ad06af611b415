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

static void print_result(const struct job *job, const struct alibi_train_result *r)
{
    char parameters[CLI_SHORT], speed[CLI_SHORT], time[CLI_SHORT], peak[CLI_SHORT];

    printf("step %lld, loss %.4f, ", (long long)r->step, r->loss);
    if (r->valid_step == r->step)
        printf("validation loss %.4f, ", r->valid_loss);
    printf("%s parameters, %s tokens/s, %s of training, peak %s, in '%s'\n",
           cli_short_count(parameters, (double)r->parameters),
           cli_short_count(speed, r->tokens_per_s), cli_short_time(time, r->seconds),
           cli_short_bytes(peak, r->peak_bytes), job->out);
    if (r->best_step > 0 && job->training.keep_best)
        printf("best: step %lld, validation loss %.4f, in '%s/best'\n", (long long)r->best_step,
               r->best_loss, job->out);
}

static void print_json(const struct job *job, const struct alibi_train_result *r)
{
    struct alibi_device_info device;
    bool valid = r->valid_step == r->step;

    alibi_device_get_info(job->device, &device);
    cli_json_open(NULL, '{');
    cli_json_text("run", job->out);
    cli_json_device(&device);
    cli_json_int("step", r->step);
    cli_json_real("loss", r->loss);
    cli_json_real("valid_loss", valid ? r->valid_loss : (double)NAN);
    cli_json_int("valid_tokens", valid ? r->valid_tokens : 0);
    cli_json_real("best_step", r->best_step > 0 ? (double)r->best_step : (double)NAN);
    cli_json_real("best_loss", r->best_step > 0 ? r->best_loss : (double)NAN);
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
    alibi_corpus *corpus = NULL;
    alibi_status status;

    cli_catch_signals();
    status = alibi_device_open(&job->device, &job->compute, cli_call());
    if (status == ALIBI_OK)
        status = cli_open_corpus(&corpus, line->operands, line->operand_count, &job->text, NULL);
    if (status == ALIBI_OK)
        status = alibi_train(job->device, &job->model, &job->training, corpus, job->out,
                             job->resume, &result, cli_call());
    alibi_corpus_free(corpus);
    if (status == ALIBI_OK) {
        cli_terminal_clear();
        (job->json ? print_json : print_result)(job, &result);
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
