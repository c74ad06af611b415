/* memory.c - buffers in this process's memory, and the ways in and out of them */
#include <string.h>

#include "ops/ref/ref.h"

/* ---- the host as a device: nothing is ever under way, and what the library holds is its memory */

alibi_status ref_finish(struct device *dev)
{
    (void)dev;
    return ALIBI_OK;
}

alibi_status ref_caller(struct device *dev, const struct caller *caller)
{
    (void)dev;
    (void)caller;
    return ALIBI_OK;
}

void ref_memory(struct device *dev, struct device_memory *memory)
{
    (void)dev;
    *memory = (struct device_memory){ .total = memory_of_machine(),
                                      .used = alibi_memory_now(),
                                      .peak = alibi_memory_peak() };
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
}

void ref_reset_peak(struct device *dev)
{
    (void)dev;
    alibi_memory_reset_peak();
}

size_t ref_workspace(struct device *dev, const struct workspace_args *a)
{
    (void)dev;
    (void)a;
    return 0;
}

alibi_status ref_read_parts(struct device *dev, struct device_part *parts, int *count)
{
    (void)dev, (void)parts;
    *count = 0;
    return ALIBI_OK;
}

/* ---- buffers */

alibi_status ref_buffer_new(struct device *dev, void **out, size_t bytes, const char *what)
{
    (void)dev;
    return mem_new(out, bytes, what);
}

void ref_buffer_free(struct device *dev, void *buffer)
{
    (void)dev;
    mem_free(buffer);
}

/* F32 and I32 have the host's own layout; the other types are converted. */
static bool is_host_layout(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_I32;
}

alibi_status ref_upload(struct device *dev, struct tensor dst, const void *host)
{
    int64_t count = tensor_count(dst);

    (void)dev;
    if (!is_host_layout(dst.type))
        for (int64_t i = 0; i < count; i++)
            set(dst, i, (double)((const float *)host)[i]);
    else if (count > 0)
        memcpy(dst.data, host, (size_t)count * dtype_bytes(dst.type));
    return ALIBI_OK;
}

alibi_status ref_download(struct device *dev, void *host, struct tensor src)
{
    int64_t count = tensor_count(src);

    (void)dev;
    if (!is_host_layout(src.type))
        for (int64_t i = 0; i < count; i++)
            ((float *)host)[i] = (float)get(src, i);
    else if (count > 0)
        memcpy(host, src.data, (size_t)count * dtype_bytes(src.type));
    return ALIBI_OK;
}

alibi_status ref_fill(struct device *dev, struct tensor dst, double value)
{
    int64_t count = tensor_count(dst);

    (void)dev;
    for (int64_t i = 0; i < count; i++)
        set(dst, i, value);
    return ALIBI_OK;
}

static int64_t element(struct tensor t, int64_t b, int64_t l, int64_t h, int64_t d)
{
    return b * t.stride[0] + l * t.stride[1] + h * t.stride[2] + d * t.stride[3];
}

alibi_status ref_copy(struct device *dev, struct tensor dst, struct tensor src)
{
    (void)dev;
    for (int64_t b = 0; b < dst.shape[0]; b++)
        for (int64_t l = 0; l < dst.shape[1]; l++)
            for (int64_t h = 0; h < dst.shape[2]; h++)
                for (int64_t d = 0; d < dst.shape[3]; d++)
                    set(dst, element(dst, b, l, h, d), get(src, element(src, b, l, h, d)));
    return ALIBI_OK;
}
