// test_block.cpp - the emulated GPU computes what a right kernel says, and shows that a wrong one
// is wrong
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

extern "C" {
#include <cmocka.h>
}

#include "ops/cuda/ptx.cuh"

namespace
{

enum { THREADS = 96, BLOCKS = 4 };

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), size_t shared, Arguments... arguments)
{
    return start_kernel(kernel, BLOCKS, THREADS, shared, NULL, arguments...);
}

// Every thread gives its number to the one `by` further on.
template <bool BARRIER> void rotate(int *to, int by)
{
    int *numbers = dynamic_shared<int>();
    const int i = (int)threadIdx.x;

    numbers[i] = i;
    if (BARRIER)
        __syncthreads();
    to[(int)blockIdx.x * THREADS + i] = numbers[(i + by) % THREADS];
}

bool rotates(void (*kernel)(int *, int), int by)
{
    int to[BLOCKS * THREADS];
    bool right = true;

    assert_int_equal(launch(kernel, THREADS * sizeof *to, to, by), cudaSuccess);
    for (int i = 0; i < BLOCKS * THREADS; i++)
        right = right && to[i] == (i + by) % THREADS;
    return right;
}

void a_missing_barrier_shows_in_the_numbers(void **)
{
    assert_true(rotates(rotate<true>, 1));
    assert_true(rotates(rotate<true>, THREADS - 1));
    assert_false(rotates(rotate<false>, 1));
    assert_false(rotates(rotate<false>, THREADS - 1));
}

// Half of the threads end first; lanes of the rest are in two groups.
void sums_of_lanes(int *to)
{
    const int i = (int)threadIdx.x;
    int x = i;

    if (i >= THREADS / 2)
        return;
    const unsigned mask = i < 32 ? 0xffffffffu : i < 40 ? 0x000000ffu : 0x0000ff00u;
    for (int step = i < 32 ? 16 : 4; step > 0; step /= 2)
        x += __shfl_xor_sync(mask, x, step);
    __syncthreads();
    to[(int)blockIdx.x * THREADS + i] = __syncthreads_count(x > 400) + x;
}

void warps_and_blocks_agree(void **)
{
    int to[BLOCKS * THREADS];

    assert_int_equal(launch(sums_of_lanes, 0, to), cudaSuccess);
    for (int b = 0; b < BLOCKS; b++)
        for (int i = 0; i < THREADS / 2; i++) {
            const int sum = i < 32 ? 496 : i < 40 ? 284 : 348;
            assert_int_equal(to[b * THREADS + i], sum + 32);
        }
}

// Copies into shared memory, and reads before it has waited.
void early_read(float *to, const float *from, int pending)
{
    float *copy = dynamic_shared<float>() + threadIdx.x;

    emulate::copy_later(copy, from, sizeof *copy, sizeof *copy);
    emulate::commit_copies();
    emulate::wait_for_copies(pending);
    to[blockIdx.x * THREADS + threadIdx.x] = *copy;
}

void a_copy_arrives_when_it_is_waited_for(void **)
{
    float to[BLOCKS * THREADS], from = 7.0f;

    assert_int_equal(launch(early_read, THREADS * sizeof from, to, &from, 0), cudaSuccess);
    assert_true(to[0] == from && to[BLOCKS * THREADS - 1] == from);
    assert_int_equal(launch(early_read, THREADS * sizeof from, to, &from, 1), cudaSuccess);
    assert_true(isnan(to[0]) && isnan(to[BLOCKS * THREADS - 1]));
}

void empty_kernel()
{
}

void impossible_launches_fail(void **)
{
    assert_int_equal(start_kernel(empty_kernel, 0, 32, 0, NULL), cudaErrorInvalidConfiguration);
    assert_int_equal(start_kernel(empty_kernel, 1, 1025, 0, NULL), cudaErrorInvalidConfiguration);
    assert_int_equal(start_kernel(empty_kernel, 1, 32, 1 << 20, NULL),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(start_kernel(empty_kernel, 1, 32, 0, NULL), cudaSuccess);
}

void divergent_barriers()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __shfl_sync(0xffffffffu, threadIdx.x == 32 ? (__syncthreads(), 1) : 0, 0);
}

// The last test: the device stays unusable.
void threads_that_wait_for_each_other_fail(void **)
{
    assert_int_equal(launch(divergent_barriers, 0), cudaErrorLaunchFailure);
    assert_non_null(emulate::why_broken());
    assert_int_equal(launch(empty_kernel, 0), cudaErrorLaunchFailure);
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_barrier_shows_in_the_numbers),
        cmocka_unit_test(warps_and_blocks_agree),
        cmocka_unit_test(a_copy_arrives_when_it_is_waited_for),
        cmocka_unit_test(impossible_launches_fail),
        cmocka_unit_test(threads_that_wait_for_each_other_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
