/* Evaluation: which tokens are scored, and that the numbers are what their formulas say, against
 * plain loops over the model. */
#include <omp.h>

#include "eval/eval.h"
#include "checkpoint/checkpoint.h"
#include "training.h"
#include "passes.h"

enum { V = 257, TOKENS_MAX = 512 };

static struct device cpu;

/* A text with words of all lengths, a line end, and characters of two and three bytes. */
static const char story[] =
    "The old clock in the hall struck nine, and nobody came. On the table lay a caf\xC3\xA9 receipt,\n"
    "a brass key and 3 \xE2\x82\xAC; the key was for the boat house. Nobody ever asked for the boat.";

static struct model *new_model(const char *position)
{
    struct alibi_config c = tiny_bytes_config(position, 1, 8);
    struct model *m = NULL;

    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, false));
    randomise(m, 5, 0.3);
    return m;
}

/* With all weights zero every logit is zero, and every token has the probability 1/V. */
static struct model *new_uniform_model(int64_t vocab)
{
    struct alibi_config c = tiny_bytes_config("none", 1, 8);
    struct model *m = NULL;

    c.vocab = vocab;
    assert_ok(model_new(&m, &c, &cpu, DTYPE_F32, false));
    for (int i = 0; i < m->count; i++)
        assert_ok(cpu.ops->fill(&cpu, m->parameters[i].value, 0.0));
    return m;
}

static alibi_corpus *new_corpus(const char *text)
{
    alibi_corpus *c = NULL;

    assert_ok(corpus_from_texts(&c, &text, 1));
    return c;
}

static struct alibi_eval_result evaluate(struct model *m, const alibi_corpus *c,
                                         struct alibi_eval eval)
{
    struct alibi_eval_result r;

    assert_ok(evaluate_span(m, corpus_span(c, ALIBI_ALL), &eval, "eval", &r, test_call()));
    return r;
}

static alibi_status try_evaluate(struct model *m, const alibi_corpus *c, struct alibi_eval eval)
{
    struct alibi_eval_result r;

    return evaluate_span(m, corpus_span(c, ALIBI_ALL), &eval, "eval", &r, test_call());
}

/* Losses of all targets of one window, evaluated alone. */
static void window_losses(struct model *m, const alibi_corpus *c, int64_t start, int64_t inputs,
                          float *nll)
{
    int32_t tokens[TOKENS_MAX], targets[TOKENS_MAX];

    span_read(corpus_span(c, ALIBI_ALL), start, inputs, tokens);
    span_read(corpus_span(c, ALIBI_ALL), start + 1, inputs, targets);
    assert_ok(once_loss(m, tokens, targets, 1, inputs, nll));
}

/* ---- which tokens */

static void every_token_but_the_first_is_counted_for_awkward_sizes(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t count = corpus_span(c, ALIBI_ALL).count;

    (void)state;
    for (int64_t length = 1; length < count; length += 13) {
        struct alibi_eval_result whole = evaluate(m, c, (struct alibi_eval){ .length = length });
        struct alibi_eval_result sliding =
            evaluate(m, c,
                     (struct alibi_eval){
                         .length = length, .protocol = ALIBI_SLIDING, .stride = (length + 2) / 3 });

        assert_int_equal(whole.tokens, count - 1);
        assert_int_equal(sliding.tokens, count - 1);
        assert_int_equal(whole.bytes, sliding.bytes);
    }
    alibi_corpus_free(c);
    model_free(m);
}

/* Windows of a part of the text, each read alone: blocks at `starts`, cut into windows of L
 * inputs. */
static double mean_of_blocks(struct model *m, const alibi_corpus *c, const int64_t *starts,
                             int count, int64_t size, int64_t L)
{
    float nll[TOKENS_MAX];
    double sum = 0;

    for (int k = 0; k < count; k++)
        for (int64_t from = 0; from < size; from += L) {
            int64_t inputs = size - from < L ? size - from : L;

            window_losses(m, c, starts[k] + from, inputs, nll);
            for (int64_t i = 0; i < inputs; i++)
                sum += nll[i];
        }
    return sum / (double)(count * size);
}

static void a_cap_scores_blocks_over_the_whole_text(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t n = corpus_span(c, ALIBI_ALL).count - 1;
    const int64_t starts[] = { 0, (n - 12) / 2, n - 12 };
    struct alibi_eval eval = { .length = 5, .tokens = 40, .block = 12 };
    struct alibi_eval_result r = evaluate(m, c, eval);
    char text[128];

    (void)state;
    assert_int_equal(r.tokens, 36);
    assert_true(r.blocks == 3 && r.block == 12 && r.available == n);
    assert_close_relative(r.nll, mean_of_blocks(m, c, starts, 3, 12, 5), 1e-6);
    alibi_eval_describe(&r, text, sizeof text);
    assert_string_equal(text, "3 blocks of 12 tokens over the whole split");
    alibi_corpus_free(c);
    model_free(m);
}

static void a_single_block_is_from_the_middle_and_a_contiguous_one_from_the_start(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t n = corpus_span(c, ALIBI_ALL).count - 1;
    struct alibi_eval eval = { .length = 10, .tokens = 25, .block = 30 };
    struct alibi_eval_result middle = evaluate(m, c, eval), start;
    char text[128];

    (void)state;
    eval.contiguous = true;
    start = evaluate(m, c, eval);
    assert_true(middle.tokens == 25 && start.tokens == 25);
    assert_close_relative(middle.nll, mean_of_blocks(m, c, (int64_t[]){ (n - 25) / 2 }, 1, 25, 10),
                          1e-6);
    assert_close_relative(start.nll, mean_of_blocks(m, c, (int64_t[]){ 0 }, 1, 25, 10), 1e-6);
    alibi_eval_describe(&middle, text, sizeof text);
    assert_non_null(strstr(text, "25 tokens from the middle"));
    alibi_eval_describe(&start, text, sizeof text);
    assert_non_null(strstr(text, "25 tokens from the start"));
    alibi_corpus_free(c);
    model_free(m);
}

/* Parts match, so their differences can be taken; and the text of the tokens is the same. */
static void every_length_and_protocol_scores_the_same_tokens(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    struct alibi_eval eval = { .length = 32, .tokens = 100, .block = 32 };
    struct alibi_eval_result whole = evaluate(m, c, eval);

    (void)state;
    for (eval.length = 1; eval.length <= 32; eval.length = 2 * eval.length + 1)
        for (eval.stride = 1; eval.stride <= eval.length; eval.stride += 3) {
            struct alibi_eval_result r;
            double difference, error;

            eval.protocol = eval.stride == 1 ? ALIBI_NONOVERLAPPING : ALIBI_SLIDING;
            r = evaluate(m, c, eval);
            assert_true(r.tokens == 96 && r.words == whole.words && r.bytes == whole.bytes);
            assert_true(alibi_eval_difference(&r, &whole, &difference, &error));
            assert_true(difference == r.nll - whole.nll && isfinite(error));
        }
    alibi_corpus_free(c);
    model_free(m);
}

/* In a block, sliding by one reads the L tokens before every target, those before the block too. */
static void a_sliding_window_takes_its_context_from_before_the_block(void **state)
{
    enum { LENGTH = 7, SIZE = 10 };
    struct model *m = new_model("rotary");
    alibi_corpus *c = new_corpus(story);
    int64_t n = corpus_span(c, ALIBI_ALL).count - 1;
    const int64_t starts[] = { 0, (n - SIZE) / 2, n - SIZE };
    struct alibi_eval eval = {
        .length = LENGTH, .protocol = ALIBI_SLIDING, .stride = 1, .tokens = 30, .block = SIZE
    };
    struct alibi_eval_result r = evaluate(m, c, eval);
    double sum = 0;

    (void)state;
    for (int k = 0; k < 3; k++)
        for (int64_t target = starts[k] + 1; target <= starts[k] + SIZE; target++) {
            int64_t inputs = target < LENGTH ? target : LENGTH;
            float nll[TOKENS_MAX];

            window_losses(m, c, target - inputs, inputs, nll);
            sum += nll[inputs - 1];
        }
    assert_int_equal(r.tokens, 30);
    assert_close_relative(r.nll, sum / 30, 1e-6);
    alibi_corpus_free(c);
    model_free(m);
}

/* ---- against plain loops */

static void windows_evaluated_together_equal_those_evaluated_alone(void **state)
{
    alibi_corpus *c = new_corpus(story);
    int64_t targets = corpus_span(c, ALIBI_ALL).count - 1;

    (void)state;
    for (int i = 0; alibi_position_name(i, NULL); i++) {
        struct model *m = new_model(alibi_position_name(i, NULL));
        int64_t longest = model_longest(m);
        int64_t length = longest < 9 ? longest : 9; /* past the training length if it may */
        struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = length });
        float nll[TOKENS_MAX];
        double sum = 0;

        for (int64_t start = 0; start < targets; start += length) {
            int64_t inputs = targets - start < length ? targets - start : length;

            window_losses(m, c, start, inputs, nll);
            for (int64_t k = 0; k < inputs; k++)
                sum += nll[k];
        }
        assert_close_relative(r.nll, sum / (double)targets, 1e-6);
        model_free(m);
    }
    alibi_corpus_free(c);
}

static void sliding_by_one_gives_each_token_the_full_context(void **state)
{
    enum { LENGTH = 7 };
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t targets = corpus_span(c, ALIBI_ALL).count - 1;
    struct alibi_eval_result r = evaluate(
        m, c, (struct alibi_eval){ .length = LENGTH, .protocol = ALIBI_SLIDING, .stride = 1 });
    float nll[TOKENS_MAX];
    double sum = 0;

    (void)state;
    for (int64_t target = 1; target <= targets; target++) {
        int64_t inputs = target < LENGTH ? target : LENGTH;

        window_losses(m, c, target - inputs, inputs, nll);
        sum += nll[inputs - 1];
    }
    assert_close_relative(r.nll, sum / (double)targets, 1e-6);
    alibi_corpus_free(c);
    model_free(m);
}

static void sliding_by_the_length_is_nonoverlapping(void **state)
{
    struct model *m = new_model("rotary");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    for (int64_t length = 1; length <= 64; length *= 4) {
        struct alibi_eval_result a = evaluate(m, c, (struct alibi_eval){ .length = length });
        struct alibi_eval_result b = evaluate(
            m, c,
            (struct alibi_eval){ .length = length, .protocol = ALIBI_SLIDING, .stride = length });

        assert_true(a.nll == b.nll && a.standard_error == b.standard_error &&
                    a.word_ppl == b.word_ppl);
        assert_memory_equal(a.by_position, b.by_position, (size_t)a.bins * sizeof a.by_position[0]);
    }
    alibi_corpus_free(c);
    model_free(m);
}

/* ---- the numbers */

static void a_uniform_model_loses_the_logarithm_of_the_vocabulary(void **state)
{
    struct model *m = new_uniform_model(V);
    alibi_corpus *c = new_corpus(story);
    struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = 16 });

    (void)state;
    assert_close(r.nll, log(V), 1e-6);
    assert_close_relative(r.ppl, V, 1e-6);
    assert_close(r.standard_error, 0, 1e-12);
    for (int b = 0; b < r.bins; b++)
        assert_close(r.by_position[b].nll, log(V), 1e-6);
    alibi_corpus_free(c);
    model_free(m);
}

/* "one two three" and the end of the document are 14 tokens. The first is not scored, and with it
 * not the word "one". */
static void words_and_bytes_are_those_of_the_scored_text(void **state)
{
    struct model *m = new_uniform_model(V);
    alibi_corpus *c = new_corpus("one two three");
    struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = 4 });

    (void)state;
    assert_int_equal(r.tokens, 13);
    assert_int_equal(r.words, 2);
    assert_int_equal(r.bytes, 12);
    assert_close_relative(r.word_ppl, pow(V, 13.0 / 2), 1e-5);
    assert_close(r.bits_per_byte, 13.0 / 12 * log2(V), 1e-5);
    alibi_corpus_free(c);
    model_free(m);
}

/* "bytes", or one that is learned from the text. */
static alibi_tokenizer *tokenizer_for(const char *type, const char *path)
{
    struct alibi_vocabulary how = { .type = strcmp(type, "bpe") == 0 ? ALIBI_BPE : ALIBI_WORDS,
                                    .vocab = 270,
                                    .min_count = 1 };
    alibi_tokenizer *t = NULL;

    if (strcmp(type, "bytes") == 0)
        assert_ok(alibi_tokenizer_open(&t, "bytes", NULL));
    else
        assert_ok(
            alibi_tokenizer_train(&t, &how, &path, 1, &(struct alibi_reading){ 0 }, test_call()));
    assert_string_equal(alibi_tokenizer_type(t), type);
    return t;
}

/* The total loss, divided by what the text has: other tokens, the same text. Every word has a blank
 * behind it, as words do when they are put together again. */
static void words_and_bytes_do_not_depend_on_the_tokenizer(void **state)
{
    static const char text[] =
        "one two three two one \nthe two and the three \ncaf\xC3\xA9 one two three \n";
    static const char *const types[] = { "bytes", "bpe", "words" };
    enum { WORDS = 14 };
    char *folder = temporary_folder();
    const char *path = within(folder, "text.txt");

    (void)state;
    write_file(path, text, strlen(text));
    for (int i = 0; i < 3; i++) {
        alibi_tokenizer *t = tokenizer_for(types[i], path);
        struct model *m = new_uniform_model(alibi_tokenizer_vocab(t));
        alibi_corpus *c = NULL;
        struct alibi_eval_result r;
        double total;
        int32_t first;
        size_t
            bytes; /* of the first token, which is not scored, as the word that it begins is not */

        assert_ok(
            alibi_corpus_open(&c, &path, 1, NULL, t, &(struct alibi_reading){ 0 }, test_call()));
        span_read(corpus_span(c, ALIBI_ALL), 0, 1, &first);
        tokenizer_bytes(t, first, &bytes);
        r = evaluate(m, c, (struct alibi_eval){ .length = 4 });
        total = (double)r.tokens * log((double)alibi_tokenizer_vocab(t));
        print_message("%-5s %3lld tokens, %.3f bits per byte\n", types[i], (long long)r.tokens,
                      r.bits_per_byte);
        assert_int_equal(r.bytes, strlen(text) - bytes);
        assert_int_equal(r.words, WORDS - 1);
        assert_close_relative(r.bits_per_byte, total / log(2) / (double)(strlen(text) - bytes),
                              1e-5);
        assert_close_relative(r.word_ppl, exp(total / (WORDS - 1)), 1e-4);
        alibi_corpus_free(c);
        model_free(m);
        alibi_tokenizer_free(t);
    }
    remove_temporary_folder(folder);
}

static void losses_fall_into_bins_that_double(void **state)
{
    enum { LENGTH = 13 };
    static const int64_t firsts[] = { 0, 1, 2, 4, 8 }, lasts[] = { 0, 1, 3, 7, 12 };
    struct model *m = new_model("t5");
    alibi_corpus *c = new_corpus(story);
    int64_t targets = corpus_span(c, ALIBI_ALL).count - 1;
    struct alibi_eval_result r = evaluate(m, c, (struct alibi_eval){ .length = LENGTH });
    double sums[5] = { 0 };
    int64_t tokens[5] = { 0 };

    (void)state;
    for (int64_t start = 0; start < targets; start += LENGTH) {
        int64_t inputs = targets - start < LENGTH ? targets - start : LENGTH;
        float nll[TOKENS_MAX];

        window_losses(m, c, start, inputs, nll);
        for (int64_t i = 0; i < inputs; i++)
            for (int b = 0; b < 5; b++)
                if (i >= firsts[b] && i <= lasts[b]) {
                    sums[b] += nll[i];
                    tokens[b]++;
                }
    }
    assert_int_equal(r.bins, 5);
    for (int b = 0; b < 5; b++) {
        assert_int_equal(r.by_position[b].first, firsts[b]);
        assert_int_equal(r.by_position[b].last, lasts[b]);
        assert_int_equal(r.by_position[b].tokens, tokens[b]);
        assert_close_relative(r.by_position[b].nll, sums[b] / (double)tokens[b], 1e-6);
    }
    alibi_corpus_free(c);
    model_free(m);
}

static void perplexities_that_overflow_are_infinite(void **state)
{
    const struct window w = { .inputs = 2 };
    struct score s = { .blocks = blocks_of(2, 0, 0, false) };
    struct alibi_eval_result r = { 0 };

    (void)state;
    assert_true(score_window(&s, (float[]){ 2000, 2000 }, &w, 0));
    score_result(&s, 2, 0, 2, &r);
    assert_true(isinf(r.ppl) && isinf(r.word_ppl));
    assert_close(r.bits_per_byte, 2000 / M_LN2, 1e-9);
    assert_false(score_window(&s, (float[]){ 1, NAN }, &w, 0));
    assert_false(score_window(&s, (float[]){ INFINITY, 1 }, &w, 0));
    assert_int_equal(s.tokens, 2);
}

/* Every token counts as often as it occurs in the training split, and one more. The first token of
 * a split is not a target. */
static void the_baseline_knows_how_frequent_tokens_are(void **state)
{
    struct alibi_eval eval = { .length = 4 };
    alibi_corpus *c = new_corpus(story);
    struct span train = corpus_span(c, ALIBI_TRAIN), valid = corpus_span(c, ALIBI_VALID);
    int32_t seen[TOKENS_MAX], scored[TOKENS_MAX];
    double nll, sum = 0;

    (void)state;
    assert_true(valid.count > 4);
    span_read(train, 0, train.count, seen);
    span_read(valid, 0, valid.count, scored);
    for (int64_t i = 1; i < valid.count; i++) {
        int count = 1;

        for (int64_t j = 1; j < train.count; j++)
            count += seen[j] == scored[i];
        sum -= log(count / (double)(train.count - 1 + V));
    }
    assert_ok(alibi_corpus_unigram(c, ALIBI_VALID, &eval, &nll));
    assert_close_relative(nll, sum / (double)(valid.count - 1), 1e-12);
    eval.tokens = 4;
    assert_ok(alibi_corpus_unigram(c, ALIBI_VALID, &eval, &nll));
    assert_true(nll > 0);
    alibi_corpus_free(c);
}

/* ---- what is refused, noted, reported */

static void options_out_of_range_are_named(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 0 }), ALIBI_USAGE, "length 0");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = -5 }), ALIBI_USAGE, "length -5");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .protocol = ALIBI_SLIDING }),
                 ALIBI_USAGE, "stride 0");
    assert_fails(
        try_evaluate(m, c,
                     (struct alibi_eval){ .length = 8, .protocol = ALIBI_SLIDING, .stride = 9 }),
        ALIBI_USAGE, "stride 9");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .protocol = 7 }), ALIBI_USAGE,
                 "protocol 7");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .tokens = 7 }), ALIBI_USAGE,
                 "scoring 7 tokens");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .tokens = -1 }), ALIBI_USAGE,
                 "scoring -1 tokens");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .protocol = ALIBI_STREAM, .tokens = -1 }),
                 ALIBI_USAGE, "scoring -1 tokens");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .tokens = 16, .block = 7 }),
                 ALIBI_USAGE, "block of 7 tokens");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8, .window = -1 }), ALIBI_USAGE,
                 "window -1");
    alibi_corpus_free(c);
    model_free(m);
}

static void protocols_of_other_programs_name_what_they_need(void **state)
{
    const char *const many[] = { "alpha beta", "gamma", " delta\n" };
    struct model *m = new_model("alibi");
    alibi_corpus *c = NULL;
    struct alibi_eval e = { .length = 2, .protocol = ALIBI_LLAMA_CPP };
    struct alibi_eval_result r;
    char text[128];

    (void)state;
    assert_ok(corpus_from_texts(&c, many, 3)); /* 25 tokens, ends included */
    assert_fails(try_evaluate(m, c, e), ALIBI_USAGE, "length 2: it must be 3 or more");
    e.length = 13; /* the text and the token before it are two chunks */
    assert_ok(try_evaluate(m, c, e));
    e.length = 14;
    assert_fails(try_evaluate(m, c, e), ALIBI_BAD_INPUT,
                 "protocol llama.cpp at length 14 takes 27 tokens, there are 25");
    e = (struct alibi_eval){ .length = 26, .protocol = ALIBI_STRIDE, .stride = 4 };
    assert_fails(try_evaluate(m, c, e), ALIBI_BAD_INPUT,
                 "protocol stride at length 26 takes 26 tokens, there are 25");
    e.stride = 27;
    assert_fails(try_evaluate(m, c, e), ALIBI_USAGE, "stride 27");
    e = (struct alibi_eval){ .length = 8, .protocol = ALIBI_ROLLING, .tokens = 14 };
    r = evaluate(m, c, e); /* "alpha beta" and "gam" */
    assert_int_equal(r.tokens, 13);
    assert_true(r.words == 3 && r.bytes == 13);
    alibi_eval_describe(&r, text, sizeof text);
    assert_string_equal(text, "13 of the first 14 tokens of the split");
    e.tokens = 0; /* the harness counts empty words at both ends of the last document */
    r = evaluate(m, c, e);
    assert_true(r.tokens == 22 && r.bytes == 22 && r.words == 4 + 2);
    alibi_corpus_free(c);
    model_free(m);
}

static void a_text_shorter_than_the_length_is_named_with_both(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus("short");

    (void)state;
    assert_ok(try_evaluate(m, c, (struct alibi_eval){ .length = 5 }));
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 6 }), ALIBI_BAD_INPUT,
                 "'texts' has 6 tokens; evaluating at length 6 takes 7");
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = INT64_MAX }), ALIBI_BAD_INPUT,
                 "has 6 tokens");
    alibi_corpus_free(c);
    model_free(m);
}

static void another_vocabulary_is_refused(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    m->config.vocab = 200;
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8 }), ALIBI_BAD_INPUT,
                 "257 tokens, the model one of 200");
    m->config.vocab = V;
    alibi_corpus_free(c);
    model_free(m);
}

static void learned_positions_end_where_their_table_ends(void **state)
{
    struct model *m = new_model("learned");
    alibi_corpus *c = new_corpus(story);

    (void)state;
    assert_ok(try_evaluate(m, c, (struct alibi_eval){ .length = 8 }));
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 9 }), ALIBI_BAD_INPUT, "8");
    alibi_corpus_free(c);
    model_free(m);
}

/* The semicolon occurs once; a NaN in its embedding spoils the windows that read it, and the first
 * of them is named. */
static void a_loss_that_is_not_finite_names_its_window(void **state)
{
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    int64_t at = strchr(story, ';') - story;
    struct tensor row = tensor_rows(m->parameters[m->embedding].value, ';', 1);
    char window[64];

    (void)state;
    assert_ok(cpu.ops->fill(&cpu, row, (double)NAN));
    snprintf(window, sizeof window, "window of tokens %lld to %lld", (long long)(at / 8 * 8),
             (long long)(at / 8 * 8 + 8));
    assert_fails(try_evaluate(m, c, (struct alibi_eval){ .length = 8 }), ALIBI_NUMERIC, window);
    alibi_corpus_free(c);
    model_free(m);
}

struct seen {
    int reports;
    struct alibi_progress last;
    int notes;
    char note[256];
};

static void see_progress(void *user, const struct alibi_progress *p)
{
    struct seen *seen = user;

    seen->reports++;
    seen->last = *p;
}

static void see_log(void *user, enum alibi_log_level level, const char *line)
{
    struct seen *seen = user;

    assert_int_equal(level, ALIBI_NOTE);
    seen->notes++;
    snprintf(seen->note, sizeof seen->note, "%s", line);
}

static void going_past_the_training_length_is_one_note(void **state)
{
    struct seen seen = { 0 };
    alibi_corpus *c = new_corpus(story);
    struct alibi_model model = { .model = new_model("alibi"),
                                 .tokenizer = tokenizer_share(corpus_tokenizer(c)) };
    struct alibi_eval_result r;

    (void)state;
    test_watch(&seen, NULL, see_log);
    assert_ok(
        alibi_evaluate(&model, c, ALIBI_ALL, &(struct alibi_eval){ .length = 8 }, &r, test_call()));
    assert_int_equal(seen.notes, 0);
    assert_ok(alibi_evaluate(&model, c, ALIBI_ALL, &(struct alibi_eval){ .length = 20 }, &r,
                             test_call()));
    assert_int_equal(seen.notes, 1);
    assert_string_equal(seen.note, "evaluating at 20; the model was trained at 8");
    test_watch(NULL, NULL, NULL);
    alibi_corpus_free(c);
    model_free(model.model);
    alibi_tokenizer_free(model.tokenizer);
}

static void progress_ends_with_everything_done(void **state)
{
    struct seen seen = { 0 };
    struct model *m = new_model("alibi");
    alibi_corpus *c = new_corpus(story);
    struct alibi_eval_result r;

    (void)state;
    test_watch(&seen, see_progress, NULL);
    r = evaluate(m, c, (struct alibi_eval){ .length = 20 });
    test_watch(NULL, NULL, NULL);
    assert_true(seen.reports >= 1);
    assert_int_equal(seen.last.done, r.tokens);
    assert_int_equal(seen.last.total, r.tokens);
    assert_close(seen.last.loss, r.nll, 1e-12);
    assert_true(r.peak_bytes > 0 && r.tokens_per_s > 0);
    alibi_corpus_free(c);
    model_free(m);
}

static void a_stop_request_interrupts_the_calls_that_have_it(void **state)
{
    alibi_corpus *c = new_corpus(story);
    struct alibi_model model = { .model = new_model("alibi"),
                                 .tokenizer = tokenizer_share(corpus_tokenizer(c)) };
    struct alibi_eval eval = { .length = 8 };
    struct alibi_eval_result r;
    struct alibi_stop stop = { 0 };
    const struct alibi_call call = { .stop = &stop };

    (void)state;
    alibi_stop_request(&stop);
    assert_fails(alibi_evaluate(&model, c, ALIBI_ALL, &eval, &r, &call), ALIBI_INTERRUPTED,
                 "eval 8");
    assert_ok(alibi_evaluate(&model, c, ALIBI_ALL, &eval, &r, test_call()));
    alibi_corpus_free(c);
    model_free(model.model);
    alibi_tokenizer_free(model.tokenizer);
}

static void every_failing_allocation_is_reported_and_nothing_leaks(void **state)
{
    alibi_corpus *c = new_corpus(story);
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;

    (void)state;
    for (int64_t n = 1; status != ALIBI_OK; n++) {
        struct model *m = new_model("alibi");

        assert_ok(alibi_inject_fault("memory", n));
        status = try_evaluate(m, c, (struct alibi_eval){ .length = 8 });
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_true(n < 1000);
        model_free(m);
        assert_int_equal(alibi_memory_now(), before);
    }
    alibi_corpus_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_but_the_first_is_counted_for_awkward_sizes),
        cmocka_unit_test(a_cap_scores_blocks_over_the_whole_text),
        cmocka_unit_test(a_single_block_is_from_the_middle_and_a_contiguous_one_from_the_start),
        cmocka_unit_test(every_length_and_protocol_scores_the_same_tokens),
        cmocka_unit_test(a_sliding_window_takes_its_context_from_before_the_block),
        cmocka_unit_test(windows_evaluated_together_equal_those_evaluated_alone),
        cmocka_unit_test(sliding_by_one_gives_each_token_the_full_context),
        cmocka_unit_test(sliding_by_the_length_is_nonoverlapping),
        cmocka_unit_test(a_uniform_model_loses_the_logarithm_of_the_vocabulary),
        cmocka_unit_test(words_and_bytes_are_those_of_the_scored_text),
        cmocka_unit_test(words_and_bytes_do_not_depend_on_the_tokenizer),
        cmocka_unit_test(losses_fall_into_bins_that_double),
        cmocka_unit_test(perplexities_that_overflow_are_infinite),
        cmocka_unit_test(the_baseline_knows_how_frequent_tokens_are),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(protocols_of_other_programs_name_what_they_need),
        cmocka_unit_test(a_text_shorter_than_the_length_is_named_with_both),
        cmocka_unit_test(another_vocabulary_is_refused),
        cmocka_unit_test(learned_positions_end_where_their_table_ends),
        cmocka_unit_test(a_loss_that_is_not_finite_names_its_window),
        cmocka_unit_test(going_past_the_training_length_is_one_note),
        cmocka_unit_test(progress_ends_with_everything_done),
        cmocka_unit_test(a_stop_request_interrupts_the_calls_that_have_it),
        cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_leaks),
    };

    omp_set_num_threads(1); /* for models this small threads only cost time */
    cpu.ops = ops_cpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
