/* cmd_probe.c - what a model does with its context, beyond its perplexity */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "cli.h"

struct job {
    double skip;
    bool json;
    struct alibi_int_list lengths;
    int64_t windows;
    struct alibi_targets targets;
    struct alibi_tasks tasks;
    struct cli_subject subject;
};

enum {
    PROBE_GROUP,
    TARGETS_GROUP,
    ATTENTION_GROUP,
    TASKS_GROUP,
    SUBJECT_GROUP,
    READING_GROUP,
    BUILTIN_GROUP,
    TOKENIZER_GROUP,
    DEVICE_GROUP,
    GROUPS
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_REAL("skip", skip, 0, 0.999, CLI_SKIP_DEFAULT, "X",
             "weight of keys that attention may skip, relative to the others; 0: none"),
    OPT_FLAG("json", json, "print the results as JSON"),
};

static const struct alibi_option attention_options[] = {
    OPT_INTS("lengths", lengths, 1, CLI_LENGTH_MAX, NULL,
             "lengths of the windows; default: L and 4L, for tasks L to 16L"),
    OPT_INT("windows", windows, 1, 65536, "8", "N",
            "largest number of windows, spread over the text"),
};

/* ---- probe targets */

static const char *const kind_keys[] = { "all", "repeats", "others" };

static void print_estimate(struct alibi_estimate e)
{
    if (fabs(e.value) < 0.00005)
        e.value = 0; /* and not -0.0000 */
    if (isnan(e.value))
        printf(" %9s %7s", "-", "");
    else if (isnan(e.error))
        printf(" %9.4f %7s", e.value, "-");
    else
        printf(" %9.4f %7.4f", e.value, e.error);
}

static void print_kind(const struct alibi_targets_result *r, int kind)
{
    const struct alibi_target_results *k = &r->kind[kind];

    printf("\n%s: %lld targets", kind_keys[kind], (long long)k->tokens);
    if (kind == ALIBI_REPEATS)
        printf(" whose %lld-gram is in the context, and not in its last %lld tokens",
               (long long)r->request.gram, (long long)r->request.length);
    putchar('\n');
    if (k->tokens == 0)
        return;
    printf("%8s %9s %7s %9s %7s %9s %7s %9s %7s %9s %7s\n", "context", "nll", "error", "gain",
           "error", "swapped", "error", "content", "error", "window", "error");
    for (int c = 0; c < r->request.contexts.count; c++) {
        printf("%8lld", (long long)k->at[c].context);
        print_estimate(k->at[c].nll);
        print_estimate(k->at[c].gain);
        print_estimate(k->at[c].swapped);
        print_estimate(k->at[c].content);
        print_estimate(k->at[c].window);
        putchar('\n');
    }
}

/* The columns, explained below the last table. */
static void print_columns(const struct alibi_targets_result *r)
{
    const char *const columns[][2] = {
        { "gain", "nll with L tokens of context - nll with these" },
        { "swapped", "the gain that remains if text beyond L is from another document" },
        { "content", "gain - swapped: the use of the far text's content" },
        { "window", r->request.sinks > 0
                        ? "the gain that remains if attention is cut to the last L keys and the "
                          "first, of --sinks"
                        : "the gain that remains if attention is cut to the last L keys" },
        { "error", "one standard error of the number before it" },
    };

    printf("\nL = %lld; in nats per token:\n", (long long)r->request.length);
    for (int i = 0; i < CLI_COUNT(columns); i++) {
        printf("  %-7s  ", columns[i][0]);
        cli_print_wrapped(stdout, columns[i][1], 11, 11);
    }
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_rules(void)
{
    static const int order[] = { ALIBI_BREAKS, ALIBI_USES, ALIBI_HOLDS };
    const char *rule;

    for (int i = 0; i < 3; i++) {
        printf("  %-6s  ", alibi_reach_name(order[i], &rule));
        cli_print_wrapped(stdout, rule, 10, 10);
    }
}

/* As in comparisons: the loss at L is at least 5% below that of the text's token frequencies. If
 * that is not known, the model counts as having learned. */
static bool has_learned(const struct job *job, const struct alibi_targets_result *r)
{
    const struct alibi_eval eval = { .length = r->request.length };
    double unigram;
    int home = 0;

    while (r->request.contexts.at[home] != r->request.length)
        home++;
    return alibi_corpus_unigram(job->subject.corpus, cli_subject_split(&job->subject), &eval,
                                &unigram) != ALIBI_OK ||
           r->kind[ALIBI_ALL_TARGETS].at[home].nll.value < 0.95 * unigram;
}

static void print_change(const char *before, double gain, const char *after)
{
    printf("%s%s %.4f%s", before, gain > 0 ? "gains" : "loses", fabs(gain), after);
}

static void print_reach(const struct alibi_targets_result *r, bool learned)
{
    const struct alibi_target_context *far =
        &r->kind[ALIBI_ALL_TARGETS].at[r->request.contexts.count - 1];
    double gain = far->gain.value;
    bool none = fabs(gain) < 0.00005; /* it would be printed as 0 */

    if (r->reach < 0) {
        printf("\nNo verdict: no context is longer than %lld tokens.\n",
               (long long)r->request.length);
        return;
    }
    printf("\nThe model%s %s%s", learned ? "" : "†", alibi_reach_name(r->reach, NULL),
           r->reach == ALIBI_USES ? " far text" : "");
    if (r->reach == ALIBI_USES && r->falls_to <= r->request.length)
        printf(", by no single step");
    else if (r->reach == ALIBI_USES && r->falls_to < far->context)
        printf(", to %lld tokens", (long long)r->falls_to);
    printf(": from %lld to %lld tokens of context it ", (long long)r->request.length,
           (long long)far->context);
    if (none)
        printf("neither gains nor loses");
    else
        print_change("", gain, " nats");
    if (!isnan(far->gain.error))
        printf(" (error %.4f)", far->gain.error);
    if (!none && !isnan(far->swapped.value)) {
        print_change(",\n", far->swapped.value, " if everything beyond ");
        printf("%lld is swapped for other text", (long long)r->request.length);
    }
    if (!none && !isnan(far->window.value)) {
        print_change(",\n", far->window.value, " if attention is cut to the last ");
        printf("%lld tokens", (long long)r->request.length);
    }
    if (r->falls_to > r->request.length)
        printf(".\nThe loss falls at every step up to %lld tokens.\n", (long long)r->falls_to);
    else
        printf(".\nThe first step beyond %lld tokens shows no gain.\n",
               (long long)r->request.length);
    if (!learned)
        printf("† It has learned little: with %lld tokens it is less than 5%% better than token "
               "frequencies.\n",
               (long long)r->request.length);
    print_rules();
}

static void print_targets(const struct job *job, const struct alibi_targets_result *r)
{
    printf(
        "fixed targets, split %s of '%s': %lld block%s of %lld token%s in %lld document%s (others "
        "that are too short: %lld)\n",
        cli_subject_split_name(&job->subject), job->subject.info.name, (long long)r->blocks,
        plural(r->blocks), (long long)r->request.block, plural(r->request.block),
        (long long)r->documents, plural(r->documents), (long long)r->short_documents);
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++)
        print_kind(r, kind);
    print_columns(r);
    print_reach(r, has_learned(job, r));
    if (!r->units_are_documents)
        printf("Errors treat the blocks of few documents as independent, so they are too small.\n");
}

static void json_estimate(const char *key, struct alibi_estimate e)
{
    char error[ALIBI_NAME_MAX];

    snprintf(error, sizeof error, "%s_error", key);
    cli_json_real(key, e.value);
    cli_json_real(error, e.error);
}

static void json_targets(const struct job *job, const struct alibi_targets_result *r)
{
    cli_json_open(NULL, '{');
    cli_json_text("probe", "targets");
    cli_json_subject(&job->subject);
    cli_json_int("length", r->request.length);
    cli_json_int("block", r->request.block);
    cli_json_int("blocks", r->blocks);
    cli_json_int("gram", r->request.gram);
    cli_json_int("sinks", r->request.sinks);
    cli_json_int("documents", r->documents);
    cli_json_int("short_documents", r->short_documents);
    cli_json_text("error_over", r->units_are_documents ? "documents" : "blocks");
    cli_json_int("units", r->units);
    if (r->reach >= 0)
        cli_json_text("reach", alibi_reach_name(r->reach, NULL));
    else
        cli_json_real("reach", NAN);
    cli_json_flag("learned", has_learned(job, r));
    cli_json_int("falls_to", r->falls_to);
    cli_json_real("seconds", r->seconds);
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++) {
        const struct alibi_target_results *k = &r->kind[kind];

        cli_json_open(kind_keys[kind], '{');
        cli_json_int("tokens", k->tokens);
        cli_json_open("contexts", '[');
        for (int c = 0; c < r->request.contexts.count; c++) {
            cli_json_open(NULL, '{');
            cli_json_int("context", k->at[c].context);
            json_estimate("nll", k->at[c].nll);
            json_estimate("gain", k->at[c].gain);
            json_estimate("step", k->at[c].step);
            json_estimate("swapped", k->at[c].swapped);
            json_estimate("content", k->at[c].content);
            json_estimate("window", k->at[c].window);
            json_estimate("beyond", k->at[c].beyond);
            cli_json_close('}');
        }
        cli_json_close(']');
        cli_json_close('}');
    }
    cli_json_close('}');
}

static alibi_status probe_targets(const struct job *job)
{
    static struct alibi_targets_result result;
    const struct cli_subject *s = &job->subject;

    TRY_RETURN(alibi_probe_targets(s->model, s->corpus, cli_subject_split(s), &job->targets,
                                   &result, cli_call()));
    cli_terminal_clear();
    (job->json ? json_targets : print_targets)(job, &result);
    return ALIBI_OK;
}

/* ---- probe attention */

/* "512", "1k", "16k": the first distance of a bin. */
static const char *bin_name(char *name, int bin)
{
    long long first = bin == 0 ? 0 : 1LL << (bin - 1);

    snprintf(name, CLI_SHORT, first < 1024 ? "%lld" : "%lldk", first < 1024 ? first : first >> 10);
    return name;
}

static void print_head_row(const struct alibi_attention_result *r,
                           const struct alibi_head_attention *h)
{
    printf(" %9.1f %8.3f %7.2f%% ", h->distance, h->entropy, 100 * h->beyond);
    for (int b = 0; b < r->bins; b++)
        printf(" %3.0f", 100 * h->share[b]);
    putchar('\n');
}

static void print_attention(const struct job *job, const struct alibi_attention_result *r)
{
    char name[CLI_SHORT];

    printf("attention, split %s of '%s': %lld window%s of %lld tokens, %lld queries\n",
           cli_subject_split_name(&job->subject), job->subject.info.name, (long long)r->windows,
           plural(r->windows), (long long)r->length, (long long)r->queries);
    snprintf(name, sizeof name, ">=%lld", (long long)r->near);
    printf("%5s %5s %9s %8s %8s   %% of the weight, by distance from\n", "", "", "mean", "entropy",
           "weight");
    printf("%5s %5s %9s %8s %8s ", "layer", "head", "distance", "nats", name);
    for (int b = 0; b < r->bins; b++)
        printf(" %3s", bin_name(name, b));
    putchar('\n');
    for (int64_t i = 0; i < r->layers * r->heads; i++) {
        printf("%5lld %5lld", (long long)(i / r->heads), (long long)(i % r->heads));
        print_head_row(r, &r->head[i]);
    }
    printf("%-11s", "equal");
    print_head_row(r, &r->uniform);
}

static void json_head(const struct alibi_attention_result *r, const struct alibi_head_attention *h)
{
    cli_json_real("distance", h->distance);
    cli_json_real("entropy", h->entropy);
    cli_json_real("beyond", h->beyond);
    cli_json_open("shares", '[');
    for (int b = 0; b < r->bins; b++)
        cli_json_real(NULL, h->share[b]);
    cli_json_close(']');
}

static void json_attention(const struct alibi_attention_result *r)
{
    cli_json_open(NULL, '{');
    cli_json_int("length", r->length);
    cli_json_int("near", r->near);
    cli_json_int("windows", r->windows);
    cli_json_int("queries", r->queries);
    cli_json_real("seconds", r->seconds);
    cli_json_open("first_distances", '[');
    for (int b = 0; b < r->bins; b++)
        cli_json_int(NULL, b == 0 ? 0 : INT64_C(1) << (b - 1));
    cli_json_close(']');
    cli_json_open("heads", '[');
    for (int64_t i = 0; i < r->layers * r->heads; i++) {
        cli_json_open(NULL, '{');
        cli_json_int("layer", i / r->heads);
        cli_json_int("head", i % r->heads);
        json_head(r, &r->head[i]);
        cli_json_close('}');
    }
    cli_json_close(']');
    cli_json_open("uniform", '{');
    json_head(r, &r->uniform);
    cli_json_close('}');
    cli_json_close('}');
}

static struct alibi_int_list choose_lengths(const struct job *job)
{
    int64_t trained = alibi_model_view_config(job->subject.model)->train_length;
    int64_t L = job->targets.length > 0 ? job->targets.length : trained;

    if (job->lengths.count > 0)
        return job->lengths;
    return (struct alibi_int_list){ 2, { L, 4 * L } };
}

static void json_attentions(const struct job *job, struct alibi_attention_result *const *results,
                            int count, bool stopped)
{
    cli_json_open(NULL, '{');
    cli_json_text("probe", "attention");
    cli_json_subject(&job->subject);
    cli_json_open("lengths", '[');
    for (int i = 0; i < count; i++)
        json_attention(results[i]);
    cli_json_close(']');
    if (stopped)
        cli_json_flag("stopped", true);
    cli_json_close('}');
}

static alibi_status probe_attention(const struct job *job)
{
    struct alibi_attention_result *results[ALIBI_LIST_MAX] = { NULL };
    struct alibi_int_list lengths = choose_lengths(job);
    const struct cli_subject *s = &job->subject;
    alibi_status status = ALIBI_OK;
    int done = 0;

    while (done < lengths.count) {
        const struct alibi_attention how = { lengths.at[done], job->targets.length, job->windows };

        status = alibi_probe_attention(&results[done], s->model, s->corpus, cli_subject_split(s),
                                       &how, cli_call());
        if (status != ALIBI_OK)
            break;
        if (++done < lengths.count)
            cli_catch_signals(); /* from now on there is something to lose */
        if (job->json)
            continue;
        cli_terminal_clear();
        if (done > 1)
            putchar('\n');
        print_attention(job, results[done - 1]);
        cli_flush();
    }
    cli_terminal_clear();
    if (status != ALIBI_OK)
        cli_fail_later(status, done, lengths.count);
    if (done > 0 && job->json)
        json_attentions(job, results, done, status != ALIBI_OK);
    for (int i = 0; i < done; i++)
        alibi_attention_free(results[i]);
    return status;
}

/* ---- probe tasks */

static const char *const cell_names[] = { "measured", "not learned", "no positions" };

static void print_depths(const struct alibi_tasks *t, const struct alibi_task_cell *cell)
{
    for (int64_t d = 0; d < t->depths; d++)
        if (isnan(cell->depth_score[d]))
            printf(" %5s", "-");
        else
            printf(" %5.2f", cell->depth_score[d]);
}

static void print_cell(const struct alibi_tasks *t, const struct alibi_task_result *task,
                       const struct alibi_task_cell *cell)
{
    printf("%8lld", (long long)cell->length);
    if (cell->why != ALIBI_CELL_MEASURED) {
        printf("  %s\n", cell_names[cell->why]);
        return;
    }
    for (int i = 0; i < 2; i++) {
        double number = i == 0 ? cell->score.value : cell->score.error;

        if (isnan(number))
            printf(" %7s", "-");
        else
            printf(" %7.3f", number);
    }
    if (task->chain)
        printf(" %8.4f %8.4f", cell->nll, cell->bayes);
    else
        printf("   %.2f - %.2f %8.4f ", cell->low, cell->high, cell->nll);
    if (task->has_depth)
        print_depths(t, cell);
    putchar('\n');
}

/* The loss by position of the longest length that was measured, beside the lowest possible. */
static void print_positions(const struct alibi_tasks *t, const struct alibi_task_result *task)
{
    const struct alibi_task_cell *cell = NULL;

    for (int i = 0; i < t->lengths.count; i++)
        if (task->at[i].why == ALIBI_CELL_MEASURED)
            cell = &task->at[i];
    printf("\n%8s %8s %8s %8s   (length %lld)\n", "position", "loss", "Bayes", "above",
           (long long)cell->length);
    for (int b = 0; b < cell->bins; b++)
        printf("%8lld %8.4f %8.4f %8.4f\n", (long long)cell->by_position[b].first,
               cell->by_position[b].nll, cell->bayes_by_position[b],
               cell->by_position[b].nll - cell->bayes_by_position[b]);
}

static void print_task(const struct alibi_tasks *t, const struct alibi_task_result *task)
{
    const char *summary = "", *name;

    for (int i = 0; (name = alibi_task_name(i, &summary)) && strcmp(name, task->name) != 0; i++)
        continue;
    if (task->chain)
        printf("\n%s: %s; equal frequencies have a loss of %.4f\n%8s %7s %7s %8s %8s\n", task->name,
               summary, task->chance, "length", "score", "error", "loss", "Bayes");
    else
        printf("\n%s: %s; chance %.2g\n%8s %7s %7s %13s %8s  by depth, from the start\n",
               task->name, summary, task->chance, "length", "score", "error", "95% interval",
               "loss");
    if (!isnan(task->trained.value))
        printf("%8lld %7.3f %7.3f  with the position of its training\n", (long long)t->length,
               task->trained.value, task->trained.error);
    for (int i = 0; i < t->lengths.count; i++)
        if (task->at[i].why != ALIBI_CELL_NOT_LEARNED)
            print_cell(t, task, &task->at[i]);
    if (!task->learned)
        printf("%8s  not learned: the score at %lld%s is below 0.95, so it would say nothing about "
               "length\n",
               "longer", (long long)t->length,
               isnan(task->trained.value) ? "" : " with the position of its training");
    if (task->chain)
        print_positions(t, task);
}

static void print_tasks(const struct job *job, const struct alibi_tasks_result *r)
{
    printf("tasks, text from split %s of '%s': %lld cases of each length, L = %lld\n",
           cli_subject_split_name(&job->subject), job->subject.info.name,
           (long long)r->request.cases, (long long)r->request.length);
    for (int i = 0; i < r->tasks; i++)
        print_task(&r->request, &r->task[i]);
}

static void json_cell(const struct alibi_tasks *t, const struct alibi_task_result *task,
                      const struct alibi_task_cell *cell)
{
    bool measured = cell->why == ALIBI_CELL_MEASURED;

    cli_json_open(NULL, '{');
    cli_json_int("length", cell->length);
    cli_json_text("state", cell_names[cell->why]);
    if (measured) {
        cli_json_int("cases", cell->cases);
        json_estimate("score", cell->score);
        cli_json_real("score_low", cell->low);
        cli_json_real("score_high", cell->high);
        cli_json_real("nll", cell->nll);
    }
    if (measured && task->has_depth) {
        cli_json_open("depths", '[');
        for (int64_t d = 0; d < t->depths; d++) {
            cli_json_open(NULL, '{');
            cli_json_int("answers", cell->depth_answers[d]);
            cli_json_real("score", cell->depth_score[d]);
            cli_json_close('}');
        }
        cli_json_close(']');
    }
    if (measured && task->chain) {
        cli_json_real("bayes", cell->bayes);
        cli_json_open("by_position", '[');
        for (int b = 0; b < cell->bins; b++) {
            cli_json_open(NULL, '{');
            cli_json_int("first", cell->by_position[b].first);
            cli_json_int("last", cell->by_position[b].last);
            cli_json_int("tokens", cell->by_position[b].tokens);
            cli_json_real("nll", cell->by_position[b].nll);
            cli_json_real("bayes", cell->bayes_by_position[b]);
            cli_json_close('}');
        }
        cli_json_close(']');
    }
    cli_json_close('}');
}

static void json_tasks(const struct job *job, const struct alibi_tasks_result *r)
{
    cli_json_open(NULL, '{');
    cli_json_text("probe", "tasks");
    cli_json_subject(&job->subject);
    cli_json_int("length", r->request.length);
    cli_json_int("cases", r->request.cases);
    cli_json_int("seed", r->request.seed);
    cli_json_real("seconds", r->seconds);
    cli_json_open("tasks", '[');
    for (int i = 0; i < r->tasks; i++) {
        cli_json_open(NULL, '{');
        cli_json_text("task", r->task[i].name);
        cli_json_flag("learned", r->task[i].learned);
        if (!isnan(r->task[i].trained.value))
            json_estimate("trained_score", r->task[i].trained);
        cli_json_real(r->task[i].chain ? "chance_nll" : "chance", r->task[i].chance);
        cli_json_open("lengths", '[');
        for (int k = 0; k < r->request.lengths.count; k++)
            json_cell(&r->request, &r->task[i], &r->task[i].at[k]);
        cli_json_close(']');
        cli_json_close('}');
    }
    cli_json_close(']');
    cli_json_close('}');
}

static alibi_status probe_tasks(const struct job *job)
{
    struct alibi_tasks_result *result = NULL;
    const struct cli_subject *s = &job->subject;

    TRY_RETURN(alibi_probe_tasks(&result, s->model, s->corpus, cli_subject_split(s), &job->tasks,
                                 cli_call()));
    cli_terminal_clear();
    (job->json ? json_tasks : print_tasks)(job, result);
    alibi_tasks_free(result);
    return ALIBI_OK;
}

/* ---- the run */

enum { TARGETS, ATTENTION, TASKS, PROBES };

static const struct probe {
    const char *name;
    int group;
    alibi_status (*run)(const struct job *job);
} probes[PROBES] = {
    [TARGETS] = { "targets", TARGETS_GROUP, probe_targets },
    [ATTENTION] = { "attention", ATTENTION_GROUP, probe_attention },
    [TASKS] = { "tasks", TASKS_GROUP, probe_tasks },
};

/* --length, the first option of the targets, is for all probes, and --lengths, the first option of
 * attention, is for tasks too. */
static alibi_status refuse_unused(const struct cli_line *line, int which)
{
    for (int other = 0; other < PROBES; other++) {
        const struct alibi_option_group *group = &line->groups[probes[other].group];
        bool shares_first = other == TARGETS || (other == ATTENTION && which == TASKS);

        for (int i = shares_first; other != which && i < group->count; i++)
            if (line->given[probes[other].group] >> i & 1)
                return cli_fail(ALIBI_USAGE, "--%s has no effect on 'probe %s'",
                                group->options[i].name, line->operands[0]);
    }
    return ALIBI_OK;
}

/* Checks everything that does not depend on the text, before it is read. */
static alibi_status prepare(struct job *job, const struct cli_line *line, int which)
{
    TRY_RETURN(refuse_unused(line, which));
    TRY_RETURN(cli_subject_open_model(&job->subject, line, 1));
    job->tasks.length = job->targets.length;
    job->tasks.lengths = job->lengths;
    if (which == TARGETS)
        TRY_RETURN(alibi_targets_check(job->subject.model, &job->targets));
    else if (which == TASKS)
        TRY_RETURN(alibi_tasks_check(job->subject.model, &job->tasks));
    return cli_subject_open_text(&job->subject, line, BUILTIN_GROUP);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    int which = 0;
    alibi_status status;

    while (which < PROBES && strcmp(line->operands[0], probes[which].name) != 0)
        which++;
    if (which == PROBES)
        return cli_agree(cli_fail(ALIBI_USAGE,
                                  "no probe '%s'; there are 'targets', 'attention' and 'tasks'",
                                  line->operands[0]));
    job->subject.any_text = which == TASKS; /* any text can be the haystack */
    cli_set_skip(job->skip);
    TRY(cli_agree(prepare(job, line, which)));
    TRY(probes[which].run(job));
out:
    cli_subject_close(&job->subject);
    return status;
}

alibi_status cmd_probe(int argc, char **argv)
{
    struct job job = { 0 };
    struct alibi_option_group groups[GROUPS] = {
        [PROBE_GROUP] = { "Probe", options, CLI_COUNT(options), &job },
        [TARGETS_GROUP] = { .title = "Fixed targets", .values = &job.targets },
        [ATTENTION_GROUP] = { "Attention", attention_options, CLI_COUNT(attention_options), &job },
        [TASKS_GROUP] = { .title = "Tasks", .values = &job.tasks },
        [SUBJECT_GROUP] = cli_subject_group(&job.subject),
        [READING_GROUP] = cli_reading_group(&job.subject.text.reading),
        [BUILTIN_GROUP] = cli_builtin_group(&job.subject.text.builtin),
        [TOKENIZER_GROUP] = cli_no_tokenizer_group(&job.subject.text),
        [DEVICE_GROUP] = cli_device_group(&job.subject.compute),
    };
    struct cli_line line = {
        .command = "probe",
        .usage = "targets|attention|tasks MODEL [FILE...] [OPTION...]",
        .about =
            "'targets' scores the same tokens, deep inside documents, with growing context. The "
            "gain over a context of the training length says whether MODEL uses far text; the part "
            "of it that remains when the far text is swapped for that of another document does not "
            "come from the content of the text. 'attention' measures how far back each head looks: "
            "the weight of keys by distance, compared with a head that gives all keys the same "
            "weight. 'tasks' scores synthetic tasks that only far context can solve, such as a "
            "pass key in text, in windows of growing length; MODEL must be trained on them (`alibi "
            "train --mix`). `mpirun -n N alibi probe` divides the windows among N processes.",
        .groups = groups,
        .count = GROUPS,
        .min_operands = 2,
        .max_operands = INT_MAX,
    };

    groups[TARGETS_GROUP].options = alibi_targets_options(&groups[TARGETS_GROUP].count);
    groups[TASKS_GROUP].options = alibi_tasks_options(&groups[TASKS_GROUP].count);
    return cli_run(&line, argc, argv, run, &job);
}
