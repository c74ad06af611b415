// sort.cu - CUB's radix sort, for numbers that are not negative
#include <cub/device/device_radix_sort.cuh>

#include "ops/cuda/sort.h"

cudaError_t cuda_sort(void *temp, size_t *temp_bytes, const int32_t *keys, int32_t *sorted_keys,
                      const int32_t *values, int32_t *sorted_values, int count, int bits,
                      cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(temp, *temp_bytes, (const uint32_t *)keys,
                                           (uint32_t *)sorted_keys, values, sorted_values, count, 0,
                                           bits, stream);
}
