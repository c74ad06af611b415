// attention.cuh - what the kernels of attention share
//
// attention.cu chooses among four implementations:
//
//   attention_forward.cu, attention_backward.cu           Hopper: wgmma and TMA, bf16, D <= 128
//   attention_ampere.cu, attention_ampere_backward.cu     the others: mma.sync, bf16, D <= 128
//   attention_decode.cu                                   few queries over many keys, any type
//   attention_plain.cu                                    everything else
//
// attention_bounds.cu decides before them which key tiles are skipped, in the bits of
// skipping.kept. attention_lists.cu has lists of what is left.
#ifndef ATTENTION_CUH
#define ATTENTION_CUH

#include "ops/cuda/heads.cuh"
#include "ops/cuda/random.cuh"

// One sequence: its first query and key in the rows of its views, and how many it has.
struct sequence {
    int q, k, Lq, Lk;

    __device__ __forceinline__ int past() const
    {
        return Lk - Lq;
    }
};

// struct packed on the GPU; q NULL: the sequences are rows of a batch. The values are
// unchecked, so they are clamped to what is there.
struct packed_rows {
    const int32_t *q, *k;
    int total_q, total_k;
};

// Sizes and bias of one call.
struct attention_shape {
    int B, H, Hkv, D, Lq, Lk; // packed: Lq and Lk of the longest sequence
    float scale;
    int kind;            // enum bias_kind
    const float *values; // slopes [H] or [B, H], the table [H, T], or gates
    int slopes_row;      // from the slopes of a sequence to those of the next; 0: all have the same
    int T;
    int G; // BIAS_GATE: heads that have gates, the first ones; 0: none
    // Strides of the two numbers of gates, [2, B, G, Lk].
    int64_t gates_plane, gates_row, gates_head;
    float tau;  // BIAS_GAIN
    int window; // keys that a query sees at most: Lk if the call has no window
    struct packed_rows packed;

    __device__ __forceinline__ struct sequence sequence_of(int b) const
    {
        struct sequence one = { 0, 0, Lq, Lk };

        if (packed.q) {
            one.q = max(0, min(packed.q[b], packed.total_q));
            one.k = max(0, min(packed.k[b], packed.total_k));
            one.Lk = min(max(one.k, min(packed.k[b + 1], packed.total_k)) - one.k, Lk);
            one.Lq = min(max(one.q, min(packed.q[b + 1], packed.total_q)) - one.q, min(Lq, one.Lk));
        }
        return one;
    }

    // The place of query i, counted from the first of its rows, in lse [B, H, Lq], and in what has
    // a number for each query and head.
    __device__ __forceinline__ int64_t row(int b, int h, int i) const
    {
        return packed.q ? (int64_t)h * packed.total_q + i : ((int64_t)b * H + h) * Lq + i;
    }

    __device__ __forceinline__ float slope(int b, int h) const
    {
        return values[b * slopes_row + h];
    }

    __host__ __device__ int past() const // positions before the first query
    {
        return Lk - Lq;
    }

    __host__ __device__ __forceinline__ int first_key(int position) const // that it sees
    {
        return position < window ? 0 : position - window + 1;
    }

    __device__ __forceinline__ int key_head(int h) const
    {
        return h / (H / Hkv);
    }

    // The bias as in the contract, where speed does not matter. By distance, without gates:
    __device__ __forceinline__ float bias(int b, int h, int distance) const
    {
        if (kind == BIAS_LINEAR)
            return -slope(b, h) * (float)distance;
        if (kind == BIAS_TABLE)
            return values[(int64_t)h * T + min(distance, T - 1)];
        if (kind == BIAS_GAIN)
            return -2.0f * log1pf((float)distance / tau);
        return 0.0f;
    }

    __device__ __forceinline__ float gain(int distance) const // the factor on q . k
    {
        return kind == BIAS_GAIN ? sqrtf(1.0f + 2.0f * log1pf((float)distance / tau)) : 1.0f;
    }

    // c_i - c_j of a head with gates; `row` is the sequence of the keys. The high parts of near
    // sums cancel exactly.
    __device__ __forceinline__ float gates(int row, int h, int i, int j) const
    {
        const float *sum = values + row * gates_row + h * gates_head, *rest = sum + gates_plane;

        return (sum[i] - sum[j]) + (rest[i] - rest[j]);
    }

    // `row`: the sequence of the keys; elsewhere than in a cache it is b.
    __device__ __forceinline__ float bias(int b, int row, int h, int position, int key) const
    {
        return h < G ? gates(row, h, position, key) : bias(b, h, position - key);
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

__device__ __forceinline__ bool tile_is_kept(const uint32_t *row, int key_tile)
{
    return row == NULL || (row[key_tile >> 5] >> (key_tile & 31) & 1u);
}

// Keys per block of the wgmma kernels: a pair of tiles, whose bits are in one word.
enum { BLOCK_KEYS = 128 };

// The first query of a block of the wgmma kernels and of decide_tiles(), a multiple of a tile.
// Blocks end with the last query, so that one that is not full comes first, where there are few
// keys; below 0 there are no queries.
__host__ __device__ __forceinline__ int first_of_block(int Lq, int queries, int block)
{
    int missing = (Lq + queries - 1) / queries * queries - Lq;

    return block * queries - missing / ATTENTION_TILE * ATTENTION_TILE;
}

// Which pairs the wgmma kernels compute, as a template parameter. A window, dropout and packed
// sequences then cost nothing in kernels without them. DROPOUT and PACKED also handle windows.
// LISTED: CAUSAL with slopes, driven by lists of key blocks.
enum mask_kind { CAUSAL, LISTED, WINDOW, DROPOUT, PACKED };

inline mask_kind mask_kind_of(const struct attention_args *a)
{
    return packed_present(a->packed)                    ? PACKED
           : a->dropout.p > 0                           ? DROPOUT
           : a->window > 0 && a->window < a->k.shape[1] ? WINDOW
                                                        : CAUSAL;
}

// Whether slopes or a table have a gradient, which is summed over parts of the keys. That of gates
// needs no sum; other kinds have none, whatever the call says.
inline bool learns_bias(const struct attention_args *a)
{
    return a->dbias.data && (a->bias.kind == BIAS_LINEAR || a->bias.kind == BIAS_TABLE);
}

// Dropout of weights: attention_element() of ops/dropout.h. `half` is the number of blocks of
// random numbers in a row of a head.
struct weight_mask {
    struct mask mask;
    int64_t half;
    uint32_t keys[PHILOX_ROUNDS][2]; // of each round: as constants, they take no registers

    // The block of a head's weights of queries i, i + 8 and keys j, j + 8, where bit 3 of both is
    // 0.
    __device__ __forceinline__ uint64_t block(int64_t head, int i, int j) const
    {
        return (uint64_t)((head * half + (i / 16 * 8 + i % 8)) * half + (j / 16 * 8 + j % 8));
    }

    // Its words: of (i, j), (i, j + 8), (i + 8, j), (i + 8, j + 8).
    __device__ __forceinline__ uint4 words(uint64_t index) const
    {
        uint4 c = make_uint4((uint32_t)index, (uint32_t)(index >> 32), (uint32_t)mask.stream,
                             (uint32_t)(mask.stream >> 32));

#pragma unroll
        for (uint32_t round = 0; round < PHILOX_ROUNDS; round++)
            c = philox_round(c, keys[round][0], keys[round][1]);
        return c;
    }

    __device__ __forceinline__ bool drops(uint32_t word) const
    {
        return word < (uint32_t)mask.threshold;
    }

    // Factor on one weight, where speed does not matter.
    __device__ __forceinline__ float factor(int64_t head, int i, int j) const
    {
        if (mask.threshold == 0)
            return 1.0f;
        uint4 w = words(block(head, i, j));
        uint32_t word = i & 8 ? (j & 8 ? w.w : w.z) : (j & 8 ? w.y : w.x);
        return drops(word) ? 0.0f : mask.kept;
    }
};

inline weight_mask weight_mask_of(struct dropout dropout, int64_t keys)
{
    weight_mask m = { .mask = mask_of(dropout), .half = (keys + 15) / 16 * 8 };

    for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        m.keys[round][0] = (uint32_t)m.mask.seed + round * PHILOX_STEP_0;
        m.keys[round][1] = (uint32_t)(m.mask.seed >> 32) + round * PHILOX_STEP_1;
    }
    return m;
}

__device__ __forceinline__ bool keys_are_kept(const uint32_t *row, int block)
{
    return tile_is_kept(row, 2 * block) || tile_is_kept(row, 2 * block + 1);
}

// LISTED: the key blocks that each query block visits. A copy of the bits of skipping.kept, because
// consumers clear bits there while others still iterate over the list.
struct key_lists {
    uint32_t *bits;    // [B, H, blocks of queries, words]: bit n % 32 of word n / 32, key block n
    int *counts;       // [B, H, blocks of queries]: key blocks of the list
    int blocks, words; // bits NULL: there are no lists

    __device__ __forceinline__ uint32_t *row(int64_t head_of_batch, int block) const
    {
        return bits + (head_of_batch * blocks + block) * words;
    }
};

// Shares of the budget of LISTED: decide_tiles() and the test of scores. The rest covers the
// rounding of scores, which differ from exact ones by less than 0.2 or are worth nothing.
#define LISTED_BOUND_SHARE 0.5
#define LISTED_SCORES_SHARE 0.25

// Lists for backward when keys are skipped: the query tiles that use each key block, so that a
// thread block finds its next tile without reading the bits of every tile.
struct query_lists {
    uint32_t *bits; // [B, H, blocks of keys, words]: bit t % 32 of word t / 32, query tile t
    int *order;     // [B * Hkv]: key heads of all sequences, those with most to do first; or NULL
    int *work;      // [B * Hkv]: tiles of each
    int words;      // bits NULL: there are no lists
};

// Eight lanes share a row. They load 16 bytes at a time (PACKS) if all rows are aligned to that,
// see rows_are_aligned().
enum { ROW_LANES = 8 };

__device__ __forceinline__ float lanes_sum(float x)
{
    unsigned mask = 0xffu << (threadIdx.x % 32 & ~(ROW_LANES - 1));

#pragma unroll
    for (int step = ROW_LANES / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(mask, x, step);
    return x;
}

// a . b; `a` is of b's type, or fp32 in shared memory.
template <bool PACKS, class A, class T>
__device__ __forceinline__ float lanes_dot(const A *a, const T *b, int D)
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

inline bool rows_are_aligned(struct tensor view)
{
    int64_t n = 16 / (int64_t)dtype_bytes(view.type);

    return (uintptr_t)view.data % 16 == 0 && view.shape[3] % n == 0 && view.stride[0] % n == 0 &&
           view.stride[1] % n == 0 && view.stride[2] % n == 0;
}

// The backward pass has a head's table of biases / scale in shared memory, up to TABLE_LARGEST
// distances of it, padded on both sides: a tile on the diagonal reads distances below 0, which the
// mask overrides, and tiles near the end read past it.
enum { TABLE_LARGEST = 1024, TABLE_AROUND = 384 };

struct bias_table {
    float entries[TABLE_LARGEST + 2 * TABLE_AROUND];

    __device__ __forceinline__ const float *at(int distance) const
    {
        return entries + TABLE_AROUND + distance;
    }
};

__device__ __forceinline__ void fill_table(bias_table *t, const attention_shape &s, int h,
                                           int thread, int threads)
{
    float inverse = 1.0f / s.scale;

    for (int i = thread; i < s.T + 2 * TABLE_AROUND; i += threads)
        t->entries[i] = s.bias(0, h, max(0, i - TABLE_AROUND)) * inverse;
}

// ---- how much weight keys can have at most
//
//   weight of keys J for query i, relative to its own key  <=  g exp(r_i K_J + b_iJ - own_i)
//
//   own_i = scale q_i . k_i + bias(0),   r_i = |scale q_i|,   K_J = max |k_j|
//   b_iJ the largest bias, g the number of keys that count (docs/attention.md)
//
// The own key is part of the sum, so this bounds the weight relative to the whole sum. Every step
// errs upwards, by factors that exceed the rounding of fp32. NaN makes every comparison false, and
// the keys are used.

__host__ __device__ __forceinline__ float norm_margin(int D)
{
    return 1.0001f + (float)D * 0x1p-23f;
}

__device__ __forceinline__ float larger(float a, float b)
{
    return a > b || isnan(a) ? a : b;
}

// Norms of key tiles, [B, Hkv, tiles] with strides.
struct key_norms {
    const float *at;
    int64_t b, h;

    // Of keys first..last.
    __device__ __forceinline__ float largest(int batch, int kv, int first, int last) const
    {
        const float *norms = at + batch * b + kv * h;
        float most = 0.0f;

        for (int t = first / ATTENTION_TILE; t <= last / ATTENTION_TILE; t++)
            most = larger(norms[t], most);
        return most;
    }
};

inline key_norms key_norms_of(struct tensor norms)
{
    key_norms n = { (const float *)norms.data, norms.stride[0], norms.stride[1] };
    return n;
}

// The largest bias at the distances near..far.
__device__ __forceinline__ float largest_bias(const attention_shape &s, int b, int h, int near,
                                              int far)
{
    if (s.kind == BIAS_TABLE) {
        float most = s.bias(b, h, near);
        for (int d = near + 1; d <= min(far, s.T - 1); d++)
            most = larger(s.bias(b, h, d), most);
        return most;
    }
    return s.bias(b, h, s.kind == BIAS_LINEAR && s.slope(b, h) < 0.0f ? far : near);
}

// Under a slope weights fall geometrically: together they count as at most 1 / (1 - e^-|slope|)
// keys.
__device__ __forceinline__ float counted_keys(const attention_shape &s, int b, int h, int count)
{
    float slope = s.kind == BIAS_LINEAR ? s.slope(b, h) : 0.0f;

    return fminf(1.001f / -expm1f(-fabsf(slope)), (float)count);
}

// The bound for the keys first..last, all before the query; `norm` is their largest norm. own_norm
// is that of the tile of the query's own key, whose score is rounded too.
__device__ __forceinline__ float weight_bound(const attention_shape &s, int b, int row, int h,
                                              int position, int first, int last, float norm,
                                              float reach, float own, float own_norm)
{
    const float rounding = 0x1p-18f; // of an exponent, relative to the sizes of its terms
    const float lowest = -80.0f;     // exp() of less underflows to 0, which is no upper bound
    float bias = h < s.G ? s.gates(row, h, position, last) // they only close
                         : largest_bias(s, b, h, position - last, position - first);
    float exponent = reach * norm + bias - own +
                     rounding * (reach * (norm + own_norm) + fabsf(bias) + fabsf(own));

    if (s.kind == BIAS_GAIN) { // gain x + 1 - gain^2 is concave, with its top at x / 2
        float x = reach * norm, near = s.gain(position - last), far = s.gain(position - first);
        float gain = x / 2 < near ? near : x / 2 > far ? far : x / 2;
        exponent = gain * x + (1.0f - gain * gain) - own +
                   rounding * (far * (x + far) + reach * own_norm + fabsf(own));
    }

    exponent = exponent < lowest ? lowest : exponent; // NaN stays NaN
    return 1.001f * counted_keys(s, b, h, last - first + 1) * expf(exponent);
}

// ---- the implementations

struct attention_shape attention_shape_of(const struct attention_args *a);

// attention.cu: *gains <- where the factor of distance 0 is in a table for BIAS_GAIN, padded by
// TABLE_AROUND as above, in SCRATCH_BIAS.
alibi_status find_gains(struct context *c, const struct attention_shape &s, const float **gains);

// attention_bounds.cu: decides the bits for a budget, for blocks of that many queries and keys at a
// time, multiples of ATTENTION_TILE. With lists, those have the same bits, and kept may have none.
alibi_status decide_tiles(struct context *c, const struct attention_args *a, struct kept_tiles kept,
                          struct key_lists lists, double eps, int block_queries, int block_keys);

// The bits of a call that skips nothing.
alibi_status keep_tiles(struct context *c, const struct attention_args *a, struct kept_tiles kept);

// attention_lists.cu: memory for the lists of forward, which decide_tiles() makes, and the lists of
// backward, from the bits of forward. Both are in SCRATCH_LISTS.
size_t key_lists_bytes(const struct attention_shape &s, int block_queries);
size_t query_lists_bytes(const struct attention_shape &s);
alibi_status reserve_key_lists(struct context *c, const struct attention_shape &s,
                               int block_queries, struct key_lists *out);
alibi_status make_query_lists(struct context *c, const struct attention_shape &s,
                              struct kept_tiles kept, struct query_lists *out);

// attention_forward.cu, attention_backward.cu: Hopper only. delta [B, H, Lq] is y . dy. Backward
// rotates dq and dk back itself if heads are as wide as its tiles and the angles are aligned.
int wgmma_block_queries(int64_t D); // of forward; with BLOCK_KEYS the granularity of decide_tiles()
bool wgmma_rotates(const struct attention_args *a);
// The three areas of scratch memory of backward: dQ, semaphores, partial gradients of the bias.
struct backward_areas {
    size_t dq, semaphores, bias; // bytes; bias 0: there are none
};
struct backward_areas backward_wgmma_areas(const struct attention_args *a);
alibi_status forward_wgmma(struct context *c, const struct attention_args *a,
                           struct kept_tiles kept, struct key_lists lists);
alibi_status backward_wgmma(struct context *c, const struct attention_args *a, const float *delta,
                            struct kept_tiles kept, struct query_lists lists);

// attention_ampere.cu, with decisions on tiles for blocks of ampere_block_queries() queries, and
// attention_ampere_backward.cu.
bool ampere_serves(const struct context *c, const struct attention_args *a);
bool ampere_serves_backward(const struct context *c, const struct attention_args *a);
int ampere_block_queries(void);
struct backward_areas backward_ampere_areas(const struct context *c,
                                            const struct attention_args *a);
alibi_status forward_ampere(struct context *c, const struct attention_args *a,
                            struct kept_tiles kept);
alibi_status backward_ampere(struct context *c, const struct attention_args *a, const float *delta,
                             struct kept_tiles kept);

// attention_plain.cu: any type and size.
alibi_status forward_plain(struct context *c, const struct attention_args *a,
                           struct kept_tiles kept);
alibi_status backward_plain(struct context *c, const struct attention_args *a, const float *delta,
                            struct kept_tiles kept);

// attention_decode.cu: at most DECODE_QUERIES queries, or a ragged batch. Its scratch memory has D
// + 1 numbers for each row and part.
enum { DECODE_QUERIES = 16 };
int decode_parts(const struct attention_shape &s);
alibi_status forward_decode(struct context *c, const struct attention_args *a);

#endif
