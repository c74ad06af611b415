// ptx.cuh - the functions of lib/ops/cuda/ptx.cuh on the emulated GPU
#ifndef PTX_CUH
#define PTX_CUH

#include "emulate.h"
#include "ops/bf16.h"

template <class... Parameters, class... Arguments>
cudaError_t start_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                         cudaStream_t, Arguments... arguments)
{
    auto call = [&] { kernel(arguments...); };

    return emulate::run_grid((const void *)kernel, grid, block, shared,
                             [](void *of) { (*(decltype(call) *)of)(); }, &call);
}

// Kernels never overlap here, but a kernel that does not wait is still wrong.
template <class... Parameters, class... Arguments>
cudaError_t start_in_chain(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                           cudaStream_t stream, bool, Arguments... arguments)
{
    emulate::waits = 0;
    const cudaError_t error = start_kernel(kernel, grid, block, shared, stream, arguments...);

    if (error == cudaSuccess &&
        emulate::waits != (uint64_t)grid.x * grid.y * grid.z * block.x * block.y * block.z)
        return cudaErrorLaunchFailure;
    return error;
}

inline void wait_for_kernel_before()
{
    emulate::waits++;
}

inline void let_next_kernel_start()
{
}

inline uint4 load_once(const void *from)
{
    return *(const uint4 *)from;
}

template <class T> T *dynamic_shared()
{
    return reinterpret_cast<T *>(emulate::dynamic_shared());
}

inline float exp2_approx(float x)
{
    const float y = exp2f(x);

    return y < 0x1p-126f ? 0.0f : y;
}

inline float fast_reciprocal(float x)
{
    return 1.0f / x;
}

// Element `i` of a pair in a register.
inline float half_of(uint32_t pair, int i)
{
    return bf16_to_float((uint16_t)(pair >> 16 * i));
}

// Lane 4 g + t computes rows g and g + 8, columns 2 t and 2 t + 1. For row r, a[2 (k / 8) + r / 8]
// of lane 4 (r % 8) + k / 2 % 4 has column k of A; for column c, b[k / 8] of lane 4 c + k / 2 % 4
// has row k of B.
inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const emulate::offer *all = emulate::meet(~0u, { { a[0], a[1], a[2], a[3], b0, b1 } });
    const int g = (int)emulate::lane() / 4, t = (int)emulate::lane() % 4;

    for (int i = 0; i < 4; i++) {
        const int c = 2 * t + i % 2;
        for (int k = 0; k < 16; k++)
            d[i] += half_of(all[4 * g + k / 2 % 4].words[2 * (k / 8) + i / 2], k % 2) *
                    half_of(all[4 * c + k / 2 % 4].words[4 + k / 8], k % 2);
    }
}

inline uint32_t shared_address(const void *p)
{
    return emulate::shared_offset(p);
}

template <bool TRANSPOSED> void load_matrices(uint32_t (&m)[4], uint32_t place)
{
    const emulate::offer *all = emulate::meet(~0u, { { place } });
    const int g = (int)emulate::lane() / 4, t = (int)emulate::lane() % 4;

    for (int i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (int n = 0; n < 2; n++) {
            const int row = TRANSPOSED ? 2 * t + n : g, column = TRANSPOSED ? g : 2 * t + n;
            const uint32_t first = all[8 * i + row].words[0];
            pair[n] = ((const uint16_t *)emulate::shared_at(first, 16))[column];
        }
        m[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

inline uint32_t pack_bf16x2(float low, float high)
{
    return bf16_from_float(low) | (uint32_t)bf16_from_float(high) << 16;
}

inline void copy_async(uint32_t place, const void *from, bool there)
{
    char *to = emulate::shared_at(place, 16);

    emulate::start(emulate::COPIES, [=] {
        if (there)
            memcpy(to, from, 16);
        else
            memset(to, 0, 16);
    });
}

inline void copy_async_commit()
{
    emulate::commit(emulate::COPIES);
}

inline void copy_async_wait()
{
    emulate::finish(emulate::COPIES, 0);
}

inline int semaphore_peek(const int *semaphore)
{
    return *semaphore;
}

// Blocks run one after another: a semaphore that is not there yet never will be.
inline void semaphore_wait(const int *semaphore, int, int order)
{
    if (*semaphore != order)
        emulate::break_device("a semaphore that is never released, or was released too often");
}

inline void semaphore_release(int *semaphore)
{
    ++*semaphore;
}

inline int counter_arrive(int *counter, int all)
{
    const int before = *counter;

    *counter = before + 1 < all ? before + 1 : 0;
    return before;
}

template <int STEP, int N> void red_add_ordered(float4 *at, const float (&x)[N][4])
{
    for (int n = 0; n < N; n++)
        at[n * STEP] = make_float4(at[n * STEP].x + x[n][0], at[n * STEP].y + x[n][1],
                                   at[n * STEP].z + x[n][2], at[n * STEP].w + x[n][3]);
}

inline void hide(int &)
{
}

#endif
