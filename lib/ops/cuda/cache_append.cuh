// cache_append.cuh - one head of a token that joins a KV cache
//
// A warp copies the head of the key and of the value, and the norm of the tile becomes the larger
// of what it was and the new key's. A tile's first key starts it.
#ifndef CACHE_APPEND_CUH
#define CACHE_APPEND_CUH

#include "ops/cuda/attention.cuh"

template <class T> struct appended {
    heads<T> k, v;
    heads<const T> new_k, new_v;
    float *norms;
    int64_t norms_b, norms_h;
    struct ragged_rows ragged;
    const int32_t *other; // lengths of the other places, or NULL
    int D;

    __device__ __forceinline__ const int32_t *length(int place) const // of two
    {
        return place == 0 ? ragged.length : other;
    }

    __device__ __forceinline__ float *norm(int slot, int h, int position) const
    {
        return norms + slot * norms_b + h * norms_h + position / ATTENTION_TILE;
    }
};

template <class T> appended<T> appended_of(const struct cache_append_args *a)
{
    return { .k = heads_of<T>(a->k),
             .v = heads_of<T>(a->v),
             .new_k = heads_of<const T>(a->new_k),
             .new_v = heads_of<const T>(a->new_v),
             .norms = (float *)a->norms.data,
             .norms_b = a->norms.stride[0],
             .norms_h = a->norms.stride[1],
             .ragged = ragged_rows_of(a->ragged),
             .other = (const int32_t *)a->other.data,
             .D = (int)a->k.shape[3] };
}

// Whether heads can be accessed 16 bytes at a time.
inline bool appends_packs(const struct cache_append_args *a)
{
    return rows_are_aligned(a->k) && rows_are_aligned(a->v) && rows_are_aligned(a->new_k) &&
           rows_are_aligned(a->new_v);
}

template <class T, int N> __device__ __forceinline__ void copy_head(T *to, const T *from, int D)
{
    for (int d = (int)threadIdx.x % 32 * N; d < D; d += 32 * N) {
        float x[N];
        load<N>(x, from + d);
        store<N>(to + d, x);
    }
}

// The norm of a tile to which a key of this norm is added at `position`.
__device__ __forceinline__ float grown_norm(const float *of_tile, int position, float norm)
{
    return position % ATTENTION_TILE == 0 ? norm : larger(norm, *of_tile);
}

// By a whole warp.
template <class T, bool PACKS>
__device__ __forceinline__ void append_head(const appended<T> &p, int b, int h, int slot,
                                            int position)
{
    constexpr int N = PACKS ? pack<T>::N : 1;
    const T *key = p.new_k.row(b, 0, h);
    float *of_tile = p.norm(slot, h, position);

    copy_head<T, N>(p.k.row(slot, position, h), key, p.D);
    copy_head<T, N>(p.v.row(slot, position, h), p.new_v.row(b, 0, h), p.D);
    const float norm = norm_margin(p.D) * sqrtf(lanes_dot<PACKS>(key, key, p.D));
    if (threadIdx.x % 32 == 0)
        *of_tile = grown_norm(of_tile, position, norm);
}

#endif
