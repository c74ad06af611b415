// ptx_hopper.cuh - instructions of sm_90a as functions: wgmma, mbarrier, TMA, setmaxnreg
//
// hopper.cuh says how operands and fragments are laid out. tests/emulate has a file of the same
// name and contract, by which the kernels run on a CPU.
#ifndef PTX_HOPPER_CUH
#define PTX_HOPPER_CUH

#include <cuda.h>

#include "ops/cuda/ptx.cuh"

// wgmma and setmaxnreg exist in code for sm_90a only. In other code the kernels that use them are
// empty, and the host never launches them (attention.cu).
#if defined __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

typedef uint64_t mbarrier;

#if HAS_WGMMA

// ---- wgmma

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

// named_barrier_sync() that also returns the AND of `mine`.
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

// ---- semaphores: thread blocks that add to the same place in global memory in a fixed order

// As those of ptx.cuh, for TMA stores: acquire and release order ordinary accesses, and
// fence.proxy.async extends that order to TMA.
__device__ __forceinline__ void semaphore_wait_tma(const int *semaphore, int order)
{
    int now;

    do
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(semaphore) : "memory");
    while (now < order); // equal, unless wrong starts gave packed sequences the same tiles
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void semaphore_release_tma(int *semaphore)
{
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(semaphore) : "memory");
}

// ---- numbers

// NaN if one of them is.
__device__ __forceinline__ float max_or_nan(float a, float b)
{
    float most;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
}

#endif // HAS_WGMMA
#endif
