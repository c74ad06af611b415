// launch.cuh - launching kernels, and loading and storing numbers in them
//
// Kernels access memory 16 bytes at a time where addresses allow it (pack, chunk, bits), and sum in
// fp32. In the order of this file: launch(), types, vectors in registers, reductions, each().
#ifndef LAUNCH_CUH
#define LAUNCH_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#include "ops/cuda/cuda.h"
#include "ops/cuda/ptx.cuh"

typedef __nv_bfloat16 bf16;

static const float log2_e = 1.4426950408889634f;

template <class Kernel> alibi_status allow_shared(const char *what, Kernel kernel, size_t shared)
{
    if (shared <= 32 << 10) // together with static shared memory it may exceed the default, 48 KiB
        return ALIBI_OK;
    return cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
        what);
}

// Launches a kernel in the device's stream with `shared` bytes of dynamic shared memory.
template <class... Parameters, class... Arguments>
alibi_status launch(struct context *c, const char *what, void (*kernel)(Parameters...), dim3 grid,
                    dim3 block, size_t shared, Arguments... arguments)
{
    c->chained = false;
    TRY_RETURN(allow_shared(what, kernel, shared));
    return cuda_check(start_kernel(kernel, grid, block, shared, c->stream, arguments...), what);
}

// launch() for kernels of a decoding step, which run for less time than a launch takes. In a
// recorded step such a kernel starts while the one before it runs, and waits inside (programmatic
// dependent launch). It must, in every thread,
//
//   - call wait_for_kernel_before() before it reads what another kernel of the step may have
//     written, and before it writes anything. What the step began with may be read earlier:
//     parameters of the model, slots and lengths;
//   - call let_next_kernel_start(), the earlier the better.
//
// A kernel has ended when the next one has waited, and so have all kernels before it.
template <class... Parameters, class... Arguments>
alibi_status chain(struct context *c, const char *what, void (*kernel)(Parameters...), dim3 grid,
                   dim3 block, size_t shared, Arguments... arguments)
{
    const bool early = c->chained && c->replay.recording && c->chains;

    c->chained = true;
    TRY_RETURN(allow_shared(what, kernel, shared));
    return cuda_check(start_in_chain(kernel, grid, block, shared, c->stream, early, arguments...),
                      what);
}

__host__ __device__ inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// Runs the statement with T as the C++ type of `dtype`: DISPATCH(y.type, T, return run<T>(...)).
#define DISPATCH(dtype, T, ...)                                                                    \
    do {                                                                                           \
        if ((dtype) == DTYPE_BF16) {                                                               \
            typedef bf16 T;                                                                        \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

__device__ __forceinline__ float to_float(float x)
{
    return x;
}

__device__ __forceinline__ float to_float(bf16 x)
{
    return __bfloat162float(x);
}

template <class T> __device__ __forceinline__ T from_float(float x);

template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ bf16 from_float<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}

// struct ragged on the GPU; length NULL: not ragged.
struct ragged_rows {
    const int32_t *slot, *length;

    __device__ __forceinline__ int slot_of(int b) const
    {
        return slot ? slot[b] : b;
    }
};

inline struct ragged_rows ragged_rows_of(struct ragged r)
{
    return { (const int32_t *)r.slot.data, (const int32_t *)r.length.data };
}

// 16 bytes of numbers as floats: 4 of fp32, 8 of bf16.
template <class T> struct pack {
    static const int N = 16 / sizeof(T);
    float at[N];
};

template <class T> __device__ __forceinline__ pack<T> load_pack(const T *from)
{
    union {
        uint4 bits;
        T at[pack<T>::N];
    } u;
    pack<T> p;

    u.bits = *reinterpret_cast<const uint4 *>(from);
#pragma unroll
    for (int i = 0; i < pack<T>::N; i++)
        p.at[i] = to_float(u.at[i]);
    return p;
}

// Sums and maxima over a warp, and over a block of up to 1024 threads. Every thread gets the
// result. The order of sums is fixed.
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

__device__ __forceinline__ double warp_sum(double x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// For one-dimensional blocks of whole warps. All threads must call it.
template <class S> __device__ __forceinline__ S block_sum(S x)
{
    __shared__ S of_warp[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    x = warp_sum(x);
    if (lane == 0)
        of_warp[warp] = x;
    __syncthreads();
    x = warp_sum(lane < blockDim.x / 32 ? of_warp[lane] : S(0));
    __syncthreads(); // the next call may overwrite of_warp
    return x;
}

__device__ __forceinline__ float block_max(float x)
{
    __shared__ float of_warp[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    x = warp_max(x);
    if (lane == 0)
        of_warp[warp] = x;
    __syncthreads();
    x = warp_max(lane < blockDim.x / 32 ? of_warp[lane] : of_warp[0]);
    __syncthreads();
    return x;
}

// N numbers as in memory, moved by one instruction: up to 16 bytes, aligned to their size.
template <class T, int N> struct alignas(sizeof(T) * N) chunk {
    T at[N];
};

template <int N, class T> __device__ __forceinline__ chunk<T, N> load_chunk(const T *from)
{
    return *reinterpret_cast<const chunk<T, N> *>(from);
}

// N numbers as floats, in steps of up to 16 bytes; N = 1 needs no alignment.
template <int N, class T> __device__ __forceinline__ void load(float (&to)[N], const T *from)
{
    constexpr int STEP = N < pack<T>::N ? N : pack<T>::N;

#pragma unroll
    for (int first = 0; first < N; first += STEP) {
        const chunk<T, STEP> part = load_chunk<STEP>(from + first);
#pragma unroll
        for (int i = 0; i < STEP; i++)
            to[first + i] = to_float(part.at[i]);
    }
}

template <int N, class T> __device__ __forceinline__ void store(T *to, const float (&from)[N])
{
    constexpr int STEP = N < pack<T>::N ? N : pack<T>::N;

#pragma unroll
    for (int first = 0; first < N; first += STEP) {
        chunk<T, STEP> part;
#pragma unroll
        for (int i = 0; i < STEP; i++)
            part.at[i] = from_float<T>(from[first + i]);
        *reinterpret_cast<chunk<T, STEP> *>(to + first) = part;
    }
}

// N numbers in registers, packed as in memory: 16 bytes, or one number. The compiler gives each
// number of a chunk a register of its own; prefetched numbers should not take that many.
template <class T, int N> struct bits {
    static_assert(N == pack<T>::N, "16 bytes");
    uint4 words;

    __device__ __forceinline__ float at(int i) const
    {
        const int place = i * (int)sizeof(T) / 4;
        const uint32_t word = place == 0   ? words.x
                              : place == 1 ? words.y
                              : place == 2 ? words.z
                                           : words.w;

        if (sizeof(T) == 4)
            return __uint_as_float(word);
        return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    }
};

template <class T> struct bits<T, 1> {
    T number;

    __device__ __forceinline__ float at(int) const
    {
        return to_float(number);
    }
};

template <int N, class T> __device__ __forceinline__ bits<T, N> load_bits(const T *from)
{
    return *reinterpret_cast<const bits<T, N> *>(from);
}

template <int N, class T> __device__ __forceinline__ void store_bits(T *to, bits<T, N> x)
{
    *reinterpret_cast<bits<T, N> *>(to) = x;
}

// Rounds to T.
template <class T, int N> __device__ __forceinline__ bits<T, N> round_to_bits(const float (&x)[N])
{
    union {
        chunk<T, N> numbers;
        bits<T, N> all;
    } u;

#pragma unroll
    for (int i = 0; i < N; i++)
        u.numbers.at[i] = from_float<T>(x[i]);
    return u.all;
}

// Whether all of these can be accessed 16 bytes at a time; absent ones count as aligned.
template <class... Pointers> bool aligned(Pointers... pointers)
{
    return (((uintptr_t)pointers % 16 == 0) && ...);
}

// op.run<N>(i) for elements i..i+N-1, and op.run<1> for the rest after the last N.
template <int N, class Op> __global__ void __launch_bounds__(256) each_kernel(Op op, int64_t count)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;

    if (i + N <= count)
        op.template run<N>(i);
    else
        for (; i < count; i++)
            op.template run<1>(i);
}

// One thread per N elements. Enough threads are resident for their loads to saturate memory.
template <int N, class Op>
alibi_status each(struct context *c, const char *what, Op op, int64_t count, bool vector)
{
    const int threads = 256;
    const int64_t blocks = ceil_div(count, vector ? threads * N : threads);

    if (count == 0)
        return ALIBI_OK;
    if (vector)
        return launch(c, what, each_kernel<N, Op>, dim3((unsigned)blocks), dim3(threads), 0, op,
                      count);
    return launch(c, what, each_kernel<1, Op>, dim3((unsigned)blocks), dim3(threads), 0, op, count);
}

#endif
