/* cmd_probe.c - what a model does with its context, beyond its perplexity */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "cli.h"

struct job {
    double skip;
    bool json;
    struct alibi_targets targets;
    struct cli_subject subject;
};

enum {
    PROBE_GROUP,
    TARGETS_GROUP,
    SUBJECT_GROUP,
    READING_GROUP,
    BUILTIN_GROUP,
    TOKENIZER_GROUP,
    DEVICE_GROUP,
    GROUPS
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    { "skip", ALIBI_OPTION_REAL, AT(skip), 0, 0.999, NULL, CLI_SKIP_DEFAULT, "X",
      "weight of keys that attention may skip, relative to those it uses; 0: none" },
    { "json", ALIBI_OPTION_FLAG, AT(json), 0, 0, NULL, NULL, NULL, "print the results as JSON" },
};

/* ---- probe targets */

static const char *const kind_keys[] = { "all", "repeats", "others" };
static const char *const reach_names[] = { "breaks", "holds", "uses" };

static void print_estimate(struct alibi_estimate e)
{
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

static void print_reach(const struct alibi_targets_result *r)
{
    const struct alibi_target_context *far =
        &r->kind[ALIBI_ALL_TARGETS].at[r->request.contexts.count - 1];

    printf("\nThe model %s: from %lld to %lld tokens of context it gains %.4f nats (error %.4f)",
           r->reach == ALIBI_USES ? "uses far text" : reach_names[r->reach],
           (long long)r->request.length, (long long)far->context, far->gain.value, far->gain.error);
    if (!isnan(far->swapped.value))
        printf(".\n%.4f are left when everything beyond %lld is swapped for other text",
               far->swapped.value, (long long)r->request.length);
    if (!isnan(far->window.value))
        printf(".\n%.4f are left when attention is cut to the last %lld tokens", far->window.value,
               (long long)r->request.length);
    printf(".\n");
}

static void print_targets(const struct job *job, const struct alibi_targets_result *r)
{
    struct alibi_corpus_info text;

    alibi_corpus_get_info(job->subject.corpus, ALIBI_ALL, &text);
    printf("fixed targets, split %s of '%s': %lld blocks of %lld tokens in %lld documents (%lld "
           "others are too short)\n",
           cli_subject_split_name(&job->subject), text.name, (long long)r->blocks,
           (long long)r->request.block, (long long)r->documents, (long long)r->short_documents);
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++)
        print_kind(r, kind);
    print_reach(r);
    if (!r->units_are_documents)
        printf("Errors take the blocks of few documents as independent, so they are too small.\n");
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
    cli_json_int("documents", r->documents);
    cli_json_int("short_documents", r->short_documents);
    cli_json_text("error_over", r->units_are_documents ? "documents" : "blocks");
    cli_json_int("units", r->units);
    cli_json_text("reach", reach_names[r->reach]);
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
    alibi_status status = alibi_probe_targets(s->model, s->corpus, cli_subject_split(s),
                                              &job->targets, &result, cli_call());

    if (status != ALIBI_OK)
        return status;
    cli_terminal_clear();
    if (job->json)
        json_targets(job, &result);
    else
        print_targets(job, &result);
    return ALIBI_OK;
}

/* ---- the run */

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    alibi_status status;

    if (strcmp(line->operands[0], "targets") != 0)
        return cli_fail(ALIBI_USAGE, "no probe '%s'; there is 'targets'", line->operands[0]);
    cli_set_skip(job->skip);
    status = cli_subject_open(&job->subject, line, 1, BUILTIN_GROUP);
    if (status == ALIBI_OK)
        status = probe_targets(job);
    cli_subject_close(&job->subject);
    return status;
}

alibi_status cmd_probe(int argc, char **argv)
{
    struct job job = { 0 };
    struct alibi_option_group groups[GROUPS] = {
        [PROBE_GROUP] = { "Probe", options, CLI_COUNT(options), &job },
        [TARGETS_GROUP] = { .title = "Fixed targets", .values = &job.targets },
        [SUBJECT_GROUP] = cli_subject_group(&job.subject),
        [READING_GROUP] = cli_reading_group(&job.subject.text.reading),
        [BUILTIN_GROUP] = cli_builtin_group(&job.subject.text.builtin),
        [TOKENIZER_GROUP] = cli_no_tokenizer_group(&job.subject.text),
        [DEVICE_GROUP] = cli_device_group(&job.subject.compute),
    };
    struct cli_line line = {
        .command = "probe",
        .usage = "targets MODEL [FILE...] [OPTION...]",
        .about =
            "'targets' scores the same tokens, deep inside documents, with more and more context "
            "before them. The gain over a context of the training length says whether MODEL uses "
            "far text; the part of it that survives when the far text is swapped for that of "
            "another document does not come from what the text says.",
        .groups = groups,
        .count = GROUPS,
        .min_operands = 2,
        .max_operands = INT_MAX,
    };

    groups[TARGETS_GROUP].options = alibi_targets_options(&groups[TARGETS_GROUP].count);
    return cli_run(&line, argc, argv, run, &job);
}
