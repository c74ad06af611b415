// hopper.cuh - operands of Hopper's wgmma and TMA, and rings of stages
//
// wgmma: a warpgroup (4 warps) multiplies A (64 x 16) by B (16 x N) and adds to an fp32 accumulator
// fragment of N / 2 registers per thread. Thread (warp w, lane l) holds
//
//   rows      16 w + l / 4      in elements 4 j, 4 j + 1
//             16 w + l / 4 + 8  in elements 4 j + 2, 4 j + 3
//   columns   8 j + 2 (l % 4) and the next one
//
// Operands in shared memory are panels: rows of PANEL = 64 bf16 (128 bytes), one row after another,
// in the 128-byte swizzle of TMA. The 16-byte chunk c of row r is stored at chunk c ^ (r % 8). The
// pattern repeats every 8 rows, so a panel begins at a multiple of SWIZZLE_ATOM. A tile with more
// than 64 columns is several panels, one after another. ptx_hopper.cuh has the instructions.
#ifndef HOPPER_CUH
#define HOPPER_CUH

#include <cuda.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx_hopper.cuh"

enum {
    WARP = 32,                                // threads
    WARPGROUP = 128,                          // threads
    WGMMA_M = 64,                             // rows of A and of the accumulator
    WARP_ROWS = WGMMA_M / 4,                  // of them in the fragments of a warp
    WGMMA_K = 16,                             // numbers summed by one instruction
    PANEL = 64,                               // numbers in a row of a panel
    PANEL_ROW = PANEL * (int)sizeof(bf16),    // bytes: the width of the swizzle
    K_STEP = WGMMA_K * (int)sizeof(bf16),     // bytes from one K step to the next along a row
    K_STEPS_PER_PANEL = PANEL / WGMMA_K,      // wgmma per panel of K-major operands
    K_ROWS = WGMMA_K * PANEL_ROW,             // bytes of the rows of one K step, MN-major
    SWIZZLE_CHUNK = 16,                       // bytes that the swizzle moves as one
    SWIZZLE_ROWS = PANEL_ROW / SWIZZLE_CHUNK, // rows until the pattern repeats
    SWIZZLE_ATOM = PANEL_ROW * SWIZZLE_ROWS,  // bytes
    SMEM_MAX = 227 << 10,                     // bytes of dynamic shared memory of a block
};

// The registers of a block that has a multiprocessor for itself. Every thread starts with as many
// as there are, in steps of 8. setmaxnreg only divides these: what is left over is never given out,
// and a warpgroup that asks for it waits forever.
constexpr int block_registers(int threads)
{
    const int of_multiprocessor = 64 << 10;

    return of_multiprocessor / threads / 8 * 8 * threads;
}

// ---- tensor maps (host): how TMA finds boxes in a view

// A view [B, L, H, D] of bf16 as boxes of PANEL numbers of one head by `rows` positions, in the
// swizzle above. Elements outside the view are loaded as zero. The encoder belongs to the driver;
// asking for it through the runtime avoids linking against the driver.
inline alibi_status make_tensor_map(CUtensorMap *map, struct tensor view, int rows)
{
    typedef CUresult (*encoder)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static const encoder encode = [] {
        void *found = NULL;
        cudaDriverEntryPointQueryResult result;
        cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                             12000, cudaEnableDefault, &result);
        return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? (encoder)found
                                                                             : (encoder)NULL;
    }();
    const cuuint64_t bytes = sizeof(bf16);
    const cuuint64_t sizes[4] = { (cuuint64_t)view.shape[3], (cuuint64_t)view.shape[2],
                                  (cuuint64_t)view.shape[1], (cuuint64_t)view.shape[0] };
    const cuuint64_t strides[3] = { bytes * (cuuint64_t)view.stride[2],
                                    bytes * (cuuint64_t)view.stride[1],
                                    bytes * (cuuint64_t)view.stride[0] };
    const cuuint32_t box[4] = { PANEL, 1, (cuuint32_t)rows, 1 }, steps[4] = { 1, 1, 1, 1 };

    if (!encode)
        return fail(ALIBI_DEVICE, "attention: the driver does not offer tensor maps; update it");
    if (encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, view.data, sizes, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return fail(ALIBI_DEVICE,
                    "attention: the driver refused a tensor map of %lld x %lld x %lld x %lld; set "
                    "ALIBI_MMA_SYNC=1 to use other kernels",
                    (long long)view.shape[0], (long long)view.shape[1], (long long)view.shape[2],
                    (long long)view.shape[3]);
    return ALIBI_OK;
}

#if HAS_WGMMA

// The first address at which a panel may begin. The compiler still knows that a pointer derived
// like this points to shared memory, and uses the shorter instructions for it.
__device__ __forceinline__ char *align_to_atom(char *memory)
{
    return memory + (-shared_address(memory) & (SWIZZLE_ATOM - 1));
}

// ---- wgmma: descriptors of shared memory, fragments

// Fields of a descriptor (PTX ISA, "matrix descriptor"); addresses and offsets in units of 16
// bytes. `leading` is the distance between panels; it is not used for K-major operands.
__device__ __forceinline__ uint64_t descriptor(uint32_t at, uint64_t leading)
{
    const int leading_field = 16, stride_field = 32, swizzle_field = 62;
    const uint64_t swizzle_128b = 1;

    return (uint64_t)((at & 0x3ffff) >> 4) | leading << leading_field |
           (uint64_t)(SWIZZLE_ATOM >> 4) << stride_field | swizzle_128b << swizzle_field;
}

// K-major: the rows of the panel run along K, the summed index. `at` is the first of WGMMA_K
// numbers of a row; the next step is K_STEP bytes on within a panel.
__device__ __forceinline__ uint64_t descriptor_k_major(uint32_t at)
{
    return descriptor(at, 1);
}

// MN-major: each row of the panel is one step of K. `at` is the first of WGMMA_K rows; the next 64
// columns are `panel` bytes on.
__device__ __forceinline__ uint64_t descriptor_mn_major(uint32_t at, uint32_t panel)
{
    return descriptor(at, panel >> 4);
}

template <int COUNT> __device__ __forceinline__ void clear_fragment(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        d[i] = 0.0f;
}

// An accumulator fragment of N columns as the A operands of N / 16 further products. The layouts
// match, so nothing moves between threads.
template <int N>
__device__ __forceinline__ void pack_operand(uint32_t (&a)[N / 16][4], const float (&d)[N / 2])
{
#pragma unroll
    for (int k = 0; k < N / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[k][i] = pack_bf16x2(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
}

// Writes the rows of a warp's fragment as bf16: row r to place(r), or nowhere if that is NULL. They
// pass through shared memory, `rows`, so that a row is stored as a whole, 16 bytes per lane; a
// fragment has 4 bytes per lane, in 8 rows. `width` columns are written, a multiple of 8.
template <int N, class Place>
__device__ __forceinline__ void write_fragment(bf16 (*rows)[N], const float (&d)[N / 2], int width,
                                               Place place)
{
    const int lane = threadIdx.x % WARP, numbers = SWIZZLE_CHUNK / (int)sizeof(bf16);
    const int chunks = N / numbers, together = WARP / chunks; // rows that are written at once
    const int mine = lane % WARP_ROWS, right = lane / WARP_ROWS, chunk = lane % chunks;
    uint32_t packed[N / WGMMA_K][4];

    pack_operand<N>(packed, d);
    __syncwarp(); // the lanes have read what was here before
#pragma unroll
    for (int n = 0; n < N / WGMMA_K; n++)
        store_matrices(shared_address(rows[mine]) +
                           ((2 * n + right) ^ mine % SWIZZLE_ROWS) * SWIZZLE_CHUNK,
                       packed[n]);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < WARP_ROWS / together; n++) {
        const int row = n * together + lane / chunks;
        bf16 *to = place(row);
        if (to && numbers * chunk < width)
            *(uint4 *)(to + numbers * chunk) =
                *(const uint4 *)(rows[row] + numbers * (chunk ^ row % SWIZZLE_ROWS));
    }
}

// ---- barriers

// One arrival per warp, after all its lanes.
__device__ __forceinline__ void warp_arrive(mbarrier *b)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(b);
}

// A position in a ring of stages, and the parity of the barriers there. A consumer starts with
// parity 0 and waits for `full`. A producer starts with parity 1 and waits for `empty`: the phase
// before the first counts as completed, so its first round does not wait.
template <int STAGES> struct pipeline_state {
    int stage;
    uint32_t parity;

    __device__ __forceinline__ void advance()
    {
        stage++;
        if (stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

enum { CONSUMER_PARITY = 0, PRODUCER_PARITY = 1 };

#endif // HAS_WGMMA
#endif
