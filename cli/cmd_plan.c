/* cmd_plan.c - the device memory that training needs, computed before anything is allocated
 *
 * The table has a column per level of recomputation. The exit code is about the chosen level. */
#include <math.h>

#include "cli.h"

struct job {
    double gpu_memory, link_gbps, pass_seconds, gpu_tflops;
    int64_t gpus;
    bool json;
    struct alibi_config model;
    struct alibi_training training;
    struct alibi_compute compute;
    alibi_device *device; /* NULL: planned for a GPU elsewhere */
    bool time;
    double step_seconds; /* measured with --time */
    bool assumes;        /* the time of a pass */
};

enum { PLAN, DEVICE, MODEL, TRAINING, GROUPS };

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_REAL("gpu-memory", gpu_memory, 0, 1e6, "0", "GIB",
             "plan for any GPU with this much free memory, in bf16; 0: plan for the device in use"),
    OPT_INT("gpus", gpus, 1, 512, "1", "N",
            "plan for this many GPUs, whose processes divide the passes of a step, and for the "
            "communication between them"),
    OPT_REAL("link-gbps", link_gbps, 1e-3, 1e6, "400", "X",
             "gpus: Gbit/s that each can send and receive at the same time"),
    OPT_REAL(
        "pass-seconds", pass_seconds, 0, 1e6, "0", "X",
        "gpus: seconds per pass on one of them, from `alibi bench train`; 0: measured with --time, "
        "or assumed by --gpu-tflops"),
    OPT_REAL("gpu-tflops", gpu_tflops, 1e-3, 1e6, "400", "X",
             "gpus: TFLOP/s of one of them, by which the time of a pass is assumed that was not "
             "measured: 6 P + 6 N L C operations per token, as in `alibi bench train`"),
    OPT_FLAG("time", time,
             "measure a few steps on this device, and print how long the training takes"),
    OPT_FLAG("json", json, "print the plan as JSON"),
};

enum { PASSES_MAX = 1 << 16 }; /* what --accumulate allows */
enum { BYTES_VOCAB = 257 };    /* of the tokenizer of bytes, the default */
enum { LEVELS = ALIBI_RECOMPUTE_BLOCK + 1 };

static const double GIB = 1 << 30;

/* The plans take the options as requested: derived values are derived again for each length that is
 * tried. */
static alibi_status make_plans(struct job *job, struct alibi_plan plans[LEVELS])
{
    struct alibi_training training = job->training;

    if (job->model.vocab == 0)
        job->model.vocab = BYTES_VOCAB;
    for (int level = 0; level < LEVELS; level++) {
        training.recompute = level;
        if (job->gpu_memory > 0)
            TRY_RETURN(alibi_plan_gpu(&job->model, &training, job->gpus,
                                      (size_t)(job->gpu_memory * GIB),
                                      (enum alibi_autotune)job->compute.autotune, &plans[level]));
        else
            TRY_RETURN(
                alibi_plan_training(job->device, &job->model, &training, job->gpus, &plans[level]));
    }
    job->model.train_length = training.train_length;
    return alibi_config_resolve(&job->model);
}

/* The device that is planned for. */
static struct alibi_device_info device_of(const struct job *job)
{
    struct alibi_device_info device = { .name = "a GPU", .gpu = true, .precision = ALIBI_BF16 };

    if (job->device)
        alibi_device_get_info(job->device, &device);
    return device;
}

/* ---- the table */

static const struct {
    const char *name, *key;
    size_t offset; /* of a size_t in struct alibi_plan */
} sizes[] = {
    { "weights", "weights_bytes", offsetof(struct alibi_plan, weights) },
    { "gradients", "gradients_bytes", offsetof(struct alibi_plan, gradients) },
    { "optimizer", "optimizer_bytes", offsetof(struct alibi_plan, optimizer) },
    { "activations kept", "activations_bytes", offsetof(struct alibi_plan, activations) },
    { "passing", "passing_bytes", offsetof(struct alibi_plan, passing) },
    { "workspace", "workspace_bytes", offsetof(struct alibi_plan, workspace) },
    { "validation", "validation_bytes", offsetof(struct alibi_plan, validation) },
    { "total", "total_bytes", offsetof(struct alibi_plan, total) },
};

static size_t size_at(const struct alibi_plan *plan, size_t offset)
{
    return *(const size_t *)(const void *)((const char *)plan + offset);
}

static void print_limits(const char *name, const struct alibi_plan plans[LEVELS], size_t offset)
{
    printf("%-18s", name);
    for (int level = 0; level < LEVELS; level++) {
        int64_t limit = *(const int64_t *)(const void *)((const char *)&plans[level] + offset);

        if (limit > 0)
            printf(" %12lld", (long long)limit);
        else
            printf(" %12s", limit < 0 ? "-" : "none"); /* not known */
    }
    putchar('\n');
}

static void print_table(const struct job *job, const char *name,
                        const struct alibi_plan plans[LEVELS])
{
    char number[CLI_SHORT];
    struct alibi_device_info device = device_of(job);

    printf("%s: %s parameters, batch %lld x %lld tokens, %s on %s\n\n%-18s", name,
           cli_short_count(number, (double)plans[0].parameters), (long long)plans[0].batch,
           (long long)plans[0].length, alibi_precision_name(device.precision), device.name,
           "recompute");
    for (int level = 0; level < LEVELS; level++) {
        snprintf(number, sizeof number, "%s%s", level == job->training.recompute ? "*" : "",
                 cli_recompute_name(level));
        printf(" %12s", number);
    }
    putchar('\n');
    for (int i = 0; i < CLI_COUNT(sizes); i++) {
        printf("%-18s", sizes[i].name);
        for (int level = 0; level < LEVELS; level++)
            printf(" %12s", cli_short_bytes(number, size_at(&plans[level], sizes[i].offset)));
        putchar('\n');
    }
    printf("%-18s", "free");
    for (int level = 0; level < LEVELS; level++) /* 0: not known */
        printf(" %12s",
               plans[level].available > 0 ? cli_short_bytes(number, plans[level].available) : "-");
    putchar('\n');
    print_limits("largest batch", plans, offsetof(struct alibi_plan, largest_batch));
    print_limits("longest input", plans, offsetof(struct alibi_plan, longest_input));
}

/* ---- JSON: unknown values are null */

static void print_fits(const struct alibi_plan *plan)
{
    if (plan->available)
        cli_json_flag("fits", plan->fits);
    else
        cli_json_real("fits", (double)NAN);
}

static void print_plan_json(const struct alibi_plan *plan, int level)
{
    cli_json_open(NULL, '{');
    cli_json_text("recompute", cli_recompute_name(level));
    for (int i = 0; i < CLI_COUNT(sizes); i++)
        cli_json_int(sizes[i].key, (int64_t)size_at(plan, sizes[i].offset));
    print_fits(plan);
    cli_json_real("largest_batch",
                  plan->largest_batch < 0 ? (double)NAN : (double)plan->largest_batch);
    cli_json_real("longest_input",
                  plan->longest_input < 0 ? (double)NAN : (double)plan->longest_input);
    cli_json_close('}');
}

static void print_cluster_json(const struct job *job, const struct alibi_cluster_plan *c)
{
    double pass = (c->step_seconds - c->exchange_seconds) / (double)c->passes;

    cli_json_open("cluster", '{');
    cli_json_int("gpus", job->gpus);
    cli_json_real("link_gbps", job->link_gbps);
    cli_json_int("accumulate", job->training.accumulate);
    cli_json_int("passes", c->passes);
    cli_json_real("pass_seconds", c->step_seconds > 0 ? pass : (double)NAN);
    cli_json_flag("pass_assumed", job->assumes);
    cli_json_int("exchanges", c->exchanges);
    cli_json_real("sent_bytes", c->bytes);
    cli_json_real("exchange_seconds", c->exchange_seconds);
    cli_json_real("step_seconds", c->step_seconds > 0 ? c->step_seconds : (double)NAN);
    cli_json_real("tokens_per_s", c->step_seconds > 0 ? c->tokens_per_s : (double)NAN);
    cli_json_real("share_of_linear", c->step_seconds > 0 ? c->share : (double)NAN);
    cli_json_close('}');
}

static void print_json(const struct job *job, const char *name,
                       const struct alibi_plan plans[LEVELS],
                       const struct alibi_cluster_plan *cluster)
{
    struct alibi_config model = job->model;
    struct alibi_option_group group = cli_model_group(&model);
    struct alibi_device_info device = device_of(job);

    cli_json_open(NULL, '{');
    cli_json_text("recipe", name);
    cli_json_device(&device);
    cli_json_int("vocab", model.vocab);
    cli_json_options("model", &group);
    cli_json_int("parameters", plans[0].parameters);
    cli_json_int("batch", plans[0].batch);
    cli_json_int("length", plans[0].length);
    cli_json_real("available_bytes", plans[0].available ? (double)plans[0].available : (double)NAN);
    cli_json_text("recompute", cli_recompute_name(job->training.recompute));
    print_fits(&plans[job->training.recompute]);
    cli_json_real("step_seconds", job->step_seconds > 0 ? job->step_seconds : (double)NAN);
    cli_json_open("plans", '[');
    for (int level = 0; level < LEVELS; level++)
        print_plan_json(&plans[level], level);
    cli_json_close(']');
    if (job->gpus > 1)
        print_cluster_json(job, cluster);
    cli_json_close('}');
}

/* ---- several GPUs */

static void print_cluster(const struct job *job, size_t weight_bytes,
                          const struct alibi_cluster_plan *c)
{
    char bytes[CLI_SHORT], speed[CLI_SHORT], time[CLI_SHORT];

    printf("\n%lld GPUs, above for each of them. In a step each sends and receives %s: (N - 1) / N "
           "of the\nparameters, ",
           (long long)job->gpus, cli_short_bytes(bytes, (size_t)c->bytes));
    if (c->exchanges > 1)
        printf("%lld times ", (long long)c->exchanges);
    printf("as gradients of %d bytes and once as weights of %zu; %.3g s at %g Gbit/s.\n",
           job->training.wire == ALIBI_WIRE_BF16 ? 2 : 4, weight_bytes, c->exchange_seconds,
           job->link_gbps);
    if (c->step_seconds > 0)
        printf("A step is %lld x %.3g s of passes + the exchange = %.3g s: %s tokens/s, %.0f%% of "
               "%lld times one GPU;\n%s for %lld steps\n",
               (long long)c->passes, (c->step_seconds - c->exchange_seconds) / (double)c->passes,
               c->step_seconds, cli_short_count(speed, c->tokens_per_s), 100 * c->share,
               (long long)job->gpus,
               cli_short_time(time, c->step_seconds * (double)job->training.steps),
               (long long)job->training.steps);
    else
        printf("Give --pass-seconds, or --time on such a GPU, to know the time of a step.\n");
    if (job->assumes)
        printf("The pass was not measured: it is assumed to compute 6 P + 6 N L C operations per "
               "token at\n%g TFLOP/s (--gpu-tflops). Small models are far slower than that; "
               "--pass-seconds takes the time\nthat `alibi bench train` measures.\n",
               job->gpu_tflops);
}

/* The time of a pass as given, as measured, or, on a GPU, as assumed; 0: not known. */
static double pass_seconds(struct job *job, const struct alibi_plan *plan)
{
    const struct alibi_config *c = &job->model;
    double length = (double)plan->length;

    if (job->pass_seconds > 0)
        return job->pass_seconds;
    job->assumes = job->gpus > 1 && job->step_seconds == 0 && device_of(job).gpu;
    if (!job->assumes)
        return job->step_seconds / (double)job->training.accumulate;
    return (double)plan->batch * length *
           (6 * (double)plan->parameters + 6 * (double)(c->layers * c->width) * length) /
           (job->gpu_tflops * 1e12);
}

/* Nothing is trained here, so a step that the GPUs cannot divide is planned as the nearest one that
 * they can: with the same number of windows, in passes of at most the same batch, if that is
 * possible; otherwise with more passes. The time of a pass is assumed to be proportional to its
 * windows. */
static void divide_passes(struct job *job)
{
    struct alibi_training *t = &job->training;
    int64_t windows = t->batch * t->accumulate, most = t->batch, passes = job->gpus;

    if (t->accumulate % job->gpus == 0)
        return;
    while (passes <= PASSES_MAX && (windows % passes != 0 || windows / passes > t->batch))
        passes += job->gpus;
    if (passes <= PASSES_MAX)
        t->batch = windows / passes;
    else
        passes = (t->accumulate / job->gpus + 1) * job->gpus;
    if (passes > PASSES_MAX)
        return; /* the plan says what is wrong */
    cli_note("%lld GPUs cannot divide a step of %lld x %lld windows: planned with --batch %lld "
             "--accumulate %lld%s",
             (long long)job->gpus, (long long)t->accumulate, (long long)most, (long long)t->batch,
             (long long)passes,
             t->batch * passes == windows ? ", as many windows" : ", a step of more windows");
    t->accumulate = passes;
    job->pass_seconds *= (double)t->batch / (double)most;
}

/* ---- the run */

/* Options that say nothing about one GPU, which reads no network. */
static alibi_status check_several(const struct job *job, const struct cli_line *line)
{
    static const char *const of_several[] = { "link-gbps", "pass-seconds", "gpu-tflops" };

    for (int i = 0; i < CLI_COUNT(of_several); i++)
        if (job->gpus == 1 && cli_is_given(line, PLAN, of_several[i]))
            return cli_fail(ALIBI_USAGE, "--%s is for several GPUs; give their number with --gpus",
                            of_several[i]);
    return ALIBI_OK;
}

static alibi_status measure_time(struct job *job)
{
    const struct alibi_training *t = &job->training;
    struct alibi_bench_step step;

    if (!job->device)
        return cli_fail(ALIBI_USAGE, "--time needs the device itself; omit --gpu-memory");
    TRY_RETURN(alibi_bench_train(job->device, &job->model, t->batch, t->train_length, 3,
                                 t->recompute, t->skip, &step, cli_call()));
    job->step_seconds = step.step_seconds * (double)t->accumulate;
    return ALIBI_OK;
}

/* Several GPUs, none of which has room for any batch, may have it if they shard the gradients. */
static alibi_status try_shards(const struct job *job, char *way_out, size_t size)
{
    struct job other = *job;
    struct alibi_plan plans[LEVELS];

    other.training.shard = ALIBI_SHARD_GRADIENTS;
    TRY_RETURN(make_plans(&other, plans));
    if (plans[LEVELS - 1].largest_batch > 0)
        snprintf(way_out, size, "--shard gradients --recompute block --batch %lld fits",
                 (long long)plans[LEVELS - 1].largest_batch);
    for (int level = LEVELS - 1; level >= job->training.recompute; level--) {
        if (plans[level].fits)
            snprintf(way_out, size, "--shard gradients%s%s fits",
                     level > job->training.recompute ? " --recompute " : "",
                     level > job->training.recompute ? cli_recompute_name(level) : "");
    }
    return ALIBI_OK;
}

/* The error names the cheapest change that fits: the lowest level of recomputation, else a smaller
 * batch, else sharded gradients. */
static alibi_status say_whether_it_fits(const struct job *job,
                                        const struct alibi_plan plans[LEVELS])
{
    const struct alibi_plan *plan = &plans[job->training.recompute], *least = &plans[LEVELS - 1];
    char total[CLI_SHORT], available[CLI_SHORT], way_out[128] = "no batch of that length fits";

    if (plan->fits)
        return ALIBI_OK;
    for (int level = LEVELS - 1; level > job->training.recompute; level--) {
        if (plans[level].fits)
            snprintf(way_out, sizeof way_out, "--recompute %s fits", cli_recompute_name(level));
    }
    if (!least->fits && least->largest_batch > 0)
        snprintf(way_out, sizeof way_out, "%s--batch %lld fits",
                 plan == least ? "" : "--recompute block ", (long long)least->largest_batch);
    else if (!least->fits && job->gpus > 1 && job->training.shard != ALIBI_SHARD_GRADIENTS)
        TRY_RETURN(try_shards(job, way_out, sizeof way_out));
    return cli_fail(ALIBI_MEMORY, "batch %lld x %lld needs %s, and the device has %s free: %s",
                    (long long)plan->batch, (long long)plan->length,
                    cli_short_bytes(total, plan->total),
                    cli_short_bytes(available, plan->available), way_out);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    struct alibi_plan plans[LEVELS];
    struct alibi_cluster_plan cluster;
    const struct alibi_training *t = &job->training;
    char name[32], time[CLI_SHORT];
    alibi_status status;

    TRY_RETURN(check_several(job, line));
    divide_passes(job);
    if (job->gpu_memory == 0)
        TRY(alibi_device_open(&job->device, &job->compute, cli_call()));
    TRY(make_plans(job, plans));
    if (job->time && plans[t->recompute].fits)
        TRY(measure_time(job));
    TRY(alibi_plan_cluster(&plans[t->recompute], t, job->gpus, job->link_gbps,
                           pass_seconds(job, &plans[t->recompute]), &cluster));
    cli_terminal_clear();
    cli_name_recipe(line->recipe, name, sizeof name);
    if (job->json)
        print_json(job, name, plans, &cluster);
    else
        print_table(job, name, plans);
    if (!job->json && job->gpus > 1)
        print_cluster(job, plans[t->recompute].weight_bytes, &cluster);
    else if (!job->json && job->step_seconds > 0)
        printf("\n%.3g s per step, %s for %lld steps\n", job->step_seconds,
               cli_short_time(time, job->step_seconds * (double)t->steps), (long long)t->steps);
    TRY(say_whether_it_fits(job, plans));
out:
    alibi_device_free(job->device);
    return status;
}

alibi_status cmd_plan(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[GROUPS] = {
        [PLAN] = { "Plan", options, CLI_COUNT(options), &job },
        [DEVICE] = cli_device_group(&job.compute),
        [MODEL] = cli_model_group(&job.model),
        [TRAINING] = cli_training_group(&job.training),
    };
    struct cli_line line = {
        .command = "plan",
        .usage = "[OPTION...]",
        .about =
            "Prints how much device memory training needs at each level of --recompute (a star "
            "marks the chosen one), and the largest batch and the longest input that fit. Nothing "
            "is allocated. Exits with 4 if the training does not fit. --gpu-memory plans for a GPU "
            "of another machine, --gpus for several that train together.",
        .groups = groups,
        .count = CLI_COUNT(groups),
    };

    return cli_run(&line, argc, argv, run, &job);
}
