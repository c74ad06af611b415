// memory.cu - filling and copying
//
// A view [B, L, H, D] has rows of W = H D numbers that lie together, so a copy is one of B L rows:
//
//   dst[b, l, w] = src[b, l, w],     w = 0..W-1
//
// Two contiguous tensors are one long row. Threads take 8 numbers at a time where every row begins
// at a multiple of 16 bytes in both, else one.
#include <string.h>

#include "ops/cuda/launch.cuh"

enum { THREADS = 256, WIDE = 8 };

// Blocks for so many items: enough to fill the GPU; threads then stride over the rest.
static dim3 blocks_for(struct cuda *c, int64_t items)
{
    int64_t blocks = ceil_div(items, THREADS), most = (int64_t)c->multiprocessors * 16;

    return dim3((unsigned)(blocks < most ? blocks : most));
}

// ---- fill

template <class Word> static __global__ void fill(Word *to, int64_t count, Word word)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS)
        to[i] = word;
}

template <class T> static uint32_t bits_of(T value)
{
    uint32_t bits = 0;

    memcpy(&bits, &value, sizeof value);
    return bits;
}

// `value` in that type, in the low bytes.
static uint32_t word_of(enum dtype type, double value)
{
    switch (type) {
    case DTYPE_I32:
        return bits_of((int32_t)value);
    case DTYPE_BF16:
        return bits_of(__float2bfloat16_rn((float)value));
    default:
        return bits_of((float)value);
    }
}

alibi_status cuda_fill(struct device *dev, struct tensor dst, double value)
{
    struct cuda *c = cuda_of(dev);
    int64_t count = tensor_count(dst);
    uint32_t word = word_of(dst.type, value);
    size_t bytes = dtype_bytes(dst.type);

    if (count == 0)
        return ALIBI_OK;
    cuda_part(c, "fill");
    if (word == 0)
        return cuda_check(cudaMemsetAsync(dst.data, 0, (size_t)count * bytes, c->stream), "fill");
    if (bytes == 2)
        return launch(c, "fill", fill<uint16_t>, blocks_for(c, count), THREADS, 0,
                      (uint16_t *)dst.data, count, (uint16_t)word);
    return launch(c, "fill", fill<uint32_t>, blocks_for(c, count), THREADS, 0, (uint32_t *)dst.data,
                  count, word);
}

// ---- copy

// Rows of W numbers: row l of b begins b * batch + l * row elements behind the first.
struct place {
    int64_t batch, row;
};

// N: numbers per thread and turn, 1 or WIDE, a divisor of W.
template <class To, class From, int N>
static __global__ void copy_rows(To *dst, struct place to, const From *src, struct place from,
                                 int64_t L, int64_t W, int64_t items)
{
    int64_t per_row = W / N;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < items;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t r = i / per_row, w = (i - r * per_row) * N, b = r / L, l = r - b * L;
        To *t = dst + b * to.batch + l * to.row + w;
        const From *f = src + b * from.batch + l * from.row + w;

        float x[N];

        load<N>(x, f);
        store<N>(t, x);
    }
}

static bool contiguous(struct tensor t)
{
    int64_t stride = 1;

    for (int i = TENSOR_RANK_MAX - 1; i >= 0; i--) {
        if (t.shape[i] != 1 && t.stride[i] != stride)
            return false;
        stride *= t.shape[i];
    }
    return true;
}

static bool every_row_aligned(struct tensor t)
{
    return (uintptr_t)t.data % 16 == 0 && t.stride[0] % WIDE == 0 && t.stride[1] % WIDE == 0;
}

template <class To, class From>
static alibi_status copy_between(struct cuda *c, struct tensor dst, struct tensor src)
{
    int64_t L = dst.shape[1], W = dst.shape[2] * dst.shape[3], items = tensor_count(dst);
    struct place to = { dst.stride[0], dst.stride[1] }, from = { src.stride[0], src.stride[1] };

    if (items == 0)
        return ALIBI_OK;
    if (W % WIDE == 0 && every_row_aligned(dst) && every_row_aligned(src))
        return launch(c, "copy", copy_rows<To, From, WIDE>, blocks_for(c, items / WIDE), THREADS, 0,
                      (To *)dst.data, to, (const From *)src.data, from, L, W, items / WIDE);
    return launch(c, "copy", copy_rows<To, From, 1>, blocks_for(c, items), THREADS, 0,
                  (To *)dst.data, to, (const From *)src.data, from, L, W, items);
}

static alibi_status copy_views(struct cuda *c, struct tensor dst, struct tensor src)
{
    DISPATCH(dst.type, To, DISPATCH(src.type, From, return (copy_between<To, From>(c, dst, src))));
}

// Elements from..from+count-1 of a contiguous tensor as one row.
static struct tensor stretch(struct tensor t, int64_t from, int64_t count)
{
    return tensor_4(tensor_at(t, from), t.type, 1, 1, 1, count);
}

static alibi_status copy_contiguous(struct cuda *c, struct tensor dst, struct tensor src)
{
    int64_t count = tensor_count(dst), wide = count - count % WIDE;

    if (dst.type == src.type)
        return cuda_check(cudaMemcpyAsync(dst.data, src.data, (size_t)count * dtype_bytes(dst.type),
                                          cudaMemcpyDeviceToDevice, c->stream),
                          "copy");
    TRY_RETURN(copy_views(c, stretch(dst, 0, wide), stretch(src, 0, wide)));
    return copy_views(c, stretch(dst, wide, count - wide), stretch(src, wide, count - wide));
}

alibi_status cuda_copy(struct device *dev, struct tensor dst, struct tensor src)
{
    struct cuda *c = cuda_of(dev);

    if (tensor_count(dst) == 0)
        return ALIBI_OK;
    cuda_part(c, "copy");
    if (contiguous(dst) && contiguous(src))
        return copy_contiguous(c, dst, src);
    return copy_views(c, dst, src);
}

alibi_status cuda_cache_append(struct device *dev, struct tensor dst, struct tensor src,
                               struct ragged ragged)
{
    (void)dev;
    (void)dst;
    (void)src;
    return cuda_refuse_ragged(ragged);
}
