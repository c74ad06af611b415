/* activation.c
 *
 *   gelu tanh   y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   gelu erf    y = x/2 (1 + erf(x / sqrt(2)))
 *   relu        y = max(x, 0)
 *   swiglu      y = silu(g) * u,     silu(g) = g / (1 + e^-g) */
#include <math.h>

#include "ops/ref/ref.h"

static double gelu_tanh(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_tanh_slope(double x)
{
    double t = tanh(sqrt(M_2_PI) * (x + 0.044715 * x * x * x));

    return 0.5 * (1.0 + t) +
           0.5 * x * (1.0 - t * t) * sqrt(M_2_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

static double gelu_erf(double x)
{
    return 0.5 * x * (1.0 + erf(x * M_SQRT1_2));
}

/* The normal distribution plus x times its density. */
static double gelu_erf_slope(double x)
{
    return 0.5 * (1.0 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
}

/* Written so that a NaN stays one. */
static double relu(double x)
{
    return x <= 0.0 ? 0.0 : x;
}

static double relu_slope(double x)
{
    return x <= 0.0 ? 0.0 : x > 0.0 ? 1.0 : x;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double apply(int kind, double x)
{
    switch ((enum alibi_activation)kind) {
    case ALIBI_GELU_TANH:
        return gelu_tanh(x);
    case ALIBI_GELU_ERF:
        return gelu_erf(x);
    case ALIBI_RELU:
        return relu(x);
    case ALIBI_SWIGLU:
        return x * sigmoid(x);
    }
    return x;
}

static double slope(int kind, double x)
{
    switch ((enum alibi_activation)kind) {
    case ALIBI_GELU_TANH:
        return gelu_tanh_slope(x);
    case ALIBI_GELU_ERF:
        return gelu_erf_slope(x);
    case ALIBI_RELU:
        return relu_slope(x);
    case ALIBI_SWIGLU:
        return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
    }
    return 1.0;
}

alibi_status ref_activation_forward(struct device *dev, int kind, struct tensor y, struct tensor x)
{
    int64_t rows = y.shape[0], F = y.shape[1], width = x.shape[1];

    (void)dev;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < F; f++) {
            double up = kind == ALIBI_SWIGLU ? get(x, r * width + F + f) : 1.0;
            set(y, r * F + f, apply(kind, get(x, r * width + f)) * up);
        }
    return ALIBI_OK;
}

/* Both inputs are read before either gradient is written: dx may be x. */
static void swiglu_backward(struct tensor dx, struct tensor dy, struct tensor x)
{
    int64_t rows = dy.shape[0], F = dy.shape[1];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < F; f++) {
            int64_t at_gate = r * 2 * F + f, at_up = at_gate + F;
            double gate = get(x, at_gate), up = get(x, at_up), d = get(dy, r * F + f);
            set(dx, at_gate, d * up * slope(ALIBI_SWIGLU, gate));
            set(dx, at_up, d * apply(ALIBI_SWIGLU, gate));
        }
}

/* dx may be x or dy: each element is read before it is written. */
alibi_status ref_activation_backward(struct device *dev, int kind, struct tensor dx,
                                     struct tensor dy, struct tensor x)
{
    int64_t count = tensor_count(dy);

    (void)dev;
    if (kind == ALIBI_SWIGLU) {
        swiglu_backward(dx, dy, x);
        return ALIBI_OK;
    }
    for (int64_t i = 0; i < count; i++)
        set(dx, i, get(dy, i) * slope(kind, get(x, i)));
    return ALIBI_OK;
}
