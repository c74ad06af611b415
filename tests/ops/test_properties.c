/* test_properties.c - what holds for every backend, beyond agreeing with the reference: equal bits
 * along different ways, NaN that shows, sums in double. The GPU takes part if there is one. */
#include "ops/gpu.h"
#include "ops/solve.h"

enum { SEED = 5 };

/* ---- backends */

struct backend {
    const char *name;
    struct device *dev;
    bool host; /* see place() */
};

static void for_every_backend(void (*check)(const struct backend *b))
{
    struct backend reference = { "ref", &ref, true };
    alibi_device *gpu_present = open_gpu(ALIBI_FP32);

    check(&reference);
    for (int s = 0; cpu_set_name(s); s++) {
        struct ops ops;
        struct device dev = { .ops = &ops };
        assert_true(cpu_ops_for_set(&ops, cpu_set_name(s)));
        check(&(struct backend){ cpu_set_name(s), &dev, true });
    }
    if (gpu_present)
        check(&(struct backend){ "cuda", &gpu_present->device, false });
    alibi_device_free(gpu_present);
}

/* Numbers of a normal distribution in a tensor of that shape. */
static struct tensor random_tensor(const struct backend *b, struct tensor shape, uint64_t stream)
{
    int64_t count = tensor_count(shape);
    double *numbers = NULL;

    assert_ok(NEW_ARRAY(&numbers, count + 1, "test"));
    for (int64_t i = 0; i < count; i++)
        numbers[i] = random_normal(SEED, stream, (uint64_t)i);
    shape.data = place(b->dev, b->host, shape.type, numbers, count).data;
    mem_free(numbers);
    return shape;
}

/* Takes the tensors back and compares each with the first; none may have a NaN. */
static void assert_same_numbers(const struct backend *b, const char *what, struct tensor *tensors,
                                int how_many)
{
    int64_t count = tensor_count(tensors[0]);
    double *first = NULL, *other = NULL;

    assert_ok(NEW_ARRAY(&first, count + 1, "test"));
    assert_ok(NEW_ARRAY(&other, count + 1, "test"));
    for (int i = 0; i < how_many; i++) {
        tensors[i] = tensor_1(tensors[i].data, tensors[i].type, count);
        take_back(b->dev, b->host, tensors[i], i == 0 ? first : other);
        for (int64_t n = 0; n < count; n++)
            if (!(first[n] == (i == 0 ? first : other)[n]))
                fail_msg("%s: %s differs at %lld: %a, %a", b->name, what, (long long)n, first[n],
                         other[n]);
    }
    mem_free(first);
    mem_free(other);
}

/* ---- norms: forward with its residual, in two steps, and as backward gives it again */

static void check_norm_bits(const struct backend *b, enum dtype type, int64_t rows, int64_t C,
                            int kind, double p)
{
    const struct ops *ops = b->dev->ops;
    bool mean = kind == ALIBI_LAYERNORM; /* RMS norm has none */
    struct tensor matrix = tensor_2(NULL, type, rows, C), row = tensor_1(NULL, dtype_sums(type), C);
    struct tensor column = tensor_1(NULL, dtype_sums(type), rows);
    struct norm_args whole = { .kind = kind,
                               .y = random_tensor(b, matrix, 1),
                               .sum = random_tensor(b, matrix, 2),
                               .mean = mean ? random_tensor(b, column, 3) : tensor_none(),
                               .rstd = random_tensor(b, column, 4),
                               .x = random_tensor(b, matrix, 5),
                               .branch = random_tensor(b, matrix, 6),
                               .weight = random_tensor(b, row, 7),
                               .bias = random_tensor(b, row, 8),
                               .dropout = { p, 3, 4 },
                               .eps = 1e-5 };
    struct norm_args norm = whole, back;

    norm.y = random_tensor(b, matrix, 9);
    norm.mean = mean ? random_tensor(b, column, 10) : tensor_none();
    norm.rstd = random_tensor(b, column, 11);
    norm.x = random_tensor(b, matrix, 12);
    norm.sum = norm.branch = tensor_none();
    back = whole;
    back.x = whole.sum;
    back.y = random_tensor(b, matrix, 13);
    back.dy = random_tensor(b, matrix, 14);
    back.dx = random_tensor(b, matrix, 15);
    back.dweight = random_tensor(b, row, 16);
    back.dbias = random_tensor(b, row, 17);
    assert_ok(ops->residual_forward(b->dev, norm.x, whole.x, whole.branch, whole.dropout));
    assert_ok(ops->norm_forward(b->dev, &whole));
    assert_ok(ops->norm_forward(b->dev, &norm));
    assert_ok(ops->norm_backward(b->dev, &back));
    assert_same_numbers(b, "y", (struct tensor[]){ whole.y, norm.y, back.y }, 3);
    assert_same_numbers(b, "sum", (struct tensor[]){ whole.sum, norm.x }, 2);
    assert_same_numbers(b, "rstd", (struct tensor[]){ whole.rstd, norm.rstd }, 2);
    if (mean)
        assert_same_numbers(b, "mean", (struct tensor[]){ whole.mean, norm.mean }, 2);
    struct tensor rest[] = { whole.x, whole.branch, whole.weight, whole.bias,
                             back.dy, back.dx,      back.dweight, back.dbias };
    for (int i = 0; i < COUNT_OF(rest); i++)
        b->dev->ops->buffer_free(b->dev, rest[i].data);
}

static void check_norms(const struct backend *b)
{
    static const int64_t shapes[][2] = { { 0, 4 },    { 3, 1 },    { 2, 7 },    { 17, 16 },
                                         { 5, 33 },   { 90, 401 }, { 700, 64 }, { 3, 4101 },
                                         { 40, 768 }, { 3, 4096 } };
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F64 };

    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int n = 0; n < (b->host ? 12 : 8); n++) /* a GPU has no double */
            check_norm_bits(b, types[n / 4], shapes[i][0], shapes[i][1],
                            n & 1 ? ALIBI_RMSNORM : ALIBI_LAYERNORM, n & 2 ? 0.3 : 0.0);
}

static void a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass(
    void **state)
{
    (void)state;
    for_every_backend(check_norms);
}

/* ---- NaN */

/* A NaN in the first number of x or of the logits must show in some result: a comparison that is
 * false for NaN would lose it. The only backward pass with a comparison is that of activations. */
static void check_nan(const struct backend *b, const struct op_case *c, int direction)
{
    struct numbers before = prepare(c, direction), after;
    int x = -1;
    bool shows = false, any = false;

    for (int i = 0; i < c->count; i++)
        if (c->operands[i].role[direction] == IN && tensor_count(c->operands[i].shape) > 0 &&
            c->operands[i].same_as < 0 &&
            (strcmp(c->operands[i].name, "x") == 0 || strcmp(c->operands[i].name, "logits") == 0))
            x = i;
    if (x >= 0) {
        before.of[x][0] = (double)NAN;
        after = run_on(c, direction, b->dev, b->host, &before);
        for (int i = 0; i < c->count; i++)
            for (int64_t n = 0; is_written(c->operands[i].role[direction]) &&
                                n < tensor_count(c->operands[i].shape);
                 n++) {
                any = true;
                shows = shows || isnan(after.of[i][n]);
            }
        if (any && !shows)
            fail_msg("%s %s %s: the NaN in x is hidden", b->name, c->operation->name, c->text);
        numbers_free(&after);
    }
    numbers_free(&before);
}

static void check_nans(const struct backend *b)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    struct op_case c;

    for (int o = 0; o < operation_count; o++)
        for (int i = 0; i < operations[o].test_count * 2; i++)
            for (int option = 0; option < operations[o].options; option++)
                for (int direction = FORWARD; direction <= BACKWARD; direction++)
                    if (case_make(&c, &operations[o], operations[o].tests[i / 2], option, 0,
                                  types[i % 2]) &&
                        c.directions[direction] && c.n[0] < 100 &&
                        (direction == FORWARD || strcmp(operations[o].name, "activation") == 0))
                        check_nan(b, &c, direction);
}

static void a_nan_is_never_hidden(void **state)
{
    (void)state;
    for_every_backend(check_nans);
}

/* ---- sums */

/* Against sums in the order of the elements, in double; the same bits twice. */
static void check_sum(const struct backend *b, const double *x, int64_t count, enum dtype type)
{
    struct tensor t = place(b->dev, b->host, type, x, count);
    double squares[2], sums[2], want_squares = 0.0, want = 0.0, size = 0.0, *stored = NULL;

    for (int n = 0; n < 2; n++) {
        assert_ok(b->dev->ops->sum_squares(b->dev, &squares[n], t));
        assert_ok(b->dev->ops->sum(b->dev, &sums[n], t));
    }
    assert_ok(NEW_ARRAY(&stored, count + 1, "test"));
    take_back(b->dev, b->host, t, stored);
    for (int64_t i = 0; i < count; i++) {
        want_squares += stored[i] * stored[i];
        want += stored[i];
        size += fabs(stored[i]);
    }
    mem_free(stored);
    assert_memory_equal(&squares[0], &squares[1], sizeof squares[0]);
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
    if (!isfinite(want_squares)) {
        assert_true(!isfinite(squares[0]) && !isfinite(sums[0]));
        return;
    }
    assert_close(squares[0], want_squares, 1e-12 * want_squares);
    assert_close(sums[0], want, 1e-12 * size);
}

static void check_sums(const struct backend *b)
{
    enum { MOST = 300017 };
    static const int64_t counts[] = { 0, 1, 15, 255, 4096, 4097, 50021, MOST };
    static const double odd[] = { (double)NAN, (double)INFINITY, -(double)INFINITY };
    double *x = NULL;

    assert_ok(NEW_ARRAY(&x, MOST, "test"));
    for (int type = 0; type < 2; type++) {
        for (int64_t i = 0; i < MOST; i++)
            x[i] = random_normal(SEED, 3, (uint64_t)i);
        for (int i = 0; i < COUNT_OF(counts); i++)
            check_sum(b, x, counts[i], gpu_types[type]);
        for (int n = 0; n < 9; n++) { /* first, in the middle, last */
            int64_t at = n / 3 * (MOST - 1) / 2;
            double kept = x[at];
            x[at] = odd[n % 3];
            check_sum(b, x, MOST, gpu_types[type]);
            x[at] = kept;
        }
        for (int i = 0; i < 1000; i++)
            x[i] = 1e30; /* squares beyond fp32 */
        check_sum(b, x, 1000, gpu_types[type]);
    }
    mem_free(x);
}

static void sums_are_those_in_double_and_not_finite_if_a_number_is_not(void **state)
{
    (void)state;
    for_every_backend(check_sums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_norm_has_the_same_bits_with_its_residual_without_and_from_the_backward_pass),
        cmocka_unit_test(a_nan_is_never_hidden),
        cmocka_unit_test(sums_are_those_in_double_and_not_finite_if_a_number_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
