/* test_watch.c - signs of life between ranks, all of this process
 *
 * Their clock is that of the test, which moves only when every sign of those who live has come.
 * So nothing depends on how fast the machine is; a wait that is too long fails. */
#include <time.h>

#include "check.h"
#include "comm/watch.h"

enum { RANKS = 3, PATIENCE = 120 /* seconds of the machine */ };
static const double LIMIT = 24, TICK = 1.01; /* a sign a second */
static double now = 1000;

static void wait_a_moment(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* The clock moves, and all who live (others are NULL) send; then each turns until it has heard as
 * many signs as others send: to rank 0 all of them, to others rank 0. */
static void tick(struct watch *const ranks[RANKS])
{
    int awaited[RANKS] = { (ranks[1] != NULL) + (ranks[2] != NULL), ranks[0] != NULL,
                           ranks[0] != NULL };

    now += TICK;
    for (int r = 0; r < RANKS; r++)
        if (ranks[r] != NULL)
            awaited[r] -= watch_turn(ranks[r], now);
    for (int r = 0; r < RANKS; r++)
        for (double end = clock_seconds() + PATIENCE; ranks[r] != NULL && awaited[r] > 0;) {
            awaited[r] -= watch_turn(ranks[r], now);
            assert_true(clock_seconds() < end);
        }
}

static void drop(struct watch **w)
{
    watch_free(*w);
    *w = NULL;
}

static void drop_all(struct watch *ranks[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        drop(&ranks[r]);
}

/* Ranks that know of each other. */
static void open_ranks(struct watch *ranks[RANKS])
{
    struct watch_place place;

    for (int r = 0; r < RANKS; r++)
        assert_ok(watch_open(&ranks[r], r, RANKS, LIMIT, &place));
    now += TICK;
    for (double end = clock_seconds() + PATIENCE; clock_seconds() < end; wait_a_moment()) {
        bool complete = true;

        for (int r = 0; r < RANKS; r++) {
            watch_turn(ranks[r], now);
            complete &= watch_wait(ranks[r], 1e-4);
        }
        if (complete)
            return;
    }
    fail_msg("the ranks have not heard of each other");
}

/* The rank that `finder` finds silent, after the limit and hardly later. */
static int found_by(struct watch *const ranks[RANKS], int finder)
{
    double begun = now;

    while (watch_silent(ranks[finder]) < 0 && now < begun + 2 * LIMIT)
        tick(ranks);
    assert_in_range((uintmax_t)(now - begun), (uintmax_t)LIMIT - 1, (uintmax_t)LIMIT + 3);
    return watch_silent(ranks[finder]);
}

static void ranks_that_live_are_not_silent(void **state)
{
    struct watch *ranks[RANKS];

    (void)state;
    open_ranks(ranks);
    for (double end = now + 3 * LIMIT; now < end;)
        tick(ranks);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(watch_silent(ranks[r]), -1);
    drop_all(ranks);
}

static void a_pause_of_all_is_no_silence(void **state)
{
    struct watch *ranks[RANKS];

    (void)state;
    open_ranks(ranks);
    tick(ranks);
    now += 3 * LIMIT;
    for (double end = now + 2 * LIMIT; now < end;)
        tick(ranks);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(watch_silent(ranks[r]), -1);
    drop_all(ranks);
}

static void rank_0_finds_the_silent_rank_and_others_name_it_once_rank_0_has_ended(void **state)
{
    struct watch *ranks[RANKS];

    (void)state;
    open_ranks(ranks);
    drop(&ranks[2]);
    assert_int_equal(found_by(ranks, 0), 2);
    for (double end = now + 2 * LIMIT; now < end;)
        tick(ranks);
    assert_int_equal(watch_silent(ranks[1]), -1); /* it waits for rank 0 to end */
    drop(&ranks[0]);
    assert_int_equal(found_by(ranks, 1), 2);
    drop_all(ranks);
}

static void the_others_find_rank_0_silent(void **state)
{
    struct watch *ranks[RANKS];

    (void)state;
    open_ranks(ranks);
    drop(&ranks[0]);
    assert_int_equal(found_by(ranks, 1), 0);
    assert_int_equal(watch_silent(ranks[2]), 0);
    drop_all(ranks);
}

static void signs_of_strangers_are_not_heard(void **state)
{
    struct watch *ranks[2];
    struct watch_place place;

    (void)state;
    assert_ok(watch_open(&ranks[0], 0, 2, LIMIT, &place));
    place.key++; /* so its signs are not for this rank 0 */
    assert_ok(watch_open(&ranks[1], 1, 2, LIMIT, &place));
    for (double end = now + 3 * LIMIT; now < end; now += TICK, wait_a_moment())
        for (int r = 1; r >= 0; r--)
            assert_int_equal(watch_turn(ranks[r], now), 0);
    for (int r = 0; r < 2; r++) {
        assert_false(watch_wait(ranks[r], 1e-3));
        assert_int_equal(watch_silent(ranks[r]), -1);
        drop(&ranks[r]);
    }
}

/* With threads and their clock: if a thread is late, only rank 1 can be silent still. */
static void a_thread_finds_the_silent_rank(void **state)
{
    struct watch *ranks[2];
    struct watch_place place;

    (void)state;
    for (int r = 0; r < 2; r++) {
        assert_ok(watch_open(&ranks[r], r, 2, 0.25, &place));
        watch_start(ranks[r]);
    }
    for (int r = 0; r < 2; r++)
        assert_true(watch_wait(ranks[r], PATIENCE));
    drop(&ranks[1]);
    for (double end = clock_seconds() + PATIENCE; watch_silent(ranks[0]) < 0; wait_a_moment())
        assert_true(clock_seconds() < end);
    assert_int_equal(watch_silent(ranks[0]), 1);
    drop(&ranks[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_live_are_not_silent),
        cmocka_unit_test(a_pause_of_all_is_no_silence),
        cmocka_unit_test(rank_0_finds_the_silent_rank_and_others_name_it_once_rank_0_has_ended),
        cmocka_unit_test(the_others_find_rank_0_silent),
        cmocka_unit_test(signs_of_strangers_are_not_heard),
        cmocka_unit_test(a_thread_finds_the_silent_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
