// ptx.cuh - the functions of lib/ops/cuda/ptx.cuh on the emulated GPU
#ifndef PTX_CUH
#define PTX_CUH

#include "emulate.h"

template <class... Parameters, class... Arguments>
cudaError_t start_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                         cudaStream_t, Arguments... arguments)
{
    auto call = [&] { kernel(arguments...); };

    return emulate::run_grid(
        grid, block, shared, [](void *of) { (*(decltype(call) *)of)(); }, &call);
}

template <class T> T *dynamic_shared()
{
    return reinterpret_cast<T *>(emulate::dynamic_shared());
}

inline float power_of_two(float x)
{
    const float y = exp2f(x);

    return y < 0x1p-126f ? 0.0f : y;
}

inline float fast_reciprocal(float x)
{
    return 1.0f / x;
}

#endif
