/* page.c - report.html from what a folder holds
 *
 *   comparison   recipe.json, and result.json and log.jsonl of each model that was begun
 *   run          recipe.json, source.json, log.jsonl; several of them on one page
 *
 * Nothing is locked: files are replaced as a whole, and an incomplete last line of a log is not
 * read. So the page can be written while the work continues. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "compare/compare.h"
#include "compare/trial.h"
#include "report/report.h"
#include "train/train.h"

/* ---- logs */

struct log_reader {
    struct report_log *log;
    int64_t steps; /* of the axis */
};

static void record(void *user, const struct journal_line *l)
{
    struct log_reader *r = user;

    r->log->step = l->step > r->log->step ? l->step : r->log->step;
    if (isfinite(l->loss))
        report_bins_add(&r->log->train, l->step, r->steps, l->loss);
    if (!isfinite(l->valid_loss))
        return;
    report_bins_add(&r->log->valid, l->step, r->steps, l->valid_loss);
    r->log->last_valid = l->valid_loss;
    if (r->log->validations++ == 0 || l->valid_loss < r->log->best_valid) {
        r->log->best_valid = l->valid_loss;
        r->log->best_step = l->step;
    }
}

/* Adds the log of a run of `steps` steps if it has one, on an axis of `all` steps. */
static alibi_status add_log(struct report_training *t, const char *run, int method, int64_t steps,
                            int64_t all)
{
    struct log_reader reader = { .log = &t->log[t->logs], .steps = all };
    bool has;

    TRY_RETURN(folder_has(&has, run, NAME_LOG));
    if (!has)
        return ALIBI_OK;
    *reader.log = (struct report_log){ .method = method, .steps = steps };
    TRY_RETURN(journal_read(run, record, &reader));
    t->logs++;
    return ALIBI_OK;
}

static alibi_status write_page(const struct alibi_compare_result *result,
                               const struct report_training *t, const char *dir,
                               alibi_status (*format)(struct text *out,
                                                      const struct alibi_compare_result *r,
                                                      const struct report_training *t))
{
    alibi_status status;
    struct text page = { 0 };

    TRY(format(&page, result, t));
    TRY(file_replace_shared_within(dir, NAME_PAGE, &page));
out:
    text_free(&page);
    return status;
}

/* ---- comparisons */

alibi_status page_write(const struct request *r, const struct alibi_compare_result *result,
                        const char *dir, int64_t refresh, bool *finished)
{
    alibi_status status;
    int seeds = r->compare.seeds.count, models = r->compare.methods.count * seeds;
    struct report_training t = { .models = models };
    char *run = NULL;

    TRY(NEW_ZERO_ARRAY(&t.log, models, "the logs of a comparison"));
    for (int n = 0; n < models; n++) {
        const struct alibi_compare_method *m = &result->method[n / seeds];
        int k = n % seeds;

        TRY(request_folder(&run, r, n / seeds, k, dir));
        TRY(add_log(&t, run, n / seeds, r->training.steps, r->training.steps));
        t.done += k < m->seeds && result_is_complete(&m->seed[k], &r->compare);
        mem_free(run);
        run = NULL;
    }
    t.refresh = t.done < models ? refresh : 0;
    TRY(write_page(result, &t, dir, report_html));
    if (finished)
        *finished = t.done == models;
out:
    mem_free(run);
    mem_free(t.log);
    return status;
}

/* A finished comparison has a results.json, with the options that do not shape the result and the
 * loss of token frequencies. */
static alibi_status read_settings(struct alibi_compare_result *result, const char *dir)
{
    alibi_status status;
    struct alibi_option_group groups[] = { { .values = &result->config },
                                           { .values = &result->training } };
    char *path = NULL, *options = NULL;
    json_t *file = NULL;
    const json_t *train, *eval;
    size_t length;

    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    TRY(path_join(&path, dir, NAME_RESULTS));
    if (!file_exists(path))
        goto out;
    TRY(json_read(&file, path));
    train = json_object_get(file, "train");
    length = train ? json_dumpb(train, NULL, 0, JSON_REAL_PRECISION(17)) : 0;
    TRY(NEW_ARRAY(&options, (int64_t)length, "the options of a comparison"));
    if (length > 0 && json_dumpb(train, options, length, JSON_REAL_PRECISION(17)) == length)
        TRY(options_parse(groups, 2, options, length, path));
    eval = json_object_get(file, "eval");
    if (json_is_number(json_object_get(eval, "unigram_nll")))
        TRY(json_get_real(eval, "unigram_nll", &result->unigram_nll, path));
out:
    mem_free(options);
    json_decref(file);
    mem_free(path);
    return status;
}

/* Seeds that were not begun, and those after them, are missing from a method. */
static alibi_status read_models(struct alibi_compare_result *result, const struct request *r,
                                const char *dir)
{
    alibi_status status = ALIBI_OK;
    char *run = NULL, *path = NULL;

    for (int n = 0; n < result->methods * r->compare.seeds.count; n++) {
        int i = n / r->compare.seeds.count, k = n % r->compare.seeds.count;
        struct alibi_compare_method *m = &result->method[i];

        mem_free(run);
        mem_free(path);
        run = path = NULL;
        TRY(request_folder(&run, r, i, k, dir));
        TRY(path_join(&path, run, NAME_RESULT));
        if (k > m->seeds || !file_exists(path))
            continue;
        TRY(result_init(&m->seed[m->seeds++], r->compare.seeds.at[k], r->compare.lengths.count));
        TRY(result_read(&m->seed[k], m->name, &r->compare.lengths, path));
    }
out:
    mem_free(path);
    mem_free(run);
    return status;
}

/* A finished comparison whose models have no evaluations is from a version whose result.json can no
 * longer be read. Its page must not be replaced by an empty one. */
static alibi_status check_readable(const struct alibi_compare_result *result, const char *dir)
{
    bool has;

    TRY_RETURN(folder_has(&has, dir, NAME_RESULTS));
    for (int i = 0; i < result->methods && has; i++)
        if (result->method[i].seeds == 0 || result->method[i].seed[0].lengths == 0)
            return fail(ALIBI_BAD_INPUT,
                        "'%s' has the results of an older version; repeat its 'alibi compare', "
                        "which evaluates the models again, or keep its page",
                        dir);
    return ALIBI_OK;
}

static alibi_status write_comparison(const char *dir, int64_t refresh, bool *finished)
{
    alibi_status status;
    struct request r;
    struct alibi_compare_result *result = NULL;

    TRY(request_read(&r, dir));
    TRY(NEW_ZERO_ARRAY(&result, 1, "the comparison's results"));
    TRY(NEW_ZERO_ARRAY(&result->method, r.compare.methods.count, "the comparison's results"));
    request_describe(&r, result);
    TRY(read_settings(result, dir));
    for (int i = 0; i < r.compare.methods.count; i++) {
        struct alibi_compare_method *m = &result->method[result->methods++];

        snprintf(m->name, sizeof m->name, "%s", r.compare.methods.at[i]);
        TRY(NEW_ZERO_ARRAY(&m->seed, r.compare.seeds.count, "the comparison's results"));
    }
    TRY(read_models(result, &r, dir));
    TRY(check_readable(result, dir));
    TRY(page_write(&r, result, dir, refresh, finished));
out:
    alibi_compare_free(result);
    return status;
}

/* ---- runs */

/* The first path of its text; runs of older versions do not know it. */
static alibi_status read_source(struct report_run *run, const char *dir)
{
    json_t *source = NULL;
    const json_t *files;

    TRY_RETURN(json_read_within(&source, dir, NAME_SOURCE));
    files = json_object_get(source, "files");
    if (json_is_string(json_array_get(files, 0)))
        snprintf(run->text.name, sizeof run->text.name, "%s",
                 json_string_value(json_array_get(files, 0)));
    else if (run->builtin.bytes > 0)
        snprintf(run->text.name, sizeof run->text.name, "built-in text");
    run->text.paths = (int64_t)json_array_size(files);
    json_decref(source);
    return ALIBI_OK;
}

enum { RUN_GROUPS = 3 };

static void run_groups(struct alibi_option_group groups[RUN_GROUPS], struct report_run *run)
{
    groups[0] = (struct alibi_option_group){ .values = &run->config };
    groups[1] = (struct alibi_option_group){ .values = &run->training };
    groups[2] = (struct alibi_option_group){ .values = &run->builtin };
    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    groups[2].options = alibi_builtin_options(&groups[2].count);
}

static void free_run(struct report_run *run)
{
    struct alibi_option_group groups[RUN_GROUPS];

    run_groups(groups, run);
    alibi_options_free(groups, RUN_GROUPS);
}

/* `run` starts from {0}; after a failure too, free_run(). */
static alibi_status read_run(struct report_run *run, const char *dir, const char *recipe)
{
    struct alibi_option_group groups[RUN_GROUPS];

    run_groups(groups, run);
    TRY_RETURN(alibi_options_init(groups, RUN_GROUPS));
    run->builtin.bytes = 0;
    TRY_RETURN(alibi_options_read(groups, RUN_GROUPS, recipe));
    return read_source(run, dir);
}

/* A run is shown as a comparison of one method that has no evaluations. */
static alibi_status write_run(const char *dir, const char *recipe, int64_t refresh, bool *finished)
{
    alibi_status status;
    struct alibi_compare_method method = { 0 };
    struct alibi_compare_result result = { .methods = 1, .method = &method };
    struct report_run run = { 0 };
    struct report_training t = { .models = 1 };

    TRY(read_run(&run, dir, recipe));
    result.config = run.config;
    result.training = run.training;
    result.builtin = run.builtin;
    result.text = run.text;
    memcpy(method.name, result.config.position, sizeof method.name);
    TRY(NEW_ZERO_ARRAY(&t.log, 1, "the log of a run"));
    TRY(add_log(&t, dir, 0, result.training.steps, result.training.steps));
    t.done = t.logs > 0 && t.log[0].step >= result.training.steps;
    t.refresh = t.done < 1 ? refresh : 0;
    TRY(write_page(&result, &t, dir, report_run_html));
    *finished = t.done == 1;
out:
    free_run(&run);
    mem_free(t.log);
    return status;
}

/* ---- several runs */

/* *recipe is that of the run in the folder, mem_free. */
static alibi_status look_for_run(char **recipe, const char *dir)
{
    alibi_status status;
    json_t *json = NULL;

    TRY(path_join(recipe, dir, NAME_RECIPE));
    if (!file_exists(*recipe))
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' holds no training run: it has no " NAME_RECIPE
                 "; give the --out of 'alibi train', or an experiment's folder alone, "
                 "without --out",
                 dir));
    TRY(json_read(&json, *recipe));
    if (json_object_get(json, "methods"))
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' holds a comparison, not a training run; give the folders in it, or "
                 "'alibi report %s' alone",
                 dir, dir));
out:
    json_decref(json);
    return status;
}

/* The last folder of a path. */
static void last_folder(char name[ALIBI_NAME_MAX], const char *path)
{
    const char *end = path + strlen(path), *start;

    while (end > path + 1 && end[-1] == '/')
        end--;
    for (start = end; start > path && start[-1] != '/';)
        start--;
    snprintf(name, ALIBI_NAME_MAX, "%.*s", (int)(end - start), start);
}

/* Runs are named by their last folder. If several have the same one, they are named by their paths,
 * or by the ends of long paths. */
static void name_runs(struct alibi_compare_result *result, const char *const *dirs)
{
    for (int i = 0; i < result->methods; i++) {
        char name[ALIBI_NAME_MAX], other[ALIBI_NAME_MAX];
        size_t length = strlen(dirs[i]);
        int same = 0;

        last_folder(name, dirs[i]);
        for (int k = 0; k < result->methods; k++) {
            last_folder(other, dirs[k]);
            same += strcmp(name, other) == 0;
        }
        snprintf(result->method[i].name, ALIBI_NAME_MAX, "%s",
                 same == 1                  ? name
                 : length >= ALIBI_NAME_MAX ? dirs[i] + length - ALIBI_NAME_MAX + 1
                                            : dirs[i]);
    }
}

/* The user chooses where the page of several runs is written, so no other file may be overwritten.
 */
static alibi_status refuse_foreign(const char *path)
{
    alibi_status status;
    struct file *f = NULL;
    char start[1024];
    enum path_kind kind;
    size_t got = 0;

    TRY_RETURN(path_look(&kind, path));
    if (kind != PATH_FILE)
        return ALIBI_OK;
    TRY_RETURN(file_open_read(&f, path));
    status = file_read(f, start, sizeof start - 1, &got);
    (void)file_close(f); /* nothing was written */
    TRY_RETURN(status);
    start[got] = '\0';
    if (got > 0 && !strstr(start, REPORT_SIGN))
        return fail(ALIBI_BAD_INPUT,
                    "'%s' exists and is no page of runs; remove it or choose another name", path);
    return ALIBI_OK;
}

alibi_status alibi_report_runs(const char *const *dirs, int count, const char *path,
                               int64_t refresh, bool *finished)
{
    alibi_status status = ALIBI_OK;
    struct alibi_compare_result result = { 0 };
    struct report_training t = { .models = count };
    struct report_run *runs = NULL;
    struct text page = { 0 };
    char *recipe = NULL;

    if (count < 1 || count > ALIBI_LIST_MAX)
        return fail(ALIBI_USAGE, "%d runs: a page shows 1 to %d", count, ALIBI_LIST_MAX);
    TRY(refuse_foreign(path));
    TRY(NEW_ZERO_ARRAY(&runs, count, "runs"));
    TRY(NEW_ZERO_ARRAY(&result.method, count, "runs"));
    TRY(NEW_ZERO_ARRAY(&t.log, count, "the logs of runs"));
    for (int i = 0; i < count; i++) {
        TRY(look_for_run(&recipe, dirs[i]));
        TRY(read_run(&runs[i], dirs[i], recipe));
        mem_free(recipe);
        recipe = NULL;
        if (runs[i].training.steps > result.training.steps)
            result.training.steps = runs[i].training.steps;
    }
    result.methods = count;
    name_runs(&result, dirs);
    for (int i = 0; i < count; i++) {
        int before = t.logs;

        TRY(add_log(&t, dirs[i], i, runs[i].training.steps, result.training.steps));
        t.done += t.logs > before && t.log[before].step >= runs[i].training.steps;
    }
    t.refresh = t.done < count ? refresh : 0;
    TRY(report_runs_html(&page, &result, runs, &t));
    TRY(file_replace_shared(path, page.data, page.length));
    *finished = t.done == count;
out:
    for (int i = 0; runs && i < count; i++)
        free_run(&runs[i]);
    text_free(&page);
    mem_free(recipe);
    mem_free(t.log);
    mem_free(result.method);
    mem_free(runs);
    return status;
}

/* ---- both */

/* A folder without a recipe may be a part of a run or an experiment: a checkpoint, "models",
 * "texts", or a model that is only tested. Then the run is one or two levels up. */
static alibi_status refuse_folder(const char *dir)
{
    static const char *const signs[] = { NAME_EXPERIMENT, NAME_RECIPE };
    alibi_status status;
    char *at = NULL, *above = NULL;
    bool found = false;

    TRY(path_absolute(&at, dir));
    for (int level = 0; level < 2 && !found; level++) {
        TRY(path_folder(&above, at));
        mem_free(at);
        at = above;
        above = NULL;
        for (int i = 0; i < 2 && !found; i++) {
            TRY(folder_has(&found, at, signs[i]));
        }
    }
    if (found)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' has no page of its own, '%s' above it has one; give that folder", dir, at));
    TRY(fail(ALIBI_BAD_INPUT,
             "'%s' holds no comparison, experiment or training run: it has no " NAME_RECIPE
             "; give the --out of 'alibi compare', 'reproduce' or 'train'",
             dir));
out:
    mem_free(at);
    return status;
}

alibi_status page_of_folder(const char *dir, int64_t refresh, bool *finished)
{
    alibi_status status;
    char *recipe = NULL;
    json_t *json = NULL;

    TRY(path_join(&recipe, dir, NAME_RECIPE));
    if (!folder_exists(dir))
        TRY(fail(ALIBI_BAD_INPUT, "there is no folder '%s'", dir));
    if (!file_exists(recipe))
        TRY(refuse_folder(dir));
    TRY(json_read(&json, recipe));
    if (json_object_get(json, "methods"))
        TRY(write_comparison(dir, refresh, finished));
    else
        TRY(write_run(dir, recipe, refresh, finished));
out:
    json_decref(json);
    mem_free(recipe);
    return status;
}
