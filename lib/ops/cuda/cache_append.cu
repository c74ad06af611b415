// cache_append.cu - a token of each of several sequences joins their KV cache
//
// A warp per row of the batch, head of keys and place in the cache. In a step of decoding the
// kernel of attention does this itself (attention_decode.cu).
#include "ops/cuda/cache_append.cuh"

namespace
{

template <class T, bool PACKS>
__global__ void __launch_bounds__(32) append_kernel(const __grid_constant__ appended<T> p)
{
    const int b = (int)blockIdx.x, other = (int)blockIdx.z, slot = p.ragged.slot[b],
              position = p.length(other)[b] - 1;

    let_next_kernel_start();
    wait_for_kernel_before();
    append_head<T, PACKS>(p, b, (int)blockIdx.y, slot, position);
}

template <class T> alibi_status append(struct context *c, const struct cache_append_args *a)
{
    const struct appended<T> p = appended_of<T>(a);

    return chain(
        c, "cache append", appends_packs(a) ? append_kernel<T, true> : append_kernel<T, false>,
        dim3((unsigned)a->new_k.shape[0], (unsigned)a->new_k.shape[2], p.other ? 2 : 1), 32, 0, p);
}

} // namespace

extern "C" alibi_status cuda_cache_append(struct device *dev, const struct cache_append_args *a)
{
    struct context *c = cuda_of(dev);

    if (tensor_count(a->new_k) == 0)
        return ALIBI_OK;
    cuda_part(c, "cache append");
    DISPATCH(a->k.type, T, return append<T>(c, a));
}
