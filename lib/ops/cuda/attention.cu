// attention.cu - which kernels serve a call, and what comes before them
#include "ops/cuda/attention.cuh"

struct attention_shape attention_shape_of(const struct attention_args *a)
{
    struct attention_shape s = {};

    s.B = (int)a->q.shape[0];
    s.Lq = (int)a->q.shape[1];
    s.H = (int)a->q.shape[2];
    s.D = (int)a->q.shape[3];
    s.Lk = (int)a->k.shape[1];
    s.Hkv = (int)a->k.shape[2];
    s.scale = (float)a->scale;
    s.kind = a->bias.kind;
    s.values = (const float *)a->bias.values.data;
    s.T = a->bias.kind == BIAS_TABLE ? (int)a->bias.values.shape[1] : 1;
    return s;
}

static bool is_empty(const struct attention_args *a)
{
    return tensor_count(a->q) == 0 || a->k.shape[1] == 0;
}

// Kernels count positions and rows in 32 bits.
static alibi_status check_size(const struct attention_args *a)
{
    const int64_t factors[] = { a->q.shape[0], a->q.shape[2], a->k.shape[1] };
    size_t rows;

    if (!size_product(&rows, factors, 3) || rows > INT32_MAX || a->k.shape[1] > INT32_MAX / 2)
        return fail(ALIBI_BAD_INPUT,
                    "attention of %lld x %lld heads over %lld tokens is beyond this GPU backend",
                    (long long)a->q.shape[0], (long long)a->q.shape[2], (long long)a->k.shape[1]);
    return ALIBI_OK;
}

static bool matrix_kernels_serve(const struct cuda *c, const struct attention_args *a)
{
    return c->major == 9 && a->q.type == DTYPE_BF16 && a->q.shape[3] <= 128 && a->scale > 0 &&
           (a->bias.kind != BIAS_TABLE || a->bias.values.shape[1] <= TABLE_LARGEST) &&
           rows_are_aligned(a->q) && rows_are_aligned(a->k) && rows_are_aligned(a->v);
}

// The caller's record, or one of ours where tiles may be left out and nobody wants to know which.
// Not all calls stand at a tile's edge, which is where a caller may have a record.
static alibi_status record_of(struct cuda *c, const struct attention_args *a,
                              struct kept_tiles *kept)
{
    const int64_t factors[] = { a->q.shape[0], a->q.shape[2], attention_tiles(a->q.shape[1]),
                                attention_kept_words(a->k.shape[1]), (int64_t)sizeof(uint32_t) };

    kept->rows = (int)factors[2];
    kept->words = (int)factors[3];
    kept->bits = (uint32_t *)a->skip.kept.data;
    if (kept->bits || !(a->skip.eps > 0))
        return ALIBI_OK;
    return cuda_scratch_for(c, SCRATCH_KEPT, factors, 5, (void **)&kept->bits);
}

extern "C" alibi_status cuda_attention_forward(struct device *dev, const struct attention_args *a)
{
    struct cuda *c = cuda_of(dev);
    struct kept_tiles kept;
    bool matrix = matrix_kernels_serve(c, a) && rows_are_aligned(a->y);

    if (is_empty(a))
        return ALIBI_OK;
    TRY_RETURN(cuda_refuse_ragged(a->ragged));
    TRY_RETURN(check_size(a));
    cuda_part(c, "attention forward");
    if (a->q.shape[1] <= DECODE_QUERIES && !a->skip.kept.data)
        return forward_decode(c, a->y, a->lse, a);
    TRY_RETURN(record_of(c, a, &kept));
    if (kept.bits) {
        cuda_part(c, "attention bounds");
        TRY_RETURN(decide_tiles(c, a, kept,
                                matrix ? forward_block_queries(a->q.shape[3]) : (int)ATTENTION_TILE,
                                matrix ? (int)BLOCK_KEYS : (int)ATTENTION_TILE));
        cuda_part(c, "attention forward");
    }
    return matrix ? forward_matrix(c, a->y, a->lse, a, kept)
                  : forward_plain(c, a->y, a->lse, a, kept);
}

// ---- backward

// delta[b, h, i] = y_i . dy_i, a warp each.
template <class T>
static __global__ void delta_kernel(float *delta, heads<const T> y, heads<const T> dy, int H, int L,
                                    int D, int64_t rows)
{
    int64_t row =
        (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; // [B, L, H]: as the numbers lie
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

// The same with 16 bytes per lane: a row is LANES lanes of 8 numbers, of which those beyond D do
// nothing.
template <int LANES>
static __global__ void delta_packs_kernel(float *delta, heads<const bf16> y, heads<const bf16> dy,
                                          int H, int L, int D, int64_t rows)
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

template <class T>
static alibi_status find_delta(struct cuda *c, float *delta, struct tensor y, struct tensor dy)
{
    int64_t rows = y.shape[0] * y.shape[1] * y.shape[2];

    return launch(c, "attention backward", delta_kernel<T>, (unsigned)ceil_div(rows, 8), 256, 0,
                  delta, heads_of<const T>(y), heads_of<const T>(dy), (int)y.shape[2],
                  (int)y.shape[1], (int)y.shape[3], rows);
}

template <int LANES>
static alibi_status find_delta_packs(struct cuda *c, float *delta, struct tensor y,
                                     struct tensor dy)
{
    int64_t rows = y.shape[0] * y.shape[1] * y.shape[2];

    return launch(c, "attention backward", delta_packs_kernel<LANES>,
                  (unsigned)ceil_div(rows * LANES, 256), 256, 0, delta, heads_of<const bf16>(y),
                  heads_of<const bf16>(dy), (int)y.shape[2], (int)y.shape[1], (int)y.shape[3],
                  rows);
}

static alibi_status turn_back(struct device *dev, struct tensor dq, struct tensor dk,
                              struct rotation r)
{
    if (!r.table.data)
        return ALIBI_OK;
    TRY_RETURN(cuda_rotary(dev, dq, r, -1));
    return cuda_rotary(dev, dk, r, -1);
}

extern "C" alibi_status cuda_attention_backward(struct device *dev, const struct attention_args *a)
{
    struct cuda *c = cuda_of(dev);
    struct kept_tiles kept = { (uint32_t *)a->skip.kept.data, (int)attention_tiles(a->q.shape[1]),
                               (int)attention_kept_words(a->k.shape[1]) };
    bool matrix = matrix_kernels_serve(c, a) && rows_are_aligned(a->y) && rows_are_aligned(a->dy) &&
                  rows_are_aligned(a->dq) && rows_are_aligned(a->dk) && rows_are_aligned(a->dv);
    const int64_t rows[] = { a->lse.shape[0], a->lse.shape[1], a->lse.shape[2],
                             (int64_t)sizeof(float) };
    float *delta;

    if (is_empty(a))
        return ALIBI_OK;
    TRY_RETURN(check_size(a));
    cuda_part(c, "attention backward");
    TRY_RETURN(cuda_scratch_for(c, SCRATCH_ROWS, rows, 4, (void **)&delta));
    if (!matrix) {
        DISPATCH(a->y.type, T, TRY_RETURN(find_delta<T>(c, delta, a->y, a->dy)));
        TRY_RETURN(backward_plain(c, a->dq, a->dk, a->dv, a->dbias, a->dy, a->lse, delta, a, kept));
        return turn_back(dev, a->dq, a->dk, a->rotation);
    }
    TRY_RETURN(a->q.shape[3] <= 64 ? find_delta_packs<8>(c, delta, a->y, a->dy)
                                   : find_delta_packs<16>(c, delta, a->y, a->dy));
    TRY_RETURN(backward_matrix(c, a->dq, a->dk, a->dv, a->dbias, a->dy, a->lse, delta, a, kept));
    return backward_matrix_turns(a) ? ALIBI_OK : turn_back(dev, a->dq, a->dk, a->rotation);
}
