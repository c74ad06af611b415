/* Generation: the choice of a token, whole characters on the way out, and text against plain loops
 * over the model. */
#include <omp.h>

#include "eval/eval.h"
#include "checkpoint/checkpoint.h"
#include "training.h"
#include "passes.h"

enum { V = 257, END = 256, TEXT_MAX = 4096, PROMPT_MAX = 1400 };

static struct device cpu;

/* ---- sample */

static int32_t sample(const float *logits, int64_t count, struct alibi_sampling s, uint64_t index)
{
    struct candidate scratch[16];
    int32_t id = -1;

    assert_ok(sample_token(&id, logits, count, &s, index, scratch));
    return id;
}

/* Logits of four tokens with probabilities 0.15, 0.5, 0.05, 0.3. */
static const double shares[4] = { 0.15, 0.5, 0.05, 0.3 };

static void share_logits(float logits[4])
{
    for (int v = 0; v < 4; v++)
        logits[v] = (float)log(shares[v]);
}

static void draw_shares(struct alibi_sampling s, double drawn[4])
{
    enum { DRAWS = 20000 };
    float logits[4];

    share_logits(logits);
    memset(drawn, 0, 4 * sizeof *drawn);
    for (uint64_t i = 0; i < DRAWS; i++)
        drawn[sample(logits, 4, s, i)] += 1.0 / DRAWS;
}

/* ---- prompts */

static void a_prompt_starts_with_the_begin_token_once(void **state)
{
    static const struct {
        const char *prompt;
        int64_t more; /* ids after the begin */
    } cases[] = { { "", 0 }, { "<s>", 0 }, { "<s><s>", 1 } };
    alibi_tokenizer *t = NULL;
    struct ids ids = { 0 }, alone = { 0 };
    int32_t begin;

    (void)state;
    assert_ok(alibi_tokenizer_open(&t, TEST_FOLDER "/golden/tokenizers/llama2.json", NULL));
    begin = alibi_tokenizer_begin(t);
    assert_int_equal(begin, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ids.count = 0;
        assert_ok(encode_prompt(&ids, t, cases[i].prompt, strlen(cases[i].prompt), "prompt"));
        assert_int_equal(ids.count, 1 + cases[i].more);
        assert_int_equal(ids.at[0], begin);
    }
    ids.count = 0;
    assert_ok(encode_prompt(&ids, t, "the end", 7, "prompt"));
    assert_ok(tokenizer_encode(t, "the end", 7, &alone));
    assert_int_equal(ids.count, alone.count + 1);
    assert_memory_equal(ids.at + 1, alone.at, (size_t)alone.count * sizeof *alone.at);
    alone.count = 0; /* a text that continues has no blank before it */
    assert_ok(tokenizer_encode_more(t, " end", 4, &alone));
    assert_int_equal(alone.at[alone.count - 1], ids.at[ids.count - 1]);
    mem_free(ids.at);
    mem_free(alone.at);
    alibi_tokenizer_free(t);
}

static void temperature_zero_takes_the_likeliest_and_the_first_of_equals(void **state)
{
    struct alibi_sampling s = { .temperature = 0, .top_p = 1 };

    (void)state;
    assert_int_equal(sample((float[]){ 1, 5, 3 }, 3, s, 0), 1);
    assert_int_equal(sample((float[]){ 1, 5, 5 }, 3, s, 0), 1);
    assert_int_equal(sample((float[]){ -7 }, 1, s, 0), 0);
}

static void tokens_are_drawn_with_their_probabilities(void **state)
{
    double drawn[4];

    (void)state;
    draw_shares((struct alibi_sampling){ .temperature = 1, .top_p = 1, .seed = 3 }, drawn);
    for (int v = 0; v < 4; v++)
        assert_close(drawn[v], shares[v], 0.015);
}

/* At temperature 1/2 probabilities are squared and normalised again. */
static void temperature_sharpens_the_distribution(void **state)
{
    double drawn[4], squares = 0;

    (void)state;
    draw_shares((struct alibi_sampling){ .temperature = 0.5, .top_p = 1, .seed = 3 }, drawn);
    for (int v = 0; v < 4; v++)
        squares += shares[v] * shares[v];
    for (int v = 0; v < 4; v++)
        assert_close(drawn[v], shares[v] * shares[v] / squares, 0.015);
}

static void top_k_keeps_the_k_likeliest(void **state)
{
    double drawn[4];

    (void)state;
    draw_shares((struct alibi_sampling){ .temperature = 1, .top_p = 1, .top_k = 2, .seed = 4 },
                drawn);
    assert_true(drawn[0] == 0 && drawn[2] == 0);
    assert_close(drawn[1], 0.5 / 0.8, 0.015);
    draw_shares((struct alibi_sampling){ .temperature = 1, .top_p = 1, .top_k = 1, .seed = 4 },
                drawn);
    assert_close(drawn[1], 1, 1e-9);
}

static void top_p_keeps_the_fewest_that_reach_the_share(void **state)
{
    double drawn[4];

    (void)state;
    draw_shares((struct alibi_sampling){ .temperature = 1, .top_p = 0.79, .seed = 5 }, drawn);
    assert_true(drawn[0] == 0 && drawn[2] == 0 && drawn[3] > 0);
    draw_shares((struct alibi_sampling){ .temperature = 1, .top_p = 0.81, .seed = 5 }, drawn);
    assert_true(drawn[0] > 0 && drawn[2] == 0);
    draw_shares((struct alibi_sampling){ .temperature = 1, .top_p = 1e-9, .seed = 5 }, drawn);
    assert_close(drawn[1], 1, 1e-9);
}

static void scores_that_are_not_finite_are_refused(void **state)
{
    struct alibi_sampling s = { .temperature = 1, .top_p = 1 };
    struct candidate scratch[3];
    int32_t id;

    (void)state;
    assert_fails(sample_token(&id, (float[]){ 1, NAN, 0 }, 3, &s, 7, scratch), ALIBI_NUMERIC,
                 "token 7: the score of id 1");
    assert_fails(sample_token(&id, (float[]){ 1, 0, INFINITY }, 3, &s, 7, scratch), ALIBI_NUMERIC,
                 "id 2");
}

/* ---- pieces */

/* The emitted text; every piece must be whole characters. */
struct collected {
    char text[TEXT_MAX];
    size_t length;
    int calls, stop_after; /* 0: never */
};

static bool collect(void *user, const char *text, size_t bytes)
{
    struct collected *c = user;

    assert_true(bytes > 0);
    assert_int_equal(utf8_valid_prefix(text, bytes), bytes);
    assert_true(c->length + bytes < TEXT_MAX);
    memcpy(c->text + c->length, text, bytes);
    c->length += bytes;
    c->text[c->length] = '\0';
    c->calls++;
    return c->stop_after == 0 || c->calls < c->stop_after;
}

/* Feeds the bytes `step` at a time. */
static void check_pieces(const char *bytes, size_t count, size_t step, const char *expected)
{
    struct collected c = { .length = 0 };
    struct pieces p = { .emit = collect, .user = &c };

    for (size_t at = 0; at < count; at += step)
        assert_ok(pieces_add(&p, bytes + at, count - at < step ? count - at : step));
    pieces_end(&p);
    assert_string_equal(c.text, expected);
    text_free(&p.held);
}

#define R "\xEF\xBF\xBD"

static void bytes_come_out_as_whole_characters_or_replaced(void **state)
{
    static const struct {
        const char *bytes, *expected;
    } cases[] = {
        { "plain", "plain" },
        { "caf\xC3\xA9 3 \xE2\x82\xAC \xF0\x9F\x98\x80!",
          "caf\xC3\xA9 3 \xE2\x82\xAC \xF0\x9F\x98\x80!" },
        { "\x80x", R "x" },
        { "\xE2\x82x", R "x" },
        { "\xE2\x82\xE2\x82\xAC", R "\xE2\x82\xAC" },
        { "\xF0\x9F\x98", R },
        { "a\xC3", "a" R },
        { "\xC0\xAF", R R },
        { "\xE0\x80\x80", R R R },
        { "\xED\xA0\x80", R R R },
        { "\xED\x9F\xBF", "\xED\x9F\xBF" },
        { "\xF4\x90\x80\x80", R R R R },
        { "\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF" },
        { "\xFF\xFEz", R R "z" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 5; step++)
            check_pieces(cases[i].bytes, strlen(cases[i].bytes), step, cases[i].expected);
}

/* ---- generate */

static struct alibi_model new_model(const char *position)
{
    struct alibi_config c = tiny_bytes_config(position, 2, 8);
    struct alibi_model m = { 0 };

    assert_ok(model_new(&m.model, &c, &cpu, DTYPE_F32, false));
    assert_ok(tokenizer_new_bytes(&m.tokenizer));
    return m;
}

static struct alibi_model new_random_model(const char *position)
{
    struct alibi_model m = new_model(position);

    randomise(m.model, 9, 0.3);
    return m;
}

/* A model that always says `id`: only the last norm's bias and one row of the output layer are not
 * zero. */
static struct alibi_model new_stubborn_model(int32_t id)
{
    struct alibi_model m = new_model("none");

    for (int i = 0; i < m.model->count; i++)
        assert_ok(cpu.ops->fill(&cpu, m.model->parameters[i].value, 0.0));
    assert_ok(cpu.ops->fill(&cpu, m.model->parameters[m.model->norm_bias].value, 1.0));
    assert_ok(
        cpu.ops->fill(&cpu, tensor_rows(m.model->parameters[m.model->head].value, id, 1), 1.0));
    return m;
}

static void free_model(struct alibi_model m)
{
    model_free(m.model);
    alibi_tokenizer_free(m.tokenizer);
}

static bool collect_one(void *user, int which, const char *text, size_t bytes)
{
    assert_int_equal(which, 0);
    return collect(user, text, bytes);
}

static struct collected generate(struct alibi_model *m, const char *prompt,
                                 struct alibi_generation s)
{
    struct collected c = { .length = 0 };

    assert_ok(alibi_generate(m, &(struct alibi_prompt){ prompt, strlen(prompt) }, 1, &s,
                             collect_one, &c, NULL));
    return c;
}

/* Words come with blanks behind them, the last one of the prompt included if it has none; the end
 * of a line, the only end that words know, is text and ends nothing. */
static void words_are_written_with_blanks_and_go_on_after_a_line(void **state)
{
    struct alibi_generation s = { .tokens = 3, .sampling = { .temperature = 0, .top_p = 1 } };
    static const char *const expected[] = { " <unk> <unk> <unk> ", " \n\n\n", " w2 w2 w2 " };
    char names[V][8];
    struct slice words[V];

    (void)state;
    for (int i = 0; i < V; i++) {
        snprintf(names[i], sizeof names[i], i == 0 ? "<unk>" : i == 1 ? "<eos>" : "w%d", i);
        words[i] = (struct slice){ names[i], strlen(names[i]) };
    }
    for (int32_t id = 0; id < 3; id++) {
        struct alibi_model m = new_stubborn_model(id);
        alibi_tokenizer_free(m.tokenizer);
        assert_ok(tokenizer_new_words(&m.tokenizer, words, V));
        assert_string_equal(generate(&m, "w5 w6", s).text, expected[id]);
        assert_string_equal(generate(&m, "w5 new", s).text, expected[id]);
        assert_string_equal(generate(&m, "w5 w6 ", s).text, expected[id] + 1);
        assert_string_equal(generate(&m, "w5 w6\n", s).text, expected[id] + 1);
        assert_string_equal(generate(&m, "", s).text, expected[id] + 1);
        free_model(m);
    }
}

static void the_same_seed_writes_the_same_text(void **state)
{
    struct alibi_model m = new_random_model("alibi");
    struct alibi_generation s = { .tokens = 60,
                                  .sampling = { .temperature = 1, .top_p = 1, .seed = 11 } };
    struct collected a = generate(&m, "Once", s), b = generate(&m, "Once", s), c;

    (void)state;
    assert_string_equal(a.text, b.text);
    s.sampling.seed = 12;
    c = generate(&m, "Once", s);
    assert_string_not_equal(a.text, c.text);
    free_model(m);
}

static int32_t argmax(const float *logits)
{
    int32_t best = 0;

    for (int32_t v = 1; v < V; v++)
        if (logits[v] > logits[best])
            best = v;
    return best;
}

/* Greedy text by running the whole sequence through the model for each token, filtered like the
 * output is. */
static void naive_text(struct alibi_model *m, const char *prompt, int64_t tokens,
                       struct collected *c)
{
    int32_t ids[PROMPT_MAX];
    int64_t count = 0;
    float *logits = NULL;
    struct pieces p = { .emit = collect, .user = c };

    for (; prompt[count]; count++)
        ids[count] = (unsigned char)prompt[count];
    if (count == 0)
        ids[count++] = END;
    assert_ok(NEW_ARRAY(&logits, PROMPT_MAX * V, "logits"));
    for (int64_t i = 0; i < tokens; i++, count++) {
        char byte;

        assert_ok(once_logits(m->model, ids, 1, count, logits));
        ids[count] = argmax(logits + (count - 1) * V);
        if (ids[count] == END)
            break;
        byte = (char)ids[count];
        assert_ok(pieces_add(&p, &byte, 1));
    }
    pieces_end(&p);
    text_free(&p.held);
    mem_free(logits);
}

static void greedy_text_equals_the_argmax_of_the_whole_sequence_for_every_method(void **state)
{
    (void)state;
    for (int i = 0; alibi_position_name(i, NULL); i++) {
        struct alibi_model m = new_random_model(alibi_position_name(i, NULL));
        int64_t tokens =
            model_longest(m.model) < 25 ? 5 : 25; /* past the training length of 8 if it may */
        struct collected naive = { .length = 0 }, empty = { .length = 0 };

        naive_text(&m, "A b", tokens, &naive);
        assert_string_equal(
            generate(&m, "A b",
                     (struct alibi_generation){ .tokens = tokens, .sampling = { .top_p = 1 } })
                .text,
            naive.text);
        naive_text(&m, "", tokens, &empty);
        assert_string_equal(
            generate(&m, "",
                     (struct alibi_generation){ .tokens = tokens, .sampling = { .top_p = 1 } })
                .text,
            empty.text);
        free_model(m);
    }
}

static void a_prompt_prefilled_in_chunks_goes_on_as_if_read_at_once(void **state)
{
    struct alibi_model m = new_random_model("alibi");
    struct collected naive = { .length = 0 };
    char prompt[PROMPT_MAX];

    (void)state;
    for (int i = 0; i < 1300; i++)
        prompt[i] = (char)('a' + random_below(1, 2, (uint64_t)i, 26));
    prompt[1300] = '\0';
    naive_text(&m, prompt, 3, &naive);
    assert_string_equal(
        generate(&m, prompt, (struct alibi_generation){ .tokens = 3, .sampling = { .top_p = 1 } })
            .text,
        naive.text);
    free_model(m);
}

/* A random model writes mostly broken UTF-8; collect() checks every piece. */
static void no_piece_holds_half_a_character(void **state)
{
    struct alibi_model m = new_random_model("alibi");

    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct collected c = generate(
            &m, "",
            (struct alibi_generation){
                .tokens = 300, .sampling = { .temperature = 2, .top_p = 1, .seed = seed } });

        assert_true(c.length > 0);
    }
    free_model(m);
}

static void text_ends_at_the_end_of_the_document(void **state)
{
    struct alibi_model ends = new_stubborn_model(END), goes_on = new_stubborn_model('x');
    struct alibi_generation s = { .tokens = 5, .sampling = { .top_p = 1 } };

    (void)state;
    assert_int_equal(generate(&ends, "Hello", s).calls, 0);
    assert_string_equal(generate(&goes_on, "Hello", s).text, "xxxxx");
    s.tokens = 0;
    assert_int_equal(generate(&goes_on, "Hello", s).calls, 0);
    free_model(ends);
    free_model(goes_on);
}

static void half_a_character_at_the_end_is_replaced(void **state)
{
    struct alibi_model m = new_stubborn_model(0xE2);

    (void)state;
    assert_string_equal(
        generate(&m, "", (struct alibi_generation){ .tokens = 1, .sampling = { .top_p = 1 } }).text,
        R);
    assert_string_equal(
        generate(&m, "", (struct alibi_generation){ .tokens = 2, .sampling = { .top_p = 1 } }).text,
        R R);
    free_model(m);
}

static void the_receiver_can_stop(void **state)
{
    struct alibi_model m = new_stubborn_model('x');
    struct collected c = { .stop_after = 3 };
    struct alibi_generation s = { .tokens = 1000, .sampling = { .top_p = 1 } };

    (void)state;
    assert_ok(alibi_generate(&m, &(struct alibi_prompt){ "go", 2 }, 1, &s, collect_one, &c, NULL));
    assert_string_equal(c.text, "xxx");
    free_model(m);
}

static alibi_status try_generate(struct alibi_model *m, const char *prompt,
                                 struct alibi_generation s, struct collected *c)
{
    return alibi_generate(m, &(struct alibi_prompt){ prompt, strlen(prompt) }, 1, &s, collect_one,
                          c, test_call());
}

static void sampling_out_of_range_is_named(void **state)
{
    struct alibi_model m = new_stubborn_model('x');
    struct collected c = { .length = 0 };

    (void)state;
    assert_fails(try_generate(&m, "",
                              (struct alibi_generation){ .tokens = -1, .sampling = { .top_p = 1 } },
                              &c),
                 ALIBI_USAGE, "tokens -1");
    assert_fails(
        try_generate(&m, "",
                     (struct alibi_generation){ .tokens = INT64_MAX, .sampling = { .top_p = 1 } },
                     &c),
        ALIBI_USAGE, "tokens");
    assert_fails(
        try_generate(&m, "",
                     (struct alibi_generation){ .sampling = { .temperature = -0.1, .top_p = 1 } },
                     &c),
        ALIBI_USAGE, "temperature -0.1");
    assert_fails(
        try_generate(&m, "",
                     (struct alibi_generation){ .sampling = { .temperature = NAN, .top_p = 1 } },
                     &c),
        ALIBI_USAGE, "temperature");
    assert_fails(try_generate(&m, "",
                              (struct alibi_generation){ .sampling = { .top_k = -1, .top_p = 1 } },
                              &c),
                 ALIBI_USAGE, "top-k -1");
    assert_fails(try_generate(&m, "", (struct alibi_generation){ .sampling = { .top_p = 0 } }, &c),
                 ALIBI_USAGE, "top-p 0");
    assert_fails(
        try_generate(&m, "", (struct alibi_generation){ .sampling = { .top_p = 1.5 } }, &c),
        ALIBI_USAGE, "top-p 1.5");
    assert_fails(
        try_generate(&m, "a\xC3", (struct alibi_generation){ .sampling = { .top_p = 1 } }, &c),
        ALIBI_BAD_INPUT, "at byte 1");
    assert_int_equal(c.calls, 0);
    free_model(m);
}

/* Eight positions: a prompt of 3 leaves room to read 5 more, and the token after those is still
 * known. */
static void learned_positions_are_refused_before_the_first_token(void **state)
{
    struct alibi_model m = new_random_model("learned");
    struct collected c = { .length = 0 };

    (void)state;
    assert_fails(try_generate(&m, "abc",
                              (struct alibi_generation){ .tokens = 7, .sampling = { .top_p = 1 } },
                              &c),
                 ALIBI_BAD_INPUT, "a prompt of 3 tokens and 7 more");
    assert_non_null(strstr(alibi_error(), "8"));
    assert_int_equal(c.calls, 0);
    assert_ok(try_generate(
        &m, "abc", (struct alibi_generation){ .tokens = 6, .sampling = { .top_p = 1 } }, &c));
    free_model(m);
}

static void a_stop_request_interrupts_the_calls_that_have_it(void **state)
{
    struct alibi_model m = new_stubborn_model('x');
    struct collected c = { .length = 0 };
    struct alibi_generation s = { .tokens = 2, .sampling = { .top_p = 1 } };

    (void)state;
    alibi_stop_request(&test_stop);
    assert_fails(try_generate(&m, "go", s, &c), ALIBI_INTERRUPTED, "stopped after 0 of 2 tokens");
    test_watch(NULL, NULL, NULL);
    assert_ok(try_generate(&m, "go", s, &c));
    assert_string_equal(c.text, "xx");
    free_model(m);
}

static void every_failing_allocation_is_reported_and_nothing_leaks(void **state)
{
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;

    (void)state;
    for (int64_t n = 1; status != ALIBI_OK; n++) {
        struct alibi_model m = new_stubborn_model('x');
        struct collected c = { .length = 0 };

        assert_ok(alibi_inject_fault("memory", n));
        status = try_generate(
            &m, "go", (struct alibi_generation){ .tokens = 3, .sampling = { .top_p = 1 } }, &c);
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_true(n < 1000);
        free_model(m);
        assert_int_equal(alibi_memory_now(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_starts_with_the_begin_token_once),
        cmocka_unit_test(temperature_zero_takes_the_likeliest_and_the_first_of_equals),
        cmocka_unit_test(tokens_are_drawn_with_their_probabilities),
        cmocka_unit_test(temperature_sharpens_the_distribution),
        cmocka_unit_test(top_k_keeps_the_k_likeliest),
        cmocka_unit_test(top_p_keeps_the_fewest_that_reach_the_share),
        cmocka_unit_test(scores_that_are_not_finite_are_refused),
        cmocka_unit_test(bytes_come_out_as_whole_characters_or_replaced),
        cmocka_unit_test(the_same_seed_writes_the_same_text),
        cmocka_unit_test(words_are_written_with_blanks_and_go_on_after_a_line),
        cmocka_unit_test(greedy_text_equals_the_argmax_of_the_whole_sequence_for_every_method),
        cmocka_unit_test(a_prompt_prefilled_in_chunks_goes_on_as_if_read_at_once),
        cmocka_unit_test(no_piece_holds_half_a_character),
        cmocka_unit_test(text_ends_at_the_end_of_the_document),
        cmocka_unit_test(half_a_character_at_the_end_is_replaced),
        cmocka_unit_test(the_receiver_can_stop),
        cmocka_unit_test(sampling_out_of_range_is_named),
        cmocka_unit_test(learned_positions_are_refused_before_the_first_token),
        cmocka_unit_test(a_stop_request_interrupts_the_calls_that_have_it),
        cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_leaks),
    };

    omp_set_num_threads(1); /* for models this small threads only cost time */
    cpu.ops = ops_cpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
