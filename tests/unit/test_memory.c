/* test_memory.c - sizes, memory, and faults that are injected into it */
#include "check.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/hash.h"

/* ---- sizes and memory */

static void sizes_that_do_not_fit_are_refused_and_leave_the_result(void **state)
{
    size_t out = 7;

    (void)state;
    assert_false(size_multiply(&out, SIZE_MAX / 2 + 1, 2));
    assert_false(size_add(&out, SIZE_MAX, 1));
    assert_true(size_sum(SIZE_MAX, 1) == SIZE_MAX && size_sum(2, 3) == 5);
    assert_false(size_product(&out, (int64_t[]){ INT64_MAX, 3 }, 2));
    assert_false(size_product(&out, (int64_t[]){ 3, -1 }, 2));
    assert_int_equal(out, 7);
    assert_true(size_product(&out, (int64_t[]){ 3, 5, 7 }, 3));
    assert_int_equal(out, 105);
    assert_true(size_product(&out, NULL, 0));
    assert_int_equal(out, 1);
}

static void a_table_that_is_too_large_says_how_large_it_may_be(void **state)
{
    struct hash h = { 0 };

    (void)state;
    assert_fails(hash_init(&h, (1 << 30) + 1, "words"), ALIBI_MEMORY, "holds at most 2^30 items");
    assert_null(h.slots);
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

/* Whether the mapping that has the address is one for huge pages, as the kernel lists it. */
static bool is_for_huge_pages(const void *p)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    bool here = false, huge = false;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;

        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            huge = strstr(line, " hg") != NULL;
    }
    fclose(maps);
    return huge;
}

static void large_blocks_ask_for_huge_pages(void **state)
{
    void *large = NULL, *small = NULL;

    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0)
        skip_because("a kernel without huge pages");
    assert_ok(mem_new(&large, 16 << 20, "a test"));
    assert_ok(mem_new(&small, 1 << 20, "a test"));
    assert_int_equal((uintptr_t)large % 64, 0);
    assert_true(is_for_huge_pages((char *)large + (8 << 20)));
    assert_false(is_for_huge_pages(small));
    mem_free(large);
    mem_free(small);
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
    char text[BYTES_TEXT];

    (void)state;
    assert_fails(mem_new(&p, SIZE_MAX, "the cache"), ALIBI_MEMORY,
                 "not enough memory for the cache: 16.0 EiB needed, ");
    assert_fails(NEW_ARRAY(&numbers, INT64_MAX / 2, "scores"), ALIBI_MEMORY,
                 "scores: 4611686018427387903 elements of 8 bytes");
    assert_fails(NEW_ARRAY(&numbers, -1, "scores"), ALIBI_MEMORY, "scores: -1 elements");
    assert_fails(mem_new(&p, (size_t)9 << 60, "the cache"), ALIBI_MEMORY, "9.0 EiB needed, ");
    assert_string_equal(short_bytes(text, 1023), "1023 bytes");
    assert_string_equal(short_bytes(text, 1024), "1.0 KiB");
    assert_string_equal(short_bytes(text, (size_t)150 << 20), "150 MiB");
    assert_string_equal(short_bytes(text, SIZE_MAX), "16.0 EiB");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_do_not_fit_are_refused_and_leave_the_result),
        cmocka_unit_test(a_table_that_is_too_large_says_how_large_it_may_be),
        cmocka_unit_test(memory_is_aligned_counted_and_given_back),
        cmocka_unit_test(peak_is_the_most_that_was_held_since_it_was_reset),
        cmocka_unit_test(large_blocks_ask_for_huge_pages),
        cmocka_unit_test(growing_keeps_the_content),
        cmocka_unit_test(memory_that_cannot_be_had_is_refused_with_what_it_was_for),
        cmocka_unit_test(memory_fault_fails_the_chosen_allocation_and_no_other),
        cmocka_unit_test(failed_growth_leaves_the_old_block),
        cmocka_unit_test(nan_fault_is_due_once_at_the_chosen_call),
        cmocka_unit_test(unknown_fault_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
