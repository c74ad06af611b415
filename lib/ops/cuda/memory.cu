// memory.cu - filling and copying
//
// A view [B, L, H, D] has rows of W = H D contiguous numbers, so a copy is one of B L rows:
//
//   dst[b, l, w] = src[b, l, w],     w = 0..W-1
//
// Two contiguous tensors are one long row. Threads take 8 numbers at a time if every row of both is
// aligned to 16 bytes, else one.
#include <string.h>

#include "ops/cuda/launch.cuh"

namespace
{

enum { THREADS = 256, WIDE = 8 };

// Enough blocks to fill the GPU; threads stride over the remaining items.
dim3 blocks_for(struct context *c, int64_t items)
{
    int64_t blocks = ceil_div(items, THREADS), most = (int64_t)c->multiprocessors * 16;

    return dim3((unsigned)(blocks < most ? blocks : most));
}

// ---- fill

template <class Word> __global__ void fill(Word *to, int64_t count, Word word)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * THREADS)
        to[i] = word;
}

template <class T> uint32_t word_bits(T value)
{
    uint32_t bits = 0;

    memcpy(&bits, &value, sizeof value);
    return bits;
}

// The bits of `value` in that type, in the low bytes.
uint32_t word_of(enum dtype type, double value)
{
    switch (type) {
    case DTYPE_I32:
        return word_bits((int32_t)value);
    case DTYPE_BF16:
        return word_bits(__float2bfloat16_rn((float)value));
    default:
        return word_bits((float)value);
    }
}

// ---- copy

// Strides of rows of W numbers: row l of b begins at element b * batch + l * row.
struct row_strides {
    int64_t batch, row;
};

// N: numbers per access, 1 or WIDE, a divisor of W.
template <class To, class From, int N>
__global__ void copy_rows(To *dst, struct row_strides to, const From *src, struct row_strides from,
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

bool contiguous(struct tensor t)
{
    int64_t stride = 1;

    for (int i = TENSOR_RANK_MAX - 1; i >= 0; i--) {
        if (t.shape[i] != 1 && t.stride[i] != stride)
            return false;
        stride *= t.shape[i];
    }
    return true;
}

bool every_row_aligned(struct tensor t)
{
    return (uintptr_t)t.data % 16 == 0 && t.stride[0] % WIDE == 0 && t.stride[1] % WIDE == 0;
}

template <class To, class From>
alibi_status copy_between(struct context *c, struct tensor dst, struct tensor src)
{
    int64_t L = dst.shape[1], W = dst.shape[2] * dst.shape[3], items = tensor_count(dst);
    struct row_strides to = { dst.stride[0], dst.stride[1] },
                       from = { src.stride[0], src.stride[1] };

    if (items == 0)
        return ALIBI_OK;
    if (W % WIDE == 0 && every_row_aligned(dst) && every_row_aligned(src))
        return launch(c, "copy", copy_rows<To, From, WIDE>, blocks_for(c, items / WIDE), THREADS, 0,
                      (To *)dst.data, to, (const From *)src.data, from, L, W, items / WIDE);
    return launch(c, "copy", copy_rows<To, From, 1>, blocks_for(c, items), THREADS, 0,
                  (To *)dst.data, to, (const From *)src.data, from, L, W, items);
}

alibi_status copy_views(struct context *c, struct tensor dst, struct tensor src)
{
    DISPATCH(dst.type, To, DISPATCH(src.type, From, return (copy_between<To, From>(c, dst, src))));
}

// Elements from..from+count-1 of a contiguous tensor as one row.
struct tensor stretch(struct tensor t, int64_t from, int64_t count)
{
    return tensor_4(tensor_at(t, from), t.type, 1, 1, 1, count);
}

alibi_status copy_contiguous(struct context *c, struct tensor dst, struct tensor src)
{
    int64_t count = tensor_count(dst), wide = count - count % WIDE;

    c->chained = false;
    if (dst.type == src.type)
        return cuda_check(cudaMemcpyAsync(dst.data, src.data, (size_t)count * dtype_bytes(dst.type),
                                          cudaMemcpyDeviceToDevice, c->stream),
                          "copy");
    TRY_RETURN(copy_views(c, stretch(dst, 0, wide), stretch(src, 0, wide)));
    return copy_views(c, stretch(dst, wide, count - wide), stretch(src, wide, count - wide));
}

} // namespace

alibi_status cuda_fill(struct device *dev, struct tensor dst, double value)
{
    struct context *c = cuda_of(dev);
    int64_t count = tensor_count(dst);
    uint32_t word = word_of(dst.type, value);
    size_t bytes = dtype_bytes(dst.type);

    if (count == 0)
        return ALIBI_OK;
    cuda_part(c, "fill");
    c->chained = false;
    if (word == 0)
        return cuda_check(cudaMemsetAsync(dst.data, 0, (size_t)count * bytes, c->stream), "fill");
    if (bytes == 2)
        return launch(c, "fill", fill<uint16_t>, blocks_for(c, count), THREADS, 0,
                      (uint16_t *)dst.data, count, (uint16_t)word);
    return launch(c, "fill", fill<uint32_t>, blocks_for(c, count), THREADS, 0, (uint32_t *)dst.data,
                  count, word);
}

alibi_status cuda_copy(struct device *dev, struct tensor dst, struct tensor src)
{
    struct context *c = cuda_of(dev);

    if (tensor_count(dst) == 0)
        return ALIBI_OK;
    cuda_part(c, "copy");
    if (contiguous(dst) && contiguous(src))
        return copy_contiguous(c, dst, src);
    return copy_views(c, dst, src);
}
