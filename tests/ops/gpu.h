/* gpu.h - the GPU that tests run on, if there is one */
#ifndef GPU_H
#define GPU_H

#include "check.h"
#include "ops/ops.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

static const enum dtype gpu_types[] = { DTYPE_F32, DTYPE_BF16 };

/* With ALIBI_FEW_CASES in the environment tests that have many take some of them: for a device that
 * is slow. */
static inline bool few_cases(void)
{
    return getenv("ALIBI_FEW_CASES") != NULL;
}

/* With ALIBI_BF16 fp32 is omitted too, which has no kernels for tensor cores. */
static inline int first_type(void)
{
    return getenv("ALIBI_BF16") ? 1 : 0;
}

static inline const char *type_name(enum dtype type)
{
    return type == DTYPE_BF16 ? "bf16" : "f32";
}

/* NULL: there is none, which is no failure unless ALIBI_GPU is in the environment. */
static inline alibi_device *open_gpu(int precision)
{
    const struct alibi_compute compute = { .device = ALIBI_DEVICE_CUDA, .precision = precision };
    alibi_device *device = NULL;
    alibi_status status = alibi_device_open(&device, &compute, NULL);

    if (status != ALIBI_DEVICE || getenv("ALIBI_GPU"))
        assert_ok(status);
    return device;
}

/* ---- for tests of a GPU only: group setup and teardown */

static alibi_device *gpu_device;
static struct device gpu; /* ops NULL: there is none */
static bool all_good;     /* in the test that runs */

/* Attention skips keys by lists however few there are: by default these problems are too short. */
static inline int find_gpu(void **state)
{
    (void)state;
    setenv("ALIBI_LISTS_FROM", "1", 0);
    gpu_device = open_gpu(ALIBI_FP32);
    if (gpu_device)
        gpu = gpu_device->device;
    else
        printf("%s\n", alibi_error());
    return 0;
}

static inline int lose_gpu(void **state)
{
    (void)state;
    alibi_device_free(gpu_device);
    return 0;
}

/* ALIBI_TEST='*rotated*' in the environment runs some of them, and '!*rotated*' the others: under a
 * sanitizer all together take long. */
#define RUN_ON_GPU(tests) (choose_tests(), cmocka_run_group_tests(tests, find_gpu, lose_gpu))

static inline void choose_tests(void)
{
    const char *pattern = getenv("ALIBI_TEST");

    if (pattern && *pattern == '!')
        cmocka_set_skip_filter(pattern + 1);
    else
        cmocka_set_test_filter(pattern);
    if (pattern)
        printf("only tests that match '%s'\n", pattern);
}

static inline void begin(void)
{
    if (gpu.ops == NULL)
        skip_because("no GPU");
    all_good = true;
}

/* All problems of a test are solved and printed before it fails. */
static inline void end(void)
{
    assert_true(all_good);
}

#endif
