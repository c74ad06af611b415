/* test_watch.c - signs of life between ranks; those of this test are threads of one process
 *
 * Four groups of ranks live at the same time, so that their waits overlap. */
#include <time.h>

#include "check.h"
#include "comm/watch.h"

enum { RANKS = 3 };
static const double LIMIT = 2;

static struct watch *alive[RANKS], *without_2[RANKS], *without_0[RANKS], *strangers[2];

static void sleep_for(double seconds)
{
    const struct timespec t = { (time_t)seconds, (long)(seconds * 1e9) % 1000000000 };

    nanosleep(&t, NULL);
}

/* The rank that `w` finds silent; it must find one. */
static int found_by(struct watch *w)
{
    for (int i = 0; i < 3000 && watch_silent(w) < 0; i++)
        sleep_for(0.01);
    return watch_silent(w);
}

static void drop(struct watch **w)
{
    watch_free(*w);
    *w = NULL;
}

static void open_ranks(struct watch *w[RANKS])
{
    struct watch_place place;

    for (int r = 0; r < RANKS; r++)
        assert_ok(watch_open(&w[r], r, RANKS, LIMIT, &place));
    for (int r = 0; r < RANKS; r++)
        assert_true(watch_wait(w[r], 30));
}

static void ranks_hear_of_each_other(void **state)
{
    struct watch_place place;

    (void)state;
    open_ranks(alive);
    open_ranks(without_2);
    open_ranks(without_0);
    assert_ok(watch_open(&strangers[0], 0, 2, LIMIT, &place));
    place.key++; /* so its signs are not for this rank 0 */
    assert_ok(watch_open(&strangers[1], 1, 2, LIMIT, &place));
    drop(&without_2[2]);
    drop(&without_0[0]);
}

static void rank_0_finds_the_silent_rank_and_the_others_wait_for_rank_0_to_end(void **state)
{
    (void)state;
    assert_int_equal(found_by(without_2[0]), 2);
    sleep_for(LIMIT / 4); /* for the sign that says so */
    assert_int_equal(watch_silent(without_2[1]), -1);
    drop(&without_2[0]);
}

static void the_others_find_rank_0_silent(void **state)
{
    (void)state;
    assert_int_equal(found_by(without_0[1]), 0);
    assert_int_equal(found_by(without_0[2]), 0);
}

static void once_rank_0_has_ended_the_others_know_who_was_silent_first(void **state)
{
    (void)state;
    assert_int_equal(found_by(without_2[1]), 2);
}

static void ranks_that_live_or_were_never_heard_are_not_silent(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(watch_silent(alive[r]), -1);
    for (int r = 0; r < 2; r++) {
        assert_false(watch_wait(strangers[r], 0.1));
        assert_int_equal(watch_silent(strangers[r]), -1);
        drop(&strangers[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        drop(&alive[r]);
        drop(&without_2[r]);
        drop(&without_0[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_hear_of_each_other),
        cmocka_unit_test(rank_0_finds_the_silent_rank_and_the_others_wait_for_rank_0_to_end),
        cmocka_unit_test(the_others_find_rank_0_silent),
        cmocka_unit_test(once_rank_0_has_ended_the_others_know_who_was_silent_first),
        cmocka_unit_test(ranks_that_live_or_were_never_heard_are_not_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
