/* test_cpu.c - the CPU backend against the reference, all operations but attention */
#include "ops/problem.h"

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

/* ---- linear */

static alibi_status run_linear_forward(struct device *dev, const struct problem *p, struct tensor *out)
{
    return dev->ops->linear_forward(dev, out[0], p->in[0], p->in[1], p->kind ? p->in[2] : tensor_none());
}

static alibi_status run_linear_backward(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct tensor dx = p->outs > 1 ? out[1] : tensor_none(), dbias = p->outs > 2 ? out[2] : tensor_none();

    return dev->ops->linear_backward(dev, dx, out[0], dbias, p->in[2], p->in[0], p->in[1]);
}

static void check_linear(int64_t rows, int64_t in, int64_t out, bool optional)
{
    struct problem forward = { .operation = "linear_forward", .kind = optional, .limit = 1e-6, .through_blas = true };
    struct problem backward = { .operation = "linear_backward", .limit = 1e-6, .through_blas = true };

    input(&forward, f32_2(rows, in));
    input(&forward, f32_2(out, in));
    input(&forward, f32_1(out));
    output(&forward, f32_2(rows, out));
    forward.run = run_linear_forward;
    input(&backward, f32_2(rows, in));
    input(&backward, f32_2(out, in));
    input(&backward, f32_2(rows, out));
    accumulated(&backward, f32_2(out, in));
    if (optional) {
        output(&backward, f32_2(rows, in));
        accumulated(&backward, f32_1(out));
    }
    backward.run = run_linear_backward;
    snprintf(forward.shape, sizeof forward.shape, "rows=%d in=%d out=%d%s", (int)rows, (int)in, (int)out,
             optional ? " bias" : "");
    memcpy(backward.shape, forward.shape, sizeof forward.shape);
    check(&forward);
    check(&backward);
}

static void linear_equals_the_reference(void **state)
{
    static const int64_t shapes[][3] = { { 1, 1, 1 },     { 1, 96, 67 }, { 2, 3, 5 }, { 7, 65, 129 }, { 64, 64, 64 },
                                         { 130, 33, 17 }, { 0, 8, 8 },   { 5, 0, 3 }, { 5, 3, 0 },    { 600, 20, 150 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int optional = 0; optional < 2; optional++)
            check_linear(shapes[i][0], shapes[i][1], shapes[i][2], optional);
}

static void a_product_beyond_cblas_is_refused(void **state)
{
    float x = 0.0f;
    int64_t many = (int64_t)1 << 31;
    struct tensor big = tensor_2(&x, DTYPE_F32, many, 1), one = tensor_2(&x, DTYPE_F32, 1, 1);
    struct device dev = { .ops = ops_cpu() };

    (void)state;
    assert_fails(dev.ops->linear_forward(&dev, big, big, one, tensor_none()), ALIBI_BAD_INPUT, "beyond CBLAS");
    assert_fails(dev.ops->linear_backward(&dev, tensor_none(), one, tensor_none(), big, big, one), ALIBI_BAD_INPUT,
                 "beyond CBLAS");
}

/* ---- embedding */

static alibi_status run_embedding_forward(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct tensor table = p->kind ? p->in[2] : tensor_none();

    return dev->ops->embedding_forward(dev, out[0], p->in[0], p->in[1], table, p->n[4], 1.25);
}

static alibi_status run_embedding_backward(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct tensor dtable = p->kind ? out[1] : tensor_none();

    return dev->ops->embedding_backward(dev, out[0], dtable, p->in[1], p->in[0], p->n[4], 1.25);
}

static void check_embedding(int64_t B, int64_t L, int64_t C, int64_t V, bool positions)
{
    enum { START = 3 };
    struct problem forward = { .operation = "embedding_forward", .kind = positions, .n = { B, L, C, V, START }, .limit = 2e-7 };
    struct problem backward = { .operation = "embedding_backward", .kind = positions, .n = { B, L, C, V, START }, .limit = 1e-6 };

    tokens_input(&forward, B * L, V);
    input(&forward, f32_2(V, C));
    input(&forward, f32_2(START + L, C));
    output(&forward, tensor_3(NULL, DTYPE_F32, B, L, C));
    forward.run = run_embedding_forward;
    tokens_input(&backward, B * L, V);
    input(&backward, tensor_3(NULL, DTYPE_F32, B, L, C));
    accumulated(&backward, f32_2(V, C));
    accumulated(&backward, f32_2(START + L, C));
    backward.run = run_embedding_backward;
    snprintf(forward.shape, sizeof forward.shape, "B=%d L=%d C=%d V=%d%s", (int)B, (int)L, (int)C, (int)V,
             positions ? " positions" : "");
    memcpy(backward.shape, forward.shape, sizeof forward.shape);
    check(&forward);
    check(&backward);
}

static void embedding_equals_the_reference(void **state)
{
    static const int64_t shapes[][4] = { { 1, 1, 1, 1 }, { 2, 7, 5, 3 }, { 3, 50, 65, 11 }, { 2, 70, 400, 257 }, { 2, 0, 4, 4 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int positions = 0; positions < 2; positions++)
            check_embedding(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], positions);
}

/* ---- norms */

static alibi_status run_norm_forward(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct tensor bias = p->kind & 1 ? p->in[2] : tensor_none();

    if (p->kind & 2)
        return dev->ops->rmsnorm_forward(dev, out[0], out[1], p->in[0], p->in[1], bias, 1e-5);
    return dev->ops->layernorm_forward(dev, out[0], out[2], out[1], p->in[0], p->in[1], bias, 1e-5);
}

static alibi_status run_norm_backward(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct tensor dbias = p->kind & 1 ? out[2] : tensor_none();
    const struct tensor *in = p->in;

    if (p->kind & 2)
        return dev->ops->rmsnorm_backward(dev, out[0], out[1], dbias, in[2], in[0], in[1], in[3]);
    return dev->ops->layernorm_backward(dev, out[0], out[1], dbias, in[2], in[0], in[1], in[4], in[3]);
}

/* kind: 1 with bias, 2 RMS norm */
static void check_norm(int64_t rows, int64_t C, int kind)
{
    struct problem forward = { .operation = kind & 2 ? "rmsnorm_forward" : "layernorm_forward", .kind = kind, .limit = 2e-6 };
    struct problem backward = { .operation = kind & 2 ? "rmsnorm_backward" : "layernorm_backward", .kind = kind, .limit = 2e-6 };

    input(&forward, f32_2(rows, C));
    input(&forward, f32_1(C));
    input(&forward, f32_1(C));
    output(&forward, f32_2(rows, C));
    output(&forward, f32_1(rows));
    if (!(kind & 2))
        output(&forward, f32_1(rows));
    forward.run = run_norm_forward;
    input(&backward, f32_2(rows, C));
    input(&backward, f32_1(C));
    input(&backward, f32_2(rows, C));
    input(&backward, f32_1(rows));
    input(&backward, f32_1(rows));
    accumulated(&backward, f32_2(rows, C));
    accumulated(&backward, f32_1(C));
    accumulated(&backward, f32_1(C));
    backward.run = run_norm_backward;
    snprintf(forward.shape, sizeof forward.shape, "rows=%d C=%d%s", (int)rows, (int)C, kind & 1 ? " bias" : "");
    memcpy(backward.shape, forward.shape, sizeof forward.shape);
    check(&forward);
    check(&backward);
}

static void norms_equal_the_reference(void **state)
{
    static const int64_t shapes[][2] = { { 0, 4 }, { 3, 1 }, { 2, 7 }, { 17, 16 }, { 5, 33 }, { 90, 401 }, { 700, 64 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 4; kind++)
            check_norm(shapes[i][0], shapes[i][1], kind);
}

/* ---- activations */

static alibi_status run_activation_forward(struct device *dev, const struct problem *p, struct tensor *out)
{
    return dev->ops->activation_forward(dev, p->kind, out[0], p->in[0]);
}

static alibi_status run_activation_backward(struct device *dev, const struct problem *p, struct tensor *out)
{
    return dev->ops->activation_backward(dev, p->kind, out[0], p->in[0], p->in[1]);
}

/* The gradient in place of the input. */
static alibi_status run_activation_in_place(struct device *dev, const struct problem *p, struct tensor *out)
{
    return dev->ops->activation_backward(dev, p->kind, out[0], p->in[0], out[0]);
}

static void check_activation(int64_t rows, int64_t F, int kind)
{
    static const char *const names[] = { "gelu tanh", "gelu erf", "relu", "swiglu" };
    int64_t width = kind == ALIBI_SWIGLU ? 2 * F : F;
    struct problem p[] = {
        { .operation = "activation_forward", .run = run_activation_forward },
        { .operation = "activation_backward", .run = run_activation_backward },
        { .operation = "activation_backward in place", .run = run_activation_in_place },
    };

    for (int i = 0; i < 3; i++) {
        p[i].kind = kind;
        p[i].limit = 1e-6;
        snprintf(p[i].shape, sizeof p[i].shape, "rows=%d F=%d %s", (int)rows, (int)F, names[kind]);
    }
    input(&p[0], f32_2(rows, width));
    output(&p[0], f32_2(rows, F));
    input(&p[1], f32_2(rows, F));
    input(&p[1], f32_2(rows, width));
    output(&p[1], f32_2(rows, width));
    input(&p[2], f32_2(rows, F));
    accumulated(&p[2], f32_2(rows, width));
    for (int i = 0; i < 3; i++)
        check(&p[i]);
}

static void activations_equal_the_reference(void **state)
{
    static const int64_t shapes[][2] = { { 0, 3 }, { 1, 1 }, { 3, 5 }, { 2, 64 }, { 13, 4097 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++)
            check_activation(shapes[i][0], shapes[i][1], kind);
}

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
            assert_ok(ops.activation_forward(&dev, kind, tensor_2(y, DTYPE_F32, 1, COUNT), tensor_2(x, DTYPE_F32, 1, COUNT)));
            for (int i = 0; i < COUNT; i++) {
                double expected = accurate_gelu(kind, (double)x[i]);
                assert_true(isfinite(y[i])); /* fmax passes over NaN */
                if (expected != 0.0)
                    error = fmax(error, fabs((double)y[i] / expected - 1.0));
            }
            printf("gelu %d %s f32 -4..4  relative error %.1e  limit 2.0e-06\n", kind, cpu_set_name(s), error);
            assert_true(error <= 2e-6);
        }
}

/* ---- residual and dropout */

static alibi_status run_residual(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct dropout drop = { .p = (double)p->kind / 100.0, .seed = 0x123456789ull, .stream = RANDOM_STREAM(RANDOM_DROPOUT, 3) };

    TRY_RETURN(dev->ops->residual_forward(dev, out[0], p->in[0], p->in[1], drop));
    TRY_RETURN(dev->ops->residual_forward(dev, out[1], out[1], p->in[1], drop));
    return dev->ops->dropout(dev, out[2], p->in[0], drop);
}

static void residual_and_dropout_equal_the_reference(void **state)
{
    static const int64_t counts[] = { 0, 1, 3, 17, 4095, 4097, 40001 };

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int percent = 0; percent <= 60; percent += 30) {
            struct problem p = { .operation = "residual, dropout", .kind = percent, .limit = 2e-7, .run = run_residual };
            snprintf(p.shape, sizeof p.shape, "count=%d p=0.%d", (int)counts[i], percent);
            input(&p, f32_1(counts[i]));
            input(&p, f32_1(counts[i]));
            output(&p, f32_1(counts[i]));
            accumulated(&p, f32_1(counts[i])); /* y is x */
            output(&p, f32_1(counts[i]));
            check(&p);
        }
}

/* ---- memory, rotary */

static alibi_status run_memory(struct device *dev, const struct problem *p, struct tensor *out)
{
    const int64_t *n = p->n;
    struct tensor src = tensor_heads(p->in[0], n[0], n[1], 2, n[2], n[3]);

    TRY_RETURN(dev->ops->fill(dev, out[1], 0.1));
    return dev->ops->copy(dev, tensor_heads(out[0], n[0], n[1], 0, n[2], n[3]), src);
}

static alibi_status run_rotary(struct device *dev, const struct problem *p, struct tensor *out)
{
    const int64_t *n = p->n;
    struct tensor x = tensor_heads(out[0], n[0], n[1], 0, n[2], n[3]);

    return dev->ops->rotary(dev, x, p->in[0], 2, p->kind & 1 ? ALIBI_ROTARY_PAIRS : ALIBI_ROTARY_HALVES, p->kind & 2 ? -1 : 1);
}

static const int64_t head_shapes[][4] = { { 0, 3, 1, 2 }, { 1, 1, 1, 2 }, { 2, 5, 3, 6 }, { 3, 33, 2, 34 }, { 2, 70, 5, 64 } };

static void fill_and_copy_equal_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof head_shapes / sizeof *head_shapes; i++) {
        const int64_t *n = head_shapes[i];
        struct problem p = { .operation = "fill, copy", .n = { n[0], n[1], n[2], n[3] }, .run = run_memory };
        snprintf(p.shape, sizeof p.shape, "B=%d L=%d H=%d D=%d", (int)n[0], (int)n[1], (int)n[2], (int)n[3]);
        input(&p, f32_2(n[0] * n[1], n[2] * n[3] + 9));
        output_rows(&p, n[0] * n[1], n[2] * n[3], 3);
        output(&p, f32_1(n[0] * n[1] * n[2] * n[3]));
        check(&p);
    }
}

static void rotary_equals_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof head_shapes / sizeof *head_shapes; i++)
        for (int kind = 0; kind < 4; kind++) {
            const int64_t *n = head_shapes[i];
            struct problem p = { .operation = "rotary", .n = { n[0], n[1], n[2], n[3] }, .kind = kind, .limit = 3e-7 };
            snprintf(p.shape, sizeof p.shape, "B=%d L=%d H=%d D=%d %s%s", (int)n[0], (int)n[1], (int)n[2], (int)n[3],
                     kind & 1 ? "pairs" : "halves", kind & 2 ? " back" : "");
            input(&p, f32_2(n[1] + 2, n[3]));
            accumulated(&p, f32_2(n[0] * n[1], n[2] * n[3] + 4));
            p.run = run_rotary;
            check(&p);
        }
}

/* ---- cross-entropy */

static alibi_status run_cross_entropy(struct device *dev, const struct problem *p, struct tensor *out)
{
    TRY_RETURN(dev->ops->cross_entropy(dev, out[0], tensor_none(), p->in[0], p->in[1], 0.25));
    TRY_RETURN(dev->ops->cross_entropy(dev, out[1], out[2], p->in[0], p->in[1], 0.25));
    return dev->ops->cross_entropy(dev, out[1], out[3], out[3], p->in[1], 0.25);
}

static void cross_entropy_equals_the_reference(void **state)
{
    static const int64_t shapes[][2] = { { 0, 5 }, { 1, 1 }, { 4, 3 }, { 7, 257 }, { 5, 2049 }, { 3, 50257 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t rows = shapes[i][0], V = shapes[i][1];
        struct problem p = { .operation = "cross_entropy", .limit = 5e-7, .run = run_cross_entropy };
        snprintf(p.shape, sizeof p.shape, "rows=%d V=%d", (int)rows, (int)V);
        struct tensor *logits = input(&p, f32_2(rows, V)), *targets = tokens_input(&p, rows, V);
        for (int64_t n = 0; n < rows * V; n++)
            set(*logits, n, 60.0 * get(*logits, n)); /* beyond what exp can take */
        if (rows > 2)
            set(*targets, 1, -1.0);
        output(&p, f32_1(rows));
        output(&p, f32_1(rows));
        output(&p, f32_2(rows, V));
        accumulated(&p, f32_2(rows, V));
        check(&p);
    }
}

/* ---- optimizers and sums */

static alibi_status run_adamw(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct adamw a = { 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3 };

    return dev->ops->adamw(dev, out[0], out[1], out[2], p->in[0], a);
}

static alibi_status run_nesterov(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct nesterov n = { 0.02, 0.019, 0.99, 0.1, 0.5 };

    return dev->ops->nesterov(dev, out[0], out[1], p->in[0], n);
}

static alibi_status run_sums(struct device *dev, const struct problem *p, struct tensor *out)
{
    TRY_RETURN(dev->ops->sum_squares(dev, (double *)out[0].data, p->in[0]));
    return dev->ops->sum(dev, (double *)out[0].data + 1, p->in[0]);
}

static void optimizers_and_sums_equal_the_reference(void **state)
{
    static const int64_t counts[] = { 0, 1, 15, 4096, 4097, 50021, 1100003 };

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct problem p[] = { { .operation = "adamw", .limit = 3e-7, .run = run_adamw },
                               { .operation = "nesterov", .limit = 3e-7, .run = run_nesterov },
                               { .operation = "sums", .limit = 1e-12, .run = run_sums } };
        for (int k = 0; k < 3; k++) {
            snprintf(p[k].shape, sizeof p[k].shape, "count=%d", (int)counts[i]);
            input(&p[k], f32_1(counts[i]));
            for (int n = 0; k < 2 && n < 3 - k; n++) {
                struct tensor *t = accumulated(&p[k], f32_1(counts[i]));
                for (int64_t at = 0; n == 2 && at < counts[i]; at++)
                    set(*t, at, fabs(get(*t, at))); /* a mean of squares */
            }
            if (k == 2)
                output(&p[k], tensor_1(NULL, DTYPE_F64, 2));
            check(&p[k]);
        }
    }
}

/* ---- what else holds */

/* One NaN in the input of each operation that could lose it in a comparison. */
static void a_nan_is_never_hidden(void **state)
{
    struct ops ops;
    struct device dev = { .ops = &ops };

    (void)state;
    for (int s = 0; cpu_set_name(s); s++) {
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++) {
            float x[40] = { [3] = NAN }, y[40], dy[20] = { [3] = 1.0f };
            int64_t width = kind == ALIBI_SWIGLU ? 40 : 20;
            struct tensor in = tensor_2(x, DTYPE_F32, 1, width), out = tensor_2(y, DTYPE_F32, 1, 20);
            assert_ok(ops.activation_forward(&dev, kind, out, in));
            assert_true(isnan(y[3]));
            out = tensor_2(y, DTYPE_F32, 1, width);
            assert_ok(ops.activation_backward(&dev, kind, out, tensor_2(dy, DTYPE_F32, 1, 20), in));
            assert_true(isnan(y[3]));
        }
        float logits[37] = { [36] = NAN }, nll[1] = { 0 };
        int32_t target[1] = { 0 };
        assert_ok(ops.cross_entropy(&dev, tensor_1(nll, DTYPE_F32, 1), tensor_none(), tensor_2(logits, DTYPE_F32, 1, 37),
                                    tensor_1(target, DTYPE_I32, 1), 1.0));
        assert_true(isnan(nll[0]));
    }
}

/* ---- the environment */

static void a_cpu_that_openblas_does_not_know_gets_the_kernels_it_can_run(void **state)
{
    (void)state;
    assert_string_equal(blas_kernels_for("Prescott", "avx512"), "SkylakeX");
    assert_string_equal(blas_kernels_for("Prescott", "avx2"), "Haswell");
    assert_null(blas_kernels_for("Prescott", "plain"));
    assert_null(blas_kernels_for("Zen", "avx2"));
}

static void the_environment_is_set_once_and_a_choice_of_the_users_stays(void **state)
{
    (void)state;
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    assert_true(alibi_set_environment());
    assert_string_equal(getenv("OMP_WAIT_POLICY"), "passive");
    assert_false(alibi_set_environment());
    setenv("OMP_WAIT_POLICY", "active", 1);
    assert_false(alibi_set_environment());
    assert_string_equal(getenv("OMP_WAIT_POLICY"), "active");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cpu_that_openblas_does_not_know_gets_the_kernels_it_can_run),
        cmocka_unit_test(the_environment_is_set_once_and_a_choice_of_the_users_stays),
        cmocka_unit_test(the_environment_lowers_the_choice),
        cmocka_unit_test(linear_equals_the_reference),
        cmocka_unit_test(a_product_beyond_cblas_is_refused),
        cmocka_unit_test(embedding_equals_the_reference),
        cmocka_unit_test(norms_equal_the_reference),
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(gelu_keeps_its_digits_where_it_is_small),
        cmocka_unit_test(residual_and_dropout_equal_the_reference),
        cmocka_unit_test(fill_and_copy_equal_the_reference),
        cmocka_unit_test(rotary_equals_the_reference),
        cmocka_unit_test(cross_entropy_equals_the_reference),
        cmocka_unit_test(optimizers_and_sums_equal_the_reference),
        cmocka_unit_test(a_nan_is_never_hidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
