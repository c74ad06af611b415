/* tokenizer_bpe.c - byte-level BPE, as Hugging Face's tokenizers have it
 *
 * The text is cut at the added tokens; what stands between two of them is cut into pieces by the
 * pattern; the bytes of each piece are merged. Ids depend on nothing outside their piece, so a text
 * can be encoded in parts that end where pieces end. */
#include "text/bpe.h"
#include "text/tokenizer.h"

enum { LOOK = 4096, LOOK_GROWTH = 8 };

struct bpe_tokenizer {
    struct alibi_tokenizer base;
    struct bpe_file *file;
    struct pattern *pattern;
    struct merge_table merges;
    struct added_tokens added;

    int32_t
        *whole; /* ignore_merges: [whole_mask + 1] tokens by the hash of their bytes, -1 is free */
    size_t whole_mask;
};

/* ---- which token ends a document */

/* In this order. The names are those that published tokenizers have. */
static const char *const end_names[] = {
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
    "<eos>",
    "[EOS]",
    "<|eos|>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

enum { END_NAMES = sizeof end_names / sizeof *end_names };

static const struct bpe_added *find_added(const struct bpe_file *f, const char *name)
{
    for (int i = 0; i < f->added_count; i++)
        if (f->added[i].text.bytes == strlen(name) &&
            memcmp(f->added[i].text.at, name, strlen(name)) == 0)
            return &f->added[i];
    return NULL;
}

static const struct bpe_added *only_special(const struct bpe_file *f)
{
    const struct bpe_added *special = NULL;

    for (int i = 0; i < f->added_count; i++) {
        if (f->added[i].special && special != NULL)
            return NULL;
        if (f->added[i].special)
            special = &f->added[i];
    }
    return special;
}

static alibi_status find_end(int32_t *end, const struct bpe_file *f, const char *path)
{
    const struct bpe_added *token = NULL;

    for (int i = 0; i < END_NAMES && token == NULL; i++)
        token = find_added(f, end_names[i]);
    if (token == NULL)
        token = only_special(f);
    if (token == NULL)
        return fail(
            ALIBI_BAD_INPUT,
            "'%s': no token ends a document: none of the added tokens is called %s, %s, %s, %s, %s, %s or %s, and there is not "
            "exactly one special token",
            path, end_names[0], end_names[1], end_names[2], end_names[3], end_names[4],
            end_names[5], end_names[6]);
    *end = token->id;
    return ALIBI_OK;
}

/* ---- pieces that are tokens, whatever the merges say */

static size_t whole_slot(const struct bpe_tokenizer *t, const char *piece, size_t bytes)
{
    size_t slot = tokenizer_hash(piece, bytes) & t->whole_mask;

    for (; t->whole[slot] >= 0; slot = (slot + 1) & t->whole_mask) {
        const struct slice *token = &t->file->tokens[t->whole[slot]];
        if (token->bytes == bytes && memcmp(token->at, piece, bytes) == 0)
            break;
    }
    return slot;
}

/* The added tokens are in the order of their ids; one that is no word of the vocabulary itself is
 * not meant here. */
static alibi_status index_whole(struct bpe_tokenizer *t)
{
    const struct bpe_file *f = t->file;
    size_t slots = 16;
    int added = 0;

    while (slots < 2 * (size_t)f->vocab)
        slots *= 2;
    t->whole_mask = slots - 1;
    TRY_RETURN(NEW_ARRAY(&t->whole, (int64_t)slots, "the vocabulary of a tokenizer"));
    memset(t->whole, 0xFF, slots * sizeof *t->whole);
    for (int64_t id = 0; id < f->vocab; id++) {
        bool is_added = added < f->added_count && f->added[added].id == id;
        if (f->tokens[id].bytes > 0 && (!is_added || f->added[added].in_vocab))
            t->whole[whole_slot(t, f->tokens[id].at, f->tokens[id].bytes)] = (int32_t)id;
        added += is_added;
    }
    return ALIBI_OK;
}

/* ---- making one */

static void free_bpe(alibi_tokenizer *base)
{
    struct bpe_tokenizer *t = (struct bpe_tokenizer *)base;

    if (t == NULL)
        return;
    pattern_free(t->pattern);
    merge_table_fini(&t->merges);
    added_fini(&t->added);
    mem_free(t->whole);
    bpe_file_free(t->file);
    mem_free(t);
}

static alibi_status build(struct bpe_tokenizer *t, const char *path)
{
    const struct bpe_file *f = t->file;

    t->base.kind = &tokenizer_kind_bpe;
    t->base.vocab = f->vocab;
    TRY_RETURN(find_end(&t->base.end, f, path));
    TRY_RETURN(pattern_new(&t->pattern, f->splits, f->split_count, path));
    TRY_RETURN(merge_table_init(&t->merges, f->merges, f->merge_count));
    TRY_RETURN(added_init(&t->added, f->added, f->added_count, path));
    if (f->ignore_merges)
        TRY_RETURN(index_whole(t));
    return tokenizer_finish(&t->base);
}

alibi_status tokenizer_new_bpe(alibi_tokenizer **out, struct bpe_file *file, const char *path)
{
    alibi_status status;
    struct bpe_tokenizer *t = NULL;

    TRY(NEW_ZERO_ARRAY(&t, 1, "a tokenizer"));
    t->file = file;
    file = NULL;
    TRY(build(t, path));
    *out = &t->base;
    t = NULL;
out:
    bpe_file_free(file);
    free_bpe((alibi_tokenizer *)t);
    return status;
}

static alibi_status format(const alibi_tokenizer *base, struct text *json)
{
    return bpe_file_write(((const struct bpe_tokenizer *)base)->file, json);
}

/* ---- ids to bytes */

static const char *text_of(const alibi_tokenizer *base, int32_t id, size_t *bytes)
{
    const struct slice *token = &((const struct bpe_tokenizer *)base)->file->tokens[id];

    *bytes = token->bytes;
    return token->at;
}

/* The end stands between documents, not in their text. */
static const char *bytes_of(const alibi_tokenizer *base, int32_t id, size_t *bytes)
{
    const char *text = text_of(base, id, bytes);

    *bytes = id == base->end ? 0 : *bytes;
    return text;
}

/* ---- what an encoder keeps */

struct bpe_state {
    const struct bpe_tokenizer *tokenizer;
    struct cutter *cutter;
    struct piece_cache cache;
    struct merge_room room;
    struct ids *ids;       /* of this run */
    const char *known_end; /* of the text that may be read */
};

static void state_free(void *state)
{
    struct bpe_state *b = state;

    cutter_free(b->cutter);
    piece_cache_fini(&b->cache);
    merge_room_fini(&b->room);
    mem_free(b);
}

static alibi_status state_new(void **out, const alibi_tokenizer *base, size_t bytes)
{
    alibi_status status;
    struct bpe_state *b = NULL;

    TRY(NEW_ZERO_ARRAY(&b, 1, "an encoder"));
    b->tokenizer = (const struct bpe_tokenizer *)base;
    TRY(cutter_new(&b->cutter, b->tokenizer->pattern));
    TRY(piece_cache_init(&b->cache, bytes));
    *out = b;
    b = NULL;
out:
    if (b != NULL)
        state_free(b);
    return status;
}

/* ---- pieces to ids */

static alibi_status encode_new(struct bpe_state *b, const char *piece, size_t bytes)
{
    const struct bpe_tokenizer *t = b->tokenizer;
    int32_t id = t->whole != NULL ? t->whole[whole_slot(t, piece, bytes)] : -1;

    if (id >= 0)
        return ids_append(b->ids, &id, 1);
    return merge_piece(&t->merges, t->file->byte_ids, &b->room, piece, bytes, b->ids);
}

static void remember(struct cached *slot, const struct piece_key *key, const int32_t *ids,
                     int64_t count)
{
    if (count > CACHE_IDS)
        return;
    slot->key = *key;
    slot->count = (int32_t)count;
    memcpy(slot->ids, ids, (size_t)count * sizeof *ids);
}

/* The ids of a slot are copied all, whatever their number: the room for them is there. */
static alibi_status encode_piece(void *user, const char *piece, size_t bytes)
{
    struct bpe_state *b = user;
    struct ids *ids = b->ids;
    int64_t before = ids->count;
    struct piece_key key;
    struct cached *slot;

    if (bytes > CACHE_KEY_BYTES)
        return encode_new(b, piece, bytes);
    key = piece_key(piece, bytes, (size_t)(b->known_end - piece));
    slot = piece_cache_slot(&b->cache, &key);
    if (!piece_key_equal(&slot->key, &key)) {
        TRY_RETURN(encode_new(b, piece, bytes));
        remember(slot, &key, ids->at + before, ids->count - before);
        return ALIBI_OK;
    }
    if (ids->capacity - ids->count < CACHE_IDS)
        TRY_RETURN(ids_reserve(ids, CACHE_IDS));
    memcpy(ids->at + ids->count, slot->ids, sizeof slot->ids);
    ids->count += slot->count;
    return ALIBI_OK;
}

/* ---- stretches */

/* Encodes from *at to the next added token and over it, looking no further than `bound`. *at stays
 * where it is if that does not decide anything. */
static alibi_status encode_some(struct bpe_state *b, const struct stretch *s, size_t bound,
                                size_t *at)
{
    struct added_match m = added_find(&b->tokenizer->added, s->text, *at, bound, s->end, s->last);
    size_t end = m.found == ADDED_NONE ? bound : m.at;
    struct stretch segment = { s->text, *at, s->stop < end ? s->stop : end, end, false };

    segment.last = m.found == ADDED_FOUND || (m.found == ADDED_NONE && s->last && bound == s->end);
    if (segment.end > *at)
        TRY_RETURN(cutter_run(b->cutter, &segment, encode_piece, b, at));
    if (m.found == ADDED_FOUND && *at == m.at && *at < s->stop) {
        TRY_RETURN(ids_append(b->ids, &m.token->id, 1));
        *at += m.token->text.bytes;
    }
    return ALIBI_OK;
}

static alibi_status run(const alibi_tokenizer *t, void *state, const struct stretch *s,
                        struct ids *ids, size_t *reached)
{
    struct bpe_state *b = state;
    size_t at = s->from, look = LOOK;

    (void)t;
    b->ids = ids;
    b->known_end = s->text + s->end;
    while (at < s->stop) {
        size_t bound = s->end - s->stop > look ? s->stop + look : s->end, before = at;
        TRY_RETURN(encode_some(b, s, bound, &at));
        if (at == before && bound == s->end)
            break;
        look *= at == before ? LOOK_GROWTH : 1;
    }
    *reached = at;
    return ALIBI_OK;
}

const struct tokenizer_kind tokenizer_kind_bpe = {
    .type = "bpe",
    .format = format,
    .free = free_bpe,
    .bytes = bytes_of,
    .text = text_of,
    .state_new = state_new,
    .state_free = state_free,
    .run = run,
    .end = tokenizer_append_end,
};
