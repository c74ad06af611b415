// activation.cuh - activations and their derivatives, of one number
//
//   gelu tanh   y = x/2 (1 + tanh(u)) = x sigmoid(2u),   u = sqrt(2/pi) (x + 0.044715 x^3)
//   gelu erf    y = x/2 (1 + erf(x / sqrt(2)))
//   relu        y = max(x, 0)
//   silu        y = x sigmoid(x)
//
// A sigmoid costs one exponential. In bf16 the errors of the fast exponential and division are far
// below the rounding of the result.
#ifndef ACTIVATION_CUH
#define ACTIVATION_CUH

#include "ops/cuda/launch.cuh"

template <class T> __device__ __forceinline__ float exponential(float x)
{
    return sizeof(T) == 2 ? __expf(x) : expf(x);
}

// s = sigmoid(x) and s (1 - s).
struct sigmoid {
    float value, slope;
};

// No cancellation: with e = exp(-|x|), 1 / (1 + e) is the larger of s and 1 - s.
__device__ __forceinline__ struct sigmoid exact_sigmoid(float x)
{
    const float e = expf(-fabsf(x)), larger = 1.0f / (1.0f + e), smaller = e * larger;

    return { x >= 0.0f ? larger : smaller, larger * smaller };
}

// The error of the difference 1 - s is 2^-24, negligible next to s near 1. A large e^-x overflows
// to infinity, and s is 0.
__device__ __forceinline__ struct sigmoid fast_sigmoid(float x)
{
    const float s = fast_reciprocal(1.0f + exp2_approx(-log2_e * x));

    return { s, fmaf(-s, s, s) };
}

template <class T> __device__ __forceinline__ struct sigmoid sigmoid_of(float x)
{
    return sizeof(T) == 2 ? fast_sigmoid(x) : exact_sigmoid(x);
}

// Each kind has its function and its derivative.
template <class T> struct gelu_tanh {
    static constexpr float K = 1.5957691216057308f,
                           CUBE = 0.044715f; // 2 sqrt(2/pi)

    static __device__ __forceinline__ float twice_u(float x)
    {
        return x * (K + K * CUBE * (x * x));
    }

    static __device__ __forceinline__ float value(float x)
    {
        return x * sigmoid_of<T>(twice_u(x)).value;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        const struct sigmoid s = sigmoid_of<T>(twice_u(x));

        return s.value + x * s.slope * (K + 3.0f * K * CUBE * (x * x));
    }
};

template <class T> struct gelu_erf {
    static __device__ __forceinline__ float normal(float x)
    {
        return 0.5f * (1.0f + erff(x * 0.70710678118654752f));
    }

    static __device__ __forceinline__ float value(float x)
    {
        return x * normal(x);
    }

    // The normal distribution plus x times its density.
    static __device__ __forceinline__ float slope(float x)
    {
        return normal(x) + x * exponential<T>(-0.5f * x * x) * 0.39894228040143268f;
    }
};

// NaN stays NaN.
template <class T> struct relu {
    static __device__ __forceinline__ float value(float x)
    {
        return x <= 0.0f ? 0.0f : x;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        return x <= 0.0f ? 0.0f : x > 0.0f ? 1.0f : x;
    }
};

template <class T> struct silu {
    static __device__ __forceinline__ float value(float x)
    {
        return x * sigmoid_of<T>(x).value;
    }

    static __device__ __forceinline__ float slope(float x)
    {
        const struct sigmoid s = sigmoid_of<T>(x);

        return s.value + x * s.slope;
    }
};

#endif
