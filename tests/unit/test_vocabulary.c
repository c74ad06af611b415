/* test_vocabulary.c - vocabularies learned from text: merges worked out by hand and by a plain
 * program, words, limits, stops */
#include <omp.h>

#include "check.h"
#include "text/vocabulary.h"

/* ---- BPE on given pieces */

struct sample {
    const char *piece;
    int count;
};

static struct bpe_file *learn(const struct sample *samples, int count, int64_t vocab,
                              int64_t min_count)
{
    struct tally borrowed = { 0 }, tally = { 0 };
    struct bpe_file *file = NULL;

    for (int i = 0; i < count; i++)
        for (int k = 0; k < samples[i].count; k++)
            assert_ok(tally_add(&borrowed, samples[i].piece, strlen(samples[i].piece)));
    for (int shard = 0; shard < TALLY_SHARDS; shard++)
        assert_ok(tally_merge(&tally, &borrowed, shard));
    tally_fini(&borrowed);
    assert_ok(train_bpe(&file, &tally, vocab, min_count, test_call()));
    assert_int_equal(tally_count(&tally), 0);
    tally_fini(&tally);
    return file;
}

/* "a+b aa+b ...": the merges as text. */
static const char *merges_of(const struct bpe_file *f)
{
    static char text[4096];
    size_t n = 0;

    text[0] = '\0';
    for (int64_t i = 0; i < f->merge_count && n < sizeof text; i++) {
        struct slice left = f->tokens[f->merges[i].left], right = f->tokens[f->merges[i].right];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s+%.*s", i > 0 ? " " : "",
                              (int)left.bytes, left.at, (int)right.bytes, right.at);
    }
    return text;
}

#define assert_merges(expected, vocab, min_count, ...)                                             \
    do {                                                                                           \
        const struct sample check_samples[] = { __VA_ARGS__ };                                     \
        struct bpe_file *check_file =                                                              \
            learn(check_samples, (int)(sizeof check_samples / sizeof *check_samples), (vocab),     \
                  (min_count));                                                                    \
        assert_string_equal(merges_of(check_file), (expected));                                    \
        bpe_file_free(check_file);                                                                 \
    } while (0)

static void the_most_frequent_pair_is_merged_first(void **state)
{
    (void)state;
    assert_merges("u+g h+ug u+n p+ug", 1000, 6, { "hug", 10 }, { "pug", 6 }, { "pun", 5 },
                  { "bun", 4 });
    /* Once (u, g) is merged, (p, u) is left 5 times of 11, and none once (u, n) is merged. */
    assert_merges("u+g h+ug u+n p+ug p+un", 1000, 5, { "hug", 10 }, { "pug", 6 }, { "pun", 5 },
                  { "bun", 4 });
}

static void of_equal_pairs_the_one_with_lower_ids_is_first(void **state)
{
    (void)state;
    assert_merges("a+b b+c c+a", 1000, 1, { "ca", 3 }, { "bc", 3 }, { "ab", 3 });
    assert_merges("a+b a+c", 1000, 1, { "ac", 3 }, { "ab", 3 });
    /* The letter of a blank follows all printable ones. */
    assert_merges("b+c  +a", 1000, 1, { " a", 3 }, { "bc", 3 });
}

/* "aaaa" has the pair three times, and becomes two symbols. */
static void runs_of_one_byte_are_counted_as_they_stand_and_merged_from_the_left(void **state)
{
    (void)state;
    assert_merges("a+a aa+aa", 1000, 1, { "aaaa", 1 });
    assert_merges("a+a aa+a", 1000, 1, { "aaa", 1 });
    assert_merges("a+a aa+a aa+aaa", 1000, 1, { "aaaaa", 1 });
    assert_merges("a+a x+y", 259, 1, { "aaaa", 2 }, { "xy", 5 });
    assert_merges("a+b ab+ab abab+abab", 1000, 1, { "abababab", 1 });
}

static void merging_ends_at_the_vocabulary_and_at_the_least_count(void **state)
{
    (void)state;
    assert_merges("", 257, 1, { "abc", 9 });
    assert_merges("a+b", 258, 1, { "abc", 9 });
    assert_merges("a+b ab+c", 300, 9, { "abc", 9 });
    assert_merges("", 300, 10, { "abc", 9 });
    assert_merges("", 300, 1, { "a", 9 });
}

static void ids_are_the_end_then_bytes_by_their_letters_then_merges(void **state)
{
    const struct sample samples[] = { { "ab", 2 } };
    struct bpe_file *f = learn(samples, 1, 300, 1);

    (void)state;
    assert_int_equal(f->vocab, 258);
    assert_int_equal(f->byte_ids['!'], 1);
    assert_int_equal(f->byte_ids['~'], 94);
    assert_int_equal(f->byte_ids[0], 189);
    assert_int_equal(f->byte_ids[' '], 221);
    assert_int_equal(f->merges[0].result, 257);
    assert_memory_equal(f->tokens[0].at, "<|endoftext|>", 13);
    assert_memory_equal(f->tokens[257].at, "ab", 2);
    assert_int_equal(f->added_count, 1);
    assert_true(f->added[0].special && f->added[0].in_vocab && f->added[0].id == 0);
    bpe_file_free(f);
}

/* A pattern may leave that text whole; then it must not be there under two ids. */
static void the_text_of_the_end_gets_no_second_id(void **state)
{
    const struct sample samples[] = { { "x<|endoftext|>y", 5 } };
    struct bpe_file *f = learn(samples, 1, 400, 1);
    int64_t of_end = 0;

    (void)state;
    for (int64_t i = 0; i < f->merge_count; i++)
        of_end += f->merges[i].result == 0;
    for (int64_t i = 1; i < f->vocab; i++)
        assert_false(f->tokens[i].bytes == 13 && memcmp(f->tokens[i].at, "<|endoftext|>", 13) == 0);
    assert_in_range(of_end, 0, 1);
    bpe_file_free(f);
}

/* ---- against a program that counts everything again for each merge */

enum { PIECES = 12, LENGTH = 40 };

struct plain {
    int32_t symbols[PIECES][LENGTH];
    int lengths[PIECES], counts[PIECES];
};

static int64_t count_pair(const struct plain *p, int32_t left, int32_t right)
{
    int64_t n = 0;

    for (int i = 0; i < PIECES; i++)
        for (int k = 0; k + 1 < p->lengths[i]; k++)
            n += p->symbols[i][k] == left && p->symbols[i][k + 1] == right ? p->counts[i] : 0;
    return n;
}

static int64_t best_pair(const struct plain *p, int32_t *left, int32_t *right)
{
    int64_t best = 0;

    for (int i = 0; i < PIECES; i++)
        for (int k = 0; k + 1 < p->lengths[i]; k++) {
            int32_t a = p->symbols[i][k], b = p->symbols[i][k + 1];
            int64_t n = count_pair(p, a, b);
            if (n > best || (n == best && (a < *left || (a == *left && b < *right)))) {
                best = n;
                *left = a;
                *right = b;
            }
        }
    return best;
}

static void merge_pair(struct plain *p, int32_t left, int32_t right, int32_t joined)
{
    for (int i = 0; i < PIECES; i++) {
        int n = 0;
        for (int k = 0; k < p->lengths[i]; k++) {
            bool here =
                p->symbols[i][k] == left && k + 1 < p->lengths[i] && p->symbols[i][k + 1] == right;
            p->symbols[i][n++] = here ? joined : p->symbols[i][k];
            k += here;
        }
        p->lengths[i] = n;
    }
}

/* Pieces of few letters, some of them runs: much is equal, much overlaps. */
static void random_pieces(uint64_t seed, char pieces[PIECES][LENGTH + 1], struct sample *samples)
{
    uint64_t letters = 1 + random_below(seed, 1, 0, 3);

    for (uint64_t i = 0; i < PIECES; i++) {
        uint64_t length = 1 + random_below(seed, 2, i, LENGTH),
                 run = 1 + random_below(seed, 3, i, 5);
        for (uint64_t k = 0; k < length; k++)
            pieces[i][k] = (char)('a' + random_below(seed, 4 + i, k / run, letters));
        pieces[i][length] = '\0';
        samples[i] = (struct sample){ pieces[i], 1 + (int)random_below(seed, 100, i, 9) };
    }
}

static void check_against_plain(const struct sample *samples, const struct bpe_file *f,
                                int64_t vocab, int64_t min_count)
{
    struct plain p = { 0 };
    int64_t merges = 0;

    for (int i = 0; i < PIECES; i++) {
        p.lengths[i] = (int)strlen(samples[i].piece);
        p.counts[i] = samples[i].count;
        for (int k = 0; k < p.lengths[i]; k++)
            p.symbols[i][k] = f->byte_ids[(unsigned char)samples[i].piece[k]];
    }
    while (257 + merges < vocab) {
        int32_t left = 0, right = 0;
        if (best_pair(&p, &left, &right) < min_count)
            break;
        assert_true(merges < f->merge_count);
        assert_int_equal(f->merges[merges].left, left);
        assert_int_equal(f->merges[merges].right, right);
        assert_int_equal(f->merges[merges].result, 257 + merges);
        merge_pair(&p, left, right, (int32_t)(257 + merges));
        merges++;
    }
    assert_int_equal(f->merge_count, merges);
}

static void merges_equal_those_of_a_program_that_recounts_everything(void **state)
{
    char pieces[PIECES][LENGTH + 1];
    struct sample samples[PIECES];

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int64_t vocab = 257 + (int64_t)random_below(seed, 200, 0, 120),
                min_count = 1 + (int64_t)random_below(seed, 200, 1, 4);
        struct bpe_file *f;
        random_pieces(seed, pieces, samples);
        f = learn(samples, PIECES, vocab, min_count);
        check_against_plain(samples, f, vocab, min_count);
        bpe_file_free(f);
    }
}

/* Each pair once, and each token: a file that has one twice would be read differently by others. */
static void no_pair_and_no_token_is_there_twice(void **state)
{
    char pieces[PIECES][LENGTH + 1];
    struct sample samples[PIECES];

    (void)state;
    for (uint64_t seed = 1000; seed < 1020; seed++) {
        struct bpe_file *f;
        random_pieces(seed, pieces, samples);
        f = learn(samples, PIECES, 1000, 1);
        for (int64_t i = 0; i < f->merge_count; i++)
            for (int64_t k = 0; k < i; k++) {
                struct slice a = f->tokens[257 + i], b = f->tokens[257 + k];
                assert_false(f->merges[i].left == f->merges[k].left &&
                             f->merges[i].right == f->merges[k].right);
                assert_false(a.bytes == b.bytes && memcmp(a.at, b.at, a.bytes) == 0);
            }
        bpe_file_free(f);
    }
}

/* ---- from files */

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = temporary_folder();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_temporary_folder(folder);
    return 0;
}

static const struct alibi_reading as_files = { 0 };

static struct alibi_vocabulary bpe(int64_t vocab, int64_t min_count, const char *pattern)
{
    static char text[256];

    snprintf(text, sizeof text, "%s", pattern);
    return (struct alibi_vocabulary){ ALIBI_BPE, vocab, min_count, text };
}

static struct alibi_vocabulary words(int64_t vocab, int64_t min_count)
{
    return (struct alibi_vocabulary){ ALIBI_WORDS, vocab, min_count, NULL };
}

static alibi_status train(struct text *json, struct alibi_vocabulary how, const char *path,
                          const struct tally_limits *limits)
{
    alibi_status status;
    alibi_tokenizer *t = NULL;

    TRY(vocabulary_train(&t, &how, &path, 1, &as_files, limits, test_call()));
    TRY(tokenizer_format(t, json));
out:
    alibi_tokenizer_free(t);
    return status;
}

static const char *text_file(const char *name, const char *text)
{
    const char *path = within(folder, name);

    write_file(path, text, strlen(text));
    return path;
}

/* Some hundred thousand bytes, so that there are several parts. */
static const char *story_file(int64_t bytes)
{
    alibi_corpus *corpus = NULL;
    const char *path = within(folder, "story.txt");

    assert_ok(alibi_corpus_builtin(&corpus, 7, bytes, NULL, test_call()));
    assert_ok(alibi_corpus_write(corpus, ALIBI_ALL, path));
    alibi_corpus_free(corpus);
    return path;
}

static void the_file_is_the_same_on_any_number_of_threads_and_with_any_blocks(void **state)
{
    const char *path = story_file(900000);
    const struct alibi_vocabulary hows[] = { bpe(2000, 2, "gpt2"), words(0, 1) };
    int before = omp_get_max_threads();

    (void)state;
    for (int h = 0; h < 2; h++) {
        struct text expected = { 0 };
        assert_ok(train(&expected, hows[h], path, &tally_limits_usual));
        assert_true(expected.length > 1000);
        for (int threads = 1; threads <= 3; threads++) {
            struct tally_limits limits = tally_limits_usual;
            struct text json = { 0 };
            limits.block_bytes = threads == 1 ? 1000 : (size_t)300000 * (size_t)threads;
            omp_set_num_threads(threads);
            assert_ok(train(&json, hows[h], path, &limits));
            assert_string_equal(json.data, expected.data);
            text_free(&json);
        }
        omp_set_num_threads(before);
        text_free(&expected);
    }
}

static bool has_token(const struct text *json, const char *token)
{
    char quoted[64];

    snprintf(quoted, sizeof quoted, "\"%s\"", token);
    return strstr(json->data, quoted) != NULL;
}

static void patterns_decide_what_is_merged(void **state)
{
    const char *path =
        text_file("patterns.txt", "12345 12345 12345 don't don't DON'T DON'T a,b a,b");
    struct text gpt2 = { 0 }, bloom = { 0 }, gpt4 = { 0 }, own = { 0 };

    (void)state;
    assert_ok(train(&gpt2, bpe(400, 2, "gpt2"), path, &tally_limits_usual));
    assert_ok(train(&bloom, bpe(400, 2, "bloom"), path, &tally_limits_usual));
    assert_ok(train(&gpt4, bpe(400, 2, "gpt4"), path, &tally_limits_usual));
    assert_ok(train(&own, bpe(400, 2, "[0-9,ab]+"), path, &tally_limits_usual));
    assert_true(has_token(&gpt2, "\xc4\xa0"
                                 "12345") &&
                has_token(&gpt2, "'t") && !has_token(&gpt2, "'T"));
    assert_true(has_token(&bloom, "\xc4\xa0"
                                  "don't") &&
                !has_token(&bloom, ",b"));
    assert_true(has_token(&gpt4, "123") && !has_token(&gpt4, "1234") && has_token(&gpt4, "'T"));
    assert_true(has_token(&own, "a,b") && !has_token(&own, "\xc4\xa0"
                                                           "1"));
    text_free(&gpt2);
    text_free(&bloom);
    text_free(&gpt4);
    text_free(&own);
}

/* ---- words */

static void assert_words(const char *expected, struct alibi_vocabulary how, const char *path)
{
    struct text got = { 0 };
    alibi_tokenizer *t = NULL;

    assert_ok(alibi_tokenizer_train(&t, &how, &path, 1, &as_files, test_call()));
    for (int32_t id = 0; id < alibi_tokenizer_vocab(t); id++) {
        size_t bytes = 0;
        const char *word = id == 1 ? "<eos> " : tokenizer_bytes(t, id, &bytes);
        text_append_bytes(&got, word, id == 1 ? strlen(word) : bytes);
    }
    assert_string_equal(got.data, expected);
    text_free(&got);
    alibi_tokenizer_free(t);
}

static void words_come_by_falling_count_then_by_bytes(void **state)
{
    const char *path = text_file("words.txt", "b a c a\n<unk> c\tc <eos>  d\n\n<unk> ab\n");

    (void)state;
    assert_words("<unk> <eos> c a ab b d ", words(0, 0), path);
    assert_words("<unk> <eos> c a ", words(0, 2), path);
    assert_words("<unk> <eos> c a ab ", words(5, 1), path);
    assert_words("<unk> <eos> ", words(2, 1), path);
}

static void a_word_across_blocks_is_one(void **state)
{
    const char *path = text_file("across.txt", "abcdefghijklmnop abcdefghijklmnop q");
    struct tally_limits limits = { 1000, 1000, 5 };
    struct text json = { 0 };

    (void)state;
    assert_ok(train(&json, words(0, 1), path, &limits));
    assert_true(has_token(&json, "abcdefghijklmnop") && has_token(&json, "q"));
    text_free(&json);
    assert_int_equal(limits.pieces, 1000);
}

/* ---- limits */

static int notes;

static void count_note(void *user, enum alibi_log_level level, const char *line)
{
    (void)user;
    (void)level;
    notes += strstr(line, "rarest") != NULL;
}

/* Two words come again and again, all others once. */
static const char *many_words_file(void)
{
    struct text text = { 0 };
    const char *path = within(folder, "many.txt");

    for (int i = 0; i < 3000; i++)
        text_append(&text, "often x%d seldom%s", i, i % 2 == 0 ? "\n" : " once\n");
    write_file(path, text.data, text.length);
    text_free(&text);
    return path;
}

static void past_the_limit_the_rarest_are_dropped_and_that_is_noted_once(void **state)
{
    const char *path = many_words_file();
    struct tally_limits limits = { .pieces = 100, .bytes = 1 << 20, .block_bytes = 2000 };
    int before = omp_get_max_threads();

    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct text json = { 0 };
        omp_set_num_threads(threads);
        test_watch(NULL, NULL, count_note);
        notes = 0;
        assert_ok(train(&json, words(5, 1), path, &limits));
        assert_int_equal(notes, 1);
        assert_non_null(strstr(json.data, "\"often\""));
        assert_true(strstr(json.data, "\"often\"") < strstr(json.data, "\"seldom\""));
        assert_true(strstr(json.data, "\"seldom\"") < strstr(json.data, "\"once\""));
        text_free(&json);
    }
    test_watch(NULL, NULL, NULL);
    omp_set_num_threads(before);
}

/* ---- progress and stops */

static int64_t bytes_reported, merges_reported;
static bool stop_after_reading;

static void see_progress(void *user, const struct alibi_progress *p)
{
    (void)user;
    assert_string_equal(p->task, "tokenizer");
    if (strcmp(p->unit, "bytes") == 0)
        bytes_reported = p->done;
    else
        merges_reported = p->done;
    if (stop_after_reading)
        alibi_stop_request(&test_stop);
}

static void progress_is_in_bytes_and_then_in_merges(void **state)
{
    const char *path = text_file("progress.txt", "hug hug hug pug pug");
    struct text json = { 0 };

    (void)state;
    bytes_reported = merges_reported = -1;
    test_watch(NULL, see_progress, NULL);
    assert_ok(train(&json, bpe(300, 2, "gpt2"), path, &tally_limits_usual));
    test_watch(NULL, NULL, NULL);
    assert_int_equal(bytes_reported, 19);
    assert_int_equal(merges_reported, 5);
    text_free(&json);
}

static void a_stop_ends_reading_and_merging(void **state)
{
    const char *path = text_file("stop.txt", "hug hug hug pug pug");
    struct text json = { 0 };

    (void)state;
    alibi_stop_request(&test_stop);
    assert_fails(train(&json, bpe(300, 2, "gpt2"), path, &tally_limits_usual), ALIBI_INTERRUPTED,
                 "text was read");
    test_watch(NULL, see_progress, NULL);
    stop_after_reading = true;
    assert_fails(train(&json, bpe(300, 2, "gpt2"), path, &tally_limits_usual), ALIBI_INTERRUPTED,
                 "after 0 merges");
    stop_after_reading = false;
    test_watch(NULL, NULL, NULL);
    assert_ok(train(&json, bpe(300, 2, "gpt2"), path, &tally_limits_usual));
    text_free(&json);
}

/* ---- refusals */

static void values_that_make_no_sense_are_named(void **state)
{
    const char *path = text_file("refused.txt", "some text");
    struct alibi_vocabulary cut_words = words(0, 1);
    struct text json = { 0 };

    (void)state;
    assert_fails(train(&json, bpe(256, 2, "gpt2"), path, &tally_limits_usual), ALIBI_USAGE,
                 "'--vocab': 256");
    assert_fails(train(&json, bpe(1, 2, "gpt2"), path, &tally_limits_usual), ALIBI_USAGE, "257");
    assert_fails(train(&json, bpe(VOCAB_BPE_MAX + 1, 2, "gpt2"), path, &tally_limits_usual),
                 ALIBI_USAGE, "1048576");
    assert_fails(train(&json, bpe(300, -1, "gpt2"), path, &tally_limits_usual), ALIBI_USAGE, "min");
    assert_fails(train(&json, words(1, 1), path, &tally_limits_usual), ALIBI_USAGE,
                 "<unk> and <eos>");
    cut_words.pattern = (char[]){ "gpt2" };
    assert_fails(train(&json, cut_words, path, &tally_limits_usual), ALIBI_USAGE,
                 "'--pattern' is for bpe");
    assert_fails(train(&json, bpe(300, 2, "(unclosed"), path, &tally_limits_usual), ALIBI_BAD_INPUT,
                 "(unclosed");
    assert_fails(train(&json, bpe(300, 2, "gpt3"), path, &tally_limits_usual), ALIBI_USAGE,
                 "'gpt3' is none of gpt2");
    assert_fails(train(&json, bpe(300, 2, ""), path, &tally_limits_usual), ALIBI_USAGE,
                 "'--pattern'");
    assert_fails(
        train(&json, bpe(300, 2, "gpt2"), within(folder, "no such file"), &tally_limits_usual),
        ALIBI_BAD_INPUT, "no such file");
    assert_null(json.data);
}

static void options_have_the_defaults_that_the_help_tells(void **state)
{
    struct alibi_vocabulary how;
    struct alibi_option_group group = { "vocabulary", NULL, 0, &how };

    (void)state;
    group.options = alibi_vocabulary_options(&group.count);
    assert_ok(alibi_options_init(&group, 1));
    assert_int_equal(how.type, ALIBI_BPE);
    assert_int_equal(how.vocab, 0);
    assert_int_equal(how.min_count, 0);
    assert_null(how.pattern);
    assert_ok(alibi_options_set(&group, 1, "type", "words"));
    assert_int_equal(how.type, ALIBI_WORDS);
    alibi_options_free(&group, 1);
}

/* A min-count of 0 is 2 for pairs and 1 for words. */
static void a_least_count_of_zero_depends_on_the_type(void **state)
{
    const char *path = text_file("least.txt", "ab cd cd");
    struct text pairs = { 0 }, all = { 0 };

    (void)state;
    assert_ok(train(&pairs, bpe(300, 0, "gpt2"), path, &tally_limits_usual));
    assert_true(has_token(&pairs, "cd") && !has_token(&pairs, "ab"));
    assert_ok(train(&all, words(0, 0), path, &tally_limits_usual));
    assert_true(has_token(&all, "cd") && has_token(&all, "ab"));
    text_free(&pairs);
    text_free(&all);
}

/* ---- faults */

/* The n-th call fails, for every n until there are fewer than n. Some allocations can be done
 * without: a pattern that cannot be compiled to machine code is interpreted. So the end is where
 * many in a row change nothing. */
static int64_t fail_each(const char *how, alibi_status expected, struct alibi_vocabulary vocabulary,
                         const char *path)
{
    struct tally_limits limits = { .pieces = 20, .bytes = 1000, .block_bytes = 64 };
    int64_t failures = 0;

    for (int64_t n = 1, unharmed = 0; unharmed < 20; n++) {
        size_t before = alibi_memory_now();
        alibi_tokenizer *t = NULL;
        alibi_status status;
        assert_ok(alibi_inject_fault(how, n));
        status = vocabulary_train(&t, &vocabulary, &path, 1, &as_files, &limits, test_call());
        assert_ok(alibi_inject_fault(how, 0));
        assert_true(status == ALIBI_OK || (status == expected && t == NULL));
        alibi_tokenizer_free(t);
        assert_int_equal(alibi_memory_now(), before);
        unharmed = status == ALIBI_OK ? unharmed + 1 : 0;
        failures += status != ALIBI_OK;
    }
    return failures;
}

static void every_failing_allocation_and_read_is_reported_without_leaks(void **state)
{
    const char *path = text_file(
        "faults.txt", "the cat and the hat and the bat sat on the mat, that is that; "
                      "the rat ran, the man ran, all ran and sat and ran again and again");

    (void)state;
    assert_in_range(fail_each("memory", ALIBI_MEMORY, bpe(300, 2, "gpt2"), path), 50, 100000);
    assert_in_range(fail_each("memory", ALIBI_MEMORY, words(0, 1), path), 20, 100000);
    assert_in_range(fail_each("file", ALIBI_IO, bpe(300, 2, "gpt2"), path), 2, 1000);
    assert_in_range(fail_each("file", ALIBI_IO, words(0, 1), path), 2, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_frequent_pair_is_merged_first),
        cmocka_unit_test(of_equal_pairs_the_one_with_lower_ids_is_first),
        cmocka_unit_test(runs_of_one_byte_are_counted_as_they_stand_and_merged_from_the_left),
        cmocka_unit_test(merging_ends_at_the_vocabulary_and_at_the_least_count),
        cmocka_unit_test(ids_are_the_end_then_bytes_by_their_letters_then_merges),
        cmocka_unit_test(the_text_of_the_end_gets_no_second_id),
        cmocka_unit_test(merges_equal_those_of_a_program_that_recounts_everything),
        cmocka_unit_test(no_pair_and_no_token_is_there_twice),
        cmocka_unit_test(the_file_is_the_same_on_any_number_of_threads_and_with_any_blocks),
        cmocka_unit_test(patterns_decide_what_is_merged),
        cmocka_unit_test(words_come_by_falling_count_then_by_bytes),
        cmocka_unit_test(a_word_across_blocks_is_one),
        cmocka_unit_test(past_the_limit_the_rarest_are_dropped_and_that_is_noted_once),
        cmocka_unit_test(progress_is_in_bytes_and_then_in_merges),
        cmocka_unit_test(a_stop_ends_reading_and_merging),
        cmocka_unit_test(values_that_make_no_sense_are_named),
        cmocka_unit_test(options_have_the_defaults_that_the_help_tells),
        cmocka_unit_test(a_least_count_of_zero_depends_on_the_type),
        cmocka_unit_test(every_failing_allocation_and_read_is_reported_without_leaks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
