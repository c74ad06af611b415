/* test_cases.c - every case of every operation (bench/cases.h)
 *
 *   - gradients against finite differences, by the reference in double;
 *   - each instruction set in fp32 against the reference in double, with the same bits for any
 *     number of threads;
 *   - the reference in bf16 against double; the CPU hands bf16 on, with the same bits;
 *   - the GPU in fp32 and bf16 against double, the same bits twice, with aligned tensors and
 *     without; skipped without a GPU. */
#include <fnmatch.h>
#include <omp.h>

#include "ops/gpu.h"
#include "ops/solve.h"

/* Attention has more cases than all other operations together. Each of its options takes a third of
 * the shapes; with ALIBI_EVERY_CASE in the environment all of them, with few cases an eighth. */
static bool is_left_out(const struct operation *o, int shape, int option)
{
    int each = few_cases() ? 8 : 3;

    return o->options > 10 && shape % each != option % each && getenv("ALIBI_EVERY_CASE") == NULL;
}

/* Runs `check` for every case of every operation and direction in that type; false if one failed.
 * All are checked and printed before a test fails. ALIBI_OPERATION='norm' in the environment runs
 * those of matching operations: under a sanitizer all together take long. */
static bool for_every_case(enum dtype type, int64_t gap,
                           bool (*check)(const struct op_case *c, int direction))
{
    const char *pattern = getenv("ALIBI_OPERATION");
    struct op_case c;
    bool good = true;
    int checked = 0;

    for (int o = 0; o < operation_count; o++)
        for (int i = 0; i < operations[o].test_count; i++)
            for (int option = 0; option < operations[o].options; option++)
                for (int direction = FORWARD; direction <= BACKWARD; direction++)
                    if ((!pattern || fnmatch(pattern, operations[o].name, 0) == 0) &&
                        !is_left_out(&operations[o], i, option) &&
                        case_make(&c, &operations[o], operations[o].tests[i], option, gap, type) &&
                        c.directions[direction]) {
                        good = check(&c, direction) && good;
                        checked++;
                    }
    assert_true(checked > (pattern ? 0 : 500));
    return good;
}

/* ---- finite differences */

/* For a random dy let f(x) = sum(dy * y(x)); backward gives df/dx from dy, and the central
 * difference gives it again, one element at a time. */
static double functional(const struct op_case *c, const struct numbers *before)
{
    struct numbers after = run(c, FORWARD, &ref, before);
    double sum = 0.0;

    for (int i = 0; i < c->count; i++) {
        const struct operand *dy = &c->operands[i];
        if (dy->role[FORWARD] == UNUSED && dy->role[BACKWARD] == IN && dy->name[0] == 'd')
            for (int j = 0; j < c->count; j++)
                if (strcmp(c->operands[j].name, dy->name + 1) == 0)
                    for (int64_t n = 0; n < tensor_count(dy->shape); n++)
                        sum += before->of[i][n] * after.of[j][n];
        if (strcmp(dy->name, "nll") == 0) /* cross-entropy is a loss itself */
            for (int64_t n = 0; n < tensor_count(dy->shape); n++)
                sum += c->weight * after.of[i][n];
    }
    numbers_free(&after);
    return sum;
}

/* The largest difference in the gradient d of x, relative to its largest element or to 1. */
static double gradient_error(const struct op_case *c, struct numbers *forward,
                             const struct numbers *before, const struct numbers *after, int x,
                             int d)
{
    const double step = 1e-5;
    const struct operand *o = &c->operands[d];
    double error = 0.0, largest = 1.0;

    for (int64_t n = 0; n < tensor_count(o->shape); n++) {
        double at = forward->of[x][n], above, below, numeric, analytic = after->of[d][n];
        if (o->view && n % o->shape.shape[1] >= o->heads[2] * o->heads[3])
            continue;
        forward->of[x][n] = at + step;
        above = functional(c, forward);
        forward->of[x][n] = at - step;
        below = functional(c, forward);
        forward->of[x][n] = at;
        numeric = (above - below) / (2.0 * step);
        analytic -= o->role[BACKWARD] == ADDED ? before->of[d][n] : 0.0;
        error = isfinite(analytic) ? fmax(error, fabs(analytic - numeric)) : INFINITY;
        largest = fmax(largest, fabs(numeric));
    }
    return error / largest;
}

/* Cases of at most so many elements to differentiate by: each costs two forward passes. */
enum { ELEMENTS_MAX = 900 };

/* By operation: a name that matches nothing must not pass as a gradient that is right. */
enum { OPERATIONS_MAX = 64 };
static int cases_differentiated[OPERATIONS_MAX], gradients_compared[OPERATIONS_MAX];

static bool check_gradients(const struct op_case *c, int direction)
{
    struct numbers forward, before, after;
    double error = 0.0;
    int64_t elements = 0;

    for (int i = 0; i < c->count; i++)
        elements +=
            is_written(c->operands[i].role[BACKWARD]) ? tensor_count(c->operands[i].shape) : 0;
    if (direction == FORWARD || c->in_place || elements > ELEMENTS_MAX)
        return true;
    forward = prepare(c, FORWARD);
    before = prepare(c, BACKWARD);
    after = run(c, BACKWARD, &ref, &before);
    for (int d = 0; d < c->count; d++)
        for (int x = 0; x < c->count; x++)
            if (is_written(c->operands[d].role[BACKWARD]) && c->operands[d].name[0] == 'd' &&
                strcmp(c->operands[x].name, c->operands[d].name + 1) == 0) {
                error = fmax(error, gradient_error(c, &forward, &before, &after, x, d));
                gradients_compared[c->operation - operations]++;
            }
    numbers_free(&forward);
    numbers_free(&before);
    numbers_free(&after);
    cases_differentiated[c->operation - operations]++;
    return report(c, direction, "ref", error, 3e-7, NULL);
}

static void gradients_equal_finite_differences(void **state)
{
    (void)state;
    assert_in_range(operation_count, 1, OPERATIONS_MAX);
    assert_true(for_every_case(DTYPE_F64, CASE_GAP, check_gradients));
    for (int o = 0; o < operation_count; o++)
        if (cases_differentiated[o] > 0 && gradients_compared[o] == 0)
            fail_msg("%s: no operand of backward is named as the gradient of one of forward",
                     operations[o].name);
}

/* Layers on both sides of an activation are two operations, whose gradients meet in up:
 *
 *   activated = act(up),  up = x weight1^T + bias1,     y = activated weight2^T + bias2 */
enum { ROWS = 3, C = 4, F = 7 };

struct layers {
    int kind;
    struct dropout dropout;
    double x[ROWS * C], weight1[2 * F * C], bias1[2 * F], weight2[C * F], bias2[C];
};

static double two_layers(struct layers *l, const double *dy, double *up, double *activated)
{
    int64_t width = l->kind == ALIBI_SWIGLU ? 2 * F : F;
    double y[ROWS * C], sum = 0.0;
    struct linear_activation_args first = { .kind = l->kind,
                                            .dropout = l->dropout,
                                            .activated = tensor_2(activated, DTYPE_F64, ROWS, F),
                                            .up = tensor_2(up, DTYPE_F64, ROWS, width),
                                            .x = tensor_2(l->x, DTYPE_F64, ROWS, C),
                                            .weight = tensor_2(l->weight1, DTYPE_F64, width, C),
                                            .bias = tensor_1(l->bias1, DTYPE_F64, width) };
    struct linear_args second = { .y = tensor_2(y, DTYPE_F64, ROWS, C),
                                  .x = first.activated,
                                  .weight = tensor_2(l->weight2, DTYPE_F64, C, F),
                                  .bias = tensor_1(l->bias2, DTYPE_F64, C) };

    assert_ok(ops_ref.linear_activation_forward(&ref, &first));
    assert_ok(ops_ref.linear_forward(&ref, &second));
    for (int i = 0; i < ROWS * C; i++)
        sum += dy[i] * y[i];
    return sum;
}

static void gradients_of_layers_around_an_activation_equal_finite_differences(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++) {
        int kind = n % 4; /* enum alibi_activation */
        int64_t width = kind == ALIBI_SWIGLU ? 2 * F : F;
        struct dropout dropout = { n < 4 ? 0.0 : 0.4, 3, 4 };
        struct layers l = { .kind = kind, .dropout = dropout }, d = { .kind = kind };
        double dy[ROWS * C], up[ROWS * 2 * F], activated[ROWS * F], dup[ROWS * 2 * F];
        double scratch[ROWS * F], *numbers = l.x, *gradients = d.x, error = 0.0;
        int64_t count = (int64_t)(sizeof l - offsetof(struct layers, x)) / (int64_t)sizeof(double);

        for (int64_t i = 0; i < count; i++)
            numbers[i] = random_normal(1, 1, (uint64_t)i);
        for (int i = 0; i < ROWS * C; i++)
            dy[i] = random_normal(1, 2, (uint64_t)i);
        two_layers(&l, dy, up, activated);
        struct linear_activation_args second = {
            .kind = kind,
            .dropout = dropout,
            .dup = tensor_2(dup, DTYPE_F64, ROWS, width),
            .dup_sums = tensor_1(d.bias1, DTYPE_F64, width),
            .scratch = tensor_2(scratch, DTYPE_F64, ROWS, F),
            .dweight = tensor_2(d.weight2, DTYPE_F64, C, F),
            .dbias = tensor_1(d.bias2, DTYPE_F64, C),
            .dy = tensor_2(dy, DTYPE_F64, ROWS, C),
            .activated = tensor_2(activated, DTYPE_F64, ROWS, F),
            .weight = tensor_2(l.weight2, DTYPE_F64, C, F),
            .up = tensor_2(up, DTYPE_F64, ROWS, width),
        };
        struct linear_args first = { .dx = tensor_2(d.x, DTYPE_F64, ROWS, C),
                                     .dweight = tensor_2(d.weight1, DTYPE_F64, width, C),
                                     .dy = second.dup,
                                     .x = tensor_2(l.x, DTYPE_F64, ROWS, C),
                                     .weight = tensor_2(l.weight1, DTYPE_F64, width, C) };
        assert_ok(ops_ref.linear_activation_backward(&ref, &second));
        assert_ok(ops_ref.linear_backward(&ref, &first));
        for (int64_t i = 0; i < count; i++) {
            double at = numbers[i], above, below;
            numbers[i] = at + 1e-5;
            above = two_layers(&l, dy, up, activated);
            numbers[i] = at - 1e-5;
            below = two_layers(&l, dy, up, activated);
            numbers[i] = at;
            error = fmax(error, fabs(gradients[i] - (above - below) / 2e-5));
        }
        printf("layers around activation %d dropout %g ref f64  error %.1e  limit 1.0e-07\n", kind,
               dropout.p, error);
        assert_true(error <= 1e-7);
    }
}

/* ---- the CPU in fp32 */

static bool check_cpu(const struct op_case *c, int direction)
{
    struct numbers before = prepare(c, direction), expected = solve_exactly(c, direction, &before);
    bool good = true;

    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        struct device dev = { .ops = &ops };
        const char *wrong = NULL;
        struct error worst;

        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        omp_set_num_threads(1);
        struct numbers got = run(c, direction, &dev, &before);
        for (int threads = 2; threads <= 3 && !c->operation->blas; threads++) {
            omp_set_num_threads(threads);
            struct numbers again = run(c, direction, &dev, &before);
            if (!same_bits(c, direction, &got, &again))
                wrong = "DIFFERS WITH THE NUMBER OF THREADS";
            numbers_free(&again);
        }
        omp_set_num_threads(1);
        worst = largest_error(c, direction, &before, &got, &expected);
        good = report(c, direction, cpu_set_name(s), worst.error, worst.limit, wrong) && good;
        numbers_free(&got);
    }
    numbers_free(&before);
    numbers_free(&expected);
    return good;
}

static void every_instruction_set_equals_the_reference(void **state)
{
    (void)state;
    assert_true(for_every_case(DTYPE_F32, CASE_GAP, check_cpu));
}

/* ---- bf16 */

/* The largest error in units of one rounding: relative to the number itself, or to the largest one
 * if more than one rounding is on the way. */
static double largest_rounding(const struct op_case *c, int direction, const struct numbers *got,
                               const struct numbers *exact)
{
    double worst = 0.0;

    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        bool rough = o->shape.type == DTYPE_BF16 || c->stores_first;
        double unit = rough ? 0x1.001p-8 : 0x1.001p-24, largest = 0.0;
        if (!is_written(o->role[direction]) || o->same_as >= 0)
            continue;
        for (int64_t n = 0; n < tensor_count(o->shape); n++)
            largest = fmax(largest, fabs(exact->of[i][n]));
        for (int64_t n = 0; n < tensor_count(o->shape); n++) {
            double size = c->operation->roundings > 1 ? largest : fabs(exact->of[i][n]);
            double error = fabs(got->of[i][n] - exact->of[i][n]) / (unit * size + 1e-38);
            worst = isnan(error) ? INFINITY : fmax(worst, error);
        }
    }
    return worst;
}

static bool check_bf16(const struct op_case *c, int direction)
{
    struct numbers before, exact, got;
    const char *wrong = NULL;
    bool good;

    if (c->operation->roundings == 0)
        return true;
    before = prepare(c, direction);
    exact = solve_exactly(c, direction, &before);
    got = run(c, direction, &ref, &before);
    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        struct device dev = { .ops = &ops };
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        struct numbers set = run(c, direction, &dev, &before);
        wrong = same_bits(c, direction, &got, &set) ? wrong : "THE CPU DIFFERS";
        numbers_free(&set);
    }
    good = report(c, direction, "ref", largest_rounding(c, direction, &got, &exact),
                  c->operation->roundings, wrong);
    numbers_free(&before);
    numbers_free(&exact);
    numbers_free(&got);
    return good;
}

static void bf16_is_the_exact_result_rounded(void **state)
{
    (void)state;
    assert_true(for_every_case(DTYPE_BF16, CASE_GAP, check_bf16));
}

/* ---- a device that is reached by transfers: the GPU */

static struct device *remote;

static bool check_remote(const struct op_case *c, int direction)
{
    struct numbers before, exact, got, again;
    const char *wrong = NULL;
    struct error worst;
    bool good;

    if (c->type == DTYPE_BF16 && c->operation->roundings == 0)
        return true;
    before = prepare(c, direction);
    exact = solve_exactly(c, direction, &before);
    got = run_on(c, direction, remote, false, &before);
    again = run_on(c, direction, remote, false, &before);
    if (!same_bits(c, direction, &got, &again))
        wrong = "DIFFERS THE SECOND TIME";
    worst = largest_error(c, direction, &before, &got, &exact);
    good = report(c, direction, remote->ops->name, worst.error, worst.limit, wrong);
    numbers_free(&before);
    numbers_free(&exact);
    numbers_free(&got);
    numbers_free(&again);
    return good;
}

static void the_gpu_equals_the_reference(void **state)
{
    alibi_device *device = open_gpu(ALIBI_FP32);
    bool good = true;

    (void)state;
    if (!device)
        skip_because("no GPU");
    remote = &device->device;
    for (int n = 2 * first_type(); n < 4; n++)
        if (!few_cases() || n % 3 == 0) /* bf16 aligned, fp32 not */
            good = for_every_case(gpu_types[n / 2], n % 2 ? 0 : CASE_GAP, check_remote) && good;
    alibi_device_free(device);
    assert_true(good);
}

/* The CPU by transfers, in the place of a GPU: shows that what the GPU's test relies on works. */
static void a_device_reached_by_transfers_equals_the_reference(void **state)
{
    struct device cpu = { .ops = ops_cpu() };

    (void)state;
    remote = &cpu;
    assert_true(for_every_case(DTYPE_F32, CASE_GAP, check_remote));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_finite_differences),
        cmocka_unit_test(gradients_of_layers_around_an_activation_equal_finite_differences),
        cmocka_unit_test(every_instruction_set_equals_the_reference),
        cmocka_unit_test(bf16_is_the_exact_result_rounded),
        cmocka_unit_test(a_device_reached_by_transfers_equals_the_reference),
        cmocka_unit_test(the_gpu_equals_the_reference),
    };

    choose_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
