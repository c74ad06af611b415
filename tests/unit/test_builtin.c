/* test_builtin.c - the built-in text: the promises about its words, its documents and its facts */
#include <ctype.h>

#include "check.h"
#include "text/text.h"

enum { FULL = 4 << 20, DOCUMENTS = 1000 };

/* ---- the text of a seed, document by document */

struct collection {
    char *texts[DOCUMENTS];
    size_t lengths[DOCUMENTS];
    int count;
    size_t bytes;
    uint32_t checksum;
};

static struct collection *new_collection(int64_t seed, int64_t bytes)
{
    struct collection *c = calloc(1, sizeof *c);
    struct builtin *b = NULL;
    struct slice text;

    assert_non_null(c);
    assert_ok(builtin_open(&b, &(struct alibi_builtin){ seed, bytes }));
    for (;;) {
        assert_ok(builtin_next(b, &text));
        if (text.bytes == 0)
            break;
        assert_true(c->count < DOCUMENTS);
        c->texts[c->count] = strndup(text.at, text.bytes);
        c->lengths[c->count++] = text.bytes;
        c->bytes += text.bytes;
        c->checksum = checksum(c->checksum, text.at, text.bytes);
    }
    builtin_close(b);
    return c;
}

static void free_collection(struct collection *c)
{
    for (int i = 0; i < c->count; i++)
        free(c->texts[i]);
    free(c);
}

/* The text of seed 1 in full, which most tests look at. */
static int make_full(void **state)
{
    *state = new_collection(1, FULL);
    return 0;
}

static int free_full(void **state)
{
    free_collection(*state);
    return 0;
}

/* ---- words */

struct mention {
    const char *text;
    int length;
    int place; /* how many words of the document stand before it */
};

struct mentions {
    struct mention *at;
    int count, capacity;
};

static void add_mention(struct mentions *m, struct mention one)
{
    if (m->count == m->capacity) {
        m->capacity = m->capacity > 0 ? 2 * m->capacity : 1024;
        m->at = realloc(m->at, (size_t)m->capacity * sizeof *m->at);
        assert_non_null(m->at);
    }
    m->at[m->count++] = one;
}

/* A word is a run of letters, in which single hyphens may stand. */
static int word_length(const char *text)
{
    int length = 0;

    while (isalpha((unsigned char)text[length]) ||
           (length > 0 && text[length] == '-' && isalpha((unsigned char)text[length + 1])))
        length++;
    return length;
}

static void add_words(struct mentions *m, const char *text)
{
    int place = 0;

    while (*text != '\0') {
        int length = word_length(text);
        if (length > 0)
            add_mention(m, (struct mention){ text, length, place++ });
        text += length > 0 ? length : 1;
    }
}

static int compare_mentions(const void *a, const void *b)
{
    const struct mention *x = a, *y = b;
    int shorter = x->length < y->length ? x->length : y->length;
    int order = strncasecmp(x->text, y->text, (size_t)shorter);

    if (order != 0)
        return order;
    return x->length != y->length ? x->length - y->length : x->place - y->place;
}

static bool same_word(const struct mention *a, const struct mention *b)
{
    return a->length == b->length && strncasecmp(a->text, b->text, (size_t)a->length) == 0;
}

static int larger_first(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x < y) - (x > y);
}

/* How often each distinct word occurs, the most frequent first, in memory that the caller frees. */
static int *word_frequencies(const struct collection *c, int *distinct)
{
    struct mentions m = { 0 };
    int *counts, last = -1;

    for (int i = 0; i < c->count; i++)
        add_words(&m, c->texts[i]);
    qsort(m.at, (size_t)m.count, sizeof *m.at, compare_mentions);
    counts = calloc((size_t)m.count, sizeof *counts);
    assert_non_null(counts);
    for (int i = 0; i < m.count; i++) {
        last += i == 0 || !same_word(&m.at[i - 1], &m.at[i]);
        counts[last]++;
    }
    *distinct = last + 1;
    qsort(counts, (size_t)*distinct, sizeof *counts, larger_first);
    free(m.at);
    return counts;
}

/* Slope of the least-squares line through (log rank, log frequency). */
static double rank_slope(const int *counts, int ranks)
{
    double x = 0, y = 0, xx = 0, xy = 0, n = ranks;

    for (int r = 0; r < ranks; r++) {
        double log_rank = log(r + 1.0), log_count = log(counts[r]);
        x += log_rank;
        y += log_count;
        xx += log_rank * log_rank;
        xy += log_rank * log_count;
    }
    return (n * xy - x * y) / (n * xx - x * x);
}

static void words_follow_zipfs_law(void **state)
{
    int distinct, *counts = word_frequencies(*state, &distinct);
    double slope = rank_slope(counts, 1000);

    print_message("%d distinct words, slope %.3f\n", distinct, slope);
    assert_in_range(distinct, 1000, 8000);
    assert_true(slope > -1.3 && slope < -0.7);
    free(counts);
}

static int compare_exactly(const void *a, const void *b)
{
    const struct mention *x = a, *y = b;
    int order = memcmp(x->text, y->text, (size_t)(x->length < y->length ? x->length : y->length));

    return order != 0 ? order : x->length - y->length;
}

/* As a vocabulary of words takes them: with capitals and the signs that follow. */
static void words_between_white_space_are_as_few_as_the_header_says(void **state)
{
    struct collection *c = new_collection(3, 4 * FULL);
    struct mentions m = { 0 };
    int distinct = 0;

    (void)state;
    for (int i = 0; i < c->count; i++)
        for (const char *at = c->texts[i]; *at != '\0'; at += strspn(at, " \n")) {
            int length = (int)strcspn(at, " \n");

            add_mention(&m, (struct mention){ at, length, 0 });
            at += length;
        }
    qsort(m.at, (size_t)m.count, sizeof *m.at, compare_exactly);
    for (int i = 0; i < m.count; i++)
        distinct += i == 0 || compare_exactly(&m.at[i - 1], &m.at[i]) != 0;
    print_message("%d distinct words between white space\n", distinct);
    assert_in_range(distinct, BUILTIN_WORDS * 8 / 10, BUILTIN_WORDS - 1);
    free(m.at);
    free_collection(c);
}

/* ---- seeds and sizes */

/* The same on every machine: a change of this number is a change of everybody's built-in text. */
static void text_of_seed_1_is_what_it_always_was(void **state)
{
    const struct collection *c = *state;

    print_message("checksum 0x%08x\n", c->checksum);
    assert_int_equal(c->checksum, 0x900f07fa);
}

static void same_seed_gives_the_same_text(void **state)
{
    const struct collection *full = *state;
    struct collection *again = new_collection(1, FULL), *other = new_collection(2, FULL);

    assert_int_equal(full->bytes, again->bytes);
    assert_int_equal(full->checksum, again->checksum);
    assert_int_not_equal(full->checksum, other->checksum);
    for (int i = 0; i < full->count && i < other->count; i++)
        assert_string_not_equal(full->texts[i], other->texts[i]);
    free_collection(again);
    free_collection(other);
}

static void text_has_at_least_the_bytes_asked_for(void **state)
{
    static const int64_t sizes[] = { 1, 1000, 50000, 200000, 1000000, 6000000 };
    static const int64_t seeds[] = { 0, 7, INT32_MAX };

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        for (size_t k = 0; k < 3; k++) {
            struct collection *c = new_collection(seeds[k], sizes[i]);
            assert_true(c->bytes >= (size_t)sizes[i]);
            assert_true(c->bytes < (size_t)sizes[i] + 40000);
            assert_true(c->count >= 3);
            free_collection(c);
        }
    }
}

static void sizes_that_are_none_are_refused(void **state)
{
    alibi_corpus *c = NULL;

    (void)state;
    assert_fails(alibi_corpus_builtin(&c, 1, 0, NULL, test_call()), ALIBI_USAGE, "bytes");
    assert_fails(alibi_corpus_builtin(&c, 1, INT64_MIN, NULL, test_call()), ALIBI_USAGE, "bytes");
    assert_fails(alibi_corpus_builtin(&c, 1, INT64_MAX, NULL, test_call()), ALIBI_USAGE, "bytes");
    assert_fails(alibi_corpus_builtin(&c, UINT64_MAX, 1, NULL, test_call()), ALIBI_USAGE, "seeds");
    assert_null(c);
}

/* ---- documents */

static int count_words(const char *text)
{
    struct mentions m = { 0 };
    int count;

    add_words(&m, text);
    count = m.count;
    free(m.at);
    return count;
}

static void documents_have_several_thousand_words(void **state)
{
    const struct collection *c = *state;
    int words[DOCUMENTS];

    for (int i = 0; i < c->count; i++)
        words[i] = count_words(c->texts[i]);
    qsort(words, (size_t)c->count, sizeof words[0], larger_first);
    print_message("%d documents, words: least %d, median %d, most %d\n", c->count,
                  words[c->count - 1], words[c->count / 2], words[0]);
    assert_in_range(words[c->count / 2], 3000, 8000);
    assert_true(words[c->count - 1] >= 2000);
}

/* No slot is left unfilled, and nothing is out of place between words. */
static void documents_are_plain_paragraphs(void **state)
{
    static const char *const wrong[] = { "{",  "}",  "~",  "|",      "  ",    " \n",
                                         " .", " ,", "..", "\n\n\n", "(null)" };
    const struct collection *c = *state;

    for (int i = 0; i < c->count; i++) {
        const char *text = c->texts[i];
        assert_int_equal(utf8_valid_prefix(text, c->lengths[i]), c->lengths[i]);
        assert_int_equal(strlen(text), c->lengths[i]);
        assert_true(isupper((unsigned char)text[0]));
        assert_string_equal(text + c->lengths[i] - 2, "\n\n");
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++)
            if (strstr(text, wrong[k]) != NULL)
                fail_msg("document %d has '%.60s'", i, strstr(text, wrong[k]));
    }
}

/* No small letter follows ". ". */
static void sentences_start_with_capitals(void **state)
{
    const struct collection *c = *state;

    for (int i = 0; i < c->count; i++)
        for (const char *p = c->texts[i]; (p = strstr(p, ". ")) != NULL; p++)
            if (islower((unsigned char)p[2]))
                fail_msg("document %d has '%.40s'", i, p);
}

/* ---- facts */

/* Names are capitalised words after a small letter and a space, never the first of a sentence. */
static bool is_name(const struct mention *m, const char *document)
{
    return isupper((unsigned char)m->text[0]) && m->text - document >= 2 && m->text[-1] == ' ' &&
           (islower((unsigned char)m->text[-2]) || m->text[-2] == ',');
}

enum { SCALES = 5 };

struct recurrences {
    int first;            /* mentions of a name that the document had not yet */
    int by_scale[SCALES]; /* others, by words since the last: to 20, 100, 300, 1000, beyond */
};

static int scale_of(int distance)
{
    static const int most[] = { 20, 100, 300, 1000 };
    int scale = 0;

    while (scale < SCALES - 1 && distance > most[scale])
        scale++;
    return scale;
}

static struct recurrences name_recurrences(const char *document)
{
    struct recurrences r = { 0 };
    struct mentions all = { 0 }, names = { 0 };

    add_words(&all, document);
    for (int i = 0; i < all.count; i++)
        if (is_name(&all.at[i], document))
            add_mention(&names, all.at[i]);
    qsort(names.at, (size_t)names.count, sizeof *names.at, compare_mentions);
    for (int i = 0; i < names.count; i++) {
        if (i == 0 || !same_word(&names.at[i - 1], &names.at[i]))
            r.first++;
        else
            r.by_scale[scale_of(names.at[i].place - names.at[i - 1].place)]++;
    }
    free(all.at);
    free(names.at);
    return r;
}

static void names_recur_at_every_distance(void **state)
{
    const struct collection *c = *state;
    int total[SCALES] = { 0 }, first = 0, again = 0, far = 0;

    for (int i = 0; i < c->count; i++) {
        struct recurrences r = name_recurrences(c->texts[i]);
        first += r.first;
        far += r.by_scale[SCALES - 1] > 0;
        for (int s = 0; s < SCALES; s++)
            total[s] += r.by_scale[s];
    }
    for (int s = 0; s < SCALES; s++)
        again += total[s];
    print_message(
        "names: %d new, %d again, of these %d %d %d %d %d by distance; beyond 1000 words in %d of %d documents\n",
        first, again, total[0], total[1], total[2], total[3], total[4], far, c->count);
    assert_true(far > c->count * 9 / 10);
    assert_true(again > 5 * first);
    assert_true(total[0] > again / 5);
    for (int s = 0; s < SCALES; s++)
        assert_true(total[s] > again / 100);
}

/* Names cannot be learned from other documents: few share a person. */
static void people_differ_from_document_to_document(void **state)
{
    const struct collection *c = *state;
    int shared = 0;

    for (int i = 0; i + 1 < c->count; i++) {
        const char *end = strstr(c->texts[i], " keeps "), *name = end;
        char both[64];
        assert_non_null(end);
        for (int spaces = 0; name > c->texts[i] && (name[-1] != ' ' || spaces++ < 1);)
            name--;
        snprintf(both, sizeof both, "%.*s", (int)(end - name), name);
        shared += strstr(c->texts[i + 1], both) != NULL;
    }
    print_message("%d of %d documents share a person with the next\n", shared, c->count - 1);
    assert_true(shared < c->count / 10);
}

static int number_from_words(const char *text, const char **end)
{
    static const char *const names[] = {
        "",         "one",     "two",     "three",     "four",     "five",    "six",
        "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
        "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"
    };
    static const char *const tens[] = { "twenty", "thirty",  "forty",  "fifty",
                                        "sixty",  "seventy", "eighty", "ninety" };
    int length = word_length(text);

    *end = text + length;
    for (int n = 1; n < 100; n++) {
        char name[32];
        if (n < 20)
            snprintf(name, sizeof name, "%s", names[n]);
        else
            snprintf(name, sizeof name, "%s%s%s", tens[n / 10 - 2], n % 10 > 0 ? "-" : "",
                     names[n % 10]);
        if ((int)strlen(name) == length && strncasecmp(name, text, (size_t)length) == 0)
            return n;
    }
    return -1;
}

/* "Sixteen less two is fourteen", wherever the text says " less ". */
static void running_counts_add_up(void **state)
{
    const struct collection *c = *state;
    int sums = 0;

    for (int i = 0; i < c->count; i++) {
        for (const char *p = c->texts[i]; (p = strstr(p, " less ")) != NULL; p++) {
            const char *start = p, *end;
            int before, moved, left;
            while (isalpha((unsigned char)start[-1]) || start[-1] == '-')
                start--;
            before = number_from_words(start, &end);
            moved = number_from_words(p + strlen(" less "), &end);
            assert_int_equal(strncmp(end, " is ", 4), 0);
            left = number_from_words(end + 4, &end);
            assert_true(before > 0 && moved > 0 && left > 0);
            assert_int_equal(before - moved, left);
            sums++;
        }
    }
    print_message("%d sums\n", sums);
    assert_true(sums > c->count);
}

/* ---- as a corpus */

static void splits_are_whole_documents(void **state)
{
    const struct collection *full = *state;
    alibi_corpus *c = NULL;
    struct span all, parts[3];
    struct alibi_corpus_info info;
    int64_t documents = 0;
    int32_t last;

    assert_ok(alibi_corpus_builtin(&c, 1, FULL, NULL, test_call()));
    all = corpus_span(c, ALIBI_ALL);
    alibi_corpus_get_info(c, ALIBI_ALL, &info);
    assert_int_equal(info.documents, full->count);
    assert_int_equal(info.bytes, full->bytes);
    for (int s = 0; s < 3; s++) {
        parts[s] = corpus_span(c, (enum alibi_split)s);
        span_read(parts[s], parts[s].count - 1, 1, &last);
        assert_int_equal(last, alibi_tokenizer_end(corpus_tokenizer(c)));
        alibi_corpus_get_info(c, (enum alibi_split)s, &info);
        documents += info.documents;
        assert_int_equal(parts[s].first, s == 0 ? 0 : parts[s - 1].first + parts[s - 1].count);
    }
    assert_int_equal(parts[0].count + parts[1].count + parts[2].count, all.count);
    assert_int_equal(documents, full->count);
    assert_in_range(parts[1].count, all.count / 30, all.count / 15);
    assert_in_range(parts[2].count, all.count / 30, all.count / 15);
    assert_string_equal(corpus_name(c), "built-in text");
    alibi_corpus_free(c);
}

static void smallest_text_still_has_three_splits(void **state)
{
    alibi_corpus *c = NULL;
    struct alibi_corpus_info info;

    (void)state;
    assert_ok(alibi_corpus_builtin(&c, 3, 1, NULL, test_call()));
    assert_true(corpus_builtin(c).seed == 3 && corpus_builtin(c).bytes == 1);
    for (int s = 0; s < 3; s++) {
        alibi_corpus_get_info(c, (enum alibi_split)s, &info);
        assert_int_equal(info.documents, 1);
    }
    alibi_corpus_free(c);
}

static void memory_faults_leak_nothing(void **state)
{
    size_t before = alibi_memory_now();
    alibi_status status = ALIBI_MEMORY;
    int faults = 0;

    (void)state;
    while (status != ALIBI_OK) {
        alibi_corpus *c = NULL;
        assert_ok(alibi_inject_fault("memory", faults + 1));
        status = alibi_corpus_builtin(&c, 1, 30000, NULL, test_call());
        assert_ok(alibi_inject_fault("memory", 0));
        assert_true(status == ALIBI_OK || (status == ALIBI_MEMORY && c == NULL));
        alibi_corpus_free(c);
        assert_int_equal(alibi_memory_now(), before);
        faults += status != ALIBI_OK;
    }
    print_message("%d memory faults\n", faults);
    assert_true(faults > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_follow_zipfs_law),
        cmocka_unit_test(words_between_white_space_are_as_few_as_the_header_says),
        cmocka_unit_test(text_of_seed_1_is_what_it_always_was),
        cmocka_unit_test(same_seed_gives_the_same_text),
        cmocka_unit_test(text_has_at_least_the_bytes_asked_for),
        cmocka_unit_test(sizes_that_are_none_are_refused),
        cmocka_unit_test(documents_have_several_thousand_words),
        cmocka_unit_test(documents_are_plain_paragraphs),
        cmocka_unit_test(sentences_start_with_capitals),
        cmocka_unit_test(names_recur_at_every_distance),
        cmocka_unit_test(people_differ_from_document_to_document),
        cmocka_unit_test(running_counts_add_up),
        cmocka_unit_test(splits_are_whole_documents),
        cmocka_unit_test(smallest_text_still_has_three_splits),
        cmocka_unit_test(memory_faults_leak_nothing),
    };

    return cmocka_run_group_tests(tests, make_full, free_full);
}
