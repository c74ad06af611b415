// workspace.cu - how much memory of its own this room takes, before it takes it
//
//   products' workspace + the sum over scratch places of the most that a pass asks of them + code
//
// Each place is counted by the expression that asks for it, rounded up as device.c does. Where that
// depends on what is not known here it is the larger: attention counts as if a bias had a table of
// the largest size, as if nobody had recorded the tiles, and as if keys had as many heads as
// queries. The page-locked staging memory is the host's.
#include "ops/cuda/attention.cuh"

enum {
    CODE = 64 << 20, // kernels, which the driver loads when they are first used
    WIDEST = 8,      // the columns of a layer are at most so many times C, as a rule: swiglu's two
                     // halves of 4 C
};

template <class... Factors> static size_t bytes_of(Factors... factors)
{
    const int64_t all[] = { (int64_t)factors... };

    return cuda_bytes(all, (int)sizeof...(factors));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// SIZE_MAX stays what it is.
static size_t add(size_t a, size_t b)
{
    size_t sum;

    return size_add(&sum, a, b) ? sum : SIZE_MAX;
}

// Columns of a head of gradients of queries: those of the matrix kernels are as wide as their
// tiles.
static int64_t padded(int64_t D)
{
    return D <= 64 ? 64 : D <= 128 ? 128 : D;
}

// Few queries at a time are decoded over parts of the keys, which are no smaller than a pair of
// tiles.
static size_t of_decoding(int64_t B, int64_t L, int64_t H, int64_t D, bool training)
{
    const int64_t queries = L < DECODE_QUERIES ? L : (int64_t)DECODE_QUERIES;

    if (training && L > DECODE_QUERIES)
        return 0;
    return bytes_of(B, H, queries, ceil_div(L, BLOCK_KEYS), D + 1, sizeof(float));
}

static void count_forward(size_t bytes[SCRATCH_PLACES], int64_t B, int64_t L, int64_t H, int64_t D,
                          bool training)
{
    bytes[SCRATCH_NORMS] = bytes_of(B, H, attention_tiles(L), sizeof(float));
    bytes[SCRATCH_KEPT] =
        bytes_of(B, H, attention_tiles(L), attention_kept_words(L), sizeof(uint32_t));
    bytes[SCRATCH_PARTS] = of_decoding(B, L, H, D, training);
}

// Of biases: the slopes' one per query, or a table per block of keys.
static void count_attention_backward(size_t bytes[SCRATCH_PLACES], int64_t B, int64_t L, int64_t H,
                                     int64_t D)
{
    const size_t table = bytes_of(B, H, ceil_div(L, BLOCK_KEYS), TABLE_LARGEST, sizeof(float));

    bytes[SCRATCH_QUERIES] =
        bytes_of(B, H, attention_tiles(L), ATTENTION_TILE, padded(D), sizeof(float));
    bytes[SCRATCH_ROWS] = bytes_of(B, H, L, sizeof(float));
    bytes[SCRATCH_TURNS] = bytes_of(B, H, attention_tiles(L), sizeof(int));
    bytes[SCRATCH_BIAS] = larger(table, bytes_of(B, H, L, sizeof(float)));
}

static void count_backward(struct cuda *c, size_t bytes[SCRATCH_PLACES], int64_t rows, int64_t C)
{
    const size_t of_rows = larger(cuda_norm_bytes(rows, C), cuda_aside_bytes(rows, C));

    bytes[SCRATCH_SUMS] = larger(of_rows, cuda_column_bytes(WIDEST * C));
    bytes[SCRATCH_SORT] = cuda_sorting_bytes(c, rows);
}

extern "C" size_t cuda_workspace(struct device *dev, int64_t B, int64_t L, int64_t H, int64_t D,
                                 bool training)
{
    size_t bytes[SCRATCH_PLACES] = {}, rows = bytes_of(B, L), total = BLAS_WORKSPACE + CODE;

    if (rows > INT32_MAX || bytes_of(H, D) > INT32_MAX)
        return SIZE_MAX;
    count_forward(bytes, B, L, H, D, training);
    if (training) {
        count_attention_backward(bytes, B, L, H, D);
        count_backward(cuda_of(dev), bytes, (int64_t)rows, H * D);
    }
    for (int place = 0; place < SCRATCH_PLACES; place++)
        total = add(add(total, bytes[place]), SCRATCH_GRAIN);
    return total;
}
