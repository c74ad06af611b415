/* safetensors.c - the header of a safetensors file, read strictly
 *
 *   u64 N, little-endian | N bytes of JSON | data
 *
 *   { "__metadata__": { text: text, ... },
 *     NAME: { "dtype": "F32", "shape": [2, 3], "data_offsets": [b, e] }, ... }
 *
 * [b, e) counts from the start of the data. Sorted by offset the tensors follow one another from 0
 * to the end of the file, and e - b is the product of the shape times the size of the type. So
 * every byte belongs to exactly one tensor, and no tensor can reach beyond the file.
 *
 * The header is not trusted, and may have 100 MB. Its grammar is small and fixed, so it is read in
 * one pass, without a tree and without recursion. Memory is a small multiple of the header. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "formats/formats.h"
#include "formats/scan.h"

enum { HEADER_MAX = 100000000, LENGTH_BYTES = 8, RANK_MAX = 8, PAD = 8 };

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    { "F64", 8 }, { "F32", 4 }, { "F16", 2 },  { "BF16", 2 }, { "F8_E4M3", 1 }, { "F8_E5M2", 1 },
    { "I64", 8 }, { "I32", 4 }, { "I16", 2 },  { "I8", 1 },   { "U64", 8 },     { "U32", 4 },
    { "U16", 2 }, { "U8", 1 },  { "BOOL", 1 }, { "C64", 8 },
};

size_t safetensor_type_bytes(const char *name)
{
    for (int i = 0; i < COUNT(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].bytes;
    return 0;
}

/* The table that callers see, and the memory of its names. */
struct owner {
    struct safetensors table;
    char *names; /* all names, one after the other */
};

struct reader {
    struct scan scan;
    struct safetensor *tensors;
    int64_t capacity;
    int count;         /* HEADER_MAX bytes have fewer than an int counts */
    const char **keys; /* of the metadata */
    int64_t key_capacity;
    int key_count;
    bool has_metadata;
};

/* ---- one tensor */

/* The fields of a tensor, each a bit of those that were read. */
enum { TYPE = 1, SHAPE = 2, OFFSETS = 4 };

static alibi_status read_field(struct reader *r, struct safetensor *t, unsigned *seen)
{
    struct scan *s = &r->scan;
    const char *key = NULL, *type = NULL;
    size_t before = s->used;
    unsigned field;

    TRY_RETURN(scan_string(s, &key));
    TRY_RETURN(scan_expect(s, ':'));
    field = strcmp(key, "dtype") == 0          ? TYPE
            : strcmp(key, "shape") == 0        ? SHAPE
            : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                               : 0;
    if (field == 0 || (*seen & field))
        return fail(ALIBI_BAD_INPUT,
                    field == 0 ? "cannot read '%s': tensor '%s' has the unknown key '%s'"
                               : "cannot read '%s': tensor '%s' has '%s' twice",
                    s->path, t->name, key);
    *seen |= field;
    s->used = before; /* the key is not needed any more */
    if (field == SHAPE) {
        TRY_RETURN(scan_expect(s, '['));
        if (scan_take(s, ']'))
            return ALIBI_OK;
        do {
            if (t->rank == RANK_MAX)
                return fail(ALIBI_BAD_INPUT,
                            "cannot read '%s': tensor '%s' has more than %d dimensions", s->path,
                            t->name, RANK_MAX);
            TRY_RETURN(scan_count(s, &t->shape[t->rank]));
            t->rank++;
        } while (scan_take(s, ','));
        return scan_expect(s, ']');
    }
    if (field == TYPE) {
        TRY_RETURN(scan_string(s, &type));
        if (safetensor_type_bytes(type) == 0)
            return fail(ALIBI_BAD_INPUT, "cannot read '%s': tensor '%s' has the unknown type '%s'",
                        s->path, t->name, type);
        snprintf(t->type, sizeof t->type, "%s", type);
        return ALIBI_OK;
    }
    TRY_RETURN(scan_expect(s, '['));
    TRY_RETURN(scan_count(s, &t->begin));
    TRY_RETURN(scan_expect(s, ','));
    TRY_RETURN(scan_count(s, &t->end));
    return scan_expect(s, ']');
}

static alibi_status read_tensor(struct reader *r, const char *name)
{
    struct safetensor t = { .name = (char *)name };
    unsigned seen = 0;
    size_t bytes = 0;

    TRY_RETURN(scan_expect(&r->scan, '{'));
    do
        TRY_RETURN(read_field(r, &t, &seen));
    while (scan_take(&r->scan, ','));
    TRY_RETURN(scan_expect(&r->scan, '}'));
    if (seen != (TYPE | SHAPE | OFFSETS))
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': tensor '%s' lacks dtype, shape or data_offsets",
                    r->scan.path, name);
    if (!size_product(&bytes, t.shape, t.rank) ||
        !size_multiply(&bytes, bytes, safetensor_type_bytes(t.type)) || bytes > INT64_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': tensor '%s' has a shape that no file can hold", r->scan.path,
                    name);
    if (t.end < t.begin || (size_t)(t.end - t.begin) != bytes)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': tensor '%s' needs %zu bytes, its offsets are %lld and %lld",
                    r->scan.path, name, bytes, (long long)t.begin, (long long)t.end);
    TRY_RETURN(RESERVE_ARRAY(&r->tensors, &r->capacity, r->count + 1, "the names of tensors"));
    r->tensors[r->count++] = t;
    return ALIBI_OK;
}

/* ---- the whole header */

/* Strings to strings. Values are checked and dropped; keys are kept to find a repeated one. */
static alibi_status read_metadata(struct reader *r)
{
    if (r->has_metadata)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': '__metadata__' is repeated", r->scan.path);
    r->has_metadata = true;
    TRY_RETURN(scan_expect(&r->scan, '{'));
    if (scan_take(&r->scan, '}'))
        return ALIBI_OK;
    do {
        const char *key = NULL, *value = NULL;
        TRY_RETURN(scan_string(&r->scan, &key));
        TRY_RETURN(scan_expect(&r->scan, ':'));
        TRY_RETURN(scan_string(&r->scan, &value));
        TRY_RETURN(
            RESERVE_ARRAY(&r->keys, &r->key_capacity, r->key_count + 1, "the names of tensors"));
        r->keys[r->key_count++] = key;
    } while (scan_take(&r->scan, ','));
    return scan_expect(&r->scan, '}');
}

static alibi_status read_header(struct reader *r)
{
    struct scan *s = &r->scan;

    TRY_RETURN(scan_expect(s, '{'));
    if (!scan_take(s, '}')) {
        do {
            const char *name = NULL;
            TRY_RETURN(scan_string(s, &name));
            TRY_RETURN(scan_expect(s, ':'));
            TRY_RETURN(strcmp(name, "__metadata__") == 0 ? read_metadata(r) : read_tensor(r, name));
        } while (scan_take(s, ','));
        TRY_RETURN(scan_expect(s, '}'));
    }
    return scan_end(s);
}

/* ---- names and places of all tensors */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static alibi_status check_distinct(const char **names, int count, const char *what,
                                   const char *path)
{
    if (count > 0)
        qsort(names, (size_t)count, sizeof *names, compare_texts);
    for (int i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return fail(ALIBI_BAD_INPUT, "cannot read '%s': the %s '%s' is repeated", path, what,
                        names[i]);
    return ALIBI_OK;
}

static alibi_status check_names(const struct reader *r)
{
    alibi_status status;
    const char **names = NULL;

    TRY(NEW_ARRAY(&names, r->count, "the names of tensors"));
    for (int i = 0; i < r->count; i++)
        names[i] = r->tensors[i].name;
    TRY(check_distinct(names, r->count, "tensor", r->scan.path));
    TRY(check_distinct(r->keys, r->key_count, "metadata key", r->scan.path));
out:
    mem_free(names);
    return status;
}

/* By offset; tensors without data, which may share one, by name. */
static int compare_tensors(const void *a, const void *b)
{
    const struct safetensor *s = a, *t = b;

    if (s->begin != t->begin)
        return s->begin < t->begin ? -1 : 1;
    if (s->end != t->end)
        return s->end < t->end ? -1 : 1;
    return strcmp(s->name, t->name);
}

/* Sorts the tensors, checks that they fill the data, and makes their offsets count from the start
 * of the file. */
static alibi_status place(struct reader *r, int64_t file_bytes)
{
    int64_t data = (int64_t)r->scan.end, at = data;

    if (r->count > 0)
        qsort(r->tensors, (size_t)r->count, sizeof *r->tensors, compare_tensors);
    for (int i = 0; i < r->count; i++) {
        struct safetensor *t = &r->tensors[i];
        if (t->begin != at - data)
            return fail(
                ALIBI_BAD_INPUT,
                "cannot read '%s': tensor '%s' begins at %lld of the data, but the one before it "
                "ends at %lld",
                r->scan.path, t->name, (long long)t->begin, (long long)(at - data));
        if (t->end > file_bytes - data)
            return fail(
                ALIBI_BAD_INPUT,
                "cannot read '%s': tensor '%s' needs %lld bytes at %lld, the file ends at %lld",
                r->scan.path, t->name, (long long)(t->end - t->begin), (long long)at,
                (long long)file_bytes);
        t->begin += data;
        t->end += data;
        at = t->end;
    }
    if (at != file_bytes)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': the tensors end at %lld, the file at %lld",
                    r->scan.path, (long long)at, (long long)file_bytes);
    return ALIBI_OK;
}

/* ---- parse, open, free */

/* Bytes of the header, checked against the limit and the file. `bytes` has the first LENGTH_BYTES
 * of the file. */
static alibi_status header_bytes(size_t *out, const char *bytes, int64_t file_bytes,
                                 const char *path)
{
    uint64_t length = 0;

    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | (unsigned char)bytes[i];
    if (length > HEADER_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': its header would have %llu bytes, at most %d are allowed",
                    path, (unsigned long long)length, HEADER_MAX);
    if ((int64_t)length > file_bytes - LENGTH_BYTES)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': its header needs %llu bytes at %d, the file ends at %lld",
                    path, (unsigned long long)length, LENGTH_BYTES, (long long)file_bytes);
    *out = (size_t)length;
    return ALIBI_OK;
}

alibi_status safetensors_parse(struct safetensors **out, const char *bytes, size_t length,
                               int64_t file_bytes, const char *path)
{
    alibi_status status;
    struct reader r = { .scan = { .text = bytes, .at = LENGTH_BYTES, .path = path } };
    struct owner *o = NULL;
    size_t header = 0, valid;

    if (length < LENGTH_BYTES || file_bytes < LENGTH_BYTES)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it has no header, it ends at %zu", path,
                    length);
    TRY_RETURN(header_bytes(&header, bytes, file_bytes, path));
    if (header > length - LENGTH_BYTES)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': its header needs %zu bytes, only %zu are there", path,
                    header, length - LENGTH_BYTES);
    valid = utf8_valid_prefix(bytes + LENGTH_BYTES, header);
    if (valid < header)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': byte %zu is not UTF-8", path,
                    valid + LENGTH_BYTES);
    if (header == 0 || bytes[LENGTH_BYTES] != '{')
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': '{' expected at byte %d", path,
                    LENGTH_BYTES);
    r.scan.end = LENGTH_BYTES + header;
    TRY(NEW_ARRAY(&r.scan.strings, (int64_t)header, "the names of tensors"));
    TRY(read_header(&r));
    TRY(check_names(&r));
    TRY(place(&r, file_bytes));
    TRY(NEW_ARRAY(&o, 1, "the table of tensors"));
    *o = (struct owner){ { r.tensors, r.count }, r.scan.strings };
    r.tensors = NULL;
    r.scan.strings = NULL;
    *out = &o->table;
out:
    mem_free(r.keys);
    mem_free(r.tensors);
    mem_free(r.scan.strings);
    return status;
}

alibi_status safetensors_open(struct safetensors **out, const char *path)
{
    alibi_status status;
    struct file *f = NULL;
    char first[LENGTH_BYTES], *bytes = NULL;
    size_t got = 0, header = 0;

    TRY(file_open_read(&f, path));
    TRY(file_read(f, first, sizeof first, &got));
    if (got < sizeof first)
        TRY(fail(ALIBI_BAD_INPUT, "cannot read '%s': it has no header, it ends at %zu", path, got));
    TRY(header_bytes(&header, first, file_size(f), path));
    TRY(NEW_ARRAY(&bytes, (int64_t)(LENGTH_BYTES + header), "the header of a safetensors file"));
    memcpy(bytes, first, sizeof first);
    TRY(file_read(f, bytes + LENGTH_BYTES, header, &got));
    TRY(safetensors_parse(out, bytes, LENGTH_BYTES + got, file_size(f), path));
out:
    mem_free(bytes);
    file_close(f);
    return status;
}

void safetensors_free(struct safetensors *s)
{
    struct owner *o = (struct owner *)s;

    if (o == NULL)
        return;
    mem_free(o->table.tensors);
    mem_free(o->names);
    mem_free(o);
}

/* ---- writing */

/* The header has offsets within the data, but callers need offsets within the file. Those are known
 * once the header is complete, so begin and end become absolute at the end. */
alibi_status safetensors_header(struct text *header, struct safetensor *tensors, int count)
{
    alibi_status status;
    struct text json = { 0 };
    unsigned char length[LENGTH_BYTES];
    int64_t at = 0;

    text_append(&json, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < count; i++) {
        struct safetensor *t = &tensors[i];
        size_t bytes = 0;
        if (!size_product(&bytes, t->shape, t->rank) ||
            !size_multiply(&bytes, bytes, safetensor_type_bytes(t->type)) ||
            bytes > (size_t)(INT64_MAX - at))
            TRY(fail(ALIBI_BAD_INPUT,
                     "cannot write tensor '%s': its shape is more than a file can hold", t->name));
        t->begin = at;
        t->end = at += (int64_t)bytes;
        text_append(&json, ",");
        json_append_string(&json, t->name, strlen(t->name));
        text_append(&json, ":{\"dtype\":\"%s\",\"shape\":[", t->type);
        for (int d = 0; d < t->rank; d++)
            text_append(&json, "%s%lld", d > 0 ? "," : "", (long long)t->shape[d]);
        text_append(&json, "],\"data_offsets\":[%lld,%lld]}", (long long)t->begin,
                    (long long)t->end);
    }
    text_append(&json, "}");
    while (json.status == ALIBI_OK && json.length % PAD != 0)
        text_append(&json, " ");
    TRY(text_status(&json));
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)((uint64_t)json.length >> 8 * i);
    text_append_bytes(header, length, sizeof length);
    text_append_bytes(header, json.data, json.length);
    TRY(text_status(header));
    for (int i = 0; i < count; i++) {
        tensors[i].begin += (int64_t)header->length;
        tensors[i].end += (int64_t)header->length;
    }
out:
    text_free(&json);
    return status;
}
