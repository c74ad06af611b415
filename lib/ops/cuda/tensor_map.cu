// tensor_map.cu - a view [B, L, H, D] of bf16 as the copy engine knows it
//
// The encoder is the driver's: it is asked for through the runtime, so that nothing links against
// the driver.
#include "ops/cuda/tensor_map.cuh"

typedef CUresult (*encoder)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                            const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                            const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encoder find_encoder()
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;

    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return NULL;
    return (encoder)found;
}

alibi_status tensor_map(CUtensorMap *map, struct tensor view, int rows)
{
    static const encoder encode = find_encoder();
    const cuuint64_t sizes[4] = { (cuuint64_t)view.shape[3], (cuuint64_t)view.shape[2],
                                  (cuuint64_t)view.shape[1], (cuuint64_t)view.shape[0] };
    const cuuint64_t strides[3] = { 2 * (cuuint64_t)view.stride[2], 2 * (cuuint64_t)view.stride[1],
                                    2 * (cuuint64_t)view.stride[0] };
    const cuuint32_t box[4] = { 64, 1, (cuuint32_t)rows, 1 }, steps[4] = { 1, 1, 1, 1 };

    if (!encode)
        return fail(ALIBI_DEVICE, "attention: the driver has no tensor maps");
    if (encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, view.data, sizes, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return fail(ALIBI_DEVICE,
                    "attention: the driver refused a view of %lld x %lld x %lld x %lld",
                    (long long)view.shape[0], (long long)view.shape[1], (long long)view.shape[2],
                    (long long)view.shape[3]);
    return ALIBI_OK;
}
