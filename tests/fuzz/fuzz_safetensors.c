/* fuzz_safetensors.c - any bytes as the header of a safetensors file
 *
 * The first eight bytes say how long the file claims to be, the rest is what of it is there. The
 * tensors of a header that is accepted fill the file from the end of the header on, and come back
 * from being written. */
#include "fuzz.h"

enum { LENGTH_BYTES = 8 };

static void check_places(const struct safetensors *s, const char *bytes, int64_t file_bytes)
{
    int64_t at = LENGTH_BYTES;

    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        at += (int64_t)(unsigned char)bytes[i] << 8 * i;
    for (int i = 0; i < s->count; i++) {
        const struct safetensor *t = &s->tensors[i];
        uint64_t size = safetensor_type_bytes(t->type);
        require(size > 0 && t->rank >= 0 && t->rank <= 8);
        for (int d = 0; d < t->rank; d++) {
            require(t->shape[d] >= 0);
            size *= (uint64_t)t->shape[d];
        }
        require(t->begin == at && t->end >= at && (uint64_t)(t->end - at) == size);
        require(utf8_valid_prefix(t->name, strlen(t->name)) == strlen(t->name));
        at = t->end;
    }
    require(at == file_bytes);
}

static void check_rewritten(const struct safetensors *s)
{
    struct safetensors *back = NULL;
    struct safetensor *tensors = NULL;
    struct text header = { 0 };
    int64_t end;

    require(NEW_ARRAY(&tensors, s->count, "tensors") == ALIBI_OK);
    if (s->count > 0)
        memcpy(tensors, s->tensors, (size_t)s->count * sizeof *tensors);
    require(safetensors_header(&header, tensors, s->count) == ALIBI_OK);
    end = s->count > 0 ? tensors[s->count - 1].end : (int64_t)header.length;
    require(safetensors_parse(&back, header.data, header.length, end, "written") == ALIBI_OK);
    require(back->count == s->count);
    for (int i = 0; i < s->count; i++) {
        const struct safetensor *a = &s->tensors[i], *b = &back->tensors[i];
        require(strcmp(a->name, b->name) == 0 && strcmp(a->type, b->type) == 0);
        require(a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0);
        require(b->begin == tensors[i].begin && b->end == tensors[i].end);
    }
    safetensors_free(back);
    mem_free(tensors);
    text_free(&header);
}

static void check(const char *bytes, size_t size, int64_t file_bytes)
{
    struct safetensors *s = NULL;
    alibi_status status = safetensors_parse(&s, bytes, size, file_bytes, "fuzz.safetensors");

    if (status == ALIBI_OK) {
        check_places(s, bytes, file_bytes);
        check_rewritten(s);
    } else {
        check_refusal(status, "'fuzz.safetensors'");
    }
    safetensors_free(s);
    require(alibi_memory_now() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return check_claimed(data, size, check);
}
