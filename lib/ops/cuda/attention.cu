// attention.cu - which kernels serve a call, and delta for the backward pass
#include <initializer_list>

#include "ops/cuda/attention.cuh"

struct attention_shape attention_shape_of(const struct attention_args *a)
{
    const bool gates = a->bias.kind == BIAS_GATE, packed = packed_present(a->packed);
    const bool slopes_differ = a->bias.kind == BIAS_LINEAR && a->bias.values.rank == 2;
    const int64_t Lk = packed ? a->packed.Lk : a->k.shape[1];

    return { .B = (int)(packed ? a->packed.q.shape[0] - 1 : a->q.shape[0]),
             .H = (int)a->q.shape[2],
             .Hkv = (int)a->k.shape[2],
             .D = (int)a->q.shape[3],
             .Lq = (int)(packed ? a->packed.Lq : a->q.shape[1]),
             .Lk = (int)Lk,
             .scale = (float)a->scale,
             .kind = a->bias.kind,
             .values = (const float *)a->bias.values.data,
             .slopes_row = slopes_differ ? (int)a->q.shape[2] : 0,
             .T = a->bias.kind == BIAS_TABLE ? (int)a->bias.values.shape[1] : 1,
             .G = gates ? (int)a->bias.values.shape[2] : 0,
             .gates_plane = a->bias.values.stride[0],
             .gates_row = a->bias.values.stride[1],
             .gates_head = a->bias.values.stride[2],
             .tau = (float)a->bias.tau,
             .window = (int)(a->window > 0 && a->window < Lk ? a->window : Lk),
             .packed = { (const int32_t *)a->packed.q.data, (const int32_t *)a->packed.k.data,
                         (int)a->q.shape[1], (int)a->k.shape[1] } };
}

namespace
{

// Without a row there is nothing to do. Rows of width 0 still have a log-sum-exp.
bool is_empty(const struct attention_args *a)
{
    return a->q.shape[0] == 0 || a->q.shape[1] == 0 || a->q.shape[2] == 0 || a->k.shape[1] == 0;
}

// Kernels index positions and rows in 32 bits. Packed sequences count as if all were the longest.
// Decoding indexes rows of queries like that, and keys in 64 bits.
alibi_status check_size(const struct attention_args *a, bool decoding)
{
    const bool packed = packed_present(a->packed);
    const int64_t B = packed ? a->packed.q.shape[0] - 1 : a->q.shape[0], H = a->q.shape[2],
                  L = packed ? a->packed.Lk : a->k.shape[1],
                  all[] = { B, H, decoding ? a->q.shape[1] : L },
                  total[] = { decoding ? 1 : H, a->k.shape[1] };
    size_t rows, of_total;

    if (!size_product(&rows, all, 3) || rows > INT32_MAX || !size_product(&of_total, total, 2) ||
        of_total > INT32_MAX || a->k.shape[1] > INT32_MAX / 2)
        return fail(ALIBI_BAD_INPUT,
                    "attention of %lld x %lld heads over %lld tokens is too large for the GPU; use "
                    "a smaller batch or length",
                    (long long)B, (long long)H, (long long)L);
    return ALIBI_OK;
}

bool wgmma_serves(const struct context *c, const struct attention_args *a)
{
    return !c->mma_sync && a->q.type == DTYPE_BF16 && a->q.shape[3] > 0 && a->q.shape[3] <= 128 &&
           a->scale > 0 && rows_are_aligned(a->q) && rows_are_aligned(a->k) &&
           rows_are_aligned(a->v) && rows_are_aligned(a->y);
}

struct fill_gains {
    struct attention_shape s;
    float *to;

    template <int N> __device__ __forceinline__ void run(int64_t i) const
    {
        to[i] = s.gain(max(0, (int)i - TABLE_AROUND));
    }
};

bool wgmma_serves_backward(const struct context *c, const struct attention_args *a)
{
    return wgmma_serves(c, a) && rows_are_aligned(a->dy) && rows_are_aligned(a->dq) &&
           rows_are_aligned(a->dk) && rows_are_aligned(a->dv);
}

bool decodes(const struct attention_args *a)
{
    return ragged_present(a->ragged) || (a->q.shape[1] <= DECODE_QUERIES && !a->skip.kept.data &&
                                         a->dropout.p == 0 && !packed_present(a->packed));
}

// Tiles are decided first if there is a budget. Packed sequences use every tile.
bool decides_tiles(const struct attention_args *a)
{
    return a->skip.kept.data || (a->skip.eps > 0 && !packed_present(a->packed));
}

// Whether wgmma kernels can work from lists for the call.
bool can_list(const struct attention_args *a)
{
    return a->bias.kind == BIAS_LINEAR && mask_kind_of(a) == CAUSAL;
}

// Whether they do. Calls with fewer keys compute every tile (docs/gpu.md).
bool lists_serve(const struct context *c, const struct attention_args *a)
{
    return c->lists_from > 0 && a->k.shape[1] >= c->lists_from && can_list(a);
}

bool key_lists_serve(const struct context *c, const struct attention_args *a)
{
    return lists_serve(c, a) && a->skip.eps > 0 && wgmma_serves(c, a);
}

bool is_too_short_to_skip(const struct context *c, const struct attention_args *a)
{
    return a->k.shape[1] < c->lists_from && can_list(a) && wgmma_serves(c, a);
}

// The choice of tiles before the forward pass.
alibi_status choose_tiles(struct context *c, const struct attention_args *a,
                          struct kept_tiles *kept, struct key_lists *lists)
{
    const struct attention_shape s = attention_shape_of(a);
    const int64_t bits[] = { s.B, s.H, kept->rows, kept->words, (int64_t)sizeof(uint32_t) };
    const bool wgmma = wgmma_serves(c, a), listed = key_lists_serve(c, a);
    const int queries = wgmma                 ? wgmma_block_queries(s.D)
                        : ampere_serves(c, a) ? ampere_block_queries()
                                              : (int)ATTENTION_TILE;

    cuda_part(c, "attention bounds");
    if (is_too_short_to_skip(c, a))
        return kept->bits ? keep_tiles(c, a, *kept) : ALIBI_OK;
    if (listed)
        TRY_RETURN(reserve_key_lists(c, s, queries, lists));
    else if (!kept->bits) // a record of our own
        TRY_RETURN(cuda_scratch_for(c, SCRATCH_KEPT, bits, 5, (void **)&kept->bits));
    return decide_tiles(c, a, *kept, *lists, a->skip.eps * (listed ? LISTED_BOUND_SHARE : 1.0),
                        queries, wgmma ? (int)BLOCK_KEYS : (int)ATTENTION_TILE);
}

} // namespace

alibi_status find_gains(struct context *c, const struct attention_shape &s, const float **gains)
{
    const int64_t distances = (int64_t)s.Lk + 2 * TABLE_AROUND;
    const int64_t factors[] = { distances, (int64_t)sizeof(float) };
    float *table;

    TRY_RETURN(cuda_scratch_for(c, SCRATCH_BIAS, factors, 2, (void **)&table));
    TRY_RETURN(each<1>(c, "attention gains", fill_gains{ s, table }, distances, false));
    *gains = table + TABLE_AROUND;
    return ALIBI_OK;
}

extern "C" alibi_status cuda_attention_forward(struct device *dev, const struct attention_args *a)
{
    struct context *c = cuda_of(dev);
    struct kept_tiles kept = { .bits = (uint32_t *)a->skip.kept.data,
                               .rows = (int)attention_tiles(a->q.shape[1]),
                               .words = (int)attention_kept_words(a->k.shape[1]) };
    struct key_lists lists = {};
    const bool wgmma = wgmma_serves(c, a);

    if (is_empty(a))
        return ALIBI_OK;
    TRY_RETURN(check_size(a, decodes(a)));
    cuda_part(c, "attention forward");
    if (decodes(a))
        return forward_decode(c, a);
    if (decides_tiles(a)) {
        TRY_RETURN(choose_tiles(c, a, &kept, &lists));
        cuda_part(c, "attention forward");
    }
    if (wgmma)
        return forward_wgmma(c, a, kept, lists);
    return ampere_serves(c, a) ? forward_ampere(c, a, kept) : forward_plain(c, a, kept);
}

// ---- backward

namespace
{

enum { DELTA_THREADS = 256 };

// delta[b, h, i] = y_i . dy_i, a warp each. Rows are in the order [B, L, H], as in memory.
template <class T>
__global__ void delta_kernel(float *delta, heads<const T> y, heads<const T> dy, int H, int L, int D,
                             int64_t rows)
{
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int h = (int)(row % H), i = (int)(row / H % L), b = (int)(row / H / L);
    float sum = 0.0f;

    if (row >= rows)
        return;
    const T *left = y.row(b, i, h), *right = dy.row(b, i, h);
    for (int d = threadIdx.x % 32; d < D; d += 32)
        sum = fmaf(to_float(left[d]), to_float(right[d]), sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        delta[((int64_t)b * H + h) * L + i] = sum;
}

// The same with 16 bytes per lane: a row is LANES lanes of 8 numbers; those past D do nothing.
template <int LANES>
__global__ void delta_packs_kernel(float *delta, heads<const bf16> y, heads<const bf16> dy, int H,
                                   int L, int D, int64_t rows)
{
    int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    int h = (int)(row % H), i = (int)(row / H % L), b = (int)(row / H / L),
        d = (int)threadIdx.x % LANES * 8;
    float sum = 0.0f;

    if (row < rows && d < D) {
        pack<bf16> left = load_pack(y.row(b, i, h) + d), right = load_pack(dy.row(b, i, h) + d);
#pragma unroll
        for (int n = 0; n < 8; n++)
            sum = fmaf(left.at[n], right.at[n], sum);
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (row < rows && d == 0)
        delta[((int64_t)b * H + h) * L + i] = sum;
}

// LANES 0: a warp per row, any type.
template <class T, int LANES>
alibi_status find_delta(struct context *c, float *delta, const struct attention_args *a)
{
    const int64_t rows = a->y.shape[0] * a->y.shape[1] * a->y.shape[2];
    const auto go = [&](auto kernel, int lanes) {
        return launch(c, "attention backward", kernel,
                      (unsigned)ceil_div(rows * lanes, DELTA_THREADS), DELTA_THREADS, 0, delta,
                      heads_of<const T>(a->y), heads_of<const T>(a->dy), (int)a->y.shape[2],
                      (int)a->y.shape[1], (int)a->y.shape[3], rows);
    };

    if constexpr (LANES == 0)
        return go(delta_kernel<T>, 32);
    else
        return go(delta_packs_kernel<LANES>, LANES);
}

} // namespace

extern "C" alibi_status cuda_attention_backward(struct device *dev, const struct attention_args *a)
{
    struct context *c = cuda_of(dev);
    const struct kept_tiles kept = { .bits = (uint32_t *)a->skip.kept.data,
                                     .rows = (int)attention_tiles(a->q.shape[1]),
                                     .words = (int)attention_kept_words(a->k.shape[1]) };
    const bool wgmma = wgmma_serves_backward(c, a), ampere = ampere_serves_backward(c, a);
    const int64_t rows[] = { a->lse.shape[0], a->lse.shape[1], a->lse.shape[2],
                             (int64_t)sizeof(float) };
    struct query_lists lists = {};
    float *delta;

    if (is_empty(a))
        return ALIBI_OK;
    TRY_RETURN(check_size(a, false));
    cuda_part(c, "attention backward");
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_ROWS, rows, 4, (void **)&delta));
    if (wgmma || ampere)
        TRY_RETURN(a->q.shape[3] <= 64 ? (find_delta<bf16, 8>(c, delta, a))
                                       : (find_delta<bf16, 16>(c, delta, a)));
    else
        DISPATCH(a->y.type, T, TRY_RETURN((find_delta<T, 0>(c, delta, a))));
    if (wgmma && kept.bits && lists_serve(c, a))
        TRY_RETURN(make_query_lists(c, attention_shape_of(a), kept, &lists));
    TRY_RETURN(wgmma    ? backward_wgmma(c, a, delta, kept, lists)
               : ampere ? backward_ampere(c, a, delta, kept)
                        : backward_plain(c, a, delta, kept));
    if (!a->rotation.table.data || (wgmma && wgmma_rotates(a)))
        return ALIBI_OK;
    TRY_RETURN(cuda_rotary(dev, a->dq, a->rotation, -1));
    return cuda_rotary(dev, a->dk, a->rotation, -1);
}

// ---- bytes of the caller's workspace: the same scratch sizes that the call requests. The bias is
// slopes or none.

extern "C" size_t cuda_attention_workspace(struct device *dev, const struct attention_args *a,
                                           bool backward)
{
    const struct context *c = cuda_of(dev);
    const struct attention_shape s = attention_shape_of(a);
    const int64_t B = a->q.shape[0], H = s.H, Lq = a->q.shape[1], number = sizeof(float);
    size_t total = 0;
    const auto add = [&](std::initializer_list<int64_t> factors) {
        size_t bytes = cuda_borrowed_bytes(cuda_bytes(factors.begin(), (int)factors.size()));
        total = bytes > SIZE_MAX - total ? SIZE_MAX : total + bytes;
    };

    if (is_empty(a))
        return 0;
    if (!backward && decodes(a)) {
        add({ B, H, Lq, decode_parts(s), s.D + 1, number });
        add({ B, H, Lq, (int64_t)sizeof(int) }); // counters
    } else if (!backward) {
        if (decides_tiles(a) && !is_too_short_to_skip(c, a)) {
            if (key_lists_serve(c, a))
                add({ (int64_t)key_lists_bytes(s, wgmma_block_queries(s.D)) });
            else if (!a->skip.kept.data)
                add({ B, H, attention_tiles(Lq), attention_kept_words(s.Lk), number });
            add({ 2, B, s.Hkv, attention_tiles(s.Lk), number });
        }
        if (wgmma_serves(c, a))
            add({ (int64_t)sizeof(int) }); // items that were taken
    } else {
        add({ B, H, Lq, number });
        const bool wgmma = wgmma_serves_backward(c, a);
        if (wgmma || ampere_serves_backward(c, a)) {
            const struct backward_areas areas =
                wgmma ? backward_wgmma_areas(a) : backward_ampere_areas(c, a);
            add({ (int64_t)areas.dq });
            add({ (int64_t)areas.semaphores });
            add({ (int64_t)areas.bias });
            if (wgmma && a->skip.kept.data && lists_serve(c, a))
                add({ (int64_t)query_lists_bytes(s) });
        } else if (learns_bias(a)) {
            add({ B, H, Lq, number });
        }
    }
    return total;
}
