/* gguf.c - a GGUF file up to its data, read strictly
 *
 * Nothing in the file is trusted. One pass checks every length against the remaining bytes before
 * it is used; counts are checked against the smallest size of an entry, so memory is a small
 * multiple of the file. Values are not copied: they are slices of the file, which gguf_open() maps.
 * gguf.h has the layout. */
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"

enum {
    KEY_MAX = 65535,
    PAIR_LEAST = 8 + 1 + 4 + 1,  /* bytes: a key of one letter and a value of one byte */
    ENTRY_LEAST = 8 + 4 + 4 + 8, /* bytes: no name and no dimension */
    ALIGNMENT_MAX = 1 << 20,
};

static const size_t kind_bytes[GGUF_KINDS] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* The table that callers see, and the file that its slices are in. */
struct owner {
    struct gguf table;
    struct mapping *mapping;
};

struct reader {
    const char *bytes;
    size_t length, at;
    int64_t file_bytes;
    const char *path;
    struct gguf table;
    int64_t alignment;
};

/* ---- bytes, numbers, texts */

/* *out are the next `bytes` bytes, which belong to `what`. */
static alibi_status take(struct reader *r, const char **out, uint64_t bytes, const char *what)
{
    if (bytes > r->length - r->at)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': %s needs %llu bytes at byte %zu, the file ends at %zu",
                    r->path, what, (unsigned long long)bytes, r->at, r->length);
    *out = r->bytes + r->at;
    r->at += (size_t)bytes;
    return ALIBI_OK;
}

/* *out, a number of `bytes` bytes, is the next one. */
static alibi_status take_number(struct reader *r, void *out, size_t bytes, const char *what)
{
    const char *at = NULL;

    TRY_RETURN(take(r, &at, bytes, what));
    memcpy(out, at, bytes);
    return ALIBI_OK;
}

static alibi_status take_text(struct reader *r, struct slice *out, const char *what)
{
    uint64_t bytes = 0;

    TRY_RETURN(take_number(r, &bytes, sizeof bytes, what));
    TRY_RETURN(take(r, &out->at, bytes, what));
    out->bytes = (size_t)bytes;
    return ALIBI_OK;
}

/* A key, or the name of a tensor. */
static alibi_status take_name(struct reader *r, struct slice *out, size_t most, const char *what)
{
    size_t at = r->at;

    TRY_RETURN(take_text(r, out, what));
    if (out->bytes == 0 || out->bytes > most)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': %s at byte %zu has %zu bytes, 1 to %zu are allowed", r->path,
                    what, at, out->bytes, most);
    for (size_t i = 0; i < out->bytes; i++)
        if (out->at[i] <= ' ' || out->at[i] > '~')
            return fail(ALIBI_BAD_INPUT, "cannot read '%s': %s at byte %zu is not printable ASCII",
                        r->path, what, at);
    return ALIBI_OK;
}

/* ---- metadata */

static alibi_status take_kind(struct reader *r, enum gguf_kind *out, struct slice key)
{
    uint32_t kind = 0;

    TRY_RETURN(take_number(r, &kind, sizeof kind, "the kind of a value"));
    if (kind >= GGUF_KINDS)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': the value of '%.*s' is of unknown kind %u",
                    r->path, (int)key.bytes, key.at, kind);
    *out = (enum gguf_kind)kind;
    return ALIBI_OK;
}

static alibi_status read_pair(struct reader *r, struct gguf_pair *p)
{
    struct gguf_value *v = &p->value;
    struct slice text;
    uint64_t count = 1;
    size_t bytes, start;

    TRY_RETURN(take_name(r, &p->key, KEY_MAX, "a key"));
    TRY_RETURN(take_kind(r, &v->kind, p->key));
    v->array = v->kind == GGUF_ARRAY;
    if (v->array) {
        TRY_RETURN(take_kind(r, &v->kind, p->key));
        TRY_RETURN(take_number(r, &count, sizeof count, "the count of an array"));
        if (v->kind == GGUF_ARRAY)
            return fail(ALIBI_BAD_INPUT,
                        "cannot read '%s': '%.*s' is an array of arrays, which is not supported",
                        r->path, (int)p->key.bytes, p->key.at);
        if (count > r->length)
            return fail(ALIBI_BAD_INPUT,
                        "cannot read '%s': '%.*s' has %llu items, more than the file has bytes",
                        r->path, (int)p->key.bytes, p->key.at, (unsigned long long)count);
    }
    v->count = (int64_t)count;
    v->at = r->bytes + r->at;
    start = r->at;
    if (v->kind == GGUF_TEXT)
        for (int64_t i = 0; i < v->count; i++)
            TRY_RETURN(take_text(r, &text, "a text"));
    else if (size_multiply(&bytes, (size_t)v->count, kind_bytes[v->kind]))
        TRY_RETURN(take(r, &v->at, bytes, "a value"));
    else
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': an array at byte %zu has %lld items",
                    r->path, r->at, (long long)v->count);
    v->bytes = r->at - start;
    return ALIBI_OK;
}

static alibi_status read_alignment(struct reader *r)
{
    const struct gguf_value *v = gguf_find(&r->table, "general.alignment");

    r->alignment = GGUF_ALIGNMENT;
    if (v == NULL)
        return ALIBI_OK;
    if (v->array || !gguf_integer(v, 0, &r->alignment) || r->alignment < 1 ||
        r->alignment > ALIGNMENT_MAX || (r->alignment & (r->alignment - 1)) != 0)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': 'general.alignment' is not a power of two up to %d", r->path,
                    ALIGNMENT_MAX);
    return ALIBI_OK;
}

/* ---- tensors */

static alibi_status refuse(const struct reader *r, const struct gguf_tensor *t, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));
static alibi_status refuse(const struct reader *r, const struct gguf_tensor *t, const char *format,
                           ...)
{
    char why[160];
    va_list args;

    va_start(args, format);
    text_format(why, sizeof why, format, args);
    va_end(args);
    return fail(ALIBI_BAD_INPUT, "cannot read '%s': tensor '%s' %s", r->path, t->name, why);
}

/* `*next` is where the data of this tensor must begin, counted from the start of the data, and
 * becomes where that of the next must. */
static alibi_status read_entry(struct reader *r, struct gguf_tensor *t, int64_t *next)
{
    const char *type = NULL;
    struct slice name = { 0 };
    uint32_t rank = 0, id = 0;
    uint64_t size = 0, offset = 0;
    size_t numbers = 0, bytes = 0;

    TRY_RETURN(take_name(r, &name, GGUF_NAME_MAX, "the name of a tensor"));
    memcpy(t->name, name.at, name.bytes);
    t->name[name.bytes] = '\0';

    TRY_RETURN(take_number(r, &rank, sizeof rank, "the rank of a tensor"));
    if (rank > GGUF_RANK_MAX)
        return refuse(r, t, "has %u dimensions, at most %d are allowed", rank, GGUF_RANK_MAX);
    t->rank = (int)rank;
    for (int d = t->rank - 1; d >= 0; d--) {
        TRY_RETURN(take_number(r, &size, sizeof size, "a dimension of a tensor"));
        if (size > INT64_MAX)
            return refuse(r, t, "has a shape that no file can hold");
        t->shape[d] = (int64_t)size;
    }

    TRY_RETURN(take_number(r, &id, sizeof id, "the type of a tensor"));
    t->type = gguf_type_of(id, &type);
    if (t->type == NULL && type != NULL)
        return refuse(r, t, "is of type %s; F32, F16, BF16 and Q8_0 can be read", type);
    if (t->type == NULL)
        return refuse(r, t, "is of unknown type %u", id);
    if ((t->rank > 0 ? t->shape[t->rank - 1] : 1) % t->type->block != 0 ||
        !size_product(&numbers, t->shape, t->rank) ||
        !size_multiply(&bytes, numbers / (size_t)t->type->block, t->type->bytes) ||
        bytes > INT64_MAX / 2)
        return refuse(r, t, "has a shape that %s cannot have", t->type->name);

    TRY_RETURN(take_number(r, &offset, sizeof offset, "the offset of a tensor"));
    if (offset != (uint64_t)*next)
        return refuse(r, t, "begins at %llu of the data, not at %lld, after the one before it",
                      (unsigned long long)offset, (long long)*next);
    if ((int64_t)bytes > r->file_bytes - *next)
        return refuse(r, t, "needs %zu bytes at %lld of the data, the file has %lld bytes", bytes,
                      (long long)*next, (long long)r->file_bytes);
    t->begin = *next;
    t->end = *next + (int64_t)bytes;
    *next = (t->end + r->alignment - 1) / r->alignment * r->alignment;
    return ALIBI_OK;
}

/* Makes the offsets count from the start of the file, and checks that the file has all data. */
static alibi_status place(struct reader *r)
{
    int64_t data = ((int64_t)r->at + r->alignment - 1) / r->alignment * r->alignment;

    for (int i = 0; i < r->table.tensor_count; i++) {
        struct gguf_tensor *t = &r->table.tensors[i];
        t->begin += data;
        t->end += data;
        if (t->end > r->file_bytes)
            return fail(
                ALIBI_BAD_INPUT,
                "cannot read '%s': tensor '%s' needs %lld bytes at %lld, the file ends at %lld",
                r->path, t->name, (long long)(t->end - t->begin), (long long)t->begin,
                (long long)r->file_bytes);
    }
    return ALIBI_OK;
}

/* ---- names */

static int compare_slices(const void *a, const void *b)
{
    const struct slice *s = a, *t = b;
    int order = memcmp(s->at, t->at, s->bytes < t->bytes ? s->bytes : t->bytes);

    return order != 0 ? order : (s->bytes > t->bytes) - (s->bytes < t->bytes);
}

/* Sorts the names. */
static alibi_status check_distinct(const struct reader *r, struct slice *names, int count,
                                   const char *what)
{
    if (count > 0)
        qsort(names, (size_t)count, sizeof *names, compare_slices);
    for (int i = 1; i < count; i++)
        if (compare_slices(&names[i - 1], &names[i]) == 0)
            return fail(ALIBI_BAD_INPUT, "cannot read '%s': the %s '%.*s' is repeated", r->path,
                        what, (int)names[i].bytes, names[i].at);
    return ALIBI_OK;
}

static alibi_status check_names(const struct reader *r)
{
    alibi_status status;
    const struct gguf *g = &r->table;
    struct slice *names = NULL;

    TRY(NEW_ARRAY(&names, g->pair_count > g->tensor_count ? g->pair_count : g->tensor_count,
                  "the names in a GGUF file"));
    for (int i = 0; i < g->pair_count; i++)
        names[i] = g->pairs[i].key;
    TRY(check_distinct(r, names, g->pair_count, "key"));
    for (int i = 0; i < g->tensor_count; i++)
        names[i] = (struct slice){ g->tensors[i].name, strlen(g->tensors[i].name) };
    TRY(check_distinct(r, names, g->tensor_count, "tensor"));
out:
    mem_free(names);
    return status;
}

/* ---- parse, open, free */

/* The number of pairs or tensors, each of which takes at least that many bytes. */
static alibi_status take_count(struct reader *r, int *out, uint64_t least, const char *what)
{
    uint64_t count = 0;

    TRY_RETURN(take_number(r, &count, sizeof count, what));
    if (count > (r->length - r->at) / least || count > INT32_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': it would have %llu %s, more than fit its %zu bytes", r->path,
                    (unsigned long long)count, what, r->length);
    *out = (int)count;
    return ALIBI_OK;
}

static alibi_status read_table(struct reader *r)
{
    struct gguf *g = &r->table;
    const char *magic = NULL;
    uint32_t version = 0;
    int64_t next = 0;

    if (r->length < 4 || memcmp(r->bytes, "GGUF", 4) != 0)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it is not a GGUF file", r->path);
    TRY_RETURN(take(r, &magic, 4, "the magic"));
    TRY_RETURN(take_number(r, &version, sizeof version, "the version"));
    if (version != 0 && (version & 0xffff) == 0)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': it is a big-endian GGUF file, which is not supported",
                    r->path);
    if (version != 2 && version != 3)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': it is GGUF version %u; versions 2 and 3 can be read",
                    r->path, version);
    TRY_RETURN(take_count(r, &g->tensor_count, ENTRY_LEAST, "tensors"));
    TRY_RETURN(take_count(r, &g->pair_count, PAIR_LEAST, "pairs of metadata"));
    TRY_RETURN(NEW_ZERO_ARRAY(&g->pairs, g->pair_count, "the metadata of a GGUF file"));
    for (int i = 0; i < g->pair_count; i++)
        TRY_RETURN(read_pair(r, &g->pairs[i]));
    TRY_RETURN(read_alignment(r));
    TRY_RETURN(NEW_ZERO_ARRAY(&g->tensors, g->tensor_count, "the tensors of a GGUF file"));
    for (int i = 0; i < g->tensor_count; i++)
        TRY_RETURN(read_entry(r, &g->tensors[i], &next));
    TRY_RETURN(place(r));
    return check_names(r);
}

alibi_status gguf_parse(struct gguf **out, const char *bytes, size_t length, int64_t file_bytes,
                        const char *path)
{
    alibi_status status;
    struct reader r = { .bytes = bytes, .length = length, .file_bytes = file_bytes, .path = path };
    struct owner *o = NULL;

    TRY(read_table(&r));
    TRY(NEW_ARRAY(&o, 1, "a GGUF file"));
    *o = (struct owner){ .table = r.table };
    r.table = (struct gguf){ 0 };
    *out = &o->table;
out:
    mem_free(r.table.pairs);
    mem_free(r.table.tensors);
    return status;
}

alibi_status gguf_open(struct gguf **out, const char *path)
{
    alibi_status status;
    struct mapping *mapping = NULL;
    const char *bytes;
    size_t length = 0;

    TRY(mapping_open(&mapping, path));
    bytes = mapping_view(mapping, &length);
    TRY(gguf_parse(out, bytes, length, (int64_t)length, path));
    ((struct owner *)*out)->mapping = mapping;
    mapping = NULL;
out:
    mapping_close(mapping);
    return status;
}

void gguf_free(struct gguf *g)
{
    struct owner *o = (struct owner *)g;

    if (o == NULL)
        return;
    mapping_close(o->mapping);
    mem_free(o->table.pairs);
    mem_free(o->table.tensors);
    mem_free(o);
}

/* ---- values */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    size_t bytes = strlen(key);

    for (int i = 0; i < g->pair_count; i++)
        if (g->pairs[i].key.bytes == bytes && memcmp(g->pairs[i].key.at, key, bytes) == 0)
            return &g->pairs[i].value;
    return NULL;
}

bool gguf_integer(const struct gguf_value *v, int64_t i, int64_t *out)
{
    bool is_signed =
        v->kind == GGUF_I8 || v->kind == GGUF_I16 || v->kind == GGUF_I32 || v->kind == GGUF_I64;
    size_t bytes = kind_bytes[v->kind];
    uint64_t bits = 0;

    if (v->kind == GGUF_F32 || v->kind == GGUF_F64 || v->kind == GGUF_BOOL || bytes == 0 || i < 0 ||
        i >= v->count)
        return false;
    memcpy(&bits, v->at + (size_t)i * bytes, bytes);
    if (is_signed) /* the sign of the value becomes that of the wider one */
        *out = (int64_t)(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes);
    else if (bits > INT64_MAX)
        return false;
    else
        *out = (int64_t)bits;
    return true;
}

bool gguf_real(const struct gguf_value *v, int64_t i, double *out)
{
    int64_t whole = 0;
    float narrow;

    if (gguf_integer(v, i, &whole)) {
        *out = (double)whole;
    } else if (i < 0 || i >= v->count) {
        return false;
    } else if (v->kind == GGUF_F32) {
        memcpy(&narrow, v->at + (size_t)i * sizeof narrow, sizeof narrow);
        *out = (double)narrow;
    } else if (v->kind == GGUF_F64) {
        memcpy(out, v->at + (size_t)i * sizeof *out, sizeof *out);
    } else {
        return false;
    }
    return true;
}

bool gguf_flag(const struct gguf_value *v, bool *out)
{
    if (v->kind != GGUF_BOOL || v->array)
        return false;
    *out = *v->at != 0;
    return true;
}

struct slice gguf_next_text(const char **at)
{
    uint64_t bytes;
    struct slice text;

    memcpy(&bytes, *at, sizeof bytes);
    text = (struct slice){ *at + sizeof bytes, (size_t)bytes };
    *at = text.at + text.bytes;
    return text;
}

bool gguf_text(const struct gguf_value *v, struct slice *out)
{
    const char *at = v->at;

    if (v->kind != GGUF_TEXT || v->array)
        return false;
    *out = gguf_next_text(&at);
    return true;
}
