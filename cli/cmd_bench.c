/* cmd_bench.c - speed of a training step as a share of the matrix library's, and memory of long
 * evaluations
 *
 * Without a recipe and model options the cases below are measured: on a CPU the recipes of the same
 * names, on a GPU models with published step times, in the shapes of GPT-2 and of the paper, with a
 * vocabulary that is a multiple of 64. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct job {
    int64_t batch, length, repeats, vocab;
    struct alibi_int_list lengths, sequences;
    struct alibi_name_list methods, operations;
    bool json;
    double skip;
    struct alibi_bench_attention attention;
    int bias;   /* of attention: 0 alibi, 1 none */
    char *path; /* of a model whose layers' attention is timed; NULL: random numbers */
    struct alibi_config model;
    struct alibi_training training;
    struct cli_subject subject; /* without a path only its device */
    alibi_device *device;       /* the subject's */
};

/* The training group has no title and is not shown in help. It accepts the options of a recipe, of
 * which only the batch, the length and --recompute matter here. --recompute is also in a group of
 * its own, which is found first and shown. */
enum {
    BENCH_GROUP,
    STEP_GROUP,
    SKIP_GROUP,
    ATTENTION_GROUP,
    MODEL_GROUP,
    TRAINING_GROUP,
    SUBJECT_GROUP,
    READING_GROUP,
    BUILTIN_GROUP,
    TOKENIZER_GROUP,
    DEVICE_GROUP,
    GROUPS
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_INT("batch", batch, 1, 65536, NULL, "N", "train: windows per step; default: the recipe's"),
    OPT_INT("length", length, 1, CLI_LENGTH_MAX, NULL, "N",
            "train: tokens per window; decode: tokens before the first step; default: the recipe's "
            "train_length"),
    OPT_INTS("lengths", lengths, 1, CLI_LENGTH_MAX, "4096,16384,65536",
             "memory, attention: lengths to measure at; default for --model: its "
             "training length and 4 times that"),
    OPT_INTS("sequences", sequences, 1, 4096, "1,32",
             "decode: numbers of sequences to decode at once"),
    OPT_NAMES(
        "methods", methods, NULL,
        "train: compare these position methods: their steps alternate in one process, and each "
        "has its ratio to the first"),
    OPT_NAMES("operations", operations, NULL,
              "ops: only operations whose names begin with one of these"),
    OPT_INT("repeats", repeats, 1, 1000, "5", "N",
            "train, attention, decode, ops: number of measurements; the median is reported"),
    OPT_INT(
        "vocab", vocab, 0, 1 << 24, "0", "N",
        "vocabulary of the model; default: 257, all bytes; 50257 for the built-in gpt2-124m, and "
        "50304 for all that are built in for a GPU"),
    OPT_FLAG("json", json, "print the results as JSON"),
};

static const struct alibi_option skip_options[] = {
    OPT_REAL(
        "skip", skip, 0, 0.999, NULL, "X",
        "weight of keys that attention may skip, relative to the others; default for train: 0, every "
        "pair, because random weights do not show what a trained model skips; for attention: 2^-24. "
        "The skip of a recipe is ignored"),
};

static const struct alibi_option attention_options[] = {
    OPT_TEXT(
        "model", path, NULL, "MODEL",
        "time attention on the operands in each layer of MODEL on a text, not on random numbers"),
    OPT_INT("head-width", attention.head_width, 1, 4096, "64", "N", "numbers per head"),
    OPT_CHOICE("bias", bias, "alibi|none", "alibi", "bias on the scores"),
    OPT_REAL("score", attention.score, 0, 1e4, "10", "X",
             "approximate |q||k|/sqrt(d) of the random numbers"),
    OPT_FLAG_ON("backward", attention.backward, "time the backward pass too"),
    OPT_FLAG_ON("decode", attention.decode, "time the decoding of one token too"),
    OPT_FLAG("verify", attention.verify,
             "find the largest weight that was skipped, pair by pair in double precision"),
};

/* ---- cases */

struct setting {
    const char *name, *value;
};

static const struct setting gpt2_124m[] = {
    { "layers", "12" },
    { "width", "768" },
    { "heads", "12" },
    { "norm", "layernorm" },
    { "activation", "gelu-tanh" },
    { "biases", "true" },
    { "tied", "true" },
    { "embedding-scale", "1" },
    { "position", "learned" },
    { "max-length", "1024" },
    { NULL, NULL },
};

static const struct setting byte_10m[] = {
    { "layers", "6" },       { "width", "384" }, { "heads", "6" },
    { "position", "alibi" }, { NULL, NULL },
};

static const struct setting wikitext103[] = {
    { "layers", "16" },      { "width", "1024" }, { "heads", "8" },
    { "position", "alibi" }, { NULL, NULL },
};

static const struct setting billion[] = {
    { "layers", "25" },      { "width", "2048" }, { "heads", "16" },
    { "position", "alibi" }, { NULL, NULL },
};

struct bench_case {
    const char *name;
    const struct setting *settings; /* NULL: the options as they are */
    int64_t vocab, batch, length;
};

static const struct bench_case train_cases[] = {
    { "gpt2-124m", gpt2_124m, 50257, 4, 64 },
    { "byte-10m", byte_10m, 257, 4, 256 },
    { "byte-10m", byte_10m, 257, 1, 4096 },
};

static const struct bench_case gpu_train_cases[CLI_COUNT(train_cases)] = {
    { "gpt2-124m", gpt2_124m, 50304, 64, 1024 },
    { "wikitext103", wikitext103, 50304, 32, 1024 },
    { "1.3b", billion, 50304, 16, 1024 },
};

static const struct bench_case memory_cases[] = { { "byte-10m", byte_10m, 257, 1, 0 } };

/* The configuration of a case at a length. */
static alibi_status configure(const struct job *job, const struct bench_case *c, int64_t length,
                              struct alibi_config *config)
{
    struct alibi_option_group group = cli_model_group(config);

    *config = job->model;
    for (const struct setting *s = c->settings; s && s->name; s++)
        TRY_RETURN(alibi_options_set(&group, 1, s->name, s->value));
    config->vocab = job->vocab ? job->vocab : c->vocab;
    config->train_length = length;
    return alibi_config_resolve(config);
}

/* ---- bench train */

struct train_row {
    const char *name;
    struct alibi_config config;
    int64_t batch, length;
    struct alibi_bench_step step;
};

static int longest_first(const void *left, const void *right)
{
    const struct alibi_bench_part *a = left, *b = right;

    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

/* The share of a part in the sum of all parts. They were timed in a separate step, which took
 * slightly longer than a step without clocks. */
static double share_of_part(const struct alibi_bench_step *step, int i)
{
    double all = 0;

    for (int k = 0; k < step->parts; k++)
        all += step->part[k].seconds;
    return step->part[i].seconds / all;
}

/* Where the step's time goes, as far as the device tells. */
static void print_parts(const struct alibi_bench_step *step)
{
    for (int i = 0; i < step->parts; i++)
        printf("    %-32s %9.3f ms %5.1f%%\n", step->part[i].name, 1e3 * step->part[i].seconds,
               100 * share_of_part(step, i));
}

/* The readings of the GPU's meter, as far as available. */
static void print_meter(const struct alibi_bench_step *step)
{
    if (isfinite(step->step_joules))
        printf("    %-32s %9.1f J %7.0f W\n", "energy of a step", step->step_joules,
               step->step_joules / step->step_seconds);
    if (isfinite(step->clock_hertz))
        printf("    %-32s %9.0f MHz\n", "mean clock", step->clock_hertz / 1e6);
}

/* The head is printed with the first row, so that a benchmark that fails at once prints nothing. */
static void print_train_row(const struct train_row *row, const struct alibi_device_info *device,
                            bool first)
{
    const struct alibi_bench_step *step = &row->step;
    double unit = device->gpu ? 1e-3 : 1;
    char parameters[CLI_SHORT], peak[CLI_SHORT];

    if (first)
        printf("%-17s %6s %5s %6s %10s %8s %9s %8s %8s %8s %6s %10s\n", "recipe", "vocab", "batch",
               "length", "parameters", "step s", "tokens/s", device->gpu ? "TFLOP/s" : "GFLOP/s",
               "done", "products", "share", "peak");
    printf("%-17s %6lld %5lld %6lld %10s %8.4f %9.0f %8.1f %8.1f %8.1f %5.0f%% %10s\n", row->name,
           (long long)row->config.vocab, (long long)row->batch, (long long)row->length,
           cli_short_count(parameters, (double)step->parameters), step->step_seconds,
           step->tokens_per_s, unit * step->model_gflops, unit * step->step_gflops,
           unit * step->product_gflops, 100 * step->share, cli_short_bytes(peak, step->peak_bytes));
    print_meter(step);
    print_parts(step);
    cli_flush();
}

/* Device and model, in both benchmarks. */
static void print_model_json(const struct job *job, const char *name,
                             const struct alibi_config *config)
{
    struct alibi_config values = *config;
    struct alibi_option_group group = cli_model_group(&values);
    struct alibi_device_info device;

    alibi_device_get_info(job->device, &device);
    cli_json_text("recipe", name);
    cli_json_device(&device);
    cli_json_int("vocab", config->vocab);
    cli_json_options("model", &group);
}

static void print_parts_json(const struct alibi_bench_step *step)
{
    cli_json_open("parts", '[');
    for (int i = 0; i < step->parts; i++) {
        cli_json_open(NULL, '{');
        cli_json_text("name", step->part[i].name);
        cli_json_real("seconds", step->part[i].seconds);
        cli_json_real("share", share_of_part(step, i));
        cli_json_close('}');
    }
    cli_json_close(']');
}

static void print_train_json(const struct job *job, const struct train_row *row)
{
    cli_json_open(NULL, '{');
    print_model_json(job, row->name, &row->config);
    cli_json_int("batch", row->batch);
    cli_json_int("length", row->length);
    cli_json_text("recompute", cli_recompute_name(job->training.recompute));
    cli_json_real("skip", job->skip);
    cli_json_int("parameters", row->step.parameters);
    cli_json_real("step_seconds", row->step.step_seconds);
    cli_json_real("tokens_per_s", row->step.tokens_per_s);
    cli_json_real("model_gflops", row->step.model_gflops);
    cli_json_real("step_gflops", row->step.step_gflops);
    cli_json_real("product_gflops", row->step.product_gflops);
    cli_json_real("share", row->step.share);
    cli_json_real("step_joules", row->step.step_joules);
    cli_json_real("clock_hertz", row->step.clock_hertz);
    cli_json_int("peak_bytes", (int64_t)row->step.peak_bytes);
    print_parts_json(&row->step);
    cli_json_close('}');
}

/* ---- bench train --methods */

struct methods_row {
    const char *name;
    struct alibi_config config;
    int64_t batch, length;
    struct alibi_bench_method methods[ALIBI_LIST_MAX];
};

static void print_methods_row(const struct methods_row *row, int count, bool first)
{
    if (first)
        printf("%-17s %6s %5s %6s  %-12s %8s %9s %7s  %s\n", "recipe", "vocab", "batch", "length",
               "method", "step s", "tokens/s", "ratio", "quartiles");
    for (int i = 0; i < count; i++) {
        const struct alibi_bench_method *m = &row->methods[i];
        printf("%-17s %6lld %5lld %6lld  %-12s %8.4f %9.0f %7.4f  %.4f to %.4f\n", row->name,
               (long long)row->config.vocab, (long long)row->batch, (long long)row->length, m->name,
               m->step_seconds, m->tokens_per_s, m->ratio, m->ratio_low, m->ratio_high);
    }
    cli_flush();
}

static void print_methods_json(const struct job *job, const struct methods_row *row)
{
    cli_json_open(NULL, '{');
    print_model_json(job, row->name, &row->config);
    cli_json_int("batch", row->batch);
    cli_json_int("length", row->length);
    cli_json_text("recompute", cli_recompute_name(job->training.recompute));
    cli_json_real("skip", job->skip);
    cli_json_open("methods", '[');
    for (int i = 0; i < job->methods.count; i++) {
        const struct alibi_bench_method *m = &row->methods[i];
        cli_json_open(NULL, '{');
        cli_json_text("name", m->name);
        cli_json_real("step_seconds", m->step_seconds);
        cli_json_real("tokens_per_s", m->tokens_per_s);
        cli_json_real("ratio", m->ratio);
        cli_json_real("ratio_low", m->ratio_low);
        cli_json_real("ratio_high", m->ratio_high);
        cli_json_close('}');
    }
    cli_json_close(']');
    cli_json_close('}');
}

static alibi_status bench_methods(const struct job *job, const struct bench_case *cases, int count)
{
    struct methods_row rows[CLI_COUNT(train_cases)];

    for (int i = 0; i < count; i++) {
        struct methods_row *row = &rows[i];

        row->name = cases[i].name;
        row->batch = job->batch ? job->batch : cases[i].batch;
        row->length = job->length ? job->length : cases[i].length;
        TRY_RETURN(configure(job, &cases[i], row->length, &row->config));
        TRY_RETURN(alibi_bench_methods(job->device, &row->config, &job->methods, row->batch,
                                       row->length, job->repeats, job->training.recompute,
                                       job->skip, row->methods, cli_call()));
        if (!job->json)
            print_methods_row(row, job->methods.count, i == 0);
    }
    if (!job->json)
        return ALIBI_OK;
    cli_json_open(NULL, '[');
    for (int i = 0; i < count; i++)
        print_methods_json(job, &rows[i]);
    cli_json_close(']');
    return ALIBI_OK;
}

/* ---- bench train without --methods */

/* JSON is printed when all is measured, so that a failure leaves no half of it. */
static alibi_status bench_train(const struct job *job, const struct bench_case *cases, int count)
{
    struct train_row rows[CLI_COUNT(train_cases)];
    struct alibi_device_info device;

    if (job->methods.count > 0)
        return bench_methods(job, cases, count);
    alibi_device_get_info(job->device, &device);
    for (int i = 0; i < count; i++) {
        struct train_row *row = &rows[i];

        row->name = cases[i].name;
        row->batch = job->batch ? job->batch : cases[i].batch;
        row->length = job->length ? job->length : cases[i].length;
        TRY_RETURN(configure(job, &cases[i], row->length, &row->config));
        TRY_RETURN(alibi_bench_train(job->device, &row->config, row->batch, row->length,
                                     job->repeats, job->training.recompute, job->skip, &row->step,
                                     cli_call()));
        qsort(row->step.part, (size_t)row->step.parts, sizeof row->step.part[0], longest_first);
        if (!job->json)
            print_train_row(row, &device, i == 0);
    }
    if (!job->json)
        return ALIBI_OK;
    cli_json_open(NULL, '[');
    for (int i = 0; i < count; i++)
        print_train_json(job, &rows[i]);
    cli_json_close(']');
    return ALIBI_OK;
}

/* ---- bench memory */

struct memory_row {
    const char *name;
    struct alibi_config config;
    int64_t length;
    double seconds;
    size_t peak_bytes;
};

static void print_memory_row(const struct memory_row *row, bool first)
{
    char peak[CLI_SHORT];

    if (first)
        printf("%-17s %6s %8s %9s %9s %10s\n", "recipe", "vocab", "length", "seconds", "tokens/s",
               "peak");
    printf("%-17s %6lld %8lld %9.3f %9.0f %10s\n", row->name, (long long)row->config.vocab,
           (long long)row->length, row->seconds, (double)row->length / row->seconds,
           cli_short_bytes(peak, row->peak_bytes));
    cli_flush();
}

static void print_memory_json(const struct job *job, const struct memory_row *row)
{
    cli_json_open(NULL, '{');
    print_model_json(job, row->name, &row->config);
    cli_json_int("length", row->length);
    cli_json_real("seconds", row->seconds);
    cli_json_real("tokens_per_s", (double)row->length / row->seconds);
    cli_json_int("peak_bytes", (int64_t)row->peak_bytes);
    cli_json_close('}');
}

static alibi_status bench_memory(const struct job *job, const struct bench_case *cases, int count)
{
    struct memory_row rows[ALIBI_LIST_MAX];

    (void)count; /* one case, several lengths */
    if (job->lengths.count == 0)
        return cli_fail(ALIBI_USAGE, "--lengths is empty; give the lengths to evaluate at");
    for (int i = 0; i < job->lengths.count; i++) {
        struct memory_row *row = &rows[i];

        *row = (struct memory_row){ .name = cases[0].name, .length = job->lengths.at[i] };
        TRY_RETURN(configure(job, &cases[0], row->length, &row->config));
        TRY_RETURN(alibi_bench_eval(job->device, &row->config, row->length, &row->seconds,
                                    &row->peak_bytes, cli_call()));
        if (!job->json)
            print_memory_row(row, i == 0);
    }
    if (!job->json)
        return ALIBI_OK;
    cli_json_open(NULL, '[');
    for (int i = 0; i < job->lengths.count; i++)
        print_memory_json(job, &rows[i]);
    cli_json_close(']');
    return ALIBI_OK;
}

/* ---- bench attention */

static alibi_status bench_attention(const struct job *job, const struct bench_case *cases,
                                    int count)
{
    struct alibi_bench_attention how = job->attention;

    (void)count;
    how.batch = job->batch ? job->batch : 1;
    how.heads = cases ? job->model.heads : 12;
    how.kv_heads = cases && job->model.kv_heads ? job->model.kv_heads : how.heads;
    how.repeats = job->repeats;
    how.skip = job->skip;
    how.alibi = job->bias == 0;
    return cli_bench_attention(job->device, &how, &job->lengths, job->json);
}

static alibi_status bench_model_attention(const struct job *job, const struct bench_case *cases,
                                          int count)
{
    struct alibi_bench_attention how = job->attention;

    (void)cases;
    (void)count;
    how.batch = job->batch ? job->batch : 1;
    how.repeats = job->repeats;
    how.skip = job->skip;
    return cli_bench_model_attention(&job->subject, &how, &job->lengths, job->json);
}

/* ---- bench decode */

struct decode_row {
    struct alibi_config config;
    int64_t sequences, length;
    struct alibi_bench_decode result;
};

static alibi_status bench_decode(const struct job *job, const struct bench_case *cases, int count)
{
    struct decode_row rows[ALIBI_LIST_MAX];
    char peak[CLI_SHORT];

    (void)count; /* one case, several numbers of sequences */
    for (int i = 0; i < job->sequences.count; i++) {
        struct decode_row *row = &rows[i];
        struct alibi_bench_decode *r = &row->result;

        row->sequences = job->sequences.at[i];
        row->length = job->length ? job->length : cases[0].length ? cases[0].length : 256;
        TRY_RETURN(configure(job, &cases[0], row->length, &row->config));
        TRY_RETURN(alibi_bench_decode(job->device, &row->config, row->sequences, row->length,
                                      job->repeats, job->skip, r, cli_call()));
        if (job->json)
            continue;
        if (i == 0)
            printf("%-12s %6s %9s %7s %9s %9s %7s %10s\n", "recipe", "vocab", "sequences", "length",
                   "ms/step", "tokens/s", "ratio", "peak");
        printf("%-12s %6lld %9lld %7lld %9.3f %9.1f %7.2f %10s\n", cases[0].name,
               (long long)row->config.vocab, (long long)row->sequences, (long long)row->length,
               1e3 * r->step_seconds, r->tokens_per_s,
               r->tokens_per_s / rows[0].result.tokens_per_s, cli_short_bytes(peak, r->peak_bytes));
        cli_flush();
    }
    if (!job->json)
        return ALIBI_OK;
    cli_json_open(NULL, '[');
    for (int i = 0; i < job->sequences.count; i++) {
        cli_json_open(NULL, '{');
        print_model_json(job, cases[0].name, &rows[i].config);
        cli_json_int("sequences", rows[i].sequences);
        cli_json_int("length", rows[i].length);
        cli_json_real("step_seconds", rows[i].result.step_seconds);
        cli_json_real("tokens_per_s", rows[i].result.tokens_per_s);
        cli_json_int("peak_bytes", (int64_t)rows[i].result.peak_bytes);
        cli_json_close('}');
    }
    cli_json_close(']');
    return ALIBI_OK;
}

/* ---- bench ops */

static alibi_status bench_ops(const struct job *job, const struct bench_case *cases, int count)
{
    (void)cases;
    (void)count;
    return cli_bench_ops(job->device, &job->operations, job->repeats, job->json);
}

/* ---- the run */

static const struct bench {
    const char *name;
    alibi_status (*run)(const struct job *job, const struct bench_case *cases, int count);
    double skip; /* unless told otherwise */
    const struct bench_case *cases, *gpu_cases;
    int count;
} benches[] = {
    { "train", bench_train, 0, train_cases, gpu_train_cases, CLI_COUNT(train_cases) },
    { "memory", bench_memory, 0, memory_cases, memory_cases, CLI_COUNT(memory_cases) },
    { "attention", bench_attention, 0x1p-24, NULL, NULL, 0 },
    { "decode", bench_decode, 0x1p-24, memory_cases, memory_cases, CLI_COUNT(memory_cases) },
    { "ops", bench_ops, 0, NULL, NULL, 0 },
    { "attention --model", bench_model_attention, 0x1p-24, NULL, NULL, 0 },
};

/* Bits of the benchmarks, in the order of the table. */
enum { TRAIN = 1, MEMORY = 2, ATTENTION = 4, DECODE = 8, OPS = 16, LAYERS = 32, ALL = 63 };

/* The benchmarks on which an option has an effect. */
static unsigned benches_of(int group, const char *option)
{
    static const struct {
        const char *option;
        unsigned benches;
    } own[] = {
        { "batch", TRAIN | ATTENTION | LAYERS },
        { "length", TRAIN | DECODE },
        { "lengths", MEMORY | ATTENTION | LAYERS },
        { "sequences", DECODE },
        { "methods", TRAIN },
        { "operations", OPS },
        { "repeats", TRAIN | ATTENTION | DECODE | OPS | LAYERS },
        { "vocab", TRAIN | MEMORY | DECODE },
        { "heads", TRAIN | MEMORY | ATTENTION | DECODE },
        { "kv-heads", TRAIN | MEMORY | ATTENTION | DECODE },
        { "head-width", ATTENTION },
        { "bias", ATTENTION },
        { "score", ATTENTION },
        { "model", LAYERS },
    };
    static const unsigned groups[GROUPS] = {
        [BENCH_GROUP] = ALL,
        [STEP_GROUP] = TRAIN,
        [SKIP_GROUP] = TRAIN | ATTENTION | DECODE | LAYERS,
        [ATTENTION_GROUP] = ATTENTION | LAYERS,
        [MODEL_GROUP] = TRAIN | MEMORY | DECODE,
        [TRAINING_GROUP] = 0, /* for recipes */
        [SUBJECT_GROUP] = LAYERS,
        [READING_GROUP] = LAYERS,
        [BUILTIN_GROUP] = LAYERS,
        [TOKENIZER_GROUP] = LAYERS, /* which refuses it */
        [DEVICE_GROUP] = ALL,
    };

    for (int i = 0; i < CLI_COUNT(own); i++)
        if (strcmp(own[i].option, option) == 0)
            return own[i].benches;
    return groups[group];
}

/* Only options of the command line: a recipe may serve several benchmarks. */
static alibi_status refuse_unused(const struct cli_line *line, const struct bench *bench)
{
    for (int g = 0; g < line->count; g++) {
        for (int i = 0; i < line->groups[g].count; i++) {
            const char *option = line->groups[g].options[i].name;
            unsigned users = benches_of(g, option);
            char names[128] = "";

            if (!(line->given[g] >> i & 1) || users >> (bench - benches) & 1)
                continue;
            if (users == 0)
                return cli_fail(ALIBI_USAGE, "--%s has no effect on a benchmark%s", option,
                                strcmp(option, "train-length") == 0 ? "; use --length" : "");
            for (int b = 0; b < CLI_COUNT(benches); b++) {
                size_t used = strlen(names);
                if (users >> b & 1)
                    snprintf(names + used, sizeof names - used, "%s'%s'", used ? ", " : "",
                             benches[b].name);
            }
            return cli_fail(ALIBI_USAGE, "--%s has no effect on '%s'; it is for %s", option,
                            bench->name, names);
        }
    }
    return ALIBI_OK;
}

static const struct bench *find_bench(const char *name, bool of_model)
{
    const struct bench *last = &benches[CLI_COUNT(benches) - 1];

    if (of_model && strcmp(name, "attention") == 0)
        return last;
    for (const struct bench *b = benches; b < last; b++) {
        if (strcmp(b->name, name) == 0)
            return b;
    }
    return NULL;
}

static const struct bench_case *built_in_cases(const struct job *job, const struct bench *bench)
{
    struct alibi_device_info device;

    alibi_device_get_info(job->device, &device);
    return device.gpu ? bench->gpu_cases : bench->cases;
}

/* A model and its text on a device, or the device alone. */
static alibi_status open_subject(struct job *job, const struct cli_line *line)
{
    struct cli_subject *s = &job->subject;

    if (!job->path && line->operand_count > 1)
        return cli_fail(ALIBI_USAGE, "'%s' is one argument too many; a text is for '%s'",
                        line->operands[1], benches[CLI_COUNT(benches) - 1].name);
    if (!job->path)
        return alibi_device_open(&s->device, &s->compute, cli_call());
    if (line->recipe)
        return cli_fail(
            ALIBI_USAGE,
            "--recipe has no effect with --model, which has options of its own; omit one");
    s->path = job->path;
    TRY_RETURN(cli_subject_open_model(s, line, 1));
    return cli_subject_open_text(s, line, BUILTIN_GROUP);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    const struct bench *bench = find_bench(line->operands[0], job->path);
    bool own = line->recipe || line->given[MODEL_GROUP];
    char name[32];
    struct bench_case own_case = { name, NULL, 257, job->training.batch,
                                   job->training.train_length };
    alibi_status status;

    if (!bench)
        return cli_fail(ALIBI_USAGE,
                        "no benchmark '%s'; there are 'train', 'memory', 'attention', 'decode' and "
                        "'ops'",
                        line->operands[0]);
    TRY_RETURN(refuse_unused(line, bench));
    if (!line->given[SKIP_GROUP])
        job->skip = bench->skip;
    if (job->path && !cli_is_given(line, BENCH_GROUP, "lengths"))
        job->lengths.count = 0;
    cli_name_recipe(line->recipe, name, sizeof name);
    TRY(open_subject(job, line));
    job->device = job->subject.device;
    TRY(bench->run(job, own ? &own_case : built_in_cases(job, bench), own ? 1 : bench->count));
out:
    cli_subject_close(&job->subject);
    return status;
}

alibi_status cmd_bench(int argc, char **argv)
{
    struct cli_table model;
    struct job job = { 0 };
    struct alibi_option_group groups[GROUPS] = {
        [BENCH_GROUP] = { "Benchmark", options, CLI_COUNT(options), &job },
        [STEP_GROUP] = { .title = "Training step", .values = &job.training },
        [SKIP_GROUP] = { "Skipping", skip_options, CLI_COUNT(skip_options), &job },
        [ATTENTION_GROUP] = { "Attention", attention_options, CLI_COUNT(attention_options), &job },
        [MODEL_GROUP] = cli_model_group(&job.model),
        [TRAINING_GROUP] = cli_training_group(&job.training),
        [SUBJECT_GROUP] = cli_subject_group(&job.subject),
        [READING_GROUP] = cli_reading_group(&job.subject.text.reading),
        [BUILTIN_GROUP] = cli_builtin_group(&job.subject.text.builtin),
        [TOKENIZER_GROUP] = cli_no_tokenizer_group(&job.subject.text),
        [DEVICE_GROUP] = cli_device_group(&job.subject.compute),
    };
    struct cli_line line = {
        .command = "bench",
        .usage = "train|memory|attention|decode|ops [FILE...] [OPTION...]",
        .about =
            "'train' measures a training step and compares its rate with what the device's matrix "
            "library reaches on the same products alone; on a GPU it also prints where the time "
            "goes. 'memory' evaluates one window at growing lengths and prints time and peak "
            "memory. 'attention' times attention alone on random numbers, with 12 heads unless "
            "--heads says otherwise; with --model it uses the operands in the layers of a model on "
            "FILE, and alternates with skip 0, because random numbers do not show what a trained "
            "model skips. 'decode' times steps that append a token to each of several sequences of "
            "different lengths. 'ops' times every operation alone. Without a recipe or model "
            "options 'train' measures gpt2-124m and byte-10m, on a GPU gpt2-124m and the shapes of "
            "the paper's models; 'memory' and 'decode' measure byte-10m. A recipe has no "
            "vocabulary: give --vocab, or the model has the 257 tokens of bytes.",
        .groups = groups,
        .count = GROUPS,
        .min_operands = 1,
        .max_operands = INT_MAX,
    };

    TRY_RETURN(cli_table_copy(&model, &groups[MODEL_GROUP]));
    cli_table_drop(&model, "vocab"); /* here an option of the benchmark */
    groups[STEP_GROUP].options = alibi_options_find(&groups[TRAINING_GROUP], 1, "recompute", NULL);
    groups[STEP_GROUP].count = 1;
    groups[TRAINING_GROUP].title = NULL;
    return cli_run(&line, argc, argv, run, &job);
}
