// attention_lists.cu - lists of the tiles that attention visits where keys are skipped
//
// Forward walks along the row of a query block; attention_bounds.cu writes that list, and this file
// only reserves its memory. Backward walks down the column of a key block. In skipping.kept each
// step is a load from another row: a thousand loads at 64K tokens, for a few dozen tiles. So the
// bits are transposed first.
//
// Thread blocks of the backward pass start in the order of their number, and the head with the
// flattest slope has many times the work of the steepest. If it comes last, most of the GPU waits
// for its first keys; therefore heads are sorted, those with most to do first. Within a head the
// order stays as the semaphores need it.
#include "ops/cuda/attention.cuh"

namespace
{

enum {
    TRANSPOSE_THREADS = 256, // a warp per 32 query tiles and 16 key blocks
    MOST_SORTED = 1024,      // heads; of more than these the last one is a small part
};

// A word of a row of kept holds the bits of 16 key blocks: two tiles each.
enum { BLOCKS_PER_WORD = 32 * ATTENTION_TILE / BLOCK_KEYS };

struct transposition {
    struct kept_tiles kept;
    struct query_lists to;
    int H, group; // heads; query heads per key head
    int blocks;   // of keys
    int64_t warps;
};

// A lane per query tile: one load, then a vote per key block.
__global__ void __launch_bounds__(TRANSPOSE_THREADS) transpose_kernel(struct transposition t)
{
    const int64_t warp = ((int64_t)blockIdx.x * TRANSPOSE_THREADS + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32, word = (int)(warp % t.kept.words),
              tiles = (int)(warp / t.kept.words % t.to.words);
    const int64_t head = warp / t.kept.words / t.to.words;
    const int tile = 32 * tiles + lane;
    int used = 0;

    if (warp >= t.warps)
        return;
    const uint32_t bits = tile < t.kept.rows ? t.kept.row(head, tile)[word] : 0;
    for (int n = 0; n < BLOCKS_PER_WORD && word * BLOCKS_PER_WORD + n < t.blocks; n++) {
        const uint32_t users = __ballot_sync(0xffffffffu, bits >> 2 * n & 3);
        used += __popc(users);
        if (lane == 0)
            t.to.bits[(head * t.blocks + word * BLOCKS_PER_WORD + n) * t.to.words + tiles] = users;
    }
    if (t.to.order && lane == 0 && used > 0)
        atomicAdd(t.to.work + (head / t.H * (t.H / t.group) + head % t.H / t.group), used);
}

// The place of a head is the number of those before it. Sums of whole numbers do not depend on the
// order of blocks, so neither does this.
__global__ void __launch_bounds__(MOST_SORTED) sort_kernel(struct query_lists lists, int heads)
{
    __shared__ int work[MOST_SORTED];
    const int me = (int)threadIdx.x;
    int before = 0;

    work[me] = me < heads ? lists.work[me] : 0;
    __syncthreads();
    if (me >= heads)
        return;
    for (int other = 0; other < heads; other++)
        before += work[other] > work[me] || (work[other] == work[me] && other < me);
    lists.order[before] = me;
}

int64_t key_list_rows(const struct attention_shape &s, int block_queries)
{
    return (int64_t)s.B * s.H * ceil_div(s.Lq, block_queries);
}

int64_t key_list_words(const struct attention_shape &s)
{
    return ceil_div(s.Lk, (int64_t)32 * BLOCK_KEYS);
}

} // namespace

// A row has its words and its count.
size_t key_lists_bytes(const struct attention_shape &s, int block_queries)
{
    const int64_t factors[] = { key_list_rows(s, block_queries), key_list_words(s) + 1,
                                (int64_t)sizeof(uint32_t) };

    return cuda_bytes(factors, 3);
}

alibi_status reserve_key_lists(struct context *c, const struct attention_shape &s,
                               int block_queries, struct key_lists *out)
{
    struct key_lists lists = { .blocks = (int)ceil_div(s.Lq, block_queries),
                               .words = (int)key_list_words(s) };

    TRY_RETURN(
        cuda_scratch(c, SCRATCH_LISTS, key_lists_bytes(s, block_queries), (void **)&lists.bits));
    lists.counts = (int *)(lists.bits + key_list_rows(s, block_queries) * lists.words);
    *out = lists;
    return ALIBI_OK;
}

// The bits, and two numbers for each key head.
size_t query_lists_bytes(const struct attention_shape &s)
{
    const int64_t words = attention_kept_words(s.Lq), blocks = ceil_div(s.Lk, BLOCK_KEYS);
    const int64_t factors[] = { s.B, s.H, words * blocks + 2, (int64_t)sizeof(uint32_t) };

    return cuda_bytes(factors, 4);
}

alibi_status make_query_lists(struct context *c, const struct attention_shape &s,
                              struct kept_tiles kept, struct query_lists *out)
{
    const int heads = s.B * s.Hkv;
    struct transposition t = { .kept = kept,
                               .to = { .words = (int)attention_kept_words(s.Lq) },
                               .H = s.H,
                               .group = s.H / s.Hkv,
                               .blocks = (int)ceil_div(s.Lk, BLOCK_KEYS) };
    int64_t bits = (int64_t)s.B * s.H * t.blocks * t.to.words;

    t.warps = (int64_t)s.B * s.H * t.to.words * kept.words;
    TRY_RETURN(cuda_scratch(c, SCRATCH_LISTS, query_lists_bytes(s), (void **)&t.to.bits));
    if (heads <= MOST_SORTED) {
        t.to.work = (int *)(t.to.bits + bits);
        t.to.order = t.to.work + heads;
        TRY_RETURN(cuda_check(cudaMemsetAsync(t.to.work, 0, sizeof(int) * heads, c->stream),
                              "attention lists"));
    }
    TRY_RETURN(launch(c, "attention lists", transpose_kernel,
                      (unsigned)ceil_div(32 * t.warps, TRANSPOSE_THREADS), TRANSPOSE_THREADS, 0,
                      t));
    if (t.to.order)
        TRY_RETURN(launch(c, "attention lists", sort_kernel, 1, (unsigned)ceil_div(heads, 32) * 32,
                          0, t.to, heads));
    *out = t.to;
    return ALIBI_OK;
}
