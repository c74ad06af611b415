/* solve.h - runs the cases of bench/cases.h in this process's memory, and compares
 *
 * Numbers are kept as doubles next to the tensors. Every tensor has poison after it, which must
 * stay, and so must inputs and the columns outside of a view. Outputs hold NaN before the call. */
#ifndef SOLVE_H
#define SOLVE_H

#include "bench/cases.h"
#include "ops/cpu/cpu.h"

#include "check.h"

enum { FORWARD, BACKWARD, POISONED = 32 };
#define POISON 9.0

/* The numbers of a case's operands. */
struct numbers {
    double *of[CASE_OPERANDS];
};

static inline void numbers_free(struct numbers *n)
{
    for (int i = 0; i < CASE_OPERANDS; i++)
        mem_free(n->of[i]);
}

static inline bool is_written(enum role role)
{
    return role == OUT || role == ADDED;
}

/* ---- running */

/* Runs on a device in this process's memory: the numbers after the call of those before it. */
static inline struct numbers run(const struct op_case *c, int direction, struct device *dev,
                                 const struct numbers *before)
{
    struct tensor t[CASE_OPERANDS];
    struct numbers after = { 0 };

    for (int i = 0; i < c->count; i++) {
        int64_t count = tensor_count(c->operands[i].shape);
        t[i] = c->operands[i].shape;
        assert_ok(mem_new(&t[i].data, (size_t)(count + POISONED) * dtype_bytes(t[i].type), "test"));
        for (int64_t n = 0; n < count + POISONED; n++)
            set(t[i], n, n < count ? before->of[i][n] : POISON);
    }
    assert_ok(case_run(c, direction, dev, t));
    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        int64_t count = tensor_count(o->shape), used = o->heads[2] * o->heads[3];
        bool written = is_written(o->role[direction]) || o->role[direction] == SCRATCH;

        assert_ok(NEW_ARRAY(&after.of[i], count + 1, "test"));
        for (int64_t n = 0; n < count + POISONED; n++) {
            double x = get(t[i], n), expected = n < count ? before->of[i][n] : POISON;
            bool stays = n >= count || !written || (o->view && n % o->shape.shape[1] >= used);
            if (stays && x != expected && !(isnan(x) && isnan(expected)))
                fail_msg("%s %s: '%s' changed at %lld", c->operation->name, c->text, o->name,
                         (long long)n);
            if (n < count)
                after.of[i][n] = x;
        }
        mem_free(t[i].data);
    }
    return after;
}

static struct device ref = { .ops = &ops_ref };

/* The numbers before a call. Backward reads from forward what that wrote, by the reference in
 * double, rounded to the operand's type. */
static inline struct numbers prepare(const struct op_case *c, int direction)
{
    struct op_case exact;
    struct numbers before = { 0 };

    assert_true(case_make(&exact, c->operation, c->n, c->option, c->gap, DTYPE_F64));
    for (int i = 0; i < c->count; i++) {
        assert_ok(NEW_ARRAY(&before.of[i], tensor_count(c->operands[i].shape) + 1, "test"));
        case_draw(c, i, c->operands[i].role[FORWARD], before.of[i]);
    }
    if (direction == FORWARD)
        return before;
    struct numbers after = run(&exact, FORWARD, &ref, &before);
    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        float room[2];
        struct tensor one = tensor_1(room, o->shape.type, 1);
        if (o->role[FORWARD] != OUT || o->role[BACKWARD] != IN)
            case_draw(c, i, o->role[BACKWARD], before.of[i]);
        for (int64_t n = 0;
             o->role[FORWARD] == OUT && o->role[BACKWARD] == IN && n < tensor_count(o->shape);
             n++) {
            set(one, 0, after.of[i][n]);
            before.of[i][n] = get(one, 0);
        }
    }
    numbers_free(&after);
    return before;
}

/* What the reference gives in double from the same numbers. */
static inline struct numbers solve_exactly(const struct op_case *c, int direction,
                                           const struct numbers *before)
{
    struct op_case exact;

    assert_true(case_make(&exact, c->operation, c->n, c->option, c->gap, DTYPE_F64));
    return run(&exact, direction, &ref, before);
}

static inline bool same_bits(const struct op_case *c, int direction, const struct numbers *a,
                             const struct numbers *b)
{
    for (int i = 0; i < c->count; i++)
        if (is_written(c->operands[i].role[direction]) &&
            memcmp(a->of[i], b->of[i],
                   sizeof(double) * (size_t)tensor_count(c->operands[i].shape)) != 0)
            return false;
    return true;
}

static inline bool report(const struct op_case *c, int direction, const char *backend, double error,
                          double limit, const char *wrong)
{
    static const char *const types[] = { "f32", "f64", "i32", "bf16" };
    char name[CASE_TEXT_MAX];
    bool good = error <= limit && !wrong;

    case_name(c, direction, name);
    printf("%s %s %s %s  error %.1e  limit %.1e  %s\n", name, backend, types[c->type], c->text,
           error, limit,
           good    ? "ok"
           : wrong ? wrong
                   : "TOO FAR");
    return good;
}

/* The largest error of an operand, relative to the largest number expected or there before: a sum
 * may cancel. Scaled so that the operation's limit is the operand's. */
static inline double largest_error(const struct op_case *c, int direction,
                                   const struct numbers *before, const struct numbers *got,
                                   const struct numbers *expected)
{
    double worst = 0.0;

    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        double error = 0.0, size = 1e-30;
        for (int64_t n = 0; is_written(o->role[direction]) && n < tensor_count(o->shape); n++) {
            double difference = fabs(got->of[i][n] - expected->of[i][n]);
            if (o->same_as >= 0)
                break;
            error = isnan(difference) ? INFINITY : fmax(error, difference);
            size = fmax(size, fmax(fabs(expected->of[i][n]), fabs(before->of[i][n])));
        }
        if (o->limit > 0)
            error *= c->operation->limit[direction] / o->limit;
        worst = fmax(worst, error / size);
    }
    return worst;
}

#endif
