/* cases.h - every operation of ops.h as a list of cases
 *
 * A case is an operation at some sizes with some options: which tensors it reads, writes and adds
 * to, and how it is called. One list serves every test of an operation (finite differences, bf16,
 * the CPU in every instruction set and the GPU against the reference) and the micro-benchmark.
 *
 * Operands are members of the operation's struct in ops.h, and carry the member's name. Names
 * connect the two directions: the operand "dx" of backward is the gradient of "x", given "dy" of
 * the output "y". An operand that backward reads and forward writes (mean, lse) is forward's. */
#ifndef CASES_H
#define CASES_H

#include "ops/ops.h"

enum { CASE_SIZES = 8, CASE_OPERANDS = 20, CASE_TEXT_MAX = 96 };

/* How a direction uses an operand. */
enum role {
    UNUSED, /* the tensor is absent */
    IN,
    OUT,
    ADDED,   /* read and written: accumulated, or in place */
    SCRATCH, /* written with undefined values */
};

struct operand {
    const char *name;
    size_t offset;       /* in union case_args */
    struct tensor shape; /* contiguous, without data */
    bool view; /* the operand is the view [B, L, H, D] = heads of the first H * D columns of
                  its rows; the other columns must not change */
    int64_t heads[4];
    enum role role[2]; /* forward, backward */
    int64_t below;     /* I32: ids in 0..below-1 */
    bool or_none;      /* every seventh id is -1 */
    bool zipf;         /* id n about as often as 1 / (n + 1) */
    double size;       /* numbers are between -size and size */
    bool positive;     /* between 0 and size */
    double limit;      /* on its error, where not the operation's */
    double least;      /* its error is relative to at least this; 0: to its numbers */
    int same_as;       /* the operand whose tensor this one is; -1: its own */
};

/* Operations with few operands, which take them as parameters, have a struct here. */
union case_args {
    struct embedding_args embedding;
    struct linear_args linear;
    struct linear_activation_args linear_activation;
    struct norm_args norm;
    struct {
        struct norm_args norm;
        struct linear_args linear;
        struct tensor activated; /* absent: a linear layer alone */
    } norm_linear;
    struct {
        struct attention_args args;
        struct tensor q, k; /* before their rotation into args.q and args.k; absent: not rotated */
        int64_t sinks;      /* then the sinks operation follows, and precedes rotating back */
    } attention;
    struct cross_entropy_args cross_entropy;
    struct log_softmax_args log_softmax;
    struct adamw_args adamw;
    struct nesterov_args nesterov;
    struct {
        int kind;
        struct tensor y, x, dy, dx;
    } activation;
    struct {
        struct tensor y, x, branch, dy, dx, dbranch;
        struct dropout dropout;
    } residual;
    struct {
        struct tensor y, x, dy, dx;
        struct rotation rotation;
    } rotary;
    struct logn_args logn;
    struct head_norm_args head_norm;
    struct gate_args gate;
    struct {
        struct tensor table, weight, bucket, dtable, dweight;
    } bucket;
    struct curve_args curve;
    struct {
        struct tensor y, x;
        double value;
    } copy;
    struct {
        struct tensor y, x;
    } sum;
};

struct op_case {
    const struct operation *operation;
    int64_t n[CASE_SIZES];
    int option;
    int64_t gap; /* between the rows of views */
    enum dtype type;
    char text[CASE_TEXT_MAX]; /* "rows=3 C=64 rms bias" */
    union case_args args;     /* scalars are set, tensors absent */
    struct operand operands[CASE_OPERANDS];
    int count;
    bool directions[2]; /* which of forward and backward this case has */
    bool in_place;      /* an input is overwritten: no finite differences */
    bool stores_first;  /* results are computed from intermediate numbers rounded to `type` */
    double weight;      /* the functional of finite differences without a "dy": weight * sum(out) */
    double flops[2];    /* 0: bound by memory */
};

typedef alibi_status case_fn(struct device *dev, const union case_args *args);

struct operation {
    const char *name;  /* "norm" */
    const char *sizes; /* "rows C": names of n */
    int options;
    bool (*make)(struct op_case *c); /* from n, option and type; false: no such case */
    case_fn *run[2];                 /* forward, backward or NULL */
    double limit[2]; /* on errors in fp32, relative to the largest number of an operand */
    int roundings;   /* in bf16: 0: the operation has no numbers of that type; 1: results are the
                        exact ones, rounded; more: the error is at most this many roundings of the
                        largest number */
    bool blas;       /* CBLAS may choose the order of sums by the number of threads */
    const int64_t (*tests)[CASE_SIZES];
    int test_count;
    const int64_t (*bench)[CASE_SIZES]; /* realistic sizes, at one option */
    int bench_count, bench_option;
};

extern const struct operation operations[];
extern const int operation_count;

/* A case of the operation at the sizes n. `gap` is the number of elements between the rows of
 * views: CASE_GAP in tests, so that rows are not aligned and nothing may touch the gaps; 0 in
 * benchmarks, as models have them. False if the operation has no such case. */
enum { CASE_GAP = 3 };
bool case_make(struct op_case *c, const struct operation *operation, const int64_t *n, int option,
               int64_t gap, enum dtype type);

/* "attention_backward"; operations with one direction have their own name. */
void case_name(const struct op_case *c, int direction, char name[CASE_TEXT_MAX]);

/* Numbers of operand i before the call: drawn by its name, rounded to its type, so that both
 * directions see the same x. OUT and SCRATCH get NaN, columns outside a view CASE_OUTSIDE. */
#define CASE_OUTSIDE 7.0
void case_draw(const struct op_case *c, int i, enum role role, double *values);

/* Calls one direction with tensors [count] that have their data. */
alibi_status case_run(const struct op_case *c, int direction, struct device *dev,
                      const struct tensor *tensors);

#endif
