/* test_stretches.c - what many threads make of a text in parts is what one makes of it from the
 * start */
#include <omp.h>
#include <stdatomic.h>

#include "check.h"
#include "text/source.h"

/* ---- a text of documents, and a result that shows every cut: pieces, each followed by '|',
 * documents with '#' */

enum { STEP = 7 };

struct input {
    char *text;
    size_t bytes;
    size_t *ends;
    int64_t end_count;
};

/* Documents of many sizes, from a few bytes to several parts. */
static struct input random_input(uint64_t seed, size_t bytes, int64_t documents)
{
    struct input in = { malloc(bytes), bytes, malloc((size_t)documents * sizeof(size_t)),
                        documents };
    size_t end = 0;

    assert_true(in.text != NULL && in.ends != NULL);
    for (size_t i = 0; i < bytes; i++)
        in.text[i] = "abcde \nx"[random_below(seed, 1, i, 8)];
    for (int64_t i = 0; i < documents; i++) {
        size_t left =
            bytes - end - (size_t)(documents - 1 - i); /* one byte at least for each that follows */
        size_t most = i % 3 == 0 ? left : left < 500 ? left : 500;
        end =
            i == documents - 1
                ? bytes
                : end + 1 + random_below(seed, 2, (uint64_t)i, i % 3 == 0 ? (most + 1) / 2 : most);
        in.ends[i] = end;
    }
    return in;
}

static void input_fini(struct input *in)
{
    free(in->text);
    free(in->ends);
}

typedef size_t next_cut(const char *document, size_t at, size_t end);

/* Every STEP bytes from the start of the document: a guess is wrong nearly always. */
static size_t fixed_cut(const char *document, size_t at, size_t end)
{
    (void)document;
    return end - at > STEP ? at + STEP : end;
}

/* After a word with the blanks before it: every guess is right. */
static size_t word_cut(const char *document, size_t at, size_t end)
{
    while (at < end && (document[at] == ' ' || document[at] == '\n'))
        at++;
    while (at < end && document[at] != ' ' && document[at] != '\n')
        at++;
    return at;
}

static void expected_result(struct text *out, const struct input *in, next_cut *cut)
{
    size_t start = 0;

    for (int64_t i = 0; i < in->end_count; start = in->ends[i++]) {
        size_t length = in->ends[i] - start;
        for (size_t at = 0, next; at < length; at = next) {
            next = cut(in->text + start, at, length);
            text_append_bytes(out, in->text + start + at, next - at);
            text_append_bytes(out, "|", 1);
        }
        text_append_bytes(out, "#", 1);
    }
}

/* ---- the same in parts */

enum { PARTS = 256 };

struct recorder {
    next_cut *cut;
    struct text parts[PARTS];
    _Atomic int64_t begun;
};

static alibi_status begin(void *user, int thread, int64_t part)
{
    struct recorder *r = user;

    if (thread < 0 || thread >= omp_get_max_threads() || part < 0 || part >= PARTS)
        return fail(ALIBI_BAD_INPUT, "part %lld on thread %d", (long long)part, thread);
    r->parts[part].length = 0;
    r->begun++;
    return ALIBI_OK;
}

static alibi_status run(void *user, int thread, int64_t part, const struct stretch *s,
                        size_t *reached)
{
    struct recorder *r = user;
    size_t at = s->from;

    (void)thread;
    while (at < s->stop) {
        size_t next = r->cut(s->text, at, s->end);
        if (next == s->end && !s->last)
            break;
        text_append_bytes(&r->parts[part], s->text + at, next - at);
        text_append_bytes(&r->parts[part], "|", 1);
        at = next;
    }
    *reached = at;
    return ALIBI_OK;
}

static alibi_status end(void *user, int thread, int64_t part, struct slice tail)
{
    struct recorder *r = user;

    (void)thread;
    if (tail.bytes == 0)
        return fail(ALIBI_BAD_INPUT, "a document without a tail");
    text_append_bytes(&r->parts[part], "#", 1);
    return text_status(&r->parts[part]);
}

/* Hands the input over in blocks of that many bytes. */
static void result_in_blocks(struct text *out, struct recorder *r, const struct input *in,
                             size_t block_bytes)
{
    const struct stretch_work work = { r, begin, run, end };
    struct stretches *s = NULL;
    size_t *ends = malloc((size_t)in->end_count * sizeof *ends);
    int64_t document = 0;

    assert_non_null(ends);
    assert_ok(stretches_new(&s));
    for (size_t at = 0; at < in->bytes; at += block_bytes) {
        struct block b = { .text = in->text + at, .ends = ends };
        b.bytes = in->bytes - at < block_bytes ? in->bytes - at : block_bytes;
        while (document < in->end_count && in->ends[document] <= at + b.bytes)
            b.ends[b.end_count++] = in->ends[document++] - at;
        assert_ok(stretches_take(s, &b));
        assert_ok(stretches_run(s, &work));
        for (int64_t i = 0; i < s->count; i++)
            text_append_bytes(out, r->parts[i].data, r->parts[i].length);
    }
    assert_int_equal(s->reached, s->bytes);
    stretches_free(s);
    free(ends);
}

static void recorder_fini(struct recorder *r)
{
    for (int i = 0; i < PARTS; i++)
        text_free(&r->parts[i]);
}

static void compare(const struct input *in, next_cut *cut, size_t block_bytes)
{
    struct recorder r = { .cut = cut };
    struct text expected = { 0 }, got = { 0 };

    expected_result(&expected, in, cut);
    result_in_blocks(&got, &r, in, block_bytes);
    assert_int_equal(got.length, expected.length);
    assert_memory_equal(got.data, expected.data, got.length);
    recorder_fini(&r);
    text_free(&expected);
    text_free(&got);
}

static void parts_and_blocks_do_not_show_in_the_result(void **state)
{
    const size_t blocks[] = { 3 << 20, 700001, PART_BYTES, 300 };
    int before = omp_get_max_threads();

    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        for (int b = 0; b < 4; b++) {
            struct input in = random_input((uint64_t)b, b == 3 ? 50000 : 2 << 20, b == 1 ? 1 : 40);
            compare(&in, fixed_cut, blocks[b]);
            compare(&in, word_cut, blocks[b]);
            input_fini(&in);
        }
    }
    omp_set_num_threads(before);
}

static void right_guesses_cost_nothing_and_wrong_ones_one_run_more(void **state)
{
    struct input in = random_input(5, 2 << 20, 1);
    struct recorder right = { .cut = word_cut }, wrong = { .cut = fixed_cut };
    struct text out = { 0 };
    int64_t parts;

    (void)state;
    result_in_blocks(&out, &right, &in, in.bytes);
    parts = right.begun;
    assert_in_range(parts, 7, 8);
    result_in_blocks(&out, &wrong, &in, in.bytes);
    assert_in_range(wrong.begun, parts + 1, 2 * parts - 1);
    recorder_fini(&right);
    recorder_fini(&wrong);
    text_free(&out);
    input_fini(&in);
}

/* ---- texts without blanks, and with pieces longer than a part sees */

static void repeat(char *text, size_t bytes, const char *what)
{
    size_t length = strlen(what);

    for (size_t i = 0; i < bytes; i++)
        text[i] = what[i % length];
}

static void text_without_blanks_has_parts_too(void **state)
{
    static const char *const texts[] = { "\xE6\xBC\xA2\xE5\xAD\x97\xE3\x80\x82",
                                         "\xE6\xBC\xA2\xE5\xAD\x97", "QmFzZTY0+", "a" };
    enum { BYTES = 2 << 20, UNIT = 18 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct input in = random_input(1, BYTES / UNIT * UNIT, 1);
        struct block b = { .text = in.text, .bytes = in.bytes, .ends = in.ends, .end_count = 1 };
        struct stretches *s = NULL;
        repeat(in.text, in.bytes, texts[i]);
        assert_ok(stretches_new(&s));
        assert_ok(stretches_take(s, &b));
        assert_in_range(s->count, 7, 8);
        for (int64_t k = 1; k < s->count; k++) {
            assert_false(utf8_continues(s->text[s->parts[k].from]));
            if (i == 0)
                assert_memory_equal(s->text + s->parts[k].from, "\xE3\x80\x82", 3);
        }
        stretches_free(s);
        compare(&in, fixed_cut, BYTES);
        compare(&in, word_cut, BYTES);
        input_fini(&in);
    }
}

static void pieces_longer_than_a_part_sees_are_found_whole(void **state)
{
    struct input in = random_input(3, 4 << 20, 3);
    int before = omp_get_max_threads();

    (void)state;
    memset(in.text + 1000, 'a', 900 << 10);
    memset(in.text + (2 << 20), 'b', PART_BYTES + PART_SIGHT);
    memset(in.text + (3 << 20), 'c', PART_SIGHT);
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        compare(&in, word_cut, in.bytes);
        compare(&in, word_cut, 1 << 20);
    }
    omp_set_num_threads(before);
    input_fini(&in);
}

/* ---- failures */

/* Fails at every 'x', and names the place. */
static alibi_status run_up_to_x(void *user, int thread, int64_t part, const struct stretch *s,
                                size_t *reached)
{
    (void)user;
    (void)thread;
    (void)part;
    for (size_t i = s->from; i < s->stop; i++)
        if (s->text[i] == 'x')
            return fail(ALIBI_BAD_INPUT, "an x at %zu", i);
    *reached = s->stop;
    return ALIBI_OK;
}

/* Is wrong only about parts that begin in the wrong place. */
static alibi_status run_from_steps(void *user, int thread, int64_t part, const struct stretch *s,
                                   size_t *reached)
{
    if (s->from % STEP != 0)
        return fail(ALIBI_BAD_INPUT, "began at %zu", s->from);
    return run(user, thread, part, s, reached);
}

static void the_failure_first_in_the_text_is_the_one(void **state)
{
    struct input in = random_input(9, 2 << 20, 1);
    struct recorder r = { .cut = fixed_cut };
    struct block b = { .text = in.text, .bytes = in.bytes, .ends = in.ends, .end_count = 1 };
    struct stretches *s = NULL;

    (void)state;
    memset(in.text, 'a', in.bytes);
    for (size_t i = 1000; i < in.bytes; i += 1000)
        in.text[i] = ' ';
    in.text[700003] = in.text[1500003] = in.text[1900003] = 'x';
    assert_ok(stretches_new(&s));
    assert_ok(stretches_take(s, &b));
    assert_fails(stretches_run(s, &(struct stretch_work){ &r, begin, run_up_to_x, NULL }),
                 ALIBI_BAD_INPUT, "an x at 700003");
    stretches_free(s);
    s = NULL;
    assert_ok(stretches_new(&s));
    assert_ok(stretches_take(s, &b));
    assert_ok(stretches_run(s, &(struct stretch_work){ &r, begin, run_from_steps, end }));
    stretches_free(s);
    recorder_fini(&r);
    input_fini(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_and_blocks_do_not_show_in_the_result),
        cmocka_unit_test(right_guesses_cost_nothing_and_wrong_ones_one_run_more),
        cmocka_unit_test(text_without_blanks_has_parts_too),
        cmocka_unit_test(pieces_longer_than_a_part_sees_are_found_whole),
        cmocka_unit_test(the_failure_first_in_the_text_is_the_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
