/* test_cpu.c - the CPU backend: which kernels it picks, and facts not covered by test_cases.c */
#include <cblas.h>

#include "ops/ops.h"
#include "ops/cpu/cpu.h"

#include "check.h"

enum { SEED = 5 };

/* Runs first: the choice is made once. */
static void the_environment_lowers_the_choice(void **state)
{
    struct ops plain, none;

    (void)state;
    assert_int_equal(setenv("ALIBI_SIMD", "plain", 1), 0);
    assert_true(cpu_ops_for_set(&plain, "plain"));
    assert_ptr_equal(ops_cpu()->attention_forward, plain.attention_forward);
    assert_false(cpu_ops_for_set(&none, "avx1024"));
}

static void a_product_beyond_cblas_is_refused(void **state)
{
    float x = 0.0f;
    int64_t many = (int64_t)1 << 31;
    struct tensor big = tensor_2(&x, DTYPE_F32, many, 1), one = tensor_2(&x, DTYPE_F32, 1, 1);
    struct device dev = { .ops = ops_cpu() };

    (void)state;
    assert_fails(
        dev.ops->linear_forward(&dev, &(struct linear_args){ .y = big, .x = big, .weight = one }),
        ALIBI_BAD_INPUT, "beyond CBLAS");
    assert_fails(
        dev.ops->linear_backward(
            &dev, &(struct linear_args){ .dweight = one, .dy = big, .x = big, .weight = one }),
        ALIBI_BAD_INPUT, "beyond CBLAS");
}

/* ---- activations */

/* In forms that do not cancel, unlike 1 + tanh and 1 + erf. */
static double accurate_gelu(int kind, double x)
{
    double u = sqrt(M_2_PI) * (x + 0.044715 * x * x * x);

    return kind == ALIBI_GELU_TANH ? x / (1.0 + exp(-2.0 * u)) : 0.5 * x * erfc(-x * M_SQRT1_2);
}

static void gelu_keeps_its_digits_where_it_is_small(void **state)
{
    enum { COUNT = 16001 };
    static float x[COUNT], y[COUNT];
    struct ops ops;
    struct device dev = { .ops = &ops };

    (void)state;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i - 8000) / 2000.0f;
    for (int s = 0; cpu_set_name(s); s++)
        for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_GELU_ERF; kind++) {
            double error = 0.0;
            assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
            assert_ok(ops.activation_forward(&dev, kind, tensor_2(y, DTYPE_F32, 1, COUNT),
                                             tensor_2(x, DTYPE_F32, 1, COUNT)));
            for (int i = 0; i < COUNT; i++) {
                double expected = accurate_gelu(kind, (double)x[i]);
                assert_true(isfinite(y[i])); /* fmax passes over NaN */
                if (expected != 0.0)
                    error = fmax(error, fabs((double)y[i] / expected - 1.0));
            }
            printf("gelu %d %s f32 -4..4  relative error %.1e  limit 2.0e-06\n", kind,
                   cpu_set_name(s), error);
            assert_true(error <= 2e-6);
        }
}

/* ---- optimizers */

static const struct adamw_args adamw = { .lr = 1e-2,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .eps = 1e-8,
                                         .weight_decay = 10,
                                         .gradient_scale = 0.5,
                                         .step = 3 };
static const struct nesterov_args nesterov = {
    .lr = 0.02, .previous_lr = 0.019, .momentum = 0.99, .weight_decay = 10, .gradient_scale = 0.5
};

static void assert_copied(struct tensor copy, const float *w)
{
    for (int64_t i = 0; i < tensor_count(copy); i++) {
        double single = (double)w[i], expected = copy.type == DTYPE_BF16
                                                     ? (double)bf16_to_float(bf16_from_float(w[i]))
                                                     : single;
        assert_close(get(copy, i), expected, 0.0);
    }
}

static void optimizers_copy_the_new_weights_in_any_type(void **state)
{
    enum { COUNT = 40001, DECAYING = 5000 };
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F64 };
    static float w[COUNT], m[COUNT], v[COUNT], gradient[COUNT];
    static double memory[COUNT];
    struct adamw_args a = adamw;
    struct nesterov_args n = nesterov;
    struct ops ops;
    struct device dev = { .ops = &ops };

    (void)state;
    a.w = n.w = tensor_1(w, DTYPE_F32, COUNT);
    a.m = n.u = tensor_1(m, DTYPE_F32, COUNT);
    a.v = tensor_1(v, DTYPE_F32, COUNT);
    a.gradient = n.gradient = tensor_1(gradient, DTYPE_F32, COUNT);
    a.decaying = n.decaying = DECAYING;
    for (int64_t i = 0; i < COUNT; i++) {
        w[i] = (float)random_normal(SEED, 1, (uint64_t)i);
        gradient[i] = (float)random_normal(SEED, 2, (uint64_t)i);
    }
    for (int s = 0; cpu_set_name(s); s++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            a.copy = n.copy = tensor_1(memory, types[t], COUNT);
            assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
            assert_ok(ops.adamw(&dev, &a));
            assert_copied(a.copy, w);
            assert_ok(ops.nesterov(&dev, &n));
            assert_copied(n.copy, w);
        }
}

/* ---- OpenBLAS */

static void a_cpu_that_openblas_does_not_know_gets_the_kernels_it_can_run(void **state)
{
    (void)state;
    assert_string_equal(blas_better_kernels("Prescott", "avx512"), "SkylakeX");
    assert_string_equal(blas_better_kernels("Prescott", "avx2"), "Haswell");
    assert_null(blas_better_kernels("Prescott", "plain"));
    assert_null(blas_better_kernels("Zen", "avx2"));
}

/* 300 x 200 from 500 numbers, of which each sum is exact in fp32. */
static void check_product(void)
{
    enum { M = 300, N = 200, K = 500 };
    static float x[M * K], w[N * K], y[M * N];
    struct device dev = { .ops = ops_cpu() };

    for (int i = 0; i < M * K; i++)
        x[i] = (float)(i % 7 - 3);
    for (int i = 0; i < N * K; i++)
        w[i] = (float)(i % 5 - 2);
    assert_ok(
        cpu_linear_forward(&dev, &(struct linear_args){ .y = tensor_2(y, DTYPE_F32, M, N),
                                                        .x = tensor_2(x, DTYPE_F32, M, K),
                                                        .weight = tensor_2(w, DTYPE_F32, N, K) }));
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float sum = 0.0f;
            for (int k = 0; k < K; k++)
                sum += x[m * K + k] * w[n * K + k];
            assert_true(y[m * N + n] == sum);
        }
}

static void openblas_changes_its_kernels_without_a_restart_and_multiplies_as_before(void **state)
{
    char before[32];

    (void)state;
    snprintf(before, sizeof before, "%s", openblas_get_corename());
    if (strcmp(before, "Prescott") == 0)
        skip_because("OpenBLAS knows no other kernels for this CPU");
    check_product();
    blas_use_kernels("Prescott");
    assert_string_equal(openblas_get_corename(), "Prescott");
    check_product();
    assert_null(getenv("OPENBLAS_CORETYPE"));
    blas_choose_kernels(); /* what a CPU that OpenBLAS does not know gets */
    assert_string_equal(openblas_get_corename(), strcmp(cpu_set_name(0), "avx512") == 0 ? "SkylakeX"
                                                 : strcmp(cpu_set_name(0), "avx2") == 0
                                                     ? "Haswell"
                                                     : "Prescott");
    check_product();
    blas_use_kernels(before);
    assert_string_equal(openblas_get_corename(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cpu_that_openblas_does_not_know_gets_the_kernels_it_can_run),
        cmocka_unit_test(the_environment_lowers_the_choice),
        cmocka_unit_test(openblas_changes_its_kernels_without_a_restart_and_multiplies_as_before),
        cmocka_unit_test(a_product_beyond_cblas_is_refused),
        cmocka_unit_test(gelu_keeps_its_digits_where_it_is_small),
        cmocka_unit_test(optimizers_copy_the_new_weights_in_any_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
