/* activation.c
 *
 *   gelu tanh   y = x S(2u),     u = sqrt(2/pi) (x + 0.044715 x^3),  (1 + tanh u)/2 = S(2u)
 *   gelu erf    y = x N(x),      N the normal distribution
 *   relu        y = max(x, 0)
 *   swiglu      y = g S(g) * u,  a row of x is g[F] then u[F]
 *
 * with S(x) = 1 / (1 + e^-x).
 *
 * In these forms nothing cancels, so small results have all their digits too. Work is cut into
 * pieces of PIECE numbers. */
#include "ops/cpu/simd/simd.h"
#include "ops/cpu/simd/vec.h"

enum { PIECE = 4096 };

/* ---- one vector */

VEC_INLINE vec sigmoid(vec x)
{
    return 1.0f / (1.0f + vec_exp(-x));
}

/* 2u = x (a + b x^2) and its derivative a + 3 b x^2 */
#define GELU_A 1.59576912f   /* 2 sqrt(2/pi) */
#define GELU_B 0.0713548163f /* 0.044715 * 2 sqrt(2/pi) */

VEC_INLINE vec gelu_tanh(vec x)
{
    return x * sigmoid(x * (GELU_A + GELU_B * x * x));
}

/* Beyond 20 the slope is 0 or 1 to the last bit, and the cube could overflow. */
VEC_INLINE vec gelu_tanh_slope(vec x)
{
    vec near = vec_max(vec_all(-20.0f), vec_min(vec_all(20.0f), x));
    vec s = sigmoid(near * (GELU_A + GELU_B * near * near));

    return s + s * (1.0f - s) * (near * (GELU_A + 3.0f * GELU_B * near * near));
}

/* N(x), and *bell = e^(-x^2/2). For x <= 0, N(x) = bell * q(t), t = 4 / (4 - x): q is the minimax
 * polynomial of degree 10 for 0 >= x >= -13.3, 8e-9 off; further out bell is 0. For x > 0, N(x) = 1
 * - N(-x). */
VEC_INLINE vec normal_distribution(vec x, vec *bell)
{
    vec t = 4.0f / (4.0f + vec_abs(x));
    vec q = 0.0160883055f * t - 0.0600352248f;

    q = q * t + 0.0449314033f;
    q = q * t + 0.0377638453f;
    q = q * t + 0.00460277255f;
    q = q * t + 0.0912281876f;
    q = q * t + 0.0703310628f;
    q = q * t + 0.0958952782f;
    q = q * t + 0.0994437735f;
    q = q * t + 0.0997505998f;
    *bell = vec_exp_to_88(-0.5f * x * x);
    vec tail = *bell * (q * t);
    return vec_select(x > 0.0f, 1.0f - tail, tail);
}

VEC_INLINE vec gelu_erf(vec x)
{
    vec bell;

    return x * normal_distribution(x, &bell);
}

VEC_INLINE vec gelu_erf_slope(vec x)
{
    vec bell, n = normal_distribution(x, &bell);

    return n + x * 0.398942280f * bell;
}

VEC_INLINE vec relu(vec x)
{
    return vec_max((vec){ 0 }, x);
}

/* A NaN is neither above 0 nor below, and stays one. */
VEC_INLINE vec relu_slope(vec x)
{
    return vec_select(x > 0.0f, vec_all(1.0f), vec_select(x <= 0.0f, (vec){ 0 }, x));
}

/* ---- n numbers; f is inlined. Whole vectors first: the end, in the same loop, would cost it its
 * registers. */

VEC_INLINE void map(vec f(vec), float *y, const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + SIMD_WIDTH <= n; i += SIMD_WIDTH)
        vec_store(y + i, f(vec_load(x + i)));
    if (i < n)
        vec_store_end(y + i, f(vec_load_end(x + i, n - i)), n - i);
}

/* dx may be x or dy: each vector is read before it is written. */
VEC_INLINE void map_slope(vec slope(vec), float *dx, const float *dy, const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + SIMD_WIDTH <= n; i += SIMD_WIDTH)
        vec_store(dx + i, vec_load(dy + i) * slope(vec_load(x + i)));
    if (i < n)
        vec_store_end(dx + i, vec_load_end(dy + i, n - i) * slope(vec_load_end(x + i, n - i)),
                      n - i);
}

static void swiglu(float *y, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
        vec g = vec_load_some(gate + i, n - i);
        vec_store_some(y + i, g * sigmoid(g) * vec_load_some(up + i, n - i), n - i);
    }
}

/* dx may be x: both inputs are read before either is written. */
static void swiglu_gradient(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += SIMD_WIDTH) {
        vec g = vec_load_some(gate + i, n - i), u = vec_load_some(up + i, n - i),
            d = vec_load_some(dy + i, n - i);
        vec s = sigmoid(g);
        vec_store_some(dgate + i, d * u * (s + g * s * (1.0f - s)), n - i);
        vec_store_some(dup + i, d * (g * s), n - i);
    }
}

static void forward_piece(int kind, float *y, const float *x, int64_t n)
{
    if (kind == ALIBI_GELU_TANH)
        map(gelu_tanh, y, x, n);
    else if (kind == ALIBI_GELU_ERF)
        map(gelu_erf, y, x, n);
    else
        map(relu, y, x, n);
}

static void backward_piece(int kind, float *dx, const float *dy, const float *x, int64_t n)
{
    if (kind == ALIBI_GELU_TANH)
        map_slope(gelu_tanh_slope, dx, dy, x, n);
    else if (kind == ALIBI_GELU_ERF)
        map_slope(gelu_erf_slope, dx, dy, x, n);
    else
        map_slope(relu_slope, dx, dy, x, n);
}

/* ---- operations */

alibi_status SIMD(activation_forward)(struct device *dev, int kind, struct tensor y,
                                      struct tensor x)
{
    int64_t rows = y.shape[0], F = y.shape[1], count = rows * F;
    float *out = y.data;
    const float *in = x.data;

    if (y.type != DTYPE_F32)
        return ref_activation_forward(dev, kind, y, x);
    if (kind == ALIBI_SWIGLU) {
#pragma omp parallel for if (count >= CPU_PARALLEL_MIN)
        for (int64_t r = 0; r < rows; r++)
            swiglu(out + r * F, in + r * 2 * F, in + (r * 2 + 1) * F, F);
        return ALIBI_OK;
    }
#pragma omp parallel for if (count >= CPU_PARALLEL_MIN)
    for (int64_t i = 0; i < count; i += PIECE)
        forward_piece(kind, out + i, in + i, count - i < PIECE ? count - i : PIECE);
    return ALIBI_OK;
}

alibi_status SIMD(activation_backward)(struct device *dev, int kind, struct tensor dx,
                                       struct tensor dy, struct tensor x)
{
    int64_t rows = dy.shape[0], F = dy.shape[1], count = rows * F;
    float *out = dx.data;
    const float *d = dy.data, *in = x.data;

    if (dx.type != DTYPE_F32)
        return ref_activation_backward(dev, kind, dx, dy, x);
    if (kind == ALIBI_SWIGLU) {
#pragma omp parallel for if (count >= CPU_PARALLEL_MIN)
        for (int64_t r = 0; r < rows; r++) {
            int64_t gate = r * 2 * F, up = gate + F;
            swiglu_gradient(out + gate, out + up, d + r * F, in + gate, in + up, F);
        }
        return ALIBI_OK;
    }
#pragma omp parallel for if (count >= CPU_PARALLEL_MIN)
    for (int64_t i = 0; i < count; i += PIECE)
        backward_piece(kind, out + i, d + i, in + i, count - i < PIECE ? count - i : PIECE);
    return ALIBI_OK;
}
