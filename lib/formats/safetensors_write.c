/* safetensors_write.c - the header in front of F32 tensors
 *
 * Offsets count from the start of the data, but callers want places in the file, which are known
 * once the header is: the first pass sets begin and end relative to the data, the last adds the
 * header's length. */
#include <string.h>

#include "base/json.h"
#include "formats/formats.h"

enum { LENGTH_BYTES = 8, PAD = 8, F32_BYTES = 4 };

/* Sets type and place within the data, right behind `at`, which moves to its end. */
static alibi_status place_tensor(struct safetensor *t, int64_t *at)
{
    size_t bytes = 0;

    if (!size_product(&bytes, t->shape, t->rank) || !size_multiply(&bytes, bytes, F32_BYTES) ||
        bytes > (size_t)(INT64_MAX - *at))
        return fail(ALIBI_BAD_INPUT,
                    "cannot write tensor '%s': its shape is more than a file can hold", t->name);
    memcpy(t->type, "F32", 4);
    t->begin = *at;
    *at += (int64_t)bytes;
    t->end = *at;
    return ALIBI_OK;
}

static alibi_status append_tensor(struct text *json, const struct safetensor *t)
{
    TRY_RETURN(text_append(json, ","));
    TRY_RETURN(json_append_string(json, t->name, strlen(t->name)));
    TRY_RETURN(text_append(json, ":{\"dtype\":\"%s\",\"shape\":[", t->type));
    for (int i = 0; i < t->rank; i++)
        TRY_RETURN(text_append(json, "%s%lld", i > 0 ? "," : "", (long long)t->shape[i]));
    return text_append(json, "],\"data_offsets\":[%lld,%lld]}", (long long)t->begin,
                       (long long)t->end);
}

static alibi_status append_length(struct text *header, uint64_t length)
{
    unsigned char bytes[LENGTH_BYTES];

    for (int i = 0; i < LENGTH_BYTES; i++)
        bytes[i] = (unsigned char)(length >> 8 * i);
    return text_append_bytes(header, bytes, sizeof bytes);
}

alibi_status safetensors_header(struct text *header, struct safetensor *tensors, int count)
{
    alibi_status status;
    struct text json = { 0 };
    int64_t at = 0;

    TRY(text_append(&json, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int i = 0; i < count; i++) {
        TRY(place_tensor(&tensors[i], &at));
        TRY(append_tensor(&json, &tensors[i]));
    }
    TRY(text_append(&json, "}"));
    while (json.length % PAD != 0)
        TRY(text_append(&json, " "));
    TRY(append_length(header, json.length));
    TRY(text_append_bytes(header, json.data, json.length));
    for (int i = 0; i < count; i++) {
        tensors[i].begin += (int64_t)header->length;
        tensors[i].end += (int64_t)header->length;
    }
out:
    text_free(&json);
    return status;
}
