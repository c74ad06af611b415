/* test_cuda_device.c - the GPU's memory, what it says it takes, several devices, and the times of
 * operations */
#include <pthread.h>

#include "ops/bf16.h"
#include "ops/gpu.h"

enum { SEED = 5 };

/* ---- memory */

/* More than one transfer holds, with numbers halfway between two of the 16-bit ones. */
static void what_goes_up_comes_down_rounded_to_nearest_even(void **state)
{
    enum { COUNT = 5000011, SPECIAL = 8 };
    static const float special[SPECIAL] = { 0.0f,
                                            -0.0f,
                                            INFINITY,
                                            -INFINITY,
                                            0x1.01p0f /* a tie, down */,
                                            0x1.03p0f /* a tie, up */,
                                            0x1.0100002p0f,
                                            1e-40f };
    float *up = NULL, *down = NULL;

    (void)state;
    begin();
    assert_ok(NEW_ARRAY(&up, COUNT, "floats"));
    assert_ok(NEW_ARRAY(&down, COUNT, "floats"));
    for (int i = 0; i < COUNT; i++)
        up[i] = i < SPECIAL ? special[i] : (float)random_normal(SEED, 1, (uint64_t)i);
    for (int n = 0; n < 2; n++) {
        struct tensor t = tensor_1(NULL, gpu_types[n], COUNT);
        assert_ok(gpu.ops->buffer_new(&gpu, &t.data, COUNT * dtype_bytes(gpu_types[n]), "floats"));
        assert_ok(gpu.ops->upload(&gpu, t, up));
        assert_ok(gpu.ops->download(&gpu, down, t));
        gpu.ops->buffer_free(&gpu, t.data);
        for (int i = 0; i < COUNT; i++)
            if (down[i] != (n == 0 ? up[i] : bf16_to_float(bf16_from_float(up[i]))))
                fail_msg("element %d in %s: %a became %a", i, type_name(gpu_types[n]),
                         (double)up[i], (double)down[i]);
    }
    mem_free(up);
    mem_free(down);
    end();
}

static void memory_is_counted_and_given_back(void **state)
{
    enum { BYTES = 64 << 20 };
    struct device_memory before, during, after;
    void *buffer = NULL;

    (void)state;
    begin();
    gpu.ops->reset_peak(&gpu);
    gpu.ops->memory(&gpu, &before);
    assert_ok(gpu.ops->buffer_new(&gpu, &buffer, BYTES, "a test buffer"));
    gpu.ops->memory(&gpu, &during);
    gpu.ops->buffer_free(&gpu, buffer);
    assert_ok(gpu.ops->finish(&gpu));
    gpu.ops->memory(&gpu, &after);
    assert_true(during.used >= before.used + BYTES && during.peak >= during.used);
    assert_true(during.used <= during.total && before.free <= before.total);
    assert_int_equal(after.used, before.used);
    assert_true(after.peak >= during.used);
    gpu.ops->reset_peak(&gpu);
    gpu.ops->memory(&gpu, &after);
    assert_int_equal(after.peak, after.used);
    end();
}

static void a_buffer_that_does_not_fit_is_refused_and_the_gpu_still_works(void **state)
{
    struct device_memory memory;
    void *buffer = NULL;
    float one = 1.0f, back = 0.0f;

    (void)state;
    begin();
    gpu.ops->memory(&gpu, &memory);
    assert_int_equal(gpu.ops->buffer_new(&gpu, &buffer, 4 * memory.total, "far too much"),
                     ALIBI_MEMORY);
    assert_non_null(strstr(alibi_error(), "far too much"));
    assert_ok(gpu.ops->buffer_new(&gpu, &buffer, sizeof one, "a number"));
    assert_ok(gpu.ops->upload(&gpu, tensor_1(buffer, DTYPE_F32, 1), &one));
    assert_ok(gpu.ops->download(&gpu, &back, tensor_1(buffer, DTYPE_F32, 1)));
    gpu.ops->buffer_free(&gpu, buffer);
    assert_true(back == one);
    end();
}

static struct tensor zeros(struct tensor t)
{
    assert_ok(
        gpu.ops->buffer_new(&gpu, &t.data, (size_t)tensor_count(t) * dtype_bytes(t.type), "zeros"));
    assert_ok(gpu.ops->fill(&gpu, t, 0.0));
    return t;
}

/* The gradient of a norm leaves 64 KiB of sums per 8 of these rows, up to a limit. */
static void leave_sums(int64_t rows)
{
    enum { C = 8192 };
    struct tensor dx = zeros(tensor_2(NULL, DTYPE_F32, rows, C)),
                  x = zeros(tensor_2(NULL, DTYPE_F32, rows, C));
    struct tensor dweight = zeros(tensor_1(NULL, DTYPE_F32, C)),
                  weight = zeros(tensor_1(NULL, DTYPE_F32, C));
    struct tensor rstd = zeros(tensor_1(NULL, DTYPE_F32, rows));
    struct tensor all[] = { dx, x, dweight, weight, rstd };

    assert_ok(gpu.ops->norm_backward(&gpu, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                                .dx = dx,
                                                                .dweight = dweight,
                                                                .dy = x,
                                                                .x = x,
                                                                .weight = weight,
                                                                .rstd = rstd }));
    for (int i = 0; i < COUNT_OF(all); i++)
        gpu.ops->buffer_free(&gpu, all[i].data);
}

/* SLACK: the driver gives memory out in pieces. The first call loads the kernels. */
static void what_the_gpu_keeps_to_use_again_counts_as_free(void **state)
{
    enum { SUMS = 32 << 20, SLACK = 8 << 20 };
    struct device_memory before, after;

    (void)state;
    begin();
    leave_sums(8);
    gpu.ops->memory(&gpu, &before);
    leave_sums(8 * SUMS / (64 << 10));
    gpu.ops->memory(&gpu, &after);
    assert_true(after.used >= before.used + SUMS - SLACK);
    assert_true(after.free <= after.total && after.free + SLACK >= before.free);
    end();
}

static size_t workspace(int64_t B, int64_t L, int64_t largest, bool training)
{
    return gpu.ops->workspace(
        &gpu, &(struct workspace_args){
                  .B = B, .L = L, .H = 16, .D = 64, .largest = largest, .training = training });
}

static void workspace_holds_a_table_of_biases_longer_than_the_input(void **state)
{
    const int64_t distances = 1 << 20, H = 32;
    struct workspace_args a = { .B = 1, .L = 1024, .H = H, .D = 64 };

    (void)state;
    begin();
    const size_t without = gpu.ops->workspace(&gpu, &a);
    a.distances = distances;
    assert_true(gpu.ops->workspace(&gpu, &a) >=
                without + (size_t)(H * (distances - 1024)) * sizeof(float));
    end();
}

static void workspace_grows_with_the_tokens_and_says_when_they_are_too_many(void **state)
{
    const int64_t weight = 1024 * 50304;
    size_t one;

    (void)state;
    begin();
    one = workspace(1, 1024, 0, true);
    assert_true(workspace(2, 1024, 0, true) >= one + 4 * 1024 * 16 * 64);      /* dQ in fp32 */
    assert_true(workspace(1, 1024, weight, true) >= one + 4 * (size_t)weight); /* autotuning */
    assert_true(workspace(1, 1024, 0, false) < one);
    assert_true(gpu.ops->workspace(
                    &gpu,
                    &(struct workspace_args){
                        .B = 1, .L = 1024, .H = 16, .D = 64, .training = true, .wide = true }) ==
                one + (192 << 20));
    assert_true(
        gpu.ops->workspace(
            &gpu,
            &(struct workspace_args){
                .B = 1, .L = 4096, .H = 16, .D = 64, .distances = 4096, .training = true }) >
        workspace(1, 4096, 0, true) + 4 * 16 * 32 * 4096); /* sums of a long table */
    assert_true(workspace(1 << 16, 1 << 24, 0, true) == SIZE_MAX);
    end();
}

/* ---- several devices */

enum { THREADS = 4, SIDE = 256, ROOM = 32 << 20 };

struct user {
    pthread_t thread;
    alibi_device *device;
    float seed;
    int wrong; /* products that differ from the first */
};

/* Multiplies the same matrices over and over on a device of its own. */
static void *use_device(void *user)
{
    enum { TIMES = 100, COUNT = SIDE * SIDE };
    struct user *u = user;
    struct device *dev = &u->device->device;
    float *x = malloc(COUNT * sizeof *x), *first = malloc(COUNT * sizeof *x),
          *y = malloc(COUNT * sizeof *x);
    struct tensor t[3];

    for (int i = 0; i < COUNT; i++)
        x[i] = sinf(u->seed + (float)i);
    for (int i = 0; i < 3; i++) {
        t[i] = tensor_2(NULL, DTYPE_F32, SIDE, SIDE);
        u->wrong += dev->ops->buffer_new(dev, &t[i].data, COUNT * sizeof *x, "test") != ALIBI_OK;
    }
    u->wrong += dev->ops->upload(dev, t[0], x) != ALIBI_OK;
    u->wrong += dev->ops->upload(dev, t[1], x) != ALIBI_OK;
    for (int n = 0; n < TIMES; n++) {
        struct linear_args a = { .y = t[2], .x = t[0], .weight = t[1] };
        double sum;
        u->wrong += dev->ops->linear_forward(dev, &a) != ALIBI_OK;
        u->wrong += dev->ops->sum_squares(dev, &sum, t[2]) != ALIBI_OK || !(sum > 0);
        u->wrong += dev->ops->download(dev, n == 0 ? first : y, t[2]) != ALIBI_OK;
        u->wrong += n > 0 && memcmp(first, y, COUNT * sizeof *x) != 0;
    }
    free(x);
    free(first);
    free(y);
    return NULL;
}

static void devices_of_one_gpu_do_not_disturb_each_other(void **state)
{
    struct user users[THREADS];
    struct device_memory before, with, after;

    (void)state;
    begin();
    gpu.ops->memory(&gpu, &before);
    for (int i = 0; i < THREADS; i++)
        users[i] = (struct user){ .device = open_gpu(ALIBI_FP32), .seed = (float)i };
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&users[i].thread, NULL, use_device, &users[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(users[i].thread, NULL);
        assert_int_equal(users[i].wrong, 0);
    }
    gpu.ops->memory(&gpu, &with);
    for (int i = 0; i < THREADS; i++)
        alibi_device_free(users[i].device); /* with the buffers that were not freed */
    gpu.ops->memory(&gpu, &after);
    assert_int_equal(before.used, after.used); /* others do not count */
    assert_true(with.free + ROOM < before.free && after.free + ROOM >= before.free);
    end();
}

static void a_gpu_that_is_not_there_is_named(void **state)
{
    const struct alibi_compute compute = { .device = ALIBI_DEVICE_CUDA,
                                           .precision = ALIBI_FP32,
                                           .gpu = 99 };
    alibi_device *device = NULL;

    (void)state;
    begin();
    assert_fails(alibi_device_open(&device, &compute, NULL), ALIBI_DEVICE, "99");
    end();
}

/* ---- times */

static void times_of_operations_are_kept_once_somebody_asks(void **state)
{
    struct device_part parts[DEVICE_PARTS_MAX];
    double seconds = 0.0;
    int64_t calls = 0;
    int count = 0;

    (void)state;
    begin();
    struct tensor x = zeros(tensor_2(NULL, DTYPE_F32, 64, 64)), y = zeros(x), weight = zeros(x),
                  bias = zeros(tensor_1(NULL, DTYPE_F32, 64));
    struct tensor all[] = { x, y, weight, bias };
    assert_ok(gpu.ops->read_parts(&gpu, parts, &count));
    assert_ok(gpu.ops->linear_forward(
        &gpu, &(struct linear_args){ .y = y, .x = x, .weight = weight, .bias = bias }));
    assert_ok(gpu.ops->read_parts(&gpu, parts, &count));
    assert_true(count > 0 && count <= DEVICE_PARTS_MAX);
    for (int i = 0; i < count; i++) {
        assert_non_null(parts[i].name);
        seconds += parts[i].seconds;
        calls += parts[i].calls;
    }
    assert_true(seconds > 0.0 && seconds < 60.0 && calls > 0);
    assert_ok(gpu.ops->read_parts(&gpu, NULL, &count)); /* no longer */
    assert_ok(gpu.ops->linear_forward(
        &gpu, &(struct linear_args){ .y = y, .x = x, .weight = weight, .bias = bias }));
    assert_ok(gpu.ops->read_parts(&gpu, parts, &count));
    assert_int_equal(count, 0);
    for (int i = 0; i < COUNT_OF(all); i++)
        gpu.ops->buffer_free(&gpu, all[i].data);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_up_comes_down_rounded_to_nearest_even),
        cmocka_unit_test(memory_is_counted_and_given_back),
        cmocka_unit_test(a_buffer_that_does_not_fit_is_refused_and_the_gpu_still_works),
        cmocka_unit_test(what_the_gpu_keeps_to_use_again_counts_as_free),
        cmocka_unit_test(workspace_holds_a_table_of_biases_longer_than_the_input),
        cmocka_unit_test(workspace_grows_with_the_tokens_and_says_when_they_are_too_many),
        cmocka_unit_test(devices_of_one_gpu_do_not_disturb_each_other),
        cmocka_unit_test(a_gpu_that_is_not_there_is_named),
        cmocka_unit_test(times_of_operations_are_kept_once_somebody_asks),
    };

    return RUN_ON_GPU(tests);
}
