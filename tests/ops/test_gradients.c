/* test_gradients.c - every backward operation against finite differences, in double
 *
 * For a random w of the output's shape let f(x) = sum(w * y(x)). The backward operation gives df/dx
 * from dy = w; the central difference (f(x + h) - f(x - h)) / 2h gives it again, one element at a
 * time. Every gradient starts from random numbers: where it accumulates they must still be in it,
 * where it is overwritten they must be gone. */
#include "ops/ops.h"

#include "ops/calls.h"
#include "check.h"

#define LIMIT 1e-7
#define STEP 1e-5
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { INPUTS_MAX = 5, SEED = 7 };

/* One differentiable input, its gradient, and what the gradient held before. */
struct input {
    struct tensor x, dx, before;
    bool accumulates;
};

/* One case: forward computes y from the inputs, backward every dx from dy. The rest is whatever the
 * operation needs. */
struct problem {
    void (*forward)(struct problem *p);
    void (*backward)(struct problem *p);
    struct input in[INPUTS_MAX];
    int inputs;
    struct tensor y, dy;
    struct tensor kept, kept_too; /* by forward, for backward */
    struct tensor sum, dsum;      /* of a residual, and its gradient */
    struct tensor again;          /* y, by backward */
    struct tensor scratch, dup;   /* of backward */
    struct tensor table;          /* of angles */
    struct tensor index;          /* tokens, targets, buckets */
    int64_t B, L, H, Hkv, D, start;
    int layout;
    int kind;
    double scale;
    struct dropout drop;
};

static struct device device = { .ops = &ops_ref };

/* ---- making */

static struct tensor new_tensor(enum dtype type, int64_t rows, int64_t columns)
{
    void *data;

    assert_ok(mem_new_zero(&data, (size_t)(rows * columns) * dtype_bytes(type), "a test tensor"));
    return tensor_2(data, type, rows, columns);
}

/* Each call draws from a stream of its own. */
static struct tensor random_tensor(int64_t rows, int64_t columns)
{
    static uint64_t stream;
    struct tensor t = new_tensor(DTYPE_F64, rows, columns);

    stream++;
    for (int64_t i = 0; i < rows * columns; i++)
        ((double *)t.data)[i] = random_normal(SEED, stream, (uint64_t)i);
    return t;
}

static struct tensor random_index(int64_t rows, int64_t columns, int64_t below)
{
    struct tensor t = new_tensor(DTYPE_I32, rows, columns);

    for (int64_t i = 0; i < rows * columns; i++)
        ((int32_t *)t.data)[i] = (int32_t)random_below(SEED, 0, (uint64_t)i, (uint64_t)below);
    return t;
}

static void add_input(struct problem *p, int64_t rows, int64_t columns, bool accumulates)
{
    struct input *in = &p->in[p->inputs++];

    *in = (struct input){ .accumulates = accumulates };
    in->x = random_tensor(rows, columns);
    in->dx = random_tensor(rows, columns);
    in->before = new_tensor(DTYPE_F64, rows, columns);
    memcpy(in->before.data, in->dx.data, (size_t)(rows * columns) * sizeof(double));
}

static void add_absent(struct problem *p)
{
    p->in[p->inputs++] = (struct input){ tensor_none(), tensor_none(), tensor_none(), false };
}

static void add_output(struct problem *p, int64_t rows, int64_t columns)
{
    p->y = new_tensor(DTYPE_F64, rows, columns);
    p->dy = random_tensor(rows, columns);
}

static void free_problem(struct problem *p)
{
    struct tensor others[] = { p->y,     p->dy,      p->kept, p->kept_too, p->sum,  p->dsum,
                               p->again, p->scratch, p->dup,  p->table,    p->index };

    for (int i = 0; i < p->inputs; i++) {
        mem_free(p->in[i].x.data);
        mem_free(p->in[i].dx.data);
        mem_free(p->in[i].before.data);
    }
    for (size_t i = 0; i < COUNT(others); i++)
        mem_free(others[i].data);
}

/* ---- comparing */

static double functional(struct problem *p)
{
    const double *y = p->y.data, *w = p->dy.data;
    double sum = 0.0;

    p->forward(p);
    for (int64_t i = 0; i < tensor_count(p->y); i++)
        sum += w[i] * y[i];
    return sum;
}

static double finite_difference(struct problem *p, double *x)
{
    double at = *x, above, below;

    *x = at + STEP;
    above = functional(p);
    *x = at - STEP;
    below = functional(p);
    *x = at;
    return (above - below) / (2.0 * STEP);
}

/* Largest difference in one input's gradient, relative to its largest element or to 1. */
static double input_error(struct problem *p, struct input *in)
{
    double *x = in->x.data, *dx = in->dx.data, *before = in->before.data;
    double error = 0.0, largest = 1.0;

    for (int64_t i = 0; i < tensor_count(in->x); i++) {
        double numeric = finite_difference(p, x + i);
        double analytic = dx[i] - (in->accumulates ? before[i] : 0.0);
        assert_true(isfinite(analytic) && isfinite(numeric));
        error = fmax(error, fabs(analytic - numeric));
        largest = fmax(largest, fabs(numeric));
    }
    return error / largest;
}

/* Prints the case's line, requires its gradients to be right, and frees it. */
__attribute__((format(printf, 3, 4))) static void check(struct problem *p, const char *operation,
                                                        const char *format, ...)
{
    double error = 0.0;
    char shape[96];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(shape, sizeof shape, format, arguments);
    va_end(arguments);
    p->forward(p);
    p->backward(p);
    for (int i = 0; i < p->inputs; i++)
        error = fmax(error, input_error(p, &p->in[i]));
    printf("%-20s ref f64 %-38s error %.1e  limit %.1e  %s\n", operation, shape, error, LIMIT,
           error <= LIMIT ? "ok" : "FAILED");
    assert_true(error <= LIMIT);
    free_problem(p);
}

/* ---- embedding */

static struct tensor batched(const struct problem *p, struct tensor t)
{
    return tensor_3(t.data, t.type, p->B, p->L, t.shape[1]);
}

static void embedding_forward(struct problem *p)
{
    assert_ok(ops_ref.embedding_forward(&device, &(struct embedding_args){ .y = batched(p, p->y),
                                                                           .tokens = p->index,
                                                                           .weight = p->in[0].x,
                                                                           .table = p->in[1].x,
                                                                           .start = p->start,
                                                                           .scale = p->scale }));
}

static void embedding_backward(struct problem *p)
{
    assert_ok(ops_ref.embedding_backward(&device, &(struct embedding_args){ .dweight = p->in[0].dx,
                                                                            .dtable = p->in[1].dx,
                                                                            .dy = batched(p, p->dy),
                                                                            .tokens = p->index,
                                                                            .start = p->start,
                                                                            .scale = p->scale }));
}

static void embedding_gradients_equal_finite_differences(void **state)
{
    /* B, L, V, C, rows of the table (0: absent), start */
    static const int cases[][6] = { { 2, 5, 3, 7, 5, 0 }, { 3, 4, 11, 1, 0, 0 },
                                    { 1, 1, 1, 1, 1, 0 }, { 2, 3, 5, 4, 9, 6 },
                                    { 0, 3, 2, 3, 3, 0 }, { 2, 0, 2, 3, 3, 0 } };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int *n = cases[i];
        struct problem p = { .forward = embedding_forward,
                             .backward = embedding_backward,
                             .B = n[0],
                             .L = n[1],
                             .start = n[5],
                             .scale = 1.7 };
        add_input(&p, n[2], n[3], true);
        if (n[4] > 0)
            add_input(&p, n[4], n[3], true);
        else
            add_absent(&p);
        add_output(&p, p.B * p.L, n[3]);
        p.index = random_index(p.B, p.L, n[2]);
        check(&p, "embedding_backward", "B=%d L=%d V=%d C=%d P=%d start=%d", n[0], n[1], n[2], n[3],
              n[4], n[5]);
    }
}

/* ---- linear */

static void linear_forward(struct problem *p)
{
    assert_ok(ops_ref.linear_forward(
        &device, &(struct linear_args){
                     .y = p->y, .x = p->in[0].x, .weight = p->in[1].x, .bias = p->in[2].x }));
}

static void linear_backward(struct problem *p)
{
    assert_ok(ops_ref.linear_backward(&device, &(struct linear_args){ .dx = p->in[0].dx,
                                                                      .dweight = p->in[1].dx,
                                                                      .dbias = p->in[2].dx,
                                                                      .dy = p->dy,
                                                                      .x = p->in[0].x,
                                                                      .weight = p->in[1].x }));
}

static void add_optional(struct problem *p, bool present, int64_t rows, int64_t columns,
                         bool accumulates)
{
    if (present)
        add_input(p, rows, columns, accumulates);
    else
        add_absent(p);
}

static void linear_gradients_equal_finite_differences(void **state)
{
    /* rows, in, out, bias */
    static const int cases[][4] = { { 1, 1, 1, 1 }, { 5, 3, 7, 1 }, { 7, 5, 3, 0 },
                                    { 0, 3, 2, 1 }, { 3, 0, 2, 1 }, { 2, 3, 0, 1 } };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int *n = cases[i];
        struct problem p = { .forward = linear_forward, .backward = linear_backward };
        add_input(&p, n[0], n[1], false);
        add_input(&p, n[2], n[1], true);
        add_optional(&p, n[3], 1, n[2], true);
        add_output(&p, n[0], n[2]);
        check(&p, "linear_backward", "rows=%d in=%d out=%d%s", n[0], n[1], n[2],
              n[3] ? " bias" : "");
    }
}

/* Without dweight nobody looks at x. */
static void linear_gives_the_same_gradient_of_its_input_alone(void **state)
{
    struct tensor dy = random_tensor(5, 7), x = random_tensor(5, 3), weight = random_tensor(7, 3);
    struct tensor dx = random_tensor(5, 3), alone = random_tensor(5, 3),
                  dweight = random_tensor(7, 3);
    struct tensor all[] = { dy, x, weight, dx, alone, dweight };

    (void)state;
    assert_ok(ops_ref.linear_backward(
        &device,
        &(struct linear_args){ .dx = dx, .dweight = dweight, .dy = dy, .x = x, .weight = weight }));
    assert_ok(ops_ref.linear_backward(
        &device, &(struct linear_args){ .dx = alone, .dy = dy, .weight = weight }));
    assert_memory_equal(alone.data, dx.data, 15 * sizeof(double));
    for (size_t i = 0; i < COUNT(all); i++)
        mem_free(all[i].data);
}

/* ---- norms: x, weight, bias, branch. kind: RMS norm. dx accumulates here: the residual stream's
 * gradient is already in it. */

static const double norm_eps = 1e-5;

static void norm_forward(struct problem *p)
{
    struct tensor x = p->in[0].x, weight = p->in[1].x, bias = p->in[2].x, branch = p->in[3].x;

    if (p->kind)
        assert_ok(ops_ref.norm_forward(&device, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                                     .y = p->y,
                                                                     .rstd = p->kept,
                                                                     .sum = p->sum,
                                                                     .x = x,
                                                                     .branch = branch,
                                                                     .dropout = p->drop,
                                                                     .weight = weight,
                                                                     .bias = bias,
                                                                     .eps = norm_eps }));
    else
        assert_ok(ops_ref.norm_forward(&device, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                                     .y = p->y,
                                                                     .mean = p->kept_too,
                                                                     .rstd = p->kept,
                                                                     .sum = p->sum,
                                                                     .x = x,
                                                                     .branch = branch,
                                                                     .dropout = p->drop,
                                                                     .weight = weight,
                                                                     .bias = bias,
                                                                     .eps = norm_eps }));
}

/* Of the norm alone, onto dx; y must come out as it did before. */
static void norm_alone_backward(struct problem *p, struct tensor dx, struct tensor x)
{
    struct input *weight = &p->in[1], *bias = &p->in[2];

    if (p->kind)
        assert_ok(ops_ref.norm_backward(&device, &(struct norm_args){ .kind = ALIBI_RMSNORM,
                                                                      .dx = dx,
                                                                      .dweight = weight->dx,
                                                                      .dbias = bias->dx,
                                                                      .y = p->again,
                                                                      .dy = p->dy,
                                                                      .x = x,
                                                                      .weight = weight->x,
                                                                      .bias = bias->x,
                                                                      .rstd = p->kept }));
    else
        assert_ok(ops_ref.norm_backward(&device, &(struct norm_args){ .kind = ALIBI_LAYERNORM,
                                                                      .dx = dx,
                                                                      .dweight = weight->dx,
                                                                      .dbias = bias->dx,
                                                                      .y = p->again,
                                                                      .dy = p->dy,
                                                                      .x = x,
                                                                      .weight = weight->x,
                                                                      .bias = bias->x,
                                                                      .mean = p->kept_too,
                                                                      .rstd = p->kept }));
    if (p->again.data)
        assert_true(memcmp(p->again.data, p->y.data, (size_t)tensor_count(p->y) * sizeof(double)) ==
                    0);
}

/* Where there is a branch, the gradient of the sum is that of x and, behind the same dropout, that
 * of the branch. */
static void norm_backward(struct problem *p)
{
    struct input *x = &p->in[0], *branch = &p->in[3];

    if (branch->x.data == NULL) {
        norm_alone_backward(p, x->dx, x->x);
        return;
    }
    assert_ok(ops_ref.fill(&device, p->dsum, 0.0));
    norm_alone_backward(p, p->dsum, p->sum);
    assert_ok(ops_ref.residual_forward(&device, x->dx, x->dx, p->dsum, (struct dropout){ 0 }));
    assert_ok(ops_ref.dropout(&device, branch->dx, p->dsum, p->drop));
}

/* percent: dropped from the branch; -1: no branch */
static void check_norm(int rows, int C, bool bias, int percent, bool rms)
{
    struct problem p = { .forward = norm_forward, .backward = norm_backward, .kind = rms };

    p.drop = (struct dropout){ percent > 0 ? percent / 100.0 : 0.0, 3, 4 };
    add_input(&p, rows, C, true);
    add_input(&p, 1, C, true);
    add_optional(&p, bias, 1, C, true);
    add_optional(&p, percent >= 0, rows, C, false);
    add_output(&p, rows, C);
    p.kept = new_tensor(DTYPE_F64, 1, rows);
    p.kept_too = new_tensor(DTYPE_F64, 1, rows);
    if (percent >= 0) {
        p.sum = new_tensor(DTYPE_F64, rows, C);
        p.dsum = new_tensor(DTYPE_F64, rows, C);
    }
    if (!bias || percent >= 0)
        p.again = new_tensor(DTYPE_F64, rows, C);
    check(&p, rms ? "rmsnorm_backward" : "layernorm_backward", "rows=%d C=%d%s dropout %d%%", rows,
          C, bias ? " bias" : "", percent);
}

/* Layer norm of a single number is constant, RMS norm its sign. */
static void norm_gradients_equal_finite_differences(void **state)
{
    static const int cases[][3] = {
        { 1, 1, 1 }, { 1, 2, 0 }, { 5, 7, 1 }, { 3, 31, 0 }, { 0, 5, 1 }
    };
    static const int percents[] = { -1, 0, 30 };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t d = 0; d < COUNT(percents); d++)
            for (int rms = 0; rms < 2; rms++)
                check_norm(cases[i][0], cases[i][1], cases[i][2], percents[d], rms);
}

/* ---- activation */

static const char *const activation_names[] = { "gelu-tanh", "gelu-erf", "relu", "swiglu" };

static void activation_forward(struct problem *p)
{
    assert_ok(ops_ref.activation_forward(&device, p->kind, p->y, p->in[0].x));
}

static void activation_backward(struct problem *p)
{
    assert_ok(ops_ref.activation_backward(&device, p->kind, p->in[0].dx, p->dy, p->in[0].x));
}

static void activation_gradients_equal_finite_differences(void **state)
{
    static const int shapes[][2] = { { 1, 1 }, { 3, 37 }, { 0, 5 } };

    (void)state;
    for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            const int *n = shapes[i];
            struct problem p = { .forward = activation_forward,
                                 .backward = activation_backward,
                                 .kind = kind };
            add_input(&p, n[0], kind == ALIBI_SWIGLU ? 2 * n[1] : n[1], false);
            add_output(&p, n[0], n[1]);
            check(&p, "activation_backward", "rows=%d F=%d %s", n[0], n[1], activation_names[kind]);
        }
}

/* ---- a layer of two matrices with an activation between: x, weight, bias; weight, bias. The first
 * bias has its gradient from the sums of dup. */

enum { APART, OVER_UP, OVER_SCRATCH }; /* where dup goes */

static void two_layers_forward(struct problem *p)
{
    struct input *in = p->in;

    assert_ok(ops_ref.linear_activation_forward(
        &device, &(struct linear_activation_args){ .kind = p->kind,
                                                   .activated = p->kept_too,
                                                   .up = p->kept,
                                                   .x = in[0].x,
                                                   .weight = in[1].x,
                                                   .bias = in[2].x }));
    assert_ok(ops_ref.linear_forward(
        &device,
        &(struct linear_args){ .y = p->y, .x = p->kept_too, .weight = in[3].x, .bias = in[4].x }));
}

static void two_layers_backward(struct problem *p)
{
    struct input *in = p->in;
    struct tensor up = p->kept, activated = p->kept_too;
    struct tensor dup = p->start == OVER_UP ? up : p->start == OVER_SCRATCH ? p->scratch : p->dup;

    assert_ok(ops_ref.linear_activation_backward(
        &device, &(struct linear_activation_args){ .kind = p->kind,
                                                   .dup = dup,
                                                   .dup_sums = in[2].dx,
                                                   .scratch = p->scratch,
                                                   .dweight = in[3].dx,
                                                   .dbias = in[4].dx,
                                                   .dy = p->dy,
                                                   .activated = activated,
                                                   .weight = in[3].x,
                                                   .up = up }));
    assert_ok(ops_ref.linear_backward(
        &device,
        &(struct linear_args){
            .dx = in[0].dx, .dweight = in[1].dx, .dy = dup, .x = in[0].x, .weight = in[1].x }));
}

static void check_two_layers(int rows, int C, int F, int kind, bool bias, int where)
{
    static const char *const places[] = { "", " dup=up", " dup=scratch" };
    struct problem p = {
        .forward = two_layers_forward, .backward = two_layers_backward, .kind = kind, .start = where
    };
    int width = kind == ALIBI_SWIGLU ? 2 * F : F;

    add_input(&p, rows, C, false);
    add_input(&p, width, C, true);
    add_optional(&p, bias, 1, width, true);
    add_input(&p, C, F, true);
    add_optional(&p, bias, 1, C, true);
    add_output(&p, rows, C);
    p.kept = new_tensor(DTYPE_F64, rows, width);
    p.kept_too = new_tensor(DTYPE_F64, rows, F);
    p.scratch = new_tensor(DTYPE_F64, rows, F);
    p.dup = new_tensor(DTYPE_F64, rows, width);
    check(&p, "linear_activation", "rows=%d C=%d F=%d %s%s%s", rows, C, F, activation_names[kind],
          bias ? " bias" : "", places[where]);
}

static void linear_activation_gradients_equal_finite_differences(void **state)
{
    static const int shapes[][3] = { { 1, 1, 1 }, { 3, 4, 7 }, { 0, 3, 2 } };

    (void)state;
    for (int kind = ALIBI_GELU_TANH; kind <= ALIBI_SWIGLU; kind++)
        for (int where = APART; where <= (kind == ALIBI_SWIGLU ? OVER_UP : OVER_SCRATCH); where++)
            for (size_t i = 0; i < COUNT(shapes); i++)
                check_two_layers(shapes[i][0], shapes[i][1], shapes[i][2], kind, where != OVER_UP,
                                 where);
}

/* ---- residual: the gradient of x is dy, that of the branch dy behind the same dropout */

static void residual_forward(struct problem *p)
{
    assert_ok(ops_ref.residual_forward(&device, p->y, p->in[0].x, p->in[1].x, p->drop));
}

static void residual_backward(struct problem *p)
{
    assert_ok(ops_ref.dropout(&device, p->in[0].dx, p->dy, (struct dropout){ 0 }));
    assert_ok(ops_ref.dropout(&device, p->in[1].dx, p->dy, p->drop));
}

static void residual_gradients_equal_finite_differences(void **state)
{
    static const double rates[] = { 0.0, 0.3, 0.9 };
    static const int shapes[][2] = { { 1, 1 }, { 5, 7 }, { 0, 3 } };

    (void)state;
    for (size_t r = 0; r < COUNT(rates); r++)
        for (size_t i = 0; i < COUNT(shapes); i++) {
            const int *n = shapes[i];
            struct problem p = { .forward = residual_forward,
                                 .backward = residual_backward,
                                 .drop = { rates[r], 3, 4 } };
            add_input(&p, n[0], n[1], false);
            add_input(&p, n[0], n[1], false);
            add_output(&p, n[0], n[1]);
            check(&p, "residual_backward", "rows=%d C=%d p=%.1f", n[0], n[1], rates[r]);
        }
}

/* ---- attention. q, k and v lie packed in the rows of one input, as the model has them; the bias
 * is the other. */

static struct attention_args views(const struct problem *p, struct tensor packed,
                                   struct tensor bias)
{
    return (struct attention_args){
        .q = tensor_heads(packed, p->B, p->L, 0, p->H, p->D),
        .k = tensor_heads(packed, p->B, p->L, p->H * p->D, p->Hkv, p->D),
        .v = tensor_heads(packed, p->B, p->L, (p->H + p->Hkv) * p->D, p->Hkv, p->D),
        .bias = { (enum bias_kind)p->kind, bias },
        .scale = p->scale,
    };
}

static struct tensor heads(const struct problem *p, struct tensor t)
{
    return tensor_heads(t, p->B, p->L, 0, p->H, p->D);
}

static void attention_forward(struct problem *p)
{
    assert_ok(
        attention_forward_of(&device, heads(p, p->y), p->kept, views(p, p->in[0].x, p->in[1].x)));
}

static void attention_backward(struct problem *p)
{
    struct attention_args d = views(p, p->in[0].dx, p->in[1].dx);

    assert_ok(attention_backward_of(&device, d.q, d.k, d.v, p->in[1].dx, heads(p, p->dy),
                                    heads(p, p->y), p->kept, views(p, p->in[0].x, p->in[1].x)));
}

static void attention_gradients_equal_finite_differences(void **state)
{
    static const struct {
        int B, H, Hkv, L, D, bias, T;
    } cases[] = {
        { 1, 1, 1, 1, 1, BIAS_NONE, 0 },   { 2, 3, 3, 7, 5, BIAS_NONE, 0 },
        { 2, 3, 3, 7, 5, BIAS_LINEAR, 1 }, { 2, 3, 3, 7, 5, BIAS_TABLE, 7 },
        { 1, 2, 2, 11, 3, BIAS_TABLE, 4 }, { 1, 2, 1, 5, 2, BIAS_TABLE, 1 },
        { 2, 4, 2, 5, 3, BIAS_LINEAR, 1 }, { 1, 6, 2, 5, 1, BIAS_TABLE, 13 },
        { 1, 5, 1, 3, 2, BIAS_NONE, 0 },   { 0, 2, 1, 3, 2, BIAS_LINEAR, 1 },
        { 2, 2, 2, 0, 3, BIAS_TABLE, 3 },
    };
    static const char *const names[] = { "none", "linear", "table" };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int B = cases[i].B, H = cases[i].H, Hkv = cases[i].Hkv, L = cases[i].L, D = cases[i].D,
            T = cases[i].T;
        struct problem p = { .forward = attention_forward,
                             .backward = attention_backward,
                             .B = B,
                             .L = L,
                             .H = H,
                             .Hkv = Hkv,
                             .D = D };
        p.kind = cases[i].bias;
        p.scale = 1.0 / sqrt(D);
        add_input(&p, B * L, (H + 2 * Hkv) * D, false);
        if (T > 0)
            add_input(&p, H, T, true);
        else
            add_absent(&p);
        add_output(&p, B * L, H * D);
        p.kept = new_tensor(DTYPE_F64, B * H, L);
        check(&p, "attention_backward", "B=%d H=%d/%d L=%d D=%d %s T=%d", B, H, Hkv, L, D,
              names[p.kind], T);
    }
}

/* Queries and keys turned first: the gradient is of what they were before. */
static struct attention_args turned_views(struct problem *p)
{
    struct tensor packed = p->in[0].x,
                  copy = new_tensor(DTYPE_F64, packed.shape[0], packed.shape[1]);
    struct attention_args a = views(p, copy, p->in[1].x);

    a.rotation = (struct rotation){ .table = p->table, .start = p->start, .layout = p->layout };
    assert_ok(ops_ref.copy(&device, copy, packed));
    assert_ok(ops_ref.rotary(&device, a.q, a.rotation, 1));
    assert_ok(ops_ref.rotary(&device, a.k, a.rotation, 1));
    return a;
}

static void turned_attention_forward(struct problem *p)
{
    struct attention_args a = turned_views(p);

    assert_ok(attention_forward_of(&device, heads(p, p->y), p->kept, a));
    mem_free(a.q.data);
}

static void turned_attention_backward(struct problem *p)
{
    struct attention_args a = turned_views(p), d = views(p, p->in[0].dx, tensor_none());

    assert_ok(attention_backward_of(&device, d.q, d.k, d.v, tensor_none(), heads(p, p->dy),
                                    heads(p, p->y), p->kept, a));
    mem_free(a.q.data);
}

static void gradients_through_turned_attention_equal_finite_differences(void **state)
{
    /* B, H, Hkv, L, D, start */
    static const int cases[][6] = {
        { 1, 1, 1, 1, 2, 0 }, { 2, 3, 3, 7, 6, 0 }, { 1, 4, 2, 5, 4, 3 }, { 2, 2, 1, 0, 4, 0 }
    };

    (void)state;
    for (int layout = ALIBI_ROTARY_HALVES; layout <= ALIBI_ROTARY_PAIRS; layout++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            const int *n = cases[i];
            struct problem p = { .forward = turned_attention_forward,
                                 .backward = turned_attention_backward };
            p.B = n[0];
            p.H = n[1];
            p.Hkv = n[2];
            p.L = n[3];
            p.D = n[4];
            p.start = n[5];
            p.layout = layout;
            p.kind = BIAS_NONE;
            p.scale = 1.0 / sqrt(n[4]);
            add_input(&p, n[0] * n[3], (n[1] + 2 * n[2]) * n[4], false);
            add_absent(&p);
            add_output(&p, n[0] * n[3], n[1] * n[4]);
            p.kept = new_tensor(DTYPE_F64, n[0] * n[1], n[3]);
            p.table = random_tensor(n[3] + n[5], n[4]);
            check(&p, "turned attention_backward", "B=%d H=%d/%d L=%d D=%d start=%d %s", n[0], n[1],
                  n[2], n[3], n[4], n[5], layout == ALIBI_ROTARY_HALVES ? "halves" : "pairs");
        }
}

/* ---- rotary: rotating back is the backward pass of rotating */

static void rotary_forward(struct problem *p)
{
    assert_ok(ops_ref.copy(&device, heads(p, p->y), heads(p, p->in[0].x)));
    assert_ok(ops_ref.rotary(
        &device, heads(p, p->y),
        (struct rotation){ .table = p->table, .start = p->start, .layout = p->layout }, 1));
}

static void rotary_backward(struct problem *p)
{
    assert_ok(ops_ref.copy(&device, heads(p, p->in[0].dx), heads(p, p->dy)));
    assert_ok(ops_ref.rotary(
        &device, heads(p, p->in[0].dx),
        (struct rotation){ .table = p->table, .start = p->start, .layout = p->layout }, -1));
}

static void rotary_gradients_equal_finite_differences(void **state)
{
    /* B, L, H, D, start */
    static const int cases[][5] = {
        { 1, 1, 1, 2, 0 }, { 2, 5, 3, 6, 0 }, { 1, 3, 2, 4, 7 }, { 2, 0, 1, 4, 0 }
    };

    (void)state;
    for (int layout = ALIBI_ROTARY_HALVES; layout <= ALIBI_ROTARY_PAIRS; layout++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            const int *n = cases[i];
            struct problem p = { .forward = rotary_forward,
                                 .backward = rotary_backward,
                                 .B = n[0],
                                 .L = n[1],
                                 .H = n[2],
                                 .D = n[3],
                                 .start = n[4] };
            p.layout = layout;
            add_input(&p, n[0] * n[1], n[2] * n[3], false);
            add_output(&p, n[0] * n[1], n[2] * n[3]);
            p.table = random_tensor(n[1] + n[4], n[3]);
            check(&p, "rotary_backward", "B=%d L=%d H=%d D=%d start=%d %s", n[0], n[1], n[2], n[3],
                  n[4], layout == ALIBI_ROTARY_HALVES ? "halves" : "pairs");
        }
}

/* ---- bias by bucket */

static void bucket_forward(struct problem *p)
{
    assert_ok(ops_ref.bucket_forward(&device, p->y, p->in[0].x, p->index));
}

static void bucket_backward(struct problem *p)
{
    assert_ok(ops_ref.bucket_backward(&device, p->in[0].dx, p->dy, p->index));
}

static void bucket_gradients_equal_finite_differences(void **state)
{
    /* H, T, buckets */
    static const int cases[][3] = { { 1, 1, 1 }, { 3, 17, 5 }, { 2, 3, 7 }, { 2, 0, 2 } };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int *n = cases[i];
        struct problem p = { .forward = bucket_forward, .backward = bucket_backward };
        add_input(&p, n[2], n[0], true);
        add_output(&p, n[0], n[1]);
        p.index = random_index(1, n[1], n[2]);
        check(&p, "bucket_backward", "H=%d T=%d buckets=%d", n[0], n[1], n[2]);
    }
}

/* ---- cross-entropy: its gradient is that of scale * sum(nll), so scale stands for w */

static void cross_entropy_forward(struct problem *p)
{
    assert_ok(ops_ref.cross_entropy(
        &device, &(struct cross_entropy_args){
                     .nll = p->y, .logits = p->in[0].x, .targets = p->index, .scale = p->scale }));
}

static void cross_entropy_backward(struct problem *p)
{
    assert_ok(ops_ref.cross_entropy(&device, &(struct cross_entropy_args){ .nll = p->y,
                                                                           .dlogits = p->in[0].dx,
                                                                           .logits = p->in[0].x,
                                                                           .targets = p->index,
                                                                           .scale = p->scale }));
}

static void cross_entropy_gradients_equal_finite_differences(void **state)
{
    static const int cases[][2] = { { 1, 1 }, { 7, 5 }, { 3, 61 }, { 0, 3 } };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int *n = cases[i];
        struct problem p = { .forward = cross_entropy_forward,
                             .backward = cross_entropy_backward,
                             .scale = 0.7 };
        add_input(&p, n[0], n[1], false);
        add_output(&p, 1, n[0]);
        assert_ok(ops_ref.fill(&device, p.dy, p.scale));
        p.index = random_index(1, n[0], n[1]);
        if (n[0] > 2)
            ((int32_t *)p.index.data)[1] = -1;
        check(&p, "cross_entropy", "rows=%d V=%d", n[0], n[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_gradients_equal_finite_differences),
        cmocka_unit_test(linear_gradients_equal_finite_differences),
        cmocka_unit_test(linear_gives_the_same_gradient_of_its_input_alone),
        cmocka_unit_test(norm_gradients_equal_finite_differences),
        cmocka_unit_test(activation_gradients_equal_finite_differences),
        cmocka_unit_test(linear_activation_gradients_equal_finite_differences),
        cmocka_unit_test(residual_gradients_equal_finite_differences),
        cmocka_unit_test(attention_gradients_equal_finite_differences),
        cmocka_unit_test(gradients_through_turned_attention_equal_finite_differences),
        cmocka_unit_test(rotary_gradients_equal_finite_differences),
        cmocka_unit_test(bucket_gradients_equal_finite_differences),
        cmocka_unit_test(cross_entropy_gradients_equal_finite_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
