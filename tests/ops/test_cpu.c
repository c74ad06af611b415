/* test_cpu.c - the CPU backend against the reference, all operations but attention */
#include "ops/calls.h"
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

static struct tensor present_if(bool present, struct tensor t)
{
    return present ? t : tensor_none();
}

static alibi_status run_linear_forward(struct device *dev, const struct problem *p,
                                       struct tensor *out)
{
    return dev->ops->linear_forward(dev,
                                    &(struct linear_args){ .y = out[0],
                                                           .x = p->in[0],
                                                           .weight = p->in[1],
                                                           .bias = present_if(p->kind, p->in[2]) });
}

enum { WANT_DX = 1, WANT_DWEIGHT = 2, WANT_DBIAS = 4 };

/* Without dweight nobody looks at x. */
static alibi_status run_linear_backward(struct device *dev, const struct problem *p,
                                        struct tensor *out)
{
    struct tensor dx = present_if(p->kind & WANT_DX, out[0]),
                  dweight = present_if(p->kind & WANT_DWEIGHT, out[1]);
    struct tensor dbias = present_if(p->kind & WANT_DBIAS, out[2]),
                  x = present_if(p->kind & WANT_DWEIGHT, p->in[0]);

    return dev->ops->linear_backward(dev, &(struct linear_args){ .dx = dx,
                                                                 .dweight = dweight,
                                                                 .dbias = dbias,
                                                                 .dy = p->in[2],
                                                                 .x = x,
                                                                 .weight = p->in[1] });
}

static void check_linear_forward(int64_t rows, int64_t in, int64_t out, bool bias)
{
    struct problem p = {
        .operation = "linear_forward", .kind = bias, .limit = 1e-6, .through_blas = true
    };

    snprintf(p.shape, sizeof p.shape, "rows=%d in=%d out=%d%s", (int)rows, (int)in, (int)out,
             bias ? " bias" : "");
    input(&p, f32_2(rows, in));
    input(&p, f32_2(out, in));
    input(&p, f32_1(out));
    output(&p, f32_2(rows, out));
    p.run = run_linear_forward;
    check(&p);
}

static void check_linear_backward(int64_t rows, int64_t in, int64_t out, int kind)
{
    struct problem p = {
        .operation = "linear_backward", .kind = kind, .limit = 1e-6, .through_blas = true
    };

    snprintf(p.shape, sizeof p.shape, "rows=%d in=%d out=%d%s%s%s", (int)rows, (int)in, (int)out,
             kind & WANT_DX ? " dx" : "", kind & WANT_DWEIGHT ? " dweight" : "",
             kind & WANT_DBIAS ? " dbias" : "");
    input(&p, f32_2(rows, in));
    input(&p, f32_2(out, in));
    input(&p, f32_2(rows, out));
    output(&p, f32_2(kind & WANT_DX ? rows : 0, in));
    accumulated(&p, f32_2(out, in));
    accumulated(&p, f32_1(out));
    p.run = run_linear_backward;
    check(&p);
}

static void linear_equals_the_reference(void **state)
{
    static const int64_t shapes[][3] = { { 1, 1, 1 },     { 1, 96, 67 },  { 2, 3, 5 },
                                         { 7, 65, 129 },  { 64, 64, 64 }, { 130, 33, 17 },
                                         { 0, 8, 8 },     { 5, 0, 3 },    { 5, 3, 0 },
                                         { 600, 20, 150 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *n = shapes[i];
        for (int bias = 0; bias < 2; bias++)
            check_linear_forward(n[0], n[1], n[2], bias);
        for (int kind = 0; kind <= (WANT_DX | WANT_DWEIGHT | WANT_DBIAS); kind++)
            check_linear_backward(n[0], n[1], n[2], kind);
    }
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

/* ---- embedding */

static alibi_status run_embedding_forward(struct device *dev, const struct problem *p,
                                          struct tensor *out)
{
    struct tensor table = present_if(p->kind, p->in[2]);

    return dev->ops->embedding_forward(dev, &(struct embedding_args){ .y = out[0],
                                                                      .tokens = p->in[0],
                                                                      .weight = p->in[1],
                                                                      .table = table,
                                                                      .start = p->n[4],
                                                                      .scale = 1.25 });
}

static alibi_status run_embedding_backward(struct device *dev, const struct problem *p,
                                           struct tensor *out)
{
    struct tensor dtable = present_if(p->kind, out[1]);

    return dev->ops->embedding_backward(dev, &(struct embedding_args){ .dweight = out[0],
                                                                       .dtable = dtable,
                                                                       .dy = p->in[1],
                                                                       .tokens = p->in[0],
                                                                       .start = p->n[4],
                                                                       .scale = 1.25 });
}

static void check_embedding(int64_t B, int64_t L, int64_t C, int64_t V, bool positions)
{
    enum { START = 3 };
    struct problem forward = { .operation = "embedding_forward",
                               .kind = positions,
                               .n = { B, L, C, V, START },
                               .limit = 2e-7 };
    struct problem backward = { .operation = "embedding_backward",
                                .kind = positions,
                                .n = { B, L, C, V, START },
                                .limit = 1e-6 };

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
    snprintf(forward.shape, sizeof forward.shape, "B=%d L=%d C=%d V=%d%s", (int)B, (int)L, (int)C,
             (int)V, positions ? " positions" : "");
    memcpy(backward.shape, forward.shape, sizeof forward.shape);
    check(&forward);
    check(&backward);
}

static void embedding_equals_the_reference(void **state)
{
    static const int64_t shapes[][4] = {
        { 1, 1, 1, 1 }, { 2, 7, 5, 3 }, { 3, 50, 65, 11 }, { 2, 70, 400, 257 }, { 2, 0, 4, 4 }
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int positions = 0; positions < 2; positions++)
            check_embedding(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], positions);
}

/* ---- norms */

/* kind of a norm */
enum { BIAS = 1, RMS = 2, BRANCH = 4, SUM_IS_X = 8, AGAIN = 4 /* backward: y too */ };

static struct dropout dropout_of(int64_t percent)
{
    return (struct dropout){ .p = (double)percent / 100.0,
                             .seed = 0x123456789ull,
                             .stream = RANDOM_STREAM(RANDOM_DROPOUT, 3) };
}

static alibi_status run_norm_forward(struct device *dev, const struct problem *p,
                                     struct tensor *out)
{
    struct tensor bias = present_if(p->kind & BIAS, p->in[2]),
                  branch = present_if(p->kind & BRANCH, p->in[3]);
    struct tensor sum = present_if(p->kind & BRANCH, out[3]),
                  x = p->kind & SUM_IS_X ? out[3] : p->in[0];
    struct dropout drop = dropout_of(p->n[0]);

    if (p->kind & RMS)
        return dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                                .y = out[0],
                                                                .rstd = out[1],
                                                                .sum = sum,
                                                                .x = x,
                                                                .branch = branch,
                                                                .dropout = drop,
                                                                .weight = p->in[1],
                                                                .bias = bias,
                                                                .eps = 1e-5 });
    return dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                            .y = out[0],
                                                            .mean = out[2],
                                                            .rstd = out[1],
                                                            .sum = sum,
                                                            .x = x,
                                                            .branch = branch,
                                                            .dropout = drop,
                                                            .weight = p->in[1],
                                                            .bias = bias,
                                                            .eps = 1e-5 });
}

static alibi_status run_norm_backward(struct device *dev, const struct problem *p,
                                      struct tensor *out)
{
    struct tensor dbias = present_if(p->kind & BIAS, out[2]),
                  bias = present_if(p->kind & BIAS, p->in[5]);
    struct tensor y = present_if(p->kind & AGAIN, out[3]);
    const struct tensor *in = p->in;

    if (p->kind & RMS)
        return dev->ops->norm_backward(dev, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                                 .dx = out[0],
                                                                 .dweight = out[1],
                                                                 .dbias = dbias,
                                                                 .y = y,
                                                                 .dy = in[2],
                                                                 .x = in[0],
                                                                 .weight = in[1],
                                                                 .bias = bias,
                                                                 .rstd = in[3] });
    return dev->ops->norm_backward(dev, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                             .dx = out[0],
                                                             .dweight = out[1],
                                                             .dbias = dbias,
                                                             .y = y,
                                                             .dy = in[2],
                                                             .x = in[0],
                                                             .weight = in[1],
                                                             .bias = bias,
                                                             .mean = in[4],
                                                             .rstd = in[3] });
}

static void check_norm_forward(int64_t rows, int64_t C, int kind, int percent)
{
    struct problem p = { .operation = kind & RMS ? "rmsnorm_forward" : "layernorm_forward",
                         .kind = kind,
                         .n = { percent } };

    snprintf(p.shape, sizeof p.shape, "rows=%d C=%d%s%s%s p=0.%02d", (int)rows, (int)C,
             kind & BIAS ? " bias" : "", kind & BRANCH ? " branch" : "",
             kind & SUM_IS_X ? " sum is x" : "", percent);
    input(&p, f32_2(rows, C));
    input(&p, f32_1(C));
    input(&p, f32_1(C));
    input(&p, f32_2(rows, C));
    output(&p, f32_2(rows, C));
    output(&p, f32_1(rows));
    output(&p, f32_1(kind & RMS ? 0 : rows));
    if (kind & SUM_IS_X)
        accumulated(&p, f32_2(rows, C));
    else
        output(&p, f32_2(kind & BRANCH ? rows : 0, C));
    p.limit = 2e-6;
    p.run = run_norm_forward;
    check(&p);
}

static void check_norm_backward(int64_t rows, int64_t C, int kind)
{
    struct problem p = { .operation = kind & RMS ? "rmsnorm_backward" : "layernorm_backward",
                         .kind = kind,
                         .limit = 2e-6 };

    snprintf(p.shape, sizeof p.shape, "rows=%d C=%d%s%s", (int)rows, (int)C,
             kind & BIAS ? " bias" : "", kind & AGAIN ? " y" : "");
    input(&p, f32_2(rows, C));
    input(&p, f32_1(C));
    input(&p, f32_2(rows, C));
    input(&p, f32_1(rows));
    input(&p, f32_1(rows));
    input(&p, f32_1(C));
    accumulated(&p, f32_2(rows, C));
    accumulated(&p, f32_1(C));
    accumulated(&p, f32_1(C));
    output(&p, f32_2(kind & AGAIN ? rows : 0, C));
    p.run = run_norm_backward;
    check(&p);
}

static const int64_t norm_shapes[][2] = { { 0, 4 },  { 3, 1 },    { 2, 7 },    { 17, 16 },
                                          { 5, 33 }, { 90, 401 }, { 700, 64 }, { 3, 4101 } };

static void norms_equal_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof norm_shapes / sizeof *norm_shapes; i++) {
        int64_t rows = norm_shapes[i][0], C = norm_shapes[i][1];
        for (int kind = 0; kind <= (BIAS | RMS); kind++)
            check_norm_forward(rows, C, kind, 0);
        for (int kind = BRANCH; kind <= (BIAS | RMS | BRANCH); kind++)
            for (int percent = 0; percent <= 30; percent += 30) {
                check_norm_forward(rows, C, kind, percent);
                check_norm_forward(rows, C, kind | SUM_IS_X, percent);
            }
        for (int kind = 0; kind <= (BIAS | RMS | AGAIN); kind++)
            check_norm_backward(rows, C, kind);
    }
}

/* ---- the bits of norms */

enum { X, ADDED, WEIGHT, SHIFT };                               /* given */
enum { SUM = SHIFT + 1, Y, MEAN, RSTD };                        /* at once */
enum { SUM_APART = RSTD + 1, Y_APART, MEAN_APART, RSTD_APART }; /* in two steps */
enum { DX = RSTD_APART + 1, DWEIGHT, DBIAS, Y_AGAIN, NORM_TENSORS };

static void rmsnorm_thrice(struct device *dev, const struct tensor *t, struct dropout drop)
{
    assert_ok(dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                               .y = t[Y],
                                                               .rstd = t[RSTD],
                                                               .sum = t[SUM],
                                                               .x = t[X],
                                                               .branch = t[ADDED],
                                                               .dropout = drop,
                                                               .weight = t[WEIGHT],
                                                               .bias = t[SHIFT],
                                                               .eps = 1e-5 }));
    assert_ok(dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                               .y = t[Y_APART],
                                                               .rstd = t[RSTD_APART],
                                                               .x = t[SUM_APART],
                                                               .dropout = drop,
                                                               .weight = t[WEIGHT],
                                                               .bias = t[SHIFT],
                                                               .eps = 1e-5 }));
    assert_ok(dev->ops->norm_backward(dev, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                                .dx = t[DX],
                                                                .dweight = t[DWEIGHT],
                                                                .dbias = t[DBIAS],
                                                                .y = t[Y_AGAIN],
                                                                .dy = t[X],
                                                                .x = t[SUM],
                                                                .weight = t[WEIGHT],
                                                                .bias = t[SHIFT],
                                                                .rstd = t[RSTD] }));
}

static void layernorm_thrice(struct device *dev, const struct tensor *t, struct dropout drop)
{
    assert_ok(dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                               .y = t[Y],
                                                               .mean = t[MEAN],
                                                               .rstd = t[RSTD],
                                                               .sum = t[SUM],
                                                               .x = t[X],
                                                               .branch = t[ADDED],
                                                               .dropout = drop,
                                                               .weight = t[WEIGHT],
                                                               .bias = t[SHIFT],
                                                               .eps = 1e-5 }));
    assert_ok(dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                               .y = t[Y_APART],
                                                               .mean = t[MEAN_APART],
                                                               .rstd = t[RSTD_APART],
                                                               .x = t[SUM_APART],
                                                               .dropout = drop,
                                                               .weight = t[WEIGHT],
                                                               .bias = t[SHIFT],
                                                               .eps = 1e-5 }));
    assert_ok(dev->ops->norm_backward(dev, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                                .dx = t[DX],
                                                                .dweight = t[DWEIGHT],
                                                                .dbias = t[DBIAS],
                                                                .y = t[Y_AGAIN],
                                                                .dy = t[X],
                                                                .x = t[SUM],
                                                                .weight = t[WEIGHT],
                                                                .bias = t[SHIFT],
                                                                .mean = t[MEAN],
                                                                .rstd = t[RSTD] }));
}

static void assert_same_bits(struct tensor a, struct tensor b)
{
    assert_true(memcmp(a.data, b.data, (size_t)stored(a) * dtype_bytes(a.type)) == 0);
}

static void check_norm_bits(const struct ops *ops, enum dtype type, int64_t rows, int64_t C,
                            bool rms, int percent)
{
    struct device dev = { .ops = ops };
    struct tensor matrix = tensor_2(NULL, type, rows, C), row = tensor_1(NULL, dtype_sums(type), C);
    struct tensor column = tensor_1(NULL, dtype_sums(type), rows);
    struct tensor shapes[] = { matrix, matrix, row,    row,    matrix, matrix, column, column,
                               matrix, matrix, column, column, matrix, row,    row,    matrix };
    struct tensor t[NORM_TENSORS];

    for (int i = 0; i < NORM_TENSORS; i++)
        t[i] = random_tensor(shapes[i], (uint64_t)i);
    assert_ok(ops->residual_forward(&dev, t[SUM_APART], t[X], t[ADDED], dropout_of(percent)));
    (rms ? rmsnorm_thrice : layernorm_thrice)(&dev, t, dropout_of(percent));
    assert_same_bits(t[SUM], t[SUM_APART]);
    if (!rms)
        assert_same_bits(t[MEAN], t[MEAN_APART]);
    assert_same_bits(t[RSTD], t[RSTD_APART]);
    assert_same_bits(t[Y], t[Y_APART]);
    assert_same_bits(t[Y], t[Y_AGAIN]);
    for (int i = 0; i < NORM_TENSORS; i++)
        mem_free(t[i].data);
}

/* Forward at once, in two steps, and what backward says it was. */
static void a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass(
    void **state)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_F64, DTYPE_BF16 };

    (void)state;
    for (int s = -1; s < 0 || cpu_set_name(s); s++)
        for (size_t i = 0; i < sizeof norm_shapes / sizeof *norm_shapes; i++)
            for (int kind = 0; kind < 12; kind++) {
                struct ops ops = ops_ref;
                assert_true(s < 0 || cpu_ops_for_set(&ops, cpu_set_name(s)));
                check_norm_bits(&ops, types[kind / 4], norm_shapes[i][0], norm_shapes[i][1],
                                kind & 1, kind & 2 ? 30 : 0);
            }
}

/* ---- activations */

static alibi_status run_activation_forward(struct device *dev, const struct problem *p,
                                           struct tensor *out)
{
    return dev->ops->activation_forward(dev, p->kind, out[0], p->in[0]);
}

static alibi_status run_activation_backward(struct device *dev, const struct problem *p,
                                            struct tensor *out)
{
    return dev->ops->activation_backward(dev, p->kind, out[0], p->in[0], p->in[1]);
}

/* The gradient in place of the input. */
static alibi_status run_activation_in_place(struct device *dev, const struct problem *p,
                                            struct tensor *out)
{
    return dev->ops->activation_backward(dev, p->kind, out[0], p->in[0], out[0]);
}

/* The gradient in place of the output's. */
static alibi_status run_activation_onto_dy(struct device *dev, const struct problem *p,
                                           struct tensor *out)
{
    return dev->ops->activation_backward(dev, p->kind, out[0], out[0], p->in[0]);
}

static const char *const activation_names[] = { "gelu tanh", "gelu erf", "relu", "swiglu" };

static void check_activation(int64_t rows, int64_t F, int kind)
{
    int64_t width = kind == ALIBI_SWIGLU ? 2 * F : F;
    struct problem p[] = {
        { .operation = "activation_forward", .run = run_activation_forward },
        { .operation = "activation_backward", .run = run_activation_backward },
        { .operation = "activation_backward in place", .run = run_activation_in_place },
        { .operation = "activation_backward onto dy", .run = run_activation_onto_dy },
    };
    int problems = kind == ALIBI_SWIGLU ? 3 : 4;

    for (int i = 0; i < problems; i++) {
        p[i].kind = kind;
        p[i].limit = 1e-6;
        snprintf(p[i].shape, sizeof p[i].shape, "rows=%d F=%d %s", (int)rows, (int)F,
                 activation_names[kind]);
    }
    input(&p[0], f32_2(rows, width));
    output(&p[0], f32_2(rows, F));
    input(&p[1], f32_2(rows, F));
    input(&p[1], f32_2(rows, width));
    output(&p[1], f32_2(rows, width));
    input(&p[2], f32_2(rows, F));
    accumulated(&p[2], f32_2(rows, width));
    if (problems > 3) {
        input(&p[3], f32_2(rows, F));
        accumulated(&p[3], f32_2(rows, F));
    }
    for (int i = 0; i < problems; i++)
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

/* ---- a linear layer with its activation. n: where dup goes, whether its sums are wanted */

enum { APART, OVER_UP, OVER_SCRATCH };

static alibi_status run_linear_activation_forward(struct device *dev, const struct problem *p,
                                                  struct tensor *out)
{
    struct tensor bias = present_if(p->n[0], p->in[2]);

    return dev->ops->linear_activation_forward(
        dev, &(struct linear_activation_args){ .kind = p->kind,
                                               .activated = out[0],
                                               .up = out[1],
                                               .x = p->in[0],
                                               .weight = p->in[1],
                                               .bias = bias });
}

/* dy, activated, weight, up give dweight, dbias, dup_sums, dup, scratch. */
static alibi_status run_linear_activation_backward(struct device *dev, const struct problem *p,
                                                   struct tensor *out)
{
    const struct tensor *in = p->in;
    struct tensor up = p->n[0] == OVER_UP ? out[3] : in[3],
                  scratch = p->n[0] == OVER_SCRATCH ? out[3] : out[4];
    struct tensor sums = present_if(p->n[1], out[2]);

    return dev->ops->linear_activation_backward(
        dev, &(struct linear_activation_args){ .kind = p->kind,
                                               .dup = out[3],
                                               .dup_sums = sums,
                                               .scratch = scratch,
                                               .dweight = out[0],
                                               .dbias = out[1],
                                               .dy = in[0],
                                               .activated = in[1],
                                               .weight = in[2],
                                               .up = up });
}

static void check_linear_activation_forward(int64_t rows, int64_t C, int64_t F, int kind, bool bias)
{
    struct problem p = {
        .operation = "linear_activation_forward", .kind = kind, .n = { bias }, .limit = 2e-6
    };
    int64_t width = kind == ALIBI_SWIGLU ? 2 * F : F;

    snprintf(p.shape, sizeof p.shape, "rows=%d C=%d F=%d %s%s", (int)rows, (int)C, (int)F,
             activation_names[kind], bias ? " bias" : "");
    input(&p, f32_2(rows, C));
    input(&p, f32_2(width, C));
    input(&p, f32_1(width));
    output(&p, f32_2(rows, F));
    output(&p, f32_2(rows, width));
    p.through_blas = true;
    p.run = run_linear_activation_forward;
    check(&p);
}

static void check_linear_activation_backward(int64_t rows, int64_t C, int64_t F, int kind,
                                             int where, bool sums)
{
    static const char *const places[] = { "", " dup=up", " dup=scratch" };
    struct problem p = {
        .operation = "linear_activation_backward", .kind = kind, .n = { where, sums }, .limit = 2e-6
    };
    int64_t width = kind == ALIBI_SWIGLU ? 2 * F : F;

    snprintf(p.shape, sizeof p.shape, "rows=%d C=%d F=%d %s%s%s", (int)rows, (int)C, (int)F,
             activation_names[kind], places[where], sums ? " sums" : "");
    input(&p, f32_2(rows, C));
    input(&p, f32_2(rows, F));
    input(&p, f32_2(C, F));
    input(&p, f32_2(rows, width));
    accumulated(&p, f32_2(C, F));
    accumulated(&p, f32_1(C));
    accumulated(&p, f32_1(width));
    if (where == OVER_UP)
        accumulated(&p, f32_2(rows, width));
    else
        output(&p, f32_2(rows, width));
    if (where != OVER_SCRATCH)
        output(&p, f32_2(rows, F));
    p.through_blas = true;
    p.run = run_linear_activation_backward;
    check(&p);
}

static void linear_activation_equals_the_reference(void **state)
{
    static const int64_t shapes[][3] = {
        { 0, 3, 2 }, { 1, 1, 1 }, { 1, 96, 65 }, { 7, 33, 130 }, { 150, 20, 301 }
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++) {
            const int64_t *n = shapes[i];
            for (int bias = 0; bias < 2; bias++)
                check_linear_activation_forward(n[0], n[1], n[2], kind, bias);
            for (int where = APART; where <= (kind == ALIBI_SWIGLU ? OVER_UP : OVER_SCRATCH);
                 where++)
                for (int sums = 0; sums < 2; sums++)
                    check_linear_activation_backward(n[0], n[1], n[2], kind, where, sums);
        }
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

/* ---- residual and dropout */

static alibi_status run_residual(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct dropout drop = dropout_of(p->kind);

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
            struct problem p = { .operation = "residual, dropout",
                                 .kind = percent,
                                 .limit = 2e-7,
                                 .run = run_residual };
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

    return dev->ops->rotary(
        dev, x,
        (struct rotation){ .table = p->in[0],
                           .start = 2,
                           .layout = p->kind & 1 ? ALIBI_ROTARY_PAIRS : ALIBI_ROTARY_HALVES },
        p->kind & 2 ? -1 : 1);
}

static const int64_t head_shapes[][4] = {
    { 0, 3, 1, 2 }, { 1, 1, 1, 2 }, { 2, 5, 3, 6 }, { 3, 33, 2, 34 }, { 2, 70, 5, 64 }
};

static void fill_and_copy_equal_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof head_shapes / sizeof *head_shapes; i++) {
        const int64_t *n = head_shapes[i];
        struct problem p = { .operation = "fill, copy",
                             .n = { n[0], n[1], n[2], n[3] },
                             .run = run_memory };
        snprintf(p.shape, sizeof p.shape, "B=%d L=%d H=%d D=%d", (int)n[0], (int)n[1], (int)n[2],
                 (int)n[3]);
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
            struct problem p = {
                .operation = "rotary", .n = { n[0], n[1], n[2], n[3] }, .kind = kind, .limit = 3e-7
            };
            snprintf(p.shape, sizeof p.shape, "B=%d L=%d H=%d D=%d %s%s", (int)n[0], (int)n[1],
                     (int)n[2], (int)n[3], kind & 1 ? "pairs" : "halves", kind & 2 ? " back" : "");
            input(&p, f32_2(n[1] + 2, n[3]));
            accumulated(&p, f32_2(n[0] * n[1], n[2] * n[3] + 4));
            p.run = run_rotary;
            check(&p);
        }
}

/* ---- cross-entropy */

static alibi_status run_cross_entropy(struct device *dev, const struct problem *p,
                                      struct tensor *out)
{
    TRY_RETURN(dev->ops->cross_entropy(
        dev, &(struct cross_entropy_args){
                 .nll = out[0], .logits = p->in[0], .targets = p->in[1], .scale = 0.25 }));
    TRY_RETURN(dev->ops->cross_entropy(dev, &(struct cross_entropy_args){ .nll = out[1],
                                                                          .dlogits = out[2],
                                                                          .logits = p->in[0],
                                                                          .targets = p->in[1],
                                                                          .scale = 0.25 }));
    return dev->ops->cross_entropy(dev, &(struct cross_entropy_args){ .nll = out[1],
                                                                      .dlogits = out[3],
                                                                      .logits = out[3],
                                                                      .targets = p->in[1],
                                                                      .scale = 0.25 });
}

static void cross_entropy_equals_the_reference(void **state)
{
    static const int64_t shapes[][2] = { { 0, 5 },   { 1, 1 },    { 4, 3 },
                                         { 7, 257 }, { 5, 2049 }, { 3, 50257 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t rows = shapes[i][0], V = shapes[i][1];
        struct problem p = { .operation = "cross_entropy",
                             .limit = 5e-7,
                             .run = run_cross_entropy };
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

/* ---- optimizers and sums. Decay is so strong that an element on the wrong side of its end is
 * seen. */

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

static alibi_status run_adamw(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct adamw_args a = adamw;

    a.decaying = p->n[0];
    return adamw_of(dev, out[0], tensor_none(), out[1], out[2], p->in[0], a);
}

static alibi_status run_nesterov(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct nesterov_args n = nesterov;

    n.decaying = p->n[0];
    return nesterov_of(dev, out[0], tensor_none(), out[1], p->in[0], n);
}

static alibi_status run_sums(struct device *dev, const struct problem *p, struct tensor *out)
{
    TRY_RETURN(dev->ops->sum_squares(dev, (double *)out[0].data, p->in[0]));
    return dev->ops->sum(dev, (double *)out[0].data + 1, p->in[0]);
}

static void optimizers_and_sums_equal_the_reference(void **state)
{
    static const int64_t counts[] = { 0, 1, 15, 4096, 4097, 50021, 1100003 };
    static const int64_t decaying[] = { 0, 1, 7, 5000, 0, 41000, 500001 };

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct problem p[] = { { .operation = "adamw", .limit = 3e-7, .run = run_adamw },
                               { .operation = "nesterov", .limit = 3e-7, .run = run_nesterov },
                               { .operation = "sums", .limit = 1e-12, .run = run_sums } };
        for (int k = 0; k < 3; k++) {
            snprintf(p[k].shape, sizeof p[k].shape, "count=%d decaying=%d", (int)counts[i],
                     (int)decaying[i]);
            p[k].n[0] = decaying[i];
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
        cmocka_unit_test(
            a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass),
        cmocka_unit_test(activations_equal_the_reference),
        cmocka_unit_test(linear_activation_equals_the_reference),
        cmocka_unit_test(gelu_keeps_its_digits_where_it_is_small),
        cmocka_unit_test(residual_and_dropout_equal_the_reference),
        cmocka_unit_test(fill_and_copy_equal_the_reference),
        cmocka_unit_test(rotary_equals_the_reference),
        cmocka_unit_test(cross_entropy_equals_the_reference),
        cmocka_unit_test(optimizers_and_sums_equal_the_reference),
        cmocka_unit_test(optimizers_copy_the_new_weights_in_any_type),
        cmocka_unit_test(a_nan_is_never_hidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
