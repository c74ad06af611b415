/* test_cuda_attention.c - the GPU's attention against the reference in double precision: shapes
 * around tiles, every bias, views as the model has them, and skipped keys */
#include "ops/dropout.h"
#include "ops/problem.h"
#include "ops/ref/ref.h"

#define STEEP 0.5
#define GENTLE 0.02

/* A backend may make norms larger by a margin for rounding, but not smaller: they bound the weight
 * that is skipped. */
#define NORM_MARGIN 3e-4

/* odd: some are negative, some zero */
enum slopes { ALIBI_SLOPES, ODD_SLOPES, STEEP_SLOPES, GENTLE_SLOPES };

/* The last two: angles that do not begin at a multiple of 16 bytes. */
enum rotated { NOT_ROTATED, HALVES, PAIRS, HALVES_LATE, PAIRS_LATE };

/* The position of the first row. */
enum { START = 3 };

struct attention_case {
    int64_t B, Lq, Lk, H, Hkv, D;
    enum bias_kind bias;
    int64_t T;        /* entries of a table, enum slopes, or log2 of tau */
    bool packed;      /* q, k and v in the same rows, as the model has them */
    int64_t gap;      /* after the heads of a row */
    int64_t capacity; /* rows that a cache has, if more than Lk */
    enum rotated rotated;
    int64_t window;
    int64_t dropout; /* percent of the weights */
};

static const char *const rotated_names[] = { "", " halves", " pairs", " halves, late angles",
                                             " pairs, late angles" };

static const char *bias_name(enum bias_kind kind)
{
    return kind == BIAS_NONE     ? "none"
           : kind == BIAS_LINEAR ? "alibi"
           : kind == BIAS_GAIN   ? "gain"
                                 : "table";
}

/* ---- problems
 *
 * n: B Lq Lk H Hkv D packed gap capacity rotated window dropout T; kind: the bias. Packed rows are
 * all in Q_ROWS. */

enum { Q_ROWS, K_ROWS, V_ROWS, BIAS_VALUES, FORWARD_Y, FORWARD_LSE, FORWARD_NORMS, FORWARD_KEPT };
enum { DY_ROWS = BIAS_VALUES + 1, Y_ROWS, LSE, DQ_ROWS, DK_ROWS, DV_ROWS, DBIAS, KEPT, ANGLES };
enum {
    N_B,
    N_LQ,
    N_LK,
    N_H,
    N_HKV,
    N_D,
    N_PACKED,
    N_GAP,
    N_CAPACITY,
    N_ROTATED,
    N_WINDOW,
    N_DROPOUT,
    N_T
};

static void fill_slopes(struct slot *s, int64_t H, enum slopes kind)
{
    for (int64_t h = 0; h < H; h++) {
        double alibi = exp2(-8.0 * (double)(h + 1) / (double)H);
        put(s, h,
            kind == STEEP_SLOPES              ? STEEP
            : kind == GENTLE_SLOPES           ? GENTLE
            : kind == ODD_SLOPES && h % 3 < 2 ? (double)(h % 3 - 1) * 0.02
                                              : alibi);
    }
}

/* Rows of q, k, v that are given, or of their gradients that are written: three slots. */
static void add_rows(struct problem *p, bool gradients)
{
    const int64_t *n = p->n;
    int64_t q = n[N_H] * n[N_D], kv = n[N_HKV] * n[N_D], rows = n[N_B] * n[N_LQ],
            capacity = n[N_B] * n[N_CAPACITY];
    bool packed = n[N_PACKED];
    const int64_t counts[] = { rows, packed ? 0 : capacity, packed ? 0 : capacity };
    const int64_t widths[] = { packed ? q + 2 * kv : q, kv, kv };

    for (int i = 0; i < 3; i++)
        if (gradients)
            written_rows(p, p->type, counts[i], widths[i], n[N_GAP]);
        else
            given(p, tensor_2(NULL, p->type, counts[i], widths[i] + n[N_GAP]));
}

static struct problem attention_problem(const char *operation, struct attention_case c,
                                        enum dtype type)
{
    struct problem p = { .operation = operation, .type = type, .kind = (int)c.bias };
    const int64_t n[] = { c.B,       c.Lq,     c.Lk,
                          c.H,       c.Hkv,    c.D,
                          c.packed,  c.gap,    c.capacity > c.Lk ? c.capacity : c.Lk,
                          c.rotated, c.window, c.dropout,
                          c.T };

    memcpy(p.n, n, sizeof n);
    snprintf(p.shape, sizeof p.shape,
             "B=%d H=%d/%d L=%d/%d W=%d D=%d %s T=%d%s gap=%d%s dropout=%d%%", (int)c.B, (int)c.H,
             (int)c.Hkv, (int)c.Lq, (int)c.Lk, (int)c.window, (int)c.D, bias_name(c.bias), (int)c.T,
             c.packed ? " packed" : "", (int)c.gap, rotated_names[c.rotated], (int)c.dropout);
    add_rows(&p, false);
    struct slot *bias = given(&p, c.bias == BIAS_TABLE ? tensor_2(NULL, DTYPE_F32, c.H, c.T)
                                                       : tensor_1(NULL, DTYPE_F32, c.H));
    if (c.bias == BIAS_LINEAR)
        fill_slopes(bias, c.H, (enum slopes)c.T);
    return p;
}

/* The view of queries (0), keys (1) or values (2) in slots from `first` on. */
static struct tensor view(const struct problem *p, const struct tensor *t, int first, int which)
{
    const int64_t *n = p->n;
    int64_t kv = n[N_HKV] * n[N_D], columns[] = { 0, n[N_H] * n[N_D], n[N_H] * n[N_D] + kv };
    struct tensor rows = n[N_PACKED] ? t[first] : t[first + which];
    int64_t L = which == 0 ? n[N_LQ] : n[N_LK], H = which == 0 ? n[N_H] : n[N_HKV];
    struct tensor heads = tensor_heads(rows, n[N_B], which == 0 ? L : n[N_CAPACITY],
                                       n[N_PACKED] ? columns[which] : 0, H, n[N_D]);

    heads.shape[1] = L;
    return heads;
}

/* A gain is a factor of up to 3 or so on scores: they are as large with it as without. */
static struct attention_args attention_of(const struct problem *p, const struct tensor *t)
{
    bool gain = p->kind == BIAS_GAIN;

    return (struct attention_args){
        .q = view(p, t, Q_ROWS, 0),
        .k = view(p, t, Q_ROWS, 1),
        .v = view(p, t, Q_ROWS, 2),
        .bias = { (enum bias_kind)p->kind, t[BIAS_VALUES], gain ? exp2((double)p->n[N_T]) : 0.0 },
        .scale = (gain ? 1.0 / 3.0 : 1.0) / sqrt((double)p->n[N_D]),
        .window = p->n[N_WINDOW],
        .dropout = { 0.01 * (double)p->n[N_DROPOUT], 0x123456789ull, 5 },
        .skip.eps = p->eps,
    };
}

/* Queries-shaped rows: y and its gradient. */
static struct tensor query_view(const struct problem *p, struct tensor t)
{
    return tensor_heads(t, p->n[N_B], p->n[N_LQ], 0, p->n[N_H], p->n[N_D]);
}

/* ---- forward */

static struct tensor present_if_any(struct tensor t)
{
    return tensor_count(t) > 0 ? t : tensor_none();
}

static alibi_status run_forward(struct device *dev, const struct problem *p, const struct tensor *t)
{
    struct attention_args a = attention_of(p, t);

    a.skip.norms = present_if_any(t[FORWARD_NORMS]);
    a.skip.kept = present_if_any(t[FORWARD_KEPT]);
    if (tensor_count(t[FORWARD_NORMS]) > 0)
        TRY_RETURN(dev->ops->attention_norms(dev, a.skip.norms, a.k, 0));
    a.y = query_view(p, t[FORWARD_Y]);
    a.lse = t[FORWARD_LSE];
    return dev->ops->attention_forward(dev, &a);
}

static double largest(const struct slot *s)
{
    double most = 0.0;

    for (int64_t i = 0; i < stored(s); i++)
        most = fmax(most, fabs(s->values[i]));
    return most;
}

/* y is an average of values, so their size is its own. Scores are summed in 32 bits whatever their
 * type. */
static struct problem forward_problem(struct attention_case c, enum dtype type, bool norms,
                                      bool kept)
{
    struct problem p = attention_problem("attention_forward", c, type);
    int64_t tiles = attention_tiles(p.n[N_CAPACITY]);

    p.limit = 2e-5;
    p.rough = 0x1p-7;
    p.run = run_forward;
    written_rows(&p, type, c.B * c.Lq, c.H * c.D, c.gap)->size =
        largest(&p.slots[c.packed ? Q_ROWS : V_ROWS]);
    written(&p, tensor_3(NULL, DTYPE_F32, c.B, c.H, c.Lq))->size = 1.0;
    struct slot *n = written(&p, tensor_3(NULL, DTYPE_F32, norms ? c.B : 0, c.Hkv, tiles));
    n->limit = NORM_MARGIN;
    for (int64_t i = 0; i < stored(n); i++)
        if (i % tiles >= attention_tiles(c.Lk))
            put(n, i, POISON);
    written(&p, tensor_4(NULL, DTYPE_I32, kept ? c.B : 0, c.H, attention_tiles(c.Lq),
                         attention_kept_words(c.Lk)));
    return p;
}

static void check_forward(struct attention_case c, enum dtype type, int64_t skew)
{
    struct problem p = forward_problem(c, type, false, c.Lq == c.Lk);

    p.skew = skew;
    check(&p);
}

/* ---- backward */

static alibi_status run_backward(struct device *dev, const struct problem *p,
                                 const struct tensor *t)
{
    struct attention_args a = attention_of(p, t);

    a.skip.kept = present_if_any(t[KEPT]);
    if (p->n[N_ROTATED] != NOT_ROTATED) {
        int64_t late = p->n[N_ROTATED] >= HALVES_LATE;
        a.rotation = (struct rotation){
            .table = tensor_2(tensor_at(t[ANGLES], late), t[ANGLES].type, p->n[N_LK], p->n[N_D]),
            .layout = p->n[N_ROTATED] % 2 ? ALIBI_ROTARY_HALVES : ALIBI_ROTARY_PAIRS,
        };
    }
    a.dq = view(p, t, DQ_ROWS, 0);
    a.dk = view(p, t, DQ_ROWS, 1);
    a.dv = view(p, t, DQ_ROWS, 2);
    a.dbias = present_if_any(t[DBIAS]);
    a.dy = query_view(p, t[DY_ROWS]);
    a.y = query_view(p, t[Y_ROWS]);
    a.lse = t[LSE];
    return dev->ops->attention_backward(dev, &a);
}

/* y and lse are what the slots of a forward problem's solution hold. */
static struct problem backward_problem(struct attention_case c, enum dtype type, const double *y,
                                       const double *lse, bool bias_gradient, bool kept)
{
    struct problem p = attention_problem("attention_backward", c, type);
    struct slot *s;

    p.limit = 2e-5;
    p.rough = 0x1p-6;
    p.run = run_backward;
    given(&p, tensor_2(NULL, type, c.B * c.Lq, c.H * c.D + c.gap));
    s = given(&p, tensor_2(NULL, type, c.B * c.Lq, c.H * c.D + c.gap));
    for (int64_t i = 0; i < stored(s); i++)
        put(s, i, y[i]);
    s = given(&p, tensor_3(NULL, DTYPE_F32, c.B, c.H, c.Lq));
    for (int64_t i = 0; i < stored(s); i++)
        put(s, i, lse[i]);
    add_rows(&p, true);
    for (int n = DQ_ROWS; n <= DV_ROWS; n++)
        p.slots[n].size = 1.0; /* what they sum has this size whatever D; for a single key those of
                                  q and k are nothing */
    s = added_to(&p, c.bias == BIAS_TABLE ? tensor_2(NULL, DTYPE_F32, bias_gradient ? c.H : 0, c.T)
                                          : tensor_1(NULL, DTYPE_F32, bias_gradient ? c.H : 0));
    s->limit = type == DTYPE_BF16
                   ? 0x1p-6
                   : 5e-5; /* relative to what was summed, see size_bias_gradient() */
    add_slot(&p,
             tensor_4(NULL, DTYPE_I32, kept ? c.B : 0, c.H, attention_tiles(c.Lq),
                      attention_kept_words(c.Lk)),
             GIVEN);
    given(&p, tensor_1(NULL, DTYPE_F32, c.rotated != NOT_ROTATED ? 1 + c.Lk * c.D : 0));
    return p;
}

/* ---- pairs of a query and a key, in double */

struct operands {
    struct attention_args a;
    struct tensor dy, y, lse;
};

static struct operands operands_of(const struct problem *p)
{
    struct tensor t[SLOTS];

    for (int i = 0; i < p->count; i++) {
        t[i] = p->slots[i].shape;
        t[i].type = DTYPE_F64;
        t[i].data = p->slots[i].values;
    }
    return (struct operands){ attention_of(p, t), query_view(p, t[DY_ROWS]),
                              query_view(p, t[Y_ROWS]), t[LSE] };
}

/* dS = p (dp - row), where dp = mask dy . v and row = dy . y; gain: the factor on q . k; mask: that
 * of dropout on p */
struct pair {
    const double *q, *k, *v, *dy;
    double gain, mask, p, dp, row;
};

static const double *row_at(struct tensor t, int64_t b, int64_t l, int64_t h)
{
    return (const double *)t.data + b * t.stride[0] + l * t.stride[1] + h * t.stride[2];
}

static double dot(const double *x, const double *y, int64_t D)
{
    double sum = 0.0;

    for (int64_t d = 0; d < D; d++)
        sum += x[d] * y[d];
    return sum;
}

static struct pair pair_at(const struct operands *o, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct attention_args *a = &o->a;
    int64_t H = a->q.shape[2], Lq = a->q.shape[1], D = a->q.shape[3], kv = h / (H / a->k.shape[2]);
    struct pair x = { row_at(a->q, b, i, h),
                      row_at(a->k, b, j, kv),
                      row_at(a->v, b, j, kv),
                      row_at(o->dy, b, i, h),
                      ref_gain_at(a->bias, i - j),
                      1.0,
                      0,
                      0,
                      0 };
    double score = x.gain * a->scale * dot(x.q, x.k, D) + ref_bias_at(a->bias, b, h, i, j);

    x.p = exp(score - ((const double *)o->lse.data)[(b * H + h) * Lq + i]);
    if (a->dropout.p > 0)
        x.mask = dropout_factor(a->dropout, attention_element(b * H + h, i, j, a->k.shape[1]));
    x.dp = x.mask * dot(x.dy, x.v, D);
    x.row = dot(x.dy, row_at(o->y, b, i, h), D);
    return x;
}

/* An entry of dbias is a sum of dS in which nearly everything cancels: errors are relative to the
 * sum of the sizes. */
static void size_bias_gradient(struct problem *p)
{
    struct operands o = operands_of(p);
    struct slot *s = &p->slots[DBIAS];
    int64_t T = stored(s) / p->n[N_H];

    assert_ok(NEW_ZERO_ARRAY(&s->sizes, stored(s) + 1, "sizes"));
    for (int64_t b = 0; T > 0 && b < p->n[N_B]; b++)
        for (int64_t h = 0; h < p->n[N_H]; h++)
            for (int64_t i = 0; i < p->n[N_LQ]; i++)
                for (int64_t j = attention_first_key(i, o.a.window); j <= i; j++) {
                    struct pair x = pair_at(&o, b, h, i, j);
                    int64_t entry = i - j < T ? i - j : T - 1;
                    double factor = p->kind == BIAS_LINEAR ? (double)(i - j) : 1.0;
                    s->sizes[h * T + entry] += factor * x.p * (fabs(x.dp) + fabs(x.row));
                }
}

static void check_backward(struct attention_case c, enum dtype type, bool bias_gradient,
                           int64_t skew)
{
    struct problem forward = forward_problem(c, type, false, false);

    solve_by_reference(&forward);
    struct problem p = backward_problem(
        c, type, forward.slots[FORWARD_Y].expected, forward.slots[FORWARD_LSE].expected,
        bias_gradient && c.bias != BIAS_NONE && c.bias != BIAS_GAIN, false);
    p.skew = skew;
    problem_free(&forward);
    size_bias_gradient(&p);
    check(&p);
}

/* The bias has no gradient, but the call has a tensor for it. */
static void rare_calls_leave_a_gradient_alone_that_the_bias_does_not_have(void **state)
{
    static const struct attention_case cases[] = {
        { 1, 150, 150, 2, 1, 64, BIAS_NONE, 0, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 150, 150, 2, 1, 128, BIAS_GAIN, 3, false, 0, 0, NOT_ROTATED, 0, 0 },
    };

    (void)state;
    begin();
    for (int n = 0; n < 2 * COUNT_OF(cases); n++) {
        struct problem forward = forward_problem(cases[n / 2], gpu_types[n % 2], false, false);
        solve_by_reference(&forward);
        struct problem p =
            backward_problem(cases[n / 2], gpu_types[n % 2], forward.slots[FORWARD_Y].expected,
                             forward.slots[FORWARD_LSE].expected, true, false);
        solve_by_reference(&p);
        for (int64_t i = 0; i < stored(&p.slots[DBIAS]); i++)
            p.slots[DBIAS].expected[i] = p.slots[DBIAS].values[i];
        struct solution s = solve_on_gpu(&p);
        compare(&p, &s);
        solution_free(&s);
        problem_free(&p);
        problem_free(&forward);
    }
    end();
}

/* ---- full attention */

static const int64_t widths[] = { 1, 8, 16, 33, 64, 80, 96, 128, 160 };
static const int64_t lengths[] = { 1, 2, 63, 64, 65, 127, 128, 129, 200, 257, 520 };
static const int64_t heads[][2] = { { 1, 1 }, { 3, 3 }, { 4, 2 }, { 8, 1 } };
static const struct {
    enum bias_kind kind;
    int64_t T;
} biases[] = {
    { BIAS_NONE, 0 },
    { BIAS_LINEAR, ALIBI_SLOPES },
    { BIAS_LINEAR, ODD_SLOPES },
    { BIAS_TABLE, 1 },
    { BIAS_TABLE, 40 },
    { BIAS_TABLE, 129 },
    { BIAS_TABLE, 1024 },
    { BIAS_TABLE, 1025 }, /* the largest whose gradient fits into shared memory is 1024 */
    { BIAS_GAIN, 3 },
};

/* Every width at every length; the rest goes round, at different speeds. Many heads only where the
 * reference is quick. */
static struct attention_case full_case(int d, int l)
{
    static const int64_t gaps[] = { 0, 8, 0, 3, 1 };
    int i = d * COUNT_OF(lengths) + l,
        group = lengths[l] < 200 ? i % 4
                : i % 2          ? 2
                                 : 0,
        bias = (i + d) % COUNT_OF(biases);

    return (struct attention_case){ .B = lengths[l] < 200 ? 1 + i / 2 % 2 : 1,
                                    .Lq = lengths[l],
                                    .Lk = lengths[l],
                                    .H = heads[group][0],
                                    .Hkv = heads[group][1],
                                    .D = widths[d],
                                    .bias = biases[bias].kind,
                                    .T = biases[bias].T,
                                    .packed = i / 3 % 2,
                                    .gap = gaps[i % 5] };
}

static void attention_equals_the_reference_at_every_width_and_length(void **state)
{
    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int d = 0; d < COUNT_OF(widths); d++)
            for (int l = 0; l < COUNT_OF(lengths); l++) {
                if (few_cases() && (d * COUNT_OF(lengths) + l) % 7 != 0)
                    continue;
                check_forward(full_case(d, l), gpu_types[type], 0);
                check_backward(full_case(d, l), gpu_types[type], (d + l) % 4 != 0, 0);
            }
    end();
}

/* The widths that models have, in the ways that models call them. */
static void attention_equals_the_reference_for_every_bias_and_group_of_heads(void **state)
{
    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int64_t D = 64; D <= 128; D += 64)
            for (int bias = 0; bias < COUNT_OF(biases); bias++)
                for (int group = 0; group < COUNT_OF(heads); group++) {
                    struct attention_case c = {
                        .B = 1 + group % 2, .Lq = 150, .Lk = 150, .D = D, .packed = true
                    };
                    c.H = heads[group][0];
                    c.Hkv = heads[group][1];
                    c.bias = biases[bias].kind;
                    c.T = biases[bias].T;
                    check_forward(c, gpu_types[type], 0);
                    check_backward(c, gpu_types[type], true, 0);
                }
    end();
}

/* Windows around tiles and blocks, shorter and longer than them, as long as the input and longer.
 */
static void attention_in_a_window_equals_the_reference(void **state)
{
    static const int64_t windows[] = { 1, 2, 63, 64, 65, 128, 129, 190, 300, 600 };
    static const int64_t some[] = { 33, 64, 128 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int d = 0; d < COUNT_OF(some); d++)
            for (int l = 3; l < COUNT_OF(lengths); l++)
                for (int w = (l + d) % 2; w < COUNT_OF(windows); w += 2) {
                    int i = d + l + w, group = lengths[l] < 200 ? i % 4 : 2 * (i % 2);
                    struct attention_case c = { .B = 1 + i % 2,
                                                .Lq = lengths[l],
                                                .Lk = lengths[l],
                                                .H = heads[group][0],
                                                .Hkv = heads[group][1],
                                                .D = some[d],
                                                .bias = biases[i % COUNT_OF(biases)].kind,
                                                .T = biases[i % COUNT_OF(biases)].T,
                                                .packed = i / 3 % 2,
                                                .window = windows[w] };
                    check_forward(c, gpu_types[type], 0);
                    check_backward(c, gpu_types[type], i % 4 != 0, 0);
                }
    end();
}

/* A mask that differs in one bit would show. */
static void attention_with_dropout_equals_the_reference(void **state)
{
    static const int64_t some[] = { 33, 64, 128, 40, 104 }, windows[] = { 0, 100, 64 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int d = 0; d < COUNT_OF(some); d++)
            for (int l = 0; l < COUNT_OF(lengths); l++)
                for (int bias = l % 2; bias < COUNT_OF(biases); bias += 2) {
                    if (few_cases() && (d + 2 * l + bias) % 5 != 0)
                        continue;
                    int i = d + l + bias, group = lengths[l] < 200 ? i % 4 : 2 * (i % 2);
                    struct attention_case c = { .B = 1 + i % 2,
                                                .Lq = lengths[l],
                                                .Lk = lengths[l],
                                                .H = heads[group][0],
                                                .Hkv = heads[group][1],
                                                .D = some[d],
                                                .bias = biases[bias].kind,
                                                .T = biases[bias].T,
                                                .packed = i / 3 % 2,
                                                .window = windows[i % 3],
                                                .dropout = i % 4 ? 10 : 40 };
                    check_forward(c, gpu_types[type], 0);
                    check_backward(c, gpu_types[type], i % 4 != 0, 0);
                }
    end();
}

/* The gradient of a table that does not fit into shared memory, at distances within the table and
 * past its end, in a window, and for two heads that share their keys. */
static void gradients_of_long_tables_equal_the_reference(void **state)
{
    static const struct attention_case cases[] = {
        { 1, 1300, 1300, 1, 1, 64, BIAS_TABLE, 1030, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 2, 1100, 1100, 2, 1, 64, BIAS_TABLE, 2048, true, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 1250, 1250, 1, 1, 128, BIAS_TABLE, 1027, false, 0, 0, NOT_ROTATED, 1150, 0 },
    };

    (void)state;
    begin();
    for (int i = 0; i < COUNT_OF(cases); i++)
        check_backward(cases[i], DTYPE_BF16, true, 0);
    end();
}

/* Attention's own kernels rotate back, or rotary does it after them: for widths other than 64 and
 * 128, and for angles that are not aligned. */
static void gradients_of_rotated_queries_and_keys_equal_the_reference(void **state)
{
    static const int64_t even[] = { 2, 24, 64, 96, 128, 160 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int d = 0; d < COUNT_OF(even); d++)
            for (int l = 0; l < COUNT_OF(lengths); l += 2)
                for (int rotated = HALVES; rotated <= PAIRS_LATE; rotated++) {
                    struct attention_case c = {
                        1, lengths[l], lengths[l], 2, 1 + l / 2 % 2, even[d], BIAS_NONE,
                        0, d % 2,      0,          0, rotated,       0,       0
                    };
                    if ((l / 2 + rotated) % 2 == 0)
                        c.bias = BIAS_GAIN;
                    check_backward(c, gpu_types[type], false, d + l == 4);
                }
    end();
}

static void attention_takes_tensors_at_any_place(void **state)
{
    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int d = 0; d < COUNT_OF(widths); d++) {
            struct attention_case c = { 2,     130,       130,         2,
                                        1,     widths[d], BIAS_LINEAR, ALIBI_SLOPES,
                                        d % 2, 0,         0,           NOT_ROTATED,
                                        0,     0 };
            check_forward(c, gpu_types[type], 1);
            check_backward(c, gpu_types[type], true, 1);
        }
    end();
}

static void attention_over_nothing_does_nothing(void **state)
{
    static const struct attention_case cases[] = {
        { 0, 5, 5, 2, 2, 64, BIAS_LINEAR, 0, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 2, 0, 0, 2, 2, 64, BIAS_NONE, 0, true, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 0, 9, 2, 2, 64, BIAS_LINEAR, 0, false, 0, 0, NOT_ROTATED, 0, 0 }
    };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int i = 0; i < COUNT_OF(cases); i++)
            check_forward(cases[i], gpu_types[type], 0);
    for (int type = first_type(); type < 2; type++)
        for (int i = 0; i < 2; i++)
            check_backward(cases[i], gpu_types[type], true, 0);
    end();
}

/* Whole numbers, so that scores in the thousands have no rounding of their own: only the softmax is
 * at test. */
static void scores_too_large_for_exp_give_the_same_softmax(void **state)
{
    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int64_t D = 16; D <= 64; D *= 4) {
            struct problem p =
                forward_problem((struct attention_case){ 1, 150, 150, 2, 2, D, BIAS_NONE, 0, false,
                                                         0, 0, NOT_ROTATED, 0, 0 },
                                gpu_types[type], 0, 0);
            for (int s = Q_ROWS; s <= K_ROWS; s++)
                for (int64_t i = 0; i < stored(&p.slots[s]); i++)
                    put(&p.slots[s], i, round(40.0 * p.slots[s].values[i]));
            check(&p);
        }
    end();
}

/* All scores are 720, which times log2(e) is not a number of 32 bits: if sums were multiplied by
 * exp(m - m') with that rounding error after every block of keys, it would add up. */
static void scores_too_large_for_exp_weigh_the_same_however_many_there_are(void **state)
{
    const int64_t L = 2049;
    double error = 0.0;

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++) {
        struct problem p =
            forward_problem((struct attention_case){ 1, L, L, 1, 1, 64, BIAS_NONE, 0, false, 0, 0,
                                                     NOT_ROTATED, 0, 0 },
                            gpu_types[type], false, false);
        for (int s = Q_ROWS; s <= K_ROWS; s++)
            for (int64_t i = 0; i < stored(&p.slots[s]); i++)
                put(&p.slots[s], i, s == Q_ROWS ? 10.0 : 9.0);
        struct solution s = solve_on_gpu(&p);
        for (int64_t i = 0; i < L; i++)
            error =
                fmax(error, fabs(result(&p, &s, FORWARD_LSE, i) - 720.0 - log((double)i + 1.0)));
        printf("%s %s  error of lse %.1e\n", type_name(gpu_types[type]), p.shape, error);
        assert_true(error < 1.5e-4); /* 720 has steps of 6e-5 */
        solution_free(&s);
        problem_free(&p);
    }
    end();
}

static void far_keys_underflow_to_nothing_under_a_steep_slope(void **state)
{
    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        check_forward((struct attention_case){ 1, 1500, 1500, 1, 1, 64, BIAS_LINEAR, STEEP_SLOPES,
                                               false, 0, 0, NOT_ROTATED, 0, 0 },
                      gpu_types[type], 0);
    end();
}

/* ---- after a past */

/* The rows of a cache after its last position must not be read: NaN here. */
static void spoil_unused_rows(struct problem *p)
{
    const int64_t *n = p->n;
    int64_t row = n[N_HKV] * n[N_D] + n[N_GAP];

    for (int s = K_ROWS; s <= V_ROWS; s++)
        for (int64_t i = 0; i < stored(&p->slots[s]); i++)
            if (i / row % n[N_CAPACITY] >= n[N_LK])
                p->slots[s].values[i] = (double)NAN;
}

static void check_with_past(struct attention_case c, enum dtype type)
{
    bool norms = c.Lq % 2 == 0;
    struct problem p = forward_problem(c, type, norms, false);

    spoil_unused_rows(&p);
    check(&p);
}

static void attention_after_a_past_equals_the_reference(void **state)
{
    static const int64_t queries[] = { 1, 5, 64, 100 }, keys[] = { 100, 129, 192, 400, 1000 };
    static const int64_t some[] = { 8, 33, 64, 128, 160 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int q = 0; q < COUNT_OF(queries); q++)
            for (int k = 0; k < COUNT_OF(keys); k++)
                for (int d = 0; d < COUNT_OF(some); d++) {
                    int i = q + 2 * k + 3 * d, group = (i + k) % COUNT_OF(heads),
                        bias = i % COUNT_OF(biases);
                    struct attention_case c = {
                        .B = 1 + i % 2, .Lq = queries[q], .Lk = keys[k], .D = some[d]
                    };
                    c.H = heads[group][0];
                    c.Hkv = heads[group][1];
                    if (c.Lq * c.Lk > 20000)
                        c.H = c.Hkv = 1; /* the reference is slow */
                    c.bias = biases[bias].kind;
                    c.T = biases[bias].T;
                    c.gap = i % 3 == 0 ? 8 : 0;
                    c.window = i % 2 ? 1 + 37 * (i % 11) : 0;
                    check_with_past(c, gpu_types[type]);
                }
    end();
}

static void decoding_from_a_cache_equals_the_reference_whatever_else_the_cache_holds(void **state)
{
    static const int64_t keys[] = { 1, 2, 63, 64, 65, 500, 1000, 2049 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int k = 0; k < COUNT_OF(keys); k++)
            for (int d = 0; d < COUNT_OF(widths); d++)
                for (int bias = 0; bias < COUNT_OF(biases); bias += 2) {
                    int group = (k + d) % COUNT_OF(heads);
                    struct attention_case c = { .B = 2, .Lq = 1, .Lk = keys[k], .D = widths[d] };
                    c.H = heads[group][0];
                    c.Hkv = heads[group][1];
                    c.bias = biases[bias].kind;
                    c.T = biases[bias].T;
                    c.capacity = 2 * keys[k] + 100;
                    check_with_past(c, gpu_types[type]);
                }
    end();
}

/* Rows of as many keys as parts of one chunk can have, and more. */
static void rare_calls_decode_long_rows(void **state)
{
    static const int64_t shapes[][2] = {
        { 32768, 8 }, { 32769, 72 }, { 40000, 200 }, { 66000, 5 }
    };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int64_t queries = 1; queries <= 2; queries++)
                check_with_past((struct attention_case){ .B = 1,
                                                         .Lq = queries,
                                                         .Lk = shapes[i][0],
                                                         .H = 2,
                                                         .Hkv = 1,
                                                         .D = shapes[i][1],
                                                         .bias = BIAS_NONE },
                                gpu_types[type]);
    end();
}

/* ---- norms of keys */

static alibi_status run_norms(struct device *dev, const struct problem *p, const struct tensor *t)
{
    struct tensor k = tensor_heads(t[0], p->n[0], p->n[4], 0, p->n[2], p->n[3]);

    k.shape[1] = p->n[1];
    return dev->ops->attention_norms(dev, t[1], k, p->n[5]);
}

static bool norms_are_bounds(const struct problem *p, const struct solution *s, int slot)
{
    bool good = true;

    for (int64_t i = 0; i < stored(&p->slots[slot]); i++)
        good = good && result(p, s, slot, i) >= (1.0 - 1e-6) * p->slots[slot].expected[i];
    return good;
}

static void check_norms(int64_t B, int64_t L, int64_t Hkv, int64_t D, enum dtype type, int64_t from)
{
    int64_t capacity = L + 200, tiles = attention_tiles(capacity);
    struct problem p = { .operation = "attention_norms",
                         .type = type,
                         .n = { B, L, Hkv, D, capacity, from } };

    snprintf(p.shape, sizeof p.shape, "B=%d L=%d Hkv=%d D=%d from=%d", (int)B, (int)L, (int)Hkv,
             (int)D, (int)from);
    p.limit = NORM_MARGIN;
    p.run = run_norms;
    given(&p, tensor_2(NULL, type, B * capacity, Hkv * D));
    struct slot *norms = written(&p, tensor_3(NULL, DTYPE_F32, B, Hkv, tiles));
    for (int64_t i = 0; i < stored(norms); i++)
        if (i % tiles < from / ATTENTION_TILE || i % tiles >= attention_tiles(L) || from >= L)
            put(norms, i, POISON);
    solve_by_reference(&p);
    struct solution s = solve_on_gpu(&p);
    compare(&p, &s);
    all_good = all_good && norms_are_bounds(&p, &s, 1);
    solution_free(&s);
    problem_free(&p);
}

/* All keys are one row, so the cache takes no memory; a window of one key leaves its value. */
static void rare_calls_decode_a_cache_of_more_keys_than_32_bits_count(void **state)
{
    enum { HEADS = 3, WIDTH = 8, KEYS = (1 << 30) - 1 };
    float numbers[HEADS * WIDTH], y[HEADS * WIDTH];
    struct tensor t[5];

    (void)state;
    begin();
    for (int i = 0; i < HEADS * WIDTH; i++)
        numbers[i] = 0.25f * (float)(i % 7 - 3);
    for (int i = 0; i < 5; i++) {
        t[i] = tensor_1(NULL, DTYPE_F32, HEADS * WIDTH);
        assert_ok(gpu.ops->buffer_new(&gpu, &t[i].data, sizeof numbers, "test"));
        assert_ok(gpu.ops->upload(&gpu, t[i], numbers));
    }
    struct attention_args a = { .q = tensor_heads(t[0], 1, 1, 0, HEADS, WIDTH),
                                .k = tensor_heads(t[1], 1, 1, 0, HEADS, WIDTH),
                                .v = tensor_heads(t[2], 1, 1, 0, HEADS, WIDTH),
                                .y = tensor_heads(t[3], 1, 1, 0, HEADS, WIDTH),
                                .lse = tensor_3(t[4].data, DTYPE_F32, 1, HEADS, 1),
                                .scale = 1.0,
                                .window = 1 };
    a.k.shape[1] = a.v.shape[1] = KEYS;
    a.k.stride[1] = a.v.stride[1] = 0;
    assert_ok(gpu.ops->attention_forward(&gpu, &a));
    assert_ok(gpu.ops->download(&gpu, y, t[3]));
    assert_memory_equal(y, numbers, sizeof y);
    a.k.shape[1] = a.v.shape[1] = (int64_t)KEYS + 1;
    assert_int_equal(gpu.ops->attention_forward(&gpu, &a), ALIBI_BAD_INPUT);
    for (int i = 0; i < 5; i++)
        gpu.ops->buffer_free(&gpu, t[i].data);
    end();
}

static void norms_of_keys_equal_the_reference_from_where_they_changed(void **state)
{
    static const int64_t some[] = { 1, 63, 64, 65, 200, 1000 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int d = 0; d < COUNT_OF(widths); d++)
            for (int l = 0; l < COUNT_OF(some); l++) {
                check_norms(2, some[l], 3, widths[d], gpu_types[type], 0);
                check_norms(1, some[l], 1, widths[d], gpu_types[type], some[l] - 1);
                check_norms(2, some[l], 2, widths[d], gpu_types[type], some[l] / 2);
            }
    end();
}

/* ---- skipping */

static void fill_normal(struct slot *s, uint64_t stream, double size)
{
    for (int64_t i = 0; i < stored(s); i++)
        put(s, i, size * random_normal(SEED, stream, (uint64_t)i));
}

/* The problem's attention in double, with the tiles that the GPU used; the caller frees t. */
static struct attention_args attention_used(const struct problem *p, const struct solution *s,
                                            struct tensor t[SLOTS])
{
    struct attention_args a;

    for (int i = 0; i < p->count; i++)
        t[i] = reference_tensor(&p->slots[i]);
    for (int64_t i = 0; i < stored(&p->slots[FORWARD_KEPT]); i++)
        ((int32_t *)t[FORWARD_KEPT].data)[i] = s->buffers[FORWARD_KEPT][p->skew + i].i;
    a = attention_of(p, t);
    a.skip.kept = t[FORWARD_KEPT];
    return a;
}

static bool is_used(struct tensor kept, int64_t row, int64_t tile)
{
    return ((const uint32_t *)kept.data)[row * kept.shape[3] + tile / 32] >> tile % 32 & 1;
}

/* Each row has the tile of its own queries, none after it, and none before the window. */
static bool is_a_record(const struct attention_args *a)
{
    struct tensor kept = a->skip.kept;
    int64_t past = (a->k.shape[1] - a->q.shape[1]) / ATTENTION_TILE, tiles = kept.shape[2];
    bool good = true;

    for (int64_t row = 0; row < tensor_count(kept) / kept.shape[3]; row++) {
        int64_t diagonal = past + row % tiles;
        int64_t first = attention_first_key(diagonal * ATTENTION_TILE, a->window);
        good = good && is_used(kept, row, diagonal);
        for (int64_t t = 0; t < first / ATTENTION_TILE; t++)
            good = good && !is_used(kept, row, t);
        for (int64_t t = diagonal + 1; t < 32 * kept.shape[3]; t++)
            good = good && !is_used(kept, row, t);
    }
    return good;
}

/* The largest of exact - got, and of got - exact. */
static void one_sided(const struct problem *p, const struct solution *s, int slot, double *below,
                      double *above)
{
    *below = *above = -INFINITY;
    for (int64_t i = 0; i < stored(&p->slots[slot]); i++) {
        double exact = p->slots[slot].expected[i], got = result(p, s, slot, i);
        *below = isnan(got) ? INFINITY : fmax(*below, exact - got);
        *above = isnan(got) ? INFINITY : fmax(*above, got - exact);
    }
}

/* Forward against the contract. *used <- the share of tiles that was used. */
static bool check_budget(const struct problem *p, const struct solution *s, double *used)
{
    struct tensor t[SLOTS];
    struct attention_args a = attention_used(p, s, t);
    struct skip_count count = attention_count(&a);
    double skipped_weight = attention_skipped(&a),
           v = largest(&p->slots[V_ROWS]) / (1.0 - a.dropout.p), row = v * sqrt((double)p->n[N_D]);
    double rounding = (p->type == DTYPE_BF16 ? 0x1p-7 : 2e-5) * v, y[2], lse[2];
    bool good = is_a_record(&a);
    const char *wrong = misbehaviour(p, s);

    one_sided(p, s, FORWARD_Y, &y[0], &y[1]);
    one_sided(p, s, FORWARD_LSE, &lse[0], &lse[1]);
    *used = (double)count.used / (double)count.all;
    good = good && wrong == NULL && skipped_weight <= p->eps &&
           fmax(y[0], y[1]) <= 2.0 * p->eps * row + rounding && lse[0] <= p->eps + 5e-5 &&
           lse[1] <= 5e-5;
    printf(
        "skipping cuda %s %s eps %.0e%s: used %.3f skipped %.1e y %.1e limit %.1e lse %.1e %.1e  "
        "%s\n",
        type_name(p->type), p->shape, p->eps, stored(&p->slots[FORWARD_NORMS]) > 0 ? " norms" : "",
        *used, skipped_weight, fmax(y[0], y[1]), 2.0 * p->eps * row + rounding, lse[0], lse[1],
        wrong  ? wrong
        : good ? "ok"
               : "TOO FAR");
    for (int i = 0; i < p->count; i++)
        mem_free(t[i].data);
    return good;
}

/* ---- gradients of what was used: the reference's formulas over the tiles of the record, for B = 1
 * and rows without gaps */

static void add_pair(struct problem *p, const struct operands *o, int64_t h, int64_t i, int64_t j)
{
    struct slot *s = p->slots;
    struct pair x = pair_at(o, 0, h, i, j);
    double *dq = s[DQ_ROWS].expected + (x.q - s[Q_ROWS].values),
           *dk = s[DK_ROWS].expected + (x.k - s[K_ROWS].values);
    double *dv = s[DV_ROWS].expected + (x.v - s[V_ROWS].values), scale = x.gain * o->a.scale;

    for (int64_t d = 0; d < p->n[N_D]; d++) {
        dq[d] += scale * x.p * (x.dp - x.row) * x.k[d];
        dk[d] += scale * x.p * (x.dp - x.row) * x.q[d];
        dv[d] += x.mask * x.p * x.dy[d];
    }
    if (p->kind == BIAS_LINEAR)
        s[DBIAS].expected[h] -= x.p * (x.dp - x.row) * (double)(i - j);
}

static void expect_gradients_of_what_was_used(struct problem *p, struct tensor kept)
{
    struct operands o = operands_of(p);

    for (int n = DQ_ROWS; n <= DBIAS; n++) {
        struct slot *s = &p->slots[n];
        assert_ok(NEW_ZERO_ARRAY(&s->expected, stored(s) + 1, "gradients"));
        for (int64_t i = 0; n == DBIAS && i < stored(s); i++)
            s->expected[i] = s->values[i];
    }
    for (int64_t h = 0; h < p->n[N_H]; h++)
        for (int64_t i = 0; i < p->n[N_LQ]; i++)
            for (int64_t j = attention_first_key(i, o.a.window); j <= i; j++)
                if (is_used(kept, h * kept.shape[2] + i / ATTENTION_TILE, j / ATTENTION_TILE))
                    add_pair(p, &o, h, i, j);
}

/* The backward pass that follows on the GPU's own forward pass. */
static void check_skipping_backward(struct attention_case c, const struct problem *forward,
                                    const struct solution *s)
{
    double *y = NULL, *lse = NULL;
    struct tensor t[SLOTS];
    struct attention_args a = attention_used(forward, s, t);

    assert_ok(NEW_ARRAY(&y, stored(&forward->slots[FORWARD_Y]), "y"));
    assert_ok(NEW_ARRAY(&lse, stored(&forward->slots[FORWARD_LSE]), "lse"));
    for (int64_t i = 0; i < stored(&forward->slots[FORWARD_Y]); i++)
        y[i] = result(forward, s, FORWARD_Y, i);
    for (int64_t i = 0; i < stored(&forward->slots[FORWARD_LSE]); i++)
        lse[i] = result(forward, s, FORWARD_LSE, i);
    struct problem p = backward_problem(c, forward->type, y, lse, c.bias == BIAS_LINEAR, true);
    p.operation = "attention_backward skipping";
    p.eps = forward->eps;
    for (int n = Q_ROWS; n <= V_ROWS; n++)
        memcpy(p.slots[n].values, forward->slots[n].values,
               (size_t)stored(&p.slots[n]) * sizeof(double));
    for (int64_t i = 0; i < stored(&p.slots[KEPT]); i++)
        p.slots[KEPT].values[i] = (double)((const int32_t *)a.skip.kept.data)[i];
    expect_gradients_of_what_was_used(&p, a.skip.kept);
    size_bias_gradient(&p);
    struct solution solved = solve_on_gpu(&p);
    compare(&p, &solved);
    solution_free(&solved);
    problem_free(&p);
    for (int i = 0; i < forward->count; i++)
        mem_free(t[i].data);
    mem_free(y);
    mem_free(lse);
}

/* `size`: of the numbers in q and k, so that scores have its square. Returns the share of tiles
 * that was used. */
static double check_skipping_of(struct attention_case c, enum dtype type, double eps, bool norms,
                                double size)
{
    struct problem p = forward_problem(c, type, norms, (c.Lk - c.Lq) % ATTENTION_TILE == 0);
    double used = 1.0;

    p.eps = eps;
    for (int n = Q_ROWS; n <= V_ROWS; n++)
        fill_normal(&p.slots[n], (uint64_t)n, n < V_ROWS ? size : 1.0);
    solve_by_reference(&p);
    struct solution s = solve_on_gpu(&p);
    all_good = check_budget(&p, &s, &used) && all_good;
    if (c.Lq == c.Lk)
        check_skipping_backward(c, &p, &s);
    solution_free(&s);
    problem_free(&p);
    return used;
}

static double check_skipping(struct attention_case c, enum dtype type, double eps, bool norms)
{
    return check_skipping_of(c, type, eps, norms, 1.0);
}

static void what_is_skipped_stays_within_the_budget_and_gradients_are_of_the_rest(void **state)
{
    static const struct attention_case cases[] = {
        { 1, 64, 64, 2, 2, 64, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 129, 129, 4, 2, 64, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 1000, 1000, 2, 1, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 1100, 1100, 1, 1, 128, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 700, 700, 4, 4, 64, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 500, 500, 3, 3, 33, BIAS_LINEAR, ODD_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 2100, 2100, 1, 1, 16, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0,
          0 }, /* more than a word of tiles */
        { 1, 1000, 1000, 2, 1, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 500, 0 },
        { 1, 1100, 1100, 1, 1, 128, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 600, 0 },
        { 1, 700, 700, 4, 4, 64, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 0, NOT_ROTATED, 70, 0 },
        { 1, 500, 500, 3, 3, 33, BIAS_LINEAR, ODD_SLOPES, false, 0, 0, NOT_ROTATED, 1, 0 },
        { 1, 600, 600, 2, 1, 64, BIAS_GAIN, 3, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 700, 700, 2, 2, 64, BIAS_GAIN, -20, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 700, 700, 1, 1, 128, BIAS_GAIN, -20, false, 0, 0, NOT_ROTATED, 300, 0 },
        { 1, 1000, 1000, 2, 1, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 10 },
        { 1, 1000, 1000, 1, 1, 128, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 600, 40 },
    };
    static const double budgets[] = { 0x1p-24, 0x1p-10 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int i = 0; i < COUNT_OF(cases); i++)
            for (int kind = 0; kind < 4; kind++) {
                if (few_cases() && (4 * i + kind) % 7 != 0)
                    continue;
                double used =
                    check_skipping(cases[i], gpu_types[type], budgets[kind & 1], kind >> 1);
                bool fast =
                    gpu_types[type] == DTYPE_BF16 && (cases[i].D == 64 || cases[i].D == 128);
                if (fast && cases[i].T == STEEP_SLOPES && cases[i].Lq >= 1000 && used >= 1.0) {
                    printf("NOTHING IS SKIPPED\n");
                    all_good = false;
                }
            }
    end();
}

/* The bound by norms keeps nearly all blocks of keys here, and the test of scores skips many of
 * them in succession. */
static void runs_of_skipped_blocks_stay_within_the_budget(void **state)
{
    static const struct attention_case cases[] = {
        { 1, 2048, 2048, 1, 1, 128, BIAS_LINEAR, GENTLE_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 2048, 2048, 1, 1, 64, BIAS_LINEAR, GENTLE_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
    };

    (void)state;
    begin();
    for (int i = 0; i < COUNT_OF(cases); i++)
        check_skipping_of(cases[i], DTYPE_BF16, 0x1p-10, false, 2.0);
    end();
}

/* Several blocks of keys that add to the same gradients of queries, also where some are skipped: as
 * few pairs as show that, for a device that is slow. */
static void gradients_over_several_blocks_equal_the_reference(void **state)
{
    static const struct attention_case cases[] = {
        { 1, 270, 270, 2, 1, 128, BIAS_TABLE, 100, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 261, 261, 1, 1, 72, BIAS_LINEAR, ODD_SLOPES, false, 8, 0, NOT_ROTATED, 140, 0 },
        { 2, 300, 300, 2, 1, 64, BIAS_LINEAR, ALIBI_SLOPES, true, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 390, 390, 1, 1, 40, BIAS_TABLE, 150, false, 0, 0, NOT_ROTATED, 200, 0 },
        { 1, 265, 265, 2, 1, 128, BIAS_LINEAR, ODD_SLOPES, false, 0, 0, NOT_ROTATED, 0, 10 },
        { 2, 270, 270, 1, 1, 64, BIAS_TABLE, 100, true, 0, 0, NOT_ROTATED, 150, 40 },
    };
    static const struct attention_case skipping[] = {
        { 1, 450, 450, 2, 1, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 400, 400, 1, 1, 128, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 1, 430, 430, 2, 1, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 20 },
    };

    (void)state;
    begin();
    for (int i = 0; i < COUNT_OF(cases); i++)
        check_backward(cases[i], DTYPE_BF16, true, 0);
    for (int i = 0; i < COUNT_OF(skipping); i++)
        if (check_skipping(skipping[i], DTYPE_BF16, 0x1p-10, false) >= 1.0) {
            printf("NOTHING IS SKIPPED\n");
            all_good = false;
        }
    end();
}

static void a_chunk_after_a_past_stays_within_the_budget(void **state)
{
    static const struct attention_case cases[] = {
        { 1, 104, 1000, 2, 1, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0 },
        { 2, 64, 512, 4, 2, 128, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 700, NOT_ROTATED, 0, 0 },
        { 1, 1, 961, 2, 2, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 1500, NOT_ROTATED, 0, 0 },
        { 1, 1, 449, 4, 1, 96, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 600, NOT_ROTATED, 0, 0 },
        { 1, 104, 1000, 2, 1, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 300, 0 },
        { 2, 64, 512, 4, 2, 128, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 700, NOT_ROTATED, 100, 0 },
        { 1, 1, 961, 2, 2, 64, BIAS_LINEAR, STEEP_SLOPES, false, 0, 1500, NOT_ROTATED, 320, 0 },
        { 1, 1, 449, 4, 1, 96, BIAS_LINEAR, ALIBI_SLOPES, false, 0, 600, NOT_ROTATED, 65, 0 },
    };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int i = 0; i < COUNT_OF(cases); i++)
            for (int kind = 0; kind < 4; kind++)
                check_skipping(cases[i], gpu_types[type], kind & 1 ? 0x1p-10 : 0x1p-24, kind >> 1);
    end();
}

/* At any place in its tile, and at any distance. */
static void a_key_that_is_not_a_number_is_never_skipped(void **state)
{
    static const int64_t keys[] = { 0, 5, 63, 100 };

    (void)state;
    begin();
    for (int type = first_type(); type < 2; type++)
        for (int n = 0; n < 4 * COUNT_OF(keys); n++) {
            int64_t D = n & 1 ? 64 : 128, key = keys[n / 4];
            struct attention_case c = {
                1, 400, 400, 1, 1, D, BIAS_LINEAR, STEEP_SLOPES, false, 0, 0, NOT_ROTATED, 0, 0
            };
            struct problem p = forward_problem(c, gpu_types[type], n & 2, true);
            p.eps = 0x1p-24;
            p.slots[K_ROWS].values[key * D + 3] = (double)NAN;
            struct solution s = solve_on_gpu(&p);
            for (int64_t i = key; i < 400; i++)
                if (!isnan(result(&p, &s, FORWARD_LSE, i)))
                    fail_msg("%s %s: query %d does not show the nan of key %d",
                             type_name(gpu_types[type]), p.shape, (int)i, (int)key);
            solution_free(&s);
            problem_free(&p);
        }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_the_reference_at_every_width_and_length),
        cmocka_unit_test(attention_equals_the_reference_for_every_bias_and_group_of_heads),
        cmocka_unit_test(attention_in_a_window_equals_the_reference),
        cmocka_unit_test(attention_with_dropout_equals_the_reference),
        cmocka_unit_test(gradients_of_long_tables_equal_the_reference),
        cmocka_unit_test(gradients_of_rotated_queries_and_keys_equal_the_reference),
        cmocka_unit_test(attention_takes_tensors_at_any_place),
        cmocka_unit_test(attention_over_nothing_does_nothing),
        cmocka_unit_test(scores_too_large_for_exp_give_the_same_softmax),
        cmocka_unit_test(scores_too_large_for_exp_weigh_the_same_however_many_there_are),
        cmocka_unit_test(far_keys_underflow_to_nothing_under_a_steep_slope),
        cmocka_unit_test(attention_after_a_past_equals_the_reference),
        cmocka_unit_test(decoding_from_a_cache_equals_the_reference_whatever_else_the_cache_holds),
        cmocka_unit_test(rare_calls_decode_long_rows),
        cmocka_unit_test(rare_calls_decode_a_cache_of_more_keys_than_32_bits_count),
        cmocka_unit_test(rare_calls_leave_a_gradient_alone_that_the_bias_does_not_have),
        cmocka_unit_test(norms_of_keys_equal_the_reference_from_where_they_changed),
        cmocka_unit_test(what_is_skipped_stays_within_the_budget_and_gradients_are_of_the_rest),
        cmocka_unit_test(runs_of_skipped_blocks_stay_within_the_budget),
        cmocka_unit_test(gradients_over_several_blocks_equal_the_reference),
        cmocka_unit_test(a_chunk_after_a_past_stays_within_the_budget),
        cmocka_unit_test(a_key_that_is_not_a_number_is_never_skipped),
    };

    return RUN_ON_GPU(tests);
}
