/* Tasks: a solver that knows the form of a task and nothing else finds every answer by reading the
 * window; windows are a function of their number; what is too small is refused by name. */
#include "check.h"
#include "text/tasks.h"

enum { ASK = 1, NOTE, WRITE, PAIRS, COPY, CHAIN }; /* marks, counted from the end of the ids */
enum { LONGEST = 5000, KINDS = 8 };

/* A vocabulary of `count` words: <unk>, <eos>, the digits, those of the pass key, then others. */
static alibi_tokenizer *word_tokenizer(int count)
{
    static char names[600][16] = { [12] = "The", [13] = "pass", [14] = "key", [15] = "is" };
    struct slice words[600] = { { "<unk>", 5 }, { "<eos>", 5 } };
    alibi_tokenizer *t = NULL;

    for (int i = 2; i < count; i++) {
        if (i < 12 || i > 15)
            snprintf(names[i], sizeof names[i], i < 12 ? "%d" : "w%d", i < 12 ? i - 2 : i);
        words[i] = (struct slice){ names[i], strlen(names[i]) };
    }
    assert_ok(tokenizer_new_words(&t, words, count));
    return t;
}

static alibi_tokenizer *byte_tokenizer(void)
{
    alibi_tokenizer *t = NULL;

    assert_ok(alibi_tokenizer_open(&t, NULL, NULL));
    return t;
}

/* Its tokens count up, so that a haystack shows where it comes from. */
static alibi_corpus *counting_corpus(void)
{
    static char text[3 * LONGEST];
    const char *texts[] = { text };
    alibi_corpus *c = NULL;

    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)(' ' + i % 90);
    assert_ok(corpus_from_texts(&c, texts, 1));
    return c;
}

static struct task_windows windows_of(const struct task *task, const alibi_corpus *c, int64_t near,
                                      int64_t length)
{
    return (struct task_windows){ .task = task,
                                  .text = corpus_span(c, ALIBI_ALL),
                                  .near = near,
                                  .length = length,
                                  .seed = 3,
                                  .use = TASK_PROBE };
}

/* All tokens [length + 1] of a window. */
static int read_window(const struct task_windows *w, int64_t number, int32_t *tokens,
                       struct task_answer *answers)
{
    static int32_t inputs[LONGEST];
    int count = task_window(w, number, inputs, tokens + 1, answers);

    tokens[0] = inputs[0];
    assert_memory_equal(inputs, tokens, (size_t)w->length * sizeof *tokens);
    return count;
}

/* ---- the solver */

struct puzzle {
    const alibi_tokenizer *tokenizer;
    const int32_t *tokens; /* the window as far as it may be read */
    int64_t known;
};

static int32_t mark(const struct puzzle *p, int which)
{
    int32_t end = alibi_tokenizer_end(p->tokenizer);
    int32_t id = (int32_t)alibi_tokenizer_vocab(p->tokenizer) - which;

    return id <= end ? id - 1 : id;
}

/* Where the last copy of the `count` tokens at `pattern` begins before `before`; -1: nowhere. */
static int64_t find_last(const struct puzzle *p, const int32_t *pattern, int64_t count,
                         int64_t before)
{
    for (int64_t i = before - count; i >= 0; i--)
        if (memcmp(p->tokens + i, pattern, (size_t)count * sizeof *pattern) == 0)
            return i;
    return -1;
}

/* The digits after the first sentence that begins like the last one. */
static int32_t solve_passkey(const struct puzzle *p, int64_t place)
{
    int32_t *before = NULL;
    int64_t count, asked, first;

    assert_ok(alibi_tokenizer_encode(p->tokenizer, "\nThe pass key is ", 17, &before, &count));
    asked = find_last(p, before, count, p->known - place);
    assert_int_equal(asked + count + place, p->known);
    first = find_last(p, before, count, asked);
    assert_true(first >= 0);
    alibi_ids_free(before);
    return p->tokens[first + count + place];
}

static int32_t solve(const struct puzzle *p, const char *task, int64_t place)
{
    const int32_t *last = p->tokens + p->known;
    int32_t pattern[3];
    int64_t at;

    if (strncmp(task, "passkey", 7) == 0)
        return solve_passkey(p, place);
    if (strncmp(task, "needles", 7) == 0) { /* [ask] a b: the note with that key */
        pattern[0] = mark(p, NOTE);
        pattern[1] = last[-2];
        pattern[2] = last[-1];
        assert_int_equal(last[-3], mark(p, ASK));
        at = find_last(p, pattern, 3, p->known);
        assert_true(at >= 0);
        assert_int_equal(find_last(p, pattern, 3, at), -1); /* its only note */
        return p->tokens[at + 3];
    }
    if (strcmp(task, "latest") == 0) {
        pattern[0] = mark(p, WRITE);
        assert_int_equal(last[-1], mark(p, ASK));
        at = find_last(p, pattern, 1, p->known);
        assert_true(find_last(p, pattern, 1, at) >= 0); /* written twice at least */
        return p->tokens[at + 1];
    }
    if (strcmp(task, "recall") == 0) { /* [ask] a: the pair with that key, in the list */
        pattern[0] = mark(p, PAIRS);
        assert_int_equal(last[-2], mark(p, ASK));
        at = find_last(p, pattern, 1, p->known) + 1;
        while (p->tokens[at] != last[-1])
            at += 2;
        assert_true(at + 1 < p->known - 2);
        return p->tokens[at + 1];
    }
    assert_string_equal(task, "induction");
    pattern[0] = mark(p, COPY);
    at = find_last(p, pattern, 1, p->known - place - 1);
    assert_int_equal(p->tokens[p->known - place - 1], mark(p, COPY));
    return p->tokens[at + 1 + place];
}

static void check_windows(const alibi_tokenizer *t, const alibi_corpus *c, int kind, int64_t near,
                          int64_t length)
{
    const char *name = alibi_task_name(kind, NULL);
    struct task *task = NULL;
    struct task_windows w;
    static int32_t tokens[LONGEST + 2];

    assert_ok(task_new(&task, kind, t));
    w = windows_of(task, c, near, length);
    assert_ok(task_check(&w));
    for (int64_t number = 0; number < 20; number++) {
        struct task_answer answers[TASK_ANSWERS_MAX];
        int count;

        tokens[length + 1] = -7;
        count = read_window(&w, number, tokens, answers);
        assert_int_equal(tokens[length + 1], -7);
        assert_in_range(count, 1, TASK_ANSWERS_MAX);
        assert_int_equal(answers[count - 1].first + answers[count - 1].count, length);
        for (int64_t i = 0; i <= length; i++) /* the text is of bytes, whatever the vocabulary */
            assert_in_range(tokens[i], 0,
                            task_kind_needs_text(task_kind(task)) ? 599
                                                                  : alibi_tokenizer_vocab(t) - 1);
        for (int a = 0; a < count; a++) {
            assert_true(answers[a].depth >= 0 && answers[a].depth <= 1);
            for (int64_t i = 0; i < answers[a].count && !task_traits(task).chain; i++) {
                int64_t place = answers[a].first + 1 + i;

                assert_int_equal(solve(&(struct puzzle){ t, tokens, place }, name, i),
                                 tokens[place]);
            }
        }
    }
    task_free(task);
}

static void every_answer_is_found_by_reading_the_window(void **state)
{
    static const int64_t near[] = { 128, 128, 64, 100, 512 },
                         length[] = { 128, 1024, 512, 317, 4096 };
    alibi_tokenizer *bytes = byte_tokenizer(), *words = word_tokenizer(600);
    alibi_corpus *c = counting_corpus();

    (void)state;
    assert_null(alibi_task_name(KINDS, NULL));
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 5; i++) {
            check_windows(bytes, c, kind, near[i], length[i]);
            check_windows(words, c, kind, near[i], length[i]);
        }
    alibi_corpus_free(c);
    alibi_tokenizer_free(bytes);
    alibi_tokenizer_free(words);
}

/* The shortest window has one token of haystack; one token less is refused. */
static void the_smallest_vocabularies_and_lengths_work_and_smaller_ones_are_refused(void **state)
{
    static const int least[KINDS] = { 16, 16, 9, 9, 9, 12, 10, 9 };
    alibi_corpus *c = counting_corpus();

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        const char *name = alibi_task_name(kind, NULL);
        alibi_tokenizer *small = word_tokenizer(least[kind] - 1);
        struct task *task = NULL;

        assert_fails(task_new(&task, kind, small), ALIBI_BAD_INPUT, name);
        alibi_tokenizer_free(small);
        for (int vocab = least[kind]; vocab < least[kind] + 150; vocab += vocab < 40 ? 1 : 37) {
            alibi_tokenizer *t = word_tokenizer(vocab);
            struct task_windows w;
            int64_t length = 1;

            assert_ok(task_new(&task, kind, t));
            for (;; length++) {
                w = windows_of(task, c, length, length);
                if (task_check(&w) == ALIBI_OK)
                    break;
                assert_fails(task_check(&w), ALIBI_BAD_INPUT, name);
                assert_true(length < 40);
            }
            check_windows(t, c, kind, length, length);
            /* Past it, windows of every length; 4 keys are all that a vocabulary of 9 has. */
            for (int64_t longer = length + 1; longer < 2 * length + 60; longer++) {
                w = windows_of(task, c, length, longer);
                if (strcmp(name, "needles-growing") != 0 || longer / length <= 4)
                    check_windows(t, c, kind, length, longer);
            }
            task_free(task);
            alibi_tokenizer_free(t);
        }
    }
    alibi_corpus_free(c);
}

static void what_is_missing_is_named(void **state)
{
    alibi_tokenizer *bytes = byte_tokenizer(), *small = word_tokenizer(9),
                    *no_words = word_tokenizer(15);
    alibi_corpus *c = counting_corpus();
    struct task *task = NULL;
    struct task_windows w;

    (void)state;
    assert_fails(task_new(&task, task_find("passkey"), small), ALIBI_BAD_INPUT, "for '7'");
    assert_fails(task_new(&task, task_find("passkey"), no_words), ALIBI_BAD_INPUT,
                 "'The pass key is', and the tokenizer does not know all");
    alibi_tokenizer_free(no_words);
    assert_ok(task_new(&task, task_find("Needles"), bytes));
    w = windows_of(task, c, 128, 4 * LONGEST);
    assert_fails(task_check(&w), ALIBI_BAD_INPUT, "too few to hide");
    w.text.corpus = NULL;
    assert_fails(task_check(&w), ALIBI_USAGE, "add a text");
    w = windows_of(task, c, 128, 31);
    assert_fails(task_check(&w), ALIBI_BAD_INPUT, "at least 32 tokens; the length is 31");
    w.near = 0;
    assert_fails(task_check(&w), ALIBI_USAGE, "1 or more");
    task_free(task);
    assert_ok(task_new(&task, task_find("needles-growing"), small));
    w = windows_of(task, c, 64, 128);
    assert_fails(task_check(&w), ALIBI_BAD_INPUT,
                 "8 keys in windows of 128 tokens, and there are "
                 "only 4");
    task_free(task);
    assert_int_equal(task_find("needle"), -1);
    alibi_corpus_free(c);
    alibi_tokenizer_free(bytes);
    alibi_tokenizer_free(small);
}

/* ---- windows are a function of seed, use and number */

static void a_window_is_a_function_of_seed_use_and_number(void **state)
{
    enum { L = 200 };
    alibi_tokenizer *t = byte_tokenizer();
    alibi_corpus *c = counting_corpus();
    struct task_answer answers[TASK_ANSWERS_MAX];
    int32_t first[L + 1], again[L + 1], other[L + 1];

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct task *task = NULL;
        struct task_windows w, changed;

        assert_ok(task_new(&task, kind, t));
        w = windows_of(task, c, 128, L);
        read_window(&w, 5, first, answers);
        read_window(&w, 4, other, answers);
        assert_memory_not_equal(first, other, sizeof first);
        read_window(&w, 5, again, answers);
        assert_memory_equal(first, again, sizeof first);
        changed = w;
        changed.seed = 4;
        read_window(&changed, 5, other, answers);
        assert_memory_not_equal(first, other, sizeof first);
        changed = w;
        changed.use = TASK_TRAIN;
        read_window(&changed, 5, other, answers);
        assert_memory_not_equal(first, other, sizeof first);
        task_free(task);
    }
    alibi_corpus_free(c);
    alibi_tokenizer_free(t);
}

/* Without the two sentences the window is a stretch of the text. */
static void a_pass_key_is_hidden_in_consecutive_text_at_every_depth(void **state)
{
    enum { L = 400, SENTENCE = 17 + 5 + 2, CASES = 100 };
    alibi_tokenizer *t = byte_tokenizer();
    alibi_corpus *c = counting_corpus();
    struct task *task = NULL;
    struct task_windows w;
    int depths[5] = { 0 };

    (void)state;
    assert_ok(task_new(&task, task_find("passkey"), t));
    w = windows_of(task, c, L, L);
    for (int64_t number = 0; number < CASES; number++) {
        struct task_answer answer[TASK_ANSWERS_MAX];
        int32_t tokens[L + 1], hay[L + 1], text[L + 1];
        int64_t count = L + 1 - 2 * SENTENCE + 2, gap, from = 0;

        assert_int_equal(read_window(&w, number, tokens, answer), 1);
        assert_int_equal(answer[0].count, 5);
        gap = llround(answer[0].depth * (double)count);
        memcpy(hay, tokens, (size_t)gap * sizeof *hay);
        memcpy(hay + gap, tokens + gap + SENTENCE, (size_t)(count - gap) * sizeof *hay);
        do
            span_read(w.text, from, count, text);
        while (memcmp(text, hay, (size_t)count * sizeof *hay) != 0 && from++ < 90);
        assert_true(from < 90); /* the text repeats after 90 letters */
        depths[answer[0].depth < 1 ? (int)(5 * answer[0].depth) : 4]++;
    }
    for (int d = 0; d < 5; d++)
        assert_in_range(depths[d], CASES / 5 - 2, CASES / 5 + 2);
    task_free(task);
    alibi_corpus_free(c);
    alibi_tokenizer_free(t);
}

/* ---- the chain */

/* The probability of a whole window in closed form: for each row of counts c with k states,
 * G(k a) / G(k a + sum c) * prod G(a + c_j) / G(a). */
static double closed_form(const int32_t *states, int64_t count, int k, double a)
{
    double nll = log(k);

    for (int i = 0; i < k; i++) {
        double total = 0;

        for (int j = 0; j < k; j++) {
            double c = 0;

            for (int64_t n = 1; n < count; n++)
                c += states[n - 1] == i && states[n] == j;
            nll -= lgamma(a + c) - lgamma(a);
            total += c;
        }
        nll -= lgamma(k * a) - lgamma(k * a + total);
    }
    return nll;
}

static void bayes_loss_is_the_closed_form_of_the_window(void **state)
{
    static const int64_t near[] = { 64, 128, 512, 2048 };
    alibi_tokenizer *t = byte_tokenizer();
    alibi_corpus *c = counting_corpus();
    struct task *task = NULL;

    (void)state;
    assert_ok(task_new(&task, task_find("markov"), t));
    for (int i = 0; i < 4; i++) {
        struct task_windows w = windows_of(task, c, near[i], 700);
        int k = near[i] / 32 < 32 ? (int)near[i] / 32 : 32;
        struct task_answer answer[TASK_ANSWERS_MAX];
        int32_t tokens[701];
        double nll[700], sum = 0;

        assert_int_equal(read_window(&w, 9, tokens, answer), 1);
        assert_int_equal(tokens[0], 256 - CHAIN);
        for (int n = 1; n <= 700; n++) { /* the states are the ids before the marks */
            tokens[n] = 256 - CHAIN - 1 - tokens[n];
            assert_in_range(tokens[n], 0, k - 1);
        }
        read_window(&w, 9, tokens, answer);
        task_bayes(&w, tokens + 1, nll);
        for (int n = 0; n < 700; n++)
            sum += nll[n];
        for (int n = 1; n <= 700; n++)
            tokens[n] = 256 - CHAIN - 1 - tokens[n];
        assert_true(fabs(sum - closed_form(tokens + 1, 700, k, 0.25)) < 1e-8);
        assert_true(fabs(task_chance(&w) - log(k)) < 1e-12);
    }
    task_free(task);
    alibi_corpus_free(c);
    alibi_tokenizer_free(t);
}

/* Over many windows the chain is what Dirichlet rows give: the chance that the second visit of a
 * state leads where the first did is (1 + a) / (1 + k a). */
static void transitions_repeat_as_often_as_dirichlet_rows_say(void **state)
{
    enum { L = 100, WINDOWS = 4000, K = 4 };
    alibi_tokenizer *t = byte_tokenizer();
    alibi_corpus *c = counting_corpus();
    struct task *task = NULL;
    struct task_windows w;
    double visits = 0, same = 0, expected = (1 + 0.25) / (1 + K * 0.25);

    (void)state;
    assert_ok(task_new(&task, task_find("markov"), t));
    w = windows_of(task, c, 32 * K, L);
    for (int64_t number = 0; number < WINDOWS; number++) {
        struct task_answer answer[TASK_ANSWERS_MAX];
        int32_t tokens[L + 1], first = -1;

        read_window(&w, number, tokens, answer);
        for (int n = 2; n <= L; n++) { /* the state of the first token, without a word of itself */
            if (tokens[n - 1] != tokens[1])
                continue;
            if (first < 0) {
                first = tokens[n];
                continue;
            }
            visits++;
            same += tokens[n] == first;
            break;
        }
    }
    assert_true(visits > WINDOWS / 2);
    assert_true(fabs(same / visits - expected) < 4 * sqrt(expected * (1 - expected) / visits));
    task_free(task);
    alibi_corpus_free(c);
    alibi_tokenizer_free(t);
}

/* ---- faults */

static alibi_status make_task(void *tokenizer)
{
    struct task *task = NULL;
    alibi_status status = task_new(&task, task_find("passkey-filler"), tokenizer);

    task_free(task);
    return status;
}

static void a_task_without_memory_leaks_nothing(void **state)
{
    alibi_tokenizer *t = byte_tokenizer();

    (void)state;
    assert_true(fail_each_call("memory", make_task, t, ALIBI_MEMORY, "") >= 4);
    alibi_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_found_by_reading_the_window),
        cmocka_unit_test(the_smallest_vocabularies_and_lengths_work_and_smaller_ones_are_refused),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(a_window_is_a_function_of_seed_use_and_number),
        cmocka_unit_test(a_pass_key_is_hidden_in_consecutive_text_at_every_depth),
        cmocka_unit_test(bayes_loss_is_the_closed_form_of_the_window),
        cmocka_unit_test(transitions_repeat_as_often_as_dirichlet_rows_say),
        cmocka_unit_test(a_task_without_memory_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
