/* bpe.c - tokenizers of BPE, as Hugging Face's library has them
 *
 *   text -> segments between added tokens -> normalized text (normal.c), if the file asks for it,
 *        with a blank before it -> pieces (cutter.c) -> bytes or characters -> merges (merge.c)
 *        -> ids
 *
 * The ids of a piece depend on nothing outside it, so a text can be encoded in parts that end where
 * pieces end. A segment that starts with a blank that the text does not have is the exception: no
 * part ends where it starts. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "text/normal.h"
#include "text/tokenizer.h"

/* ---- added tokens: found in the text before anything else
 *
 * The tokens are sorted by their bytes. Those that agree with the text so far are a range; each
 * further byte of the text narrows it by bisection until it is empty. The longest token met on the
 * way is the match. */

/* Every place of a text may cost this many comparisons. Known tokens are shorter. */
enum { ADDED_BYTES_MAX = 256 };

struct added_tokens {
    struct bpe_added *sorted; /* by their bytes; the texts are borrowed */
    int count;
    bool first[256]; /* whether one starts with this byte */
    int only;        /* the byte that all start with; -1: they differ, or there are none */
    bool lstrip;     /* of any token */
    bool prefixed;   /* the same */
    char *spelled;   /* texts of prefixed tokens, with their blank */
    struct word_characters *word; /* NULL: no token is a single word */
};

struct added_match {
    enum { ADDED_NONE, ADDED_FOUND, ADDED_MAYBE } found; /* maybe: text after `end` decides */
    size_t at;
    const struct bpe_added *token;
};

static int compare_added(const void *a, const void *b)
{
    const struct slice *x = &((const struct bpe_added *)a)->text,
                       *y = &((const struct bpe_added *)b)->text;
    int order = memcmp(x->at, y->at, x->bytes < y->bytes ? x->bytes : y->bytes);

    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Whether the character that starts, or ends, at `at` is one of words. No character is none. */
static bool word_at(const struct word_characters *w, const char *text, size_t at, size_t end)
{
    uint32_t code = 0;
    size_t bytes = end - at < 4 ? end - at : 4;

    return bytes > 0 && utf8_valid_prefix(text + at, bytes) > 0 &&
           (utf8_take(text + at, &code), w->bits[code / 64] >> code % 64 & 1) != 0;
}

static bool word_before(const struct word_characters *w, const char *text, size_t at)
{
    size_t start = at;

    while (start > 0 && at - start < 4) {
        start--;
        if (!utf8_continues(text[start]))
            break;
    }
    return start < at && utf8_valid_prefix(text + start, at - start) == at - start &&
           word_at(w, text, start, at);
}

/* Puts the blank before the text. */
static void spell(struct slice *text, char *storage, size_t *used, const char *blank)
{
    char *at = storage + *used;

    memcpy(at, blank, strlen(blank));
    memcpy(at + strlen(blank), text->at, text->bytes);
    *text = (struct slice){ at, strlen(blank) + text->bytes };
    *used += text->bytes;
}

/* The text next to a single word may be a token that was found before: then the library does not
 * see it, and it must not matter what it is. */
static alibi_status init_words(struct added_tokens *a, const char *path)
{
    const struct bpe_added *word = NULL;

    for (int i = 0; i < a->count; i++)
        word = a->sorted[i].single_word && a->sorted[i].normalized ? &a->sorted[i] : word;
    TRY_RETURN(NEW_ZERO_ARRAY(&a->word, 1, "the characters of words"));
    word_characters_init(a->word);
    for (int i = 0; i < a->count && word != NULL; i++) {
        const struct slice *text = &a->sorted[i].text;
        if (!a->sorted[i].normalized && (word_at(a->word, text->at, 0, text->bytes) ||
                                         word_before(a->word, text->at, text->bytes)))
            return fail(ALIBI_BAD_INPUT,
                        "'%s': the added token '%.40s' is 'normalized' and has 'single_word', and "
                        "'%.40s', which is not normalized, begins or ends with a letter; that is "
                        "not supported",
                        path, word->text.at, text->at);
    }
    return ALIBI_OK;
}

static alibi_status added_init(struct added_tokens *a, const struct bpe_added *tokens, int count,
                               const char *path)
{
    size_t bytes = 0;
    int different = 0;

    a->only = -1;
    for (int i = 0; i < count; i++)
        bytes += tokens[i].prefixed ? 2 * (tokens[i].text.bytes + sizeof BPE_BLANK) : 0;
    TRY_RETURN(NEW_ARRAY(&a->sorted, 2 * (int64_t)count, "the added tokens of a tokenizer"));
    TRY_RETURN(mem_new((void **)&a->spelled, bytes, "the added tokens of a tokenizer"));
    bytes = 0;
    for (int i = 0; i < count; i++) {
        if (tokens[i].text.bytes > ADDED_BYTES_MAX)
            return fail(ALIBI_BAD_INPUT,
                        "'%s': the added token '%.40s...' has %zu bytes, more than %d", path,
                        tokens[i].text.at, tokens[i].text.bytes, ADDED_BYTES_MAX);
        if (tokens[i].text.bytes == 0)
            continue;
        a->lstrip = a->lstrip || tokens[i].lstrip;
        a->prefixed = a->prefixed || tokens[i].prefixed;
        a->sorted[a->count++] = tokens[i];
        if (tokens[i].prefixed) {
            a->sorted[a->count] = tokens[i];
            spell(&a->sorted[a->count - 1].text, a->spelled, &bytes, " ");
            spell(&a->sorted[a->count++].text, a->spelled, &bytes, BPE_BLANK);
        }
    }
    for (int i = 0; i < a->count; i++) {
        unsigned char byte = (unsigned char)a->sorted[i].text.at[0];
        different += !a->first[byte];
        a->first[byte] = true;
        a->only = different == 1 ? byte : -1;
    }
    qsort(a->sorted, (size_t)a->count, sizeof *a->sorted, compare_added);
    for (int i = 0; i < a->count; i++)
        if (a->sorted[i].single_word)
            return init_words(a, path);
    return ALIBI_OK;
}

static void added_fini(struct added_tokens *a)
{
    mem_free(a->sorted);
    mem_free(a->spelled);
    mem_free(a->word);
    *a = (struct added_tokens){ 0 };
}

/* The first of sorted[low..high), equal up to `depth`, whose next byte is at least `byte`. */
static int bisect(const struct added_tokens *a, int low, int high, size_t depth, int byte)
{
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((unsigned char)a->sorted[middle].text.at[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token at the start of text[0..bytes). */
static struct added_match match_here(const struct added_tokens *a, const char *text, size_t bytes,
                                     bool last)
{
    struct added_match m = { .found = ADDED_NONE };
    int low = 0, high = a->count;

    for (size_t depth = 0;; depth++) {
        while (low < high && a->sorted[low].text.bytes == depth) {
            m.found = ADDED_FOUND;
            m.token = &a->sorted[low++];
        }
        if (low == high)
            return m;
        if (depth == bytes) {
            m.found = last ? m.found : ADDED_MAYBE;
            return m;
        }
        high = bisect(a, low, high, depth, (unsigned char)text[depth] + 1);
        low = bisect(a, low, high, depth, (unsigned char)text[depth]);
    }
}

/* The first token that starts in text[from..limit), the longest there. text[0..end) is known, and
 * is the whole text if `last`. */
static struct added_match added_find(const struct added_tokens *a, const char *text, size_t from,
                                     size_t limit, size_t end, bool last)
{
    struct added_match m = { .found = ADDED_NONE };

    for (size_t at = from; a->count > 0 && at < limit; at++) {
        if (a->only >= 0) {
            const char *next = memchr(text + at, a->only, limit - at);
            at = next != NULL ? (size_t)(next - text) : limit;
        } else {
            while (at < limit && !a->first[(unsigned char)text[at]])
                at++;
        }
        if (at < limit)
            m = match_here(a, text + at, end - at, last);
        m.at = at;
        if (m.found == ADDED_FOUND && m.token->single_word) {
            size_t after = at + m.token->text.bytes;
            if (word_before(a->word, text, at) || word_at(a->word, text, after, end)) {
                m.found = ADDED_NONE;
                at = after - 1;
            } else if (end - after < 4 && !last) {
                m.found = ADDED_MAYBE; /* more text decides whether it is a single word */
            }
        }
        if (m.found != ADDED_NONE)
            break;
    }
    return m;
}

/* ---- the cache: ids of earlier pieces
 *
 * Most pieces of a text are words that occurred before, so they are merged once and then copied. A
 * piece has one possible slot and replaces the piece there; frequent ones soon return. A slot is
 * one cache line. */

enum {
    CACHE_KEY_BYTES = 23,
    CACHE_IDS = 9,
    SLOT_BITS_MIN = 6,
    SLOT_BITS_MAX = 16,
    BYTES_PER_SLOT = 16,
};

/* The bytes of a piece, zeros, and in the last byte the number of bytes. */
struct piece_key {
    uint64_t words[3];
};

struct cached {
    struct piece_key key; /* of 0 bytes: free */
    int32_t ids[CACHE_IDS], count;
};

_Static_assert(sizeof(struct cached) == 64, "a slot is a cache line");

struct piece_cache {
    struct cached *slots;
    int shift;
};

static alibi_status cache_init(struct piece_cache *c, size_t text_bytes)
{
    int bits = SLOT_BITS_MIN;

    while (bits < SLOT_BITS_MAX && ((size_t)BYTES_PER_SLOT << bits) < text_bytes)
        bits++;
    c->shift = 64 - bits;
    return NEW_ZERO_ARRAY(&c->slots, (int64_t)1 << bits, "the pieces of an encoder");
}

/* For pieces of at most CACHE_KEY_BYTES; `readable` bytes from the first on may be read. */
static inline struct piece_key piece_key(const char *piece, size_t bytes, size_t readable)
{
    struct piece_key k = { { 0 } };

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* Copy a fixed length and mask the excess: no branch depends on the length, which is
     * unpredictable. Ones, then zeros: the mask of n bytes starts n bytes before the zeros. */
    static const unsigned char ones[2 * sizeof k] = {
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
    };
    if (readable >= sizeof k) {
        struct piece_key mask;
        memcpy(&mask, ones + sizeof k - bytes, sizeof mask);
        memcpy(&k, piece, sizeof k);
        for (int i = 0; i < 3; i++)
            k.words[i] &= mask.words[i];
        k.words[2] |= (uint64_t)bytes << 56;
        return k;
    }
#endif
    (void)readable;
    memcpy(&k, piece, bytes);
    ((char *)&k)[sizeof k - 1] = (char)bytes;
    return k;
}

static inline struct cached *cache_slot(const struct piece_cache *c, const struct piece_key *k)
{
    uint64_t h = k->words[0] * 0x9E3779B97F4A7C15u ^ k->words[1] * 0xC2B2AE3D27D4EB4Fu ^
                 k->words[2] * 0x165667B19E3779F9u;

    h ^= h >> 29;
    return &c->slots[(h * 0xBF58476D1CE4E5B9u) >> c->shift];
}

/* ---- the tokenizer */

struct bpe_tokenizer {
    struct alibi_tokenizer base;
    struct bpe_file *file;
    struct pattern *pattern;
    struct alphabet alphabet;
    struct merge_table merges;
    struct added_tokens added;
    enum normal_form form;
    struct hash whole; /* ignore_merges: tokens by their bytes; else empty */
};

/* The slot of the token that equals the whole piece; ignore_merges uses it without merging. */
static uint32_t *whole_slot(const struct bpe_tokenizer *t, const char *piece, size_t bytes)
{
    uint32_t *slot = hash_slot(&t->whole, hash_bytes(piece, bytes));

    for (; *slot != 0; slot = hash_next(&t->whole, slot)) {
        const struct slice *token = &t->file->tokens[*slot - 1];
        if (token->bytes == bytes && memcmp(token->at, piece, bytes) == 0)
            break;
    }
    return slot;
}

/* Added tokens are sorted by id. Those outside the vocabulary are skipped. */
static alibi_status index_whole(struct bpe_tokenizer *t)
{
    const struct bpe_file *f = t->file;
    int added = 0;

    TRY_RETURN(hash_init(&t->whole, f->vocab, "the vocabulary of a tokenizer"));
    for (int64_t id = 0; id < f->vocab; id++) {
        bool is_added = added < f->added_count && f->added[added].id == id;
        if (f->tokens[id].bytes > 0 && (!is_added || f->added[added].in_vocab))
            *whole_slot(t, f->tokens[id].at, f->tokens[id].bytes) = (uint32_t)id + 1;
        added += is_added;
    }
    return ALIBI_OK;
}

/* ---- which token ends a document */

static struct bpe_added *find_added(const struct bpe_file *f, const char *name)
{
    for (int i = 0; i < f->added_count; i++)
        if (f->added[i].text.bytes == strlen(name) &&
            memcmp(f->added[i].text.at, name, strlen(name)) == 0)
            return &f->added[i];
    return NULL;
}

/* The token that the file marks; else the one after the text of its template; else the first of the
 * names that published tokenizers use; else the only special token; else none. */
static int32_t find_end(const struct bpe_file *f)
{
    static const char *const names[] = {
        "<|endoftext|>",
        "</s>",
        "<|end_of_text|>",
        "<eos>",
        "[EOS]",
        "<|eos|>",
        ("<\xEF\xBD\x9C" /* of two literals: the e would count as a digit */
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
    };
    const struct bpe_added *found = NULL;
    int special = 0;

    for (int i = 0; i < f->added_count; i++)
        if (f->added[i].ends_document)
            return f->added[i].id;
    for (int i = 0; i < f->added_count; i++)
        if (f->added[i].ends)
            return f->added[i].id;
    for (int i = 0; i < COUNT(names) && found == NULL; i++)
        found = find_added(f, names[i]);
    if (found != NULL)
        return found->id;
    for (int i = 0; i < f->added_count; i++) {
        special += f->added[i].special;
        found = f->added[i].special ? &f->added[i] : found;
    }
    return special == 1 ? found->id : -1;
}

/* A token of the vocabulary becomes an added token. Text must not encode to it: the file would then
 * have merges that make an added token, and could not be read again. */
static alibi_status add_to_added(struct bpe_file *f, const char *name)
{
    size_t bytes = strlen(name), have = (size_t)f->added_count * sizeof *f->added;
    int64_t id = 0;
    bool made = false;
    int at = f->added_count;

    while (id < f->vocab &&
           (f->tokens[id].bytes != bytes || memcmp(f->tokens[id].at, name, bytes) != 0))
        id++;
    if (id == f->vocab)
        return fail(ALIBI_BAD_INPUT, "the tokenizer has no token '%s' to end documents with", name);
    for (int64_t i = 0; i < f->merge_count; i++)
        made = made || f->merges[i].left == id || f->merges[i].right == id ||
               f->merges[i].result == id;
    for (int i = 0; i < 256; i++)
        made = made || f->byte_ids[i] == id;
    if (made || f->ignore_merges)
        return fail(ALIBI_BAD_INPUT, "the token '%s' cannot end documents: text can encode to it",
                    name);
    TRY_RETURN(mem_grow((void **)&f->added, have, have + sizeof *f->added, "added tokens"));
    for (; at > 0 && f->added[at - 1].id > id; at--)
        f->added[at] = f->added[at - 1];
    f->added[at] =
        (struct bpe_added){ f->tokens[id], (int32_t)id, .special = true, .in_vocab = true };
    f->added_count++;
    return ALIBI_OK;
}

/* A prefixed token takes the blank before it, so its text has one. */
static alibi_status init_added(struct bpe_tokenizer *t, const char *path)
{
    struct bpe_file *f = t->file;

    TRY_RETURN(added_init(&t->added, f->added, f->added_count, path));
    for (int i = 0; i < t->added.count; i++)
        if (t->added.sorted[i].prefixed && t->added.sorted[i].text.at[0] == ' ')
            f->tokens[t->added.sorted[i].id] = t->added.sorted[i].text;
    return ALIBI_OK;
}

/* The default end is not marked, so that the file and its checksum do not change. */
static alibi_status set_end(alibi_tokenizer *base, const char *name)
{
    struct bpe_tokenizer *t = (struct bpe_tokenizer *)base;
    struct bpe_file *f = t->file;
    struct bpe_added *a;

    if (find_added(f, name) == NULL) {
        TRY_RETURN(add_to_added(f, name));
        added_fini(&t->added);
        TRY_RETURN(init_added(t, name));
    }
    a = find_added(f, name);
    if (find_end(f) != a->id) {
        for (int i = 0; i < f->added_count; i++)
            f->added[i].ends_document = false;
        a->ends_document = true;
    }
    base->end = a->id;
    return tokenizer_finish(base);
}

/* ---- making one */

static void free_bpe(alibi_tokenizer *base)
{
    struct bpe_tokenizer *t = (struct bpe_tokenizer *)base;

    if (t == NULL)
        return;
    pattern_free(t->pattern);
    alphabet_fini(&t->alphabet);
    merge_table_fini(&t->merges);
    added_fini(&t->added);
    hash_fini(&t->whole);
    bpe_file_free(t->file);
    mem_free(t);
}

/* A token with a blank after something else. */
static bool joins_words(struct slice token)
{
    for (size_t i = 1; i < token.bytes; i++)
        if (token.at[i] == ' ' && token.at[i - 1] != ' ')
            return true;
    return false;
}

/* Text of characters is cut before blanks if the file says so. Otherwise it is merged as a whole,
 * and may be cut wherever no merge can join the two sides: before blanks that follow something
 * else, unless a merge makes a token with such a place. */
static alibi_status compile_cuts(struct bpe_tokenizer *t, const char *path)
{
    const struct bpe_file *f = t->file;
    char each[] = " [^ ]*|[^ ]+", runs[] = " *[^ ]+| +";
    struct bpe_split split = { .pattern = f->cut_blanks ? each : runs };
    bool joins = false;

    if (!f->characters)
        return pattern_new(&t->pattern, f->splits, f->split_count, path);
    for (int64_t i = 0; i < f->merge_count && !f->cut_blanks; i++)
        joins = joins || joins_words(f->tokens[f->merges[i].result]);
    return pattern_new(&t->pattern, &split, joins ? 0 : 1, path);
}

alibi_status tokenizer_new_bpe(alibi_tokenizer **out, struct bpe_file *file, const char *path)
{
    alibi_status status;
    struct bpe_tokenizer *t = NULL;
    struct bpe_file *f = file;

    TRY(NEW_ZERO_ARRAY(&t, 1, "a tokenizer"));
    t->file = f;
    file = NULL;
    t->base.kind = &tokenizer_kind_bpe;
    t->base.vocab = f->vocab;
    t->base.end = find_end(f);
    t->base.begin = -1;
    for (int i = 0; i < f->added_count; i++)
        t->base.begin = f->added[i].begins ? f->added[i].id : t->base.begin;
    t->base.drops_blank = f->characters && f->prefix != PREFIX_NONE;
    t->form = f->nfc ? NORMAL_C : f->characters ? NORMAL_BLANKS : NORMAL_AS_IS;
    TRY(compile_cuts(t, path));
    TRY(alphabet_init(&t->alphabet, f));
    TRY(merge_table_init(&t->merges, f->merges, f->merge_count));
    TRY(init_added(t, path));
    if (f->ignore_merges)
        TRY(index_whole(t));
    TRY(tokenizer_finish(&t->base));
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

static const char *text_of(const alibi_tokenizer *base, int32_t id, size_t *bytes)
{
    const struct slice *token = &((const struct bpe_tokenizer *)base)->file->tokens[id];

    *bytes = token->bytes;
    return token->at;
}

/* Begin and end separate documents and have no bytes. */
static const char *bytes_of(const alibi_tokenizer *base, int32_t id, size_t *bytes)
{
    const char *text = text_of(base, id, bytes);

    *bytes = id == base->end || id == base->begin ? 0 : *bytes;
    return text;
}

/* ---- encoding */

enum { LOOK = 4096, LOOK_GROWTH = 8, PREFIX_SIGHT = 256 };

struct bpe_state {
    const struct bpe_tokenizer *tokenizer;
    struct cutter *cutter;
    struct piece_cache cache;
    struct merge_room room;
    struct ids *ids;       /* of this run */
    const char *known_end; /* of the text that may be read */
    bool due;              /* a segment starts here, perhaps with a blank put before it */

    struct normal normal;
    size_t start;       /* of its clusters: the next one that a piece may end at */
    size_t kept;        /* the last one that a piece ended at, */
    int64_t kept_count; /* and the ids up to there */
};

static void state_free(void *state)
{
    struct bpe_state *b = state;

    cutter_free(b->cutter);
    mem_free(b->cache.slots);
    merge_room_fini(&b->room);
    normal_fini(&b->normal);
    mem_free(b);
}

static alibi_status state_new(void **out, const alibi_tokenizer *base, size_t bytes)
{
    alibi_status status;
    struct bpe_state *b = NULL;

    TRY(NEW_ZERO_ARRAY(&b, 1, "an encoder"));
    b->tokenizer = (const struct bpe_tokenizer *)base;
    TRY(cutter_new(&b->cutter, b->tokenizer->pattern));
    TRY(cache_init(&b->cache, bytes));
    *out = b;
    b = NULL;
out:
    if (b != NULL)
        state_free(b);
    return status;
}

static alibi_status encode_new(struct bpe_state *b, const char *piece, size_t bytes)
{
    const struct bpe_tokenizer *t = b->tokenizer;
    uint32_t whole = t->whole.slots != NULL ? *whole_slot(t, piece, bytes) : 0;

    if (whole != 0)
        return ids_append(b->ids, &(int32_t){ (int32_t)whole - 1 }, 1);
    return merge_piece(&t->merges, &t->alphabet, &b->room, piece, bytes, b->ids);
}

static alibi_status encode_piece(void *user, const char *piece, size_t bytes)
{
    struct bpe_state *b = user;
    struct ids *ids = b->ids;
    int64_t before = ids->count, count;
    struct piece_key key;
    struct cached *slot;

    if (bytes > CACHE_KEY_BYTES)
        return encode_new(b, piece, bytes);
    key = piece_key(piece, bytes, (size_t)(b->known_end - piece));
    slot = cache_slot(&b->cache, &key);
    if (((slot->key.words[0] ^ key.words[0]) | (slot->key.words[1] ^ key.words[1]) |
         (slot->key.words[2] ^ key.words[2])) == 0) {
        /* Copies all ids of the slot, because a copy of fixed length is faster. */
        if (ids->capacity - ids->count < CACHE_IDS)
            TRY_RETURN(ids_reserve(ids, CACHE_IDS));
        memcpy(ids->at + ids->count, slot->ids, sizeof slot->ids);
        ids->count += slot->count;
        return ALIBI_OK;
    }
    TRY_RETURN(encode_new(b, piece, bytes));
    count = ids->count - before;
    if (count <= CACHE_IDS) {
        slot->key = key;
        slot->count = (int32_t)count;
        memcpy(slot->ids, ids->at + before, (size_t)count * sizeof *ids->at);
    }
    return ALIBI_OK;
}

/* ---- normalized text
 *
 * A segment that is not normalized, or has a blank put before it, becomes a copy, which is cut in
 * its place. A cut of the copy is a cut of the text only if a cluster starts there: ids after the
 * last such cut are dropped, and made again from more text. */

static alibi_status encode_normal_piece(void *user, const char *piece, size_t bytes)
{
    struct bpe_state *b = user;
    struct normal *n = &b->normal;
    size_t end = (size_t)(piece - n->text.data) + bytes;

    TRY_RETURN(encode_piece(b, piece, bytes));
    while (n->starts[b->start].to < end)
        b->start++;
    if (n->starts[b->start].to == end && piece + bytes == cutter_cut(b->cutter)) {
        b->kept = b->start;
        b->kept_count = b->ids->count;
    }
    return ALIBI_OK;
}

static alibi_status cut_copy(struct bpe_state *b, const struct stretch *s, bool prefix,
                             size_t *reached)
{
    struct normal *n = &b->normal;
    const char *known_end = b->known_end;
    struct stretch copy = { .last = s->last };
    size_t stop = 0, at = 0;

    TRY_RETURN(normal_make(n, b->tokenizer->form, prefix, s->text + s->from, s->end - s->from));
    while (n->starts[stop].from < s->stop - s->from)
        stop++;
    copy.text = n->text.data;
    copy.end = n->text.length;
    b->known_end = copy.text + copy.end;
    b->start = b->kept = 0;
    b->kept_count = b->ids->count;
    for (copy.stop = n->starts[stop].to; at < copy.stop; copy.stop = copy.from + 1) {
        TRY_RETURN(cutter_run(b->cutter, &copy, encode_normal_piece, b, &at));
        if (at == copy.from || n->starts[b->kept].to == at)
            break;
        copy.from = at;
    }
    b->known_end = known_end;
    b->ids->count = b->kept_count;
    *reached = s->from + n->starts[b->kept].from;
    return ALIBI_OK;
}

/* The stretch without its last cluster, which waits for the text that follows. */
static struct stretch whole_clusters(const struct bpe_state *b, const struct stretch *s)
{
    struct stretch whole = *s;

    if (b->tokenizer->form == NORMAL_C && !s->last)
        whole.end = s->from + normal_whole(s->text + s->from, s->end - s->from);
    whole.stop = s->stop < whole.end ? s->stop : whole.end;
    return whole;
}

/* cutter_run() of the normalized segment. */
static alibi_status cut_segment(struct bpe_state *b, const struct stretch *s, size_t *reached)
{
    enum normal_form form = b->tokenizer->form;
    struct stretch whole;

    if (form == NORMAL_AS_IS)
        return cutter_run(b->cutter, s, encode_piece, b, reached);
    whole = whole_clusters(b, s);
    if (normal_already(form, s->text + s->from, whole.end - s->from))
        return cutter_run(b->cutter, &whole, encode_piece, b, reached);
    return cut_copy(b, &whole, false, reached);
}

/* The first pieces of a segment that a blank is put before, unless it starts with one. Few bytes of
 * it are copied at first. */
static alibi_status cut_prefixed(struct bpe_state *b, const struct stretch *s, size_t *reached)
{
    const struct bpe_file *f = b->tokenizer->file;
    const char *text = s->text + s->from;
    size_t bytes = s->end - s->from, blank = strlen(BPE_BLANK);

    if (f->prefix != PREFIX_ALWAYS) {
        bool like = f->characters && memcmp(text, BPE_BLANK, bytes < blank ? bytes : blank) == 0;
        if (like && bytes < blank && !s->last)
            return ALIBI_OK;
        if (text[0] == ' ' || (like && bytes >= blank)) {
            b->due = false;
            return cut_segment(b, s, reached);
        }
    }
    for (size_t sight = PREFIX_SIGHT;; sight = SIZE_MAX) {
        struct stretch first = { s->text, s->from, s->from + 1, s->end, .last = s->last };
        if (bytes > sight) {
            first.end = s->from + sight;
            first.last = false;
        }
        first = whole_clusters(b, &first);
        if (first.end > s->from)
            TRY_RETURN(cut_copy(b, &first, true, reached));
        b->due = *reached == s->from;
        if (!b->due || bytes <= sight)
            return ALIBI_OK;
    }
}

/* A blank is put before the text, and that is where a token starts. */
static alibi_status encode_token_at_prefix(struct bpe_state *b, const struct stretch *s, size_t *at,
                                           bool *found)
{
    char front[1 + ADDED_BYTES_MAX] = " ";
    size_t bytes = s->end - *at, known = bytes < ADDED_BYTES_MAX ? bytes : ADDED_BYTES_MAX;
    struct added_match m;

    memcpy(front + 1, s->text + *at, known);
    m = match_here(&b->tokenizer->added, front, 1 + known, s->last || known < bytes);
    *found = m.found != ADDED_NONE;
    if (m.found != ADDED_FOUND)
        return ALIBI_OK;
    b->due = false;
    *at += m.token->text.bytes - 1;
    return ids_append(b->ids, &m.token->id, 1);
}

/* Encodes from *at up to and including the next added token, without looking past `bound`. *at does
 * not move if more text is needed. White space waits for the token after it, which may take it. */
static alibi_status encode_some(struct bpe_state *b, const struct stretch *s, size_t bound,
                                size_t *at)
{
    const struct added_tokens *added = &b->tokenizer->added;
    struct added_match m = added_find(added, s->text, *at, bound, s->end, s->last);
    size_t end = m.found == ADDED_NONE ? bound : m.at, after = 0;
    bool ends = m.found == ADDED_NONE && s->last && bound == s->end;
    struct stretch segment = { .text = s->text, .from = *at };
    bool first = false;

    if (b->due && added->prefixed &&
        (m.found == ADDED_NONE || m.at > *at || (m.found == ADDED_FOUND && m.token->prefixed)))
        TRY_RETURN(encode_token_at_prefix(b, s, at, &first));
    if (first)
        return ALIBI_OK;
    if (m.found == ADDED_FOUND) {
        after = m.at + m.token->text.bytes;
        after = m.token->rstrip ? white_space_after(s->text, after, s->end) : after;
        if (m.token->rstrip && s->end - after < 3 && !s->last)
            m.found = ADDED_MAYBE; /* more white space may follow */
    }
    if (m.found == ADDED_FOUND ? m.token->lstrip : added->lstrip && !ends)
        end = white_space_before(s->text, *at, end);
    segment.stop = s->stop < end ? s->stop : end;
    segment.end = end;
    segment.last = m.found == ADDED_FOUND || ends;
    if (segment.end > *at)
        TRY_RETURN((b->due ? cut_prefixed : cut_segment)(b, &segment, at));
    if (m.found == ADDED_FOUND && *at == end && *at < s->stop) {
        if (b->due && m.token->prefixed) /* with a blank of its own: the other one is a segment */
            TRY_RETURN(encode_new(b, " ", 1));
        TRY_RETURN(ids_append(b->ids, &m.token->id, 1));
        *at = after;
        b->due = b->tokenizer->file->prefix >= PREFIX_EACH && !m.token->prefixed;
    }
    return ALIBI_OK;
}

static alibi_status run(const alibi_tokenizer *t, void *state, const struct stretch *s,
                        struct ids *ids, size_t *reached)
{
    struct bpe_state *b = state;
    struct stretch now = *s;
    size_t at = s->from, look = LOOK, kept = at;
    int64_t kept_count = ids->count;

    (void)t;
    b->ids = ids;
    b->known_end = s->text + s->end;
    b->due = at == 0 && !s->continues && b->tokenizer->file->prefix != PREFIX_NONE;
    while (at < s->stop || (b->due && at < s->end)) {
        size_t bound, before = at;
        now.stop = at < s->stop ? s->stop : at + 1;
        bound = s->end - now.stop > look ? now.stop + look : s->end;
        TRY_RETURN(encode_some(b, &now, bound, &at));
        if (at == before && bound == s->end)
            break;
        look *= at == before ? LOOK_GROWTH : 1;
        kept = b->due ? kept : at;
        kept_count = b->due ? kept_count : ids->count;
    }
    if (b->due && !(s->last && at == s->end)) {
        at = kept;
        ids->count = kept_count;
    }
    *reached = at;
    return ALIBI_OK;
}

const struct tokenizer_kind tokenizer_kind_bpe = {
    .type = "bpe",
    .set_end = set_end,
    .format = format,
    .free = free_bpe,
    .bytes = bytes_of,
    .text = text_of,
    .state_new = state_new,
    .state_free = state_free,
    .run = run,
};
