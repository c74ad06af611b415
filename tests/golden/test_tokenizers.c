/* test_tokenizers.c - tokenizers give the ids that Hugging Face's library gives, and ids give the
 * text back
 *
 * make_tokenizers.py in this folder wrote tokenizers/, and describes the files. */
#include "text/text.h"

#include "check.h"

#define DATA TEST_FOLDER "/golden/tokenizers"

enum { FILE_MAX = 1 << 22, TEXTS_MAX = 1024, IDS_MAX = 4096, SHOWN_MAX = 5 };

/* ---- texts */

struct sample {
    char *spelled; /* as strings.txt has it, for messages */
    char *bytes;
    size_t length;
};

static struct sample samples[TEXTS_MAX];
static int sample_count;
static char *spelled_all; /* what all `spelled` point into */

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : c - 'A' + 10;
}

static char escaped_byte(const char *at)
{
    unsigned byte = (unsigned)hex_digit(at[1]) << 4 | (unsigned)hex_digit(at[2]);

    return (char)byte;
}

/* %XX is a byte, everything else itself. */
static void read_sample(struct sample *s, char *spelled)
{
    s->spelled = spelled;
    s->bytes = malloc(strlen(spelled) + 1);
    assert_non_null(s->bytes);
    for (const char *at = spelled; *at != '\0'; at += *at == '%' ? 3 : 1)
        s->bytes[s->length++] = *at == '%' ? escaped_byte(at) : *at;
}

/* Cuts off the next line; NULL after the last. */
static char *next_line(char **rest)
{
    char *line = *rest, *end = strchr(line, '\n');

    if (end == NULL)
        return NULL;
    *end = '\0';
    *rest = end + 1;
    return line;
}

static int read_samples(void **state)
{
    char *rest, *line;
    size_t bytes;

    (void)state;
    assert_ok(file_read_all(&spelled_all, &bytes, DATA "/strings.txt", FILE_MAX));
    for (rest = spelled_all; (line = next_line(&rest)) != NULL;) {
        assert_true(sample_count < TEXTS_MAX);
        read_sample(&samples[sample_count++], line);
    }
    assert_true(sample_count > 300);
    return 0;
}

static int free_samples(void **state)
{
    (void)state;
    for (int i = 0; i < sample_count; i++)
        free(samples[i].bytes);
    mem_free(spelled_all);
    return 0;
}

/* ---- ids */

static int64_t read_ids(int32_t ids[IDS_MAX], const char *line)
{
    int64_t count = 0;
    char *end;

    for (const char *at = line; *at != '\0'; at = *end == ' ' ? end + 1 : end) {
        assert_true(count < IDS_MAX);
        ids[count++] = (int32_t)strtol(at, &end, 10);
        assert_true(end > at);
    }
    return count;
}

static void show_ids(const char *whose, const int32_t *ids, int64_t count)
{
    print_error("  %-6s", whose);
    for (int64_t i = 0; i < count; i++)
        print_error(" %d", (int)ids[i]);
    print_error("\n");
}

/* Whether the tokenizer drops something of the text, or replaces it. */
static bool changes(const char *name)
{
    static const char *const kinds[] = { "nfc", "strips", "llama2", "metaspace", "prefix" };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return false;
}

/* The ids are theirs, and decode to the text unless the tokenizer changes it. */
static bool sample_holds(const alibi_tokenizer *t, const char *name, const struct sample *s,
                         const char *line, bool show)
{
    int32_t theirs[IDS_MAX], *ours = NULL;
    int64_t their_count = read_ids(theirs, line), count = 0;
    bool same, back;
    char *text = NULL;
    size_t bytes = 0;

    assert_ok(alibi_tokenizer_encode(t, s->bytes, s->length, &ours, &count));
    assert_ok(alibi_tokenizer_decode(t, ours, count, &text, &bytes));
    same = count == their_count && memcmp(ours, theirs, (size_t)count * sizeof *ours) == 0;
    back = changes(name) || (bytes == s->length && memcmp(text, s->bytes, bytes) == 0);
    if (show && !(same && back)) {
        print_error("'%s': %s\n", s->spelled, same ? "decodes to another text" : "other ids");
        show_ids("ours", ours, count);
        show_ids("theirs", theirs, their_count);
    }
    alibi_text_free(text);
    alibi_ids_free(ours);
    return same && back;
}

static void check_samples(const alibi_tokenizer *t, const char *name, const char *how)
{
    char path[4096], *all = NULL, *rest, *line;
    size_t bytes;
    int wrong = 0;

    snprintf(path, sizeof path, "%s/%s.ids", DATA, name);
    assert_ok(file_read_all(&all, &bytes, path, FILE_MAX));
    rest = all;
    for (int i = 0; i < sample_count; i++) {
        line = next_line(&rest);
        assert_non_null(line);
        wrong += !sample_holds(t, name, &samples[i], line, wrong < SHOWN_MAX);
    }
    assert_int_equal(*rest, '\0');
    printf("golden %-18s %-10s %d texts  %d differ  %s\n", name, how, sample_count, wrong,
           wrong == 0 ? "ok" : "FAILED");
    mem_free(all);
    assert_int_equal(wrong, 0);
}

static void open_golden(alibi_tokenizer **t, const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", DATA, name);
    if (!folder_exists(path))
        snprintf(path, sizeof path, "%s/%s.json", DATA, name);
    assert_ok(alibi_tokenizer_open(t, path, NULL));
}

static void ids_equal_those_of_hugging_face(void **state)
{
    alibi_tokenizer *t = NULL;

    open_golden(&t, *state);
    check_samples(t, *state, "as read");
    alibi_tokenizer_free(t);
}

static void ids_are_the_same_after_writing_and_reading(void **state)
{
    char *folder = temporary_folder();
    alibi_tokenizer *t = NULL, *again = NULL;

    open_golden(&t, *state);
    assert_ok(alibi_tokenizer_write(t, within(folder, "tokenizer.json")));
    assert_ok(alibi_tokenizer_open(&again, folder, NULL));
    check_samples(again, *state, "rewritten");
    assert_int_equal(alibi_tokenizer_vocab(again), alibi_tokenizer_vocab(t));
    assert_int_equal(alibi_tokenizer_end(again), alibi_tokenizer_end(t));
    alibi_tokenizer_free(again);
    alibi_tokenizer_free(t);
    remove_temporary_folder(folder);
}

/* ---- in parts */

/* The ids of the text, encoded in stretches of `step` bytes, of which as many more are known as are
 * needed to move on. */
static void encode_in_steps(const alibi_tokenizer *t, const char *text, size_t bytes, size_t step,
                            struct ids *ids)
{
    struct encoder *e = NULL;
    size_t at = 0, more = 0;

    assert_ok(encoder_new(&e, t));
    while (at < bytes) {
        size_t stop = at + step < bytes ? at + step : bytes,
               end = stop + more < bytes ? stop + more : bytes, reached;
        struct stretch s = { text, at, stop, end, .last = end == bytes };
        assert_ok(encoder_run(e, &s, ids, &reached));
        assert_true(reached >= at && reached <= end && (reached > at || end < bytes));
        more = reached > at ? 0 : more + 1;
        at = reached;
    }
    encoder_free(e);
}

static void parts_of_a_text_have_the_ids_of_the_whole(void **state)
{
    alibi_tokenizer *t = NULL;

    open_golden(&t, *state);
    for (int i = 0; i < sample_count; i++) {
        struct ids whole = { 0 }, parts = { 0 };
        size_t length = samples[i].length;
        assert_ok(tokenizer_encode(t, samples[i].bytes, length, &whole));
        encode_in_steps(t, samples[i].bytes, length, 1 + (size_t)i % 7, &parts);
        if (parts.count != whole.count ||
            (whole.count > 0 &&
             memcmp(parts.at, whole.at, (size_t)whole.count * sizeof *whole.at) != 0))
            fail_msg("%s: '%s' has other ids in parts", (const char *)*state, samples[i].spelled);
        mem_free(whole.at);
        mem_free(parts.at);
    }
    alibi_tokenizer_free(t);
}

/* ---- bytes that are no text */

/* Text with added tokens is not compared: blanks may be put after them. Without, a tokenizer that
 * puts a blank before text decodes it as it was, with a blank for U+2581, and less a blank at its
 * start that nothing was put before. */
static bool prefixes(const char *name)
{
    return strncmp(name, "llama2", 6) == 0 || strncmp(name, "metaspace", 9) == 0 ||
           strncmp(name, "prefix", 6) == 0;
}

static void check_prefixed(const char *text, size_t back, const char *bytes, size_t length,
                           const char *name)
{
    bool characters = strncmp(name, "prefix", 6) != 0;
    struct text expected = { 0 };

    text_append_bytes(&expected, "", 0);
    for (size_t i = 0; i < length; i++) {
        bool blank = characters && length - i >= 3 && memcmp(bytes + i, "\xE2\x96\x81", 3) == 0;
        text_append_bytes(&expected, blank ? " " : bytes + i, 1);
        i += blank ? 2 : 0;
    }
    if (strncmp(name, "metaspace-", 10) == 0 && expected.length > 0 && expected.data[0] == ' ' &&
        strcmp(name, "metaspace-never") != 0)
        memmove(expected.data, expected.data + 1, expected.length--);
    if (!characters && length > 0 && bytes[0] != ' ')
        text++, back--;
    assert_int_equal(back, expected.length);
    assert_memory_equal(text, expected.data, back);
    text_free(&expected);
}

/* The ids give the text back; a text that was changed need only have the same ids. */
static void check_round_trip(const alibi_tokenizer *t, const char *bytes, size_t length,
                             const char *name)
{
    struct ids ids = { 0 }, again = { 0 };
    char *text = NULL;
    size_t back = 0;

    assert_ok(tokenizer_encode(t, bytes, length, &ids));
    assert_ok(alibi_tokenizer_decode(t, ids.at, ids.count, &text, &back));
    if (!changes(name)) {
        assert_int_equal(back, length);
        assert_memory_equal(text, bytes, length);
    }
    if (prefixes(name)) {
        if (memchr(bytes, '<', length) == NULL)
            check_prefixed(text, back, bytes, length, name);
    } else {
        assert_ok(tokenizer_encode(t, text, back, &again));
        assert_int_equal(again.count, ids.count);
        assert_memory_equal(again.at, ids.at, (size_t)ids.count * sizeof *ids.at);
    }
    alibi_text_free(text);
    mem_free(ids.at);
    mem_free(again.at);
}

/* Bytes that are not UTF-8 among such that are: some of each text are set to anything. */
static size_t spoil(char *out, uint64_t number)
{
    const struct sample *s = &samples[number % (uint64_t)sample_count];
    size_t length = s->length < 200 ? s->length : 200;

    memcpy(out, s->bytes, length);
    for (uint64_t i = 0; i < 1 + length / 8 && length > 0; i++) {
        struct random4 r = random_block(7, number, i);
        out[r.at[0] % length] = (char)(r.at[1] % 256);
    }
    return length;
}

static void any_bytes_come_back(void **state)
{
    alibi_tokenizer *t = NULL;
    char bytes[256];

    open_golden(&t, *state);
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        check_round_trip(t, &bytes[i], 1, *state);
    }
    check_round_trip(t, bytes, sizeof bytes, *state);
    for (uint64_t number = 0; number < 1000; number++) {
        size_t length = spoil(bytes, number);
        if (length > 0)
            check_round_trip(t, bytes, length, *state);
    }
    alibi_tokenizer_free(t);
}

/* Each text as Hugging Face's library decodes its ids. */
static void a_token_that_takes_the_blank_before_it_gives_it_back(void **state)
{
    static const char *const texts[] = { "<s>a", "a <s>a", "a<s>a", " <s>", "<s> <x>b" };
    alibi_tokenizer *t = NULL;

    (void)state;
    open_golden(&t, "llama2-normalized");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t *ids = NULL;
        int64_t count = 0;
        char *text = NULL;
        size_t bytes;
        assert_ok(alibi_tokenizer_encode(t, texts[i], strlen(texts[i]), &ids, &count));
        assert_ok(alibi_tokenizer_decode(t, ids, count, &text, &bytes));
        assert_string_equal(text, texts[i]);
        alibi_ids_free(ids);
        alibi_text_free(text);
    }
    alibi_tokenizer_free(t);
}

static alibi_status encode_not_normal(void *subject)
{
    static const char text[] = "e\xCC\x81 a\xCC\xA3\xCC\x82\xCC\x81 \xE1\x84\x92\xE1\x85\xA1";
    struct ids ids = { 0 };
    alibi_status status = tokenizer_encode(subject, text, sizeof text - 1, &ids);

    mem_free(ids.at);
    return status;
}

static void every_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    alibi_tokenizer *t = NULL;

    (void)state;
    open_golden(&t, "nfc");
    assert_true(fail_each_call("memory", encode_not_normal, t, ALIBI_MEMORY, "not enough memory") >=
                6);
    alibi_tokenizer_free(t);
}

/* Two kinds of added tokens that lie across each other are looked for one after the other there,
 * and all at once here. */
static void added_tokens_that_would_give_other_ids_are_refused(void **state)
{
    alibi_tokenizer *t = NULL;

    (void)state;
    assert_fails(alibi_tokenizer_open(&t, DATA "/refused-across.json", NULL), ALIBI_BAD_INPUT,
                 "normalized");
}

/* ---- the files */

static const char *const names[] = {
    "gpt2",
    "gpt2-pair",
    "bloom",
    "llama3",
    "llama3-merges",
    "cl100k",
    "o200k",
    "three-splits",
    "plain-split",
    "no-split",
    "added",
    "nfc",
    "nfc-split",
    "nfc-levels",
    "shuffled",
    "shuffled-no-split",
    "strips",
    "strips-no-split",
    "prefix",
    "llama2",
    "llama2-normalized",
    "llama2-joins",
    "falcon",
    "digits",
    "words",
    "metaspace-first",
    "metaspace-always",
    "metaspace-never",
};

enum { NAMES = sizeof names / sizeof *names };

static bool is_known(const char *file)
{
    size_t stem = strlen(file) > 4 ? strlen(file) - 4 : 0;

    for (int i = 0; i < NAMES; i++)
        if (strlen(names[i]) == stem && strncmp(file, names[i], stem) == 0)
            return true;
    return false;
}

/* A file that is missing fails its own tests; one that no test reads fails this. */
static void every_golden_file_is_read_by_a_test(void **state)
{
    char **files = NULL;
    int count = 0, known = 0;

    (void)state;
    assert_ok(folder_list(&files, &count, DATA));
    for (int i = 0; i < count; i++) {
        if (strstr(files[i], ".ids") == NULL)
            continue;
        if (!is_known(files[i]))
            fail_msg("'%s' is read by no test", files[i]);
        known++;
    }
    names_free(files, count);
    assert_int_equal(known, NAMES);
}

int main(void)
{
    struct CMUnitTest tests[4 * NAMES + 4], *next = tests;

    for (int i = 0; i < NAMES; i++) {
        void *name = (void *)names[i];
        *next++ =
            (struct CMUnitTest){ names[i], ids_equal_those_of_hugging_face, NULL, NULL, name };
        *next++ = (struct CMUnitTest){ names[i], ids_are_the_same_after_writing_and_reading, NULL,
                                       NULL, name };
        *next++ = (struct CMUnitTest){ names[i], parts_of_a_text_have_the_ids_of_the_whole, NULL,
                                       NULL, name };
        *next++ = (struct CMUnitTest){ names[i], any_bytes_come_back, NULL, NULL, name };
    }
    *next++ =
        (struct CMUnitTest)cmocka_unit_test(every_failing_allocation_is_reported_and_leaks_nothing);
    *next++ =
        (struct CMUnitTest)cmocka_unit_test(a_token_that_takes_the_blank_before_it_gives_it_back);
    *next++ =
        (struct CMUnitTest)cmocka_unit_test(added_tokens_that_would_give_other_ids_are_refused);
    *next = (struct CMUnitTest)cmocka_unit_test(every_golden_file_is_read_by_a_test);
    return cmocka_run_group_tests_name("tokenizers equal Hugging Face's", tests, read_samples,
                                       free_samples);
}
