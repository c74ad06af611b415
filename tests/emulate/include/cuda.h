/* cuda.h - the names of the CUDA driver that lib/ops/cuda uses: tensor maps */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include "emulate.h"

// Numbers of 16 bits; the first dimension is the innermost, and contiguous.
typedef struct {
    alignas(64) const char *data;
    uint64_t size[4];
    int64_t stride[4]; // bytes
    uint32_t box[4];
} CUtensorMap;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE } CUresult;
typedef enum { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 } CUtensorMapDataType;
typedef enum { CU_TENSOR_MAP_INTERLEAVE_NONE } CUtensorMapInterleave;
typedef enum { CU_TENSOR_MAP_SWIZZLE_128B } CUtensorMapSwizzle;
typedef enum { CU_TENSOR_MAP_L2_PROMOTION_L2_256B } CUtensorMapL2promotion;
typedef enum { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE } CUtensorMapFloatOOBfill;
typedef enum { cudaDriverEntryPointSuccess } cudaDriverEntryPointQueryResult;
enum { cudaEnableDefault };

// It refuses what the driver refuses.
inline CUresult encode_tensor_map(CUtensorMap *map, CUtensorMapDataType, cuuint32_t dimensions,
                                  void *data, const cuuint64_t *sizes, const cuuint64_t *strides,
                                  const cuuint32_t *box, const cuuint32_t *, CUtensorMapInterleave,
                                  CUtensorMapSwizzle, CUtensorMapL2promotion,
                                  CUtensorMapFloatOOBfill)
{
    const cuuint64_t stride_end = 1ull << 40, size_end = 1ull << 32;
    const cuuint32_t box_end = 256, swizzled = 64; // numbers

    if (dimensions != 4 || (uintptr_t)data % 16 != 0 || box[0] > swizzled)
        return CUDA_ERROR_INVALID_VALUE;
    *map = { (const char *)data, {}, { sizeof(uint16_t) }, {} };
    for (int i = 0; i < 4; i++) {
        map->size[i] = sizes[i];
        map->box[i] = box[i];
        if (i > 0)
            map->stride[i] = (int64_t)strides[i - 1];
        if (sizes[i] == 0 || sizes[i] > size_end || box[i] == 0 || box[i] > box_end ||
            (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= stride_end)))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

inline cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **found, unsigned, int,
                                                    cudaDriverEntryPointQueryResult *result)
{
    *found = (void *)encode_tensor_map;
    *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

#endif
