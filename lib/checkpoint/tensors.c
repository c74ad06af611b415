/* tensors.c - the files of a checkpoint: checksummed while they are written, synced before they
 * count
 *
 * Tensors go between the device and the disk through one block of bounded size, whatever the size
 * of the model. Files are little-endian, as every machine this runs on. */
#include <string.h>

#include "checkpoint/parts.h"

enum {
    BLOCK_FLOATS = 1 << 18
}; /* large enough that a transfer from another device is not all latency */

/* ---- one file */

alibi_status part_open(struct part_writer *w, const char *folder, const char *name)
{
    alibi_status status;
    char *path = NULL;

    *w = (struct part_writer){ 0 };
    TRY(path_join(&path, folder, name));
    TRY(file_create(&w->file, path));
out:
    mem_free(path);
    return status;
}

alibi_status part_put(struct part_writer *w, const void *bytes, size_t length)
{
    TRY_RETURN(file_write(w->file, bytes, length));
    w->part.crc32 = checksum(w->part.crc32, bytes, length);
    w->part.bytes += (int64_t)length;
    return ALIBI_OK;
}

alibi_status part_finish(struct part_writer *w, struct part *part)
{
    struct file *f = w->file;

    TRY_RETURN(file_sync(f));
    w->file = NULL;
    TRY_RETURN(file_close(f));
    *part = w->part;
    return ALIBI_OK;
}

void part_abandon(struct part_writer *w)
{
    file_close(w->file);
    w->file = NULL;
}

/* ---- the list of tensors */

static alibi_status fill_entry(struct tensor_file *f, const struct model *m,
                               const struct parameter *p, const char *prefix, void *buffer)
{
    struct safetensor *e = &f->entries[f->count];
    struct text name = { 0 };

    TRY_RETURN(text_append(&name, "%s%s", prefix, p->name));
    *e = (struct safetensor){
        .name = name.data, .type = "F32", .rank = p->rank, .shape = { p->shape[0], p->shape[1] }
    };
    f->views[f->count] = parameter_slice(m, p, buffer);
    f->count++;
    return ALIBI_OK;
}

alibi_status tensor_file_init(struct tensor_file *f, const struct model *m,
                              const char *const *prefixes, void *const *buffers, int buffer_count)
{
    alibi_status status;
    struct tensor_file made = { .device = m->device };

    TRY(NEW_ZERO_ARRAY(&made.entries, (int64_t)buffer_count * m->count, "a list of tensors"));
    TRY(NEW_ARRAY(&made.views, (int64_t)buffer_count * m->count, "a list of tensors"));
    for (int b = 0; b < buffer_count; b++)
        for (int i = 0; buffers[b] && i < m->count; i++)
            TRY(fill_entry(&made, m, &m->parameters[i], prefixes[b], buffers[b]));
    TRY(safetensors_header(&made.header, made.entries, made.count));
    made.bytes = made.entries[made.count - 1].end;
    *f = made;
    made = (struct tensor_file){ 0 };
out:
    tensor_file_fini(&made);
    return status;
}

void tensor_file_fini(struct tensor_file *f)
{
    for (int i = 0; i < f->count; i++)
        mem_free(f->entries[i].name);
    mem_free(f->entries);
    mem_free(f->views);
    text_free(&f->header);
    *f = (struct tensor_file){ 0 };
}

alibi_status tensor_file_of_model(struct tensor_file *f, const struct model *m)
{
    return tensor_file_init(f, m, (const char *const[]){ "" }, (void *const[]){ m->values }, 1);
}

alibi_status tensor_file_of_moments(struct tensor_file *f, const struct model *m, void *first,
                                    void *second)
{
    return tensor_file_init(f, m, (const char *const[]){ "first.", "second." },
                            (void *const[]){ first, second }, 2);
}

/* ---- writing */

/* Elements from `from` on, as many as a block holds at most. */
static struct tensor block_of(struct tensor t, int64_t from)
{
    int64_t left = tensor_count(t) - from;

    return tensor_1(tensor_at(t, from), t.type, left < BLOCK_FLOATS ? left : BLOCK_FLOATS);
}

static alibi_status write_tensor(struct part_writer *w, struct device *device, struct tensor t,
                                 float *block)
{
    for (int64_t from = 0; from < tensor_count(t); from += BLOCK_FLOATS) {
        struct tensor some = block_of(t, from);
        TRY_RETURN(device->ops->download(device, block, some));
        TRY_RETURN(part_put(w, block, (size_t)tensor_count(some) * sizeof *block));
    }
    return ALIBI_OK;
}

alibi_status tensor_file_write(const struct tensor_file *f, const char *folder, const char *name,
                               struct part *part)
{
    alibi_status status;
    struct part_writer w = { 0 };
    float *block = NULL;

    TRY(NEW_ARRAY(&block, BLOCK_FLOATS, "a block of weights"));
    TRY(part_open(&w, folder, name));
    TRY(part_put(&w, f->header.data, f->header.length));
    for (int i = 0; i < f->count; i++)
        TRY(write_tensor(&w, f->device, f->views[i], block));
    TRY(part_finish(&w, part));
out:
    part_abandon(&w);
    mem_free(block);
    return status;
}

/* ---- reading */

static bool same_entry(const struct safetensor *a, const struct safetensor *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->type, b->type) == 0 && a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

/* The tensors must be those of this configuration, in the order of its table; *begin is where their
 * data starts. */
static alibi_status check_entries(const struct tensor_file *f, const char *path, int64_t *begin)
{
    alibi_status status;
    struct safetensors *found = NULL;

    TRY(safetensors_open(&found, path));
    if (found->count != f->count) {
        status = fail(ALIBI_BAD_INPUT, "'%s' has %d tensors, its configuration has %d", path,
                      found->count, f->count);
        goto out;
    }
    for (int i = 0; i < f->count; i++)
        if (!same_entry(&found->tensors[i], &f->entries[i])) {
            status = fail(ALIBI_BAD_INPUT, "'%s': tensor '%s' is not the '%s' of its configuration",
                          path, found->tensors[i].name, f->entries[i].name);
            goto out;
        }
    *begin = found->tensors[0].begin;
out:
    safetensors_free(found);
    return status;
}

static alibi_status read_exactly(struct file *file, void *buffer, size_t bytes, const char *path)
{
    size_t got;

    TRY_RETURN(file_read(file, buffer, bytes, &got));
    return got == bytes ? ALIBI_OK : fail(ALIBI_IO, "'%s' ended while it was read", path);
}

static alibi_status read_tensor(struct file *file, struct device *device, struct tensor t,
                                float *block, const char *path)
{
    for (int64_t from = 0; from < tensor_count(t); from += BLOCK_FLOATS) {
        struct tensor some = block_of(t, from);
        TRY_RETURN(read_exactly(file, block, (size_t)tensor_count(some) * sizeof *block, path));
        TRY_RETURN(device->ops->upload(device, some, block));
    }
    return ALIBI_OK;
}

static alibi_status skip(struct file *file, int64_t bytes, float *block, const char *path)
{
    const int64_t most = (int64_t)(BLOCK_FLOATS * sizeof *block);

    for (int64_t left = bytes; left > 0; left -= most)
        TRY_RETURN(read_exactly(file, block, (size_t)(left < most ? left : most), path));
    return ALIBI_OK;
}

alibi_status tensor_file_read(const struct tensor_file *f, const char *path)
{
    alibi_status status;
    struct file *file = NULL;
    float *block = NULL;
    int64_t begin = 0;

    TRY(check_entries(f, path, &begin));
    TRY(NEW_ARRAY(&block, BLOCK_FLOATS, "a block of weights"));
    TRY(file_open_read(&file, path));
    TRY(skip(file, begin, block, path));
    for (int i = 0; i < f->count; i++)
        TRY(read_tensor(file, f->device, f->views[i], block, path));
out:
    file_close(file);
    mem_free(block);
    return status;
}
