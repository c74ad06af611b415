/* optimizer.c - AdamW, Nesterov momentum, and the sums that clipping needs
 *
 * The updates read and write each array once, in plain loops that the compiler vectorises. Work is
 * cut into pieces of PIECE numbers, after a cut where weight decay ends; sums into at most PARTS
 * parts, each summed in double lane by lane, then added in order. */
#include <string.h>

#include "ops/cpu/simd/simd.h"
#include "ops/cpu/simd/vec.h"

enum { PIECE = 4096, PARTS = 256, LANES = 16 };

/* Elements from..from+n-1 of w in the type of copy. */
static void write_copy(struct tensor copy, const float *w, int64_t from, int64_t n)
{
    if (copy.type == DTYPE_F32)
        memcpy((float *)copy.data + from, w + from, sizeof(float) * (size_t)n);
    else
        for (int64_t i = from; i < from + n; i++)
            set(copy, i, (double)w[i]);
}

/* The constants of an update, folded: w <- keep w - rate m / (sqrt(correction v) + eps). */
struct adamw_step {
    float beta1, rest1, beta2, rest2, gradient_scale;
    float keep, rate, correction, eps;
};

static struct adamw_step step_of(const struct adamw_args *a)
{
    return (struct adamw_step){
        .beta1 = (float)a->beta1,
        .rest1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .gradient_scale = (float)a->gradient_scale,
        .keep = (float)(1.0 - a->lr * a->weight_decay),
        .rate = (float)(a->lr / (1.0 - pow(a->beta1, (double)a->step))),
        .correction = (float)(1.0 / (1.0 - pow(a->beta2, (double)a->step))),
        .eps = (float)a->eps,
    };
}

static void adamw_piece(float *restrict w, float *restrict m, float *restrict v,
                        const float *restrict gradient, int64_t n, struct adamw_step s)
{
    for (int64_t i = 0; i < n; i++) {
        float g = s.gradient_scale * gradient[i];
        float mean = s.beta1 * m[i] + s.rest1 * g;
        float square = s.beta2 * v[i] + s.rest2 * g * g;
        m[i] = mean;
        v[i] = square;
        w[i] = s.keep * w[i] - s.rate * mean / (sqrtf(s.correction * square) + s.eps);
    }
}

/* Elements first..end-1. */
static void adamw_range(const struct adamw_args *a, int64_t first, int64_t end,
                        struct adamw_step step)
{
    float *w = a->w.data, *m = a->m.data, *v = a->v.data;
    const float *g = a->gradient.data;

#pragma omp parallel for if (end - first >= CPU_PARALLEL_MIN)
    for (int64_t i = first; i < end; i += PIECE) {
        int64_t n = end - i < PIECE ? end - i : PIECE;
        adamw_piece(w + i, m + i, v + i, g + i, n, step);
        if (present(a->copy))
            write_copy(a->copy, w, i, n);
    }
}

alibi_status SIMD(adamw)(struct device *dev, const struct adamw_args *a)
{
    int64_t count = tensor_count(a->w), decaying = a->decaying < count ? a->decaying : count;
    struct adamw_step step = step_of(a);

    if (a->w.type != DTYPE_F32)
        return ref_adamw(dev, a);
    adamw_range(a, 0, decaying, step);
    step.keep = 1.0f;
    adamw_range(a, decaying, count, step);
    return ALIBI_OK;
}

/* w <- keep w + ahead u - rate g,   u <- carry u - lr g */
struct nesterov_step {
    float keep, ahead, rate, carry, lr;
};

static struct nesterov_step nesterov_step_of(const struct nesterov_args *a)
{
    double r = a->lr / a->previous_lr;

    return (struct nesterov_step){
        .keep = (float)(1.0 - a->lr * a->weight_decay),
        .ahead = (float)(a->momentum * a->momentum * r),
        .rate = (float)((1.0 + a->momentum) * a->lr * a->gradient_scale),
        .carry = (float)(a->momentum * r),
        .lr = (float)(a->lr * a->gradient_scale),
    };
}

static void nesterov_piece(float *restrict w, float *restrict u, const float *restrict gradient,
                           int64_t n, struct nesterov_step s)
{
    for (int64_t i = 0; i < n; i++) {
        w[i] = s.keep * w[i] + (s.ahead * u[i] - s.rate * gradient[i]);
        u[i] = s.carry * u[i] - s.lr * gradient[i];
    }
}

static void nesterov_range(const struct nesterov_args *a, int64_t first, int64_t end,
                           struct nesterov_step step)
{
    float *w = a->w.data, *u = a->u.data;
    const float *g = a->gradient.data;

#pragma omp parallel for if (end - first >= CPU_PARALLEL_MIN)
    for (int64_t i = first; i < end; i += PIECE) {
        int64_t n = end - i < PIECE ? end - i : PIECE;
        nesterov_piece(w + i, u + i, g + i, n, step);
        if (present(a->copy))
            write_copy(a->copy, w, i, n);
    }
}

alibi_status SIMD(nesterov)(struct device *dev, const struct nesterov_args *a)
{
    int64_t count = tensor_count(a->w), decaying = a->decaying < count ? a->decaying : count;
    struct nesterov_step step = nesterov_step_of(a);

    if (a->w.type != DTYPE_F32)
        return ref_nesterov(dev, a);
    nesterov_range(a, 0, decaying, step);
    step.keep = 1.0f;
    nesterov_range(a, decaying, count, step);
    return ALIBI_OK;
}

/* ---- sums */

VEC_INLINE double term(float x, bool square)
{
    return square ? (double)x * (double)x : (double)x;
}

VEC_INLINE double sum_part(const float *x, int64_t n, bool square)
{
    double lane[LANES] = { 0 }, sum = 0.0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += term(x[i + l], square);
    for (; i < n; i++)
        sum += term(x[i], square);
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

VEC_INLINE double sum_all(const float *x, int64_t count, bool square)
{
    double sums[PARTS], sum = 0.0;
    int64_t parts = count / PIECE < PARTS ? count / PIECE + 1 : PARTS;

#pragma omp parallel for if (count >= CPU_PARALLEL_MIN)
    for (int64_t p = 0; p < parts; p++) {
        int64_t first = count / parts * p, end = p + 1 < parts ? first + count / parts : count;
        sums[p] = sum_part(x + first, end - first, square);
    }
    for (int64_t p = 0; p < parts; p++)
        sum += sums[p];
    return sum;
}

alibi_status SIMD(sum_squares)(struct device *dev, double *sum, struct tensor x)
{
    if (x.type != DTYPE_F32)
        return ref_sum_squares(dev, sum, x);
    *sum = sum_all(x.data, tensor_count(x), true);
    return ALIBI_OK;
}

alibi_status SIMD(sum)(struct device *dev, double *sum, struct tensor x)
{
    if (x.type != DTYPE_F32)
        return ref_sum(dev, sum, x);
    *sum = sum_all(x.data, tensor_count(x), false);
    return ALIBI_OK;
}
