/* merge.c - the merges of byte-level BPE
 *
 * A piece starts as its bytes. Of all neighbours that have a merge, the pair of least rank becomes
 * one symbol, the leftmost if several have it. This repeats until no neighbours have a merge. Short
 * pieces search all pairs each time. Long ones keep them in a heap, so that no text takes more than
 * O(n log n). */
#include <string.h>

#include "text/tokenizer.h"

enum { SHORT_BYTES = 40, ROOM_KEPT = 32 << 10, NO_RANK = INT32_MAX };

/* ---- the table */

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of the pair, or the free one for it. */
static struct merge_slot *find_slot(const struct merge_table *t, uint64_t pair)
{
    uint64_t h = (pair ^ pair >> 32) * 0x9E3779B97F4A7C15u;
    size_t mask = ((size_t)1 << (64 - t->shift)) - 1, slot = (size_t)(h >> t->shift);

    while (t->slots[slot].pair != pair && t->slots[slot].pair != MERGE_FREE)
        slot = (slot + 1) & mask;
    return &t->slots[slot];
}

alibi_status merge_table_init(struct merge_table *t, const struct bpe_merge *merges, int64_t count)
{
    int bits = 4;

    if (count < 0 || count >= NO_RANK / 2)
        return fail(ALIBI_BAD_INPUT, "%lld merges are too many", (long long)count);
    while (((int64_t)1 << bits) < 2 * count)
        bits++;
    t->shift = 64 - bits;
    TRY_RETURN(NEW_ARRAY(&t->slots, (int64_t)1 << bits, "the merges of a tokenizer"));
    for (int64_t i = 0; i < (int64_t)1 << bits; i++)
        t->slots[i] = (struct merge_slot){ MERGE_FREE, NO_RANK, 0 };
    for (int64_t i = 0; i < count; i++) {
        uint64_t pair = pair_of(merges[i].left, merges[i].right);
        *find_slot(t, pair) = (struct merge_slot){ pair, (int32_t)i, merges[i].result };
    }
    return ALIBI_OK;
}

void merge_table_fini(struct merge_table *t)
{
    mem_free(t->slots);
    *t = (struct merge_table){ 0 };
}

static int32_t rank_of(const struct merge_table *t, int32_t left, int32_t right, int32_t *result)
{
    const struct merge_slot *s = find_slot(t, pair_of(left, right));

    *result = s->result;
    return s->rank;
}

/* ---- short pieces */

/* A symbol, and the rank and result of its merge with its right neighbour. */
struct symbol {
    int32_t id, rank, result;
};

static void look_up(const struct merge_table *t, struct symbol *s, int i, int count)
{
    s[i].rank = NO_RANK;
    if (i + 1 < count)
        s[i].rank = rank_of(t, s[i].id, s[i + 1].id, &s[i].result);
}

static alibi_status merge_short(const struct merge_table *t, const int32_t byte_ids[256],
                                const char *piece, int bytes, struct ids *ids)
{
    struct symbol s[SHORT_BYTES];
    int count = bytes;

    TRY_RETURN(ids_reserve(ids, bytes));
    for (int i = 0; i < count; i++)
        s[i].id = byte_ids[(unsigned char)piece[i]];
    for (int i = 0; i < count; i++)
        look_up(t, s, i, count);
    while (count > 1) {
        int i = 0;
        for (int k = 1; k < count; k++)
            if (s[k].rank < s[i].rank)
                i = k;
        if (s[i].rank == NO_RANK)
            break;
        s[i].id = s[i].result;
        count--;
        memmove(&s[i + 1], &s[i + 2], (size_t)(count - i - 1) * sizeof *s);
        look_up(t, s, i, count);
        if (i > 0)
            look_up(t, s, i - 1, count);
    }
    for (int i = 0; i < count; i++)
        ids->at[ids->count++] = s[i].id;
    return ALIBI_OK;
}

/* ---- long pieces
 *
 * Symbols are a doubly linked list, indexed by their first byte; an index that was merged away has
 * symbol -1. The heap holds rank << 32 | index. An entry is skipped if its pair is gone or has
 * another rank now. Each merge removes one entry and adds at most two, so there are at most two for
 * each byte.
 *
 * Each byte of the piece takes 28 bytes of scratch, so a thread keeps at most ROOM_KEPT. */

void merge_room_fini(struct merge_room *r)
{
    mem_free(r->symbols);
    mem_free(r->next);
    mem_free(r->previous);
    mem_free(r->heap);
    *r = (struct merge_room){ 0 };
}

static alibi_status make_room(struct merge_room *r, size_t bytes)
{
    size_t capacity = bytes > ROOM_KEPT ? bytes : ROOM_KEPT;

    if (bytes <= r->capacity)
        return ALIBI_OK;
    merge_room_fini(r);
    TRY_RETURN(NEW_ARRAY(&r->symbols, (int64_t)capacity, "a long piece of text"));
    TRY_RETURN(NEW_ARRAY(&r->next, (int64_t)capacity, "a long piece of text"));
    TRY_RETURN(NEW_ARRAY(&r->previous, (int64_t)capacity, "a long piece of text"));
    TRY_RETURN(NEW_ARRAY(&r->heap, 2 * (int64_t)capacity, "a long piece of text"));
    r->capacity = capacity;
    return ALIBI_OK;
}

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t entry = heap[at];

    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (entry <= heap[child])
            break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static uint64_t pop(uint64_t *heap, size_t *count)
{
    uint64_t least = heap[0];

    heap[0] = heap[--*count];
    if (*count > 0)
        sift_down(heap, *count, 0);
    return least;
}

static void push(uint64_t *heap, size_t *count, uint64_t entry)
{
    size_t at = (*count)++;

    for (; at > 0 && heap[(at - 1) / 2] > entry; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static int32_t rank_at(const struct merge_table *t, const struct merge_room *r, int32_t at,
                       int32_t *result)
{
    if (r->symbols[at] < 0 || r->next[at] < 0)
        return NO_RANK;
    return rank_of(t, r->symbols[at], r->symbols[r->next[at]], result);
}

static void push_pair(const struct merge_table *t, struct merge_room *r, size_t *heap_count,
                      int32_t at)
{
    int32_t result, rank = at < 0 ? NO_RANK : rank_at(t, r, at, &result);

    if (rank != NO_RANK)
        push(r->heap, heap_count, (uint64_t)rank << 32 | (uint64_t)at);
}

static alibi_status merge_long(const struct merge_table *t, const int32_t byte_ids[256],
                               struct merge_room *r, const char *piece, size_t bytes,
                               struct ids *ids)
{
    size_t count = 0; /* of heap entries */

    TRY_RETURN(make_room(r, bytes));
    for (size_t i = 0; i < bytes; i++) {
        r->symbols[i] = byte_ids[(unsigned char)piece[i]];
        r->previous[i] = (int32_t)i - 1;
        r->next[i] = i + 1 < bytes ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < bytes; i++) {
        int32_t result, rank = rank_at(t, r, (int32_t)i, &result);
        if (rank != NO_RANK)
            r->heap[count++] = (uint64_t)rank << 32 | i;
    }
    for (size_t i = count / 2; i-- > 0;)
        sift_down(r->heap, count, i);

    while (count > 0) {
        uint64_t entry = pop(r->heap, &count);
        int32_t at = (int32_t)(entry & UINT32_MAX), result = -1, gone;
        if (rank_at(t, r, at, &result) != (int32_t)(entry >> 32))
            continue;
        /* The symbol absorbs its right neighbour. */
        gone = r->next[at];
        r->symbols[at] = result;
        r->symbols[gone] = -1;
        r->next[at] = r->next[gone];
        if (r->next[at] >= 0)
            r->previous[r->next[at]] = at;
        push_pair(t, r, &count, at);
        push_pair(t, r, &count, r->previous[at]);
    }
    for (int32_t at = 0; at >= 0; at = r->next[at])
        TRY_RETURN(ids_append(ids, &r->symbols[at], 1));
    return ALIBI_OK;
}

alibi_status merge_piece(const struct merge_table *t, const int32_t byte_ids[256],
                         struct merge_room *r, const char *piece, size_t bytes, struct ids *ids)
{
    alibi_status status;

    if (bytes <= SHORT_BYTES)
        return merge_short(t, byte_ids, piece, (int)bytes, ids);
    status = merge_long(t, byte_ids, r, piece, bytes, ids);
    if (r->capacity > ROOM_KEPT)
        merge_room_fini(r);
    return status;
}
