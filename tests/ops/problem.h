/* problem.h - the GPU's attention against the reference in double precision, beyond the cases of
 * bench/cases.h: packed rows, caches, skipped tiles
 *
 * A problem is a list of tensors with their values before the call, and a function that runs it on
 * a device. The numbers are rounded to the type that the GPU gets, so the reference, which takes
 * them as F64, sees the same numbers. On the GPU every tensor has a buffer of its own with poison
 * after it (and before it, if it begins an element late). Poison and inputs must be unchanged after
 * the call. Each problem is solved twice and must give the same bits.
 *
 * A tensor's error is relative to the largest number in it, expected or before the call. Where
 * results nearly cancel, the problem gives the size that errors are relative to. */
#ifndef PROBLEM_H
#define PROBLEM_H

#include "ops/bf16.h"
#include "ops/gpu.h"

enum { SEED = 5, SLOTS = 16, DIMENSIONS = 13, POISONED_BYTES = 256 };

#define POISON 7.0

/* x as a number of that type, to nearest even. */
static inline double rounded(enum dtype type, double x)
{
    switch (type) {
    case DTYPE_F32:
        return (double)(float)x;
    case DTYPE_BF16:
        return (double)bf16_to_float(bf16_from_float((float)x));
    default:
        return x;
    }
}

/* ---- problems */

enum role {
    GIVEN,    /* must stay as it is */
    WRITTEN,  /* NaN before the call, except where a number must stay */
    ADDED_TO, /* or read and written in place */
    SCRATCH,  /* may hold anything afterwards */
};

struct slot {
    struct tensor shape; /* contiguous, in the GPU's type, without data */
    enum role role;
    double *values;   /* before the call */
    double *expected; /* after it, by the reference; NULL: not asked for yet */
    double limit;     /* on the error */
    double size;      /* the error is relative to at least this; 0: to the numbers */
    double *sizes;    /* one for each element, whose errors are then relative to it or to its own
                         number; or NULL */
};

struct problem {
    const char *operation;
    char shape[128];
    enum dtype type;
    int64_t n[DIMENSIONS];
    int kind;
    double eps;   /* attention's budget */
    int64_t skew; /* every tensor begins so many elements into its buffer */
    double limit; /* on errors of 32-bit results */
    double rough; /* on those of 16-bit ones; 0: one rounding, which is at most 2^-8 */
    struct slot slots[SLOTS];
    int count;
    alibi_status (*run)(struct device *dev, const struct problem *p, const struct tensor *t);
};

static inline int64_t stored(const struct slot *s)
{
    return tensor_count(s->shape);
}

static inline struct slot *add_slot(struct problem *p, struct tensor shape, enum role role)
{
    struct slot *s = &p->slots[p->count++];

    assert_true(p->count <= SLOTS);
    *s = (struct slot){ .shape = shape, .role = role };
    s->limit = shape.type == DTYPE_I32    ? 0.0
               : shape.type != DTYPE_BF16 ? p->limit
               : p->rough > 0             ? p->rough
                                          : 0x1.01p-8;
    assert_ok(NEW_ARRAY(&s->values, stored(s) + 1, "values of a test"));
    return s;
}

static inline void put(struct slot *s, int64_t i, double x)
{
    s->values[i] = rounded(s->shape.type, x);
}

/* Numbers between -size and size; 1.7 has a variance near 1. */
static inline struct slot *fill_random(struct problem *p, struct slot *s, double size)
{
    uint64_t stream = (uint64_t)(s - p->slots);

    for (int64_t i = 0; i < stored(s); i++)
        put(s, i, size * (2.0 * random_uniform(SEED, stream, (uint64_t)i) - 1.0));
    return s;
}

static inline struct slot *given(struct problem *p, struct tensor shape)
{
    return fill_random(p, add_slot(p, shape, GIVEN), 1.7);
}

static inline struct slot *added_to(struct problem *p, struct tensor shape)
{
    return fill_random(p, add_slot(p, shape, ADDED_TO), 1.7);
}

static inline struct slot *written(struct problem *p, struct tensor shape)
{
    struct slot *s = add_slot(p, shape, WRITTEN);

    for (int64_t i = 0; i < stored(s); i++)
        s->values[i] = shape.type == DTYPE_I32 ? -1.0 : (double)NAN;
    return s;
}

/* Rows of `used` numbers to be written, with a gap after each that must stay as it is. */
static inline struct slot *written_rows(struct problem *p, enum dtype type, int64_t rows,
                                        int64_t used, int64_t gap)
{
    struct slot *s = written(p, tensor_2(NULL, type, rows, used + gap));

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = used; c < used + gap; c++)
            put(s, r * (used + gap) + c, POISON);
    return s;
}

static inline void problem_free(struct problem *p)
{
    for (int i = 0; i < p->count; i++) {
        mem_free(p->slots[i].values);
        mem_free(p->slots[i].expected);
        mem_free(p->slots[i].sizes);
    }
}

/* ---- by the reference */

/* A host tensor with the slot's numbers: F64, or I32. */
static inline struct tensor reference_tensor(const struct slot *s)
{
    struct tensor t = s->shape;
    int64_t count = stored(s);

    t.type = t.type == DTYPE_I32 ? DTYPE_I32 : DTYPE_F64;
    assert_ok(mem_new(&t.data, (size_t)(count + 1) * dtype_bytes(t.type), "a test tensor"));
    for (int64_t i = 0; i < count; i++)
        if (t.type == DTYPE_I32)
            ((int32_t *)t.data)[i] = (int32_t)s->values[i];
        else
            ((double *)t.data)[i] = s->values[i];
    return t;
}

static inline void solve_by_reference(struct problem *p)
{
    struct device ref = { .ops = &ops_ref };
    struct tensor t[SLOTS];

    for (int i = 0; i < p->count; i++)
        t[i] = reference_tensor(&p->slots[i]);
    assert_ok(p->run(&ref, p, t));
    for (int i = 0; i < p->count; i++) {
        struct slot *s = &p->slots[i];
        assert_ok(NEW_ARRAY(&s->expected, stored(s) + 1, "results of the reference"));
        for (int64_t n = 0; n < stored(s); n++)
            s->expected[n] = t[i].type == DTYPE_I32 ? (double)((int32_t *)t[i].data)[n]
                                                    : ((double *)t[i].data)[n];
        mem_free(t[i].data);
    }
}

/* ---- on the GPU */

/* A whole buffer as the host sees it: floats, or I32. */
union cell {
    float f;
    int32_t i;
};

struct solution {
    union cell *buffers[SLOTS];
};

/* Elements of a slot's buffer: before the tensor, the tensor, after it. */
static inline int64_t buffer_count(const struct problem *p, const struct slot *s)
{
    return p->skew + stored(s) + POISONED_BYTES / (int64_t)dtype_bytes(s->shape.type);
}

static inline union cell cell_of(const struct slot *s, double x)
{
    return s->shape.type == DTYPE_I32 ? (union cell){ .i = (int32_t)x }
                                      : (union cell){ .f = (float)x };
}

static inline double cell_value(const struct slot *s, union cell c)
{
    return s->shape.type == DTYPE_I32 ? (double)c.i : (double)c.f;
}

/* Element i of slot n after the call. */
static inline double result(const struct problem *p, const struct solution *s, int n, int64_t i)
{
    return cell_value(&p->slots[n], s->buffers[n][p->skew + i]);
}

/* Uploads what a slot's buffer holds before the call; returns the buffer as one vector. */
static inline struct tensor place(const struct problem *p, const struct slot *s)
{
    int64_t count = buffer_count(p, s);
    struct tensor whole = tensor_1(NULL, s->shape.type, count);
    union cell *host = NULL;

    assert_ok(gpu.ops->buffer_new(&gpu, &whole.data, (size_t)count * dtype_bytes(whole.type),
                                  "a test tensor"));
    assert_ok(NEW_ARRAY(&host, count, "a test tensor"));
    for (int64_t i = 0; i < count; i++) {
        bool inside = i >= p->skew && i < p->skew + stored(s);
        host[i] = cell_of(s, inside ? s->values[i - p->skew] : POISON);
    }
    assert_ok(gpu.ops->upload(&gpu, whole, host));
    mem_free(host);
    return whole;
}

static inline struct solution solve_on_gpu(const struct problem *p)
{
    struct tensor whole[SLOTS], t[SLOTS];
    struct solution s = { 0 };

    for (int i = 0; i < p->count; i++) {
        whole[i] = place(p, &p->slots[i]);
        t[i] = p->slots[i].shape;
        t[i].data = tensor_at(whole[i], p->skew);
    }
    assert_ok(p->run(&gpu, p, t));
    for (int i = 0; i < p->count; i++) {
        assert_ok(NEW_ARRAY(&s.buffers[i], tensor_count(whole[i]), "results of the GPU"));
        assert_ok(gpu.ops->download(&gpu, s.buffers[i], whole[i]));
        gpu.ops->buffer_free(&gpu, whole[i].data);
    }
    return s;
}

static inline void solution_free(struct solution *s)
{
    for (int i = 0; i < SLOTS; i++)
        mem_free(s->buffers[i]);
}

/* ---- verdicts */

/* Infinite where one is not a number, or where a number changed that had to stay. */
static inline double slot_error(const struct problem *p, const struct solution *s, int n)
{
    const struct slot *slot = &p->slots[n];
    double error = 0.0, size = fmax(slot->size, 1e-30), relative = 0.0;

    for (int64_t i = 0; i < stored(slot); i++) {
        double got = result(p, s, n, i), want = slot->expected[i], before = slot->values[i],
               difference = fabs(got - want);
        bool stays = slot->role == WRITTEN && !isnan(before) && slot->shape.type != DTYPE_I32;
        if (isnan(difference) || (stays && got != before))
            return INFINITY;
        double own = fmax(fabs(want), fabs(before)); /* fmax passes over NaN */
        error = fmax(error, difference);
        size = fmax(size, own);
        if (slot->sizes)
            relative = fmax(relative, difference / fmax(own, fmax(slot->sizes[i], 1e-30)));
    }
    return slot->sizes ? relative : error / size;
}

static inline bool is_untouched(const struct problem *p, const struct solution *s, int n)
{
    const struct slot *slot = &p->slots[n];
    bool good = true;

    for (int64_t i = 0; i < buffer_count(p, slot); i++) {
        bool inside = i >= p->skew && i < p->skew + stored(slot);
        double before = inside ? slot->values[i - p->skew] : POISON,
               after = cell_value(slot, s->buffers[n][i]);
        if (!inside || slot->role == GIVEN)
            good = good && (after == before || (isnan(after) && isnan(before)));
    }
    return good;
}

static inline bool solutions_equal(const struct problem *p, const struct solution *a,
                                   const struct solution *b)
{
    for (int i = 0; i < p->count; i++) {
        size_t bytes = (size_t)buffer_count(p, &p->slots[i]) * sizeof(union cell);
        if (p->slots[i].role != SCRATCH && memcmp(a->buffers[i], b->buffers[i], bytes) != 0)
            return false;
    }
    return true;
}

/* Checks every result: poison and inputs unchanged, and the same bits again. NULL, or the fault. */
static inline const char *misbehaviour(const struct problem *p, const struct solution *s)
{
    struct solution again = solve_on_gpu(p);
    bool equal = solutions_equal(p, s, &again), untouched = true;

    solution_free(&again);
    for (int i = 0; i < p->count; i++)
        untouched = untouched && is_untouched(p, s, i);
    return !untouched ? "WRITES OUTSIDE ITS OUTPUTS" : !equal ? "DIFFERS THE SECOND TIME" : NULL;
}

/* Prints the slot that is nearest to its limit, or furthest beyond. */
static inline void compare(const struct problem *p, const struct solution *s)
{
    const char *wrong = misbehaviour(p, s);
    double worst = -1.0, error = 0.0, limit = 0.0;

    for (int i = 0; i < p->count; i++) {
        const struct slot *slot = &p->slots[i];
        if (slot->role == GIVEN || slot->role == SCRATCH)
            continue;
        double e = slot_error(p, s, i), share = e / fmax(slot->limit, 1e-30);
        if (share > worst) {
            worst = share;
            error = e;
            limit = slot->limit;
        }
    }
    if (worst > 1.0)
        wrong = "TOO FAR";
    all_good = all_good && wrong == NULL;
    printf("%s cuda %s %s%s  error %.1e  limit %.1e  %s\n", p->operation, type_name(p->type),
           p->shape, p->skew > 0 ? " unaligned" : "", error, limit, wrong ? wrong : "ok");
}

/* Solves, compares, prints and frees. */
static inline void check(struct problem *p)
{
    solve_by_reference(p);
    struct solution s = solve_on_gpu(p);
    compare(p, &s);
    solution_free(&s);
    problem_free(p);
}

#endif
