/* memory.c - filling, copying, appending to a cache */
#include <string.h>

#include "ops/bf16.h"
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

/* Between fp32 and bf16, which ranks send each other. */
static void convert(struct tensor dst, struct tensor src)
{
    int64_t count = tensor_count(dst);
    bool narrows = dst.type == DTYPE_BF16;
    float *wide = narrows ? src.data : dst.data;
    uint16_t *narrow = narrows ? dst.data : src.data;

#pragma omp parallel for if (count >= CPU_PARALLEL_MIN && narrows)
    for (int64_t i = 0; i < (narrows ? count : 0); i++)
        narrow[i] = bf16_from_float(wide[i]);
#pragma omp parallel for if (count >= CPU_PARALLEL_MIN && !narrows)
    for (int64_t i = 0; i < (narrows ? 0 : count); i++)
        wide[i] = bf16_to_float(narrow[i]);
}

static bool is_row(struct tensor t)
{
    return t.shape[3] == tensor_count(t);
}

/* The heads of one row of a view are adjacent. */
alibi_status SIMD(copy)(struct device *dev, struct tensor dst, struct tensor src)
{
    int64_t rows = dst.shape[0] * dst.shape[1], L = dst.shape[1],
            width = dst.shape[2] * dst.shape[3];
    float *out = dst.data;
    const float *in = src.data;

    if (is_row(dst) && is_row(src) &&
        ((dst.type == DTYPE_BF16 && src.type == DTYPE_F32) ||
         (dst.type == DTYPE_F32 && src.type == DTYPE_BF16))) {
        convert(dst, src);
        return ALIBI_OK;
    }
    if (dst.type != DTYPE_F32 || src.type != DTYPE_F32)
        return ref_copy(dev, dst, src);
#pragma omp parallel for if (rows * width >= CPU_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r / L * dst.stride[0] + r % L * dst.stride[1],
               in + r / L * src.stride[0] + r % L * src.stride[1], sizeof(float) * (size_t)width);
    return ALIBI_OK;
}
