/* cmd_eval.c - a model's perplexity at one or more lengths */
#include <limits.h>
#include <math.h>

#include "cli.h"

struct job {
    int64_t length;
    struct alibi_int_list lengths;
    int protocol;
    int64_t stride, window, tokens, block;
    bool contiguous, split_windows;
    double skip, window_score;
    bool verify, by_position, json;
    struct cli_subject subject;
};

#define AT(field) offsetof(struct job, field)

static const struct alibi_option options[] = {
    OPT_INT("length", length, 1, CLI_LENGTH_MAX, NULL, "N",
            "longest context, in tokens; default: the length the model was trained at"),
    OPT_INTS("lengths", lengths, 1, CLI_LENGTH_MAX, NULL, "several lengths, a row each"),
    OPT_CHOICE(
        "protocol", protocol, "nonoverlapping|sliding|stream|stride|llama.cpp|rolling",
        "nonoverlapping",
        "adjacent windows; windows that advance by the stride and score only the new tokens; "
        "one pass in which every token has all earlier tokens as context; or as other programs do: "
        "Hugging Face's guide, llama.cpp, lm-evaluation-harness"),
    OPT_INT("stride", stride, 1, CLI_LENGTH_MAX, NULL, "N",
            "sliding, stride: tokens by which windows advance; default: half the length"),
    OPT_INT(
        "window", window, 0, CLI_LENGTH_MAX, "0", "N",
        "cut attention: in every layer a token sees only the last N tokens, including itself; 0: "
        "all"),
    OPT_INT("tokens", tokens, 0, CLI_UNBOUNDED, "0", "N",
            "score at most this many, in blocks spread over the whole split; 0: all"),
    OPT_INT("block", block, 1, CLI_LENGTH_MAX, NULL, "N",
            "consecutive tokens in such a block; default: the longest length"),
    OPT_FLAG("contiguous", contiguous,
             "score the first tokens of the split instead, in one block, as a stream does"),
    OPT_REAL("skip", skip, 0, 0.999, CLI_SKIP_DEFAULT, "X",
             "weight of keys that attention may skip, relative to the others; 0: none"),
    OPT_FLAG("verify", verify,
             "compute the largest weight that was skipped, pair by pair in double precision; slow"),
    OPT_REAL("window-score", window_score, 0, 1e6, "0", "X",
             "stream: evict keys that no query can reach with scores up to X, which bounds memory; "
             "0: evict none"),
    OPT_FLAG(
        "split-windows", split_windows,
        "several processes: divide each window among them, for windows too long for one device"),
    OPT_FLAG("by-position", by_position, "also print the loss by position in the window"),
    OPT_FLAG("json", json, "print the results as JSON"),
};

enum { BUILTIN_GROUP = 3 }; /* of the groups of cmd_eval() */

/* ---- the request */

static alibi_status choose_lengths(const struct job *job, const alibi_model *model,
                                   struct alibi_int_list *out)
{
    int64_t trained = alibi_model_view_config(model)->train_length;

    if (job->protocol == ALIBI_STREAM && (job->length || job->lengths.count))
        return cli_fail(
            ALIBI_USAGE,
            "--protocol stream has no length: every token has all earlier tokens as context; omit "
            "--length and --lengths");
    if (job->length && job->lengths.count)
        return cli_fail(ALIBI_USAGE, "--length and --lengths exclude each other; give one of them");
    *out = job->lengths;
    if (out->count)
        return ALIBI_OK;
    out->count = 1;
    out->at[0] = job->length ? job->length : trained;
    if (out->at[0] == 0 && job->protocol != ALIBI_STREAM)
        return cli_fail(ALIBI_USAGE,
                        "the model does not record its training length; give --length");
    return ALIBI_OK;
}

static int64_t longest(const struct alibi_int_list *lengths)
{
    int64_t most = 0;

    for (int i = 0; i < lengths->count; i++)
        most = lengths->at[i] > most ? lengths->at[i] : most;
    return most;
}

/* Blocks are the same for every length. */
static struct alibi_eval one_length(const struct job *job, int64_t length, int64_t most)
{
    struct alibi_eval eval = {
        .length = length,
        .protocol = job->protocol,
        .tokens = job->tokens,
        .block = job->block ? job->block : most,
        .contiguous = job->contiguous,
        .verify = job->verify,
        .window_score = job->window_score,
        .window = job->window,
        .split_windows = job->split_windows,
    };

    if (alibi_protocol_view(job->protocol)->strided)
        eval.stride = job->stride ? job->stride : (length + 1) / 2;
    return eval;
}

/* Checks everything that does not depend on the text, before it is read. */
static alibi_status check_request(const struct job *job, const alibi_model *model,
                                  struct alibi_int_list *lengths)
{
    TRY_RETURN(choose_lengths(job, model, lengths));
    if (job->stride && !alibi_protocol_view(job->protocol)->strided)
        return cli_fail(ALIBI_USAGE, "--stride has no effect without --protocol sliding or stride");
    if ((job->block || job->contiguous) && !job->tokens)
        return cli_fail(ALIBI_USAGE, "--%s has no effect without --tokens",
                        job->block ? "block" : "contiguous");
    if (job->block && (job->contiguous || job->protocol >= ALIBI_STREAM))
        return cli_fail(ALIBI_USAGE, "--block has no effect with %s%s, which scores one block",
                        job->contiguous ? "--contiguous" : "--protocol ",
                        job->contiguous ? "" : alibi_protocol_view(job->protocol)->name);
    for (int i = 0; i < lengths->count; i++) {
        if (job->stride > lengths->at[i])
            return cli_fail(ALIBI_USAGE, "stride %lld is more than length %lld; give at most that",
                            (long long)job->stride, (long long)lengths->at[i]);
        if (job->block && job->block < lengths->at[i])
            return cli_fail(ALIBI_USAGE, "block %lld is less than length %lld; give at least that",
                            (long long)job->block, (long long)lengths->at[i]);
    }
    for (int i = 0; i < lengths->count; i++) {
        struct alibi_eval eval = one_length(job, lengths->at[i], longest(lengths));

        TRY_RETURN(alibi_eval_check(model, &eval, cli_call()));
    }
    return ALIBI_OK;
}

/* ---- the output */

/* several: there are several lengths, and a column for the change between them. */
static void print_head(const struct alibi_eval_result *r, const struct job *job, bool several)
{
    const struct cli_subject *s = &job->subject;
    const struct alibi_protocol_info *protocol = alibi_protocol_view(r->protocol);
    char scored[4 * CLI_SHORT];

    alibi_eval_describe(r, scored, sizeof scored);
    printf("%s, split %s of '%s': %s\n", protocol->name, cli_subject_split_name(s), s->info.name,
           scored);
    printf("first tokens: %s; nll per: %s\n", protocol->first_tokens, protocol->normaliser);
    if (r->window > 0)
        printf("attention is cut to the last %lld tokens\n", (long long)r->window);
    printf("%8s", "length");
    if (alibi_protocol_view(r->protocol)->strided)
        printf(" %8s", "stride");
    printf(" %10s %12s %9s %9s %8s", "token ppl", "word ppl", "bits/byte", "nll", "error");
    if (several)
        printf(" %15s", "change");
    printf(" %10s %9s %6s", "tokens", "tokens/s", "tiles");
    if (job->split_windows)
        printf(" %6s", "sent");
    if (job->verify)
        printf(" %9s", "skipped");
    putchar('\n');
}

/* "+0.0123±0.0045", the nll against that of the first length. An error that rounds to 0 is not
 * exact: "±<0.0001". ± is two bytes in one column. */
static void print_change(const struct alibi_eval_result *r, const struct alibi_eval_result *first)
{
    char text[CLI_SHORT] = "-";
    double change, error;
    bool known = r != first && alibi_eval_difference(r, first, &change, &error);

    if (known && fabs(change) < 0.00005)
        change = 0; /* and not -0.0000 */
    if (known)
        snprintf(text, sizeof text, error < 0.00005 ? "%+.4f±<0.0001" : "%+.4f±%.4f", change,
                 error);
    printf(known ? " %16s" : " %15s", text);
}

/* first: the result of the first of several lengths; NULL: there is one. */
static void print_row(const struct alibi_eval_result *r, const struct alibi_eval_result *first,
                      const struct job *job)
{
    char token_ppl[CLI_SHORT], word_ppl[CLI_SHORT], error[CLI_SHORT] = "-"; /* of one part: none */

    if (isfinite(r->standard_error))
        snprintf(error, sizeof error, "%.4f", r->standard_error);
    printf("%8lld", (long long)r->length);
    if (alibi_protocol_view(r->protocol)->strided)
        printf(" %8lld", (long long)r->stride);
    printf(" %10s %12s %9.4f %9.4f %8s", cli_short_ppl(token_ppl, r->ppl),
           cli_short_ppl(word_ppl, r->word_ppl), r->bits_per_byte, r->nll, error);
    if (first)
        print_change(r, first);
    printf(" %10lld %9.0f %5.1f%%", (long long)r->tokens, r->tokens_per_s, 100 * r->tiles_used);
    if (job->split_windows && r->earlier_bytes > 0)
        printf(" %5.1f%%", 100 * (double)r->sent_bytes / (double)r->earlier_bytes);
    else if (job->split_windows)
        printf(" %6s", "-");
    if (job->verify)
        printf(" %9.2e", r->skipped_weight);
    putchar('\n');
}

static void print_positions(const struct alibi_eval_result *r)
{
    printf("\n%19s %9s %10s %10s   length %lld\n", "position", "nll", "token ppl", "tokens",
           (long long)r->length);
    for (int i = 0; i < r->bins; i++) {
        const struct alibi_position_loss *bin = &r->by_position[i];
        char ppl[CLI_SHORT];

        printf("%8lld - %8lld %9.4f %10s %10lld\n", (long long)bin->first, (long long)bin->last,
               bin->nll, cli_short_ppl(ppl, exp(bin->nll)), (long long)bin->tokens);
    }
    putchar('\n');
}

/* `first` is the result of the first length; the change against it is more precise than either. */
static void print_result_json(const struct alibi_eval_result *r,
                              const struct alibi_eval_result *first, bool verify)
{
    double change, change_error;

    alibi_eval_difference(r, first, &change, &change_error);
    cli_json_open(NULL, '{');
    cli_json_int("length", r->length);
    cli_json_text("protocol", alibi_protocol_view(r->protocol)->name);
    cli_json_int("stride", r->stride);
    cli_json_int("window", r->window);
    cli_json_int("block", r->block);
    cli_json_int("blocks", r->blocks);
    cli_json_int("start", r->start);
    cli_json_int("available", r->available);
    cli_json_text("first_token", alibi_protocol_view(r->protocol)->first_tokens);
    cli_json_text("normaliser", alibi_protocol_view(r->protocol)->normaliser);
    cli_json_real("nll", r->nll);
    cli_json_real("standard_error", r->standard_error);
    cli_json_real("change", change);
    cli_json_real("change_error", change_error);
    cli_json_real("ppl", r->ppl);
    cli_json_real("word_ppl", r->word_ppl);
    cli_json_real("bits_per_byte", r->bits_per_byte);
    cli_json_int("tokens", r->tokens);
    cli_json_int("words", r->words);
    cli_json_int("bytes", r->bytes);
    cli_json_real("seconds", r->seconds);
    cli_json_real("tokens_per_s", r->tokens_per_s);
    cli_json_int("peak_bytes", (int64_t)r->peak_bytes);
    cli_json_real("tiles_used", r->tiles_used);
    cli_json_real("attention_seconds", r->attention_seconds);
    if (r->earlier_bytes > 0) {
        cli_json_int("sent_bytes", r->sent_bytes);
        cli_json_int("earlier_bytes", r->earlier_bytes);
    }
    if (verify)
        cli_json_real("skipped_weight", r->skipped_weight);
    cli_json_open("by_position", '[');
    for (int i = 0; i < r->bins; i++) {
        cli_json_open(NULL, '{');
        cli_json_int("first", r->by_position[i].first);
        cli_json_int("last", r->by_position[i].last);
        cli_json_int("tokens", r->by_position[i].tokens);
        cli_json_real("nll", r->by_position[i].nll);
        cli_json_close('}');
    }
    cli_json_close(']');
    cli_json_open("parts", '[');
    for (int i = 0; i < r->parts; i++) {
        cli_json_open(NULL, '{');
        cli_json_int("tokens", r->part[i].tokens);
        cli_json_real("nll", r->part[i].nll);
        cli_json_close('}');
    }
    cli_json_close(']');
    cli_json_close('}');
}

static void print_results_json(const struct cli_subject *s, const struct alibi_eval_result *results,
                               int count, bool verify, bool stopped)
{
    cli_json_open(NULL, '{');
    cli_json_subject(s);
    cli_json_open("results", '[');
    for (int i = 0; i < count; i++)
        print_result_json(&results[i], &results[0], verify);
    cli_json_close(']');
    if (stopped)
        cli_json_flag("stopped", true);
    cli_json_close('}');
}

/* ---- the remaining time: noted once, after some work on the first length */

struct forecast {
    const struct alibi_int_list *lengths;
    int64_t stride;                 /* 0: every token is read equally often at every length */
    double token_flops, pair_flops; /* of a token that is read, and of each token before it */
    bool skips;                     /* attention may skip keys */
    bool said;
};

/* keys: attention reads all keys of a window, and skips none. */
static double cost(const struct forecast *f, int64_t length, bool keys)
{
    double read = f->stride ? (double)length / (double)f->stride : 1;

    return read * (f->token_flops + (keys ? f->pair_flops * (double)length : 0));
}

/* The time of all lengths, as a multiple of the first. */
static double all_lengths(const struct forecast *f, bool keys)
{
    double all = 0;

    for (int i = 0; i < f->lengths->count; i++)
        all += cost(f, f->lengths->at[i], keys) / cost(f, f->lengths->at[0], keys);
    return all;
}

static void watch_progress(void *user, const struct alibi_progress *p)
{
    static const double some_seconds = 2, worth_saying = 20;
    struct forecast *f = user;
    double first, least, most;
    char from[CLI_SHORT], to[CLI_SHORT];

    cli_call()->progress(cli_call()->user, p);
    if (f->said || p->seconds < some_seconds || p->done == 0)
        return;
    f->said = true;
    first = p->seconds * (double)p->total / (double)p->done;
    least = first * all_lengths(f, !f->skips);
    most = first * all_lengths(f, true);
    cli_short_time(from, least);
    cli_short_time(to, most);
    if (most > worth_saying && f->lengths->count > 1 && most > 1.2 * least)
        cli_note("%d lengths take %s to %s on this machine, depending on how much attention skips; "
                 "--tokens N scores fewer",
                 f->lengths->count, from, to);
    else if (most > worth_saying)
        cli_note("this takes about %s on this machine; --tokens N scores fewer", to);
}

static void pass_line(void *user, enum alibi_log_level level, const char *line)
{
    (void)user;
    cli_call()->log(cli_call()->user, level, line);
}

/* A token costs 2 P operations with its weights, and 2 N C with each token of a full window: half
 * of them come before it, for queries and for values. */
static struct forecast forecast_of(const struct job *job, const struct alibi_int_list *lengths,
                                   const alibi_model *model)
{
    const struct alibi_config *config = alibi_model_view_config(model);

    return (struct forecast){ .lengths = lengths,
                              .stride = job->stride,
                              .skips = job->skip > 0,
                              .token_flops = 2 * (double)alibi_model_parameters(model),
                              .pair_flops = 2 * (double)(config->layers * config->width) };
}

/* ---- the run */

static alibi_status evaluate_lengths(const struct job *job, const struct alibi_int_list *lengths)
{
    const struct cli_subject *s = &job->subject;
    struct alibi_eval_result results[ALIBI_LIST_MAX];
    struct forecast forecast = forecast_of(job, lengths, s->model);
    struct alibi_call call = *cli_call();
    alibi_status status = ALIBI_OK;
    int done = 0;

    call.user = &forecast;
    call.progress = watch_progress;
    call.log = pass_line;
    for (int i = 0; i < lengths->count; i++) {
        struct alibi_eval eval = one_length(job, lengths->at[i], longest(lengths));

        TRY_RETURN(alibi_eval_check_text(s->corpus, cli_subject_split(s), &eval));
    }
    while (done < lengths->count) {
        struct alibi_eval_result *result = &results[done];
        struct alibi_eval eval = one_length(job, lengths->at[done], longest(lengths));

        status = alibi_evaluate(s->model, s->corpus, cli_subject_split(s), &eval, result, &call);
        if (status != ALIBI_OK)
            break;
        if (++done < lengths->count)
            cli_catch_signals(); /* from now on there is something to lose */
        if (job->json)
            continue;
        cli_terminal_clear();
        if (done == 1 || job->by_position)
            print_head(result, job, lengths->count > 1);
        print_row(result, lengths->count > 1 ? &results[0] : NULL, job);
        if (job->by_position)
            print_positions(result);
        cli_flush();
    }
    if (status != ALIBI_OK) {
        cli_terminal_clear();
        cli_fail_later(status, done, lengths->count);
    }
    if (done > 0 && !job->json && lengths->count > 1)
        printf("change: nll against length %lld, paired over the text; error and ± are one "
               "standard error\n",
               (long long)results[0].length);
    if (done > 0 && job->json)
        print_results_json(s, results, done, job->verify, status != ALIBI_OK);
    return status;
}

static alibi_status prepare(struct job *job, const struct cli_line *line,
                            struct alibi_int_list *lengths)
{
    TRY_RETURN(cli_subject_open_model(&job->subject, line, 0));
    TRY_RETURN(check_request(job, job->subject.model, lengths));
    return cli_subject_open_text(&job->subject, line, BUILTIN_GROUP);
}

static alibi_status run(const struct cli_line *line, void *user)
{
    struct job *job = user;
    struct alibi_int_list lengths;
    alibi_status status;

    cli_set_skip(job->skip);
    TRY(cli_agree(prepare(job, line, &lengths)));
    TRY(evaluate_lengths(job, &lengths));
out:
    cli_subject_close(&job->subject);
    return status;
}

alibi_status cmd_eval(int argc, char **argv)
{
    struct job job = { 0 };
    const struct alibi_option_group groups[] = {
        { "Evaluation", options, CLI_COUNT(options), &job },
        cli_subject_group(&job.subject),
        cli_reading_group(&job.subject.text.reading),
        cli_builtin_group(&job.subject.text.builtin),
        cli_no_tokenizer_group(&job.subject.text),
        cli_device_group(&job.subject.compute),
    };
    struct cli_line line = {
        .command = "eval",
        .usage = "MODEL [FILE...] [OPTION...]",
        .about =
            "Measures the perplexity of MODEL (a checkpoint, or a run's folder) on text files, on "
            "token shards or on the built-in text, with the model's own tokenizer. FILE may be a "
            "folder; without one, the built-in text is read if the model was trained on it. The "
            "error is the standard error of the nll over distant parts of the text. `mpirun -n N "
            "alibi eval` divides the windows among N processes, or with --split-windows each "
            "window.",
        .groups = groups,
        .count = CLI_COUNT(groups),
        .min_operands = 1,
        .max_operands = INT_MAX,
    };

    return cli_run(&line, argc, argv, run, &job);
}
