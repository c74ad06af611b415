/* test_closed_forms.c - reference operations against results that can be written down */
#include "ops/bf16.h"
#include "ops/ops.h"

#include "check.h"

#define TENSOR_1(array) tensor_1(array, DTYPE_F64, COUNT(array))

enum { SEED = 11 };

static struct device device = { .ops = &ops_ref };

static void randomise(double *x, size_t count, uint64_t stream)
{
    for (size_t i = 0; i < count; i++)
        x[i] = random_normal(SEED, stream, i);
}

static void assert_array_close(const double *a, const double *b, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        assert_close(a[i], b[i], tolerance);
}

/* ---- attention */

enum { B = 2, L = 7, H = 4, HKV = 2, D = 3, T = 5 };

/* One random attention problem in double; small enough for the stack. */
struct sample {
    double q[B * L * H * D], k[B * L * HKV * D], v[B * L * HKV * D], bias[H * T];
    double y[B * L * H * D], lse[B * H * L];
};

static struct attention_args sample_init(struct sample *s, enum bias_kind kind)
{
    randomise(s->q, COUNT(s->q), 1);
    randomise(s->k, COUNT(s->k), 2);
    randomise(s->v, COUNT(s->v), 3);
    randomise(s->bias, COUNT(s->bias), 4);
    return (struct attention_args){
        .q = tensor_4(s->q, DTYPE_F64, B, L, H, D),
        .k = tensor_4(s->k, DTYPE_F64, B, L, HKV, D),
        .v = tensor_4(s->v, DTYPE_F64, B, L, HKV, D),
        .bias = { kind, kind == BIAS_LINEAR ? tensor_1(s->bias, DTYPE_F64, H)
                                            : tensor_2(s->bias, DTYPE_F64, H, T) },
        .scale = 0.5,
    };
}

static void sample_run(struct sample *s, struct attention_args a)
{
    a.y = tensor_4(s->y, DTYPE_F64, B, a.q.shape[1], H, D);
    a.lse = tensor_3(s->lse, DTYPE_F64, B, H, a.q.shape[1]);
    assert_ok(device.ops->attention_forward(&device, &a));
}

static double naive_score(const struct sample *s, enum bias_kind kind, int b, int h, int i, int j)
{
    const double *q = s->q + ((b * L + i) * H + h) * D,
                 *k = s->k + ((b * L + j) * HKV + h / (H / HKV)) * D;
    int distance = i - j;
    double score = 0.0;

    for (int d = 0; d < D; d++)
        score += 0.5 * q[d] * k[d];
    if (kind == BIAS_LINEAR)
        score += -s->bias[h] * distance;
    if (kind == BIAS_TABLE)
        score += s->bias[h * T + (distance < T - 1 ? distance : T - 1)];
    return score;
}

static void attention_over_a_single_key_returns_its_value(void **state)
{
    struct sample s;
    struct attention_args a = sample_init(&s, BIAS_LINEAR);

    (void)state;
    sample_run(&s, a);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            assert_array_close(s.y + (b * L * H + h) * D, s.v + (b * L * HKV + h / (H / HKV)) * D,
                               D, 1e-15);
}

static void attention_equals_the_naive_softmax_and_its_unshifted_log_sum(void **state)
{
    (void)state;
    for (int kind = BIAS_NONE; kind <= BIAS_TABLE; kind++) {
        struct sample s;
        struct attention_args a = sample_init(&s, (enum bias_kind)kind);
        sample_run(&s, a);
        for (int row = 0; row < B * H * L; row++) {
            int b = row / (H * L), h = row / L % H, i = row % L;
            double sum = 0.0, y[D] = { 0 };
            for (int j = 0; j <= i; j++) {
                double e = exp(naive_score(&s, (enum bias_kind)kind, b, h, i, j));
                sum += e;
                for (int d = 0; d < D; d++)
                    y[d] += e * s.v[((b * L + j) * HKV + h / (H / HKV)) * D + d];
            }
            assert_close(s.lse[row], log(sum), 1e-13);
            for (int d = 0; d < D; d++)
                assert_close(s.y[((b * L + i) * H + h) * D + d], y[d] / sum, 1e-13);
        }
    }
}

static void shifting_a_whole_bias_row_shifts_lse_and_leaves_y(void **state)
{
    struct sample s, shifted;
    struct attention_args a = sample_init(&s, BIAS_TABLE), b = sample_init(&shifted, BIAS_TABLE);

    (void)state;
    for (int t = 0; t < T; t++)
        shifted.bias[2 * T + t] += 1.25;
    sample_run(&s, a);
    sample_run(&shifted, b);
    assert_array_close(shifted.y, s.y, COUNT(s.y), 1e-14);
    for (int row = 0; row < B * H * L; row++)
        assert_close(shifted.lse[row] - s.lse[row], row / L % H == 2 ? 1.25 : 0.0, 1e-13);
}

/* The last `count` positions of every batch entry, as queries; the view keeps the strides of the
 * whole. */
static struct tensor last_rows(struct tensor t, int64_t count)
{
    t.data = tensor_at(t, (t.shape[1] - count) * t.stride[1]);
    t.shape[1] = count;
    return t;
}

static void queries_at_the_end_see_what_the_full_attention_shows_them(void **state)
{
    (void)state;
    for (int count = 1; count < L; count++) {
        struct sample s, part;
        struct attention_args a = sample_init(&s, BIAS_TABLE), b = sample_init(&part, BIAS_TABLE);
        sample_run(&s, a);
        b.q = last_rows(b.q, count);
        sample_run(&part, b);
        for (int e = 0; e < B; e++)
            assert_array_close(part.y + e * count * H * D, s.y + (e * L + L - count) * H * D,
                               (size_t)(count * H * D), 0.0);
        for (int row = 0; row < B * H; row++)
            assert_array_close(part.lse + row * count, s.lse + row * L + L - count, (size_t)count,
                               0.0);
    }
}

static void huge_scores_do_not_overflow_the_softmax(void **state)
{
    struct sample s;
    struct attention_args a = sample_init(&s, BIAS_NONE);

    (void)state;
    a.scale = 1e4;
    sample_run(&s, a);
    for (int i = 0; i < COUNT(s.y); i++)
        assert_true(isfinite(s.y[i]));
}

/* ---- embedding, rotary, dropout */

static void embedding_gradient_adds_every_occurrence_of_a_token(void **state)
{
    int32_t tokens[] = { 1, 0, 1, 1 };
    double dy[] = { 1, 2, 10, 20, 100, 200, 1000, 2000 }; /* [2, 2, 2] */
    double dweight[] = { 5, 5, 5, 5, 5, 5 }, dtable[] = { 7, 7, 7, 7, 7, 7 };
    const double weight_expected[] = { 25, 45, 2207, 4409, 5, 5 },
                 table_expected[] = { 7, 7, 108, 209, 1017, 2027 };

    (void)state;
    assert_ok(ops_ref.embedding_backward(
        &device, &(struct embedding_args){ .dweight = tensor_2(dweight, DTYPE_F64, 3, 2),
                                           .dtable = tensor_2(dtable, DTYPE_F64, 3, 2),
                                           .dy = tensor_3(dy, DTYPE_F64, 2, 2, 2),
                                           .tokens = tensor_2(tokens, DTYPE_I32, 2, 2),
                                           .start = 1,
                                           .scale = 2.0 }));
    assert_array_close(dweight, weight_expected, COUNT(dweight), 0.0);
    assert_array_close(dtable, table_expected, COUNT(dtable), 0.0);
}

static void rotating_and_rotating_back_is_the_identity(void **state)
{
    (void)state;
    for (int layout = ALIBI_ROTARY_HALVES; layout <= ALIBI_ROTARY_PAIRS; layout++) {
        double x[2 * 3 * 2 * 4], before[COUNT(x)], table[3 * 4];
        struct rotation r = { .table = tensor_2(table, DTYPE_F64, 3, 4), .layout = layout };
        struct tensor view = tensor_4(x, DTYPE_F64, 2, 3, 2, 4);
        randomise(x, COUNT(x), 5);
        memcpy(before, x, sizeof x);
        for (int l = 0; l < 3; l++)
            for (int n = 0; n < 2; n++) {
                table[l * 4 + n] = cos((l + 2) * (n + 0.3));
                table[l * 4 + 2 + n] = sin((l + 2) * (n + 0.3));
            }
        assert_ok(ops_ref.rotary(&device, view, r, 1));
        assert_true(fabs(x[0] - before[0]) > 1e-3);
        assert_ok(ops_ref.rotary(&device, view, r, -1));
        assert_array_close(x, before, COUNT(x), 1e-15);
    }
}

/* A quarter turn sends (a, b) to (-b, a), whichever elements the pair is. */
static void a_quarter_turn_shows_which_elements_form_a_pair(void **state)
{
    double halves[] = { 1, 2, 3, 4 }, pairs[] = { 1, 2, 3, 4 }, quarter[] = { 0, 0, 1, 1 };
    const double halves_turned[] = { -3, -4, 1, 2 }, pairs_turned[] = { -2, 1, -4, 3 };
    struct tensor angles = tensor_2(quarter, DTYPE_F64, 1, 4);

    (void)state;
    assert_ok(ops_ref.rotary(&device, tensor_4(halves, DTYPE_F64, 1, 1, 1, 4),
                             (struct rotation){ .table = angles, .layout = ALIBI_ROTARY_HALVES },
                             1));
    assert_ok(ops_ref.rotary(&device, tensor_4(pairs, DTYPE_F64, 1, 1, 1, 4),
                             (struct rotation){ .table = angles, .layout = ALIBI_ROTARY_PAIRS },
                             1));
    assert_array_close(halves, halves_turned, 4, 0.0);
    assert_array_close(pairs, pairs_turned, 4, 0.0);
}

static void dropout_keeps_the_mean_and_draws_the_same_mask_again(void **state)
{
    static double x[40000], y[40000], again[40000];
    struct dropout drop = { 0.3, 21, 22 };
    double sum, dropped = 0.0;

    (void)state;
    assert_ok(ops_ref.fill(&device, TENSOR_1(x), 1.0));
    assert_ok(ops_ref.residual_forward(&device, TENSOR_1(y), TENSOR_1(x), TENSOR_1(x), drop));
    assert_ok(ops_ref.dropout(&device, TENSOR_1(again), TENSOR_1(x), drop));
    for (int i = 0; i < COUNT(y); i++) {
        assert_close(y[i], 1.0 + again[i], 0.0);
        dropped += again[i] == 0.0 ? 1.0 : 0.0;
    }
    assert_ok(ops_ref.sum(&device, &sum, TENSOR_1(again)));
    /* Five standard errors of 40000 draws. */
    assert_close(dropped / 40000.0, 0.3, 5.0 * sqrt(0.3 * 0.7 / 40000.0));
    assert_close(sum / 40000.0, 1.0, 5.0 * sqrt(0.3 / 0.7 / 40000.0));
    drop.stream++;
    assert_ok(ops_ref.dropout(&device, TENSOR_1(y), TENSOR_1(x), drop));
    assert_memory_not_equal(y, again, sizeof y);
}

/* ---- what contracts allow to be the same tensor */

static void operations_work_in_place_where_the_contract_says_so(void **state)
{
    double x[3 * 8], y[3 * 8], inplace[3 * 8], normed[3 * 8], dy[3 * 4], weight[8], mean[3],
        rstd[3];
    struct tensor X = tensor_2(x, DTYPE_F64, 3, 8), Y = tensor_2(y, DTYPE_F64, 3, 8),
                  I = tensor_2(inplace, DTYPE_F64, 3, 8);
    struct tensor N = tensor_2(normed, DTYPE_F64, 3, 8), W = TENSOR_1(weight);
    struct dropout drop = { 0.5, 1, 2 };

    (void)state;
    randomise(x, COUNT(x), 6);
    randomise(dy, COUNT(dy), 7);
    randomise(weight, COUNT(weight), 8);
    memcpy(inplace, x, sizeof x);
    assert_ok(ops_ref.norm_forward(&device, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                                 .y = Y,
                                                                 .mean = TENSOR_1(mean),
                                                                 .rstd = TENSOR_1(rstd),
                                                                 .x = X,
                                                                 .dropout = drop,
                                                                 .weight = W,
                                                                 .eps = 1e-5 }));
    assert_ok(ops_ref.norm_forward(&device, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                                 .y = I,
                                                                 .mean = TENSOR_1(mean),
                                                                 .rstd = TENSOR_1(rstd),
                                                                 .x = I,
                                                                 .dropout = drop,
                                                                 .weight = W,
                                                                 .eps = 1e-5 }));
    assert_array_close(inplace, y, COUNT(y), 0.0);
    memcpy(inplace, x, sizeof x);
    assert_ok(
        ops_ref.activation_backward(&device, ALIBI_SWIGLU, Y, tensor_2(dy, DTYPE_F64, 3, 4), X));
    assert_ok(
        ops_ref.activation_backward(&device, ALIBI_SWIGLU, I, tensor_2(dy, DTYPE_F64, 3, 4), I));
    assert_array_close(inplace, y, COUNT(y), 0.0);
    memcpy(inplace, dy, sizeof dy);
    assert_ok(ops_ref.activation_backward(&device, ALIBI_GELU_ERF, tensor_2(y, DTYPE_F64, 3, 4),
                                          tensor_2(dy, DTYPE_F64, 3, 4),
                                          tensor_2(x, DTYPE_F64, 3, 4)));
    assert_ok(ops_ref.activation_backward(
        &device, ALIBI_GELU_ERF, tensor_2(inplace, DTYPE_F64, 3, 4),
        tensor_2(inplace, DTYPE_F64, 3, 4), tensor_2(x, DTYPE_F64, 3, 4)));
    assert_array_close(inplace, y, COUNT(dy), 0.0);
    memcpy(inplace, x, sizeof x);
    assert_ok(ops_ref.residual_forward(&device, Y, X, X, drop));
    assert_ok(ops_ref.residual_forward(&device, I, I, X, drop));
    assert_array_close(inplace, y, COUNT(y), 0.0);
    memcpy(inplace, x, sizeof x);
    assert_ok(ops_ref.norm_forward(&device, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                                 .y = N,
                                                                 .rstd = TENSOR_1(rstd),
                                                                 .sum = I,
                                                                 .x = I,
                                                                 .branch = X,
                                                                 .dropout = drop,
                                                                 .weight = W,
                                                                 .eps = 1e-5 }));
    assert_array_close(inplace, y, COUNT(y), 0.0);
}

/* ---- cross-entropy */

static void targets_of_minus_one_are_not_scored(void **state)
{
    double logits[] = { 0, log(3), 5, 6, -1000, 1000 }, gradient[6], nll[3];
    int32_t targets[] = { 1, -1, 0 };
    const double expected[] = { 0.5, -0.5, 0, 0, -2, 2 };

    (void)state;
    assert_ok(ops_ref.cross_entropy(
        &device, &(struct cross_entropy_args){ .nll = TENSOR_1(nll),
                                               .dlogits = tensor_2(gradient, DTYPE_F64, 3, 2),
                                               .logits = tensor_2(logits, DTYPE_F64, 3, 2),
                                               .targets = tensor_1(targets, DTYPE_I32, 3),
                                               .scale = 2.0 }));
    assert_close(nll[0], log(4.0 / 3.0), 1e-15);
    assert_close(nll[1], 0.0, 0.0);
    assert_close(nll[2], 2000.0, 0.0);
    assert_array_close(gradient, expected, 6, 1e-15);
    assert_ok(ops_ref.cross_entropy(
        &device, &(struct cross_entropy_args){ .nll = TENSOR_1(nll),
                                               .dlogits = tensor_2(logits, DTYPE_F64, 3, 2),
                                               .logits = tensor_2(logits, DTYPE_F64, 3, 2),
                                               .targets = tensor_1(targets, DTYPE_I32, 3),
                                               .scale = 2.0 }));
    assert_array_close(logits, expected, 6, 1e-15);
}

/* ---- optimizer */

static void one_adamw_step_equals_the_one_by_hand(void **state)
{
    double w[] = { 2.0 }, m[] = { 0.5 }, v[] = { 0.25 }, gradient[] = { 4.0 };
    struct adamw_args a = { .w = TENSOR_1(w),
                            .m = TENSOR_1(m),
                            .v = TENSOR_1(v),
                            .gradient = TENSOR_1(gradient),
                            .lr = 0.1,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .eps = 0.01,
                            .weight_decay = 0.5,
                            .gradient_scale = 0.25,
                            .step = 2,
                            .decaying = 1 };

    (void)state;
    assert_ok(device.ops->adamw(&device, &a));
    /* g = 1: m = 0.45 + 0.1, v = 0.2475 + 0.01; corrections 1 - 0.81 and 1 - 0.9801; decay takes
     * 0.1 * 0.5 * 2 */
    assert_close(m[0], 0.55, 1e-15);
    assert_close(v[0], 0.2575, 1e-15);
    assert_close(w[0], 2.0 - 0.1 - 0.1 * (0.55 / 0.19) / (sqrt(0.2575 / 0.0199) + 0.01), 1e-15);
}

static void the_first_adamw_step_has_the_size_of_the_rate(void **state)
{
    double w[] = { 1.0, 1.0 }, m[2] = { 0 }, v[2] = { 0 }, gradient[] = { 1e-3, -1e3 };
    struct adamw_args a = { .w = TENSOR_1(w),
                            .m = TENSOR_1(m),
                            .v = TENSOR_1(v),
                            .gradient = TENSOR_1(gradient),
                            .lr = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 0.0,
                            .gradient_scale = 1.0,
                            .step = 1 };

    (void)state;
    assert_ok(device.ops->adamw(&device, &a));
    assert_close(w[0], 0.99, 1e-14);
    assert_close(w[1], 1.01, 1e-14);
}

/* Step 1: lr 1, g 1, u 0: w = 10 - 1.5 = 8.5, u = -1. Step 2: lr 2 after 1, so r = 2, g = 0.5 * 6 =
 * 3, decay 0.01: w = 8.5 - 2 * 0.01 * 8.5 + 0.25 * 2 * -1 - 1.5 * 2 * 3 = -1.17, u = 0.5 * 2 * -1 -
 * 2 * 3 = -7. */
static void two_nesterov_steps_with_a_changing_rate_equal_those_by_hand(void **state)
{
    double w[] = { 10.0 }, u[] = { 0.0 }, gradient[] = { 1.0 };
    struct nesterov_args n = { .w = TENSOR_1(w),
                               .u = TENSOR_1(u),
                               .gradient = TENSOR_1(gradient),
                               .lr = 1.0,
                               .previous_lr = 1.0,
                               .momentum = 0.5,
                               .weight_decay = 0.0,
                               .gradient_scale = 1.0 };

    (void)state;
    assert_ok(device.ops->nesterov(&device, &n));
    assert_close(w[0], 8.5, 1e-15);
    assert_close(u[0], -1.0, 1e-15);
    gradient[0] = 6.0;
    n.lr = 2.0;
    n.weight_decay = 0.01;
    n.gradient_scale = 0.5;
    n.decaying = 1;
    assert_ok(device.ops->nesterov(&device, &n));
    assert_close(w[0], -1.17, 1e-14);
    assert_close(u[0], -7.0, 1e-14);
}

static void weight_decay_ends_where_it_should_and_a_copy_has_the_new_weights(void **state)
{
    double w[] = { 1, 2, 4, 0 }, m[4] = { 0 }, v[4] = { 0 }, gradient[4] = { 0 };
    float copy[4];
    uint16_t half[4];
    const double after_one[] = { 0.5, 1, 4, 0 }, after_two[] = { 0.25, 1, 4, 0 };
    struct adamw_args a = { .w = TENSOR_1(w),
                            .copy = tensor_1(copy, DTYPE_F32, 4),
                            .m = TENSOR_1(m),
                            .v = TENSOR_1(v),
                            .gradient = TENSOR_1(gradient),
                            .lr = 0.5,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .weight_decay = 1,
                            .step = 1,
                            .decaying = 2 };
    struct nesterov_args n = { .w = TENSOR_1(w),
                               .copy = tensor_1(half, DTYPE_BF16, 4),
                               .u = TENSOR_1(m),
                               .gradient = TENSOR_1(gradient),
                               .lr = 0.5,
                               .previous_lr = 0.5,
                               .momentum = 0.9,
                               .weight_decay = 1,
                               .decaying = 1 };

    (void)state;
    assert_ok(device.ops->adamw(&device, &a));
    assert_array_close(w, after_one, 4, 0.0);
    assert_ok(device.ops->nesterov(&device, &n));
    assert_array_close(w, after_two, 4, 0.0);
    for (int i = 0; i < 4; i++) {
        assert_close(copy[i], after_one[i], 0.0);
        assert_close(bf16_to_float(half[i]), after_two[i], 0.0);
    }
}

static void sums_are_taken_in_double_and_show_what_is_not_finite(void **state)
{
    static float x[100001];
    struct tensor t = tensor_1(x, DTYPE_F32, COUNT(x));
    double sum, squares;

    (void)state;
    assert_ok(ops_ref.fill(&device, t, 0.1));
    x[0] = 1e8f;
    assert_ok(ops_ref.sum(&device, &sum, t));
    assert_close(sum, 1e8 + 100000 * (double)0.1f,
                 1e-2); /* in float, 1e8 + 0.1 is 1e8: the sum would be off by 10000 */
    assert_ok(ops_ref.sum_squares(&device, &squares, tensor_1(x + 1, DTYPE_F32, 100000)));
    assert_close(squares, 100000 * (double)0.1f * (double)0.1f, 1e-6);
    x[77] = NAN;
    assert_ok(ops_ref.sum_squares(&device, &squares, t));
    assert_true(!isfinite(squares));
}

/* ---- memory */

static void upload_and_download_convert_between_floats_and_the_tensors_type(void **state)
{
    const float host[] = { 1.5f, -0.1f, 3e30f };
    const int32_t ids[] = { -1, 0, 1 << 30 };
    double wide[3];
    float single[3], back[3];
    int32_t stored[3], ids_back[3];

    (void)state;
    assert_ok(ops_ref.upload(&device, TENSOR_1(wide), host));
    assert_ok(ops_ref.upload(&device, tensor_1(single, DTYPE_F32, 3), host));
    assert_ok(ops_ref.upload(&device, tensor_1(stored, DTYPE_I32, 3), ids));
    assert_close(wide[1], (double)-0.1f, 0.0);
    assert_ok(ops_ref.download(&device, back, TENSOR_1(wide)));
    assert_memory_equal(back, host, sizeof host);
    assert_ok(ops_ref.download(&device, back, tensor_1(single, DTYPE_F32, 3)));
    assert_memory_equal(back, host, sizeof host);
    assert_ok(ops_ref.download(&device, ids_back, tensor_1(stored, DTYPE_I32, 3)));
    assert_memory_equal(ids_back, ids, sizeof ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_a_single_key_returns_its_value),
        cmocka_unit_test(attention_equals_the_naive_softmax_and_its_unshifted_log_sum),
        cmocka_unit_test(shifting_a_whole_bias_row_shifts_lse_and_leaves_y),
        cmocka_unit_test(queries_at_the_end_see_what_the_full_attention_shows_them),
        cmocka_unit_test(huge_scores_do_not_overflow_the_softmax),
        cmocka_unit_test(embedding_gradient_adds_every_occurrence_of_a_token),
        cmocka_unit_test(rotating_and_rotating_back_is_the_identity),
        cmocka_unit_test(a_quarter_turn_shows_which_elements_form_a_pair),
        cmocka_unit_test(dropout_keeps_the_mean_and_draws_the_same_mask_again),
        cmocka_unit_test(operations_work_in_place_where_the_contract_says_so),
        cmocka_unit_test(targets_of_minus_one_are_not_scored),
        cmocka_unit_test(one_adamw_step_equals_the_one_by_hand),
        cmocka_unit_test(the_first_adamw_step_has_the_size_of_the_rate),
        cmocka_unit_test(two_nesterov_steps_with_a_changing_rate_equal_those_by_hand),
        cmocka_unit_test(weight_decay_ends_where_it_should_and_a_copy_has_the_new_weights),
        cmocka_unit_test(sums_are_taken_in_double_and_show_what_is_not_finite),
        cmocka_unit_test(upload_and_download_convert_between_floats_and_the_tensors_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
