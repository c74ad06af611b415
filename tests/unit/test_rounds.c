/* test_rounds.c - batches of one process; tests/cli/test_together.sh divides them among several */
#include <string.h>

#include "check.h"
#include "eval/eval.h"

enum { COUNT = 7, MOST = 3 };

struct work {
    int64_t computed, added; /* windows so far */
    int64_t failing;         /* the window that cannot be added; -1: none */
    struct alibi_stop *stop; /* requested after the first batch; NULL: never */
};

static int64_t rows(void *user, int64_t k)
{
    (void)user;
    return COUNT - k < MOST ? COUNT - k : MOST;
}

/* The numbers of a batch are those of its windows. */
static alibi_status compute(void *user, int64_t k, int64_t count, void *numbers)
{
    struct work *w = user;

    assert_int_equal(k, w->computed);
    for (int64_t i = 0; i < count; i++)
        ((int64_t *)numbers)[i] = k + i;
    w->computed += count;
    return ALIBI_OK;
}

static alibi_status add(void *user, int64_t k, int64_t count, const void *numbers)
{
    struct work *w = user;

    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(((const int64_t *)numbers)[i], w->added);
        if (k + i == w->failing)
            return fail(ALIBI_NUMERIC, "window %d", (int)w->failing);
        w->added++;
    }
    if (w->stop)
        alibi_stop_request(w->stop);
    return ALIBI_OK;
}

static alibi_status stopped(void *user)
{
    return fail(ALIBI_INTERRUPTED, "after %d", (int)((struct work *)user)->added);
}

static struct rounds rounds_of(struct work *w, const struct alibi_call *call)
{
    return (struct rounds){ .call = call,
                            .count = COUNT,
                            .bytes = MOST * sizeof(int64_t),
                            .user = w,
                            .rows = rows,
                            .compute = compute,
                            .add = add,
                            .stopped = stopped };
}

static void every_window_is_computed_and_added_once_in_order(void **state)
{
    struct work w = { .failing = -1 };
    struct rounds r = rounds_of(&w, NULL);

    (void)state;
    assert_ok(rounds_run(&r));
    assert_int_equal(w.computed, COUNT);
    assert_int_equal(w.added, COUNT);
    r.count = 0;
    assert_ok(rounds_run(&r));
}

static void a_failure_ends_them(void **state)
{
    struct work w = { .failing = 4 };
    struct rounds r = rounds_of(&w, NULL);

    (void)state;
    assert_fails(rounds_run(&r), ALIBI_NUMERIC, "window 4");
    assert_int_equal(w.computed, 2 * MOST);
}

static void a_request_to_stop_ends_them_before_the_next_batch(void **state)
{
    struct alibi_stop stop = { 0 };
    struct alibi_call call = { .stop = &stop };
    struct work w = { .failing = -1, .stop = &stop };
    struct rounds r = rounds_of(&w, &call);

    (void)state;
    assert_fails(rounds_run(&r), ALIBI_INTERRUPTED, "after 3");
    assert_int_equal(w.computed, MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_is_computed_and_added_once_in_order),
        cmocka_unit_test(a_failure_ends_them),
        cmocka_unit_test(a_request_to_stop_ends_them_before_the_next_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
