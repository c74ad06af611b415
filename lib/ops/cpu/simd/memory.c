/* memory.c - filling and copying */
#include <string.h>

#include "ops/cpu/simd/simd.h"

alibi_status SIMD(fill)(struct device *dev, struct tensor dst, double value)
{
    int64_t count = tensor_count(dst);
    float *out = dst.data, x = (float)value;

    if (dst.type != DTYPE_F32)
        return ref_fill(dev, dst, value);
#pragma omp parallel for if (count >= CPU_PARALLEL_MIN)
    for (int64_t i = 0; i < count; i++)
        out[i] = x;
    return ALIBI_OK;
}

/* The heads of one row of a view lie side by side. */
alibi_status SIMD(copy)(struct device *dev, struct tensor dst, struct tensor src)
{
    int64_t rows = dst.shape[0] * dst.shape[1], L = dst.shape[1],
            width = dst.shape[2] * dst.shape[3];
    float *out = dst.data;
    const float *in = src.data;

    if (dst.type != DTYPE_F32 || src.type != DTYPE_F32)
        return ref_copy(dev, dst, src);
#pragma omp parallel for if (rows * width >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r / L * dst.stride[0] + r % L * dst.stride[1],
               in + r / L * src.stride[0] + r % L * src.stride[1], sizeof(float) * (size_t)width);
    return ALIBI_OK;
}
