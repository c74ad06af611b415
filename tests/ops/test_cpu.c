/* test_cpu.c - the CPU backend: which kernels it picks, and facts not covered by test_cases.c */
#include <cblas.h>

#include "ops/calls.h"
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

/* ---- norms */

static struct tensor random_tensor(struct tensor shape, uint64_t stream)
{
    assert_ok(mem_new(&shape.data, (size_t)tensor_count(shape) * dtype_bytes(shape.type), "test"));
    for (int64_t i = 0; i < tensor_count(shape); i++)
        set(shape, i, random_normal(SEED, stream, (uint64_t)i));
    return shape;
}

static void assert_same_bits(struct tensor a, struct tensor b)
{
    assert_memory_equal(a.data, b.data, (size_t)tensor_count(a) * dtype_bytes(a.type));
}

static void check_norm_bits(const struct ops *ops, enum dtype type, int64_t rows, int64_t C,
                            int kind, double p)
{
    struct device dev = { .ops = ops };
    struct tensor matrix = tensor_2(NULL, type, rows, C), row = tensor_1(NULL, dtype_sums(type), C);
    struct tensor column = tensor_1(NULL, dtype_sums(type), rows);
    struct norm_args whole = { .kind = kind,
                               .y = random_tensor(matrix, 1),
                               .sum = random_tensor(matrix, 2),
                               .mean = random_tensor(column, 3),
                               .rstd = random_tensor(column, 4),
                               .x = random_tensor(matrix, 5),
                               .branch = random_tensor(matrix, 6),
                               .weight = random_tensor(row, 7),
                               .bias = random_tensor(row, 8),
                               .dropout = { p, 3, 4 },
                               .eps = 1e-5 };
    struct norm_args norm = whole, back;

    norm.y = random_tensor(matrix, 9);
    norm.mean = random_tensor(column, 10);
    norm.rstd = random_tensor(column, 11);
    norm.x = random_tensor(matrix, 12);
    norm.sum = norm.branch = tensor_none();
    back = whole;
    back.x = whole.sum;
    back.y = random_tensor(matrix, 13);
    back.dy = random_tensor(matrix, 14);
    back.dx = random_tensor(matrix, 15);
    back.dweight = random_tensor(row, 16);
    back.dbias = random_tensor(row, 17);
    assert_ok(ops->residual_forward(&dev, norm.x, whole.x, whole.branch, whole.dropout));
    assert_ok(ops->norm_forward(&dev, &whole));
    assert_ok(ops->norm_forward(&dev, &norm));
    assert_ok(ops->norm_backward(&dev, &back));
    assert_same_bits(whole.sum, norm.x);
    if (kind == ALIBI_LAYERNORM)
        assert_same_bits(whole.mean, norm.mean);
    assert_same_bits(whole.rstd, norm.rstd);
    assert_same_bits(whole.y, norm.y);
    assert_same_bits(whole.y, back.y);
    struct tensor all[] = { whole.y,      whole.sum,    whole.mean, whole.rstd, whole.x,
                            whole.branch, whole.weight, whole.bias, norm.y,     norm.mean,
                            norm.rstd,    norm.x,       back.y,     back.dy,    back.dx,
                            back.dweight, back.dbias };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i].data);
}

/* Forward at once, in two steps, and as backward gives it again. */
static void a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass(
    void **state)
{
    static const int64_t shapes[][2] = { { 0, 4 },  { 3, 1 },    { 2, 7 },    { 17, 16 },
                                         { 5, 33 }, { 90, 401 }, { 700, 64 }, { 3, 4101 } };
    static const enum dtype types[] = { DTYPE_F32, DTYPE_F64, DTYPE_BF16 };

    (void)state;
    for (int s = -1; s < 0 || cpu_set_name(s); s++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int n = 0; n < 12; n++) {
                struct ops ops = ops_ref;
                assert_true(s < 0 || cpu_ops_for_set(&ops, cpu_set_name(s)));
                check_norm_bits(&ops, types[n / 4], shapes[i][0], shapes[i][1],
                                n & 1 ? ALIBI_RMSNORM : ALIBI_LAYERNORM, n & 2 ? 0.3 : 0.0);
            }
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
    struct tensor W = tensor_1(w, DTYPE_F32, COUNT), M = tensor_1(m, DTYPE_F32, COUNT),
                  V = tensor_1(v, DTYPE_F32, COUNT);
    struct tensor G = tensor_1(gradient, DTYPE_F32, COUNT);
    struct adamw_args a = adamw;
    struct nesterov_args n = nesterov;
    struct ops ops;
    struct device dev = { .ops = &ops };

    (void)state;
    a.decaying = n.decaying = DECAYING;
    for (int64_t i = 0; i < COUNT; i++) {
        w[i] = (float)random_normal(SEED, 1, (uint64_t)i);
        gradient[i] = (float)random_normal(SEED, 2, (uint64_t)i);
    }
    for (int s = 0; cpu_set_name(s); s++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            struct tensor copy = tensor_1(memory, types[t], COUNT);
            assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
            assert_ok(adamw_of(&dev, W, copy, M, V, G, a));
            assert_copied(copy, w);
            assert_ok(nesterov_of(&dev, W, copy, M, G, n));
            assert_copied(copy, w);
        }
}

/* ---- what else holds */

/* One NaN in the input of each operation that could lose it in a comparison. */
static void a_nan_is_never_hidden(void **state)
{
    struct ops ops;
    struct device dev = { .ops = &ops };

    (void)state;
    for (int s = -1; s < 0 || cpu_set_name(s); s++) {
        ops = ops_ref;
        assert_true(s < 0 || cpu_ops_for_set(&ops, cpu_set_name(s)));
        for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++) {
            float x[40] = { [3] = NAN }, y[40], dy[20] = { [3] = 1.0f };
            int64_t width = kind == ALIBI_SWIGLU ? 40 : 20;
            struct tensor in = tensor_2(x, DTYPE_F32, 1, width),
                          out = tensor_2(y, DTYPE_F32, 1, 20);
            assert_ok(ops.activation_forward(&dev, kind, out, in));
            assert_true(isnan(y[3]));
            out = tensor_2(y, DTYPE_F32, 1, width);
            assert_ok(ops.activation_backward(&dev, kind, out, tensor_2(dy, DTYPE_F32, 1, 20), in));
            assert_true(isnan(y[3]));
        }
        float logits[37] = { [36] = NAN }, nll[1] = { 0 };
        int32_t target[1] = { 0 };
        assert_ok(ops.cross_entropy(
            &dev, &(struct cross_entropy_args){ .nll = tensor_1(nll, DTYPE_F32, 1),
                                                .logits = tensor_2(logits, DTYPE_F32, 1, 37),
                                                .targets = tensor_1(target, DTYPE_I32, 1),
                                                .scale = 1.0 }));
        assert_true(isnan(nll[0]));
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
        cmocka_unit_test(
            a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass),
        cmocka_unit_test(gelu_keeps_its_digits_where_it_is_small),
        cmocka_unit_test(optimizers_copy_the_new_weights_in_any_type),
        cmocka_unit_test(a_nan_is_never_hidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
