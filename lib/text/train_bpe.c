/* train_bpe.c - byte pair encoding (Sennrich, Haddow, Birch, ACL 2016), on bytes
 *
 *   repeat: the pair of neighbours with the highest count becomes a symbol, everywhere
 *
 * until there are `vocab` ids, or no pair occurs min_count times. Among pairs with equal counts,
 * the one with the lower left id is taken, then the one with the lower right id. The ids: 0 is the
 * end of a document, then the bytes in the order of the letters that stand for them in files, then
 * the merges. Overlapping neighbours count, so "aaa" has "aa" twice; they are merged from the left.
 * This is the order of Hugging Face's trainer, and gives its tokenizers.
 *
 * No two merges give the same token. Text between two places that no symbol spans is merged as if
 * it were alone, so from the moment some text is one token, it is that token everywhere between two
 * such places. (The one exception is the text of the end: if the pattern does not cut it, it is
 * merged, and keeps the id that it has.)
 *
 * Merging a, b to r changes only the counts of neighbouring pairs: in x a b y, (x, a) and (b, y)
 * lose the count that (x, r) and (r, y) gain. Each occurrence is visited once when it is merged,
 * and at most once more when it is found to be gone. Each merge removes a symbol. So the total time
 * is linear in the size of the distinct pieces. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/vocabulary.h"

/* ---- the text
 *
 * Every distinct piece once, a cell for each of its bytes, a border before it and after it. A
 * symbol of n bytes covers n cells. Its first and last cell hold its id, the others nothing. So the
 * next symbol is n cells after the first cell, and the cell before that is the last one of the
 * previous symbol. Pieces are sorted by falling count, so the index of a cell gives the count of
 * its piece. */
#define CELL_NONE UINT32_MAX /* a border, or within a symbol */

struct weight_group {
    uint32_t first; /* cell of the group */
    int64_t count;  /* of each of its pieces */
};

struct cells {
    uint32_t *at;
    int64_t count;
    struct weight_group *groups;
    int64_t group_count;
    uint32_t *group_of; /* of the cell i << GROUP_SHIFT */
};
enum { GROUP_SHIFT = 6 };

static int by_falling_count(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;

    return (a->count < b->count) - (a->count > b->count);
}

/* symbols [256]: the id of each byte. */
static alibi_status cells_init(struct cells *c, const struct tally *t, const uint32_t *symbols)
{
    alibi_status status;
    struct piece *pieces = NULL;
    size_t total = tally_bytes(t) + (size_t)tally_count(t) + 1; /* bytes and borders */
    int64_t count = 0, groups = 0, n = 0, g = 0;

    if (total >= CELL_NONE)
        return fail(ALIBI_MEMORY, "not enough memory for a text of %zu bytes in distinct pieces",
                    tally_bytes(t));
    TRY(tally_list(t, &pieces, &count));
    qsort(pieces, (size_t)count, sizeof *pieces, by_falling_count);
    for (int64_t i = 0; i < count; i++)
        groups += i == 0 || pieces[i].count != pieces[i - 1].count;
    TRY(NEW_ARRAY(&c->at, (int64_t)total, "the text as symbols"));
    TRY(NEW_ARRAY(&c->groups, groups, "the counts of pieces"));
    TRY(NEW_ARRAY(&c->group_of, (int64_t)(total >> GROUP_SHIFT) + 1, "the counts of pieces"));
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || pieces[i].count != pieces[i - 1].count)
            c->groups[c->group_count++] = (struct weight_group){ (uint32_t)n, pieces[i].count };
        c->at[n++] = CELL_NONE;
        for (uint32_t k = 0; k < pieces[i].bytes; k++)
            c->at[n++] = symbols[(unsigned char)pieces[i].at[k]];
    }
    c->at[n++] = CELL_NONE;
    c->count = n;
    for (int64_t i = 0; i <= c->count >> GROUP_SHIFT; i++) {
        while (g + 1 < c->group_count && c->groups[g + 1].first <= i << GROUP_SHIFT)
            g++;
        c->group_of[i] = (uint32_t)g;
    }
out:
    mem_free(pieces);
    return status;
}

static int64_t cells_weight(const struct cells *c, uint32_t cell)
{
    int64_t g = c->group_of[cell >> GROUP_SHIFT];

    while (g + 1 < c->group_count && c->groups[g + 1].first <= cell)
        g++;
    return c->groups[g].count;
}

/* ---- pairs of neighbours */

struct pair {
    uint64_t key;     /* left id, right id: in the order in which ties are broken */
    int64_t count;    /* occurrences, weighted by those of the pieces */
    uint32_t *places; /* first cells of all occurrences, ascending, and of some that are gone */
    int64_t place_count;
};

static uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* A pair in the heap, with the count that it had when it was added. Counts only fall, so a
 * candidate with an outdated count is put back with the current one. */
struct candidate {
    int64_t count;
    uint64_t key;
    uint32_t pair;
};

struct pairs {
    struct pair *at;
    int64_t count, capacity;
    struct hash table; /* of pairs by their key */
    struct arena places;
    struct candidate *heap;
    int64_t heap_count, heap_capacity;
};

enum { PAIRS_FIRST = 1 << 11, PLACES_CHUNK = 1 << 20 };

static uint32_t *find_slot(const struct pairs *p, uint64_t key)
{
    uint32_t *slot = hash_slot(&p->table, key * 0x9E3779B97F4A7C15u >> 32);

    while (*slot != 0 && p->at[*slot - 1].key != key)
        slot = hash_next(&p->table, slot);
    return slot;
}

/* The heap: the best candidate is at 0, the two below the one at i are at 2 i + 1 and 2 i + 2. */

static bool better(const struct candidate *a, const struct candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void sink(struct pairs *p, struct candidate c)
{
    int64_t i = 0, below = 1;

    while (below < p->heap_count) {
        if (below + 1 < p->heap_count && better(&p->heap[below + 1], &p->heap[below]))
            below++;
        if (!better(&p->heap[below], &c))
            break;
        p->heap[i] = p->heap[below];
        i = below;
        below = 2 * i + 1;
    }
    p->heap[i] = c;
}

/* A pair that is not there yet; the caller fills in its places. */
static alibi_status pairs_add(struct pairs *p, uint64_t key, int64_t count, int64_t place_count,
                              uint32_t **places)
{
    struct pair pair = { .key = key, .count = count, .place_count = place_count };
    struct candidate c = { count, key, (uint32_t)p->count };
    int64_t i;

    if (p->count == p->capacity) {
        int64_t capacity = p->capacity > 0 ? 2 * p->capacity : PAIRS_FIRST;
        TRY_RETURN(mem_grow((void **)&p->at, (size_t)p->count * sizeof *p->at,
                            (size_t)capacity * sizeof *p->at, "pairs"));
        TRY_RETURN(hash_init(&p->table, capacity, "pairs"));
        p->capacity = capacity;
        for (i = 0; i < p->count; i++)
            *find_slot(p, p->at[i].key) = (uint32_t)i + 1;
    }
    TRY_RETURN(RESERVE_ARRAY(&p->heap, &p->heap_capacity, p->heap_count + 1, "pairs"));
    p->places.chunk_bytes = PLACES_CHUNK;
    TRY_RETURN(arena_new(&p->places, (void **)&pair.places,
                         (size_t)place_count * sizeof *pair.places, "the places of a pair"));
    for (i = p->heap_count++; i > 0 && better(&c, &p->heap[(i - 1) / 2]); i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = c;
    p->at[p->count++] = pair;
    *find_slot(p, key) = (uint32_t)p->count;
    *places = pair.places;
    return ALIBI_OK;
}

/* A pair that is not there, because it was too rare from the start, is skipped. */
static void pairs_subtract(struct pairs *p, uint64_t key, int64_t count)
{
    uint32_t slot = *find_slot(p, key);

    if (slot != 0)
        p->at[slot - 1].count -= count;
}

/* The most frequent pair, of equals the one with the lowest ids; NULL if none occurs min_count
 * times. It is not considered again. Borrowed until the next pairs_add. */
static struct pair *pairs_take_best(struct pairs *p, int64_t min_count)
{
    while (p->heap_count > 0) {
        struct candidate c = p->heap[0];
        struct pair *pair = &p->at[c.pair];
        if (c.count == pair->count || pair->count < min_count) {
            p->heap_count--;
            if (p->heap_count > 0)
                sink(p, p->heap[p->heap_count]);
            if (c.count == pair->count && c.count >= min_count)
                return pair;
        } else {
            c.count = pair->count;
            sink(p, c);
        }
    }
    return NULL;
}

/* ---- the trainer */

#define END_TEXT "<|endoftext|>"
enum { END_ID = 0, BYTES = 256 };

/* In repetitive pieces each merge may double the length of the tokens. */
enum { TOKENS_BYTES_MAX = 256 << 20 };

/* A symbol next to the merged pair, on its left or on its right. */
struct neighbour {
    int64_t weight;   /* how often, weighted */
    int64_t events;   /* at how many places */
    uint32_t *places; /* where those of the new pair are to be written; NULL: it is too rare */
};

struct side {
    struct neighbour *of; /* [vocab] by symbol */
    uint32_t *met;        /* symbols with events, in the order in which they were met */
    int64_t met_count;
    struct event {
        uint32_t symbol, place;
    } * events;
    int64_t event_count;
};

struct trainer {
    int64_t vocab, min_count;
    struct cells cells;
    struct pairs pairs;
    struct side left, right;
    int64_t event_capacity; /* of both sides */
    char **tokens;          /* [vocab] */
    uint32_t *lengths;      /* [vocab] their bytes */
    int64_t token_count;
    struct arena token_memory;
    size_t token_bytes;       /* of all tokens */
    struct bpe_merge *merges; /* [vocab] */
    int64_t merge_count;
    double began;
    const struct alibi_call *call;
};

/* ---- tokens */

/* A token of left and right together. */
static alibi_status add_token(struct trainer *t, struct slice left, struct slice right)
{
    size_t length = left.bytes + right.bytes;
    char *token = NULL;

    if (t->token_bytes + length > TOKENS_BYTES_MAX)
        return fail(
            ALIBI_BAD_INPUT,
            "the text is so repetitive that %lld tokens have %d bytes; use a smaller --vocab",
            (long long)t->token_count, TOKENS_BYTES_MAX);
    TRY_RETURN(arena_new(&t->token_memory, (void **)&token, length, "tokens"));
    memcpy(token, left.at, left.bytes);
    memcpy(token + left.bytes, right.at, right.bytes);
    t->tokens[t->token_count] = token;
    t->lengths[t->token_count++] = (uint32_t)length;
    t->token_bytes += length;
    return ALIBI_OK;
}

static struct slice token_view(const struct trainer *t, uint32_t id)
{
    return (struct slice){ t->tokens[id], t->lengths[id] };
}

/* In the order of their letters, which is not that of the bytes: bytes without a printable letter
 * follow all others. */
static alibi_status add_bytes(struct trainer *t, uint32_t *symbols)
{
    uint32_t first = 0;

    for (int i = 0; i < BYTES; i++) {
        int next = -1;
        for (int byte = 0; byte < BYTES; byte++)
            if (byte_letter((unsigned char)byte) >= first &&
                (next < 0 || byte_letter((unsigned char)byte) < byte_letter((unsigned char)next)))
                next = byte;
        first = byte_letter((unsigned char)next) + 1;
        symbols[next] = (uint32_t)t->token_count;
        TRY_RETURN(
            add_token(t, (struct slice){ &(char){ (char)next }, 1 }, (struct slice){ "", 0 }));
    }
    return ALIBI_OK;
}

/* ---- the pairs of bytes */

/* One pass counts the pairs, another notes the places of those that are frequent enough. */
static alibi_status start_pairs(struct trainer *t)
{
    alibi_status status;
    struct neighbour *seen = NULL; /* [257 * 257] */
    const uint32_t *at = t->cells.at;
    uint32_t row = BYTES + 1;

    TRY(NEW_ZERO_ARRAY(&seen, row * row, "pairs"));
    for (uint32_t i = 0; i + 1 < t->cells.count; i++)
        if (at[i] != CELL_NONE && at[i + 1] != CELL_NONE) {
            seen[at[i] * row + at[i + 1]].weight += cells_weight(&t->cells, i);
            seen[at[i] * row + at[i + 1]].events++;
        }
    for (uint32_t left = 0; left < row; left++)
        for (uint32_t right = 0; right < row; right++) {
            struct neighbour *n = &seen[left * row + right];
            if (n->weight >= t->min_count)
                TRY(pairs_add(&t->pairs, pair_key(left, right), n->weight, n->events, &n->places));
        }
    for (uint32_t i = 0; i + 1 < t->cells.count; i++)
        if (at[i] != CELL_NONE && at[i + 1] != CELL_NONE &&
            seen[at[i] * row + at[i + 1]].places != NULL)
            *seen[at[i] * row + at[i + 1]].places++ = i;
out:
    mem_free(seen);
    return status;
}

/* ---- one merge */

static void meet(struct side *s, uint32_t symbol, uint32_t place, int64_t weight)
{
    struct neighbour *n = &s->of[symbol];

    if (n->events++ == 0)
        s->met[s->met_count++] = symbol;
    n->weight += weight;
    s->events[s->event_count++] = (struct event){ symbol, place };
}

/* Puts `joined` in place of left and right wherever they are still neighbours, and notes its own
 * neighbours. */
static void merge_everywhere(struct trainer *t, const struct pair *pair, uint32_t left,
                             uint32_t right, uint32_t joined)
{
    enum { AHEAD = 12 };
    uint32_t *at = t->cells.at;

    for (int64_t i = 0; i < pair->place_count; i++) {
        uint32_t cell = pair->places[i], middle = cell + t->lengths[left];
        uint32_t next = middle + t->lengths[right];
        int64_t weight;

        if (i + AHEAD < pair->place_count)
            __builtin_prefetch(&at[pair->places[i + AHEAD]], 1);
        if (at[cell] != left || at[middle] != right)
            continue;
        weight = cells_weight(&t->cells, cell);
        at[middle - 1] = CELL_NONE;
        at[middle] = CELL_NONE;
        at[cell] = joined;
        at[next - 1] = joined;
        if (at[cell - 1] != CELL_NONE)
            meet(&t->left, at[cell - 1], cell - t->lengths[at[cell - 1]], weight);
        if (at[next] != CELL_NONE)
            meet(&t->right, at[next], cell, weight);
    }
}

/* The pairs (n, joined) or (joined, n) that are frequent enough, and then their places. */
static alibi_status add_pairs(struct trainer *t, struct side *s, uint32_t joined)
{
    for (int64_t i = 0; i < s->met_count; i++) {
        uint32_t symbol = s->met[i];
        struct neighbour *n = &s->of[symbol];
        uint64_t key = s == &t->left ? pair_key(symbol, joined) : pair_key(joined, symbol);
        if (n->weight >= t->min_count)
            TRY_RETURN(pairs_add(&t->pairs, key, n->weight, n->events, &n->places));
    }
    for (int64_t i = 0; i < s->event_count; i++) {
        struct neighbour *n = &s->of[s->events[i].symbol];
        if (n->places != NULL)
            *n->places++ = s->events[i].place;
    }
    return ALIBI_OK;
}

static void forget_events(struct side *s)
{
    for (int64_t i = 0; i < s->met_count; i++)
        s->of[s->met[i]] = (struct neighbour){ 0 };
    s->met_count = s->event_count = 0;
}

static alibi_status merge(struct trainer *t, struct pair *pair)
{
    uint32_t left = (uint32_t)(pair->key >> 32), right = (uint32_t)pair->key;
    uint32_t joined = (uint32_t)t->token_count;
    struct slice a = token_view(t, left), b = token_view(t, right);

    if (a.bytes + b.bytes == strlen(END_TEXT) && memcmp(END_TEXT, a.at, a.bytes) == 0 &&
        memcmp(&END_TEXT[a.bytes], b.at, b.bytes) == 0)
        joined = END_ID;
    else
        TRY_RETURN(add_token(t, a, b));
    if (pair->place_count > t->event_capacity) {
        mem_free(t->left.events);
        mem_free(t->right.events);
        t->left.events = t->right.events = NULL;
        t->event_capacity = 0;
        TRY_RETURN(NEW_ARRAY(&t->left.events, pair->place_count, "the places of a pair"));
        TRY_RETURN(NEW_ARRAY(&t->right.events, pair->place_count, "the places of a pair"));
        t->event_capacity = pair->place_count;
    }
    t->merges[t->merge_count++] =
        (struct bpe_merge){ (int32_t)left, (int32_t)right, (int32_t)joined };
    merge_everywhere(t, pair, left, right, joined);
    pair->count = 0;
    pair->place_count = 0;

    /* In "abab" the first merge makes a pair (r, a), and the second one removes it: there r is the
     * left neighbour of (a, b). */
    for (int64_t i = 0; i < t->left.met_count; i++)
        pairs_subtract(&t->pairs, pair_key(t->left.met[i], left),
                       t->left.of[t->left.met[i]].weight);
    for (int64_t i = 0; i < t->right.met_count; i++)
        pairs_subtract(&t->pairs, pair_key(right, t->right.met[i]),
                       t->right.of[t->right.met[i]].weight);
    t->right.of[left].weight -= t->left.of[joined].weight;
    TRY_RETURN(add_pairs(t, &t->left, joined));
    TRY_RETURN(add_pairs(t, &t->right, joined));
    forget_events(&t->left);
    forget_events(&t->right);
    return ALIBI_OK;
}

/* ---- all merges */

static void show_progress(const struct trainer *t)
{
    int64_t total = t->vocab - VOCAB_BPE_MIN;
    double seconds = clock_seconds() - t->began;

    call_progress(t->call, &(struct alibi_progress){
                               .task = "tokenizer",
                               .unit = "merges",
                               .done = t->merge_count,
                               .total = total,
                               .seconds = seconds,
                               .seconds_left = seconds_left(seconds, t->merge_count, total),
                               .loss = NAN });
}

static alibi_status merge_all(struct trainer *t)
{
    enum { REPORT_EVERY = 1000 };
    struct pair *best;

    while (t->token_count < t->vocab && (best = pairs_take_best(&t->pairs, t->min_count)) != NULL) {
        if (call_stopped(t->call))
            return fail(ALIBI_INTERRUPTED, "stopped after %lld merges; nothing is saved",
                        (long long)t->merge_count);
        TRY_RETURN(merge(t, best));
        if (t->merge_count % REPORT_EVERY == 0)
            show_progress(t);
    }
    show_progress(t);
    return ALIBI_OK;
}

/* ---- the result */

static alibi_status build_file(struct bpe_file **out, struct trainer *t, const uint32_t *symbols)
{
    alibi_status status;
    struct bpe_file *f = NULL;
    size_t at = 0;

    TRY(NEW_ZERO_ARRAY(&f, 1, "a tokenizer"));
    TRY(mem_new((void **)&f->storage, t->token_bytes, "the tokens of a tokenizer"));
    TRY(NEW_ARRAY(&f->tokens, t->token_count, "the tokens of a tokenizer"));
    for (int64_t i = 0; i < t->token_count; i++) {
        memcpy(f->storage + at, t->tokens[i], t->lengths[i]);
        f->tokens[i] = (struct slice){ f->storage + at, t->lengths[i] };
        at += t->lengths[i];
    }
    f->vocab = t->token_count;
    TRY(NEW_ZERO_ARRAY(&f->added, 1, "added tokens"));
    f->added[0] =
        (struct bpe_added){ f->tokens[END_ID], END_ID, .special = true, .in_vocab = true };
    f->added_count = 1;
    for (int byte = 0; byte < BYTES; byte++)
        f->byte_ids[byte] = (int32_t)symbols[byte];
    f->merges = t->merges;
    f->merge_count = t->merge_count;
    t->merges = NULL;
    *out = f;
    f = NULL;
out:
    bpe_file_free(f);
    return status;
}

static alibi_status side_init(struct side *s, int64_t vocab)
{
    TRY_RETURN(NEW_ZERO_ARRAY(&s->of, vocab, "neighbours"));
    return NEW_ARRAY(&s->met, vocab, "neighbours");
}

static void side_fini(struct side *s)
{
    mem_free(s->of);
    mem_free(s->met);
    mem_free(s->events);
}

alibi_status train_bpe(struct bpe_file **out, struct tally *tally, int64_t vocab, int64_t min_count,
                       const struct alibi_call *call)
{
    alibi_status status;
    struct trainer t = {
        .vocab = vocab, .min_count = min_count, .began = clock_seconds(), .call = call
    };
    uint32_t symbols[BYTES];

    TRY(NEW_ARRAY(&t.lengths, vocab, "tokens"));
    TRY(NEW_ARRAY(&t.tokens, vocab, "tokens"));
    TRY(NEW_ARRAY(&t.merges, vocab, "merges"));
    TRY(side_init(&t.left, vocab));
    TRY(side_init(&t.right, vocab));
    TRY(add_token(&t, (struct slice){ END_TEXT, strlen(END_TEXT) }, (struct slice){ "", 0 }));
    TRY(add_bytes(&t, symbols));
    TRY(cells_init(&t.cells, tally, symbols));
    tally_fini(tally);
    *tally = (struct tally){ 0 };
    TRY(start_pairs(&t));
    TRY(merge_all(&t));
    TRY(build_file(out, &t, symbols));
out:
    mem_free(t.cells.at);
    mem_free(t.cells.groups);
    mem_free(t.cells.group_of);
    mem_free(t.pairs.at);
    hash_fini(&t.pairs.table);
    mem_free(t.pairs.heap);
    arena_fini(&t.pairs.places);
    side_fini(&t.left);
    side_fini(&t.right);
    mem_free(t.lengths);
    mem_free(t.tokens);
    mem_free(t.merges);
    arena_fini(&t.token_memory);
    return status;
}
