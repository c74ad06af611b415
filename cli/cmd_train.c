/* cmd_train.c - train one model, or resume its training */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { MIX_MAX = 32 };

/* The texts of a mixture. */
struct mixture {
    char *path[MIX_MAX]; /* within `list` */
    double share[MIX_MAX];
    int count;
    char *list;
};

struct job {
    char *out, *mix, *tensorboard;
    struct mixture mixture; /* that --mix asks for */
    bool resume, json;
    struct cli_text text;
    struct alibi_config model;
    struct alibi_training training;
    struct alibi_compute compute;
    alibi_device *device;
    const struct alibi_option_group *groups; /* of the command */
};

enum { RUN, TEXT, READING, BUILTIN, MODEL, TRAINING, DEVICE, GROUPS };

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("out", out, "runs/train", "DIR", "folder of the run: checkpoints, recipe, log"),
    OPT_FLAG(
        "resume", resume,
        "resume from the newest checkpoint in the folder, bit-exact as if never stopped; start if "
        "there is none and a text, a recipe or an option of the model is given"),
    OPT_TEXT(
        "mix", mix, NULL, "LIST",
        "several texts instead of FILE, each with its share of the training windows, and synthetic "
        "tasks: wiki/=0.9,task:recall=0.1"),
    OPT_TEXT(
        "tensorboard", tensorboard, NULL, "DIR",
        "write event files for TensorBoard into this folder: losses, learning rate, gradient norm, "
        "speed, memory, and a sample of text at each checkpoint"),
    OPT_FLAG("json", json, "print the result as JSON"),
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
    if (r->valid_texts > 0)
        printf("%-24s %7s %10s %8s\n", "validation by text", "share", "tokens", "loss");
    for (int i = 0; i < r->valid_texts; i++) {
        const struct alibi_text_loss *t = &r->valid_text[i];

        printf("%-24s %6.1f%% %10lld %8.4f\n", t->name, 100 * t->share, (long long)t->tokens,
               t->loss);
    }
    if (r->best_step > 0 && job->training.keep_best)
        printf("best: step %lld, validation loss %.4f; eval and generate open it as '%s/best'\n",
               (long long)r->best_step, r->best_loss, job->out);
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
    if (r->valid_texts > 0) {
        cli_json_open("valid_texts", '[');
        for (int i = 0; i < r->valid_texts; i++) {
            cli_json_open(NULL, '{');
            cli_json_text("name", r->valid_text[i].name);
            cli_json_real("share", r->valid_text[i].share);
            cli_json_int("tokens", r->valid_text[i].tokens);
            cli_json_real("loss", r->valid_text[i].loss);
            cli_json_close('}');
        }
        cli_json_close(']');
    }
    cli_json_real("best_step", r->best_step > 0 ? (double)r->best_step : (double)NAN);
    cli_json_real("best_loss", r->best_step > 0 ? r->best_loss : (double)NAN);
    cli_json_int("parameters", r->parameters);
    cli_json_real("seconds", r->seconds);
    cli_json_real("tokens_per_s", r->tokens_per_s);
    cli_json_int("peak_bytes", (int64_t)r->peak_bytes);
    cli_json_flag("diverged", r->diverged);
    cli_json_close('}');
}

static bool run_has(const struct job *job, const char *name)
{
    char path[4096];

    return snprintf(path, sizeof path, "%s/%s", job->out, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* A resumed run starts from its own options, and with --init the options of the model are those of
 * MODEL. Given options override both. */
static alibi_status take_options(void *user)
{
    struct job *job = user;
    char path[4096];

    if (job->resume && run_has(job, "recipe.json") && !run_has(job, "text.json")) {
        snprintf(path, sizeof path, "%s/recipe.json", job->out);
        return alibi_options_read(job->groups, GROUPS, path);
    }
    return job->training.init ? alibi_model_read_start(&job->model, job->training.init, NULL)
                              : ALIBI_OK;
}

/* Reads a share as a number of an option: in any locale, and also as 2^-1. */
static bool read_share(const char *text, double *share)
{
    static const struct alibi_option option = {
        "mix", ALIBI_OPTION_REAL, 0, 0, 1e6, NULL, NULL, NULL, NULL
    };
    const struct alibi_option_group group = { NULL, &option, 1, share };

    return alibi_options_set(&group, 1, "mix", text) == ALIBI_OK && *share > 0;
}

/* The name of the task in a part of --mix; NULL: the part is a path. */
static const char *task_of(const char *part)
{
    static const char prefix[] = "task:";

    return strncmp(part, prefix, strlen(prefix)) == 0 ? part + strlen(prefix) : NULL;
}

/* "books.txt=0.7,wiki/=0.3". A comma ends a text only after its share, so that paths may have
 * commas. */
static alibi_status read_mixture(const char *mix, struct mixture *m)
{
    char *rest = m->list = strdup(mix), *from = rest;
    double sum = 0;

    if (!rest)
        return cli_fail(ALIBI_MEMORY, "not enough memory for --mix '%s'", mix);
    for (char *equals; from && (equals = strchr(from, '=')) != NULL;) {
        char *comma = strchr(equals, ',');

        if (comma)
            *comma = '\0';
        if (equals > rest && m->count < MIX_MAX && read_share(equals + 1, &m->share[m->count])) {
            *equals = '\0';
            m->path[m->count++] = rest;
            rest = from = comma ? comma + 1 : NULL;
        } else {
            from = equals + 1;
            if (comma)
                *comma = ',';
        }
    }
    if (rest || m->count < 1 || (m->count == 1 && !task_of(m->path[0])))
        return cli_fail(
            ALIBI_USAGE,
            "--mix '%s': give 2 to %d texts as PATH=SHARE or tasks as task:NAME=SHARE, with "
            "shares above 0, separated by commas, such as books.txt=0.9,task:passkey=0.1",
            mix, MIX_MAX);
    for (int i = 0; i < m->count; i++)
        sum += m->share[i];
    if (m->count > 1 && fabs(sum - 1) > 0.005)
        cli_note("--mix: the shares add up to %g, so each is divided by that", sum);
    return ALIBI_OK;
}

/* Opens texts before tasks, because tasks use the tokenizer of the first text. Without a text they
 * use that of the options. */
static alibi_status open_parts(const struct job *job, alibi_corpus **parts)
{
    const struct mixture *m = &job->mixture;
    alibi_tokenizer *own = NULL;
    const alibi_tokenizer *t = NULL;
    alibi_status status = ALIBI_OK;

    for (int i = 0; i < m->count; i++) {
        const char *path = m->path[i];

        if (task_of(path))
            continue;
        TRY(cli_open_corpus(&parts[i], &path, 1, &job->text, NULL));
        if (!t)
            t = alibi_corpus_view_tokenizer(parts[i]);
    }
    if (!t && job->text.tokenizer) {
        TRY(alibi_tokenizer_open(&own, job->text.tokenizer, job->text.end));
        t = own;
    }
    for (int i = 0; i < m->count; i++)
        if (task_of(m->path[i]))
            TRY(alibi_corpus_task(&parts[i], task_of(m->path[i]), t));
out:
    alibi_tokenizer_free(own);
    return status;
}

/* Checks that all parts exist before the first is read, which may take minutes. */
static alibi_status check_parts(const struct mixture *m)
{
    for (int i = 0; i < m->count; i++) {
        alibi_corpus *task = NULL;

        if (task_of(m->path[i])) { /* this checks only its name, so bytes will do as tokenizer */
            TRY_RETURN(alibi_corpus_task(&task, task_of(m->path[i]), NULL));
            alibi_corpus_free(task);
        } else if (strcmp(m->path[i], "-") != 0 && access(m->path[i], R_OK) != 0) {
            return cli_fail(ALIBI_BAD_INPUT, "--mix: cannot open '%s': %s", m->path[i],
                            strerror(errno));
        }
    }
    return ALIBI_OK;
}

static alibi_status open_mixture(const struct job *job, alibi_corpus **corpus)
{
    const struct mixture *m = &job->mixture;
    alibi_corpus *parts[MIX_MAX] = { NULL };
    alibi_status status;

    TRY(check_parts(m));
    TRY(open_parts(job, parts));
    if (m->count == 1) /* a task alone is no mixture */
        *corpus = parts[0];
    else
        TRY(alibi_corpus_mix(corpus, parts, m->share, m->count));
out:
    for (int i = 0; i < m->count && status != ALIBI_OK; i++)
        alibi_corpus_free(parts[i]);
    return status;
}

/* A resumed run knows its text. */
static alibi_status open_text(const struct job *job, const struct cli_line *line,
                              alibi_corpus **corpus)
{
    bool given = line->operand_count > 0 || line->given[TEXT] || line->given[READING] ||
                 line->given[BUILTIN];

    if (job->mix)
        return open_mixture(job, corpus);
    if (job->resume && !given && run_has(job, "source.json"))
        return alibi_corpus_of_run(corpus, job->out, cli_call());
    /* Nothing says what to train (options of training, such as --steps, are for resuming too), so
     * the folder is probably mistyped or forgotten. */
    if (job->resume && !given && !line->given[MODEL] && !line->recipe &&
        !run_has(job, "recipe.json"))
        return cli_fail(ALIBI_BAD_INPUT,
                        "cannot resume '%s': there is no run in it; give the folder of one with "
                        "--out, or a text to start one",
                        job->out);
    TRY_RETURN(cli_open_corpus(corpus, line->operands, line->operand_count, &job->text, NULL));
    cli_note_builtin(line, BUILTIN);
    return ALIBI_OK;
}

/* ---- the run */

/* A folder that is written must not be inside one that is read. */
static alibi_status check_outside(const struct job *job, const struct cli_line *line,
                                  const char *dir)
{
    const struct mixture *m = &job->mixture;

    TRY_RETURN(alibi_text_check_folder(line->operands, line->operand_count, job->text.valid, dir));
    return alibi_text_check_folder((const char *const *)m->path, m->count, NULL, dir);
}

/* Checks everything that does not depend on the text, before it is read. */
static alibi_status check(struct job *job, const struct cli_line *line)
{
    if (job->mix && (line->operand_count > 0 || job->text.valid))
        return cli_fail(ALIBI_USAGE,
                        "--mix takes the place of FILE and --valid; give one or the other");
    if (job->mix)
        TRY_RETURN(read_mixture(job->mix, &job->mixture));
    if (!cli_is_first_rank()) /* the other ranks need not see the folder */
        return ALIBI_OK;
    TRY_RETURN(alibi_train_check(&job->model, &job->training, job->out, job->resume));
    if (job->tensorboard)
        TRY_RETURN(check_outside(job, line, job->tensorboard));
    return check_outside(job, line, job->out);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    struct alibi_call call = *cli_call();
    struct alibi_train_result result;
    alibi_corpus *corpus = NULL;
    alibi_status status;

    call.events = job->tensorboard;
    if (job->resume && cli_is_given(line, TRAINING, "init") && run_has(job, "recipe.json"))
        cli_note("--init is for a new run; '%s' continues from its own checkpoint", job->out);
    cli_catch_signals();
    TRY(cli_agree(check(job, line)));
    TRY(cli_agree(cli_open_device(&job->device, line, &job->compute)));
    TRY(cli_agree(open_text(job, line, &corpus)));
    TRY(alibi_train(job->device, &job->model, &job->training, corpus, job->out, job->resume,
                    &result, &call));
    cli_terminal_clear();
    (job->json ? print_json : print_result)(job, &result);
    if (result.diverged) /* at all ranks */
        TRY(cli_agree(
            cli_fail(ALIBI_NUMERIC,
                     "the training has diverged to a loss of %.4g; '%s' keeps it; use a smaller "
                     "--lr and another --out",
                     result.loss, job->out)));
out:
    alibi_corpus_free(corpus);
    alibi_device_free(job->device);
    free(job->mixture.list);
    return status;
}

alibi_status cmd_train(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[GROUPS] = {
        [RUN] = { "Run", options, CLI_COUNT(options), &job },
        [TEXT] = cli_text_group(&job.text),
        [READING] = cli_reading_group(&job.text.reading),
        [BUILTIN] = cli_builtin_group(&job.text.builtin),
        [MODEL] = cli_model_group(&job.model),
        [TRAINING] = cli_training_group(&job.training),
        [DEVICE] = cli_device_group(&job.compute),
    };
    struct cli_line line = {
        .command = "train",
        .usage = "[FILE...] [OPTION...]",
        .about =
            "Trains a model on UTF-8 text, on token shards or on the built-in text. FILE may be a "
            "folder, of text files or of shards. SIGINT or SIGTERM saves and exits with 75; "
            "`alibi train --resume --out DIR` resumes, and with --steps MORE it extends a run: the "
            "learning rate then follows the schedule of the new total. --init starts from another "
            "model, whose options apply unless others are given. Use it to fine-tune a model, or "
            "to train it at another length or with another position method. `mpirun -n N alibi train` "
            "divides the passes of each step among N processes.",
        .base = take_options,
        .hints =
            (const struct cli_hint[]){
                { "data", "give the text as it is: alibi train TEXT" },
                { NULL, NULL },
            },
        .groups = groups,
        .count = GROUPS,
        .max_operands = INT_MAX,
        .lists_positions = true,
    };

    job.groups = groups;
    return cli_run(&line, argc, argv, run, &job);
}
