/* emulate.h - CUDA's language in plain C++: a GPU for tests, on a CPU
 *
 * The kernels of lib/ops/cuda are compiled by a C++ compiler, with this header in front of each
 * file and with the headers of include/ in the place of NVIDIA's. The result is a libalibi_cuda.so
 * like the real one, so the tests of operations run on it as on a GPU.
 *
 * Blocks run one after another. The threads of a block are fibers (block.cpp). A fiber runs until
 * it waits for others, at a barrier or in an operation of its warp, or ends. So between two
 * barriers threads run one after another, in ascending or in descending order from block to block:
 * a kernel that lacks a barrier reads numbers that are not there yet, and its results are wrong.
 * These errors also show here as on a GPU, or more loudly:
 *
 *   - threads that wait at different barriers: the launch fails, and says so;
 *   - more dynamic shared memory than the GPU has, or than the kernel asked for: the launch fails;
 *   - a thread of a chained kernel that does not wait for the kernel before: the launch fails;
 *   - dynamic shared memory, and the first 4 MiB of every piece of device memory, start as NaN;
 *   - asynchronous copies happen when they are waited for, not before; products of wgmma and copies
 *     of TMA do that in some blocks, and in others happen at once (ops/cuda/ptx_hopper.cuh);
 *   - in some blocks one warp of each warpgroup comes to every mbarrier as late as it can: if it
 *     misses a phase, it waits for ever, and the launch fails;
 *   - under the address sanitizer, accesses outside of device or shared memory; under the undefined
 *     behaviour sanitizer, vectors that are not aligned.
 *
 * Not emulated: memory order; static shared memory does not start as NaN. The device has compute
 * capability 8.0; with ALIBI_EMULATE_HOPPER in the environment 9.0. With ALIBI_EMULATE_SMALL it has
 * as much shared memory as the GPUs of workstations. */
#ifndef EMULATE_H
#define EMULATE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <initializer_list>
#include <type_traits>

#include "cuda_runtime_api.h"

// ---- the language

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static // one block runs at a time

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;

    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
    {
    }
};

struct alignas(8) float2 {
    float x, y;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// ---- blocks and their threads (block.cpp)

namespace emulate
{

// The values that a lane gives to the others of its warp.
struct offer {
    uint32_t words[8];
};

// All lanes of `mask` that still run meet here; returns what each of them gave.
const offer *meet(unsigned mask, const offer &mine);

// Waits for all threads of the block that still run; returns how many came with `mine` true.
int meet_block(bool mine);

// Waits for `threads` threads of the block at a named barrier. Arriving only: does not wait. Those
// from OWN_BARRIERS on belong to the emulation, one for each warpgroup.
enum { OWN_BARRIERS = 16 };
void meet_at(int barrier, int threads, bool waits);

// Waits until another thread has changed it.
void wait_for_change(const unsigned *count);

// Ends the work of the thread, and of the device.
void break_device(const char *why);

unsigned lane();
char *dynamic_shared(); // its first byte
uint32_t shared_offset(const void *at);
char *shared_at(uint32_t offset, size_t bytes);

// Work that a thread starts and waits for later: commit() makes a group of what it has started
// since the last, and finish() completes all its groups except the newest `pending`.
enum queue { COPIES, PRODUCTS, STORES_READ, STORES_WRITTEN, QUEUES };
void start(enum queue queue, std::function<void()> work);
void commit(enum queue queue);
void finish(enum queue queue, int pending);

// A load that no thread waits for by itself: it happens when all threads of the block wait.
void start_load(std::function<void()> load);

// Whether products, or loads and stores, of this block are late: they happen when they are waited
// for, not when they start.
bool products_are_late();
bool copies_are_late();

// In some blocks holds back the thread, with the others of the last warp of its warpgroup, until no
// other thread of the block can continue.
void come_late();

// The most dynamic shared memory that a block may have, and permission for a kernel to have so
// much.
size_t shared_limit();
cudaError_t allow_shared(const void *kernel, size_t bytes);

// Runs call(kernel's arguments) in every thread of the grid.
cudaError_t run_grid(const void *kernel, dim3 grid, dim3 block, size_t shared, void (*call)(void *),
                     void *arguments);

const char *why_broken(); // NULL: the device works

inline uint64_t waits; // threads that have called wait_for_kernel_before()

template <class T> offer offer_of(T x)
{
    offer o = {};

    static_assert(sizeof x <= sizeof o, "an offer has room for it");
    memcpy(&o, &x, sizeof x);
    return o;
}

template <class T> T from_offer(const offer &o)
{
    T x;

    memcpy(&x, &o, sizeof x);
    return x;
}

} // namespace emulate

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    return emulate::allow_shared((const void *)kernel, (size_t)value);
}

// ---- barriers, and operations of a warp

inline void __syncthreads()
{
    emulate::meet_block(true);
}

inline int __syncthreads_count(int x)
{
    return emulate::meet_block(x != 0);
}

inline int __syncthreads_and(int x)
{
    return emulate::meet_block(x == 0) == 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulate::meet(mask, {});
}

template <class T> T __shfl_sync(unsigned mask, T x, int from)
{
    return emulate::from_offer<T>(emulate::meet(mask, emulate::offer_of(x))[from & 31]);
}

template <class T> T __shfl_xor_sync(unsigned mask, T x, int with)
{
    return emulate::from_offer<T>(
        emulate::meet(mask, emulate::offer_of(x))[emulate::lane() ^ (unsigned)with]);
}

template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by)
{
    const emulate::offer *all = emulate::meet(mask, emulate::offer_of(x));

    return emulate::lane() < by ? x : emulate::from_offer<T>(all[emulate::lane() - by]);
}

inline unsigned __ballot_sync(unsigned mask, int x)
{
    const emulate::offer *all = emulate::meet(mask, emulate::offer_of(x != 0));
    unsigned bits = 0;

    for (int i = 0; i < 32; i++)
        bits |= (mask >> i & 1) && emulate::from_offer<bool>(all[i]) ? 1u << i : 0;
    return bits;
}

inline int __any_sync(unsigned mask, int x)
{
    return __ballot_sync(mask, x) != 0;
}

// ---- atomics: threads take turns only where they wait

template <class T> T atomicAdd(T *at, std::common_type_t<T> x)
{
    T before = *at;

    *at = before + x;
    return before;
}

template <class T> T atomicAnd(T *at, std::common_type_t<T> x)
{
    T before = *at;

    *at = before & x;
    return before;
}

template <class T> T atomicOr(T *at, std::common_type_t<T> x)
{
    T before = *at;

    *at = before | x;
    return before;
}

// ---- functions

template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b)
{
    return (std::common_type_t<A, B>)a < (std::common_type_t<A, B>)b ? b : a;
}

template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b)
{
    return (std::common_type_t<A, B>)b < (std::common_type_t<A, B>)a ? b : a;
}

template <class T> T __ldg(const T *at)
{
    return *at;
}

inline float __uint_as_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

inline float2 make_float2(float x, float y)
{
    return { x, y };
}

inline float4 make_float4(float x, float y, float z, float w)
{
    return { x, y, z, w };
}

inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return { x, y, z, w };
}

inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}

inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

inline float __expf(float x)
{
    return expf(x);
}

inline float __fdividef(float a, float b)
{
    return a / b;
}

inline float __fmul_rn(float a, float b)
{
    return a * b;
}

#endif
