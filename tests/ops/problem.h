/* problem.h - a backend's operations against the reference, for every instruction set that this
 * machine has
 *
 * A problem holds inputs, outputs with what stands in them before the call (NaN where they are
 * overwritten, numbers where they accumulate), and a function that runs it on a table of
 * operations. Each is solved by the reference once and by every instruction set with 1, 2 and 3
 * threads; the first must be close to the reference, the others equal to the first bit by bit. */
#ifndef PROBLEM_H
#define PROBLEM_H

#include <omp.h>

#include "ops/cpu/cpu.h"

#include "check.h"

enum { SEED = 5, TENSORS = 8, DIMENSIONS = 8 };

struct problem {
    const char *operation;
    char shape[96];
    int64_t n[DIMENSIONS];
    int kind;
    struct tensor in[TENSORS], out[TENSORS];
    int ins, outs;
    bool through_blas; /* its order of sums may change with the number of threads */
    double limit;      /* on the error, see tensor_error() */
    alibi_status (*run)(struct device *dev, const struct problem *p, struct tensor *out);
};

/* ---- making problems */

static inline int64_t stored(struct tensor t)
{
    return t.rank == 0 ? 0 : tensor_count(t);
}

static inline struct tensor allocate(struct tensor shape)
{
    assert_ok(
        mem_new(&shape.data, (size_t)stored(shape) * dtype_bytes(shape.type), "a test tensor"));
    return shape;
}

/* Numbers between -1.7 and 1.7: variance near 1. */
static inline struct tensor random_tensor(struct tensor shape, uint64_t stream)
{
    struct tensor t = allocate(shape);

    for (int64_t i = 0; i < stored(t); i++)
        set(t, i, 1.7 * (2.0 * random_uniform(SEED, stream, (uint64_t)i) - 1.0));
    return t;
}

static inline struct tensor *input(struct problem *p, struct tensor shape)
{
    p->in[p->ins] = random_tensor(shape, (uint64_t)p->ins);
    return &p->in[p->ins++];
}

static inline struct tensor *tokens_input(struct problem *p, int64_t rows, int64_t vocab)
{
    struct tensor t = allocate(tensor_1(NULL, DTYPE_I32, rows));

    for (int64_t i = 0; i < rows; i++)
        set(t, i, (double)random_below(SEED, 99, (uint64_t)i, (uint64_t)vocab));
    p->in[p->ins] = t;
    return &p->in[p->ins++];
}

static inline struct tensor *accumulated(struct problem *p, struct tensor shape)
{
    p->out[p->outs] = random_tensor(shape, 50 + (uint64_t)p->outs);
    return &p->out[p->outs++];
}

static inline struct tensor *output(struct problem *p, struct tensor shape)
{
    struct tensor t = allocate(shape);

    for (int64_t i = 0; i < stored(t); i++)
        set(t, i, (double)NAN);
    p->out[p->outs] = t;
    return &p->out[p->outs++];
}

/* Rows of `used` numbers to be written, with a gap behind each that must stay as it is. */
static inline struct tensor *output_rows(struct problem *p, int64_t rows, int64_t used, int64_t gap)
{
    struct tensor *t = output(p, tensor_2(NULL, DTYPE_F32, rows, used + gap));

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = used; c < used + gap; c++)
            set(*t, r * (used + gap) + c, 7.0);
    return t;
}

static inline struct tensor f32_1(int64_t a)
{
    return tensor_1(NULL, DTYPE_F32, a);
}

static inline struct tensor f32_2(int64_t a, int64_t b)
{
    return tensor_2(NULL, DTYPE_F32, a, b);
}

/* ---- solving them */

struct solution {
    struct tensor out[TENSORS];
};

static inline struct solution solve(const struct problem *p, const struct ops *ops)
{
    struct device dev = { .ops = ops };
    struct solution s = { 0 };

    for (int i = 0; i < p->outs; i++) {
        size_t bytes = (size_t)stored(p->out[i]) * dtype_bytes(p->out[i].type);
        s.out[i] = allocate(p->out[i]);
        memcpy(s.out[i].data, p->out[i].data, bytes);
    }
    assert_ok(p->run(&dev, p, s.out));
    return s;
}

static inline void solution_free(struct solution *s)
{
    for (int i = 0; i < TENSORS; i++)
        mem_free(s->out[i].data);
}

static inline void problem_free(struct problem *p)
{
    for (int i = 0; i < TENSORS; i++) {
        mem_free(p->in[i].data);
        mem_free(p->out[i].data);
    }
}

/* Relative to the largest number expected, or there before: a sum may cancel. Infinite where one is
 * not a number. */
static inline double tensor_error(struct tensor got, struct tensor expected, struct tensor before)
{
    double error = 0.0, size = 1e-30;

    for (int64_t i = 0; i < stored(got); i++) {
        double difference = fabs(get(got, i) - get(expected, i));
        error = isnan(difference) ? INFINITY : fmax(error, difference);
        size = fmax(size,
                    fmax(fabs(get(expected, i)), fabs(get(before, i)))); /* fmax passes over NaN */
    }
    return error / size;
}

static inline double solution_error(const struct problem *p, const struct solution *got,
                                    const struct solution *expected)
{
    double error = 0.0;

    for (int i = 0; i < p->outs; i++)
        error = fmax(error, tensor_error(got->out[i], expected->out[i], p->out[i]));
    return error;
}

static inline bool solutions_equal(const struct problem *p, const struct solution *a,
                                   const struct solution *b)
{
    for (int i = 0; i < p->outs; i++)
        if (memcmp(a->out[i].data, b->out[i].data,
                   (size_t)stored(a->out[i]) * dtype_bytes(a->out[i].type)) != 0)
            return false;
    return true;
}

static inline bool threads_agree(const struct problem *p, const struct ops *ops,
                                 const struct solution *single)
{
    bool agree = true;

    for (int threads = 2; threads <= 3 && !p->through_blas; threads++) {
        omp_set_num_threads(threads);
        struct solution s = solve(p, ops);
        agree = agree && solutions_equal(p, &s, single);
        solution_free(&s);
    }
    omp_set_num_threads(1);
    return agree;
}

static inline bool check_set(const struct problem *p, const char *set,
                             const struct solution *expected)
{
    struct ops ops;

    assert_true(cpu_ops_for_set(&ops, set));
    struct solution s = solve(p, &ops);
    double error = solution_error(p, &s, expected);
    bool agree = threads_agree(p, &ops, &s);
    const char *verdict = !(error <= p->limit) ? "TOO FAR"
                          : agree              ? "ok"
                                               : "DIFFERS WITH THE NUMBER OF THREADS";
    printf("%s %s f32 %s  error %.1e  limit %.1e  %s\n", p->operation, set, p->shape, error,
           p->limit, verdict);
    solution_free(&s);
    return error <= p->limit && agree;
}

/* Solves, compares, prints and frees. */
static inline void check(struct problem *p)
{
    struct solution expected = solve(p, &ops_ref);
    bool good = true;

    omp_set_num_threads(1);
    for (int i = 0; cpu_set_name(i); i++)
        good = check_set(p, cpu_set_name(i), &expected) && good;
    solution_free(&expected);
    problem_free(p);
    assert_true(good);
}

#endif
