// ptx.cuh - what no C++ compiler understands, as functions: PTX, launches, dynamic shared memory
//
// Instructions that every GPU from sm_80 on has; hopper.cuh has those of sm_90a. tests/emulate has
// a file of the same name and contract, by which the kernels run on a CPU.
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

// The block's dynamic shared memory, as much as launch() was asked for.
template <class T> __device__ __forceinline__ T *dynamic_shared()
{
    extern __shared__ __align__(16) unsigned char dynamic_shared_memory[];

    return reinterpret_cast<T *>(dynamic_shared_memory);
}

// 2^x with a relative error of about 2^-22; subnormal results become 0. For results in bf16.
__device__ __forceinline__ float power_of_two(float x)
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

#endif
