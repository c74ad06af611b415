// hopper.cuh - Hopper's wgmma, mbarrier, TMA and setmaxnreg as functions
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
// than 64 columns is several panels, one after another.
#ifndef HOPPER_CUH
#define HOPPER_CUH

#include <cuda.h>

#include "ops/cuda/launch.cuh"

// wgmma and setmaxnreg exist in code for sm_90a only. In other code the kernels that use them are
// empty, and the host never launches them (attention.cu).
#if defined __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

enum {
    WARPGROUP = 128,                          // threads
    WGMMA_M = 64,                             // rows of A and of the accumulator
    WGMMA_K = 16,                             // numbers summed by one instruction
    PANEL = 64,                               // numbers in a row of a panel
    PANEL_ROW = PANEL * (int)sizeof(bf16),    // bytes: the width of the swizzle
    K_STEP = WGMMA_K * (int)sizeof(bf16),     // bytes from one K step to the next along a row
    K_STEPS_PER_PANEL = PANEL / WGMMA_K,      //
    SWIZZLE_CHUNK = 16,                       // bytes that the swizzle moves as one
    SWIZZLE_ROWS = PANEL_ROW / SWIZZLE_CHUNK, // rows until the pattern repeats
    SWIZZLE_ATOM = PANEL_ROW * SWIZZLE_ROWS,  // bytes
};

typedef uint64_t mbarrier;

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
                    "attention: the driver refused a tensor map of %lld x %lld x %lld x %lld",
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

// ---- wgmma: shared-memory descriptors

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

// ---- wgmma: products

// Orders register writes before the wgmma that reads them. Begins every batch of wgmma.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the newest PENDING groups are in flight.
template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int COUNT> __device__ __forceinline__ void clear_fragment(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        d[i] = 0.0f;
}

// Between a wait and the first use of an accumulator: the compiler must not move the use up.
template <int COUNT> __device__ __forceinline__ void fence_fragment(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

// The same for an A operand in registers: the compiler must not reuse them before this point.
template <int COUNT> __device__ __forceinline__ void fence_fragment(uint32_t (&a)[COUNT][4])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            asm volatile("" : "+r"(a[i][j])::"memory");
}

// The accumulator in the assembly below: its registers as text, and as operands.
#define ACC_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ACC_TEXT_32                                                                                \
    ACC_TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ACC_TEXT_64                                                                                \
    ACC_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "    \
                "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
                "%63"
#define ACC_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC_16(d, i) ACC_4(d, i), ACC_4(d, i + 4), ACC_4(d, i + 8), ACC_4(d, i + 12)
#define ACC_32(d, i) ACC_16(d, i), ACC_16(d, i + 16)
#define ACC_64(d, i) ACC_32(d, i), ACC_32(d, i + 32)

// d = A B, or d + A B if `accumulate`. A and B in shared memory; TA, TB: 1 for MN-major operands.
template <int N, int TA, int TB>
__device__ __forceinline__ void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)
{
    static_assert(N == 32 || N == 64 || N == 128, "the sizes that attention uses");
    if constexpr (N == 32)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %18, 0; "
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" ACC_TEXT_16
                     "}, %16, %17, p, 1, 1, %19, %20;}"
                     : ACC_16(d, 0)
                     : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB));
    else if constexpr (N == 64)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; "
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" ACC_TEXT_32
                     "}, %32, %33, p, 1, 1, %35, %36;}"
                     : ACC_32(d, 0)
                     : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB));
    else
        asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; "
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" ACC_TEXT_64
                     "}, %64, %65, p, 1, 1, %67, %68;}"
                     : ACC_64(d, 0)
                     : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB));
}

// The same with A (64 x 16) in registers: rows as in the accumulator; columns 2 (l % 4) and the
// next in a[0], a[1], and those 8 further right in a[2], a[3].
template <int N, int TB>
__device__ __forceinline__ void wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                         int accumulate)
{
    static_assert(N == 64 || N == 128, "the sizes that attention uses");
    if constexpr (N == 64)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; "
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" ACC_TEXT_32
                     "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}"
                     : ACC_32(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),
                       "n"(TB));
    else
        asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; "
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" ACC_TEXT_64
                     "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}"
                     : ACC_64(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),
                       "n"(TB));
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

// Makes ordinary stores to shared memory visible to wgmma and TMA (the async proxy).
__device__ __forceinline__ void fence_async_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Moves registers from the producer warpgroup to the consumers: producers keep REGISTERS per
// thread, consumers grow to REGISTERS.
template <int REGISTERS> __device__ __forceinline__ void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> __device__ __forceinline__ void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// ---- barriers

// Named barriers, ids 1..15, among THREADS threads of whole warps. sync waits for all, arrive does
// not wait.
template <int THREADS> __device__ __forceinline__ void named_barrier_sync(int id)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

template <int THREADS> __device__ __forceinline__ void named_barrier_arrive(int id)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

// The same as sync; whether all threads say so.
template <int THREADS> __device__ __forceinline__ bool named_barrier_all(int id, bool mine)
{
    int all;

    asm volatile("{\n"
                 ".reg .pred mine, all;\n"
                 "setp.ne.s32 mine, %1, 0;\n"
                 "bar.red.and.pred all, %2, %3, mine;\n"
                 "selp.s32 %0, 1, 0, all;\n"
                 "}\n"
                 : "=r"(all)
                 : "r"((int)mine), "r"(id), "n"(THREADS)
                 : "memory");
    return all != 0;
}

// Four matrices of 8 x 8 numbers of 16 bits, in the fragment layout, to shared memory. Lane l gives
// the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t row, const uint32_t (&m)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

__device__ __forceinline__ void mbarrier_init(mbarrier *b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}

__device__ __forceinline__ void mbarrier_arrive(mbarrier *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

// Once for a warp, after all of its lanes.
__device__ __forceinline__ void warp_arrive(mbarrier *b)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(b);
}

// Arrives. The phase then also waits for that many bytes of TMA.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(mbarrier *b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}

// Waits until the phase with that parity has completed.
__device__ __forceinline__ void mbarrier_wait(mbarrier *b, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(shared_address(b)),
                 "r"(parity)
                 : "memory");
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

// ---- TMA

// Loads a box of the view at (d, h, l, batch) into a panel, and counts its bytes on the mbarrier.
__device__ __forceinline__ void tma_load(void *panel, const CUtensorMap *map, mbarrier *full, int d,
                                         int h, int l, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(panel)),
                 "l"(map), "r"(shared_address(full)), "r"(d), "r"(h), "r"(l), "r"(batch)
                 : "memory");
}

// Stores a contiguous run of fp32 to global memory, or adds it there. `bytes` is a multiple of 16.
__device__ __forceinline__ void tma_store(float *to, const float *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void tma_reduce_add(float *to, const float *from, uint32_t bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(shared_address(from)), "r"(bytes)
        : "memory");
}

__device__ __forceinline__ void tma_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until shared memory has been read and may be reused.
__device__ __forceinline__ void tma_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Waits until the stores have reached global memory.
__device__ __forceinline__ void tma_store_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif // HAS_WGMMA
#endif
