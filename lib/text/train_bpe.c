/* train_bpe.c - byte pair encoding (Sennrich, Haddow, Birch, ACL 2016), on bytes
 *
 *   repeat: the pair of neighbours with the highest count becomes a symbol, wherever it stands
 *
 * until there are `vocab` ids, or no pair occurs min_count times. Of pairs with equal counts the
 * one with the lower left id is taken, then the one with the lower right id. The ids: 0 is the end
 * of a document, then the bytes in the order of the letters that stand for them in files, then the
 * merges. Neighbours are counted as they stand, so "aaa" has "aa" twice; they are merged from the
 * left. This is the order of Hugging Face's trainer, and gives its tokenizers.
 *
 * No two merges give the same token. What stands between two places that no symbol spans is merged
 * as if it stood alone, so from the moment some text is one token, it is that token wherever it
 * stands between two such places. (The one exception is the text of the end: if the pattern does
 * not cut it, it is merged, and then has the id that it has.)
 *
 * Merging a, b to r changes counts only beside it: where x a b y was, (x, a) and (b, y) lose what
 * (x, r) and (r, y) gain. Each occurrence is visited once when it is merged and at most once more
 * when it is found to be gone; each merge leaves one symbol less: the whole is linear in the size
 * of the distinct pieces, however long they are. */
#include "text/train_bpe.h"

#include <math.h>
#include <string.h>

#define END_TEXT "<|endoftext|>"
enum { END_ID = 0, BYTES = 256 };

/* Merges of pieces that repeat may grow without bound, each a token of its own. */
enum { TOKENS_BYTES_MAX = 256 << 20 };

/* What stood beside the merged pair: on its left, or on its right. */
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
            "the text repeats pieces so long that %lld tokens have %d bytes: ask for a smaller vocabulary",
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

/* Their letters' order is not that of the bytes: those that are no printable letters stand behind
 * all others. */
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

static bool is_end(const struct trainer *t, uint32_t left, uint32_t right)
{
    size_t n = t->lengths[left];

    return n + t->lengths[right] == strlen(END_TEXT) && memcmp(END_TEXT, t->tokens[left], n) == 0 &&
           memcmp(END_TEXT + n, t->tokens[right], t->lengths[right]) == 0;
}

static alibi_status join_tokens(struct trainer *t, uint32_t left, uint32_t right, uint32_t *joined)
{
    if (is_end(t, left, right)) {
        *joined = END_ID;
        return ALIBI_OK;
    }
    *joined = (uint32_t)t->token_count;
    return add_token(t, token_view(t, left), token_view(t, right));
}

/* ---- the pairs of bytes */

static alibi_status add_pair_of_bytes(struct trainer *t, struct neighbour *n, uint32_t left,
                                      uint32_t right)
{
    if (n->weight < t->min_count)
        return ALIBI_OK;
    return pairs_add(&t->pairs, pair_key(left, right), n->weight, n->events, &n->places);
}

/* Once to count, once to note the places. seen [257 * 257] */
static alibi_status find_pairs(struct trainer *t, struct neighbour *seen)
{
    const uint32_t *at = t->cells.at;
    uint32_t row = BYTES + 1;

    for (uint32_t i = 0; i + 1 < t->cells.count; i++)
        if (at[i] != CELL_NONE && at[i + 1] != CELL_NONE) {
            seen[at[i] * row + at[i + 1]].weight += cells_weight(&t->cells, i);
            seen[at[i] * row + at[i + 1]].events++;
        }
    for (uint32_t left = 0; left < row; left++)
        for (uint32_t right = 0; right < row; right++)
            TRY_RETURN(add_pair_of_bytes(t, &seen[left * row + right], left, right));
    for (uint32_t i = 0; i + 1 < t->cells.count; i++)
        if (at[i] != CELL_NONE && at[i + 1] != CELL_NONE &&
            seen[at[i] * row + at[i + 1]].places != NULL)
            *seen[at[i] * row + at[i + 1]].places++ = i;
    return ALIBI_OK;
}

static alibi_status start_pairs(struct trainer *t)
{
    alibi_status status;
    struct neighbour *seen = NULL;

    TRY(NEW_ZERO_ARRAY(&seen, (BYTES + 1) * (BYTES + 1), "pairs"));
    TRY(find_pairs(t, seen));
out:
    mem_free(seen);
    return status;
}

/* ---- one merge */

static alibi_status reserve_events(struct trainer *t, int64_t count)
{
    if (count <= t->event_capacity)
        return ALIBI_OK;
    mem_free(t->left.events);
    mem_free(t->right.events);
    t->left.events = t->right.events = NULL;
    t->event_capacity = 0;
    TRY_RETURN(NEW_ARRAY(&t->left.events, count, "the places of a pair"));
    TRY_RETURN(NEW_ARRAY(&t->right.events, count, "the places of a pair"));
    t->event_capacity = count;
    return ALIBI_OK;
}

static void meet(struct side *s, uint32_t symbol, uint32_t place, int64_t weight)
{
    struct neighbour *n = &s->of[symbol];

    if (n->events++ == 0)
        s->met[s->met_count++] = symbol;
    n->weight += weight;
    s->events[s->event_count++] = (struct event){ symbol, place };
}

/* Puts `joined` in place of left and right at `cell`, and notes what stands beside it. */
static void merge_at(struct trainer *t, uint32_t cell, uint32_t left, uint32_t right,
                     uint32_t joined)
{
    uint32_t *at = t->cells.at;
    uint32_t middle = cell + t->lengths[left], next = middle + t->lengths[right];
    int64_t weight = cells_weight(&t->cells, cell);

    at[middle - 1] = CELL_NONE;
    at[middle] = CELL_NONE;
    at[cell] = joined;
    at[next - 1] = joined;
    if (at[cell - 1] != CELL_NONE)
        meet(&t->left, at[cell - 1], cell - t->lengths[at[cell - 1]], weight);
    if (at[next] != CELL_NONE)
        meet(&t->right, at[next], cell, weight);
}

static void merge_everywhere(struct trainer *t, const struct pair *pair, uint32_t left,
                             uint32_t right, uint32_t joined)
{
    enum { AHEAD = 12 };
    const uint32_t *at = t->cells.at;

    for (int64_t i = 0; i < pair->place_count; i++) {
        uint32_t cell = pair->places[i];
        if (i + AHEAD < pair->place_count)
            __builtin_prefetch(&at[pair->places[i + AHEAD]], 1);
        if (at[cell] == left && at[cell + t->lengths[left]] == right)
            merge_at(t, cell, left, right, joined);
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

/* In "abab" the first merge makes a pair (r, a) that the second one ends again: there r stands on
 * the left of a pair (a, b). */
static void settle_counts(struct trainer *t, uint32_t left, uint32_t right, uint32_t joined)
{
    for (int64_t i = 0; i < t->left.met_count; i++)
        pairs_subtract(&t->pairs, pair_key(t->left.met[i], left),
                       t->left.of[t->left.met[i]].weight);
    for (int64_t i = 0; i < t->right.met_count; i++)
        pairs_subtract(&t->pairs, pair_key(right, t->right.met[i]),
                       t->right.of[t->right.met[i]].weight);
    t->right.of[left].weight -= t->left.of[joined].weight;
}

static alibi_status merge(struct trainer *t, struct pair *pair)
{
    uint32_t left = (uint32_t)(pair->key >> 32), right = (uint32_t)pair->key, joined = 0;

    TRY_RETURN(join_tokens(t, left, right, &joined));
    TRY_RETURN(reserve_events(t, pair->place_count));
    t->merges[t->merge_count++] =
        (struct bpe_merge){ (int32_t)left, (int32_t)right, (int32_t)joined };
    merge_everywhere(t, pair, left, right, joined);
    pair->count = 0;
    pair->place_count = 0;
    settle_counts(t, left, right, joined);
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
    double left = t->merge_count > 0
                      ? seconds * (double)(total - t->merge_count) / (double)t->merge_count
                      : 0;
    struct alibi_progress p = {
        "tokenizer", "merges", t->merge_count, total, seconds, left, 0, NAN
    };

    call_progress(t->call, &p);
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

static alibi_status copy_tokens(struct bpe_file *f, const struct trainer *t)
{
    size_t at = 0;

    TRY_RETURN(mem_new((void **)&f->storage, t->token_bytes, "the tokens of a tokenizer"));
    TRY_RETURN(NEW_ARRAY(&f->tokens, t->token_count, "the tokens of a tokenizer"));
    for (int64_t i = 0; i < t->token_count; i++) {
        memcpy(f->storage + at, t->tokens[i], t->lengths[i]);
        f->tokens[i] = (struct slice){ f->storage + at, t->lengths[i] };
        at += t->lengths[i];
    }
    f->vocab = t->token_count;
    return ALIBI_OK;
}

static alibi_status describe_end(struct bpe_file *f)
{
    TRY_RETURN(NEW_ZERO_ARRAY(&f->added, 1, "added tokens"));
    f->added[0] =
        (struct bpe_added){ f->tokens[END_ID], END_ID, .special = true, .in_vocab = true };
    f->added_count = 1;
    return ALIBI_OK;
}

static alibi_status build_file(struct bpe_file **out, struct trainer *t, const uint32_t *symbols)
{
    alibi_status status;
    struct bpe_file *f = NULL;

    TRY(NEW_ZERO_ARRAY(&f, 1, "a tokenizer"));
    TRY(copy_tokens(f, t));
    TRY(describe_end(f));
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

static alibi_status trainer_init(struct trainer *t)
{
    TRY_RETURN(NEW_ARRAY(&t->lengths, t->vocab, "tokens"));
    TRY_RETURN(NEW_ARRAY(&t->tokens, t->vocab, "tokens"));
    TRY_RETURN(NEW_ARRAY(&t->merges, t->vocab, "merges"));
    TRY_RETURN(NEW_ZERO_ARRAY(&t->left.of, t->vocab, "neighbours"));
    TRY_RETURN(NEW_ZERO_ARRAY(&t->right.of, t->vocab, "neighbours"));
    TRY_RETURN(NEW_ARRAY(&t->left.met, t->vocab, "neighbours"));
    TRY_RETURN(NEW_ARRAY(&t->right.met, t->vocab, "neighbours"));
    return add_token(t, (struct slice){ END_TEXT, strlen(END_TEXT) }, (struct slice){ "", 0 });
}

static void side_fini(struct side *s)
{
    mem_free(s->of);
    mem_free(s->met);
    mem_free(s->events);
}

static void trainer_fini(struct trainer *t)
{
    cells_fini(&t->cells);
    pairs_fini(&t->pairs);
    side_fini(&t->left);
    side_fini(&t->right);
    mem_free(t->lengths);
    mem_free(t->tokens);
    mem_free(t->merges);
    arena_fini(&t->token_memory);
}

alibi_status train_bpe(struct bpe_file **out, struct tally *tally, int64_t vocab, int64_t min_count,
                       const struct alibi_call *call)
{
    alibi_status status;
    struct trainer t = {
        .vocab = vocab, .min_count = min_count, .began = clock_seconds(), .call = call
    };
    uint32_t symbols[BYTES];

    TRY(trainer_init(&t));
    TRY(add_bytes(&t, symbols));
    TRY(cells_init(&t.cells, tally, symbols));
    tally_fini(tally);
    *tally = (struct tally){ 0 };
    TRY(start_pairs(&t));
    TRY(merge_all(&t));
    TRY(build_file(out, &t, symbols));
out:
    trainer_fini(&t);
    return status;
}
