// test_block.cpp - on the emulated GPU right kernels give the right results, and wrong ones are
// noticed
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/ptx_hopper.cuh"

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

    emulate::start(emulate::COPIES, [=] { *copy = *from; });
    emulate::commit(emulate::COPIES);
    emulate::finish(emulate::COPIES, pending);
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

// A warpgroup loads 64 rows of 64 numbers by TMA, and multiplies the first 16 columns of all of
// them with each other. With all orders of work there are as many blocks.
enum { ROWS = 64, ORDERS = 16 };
enum omitted { NOTHING, WAIT_FOR_LOAD, WAIT_FOR_PRODUCT, FREE_AFTER_PRODUCT };

template <enum omitted OMITTED> void multiply_rows(float *to, const CUtensorMap *map)
{
    char *panel = dynamic_shared<char>();
    mbarrier *full = (mbarrier *)(panel + ROWS * 128);
    const uint64_t descriptor = shared_address(panel) >> 4 | 64ull << 32 | 1ull << 62;
    float d[ROWS / 2];

    for (float &x : d)
        x = NAN;
    if (threadIdx.x == 0)
        mbarrier_init(full, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(full, ROWS * 128);
        tma_load(panel, map, full, 0, 0, 0, 0);
    }
    if (OMITTED != WAIT_FOR_LOAD)
        mbarrier_wait(full, 0);
    wgmma_ss<ROWS, 0, 0>(d, descriptor, descriptor, 0);
    wgmma_commit();
    if (OMITTED == FREE_AFTER_PRODUCT)
        memset(panel, 0, ROWS * 128);
    if (OMITTED != WAIT_FOR_PRODUCT)
        wgmma_wait<0>();
    for (int i = 0; i < ROWS / 2; i++) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        const int row = 16 * warp + lane / 4 + (i & 2 ? 8 : 0), column = 8 * (i / 4) + lane % 4 * 2;
        to[((int)blockIdx.x * ROWS + row) * ROWS + column + i % 2] = d[i];
    }
    wgmma_wait<0>();
    mbarrier_wait(full, 0);
}

// How many of the blocks are right.
int right_products(void (*kernel)(float *, const CUtensorMap *))
{
    static float to[ORDERS * ROWS * ROWS];
    static uint16_t from[ROWS][64];
    const cuuint64_t sizes[] = { 64, 1, ROWS - 1, 1 }, strides[] = { 128, 128, 128 };
    const cuuint32_t box[] = { 64, 1, ROWS, 1 };
    CUtensorMap map;
    int right = 0;

    for (int i = 0; i < ROWS * 64; i++)
        from[i / 64][i % 64] = bf16_from_float((float)(i * i % 29 - 14));
    assert_int_equal(
        encode_tensor_map(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, from, sizes, strides, box,
                          NULL, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        CUDA_SUCCESS);
    assert_int_equal(start_kernel(kernel, ORDERS, 128, ROWS * 128 + 8, NULL, to, &map),
                     cudaSuccess);
    for (int block = 0; block < ORDERS; block++) {
        bool good = true;
        for (int i = 0; i < ROWS * ROWS; i++) {
            const int row = i / ROWS, column = i % ROWS;
            float sum = 0.0f;
            for (int k = 0; k < 16 && row < ROWS - 1 && column < ROWS - 1; k++)
                sum += bf16_to_float(from[row][k]) * bf16_to_float(from[column][k]);
            good = good && to[block * ROWS * ROWS + i] == sum;
        }
        right += good;
    }
    return right;
}

void products_and_loads_must_be_waited_for(void **)
{
    assert_int_equal(right_products(multiply_rows<NOTHING>), ORDERS);
    assert_in_range(right_products(multiply_rows<WAIT_FOR_LOAD>), 0, ORDERS / 2);
    assert_in_range(right_products(multiply_rows<WAIT_FOR_PRODUCT>), 0, ORDERS / 2);
    assert_in_range(right_products(multiply_rows<FREE_AFTER_PRODUCT>), 0, ORDERS / 2);
}

void empty_kernel()
{
}

void impossible_launches_fail(void **)
{
    assert_int_equal(start_kernel(empty_kernel, 0, 32, 0, NULL), cudaErrorInvalidConfiguration);
    assert_int_equal(start_kernel(empty_kernel, 1, 1025, 0, NULL), cudaErrorInvalidConfiguration);
    assert_int_equal(start_kernel(empty_kernel, dim3(1, 65536), 32, 0, NULL),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(start_kernel(empty_kernel, 1, 32, 1 << 20, NULL),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(start_kernel(empty_kernel, 1, 32, 0, NULL), cudaSuccess);
}

cudaError_t launch_with_shared(int kib)
{
    return start_kernel(empty_kernel, 1, 32, (size_t)kib << 10, NULL);
}

cudaError_t ask_for_shared(int kib)
{
    return cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kib << 10);
}

void shared_memory_is_limited_by_the_gpu_and_by_what_the_kernel_asked_for(void **)
{
    assert_int_equal(launch_with_shared(48), cudaSuccess);
    assert_int_equal(launch_with_shared(49), cudaErrorInvalidConfiguration);
    assert_int_equal(ask_for_shared(100), cudaSuccess);
    assert_int_equal(launch_with_shared(100), cudaSuccess);
    assert_int_equal(launch_with_shared(101), cudaErrorInvalidConfiguration);
    assert_int_equal(ask_for_shared(164), cudaErrorInvalidValue);
    assert_int_equal(setenv("ALIBI_EMULATE_SMALL", "1", 1), 0);
    assert_int_equal(ask_for_shared(100), cudaErrorInvalidValue);
    assert_int_equal(unsetenv("ALIBI_EMULATE_SMALL"), 0);
}

// The last `idle` threads of a block do not wait for the kernel before.
void wait_in_chain(int idle)
{
    if ((int)threadIdx.x < THREADS - idle)
        wait_for_kernel_before();
}

void a_chained_kernel_fails_unless_every_thread_waits(void **)
{
    assert_int_equal(start_in_chain(wait_in_chain, BLOCKS, THREADS, 0, NULL, true, 0), cudaSuccess);
    assert_int_equal(start_in_chain(wait_in_chain, BLOCKS, THREADS, 0, NULL, true, 1),
                     cudaErrorLaunchFailure);
}

void divergent_barriers()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __shfl_sync(0xffffffffu, threadIdx.x == 32 ? (__syncthreads(), 1) : 0, 0);
}

// The device stays unusable after a kernel has failed, so such a kernel runs in a process of its
// own.
template <class... Parameters, class... Arguments>
bool fails(unsigned blocks, unsigned threads, void (*kernel)(Parameters...), Arguments... arguments)
{
    const pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0)
        _exit(start_kernel(kernel, blocks, threads, 1024, NULL, arguments...) ==
              cudaErrorLaunchFailure);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
}

// Thread 0 completes two phases. All threads wait for the first one, and must have done so when the
// second one completes.
template <bool BARRIER> void complete_phases()
{
    mbarrier *b = dynamic_shared<mbarrier>();

    if (threadIdx.x == 0)
        mbarrier_init(b, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        mbarrier_arrive(b);
    mbarrier_wait(b, 0);
    if (BARRIER)
        __syncthreads();
    if (threadIdx.x == 0)
        mbarrier_arrive(b);
}

void a_warp_that_may_miss_a_phase_fails(void **)
{
    assert_false(fails(ORDERS, 128, complete_phases<true>));
    assert_true(fails(ORDERS, 128, complete_phases<false>));
}

// One thread copies two rows of a view of numbers to `at` in shared memory, and 32 bytes from there
// to `to`.
void copy_rows(const CUtensorMap *map, int at, int d, char *to)
{
    char *shared = dynamic_shared<char>();
    mbarrier *full = (mbarrier *)shared;

    if (threadIdx.x > 0)
        return;
    mbarrier_init(full, 1);
    mbarrier_arrive_expect_tx(full, 256);
    tma_load(shared + at, map, full, d, 0, 0, 0);
    mbarrier_wait(full, 0);
    tma_store((float *)to, (const float *)(shared + at), 32);
    tma_store_commit();
    tma_store_wait();
}

void copies_of_tma_must_be_aligned(void **)
{
    static uint16_t from[2][64];
    alignas(16) char to[64];
    const cuuint64_t sizes[] = { 64, 1, 2, 1 }, strides[] = { 128, 128, 128 };
    const cuuint32_t box[] = { 64, 1, 2, 1 };
    CUtensorMap map;

    assert_int_equal(
        encode_tensor_map(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, from, sizes, strides, box,
                          NULL, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        CUDA_SUCCESS);
    assert_false(fails(1, 32, copy_rows, &map, 128, 0, to));
    assert_false(fails(1, 32, copy_rows, &map, 128, -8, to + 16));
    assert_true(fails(1, 32, copy_rows, &map, 192, 0, to));
    assert_true(fails(1, 32, copy_rows, &map, 128, 4, to));
    assert_true(fails(1, 32, copy_rows, &map, 128, 0, to + 8));
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
        cmocka_unit_test(products_and_loads_must_be_waited_for),
        cmocka_unit_test(impossible_launches_fail),
        cmocka_unit_test(shared_memory_is_limited_by_the_gpu_and_by_what_the_kernel_asked_for),
        cmocka_unit_test(a_chained_kernel_fails_unless_every_thread_waits),
        cmocka_unit_test(a_warp_that_may_miss_a_phase_fails),
        cmocka_unit_test(copies_of_tma_must_be_aligned),
        cmocka_unit_test(threads_that_wait_for_each_other_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
