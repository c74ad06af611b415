/* test_bf16.c - bfloat16: its conversions, and every operation of the reference on it
 *
 * The reference computes in double and rounds what it stores. So an operation on BF16, with sums
 * and statistics in F32, must give what the same operation gives in F64 from the same numbers,
 * rounded once. The CPU backend has nothing of its own for BF16: it must hand the call on, and give
 * the same bits. */
#include "ops/calls.h"
#include "ops/problem.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct tensor bf16_1(int64_t a)
{
    return tensor_1(NULL, DTYPE_BF16, a);
}

static struct tensor bf16_2(int64_t a, int64_t b)
{
    return tensor_2(NULL, DTYPE_BF16, a, b);
}

static struct tensor bf16_3(int64_t a, int64_t b, int64_t c)
{
    return tensor_3(NULL, DTYPE_BF16, a, b, c);
}

/* ---- the conversions */

static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void every_bf16_survives_the_way_to_float_and_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 1u << 16; bits++) {
        float wide = bf16_to_float((uint16_t)bits);
        if (isnan(wide))
            assert_true(isnan(bf16_to_float(bf16_from_float(wide))));
        else
            assert_int_equal(bf16_from_float(wide), bits);
    }
}

static void floats_are_rounded_to_the_nearest_bf16_and_ties_to_even(void **state)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        { 0x3F800000, 0x3F80 }, /* 1 */
        { 0x3F807FFF, 0x3F80 }, /* below the middle */
        { 0x3F808000, 0x3F80 }, /* the middle: the even one is below */
        { 0x3F808001, 0x3F81 }, /* above it */
        { 0x3F818000, 0x3F82 }, /* the middle: the even one is above */
        { 0xBF818000, 0xBF82 }, /* and for negative numbers */
        { 0x3FFFFFFF, 0x4000 }, /* the carry goes into the exponent */
        { 0x7F7F7FFF, 0x7F7F }, /* the largest */
        { 0x7F7FFFFF, 0x7F80 }, /* beyond it: infinite */
        { 0xFF800000, 0xFF80 }, /* infinite */
        { 0x80000000, 0x8000 }, /* -0 */
        { 0x00018000, 0x0002 }, /* subnormal */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(bf16_from_float(float_of_bits(cases[i].from)), cases[i].to);
}

/* A NaN whose bits are all in the lower half must not become infinite, nor one of all ones 0. */
static void a_nan_stays_one(void **state)
{
    static const uint32_t nans[] = { 0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF };

    (void)state;
    for (size_t i = 0; i < COUNT(nans); i++)
        assert_true(isnan(bf16_to_float(bf16_from_float(float_of_bits(nans[i])))));
}

static void upload_rounds_and_download_widens(void **state)
{
    const float host[] = { 1.5f, -0.1f, 3e30f },
                expected[] = { 1.5f, -0.10009765625f, 0x1.2ep+101f };
    struct device dev = { .ops = &ops_ref };
    uint16_t stored_bits[3];
    float back[3];
    struct tensor t = tensor_1(stored_bits, DTYPE_BF16, 3);

    (void)state;
    assert_ok(ops_ref.upload(&dev, t, host));
    assert_ok(ops_ref.download(&dev, back, t));
    assert_memory_equal(back, expected, sizeof back);
}

/* ---- comparing */

static struct tensor widened(struct tensor t)
{
    struct tensor wide = t;

    if (t.data == NULL)
        return t;
    wide.type = t.type == DTYPE_I32 ? DTYPE_I32 : DTYPE_F64;
    wide = allocate(wide);
    for (int64_t i = 0; i < stored(t); i++)
        set(wide, i, get(t, i));
    return wide;
}

static struct problem widened_problem(const struct problem *p)
{
    struct problem wide = *p;

    for (int i = 0; i < TENSORS; i++) {
        wide.in[i] = widened(p->in[i]);
        wide.out[i] = widened(p->out[i]);
    }
    return wide;
}

/* Half of the last place, relative to the number; a little more for BF16, which a double reaches by
 * way of F32. */
static double rounding(enum dtype type)
{
    return type == DTYPE_BF16 ? 0x1.001p-8 : type == DTYPE_F32 ? 0x1p-24 : 0x1p-50;
}

/* The largest error in units of one rounding. p->limit beyond 1 is for what goes through numbers
 * that were rounded on the way: it is relative to the largest of them. */
static double roundings(const struct problem *p, struct tensor got, struct tensor exact)
{
    double unit = rounding(got.type), worst = 0.0, largest = 0.0;

    for (int64_t i = 0; i < stored(exact); i++)
        largest = fmax(largest, fabs(get(exact, i)));
    for (int64_t i = 0; i < stored(exact); i++) {
        double size = p->limit > 1.0 ? largest : fabs(get(exact, i));
        double error = fabs(get(got, i) - get(exact, i)) / (unit * size + 1e-38);
        worst = isnan(error) ? INFINITY : fmax(worst, error);
    }
    return worst;
}

static bool sets_hand_it_on(const struct problem *p, const struct solution *expected)
{
    bool same = true;

    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        struct solution got = solve(p, &ops);
        same = same && solutions_equal(p, &got, expected);
        solution_free(&got);
    }
    return same;
}

/* Solves, compares, prints and frees. */
static void check_rounded(struct problem *p)
{
    struct problem wide = widened_problem(p);
    struct solution got = solve(p, &ops_ref), exact = solve(&wide, &ops_ref);
    bool same = sets_hand_it_on(p, &got);
    double error = 0.0;

    for (int i = 0; i < p->outs; i++)
        error = fmax(error, roundings(p, got.out[i], exact.out[i]));
    printf("%s bf16 %s  error %.3f roundings  limit %.0f  %s%s\n", p->operation, p->shape, error,
           p->limit, error <= p->limit ? "ok" : "TOO FAR", same ? "" : ", CPU DIFFERS");
    solution_free(&got);
    solution_free(&exact);
    problem_free(&wide);
    problem_free(p);
    assert_true(error <= p->limit && same);
}

typedef alibi_status run_function(struct device *dev, const struct problem *p, struct tensor *out);

__attribute__((format(printf, 3, 4))) static struct problem new_problem(const char *operation,
                                                                        run_function *run,
                                                                        const char *format, ...)
{
    struct problem p = { .operation = operation, .limit = 1.0, .run = run };
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(p.shape, sizeof p.shape, format, arguments);
    va_end(arguments);
    return p;
}

/* ---- embedding */

static alibi_status run_embedding_forward(struct device *dev, const struct problem *p,
                                          struct tensor *out)
{
    return dev->ops->embedding_forward(dev, &(struct embedding_args){ .y = out[0],
                                                                      .tokens = p->in[0],
                                                                      .weight = p->in[1],
                                                                      .table = p->in[2],
                                                                      .start = 1,
                                                                      .scale = 1.25 });
}

static alibi_status run_embedding_backward(struct device *dev, const struct problem *p,
                                           struct tensor *out)
{
    return dev->ops->embedding_backward(dev, &(struct embedding_args){ .dweight = out[0],
                                                                       .dtable = out[1],
                                                                       .dy = p->in[1],
                                                                       .tokens = p->in[0],
                                                                       .start = 1,
                                                                       .scale = 1.25 });
}

static void embedding_in_bf16_is_the_exact_one_rounded(void **state)
{
    static const int shapes[][4] = { { 1, 1, 1, 1 }, { 2, 7, 5, 3 }, { 3, 20, 65, 11 } };

    (void)state;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        int B = shapes[i][0], L = shapes[i][1], C = shapes[i][2], V = shapes[i][3];
        struct problem forward = new_problem("embedding_forward", run_embedding_forward,
                                             "B=%d L=%d C=%d V=%d", B, L, C, V);
        struct problem backward = new_problem("embedding_backward", run_embedding_backward,
                                              "B=%d L=%d C=%d V=%d", B, L, C, V);
        tokens_input(&forward, B * L, V);
        input(&forward, bf16_2(V, C));
        input(&forward, f32_2(L + 1, C));
        output(&forward, bf16_3(B, L, C));
        tokens_input(&backward, B * L, V);
        input(&backward, bf16_3(B, L, C));
        accumulated(&backward, f32_2(V, C));
        accumulated(&backward, f32_2(L + 1, C));
        check_rounded(&forward);
        check_rounded(&backward);
    }
}

/* ---- linear */

static alibi_status run_linear_forward(struct device *dev, const struct problem *p,
                                       struct tensor *out)
{
    return dev->ops->linear_forward(
        dev,
        &(struct linear_args){ .y = out[0], .x = p->in[0], .weight = p->in[1], .bias = p->in[2] });
}

static alibi_status run_linear_backward(struct device *dev, const struct problem *p,
                                        struct tensor *out)
{
    return dev->ops->linear_backward(dev, &(struct linear_args){ .dx = out[0],
                                                                 .dweight = out[1],
                                                                 .dbias = out[2],
                                                                 .dy = p->in[0],
                                                                 .x = p->in[1],
                                                                 .weight = p->in[2] });
}

static void linear_in_bf16_is_the_exact_one_rounded(void **state)
{
    static const int shapes[][3] = { { 1, 1, 1 }, { 1, 33, 20 }, { 7, 65, 29 }, { 3, 0, 2 } };

    (void)state;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        int rows = shapes[i][0], in = shapes[i][1], out = shapes[i][2];
        struct problem forward = new_problem("linear_forward", run_linear_forward,
                                             "rows=%d in=%d out=%d", rows, in, out);
        struct problem backward = new_problem("linear_backward", run_linear_backward,
                                              "rows=%d in=%d out=%d", rows, in, out);
        input(&forward, bf16_2(rows, in));
        input(&forward, bf16_2(out, in));
        input(&forward, bf16_1(out));
        output(&forward, bf16_2(rows, out));
        input(&backward, bf16_2(rows, out));
        input(&backward, bf16_2(rows, in));
        input(&backward, bf16_2(out, in));
        output(&backward, bf16_2(rows, in));
        accumulated(&backward, f32_2(out, in));
        accumulated(&backward, f32_1(out));
        check_rounded(&forward);
        check_rounded(&backward);
    }
}

static alibi_status run_linear_activation_forward(struct device *dev, const struct problem *p,
                                                  struct tensor *out)
{
    return dev->ops->linear_activation_forward(
        dev, &(struct linear_activation_args){ .kind = p->kind,
                                               .activated = out[0],
                                               .up = out[1],
                                               .x = p->in[0],
                                               .weight = p->in[1],
                                               .bias = p->in[2] });
}

static alibi_status run_linear_activation_backward(struct device *dev, const struct problem *p,
                                                   struct tensor *out)
{
    const struct tensor *in = p->in;

    return dev->ops->linear_activation_backward(
        dev, &(struct linear_activation_args){ .kind = p->kind,
                                               .dup = out[0],
                                               .scratch = out[1],
                                               .dweight = out[2],
                                               .dbias = out[3],
                                               .dy = in[0],
                                               .activated = in[1],
                                               .weight = in[2],
                                               .up = in[3] });
}

/* up is rounded before the activation, and so is dy weight behind it. */
static void check_linear_activation(int rows, int C, int F, int kind)
{
    struct problem forward = new_problem("linear_activation_forward", run_linear_activation_forward,
                                         "rows=%d C=%d F=%d kind=%d", rows, C, F, kind);
    struct problem backward =
        new_problem("linear_activation_backward", run_linear_activation_backward,
                    "rows=%d C=%d F=%d kind=%d", rows, C, F, kind);
    int width = kind == ALIBI_SWIGLU ? 2 * F : F;

    forward.kind = backward.kind = kind;
    forward.limit = backward.limit = 2.0;
    input(&forward, bf16_2(rows, C));
    input(&forward, bf16_2(width, C));
    input(&forward, bf16_1(width));
    output(&forward, bf16_2(rows, F));
    output(&forward, bf16_2(rows, width));
    input(&backward, bf16_2(rows, C));
    input(&backward, bf16_2(rows, F));
    input(&backward, bf16_2(C, F));
    input(&backward, bf16_2(rows, width));
    output(&backward, bf16_2(rows, width));
    output(&backward, bf16_2(rows, F));
    accumulated(&backward, f32_2(C, F));
    accumulated(&backward, f32_1(C));
    check_rounded(&forward);
    check_rounded(&backward);
}

/* Whatever dup was rounded to. */
static void sums_of_dup_in_bf16_are_of_what_is_stored(void **state)
{
    enum { ROWS = 9, C = 16, F = 37 };
    struct tensor dy = random_tensor(bf16_2(ROWS, C), 1),
                  activated = random_tensor(bf16_2(ROWS, F), 2);
    struct tensor weight = random_tensor(bf16_2(C, F), 3), up = random_tensor(bf16_2(ROWS, F), 4);
    struct tensor dup = allocate(bf16_2(ROWS, F)), scratch = allocate(bf16_2(ROWS, F)),
                  dweight = random_tensor(f32_2(C, F), 5);
    struct tensor sums = random_tensor(f32_1(F), 6), before = random_tensor(f32_1(F), 6);
    struct tensor all[] = { dy, activated, weight, up, dup, scratch, dweight, sums, before };
    struct device dev = { .ops = ops_cpu() };

    (void)state;
    assert_ok(dev.ops->linear_activation_backward(
        &dev, &(struct linear_activation_args){ .kind = ALIBI_GELU_TANH,
                                                .dup = dup,
                                                .dup_sums = sums,
                                                .scratch = scratch,
                                                .dweight = dweight,
                                                .dy = dy,
                                                .activated = activated,
                                                .weight = weight,
                                                .up = up }));
    for (int64_t f = 0; f < F; f++) {
        double expected = get(before, f);
        for (int64_t r = 0; r < ROWS; r++)
            expected += get(dup, r * F + f);
        assert_close(get(sums, f), expected, 0x1p-24 * fabs(expected));
    }
    for (size_t i = 0; i < COUNT(all); i++)
        mem_free(all[i].data);
}

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

static void check_activation(int rows, int F, int kind)
{
    struct problem forward = new_problem("activation_forward", run_activation_forward,
                                         "rows=%d F=%d kind=%d", rows, F, kind);
    struct problem backward = new_problem("activation_backward", run_activation_backward,
                                          "rows=%d F=%d kind=%d", rows, F, kind);
    int width = kind == ALIBI_SWIGLU ? 2 * F : F;

    forward.kind = backward.kind = kind;
    input(&forward, bf16_2(rows, width));
    output(&forward, bf16_2(rows, F));
    input(&backward, bf16_2(rows, F));
    input(&backward, bf16_2(rows, width));
    output(&backward, bf16_2(rows, width));
    check_rounded(&forward);
    check_rounded(&backward);
}

static void activations_in_bf16_are_the_exact_ones_rounded(void **state)
{
    (void)state;
    for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++) {
        check_activation(1, 1, kind);
        check_activation(5, 37, kind);
        check_linear_activation(1, 1, 1, kind);
        check_linear_activation(5, 16, 37, kind);
    }
}

/* ---- norms */

static alibi_status run_layernorm_forward(struct device *dev, const struct problem *p,
                                          struct tensor *out)
{
    return dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                            .y = out[0],
                                                            .mean = out[1],
                                                            .rstd = out[2],
                                                            .x = p->in[0],
                                                            .weight = p->in[1],
                                                            .bias = p->in[2],
                                                            .eps = 1e-5 });
}

static alibi_status run_rmsnorm_forward(struct device *dev, const struct problem *p,
                                        struct tensor *out)
{
    return dev->ops->norm_forward(dev, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                            .y = out[0],
                                                            .rstd = out[1],
                                                            .x = p->in[0],
                                                            .weight = p->in[1],
                                                            .bias = p->in[2],
                                                            .eps = 1e-5 });
}

static alibi_status run_layernorm_backward(struct device *dev, const struct problem *p,
                                           struct tensor *out)
{
    return dev->ops->norm_backward(dev, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                             .dx = out[0],
                                                             .dweight = out[1],
                                                             .dbias = out[2],
                                                             .y = out[3],
                                                             .dy = p->in[0],
                                                             .x = p->in[1],
                                                             .weight = p->in[2],
                                                             .bias = p->in[5],
                                                             .mean = p->in[3],
                                                             .rstd = p->in[4] });
}

static alibi_status run_rmsnorm_backward(struct device *dev, const struct problem *p,
                                         struct tensor *out)
{
    return dev->ops->norm_backward(dev, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                             .dx = out[0],
                                                             .dweight = out[1],
                                                             .dbias = out[2],
                                                             .y = out[3],
                                                             .dy = p->in[0],
                                                             .x = p->in[1],
                                                             .weight = p->in[2],
                                                             .bias = p->in[5],
                                                             .rstd = p->in[4] });
}

static void check_norm(int rows, int C, bool rms)
{
    struct problem forward =
        new_problem(rms ? "rmsnorm_forward" : "layernorm_forward",
                    rms ? run_rmsnorm_forward : run_layernorm_forward, "rows=%d C=%d", rows, C);
    struct problem backward =
        new_problem(rms ? "rmsnorm_backward" : "layernorm_backward",
                    rms ? run_rmsnorm_backward : run_layernorm_backward, "rows=%d C=%d", rows, C);

    input(&forward, bf16_2(rows, C));
    input(&forward, f32_1(C));
    input(&forward, f32_1(C));
    output(&forward, bf16_2(rows, C));
    output(&forward, f32_1(rows));
    if (!rms)
        output(&forward, f32_1(rows));
    input(&backward, bf16_2(rows, C));
    input(&backward, bf16_2(rows, C));
    input(&backward, f32_1(C));
    input(&backward, f32_1(rows));
    input(&backward, f32_1(rows));
    input(&backward, f32_1(C));
    accumulated(&backward, bf16_2(rows, C));
    accumulated(&backward, f32_1(C));
    accumulated(&backward, f32_1(C));
    output(&backward, bf16_2(rows, C));
    check_rounded(&forward);
    check_rounded(&backward);
}

static void norms_in_bf16_are_the_exact_ones_rounded(void **state)
{
    static const int shapes[][2] = { { 1, 2 }, { 5, 33 }, { 3, 160 } };

    (void)state;
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int rms = 0; rms < 2; rms++)
            check_norm(shapes[i][0], shapes[i][1], rms);
}

/* ---- attention */

enum { Q, K, V, BIAS, DY, Y, LSE };

static struct attention_args attention_of(const struct problem *p)
{
    return (struct attention_args){
        .q = p->in[Q],
        .k = p->in[K],
        .v = p->in[V],
        .bias = { (enum bias_kind)p->kind, p->in[BIAS] },
        .scale = 0.3,
    };
}

static alibi_status run_attention_forward(struct device *dev, const struct problem *p,
                                          struct tensor *out)
{
    return attention_forward_of(dev, out[0], out[1], attention_of(p));
}

static alibi_status run_attention_backward(struct device *dev, const struct problem *p,
                                           struct tensor *out)
{
    struct tensor dbias = p->kind == BIAS_NONE ? tensor_none() : out[3];

    return attention_backward_of(dev, out[0], out[1], out[2], dbias, p->in[DY], p->in[Y],
                                 p->in[LSE], attention_of(p));
}

static alibi_status run_attention_norms(struct device *dev, const struct problem *p,
                                        struct tensor *out)
{
    return dev->ops->attention_norms(dev, out[0], p->in[0], 0, ragged_none());
}

static void add_attention_inputs(struct problem *p, struct tensor q, struct tensor kv,
                                 enum bias_kind kind)
{
    p->kind = (int)kind;
    input(p, q);
    input(p, kv);
    input(p, kv);
    input(p, kind == BIAS_TABLE ? f32_2(q.shape[2], 5) : f32_1(q.shape[2]));
}

static void check_attention(int B, int L, int H, int Hkv, int D, enum bias_kind kind)
{
    struct problem forward =
        new_problem("attention_forward", run_attention_forward, "B=%d H=%d/%d L=%d D=%d bias %d", B,
                    H, Hkv, L, D, (int)kind);
    struct problem backward =
        new_problem("attention_backward", run_attention_backward, "B=%d H=%d/%d L=%d D=%d bias %d",
                    B, H, Hkv, L, D, (int)kind);
    struct device ref = { .ops = &ops_ref };
    struct tensor q = tensor_4(NULL, DTYPE_BF16, B, L, H, D),
                  kv = tensor_4(NULL, DTYPE_BF16, B, L, Hkv, D);

    add_attention_inputs(&forward, q, kv, kind);
    output(&forward, q);
    output(&forward, tensor_3(NULL, DTYPE_F32, B, H, L));
    check_rounded(&forward);
    add_attention_inputs(&backward, q, kv, kind);
    input(&backward, q);
    input(&backward, q);
    input(&backward, tensor_3(NULL, DTYPE_F32, B, H, L));
    assert_ok(run_attention_forward(&ref, &backward, backward.in + Y));
    output(&backward, q);
    output(&backward, kv);
    output(&backward, kv);
    if (kind != BIAS_NONE)
        accumulated(&backward, backward.in[BIAS]);
    check_rounded(&backward);
}

static void attention_in_bf16_is_the_exact_one_rounded(void **state)
{
    struct problem norms =
        new_problem("attention_norms", run_attention_norms, "B=2 Hkv=3 L=70 D=7");

    (void)state;
    for (int kind = BIAS_NONE; kind <= BIAS_TABLE; kind++) {
        check_attention(1, 1, 1, 1, 1, (enum bias_kind)kind);
        check_attention(2, 19, 4, 2, 8, (enum bias_kind)kind);
    }
    input(&norms, tensor_4(NULL, DTYPE_BF16, 2, 70, 3, 7));
    output(&norms, tensor_3(NULL, DTYPE_F32, 2, 3, attention_tiles(70)));
    check_rounded(&norms);
}

/* ---- rotary, residual, dropout, memory, sums */

static alibi_status run_rotary(struct device *dev, const struct problem *p, struct tensor *out)
{
    TRY_RETURN(dev->ops->rotary(
        dev, out[0],
        (struct rotation){ .table = p->in[0], .start = 2, .layout = ALIBI_ROTARY_HALVES }, 1));
    return dev->ops->rotary(
        dev, out[1],
        (struct rotation){ .table = p->in[0], .start = 2, .layout = ALIBI_ROTARY_PAIRS }, -1);
}

static void rotary_in_bf16_is_the_exact_one_rounded(void **state)
{
    struct problem p = new_problem("rotary", run_rotary, "B=2 L=5 H=3 D=6");

    (void)state;
    input(&p, f32_2(7, 6));
    accumulated(&p, tensor_4(NULL, DTYPE_BF16, 2, 5, 3, 6));
    accumulated(&p, tensor_4(NULL, DTYPE_BF16, 2, 5, 3, 6));
    check_rounded(&p);
}

static alibi_status run_residual(struct device *dev, const struct problem *p, struct tensor *out)
{
    struct dropout drop = { .p = 0.3, .seed = 77, .stream = RANDOM_STREAM(RANDOM_DROPOUT, 3) };

    TRY_RETURN(dev->ops->residual_forward(dev, out[0], p->in[0], p->in[1], drop));
    return dev->ops->dropout(dev, out[1], p->in[0], drop);
}

static void residual_and_dropout_in_bf16_are_the_exact_ones_rounded(void **state)
{
    struct problem p = new_problem("residual, dropout", run_residual, "count=1001");

    (void)state;
    input(&p, bf16_1(1001));
    input(&p, bf16_1(1001));
    output(&p, bf16_1(1001));
    output(&p, bf16_1(1001));
    check_rounded(&p);
}

static alibi_status run_memory(struct device *dev, const struct problem *p, struct tensor *out)
{
    TRY_RETURN(dev->ops->copy(dev, out[0], p->in[0])); /* widens */
    TRY_RETURN(dev->ops->copy(dev, out[1], p->in[1])); /* rounds */
    TRY_RETURN(dev->ops->copy(dev, out[2], p->in[0]));
    TRY_RETURN(dev->ops->fill(dev, out[3], 0.1));
    TRY_RETURN(dev->ops->sum(dev, (double *)out[4].data, p->in[0]));
    return dev->ops->sum_squares(dev, (double *)out[4].data + 1, p->in[0]);
}

static void copies_fills_and_sums_in_bf16_are_the_exact_ones_rounded(void **state)
{
    struct problem p = new_problem("copy, fill, sums", run_memory, "B=2 L=5 H=3 D=7");

    (void)state;
    input(&p, tensor_4(NULL, DTYPE_BF16, 2, 5, 3, 7));
    input(&p, tensor_4(NULL, DTYPE_F32, 2, 5, 3, 7));
    output(&p, tensor_4(NULL, DTYPE_F32, 2, 5, 3, 7));
    output(&p, tensor_4(NULL, DTYPE_BF16, 2, 5, 3, 7));
    output(&p, tensor_4(NULL, DTYPE_BF16, 2, 5, 3, 7));
    output(&p, bf16_1(9));
    output(&p, tensor_1(NULL, DTYPE_F64, 2));
    check_rounded(&p);
}

/* ---- cross-entropy */

static alibi_status run_cross_entropy(struct device *dev, const struct problem *p,
                                      struct tensor *out)
{
    TRY_RETURN(dev->ops->cross_entropy(dev, &(struct cross_entropy_args){ .nll = out[0],
                                                                          .dlogits = out[1],
                                                                          .logits = p->in[0],
                                                                          .targets = p->in[1],
                                                                          .scale = 0.25 }));
    return dev->ops->cross_entropy(dev, &(struct cross_entropy_args){ .nll = out[0],
                                                                      .dlogits = out[2],
                                                                      .logits = out[2],
                                                                      .targets = p->in[1],
                                                                      .scale = 0.25 });
}

static void cross_entropy_in_bf16_is_the_exact_one_rounded(void **state)
{
    static const int shapes[][2] = { { 1, 1 }, { 4, 3 }, { 7, 257 } };

    (void)state;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        int rows = shapes[i][0], vocab = shapes[i][1];
        struct problem p =
            new_problem("cross_entropy", run_cross_entropy, "rows=%d V=%d", rows, vocab);
        input(&p, bf16_2(rows, vocab));
        struct tensor *targets = tokens_input(&p, rows, vocab);
        if (rows > 2)
            set(*targets, 1, -1.0);
        output(&p, f32_1(rows));
        output(&p, bf16_2(rows, vocab));
        accumulated(&p, bf16_2(rows, vocab)); /* the gradient in place of the logits */
        check_rounded(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_survives_the_way_to_float_and_back),
        cmocka_unit_test(floats_are_rounded_to_the_nearest_bf16_and_ties_to_even),
        cmocka_unit_test(a_nan_stays_one),
        cmocka_unit_test(upload_rounds_and_download_widens),
        cmocka_unit_test(embedding_in_bf16_is_the_exact_one_rounded),
        cmocka_unit_test(linear_in_bf16_is_the_exact_one_rounded),
        cmocka_unit_test(activations_in_bf16_are_the_exact_ones_rounded),
        cmocka_unit_test(sums_of_dup_in_bf16_are_of_what_is_stored),
        cmocka_unit_test(norms_in_bf16_are_the_exact_ones_rounded),
        cmocka_unit_test(attention_in_bf16_is_the_exact_one_rounded),
        cmocka_unit_test(rotary_in_bf16_is_the_exact_one_rounded),
        cmocka_unit_test(residual_and_dropout_in_bf16_are_the_exact_ones_rounded),
        cmocka_unit_test(copies_fills_and_sums_in_bf16_are_the_exact_ones_rounded),
        cmocka_unit_test(cross_entropy_in_bf16_is_the_exact_one_rounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
