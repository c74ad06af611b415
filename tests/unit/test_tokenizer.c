/* test_tokenizer.c - what all tokenizers share, and those of bytes, words and numbers: text to ids
 * and back */
#include <pthread.h>

#include "bpe.h"

/* ---- any bytes */

static void random_bytes_come_back(void **state)
{
    alibi_tokenizer *t = bpe_of(&english);

    (void)state;
    for (uint64_t n = 0; n < 10000; n++) {
        char text[64];
        size_t bytes = (size_t)random_below(1, n, 1000, sizeof text + 1);
        for (size_t i = 0; i < bytes; i++) {
            static const char common[] = "the in \n\xC3\xA9<a>  x";
            uint64_t draw = random_below(1, n, i, 512);
            text[i] = draw < 256 || n % 2 == 0 ? (char)draw : common[draw % (sizeof common - 1)];
        }
        assert_round_trip(t, text, bytes);
    }
    alibi_tokenizer_free(t);
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    alibi_tokenizer *t = NULL;
    char *text = NULL;
    size_t bytes;

    (void)state;
    assert_ok(alibi_tokenizer_open(&t, NULL, NULL));
    assert_fails(alibi_tokenizer_decode(t, (int32_t[]){ 65, 257 }, 2, &text, &bytes),
                 ALIBI_BAD_INPUT, "token 1 is 257");
    assert_fails(alibi_tokenizer_decode(t, (int32_t[]){ -1 }, 1, &text, &bytes), ALIBI_BAD_INPUT,
                 "token 0 is -1");
    assert_null(text);
    alibi_tokenizer_free(t);
}

/* ---- numbers */

static void numbers_are_their_ids(void **state)
{
    static const char text[] = "3\n 11\t0  7", back[] = "3 11 0 7 ";
    static const char *const wrong[] = { "12", "-1", "x", "99999999999999999999", "1,2" };
    alibi_tokenizer *t = NULL;
    int32_t *ids = NULL, right[] = { 3, 11, 0, 7 };
    int64_t count = 0;
    char *decoded = NULL;
    size_t bytes = 0;

    (void)state;
    assert_ok(tokenizer_new_ids(&t, 12));
    assert_ok(alibi_tokenizer_encode(t, text, strlen(text), &ids, &count));
    assert_int_equal(count, 4);
    assert_memory_equal(ids, right, sizeof right);
    assert_ok(alibi_tokenizer_decode(t, ids, count, &decoded, &bytes));
    assert_string_equal(decoded, back);
    alibi_ids_free(ids);
    ids = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(alibi_tokenizer_encode(t, wrong[i], strlen(wrong[i]), &ids, &count),
                     ALIBI_BAD_INPUT, "numbers from 0 to 11");
    alibi_text_free(decoded);
    alibi_tokenizer_free(t);
}

/* A short file must not ask for much memory. */
static void numbers_have_a_limit(void **state)
{
    static const char *const files[] = { "{\"type\": \"ids\", \"vocab\": 0}",
                                         "{\"type\": \"ids\", \"vocab\": 16777217}",
                                         "{\"type\": \"ids\", \"vocab\": 268435456}" };
    alibi_tokenizer *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_fails(tokenizer_read(&t, files[i], strlen(files[i]), "numbers.json"),
                     ALIBI_BAD_INPUT,
                     "'numbers.json': a tokenizer of type 'ids' has 1 to 16777216");
    assert_null(t);
}

/* ---- parts */

/* Encodes in stretches of `step` bytes of which `look` more are known, twice as
 * many when that decides nothing. */
static struct ids encode_in_steps(const alibi_tokenizer *t, const char *text, size_t bytes,
                                  size_t step, size_t look)
{
    struct ids ids = { 0 };
    struct encoder *e = NULL;
    size_t at = 0, more = look;

    assert_ok(encoder_new(&e, t));
    while (at < bytes) {
        size_t stop = at + step < bytes ? at + step : bytes,
               end = stop + more < bytes ? stop + more : bytes, reached;
        char *known = malloc(end + 1); /* no more than is known may be read */
        struct stretch s = { known, at, stop, end, .last = end == bytes };
        assert_non_null(known);
        memcpy(known, text, end);
        assert_ok(encoder_run(e, &s, &ids, &reached));
        free(known);
        assert_in_range(reached, at, end);
        assert_true(reached >= stop || end < bytes);
        more = reached > at ? look : 2 * more + 1;
        at = reached;
    }
    assert_ok(encoder_end(e, (struct slice){ text, bytes }, &ids));
    encoder_free(e);
    return ids;
}

static void assert_same_in_all_steps(const alibi_tokenizer *t, const char *text, size_t bytes)
{
    struct ids whole = encode_in_steps(t, text, bytes, bytes, 0);

    for (size_t step = 1; step < bytes; step++) {
        for (size_t look = 0; look < 30; look = 3 * look + 1) {
            struct ids parts = encode_in_steps(t, text, bytes, step, look);
            assert_int_equal(parts.count, whole.count);
            assert_memory_equal(parts.at, whole.at, (size_t)whole.count * sizeof *whole.at);
            mem_free(parts.at);
        }
    }
    mem_free(whole.at);
}

static alibi_tokenizer *words_of(const char *const *words, int count)
{
    struct slice slices[16];
    alibi_tokenizer *t = NULL;

    for (int i = 0; i < count; i++)
        slices[i] = (struct slice){ words[i], strlen(words[i]) };
    assert_ok(tokenizer_new_words(&t, slices, count));
    return t;
}

static const char *const some_words[] = { "<unk>", "<eos>", "the", "of", "\xC3\xA9t\xC3\xA9" };

static void any_stretches_give_the_ids_of_the_whole(void **state)
{
    static const char *const texts[] = {
        "the inner   the\n\n\n  \xC3\xA9 the <a><a><b><a> x   "
        "x<|endoftext|><|endof  <a",
        "      \n\n\n\n   \n <a><b>  x  ",
        "\xC3\xA9\xC3the\xE2\x80<a>\xFF\xFE\xF0\x9F\x98\x80\xF0\x9F\x98  \xC3",
        "the of  the\n\nof \t of\n\xC3\xA9t\xC3\xA9 other",
    };
    alibi_tokenizer *all[3] = { bpe_of(&english), words_of(some_words, 5), NULL };

    (void)state;
    assert_ok(tokenizer_new_bytes(&all[2]));
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            assert_same_in_all_steps(all[i], texts[k], strlen(texts[k]));
        alibi_tokenizer_free(all[i]);
    }
}

static void one_encoder_gives_the_same_again(void **state)
{
    static const char text[] =
        "the the thethethethethethethethethethethetheth in in<a> in  innerest  x";
    alibi_tokenizer *t = bpe_of(&english);
    struct encoder *e = NULL;
    struct ids first = { 0 };

    (void)state;
    assert_ok(encoder_new(&e, t));
    for (int i = 0; i < 3; i++) {
        struct stretch s = {
            .text = text, .stop = strlen(text), .end = strlen(text), .last = true
        };
        int64_t before = first.count, each = before / (i > 0 ? i : 1);
        size_t reached;
        assert_ok(encoder_run(e, &s, &first, &reached));
        assert_int_equal(reached, strlen(text));
        if (i > 0)
            assert_int_equal(first.count - before, each);
        if (i > 0)
            assert_memory_equal(first.at + before, first.at, (size_t)each * sizeof *first.at);
    }
    mem_free(first.at);
    encoder_free(e);
    alibi_tokenizer_free(t);
}

/* ---- bytes */

static void every_byte_is_its_own_token(void **state)
{
    alibi_tokenizer *t = NULL;
    struct ids ids = { 0 };
    char text[256];

    (void)state;
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    assert_ok(tokenizer_new_bytes(&t));
    assert_ok(tokenizer_encode(t, text, 256, &ids));
    assert_int_equal(ids.count, 256);
    for (int i = 0; i < 256; i++) {
        size_t bytes = 0;
        assert_int_equal(ids.at[i], i);
        assert_int_equal(tokenizer_bytes(t, ids.at[i], &bytes)[0], text[i]);
        assert_int_equal(bytes, 1);
    }
    mem_free(ids.at);
    alibi_tokenizer_free(t);
}

static void encoding_appends(void **state)
{
    alibi_tokenizer *t = NULL;
    struct ids ids = { 0 };

    (void)state;
    assert_ok(tokenizer_new_bytes(&t));
    assert_ok(tokenizer_encode(t, "ab", 2, &ids));
    assert_ok(tokenizer_encode(t, "", 0, &ids));
    assert_ok(tokenizer_encode(t, "c", 1, &ids));
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.at[0], 'a');
    assert_int_equal(ids.at[2], 'c');
    mem_free(ids.at);
    alibi_tokenizer_free(t);
}

static void ids_that_are_no_byte_have_no_bytes(void **state)
{
    static const int32_t ids[] = { 256, 257, -1, INT32_MAX, INT32_MIN };
    alibi_tokenizer *t = NULL;

    (void)state;
    assert_ok(tokenizer_new_bytes(&t));
    for (int i = 0; i < 5; i++) {
        size_t bytes = 7;
        assert_non_null(tokenizer_bytes(t, ids[i], &bytes));
        assert_int_equal(bytes, 0);
    }
    alibi_tokenizer_free(t);
}

/* ---- words */

static void words_stand_between_white_space_and_lines_end(void **state)
{
    static const int32_t expected[] = { 2, 3, 1, 1, 0, 4, 2, 1 };
    alibi_tokenizer *t = words_of(some_words, 5);
    struct ids ids = encode_in_steps(t, " the\tof \n\nother \xC3\xA9t\xC3\xA9\r the", 26, 26, 0);

    (void)state;
    assert_int_equal(ids.count, 8); /* the last line has an end too */
    assert_memory_equal(ids.at, expected, sizeof expected);
    mem_free(ids.at);
    ids = encode_in_steps(t, "the\n", 4, 4, 0);
    assert_int_equal(ids.count, 2);
    assert_tokens(t, "of the\nx of\n", "of |the |\n|<unk> |of |\n|");
    mem_free(ids.at);
    alibi_tokenizer_free(t);
}

static void vocabularies_that_cannot_be_are_refused(void **state)
{
    static const struct {
        struct slice words[4];
        int count;
        const char *part;
    } cases[] = {
        { { { "<unk>", 5 } }, 1, "at least 2" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "", 0 } }, 3, "word 2 is empty" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a b", 3 } }, 3, "word 2 has white space" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a\xFF", 2 } }, 3, "word 2 is not text" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a\0b", 3 } }, 3, "word 2 is not text" },
        { { { "<unk>", 5 }, { "<eos>", 5 }, { "a", 1 }, { "a", 1 } },
          4,
          "word 3, 'a', is word 2 as well" },
    };
    alibi_tokenizer *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(tokenizer_new_words(&t, cases[i].words, cases[i].count), ALIBI_BAD_INPUT,
                     cases[i].part);
        assert_null(t);
    }
}

/* ---- files */

/* Writes, reads back, writes again: the same, and of the same checksum. */
static void assert_file_reads_back(const alibi_tokenizer *t)
{
    alibi_tokenizer *back = NULL;
    struct text first = { 0 }, second = { 0 };

    assert_ok(tokenizer_format(t, &first));
    assert_ok(tokenizer_read(&back, first.data, first.length, "tokenizer.json"));
    assert_ok(tokenizer_format(back, &second));
    assert_string_equal(first.data, second.data);
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(back));
    assert_int_equal(alibi_tokenizer_vocab(t), alibi_tokenizer_vocab(back));
    assert_int_equal(alibi_tokenizer_end(t), alibi_tokenizer_end(back));
    assert_string_equal(alibi_tokenizer_type(t), alibi_tokenizer_type(back));
    text_free(&first);
    text_free(&second);
    alibi_tokenizer_free(back);
}

static void files_read_back_and_are_always_the_same(void **state)
{
    alibi_tokenizer *bytes = NULL, *words = words_of(some_words, 5), *bpe = bpe_of(&english);
    struct text json = { 0 };

    (void)state;
    assert_ok(tokenizer_new_bytes(&bytes));
    assert_file_reads_back(bytes);
    assert_file_reads_back(words);
    assert_file_reads_back(bpe);
    assert_ok(tokenizer_format(bytes, &json));
    assert_string_equal(json.data, "{\"type\": \"bytes\", \"vocab\": 257, \"end\": 256}\n");
    assert_true(tokenizer_checksum(words) != tokenizer_checksum(bpe));
    text_free(&json);
    alibi_tokenizer_free(bytes);
    alibi_tokenizer_free(words);
    alibi_tokenizer_free(bpe);
}

static void files_that_are_malformed_are_named(void **state)
{
    static const struct {
        const char *json, *part;
    } cases[] = {
        { "", "'t.json'" },
        { "[]", "'t.json'" },
        { "{\"vocab\": 257, \"end\": 256}", "'t.json'" },
        { "{\"type\": \"bytes\", \"vocab\": 257", "'t.json'" },
        { "{\"type\": 3, \"vocab\": 257, \"end\": 256}", "type" },
        { " {\n\"type\": \"unigram\"}", "'unigram'" },
        { "{\"type\": \"bpe\"}", "'bpe'" },
        { "{\"type\": \"bytes\", \"end\": 256}", "vocab" },
        { "{\"type\": \"bytes\", \"vocab\": 300, \"end\": 256}", "vocab" },
        { "{\"type\": \"bytes\", \"vocab\": 257, \"end\": -1}", "end" },
        { "{\"type\": \"bytes\", \"vocab\": 257, \"end\": 256, \"merges\": []}", "'merges'" },
        { "{\"type\": \"bytes\", \"type\": \"bytes\", \"vocab\": 257, \"end\": "
          "256}",
          "'t.json'" },
        { "{\"type\": \"words\"}", "lacks 'words'" },
        { "{\"type\": \"words\", \"words\": {}}", "'words' is not a list" },
        { "{\"type\": \"words\", \"words\": [], \"words\": []}", "has 'words' twice" },
        { "{\"type\": \"words\", \"words\": [\"<unk>\", \"<eos>\", \"a\", \"a\"]}",
          "word 3, 'a', is word 2" },
        { "{\"type\": \"words\", \"words\": [\"<unk>\", 3]}", "'t.json': word 1 is not a text" },
        { "{\"type\": \"words\", \"words\": [\"<unk>\", \"<eos>\", \"a b\"]}",
          "'t.json': word 2 has white space" },
    };
    alibi_tokenizer *t = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(tokenizer_read(&t, cases[i].json, strlen(cases[i].json), "t.json"),
                     ALIBI_BAD_INPUT, cases[i].part);
        assert_null(t);
    }
}

static void a_file_of_words_takes_a_small_multiple_of_its_size(void **state)
{
    enum { WORDS = 100000 };
    struct text json = { 0 };
    alibi_tokenizer *t = NULL;
    size_t before;

    (void)state;
    text_append(&json, "{\"type\": \"words\", \"words\": [\"<unk>\", \"<eos>\"");
    for (int i = 0; i < WORDS; i++)
        text_append(&json, ",\"%d\"", i);
    text_append(&json, "]}");
    before = alibi_memory_now();
    alibi_memory_reset_peak();
    assert_ok(tokenizer_read(&t, json.data, json.length, "t.json"));
    printf("words %.1f bytes per byte\n",
           (double)(alibi_memory_peak() - before) / (double)json.length);
    assert_true(alibi_memory_peak() - before < 12 * json.length);
    alibi_tokenizer_free(t);
    text_free(&json);
}

static void a_tokenizer_is_opened_from_a_file_or_a_folder(void **state)
{
    alibi_tokenizer *t = bpe_of(&english), *file = NULL, *folder = NULL, *built_in = NULL,
                    *none = NULL;
    char *dir = temporary_folder();

    (void)state;
    assert_fails(alibi_tokenizer_open(&none, dir, NULL), ALIBI_BAD_INPUT, "has no tokenizer");
    assert_fails(alibi_tokenizer_open(&none, within(dir, "no.json"), NULL), ALIBI_BAD_INPUT,
                 "no.json");
    assert_ok(alibi_tokenizer_write(t, within(dir, "tokenizer.json")));
    assert_ok(alibi_tokenizer_open(&file, within(dir, "tokenizer.json"), NULL));
    assert_ok(alibi_tokenizer_open(&folder, dir, NULL));
    assert_ok(alibi_tokenizer_open(&built_in, "bytes", NULL));
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(file));
    assert_int_equal(tokenizer_checksum(t), tokenizer_checksum(folder));
    assert_string_equal(alibi_tokenizer_type(built_in), "bytes");
    assert_tokens(folder, "the<a>", "the|<a>|");
    alibi_tokenizer_free(t);
    alibi_tokenizer_free(file);
    alibi_tokenizer_free(folder);
    alibi_tokenizer_free(built_in);
    remove_temporary_folder(dir);
}

/* ---- threads, owners, faults */

struct job {
    const alibi_tokenizer *tokenizer;
    int64_t count;
};

static void *encode_much(void *user)
{
    static const char text[] = "the inner the<a>\n\n  thethethethethethethethethethethethethe "
                               "er\xC3\xA9 12";
    struct job *job = user;

    for (int i = 0; i < 200; i++) {
        struct ids ids = { 0 };
        if (tokenizer_encode(job->tokenizer, text, strlen(text), &ids) == ALIBI_OK)
            job->count += ids.count;
        mem_free(ids.at);
    }
    return NULL;
}

static void threads_share_one_tokenizer(void **state)
{
    alibi_tokenizer *t = bpe_of(&english);
    struct job jobs[4], alone = { t, 0 };
    pthread_t threads[4];

    (void)state;
    encode_much(&alone);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){ t, 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, encode_much, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(jobs[i].count, alone.count);
    }
    alibi_tokenizer_free(t);
}

static void the_last_owner_frees(void **state)
{
    size_t before = alibi_memory_now();
    alibi_tokenizer *t = NULL, *other;

    (void)state;
    assert_ok(tokenizer_new_bytes(&t));
    other = tokenizer_share(t);
    alibi_tokenizer_free(t);
    assert_int_equal(alibi_tokenizer_vocab(other), 257);
    alibi_tokenizer_free(other);
    alibi_tokenizer_free(NULL);
    assert_int_equal(alibi_memory_now(), before);
}

/* Reads the file and uses what it says. */
static alibi_status read_and_use(const struct text *json)
{
    static const char text[] = "the inner the<a>\n\n  thethethethethethethethethethethethethe "
                               "er\xC3\xA9 12";
    alibi_tokenizer *t = NULL;
    int32_t *ids = NULL;
    int64_t count;
    char *back = NULL;
    size_t bytes;
    alibi_status status;

    TRY(tokenizer_read(&t, json->data, json->length, "t.json"));
    TRY(alibi_tokenizer_encode(t, text, strlen(text), &ids, &count));
    TRY(alibi_tokenizer_decode(t, ids, count, &back, &bytes));
out:
    alibi_text_free(back);
    alibi_ids_free(ids);
    alibi_tokenizer_free(t);
    return status;
}

static void assert_faults_are_clean(const alibi_tokenizer *t)
{
    struct text json = { 0 };
    alibi_status status = ALIBI_MEMORY;
    size_t before;
    int n = 0;

    assert_ok(tokenizer_format(t, &json));
    before = alibi_memory_now();
    while (status != ALIBI_OK) {
        assert_ok(alibi_inject_fault("memory", ++n));
        status = read_and_use(&json);
        assert_true(status == ALIBI_OK || status == ALIBI_MEMORY);
        assert_int_equal(alibi_memory_now(), before);
    }
    assert_ok(alibi_inject_fault("memory", 0));
    assert_in_range(n, 5, 1000);
    text_free(&json);
}

static void every_failing_allocation_is_told_and_leaves_nothing(void **state)
{
    alibi_tokenizer *all[3] = { bpe_of(&english), words_of(some_words, 5), NULL };

    (void)state;
    assert_ok(tokenizer_new_bytes(&all[2]));
    for (int i = 0; i < 3; i++) {
        assert_faults_are_clean(all[i]);
        alibi_tokenizer_free(all[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(numbers_are_their_ids),
        cmocka_unit_test(numbers_have_a_limit),
        cmocka_unit_test(any_stretches_give_the_ids_of_the_whole),
        cmocka_unit_test(one_encoder_gives_the_same_again),
        cmocka_unit_test(every_byte_is_its_own_token),
        cmocka_unit_test(encoding_appends),
        cmocka_unit_test(ids_that_are_no_byte_have_no_bytes),
        cmocka_unit_test(words_stand_between_white_space_and_lines_end),
        cmocka_unit_test(vocabularies_that_cannot_be_are_refused),
        cmocka_unit_test(files_read_back_and_are_always_the_same),
        cmocka_unit_test(files_that_are_malformed_are_named),
        cmocka_unit_test(a_file_of_words_takes_a_small_multiple_of_its_size),
        cmocka_unit_test(a_tokenizer_is_opened_from_a_file_or_a_folder),
        cmocka_unit_test(threads_share_one_tokenizer),
        cmocka_unit_test(the_last_owner_frees),
        cmocka_unit_test(every_failing_allocation_is_told_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
