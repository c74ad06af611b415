/* tensors.c - tensors between a device and a safetensors file
 *
 * They pass through one block of bounded size, whatever the size of the model. In memory they are
 * fp32, in a file fp32, bf16 or fp16. Files are little-endian, as is every machine this runs on. */
#include <math.h>
#include <string.h>

#include "checkpoint/parts.h"
#include "ops/bf16.h"
#include "ops/fp16.h"

enum { BLOCK = 1 << 18 }; /* elements; large enough to hide the latency of a transfer from a GPU */

/* ---- the list of tensors */

/* One entry per parameter for each buffer that is not NULL, named prefix + parameter. */
static alibi_status list_tensors(struct tensor_file *f, const struct model *m, const char *type,
                                 const char *const prefixes[], void *const buffers[], int buffers_n)
{
    alibi_status status;
    struct tensor_file made = { .device = m->device };
    struct text name = { 0 };

    TRY(NEW_ZERO_ARRAY(&made.entries, (int64_t)buffers_n * m->count, "a list of tensors"));
    TRY(NEW_ARRAY(&made.views, (int64_t)buffers_n * m->count, "a list of tensors"));
    for (int b = 0; b < buffers_n; b++)
        for (int i = 0; buffers[b] && i < m->count; i++) {
            const struct parameter *p = &m->parameters[i];
            struct safetensor *e = &made.entries[made.count];
            text_append(&name, "%s%s", prefixes[b], p->name);
            TRY(text_status(&name));
            *e = (struct safetensor){ .name = name.data,
                                      .rank = p->rank,
                                      .shape = { p->shape[0], p->shape[1] } };
            snprintf(e->type, sizeof e->type, "%s", type);
            name = (struct text){ 0 };
            made.views[made.count++] = parameter_slice(m, p, buffers[b]);
        }
    TRY(safetensors_header(&made.header, made.entries, made.count));
    made.bytes = made.entries[made.count - 1].end;
    *f = made;
    made = (struct tensor_file){ 0 };
out:
    text_free(&name);
    tensor_file_fini(&made);
    return status;
}

alibi_status tensor_file_of_model(struct tensor_file *f, const struct model *m, const char *type)
{
    return list_tensors(f, m, type, (const char *const[]){ "" }, (void *const[]){ m->values }, 1);
}

alibi_status tensor_file_of_moments(struct tensor_file *f, const struct model *m, void *first,
                                    void *second)
{
    return list_tensors(f, m, "F32", (const char *const[]){ "first.", "second." },
                        (void *const[]){ first, second }, 2);
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

/* ---- a block of elements, as in memory and as in a file */

struct transfer {
    float *values;    /* [BLOCK] */
    uint16_t *halves; /* [BLOCK], after them */
};

static alibi_status transfer_new(struct transfer *b)
{
    TRY_RETURN(NEW_ARRAY(&b->values, BLOCK + BLOCK / 2, "a block of weights"));
    b->halves = (uint16_t *)(void *)(b->values + BLOCK);
    return ALIBI_OK;
}

/* The bytes of the first `count` values as `type`. */
static const void *encode(struct transfer *b, const char *type, int64_t count)
{
    if (strcmp(type, "F32") == 0)
        return b->values;
    if (strcmp(type, "BF16") == 0)
        for (int64_t i = 0; i < count; i++)
            b->halves[i] = bf16_from_float(b->values[i]);
    else
        for (int64_t i = 0; i < count; i++)
            b->halves[i] = fp16_from_float(b->values[i]);
    return b->halves;
}

/* Where to read bytes of `type` into. decode() then turns them into values. */
static void *bytes_of(struct transfer *b, const char *type)
{
    return strcmp(type, "F32") == 0 ? (void *)b->values : (void *)b->halves;
}

static void decode(struct transfer *b, const char *type, int64_t count)
{
    if (strcmp(type, "BF16") == 0)
        for (int64_t i = 0; i < count; i++)
            b->values[i] = bf16_to_float(b->halves[i]);
    else if (strcmp(type, "F16") == 0)
        for (int64_t i = 0; i < count; i++)
            b->values[i] = fp16_to_float(b->halves[i]);
}

/* The elements of a tensor from `from` on, at most a block of them. */
static struct tensor block_of(struct tensor t, int64_t from)
{
    int64_t left = tensor_count(t) - from;

    return tensor_1(tensor_at(t, from), t.type, left < BLOCK ? left : BLOCK);
}

/* ---- writing */

/* A finite value must stay finite in the narrower type. */
static alibi_status check_range(struct transfer *b, const struct safetensor *e, int64_t count)
{
    if (strcmp(e->type, "F32") == 0)
        return ALIBI_OK;
    for (int64_t i = 0; i < count; i++) {
        float value = b->values[i];
        uint16_t infinity = strcmp(e->type, "F16") == 0 ? 0x7c00 : 0x7f80;
        if ((b->halves[i] & infinity) == infinity)
            return fail(ALIBI_NUMERIC,
                        "cannot write tensor '%s' as %s: %g is beyond its range; use fp32%s",
                        e->name, e->type, (double)value, infinity == 0x7c00 ? " or bf16" : "");
    }
    return ALIBI_OK;
}

/* Between the device and `values`, one block at a time, so that passes of other threads on the same
 * device can run between two blocks. */
static alibi_status download(const struct tensor_file *f, float *values, struct tensor block)
{
    alibi_status status;

    device_lock(f->device);
    status = f->device->ops->download(f->device, values, block);
    device_unlock(f->device);
    return status;
}

static alibi_status upload(const struct tensor_file *f, struct tensor block, const float *values)
{
    alibi_status status;

    device_lock(f->device);
    status = f->device->ops->upload(f->device, block, values);
    device_unlock(f->device);
    return status;
}

static alibi_status write_tensor(struct part_writer *w, const struct tensor_file *f, int i,
                                 struct transfer *b)
{
    const struct safetensor *e = &f->entries[i];

    for (int64_t from = 0; from < tensor_count(f->views[i]); from += BLOCK) {
        struct tensor some = block_of(f->views[i], from);
        int64_t count = tensor_count(some);
        const void *bytes;
        TRY_RETURN(download(f, b->values, some));
        bytes = encode(b, e->type, count);
        TRY_RETURN(check_range(b, e, count));
        TRY_RETURN(part_put(w, bytes, (size_t)count * safetensor_type_bytes(e->type)));
    }
    return ALIBI_OK;
}

alibi_status tensor_file_write(const struct tensor_file *f, const char *folder, const char *name,
                               struct part *part)
{
    alibi_status status;
    struct part_writer w = { 0 };
    struct transfer b = { 0 };

    TRY(transfer_new(&b));
    TRY(part_open(&w, folder, name));
    TRY(part_put(&w, f->header.data, f->header.length));
    for (int i = 0; i < f->count; i++)
        TRY(write_tensor(&w, f, i, &b));
    TRY(part_finish(&w, part));
out:
    part_abandon(&w);
    mem_free(b.values);
    return status;
}

/* ---- reading: matching the tensors of the file with those of the list */

/* The index of a tensor in the list, -1 if it is not there. `guess` is where it is most likely. */
static int find(const struct safetensor *list, int count, const char *name, int guess)
{
    if (guess < count && strcmp(list[guess].name, name) == 0)
        return guess;
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return i;
    return -1;
}

static void format_shape(char *out, size_t bytes, const struct safetensor *t)
{
    int used = snprintf(out, bytes, "[");

    for (int i = 0; i < t->rank && (size_t)used < bytes; i++)
        used += snprintf(out + used, bytes - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)t->shape[i]);
    if ((size_t)used < bytes)
        snprintf(out + used, bytes - (size_t)used, "]");
}

static alibi_status check_tensor(const struct safetensor *found, const struct safetensor *wanted,
                                 const char *path)
{
    char there[64], here[64];

    if (strcmp(found->type, "F32") != 0 && strcmp(found->type, "BF16") != 0 &&
        strcmp(found->type, "F16") != 0)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': tensor '%s' has type %s; weights are read from F32, BF16 and F16", path,
                    found->name, found->type);
    if (found->rank == wanted->rank &&
        memcmp(found->shape, wanted->shape, (size_t)found->rank * sizeof *found->shape) == 0)
        return ALIBI_OK;
    format_shape(there, sizeof there, found);
    format_shape(here, sizeof here, wanted);
    return fail(ALIBI_BAD_INPUT, "'%s': tensor '%s' has shape %s; the configuration needs %s", path,
                found->name, there, here);
}

/* target[i] is the index in f's list of tensor i of the file; -1: it is not read. Checks type and
 * shape of those that are read. */
static alibi_status match(int *target, const struct tensor_file *f, const struct safetensors *found,
                          const char *except, const char *path)
{
    for (int i = 0; i < found->count; i++) {
        const struct safetensor *t = &found->tensors[i];
        target[i] = except && strncmp(t->name, except, strlen(except)) == 0
                        ? -1
                        : find(f->entries, f->count, t->name, i);
        if (target[i] >= 0)
            TRY_RETURN(check_tensor(t, &f->entries[target[i]], path));
    }
    return ALIBI_OK;
}

static alibi_status check_exact(const int *target, const struct tensor_file *f,
                                const struct safetensors *found, const char *path)
{
    if (found->count != f->count)
        return fail(ALIBI_BAD_INPUT, "'%s' has %d tensors; the configuration has %d", path,
                    found->count, f->count);
    for (int i = 0; i < found->count; i++)
        if (target[i] < 0)
            return fail(ALIBI_BAD_INPUT, "'%s': the configuration has no tensor '%s'", path,
                        found->tensors[i].name);
    return ALIBI_OK;
}

static void list_name(struct text *list, const char *name)
{
    text_append(list, "%s%s", list->length > 0 ? ", " : "", name);
}

static void list_unmatched(const int *target, const struct tensor_file *f,
                           const struct safetensors *found, const char *except,
                           struct text *missing, struct text *unused)
{
    for (int i = 0; i < found->count; i++)
        if (target[i] < 0)
            list_name(unused, found->tensors[i].name);
    for (int i = 0; i < f->count; i++) {
        const char *name = f->entries[i].name;
        if ((except && strncmp(name, except, strlen(except)) == 0) ||
            find(found->tensors, found->count, name, i) < 0)
            list_name(missing, name);
    }
}

/* ---- reading: the data */

static alibi_status read_exactly(struct file *file, void *buffer, int64_t bytes, const char *path)
{
    size_t got;

    TRY_RETURN(file_read(file, buffer, (size_t)bytes, &got));
    if ((int64_t)got != bytes)
        return fail(ALIBI_IO, "'%s' ended while it was read", path);
    return ALIBI_OK;
}

static alibi_status skip_bytes(struct file *file, int64_t bytes, struct transfer *b,
                               const char *path)
{
    const int64_t most = BLOCK * (int64_t)sizeof *b->values;

    for (; bytes > 0; bytes -= most)
        TRY_RETURN(read_exactly(file, b->values, bytes < most ? bytes : most, path));
    return ALIBI_OK;
}

/* All tensors in the order of the file, which is read once from its start. */
static alibi_status read_data(const int *target, const struct tensor_file *f,
                              const struct safetensors *found, const char *path)
{
    alibi_status status;
    struct file *file = NULL;
    struct transfer b = { 0 };

    TRY(transfer_new(&b));
    TRY(file_open_read(&file, path));
    TRY(skip_bytes(file, found->count > 0 ? found->tensors[0].begin : 0, &b, path));
    for (int i = 0; i < found->count; i++) {
        const struct safetensor *t = &found->tensors[i];
        if (target[i] < 0) {
            TRY(skip_bytes(file, t->end - t->begin, &b, path));
            continue;
        }
        for (int64_t from = 0; from < tensor_count(f->views[target[i]]); from += BLOCK) {
            struct tensor some = block_of(f->views[target[i]], from);
            int64_t count = tensor_count(some);
            TRY(read_exactly(file, bytes_of(&b, t->type),
                             count * (int64_t)safetensor_type_bytes(t->type), path));
            decode(&b, t->type, count);
            TRY(upload(f, some, b.values));
        }
    }
out:
    file_close(file);
    mem_free(b.values);
    return status;
}

static alibi_status read_tensors(const struct tensor_file *f, const char *path, bool exact,
                                 const char *except, struct text *missing, struct text *unused)
{
    alibi_status status;
    struct safetensors *found = NULL;
    int *target = NULL;

    TRY(safetensors_open(&found, path));
    TRY(NEW_ARRAY(&target, found->count, "a list of tensors"));
    TRY(match(target, f, found, except, path));
    if (exact) {
        TRY(check_exact(target, f, found, path));
    } else {
        list_unmatched(target, f, found, except, missing, unused);
        TRY(text_status(missing));
        TRY(text_status(unused));
    }
    TRY(read_data(target, f, found, path));
out:
    mem_free(target);
    safetensors_free(found);
    return status;
}

alibi_status tensor_file_read(const struct tensor_file *f, const char *path)
{
    return read_tensors(f, path, true, NULL, NULL, NULL);
}

alibi_status tensor_file_read_some(const struct tensor_file *f, const char *path,
                                   const char *except, struct text *missing, struct text *unused)
{
    return read_tensors(f, path, false, except, missing, unused);
}
