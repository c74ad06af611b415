/* test_random.c - the generator against published values, its distributions, and the shuffle */
#include "check.h"

#include "base/base.h"

static void assert_block(uint64_t seed, uint64_t stream, uint64_t index, const uint32_t expected[4])
{
    struct random4 r = random_block(seed, stream, index);

    for (int i = 0; i < 4; i++)
        assert_int_equal(r.at[i], expected[i]);
}

/* The known answers that the authors publish with their generator (Random123, kat_vectors,
 * philox4x32 10). */
static void blocks_equal_the_published_known_answers(void **state)
{
    (void)state;
    assert_block(0, 0, 0, (uint32_t[]){ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 });
    assert_block(UINT64_MAX, UINT64_MAX, UINT64_MAX,
                 (uint32_t[]){ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd });
    assert_block(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88,
                 (uint32_t[]){ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 });
}

static void seeds_streams_and_indices_give_different_numbers(void **state)
{
    double first = random_uniform(1, 2, 3);

    (void)state;
    assert_true(first == random_uniform(1, 2, 3));
    assert_true(first != random_uniform(2, 2, 3));
    assert_true(first != random_uniform(1, 3, 3));
    assert_true(first != random_uniform(1, 2, 4));
    assert_true(random_uniform(1, RANDOM_STREAM(RANDOM_INIT, 0), 0) !=
                random_uniform(1, RANDOM_STREAM(RANDOM_SHUFFLE, 0), 0));
}

/* Limits: five standard deviations of the mean and of the variance of n numbers. */
static void uniform_numbers_fill_the_unit_interval(void **state)
{
    enum { N = 100000 };
    double sum = 0, squares = 0;

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        double u = random_uniform(7, 0, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
    }
    assert_close(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
    assert_close(squares / N, 1.0 / 12, 5 * sqrt(1.0 / 180 / N));
}

/* The first four moments of N(0, 1) are 0, 1, 0, 3. */
static void normal_numbers_have_the_moments_of_the_normal_distribution(void **state)
{
    enum { N = 200000 };
    double moments[5] = { 0 };

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        double x = random_normal(7, 1, i), power = 1;
        assert_true(isfinite(x));
        for (int k = 1; k <= 4; k++) {
            power *= x;
            moments[k] += power / N;
        }
    }
    assert_close(moments[1], 0, 5 * sqrt(1.0 / N));
    assert_close(moments[2], 1, 5 * sqrt(2.0 / N));
    assert_close(moments[3], 0, 5 * sqrt(15.0 / N));
    assert_close(moments[4], 3, 5 * sqrt(96.0 / N));
}

static void numbers_below_n_are_all_reached_and_equally_often(void **state)
{
    enum { N = 70000, BELOW = 7 };
    int counts[BELOW] = { 0 };

    (void)state;
    for (uint64_t i = 0; i < N; i++)
        counts[random_below(3, 0, i, BELOW)]++;
    for (int i = 0; i < BELOW; i++)
        assert_close(counts[i], N / BELOW, 5 * sqrt((double)N / BELOW));
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(random_below(3, 0, i, 1), 0);
        assert_true(random_below(3, 0, i, UINT64_MAX) < UINT64_MAX);
    }
}

static void assert_bijection(uint64_t seed, uint64_t n)
{
    unsigned char *seen = calloc(n, 1);

    assert_non_null(seen);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = random_permute(seed, RANDOM_STREAM(RANDOM_SHUFFLE, n), i, n);
        assert_true(to < n);
        assert_int_equal(seen[to], 0);
        seen[to] = 1;
    }
    free(seen);
}

static void shuffle_is_a_bijection_for_every_size(void **state)
{
    const uint64_t larger[] = { 255, 256, 257, 1000, 1023, 1024, 1025, 4097, 65536, 65537 };

    (void)state;
    for (uint64_t n = 1; n <= 200; n++)
        for (uint64_t seed = 0; seed < 3; seed++)
            assert_bijection(seed, n);
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++)
        assert_bijection(1, larger[i]);
}

static void shuffle_stays_in_range_for_the_largest_sizes(void **state)
{
    const uint64_t sizes[] = { (1ull << 32) + 1, 1ull << 62, (1ull << 62) + 1, UINT64_MAX };

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t i = 0; i < 100; i++)
            assert_true(random_permute(5, 0, sizes[k] - 1 - i, sizes[k]) < sizes[k]);
}

/* Each of n places is equally likely for each element: chi-squared over many seeds. For n = 5 there
 * are 16 degrees of freedom; a value above 50 has a probability under 3e-5. */
static void shuffle_puts_every_element_everywhere(void **state)
{
    enum { N = 5, SEEDS = 20000 };
    int counts[N][N] = { { 0 } };
    double expected = (double)SEEDS / N, chi2 = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (uint64_t i = 0; i < N; i++)
            counts[i][random_permute(seed, 0, i, N)]++;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            chi2 += (counts[i][j] - expected) * (counts[i][j] - expected) / expected;
    assert_true(chi2 < 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_equal_the_published_known_answers),
        cmocka_unit_test(seeds_streams_and_indices_give_different_numbers),
        cmocka_unit_test(uniform_numbers_fill_the_unit_interval),
        cmocka_unit_test(normal_numbers_have_the_moments_of_the_normal_distribution),
        cmocka_unit_test(numbers_below_n_are_all_reached_and_equally_often),
        cmocka_unit_test(shuffle_is_a_bijection_for_every_size),
        cmocka_unit_test(shuffle_stays_in_range_for_the_largest_sizes),
        cmocka_unit_test(shuffle_puts_every_element_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
