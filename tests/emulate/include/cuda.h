/* cuda.h - the names of the CUDA driver that lib/ops/cuda uses; the emulated GPU has no TMA */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include "emulate.h"

typedef struct {
    alignas(64) uint64_t opaque[16];
} CUtensorMap;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef enum { CUDA_SUCCESS } CUresult;
typedef enum { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 } CUtensorMapDataType;
typedef enum { CU_TENSOR_MAP_INTERLEAVE_NONE } CUtensorMapInterleave;
typedef enum { CU_TENSOR_MAP_SWIZZLE_128B } CUtensorMapSwizzle;
typedef enum { CU_TENSOR_MAP_L2_PROMOTION_L2_256B } CUtensorMapL2promotion;
typedef enum { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE } CUtensorMapFloatOOBfill;
typedef enum { cudaDriverEntryPointSuccess } cudaDriverEntryPointQueryResult;
enum { cudaEnableDefault };

inline cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, int,
                                                    cudaDriverEntryPointQueryResult *)
{
    return cudaErrorNotSupported;
}

#endif
