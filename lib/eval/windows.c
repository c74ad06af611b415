/* windows.c - which tokens are scored, and which are read to score them; eval.h has the rules */
#include "eval/eval.h"

/* With fewer blocks than this their spread says little, and each is cut into stretches. */
enum { FEW_BLOCKS = 8 };

/* ---- blocks */

/* A single block comes from the middle of the span: texts begin with title pages and tables of
 * contents, and their middle is more like the rest. */
struct blocks blocks_of(int64_t all, int64_t tokens, int64_t size, bool contiguous)
{
    struct blocks b = { .all = all, .size = all, .count = 1 };

    if (tokens <= 0 || tokens >= all)
        return b;
    b.size = size > 0 && size < tokens && !contiguous ? size : tokens;
    b.count = tokens / b.size;
    if (b.count == 1 && !contiguous)
        b.first = (all - b.size) / 2;
    return b;
}

struct blocks blocks_spread(int64_t tokens, int64_t length, int64_t most)
{
    int64_t count = tokens / length < most ? tokens / length : most;

    return (struct blocks){ .all = tokens,
                            .size = length,
                            .count = count,
                            .first = count == 1 ? (tokens - length) / 2 : 0 };
}

/* first + floor(k (all - size) / (count - 1)), computed without overflow. Blocks do not overlap:
 * their starts differ by floor((all - size) / (count - 1)) or more, and count * size <= all. */
int64_t blocks_start(const struct blocks *b, int64_t k)
{
    int64_t gaps = b->count - 1, room = b->all - b->size;

    if (gaps == 0)
        return b->first;
    return k * (room / gaps) + k * (room % gaps) / gaps;
}

/* Stretches per block, if there are few. */
static int64_t stretches(const struct blocks *b)
{
    int64_t most = ALIBI_EVAL_PARTS / b->count;

    return b->size < most ? b->size : most;
}

int blocks_parts(const struct blocks *b)
{
    if (b->count < FEW_BLOCKS)
        return (int)(b->count * stretches(b));
    return b->count < ALIBI_EVAL_PARTS ? (int)b->count : ALIBI_EVAL_PARTS;
}

int blocks_part(const struct blocks *b, int64_t index)
{
    int64_t k = index / b->size, i = index % b->size;

    if (b->count < FEW_BLOCKS)
        return (int)(k * stretches(b) + i * stretches(b) / b->size);
    return (int)(k * blocks_parts(b) / b->count);
}

/* ---- windows */

/* Tokens before the block that its first window reads. Only block 0 may have fewer than L - S: the
 * others start after it, and it is at least L long. */
static int64_t context_before(const struct windows *w, int64_t start)
{
    int64_t most = w->length - w->stride;

    return start < most ? start : most;
}

struct windows windows_of(struct blocks blocks, int64_t length, int64_t stride)
{
    struct windows w = { .blocks = blocks, .length = length, .stride = stride };

    for (int other = 0; other < 2 && other < blocks.count; other++) {
        int64_t inputs = context_before(&w, blocks_start(&blocks, other)) + blocks.size;
        int64_t full = inputs < length ? 0 : (inputs - length) / stride + 1;
        /* After the full windows, are there targets that no window has scored? */
        bool rest = full == 0 || (full - 1) * stride + length < inputs;

        w.full[other] = full;
        w.tail[other] = rest ? inputs - full * stride : 0;
        w.count += (full + rest) * (other ? blocks.count - 1 : 1);
    }
    w.scored = blocks.count * blocks.size;
    return w;
}

struct window windows_at(const struct windows *w, int64_t k)
{
    int64_t others = w->blocks.count - 1, block, j, before, start;

    if (w->list)
        return w->list[k];
    if (k < w->full[0]) {
        block = 0;
        j = k;
    } else if (k - w->full[0] < others * w->full[1]) {
        block = 1 + (k - w->full[0]) / w->full[1];
        j = (k - w->full[0]) % w->full[1];
    } else {
        block = k - w->full[0] - others * w->full[1] + (w->tail[0] == 0);
        j = w->full[block > 0];
    }
    start = blocks_start(&w->blocks, block);
    before = context_before(w, start);
    return (struct window){
        .start = start - before + j * w->stride,
        .inputs = j < w->full[block > 0] ? w->length : w->tail[block > 0],
        .first = j == 0 ? before : w->length - w->stride,
        .index =
            block * w->blocks.size + (j == 0 ? 0 : j * w->stride - before + w->length - w->stride),
    };
}
