/* gguf_write.c - a GGUF file up to its data; gguf.h has the layout */
#include <string.h>

#include "formats/gguf.h"

enum { VERSION = 3 };

static void append_u32(struct text *t, uint32_t value)
{
    text_append_bytes(t, &value, sizeof value);
}

static void append_u64(struct text *t, uint64_t value)
{
    text_append_bytes(t, &value, sizeof value);
}

void gguf_append_text(struct text *items, struct slice text)
{
    append_u64(items, text.bytes);
    text_append_bytes(items, text.at, text.bytes);
}

/* ---- metadata */

void gguf_put(struct gguf_writer *w, const char *key, const struct gguf_value *value)
{
    gguf_append_text(&w->pairs, (struct slice){ key, strlen(key) });
    if (value->array) {
        append_u32(&w->pairs, GGUF_ARRAY);
        append_u32(&w->pairs, value->kind);
        append_u64(&w->pairs, (uint64_t)value->count);
    } else {
        append_u32(&w->pairs, value->kind);
    }
    text_append_bytes(&w->pairs, value->at, value->bytes);
    w->count++;
}

static void put_scalar(struct gguf_writer *w, const char *key, enum gguf_kind kind,
                       const void *value, size_t bytes)
{
    gguf_put(w, key, &(struct gguf_value){ kind, false, 1, value, bytes });
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_scalar(w, key, GGUF_U32, &value, sizeof value);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, double value)
{
    float narrow = (float)value;

    put_scalar(w, key, GGUF_F32, &narrow, sizeof narrow);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool value)
{
    put_scalar(w, key, GGUF_BOOL, &(char){ value }, 1);
}

void gguf_put_slice(struct gguf_writer *w, const char *key, struct slice value)
{
    gguf_put(w, key, &(struct gguf_value){ GGUF_TEXT, false, 1, NULL, 0 });
    gguf_append_text(&w->pairs, value);
}

void gguf_put_text(struct gguf_writer *w, const char *key, const char *value)
{
    gguf_put_slice(w, key, (struct slice){ value, strlen(value) });
}

void gguf_writer_fini(struct gguf_writer *w)
{
    text_free(&w->pairs);
}

/* ---- the whole header */

static int64_t aligned(int64_t bytes)
{
    return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

/* The entry of a tensor whose data begins at `at` of the data; *end is where it ends. */
static alibi_status append_entry(struct text *header, const struct gguf_tensor *t, int64_t at,
                                 int64_t *end)
{
    int64_t row = t->rank > 0 ? t->shape[t->rank - 1] : 1;
    size_t bytes = 0;

    if (row % t->type->block != 0)
        return fail(ALIBI_BAD_INPUT,
                    "cannot write tensor '%s' as %s: its rows of %lld numbers are not whole blocks "
                    "of %lld",
                    t->name, t->type->name, (long long)row, (long long)t->type->block);
    if (!size_product(&bytes, t->shape, t->rank) ||
        !size_multiply(&bytes, bytes / (size_t)t->type->block, t->type->bytes) ||
        bytes > (size_t)(INT64_MAX / 2 - at))
        return fail(ALIBI_BAD_INPUT,
                    "cannot write tensor '%s': its shape is more than a file can hold", t->name);
    gguf_append_text(header, (struct slice){ t->name, strlen(t->name) });
    append_u32(header, (uint32_t)t->rank);
    for (int d = t->rank - 1; d >= 0; d--)
        append_u64(header, (uint64_t)t->shape[d]);
    append_u32(header, t->type->id);
    append_u64(header, (uint64_t)at);
    *end = at + (int64_t)bytes;
    return ALIBI_OK;
}

alibi_status gguf_header(struct text *header, const struct gguf_writer *w,
                         struct gguf_tensor *tensors, int count)
{
    static const char zeros[GGUF_ALIGNMENT];
    int64_t at = 0, data;

    TRY_RETURN(text_status(&w->pairs));
    text_append_bytes(header, "GGUF", 4);
    append_u32(header, VERSION);
    append_u64(header, (uint64_t)count);
    append_u64(header, w->count);
    text_append_bytes(header, w->pairs.data, w->pairs.length);
    for (int i = 0; i < count; i++) {
        tensors[i].begin = at;
        TRY_RETURN(append_entry(header, &tensors[i], at, &tensors[i].end));
        at = aligned(tensors[i].end);
    }
    data = aligned((int64_t)header->length);
    text_append_bytes(header, zeros, (size_t)data - header->length);
    TRY_RETURN(text_status(header));
    for (int i = 0; i < count; i++) {
        tensors[i].begin += data;
        tensors[i].end += data;
    }
    return ALIBI_OK;
}
