/* solve.h - runs the cases of bench/cases.h on a device, and compares
 *
 * Numbers are kept as doubles next to the tensors. Every tensor has poison after it, and before it
 * if it is not aligned. Poison must stay, and so must inputs and the columns outside of a view.
 * Outputs hold NaN before the call. */
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

/* A vector on the device with `count` numbers. Host: the device computes in this process's memory,
 * where types wider than the floats of upload() can be set too. */
static inline struct tensor place(struct device *dev, bool host, enum dtype type,
                                  const double *numbers, int64_t count)
{
    struct tensor t = tensor_1(NULL, type, count);
    union {
        float f;
        int32_t i;
    } *cells = NULL;

    if (host) {
        assert_ok(mem_new(&t.data, (size_t)count * dtype_bytes(type), "test"));
        for (int64_t n = 0; n < count; n++)
            set(t, n, numbers[n]);
        return t;
    }
    assert_ok(dev->ops->buffer_new(dev, &t.data, (size_t)count * dtype_bytes(type), "test"));
    assert_ok(NEW_ARRAY(&cells, count, "test"));
    for (int64_t n = 0; n < count; n++)
        if (type == DTYPE_I32)
            cells[n].i = (int32_t)numbers[n];
        else
            cells[n].f = (float)numbers[n];
    assert_ok(dev->ops->upload(dev, t, cells));
    mem_free(cells);
    return t;
}

/* The numbers of such a vector, which is then gone. */
static inline void take_back(struct device *dev, bool host, struct tensor t, double *numbers)
{
    int64_t count = tensor_count(t);
    union {
        float f;
        int32_t i;
    } *cells = NULL;

    for (int64_t n = 0; host && n < count; n++)
        numbers[n] = get(t, n);
    if (host) {
        mem_free(t.data);
        return;
    }
    assert_ok(NEW_ARRAY(&cells, count, "test"));
    assert_ok(dev->ops->download(dev, cells, t));
    for (int64_t n = 0; n < count; n++)
        numbers[n] = t.type == DTYPE_I32 ? (double)cells[n].i : (double)cells[n].f;
    mem_free(cells);
    dev->ops->buffer_free(dev, t.data);
}

/* The numbers after a call on the device of those before it. On a device that is reached by
 * transfers, tensors of cases with gaps begin one element late: kernels must not assume more
 * alignment than they check. */
static inline struct numbers run_on(const struct op_case *c, int direction, struct device *dev,
                                    bool host, const struct numbers *before)
{
    struct tensor whole[CASE_OPERANDS], t[CASE_OPERANDS];
    struct numbers after = { 0 };
    int64_t late = !host && c->gap > 0 ? 1 : 0;

    for (int i = 0; i < c->count; i++) {
        int64_t count = tensor_count(c->operands[i].shape), all = late + count + POISONED;
        double *numbers = NULL;

        assert_ok(NEW_ARRAY(&numbers, all, "test"));
        for (int64_t n = 0; n < all; n++)
            numbers[n] = n < late || n >= late + count ? POISON : before->of[i][n - late];
        t[i] = c->operands[i].shape;
        whole[i] = place(dev, host, t[i].type, numbers, all);
        t[i].data = tensor_at(whole[i], late);
        mem_free(numbers);
    }
    assert_ok(case_run(c, direction, dev, t));
    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        int64_t count = tensor_count(o->shape), used = o->heads[2] * o->heads[3];
        bool written = is_written(o->role[direction]) || o->role[direction] == SCRATCH;
        double *numbers = NULL;

        assert_ok(NEW_ARRAY(&numbers, late + count + POISONED, "test"));
        take_back(dev, host, whole[i], numbers);
        for (int64_t n = -late; n < count + POISONED; n++) {
            bool inside = n >= 0 && n < count;
            double x = numbers[late + n], expected = inside ? before->of[i][n] : POISON;
            bool stays = !inside || !written || (o->view && n % o->shape.shape[1] >= used);
            if (stays && x != expected && !(isnan(x) && isnan(expected)))
                fail_msg("%s %s: '%s' changed at %lld", c->operation->name, c->text, o->name,
                         (long long)n);
        }
        memmove(numbers, numbers + late, sizeof(double) * (size_t)count);
        after.of[i] = numbers;
    }
    return after;
}

static inline struct numbers run(const struct op_case *c, int direction, struct device *dev,
                                 const struct numbers *before)
{
    return run_on(c, direction, dev, true, before);
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

/* The reference's results in double from the same numbers. */
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

struct error {
    double error, limit;
};

/* The error of the operand that is nearest to its limit, or furthest beyond: relative to the
 * largest number expected or there before, since a sum may cancel. bf16 results, and sums of
 * numbers that were rounded to bf16 on the way, may be so many roundings off as the operation has.
 */
static inline struct error largest_error(const struct op_case *c, int direction,
                                         const struct numbers *before, const struct numbers *got,
                                         const struct numbers *expected)
{
    struct error worst = { 0.0, c->operation->limit[direction] };
    double share = 0.0;

    for (int i = 0; i < c->count; i++) {
        const struct operand *o = &c->operands[i];
        bool rough = o->shape.type == DTYPE_BF16 ||
                     (c->type == DTYPE_BF16 && (c->stores_first || o->limit > 0));
        double limit = rough          ? 0x1.01p-8 * (1 + c->operation->roundings)
                       : o->limit > 0 ? o->limit
                                      : c->operation->limit[direction];
        double error = 0.0, size = fmax(1e-30, o->least);
        for (int64_t n = 0; is_written(o->role[direction]) && n < tensor_count(o->shape); n++) {
            double difference = fabs(got->of[i][n] - expected->of[i][n]);
            if (o->same_as >= 0)
                break;
            error = isnan(difference) ? INFINITY : fmax(error, difference);
            size = fmax(size, fmax(fabs(expected->of[i][n]), fabs(before->of[i][n])));
        }
        error /= size;
        if (error > 0 && error / limit > share) { /* an exact operation has a limit of 0 */
            share = error / limit;
            worst = (struct error){ error, limit };
        }
    }
    return worst;
}

#endif
