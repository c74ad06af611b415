/* sort.h - a stable sort on the GPU
 *
 * A room of its own for CUB: its headers have a namespace by the name of our struct cuda. */
#ifndef SORT_H
#define SORT_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Sorts `count` pairs by their keys, which are less than 2^bits; equal keys stay in order. With
 * temp NULL it only says how many bytes of temporary memory that takes. */
cudaError_t cuda_sort(void *temp, size_t *temp_bytes, const int32_t *keys, int32_t *sorted_keys,
                      const int32_t *values, int32_t *sorted_values, int count, int bits,
                      cudaStream_t stream);

#endif
