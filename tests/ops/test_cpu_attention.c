/* test_cpu_attention.c - attention of the CPU backend against the reference: shapes around tiles
 * and vectors, every bias */
#include "ops/calls.h"
#include "ops/problem.h"

struct attention_case {
    int64_t B, Lq, Lk, H, Hkv, D;
    enum bias_kind bias;
    int64_t T; /* table entries */
};

static const char *bias_name(enum bias_kind kind)
{
    return kind == BIAS_NONE ? "none" : kind == BIAS_LINEAR ? "alibi" : "table";
}

enum { Q_ROWS, KV_ROWS, BIAS_VALUES, DY_ROWS, Y_ROWS, LSE, ANGLES };
enum { Q_GAP = 3, KV_GAP = 5, Y_GAP = 2 };

static struct problem attention_problem(const char *operation, struct attention_case c,
                                        double limit)
{
    struct problem p = { .operation = operation,
                         .n = { c.B, c.Lq, c.Lk, c.H, c.Hkv, c.D },
                         .kind = (int)c.bias,
                         .limit = limit };

    snprintf(p.shape, sizeof p.shape, "B=%d H=%d/%d L=%d/%d D=%d %s", (int)c.B, (int)c.H,
             (int)c.Hkv, (int)c.Lq, (int)c.Lk, (int)c.D, bias_name(c.bias));
    input(&p, f32_2(c.B * c.Lq, c.H * c.D + Q_GAP));
    input(&p, f32_2(c.B * c.Lk, 2 * c.Hkv * c.D + KV_GAP));
    struct tensor *bias = input(&p, c.bias == BIAS_TABLE ? f32_2(c.H, c.T) : f32_1(c.H));
    for (int64_t h = 0; c.bias == BIAS_LINEAR && h < c.H; h++)
        set(*bias, h, exp2(-8.0 * (double)(h + 1) / (double)c.H));
    return p;
}

static struct attention_args attention_of(const struct problem *p)
{
    const int64_t *n = p->n;
    int64_t B = n[0], Lq = n[1], Lk = n[2], H = n[3], Hkv = n[4], D = n[5];

    return (struct attention_args){
        .q = tensor_heads(p->in[Q_ROWS], B, Lq, 0, H, D),
        .k = tensor_heads(p->in[KV_ROWS], B, Lk, 0, Hkv, D),
        .v = tensor_heads(p->in[KV_ROWS], B, Lk, Hkv * D, Hkv, D),
        .bias = { (enum bias_kind)p->kind, p->in[BIAS_VALUES] },
        .scale = D > 0 ? 1.0 / sqrt((double)D) : 1.0,
    };
}

static alibi_status run_attention_forward(struct device *dev, const struct problem *p,
                                          struct tensor *out)
{
    struct tensor y = tensor_heads(out[0], p->n[0], p->n[1], 0, p->n[3], p->n[5]);

    return attention_forward_of(dev, y, out[1], attention_of(p));
}

static struct problem forward_problem(struct attention_case c, double limit)
{
    struct problem p = attention_problem("attention_forward", c, limit);

    output_rows(&p, c.B * c.Lq, c.H * c.D, Y_GAP);
    output(&p, tensor_3(NULL, DTYPE_F32, c.B, c.H, c.Lq));
    p.run = run_attention_forward;
    return p;
}

static alibi_status run_attention_backward(struct device *dev, const struct problem *p,
                                           struct tensor *out)
{
    const int64_t *n = p->n;
    int64_t B = n[0], L = n[1], H = n[3], Hkv = n[4], D = n[5];
    struct tensor dy = tensor_heads(p->in[DY_ROWS], B, L, 0, H, D),
                  y = tensor_heads(p->in[Y_ROWS], B, L, 0, H, D);
    struct tensor dbias = p->outs > 2 ? out[2] : tensor_none();
    struct attention_args a = attention_of(p);

    if (p->ins > ANGLES)
        a.rotation = (struct rotation){ .table = p->in[ANGLES], .start = 2, .layout = (int)n[6] };
    return attention_backward_of(
        dev, tensor_heads(out[0], B, L, 0, H, D), tensor_heads(out[1], B, L, 0, Hkv, D),
        tensor_heads(out[1], B, L, Hkv * D, Hkv, D), dbias, dy, y, p->in[LSE], a);
}

/* y and lse are what the reference's forward pass gives. */
static struct problem backward_problem(struct attention_case c, bool bias_gradient, double limit)
{
    struct problem p = attention_problem("attention_backward", c, limit);
    struct device ref = { .ops = &ops_ref };

    input(&p, f32_2(c.B * c.Lq, c.H * c.D + Y_GAP));
    struct tensor *y = input(&p, f32_2(c.B * c.Lq, c.H * c.D + Y_GAP));
    struct tensor *lse = input(&p, tensor_3(NULL, DTYPE_F32, c.B, c.H, c.Lq));
    struct tensor out[] = { *y, *lse };
    assert_ok(run_attention_forward(&ref, &p, out));
    output_rows(&p, c.B * c.Lq, c.H * c.D, Q_GAP);
    output_rows(&p, c.B * c.Lk, 2 * c.Hkv * c.D, KV_GAP);
    if (bias_gradient)
        accumulated(&p, p.in[BIAS_VALUES]);
    p.run = run_attention_backward;
    return p;
}

static const struct attention_case full_attention[] = {
    /* widths, around vectors and beyond */
    { 2, 9, 9, 2, 2, 1, BIAS_NONE, 0 },
    { 1, 20, 20, 2, 1, 3, BIAS_LINEAR, 0 },
    { 1, 17, 17, 2, 2, 4, BIAS_TABLE, 6 },
    { 2, 31, 31, 1, 1, 5, BIAS_LINEAR, 0 },
    { 1, 40, 40, 3, 3, 16, BIAS_NONE, 0 },
    { 1, 70, 70, 2, 2, 33, BIAS_LINEAR, 0 },
    { 1, 66, 66, 2, 2, 80, BIAS_TABLE, 20 },
    { 1, 65, 65, 2, 2, 128, BIAS_LINEAR, 0 },
    /* lengths, around tiles; one head: split between threads */
    { 1, 1, 1, 1, 1, 64, BIAS_LINEAR, 0 },
    { 3, 2, 2, 1, 1, 7, BIAS_TABLE, 1 },
    { 1, 63, 63, 1, 1, 64, BIAS_LINEAR, 0 },
    { 1, 64, 64, 1, 1, 64, BIAS_NONE, 0 },
    { 1, 65, 65, 1, 1, 64, BIAS_TABLE, 65 },
    { 1, 127, 127, 1, 1, 32, BIAS_LINEAR, 0 },
    { 1, 128, 128, 1, 1, 32, BIAS_TABLE, 128 },
    { 2, 129, 129, 3, 3, 64, BIAS_LINEAR, 0 },
    { 1, 200, 200, 1, 1, 16, BIAS_NONE, 0 },
    /* groups of query heads */
    { 1, 97, 97, 4, 2, 16, BIAS_LINEAR, 0 },
    { 2, 80, 80, 6, 1, 8, BIAS_TABLE, 33 },
    { 1, 130, 130, 2, 1, 24, BIAS_LINEAR, 0 },
    /* nothing to do */
    { 0, 5, 5, 2, 2, 4, BIAS_LINEAR, 0 },
    { 2, 0, 0, 2, 2, 4, BIAS_NONE, 0 },
};

/* Queries at the end of a longer past: decoding and chunks. */
static const struct attention_case attention_with_past[] = {
    { 1, 1, 1, 2, 2, 64, BIAS_NONE, 0 },      { 2, 1, 63, 3, 3, 64, BIAS_LINEAR, 0 },
    { 1, 1, 64, 4, 2, 33, BIAS_TABLE, 20 },   { 1, 1, 65, 2, 1, 5, BIAS_LINEAR, 0 },
    { 1, 1, 700, 2, 2, 128, BIAS_NONE, 0 },   { 2, 4, 129, 2, 2, 16, BIAS_LINEAR, 0 },
    { 1, 5, 130, 2, 2, 64, BIAS_TABLE, 9 },   { 1, 65, 129, 2, 1, 16, BIAS_LINEAR, 0 },
    { 1, 33, 300, 2, 2, 80, BIAS_NONE, 0 },   { 2, 64, 100, 2, 2, 1, BIAS_TABLE, 3 },
    { 1, 100, 163, 1, 1, 4, BIAS_LINEAR, 0 }, { 1, 3, 50, 2, 2, 0, BIAS_LINEAR, 0 },
};

static void attention_forward_equals_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof full_attention / sizeof *full_attention; i++) {
        struct problem p = forward_problem(full_attention[i], 2e-6);
        check(&p);
    }
}

static void attention_after_a_past_equals_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attention_with_past / sizeof *attention_with_past; i++) {
        struct problem p = forward_problem(attention_with_past[i], 2e-6);
        check(&p);
    }
}

static void attention_backward_equals_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof full_attention / sizeof *full_attention; i++) {
        struct problem p = backward_problem(full_attention[i], false, 4e-6);
        check(&p);
    }
}

static void gradient_of_the_bias_equals_the_reference_and_accumulates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof full_attention / sizeof *full_attention; i++) {
        if (full_attention[i].bias == BIAS_NONE)
            continue;
        struct problem p = backward_problem(full_attention[i], true, 1e-5);
        p.operation = "attention_backward with bias";
        check(&p);
    }
}

static void gradients_of_turned_queries_and_keys_equal_the_reference(void **state)
{
    (void)state;
    for (int layout = ALIBI_ROTARY_HALVES; layout <= ALIBI_ROTARY_PAIRS; layout++)
        for (size_t i = 0; i < sizeof full_attention / sizeof *full_attention; i++) {
            if (full_attention[i].D % 2 == 1)
                continue;
            struct problem p = backward_problem(full_attention[i], false, 4e-6);
            p.operation = layout == ALIBI_ROTARY_HALVES ? "attention_backward, halves turned"
                                                        : "attention_backward, pairs turned";
            p.n[6] = layout;
            input(&p, f32_2(full_attention[i].Lk + 2, full_attention[i].D));
            check(&p);
        }
}

/* Whole numbers, so that scores in the thousands have no rounding of their own: only the softmax is
 * at test. */
static void scores_too_large_for_exp_give_the_same_softmax(void **state)
{
    struct problem p =
        forward_problem((struct attention_case){ 1, 150, 150, 2, 2, 4, BIAS_NONE, 0 }, 2e-6);

    (void)state;
    for (int t = Q_ROWS; t <= KV_ROWS; t++)
        for (int64_t i = 0; i < stored(p.in[t]); i++)
            set(p.in[t], i, round(40.0 * get(p.in[t], i)));
    check(&p);
}

static void far_keys_underflow_to_nothing_under_a_steep_slope(void **state)
{
    struct problem p =
        forward_problem((struct attention_case){ 1, 1500, 1500, 1, 1, 4, BIAS_LINEAR, 0 }, 2e-6);

    (void)state;
    set(p.in[BIAS_VALUES], 0, 0.5);
    check(&p);
}

static void every_row_that_sees_a_nan_key_shows_it(void **state)
{
    struct problem p =
        forward_problem((struct attention_case){ 1, 70, 70, 1, 1, 8, BIAS_LINEAR, 0 }, 0.0);

    (void)state;
    set(p.in[KV_ROWS], 30 * (2 * 8 + KV_GAP), (double)NAN);
    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        struct solution solved = solve(&p, &ops);
        for (int64_t i = 30; i < 70; i++)
            assert_true(isnan(get(solved.out[1], i)));
        solution_free(&solved);
    }
    problem_free(&p);
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    struct attention_case c = { 1, 70, 70, 1, 1, 8, BIAS_LINEAR, 0 };
    struct problem problems[] = { forward_problem(c, 0.0), backward_problem(c, true, 0.0) };
    struct device dev = { .ops = ops_cpu() };

    (void)state;
    for (int i = 0; i < 2; i++)
        for (int n = 1; n <= i + 1; n++) {
            size_t before = alibi_memory_now();
            assert_ok(alibi_inject_fault("memory", n));
            assert_fails(problems[i].run(&dev, &problems[i], problems[i].out), ALIBI_MEMORY,
                         "attention");
            assert_ok(alibi_inject_fault("memory", 0));
            assert_int_equal(alibi_memory_now(), before);
        }
    problem_free(&problems[0]);
    problem_free(&problems[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_forward_equals_the_reference),
        cmocka_unit_test(attention_after_a_past_equals_the_reference),
        cmocka_unit_test(attention_backward_equals_the_reference),
        cmocka_unit_test(gradient_of_the_bias_equals_the_reference_and_accumulates),
        cmocka_unit_test(gradients_of_turned_queries_and_keys_equal_the_reference),
        cmocka_unit_test(scores_too_large_for_exp_give_the_same_softmax),
        cmocka_unit_test(far_keys_underflow_to_nothing_under_a_steep_slope),
        cmocka_unit_test(every_row_that_sees_a_nan_key_shows_it),
        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
