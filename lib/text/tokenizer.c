/* tokenizer.c - text to ids and back: the part that all kinds share, and the tokenizer of bytes
 *
 * A tokenizer is a kind, which is a row of functions, and the data of that kind. A file of ours
 * starts with the name of the kind:
 *
 *   {"type": "bytes", "vocab": 257, "end": 256}
 *
 * All other files are Hugging Face's. */
#include <string.h>

#include "base/names.h"
#include "text/tokenizer.h"

static const struct tokenizer_kind *const kinds[] = { &tokenizer_kind_bytes, &tokenizer_kind_bpe,
                                                      &tokenizer_kind_words, &tokenizer_kind_ids };

enum { KINDS = COUNT(kinds) };

/* ---- ids that grow in number */

alibi_status ids_reserve(struct ids *ids, int64_t more)
{
    int64_t need;

    if (__builtin_add_overflow(ids->count, more, &need))
        return fail(ALIBI_MEMORY, "not enough memory for %lld and %lld tokens",
                    (long long)ids->count, (long long)more);
    return RESERVE_ARRAY(&ids->at, &ids->capacity, need, "tokens");
}

alibi_status ids_append(struct ids *ids, const int32_t *at, int64_t count)
{
    TRY_RETURN(ids_reserve(ids, count));
    if (count > 0)
        memcpy(ids->at + ids->count, at, (size_t)count * sizeof *at);
    ids->count += count;
    return ALIBI_OK;
}

void alibi_ids_free(int32_t *ids)
{
    mem_free(ids);
}

/* ---- files */

static alibi_status read_ours(alibi_tokenizer **out, const char *bytes, size_t length,
                              const char *path)
{
    alibi_status status;
    struct scan s = { .text = bytes, .end = length, .path = path, .lines = true };
    struct scan_member type = { "type", true, 0 };
    const struct tokenizer_kind *kind = NULL;
    const char *name;
    size_t valid = utf8_valid_prefix(bytes, length);

    if (valid < length)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': byte %zu is not UTF-8", path, valid);
    TRY(NEW_ARRAY(&s.strings, (int64_t)length, "the file of a tokenizer"));
    TRY(scan_find(&s, "a tokenizer", &type));
    s.at = type.at;
    if (scan_peek(&s) != '"')
        TRY(scan_fail(&s, "the type of a tokenizer is not a text,"));
    TRY(scan_string(&s, &name));
    for (int i = 0; i < KINDS; i++)
        if (kinds[i]->read != NULL && strcmp(kinds[i]->type, name) == 0)
            kind = kinds[i];
    if (kind == NULL)
        TRY(scan_fail(&s, "no tokenizer of type '%.40s' is known, only 'bytes', 'words' and 'ids',",
                      name));
    s.at = s.used = 0;
    TRY(kind->read(out, &s));
out:
    mem_free(s.strings);
    return status;
}

static size_t skip_blanks(const char *bytes, size_t length, size_t at)
{
    while (at < length && strchr(" \t\r\n", bytes[at]) != NULL && bytes[at] != '\0')
        at++;
    return at;
}

/* The first member of our files is "type". Hugging Face's have no such member at the top. */
alibi_status tokenizer_read(alibi_tokenizer **out, const char *bytes, size_t length,
                            const char *path)
{
    static const char key[] = "\"type\"";
    struct bpe_file *file = NULL;
    size_t at = skip_blanks(bytes, length, 0);

    if (at == length || bytes[at] != '{') /* such as a text, given by mistake */
        return fail(ALIBI_BAD_INPUT, "'%s' is not a tokenizer.json: '{' expected at byte %zu", path,
                    at);
    at = skip_blanks(bytes, length, at + 1);
    if (length - at >= strlen(key) && memcmp(bytes + at, key, strlen(key)) == 0)
        return read_ours(out, bytes, length, path);
    TRY_RETURN(bpe_file_parse(&file, bytes, length, path));
    return tokenizer_new_bpe(out, file, path);
}

static alibi_status open_file(alibi_tokenizer **out, const char *path)
{
    alibi_status status;
    char *bytes = NULL;
    size_t length = 0;

    TRY(file_read_all(&bytes, &length, path, TOKENIZER_BYTES_MAX));
    TRY(tokenizer_read(out, bytes, length, path));
out:
    mem_free(bytes);
    return status;
}

/* tokenizer.json, or vocab.json and merges.txt. */
static alibi_status open_folder(alibi_tokenizer **out, const char *folder)
{
    alibi_status status;
    char *whole = NULL, *vocab_path = NULL, *merges_path = NULL, *vocab = NULL, *merges = NULL;
    size_t vocab_bytes = 0, merges_bytes = 0;
    struct bpe_file *file = NULL;

    TRY(path_join(&whole, folder, NAME_TOKENIZER));
    TRY(path_join(&vocab_path, folder, "vocab.json"));
    TRY(path_join(&merges_path, folder, "merges.txt"));
    if (file_exists(whole)) {
        TRY(open_file(out, whole));
    } else if (file_exists(vocab_path)) {
        TRY(file_read_all(&vocab, &vocab_bytes, vocab_path, TOKENIZER_BYTES_MAX));
        TRY(file_read_all(&merges, &merges_bytes, merges_path, TOKENIZER_BYTES_MAX));
        TRY(bpe_file_parse_pair(&file, (struct slice){ vocab, vocab_bytes }, vocab_path,
                                (struct slice){ merges, merges_bytes }, merges_path));
        TRY(tokenizer_new_bpe(out, file, vocab_path));
    } else {
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' has no tokenizer: it has neither tokenizer.json nor vocab.json", folder));
    }
out:
    mem_free(whole);
    mem_free(vocab_path);
    mem_free(merges_path);
    mem_free(vocab);
    mem_free(merges);
    return status;
}

alibi_status alibi_tokenizer_open(alibi_tokenizer **out, const char *path, const char *end)
{
    alibi_status status;
    alibi_tokenizer *t = NULL;
    enum path_kind kind = PATH_NONE;
    bool bytes = path == NULL || strcmp(path, "bytes") == 0;

    if (!bytes)
        TRY(path_look(&kind, path));
    if (bytes)
        TRY(tokenizer_new_bytes(&t));
    else
        TRY((kind == PATH_FOLDER ? open_folder : open_file)(&t, path));
    if (end != NULL && t->kind->set_end == NULL)
        TRY(fail(ALIBI_USAGE,
                 "the end of documents cannot be '%s': a tokenizer of type %s has its own", end,
                 t->kind->type));
    if (end != NULL)
        TRY(t->kind->set_end(t, end));
    *out = t;
    t = NULL;
out:
    alibi_tokenizer_free(t);
    return status;
}

alibi_status tokenizer_format(const alibi_tokenizer *t, struct text *json)
{
    TRY_RETURN(t->kind->format(t, json));
    if (json->length > TOKENIZER_BYTES_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "the file of the tokenizer would have %zu bytes, but at most %d can be read",
                    json->length, TOKENIZER_BYTES_MAX);
    return ALIBI_OK;
}

alibi_status alibi_tokenizer_write(const alibi_tokenizer *t, const char *path)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(tokenizer_format(t, &json));
    TRY(file_replace(path, json.data, json.length));
out:
    text_free(&json);
    return status;
}

/* ---- owners */

alibi_status tokenizer_finish(alibi_tokenizer *t)
{
    alibi_status status;
    struct text json = { 0 };

    atomic_init(&t->owners, 1);
    TRY(tokenizer_format(t, &json));
    t->checksum = checksum(0, json.data, json.length);
out:
    text_free(&json);
    return status;
}

alibi_tokenizer *tokenizer_share(const alibi_tokenizer *t)
{
    alibi_tokenizer *shared =
        (alibi_tokenizer *)(uintptr_t)t; /* only the count of owners changes */

    atomic_fetch_add(&shared->owners, 1);
    return shared;
}

void alibi_tokenizer_free(alibi_tokenizer *t)
{
    if (t != NULL && atomic_fetch_sub(&t->owners, 1) == 1)
        t->kind->free(t);
}

/* ---- facts */

int64_t alibi_tokenizer_vocab(const alibi_tokenizer *t)
{
    return t->vocab;
}

int32_t alibi_tokenizer_end(const alibi_tokenizer *t)
{
    return t->end;
}

int32_t alibi_tokenizer_begin(const alibi_tokenizer *t)
{
    return t->begin;
}

int32_t tokenizer_start(const alibi_tokenizer *t)
{
    return t->begin >= 0 ? t->begin : t->end;
}

bool tokenizer_drops_blank(const alibi_tokenizer *t)
{
    return t->drops_blank;
}

uint32_t tokenizer_checksum(const alibi_tokenizer *t)
{
    return t->checksum;
}

const char *alibi_tokenizer_type(const alibi_tokenizer *t)
{
    return t->kind->type;
}

const char *tokenizer_bytes(const alibi_tokenizer *t, int32_t id, size_t *bytes)
{
    *bytes = 0;
    return id >= 0 && id < t->vocab ? t->kind->bytes(t, id, bytes) : "";
}

/* ---- encoding */

struct encoder {
    const alibi_tokenizer *tokenizer;
    void *state;
};

/* The state has memory for texts of about `bytes` bytes. */
static alibi_status encoder_new_for(struct encoder **out, const alibi_tokenizer *t, size_t bytes)
{
    alibi_status status;
    struct encoder *e = NULL;

    TRY(NEW_ZERO_ARRAY(&e, 1, "an encoder"));
    e->tokenizer = t;
    if (t->kind->state_new != NULL)
        TRY(t->kind->state_new(&e->state, t, bytes));
    *out = e;
    e = NULL;
out:
    encoder_free(e);
    return status;
}

alibi_status encoder_new(struct encoder **out, const alibi_tokenizer *t)
{
    return encoder_new_for(out, t, SIZE_MAX);
}

void encoder_free(struct encoder *e)
{
    if (e == NULL)
        return;
    if (e->state != NULL)
        e->tokenizer->kind->state_free(e->state);
    mem_free(e);
}

alibi_status encoder_run(struct encoder *e, const struct stretch *s, struct ids *ids,
                         size_t *reached)
{
    return e->tokenizer->kind->run(e->tokenizer, e->state, s, ids, reached);
}

alibi_status encoder_begin(struct encoder *e, struct ids *ids)
{
    const alibi_tokenizer *t = e->tokenizer;

    return t->begin >= 0 ? ids_append(ids, &t->begin, 1) : ALIBI_OK;
}

alibi_status encoder_end(struct encoder *e, struct slice document_tail, struct ids *ids)
{
    const alibi_tokenizer *t = e->tokenizer;

    if (t->kind->end != NULL)
        return t->kind->end(t, document_tail, ids);
    return t->end >= 0 ? ids_append(ids, &t->end, 1) : ALIBI_OK;
}

static alibi_status encode_text(const alibi_tokenizer *t, const char *text, size_t bytes,
                                bool continues, struct ids *ids)
{
    alibi_status status;
    struct encoder *e = NULL;
    struct stretch whole = {
        .text = text, .stop = bytes, .end = bytes, .last = true, .continues = continues
    };
    size_t reached;

    TRY(encoder_new_for(&e, t, bytes));
    TRY(encoder_run(e, &whole, ids, &reached));
out:
    encoder_free(e);
    return status;
}

alibi_status tokenizer_encode(const alibi_tokenizer *t, const char *text, size_t bytes,
                              struct ids *ids)
{
    return encode_text(t, text, bytes, false, ids);
}

alibi_status tokenizer_encode_more(const alibi_tokenizer *t, const char *text, size_t bytes,
                                   struct ids *ids)
{
    return encode_text(t, text, bytes, true, ids);
}

alibi_status alibi_tokenizer_encode(const alibi_tokenizer *t, const char *text, size_t bytes,
                                    int32_t **ids, int64_t *count)
{
    alibi_status status;
    struct ids made = { 0 };

    TRY(ids_reserve(&made, 1));
    TRY(tokenizer_encode(t, text, bytes, &made));
    *ids = made.at;
    *count = made.count;
    made.at = NULL;
out:
    mem_free(made.at);
    return status;
}

alibi_status alibi_tokenizer_decode_more(const alibi_tokenizer *t, const int32_t *ids,
                                         int64_t count, char **text, size_t *bytes)
{
    alibi_status status;
    struct text made = { 0 };

    text_append_bytes(&made, "", 0);
    for (int64_t i = 0; i < count; i++) {
        size_t length;
        const char *part;
        if (ids[i] < 0 || ids[i] >= t->vocab)
            TRY(fail(ALIBI_BAD_INPUT, "token %lld is %d, but the vocabulary ends at %lld",
                     (long long)i, (int)ids[i], (long long)t->vocab - 1));
        part = t->kind->text(t, ids[i], &length);
        text_append_bytes(&made, part, length);
    }
    TRY(text_status(&made));
    *text = made.data;
    *bytes = made.length;
    made.data = NULL;
out:
    text_free(&made);
    return status;
}

alibi_status alibi_tokenizer_decode(const alibi_tokenizer *t, const int32_t *ids, int64_t count,
                                    char **text, size_t *bytes)
{
    TRY_RETURN(alibi_tokenizer_decode_more(t, ids, count, text, bytes));
    if (t->drops_blank && (*text)[0] == ' ')
        memmove(*text, *text + 1, (*bytes)--);
    return ALIBI_OK;
}

/* ---- bytes: the id of a byte is its value, and 256 ends a document */

enum { BYTE_IDS = 256, BYTE_END = 256, BYTE_VOCAB = 257 };

struct bytes_tokenizer {
    struct alibi_tokenizer base;
    char all[BYTE_IDS]; /* all[i] = i: for tokenizer_bytes() */
};

alibi_status tokenizer_new_bytes(alibi_tokenizer **out)
{
    alibi_status status;
    struct bytes_tokenizer *t = NULL;

    TRY(NEW_ZERO_ARRAY(&t, 1, "a tokenizer"));
    t->base.kind = &tokenizer_kind_bytes;
    t->base.vocab = BYTE_VOCAB;
    t->base.begin = -1;
    t->base.end = BYTE_END;
    for (int i = 0; i < BYTE_IDS; i++)
        t->all[i] = (char)i;
    TRY(tokenizer_finish(&t->base));
    *out = &t->base;
    t = NULL;
out:
    mem_free(t);
    return status;
}

static alibi_status expect_number(struct scan *s, const struct scan_member *m, int64_t expected)
{
    int64_t value;

    s->at = m->at;
    if (scan_count(s, &value) == ALIBI_OK && value == expected)
        return ALIBI_OK;
    s->at = m->at;
    return scan_fail(s, "the '%s' of a tokenizer of type 'bytes' is not %lld,", m->key,
                     (long long)expected);
}

static alibi_status read_bytes(alibi_tokenizer **out, struct scan *s)
{
    struct scan_member m[] = { { "type", true, 0 }, { "vocab", true, 0 }, { "end", true, 0 } };

    TRY_RETURN(scan_object(s, "a tokenizer of type 'bytes'", m, 3));
    TRY_RETURN(scan_end(s));
    TRY_RETURN(expect_number(s, &m[1], BYTE_VOCAB));
    TRY_RETURN(expect_number(s, &m[2], BYTE_END));
    return tokenizer_new_bytes(out);
}

static alibi_status format_bytes(const alibi_tokenizer *t, struct text *json)
{
    text_append(json, "{\"type\": \"bytes\", \"vocab\": %lld, \"end\": %d}\n", (long long)t->vocab,
                (int)t->end);
    return text_status(json);
}

static void free_bytes(alibi_tokenizer *t)
{
    mem_free(t);
}

static const char *bytes_of(const alibi_tokenizer *t, int32_t id, size_t *bytes)
{
    const struct bytes_tokenizer *b = (const struct bytes_tokenizer *)t;

    *bytes = id < BYTE_IDS ? 1 : 0;
    return id < BYTE_IDS ? &b->all[id] : "";
}

static alibi_status run_bytes(const alibi_tokenizer *t, void *state, const struct stretch *s,
                              struct ids *ids, size_t *reached)
{
    size_t count = s->stop > s->from ? s->stop - s->from : 0;

    (void)t;
    (void)state;
    TRY_RETURN(ids_reserve(ids, (int64_t)count));
    for (size_t i = 0; i < count; i++)
        ids->at[ids->count++] = (unsigned char)s->text[s->from + i];
    *reached = s->from + count;
    return ALIBI_OK;
}

const struct tokenizer_kind tokenizer_kind_bytes = {
    .type = "bytes",
    .read = read_bytes,
    .format = format_bytes,
    .free = free_bytes,
    .bytes = bytes_of,
    .text = bytes_of,
    .run = run_bytes,
};
