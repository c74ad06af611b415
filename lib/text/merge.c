/* merge.c - the merges of BPE
 *
 * A piece starts as its bytes, or as its characters. Among all neighbours that have a merge, the
 * pair of least rank becomes one symbol, the leftmost if several have it. This repeats until no
 * neighbours have a merge. Short pieces search all pairs each time. Long ones keep them in a heap,
 * so that no text takes more than O(n log n). */
#include <stdlib.h>
#include <string.h>

#include "text/pattern.h"
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

/* ---- alphabets */

static int compare_codes(const void *a, const void *b)
{
    uint32_t x = ((const struct character_id *)a)->code, y = ((const struct character_id *)b)->code;

    return (x > y) - (x < y);
}

alibi_status alphabet_init(struct alphabet *a, const struct bpe_file *f)
{
    memcpy(a->bytes, f->byte_ids, sizeof a->bytes);
    a->characters = f->characters;
    if (!f->characters)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&a->sorted, f->vocab, "the characters of a tokenizer"));
    for (int64_t id = 0, next = 0; id < f->vocab; id++) {
        const struct slice *token = &f->tokens[id];
        bool added = next < f->added_count && f->added[next].id == id;
        bool outside = added && !f->added[next].in_vocab;
        uint32_t code = 0;
        next += added;
        if (token->bytes > 4 || outside || utf8_valid_prefix(token->at, token->bytes) == 0 ||
            utf8_take(token->at, &code) != token->bytes)
            continue;
        if (code >= 0x80 || a->bytes[code] != id) /* a byte may look like a character */
            a->sorted[a->count++] = (struct character_id){ code, (int32_t)id };
    }
    qsort(a->sorted, (size_t)a->count, sizeof *a->sorted, compare_codes);
    return ALIBI_OK;
}

void alphabet_fini(struct alphabet *a)
{
    mem_free(a->sorted);
    *a = (struct alphabet){ 0 };
}

/* -1: the character has no id. */
static int32_t id_of_character(const struct alphabet *a, uint32_t code)
{
    int64_t low = 0, high = a->count;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (a->sorted[middle].code == code)
            return a->sorted[middle].id;
        if (a->sorted[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* symbols has room for as many as the piece has bytes. */
static size_t first_symbols(const struct alphabet *a, const char *piece, size_t bytes,
                            int32_t *symbols)
{
    size_t count = 0, step;

    if (!a->characters || utf8_valid_prefix(piece, bytes) < bytes) {
        for (size_t i = 0; i < bytes; i++)
            symbols[i] = a->bytes[(unsigned char)piece[i]];
        return bytes;
    }
    for (size_t at = 0; at < bytes; at += step) {
        uint32_t code;
        int32_t id;
        step = utf8_take(piece + at, &code);
        id = id_of_character(a, code);
        if (id >= 0)
            symbols[count++] = id;
        for (size_t i = 0; i < step && id < 0; i++)
            symbols[count++] = a->bytes[(unsigned char)piece[at + i]];
    }
    return count;
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

static alibi_status merge_short(const struct merge_table *t, const struct alphabet *a,
                                const char *piece, size_t bytes, struct ids *ids)
{
    int32_t symbols[SHORT_BYTES];
    struct symbol s[SHORT_BYTES];
    int count = (int)first_symbols(a, piece, bytes, symbols);

    TRY_RETURN(ids_reserve(ids, count));
    for (int i = 0; i < count; i++)
        s[i].id = symbols[i];
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
 * Symbols are a doubly linked list, indexed by their first symbol; an index that was merged away
 * has symbol -1. The heap holds rank << 32 | index. An entry is skipped if its pair is gone or has
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

static alibi_status merge_long(const struct merge_table *t, const struct alphabet *a,
                               struct merge_room *r, const char *piece, size_t bytes,
                               struct ids *ids)
{
    size_t count = 0, length; /* of heap entries, of symbols */

    TRY_RETURN(make_room(r, bytes));
    length = first_symbols(a, piece, bytes, r->symbols);
    for (size_t i = 0; i < length; i++) {
        r->previous[i] = (int32_t)i - 1;
        r->next[i] = i + 1 < length ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < length; i++) {
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

alibi_status merge_piece(const struct merge_table *t, const struct alphabet *a,
                         struct merge_room *r, const char *piece, size_t bytes, struct ids *ids)
{
    alibi_status status;

    if (bytes <= SHORT_BYTES)
        return merge_short(t, a, piece, bytes, ids);
    status = merge_long(t, a, r, piece, bytes, ids);
    if (r->capacity > ROOM_KEPT)
        merge_room_fini(r);
    return status;
}
