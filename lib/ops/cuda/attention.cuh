// attention.cuh - what the kernels of attention share
//
// Three ways, chosen by attention.cu: Hopper's matrix unit (attention_forward.cu,
// attention_backward.cu; bf16, D a multiple of 8 up to 128), few queries behind many keys
// (attention_decode.cu), and everything else (attention_plain.cu). Which key tiles are left out is
// decided before, by attention_bounds.cu, in the bits of struct skipping.kept.
#ifndef ATTENTION_CUH
#define ATTENTION_CUH

#include "ops/cuda/launch.cuh"

// A view [B, L, H, D] whose D numbers are side by side; strides in elements.
template <class T> struct heads {
    T *at;
    int64_t b, l, h;

    __device__ __forceinline__ T *row(int64_t batch, int64_t position, int64_t head) const
    {
        return at + batch * b + position * l + head * h;
    }
};

template <class T> static heads<T> heads_of(struct tensor t)
{
    heads<T> v = { (T *)t.data, t.stride[0], t.stride[1], t.stride[2] };
    return v;
}

// Sizes and bias of one call.
struct attention_shape {
    int B, H, Hkv, D, Lq, Lk;
    float scale;
    int kind;            // enum bias_kind
    const float *values; // slopes [H], or the table [H, T]
    int T;

    __host__ __device__ int past() const // positions before the first query
    {
        return Lk - Lq;
    }

    __device__ __forceinline__ int key_head(int h) const
    {
        return h / (H / Hkv);
    }

    // The bias as the contract has it, for what needs no speed.
    __device__ __forceinline__ float bias(int h, int distance) const
    {
        if (kind == BIAS_LINEAR)
            return -values[h] * (float)distance;
        if (kind == BIAS_TABLE)
            return values[(int64_t)h * T + min(distance, T - 1)];
        return 0.0f;
    }
};

// The bits of struct skipping.kept; NULL: every tile is used.
struct kept_tiles {
    uint32_t *bits;
    int rows, words; // tiles of Lq, words of Lk

    __device__ __forceinline__ uint32_t *row(int64_t head_of_batch, int query_tile) const
    {
        return bits + (head_of_batch * rows + query_tile) * words;
    }
};

static __device__ __forceinline__ bool tile_is_kept(const uint32_t *row, int key_tile)
{
    return row == NULL || (row[key_tile >> 5] >> (key_tile & 31) & 1u);
}

// Keys per block of the matrix kernels: a pair of tiles, in one word.
enum { BLOCK_KEYS = 128 };

static __device__ __forceinline__ bool keys_are_kept(const uint32_t *row, int block)
{
    return tile_is_kept(row, 2 * block) || tile_is_kept(row, 2 * block + 1);
}

// Eight lanes share a row: 16 bytes at a time (PACKS) where every row begins at a multiple of that,
// see rows_are_aligned().
enum { ROW_LANES = 8 };

static __device__ __forceinline__ float lanes_sum(float x)
{
    unsigned mask = 0xffu << (threadIdx.x % 32 & ~(ROW_LANES - 1));

#pragma unroll
    for (int step = ROW_LANES / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(mask, x, step);
    return x;
}

// a . b; `a` is of b's type, or fp32 in shared memory.
template <bool PACKS, class A, class T>
static __device__ __forceinline__ float lanes_dot(const A *a, const T *b, int D)
{
    const int N = PACKS ? pack<T>::N : 1;
    float sum = 0.0f;

    for (int d = (int)threadIdx.x % ROW_LANES * N; d < D; d += ROW_LANES * N) {
        if (PACKS && sizeof(A) == sizeof(T)) {
            pack<T> left = load_pack((const T *)a + d), right = load_pack(b + d);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum = fmaf(left.at[i], right.at[i], sum);
        } else if (PACKS) {
            pack<T> right = load_pack(b + d);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum = fmaf(to_float(a[d + i]), right.at[i], sum);
        } else {
            sum = fmaf(to_float(a[d]), to_float(b[d]), sum);
        }
    }
    return lanes_sum(sum);
}

static inline bool rows_are_aligned(struct tensor view)
{
    int64_t n = 16 / (int64_t)dtype_bytes(view.type);

    return (uintptr_t)view.data % 16 == 0 && view.shape[3] % n == 0 && view.stride[0] % n == 0 &&
           view.stride[1] % n == 0 && view.stride[2] % n == 0;
}

static const float log2_e = 1.4426950408889634f;

// A head's table of biases / scale in shared memory, with room around it: a tile on its edge asks
// for distances below 0, where the mask applies, and beyond its end.
enum { TABLE_LARGEST = 1024, TABLE_AROUND = 384 };

struct bias_table {
    float entries[TABLE_LARGEST + 2 * TABLE_AROUND];

    __device__ __forceinline__ const float *at(int distance) const
    {
        return entries + TABLE_AROUND + distance;
    }
};

static __device__ __forceinline__ void fill_table(bias_table *t, const attention_shape &s, int h,
                                                  int thread, int threads)
{
    float inverse = 1.0f / s.scale;

    for (int i = thread; i < s.T + 2 * TABLE_AROUND; i += threads)
        t->entries[i] = s.bias(h, max(0, i - TABLE_AROUND)) * inverse;
}

struct attention_shape attention_shape_of(const struct attention_args *a);

// Queries per block of the forward matrix kernel: with BLOCK_KEYS the grain in which
// attention_bounds.cu decides for it.
int forward_block_queries(int64_t D);

// attention_bounds.cu: fills the bits for a budget; `grain` queries and keys at a time, a multiple
// of ATTENTION_TILE.
alibi_status decide_tiles(struct cuda *c, const struct attention_args *a, struct kept_tiles kept,
                          int grain_queries, int grain_keys);

// attention_forward.cu, attention_backward.cu: Hopper only.
alibi_status forward_matrix(struct cuda *c, struct tensor y, struct tensor lse,
                            const struct attention_args *a, struct kept_tiles kept);
alibi_status backward_matrix(struct cuda *c, struct tensor dq, struct tensor dk, struct tensor dv,
                             struct tensor dbias, struct tensor dy, struct tensor lse,
                             const float *delta, const struct attention_args *a,
                             struct kept_tiles kept);

// Whether it turns dq and dk back itself: heads as wide as the kernels are made for, angles that
// begin at a multiple of 16 bytes.
bool backward_matrix_turns(const struct attention_args *a);

// attention_plain.cu: any type and size.
alibi_status forward_plain(struct cuda *c, struct tensor y, struct tensor lse,
                           const struct attention_args *a, struct kept_tiles kept);
alibi_status backward_plain(struct cuda *c, struct tensor dq, struct tensor dk, struct tensor dv,
                            struct tensor dbias, struct tensor dy, struct tensor lse,
                            const float *delta, const struct attention_args *a,
                            struct kept_tiles kept);

// attention_decode.cu: few queries, in parts of the keys that are merged.
enum { DECODE_QUERIES = 16 };
alibi_status forward_decode(struct cuda *c, struct tensor y, struct tensor lse,
                            const struct attention_args *a);

#endif
