// bounds.cuh - how much weight keys can have at most
//
//   weight of keys J for query i, relative to its own key   <=   g exp(r_i K_J + b_iJ - own_i),
//   own_i = scale q_i . k_i + bias(0)
//
// with r_i = |scale q_i|, K_J = max |k_j|, b_iJ the largest bias and g the keys that count at most
// (docs/attention.md). The own key is part of what is summed, so this bounds the weight relative to
// all that is. Every step errs upwards, by factors that exceed the rounding of fp32; a number that
// is not one makes every comparison false, and the keys are used.
#ifndef BOUNDS_CUH
#define BOUNDS_CUH

#include "ops/cuda/attention.cuh"

static __host__ __device__ __forceinline__ float norm_margin(int D)
{
    return 1.0001f + (float)D * 0x1p-23f;
}

static __device__ __forceinline__ float larger(float a, float b)
{
    return a > b || isnan(a) ? a : b;
}

// Norms of key tiles, [B, Hkv, tiles] with strides.
struct key_norms {
    const float *at;
    int64_t b, h;

    // Of keys first..last.
    __device__ __forceinline__ float largest(int batch, int kv, int first, int last) const
    {
        const float *norms = at + batch * b + kv * h;
        float most = 0.0f;

        for (int t = first / ATTENTION_TILE; t <= last / ATTENTION_TILE; t++)
            most = larger(norms[t], most);
        return most;
    }
};

static inline key_norms key_norms_of(struct tensor norms)
{
    key_norms n = { (const float *)norms.data, norms.stride[0], norms.stride[1] };
    return n;
}

// The largest bias at distances near..far.
static __device__ __forceinline__ float largest_bias(const attention_shape &s, int h, int near,
                                                     int far)
{
    if (s.kind == BIAS_TABLE) {
        float most = s.bias(h, near);
        for (int d = near + 1; d <= min(far, s.T - 1); d++)
            most = larger(s.bias(h, d), most);
        return most;
    }
    return s.bias(h, s.kind == BIAS_LINEAR && s.values[h] < 0.0f ? far : near);
}

// Under a slope weights fall geometrically: no more than 1 / (1 - e^-|slope|) of them count.
static __device__ __forceinline__ float counted_keys(const attention_shape &s, int h, int count)
{
    float slope = s.kind == BIAS_LINEAR ? s.values[h] : 0.0f;

    return fminf(1.001f / -expm1f(-fabsf(slope)), (float)count);
}

// Of keys first..last, all before the query, with their largest norm; own_norm is that of the tile
// of the query's own key, whose score is rounded too.
static __device__ __forceinline__ float weight_bound(const attention_shape &s, int h, int position,
                                                     int first, int last, float norm, float reach,
                                                     float own, float own_norm)
{
    const float rounding = 0x1p-18f; // of an exponent, relative to the sizes of what it is made of
    const float lowest = -80.0f;     // exp() of less is 0 in fp32, and a bound must not be
    float bias = largest_bias(s, h, position - last, position - first);
    float exponent = reach * norm + bias - own +
                     rounding * (reach * (norm + own_norm) + fabsf(bias) + fabsf(own));

    exponent = exponent < lowest ? lowest : exponent; // what is not a number stays
    return 1.001f * counted_keys(s, h, last - first + 1) * expf(exponent);
}

#endif
