/* cmd_tokenize.c - learn a vocabulary, and convert text to token shards, or to ids and back */
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

struct job {
    bool train, print_ids, decode; /* none: shards */
    char *tokenizer, *end, *out;
    int64_t shard_tokens;
    bool json;
    struct alibi_vocabulary vocabulary;
    struct alibi_reading reading;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_TEXT("out", out, NULL, "PATH", "folder of the shards; with --train the file to write"),
    OPT_TEXT(
        "tokenizer", tokenizer, NULL, "PATH",
        "tokenizer.json, or a folder with one or with vocab.json and merges.txt; default: bytes"),
    OPT_TEXT("end", end, NULL, "TOKEN",
             "token that ends a document; default: the usual one, if the tokenizer has one"),
    OPT_FLAG("train", train, "learn a vocabulary and write it as a tokenizer.json"),
    OPT_FLAG("print-ids", print_ids, "print the ids instead, a document per line"),
    OPT_FLAG("decode", decode,
             "print the text of lines of ids, from plain files or standard input"),
    OPT_FLAG("json", json, "print the result as JSON"),
};

/* A shard costs a few syncs: tiny ones would take hours, and more of them than can be mapped. */
static const struct alibi_option shard_options[] = {
    OPT_INT("shard-tokens", shard_tokens, 10000, INT32_MAX, "100000000", "N",
            "tokens per shard, at least 10000; the last one gets the rest"),
};

enum { TASK, SHARDS, VOCABULARY, READING, GROUPS };

/* ---- checks */

static alibi_status check(const struct cli_line *line, const struct job *job)
{
    bool prints = job->print_ids || job->decode;

    if (job->train + job->print_ids + job->decode > 1)
        return cli_fail(ALIBI_USAGE,
                        "--train, --print-ids and --decode are different jobs; give one of them");
    if (job->train && job->tokenizer)
        return cli_fail(ALIBI_USAGE,
                        "--train makes a tokenizer and --tokenizer uses one; give one of them");
    if (job->end && !job->tokenizer)
        return cli_fail(ALIBI_USAGE, "--end names a token of a tokenizer; give --tokenizer too");
    if (!job->train && line->given[VOCABULARY])
        return cli_fail(ALIBI_USAGE,
                        "the options of a vocabulary, such as --vocab, go with --train");
    if ((job->train || prints) && line->given[SHARDS])
        return cli_fail(
            ALIBI_USAGE,
            "--shard-tokens is for shards; --train, --print-ids and --decode write none");
    if (job->decode && line->given[READING])
        return cli_fail(ALIBI_USAGE,
                        "--decode reads ids; options that say how text is read do not apply");
    if (prints && (job->out || job->json))
        return cli_fail(
            ALIBI_USAGE,
            "--print-ids and --decode print to standard output; --out and --json are not for them");
    if (!prints && !job->out)
        return cli_fail(ALIBI_USAGE, "no output; give --out %s", job->train ? "FILE" : "DIR");
    return job->train ? cli_check_new_file(job->out, "tokenizer.json") : ALIBI_OK;
}

struct input {
    const char *const *paths;
    int count;
};

static alibi_status choose_input(const struct cli_line *line, struct input *in)
{
    static const char *const standard_input[] = { "-" };

    *in = (struct input){ line->operands, line->operand_count };
    for (int i = 0; i < in->count; i++) { /* if --tokenizer was forgotten, the file is text */
        const char *slash = strrchr(in->paths[i], '/');

        if (strcmp(slash ? slash + 1 : in->paths[i], "tokenizer.json") == 0)
            cli_note("'%s' is read as text; a tokenizer is given with --tokenizer", in->paths[i]);
    }
    if (in->count > 0)
        return ALIBI_OK;
    if (isatty(STDIN_FILENO))
        return cli_fail(ALIBI_USAGE,
                        "no FILE, and standard input is a terminal; usage: alibi %s %s",
                        line->command, line->usage);
    *in = (struct input){ standard_input, 1 };
    return ALIBI_OK;
}

/* ---- --train */

static void print_vocabulary(const alibi_tokenizer *t, const struct job *job, double seconds)
{
    char time[CLI_SHORT], peak[CLI_SHORT];
    size_t bytes = alibi_memory_peak();
    long long vocab = alibi_tokenizer_vocab(t);

    cli_terminal_clear();
    if (!job->json) {
        printf("%s, %lld ids, in '%s'; %s, peak %s\n", alibi_tokenizer_type(t), vocab, job->out,
               cli_short_time(time, seconds), cli_short_bytes(peak, bytes));
        return;
    }
    cli_json_open(NULL, '{');
    cli_json_text("tokenizer", job->out);
    cli_json_text("type", alibi_tokenizer_type(t));
    cli_json_int("vocab", vocab);
    cli_json_real("seconds", seconds);
    cli_json_int("peak_bytes", (int64_t)bytes);
    cli_json_close('}');
}

static alibi_status learn(const struct job *job, const struct input *in)
{
    double start = cli_now();
    alibi_tokenizer *t = NULL;
    alibi_status status;

    alibi_memory_reset_peak();
    TRY(alibi_tokenizer_train(&t, &job->vocabulary, in->paths, in->count, &job->reading,
                              cli_call()));
    TRY(alibi_tokenizer_write(t, job->out));
    print_vocabulary(t, job, cli_now() - start);
out:
    alibi_tokenizer_free(t);
    return status;
}

/* ---- shards */

static void print_ratio(int width, double value)
{
    if (isfinite(value))
        printf(" %*.*f", width, value < 10 ? 3 : 1, value);
    else
        printf(" %*s", width, "-");
}

static void print_counts(const struct alibi_tokenize_result *r, const alibi_tokenizer *t,
                         const char *dir, double speed)
{
    char peak[CLI_SHORT];

    printf("%10s %12s %12s %14s %12s %12s\n", "documents", "tokens", "words", "bytes",
           "tokens/word", "bytes/token");
    printf("%10lld %12lld %12lld %14lld", (long long)r->documents, (long long)r->tokens,
           (long long)r->words, (long long)r->bytes);
    print_ratio(12, (double)r->tokens / (double)r->words);
    print_ratio(12, (double)r->bytes / (double)r->tokens);
    printf("\n%lld shard%s in '%s', tokenizer: %s, %lld ids; ", (long long)r->shards,
           r->shards == 1 ? "" : "s", dir, alibi_tokenizer_type(t),
           (long long)alibi_tokenizer_vocab(t));
    if (isfinite(speed))
        printf("%.1f MB/s, ", speed / 1e6);
    printf("peak %s\n", cli_short_bytes(peak, r->peak_bytes));
}

static void print_counts_json(const struct alibi_tokenize_result *r, const alibi_tokenizer *t,
                              const char *dir, double speed)
{
    cli_json_open(NULL, '{');
    cli_json_text("folder", dir);
    cli_json_text("tokenizer", alibi_tokenizer_type(t));
    cli_json_int("vocab", alibi_tokenizer_vocab(t));
    cli_json_int("documents", r->documents);
    cli_json_int("tokens", r->tokens);
    cli_json_int("words", r->words);
    cli_json_int("bytes", r->bytes);
    cli_json_real("tokens_per_word", (double)r->tokens / (double)r->words);
    cli_json_real("bytes_per_token", (double)r->bytes / (double)r->tokens);
    cli_json_int("shards", r->shards);
    cli_json_real("seconds", r->seconds);
    cli_json_real("bytes_per_s", speed);
    cli_json_int("peak_bytes", (int64_t)r->peak_bytes);
    cli_json_close('}');
}

static alibi_status write_shards(const alibi_tokenizer *t, const struct job *job,
                                 const struct input *in)
{
    struct alibi_tokenize_result result;
    /* If the folder exists, an earlier call may have done a part: then no speed is printed. */
    bool fresh = access(job->out, F_OK) != 0;
    double speed;

    cli_catch_signals();
    TRY_RETURN(alibi_tokenize(t, in->paths, in->count, &job->reading, job->shard_tokens, job->out,
                              &result, cli_call()));
    cli_terminal_clear();
    speed = fresh ? (double)result.bytes / result.seconds : NAN;
    (job->json ? print_counts_json : print_counts)(&result, t, job->out, speed);
    return ALIBI_OK;
}

/* ---- the run */

static alibi_status run(const struct cli_line *line, void *user)
{
    const struct job *job = user;
    alibi_tokenizer *t = NULL;
    struct input in;
    alibi_status status;

    TRY(check(line, job));
    TRY(choose_input(line, &in));
    if (!job->train)
        TRY(alibi_tokenizer_open(&t, job->tokenizer, job->end));
    if (job->train)
        TRY(learn(job, &in));
    else if (job->print_ids)
        TRY(alibi_tokenize_each(t, in.paths, in.count, &job->reading, cli_print_ids,
                                &(bool){ false }, cli_call()));
    else if (job->decode)
        TRY(cli_print_text(t, in.paths, in.count));
    else
        TRY(write_shards(t, job, &in));
out:
    alibi_tokenizer_free(t);
    return status;
}

alibi_status cmd_tokenize(int argc, char **argv)
{
    struct job job = { 0 };
    struct alibi_option_group groups[GROUPS] = {
        [TASK] = { "Tokenizing", options, CLI_COUNT(options), &job },
        [SHARDS] = { "The shards", shard_options, CLI_COUNT(shard_options), &job },
        [VOCABULARY] = { .title = "The vocabulary that --train learns", .values = &job.vocabulary },
        [READING] = cli_reading_group(&job.reading),
    };
    struct cli_line line = {
        .command = "tokenize",
        .usage = "[FILE...] --out PATH [OPTION...]",
        .about =
            "Converts text files, folders of them or standard input into token shards, which "
            "train, compare and eval read. With --train it learns a vocabulary instead. SIGINT or "
            "SIGTERM ends it with 75; the same command then resumes after the last complete shard.",
        .groups = groups,
        .count = GROUPS,
        .max_operands = INT_MAX,
    };

    groups[VOCABULARY].options = alibi_vocabulary_options(&groups[VOCABULARY].count);
    return cli_run(&line, argc, argv, run, &job);
}
