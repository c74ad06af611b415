/* test_batches.c - windows of a split in their order, and the loader that reads ahead */
#include "check.h"
#include "text/tasks.h"

/* Where in the text a window starts, or -1. */
static int64_t start_of(const int32_t *window, const int32_t *text, int64_t count, int64_t length)
{
    for (int64_t i = 0; i + length <= count; i++)
        if (memcmp(text + i, window, (size_t)length * sizeof *window) == 0)
            return i;
    return -1;
}

struct reading {
    struct batches batches;
    int32_t *text; /* all tokens of the span */
    int32_t *tokens, *targets;
};

static void begin_reading(struct reading *r, struct span span, int64_t length, int64_t batch,
                          uint64_t seed)
{
    size_t row = (size_t)(batch * length) * sizeof(int32_t);

    assert_ok(batches_init(&r->batches, span, length, batch, seed));
    r->text = malloc((size_t)span.count * sizeof(int32_t));
    r->tokens = malloc(row);
    r->targets = malloc(row);
    assert_true(r->text != NULL && r->tokens != NULL && r->targets != NULL);
    span_read(span, 0, span.count, r->text);
}

static void end_reading(struct reading *r)
{
    free(r->text);
    free(r->tokens);
    free(r->targets);
}

/* A line of three digits and a line end per number: every window of 8 tokens or more is found at
 * one place only. */
static alibi_corpus *count_corpus(int lines)
{
    char *text = malloc((size_t)lines * 4 + 1);
    alibi_corpus *c = NULL;

    assert_non_null(text);
    for (int i = 0; i < lines; i++)
        sprintf(text + 4 * i, "%03d\n", i % 1000);
    assert_ok(corpus_from_texts(&c, (const char *const[]){ text }, 1));
    free(text);
    return c;
}

static void targets_are_the_tokens_that_follow(void **state)
{
    alibi_corpus *c = count_corpus(400);
    struct reading r;

    (void)state;
    begin_reading(&r, corpus_span(c, ALIBI_TRAIN), 16, 4, 1);
    for (int64_t n = 0; n < 100; n++) {
        batches_read(&r.batches, n, r.tokens, r.targets);
        for (int64_t row = 0; row < 4; row++) {
            int64_t start = start_of(r.tokens + row * 16, r.text, r.batches.spans[0].count, 16);
            assert_true(start >= 0 && start + 17 <= r.batches.spans[0].count);
            assert_memory_equal(r.targets + row * 16, r.text + start + 1, 16 * sizeof(int32_t));
        }
    }
    end_reading(&r);
    alibi_corpus_free(c);
}

/* Reads `epochs` epochs of `windows` windows each, one per batch, and checks that each epoch has
 * every window once. */
static void assert_epochs(struct reading *r, int64_t windows, int epochs)
{
    int64_t length = r->batches.length;
    bool *seen = calloc((size_t)windows, sizeof *seen);

    assert_non_null(seen);
    for (int e = 0; e < epochs; e++) {
        int64_t offset = -1;
        memset(seen, 0, (size_t)windows * sizeof *seen);
        for (int64_t i = 0; i < windows; i++) {
            int64_t start;
            batches_read(&r->batches, e * windows + i, r->tokens, r->targets);
            start = start_of(r->tokens, r->text, r->batches.spans[0].count, length);
            offset = offset < 0 ? start % length : offset;
            assert_int_equal(start % length, offset);
            assert_in_range(start / length, 0, windows - 1);
            assert_false(seen[start / length]);
            seen[start / length] = true;
        }
    }
    free(seen);
}

static void every_epoch_has_every_window_once(void **state)
{
    alibi_corpus *c = count_corpus(300);
    struct span span = corpus_span(c, ALIBI_TRAIN);
    struct reading r;

    (void)state;
    for (int64_t length = 8; length < 80; length += 7) {
        begin_reading(&r, span, length, 1, 5);
        assert_epochs(&r, span.count / length - 1, 6);
        end_reading(&r);
    }
    alibi_corpus_free(c);
}

static void epochs_differ_in_offset_and_order(void **state)
{
    alibi_corpus *c = count_corpus(900);
    struct span span = corpus_span(c, ALIBI_TRAIN);
    int64_t windows = span.count / 32 - 1, offsets = 0, same_place = 0;
    struct reading r;

    (void)state;
    begin_reading(&r, span, 32, 1, 9);
    for (int64_t e = 0; e < 20; e++) {
        int64_t first, next;
        batches_read(&r.batches, e * windows, r.tokens, r.targets);
        first = start_of(r.tokens, r.text, span.count, 32);
        batches_read(&r.batches, (e + 1) * windows, r.tokens, r.targets);
        next = start_of(r.tokens, r.text, span.count, 32);
        offsets += first % 32 != next % 32;
        same_place += first / 32 == next / 32;
    }
    assert_true(offsets > 12);
    assert_true(same_place < 5);
    end_reading(&r);
    alibi_corpus_free(c);
}

/* Resuming is reading from a number on: what was read before, or not, does not matter. */
static void batch_is_a_function_of_its_number(void **state)
{
    enum { LENGTH = 24, ROWS = 6, BATCHES = 80, ROW = LENGTH * ROWS };
    alibi_corpus *c = count_corpus(500);
    int32_t *all = malloc(sizeof(int32_t) * ROW * BATCHES);
    struct reading r, again;

    (void)state;
    assert_non_null(all);
    begin_reading(&r, corpus_span(c, ALIBI_TRAIN), LENGTH, ROWS, 3);
    for (int64_t n = 0; n < BATCHES; n++)
        batches_read(&r.batches, n, all + n * ROW, r.targets);
    begin_reading(&again, corpus_span(c, ALIBI_TRAIN), LENGTH, ROWS, 3);
    for (int64_t n = BATCHES - 1; n >= 0; n--) {
        batches_read(&again.batches, n, again.tokens, again.targets);
        assert_memory_equal(again.tokens, all + n * ROW, sizeof(int32_t) * ROW);
    }
    end_reading(&r);
    end_reading(&again);
    free(all);
    alibi_corpus_free(c);
}

static void other_seed_gives_other_batches(void **state)
{
    alibi_corpus *c = count_corpus(500);
    struct reading a, b;

    (void)state;
    begin_reading(&a, corpus_span(c, ALIBI_TRAIN), 24, 4, 1);
    begin_reading(&b, corpus_span(c, ALIBI_TRAIN), 24, 4, 2);
    batches_read(&a.batches, 0, a.tokens, a.targets);
    batches_read(&b.batches, 0, b.tokens, b.targets);
    assert_memory_not_equal(a.tokens, b.tokens, 24 * 4 * sizeof(int32_t));
    end_reading(&a);
    end_reading(&b);
    alibi_corpus_free(c);
}

/* From one window that just fits to a few: all tokens read are of the span, whatever the offset. */
static void no_window_leaves_a_short_span(void **state)
{
    alibi_corpus *c = count_corpus(60);
    struct span all = corpus_span(c, ALIBI_ALL);

    (void)state;
    for (int64_t count = 11; count < 60; count++) {
        struct span span = { .corpus = c, .first = 40, .count = count };
        struct reading r;
        begin_reading(&r, span, 10, 3, 7);
        for (int64_t n = 0; n < 40; n++) {
            batches_read(&r.batches, n, r.tokens, r.targets);
            for (int row = 0; row < 3; row++) {
                int64_t start = start_of(r.tokens + row * 10, r.text, span.count, 10);
                assert_true(start >= 0 && start + 11 <= span.count && start + 40 < all.count);
            }
        }
        end_reading(&r);
    }
    alibi_corpus_free(c);
}

static void text_shorter_than_a_window_is_refused(void **state)
{
    alibi_corpus *c = NULL;
    struct span span;
    struct batches b;

    (void)state;
    assert_ok(corpus_from_texts(&c, (const char *const[]){ "0123456789" }, 1));
    span = corpus_span(c, ALIBI_TRAIN);
    assert_int_equal(span.count, 11);
    assert_ok(batches_init(&b, span, 10, 1, 1));
    assert_fails(batches_init(&b, span, 11, 1, 1), ALIBI_BAD_INPUT,
                 "the training text has 11 tokens");
    assert_fails(batches_init(&b, span, INT64_MAX, 1, 1), ALIBI_BAD_INPUT, "11 tokens");
    assert_fails(batches_init(&b, (struct span){ .corpus = c }, 1, 1, 1), ALIBI_BAD_INPUT,
                 "0 tokens");
    assert_fails(batches_init(&b, span, 0, 1, 1), ALIBI_USAGE, "at least 1");
    assert_fails(batches_init(&b, span, 4, 0, 1), ALIBI_USAGE, "at least 1");
    alibi_corpus_free(c);
}

/* ---- loader */

static void loader_gives_the_batches_in_any_order(void **state)
{
    enum { LENGTH = 12, ROWS = 3, ROW_BYTES = LENGTH * ROWS * sizeof(int32_t) };
    static const int64_t numbers[] = { 0, 1, 2,    3,    9,    10, 4, 4, 5,
                                       3, 2, 1000, 1001, 1002, 0,  1, 1, 7 };
    alibi_corpus *c = count_corpus(400);
    struct reading r;
    struct loader *l = NULL;

    (void)state;
    begin_reading(&r, corpus_span(c, ALIBI_TRAIN), LENGTH, ROWS, 8);
    assert_ok(loader_new(&l, &r.batches));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const int32_t *tokens = NULL, *targets = NULL;
        assert_ok(loader_get(l, numbers[i], numbers[i] + 1 + (int64_t)i % 3, &tokens, &targets));
        batches_read(&r.batches, numbers[i], r.tokens, r.targets);
        assert_memory_equal(tokens, r.tokens, ROW_BYTES);
        assert_memory_equal(targets, r.targets, ROW_BYTES);
    }
    loader_free(l);
    end_reading(&r);
    alibi_corpus_free(c);
}

/* The next batch is read meanwhile, into another place. */
static void a_lent_batch_stays_until_the_next_is_asked_for(void **state)
{
    enum { LENGTH = 64, ROWS = 50, ROW_BYTES = LENGTH * ROWS * sizeof(int32_t) };
    alibi_corpus *c = count_corpus(900);
    struct reading r;
    struct loader *l = NULL;

    (void)state;
    begin_reading(&r, corpus_span(c, ALIBI_TRAIN), LENGTH, ROWS, 8);
    assert_ok(loader_new(&l, &r.batches));
    for (int64_t n = 0; n < 200; n++) {
        const int32_t *tokens = NULL, *targets = NULL;
        assert_ok(loader_get(l, n, n + 1, &tokens, &targets));
        for (int again = 0; again < 3; again++) {
            batches_read(&r.batches, n, r.tokens, r.targets);
            assert_memory_equal(tokens, r.tokens, ROW_BYTES);
            assert_memory_equal(targets, r.targets, ROW_BYTES);
        }
    }
    loader_free(l);
    end_reading(&r);
    alibi_corpus_free(c);
}

static alibi_status start_loader(void *batches)
{
    struct loader *l = NULL;
    alibi_status status = loader_new(&l, batches);

    loader_free(l);
    return status;
}

static void a_loader_without_memory_leaks_nothing(void **state)
{
    alibi_corpus *c = count_corpus(400);
    struct batches b;

    (void)state;
    assert_ok(batches_init(&b, corpus_span(c, ALIBI_TRAIN), 8, 2, 1));
    assert_true(fail_each_call("memory", start_loader, &b, ALIBI_MEMORY, "") >= 5);
    assert_ok(batches_init(&b, corpus_span(c, ALIBI_TRAIN), 8, INT64_MAX / 2, 1));
    assert_fails(loader_new(&(struct loader *){ NULL }, &b), ALIBI_MEMORY, "does not fit");
    alibi_corpus_free(c);
}

/* Texts of one letter each: the windows tell where they come from. */
static void a_mixture_has_its_shares_in_every_ten_thousand_windows(void **state)
{
    enum { L = 4, BATCH = 10, WINDOWS = 10000 };
    const double shares[] = { 5, 3, 2 };
    alibi_corpus *parts[3] = { NULL }, *mix = NULL;
    int32_t tokens[BATCH * L], again[BATCH * L], targets[BATCH * L];
    struct batches b;
    int counts[3] = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        char text[800];
        const char *texts[] = { text };
        memset(text, 'a' + i, sizeof text - 1);
        text[sizeof text - 1] = '\0';
        assert_ok(corpus_from_texts(&parts[i], texts, 1));
    }
    assert_fails(alibi_corpus_mix(&mix, parts, shares, 1), ALIBI_USAGE, "2 to 32");
    assert_ok(alibi_corpus_mix(&mix, parts, shares, 3));
    assert_ok(batches_of_corpus(&b, mix, L, BATCH, 7));
    for (int64_t n = 0; n < WINDOWS / BATCH; n++) {
        batches_read(&b, n, tokens, targets);
        for (int row = 0; row < BATCH; row++)
            counts[tokens[row * L] - 'a']++;
        if (n == 99) /* any stretch is near the shares */
            assert_true(abs(counts[0] - 500) < 100 && abs(counts[2] - 200) < 80);
    }
    assert_int_equal(counts[0], 5000);
    assert_int_equal(counts[1], 3000);
    assert_int_equal(counts[2], 2000);
    batches_read(&b, 123, tokens, targets);
    batches_read(&b, 9, again, targets);
    batches_read(&b, 123, again, targets); /* a function of the number alone */
    assert_memory_equal(tokens, again, sizeof tokens);
    alibi_corpus_free(mix);
}

/* A text, a task in that text, and one of noise, of which only answers are trained. */
static alibi_status mix_tasks(void *out)
{
    static const double shares[] = { 0.6, 0.3, 0.1 };
    char text[3000] = "";
    const char *texts[] = { text };
    alibi_corpus *parts[3] = { NULL }, *mix = NULL;
    alibi_status status;

    memset(text, 'a', sizeof text - 1);
    status = corpus_from_texts(&parts[0], texts, 1);
    if (status == ALIBI_OK)
        status = alibi_corpus_task(&parts[1], "needles", corpus_tokenizer(parts[0]));
    if (status == ALIBI_OK)
        status = alibi_corpus_task(&parts[2], "induction", corpus_tokenizer(parts[0]));
    if (status == ALIBI_OK)
        status = alibi_corpus_mix(&mix, parts, shares, 3);
    for (int i = 0; i < 3 && status != ALIBI_OK; i++)
        alibi_corpus_free(parts[i]);
    if (out != NULL)
        *(alibi_corpus **)out = mix;
    else
        alibi_corpus_free(mix);
    return status;
}

static void tasks_have_their_shares_and_windows_of_their_own(void **state)
{
    enum { L = 64, BATCH = 10, WINDOWS = 10000, TEXT = 0, NEEDLES, INDUCTION };
    alibi_corpus *mix = NULL;
    static int32_t tokens[BATCH * L], targets[BATCH * L], again[BATCH * L];
    struct batches b;
    struct task_windows w;
    struct task_answer answers[TASK_ANSWERS_MAX];
    int32_t inputs[L], wanted[L];
    int64_t found = 0;
    int counts[3] = { 0 };

    (void)state;
    assert_ok(mix_tasks(&mix));
    assert_ok(batches_of_corpus(&b, mix, L, BATCH, 7));
    w = corpus_task_windows(mix, NEEDLES, TASK_TRAIN, L, 7);
    task_window(&w, 5, inputs, wanted, answers);
    for (int64_t n = 0; n < WINDOWS / BATCH; n++) {
        batches_read(&b, n, tokens, targets);
        for (int row = 0; row < BATCH; row++) {
            const int32_t *t = targets + row * L;
            int scored = 0, part;

            for (int i = 0; i < L; i++)
                scored += t[i] >= 0;
            part = scored < L ? INDUCTION : t[L - 1] >= 128 ? NEEDLES : TEXT;
            if (part == INDUCTION)
                assert_int_equal(scored, L / 4); /* the copied span */
            counts[part]++;
            if (part == NEEDLES)
                found += memcmp(inputs, tokens + row * L, sizeof inputs) == 0 &&
                         memcmp(wanted, t, sizeof wanted) == 0;
        }
    }
    assert_int_equal(found, 1); /* window 5 of the task is there, once */
    assert_int_equal(counts[TEXT], 6000);
    assert_int_equal(counts[NEEDLES], 3000);
    assert_int_equal(counts[INDUCTION], 1000);
    batches_read(&b, 123, tokens, targets);
    batches_read(&b, 9, again, targets);
    batches_read(&b, 123, again, targets); /* a function of the number alone */
    assert_memory_equal(tokens, again, sizeof tokens);
    assert_fails(batches_of_corpus(&b, mix, 7, BATCH, 7), ALIBI_BAD_INPUT,
                 "'needles' needs windows of at least");
    alibi_corpus_free(mix);
}

static void a_task_is_trained_alone_unless_it_needs_text(void **state)
{
    enum { L = 64 };
    alibi_corpus *c = NULL;
    int32_t tokens[L], targets[L];
    struct batches b;

    (void)state;
    assert_ok(alibi_corpus_task(&c, "Markov", NULL));
    assert_string_equal(corpus_name(c), "task:markov");
    assert_ok(batches_of_corpus(&b, c, L, 1, 7));
    batches_read(&b, 3, tokens, targets);
    assert_memory_equal(tokens + 1, targets, (L - 1) * sizeof *tokens);
    assert_fails(batches_of_corpus(&b, c, L, 0, 7), ALIBI_USAGE, "at least 1");
    alibi_corpus_free(c);
    assert_ok(alibi_corpus_task(&c, "passkey", NULL));
    assert_fails(batches_of_corpus(&b, c, L, 1, 7), ALIBI_USAGE, "add a text");
    alibi_corpus_free(c);
    assert_fails(alibi_corpus_task(&c, "wiki", NULL), ALIBI_USAGE, "no task 'wiki'; there are");
}

static void a_mixture_of_tasks_without_memory_leaks_nothing(void **state)
{
    (void)state;
    assert_true(fail_each_call("memory", mix_tasks, NULL, ALIBI_MEMORY, "") >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_have_their_shares_and_windows_of_their_own),
        cmocka_unit_test(a_task_is_trained_alone_unless_it_needs_text),
        cmocka_unit_test(a_mixture_of_tasks_without_memory_leaks_nothing),
        cmocka_unit_test(a_mixture_has_its_shares_in_every_ten_thousand_windows),
        cmocka_unit_test(targets_are_the_tokens_that_follow),
        cmocka_unit_test(every_epoch_has_every_window_once),
        cmocka_unit_test(epochs_differ_in_offset_and_order),
        cmocka_unit_test(batch_is_a_function_of_its_number),
        cmocka_unit_test(other_seed_gives_other_batches),
        cmocka_unit_test(no_window_leaves_a_short_span),
        cmocka_unit_test(text_shorter_than_a_window_is_refused),
        cmocka_unit_test(loader_gives_the_batches_in_any_order),
        cmocka_unit_test(a_lent_batch_stays_until_the_next_is_asked_for),
        cmocka_unit_test(a_loader_without_memory_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
