// ptx.cuh - PTX, launches and dynamic shared memory as functions: what a C++ compiler cannot
// compile
//
// Instructions that every GPU from sm_80 on has; ptx_hopper.cuh has those of sm_90a. tests/emulate
// has files of the same names and contracts, by which the kernels run on a CPU.
#ifndef PTX_CUH
#define PTX_CUH

#include <cuda_runtime_api.h>
#include <stdint.h>

template <class... Parameters, class... Arguments>
cudaError_t start_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                         cudaStream_t stream, Arguments... arguments)
{
    kernel<<<grid, block, shared, stream>>>(arguments...);
    return cudaGetLastError();
}

// A kernel that may start while the one before it in the stream still runs, if `early`; see chain()
// in launch.cuh.
template <class... Parameters, class... Arguments>
cudaError_t start_in_chain(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                           cudaStream_t stream, bool early, Arguments... arguments)
{
    cudaLaunchAttribute serialization = {};
    cudaLaunchConfig_t config = {};

    serialization.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    serialization.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &serialization;
    config.numAttrs = early ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Waits until the previous kernel has ended and its writes are visible (griddepcontrol.wait, the
// runtime's cudaGridDependencySynchronize).
__device__ __forceinline__ void wait_for_kernel_before()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start when all blocks of this one have come here, or have ended
// (griddepcontrol.launch_dependents, the runtime's cudaTriggerProgrammaticLaunchCompletion).
__device__ __forceinline__ void let_next_kernel_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// 16 bytes that no kernel of this launch writes, and that this block reads once.
__device__ __forceinline__ uint4 load_once(const void *from)
{
    uint4 x;

    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from));
    return x;
}

// The block's dynamic shared memory, as much as launch() was asked for, aligned to 256 bytes.
template <class T> __device__ __forceinline__ T *dynamic_shared()
{
    extern __shared__ __align__(256) unsigned char dynamic_shared_memory[];

    return reinterpret_cast<T *>(dynamic_shared_memory);
}

// 2^x with a relative error of about 2^-22; subnormal results become 0. For results in bf16.
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x with an error of about one unit in the last place; subnormal numbers count as 0.
__device__ __forceinline__ float fast_reciprocal(float x)
{
    float y;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---- tensor cores: products of matrices in the registers of a warp
//
// The element of row r and column c of a 16 x 8 accumulator d is with lane 4 (r % 8) + c / 2 % 4,
// in d[2 (r / 8) + c % 2]. Operands a (16 x 16) and b (16 x 8) have two bf16 in a register: a[0] as
// d[0] and d[1] of the left half, a[1] as d[2] and d[3] of it, a[2] and a[3] the same of the right
// half; b[0] and b[1] are the upper and the lower half, transposed.

// d += a b.
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// An address in shared memory as instructions take it.
__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// Four matrices of 8 x 8 bf16 from shared memory. Lane l has the place of row l % 8 of matrix l /
// 8. It receives the numbers of row l / 4 and columns 2 (l % 4) and the next of each; TRANSPOSED:
// of column l / 4 and rows 2 (l % 4) and the next.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t place)
{
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(place)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(place)
                     : "memory");
}

// Two numbers as bf16 in one register, `low` in the lower half.
__device__ __forceinline__ uint32_t pack_bf16x2(float low, float high)
{
    uint32_t bits;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// ---- asynchronous copies: 16 bytes to shared memory, or zeros if not `there`

__device__ __forceinline__ void copy_async(uint32_t place, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for this thread's copies. Other threads see them after a barrier.
__device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// ---- semaphores: thread blocks that add to the same numbers in global memory in a fixed order
//
// A block adds when `order` others have released the semaphore. A thread peeks at the count, waits
// for it, and meets the others at a barrier; then they add. After another barrier a thread releases
// the semaphore: barriers and fences together order what all threads did.

// Does not wait for the answer, which may be old when it comes.
__device__ __forceinline__ int semaphore_peek(const int *semaphore)
{
    int now;

    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(semaphore) : "memory");
    return now;
}

__device__ __forceinline__ void semaphore_wait(const int *semaphore, int now, int order)
{
    while (now < order)
        now = semaphore_peek(semaphore);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

__device__ __forceinline__ void semaphore_release(int *semaphore)
{
    asm volatile("fence.acq_rel.gpu;\n\tred.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(semaphore)
                 : "memory");
}

// How many of `all` blocks have arrived at the counter before this one; the last one leaves it at
// 0. A thread calls it after a barrier of its block: barriers and fences together make what all
// threads of the others wrote before visible to the last one's, after another barrier.
__device__ __forceinline__ int counter_arrive(int *counter, int all)
{
    int before;

    asm volatile("fence.acq_rel.gpu;\n\tatom.relaxed.gpu.global.inc.u32 %0, [%1], %2;\n\t"
                 "fence.acq_rel.gpu;"
                 : "=r"(before)
                 : "l"(counter), "r"(all - 1)
                 : "memory");
    return before;
}

// at[n * STEP] += x[n], between semaphore_wait() and semaphore_release().
template <int STEP, int N>
__device__ __forceinline__ void red_add_ordered(float4 *at, const float (&x)[N][4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile(
            "red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at + n * STEP),
            "f"(x[n][0]), "f"(x[n][1]), "f"(x[n][2]), "f"(x[n][3])
            : "memory");
#else // one number per instruction there: 16 bytes at a time are faster, and nobody else adds
    float4 sum[N];

#pragma unroll
    for (int n = 0; n < N; n++)
        sum[n] = __ldcg(at + n * STEP);
#pragma unroll
    for (int n = 0; n < N; n++)
        at[n * STEP] = make_float4(sum[n].x + x[n][0], sum[n].y + x[n][1], sum[n].z + x[n][2],
                                   sum[n].w + x[n][3]);
#endif
}

// Hides the value of x from the optimiser.
__device__ __forceinline__ void hide(int &x)
{
    asm volatile("" : "+r"(x));
}

#endif
