/* cases.c - the operations, their operands, and the sizes that tests and benchmarks run them at */
#include "bench/cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/bf16.h"

enum { SEED = 5, START = 3 };

/* A function of a direction: it calls an operation with the operands `a`. */
#define CALL(name, call)                                                                           \
    static alibi_status name(struct device *dev, const union case_args *a)                         \
    {                                                                                              \
        return dev->ops->call;                                                                     \
    }

/* ---- building a case */

static struct operand *add(struct op_case *c, const char *name, size_t offset, struct tensor shape,
                           enum role forward, enum role backward)
{
    struct operand *o = &c->operands[c->count++];

    *o = (struct operand){ .name = name,
                           .offset = offset,
                           .shape = shape,
                           .role = { forward, backward },
                           .size = 1.7, /* a variance near 1 */
                           .same_as = -1 };
    return o;
}

#define ADD(c, operation, member, shape, forward, backward)                                        \
    add(c, #member, offsetof(union case_args, operation.member), shape, forward, backward)

/* Rows of H heads with a gap after them. */
static struct operand *view(struct op_case *c, const char *name, size_t offset, int64_t B,
                            int64_t L, int64_t H, int64_t D, enum role forward, enum role backward)
{
    struct operand *o =
        add(c, name, offset, tensor_2(NULL, c->type, B * L, H * D + c->gap), forward, backward);

    o->view = true;
    memcpy(o->heads, (int64_t[4]){ B, L, H, D }, sizeof o->heads);
    return o;
}

#define VIEW(c, operation, member, B, L, H, D, forward, backward)                                  \
    view(c, #member, offsetof(union case_args, operation.member), B, L, H, D, forward, backward)

static int find(const struct op_case *c, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->operands[i].name, name) == 0)
            return i;
    return -1;
}

/* `name` is stored in the tensor of `other`, which is then read and written. */
static void share(struct op_case *c, const char *name, const char *other, int direction)
{
    int i = find(c, name), j = find(c, other);

    c->operands[i].same_as = j;
    c->operands[j].role[direction] = ADDED;
    c->in_place = true;
}

__attribute__((format(printf, 2, 3))) static void say(struct op_case *c, const char *format, ...)
{
    size_t length = strlen(c->text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(c->text + length, sizeof c->text - length, format, arguments);
    va_end(arguments);
}

static struct tensor vector(enum dtype type, int64_t count)
{
    return tensor_1(NULL, type, count);
}

static struct tensor matrix(enum dtype type, int64_t rows, int64_t columns)
{
    return tensor_2(NULL, type, rows, columns);
}

static struct dropout dropout_of(double p)
{
    return (struct dropout){ p, 0x123456789ull, RANDOM_STREAM(RANDOM_DROPOUT, 3) };
}

static const char *const activation_names[] = { "gelu tanh", "gelu erf", "relu", "swiglu" };

/* The comment of an operation lists its options. Powers of two can be combined. */

/* ---- embedding. Options: 1 a table of positions; 2 ids with Zipf's distribution; 4 the same id
 * everywhere, so that many rows of dy are added to one row of dweight; 6 a table of positions, with
 * its gradient only */

static bool make_embedding(struct op_case *c)
{
    int64_t B = c->n[0], L = c->n[1], C = c->n[2], V = c->n[3];
    bool table = c->option & 1 || c->option == 6;
    enum dtype T = c->type, S = dtype_sums(T);
    struct tensor batch = tensor_3(NULL, T, B, L, C);
    struct operand *tokens;

    c->args.embedding.start = START;
    c->args.embedding.scale = 1.25;
    ADD(c, embedding, y, batch, OUT, UNUSED);
    tokens = ADD(c, embedding, tokens, matrix(DTYPE_I32, B, L), IN, IN);
    tokens->below = c->option & 4 ? 1 : V;
    tokens->zipf = c->option & 2;
    say(c, "%s", c->option & 4 ? " one id" : c->option & 2 ? " zipf" : "");
    ADD(c, embedding, weight, matrix(T, V, C), IN, UNUSED);
    ADD(c, embedding, dy, batch, UNUSED, IN);
    if (c->option != 6)
        ADD(c, embedding, dweight, matrix(S, V, C), UNUSED, ADDED);
    else
        say(c, " no dweight");
    if (table) {
        say(c, " positions");
        ADD(c, embedding, table, matrix(S, START + L, C), IN, UNUSED);
        ADD(c, embedding, dtable, matrix(S, START + L, C), UNUSED, ADDED);
    }
    return true;
}

CALL(embedding_forward, embedding_forward(dev, &a->embedding))
CALL(embedding_backward, embedding_backward(dev, &a->embedding))

static const int64_t embedding_tests[][CASE_SIZES] = { { 1, 1, 1, 1 },    { 2, 5, 7, 3 },
                                                       { 3, 50, 65, 11 }, { 2, 70, 400, 257 },
                                                       { 2, 0, 4, 4 },    { 2, 1031, 24, 257 } };
static const int64_t embedding_bench[][CASE_SIZES] = { { 8, 512, 768, 50257 } };

/* ---- linear. Options: 1 bias; 2 backward without dx; 4 backward without dweight; 8 forward is
 * decoding, and backward gives the first gradient */

static bool make_linear(struct op_case *c)
{
    int64_t rows = c->n[0], in = c->n[1], out = c->n[2];
    bool bias = c->option & 1, dx = !(c->option & 2), dweight = !(c->option & 4);
    bool first = c->option & 8;
    enum dtype T = c->type, S = dtype_sums(T);

    c->args.linear.decoding = c->args.linear.first = first;
    say(c, "%s%s%s%s", bias ? " bias" : "", dx ? "" : " no dx", dweight ? "" : " no dweight",
        first ? " decoding, first" : "");
    ADD(c, linear, y, matrix(T, rows, out), OUT, UNUSED);
    ADD(c, linear, x, matrix(T, rows, in), IN, dweight ? IN : UNUSED);
    ADD(c, linear, weight, matrix(T, out, in), IN, IN);
    ADD(c, linear, dy, matrix(T, rows, out), UNUSED, IN);
    if (dx)
        ADD(c, linear, dx, matrix(T, rows, in), UNUSED, OUT);
    if (dweight)
        ADD(c, linear, dweight, matrix(S, out, in), UNUSED, first ? OUT : ADDED);
    if (bias) {
        ADD(c, linear, bias, vector(T, out), IN, UNUSED);
        ADD(c, linear, dbias, vector(S, out), UNUSED, ADDED);
    }
    c->flops[0] = 2.0 * (double)(rows * in) * (double)out;
    c->flops[1] = 2.0 * c->flops[0];
    return true;
}

CALL(linear_forward, linear_forward(dev, &a->linear))
CALL(linear_backward, linear_backward(dev, &a->linear))

static const int64_t linear_tests[][CASE_SIZES] = {
    { 1, 1, 1 }, { 1, 96, 67 }, { 2, 3, 5 }, { 7, 65, 29 },   { 64, 64, 64 },    { 130, 33, 17 },
    { 0, 8, 8 }, { 5, 0, 3 },   { 5, 3, 0 }, { 600, 20, 50 }, { 128, 272, 136 }, { 37, 128, 1031 }
};
static const int64_t linear_bench[][CASE_SIZES] = { { 2048, 768, 3072 }, { 2048, 3072, 768 } };
static const int64_t decoding_bench[][CASE_SIZES] = { { 1, 768, 3072 }, { 32, 768, 3072 } };

/* ---- linear layers around an activation. Options: kind; 4 bias; 8 dropout. Forward and backward
 * belong to two different layers, so they are two operations here. */

static int activated_columns(const struct op_case *c)
{
    return (int)c->n[2] * (c->option % 4 == ALIBI_SWIGLU ? 2 : 1);
}

static bool make_linear_activation(struct op_case *c)
{
    int64_t rows = c->n[0], C = c->n[1], F = c->n[2], width = activated_columns(c);
    enum dtype T = c->type;

    c->args.linear_activation.kind = c->option % 4;
    c->args.linear_activation.dropout = dropout_of(c->option & 8 ? 0.3 : 0.0);
    say(c, " %s%s%s", activation_names[c->option % 4], c->option & 4 ? " bias" : "",
        c->option & 8 ? " dropout" : "");
    ADD(c, linear_activation, x, matrix(T, rows, C), IN, UNUSED);
    ADD(c, linear_activation, weight, matrix(T, width, C), IN, UNUSED);
    if (c->option & 4)
        ADD(c, linear_activation, bias, vector(T, width), IN, UNUSED);
    ADD(c, linear_activation, activated, matrix(T, rows, F), OUT, UNUSED);
    ADD(c, linear_activation, up, matrix(T, rows, width), OUT, UNUSED);
    c->flops[0] = 2.0 * (double)(rows * C) * (double)width;
    return true;
}

CALL(linear_activation_forward, linear_activation_forward(dev, &a->linear_activation))

/* Options: kind; 4 dup_sums and dbias, otherwise the first gradient; and one of: 8 dup is stored in
 * up, 16 dup is stored in scratch, 24 dropout. */
static bool make_activation_linear(struct op_case *c)
{
    int64_t rows = c->n[0], C = c->n[1], F = c->n[2], width = activated_columns(c);
    enum dtype T = c->type, S = dtype_sums(T);
    int kind = c->option % 4, place = c->option / 8;

    if (place == 2 && kind == ALIBI_SWIGLU)
        return false;
    c->args.linear_activation.kind = kind;
    c->args.linear_activation.dropout = dropout_of(place == 3 ? 0.3 : 0.0);
    c->args.linear_activation.first = !(c->option & 4);
    say(c, " %s%s%s", activation_names[kind], c->option & 4 ? " sums" : " first",
        place == 0   ? ""
        : place == 1 ? " dup=up"
        : place == 2 ? " dup=scratch"
                     : " dropout");
    ADD(c, linear_activation, dy, matrix(T, rows, C), IN, UNUSED);
    ADD(c, linear_activation, activated, matrix(T, rows, F), IN, UNUSED);
    ADD(c, linear_activation, weight, matrix(T, C, F), IN, UNUSED);
    ADD(c, linear_activation, up, matrix(T, rows, width), IN, UNUSED);
    ADD(c, linear_activation, scratch, matrix(T, rows, F), SCRATCH, UNUSED);
    ADD(c, linear_activation, dup, matrix(T, rows, width), OUT, UNUSED);
    ADD(c, linear_activation, dweight, matrix(S, C, F), c->option & 4 ? ADDED : OUT, UNUSED);
    if (c->option & 4) {
        ADD(c, linear_activation, dup_sums, vector(S, width), ADDED, UNUSED);
        ADD(c, linear_activation, dbias, vector(S, C), ADDED, UNUSED);
    }
    c->stores_first = true;
    if (place == 1 || place == 2)
        share(c, "dup", place == 1 ? "up" : "scratch", 0);
    c->flops[0] = 4.0 * (double)(rows * C) * (double)F;
    return true;
}

CALL(linear_activation_backward, linear_activation_backward(dev, &a->linear_activation))

static const int64_t linear_activation_tests[][CASE_SIZES] = { { 0, 3, 2 },      { 1, 1, 1 },
                                                               { 1, 96, 65 },    { 7, 33, 130 },
                                                               { 150, 20, 301 }, { 64, 64, 256 } };
static const int64_t linear_activation_bench[][CASE_SIZES] = { { 2048, 768, 3072 } };

/* ---- norm. Options: 1 RMS norm; 2 bias; 4 branch; 8 dropout on the branch; 16 sum is stored in x
 * or, without a branch, backward writes y again; 32 backward sums dx. Backward is that of the norm
 * alone. */

static bool make_norm(struct op_case *c)
{
    int64_t rows = c->n[0], C = c->n[1];
    bool branch = c->option & 4, drop = c->option & 8, last = c->option & 16;
    bool sums = c->option & 32;
    enum dtype T = c->type, S = dtype_sums(T);

    if ((drop && !branch) || (sums && branch))
        return false;
    c->directions[0] = !sums;
    c->directions[1] = !branch;
    c->args.norm.kind = c->option & 1 ? ALIBI_RMSNORM : ALIBI_LAYERNORM;
    c->args.norm.dropout = dropout_of(drop ? 0.3 : 0.0);
    c->args.norm.eps = 1e-5;
    say(c, "%s%s%s%s%s%s", c->option & 1 ? " rms" : "", c->option & 2 ? " bias" : "",
        branch ? " branch" : "", drop ? " dropout" : "", sums ? " sums" : "",
        !last    ? ""
        : branch ? " sum=x"
                 : " y again");
    ADD(c, norm, x, matrix(T, rows, C), IN, IN);
    ADD(c, norm, weight, vector(S, C), IN, IN);
    ADD(c, norm, y, matrix(T, rows, C), OUT, last ? OUT : UNUSED);
    ADD(c, norm, rstd, vector(S, rows), OUT, IN);
    ADD(c, norm, dy, matrix(T, rows, C), UNUSED, IN);
    ADD(c, norm, dx, matrix(T, rows, C), UNUSED, ADDED);
    ADD(c, norm, dweight, vector(S, C), UNUSED, ADDED);
    if (sums)
        ADD(c, norm, dx_sums, vector(S, C), UNUSED, ADDED);
    if (!(c->option & 1))
        ADD(c, norm, mean, vector(S, rows), OUT, IN);
    if (c->option & 2) {
        ADD(c, norm, bias, vector(S, C), IN, IN);
        ADD(c, norm, dbias, vector(S, C), UNUSED, ADDED);
    }
    if (branch) {
        ADD(c, norm, branch, matrix(T, rows, C), IN, UNUSED);
        ADD(c, norm, sum, matrix(T, rows, C), OUT, UNUSED);
    }
    c->stores_first = branch || sums;
    if (branch && last)
        share(c, "sum", "x", 0);
    return true;
}

CALL(norm_forward, norm_forward(dev, &a->norm))
CALL(norm_backward, norm_backward(dev, &a->norm))

static const int64_t norm_tests[][CASE_SIZES] = { { 0, 4 },   { 3, 1 },    { 2, 7 },    { 17, 16 },
                                                  { 5, 33 },  { 90, 401 }, { 700, 64 }, { 3, 4101 },
                                                  { 6, 768 }, { 3, 4096 } };
static const int64_t norm_bench[][CASE_SIZES] = { { 4096, 768 } };

/* ---- a norm and the linear layer that follows, as one call. Options: 1 RMS norm; 2 biases; 4
 * branch; 8 GELU follows the layer; 16 not decoding, with dropout on the branch. */

static bool make_norm_linear(struct op_case *c)
{
    int64_t rows = c->n[0], C = c->n[1], out = c->n[2];
    bool rms = c->option & 1, bias = c->option & 2, branch = c->option & 4;
    bool gelu = c->option & 8, decoding = !(c->option & 16);
    enum dtype T = c->type, S = dtype_sums(T);

    c->args.norm_linear.linear.decoding = decoding;
    c->args.norm_linear.norm.kind = rms ? ALIBI_RMSNORM : ALIBI_LAYERNORM;
    c->args.norm_linear.norm.dropout = dropout_of(branch && !decoding ? 0.3 : 0.0);
    c->args.norm_linear.norm.eps = 1e-5;
    say(c, "%s%s%s%s%s", rms ? " rms" : "", bias ? " bias" : "", branch ? " branch" : "",
        gelu ? " gelu" : "", decoding ? " decoding" : "");
    ADD(c, norm_linear, norm.x, matrix(T, rows, C), IN, UNUSED);
    ADD(c, norm_linear, norm.weight, vector(S, C), IN, UNUSED);
    ADD(c, norm_linear, norm.y, matrix(T, rows, C), OUT, UNUSED);
    ADD(c, norm_linear, norm.rstd, vector(S, rows), OUT, UNUSED);
    if (!rms)
        ADD(c, norm_linear, norm.mean, vector(S, rows), OUT, UNUSED);
    if (branch) {
        ADD(c, norm_linear, norm.branch, matrix(T, rows, C), IN, UNUSED);
        ADD(c, norm_linear, norm.sum, matrix(T, rows, C), OUT, UNUSED);
    }
    ADD(c, norm_linear, linear.weight, matrix(T, out, C), IN, UNUSED);
    ADD(c, norm_linear, linear.y, matrix(T, rows, out), OUT, UNUSED);
    if (bias) {
        ADD(c, norm_linear, norm.bias, vector(S, C), IN, UNUSED);
        ADD(c, norm_linear, linear.bias, vector(T, out), IN, UNUSED);
    }
    if (gelu)
        ADD(c, norm_linear, activated, matrix(T, rows, out), OUT, UNUSED);
    c->stores_first = true;
    c->flops[0] = 2.0 * (double)(rows * C) * (double)out;
    return true;
}

static alibi_status norm_linear(struct device *dev, const union case_args *a)
{
    struct linear_args layer = a->norm_linear.linear;

    layer.x = a->norm_linear.norm.y;
    layer.norm = &a->norm_linear.norm;
    if (!a->norm_linear.activated.data)
        return dev->ops->linear_forward(dev, &layer);
    return dev->ops->linear_activation_forward(
        dev, &(struct linear_activation_args){ .kind = ALIBI_GELU_TANH,
                                               .activated = a->norm_linear.activated,
                                               .up = layer.y,
                                               .x = layer.x,
                                               .weight = layer.weight,
                                               .bias = layer.bias,
                                               .decoding = layer.decoding,
                                               .norm = layer.norm });
}

static const int64_t norm_linear_tests[][CASE_SIZES] = {
    { 1, 8, 5 },    { 3, 40, 17 },  { 8, 768, 40 },  { 9, 40, 33 },  { 31, 8, 16 },
    { 32, 40, 24 }, { 33, 40, 19 }, { 1, 768, 100 }, { 5, 33, 18 },  { 1, 1, 1 },
    { 0, 8, 8 },    { 3, 16, 0 },   { 7, 1040, 9 },  { 33, 768, 3 }, { 2, 2056, 8 }
};
static const int64_t norm_linear_bench[][CASE_SIZES] = { { 1, 768, 3072 }, { 8, 768, 3072 } };

/* ---- activation. Options: kind; and one of: 4 dx is stored in x, 8 dx is stored in dy, 12 forward
 * on numbers for which exp overflows. */

static bool make_activation(struct op_case *c)
{
    int64_t rows = c->n[0], F = c->n[1];
    int kind = c->option % 4, place = c->option / 4;
    struct tensor x = matrix(c->type, rows, kind == ALIBI_SWIGLU ? 2 * F : F);

    if (place == 2 && kind == ALIBI_SWIGLU)
        return false;
    if (place == 3 && (c->type == DTYPE_BF16 || rows * F < 64))
        return false; /* errors are relative to the large results, not to the small ones */
    c->args.activation.kind = kind;
    c->directions[0] = place == 0 || place == 3;
    c->directions[1] = place < 3;
    say(c, " %s%s", activation_names[kind],
        (const char *[]){ "", " dx=x", " dx=dy", " large" }[place]);
    ADD(c, activation, x, x, IN, IN)->size = place == 3 ? 300.0 : 1.7;
    ADD(c, activation, y, matrix(c->type, rows, F), OUT, UNUSED);
    ADD(c, activation, dy, matrix(c->type, rows, F), UNUSED, IN);
    ADD(c, activation, dx, x, UNUSED, OUT);
    if (place == 1 || place == 2)
        share(c, "dx", place == 1 ? "x" : "dy", 1);
    return true;
}

CALL(activation_forward,
     activation_forward(dev, a->activation.kind, a->activation.y, a->activation.x))
CALL(activation_backward, activation_backward(dev, a->activation.kind, a->activation.dx,
                                              a->activation.dy, a->activation.x))

static const int64_t activation_tests[][CASE_SIZES] = { { 0, 3 },  { 1, 1 },     { 3, 37 },
                                                        { 2, 64 }, { 13, 4097 }, { 5, 2048 } };
static const int64_t activation_bench[][CASE_SIZES] = { { 4096, 3072 } };

/* ---- residual. Options: 0 to 2 dropout of 0, 30 and 90%; 3 to 5 the same with y stored in x. */

static bool make_residual(struct op_case *c)
{
    static const double rates[] = { 0.0, 0.3, 0.9 };
    struct tensor all = vector(c->type, c->n[0]);

    c->args.residual.dropout = dropout_of(rates[c->option % 3]);
    c->directions[1] = c->option < 3;
    say(c, " p=%.1f%s", rates[c->option % 3], c->option < 3 ? "" : " y=x");
    ADD(c, residual, y, all, OUT, UNUSED);
    ADD(c, residual, x, all, IN, UNUSED);
    ADD(c, residual, branch, all, IN, UNUSED);
    ADD(c, residual, dy, all, UNUSED, IN);
    ADD(c, residual, dx, all, UNUSED, OUT);
    ADD(c, residual, dbranch, all, UNUSED, OUT);
    if (c->option >= 3)
        share(c, "y", "x", 0);
    return true;
}

CALL(residual_forward,
     residual_forward(dev, a->residual.y, a->residual.x, a->residual.branch, a->residual.dropout))

/* The gradient of x is dy; the gradient of the branch is dy after the same dropout. */
static alibi_status residual_backward(struct device *dev, const union case_args *a)
{
    TRY_RETURN(dev->ops->dropout(dev, a->residual.dx, a->residual.dy, dropout_of(0.0)));
    return dev->ops->dropout(dev, a->residual.dbranch, a->residual.dy, a->residual.dropout);
}

static const int64_t residual_tests[][CASE_SIZES] = { { 0 },    { 1 },    { 3 },    { 17 },
                                                      { 4095 }, { 4097 }, { 40001 } };
static const int64_t residual_bench[][CASE_SIZES] = { { 4096 * 768 } };

/* ---- rotary, in place on a copy. Option: the layout. */

static bool make_rotary(struct op_case *c)
{
    int64_t B = c->n[0], L = c->n[1], H = c->n[2], D = c->n[3];

    c->args.rotary.rotation.layout = c->option;
    say(c, c->option == ALIBI_ROTARY_HALVES ? " halves" : " pairs");
    VIEW(c, rotary, x, B, L, H, D, IN, UNUSED);
    VIEW(c, rotary, y, B, L, H, D, OUT, UNUSED);
    VIEW(c, rotary, dy, B, L, H, D, UNUSED, IN);
    VIEW(c, rotary, dx, B, L, H, D, UNUSED, OUT);
    ADD(c, rotary, rotation.table, matrix(dtype_sums(c->type), L, D), IN, IN);
    return true;
}

static alibi_status rotary_forward(struct device *dev, const union case_args *a)
{
    TRY_RETURN(dev->ops->copy(dev, a->rotary.y, a->rotary.x));
    return dev->ops->rotary(dev, a->rotary.y, a->rotary.rotation, 1);
}

static alibi_status rotary_backward(struct device *dev, const union case_args *a)
{
    TRY_RETURN(dev->ops->copy(dev, a->rotary.dx, a->rotary.dy));
    return dev->ops->rotary(dev, a->rotary.dx, a->rotary.rotation, -1);
}

static const int64_t head_tests[][CASE_SIZES] = { { 0, 3, 1, 2 },   { 1, 1, 1, 2 },
                                                  { 2, 5, 3, 6 },   { 3, 33, 2, 34 },
                                                  { 2, 70, 5, 64 }, { 2, 128, 4, 128 } };
static const int64_t head_bench[][CASE_SIZES] = { { 8, 512, 12, 64 } };

/* ---- logn. One of these options: 1 a window; 2 from the first position on, with backward in
 * place; 3 a temperature. */

static bool make_logn(struct op_case *c)
{
    static const char *const names[] = { "", " window", " in place", " temperature" };
    int64_t B = c->n[0], L = c->n[1], H = c->n[2], D = c->n[3];
    enum dtype S = dtype_sums(c->type);

    say(c, "%s", names[c->option]);
    c->args.logn.start = c->option == 2 ? 0 : START;
    c->args.logn.window = c->option == 1 ? 6 : 0;
    VIEW(c, logn, x, B, L, H, D, IN, IN);
    VIEW(c, logn, y, B, L, H, D, OUT, UNUSED);
    if (c->option == 3) {
        c->args.logn.temperature = 0.4;
        c->args.logn.length = 7;
        c->directions[1] = false;
        return true;
    }
    ADD(c, logn, factor, vector(S, H), IN, IN);
    VIEW(c, logn, dy, B, L, H, D, UNUSED, IN);
    VIEW(c, logn, dx, B, L, H, D, UNUSED, OUT);
    ADD(c, logn, dfactor, vector(S, H), UNUSED, ADDED);
    if (c->option == 2)
        share(c, "dx", "dy", 1);
    return true;
}

CALL(logn_forward, logn_forward(dev, &a->logn))
CALL(logn_backward, logn_backward(dev, &a->logn))

/* ---- head norm. Options: 1 in place; 2 rotated by halves or 4 rotated by pairs. */

static bool make_head_norm(struct op_case *c)
{
    static const char *const names[] = { "", " halves", " pairs" };
    int64_t B = c->n[0], L = c->n[1], H = c->n[2], D = c->n[3];
    int rotated = c->option / 2;
    enum dtype S = dtype_sums(c->type);
    struct head_norm_args *a = &c->args.head_norm;

    if (rotated && D % 2 != 0)
        return false;
    say(c, "%s%s", names[rotated], c->option & 1 ? " in place" : "");
    a->eps = 1e-3;
    a->queries = H - H / 2;
    VIEW(c, head_norm, x, B, L, H, D, IN, IN);
    VIEW(c, head_norm, y, B, L, H, D, OUT, UNUSED);
    ADD(c, head_norm, q_weight, vector(S, D), IN, IN);
    ADD(c, head_norm, k_weight, vector(S, D), IN, IN);
    VIEW(c, head_norm, dy, B, L, H, D, UNUSED, IN);
    VIEW(c, head_norm, dx, B, L, H, D, UNUSED, OUT);
    ADD(c, head_norm, dq_weight, vector(S, D), UNUSED, ADDED);
    ADD(c, head_norm, dk_weight, vector(S, D), UNUSED, ADDED);
    if (rotated) {
        a->rotation.layout = rotated == 1 ? ALIBI_ROTARY_HALVES : ALIBI_ROTARY_PAIRS;
        ADD(c, head_norm, rotation.table, matrix(S, L, D), IN, IN);
    }
    if (c->option & 1) {
        share(c, "y", "x", 0);
        share(c, "dx", "dy", 1);
    }
    return true;
}

CALL(head_norm_forward, head_norm_forward(dev, &a->head_norm))
CALL(head_norm_backward, head_norm_backward(dev, &a->head_norm))

static const int64_t head_norm_tests[][CASE_SIZES] = {
    { 0, 3, 1, 2 },   { 1, 1, 1, 1 },     { 2, 5, 3, 7 },   { 3, 33, 2, 34 },
    { 2, 70, 5, 64 }, { 2, 128, 4, 128 }, { 1, 9, 2, 600 }, { 1, 19, 3, 96 },
};

/* ---- gates. One of these options: 1 after earlier tokens; 2 backward in place. */

static bool make_gate(struct op_case *c)
{
    static const char *const names[] = { "", " after others", " in place" };
    int64_t B = c->n[0], L = c->n[1], G = c->n[2], Lk = L + (c->option == 1 ? START : 0);
    enum dtype T = c->type, S = dtype_sums(T);

    say(c, "%s", names[c->option]);
    c->directions[1] = Lk == L;
    ADD(c, gate, c, tensor_4(NULL, S, 2, B, G, Lk), Lk == L ? OUT : ADDED, UNUSED);
    ADD(c, gate, z, matrix(T, B * L, G), IN, IN)->size = 4.0;
    ADD(c, gate, bias, vector(S, G), IN, IN);
    ADD(c, gate, dc, tensor_3(NULL, S, B, G, L), UNUSED, IN);
    ADD(c, gate, dz, matrix(T, B * L, G), UNUSED, OUT);
    ADD(c, gate, dbias, vector(S, G), UNUSED, ADDED);
    if (c->option == 2)
        share(c, "dz", "z", 1);
    return true;
}

CALL(gate_forward, gate_forward(dev, &a->gate))
CALL(gate_backward, gate_backward(dev, &a->gate))

static const int64_t gate_tests[][CASE_SIZES] = { { 0, 3, 2 },    { 2, 0, 3 },   { 2, 5, 0 },
                                                  { 1, 1, 1 },    { 3, 7, 5 },   { 2, 31, 3 },
                                                  { 1, 64, 8 },   { 2, 257, 2 }, { 1, 1024, 1 },
                                                  { 1, 1025, 3 }, { 1, 5003, 2 } };
static const int64_t gate_bench[][CASE_SIZES] = { { 8, 512, 8 } };

/* ---- attention. Option: a row of this table. The first three rows are the kinds of bias. A window
 * has W keys. With sinks, the sinks operation follows. */

static const struct attention_option {
    const char *name;
    enum bias_kind bias;
    bool rotated, window, drops, sinks;
    bool half;  /* only half of the heads have gates */
    bool own;   /* each sequence has its own slopes */
    int layout; /* of the rotation */
} attention_options[] = {
    { .name = "", .bias = BIAS_NONE },
    { .name = " alibi", .bias = BIAS_LINEAR },
    { .name = " table", .bias = BIAS_TABLE },
    { .name = " halves rotated", .rotated = true, .layout = ALIBI_ROTARY_HALVES },
    { .name = " pairs rotated", .rotated = true, .layout = ALIBI_ROTARY_PAIRS },
    { .name = " alibi window", .bias = BIAS_LINEAR, .window = true },
    { .name = " table window", .bias = BIAS_TABLE, .window = true },
    { .name = " alibi dropout", .bias = BIAS_LINEAR, .drops = true },
    { .name = " table window dropout", .bias = BIAS_TABLE, .window = true, .drops = true },
    { .name = " gates", .bias = BIAS_GATE },
    { .name = " gates on half, window", .bias = BIAS_GATE, .window = true, .half = true },
    { .name = " gates dropout", .bias = BIAS_GATE, .drops = true },
    { .name = " gain", .bias = BIAS_GAIN },
    { .name = " gain rotated window", .bias = BIAS_GAIN, .rotated = true, .window = true },
    { .name = " gain dropout window sinks",
      .bias = BIAS_GAIN,
      .drops = true,
      .window = true,
      .sinks = true },
    { .name = " rotated window sinks", .rotated = true, .window = true, .sinks = true },
    { .name = " pairs rotated window sinks",
      .rotated = true,
      .window = true,
      .sinks = true,
      .layout = ALIBI_ROTARY_PAIRS },
    { .name = " alibi window sinks", .bias = BIAS_LINEAR, .window = true, .sinks = true },
    { .name = " table window sinks dropout",
      .bias = BIAS_TABLE,
      .window = true,
      .drops = true,
      .sinks = true },
    { .name = " alibi, slopes of each", .bias = BIAS_LINEAR, .own = true },
};
enum { ATTENTION_OPTIONS = sizeof attention_options / sizeof *attention_options };

static bool make_attention(struct op_case *c)
{
    const struct attention_option *option = &attention_options[c->option];
    int64_t B = c->n[0], Lq = c->n[1], Lk = c->n[2], H = c->n[3], Hkv = c->n[4], D = c->n[5];
    bool rotated = option->rotated, drops = option->drops;
    enum bias_kind bias = option->bias;
    int64_t window = option->window ? c->n[7] : 0, G = option->half ? (H + 1) / 2 : H;
    bool one_key = Lk == 1 || (window == 1 && !option->sinks);
    enum dtype S = dtype_sums(c->type);
    struct tensor values = bias == BIAS_GATE    ? tensor_4(NULL, S, 2, B, G, Lk)
                           : bias == BIAS_TABLE ? matrix(S, H, c->n[6])
                           : option->own        ? matrix(S, B, H)
                                                : vector(S, H);
    struct tensor dvalues = bias == BIAS_GATE ? tensor_3(NULL, S, B, G, Lk) : values;
    size_t q = offsetof(union case_args, attention.args.q);
    size_t k = offsetof(union case_args, attention.args.k);

    if ((rotated && D % 2 == 1) || ((rotated || drops) && Lq != Lk))
        return false;
    c->directions[1] = Lq == Lk;
    c->args.attention.args.scale = D > 0 ? 1.0 / sqrt((double)D) : 1.0;
    if (bias == BIAS_GAIN) /* a factor of up to 3 on scores and on their rounding */
        c->args.attention.args.scale /= 3;
    c->args.attention.args.bias.kind = bias;
    c->args.attention.args.bias.tau = bias == BIAS_GAIN ? 3.0 : 0.0;
    c->args.attention.args.window = window;
    c->args.attention.args.dropout = dropout_of(drops ? 0.3 : 0.0);
    c->stores_first = rotated;
    c->args.attention.sinks = option->sinks ? 1 + c->n[7] % 5 : 0;
    say(c, "%s", option->name);
    if (rotated) {
        /* Backward reads the rotated q and k, and gives the gradients of those before. */
        c->args.attention.args.rotation.layout = option->layout;
        VIEW(c, attention, q, B, Lq, H, D, IN, UNUSED);
        VIEW(c, attention, k, B, Lk, Hkv, D, IN, UNUSED);
        ADD(c, attention, args.rotation.table, matrix(S, Lk + window + c->args.attention.sinks, D),
            IN, IN); /* with the farthest */
    }
    view(c, rotated ? "rotated q" : "q", q, B, Lq, H, D, rotated ? OUT : IN, IN);
    view(c, rotated ? "rotated k" : "k", k, B, Lk, Hkv, D, rotated ? OUT : IN, IN);
#define ATTENTION_VIEW(member, L, H, forward, backward)                                            \
    view(c, #member, offsetof(union case_args, attention.args.member), B, L, H, D, forward,        \
         backward)
    ATTENTION_VIEW(v, Lk, Hkv, IN, IN);
    ATTENTION_VIEW(y, Lq, H, OUT, IN);
    ATTENTION_VIEW(dy, Lq, H, UNUSED, IN);
    /* If a query sees only one key, these are 0 except for rounding. */
    ATTENTION_VIEW(dq, Lq, H, UNUSED, OUT)->least = one_key ? 1.0 : 0.0;
    ATTENTION_VIEW(dk, Lk, Hkv, UNUSED, OUT)->least = one_key ? 1.0 : 0.0;
    ATTENTION_VIEW(dv, Lk, Hkv, UNUSED, OUT);
    ADD(c, attention, args.lse, tensor_3(NULL, S, B, H, Lq), OUT, IN);
    if (bias != BIAS_NONE && bias != BIAS_GAIN) {
        size_t at = offsetof(union case_args, attention.args.bias.values);
        struct operand *o = add(c, "bias", at, values, IN, IN);
        o->positive = bias == BIAS_LINEAR;
        o->size = 0.5;
        o = add(c, "dbias", offsetof(union case_args, attention.args.dbias), dvalues, UNUSED,
                bias == BIAS_GATE ? OUT : ADDED);
        o->limit = drops ? 3e-5 : 1e-5; /* a sum in which less cancels */
        /* Then each of Lq terms is a difference of two dot products over D. */
        o->least = one_key ? sqrt((double)(Lq * D)) : 0.0;
    }
    c->flops[0] = (Lq == Lk && window == 0 ? 2.0 : 4.0) * (double)(B * H) * (double)D *
                  (double)(Lq * (window > 0 ? window : Lk));
    c->flops[1] = 2.5 * c->flops[0];
    return true;
}

static struct sinks_args sinks_of(const union case_args *a)
{
    const struct attention_args *args = &a->attention.args;
    struct sinks_args s = { .q = args->q,
                            .k = args->k,
                            .v = args->v,
                            .bias = args->bias,
                            .scale = args->scale,
                            .window = args->window,
                            .sinks = a->attention.sinks,
                            .start = args->k.shape[1] - args->q.shape[1],
                            .rotation = args->rotation,
                            .dropout = args->dropout,
                            .y = args->y,
                            .lse = args->lse,
                            .dy = args->dy,
                            .dq = args->dq,
                            .dk = args->dk,
                            .dv = args->dv,
                            .dbias = args->dbias };

    if (s.rotation.table.data)
        s.farthest = tensor_rows(s.rotation.table, s.window + s.sinks - 1, 1);
    if (s.k.shape[1] > s.sinks)
        s.k.shape[1] = s.v.shape[1] = s.dk.shape[1] = s.dv.shape[1] = s.sinks;
    return s;
}

static alibi_status attention_forward(struct device *dev, const union case_args *a)
{
    const struct attention_args *args = &a->attention.args;
    struct sinks_args sinks = sinks_of(a);

    if (a->attention.q.data) {
        TRY_RETURN(dev->ops->copy(dev, args->q, a->attention.q));
        TRY_RETURN(dev->ops->copy(dev, args->k, a->attention.k));
        TRY_RETURN(dev->ops->rotary(dev, args->q, args->rotation, 1));
        TRY_RETURN(dev->ops->rotary(dev, args->k, args->rotation, 1));
    }
    TRY_RETURN(dev->ops->attention_forward(dev, args));
    return sinks.sinks > 0 ? dev->ops->sinks_forward(dev, &sinks) : ALIBI_OK;
}

static alibi_status attention_backward(struct device *dev, const union case_args *a)
{
    struct attention_args args = a->attention.args;
    struct sinks_args sinks = sinks_of(a);

    if (sinks.sinks == 0)
        return dev->ops->attention_backward(dev, &args);
    args.rotation.table = tensor_none();
    TRY_RETURN(dev->ops->attention_backward(dev, &args));
    TRY_RETURN(dev->ops->sinks_backward(dev, &sinks));
    if (!sinks.rotation.table.data)
        return ALIBI_OK;
    TRY_RETURN(dev->ops->rotary(dev, args.dq, sinks.rotation, -1));
    return dev->ops->rotary(dev, args.dk, sinks.rotation, -1);
}

/* B Lq Lk H Hkv D T W */
static const int64_t attention_tests[][CASE_SIZES] = {
    /* widths, around vectors and beyond */
    { 2, 9, 9, 2, 2, 1, 3, 4 },
    { 1, 20, 20, 2, 1, 3, 20, 1 },
    { 1, 17, 17, 2, 2, 4, 6, 20 },
    { 2, 31, 31, 1, 1, 5, 13, 7 },
    { 1, 40, 40, 3, 3, 16, 41, 40 },
    { 1, 70, 70, 2, 2, 33, 7, 16 },
    { 1, 66, 66, 2, 2, 80, 20, 2 },
    { 1, 65, 65, 2, 2, 128, 64, 63 },
    /* lengths, around tiles; one head is split between threads */
    { 1, 1, 1, 1, 1, 64, 1, 1 },
    { 3, 2, 2, 1, 1, 7, 1, 1 },
    { 1, 63, 63, 1, 1, 64, 9, 62 },
    { 1, 64, 64, 1, 1, 64, 64, 64 },
    { 1, 65, 65, 1, 1, 64, 65, 1 },
    { 1, 127, 127, 1, 1, 32, 40, 64 },
    { 1, 128, 128, 1, 1, 32, 128, 65 },
    { 2, 129, 129, 3, 3, 64, 70, 70 },
    { 1, 200, 200, 1, 1, 16, 201, 128 },
    { 1, 600, 600, 1, 1, 8, 30, 100 },
    /* groups of query heads */
    { 2, 7, 7, 4, 2, 6, 4, 3 },
    { 1, 97, 97, 4, 2, 16, 50, 17 },
    { 2, 80, 80, 6, 1, 8, 33, 64 },
    { 1, 130, 130, 2, 1, 24, 129, 100 },
    /* nothing to do */
    { 0, 5, 5, 2, 2, 4, 3, 2 },
    { 2, 0, 0, 2, 2, 4, 3, 2 },
    /* queries after a past: decoding and chunks */
    { 2, 1, 63, 3, 3, 64, 9, 62 },
    { 1, 1, 64, 4, 2, 33, 20, 10 },
    { 1, 1, 65, 2, 1, 5, 9, 64 },
    { 1, 1, 700, 2, 2, 128, 90, 300 },
    { 2, 4, 129, 2, 2, 16, 130, 65 },
    { 1, 5, 130, 2, 2, 64, 9, 3 },
    { 1, 65, 129, 2, 1, 16, 30, 64 },
    { 1, 33, 300, 2, 2, 80, 9, 65 },
    { 2, 64, 100, 2, 2, 1, 3, 100 },
    { 1, 100, 163, 1, 1, 4, 8, 37 },
    { 1, 3, 50, 2, 2, 0, 4, 20 },
};
static const int64_t attention_bench[][CASE_SIZES] = { { 2, 2048, 2048, 12, 12, 64, 1 },
                                                       { 8, 1, 2048, 12, 12, 64, 1 } };
static const int64_t dropout_bench[][CASE_SIZES] = { { 2, 2048, 2048, 12, 12, 64, 1 } };
static const int64_t window_bench[][CASE_SIZES] = { { 2, 2048, 2048, 12, 12, 64, 1, 256 } };

/* ---- bias by bucket */

static bool make_bucket(struct op_case *c)
{
    int64_t H = c->n[0], T = c->n[1], buckets = c->n[2];
    enum dtype S = dtype_sums(c->type);

    ADD(c, bucket, table, matrix(S, H, T), OUT, UNUSED);
    ADD(c, bucket, weight, matrix(S, buckets, H), IN, UNUSED);
    ADD(c, bucket, bucket, vector(DTYPE_I32, T), IN, IN)->below = buckets;
    ADD(c, bucket, dtable, matrix(S, H, T), UNUSED, IN);
    ADD(c, bucket, dweight, matrix(S, buckets, H), UNUSED, ADDED);
    return true;
}

CALL(bucket_forward, bucket_forward(dev, a->bucket.table, a->bucket.weight, a->bucket.bucket))
CALL(bucket_backward, bucket_backward(dev, a->bucket.dweight, a->bucket.dtable, a->bucket.bucket))

static const int64_t bucket_tests[][CASE_SIZES] = {
    { 1, 1, 1 }, { 3, 17, 5 }, { 2, 3, 7 }, { 2, 0, 2 }, { 12, 300, 32 }, { 16, 4096, 31 }
};

/* ---- bias by curve. Option: enum curve_kind. */

static bool make_curve(struct op_case *c)
{
    static const char *const kinds[] = { "log", "power", "shifted power" };
    int64_t H = c->n[0], T = c->n[1];
    enum dtype S = dtype_sums(c->type);

    c->args.curve.kind = (enum curve_kind)c->option;
    say(c, " %s", kinds[c->option]);
    ADD(c, curve, table, matrix(S, H, T), OUT, UNUSED);
    ADD(c, curve, weight, matrix(S, 2, H), IN, IN);
    ADD(c, curve, dtable, matrix(S, H, T), UNUSED, IN);
    ADD(c, curve, dweight, matrix(S, 2, H), UNUSED, ADDED);
    return true;
}

CALL(curve_forward, curve_forward(dev, &a->curve))
CALL(curve_backward, curve_backward(dev, &a->curve))

static const int64_t curve_tests[][CASE_SIZES] = {
    { 1, 1 }, { 3, 17 }, { 2, 0 }, { 12, 300 }, { 16, 4096 }
};

/* ---- cross-entropy. Backward is forward with dlogits. Options: 1 dlogits is stored in logits, and
 * the logits are so large that exp overflows; 2 the last columns are padding */

static bool make_cross_entropy(struct op_case *c)
{
    int64_t rows = c->n[0], V = c->n[1], classes = c->option & 2 ? (V + 1) / 2 : V;
    bool in_place = c->option & 1;
    struct operand *targets;

    c->args.cross_entropy.scale = c->weight = 0.7;
    c->args.cross_entropy.classes = c->option & 2 ? classes : 0;
    c->directions[0] = !in_place;
    say(c, "%s%s", in_place ? " dlogits=logits" : "", c->option & 2 ? " padded" : "");
    ADD(c, cross_entropy, logits, matrix(c->type, rows, V), IN, IN)->size = in_place ? 100.0 : 5.0;
    targets = ADD(c, cross_entropy, targets, vector(DTYPE_I32, rows), IN, IN);
    targets->below = classes;
    targets->or_none = true;
    /* A difference of logits, which may be 0. */
    ADD(c, cross_entropy, nll, vector(dtype_sums(c->type), rows), OUT, OUT)->least =
        in_place ? 100.0 : 5.0;
    ADD(c, cross_entropy, dlogits, matrix(c->type, rows, V), UNUSED, OUT);
    if (in_place)
        share(c, "dlogits", "logits", 1);
    return true;
}

CALL(cross_entropy, cross_entropy(dev, &a->cross_entropy))

static const int64_t cross_entropy_tests[][CASE_SIZES] = { { 0, 3 },    { 1, 1 },    { 7, 5 },
                                                           { 9, 61 },   { 17, 257 }, { 3, 5003 },
                                                           { 2, 50304 } };
static const int64_t cross_entropy_bench[][CASE_SIZES] = { { 256, 50257 } };

/* ---- log-softmax. Options: 1 shifted; 2 the last columns are padding */

static bool make_log_softmax(struct op_case *c)
{
    int64_t rows = c->n[0], V = c->n[1], n = c->option & 2 ? (V + 1) / 2 : V;
    enum dtype S = dtype_sums(c->type);
    struct operand *y;

    say(c, "%s%s", c->option & 1 ? " shifted" : "", c->option & 2 ? " padded" : "");
    ADD(c, log_softmax, logits, matrix(c->type, rows, V), IN, UNUSED)->size = 30.0;
    y = VIEW(c, log_softmax, y, 1, rows, 1, n, OUT, UNUSED);
    y->shape.type = S;
    y->least = 30.0; /* a difference of logits, which may be 0 */
    if (c->option & 1)
        VIEW(c, log_softmax, shift, 1, rows, 1, 1, IN, UNUSED)->shape.type = S;
    return true;
}

CALL(log_softmax, log_softmax(dev, &a->log_softmax))

/* ---- optimizers. One of these options: 0 no copy of the weights, 1 a copy in fp32, 2 in bf16. */

static void add_copy(struct op_case *c, size_t offset)
{
    say(c, "%s", (const char *[]){ "", " copy f32", " copy bf16" }[c->option]);
    if (c->option == 1)
        add(c, "copy", offset, vector(DTYPE_F32, c->n[0]), OUT, UNUSED);
    if (c->option == 2)
        add(c, "copy", offset, vector(DTYPE_BF16, c->n[0]), OUT, UNUSED)->limit = 0x1p-8;
}

static bool make_adamw(struct op_case *c)
{
    struct tensor all = vector(dtype_sums(c->type), c->n[0]);
    struct adamw_args *a = &c->args.adamw;

    a->lr = 1e-2;
    a->beta1 = 0.9;
    a->beta2 = 0.95;
    a->eps = 1e-8;
    a->weight_decay = 10;
    a->gradient_scale = 0.5;
    a->step = 3;
    a->decaying = c->n[1];
    ADD(c, adamw, w, all, ADDED, UNUSED);
    ADD(c, adamw, m, all, ADDED, UNUSED);
    ADD(c, adamw, v, all, ADDED, UNUSED)->positive = true;
    ADD(c, adamw, gradient, all, IN, UNUSED);
    add_copy(c, offsetof(union case_args, adamw.copy));
    return true;
}

CALL(adamw, adamw(dev, &a->adamw))

static bool make_nesterov(struct op_case *c)
{
    struct tensor all = vector(dtype_sums(c->type), c->n[0]);
    struct nesterov_args *a = &c->args.nesterov;

    a->lr = 0.02;
    a->previous_lr = 0.019;
    a->momentum = 0.99;
    a->weight_decay = 10;
    a->gradient_scale = 0.5;
    a->decaying = c->n[1];
    ADD(c, nesterov, w, all, ADDED, UNUSED);
    ADD(c, nesterov, u, all, ADDED, UNUSED);
    ADD(c, nesterov, gradient, all, IN, UNUSED);
    add_copy(c, offsetof(union case_args, nesterov.copy));
    return true;
}

CALL(nesterov, nesterov(dev, &a->nesterov))

static const int64_t optimizer_tests[][CASE_SIZES] = {
    { 0, 0 }, { 1, 0 }, { 17, 9 }, { 4097, 4097 }, { 40001, 4099 }, { 40001, 0 }
};
static const int64_t optimizer_bench[][CASE_SIZES] = { { 1 << 24, 1 << 23 } };

/* ---- sums, which go to the host and from there into a tensor */

static bool make_sum(struct op_case *c)
{
    ADD(c, sum, x, vector(c->type, c->n[0]), IN, UNUSED);
    ADD(c, sum, y, vector(DTYPE_F32, 1), OUT, UNUSED);
    return true;
}

static alibi_status sum(struct device *dev, const union case_args *a)
{
    double total;

    TRY_RETURN(dev->ops->sum(dev, &total, a->sum.x));
    return dev->ops->fill(dev, a->sum.y, total);
}

static alibi_status sum_squares(struct device *dev, const union case_args *a)
{
    double total;

    TRY_RETURN(dev->ops->sum_squares(dev, &total, a->sum.x));
    return dev->ops->fill(dev, a->sum.y, total);
}

static const int64_t sum_tests[][CASE_SIZES] = { { 0 }, { 1 }, { 17 }, { 4097 }, { 1200007 } };
static const int64_t sum_bench[][CASE_SIZES] = { { 1 << 24 } };

/* ---- copy, fill. One of these options: 1 from the type of sums, 2 from bf16. */

static bool make_copy(struct op_case *c)
{
    enum dtype from = c->option == 1 ? dtype_sums(c->type) : DTYPE_BF16;
    struct operand *x = VIEW(c, copy, x, c->n[0], c->n[1], c->n[2], c->n[3], IN, UNUSED);

    if (c->option > 0 && c->type != DTYPE_F64) { /* in fp64 there is only one type */
        say(c, c->option == 1 ? " from sums" : " from bf16");
        x->shape.type = from;
    }
    VIEW(c, copy, y, c->n[0], c->n[1], c->n[2], c->n[3], OUT, UNUSED);
    return true;
}

CALL(copy, copy(dev, a->copy.y, a->copy.x))

static bool make_fill(struct op_case *c)
{
    c->args.copy.value = 0.1;
    ADD(c, copy, y, vector(c->type, c->n[0]), OUT, UNUSED);
    return true;
}

CALL(fill, fill(dev, a->copy.y, a->copy.value))

/* ---- the list */

#define TESTS(cases) .tests = cases, .test_count = (int)(sizeof cases / sizeof cases[0])
#define BENCH(cases, which)                                                                        \
    .bench = cases, .bench_count = (int)(sizeof cases / sizeof cases[0]), .bench_option = which

/* clang-format off */
const struct operation operations[] = {
    { "embedding", "B L C V", 7, make_embedding, { embedding_forward, embedding_backward },
      { 2e-7, 2e-6 }, .roundings = 1, TESTS(embedding_tests), BENCH(embedding_bench, 1) },
    { "linear", "rows in out", 10, make_linear, { linear_forward, linear_backward },
      { 1e-6, 1e-6 }, .roundings = 1, .blas = true, TESTS(linear_tests), BENCH(linear_bench, 1) },
    { "linear_decoding", "rows in out", 10, make_linear, { linear_forward, NULL },
      { 1e-6, 0 }, .roundings = 1, BENCH(decoding_bench, 8) }, /* tested as options of linear */
    { "linear_activation_forward", "rows C F", 16, make_linear_activation,
      { linear_activation_forward, NULL }, { 2e-6, 0 }, .roundings = 3, .blas = true,
      TESTS(linear_activation_tests), BENCH(linear_activation_bench, 4) },
    { "linear_activation_backward", "rows C F", 32, make_activation_linear,
      { linear_activation_backward, NULL }, { 2e-6, 0 }, .roundings = 2, .blas = true,
      TESTS(linear_activation_tests), BENCH(linear_activation_bench, 4) },
    { "norm", "rows C", 64, make_norm, { norm_forward, norm_backward },
      { 2e-6, 2e-6 }, .roundings = 2, TESTS(norm_tests), BENCH(norm_bench, 2) },
    { "norm_linear", "rows C out", 32, make_norm_linear, { norm_linear, NULL }, { 3e-6, 0 },
      .roundings = 3, .blas = true, TESTS(norm_linear_tests), BENCH(norm_linear_bench, 14) },
    { "activation", "rows F", 16, make_activation, { activation_forward, activation_backward },
      { 1e-6, 1e-6 }, .roundings = 1, TESTS(activation_tests), BENCH(activation_bench, 0) },
    { "residual", "count", 6, make_residual, { residual_forward, residual_backward },
      { 2e-7, 2e-7 }, .roundings = 1, TESTS(residual_tests), BENCH(residual_bench, 1) },
    { "rotary", "B L H D", 2, make_rotary, { rotary_forward, rotary_backward },
      { 3e-7, 3e-7 }, .roundings = 1, TESTS(head_tests), BENCH(head_bench, 0) },
    { "logn", "B L H D", 4, make_logn, { logn_forward, logn_backward },
      { 3e-7, 2e-6 }, .roundings = 1, TESTS(head_tests), BENCH(head_bench, 0) },
    { "head_norm", "B L H D", 6, make_head_norm, { head_norm_forward, head_norm_backward },
      { 1e-6, 2e-6 }, .roundings = 1, TESTS(head_norm_tests), BENCH(head_bench, 0) },
    { "gate", "B L G", 3, make_gate, { gate_forward, gate_backward },
      { 1e-6, 1e-6 }, .roundings = 2, TESTS(gate_tests), BENCH(gate_bench, 0) },
    { "attention", "B Lq Lk H Hkv D T W", ATTENTION_OPTIONS, make_attention,
      { attention_forward, attention_backward }, { 2e-6, 4e-6 }, .roundings = 4,
      TESTS(attention_tests), BENCH(attention_bench, BIAS_LINEAR) },
    { "attention_window", "B Lq Lk H Hkv D T W", ATTENTION_OPTIONS, make_attention,
      { attention_forward, attention_backward }, { 2e-6, 4e-6 }, .roundings = 4,
      BENCH(window_bench, 5) }, /* tested as options of attention */
    { "attention_dropout", "B Lq Lk H Hkv D T W", ATTENTION_OPTIONS, make_attention,
      { attention_forward, attention_backward }, { 2e-6, 4e-6 }, .roundings = 4,
      BENCH(dropout_bench, 7) },
    { "attention_sinks", "B Lq Lk H Hkv D T W", ATTENTION_OPTIONS, make_attention,
      { attention_forward, attention_backward }, { 2e-6, 4e-6 }, .roundings = 4,
      BENCH(window_bench, 17) },
    { "bucket", "H T buckets", 1, make_bucket, { bucket_forward, bucket_backward },
      { 0, 1e-6 }, .roundings = 1, TESTS(bucket_tests) },
    { "curve", "H T", 3, make_curve, { curve_forward, curve_backward },
      { 3e-7, 2e-6 }, .roundings = 1, TESTS(curve_tests) },
    { "cross_entropy", "rows V", 4, make_cross_entropy, { cross_entropy, cross_entropy },
      { 1e-6, 1e-6 }, .roundings = 1, TESTS(cross_entropy_tests), BENCH(cross_entropy_bench, 0) },
    { "log_softmax", "rows V", 4, make_log_softmax, { log_softmax, NULL }, { 1e-6, 0 },
      .roundings = 1, TESTS(cross_entropy_tests), BENCH(cross_entropy_bench, 0) },
    { "adamw", "count decaying", 3, make_adamw, { adamw, NULL }, { 3e-7, 0 },
      TESTS(optimizer_tests), BENCH(optimizer_bench, 0) },
    { "nesterov", "count decaying", 3, make_nesterov, { nesterov, NULL }, { 3e-7, 0 },
      TESTS(optimizer_tests), BENCH(optimizer_bench, 0) },
    { "sum", "count", 1, make_sum, { sum, NULL }, { 1e-6, 0 }, .roundings = 1,
      TESTS(sum_tests), BENCH(sum_bench, 0) },
    { "sum_squares", "count", 1, make_sum, { sum_squares, NULL }, { 1e-6, 0 }, .roundings = 1,
      TESTS(sum_tests), BENCH(sum_bench, 0) },
    { "copy", "B L H D", 3, make_copy, { copy, NULL }, { 0, 0 }, .roundings = 1,
      TESTS(head_tests), BENCH(head_bench, 0) },
    { "fill", "count", 1, make_fill, { fill, NULL }, { 1e-7, 0 }, .roundings = 1,
      TESTS(sum_tests) },
};
/* clang-format on */
const int operation_count = (int)(sizeof operations / sizeof operations[0]);

bool case_make(struct op_case *c, const struct operation *operation, const int64_t *n, int option,
               int64_t gap, enum dtype type)
{
    const char *name = operation->sizes;

    *c = (struct op_case){ .operation = operation,
                           .option = option,
                           .gap = gap,
                           .type = type,
                           .directions = { true, operation->run[1] != NULL },
                           .weight = 1.0 };
    memcpy(c->n, n, sizeof c->n);
    for (int i = 0; *name; i++) { /* "rows=3 C=64" */
        int length = (int)strcspn(name, " ");
        say(c, "%s%.*s=%lld", i > 0 ? " " : "", length, name, (long long)n[i]);
        name += length + (name[length] == ' ');
    }
    return operation->make(c);
}

void case_name(const struct op_case *c, int direction, char name[CASE_TEXT_MAX])
{
    const char *ends[] = { "_forward", "_backward" };

    snprintf(name, CASE_TEXT_MAX, "%s%s", c->operation->name,
             c->operation->run[1] ? ends[direction] : "");
}

static double rounded(enum dtype type, double x)
{
    return type == DTYPE_F32    ? (double)(float)x
           : type == DTYPE_BF16 ? (double)bf16_to_float(bf16_from_float((float)x))
                                : x;
}

void case_draw(const struct op_case *c, int i, enum role role, double *values)
{
    const struct operand *o = &c->operands[i];
    int64_t row = o->shape.shape[1], used = o->heads[2] * o->heads[3];
    uint64_t stream = 14695981039346656037u; /* FNV-1a of the name */

    for (const char *at = o->name; *at; at++)
        stream = (stream ^ (uint64_t)*at) * 1099511628211u;
    for (int64_t n = 0; n < tensor_count(o->shape); n++) {
        double u = random_uniform(SEED, stream, (uint64_t)n);
        if (o->shape.type == DTYPE_I32)
            values[n] = o->or_none && n % 7 == 1 ? -1.0
                        : o->zipf                ? floor(pow((double)o->below, u)) - 1.0
                                                 : floor(u * (double)o->below);
        else if (o->view && n % row >= used)
            values[n] = CASE_OUTSIDE;
        else if (role == OUT || role == SCRATCH)
            values[n] = (double)NAN;
        else
            values[n] = rounded(o->shape.type, o->size * (o->positive ? u : 2.0 * u - 1.0));
    }
}

alibi_status case_run(const struct op_case *c, int direction, struct device *dev,
                      const struct tensor *tensors)
{
    union case_args args = c->args;

    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        const int64_t *n = o->heads;
        struct tensor t = tensors[o->same_as >= 0 ? o->same_as : i];
        if (o->role[direction] == UNUSED)
            continue;
        if (o->view)
            t = tensor_heads(t, n[0], n[1], 0, n[2], n[3]);
        memcpy((char *)&args + o->offset, &t, sizeof t);
    }
    return c->operation->run[direction](dev, &args);
}
