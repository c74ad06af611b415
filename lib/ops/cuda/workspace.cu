// workspace.cu - how much memory this backend will allocate for itself
//
//   cuBLASLt's workspace + the most that a pass asks of each scratch place + the autotuner + code
//
// Each place is counted by the expression that asks for it, rounded up as in device.c. Where that
// depends on facts that are not known here, the larger case counts: a bias with a table of the
// largest size that stays in shared memory, if the model has no longer one, no record of the tiles
// by the caller, as many key heads as query heads. The page-locked staging memory is host memory.
#include "ops/cuda/attention.cuh"

namespace
{

enum {
    CODE = 64 << 20, // kernels, which the driver loads when they are first used
    WIDEST = 8,      // a layer has at most 8 C columns: the two halves of swiglu with F = 4 C
};

template <class... Factors> size_t bytes_of(Factors... factors)
{
    const int64_t all[] = { (int64_t)factors... };

    return cuda_bytes(all, (int)sizeof...(factors));
}

// SIZE_MAX stays SIZE_MAX.
size_t add(size_t a, size_t b)
{
    size_t sum;

    return size_add(&sum, a, b) ? sum : SIZE_MAX;
}

} // namespace

extern "C" size_t cuda_workspace(struct device *dev, const struct workspace_args *a)
{
    struct context *c = cuda_of(dev);
    const int64_t B = a->B, L = a->L, H = a->H, D = a->D, tiles = attention_tiles(L);
    const size_t rows = bytes_of(B, L), width = bytes_of(H, D);
    size_t bytes[SCRATCH_PLACES] = {}, total = CODE + (a->wide ? WIDE_WORKSPACE : BLAS_WORKSPACE);

    if (rows > INT32_MAX || width > INT32_MAX)
        return SIZE_MAX;
    const int64_t C = (int64_t)width;

    // Forward. Decoding has few queries at a time, over parts no smaller than a pair of tiles.
    bytes[SCRATCH_NORMS] = bytes_of(2, B, H, tiles, sizeof(float));
    bytes[SCRATCH_KEPT] = bytes_of(B, H, tiles, attention_kept_words(L), sizeof(uint32_t));
    const int64_t longest = max(max(L, a->distances), (int64_t)TABLE_LARGEST);
    bytes[SCRATCH_BIAS] = max(bytes_of(H, longest + 2 * TABLE_AROUND, sizeof(float)),
                              bytes_of(B, H, ceil_div(L, BLOCK_KEYS), BLOCK_KEYS, sizeof(float)));
    bytes[SCRATCH_DECODE] = cuda_decode_bytes(C, C > 0 ? ceil_div(a->largest, C) : 0);
    if (!a->training || L <= DECODE_QUERIES) {
        const int64_t queries = min(L, (int64_t)DECODE_QUERIES);
        bytes[SCRATCH_PARTS] =
            bytes_of(B, H, queries, ceil_div(L, BLOCK_KEYS), D + 1, sizeof(float));
        bytes[SCRATCH_COUNTERS] = bytes_of(B, H, queries, sizeof(int));
    }

    // Lists of forward have a word and a count per row at least, those of backward a column per
    // block of keys.
    if (c->lists_from > 0 && L >= c->lists_from)
        bytes[SCRATCH_LISTS] =
            max(bytes_of(B, H, ceil_div(L, BLOCK_KEYS), ceil_div(tiles, 64) + 1, sizeof(uint32_t)),
                bytes_of(B, H, ceil_div(L, BLOCK_KEYS) * attention_kept_words(L) + 2,
                         sizeof(uint32_t)));

    // Backward. Heads are padded to 64 or 128 columns of dQ, and by mma.sync rows to 128; its
    // smallest tiles have 32 queries and 64 keys. The gradient of the bias is a number per query
    // (slopes) or a table per block of keys, by wgmma two if it is long.
    if (a->training) {
        const int64_t padded = D <= 64 ? 64 : D <= 128 ? 128 : D;
        const int64_t padded_rows = c->mma_sync ? ceil_div(L, 128) * 128 : tiles * ATTENTION_TILE;
        const int64_t semaphores = c->mma_sync ? ceil_div(L, 32) : tiles;
        const int64_t blocks = c->mma_sync ? tiles : ceil_div(L, BLOCK_KEYS);
        const int64_t entries = a->distances <= TABLE_LARGEST ? (int64_t)TABLE_LARGEST
                                : c->mma_sync                 ? a->distances
                                                              : 2 * a->distances;
        const size_t table = bytes_of(B, H, blocks, entries, sizeof(float));
        const size_t of_rows =
            max(cuda_norm_bytes((int64_t)rows, C), cuda_aside_bytes((int64_t)rows, C));

        bytes[SCRATCH_QUERIES] = bytes_of(B, H, padded_rows, padded, sizeof(float));
        bytes[SCRATCH_ROWS] = bytes_of(B, H, L, sizeof(float));
        bytes[SCRATCH_SEMAPHORES] = add(bytes_of(B, H, semaphores, sizeof(int)), sizeof(int));
        bytes[SCRATCH_BIAS] =
            max(bytes[SCRATCH_BIAS], max(table, bytes_of(B, H, L, sizeof(float))));
        bytes[SCRATCH_SUMS] = max(of_rows, cuda_column_bytes(WIDEST * C));
        bytes[SCRATCH_SORT] = cuda_sorting_bytes(c, (int64_t)rows);

        // The autotuner tries a weight gradient on a copy.
        total = add(total, bytes_of(a->largest, sizeof(float)));
    }
    for (int place = 0; place < SCRATCH_PLACES; place++)
        total = add(add(total, bytes[place]), SCRATCH_GRAIN);
    return total;
}
