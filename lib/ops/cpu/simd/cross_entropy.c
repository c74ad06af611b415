/* cross_entropy.c - cross-entropy, and log-probabilities
 *
 *   nll = log sum_v exp(x_v) - x_target,   dlogits = scale * (softmax - onehot)
 *   y_v = x_v - log sum_u exp(x_u) + shift
 *
 * One pass finds the maximum and the sum, one writes the gradient. The first goes block by block,
 * so that a block is in the first-level cache when its exponentials are taken; what was summed
 * before shrinks when the maximum grows. */
#include "ops/cpu/simd/simd.h"
#include "ops/cpu/simd/vec.h"

enum { BLOCK = 2048 };

struct softmax {
    float max;
    double sum; /* of exp(x - max) */
};

static float largest_of(const float *x, int64_t n, float start)
{
    vec max = vec_all(start);
    int64_t v = 0;

    for (; v + SIMD_WIDTH <= n; v += SIMD_WIDTH)
        max = vec_max(vec_load(x + v), max);
    float largest = vec_largest(max);
    for (; v < n; v++)
        largest = x[v] > largest ? x[v] : largest;
    return largest;
}

static float sum_of_exponentials(const float *x, int64_t n, float max)
{
    vec sum = { 0 };
    int64_t v = 0;

    for (; v + SIMD_WIDTH <= n; v += SIMD_WIDTH)
        sum += vec_exp_term(vec_load(x + v) - max);
    if (v < n)
        sum += vec_first(vec_exp_term(vec_load_end(x + v, n - v) - max), n - v);
    return vec_sum(sum);
}

static struct softmax softmax_of(const float *x, int64_t V)
{
    struct softmax s = { -INFINITY, 0.0 };

    for (int64_t v = 0; v < V; v += BLOCK) {
        int64_t n = V - v < BLOCK ? V - v : BLOCK;
        float max = largest_of(x + v, n, s.max);
        s.sum = s.sum * exp((double)(s.max - max)) + (double)sum_of_exponentials(x + v, n, max);
        s.max = max;
    }
    return s;
}

/* out may be x. */
static void write_gradient(float *out, const float *x, int64_t V, struct softmax s, int64_t target,
                           float scale)
{
    float factor = (float)((double)scale / s.sum);
    int64_t v = 0;

    for (; v + SIMD_WIDTH <= V; v += SIMD_WIDTH)
        vec_store(out + v, factor * vec_exp_term(vec_load(x + v) - s.max));
    if (v < V)
        vec_store_end(out + v, factor * vec_exp_term(vec_load_end(x + v, V - v) - s.max), V - v);
    out[target] -= scale;
}

/* n of the V columns take part. */
static float run_row(float *out, const float *x, int64_t n, int64_t V, int64_t target, float scale)
{
    float nll = 0.0f;

    if (target >= 0) {
        struct softmax s = softmax_of(x, n);
        nll = (float)(log(s.sum) + ((double)s.max - (double)x[target]));
        if (out)
            write_gradient(out, x, n, s, target, scale);
    }
    for (int64_t v = target < 0 ? 0 : n; out && v < V; v++)
        out[v] = 0.0f;
    return nll;
}

alibi_status SIMD(cross_entropy)(struct device *dev, const struct cross_entropy_args *a)
{
    int64_t rows = a->logits.shape[0], V = a->logits.shape[1], n = cross_entropy_classes(a);
    const int32_t *target = a->targets.data;
    const float *in = a->logits.data;
    float *nll = a->nll.data, *out = a->dlogits.data;

    if (a->logits.type != DTYPE_F32)
        return ref_cross_entropy(dev, a);
#pragma omp parallel for if (rows * V >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++)
        nll[r] = run_row(out ? out + r * V : NULL, in + r * V, n, V, target[r], (float)a->scale);
    return ALIBI_OK;
}

alibi_status SIMD(log_softmax)(struct device *dev, const struct log_softmax_args *a)
{
    int64_t rows = a->y.shape[1], n = a->y.shape[3], V = a->logits.shape[1];
    const float *in = a->logits.data, *shift = a->shift.data;
    float *out = a->y.data;

    if (a->logits.type != DTYPE_F32)
        return ref_log_softmax(dev, a);
#pragma omp parallel for if (rows * n >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *x = in + r * V;
        float *y = out + r * a->y.stride[1];
        struct softmax s = softmax_of(x, n);
        double less = (double)s.max + log(s.sum);
        double add = (shift ? (double)shift[r * a->shift.stride[1]] : 0.0) - less;
        for (int64_t v = 0; v < n; v++)
            y[v] = (float)((double)x[v] + add);
    }
    return ALIBI_OK;
}
