/* test_base.c - errors, memory, faults, texts, UTF-8, JSON, checksums, log and stop */
#include "check.h"

#include <locale.h>
#include <pthread.h>
#include <sys/sysinfo.h>

#include "base/json.h"

/* ---- errors */

static void message_names_what_failed_and_returns_the_status(void **state)
{
    (void)state;
    assert_int_equal(fail(ALIBI_IO, "cannot open '%s': line %d", "x", 3), ALIBI_IO);
    assert_string_equal(alibi_error(), "cannot open 'x': line 3");
}

static void message_may_contain_the_message_before_it(void **state)
{
    (void)state;
    fail(ALIBI_IO, "inner");
    fail(ALIBI_IO, "outer of %s and %s", alibi_error(), alibi_error());
    assert_string_equal(alibi_error(), "outer of inner and inner");
}

static void context_stands_in_front_and_keeps_the_reason(void **state)
{
    (void)state;
    fail(ALIBI_USAGE, "0 is out of range");
    assert_int_equal(fail_context(ALIBI_BAD_INPUT, "'%s' line %d", "r.json", 4), ALIBI_BAD_INPUT);
    assert_string_equal(alibi_error(), "'r.json' line 4: 0 is out of range");
}

static void message_is_one_line_of_valid_text_whatever_its_arguments_hold(void **state)
{
    (void)state;
    fail(ALIBI_IO, "a '%s' b", "x\ny\r\t\033[2J\x7f\xc2\x9bz\xff\xc3");
    assert_string_equal(alibi_error(), "a 'x?y???[2J???z?\?' b");
    fail(ALIBI_IO, "%s", "größer 漢字 🙂");
    assert_string_equal(alibi_error(), "größer 漢字 🙂");
}

static void message_that_is_too_long_is_cut_and_says_so(void **state)
{
    char long_text[5000];

    (void)state;
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    fail(ALIBI_IO, "%s", long_text);
    assert_int_equal(strlen(alibi_error()), 1023);
    assert_string_equal(alibi_error() + 1020, "...");
    fail_context(ALIBI_IO, "%s", long_text);
    assert_int_equal(strlen(alibi_error()), 1023);
    fail(ALIBI_IO, "reason");
    fail_context(ALIBI_IO, "%.1019s", long_text);
    assert_string_equal(alibi_error() + 1019, ":...");
}

static void *fail_in_thread(void *unused)
{
    (void)unused;
    fail(ALIBI_IO, "of the other thread");
    return NULL;
}

static void each_thread_has_its_own_message(void **state)
{
    pthread_t thread;

    (void)state;
    fail(ALIBI_IO, "of this thread");
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(alibi_error(), "of this thread");
}

static void version_is_not_empty(void **state)
{
    (void)state;
    assert_true(strlen(alibi_version()) > 0);
}

/* ---- sizes and memory */

static void sizes_that_do_not_fit_are_refused_and_leave_the_result(void **state)
{
    size_t out = 7;

    (void)state;
    assert_false(size_multiply(&out, SIZE_MAX / 2 + 1, 2));
    assert_false(size_add(&out, SIZE_MAX, 1));
    assert_false(size_product(&out, (int64_t[]){ INT64_MAX, 3 }, 2));
    assert_false(size_product(&out, (int64_t[]){ 3, -1 }, 2));
    assert_int_equal(out, 7);
    assert_true(size_product(&out, (int64_t[]){ 3, 5, 7 }, 3));
    assert_int_equal(out, 105);
    assert_true(size_product(&out, NULL, 0));
    assert_int_equal(out, 1);
}

static void memory_is_aligned_counted_and_given_back(void **state)
{
    size_t before = alibi_memory_now();
    void *p = NULL, *empty = NULL;
    unsigned char *zero = NULL;

    (void)state;
    assert_ok(mem_new(&p, 1000, "a test"));
    assert_ok(mem_new(&empty, 0, "a test"));
    assert_ok(NEW_ZERO_ARRAY(&zero, 100, "a test"));
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal((uintptr_t)empty % 64, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(zero[i], 0);
    assert_true(alibi_memory_now() >= before + 1100);
    assert_true(alibi_memory_now() <= before + 1100 + 3 * 64);
    mem_free(p);
    mem_free(empty);
    mem_free(zero);
    mem_free(NULL);
    assert_int_equal(alibi_memory_now(), before);
}

static void peak_is_the_most_that_was_held_since_it_was_reset(void **state)
{
    void *p = NULL;

    (void)state;
    assert_ok(mem_new(&p, 1 << 20, "a test"));
    mem_free(p);
    assert_true(alibi_memory_peak() >= alibi_memory_now() + (1 << 20));
    alibi_memory_reset_peak();
    assert_int_equal(alibi_memory_peak(), alibi_memory_now());
}

static void growing_keeps_the_content(void **state)
{
    char *p = NULL;

    (void)state;
    assert_ok(mem_grow((void **)&p, 0, 4, "a test"));
    memcpy(p, "abc", 4);
    assert_ok(mem_grow((void **)&p, 4, 1000, "a test"));
    assert_string_equal(p, "abc");
    assert_ok(mem_grow((void **)&p, 1000, 2, "a test"));
    assert_memory_equal(p, "ab", 2);
    mem_free(p);
}

static void memory_that_cannot_be_had_is_refused_with_what_it_was_for(void **state)
{
    struct sysinfo machine;
    void *p = NULL;
    int64_t *numbers = NULL;

    (void)state;
    assert_fails(mem_new(&p, SIZE_MAX, "the cache"), ALIBI_MEMORY,
                 "not enough memory for the cache: 18446744073709551615 bytes");
    assert_fails(NEW_ARRAY(&numbers, INT64_MAX / 2, "scores"), ALIBI_MEMORY,
                 "scores: 4611686018427387903 elements of 8 bytes");
    assert_fails(NEW_ARRAY(&numbers, -1, "scores"), ALIBI_MEMORY, "scores: -1 elements");
    assert_int_equal(sysinfo(&machine), 0);
    assert_fails(mem_new(&p, (machine.totalram + machine.totalswap) * machine.mem_unit + 1, "all"),
                 ALIBI_MEMORY, "for all: ");
    assert_null(p);
    assert_null(numbers);
}

/* ---- faults */

static void memory_fault_fails_the_chosen_allocation_and_no_other(void **state)
{
    void *p[3] = { NULL, NULL, NULL };

    (void)state;
    assert_ok(alibi_inject_fault("memory", 2));
    assert_ok(mem_new(&p[0], 8, "first"));
    assert_fails(mem_new(&p[1], 8, "second"), ALIBI_MEMORY, "second");
    assert_ok(mem_new(&p[2], 8, "third"));
    assert_ok(alibi_inject_fault("memory", 1));
    assert_ok(alibi_inject_fault("memory", 0));
    assert_ok(mem_new(&p[1], 8, "second"));
    for (int i = 0; i < 3; i++)
        mem_free(p[i]);
}

static void failed_growth_leaves_the_old_block(void **state)
{
    char *p = NULL;

    (void)state;
    assert_ok(NEW_ARRAY(&p, 4, "a test"));
    memcpy(p, "abc", 4);
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(mem_grow((void **)&p, 4, 8, "a test"), ALIBI_MEMORY, "a test");
    assert_string_equal(p, "abc");
    mem_free(p);
}

static void nan_fault_is_due_once_at_the_chosen_call(void **state)
{
    (void)state;
    assert_false(fault_nan_due());
    assert_ok(alibi_inject_fault("nan", 3));
    assert_false(fault_nan_due());
    assert_false(fault_nan_due());
    assert_true(fault_nan_due());
    assert_false(fault_nan_due());
}

static void unknown_fault_is_refused(void **state)
{
    (void)state;
    assert_fails(alibi_inject_fault("disk", 1), ALIBI_USAGE, "unknown fault 'disk'");
    assert_fails(alibi_inject_fault("memory", -1), ALIBI_USAGE, "-1");
}

/* ---- a thread beside */

static void a_failure_is_raised_in_another_thread_as_it_was(void **state)
{
    struct failure kept = { 0 };

    (void)state;
    assert_ok(failure_raise(&kept));
    failure_keep(&kept, fail(ALIBI_IO, "cannot read 'a'"));
    fail(ALIBI_MEMORY, "another one since");
    assert_fails(failure_raise(&kept), ALIBI_IO, "cannot read 'a'");
    assert_fails(failure_raise(&kept), ALIBI_IO, "cannot read 'a'");
    failure_keep(&kept, ALIBI_OK);
    assert_ok(failure_raise(&kept));
}

struct errand {
    int64_t number, done;
    pthread_t thread;
};

static alibi_status fail_if_odd(void *user)
{
    struct errand *e = user;

    e->done++;
    e->thread = pthread_self();
    return e->number % 2 == 0 ? ALIBI_OK
                              : fail(ALIBI_BAD_INPUT, "job %lld is odd", (long long)e->number);
}

static void a_worker_does_its_jobs_in_one_thread_and_hands_over_status_and_message(void **state)
{
    struct worker *w = NULL;
    struct errand errand = { 0 };
    char expected[64];

    (void)state;
    assert_ok(worker_new(&w));
    assert_ok(worker_wait(w));
    for (errand.number = 0; errand.number < 1000; errand.number++) {
        worker_start(w, fail_if_odd, &errand);
        snprintf(expected, sizeof expected, "job %lld is odd", (long long)errand.number);
        if (errand.number % 2 == 0)
            assert_ok(worker_wait(w));
        else
            assert_fails(worker_wait(w), ALIBI_BAD_INPUT, expected);
        assert_int_equal(errand.done, errand.number + 1);
        assert_false(pthread_equal(errand.thread, pthread_self()));
        assert_ok(worker_wait(w)); /* it was told already */
    }
    worker_free(w);
}

static void a_worker_that_is_not_waited_for_is_done_before_it_is_freed(void **state)
{
    struct worker *w = NULL;
    struct errand errand = { .number = 1 };
    size_t before = alibi_memory_now();

    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_ok(worker_new(&w));
        worker_start(w, fail_if_odd, &errand);
        worker_free(w);
        assert_int_equal(errand.done, i + 1);
    }
    worker_free(NULL);
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(worker_new(&w), ALIBI_MEMORY, "a thread");
    assert_int_equal(alibi_memory_now(), before);
}

/* ---- texts */

static void text_grows_and_is_always_terminated(void **state)
{
    struct text t = { 0 };
    size_t before = alibi_memory_now();

    (void)state;
    assert_ok(text_append(&t, "%s", ""));
    assert_string_equal(t.data, "");
    for (int i = 0; i < 1000; i++)
        assert_ok(text_append(&t, "%03d,", i));
    assert_int_equal(t.length, 4000);
    assert_int_equal(strlen(t.data), 4000);
    assert_memory_equal(t.data + 3996, "999,", 5);
    assert_ok(text_append_bytes(&t, "a\0b", 3));
    assert_int_equal(t.length, 4003);
    assert_memory_equal(t.data + 4000, "a\0b", 4);
    text_free(&t);
    assert_null(t.data);
    assert_int_equal(alibi_memory_now(), before);
}

static void text_that_cannot_grow_keeps_what_it_has(void **state)
{
    struct text t = { 0 };

    (void)state;
    assert_ok(text_append(&t, "abc"));
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(text_append(&t, "%1000d", 1), ALIBI_MEMORY, "a text");
    assert_string_equal(t.data, "abc");
    assert_fails(text_append_bytes(&t, (char[1000]){ 0 }, 1000), ALIBI_MEMORY, "a text");
    assert_string_equal(t.data, "abc");
    assert_fails(text_status(&t), ALIBI_MEMORY, "a text");
    text_free(&t);
}

/* Skipped where no locale with a decimal comma is installed; the plain locale is then all there is.
 * */
static void numbers_have_a_point_in_every_locale(void **state)
{
    struct text t = { 0 };
    const char *const commas[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ru_RU.UTF-8" };

    (void)state;
    for (int i = 0; i < 4 && setlocale(LC_NUMERIC, commas[i]) == NULL; i++)
        ;
    assert_ok(text_append(&t, "%.1f ", 0.5));
    assert_ok(json_append_real(&t, 0.25));
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(t.data, "0.5 0.25");
    text_free(&t);
}

static void copies_are_the_callers_to_free(void **state)
{
    char *copy = NULL;
    size_t before = alibi_memory_now();

    (void)state;
    assert_ok(text_copy(&copy, "abc"));
    assert_string_equal(copy, "abc");
    alibi_text_free(copy);
    alibi_text_free(NULL);
    assert_int_equal(alibi_memory_now(), before);
}

/* ---- UTF-8 */

static void valid_utf8_is_taken_whole(void **state)
{
    const char text[] =
        "a\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf";

    (void)state;
    assert_int_equal(utf8_valid_prefix(text, sizeof text), sizeof text);
    assert_int_equal(utf8_valid_prefix("", 0), 0);
}

/* Long stretches of ASCII are passed over many bytes at a time. */
static void broken_utf8_is_found_at_every_place(void **state)
{
    enum { LENGTH = 40 };
    char text[LENGTH];

    (void)state;
    for (size_t at = 0; at < LENGTH; at++)
        for (size_t start = 0; start <= at; start++) {
            memset(text, 'a', LENGTH);
            assert_int_equal(utf8_valid_prefix(text + start, at - start), at - start);
            text[at] = '\xFF';
            assert_int_equal(utf8_valid_prefix(text + start, LENGTH - start), at - start);
            text[at] = '\xC3'; /* followed by 'a', or by nothing */
            assert_int_equal(utf8_valid_prefix(text + start, LENGTH - start), at - start);
        }
}

static void broken_utf8_ends_the_prefix(void **state)
{
    const char *const broken[] = {
        "\x80",             /* continuation without a lead */
        "\xc0\x80",         /* overlong */
        "\xc1\xbf",         /* overlong */
        "\xc2",             /* cut */
        "\xc2\x41",         /* lead without continuation */
        "\xe0\x9f\xbf",     /* overlong */
        "\xed\xa0\x80",     /* surrogate */
        "\xe2\x82",         /* cut */
        "\xe2\x82\x41",     /* third byte no continuation */
        "\xf0\x8f\xbf\xbf", /* overlong */
        "\xf0\x9f\x99",     /* cut */
        "\xf4\x90\x80\x80", /* beyond U+10FFFF */
        "\xf5\x80\x80\x80",
        "\xff",
    };

    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char text[16];
        int length = snprintf(text, sizeof text, "ab%s", broken[i]);
        assert_int_equal(utf8_valid_prefix(text, (size_t)length), 2);
    }
}

/* ---- JSON */

static void json_errors_name_path_line_and_column(void **state)
{
    json_t *json = NULL;
    size_t before = alibi_memory_now();
    const char broken[] = "{\n  \"a\": 1,\n  \"b\": }\n";
    const char twice[] = "{\"a\": 1,\n\"a\": 2}";
    const char not_utf8[] = "\"\xff\"";

    (void)state;
    assert_fails(json_parse(&json, broken, strlen(broken), "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 3, column 8: ");
    assert_fails(json_parse(&json, twice, strlen(twice), "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 2");
    assert_fails(json_parse(&json, not_utf8, strlen(not_utf8), "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 1");
    assert_fails(json_parse(&json, "{} x", 4, "r.json"), ALIBI_BAD_INPUT, "'r.json' line 1");
    assert_fails(json_parse(&json, "[9223372036854775808]", 21, "r.json"), ALIBI_BAD_INPUT,
                 "'r.json' line 1");
    assert_fails(json_parse(&json, "", 0, "r.json"), ALIBI_BAD_INPUT, "'r.json': it is empty");
    assert_null(json);
    assert_int_equal(alibi_memory_now(), before);
}

static void json_that_is_too_deep_is_an_error(void **state)
{
    enum { DEPTH = 100000 };
    json_t *json = NULL;
    char *text = malloc(DEPTH);

    (void)state;
    assert_non_null(text);
    memset(text, '[', DEPTH);
    assert_fails(json_parse(&json, text, DEPTH, "deep"), ALIBI_BAD_INPUT, "depth");
    free(text);
}

static void json_that_does_not_fit_is_an_error(void **state)
{
    const char text[] = "{\"list\": [1, 2.5, true, null, {}, []]}";
    size_t before = alibi_memory_now();
    json_t *json = NULL;

    (void)state;
    assert_ok(alibi_inject_fault("memory", 1));
    assert_fails(json_parse(&json, text, strlen(text), "x"), ALIBI_MEMORY,
                 "not enough memory for JSON");
    assert_null(json);
    assert_ok(json_parse(&json, text, strlen(text), "x"));
    json_decref(json);
    assert_int_equal(alibi_memory_now(), before);
}

/* jansson with an allocator that counts. */
static size_t blocks_held, bytes_held;

static void *count_malloc(size_t bytes)
{
    size_t *block = malloc(sizeof *block + bytes);

    if (block == NULL)
        return NULL;
    *block++ = bytes;
    blocks_held++;
    bytes_held += bytes + 16; /* and what malloc itself needs */
    return block;
}

static void count_free(void *memory)
{
    size_t *block = memory;

    if (block == NULL)
        return;
    blocks_held--;
    bytes_held -= *--block + 16;
    free(block);
}

/* `text` again and again between brackets: what its tree takes, per byte. */
static double tree_bytes(const char *text)
{
    struct text all = { 0 };
    json_t *json = NULL;
    double ratio;

    assert_ok(text_append(&all, "["));
    for (int i = 0; i < 1025; i++)
        assert_ok(text_append(&all, "%s%s", i > 0 ? "," : "", text));
    assert_ok(text_append(&all, "]"));
    assert_ok(json_parse(&json, all.data, all.length, "x"));
    ratio = (double)bytes_held / (double)all.length;
    json_decref(json);
    text_free(&all);
    return ratio;
}

static void the_memory_asked_for_is_more_than_any_json_takes(void **state)
{
    static const char *const texts[] = { "{}",        "[]",   "1",
                                         "\"\"",      "1.5",  "{\"\":{}}",
                                         "{\"\":[]}", "[{}]", "\"a longer text\"" };
    json_malloc_t host_malloc;
    json_free_t host_free;

    (void)state;
    json_get_alloc_funcs(&host_malloc, &host_free);
    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double ratio = tree_bytes(texts[i]);
        print_message("%-16s %5.1f bytes per byte\n", texts[i], ratio);
        assert_true(ratio < 128 / 1.25); /* some more is held while a list grows */
        assert_int_equal(blocks_held, 0);
    }
    json_set_alloc_funcs(host_malloc, host_free);
}

/* Runs first: the library must not have parsed anything yet. */
static void json_of_the_host_stays_the_hosts(void **state)
{
    json_t *before, *json = NULL;
    json_malloc_t host_malloc;
    json_free_t host_free;

    (void)state;
    json_set_alloc_funcs(count_malloc, count_free);
    before = json_pack("{s: [i, s]}", "a", 1, "text");
    assert_non_null(before);
    assert_true(blocks_held > 0);
    assert_ok(json_parse(&json, "[1, {}]", 7, "x"));
    json_get_alloc_funcs(&host_malloc, &host_free);
    assert_true(host_malloc == count_malloc && host_free == count_free);
    json_decref(before);
    json_decref(json);
    assert_int_equal(blocks_held, 0);
    json_set_alloc_funcs(malloc, free);
}

static void json_members_are_checked_for_presence_type_and_range(void **state)
{
    const char text[] = "{\"n\": 5, \"x\": 0.5, \"s\": \"abc\"}";
    json_t *json = NULL;
    int64_t n = 0;
    double x = 0;
    const char *s = NULL;

    (void)state;
    assert_ok(json_parse(&json, text, strlen(text), "f"));
    assert_ok(json_get_int(json, "n", 5, 5, &n, "f"));
    assert_ok(json_get_real(json, "x", &x, "f"));
    assert_ok(json_get_text(json, "s", &s, "f"));
    assert_int_equal(n, 5);
    assert_true(x == 0.5);
    assert_string_equal(s, "abc");
    assert_ok(json_get_real(json, "n", &x, "f"));
    assert_true(x == 5.0);
    assert_fails(json_get_int(json, "n", 6, 9, &n, "f"), ALIBI_BAD_INPUT,
                 "'f': 'n' is 5, it must be within 6..9");
    assert_fails(json_get_int(json, "m", 0, 9, &n, "f"), ALIBI_BAD_INPUT,
                 "'f': the key 'm' is missing");
    assert_fails(json_get_int(json, "x", 0, 9, &n, "f"), ALIBI_BAD_INPUT,
                 "'f': 'x' is not a whole number");
    assert_fails(json_get_real(json, "s", &x, "f"), ALIBI_BAD_INPUT, "'f': 's' is not a number");
    assert_fails(json_get_text(json, "n", &s, "f"), ALIBI_BAD_INPUT, "'f': 'n' is not a text");
    assert_fails(json_get_text(json_object_get(json, "n"), "a", &s, "f"), ALIBI_BAD_INPUT,
                 "'f': an object");
    assert_int_equal(n, 5);
    json_decref(json);
}

static void json_strings_are_escaped_and_read_back(void **state)
{
    const char original[] = "a\"b\\c/\n\r\t\x01\x1f größer 🙂";
    struct text t = { 0 };
    json_t *json = NULL;

    (void)state;
    assert_ok(json_append_string(&t, original, strlen(original)));
    assert_string_equal(t.data, "\"a\\\"b\\\\c/\\n\\r\\t\\u0001\\u001f größer 🙂\"");
    assert_ok(text_append_bytes(&t, "]", 1));
    t.data[t.length - 1] = ' ';
    assert_int_equal(json_parse(&json, t.data, t.length, "x"),
                     ALIBI_BAD_INPUT); /* a value alone is no document */
    text_free(&t);
    assert_ok(text_append(&t, "["));
    assert_ok(json_append_string(&t, original, strlen(original)));
    assert_ok(text_append(&t, "]"));
    assert_ok(json_parse(&json, t.data, t.length, "x"));
    assert_string_equal(json_string_value(json_array_get(json, 0)), original);
    json_decref(json);
    text_free(&t);
}

static void json_strings_replace_what_is_not_utf8(void **state)
{
    struct text t = { 0 };

    (void)state;
    assert_ok(json_append_string(&t, "a\xff\xc3(\xe2\x82", 6));
    assert_string_equal(t.data, "\"a\\ufffd\\ufffd(\\ufffd\\ufffd\"");
    text_free(&t);
}

static void reals_read_back_the_same_and_are_short(void **state)
{
    const double values[] = { 0.1,
                              1e-3,
                              1.0 / 3.0,
                              5e-324,
                              1.7976931348623157e308,
                              -2.5,
                              0,
                              123456789.123456789,
                              0x1.fffffffffffffp52 };
    struct text t = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        t.length = 0;
        assert_ok(json_append_real(&t, values[i]));
        assert_true(strtod(t.data, NULL) == values[i]);
    }
    t.length = 0;
    assert_ok(json_append_real(&t, 0.1));
    assert_ok(text_append(&t, " "));
    assert_ok(json_append_real(&t, NAN));
    assert_ok(text_append(&t, " "));
    assert_ok(json_append_real(&t, -INFINITY));
    assert_string_equal(t.data, "0.1 null null");
    text_free(&t);
}

/* ---- checksum */

static void checksum_is_crc32_and_can_be_continued(void **state)
{
    uint32_t part;

    (void)state;
    assert_int_equal(checksum(0, "123456789", 9), 0xCBF43926);
    part = checksum(0, "1234", 4);
    assert_int_equal(checksum(part, "56789", 5), 0xCBF43926);
    assert_int_equal(checksum(part, NULL, 0), part);
    assert_int_equal(checksum(0, NULL, 0), 0);
}

/* ---- log, progress, stop */

struct heard {
    int lines, reports;
    enum alibi_log_level level;
    char line[2048];
    int64_t done;
};

static void hear_line(void *user, enum alibi_log_level level, const char *line)
{
    struct heard *h = user;

    h->lines++;
    h->level = level;
    snprintf(h->line, sizeof h->line, "%s", line);
}

static void hear_progress(void *user, const struct alibi_progress *p)
{
    struct heard *h = user;

    h->reports++;
    h->done = p->done;
}

static void log_and_progress_go_to_the_hooks_and_nowhere_without_them(void **state)
{
    struct heard heard = { 0 };
    struct alibi_hooks hooks = { &heard, hear_progress, hear_line };
    struct alibi_progress progress = { .task = "train", .done = 7 };

    (void)state;
    log_warning("to nobody");
    report_progress(&progress);
    alibi_set_hooks(&hooks);
    log_warning("step %d: '%s'", 3, "a\nb");
    assert_string_equal(heard.line, "step 3: 'a?b'");
    assert_int_equal(heard.level, ALIBI_WARNING);
    log_note("note");
    assert_int_equal(heard.level, ALIBI_NOTE);
    report_progress(&progress);
    assert_int_equal(heard.done, 7);
    alibi_set_hooks(NULL);
    log_note("to nobody");
    report_progress(&progress);
    assert_int_equal(heard.lines, 2);
    assert_int_equal(heard.reports, 1);
}

static void stop_stays_requested_until_it_is_cleared(void **state)
{
    (void)state;
    assert_false(alibi_global_stop_requested());
    alibi_request_stop();
    assert_true(alibi_global_stop_requested());
    assert_true(alibi_global_stop_requested());
    stop_clear();
    assert_false(alibi_global_stop_requested());
}

static void clock_does_not_go_back(void **state)
{
    double before = clock_seconds();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        double now = clock_seconds();
        assert_true(now >= before);
        before = now;
    }
}

/* ---- nearest names */

static void nearest_name_is_found_by_edit_distance(void **state)
{
    const char *const names[] = { "train-length", "layers", "heads", "alibi", "sinusoidal", "lr" };
    const int count = 6;

    (void)state;
    assert_string_equal(alibi_nearest("train-lenght", names, count), "train-length"); /* swapped */
    assert_string_equal(alibi_nearest("train_length", names, count), "train-length");
    assert_string_equal(alibi_nearest("layer", names, count), "layers"); /* missing */
    assert_string_equal(alibi_nearest("headss", names, count), "heads"); /* one too many */
    assert_string_equal(alibi_nearest("Alibu", names, count), "alibi");  /* another */
    assert_string_equal(alibi_nearest("sinosoidial", names, count),
                        "sinusoidal"); /* two slips in a long name */
    assert_string_equal(alibi_nearest("ltr", names, count), "lr");
    assert_string_equal(alibi_nearest("rl", names, count), "lr");
    assert_null(alibi_nearest("banana", names, count));
    assert_null(alibi_nearest("x", names, count));
    assert_null(alibi_nearest("", names, count));
    assert_null(alibi_nearest("ab", names, count));
    assert_null(alibi_nearest("heads", names, 0));
}

static void very_long_names_are_near_to_nothing(void **state)
{
    char name[1000];
    const char *const names[] = { name };

    (void)state;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_null(alibi_nearest(name, names, 1));
    assert_null(alibi_nearest("aaaa", names, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_of_the_host_stays_the_hosts),
        cmocka_unit_test(message_names_what_failed_and_returns_the_status),
        cmocka_unit_test(message_may_contain_the_message_before_it),
        cmocka_unit_test(context_stands_in_front_and_keeps_the_reason),
        cmocka_unit_test(message_is_one_line_of_valid_text_whatever_its_arguments_hold),
        cmocka_unit_test(message_that_is_too_long_is_cut_and_says_so),
        cmocka_unit_test(each_thread_has_its_own_message),
        cmocka_unit_test(version_is_not_empty),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused_and_leave_the_result),
        cmocka_unit_test(memory_is_aligned_counted_and_given_back),
        cmocka_unit_test(peak_is_the_most_that_was_held_since_it_was_reset),
        cmocka_unit_test(growing_keeps_the_content),
        cmocka_unit_test(memory_that_cannot_be_had_is_refused_with_what_it_was_for),
        cmocka_unit_test(memory_fault_fails_the_chosen_allocation_and_no_other),
        cmocka_unit_test(failed_growth_leaves_the_old_block),
        cmocka_unit_test(nan_fault_is_due_once_at_the_chosen_call),
        cmocka_unit_test(unknown_fault_is_refused),
        cmocka_unit_test(a_failure_is_raised_in_another_thread_as_it_was),
        cmocka_unit_test(a_worker_does_its_jobs_in_one_thread_and_hands_over_status_and_message),
        cmocka_unit_test(a_worker_that_is_not_waited_for_is_done_before_it_is_freed),
        cmocka_unit_test(text_grows_and_is_always_terminated),
        cmocka_unit_test(text_that_cannot_grow_keeps_what_it_has),
        cmocka_unit_test(numbers_have_a_point_in_every_locale),
        cmocka_unit_test(copies_are_the_callers_to_free),
        cmocka_unit_test(valid_utf8_is_taken_whole),
        cmocka_unit_test(broken_utf8_is_found_at_every_place),
        cmocka_unit_test(broken_utf8_ends_the_prefix),
        cmocka_unit_test(json_errors_name_path_line_and_column),
        cmocka_unit_test(json_that_is_too_deep_is_an_error),
        cmocka_unit_test(json_that_does_not_fit_is_an_error),
        cmocka_unit_test(the_memory_asked_for_is_more_than_any_json_takes),
        cmocka_unit_test(json_members_are_checked_for_presence_type_and_range),
        cmocka_unit_test(json_strings_are_escaped_and_read_back),
        cmocka_unit_test(json_strings_replace_what_is_not_utf8),
        cmocka_unit_test(reals_read_back_the_same_and_are_short),
        cmocka_unit_test(checksum_is_crc32_and_can_be_continued),
        cmocka_unit_test(log_and_progress_go_to_the_hooks_and_nowhere_without_them),
        cmocka_unit_test(stop_stays_requested_until_it_is_cleared),
        cmocka_unit_test(clock_does_not_go_back),
        cmocka_unit_test(nearest_name_is_found_by_edit_distance),
        cmocka_unit_test(very_long_names_are_near_to_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
