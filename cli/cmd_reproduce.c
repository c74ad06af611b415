/* cmd_reproduce.c - an experiment: several models, their evaluations, a verdict on each claim */
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

struct job {
    char *out, *tier, *valid;
    struct alibi_name_list only;
    bool json, plan, time;
    struct alibi_experiment_run how;
    struct alibi_compute compute;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("out", out, NULL, "DIR",
             "folder for the models, the results and the report; default: runs/NAME"),
    OPT_TEXT("valid", valid, NULL, "PATH",
             "file or folder to test on; default: a twentieth of the text"),
    OPT_TEXT(
        "tier", tier, NULL, "NAME",
        "variant of the experiment; full: as written; default: cpu on the CPU, if there is one"),
    OPT_NAMES("only", only, NULL, "only these models, groups of models, or speed evaluations"),
    OPT_FLAG("discard-checkpoints", how.discard_checkpoints,
             "delete the checkpoints of each model once all its tests are done"),
    OPT_FLAG("plan", plan, "print the remaining cost, and do nothing"),
    OPT_FLAG("time", time,
             "with --plan: measure a few steps of each model, and print the time too"),
    OPT_FLAG("json", json, "print the results, or the plan, as JSON"),
};

/* ---- the list */

static int is_experiment(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

enum { LIST_COLUMN = 23 }; /* where the explanations begin */

/* Information for choosing an experiment: its texts, the amount of training, and the description of
 * each tier. */
static void describe(const alibi_experiment *e, const char *path)
{
    struct alibi_experiment_info info;
    const char *name, *about;
    char line[1024] = "text: ", tokens[CLI_SHORT];

    alibi_experiment_get_info(e, &info);
    printf("  %-*s", LIST_COLUMN - 2, info.name);
    cli_print_wrapped(stdout, info.title, LIST_COLUMN, LIST_COLUMN);
    for (int t = 0; info.texts_read > 0 && (name = alibi_experiment_text_name(e, t, &about)); t++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s", t > 0 ? ", " : "",
                 about[0] ? about : name);
    snprintf(line + strlen(line), sizeof line - strlen(line),
             "%s; %d models, %d trainings on %s tokens in all", info.texts_read > 0 ? "" : "none",
             info.models, info.trainings, cli_short_count(tokens, info.train_tokens));
    printf("%*s", LIST_COLUMN, "");
    cli_print_wrapped(stdout, line, LIST_COLUMN, LIST_COLUMN);
    for (int i = 0; i < info.tiers.count; i++) {
        alibi_experiment *variant = NULL;
        struct alibi_experiment_info tier;

        if (alibi_experiment_open(&variant, path, info.tiers.at[i]) == ALIBI_OK) {
            alibi_experiment_get_info(variant, &tier);
            snprintf(line, sizeof line, "tier %s: %s", tier.tier,
                     tier.tier_about[0] ? tier.tier_about : "a variant of it");
            printf("%*s", LIST_COLUMN, "");
            cli_print_wrapped(stdout, line, LIST_COLUMN, LIST_COLUMN);
        }
        alibi_experiment_free(variant);
    }
}

static alibi_status list_experiments(void)
{
    char folder[CLI_PATH_BYTES], path[CLI_PATH_BYTES + 256];
    struct dirent **entries = NULL;
    int count = -1;

    for (int i = 0; count < 0 && cli_installed_folder("experiments", i, folder); i++)
        count = scandir(folder, &entries, is_experiment, alphasort);
    if (count < 0)
        return cli_fail(ALIBI_BAD_INPUT, "no experiments are installed; give the path of one");
    for (int i = 0; i < count; i++) {
        alibi_experiment *e = NULL;

        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (alibi_experiment_open(&e, path, NULL) == ALIBI_OK)
            describe(e, path);
        else
            cli_note("%s", alibi_error());
        alibi_experiment_free(e);
        free(entries[i]);
    }
    free(entries);
    putchar('\n');
    cli_print_wrapped(
        stdout,
        "'alibi reproduce NAME TEXT' runs one: in full on a GPU, its tier cpu on the CPU. '--plan' "
        "prints the cost, '--plan --time' also the time. Without a TEXT it reads the built-in "
        "text, which only shows that it runs.",
        0, 0);
    return ALIBI_OK;
}

/* ---- the plan */

static void print_row(const char *name, int trainings, const char *parameters, const char *tokens,
                      const char *memory, const char *time)
{
    char left[16] = "";

    if (trainings >= 0)
        snprintf(left, sizeof left, "%d", trainings);
    printf("%-24s %9s %8s %8s", name, trainings >= 0 ? left : "trainings", parameters, tokens);
    if (memory[0] || time[0])
        printf(" %10s", memory);
    if (time[0])
        printf(" %9s", time);
    putchar('\n');
}

/* NaN: it does not fit, and has no time. */
static const char *plan_time(char text[CLI_SHORT], double seconds, bool timed)
{
    snprintf(text, CLI_SHORT, "%s", timed ? "-" : "");
    return timed && !isnan(seconds) ? cli_short_time(text, seconds) : text;
}

static void print_plan_json(const struct alibi_experiment_plan *plan,
                            const struct alibi_device_info *device, bool timed)
{
    cli_json_open(NULL, '{');
    cli_json_device(device);
    cli_json_int("available_bytes", (int64_t)plan->model[0].available);
    cli_json_open("models", '[');
    for (int m = 0; m < plan->models; m++) {
        const struct alibi_experiment_plan_model *p = &plan->model[m];

        cli_json_open(NULL, '{');
        cli_json_text("name", p->name);
        cli_json_int("trainings", p->trainings);
        cli_json_int("parameters", p->parameters);
        cli_json_int("steps", p->steps);
        cli_json_real("train_tokens", p->train_tokens);
        cli_json_real("test_tokens", p->test_tokens);
        cli_json_int("memory", (int64_t)p->memory);
        cli_json_flag("fits", p->fits);
        if (timed)
            cli_json_real("seconds", p->seconds);
        cli_json_close('}');
    }
    cli_json_close(']');
    cli_json_int("trainings", plan->trainings);
    cli_json_real("train_tokens", plan->train_tokens);
    cli_json_real("test_tokens", plan->test_tokens);
    cli_json_flag("test_estimated", plan->test_estimated);
    cli_json_flag("test_unknown", plan->test_unknown);
    cli_json_int("disk", (int64_t)plan->disk);
    cli_json_int("disk_discarded", (int64_t)plan->disk_discarded);
    if (timed) {
        cli_json_real("seconds", plan->seconds);
        cli_json_real("speed_seconds", plan->speed_seconds);
    }
    cli_json_close('}');
}

/* The failure is the same after a table and after JSON. */
static alibi_status check_fits(const struct alibi_experiment_plan *plan)
{
    char memory[CLI_SHORT];

    for (int m = 0; m < plan->models; m++)
        if (!plan->model[m].fits && plan->model[m].trainings > 0)
            return cli_fail(ALIBI_MEMORY,
                            "a model does not fit in the %s of the device; use another --tier, or "
                            "select the others with --only",
                            cli_short_bytes(memory, plan->model[m].available));
    return ALIBI_OK;
}

static alibi_status print_plan(alibi_experiment *e, alibi_device *device, const char *dir,
                               bool timed, bool json)
{
    struct alibi_experiment_plan plan;
    char parameters[CLI_SHORT], tokens[CLI_SHORT], memory[CLI_SHORT], time[CLI_SHORT];
    char disk[CLI_SHORT], discarded[CLI_SHORT];
    struct alibi_device_info info;
    bool all_timed = true;

    TRY_RETURN(alibi_experiment_make_plan(e, device, dir, timed, &plan, cli_call()));
    alibi_device_get_info(device, &info);
    cli_terminal_clear();
    if (json) {
        print_plan_json(&plan, &info, timed);
        return check_fits(&plan);
    }
    print_row("model", -1, "params", "tokens", "memory", timed ? "time" : "");
    for (int m = 0; m < plan.models; m++) {
        const struct alibi_experiment_plan_model *p = &plan.model[m];

        all_timed &= !isnan(p->seconds);
        print_row(p->name, p->trainings, cli_short_count(parameters, (double)p->parameters),
                  cli_short_count(tokens, p->train_tokens), cli_short_bytes(memory, p->memory),
                  plan_time(time, p->seconds, timed));
    }
    print_row("all", plan.trainings, "", cli_short_count(tokens, plan.train_tokens), "",
              plan_time(time, plan.seconds, timed));
    if (plan.speed_seconds > 0)
        printf("\nthe total time includes %s to measure speed\n",
               cli_short_time(time, plan.speed_seconds));
    if (!all_timed && !isnan(plan.seconds))
        printf("\nthe total time excludes the models that do not fit\n");
    printf("\ntokens: needed by one training, and by all; the tests read %s%s more%s%s\n",
           plan.test_estimated ? "about " : "", cli_short_count(tokens, plan.test_tokens),
           plan.test_estimated ? ", an estimate from the sizes of texts" : "",
           plan.test_unknown ? ", not counting whole texts whose sizes are not known" : "");
    printf("memory: of one training, in %s on %s, which has %s free\n",
           alibi_precision_name(info.precision), info.gpu ? info.name : "the CPU",
           cli_short_bytes(memory, plan.model[0].available));
    printf("disk for checkpoints: %s, or %s with --discard-checkpoints\n",
           cli_short_bytes(disk, plan.disk), cli_short_bytes(discarded, plan.disk_discarded));
    if (!timed)
        printf("--time measures a few steps of each model, and says how long it takes\n");
    return check_fits(&plan);
}

/* ---- one experiment */

/* A text in the place of NAME is a likely reason why the file cannot be read. */
static alibi_status open_experiment(alibi_experiment **e, const char *path, const char *tier)
{
    alibi_status status = alibi_experiment_open(e, path, tier);
    const char *dot = strrchr(path, '.');

    if (status != ALIBI_BAD_INPUT || (dot && strcmp(dot, ".json") == 0))
        return status;
    return cli_fail(status,
                    "'%s' is not an experiment (%s); give its name before the text: "
                    "alibi reproduce NAME TEXT",
                    path, alibi_error());
}

/* The tier of the folder, or cpu on the CPU. */
static alibi_status choose_tier(const struct job *job, const char *path, const char *dir, bool gpu,
                                char tier[ALIBI_NAME_MAX])
{
    alibi_experiment *e = NULL;
    struct alibi_experiment_info info;
    bool held = false;

    tier[0] = '\0';
    if (job->tier) {
        if (strcmp(job->tier, "full") != 0)
            snprintf(tier, ALIBI_NAME_MAX, "%s", job->tier);
        return ALIBI_OK;
    }
    TRY_RETURN(alibi_experiment_folder_tier(dir, tier, &held));
    if (held || gpu)
        return ALIBI_OK;
    TRY_RETURN(open_experiment(&e, path, NULL));
    alibi_experiment_get_info(e, &info);
    for (int i = 0; i < info.tiers.count; i++)
        if (strcmp(info.tiers.at[i], "cpu") == 0)
            snprintf(tier, ALIBI_NAME_MAX, "cpu");
    alibi_experiment_free(e);
    return ALIBI_OK;
}

/* "name=PATH" and "name.valid=PATH" set the text of that name; other operands are files of the only
 * text. */
static alibi_status set_texts(alibi_experiment *e, const struct cli_line *line, const char *valid)
{
    const char *files[CLI_FILES_MAX];
    int count = 0;
    struct alibi_experiment_info info;

    alibi_experiment_get_info(e, &info);
    if (info.texts_read == 0 && line->operand_count > 1)
        cli_note("the models of '%s' read no text, only synthetic tasks: '%s' is not used, unless "
                 "a vocabulary is learned from it",
                 info.name, line->operands[1]);
    for (int i = 1; i < line->operand_count; i++) {
        const char *operand = line->operands[i], *equals = strchr(operand, '='), *name = NULL;
        size_t length = 0;

        for (int t = 0; equals && !length && (name = alibi_experiment_text_name(e, t, NULL)); t++)
            if (strncmp(operand, name, strlen(name)) == 0 &&
                (operand[strlen(name)] == '=' ||
                 strncmp(operand + strlen(name), ".valid=", 7) == 0))
                length = strlen(name);
        if (length == 0 && count == CLI_FILES_MAX)
            return cli_fail(ALIBI_USAGE, "more than %d files; give the folder that they are in",
                            CLI_FILES_MAX);
        if (length == 0 && equals && access(operand, F_OK) != 0)
            return cli_fail(ALIBI_USAGE,
                            "'%s': the experiment has no text of that name; its %s '%s'", operand,
                            alibi_experiment_text_name(e, 1, NULL) ? "first is" : "text is",
                            alibi_experiment_text_name(e, 0, NULL));
        if (length == 0)
            files[count++] = operand;
        else if (operand[length] == '=')
            TRY_RETURN(alibi_experiment_set_text(e, name, &(const char *){ equals + 1 }, 1, NULL));
        else
            TRY_RETURN(alibi_experiment_set_text(e, name, NULL, 0, equals + 1));
    }
    return count > 0 || valid ? alibi_experiment_set_text(e, NULL, files, count, valid) : ALIBI_OK;
}

/* Describes the experiment, as the head of the plan or as a note before the work. */
static void announce(const alibi_experiment *e, const struct cli_line *line, bool plan)
{
    struct alibi_experiment_info info;
    const char *text = "";
    char all[1024];

    alibi_experiment_get_info(e, &info);
    if (line->operand_count > 1 && info.texts_read > 0)
        text = line->operands[1];
    else if (plan && info.texts_read > 0)
        text = "the built-in text";
    snprintf(all, sizeof all, "%s%s%s%s%s: %d model%s, %d training%s, %d claim%s%s%s%s", info.title,
             info.tier[0] ? ", tier " : "", info.tier, info.tier_about[0] ? ": " : "",
             info.tier_about, info.models, info.models == 1 ? "" : "s", info.trainings,
             info.trainings == 1 ? "" : "s", info.claims, info.claims == 1 ? "" : "s",
             text[0] ? ", on " : "", text, text[0] && line->operand_count > 2 ? " and others" : "");
    if (plan) {
        cli_print_wrapped(stdout, all, 0, 0);
        putchar('\n');
    } else {
        cli_note("%s", all);
    }
}

/* The experiment with its tier, its texts and what --only selects, the device, and its folder. */
static alibi_status prepare(alibi_experiment **e, alibi_device **device, char dir[CLI_PATH_BYTES],
                            const struct job *job, const struct cli_line *line)
{
    char path[CLI_PATH_BYTES], tier[ALIBI_NAME_MAX], name[ALIBI_NAME_MAX];
    const char *only[ALIBI_LIST_MAX];
    struct alibi_device_info info;

    if (job->time && !job->plan)
        return cli_fail(ALIBI_USAGE, "--time needs --plan");
    TRY_RETURN(cli_find_installed("experiments", "experiment", line->operands[0], path));
    cli_name_recipe(path, name, sizeof name);
    snprintf(dir, CLI_PATH_BYTES, "%s%s", job->out ? "" : "runs/", job->out ? job->out : name);
    TRY_RETURN(cli_open_device(device, line, &job->compute));
    alibi_device_get_info(*device, &info);
    TRY_RETURN(choose_tier(job, path, dir, info.gpu, tier));
    TRY_RETURN(open_experiment(e, path, tier));
    TRY_RETURN(set_texts(*e, line, job->valid));
    for (int i = 0; i < job->only.count; i++)
        only[i] = job->only.at[i];
    return job->only.count > 0 ? alibi_experiment_select(*e, only, job->only.count) : ALIBI_OK;
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    char dir[CLI_PATH_BYTES];
    alibi_experiment *e = NULL;
    alibi_device *device = NULL;
    char *report = NULL;
    alibi_status status;

    if (line->operand_count == 0)
        return cli_agree(list_experiments());
    cli_catch_signals();
    TRY(cli_agree(prepare(&e, &device, dir, job, line)));
    announce(e, line, job->plan && !job->json);
    if (job->plan) {
        TRY(cli_agree(print_plan(e, device, dir, job->time, job->json)));
        goto out;
    }
    TRY(alibi_experiment_run(e, device, &job->how, dir, cli_call()));
    if (job->json)
        TRY(alibi_experiment_json(&report, e));
    else
        TRY(alibi_experiment_text(&report, e, cli_columns(), cli_colour()));
    cli_print_report(report, job->json ? NULL : dir);
out:
    alibi_experiment_free(e);
    alibi_device_free(device);
    return status;
}

alibi_status cmd_reproduce(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = {
        { "Experiment", options, CLI_COUNT(options), &job },
        cli_reading_group(&job.how.reading),
        cli_builtin_group(&job.how.builtin),
        cli_device_group(&job.compute),
    };
    struct cli_line line = {
        .command = "reproduce",
        .usage = "[NAME [TEXT...] [OPTION...]]",
        .about =
            "Trains and tests the models of an experiment, a JSON file (an installed one by its "
            "name), and writes report.html, results.json and results.csv: a verdict on each of its "
            "claims, and the numbers. Without a NAME it lists the experiments. TEXT is a file, a "
            "folder or token shards; if the experiment has several texts, NAME=PATH and "
            "NAME.valid=PATH. SIGINT or SIGTERM saves and exits with 75; the same command resumes, "
            "also on another machine that has the folder's JSON files. `mpirun -n N alibi "
            "reproduce` trains N models at a time.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .max_operands = INT_MAX,
    };

    return cli_run(&line, argc, argv, run, &job);
}
