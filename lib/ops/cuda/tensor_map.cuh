// tensor_map.cuh - how the copy engine finds boxes in a view
#ifndef TENSOR_MAP_CUH
#define TENSOR_MAP_CUH

#include <cuda.h>

#include "ops/cuda/launch.cuh"

// Boxes of 64 numbers of one head by `rows` positions, in the 128-byte swizzle of wgmma.cuh.
alibi_status tensor_map(CUtensorMap *map, struct tensor view, int rows);

#endif
