/* test_numbers.c - lists in order, Student's t */
#include "base/base.h"
#include "check.h"

static void a_sorted_list_is_ascending_and_has_each_number_once(void **state)
{
    struct alibi_int_list list = { .count = 6, .at = { 512, -3, 64, 512, 64, 8 } }, none = { 0 };
    static const int64_t expected[] = { -3, 8, 64, 512 };

    (void)state;
    list_sort(&list);
    assert_int_equal(list.count, 4);
    assert_memory_equal(list.at, expected, sizeof expected);
    list_sort(&none);
    assert_int_equal(none.count, 0);
}

/* The values of printed tables. */
static void the_quantile_is_that_of_tables(void **state)
{
    static const struct {
        int64_t n;
        double t;
    } table[] = {
        { 1, 12.706 }, { 2, 4.303 },  { 3, 3.182 },  { 4, 2.776 },   { 5, 2.571 },
        { 7, 2.365 },  { 10, 2.228 }, { 30, 2.042 }, { 120, 1.980 }, { INT64_MAX, 1.960 }
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++)
        assert_close(student_t(table[i].n), table[i].t, 1e-3);
    assert_true(isinf(student_t(0)) && isinf(student_t(-1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sorted_list_is_ascending_and_has_each_number_once),
        cmocka_unit_test(the_quantile_is_that_of_tables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
