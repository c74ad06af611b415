// cache_append.cu - a token of each of several sequences joins their KV cache
//
// A warp per row of the batch, head of keys and place in the cache: it copies the head of the key
// and of the value, and the norm of the tile becomes the larger of what it was and the new key's. A
// tile's first key starts it.
#include "ops/cuda/attention.cuh"

namespace
{

enum { THREADS = 32 };

template <class T> struct appended {
    heads<T> k, v;
    heads<const T> new_k, new_v;
    float *norms;
    int64_t norms_b, norms_h;
    struct ragged_rows ragged;
    const int32_t *other; // lengths of the other places, or NULL
    int D;
};

template <class T, int N> __device__ __forceinline__ void copy_head(T *to, const T *from, int D)
{
    for (int d = (int)threadIdx.x * N; d < D; d += THREADS * N) {
        float x[N];
        load<N>(x, from + d);
        store<N>(to + d, x);
    }
}

// PACKS: 16 bytes at a time.
template <class T, bool PACKS>
__global__ void __launch_bounds__(THREADS) append_kernel(const __grid_constant__ appended<T> p)
{
    constexpr int N = PACKS ? pack<T>::N : 1;
    const int b = (int)blockIdx.x, h = (int)blockIdx.y, slot = p.ragged.slot[b],
              position = (blockIdx.z == 0 ? p.ragged.length : p.other)[b] - 1;
    const T *key = p.new_k.row(b, 0, h);

    let_next_kernel_start();
    wait_for_kernel_before();
    copy_head<T, N>(p.k.row(slot, position, h), key, p.D);
    copy_head<T, N>(p.v.row(slot, position, h), p.new_v.row(b, 0, h), p.D);
    const float norm = norm_margin(p.D) * sqrtf(lanes_dot<PACKS>(key, key, p.D));
    if (threadIdx.x == 0) {
        float *of_tile = p.norms + slot * p.norms_b + h * p.norms_h + position / ATTENTION_TILE;
        *of_tile = position % ATTENTION_TILE == 0 ? norm : larger(norm, *of_tile);
    }
}

template <class T> alibi_status append(struct context *c, const struct cache_append_args *a)
{
    const struct appended<T> p = {
        .k = heads_of<T>(a->k), .v = heads_of<T>(a->v), .new_k = heads_of<const T>(a->new_k),
        .new_v = heads_of<const T>(a->new_v), .norms = (float *)a->norms.data,
        .norms_b = a->norms.stride[0], .norms_h = a->norms.stride[1],
        .ragged = ragged_rows_of(a->ragged), .other = (const int32_t *)a->other.data,
        .D = (int)a->k.shape[3]
    };
    const bool packs = rows_are_aligned(a->k) && rows_are_aligned(a->v) &&
                       rows_are_aligned(a->new_k) && rows_are_aligned(a->new_v);

    return chain(c, "cache append", packs ? append_kernel<T, true> : append_kernel<T, false>,
                 dim3((unsigned)a->new_k.shape[0], (unsigned)a->new_k.shape[2], p.other ? 2 : 1),
                 THREADS, 0, p);
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
