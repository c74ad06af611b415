// fingerprint.cu - whether two results have the same bits, without keeping both
//
//   fingerprint = sum over words w_i of mix(w_i, i)   modulo 2^64
//
// Integer sums have no order, so it is the same however the threads take turns.
#include "ops/cuda/launch.cuh"

enum { THREADS = 256, BLOCKS = 1024 };

static __device__ __forceinline__ uint64_t mix(uint64_t word, uint64_t place)
{
    uint64_t x = word ^ (place * 0x9e3779b97f4a7c15u);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static __global__ void __launch_bounds__(THREADS)
    fingerprint_kernel(unsigned long long *sum, const uint16_t *words, int64_t count)
{
    uint64_t mine = 0;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS)
        mine += mix(words[i], (uint64_t)i);
    for (int step = 16; step > 0; step /= 2)
        mine += __shfl_xor_sync(0xffffffffu, mine, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, (unsigned long long)mine);
}

extern "C" alibi_status cuda_fingerprint(struct cuda *c, uint64_t *out, const void *data,
                                         size_t bytes)
{
    unsigned long long *sum;

    TRY_RETURN(cuda_scratch(c, SCRATCH_SUMS, sizeof *sum, (void **)&sum));
    TRY_RETURN(cuda_check(cudaMemsetAsync(sum, 0, sizeof *sum, c->stream), "fingerprint"));
    TRY_RETURN(launch(c, "fingerprint", fingerprint_kernel, BLOCKS, THREADS, 0, sum,
                      (const uint16_t *)data, (int64_t)(bytes / 2)));
    TRY_RETURN(cuda_check(cudaMemcpyAsync(out, sum, sizeof *out, cudaMemcpyDeviceToHost, c->stream),
                          "fingerprint"));
    return cuda_check(cudaStreamSynchronize(c->stream), "fingerprint");
}
